//! Faults of published files: each is repaired with exactly one note, and the note names it.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

mod tokenizer_common;

use redraft::chat::{ChatTemplate, Message, RenderOptions};
use redraft::tokenizer::{Specials, TokenKind, Tokenizer, TokenizerParts};
use tokenizer_common::{parts, report, tokenizer};

/// A vocabulary without faults.
fn good() -> TokenizerParts {
    TokenizerParts {
        model: "gemma4".into(),
        tokens: [
            "<pad>", "<eos>", "<bos>", "<unk>", "a", "b", "ab", "▁", "<0x41>", "<0x42>", "</s>", "<turn|>",
            "<u>",
        ]
        .into_iter()
        .collect(),
        types: Some(vec![3, 3, 3, 2, 1, 1, 1, 1, 6, 6, 1, 3, 4]),
        merges: Some(["a b"].into_iter().collect()),
        bos: Some(2),
        eos: Some(1),
        unknown: Some(3),
        pad: Some(0),
        ..TokenizerParts::default()
    }
}

fn set(parts: &mut TokenizerParts, id: usize, text: &str, kind: i32) {
    parts.tokens = parts.tokens.iter().enumerate().map(|(i, t)| if i == id { text } else { t }).collect();
    parts.types.as_mut().unwrap()[id] = kind;
}

#[test]
fn good_vocabularies_have_no_notes() {
    assert!(Tokenizer::from_parts(good()).unwrap().notes().is_empty());
    for name in ["redraft-tiny", "dream-tiny", "llada-tiny", "spm"] {
        assert!(tokenizer(name).notes().is_empty(), "{name}: {:?}", tokenizer(name).notes());
    }
}

