//! The exponential.

use super::lanes::{IntLanes, Lanes, horner};

/// Smallest argument with a result other than 0: the smallest f32 not below -50 ln 2, so that results are 0
/// or at least 2^-50 (see [`flush`](mod@super::flush)).
pub const EXP_MIN: f32 = f32::from_bits(0xC20A_A122);
/// Largest argument with a finite result: the largest f32 below 128 ln 2.
pub const EXP_MAX: f32 = f32::from_bits(0x42B1_7217);
/// 1 / ln 2.
pub(crate) const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts (Cody and Waite). The high part is 355/512: nine bits, so that its product with an
/// exponent of at most eight bits is exact. The low part is ln 2 - 355/512 in f32.
pub(crate) const LN2_HI: f32 = 355.0 / 512.0;
pub(crate) const LN2_LO: f32 = -2.121_944_4e-4;
/// `(e^r - 1 - r) / r^2` on |r| <= ln 2 / 2, highest power first: the polynomial of Cephes `expf` (Moshier).
pub(crate) const EXP_POLY: [f32; 6] =
    [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 0.5];

/// e^x. Error at most 1 ulp (`docs/numerics.md` has the measurements).
///
/// 1. `n = floor(x * log2(e) + 0.5)`, `r = (x - n * hi) - n * lo` with ln 2 = hi + lo.
/// 2. `p = 1 + (r + r^2 * P(r))`.
/// 3. `n` is added to the exponent field of `p`.
///
/// Below [`EXP_MIN`] the result is +0, above [`EXP_MAX`] it is infinity, of NaN it is NaN.
#[inline(always)]
pub fn exp<V: Lanes>(x: V) -> V {
    // Clamped first, so that the conversion to an integer is one on which all hardware agrees.
    let (lo, hi) = (x.splat(EXP_MIN), x.splat(EXP_MAX));
    let t = x.select_lt(hi, x, hi);
    let t = lo.select_lt(t, t, lo);
    let n = t.mul(x.splat(LOG2_E)).add(x.splat(0.5)).floor();
    let r = t.sub(n.mul(x.splat(LN2_HI))).sub(n.mul(x.splat(LN2_LO)));
    let q = horner(r, EXP_POLY).mul(r.mul(r));
    let p = r.add(q).add(x.splat(1.0));
    let y = V::from_bits(p.to_bits().add(n.to_int().shl::<23>()));
    let y = x.select_lt(lo, x.splat(0.0), y);
    let y = hi.select_lt(x, x.splat(f32::INFINITY), y);
    // What is not below infinity is infinity or NaN, and its own result.
    x.select_lt(x.splat(f32::INFINITY), y, x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::ulp::{Report, grid};

    fn check(inputs: impl Iterator<Item = u32>) -> Report {
        let mut report = Report::default();
        for x in inputs.map(f32::from_bits) {
            let y = exp(x);
            if x.is_nan() {
                assert!(y.is_nan());
            } else if x < EXP_MIN {
                assert_eq!(y.to_bits(), 0, "exp({x:e})");
            } else if x > EXP_MAX {
                assert_eq!(y, f32::INFINITY, "exp({x:e})");
            } else {
                assert!(y >= 2f32.powi(-50) && y.is_finite(), "exp({x:e}) = {y:e}");
                report.add(x, y, f64::from(x).exp());
            }
        }
        report
    }

    #[test]
    fn dense_grid() {
        check(grid()).at_most("exp", 1.0);
    }

    #[test]
    #[ignore = "all 2^32 inputs; run in release"]
    fn exhaustive() {
        check(0..=u32::MAX).at_most("exp", 1.0);
    }

    #[test]
    fn edges() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
        assert!(
            f64::from(EXP_MIN) >= -50.0 * 2f64.ln() && f64::from(EXP_MIN.next_down()) < -50.0 * 2f64.ln()
        );
        assert!(f64::from(EXP_MAX) < 128.0 * 2f64.ln() && f64::from(EXP_MAX.next_up()) > 128.0 * 2f64.ln());
        assert!(exp(EXP_MIN) >= 2f32.powi(-50));
    }
}
