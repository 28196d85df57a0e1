//! From what each position of a canvas shows to the cells of the terminal.

use redraft::engine::{Picture, PositionState};
use redraft::tokenizer::{CanvasPiece, Tokenizer};

use super::canvas::{Cell, State};

/// The cells of a canvas after a step, up to an end token, and no more than `limit`.
pub(crate) fn cells(
    picture: &Picture<'_>,
    tokenizer: &Tokenizer,
    end_ids: &[u32],
    limit: usize,
) -> Vec<Cell> {
    let (ids, states) = picture.shown(end_ids, limit);
    with_text(tokenizer, picture.open.is_some(), &ids, states.into_iter().map(State::from).collect())
}

impl From<PositionState> for State {
    fn from(state: PositionState) -> State {
        match state {
            PositionState::Noise => State::Noise,
            PositionState::Draft => State::Draft,
            PositionState::Accepted => State::Accepted,
            PositionState::Committed => State::Committed,
        }
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