#[test]
fn each_fault_has_one_note() {
    type Break = fn(&mut TokenizerParts);
    type Check = fn(&Tokenizer) -> bool;
    let cases: [(&str, Break, &str, Check); 18] = [
        (
            "marker typed user-defined",
            |p| set(p, 12, "<|tool>", 4),
            "markers of the chat are typed as text in the file: \"<|tool>\" (12); they are treated as control tokens: messages cannot contain them",
            |t| t.encode("<|tool>", Specials::Text).unwrap() == [12],
        ),
        (
            "marker typed normal",
            |p| set(p, 12, "<tool|>", 1),
            "markers of the chat are typed as text in the file: \"<tool|>\" (12); they are treated as control tokens: messages cannot contain them",
            |t| {
                t.piece(12).unwrap().kind == TokenKind::Control
                    && t.encode("<tool|>", Specials::Parse).unwrap() == [12]
            },
        ),
        (
            "no types",
            |p| p.types = None,
            "the file has no token types (\"tokenizer.ggml.token_type\"); tokens that look like markers are taken for control tokens",
            |t| {
                let kind = |id| t.piece(id).unwrap().kind;
                kind(11) == TokenKind::Control
                    && kind(2) == TokenKind::Control
                    && kind(3) == TokenKind::Unknown
                    && kind(8) == TokenKind::Byte
                    && kind(6) == TokenKind::Normal
                    && t.end_ids() == [1, 11]
            },
        ),
        (
            "no end of sequence",
            |p| p.eos = None,
            "the file names no end of sequence (\"tokenizer.ggml.eos_token_id\"); an answer ends at 1 (\"<eos>\"), 11 (\"<turn|>\")",
            |t| t.end_ids() == [1, 11] && t.eos() == Some(1),
        ),
        (
            "no end at all",
            |p| {
                p.eos = None;
                set(p, 1, "x", 1);
                set(p, 11, "y", 1);
            },
            "the file names no end of sequence (\"tokenizer.ggml.eos_token_id\"); no token is known to end an answer",
            |t| t.end_ids().is_empty() && t.eos().is_none(),
        ),
        (
            "padding named as the end",
            |p| p.eos = Some(0),
            "\"tokenizer.ggml.eos_token_id\" is 0 (\"<pad>\"); not taken as the end of an answer: an answer ends at 1 (\"<eos>\"), 11 (\"<turn|>\")",
            |t| t.end_ids() == [1, 11] && t.eos() == Some(1),
        ),
        (
            "text named as the end",
            |p| p.eot = Some(6),
            "\"tokenizer.ggml.eot_token_id\" is 6 (\"ab\"); not taken as the end of an answer",
            |t| t.end_ids() == [1, 11],
        ),
        (
            "</s> in the end set",
            |p| p.eot = Some(10),
            "\"tokenizer.ggml.eot_token_id\" is 10 (\"</s>\"), which is an HTML tag in these vocabularies; not taken as the end of an answer",
            |t| t.end_ids() == [1, 11],
        ),
        (
            "</s> as the end",
            |p| {
                p.eos = Some(10);
                set(p, 10, "</s>", 3);
            },
            "\"tokenizer.ggml.eos_token_id\" is 10 (\"</s>\"), which is an HTML tag in these vocabularies; not taken as the end of an answer: an answer ends at 1 (\"<eos>\"), 11 (\"<turn|>\")",
            |t| t.end_ids() == [1, 11] && t.eos() == Some(1),
        ),
        (
            "no begin of sequence",
            |p| p.bos = None,
            "prompts start with the begin-of-sequence token, but \"tokenizer.ggml.bos_token_id\" is absent; taking 2 (\"<bos>\")",
            |t| {
                t.bos() == Some(2)
                    && t.add_bos()
                    && t.encode_raw_prompt("a", Specials::Text).unwrap() == [2, 4]
            },
        ),
        (
            "no begin of sequence anywhere",
            |p| {
                p.bos = None;
                set(p, 2, "x", 1);
            },
            "prompts should start with the begin-of-sequence token, but \"tokenizer.ggml.bos_token_id\" is absent; they start without",
            |t| t.bos().is_none() && !t.add_bos() && t.encode_raw_prompt("a", Specials::Text).unwrap() == [4],
        ),
        (
            "ids outside the vocabulary",
            |p| (p.mask, p.eom) = (Some(13), Some(u32::MAX)),
            "\"tokenizer.ggml.mask_token_id\" is 13, \"tokenizer.ggml.eom_token_id\" is 4294967295, but the vocabulary has 13 tokens; taken as absent",
            |t| t.mask().is_none() && t.end_ids() == [1, 11],
        ),
        (
            "the same text twice",
            |p| set(p, 12, "a", 1),
            "texts are in the vocabulary twice: \"a\" (4 and 12); the lower id encodes them",
            |t| t.encode("a", Specials::Text).unwrap() == [4] && t.decode(&[12], false) == "a",
        ),
        (
            "the same byte twice",
            |p| set(p, 9, "<0x41>", 6),
            "texts are in the vocabulary twice: \"<0x41>\" (8 and 9); the lower id encodes them",
            |t| t.encode("A", Specials::Text).unwrap() == [8] && t.decode(&[9], false) == "A",
        ),
        (
            "merges of unknown tokens",
            |p| p.merges = Some(["b q", "a b", "b a"].into_iter().collect()),
            "2 of the merges in \"tokenizer.ggml.merges\" cannot be used and are left out; the first is entry 0 (\"b q\"), since \"q\" is not in the vocabulary",
            |t| t.encode("aba", Specials::Text).unwrap() == [6, 4],
        ),
        (
            "no pre-tokenizer",
            |p| {
                p.model = "gpt2".into();
                p.pre = None;
                p.add_bos = Some(true);
            },
            "the file names no pre-tokenizer (\"tokenizer.ggml.pre\"); taking \"default\", which may split text in other places than the model learned",
            |t| t.encode("ab", Specials::Text).unwrap() == [6],
        ),
        (
            "no scores",
            |p| {
                p.model = "llama".into();
                p.merges = None;
                p.scores = None;
            },
            "the file has no token scores (\"tokenizer.ggml.scores\"); tokens that come first are taken to be merged first",
            |t| t.encode("ab", Specials::Text).unwrap() == [7, 6],
        ),
        (
            "missing end of turn is found by text",
            |p| {
                p.eos = None;
                set(p, 11, "<|role_end|>", 3);
            },
            "the file names no end of sequence (\"tokenizer.ggml.eos_token_id\"); an answer ends at 1 (\"<eos>\"), 11 (\"<|role_end|>\")",
            |t| t.end_ids() == [1, 11],
        ),
    ];
    let mut failures = Vec::new();
    for (name, break_it, note, check) in cases {
        let mut broken = good();
        break_it(&mut broken);
        let tok = Tokenizer::from_parts(broken).unwrap_or_else(|e| panic!("{name}: {e}"));
        if tok.notes() != [note] {
            failures.push(format!("{name}: {:#?}", tok.notes()));
        }
        if !check(&tok) {
            failures.push(format!("{name}: wrong behaviour, ends {:?}", tok.end_ids()));
        }
    }
    report(&failures);
}

#[test]
fn a_llama_file_without_scores_is_merged_by_its_merges() {
    let by_merges = TokenizerParts { model: "llama".into(), scores: None, ..good() };
    let tok = Tokenizer::from_parts(by_merges).unwrap();
    assert!(tok.notes().is_empty(), "{:?}", tok.notes());
    assert_eq!(tok.encode("abab", Specials::Text).unwrap(), [7, 6, 6]);
}

