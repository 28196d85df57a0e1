//! Keys and values of one layer as panels, the form in which the matrix kernel reads them.
//!
//! Tokens lie in pages of [`PAGE`]. Within a page, keys are panels of 16 tokens, `[16 tokens][channel][16]`: a lane is
//! a token. Values are panels of 16 channels, `[16 channels][token][16]`: a lane is a channel. A head is a part of the
//! channels, so a page needs to know nothing of heads. A pass writes its own rows behind those of the cache, where they
//! stay until the next pass writes there: only an append makes them count. So a step over a long prompt packs nothing
//! but the canvas, and allocates nothing.
//!
//! ```text
//! page 0                                    page 1
//! keys    [tokens 0..16] [16..32] …         [PAGE..PAGE + 16] …          each [width][16 tokens]
//! values  [channels 0..16] [16..32] …       …                            each [PAGE][16 channels]
//! ```

use std::ops::Range;

use super::Cpu;
use super::pool::Pool;
use super::prefetch;
use super::table::Table;
use super::vector::{LANES, Row16};
use crate::cache::{Cache, no_room};
use crate::{ComputeError, KV_RUN, KvType};

/// Tokens of a page: enough that the kernel's sums go through memory rarely, few enough that the last page wastes
/// little.
pub(crate) const PAGE: usize = 128;

/// Panels of a page with keys.
const BLOCKS: usize = PAGE / LANES;

/// Rows of 16 numbers in the type of the cache. Scales belong to `KV_RUN` channels of a token.
enum Rows {
    F32(Vec<Row16>),
    F16(Vec<[u16; LANES]>),
    I8 { codes: Vec<[i8; LANES]>, scales: Vec<f32> },
}

impl Rows {
    fn new(kv_type: KvType, rows: usize, scales: usize) -> Result<Rows, ComputeError> {
        Ok(match kv_type {
            KvType::F32 => Rows::F32(zeros(rows)?),
            KvType::F16 => Rows::F16(zeros(rows)?),
            KvType::I8 => Rows::I8 { codes: zeros(rows)?, scales: zeros(scales)? },
        })
    }

    fn bytes(&self) -> usize {
        match self {
            Rows::F32(x) => size_of_val(&x[..]),
            Rows::F16(x) => size_of_val(&x[..]),
            Rows::I8 { codes, scales } => size_of_val(&codes[..]) + size_of_val(&scales[..]),
        }
    }

    /// Starts loading part `part.0` of `part.1` of some rows into the second-level cache.
    fn prefetch(&self, rows: Range<usize>, [part, parts]: [usize; 2]) {
        let n = rows.len();
        let rows = rows.start + n * part / parts..rows.start + n * (part + 1) / parts;
        match self {
            Rows::F32(x) => prefetch::far(&x[rows]),
            Rows::F16(x) => prefetch::far(&x[rows]),
            Rows::I8 { codes, .. } => prefetch::far(&codes[rows]),
        }
    }

    /// Cuts the rows into parts of `rows` rows and `scales` scales.
    fn parts(&mut self, rows: usize, scales: usize) -> Vec<Part<'_>> {
        match self {
            Rows::F32(x) => x.chunks_mut(rows).map(Part::F32).collect(),
            Rows::F16(x) => x.chunks_mut(rows).map(Part::F16).collect(),
            Rows::I8 { codes, scales: s } => {
                codes.chunks_mut(rows).zip(s.chunks_mut(scales)).map(|(c, s)| Part::I8(c, s)).collect()
            }
        }
    }
}

fn zeros<T: Copy + Default>(n: usize) -> Result<Vec<T>, ComputeError> {
    let mut x = Vec::new();
    x.try_reserve_exact(n).map_err(|_| no_room(n.saturating_mul(size_of::<T>())))?;
    x.resize(n, T::default());
    Ok(x)
}

struct Page {
    keys: Rows,
    values: Rows,
}

