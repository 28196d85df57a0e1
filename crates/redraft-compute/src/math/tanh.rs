//! The hyperbolic tangent.

use super::exp::exp;
use super::flush::flush;
use super::lanes::{IntLanes, Lanes, horner};
use super::recip::recip;

/// From here on the formula with the exponential is accurate; below it a polynomial is.
const SMALL: f32 = 0.625;
/// Larger arguments give 1 (from 9.02 on), and their exponential stays in the range of `recip`.
const LARGE: f32 = 10.0;
/// `(tanh(x) - x) / x^3` as a polynomial in x^2 on |x| < 0.625, highest power first: Cephes `tanhf` (Moshier).
const TANH_POLY: [f32; 5] = [-5.704_988_7e-3, 2.063_908_8e-2, -5.373_971_5e-2, 1.333_144_2e-1, -3.333_328e-1];

/// tanh x for all x. Error at most 1.6 ulp: 1.5863 over all inputs, at 0.668.
///
/// Where from: just above 0.625 the result is near 0.55 and one ulp of it is 2^-24. The last subtraction adds
/// 0.5 ulp, the 1.25 ulp of `recip` make 0.63, and the errors of `exp` (0.99) and of `+ 1` (0.5) in a
/// denominator of 4.5 make up to 0.79: 1.9 at worst, if all came together.
///
/// `|x| < 2^-50` gives +0. Below 0.625: `x + x * (x^2 * P(x^2))`. Else `1 - 2 * recip(exp(2 |x|) + 1)` with
/// the sign of x.
#[inline(always)]
pub fn tanh<V: Lanes>(x: V) -> V {
    let x = flush(x);
    let bits = x.to_bits();
    let sign = bits.and(bits.splat(i32::MIN));
    let a = V::from_bits(bits.and(bits.splat(i32::MAX)));
    let z = x.mul(x);
    let small = x.add(x.mul(z.mul(horner(z, TANH_POLY))));
    // A NaN is not above LARGE and goes through.
    let large = x.splat(LARGE);
    let c = large.select_lt(a, large, a);
    let r = recip(exp(c.add(c)).add(x.splat(1.0)));
    let large = x.splat(1.0).sub(r.add(r));
    let large = V::from_bits(large.to_bits().or(sign));
    a.select_lt(x.splat(SMALL), small, large)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::ulp::{Report, grid};

    const BOUND: f64 = 1.6;

    fn check(inputs: impl Iterator<Item = u32>) -> Report {
        let mut report = Report::default();
        for x in inputs.map(f32::from_bits) {
            if x.is_nan() {
                assert!(tanh(x).is_nan());
            } else if x.abs() < 2f32.powi(-50) {
                assert_eq!(tanh(x).to_bits(), 0, "tanh({x:e})");
            } else {
                assert!(tanh(x).abs() <= 1.0, "tanh({x:e})");
                report.add(x, tanh(x), f64::from(x).tanh());
            }
        }
        report
    }

    #[test]
    fn dense_grid() {
        check(grid()).at_most("tanh", BOUND);
    }

    #[test]
    #[ignore = "all 2^32 inputs; run in release"]
    fn exhaustive() {
        check(0..=u32::MAX).at_most("tanh", BOUND);
    }

    #[test]
    fn is_odd_and_saturates() {
        for x in [0.1f32, 0.624, 0.626, 3.0, 9.5, 1e30, f32::INFINITY] {
            assert_eq!(tanh(-x), -tanh(x));
        }
        assert_eq!(tanh(f32::INFINITY), 1.0);
        assert_eq!(tanh(9.1f32), 1.0);
    }
}
