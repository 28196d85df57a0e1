//! How long a gap should be: a rule of ours, since no model says it and no reference program has one.
//!
//! A length is right if the model would go on from what it writes in the gap with the text that follows. For each of some
//! lengths:
//!
//! 1. The gap is filled in a few steps, with the text that follows in its place.
//! 2. What was written is fixed, the first tokens of the text that follows are taken away, and one pass predicts them.
//! 3. The score is the mean log-probability of these tokens.
//!
//! The best score wins, the shorter length among equals. How sure a model is of the gap itself says nothing: it is sure of
//! `Par` in `The capital of France is Par.`, and what gives it away is that no full stop would follow.
//!
//! Gaps are taken from left to right, each with the text up to the next one; those before it have their lengths by then.

use std::ops::ControlFlow;

use redraft_compute::math::host::{exp, ln};

use super::Fill;
use crate::arch::Reading;
use crate::engine::{Draws, Event, Given, Request, Session, Slot, generate};
use crate::{Error, Model};

/// Tokens after a gap by which a length is judged, at most.
const JUDGES: usize = 4;

/// Lengths between two others that are tried at once at most.
const ROUND: usize = 16;

/// Lengths that are tried for a gap at most, whatever its longest is: those of the grid, and a few rounds around the
/// best.
pub const MAX_TRIED: usize = 150;

/// Steps of a canvas at most while a length is tried.
const STEPS: f64 = 2.0;

/// The log-probability of a token other than the one that a model has decided on already, of which no number is known: the
/// first of a block in models whose predictions are in the row before.
const MISSED: f64 = -20.0;

/// A length that was tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tried {
    /// Tokens.
    pub len: usize,
    /// Mean log-probability of the text that follows: the higher the better.
    pub score: f64,
}

/// For each gap its length, none where it ends where the model ends it, and what was tried to find it.
#[derive(Debug, Clone, PartialEq)]
pub struct Lengths(pub Vec<(Option<usize>, Vec<Tried>)>);

impl Lengths {
    /// The lengths alone.
    pub fn of_gaps(&self) -> Vec<Option<usize>> {
        self.0.iter().map(|(len, _)| *len).collect()
    }
}

/// Lengths up to `max`: all to 8, every second to 16, every fourth to 32 and so on.
fn grid(max: usize) -> Vec<usize> {
    let mut all = Vec::new();
    let mut len = 1;
    while len < max {
        all.push(len);
        len += 1 << (len / 4).max(1).ilog2();
    }
    all.push(max);
    all
}

/// Finds the lengths of gaps that have none. `trying` hears of the number of lengths that were tried for a gap, of so
/// many.
///
/// # Errors
/// [`Error::Interrupted`] when `trying` breaks; those of [`generate`].
pub fn find_lengths(
    model: &mut Model,
    session: &mut Session,
    fill: Fill<'_>,
    draws: &dyn Draws,
    trying: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Lengths, Error> {
    let Fill { template, base, .. } = fill;
    let params = model.params(base.sampler, &quick_params(base))?;
    let base = Request { params, full_logits: false, ..base.clone() };
    let fill = Fill { base: &base, ..fill };
    let mut trial = Trial { model, session, fill, draws, found: Vec::new() };
    let mut all = Vec::new();
    for (i, gap) in template.gaps().enumerate() {
        let free_end = i + 1 == template.n_gaps() && template.ends_free();
        let (len, tried) = match gap.len {
            None if !free_end => {
                let mut tried = search(fill.gap_max.max(1), &mut |len| trial.score(len), trying)?;
                tried.sort_by_key(|t| t.len);
                (best(&tried).map(|b| b.len), tried)
            }
            len => (len, Vec::new()),
        };
        trial.found.push(len);
        all.push((len, tried));
    }
    Ok(Lengths(all))
}

/// Its parameters, with [`STEPS`] at most.
fn quick_params(base: &Request) -> Vec<(String, f64)> {
    let quick = |(name, x): (&str, f64)| match name {
        "steps" if x == 0.0 || x > STEPS => (name.to_string(), STEPS),
        // No gap whose length is looked for ends an answer, and most are shorter.
        "min_tokens" => (name.to_string(), 0.0),
        _ => (name.to_string(), x),
    };
    base.params.iter().map(quick).collect()
}

/// Tries lengths of the gap after those that have been found.
struct Trial<'a> {
    model: &'a mut Model,
    session: &'a mut Session,
    fill: Fill<'a>,
    draws: &'a dyn Draws,
    found: Vec<Option<usize>>,
}

