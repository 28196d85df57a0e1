//! The activations of a product in the form that the weights ask for, and the product itself.

use super::int_panel::{IntPacked, IntPanel};
use super::packed::{Packed, groups};
use super::panel::{Matrix, Unpacker, depths};
use crate::ComputeError;
use crate::cpu::pool::Pool;
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
    pub(crate) int: IntPanel,
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
            Form::F32 => self.real.fill(pool, table.groups, bands, k, row, |x| x),
            Form::F16 | Form::Bf16 => self.real.fill(pool, table.groups, bands, k, row, |x| form.round(x)),
            Form::Int8(units) => self.int.fill(pool, table, units, bands, k, row),
        }
    }

    /// Sets `sums[i]`, for each token of the band `[first, n]`, to the products with up to 16 rows of a matrix.
    pub(crate) fn product(
        &self,
        table: &Table,
        matrix: Matrix<'_>,
        at: [usize; 3],
        [first, n]: [usize; 2],
        buf: &mut Unpackers,
        sums: &mut Vec<Row16>,
    ) {
        sums.clear();
        sums.resize(n, [0.0; LANES]);
        for depth in depths(matrix.cols()) {
            if let Form::Int8(units) = self.form {
                matrix.int_panel(table, units, at, depth, &mut buf.int);
                for group in groups(table.int_groups, first, n) {
                    let sums = &mut sums[group.0 - first..][..group.1];
                    (table.int_gemm)(&buf.int, self.int.group(group, depth), sums);
                }
            } else {
                let panel = matrix.panel(table, at, depth, &mut buf.real);
                for group in groups(table.groups, first, n) {
                    let sums = &mut sums[group.0 - first..][..group.1];
                    (table.gemm)(panel, self.real.group(group, depth), sums);
                }
            }
        }
    }
}
