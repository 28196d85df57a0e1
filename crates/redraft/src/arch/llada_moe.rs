//! LLaDA-MoE: routed experts whose weights are not renormalised, norms over query and key heads.
//! Fact sheet: `docs/models/llada-moe.md`.

use redraft_compute::op::RopeStyle;

use super::ArchSpec;
use super::masked::{self, Canvas, Family};
use crate::convert::{Demand, HfSpec, demand, tables};
use crate::sampler::LOW_CONFIDENCE;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: FAMILY.name,
    about: "LLaDA-MoE: routed experts with a full mask",
    load: |gguf, w, notes| masked::load(&FAMILY, gguf, w, notes),
    sampler: Some(&LOW_CONFIDENCE),
    defaults: &[],
    tap_names: masked::TAP_NAMES,
    presets: crate::synth::LLADA_MOE,
    hf: Some(&HF),
    pre: Some("llada-moe"),
    shifted: Some(FAMILY.shifted),
};

const HF: HfSpec = HfSpec {
    classes: &["LLaDAMoEModelLM", "LLaDAMoEModel"],
    model_types: &["llada_moe", "lladamoe"],
    tensors: &[tables::BASE, tables::HEAD_NORMS, tables::ROUTER, tables::EXPERTS],
    ignored: &[],
    twins: &[],
    made: &[],
    keys: &[tables::SIZES, tables::EXPERT_SIZES],
    demands: &[tables::PLAIN, tables::WHOLE_HEADS, tables::NO_QKV_BIAS, RAW_WEIGHTS],
    inert: &[tables::INERT],
    add_bos: None,
};

/// Weights of experts are as the router gives them; whole heads rotate.
const RAW_WEIGHTS: &[Demand] = &[
    demand(&["norm_topk_prob"], &["false"]),
    demand(&["moe_router_score_function"], &["\"softmax\""]),
    demand(&["moe_router_enable_expert_bias"], &["false"]),
    demand(&["routed_scaling_factor"], &["1"]),
    demand(&["qk_layernorm"], &["true"]),
    // All layers have experts, all of which may be chosen, and none is shared.
    demand(&["moe_layer_freq"], &["1"]),
    demand(&["router_num_group", "router_topk_group", "shared_expert_intermediate_size"], &[]),
];

const FAMILY: Family = Family {
    name: "llada-moe",
    rope: RopeStyle::Neox,
    bias: false,
    head_norms: true,
    experts: Some(|h, _| masked::softmax_experts(h, false)),
    shifted: false,
    canvas: Canvas::Answer(128),
};
