//! DiffusionGemma: a Gemma-4 mixture of experts that reads its prompt causally and denoises a canvas
//! bidirectionally with the same weights. Fact sheet: `docs/models/diffusion-gemma.md`.

use redraft_compute::op::{Distribution, Head};
use redraft_compute::{ComputeError, ProgramBuilder, Val};
use redraft_gguf::{Array, Gguf, Value};

use super::{Angles, Arch, ArchSpec, Shape};
use crate::Error;
use crate::convert::{
    Config, Demand, Fixed, HfSpec, Key, Made, Setting, Tensor, demand, key, missing, same, tables,
};
use crate::layers::{Gemma4, Scalars, SelfConditioning};
use crate::sampler::{ENTROPY_BOUND, PromptWindow, entropy_bound_key as eb};
use crate::weights::WeightLoader;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: "diffusion-gemma",
    about: "DiffusionGemma: causal prompt, bidirectional canvas, dense plus routed experts",
    load,
    sampler: Some(&ENTROPY_BOUND),
    defaults: &[],
    tap_names: &[],
    presets: crate::synth::DIFFUSION_GEMMA,
    hf: Some(&HF),
    pre: None,
    shifted: None,
};

const HF: HfSpec = HfSpec {
    classes: &["DiffusionGemmaForBlockDiffusion"],
    model_types: &["diffusion_gemma"],
    tensors: &[TENSORS],
    ignored: &["model.encoder.vision_tower.", "model.encoder.embed_vision."],
    twins: &[("model.encoder.language_model.", "model.decoder.")],
    made: &[Made { gguf: "rope_freqs.weight", values: rope_factors }],
    keys: &[KEYS],
    demands: &[DEMANDS],
    inert: &[tables::INERT, INERT],
    add_bos: None,
};

/// All but the layer scalars of the encoder, which are its own, are the same tensors in encoder and decoder.
const TENSORS: &[Tensor] = &[
    same("model.decoder.embed_tokens.weight", "token_embd.weight"),
    same("model.decoder.norm.weight", "output_norm.weight"),
    same("lm_head.weight", "output.weight"),
    same("model.decoder.self_conditioning.pre_norm.weight", "self_cond_pre_norm.weight"),
    same("model.decoder.self_conditioning.gate_proj.weight", "self_cond_gate.weight"),
    same("model.decoder.self_conditioning.up_proj.weight", "self_cond_up.weight"),
    same("model.decoder.self_conditioning.down_proj.weight", "self_cond_down.weight"),
    same("model.decoder.layers.{N}.input_layernorm.weight", "blk.{N}.attn_norm.weight"),
    same("model.decoder.layers.{N}.self_attn.q_proj.weight", "blk.{N}.attn_q.weight"),
    same("model.decoder.layers.{N}.self_attn.k_proj.weight", "blk.{N}.attn_k.weight"),
    same("model.decoder.layers.{N}.self_attn.v_proj.weight", "blk.{N}.attn_v.weight"),
    same("model.decoder.layers.{N}.self_attn.o_proj.weight", "blk.{N}.attn_output.weight"),
    same("model.decoder.layers.{N}.self_attn.q_norm.weight", "blk.{N}.attn_q_norm.weight"),
    same("model.decoder.layers.{N}.self_attn.k_norm.weight", "blk.{N}.attn_k_norm.weight"),
    same("model.decoder.layers.{N}.post_attention_layernorm.weight", "blk.{N}.post_attention_norm.weight"),
    same("model.decoder.layers.{N}.layer_scalar", "blk.{N}.layer_output_scale.weight"),
    same("model.encoder.language_model.layers.{N}.layer_scalar", "blk.{N}.enc_layer_output_scale.weight"),
    same("model.decoder.layers.{N}.pre_feedforward_layernorm.weight", "blk.{N}.ffn_norm.weight"),
    same("model.decoder.layers.{N}.mlp.gate_proj.weight", "blk.{N}.ffn_gate.weight"),
    same("model.decoder.layers.{N}.mlp.up_proj.weight", "blk.{N}.ffn_up.weight"),
    same("model.decoder.layers.{N}.mlp.down_proj.weight", "blk.{N}.ffn_down.weight"),
    same("model.decoder.layers.{N}.post_feedforward_layernorm.weight", "blk.{N}.post_ffw_norm.weight"),
    same("model.decoder.layers.{N}.post_feedforward_layernorm_1.weight", "blk.{N}.post_ffw_norm_1.weight"),
    same("model.decoder.layers.{N}.pre_feedforward_layernorm_2.weight", "blk.{N}.pre_ffw_norm_2.weight"),
    same("model.decoder.layers.{N}.post_feedforward_layernorm_2.weight", "blk.{N}.post_ffw_norm_2.weight"),
    same("model.decoder.layers.{N}.router.proj.weight", "blk.{N}.ffn_gate_inp.weight"),
    same("model.decoder.layers.{N}.router.scale", "blk.{N}.ffn_gate_inp.scale"),
    same("model.decoder.layers.{N}.router.per_expert_scale", "blk.{N}.ffn_down_exps.scale"),
    same("model.decoder.layers.{N}.experts.gate_up_proj", "blk.{N}.ffn_gate_up_exps.weight"),
    same("model.decoder.layers.{N}.experts.down_proj", "blk.{N}.ffn_down_exps.weight"),
];

