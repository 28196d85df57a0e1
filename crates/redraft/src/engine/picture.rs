//! From the figures of a step to what each position of the canvas shows.

use super::StepEvent;

/// Entropy in nats below which the most likely token of a position is shown as a draft: it then has most of
/// the probability.
const DRAFT_ENTROPY: f32 = 1.0;

/// What stands at a position of a canvas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PositionState {
    /// Noise: a random token or a mask.
    Noise,
    /// The most likely token, which the sampler has not accepted.
    Draft,
    /// Accepted by the sampler.
    Accepted,
    /// Final, or given.
    Committed,
}

impl PositionState {
    /// In JSON.
    pub fn name(self) -> &'static str {
        match self {
            PositionState::Noise => "noise",
            PositionState::Draft => "draft",
            PositionState::Accepted => "accepted",
            PositionState::Committed => "committed",
        }
    }
}

/// A canvas after a step, one entry per position.
#[derive(Debug, Clone, Copy)]
pub struct Picture<'a> {
    /// Most likely ids.
    pub argmax: &'a [u32],
    /// What the sampler made of the canvas.
    pub canvas: &'a [u32],
    /// Whether the position was accepted.
    pub accepted: &'a [bool],
    /// Entropy in nats.
    pub entropy: &'a [f32],
    /// In canvases of masks, what was masked before the step; what was not is decided.
    pub open: Option<&'a [bool]>,
    /// Whether the token is given; empty where none is.
    pub fixed: &'a [bool],
}

impl<'a> From<&'a StepEvent<'a>> for Picture<'a> {
    fn from(step: &'a StepEvent<'a>) -> Picture<'a> {
        Picture {
            argmax: &step.result.argmax,
            canvas: &step.decision.canvas,
            accepted: &step.decision.accepted,
            entropy: &step.result.entropy,
            open: step.open,
            fixed: step.fixed,
        }
    }
}

impl Picture<'_> {
    /// The model's most likely token where it has an opinion, the noise that stands in the canvas where it has
    /// none. Nothing from an end token on, and no more than `limit`.
    pub fn shown(&self, end_ids: &[u32], limit: usize) -> (Vec<u32>, Vec<PositionState>) {
        let state = |i: usize| match () {
            () if self.fixed.get(i) == Some(&true) => PositionState::Committed,
            () if self.accepted[i] || self.open.is_some_and(|open| !open[i]) => PositionState::Accepted,
            // A mask that nothing was predicted for.
            () if self.open.is_some() && self.argmax[i] == self.canvas[i] => PositionState::Noise,
            () if self.entropy[i] < DRAFT_ENTROPY => PositionState::Draft,
            () => PositionState::Noise,
        };
        let mut ids = Vec::new();
        let mut states = Vec::new();
        for (i, &argmax) in self.argmax.iter().enumerate().take(limit) {
            let state = state(i);
            // What a canvas of masks accepts stays.
            let in_canvas = matches!(state, PositionState::Noise | PositionState::Committed)
                || self.open.is_some() && state == PositionState::Accepted;
            let id = if in_canvas { self.canvas[i] } else { argmax };
            if matches!(state, PositionState::Draft | PositionState::Accepted) && end_ids.contains(&id) {
                break;
            }
            ids.push(id);
            states.push(state);
        }
        (ids, states)
    }
}

#[cfg(test)]
mod tests {
    use super::PositionState::{Accepted, Draft, Noise};
    use super::*;

    #[test]
    fn the_picture_shows_guesses_and_noise_up_to_the_end() {
        let picture = Picture {
            argmax: &[10, 1, 12, 13, 1, 15],
            canvas: &[10, 31, 32, 33, 34, 35],
            accepted: &[true, false, false, false, false, false],
            entropy: &[0.0, 3.0, 0.5, 2.0, 0.2, 0.0],
            open: None,
            fixed: &[],
        };
        // The end token at position 1 is no more than noise, the one at position 4 is a draft.
        let all = (vec![10, 31, 12, 33], vec![Accepted, Noise, Draft, Noise]);
        assert_eq!(picture.shown(&[1], 9), all);
        assert_eq!(picture.shown(&[1], 1), (vec![10], vec![Accepted]), "no more than the user gets");
    }

    #[test]
    fn what_a_canvas_of_masks_accepts_stays() {
        let picture = Picture {
            argmax: &[10, 11, 12, 13, 1],
            canvas: &[10, 31, 0, 0, 0],
            accepted: &[false, true, false, false, false],
            entropy: &[0.0, 3.0, 0.5, 2.0, 0.2],
            open: Some(&[false, true, true, true, true]),
            fixed: &[],
        };
        // The second position was drawn, and is not the most likely token.
        assert_eq!(picture.shown(&[1], 9), (vec![10, 31, 12, 0], vec![Accepted, Accepted, Draft, Noise]));
    }
}
