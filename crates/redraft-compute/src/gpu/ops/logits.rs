//! Logits and what is made of them: statistics, samples, soft embeddings.
//!
//! All work on chunks of rows. Given logits are read where they are; those of a head are computed a chunk at a time, and
//! stay for the ops that read the same ones if a chunk is all there is.

use std::ops::Range;
use std::sync::Arc;

use super::super::cx::{Cx, NO_SLOT, words};
use super::super::device::{Device, View};
use super::super::kernels::Kernel;
use super::super::weights::{Form, Stored};
use super::matmul::{AT_ONCE, Format, HeadEnd, Operand, Product, product};
use crate::op::{Logits, Op, STATS, SoftEmbed, TILE, TokenSample, TokenStats};
use crate::program::Program;
use crate::{ComputeError, Val};

/// Bytes of the logits of a chunk, at most, where a device sees more than twice as many at once.
const CHUNK: u64 = 256 << 20;

/// Rows that share a list of ids in a soft embedding, and columns of a workgroup.
const GROUP: usize = 64;

/// Ids of one dispatch of a soft embedding, at most. llvmpipe leaves a kernel, without an error, after 65,535 rounds of all its
/// loops together; sixteen ids take up to 25.
const SPAN: usize = 1 << 14;

/// Logits of a head that a later op reads, too.
pub(in super::super) struct Left<B> {
    of: Logits,
    bytes: u64,
    buffer: B,
}

/// Where the logits of an op come from.
enum Source<B> {
    /// From memory that has all rows.
    There { buffer: B, by: f32 },
    /// From a head, into `buffer`, a chunk after the other.
    Head { stored: Arc<Stored<B>>, operand: Operand<B>, cols: usize, end: HeadEnd, buffer: B },
}

/// What ops know of their logits.
struct Rows<B> {
    source: Source<B>,
    vocab: usize,
    chunks: Vec<Range<usize>>,
}

/// A chunk of rows: the buffer, the place of its first row there, and the factor on it.
struct Chunk<B> {
    buffer: B,
    first: usize,
    by: f32,
}

/// What an op reads logits of.
fn logits_of(op: &Op) -> Option<&Logits> {
    match op {
        Op::TokenStats(o) => Some(&o.logits),
        Op::TokenSample(o) => Some(&o.of.logits),
        Op::SoftEmbed(o) => Some(&o.of.logits),
        _ => None,
    }
}

/// Whether an op after op `at` reads these logits.
fn read_again(program: &Program, at: usize, logits: &Logits) -> bool {
    program.ops[at + 1..].iter().any(|op| logits_of(op) == Some(logits))
}

impl<B: Clone> Rows<B> {
    fn new<D: Device<Buffer = B>>(cx: &mut Cx<'_, D>, o: &Logits) -> Result<Rows<B>, ComputeError> {
        let vocab = match o.head {
            Some(head) => cx.gpu.weights.get(head.w)?.rows,
            None => o.x.cols(),
        };
        let (rows, row) = (o.x.rows(), 4 * vocab.max(1) as u64);
        let limits = cx.gpu.device.limits();
        let most = ((limits.binding / 2).min(CHUNK) / row).max(1) as usize;
        let chunks: Vec<_> = (0..rows).step_by(most).map(|r| r..rows.min(r + most)).collect();
        if row + limits.align > limits.binding {
            return Err(ComputeError::OutOfMemory {
                what: format!("a view of the logits of {vocab} ids on this device"),
                bytes: row as usize,
            });
        }
        let x = cx.value(o.x);
        let Some(head) = o.head else {
            return Ok(Rows { source: Source::There { buffer: x, by: o.scale as f32 }, vocab, chunks });
        };
        if let Some(left) = cx.logits.as_ref().filter(|left| left.of == *o) {
            let buffer = left.buffer.clone();
            return Ok(Rows { source: Source::There { buffer, by: 1.0 }, vocab, chunks });
        }
        let stored = cx.gpu.stored(head.w)?;
        let cols = o.x.cols();
        let operand = Operand::new(cx, &stored, o.numerics, (&x, rows, cols))?;
        let bytes = row * most.min(rows) as u64;
        let buffer = if chunks.len() == 1 && read_again(cx.program, cx.at, o) {
            free(cx);
            let buffer = cx.gpu.buffer(bytes)?;
            cx.logits = Some(Left { of: *o, bytes, buffer: buffer.clone() });
            buffer
        } else {
            cx.temporary(bytes)?
        };
        let end = HeadEnd { cap: head.softcap, by: o.scale as f32 };
        Ok(Rows { source: Source::Head { stored, operand, cols, end, buffer }, vocab, chunks })
    }

