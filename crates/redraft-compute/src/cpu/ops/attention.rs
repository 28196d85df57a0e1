//! Attention: two passes, all scores of a block of queries, then all values.
//!
//! A tile is one KV head and a block of tokens; its queries are the rows (token, head of the group). Keys are
//! numbered from the start of the sequence, columns of the score matrix start at a multiple of 16.
//!
//! 1. Queries are packed. For each 16 keys, a panel `[channel][16 keys]` is made, and the matrix kernel
//!    gives 16 scores per query: `q·k`, sequential over the channels.
//! 2. Row by row, scores become exponentials ([`attend`](crate::cpu::kernels::softmax::attend)); keys that
//!    the query does not see become 0.
//! 3. For each [`DEPTH`] keys the exponentials are packed, and for each 16 channels the values are a panel
//!    `[key][16 channels]` as they stand: the matrix kernel adds, sequential over the keys. A product with an
//!    invisible key is ±0 and leaves the sum, which is never -0, as it is.
//! 4. One multiplication by the reciprocal of the sum of exponentials.
//!
//! Groups of queries skip the panels that none of their queries sees.

use std::ops::Range;

use super::packed::{groups, interleave};
use super::panel::DEPTH;
use crate::cpu::pool::Grid;
use crate::cpu::table::Table;
use crate::cpu::vector::{LANES, Row16};
use crate::cpu::{Cpu, Cx};
use crate::{ComputeError, op};

/// Queries of a tile that make the packing of keys and values cheap beside the products.
const QUERIES: usize = 144;

/// Scores that a thread holds at most (4 MiB), unless one token alone has more.
const SCORES: usize = 1 << 20;

/// Keys or values of one head: those of the cache, then those of the pass.
#[derive(Clone, Copy)]
struct Source<'a> {
    past: &'a [f32],
    new: &'a [f32],
    n_past: usize,
    width: usize,
    /// First channel of the head.
    at: usize,
    head_dim: usize,
}

impl<'a> Source<'a> {
    fn row(&self, key: usize) -> &'a [f32] {
        let (x, row) = if key < self.n_past { (self.past, key) } else { (self.new, key - self.n_past) };
        &x[row * self.width + self.at..][..self.head_dim]
    }
}

/// Buffers of one thread.
#[derive(Default)]
pub(crate) struct Buffers {
    queries: Vec<f32>,
    panel: Vec<Row16>,
    sums: Vec<Row16>,
    scores: Vec<f32>,
    packed: Vec<f32>,
    values: Vec<Row16>,
    inverse: Vec<f32>,
    zeros: Vec<f32>,
}

/// One tile: `n` queries of one KV head.
struct Head<'a, Q: Fn(usize) -> &'a [f32], M: Fn(usize) -> Range<usize>> {
    table: &'a Table,
    n: usize,
    query: Q,
    /// Keys that query `i` sees.
    visible: M,
    keys: Source<'a>,
    values: Source<'a>,
    scale: Option<f32>,
}

