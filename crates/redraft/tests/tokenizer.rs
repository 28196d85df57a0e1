//! Tokenizers against listed ids, and what a broken vocabulary is answered with.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

mod tokenizer_common;

use redraft::chat::{ChatTemplate, Message, RenderOptions, RenderedPrompt};
use redraft::tokenizer::{
    CanvasPiece, MergeProblem, Specials, TokenKind, Tokenizer, TokenizerError, TokenizerParts,
};
use redraft_gguf::{Array, Metadata, Value as GgufValue};
use tokenizer_common::{ids, parts, report, testdata, tokenizer};

#[test]
fn listed_strings_have_the_listed_ids() {
    let mut failures = Vec::new();
    for name in ["dg-mini", "dream-tiny", "llada-tiny"] {
        let tok = tokenizer(name);
        let file = testdata(&format!("tokenizer/{name}.cases.json"));
        let cases = file["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 72);
        for case in cases {
            let text = case["text"].as_str().unwrap();
            for (specials, key) in
                [(Specials::Parse, "ids_parse_special"), (Specials::Text, "ids_no_special")]
            {
                let (found, expected) = (tok.encode(text, specials).unwrap(), ids(&case[key]));
                if found != expected {
                    failures.push(format!("{name}: {text:?} {key}: expected {expected:?}, found {found:?}"));
                }
            }
            let decoded = tok.decode(&ids(&case["ids_parse_special"]), true);
            if decoded != case["decoded"].as_str().unwrap() {
                failures.push(format!("{name}: {text:?} decodes to {decoded:?}"));
            }
            let mut stream = tok.stream_decoder(true);
            let mut streamed: String =
                ids(&case["ids_no_special"]).into_iter().map(|id| stream.push(id)).collect();
            streamed += &stream.finish();
            let text = if name == "dg-mini" { text.replace('▁', " ") } else { text.to_owned() };
            if streamed != text {
                failures.push(format!("{name}: {text:?} streams as {streamed:?}"));
            }
        }
        if tok.end_ids() != ids(&file["eog_token_ids"]) {
            failures.push(format!("{name}: ends {:?}", tok.end_ids()));
        }
    }
    report(&failures);
}

#[test]
fn listed_chat_has_the_listed_ids() {
    let tok = tokenizer("dg-mini");
    let chat = &testdata("tokenizer/dg-mini.cases.json")["chat"];
    let messages: Vec<Message> = serde_json::from_value(chat["messages"].clone()).unwrap();
    let template = ChatTemplate::from_source(tok.chat_template().unwrap()).unwrap();
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::for_tokenizer(&tok) };
    let prompt = template.render(&messages, &options).unwrap();
    assert_eq!(prompt.text(), chat["rendered"].as_str().unwrap());
    assert_eq!(tok.encode_prompt(&prompt).unwrap(), ids(&chat["ids"]));
}

#[test]
fn demo_model_prompts_have_the_recorded_ids() {
    let tok = tokenizer("redraft-tiny");
    let template = ChatTemplate::from_source(tok.chat_template().unwrap()).unwrap();
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::for_tokenizer(&tok) };
    let file = testdata("redraft-tiny/generate.json");
    let prompts = file["prompts"].as_array().unwrap();
    assert_eq!(prompts.len(), 40);
    let mut failures = Vec::new();
    for case in prompts {
        let question = case["prompt"].as_str().unwrap();
        let prompt = template.render(&[Message::new("user", question)], &options).unwrap();
        let found = tok.encode_prompt(&prompt).unwrap();
        if found != ids(&case["prompt_ids"]) {
            failures.push(format!("{question:?}: {found:?}"));
        }
        let generated = ids(&case["generated_ids"]);
        let answer = generated.split(|id| tok.end_ids().contains(id)).next().unwrap();
        if tok.decode(answer, false) != case["text"].as_str().unwrap() {
            failures.push(format!("{question:?} is answered {:?}", tok.decode(answer, false)));
        }
    }
    report(&failures);
    assert_eq!(tok.end_ids(), [1, 6]);
}

/// A vocabulary small enough to read, with one token of each kind.
fn small() -> TokenizerParts {
    TokenizerParts {
        model: "gemma4".into(),
        tokens: [
            "<bos>", "<eos>", "<unk>", "a", "b", "ab", "▁", "\n", "\n\n", "<0xE2>", "<0x82>", "<0xAC>",
            "<u>", "<x>",
        ]
        .into_iter()
        .collect(),
        types: Some(vec![3, 3, 2, 1, 1, 1, 1, 1, 1, 6, 6, 6, 4, 5]),
        merges: Some(["a b"].into_iter().collect()),
        bos: Some(0),
        eos: Some(1),
        unknown: Some(2),
        ..TokenizerParts::default()
    }
}

