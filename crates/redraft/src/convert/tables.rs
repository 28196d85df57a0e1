//! Names and settings that several families share.

use super::config::Config;
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
    key("attention.head_count_kv", Setting::OptCount(&["num_key_value_heads"])),
    key("attention.key_length", Setting::OptCount(&["head_dim"])),
    key("attention.value_length", Setting::OptCount(&["head_dim"])),
    key("rope.freq_base", Setting::Float(ROPE_BASE)),
    key("attention.layer_norm_rms_epsilon", Setting::Float(&["rms_norm_eps"])),
    NOT_CAUSAL,
    NO_WINDOW,
];

/// The base of rotary embeddings.
pub(crate) const ROPE_BASE: &[&str] =
    &["rope_theta", "rope_parameters.rope_theta", "rope_scaling.rope_theta"];

/// The share of a head that rotates.
pub(crate) const ROTATED: &[&str] = &[
    "partial_rotary_factor",
    "rope_parameters.partial_rotary_factor",
    "rope_scaling.partial_rotary_factor",
    "rotary_pct",
];

/// Tokens see what comes after them.
pub(crate) const NOT_CAUSAL: Key = key("attention.causal", Setting::Always(Fixed::Flag(false)));

/// All tokens are seen, however far away: a width is known to mean nothing where a flag says that there is no window.
/// Without the flag it is named as what nobody knows.
pub(crate) const NO_WINDOW: Key = key(
    "attention.sliding_window",
    Setting::Made(|c| {
        let off = c.flag(&["use_sliding_window"])?;
        off.map(|_| c.size(&["sliding_window"])).transpose()?;
        Ok(None)
    }),
);

/// The share of a head that rotates, by one or several names.
///
/// # Errors
/// That they differ, or what it is instead.
pub(crate) fn rotated_share(c: &Config, paths: &[&str]) -> Result<Option<f64>, String> {
    c.agree(paths)?;
    match c.float(paths)? {
        Some(share) if !(share > 0.0 && share <= 1.0) => Err(format!(
            "config.json: `{}`: expected more than 0 and at most 1, found {share}",
            c.get(paths).map_or("", |(path, _)| path)
        )),
        share => Ok(share),
    }
}

/// Routed experts.
pub(crate) const EXPERT_SIZES: &[Key] = &[
    key("expert_count", Setting::Size(&["num_experts"])),
    key("expert_used_count", Setting::Size(&["num_experts_per_tok"])),
    key("expert_feed_forward_length", Setting::Size(&["moe_intermediate_size", "expert_intermediate_size"])),
];

/// Where settings say how long blocks are.
pub(crate) const BLOCK: &[&str] = &["block_size", "block_length", "bd_size"];

/// What all of these models do alike.
pub(crate) const PLAIN: &[Demand] = &[
    demand(&["hidden_act"], &["\"silu\"", "\"swiglu\""]),
    demand(&["rope_scaling", "rope_parameters"], &["false"]),
    demand(
        &["rope_scaling.rope_type", "rope_scaling.type", "rope_parameters.rope_type", "rope_parameters.type"],
        &["\"default\""],
    ),
    demand(&["rope_scaling.factor", "rope_parameters.factor"], &["1"]),
    demand(&["use_sliding_window", "use_mrope"], &["false"]),
    demand(&["layer_types"], &["\"full_attention\""]),
    demand(&["attention_bias", "mlp_bias", "use_bias", "add_bias_linear"], &["false"]),
    demand(&["final_logit_softcapping", "attn_logit_softcapping", "logits_soft_cap"], &[]),
    demand(SCALES, &["1"]),
    demand(&["query_pre_attn_scalar", "scale_depth", "clip_qkv"], &[]),
    demand(&["quantization_config"], &[]),
];

/// What some models multiply or divide by.
const SCALES: &[&str] = &[
    "attention_multiplier",
    "embedding_multiplier",
    "residual_multiplier",
    "lm_head_multiplier",
    "logits_scaling",
    "logit_scale",
    "scale_emb",
    "embedding_scale",
];

/// Whole heads rotate.
pub(crate) const WHOLE_HEADS: &[Demand] = &[demand(ROTATED, &["1"])];

/// No bias of queries, keys and values.
pub(crate) const NO_QKV_BIAS: &[Demand] =
    &[demand(&["use_qkv_bias", "qkv_bias", "add_qkv_bias", "include_qkv_bias"], &["false"])];

/// What `transformers` writes beside a model's settings, what is for training alone, names of tokens, and how an answer
/// is generated.
pub(crate) const INERT: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "debug",
    "decoder_start_token_id",
    "do_sample",
    "dtype",
    "embedding_dropout",
    "ep_size",
    "eos_token_id",
    "finetuning_task",
    "fuse_cross_entropy",
    "gradient_checkpointing",
    "hidden_dropout",
    "id2label",
    "init_device",
    "init_fn",
    "init_std",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "mask_token_id",
    "max_length",
    "max_window_layers",
    "micro_forward",
    "min_length",
    "model_type",
    "moe_backend",
    "num_diffusion_steps",
    "output_attentions",
    "output_dropout",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "residual_dropout",
    "return_dict",
    "router_aux_loss_coef",
    "sep_token_id",
    "skip_checkpoint",
    "task_specific_params",
    "temperature",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
    "use_deepep",
    "vocab_size",
];

/// Weights of the chosen experts are divided by their sum, and all layers have experts.
pub(crate) const RENORMALIZED: &[Demand] = &[
    demand(&["norm_topk_prob"], &["true"]),
    demand(&["decoder_sparse_step"], &["1"]),
    demand(&["mlp_only_layers"], &["[]"]),
];
