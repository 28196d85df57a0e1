//! `IQ3_S`: super-blocks of 256 weights from a grid of 512 points; eight sub-blocks of 32, each with a 4-bit scale.
//!
//! ```text
//! byte  0..1     2..65        66..73      74..105        106..109
//!       d: f16   qs[0..64]    qh[0..8]    signs[0..32]   bits 3..0 of byte j = scale[2 j], bits 7..4 = scale[2 j + 1]
//!
//! Weights 4 p .. 4 p + 3, p = 0..63:  point = qs[p] + 256 * (bit p % 8 of qh[p / 8])
//! Weights 8 g .. 8 g + 7, g = 0..31:  signs = signs[g]
//!
//! weight i = (d * (2 * scale[s] + 1)) * (sign * grid),  s = i / 32
//! ```

use super::bits::f16_at;
use super::iq::{GRID_IQ3_S, join, odd_scales, put_signed};
use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct IQ3S;

const LEN: usize = 256;
const BYTES: usize = 110;
const _: () = assert!(BYTES == 2 + LEN / 4 + LEN / 32 + LEN / 8 + LEN / 64);

impl QuantFormat for IQ3S {
    const DTYPE: DType = DType::IQ3_S;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.scaled(LEN, 32, f16_at(block, 0));
        odd_scales(&block[106..], &mut out.scales[..8]);
        let groups = block[2..66].as_chunks::<2>().0.iter().zip(&block[74..106]);
        for (g, ((qs, &signs), codes)) in groups.zip(out.codes.as_chunks_mut().0).enumerate() {
            let high = usize::from(block[66 + g / 4]) >> (g % 4 * 2);
            let low = GRID_IQ3_S[usize::from(qs[0]) | (high & 1) << 8];
            put_signed(join(low, GRID_IQ3_S[usize::from(qs[1]) | (high & 2) << 7]), signs, codes);
        }
    }
}
