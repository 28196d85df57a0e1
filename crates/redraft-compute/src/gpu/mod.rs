//! What all GPUs share: weights, values, sequences, and how ops become kernels.
//!
//! * [`device`]: what a GPU must do; `kernels`: what runs on it, as text in the folder of that name; `driver` and `module`:
//!   the same through drivers that take modules and addresses.
//! * [`weights`]: the forms in which weights are stored there.
//! * `ops`: each op as kernels.
//! * [`probe`](mod@probe): whether a device keeps to the contract.
//!
//! The bits are those of the reference: kernels add in the order of the contract, and how an op is cut into workgroups and
//! slabs cannot be seen in them. Nothing waits for the device within a run, unless somebody looks at taps; what a kernel finds
//! wrong it leaves in a word of its own, which is read at the end.

mod cx;
pub(crate) mod device;
#[cfg(any(feature = "cuda", feature = "hip"))]
pub(crate) mod driver;
pub(crate) mod kernels;
#[cfg(any(feature = "cuda", feature = "hip"))]
pub(crate) mod module;
mod ops;
pub(crate) mod probe;
mod seq;
mod weights;

pub(crate) use self::weights::stored_bytes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use self::cx::{Cx, Gpu};
use self::device::Device;
use self::seq::Seq;
use crate::backend::{
    Backend, BackendOptions, Capabilities, InputData, KvLayout, Placement, Precision, SeqId, only_f32,
};
use crate::cpu::{Cpu, CpuLevel};
use crate::host::HostKernels as _;
use crate::host::side::{HostSide, SideRun};
use crate::op::{GateUp, Head, Logits, TokenStats};
use crate::pass::{self, CacheLayer};
use crate::program::{Observer, Program, Source, TapData, TapKey};
use crate::weight::WeightTable;
use crate::{ComputeError, Kind, KvType, Op, Val, math};

/// A backend on a GPU.
struct GpuBackend<D: Device> {
    gpu: Gpu<D>,
    capabilities: Capabilities,
    seqs: BTreeMap<u32, Seq<D::Buffer>>,
    next: u32,
    placement: Placement,
    /// What the processor computes with, where it computes anything.
    host: Option<HostSide<Cpu>>,
}

/// A run that the processor takes part in.
type Side<'a> = Option<(&'a mut HostSide<Cpu>, SideRun<Cpu>)>;

/// Bytes of taps that wait to be shown together.
const TAPS: usize = 64 << 20;

/// Elements of a value as they were read.
enum Shown {
    Real(Vec<f32>),
    Int(Vec<i32>),
}

impl Shown {
    fn new(v: Val, bytes: &[u8]) -> Shown {
        let words = &bytes.as_chunks::<4>().0[..v.len()];
        match v.kind() {
            Kind::Real => Shown::Real(words.iter().map(|&w| f32::from_le_bytes(w)).collect()),
            Kind::Int => Shown::Int(words.iter().map(|&w| i32::from_le_bytes(w)).collect()),
        }
    }

    fn view(&self) -> TapData<'_> {
        match self {
            Shown::Real(x) => TapData::F32(x),
            Shown::Int(x) => TapData::I32(x),
        }
    }
}

/// A backend on a device that `open` opens, with its name.
pub(crate) fn create<D: Device + 'static>(
    backend: &'static str,
    options: &BackendOptions,
    weights: Arc<WeightTable>,
    open: impl FnOnce() -> Result<(D, String), ComputeError>,
) -> Result<Box<dyn Backend>, ComputeError> {
    only_f32(options)?;
    let (device, name) = open()?;
    let mut capabilities =
        Capabilities { backend, precision: Precision::F32, level: name, threads: 1, bit_exact: true };
    let placement = options.placement;
    let mut host = None;
    if placement.splits() {
        let level = CpuLevel::choose(options.level.as_deref())?;
        let cpu = Cpu::new(level, options.threads)?;
        capabilities.threads = cpu.capabilities().threads;
        capabilities.level = format!("{}, and {}", capabilities.level, level.name());
        host = Some(HostSide::new(cpu));
    }
    let gpu = Gpu::new(device, weights, options.device_memory)?;
    Ok(Box::new(GpuBackend { gpu, capabilities, seqs: BTreeMap::new(), next: 0, placement, host }))
}

impl<D: Device> GpuBackend<D> {
    fn seq(&self, id: SeqId) -> Result<&Seq<D::Buffer>, ComputeError> {
        self.seqs.get(&id.0).ok_or(ComputeError::UnknownHandle { what: "sequence", id: id.0 })
    }

