//! `IQ3_XXS`: super-blocks of 256 weights from a grid of 256 points; eight sub-blocks of 32, each with a 4-bit
//! scale.
//!
//! ```text
//! byte  0..1     2..65                 66..97
//!       d: f16   qs[0..64]: points     words[0..8]: u32, as in IQ2_XXS: scale[s], and signs of each 8 weights
//!
//! weight i = (d / 4 * (2 * scale[s] + 1)) * (sign * grid),  s = i / 32
//! ```
//!
//! A point is four weights.

use super::bits::f16_at;
use super::iq::{GRID_IQ3_XXS, even_signs, join, put_signed};
use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct IQ3Xxs;

const LEN: usize = 256;
const BYTES: usize = 98;
const _: () = assert!(BYTES == 2 + LEN / 4 + LEN / 32 * 4);

impl QuantFormat for IQ3Xxs {
    const DTYPE: DType = DType::IQ3_XXS;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.scaled(LEN, 32, f16_at(block, 0) / 4.0);
        let sub_blocks = block[2..66].as_chunks::<8>().0.iter().zip(block[66..].as_chunks().0);
        let places = out.codes.as_chunks_mut::<32>().0.iter_mut().zip(&mut out.scales);
        for ((qs, &word), (codes, scale)) in sub_blocks.zip(places) {
            let word = u32::from_le_bytes(word);
            *scale = 2 * (word >> 28) as i32 + 1;
            for (l, codes) in codes.as_chunks_mut().0.iter_mut().enumerate() {
                let [low, high] = [qs[2 * l], qs[2 * l + 1]].map(|q| GRID_IQ3_XXS[usize::from(q)]);
                put_signed(join(low, high), even_signs(word >> (7 * l)), codes);
            }
        }
    }
}
