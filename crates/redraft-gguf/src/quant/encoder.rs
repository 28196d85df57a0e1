//! Encoders: what a type that can be written adds to its codec.

use super::{MAX_BLOCK_LEN, QuantFormat, check_lengths, search};
use crate::DType;

/// Encodes weights into blocks of one type. It comes from [`BlockCodec::encoder`](super::BlockCodec::encoder),
/// which has none for types that are only read.
#[derive(Debug, Clone, Copy)]
pub struct Encoder {
    dtype: DType,
    block_len: usize,
    block_bytes: usize,
    encode: EncodeFn,
}

/// Weights, importances, blocks; the lengths match.
type EncodeFn = fn(&[f32], Option<&[f32]>, &mut [u8]);

impl Encoder {
    /// The encoder of a quantized type.
    pub(super) const fn of<T: QuantEncode>() -> Encoder {
        Encoder { dtype: T::DTYPE, block_len: T::LEN, block_bytes: T::BYTES, encode: encode_blocks::<T> }
    }

    /// The encoder of a plain number of `bytes` bytes.
    pub(super) const fn plain(dtype: DType, bytes: usize, encode: EncodeFn) -> Encoder {
        Encoder { dtype, block_len: 1, block_bytes: bytes, encode }
    }

    /// The type that it writes.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Encodes weights into whole blocks.
    ///
    /// Quantized types choose scales that keep the sum of squared errors small, each square multiplied by
    /// its weight's importance in `weights` (one per weight of `src`, not negative) where that is given.
    /// They expect finite numbers: NaN is encoded as zero, and what lies beyond the range of the type
    /// (or beyond 10^9) becomes the largest value that fits. The result depends on nothing but the arguments.
    ///
    /// # Panics
    ///
    /// When `src` is not a whole number of blocks, or `weights` or `dst` have not the matching length.
    pub fn quantize(&self, src: &[f32], weights: Option<&[f32]>, dst: &mut [u8]) {
        check_lengths(self.dtype, (self.block_len, self.block_bytes), src.len(), dst.len());
        if let Some(w) = weights {
            assert_eq!(w.len(), src.len(), "one importance per weight");
        }
        (self.encode)(src, weights, dst);
    }
}

/// What a quantized type that can be written defines.
pub(super) trait QuantEncode: QuantFormat {
    /// Encodes `LEN` weights, prepared by [`search::prepare`], into `BYTES` bytes.
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]);
}

fn encode_blocks<T: QuantEncode>(src: &[f32], weights: Option<&[f32]>, dst: &mut [u8]) {
    let mut x = [0.0; MAX_BLOCK_LEN];
    let mut importance = [0.0; MAX_BLOCK_LEN];
    let (x, importance) = (&mut x[..T::LEN], &mut importance[..T::LEN]);
    for (i, (src, dst)) in src.chunks_exact(T::LEN).zip(dst.chunks_exact_mut(T::BYTES)).enumerate() {
        search::prepare(src, weights.map(|w| &w[i * T::LEN..(i + 1) * T::LEN]), x, importance);
        T::quantize_block(x, importance, dst);
    }
}