    /// Brings inputs to the device.
    fn admit(
        cx: &mut Cx<'_, D>,
        seqs: &[Seq<D::Buffer>],
        inputs: &[InputData<'_>],
    ) -> Result<(), ComputeError> {
        let mut given = inputs.iter();
        for (v, source) in &cx.program.inputs {
            let name = match source {
                Source::Host { name } => *name,
                Source::Kept { segment, id } => {
                    let kept = cx.of.get(*segment).and_then(|&s| seqs[s].kept.get(id));
                    let kept = kept
                        .filter(|(_, n)| *n == v.len())
                        .ok_or_else(|| pass::wrong_kept(*id, *v, kept.map(|k| k.1)))?;
                    cx.values[v.index()] = Some(kept.0.clone());
                    continue;
                }
            };
            let data = given.next();
            let words: Vec<u32> = match data.filter(|data| pass::fits(data, *v)) {
                Some(InputData::Int(x)) => {
                    cx.ids.insert(v.index(), x.to_vec());
                    x.iter().map(|&x| x as u32).collect()
                }
                Some(InputData::F32(x)) => x.iter().map(|&x| math::flush(x).to_bits()).collect(),
                Some(InputData::F64(x)) => x.iter().map(|&x| math::flush(x as f32).to_bits()).collect(),
                None => return Err(pass::wrong_input(name, *v, data)),
            };
            if v.kind() == Kind::Real
                && let Some(i) = words.iter().position(|&w| !f32::from_bits(w).is_finite())
            {
                return Err(pass::input_not_finite(name, *v, i, f32::from_bits(words[i]).is_nan()));
            }
            let buffer = cx.gpu.buffer(4 * v.len() as u64)?;
            cx.gpu.device.write(&buffer, 0, bytes_of(&words))?;
            cx.values[v.index()] = Some(buffer);
        }
        Ok(())
    }

    /// Elements of values, after everything before is done and found right.
    fn show(cx: &mut Cx<'_, D>, values: &[Val]) -> Result<Vec<Shown>, ComputeError> {
        let sizes: Vec<u64> = values.iter().map(|v| 4 * v.len() as u64).collect();
        let bytes = cx.settle(values)?;
        let mut at = 0;
        let mut out = Vec::new();
        for (v, size) in values.iter().zip(sizes) {
            out.push(Shown::new(*v, &bytes[at..at + size as usize]));
            at += size as usize;
        }
        Ok(out)
    }

    /// Has the processor compute an op. What it reads comes from the device, what it writes stays here until the device
    /// reads it.
    fn on_host(
        cx: &mut Cx<'_, D>,
        (host, run): (&mut HostSide<Cpu>, &mut SideRun<Cpu>),
        wants_hidden: bool,
    ) -> Result<Option<Vec<f32>>, ComputeError> {
        let op = &cx.program.ops[cx.at];
        let missing: Vec<Val> = op.inputs().into_iter().filter(|&v| run.get(v).is_none()).collect();
        for (v, shown) in missing.iter().zip(Self::show(cx, &missing)?) {
            match shown {
                Shown::Real(x) => run.put_real(*v, x),
                Shown::Int(x) => run.put_int(*v, x),
            }
        }
        let mut hidden = wants_hidden.then(Vec::new);
        host.run_op(run, cx.program, cx.at, cx.of, hidden.as_mut())?;
        Ok(hidden)
    }

    /// Brings to the device what an op reads there and the processor made.
    fn to_device(cx: &mut Cx<'_, D>, run: &SideRun<Cpu>, values: &[Val]) -> Result<(), ComputeError> {
        for v in values {
            if cx.values[v.index()].is_some() {
                continue;
            }
            let words: Vec<u32> = match run.get(*v) {
                Some(TapData::F32(x)) => x.iter().map(|x| x.to_bits()).collect(),
                Some(TapData::I32(x)) => x.iter().map(|&x| x as u32).collect(),
                _ => continue,
            };
            let buffer = cx.gpu.buffer(4 * v.len() as u64)?;
            cx.gpu.device.write(&buffer, 0, bytes_of(&words))?;
            cx.values[v.index()] = Some(buffer);
        }
        Ok(())
    }

    fn execute(
        cx: &mut Cx<'_, D>,
        side: &mut Side<'_>,
        placement: Placement,
        inputs: &[InputData<'_>],
        observer: &mut dyn Observer,
        stop: Option<&AtomicBool>,
    ) -> Result<(), ComputeError> {
        let program = cx.program;
        let mut taps = program.taps.iter().peekable();
        let mut seen = Vec::new();
        let (times, products) = (observer.times_ops(), observer.wants_products());
        let seqs = std::mem::take(&mut cx.seqs);
        let admitted = Self::admit(cx, &seqs, inputs);
        cx.seqs = seqs;
        admitted?;
        for (i, op) in program.ops.iter().enumerate() {
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(ComputeError::Interrupted);
            }
            let start = times.then(Instant::now);
            let outputs = op.outputs();
            cx.at = i;
            cx.keeps_hidden = products;
            let mut hidden = None;
            match side {
                Some((host, run)) if placement.on_host(program, i) => {
                    hidden = Self::on_host(cx, (host, run), products)?;
                }
                _ => {
                    if let Some((_, run)) = side {
                        Self::to_device(cx, run, &op.inputs())?;
                    }
                    for v in &outputs {
                        cx.values[v.index()] = Some(cx.gpu.buffer(4 * v.len() as u64)?);
                    }
                    ops::run(cx, op)?;
                }
            }
            if let Some(start) = start {
                Self::show(cx, &[])?;
                observer.timed(i, start.elapsed());
            }
            if products {
                if let Some((_, run)) = side {
                    Self::to_device(cx, run, &op.inputs())?;
                }
                Self::show_products(cx, op, hidden.as_deref(), observer)?;
            }
            while let Some(&(_, key, v)) = taps.next_if(|t| t.0 <= i) {
                if observer.wants(key) {
                    if let Some((_, run)) = side {
                        Self::to_device(cx, run, &[v])?;
                    }
                    // A copy, since the value's memory is used again before anybody waits.
                    let bytes = 4 * v.len() as u64;
                    let copy = cx.gpu.buffer(bytes)?;
                    cx.gpu.device.copy((&cx.value(v), 0), (&copy, 0), bytes)?;
                    seen.push((key, v, copy));
                }
            }
            if seen.iter().map(|(_, v, _)| 4 * v.len()).sum::<usize>() > TAPS {
                Self::show_taps(cx, &mut seen, observer)?;
            }
            cx.free_temporaries();
            for v in op.inputs().into_iter().chain(outputs) {
                if program.last_use[v.index()] <= i {
                    cx.free(v);
                    if let Some((_, run)) = side {
                        run.free(v);
                    }
                }
            }
        }
        if let Some((_, run)) = side {
            let kept: Vec<Val> = program.keeps.iter().map(|k| k.1).collect();
            Self::to_device(cx, run, &program.outputs)?;
            Self::to_device(cx, run, &kept)?;
        }
        Self::show_taps(cx, &mut seen, observer)?;
        let shown = Self::show(cx, &program.outputs)?;
        for (index, (v, shown)) in program.outputs.iter().zip(&shown).enumerate() {
            observer.output(index, *v, shown.view());
        }
        for &(segment, v, id) in &program.keeps {
            if let Some(&s) = cx.of.get(segment)
                && let Some(buffer) = cx.values[v.index()].clone()
                && let Some((old, n)) = cx.seqs[s].kept.insert(id, (buffer, v.len()))
            {
                cx.gpu.recycle(4 * n as u64, old);
            }
        }
        Ok(())
    }

    /// Shows taps that were copied, after everything before is done and found right.
    fn show_taps(
        cx: &mut Cx<'_, D>,
        seen: &mut Vec<(TapKey, Val, D::Buffer)>,
        observer: &mut dyn Observer,
    ) -> Result<(), ComputeError> {
        if seen.is_empty() {
            return Ok(());
        }
        let parts: Vec<(D::Buffer, u64)> =
            seen.iter().map(|(_, v, buffer)| (buffer.clone(), 4 * v.len() as u64)).collect();
        let bytes = cx.settle_buffers(&parts)?;
        let mut at = 0;
        for (key, v, buffer) in seen.drain(..) {
            let end = at + 4 * v.len();
            observer.tap(key, v, Shown::new(v, &bytes[at..end]).view());
            at = end;
            cx.gpu.recycle(4 * v.len() as u64, buffer);
        }
        Ok(())
    }

    /// Shows what an op multiplied by its weights.
    fn show_products(
        cx: &mut Cx<'_, D>,
        op: &Op,
        hidden: Option<&[f32]>,
        observer: &mut dyn Observer,
    ) -> Result<(), ComputeError> {
        match op {
            Op::MatMul(o) => {
                let x = Self::show(cx, &[o.x])?;
                observer.product(o.w, x[0].view(), None);
            }
            Op::TokenStats(TokenStats { logits: Logits { x, head: Some(Head { w, .. }), .. }, .. }) => {
                let x = Self::show(cx, &[*x])?;
                observer.product(*w, x[0].view(), None);
            }
            Op::MoeExperts(o) => {
                let shown = Self::show(cx, &[o.x, o.ids])?;
                let [x, Shown::Int(ids)] = &shown[..] else { return Ok(()) };
                let (first, second) = match o.gate_up {
                    GateUp::Fused(w) => (w, None),
                    GateUp::Split { gate, up } => (gate, Some(up)),
                };
                for w in [Some(first), second].into_iter().flatten() {
                    observer.product(w, x.view(), Some(ids));
                }
                if let Some(hidden) = hidden {
                    observer.product(o.down, TapData::F32(hidden), Some(ids));
                } else if let Some((hidden, n)) = cx.hidden.take() {
                    let bytes = cx.settle_buffers(&[(hidden, 4 * n as u64)])?;
                    let hidden: Vec<f32> =
                        bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
                    observer.product(o.down, TapData::F32(&hidden), Some(ids));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Words as the device has them.
pub(crate) fn bytes_of(words: &[u32]) -> &[u8] {
    const { assert!(cfg!(target_endian = "little"), "devices read words as they lie in memory") };
    bytemuck::cast_slice(words)
}

impl<D: Device> Backend for GpuBackend<D> {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn seq_create(&mut self, layout: &KvLayout, kv_type: KvType) -> Result<SeqId, ComputeError> {
        kv_type.check(self.capabilities.precision)?;
        let id = self.next;
        self.next += 1;
        self.seqs.insert(id, Seq::new(&layout.widths, kv_type));
        if let Some(host) = &mut self.host {
            host.seq_create(SeqId(id), layout, kv_type);
        }
        Ok(SeqId(id))
    }

    fn seq_len(&self, seq: SeqId) -> Result<usize, ComputeError> {
        Ok(self.seq(seq)?.len)
    }

    fn seq_truncate(&mut self, seq: SeqId, len: usize) -> Result<(), ComputeError> {
        let s =
            self.seqs.get_mut(&seq.0).ok_or(ComputeError::UnknownHandle { what: "sequence", id: seq.0 })?;
        s.truncate(len);
        self.gpu.release(s);
        if let Some(host) = &mut self.host {
            host.seq_truncate(seq, len);
        }
        Ok(())
    }

    /// Keeps what it may free: caches of a device are one piece.
    fn seq_forget(&mut self, seq: SeqId, _layer: usize, _before: usize) -> Result<(), ComputeError> {
        self.seq(seq).map(|_| ())
    }

    fn seq_free(&mut self, seq: SeqId) {
        if let Some(mut s) = self.seqs.remove(&seq.0) {
            s.len = 0;
            self.gpu.release(&mut s);
        }
        if let Some(host) = &mut self.host {
            host.seq_free(seq);
        }
    }

    fn seq_bytes(&self, seq: SeqId) -> Result<usize, ComputeError> {
        Ok(self.seq(seq)?.bytes() + self.host.as_ref().map_or(0, |h| h.seq_bytes(seq)))
    }

    fn run(
        &mut self,
        program: &Program,
        seqs: &[SeqId],
        inputs: &[InputData<'_>],
        observer: &mut dyn Observer,
    ) -> Result<(), ComputeError> {
        let different = pass::different(program, seqs)?;
        let mut appends = false;
        for (segment, &seq) in program.segments().iter().zip(seqs) {
            let seq = self.seq(seq)?;
            let layers: Vec<CacheLayer> = seq.widths().map(|width| CacheLayer { width, first: 0 }).collect();
            appends = pass::check_cache(program, segment, seq.len, &layers)?;
        }
        let of: Vec<usize> = seqs.iter().map(|s| different.partition_point(|d| d < s)).collect();
        let parts = || of.iter().zip(program.segments().iter());
        let rows: Vec<usize> = (0..different.len())
            .map(|s| parts().filter(|(o, _)| **o == s).map(|(_, part)| part.rows).sum())
            .collect();
        let placement = self.placement;
        let stop = observer.interrupt();
        let mut side: Side<'_> = match &mut self.host {
            None => None,
            Some(host) => {
                let here = |i| placement.on_host(program, i);
                let run = host.begin(program, &different, &rows, here, stop.clone())?;
                Some((host, run))
            }
        };
        let taken: Vec<_> = different.iter().filter_map(|seq| self.seqs.remove(&seq.0)).collect();
        let mut cx = Cx::new(&mut self.gpu, program, taken, &of);
        let done = Self::execute(&mut cx, &mut side, placement, inputs, observer, stop.as_deref());
        let mut taken = cx.finish(done.is_ok());
        if done.is_err() {
            self.gpu.settle_failed();
        }
        let grows = done.is_ok() && appends;
        if grows {
            taken.iter_mut().zip(&rows).for_each(|(seq, rows)| seq.len += rows);
        }
        if let Some((host, run)) = side {
            host.end(run, grows.then_some(&rows));
        }
        self.seqs.extend(different.iter().map(|seq| seq.0).zip(taken));
        done
    }
}
