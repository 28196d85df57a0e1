//! Attention: two passes, all scores of a block of queries, then all values.
//!
//! The rows of the pass are first written behind those of the cache ([`Panels`]), so keys `0..n_past + T` lie in one
//! place, in the panels that the kernel reads. A tile is one KV head and a block of tokens; its queries are the rows
//! (token, head of the group), 16 to a panel. All query heads of a group share the panels of their KV head.
//!
//! 1. Queries are packed, `[channel][16 queries]`. For each 16 keys that a panel of queries sees, the kernel gives
//!    `[16 keys][16 queries]` scores, a lane being a query: `q·k`, sequential over the channels. What a query does not
//!    see becomes minus infinity, and the maxima are kept.
//! 2. Page by page, scores become exponentials in a buffer that stays in the second cache; their sums are kept. They
//!    lie `[key][16 queries]`, which is the form in which the kernel takes them as factors of the values.
//! 3. For each 16 channels, the values of the page are a panel `[key][16 channels]` as they stand: the kernel adds,
//!    sequential over the keys. A product with an invisible key is ±0 and leaves the sum, which is never -0, as it is.
//! 4. At the end, one multiplication by the reciprocal of the sum of exponentials.

use std::ops::Range;

use crate::cpu::cache::{New, PAGE, Panels};
use crate::cpu::kernels::softmax::Visible;
use crate::cpu::ops::panel::DEPTH;
use crate::cpu::pool::Grid;
use crate::cpu::table::Table;
use crate::cpu::vector::{LANES, Row16};
use crate::cpu::{Cpu, Cx};
use crate::host::flash;
use crate::op::Segment;
use crate::{ComputeError, Val, op};

/// Panels of queries that share a panel of keys or values while it is in the first cache. The more they are, the less
/// often the keys and values of a long prompt come from memory; what they hold themselves should fit the second cache.
const PANELS: usize = 16;

/// Rows of 16 scores that a tile holds (8 MiB), unless one panel of queries alone has more.
const SCORES: usize = 1 << 17;

/// Tiles that each thread gets at least, so that none waits long for the last.
const TILES: usize = 8;

/// Buffers of one thread.
#[derive(Default)]
pub(crate) struct Buffers {
    queries: Vec<Row16>,
    scores: Vec<Row16>,
    factors: Vec<Row16>,
    sums: Vec<Row16>,
    keys: Vec<Row16>,
    values: [Vec<Row16>; 2],
}

/// What a panel of 16 queries has beside its scores.
struct Panel {
    seen: Visible,
    max: Row16,
    /// Sums of exponentials, by the number of the key modulo 16.
    sums: [Row16; LANES],
}

/// One tile: `n` queries of one KV head.
struct Head<'a, Q: Fn(usize) -> &'a [f32], M: Fn(usize) -> Range<usize>> {
    table: &'a Table,
    n: usize,
    query: Q,
    /// Keys that query `i` sees.
    visible: M,
    cache: &'a Panels,
    /// Channels of the head.
    channels: Range<usize>,
    scale: Option<f32>,
}

