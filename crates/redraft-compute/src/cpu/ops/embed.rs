//! Embedding rows, and the soft embedding of a distribution.
//!
//! The soft embedding is a product of matrices whose inner dimension is the vocabulary:
//!
//! 1. Ids that have probability 0 for every token are left out: they would add ±0 to sums that are never -0.
//! 2. The others are taken [`DEPTH`] at a time, ascending. Their table rows are unpacked once, by all threads
//!    together, into panels `[column / 16][id][16]`; their probabilities are packed.
//! 3. A tile is 16 columns of all tokens: the matrix kernel adds the ids to the sums in the output.
//! 4. At the end one multiplication by the scale.

use super::packed::{groups, interleave, resize};
use super::panel::{DEPTH, Matrix};
use crate::cpu::pool::Grid;
use crate::cpu::vector::LANES;
use crate::cpu::{Cpu, Cx};
use crate::{ComputeError, op};

pub(crate) fn run(cpu: &mut Cpu, o: &op::Embed, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let table = Matrix::new(cx.weights.get(o.table)?)?;
    let (ids, n) = (cx.int(o.ids), table.cols());
    let limit = table.rows();
    if let Some(row) = ids.iter().position(|&id| usize::try_from(id).map_or(true, |id| id >= limit)) {
        return Err(ComputeError::IdOutOfRange { op: "Embed", id: i64::from(ids[row]), row, limit });
    }
    let (scale, kernels) = (o.scale as f32, cpu.table);
    cpu.pool.rows(&mut out, n, n, |thread, t, out| {
        let row = &mut cpu.scratch(thread).row;
        row.resize(n, 0.0);
        table.row(kernels, 0, ids[t] as usize, row);
        (kernels.scale)(row, scale, out);
    });
    cx.put_real(o.out, out);
    Ok(())
}

pub(crate) fn soft(cpu: &mut Cpu, o: &op::SoftEmbed, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let matrix = Matrix::new(cx.weights.get(o.table)?)?;
    let probs = cx.real(o.probs);
    let (tokens, vocab, n) = (o.probs.rows(), matrix.rows(), matrix.cols());
    let active = active(cpu, probs, vocab);
    let across = n.div_ceil(LANES);
    let mut panels = std::mem::take(&mut cpu.panels);
    let mut packed = std::mem::take(&mut cpu.probs);
    resize(&mut panels, across * DEPTH, "panels of the embedding table")?;
    resize(&mut packed, tokens * DEPTH, "packed probabilities")?;
    let mut bounds = vec![0];
    bounds.extend(groups(cpu.table.groups, 0, tokens).map(|(at, size)| at + size));

    let (table, pool) = (cpu.table, &cpu.pool);
    for ids in active.chunks(DEPTH) {
        let depth = ids.len();
        // One column of the panels is one id.
        let grid = Grid { cols: depth, bands: &[0, across], tile_cols: 4 };
        pool.tiles(&mut panels[..across * depth], grid, |thread, mut tile| {
            let row = &mut cpu.scratch(thread).row;
            row.resize(n, 0.0);
            for i in 0..tile.cols {
                matrix.row(table, 0, ids[tile.col + i] as usize, row);
                for (c, x) in row.chunks(LANES).enumerate() {
                    let out = &mut tile.row_mut(c)[i];
                    out[..x.len()].copy_from_slice(x);
                    out[x.len()..].fill(0.0);
                }
            }
        });
        let grid = Grid { cols: depth, bands: &bounds, tile_cols: depth };
        pool.tiles(&mut packed[..tokens * depth], grid, |thread, mut tile| {
            let (first, size) = (tile.row, tile.rows);
            let gathered = &mut cpu.scratch(thread).row;
            gathered.resize(size * depth, 0.0);
            for (i, row) in gathered.chunks_exact_mut(depth).enumerate() {
                let probs = &probs[(first + i) * vocab..][..vocab];
                row.iter_mut().zip(ids).for_each(|(p, &id)| *p = probs[id as usize]);
            }
            interleave(size, |i| &gathered[i * depth..][..depth], |x| x, tile.whole());
        });
        let (panels, packed) = (&panels, &packed);
        let grid = Grid { cols: n, bands: &[0, tokens], tile_cols: LANES };
        pool.tiles(&mut out, grid, |thread, mut tile| {
            let panel = &panels[tile.col / LANES * depth..][..depth];
            let sums = &mut cpu.scratch(thread).sums;
            for (at, size) in groups(table.groups, 0, tokens) {
                sums.clear();
                sums.resize(size, [0.0; LANES]);
                for (i, sums) in sums.iter_mut().enumerate() {
                    sums[..tile.cols].copy_from_slice(tile.row_mut(at + i));
                }
                (table.gemm)(panel, &packed[at * depth..][..size * depth], sums);
                for (i, sums) in sums.iter().enumerate() {
                    let row = tile.row_mut(at + i);
                    row.copy_from_slice(&sums[..row.len()]);
                }
            }
        });
    }
    let scale = o.scale as f32;
    pool.rows(&mut out, n, n, |thread, _, out| {
        let row = &mut cpu.scratch(thread).row;
        row.clear();
        row.extend_from_slice(out);
        (table.scale)(row, scale, out);
    });
    (cpu.panels, cpu.probs) = (panels, packed);
    cx.put_real(o.out, out);
    Ok(())
}

/// The ids to which some token gives a probability other than 0, ascending.
fn active(cpu: &Cpu, probs: &[f32], vocab: usize) -> Vec<u32> {
    let mut seen = vec![false; vocab];
    cpu.pool.rows(&mut seen, 1, 4096, |_, first, seen| {
        for row in probs.chunks_exact(vocab) {
            for (seen, &p) in seen.iter_mut().zip(&row[first..]) {
                *seen |= p != 0.0;
            }
        }
    });
    (0..).zip(seen).filter_map(|(id, seen)| seen.then_some(id)).collect()
}
