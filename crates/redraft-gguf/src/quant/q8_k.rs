//! `Q8_K`: super-blocks of 256 values of 8 bits with one scale in f32 and the sums of the codes. ggml makes it of
//! activations; no file is known to hold it.
//!
//! ```text
//! byte  0..3     4..259           260..291
//!       d: f32   q[0..256]: i8    sums[0..16]: i16, of 16 codes each
//!
//! value i = d * q[i]
//! ```

use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct Q8K;

const LEN: usize = 256;
const BYTES: usize = 292;
const _: () = assert!(BYTES == 4 + LEN + LEN / 16 * 2);

impl QuantFormat for Q8K {
    const DTYPE: DType = DType::Q8_K;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f32::from_le_bytes([block[0], block[1], block[2], block[3]]));
        for (code, &b) in out.codes.iter_mut().zip(&block[4..260]) {
            *code = b as i8;
        }
    }
}