const KEYS: &[Key] = &[
    key("block_count", Setting::Size(&["text_config.num_hidden_layers"])),
    key("context_length", Setting::Size(&["text_config.max_position_embeddings"])),
    key("embedding_length", Setting::Size(&["text_config.hidden_size"])),
    key("feed_forward_length", Setting::Size(&["text_config.intermediate_size"])),
    key("attention.head_count", Setting::Size(&["text_config.num_attention_heads"])),
    key("attention.head_count_kv", Setting::Made(kv_heads)),
    key("rope.freq_base", Setting::Float(&["text_config.rope_parameters.full_attention.rope_theta"])),
    key("rope.freq_base_swa", Setting::Float(&["text_config.rope_parameters.sliding_attention.rope_theta"])),
    key("attention.layer_norm_rms_epsilon", Setting::Float(&["text_config.rms_norm_eps"])),
    key("expert_count", Setting::Size(&["text_config.num_experts"])),
    key("expert_used_count", Setting::Size(&["text_config.top_k_experts"])),
    key("attention.key_length", Setting::Made(|c| full_head_dim(c).map(|d| Some(d.into())))),
    key("attention.value_length", Setting::Made(|c| full_head_dim(c).map(|d| Some(d.into())))),
    key("final_logit_softcapping", Setting::Float(&["text_config.final_logit_softcapping"])),
    key("attention.sliding_window", Setting::Size(&["text_config.sliding_window"])),
    key("attention.shared_kv_layers", Setting::Always(Fixed::Size(0))),
    key("embedding_length_per_layer_input", Setting::Always(Fixed::Size(0))),
    key(
        "attention.sliding_window_pattern",
        Setting::Made(|c| sliding(c).map(|s| Some(Array::Bool(s).into()))),
    ),
    key("attention.key_length_swa", Setting::Size(&["text_config.head_dim"])),
    key("attention.value_length_swa", Setting::Size(&["text_config.head_dim"])),
    key("expert_feed_forward_length", Setting::Size(&["text_config.moe_intermediate_size"])),
    key("rope.dimension_count", Setting::Made(|c| full_head_dim(c).map(|d| Some(d.into())))),
    key("rope.dimension_count_swa", Setting::Size(&["text_config.head_dim"])),
    tables::NOT_CAUSAL,
    key(super::CANVAS_LEN, Setting::Block(&["canvas_length"], Some(CANVAS_LEN as u32))),
    key(eb::MAX_STEPS, Setting::OptSize(&["generation.max_denoising_steps"])),
    key(eb::T_MIN, Setting::OptFloat(&["generation.t_min"])),
    key(eb::T_MAX, Setting::OptFloat(&["generation.t_max"])),
    key(eb::ENTROPY_BOUND, Setting::OptFloat(&["generation.sampler_config.entropy_bound"])),
    key(eb::STABILITY, Setting::Made(stability)),
    key(eb::CONFIDENCE, Setting::OptFloat(&["generation.confidence_threshold"])),
];

