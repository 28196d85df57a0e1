//! LLaDA: Llama with a full mask. Converters permute the rows of queries and keys, so that neighbouring channels are
//! rotated together.
//! Fact sheet: `docs/models/llada.md`.

use redraft_compute::op::RopeStyle;

use super::ArchSpec;
use super::masked::{self, Canvas, Family};
use crate::convert::{Demand, HfSpec, Key, Rows, Setting, Tensor, demand, key, same, tables};
use crate::sampler::LOW_CONFIDENCE;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: FAMILY.name,
    about: "LLaDA: Llama with a full mask",
    load: |gguf, w, notes| masked::load(&FAMILY, gguf, w, notes),
    sampler: Some(&LOW_CONFIDENCE),
    defaults: &[],
    tap_names: masked::TAP_NAMES,
    presets: crate::synth::LLADA,
    hf: Some(&HF),
    pre: Some("llada-moe"),
    shifted: Some(FAMILY.shifted),
};

const HF: HfSpec = HfSpec {
    classes: &["LLaDAModelLM"],
    model_types: &["llada"],
    tensors: &[TENSORS],
    ignored: &[],
    twins: &[],
    made: &[],
    keys: &[KEYS],
    demands: &[DEMANDS],
    inert: &[tables::INERT, INERT],
    add_bos: Some(true),
};

/// OLMo's names. Whole heads rotate, in halves there and in pairs here.
const TENSORS: &[Tensor] = &[
    same("model.transformer.wte.weight", "token_embd.weight"),
    same("model.transformer.ln_f.weight", "output_norm.weight"),
    same("model.transformer.ff_out.weight", "output.weight"),
    same("model.transformer.blocks.{N}.attn_norm.weight", "blk.{N}.attn_norm.weight"),
    paired("model.transformer.blocks.{N}.q_proj.weight", "blk.{N}.attn_q.weight", "attention.head_count"),
    paired("model.transformer.blocks.{N}.k_proj.weight", "blk.{N}.attn_k.weight", "attention.head_count_kv"),
    same("model.transformer.blocks.{N}.v_proj.weight", "blk.{N}.attn_v.weight"),
    same("model.transformer.blocks.{N}.attn_out.weight", "blk.{N}.attn_output.weight"),
    same("model.transformer.blocks.{N}.ff_norm.weight", "blk.{N}.ffn_norm.weight"),
    same("model.transformer.blocks.{N}.ff_proj.weight", "blk.{N}.ffn_gate.weight"),
    same("model.transformer.blocks.{N}.up_proj.weight", "blk.{N}.ffn_up.weight"),
    same("model.transformer.blocks.{N}.ff_out.weight", "blk.{N}.ffn_down.weight"),
];

const fn paired(hf: &'static str, gguf: &'static str, heads: &'static str) -> Tensor {
    Tensor { hf, gguf, rows: Rows::Paired(heads) }
}

const KEYS: &[Key] = &[
    key("block_count", Setting::Size(&["n_layers"])),
    key("context_length", Setting::Size(&["max_sequence_length"])),
    key("embedding_length", Setting::Size(&["d_model"])),
    key("feed_forward_length", Setting::Size(&["mlp_hidden_size"])),
    key("attention.head_count", Setting::Size(&["n_heads"])),
    key("attention.head_count_kv", Setting::Size(&["n_kv_heads", "n_heads"])),
    key("rope.freq_base", Setting::Float(&["rope_theta"])),
    key("attention.layer_norm_rms_epsilon", Setting::Float(&["rms_norm_eps", "layer_norm_eps"])),
    key("vocab_size", Setting::Vocab),
    key(
        "rope.dimension_count",
        Setting::Made(|c| Ok(Some((c.need(&["d_model"])? / c.need(&["n_heads"])?).into()))),
    ),
    tables::NOT_CAUSAL,
];

const DEMANDS: &[Demand] = &[
    demand(&["block_type"], &["\"llama\""]),
    demand(&["activation_type"], &["\"silu\"", "\"swiglu\""]),
    demand(&["layer_norm_type"], &["\"rms\""]),
    demand(&["rope"], &["true"]),
    demand(&["alibi"], &["false"]),
    demand(&["scale_logits"], &["false"]),
    demand(&["input_emb_norm"], &["false"]),
    demand(&["attention_layer_norm"], &["false"]),
    demand(&["block_group_size"], &["1"]),
    demand(&["multi_query_attention"], &["false"]),
    demand(&["include_bias", "include_qkv_bias", "bias_for_layer_norm"], &["false"]),
    demand(&["layer_norm_with_affine"], &["true"]),
    demand(&["rope_scaling", "clip_qkv"], &[]),
    demand(&["quantization_config"], &[]),
];

/// Positions and norms are computed in F32 here, whatever they say.
const INERT: &[&str] = &[
    "alibi_bias_max",
    "attention_layer_norm_with_affine",
    "embedding_size",
    "flash_attention",
    "init_cutoff_factor",
    "mlp_ratio",
    "precision",
    "rope_full_precision",
];

const FAMILY: Family = Family {
    name: "llada",
    rope: RopeStyle::Interleaved,
    bias: false,
    head_norms: false,
    experts: None,
    shifted: false,
    canvas: Canvas::Answer(128),
};
