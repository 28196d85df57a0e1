//! The definition of every op: safe scalar Rust, written for reading.
//!
//! One file holds one op or a few that belong together. Each is written once over an arithmetic and run in
//! three: canonical f32 (the contract of `docs/numerics.md`, whose bits every other backend must equal),
//! f64 (the truth that f32 is measured against), and bf16 (what PyTorch computes with bfloat16 tensors).
//!
//! Sums are written in the order of the contract, so nothing here may be rearranged.

mod arithmetic;
mod attention;
pub(crate) mod choice;
mod elementwise;
mod embed;
mod logits;
mod matmul;
mod moe;
mod norm;
mod product;
mod rope;
mod softmax;
mod stats;
pub(crate) use stats::{Place, place, search};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;

use crate::backend::{Backend, BackendOptions, BackendSpec, Capabilities, Precision, this_processor};
use crate::cache::Rows;
use crate::host::{HostBackend, HostKernels, OpCx};
use crate::weight::WeightTable;
use crate::{ComputeError, Op};

pub(crate) use arithmetic::F32;
use arithmetic::{Arithmetic, Bf16, F64};

/// Entry in [`BACKENDS`](crate::BACKENDS).
pub(crate) const SPEC: BackendSpec = BackendSpec {
    name: "reference",
    about: "the definition: scalar, one thread; f32, f64 or bf16",
    precisions: &[Precision::F32, Precision::F64, Precision::Bf16],
    on_device: false,
    devices: || this_processor(LEVEL.into()),
    weight_bytes: |_| 0,
    probe: |_| Ok(Vec::new()),
    create,
};

fn create(options: &BackendOptions, weights: Arc<WeightTable>) -> Result<Box<dyn Backend>, ComputeError> {
    if let Some(level) = options.level.as_deref().filter(|&l| l != LEVEL) {
        return Err(ComputeError::Unavailable {
            what: "CPU level",
            name: level.into(),
            available: LEVEL.into(),
        });
    }
    Ok(match options.precision {
        Precision::F32 => Box::new(HostBackend::new(Reference::<F32>::default(), weights)),
        Precision::F64 => Box::new(HostBackend::new(Reference::<F64>::default(), weights)),
        Precision::Bf16 => Box::new(HostBackend::new(Reference::<Bf16>::default(), weights)),
    })
}

/// The one level that the reference has.
const LEVEL: &str = "scalar";

/// The reference kernels in one arithmetic.
#[derive(Default)]
pub(crate) struct Reference<A>(PhantomData<A>);

impl<A: Arithmetic> HostKernels for Reference<A> {
    type R = A::R;
    type Cache = Rows<A::R>;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: SPEC.name,
            precision: A::PRECISION,
            level: LEVEL.into(),
            threads: 1,
            bit_exact: A::PRECISION == Precision::F32,
        }
    }

    fn admit(&self, x: A::R) -> A::R {
        A::keep(x)
    }

    fn run_op(&mut self, op: &Op, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
        op.numerics().check(A::PRECISION)?;
        match op {
            Op::Embed(o) => embed::embed::<A>(o, cx),
            Op::SoftEmbed(o) => embed::soft_embed::<A>(o, cx),
            Op::MatMul(o) => matmul::matmul::<A>(o, cx),
            Op::RmsNorm(o) => norm::rms_norm::<A>(o, cx),
            Op::Scale(o) => elementwise::scale::<A>(o, cx),
            Op::Add(o) => elementwise::add::<A>(o, cx),
            Op::Glu(o) => elementwise::glu::<A>(o, cx),
            Op::Rope(o) => rope::rope::<A>(o, cx),
            Op::Attention(o) => attention::attention::<A>(o, cx),
            Op::KvAppend(o) => attention::kv_append(o, cx),
            Op::MoeRoute(o) => moe::route::<A>(o, cx),
            Op::MoeExperts(o) => moe::experts::<A>(o, cx),
            Op::Softcap(o) => elementwise::softcap::<A>(o, cx),
            Op::TokenStats(o) => stats::token_stats::<A>(o, cx),
            Op::TokenSample(o) => stats::token_sample::<A>(o, cx),
            Op::TakeRows(o) => choice::take_rows(o, cx),
            Op::Penalize(o) => choice::penalize::<A>(o, cx),
            Op::Restrict(o) => choice::restrict::<A>(o, cx),
            Op::PickStats(o) => choice::pick_stats::<A>(o, cx),
        }
    }
}
