//! Languages over the vocabularies of all kinds of tokenizers: what a tokenizer makes of a text is a way to write it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod tokenizer_common;

use redraft::constrain::{ConstrainError, Constraint, Language, Vocabulary};
use redraft::tokenizer::Specials;
use serde_json::json;
use tokenizer_common::tokenizer;

const NAMES: [&str; 5] = ["dg-mini", "dream-tiny", "llada-tiny", "spm", "redraft-tiny"];

/// Spaces at the start, which some kinds put there themselves, characters without a token, newlines.
const TEXTS: [&str; 7] = [
    "yes",
    " no",
    "  two",
    "{\"name\": [1, -2.5e3, \"a b\"]}",
    "é€𝄞",
    "The capital of France is Paris.\n\n",
    "\tx",
];

#[test]
fn what_a_tokenizer_writes_is_in_the_language() {
    let mut written = 0;
    for name in NAMES {
        let tok = tokenizer(name);
        let v = Vocabulary::new(&tok, tok.vocab_len(), tok.mask(), &tok.end_ids());
        // Markers of calls are bytes that no text has.
        let no_text = |bytes: &[u8]| bytes.iter().all(|&b| b > 0xF7);
        let outside = |(id, bytes): &(u32, Vec<u8>)| tok.is_marker(*id) == no_text(bytes);
        assert!(!v.end_ids.is_empty() && v.texts.iter().all(outside), "{name}");
        for text in TEXTS {
            let other = format!("{text}?");
            let choice = |texts: &[&str]| {
                Constraint::new(Language::Choices(texts.iter().map(|t| (*t).into()).collect()), &v)
            };
            let Ok(ids) = tok.encode(text, Specials::Text) else { continue };
            if ids.iter().any(|&id| Some(id) == tok.unknown()) {
                // What has no tokens cannot be written.
                assert_eq!(choice(&[text]).unwrap_err(), ConstrainError::Unwritable, "{name} {text:?}");
                continue;
            }
            let c = choice(&[text, &other]).unwrap();
            assert_eq!(tok.decode(&ids, false), text, "{name}");
            assert!(c.accepts(&ids), "{name} {text:?} {ids:?}");
            assert!(c.needed() <= ids.len());
            assert!(
                !c.accepts(&ids[..ids.len() - 1]) && !choice(&[&other]).unwrap().accepts(&ids),
                "{name} {text:?}"
            );
            written += 1;
        }
    }
    assert!(written >= 25, "{written}");
}

#[test]
fn a_vocabulary_without_a_character_cannot_write_it() {
    let v = Vocabulary {
        len: 3,
        texts: vec![(0, b"{".to_vec()), (1, b"}".to_vec())],
        end_ids: vec![2],
        ..Vocabulary::default()
    };
    let schema = |s: serde_json::Value| Constraint::new(Language::JsonSchema(s), &v);
    assert_eq!(schema(json!({"type": "string"})).unwrap_err(), ConstrainError::Unwritable);
    let c = schema(json!({"type": "object"})).unwrap();
    assert!(c.accepts(&[0, 1]) && c.needed() == 2 && c.figures().states > 2);
}
