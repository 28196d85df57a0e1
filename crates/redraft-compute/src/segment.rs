//! The sequences of a pass, and which keys their rows see.

use std::ops::Range;
use std::sync::Arc;

/// The rows of one sequence in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Tokens in its KV cache.
    pub n_past: usize,
    /// Its rows, which follow them.
    pub rows: usize,
}

/// The sequences of a pass, in the order of their rows. Ops that look at one row at a time need not know of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segments(Arc<[Segment]>);

impl Segments {
    /// These sequences.
    pub fn new(segments: &[Segment]) -> Segments {
        Segments(segments.into())
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rows of all of them; what cannot be counted is the most.
    pub fn rows(&self) -> usize {
        self.iter().fold(0, |n, s| n.saturating_add(s.rows))
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Segment> + '_ {
        self.0.iter().copied()
    }

    /// The rows of each block of `len` tokens, where blocks are counted from the start of a sequence and the pass begins
    /// with a whole one.
    pub fn blocks(&self, len: usize) -> Vec<Range<usize>> {
        let of = |span: Range<usize>| {
            let end = span.end;
            span.step_by(len.max(1)).map(move |first| first..end.min(first.saturating_add(len)))
        };
        self.spans().flat_map(|(_, span)| of(span)).collect()
    }

    /// Each of them with the rows of the pass that are its own.
    pub fn spans(&self) -> impl Iterator<Item = (Segment, Range<usize>)> + '_ {
        self.iter().scan(0usize, |start, s| {
            let from = *start;
            *start = from.saturating_add(s.rows);
            Some((s, from..*start))
        })
    }
}

/// Which keys a query sees. Keys are counted from the start of the sequence: the cache holds keys
/// `0..n_past`, the pass adds `n_past..n_past + rows`. Every rule gives one contiguous range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// Prompt pass: keys up to the query itself; with a window, only the last `window` of them.
    Causal {
        /// Keys visible, the query's own included.
        window: Option<usize>,
    },
    /// Canvas pass: the whole canvas, and of the prefix all keys or the last `prefix`, the same for every
    /// position of the canvas.
    Canvas {
        /// Keys of the prefix that stay visible.
        prefix: Option<usize>,
    },
    /// Block-causal pass: everything before the query's own block and that block, as far as the pass reaches. Blocks
    /// are counted from the start of the sequence.
    Blocks {
        /// Keys of a block, at least 1.
        len: usize,
    },
}

impl Mask {
    /// The keys that row `row` of a sequence sees.
    pub fn visible(self, Segment { n_past, rows }: Segment, row: usize) -> Range<usize> {
        match self {
            Mask::Causal { window } => {
                let end = n_past + row + 1;
                window.map_or(0, |w| end.saturating_sub(w))..end
            }
            Mask::Canvas { prefix } => prefix.map_or(0, |p| n_past.saturating_sub(p))..n_past + rows,
            Mask::Blocks { len } => {
                let end = (n_past + row + 1).checked_next_multiple_of(len).unwrap_or(usize::MAX);
                0..end.min(n_past + rows)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the definition: a query at `i` sees the keys `j` of the pass and before with `j / len <= i / len`.
    #[test]
    fn blocks_are_counted_from_the_start_of_the_sequence() {
        for len in 1..9 {
            for n_past in 0..10 {
                for rows in 1..12 {
                    for row in 0..rows {
                        let seen = Mask::Blocks { len }.visible(Segment { n_past, rows }, row);
                        let sees = |j: &usize| j / len <= (n_past + row) / len;
                        let expected: Vec<usize> = (0..n_past + rows).filter(sees).collect();
                        assert_eq!(seen.collect::<Vec<_>>(), expected, "{len} {n_past} {rows} {row}");
                    }
                }
            }
        }
    }
}
