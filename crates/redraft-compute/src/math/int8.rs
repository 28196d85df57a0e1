//! Activations as 8-bit integers: one scale for a run of numbers, codes from -127 to 127.

use super::flush::flush;
use super::lanes::{IntLanes, Lanes};
use super::recip::recip;

/// 1 / 127, rounded once.
const PER_CODE: f32 = 1.0 / 127.0;

/// Scales above it would leave the range of [`recip`].
const MAX_SCALE: f32 = f32::from_bits((127 + 100) << 23);

/// 1.5 * 2^23: numbers of its size have no fraction bits, so adding it rounds to the nearest integer, ties to
/// even, and leaves that integer in the low bits.
const ROUNDER: f32 = 12_582_912.0;

/// Scale of numbers whose largest magnitude is `peak`, and its reciprocal.
///
/// The scale is `flush(peak / 127)`. Where it is 0 the reciprocal is 0 as well. A scale above 2^100, and that of a peak
/// that is NaN, is infinite with reciprocal 0. Where the reciprocal is 0 all codes are 0, whatever the numbers are: an
/// infinite scale times a sum of 0 is NaN, which is an error of the op. The peak is the largest of the bits without
/// sign, so a NaN among the numbers is the peak.
pub fn int8_scale(peak: f32) -> (f32, f32) {
    let (scale, inverse) = int8_scales(peak);
    if scale.is_nan() || MAX_SCALE < scale { (f32::INFINITY, 0.0) } else { (scale, inverse) }
}

/// As [`int8_scale`], for lanes of peaks of at most 2^100.
#[inline(always)]
pub fn int8_scales<V: Lanes>(peak: V) -> (V, V) {
    let scale = flush(peak.mul(peak.splat(PER_CODE)));
    let zero = peak.splat(0.0);
    (scale, zero.select_lt(scale, recip(scale), zero))
}

/// The code of `x`: the integer nearest to `x * inverse`, ties to even.
///
/// `inverse` is the second result of [`int8_scale`] for a peak of at least `|x|`, which is finite. Then `|x * inverse|` is at
/// most 127 * (1 + 2^-21), and the code at most 127. The integer is taken from the bits of a sum, which no
/// optimizer can simplify.
#[inline(always)]
pub fn int8_code<V: Lanes>(x: V, inverse: V) -> V::Int {
    let bits = x.mul(inverse).add(x.splat(ROUNDER)).to_bits();
    bits.sub(bits.splat(ROUNDER.to_bits() as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_nearest_integers() {
        for peak in [127.0, 1.0, 3.7e-9, 2.5e28, 0.333] {
            let (scale, inverse) = int8_scale(peak);
            assert!((scale / (peak / 127.0) - 1.0).abs() < 1e-6);
            assert_eq!((int8_code(peak, inverse), int8_code(-peak, inverse)), (127, -127));
            for i in -1000..=1000 {
                let x = peak * (i as f32 / 1000.0);
                let code = int8_code(x, inverse);
                let exact = f64::from(x) * f64::from(inverse);
                assert!((f64::from(code) - exact).abs() <= 0.5 + 1e-5, "{x} of {peak}");
            }
        }
    }

    #[test]
    fn ties_go_to_even() {
        for (x, code) in [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (-3.5, -4), (126.5, 126)] {
            assert_eq!(int8_code(x, 1.0f32), code, "{x}");
        }
    }

    #[test]
    fn nothing_and_too_much() {
        let least = 2f32.powi(-50);
        assert_eq!(int8_scale(0.0), (0.0, 0.0));
        assert_eq!(int8_scale(126.0 * least), (0.0, 0.0));
        assert_eq!(int8_scale(128.0 * least).0.to_bits(), (128.0 * least * PER_CODE).to_bits());
        assert_eq!(int8_code(1e-15, int8_scale(1e-15).1), 0);
        assert_eq!(int8_scale(3e38), (f32::INFINITY, 0.0));
        assert_eq!(int8_scale(f32::NAN), (f32::INFINITY, 0.0));
    }

    /// The peak has the code 127 whatever its bits are.
    #[test]
    fn no_code_leaves_its_range() {
        let mut bits = (127u32 - 43) << 23;
        while bits < (127 + 106) << 23 {
            let peak = f32::from_bits(bits);
            assert_eq!(int8_code(-peak, int8_scale(peak).1), -127, "{peak:e}");
            bits += 9973;
        }
    }
}
