//! Soft-max.

use super::arithmetic::Arithmetic;
use crate::math::reduce;

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
