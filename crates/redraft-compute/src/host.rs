//! What all backends in host memory share: buffers, the KV cache, inputs, taps, and the search for NaN and
//! infinity. The arithmetic is the [`HostKernels`] of the backend.

pub(crate) mod flash;
#[cfg(feature = "gpu")]
pub(crate) mod side;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::backend::{Backend, Capabilities, InputData, KvLayout, SeqId};
use crate::cache::{Cache, Rows};
use crate::op::{GateUp, Logits, TokenStats};
use crate::pass::{self, CacheLayer};
use crate::program::{KeptId, Observer, Program, Source, TapData};
use crate::weight::WeightTable;
use crate::{ComputeError, Kind, KvType, Op, Val};

/// Number type of a host backend's buffers.
pub(crate) trait HostReal: Copy + Default + Send + Sync + 'static {
    fn from_f64(x: f64) -> Self;
    fn from_f32(x: f32) -> Self;
    fn to_f64(self) -> f64;
    fn finite(self) -> bool;
    fn view(x: &[Self]) -> TapData<'_>;
}

impl HostReal for f32 {
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
    fn from_f32(x: f32) -> f32 {
        x
    }
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    fn finite(self) -> bool {
        self.is_finite()
    }
    fn view(x: &[f32]) -> TapData<'_> {
        TapData::F32(x)
    }
}

impl HostReal for f64 {
    fn from_f64(x: f64) -> f64 {
        x
    }
    fn from_f32(x: f32) -> f64 {
        f64::from(x)
    }
    fn to_f64(self) -> f64 {
        self
    }
    fn finite(self) -> bool {
        self.is_finite()
    }
    fn view(x: &[f64]) -> TapData<'_> {
        TapData::F64(x)
    }
}

/// The arithmetic of a host backend.
pub(crate) trait HostKernels: Send {
    /// Number type of buffers.
    type R: HostReal;

    /// How it keeps keys and values.
    type Cache: Cache;

    fn capabilities(&self) -> Capabilities;

    /// Rounds an input to the backend's values (bf16); the identity elsewhere.
    fn admit(&self, x: Self::R) -> Self::R {
        x
    }

    /// Whether there is no NaN and no infinity.
    fn finite(&self, x: &[Self::R]) -> bool {
        x.iter().all(|v| v.finite())
    }

    /// Watches this flag from now on: when it is set, an op may be left by unwinding with [`LeftEarly`].
    fn watch(&mut self, _stop: Option<Arc<AtomicBool>>) {}

    /// Computes one op. The outputs of the op are in `cx` with their final length; what they hold is not meaningful.
    fn run_op(&mut self, op: &Op, cx: &mut OpCx<'_, Self::R, Self::Cache>) -> Result<(), ComputeError>;
}

/// What unwinds out of an op that was left before it was done.
pub(crate) struct LeftEarly;

/// Elements of one value.
#[derive(Debug)]
pub(crate) enum Buf<R> {
    None,
    Real(Vec<R>),
    Int(Vec<i32>),
}

/// What an op may touch.
pub(crate) struct OpCx<'a, R, C = Rows<R>> {
    pub(crate) weights: &'a WeightTable,
    /// Number of this run: a value of a run is written once.
    pub(crate) run: u64,
    bufs: &'a mut [Buf<R>],
    /// Of the sequences of the pass.
    seqs: &'a mut [Seq<R, C>],
    /// Which of them each segment of the pass belongs to.
    of: &'a [usize],
    /// Where the hidden layers of experts are left, `[tokens * top_k, hidden]`, for those who look at them.
    pub(crate) hidden: Option<&'a mut Vec<R>>,
}

