//! What the grid types share: unpacking of the grids, and signs.
//!
//! A grid type stores the magnitudes of four or eight weights as one index into a list of points, and their signs
//! as bits. Points are kept as the bytes of one integer, the first weight lowest, so that signs are applied to eight
//! weights at once.

use super::iq_grids;

/// Points of eight weights.
pub(super) static GRID_IQ2_XXS: [u64; 256] = expand(&iq_grids::IQ2_XXS, 2, &IQ2);
pub(super) static GRID_IQ2_XS: [u64; 512] = expand(&iq_grids::IQ2_XS, 2, &IQ2);
pub(super) static GRID_IQ2_S: [u64; 1024] = expand(&iq_grids::IQ2_S, 2, &IQ2);
/// Eight times the points of `IQ1_S` and `IQ1_M`, to which an eighth is added or subtracted.
pub(super) static GRID_IQ1: [u64; 2048] = expand(&iq_grids::IQ1, 2, &[-8, 0, 8]);
/// Points of four weights.
pub(super) static GRID_IQ3_XXS: [u32; 256] = halves(expand(&iq_grids::IQ3_XXS, 4, &IQ3_XXS));
pub(super) static GRID_IQ3_S: [u32; 512] = halves(expand(&iq_grids::IQ3_S, 4, &IQ3_S));

const IQ2: [i8; 3] = [8, 25, 43];
const IQ3_XXS: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
const IQ3_S: [i8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];

/// Points as bytes, from packed indices of `bits` bits into `numbers`.
const fn expand<const N: usize>(packed: &[u16; N], bits: u32, numbers: &[i8]) -> [u64; N] {
    let mut points = [0; N];
    let mut i = 0;
    while i < N {
        let mut k = 0;
        while k < 16 / bits {
            let index = (packed[i] >> (k * bits)) as usize & ((1 << bits) - 1);
            points[i] |= (numbers[index] as u8 as u64) << (8 * k);
            k += 1;
        }
        i += 1;
    }
    points
}

/// The lower halves, where a point has four bytes.
const fn halves<const N: usize>(points: [u64; N]) -> [u32; N] {
    let mut out = [0; N];
    let mut i = 0;
    while i < N {
        out[i] = points[i] as u32;
        i += 1;
    }
    out
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// Writes eight magnitudes of 1..=127, that of weight `j` negative where bit `j` of `signs` is set.
pub(super) fn put_signed(magnitudes: u64, signs: u8, codes: &mut [i8; 8]) {
    // Bit j of the signs in byte j; where it is set, bit 7 of the sum is.
    let spread = (u64::from(signs) * ONES) & 0x8040_2010_0804_0201;
    let negative = (spread + 0x7F * ONES) >> 7 & ONES;
    // -x = !x + 1, and a byte that is not zero has no carry.
    let bytes = (magnitudes ^ (negative * 0xFF)) + negative;
    *codes = bytes.to_le_bytes().map(|b| b as i8);
}

/// Two points of four weights as one of eight.
pub(super) fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Eight signs from seven: the number of negative weights is even.
pub(super) fn even_signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Writes a point of [`GRID_IQ1`] plus or minus an eighth, eight times that.
pub(super) fn put_shifted(point: u64, negative: bool, codes: &mut [i8; 8]) {
    let shift = if negative { -1 } else { 1 };
    *codes = point.to_le_bytes().map(|b| b as i8 + shift);
}

/// Odd scales 2 s + 1 of four bits each, the lower half of a byte first.
pub(super) fn odd_scales(bytes: &[u8], scales: &mut [i32]) {
    for (pair, &b) in scales.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [b & 15, b >> 4].map(|s| 2 * i32::from(s) + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_applied_one_by_one() {
        let magnitudes = [1, 2, 62, 127, 43, 8, 25, 1];
        for signs in 0..=255u8 {
            let mut codes = [0; 8];
            put_signed(u64::from_le_bytes(magnitudes), signs, &mut codes);
            for (j, code) in codes.iter().enumerate() {
                let magnitude = magnitudes[j] as i8;
                assert_eq!(*code, if signs >> j & 1 == 1 { -magnitude } else { magnitude }, "{signs:#b} {j}");
            }
        }
        assert!(
            (0..128)
                .all(|s| even_signs(s).count_ones().is_multiple_of(2) && u32::from(even_signs(s)) & 127 == s)
        );
    }
}