/// Zero steps of stability is a setting, too.
fn stability(c: &Config) -> Result<Option<Value>, String> {
    Ok(c.size(&["generation.stability_threshold"])?.map(Value::U32))
}

/// Which layers slide: by their types, or all but every sixth one.
fn sliding(c: &Config) -> Result<Vec<bool>, String> {
    let n = c.need(&["text_config.num_hidden_layers"])?.min(1 << 16);
    match c.get(&["text_config.layer_types"]).and_then(|(_, types)| types.as_array()) {
        None => Ok((1..=n).map(|i| !i.is_multiple_of(6)).collect()),
        Some(types) => types
            .iter()
            .map(|t| match t.as_str() {
                Some("sliding_attention") => Ok(true),
                Some("full_attention") => Ok(false),
                _ => Err(format!("config.json: `text_config.layer_types` has the type {t}")),
            })
            .collect(),
    }
}

/// A setting of full layers: its own name, what the first full layer has, or that of all layers.
fn of_full(c: &Config, own: &str, common: &str) -> Result<u32, String> {
    let first = sliding(c)?.iter().position(|s| !s).unwrap_or(0);
    let paths = [
        format!("text_config.{own}"),
        format!("text_config.per_layer_config.{first}.{common}"),
        format!("text_config.{common}"),
    ];
    c.need(&paths.each_ref().map(String::as_str))
}

fn full_head_dim(c: &Config) -> Result<u32, String> {
    of_full(c, "global_head_dim", "head_dim")
}

fn kv_heads(c: &Config) -> Result<Option<Value>, String> {
    let full = of_full(c, "num_global_key_value_heads", "num_key_value_heads")?;
    let swa = c.need(&["text_config.num_key_value_heads"])?;
    let n = |is_sliding| i32::try_from(if is_sliding { swa } else { full }).unwrap_or(i32::MAX);
    Ok(Some(Array::I32(sliding(c)?.into_iter().map(n).collect()).into()))
}

/// Pairs that rotate have the factor 1, the others one that stops them.
fn rope_factors(c: &Config) -> Result<Vec<f32>, String> {
    let paths = &["text_config.rope_parameters.full_attention.partial_rotary_factor"];
    let share = tables::rotated_share(c, paths)?.ok_or_else(|| missing(paths))?;
    let pairs = full_head_dim(c)?.min(1 << 16) / 2;
    let rotated = (f64::from(pairs) * share) as u32;
    Ok((0..pairs).map(|i| if i < rotated { 1.0 } else { 1e30 }).collect())
}

const DEMANDS: &[Demand] = &[
    demand(&["text_config.hidden_activation"], &["\"gelu_pytorch_tanh\""]),
    demand(&["text_config.attention_bias"], &["false"]),
    demand(&["text_config.attn_logit_softcapping"], &[]),
    demand(&["text_config.hidden_size_per_layer_input", "text_config.num_kv_shared_layers"], &["0"]),
    demand(&["text_config.use_double_wide_mlp"], &["false"]),
    demand(&["text_config.enable_moe_block"], &["true"]),
    // Pictures see themselves both ways; text does not.
    demand(&["text_config.use_bidirectional_attention"], &["\"vision\""]),
    demand(&["text_config.rope_parameters.sliding_attention.rope_type"], &["\"default\""]),
    demand(&["text_config.rope_parameters.full_attention.rope_type"], &["\"proportional\""]),
    demand(
        &[
            "text_config.rope_parameters.sliding_attention.partial_rotary_factor",
            "text_config.rope_parameters.sliding_attention.factor",
            "text_config.rope_parameters.full_attention.factor",
        ],
        &["1"],
    ),
    demand(&["quantization_config"], &[]),
];

