//! `Q5_K`: super-blocks of 256 weights of 5 bits; eight sub-blocks of 32, each with a scale and a minimum
//! of 6 bits.
//!
//! ```text
//! byte  0..1     2..3        4..15                    16..47      48..175
//!       d: f16   dmin: f16   8 scales and 8 minima,   qh[0..32]   qs[0..128]: low four bits, as in Q4_K
//!                            see k_scales.rs
//!
//! qh[l]:  bit s = bit 4 of the code of weight 32 s + l,  s = 0..7
//!
//! weight i = (d * scale[s]) * code[i] - (dmin * min[s]),  s = i / 32
//! ```

use super::bits::{f16_at, field, put, take_bit, word_at};
use super::q4_k::pack_nibbles;
use super::rows::{self, Rows};
use super::{Bias, CommonFormat, Encoder, QuantEncode, QuantFormat, Unpacked, k_scales, search};
use crate::DType;

pub(super) struct Q5K;

const LEN: usize = 256;
const BYTES: usize = 176;
const _: () = assert!(BYTES == 2 + 2 + 12 + LEN / 8 + LEN / 2);

impl QuantFormat for Q5K {
    const DTYPE: DType = DType::Q5_K;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<Q5K>());

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        (out.len, out.sub_len) = (LEN, 32);
        (out.d, out.dmin) = (f16_at(block, 0), f16_at(block, 2));
        k_scales::unpack(&block[4..16], &mut out.scales, &mut out.mins);
        let codes = &mut out.codes[..LEN];
        let (qh, qs) = block[16..].split_at(32);
        for (g, (qs, codes)) in qs.chunks_exact(32).zip(codes.chunks_exact_mut(64)).enumerate() {
            for (half, codes) in codes.chunks_exact_mut(32).enumerate() {
                for (l, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                    let bit = field(word_at(qh, l), 2 * g + half, 1);
                    put(field(word_at(qs, l), 4 * half, 4) | bit << 4, codes);
                }
            }
        }
    }
}

impl CommonFormat for Q5K {
    const BIAS: Bias = Bias::Added(0);

    #[inline(always)]
    fn unpack_rows<R: Rows>(rows: &mut R) {
        let head = rows.words(0);
        k_scales::put(rows, head);
        for part in 0..2 {
            let fifth = rows.words(16 + 16 * part);
            for g in 0..4 {
                for (i, word) in rows.words(48 + 32 * g + 16 * part).into_iter().enumerate() {
                    for half in 0..2 {
                        let bit = rows::field(rows, fifth[i], (2 * g + half) as u32, 1);
                        let codes = rows.or(rows::field(rows, word, 4 * half as u32, 4), rows.shl(bit, 4));
                        rows.put_quad(16 * g + 8 * half + 4 * part + i, codes);
                    }
                }
            }
        }
    }
}

impl QuantEncode for Q5K {
    /// Scales and minima by [`search::fit_super_block`].
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]) {
        let fit = search::fit_super_block(x, importance, k_scales::SHAPE, 31);
        block[..2].copy_from_slice(&fit.d.to_le_bytes());
        block[2..4].copy_from_slice(&fit.dmin.to_le_bytes());
        k_scales::pack(&fit.scales, &fit.mins, &mut block[4..16]);
        let (qh, qs) = block[16..].split_at_mut(32);
        take_bit(&fit.codes, 4, qh);
        pack_nibbles(&fit.codes, qs);
    }
}
