//! Holds canvases to a language: what a step computed is read as what it says of canvases of the language, before a sampler sees it.

use std::sync::Arc;

use super::pass::Sampling;
use super::{Penalties, PlaceBan, Request};
use crate::constrain::{ConstrainError, Constraint, Drawing, Row, Span};
use crate::engine::CanvasResult;
use crate::sampler::PROFILES;
use crate::{Error, Model};

/// An answer that is held to a language.
pub(super) struct Constrained {
    constraint: Arc<Constraint>,
    /// Tokens of the answer at most.
    tokens: usize,
    /// Whether samplers ask for tokens that are drawn.
    draws: bool,
    threads: usize,
    /// The state before the canvas at hand, and where in the answer that begins.
    state: u32,
    start: usize,
}

/// The positions of a canvas before a step.
pub(super) struct Positions<'a> {
    /// What stands there.
    pub(super) ids: &'a [u32],
    /// Those that are not decided.
    pub(super) open: &'a [bool],
    /// Those that were predicted.
    pub(super) predicted: &'a [bool],
}

impl Constrained {
    /// That of a request, if it has one.
    ///
    /// # Errors
    /// A language that was compiled for another vocabulary or other ends; too few tokens for any reply; what cannot be done together with it.
    pub(super) fn of(model: &Model, request: &Request) -> Result<Option<Constrained>, Error> {
        let Some(constraint) = request.constraint.clone() else { return Ok(None) };
        let refused = |what: &str, expected: &str, found: &str| {
            Err(Error::Request {
                what: format!("{what} of an answer that is held to a language"),
                expected: expected.into(),
                found: found.into(),
            })
        };
        if !constraint.fits(model.shape().vocab_len, model.shape().noise, &request.end_ids) {
            return refused(
                "vocabulary",
                "the one that the language was compiled for",
                "another, or other ends of the answer",
            );
        }
        if !constraint.has_ends() {
            return refused("ends", "a model that has a token for them", "none");
        }
        if !request.given.is_empty() {
            return refused("given text", "none", "a text with gaps");
        }
        if request.sampler.moves() {
            return refused("sampler", "one that leaves tokens at their places", request.sampler.name);
        }
        if request.profile.name != PROFILES[0].name {
            return refused("profile", PROFILES[0].name, request.profile.name);
        }
        if !request.ban.is_empty() || request.least_tokens() > 0 {
            return refused("bans and min_tokens", "none: the language says what can stand where", "some");
        }
        let tokens = request.max_tokens;
        let canvas_len = model.shape().canvases(request.prompt.len(), tokens).largest();
        constraint.check(tokens, canvas_len)?;
        // Samplers without this parameter draw in each step.
        let draws = request.params.get("temperature") != 0.0;
        let threads = model.backend().capabilities().threads;
        let state = constraint.start();
        Ok(Some(Constrained { constraint, tokens, draws, threads, state, start: 0 }))
    }

    fn span(&self) -> Span {
        Span { state: self.state, left: self.tokens.saturating_sub(self.start) }
    }

    /// `penalties` for a pass that predicts the first token of the canvas at hand, in a sequence whose prompt has `prompt_len` tokens.
    pub(super) fn first_token(&self, penalties: &Penalties, prompt_len: usize) -> Penalties {
        let mut penalties = penalties.clone();
        let ids = self.constraint.misplaced(self.span());
        penalties.places.push(PlaceBan { ids, first: prompt_len + self.start, at: vec![true] });
        penalties
    }

    /// Makes of the result of a step what it says of canvases of the language.
    ///
    /// # Errors
    /// [`ConstrainError::NoReply`].
    pub(super) fn read(
        &self,
        canvas: usize,
        positions: &Positions<'_>,
        sampling: &Sampling<'_>,
        result: &mut CanvasResult,
    ) -> Result<(), Error> {
        let Sampling { ask, uniform } = *sampling;
        let drawing = Drawing { uniform, top_k: ask.top_k, top_p: ask.top_p };
        let rows = rows(positions, &result.logits);
        let reading = self.constraint.read(&rows, self.span(), self.draws.then_some(drawing), self.threads);
        let Some(reading) = reading else { return Err(no_reply(canvas)) };
        let set = |of: &mut Vec<f32>, i: usize, x: f32| {
            if let Some(number) = of.get_mut(i) {
                *number = x;
            }
        };
        for i in 0..positions.ids.len() {
            let decided = !positions.open[i];
            if !decided && !positions.predicted[i] {
                continue;
            }
            (result.argmax[i], result.sample[i]) = (reading.best[i], reading.drawn[i]);
            // Numbers are log-probabilities, whose log-sum-exp is 0.
            result.lse[i] = 0.0;
            result.max[i] = reading.first[i].max(reading.second[i]);
            result.entropy[i] = if decided { 0.0 } else { reading.entropy[i] };
            set(&mut result.first, i, reading.first[i]);
            set(&mut result.second, i, reading.second[i]);
            set(&mut result.sampled, i, reading.sampled[i]);
        }
        Ok(())
    }

    /// Fills what a sampler left open in its last step.
    ///
    /// # Errors
    /// [`ConstrainError::NoReply`].
    pub(super) fn complete(
        &self,
        canvas: usize,
        positions: &Positions<'_>,
        logits: &[f32],
    ) -> Result<Vec<u32>, Error> {
        let rows = rows(positions, logits);
        self.constraint.best(&rows, self.span(), self.threads).ok_or_else(|| no_reply(canvas))
    }

    /// A canvas is committed, with these tokens before an end of the answer. Returns whether nothing but an end can follow.
    ///
    /// # Errors
    /// [`ConstrainError::NoReply`] where they are not in the language.
    pub(super) fn commit(&mut self, canvas: usize, ids: &[u32], ended: bool) -> Result<bool, Error> {
        let state = self.constraint.after(self.state, ids);
        let state =
            state.filter(|&s| !ended && self.start + ids.len() < self.tokens || self.constraint.can_end(s));
        self.state = state.ok_or_else(|| no_reply(canvas))?;
        self.start += ids.len();
        Ok(self.constraint.must_end(self.state))
    }
}

fn no_reply(canvas: usize) -> Error {
    ConstrainError::NoReply { canvas }.into()
}

/// What the positions of a canvas say, where `logits` are `[canvas, V]`.
fn rows<'a>(positions: &Positions<'_>, logits: &'a [f32]) -> Vec<Row<'a>> {
    let vocab_len = (logits.len() / positions.ids.len().max(1)).max(1);
    let mut rows = logits.chunks_exact(vocab_len);
    let row = |(i, &id): (usize, &u32)| match (positions.open[i], positions.predicted[i], rows.next()) {
        (false, ..) => Row::Fixed(id),
        (true, true, Some(row)) => Row::Logits(row),
        // What was predicted has logits; without them nothing is known to be in the language.
        (true, true, None) => Row::Fixed(u32::MAX),
        (true, false, _) => Row::Free,
    };
    positions.ids.iter().enumerate().map(row).collect()
}
