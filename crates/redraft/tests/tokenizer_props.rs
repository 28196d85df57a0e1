//! Properties of the tokenizer on random texts, with the `tokenizers` library as a second implementation.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

mod tokenizer_common;

use proptest::prelude::*;
use redraft::chat::{ChatTemplate, Message, RenderOptions};
use redraft::tokenizer::{CanvasPiece, Specials, TokenKind, Tokenizer, TokenizerParts};
use std::sync::LazyLock;
use tokenizer_common::{parts, tokenizer};
use tokenizers::models::bpe::BPE;
use tokenizers::{AddedToken, normalizers::Replace};

static MINI: LazyLock<Tokenizer> = LazyLock::new(|| tokenizer("dg-mini"));

/// The same vocabulary as a `tokenizers` object, built like the library's own file for such a model.
static LIBRARY: LazyLock<tokenizers::Tokenizer> = LazyLock::new(|| library(&parts("dg-mini")));

fn library(parts: &TokenizerParts) -> tokenizers::Tokenizer {
    let vocab: Vec<(String, u32)> = parts.tokens.iter().map(str::to_owned).zip(0..).collect();
    let merges = parts.merges.as_ref().unwrap().iter().map(|m| {
        let (left, right) = m.split_once(' ').unwrap();
        (left.to_owned(), right.to_owned())
    });
    let bpe = BPE::builder()
        .vocab_and_merges(vocab.into_iter().collect::<tokenizers::models::bpe::Vocab>(), merges.collect())
        .byte_fallback(true)
        .unk_token("<unk>".to_owned())
        .fuse_unk(true)
        .build()
        .unwrap();
    let mut library = tokenizers::Tokenizer::new(bpe);
    library.with_normalizer(Some(Replace::new(" ", "▁").unwrap())).unwrap();
    let of_kind = |kind: i32| {
        let of = move |(text, &t): (&str, &i32)| {
            (t == kind).then(|| AddedToken::from(text, kind == 3).normalized(false))
        };
        parts.tokens.iter().zip(parts.types.as_ref().unwrap()).filter_map(of).collect::<Vec<_>>()
    };
    library.add_special_tokens(of_kind(3)).unwrap();
    library.add_tokens(of_kind(4)).unwrap();
    library
}

/// Texts of everything: any characters, words of the vocabulary, spaces, newlines and special tokens.
fn texts() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "\\PC{0,6}",
        any::<String>(),
        "[ \n\ta-z▁]{0,12}",
        "[<|>/a-z]{0,8}",
        prop::sample::select(vec![
            "<|turn>",
            "<turn|>",
            "<bos>",
            "<|channel>",
            "<unk>",
            "<|\"|>",
            "<0x41>",
            "\n\n\n\n\n",
            "   "
        ])
        .prop_map(str::to_owned),
        prop::sample::select(MINI_WORDS.clone()),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

static MINI_WORDS: LazyLock<Vec<String>> =
    LazyLock::new(|| parts("dg-mini").tokens.iter().skip(370).map(|t| t.replace('▁', " ")).collect());

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ids_equal_those_of_the_library(text in texts()) {
        let expected = LIBRARY.encode(text.as_str(), false).unwrap();
        prop_assert_eq!(MINI.encode(&text, Specials::Parse).unwrap(), expected.get_ids());
    }

    #[test]
    fn text_survives(text in texts(), parse in any::<bool>()) {
        let specials = if parse { Specials::Parse } else { Specials::Text };
        let ids = MINI.encode(&text, specials).unwrap();
        // U+2581 is how a space is written, and the two cannot be told apart afterwards.
        prop_assert_eq!(MINI.decode(&ids, true), text.replace('▁', " "));
        if !parse {
            for &id in &ids {
                let kind = MINI.piece(id).unwrap().kind;
                prop_assert!(!kind.is_control(), "{} in {:?}", id, text);
            }
            prop_assert_eq!(MINI.decode(&ids, false), text.replace('▁', " "));
        }
    }

    #[test]
    fn streams_and_canvases_read_as_decode(ids in prop::collection::vec(0u32..540, 0..40)) {
        for show in [false, true] {
            let mut stream = MINI.stream_decoder(show);
            let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
            text += &stream.finish();
            prop_assert_eq!(&text, &MINI.decode(&ids, show));
        }
        let pieces = MINI.canvas_pieces(&ids);
        prop_assert_eq!(pieces.len(), ids.len());
        let mut bytes = Vec::new();
        for (piece, &id) in pieces.iter().zip(&ids) {
            match piece {
                CanvasPiece::Text(text) => bytes.extend_from_slice(text.as_bytes()),
                CanvasPiece::PartialUtf8 { bytes: partial } => {
                    prop_assert_eq!(MINI.piece(id).unwrap().kind, TokenKind::Byte);
                    prop_assert_eq!(partial.len(), 1);
                    bytes.extend_from_slice(partial);
                }
            }
        }
        prop_assert_eq!(String::from_utf8_lossy(&bytes), MINI.decode(&ids, true));
    }

    #[test]
    fn messages_never_make_control_tokens(first in texts(), second in texts()) {
        let template = ChatTemplate::from_source(MINI.chat_template().unwrap()).unwrap();
        let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::for_tokenizer(&MINI) };
        let messages = [Message::new("user", first.as_str()), Message::new("assistant", second.as_str())];
        let prompt = template.render(&messages, &options).unwrap();
        let trim = |s: &str| s.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)).to_owned();
        let expected = format!(
            "<bos><|turn>user\n{}<turn|>\n<|turn>model\n{}<turn|>\n<|turn>model\n", trim(&first), trim(&second)
        );
        prop_assert_eq!(prompt.text(), expected);
        let ids = MINI.encode_prompt(&prompt).unwrap();
        let control: Vec<u32> = ids.into_iter().filter(|&id| MINI.piece(id).unwrap().kind.is_control()).collect();
        prop_assert_eq!(control, [2, 7, 8, 7, 8, 7]);
    }

    #[test]
    fn random_parts_never_panic(
        tokens in prop::collection::vec("[<a-c>▁ \n]{0,3}|<0x[0-9A-F]{2}>", 0..12),
        types in prop::collection::vec(0i32..8, 0..12),
        merges in prop::collection::vec("[a-c▁]{0,2} ?[a-c]{0,2}", 0..4),
        bos in prop::option::of(0u32..12),
        text in "[<a-c>▁ \n€]{0,12}",
    ) {
        let parts = TokenizerParts {
            model: "gemma4".into(),
            types: (types.len() % 3 != 0).then_some(types),
            tokens: tokens.iter().collect(),
            merges: Some(merges.iter().collect()),
            bos,
            unknown: bos,
            ..TokenizerParts::default()
        };
        if let Ok(tok) = Tokenizer::from_parts(parts) && let Ok(ids) = tok.encode(&text, Specials::Parse) {
            tok.decode(&ids, true);
            tok.canvas_pieces(&ids);
        }
    }
}

