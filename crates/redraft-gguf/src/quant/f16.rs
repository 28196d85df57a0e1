//! `F16`: IEEE 16-bit floats.
//!
//! ```text
//! bit 15     14..10              9..0
//!     sign   exponent, bias 15   fraction
//! ```
//!
//! Both conversions are integer code, so that they give the same bits on every machine.

use super::plain::{Plain, PlainFormat};
use crate::DType;

pub(super) struct F16;

impl F16 {
    pub(super) const CODEC: Plain<F16, 2> = Plain::new();
}

impl PlainFormat<2> for F16 {
    const DTYPE: DType = DType::F16;
    const ENCODE: Option<fn(f32) -> [u8; 2]> = Some(|x| f32_to_f16(x).to_le_bytes());

    fn decode(bytes: [u8; 2]) -> f32 {
        f16_to_f32(u16::from_le_bytes(bytes))
    }
}

/// The value of an f16 bit pattern. Exact; the payload of a NaN is kept.
pub fn f16_to_f32(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let exponent = u32::from(h >> 10) & 31;
    let fraction = u32::from(h & 0x3FF);
    let magnitude = match (exponent, fraction) {
        (0, 0) => 0,
        // Subnormal: fraction * 2^-24. The highest set bit becomes the implicit one.
        (0, f) => {
            let shift = f.leading_zeros() - 21; // 1 for the largest subnormals, 10 for the smallest
            ((113 - shift) << 23) | ((f << (13 + shift)) & 0x7F_FFFF)
        }
        (31, f) => 0x7F80_0000 | f << 13,
        // The bias changes from 15 to 127.
        (e, f) => (e + 112) << 23 | f << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// The f16 bit pattern nearest to `x`, ties to even. Magnitudes from 65,520 on become infinite; a NaN
/// becomes quiet and keeps the upper ten bits of its payload.
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7FFF_FFFF;
    if magnitude > 0x7F80_0000 {
        return sign | 0x7E00 | (magnitude >> 13) as u16 & 0x3FF;
    }
    let exponent = magnitude >> 23;
    let half = if exponent >= 143 {
        0x7C00 // 2^16 and more, infinity
    } else if exponent >= 113 {
        // Normal in f16 (from 2^-14 on): drop 13 bits; a carry into the exponent is right, up to infinity.
        round_shift(magnitude, 13) - (112 << 10)
    } else if exponent >= 102 {
        // Subnormal in f16: count in units of 2^-24.
        round_shift(magnitude & 0x7F_FFFF | 0x80_0000, 126 - exponent)
    } else {
        0 // below half of the smallest subnormal
    };
    sign | half as u16
}

/// `n / 2^shift`, rounded to nearest, ties to even.
fn round_shift(n: u32, shift: u32) -> u32 {
    let half_less_one = (1 << (shift - 1)) - 1;
    (n + half_less_one + (n >> shift & 1)) >> shift
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: sign, 2^exponent and fraction in f64, where every step is exact.
    fn by_definition(h: u16) -> f64 {
        let sign = if h & 0x8000 == 0 { 1.0 } else { -1.0 };
        let fraction = f64::from(h & 0x3FF) / 1024.0;
        match h >> 10 & 31 {
            0 => sign * fraction * 2f64.powi(-14),
            31 if fraction == 0.0 => sign * f64::INFINITY,
            31 => f64::NAN,
            e => sign * (1.0 + fraction) * 2f64.powi(i32::from(e) - 15),
        }
    }

    #[test]
    fn all_patterns_have_the_defined_value_and_come_back() {
        for h in 0..=u16::MAX {
            let (x, want) = (f16_to_f32(h), by_definition(h));
            if want.is_nan() {
                assert!(x.is_nan(), "{h:#06x}");
                assert_eq!(f32_to_f16(x), h | 0x200, "{h:#06x}");
            } else {
                assert_eq!(f64::from(x).to_bits(), want.to_bits(), "{h:#06x}");
                assert_eq!(f32_to_f16(x), h, "{h:#06x}");
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even_at_every_midpoint() {
        for h in 0..0x7C00u16 {
            // The next value up; for the largest finite one, what the rounding rule takes as such: 65,536.
            let below = f16_to_f32(h);
            let above = if h == 0x7BFF { 65_536.0 } else { f16_to_f32(h + 1) };
            let middle = (below + above) / 2.0; // exact: one more bit than f16
            let even = if h % 2 == 0 { h } else { h + 1 };
            assert_eq!(f32_to_f16(middle), even, "{h:#06x}");
            assert_eq!(f32_to_f16(f32::from_bits(middle.to_bits() - 1)), h, "{h:#06x}");
            assert_eq!(f32_to_f16(f32::from_bits(middle.to_bits() + 1)), h + 1, "{h:#06x}");
            assert_eq!(f32_to_f16(-middle), even | 0x8000, "{h:#06x}");
        }
    }

    #[test]
    fn the_far_ends() {
        assert_eq!(f32_to_f16(f32::MAX), 0x7C00);
        assert_eq!(f32_to_f16(f32::NEG_INFINITY), 0xFC00);
        assert_eq!(f32_to_f16(f32::from_bits(1)), 0);
        assert_eq!(f32_to_f16(-0.0), 0x8000);
        assert_eq!(f32_to_f16(f32::from_bits(0x7F80_0001)), 0x7E00);
    }
}
