//! Soft-max of a row, and its first half for 16 queries of attention at once.
//!
//! 1. The maximum, which has no order: there is one zero, +0.
//! 2. `e = exp(x - max)`, summed in the order of the contract: lane `i mod 16`, then the tree.
//! 3. One reciprocal of the sum, one multiplication per element.

use crate::cpu::vector::{Isa, LANES, Row16};
use crate::math::{self, IntLanes, Lanes};

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

/// Which keys each of 16 queries sees, counted from the first score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Visible {
    /// First keys.
    pub(crate) start: [i32; LANES],
    /// Keys behind the last.
    pub(crate) end: [i32; LANES],
}

/// Turns the scores of 16 queries into exponentials and returns the reciprocals of their sums.
///
/// `scores[i]` belongs to a key whose number is `i` modulo 16, so the accumulators are those of the contract; a lane
/// is a query. Keys that a query does not see become 0 there. The length is a multiple of 16.
#[inline(always)]
pub(crate) fn attend<S: Isa>(s: S, scores: &mut [Row16], seen: &Visible, scale: Option<f32>) -> Row16 {
    let (blocks, rest) = scores.as_chunks_mut::<LANES>();
    assert!(rest.is_empty(), "whole blocks of keys");
    let (start, end) = (s.load_int(&seen.start), s.load_int(&seen.end));
    // What all of them see; elsewhere each lane is looked at.
    let all_from = seen.start.iter().copied().fold(0, i32::max);
    let all_to = seen.end.iter().copied().fold(i32::MAX, i32::min);
    let hidden = s.splat(f32::NEG_INFINITY);
    let mut m = hidden;
    for (b, block) in blocks.iter_mut().enumerate() {
        let first = (b * LANES) as i32;
        let whole = all_from <= first && first + LANES as i32 <= all_to;
        if whole && scale.is_none() {
            for x in block {
                m = m.max(s.load(x));
            }
            continue;
        }
        for (i, x) in block.iter_mut().enumerate() {
            let mut v = s.load(x);
            if let Some(scale) = scale {
                v = v.mul(s.splat(scale));
            }
            if !whole {
                let key = first + i as i32;
                // Minus infinity never is the maximum, and its exponential is +0.
                v = v.if_int_lt(start, start.splat(key + 1), hidden);
                v = v.if_int_lt(start.splat(key), end, hidden);
            }
            m = m.max(v);
            s.store(v, x);
        }
    }
    // There is one zero, +0.
    let m = m.add(s.splat(0.0));
    let mut acc = [s.splat(0.0); LANES];
    for block in blocks {
        for i in 0..LANES {
            let e = math::exp(s.load(&block[i]).sub(m));
            acc[i] = acc[i].add(e);
            s.store(e, &mut block[i]);
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            acc[i] = acc[i].add(acc[i + half]);
        }
        half /= 2;
    }
    let mut out = [0.0; LANES];
    s.store(math::recip(acc[0]), &mut out);
    out
}
