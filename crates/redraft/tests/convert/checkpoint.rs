//! Checkpoints as `transformers` saves them, made from the small models in `testdata`: the names of its tensors and
//! settings are written down here once more, apart from those of the converter.

use std::collections::BTreeMap;

use redraft::gguf::{Bytes, DType, Gguf, Metadata};
use serde_json::{Map, Value as Json, json};

/// How a checkpoint is written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Style {
    /// Experts as stacks, gate and up in one.
    pub(crate) fused: bool,
    /// Merges as texts and not as pairs, special tokens as objects, the template in `tokenizer_config.json`.
    pub(crate) old: bool,
    /// The tokenizer as `vocab.json` and `merges.txt`.
    pub(crate) slow: bool,
    /// Without the output head, which is said to be the embedding.
    pub(crate) tied: bool,
}

/// A tensor: name, extents as PyTorch has them, elements.
pub(crate) type Tensor = (String, Vec<u64>, DType, Vec<u8>);

/// The files of a checkpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    pub(crate) config: Json,
    pub(crate) generation: Json,
    pub(crate) tokenizer: Json,
    pub(crate) tokenizer_config: Json,
    pub(crate) template: Option<String>,
    pub(crate) tensors: Vec<Tensor>,
    /// Others, by their names.
    pub(crate) more: Vec<(&'static str, String)>,
}

impl Files {
    /// The checkpoint of a model file.
    pub(crate) fn new(g: &Gguf, style: Style) -> Files {
        let meta = g.metadata();
        let arch = meta.str("general.architecture").unwrap();
        let mut config = config(meta, arch, g);
        let mut tensors = tensors(g, arch, style);
        let tie = if arch == "llada" { "weight_tying" } else { "tie_word_embeddings" };
        config[tie] = (style.tied || arch == "diffusion-gemma").into();
        if style.tied {
            tensors.retain(|t| t.0 != "lm_head.weight");
        }
        let template = meta.opt_str("tokenizer.chat_template").unwrap().map(str::to_owned);
        let mut tokenizer_config = tokenizer_config(meta, style.old);
        if style.old {
            tokenizer_config["chat_template"] = template.clone().into();
        }
        let mut tokenizer = tokenizer(meta, style.old);
        let mut more = Vec::new();
        if style.slow {
            let whole = tokenizer.take();
            let model = &whole["model"];
            let merge = |m: &Json| {
                m.as_str().map_or_else(|| format!("{} {}", text(&m[0]), text(&m[1])), str::to_owned)
            };
            let merges: Vec<String> = model["merges"].as_array().unwrap().iter().map(merge).collect();
            more.push(("vocab.json", model["vocab"].to_string()));
            more.push(("merges.txt", format!("#version: 0.2\n{}\n", merges.join("\n"))));
            tokenizer_config["tokenizer_class"] = "Qwen2Tokenizer".into();
            let added = whole["added_tokens"].as_array().unwrap();
            let (first, last) = added.split_at(added.len() - 1);
            tokenizer_config["added_tokens_decoder"] =
                first.iter().map(|t| (t["id"].to_string(), t.clone())).collect::<Map<_, _>>().into();
            let last = last.iter().map(|t| (text(&t["content"]).to_owned(), t["id"].clone()));
            more.push(("added_tokens.json", Json::Object(last.collect()).to_string()));
        }
        Files {
            config,
            generation: generation(meta),
            tokenizer,
            tokenizer_config,
            template: template.filter(|_| !style.old),
            tensors,
            more,
        }
    }

    /// By the names of the files.
    pub(crate) fn in_memory(&self, shards: usize) -> BTreeMap<String, Bytes> {
        let mut out = BTreeMap::new();
        let mut put = |name: &str, bytes: Vec<u8>| drop(out.insert(name.to_owned(), Bytes::from(bytes)));
        for (name, content) in [
            ("config.json", &self.config),
            ("generation_config.json", &self.generation),
            ("tokenizer.json", &self.tokenizer),
            ("tokenizer_config.json", &self.tokenizer_config),
        ] {
            if !content.is_null() {
                put(name, content.to_string().into_bytes());
            }
        }
        self.more.iter().for_each(|(name, text)| put(name, text.clone().into_bytes()));
        if let Some(text) = &self.template {
            put("chat_template.jinja", text.clone().into_bytes());
        }
        if shards == 0 {
            put("model.safetensors", safetensors(&self.tensors));
            return out;
        }
        let mut map = Map::new();
        for (i, part) in self.tensors.chunks(self.tensors.len().div_ceil(shards)).enumerate() {
            let name = format!("model-{:05}-of-{shards:05}.safetensors", i + 1);
            part.iter().for_each(|t| _ = map.insert(t.0.clone(), name.clone().into()));
            put(&name, safetensors(part));
        }
        let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
        put("model.safetensors.index.json", index.to_string().into_bytes());
        out
    }

