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
use super::super::bpe::{MergeTable, Merger};
use super::super::parts::{TokenizerParts, key};
use super::super::vocab::Vocab;
use super::fallback::Fallback;
use super::{Kind, TextModel, characters};

pub(super) const KIND: Kind = Kind { name: "gemma4", byte_tokens: true, sentence_ends: false, build };

struct Gemma4 {
    merges: MergeTable,
    unknown: Option<u32>,
}

fn build(
    vocab: &Vocab,
    parts: &TokenizerParts,
    notes: &mut Vec<String>,
) -> Result<Box<dyn TextModel>, TokenizerError> {
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
    Ok(Box::new(Gemma4 { merges: MergeTable::new(vocab, merges, notes)?, unknown: parts.unknown }))
}

impl TextModel for Gemma4 {
    fn encode(
        &self,
        vocab: &Vocab,
        text: &str,
        _inside: bool,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        characters::check_length(text)?;
        let mut out = Fallback::new(vocab, self.unknown, out);
        let mut merger = Merger::default();
        for run in newline_runs(text) {
            match vocab.mergeable_id(run).filter(|_| run.starts_with('\n')) {
                Some(id) => out.token(id),
                None => characters::merge(vocab, &self.merges, &mut merger, run, &mut out)?,
            }
        }
        Ok(())
    }

    fn token_bytes(&self, vocab: &Vocab, id: u32, out: &mut Vec<u8>) {
        characters::token_bytes(vocab, id, out);
    }

    fn add_bos(&self) -> bool {
        true
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
