//! `MXFP4`: 32 weights as 4-bit floats (E2M1) with a power of two as scale (E8M0); the form of the OCP
//! Microscaling specification 1.0.
//!
//! ```text
//! byte  0       1..16
//!       e: u8   qs[0..16]: bits 3..0 = code of weight j, bits 7..4 = code of weight j + 16
//!
//! code  bit 3   bits 2..0
//!       sign    0 .. 7 = 0, 0.5, 1, 1.5, 2, 3, 4, 6
//!
//! weight i = 2^(e - 127) * code[i], computed as 2^(e - 128) * (2 * code[i])
//! ```
//!
//! The specification makes e = 255 a NaN. ggml and gguf-py read it as 2^128, and so does this codec; no writer
//! makes it.

use super::bits::join_nibbles;
use super::codebook::Codebook;
use super::rows::{Rows, byte, put_from_table};
use super::search::Affine;
use super::{Bias, CommonFormat, Encoder, QuantEncode, QuantFormat, Unpacked};
use crate::DType;

pub(super) struct Mxfp4;

const LEN: usize = 32;
const BYTES: usize = 17;
const _: () = assert!(BYTES == 1 + LEN / 2);

/// The numbers of the codes, doubled. The second zero is the negative one, which ggml reads as 0.
pub(super) static TABLE: Codebook = Codebook::new([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]);

/// 2^(e - 128). Exact: the two smallest are subnormal.
#[inline(always)]
fn half_scale(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

impl QuantFormat for Mxfp4 {
    const DTYPE: DType = DType::MXFP4;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<Mxfp4>());

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, half_scale(block[0]));
        let codes = &mut out.codes[..LEN];
        let (low, high) = codes.split_at_mut(16);
        TABLE.split(&block[1..], low, high);
    }
}

impl CommonFormat for Mxfp4 {
    const BIAS: Bias = Bias::Signed;

    #[inline(always)]
    fn unpack_rows<R: Rows>(rows: &mut R) {
        let e = byte(rows, rows.words(0)[0], 0);
        // Less one, but not below 0: scales of up to 2^-50 count as 0.
        let some = rows.shr(rows.add(e, rows.all(255)), 8);
        let bits = rows.shl(rows.sub(e, some), 23);
        rows.put_d_bits(bits);
        put_from_table(rows, TABLE.numbers(), 1, 0);
    }
}

impl QuantEncode for Mxfp4 {
    /// The scale under which the largest weight has the exponent of the largest code, or one of the two next to
    /// it: the one with the smallest error. (The specification takes the first; where the largest weight is
    /// almost a power of two, twice that is better, and half of it where one weight stands out.)
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]) {
        let peak = x.iter().fold(0.0, |m: f32, v| m.max(v.abs()));
        block.fill(0);
        if peak < f32::MIN_POSITIVE {
            return;
        }
        // Of the codes the largest is 6 = 1.5 * 2^2.
        let e = (peak.to_bits() >> 23) as i32 - 2;
        let mut best = (f32::INFINITY, 0);
        for e in [e, e - 1, e + 1] {
            // From 2 on the halved scale is a normal number, and its inverse is finite.
            let e = e.clamp(2, 254) as u8;
            let error = Affine { scale: half_scale(e), min: 0.0 }.error(x, importance, &TABLE);
            if error < best.0 {
                best = (error, e);
            }
        }
        let mut codes = [0; LEN];
        block[0] = best.1;
        Affine { scale: half_scale(best.1), min: 0.0 }.encode(x, &TABLE, &mut codes);
        TABLE.codes_of(&mut codes);
        join_nibbles(&codes[..16], &codes[16..], &mut block[1..]);
    }
}