/// The best of some lengths, the shorter among equals.
fn best(tried: &[Tried]) -> Option<Tried> {
    tried.iter().copied().reduce(|best, t| if (best.score, t.len) >= (t.score, best.len) { best } else { t })
}

/// Lengths around the best one that was tried: all of those up to the next ones that were, or [`ROUND`] of them evenly.
fn around(tried: &[Tried]) -> Vec<usize> {
    let Some(Tried { len: best, .. }) = best(tried) else { return Vec::new() };
    let lengths = || tried.iter().map(|t| t.len);
    let below = lengths().filter(|&l| l < best).max().unwrap_or(0);
    let above = lengths().filter(|&l| l > best).min().unwrap_or(best + 1);
    let between: Vec<usize> = (below + 1..above).filter(|&l| l != best).collect();
    let step = between.len().div_ceil(ROUND).max(1);
    between.into_iter().skip(step / 2).step_by(step).collect()
}

/// Tries the lengths of a grid up to `max`, then those around the best one until its neighbours were tried.
fn search(
    max: usize,
    score: &mut dyn FnMut(usize) -> Result<f64, Error>,
    trying: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Vec<Tried>, Error> {
    let mut tried: Vec<Tried> = Vec::new();
    let mut todo = grid(max);
    while let Some(&len) = todo.get(tried.len()) {
        if trying(tried.len(), todo.len()).is_break() {
            return Err(Error::Interrupted);
        }
        match score(len) {
            Ok(score) => tried.push(Tried { len, score }),
            // Longer ones do not fit either.
            Err(Error::ContextOverflow { .. }) if !tried.is_empty() => todo.truncate(tried.len()),
            Err(e) => return Err(e),
        }
        if tried.len() == todo.len() {
            todo.extend(around(&tried));
        }
    }
    Ok(tried)
}

impl Trial<'_> {
    /// The score of a length.
    fn score(&mut self, len: usize) -> Result<f64, Error> {
        let (gap, found) = (self.found.len(), &self.found);
        let part = self.fill.template.up_to(gap);
        let lengths: Vec<Option<usize>> = found.iter().copied().chain([Some(len)]).collect();
        let end = self.fill.end.filter(|_| gap + 1 == self.fill.template.n_gaps());
        let request = part.request(self.fill.base, &lengths, end);
        let go_on = &mut |_: &Event<'_>| ControlFlow::Continue(());
        let filled = generate(self.model, self.session, &request, self.draws, go_on)?.ids;
        let after = part.n_after(gap);
        self.judge(&request, &filled, filled.len() - after.min(filled.len()))
    }

    /// Mean log-probability of the tokens that follow what is `filled` up to `from`.
    fn judge(&mut self, request: &Request, filled: &[u32], from: usize) -> Result<f64, Error> {
        let shape = self.model.shape();
        let (v, whole) = (shape.vocab_len, shape.reading == Reading::Whole);
        let mut ids = filled.to_vec();
        ids.extend(request.given.end);
        let until = ids.len().min(from + JUDGES);
        let mut slots: Vec<Slot> = ids.iter().map(|&id| Slot::Fixed(id)).collect();
        slots[from..until].fill(Slot::Open);
        // After the end comes padding, where a canvas has room for it.
        let pad = self.model.tokenizer().pad().unwrap_or(0);
        let end = request.given.end.filter(|_| !whole).map(|_| pad);
        let context_len = request.context_len.saturating_add(shape.canvas_len);
        let given = Given { slots, end };
        let Some(start) = given.windows(shape, request.prompt.len(), 1).first().map(|w| w.start) else {
            return Ok(0.0);
        };
        let judged = Request {
            given,
            constraint: None,
            max_tokens: 1,
            full_logits: true,
            end_ids: Vec::new(),
            context_len,
            ..request.clone()
        };
        let known = |at: usize, id: u32| if ids[at] == id { 0.0 } else { MISSED };
        let mut scores = Vec::new();
        let done = generate(self.model, self.session, &judged, self.draws, &mut |event| {
            match event {
                Event::Prompt { .. } => return ControlFlow::Continue(()),
                Event::Step(s) => {
                    let mut rows = s.logits.unwrap_or_default().chunks(v.max(1));
                    for (i, &id) in s.canvas_in.iter().enumerate() {
                        let open = s.open.map_or(!s.fixed.get(i).is_some_and(|&f| f), |open| open[i]);
                        let row = if open { rows.next() } else { None };
                        if (from..until).contains(&(start + i)) {
                            let score = row.map(|row| log_probability(row, ids[start + i] as usize));
                            scores.push(score.unwrap_or_else(|| known(start + i, id)));
                        }
                    }
                }
                // Nothing was left to be decided.
                Event::Commit { ids, .. } => {
                    let judged =
                        (start..start + ids.len()).zip(*ids).filter(|(at, _)| (from..until).contains(at));
                    scores.extend(judged.map(|(at, &id)| known(at, id)));
                }
            }
            ControlFlow::Break(())
        });
        match done {
            Err(Error::Interrupted) if !scores.is_empty() => {}
            Err(e) => return Err(e),
            Ok(_) => {}
        }
        Ok(scores.iter().sum::<f64>() / scores.len().max(1) as f64)
    }
}

