//! Replies that are in a language: a JSON schema, a regular expression, a choice, calls of tools.
//!
//! A language is compiled for a vocabulary into an automaton over tokens ([`Constraint`]). In each step the canvas that is most
//! likely among all canvases of the language takes the place of the most likely tokens, and one that is drawn among them the place of
//! the drawn tokens; samplers decide on these as they always do. `docs/structured.md` has what is supported, the rules and the cost.
//!
//! ```
//! use redraft::constrain::{Constraint, Language, Vocabulary};
//!
//! let texts = ["yes", "no", "y", "es"].iter().zip(0..).map(|(t, id)| (id, t.as_bytes().to_vec())).collect();
//! let vocabulary = Vocabulary { len: 5, texts, end_ids: vec![4], ..Vocabulary::default() };
//! let choice = Constraint::new(Language::Choices(vec!["yes".into(), "no".into()]), &vocabulary)?;
//! assert_eq!(choice.needed(), 1);
//! assert!(choice.accepts(&[2, 3]) && !choice.accepts(&[2, 1]));
//! assert_eq!(choice.example(1)?, [0]);
//! # Ok::<(), redraft::constrain::ConstrainError>(())
//! ```

mod automaton;
mod calls;
mod ecma;
mod error;
mod json;
mod paths;
mod regex;
mod schema;
mod tokens;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::automaton::{Automaton, Node};
use self::json::Style;
use self::paths::{Paths, allowed};
use self::tokens::{NOWHERE, TokenAutomaton};

use crate::Model;
use crate::arch::Noise;
use crate::tokenizer::Tokenizer;

pub use self::calls::{Function, ToolCalls};
pub use self::error::ConstrainError;
pub(crate) use self::paths::{Drawing, Reading, Row, Span};
pub use self::schema::MAX_BYTES as MAX_SCHEMA_BYTES;
pub use self::tokens::Vocabulary;

/// Bytes of the tables of a canvas at most.
const MAX_TABLE_BYTES: usize = 1 << 30;

/// Positions of a canvas times transitions and classes of tokens in them at most: a step stays below some seconds.
const MAX_STEP_WORK: usize = 1 << 26;

/// Choices at most.
const MAX_CHOICES: usize = 1 << 12;

/// What a reply must be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Language {
    /// JSON that is valid under this schema.
    JsonSchema(Value),
    /// Any JSON object.
    JsonObject,
    /// What a regular expression matches from start to end.
    Regex(String),
    /// One of these texts.
    Choices(Vec<String>),
    /// Calls of tools, in the form in which the model writes them, and nothing else.
    ToolCalls(ToolCalls),
}

impl Language {
    fn node(&self) -> Result<Node, ConstrainError> {
        match self {
            Language::JsonSchema(schema) => schema::language(schema),
            Language::JsonObject => Ok(json::map(json::any(schema::DEPTH, Style::Json), Style::Json)),
            Language::Regex(pattern) => regex::whole(pattern),
            Language::ToolCalls(calls) => calls.node(),
            Language::Choices(texts) => match texts.len() {
                0 => Err(ConstrainError::Choices { problem: "expected at least one" }),
                _ if texts.iter().any(String::is_empty) => {
                    Err(ConstrainError::Choices { problem: "expected texts, found an empty one" })
                }
                found @ ..=MAX_CHOICES => {
                    debug_assert!(found > 0);
                    Ok(Node::alt(texts.iter().map(|t| Node::text(t)).collect::<Vec<_>>()))
                }
                found => Err(ConstrainError::TooLarge { what: "choices", found, limit: MAX_CHOICES }),
            },
        }
    }
}

impl Vocabulary {
    /// The vocabulary of a model, for answers that end with one of `end_ids`.
    pub fn of(model: &Model, end_ids: &[u32]) -> Vocabulary {
        let shape = model.shape();
        Vocabulary::new(model.tokenizer(), shape.vocab_len, mask_of(shape.noise), end_ids)
    }

    /// The vocabulary of a tokenizer, for a model of `len` ids that never writes `mask`.
    pub fn new(tokenizer: &Tokenizer, len: usize, mask: Option<u32>, end_ids: &[u32]) -> Vocabulary {
        let stands = |id: u32| stands(len, mask, id);
        let is_text = |id: u32| stands(id) && !end_ids.contains(&id);
        Vocabulary {
            len,
            texts: calls::with_markers(tokenizer).filter(|(id, _)| is_text(*id)).collect(),
            end_ids: end_ids.iter().copied().filter(|&id| stands(id)).collect(),
            pad: tokenizer.pad().filter(|&id| stands(id)),
            strips_space: tokenizer.adds_space(),
        }
    }
}

fn mask_of(noise: Noise) -> Option<u32> {
    if let Noise::Mask(mask) = noise { Some(mask) } else { None }
}

/// Whether a model of `len` ids that never writes `mask` can write an id.
fn stands(len: usize, mask: Option<u32>, id: u32) -> bool {
    (id as usize) < len && Some(id) != mask
}

/// How large a compiled language is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// States that tokens lead to, and the one after the end.
    pub states: usize,
    /// Pairs of states that tokens connect.
    pub transitions: usize,
    /// Sets of tokens that connect some states.
    pub labels: usize,
    /// Tokens that no state can tell apart count once.
    pub classes: usize,
    /// Memory that it takes.
    pub bytes: usize,
}

/// A language, compiled for a vocabulary.
#[derive(Debug, Clone)]
pub struct Constraint {
    language: Language,
    automaton: TokenAutomaton,
    end_ids: Vec<u32>,
}

