//! SDAR with routed experts: Qwen 3 MoE that reads block by block. Fact sheet: `docs/models/sdar.md`.

use redraft_compute::op::RopeStyle;

use super::masked::{self, Canvas, Family};
use super::{ArchSpec, sdar};
use crate::convert::{HfSpec, Setting, key, tables};
use crate::sampler::THRESHOLD;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: FAMILY.name,
    about: "SDAR: Qwen 3 MoE with a block-causal mask",
    load: |gguf, w, notes| masked::load(&FAMILY, gguf, w, notes),
    sampler: Some(&THRESHOLD),
    defaults: sdar::DEFAULTS,
    tap_names: masked::TAP_NAMES,
    presets: crate::synth::SDAR_MOE,
    hf: Some(&HF),
    pre: Some("qwen2"),
    shifted: Some(FAMILY.shifted),
};

const HF: HfSpec = HfSpec {
    classes: &["SDARMoeForCausalLM"],
    model_types: &["sdar_moe"],
    tensors: &[tables::BASE, tables::HEAD_NORMS, tables::ROUTER, tables::EXPERTS],
    ignored: &[],
    twins: &[],
    made: &[],
    keys: &[
        tables::SIZES,
        tables::EXPERT_SIZES,
        &[key(super::CANVAS_LEN, Setting::Block(tables::BLOCK, Some(4)))],
    ],
    demands: &[tables::PLAIN, tables::WHOLE_HEADS, tables::NO_QKV_BIAS, tables::RENORMALIZED],
    inert: &[tables::INERT],
    add_bos: None,
};

const FAMILY: Family = Family {
    name: "sdar-moe",
    rope: RopeStyle::Neox,
    bias: false,
    head_norms: true,
    experts: Some(|h, _| masked::softmax_experts(h, true)),
    shifted: false,
    canvas: Canvas::Block(4),
};
