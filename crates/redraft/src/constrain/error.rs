//! What can be wrong with a language.

/// Why replies cannot be held to a language. Each says what, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConstrainError {
    /// Something that bounds time or memory.
    #[error(
        "the language of the reply is too large: {found} {what}, at most {limit}: ask for less, or for shorter parts"
    )]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        found: usize,
        /// How much there may be.
        limit: usize,
    },
    /// No text is in the language.
    #[error("the language of the reply has no text in it: what it asks for cannot be met together")]
    Empty,
    /// A regular expression that is none, or one with parts that are not supported.
    #[error("regular expression {pattern:?}: {problem}")]
    Regex {
        /// The expression.
        pattern: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A JSON schema with parts that are not supported.
    #[error("JSON schema, {path}: {problem}")]
    Schema {
        /// Where, as a JSON pointer after `#`.
        path: String,
        /// What is wrong there.
        problem: String,
    },
    /// A choice that is none.
    #[error("choices: {problem}")]
    Choices {
        /// What is wrong with them.
        problem: &'static str,
    },
    /// Calls of tools that cannot be written.
    #[error("calls of tools: {problem}")]
    Calls {
        /// What is wrong with them.
        problem: String,
    },
    /// A vocabulary that contradicts itself.
    #[error("vocabulary of {len} ids: {problem}")]
    Vocabulary {
        /// Number of ids.
        len: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A vocabulary that cannot write what is asked for.
    #[error("the vocabulary of the model cannot write any text of the language of the reply")]
    Unwritable,
    /// The tokens of an answer do not suffice.
    #[error(
        "the shortest reply that is asked for has {needed} tokens, and the answer can have {available}: raise --max-tokens"
    )]
    TooShort {
        /// Tokens of the shortest reply.
        needed: usize,
        /// Tokens of an answer.
        available: usize,
    },
    /// What the model allows leaves no reply.
    #[error(
        "canvas {canvas}: the model's numbers leave no reply that is asked for: look at them with `redraft doctor` and \
         `--digest full`"
    )]
    NoReply {
        /// The canvas, counted from 0.
        canvas: usize,
    },
}
