//! `Q8_0`: 32 weights of 8 bits with one scale.
//!
//! ```text
//! byte  0..1     2..33
//!       d: f16   q[0..32]: i8
//!
//! weight i = d * q[i]
//! ```

use super::{QuantFormat, Unpacked, f16_at, f32_to_f16};
use crate::DType;

pub(super) struct Q8_0;

const LEN: usize = 32;
const BYTES: usize = 34;
const _: () = assert!(BYTES == 2 + LEN);

impl QuantFormat for Q8_0 {
    const DTYPE: DType = DType::Q8_0;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f16_at(block, 0));
        for (code, &b) in out.codes.iter_mut().zip(&block[2..]) {
            *code = b as i8;
        }
    }

    /// The method of every other writer of this type, so that the same weights give the same bytes: the
    /// scale takes the largest magnitude to 127, codes are rounded half away from zero, with the scale before
    /// its rounding to f16. At eight bits a search for a better scale gains next to nothing.
    fn quantize_block(x: &[f32], _importance: &[f32], block: &mut [u8]) {
        let d = x.iter().fold(0.0, |m: f32, v| m.max(v.abs())) / 127.0;
        // Blocks whose scale f16 cannot hold.
        let inverse = if d > 0.0 { 1.0 / d } else { 0.0 };
        block[..2].copy_from_slice(&super::search::f16_scale(d).to_le_bytes());
        for (b, v) in block[2..].iter_mut().zip(x) {
            *b = (v * inverse).round() as i8 as u8;
        }
        debug_assert!(f32_to_f16(d) < 0x7C00 || d >= 65_504.0);
    }
}