impl<'a, Q: Fn(usize) -> &'a [f32], M: Fn(usize) -> Range<usize>> Head<'a, Q, M> {
    /// The query of a lane; lanes beyond the last query repeat it.
    fn lane(&self, panel: usize, lane: usize) -> usize {
        (panel * LANES + lane).min(self.n - 1)
    }

    /// Fills `buf.sums`, `[channels / 16][panel][16 queries]` sums of 16 channels each. Returns the reciprocals by
    /// which they are to be multiplied.
    fn run(&self, buf: &mut Buffers) -> Vec<Row16> {
        let panel = |p| Panel {
            seen: Visible::new(std::array::from_fn(|lane| (self.visible)(self.lane(p, lane)))),
            max: [f32::NEG_INFINITY; LANES],
            sums: [[0.0; LANES]; LANES],
        };
        let mut panels: Vec<Panel> = (0..self.n.div_ceil(LANES)).map(panel).collect();
        let spans = || panels.iter().map(|p| &p.seen.by_some);
        let first = spans().map(|s| s.start).min().unwrap_or(0);
        let end = spans().map(|s| s.end).max().unwrap_or(0);
        let all = first / LANES * LANES..end.next_multiple_of(LANES);
        self.scores(&mut panels, &all, buf);
        self.products(&mut panels, &all, buf);
        let inverse = |p: &Panel| {
            let mut out = [0.0; LANES];
            (self.table.inverses)(&p.sums, &mut out);
            out
        };
        panels.iter().map(inverse).collect()
    }

    /// `buf.scores[panel][key] = q · k` for the keys `all`.
    fn scores(&self, panels: &mut [Panel], all: &Range<usize>, buf: &mut Buffers) {
        let (table, d, n) = (self.table, self.channels.len(), panels.len());
        grow(&mut buf.queries, panels.len() * d);
        grow(&mut buf.scores, panels.len() * all.len());
        for (p, queries) in buf.queries.chunks_exact_mut(d).take(panels.len()).enumerate() {
            let rows: [&[f32]; LANES] = std::array::from_fn(|lane| (self.query)(self.lane(p, lane)));
            (table.pack)(&rows, queries);
        }
        for key in all.clone().step_by(LANES) {
            let keys = self.cache.keys(table, key, self.channels.clone(), &mut buf.keys);
            for from in (0..d).step_by(DEPTH) {
                let part = from..d.min(from + DEPTH);
                for (p, panel) in panels.iter_mut().enumerate() {
                    if from == 0 {
                        self.cache.prefetch_keys(key + LANES, &self.channels, [p, n]);
                    }
                    let span = &panel.seen.by_some;
                    if key + LANES <= span.start || span.end <= key {
                        continue;
                    }
                    let scores = &mut buf.scores[p * all.len() + key - all.start..][..LANES];
                    if from == 0 {
                        scores.fill([0.0; LANES]);
                    }
                    let queries = &buf.queries[p * d..][part.clone()];
                    (table.square)(queries, &keys[part.clone()], scores);
                    if part.end == d {
                        (table.peaks)(scores, key, &panel.seen, self.scale, &mut panel.max);
                    }
                }
            }
        }
    }

    /// Starts loading the values after those of the 16 channels before `c` of the head: the next channels, or the next
    /// page.
    fn prefetch_values(&self, keys: &Range<usize>, all: &Range<usize>, c: usize, part: [usize; 2]) {
        let channel = self.channels.start + c * LANES;
        if channel < self.channels.end {
            self.cache.prefetch_values(keys, channel, part);
        } else if keys.end < all.end {
            let next = keys.end..all.end.min(keys.end + PAGE);
            self.cache.prefetch_values(&next, self.channels.start, part);
        }
    }

    /// `buf.sums[c][panel][query]` = sum over the keys of exponential times 16 channels of the value.
    fn products(&self, panels: &mut [Panel], all: &Range<usize>, buf: &mut Buffers) {
        let (table, across) = (self.table, self.channels.len().div_ceil(LANES));
        buf.sums.clear();
        buf.sums.resize(across * panels.len() * LANES, [0.0; LANES]);
        grow(&mut buf.factors, panels.len() * PAGE);
        for page in (all.start / PAGE * PAGE..all.end).step_by(PAGE) {
            let keys = all.start.max(page)..all.end.min(page + PAGE);
            // What a panel sees of the page, in whole blocks; nothing where a window lies before or behind it.
            let seen = |panel: &Panel| {
                let span = &panel.seen.by_some;
                let from = (span.start / LANES * LANES).clamp(keys.start, keys.end);
                from..span.end.next_multiple_of(LANES).min(keys.end).max(from)
            };
            for (p, panel) in panels.iter_mut().enumerate() {
                let seen = seen(panel);
                let scores = &buf.scores[p * all.len()..][seen.start - all.start..seen.end - all.start];
                let factors = &mut buf.factors[p * PAGE..][..seen.len()];
                (table.exponentials)(scores, &panel.max, &mut panel.sums, factors);
            }
            for c in 0..across {
                let channel = self.channels.start + c * LANES;
                let values = self.cache.values(table, keys.clone(), channel, &mut buf.values);
                for (p, panel) in panels.iter().enumerate() {
                    self.prefetch_values(&keys, all, c + 1, [p, panels.len()]);
                    let seen = seen(panel);
                    if seen.is_empty() {
                        continue;
                    }
                    let values = &values[seen.start - keys.start..seen.end - keys.start];
                    let factors = &buf.factors[p * PAGE..][..seen.len()];
                    let sums = &mut buf.sums[(c * panels.len() + p) * LANES..][..LANES];
                    (table.square)(values, factors, sums);
                }
            }
        }
    }
}

/// Makes room for `n` rows, whose numbers are not meaningful.
fn grow(x: &mut Vec<Row16>, n: usize) {
    if x.len() < n {
        x.resize(n, [0.0; LANES]);
    }
}

