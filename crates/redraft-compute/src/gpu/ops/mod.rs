//! Each op as kernels.

mod attention;
mod choice;
pub(super) mod logits;
mod matmul;
mod moe;
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
        Op::MoeRoute(o) => moe::route(cx, o),
        Op::MoeExperts(o) => moe::experts(cx, o),
        Op::Penalize(o) => choice::penalize(cx, o),
        Op::Restrict(o) => choice::restrict(cx, o),
        Op::PickStats(o) => choice::pick_stats(cx, o),
        Op::Softcap(o) => rows::softcap(cx, o),
        Op::TakeRows(o) => rows::take_rows(cx, o),
        Op::TokenStats(o) => logits::token_stats(cx, o),
        Op::TokenSample(o) => logits::token_sample(cx, o),
        Op::SoftEmbed(o) => logits::soft_embed(cx, o),
    }
}
