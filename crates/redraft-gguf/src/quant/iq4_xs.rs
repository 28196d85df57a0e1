//! `IQ4_XS`: super-blocks of 256 weights of 4 bits, codes as in `IQ4_NL`; eight sub-blocks of 32, each with a
//! signed 6-bit scale.
//!
//! ```text
//! byte  0..1     2..3                            4..7                       8..135
//!       d: f16   high: u16, bits 2s + 1, 2s =    low[0..4]: bits 3..0 =     qs[0..128]
//!                bits 5..4 of scale[s]           bits 3..0 of scale[2 j],
//!                                                bits 7..4 = of scale[2 j + 1]
//!
//! qs[16 s + l]:  bits 3..0 = code of weight 32 s + l
//!                bits 7..4 = code of weight 32 s + 16 + l,   s = 0..7, l = 0..15
//!
//! weight i = (d * (scale[s] - 32)) * table[code[i]],  s = i / 32
//! ```

use super::bits::{f16_at, join_nibbles};
use super::iq4_nl::TABLE;
use super::rows::{Rows, put_from_table};
use super::{Bias, CommonFormat, Encoder, QuantEncode, QuantFormat, Unpacked, search};
use crate::DType;

pub(super) struct IQ4Xs;

const LEN: usize = 256;
const BYTES: usize = 136;
const _: () = assert!(BYTES == 2 + 2 + LEN / 64 + LEN / 2);

impl QuantFormat for IQ4Xs {
    const DTYPE: DType = DType::IQ4_XS;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<IQ4Xs>());

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.scaled(LEN, 32, f16_at(block, 0));
        let high = u16::from_le_bytes([block[2], block[3]]);
        for (s, scale) in out.scales[..8].iter_mut().enumerate() {
            let low = block[4 + s / 2] >> (s % 2 * 4) & 15;
            *scale = i32::from(u16::from(low) | (high >> (2 * s) & 3) << 4) - 32;
        }
        let codes = &mut out.codes[..LEN];
        for (qs, codes) in block[8..].chunks_exact(16).zip(codes.chunks_exact_mut(32)) {
            let (low, high) = codes.split_at_mut(16);
            TABLE.split(qs, low, high);
        }
    }
}

impl CommonFormat for IQ4Xs {
    const BIAS: Bias = Bias::Signed;

    #[inline(always)]
    fn unpack_rows<R: Rows>(rows: &mut R) {
        let [d, low, ..] = rows.words(0);
        rows.put_d(d);
        for s in 0..8 {
            let low = rows.and(rows.shr(low, 4 * s as u32), rows.all(15));
            let high = rows.and(rows.shr(d, 16 + 2 * s as u32), rows.all(3));
            let scale = rows.sub(rows.or(low, rows.shl(high, 4)), rows.all(32));
            rows.put_scale(s, scale);
            put_from_table(rows, TABLE.numbers(), 8 + 16 * s, 8 * s);
        }
    }
}

impl QuantEncode for IQ4Xs {
    /// Scales by [`search::fit_scaled_super_block`].
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]) {
        let mut fit = search::fit_scaled_super_block(x, importance, 32, -32, &TABLE);
        TABLE.codes_of(&mut fit.codes);
        block[..2].copy_from_slice(&fit.d.to_le_bytes());
        let mut high = 0;
        block[4..8].fill(0);
        for (s, scale) in fit.scales[..8].iter().enumerate() {
            let scale = (scale + 32) as u16;
            block[4 + s / 2] |= (scale as u8 & 15) << (s % 2 * 4);
            high |= scale >> 4 << (2 * s);
        }
        block[2..4].copy_from_slice(&high.to_le_bytes());
        for (qs, codes) in block[8..].chunks_exact_mut(16).zip(fit.codes.chunks_exact(32)) {
            join_nibbles(&codes[..16], &codes[16..], qs);
        }
    }
}
