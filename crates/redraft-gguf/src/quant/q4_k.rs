//! `Q4_K`: super-blocks of 256 weights of 4 bits; eight sub-blocks of 32, each with a scale and a minimum
//! of 6 bits.
//!
//! ```text
//! byte  0..1     2..3        4..15                       16..143
//!       d: f16   dmin: f16   8 scales and 8 minima,      qs[0..128]
//!                            see k_scales.rs
//!
//! qs[32 g + l], g = 0..3:  bits 3..0 = code of weight 64 g + l        (sub-block 2 g)
//!                          bits 7..4 = code of weight 64 g + 32 + l   (sub-block 2 g + 1)
//!
//! weight i = (d * scale[s]) * code[i] - (dmin * min[s]),  s = i / 32
//! ```

use super::bits::{f16_at, join_nibbles, split_nibbles};
use super::rows::{Rows, put_nibbles};
use super::{Bias, CommonFormat, Encoder, QuantEncode, QuantFormat, Unpacked, k_scales, search};
use crate::DType;

pub(super) struct Q4K;

const LEN: usize = 256;
const BYTES: usize = 144;
const _: () = assert!(BYTES == 2 + 2 + 12 + LEN / 2);

impl QuantFormat for Q4K {
    const DTYPE: DType = DType::Q4_K;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<Q4K>());

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        (out.len, out.sub_len) = (LEN, 32);
        (out.d, out.dmin) = (f16_at(block, 0), f16_at(block, 2));
        k_scales::unpack(&block[4..16], &mut out.scales, &mut out.mins);
        let codes = &mut out.codes[..LEN];
        unpack_nibbles(&block[16..], codes);
    }
}

impl CommonFormat for Q4K {
    const BIAS: Bias = Bias::Added(0);

    #[inline(always)]
    fn unpack_rows<R: Rows>(rows: &mut R) {
        let head = rows.words(0);
        k_scales::put(rows, head);
        for i in 0..8 {
            let low = i / 2 * 16 + i % 2 * 4;
            put_nibbles(rows, 16 + 16 * i, low, low + 8);
        }
    }
}

impl QuantEncode for Q4K {
    /// Scales and minima by [`search::fit_super_block`].
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]) {
        let fit = search::fit_super_block(x, importance, k_scales::SHAPE, 15);
        block[..2].copy_from_slice(&fit.d.to_le_bytes());
        block[2..4].copy_from_slice(&fit.dmin.to_le_bytes());
        k_scales::pack(&fit.scales, &fit.mins, &mut block[4..16]);
        pack_nibbles(&fit.codes, &mut block[16..]);
    }
}

/// Reads the low four bits of 256 codes from 128 bytes.
#[inline(always)]
pub(super) fn unpack_nibbles(qs: &[u8], codes: &mut [i8]) {
    for (qs, codes) in qs.chunks_exact(32).zip(codes.chunks_exact_mut(64)) {
        let (low, high) = codes.split_at_mut(32);
        split_nibbles(qs, 0, low, high);
    }
}

/// The reverse of [`unpack_nibbles`].
pub(super) fn pack_nibbles(codes: &[i8; LEN], qs: &mut [u8]) {
    for (qs, codes) in qs.chunks_exact_mut(32).zip(codes.chunks_exact(64)) {
        let (low, high) = codes.split_at(32);
        join_nibbles(low, high, qs);
    }
}
