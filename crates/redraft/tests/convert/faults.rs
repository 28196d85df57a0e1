//! Checkpoints that cannot be converted: each fault is named, all at once, and nothing is left behind.

use std::path::Path;

use redraft::Error;
use redraft::convert::{Checkpoint, ConvertOptions, convert, convert_to_memory};
use redraft::gguf::DType;
use serde_json::json;

use crate::checkpoint::{Files, Style};
use crate::{converted, model};

fn dream() -> Files {
    Files::new(&model("oracle/models/dream-tiny.F16.gguf"), Style::default())
}

fn moe() -> Files {
    Files::new(&model("oracle/models/rnd1-tiny.BF16.gguf"), Style::default())
}

/// What is said of a checkpoint with a fault.
fn said(files: &Files) -> String {
    converted(files, 0, &ConvertOptions::default()).map(|_| ()).unwrap_err().to_string()
}

fn assert_says(files: &Files, parts: &[&str]) {
    let e = said(files);
    for part in parts {
        assert!(e.contains(part), "no {part:?} in: {e}");
    }
}

fn tensor<'a>(files: &'a mut Files, name: &str) -> &'a mut crate::checkpoint::Tensor {
    files.tensors.iter_mut().find(|t| t.0 == name).unwrap()
}

#[test]
fn an_unknown_architecture_names_the_nearest_and_what_is_strange() {
    let mut files = dream();
    files.config["architectures"] = json!(["DreamV2Model"]);
    files.config["model_type"] = "dream2".into();
    files.config["hidden_act"] = "relu".into();
    tensor(&mut files, "model.layers.1.self_attn.q_proj.weight").0 =
        "model.layers.1.self_attn.qk_proj.weight".into();
    files.config.as_object_mut().unwrap().remove("rms_norm_eps");
    assert_says(
        &files,
        &[
            "architecture DreamV2Model (`model_type` dream2) is not known; known: a2d-qwen2",
            "the nearest is dream (DreamModel)",
            "tensor model.layers.{N}.self_attn.qk_proj.weight",
            "config.json: `rms_norm_eps` is missing",
            "`hidden_act`: expected \"silu\" or \"swiglu\", found \"relu\"",
        ],
    );
    let mut files = dream();
    files.config["architectures"] = json!(["Qwen2ForCausalLM"]);
    let options = ConvertOptions { arch: Some("dream".into()), ..ConvertOptions::default() };
    converted(&files, 0, &options).unwrap();
    let options = ConvertOptions { arch: Some("gemma4".into()), ..ConvertOptions::default() };
    let e = converted(&files, 0, &options).unwrap_err().to_string();
    assert!(e.contains("--arch: expected one of a2d-qwen2,"), "{e}");
    let mut files = dream();
    files.config.as_object_mut().unwrap().remove("architectures");
    converted(&files, 0, &ConvertOptions::default()).unwrap();
    files.config.as_object_mut().unwrap().remove("model_type");
    assert_says(&files, &["config.json names no architecture"]);
}

#[test]
fn missing_and_strange_tensors_are_named_all_at_once() {
    let mut files = dream();
    let gone = ["model.layers.0.mlp.up_proj.weight", "model.layers.1.self_attn.k_proj.bias"];
    files.tensors.retain(|t| !gone.contains(&t.0.as_str()));
    assert_says(
        &files,
        &[
            "blk.0.ffn_up.weight: missing, expected the shape [256, 256] (it would be model.layers.0.mlp.up_proj.weight)",
            "blk.1.attn_k.bias: missing",
        ],
    );
    let mut files = dream();
    tensor(&mut files, gone[0]).0 = "model.layers.0.mlp.lora.weight".into();
    tensor(&mut files, gone[1]).0 = "model.layers.01.self_attn.k_proj.bias".into();
    files.config.as_object_mut().unwrap().remove("hidden_size");
    assert_says(
        &files,
        &[
            "model.layers.0.mlp.lora.weight is nothing that this architecture has",
            "model.layers.01.self_attn.k_proj.bias is nothing",
            "`hidden_size` is missing",
        ],
    );
    // A layer more than config.json says.
    let mut files = dream();
    files.config["num_hidden_layers"] = 1.into();
    assert_says(
        &files,
        &["nothing uses blk.1.attn_norm.weight (it is model.layers.1.input_layernorm.weight)"],
    );
    let mut files = dream();
    files.tensors.retain(|t| t.0 != "model.embed_tokens.weight");
    assert_says(&files, &["model.embed_tokens.weight is missing"]);
}