    /// Writes the files into a folder.
    pub(crate) fn save(&self, dir: &std::path::Path, shards: usize) {
        for (name, bytes) in self.in_memory(shards) {
            std::fs::write(dir.join(name), &bytes[..]).unwrap();
        }
    }
}

fn text(x: &Json) -> &str {
    x.as_str().unwrap()
}

/// The bytes of a safetensors file.
pub(crate) fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut at = 0;
    for (name, shape, dtype, bytes) in tensors {
        let entry = json!({"dtype": dtype.name(), "shape": shape, "data_offsets": [at, at + bytes.len()]});
        header.insert(name.clone(), entry);
        at += bytes.len();
    }
    let mut head = Json::Object(header).to_string().into_bytes();
    head.resize(head.len().next_multiple_of(8), b' ');
    let mut out = (head.len() as u64).to_le_bytes().to_vec();
    out.append(&mut head);
    tensors.iter().for_each(|t| out.extend_from_slice(&t.3));
    out
}

const QWEN: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.*.gate_proj"),
    ("ffn_up_exps", "mlp.experts.*.up_proj"),
    ("ffn_down_exps", "mlp.experts.*.down_proj"),
];

const LLADA: &[(&str, &str)] = &[
    ("attn_norm", "attn_norm"),
    ("attn_q", "q_proj"),
    ("attn_k", "k_proj"),
    ("attn_v", "v_proj"),
    ("attn_output", "attn_out"),
    ("ffn_norm", "ff_norm"),
    ("ffn_gate", "ff_proj"),
    ("ffn_up", "up_proj"),
    ("ffn_down", "ff_out"),
];

const LING: &[(&str, &str)] = &[
    ("attn_qkv", "attention.query_key_value"),
    ("attn_q_norm", "attention.query_layernorm"),
    ("attn_k_norm", "attention.key_layernorm"),
    ("attn_output", "attention.dense"),
    ("exp_probs_b.bias", "mlp.gate.expert_bias"),
    ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
    ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
];

const GEMMA: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
    ("post_ffw_norm_1", "post_feedforward_layernorm_1"),
    ("post_ffw_norm_2", "post_feedforward_layernorm_2"),
    ("pre_ffw_norm_2", "pre_feedforward_layernorm_2"),
    ("ffn_gate_inp.weight", "router.proj.weight"),
    ("ffn_gate_inp.scale", "router.scale"),
    ("ffn_down_exps.scale", "router.per_expert_scale"),
    ("ffn_gate_up_exps.weight", "experts.gate_up_proj"),
    ("ffn_down_exps.weight", "experts.down_proj"),
    ("layer_output_scale.weight", "layer_scalar"),
];

/// The name in a checkpoint, with `*` for the expert.
fn hf_name(arch: &str, gguf: &str) -> String {
    let (llada, ling, gemma) = (arch == "llada", arch == "llada2", arch == "diffusion-gemma");
    let root = match gguf {
        "token_embd.weight" if llada => "model.transformer.wte.weight",
        "output_norm.weight" if llada => "model.transformer.ln_f.weight",
        "output.weight" if llada => "model.transformer.ff_out.weight",
        "token_embd.weight" if ling => "model.word_embeddings.weight",
        "token_embd.weight" if gemma => "model.decoder.embed_tokens.weight",
        "output_norm.weight" if gemma => "model.decoder.norm.weight",
        "token_embd.weight" => "model.embed_tokens.weight",
        "output_norm.weight" => "model.norm.weight",
        "output.weight" => "lm_head.weight",
        _ => "",
    };
    if !root.is_empty() {
        return root.into();
    }
    if let Some(rest) = gguf.strip_prefix("self_cond_") {
        let rest =
            rest.replace("gate.", "gate_proj.").replace("up.", "up_proj.").replace("down.", "down_proj.");
        return format!("model.decoder.self_conditioning.{rest}");
    }
    let (layer, rest) = gguf.strip_prefix("blk.").unwrap().split_once('.').unwrap();
    if rest == "enc_layer_output_scale.weight" {
        return format!("model.encoder.language_model.layers.{layer}.layer_scalar");
    }
    let tables: &[&[(&str, &str)]] = match arch {
        "llada" => &[LLADA],
        "llada2" => &[LING, QWEN],
        "diffusion-gemma" => &[GEMMA, QWEN],
        _ => &[QWEN],
    };
    let (stem, end) = rest.rsplit_once('.').unwrap();
    let known = |name: &str| tables.iter().copied().flatten().find(|t| t.0 == name).map(|t| t.1.to_owned());
    let name = known(rest).or_else(|| Some(format!("{}.{end}", known(stem)?)));
    let start = match arch {
        "llada" => "model.transformer.blocks",
        "diffusion-gemma" => "model.decoder.layers",
        _ => "model.layers",
    };
    format!("{start}.{layer}.{}", name.unwrap_or_else(|| panic!("{arch}: {gguf}")))
}

