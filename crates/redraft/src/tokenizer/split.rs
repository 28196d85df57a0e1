//! Splitting a text into the pieces that are encoded one by one, as byte-level tokenizers do before merging.
//!
//! Tokenizer files describe the split by regular expressions with look-ahead, and their usual engines backtrack.
//! Here the search is linear in the text. The only look-ahead that matters is the ending
//! `\s+(?!\S)|\s+`: a run of white space leaves its last character to the visible text behind it. It is a
//! pattern of its own (`\s+`), and where it matches in front of something, the last character is given back.
//!
//! Steps are applied one after another, each to the pieces of the one before, as if every piece were a text of
//! its own. What lies between two matches is a piece too.

use std::ops::Range;

use regex_automata::Input;
use regex_automata::meta::{Cache, Regex};

/// One step of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Each match of the pattern is a piece.
    Each(&'static str),
    /// Each match of the pattern is a piece; elsewhere runs of white space are, without their last character
    /// where something visible follows: the ending `\s+(?!\S)|\s+` of the pattern in a tokenizer file.
    Words(&'static str),
    /// Runs of decimal digits are cut into groups of three from the right: `(?=(\d{3})+(?!\d))`.
    Triples,
}

/// White space, the second pattern of [`Step::Words`].
const SPACES: &str = r"\s+";

/// A step, ready to run.
enum Search {
    Each(Regex),
    Words(Regex),
    Triples(Regex),
}

/// Splits texts by the steps it was made of.
pub(crate) struct Splitter {
    steps: Vec<Search>,
}

impl Splitter {
    /// Compiles the steps.
    pub(crate) fn new(steps: &[Step]) -> Splitter {
        let compile = |patterns: &[&str]| {
            Regex::new_many(patterns)
                .expect("the patterns are part of this program, and a test compiles all of them")
        };
        let search = |step: &Step| match step {
            Step::Each(pattern) => Search::Each(compile(&[pattern])),
            Step::Words(pattern) => Search::Words(compile(&[pattern, SPACES])),
            Step::Triples => Search::Triples(compile(&[r"\d+"])),
        };
        Splitter { steps: steps.iter().map(search).collect() }
    }

    /// The pieces of `text` in order. They cover it.
    pub(crate) fn split(&self, text: &str) -> Vec<Range<usize>> {
        let mut pieces: Vec<Range<usize>> = (!text.is_empty()).then_some(0..text.len()).into_iter().collect();
        for step in &self.steps {
            let mut cache = step.regex().create_cache();
            let mut finer = Vec::with_capacity(pieces.len());
            for piece in pieces {
                step.run(&mut cache, &text[piece.clone()], piece.start, &mut finer);
            }
            pieces = finer;
        }
        pieces
    }
}

impl Search {
    fn regex(&self) -> &Regex {
        let (Search::Each(regex) | Search::Words(regex) | Search::Triples(regex)) = self;
        regex
    }

    /// Appends the pieces of `text`, which starts at `offset` of the whole.
    fn run(&self, cache: &mut Cache, text: &str, offset: usize, out: &mut Vec<Range<usize>>) {
        let mut push = |start: usize, end: usize| {
            if start < end {
                out.push(offset + start..offset + end);
            }
        };
        let mut done = 0; // where the piece that is open starts
        let mut input = Input::new(text);
        while let Some(found) = self.regex().search_with(cache, &input) {
            let (start, mut end) = (found.start(), found.end());
            if let Search::Triples(_) = self {
                // A digit is one character, but not always one byte.
                let mut left = text[start..end].chars().count();
                for (at, _) in text[start..end].char_indices() {
                    if left.is_multiple_of(3) {
                        push(done, start + at);
                        done = start + at;
                    }
                    left -= 1;
                }
            } else {
                // Only the second pattern of `Words` is white space that gives its last character back, and a
                // single character has nothing in front of it to be a piece of its own.
                if found.pattern().as_usize() == 1 && end < text.len() {
                    let last = text[start..end].char_indices().next_back().map_or(0, |(at, _)| at);
                    end = if last > 0 { start + last } else { end };
                }
                push(done, start);
                push(start, end);
                done = end;
            }
            // No pattern matches the empty text, so that the search moves on.
            input.set_start(end);
        }
        push(done, text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(steps: &[Step], cases: &[(&str, &[&str])]) {
        let splitter = Splitter::new(steps);
        for (text, expected) in cases {
            let found: Vec<&str> = splitter.split(text).into_iter().map(|r| &text[r]).collect();
            assert_eq!(found, *expected, "{text:?}");
        }
    }

    #[test]
    fn white_space_leaves_its_last_character() {
        check(
            &[Step::Words(r" ?\p{L}+")],
            &[
                ("", &[]),
                ("a", &["a"]),
                ("a b", &["a", " b"]),
                ("a   b", &["a", "  ", " b"]),
                ("a\n\nb", &["a", "\n", "\n", "b"]),
                ("a  ", &["a", "  "]),
                ("  ", &["  "]),
                ("\u{a0}\u{a0}\u{a0}é", &["\u{a0}\u{a0}", "\u{a0}", "é"]),
                // What no pattern matches is a piece.
                ("a12b  -", &["a", "12", "b", " ", " ", "-"]),
            ],
        );
    }

    #[test]
    fn steps_see_the_pieces_of_the_one_before() {
        check(
            &[Step::Each(r"\p{N}"), Step::Words(r" ?\p{L}+")],
            &[("a12 b", &["a", "1", "2", " b"]), ("a  1", &["a", "  ", "1"])],
        );
        check(&[Step::Each("[\r\n]"), Step::Each(r"\s+$")], &[("a  \n", &["a", "  ", "\n"])]);
    }

    #[test]
    fn digits_are_grouped_from_the_right() {
        check(
            &[Step::Each(r"\p{N}+"), Step::Triples],
            &[
                ("1234567 of 12", &["1", "234", "567", " of ", "12"]),
                ("123", &["123"]),
                ("123456", &["123", "456"]),
                ("½1234", &["½1", "234"]),
                ("1234½", &["1", "234½"]),
            ],
        );
    }
}