#[test]
fn experts_must_be_all_there_and_alike() {
    let mut files = moe();
    files.tensors.retain(|t| t.0 != "model.layers.0.mlp.experts.3.up_proj.weight");
    assert_says(&files, &["blk.0.ffn_up_exps.weight", "expected expert 3 of 7, found 4"]);
    let mut files = moe();
    files.config["num_experts"] = 9.into();
    assert_says(&files, &["blk.1.ffn_down_exps.weight: expected the shape [32, 256, 9], found [32, 256, 8]"]);
    let mut files = moe();
    let one = tensor(&mut files, "model.layers.1.mlp.experts.2.gate_proj.weight");
    one.1.reverse();
    assert_says(&files, &["model.layers.1.mlp.experts.2.gate_proj.weight: expected the shape [32, 256] of"]);
    let mut files = moe();
    let stack = ("model.layers.0.mlp.experts.down_proj".into(), vec![1, 1, 1], DType::F32, vec![0; 4]);
    files.tensors.push(stack);
    assert_says(&files, &["blk.0.ffn_down_exps.weight: "]);
}

#[test]
fn shapes_and_types_that_do_not_fit_are_named() {
    let mut files = dream();
    let t = tensor(&mut files, "model.layers.0.self_attn.v_proj.weight");
    t.1 = vec![64, 512];
    assert_says(
        &files,
        &["blk.0.attn_v.weight: expected the shape [256, 128], found [512, 64] (it is model.layers.0"],
    );
    let mut files = dream();
    tensor(&mut files, "lm_head.weight").2 = DType::I16;
    assert_says(&files, &["lm_head.weight has the type I16: expected BF16, F16 or F32"]);
    let mut files = Files::new(&model("oracle/models/llada-tiny.BF16.gguf"), Style::default());
    files.config["n_heads"] = 96.into();
    assert_says(&files, &["which llada.attention.head_count does not divide into heads with halves"]);
    let mut files = Files::new(&model("oracle/models/dg-mini.F32.gguf"), Style::default());
    let t = tensor(&mut files, "model.decoder.layers.0.self_attn.q_proj.weight");
    t.3[..4].copy_from_slice(&1e30f32.to_le_bytes());
    let options = ConvertOptions { dtype: Some(DType::F16), ..ConvertOptions::default() };
    let e = converted(&files, 0, &options).unwrap_err().to_string();
    assert!(e.contains("q_proj.weight") && e.contains("too large for F16: take BF16 or F32"), "{e}");
}

#[test]
fn settings_that_mean_another_computation_are_refused() {
    let mut files = dream();
    files.config["rope_scaling"] = json!({"type": "yarn", "factor": 4.0});
    files.config["quantization_config"] = json!({"quant_method": "fp8"});
    assert_says(
        &files,
        &[
            "`rope_scaling.type`: expected \"default\", found \"yarn\"",
            "`quantization_config`: expected null",
        ],
    );
    let mut files = moe();
    files.config["norm_topk_prob"] = false.into();
    files.config["num_experts_per_tok"] = "8".into();
    assert_says(
        &files,
        &["`norm_topk_prob`: expected true, found false", "`num_experts_per_tok`: expected an integer"],
    );
    let options = ConvertOptions { block_len: Some(8), ..ConvertOptions::default() };
    let e = converted(&dream(), 0, &options).unwrap_err().to_string();
    assert!(e.contains("--block-length: dream does not read in blocks"), "{e}");
}

/// A model of each kind of settings.
const KINDS: &[&str] = &[
    "oracle/models/dream-tiny.F16.gguf",
    "oracle/models/rnd1-tiny.BF16.gguf",
    "oracle/models/llada-moe-tiny.BF16.gguf",
    "llada2/models/llada2-tiny.BF16.gguf",
    "block-diffusion/models/sdar-tiny.BF16.gguf",
    "block-diffusion/models/sdar-moe-tiny.BF16.gguf",
    "block-diffusion/models/fast-dllm-tiny.BF16.gguf",
    "block-diffusion/models/a2d-qwen3-tiny.BF16.gguf",
];

