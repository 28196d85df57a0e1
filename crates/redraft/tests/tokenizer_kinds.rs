//! The kinds `gpt2` and `llama`: listed ids of the SentencePiece library, every pre-tokenizer against the
//! `tokenizers` library with the model's own pattern, normalisation, and hostile texts.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

mod tokenizer_common;

use std::sync::LazyLock;
use std::time::Instant;

use proptest::prelude::*;
use redraft::tokenizer::{CanvasPiece, Normalizer, Specials, Tokenizer, TokenizerError, TokenizerParts};
use tokenizer_common::{ids, parts, report, testdata, tokenizer};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, PreTokenizerWrapper, SplitDelimiterBehavior};

#[test]
fn sentencepiece_agrees() {
    let vocab = parts("spm");
    let file = testdata("tokenizer/spm.cases.json");
    let variants = file["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 3);
    let mut failures = Vec::new();
    let mut checked = 0;
    for variant in variants {
        let mut types = vocab.types.clone().unwrap();
        ids(&variant["unused"]).into_iter().for_each(|id| types[id as usize] = 5);
        let add_space_prefix = variant["add_space_prefix"].as_bool();
        let tok =
            Tokenizer::from_parts(TokenizerParts { types: Some(types), add_space_prefix, ..vocab.clone() })
                .unwrap();
        assert_eq!((tok.notes(), tok.end_ids(), tok.add_bos()), (&[][..], vec![1, 5], true));
        for case in variant["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let (expected, found) = (ids(&case["ids"]), tok.encode(text, Specials::Text).unwrap());
            if found != expected {
                failures
                    .push(format!("{add_space_prefix:?} {text:?}: expected {expected:?}, found {found:?}"));
            }
            let decoded = tok.decode(&found, true);
            if decoded != text.replace('▁', " ") {
                failures.push(format!("{text:?} decodes to {decoded:?}"));
            }
            checked += 1;
        }
    }
    report(&failures);
    assert_eq!(checked, 192 + 195 + 195);
}

/// A `llama` vocabulary small enough to read.
fn small_llama() -> TokenizerParts {
    TokenizerParts {
        model: "llama".into(),
        tokens: ["<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "bb", "▁ab", "<u>", "<0xC3>", "<0xA9>", "xy"]
            .into_iter()
            .collect(),
        types: Some(vec![2, 3, 3, 1, 1, 1, 1, 1, 1, 4, 6, 6, 1]),
        scores: Some(vec![0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -1.0, -1.0, -2.0, 0.0, 0.0, 0.0, -3.0]),
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        ..TokenizerParts::default()
    }
}

#[test]
fn scores_decide_and_the_leftmost_wins() {
    let tok = Tokenizer::from_parts(small_llama()).unwrap();
    for (text, expected) in [
        ("", vec![]),
        ("ab", vec![8]),
        ("abb", vec![8, 5]), // ab and bb have the same score
        ("bbb", vec![3, 7, 5]),
        ("é", vec![3, 10, 11]),
        ("xy", vec![3, 12]), // two characters without tokens are one together
        ("xx", vec![3, 0]),  // unknown tokens next to each other are one
        ("<s>", vec![3, 0]),
        ("ab<u>ab", vec![8, 9, 8]), // a space behind each special token
    ] {
        assert_eq!(tok.encode(text, Specials::Text).unwrap(), expected, "{text:?}");
    }
    assert_eq!(tok.encode("<s>ab", Specials::Parse).unwrap(), [1, 8]);
    let plain = TokenizerParts { add_space_prefix: Some(false), ..small_llama() };
    assert_eq!(Tokenizer::from_parts(plain).unwrap().encode(" ab", Specials::Text).unwrap(), [8]);
}

#[test]
fn a_part_of_a_text_begins_without_a_space() {
    let tok = Tokenizer::from_parts(small_llama()).unwrap();
    for (text, expected) in [("ab", vec![6]), (" ab", vec![8]), ("", vec![]), ("ab<u>ab", vec![6, 9, 8])] {
        let ids = tok.encode_inside(text, Specials::Text).unwrap();
        assert_eq!(ids, expected, "{text:?}");
        let back = if text.contains('u') { "ab<u> ab" } else { text };
        assert_eq!(tok.decode_inside(&ids, true), back);
    }
    assert_eq!(tok.encode_inside("<s>ab", Specials::Parse).unwrap(), [1, 8]);
    assert_eq!(tok.without_space(), [0, 1, 2, 4, 5, 6, 7, 9, 10, 11, 12], "all but \u{2581} and \u{2581}ab");
    assert_eq!(tok.markers(), [0, 1, 2]);
}

#[test]
fn a_space_is_taken_away_at_the_start_of_a_text_only() {
    let tok = Tokenizer::from_parts(small_llama()).unwrap();
    for (ids, shown, hidden) in [
        (vec![8, 8], "ab ab", "ab ab"),
        (vec![1, 8, 8], "<s> ab ab", "ab ab"),
        (vec![3, 8], " ab", " ab"),
        (vec![3], "", ""),
        (vec![4, 8], "a ab", "a ab"),
    ] {
        for (show, expected) in [(true, shown), (false, hidden)] {
            assert_eq!(tok.decode(&ids, show), expected, "{ids:?}");
            let mut stream = tok.stream_decoder(show);
            let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
            text += &stream.finish();
            assert_eq!(text, expected, "{ids:?}");
        }
    }
    assert_eq!(tok.canvas_pieces(&[8]), [CanvasPiece::Text(" ab".into())]);
}

/// Pre-tokenizers, and the patterns of the models' own files in which they differ.
const PATTERNS: &[(&str, &[&str])] = &[
    (
        "qwen2",
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "qwen35",
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "llada-moe",
        &[
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        ],
    ),
    (
        "llama-bpe",
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    ("gpt-2", &[r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"]),
    ("smollm", &[r"\p{N}", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"]),
    (
        "gpt-4o",
        &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "tekken",
        &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "deepseek-v3",
        &[
            r"\p{N}{1,3}",
            "[一-龥\u{3040}-ゟ゠-ヿ]+",
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
        ],
    ),
    (
        "seed-coder",
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    ("superbpe", &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
    (
        "default",
        &[
            r"[\p{P}\$\+<=>\^~\|]+",
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
            r"\p{N}+",
            "[0-9][0-9][0-9]",
        ],
    ),
];

struct Pair {
    pre: &'static str,
    ours: Tokenizer,
    library: tokenizers::Tokenizer,
}

/// The vocabulary of dream-tiny with each pre-tokenizer, ours and as a `tokenizers` object.
static PAIRS: LazyLock<Vec<Pair>> = LazyLock::new(|| {
    PATTERNS
        .iter()
        .map(|&(pre, patterns)| {
            let parts = TokenizerParts { pre: Some(pre.to_owned()), ..parts("dream-tiny") };
            // These take a piece that is a token whole.
            let ignore_merges = ["llama-bpe", "tekken"].contains(&pre);
            let library = library(&parts, patterns, ignore_merges);
            Pair { pre, ours: Tokenizer::from_parts(parts).unwrap(), library }
        })
        .collect()
});

/// The SentencePiece vocabulary, without and with a space in front of texts.
static LLAMA: LazyLock<[Tokenizer; 2]> = LazyLock::new(|| {
    [false, true].map(|prefix| {
        Tokenizer::from_parts(TokenizerParts { add_space_prefix: Some(prefix), ..parts("spm") }).unwrap()
    })
});

fn library(parts: &TokenizerParts, patterns: &[&str], ignore_merges: bool) -> tokenizers::Tokenizer {
    let vocab: Vocab = parts.tokens.iter().map(str::to_owned).zip(0..).collect();
    let merges = parts.merges.as_ref().unwrap().iter().map(|m| {
        let (left, right) = m.split_once(' ').unwrap();
        (left.to_owned(), right.to_owned())
    });
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, merges.collect())
        .ignore_merges(ignore_merges)
        .build()
        .unwrap();
    let mut library = tokenizers::Tokenizer::new(bpe);
    let split = |pattern: &&str| {
        let pattern = SplitPattern::Regex((*pattern).to_owned());
        PreTokenizerWrapper::from(Split::new(pattern, SplitDelimiterBehavior::Isolated, false).unwrap())
    };
    let mut steps: Vec<PreTokenizerWrapper> = patterns.iter().map(split).collect();
    steps.push(ByteLevel::new(false, false, false).into());
    library.with_pre_tokenizer(Some(Sequence::new(steps)));
    let control = parts.tokens.iter().zip(parts.types.as_ref().unwrap()).filter(|&(_, &t)| t == 3);
    library.add_special_tokens(control.map(|(t, _)| AddedToken::from(t, true).normalized(false))).unwrap();
    library
}

/// Texts that meet every alternative of the patterns.
fn texts() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "\\PC{0,6}",
        any::<String>(),
        "[ \n\r\t\u{a0}\u{3000}]{0,6}",
        "[a-zA-Z' ]{0,10}",
        "[0-9½²Ⅷ٣]{0,8}",
        "'(s|S|t|re|VE|ll|d|\u{17f})",
        "[é\u{301}\u{94d}नमस日本ひカßﬁǅʰ]{0,6}",
        "[-!/:,.。，、—$+<=>^~|`_]{0,6}\n{0,3}",
        prop::sample::select(vec!["<|im_start|>", "<|endoftext|>", "the ", " of", "\n\n\n", "    "])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec(part, 0..10).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ids_equal_those_of_the_library(text in texts()) {
        for pair in PAIRS.iter() {
            let expected = pair.library.encode(text.as_str(), false).unwrap();
            let found = pair.ours.encode(&text, Specials::Parse).unwrap();
            prop_assert_eq!(&found, expected.get_ids(), "{} {:?}", pair.pre, text);
            prop_assert_eq!(&pair.ours.decode(&found, true), &text);
            let plain = pair.ours.encode(&text, Specials::Text).unwrap();
            prop_assert!(plain.iter().all(|&id| !pair.ours.piece(id).unwrap().kind.is_control()));
            prop_assert_eq!(&pair.ours.decode(&plain, false), &text);
        }
    }

    #[test]
    fn llama_texts_survive(text in texts(), prefix in any::<bool>()) {
        let tok = &LLAMA[usize::from(prefix)];
        let ids = tok.encode(&text, Specials::Text).unwrap();
        prop_assert_eq!(tok.decode(&ids, false), text.replace('▁', " "));
    }

    #[test]
    fn streams_and_canvases_read_as_decode(ids in prop::collection::vec(0u32..900, 0..40)) {
        for tok in [&PAIRS[0].ours, &LLAMA[0]] {
            for show in [false, true] {
                let mut stream = tok.stream_decoder(show);
                let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
                text += &stream.finish();
                prop_assert_eq!(&text, &tok.decode(&ids, show));
            }
            let pieces = tok.canvas_pieces(&ids);
            prop_assert_eq!(pieces.len(), ids.len());
            // Every byte of the tokens is shown, in order.
            let mut bytes = Vec::new();
            for piece in &pieces {
                match piece {
                    CanvasPiece::Text(text) if text.contains('⟨') => return Ok(()), // bytes among text
                    CanvasPiece::Text(text) => bytes.extend_from_slice(text.as_bytes()),
                    CanvasPiece::PartialUtf8 { bytes: partial } => bytes.extend_from_slice(partial),
                }
            }
            prop_assert_eq!(String::from_utf8_lossy(&bytes), tok.decode(&ids, true));
        }
    }

    #[test]
    fn random_parts_never_panic(
        model in prop::sample::select(vec!["gpt2", "llama"]),
        pre in prop::sample::select(vec![None, Some("qwen2"), Some("superbpe"), Some("tekken")]),
        tokens in prop::collection::vec("[<a-cĠĊ>▁|/s ]{0,3}|<0x[0-9A-F]{2}>|<\\|(turn|tool|im_end)\\|?>", 0..12),
        types in prop::collection::vec(1i32..7, 0..12),
        scores in prop::option::of(prop::collection::vec(any::<f32>(), 12)),
        merges in prop::option::of(prop::collection::vec("[a-cĠ▁]{1,2} [a-c]{1,2}", 0..4)),
        named in prop::collection::vec(prop::option::of(0u32..16), 4),
        text in "[<a-c>▁ \n€|]{0,12}",
        ids in prop::collection::vec(any::<u32>(), 0..4),
    ) {
        let parts = TokenizerParts {
            model: model.into(),
            pre: pre.map(str::to_owned),
            types: (types.len() % 3 != 0).then(|| types.iter().copied().chain(std::iter::repeat(1)).take(tokens.len()).collect()),
            scores: scores.map(|s| s[..tokens.len()].to_vec()),
            tokens: tokens.iter().collect(),
            merges: merges.map(|m| m.iter().collect()),
            bos: named[0],
            eos: named[1],
            unknown: named[2],
            eot: named[3],
            ..TokenizerParts::default()
        };
        if let Ok(tok) = Tokenizer::from_parts(parts) {
            let encoded = tok.encode(&text, Specials::Parse).unwrap_or_default();
            for ids in [encoded, ids] {
                tok.decode(&ids, true);
                tok.canvas_pieces(&ids);
            }
        }
    }
}

#[test]
fn text_is_composed_where_the_vocabulary_was_trained_so() {
    let (decomposed, composed) = ("cafe\u{301} \u{1112}\u{1161}\u{11ab}", "café 한");
    let encode = |tok: &Tokenizer, text: &str| tok.encode(text, Specials::Text).unwrap();
    let with =
        |normalizer| Tokenizer::from_parts(TokenizerParts { normalizer, ..parts("dream-tiny") }).unwrap();
    // The tiny vocabulary is not Qwen's, and its reference does not normalise.
    for tok in [with(None), with(Some(Normalizer::None))] {
        assert_ne!(encode(&tok, decomposed), encode(&tok, composed));
        assert_eq!(tok.decode(&encode(&tok, decomposed), false), decomposed);
    }
    let tok = with(Some(Normalizer::Nfc));
    assert_eq!(encode(&tok, decomposed), encode(&tok, composed));
    assert_eq!(tok.decode(&encode(&tok, decomposed), false), composed);

    // A file can carry the model's own statement.
    for (stated, same, notes) in [("NFC", true, 0), ("Lowercase", false, 1)] {
        let tokenizer_json = Some(format!("{{\"normalizer\": {{\"type\": {stated:?}}}}}"));
        let tok = Tokenizer::from_parts(TokenizerParts { tokenizer_json, ..parts("dream-tiny") }).unwrap();
        assert_eq!(encode(&tok, decomposed) == encode(&tok, composed), same);
        assert_eq!(tok.notes().len(), notes, "{:?}", tok.notes());
    }

    // Qwen's is known by the place of its end-of-text token.
    for (last, same) in [(151_643, true), (151_642, false)] {
        let tokens = (0..last).map(|i| match u8::try_from(i) {
            Ok(b @ 33..=126) => char::from(b).to_string(),
            _ => format!("t{i}"),
        });
        let tokens = tokens.chain(["<|endoftext|>".to_owned()]).collect::<Vec<_>>();
        let qwen = Tokenizer::from_parts(TokenizerParts {
            model: "gpt2".into(),
            pre: Some("qwen2".into()),
            types: Some((0..=last).map(|i| if i == last { 3 } else { 1 }).collect()),
            tokens: tokens.iter().collect(),
            merges: Some(std::iter::empty::<&str>().collect()),
            eos: Some(last as u32),
            unknown: Some(0),
            ..TokenizerParts::default()
        })
        .unwrap();
        assert_eq!(encode(&qwen, decomposed) == encode(&qwen, composed), same);
    }
}

#[test]
fn unknown_pre_tokenizers_are_refused_by_name() {
    let unknown = TokenizerParts { pre: Some("qwen9".into()), ..parts("dream-tiny") };
    let error = Tokenizer::from_parts(unknown).unwrap_err();
    assert!(matches!(&error, TokenizerError::UnknownPre { found, .. } if found == "qwen9"));
    let text = error.to_string();
    let start =
        "tokenizer: pre-tokenizer \"qwen9\" (\"tokenizer.ggml.pre\") is not supported; known: a.x-4.0, ";
    assert!(text.starts_with(start), "{text}");
    assert!(["bailingmoe2", "llada-moe", "qwen2", "smollm"].iter().all(|p| text.contains(p)), "{text}");
}

#[test]
fn prompts_start_with_bos_where_the_pre_tokenizer_has_it() {
    for (pre, expected) in [("llama-bpe", true), ("tekken", true), ("qwen2", false), ("gpt-2", false)] {
        let parts = TokenizerParts { pre: Some(pre.into()), add_bos: None, ..parts("dream-tiny") };
        assert_eq!(Tokenizer::from_parts(parts).unwrap().add_bos(), expected, "{pre}");
    }
    assert!(tokenizer("llada-tiny").add_bos() && !tokenizer("dream-tiny").add_bos());
}

/// One megabyte of what is worst for a splitter or a merger. The limit is generous: this machine may be busy
/// and the code not optimised.
#[test]
fn hostile_megabytes_are_quick() {
    const LIMIT_S: f64 = 5.0;
    let mega = |unit: &str| unit.repeat((1 << 20) / unit.len());
    let texts: Vec<String> = [
        " ", "a", "1", "\n", " \n", "  a", "\u{301}", "é", "!", "'", "字", "\u{a0}", "'s ", "🙂", "\0",
        "A1 b\r\n",
    ]
    .into_iter()
    .map(mega)
    .collect();
    let mut failures = Vec::new();
    let mut check = |name: &str, tok: &Tokenizer| {
        for text in &texts {
            let start = Instant::now();
            let ids = tok.encode(text, Specials::Parse).unwrap();
            let took = start.elapsed().as_secs_f64();
            assert_eq!(&tok.decode(&ids, true), text);
            if took > LIMIT_S {
                failures.push(format!("{name}: {:?}… took {took:.1} s", &text[..8]));
            }
        }
    };
    // The patterns with the most steps, the longest pieces and the largest classes.
    for pre in ["qwen2", "tekken", "default", "superbpe", "deepseek-llm"] {
        let normalizer = (pre == "qwen2").then_some(Normalizer::Nfc);
        let parts = TokenizerParts { pre: Some(pre.into()), normalizer, ..parts("dream-tiny") };
        check(pre, &Tokenizer::from_parts(parts).unwrap());
    }
    check("llama", &tokenizer("spm"));
    check("gemma4", &tokenizer("dg-mini"));
    report(&failures);
}

#[test]
#[ignore = "a measurement: cargo test --release -p redraft --test tokenizer_kinds -- --ignored --nocapture"]
fn load_time_of_large_vocabularies() {
    const TOKENS: usize = 151_936;
    let base = parts("dream-tiny");
    let mut tokens: Vec<String> = base.tokens.iter().take(256).map(str::to_owned).collect();
    let mut merges = Vec::new();
    tokens.extend(["Ġ", "e", "n", "t"].map(|t| format!("{t}e")));
    merges.extend(["Ġ e", "e e", "n e", "t e"].map(str::to_owned));
    let mut shorter = 256;
    while tokens.len() < TOKENS {
        for letter in ["n", "t", "o", "r"] {
            merges.push(format!("{} {letter}", tokens[shorter]));
            tokens.push(format!("{}{letter}", tokens[shorter]));
        }
        shorter += 1;
    }
    let gpt2 = TokenizerParts {
        model: "gpt2".into(),
        pre: Some("qwen2".into()),
        types: Some(vec![1; tokens.len()]),
        tokens: tokens.iter().collect(),
        merges: Some(merges.iter().collect()),
        ..TokenizerParts::default()
    };
    let llama = TokenizerParts {
        model: "llama".into(),
        scores: Some((0..tokens.len()).map(|i| -(i as f32)).collect()),
        tokens: tokens.iter().map(|t| t.replace('Ġ', "▁")).collect::<Vec<_>>().iter().collect(),
        unknown: Some(0),
        ..gpt2.clone()
    };
    for parts in [gpt2, llama] {
        for _ in 0..3 {
            let copy = parts.clone();
            let start = Instant::now();
            let tok = Tokenizer::from_parts(copy).unwrap();
            println!("{}: {} tokens and merges: {:?}", tok.kind(), tok.vocab_len(), start.elapsed());
            let text = "net ten tent nette ".repeat(50_000);
            let start = Instant::now();
            let ids = tok.encode(&text, Specials::Text).unwrap();
            println!("{}: {} bytes to {} ids: {:?}", tok.kind(), text.len(), ids.len(), start.elapsed());
        }
    }
}
