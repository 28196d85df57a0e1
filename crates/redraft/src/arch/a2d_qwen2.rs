//! Qwen 2 and 2.5 made into a diffusion model by dLLM's A2D: full mask (MDLM) or block by block (BD3LM), as the file
//! says. Fact sheet: `docs/models/a2d-qwen.md`.

use redraft_compute::op::RopeStyle;

use super::ArchSpec;
use super::masked::{self, Canvas, Family};
use crate::convert::{HfSpec, Setting, key, tables};
use crate::sampler::LOW_CONFIDENCE;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: FAMILY.name,
    about: "A2D: Qwen 2 and 2.5 with a full or a block-causal mask",
    load: |gguf, w, notes| masked::load(&FAMILY, gguf, w, notes),
    sampler: Some(&LOW_CONFIDENCE),
    defaults: &[],
    tap_names: masked::TAP_NAMES,
    presets: crate::synth::A2D_QWEN2,
    hf: Some(&HF),
    pre: Some("qwen2"),
    shifted: Some(FAMILY.shifted),
};

const HF: HfSpec = HfSpec {
    classes: &["A2DQwen2LMHeadModel"],
    model_types: &["a2d-qwen2"],
    tensors: &[tables::BASE, tables::BIASES, tables::DENSE],
    ignored: &[],
    twins: &[],
    made: &[],
    keys: &[tables::SIZES, &[key(super::CANVAS_LEN, Setting::Block(tables::BLOCK, None))]],
    demands: &[tables::PLAIN, tables::WHOLE_HEADS],
    inert: &[tables::INERT],
    add_bos: None,
};

const FAMILY: Family = Family {
    name: "a2d-qwen2",
    rope: RopeStyle::Neox,
    bias: true,
    head_norms: false,
    experts: None,
    shifted: false,
    canvas: Canvas::AnswerOrBlock(128),
};
