//! Rotary position embedding.

use super::arithmetic::Arithmetic;
use crate::ComputeError;
use crate::host::OpCx;
use crate::op::{Rope, RopeStyle};

/// For pair `i` of each head, with `(a, b)` its two channels and `(c, s)` cosine and sine of its angle:
/// `(a * c - b * s, b * c + a * s)`. Channels from `n_rot` on are copied.
pub(super) fn rope<A: Arithmetic>(o: &Rope, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let (x, table) = (cx.real(o.x), cx.real(o.table));
    let half = o.n_rot / 2;
    let heads = o.x.cols() / o.head_dim;
    for (h, (x, out)) in x.chunks_exact(o.head_dim).zip(out.chunks_exact_mut(o.head_dim)).enumerate() {
        let table = &table[h / heads * o.n_rot..][..o.n_rot]; // the row of this head's position
        out.copy_from_slice(x);
        for i in 0..half {
            let (ia, ib) = match o.style {
                RopeStyle::Neox => (i, i + half),
                RopeStyle::Interleaved => (2 * i, 2 * i + 1),
            };
            let (c, s) = (A::round(table[i]), A::round(table[half + i]));
            let product = |x: A::R, y: A::R| A::round(x * y);
            out[ia] = A::store(product(x[ia], c) - product(x[ib], s));
            out[ib] = A::store(product(x[ib], c) + product(x[ia], s));
        }
    }
    cx.put_real(o.out, out);
    Ok(())
}