/// What changes the arithmetic is done or refused, in every family.
#[test]
fn no_setting_that_changes_the_arithmetic_is_passed_over() {
    let settings = [
        ("rope_parameters", json!({"rope_theta": 77.0})),
        ("rope_scaling", json!({"rope_theta": 77.0, "rope_type": "default"})),
        ("rope_scaling", json!({"factor": 2.0})),
        ("rope_scaling", json!({"rope_type": "llama3", "factor": 1.0})),
        ("rope_parameters", json!({"rope_type": "linear"})),
        ("rope_scaling", json!("yarn")),
        ("final_logit_softcapping", json!(30.0)),
        ("attn_logit_softcapping", json!(50.0)),
        ("mlp_bias", json!(true)),
        ("attention_bias", json!(true)),
        ("use_bias", json!(true)),
        ("hidden_act", json!("gelu")),
        ("head_dim", json!(0)),
        ("num_key_value_heads", json!(0)),
        ("attention_multiplier", json!(0.5)),
        ("embedding_multiplier", json!(12.0)),
        ("residual_multiplier", json!(0.2)),
        ("logits_scaling", json!(8.0)),
        ("query_pre_attn_scalar", json!(256)),
        ("use_sliding_window", json!(true)),
        ("use_mrope", json!(true)),
        ("layer_types", json!(["full_attention", "sliding_attention"])),
        ("clip_qkv", json!(8.0)),
        ("partial_rotary_factor", json!(0.25)),
        ("rope_parameters", json!({"partial_rotary_factor": 0.25})),
    ];
    for file in KINDS {
        let files = Files::new(&model(file), Style::default());
        let block = file.contains("llada2");
        for (name, value) in &settings {
            // LLaDA2 has a key for it, and rotates half of a head.
            if block && *name == "partial_rotary_factor" {
                continue;
            }
            let mut changed = files.clone();
            changed.config[*name] = value.clone();
            let e = converted(&changed, 0, &ConvertOptions::default());
            let e = e.map(|_| ()).expect_err(&format!("{file}: {name} {value}")).to_string();
            assert!(e.contains(&format!("`{name}")), "{file}: {name}: {e}");
        }
        // What says that there is nothing of it is fine, in either place.
        let mut plain = files.clone();
        let theta = plain.config["rope_theta"].take();
        plain.config["rope_parameters"] = json!({"rope_type": "default", "rope_theta": theta, "factor": 1.0});
        plain.config["rope_scaling"] = json!({"rope_theta": theta, "type": "default"});
        for (name, value) in [
            ("use_sliding_window", json!(false)),
            ("sliding_window", json!(4)),
            ("mlp_bias", json!(false)),
            ("attention_multiplier", json!(1.0)),
            ("max_window_layers", json!(1)),
        ] {
            plain.config[name] = value;
        }
        let (a, b) = (converted(&files, 0, &ConvertOptions::default()), notes(&plain));
        assert_eq!(a.unwrap().bytes()[..], b.0[..], "{file}");
        assert!(b.1.iter().all(|n| !n.contains("not known")), "{file}: {:?}", b.1);
    }
    let mut files = Files::new(&model("llada2/models/llada2-tiny.BF16.gguf"), Style::default());
    let half = files.config["head_dim"].as_u64().unwrap() / 2;
    let rotated = |files: &Files| {
        let gguf = converted(files, 0, &ConvertOptions::default()).unwrap();
        u64::from(gguf.metadata().u32("llada2.rope.dimension_count").unwrap())
    };
    files.config["rotary_dim"] = half.into();
    assert_eq!(rotated(&files), half);
    files.config["partial_rotary_factor"] = 0.25.into();
    assert_says(&files, &["`rotary_dim` is", "by `partial_rotary_factor`"]);
    files.config["rotary_dim"] = json!(null);
    assert_eq!(rotated(&files), half / 2);
    files.config["rope_parameters"] = json!({"partial_rotary_factor": 0.5});
    assert_says(
        &files,
        &["`partial_rotary_factor` is 0.25, but `rope_parameters.partial_rotary_factor` is 0.5"],
    );
    files.config["rope_parameters"] = json!({"partial_rotary_factor": 0.25});
    for share in [json!(0), json!(-0.5), json!(1.5)] {
        files.config["partial_rotary_factor"] = share.clone();
        files.config["rope_parameters"] = json!({"partial_rotary_factor": share});
        assert_says(&files, &["`partial_rotary_factor`: expected more than 0 and at most 1"]);
    }
    let mut files = Files::new(&model("oracle/models/llada-tiny.BF16.gguf"), Style::default());
    files.config["include_qkv_bias"] = true.into();
    files.config["layer_norm_with_affine"] = false.into();
    files.config["rope_scaling"] = json!({"type": "linear"});
    assert_says(&files, &["`include_qkv_bias`", "`layer_norm_with_affine`", "`rope_scaling`"]);
    let mut files = Files::new(&model("oracle/models/dg-mini.F32.gguf"), Style::default());
    files.config["text_config"]["attn_logit_softcapping"] = 50.into();
    files.config["text_config"]["num_kv_shared_layers"] = 1.into();
    assert_says(&files, &["`text_config.attn_logit_softcapping`", "`text_config.num_kv_shared_layers`"]);
    let mut files = Files::new(&model("oracle/models/dg-mini.F32.gguf"), Style::default());
    files.config["text_config"]["rope_parameters"]["full_attention"]["partial_rotary_factor"] = 2.into();
    files.config["text_config"]["rope_parameters"]["sliding_attention"]["factor"] = 8.into();
    assert_says(
        &files,
        &["full_attention.partial_rotary_factor`: expected more than 0", "sliding_attention.factor`"],
    );
}

