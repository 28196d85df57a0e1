//! The CPU backend: the canonical bits at the speed of the machine.
//!
//! * [`level`]: which instruction sets there are; one is chosen per backend.
//! * `pool`: threads, and the splitting of outputs into tiles.
//! * `vector`, `x86`, `aarch64`: 16 lanes on each instruction set.
//! * `kernels`: inner loops, written once over the lanes; `table` compiles them once per level.
//! * `cache`: keys and values as panels.
//! * [`peak`]: what the machine can do at most.
//! * `ops`: each op as tiles and calls of kernels.
//!
//! Bits cannot depend on level, threads or tiling: lanes are either independent results or the 16
//! accumulators that the contract names, every sum belongs to one tile, and no instruction fuses a
//! multiplication with an addition, unless the product is exact, so that nobody can tell.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{
    Backend, BackendOptions, BackendSpec, Capabilities, Precision, only_f32, this_processor,
};
use crate::host::{HostBackend, HostKernels, OpCx};
use crate::reference::choice;
use crate::weight::WeightTable;
use crate::{ComputeError, Op, math};

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod cache;
mod kernels;
pub mod level;
mod ops;
pub mod peak;
mod pool;
mod prefetch;
mod table;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use level::CpuLevel;
pub use pool::MAX_THREADS;

/// Entry in [`BACKENDS`](crate::BACKENDS).
pub(crate) const SPEC: BackendSpec = BackendSpec {
    name: "cpu",
    about: "all threads, AVX2, AVX-512 or NEON; the canonical f32 bits",
    precisions: &[Precision::F32],
    on_device: false,
    devices: || this_processor(CpuLevel::available().last().map_or("", |l| l.name()).into()),
    weight_bytes: |_| 0,
    probe: |_| Ok(Vec::new()),
    create,
};

fn create(options: &BackendOptions, weights: Arc<WeightTable>) -> Result<Box<dyn Backend>, ComputeError> {
    only_f32(options)?;
    let level = CpuLevel::choose(options.level.as_deref())?;
    Ok(Box::new(HostBackend::new(Cpu::new(level, options.threads)?, weights)))
}

/// What the ops see of a run.
type Cx<'a> = OpCx<'a, f32, cache::Panels>;

/// Buffers of one thread.
#[derive(Default)]
struct Scratch {
    unpackers: ops::operand::Unpackers,
    sums: Vec<vector::Row16>,
    sums2: Vec<vector::Row16>,
    row: Vec<f32>,
    attention: ops::attention::Buffers,
    cache: cache::Buffers,
    logits: ops::logits::Buffers,
}

/// The kernels of one level with the threads and buffers they work with.
pub(crate) struct Cpu {
    level: CpuLevel,
    table: &'static table::Table,
    pool: pool::Pool,
    scratch: Vec<Mutex<Scratch>>,
    /// Packed activations, and those of the up projection where it wants another form than the gate projection.
    operand: ops::operand::Operand,
    operand2: ops::operand::Operand,
    /// Of the experts: the hidden layer and the results of all (token, slot) pairs.
    hidden: Vec<f32>,
    results: Vec<f32>,
    soft: ops::embed::Buffers,
    /// Keys and values of passes without a cache.
    passing: cache::Panels,
}

impl Cpu {
    pub(crate) fn new(level: CpuLevel, threads: Option<usize>) -> Result<Cpu, ComputeError> {
        let table = table::table(level).ok_or_else(|| ComputeError::Unavailable {
            what: "CPU level",
            name: level.name().into(),
            available: CpuLevel::available().iter().map(|l| l.name()).collect::<Vec<_>>().join(", "),
        })?;
        let pool = pool::Pool::new(threads.unwrap_or_else(pool::default_threads));
        let scratch = (0..pool.threads()).map(|_| Mutex::default()).collect();
        Ok(Cpu {
            level,
            table,
            pool,
            scratch,
            operand: Default::default(),
            operand2: Default::default(),
            hidden: Vec::new(),
            results: Vec::new(),
            soft: Default::default(),
            passing: Default::default(),
        })
    }

    /// The buffers of a participant. In a region that is not inside another one only that participant takes them, so
    /// nobody waits. A nested region must not take any (see [`Pool::run`](pool::Pool::run)).
    fn scratch(&self, thread: usize) -> MutexGuard<'_, Scratch> {
        self.scratch[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostKernels for Cpu {
    type R = f32;
    type Cache = cache::Panels;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: SPEC.name,
            precision: Precision::F32,
            level: self.level.name().into(),
            threads: self.pool.threads(),
            bit_exact: true,
        }
    }

    fn admit(&self, x: f32) -> f32 {
        math::flush(x)
    }

    fn finite(&self, x: &[f32]) -> bool {
        ops::rows::finite(self, x)
    }

    fn watch(&mut self, stop: Option<Arc<AtomicBool>>) {
        self.pool.watch(stop);
    }

    fn run_op(&mut self, op: &Op, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
        match op {
            Op::Embed(o) => ops::embed::run(self, o, cx),
            Op::SoftEmbed(o) => ops::embed::soft(self, o, cx),
            Op::MatMul(o) => ops::matmul::run(self, o, cx),
            Op::RmsNorm(o) => ops::rows::rms_norm(self, o, cx),
            Op::Scale(o) => ops::rows::scale(self, o, cx),
            Op::Add(o) => ops::rows::add(self, o, cx),
            Op::Glu(o) => ops::rows::glu(self, o, cx),
            Op::Rope(o) => ops::rows::rope(self, o, cx),
            Op::Attention(o) => ops::attention::run(self, o, cx),
            Op::KvAppend(o) => ops::attention::append(self, o, cx),
            Op::MoeRoute(o) => ops::rows::moe_route(self, o, cx),
            Op::MoeExperts(o) => ops::experts::run(self, o, cx),
            Op::Softcap(o) => ops::rows::softcap(self, o, cx),
            Op::TokenStats(o) => ops::logits::token_stats(self, o, cx),
            Op::TokenSample(o) => ops::logits::token_sample(self, o, cx),
            Op::TakeRows(o) => choice::take_rows(o, cx),
            Op::Penalize(o) => ops::rows::penalize(self, o, cx),
            Op::Restrict(o) => ops::rows::restrict(self, o, cx),
            Op::PickStats(o) => ops::rows::pick_stats(self, o, cx),
        }
    }
}
