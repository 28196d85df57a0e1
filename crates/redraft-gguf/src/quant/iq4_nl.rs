//! `IQ4_NL`: 32 weights of 4 bits with one scale; codes stand for sixteen numbers that are denser around zero.
//!
//! ```text
//! byte  0..1     2..17
//!       d: f16   qs[0..16]: bits 3..0 = code of weight j, bits 7..4 = code of weight j + 16
//!
//! weight i = d * table[code[i]]
//! ```

use super::bits::{f16_at, join_nibbles};
use super::codebook::Codebook;
use super::rows::{Rows, put_from_table};
use super::{Bias, CommonFormat, Encoder, QuantEncode, QuantFormat, Unpacked, search};
use crate::DType;

pub(super) struct IQ4Nl;

const LEN: usize = 32;
const BYTES: usize = 18;
const _: () = assert!(BYTES == 2 + LEN / 2);

/// The table of the type, from ggml.
pub(super) static TABLE: Codebook =
    Codebook::new([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]);

impl QuantFormat for IQ4Nl {
    const DTYPE: DType = DType::IQ4_NL;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<IQ4Nl>());

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f16_at(block, 0));
        let codes = &mut out.codes[..LEN];
        let (low, high) = codes.split_at_mut(16);
        TABLE.split(&block[2..], low, high);
    }
}

impl CommonFormat for IQ4Nl {
    const BIAS: Bias = Bias::Signed;

    #[inline(always)]
    fn unpack_rows<R: Rows>(rows: &mut R) {
        let head = rows.words(0);
        rows.put_d(head[0]);
        put_from_table(rows, TABLE.numbers(), 2, 0);
    }
}

impl QuantEncode for IQ4Nl {
    /// Scale by [`search::encode_symmetric`], codes for the scale as stored.
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]) {
        let mut codes = [0; LEN];
        let d = search::encode_symmetric(x, importance, &TABLE, &mut codes);
        TABLE.codes_of(&mut codes);
        block[..2].copy_from_slice(&d.to_le_bytes());
        join_nibbles(&codes[..16], &codes[16..], &mut block[2..]);
    }
}