/// The file that comes out and what is said beside it.
fn notes(files: &Files) -> (Vec<u8>, Vec<String>) {
    let files = files.in_memory(0);
    let (bytes, done) = convert_to_memory(Checkpoint::Memory(&files), &ConvertOptions::default()).unwrap();
    (bytes, done.notes)
}

#[test]
fn settings_that_nobody_knows_are_named() {
    for file in KINDS.iter().chain(&["oracle/models/llada-tiny.BF16.gguf", "oracle/models/dg-mini.F32.gguf"])
    {
        let mut files = Files::new(&model(file), Style::default());
        let (before, said) = notes(&files);
        assert!(said.iter().all(|n| !n.contains("not known here")), "{file}: {said:?}");
        files.config["zeta_factor"] = 2.into();
        files.config["tail"] = json!({"beta": [1], "gamma": null});
        files.config["nothing"] = json!(null);
        let (after, said) = notes(&files);
        assert!(before == after, "{file}");
        let said: Vec<_> = said.iter().filter(|n| n.contains("not known here")).collect();
        assert_eq!(said.len(), 1, "{file}: {said:?}");
        assert!(said[0].contains(": `tail.beta`, `zeta_factor`; if one"), "{file}: {said:?}");
    }
    // A width of a window without a word on whether there is one.
    let mut files = dream();
    files.config["sliding_window"] = 4.into();
    assert!(notes(&files).1.iter().any(|n| n.contains("not known here: `sliding_window`;")));
}

#[test]
fn a_head_that_should_be_the_embedding_and_is_not_is_refused() {
    for file in ["oracle/models/dream-tiny.F16.gguf", "block-diffusion/models/a2d-qwen3-tiny.BF16.gguf"] {
        let mut files = Files::new(&model(file), Style::default());
        files.config["tie_word_embeddings"] = true.into();
        assert_says(&files, &["lm_head.weight is not what model.embed_tokens.weight is"]);
    }
}

#[test]
fn tokenizers_that_cannot_be_written_are_named() {
    let mut files = dream();
    files.tokenizer["model"]["type"] = "Unigram".into();
    assert_says(&files, &["tokenizer.json: `model.type`: expected \"BPE\", found Unigram"]);
    let mut files = dream();
    files.tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\w+|\s+(?!\S)|\s+".into();
    assert_says(&files, &["its way of splitting text has no name here: \\w+", "--pre NAME"]);
    let options = ConvertOptions { pre: Some("qwen2".into()), ..ConvertOptions::default() };
    converted(&files, 0, &options).unwrap();
    let options = ConvertOptions { pre: Some("qwen9".into()), ..ConvertOptions::default() };
    let e = converted(&files, 0, &options).unwrap_err().to_string();
    assert!(e.contains("--pre: expected one of ") && e.contains("found qwen9"), "{e}");
    let mut files = dream();
    files.tokenizer["added_tokens"][0]["id"] = 512.into();
    files.tokenizer["model"]["merges"][0] = json!(["a b", "c"]);
    assert_says(&files, &["is outside the 512 rows of the embedding"]);
    files.tokenizer["added_tokens"][0]["id"] = 3.into();
    assert_says(&files, &["token 3 is both"]);
    let mut files = dream();
    files.tokenizer["model"]["merges"][0] = json!(["a b", "c"]);
    assert_says(&files, &["the merge of a b and c cannot be written"]);
}

