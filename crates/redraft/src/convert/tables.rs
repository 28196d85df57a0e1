//! Names and settings that several families share.

use super::hf::{Demand, Fixed, Key, Rows, Setting, Tensor, demand, key, same};

/// Qwen's and Llama's names outside of layers.
pub(crate) const BASE: &[Tensor] = &[
    same("model.embed_tokens.weight", "token_embd.weight"),
    same("model.norm.weight", "output_norm.weight"),
    same(HEAD, "output.weight"),
    same("model.layers.{N}.input_layernorm.weight", "blk.{N}.attn_norm.weight"),
    same("model.layers.{N}.self_attn.q_proj.weight", "blk.{N}.attn_q.weight"),
    same("model.layers.{N}.self_attn.k_proj.weight", "blk.{N}.attn_k.weight"),
    same("model.layers.{N}.self_attn.v_proj.weight", "blk.{N}.attn_v.weight"),
    same("model.layers.{N}.self_attn.o_proj.weight", "blk.{N}.attn_output.weight"),
    same("model.layers.{N}.post_attention_layernorm.weight", "blk.{N}.ffn_norm.weight"),
];

/// The output head, which may be the embedding.
pub(crate) const HEAD: &str = "lm_head.weight";

/// Biases of queries, keys and values.
pub(crate) const BIASES: &[Tensor] = &[
    same("model.layers.{N}.self_attn.q_proj.bias", "blk.{N}.attn_q.bias"),
    same("model.layers.{N}.self_attn.k_proj.bias", "blk.{N}.attn_k.bias"),
    same("model.layers.{N}.self_attn.v_proj.bias", "blk.{N}.attn_v.bias"),
];

/// Norms over heads.
pub(crate) const HEAD_NORMS: &[Tensor] = &[
    same("model.layers.{N}.self_attn.q_norm.weight", "blk.{N}.attn_q_norm.weight"),
    same("model.layers.{N}.self_attn.k_norm.weight", "blk.{N}.attn_k_norm.weight"),
];

/// A dense feed-forward block.
pub(crate) const DENSE: &[Tensor] = &[
    same("model.layers.{N}.mlp.gate_proj.weight", "blk.{N}.ffn_gate.weight"),
    same("model.layers.{N}.mlp.up_proj.weight", "blk.{N}.ffn_up.weight"),
    same("model.layers.{N}.mlp.down_proj.weight", "blk.{N}.ffn_down.weight"),
];

/// The router of experts.
pub(crate) const ROUTER: &[Tensor] =
    &[same("model.layers.{N}.mlp.gate.weight", "blk.{N}.ffn_gate_inp.weight")];

/// Experts one by one, as stacks, or, as newer versions keep them, as stacks in which gate and up are one.
pub(crate) const EXPERTS: &[Tensor] = &[
    same("model.layers.{N}.mlp.experts.{E}.gate_proj.weight", "blk.{N}.ffn_gate_exps.weight"),
    same("model.layers.{N}.mlp.experts.{E}.up_proj.weight", "blk.{N}.ffn_up_exps.weight"),
    same("model.layers.{N}.mlp.experts.{E}.down_proj.weight", "blk.{N}.ffn_down_exps.weight"),
    same("model.layers.{N}.mlp.experts.gate_proj", "blk.{N}.ffn_gate_exps.weight"),
    same("model.layers.{N}.mlp.experts.up_proj", "blk.{N}.ffn_up_exps.weight"),
    half("model.layers.{N}.mlp.experts.gate_up_proj", "blk.{N}.ffn_gate_exps.weight", 0),
    half("model.layers.{N}.mlp.experts.gate_up_proj", "blk.{N}.ffn_up_exps.weight", 1),
    same("model.layers.{N}.mlp.experts.down_proj", "blk.{N}.ffn_down_exps.weight"),
];

const fn half(hf: &'static str, gguf: &'static str, part: usize) -> Tensor {
    Tensor { hf, gguf, rows: Rows::Half(part) }
}

/// Sizes of a transformer.
pub(crate) const SIZES: &[Key] = &[
    key("block_count", Setting::Size(&["num_hidden_layers"])),
    key("context_length", Setting::Size(&["max_position_embeddings"])),
    key("embedding_length", Setting::Size(&["hidden_size"])),
    key("feed_forward_length", Setting::OptSize(&["intermediate_size", "dense_intermediate_size"])),
    key("attention.head_count", Setting::Size(&["num_attention_heads"])),
    key("attention.head_count_kv", Setting::OptSize(&["num_key_value_heads"])),
    key("attention.key_length", Setting::OptSize(&["head_dim"])),
    key("attention.value_length", Setting::OptSize(&["head_dim"])),
    key("rope.freq_base", Setting::Float(&["rope_theta", "rope_parameters.rope_theta"])),
    key("attention.layer_norm_rms_epsilon", Setting::Float(&["rms_norm_eps"])),
    NOT_CAUSAL,
];

/// Tokens see what comes after them.
pub(crate) const NOT_CAUSAL: Key = key("attention.causal", Setting::Always(Fixed::Flag(false)));

/// Routed experts.
pub(crate) const EXPERT_SIZES: &[Key] = &[
    key("expert_count", Setting::Size(&["num_experts"])),
    key("expert_used_count", Setting::Size(&["num_experts_per_tok"])),
    key("expert_feed_forward_length", Setting::Size(&["moe_intermediate_size", "expert_intermediate_size"])),
];

/// Row i predicts position i.
pub(crate) const UNSHIFTED: &[Key] = &[key("diffusion.shift_logits", Setting::Always(Fixed::Flag(false)))];

/// Row i predicts position i + 1.
pub(crate) const SHIFTED: &[Key] = &[key("diffusion.shift_logits", Setting::Always(Fixed::Flag(true)))];

/// Where settings say how long blocks are.
pub(crate) const BLOCK: &[&str] = &["block_size", "block_length", "bd_size"];

/// What all of these models do alike.
pub(crate) const PLAIN: &[Demand] = &[
    demand(&["hidden_act"], &["\"silu\"", "\"swiglu\""]),
    demand(&["rope_scaling"], &["false"]),
    demand(&["rope_parameters.rope_type", "rope_parameters.type"], &["\"default\""]),
    demand(&["use_sliding_window"], &["false"]),
    demand(&["layer_types"], &["\"full_attention\""]),
    demand(&["attention_bias"], &["false"]),
    demand(&["quantization_config"], &[]),
];

/// Weights of the chosen experts are divided by their sum, and all layers have experts.
pub(crate) const RENORMALIZED: &[Demand] = &[
    demand(&["norm_topk_prob"], &["true"]),
    demand(&["decoder_sparse_step"], &["1"]),
    demand(&["mlp_only_layers"], &["[]"]),
];
