//! `F32`: plain 32-bit floats, little-endian.

use super::{BlockCodec, Unpacked, check_lengths};
use crate::DType;

pub(super) struct F32;

impl BlockCodec for F32 {
    fn dtype(&self) -> DType {
        DType::F32
    }

    fn block_len(&self) -> usize {
        1
    }

    fn block_bytes(&self) -> usize {
        4
    }

    fn unpack(&self, block: &[u8], _out: &mut Unpacked) -> bool {
        assert_eq!(block.len(), 4, "one block of F32");
        false
    }

    fn dequantize(&self, src: &[u8], dst: &mut [f32]) {
        check_lengths(DType::F32, (1, 4), dst.len(), src.len());
        for (&b, x) in src.as_chunks::<4>().0.iter().zip(dst) {
            *x = f32::from_le_bytes(b);
        }
    }

    fn quantize(&self, src: &[f32], _weights: Option<&[f32]>, dst: &mut [u8]) {
        check_lengths(DType::F32, (1, 4), src.len(), dst.len());
        for (x, b) in src.iter().zip(dst.as_chunks_mut::<4>().0) {
            *b = x.to_le_bytes();
        }
    }
}
