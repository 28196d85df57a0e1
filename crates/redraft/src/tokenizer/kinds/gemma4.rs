//! `gemma4`: byte-pair encoding of Unicode characters with byte fallback.
//!
//! 1. A space is written as U+2581 (`▁`). Nothing is put before the text.
//! 2. The text is split into runs of newlines and runs of other characters; a newline run that is a token is
//!    taken whole.
//! 3. Each other run is merged by rank, starting from its characters.
//! 4. A character without a token becomes the tokens of its UTF-8 bytes, or one unknown token when a byte
//!    has none; unknown tokens next to each other are one.
//!
//! Files of this kind have a merge list *and* scores. The scores are all equal and play no part.
//!
//! The split of step 2 is the one of the C++ implementation. The `tokenizers` library does not split; both
//! give the same tokens because no token of such a vocabulary joins a newline with something else, and the
//! tests compare them.

use super::super::TokenizerError;
use super::super::bpe::{MergeTable, Merger, Symbol};
use super::super::parts::{TokenizerParts, key};
use super::super::vocab::Vocab;
use super::{Kind, TextModel};

pub(super) const KIND: Kind = Kind { name: "gemma4", add_bos: true, build };

/// How a space is written in the vocabulary.
const SPACE: char = '\u{2581}';

/// Longest text that is encoded at once: places in the chain of symbols are 32-bit.
const MAX_TEXT: usize = u32::MAX as usize - 1;

struct Gemma4 {
    merges: MergeTable,
    unknown: Option<u32>,
}

fn build(vocab: &Vocab, parts: &TokenizerParts) -> Result<Box<dyn TextModel>, TokenizerError> {
    let merges = parts.merges.as_ref().ok_or(TokenizerError::MissingKey {
        key: key::MERGES,
        needed_for: "text is encoded by merge rank",
    })?;
    if parts.add_space_prefix == Some(true) {
        return Err(TokenizerError::Contradiction {
            key: key::ADD_SPACE_PREFIX,
            found: "true".to_owned(),
            kind: KIND.name,
            expected: "false: nothing is put before the text",
        });
    }
    Ok(Box::new(Gemma4 { merges: MergeTable::new(vocab, merges)?, unknown: parts.unknown }))
}

impl TextModel for Gemma4 {
    fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if text.len() > MAX_TEXT {
            return Err(TokenizerError::TextTooLong { found: text.len(), max: MAX_TEXT });
        }
        let mut merger = Merger::default();
        let mut last_unknown = false;
        for run in newline_runs(text) {
            if run.starts_with('\n')
                && let Some(id) = vocab.mergeable_id(run)
            {
                out.push(id);
                last_unknown = false;
                continue;
            }
            merger.clear();
            let mut utf8 = [0; 4];
            for c in run.chars() {
                let c = if c == ' ' { SPACE } else { c };
                let token = vocab.mergeable_id(c.encode_utf8(&mut utf8));
                merger.push(token.map_or(Symbol::Char(c), Symbol::Token));
            }
            for symbol in merger.run(&self.merges) {
                match symbol {
                    Symbol::Token(id) => {
                        out.push(id);
                        last_unknown = false;
                    }
                    Symbol::Char(c) => self.fall_back(vocab, c, &mut last_unknown, out)?,
                    Symbol::Joined => {}
                }
            }
        }
        Ok(())
    }

    fn token_bytes(&self, vocab: &Vocab, id: u32, out: &mut Vec<u8>) {
        let Some(piece) = vocab.piece(id) else { return };
        match vocab.byte_of(id) {
            Some(byte) => out.push(byte),
            None if piece.text.contains(SPACE) => {
                out.extend_from_slice(piece.text.replace(SPACE, " ").as_bytes());
            }
            None => out.extend_from_slice(piece.text.as_bytes()),
        }
    }
}

impl Gemma4 {
    /// Appends what stands for a character without a token.
    fn fall_back(
        &self,
        vocab: &Vocab,
        c: char,
        last_unknown: &mut bool,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let before = out.len();
        for &byte in c.encode_utf8(&mut [0; 4]).as_bytes() {
            let Some(id) = vocab.byte_id(byte) else {
                out.truncate(before);
                let unknown = self.unknown.ok_or(TokenizerError::Unencodable { found: c })?;
                if !*last_unknown {
                    out.push(unknown);
                }
                *last_unknown = true;
                return Ok(());
            };
            out.push(id);
        }
        *last_unknown = false;
        Ok(())
    }
}

/// Splits a text into its longest runs of newlines and of other characters.
fn newline_runs(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let newlines = rest.starts_with('\n');
        let end = rest.find(|c| (c == '\n') != newlines).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(end);
        rest = tail;
        (!run.is_empty()).then_some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_the_text() {
        for (text, expected) in [
            ("", vec![]),
            ("a", vec!["a"]),
            ("\n\n", vec!["\n\n"]),
            ("a\n\nb c\n", vec!["a", "\n\n", "b c", "\n"]),
            ("\r\n\nx", vec!["\r", "\n\n", "x"]),
        ] {
            assert_eq!(newline_runs(text).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }
}
