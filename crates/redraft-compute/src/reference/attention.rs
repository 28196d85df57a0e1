//! Attention and its cache.

use super::arithmetic::Arithmetic;
use crate::ComputeError;
use crate::host::{HostReal, OpCx};
use crate::math::reduce::{self, Sum};
use crate::op::{Attention, KvAppend};

/// For each row and query head, over the visible keys `j`, which are counted from the start of the sequence:
///
/// 1. `s[j] = sum_i q[i] * k[j][i]`, `i` ascending from +0; times `scale` unless that is 1.
/// 2. `m = max s[j]`, `e[j] = exp(s[j] - m)`.
/// 3. `z` = sum of `e[j]`, key `j` in accumulator `j mod 16`.
/// 4. `out[i] = (sum_j e[j] * v[j][i]) * recip(z)`, `j` ascending from +0.
///
/// In bf16 this is the eager attention of transformers: scores and weights are rounded, and the weights are
/// divided by their sum before they meet the values.
pub(super) fn attention<A: Arithmetic>(o: &Attention, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let (rows, d) = (o.q.rows(), o.head_dim);
    let (width, kv_width) = (o.n_heads * d, o.n_kv_heads * d);
    let cache = cx.cache(o.cache_layer);
    let (q, k_new, v_new) = (cx.real(o.q), cx.real(o.k), cx.real(o.v));
    let (k_old, v_old) = cache.map_or((&[][..], &[][..]), |c| (&c.k[..], &c.v[..]));
    let scale = A::scalar(o.scale);
    let (mut e, mut acc) = (Vec::new(), vec![A::R::default(); d]);
    for row in 0..rows {
        let keys = o.mask.visible(o.n_past, rows, row);
        for head in 0..o.n_heads {
            let kv_head = head / (o.n_heads / o.n_kv_heads);
            let key = |j: usize| head_of(k_old, k_new, o.n_past, j, kv_width, kv_head, d);
            let value = |j: usize| head_of(v_old, v_new, o.n_past, j, kv_width, kv_head, d);
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
    cx.put_real(o.out, out);
    Ok(())
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
    cx.append(o.layer, o.k, o.v);
    Ok(())
}
