//! What of an answer is given: text around gaps, which a canvas holds from its first step to its last.

use serde::{Deserialize, Serialize};

use crate::arch::{Reading, Shape};

/// A position of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slot {
    /// This token stands there, whatever the model thinks.
    Fixed(u32),
    /// To be decided, by a token that is text: neither a control token nor an end of the answer.
    Gap,
    /// As [`Slot::Gap`], by a token whose text begins with a space.
    SpacedGap,
    /// To be decided, by any token: an answer can end there.
    Open,
}

impl Slot {
    /// Whether it is to be decided.
    pub fn is_open(self) -> bool {
        !matches!(self, Slot::Fixed(_))
    }
}

/// What of an answer is given; the default is nothing.
///
/// ```
/// use redraft::engine::{Given, Slot};
///
/// let given = Given { slots: vec![Slot::Gap, Slot::Fixed(7)], end: None };
/// assert_eq!([0, 1, 2].map(|at| given.slot(at, 0)), [Slot::Gap, Slot::Fixed(7), Slot::Open]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// The first positions of the answer; those after them are open.
    pub slots: Vec<Slot>,
    /// The token that follows them where the answer is complete with them; padding follows it.
    pub end: Option<u32>,
}

/// A canvas of an answer: positions `start..start + len`, of which the first `keep` are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its first position in the answer.
    pub start: usize,
    /// Positions.
    pub len: usize,
    /// Those that are committed; what follows is decided anew with the next canvas.
    pub keep: usize,
}

impl Window {
    /// The position of the answer at which what this canvas commits ends.
    pub fn end(&self) -> usize {
        self.start + self.keep
    }
}

impl Given {
    /// Whether nothing is given.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.end.is_none()
    }

    /// What stands at a position of the answer; `pad` fills what follows its end.
    pub fn slot(&self, at: usize, pad: u32) -> Slot {
        match (self.slots.get(at), self.end) {
            (Some(&slot), _) => slot,
            (None, Some(end)) if at == self.slots.len() => Slot::Fixed(end),
            (None, Some(_)) => Slot::Fixed(pad),
            (None, None) => Slot::Open,
        }
    }

    /// Tokens of the answer at most, where the user wants `max_tokens`.
    pub fn tokens(&self, max_tokens: usize) -> usize {
        match self.end {
            Some(_) => self.slots.len(),
            None => max_tokens.max(self.slots.len()),
        }
    }

    /// The canvases of an answer of at most `max_tokens` to a prompt of `prompt_len`: those that hold something to be
    /// decided.
    ///
    /// Blocks stand where they stand. Elsewhere a canvas begins at the first position to be decided, and a gap that begins
    /// in a canvas and would not end in it is left to the next one, which then begins with it and shows more of the text
    /// behind it.
    pub fn windows(&self, shape: &Shape, prompt_len: usize, max_tokens: usize) -> Vec<Window> {
        let tokens = self.tokens(max_tokens);
        let open = |at: usize| at < tokens && self.slot(at, 0).is_open();
        let next_open = |at: usize| (at..tokens).find(|&at| open(at));
        let division = shape.canvases(prompt_len, tokens);
        let mut windows = Vec::new();
        match shape.reading {
            Reading::Whole => {
                let len = tokens + usize::from(self.end.is_some());
                windows.extend(next_open(0).map(|_| Window { start: 0, len, keep: len }));
            }
            Reading::Blocks => {
                let mut start = 0;
                for canvas in 0..division.count {
                    let len = division.len_of(canvas);
                    if (start..start + len).any(open) {
                        windows.push(Window { start, len, keep: len });
                    }
                    start += len;
                }
            }
            Reading::Cached => {
                let len = division.len;
                let mut at = 0;
                while let Some(start) = next_open(at) {
                    let last = start + len - 1;
                    // The gap at the end of the canvas, if it goes on behind it.
                    let begin = match open(last) && open(last + 1) {
                        true => (start..last).rev().find(|&at| !open(at)).map(|at| at + 1),
                        false => None,
                    };
                    at = begin.unwrap_or(start + len);
                    windows.push(Window { start, len, keep: at - start });
                }
            }
        }
        windows
    }
}