impl Constraint {
    /// Compiles a language.
    ///
    /// # Errors
    /// What of it is not supported or too large; no text in it; a vocabulary that cannot write one.
    pub fn new(language: Language, vocabulary: &Vocabulary) -> Result<Constraint, ConstrainError> {
        let automaton = TokenAutomaton::new(Automaton::new(&language.node()?)?, vocabulary)?;
        Ok(Constraint { language, automaton, end_ids: vocabulary.end_ids.clone() })
    }

    /// What was compiled.
    pub fn language(&self) -> &Language {
        &self.language
    }

    /// How large it is.
    pub fn figures(&self) -> Figures {
        let a = &self.automaton;
        Figures {
            states: a.len(),
            transitions: a.n_edges(),
            labels: a.n_labels(),
            classes: a.n_classes,
            bytes: a.bytes(),
        }
    }

    /// Tokens of the shortest reply, its end not counted.
    pub fn needed(&self) -> usize {
        self.automaton.shortest[TokenAutomaton::START as usize] as usize
    }

    /// Whether it was compiled for a model of so many ids with these ends of an answer. Those that the model cannot
    /// write do not matter.
    pub(crate) fn fits(&self, vocab_len: usize, noise: Noise, end_ids: &[u32]) -> bool {
        let mask = mask_of(noise);
        let written =
            |ids: &[u32]| ids.iter().copied().filter(|&id| stands(vocab_len, mask, id)).collect::<Vec<_>>();
        self.automaton.class_of.len() == vocab_len && written(&self.end_ids) == written(end_ids)
    }

    /// Whether there are tokens that end an answer.
    pub(crate) fn has_ends(&self) -> bool {
        !self.end_ids.is_empty()
    }

    /// Whether these tokens, without an end, are a reply.
    pub fn accepts(&self, ids: &[u32]) -> bool {
        self.after(self.start(), ids).is_some_and(|state| self.can_end(state))
    }

    /// A reply of at most so many tokens, without its end: the best one where all tokens are as likely everywhere, that
    /// of lower ids among equals.
    ///
    /// # Errors
    /// Too few tokens for any reply; so many that the tables are too large.
    pub fn example(&self, tokens: usize) -> Result<Vec<u32>, ConstrainError> {
        self.check(tokens, tokens)?;
        let span = Span { state: self.start(), left: tokens };
        let best =
            self.best(&vec![Row::Free; tokens], span, 1).ok_or(ConstrainError::NoReply { canvas: 0 })?;
        Ok(best.into_iter().take_while(|id| !self.end_ids.contains(id)).collect())
    }

    /// Bytes of the tables of a canvas of so many positions.
    pub(crate) fn table_bytes(&self, canvas_len: usize) -> usize {
        Paths::bytes(&self.automaton, canvas_len)
    }

    /// The state before a reply.
    pub(crate) fn start(&self) -> u32 {
        TokenAutomaton::START
    }

    /// The state after some tokens; none where they cannot stand there.
    pub(crate) fn after(&self, state: u32, ids: &[u32]) -> Option<u32> {
        ids.iter().try_fold(state, |state, &id| self.automaton.next(state, id))
    }

    /// Whether a reply can end in a state, or has ended.
    pub(crate) fn can_end(&self, state: u32) -> bool {
        self.automaton.shortest[state as usize] == 0
    }

    /// Whether nothing but an end can follow.
    pub(crate) fn must_end(&self, state: u32) -> bool {
        self.automaton.edges(state).iter().all(|e| e.to == self.automaton.ended())
    }

    /// The ids that cannot stand at the first position, ascending.
    pub(crate) fn misplaced(&self, span: Span) -> Vec<u32> {
        let a = &self.automaton;
        let mut fits = vec![false; a.n_classes];
        for e in a.edges(span.state).iter().filter(|e| allowed(a, span, e.to, 1)) {
            a.classes(e.label).iter().for_each(|&c| fits[c as usize] = true);
        }
        let misplaced = |class: u32| class == NOWHERE || !fits[class as usize];
        (0..).zip(&a.class_of).filter(|(_, class)| misplaced(**class)).map(|(id, _)| id).collect()
    }

    /// What a step says of a canvas in the language, on so many threads; none where no such canvas is left. `drawing`: tokens are drawn.
    pub(crate) fn read(
        &self,
        rows: &[Row<'_>],
        span: Span,
        drawing: Option<Drawing<'_>>,
        threads: usize,
    ) -> Option<Reading> {
        Paths::new(&self.automaton, rows, span, threads).map(|paths| paths.reading(drawing))
    }

    /// The most likely canvas of the language.
    pub(crate) fn best(&self, rows: &[Row<'_>], span: Span, threads: usize) -> Option<Vec<u32>> {
        Paths::new(&self.automaton, rows, span, threads).map(|paths| paths.best())
    }

    /// Refuses an answer that is too short for a reply, or canvases that take too much time or memory.
    pub(crate) fn check(&self, tokens: usize, canvas_len: usize) -> Result<(), ConstrainError> {
        if self.needed() > tokens {
            return Err(ConstrainError::TooShort { needed: self.needed(), available: tokens });
        }
        let of = |what, found, limit| match found <= limit {
            true => Ok(()),
            false => Err(ConstrainError::TooLarge { what, found, limit }),
        };
        let work = "transitions and classes of tokens in them, times positions of a canvas";
        of(work, Paths::work(&self.automaton, canvas_len), MAX_STEP_WORK)?;
        of("bytes of the tables of a canvas", self.table_bytes(canvas_len), MAX_TABLE_BYTES)
    }
}