/// The logarithm of the probability of `id` by the logits of a row.
fn log_probability(row: &[f64], id: usize) -> f64 {
    let max = row.iter().copied().fold(f64::MIN, f64::max);
    let sum: f64 = row.iter().map(|x| exp(x - max)).sum();
    row.get(id).map_or(f64::MIN, |x| x - max - ln(sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fill::MAX_GAP;

    #[test]
    fn the_grid_is_finer_for_short_lengths() {
        assert_eq!(grid(1), [1]);
        assert_eq!(grid(9), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(grid(32), [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32]);
        assert!(grid(65_536).len() < 70);
    }

    /// The lengths that are tried where the score falls with the distance from `right`.
    fn tried(max: usize, right: usize) -> Vec<Tried> {
        let score = &mut |len: usize| Ok(-(len.abs_diff(right) as f64));
        search(max, score, &mut |_, _| ControlFlow::Continue(())).unwrap()
    }

    #[test]
    fn long_lengths_are_found_in_few_tries() {
        for right in [1, 7, 99, 1000, 40_001, 50_000, 60_123, MAX_GAP] {
            let tried = tried(MAX_GAP, right);
            assert_eq!(best(&tried).unwrap().len, right);
            assert!(tried.len() <= MAX_TRIED, "{} for {right}", tried.len());
        }
        // Up to 64 no length around the best of the grid is left out: 40 and 48 are equal, and the shorter one wins.
        let around: Vec<usize> = tried(64, 44).iter().map(|t| t.len).skip(grid(64).len()).collect();
        assert_eq!(around, (33..48).filter(|&l| l != 40).collect::<Vec<_>>());
    }

    #[test]
    fn probabilities_are_those_of_the_row() {
        let row = [0.0, 3f64.ln(), 0.0, 3f64.ln()];
        assert!((log_probability(&row, 1) - (3.0f64 / 8.0).ln()).abs() < 1e-12);
        assert!((log_probability(&row, 0) - 0.125f64.ln()).abs() < 1e-12);
    }
}
