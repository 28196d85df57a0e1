//! Root-mean-square norm of one group.
//!
//! 1. Sum of squares in the order of the contract: lane `i mod 16`, then the tree.
//! 2. `r = rsqrt(sum * (1/n) + eps)`.
//! 3. `out = flush((x * r) * weight)`.

use crate::cpu::vector::{Isa, LANES};
use crate::math::{self, Lanes};

/// Norm of one group; `weight` has the group's length.
#[inline(always)]
pub(crate) fn rms_norm<S: Isa>(
    s: S,
    x: &[f32],
    weight: Option<&[f32]>,
    eps: f32,
    inverse_n: f32,
    out: &mut [f32],
) {
    assert!(x.len() == out.len() && weight.is_none_or(|w| w.len() == x.len()), "arguments of one length");
    let (whole, tail) = x.as_chunks::<LANES>();
    let mut acc = s.splat(0.0);
    for x in whole {
        let x = s.load(x);
        acc = acc.add(x.mul(x));
    }
    let last = s.load_part(tail, 0.0);
    acc = acc.add(last.mul(last));
    let mean = s.sum(acc) * inverse_n;
    let r = s.splat(math::rsqrt(mean + eps));

    let (out, out_tail) = out.as_chunks_mut::<LANES>();
    match weight {
        Some(w) => {
            let (w, w_tail) = w.as_chunks::<LANES>();
            for ((x, w), out) in whole.iter().zip(w).zip(out) {
                s.store(math::flush(s.load(x).mul(r).mul(s.load(w))), out);
            }
            s.store_part(math::flush(last.mul(r).mul(s.load_part(w_tail, 0.0))), out_tail);
        }
        None => {
            for (x, out) in whole.iter().zip(out) {
                s.store(math::flush(s.load(x).mul(r)), out);
            }
            s.store_part(math::flush(last.mul(r)), out_tail);
        }
    }
}
