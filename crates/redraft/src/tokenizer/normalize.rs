//! What happens to a text before it is split: nothing, or Unicode's canonical composition (NFC).
//!
//! GGUF files do not say. What counts, in this order: what the caller asks for; the model's own `tokenizer.json`
//! where the file carries it whole; and, for vocabularies that are known, what their `tokenizer.json` says. A
//! vocabulary is recognised by one token at its place, not by its `pre`: that names a way of splitting, which
//! models without the normaliser use too. (llama.cpp never normalises, so that it gives decomposed text other
//! tokens than the model was trained on.)

use std::borrow::Cow;

use redraft_gguf::StrArray;
use serde::Deserialize;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::vocab::Vocab;

/// How text is normalised before it is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Normalizer {
    /// Not at all.
    #[default]
    None,
    /// Canonical composition: `e` and a combining acute accent become `é`.
    Nfc,
}

/// Vocabularies whose `tokenizer.json` says NFC: the `pre` of their files, a token, and its id.
const NFC_VOCABULARIES: &[(&str, &str, u32)] = &[
    // Qwen 2, 2.5 and 3; also Dream, RND1 and SDAR, which were made from them.
    ("qwen2", "<|endoftext|>", 151_643),
    // Qwen 3.5.
    ("qwen35", "<|endoftext|>", 248_044),
    // GPT-NeoX, with the splits of two of its users.
    ("mpt", "<|padding|>", 1),
    ("olmo", "<|padding|>", 1),
];

/// The `pre` of a vocabulary that is recognised by one token at its place.
pub(crate) fn pre_of_vocabulary(tokens: &StrArray) -> Option<&'static str> {
    let known = |&&(_, text, id): &&(&str, &str, u32)| tokens.get(id as usize) == Some(text);
    NFC_VOCABULARIES.iter().find(known).map(|&(pre, ..)| pre)
}

impl Normalizer {
    /// The normaliser of a vocabulary that is known; none for others.
    pub(crate) fn of_vocabulary(pre: &str, vocab: &Vocab) -> Normalizer {
        let known = NFC_VOCABULARIES.iter().any(|&(p, text, id)| p == pre && vocab.id(text) == Some(id));
        if known { Normalizer::Nfc } else { Normalizer::None }
    }

    /// The normaliser that a `tokenizer.json` states; an error is what is wrong with it, as the end of a sentence.
    pub(crate) fn of_tokenizer_json(json: &str) -> Result<Normalizer, String> {
        #[derive(Deserialize)]
        struct File {
            normalizer: Option<Stated>,
        }
        #[derive(Deserialize)]
        struct Stated {
            r#type: String,
            #[serde(default)]
            normalizers: Vec<Stated>,
        }
        fn of(stated: &Stated) -> Result<Normalizer, String> {
            match (stated.r#type.as_str(), stated.normalizers.as_slice()) {
                ("NFC", _) => Ok(Normalizer::Nfc),
                ("Sequence", []) => Ok(Normalizer::None),
                ("Sequence", [one]) => of(one),
                (other, _) => Err(format!("has the normalizer {other:?}, which is not supported")),
            }
        }
        let file: File = serde_json::from_str(json).map_err(|e| format!("cannot be read: {e}"))?;
        file.normalizer.as_ref().map_or(Ok(Normalizer::None), of)
    }

    /// The text in normal form.
    pub(crate) fn apply(self, text: &str) -> Cow<'_, str> {
        match self {
            Normalizer::Nfc if is_nfc_quick(text.chars()) != IsNormalized::Yes => text.nfc().collect(),
            _ => Cow::Borrowed(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composes_what_is_decomposed() {
        assert_eq!(Normalizer::Nfc.apply("cafe\u{301} \u{1100}\u{1161}"), "café 가");
        assert_eq!(Normalizer::None.apply("cafe\u{301}"), "cafe\u{301}");
        assert!(matches!(Normalizer::Nfc.apply("café"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_vocabulary_is_known_by_a_token_at_its_place() {
        let of = |tokens: &[&str]| pre_of_vocabulary(&tokens.iter().collect());
        assert_eq!(of(&["<|endoftext|>", "<|padding|>"]), Some("mpt"));
        assert_eq!(of(&["<|padding|>", "<|endoftext|>"]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_tokenizer_json_states_it() {
        for (json, expected) in [
            (r#"{"normalizer": {"type": "NFC"}, "model": {"vocab": {"a": 0}}}"#, Ok(Normalizer::Nfc)),
            (r#"{"normalizer": null}"#, Ok(Normalizer::None)),
            (r#"{"model": {}}"#, Ok(Normalizer::None)),
            (r#"{"normalizer": {"type": "Sequence", "normalizers": []}}"#, Ok(Normalizer::None)),
            (
                r#"{"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}}"#,
                Ok(Normalizer::Nfc),
            ),
            (
                r#"{"normalizer": {"type": "Lowercase"}}"#,
                Err("has the normalizer \"Lowercase\", which is not supported".to_owned()),
            ),
        ] {
            assert_eq!(Normalizer::of_tokenizer_json(json), expected, "{json}");
        }
        assert!(Normalizer::of_tokenizer_json("").unwrap_err().starts_with("cannot be read: "));
    }
}