#[test]
fn fallbacks_newlines_and_specials() {
    let tok = Tokenizer::from_parts(small()).unwrap();
    let text_unless = [
        ("abba", vec![5, 4, 3]),
        (" ab", vec![6, 5]),
        ("€", vec![9, 10, 11]),
        ("é", vec![2]),  // its bytes have no tokens
        ("éé", vec![2]), // unknown tokens next to each other are one
        ("éaé", vec![2, 3, 2]),
        ("a\n\nb", vec![3, 8, 4]),
        ("\n\n\n", vec![7, 7, 7]), // no token for three, and no merge
        ("<u>", vec![12]),
        ("a<u>b", vec![3, 12, 4]),
        ("<x>", vec![2]), // reserved: not searched for, and its characters are unknown
    ];
    for (text, expected) in text_unless {
        assert_eq!(tok.encode(text, Specials::Text).unwrap(), expected, "{text:?}");
        assert_eq!(tok.encode(text, Specials::Parse).unwrap(), expected, "{text:?}");
    }
    assert_eq!(tok.encode("a<eos>b", Specials::Parse).unwrap(), [3, 1, 4]);
    assert_eq!(tok.encode("a<eos>b", Specials::Text).unwrap(), [3, 2, 4]);
    assert_eq!(tok.decode(&[0, 3, 12, 1], false), "a<u>");
    assert_eq!(tok.decode(&[0, 3, 12, 1], true), "<bos>a<u><eos>");
    assert_eq!(tok.decode(&[3, 9, 10, 4, 99, 11], false), "a\u{fffd}b\u{fffd}\u{fffd}");

    let without_unknown = Tokenizer::from_parts(TokenizerParts { unknown: None, ..small() }).unwrap();
    let error = without_unknown.encode("é", Specials::Text).unwrap_err();
    assert!(matches!(error, TokenizerError::Unencodable { found: 'é' }), "{error}");
}

#[test]
fn threads_can_share_one() {
    fn shareable<T: Send + Sync + Clone + 'static>() {}
    shareable::<Tokenizer>();
    shareable::<redraft::tokenizer::StreamDecoder>();
    shareable::<std::sync::Arc<ChatTemplate>>();
}

#[test]
fn lookups() {
    let tok = Tokenizer::from_parts(small()).unwrap();
    assert_eq!((tok.vocab_len(), tok.bos(), tok.eos(), tok.unknown()), (14, Some(0), Some(1), Some(2)));
    assert_eq!((tok.pad(), tok.mask(), tok.chat_template(), tok.add_bos()), (None, None, None, true));
    assert_eq!((tok.token_id("ab"), tok.token_id("abc"), tok.token_id("")), (Some(5), None, None));
    let piece = tok.piece(9).unwrap();
    assert_eq!((piece.text, piece.kind), ("<0xE2>", TokenKind::Byte));
    assert_eq!(tok.piece(14), None);
    let specials: Vec<_> = tok.specials().collect();
    assert_eq!(
        specials,
        [
            (0, "<bos>", TokenKind::Control),
            (1, "<eos>", TokenKind::Control),
            (2, "<unk>", TokenKind::Unknown),
            (12, "<u>", TokenKind::UserDefined)
        ]
    );
}

#[test]
fn the_longest_special_token_wins_and_text_never_merges_into_one() {
    let parts = TokenizerParts {
        tokens: ["<a", "<a>", "<a>b", "<", "a", ">", "b"].into_iter().collect(),
        types: Some(vec![4, 3, 3, 1, 1, 1, 1]),
        // A list made from a SentencePiece model can contain the merge that spells a control token.
        merges: Some(["< a", "<a >"].into_iter().collect()),
        add_bos: Some(false),
        ..small()
    };
    let tok = Tokenizer::from_parts(TokenizerParts { bos: None, eos: None, unknown: None, ..parts }).unwrap();
    for (text, parse, plain) in [
        ("<a>b", vec![2], vec![0, 5, 6]),
        ("<a>a", vec![1, 4], vec![0, 5, 4]),
        ("<a<a>", vec![0, 1], vec![0, 0, 5]),
        ("<<a", vec![3, 0], vec![3, 0]),
    ] {
        assert_eq!(tok.encode(text, Specials::Parse).unwrap(), parse, "{text:?}");
        assert_eq!(tok.encode(text, Specials::Text).unwrap(), plain, "{text:?}");
    }
}

