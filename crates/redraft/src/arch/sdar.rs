//! SDAR: Qwen 3 that reads block by block. Fact sheet: `docs/models/sdar.md`.

use redraft_compute::op::RopeStyle;

use super::ArchSpec;
use super::masked::{self, Canvas, Family};
use crate::convert::{HfSpec, Setting, key, tables};
use crate::sampler::THRESHOLD;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: FAMILY.name,
    about: "SDAR: Qwen 3 with a block-causal mask, dense",
    load: |gguf, w, notes| masked::load(&FAMILY, gguf, w, notes),
    sampler: Some(&THRESHOLD),
    defaults: DEFAULTS,
    tap_names: masked::TAP_NAMES,
    presets: crate::synth::SDAR,
    hf: Some(&HF),
    pre: Some("qwen2"),
    shifted: Some(FAMILY.shifted),
};

const HF: HfSpec = HfSpec {
    classes: &["SDARForCausalLM"],
    model_types: &["sdar"],
    tensors: &[tables::BASE, tables::HEAD_NORMS, tables::DENSE],
    ignored: &[],
    twins: &[],
    made: &[],
    keys: &[tables::SIZES, &[key(super::CANVAS_LEN, Setting::Block(tables::BLOCK, Some(4)))]],
    demands: &[tables::PLAIN, tables::WHOLE_HEADS, tables::NO_QKV_BIAS],
    inert: &[tables::INERT],
    add_bos: None,
};

/// The threshold of `generate.py` of the model's repository. A block is revealed as one, however long it is.
pub(super) const DEFAULTS: &[(&str, f64)] = &[("threshold", 0.85), ("block_length", 0.0)];

const FAMILY: Family = Family {
    name: "sdar",
    rope: RopeStyle::Neox,
    bias: false,
    head_norms: true,
    experts: None,
    shifted: false,
    canvas: Canvas::Block(4),
};
