//! `convert`: checkpoints made from the small models in `testdata` become those models again, bit for bit.

#![allow(clippy::unwrap_used, reason = "tests")]

mod checkpoint;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod llama_cpp;

use std::path::PathBuf;

use redraft::convert::{Checkpoint, ConvertOptions, convert, convert_to_memory};
use redraft::gguf::{DType, Gguf};
use redraft::{Error, Model};

use checkpoint::{Files, Style};

/// Every architecture that checkpoints are converted to, with a model of it.
const MODELS: &[&str] = &[
    "oracle/models/dg-mini.F32.gguf",
    "oracle/models/dg-tiny.BF16.gguf",
    "oracle/models/dream-tiny.F16.gguf",
    "oracle/models/llada-tiny.BF16.gguf",
    "oracle/models/llada-moe-tiny.BF16.gguf",
    "oracle/models/rnd1-tiny.BF16.gguf",
    "llada2/models/llada2-tiny.BF16.gguf",
    "llada2/models/llada2.2-tiny.BF16.gguf",
    "block-diffusion/models/sdar-tiny.BF16.gguf",
    "block-diffusion/models/sdar-moe-tiny.BF16.gguf",
    "block-diffusion/models/fast-dllm-tiny.BF16.gguf",
    "block-diffusion/models/a2d-qwen3-tiny.BF16.gguf",
];

pub(crate) fn model(file: &str) -> Gguf {
    Gguf::open(&common::testdata().join(file), &Default::default()).unwrap_or_else(|e| panic!("{file}: {e}"))
}

pub(crate) fn converted(files: &Files, shards: usize, options: &ConvertOptions) -> Result<Gguf, Error> {
    let files = files.in_memory(shards);
    let (bytes, _) = convert_to_memory(Checkpoint::Memory(&files), options)?;
    Ok(Gguf::from_bytes(bytes.into()).unwrap())
}

/// Keys that say what the file is called, and those that a converted file has beside those of the model.
fn is_extra(key: &str) -> bool {
    let keys = ["tokenizer.huggingface.json", "diffusion.shift_logits"];
    key.starts_with("general.") || key.ends_with(".attention.causal") || keys.contains(&key)
}

fn assert_same(want: &Gguf, got: &Gguf, file: &str) {
    for (key, value) in
        want.metadata().iter().filter(|(k, _)| !k.starts_with("general.") || k.ends_with("type"))
    {
        // What the canvas says already.
        if key.ends_with(".expert_block_length") {
            continue;
        }
        assert_eq!(got.metadata().get(key), Some(value), "{file}: {key}");
    }
    let extra: Vec<&str> = got
        .metadata()
        .iter()
        .map(|(k, _)| k)
        .filter(|k| !want.metadata().contains(k) && !is_extra(k))
        .collect();
    assert_eq!(extra, [""; 0], "{file}");
    assert_eq!(want.tensors().len(), got.tensors().len(), "{file}");
    for t in want.tensors() {
        let g = got.tensor(&t.name).unwrap_or_else(|| panic!("{file}: no {}", t.name));
        assert_eq!((&t.dims, t.dtype), (&g.dims, g.dtype), "{file}: {}", t.name);
        assert!(want.tensor_bytes(t)[..] == got.tensor_bytes(g)[..], "{file}: {} differs", t.name);
    }
}

#[test]
fn checkpoints_of_all_architectures_become_their_models_bit_for_bit() {
    let mut archs = Vec::new();
    for file in MODELS {
        let want = model(file);
        for (i, fused) in [false, true].into_iter().enumerate() {
            let style = Style { fused, old: fused, ..Style::default() };
            let got = converted(&Files::new(&want, style), 3 * i, &ConvertOptions::default())
                .unwrap_or_else(|e| panic!("{file}: {e}"));
            assert_same(&want, &got, file);
        }
        archs.push(want.metadata().str("general.architecture").unwrap().to_owned());
    }
    let all = redraft::arch::ARCHS.iter().filter(|a| a.hf.is_some()).map(|a| a.name);
    // The biases of one and the masks of the other are proven above, and the name below.
    let missing: Vec<&str> = all.filter(|a| !archs.iter().any(|b| b == a)).collect();
    assert_eq!(missing, ["a2d-qwen2"]);
}