#[test]
fn bos_comes_exactly_once() {
    let yes = Tokenizer::from_parts(small()).unwrap();
    let no = Tokenizer::from_parts(TokenizerParts { add_bos: Some(false), ..small() }).unwrap();
    for (text, with, without) in [
        ("ab", vec![0, 5], vec![5]),
        ("<bos>ab", vec![0, 5], vec![0, 5]),
        ("<bos><bos>ab", vec![0, 5], vec![0, 5]),
        ("ab<bos>", vec![0, 5, 0], vec![5, 0]),
        ("", vec![0], vec![]),
    ] {
        let prompt = RenderedPrompt::trusted(text);
        assert_eq!(yes.encode_prompt(&prompt).unwrap(), with, "{text:?}");
        assert_eq!(no.encode_prompt(&prompt).unwrap(), without, "{text:?}");
        assert_eq!(yes.encode_raw_prompt(text, Specials::Parse).unwrap(), with, "{text:?}");
    }
}

#[test]
fn canvas_positions_are_displayable_alone() {
    let tok = Tokenizer::from_parts(small()).unwrap();
    let text = |s: &str| CanvasPiece::Text(s.to_owned());
    let bytes = |b: &[u8]| CanvasPiece::PartialUtf8 { bytes: b.to_vec() };
    for (ids, expected) in [
        (vec![5, 6, 0, 12], vec![text("ab"), text(" "), text("<bos>"), text("<u>")]),
        (vec![9, 10, 11], vec![text("€"), text(""), text("")]),
        (vec![9, 10, 3], vec![bytes(&[0xe2]), bytes(&[0x82]), text("a")]),
        (vec![11, 9, 10, 11, 9], vec![bytes(&[0xac]), text("€"), text(""), text(""), bytes(&[0xe2])]),
        (vec![9, 3, 10], vec![bytes(&[0xe2]), text("a"), bytes(&[0x82])]),
        (vec![77], vec![text("\u{fffd}")]),
        (vec![], vec![]),
    ] {
        assert_eq!(tok.canvas_pieces(&ids), expected, "{ids:?}");
    }
    assert_eq!(bytes(&[0xe2, 0x82]).display(), "⟨E2⟩⟨82⟩");
    assert_eq!(text("a").display(), "a");
}

#[test]
fn broken_vocabularies_are_refused() {
    use TokenizerError as E;
    type Check = fn(&TokenizerError) -> bool;
    type Break = fn(&mut TokenizerParts);
    fn set(parts: &mut TokenizerParts, id: usize, text: &str) {
        parts.tokens = parts.tokens.iter().enumerate().map(|(i, t)| if i == id { text } else { t }).collect();
    }
    fn types(parts: &mut TokenizerParts, change: fn(&mut Vec<i32>)) {
        change(parts.types.as_mut().unwrap());
    }
    let merge_is =
        |e: &TokenizerError, problem: MergeProblem| matches!(e, E::Merge { problem: p, .. } if *p == problem);
    let cases: [(&str, Break, Check); 13] = [
        (
            "unknown kind",
            |p| p.model = "spm".into(),
            |e| matches!(e, E::UnknownKind { found, known } if found == "spm" && known.contains(&"gemma4")),
        ),
        (
            "no tokens",
            |p| p.tokens = std::iter::empty::<&str>().collect(),
            |e| matches!(e, E::VocabSize { found: 0, .. }),
        ),
        (
            "no merges",
            |p| p.merges = None,
            |e| matches!(e, E::MissingKey { key, .. } if key.ends_with("merges")),
        ),
        (
            "fewer types",
            |p| types(p, |t| t.truncate(5)),
            |e| matches!(e, E::WrongLength { found: 5, expected: 14, .. }),
        ),
        ("more types", |p| types(p, |t| t.push(1)), |e| matches!(e, E::WrongLength { found: 15, .. })),
        (
            "fewer scores",
            |p| p.scores = Some(vec![0.0]),
            |e| matches!(e, E::WrongLength { key, found: 1, .. } if key.ends_with("scores")),
        ),
        ("type 0", |p| types(p, |t| t[3] = 0), |e| matches!(e, E::TokenType { id: 3, found: 0 })),
        ("type 7", |p| types(p, |t| t[3] = 7), |e| matches!(e, E::TokenType { id: 3, found: 7 })),
        ("no byte", |p| set(p, 9, "<0x+1>"), |e| matches!(e, E::ByteToken { id: 9, .. })),
        (
            "long special",
            |p| set(p, 0, &"<".repeat(2000)),
            |e| matches!(e, E::SpecialTooLong { id: 0, found: 2000, .. }),
        ),
        (
            "space prefix",
            |p| p.add_space_prefix = Some(true),
            |e| matches!(e, E::Contradiction { key, .. } if key.ends_with("add_space_prefix")),
        ),
        (
            "merge of one part",
            |p| p.merges = Some(["ab"].into_iter().collect()),
            |e| matches!(e, E::Merge { index: 0, problem: MergeProblem::NotTwoParts, .. }),
        ),
        (
            "merge without right part",
            |p| p.merges = Some(["a b", "a "].into_iter().collect()),
            |e| matches!(e, E::Merge { index: 1, problem: MergeProblem::NotTwoParts, .. }),
        ),
    ];
    let mut failures = Vec::new();
    for (name, break_it, expected) in cases {
        let mut broken = small();
        break_it(&mut broken);
        match Tokenizer::from_parts(broken) {
            Err(e) if expected(&e) && e.to_string().starts_with("tokenizer: ") => {}
            other => failures.push(format!("{name}: {other:?}")),
        }
    }
    report(&failures);

    let twice = TokenizerParts { merges: Some(["a b", "a b"].into_iter().collect()), ..small() };
    let error = Tokenizer::from_parts(twice).unwrap_err();
    assert!(merge_is(&error, MergeProblem::Duplicate(0)), "{error}");
    assert_eq!(
        error.to_string(),
        "tokenizer: \"tokenizer.ggml.merges\" entry 1 (\"a b\"): the same pair is entry 0"
    );
}

