//! Embedding rows, and the soft embedding of a distribution.
//!
//! The soft embedding adds table rows, weighed by probabilities that do not exist before:
//!
//! 1. The statistics say which tiles of ids hold anything for which rows. The others are skipped.
//! 2. For some tiles at a time, one thread a tile, the logits are computed again, and from them the probabilities,
//!    with a flag for each that is large enough.
//! 3. Then each thread takes some columns of these tiles. The table rows that any flag asks for are unpacked, a block of
//!    [`BLOCK`] ids at a time, and used for all rows.
//! 4. At the end one multiplication by the scale.

use super::logits::{ROWS, Source, bands};
use super::operand::Operand;
use super::packed::resize;
use super::panel::Matrix;
use crate::cpu::kernels::soft::{BLOCK, BLOCKS, COLUMNS, Columns, Probability, Probs, Rows, Weighed};
use crate::cpu::vector::LANES;
use crate::cpu::{Cpu, Cx, Scratch};
use crate::numerics::Form;
use crate::op::{STATS, TILE};
use crate::{ComputeError, math, op};

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
    probs: &'a mut [Probs],
    /// `[BLOCKS][rows]`.
    flags: &'a mut [u32],
    outcome: Result<(), ComputeError>,
}

pub(crate) fn soft(cpu: &mut Cpu, o: &op::SoftEmbed, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let matrix = Matrix::new(cx.weights.get(o.table)?)?;
    let source = Source::new(&o.of.logits, cx)?;
    let (stats, tiles) = (cx.real(o.of.stats), cx.real(o.of.tiles));
    let n = matrix.cols();
    let numerics = o.of.logits.numerics;
    let soft = Soft {
        matrix,
        source,
        cut: numerics.probability_cut(source.vocab()),
        form: matrix.form(numerics),
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
    probs: Vec<Probs>,
    flags: Vec<u32>,
    /// `[columns / COLUMNS][rows]`.
    sums: Vec<Columns>,
}

struct Soft<'a> {
    matrix: Matrix<'a>,
    source: Source<'a>,
    cut: f32,
    /// In `fast` probabilities and numbers of the table are rounded to bf16, unless the table is one of f32.
    form: Form,
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
        let across = n.div_ceil(COLUMNS);
        resize(&mut buf.probs, per * rows * BLOCKS, "probabilities")?;
        resize(&mut buf.flags, per * rows * BLOCKS, "flags of probabilities")?;
        resize(&mut buf.sums, rows * across, "soft embeddings")?;
        buf.sums.fill(Columns::default());
        for chunk in needed.chunks(per) {
            let mut work: Vec<TileWork<'_>> = chunk
                .iter()
                .zip(buf.probs.chunks_exact_mut(rows * BLOCKS))
                .zip(buf.flags.chunks_exact_mut(rows * BLOCKS))
                .map(|((needed, probs), flags)| TileWork { tile: needed.0, probs, flags, outcome: Ok(()) })
                .collect();
            pool.items(&mut work, |thread, i, work| {
                work.outcome = self.probabilities(cpu, &block, &chunk[i].1, &mut cpu.scratch(thread), work);
            });
            for work in &mut work {
                std::mem::replace(&mut work.outcome, Ok(()))?;
            }
            self.add(cpu, &work, rows, &mut buf.sums);
        }
        let sums = &buf.sums;
        pool.rows(out, n, n, |_, t, out| {
            for (sums, out) in sums.chunks_exact(rows).zip(out.chunks_mut(COLUMNS)) {
                (table.scale)(&sums[t].0.as_flattened()[..out.len()], self.scale, out);
            }
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
            let (max, inverse) = (block.max(t), block.inverse[t]);
            let of = Probability { max, inverse, cut: self.cut, half: self.form != Form::F32 };
            let flags = (table.probabilities)(x, &of, block.rows, &mut work.probs[t..]);
            for (b, flags) in flags.into_iter().enumerate() {
                work.flags[b * block.rows + t] = flags;
            }
        }
        Ok(())
    }

    /// Adds the ids of some tiles to the sums. Each thread takes some columns and all these tiles, so that it
    /// unpacks a block of the table into its own cache and uses it for all rows.
    fn add(&self, cpu: &Cpu, work: &[TileWork<'_>], rows: usize, sums: &mut [Columns]) {
        let (table, pool, n) = (cpu.table, &cpu.pool, self.matrix.cols());
        // What would leave threads without work is cut into bands of rows; each unpacks the table for itself.
        let across = n.div_ceil(COLUMNS);
        let rest = across % pool.threads();
        let split = bands(rows, rest, pool.threads());
        let mut items = Vec::new();
        for (c, mut sums) in sums.chunks_exact_mut(rows).enumerate() {
            let bands = if c + rest < across { &[0, rows][..] } else { &split };
            for band in bands.windows(2) {
                let (now, later) = sums.split_at_mut(band[1] - band[0]);
                items.push((c * COLUMNS, band[0], now));
                sums = later;
            }
        }
        let half = self.form != Form::F32;
        pool.items(&mut items, |_, _, (col, first, sums)| {
            let len = COLUMNS.min(n - *col);
            let mut block = [Columns::default(); BLOCK];
            let mut two = [Columns::default(); 2];
            for (work, b) in work.iter().flat_map(|work| (0..BLOCKS).map(move |b| (work, b))) {
                let at = b * rows + *first;
                let flags = &work.flags[at..][..sums.len()];
                let any = flags.iter().fold(0, |any, flags| any | flags);
                if any == 0 {
                    continue;
                }
                for pair in 0..BLOCK / 2 {
                    let wanted = any >> (2 * pair) & 3;
                    if wanted == 0 {
                        continue;
                    }
                    for (i, row) in two.iter_mut().enumerate().filter(|(i, _)| wanted >> i & 1 != 0) {
                        let id = work.tile * TILE + b * BLOCK + 2 * pair + i;
                        self.matrix.part(table, [0, id, *col], &mut row.0.as_flattened_mut()[..len]);
                    }
                    (table.soft_rows)(&two, half, pair, &mut block);
                }
                let rows = Rows { of: &block, width: len.div_ceil(LANES), half };
                (table.soft_embed)(&rows, &Weighed { p: &work.probs[at..][..sums.len()], flags }, sums);
            }
        });
    }
}
