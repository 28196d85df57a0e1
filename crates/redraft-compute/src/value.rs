//! Handles of the values that flow between ops.

/// What the elements of a value are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Real numbers, in the number type of the backend (f32, f64, or f32 rounded to bf16).
    Real,
    /// 32-bit signed integers: token ids, expert ids.
    Int,
}

/// Handle of one value inside a [`Program`](crate::Program): a row-major matrix `[rows, cols]`.
///
/// Rows are positions (tokens). Each value is written by exactly one op (or is an input) and never changed
/// afterwards, so a tap can read it and a backend can reuse its memory after the last reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Val {
    pub(crate) id: u32,
    rows: u32,
    cols: u32,
    kind: Kind,
}

impl Val {
    pub(crate) fn new(id: u32, rows: usize, cols: usize, kind: Kind) -> Option<Val> {
        rows.checked_mul(cols)?;
        Some(Val { id, rows: u32::try_from(rows).ok()?, cols: u32::try_from(cols).ok()?, kind })
    }

    /// The value cut to its first rows, for those who look at these alone.
    #[must_use]
    pub fn first_rows(self, rows: usize) -> Val {
        Val { rows: self.rows.min(u32::try_from(rows).unwrap_or(u32::MAX)), ..self }
    }

    /// Index of the value in its program; dense, from 0.
    pub fn index(self) -> usize {
        self.id as usize
    }

    /// Number of rows (positions).
    pub fn rows(self) -> usize {
        self.rows as usize
    }

    /// Number of elements in a row.
    pub fn cols(self) -> usize {
        self.cols as usize
    }

    /// Number of elements.
    pub fn len(self) -> usize {
        self.rows() * self.cols()
    }

    /// Whether there are no elements.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What the elements are.
    pub fn kind(self) -> Kind {
        self.kind
    }
}