#[test]
fn empty_tokens_are_tolerated() {
    let mut odd = small();
    odd.tokens = odd.tokens.iter().map(|t| if t == "<x>" || t == "<u>" { "" } else { t }).collect();
    let tok = Tokenizer::from_parts(odd).unwrap();
    assert_eq!(tok.encode("ab", Specials::Parse).unwrap(), [5]);
    assert_eq!(tok.decode(&[12, 13, 5], true), "ab");
    assert_eq!(tok.canvas_pieces(&[12]), [CanvasPiece::Text(String::new())]);
}

fn metadata(parts: &TokenizerParts) -> Metadata {
    let mut meta = Metadata::new();
    meta.set("tokenizer.ggml.model", parts.model.as_str());
    meta.set("tokenizer.ggml.tokens", GgufValue::Array(Array::Str(parts.tokens.clone())));
    meta.set("tokenizer.ggml.token_type", GgufValue::Array(Array::I32(parts.types.clone().unwrap())));
    meta.set("tokenizer.ggml.merges", GgufValue::Array(Array::Str(parts.merges.clone().unwrap())));
    meta.set("tokenizer.ggml.scores", GgufValue::Array(Array::F32(vec![-1000.0; parts.tokens.len()])));
    for (key, id) in [("bos", parts.bos), ("eos", parts.eos), ("unknown", parts.unknown), ("eot", parts.eot)]
    {
        if let Some(id) = id {
            meta.set(format!("tokenizer.ggml.{key}_token_id"), id);
        }
    }
    meta
}

#[test]
fn metadata_is_read() {
    let parts = parts("redraft-tiny");
    let tok = Tokenizer::from_gguf(&metadata(&parts)).unwrap();
    assert_eq!((tok.kind(), tok.vocab_len(), tok.end_ids()), ("gemma4", 1536, vec![1, 6]));
    let encode = |tok: &Tokenizer| tok.encode("The capital of France", Specials::Text).unwrap();
    assert_eq!(encode(&tok), encode(&tokenizer("redraft-tiny")));
}

#[test]
fn malformed_metadata_names_the_key() {
    for (key, value, message) in [
        ("tokenizer.ggml.model", None, "metadata key \"tokenizer.ggml.model\" is missing"),
        ("tokenizer.ggml.tokens", None, "metadata key \"tokenizer.ggml.tokens\" is missing"),
        ("tokenizer.ggml.merges", None, "metadata key \"tokenizer.ggml.merges\" is missing"),
        ("tokenizer.ggml.tokens", Some(GgufValue::U32(1)), "\"tokenizer.ggml.tokens\" has the wrong type"),
        ("tokenizer.ggml.merges", Some("a b".into()), "\"tokenizer.ggml.merges\" has the wrong type"),
        ("tokenizer.ggml.scores", Some(true.into()), "\"tokenizer.ggml.scores\" has the wrong type"),
        (
            "tokenizer.ggml.eos_token_id",
            Some("1".into()),
            "\"tokenizer.ggml.eos_token_id\" has the wrong type",
        ),
        ("tokenizer.ggml.eos_token_id", Some(GgufValue::I32(-1)), "tokenizer.ggml.eos_token_id"),
        (
            "tokenizer.ggml.add_bos_token",
            Some(GgufValue::U32(1)),
            "\"tokenizer.ggml.add_bos_token\" has the wrong type",
        ),
        (
            "tokenizer.ggml.model",
            Some("gpt9".into()),
            "tokenizer: kind \"gpt9\" (\"tokenizer.ggml.model\") is not supported; known: gemma4, gpt2, llama",
        ),
    ] {
        let mut meta = metadata(&small());
        match value {
            Some(value) => meta.set(key, value),
            None => drop(meta.remove(key)),
        }
        let error = Tokenizer::from_gguf(&meta).unwrap_err().to_string();
        assert!(error.contains(message), "{key}: {error}");
    }
}
