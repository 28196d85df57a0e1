//! `IQ1_M`: super-blocks of 256 weights from the grid of `IQ1_S`; sixteen sub-blocks of 16 with 3-bit scales, and
//! the sign of a shift for each 8 weights.
//!
//! ```text
//! byte  0..31        32..47       48..55
//!       qs[0..32]    qh[0..16]    words[0..4]: u16, bits 15..12 of word j = bits 4j + 3 .. 4j of d: f16,
//!                                 bits 3l + 2 .. 3l = scale[4 j + l], l = 0..3
//!
//! Weights 8 g .. 8 g + 7, g = 0..31; of qh[g / 2] bits 3..0 where g is even, bits 7..4 where it is odd:
//!     point = qs[g] + 256 * (lower three bits),  shift = the upper bit
//!
//! weight i = (d * (2 * scale[s] + 1)) * (grid + shift),  s = i / 16;  grid and shift as in IQ1_S
//! ```

use super::iq::{GRID_IQ1, put_shifted};
use super::{QuantFormat, Unpacked, f16_to_f32};
use crate::DType;

pub(super) struct IQ1M;

const LEN: usize = 256;
const BYTES: usize = 56;
const _: () = assert!(BYTES == LEN / 8 + LEN / 16 + LEN / 32);

impl QuantFormat for IQ1M {
    const DTYPE: DType = DType::IQ1_M;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        let mut d = 0;
        for (j, (&word, scales)) in
            block[48..].as_chunks().0.iter().zip(out.scales.as_chunks_mut::<4>().0).enumerate()
        {
            let word = u16::from_le_bytes(word);
            d |= word >> 12 << (4 * j);
            for (l, scale) in scales.iter_mut().enumerate() {
                *scale = 2 * i32::from(word >> (3 * l) & 7) + 1;
            }
        }
        out.scaled(LEN, 16, f16_to_f32(d) / 8.0);
        for (g, (&q, codes)) in block[..32].iter().zip(out.codes.as_chunks_mut().0).enumerate() {
            let high = block[32 + g / 2] >> (g % 2 * 4);
            put_shifted(GRID_IQ1[usize::from(q) | usize::from(high & 7) << 8], high & 8 != 0, codes);
        }
    }
}
