//! `Q5_0`: 32 weights of 5 bits with one scale.
//!
//! ```text
//! byte  0..1     2..5                                 6..21
//!       d: f16   qh: u32, bit i = bit 4 of code[i]    qs[0..16]: bits 3..0 = low bits of code[j],
//!                                                                bits 7..4 = low bits of code[j + 16]
//!
//! weight i = d * (code[i] - 16)
//! ```

use super::bits::{f16_at, field, join_nibbles, minus, put, spread, word_at};
use super::rows::{Rows, put_five_bits};
use super::{Bias, CommonFormat, Encoder, QuantEncode, QuantFormat, Unpacked, search};
use crate::DType;

pub(super) struct Q5_0;

const LEN: usize = 32;
const BYTES: usize = 22;
const _: () = assert!(BYTES == 2 + 4 + LEN / 2);

impl QuantFormat for Q5_0 {
    const DTYPE: DType = DType::Q5_0;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<Q5_0>());

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f16_at(block, 0));
        let codes = &mut out.codes[..LEN];
        unpack_five_bits(&block[2..], 16, codes);
    }
}

impl CommonFormat for Q5_0 {
    const BIAS: Bias = Bias::Added(16);

    #[inline(always)]
    fn unpack_rows<R: Rows>(rows: &mut R) {
        let head = rows.words(0);
        rows.put_d(head[0]);
        let fifth = rows.or(rows.shr(head[0], 16), rows.shl(head[1], 16));
        put_five_bits(rows, 6, fifth);
    }
}

impl QuantEncode for Q5_0 {
    /// Scale by [`search::fit_scale`], codes for the scale as stored.
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]) {
        let mut codes = [0; LEN];
        let d = search::encode_symmetric(x, importance, search::Range::signed(16), &mut codes);
        codes.iter_mut().for_each(|c| *c += 16);
        block[..2].copy_from_slice(&d.to_le_bytes());
        pack_five_bits(&codes, &mut block[2..]);
    }
}

/// Reads 32 codes of 0..=31, less `n`, from four bytes of high bits and 16 bytes of low bits.
#[inline(always)]
pub(super) fn unpack_five_bits(bytes: &[u8], n: u8, codes: &mut [i8]) {
    let high_bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    for (i, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let low = field(word_at(&bytes[4..], i % 2), i / 2 * 4, 4);
        put(minus(n, low | spread(high_bits >> (8 * i)) << 4), codes);
    }
}

/// The reverse of [`unpack_five_bits`].
pub(super) fn pack_five_bits(codes: &[i8; LEN], bytes: &mut [u8]) {
    let high_bits = codes.iter().enumerate().fold(0, |bits, (i, &code)| bits | (code as u32 >> 4 & 1) << i);
    bytes[..4].copy_from_slice(&high_bits.to_le_bytes());
    join_nibbles(&codes[..16], &codes[16..], &mut bytes[4..]);
}
