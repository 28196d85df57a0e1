//! What a model answers, taken apart: what it says, what it thought before, and the tools it calls.
//!
//! The markers between these parts are control tokens. An [`AnswerParser`] is fed with token ids as they are
//! committed, so that text which merely spells a marker stays text; where only text is at hand,
//! [`AnswerParser::for_text`] goes by the spelling. Nothing a model writes is an error: what cannot be read
//! stays in the answer, with a [`Warning`].
//!
//! One file for each family of models, and the list [`FORMATS`].

mod arguments;
mod gemma4;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Content, Message};
use crate::tokenizer::{StreamDecoder, Tokenizer};

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// `call_0`, `call_1`, … within an answer.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
}

impl ToolCall {
    /// As chat APIs send it: the arguments are a string of JSON.
    pub fn to_api(&self) -> Value {
        self.json(Value::String(Value::Object(self.arguments.clone()).to_string()))
    }

    fn json(&self, arguments: Value) -> Value {
        json!({"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}})
    }
}

/// Something about an answer that its reader should know.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Warning {
    /// For programs: `unclosed_thought`, `unreadable_tool_call`, `unclosed_tool_call`, `unknown_channel`.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// What the model says. If it ended inside a thought and said nothing else, the thought.
    pub text: String,
    /// What it thought before, without white space around it.
    pub reasoning: String,
    /// The tools that it calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// The answer ended inside a thought.
    pub unclosed_thought: bool,
    /// What its reader should know.
    pub warnings: Vec<Warning>,
    /// The thought took the place of the answer: [`text`](Self::text) is what was thought.
    pub thought_is_text: bool,
}

impl Answer {
    /// The message that stands for this answer in the history of a conversation. Thoughts are no part of it,
    /// nor are markers, so that the template closes the turn and nobody else.
    pub fn to_message(&self) -> Message {
        let said = if self.thought_is_text { "" } else { self.text.trim() };
        let calls: Vec<Value> =
            self.tool_calls.iter().map(|c| c.json(Value::Object(c.arguments.clone()))).collect();
        let content = match said {
            "" if !calls.is_empty() => Content::None,
            said => said.into(),
        };
        Message {
            tool_calls: (!calls.is_empty()).then_some(Value::Array(calls)),
            ..Message::new("assistant", content)
        }
    }
}

/// A piece of an answer while it arrives. The pieces of a kind, one after another, are the field of
/// [`Answer`] that they belong to.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// Of [`Answer::text`].
    Text(String),
    /// Of [`Answer::reasoning`].
    Reasoning(String),
    /// Of [`Answer::tool_calls`].
    ToolCall(ToolCall),
}

/// How a family of models writes its answers. One entry of [`FORMATS`].
pub struct OutputFormat {
    /// Name in listings.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// How a call is written.
    pub(crate) call: CallForm,
    /// The tokens that mean something. A model has this format if the first two are in its vocabulary.
    markers: &'static [&'static str],
    /// Creates its parser.
    create: fn() -> Box<dyn Machine>,
}

/// How a call of a tool is written: a marker, a word, the tool's name, its arguments as a JSON object but for strings, which stand
/// between two markers without escapes, and names, which stand bare; a marker.
pub(crate) struct CallForm {
    pub(crate) open: &'static str,
    pub(crate) before_name: &'static str,
    pub(crate) close: &'static str,
    pub(crate) quote: &'static str,
    /// Whether a tool can have a name.
    pub(crate) is_name: fn(&str) -> bool,
}

/// All formats.
pub static FORMATS: &[OutputFormat] = &[gemma4::SPEC];

impl OutputFormat {
    /// The format of a model, by its vocabulary. Without one all that a model writes is what it says.
    pub fn of(tokenizer: &Tokenizer) -> Option<&'static OutputFormat> {
        FORMATS.iter().find(|f| f.markers.iter().take(2).all(|m| tokenizer.token_id(m).is_some()))
    }
}

/// The parser of one format: gets text and markers in order.
trait Machine: Send {
    /// Text between markers.
    fn text(&mut self, text: &str, out: &mut Out);

    /// One of the format's markers.
    fn marker(&mut self, marker: &'static str, out: &mut Out);

    /// The end of the answer.
    fn end(&mut self, out: &mut Out);

    /// Starts inside a thought: the prompt has opened it.
    fn begin_thought(&mut self);
}

/// Where a machine writes to.
#[derive(Default)]
struct Out {
    answer: Answer,
    deltas: Vec<Delta>,
    /// White space at the end of the thought so far.
    space: String,
}

impl Out {
    fn text(&mut self, text: &str) {
        // What separates an answer from what came before it is no part of it.
        let after = !self.answer.reasoning.is_empty() || !self.answer.tool_calls.is_empty();
        let text = if after && self.answer.text.is_empty() { text.trim_start() } else { text };
        if !text.is_empty() {
            self.answer.text.push_str(text);
            self.deltas.push(Delta::Text(text.to_owned()));
        }
    }

    fn reasoning(&mut self, text: &str) {
        let text = if self.answer.reasoning.is_empty() { text.trim_start() } else { text };
        let end = text.trim_end().len();
        if end == 0 {
            self.space.push_str(text);
            return;
        }
        let mut said = std::mem::take(&mut self.space);
        said.push_str(&text[..end]);
        self.space.push_str(&text[end..]);
        self.answer.reasoning.push_str(&said);
        self.deltas.push(Delta::Reasoning(said));
    }

    fn call(&mut self, name: String, arguments: Map<String, Value>) {
        let id = format!("call_{}", self.answer.tool_calls.len());
        let call = ToolCall { id, name, arguments };
        self.answer.tool_calls.push(call.clone());
        self.deltas.push(Delta::ToolCall(call));
    }