    /// The logits of a chunk, computed if they are not there. They are there until the next.
    fn chunk<D: Device<Buffer = B>>(
        &self,
        cx: &mut Cx<'_, D>,
        rows: &Range<usize>,
    ) -> Result<Chunk<B>, ComputeError> {
        match &self.source {
            Source::There { buffer, by } => Ok(Chunk { buffer: buffer.clone(), first: rows.start, by: *by }),
            Source::Head { stored, operand, cols, end, buffer } => {
                let p = Product {
                    rows: rows.len(),
                    x_at: rows.start,
                    outs: 0..self.vocab,
                    y: words(buffer, rows.len() * self.vocab),
                    y_cols: self.vocab,
                    y_at: 0,
                    bias: None,
                    head: Some(*end),
                    slot: NO_SLOT,
                    groups: None,
                };
                product(cx, stored, *cols, operand, &p)?;
                Ok(Chunk { buffer: buffer.clone(), first: 0, by: 1.0 })
            }
        }
    }
}

/// Frees logits that were left.
pub(in super::super) fn free<D: Device>(cx: &mut Cx<'_, D>) {
    if let Some(left) = cx.logits.take() {
        cx.gpu.recycle(left.bytes, left.buffer);
    }
}

/// Frees logits that were left, unless an op after this one reads them.
fn free_unread<D: Device>(cx: &mut Cx<'_, D>) {
    if cx.logits.as_ref().is_some_and(|left| !read_again(cx.program, cx.at, &left.of)) {
        free(cx);
    }
}

pub(super) fn token_stats<D: Device>(cx: &mut Cx<'_, D>, o: &TokenStats) -> Result<(), ComputeError> {
    let logits = Rows::new(cx, &o.logits)?;
    let (vocab, tiles) = (logits.vocab, o.tiles.cols() / 2);
    let (stats_b, tiles_b, argmax_b) = (cx.value(o.stats), cx.value(o.tiles), cx.value(o.argmax));
    let most = logits.chunks.iter().map(Range::len).max().unwrap_or(0);
    let parts_b = cx.temporary(16 * (most * tiles) as u64)?;
    for rows in &logits.chunks {
        let chunk = logits.chunk(cx, rows)?;
        let n = rows.len();
        let (x, x_at) = cx.near(&chunk.buffer, (chunk.first, n, vocab));
        let parts = words(&parts_b, 4 * n * tiles);
        let [n_words, vocab_words, tiles_words] = [n, vocab, tiles].map(|x| x as u32);
        let parameters = [NO_SLOT, 0, n_words, vocab_words, tiles_words, x_at, chunk.by.to_bits()];
        let grid = cx.grid((n * tiles).div_ceil(16))?;
        cx.dispatch(Kernel::StatsTile, &[x, parts], &parameters, grid, 64 * (n * vocab) as u64)?;
        let slot = cx.slot(o.stats, rows.start * STATS)?;
        let (stats, stats_at) = cx.near_value(&stats_b, o.stats, rows);
        let (tiles, tiles_at) = cx.near_value(&tiles_b, o.tiles, rows);
        let (argmax, argmax_at) = cx.near_value(&argmax_b, o.argmax, rows);
        let parameters = [slot, 0, n_words, tiles_words, stats_at, tiles_at, argmax_at];
        cx.each(Kernel::StatsRow, &[parts, stats, tiles, argmax], &parameters, n)?;
    }
    free_unread(cx);
    Ok(())
}

pub(super) fn token_sample<D: Device>(cx: &mut Cx<'_, D>, o: &TokenSample) -> Result<(), ComputeError> {
    let logits = Rows::new(cx, &o.of.logits)?;
    let (stats_b, tiles_b) = (cx.value(o.of.stats), cx.value(o.of.tiles));
    let (u_b, out_b) = (cx.value(o.u), cx.value(o.out));
    for rows in &logits.chunks {
        let chunk = logits.chunk(cx, rows)?;
        let n = rows.len();
        let (x, x_at) = cx.near(&chunk.buffer, (chunk.first, n, logits.vocab));
        let (stats, stats_at) = cx.near_value(&stats_b, o.of.stats, rows);
        let (tiles, tiles_at) = cx.near_value(&tiles_b, o.of.tiles, rows);
        let (u, u_at) = cx.near_value(&u_b, o.u, rows);
        let (out, out_at) = cx.near_value(&out_b, o.out, rows);
        let parameters = [
            NO_SLOT,
            0,
            n as u32,
            logits.vocab as u32,
            (o.of.tiles.cols() / 2) as u32,
            x_at,
            stats_at,
            tiles_at,
            u_at,
            out_at,
            chunk.by.to_bits(),
        ];
        let grid = cx.grid(n)?;
        cx.dispatch(Kernel::Sample, &[x, stats, tiles, u, out], &parameters, grid, 64 * (n * TILE) as u64)?;
    }
    free_unread(cx);
    Ok(())
}

