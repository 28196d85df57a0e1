//! Root-mean-square norm.

use super::arithmetic::Arithmetic;
use super::matmul::vector;
use crate::ComputeError;
use crate::host::OpCx;
use crate::math::reduce;
use crate::op::RmsNorm;

/// Over each group of `n` columns: `s` = sum of squares (16 accumulators), `m = s * (1 / n)`,
/// `r = rsqrt(m + eps)`, `out = (x * r) * weight`.
///
/// In bf16 this is the norm of Gemma in transformers: all of it in float32, rounded once at the end. (Other
/// families round before the weight; the difference is one rounding.)
pub(super) fn rms_norm<A: Arithmetic>(o: &RmsNorm, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let weight = o.weight.map(|w| vector::<A>(cx, w)).transpose()?;
    let mut out = cx.take_real(o.out);
    let inverse = A::scalar(1.0 / o.group as f64);
    let eps = A::R::from(o.eps);
    for (x, out) in cx.real(o.x).chunks_exact(o.group).zip(out.chunks_exact_mut(o.group)) {
        let mean = reduce::sum_of_squares(x) * inverse;
        let r = A::rsqrt(mean + eps);
        for (i, (out, &x)) in out.iter_mut().zip(x).enumerate() {
            let y = x * r;
            *out = A::store(weight.as_ref().map_or(y, |w| y * w[i]));
        }
    }
    cx.put_real(o.out, out);
    Ok(())
}