#[test]
fn qwen_2_as_a_diffusion_model_reads_whole_or_in_blocks() {
    let gguf = model("block-diffusion/models/fast-dllm-tiny.BF16.gguf");
    let mut files = Files::new(&gguf, Style::default());
    files.config["architectures"] = serde_json::json!(["A2DQwen2LMHeadModel"]);
    files.config["model_type"] = "a2d-qwen2".into();
    files.config.as_object_mut().unwrap().remove("bd_size");
    let got = converted(&files, 0, &ConvertOptions::default()).unwrap();
    let meta = got.metadata();
    assert_eq!(meta.str("general.architecture").unwrap(), "a2d-qwen2");
    assert_eq!(meta.u32("a2d-qwen2.attention.head_count_kv").unwrap(), 2);
    assert!(!meta.bool("diffusion.shift_logits").unwrap());
    assert_eq!(meta.opt_u32("diffusion.canvas_length").unwrap(), None);
    let blocks = ConvertOptions { block_len: Some(32), ..ConvertOptions::default() };
    let got = converted(&files, 0, &blocks).unwrap();
    assert_eq!(got.metadata().u32("diffusion.canvas_length").unwrap(), 32);
    for t in gguf.tensors() {
        assert!(gguf.tensor_bytes(t)[..] == got.tensor_bytes(got.tensor(&t.name).unwrap())[..], "{}", t.name);
    }
}

#[test]
fn the_page_names_every_architecture_and_its_checkpoints() {
    let page = std::fs::read_to_string(common::testdata().join("../docs/convert.md")).unwrap();
    for arch in redraft::arch::ARCHS {
        let Some(hf) = arch.hf else { continue };
        let row = page.lines().find(|l| l.starts_with(&format!("| `{}` |", arch.name)));
        let row = row.unwrap_or_else(|| panic!("no row of {}", arch.name));
        for name in hf.classes.iter().chain(hf.model_types) {
            assert!(row.contains(&format!("`{name}`")), "{}: {name}", arch.name);
        }
    }
}

/// The goldens of each architecture, by the file that came out.
#[test]
fn converted_models_pass_the_goldens() {
    let mut n = 0;
    let all = [common::oracle_cases(), common::family_cases(), common::block_cases()].concat();
    let all = [all, common::cases("llada2", |_| true)].concat();
    for path in MODELS {
        let file = path.rsplit('/').next().unwrap();
        let short =
            |name: &str| ["decode", "two-token", "forward", "cached"].iter().any(|c| name.ends_with(c));
        let cases: Vec<_> = all.iter().filter(|(name, _)| short(name)).cloned().collect();
        let files = Files::new(&model(path), Style { fused: true, ..Style::default() });
        let gguf = converted(&files, 2, &ConvertOptions::default()).unwrap();
        let mut model = Model::from_gguf(gguf, &common::exact()).unwrap();
        n += common::judge(&mut model, file, &cases, &common::f32_limits());
    }
    assert!(n >= 15, "{n} cases");
}

#[test]
fn matrices_take_the_type_that_is_asked_for() {
    for path in [
        "oracle/models/dg-mini.F32.gguf",
        "oracle/models/llada-tiny.BF16.gguf",
        "oracle/models/rnd1-tiny.BF16.gguf",
    ] {
        let file = path.rsplit('/').next().unwrap();
        let files = Files::new(&model(path), Style::default());
        for (dtype, id) in [(DType::F32, 0), (DType::F16, 1), (DType::BF16, 32)] {
            let options = ConvertOptions { dtype: Some(dtype), ..ConvertOptions::default() };
            let got = converted(&files, 0, &options).unwrap();
            assert_eq!(got.metadata().u32("general.file_type").unwrap(), id);
            // The values are exact in all three.
            let want = common::expand(file, dtype);
            for t in want.tensors() {
                let g = got.tensor(&t.name).unwrap();
                assert_eq!(t.dtype, g.dtype, "{file}: {}", t.name);
                assert!(want.tensor_bytes(t)[..] == got.tensor_bytes(g)[..], "{file}: {} as {dtype}", t.name);
            }
        }
    }
}

