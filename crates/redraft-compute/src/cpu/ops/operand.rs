//! The activations of a product in the form that the weights ask for, and the product itself.

use super::int_panel::{IntPacked, IntPanel};
use super::packed::{Packed, groups};
use super::panel::{Matrix, Unpacker, depths};
use crate::cpu::pool::Pool;
use crate::cpu::table::Table;
use crate::cpu::vector::{LANES, Row16};
use crate::numerics::Form;
use crate::{ComputeError, Val};

/// Activations in the form that some weights ask for.
#[derive(Default)]
pub(crate) struct Operand {
    form: Form,
    real: Packed,
    int: IntPacked,
    /// Of int8 activations, the token of each place.
    order: Vec<usize>,
    of: Option<Of>,
}

/// Which activations an operand holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Of {
    /// The run and the value of it.
    pub(crate) value: (u64, Val),
    /// First token.
    pub(crate) first: usize,
    pub(crate) form: Form,
}

/// Tokens at their places: bands of places that are used together, and the tokens.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    /// Ascending, from 0.
    pub(crate) bands: &'a [usize],
    /// The token of each place, and the number of tokens; none where they are the places.
    pub(crate) order: Option<(&'a [usize], usize)>,
}

/// Buffers of one thread for panels.
#[derive(Default)]
pub(crate) struct Unpackers {
    pub(crate) real: Unpacker,
    pub(crate) int: [IntPanel; 2],
}

/// Some rows of a matrix.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) matrix: Matrix<'a>,
    /// Expert, first row, number of rows.
    pub(crate) at: [usize; 3],
}

impl Rows<'_> {
    /// A part of all bytes.
    fn part(&self, part: usize, parts: usize) -> &[u8] {
        let bytes = self.matrix.run_bytes(self.at);
        &bytes[bytes.len() * part / parts..bytes.len() * (part + 1) / parts]
    }
}

impl Operand {
    /// Packs tokens, `row(token)` of `k` numbers. Groups do not cross bands.
    pub(crate) fn fill<'a>(
        &mut self,
        pool: &Pool,
        table: &Table,
        form: Form,
        places: Places<'_>,
        k: usize,
        row: impl Fn(usize) -> &'a [f32] + Sync,
    ) -> Result<(), ComputeError> {
        (self.form, self.of) = (form, None);
        let half = match form {
            Form::F32 => None,
            Form::Half(half) => Some(half),
            Form::Int8(units) => {
                let n = places.bands.last().copied().unwrap_or(0);
                self.order.clear();
                let tokens = match places.order {
                    Some((order, tokens)) => {
                        self.order.extend_from_slice(order);
                        tokens
                    }
                    None => {
                        self.order.extend(0..n);
                        n
                    }
                };
                return self.int.fill(pool, table, units, [tokens, k], row);
            }
        };
        let place = |i: usize| row(places.order.map_or(i, |(order, _)| order[i]));
        self.real.fill(pool, table, half, places.bands, k, place)
    }

    /// The same for tokens in one band; nothing to do where the operand holds them from the op before.
    pub(crate) fn fill_once<'a>(
        &mut self,
        pool: &Pool,
        table: &Table,
        of: Of,
        [tokens, k]: [usize; 2],
        row: impl Fn(usize) -> &'a [f32] + Sync,
    ) -> Result<(), ComputeError> {
        if self.of != Some(of) {
            self.fill(pool, table, of.form, Places { bands: &[0, tokens], order: None }, k, row)?;
            self.of = Some(of);
        }
        Ok(())
    }

    /// Columns of the tiles that suit the product best.
    pub(crate) fn tile_cols(&self) -> usize {
        if let Form::Int8(_) = self.form { 2 * LANES } else { LANES }
    }

    /// Sets `sums`, for each token of the band `[first, n]`, to the products with up to 32 rows of a matrix: first
    /// those with up to 16 rows of all tokens, then, if there are more rows, those with the others. `next` are the
    /// weights that this thread needs next; the memory is asked for them on the way.
    pub(crate) fn product(
        &self,
        table: &Table,
        matrix: Matrix<'_>,
        ([expert, row, n_rows], next): ([usize; 3], Option<Rows<'_>>),
        [first, n]: [usize; 2],
        buf: &mut Unpackers,
        sums: &mut Vec<Row16>,
    ) {
        let halves = [LANES.min(n_rows), n_rows.saturating_sub(LANES)];
        if !matches!(self.form, Form::Int8(_)) {
            sums.clear();
        }
        sums.resize(2 * n, [0.0; LANES]);
        let (low, high) = sums.split_at_mut(n);
        let chunks = depths(matrix.cols()).count();
        for (chunk, depth) in depths(matrix.cols()).enumerate() {
            if let Form::Int8(units) = self.form {
                for (h, panel) in buf.int.iter_mut().enumerate() {
                    if h == 0 || halves[h] > 0 {
                        matrix.int_panel(table, units, [expert, row + h * LANES, halves[h]], depth, panel);
                    } else {
                        (panel.units, panel.n_units) = (units, 0);
                    }
                }
                let tokens = self.int.tokens(&self.order[first..first + n], depth[0]);
                let ahead = next.as_ref().map_or(&[][..], |next| next.part(chunk, chunks));
                (table.int_gemm)(&buf.int, tokens, chunk == 0, ahead, [low, high]);
            } else {
                for (h, sums) in [&mut *low, &mut *high].into_iter().enumerate() {
                    if halves[h] == 0 {
                        continue;
                    }
                    let at = [expert, row + h * LANES, halves[h]];
                    let panel = matrix.panel(table, at, depth, &mut buf.real);
                    // A product of two numbers of 16 bits has at most 22 bits, so it is exact in f32 if it is finite;
                    // if the largest one is, all are. Sums may still overflow, fused or not at the same place.
                    let exact = (self.real.largest() * panel.largest).is_finite();
                    let gemm = if exact { table.gemm_half } else { table.gemm };
                    for group in groups(table.groups, first, n) {
                        let sums = &mut sums[group.0 - first..][..group.1];
                        gemm(panel.rows, self.real.group(group, depth), sums);
                    }
                }
            }
        }
        if halves[1] == 0 {
            sums.truncate(n);
        }
    }
}