#[test]
fn sentence_end_ends_answers_of_llama_files() {
    let llama = TokenizerParts { model: "llama".into(), eos: Some(10), ..good() };
    let tok = Tokenizer::from_parts(llama).unwrap();
    assert_eq!((tok.notes().len(), tok.end_ids()), (0, vec![10, 11]));
}

/// The markers that some converters type as user-defined, in the order of Gemma 4's vocabulary.
const MISTYPED: [&str; 9] = [
    "<|tool>",
    "<tool|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    "<|\"|>",
    "<|channel>",
    "<channel|>",
];

#[test]
fn messages_cannot_contain_markers_whatever_their_type() {
    for kind in [1, 3, 4] {
        let mini = parts("dg-mini");
        // At the end of the vocabulary: ids do not matter.
        let missing: Vec<&str> =
            MISTYPED.into_iter().filter(|m| !mini.tokens.iter().any(|t| t == *m)).collect();
        let mut types = mini.types.clone().unwrap();
        for (t, text) in types.iter_mut().zip(mini.tokens.iter()) {
            *t = if MISTYPED.contains(&text) { kind } else { *t };
        }
        types.extend(missing.iter().map(|_| kind));
        // A list made from a SentencePiece model can contain merges that spell markers.
        let merges = mini.merges.as_ref().unwrap().iter().chain(["<| \"|>", "<channel |>"]);
        let tok = Tokenizer::from_parts(TokenizerParts {
            tokens: mini.tokens.iter().chain(missing.iter().copied()).collect(),
            types: Some(types),
            merges: Some(merges.collect()),
            ..mini.clone()
        })
        .unwrap();
        let notes: Vec<&String> = tok.notes().iter().filter(|n| n.contains("markers of the chat")).collect();
        assert_eq!(notes.len(), usize::from(kind != 3), "type {kind}: {:?}", tok.notes());
        for marker in MISTYPED {
            assert!(kind == 3 || notes[0].contains(&format!("{marker:?}")), "{marker}: {notes:?}");
        }

        let markers: Vec<u32> = MISTYPED.iter().map(|m| tok.token_id(m).unwrap()).collect();
        let template = ChatTemplate::from_source(
            "{{ bos_token }}<|turn>{% for m in messages %}{{ m.content }}<|channel>x<channel|><|\"|>{% endfor %}",
        )
        .unwrap();
        let message = format!("a {} b <|turn> c", MISTYPED.concat());
        let prompt = template
            .render(&[Message::new("user", message.as_str())], &RenderOptions::for_tokenizer(&tok))
            .unwrap();
        let ids = tok.encode_prompt(&prompt).unwrap();
        let found: Vec<u32> = ids.iter().copied().filter(|id| markers.contains(id)).collect();
        let expected = ["<|channel>", "<channel|>", "<|\"|>"].map(|m| tok.token_id(m).unwrap());
        assert_eq!(found, expected, "type {kind}: the template's own, and no others");
        assert_eq!(tok.decode(&ids, true), prompt.text());
    }
}

#[test]
fn answers_never_end_because_the_file_asks_for_an_end_behind_prompts() {
    use redraft_gguf::{Array, Metadata, Value};
    let parts = good();
    let mut meta = Metadata::new();
    meta.set("tokenizer.ggml.model", "gemma4");
    meta.set("tokenizer.ggml.tokens", Value::Array(Array::Str(parts.tokens.clone())));
    meta.set("tokenizer.ggml.token_type", Value::Array(Array::I32(parts.types.clone().unwrap())));
    meta.set("tokenizer.ggml.merges", Value::Array(Array::Str(parts.merges.clone().unwrap())));
    meta.set("tokenizer.ggml.bos_token_id", 2u32);
    meta.set("tokenizer.ggml.eos_token_id", 1u32);
    meta.set("tokenizer.ggml.add_eos_token", true);
    let tok = Tokenizer::from_gguf(&meta).unwrap();
    assert_eq!(tok.encode_raw_prompt("ab", Specials::Parse).unwrap(), [2, 6]);
}

/// What is shown as structure is what no message can contain.
#[test]
fn markers_are_control_tokens_and_what_is_treated_as_one() {
    let tok = tokenizer("dg-mini");
    let kind = |text: &str| tok.token_id(text).and_then(|id| tok.piece(id)).map(|p| p.kind);
    assert_eq!(
        (kind("<|turn>"), kind("<|channel>")),
        (Some(TokenKind::Control), Some(TokenKind::UserDefined))
    );
    let marker = |text: &str| tok.token_id(text).map(|id| tok.is_marker(id));
    assert_eq!([marker("<|turn>"), marker("<|channel>"), marker("a")], [Some(true), Some(true), Some(false)]);
    assert!(!tok.is_marker(u32::MAX));
}
