//! Logits, tile by tile: from products to logits, and the statistics of a tile.

use super::softmax::max;
use crate::cpu::vector::{Isa, LANES, Row16};
use crate::math::{self, Lanes};

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