impl<R: HostReal, C> OpCx<'_, R, C> {
    /// Elements of a real value.
    pub(crate) fn real(&self, v: Val) -> &[R] {
        match &self.bufs[v.index()] {
            Buf::Real(x) => x,
            _ => unreachable!("value {} is read after its last use or as another kind", v.index()),
        }
    }

    /// Elements of an integer value.
    pub(crate) fn int(&self, v: Val) -> &[i32] {
        match &self.bufs[v.index()] {
            Buf::Int(x) => x,
            _ => unreachable!("value {} is read after its last use or as another kind", v.index()),
        }
    }

    /// Checks that all ids of an integer value are in `0..limit`.
    pub(crate) fn check_ids(&self, op: &'static str, v: Val, limit: usize) -> Result<(), ComputeError> {
        pass::check_ids(op, self.int(v), v.cols(), limit)
    }

    /// Takes a real output out, so that it can be written while inputs are read; give it back with
    /// [`put_real`](Self::put_real).
    pub(crate) fn take_real(&mut self, v: Val) -> Vec<R> {
        match std::mem::replace(&mut self.bufs[v.index()], Buf::None) {
            Buf::Real(x) => x,
            _ => unreachable!("output {} was taken twice or is of another kind", v.index()),
        }
    }

    pub(crate) fn take_int(&mut self, v: Val) -> Vec<i32> {
        match std::mem::replace(&mut self.bufs[v.index()], Buf::None) {
            Buf::Int(x) => x,
            _ => unreachable!("output {} was taken twice or is of another kind", v.index()),
        }
    }

    pub(crate) fn put_real(&mut self, v: Val, x: Vec<R>) {
        self.bufs[v.index()] = Buf::Real(x);
    }

    pub(crate) fn put_int(&mut self, v: Val, x: Vec<i32>) {
        self.bufs[v.index()] = Buf::Int(x);
    }

    /// A layer of the KV cache of a sequence, which was checked before the run, beside real values.
    pub(crate) fn cache<const N: usize>(
        &mut self,
        segment: usize,
        layer: usize,
        values: [Val; N],
    ) -> (&mut C, [&[R]; N]) {
        let bufs = &*self.bufs;
        let real = |v: Val| match &bufs[v.index()] {
            Buf::Real(x) => x.as_slice(),
            _ => unreachable!("value {} is read after its last use or as another kind", v.index()),
        };
        (&mut self.seqs[self.of[segment]].cache[layer], values.map(real))
    }
}

/// A sequence: its KV cache and its kept values.
pub(crate) struct Seq<R, C> {
    cache: Vec<C>,
    len: usize,
    kept: BTreeMap<KeptId, Vec<R>>,
}

impl<R, C: Cache> Seq<R, C> {
    /// Makes room for `rows` more tokens in every layer.
    fn reserve(&mut self, rows: usize) -> Result<(), ComputeError> {
        let len = self.len.saturating_add(rows);
        self.cache.iter_mut().try_for_each(|l| l.reserve(len))
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.cache.iter_mut().for_each(|l| l.truncate(self.len));
    }
}

/// A sequence of a backend with these kernels.
type SeqOf<K> = Seq<<K as HostKernels>::R, <K as HostKernels>::Cache>;

/// Buffers that wait for reuse: somewhat more than the values that are alive at once in a layer.
const POOLED: usize = 24;

/// A backend in host memory: kernels plus everything around them.
pub(crate) struct HostBackend<K: HostKernels> {
    kernels: K,
    weights: Arc<WeightTable>,
    seqs: BTreeMap<u32, SeqOf<K>>,
    next: u32,
    /// Runs so far.
    runs: u64,
    /// Buffers of finished values, for reuse.
    pool: Vec<Vec<K::R>>,
}

impl<K: HostKernels> HostBackend<K> {
    pub(crate) fn new(kernels: K, weights: Arc<WeightTable>) -> HostBackend<K> {
        HostBackend { kernels, weights, seqs: BTreeMap::new(), next: 0, runs: 0, pool: Vec::new() }
    }

    fn seq(&self, id: SeqId) -> Result<&SeqOf<K>, ComputeError> {
        self.seqs.get(&id.0).ok_or(ComputeError::UnknownHandle { what: "sequence", id: id.0 })
    }

    fn seq_mut(&mut self, id: SeqId) -> Result<&mut SeqOf<K>, ComputeError> {
        self.seqs.get_mut(&id.0).ok_or(ComputeError::UnknownHandle { what: "sequence", id: id.0 })
    }

    /// A buffer of `len` elements that are not meaningful, from the pool where one is large enough.
    fn buffer(pool: &mut Vec<Vec<K::R>>, len: usize) -> Result<Vec<K::R>, ComputeError> {
        let best = (0..pool.len()).filter(|&i| pool[i].capacity() >= len).min_by_key(|&i| pool[i].capacity());
        let mut x = best.map(|i| pool.swap_remove(i)).unwrap_or_default();
        x.truncate(len);
        x.try_reserve_exact(len - x.len()).map_err(|_| ComputeError::OutOfMemory {
            what: "an intermediate result".into(),
            bytes: len.saturating_mul(size_of::<K::R>()),
        })?;
        x.resize(len, K::R::default());
        // What an op forgets to write is found by its tests.
        if cfg!(debug_assertions) {
            x.fill(K::R::from_f64(f64::NAN));
        }
        Ok(x)
    }

    /// Takes a finished buffer for reuse. Inputs come from outside and would pile up, so the smallest goes
    /// when there are more than a pass has alive at once.
    fn recycle(&mut self, x: Vec<K::R>) {
        self.pool.push(x);
        if self.pool.len() > POOLED
            && let Some(least) = (0..self.pool.len()).min_by_key(|&i| self.pool[i].capacity())
        {
            self.pool.swap_remove(least);
        }
    }

