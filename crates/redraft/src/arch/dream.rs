//! Dream, Dream-Coder and DiffuCoder: Qwen 2 that reads both ways and predicts each token in the row before it.
//! Fact sheet: `docs/models/dream.md`.

use redraft_compute::op::RopeStyle;

use super::ArchSpec;
use super::masked::{self, Canvas, Family};
use crate::convert::{HfSpec, tables};
use crate::sampler::ENTROPY;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: FAMILY.name,
    about: "Dream: Qwen 2 with a full mask, logits shifted by one",
    load: |gguf, w, notes| masked::load(&FAMILY, gguf, w, notes),
    sampler: Some(&ENTROPY),
    defaults: &[("temperature", 0.2), ("top_p", 0.95)],
    tap_names: masked::TAP_NAMES,
    presets: crate::synth::DREAM,
    hf: Some(&HF),
    pre: Some("qwen2"),
    shifted: Some(FAMILY.shifted),
};

const HF: HfSpec = HfSpec {
    classes: &["DreamModel"],
    model_types: &["Dream", "dream"],
    tensors: &[tables::BASE, tables::BIASES, tables::DENSE],
    ignored: &[],
    twins: &[],
    made: &[],
    keys: &[tables::SIZES],
    demands: &[tables::PLAIN, tables::WHOLE_HEADS],
    inert: &[tables::INERT],
    add_bos: None,
};

const FAMILY: Family = Family {
    name: "dream",
    rope: RopeStyle::Neox,
    bias: true,
    head_norms: false,
    experts: None,
    shifted: true,
    canvas: Canvas::Answer(512),
};
