//! The 12 bytes in which `Q4_K` and `Q5_K` keep eight scales and eight minima of six bits.
//!
//! ```text
//!             bits 7..6            bits 5..0
//! byte 0..3   bits 5..4 of         scale[j],  j = 0..3
//!             scale[j + 4]
//! byte 4..7   bits 5..4 of         min[j],    j = 0..3
//!             min[j + 4]
//!             bits 7..4            bits 3..0
//! byte 8..11  bits 3..0 of         bits 3..0 of
//!             min[j + 4]           scale[j + 4]
//! ```

use super::rows::{Rows, field, put_minima, put_scales};
use super::search::Shape;

/// The division of a super-block that goes with them.
pub(super) const SHAPE: Shape = Shape { sub_len: 32, top: 63 };

/// Reads the eight scales and minima.
#[inline(always)]
pub(super) fn unpack(packed: &[u8], scales: &mut [i32], mins: &mut [u8]) {
    for j in 0..4 {
        let (s, m, rest) = (packed[j], packed[j + 4], packed[j + 8]);
        scales[j] = i32::from(s & 63);
        mins[j] = m & 63;
        scales[j + 4] = i32::from(rest & 15 | (s >> 6) << 4);
        mins[j + 4] = rest >> 4 | (m >> 6) << 4;
    }
}

/// The same of several rows, with the two f16 scales before: the first 16 bytes of a block.
#[inline(always)]
pub(super) fn put<R: Rows>(rows: &mut R, [d, s, m, rest]: [R::Word; 4]) {
    rows.put_d(d);
    let min = rows.shr(d, 16);
    rows.put_dmin(min, false);
    let scales = field(rows, s, 0, 6);
    put_scales(rows, 0, scales, 0);
    let scales = rows.or(field(rows, rest, 0, 4), rows.shl(field(rows, s, 6, 2), 4));
    put_scales(rows, 4, scales, 0);
    let mins = field(rows, m, 0, 6);
    put_minima(rows, 0, mins);
    let mins = rows.or(field(rows, rest, 4, 4), rows.shl(field(rows, m, 6, 2), 4));
    put_minima(rows, 2, mins);
}

/// Writes eight scales and minima, each below 64.
pub(super) fn pack(scales: &[i32], mins: &[u8], packed: &mut [u8]) {
    for j in 0..4 {
        let (s, m) = (scales[j + 4] as u8, mins[j + 4]);
        packed[j] = scales[j] as u8 | (s >> 4) << 6;
        packed[j + 4] = mins[j] | (m >> 4) << 6;
        packed[j + 8] = s & 15 | (m & 15) << 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The drawing above, one bit at a time: (byte, bit) of bit `b` of scale or minimum `j`.
    fn place(is_min: bool, j: usize, b: usize) -> (usize, usize) {
        match (j < 4, b < 4) {
            (true, _) => (j + 4 * usize::from(is_min), b),
            (false, true) => (j + 4, b + 4 * usize::from(is_min)),
            (false, false) => (j - 4 + 4 * usize::from(is_min), b + 2),
        }
    }

    #[test]
    fn every_bit_is_where_the_layout_says() {
        for is_min in [false, true] {
            for j in 0..8 {
                for b in 0..6 {
                    let (mut scales, mut mins) = ([0i32; 8], [0u8; 8]);
                    if is_min {
                        mins[j] = 1 << b;
                    } else {
                        scales[j] = 1 << b;
                    }
                    let (byte, bit) = place(is_min, j, b);
                    let mut want = [0u8; 12];
                    want[byte] = 1 << bit;
                    let mut packed = [0u8; 12];
                    pack(&scales, &mins, &mut packed);
                    assert_eq!(packed, want, "min {is_min}, sub-block {j}, bit {b}");
                    let (mut scales_back, mut mins_back) = ([9i32; 8], [9u8; 8]);
                    unpack(&packed, &mut scales_back, &mut mins_back);
                    assert_eq!((scales_back, mins_back), (scales, mins));
                }
            }
        }
    }
}
