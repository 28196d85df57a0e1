//! `IQ2_S`: super-blocks of 256 weights from a grid of 1024 points; sixteen sub-blocks of 16, each with a 4-bit
//! scale.
//!
//! ```text
//! byte  0..1     2..33        34..65         66..73      74..81
//!       d: f16   qs[0..32]    signs[0..32]   qh[0..8]    scales as in IQ2_XS
//!
//! Weights 8 g .. 8 g + 7, g = 0..31:  point = qs[g] + 256 * (bits 2l + 1, 2l of qh[g / 4], l = g % 4),
//!                                     signs = signs[g]
//!
//! weight i = (d / 8 * (2 * scale[s] + 1)) * (sign * grid),  s = i / 16
//! ```

use super::bits::f16_at;
use super::iq::{GRID_IQ2_S, odd_scales, put_signed};
use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct IQ2S;

const LEN: usize = 256;
const BYTES: usize = 82;
const _: () = assert!(BYTES == 2 + LEN / 8 + LEN / 8 + LEN / 32 + LEN / 32);

impl QuantFormat for IQ2S {
    const DTYPE: DType = DType::IQ2_S;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.scaled(LEN, 16, f16_at(block, 0) / 8.0);
        odd_scales(&block[74..], &mut out.scales);
        let groups = block[2..34].iter().zip(&block[34..66]).zip(out.codes.as_chunks_mut().0);
        for (g, ((&q, &signs), codes)) in groups.enumerate() {
            let high = block[66 + g / 4] >> (g % 4 * 2) & 3;
            put_signed(GRID_IQ2_S[usize::from(q) | usize::from(high) << 8], signs, codes);
        }
    }
}