fn tensors(g: &Gguf, arch: &str, style: Style) -> Vec<Tensor> {
    let mut out: Vec<Tensor> = Vec::new();
    for t in g.tensors().iter().filter(|t| t.name != "rope_freqs.weight") {
        let bytes = g.tensor_bytes(t).to_vec();
        let mut shape: Vec<u64> = t.dims.iter().rev().copied().collect();
        let name = hf_name(arch, &t.name);
        if name.contains(".*.") && !style.fused {
            let n = shape.remove(0) as usize;
            for (e, part) in bytes.chunks(bytes.len() / n).enumerate() {
                out.push((name.replace('*', &e.to_string()), shape.clone(), t.dtype, part.to_vec()));
            }
        } else if name.contains(".*.") {
            let stack = name.replace(".*", "").trim_end_matches(".weight").to_owned();
            let both = stack.replace(".gate_proj", ".gate_up_proj").replace(".up_proj", ".gate_up_proj");
            if let Some(gate) = out.iter_mut().find(|o| o.0 == both) {
                // Of each expert the rows of gate, then those of up.
                let n = shape[0] as usize;
                let (a, b) = (gate.3.len() / n, bytes.len() / n);
                gate.3 = gate.3.chunks(a).zip(bytes.chunks(b)).flat_map(|(a, b)| [a, b].concat()).collect();
                gate.1[1] += shape[1];
            } else {
                let name = if stack.ends_with("down_proj") { stack } else { both };
                out.push((name, shape, t.dtype, bytes));
            }
        } else if arch == "llada" && (t.name.contains("attn_q.") || t.name.contains("attn_k.")) {
            let key = if t.name.contains("attn_q.") { "head_count" } else { "head_count_kv" };
            let heads = g.metadata().u32(&format!("llada.attention.{key}")).unwrap() as usize;
            out.push((name, shape, t.dtype, in_halves(&bytes, heads, t.dims[1] as usize)));
        } else {
            out.push((name, shape, t.dtype, bytes));
        }
    }
    out
}

/// Rows that are rotated in neighbouring pairs, so that they are rotated in halves of a head.
fn in_halves(bytes: &[u8], heads: usize, rows: usize) -> Vec<u8> {
    let rows: Vec<&[u8]> = bytes.chunks(bytes.len() / rows).collect();
    let head = |h: &[&[u8]]| -> Vec<u8> {
        let every_second = |from: usize| h.iter().skip(from).step_by(2).copied().collect::<Vec<_>>().concat();
        [every_second(0), every_second(1)].concat()
    };
    rows.chunks(rows.len() / heads).flat_map(head).collect()
}

