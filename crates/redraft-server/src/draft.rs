//! What a canvas looks like between two steps.

use redraft::engine::{Picture, StepEvent};
use redraft::tokenizer::Tokenizer;
use serde::Serialize;

/// Stands for a mask token, whose own text is no text.
const MASK: &str = "\u{b7}";

/// A canvas after a step. Field names are part of the server's contract.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Draft {
    /// Counted from 0.
    canvas: usize,
    /// Counted from 1.
    step: usize,
    steps_max: usize,
    positions: Vec<Position>,
    /// In nats.
    mean_entropy: f64,
}

#[derive(Debug, Clone, Serialize)]
struct Position {
    text: String,
    state: &'static str,
    entropy: f64,
}

impl Draft {
    /// Up to the end of the answer, and no more than the `limit` tokens that the client gets.
    pub(crate) fn new(step: &StepEvent<'_>, tokenizer: &Tokenizer, end_ids: &[u32], limit: usize) -> Draft {
        let (ids, states) = Picture::from(step).shown(end_ids, limit);
        let masks = step.open.is_some();
        let texts = tokenizer.canvas_pieces(&ids).into_iter();
        let position =
            |(((piece, id), state), &entropy): (((_, &u32), redraft::engine::PositionState), &f32)| {
                let piece: redraft::tokenizer::CanvasPiece = piece;
                let hidden = masks && tokenizer.mask() == Some(*id);
                let text = if hidden { MASK.into() } else { piece.display() };
                Position { text, state: state.name(), entropy: rounded(entropy) }
            };
        let positions = texts.zip(&ids).zip(states).zip(&step.result.entropy).map(position).collect();
        Draft {
            canvas: step.canvas,
            step: step.step + 1,
            steps_max: step.steps_max,
            positions,
            mean_entropy: rounded(step.decision.mean_entropy),
        }
    }
}

/// Four digits after the point.
fn rounded(x: f32) -> f64 {
    (f64::from(x) * 1e4).round() / 1e4
}
