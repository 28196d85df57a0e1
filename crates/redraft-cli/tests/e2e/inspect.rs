//! `redraft inspect`.

use redraft::gguf::{DType, GgufWriter};

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
    assert!(ok(&["inspect", &path]).contains("quux (not supported; redraft runs diffusion-gemma"));
    let done = redraft(&["run", "-m", &path, "x"]);
    assert_eq!(done.code, Some(2));
    let want = "architecture `quux` is not supported; supported: diffusion-gemma";
    assert!(done.err.contains(want), "{}", done.err);
}
