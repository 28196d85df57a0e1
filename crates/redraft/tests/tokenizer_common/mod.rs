//! Vocabularies and cases from `testdata/` for the tokenizer tests.

#![allow(dead_code, reason = "each test file uses a part of it")]

use redraft::tokenizer::{Tokenizer, TokenizerParts};
use serde_json::Value;

/// Reads a JSON file of `testdata/`.
pub(crate) fn testdata(path: &str) -> Value {
    let path = format!("{}/../../testdata/{path}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The parts in a file that `testdata/tokenizer/extract.py` wrote.
pub(crate) fn parts(name: &str) -> TokenizerParts {
    let v = testdata(&format!("tokenizer/{name}.vocab.json"));
    let id = |key: &str| v[key].as_u64().map(|id| id as u32);
    let strings = |key: &str| v[key].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    TokenizerParts {
        model: v["model"].as_str().unwrap().to_owned(),
        pre: v["pre"].as_str().map(str::to_owned),
        tokens: strings("tokens"),
        types: Some(v["types"].as_array().unwrap().iter().map(|t| t.as_i64().unwrap() as i32).collect()),
        merges: v["merges"].is_array().then(|| strings("merges")),
        scores: v["scores"].as_array().map(|s| s.iter().map(|x| x.as_f64().unwrap() as f32).collect()),
        bos: id("bos"),
        eos: id("eos"),
        unknown: id("unknown"),
        pad: id("pad"),
        mask: id("mask"),
        eot: id("eot"),
        eom: id("eom"),
        add_bos: v["add_bos"].as_bool(),
        add_space_prefix: v["add_space_prefix"].as_bool(),
        chat_template: v["chat_template"].as_str().map(str::to_owned),
        ..TokenizerParts::default()
    }
}

/// The tokenizer in such a file.
pub(crate) fn tokenizer(name: &str) -> Tokenizer {
    Tokenizer::from_parts(parts(name)).unwrap()
}

/// A list of ids.
pub(crate) fn ids(v: &Value) -> Vec<u32> {
    v.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Fails with all lines at once.
pub(crate) fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
