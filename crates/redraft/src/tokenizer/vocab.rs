//! The vocabulary: texts, kinds, and the way from a text to its id.

use std::hash::{BuildHasher, RandomState};

use redraft_gguf::StrArray;

use super::TokenizerError;
use super::kinds::Kind;
use super::markers;
use super::parts::{TokenizerParts, key};

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A piece of text.
    Normal = 1,
    /// Stands for text that cannot be encoded.
    Unknown = 2,
    /// Has a meaning for the model, such as the end of a turn. Never the encoding of plain text.
    Control = 3,
    /// Spelled out in a text and always recognised there.
    UserDefined = 4,
    /// A reserved place in the vocabulary.
    Unused = 5,
    /// One byte of a character that has no token of its own.
    Byte = 6,
}

impl TokenKind {
    /// The kind for a value of `tokenizer.ggml.token_type`.
    fn from_gguf(value: i32) -> Option<TokenKind> {
        use TokenKind::{Byte, Control, Normal, Unknown, Unused, UserDefined};
        [Normal, Unknown, Control, UserDefined, Unused, Byte].into_iter().find(|kind| kind.to_gguf() == value)
    }

    /// The value of `tokenizer.ggml.token_type`.
    pub(crate) const fn to_gguf(self) -> i32 {
        self as i32
    }

    /// True for tokens that plain text must never become: they steer the model instead of being read by it.
    pub fn is_control(self) -> bool {
        matches!(self, TokenKind::Control | TokenKind::Unknown)
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
    /// Markers that the file types as user-defined, ascending.
    guarded: Vec<u32>,
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
    pub(crate) fn new(
        parts: &TokenizerParts,
        kind: &Kind,
        notes: &mut Vec<String>,
    ) -> Result<Vocab, TokenizerError> {
        let n = parts.tokens.len();
        if n == 0 || n > MAX_VOCAB {
            return Err(TokenizerError::VocabSize { found: n, max: MAX_VOCAB });
        }
        let lengths = [
            (key::TYPES, parts.types.as_ref().map(Vec::len)),
            (key::SCORES, parts.scores.as_ref().map(Vec::len)),
        ];
        for (key, len) in lengths {
            if let Some(found) = len.filter(|&found| found != n) {
                return Err(TokenizerError::WrongLength { key, found, expected: n });
            }
        }
        if parts.types.is_none() {
            notes.push(format!(
                "the file has no token types (\"{}\"); tokens that look like markers are taken for control tokens",
                key::TYPES
            ));
        }

        let mut vocab = Vocab {
            texts: parts.tokens.clone(),
            kinds: Vec::with_capacity(n),
            guarded: Vec::new(),
            bytes: [NONE; 256],
            table: vec![NONE; (n * 2).next_power_of_two()],
            hasher: RandomState::new(),
        };
        let mut mistyped = Listed::default();
        let mut repeated = Listed::default();
        for (id, text) in (0u32..).zip(parts.tokens.iter()) {
            let mut token_kind = match &parts.types {
                Some(types) => {
                    let found = types[id as usize];
                    TokenKind::from_gguf(found).ok_or(TokenizerError::TokenType { id, found })?
                }
                None => guessed_kind(id, text, parts, kind),
            };
            if !token_kind.is_control() && token_kind != TokenKind::Byte && markers::is_marker(text) {
                mistyped.add(|| format!("{text:?} ({id})"));
                if token_kind == TokenKind::UserDefined {
                    vocab.guarded.push(id);
                } else {
                    token_kind = TokenKind::Control;
                }
            }
            vocab.kinds.push(token_kind);
            let mut first = NONE;
            if token_kind == TokenKind::Byte {
                let byte =
                    byte_of(text).ok_or_else(|| TokenizerError::ByteToken { id, text: text.to_owned() })?;
                first = claim(&mut vocab.bytes[usize::from(byte)], id);
            }
            // An empty token can be neither searched for nor merged; it is only ever decoded.
            if !text.is_empty() {
                let slot = vocab.slot(text);
                first = claim(&mut vocab.table[slot], id).min(first);
            }
            if first != NONE {
                repeated.add(|| format!("{text:?} ({first} and {id})"));
            }
        }
        notes.extend(mistyped.note(
            "markers of the chat are typed as text in the file",
            "they are treated as control tokens: messages cannot contain them",
        ));
        notes.extend(repeated.note("texts are in the vocabulary twice", "the lower id encodes them"));
        Ok(vocab)
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

    /// Whether there are guarded tokens.
    pub(crate) fn has_guarded(&self) -> bool {
        !self.guarded.is_empty()
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
        self.id(text).filter(|&id| self.is_mergeable(id))
    }

    /// True for tokens that merging may produce from plain text. A byte token is excluded because its text
    /// (`<0x41>`) is not what it stands for (`A`).
    pub(crate) fn is_mergeable(&self, id: u32) -> bool {
        let kind = self.kind(id);
        !kind.is_control() && kind != TokenKind::Byte && !self.is_guarded(id)
    }

    /// True for a token that the file types as user-defined although it is a marker. It is recognised where the
    /// file asks for it, except inside messages.
    pub(crate) fn is_guarded(&self, id: u32) -> bool {
        self.guarded.binary_search(&id).is_ok()
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
        byte_of(piece.text)
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

/// Puts `id` where no id is yet; what was there before.
fn claim(place: &mut u32, id: u32) -> u32 {
    let before = *place;
    *place = before.min(id);
    before
}

/// The byte that a text of the form `<0xNN>` stands for.
fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok())?
}

/// What a token of a file without types is for, as far as its text and the named ids say.
fn guessed_kind(id: u32, text: &str, parts: &TokenizerParts, kind: &Kind) -> TokenKind {
    if parts.unknown == Some(id) {
        TokenKind::Unknown
    } else if parts.names(id) || markers::looks_like_marker(text) {
        TokenKind::Control
    } else if kind.byte_tokens && byte_of(text).is_some() {
        TokenKind::Byte
    } else {
        TokenKind::Normal
    }
}

/// Tokens with the same fault, for one note.
#[derive(Default)]
struct Listed {
    count: usize,
    /// The first of them.
    shown: Vec<String>,
}

impl Listed {
    /// How many are named.
    const MAX_SHOWN: usize = 16;

    fn add(&mut self, token: impl FnOnce() -> String) {
        self.count += 1;
        if self.shown.len() < Listed::MAX_SHOWN {
            self.shown.push(token());
        }
    }

    fn note(&self, what: &str, done: &str) -> Option<String> {
        let more = self.count - self.shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (self.count > 0).then(|| format!("{what}: {}{more}; {done}", self.shown.join(", ")))
    }
}
