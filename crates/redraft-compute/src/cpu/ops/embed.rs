//! Embedding rows, and the soft embedding of a distribution.
//!
//! The soft embedding adds table rows, weighed by probabilities that do not exist before:
//!
//! 1. The statistics say which tiles of ids hold anything for which rows. The others are skipped.
//! 2. For some tiles at a time, one thread a tile, the logits are computed again, and from them the probabilities,
//!    with a flag for each that is large enough.
//! 3. Tile after tile: the table rows that any flag asks for are unpacked, all threads together.
//! 4. Then each thread takes some columns. Blocks of [`BLOCK`] ids of these columns fit the first-level cache; for
//!    each row of the result the sums stay in registers while the flags of the block are followed.
//! 5. At the end one multiplication by the scale.

use super::logits::{ROWS, Source, bands};
use super::operand::Operand;
use super::packed::resize;
use super::panel::Matrix;
use crate::cpu::kernels::stats::{BLOCK, COLUMNS, Columns};
use crate::cpu::pool::Grid;
use crate::cpu::{Cpu, Cx, Scratch};
use crate::op::{STATS, TILE};
use crate::{ComputeError, math, op};

/// Blocks of a tile.
const BLOCKS: usize = TILE / BLOCK;

/// Table rows that a thread unpacks together.
const UNPACKED: usize = 8;

/// Probabilities that are held at a time (16 MiB).
const PROBABILITIES: usize = 1 << 22;

pub(crate) fn run(cpu: &mut Cpu, o: &op::Embed, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let table = Matrix::new(cx.weights.get(o.table)?)?;
    let (ids, n) = (cx.int(o.ids), table.cols());
    cx.check_ids("Embed", o.ids, table.rows())?;
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

/// What a chunk of ids knows of one tile.
struct TileWork<'a> {
    tile: usize,
    /// `[BLOCKS][rows][BLOCK]`: a thread reads all rows of a block in one stream.
    probs: &'a mut [f32],
    /// `[BLOCKS][rows]`.
    flags: &'a mut [u64],
    outcome: Result<(), ComputeError>,
}

pub(crate) fn soft(cpu: &mut Cpu, o: &op::SoftEmbed, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    out.fill(0.0);
    let matrix = Matrix::new(cx.weights.get(o.table)?)?;
    let source = Source::new(&o.of.logits, cx)?;
    let (stats, tiles) = (cx.real(o.of.stats), cx.real(o.of.tiles));
    let n = matrix.cols();
    let soft = Soft {
        matrix,
        source,
        cut: o.of.logits.numerics.probability_cut(source.vocab()),
        scale: o.scale as f32,
    };
    let (mut operand, mut buffers) = (std::mem::take(&mut cpu.operand), std::mem::take(&mut cpu.soft));
    let blocks = stats
        .chunks(ROWS * STATS)
        .zip(tiles.chunks(ROWS * 2 * source.tiles()))
        .zip(out.chunks_mut((ROWS * n).max(1)));
    for (block, ((stats, tiles), out)) in blocks.enumerate() {
        soft.rows(cpu, block * ROWS, [stats, tiles], &mut operand, &mut buffers, out)?;
    }
    (cpu.operand, cpu.soft) = (operand, buffers);
    cx.put_real(o.out, out);
    Ok(())
}

/// Buffers of the soft embedding.
#[derive(Default)]
pub(crate) struct Buffers {
    probs: Vec<f32>,
    flags: Vec<u64>,
    /// `[columns / COLUMNS][TILE]`.
    rows: Vec<Columns>,
}

struct Soft<'a> {
    matrix: Matrix<'a>,
    source: Source<'a>,
    cut: f32,
    scale: f32,
}

/// Rows that are treated together.
struct Block<'a> {
    /// The first of them.
    first: usize,
    rows: usize,
    stats: &'a [f32],
    /// Reciprocals of the sums of exponentials.
    inverse: Vec<f32>,
    /// The hidden states of these rows.
    operand: &'a Operand,
}

impl Block<'_> {
    /// The largest logit of a row.
    fn max(&self, t: usize) -> f32 {
        self.stats[t * STATS]
    }
}

