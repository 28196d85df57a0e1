//! `out = x · wᵀ (+ bias)`.
//!
//! 1. The activations of up to [`BLOCK`] tokens are packed once.
//! 2. A tile is 16 output features of all these tokens. Its sums are `[tokens][16]` in the thread's own
//!    memory; chunk after chunk of input features, a panel is unpacked and used for all groups of tokens.
//! 3. Bias, flush, copy to the output.

use super::packed::{Packed, groups};
use super::panel::{Matrix, Unpacker, depths};
use crate::cpu::pool::Grid;
use crate::cpu::table::Table;
use crate::cpu::vector::{LANES, Row16};
use crate::cpu::{Cpu, Cx};
use crate::{ComputeError, op};

/// Tokens whose packed activations are held at a time; each panel is unpacked once per this many.
pub(crate) const BLOCK: usize = 1024;

/// Sets `sums[i]`, for each token of the band `[first, n]`, to the products with up to 16 rows of a matrix.
pub(crate) fn product(
    table: &Table,
    matrix: Matrix<'_>,
    at: [usize; 3],
    x: &Packed,
    [first, n]: [usize; 2],
    buf: &mut Unpacker,
    sums: &mut Vec<Row16>,
) {
    sums.clear();
    sums.resize(n, [0.0; LANES]);
    for depth in depths(matrix.cols()) {
        let panel = matrix.panel(table, at, depth, buf);
        for group in groups(table.groups, first, n) {
            let sums = &mut sums[group.0 - first..][..group.1];
            (table.gemm)(panel, x.group(group, depth), sums);
        }
    }
}

pub(crate) fn run(cpu: &mut Cpu, o: &op::MatMul, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let matrix = Matrix::new(cx.weights.get(o.w)?)?;
    let bias = match o.bias {
        Some(b) => Some(Matrix::new(cx.weights.get(b)?)?.vector(cpu.table)),
        None => None,
    };
    let x = cx.real(o.x);
    let (k, n) = (matrix.cols(), matrix.rows());
    for (b, out) in out.chunks_mut((BLOCK * n).max(1)).enumerate() {
        let tokens = out.len() / n;
        let row = |t: usize| &x[(b * BLOCK + t) * k..][..k];
        cpu.packed.fill(&cpu.pool, cpu.table.groups, &[0, tokens], k, row)?;
        let (table, packed) = (cpu.table, &cpu.packed);
        let grid = Grid { cols: n, bands: &[0, tokens], tile_cols: LANES };
        cpu.pool.tiles(out, grid, |thread, mut tile| {
            let scratch = &mut *cpu.scratch(thread);
            let at = [0, tile.col, tile.cols];
            product(table, matrix, at, packed, [0, tokens], &mut scratch.unpacker, &mut scratch.sums);
            let bias = bias.as_ref().map(|b| {
                let mut all = [0.0; LANES];
                all[..tile.cols].copy_from_slice(&b[tile.col..tile.col + tile.cols]);
                all
            });
            (table.finish)(&mut scratch.sums, bias.as_ref());
            for (t, sums) in scratch.sums.iter().enumerate() {
                let row = tile.row_mut(t);
                row.copy_from_slice(&sums[..row.len()]);
            }
        });
    }
    cx.put_real(o.out, out);
    Ok(())
}
