//! `tokenizer.json` for checkpoints that have a tokenizer in Python alone: `vocab.json` and `merges.txt`, and the
//! class says the rest.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use crate::tokenizer::pre;

/// Classes of byte-level tokenizers, each with the name of how it splits text. All of them normalise to NFC.
const CLASSES: &[(&str, &str)] =
    &[("Qwen2Tokenizer", "qwen2"), ("Qwen2TokenizerFast", "qwen2"), ("DreamTokenizer", "qwen2")];

/// The files of such a tokenizer.
pub(super) struct SlowTokenizer<'a> {
    /// `vocab.json`: ids by text.
    pub(super) vocab: Json,
    /// `merges.txt`, one a line, best first.
    pub(super) merges: &'a str,
    /// `tokenizer_config.json`.
    pub(super) config: &'a Json,
    /// `added_tokens.json`: ids by text; null without one.
    pub(super) added: &'a Json,
}

/// `tokenizer.json`, with all that other programs ask for.
#[derive(Serialize)]
struct Whole<'a> {
    version: &'a str,
    added_tokens: Vec<AddedToken<'a>>,
    normalizer: Json,
    pre_tokenizer: Json,
    post_processor: Json,
    decoder: Json,
    model: Model<'a>,
}

#[derive(Serialize)]
struct AddedToken<'a> {
    id: u64,
    content: &'a str,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

#[derive(Serialize)]
struct Model<'a> {
    r#type: &'a str,
    dropout: Option<f32>,
    unk_token: Option<&'a str>,
    continuing_subword_prefix: Option<&'a str>,
    end_of_word_suffix: Option<&'a str>,
    fuse_unk: bool,
    byte_fallback: bool,
    ignore_merges: bool,
    vocab: Json,
    merges: Vec<&'a str>,
}

impl SlowTokenizer<'_> {
    /// The same tokenizer as `tokenizer.json`.
    ///
    /// # Errors
    /// A class that is not known.
    pub(super) fn whole(self) -> Result<String, String> {
        let class = self.config["tokenizer_class"].as_str().unwrap_or_default();
        let pattern = CLASSES.iter().find(|c| c.0 == class).and_then(|c| pre::pattern_of(c.1));
        let Some(pattern) = pattern else {
            let known: Vec<&str> = CLASSES.iter().map(|c| c.0).collect();
            return Err(format!(
                "tokenizer.json is missing, and vocab.json does not say how text is split: `tokenizer_class` is \
                 {class:?}, known are {}",
                known.join(", ")
            ));
        };
        let merges = self.merges.lines().filter(|l| !l.is_empty() && !l.starts_with("#version"));
        let whole = Whole {
            version: "1.0",
            added_tokens: added_tokens(self.config, self.added),
            normalizer: json!({"type": "NFC"}),
            pre_tokenizer: json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
                byte_level(),
            ]}),
            post_processor: Json::Null,
            decoder: byte_level(),
            model: Model {
                r#type: "BPE",
                dropout: None,
                unk_token: None,
                continuing_subword_prefix: None,
                end_of_word_suffix: None,
                fuse_unk: false,
                byte_fallback: false,
                ignore_merges: false,
                merges: merges.collect(),
                vocab: self.vocab,
            },
        };
        serde_json::to_string(&whole).map_err(|e| format!("tokenizer.json cannot be made of vocab.json: {e}"))
    }
}

fn byte_level() -> Json {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false})
}

/// The tokens of `tokenizer_config.json`, and those that only `added_tokens.json` has, by id.
fn added_tokens<'a>(config: &'a Json, added: &'a Json) -> Vec<AddedToken<'a>> {
    let mut all = BTreeMap::new();
    let objects = |x: &'a Json| x.as_object().into_iter().flat_map(Map::iter);
    for (id, stated) in objects(&config["added_tokens_decoder"]) {
        if let (Ok(id), Some(text)) = (id.parse(), stated["content"].as_str()) {
            all.insert(id, added_token(id, text, stated));
        }
    }
    for (text, id) in objects(added) {
        if let Some(id) = id.as_u64() {
            all.entry(id).or_insert_with(|| added_token(id, text, &Json::Null));
        }
    }
    all.into_values().collect()
}

/// An added token, with what `tokenizer_config.json` says of it.
fn added_token<'a>(id: u64, content: &'a str, stated: &Json) -> AddedToken<'a> {
    let flag = |name: &str, default| stated[name].as_bool().unwrap_or(default);
    AddedToken {
        id,
        content,
        single_word: flag("single_word", false),
        lstrip: flag("lstrip", false),
        rstrip: flag("rstrip", false),
        normalized: flag("normalized", false),
        special: flag("special", true),
    }
}
