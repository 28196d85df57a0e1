//! The inner loop of products in f32: with weights that are not quantized or in `exact`, q·k and P·V.
//!
//! 1. Sums of `M` tokens x 16 columns are loaded into registers.
//! 2. For each `k`, ascending: one row of the panel (16 weights), and for each token one activation in all
//!    lanes; `sum = sum + w * x`, the product rounded before the addition. Where all products are exact that rounding
//!    changes nothing, and the two may be one instruction.
//! 3. The sums are stored.
//!
//! Each sum is sequential in `k`, whatever `M` is and wherever the caller cuts `k` into chunks, because a sum
//! goes through memory unrounded.
//!
//! ```text
//! panel [k][16]                  x, packed [k][M]           sums [M][16]
//! k=0: w(c0) w(c1) … w(c15)      k=0: x(t0) … x(tM-1)       t0: s(c0) … s(c15)
//! k=1: …                         k=1: …                     t1: …
//! ```

use crate::cpu::vector::{Isa, LANES, Row16};
use crate::math::Lanes;

/// Adds `panel` times `x` to `sums`; the number of tokens is the length of `sums`, one of `Isa::GROUPS`.
#[inline(always)]
pub(crate) fn gemm<S: Isa>(s: S, panel: &[Row16], x: &[f32], sums: &mut [Row16]) {
    groups::<S, false>(s, panel, x, sums);
}

/// As [`gemm`], for factors whose products are exact: a fused multiply-add gives the same bits.
#[inline(always)]
pub(crate) fn gemm_half<S: Isa>(s: S, panel: &[Row16], x: &[f32], sums: &mut [Row16]) {
    groups::<S, true>(s, panel, x, sums);
}

#[inline(always)]
fn groups<S: Isa, const EXACT: bool>(s: S, panel: &[Row16], x: &[f32], sums: &mut [Row16]) {
    match sums.len() {
        1 => tokens::<S, EXACT, 1>(s, panel, x, sums),
        2 => tokens::<S, EXACT, 2>(s, panel, x, sums),
        4 if S::GROUPS[0] >= 4 => tokens::<S, EXACT, 4>(s, panel, x, sums),
        6 if S::GROUPS.contains(&6) => tokens::<S, EXACT, 6>(s, panel, x, sums),
        8 if S::GROUPS[0] >= 8 => tokens::<S, EXACT, 8>(s, panel, x, sums),
        12 if S::GROUPS[0] >= 12 => tokens::<S, EXACT, 12>(s, panel, x, sums),
        16 if S::GROUPS[0] >= 16 => tokens::<S, EXACT, 16>(s, panel, x, sums),
        24 if S::GROUPS[0] >= 24 => tokens::<S, EXACT, 24>(s, panel, x, sums),
        n => unreachable!("no kernel for a group of {n} tokens"),
    }
}

/// `EXACT`: all products are.
#[inline(always)]
fn tokens<S: Isa, const EXACT: bool, const M: usize>(s: S, panel: &[Row16], x: &[f32], sums: &mut [Row16]) {
    let (x, rest) = x.as_chunks::<M>();
    assert!(rest.is_empty() && x.len() == panel.len() && sums.len() == M, "panel, activations and sums fit");
    let mut acc = [s.splat(0.0); M];
    for m in 0..M {
        acc[m] = s.load(&sums[m]);
    }
    for (w, x) in panel.iter().zip(x) {
        let w = s.load(w);
        for m in 0..M {
            let x = s.splat(x[m]);
            // With few sums the time is that of one addition after the other; a fused one takes longer.
            let fused = EXACT && M > 4;
            acc[m] = if fused { s.add_exact(acc[m], x, w) } else { acc[m].add(x.mul(w)) };
        }
    }
    for m in 0..M {
        s.store(acc[m], &mut sums[m]);
    }
}

/// Adds products to a square of sums: `sums[i] = sums[i] + panel[k] * x[k][i]`, sequential over `k`. Attention's
/// kernel: queries, keys and values all lie in panels `[k][16]`, so either factor can be the one that is spread.
#[inline(always)]
pub(crate) fn square<S: Isa>(s: S, panel: &[Row16], x: &[Row16], sums: &mut [Row16]) {
    if S::GROUPS.contains(&16) {
        columns::<S, 0, 16>(s, panel, x, sums);
    } else if S::GROUPS.contains(&6) {
        columns::<S, 0, 6>(s, panel, x, sums);
        columns::<S, 6, 6>(s, panel, x, sums);
        columns::<S, 12, 4>(s, panel, x, sums);
    } else {
        columns::<S, 0, 2>(s, panel, x, sums);
        columns::<S, 2, 2>(s, panel, x, sums);
        columns::<S, 4, 2>(s, panel, x, sums);
        columns::<S, 6, 2>(s, panel, x, sums);
        columns::<S, 8, 2>(s, panel, x, sums);
        columns::<S, 10, 2>(s, panel, x, sums);
        columns::<S, 12, 2>(s, panel, x, sums);
        columns::<S, 14, 2>(s, panel, x, sums);
    }
}

/// Columns `AT .. AT + M` of `x`.
#[inline(always)]
fn columns<S: Isa, const AT: usize, const M: usize>(s: S, panel: &[Row16], x: &[Row16], sums: &mut [Row16]) {
    assert!(x.len() == panel.len() && sums.len() == LANES, "panels and sums fit");
    let mut acc = [s.splat(0.0); M];
    for m in 0..M {
        acc[m] = s.load(&sums[AT + m]);
    }
    for (w, x) in panel.iter().zip(x) {
        let w = s.load(w);
        for m in 0..M {
            acc[m] = acc[m].add(s.splat(x[AT + m]).mul(w));
        }
    }
    for m in 0..M {
        s.store(acc[m], &mut sums[AT + m]);
    }
}
