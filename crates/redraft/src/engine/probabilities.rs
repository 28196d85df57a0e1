//! How likely the tokens of an answer were, in the step that put each there and under the canvas that they became.
//!
//! A denoised token has no one probability: each step has another distribution for its position. Two are told, of the step from
//! which on the position held the token, and of one more pass over the final canvas. `docs/server.md` says which distributions
//! they are.

use super::{BlockCache, Request};
use crate::Error;

/// What is said of a token of an answer. Logarithms are natural ones.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenProbability {
    /// The token.
    pub id: u32,
    /// Its canvas, counted from 0.
    pub canvas: usize,
    /// The step that put it there; none where none did: it was given, or came with the pass before the canvas.
    pub revealed: Option<Revealed>,
    /// Logarithm of its probability at its place in the final canvas, at temperature 1, without anything that weighs on
    /// logits, told of no prediction before; none where it is not predicted.
    pub rescored: Option<f64>,
}

/// The step that put a token to its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Revealed {
    /// Counted from 0.
    pub step: usize,
    /// Logarithm of the token's probability: of the logits that the step draws from, at its temperature, with what weighs
    /// on them, before top-k and top-p, and before a language.
    pub logprob: f64,
    /// The most likely ids of that distribution with the same number, falling, lower ids first among equals.
    pub top: Vec<(u32, f64)>,
}

/// Refuses what has no such numbers.
pub(super) fn check(request: &Request) -> Result<(), Error> {
    let refused = |expected: &str, found: &str| {
        let (what, expected, found) = ("logprobs".into(), expected.into(), found.into());
        Err(Error::Request { what, expected, found })
    };
    match request.logprobs {
        Some(_) if request.sampler.moves() => {
            refused("a sampler that leaves tokens at their places", request.sampler.name)
        }
        Some(_) if request.cache != BlockCache::None => {
            refused("no cache of blocks, in which not all positions are predicted", "one")
        }
        _ => Ok(()),
    }
}

/// The tokens of a canvas on their way.
pub(super) struct Probabilities {
    /// Ids besides the token that are told.
    top: usize,
    /// By position what it holds, and since which step.
    held: Vec<Option<(u32, Option<Revealed>)>>,
}

/// What a step says of the positions of a canvas.
pub(super) struct Said<'a> {
    pub(super) step: usize,
    /// Those whose logits there are.
    pub(super) predicted: &'a [bool],
    /// `[canvas, V]`.
    pub(super) logits: &'a [f32],
}

impl Probabilities {
    /// Of a canvas of `len` tokens.
    pub(super) fn new(top: usize, len: usize) -> Probabilities {
        Probabilities { top, held: vec![None; len] }
    }

    /// After a step the positions that are `decided` hold these ids.
    pub(super) fn step(&mut self, ids: &[u32], decided: &[bool], said: &Said<'_>) {
        let width = said.logits.len() / ids.len().max(1);
        for (i, held) in self.held.iter_mut().enumerate() {
            let id = ids[i];
            if !decided[i] {
                *held = None;
            } else if held.as_ref().is_none_or(|(before, _)| *before != id) {
                let row = said.logits.get(i * width..(i + 1) * width).filter(|_| said.predicted[i]);
                *held = Some((id, row.map(|row| revealed(said.step, row, id, self.top))));
            }
        }
    }

    /// What is said of the tokens of the final canvas, whose logits `[canvas, V]` are those of a pass over it, at the positions
    /// that are `predicted` then.
    pub(super) fn finish(self, canvas: usize, predicted: &[bool], logits: &[f32]) -> Vec<TokenProbability> {
        let width = logits.len() / self.held.len().max(1);
        let token = |(i, held): (usize, Option<(u32, Option<Revealed>)>)| {
            let (id, revealed) = held.unwrap_or_default();
            let row = logits.get(i * width..(i + 1) * width).filter(|_| predicted[i]);
            let rescored = row.map(|row| logprob(row, id, log_sum_exp(row)));
            TokenProbability { id, canvas, revealed, rescored }
        };
        self.held.into_iter().enumerate().map(token).collect()
    }
}

/// A token that was given.
pub(super) fn given(id: u32, canvas: usize) -> TokenProbability {
    TokenProbability { id, canvas, revealed: None, rescored: None }
}

fn revealed(step: usize, row: &[f32], id: u32, top: usize) -> Revealed {
    let lse = log_sum_exp(row);
    let mut best: Vec<u32> = Vec::new();
    for (other, x) in (0u32..).zip(row) {
        let at = best.partition_point(|&b| row[b as usize] >= *x);
        if at < top {
            best.truncate(top - 1);
            best.insert(at, other);
        }
    }
    let top = best.into_iter().map(|other| (other, logprob(row, other, lse))).collect();
    Revealed { step, logprob: logprob(row, id, lse), top }
}

fn logprob(row: &[f32], id: u32, lse: f64) -> f64 {
    row.get(id as usize).map_or(f64::from(f32::MIN), |&x| f64::from(x) - lse)
}

fn log_sum_exp(row: &[f32]) -> f64 {
    let max = f64::from(row.iter().copied().fold(f32::MIN, f32::max));
    max + row.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_counts_from_the_step_since_which_it_is_there() {
        let mut p = Probabilities::new(2, 3);
        let (half, quarter) = (0.5f32.ln(), 0.25f32.ln());
        let first = [[quarter, half, quarter], [half, quarter, quarter], [0.0; 3]].concat();
        let second = [[half, quarter, quarter], [quarter, quarter, half], [0.0; 3]].concat();
        let said = |step, logits| Said { step, predicted: &[true, true, false], logits };
        p.step(&[1, 0, 2], &[true, true, true], &said(0, &first));
        // The first stays, the second is taken back and comes again as another.
        p.step(&[1, 0, 2], &[true, false, true], &said(1, &second));
        p.step(&[1, 2, 2], &[true, true, true], &said(2, &second));
        let done = p.finish(4, &[true, false, true], &second);
        let near = |x: f64, p: f64| assert!((x - p.ln()).abs() < 1e-6, "{x} {p}");
        let [a, b, c] = &done[..] else { panic!() };
        assert_eq!((a.id, b.id, c.id, c.canvas, &c.revealed), (1, 2, 2, 4, &None));
        let r = a.revealed.as_ref().unwrap();
        assert_eq!((r.step, r.top[0].0, r.top[1].0, r.top.len()), (0, 1, 0, 2));
        near(r.logprob, 0.5);
        near(r.top[1].1, 0.25);
        near(a.rescored.unwrap(), 0.25);
        let r = b.revealed.as_ref().unwrap();
        assert_eq!((r.step, r.top[0].0, r.top[1].0, b.rescored), (2, 2, 0, None));
        near(r.logprob, 0.5);
        near(c.rescored.unwrap(), 1.0 / 3.0);
    }
}
