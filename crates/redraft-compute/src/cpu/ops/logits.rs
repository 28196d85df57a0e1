//! Logits, tile by tile: given ones, or those of the head for the rows at hand. They live in a buffer of one thread.

use super::operand::{Operand, Places, Rows};
use super::panel::Matrix;
use crate::ComputeError;
use crate::cpu::kernels::stats::Tile;
use crate::cpu::pool::Pool;
use crate::cpu::table::Table;
use crate::cpu::vector::{LANES, put_row};
use crate::cpu::{Cpu, Cx, Scratch};
use crate::math;
use crate::numerics::Form;
use crate::op::{self, TILE};
use crate::reference::{Place, place, search};

/// Distance between rows in the buffer: not a power of two, so that the rows of a column lie in different sets of the
/// cache.
const STRIDE: usize = TILE + LANES;

/// Rows that are treated together; each tile of the head is unpacked once per this many.
pub(crate) const ROWS: usize = 1024;

/// Where logits come from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    x: &'a [f32],
    by: f32,
    vocab: usize,
    head: Option<Head<'a>>,
}

#[derive(Clone, Copy)]
struct Head<'a> {
    matrix: Matrix<'a>,
    form: Form,
    cap: Option<[f32; 2]>,
}

/// Buffers of one thread.
#[derive(Default)]
pub(crate) struct Buffers {
    operand: Operand,
    logits: Vec<f32>,
}

impl Buffers {
    /// Row `i` of the last tile.
    pub(crate) fn row(&mut self, i: usize, len: usize) -> &mut [f32] {
        &mut self.logits[i * STRIDE..][..len]
    }
}

impl<'a> Source<'a> {
    pub(crate) fn new(o: &op::Logits, cx: &'a Cx<'_>) -> Result<Source<'a>, ComputeError> {
        let head = match o.head {
            Some(head) => {
                let matrix = Matrix::new(cx.weights.get(head.w)?)?;
                let cap = head.softcap.map(|cap| [cap as f32, (1.0 / cap) as f32]);
                Some(Head { matrix, form: matrix.form(o.numerics), cap })
            }
            None => None,
        };
        let vocab = head.map_or(o.x.cols(), |h| h.matrix.rows());
        Ok(Source { x: cx.real(o.x), by: o.scale as f32, vocab, head })
    }

    pub(crate) fn vocab(&self) -> usize {
        self.vocab
    }

    /// Tiles of the vocabulary.
    pub(crate) fn tiles(&self) -> usize {
        op::Logits::tiles(self.vocab)
    }

    /// Ids of a tile.
    pub(crate) fn tile_len(&self, tile: usize) -> usize {
        TILE.min(self.vocab - tile * TILE)
    }

    /// Packs rows `first + i` of the hidden states for `bands` of `i`. Nothing to do without a head.
    pub(crate) fn fill(
        &self,
        pool: &Pool,
        table: &Table,
        bands: &[usize],
        row: impl Fn(usize) -> usize + Sync,
        operand: &mut Operand,
    ) -> Result<(), ComputeError> {
        let Some(head) = self.head else { return Ok(()) };
        let k = head.matrix.cols();
        operand.fill(pool, table, head.form, Places { bands, order: None }, k, |i| &self.x[row(i) * k..][..k])
    }

    /// Computes the logits of a tile for the band `[first, n]` of packed rows, into `buf`; `row` as in
    /// [`fill`](Self::fill).
    pub(crate) fn tile(
        &self,
        table: &Table,
        tile: usize,
        (operand, [first, n]): (&Operand, [usize; 2]),
        row: impl Fn(usize) -> usize,
        scratch: &mut Scratch,
    ) {
        let (start, len) = (tile * TILE, self.tile_len(tile));
        let out = &mut scratch.logits.logits;
        if out.len() < n * STRIDE {
            out.resize(n * STRIDE, 0.0);
        }
        let rows = out.chunks_exact_mut(STRIDE).take(n);
        let Some(head) = self.head else {
            for (i, out) in (first..).zip(rows) {
                (table.scale)(&self.x[row(i) * self.vocab + start..][..len], self.by, &mut out[..len]);
            }
            return;
        };
        let width = operand.tile_cols();
        for col in (0..len).step_by(width) {
            let n_ids = width.min(len - col);
            let after = start + col + n_ids;
            let next = (after < self.vocab)
                .then(|| Rows { matrix: head.matrix, at: [0, after, width.min(self.vocab - after)] });
            let sums = &mut scratch.sums;
            operand.product(
                table,
                head.matrix,
                ([0, start + col, n_ids], next),
                [first, n],
                &mut scratch.unpackers,
                sums,
            );
            (table.logits)(sums, head.cap, self.by);
            for (half, sums) in sums.chunks_exact(n.max(1)).enumerate() {
                for (sums, out) in sums.iter().zip(out.chunks_exact_mut(STRIDE)) {
                    put_row(sums, &mut out[col + half * LANES..]);
                }
            }
        }
    }

    /// The same for some rows out of all, which are packed first by this thread alone: inside a region that packing is a
    /// nested one, which takes no buffers of participants while this thread holds its own.
    pub(crate) fn gather(
        &self,
        pool: &Pool,
        table: &Table,
        tile: usize,
        rows: &[usize],
        scratch: &mut Scratch,
    ) -> Result<(), ComputeError> {
        let mut operand = std::mem::take(&mut scratch.logits.operand);
        let filled = self.fill(pool, table, &[0, rows.len()], |i| rows[i], &mut operand);
        if filled.is_ok() {
            self.tile(table, tile, (&operand, [0, rows.len()]), |i| rows[i], scratch);
        }
        scratch.logits.operand = operand;
        filled
    }
}