    /// Inputs of the program as buffers.
    fn admit(
        &mut self,
        program: &Program,
        (seqs, of): (&[SeqOf<K>], &[usize]),
        inputs: &[InputData<'_>],
        bufs: &mut [Buf<K::R>],
    ) -> Result<(), ComputeError> {
        let mut given = inputs.iter();
        for (v, source) in &program.inputs {
            let name = match source {
                Source::Host { name } => *name,
                Source::Kept { segment, id } => {
                    let kept = of.get(*segment).and_then(|&s| seqs[s].kept.get(id));
                    let kept = kept
                        .filter(|k| k.len() == v.len())
                        .ok_or_else(|| pass::wrong_kept(*id, *v, kept.map(Vec::len)))?;
                    bufs[v.index()] = Buf::Real(kept.clone());
                    continue;
                }
            };
            let data = given.next();
            let buf = match data.filter(|data| pass::fits(data, *v)) {
                Some(InputData::Int(x)) => Buf::Int(x.to_vec()),
                Some(InputData::F32(x)) => {
                    Buf::Real(x.iter().map(|&x| self.kernels.admit(K::R::from_f32(x))).collect())
                }
                Some(InputData::F64(x)) => {
                    Buf::Real(x.iter().map(|&x| self.kernels.admit(K::R::from_f64(x))).collect())
                }
                None => return Err(pass::wrong_input(name, *v, data)),
            };
            if let Buf::Real(x) = &buf
                && let Some((i, is_nan)) = self.first_not_finite(x)
            {
                return Err(pass::input_not_finite(name, *v, i, is_nan));
            }
            bufs[v.index()] = buf;
        }
        Ok(())
    }

    /// The first NaN or infinity, and whether it is a NaN.
    fn first_not_finite(&self, x: &[K::R]) -> Option<(usize, bool)> {
        if self.kernels.finite(x) {
            return None;
        }
        let at = x.iter().position(|v| !v.finite())?;
        Some((at, x[at].to_f64().is_nan()))
    }

    fn execute(
        &mut self,
        program: &Program,
        (seqs, of): (&mut [SeqOf<K>], &[usize]),
        inputs: &[InputData<'_>],
        observer: &mut dyn Observer,
        stop: Option<&AtomicBool>,
    ) -> Result<(), ComputeError> {
        self.runs += 1;
        let mut bufs: Vec<Buf<K::R>> = program.vals.iter().map(|_| Buf::None).collect();
        self.admit(program, (seqs, of), inputs, &mut bufs)?;
        let mut taps = program.taps.iter().peekable();
        let times = observer.times_ops();
        let mut hidden = observer.wants_products().then(Vec::new);
        for (i, op) in program.ops.iter().enumerate() {
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(ComputeError::Interrupted);
            }
            let start = times.then(Instant::now);
            let outputs = op.outputs();
            for &v in &outputs {
                bufs[v.index()] = match v.kind() {
                    Kind::Real => Buf::Real(Self::buffer(&mut self.pool, v.len())?),
                    Kind::Int => Buf::Int(vec![0; v.len()]),
                };
            }
            let (weights, run) = (&self.weights, self.runs);
            let mut cx = OpCx { weights, run, bufs: &mut bufs, seqs, of, hidden: hidden.as_mut() };
            self.kernels.run_op(op, &mut cx)?;
            for &v in &outputs {
                if let Buf::Real(x) = &bufs[v.index()]
                    && let Some((at, is_nan)) = self.first_not_finite(x)
                {
                    return Err(pass::op_not_finite(program, i, v, at, is_nan));
                }
            }
            if let Some(start) = start {
                observer.timed(i, start.elapsed());
            }
            if let Some(hidden) = &hidden {
                show_products(op, &bufs, hidden, observer);
            }
            while let Some(&(_, key, v)) = taps.next_if(|t| t.0 <= i) {
                if observer.wants(key) {
                    observer.tap(key, v, view(&bufs[v.index()]));
                }
            }
            for v in op.inputs().into_iter().chain(outputs) {
                if program.last_use[v.index()] <= i
                    && let Buf::Real(x) = std::mem::replace(&mut bufs[v.index()], Buf::None)
                {
                    self.recycle(x);
                }
            }
        }
        for (index, &v) in program.outputs.iter().enumerate() {
            observer.output(index, v, view(&bufs[v.index()]));
        }
        for &(segment, v, id) in &program.keeps {
            if let (Some(seq), Buf::Real(x)) = (
                of.get(segment).and_then(|&s| seqs.get_mut(s)),
                std::mem::replace(&mut bufs[v.index()], Buf::None),
            ) {
                seq.kept.insert(id, x);
            }
        }
        Ok(())
    }
}

fn view<R: HostReal>(buf: &Buf<R>) -> TapData<'_> {
    match buf {
        Buf::Real(x) => R::view(x),
        Buf::Int(x) => TapData::I32(x),
        Buf::None => TapData::F32(&[]),
    }
}

