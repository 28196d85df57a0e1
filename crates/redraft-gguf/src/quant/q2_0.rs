//! `Q2_0`: 64 weights of two bits with one scale.
//!
//! ```text
//! byte  0..1     2..17
//!       d: f16   qs[0..16]: bits 2i + 1, 2i of qs[j] = code of weight 4 j + i
//!
//! weight i = d * (code[i] - 1)
//! ```

use super::bits::f16_at;
use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct Q2_0;

const LEN: usize = 64;
const BYTES: usize = 18;
const _: () = assert!(BYTES == 2 + LEN / 4);

impl QuantFormat for Q2_0 {
    const DTYPE: DType = DType::Q2_0;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f16_at(block, 0));
        for (codes, &b) in out.codes.as_chunks_mut::<4>().0.iter_mut().zip(&block[2..]) {
            for (i, code) in codes.iter_mut().enumerate() {
                *code = (b >> (2 * i) & 3) as i8 - 1;
            }
        }
    }
}