/// Bands of rows, so many that all threads have work where there are few tiles.
pub(crate) fn bands(rows: usize, tiles: usize, threads: usize) -> Vec<usize> {
    /// Rows that make unpacking weights cheap beside the products.
    const LEAST: usize = 48;
    let n = (4 * threads).div_ceil(tiles.max(1)).min(rows.div_ceil(LEAST)).max(1);
    (0..=n).map(|i| i * rows / n).collect()
}

pub(crate) fn token_stats(cpu: &mut Cpu, o: &op::TokenStats, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let (mut stats, mut tiles, mut argmax) =
        (cx.take_real(o.stats), cx.take_real(o.tiles), cx.take_int(o.argmax));
    let source = Source::new(&o.logits, cx)?;
    let n = source.tiles();
    let mut operand = std::mem::take(&mut cpu.operand);
    let rows =
        stats.chunks_mut(ROWS * op::STATS).zip(tiles.chunks_mut(ROWS * 2 * n)).zip(argmax.chunks_mut(ROWS));
    for (block, ((stats, tiles), argmax)) in rows.enumerate() {
        let row = |i: usize| block * ROWS + i;
        let bands = bands(argmax.len(), n, cpu.pool.threads());
        source.fill(&cpu.pool, cpu.table, &bands, row, &mut operand)?;
        // [tile][row], one item for each tile and band.
        let mut parts = vec![Tile::default(); n * argmax.len()];
        let mut items = Vec::new();
        for (tile, mut parts) in parts.chunks_exact_mut(argmax.len()).enumerate() {
            for band in bands.windows(2) {
                let (now, later) = parts.split_at_mut(band[1] - band[0]);
                items.push((tile, band[0], now));
                parts = later;
            }
        }
        cpu.pool.items(&mut items, |thread, _, (tile, first, parts)| {
            let scratch = &mut *cpu.scratch(thread);
            source.tile(cpu.table, *tile, (&operand, [*first, parts.len()]), row, scratch);
            let len = source.tile_len(*tile);
            for (i, part) in parts.iter_mut().enumerate() {
                *part = (cpu.table.tile_stats)(scratch.logits.row(i, len));
            }
        });
        let mut rows: Vec<_> =
            stats.chunks_exact_mut(op::STATS).zip(tiles.chunks_exact_mut(2 * n)).zip(&mut *argmax).collect();
        let count = rows.len();
        cpu.pool.items(&mut rows, |_, t, ((stats, tiles), argmax)| {
            let parts = parts[t..].iter().step_by(count);
            **argmax = combine(parts, stats, tiles) as i32;
        });
    }
    cpu.operand = operand;
    cx.put_real(o.stats, stats);
    cx.put_real(o.tiles, tiles);
    cx.put_int(o.argmax, argmax);
    Ok(())
}