#[cfg(test)]
mod tests {
    use redraft_compute::KvLayout;

    use super::*;
    use crate::arch::Noise;

    fn shape(reading: Reading, canvas_len: usize) -> Shape {
        Shape {
            n_layers: 1,
            d_model: 1,
            vocab_len: 8,
            context_len: 100,
            reading,
            noise: Noise::Uniform,
            canvas_len,
            shifted: false,
            kv: KvLayout { widths: Vec::new() },
            self_conditioning: false,
        }
    }

    /// `.` is fixed, `_` a gap.
    fn given(text: &str, end: Option<u32>) -> Given {
        let slot = |c| if c == '.' { Slot::Fixed(3) } else { Slot::Gap };
        Given { slots: text.chars().map(slot).collect(), end }
    }

    fn windows(text: &str, end: Option<u32>, reading: Reading, prompt: usize, n: usize) -> Vec<[usize; 3]> {
        let all = given(text, end).windows(&shape(reading, 4), prompt, n);
        all.iter().map(|w| [w.start, w.len, w.keep]).collect()
    }

    #[test]
    fn without_text_canvases_are_those_of_an_answer() {
        for reading in [Reading::Whole, Reading::Blocks, Reading::Cached] {
            for prompt in 0..9 {
                for n in 1..20 {
                    let division = shape(reading, 4).canvases(prompt, n);
                    let mut start = 0;
                    let want = (0..division.count).map(|c| {
                        let len = division.len_of(c);
                        start += len;
                        [start - len, len, len]
                    });
                    assert_eq!(windows("", None, reading, prompt, n), want.collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn canvases_begin_at_gaps_and_show_what_follows() {
        let at = |text, end| windows(text, end, Reading::Cached, 5, 0);
        assert_eq!(at("......", None), [[0; 3]; 0]);
        assert_eq!(at(".._...._", None), [[2, 4, 4], [7, 4, 4]]);
        // The second gap does not fit into the first canvas.
        assert_eq!(at("_.__.", Some(1)), [[0, 4, 4]]);
        assert_eq!(at("_..___.", Some(1)), [[0, 4, 3], [3, 4, 4]]);
        // A gap longer than a canvas takes several.
        assert_eq!(at("______.._", Some(1)), [[0, 4, 4], [4, 4, 4], [8, 4, 4]]);
        // An open end belongs to the gap before it, and is not decided for its own sake.
        assert_eq!(at("_.__", None), [[0, 4, 4]]);
        assert_eq!(windows("_.", None, Reading::Cached, 5, 5), [[0, 4, 2], [2, 4, 4]]);
    }

    #[test]
    fn blocks_without_gaps_are_no_canvases() {
        let at = |text, prompt| windows(text, Some(1), Reading::Blocks, prompt, 0);
        assert_eq!(at("_.........._", 4), [[0, 4, 4], [8, 4, 4]]);
        assert_eq!(at("_.........._", 7), [[0, 1, 1], [9, 4, 4]]);
        assert_eq!(at(".._", 7), [[1, 4, 4]]);
        assert_eq!(windows("._.", Some(1), Reading::Whole, 7, 0), [[0, 4, 4]]);
        assert_eq!(windows("._.", None, Reading::Whole, 7, 9), [[0, 9, 9]]);
    }

    #[test]
    fn an_end_is_followed_by_padding() {
        let g = given("_.", Some(9));
        let slots = [0, 1, 2, 3, 99].map(|at| g.slot(at, 5));
        assert_eq!(slots, [Slot::Gap, Slot::Fixed(3), Slot::Fixed(9), Slot::Fixed(5), Slot::Fixed(5)]);
        assert_eq!((g.tokens(1), g.tokens(50), given("_.", None).tokens(50)), (2, 2, 50));
    }
}
