//! `Q8_1`: 32 values of 8 bits with one scale and, for products with types that have a minimum, the scaled sum
//! of the codes. ggml makes it of activations; no file is known to hold it.
//!
//! ```text
//! byte  0..1     2..3                       4..35
//!       d: f16   s: f16 = d * sum of q[i]   q[0..32]: i8
//!
//! value i = d * q[i]
//! ```
//!
//! Until 2024 both numbers were f32; gguf-py still lists the 40 bytes of that form.

use super::bits::f16_at;
use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct Q8_1;

const LEN: usize = 32;
const BYTES: usize = 36;
const _: () = assert!(BYTES == 2 + 2 + LEN);

impl QuantFormat for Q8_1 {
    const DTYPE: DType = DType::Q8_1;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f16_at(block, 0));
        for (code, &b) in out.codes.iter_mut().zip(&block[4..]) {
            *code = b as i8;
        }
    }
}
