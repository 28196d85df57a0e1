//! LLaDA: Llama with a full mask. Converters permute the rows of queries and keys, so that neighbouring channels are
//! rotated together.
//! Fact sheet: `docs/models/llada.md`.

use redraft_compute::op::RopeStyle;

use super::ArchSpec;
use super::masked::{self, Canvas, Family};
use crate::sampler::LOW_CONFIDENCE;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: FAMILY.name,
    about: "LLaDA: Llama with a full mask",
    load: |gguf, w, notes| masked::load(&FAMILY, gguf, w, notes),
    sampler: Some(&LOW_CONFIDENCE),
    defaults: &[],
    tap_names: masked::TAP_NAMES,
    presets: crate::synth::LLADA,
    pre: Some("llada-moe"),
    shifted: Some(FAMILY.shifted),
};

const FAMILY: Family = Family {
    name: "llada",
    rope: RopeStyle::Interleaved,
    bias: false,
    head_norms: false,
    experts: None,
    shifted: false,
    canvas: Canvas::Answer(128),
};
