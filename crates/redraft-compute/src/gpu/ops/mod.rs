//! Each op as kernels.

mod attention;
mod matmul;
mod rows;

use super::cx::Cx;
use super::device::Device;
use crate::{ComputeError, Op};

/// Asks the device for what an op computes. The outputs have their buffers.
pub(super) fn run<D: Device>(cx: &mut Cx<'_, D>, op: &Op) -> Result<(), ComputeError> {
    match op {
        Op::Embed(o) => rows::embed(cx, o),
        Op::MatMul(o) => matmul::matmul(cx, o),
        Op::RmsNorm(o) => rows::rms_norm(cx, o),
        Op::Scale(o) => rows::scale(cx, o),
        Op::Add(o) => rows::add(cx, o),
        Op::Glu(o) => rows::glu(cx, o),
        Op::Rope(o) => rows::rope(cx, o),
        Op::Attention(o) => attention::attention(cx, o),
        Op::KvAppend(o) => attention::append(cx, o),
        Op::Softcap(o) => rows::softcap(cx, o),
        Op::TakeRows(o) => rows::take_rows(cx, o),
        _ => Err(ComputeError::Unavailable {
            what: "op on this backend",
            name: op.name().into(),
            available: "others".into(),
        }),
    }
}
