//! Soft-max of a row, and its parts for 16 queries of attention at once.
//!
//! 1. The maximum, which has no order: there is one zero, +0.
//! 2. `e = exp(x - max)`, summed in the order of the contract: lane `i mod 16`, then the tree.
//! 3. One reciprocal of the sum, one multiplication per element.

use std::ops::Range;

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

/// Which keys each of 16 queries sees. A context has fewer than 2^31 of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Visible {
    start: [i32; LANES],
    end: [i32; LANES],
    /// What all of them see.
    by_all: Range<usize>,
    /// What some of them see.
    pub(crate) by_some: Range<usize>,
}

impl Visible {
    /// From the keys that each lane sees.
    pub(crate) fn new(seen: [Range<usize>; LANES]) -> Visible {
        let ends = |pick: fn(&Range<usize>) -> usize| {
            let it = seen.iter().map(pick);
            (it.clone().min().unwrap_or(0), it.max().unwrap_or(0))
        };
        let ((first, last_start), (first_end, last)) = (ends(|r| r.start), ends(|r| r.end));
        Visible {
            start: std::array::from_fn(|i| seen[i].start as i32),
            end: std::array::from_fn(|i| seen[i].end as i32),
            by_all: last_start..first_end,
            by_some: first..last,
        }
    }
}

/// Scales the scores of a block of 16 keys from key `first` on, makes those minus infinity that a query does not see,
/// and raises the maxima. `scores[key]` has a lane for each query.
#[inline(always)]
pub(crate) fn peaks<S: Isa>(
    s: S,
    scores: &mut [Row16],
    first: usize,
    seen: &Visible,
    scale: Option<f32>,
    max: &mut Row16,
) {
    let mut m = s.load(max);
    if seen.by_all.start <= first && first + LANES <= seen.by_all.end {
        match scale {
            Some(scale) => {
                for x in scores {
                    let v = s.load(x).mul(s.splat(scale));
                    m = m.max(v);
                    s.store(v, x);
                }
            }
            None => {
                for x in scores {
                    m = m.max(s.load(x));
                }
            }
        }
        return s.store(m, max);
    }
    let (start, end) = (s.load_int(&seen.start), s.load_int(&seen.end));
    let hidden = s.splat(f32::NEG_INFINITY);
    for (i, x) in scores.iter_mut().enumerate() {
        let mut v = s.load(x);
        if let Some(scale) = scale {
            v = v.mul(s.splat(scale));
        }
        let key = (first + i) as i32;
        // Minus infinity never is the maximum, and its exponential is +0.
        v = v.if_int_lt(start, start.splat(key + 1), hidden);
        v = v.if_int_lt(start.splat(key), end, hidden);
        m = m.max(v);
        s.store(v, x);
    }
    s.store(m, max);
}

/// Exponentials of scores for 16 queries, and their sums: key `i` goes to accumulator `i` modulo 16, as the contract
/// says, so the first score belongs to a multiple of 16.
#[inline(always)]
pub(crate) fn exponentials<S: Isa>(
    s: S,
    scores: &[Row16],
    max: &Row16,
    sums: &mut [Row16; LANES],
    out: &mut [Row16],
) {
    let ((blocks, rest), (out, _)) = (scores.as_chunks::<LANES>(), out.as_chunks_mut::<LANES>());
    assert!(rest.is_empty() && blocks.len() == out.len(), "whole blocks of keys");
    // There is one zero, +0.
    let m = s.load(max).add(s.splat(0.0));
    for (block, out) in blocks.iter().zip(out) {
        for i in 0..LANES {
            let e = math::exp(s.load(&block[i]).sub(m));
            s.store(s.load(&sums[i]).add(e), &mut sums[i]);
            s.store(e, &mut out[i]);
        }
    }
}

/// Reciprocals of the totals of [`exponentials`].
#[inline(always)]
pub(crate) fn inverses<S: Isa>(s: S, sums: &[Row16; LANES], out: &mut Row16) {
    let mut acc = [s.splat(0.0); LANES];
    for i in 0..LANES {
        acc[i] = s.load(&sums[i]);
    }
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            acc[i] = acc[i].add(acc[i + half]);
        }
        half /= 2;
    }
    s.store(math::recip(acc[0]), out);
}
