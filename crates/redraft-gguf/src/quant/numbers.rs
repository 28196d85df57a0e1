//! `F64` and the integers `I8`, `I16`, `I32`, `I64`: plain numbers, little-endian, read only.
//!
//! They are decoded to the nearest f32, ties to even. Magnitudes of integers above 2^24, and most of F64, have
//! no f32 of their own and are rounded, once; F64 beyond the range of f32 becomes infinite or zero.

use super::plain::{Plain, PlainFormat};
use crate::DType;

macro_rules! numbers {
    ($($name:ident = $ty:ty, $bytes:literal;)*) => {
        $(
            pub(super) struct $name;

            impl PlainFormat<$bytes> for $name {
                const DTYPE: DType = DType::$name;

                fn decode(bytes: [u8; $bytes]) -> f32 {
                    <$ty>::from_le_bytes(bytes) as f32
                }
            }

            impl $name {
                pub(super) const CODEC: Plain<$name, $bytes> = Plain::new();
            }
        )*
    };
}

numbers! {
    I8 = i8, 1;
    I16 = i16, 2;
    I32 = i32, 4;
    I64 = i64, 8;
    F64 = f64, 8;
}
