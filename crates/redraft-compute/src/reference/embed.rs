//! Embeddings, of ids and of distributions.

use super::arithmetic::Arithmetic;
use super::matmul::Rows;
use crate::ComputeError;
use crate::host::OpCx;
use crate::op::{Embed, SoftEmbed};

/// `out[t] = table[ids[t]] * scale`.
pub(super) fn embed<A: Arithmetic>(o: &Embed, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let n = o.out.cols();
    let mut out = cx.take_real(o.out);
    let table = cx.weights.get(o.table)?;
    let mut rows = Rows::<A>::new(table);
    // PyTorch holds the scale in the model's type.
    let scale = A::round(A::scalar(o.scale));
    for (t, &id) in cx.int(o.ids).iter().enumerate() {
        let row = usize::try_from(id).ok().filter(|&i| i < table.rows).ok_or(ComputeError::IdOutOfRange {
            op: "Embed",
            id: i64::from(id),
            row: t,
            limit: table.rows,
        })?;
        for (out, &w) in out[t * n..][..n].iter_mut().zip(rows.get(0, row)?) {
            *out = A::store(w * scale);
        }
    }
    cx.put_real(o.out, out);
    Ok(())
}

/// `out[t] = (sum_v probs[t][v] * table[v]) * scale`, `v` ascending from +0. Ids of probability zero
/// are left out; adding their products would change nothing but for a row that is not finite.
pub(super) fn soft_embed<A: Arithmetic>(o: &SoftEmbed, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let n = o.out.cols();
    let vocab = o.probs.cols();
    let mut out = cx.take_real(o.out); // zeros
    let probs = cx.real(o.probs);
    let mut rows = Rows::<A>::new(cx.weights.get(o.table)?);
    for v in 0..vocab {
        let row = rows.get(0, v)?;
        for (t, out) in out.chunks_exact_mut(n.max(1)).enumerate() {
            let p = probs[t * vocab + v];
            if p == A::R::default() {
                continue;
            }
            for (out, &w) in out.iter_mut().zip(row) {
                *out = *out + p * w;
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