fn config(meta: &Metadata, arch: &str, g: &Gguf) -> Json {
    let key = |k: &str| format!("{arch}.{k}");
    let int = |k: &str| meta.opt_u64(&key(k)).unwrap();
    // As Python prints the f64 that is nearest to what was meant.
    let float = |k: &str| meta.opt_f32(&key(k)).unwrap().map(|x| x.to_string().parse::<f64>().unwrap());
    let named = |k: &str| meta.opt_u64(&format!("tokenizer.ggml.{k}_token_id")).unwrap();
    let vocab = g.tensor("token_embd.weight").unwrap().dims[1];
    let common = json!({
        "vocab_size": vocab, "hidden_size": int("embedding_length"), "num_hidden_layers": int("block_count"),
        "num_attention_heads": int("attention.head_count"), "rms_norm_eps": float("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": int("context_length"),
        "torch_dtype": "bfloat16", "transformers_version": "4.57.1", "use_cache": false,
        "bos_token_id": named("bos"), "eos_token_id": named("eos"), "pad_token_id": named("padding"),
    });
    let mut c = match arch {
        "diffusion-gemma" => {
            let sliding = meta.bool_array(&key("attention.sliding_window_pattern")).unwrap();
            let kv = meta.u32_array(&key("attention.head_count_kv")).unwrap();
            let at = |what: bool| kv[sliding.iter().position(|s| *s == what).unwrap()];
            let kinds = sliding.iter().map(|s| if *s { "sliding_attention" } else { "full_attention" });
            let mut text = common;
            let own = json!({
                "model_type": "diffusion_gemma_text", "intermediate_size": int("feed_forward_length"),
                "num_key_value_heads": at(true), "num_global_key_value_heads": at(false),
                "head_dim": int("attention.key_length_swa"), "global_head_dim": int("attention.key_length"),
                "sliding_window": int("attention.sliding_window"),
                "final_logit_softcapping": float("final_logit_softcapping"),
                "layer_types": kinds.collect::<Vec<_>>(), "num_experts": int("expert_count"),
                "top_k_experts": int("expert_used_count"), "moe_intermediate_size": int("expert_feed_forward_length"),
                "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false,
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": float("rope.freq_base_swa")},
                    "full_attention": {"rope_type": "proportional", "rope_theta": float("rope.freq_base"),
                                       "partial_rotary_factor": 0.25}},
            });
            merge(&mut text, own);
            return json!({
                "architectures": ["DiffusionGemmaForBlockDiffusion"], "model_type": "diffusion_gemma",
                "text_config": text, "vision_config": null,
                "canvas_length": meta.u32("diffusion.canvas_length").unwrap(),
            });
        }
        "llada" => {
            return json!({
                "architectures": ["LLaDAModelLM"], "model_type": "llada", "d_model": int("embedding_length"),
                "n_layers": int("block_count"), "n_heads": int("attention.head_count"),
                "n_kv_heads": int("attention.head_count_kv"), "mlp_hidden_size": int("feed_forward_length"),
                "max_sequence_length": int("context_length"), "rope_theta": float("rope.freq_base"),
                "rms_norm_eps": float("attention.layer_norm_rms_epsilon"), "vocab_size": vocab,
                "embedding_size": vocab, "mask_token_id": named("mask"), "block_type": "llama", "rope": true,
                "activation_type": "silu", "layer_norm_type": "rms", "alibi": false, "scale_logits": false,
                "multi_query_attention": null, "block_group_size": 1, "input_emb_norm": false,
                "eos_token_id": named("eos"), "pad_token_id": named("padding"),
            });
        }
        _ => common,
    };
    let set = json!({
        "num_key_value_heads": int("attention.head_count_kv"), "rope_theta": float("rope.freq_base"),
        "intermediate_size": int("feed_forward_length"), "head_dim": int("attention.key_length"),
        "hidden_act": "silu", "rope_scaling": null, "num_experts": int("expert_count"),
        "num_experts_per_tok": int("expert_used_count"),
    });
    merge(&mut c, set);
    let block = meta.opt_u64("diffusion.canvas_length").unwrap();
    let moe = json!({"moe_intermediate_size": int("expert_feed_forward_length"), "norm_topk_prob": true});
    let own = match arch {
        "dream" => {
            json!({"architectures": ["DreamModel"], "model_type": "Dream", "mask_token_id": named("mask")})
        }
        "llada-moe" => json!({
            "architectures": ["LLaDAMoEModelLM"], "model_type": "llada", "norm_topk_prob": null,
            "expert_intermediate_size": int("expert_feed_forward_length"), "intermediate_size": null,
            "dense_intermediate_size": int("feed_forward_length"), "partial_rotary_factor": 1,
        }),
        "rnd1" => {
            merge(&mut c, moe);
            json!({"architectures": ["RND1LM"], "model_type": "rnd1", "mask_token_id": named("mask"),
                   "rope_scaling": false, "mlp_only_layers": [], "decoder_sparse_step": 1})
        }
        "llada2" => json!({
            "architectures": ["LLaDA2MoeModelLM"], "model_type": "llada2_moe",
            "moe_intermediate_size": int("expert_feed_forward_length"), "n_group": int("expert_group_count"),
            "topk_group": int("expert_group_used_count"), "num_shared_experts": int("expert_shared_count"),
            "first_k_dense_replace": int("leading_dense_block_count"), "block_size": block,
            "routed_scaling_factor": float("expert_weights_scale"), "partial_rotary_factor": 0.5,
            "score_function": "sigmoid", "use_qkv_bias": false, "use_bias": false, "use_qk_norm": true,
        }),
        "sdar" => json!({"architectures": ["SDARForCausalLM"], "model_type": "sdar", "block_size": block}),
        "sdar-moe" => {
            merge(&mut c, moe);
            json!({"architectures": ["SDARMoeForCausalLM"], "model_type": "sdar_moe", "block_size": block})
        }
        "fast-dllm" => {
            json!({"architectures": ["Fast_dLLM_QwenForCausalLM"], "model_type": "Fast_dLLM_Qwen", "bd_size": block})
        }
        "a2d-qwen2" => json!({"architectures": ["A2DQwen2LMHeadModel"], "model_type": "a2d-qwen2"}),
        "a2d-qwen3" => json!({"architectures": ["A2DQwen3LMHeadModel"], "model_type": "a2d-qwen3"}),
        _ => panic!("{arch}"),
    };
    merge(&mut c, own);
    if arch == "llada2" && meta.contains("llada2.expert_capacity") {
        let id = |k: &str| meta.u32(k).unwrap();
        merge(
            &mut c,
            json!({
                "expert_capacity": int("expert_capacity"),
                "delete_token_id": id("diffusion.delete_token_id"),
                "split_token_id": id("diffusion.split_token_id"),
            }),
        );
    }
    c
}

