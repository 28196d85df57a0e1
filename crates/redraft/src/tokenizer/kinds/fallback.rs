//! What stands for a character without a token: its UTF-8 bytes, or the unknown token.

use super::super::TokenizerError;
use super::super::vocab::Vocab;

/// Appends tokens; unknown tokens next to each other become one.
pub(super) struct Fallback<'a> {
    vocab: &'a Vocab,
    unknown: Option<u32>,
    out: &'a mut Vec<u32>,
    last_unknown: bool,
}

impl<'a> Fallback<'a> {
    pub(super) fn new(vocab: &'a Vocab, unknown: Option<u32>, out: &'a mut Vec<u32>) -> Fallback<'a> {
        Fallback { vocab, unknown, out, last_unknown: false }
    }

    /// Appends a token.
    pub(super) fn token(&mut self, id: u32) {
        self.out.push(id);
        self.last_unknown = false;
    }

    /// Appends the byte tokens of a character, or one unknown token when a byte has none.
    pub(super) fn character(&mut self, c: char) -> Result<(), TokenizerError> {
        let before = self.out.len();
        for &byte in c.encode_utf8(&mut [0; 4]).as_bytes() {
            let Some(id) = self.vocab.byte_id(byte) else {
                self.out.truncate(before);
                return self.unknown().map_err(|()| TokenizerError::Unencodable { found: c });
            };
            self.out.push(id);
        }
        self.last_unknown = false;
        Ok(())
    }

    /// Appends the unknown token; an error when there is none.
    pub(super) fn unknown(&mut self) -> Result<(), ()> {
        let unknown = self.unknown.ok_or(())?;
        if !self.last_unknown {
            self.out.push(unknown);
        }
        self.last_unknown = true;
        Ok(())
    }
}
