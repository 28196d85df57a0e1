//! `IQ2_XS`: super-blocks of 256 weights from a grid of 512 points; sixteen sub-blocks of 16, each with a 4-bit
//! scale.
//!
//! ```text
//! byte  0..1     2..65                                66..73
//!       d: f16   qs[0..32]: u16, for each 8 weights   bits 3..0 of byte j = scale[2 j],
//!                bits 8..0 = point, 15..9 = signs     bits 7..4 = scale[2 j + 1]
//!
//! weight i = (d / 8 * (2 * scale[s] + 1)) * (sign * grid),  s = i / 16;  signs as in IQ2_XXS
//! ```

use super::bits::f16_at;
use super::iq::{GRID_IQ2_XS, even_signs, odd_scales, put_signed};
use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct IQ2Xs;

const LEN: usize = 256;
const BYTES: usize = 74;
const _: () = assert!(BYTES == 2 + LEN / 8 * 2 + LEN / 32);

impl QuantFormat for IQ2Xs {
    const DTYPE: DType = DType::IQ2_XS;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.scaled(LEN, 16, f16_at(block, 0) / 8.0);
        odd_scales(&block[66..], &mut out.scales);
        for (&q, codes) in block[2..66].as_chunks().0.iter().zip(out.codes.as_chunks_mut().0) {
            let q = u16::from_le_bytes(q);
            put_signed(GRID_IQ2_XS[usize::from(q & 511)], even_signs(u32::from(q >> 9)), codes);
        }
    }
}
