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

use super::bits::{add_bit, f16_at, take_bit};
use super::q4_k::{pack_nibbles, unpack_nibbles};
use super::{Encoder, QuantEncode, QuantFormat, Unpacked, k_scales, search};
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

    #[inline(always)]
    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        (out.len, out.sub_len) = (LEN, 32);
        (out.d, out.dmin) = (f16_at(block, 0), f16_at(block, 2));
        k_scales::unpack(&block[4..16], &mut out.scales, &mut out.mins);
        let (qh, qs) = block[16..].split_at(32);
        unpack_nibbles(qs, &mut out.codes);
        add_bit(qh, 4, &mut out.codes);
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
