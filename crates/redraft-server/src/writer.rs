//! What of an answer reaches the client, token by token: text up to a stop text, reasoning, calls.

use redraft::chat::{Answer, AnswerParser, Delta, ToolCall};
use redraft::tokenizer::StreamDecoder;

/// Takes tokens apart.
pub(crate) enum Reader {
    /// Of a chat: what is said, thought and called.
    Chat(Box<AnswerParser>),
    /// Of a text that goes on.
    Text(Box<StreamDecoder>),
}

impl Reader {
    fn push(&mut self, id: u32) -> Vec<Delta> {
        match self {
            Reader::Chat(parser) => parser.push(id),
            Reader::Text(decoder) => vec![Delta::Text(decoder.push(id))],
        }
    }

    /// The last pieces, and whether a thought took the place of the answer.
    fn finish(self) -> (Vec<Delta>, bool) {
        match self {
            Reader::Chat(parser) => {
                let (deltas, answer) = parser.finish();
                (deltas, answer.thought_is_text)
            }
            Reader::Text(mut decoder) => (vec![Delta::Text(decoder.finish())], false),
        }
    }
}

/// Looks for texts that end an answer, however they are cut into pieces.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    stops: Vec<String>,
    /// Text that may be the start of one.
    held: String,
    /// The one that was found.
    found: Option<String>,
}

impl Stops {
    pub(crate) fn new(stops: Vec<String>) -> Stops {
        Stops { stops, held: String::new(), found: None }
    }

    /// Adds text; returns what is certain to come before any stop, and whether one was found.
    fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        let places = self.stops.iter().filter_map(|s| Some((self.held.find(s.as_str())?, s)));
        if let Some((at, stop)) = places.min_by_key(|(at, _)| *at) {
            self.found = Some(stop.clone());
            let mut held = std::mem::take(&mut self.held);
            held.truncate(at);
            return (held, true);
        }
        let may_start = |at: &usize| {
            let end = &self.held[*at..];
            self.stops.iter().any(|s| s.starts_with(end))
        };
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest);
        let cut = (from..self.held.len()).filter(|&at| self.held.is_char_boundary(at)).find(may_start);
        let held = self.held.split_off(cut.unwrap_or(self.held.len()));
        (std::mem::replace(&mut self.held, held), false)
    }
}

/// An answer as its client sees it.
pub(crate) struct Writer {
    reader: Option<Reader>,
    stops: Stops,
    /// A stop text was found.
    pub(crate) stopped: bool,
    /// Tokens that were written, with those of the stop text.
    pub(crate) tokens: usize,
    pub(crate) answer: Answer,
}

impl Writer {
    pub(crate) fn new(reader: Reader, stops: Stops) -> Writer {
        Writer { reader: Some(reader), stops, stopped: false, tokens: 0, answer: Answer::default() }
    }

    /// Adds a token. Nothing follows a stop text.
    pub(crate) fn push(&mut self, id: u32) -> Vec<Delta> {
        let (false, Some(reader)) = (self.stopped, &mut self.reader) else { return Vec::new() };
        self.tokens += 1;
        let deltas = reader.push(id);
        self.pass(deltas)
    }

    /// The end of the answer.
    pub(crate) fn finish(&mut self) -> Vec<Delta> {
        let Some(reader) = self.reader.take().filter(|_| !self.stopped) else { return Vec::new() };
        let (deltas, thought_is_text) = reader.finish();
        if thought_is_text {
            self.answer.reasoning.clear();
        }
        let mut deltas = self.pass(deltas);
        if !self.stopped {
            let rest = std::mem::take(&mut self.stops.held);
            deltas.extend(self.tell(Delta::Text(rest)));
        }
        deltas
    }

    /// The stop text that was found.
    pub(crate) fn stop(&self) -> Option<&str> {
        self.stops.found.as_deref()
    }

    /// Adds text that is known as a whole, of so many tokens.
    pub(crate) fn whole(&mut self, text: String, tokens: usize) -> Vec<Delta> {
        self.tokens = tokens;
        self.pass(vec![Delta::Text(text)])
    }

    fn pass(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        let mut out = Vec::new();
        for delta in deltas {
            if self.stopped {
                break;
            }
            match delta {
                Delta::Text(text) => {
                    let (text, stopped) = self.stops.push(&text);
                    self.stopped = stopped;
                    out.extend(self.tell(Delta::Text(text)));
                }
                other => out.extend(self.tell(other)),
            }
        }
        out
    }

    fn tell(&mut self, delta: Delta) -> Option<Delta> {
        match &delta {
            Delta::Text(text) | Delta::Reasoning(text) if text.is_empty() => return None,
            Delta::Text(text) => self.answer.text.push_str(text),
            Delta::Reasoning(text) => self.answer.reasoning.push_str(text),
            Delta::ToolCall(call) => self.answer.tool_calls.push(ToolCall::clone(call)),
        }
        Some(delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut s = Stops::new(stops.iter().map(|s| s.to_string()).collect());
        let mut out = Vec::new();
        for piece in pieces {
            let (text, stopped) = s.push(piece);
            out.push(text);
            if stopped {
                return (out, true);
            }
        }
        out.push(s.held);
        (out, false)
    }

    #[test]
    fn stops_are_found_across_pieces_and_cut_exactly() {
        let got = run(&["END"], &["abcE", "N", "Dxyz"]);
        assert_eq!(got, (vec!["abc".into(), String::new(), String::new()], true));
        let got = run(&["END"], &["abcE", "Nx", "E"]);
        assert_eq!(got, (vec!["abc".into(), "ENx".into(), String::new(), "E".into()], false));
        // The first in the text wins, whatever their order.
        assert_eq!(run(&["cd", "b"], &["abcd"]), (vec!["a".into()], true));
        assert_eq!(run(&["é!"], &["caf", "é", "?"]).0.concat(), "café?");
        assert_eq!(run(&[], &["a", "b"]).0, ["a", "b", ""]);
        assert_eq!(
            run(&["aab"], &["a", "a", "a", "b"]),
            (vec!["".into(), "".into(), "a".into(), "".into()], true)
        );
    }
}
