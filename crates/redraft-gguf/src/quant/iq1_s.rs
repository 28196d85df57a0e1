//! `IQ1_S`: super-blocks of 256 weights from a ternary grid of 2048 points; eight sub-blocks of 32, each with a
//! 3-bit scale and the sign of a shift.
//!
//! ```text
//! byte  0..1     2..33        34..49
//!       d: f16   qs[0..32]    qh[0..8]: u16, bit 15 = shift[s], 14..12 = scale[s], below that bits of points
//!
//! Weights 8 g .. 8 g + 7, g = 0..31, s = g / 4, l = g % 4:
//!     point = qs[g] + 256 * (bits 3l + 2 .. 3l of qh[s])
//!
//! weight i = (d * (2 * scale[s] + 1)) * (grid + shift),  grid = -1, 0, 1,  shift = 1/8, or -1/8 where its bit is set
//! ```
//!
//! The codes are eight times the sum, and `d` an eighth.

use super::bits::f16_at;
use super::iq::{GRID_IQ1, put_shifted};
use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct IQ1S;

const LEN: usize = 256;
const BYTES: usize = 50;
const _: () = assert!(BYTES == 2 + LEN / 8 + LEN / 32 * 2);

impl QuantFormat for IQ1S {
    const DTYPE: DType = DType::IQ1_S;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.scaled(LEN, 32, f16_at(block, 0) / 8.0);
        let sub_blocks = block[2..34].as_chunks::<4>().0.iter().zip(block[34..].as_chunks().0);
        let places = out.codes.as_chunks_mut::<32>().0.iter_mut().zip(&mut out.scales);
        for ((qs, &word), (codes, scale)) in sub_blocks.zip(places) {
            let word = u16::from_le_bytes(word);
            *scale = 2 * i32::from(word >> 12 & 7) + 1;
            for (l, (&q, codes)) in qs.iter().zip(codes.as_chunks_mut().0).enumerate() {
                let point = usize::from(q) | usize::from(word >> (3 * l) & 7) << 8;
                put_shifted(GRID_IQ1[point], word >> 15 == 1, codes);
            }
        }
    }
}
