//! RND1: Qwen 3 MoE that reads both ways and predicts each token in the row before it.
//! Fact sheet: `docs/models/rnd1.md`.

use redraft_compute::op::RopeStyle;

use super::ArchSpec;
use super::masked::{self, Canvas, Family};
use crate::convert::{HfSpec, tables};
use crate::sampler::ENTROPY_BOUND_MONOTONE;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: FAMILY.name,
    about: "RND1: Qwen 3 MoE with a full mask, logits shifted by one",
    load: |gguf, w, notes| masked::load(&FAMILY, gguf, w, notes),
    sampler: Some(&ENTROPY_BOUND_MONOTONE),
    defaults: &[],
    tap_names: masked::TAP_NAMES,
    presets: crate::synth::RND1,
    hf: Some(&HF),
    pre: Some("qwen2"),
    shifted: Some(FAMILY.shifted),
};

const HF: HfSpec = HfSpec {
    classes: &["RND1LM"],
    model_types: &["rnd1"],
    tensors: &[tables::BASE, tables::HEAD_NORMS, tables::ROUTER, tables::EXPERTS],
    ignored: &[],
    twins: &[],
    made: &[],
    keys: &[tables::SIZES, tables::EXPERT_SIZES],
    demands: &[tables::PLAIN, tables::WHOLE_HEADS, tables::NO_QKV_BIAS, tables::RENORMALIZED],
    inert: &[tables::INERT],
    add_bos: None,
};

const FAMILY: Family = Family {
    name: "rnd1",
    rope: RopeStyle::Neox,
    bias: false,
    head_norms: true,
    experts: Some(|h, _| masked::softmax_experts(h, true)),
    shifted: true,
    canvas: Canvas::Answer(256),
};
