//! The error type of the tokenizer: what is wrong with a vocabulary, or with a text.

use redraft_gguf::GgufError;

/// Everything that can go wrong when a tokenizer is built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A metadata key is missing or has another type.
    #[error("tokenizer: {0}")]
    Metadata(#[from] GgufError),

    /// A key that this kind of tokenizer cannot do without is absent.
    #[error("tokenizer: metadata key \"{key}\" is missing: {needed_for}")]
    MissingKey {
        /// The key.
        key: &'static str,
        /// Why it is needed.
        needed_for: &'static str,
    },

    /// The file names a kind of tokenizer that is not implemented.
    #[error("tokenizer: kind {found:?} (\"tokenizer.ggml.model\") is not supported; known: {}", known.join(", "))]
    UnknownKind {
        /// The kind in the file.
        found: String,
        /// The kinds that are implemented.
        known: Vec<&'static str>,
    },

    /// The file names a way of splitting text that is not implemented. Another one would split words in the
    /// wrong places without anybody noticing.
    #[error("tokenizer: pre-tokenizer {found:?} (\"tokenizer.ggml.pre\") is not supported; known: {}", known.join(", "))]
    UnknownPre {
        /// The name in the file.
        found: String,
        /// The names that are implemented.
        known: Vec<&'static str>,
    },

    /// A key has a value that contradicts the kind of tokenizer.
    #[error("tokenizer: \"{key}\" is {found}, but a tokenizer of kind {kind:?} needs {expected}")]
    Contradiction {
        /// The key.
        key: &'static str,
        /// Its value.
        found: String,
        /// The kind of tokenizer.
        kind: &'static str,
        /// What the kind needs.
        expected: &'static str,
    },

    /// An array does not have one entry per token.
    #[error("tokenizer: \"{key}\" has {found} entries: expected {expected}, one per token")]
    WrongLength {
        /// The key of the array.
        key: &'static str,
        /// Its length.
        found: usize,
        /// The number of tokens.
        expected: usize,
    },

    /// The vocabulary has no token, or more than a 32-bit id can name.
    #[error("tokenizer: \"tokenizer.ggml.tokens\" has {found} entries: expected 1 to {max}")]
    VocabSize {
        /// Number of tokens in the file.
        found: usize,
        /// The largest number that is accepted.
        max: usize,
    },

    /// A token type is not one of the six that the format defines.
    #[error("tokenizer: \"tokenizer.ggml.token_type\" entry {id} is {found}: expected 1 to 6")]
    TokenType {
        /// The token.
        id: u32,
        /// Its type in the file.
        found: i32,
    },

    /// A byte token is not spelled `<0xNN>`.
    #[error("tokenizer: token {id} has type byte but is {text:?}: expected <0x00> to <0xFF>")]
    ByteToken {
        /// The token.
        id: u32,
        /// Its text.
        text: String,
    },

    /// A control or user-defined token is longer than is sensible for something that is searched in every text.
    #[error("tokenizer: special token {id} has {found} bytes: expected at most {max}")]
    SpecialTooLong {
        /// The token.
        id: u32,
        /// Its length in bytes.
        found: usize,
        /// The longest that is accepted.
        max: usize,
    },

    /// The control and user-defined tokens could not be put into one automaton.
    #[error("tokenizer: the special tokens cannot be searched for: {reason}")]
    Specials {
        /// What the automaton builder said.
        reason: String,
    },

    /// The merge list is longer than is accepted.
    #[error("tokenizer: \"tokenizer.ggml.merges\" has {found} entries: expected at most {max}")]
    MergeCount {
        /// Number of merges in the file.
        found: usize,
        /// The largest number that is accepted.
        max: usize,
    },

    /// An entry of the merge list cannot be used.
    #[error("tokenizer: \"tokenizer.ggml.merges\" entry {index} ({merge:?}): {problem}")]
    Merge {
        /// Position in the list, which is the rank.
        index: usize,
        /// The entry.
        merge: String,
        /// What is wrong with it.
        problem: MergeProblem,
    },

    /// A character has no token, not all of its bytes have one, and there is no unknown token.
    #[error(
        "tokenizer: {found:?} has no token, its bytes have none, and \"tokenizer.ggml.unknown_token_id\" is absent"
    )]
    Unencodable {
        /// The character.
        found: char,
    },

    /// A byte has no token, and there is no unknown token.
    #[error(
        "tokenizer: the byte 0x{byte:02X} has no token, and \"tokenizer.ggml.unknown_token_id\" is absent"
    )]
    UnencodableByte {
        /// The byte.
        byte: u8,
    },

    /// A text is longer than the tokenizer can index.
    #[error("tokenizer: a text of {found} bytes is too long: expected at most {max}")]
    TextTooLong {
        /// Its length in bytes.
        found: usize,
        /// The longest that is accepted.
        max: usize,
    },

    /// A prompt was rendered without knowing all control tokens of this vocabulary, so that text inside a
    /// message could turn into one. Rendering with `RenderOptions::for_tokenizer` prevents it.
    #[error(
        "tokenizer: the prompt was rendered without guarding {token:?} inside messages: \
         render it with the options of this tokenizer"
    )]
    UnguardedPrompt {
        /// A control token that was not guarded.
        token: String,
    },
}

/// What is wrong with an entry of the merge list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeProblem {
    /// There is no space between two parts.
    #[error("expected two parts with a space between them")]
    NotTwoParts,
    /// The same pair stands earlier in the list. Implementations disagree on which rank then counts.
    #[error("the same pair is entry {0}")]
    Duplicate(usize),
}
