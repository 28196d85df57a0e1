//! Embeddings, of ids and of distributions.

use super::arithmetic::Arithmetic;
use super::logits::logits;
use super::matmul::Rows;
use crate::ComputeError;
use crate::backend::Precision;
use crate::host::OpCx;
use crate::op::{Embed, STATS, SoftEmbed, TILE};

/// `out[t] = table[ids[t]] * scale`.
pub(super) fn embed<A: Arithmetic>(o: &Embed, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let n = o.out.cols();
    let mut out = cx.take_real(o.out);
    let table = cx.weights.get(o.table)?;
    let mut rows = Rows::<A>::new(table);
    // PyTorch holds the scale in the model's type.
    let scale = A::round(A::scalar(o.scale));
    cx.check_ids("Embed", o.ids, table.rows)?;
    for (t, &id) in cx.int(o.ids).iter().enumerate() {
        for (out, &w) in out[t * n..][..n].iter_mut().zip(rows.get(0, id as usize)?) {
            *out = A::store(w * scale);
        }
    }
    cx.put_real(o.out, out);
    Ok(())
}

/// `out[t] = (sum_v p[t][v] * table[v]) * scale`, `v` ascending from +0 over the ids that take part, with
/// `p[t][v] = exp(x[v] - m) * recip(S)`, flushed. An id takes part if `p` is at least the cut, in its tile's maximum and
/// itself. `fast` rounds p and table to bf16 where the table is not one of f32.
pub(super) fn soft_embed<A: Arithmetic>(o: &SoftEmbed, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let x = logits::<A>(&o.of.logits, cx)?;
    let mut out = cx.take_real(o.out);
    let zero = A::R::default();
    out.fill(zero);
    let table = cx.weights.get(o.table)?;
    let (n, vocab) = (o.out.cols(), table.rows);
    let (stats, tiles) = (cx.real(o.of.stats), cx.real(o.of.tiles));
    let n_tiles = o.of.tiles.cols() / 2;
    // Other number types round off nothing.
    let cut = match A::PRECISION {
        Precision::F32 => A::R::from(o.of.logits.numerics.probability_cut(vocab)),
        Precision::F64 | Precision::Bf16 => zero,
    };
    let half = o.of.logits.numerics.changes(table.dtype);
    let factor = |x| if half { A::soft_factor(x) } else { x };
    let mut rows = Rows::<A>::new(table);
    for v in 0..vocab {
        let row = rows.get(0, v)?;
        for (t, out) in out.chunks_exact_mut(n.max(1)).enumerate() {
            let (max, r) = (stats[t * STATS], A::recip(stats[t * STATS + 3]));
            // PyTorch rounds the probabilities, since they meet bfloat16 weights.
            let p = |x: A::R| A::store(A::exp(x - max) * r);
            let (tile, p) = (p(tiles[t * 2 * n_tiles + v / TILE]), p(x[t * vocab + v]));
            if tile < cut || p < cut || p == zero {
                continue;
            }
            let p = factor(p);
            for (out, &w) in out.iter_mut().zip(row) {
                *out = *out + p * factor(w);
            }
        }
    }
    let scale = A::round(A::scalar(o.scale));
    for x in &mut out {
        *x = A::store(A::round(*x) * scale);
    }
    cx.put_real(o.out, out);
    Ok(())
}
