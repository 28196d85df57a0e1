//! `Q1_0`: 128 weights of one bit with one scale.
//!
//! ```text
//! byte  0..1     2..17
//!       d: f16   qs[0..16]: bit i of qs[j] = code of weight 8 j + i
//!
//! weight i = d * (2 * code[i] - 1)
//! ```

use super::bits::f16_at;
use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct Q1_0;

const LEN: usize = 128;
const BYTES: usize = 18;
const _: () = assert!(BYTES == 2 + LEN / 8);

impl QuantFormat for Q1_0 {
    const DTYPE: DType = DType::Q1_0;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f16_at(block, 0));
        for (codes, &b) in out.codes.as_chunks_mut::<8>().0.iter_mut().zip(&block[2..]) {
            for (i, code) in codes.iter_mut().enumerate() {
                *code = 2 * (b >> i & 1) as i8 - 1;
            }
        }
    }
}
