//! What a canvas looks like between two steps.

use redraft::engine::{Picture, StepEvent};
use redraft::tokenizer::{CanvasPiece, Tokenizer};
use serde::Serialize;

/// Stands for a mask token, whose own text is no text.
const MASK: &str = "\u{b7}";

/// Tokens that are told of a position.
const ALTERNATIVES: usize = 5;

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
    /// The most likely tokens, where they are asked for and the position was predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    alternatives: Option<Vec<Alternative>>,
}

#[derive(Debug, Clone, Serialize)]
struct Alternative {
    text: String,
    /// Under the raw logits of the step, divided by its temperature where that is not 0.
    p: f64,
}

impl Draft {
    /// Up to the end of the answer, and no more than the `limit` tokens that the client gets.
    pub(crate) fn new(step: &StepEvent<'_>, tokenizer: &Tokenizer, end_ids: &[u32], limit: usize) -> Draft {
        let (ids, states) = Picture::from(step).shown(end_ids, limit);
        let masks = step.open.is_some();
        let text = |piece: CanvasPiece, id: u32| match masks && tokenizer.mask() == Some(id) {
            true => MASK.into(),
            false => piece.display(),
        };
        let one = |&(id, p): &(u32, f64)| {
            let piece = tokenizer.canvas_pieces(&[id]).pop()?;
            Some(Alternative { text: text(piece, id), p: rounded(p) })
        };
        let mut alternatives = alternatives(step, ids.len()).into_iter();
        let pieces = tokenizer.canvas_pieces(&ids).into_iter().zip(ids);
        let positions =
            pieces.zip(states).zip(&step.result.entropy).map(|(((piece, id), state), &entropy)| {
                let alternatives =
                    alternatives.next().flatten().map(|all| all.iter().filter_map(one).collect());
                let text = text(piece, id);
                Position { text, state: state.name(), entropy: rounded(entropy.into()), alternatives }
            });
        let positions = positions.collect();
        Draft {
            canvas: step.canvas,
            step: step.step + 1,
            steps_max: step.steps_max,
            positions,
            mean_entropy: rounded(step.decision.mean_entropy.into()),
        }
    }
}

/// The most likely tokens of the first `n` positions with their probabilities, where somebody asked for logits: the most
/// likely first, of equally likely ones the lower id. None where nothing was predicted.
fn alternatives(step: &StepEvent<'_>, n: usize) -> Vec<Option<Vec<(u32, f64)>>> {
    let Some(logits) = step.logits else { return Vec::new() };
    let predicted = step.predicted.iter().filter(|&&p| p).count();
    let mut rows = logits.chunks_exact((logits.len() / predicted.max(1)).max(1));
    let scale = if step.temperature > 0.0 { 1.0 / step.temperature } else { 1.0 };
    let row = |&predicted: &bool| if predicted { rows.next() } else { None };
    let rows: Vec<Option<&[f64]>> = step.predicted.iter().take(n).map(row).collect();
    rows.into_iter().map(|row| row.map(|row| most_likely(row, scale))).collect()
}

/// The most likely ids of a row of logits, which are multiplied by `scale`.
fn most_likely(logits: &[f64], scale: f64) -> Vec<(u32, f64)> {
    let mut best: Vec<(u32, f64)> = Vec::with_capacity(ALTERNATIVES + 1);
    for (id, &x) in (0..).zip(logits) {
        if best.len() < ALTERNATIVES || best.last().is_some_and(|&(_, least)| x > least) {
            let at = best.partition_point(|&(_, y)| y >= x);
            best.insert(at, (id, x));
            best.truncate(ALTERNATIVES);
        }
    }
    let max = best.first().map_or(0.0, |&(_, x)| x);
    let sum: f64 = logits.iter().map(|&x| ((x - max) * scale).exp()).sum();
    best.iter_mut().for_each(|(_, x)| *x = ((*x - max) * scale).exp() / sum);
    best
}

/// Four digits after the point.
fn rounded(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_likely_come_first_and_then_the_lower_ids() {
        let ln = [1.0f64, 4.0, 2.0, 4.0, 1.0, 1.0, 3.0].map(f64::ln);
        let found = most_likely(&ln, 1.0);
        let ids: Vec<u32> = found.iter().map(|f| f.0).collect();
        assert_eq!(ids, [1, 3, 6, 2, 0]);
        let p: Vec<f64> = found.iter().map(|f| rounded(f.1)).collect();
        assert_eq!(p, [0.25, 0.25, 0.1875, 0.125, 0.0625]);
        // Half the temperature squares what was exponentiated: 16 of 16 + 4 + 1.
        let found = most_likely(&[4.0f64, 2.0, 1.0].map(f64::ln), 2.0);
        assert_eq!(found.iter().map(|f| rounded(f.1)).collect::<Vec<_>>(), [0.7619, 0.1905, 0.0476]);
    }
}
