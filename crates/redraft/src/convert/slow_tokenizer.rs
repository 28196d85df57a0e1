//! `tokenizer.json` for checkpoints that have a tokenizer in Python alone: `vocab.json` and `merges.txt`, and the class says
//! the rest.

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
        let mut added: Vec<(u64, Json)> = Vec::new();
        let none = Map::new();
        // Files list some of them twice.
        for (id, token) in self.config["added_tokens_decoder"].as_object().unwrap_or(&none) {
            if let (Ok(id), Some(text)) = (id.parse(), token["content"].as_str()) {
                added.push((id, added_token(id, text, token)));
            }
        }
        for (text, id) in self.added.as_object().unwrap_or(&none) {
            if let Some(id) = id.as_u64().filter(|id| !added.iter().any(|a| a.0 == *id)) {
                added.push((id, added_token(id, text, &Json::Null)));
            }
        }
        added.sort_by_key(|a| a.0);
        let merges = self.merges.lines().filter(|l| !l.is_empty() && !l.starts_with("#version"));
        let file = json!({
            "version": "1.0",
            "added_tokens": added.into_iter().map(|a| a.1).collect::<Vec<_>>(),
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            ]},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": self.vocab, "merges": merges.collect::<Vec<_>>()},
        });
        Ok(file.to_string())
    }
}

/// An added token, with what `tokenizer_config.json` says of it.
fn added_token(id: u64, text: &str, stated: &Json) -> Json {
    let flag = |name: &str, default| stated[name].as_bool().unwrap_or(default);
    json!({
        "id": id, "content": text, "single_word": flag("single_word", false), "lstrip": flag("lstrip", false),
        "rstrip": flag("rstrip", false), "normalized": flag("normalized", false), "special": flag("special", true),
    })
}