#[test]
fn an_embedding_that_is_the_head_is_written_once() {
    let gguf = model("block-diffusion/models/a2d-qwen3-tiny.BF16.gguf");
    let mut files = Files::new(&gguf, Style { tied: true, ..Style::default() });
    let got = converted(&files, 0, &ConvertOptions::default()).unwrap();
    assert!(got.tensor("output.weight").is_none());
    assert_eq!(got.tensors().len(), gguf.tensors().len() - 1);
    // A copy that some programs save is left out.
    let embedding = files.tensors.iter().find(|t| t.0 == "model.embed_tokens.weight").unwrap();
    let copy = (String::from("lm_head.weight"), embedding.1.clone(), embedding.2, embedding.3.clone());
    files.tensors.push(copy);
    let again = converted(&files, 0, &ConvertOptions::default()).unwrap();
    assert_eq!(again.bytes()[..], got.bytes()[..]);
    files.config["tie_word_embeddings"] = false.into();
    assert!(converted(&files, 0, &ConvertOptions::default()).unwrap().tensor("output.weight").is_some());
    files.tensors.pop();
    let e = converted(&files, 0, &ConvertOptions::default()).unwrap_err().to_string();
    assert!(e.contains("lm_head.weight is missing"), "{e}");
}

/// The encoder's copies of the decoder's tensors, and the parts for images.
#[test]
fn what_is_saved_twice_or_is_for_images_is_left_out() {
    let gguf = model("oracle/models/dg-mini.F32.gguf");
    let mut files = Files::new(&gguf, Style::default());
    let plain = converted(&files, 0, &ConvertOptions::default()).unwrap();
    let shared = |n: &str| n.starts_with("model.decoder.layers.") && !n.ends_with("layer_scalar");
    let shared = files.tensors.iter().filter(|t| shared(&t.0));
    let copies: Vec<_> = shared
        .map(|t| {
            (t.0.replace("model.decoder.", "model.encoder.language_model."), t.1.clone(), t.2, t.3.clone())
        })
        .collect();
    files.tensors.extend(copies);
    files.tensors.push(("model.encoder.vision_tower.patch.weight".into(), vec![1], DType::F32, vec![0; 4]));
    let both = converted(&files, 0, &ConvertOptions::default()).unwrap();
    assert_eq!(both.bytes()[..], plain.bytes()[..]);
    // The encoder's alone do as well.
    let mut alone = files.clone();
    alone.tensors.retain(|t| !t.0.starts_with("model.decoder.layers.") || t.0.ends_with("layer_scalar"));
    assert_eq!(converted(&alone, 0, &ConvertOptions::default()).unwrap().bytes()[..], plain.bytes()[..]);
    // Copies that differ are another model.
    files
        .tensors
        .iter_mut()
        .find(|t| t.0.ends_with("language_model.layers.1.mlp.up_proj.weight"))
        .unwrap()
        .3[0] ^= 1;
    let e = converted(&files, 0, &ConvertOptions::default()).unwrap_err().to_string();
    assert!(
        e.contains(
            "language_model.layers.1.mlp.up_proj.weight is not what model.decoder.layers.1.mlp.up_proj.weight"
        ),
        "{e}"
    );
}

