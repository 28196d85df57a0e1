//! Finding control and user-defined tokens in a text: the leftmost one, and of those that start at the same
//! place the longest.

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};

use super::TokenizerError;
use super::vocab::{TokenKind, Vocab};

/// Longest special token that is accepted. Each search may look this far beyond a match.
const MAX_SPECIAL: usize = 1024;

/// Automata over the special tokens of a vocabulary.
pub(crate) struct SpecialMatcher {
    /// Control, unknown and user-defined tokens.
    all: Automaton,
    /// Tokens that the file types as user-defined.
    user: Automaton,
    /// The same without markers ([`Vocab::is_guarded`]), if there are any.
    unguarded: Option<Automaton>,
}

/// A special token found in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) id: u32,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// True for tokens that messages may contain.
    free: bool,
}

struct Automaton {
    search: AhoCorasick,
    /// Token of each pattern, and whether messages may contain it.
    ids: Vec<(u32, bool)>,
}

impl SpecialMatcher {
    pub(crate) fn new(vocab: &Vocab) -> Result<SpecialMatcher, TokenizerError> {
        let unguarded = vocab.has_guarded().then(|| {
            Automaton::new(vocab, |id, kind| kind == TokenKind::UserDefined && !vocab.is_guarded(id))
        });
        Ok(SpecialMatcher {
            all: Automaton::new(vocab, |_, kind| kind.is_control() || kind == TokenKind::UserDefined)?,
            user: Automaton::new(vocab, |_, kind| kind == TokenKind::UserDefined)?,
            unguarded: unguarded.transpose()?,
        })
    }

    /// The next special token at or after `from`.
    pub(crate) fn next(&self, text: &str, from: usize) -> Option<Found> {
        self.all.find(text, from)
    }

    /// The next user-defined token at or after `from`.
    pub(crate) fn next_user(&self, text: &str, from: usize) -> Option<Found> {
        self.user.find(text, from)
    }

    /// The next special token at or after `from`, in a text with places where only tokens that messages may
    /// contain count.
    pub(crate) fn next_guarded(
        &self,
        text: &str,
        from: usize,
        may_start: impl Fn(usize) -> bool,
    ) -> Option<Found> {
        let mut at = from;
        loop {
            let found = self.all.find(text, at)?;
            if found.free || may_start(found.start) {
                return Some(found);
            }
            // The token is text here. A shorter one that messages may contain can start at the same place;
            // otherwise the search goes on behind the first character.
            if let Some(free) = self.unguarded.as_ref().unwrap_or(&self.user).find_at(text, found.start) {
                return Some(free);
            }
            at = found.start + text[found.start..].chars().next().map_or(1, char::len_utf8);
        }
    }
}

impl Automaton {
    fn new(vocab: &Vocab, wanted: impl Fn(u32, TokenKind) -> bool) -> Result<Automaton, TokenizerError> {
        let mut ids = Vec::new();
        let mut patterns = Vec::new();
        for (id, piece) in vocab.iter().filter(|(id, p)| wanted(*id, p.kind) && !p.text.is_empty()) {
            if piece.text.len() > MAX_SPECIAL {
                return Err(TokenizerError::SpecialTooLong { id, found: piece.text.len(), max: MAX_SPECIAL });
            }
            ids.push((id, piece.kind == TokenKind::UserDefined && !vocab.is_guarded(id)));
            patterns.push(piece.text);
        }
        // Not a DFA: its size is not linear in that of the patterns, and the patterns come from a file.
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .start_kind(aho_corasick::StartKind::Both)
            .build(patterns)
            .map_err(|e| TokenizerError::Specials { reason: e.to_string() })?;
        Ok(Automaton { search, ids })
    }

    fn find(&self, text: &str, from: usize) -> Option<Found> {
        self.search(Input::new(text).range(from..))
    }

    fn find_at(&self, text: &str, at: usize) -> Option<Found> {
        self.search(Input::new(text).range(at..).anchored(aho_corasick::Anchored::Yes))
    }

    fn search(&self, input: Input<'_>) -> Option<Found> {
        let found = self.search.find(input)?;
        let (id, free) = self.ids[found.pattern().as_usize()];
        Some(Found { id, start: found.start(), end: found.end(), free })
    }
}
