//! `NVFP4`: blocks of 64 weights as 4-bit floats (E2M1); four sub-blocks of 16, each with a scale that is a float
//! of 8 bits (E4M3) without sign.
//!
//! ```text
//! byte  0..3             4..35
//!       scale[0..4]      qs[0..32]
//!
//! qs[8 s + l]:  bits 3..0 = code of weight 16 s + l,      codes as in MXFP4
//!               bits 7..4 = code of weight 16 s + 8 + l,  s = 0..3, l = 0..7
//!
//! scale  bits 6..3         bits 2..0
//!        exponent, bias 7  fraction;  2^-9 * fraction where the exponent is 0
//!
//! weight i = scale[s] * code[i],  s = i / 16
//! ```
//!
//! Bit 7 of a scale is ignored. 0x7F, the NaN of E4M3, is read as 0 and 0xFF as 480, as ggml and gguf-py read
//! them. A file may have a further scale for the whole tensor; that is a tensor of its own.

use super::mxfp4::TABLE;
use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct Nvfp4;

const LEN: usize = 64;
const BYTES: usize = 36;
const _: () = assert!(BYTES == LEN / 16 + LEN / 2);

/// Scales in units of 2^-9, the smallest one.
static SCALES: [i32; 256] = {
    let mut scales = [0; 256];
    let mut b = 0;
    while b < 256 {
        let (exponent, fraction) = (b >> 3 & 15, (b & 7) as i32);
        scales[b] = match exponent {
            0 => fraction,
            e => (8 + fraction) << (e - 1),
        };
        b += 1;
    }
    scales[0x7F] = 0;
    scales
};

impl QuantFormat for Nvfp4 {
    const DTYPE: DType = DType::NVFP4;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    /// `d` is 2^-10: the unit of the scales, halved because the table has the codes doubled.
    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.scaled(LEN, 16, 1.0 / 1024.0);
        for (scale, &b) in out.scales.iter_mut().zip(&block[..4]) {
            *scale = SCALES[usize::from(b)];
        }
        let codes = &mut out.codes[..LEN];
        for (qs, codes) in block[4..].chunks_exact(8).zip(codes.chunks_exact_mut(16)) {
            let (low, high) = codes.split_at_mut(8);
            TABLE.split(qs, low, high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition of E4M3 in f64.
    #[test]
    fn scales_are_those_of_the_format() {
        for (b, &scale) in SCALES.iter().enumerate().filter(|(b, _)| *b != 0x7F) {
            let fraction = (b & 7) as f64 / 8.0;
            let want = match b >> 3 & 15 {
                0 => fraction * 2f64.powi(-6),
                e => (1.0 + fraction) * 2f64.powi(e as i32 - 7),
            };
            assert_eq!(f64::from(scale) / 512.0, want, "{b:#x}");
        }
    }
}