fn merge(into: &mut Json, from: Json) {
    let (Json::Object(into), Json::Object(from)) = (into, from) else { panic!("two objects") };
    into.extend(from);
}

fn generation(meta: &Metadata) -> Json {
    let float = |k: &str| meta.opt_f32(k).unwrap().map(|x| x.to_string().parse::<f64>().unwrap());
    json!({
        "eos_token_id": [meta.u32("tokenizer.ggml.eos_token_id").unwrap()],
        "max_denoising_steps": meta.opt_u32("diffusion.eb_max_steps").unwrap(),
        "t_min": float("diffusion.eb_t_min"), "t_max": float("diffusion.eb_t_max"),
        "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig",
                           "entropy_bound": float("diffusion.eb_entropy_bound")},
        "stability_threshold": meta.opt_u32("diffusion.eb_stability_threshold").unwrap(),
        "confidence_threshold": float("diffusion.eb_confidence_threshold"),
    })
}

const QWEN2_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING_PATTERN: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";

fn tokenizer(meta: &Metadata, old: bool) -> Json {
    let tokens = meta.str_array("tokenizer.ggml.tokens").unwrap();
    let types = meta.i32_array("tokenizer.ggml.token_type").unwrap();
    let gemma = meta.str("tokenizer.ggml.model").unwrap() == "gemma4";
    let (mut vocab, mut added) = (Map::new(), Vec::new());
    for (id, (text, kind)) in tokens.iter().zip(types).enumerate() {
        let special = kind == 3 || kind == 4;
        if gemma || !special {
            vocab.insert(text.into(), id.into());
        }
        if special {
            added.push(
                json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                              "normalized": false, "special": kind == 3}),
            );
        }
    }
    let merge = |m: &str| -> Json {
        // The space that divides is not the first character.
        let at = m.char_indices().skip(1).find(|(_, c)| *c == ' ').unwrap().0;
        if old { m.into() } else { json!([m[..at], m[at + 1..]]) }
    };
    let merges: Vec<Json> = meta.str_array("tokenizer.ggml.merges").unwrap().iter().map(merge).collect();
    let pattern = match meta.opt_str("tokenizer.ggml.pre").unwrap() {
        Some("qwen2") => QWEN2_PATTERN,
        _ => BAILING_PATTERN,
    };
    let pre = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}]});
    let words = json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false});
    let space = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    let bos = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {}});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": if gemma { space } else { Json::Null },
        "pre_tokenizer": if gemma { words } else { pre },
        "post_processor": if gemma { bos } else { Json::Null }, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": gemma, "ignore_merges": false,
                  "vocab": vocab, "merges": merges},
    })
}

fn tokenizer_config(meta: &Metadata, old: bool) -> Json {
    let tokens = meta.str_array("tokenizer.ggml.tokens").unwrap();
    let named = |key: &str| -> Json {
        let id = meta.opt_u32(&format!("tokenizer.ggml.{key}_token_id")).unwrap();
        let Some(text) = id.and_then(|id| tokens.get(id as usize)) else { return Json::Null };
        if old { json!({"content": text, "special": true}) } else { text.into() }
    };
    let mut c = json!({
        "bos_token": named("bos"), "eos_token": named("eos"), "unk_token": named("unknown"),
        "pad_token": named("padding"), "mask_token": named("mask"),
    });
    // Gemma's leave it to the post-processor.
    if meta.str("tokenizer.ggml.model").unwrap() == "gpt2" {
        c["add_bos_token"] = meta.opt_bool("tokenizer.ggml.add_bos_token").unwrap().into();
    }
    c
}
