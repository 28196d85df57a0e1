//! What models answer, taken apart: by token ids, by text, cut anywhere; and back into the history.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

mod tokenizer_common;

use std::sync::Arc;

use proptest::prelude::*;
use redraft::chat::{Answer, AnswerParser, ChatTemplate, Content, Delta, FORMATS, Message, RenderOptions};
use redraft::tokenizer::{Specials, Tokenizer, TokenizerParts};
use serde_json::{Value, json};
use tokenizer_common::{parts, report};

/// Parses a text in pieces that end at `cuts`.
fn parse_text(text: &str, cuts: &[usize]) -> (Vec<Delta>, Answer) {
    let mut parser = AnswerParser::for_text(&FORMATS[0]);
    let mut deltas = Vec::new();
    let mut at = 0;
    for &cut in cuts.iter().filter(|&&c| text.is_char_boundary(c)).chain([&text.len()]) {
        deltas.extend(parser.push_text(&text[at..cut]));
        at = cut;
    }
    let (rest, answer) = parser.finish();
    deltas.extend(rest);
    (deltas, answer)
}

fn calls(answer: &Answer) -> Value {
    answer.tool_calls.iter().map(|c| json!([c.name, c.arguments])).collect()
}

/// Input, text, reasoning, calls, codes of warnings.
type Case = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

