//! The error type of chat rendering.

use std::error::Error as _;

use minijinja::{Error, ErrorKind};

use super::rewrite::{Prepared, line_of};

/// Everything that can go wrong when a chat template is read or rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The template is not valid Jinja.
    #[error("chat template, line {line}: {cause}, in {excerpt:?}")]
    Syntax {
        /// Line of the template, from 1.
        line: usize,
        /// That line.
        excerpt: String,
        /// What is wrong.
        cause: String,
    },

    /// The template failed on these messages.
    #[error("chat template, line {line}: {cause}, in {excerpt:?}")]
    Render {
        /// Line of the template, from 1.
        line: usize,
        /// That line.
        excerpt: String,
        /// What went wrong.
        cause: String,
    },

    /// The template refused the messages by calling `raise_exception`.
    #[error("chat template, line {line}: the template refuses these messages: {message}")]
    Raised {
        /// Line of the template, from 1.
        line: usize,
        /// What the template says.
        message: String,
    },

    /// The template needs more steps or memory than any sensible one for messages of this size.
    #[error(
        "chat template, line {line}: rendering needs more than {budget} steps: the template never ends, or makes far more text than it was given"
    )]
    OverBudget {
        /// Line of the template, from 1.
        line: usize,
        /// The budget: one step is one instruction, 64 bytes of text, or one visit of a list's item.
        budget: u64,
    },

    /// The template is longer than is accepted.
    #[error("chat template of {found} bytes is too long: expected at most {max}")]
    TooLong {
        /// Its length in bytes.
        found: usize,
        /// The longest that is accepted.
        max: usize,
    },

    /// A message with an image, a sound or a file in it.
    #[error(
        "message {message} has a part of type `{part}`: images, sound and files are not supported; expected text"
    )]
    NotText {
        /// Which message, from 0.
        message: usize,
        /// The type of the part.
        part: String,
    },

    /// The template has more of something than any sensible one.
    #[error("chat template, line {line}: {found} {what} are too many: expected at most {max}")]
    TooComplex {
        /// Line of the template, from 1.
        line: usize,
        /// What there is too much of.
        what: &'static str,
        /// How much of it there is up to that line.
        found: usize,
        /// The most that is accepted.
        max: usize,
    },

    /// The template uses a namespace other than for its attributes, so that it could come to contain itself.
    #[error(
        "chat template, line {line}: `{name}` may only be made by `set NAME = namespace(…)` and used for its \
         attributes"
    )]
    Namespace {
        /// Line of the template, from 1.
        line: usize,
        /// The namespace, or `namespace` itself.
        name: String,
    },

    /// A value of the messages, tools or options cannot be given to a template.
    #[error("chat template: {what} cannot be given to the template: {reason}")]
    Value {
        /// Which value.
        what: &'static str,
        /// Why not.
        reason: String,
    },

    /// A message contains text that could become a control token, and what the template prints depends on that
    /// text in a way that leaves no room to guard it.
    #[error(
        "chat template: the template's result depends on {text:?} inside a message, so that it cannot be kept \
         from being read as a control token"
    )]
    Unguardable {
        /// The text, from where a control token could start.
        text: String,
    },
}

/// What `raise_exception` puts into the engine's error, so that it can be told from other errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Raised(pub(crate) String);

/// A template's source, and what the engine was given instead of it.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) original: String,
    pub(crate) prepared: Prepared,
}

impl ChatError {
    /// An error of the template engine while it read a source; `prepared` if it was not the original.
    pub(crate) fn syntax(original: &str, prepared: Option<&Prepared>, error: &Error) -> ChatError {
        let (line, excerpt) = place(original, prepared, error);
        ChatError::Syntax { line, excerpt, cause: cause(error) }
    }

    /// An error of the template engine while it rendered a template.
    pub(crate) fn render(sources: &Sources, error: &Error, budget: u64) -> ChatError {
        let (line, excerpt) = place(&sources.original, Some(&sources.prepared), error);
        if let Some(Raised(message)) = chain(error).find_map(|e| e.downcast_ref()) {
            return ChatError::Raised { line, message: message.clone() };
        }
        let over = |e: &(dyn std::error::Error + 'static)| {
            e.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel)
        };
        if error.kind() == ErrorKind::OutOfFuel || chain(error).any(over) {
            return ChatError::OverBudget { line, budget };
        }
        ChatError::Render { line, excerpt, cause: cause(error) }
    }
}

/// The errors that led to `error`.
fn chain<'e>(error: &'e Error) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&e| e.source())
}

/// Where an error happened: the line's number and text. Errors without a place count as the first line.
fn place(source: &str, prepared: Option<&Prepared>, error: &Error) -> (usize, String) {
    /// Templates may be one long line.
    const MAX_EXCERPT: usize = 80;
    // The engine counts lines in 16 bits.
    let original = |at| prepared.map_or(at, |p| p.original(at));
    let at = error.range().map(|r| original(r.start)).filter(|&at| source.is_char_boundary(at));
    let line = at.map_or(error.line().unwrap_or(1), |at| line_of(source, at));
    let text = source.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    // In a long line the excerpt starts where the error is.
    let line_start = text.as_ptr() as usize - source.as_ptr() as usize;
    let at = at.map_or(0, |at| at.saturating_sub(line_start));
    let from = if text.len() > MAX_EXCERPT && text.is_char_boundary(at) { at } else { 0 };
    (line, text[from..].trim().chars().take(MAX_EXCERPT).collect())
}

/// What went wrong, down to the first cause.
fn cause(error: &Error) -> String {
    let mut text = error.kind().to_string();
    if let Some(detail) = error.detail() {
        text = format!("{text}: {detail}");
    }
    for inner in chain(error) {
        text = format!("{text}: {inner}");
    }
    const MAX_CAUSE: usize = 1000;
    text.chars().take(MAX_CAUSE).collect()
}