/// A folder with a fault, and that nothing is written.
fn assert_folder_says(dir: &Path, parts: &[&str]) {
    let out = dir.with_extension("gguf");
    let e = convert(dir, &out, &ConvertOptions::default(), &mut |_, _| true).unwrap_err();
    assert!(matches!(e, Error::Checkpoint { .. }), "{e:?}");
    let e = e.to_string();
    for part in parts {
        assert!(e.contains(part), "no {part:?} in: {e}");
    }
    let left = std::fs::read_dir(dir.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>().len(), 1, "only the folder is there");
}

#[test]
fn folders_that_are_not_whole_say_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("in");
    std::fs::create_dir(&dir).unwrap();
    assert_folder_says(
        &dir,
        &["config.json is missing", "neither model.safetensors nor model.safetensors.index.json"],
    );
    dream().save(&dir, 3);
    let second = dir.join("model-00002-of-00003.safetensors");
    let whole = std::fs::read(&second).unwrap();
    std::fs::write(&second, &whole[..whole.len() - 100]).unwrap();
    assert_folder_says(
        &dir,
        &["model-00002-of-00003.safetensors: no whole safetensors file", "may be a part of it"],
    );
    std::fs::write(&second, &whole[..20]).unwrap();
    assert_folder_says(&dir, &["model-00002-of-00003.safetensors: no whole safetensors file"]);
    std::fs::remove_file(&second).unwrap();
    assert_folder_says(&dir, &["index.json names model-00002-of-00003.safetensors, which is missing"]);
    std::fs::copy(dir.join("model-00001-of-00003.safetensors"), &second).unwrap();
    assert_folder_says(
        &dir,
        &["model-00002-of-00003.safetensors: model.embed_tokens.weight is in another file, too"],
    );
    std::fs::write(&second, crate::checkpoint::safetensors(&[])).unwrap();
    assert_folder_says(&dir, &["is in model-00002-of-00003.safetensors, which has no such tensor"]);
    let index = dir.join("model.safetensors.index.json");
    std::fs::write(&index, r#"{"weight_map": {"a": "../outside.safetensors"}}"#).unwrap();
    assert_folder_says(&dir, &["../outside.safetensors is no name of a file in the folder"]);
    std::fs::write(&index, "{").unwrap();
    assert_folder_says(&dir, &["model.safetensors.index.json cannot be read"]);
    std::fs::remove_file(&index).unwrap();
    std::fs::write(dir.join("pytorch_model.bin"), "x").unwrap();
    std::fs::remove_file(dir.join("tokenizer.json")).unwrap();
    std::fs::write(dir.join("config.json"), b"\xff").unwrap();
    assert_folder_says(&dir, &["config.json is not UTF-8 at byte 0", "found model-00001"]);
}

#[test]
fn a_file_that_is_there_stays_unless_it_may_be_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, out) = (dir.path().join("in"), dir.path().join("out.gguf"));
    std::fs::create_dir(&folder).unwrap();
    dream().save(&folder, 0);
    std::fs::write(&out, "precious").unwrap();
    let e = convert(&folder, &out, &ConvertOptions::default(), &mut |_, _| true).unwrap_err().to_string();
    assert!(e.contains("out.gguf: exists: --force replaces it"), "{e}");
    let force = ConvertOptions { overwrite: true, ..ConvertOptions::default() };
    // Stopped half-way, the old file is still there and nothing beside it.
    let mut n = 0;
    let e = convert(&folder, &out, &force, &mut |_, _| {
        n += 1;
        n < 5
    });
    assert!(matches!(e, Err(Error::Interrupted)), "{e:?}");
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    convert(&folder, &out, &force, &mut |_, _| true).unwrap();
    assert!(std::fs::read(&out).unwrap().starts_with(b"GGUF"));
}
