//! `Q6_K`: super-blocks of 256 weights of 6 bits; sixteen sub-blocks of 16, each with a signed 8-bit scale.
//!
//! ```text
//! byte  0..127       128..191    192..207             208..209
//!       ql[0..128]   qh[0..64]   scales[0..16]: i8    d: f16
//!
//! Each half h = 0, 1 of the super-block (weights 128 h on) has 64 bytes of ql and 32 bytes of qh; l = 0..31:
//!
//!   weight      bits 3..0 of the code     bits 5..4 of the code
//!   l           ql[l]      bits 3..0      qh[l] bits 1..0
//!   l + 32      ql[l + 32] bits 3..0      qh[l] bits 3..2
//!   l + 64      ql[l]      bits 7..4      qh[l] bits 5..4
//!   l + 96      ql[l + 32] bits 7..4      qh[l] bits 7..6
//!
//! weight i = (d * scale[s]) * (code[i] - 32),  s = i / 16
//! ```

use super::bits::{f16_at, field, join_nibbles, minus, put, word_at};
use super::rows::{self, Rows, put_scales};
use super::{Bias, CommonFormat, Encoder, QuantEncode, QuantFormat, Unpacked, search};
use crate::DType;

pub(super) struct Q6K;

const LEN: usize = 256;
const BYTES: usize = 210;
const _: () = assert!(BYTES == LEN / 2 + LEN / 4 + LEN / 16 + 2);

impl QuantFormat for Q6K {
    const DTYPE: DType = DType::Q6_K;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<Q6K>());

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.scaled(LEN, 16, f16_at(block, 208));
        for (scale, &b) in out.scales.iter_mut().zip(&block[192..208]) {
            *scale = i32::from(b as i8);
        }
        let codes = &mut out.codes[..LEN];
        let halves = block[..128].chunks_exact(64).zip(block[128..192].chunks_exact(32));
        for ((ql, qh), codes) in halves.zip(codes.chunks_exact_mut(128)) {
            for (quarter, codes) in codes.chunks_exact_mut(32).enumerate() {
                for (l, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                    let low = field(word_at(ql, quarter % 2 * 4 + l), quarter / 2 * 4, 4);
                    put(minus(32, low | field(word_at(qh, l), 2 * quarter, 2) << 4), codes);
                }
            }
        }
    }
}

impl CommonFormat for Q6K {
    const BIAS: Bias = Bias::Added(32);

    #[inline(always)]
    fn unpack_rows<R: Rows>(rows: &mut R) {
        for (i, scales) in rows.words(192).into_iter().enumerate() {
            // A byte with a sign is 128 less than that byte with its upper bit flipped.
            let flipped = rows.xor(scales, rows.all(0x8080_8080));
            put_scales(rows, 4 * i, flipped, 128);
        }
        let d = rows.shr(rows.words(194)[3], 16);
        rows.put_d(d);
        for part in 0..4 {
            let (half, l) = (part / 2, part % 2);
            let high = rows.words(128 + 16 * part);
            for quarter in 0..4 {
                let low = rows.words(64 * half + 32 * (quarter % 2) + 16 * l);
                for (i, word) in low.into_iter().enumerate() {
                    let bits = rows::field(rows, high[i], 2 * quarter as u32, 2);
                    let low = rows::field(rows, word, (quarter / 2 * 4) as u32, 4);
                    let codes = rows.or(low, rows.shl(bits, 4));
                    rows.put_quad(32 * half + 8 * quarter + 4 * l + i, codes);
                }
            }
        }
    }
}

impl QuantEncode for Q6K {
    /// Scales by [`search::fit_scaled_super_block`].
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]) {
        let fit = search::fit_scaled_super_block(x, importance, 16, -128, search::Range::signed(32));
        let (ql, rest) = block.split_at_mut(128);
        let (qh, rest) = rest.split_at_mut(64);
        for ((ql, qh), codes) in
            ql.chunks_exact_mut(64).zip(qh.chunks_exact_mut(32)).zip(fit.codes.chunks_exact(128))
        {
            let mut codes: [i8; 128] = codes.try_into().expect("halves of 256 are 128 long");
            codes.iter_mut().for_each(|c| *c += 32);
            join_nibbles(&codes[..64], &codes[64..], ql);
            for (l, h) in qh.iter_mut().enumerate() {
                *h = (0..4).fold(0, |h, quarter| h | (codes[32 * quarter + l] as u8 >> 4) << (2 * quarter));
            }
        }
        for (b, scale) in rest[..16].iter_mut().zip(fit.scales) {
            *b = scale as u8;
        }
        rest[16..].copy_from_slice(&fit.d.to_le_bytes());
    }
}