const CASES: &[Case] = &[
    ("Paris.", "Paris.", "", "[]", &[]),
    ("", "", "", "[]", &[]),
    (" a <b> \n", " a <b> \n", "", "[]", &[]),
    ("<|channel>thought\nHm.\nYes.\n<channel|>Paris.", "Paris.", "Hm.\nYes.", "[]", &[]),
    ("<|channel>thought\n<channel|>\n\nParis.", "\n\nParis.", "", "[]", &[]),
    ("<|channel>thought<channel|>Paris.", "Paris.", "", "[]", &[]),
    ("<|channel>Hm<channel|>Paris.", "Paris.", "Hm", "[]", &[]),
    ("<|channel>thought\nHm<channel|>\n\nParis.", "Paris.", "Hm", "[]", &[]),
    // Two thoughts, before and after a text.
    ("<|channel>thought\na<channel|>b<|channel>thought\nc<channel|>d", "bd", "ac", "[]", &[]),
    // Doubled, trailing, stray markers.
    ("<|channel><|channel>thought\nHm<channel|><channel|>Paris.<channel|>", "Paris.", "Hm", "[]", &[]),
    ("<|channel>thought\nHm<|channel>thought\nmore<channel|>Paris.", "Paris.", "Hmmore", "[]", &[]),
    ("<channel|>Paris.<tool_call|><tool_response|><|think|>", "Paris.", "", "[]", &[]),
    ("Paris.<turn|>\n<|turn>user\nNo<|channel>", "Paris.", "", "[]", &[]),
    ("A <|\"|>quote<|\"|>", "A \"quote\"", "", "[]", &[]),
    // Thoughts that are not closed.
    ("<|channel>thought\nHm. Par", "Hm. Par", "", "[]", &["unclosed_thought"]),
    ("<|channel>thought\nHm.\n<turn|>", "Hm.", "", "[]", &["unclosed_thought"]),
    ("Paris.<|channel>thought\nHm", "Paris.", "Hm", "[]", &["unclosed_thought"]),
    ("<|channel>thou", "", "", "[]", &["unclosed_thought"]),
    (
        "<|channel>A long line that is no name of a channel, cut",
        "A long line that is no name of a channel, cut",
        "",
        "[]",
        &["unclosed_thought"],
    ),
    ("<|channel>final\nParis.<channel|>", "Paris.", "", "[]", &["unknown_channel"]),
    // Calls.
    (
        "<|tool_call>call:f{a:<|\"|>x<|\"|>,n:1}<tool_call|><|tool_response>",
        "",
        "",
        r#"[["f", {"a": "x", "n": 1}]]"#,
        &[],
    ),
    (
        "Let me look.<|tool_call>call:f{}<tool_call|><|tool_call>call:g{l:[1]}<tool_call|>",
        "Let me look.",
        "",
        r#"[["f", {}], ["g", {"l": [1]}]]"#,
        &[],
    ),
    (
        "<|channel>thought\nHm<channel|><|tool_call>call:f{}<tool_call|>\ndone",
        "done",
        "Hm",
        r#"[["f", {}]]"#,
        &[],
    ),
    ("<|channel>thought\nHm<|tool_call>call:f{}<tool_call|>", "", "Hm", r#"[["f", {}]]"#, &[]),
    (
        "<|tool_call>call:f{a:<|\"|></x>{}<|\"|>}",
        "",
        "",
        r#"[["f", {"a": "</x>{}"}]]"#,
        &["unclosed_tool_call"],
    ),
    (
        "<|tool_call>call:f{a:London}<tool_call|>",
        "<|tool_call>call:f{a:London}<tool_call|>",
        "",
        "[]",
        &["unreadable_tool_call"],
    ),
    (
        "x<|tool_call>call:f{a:<|\"|>Lon",
        "x<|tool_call>call:f{a:<|\"|>Lon",
        "",
        "[]",
        &["unreadable_tool_call"],
    ),
    (
        "<|tool_call>call:f{<|tool_call>call:g{}<tool_call|>",
        "<|tool_call>call:f{",
        "",
        r#"[["g", {}]]"#,
        &["unreadable_tool_call"],
    ),
    ("<|tool_call>call:f{<channel|>x", "<|tool_call>call:f{x", "", "[]", &["unreadable_tool_call"]),
    ("<|tool_call><tool_call|>", "<|tool_call><tool_call|>", "", "[]", &["unreadable_tool_call"]),
];

fn check(name: &str, case: &Case, (deltas, answer): (Vec<Delta>, Answer), failures: &mut Vec<String>) {
    let &(input, text, reasoning, tools, codes) = case;
    let found: Vec<&str> = answer.warnings.iter().map(|w| w.code).collect();
    let tools: Value = serde_json::from_str(tools).unwrap();
    if (answer.text.as_str(), answer.reasoning.as_str(), &calls(&answer), &found[..])
        != (text, reasoning, &tools, codes)
    {
        failures.push(format!("{name} {input:?}: {answer:?}"));
    }
    // The pieces are the whole. A thought that became the answer had been announced as a thought.
    let mut whole = Answer::default();
    for delta in deltas {
        match delta {
            Delta::Text(t) => whole.text.push_str(&t),
            Delta::Reasoning(t) => whole.reasoning.push_str(&t),
            Delta::ToolCall(c) => whole.tool_calls.push(c),
        }
    }
    let moved = answer.unclosed_thought && whole.reasoning == answer.text;
    if whole.text != answer.text
        || whole.tool_calls != answer.tool_calls
        || !(whole.reasoning == answer.reasoning || moved)
    {
        failures.push(format!("{name} {input:?}: pieces {whole:?}"));
    }
}

#[test]
fn answers_of_text_are_taken_apart_wherever_they_are_cut() {
    let mut failures = Vec::new();
    for case in CASES {
        check("whole", case, parse_text(case.0, &[]), &mut failures);
        let every: Vec<usize> = (0..case.0.len()).collect();
        check("bytes", case, parse_text(case.0, &every), &mut failures);
        for cut in 0..case.0.len() {
            check("cut", case, parse_text(case.0, &[cut]), &mut failures);
        }
    }
    report(&failures);
}

/// A vocabulary with all markers.
fn tokenizer() -> Arc<Tokenizer> {
    let mut p: TokenizerParts = parts("dg-mini");
    let markers = [
        "<|channel>",
        "<channel|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|\"|>",
        "<|tool_response>",
        "<tool_response|>",
        "<|think|>",
    ];
    let missing: Vec<&str> = markers.into_iter().filter(|m| !p.tokens.iter().any(|t| t == *m)).collect();
    let added = missing.len();
    p.tokens = p.tokens.iter().chain(missing).collect();
    p.types = p.types.map(|k| k.into_iter().chain(std::iter::repeat_n(3, added)).collect());
    // Some files have them as user-defined tokens, which are recognised in any text.
    let control = |(i, kind)| if markers.contains(&p.tokens.get(i).unwrap_or_default()) { 3 } else { kind };
    p.types = p.types.map(|k| k.into_iter().enumerate().map(control).collect());
    p.scores = None;
    Arc::new(Tokenizer::from_parts(p).unwrap())
}

fn parse_ids(tok: &Arc<Tokenizer>, prompt: &[u32], ids: &[u32]) -> (Vec<Delta>, Answer) {
    let mut parser = AnswerParser::for_tokenizer(tok);
    parser.after_prompt(prompt);
    let mut deltas: Vec<Delta> = ids.iter().flat_map(|&id| parser.push(id)).collect();
    let (rest, answer) = parser.finish();
    deltas.extend(rest);
    (deltas, answer)
}

#[test]
fn answers_of_tokens_are_taken_apart() {
    let tok = tokenizer();
    let mut failures = Vec::new();
    for case in CASES {
        let ids = tok.encode(case.0, Specials::Parse).unwrap();
        check("ids", case, parse_ids(&tok, &[], &ids), &mut failures);
    }
    report(&failures);
}

#[test]
fn text_that_spells_a_marker_is_text() {
    let tok = tokenizer();
    let spelled = "<|channel>thought\nno<channel|> <|tool_call>call:f{}<tool_call|> <turn|> end";
    let ids = tok.encode(spelled, Specials::Text).unwrap();
    let (_, answer) = parse_ids(&tok, &[], &ids);
    assert_eq!(answer, Answer { text: spelled.into(), ..Answer::default() });
}

#[test]
fn a_prompt_may_have_opened_the_thought() {
    let tok = tokenizer();
    let ids = |text: &str| tok.encode(text, Specials::Parse).unwrap();
    let open = ids("<|turn>model\n<|channel>");
    let (_, answer) = parse_ids(&tok, &open, &ids("thought\nHm<channel|>Paris."));
    assert_eq!((answer.text.as_str(), answer.reasoning.as_str()), ("Paris.", "Hm"));
    let closed = ids("<|turn>model\n<|channel>thought\n<channel|>");
    let (_, answer) = parse_ids(&tok, &closed, &ids("Paris."));
    assert_eq!((answer.text.as_str(), answer.reasoning.as_str()), ("Paris.", ""));
}

#[test]
fn other_vocabularies_have_no_markers() {
    let tok = Arc::new(tokenizer_common::tokenizer("redraft-tiny"));
    let text = "<|channel>thought\nx";
    let ids = tok.encode(text, Specials::Text).unwrap();
    assert_eq!(parse_ids(&tok, &[], &ids).1.text, text);
}

/// Thoughts stay out of the history, and a turn is closed once: by the template, after the tool's answer.
#[test]
fn answers_go_back_into_the_history() {
    let path = format!("{}/../../testdata/templates/gemma4.jinja", env!("CARGO_MANIFEST_DIR"));
    let template = ChatTemplate::from_source(&std::fs::read_to_string(path).unwrap()).unwrap();
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let said = "<|channel>thought\nsecret<channel|>Let me look.<|tool_call>call:weather{city:<|\"|>Bonn<|\"|>}<tool_call|><|tool_response>";
    let answer = parse_text(said, &[]).1;
    let message = answer.to_message();
    assert_eq!(
        serde_json::to_value(&message).unwrap(),
        json!({"role": "assistant", "content": "Let me look.", "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": {"city": "Bonn"}}}]})
    );
    assert_eq!(answer.tool_calls[0].to_api()["function"]["arguments"], json!(r#"{"city":"Bonn"}"#));
    let mut talk = vec![Message::new("user", "Weather?"), message];
    let tool = Message { name: Some("weather".into()), ..Message::new("tool", "warm") };
    talk.push(tool);
    let call = "<|tool_call>call:weather{city:<|\"|>Bonn<|\"|>}<tool_call|>Let me look.";
    let response = "<|tool_response>response:weather{value:<|\"|>warm<|\"|>}<tool_response|>";
    let prompt = template.render(&talk, &options).unwrap();
    assert_eq!(prompt.text(), format!("<|turn>user\nWeather?<turn|>\n<|turn>model\n{call}{response}"));
    // The answer to the tool goes on in the same turn, which then ends once.
    talk.push(parse_text("It is warm.<turn|>", &[]).1.to_message());
    talk.push(Message::new("user", "Thanks"));
    let prompt = template.render(&talk, &options).unwrap();
    let end = "It is warm.<turn|>\n<|turn>user\nThanks<turn|>\n<|turn>model\n<|channel>thought\n<channel|>";
    assert_eq!(prompt.text(), format!("<|turn>user\nWeather?<turn|>\n<|turn>model\n{call}{response}{end}"));
    // A thought that took the place of the answer is still no part of the history.
    let thought = parse_text("<|channel>thought\nsecret", &[]).1;
    assert_eq!(
        (thought.text.as_str(), thought.to_message().content),
        ("secret", Content::Text(String::new()))
    );
    let only_call = parse_text("<|tool_call>call:f{}<tool_call|>", &[]).1;
    assert_eq!(only_call.to_message().content, Content::None);
}

/// Pieces that answers of all kinds are made of.
const PIECES: [&str; 20] = [
    "<|channel>",
    "<channel|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<|turn>",
    "<|tool_response>",
    "<|think|>",
    "thought\n",
    "thought",
    "call:f{",
    "}",
    "a:",
    "1",
    "[",
    "]",
    ",",
    " ",
    "é<",
    "text",
];

proptest! {
    /// Whatever a model writes and however it is cut: no panic, the same answer, and nothing said twice.
    #[test]
    fn any_answer_is_taken_apart(picks in proptest::collection::vec(0..PIECES.len(), 0..24), cut in 0..200usize) {
        let text: String = picks.iter().map(|&i| PIECES[i]).collect();
        let (deltas, answer) = parse_text(&text, &[]);
        let (cut_deltas, cut_answer) = parse_text(&text, &[cut.min(text.len())]);
        prop_assert_eq!(&answer, &cut_answer);
        for deltas in [deltas, cut_deltas] {
            let said: String = deltas.iter().map(|d| if let Delta::Text(t) = d { t.as_str() } else { "" }).collect();
            prop_assert_eq!(&said, &answer.text);
        }
        // A thought that is not closed never leaves the answer empty, unless it is empty itself.
        prop_assert!(!answer.unclosed_thought || !answer.text.is_empty() || answer.reasoning.is_empty() || !answer.tool_calls.is_empty());
        prop_assert!(!answer.to_message().extra.contains_key("reasoning_content") && answer.to_message().reasoning_content.is_none());
    }
}
