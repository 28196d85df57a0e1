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
    /// Guarded and user-defined tokens.
    file: Automaton,
    /// User-defined tokens only.
    user: Automaton,
}

/// A special token found in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) id: u32,
    pub(crate) start: usize,
    pub(crate) end: usize,
    class: Class,
}

/// Where a special token is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Control and unknown tokens: where the caller says so.
    Control,
    /// Markers that the file types as user-defined: everywhere, except in messages.
    Guarded,
    /// User-defined tokens: everywhere.
    User,
}

struct Automaton {
    search: AhoCorasick,
    /// Token of each pattern.
    ids: Vec<(u32, Class)>,
}

impl SpecialMatcher {
    pub(crate) fn new(vocab: &Vocab) -> Result<SpecialMatcher, TokenizerError> {
        Ok(SpecialMatcher {
            all: Automaton::new(vocab, |_| true)?,
            file: Automaton::new(vocab, |class| class != Class::Control)?,
            user: Automaton::new(vocab, |class| class == Class::User)?,
        })
    }

    /// The next special token at or after `from`. A token of another class than user-defined counts only if it
    /// may start where it does.
    pub(crate) fn next(
        &self,
        text: &str,
        from: usize,
        may_start: impl Fn(usize, Class) -> bool,
    ) -> Option<Found> {
        let allowed = |found: &Found| found.class == Class::User || may_start(found.start, found.class);
        let mut at = from;
        loop {
            let found = self.all.find(text, at)?;
            if allowed(&found) {
                return Some(found);
            }
            // The token is text here. A shorter one of another class may start at the same place; otherwise the
            // search goes on behind the first character.
            let shorter = [&self.file, &self.user]
                .into_iter()
                .find_map(|a| a.find_at(text, found.start).filter(allowed));
            if shorter.is_some() {
                return shorter;
            }
            at = found.start + text[found.start..].chars().next().map_or(1, char::len_utf8);
        }
    }
}

impl Automaton {
    fn new(vocab: &Vocab, wanted: impl Fn(Class) -> bool) -> Result<Automaton, TokenizerError> {
        let mut ids = Vec::new();
        let mut patterns = Vec::new();
        for (id, piece) in vocab.iter().filter(|(_, p)| !p.text.is_empty()) {
            let class = match piece.kind {
                kind if kind.is_control() => Class::Control,
                TokenKind::UserDefined if vocab.is_guarded(id) => Class::Guarded,
                TokenKind::UserDefined => Class::User,
                _ => continue,
            };
            if !wanted(class) {
                continue;
            }
            if piece.text.len() > MAX_SPECIAL {
                return Err(TokenizerError::SpecialTooLong { id, found: piece.text.len(), max: MAX_SPECIAL });
            }
            ids.push((id, class));
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
        let (id, class) = self.ids[found.pattern().as_usize()];
        Some(Found { id, start: found.start(), end: found.end(), class })
    }
}