    fn warn(&mut self, code: &'static str, message: impl Into<String>) {
        self.answer.warnings.push(Warning { code, message: message.into() });
    }
}

/// Takes an answer apart while it arrives.
pub struct AnswerParser {
    machine: Option<Box<dyn Machine>>,
    out: Out,
    markers: &'static [&'static str],
    /// The ids of the markers, and the decoder of all others. `None` for text.
    tokens: Option<(Vec<(u32, &'static str)>, StreamDecoder)>,
    /// Text that may be the start of a marker.
    held: String,
}

impl AnswerParser {
    /// A parser of token ids, for answers of the model that has this vocabulary.
    pub fn for_tokenizer(tokenizer: &Arc<Tokenizer>) -> AnswerParser {
        let format = OutputFormat::of(tokenizer);
        let markers = format.map_or(&[][..], |f| f.markers);
        let ids = markers.iter().filter_map(|&m| Some((tokenizer.token_id(m)?, m))).collect();
        AnswerParser::new(format, Some((ids, tokenizer.stream_decoder(false))))
    }

    /// A parser of text in which markers are spelled out.
    pub fn for_text(format: &'static OutputFormat) -> AnswerParser {
        AnswerParser::new(Some(format), None)
    }

    fn new(
        format: Option<&'static OutputFormat>,
        tokens: Option<(Vec<(u32, &'static str)>, StreamDecoder)>,
    ) -> AnswerParser {
        AnswerParser {
            machine: format.map(|f| (f.create)()),
            out: Out::default(),
            markers: format.map_or(&[], |f| f.markers),
            tokens,
            held: String::new(),
        }
    }

    /// Says what the model was prompted with: a prompt may end inside a thought that it opened.
    pub fn after_prompt(&mut self, ids: &[u32]) {
        let Some((markers, _)) = &self.tokens else { return };
        let last = ids.iter().rev().find_map(|id| markers.iter().find(|(m, _)| m == id));
        if let (Some(machine), Some((_, marker))) = (&mut self.machine, last)
            && self.markers.first() == Some(marker)
        {
            machine.begin_thought();
        }
    }

    /// Adds a token; ids are ignored by a parser of text.
    pub fn push(&mut self, id: u32) -> Vec<Delta> {
        let Some((markers, decoder)) = &mut self.tokens else { return Vec::new() };
        match markers.iter().find(|(m, _)| *m == id) {
            None => {
                let text = decoder.push(id);
                self.text(&text);
            }
            Some(&(_, marker)) => {
                let text = decoder.finish();
                self.text(&text);
                self.marker(marker);
            }
        }
        std::mem::take(&mut self.out.deltas)
    }

    /// Adds text, in which a parser of text recognises markers wherever they are cut.
    pub fn push_text(&mut self, text: &str) -> Vec<Delta> {
        if self.tokens.is_some() {
            self.text(text);
            return std::mem::take(&mut self.out.deltas);
        }
        let mut rest = std::mem::take(&mut self.held) + text;
        // The first marker, and of those that start at one place the longest.
        let first = |rest: &str| {
            let found = self.markers.iter().filter_map(|&m| Some((rest.find(m)?, m)));
            found.min_by_key(|(at, m)| (*at, usize::MAX - m.len()))
        };
        let mut parts = Vec::new();
        while let Some((at, marker)) = first(&rest) {
            parts.push((rest[..at].to_owned(), marker));
            rest.drain(..at + marker.len());
        }
        for (text, marker) in parts {
            self.text(&text);
            self.marker(marker);
        }
        // An end that a marker may start with waits.
        let may_start = |at: &usize| self.markers.iter().any(|m| m.starts_with(&rest[*at..]));
        let longest = self.markers.iter().map(|m| m.len()).max().unwrap_or(0);
        let from = rest.len().saturating_sub(longest);
        let cut = (from..rest.len()).filter(|&at| rest.is_char_boundary(at)).find(may_start);
        self.held = rest.split_off(cut.unwrap_or(rest.len()));
        self.text(&rest);
        std::mem::take(&mut self.out.deltas)
    }

    /// Ends the answer: its last pieces, and all of it.
    pub fn finish(mut self) -> (Vec<Delta>, Answer) {
        let mut rest = std::mem::take(&mut self.held);
        if let Some((_, decoder)) = &mut self.tokens {
            rest.push_str(&decoder.finish());
        }
        self.text(&rest);
        if let Some(machine) = &mut self.machine {
            machine.end(&mut self.out);
        }
        let Out { mut answer, mut deltas, .. } = self.out;
        if answer.unclosed_thought {
            let silent = answer.text.trim().is_empty() && answer.tool_calls.is_empty();
            let mut message = "the answer ended inside a thought".to_owned();
            if silent && !answer.reasoning.is_empty() {
                let thought = std::mem::take(&mut answer.reasoning);
                // After white space that was passed on already.
                answer.text.push_str(&thought);
                answer.thought_is_text = true;
                deltas.push(Delta::Text(thought));
                message += "; the thought is shown as the answer";
            }
            answer.warnings.push(Warning { code: "unclosed_thought", message });
        }
        (deltas, answer)
    }

    fn text(&mut self, text: &str) {
        match &mut self.machine {
            _ if text.is_empty() => {}
            Some(machine) => machine.text(text, &mut self.out),
            None => self.out.text(text),
        }
    }

    fn marker(&mut self, marker: &'static str) {
        if let Some(machine) = &mut self.machine {
            machine.marker(marker, &mut self.out);
        }
    }
}