impl Soft<'_> {
    /// The soft embeddings of the rows from `first` on, as many as `out` has.
    fn rows(
        &self,
        cpu: &Cpu,
        first: usize,
        [stats, tiles]: [&[f32]; 2],
        operand: &mut Operand,
        buf: &mut Buffers,
        out: &mut [f32],
    ) -> Result<(), ComputeError> {
        let (table, pool, source, n) = (cpu.table, &cpu.pool, &self.source, self.matrix.cols());
        let rows = stats.len() / STATS;
        source.fill(pool, table, &[0, rows], |i| first + i, operand)?;
        let inverse = stats.chunks_exact(STATS).map(|s| math::recip(s[3])).collect();
        let block = Block { first, rows, stats, inverse, operand };
        // The tiles of which some row needs some id, with these rows.
        let n_tiles = source.tiles();
        let needs = |t: usize, tile: usize| {
            let e = math::exp(tiles[t * 2 * n_tiles + tile] - block.max(t));
            math::flush(e * block.inverse[t]) >= self.cut
        };
        let mut needed: Vec<(usize, Vec<usize>)> = Vec::new();
        for tile in 0..n_tiles {
            let of: Vec<usize> = (0..rows).filter(|&t| needs(t, tile)).collect();
            if !of.is_empty() {
                needed.push((tile, of));
            }
        }
        let per = (PROBABILITIES / (rows * TILE)).clamp(1, needed.len().max(1));
        resize(&mut buf.probs, per * rows * TILE, "probabilities")?;
        resize(&mut buf.flags, per * rows * BLOCKS, "flags of probabilities")?;
        resize(&mut buf.rows, TILE * n.div_ceil(COLUMNS), "rows of the embedding table")?;
        for chunk in needed.chunks(per) {
            let mut work: Vec<TileWork<'_>> = chunk
                .iter()
                .zip(buf.probs.chunks_exact_mut(rows * TILE))
                .zip(buf.flags.chunks_exact_mut(rows * BLOCKS))
                .map(|((needed, probs), flags)| TileWork { tile: needed.0, probs, flags, outcome: Ok(()) })
                .collect();
            pool.items(&mut work, |thread, i, work| {
                work.outcome = self.probabilities(cpu, &block, &chunk[i].1, &mut cpu.scratch(thread), work);
            });
            for work in work {
                work.outcome?;
                self.add(cpu, work.tile, work.probs, work.flags, &mut buf.rows, out);
            }
        }
        pool.rows(out, n, n, |thread, _, out| {
            let row = &mut cpu.scratch(thread).row;
            row.clear();
            row.extend_from_slice(out);
            (table.scale)(row, self.scale, out);
        });
        Ok(())
    }

    /// The probabilities of one tile for those rows `of` the block that need some.
    fn probabilities(
        &self,
        cpu: &Cpu,
        block: &Block<'_>,
        of: &[usize],
        scratch: &mut Scratch,
        work: &mut TileWork<'_>,
    ) -> Result<(), ComputeError> {
        let (table, source) = (cpu.table, &self.source);
        // Packing rows again pays where they are few.
        let few = of.len() * 4 <= block.rows * 3;
        if few {
            let rows: Vec<usize> = of.iter().map(|t| block.first + t).collect();
            source.gather(&cpu.pool, table, work.tile, &rows, scratch)?;
        } else {
            let all = (block.operand, [0, block.rows]);
            source.tile(table, work.tile, all, |i| block.first + i, scratch);
        }
        work.flags.fill(0);
        let len = source.tile_len(work.tile);
        for (i, &t) in of.iter().enumerate() {
            let x = scratch.logits.row(if few { i } else { t }, len);
            let mut flags = [0; BLOCKS];
            let words = &mut flags[..len.div_ceil(BLOCK)];
            (table.probabilities)(x, block.max(t), block.inverse[t], self.cut, words);
            for (b, (x, flags)) in x.chunks(BLOCK).zip(flags).enumerate() {
                let at = b * block.rows + t;
                work.flags[at] = flags;
                work.probs[at * BLOCK..][..x.len()].copy_from_slice(x);
            }
        }
        Ok(())
    }

    /// Adds the ids of one tile to the sums.
    fn add(
        &self,
        cpu: &Cpu,
        tile: usize,
        probs: &[f32],
        flags: &[u64],
        rows: &mut [Columns],
        out: &mut [f32],
    ) {
        let (table, pool, n) = (cpu.table, &cpu.pool, self.matrix.cols());
        let mut any = [0u64; BLOCKS];
        let n_rows = flags.len() / BLOCKS;
        for (any, flags) in any.iter_mut().zip(flags.chunks_exact(n_rows)) {
            *any = flags.iter().fold(0, |any, flags| any | flags);
        }
        let grid = Grid { cols: TILE, bands: &[0, n.div_ceil(COLUMNS)], tile_cols: UNPACKED };
        pool.tiles(rows, grid, |thread, mut part| {
            let row = &mut cpu.scratch(thread).row;
            row.resize(n, 0.0);
            let first = part.col;
            for i in 0..part.cols {
                let at = first + i;
                if any[at / BLOCK] >> (at % BLOCK) & 1 == 0 {
                    continue;
                }
                self.matrix.row(table, 0, tile * TILE + at, row);
                let (whole, rest) = row.as_chunks::<COLUMNS>();
                for (c, x) in whole.iter().enumerate() {
                    part.row_mut(c)[i].0.as_flattened_mut().copy_from_slice(x);
                }
                if !rest.is_empty() {
                    part.row_mut(whole.len())[i].0.as_flattened_mut()[..rest.len()].copy_from_slice(rest);
                }
            }
        });
        let bands = bands(n_rows, n.div_ceil(COLUMNS), pool.threads());
        let grid = Grid { cols: n, bands: &bands, tile_cols: COLUMNS };
        let rows = &*rows;
        pool.tiles(out, grid, |_, mut part| {
            let rows = &rows[part.col / COLUMNS * TILE..][..TILE];
            for (b, rows) in rows.chunks_exact(BLOCK).enumerate().filter(|(b, _)| any[*b] != 0) {
                let at = b * n_rows + part.row;
                let flags = flags[at..][..part.rows].iter();
                let probs = probs[at * BLOCK..].chunks_exact(BLOCK);
                for (t, (&flags, p)) in flags.zip(probs).enumerate().filter(|(_, (flags, _))| **flags != 0) {
                    (table.soft_embed)(rows, p, flags, part.row_mut(t));
                }
            }
        });
    }
}
