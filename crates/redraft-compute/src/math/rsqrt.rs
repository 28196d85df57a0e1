//! The reciprocal square root.

use super::lanes::{IntLanes, Lanes};

/// Integer from which half the bits of `x` are taken to get a first guess of `1 / sqrt(x)` that is 3.5 % off
/// at most (the constant of Quake III).
const SEED: i32 = 0x5F37_59DF;

/// 1 / sqrt(x) for positive normal x up to 2^126. Error at most 1.3 ulp.
///
/// The seed, three steps of Newton's `y = y * (1.5 - (h * y) * y)` with `h = 0.5 * x`, and one in the form
/// `y = y + y * (0.5 - (h * y) * y)`, which loses less to rounding. Of infinity and NaN it is not finite.
#[inline(always)]
pub fn rsqrt<V: Lanes>(x: V) -> V {
    let bits = x.to_bits();
    let mut y = V::from_bits(bits.splat(SEED).sub(bits.shr::<1>()));
    let half = x.mul(x.splat(0.5));
    let c = x.splat(1.5);
    for _ in 0..3 {
        y = y.mul(c.sub(half.mul(y).mul(y)));
    }
    y.add(y.mul(x.splat(0.5).sub(half.mul(y).mul(y))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::ulp::{Report, grid};

    const BOUND: f64 = 1.3;

    fn check(inputs: impl Iterator<Item = u32>) -> Report {
        let mut report = Report::default();
        let range = 2.0 * f32::MIN_POSITIVE..=2f32.powi(126);
        for x in inputs.map(f32::from_bits).filter(|x| range.contains(x)) {
            report.add(x, rsqrt(x), f64::from(x).sqrt().recip());
        }
        report
    }

    #[test]
    fn dense_grid() {
        check(grid()).at_most("rsqrt", BOUND);
    }

    #[test]
    #[ignore = "all 2^32 inputs; run in release"]
    fn exhaustive() {
        check(0..=u32::MAX).at_most("rsqrt", BOUND);
    }

    #[test]
    fn edges() {
        for e in -62..=62 {
            assert_eq!(rsqrt(4f32.powi(e)), 2f32.powi(-e));
        }
        for x in [f32::INFINITY, f32::NAN] {
            assert!(!rsqrt(x).is_finite(), "rsqrt({x})");
        }
    }
}
