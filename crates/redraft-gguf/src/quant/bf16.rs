//! `BF16`: the upper 16 bits of a 32-bit float.
//!
//! ```text
//! bit 15     14..7                6..0
//!     sign   exponent, bias 127   fraction
//! ```

use super::plain::{Plain, PlainFormat};
use crate::DType;

pub(super) struct BF16;

impl BF16 {
    pub(super) const CODEC: Plain<BF16, 2> = Plain::new();
}

impl PlainFormat<2> for BF16 {
    const DTYPE: DType = DType::BF16;
    const ENCODE: Option<fn(f32) -> [u8; 2]> = Some(|x| f32_to_bf16(x).to_le_bytes());

    fn decode(bytes: [u8; 2]) -> f32 {
        bf16_to_f32(u16::from_le_bytes(bytes))
    }
}

/// The value of a bf16 bit pattern. Exact; the payload of a NaN is kept.
pub fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// The bf16 bit pattern nearest to `x`, ties to even. A NaN becomes quiet and keeps the upper seven bits of
/// its payload.
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    // The sum cannot overflow: the largest pattern that is not a NaN is infinity's, 0xFF800000.
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_patterns_come_back() {
        for h in 0..=u16::MAX {
            let x = bf16_to_f32(h);
            assert_eq!(x.to_bits(), u32::from(h) << 16);
            assert_eq!(f32_to_bf16(x), if x.is_nan() { h | 0x40 } else { h }, "{h:#06x}");
        }
    }

    #[test]
    fn rounding_is_to_nearest_even_at_every_midpoint() {
        for h in 0..0x7F80u16 {
            let middle = u32::from(h) << 16 | 0x8000;
            for sign in [0, 0x8000u16] {
                let rounded = |bits: u32| f32_to_bf16(f32::from_bits(bits | u32::from(sign) << 16));
                assert_eq!(rounded(middle), (h + h % 2) | sign, "{h:#06x}");
                assert_eq!(rounded(middle - 1), h | sign, "{h:#06x}");
                assert_eq!(rounded(middle + 1), (h + 1) | sign, "{h:#06x}");
            }
        }
    }

    #[test]
    fn the_far_ends() {
        assert_eq!(f32_to_bf16(f32::MAX), 0x7F80);
        assert_eq!(f32_to_bf16(f32::from_bits(0x7F80_0001)), 0x7FC0);
        assert_eq!(f32_to_bf16(f32::from_bits(u32::MAX)), 0xFFFF);
    }
}
