//! `Q3_K`: super-blocks of 256 weights of 3 bits; sixteen sub-blocks of 16, each with a signed 6-bit scale.
//!
//! ```text
//! byte  0..31        32..95                   96..107            108..109
//!       qh[0..32]    qs[0..64]: bits 1..0     16 scales, below   d: f16
//!                    of the codes, as in Q2_K
//!
//! qh[m]:  bit s = bit 2 of the code of weight 32 s + m,  s = 0..7
//!
//!               bits 7..4                     bits 3..0
//! byte 96 + j   bits 3..0 of scale[j + 8]     bits 3..0 of scale[j],   j = 0..7
//!
//! byte 104 + j  bits 2t + 1, 2t = bits 5..4 of scale[4 t + j],         j = 0..3, t = 0..3
//!
//! weight i = (d * (scale[s] - 32)) * (code[i] - 4),  s = i / 16
//! ```

use super::bits::{f16_at, field, join_quarters, minus, put, take_bit, word_at};
use super::rows::{self, Rows, put_scales};
use super::{Bias, CommonFormat, Encoder, QuantEncode, QuantFormat, Unpacked, search};
use crate::DType;

pub(super) struct Q3K;

const LEN: usize = 256;
const BYTES: usize = 110;
const _: () = assert!(BYTES == LEN / 8 + LEN / 4 + 12 + 2);

impl QuantFormat for Q3K {
    const DTYPE: DType = DType::Q3_K;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<Q3K>());

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.scaled(LEN, 16, f16_at(block, 108));
        let scales = &block[96..108];
        for (s, scale) in out.scales.iter_mut().enumerate() {
            let low = scales[s % 8] >> (s / 8 * 4) & 15;
            let high = scales[8 + s % 4] >> (s / 4 * 2) & 3;
            *scale = i32::from(low | high << 4) - 32;
        }
        let codes = &mut out.codes[..LEN];
        let halves = block[32..96].chunks_exact(32).zip(codes.chunks_exact_mut(128));
        for (half, (qs, codes)) in halves.enumerate() {
            for (l, codes) in codes.chunks_exact_mut(32).enumerate() {
                for (m, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                    let bit = field(word_at(block, m), 4 * half + l, 1);
                    put(minus(4, field(word_at(qs, m), 2 * l, 2) | bit << 2), codes);
                }
            }
        }
    }
}

impl CommonFormat for Q3K {
    const BIAS: Bias = Bias::Added(4);

    #[inline(always)]
    fn unpack_rows<R: Rows>(rows: &mut R) {
        let [_, low, more, high] = rows.words(92);
        for s in 0..4 {
            let low = rows::field(rows, if s % 2 == 0 { low } else { more }, s / 2 * 4, 4);
            let scales = rows.or(low, rows.shl(rows::field(rows, high, 2 * s, 2), 4));
            put_scales(rows, 4 * s as usize, scales, 32);
        }
        let d = rows.shr(rows.words(94)[3], 16);
        rows.put_d(d);
        for part in 0..2 {
            let third = rows.words(16 * part);
            for half in 0..2 {
                let low = rows.words(32 + 32 * half + 16 * part);
                for l in 0..4 {
                    for i in 0..4 {
                        let bit = rows::field(rows, third[i], (4 * half + l) as u32, 1);
                        let codes = rows.or(rows::field(rows, low[i], 2 * l as u32, 2), rows.shl(bit, 2));
                        rows.put_quad(32 * half + 8 * l + 4 * part + i, codes);
                    }
                }
            }
        }
    }
}

impl QuantEncode for Q3K {
    /// Scales by [`search::fit_scaled_super_block`].
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]) {
        let mut fit = search::fit_scaled_super_block(x, importance, 16, -32, search::Range::signed(4));
        fit.codes.iter_mut().for_each(|c| *c += 4);
        let (qh, rest) = block.split_at_mut(32);
        take_bit(&fit.codes, 2, qh);
        let (qs, rest) = rest.split_at_mut(64);
        for (qs, codes) in qs.chunks_exact_mut(32).zip(fit.codes.chunks_exact(128)) {
            join_quarters(codes, qs);
        }
        let (scales, d) = rest.split_at_mut(12);
        scales.fill(0);
        for (s, scale) in fit.scales.iter().enumerate() {
            let scale = (scale + 32) as u8;
            scales[s % 8] |= (scale & 15) << (s / 8 * 4);
            scales[8 + s % 4] |= (scale >> 4) << (s / 4 * 2);
        }
        d.copy_from_slice(&fit.d.to_le_bytes());
    }
}
