//! What the types without blocks share: each number is decoded on its own.

use std::marker::PhantomData;

use super::{BlockCodec, Encoder, Unpacked, check_lengths};
use crate::DType;

/// A number of `N` bytes.
pub(super) trait PlainFormat<const N: usize>: Sync + Send + 'static {
    const DTYPE: DType;
    /// How it is written; `None` for types that are only read.
    const ENCODE: Option<fn(f32) -> [u8; N]> = None;

    /// The value, rounded once where f32 does not have it.
    fn decode(bytes: [u8; N]) -> f32;
}

/// The codec of a plain number.
pub(super) struct Plain<T, const N: usize>(PhantomData<T>);

impl<T, const N: usize> Plain<T, N> {
    pub(super) const fn new() -> Self {
        Plain(PhantomData)
    }
}

impl<T: PlainFormat<N>, const N: usize> BlockCodec for Plain<T, N> {
    fn dtype(&self) -> DType {
        T::DTYPE
    }

    fn block_len(&self) -> usize {
        1
    }

    fn block_bytes(&self) -> usize {
        N
    }

    fn unpack(&self, block: &[u8], _out: &mut Unpacked) -> bool {
        assert_eq!(block.len(), N, "one block of {}", T::DTYPE);
        false
    }

    fn dequantize(&self, src: &[u8], dst: &mut [f32]) {
        check_lengths(T::DTYPE, (1, N), dst.len(), src.len());
        for (&b, x) in src.as_chunks::<N>().0.iter().zip(dst) {
            *x = T::decode(b);
        }
    }

    fn encoder(&self) -> Option<Encoder> {
        T::ENCODE.map(|_| Encoder::plain(T::DTYPE, N, encode::<T, N>))
    }
}

fn encode<T: PlainFormat<N>, const N: usize>(src: &[f32], _weights: Option<&[f32]>, dst: &mut [u8]) {
    let encode = T::ENCODE.expect("made for types that are written");
    for (&x, b) in src.iter().zip(dst.as_chunks_mut::<N>().0) {
        *b = encode(x);
    }
}
