//! `Q5_1`: 32 weights of 5 bits with a scale and a minimum.
//!
//! ```text
//! byte  0..1     2..3     4..7                                 8..23
//!       d: f16   m: f16   qh: u32, bit i = bit 4 of code[i]    qs[0..16]: low bits, as in Q5_0
//!
//! weight i = d * code[i] + m
//! ```

use super::bits::f16_at;
use super::q5_0::{pack_five_bits, unpack_five_bits};
use super::rows::{Rows, put_five_bits};
use super::{Bias, CommonFormat, Encoder, QuantEncode, QuantFormat, Unpacked, search};
use crate::DType;

pub(super) struct Q5_1;

const LEN: usize = 32;
const BYTES: usize = 24;
const _: () = assert!(BYTES == 2 + 2 + 4 + LEN / 2);

impl QuantFormat for Q5_1 {
    const DTYPE: DType = DType::Q5_1;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<Q5_1>());

    /// The minimum is stored as an addend; subtracting its negative one time is the same operation.
    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f16_at(block, 0));
        out.dmin = -f16_at(block, 2);
        out.mins[0] = 1;
        let codes = &mut out.codes[..LEN];
        unpack_five_bits(&block[4..], 0, codes);
    }
}

impl CommonFormat for Q5_1 {
    const BIAS: Bias = Bias::Added(0);

    #[inline(always)]
    fn unpack_rows<R: Rows>(rows: &mut R) {
        let head = rows.words(0);
        rows.put_d(head[0]);
        let (min, one) = (rows.shr(head[0], 16), rows.all(1));
        rows.put_dmin(min, true);
        rows.put_mins(0, one);
        put_five_bits(rows, 8, head[1]);
    }
}

impl QuantEncode for Q5_1 {
    /// Scale and minimum by [`search::fit_affine`], codes for both as stored.
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]) {
        let mut codes = [0; LEN];
        let (d, m) = search::encode_affine(x, importance, 31, &mut codes);
        block[..2].copy_from_slice(&d.to_le_bytes());
        block[2..4].copy_from_slice(&m.to_le_bytes());
        pack_five_bits(&codes, &mut block[4..]);
    }
}