/// Rows that one thread writes.
enum Part<'a> {
    F32(&'a mut [Row16]),
    F16(&'a mut [[u16; LANES]]),
    I8(&'a mut [[i8; LANES]], &'a mut [f32]),
}

/// What one thread does of a write: 16 tokens of keys, or a run of channels of values.
struct Job<'a> {
    to: Part<'a>,
    /// First token of the panel or the page.
    first: usize,
    /// First channel; `None` for keys, where all channels are written.
    channel: Option<usize>,
}

/// Buffers of one thread for rows on their way between f32 and the type of the cache.
#[derive(Default)]
pub(crate) struct Buffers {
    rows: Vec<Row16>,
    f16: Vec<[u16; LANES]>,
    i8: Vec<[i8; LANES]>,
    scales: Vec<Row16>,
    zeros: Vec<f32>,
}

/// The cache of one layer.
pub(crate) struct Panels {
    kv_type: KvType,
    width: usize,
    /// Tokens that were appended.
    len: usize,
    pages: Vec<Page>,
    /// Pages at the start that are empty, because nothing sees them any more.
    evicted: usize,
}

/// Rows that a pass adds to the cache: from token `first` on, `[tokens, width]` each.
pub(crate) struct New<'a> {
    pub(crate) first: usize,
    pub(crate) keys: &'a [f32],
    pub(crate) values: &'a [f32],
}

impl Default for Panels {
    fn default() -> Panels {
        Panels::new(0, KvType::F32)
    }
}

impl Panels {
    /// Makes an f32 cache of no tokens one for rows of `width` channels.
    pub(crate) fn fit(&mut self, width: usize) {
        if self.width != width {
            *self = Panels::new(width, KvType::F32);
        }
    }

    /// Tokens that were appended.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Counts what was written up to `len`.
    pub(crate) fn commit(&mut self, len: usize) {
        self.len = len;
    }

    /// Writes rows, rounded to the type, over whatever is there. They do not count before [`commit`](Self::commit).
    pub(crate) fn write(&mut self, cpu: &Cpu, new: &New<'_>) -> Result<(), ComputeError> {
        if new.keys.is_empty() {
            return Ok(());
        }
        let width = self.width;
        let tokens = new.first..new.first + new.keys.len() / width;
        self.reserve(tokens.end)?;
        let runs = width.div_ceil(KV_RUN);
        let mut jobs = Vec::new();
        for (i, page) in self.pages.iter_mut().enumerate() {
            let start = i * PAGE;
            if tokens.end <= start || start + PAGE <= tokens.start {
                continue;
            }
            for (b, to) in page.keys.parts(width, runs * LANES).into_iter().enumerate() {
                let first = start + b * LANES;
                if first < tokens.end && tokens.start < first + LANES {
                    jobs.push(Job { to, first, channel: None });
                }
            }
            for (g, to) in page.values.parts(KV_RUN / LANES * PAGE, PAGE).into_iter().enumerate() {
                jobs.push(Job { to, first: start, channel: Some(g * KV_RUN) });
            }
        }
        let (table, pool): (_, &Pool) = (cpu.table, &cpu.pool);
        pool.items(&mut jobs, |thread, _, job| {
            let buf = &mut cpu.scratch(thread).cache;
            match job.channel {
                None => write_keys(table, job, new, width, &tokens, buf),
                Some(channel) => write_values(table, job, new, width, channel, &tokens, buf),
            }
        });
        Ok(())
    }

