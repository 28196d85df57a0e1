//! Soft-max of a row, and its two halves as attention uses them.
//!
//! 1. The maximum, which has no order: there is one zero, +0.
//! 2. `e = exp(x - max)`, summed in the order of the contract: lane `i mod 16`, then the tree.
//! 3. One reciprocal of the sum, one multiplication per element.

use std::ops::Range;

use crate::cpu::vector::{Isa, LANES};
use crate::math::{self, Lanes};

/// The largest element, minus infinity of nothing.
#[inline(always)]
pub(crate) fn max<S: Isa>(s: S, x: &[f32]) -> f32 {
    let (whole, tail) = x.as_chunks::<LANES>();
    let mut m = s.load_part(tail, f32::NEG_INFINITY);
    for x in whole {
        m = m.max(s.load(x));
    }
    let m = s.largest(m);
    if m == 0.0 { 0.0 } else { m }
}

/// Soft-max of one row.
#[inline(always)]
pub(crate) fn softmax<S: Isa>(s: S, x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "arguments of one length");
    let m = s.splat(max(s, x));
    let (whole, tail) = x.as_chunks::<LANES>();
    let (out, out_tail) = out.as_chunks_mut::<LANES>();
    let mut acc = s.splat(0.0);
    for (x, out) in whole.iter().zip(&mut *out) {
        let e = math::exp(s.load(x).sub(m));
        acc = acc.add(e);
        s.store(e, out);
    }
    // The exponential of minus infinity is +0, which is how a missing element counts.
    let last = math::exp(s.load_part(tail, f32::NEG_INFINITY).sub(m));
    acc = acc.add(last);
    let r = s.splat(math::recip(s.sum(acc)));
    for out in out {
        s.store(math::flush(s.load(out).mul(r)), out);
    }
    s.store_part(math::flush(last.mul(r)), out_tail);
}

/// Turns the scores of one query into exponentials and returns the reciprocal of their sum.
///
/// `scores[i]` belongs to a key whose number is `i` modulo 16, so lanes are those of the contract. Outside
/// `visible` the scores are ignored and become 0. The length is a multiple of 16.
#[inline(always)]
pub(crate) fn attend<S: Isa>(s: S, scores: &mut [f32], visible: Range<usize>, scale: Option<f32>) -> f32 {
    let (blocks, rest) = scores.as_chunks_mut::<LANES>();
    assert!(rest.is_empty(), "whole blocks of keys");
    let seen = visible.start / LANES..visible.end.div_ceil(LANES);
    blocks[..seen.start].fill([0.0; LANES]);
    blocks[seen.end..].fill([0.0; LANES]);
    let blocks = &mut blocks[seen.clone()];
    if let Some(scale) = scale {
        let scale = s.splat(scale);
        for x in &mut *blocks {
            s.store(s.load(x).mul(scale), x);
        }
    }
    // Minus infinity never is the maximum, and its exponential is +0.
    let flat = blocks.as_flattened_mut();
    let base = seen.start * LANES;
    flat[..visible.start - base].fill(f32::NEG_INFINITY);
    flat[visible.end - base..].fill(f32::NEG_INFINITY);
    let m = s.splat(max(s, flat));
    let mut acc = s.splat(0.0);
    for x in blocks {
        let e = math::exp(s.load(x).sub(m));
        acc = acc.add(e);
        s.store(e, x);
    }
    math::recip(s.sum(acc))
}
