//! Numbers of 16 bits as lanes: keys and values in the cache.

use super::lanes::{IntLanes, Lanes};

/// The largest finite f16.
const MAX: f32 = 65504.0;

/// Bits of 2^-14, the smallest normal f16, as an f32.
const NORMAL: i32 = (127 - 14) << 23;

/// The f16 nearest to `x`, ties to even, in the low 16 bits; magnitudes above 65504 become 65504.
///
/// 1. Normal numbers: 13 bits are dropped from the fraction; a carry into the exponent is right.
/// 2. Smaller ones are counted in units of 2^-24: adding 0.5, whose last place is that unit, rounds to one, and the
///    count stands in the low bits of the sum.
#[inline(always)]
pub fn f16_code<V: Lanes>(x: V) -> V::Int {
    let bits = x.to_bits();
    let size = V::from_bits(bits.and(bits.splat(0x7FFF_FFFF)));
    let limit = x.splat(MAX);
    let size = size.select_lt(limit, size, limit);
    let m = size.to_bits();
    let odd = m.shr::<13>().and(m.splat(1));
    let normal = m.add(m.splat(0xFFF)).add(odd).shr::<13>().sub(m.splat(112 << 10));
    let small = size.add(x.splat(0.5)).to_bits().sub(m.splat(0.5f32.to_bits() as i32));
    let code = V::from_bits(small).if_int_lt(m, m.splat(NORMAL), V::from_bits(normal)).to_bits();
    code.or(bits.shr::<16>().and(bits.splat(0x8000)))
}

/// The number of an f16 that is finite.
#[inline(always)]
pub fn f16_value<V: Lanes>(code: V::Int) -> V {
    let m = code.and(code.splat(0x7FFF));
    let fraction = m.shl::<13>();
    let normal = V::from_bits(fraction.add(m.splat(112 << 23)));
    let one = V::from_bits(m.splat(NORMAL));
    let small = V::from_bits(fraction.add(m.splat(NORMAL))).sub(one);
    let size = small.if_int_lt(m, m.splat(0x400), normal).to_bits();
    V::from_bits(size.or(code.and(code.splat(0x8000)).shl::<16>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redraft_gguf::{f16_to_f32, f32_to_f16};

    #[test]
    fn every_finite_code_has_its_number_and_comes_back() {
        for code in (0..=0xFFFFu16).filter(|c| c & 0x7C00 != 0x7C00) {
            let x: f32 = f16_value(i32::from(code));
            assert_eq!(x.to_bits(), f16_to_f32(code).to_bits(), "{code:04x}");
            assert_eq!(f16_code(x), i32::from(code));
        }
    }

    /// Around every border between two codes, and everywhere else in steps.
    #[test]
    fn rounds_like_the_conversion_of_files() {
        let borders = (0..0x7C00u16).flat_map(|c| {
            let [a, b] = [c, (c + 1).min(0x7BFF)].map(|c| f64::from(f16_to_f32(c)));
            let middle = ((a + b) / 2.0) as f32;
            (-2..=2).map(move |d| (middle.to_bits() as i32 + d) as u32 & 0x7FFF_FFFF)
        });
        for bits in borders.chain((0..0x7F80_0000u32).step_by(9973)) {
            let x = f32::from_bits(bits);
            let code = f32_to_f16(x.min(MAX));
            assert_eq!(f16_code(x), i32::from(code), "{x:e}");
            assert_eq!(f16_code(-x), i32::from(code | 0x8000), "-{x:e}");
        }
    }
}