    /// Channels `channels` of the 16 tokens from `first` on, which is a multiple of 16: `[channel][16 tokens]`.
    pub(crate) fn keys<'a>(
        &'a self,
        table: &Table,
        first: usize,
        channels: Range<usize>,
        buf: &'a mut Vec<Row16>,
    ) -> &'a [Row16] {
        let block = first % PAGE / LANES;
        let rows = block * self.width + channels.start..block * self.width + channels.end;
        if buf.len() < rows.len() {
            buf.resize(rows.len(), [0.0; LANES]);
        }
        let out = &mut buf[..rows.len()];
        match &self.pages[first / PAGE].keys {
            Rows::F32(x) => return &x[rows],
            Rows::F16(x) => (table.from_f16)(&x[rows], out),
            Rows::I8 { codes, scales } => {
                let runs = self.width.div_ceil(KV_RUN);
                let scales = &scales.as_chunks().0[block * runs..][..runs];
                (table.from_i8_columns)(&codes[rows], scales, channels.start, out);
            }
        }
        out
    }

    /// Starts loading a part of what [`keys`](Self::keys) will be asked for: the caches of the processor do not guess
    /// where the next head or block begins, and to wait for memory there costs a third of the time.
    pub(crate) fn prefetch_keys(&self, first: usize, channels: &Range<usize>, part: [usize; 2]) {
        if let Some(page) = self.pages.get(first / PAGE) {
            let at = first % PAGE / LANES * self.width;
            page.keys.prefetch(at + channels.start..at + channels.end, part);
        }
    }

    /// The same for [`values`](Self::values).
    pub(crate) fn prefetch_values(&self, tokens: &Range<usize>, channel: usize, part: [usize; 2]) {
        if let Some(page) = self.pages.get(tokens.start / PAGE)
            && channel < self.width
        {
            let at = channel / LANES * PAGE + tokens.start % PAGE;
            page.values.prefetch(at..at + tokens.len(), part);
        }
    }

    /// The 16 channels from `channel` on of `tokens`, which lie in one page: `[token][16 channels]`. Channels of other
    /// heads and beyond the width may be among them.
    pub(crate) fn values<'a>(
        &'a self,
        table: &Table,
        tokens: Range<usize>,
        channel: usize,
        bufs: &'a mut [Vec<Row16>; 2],
    ) -> &'a [Row16] {
        let [buf, joined] = bufs;
        let (c, shift) = (channel / LANES, channel % LANES);
        if shift == 0 {
            return self.value_panel(table, &tokens, c, buf);
        }
        // The channels of a head that does not start at a multiple of 16 lie in two panels.
        joined.clear();
        joined.extend_from_slice(self.value_panel(table, &tokens, c, buf));
        joined.iter_mut().for_each(|row| row.copy_within(shift.., 0));
        if (c + 1) * LANES < self.width {
            let panel = self.value_panel(table, &tokens, c + 1, buf);
            for (row, next) in joined.iter_mut().zip(panel) {
                row[LANES - shift..].copy_from_slice(&next[..shift]);
            }
        }
        joined
    }

    fn value_panel<'a>(
        &'a self,
        table: &Table,
        tokens: &Range<usize>,
        c: usize,
        buf: &'a mut Vec<Row16>,
    ) -> &'a [Row16] {
        let (at, n) = (tokens.start % PAGE, tokens.len());
        let rows = c * PAGE + at..c * PAGE + at + n;
        if buf.len() < n {
            buf.resize(n, [0.0; LANES]);
        }
        let out = &mut buf[..n];
        match &self.pages[tokens.start / PAGE].values {
            Rows::F32(x) => return &x[rows],
            Rows::F16(x) => (table.from_f16)(&x[rows], out),
            Rows::I8 { codes, scales } => {
                let scales = &scales[c * LANES / KV_RUN * PAGE + at..][..n];
                (table.from_i8_rows)(&codes[rows], scales, out);
            }
        }
        out
    }
}

impl Cache for Panels {
    fn new(width: usize, kv_type: KvType) -> Panels {
        Panels { kv_type, width, len: 0, pages: Vec::new(), evicted: 0 }
    }

    fn width(&self) -> usize {
        self.width
    }

