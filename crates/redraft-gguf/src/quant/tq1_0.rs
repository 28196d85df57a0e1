//! `TQ1_0`: super-blocks of 256 ternary weights, five in a byte, with one scale.
//!
//! ```text
//! byte  0..47        48..51       52..53
//!       qs[0..48]    qh[0..4]     d: f16
//!
//! A byte b stands for the fraction b / 256; its digits in base 3, the first after the point first, are codes:
//!
//!   digit n = 0..4 of qs[m],  m = 0..31:    weight 32 n + m
//!                  of qs[m],  m = 32..47:   weight 160 + 16 n + m - 32
//!   digit n = 0..3 of qh[m],  m = 0..3:     weight 240 + 4 n + m
//!
//! weight i = d * (digit[i] - 1)
//! ```

use super::bits::f16_at;
use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct TQ1_0;

const LEN: usize = 256;
const BYTES: usize = 54;
const _: () = assert!(BYTES == 48 + 4 + 2 && 48 * 5 + 4 * 4 == LEN);

/// What moves digit n to the front, modulo 256.
const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

impl QuantFormat for TQ1_0 {
    const DTYPE: DType = DType::TQ1_0;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f16_at(block, 52));
        let (first, rest) = out.codes.split_at_mut(160);
        let (second, third) = rest.split_at_mut(80);
        digits(&block[..32], first);
        digits(&block[32..48], second);
        digits(&block[48..52], third);
    }
}

/// The digits of bytes: first that of each byte, then the next one of each.
fn digits(bytes: &[u8], codes: &mut [i8]) {
    for (codes, power) in codes.chunks_exact_mut(bytes.len()).zip(POWERS) {
        for (code, &b) in codes.iter_mut().zip(bytes) {
            *code = ((u16::from(b.wrapping_mul(power)) * 3) >> 8) as i8 - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The drawing above, with fractions in integers: digit n of b / 256 is floor(3^(n+1) b / 256) mod 3.
    #[test]
    fn every_byte_has_the_digits_of_its_fraction() {
        for b in 0..=255u8 {
            let mut codes = [0; 5];
            digits(&[b], &mut codes);
            for (n, code) in (1..).zip(codes) {
                let digit = 3u32.pow(n) * u32::from(b) / 256 % 3;
                assert_eq!(i32::from(code), digit as i32 - 1, "digit {n} of {b}");
            }
        }
    }
}
