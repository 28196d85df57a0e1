//! From tokens back to text: in one go, as a stream, and position by position.
//!
//! Tokens are first turned into bytes, since a character may be spread over several byte tokens. What is not
//! valid UTF-8 never leaves this module: text shows U+FFFD in its place, a canvas shows the bytes.

use std::fmt::Write as _;

use super::Tokenizer;

/// Stands for an id outside the vocabulary, as it does for invalid bytes.
const REPLACEMENT: &str = "\u{FFFD}";

/// What one position of a canvas shows. Each piece is displayable alone, and all of them one after another
/// read as the canvas does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CanvasPiece {
    /// Text. A character spread over several positions stands at its first one; the text of the others is
    /// empty.
    Text(String),
    /// Bytes that are part of no character, since their neighbours do not complete one.
    PartialUtf8 {
        /// The bytes.
        bytes: Vec<u8>,
    },
}

impl CanvasPiece {
    /// The piece as text; bytes as `⟨E2⟩`.
    pub fn display(&self) -> String {
        match self {
            CanvasPiece::Text(text) => text.clone(),
            CanvasPiece::PartialUtf8 { bytes } => {
                let mut out = String::new();
                push_bytes(&mut out, bytes);
                out
            }
        }
    }
}

/// Appends bytes in their visible form.
fn push_bytes(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(out, "⟨{byte:02X}⟩");
    }
}

impl Tokenizer {
    /// The text of `ids`. Control tokens are left out unless `show_special` is set; user-defined ones are
    /// part of the text. Bytes that form no valid UTF-8 and ids outside the vocabulary become U+FFFD. Where
    /// encoding puts a space in front of a text, one space at the start is taken away.
    pub fn decode(&self, ids: &[u32], show_special: bool) -> String {
        self.decode_part(ids, show_special, self.adds_space())
    }

    /// As [`decode`](Self::decode), where the text goes on with another: a space at the start stays.
    pub fn decode_inside(&self, ids: &[u32], show_special: bool) -> String {
        self.decode_part(ids, show_special, false)
    }

    fn decode_part(&self, ids: &[u32], show_special: bool, strips_space: bool) -> String {
        let mut bytes = Vec::new();
        for &id in ids {
            self.push_token(id, show_special, &mut bytes);
        }
        if strips_space && bytes.first() == Some(&b' ') {
            bytes.remove(0);
        }
        match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        }
    }

    /// What each position of a canvas shows, control tokens included. A canvas is a part of a text: a space at its
    /// start stays.
    pub fn canvas_pieces(&self, ids: &[u32]) -> Vec<CanvasPiece> {
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(ids.len());
        for &id in ids {
            self.push_token(id, true, &mut bytes);
            ends.push(bytes.len());
        }

        // A position shows the characters that start in it and its own bytes that belong to none.
        let mut pieces: Vec<(String, Vec<u8>)> = vec![Default::default(); ids.len()];
        let mut at = 0; // offset into `bytes`
        let mut position = 0;
        let mut advance = |at: usize| {
            while ends.get(position).is_some_and(|&end| end <= at) {
                position += 1;
            }
            position
        };
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                if let Some((text, bytes)) = pieces.get_mut(advance(at)) {
                    push_bytes(text, &std::mem::take(bytes));
                    text.push(c);
                }
                at += c.len_utf8();
            }
            for &byte in chunk.invalid() {
                if let Some((_, bytes)) = pieces.get_mut(advance(at)) {
                    bytes.push(byte);
                }
                at += 1;
            }
        }
        pieces
            .into_iter()
            .map(|(mut text, bytes)| {
                if text.is_empty() && !bytes.is_empty() {
                    return CanvasPiece::PartialUtf8 { bytes };
                }
                push_bytes(&mut text, &bytes);
                CanvasPiece::Text(text)
            })
            .collect()
    }

    /// A decoder for tokens that arrive one by one.
    pub fn stream_decoder(&self, show_special: bool) -> StreamDecoder {
        let strip_space = self.adds_space();
        StreamDecoder { tokenizer: self.clone(), show_special, strip_space, pending: Vec::new() }
    }

    /// The same for text that goes on with another: a space at the start stays.
    pub fn stream_decoder_inside(&self, show_special: bool) -> StreamDecoder {
        StreamDecoder { strip_space: false, ..self.stream_decoder(show_special) }
    }

    /// Appends the bytes of one token.
    /// The bytes that a token stands for, of control tokens their names.
    pub fn bytes_of(&self, id: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.push_token(id, true, &mut bytes);
        bytes
    }

    fn push_token(&self, id: u32, show_special: bool, out: &mut Vec<u8>) {
        match self.piece(id) {
            None => out.extend_from_slice(REPLACEMENT.as_bytes()),
            Some(piece) if piece.kind.is_control() && !show_special => {}
            Some(_) => self.token_bytes(id, out),
        }
    }
}

/// Decodes tokens one by one. A character appears when its last byte has arrived; everything pushed, then
/// finished, reads as [`Tokenizer::decode`] of all of it.
#[derive(Clone)]
pub struct StreamDecoder {
    tokenizer: Tokenizer,
    show_special: bool,
    /// Nothing was decoded yet, and a space that comes first is not part of the text.
    strip_space: bool,
    /// The start of a character that is not complete.
    pending: Vec<u8>,
}

impl StreamDecoder {
    /// Adds a token and returns the text that is complete now; it may be empty.
    pub fn push(&mut self, id: u32) -> String {
        self.tokenizer.push_token(id, self.show_special, &mut self.pending);
        if self.strip_space && !self.pending.is_empty() {
            self.strip_space = false;
            if self.pending[0] == b' ' {
                self.pending.remove(0);
            }
        }
        let mut text = String::new();
        let mut done = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            let invalid = chunk.invalid();
            // Only the last chunk can be the start of a character that further bytes complete.
            let at_end = done + invalid.len() == self.pending.len();
            let may_continue = at_end && std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            if invalid.is_empty() || may_continue {
                break;
            }
            text.push_str(REPLACEMENT);
            done += invalid.len();
        }
        self.pending.drain(..done);
        text
    }

    /// Ends the stream: the start of a character that was never completed becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}