    fn reserve(&mut self, len: usize) -> Result<(), ComputeError> {
        let runs = self.width.div_ceil(KV_RUN);
        let size = |n: usize| n.checked_mul(self.width.max(1)).ok_or_else(|| no_room(usize::MAX));
        size(len.next_multiple_of(PAGE))?;
        while self.pages.len() < len.div_ceil(PAGE) {
            let keys = Rows::new(self.kv_type, BLOCKS * self.width, BLOCKS * runs * LANES)?;
            let values = Rows::new(self.kv_type, runs * (KV_RUN / LANES) * PAGE, runs * PAGE)?;
            self.pages.push(Page { keys, values });
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.pages.truncate(self.len.div_ceil(PAGE));
        self.evicted = self.evicted.min(self.pages.len());
    }

    fn forget(&mut self, before: usize) {
        let end = before.min(self.len) / PAGE;
        for page in self.pages.iter_mut().take(end).skip(self.evicted) {
            *page = Page { keys: Rows::F32(Vec::new()), values: Rows::F32(Vec::new()) };
        }
        self.evicted = self.evicted.max(end);
    }

    fn first(&self) -> usize {
        self.evicted * PAGE
    }

    fn bytes(&self) -> usize {
        self.pages.iter().map(|p| p.keys.bytes() + p.values.bytes()).sum()
    }
}

/// Copies `lanes` of each row.
fn merge<T: Copy>(from: &[[T; LANES]], lanes: &Range<usize>, to: &mut [[T; LANES]]) {
    if lanes.len() == LANES {
        to.copy_from_slice(from);
        return;
    }
    for (from, to) in from.iter().zip(to) {
        to[lanes.clone()].copy_from_slice(&from[lanes.clone()]);
    }
}

/// Writes the keys of those of 16 tokens that are new.
fn write_keys(
    table: &Table,
    job: &mut Job<'_>,
    new: &New<'_>,
    width: usize,
    tokens: &Range<usize>,
    buf: &mut Buffers,
) {
    buf.zeros.resize(width, 0.0);
    let mut rows: [&[f32]; LANES] = [&buf.zeros; LANES];
    let lanes = tokens.start.max(job.first) - job.first..tokens.end.min(job.first + LANES) - job.first;
    for lane in lanes.clone() {
        rows[lane] = &new.keys[(job.first + lane - new.first) * width..][..width];
    }
    if let (Part::F32(to), LANES) = (&mut job.to, lanes.len()) {
        return (table.pack)(&rows, to);
    }
    buf.rows.resize(width, [0.0; LANES]);
    (table.pack)(&rows, &mut buf.rows);
    match &mut job.to {
        Part::F32(to) => merge(&buf.rows, &lanes, to),
        Part::F16(to) => {
            buf.f16.resize(width, [0; LANES]);
            (table.to_f16)(&buf.rows, &mut buf.f16);
            merge(&buf.f16, &lanes, to);
        }
        Part::I8(to, scales) => {
            buf.i8.resize(width, [0; LANES]);
            buf.scales.resize(width.div_ceil(KV_RUN), [0.0; LANES]);
            let runs = buf.rows.chunks(KV_RUN).zip(buf.i8.chunks_mut(KV_RUN));
            for ((x, codes), scales) in runs.zip(&mut buf.scales) {
                (table.to_i8_columns)(x, codes, scales);
            }
            merge(&buf.i8, &lanes, to);
            merge(&buf.scales, &lanes, scales.as_chunks_mut().0);
        }
    }
}

/// Writes a run of channels of the values of those tokens of a page that are new.
fn write_values(
    table: &Table,
    job: &mut Job<'_>,
    new: &New<'_>,
    width: usize,
    channel: usize,
    tokens: &Range<usize>,
    buf: &mut Buffers,
) {
    let tokens = tokens.start.max(job.first)..tokens.end.min(job.first + PAGE);
    let (n, at) = (tokens.len(), tokens.start - job.first);
    // Both halves of the run, `[half][token][16 channels]`.
    buf.rows.clear();
    buf.rows.resize(2 * n, [0.0; LANES]);
    for (i, token) in tokens.enumerate() {
        let row = &new.values[(token - new.first) * width..][channel..width.min(channel + KV_RUN)];
        for (half, x) in row.chunks(LANES).enumerate() {
            buf.rows[half * n + i][..x.len()].copy_from_slice(x);
        }
    }
    let (low, high) = buf.rows.split_at(n);
    match &mut job.to {
        Part::F32(to) => {
            to[at..at + n].copy_from_slice(low);
            to[PAGE + at..][..n].copy_from_slice(high);
        }
        Part::F16(to) => {
            (table.to_f16)(low, &mut to[at..at + n]);
            (table.to_f16)(high, &mut to[PAGE + at..][..n]);
        }
        Part::I8(to, scales) => {
            let (a, b) = to.split_at_mut(PAGE);
            (table.to_i8_rows)(
                [low, high],
                [&mut a[at..at + n], &mut b[at..at + n]],
                &mut scales[at..at + n],
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Rows as Reference;
    use crate::cpu::CpuLevel;

    fn cpu() -> Cpu {
        Cpu::new(CpuLevel::Scalar, Some(2)).unwrap()
    }

    /// Keys and values of `tokens`, each number one of its token, its channel and the seed.
    fn rows(seed: usize, tokens: Range<usize>, width: usize) -> [Vec<f32>; 2] {
        [0, 1].map(|which| {
            let number = |token: usize, c: usize| {
                let x = (token * 31 + c * 17 + seed * 101 + which * 57) % 255;
                (x as f32 - 127.0) / 64.0
            };
            tokens.clone().flat_map(|t| (0..width).map(move |c| number(t, c))).collect()
        })
    }

    fn write(cache: &mut Panels, cpu: &Cpu, first: usize, [keys, values]: &[Vec<f32>; 2]) {
        cache.write(cpu, &New { first, keys, values }).unwrap();
    }

    /// All keys and values of a head as the kernels get them, `[token][channel]`.
    fn read(cache: &Panels, cpu: &Cpu, tokens: usize, channels: Range<usize>) -> [Vec<f32>; 2] {
        let n = channels.len();
        let (mut keys, mut values) = (vec![0.0; tokens * n], vec![0.0; tokens * n]);
        let (mut buf, mut bufs) = (Vec::new(), Default::default());
        for first in (0..tokens).step_by(LANES) {
            let panel = cache.keys(cpu.table, first, channels.clone(), &mut buf);
            for (c, row) in panel.iter().enumerate() {
                for (token, &x) in (first..tokens).zip(row) {
                    keys[token * n + c] = x;
                }
            }
        }
        for first in (0..tokens).step_by(PAGE) {
            let page = first..tokens.min(first + PAGE);
            for c in (0..n).step_by(LANES) {
                let panel = cache.values(cpu.table, page.clone(), channels.start + c, &mut bufs);
                for (token, row) in page.clone().zip(panel) {
                    let out = &mut values[token * n..][c..n.min(c + LANES)];
                    out.copy_from_slice(&row[..out.len()]);
                }
            }
        }
        [keys, values]
    }

    /// Three heads of 24 channels: two of them begin inside a panel of 16, and the last run of 32 is a short one.
    #[test]
    fn what_is_written_over_a_truncated_page_is_read_by_every_head() {
        const HEAD: usize = 24;
        const WIDTH: usize = 3 * HEAD;
        let cpu = cpu();
        for &kv_type in KvType::ALL {
            let mut cache = Panels::new(WIDTH, kv_type);
            let mut want = Reference::<f32>::new(WIDTH, kv_type);
            let append =
                |cache: &mut Panels, want: &mut Reference<f32>, seed: usize, tokens: Range<usize>| {
                    let new = rows(seed, tokens.clone(), WIDTH);
                    write(cache, &cpu, tokens.start, &new);
                    cache.commit(tokens.end);
                    want.append(&new[0], &new[1]);
                };
            append(&mut cache, &mut want, 1, 0..2 * PAGE + 21);
            assert_eq!(cache.pages.len(), 3);
            // Into the middle of a panel of keys; then on across the end of the page.
            cache.truncate(PAGE - 5);
            want.truncate(PAGE - 5);
            assert_eq!((cache.len(), cache.pages.len()), (PAGE - 5, 1));
            append(&mut cache, &mut want, 2, PAGE - 5..PAGE + 9);
            append(&mut cache, &mut want, 3, PAGE + 9..PAGE + 10);
            // Rows that do not count, as a canvas has them, then others in their place.
            write(&mut cache, &cpu, PAGE + 10, &rows(4, PAGE + 10..2 * PAGE + 3, WIDTH));
            assert_eq!(cache.len(), PAGE + 10);
            append(&mut cache, &mut want, 5, PAGE + 10..PAGE + 40);
            for head in 0..3 {
                let channels = head * HEAD..(head + 1) * HEAD;
                let found = read(&cache, &cpu, PAGE + 40, channels.clone());
                for (found, want) in found.iter().zip([&want.k, &want.v]) {
                    let want: Vec<f32> =
                        want.chunks_exact(WIDTH).flat_map(|row| row[channels.clone()].to_vec()).collect();
                    let same = found.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(found.len() == want.len() && same, "{kv_type:?} head {head}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_those_of_whole_pages() {
        const WIDTH: usize = 40;
        let cpu = cpu();
        for (kv_type, keys, values) in [
            // Values lie in runs of 32 channels, here two.
            (KvType::F32, 4 * WIDTH * PAGE, 4 * 64 * PAGE),
            (KvType::F16, 2 * WIDTH * PAGE, 2 * 64 * PAGE),
            (KvType::I8, (WIDTH + 4 * 2) * PAGE, (64 + 4 * 2) * PAGE),
        ] {
            let mut cache = Panels::new(WIDTH, kv_type);
            assert_eq!(cache.bytes(), 0);
            cache.reserve(PAGE + 1).unwrap();
            assert_eq!(cache.bytes(), 2 * (keys + values), "{kv_type:?}");
            write(&mut cache, &cpu, 0, &rows(0, 0..3 * PAGE, WIDTH));
            assert_eq!(cache.bytes(), 3 * (keys + values), "{kv_type:?}");
            cache.commit(3 * PAGE);
            cache.forget(PAGE + 1);
            assert_eq!(cache.bytes(), 2 * (keys + values), "{kv_type:?}");
            cache.truncate(0);
            assert_eq!(cache.bytes(), 0);
        }
    }

    #[test]
    fn whole_pages_are_forgotten() {
        let cpu = cpu();
        let mut cache = Panels::new(16, KvType::F32);
        write(&mut cache, &cpu, 0, &rows(0, 0..3 * PAGE, 16));
        cache.commit(2 * PAGE + 7);
        let first = [(0, 0), (PAGE - 1, 0), (PAGE, PAGE), (PAGE + 9, PAGE), (3, PAGE), (9 * PAGE, 2 * PAGE)];
        for (before, first) in first {
            cache.forget(before);
            assert_eq!(cache.first(), first, "before {before}");
        }
        // What is left can be read, and pages that are cut off are no longer forgotten ones.
        let [keys, _] = rows(0, 2 * PAGE..2 * PAGE + 1, 16);
        let panel = cache.keys(cpu.table, 2 * PAGE, 0..16, &mut Vec::new()).to_vec();
        assert!(panel.iter().zip(&keys).all(|(row, x)| row[0] == *x));
        cache.truncate(PAGE);
        assert_eq!((cache.first(), cache.len()), (PAGE, PAGE));
        cache.truncate(0);
        assert_eq!(cache.first(), 0);
    }
}
