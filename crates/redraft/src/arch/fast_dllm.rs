//! Fast-dLLM v2: Qwen 2.5 that reads block by block and predicts each token in the row before it.
//! Fact sheet: `docs/models/fast-dllm.md`.

use redraft_compute::op::RopeStyle;

use super::ArchSpec;
use super::masked::{self, Canvas, Family};
use crate::convert::{HfSpec, Setting, key, tables};
use crate::sampler::THRESHOLD;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: FAMILY.name,
    about: "Fast-dLLM v2: Qwen 2.5 with a block-causal mask, logits shifted by one",
    load: |gguf, w, notes| masked::load(&FAMILY, gguf, w, notes),
    sampler: Some(&THRESHOLD),
    // The smaller blocks in which a block is revealed are a parameter of generation, as there.
    defaults: &[("threshold", 0.9), ("block_length", 8.0), ("top_p", 0.95)],
    tap_names: masked::TAP_NAMES,
    presets: crate::synth::FAST_DLLM,
    hf: Some(&HF),
    pre: Some("qwen2"),
    shifted: Some(FAMILY.shifted),
};

const HF: HfSpec = HfSpec {
    classes: &["Fast_dLLM_QwenForCausalLM"],
    model_types: &["Fast_dLLM_Qwen"],
    tensors: &[tables::BASE, tables::BIASES, tables::DENSE],
    ignored: &[],
    twins: &[],
    made: &[],
    keys: &[tables::SIZES, &[key(super::CANVAS_LEN, Setting::Block(tables::BLOCK, Some(32)))]],
    demands: &[tables::PLAIN, tables::WHOLE_HEADS],
    inert: &[tables::INERT],
    add_bos: None,
};

const FAMILY: Family = Family {
    name: "fast-dllm",
    rope: RopeStyle::Neox,
    bias: true,
    head_norms: false,
    experts: None,
    shifted: true,
    canvas: Canvas::Block(32),
};
