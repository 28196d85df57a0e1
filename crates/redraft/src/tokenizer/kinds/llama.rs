//! `llama`: byte-pair encoding of Unicode characters by score, as SentencePiece does it.
//!
//! 1. A space is put in front of the text, unless the file says otherwise (`add_space_prefix`), and spaces are
//!    written as U+2581 (`▁`). Nothing is normalised: the models in use were trained without.
//! 2. The text is a chain of symbols, at first one per character. Of all neighbours whose texts together are a
//!    token, the pair with the highest score is joined, the leftmost one on ties, until there is none.
//! 3. A symbol that became a token of type *unused* is taken apart again, the way it was joined.
//! 4. A character without a token becomes the tokens of its UTF-8 bytes, or one unknown token when a byte
//!    has none; unknown tokens next to each other are one.
//!
//! Unlike merging by rank, step 2 looks at texts and not at tokens: two characters without a token can become
//! one together. Files of this kind without scores but with merges are merged by rank, which gives the same for
//! lists made from such scores.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::super::TokenizerError;
use super::super::bpe::{MergeTable, Merger};
use super::super::parts::{TokenizerParts, key};
use super::super::vocab::{TokenKind, Vocab};
use super::characters::{self, SPACE};
use super::fallback::Fallback;
use super::{Kind, TextModel};

pub(super) const KIND: Kind = Kind { name: "llama", byte_tokens: true, sentence_ends: true, build };

struct Llama {
    order: Order,
    adds_space: bool,
    unknown: Option<u32>,
}

/// What says which neighbours are joined first.
enum Order {
    Scores(Scores),
    Merges(MergeTable),
}

fn build(
    vocab: &Vocab,
    parts: &TokenizerParts,
    notes: &mut Vec<String>,
) -> Result<Box<dyn TextModel>, TokenizerError> {
    let order = match (&parts.scores, &parts.merges) {
        (Some(scores), _) => {
            Order::Scores(Scores::new(vocab, scores.iter().copied().map(priority).collect()))
        }
        (None, Some(merges)) => Order::Merges(MergeTable::new(vocab, merges, notes)?),
        (None, None) => {
            notes.push(format!(
                "the file has no token scores (\"{}\"); tokens that come first are taken to be merged first",
                key::SCORES
            ));
            Order::Scores(Scores::new(vocab, (0u32..).take(vocab.len()).collect()))
        }
    };
    let adds_space = parts.add_space_prefix.unwrap_or(true);
    Ok(Box::new(Llama { order, adds_space, unknown: parts.unknown }))
}

impl TextModel for Llama {
    fn encode(
        &self,
        vocab: &Vocab,
        text: &str,
        inside: bool,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        if text.is_empty() {
            return Ok(());
        }
        characters::check_length(text)?;
        let mut spelled = String::with_capacity(text.len() + SPACE.len_utf8());
        spelled.extend((self.adds_space && !inside).then_some(SPACE));
        spelled.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
        let mut out = Fallback::new(vocab, self.unknown, out);
        match &self.order {
            Order::Scores(scores) => scores.encode(vocab, &spelled, &mut out),
            Order::Merges(merges) => {
                characters::merge(vocab, merges, &mut Merger::default(), &spelled, &mut out)
            }
        }
    }

    fn token_bytes(&self, vocab: &Vocab, id: u32, out: &mut Vec<u8>) {
        characters::token_bytes(vocab, id, out);
    }

    fn add_bos(&self) -> bool {
        true
    }

    fn adds_space(&self) -> bool {
        self.adds_space
    }
}

/// The place of a score in the order of merging: 0 for the highest. What is no number comes last.
fn priority(score: f32) -> u32 {
    if score.is_nan() {
        return u32::MAX;
    }
    // Minus zero equals zero.
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

/// Merging by score.
struct Scores {
    /// Of each token, lowest first.
    priorities: Vec<u32>,
    /// Length in bytes of the longest token, so that longer texts need not be looked up.
    longest: usize,
}

/// A part of the text while it is being merged.
#[derive(Clone, Copy)]
struct Symbol {
    start: u32,
    /// In bytes; 0 when it was joined to the symbol on its left.
    len: u32,
    /// Places of the left and right neighbours; `END` outside.
    left: u32,
    right: u32,
}

/// No neighbour. Texts are limited to fewer symbols than that.
const END: u32 = u32::MAX;

/// One text on its way.
struct Chain<'a> {
    scores: &'a Scores,
    vocab: &'a Vocab,
    text: &'a str,
    symbols: Vec<Symbol>,
    /// Priority in the high half and place of the left symbol in the low half; length of both. A candidate whose
    /// length is no longer that of the two symbols is stale.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    /// Of each text that is an unused token: the length of its left part when it was last a candidate.
    unused: HashMap<&'a str, u32>,
}

