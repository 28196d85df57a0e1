//! `Q4_1`: 32 weights of 4 bits with a scale and a minimum.
//!
//! ```text
//! byte  0..1     2..3     4..19
//!       d: f16   m: f16   qs[0..16]: bits 3..0 = code of weight j, bits 7..4 = code of weight j + 16
//!
//! weight i = d * code[i] + m
//! ```

use super::bits::{f16_at, join_nibbles, split_nibbles};
use super::{Encoder, QuantEncode, QuantFormat, Unpacked, search};
use crate::DType;

pub(super) struct Q4_1;

const LEN: usize = 32;
const BYTES: usize = 20;
const _: () = assert!(BYTES == 2 + 2 + LEN / 2);

impl QuantFormat for Q4_1 {
    const DTYPE: DType = DType::Q4_1;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<Q4_1>());

    /// The minimum is stored as an addend; subtracting its negative one time is the same operation.
    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f16_at(block, 0));
        out.dmin = -f16_at(block, 2);
        out.mins[0] = 1;
        let (low, high) = out.codes[..LEN].split_at_mut(16);
        split_nibbles(&block[4..], 0, low, high);
    }
}

impl QuantEncode for Q4_1 {
    /// Scale and minimum by [`search::encode_affine`], codes for both as stored.
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]) {
        let mut codes = [0; LEN];
        let (d, m) = search::encode_affine(x, importance, 15, &mut codes);
        block[..2].copy_from_slice(&d.to_le_bytes());
        block[2..4].copy_from_slice(&m.to_le_bytes());
        join_nibbles(&codes[..16], &codes[16..], &mut block[4..]);
    }
}
