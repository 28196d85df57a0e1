//! LLaDA-MoE: routed experts whose weights are not renormalised, norms over query and key heads.
//! Fact sheet: `docs/models/llada-moe.md`.

use redraft_compute::op::RopeStyle;

use super::ArchSpec;
use super::masked::{self, Canvas, Family};
use crate::sampler::LOW_CONFIDENCE;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: FAMILY.name,
    about: "LLaDA-MoE: routed experts with a full mask",
    load: |gguf, w, notes| masked::load(&FAMILY, gguf, w, notes),
    sampler: Some(&LOW_CONFIDENCE),
    defaults: &[],
    tap_names: masked::TAP_NAMES,
    presets: crate::synth::LLADA_MOE,
    pre: Some("llada-moe"),
    shifted: Some(FAMILY.shifted),
};

const FAMILY: Family = Family {
    name: "llada-moe",
    rope: RopeStyle::Neox,
    bias: false,
    head_norms: true,
    experts: Some(|h, _| masked::softmax_experts(h, false)),
    shifted: false,
    canvas: Canvas::Answer(128),
};
