//! Answers of Gemma 4 and DiffusionGemma, as their chat template writes them:
//!
//! ```text
//! <|channel>thought
//! …<channel|>answer<|tool_call>call:NAME{key:<|"|>text<|"|>,n:1}<tool_call|><|tool_response>
//! ```
//!
//! `<|tool_response>` and `<turn|>` end an answer. Models also leave out what should close, close twice, or
//! close what is not open; each case is decided below.

use super::arguments::{self, Symbol};
use super::{CallForm, Machine, Out, OutputFormat};

const CHANNEL: &str = "<|channel>";
const CHANNEL_END: &str = "<channel|>";
const CALL: &str = "<|tool_call>";
const CALL_END: &str = "<tool_call|>";
const QUOTE: &str = "<|\"|>";

pub(super) const SPEC: OutputFormat = OutputFormat {
    name: "gemma4",
    about: "thoughts in <|channel>, calls in <|tool_call>",
    call: CallForm {
        open: CALL,
        before_name: arguments::BEFORE_NAME,
        close: CALL_END,
        quote: QUOTE,
        is_name: arguments::is_name,
    },
    // The opening of a thought stands first.
    markers: &[
        CHANNEL,
        CHANNEL_END,
        CALL,
        CALL_END,
        QUOTE,
        "<|tool_response>",
        "<tool_response|>",
        "<|turn>",
        "<turn|>",
        "<|think|>",
        "<|tool>",
        "<tool|>",
    ],
    create: || Box::new(Gemma4(State::Answer)),
};

/// Longest name of a channel; what is longer is what the channel holds.
const MAX_CHANNEL: usize = 32;

struct Gemma4(State);

enum State {
    Answer,
    /// Behind `<|channel>`, up to the line break: the name so far.
    Channel(String),
    Thought,
    /// Behind `<|tool_call>`.
    Call(Vec<Symbol>),
    /// Behind the end of the turn.
    Ended,
}

impl Machine for Gemma4 {
    fn text(&mut self, text: &str, out: &mut Out) {
        match &mut self.0 {
            State::Answer => out.text(text),
            State::Thought => out.reasoning(text),
            State::Call(symbols) => symbols.extend(text.chars().map(Symbol::Char)),
            State::Ended => {}
            State::Channel(name) => {
                let (line, rest) = text.split_once('\n').map_or((text, None), |(a, b)| (a, Some(b)));
                name.push_str(line);
                match rest {
                    // No name is as long: the thought has begun, however the text was cut.
                    _ if name.len() > MAX_CHANNEL => {
                        let held = std::mem::take(name);
                        self.0 = State::Thought;
                        out.reasoning(&held);
                        out.reasoning(&text[line.len()..]);
                    }
                    Some(rest) => {
                        let name = std::mem::take(name);
                        self.enter(name.trim(), out);
                        self.text(rest, out);
                    }
                    None => {}
                }
            }
        }
    }

    fn marker(&mut self, marker: &'static str, out: &mut Out) {
        match (&mut self.0, marker) {
            (State::Ended, _) => {}
            (State::Call(symbols), QUOTE) => symbols.push(Symbol::Quote),
            (_, QUOTE) => self.text("\"", out),
            (State::Call(_), CALL_END) => self.close_call(true, out),
            (_, CALL_END) => {}
            (_, CHANNEL) => {
                // A second one inside a thought opens nothing new.
                self.leave(out);
                self.0 = State::Channel(String::new());
            }
            (_, CHANNEL_END) => {
                self.leave(out);
                self.0 = State::Answer;
            }
            (_, CALL) => {
                self.leave(out);
                self.0 = State::Call(Vec::new());
            }
            (_, "<|tool_response>" | "<|turn>" | "<turn|>") => {
                self.end(out);
                self.0 = State::Ended;
            }
            _ => {}
        }
    }

    fn end(&mut self, out: &mut Out) {
        match self.0 {
            State::Call(_) => self.close_call(false, out),
            State::Channel(_) | State::Thought => {
                self.leave(out);
                out.answer.unclosed_thought = true;
            }
            State::Answer | State::Ended => {}
        }
        self.0 = State::Ended;
    }

    fn begin_thought(&mut self) {
        self.0 = State::Channel(String::new());
    }
}

impl Gemma4 {
    /// The line behind `<|channel>` is complete.
    fn enter(&mut self, name: &str, out: &mut Out) {
        self.0 = State::Thought;
        if !name.is_empty() && name != "thought" {
            out.warn("unknown_channel", format!("the channel `{name}` is shown as a part of the answer"));
            self.0 = State::Answer;
        }
    }

    /// What is open ends without its marker, or before a new part.
    fn leave(&mut self, out: &mut Out) {
        match &mut self.0 {
            // `<|channel>thought<channel|>` is an empty thought; other words without a line break are one.
            State::Channel(name) if !"thought".starts_with(name.trim()) => {
                let held = std::mem::take(name);
                out.reasoning(&held);
            }
            State::Call(_) => self.close_call(false, out),
            _ => {}
        }
    }

    /// Reads the call that is open. `closed`: its marker has come.
    fn close_call(&mut self, closed: bool, out: &mut Out) {
        let State::Call(symbols) = std::mem::replace(&mut self.0, State::Answer) else { return };
        match arguments::call(&symbols) {
            Ok((name, arguments)) => {
                if !closed {
                    out.warn(
                        "unclosed_tool_call",
                        format!("the call of `{name}` was complete but not closed"),
                    );
                }
                out.call(name, arguments);
            }
            Err(reason) => {
                let raw: String = symbols.iter().map(Symbol::to_string).collect();
                out.text(&format!("{CALL}{raw}{}", if closed { CALL_END } else { "" }));
                let message = format!("a tool call cannot be read and stays in the answer: {reason}");
                out.warn("unreadable_tool_call", message);
            }
        }
    }
}

impl std::fmt::Display for Symbol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Symbol::Char(c) => write!(f, "{c}"),
            Symbol::Quote => f.write_str(QUOTE),
        }
    }
}
