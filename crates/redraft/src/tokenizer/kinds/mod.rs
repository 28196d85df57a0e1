//! The kinds of tokenizer, one file each and one line in [`KINDS`].
//!
//! A kind turns plain text into tokens and tokens into bytes. Special tokens, BOS and streaming are the same
//! for all kinds and live outside.

mod characters;
mod fallback;
mod gemma4;
mod gpt2;
mod llama;

use super::TokenizerError;
use super::parts::TokenizerParts;
use super::vocab::Vocab;

/// How one kind of tokenizer treats plain text.
pub(crate) trait TextModel: Send + Sync {
    /// Appends the tokens of `text`, in which special tokens were already looked for: it starts at the start of
    /// the whole text or behind a special token, or with `inside` goes on with a text.
    fn encode(
        &self,
        vocab: &Vocab,
        text: &str,
        inside: bool,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError>;

    /// Appends the bytes that the token `id` stands for; nothing when there is no such token.
    fn token_bytes(&self, vocab: &Vocab, id: u32, out: &mut Vec<u8>);

    /// Whether a prompt starts with BOS when the file does not say.
    fn add_bos(&self) -> bool;

    /// Whether encoding puts a space in front of a text, which decoding takes away again.
    fn adds_space(&self) -> bool {
        false
    }
}

/// Builds a kind from a vocabulary that was checked and the parts that were not.
type Build = fn(&Vocab, &TokenizerParts, &mut Vec<String>) -> Result<Box<dyn TextModel>, TokenizerError>;

/// A kind of tokenizer.
pub(crate) struct Kind {
    /// Its name in `tokenizer.ggml.model`.
    pub(crate) name: &'static str,
    /// Whether `<0x41>` stands for a byte in files without token types.
    pub(crate) byte_tokens: bool,
    /// Whether `</s>` can end an answer.
    pub(crate) sentence_ends: bool,
    /// Checks what this kind needs and builds it; what had to be assumed is added to the notes.
    pub(crate) build: Build,
}

/// All kinds.
const KINDS: &[Kind] = &[gemma4::KIND, gpt2::KIND, llama::KIND];

/// The kind that a file names.
pub(crate) fn find(name: &str) -> Result<&'static Kind, TokenizerError> {
    KINDS.iter().find(|k| k.name == name).ok_or_else(|| TokenizerError::UnknownKind {
        found: name.to_owned(),
        known: KINDS.iter().map(|k| k.name).collect(),
    })
}
