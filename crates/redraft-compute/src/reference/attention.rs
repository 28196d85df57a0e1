//! Attention and its cache.

use std::ops::Range;

use super::arithmetic::Arithmetic;
use crate::cache::{Cache as _, Rows};
use crate::host::{HostReal, OpCx, flash};
use crate::math::reduce::{self, Sum};
use crate::op::{Attention, KvAppend, Segment};
use crate::{ComputeError, KvType};

/// For each row and query head, over the visible keys `j`, which are counted from the start of the row's sequence:
///
/// 1. `s[j] = sum_i q[i] * k[j][i]`, `i` ascending from +0; times `scale` unless that is 1.
/// 2. `m = max s[j]`, `e[j] = exp(s[j] - m)`.
/// 3. `z` = sum of `e[j]`, key `j` in accumulator `j mod 16`.
/// 4. `out[i] = (sum_j e[j] * v[j][i]) * recip(z)`, `j` ascending from +0.
///
/// Keys and values of a layer with a cache, cached or of this pass, are rounded to the type of the cache.
///
/// In bf16 this is the eager attention of transformers: scores and weights are rounded, and the weights are
/// divided by their sum before they meet the values.
pub(super) fn attention<A: Arithmetic>(o: &Attention, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    if let Some(flash) = o.flash {
        flash::attention(o, flash, cx);
        return Ok(());
    }
    let mut out = cx.take_real(o.out);
    let width = o.n_heads * o.head_dim;
    for (i, (segment, span)) in o.segments.spans().enumerate() {
        let out = &mut out[span.start * width..span.end * width];
        attend::<A>(o, i, segment, span, out, cx);
    }
    cx.put_real(o.out, out);
    Ok(())
}

/// Attention in sequence `i`, whose rows are `span`.
fn attend<A: Arithmetic>(
    o: &Attention,
    i: usize,
    segment: Segment,
    span: Range<usize>,
    out: &mut [A::R],
    cx: &mut OpCx<'_, A::R>,
) {
    let (Segment { n_past, rows }, d) = (segment, o.head_dim);
    let (width, kv_width) = (o.n_heads * d, o.n_kv_heads * d);
    let none = &mut Rows::new(kv_width, KvType::F32);
    let inputs = [o.q, o.k, o.v];
    let (cache, all) = match o.cache_layer {
        Some(layer) => cx.cache(i, layer, inputs),
        None => (none, inputs.map(|v| cx.real(v))),
    };
    let widths = [width, kv_width, kv_width];
    let [q, k_new, v_new]: [&[A::R]; 3] =
        std::array::from_fn(|i| &all[i][span.start * widths[i]..span.end * widths[i]]);
    let (k_old, v_old) = (&cache.k[..], &cache.v[..]);
    let [k_new, v_new] = [k_new, v_new].map(|x| cache.kv_type.rounded(x, kv_width));
    let scale = A::scalar(o.scale);
    let (mut e, mut acc) = (Vec::new(), vec![A::R::default(); d]);
    for row in 0..rows {
        let keys = o.mask.visible(segment, row);
        for head in 0..o.n_heads {
            let kv_head = head / (o.n_heads / o.n_kv_heads);
            let key = |j: usize| head_of(k_old, &k_new, n_past, j, kv_width, kv_head, d);
            let value = |j: usize| head_of(v_old, &v_new, n_past, j, kv_width, kv_head, d);
            let q = &q[row * width + head * d..][..d];

            e.clear(); // scores, then exponentials; e[0] belongs to key keys.start
            e.extend(keys.clone().map(|j| {
                let s = A::round(dot(q, key(j)));
                if o.scale == 1.0 { s } else { A::round(s * scale) }
            }));
            let m = reduce::max(e.iter().copied());
            let mut z = Sum::default();
            for (j, e) in keys.clone().zip(&mut e) {
                *e = A::exp(*e - m);
                z.add(j, *e);
            }
            let r = A::recip(z.total());
            if A::NORMALIZE_FIRST {
                e.iter_mut().for_each(|e| *e = A::round(*e * r));
            }
            acc.fill(A::R::default());
            for (j, &e) in keys.clone().zip(&e) {
                for (acc, &v) in acc.iter_mut().zip(value(j)) {
                    *acc = *acc + e * v;
                }
            }
            for (out, &acc) in out[row * width + head * d..][..d].iter_mut().zip(&acc) {
                *out = A::store(if A::NORMALIZE_FIRST { acc } else { acc * r });
            }
        }
    }
}

/// Head `head` of key or value `j`: from the cache below `n_past`, from this pass above.
fn head_of<'a, R>(
    old: &'a [R],
    new: &'a [R],
    n_past: usize,
    j: usize,
    width: usize,
    head: usize,
    d: usize,
) -> &'a [R] {
    let (x, j) = if j < n_past { (old, j) } else { (new, j - n_past) };
    &x[j * width + head * d..][..d]
}

/// `sum_i a[i] * b[i]`, `i` ascending from +0.
fn dot<R: super::arithmetic::Real>(a: &[R], b: &[R]) -> R {
    a.iter().zip(b).fold(R::default(), |acc, (&a, &b)| acc + a * b)
}

/// Appends keys and values of this pass to the cache.
pub(super) fn kv_append<R: HostReal>(o: &KvAppend, cx: &mut OpCx<'_, R>) -> Result<(), ComputeError> {
    for (i, (_, span)) in o.segments.spans().enumerate() {
        let (cache, [k, v]) = cx.cache(i, o.layer, [o.k, o.v]);
        let part = span.start * cache.width..span.end * cache.width;
        cache.append(&k[part.clone()], &v[part]);
    }
    Ok(())
}
