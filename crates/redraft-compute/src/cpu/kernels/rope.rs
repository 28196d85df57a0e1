//! Rotary position embedding of one row.
//!
//! 1. For each pair of channels `(a, b)` with angle `(c, s)`: `a' = a c - b s`, `b' = a s + b c`, every
//!    operation rounded once, results flushed.
//! 2. Channels from `n_rot` on are copied.
//!
//! The pairs `(i, i + n_rot / 2)` are 16 at a time; interleaved pairs go one by one.

use crate::cpu::vector::{Isa, LANES};
use crate::math::{self, Lanes};
use crate::op::RopeStyle;

/// One pair; numbers or vectors.
#[inline(always)]
fn rotate<V: Lanes>(a: V, b: V, cos: V, sin: V) -> (V, V) {
    let x = a.mul(cos).sub(b.mul(sin));
    let y = a.mul(sin).add(b.mul(cos));
    (math::flush(x), math::flush(y))
}

/// All heads of one row; `table` holds the cosines, then the sines.
#[inline(always)]
pub(crate) fn rope<S: Isa>(
    s: S,
    x: &[f32],
    table: &[f32],
    head_dim: usize,
    style: RopeStyle,
    out: &mut [f32],
) {
    let n_rot = table.len();
    let half = n_rot / 2;
    let (cos, sin) = table.split_at(half);
    for (x, out) in x.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)) {
        out[n_rot..].copy_from_slice(&x[n_rot..]);
        match style {
            RopeStyle::Neox => {
                let (a, b) = x[..n_rot].split_at(half);
                let (ya, yb) = out[..n_rot].split_at_mut(half);
                let mut i = 0;
                while i + LANES <= half {
                    let at = i..i + LANES;
                    let (a, b) = (s.load_part(&a[at.clone()], 0.0), s.load_part(&b[at.clone()], 0.0));
                    let (c, d) = (s.load_part(&cos[at.clone()], 0.0), s.load_part(&sin[at.clone()], 0.0));
                    let (y, z) = rotate(a, b, c, d);
                    s.store_part(y, &mut ya[at.clone()]);
                    s.store_part(z, &mut yb[at]);
                    i += LANES;
                }
                for i in i..half {
                    (ya[i], yb[i]) = rotate(a[i], b[i], cos[i], sin[i]);
                }
            }
            RopeStyle::Interleaved => {
                for i in 0..half {
                    let (a, b) = (x[2 * i], x[2 * i + 1]);
                    (out[2 * i], out[2 * i + 1]) = rotate(a, b, cos[i], sin[i]);
                }
            }
        }
    }
}