/// Row boundaries of tiles that see about as many keys each.
fn bands(o: &op::Attention, segment: Segment, threads: usize) -> Vec<usize> {
    let tokens = segment.rows;
    let group = o.n_heads / o.n_kv_heads;
    let seen = |row: usize| o.mask.visible(segment, row);
    let total: usize = (0..tokens).map(|row| seen(row).len()).sum();
    let target = (total * o.n_kv_heads).div_ceil(threads * TILES);
    // Whole panels of queries where the group allows it.
    let unit = (LANES / group).max(1);
    let mut bands = vec![0];
    let (mut start, mut work) = (0, 0);
    for at in (0..tokens).step_by(unit) {
        let next = tokens.min(at + unit);
        let here: usize = (at..next).map(|row| seen(row).len()).sum();
        let panels = ((next - start) * group).div_ceil(LANES);
        let height = seen(next - 1).end - seen(start).start;
        if start < at && (work + here > target || panels > PANELS || panels * height > SCORES) {
            bands.push(at);
            (start, work) = (at, 0);
        }
        work += here;
    }
    bands.push(tokens);
    bands
}

pub(crate) fn run(cpu: &mut Cpu, o: &op::Attention, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    if let Some(flash) = o.flash {
        flash::attention(o, flash, cx);
        return Ok(());
    }
    let mut out = cx.take_real(o.out);
    let inputs = [o.q, o.k, o.v];
    for (i, (segment, span)) in o.segments.spans().enumerate() {
        let out = &mut out[span.start * o.q.cols()..span.end * o.q.cols()];
        if out.is_empty() {
            continue;
        }
        match o.cache_layer {
            Some(layer) => {
                let (cache, all) = cx.cache(i, layer, inputs);
                let [q, keys, values] = parts(o, all, &span);
                cache.write(cpu, &New { first: segment.n_past, keys, values })?;
                attend(cpu, o, segment, cache, q, out);
            }
            // Without a cache the keys of the pass are all there are.
            None => {
                let [q, keys, values] = parts(o, inputs.map(|v| cx.real(v)), &span);
                let mut cache = std::mem::take(&mut cpu.passing);
                cache.fit(o.k.cols());
                let written = cache.write(cpu, &New { first: 0, keys, values });
                if written.is_ok() {
                    attend(cpu, o, segment, &cache, q, out);
                }
                cpu.passing = cache;
                written?;
            }
        }
    }
    cx.put_real(o.out, out);
    Ok(())
}

/// The rows `span` of queries, keys and values.
fn parts<'a>(o: &op::Attention, all: [&'a [f32]; 3], span: &Range<usize>) -> [&'a [f32]; 3] {
    let cols = [o.q.cols(), o.k.cols(), o.v.cols()];
    std::array::from_fn(|i| &all[i][span.start * cols[i]..span.end * cols[i]])
}

fn attend(cpu: &Cpu, o: &op::Attention, segment: Segment, cache: &Panels, q: &[f32], out: &mut [f32]) {
    let (width, head_dim) = (o.q.cols(), o.head_dim);
    let group = o.n_heads / o.n_kv_heads;
    let (table, pool) = (cpu.table, &cpu.pool);
    let bands = bands(o, segment, pool.threads());
    let grid = Grid { cols: width, bands: &bands, tile_cols: group * head_dim };
    pool.tiles(out, grid, |thread, mut tile| {
        let buf = &mut cpu.scratch(thread).attention;
        let (first, cols) = (tile.row, tile.col);
        let at = cols / (group * head_dim) * head_dim;
        let head = Head {
            table,
            n: tile.rows * group,
            query: |i| &q[(first + i / group) * width + cols + i % group * head_dim..][..head_dim],
            visible: |i| o.mask.visible(segment, first + i / group),
            cache,
            channels: at..at + head_dim,
            scale: (o.scale != 1.0).then_some(o.scale as f32),
        };
        let inverses = head.run(buf);
        let stride = head.n.next_multiple_of(LANES);
        for i in 0..head.n {
            let out = &mut tile.row_mut(i / group)[i % group * head_dim..][..head_dim];
            let inverse = inverses[i / LANES][i % LANES];
            for (c, out) in out.chunks_mut(LANES).enumerate() {
                (table.scale)(&buf.sums[c * stride + i][..out.len()], inverse, out);
            }
        }
    });
}

/// Appends keys and values of this pass to the cache.
pub(crate) fn append(cpu: &mut Cpu, o: &op::KvAppend, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    for (i, (segment, span)) in o.segments.spans().enumerate() {
        let (cache, [k, v]) = cx.cache(i, o.layer, [o.k, o.v]);
        let rows = |x: Val| span.start * x.cols()..span.end * x.cols();
        let (first, keys, values) = (cache.len(), &k[rows(o.k)], &v[rows(o.v)]);
        cache.write(cpu, &New { first, keys, values })?;
        cache.commit(first + segment.rows);
    }
    Ok(())
}
