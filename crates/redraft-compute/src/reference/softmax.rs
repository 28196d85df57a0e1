//! Soft-max.

use super::arithmetic::Arithmetic;
use crate::ComputeError;
use crate::host::OpCx;
use crate::math::reduce;
use crate::op::Softmax;

/// Soft-max of one row: `m = max x`, `e[i] = exp(x[i] - m)`, `z` = sum of `e` (16 accumulators),
/// `e[i] * recip(z)`.
pub(super) fn probabilities<A: Arithmetic>(x: &[A::R], out: &mut [A::R]) {
    let m = reduce::max(x.iter().copied());
    for (out, &x) in out.iter_mut().zip(x) {
        *out = A::exp(x - m);
    }
    let r = A::recip(reduce::sum(out));
    for out in out {
        *out = *out * r;
    }
}

/// Soft-max over each row. In bf16 the probabilities are rounded, since they meet bfloat16 weights next.
pub(super) fn softmax<A: Arithmetic>(o: &Softmax, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let n = o.x.cols().max(1);
    for (x, out) in cx.real(o.x).chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        probabilities::<A>(x, out);
        out.iter_mut().for_each(|p| *p = A::store(*p));
    }
    cx.put_real(o.out, out);
    Ok(())
}