/// Parts for images and sound, and what `transformers` writes into the settings of the text's part, too.
const INERT: &[&str] = &[
    "audio_config",
    "audio_token_id",
    "boa_token_id",
    "boa_token_index",
    "boi_token_id",
    "boi_token_index",
    "eoa_token_id",
    "eoa_token_index",
    "eoi_token_id",
    "eoi_token_index",
    "image_token_id",
    "image_token_index",
    "text_config._name_or_path",
    "text_config.architectures",
    "text_config.attention_dropout",
    // Whether a layer has values of its own is said by its tensors.
    "text_config.attention_k_eq_v",
    "text_config.bos_token_id",
    "text_config.dtype",
    "text_config.eos_token_id",
    "text_config.initializer_range",
    "text_config.mask_token_id",
    "text_config.model_type",
    "text_config.pad_token_id",
    "text_config.torch_dtype",
    "text_config.transformers_version",
    "text_config.use_cache",
    "text_config.vocab_size_per_layer_input",
    "video_token_id",
    "vision_config",
    "vision_soft_tokens_per_image",
];

/// Width of a canvas where the file does not say (the model card's).
const CANVAS_LEN: usize = 256;

struct DiffusionGemma {
    base: Gemma4,
    self_cond: Option<SelfConditioning>,
}

fn load(gguf: &Gguf, w: &mut WeightLoader<'_>, notes: &mut Vec<String>) -> Result<Box<dyn Arch>, Error> {
    let scalars = Scalars { prompt: "enc_layer_output_scale.weight", canvas: "layer_output_scale.weight" };
    let mut base = Gemma4::load(gguf, w, SPEC.name, scalars)?;
    let self_cond = base.self_conditioning(w);
    if self_cond.is_none() {
        notes.push("the file has no self-conditioning tensors; self-conditioning is off".into());
    }
    base.shape.canvas_len = super::canvas_len(gguf.metadata(), CANVAS_LEN, notes)?;
    base.shape.self_conditioning = self_cond.is_some();
    Ok(Box::new(DiffusionGemma { base, self_cond }))
}

impl Arch for DiffusionGemma {
    fn shape(&self) -> &Shape {
        &self.base.shape
    }

    fn window(&self, layer: usize) -> Option<usize> {
        self.base.window(layer)
    }

    fn set_prompt_window(&mut self, window: PromptWindow) {
        self.base.prompt_window = window;
    }

    fn position_inputs(&self, n_past: usize, rows: usize, angles: Angles) -> Vec<Vec<f64>> {
        self.base.position_inputs(n_past, rows, angles)
    }

    fn prompt(&self, b: &mut ProgramBuilder, ids: Val) -> Result<Val, ComputeError> {
        let x = self.base.embed(b, ids)?;
        self.base.stack(b, x, false)
    }

    fn result_norm(&self, b: &mut ProgramBuilder, hidden: Val) -> Result<Val, ComputeError> {
        self.base.result_norm(b, hidden)
    }

    fn canvas(
        &self,
        b: &mut ProgramBuilder,
        ids: Val,
        previous: &[(usize, Distribution)],
    ) -> Result<Val, ComputeError> {
        let m = &self.base;
        let mut x = m.embed(b, ids)?;
        for (first, previous) in previous {
            let Some(sc) = &self.self_cond else { break };
            let s = sc.build(b, *previous, m.token_embd)?; // [canvas, n]
            x = b.add_rows(x, s, *first)?;
        }
        // The weightless norm applies on the first step too.
        let x = m.norm(b, x, None)?;
        b.tap("inp_region", x);
        let x = m.stack(b, x, true)?;
        m.result_norm(b, x)
    }

    fn head(&self) -> Head {
        self.base.head()
    }
}