impl Scores {
    fn new(vocab: &Vocab, priorities: Vec<u32>) -> Scores {
        Scores { priorities, longest: vocab.iter().map(|(_, p)| p.text.len()).max().unwrap_or(0) }
    }

    fn encode(&self, vocab: &Vocab, text: &str, out: &mut Fallback<'_>) -> Result<(), TokenizerError> {
        let mut symbols: Vec<Symbol> = Vec::new();
        for ((start, c), i) in text.char_indices().zip(0u32..) {
            let left = i.checked_sub(1).unwrap_or(END);
            symbols.push(Symbol { start: start as u32, len: c.len_utf8() as u32, left, right: i + 1 });
        }
        if let Some(last) = symbols.last_mut() {
            last.right = END;
        }
        let n = symbols.len() as u32;
        let mut chain =
            Chain { scores: self, vocab, text, symbols, queue: BinaryHeap::new(), unused: HashMap::new() };
        for at in 0..n {
            chain.offer(at);
        }
        chain.merge();
        for i in 0..chain.symbols.len() {
            if chain.symbols[i].len > 0 {
                chain.emit(chain.text_of(chain.symbols[i]), out)?;
            }
        }
        Ok(())
    }
}

impl<'a> Chain<'a> {
    fn text_of(&self, symbol: Symbol) -> &'a str {
        &self.text[symbol.start as usize..][..symbol.len as usize]
    }

    /// Makes the symbol at `at` and its right neighbour a candidate if they are a token together.
    fn offer(&mut self, at: u32) {
        let left = self.symbols[at as usize];
        let Some(&right) = self.symbols.get(left.right as usize) else { return };
        let len = left.len + right.len;
        if len as usize > self.scores.longest {
            return;
        }
        let both = &self.text[left.start as usize..][..len as usize];
        let Some(id) = self.vocab.mergeable_id(both) else { return };
        if self.vocab.piece(id).is_some_and(|p| p.kind == TokenKind::Unused) {
            self.unused.insert(both, left.len);
        }
        let priority = self.scores.priorities[id as usize];
        self.queue.push(Reverse((u64::from(priority) << 32 | u64::from(at), len)));
    }

    fn merge(&mut self) {
        while let Some(Reverse((entry, len))) = self.queue.pop() {
            let at = entry as u32;
            let left = self.symbols[at as usize];
            let Some(&right) = self.symbols.get(left.right as usize) else { continue };
            if left.len == 0 || left.len + right.len != len {
                continue;
            }
            self.symbols[left.right as usize].len = 0;
            self.symbols[at as usize] = Symbol { len, right: right.right, ..left };
            if let Some(after) = self.symbols.get_mut(right.right as usize) {
                after.left = at;
            }
            if left.left != END {
                self.offer(left.left);
            }
            self.offer(at);
        }
    }

    /// Appends the tokens of a symbol that is left.
    fn emit(&self, text: &'a str, out: &mut Fallback<'_>) -> Result<(), TokenizerError> {
        let mut rest = vec![text];
        while let Some(text) = rest.pop() {
            let id = self.vocab.mergeable_id(text);
            let split = self.unused.get(text).map(|&left| text.split_at(left as usize));
            match (id, split) {
                (_, Some((left, right))) => rest.extend([right, left]),
                (Some(id), None) => out.token(id),
                // A symbol without a token was never merged: it is one character.
                (None, None) => text.chars().try_for_each(|c| out.character(c))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_scores_come_first() {
        let scores = [f32::INFINITY, 3.0, 0.0, -0.0, -1e-40, -2.0, f32::NEG_INFINITY, f32::NAN];
        let order = scores.map(priority);
        assert!(order.is_sorted(), "{order:?}");
        assert_eq!(order[2], order[3]);
        assert_eq!(order[7], u32::MAX);
    }
}
