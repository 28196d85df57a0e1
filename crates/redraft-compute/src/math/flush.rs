//! The rule that keeps subnormal numbers out.
//!
//! **Every real number that enters a program (inputs, weights) or is written by an op is 0 or at least 2^-50
//! in magnitude.** Then a rounded product of two of them is a multiple of 2^-123, so no unfused sum of such
//! products can be subnormal, and devices that flush subnormals to zero compute the same bits as those that
//! do not.

use super::lanes::{IntLanes, Lanes};

/// Bits of 2^-50, the smallest magnitude that is kept: exponent field 127 - 50.
pub const MIN_BITS: i32 = (127 - 50) << 23;

/// `|x| < 2^-50` becomes +0; everything else, NaN and infinities too, stays. The comparison is one of
/// integers, so that a device that flushes subnormals decides alike; -0 becomes +0.
#[inline(always)]
pub fn flush<V: Lanes>(x: V) -> V {
    let bits = x.to_bits();
    let magnitude = bits.and(bits.splat(0x7FFF_FFFF));
    x.splat(0.0).if_int_lt(magnitude, bits.splat(MIN_BITS), x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_large_and_zeroes_the_rest() {
        let min = 2f32.powi(-50);
        assert_eq!(f32::from_bits(MIN_BITS as u32), min);
        for x in [min, 1.0, 3e38, f32::INFINITY] {
            assert_eq!(flush(x).to_bits(), x.to_bits());
            assert_eq!(flush(-x).to_bits(), (-x).to_bits());
        }
        for x in [0.0, min * (1.0 - f32::EPSILON / 2.0), 1e-30, f32::MIN_POSITIVE, f32::from_bits(1)] {
            assert_eq!(flush(x).to_bits(), 0);
            assert_eq!(flush(-x).to_bits(), 0);
        }
        assert!(flush(f32::NAN).is_nan());
    }
}
