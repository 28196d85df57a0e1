//! What the kinds that start from characters and write a space as `▁` have in common.

use super::super::TokenizerError;
use super::super::bpe::{MergeTable, Merger, Symbol};
use super::super::vocab::Vocab;
use super::fallback::Fallback;

/// How a space is written in the vocabulary.
pub(super) const SPACE: char = '\u{2581}';

/// Longest text that is encoded at once. Writing spaces as `▁` makes a text at most three times as long, and
/// places in the chain of symbols are 32-bit.
const MAX_TEXT: usize = u32::MAX as usize / 4;

/// Refuses texts whose places cannot be indexed.
pub(super) fn check_length(text: &str) -> Result<(), TokenizerError> {
    if text.len() > MAX_TEXT {
        return Err(TokenizerError::TextTooLong { found: text.len(), max: MAX_TEXT });
    }
    Ok(())
}

/// Merges the characters of `text` by rank.
pub(super) fn merge(
    vocab: &Vocab,
    merges: &MergeTable,
    merger: &mut Merger,
    text: &str,
    out: &mut Fallback<'_>,
) -> Result<(), TokenizerError> {
    merger.clear();
    let mut utf8 = [0; 4];
    for c in text.chars() {
        let c = if c == ' ' { SPACE } else { c };
        let token = vocab.mergeable_id(c.encode_utf8(&mut utf8));
        merger.push(token.map_or(Symbol::Char(c), Symbol::Token));
    }
    for symbol in merger.run(merges) {
        match symbol {
            Symbol::Token(id) => out.token(id),
            Symbol::Char(c) => out.character(c)?,
            Symbol::Joined => {}
        }
    }
    Ok(())
}

/// Appends the bytes of a token.
pub(super) fn token_bytes(vocab: &Vocab, id: u32, out: &mut Vec<u8>) {
    let Some(piece) = vocab.piece(id) else { return };
    match vocab.byte_of(id) {
        Some(byte) => out.push(byte),
        None if piece.text.contains(SPACE) => {
            out.extend_from_slice(piece.text.replace(SPACE, " ").as_bytes());
        }
        None => out.extend_from_slice(piece.text.as_bytes()),
    }
}
