//! `F32`: plain 32-bit floats, little-endian.

use super::plain::{Plain, PlainFormat};
use crate::DType;

pub(super) struct F32;

impl F32 {
    pub(super) const CODEC: Plain<F32, 4> = Plain::new();
}

impl PlainFormat<4> for F32 {
    const DTYPE: DType = DType::F32;
    const ENCODE: Option<fn(f32) -> [u8; 4]> = Some(f32::to_le_bytes);

    fn decode(bytes: [u8; 4]) -> f32 {
        f32::from_le_bytes(bytes)
    }
}
