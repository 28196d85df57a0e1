//! `Q4_0`: 32 weights of 4 bits with one scale.
//!
//! ```text
//! byte  0..1     2..17
//!       d: f16   qs[0..16]: bits 3..0 = code of weight j, bits 7..4 = code of weight j + 16
//!
//! weight i = d * (code[i] - 8)
//! ```

use super::bits::{f16_at, join_nibbles, split_nibbles};
use super::rows::{Rows, put_nibbles};
use super::{Bias, CommonFormat, Encoder, QuantEncode, QuantFormat, Unpacked, search};
use crate::DType;

pub(super) struct Q4_0;

const LEN: usize = 32;
const BYTES: usize = 18;
const _: () = assert!(BYTES == 2 + LEN / 2);

impl QuantFormat for Q4_0 {
    const DTYPE: DType = DType::Q4_0;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<Q4_0>());

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f16_at(block, 0));
        let codes = &mut out.codes[..LEN];
        let (low, high) = codes.split_at_mut(16);
        split_nibbles(&block[2..], 8, low, high);
    }
}

impl CommonFormat for Q4_0 {
    const BIAS: Bias = Bias::Added(8);

    #[inline(always)]
    fn unpack_rows<R: Rows>(rows: &mut R) {
        let head = rows.words(0);
        rows.put_d(head[0]);
        put_nibbles(rows, 2, 0, 4);
    }
}

impl QuantEncode for Q4_0 {
    /// Scale by [`search::fit_scale`], codes for the scale as stored.
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]) {
        let mut codes = [0; LEN];
        let d = search::encode_symmetric(x, importance, search::Range::signed(8), &mut codes);
        codes.iter_mut().for_each(|c| *c += 8);
        block[..2].copy_from_slice(&d.to_le_bytes());
        join_nibbles(&codes[..16], &codes[16..], &mut block[2..]);
    }
}
