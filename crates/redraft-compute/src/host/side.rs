//! Ops of a program that are computed in host memory while the others are computed on a device.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Buf, HostBackend, HostKernels, HostReal as _, LeftEarly, OpCx, Seq, SeqOf, view};
use crate::backend::{KvLayout, SeqId};
use crate::cache::Cache as _;
use crate::program::{Program, TapData};
use crate::{ComputeError, Kind, KvType, Op, Val, pass};

/// Kernels with what they need for ops of programs whose other ops are computed elsewhere.
pub(crate) struct HostSide<K: HostKernels> {
    kernels: K,
    seqs: BTreeMap<u32, SeqOf<K>>,
    runs: u64,
}

/// A run of a [`HostSide`].
pub(crate) struct SideRun<K: HostKernels> {
    bufs: Vec<Buf<K::R>>,
    /// Without doubles, with their numbers.
    seqs: Vec<(u32, SeqOf<K>)>,
    stop: Option<Arc<AtomicBool>>,
}

impl<K: HostKernels> HostSide<K> {
    pub(crate) fn new(kernels: K) -> HostSide<K> {
        HostSide { kernels, seqs: BTreeMap::new(), runs: 0 }
    }

    pub(crate) fn seq_create(&mut self, id: SeqId, layout: &KvLayout, kv_type: KvType) {
        let layer = |&width: &usize| K::Cache::new(width, kv_type);
        let seq = Seq { cache: layout.widths.iter().map(layer).collect(), len: 0, kept: BTreeMap::new() };
        self.seqs.insert(id.0, seq);
    }

    pub(crate) fn seq_free(&mut self, id: SeqId) {
        self.seqs.remove(&id.0);
    }

    pub(crate) fn seq_truncate(&mut self, id: SeqId, len: usize) {
        if let Some(seq) = self.seqs.get_mut(&id.0) {
            seq.truncate(len);
        }
    }

    pub(crate) fn seq_bytes(&self, id: SeqId) -> usize {
        self.seqs.get(&id.0).map_or(0, |s| s.cache.iter().map(K::Cache::bytes).sum())
    }

    /// Begins a run over these sequences, which are different ones. Makes room in the layers whose rows are appended here.
    pub(crate) fn begin(
        &mut self,
        program: &Program,
        different: &[SeqId],
        rows: &[usize],
        is_here: impl Fn(usize) -> bool,
        stop: Option<Arc<AtomicBool>>,
    ) -> Result<SideRun<K>, ComputeError> {
        self.runs += 1;
        let appended = |(i, op): (usize, &Op)| match op {
            Op::KvAppend(o) if is_here(i) => Some(o.layer),
            _ => None,
        };
        let layers: Vec<usize> = program.ops.iter().enumerate().filter_map(appended).collect();
        for (id, rows) in different.iter().zip(rows) {
            let Some(seq) = self.seqs.get_mut(&id.0) else { continue };
            let len = seq.len.saturating_add(*rows);
            for &layer in &layers {
                if let Some(layer) = seq.cache.get_mut(layer) {
                    layer.reserve(len)?;
                }
            }
        }
        let seqs = different.iter().filter_map(|id| Some((id.0, self.seqs.remove(&id.0)?))).collect();
        self.kernels.watch(stop.clone());
        Ok(SideRun { bufs: program.vals.iter().map(|_| Buf::None).collect(), seqs, stop })
    }

    /// Computes op `index`, whose inputs are there. `of` says which sequence each segment belongs to.
    pub(crate) fn run_op(
        &mut self,
        run: &mut SideRun<K>,
        program: &Program,
        index: usize,
        of: &[usize],
        hidden: Option<&mut Vec<K::R>>,
    ) -> Result<(), ComputeError> {
        if run.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(ComputeError::Interrupted);
        }
        let op = &program.ops[index];
        let outputs = op.outputs();
        for &v in &outputs {
            run.bufs[v.index()] = match v.kind() {
                Kind::Real => Buf::Real(HostBackend::<K>::buffer(&mut Vec::new(), v.len())?),
                Kind::Int => Buf::Int(vec![0; v.len()]),
            };
        }
        let mut seqs: Vec<SeqOf<K>> = Vec::new();
        let ids: Vec<u32> = run.seqs.iter().map(|s| s.0).collect();
        seqs.extend(std::mem::take(&mut run.seqs).into_iter().map(|s| s.1));
        let mut cx = OpCx {
            weights: program.weights(),
            run: self.runs,
            bufs: &mut run.bufs,
            seqs: &mut seqs,
            of,
            hidden,
        };
        // An op that was left early has no results to go on with, so it unwinds.
        let done = catch_unwind(AssertUnwindSafe(|| self.kernels.run_op(op, &mut cx)));
        run.seqs = ids.into_iter().zip(seqs).collect();
        match done {
            Ok(done) => done?,
            Err(payload) if payload.is::<LeftEarly>() => return Err(ComputeError::Interrupted),
            Err(payload) => resume_unwind(payload),
        }
        for &v in &outputs {
            if let Buf::Real(x) = &run.bufs[v.index()]
                && !self.kernels.finite(x)
                && let Some(at) = x.iter().position(|v| !v.finite())
            {
                return Err(pass::op_not_finite(program, index, v, at, x[at].to_f64().is_nan()));
            }
        }
        Ok(())
    }

    /// Ends a run; with `rows` the sequences have so many more tokens.
    pub(crate) fn end(&mut self, run: SideRun<K>, rows: Option<&[usize]>) {
        self.kernels.watch(None);
        for (i, (id, mut seq)) in run.seqs.into_iter().enumerate() {
            match rows {
                Some(rows) => seq.len += rows.get(i).copied().unwrap_or(0),
                None => seq.truncate(seq.len),
            }
            self.seqs.insert(id, seq);
        }
    }
}

impl<K: HostKernels> SideRun<K> {
    /// Elements of a value, where they are here.
    pub(crate) fn get(&self, v: Val) -> Option<TapData<'_>> {
        match &self.bufs[v.index()] {
            Buf::None => None,
            buf => Some(view(buf)),
        }
    }

    pub(crate) fn put_real(&mut self, v: Val, x: Vec<K::R>) {
        self.bufs[v.index()] = Buf::Real(x);
    }

    pub(crate) fn put_int(&mut self, v: Val, x: Vec<i32>) {
        self.bufs[v.index()] = Buf::Int(x);
    }

    pub(crate) fn free(&mut self, v: Val) {
        self.bufs[v.index()] = Buf::None;
    }
}