impl<'a, Q: Fn(usize) -> &'a [f32], M: Fn(usize) -> Range<usize>> Head<'a, Q, M> {
    /// The keys that some query of `of` sees.
    fn span(&self, of: Range<usize>) -> Range<usize> {
        of.map(&self.visible).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
    }

    /// Groups of queries that see some key of `keys`.
    fn seeing(&self, keys: &Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        groups(self.table.groups, 0, self.n).filter(move |&(at, size)| {
            let span = self.span(at..at + size);
            span.start < keys.end && keys.start < span.end
        })
    }

    /// Fills `buf.values`, `[channels / 16][queries]` sums of 16 channels each, and `buf.inverse`.
    fn run(&self, buf: &mut Buffers) {
        let head_dim = self.keys.head_dim;
        let span = self.span(0..self.n);
        let base = span.start / LANES * LANES;
        let width = (span.end - base).next_multiple_of(LANES);
        buf.zeros.resize(head_dim, 0.0);
        self.scores(&span, base, width, buf);

        buf.inverse.clear();
        for (i, scores) in buf.scores.chunks_exact_mut(width).take(self.n).enumerate() {
            let seen = (self.visible)(i);
            let seen = seen.start - base..seen.end - base;
            buf.inverse.push((self.table.attend)(scores, seen, self.scale));
        }
        self.products(&span, base, width, buf);
    }

    /// `buf.scores[query][key - base] = q · k`.
    fn scores(&self, span: &Range<usize>, base: usize, width: usize, buf: &mut Buffers) {
        let (table, head_dim) = (self.table, self.keys.head_dim);
        buf.queries.resize(self.n * head_dim, 0.0);
        for (at, size) in groups(table.groups, 0, self.n) {
            interleave(
                size,
                |i| (self.query)(at + i),
                |x| x,
                &mut buf.queries[at * head_dim..][..size * head_dim],
            );
        }
        if buf.scores.len() < self.n * width {
            buf.scores.resize(self.n * width, 0.0);
        }
        buf.panel.resize(buf.panel.len().max(head_dim), [0.0; LANES]);
        for first in (base..base + width).step_by(LANES) {
            let mut rows: [&[f32]; LANES] = [&buf.zeros; LANES];
            for (key, row) in (first..).zip(&mut rows) {
                if span.contains(&key) {
                    *row = self.keys.row(key);
                }
            }
            let panel = &mut buf.panel[..head_dim];
            (table.pack)(&rows, panel);
            for (at, size) in self.seeing(&(first..first + LANES)) {
                buf.sums.clear();
                buf.sums.resize(size, [0.0; LANES]);
                (table.gemm)(panel, &buf.queries[at * head_dim..][..size * head_dim], &mut buf.sums);
                for (i, sums) in buf.sums.iter().enumerate() {
                    buf.scores[(at + i) * width + first - base..][..LANES].copy_from_slice(sums);
                }
            }
        }
    }

    /// `buf.values[c][query]` = sum over the keys of exponential times 16 channels of the value.
    fn products(&self, span: &Range<usize>, base: usize, width: usize, buf: &mut Buffers) {
        let (table, head_dim) = (self.table, self.values.head_dim);
        let across = head_dim.div_ceil(LANES);
        buf.values.clear();
        buf.values.resize(across * self.n, [0.0; LANES]);
        buf.panel.resize(buf.panel.len().max(DEPTH), [0.0; LANES]);
        buf.packed.resize(buf.packed.len().max(self.n * DEPTH), 0.0);
        for first in (0..width).step_by(DEPTH) {
            let depth = DEPTH.min(width - first);
            let keys = base + first..base + first + depth;
            for (at, size) in self.seeing(&keys) {
                let row = |i: usize| &buf.scores[(at + i) * width + first..][..depth];
                interleave(size, row, |x| x, &mut buf.packed[at * DEPTH..][..size * depth]);
            }
            for c in 0..across {
                let channels = c * LANES..head_dim.min((c + 1) * LANES);
                let panel = &mut buf.panel[..depth];
                for (key, out) in keys.clone().zip(&mut *panel) {
                    let n = if span.contains(&key) { channels.len() } else { 0 };
                    if n > 0 {
                        out[..n].copy_from_slice(&self.values.row(key)[channels.clone()]);
                    }
                    out[n..].fill(0.0);
                }
                for (at, size) in self.seeing(&keys) {
                    let sums = &mut buf.values[c * self.n + at..][..size];
                    (table.gemm)(panel, &buf.packed[at * DEPTH..][..size * depth], sums);
                }
            }
        }
    }
}

pub(crate) fn run(cpu: &mut Cpu, o: &op::Attention, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    if out.is_empty() {
        cx.put_real(o.out, out);
        return Ok(());
    }
    let (tokens, head_dim) = (o.q.rows(), o.head_dim);
    let (q, k, v) = (cx.real(o.q), cx.real(o.k), cx.real(o.v));
    let (past_k, past_v): (&[f32], &[f32]) =
        cx.cache(o.cache_layer).map_or((&[], &[]), |c| (c.k.as_slice(), c.v.as_slice()));
    // Without a cache the keys of the pass are all there are.
    let n_past = if o.cache_layer.is_some() { o.n_past } else { 0 };
    let scale = (o.scale != 1.0).then_some(o.scale as f32);
    let (width, kv_width) = (o.q.cols(), o.k.cols());
    let group = o.n_heads / o.n_kv_heads;
    let per = (QUERIES / group).min(SCORES / (n_past + tokens).max(1) / group).max(1);
    let mut bands: Vec<usize> = (0..tokens).step_by(per).collect();
    bands.push(tokens);

    let (table, pool) = (cpu.table, &cpu.pool);
    let grid = Grid { cols: width, bands: &bands, tile_cols: group * head_dim };
    pool.tiles(&mut out, grid, |thread, mut tile| {
        let buf = &mut cpu.scratch(thread).attention;
        let (first, cols) = (tile.row, tile.col);
        let at = cols / (group * head_dim) * head_dim;
        let head = Head {
            table,
            n: tile.rows * group,
            query: |i| &q[(first + i / group) * width + cols + i % group * head_dim..][..head_dim],
            visible: |i| o.mask.visible(n_past, tokens, first + i / group),
            keys: Source { past: past_k, new: k, n_past, width: kv_width, at, head_dim },
            values: Source { past: past_v, new: v, n_past, width: kv_width, at, head_dim },
            scale,
        };
        head.run(buf);
        let n = head.n;
        for i in 0..n {
            let out = &mut tile.row_mut(i / group)[i % group * head_dim..][..head_dim];
            for (c, out) in out.chunks_mut(LANES).enumerate() {
                out.copy_from_slice(&buf.values[c * n + i][..out.len()]);
            }
            scale_in_place(table, buf.inverse[i], out);
        }
    });
    cx.put_real(o.out, out);
    Ok(())
}

/// `x = flush(x * by)`.
fn scale_in_place(table: &Table, by: f32, x: &mut [f32]) {
    let (whole, tail) = x.as_chunks_mut::<LANES>();
    for x in whole {
        let from = *x;
        (table.scale)(&from, by, x);
    }
    let n = tail.len();
    let mut from = [0.0; LANES];
    from[..n].copy_from_slice(tail);
    (table.scale)(&from[..n], by, tail);
}