/// The statistics of a row from those of its tiles; returns the argmax.
fn combine<'a>(parts: impl Iterator<Item = &'a Tile> + Clone, stats: &mut [f32], tiles: &mut [f32]) -> usize {
    let m = math::reduce::max(parts.clone().map(|part| part.max));
    let (mut sum, mut moment, mut argmax) = (0.0, 0.0, None);
    let (maxima, shares) = tiles.split_at_mut(tiles.len() / 2);
    for (tile, part) in parts.enumerate() {
        let d = part.max - m;
        let f = math::exp(d);
        let share = part.sum * f;
        sum += share;
        let (inner, outer) = (f * part.moment, share * d);
        moment += inner + outer;
        (maxima[tile], shares[tile]) = (part.max, math::flush(share));
        if argmax.is_none() && part.max == m {
            argmax = Some(tile * TILE + part.first as usize);
        }
    }
    let log = math::log(sum);
    let weighted = moment * math::recip(sum);
    stats.copy_from_slice(&[m, m + log, log - weighted, sum].map(math::flush));
    argmax.unwrap_or(0)
}

pub(crate) fn token_sample(cpu: &mut Cpu, o: &op::TokenSample, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_int(o.out);
    let source = Source::new(&o.of.logits, cx)?;
    let (stats, tiles, u) = (cx.real(o.of.stats), cx.real(o.of.tiles), cx.real(o.u));
    let n = source.tiles();
    // Rows whose samples lie in the same tile are treated together.
    let mut places: Vec<(usize, Place<f32>)> =
        (0..u.len()).map(|t| (t, place(&tiles[t * 2 * n + n..][..n], u[t]))).collect();
    places.sort_by_key(|(_, place)| place.tile);
    let of_tile: Vec<_> =
        places.chunk_by(|a, b| a.1.tile == b.1.tile).flat_map(|same| same.chunks(ROWS)).collect();
    let mut found = vec![0; u.len()];
    let mut rest = &mut found[..];
    let mut items = Vec::new();
    for same in of_tile {
        let (now, later) = rest.split_at_mut(same.len());
        items.push((same, now, Ok(())));
        rest = later;
    }
    cpu.pool.items(&mut items, |thread, _, (places, found, outcome)| {
        let scratch = &mut *cpu.scratch(thread);
        let tile = places[0].1.tile;
        let rows: Vec<usize> = places.iter().map(|&(t, _)| t).collect();
        *outcome = source.gather(&cpu.pool, cpu.table, tile, &rows, scratch);
        if outcome.is_err() {
            return;
        }
        for (i, (&(t, place), found)) in places.iter().zip(found.iter_mut()).enumerate() {
            let max = tiles[t * 2 * n + tile];
            let f = math::exp(max - stats[t * op::STATS]);
            let x = scratch.logits.row(i, source.tile_len(tile));
            *found = tile * TILE + search(x.iter().map(|&x| math::exp(x - max) * f), place);
        }
    });
    items.into_iter().try_for_each(|(_, _, outcome)| outcome)?;
    for ((t, _), found) in places.iter().zip(found) {
        out[*t] = found as i32;
    }
    cx.put_int(o.out, out);
    Ok(())
}
