//! `gpt2`: byte-pair encoding of bytes.
//!
//! 1. The text is normalised, if its vocabulary was trained that way ([`Normalizer`]).
//! 2. It is split into pieces, as `tokenizer.ggml.pre` says ([`pre`]).
//! 3. Each piece is merged by rank, starting from its bytes. Vocabularies write a byte as a printable
//!    character: those that Latin-1 prints as themselves, the others as U+0100 and up in ascending order.
//!
//! Nothing is cleaned up in decoded text (some libraries take the space before a full stop away): it could not
//! be streamed, and it would alter what the model wrote.

use super::super::TokenizerError;
use super::super::bpe::{MergeTable, Merger, Symbol};
use super::super::normalize::Normalizer;
use super::super::parts::{TokenizerParts, key};
use super::super::pre::{self, Pre};
use super::super::split::Splitter;
use super::super::vocab::{TokenKind, Vocab};
use super::fallback::Fallback;
use super::{Kind, TextModel};

pub(super) const KIND: Kind = Kind { name: "gpt2", byte_tokens: false, sentence_ends: true, build };

/// Longest text that is encoded at once. Normalisation makes a text at most three times as long, and places in
/// the chain of symbols are 32-bit.
const MAX_TEXT: usize = u32::MAX as usize / 4;

struct Gpt2 {
    pre: &'static Pre,
    splitter: Splitter,
    normalizer: Normalizer,
    merges: MergeTable,
    /// The token of each byte.
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
}

fn build(
    vocab: &Vocab,
    parts: &TokenizerParts,
    notes: &mut Vec<String>,
) -> Result<Box<dyn TextModel>, TokenizerError> {
    let name = parts.pre.as_deref().unwrap_or_else(|| {
        notes.push(format!(
            "the file names no pre-tokenizer (\"{}\"); taking {:?}, which may split text in other places than the \
             model learned",
            key::PRE,
            pre::DEFAULT
        ));
        pre::DEFAULT
    });
    let pre = pre::find(name)
        .ok_or_else(|| TokenizerError::UnknownPre { found: name.to_owned(), known: pre::names() })?;
    let merges = parts.merges.as_ref().ok_or(TokenizerError::MissingKey {
        key: key::MERGES,
        needed_for: "text is encoded by merge rank",
    })?;
    let mut bytes = [None; 256];
    for (byte, token) in (0..=u8::MAX).zip(&mut bytes) {
        *token = vocab.mergeable_id(byte_to_char(byte).encode_utf8(&mut [0; 2]));
    }
    Ok(Box::new(Gpt2 {
        pre,
        splitter: Splitter::new(pre.steps),
        normalizer: normalizer(name, vocab, parts, notes),
        merges: MergeTable::new(vocab, merges, notes)?,
        bytes,
        unknown: parts.unknown,
    }))
}

fn normalizer(pre: &str, vocab: &Vocab, parts: &TokenizerParts, notes: &mut Vec<String>) -> Normalizer {
    // What the caller asks for spares reading megabytes of JSON.
    let json = parts.tokenizer_json.as_deref().filter(|_| parts.normalizer.is_none());
    let stated = json.map(Normalizer::of_tokenizer_json);
    match (parts.normalizer, stated) {
        (Some(asked), _) => asked,
        (None, Some(Ok(stated))) => stated,
        (None, Some(Err(problem))) => {
            let known = Normalizer::of_vocabulary(pre, vocab);
            let taken = match known {
                Normalizer::None => "text is taken as it is",
                Normalizer::Nfc => "taking NFC, as for this vocabulary",
            };
            notes.push(format!("\"{}\" {problem}; {taken}", key::TOKENIZER_JSON));
            known
        }
        (None, None) => Normalizer::of_vocabulary(pre, vocab),
    }
}

impl TextModel for Gpt2 {
    fn encode(
        &self,
        vocab: &Vocab,
        text: &str,
        _inside: bool,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        if text.len() > MAX_TEXT {
            return Err(TokenizerError::TextTooLong { found: text.len(), max: MAX_TEXT });
        }
        let text = &*self.normalizer.apply(text);
        let mut out = Fallback::new(vocab, self.unknown, out);
        let mut merger = Merger::default();
        let mut spelled = String::new();
        for piece in self.splitter.split(text) {
            let piece = &text[piece];
            if self.pre.ignore_merges {
                spelled.clear();
                spelled.extend(piece.bytes().map(byte_to_char));
                if let Some(id) = vocab.mergeable_id(&spelled) {
                    out.token(id);
                    continue;
                }
            }
            merger.clear();
            for byte in piece.bytes() {
                let symbol = match self.bytes[usize::from(byte)] {
                    Some(id) => Symbol::Token(id),
                    None => Symbol::Char(char::from(byte)),
                };
                merger.push(symbol);
            }
            for symbol in merger.run(&self.merges) {
                match symbol {
                    Symbol::Token(id) => out.token(id),
                    Symbol::Char(byte) => out
                        .unknown()
                        .map_err(|()| TokenizerError::UnencodableByte { byte: u32::from(byte) as u8 })?,
                    Symbol::Joined => {}
                }
            }
        }
        Ok(())
    }

    fn token_bytes(&self, vocab: &Vocab, id: u32, out: &mut Vec<u8>) {
        let Some(piece) = vocab.piece(id) else { return };
        if piece.kind != TokenKind::Normal && piece.kind != TokenKind::Unused {
            // Special tokens are spelled as they are.
            out.extend_from_slice(piece.text.as_bytes());
            return;
        }
        for c in piece.text.chars() {
            match char_to_byte(c) {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }

    fn add_bos(&self) -> bool {
        self.pre.add_bos
    }
}

/// Bytes that are written as themselves: those that Latin-1 prints.
fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// How a byte is written in the vocabulary.
fn byte_to_char(byte: u8) -> char {
    let from_u32 = |code: u32| char::from_u32(code).expect("codes below U+0144 are characters");
    match byte {
        _ if is_printable(byte) => char::from(byte),
        0..=0x20 => from_u32(0x100 + u32::from(byte)),
        0x7F..=0xA0 => from_u32(0x121 + u32::from(byte - 0x7F)),
        // 0xAD, the only one left.
        _ => from_u32(0x143),
    }
}

/// The byte that a character of the vocabulary stands for.
fn char_to_byte(c: char) -> Option<u8> {
    let code = u32::from(c);
    let byte = match code {
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return u8::try_from(code).ok().filter(|&b| is_printable(b)),
    };
    u8::try_from(byte).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_reversibly() {
        let chars: Vec<char> = (0..=255).map(byte_to_char).collect();
        for (byte, &c) in (0u8..=255).zip(&chars) {
            assert_eq!(char_to_byte(c), Some(byte));
        }
        // Space, newline, delete, no-break space and soft hyphen, as every such vocabulary has them.
        assert_eq!([0x20, 0x0A, 0x7F, 0xA0, 0xAD].map(|b: usize| chars[b]), ['Ġ', 'Ċ', 'ġ', 'ł', 'Ń']);
        for c in [' ', '\n', '\u{ad}', '\u{144}', '日'] {
            assert_eq!(char_to_byte(c), None, "{c:?}");
        }
    }
}
