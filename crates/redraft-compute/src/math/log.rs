//! The natural logarithm.

use super::exp::{LN2_HI, LN2_LO};
use super::lanes::{IntLanes, Lanes, horner};

/// Bits of sqrt(1/2): the mantissa is brought into [sqrt(1/2), sqrt(2)), so that the exponent is 0 near 1.
const SQRT_HALF: i32 = 0x3F35_04F3;
/// Bits of 1.
const ONE: i32 = 0x3F80_0000;
/// `(ln(1 + f) - f + f^2 / 2) / f^3` on [sqrt(1/2) - 1, sqrt(2) - 1), highest power first: the polynomial of
/// Cephes `logf` (Moshier).
const LOG_POLY: [f32; 9] = [
    7.037_683_6e-2,
    -1.151_461e-1,
    1.167_699_84e-1,
    -1.242_014_1e-1,
    1.424_932_3e-1,
    -1.666_805_7e-1,
    2.000_071_4e-1,
    -2.499_999_4e-1,
    3.333_333e-1,
];

/// ln x for positive normal x. Error at most 1 ulp.
///
/// 1. `x = 2^e * (1 + f)` by integer operations.
/// 2. `y = f^3 * P(f)`, then the small terms first: `y + e * lo`, `- f^2 / 2`, `f +`, `+ e * hi`.
///
/// Below the smallest normal number, and of NaN, the result is NaN; of infinity it is infinity.
#[inline(always)]
pub fn log<V: Lanes>(x: V) -> V {
    let bits = x.to_bits();
    let t = bits.add(bits.splat(ONE - SQRT_HALF));
    let e = V::from_int(t.shr::<23>().sub(bits.splat(127)));
    let m = t.and(bits.splat(0x007F_FFFF)).add(bits.splat(SQRT_HALF));
    let f = V::from_bits(m).sub(x.splat(1.0));
    let z = f.mul(f);
    let y = horner(f, LOG_POLY).mul(f.mul(z));
    let y = y.add(e.mul(x.splat(LN2_LO))).sub(z.mul(x.splat(0.5)));
    let y = f.add(y).add(e.mul(x.splat(LN2_HI)));
    let y = x.select_lt(x.splat(f32::MIN_POSITIVE), x.splat(f32::NAN), y);
    x.select_lt(x.splat(f32::INFINITY), y, x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::ulp::{Report, grid};

    const BOUND: f64 = 1.0;

    fn check(inputs: impl Iterator<Item = u32>) -> Report {
        let mut report = Report::default();
        for x in inputs.map(f32::from_bits) {
            if x.is_finite() && x >= f32::MIN_POSITIVE {
                report.add(x, log(x), f64::from(x).ln());
            } else if x == f32::INFINITY {
                assert_eq!(log(x), x);
            } else {
                assert!(log(x).is_nan(), "log({x:e})");
            }
        }
        report
    }

    #[test]
    fn dense_grid() {
        check(grid()).at_most("log", BOUND);
    }

    #[test]
    #[ignore = "all 2^32 inputs; run in release"]
    fn exhaustive() {
        check(0..=u32::MAX).at_most("log", BOUND);
    }

    #[test]
    fn of_one_is_zero() {
        assert_eq!(log(1.0f32).to_bits(), 0);
    }
}
