//! What a sampler needs of one row of logits.
//!
//! 1. Maximum `m`, and the lowest id that has it.
//! 2. Sixteen ids at a time, `e = exp(x - m)`: the sums of `e` and of `e * (x - m)` over the row, and the sum
//!    of `e` over each tile of 1,024 ids, all in the order of the contract. Nothing but the tiles' sums is
//!    stored.
//! 3. Log-sum-exp and entropy from the two sums of the row.
//! 4. The sample: the running sum over tiles reaches `u * total` in one tile, and in it, id by id, at the
//!    sample. The exponentials of that tile are computed again.

use super::softmax::max;
use crate::cpu::vector::{Isa, LANES};
use crate::math::{self, Lanes};
use crate::reference::TILE;

/// Statistics of one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stats {
    /// The largest logit.
    pub(crate) max: f32,
    /// Log-sum-exp.
    pub(crate) lse: f32,
    /// Entropy in nats.
    pub(crate) entropy: f32,
    /// Lowest id with the largest logit.
    pub(crate) argmax: i32,
    /// Inverse-CDF sample.
    pub(crate) sample: i32,
}

/// Statistics of one row; `tiles` is a buffer.
#[inline(always)]
pub(crate) fn token_stats<S: Isa>(s: S, x: &[f32], u: f32, tiles: &mut Vec<f32>) -> Stats {
    let m = max(s, x);
    let mv = s.splat(m);
    let (mut sum, mut moment) = (s.splat(0.0), s.splat(0.0));
    tiles.clear();
    for tile in x.chunks(TILE) {
        let mut part = s.splat(0.0);
        let (whole, tail) = tile.as_chunks::<LANES>();
        for x in whole {
            let d = s.load(x).sub(mv);
            let e = math::exp(d);
            sum = sum.add(e);
            part = part.add(e);
            moment = moment.add(e.mul(d));
        }
        if !tail.is_empty() {
            // A missing element has e = exp(-infinity) = 0 and d = m - m = 0.
            let e = math::exp(s.load_part(tail, f32::NEG_INFINITY).sub(mv));
            let d = s.load_part(tail, m).sub(mv);
            sum = sum.add(e);
            part = part.add(e);
            moment = moment.add(e.mul(d));
        }
        tiles.push(s.sum(part));
    }
    let (sum, moment) = (s.sum(sum), s.sum(moment));
    let log = math::log(sum);
    let weighted = moment * math::recip(sum);
    Stats {
        max: math::flush(m),
        lse: math::flush(m + log),
        entropy: math::flush(log - weighted),
        argmax: first_equal(x, m) as i32,
        sample: sample(x, m, u, tiles) as i32,
    }
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

/// The sample; what each step is for stands at the reference's function of this name.
#[inline(always)]
fn sample(x: &[f32], m: f32, u: f32, tiles: &[f32]) -> usize {
    let mut total = 0.0;
    for &tile in tiles {
        total += tile;
    }
    let target = u * total;
    let mut running = 0.0;
    for (t, &tile) in tiles.iter().enumerate() {
        if running + tile >= target {
            let (start, end) = (t * TILE, x.len().min((t + 1) * TILE));
            for (v, &x) in (start..).zip(&x[start..end]) {
                running += math::exp(x - m);
                if running >= target {
                    return v;
                }
            }
            return last_positive(x, m, start, end);
        }
        running += tile;
    }
    last_positive(x, m, 0, x.len())
}

/// The last id in `start..end` whose exponential is above zero, `start` if none is.
#[inline(always)]
fn last_positive(x: &[f32], m: f32, start: usize, end: usize) -> usize {
    for v in (start..end).rev() {
        if math::exp(x[v] - m) > 0.0 {
            return v;
        }
    }
    start
}