/// Shows what an op multiplied by its weights. `hidden` is that of the experts.
fn show_products<R: HostReal>(op: &Op, bufs: &[Buf<R>], hidden: &[R], observer: &mut dyn Observer) {
    let of = |v: Val| view(&bufs[v.index()]);
    match op {
        Op::MatMul(o) => observer.product(o.w, of(o.x), None),
        Op::TokenStats(TokenStats { logits: Logits { x, head: Some(head), .. }, .. }) => {
            observer.product(head.w, of(*x), None);
        }
        Op::MoeExperts(o) => {
            let Buf::Int(ids) = &bufs[o.ids.index()] else { return };
            let (first, second) = match o.gate_up {
                GateUp::Fused(w) => (w, None),
                GateUp::Split { gate, up } => (gate, Some(up)),
            };
            for w in [Some(first), second].into_iter().flatten() {
                observer.product(w, of(o.x), Some(ids));
            }
            observer.product(o.down, R::view(hidden), Some(ids));
        }
        _ => {}
    }
}

impl<K: HostKernels> Backend for HostBackend<K> {
    fn capabilities(&self) -> Capabilities {
        self.kernels.capabilities()
    }

    fn seq_create(&mut self, layout: &KvLayout, kv_type: KvType) -> Result<SeqId, ComputeError> {
        kv_type.check(self.capabilities().precision)?;
        let layer = |&width: &usize| K::Cache::new(width, kv_type);
        let seq = Seq { cache: layout.widths.iter().map(layer).collect(), len: 0, kept: BTreeMap::new() };
        let id = self.next;
        self.next += 1;
        self.seqs.insert(id, seq);
        Ok(SeqId(id))
    }

    fn seq_len(&self, seq: SeqId) -> Result<usize, ComputeError> {
        Ok(self.seq(seq)?.len)
    }

    fn seq_truncate(&mut self, seq: SeqId, len: usize) -> Result<(), ComputeError> {
        let s = self.seq_mut(seq)?;
        s.truncate(len);
        s.kept.clear();
        Ok(())
    }

    fn seq_forget(&mut self, seq: SeqId, layer: usize, before: usize) -> Result<(), ComputeError> {
        if let Some(l) = self.seq_mut(seq)?.cache.get_mut(layer) {
            l.forget(before);
        }
        Ok(())
    }

    fn seq_free(&mut self, seq: SeqId) {
        self.seqs.remove(&seq.0);
    }

    fn seq_bytes(&self, seq: SeqId) -> Result<usize, ComputeError> {
        Ok(self.seq(seq)?.cache.iter().map(Cache::bytes).sum())
    }

    fn run(
        &mut self,
        program: &Program,
        seqs: &[SeqId],
        inputs: &[InputData<'_>],
        observer: &mut dyn Observer,
    ) -> Result<(), ComputeError> {
        let segments = program.segments();
        let different = pass::different(program, seqs)?;
        let mut appends = false;
        for (segment, &seq) in segments.iter().zip(seqs) {
            let seq = self.seq(seq)?;
            let layer = |l: &K::Cache| CacheLayer { width: l.width(), first: l.first() };
            let layers: Vec<CacheLayer> = seq.cache.iter().map(layer).collect();
            appends = pass::check_cache(program, segment, seq.len, &layers)?;
        }
        // The sequences are taken out for the run, so that kernels and cache can be borrowed side by side.
        let of: Vec<usize> = seqs.iter().map(|s| different.partition_point(|d| d < s)).collect();
        let mut taken: Vec<_> = different.iter().filter_map(|seq| self.seqs.remove(&seq.0)).collect();
        let mut parts = of.iter().zip(segments.iter());
        let room =
            if appends { parts.try_for_each(|(&s, part)| taken[s].reserve(part.rows)) } else { Ok(()) };
        let stop = observer.interrupt();
        self.kernels.watch(stop.clone());
        let run = || self.execute(program, (&mut taken, &of), inputs, observer, stop.as_deref());
        // An op that was left early has no results to go on with, so it unwinds.
        let mut panic = None;
        let done = room.and_then(|()| match catch_unwind(AssertUnwindSafe(run)) {
            Ok(done) => done,
            Err(payload) => {
                panic = Some(payload).filter(|p| !p.is::<LeftEarly>());
                Err(ComputeError::Interrupted)
            }
        });
        self.kernels.watch(None);
        for (&s, part) in of.iter().zip(segments.iter()) {
            let s = &mut taken[s];
            match &done {
                Ok(()) if appends => s.len += part.rows,
                // What a pass wrote behind the cache is not part of it; its memory serves the next pass.
                Ok(()) => {}
                Err(_) => s.truncate(s.len),
            }
        }
        self.seqs.extend(different.iter().map(|seq| seq.0).zip(taken));
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
        done
    }
}

#[cfg(test)]
mod tests;
