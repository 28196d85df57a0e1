//! The logits of a row, wherever they come from.

use super::arithmetic::Arithmetic;
use super::matmul::product;
use crate::ComputeError;
use crate::host::OpCx;
use crate::op::Logits;

/// Processed logits `[T, V]`: raw logits times the scale.
///
/// The raw logits are given, or those of the head: `y = x · wᵀ` as MatMul computes it, then Softcap where there is a
/// cap. A product that is not finite makes its logit NaN, so that a cap cannot hide it.
pub(super) fn logits<A: Arithmetic>(o: &Logits, cx: &OpCx<'_, A::R>) -> Result<Vec<A::R>, ComputeError> {
    let by = A::scalar(o.scale);
    let Some(head) = o.head else {
        return Ok(cx.real(o.x).iter().map(|&x| A::keep(x * by)).collect());
    };
    let mut y = product::<A>(cx.weights.get(head.w)?, o.numerics, cx.real(o.x), o.x.rows())?;
    let cap = head.softcap.map(|cap| (A::scalar(cap), A::scalar(1.0 / cap)));
    for y in &mut y {
        let mut raw = A::store(*y);
        if let Some((cap, inverse)) = cap {
            raw = A::keep(cap * A::tanh(raw * inverse));
        }
        *y = A::keep((raw + *y * A::R::default()) * by);
    }
    Ok(y)
}
