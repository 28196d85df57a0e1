//! Logits, tile by tile: from products to logits, statistics of a tile, probabilities, and the sum of embeddings that
//! they weigh.

use super::softmax::max;
use crate::cpu::vector::{Isa, LANES, Row16};
use crate::math::{self, Lanes};

/// Probabilities that one word of flags describes, 64 at most. With [`COLUMNS`] of them 16 KiB of table rows: half of a
/// small first-level cache.
pub(crate) const BLOCK: usize = 32;

/// Columns of the embedding table that lie together.
pub(crate) const COLUMNS: usize = 8 * LANES;

/// Some columns of one row of the embedding table. They are loaded for each product: a load that crossed a line of the
/// cache would count twice.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
pub(crate) struct Columns(pub(crate) [Row16; COLUMNS / LANES]);

/// Statistics of one tile of one row.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tile {
    /// The largest logit `m`.
    pub(crate) max: f32,
    /// Sum of `exp(x - m)`.
    pub(crate) sum: f32,
    /// Sum of `exp(x - m) * (x - m)`.
    pub(crate) moment: f32,
    /// The first place of the largest logit in the tile.
    pub(crate) first: u32,
}

/// From products with the head to processed logits: flush, cap `[c, 1 / c]`, scale, flush. What is not finite becomes
/// NaN.
#[inline(always)]
pub(crate) fn logits<S: Isa>(s: S, sums: &mut [Row16], cap: Option<[f32; 2]>, by: f32) {
    let by = s.splat(by);
    match cap {
        Some([cap, inverse]) => {
            let (cap, inverse) = (s.splat(cap), s.splat(inverse));
            for x in sums {
                let y = s.load(x);
                let raw = math::flush(cap.mul(math::tanh(math::flush(y).mul(inverse))));
                s.store(math::flush(raw.add(y.sub(y)).mul(by)), x);
            }
        }
        None => {
            for x in sums {
                let y = s.load(x);
                s.store(math::flush(math::flush(y).add(y.sub(y)).mul(by)), x);
            }
        }
    }
}

/// Statistics of one tile: the maximum, then both sums in the order of the contract.
#[inline(always)]
pub(crate) fn tile_stats<S: Isa>(s: S, x: &[f32]) -> Tile {
    let m = max(s, x);
    let mv = s.splat(m);
    let (mut sum, mut moment) = (s.splat(0.0), s.splat(0.0));
    let (whole, tail) = x.as_chunks::<LANES>();
    for x in whole {
        let d = s.load(x).sub(mv);
        let e = math::exp(d);
        sum = sum.add(e);
        moment = moment.add(e.mul(d));
    }
    if !tail.is_empty() {
        // A missing element has e = exp(-infinity) = 0 and d = m - m = 0.
        let e = math::exp(s.load_part(tail, f32::NEG_INFINITY).sub(mv));
        let d = s.load_part(tail, m).sub(mv);
        sum = sum.add(e);
        moment = moment.add(e.mul(d));
    }
    Tile { max: m, sum: s.sum(sum), moment: s.sum(moment), first: first_equal(x, m) as u32 }
}

/// The first place of `m`. Sixteen comparisons are one step, because a loop with an exit in each would be
/// scalar.
#[inline(always)]
fn first_equal(x: &[f32], m: f32) -> usize {
    for (i, block) in x.chunks(LANES).enumerate() {
        let mut found = false;
        for &x in block {
            found |= x == m;
        }
        if found {
            return i * LANES + block.iter().position(|&x| x == m).unwrap_or(0);
        }
    }
    0
}

/// From the logits of one tile of a row to probabilities `flush(exp(x - max) * r)`, in place. Bit `i` of `flags[b]` says
/// whether the `i`-th probability of the `b`-th [`BLOCK`] is at least `cut`.
#[inline(always)]
pub(crate) fn probabilities<S: Isa>(s: S, x: &mut [f32], max: f32, r: f32, cut: f32, flags: &mut [u64]) {
    assert_eq!(x.len().div_ceil(BLOCK), flags.len(), "a word of flags for each block");
    let (m, r) = (s.splat(max), s.splat(r));
    for (x, flags) in x.chunks_mut(BLOCK).zip(flags) {
        let (whole, tail) = x.as_chunks_mut::<LANES>();
        for x in whole {
            s.store(math::flush(math::exp(s.load(x).sub(m)).mul(r)), x);
        }
        if !tail.is_empty() {
            let e = math::exp(s.load_part(tail, f32::NEG_INFINITY).sub(m));
            s.store_part(math::flush(e.mul(r)), tail);
        }
        let mut bits = 0;
        for (i, &p) in x.iter().enumerate() {
            bits |= u64::from(p >= cut) << i;
        }
        *flags = bits;
    }
}

/// Adds `p[i] * rows[i]` to `sums` for each `i` whose flag is set, ascending.
///
/// 1. As many sums as there are registers are loaded.
/// 2. For each flag: one probability in all lanes, `sum = sum + w * p`, the product rounded before the addition.
/// 3. The sums are stored.
#[inline(always)]
pub(crate) fn soft_embed<S: Isa>(s: S, rows: &[Columns], p: &[f32], flags: u64, sums: &mut [f32]) {
    assert!(
        rows.len() == p.len() && flags.checked_shr(rows.len() as u32).unwrap_or(0) == 0,
        "a row for each flag"
    );
    let (groups, tail) = sums.as_chunks_mut::<LANES>();
    let mut done = 0;
    while groups.len() - done >= 8 && S::GROUPS[0] >= 16 {
        columns::<S, 8>(s, rows, done, p, flags, &mut groups[done..]);
        done += 8;
    }
    while groups.len() - done >= 4 {
        columns::<S, 4>(s, rows, done, p, flags, &mut groups[done..]);
        done += 4;
    }
    while groups.len() > done {
        columns::<S, 1>(s, rows, done, p, flags, &mut groups[done..]);
        done += 1;
    }
    let mut rest = flags;
    while rest != 0 && !tail.is_empty() {
        let i = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        for (sum, &w) in tail.iter_mut().zip(&rows[i].0[done]) {
            let product = w * p[i];
            *sum += product;
        }
    }
}

/// The groups of sixteen columns `at .. at + N`.
#[inline(always)]
fn columns<S: Isa, const N: usize>(
    s: S,
    rows: &[Columns],
    at: usize,
    p: &[f32],
    flags: u64,
    sums: &mut [Row16],
) {
    let Some(sums) = sums.first_chunk_mut::<N>() else { unreachable!("sums for {N} groups of columns") };
    let mut acc = [s.splat(0.0); N];
    for n in 0..N {
        acc[n] = s.load(&sums[n]);
    }
    let mut rest = flags;
    while rest != 0 {
        let i = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let Some(row) = rows[i].0[at..].first_chunk::<N>() else { unreachable!("{N} groups of columns") };
        let p = s.splat(p[i]);
        for n in 0..N {
            acc[n] = acc[n].add(s.load(&row[n]).mul(p));
        }
    }
    for n in 0..N {
        s.store(acc[n], &mut sums[n]);
    }
}
