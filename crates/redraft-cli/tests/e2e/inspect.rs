//! `redraft inspect`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;

use redraft::gguf::{DType, Gguf, GgufWriter, Value};

use crate::{json, mini, ok, redraft};

#[test]
fn a_known_model_is_shown_completely() {
    let v = json(&["inspect", &mini()]);
    assert_eq!((&v["architecture"], &v["supported"]), (&"diffusion-gemma".into(), &true.into()));
    assert_eq!(v["version"], 3);
    let tensors = v["tensors"].as_array().unwrap();
    assert_eq!(tensors[0]["name"], "token_embd.weight");
    assert_eq!(tensors[0]["shape"], serde_json::json!([288, 531]));
    let sum: u64 = tensors.iter().map(|t| t["bytes"].as_u64().unwrap()).sum();
    assert_eq!(v["tensor_bytes"], sum);
    assert_eq!(v["types"][0]["type"], "F32");
    let tokens =
        v["metadata"].as_array().unwrap().iter().find(|m| m["key"] == "tokenizer.ggml.tokens").unwrap();
    assert_eq!((&tokens["type"], &tokens["len"]), (&"array of 531 string".into(), &531.into()));
    assert_eq!(tokens["value"].as_array().unwrap().len(), 6, "abbreviated");
    let full = json(&["inspect", "--full", &mini()]);
    let tokens =
        full["metadata"].as_array().unwrap().iter().find(|m| m["key"] == "tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens["value"].as_array().unwrap().len(), 531);
    let text = ok(&["inspect", &mini()]);
    for part in ["diffusion-gemma (supported)", "metadata (", "block types", "tensors (", "288 x 531", "…"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn an_unknown_architecture_is_shown_all_the_same() {
    let mut w = GgufWriter::new();
    w.metadata_mut().set("general.architecture", "quux");
    w.metadata_mut().set("general.name", "evil\u{1b}[2J name");
    w.add_tensor("some.weight", &[2, 3], DType::F32).unwrap();
    let mut data = w.begin(Vec::new()).unwrap();
    data.write_tensor("some.weight", &[0; 24]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quux.gguf");
    std::fs::write(&path, data.finish().unwrap()).unwrap();
    let path = path.display().to_string();

    let v = json(&["inspect", &path]);
    assert_eq!((&v["architecture"], &v["supported"]), (&"quux".into(), &false.into()));
    assert_eq!(v["parameters"], 6);
    let shown = ok(&["inspect", &path]);
    assert!(
        shown.contains("quux (not supported; redraft runs a2d-qwen2, ")
            && shown.contains(", diffusion-gemma, ")
    );
    let done = redraft(&["run", "-m", &path, "x"]);
    assert_eq!(done.code, Some(2));
    let want = "architecture `quux` is not supported; supported: a2d-qwen2, ";
    assert!(done.err.contains(want), "{}", done.err);
}

#[test]
fn unknown_types_and_hostile_names_are_shown_and_tamed() {
    let mut w = GgufWriter::new();
    w.metadata_mut().set("general.architecture", format!("qu\nux\u{1b}[2J{}", "x".repeat(5000)).as_str());
    w.metadata_mut().set("k".repeat(5000), 1u8);
    w.add_raw_tensor("a", &[1 << 62], DType(250), 40).unwrap();
    w.add_raw_tensor("b", &[1 << 62, 3], DType(250), 8).unwrap();
    w.add_raw_tensor("c", &[1 << 62, 3], DType(251), 8).unwrap();
    let mut data = w.begin(Vec::new()).unwrap();
    for (name, n) in [("a", 40), ("b", 8), ("c", 8)] {
        data.write_tensor(name, &vec![7; n]).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd.gguf");
    std::fs::write(&path, data.finish().unwrap()).unwrap();
    let path = path.display().to_string();

    let v = json(&["inspect", &path]);
    let types = v["types"].as_array().unwrap();
    assert_eq!((&types[0]["type"], &types[0]["known"]), (&"type 250".into(), &false.into()));
    assert_eq!(types[0]["bytes"], 64 + 32, "with padding, up to the next tensor");
    assert_eq!(v["parameters"], u64::MAX, "more than can be counted");
    let text = ok(&["inspect", &path]);
    assert!(text.lines().all(|l| l.len() < 400), "{text}");
    for part in ["type 250", "not a known type", r"qu\nux\u{1b}[2Jxxx", "… (5009 bytes)", "kkk… (5000 bytes)"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(ok(&["inspect", "--full", &path]).contains(&"k".repeat(5000)));
    let done = redraft(&["run", "-m", &path, "x"]);
    assert_eq!((done.code, done.err.lines().count()), (Some(2), 1), "{}", done.err);
    assert!(done.err.contains(r"architecture `qu\nux\u{1b}[2Jxxx") && done.err.len() < 400, "{}", done.err);
}

/// A model in three files as gguf-split writes it: the first has the metadata and no tensors.
fn split(model: &str, dir: &Path) -> Vec<String> {
    let whole = Gguf::open(Path::new(model), &Default::default()).unwrap();
    let half = whole.tensors().len() / 2;
    let shares = [&[][..], &whole.tensors()[..half], &whole.tensors()[half..]];
    let save = |(no, tensors): (u16, &[redraft::gguf::TensorInfo])| {
        let mut w = match no {
            0 => GgufWriter::with_metadata(whole.metadata().clone()),
            _ => GgufWriter::new(),
        };
        w.metadata_mut().set("split.no", no);
        w.metadata_mut().set("split.count", 3u16);
        w.metadata_mut().set("split.tensors.count", Value::I32(whole.tensors().len() as i32));
        tensors.iter().for_each(|t| w.add_tensor(&t.name, &t.dims, t.dtype).unwrap());
        let mut out = w.begin(Vec::new()).unwrap();
        tensors.iter().for_each(|t| out.write_tensor(&t.name, &whole.tensor_bytes(t)).unwrap());
        let path = dir.join(format!("mini-{:05}-of-00003.gguf", no + 1));
        std::fs::write(&path, out.finish().unwrap()).unwrap();
        path.display().to_string()
    };
    (0..).zip(shares).map(save).collect()
}

#[test]
fn a_split_model_is_shown_and_run_as_the_whole_one() {
    let dir = tempfile::tempdir().unwrap();
    let files = split(&mini(), dir.path());
    let (whole, parts) = (json(&["inspect", &mini()]), json(&["inspect", &files[1]]));
    for key in ["architecture", "parameters", "tensor_bytes", "metadata", "types"] {
        assert_eq!(whole[key], parts[key], "{key}");
    }
    assert_eq!(parts["files"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&parts["files"][2]["file"], &parts["files"][0]["tensors"]),
        (&files[2].clone().into(), &0.into())
    );
    assert_eq!((&parts["tensors"][0]["file"], &whole["tensors"][0]["file"]), (&1.into(), &().into()));
    let text = ok(&["inspect", &files[0]]);
    assert!(text.contains("files (3)") && text.contains("mini-00003-of-00003.gguf"), "{text}");

    let run = |model: &str| {
        json(&["run", "-m", model, "--tokens", "2,31,87", "-n", "16", "--steps", "2", "--no-mmap"])["digest"]
            .clone()
    };
    assert_eq!(run(&mini()), run(&files[2]));
    std::fs::remove_file(&files[1]).unwrap();
    let done = redraft(&["run", "-m", &files[2], "x"]);
    assert_eq!(done.code, Some(2));
    assert!(
        done.err.contains(&format!("file 2 of 3 of a split model is missing: expected {}", files[1])),
        "{}",
        done.err
    );
}
