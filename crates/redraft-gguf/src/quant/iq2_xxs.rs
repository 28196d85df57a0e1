//! `IQ2_XXS`: super-blocks of 256 weights from a grid of 256 points; eight sub-blocks of 32, each with a 4-bit
//! scale.
//!
//! ```text
//! byte  0..1     2..65: for each sub-block s, 8 bytes
//!       d: f16   point[0..4]: u8    u32: bits 31..28 = scale[s], bits 7 l + 6 .. 7 l = signs of point l
//!
//! weight i = (d / 8 * (2 * scale[s] + 1)) * (sign * grid),  s = i / 32
//! ```
//!
//! A point is eight weights. Of their signs the first seven are stored; the eighth makes the number of negative
//! ones even.

use super::bits::f16_at;
use super::iq::{GRID_IQ2_XXS, even_signs, put_signed};
use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct IQ2Xxs;

const LEN: usize = 256;
const BYTES: usize = 66;
const _: () = assert!(BYTES == 2 + LEN / 4);

impl QuantFormat for IQ2Xxs {
    const DTYPE: DType = DType::IQ2_XXS;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.scaled(LEN, 32, f16_at(block, 0) / 8.0);
        let sub_blocks = block[2..].as_chunks::<8>().0.iter().zip(out.codes.as_chunks_mut::<32>().0);
        for ((b, codes), scale) in sub_blocks.zip(&mut out.scales) {
            let word = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
            *scale = 2 * (word >> 28) as i32 + 1;
            for (l, codes) in codes.as_chunks_mut().0.iter_mut().enumerate() {
                put_signed(GRID_IQ2_XXS[usize::from(b[l])], even_signs(word >> (7 * l)), codes);
            }
        }
    }
}
