//! From the figures of a step to what each position of the canvas shows.

use redraft::engine::StepEvent;
use redraft::tokenizer::{CanvasPiece, Tokenizer};

use super::canvas::{Cell, State};

/// Entropy in nats below which the most likely token of a position is shown as a draft: it then has most of
/// the probability.
const DRAFT_ENTROPY: f32 = 1.0;

/// A canvas after a step, one entry per position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Positions<'a> {
    /// Most likely ids.
    pub(crate) argmax: &'a [u32],
    /// What the sampler made of the canvas.
    pub(crate) canvas: &'a [u32],
    /// Whether the position was accepted.
    pub(crate) accepted: &'a [bool],
    /// Entropy in nats.
    pub(crate) entropy: &'a [f32],
    /// In canvases of masks, what was masked before the step; what was not is decided.
    pub(crate) open: Option<&'a [bool]>,
    /// Whether the token is given; empty where none is.
    pub(crate) fixed: &'a [bool],
}

impl<'a> From<&'a StepEvent<'a>> for Positions<'a> {
    fn from(step: &'a StepEvent<'a>) -> Positions<'a> {
        Positions {
            argmax: &step.result.argmax,
            canvas: &step.decision.canvas,
            accepted: &step.decision.accepted,
            entropy: &step.result.entropy,
            open: step.open,
            fixed: step.fixed,
        }
    }
}

impl Positions<'_> {
    /// The model's most likely token where it has an opinion, the noise that stands in the canvas where it has
    /// none. Nothing from an end token on, and no more than `limit`.
    pub(crate) fn cells(&self, tokenizer: &Tokenizer, end_ids: &[u32], limit: usize) -> Vec<Cell> {
        let (ids, states) = self.states(end_ids, limit);
        with_text(tokenizer, self.open.is_some(), &ids, states)
    }

    fn states(&self, end_ids: &[u32], limit: usize) -> (Vec<u32>, Vec<State>) {
        let state = |i: usize| match () {
            () if self.fixed.get(i) == Some(&true) => State::Committed,
            () if self.accepted[i] || self.open.is_some_and(|open| !open[i]) => State::Accepted,
            // A mask that nothing was predicted for.
            () if self.open.is_some() && self.argmax[i] == self.canvas[i] => State::Noise,
            () if self.entropy[i] < DRAFT_ENTROPY => State::Draft,
            () => State::Noise,
        };
        let mut ids = Vec::new();
        let mut states = Vec::new();
        for (i, &argmax) in self.argmax.iter().enumerate().take(limit) {
            let state = state(i);
            // What a canvas of masks accepts stays.
            let in_canvas = matches!(state, State::Noise | State::Committed)
                || self.open.is_some() && state == State::Accepted;
            let id = if in_canvas { self.canvas[i] } else { argmax };
            if matches!(state, State::Draft | State::Accepted) && end_ids.contains(&id) {
                break;
            }
            ids.push(id);
            states.push(state);
        }
        (ids, states)
    }
}

/// A canvas before its first step: noise, of random tokens or of masks, and what is `fixed`.
pub(crate) fn noise(tokenizer: &Tokenizer, masks: bool, ids: &[u32], fixed: &[bool]) -> Vec<Cell> {
    let state = |&fixed: &bool| if fixed { State::Committed } else { State::Noise };
    with_text(tokenizer, masks, ids, fixed.iter().map(state).collect())
}

/// Stands for a mask token, whose own text is no text.
const MASK: &str = "\u{b7}";

fn with_text(tokenizer: &Tokenizer, masks: bool, ids: &[u32], states: Vec<State>) -> Vec<Cell> {
    let pieces = tokenizer.canvas_pieces(ids).into_iter();
    let cell = |((piece, &id), state): ((CanvasPiece, &u32), State)| {
        // An edit can bring a mask to where a token stood.
        let state = if masks && tokenizer.mask() == Some(id) { State::Noise } else { state };
        Cell {
            text: if masks && state == State::Noise { MASK.into() } else { piece.display() },
            state: if state != State::Noise && tokenizer.is_marker(id) { State::Marker } else { state },
        }
    };
    pieces.zip(ids).zip(states).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_shows_guesses_and_noise_up_to_the_end() {
        let positions = Positions {
            argmax: &[10, 1, 12, 13, 1, 15],
            canvas: &[10, 31, 32, 33, 34, 35],
            accepted: &[true, false, false, false, false, false],
            entropy: &[0.0, 3.0, 0.5, 2.0, 0.2, 0.0],
            open: None,
            fixed: &[],
        };
        use State::{Accepted, Draft, Noise};
        // The end token at position 1 is no more than noise, the one at position 4 is a draft.
        let all = (vec![10, 31, 12, 33], vec![Accepted, Noise, Draft, Noise]);
        assert_eq!(positions.states(&[1], 9), all);
        assert_eq!(positions.states(&[1], 1), (vec![10], vec![Accepted]), "no more than the user gets");
    }

    #[test]
    fn what_a_canvas_of_masks_accepts_stays() {
        let positions = Positions {
            argmax: &[10, 11, 12, 13, 1],
            canvas: &[10, 31, 0, 0, 0],
            accepted: &[false, true, false, false, false],
            entropy: &[0.0, 3.0, 0.5, 2.0, 0.2],
            open: Some(&[false, true, true, true, true]),
            fixed: &[],
        };
        use State::{Accepted, Draft, Noise};
        // The second position was drawn, and is not the most likely token.
        assert_eq!(positions.states(&[1], 9), (vec![10, 31, 12, 0], vec![Accepted, Accepted, Draft, Noise]));
    }

    #[test]
    fn control_tokens_among_guesses_are_markers() {
        let gguf = redraft::Model::embedded_file().unwrap();
        let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap();
        let (turn, word) = (tokenizer.token_id("<|turn>").unwrap(), tokenizer.token_id("a").unwrap());
        let cells = with_text(
            &tokenizer,
            false,
            &[word, turn, turn],
            vec![State::Draft, State::Accepted, State::Noise],
        );
        let got: Vec<_> = cells.iter().map(|c| (c.text.as_str(), c.state)).collect();
        assert_eq!(got, [("a", State::Draft), ("<|turn>", State::Marker), ("<|turn>", State::Noise)]);
        let cells = noise(&tokenizer, true, &[turn], &[false]);
        assert_eq!(cells[0].text, "·", "masks have no text");
    }
}
