//! The vocabulary: texts, kinds, and the way from a text to its id.

use std::hash::{BuildHasher, RandomState};

use redraft_gguf::StrArray;

use super::TokenizerError;
use super::parts::{TokenizerParts, key};

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Stands for text that cannot be encoded.
    Unknown,
    /// Has a meaning for the model, such as the end of a turn. Never the encoding of plain text.
    Control,
    /// Spelled out in a text and always recognised there.
    UserDefined,
    /// A reserved place in the vocabulary.
    Unused,
    /// One byte of a character that has no token of its own.
    Byte,
}

impl TokenKind {
    /// The kind for a value of `tokenizer.ggml.token_type`.
    fn from_gguf(value: i32) -> Option<TokenKind> {
        Some(match value {
            1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => return None,
        })
    }

    /// True for tokens that plain text must never become: they steer the model instead of being read by it.
    pub fn is_control(self) -> bool {
        matches!(self, TokenKind::Control | TokenKind::Unknown)
    }

    /// True for tokens that merging may produce from plain text. A byte token is excluded because its text
    /// (`<0x41>`) is not what it stands for (`A`).
    pub(crate) fn is_mergeable(self) -> bool {
        !self.is_control() && self != TokenKind::Byte
    }
}

/// A token of the vocabulary, as [`Tokenizer::piece`](super::Tokenizer::piece) shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The text as it stands in the vocabulary (`▁the`, `<0x41>`), not as it is decoded.
    pub text: &'a str,
    /// What the token is for.
    pub kind: TokenKind,
}

/// An id that no token has: the vocabulary is limited to fewer tokens than that.
const NONE: u32 = u32::MAX;

/// Largest vocabulary that is accepted, 64 times the largest one in use. It bounds what a file can make the
/// tokenizer allocate per token.
const MAX_VOCAB: usize = 1 << 24;

/// Texts and kinds by id, and ids by text.
pub(crate) struct Vocab {
    texts: StrArray,
    kinds: Vec<TokenKind>,
    /// Token of each byte.
    bytes: [u32; 256],
    /// Open addressing with linear probing, ids only: the texts are compared in place. Building a file's
    /// tokenizer does two million look-ups, and this table is a tenth of the size of a map that owns its keys.
    table: Vec<u32>,
    /// Keyed per process, so that a file cannot be made to collide.
    hasher: RandomState,
}

impl Vocab {
    /// Checks tokens and types and indexes them.
    pub(crate) fn new(parts: &TokenizerParts) -> Result<Vocab, TokenizerError> {
        let n = parts.tokens.len();
        if n == 0 || n > MAX_VOCAB {
            return Err(TokenizerError::VocabSize { found: n, max: MAX_VOCAB });
        }
        let types = parts.types.as_ref().ok_or(TokenizerError::MissingKey {
            key: key::TYPES,
            needed_for: "without it control tokens cannot be told from text",
        })?;
        for (key, len) in
            [(key::TYPES, Some(types.len())), (key::SCORES, parts.scores.as_ref().map(Vec::len))]
        {
            if let Some(found) = len.filter(|&found| found != n) {
                return Err(TokenizerError::WrongLength { key, found, expected: n });
            }
        }

        let mut vocab = Vocab {
            texts: parts.tokens.clone(),
            kinds: Vec::with_capacity(n),
            bytes: [NONE; 256],
            table: vec![NONE; (n * 2).next_power_of_two()],
            hasher: RandomState::new(),
        };
        for (id, (text, &found)) in (0u32..).zip(parts.tokens.iter().zip(types)) {
            let kind = TokenKind::from_gguf(found).ok_or(TokenizerError::TokenType { id, found })?;
            vocab.kinds.push(kind);
            if kind == TokenKind::Byte {
                vocab.add_byte(id, text)?;
            }
            // An empty token can be neither searched for nor merged; it is only ever decoded.
            if text.is_empty() {
                continue;
            }
            let slot = vocab.slot(text);
            if vocab.table[slot] != NONE {
                let first = vocab.table[slot];
                return Err(TokenizerError::DuplicateToken { text: text.to_owned(), first, second: id });
            }
            vocab.table[slot] = id;
        }
        Ok(vocab)
    }

    fn add_byte(&mut self, id: u32, text: &str) -> Result<(), TokenizerError> {
        let digits = text.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
        let byte = digits
            .filter(|d| d.len() == 2 && d.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|d| u8::from_str_radix(d, 16).ok())
            .ok_or_else(|| TokenizerError::ByteToken { id, text: text.to_owned() })?;
        let entry = &mut self.bytes[usize::from(byte)];
        if *entry != NONE {
            return Err(TokenizerError::DuplicateByte { byte, first: *entry, second: id });
        }
        *entry = id;
        Ok(())
    }

    /// The place of `text` in the table: where its id is, or where it would be put.
    fn slot(&self, text: &str) -> usize {
        let mask = self.table.len() - 1;
        let mut slot = self.hasher.hash_one(text) as usize & mask;
        // Ends because at most half of the table is filled.
        while self.table[slot] != NONE && self.text(self.table[slot]) != text {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The token whose text is exactly `text`.
    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        Some(self.table[self.slot(text)]).filter(|&id| id != NONE)
    }

    /// The token that plain text spelled `text` may become.
    pub(crate) fn mergeable_id(&self, text: &str) -> Option<u32> {
        self.id(text).filter(|&id| self.kind(id).is_mergeable())
    }

    /// The token of a byte.
    pub(crate) fn byte_id(&self, byte: u8) -> Option<u32> {
        Some(self.bytes[usize::from(byte)]).filter(|&id| id != NONE)
    }

    /// The byte that a byte token stands for. Byte tokens were checked when the vocabulary was built.
    pub(crate) fn byte_of(&self, id: u32) -> Option<u8> {
        let piece = self.piece(id)?;
        if piece.kind != TokenKind::Byte {
            return None;
        }
        u8::from_str_radix(piece.text.get(3..5)?, 16).ok()
    }

    /// The token `id`.
    pub(crate) fn piece(&self, id: u32) -> Option<Piece<'_>> {
        let index = id as usize;
        Some(Piece { text: self.texts.get(index)?, kind: *self.kinds.get(index)? })
    }

    /// Text of a token that is known to exist.
    fn text(&self, id: u32) -> &str {
        self.texts.get(id as usize).expect("ids in the table are below the number of tokens")
    }

    /// Kind of a token that is known to exist.
    fn kind(&self, id: u32) -> TokenKind {
        self.kinds[id as usize]
    }

    /// All tokens with their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Piece<'_>)> {
        (0u32..).zip(self.texts.iter().zip(&self.kinds)).map(|(id, (text, &kind))| (id, Piece { text, kind }))
    }
}