#[test]
fn the_demo_vocabulary_agrees_with_the_library_too() {
    let parts = parts("redraft-tiny");
    let (ours, library) = (Tokenizer::from_parts(parts.clone()).unwrap(), library(&parts));
    for case in tokenizer_common::testdata("tokenizer/dg-mini.cases.json")["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let expected = library.encode(text, false).unwrap();
        assert_eq!(ours.encode(text, Specials::Parse).unwrap(), expected.get_ids(), "{text:?}");
    }
}

/// A vocabulary as large as Gemma's: all words of up to nine letters over an alphabet of four, until it is full.
fn large_parts() -> TokenizerParts {
    const TOKENS: usize = 262_144;
    const MERGES: usize = 514_906;
    let mut tokens: Vec<String> =
        ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"].map(String::from).into();
    let n_control = tokens.len();
    tokens.extend((0..256).map(|b| format!("<0x{b:02X}>")));
    let first_word = tokens.len();
    tokens.extend(["▁", "e", "n", "t"].map(String::from));
    let mut shorter = first_word;
    while tokens.len() < TOKENS {
        for letter in ["▁", "e", "n", "t"] {
            tokens.push(format!("{}{letter}", tokens[shorter]));
        }
        shorter += 1;
    }
    tokens.truncate(TOKENS);
    let mut merges: Vec<String> = Vec::with_capacity(MERGES);
    for split in [1, 3, 5] {
        for token in &tokens[first_word..] {
            if let Some((at, _)) = token.char_indices().nth(split) {
                merges.push(format!("{} {}", &token[..at], &token[at..]));
            }
        }
    }
    assert!(merges.len() >= MERGES);
    merges.truncate(MERGES);
    let kind = |i: usize| {
        if i < n_control {
            3
        } else if i < first_word {
            6
        } else {
            1
        }
    };
    TokenizerParts {
        model: "gemma4".into(),
        types: Some((0..TOKENS).map(kind).collect()),
        scores: Some(vec![-1000.0; TOKENS]),
        tokens: tokens.iter().collect(),
        merges: Some(merges.iter().collect()),
        bos: Some(2),
        eos: Some(1),
        unknown: Some(3),
        ..TokenizerParts::default()
    }
}

#[test]
#[ignore = "a measurement: cargo test --release -p redraft --test tokenizer_props -- --ignored --nocapture"]
fn load_time_of_a_large_vocabulary() {
    let parts = large_parts();
    for _ in 0..5 {
        let copy = parts.clone();
        let start = std::time::Instant::now();
        let tok = Tokenizer::from_parts(copy).unwrap();
        println!("{} tokens: {:?}", tok.vocab_len(), start.elapsed());
        let text = "net ten tent nette ".repeat(20_000);
        let start = std::time::Instant::now();
        let ids = tok.encode(&text, Specials::Text).unwrap();
        println!("{} bytes in one line to {} ids: {:?}", text.len(), ids.len(), start.elapsed());
        assert_eq!(tok.decode(&ids, false), text);
    }
}