pub(super) fn soft_embed<D: Device>(cx: &mut Cx<'_, D>, o: &SoftEmbed) -> Result<(), ComputeError> {
    let logits = Rows::new(cx, &o.of.logits)?;
    let vocab = logits.vocab;
    let stored = cx.gpu.stored(o.table)?;
    let numerics = o.of.logits.numerics;
    let rounds = u32::from(numerics.changes(cx.gpu.weights.get(o.table)?.dtype));
    let cut = numerics.probability_cut(vocab);
    let (stats_b, tiles_b, out_b) = (cx.value(o.of.stats), cx.value(o.of.tiles), cx.value(o.out));
    let most = logits.chunks.iter().map(Range::len).max().unwrap_or(0);
    let groups = most.div_ceil(GROUP);
    let probabilities_b = cx.temporary(4 * (most * vocab) as u64)?;
    let flags_b = cx.temporary(4 * (groups * vocab) as u64)?;
    let ids_b = cx.temporary(4 * (groups * (vocab + 1)) as u64)?;
    for rows in &logits.chunks {
        let chunk = logits.chunk(cx, rows)?;
        let n = rows.len();
        let groups = n.div_ceil(GROUP);
        let probabilities = words(&probabilities_b, n * vocab);
        let flags = words(&flags_b, groups * vocab);
        let ids = words(&ids_b, groups * (vocab + 1));
        let (x, x_at) = cx.near(&chunk.buffer, (chunk.first, n, vocab));
        let (stats, stats_at) = cx.near_value(&stats_b, o.of.stats, rows);
        let (tiles, tiles_at) = cx.near_value(&tiles_b, o.of.tiles, rows);
        let parameters = [
            NO_SLOT,
            0,
            n as u32,
            vocab as u32,
            (o.of.tiles.cols() / 2) as u32,
            x_at,
            stats_at,
            tiles_at,
            chunk.by.to_bits(),
            cut.to_bits(),
            rounds,
        ];
        let grid = cx.grid((groups * vocab).div_ceil(256))?;
        let views = [x, stats, tiles, probabilities, flags];
        cx.dispatch(Kernel::SoftParts, &views, &parameters, grid, 64 * (n * vocab) as u64)?;
        let parameters = [NO_SLOT, 0, vocab as u32];
        let cost = 16 * (groups * vocab) as u64;
        cx.dispatch(Kernel::SoftIds, &[flags, ids], &parameters, [groups as u32, 1, 1], cost)?;

        let sum = Sum { stored: &stored, vocab, rounds, by: o.scale as f32, out: o.out };
        sum.run(cx, [probabilities, ids], &out_b, rows)?;
    }
    free_unread(cx);
    Ok(())
}

/// The sums of a soft embedding.
struct Sum<'a, B> {
    stored: &'a Stored<B>,
    vocab: usize,
    rounds: u32,
    by: f32,
    out: Val,
}

impl<B: Clone> Sum<'_, B> {
    fn run<D: Device<Buffer = B>>(
        &self,
        cx: &mut Cx<'_, D>,
        [probabilities, ids]: [View<'_, B>; 2],
        out_b: &B,
        rows: &Range<usize>,
    ) -> Result<(), ComputeError> {
        let (n, cols) = (rows.len(), self.out.cols());
        if n * cols == 0 {
            return Ok(());
        }
        let slot = cx.slot(self.out, rows.start * cols)?;
        let (out, out_at) = cx.near_value(out_b, self.out, rows);
        let kernel = match self.stored.form {
            Form::F32 => Kernel::SoftSumF32,
            Form::Half(_) => Kernel::SoftSumHalf,
            Form::Block(_) => Kernel::SoftSumBlock,
        };
        let grid = [cols.div_ceil(GROUP) as u32, n.div_ceil(GROUP) as u32, 1];
        // Ids of one dispatch, should every row need each.
        let each = (AT_ONCE / (n * cols) as u64).clamp(1, SPAN as u64) as usize;
        for slab in &self.stored.slabs {
            let [first, end] = [slab.rows[0], slab.rows[0] + slab.rows[1]];
            let table = View { buffer: &slab.buffer, at: 0, bytes: slab.bytes };
            for from in (first..end).step_by(each) {
                let to = end.min(from + each);
                let mut parameters = vec![slot, 0, n as u32, cols as u32];
                parameters.extend(Format::of(self.stored).words());
                parameters.extend([
                    self.vocab as u32,
                    first as u32,
                    from as u32,
                    to as u32,
                    u32::from(from == 0),
                    u32::from(to == self.vocab),
                    out_at,
                    self.by.to_bits(),
                    self.rounds,
                ]);
                let cost = ((to - from) * n * cols) as u64;
                cx.dispatch(kernel, &[probabilities, ids, table, out], &parameters, grid, cost)?;
            }
        }
        Ok(())
    }
}
