//! The reciprocal.

use super::lanes::{IntLanes, Lanes};

/// Integer from which the bits of `x` are taken to get a first guess of `1 / x` that is 12 % off at most.
const SEED: i32 = 0x7EF3_11C7;

/// 1 / x for positive x from 2^-100 to 2^100. Error at most 1.3 ulp.
///
/// The seed, three steps of Newton's `y = y * (2 - x * y)`, each of which squares the error, and one in the
/// form `y = y + y * (1 - x * y)`, which is exact where the plain form stops one ulp short (powers of two).
/// Of 0, of infinity and of NaN it is not finite; elsewhere outside the range nothing is promised.
#[inline(always)]
pub fn recip<V: Lanes>(x: V) -> V {
    let bits = x.to_bits();
    let mut y = V::from_bits(bits.splat(SEED).sub(bits));
    let two = x.splat(2.0);
    for _ in 0..3 {
        y = y.mul(two.sub(x.mul(y)));
    }
    y.add(y.mul(x.splat(1.0).sub(x.mul(y))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::ulp::{Report, grid};

    const BOUND: f64 = 1.3;

    fn check(inputs: impl Iterator<Item = u32>) -> Report {
        let mut report = Report::default();
        let range = 2f32.powi(-100)..=2f32.powi(100);
        for x in inputs.map(f32::from_bits).filter(|x| range.contains(x)) {
            report.add(x, recip(x), f64::from(x).recip());
        }
        report
    }

    #[test]
    fn dense_grid() {
        check(grid()).at_most("recip", BOUND);
    }

    #[test]
    #[ignore = "all 2^32 inputs; run in release"]
    fn exhaustive() {
        check(0..=u32::MAX).at_most("recip", BOUND);
    }

    #[test]
    fn powers_of_two_are_exact_and_nothing_finite_is_made_up() {
        for e in -100..=100 {
            assert_eq!(recip(2f32.powi(e)), 2f32.powi(-e));
        }
        for x in [0.0, f32::INFINITY, f32::NAN] {
            assert!(!recip(x).is_finite(), "recip({x})");
        }
    }
}
