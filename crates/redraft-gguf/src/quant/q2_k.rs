//! `Q2_K`: super-blocks of 256 weights of 2 bits; sixteen sub-blocks of 16, each with a scale and a minimum of 4
//! bits.
//!
//! ```text
//! byte  0..15                        16..79       80..81   82..83
//!       bits 3..0: scale[0..16]      qs[0..64]    d: f16   dmin: f16
//!       bits 7..4: min[0..16]
//!
//! qs[32 h + m], h = 0, 1:  bits 2l + 1, 2l = code of weight 128 h + 32 l + m,  l = 0..3
//!
//! weight i = (d * scale[s]) * code[i] - (dmin * min[s]),  s = i / 16
//! ```

use super::bits::{f16_at, join_quarters, split_quarters};
use super::rows::{Rows, field, put_minima, put_scales};
use super::search::{self, Shape};
use super::{Bias, CommonFormat, Encoder, QuantEncode, QuantFormat, Unpacked};
use crate::DType;

pub(super) struct Q2K;

const LEN: usize = 256;
const BYTES: usize = 84;
const _: () = assert!(BYTES == LEN / 16 + LEN / 4 + 2 + 2);

impl QuantFormat for Q2K {
    const DTYPE: DType = DType::Q2_K;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<Q2K>());

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.scaled(LEN, 16, f16_at(block, 80));
        out.dmin = f16_at(block, 82);
        for ((scale, min), &b) in out.scales.iter_mut().zip(&mut out.mins).zip(&block[..16]) {
            (*scale, *min) = (i32::from(b & 15), b >> 4);
        }
        let codes = &mut out.codes[..LEN];
        for (qs, codes) in block[16..80].chunks_exact(32).zip(codes.chunks_exact_mut(128)) {
            split_quarters(qs, codes);
        }
    }
}

impl CommonFormat for Q2K {
    const BIAS: Bias = Bias::Added(0);

    #[inline(always)]
    fn unpack_rows<R: Rows>(rows: &mut R) {
        for (i, word) in rows.words(0).into_iter().enumerate() {
            let (scales, mins) = (field(rows, word, 0, 4), field(rows, word, 4, 4));
            put_scales(rows, 4 * i, scales, 0);
            put_minima(rows, 2 * i, mins);
        }
        let d = rows.words(68)[3];
        rows.put_d(d);
        let min = rows.shr(d, 16);
        rows.put_dmin(min, false);
        for part in 0..4 {
            let (half, m) = (part / 2, part % 2);
            for (i, word) in rows.words(16 + 16 * part).into_iter().enumerate() {
                for l in 0..4 {
                    let codes = field(rows, word, 2 * l as u32, 2);
                    rows.put_quad(32 * half + 8 * l + 4 * m + i, codes);
                }
            }
        }
    }
}

impl QuantEncode for Q2K {
    /// Scales and minima by [`search::fit_super_block`].
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]) {
        let fit = search::fit_super_block(x, importance, Shape { sub_len: 16, top: 15 }, 3);
        let (scales, rest) = block.split_at_mut(16);
        for ((b, scale), min) in scales.iter_mut().zip(fit.scales).zip(fit.mins) {
            *b = scale as u8 | min << 4;
        }
        for (qs, codes) in rest[..64].chunks_exact_mut(32).zip(fit.codes.chunks_exact(128)) {
            join_quarters(codes, qs);
        }
        rest[64..66].copy_from_slice(&fit.d.to_le_bytes());
        rest[66..].copy_from_slice(&fit.dmin.to_le_bytes());
    }
}
