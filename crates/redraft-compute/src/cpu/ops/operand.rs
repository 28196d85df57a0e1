//! The activations of a product in the form that the weights ask for, and the product itself.

use super::int_panel::{IntPacked, IntPanel, int_groups};
use super::packed::{Packed, groups};
use super::panel::{Matrix, Unpacker, depths};
use crate::ComputeError;
use crate::cpu::pool::Pool;
use crate::cpu::prefetch;
use crate::cpu::table::Table;
use crate::cpu::vector::{LANES, Row16};
use crate::numerics::Form;

/// Packed activations of some tokens.
#[derive(Default)]
pub(crate) struct Operand {
    form: Form,
    real: Packed,
    int: IntPacked,
}

/// Buffers of one thread for panels.
#[derive(Default)]
pub(crate) struct Unpackers {
    pub(crate) real: Unpacker,
    pub(crate) int: [IntPanel; 2],
}

impl Operand {
    /// Packs tokens in bands: groups do not cross `bands` (ascending, from 0). `row(i)` is token `i`, of `k`
    /// numbers.
    pub(crate) fn fill<'a>(
        &mut self,
        pool: &Pool,
        table: &Table,
        form: Form,
        bands: &[usize],
        k: usize,
        row: impl Fn(usize) -> &'a [f32] + Sync,
    ) -> Result<(), ComputeError> {
        self.form = form;
        match form {
            Form::F32 => self.real.fill(pool, table, None, bands, k, row),
            Form::Half(half) => self.real.fill(pool, table, Some(half), bands, k, row),
            Form::Int8(units) => self.int.fill(pool, table, units, bands, k, row),
        }
    }

    /// Columns of the tiles that suit the product best.
    pub(crate) fn tile_cols(&self) -> usize {
        if let Form::Int8(_) = self.form { 2 * LANES } else { LANES }
    }

    /// Sets `sums`, for each token of the band `[first, n]`, to the products with up to 32 rows of a matrix: first
    /// those with up to 16 rows of all tokens, then, if there are more rows, those with the others. `ahead` are the
    /// weights that this thread needs next; the memory is asked for them on the way.
    pub(crate) fn product(
        &self,
        table: &Table,
        matrix: Matrix<'_>,
        ([expert, row, n_rows], ahead): ([usize; 3], &[u8]),
        [first, n]: [usize; 2],
        buf: &mut Unpackers,
        sums: &mut Vec<Row16>,
    ) {
        let halves = [LANES.min(n_rows), n_rows.saturating_sub(LANES)];
        sums.clear();
        sums.resize(if halves[1] > 0 { 2 * n } else { n }, [0.0; LANES]);
        let (low, high) = sums.split_at_mut(n);
        // The bytes ahead are asked for a few at a time: a core waits once it has asked the memory for some dozens.
        let steps = (int_groups(table, first, n).count() * depths(matrix.cols()).count()).max(1);
        let mut parts = (0..steps).map(|i| &ahead[ahead.len() * i / steps..ahead.len() * (i + 1) / steps]);
        let mut next = depths(matrix.cols()).skip(1);
        for depth in depths(matrix.cols()) {
            if let Form::Int8(units) = self.form {
                if let Some(depth) = next.next() {
                    for (h, &n_rows) in halves.iter().enumerate() {
                        matrix.prefetch([expert, row + h * LANES, n_rows], depth);
                    }
                }
                for (h, panel) in buf.int.iter_mut().enumerate() {
                    if h == 0 || halves[h] > 0 {
                        matrix.int_panel(table, units, [expert, row + h * LANES, halves[h]], depth, panel);
                    } else {
                        (panel.units, panel.n_units) = (units, depth[1] / units.len);
                    }
                }
                for (at, size) in int_groups(table, first, n) {
                    prefetch::far(parts.next().unwrap_or_default());
                    let low = &mut low[at - first..][..size];
                    let high = if high.is_empty() { &mut [][..] } else { &mut high[at - first..][..size] };
                    (table.int_gemm)(&buf.int, self.int.group((at, size), depth), [low, high]);
                }
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
    }
}