#[test]
fn vocabularies_are_filled_up_and_ends_of_answers_are_all_named() {
    let gguf = model("block-diffusion/models/sdar-tiny.BF16.gguf");
    let mut files = Files::new(&gguf, Style::default());
    // 511 is the mask, which nothing but its text names then.
    files.tokenizer["added_tokens"].as_array_mut().unwrap().retain(|t| t["id"] != 510);
    files.tokenizer_config["mask_token"] = serde_json::Value::Null;
    files.generation["eos_token_id"] = serde_json::json!([508, 507, 509]);
    files.tokenizer_config["chat_template"] = serde_json::json!([
        {"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]);
    let got = converted(&files, 0, &ConvertOptions::default()).unwrap();
    let meta = got.metadata();
    let tokens = meta.str_array("tokenizer.ggml.tokens").unwrap();
    assert_eq!((tokens.len(), &tokens[510]), (512, "[PAD510]"));
    assert_eq!(meta.i32_array("tokenizer.ggml.token_type").unwrap()[510], 5);
    let id = |key: &str| meta.opt_u32(&format!("tokenizer.ggml.{key}_token_id")).unwrap();
    assert_eq!((id("mask"), id("eos"), id("eot"), id("eom")), (Some(511), Some(507), Some(508), Some(509)));
    assert_eq!(meta.str("tokenizer.chat_template").unwrap(), "a");
    assert_eq!(meta.str("tokenizer.chat_template.tool_use").unwrap(), "b");
    let whole = meta.str("tokenizer.huggingface.json").unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(whole).unwrap(), files.tokenizer);
}

/// Stacks of experts that are three tensors.
#[test]
fn stacks_of_gates_and_ups_are_taken_as_they_are() {
    let gguf = model("block-diffusion/models/sdar-moe-tiny.BF16.gguf");
    let mut files = Files::new(&gguf, Style { fused: true, ..Style::default() });
    files.tensors.retain(|t| !t.0.ends_with("gate_up_proj"));
    for t in gguf.tensors().iter().filter(|t| t.name.contains("_gate_exps.") || t.name.contains("_up_exps."))
    {
        let (layer, kind) = t.name.strip_prefix("blk.").unwrap().split_once(".ffn_").unwrap();
        let name = format!("model.layers.{layer}.mlp.experts.{}_proj", kind.replace("_exps.weight", ""));
        files.tensors.push((
            name,
            t.dims.iter().rev().copied().collect(),
            t.dtype,
            gguf.tensor_bytes(t).to_vec(),
        ));
    }
    assert_same(&gguf, &converted(&files, 0, &ConvertOptions::default()).unwrap(), "sdar-moe-tiny");
}

/// Dream's checkpoints have their tokenizer in Python alone.
#[test]
fn a_vocabulary_and_merges_stand_in_for_the_whole_tokenizer() {
    let gguf = model("oracle/models/dream-tiny.F16.gguf");
    let mut files = Files::new(&gguf, Style { slow: true, ..Style::default() });
    let got = converted(&files, 0, &ConvertOptions::default()).unwrap();
    assert_same(&gguf, &got, "dream-tiny");
    let whole = got.metadata().str("tokenizer.huggingface.json").unwrap();
    let theirs: tokenizers::Tokenizer = whole.parse().unwrap();
    let ours = redraft::tokenizer::Tokenizer::from_gguf(got.metadata()).unwrap();
    for text in ["It's what we've got; they're fine.", "cafe\u{301} 3.14\n\n  x", "<|mask|><|im_end|> 你好"]
    {
        let ids = ours.encode(text, redraft::tokenizer::Specials::Parse).unwrap();
        assert_eq!(theirs.encode(text, false).unwrap().get_ids(), ids, "{text}");
    }
    files.tokenizer_config["tokenizer_class"] = "OddTokenizer".into();
    let e = converted(&files, 0, &ConvertOptions::default()).unwrap_err().to_string();
    assert!(e.contains("`tokenizer_class` is \"OddTokenizer\", known are Qwen2Tokenizer"), "{e}");
    files.more.clear();
    let e = converted(&files, 0, &ConvertOptions::default()).unwrap_err().to_string();
    assert!(e.contains("tokenizer.json is missing, and so are vocab.json and merges.txt"), "{e}");
}

/// A folder, its copy in shards, and the file that comes out.
#[test]
fn folders_give_the_same_file_in_one_piece_and_in_shards() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::new(&model("oracle/models/llada-moe-tiny.BF16.gguf"), Style::default());
    let mut written: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for shards in [0, 1, 4] {
        let folder = dir.path().join(format!("in-{shards}"));
        std::fs::create_dir(&folder).unwrap();
        files.save(&folder, shards);
        let out = dir.path().join(format!("out-{shards}.gguf"));
        let options = ConvertOptions { name: Some("tiny".into()), ..ConvertOptions::default() };
        let mut last = 0;
        let done = convert(&folder, &out, &options, &mut |done, total| {
            assert!(last < done && done <= total, "{last} {done} {total}");
            last = done;
            true
        });
        let done = done.unwrap();
        let bytes = std::fs::read(&out).unwrap();
        assert_eq!((done.arch, done.n_bytes), ("llada-moe", bytes.len() as u64));
        written.push((out, bytes));
    }
    assert!(written.windows(2).all(|w| w[0].1 == w[1].1));
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 6, "{left:?}");
    // The name is the folder's where nobody gives one.
    convert(&dir.path().join("in-0"), &dir.path().join("x.gguf"), &ConvertOptions::default(), &mut |_, _| {
        true
    })
    .unwrap();
    let named = Gguf::open(&dir.path().join("x.gguf"), &Default::default()).unwrap();
    assert_eq!(named.metadata().str("general.name").unwrap(), "in-0");
}
