//! `out = x · wᵀ (+ bias)`.
//!
//! 1. The activations of up to [`BLOCK`] tokens are packed (in `fast`: quantized) once.
//! 2. A tile is 16 or 32 output features of all these tokens. Its sums are `[tokens][16]` in the thread's own
//!    memory; chunk after chunk of input features, a panel is unpacked and used for all groups of tokens.
//! 3. Bias, flush, copy to the output.

use super::operand::{Of, Rows};
use super::panel::Matrix;
use crate::cpu::pool::Grid;
use crate::cpu::vector::LANES;
use crate::cpu::{Cpu, Cx};
use crate::{ComputeError, op};

/// Tokens whose packed activations are held at a time; each panel is unpacked once per this many.
pub(crate) const BLOCK: usize = 1024;

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
        let of = Of { value: (cx.run, o.x), first: b * BLOCK, form: matrix.form(o.numerics) };
        cpu.operand.fill_once(&cpu.pool, cpu.table, of, [tokens, k], row)?;
        let (table, operand) = (cpu.table, &cpu.operand);
        let grid = Grid { cols: n, bands: &[0, tokens], tile_cols: operand.tile_cols() };
        cpu.pool.tiles(out, grid, |thread, mut tile| {
            let scratch = &mut *cpu.scratch(thread);
            let at = [0, tile.col, tile.cols];
            let (buf, sums) = (&mut scratch.unpackers, &mut scratch.sums);
            let next = tile.next.map(|t| Rows { matrix, at: [0, t.col, t.cols] });
            operand.product(table, matrix, (at, next), [0, tokens], buf, sums);
            for (half, sums) in sums.chunks_mut(tokens).enumerate() {
                let cols = half * LANES..tile.cols.min((half + 1) * LANES);
                let bias = bias.as_ref().map(|b| {
                    let mut all = [0.0; LANES];
                    all[..cols.len()].copy_from_slice(&b[tile.col..][cols]);
                    all
                });
                (table.finish)(sums, bias.as_ref());
            }
            tile.put(sums);
        });
    }
    cx.put_real(o.out, out);
    Ok(())
}
