//! Block codecs: from stored bytes to integers and floats, and back.
//!
//! A quantized type stores weights in *blocks* of 32 or *super-blocks* of 256. [`BlockCodec::unpack`] gives
//! the integers of one block in a form that is the same for all types, [`Unpacked`]; the value of a weight
//! is defined by one formula over it. A matrix product is written once over that form and then works for
//! every type.
//!
//! | type | bits per weight | weights per scale | form |
//! |---|---|---|---|
//! | `F32`, `F16`, `BF16` | 32, 16, 16 | - | plain floats |
//! | `Q8_0` | 8.5 | 32 | d·q |
//! | `Q4_0`, `Q5_0` | 4.5, 5.5 | 32 | d·q |
//! | `Q5_1` | 6 | 32 | d·q + m |
//! | `Q4_K`, `Q5_K` | 4.5, 5.5 | 32 in 256 | (d·scale)·q − (dmin·min) |
//! | `Q6_K` | 6.5625 | 16 in 256 | (d·scale)·q |

use crate::DType;

mod bf16;
mod f16;
mod f32;
mod k_scales;
mod q4_0;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod search;

pub use bf16::{bf16_to_f32, f32_to_bf16};
pub use f16::{f16_to_f32, f32_to_f16};

/// Weights of the largest block.
pub const MAX_BLOCK_LEN: usize = 256;

/// Sub-blocks of a block at most.
pub const MAX_SUB_BLOCKS: usize = 16;

/// One block of a quantized type as integers.
///
/// The block holds `len` weights in sub-blocks of `sub_len`. Weight `i`, in sub-block `s = i / sub_len`, has
/// the value
///
/// ```text
/// (d * scales[s]) * codes[i] - (dmin * mins[s])
/// ```
///
/// in f32, each of the four operations rounded once. Types without a minimum have `dmin` and `mins` zero,
/// types without sub-block scales have one sub-block of scale 1; both leave the bits of the result as the
/// shorter formula of the type gives them.
///
/// Array elements beyond `len` and beyond the number of sub-blocks are not meaningful.
#[derive(Debug, Clone, PartialEq)]
pub struct Unpacked {
    /// Weights in the block.
    pub len: usize,
    /// Weights in a sub-block.
    pub sub_len: usize,
    /// Super-block scale.
    pub d: f32,
    /// Super-block scale of the minima.
    pub dmin: f32,
    /// Sub-block scales.
    pub scales: [i8; MAX_SUB_BLOCKS],
    /// Sub-block minima, subtracted.
    pub mins: [u8; MAX_SUB_BLOCKS],
    /// Integer codes of the weights.
    pub codes: [i8; MAX_BLOCK_LEN],
}

impl Unpacked {
    /// An empty block, to be filled by [`BlockCodec::unpack`].
    pub const fn new() -> Unpacked {
        Unpacked {
            len: 0,
            sub_len: 1,
            d: 0.0,
            dmin: 0.0,
            scales: [0; MAX_SUB_BLOCKS],
            mins: [0; MAX_SUB_BLOCKS],
            codes: [0; MAX_BLOCK_LEN],
        }
    }

    /// Number of sub-blocks.
    pub fn n_sub_blocks(&self) -> usize {
        self.len / self.sub_len
    }

    /// The codes of the block's weights.
    pub fn codes(&self) -> &[i8] {
        &self.codes[..self.len]
    }

    /// True when a sub-block has a minimum other than zero, so that the second half of the formula matters.
    pub fn has_mins(&self) -> bool {
        self.mins[..self.n_sub_blocks()].iter().any(|&m| m != 0)
    }

    /// Writes the values of the block's weights, by the formula of the type.
    ///
    /// # Panics
    ///
    /// When `out` is not `len` long.
    pub fn dequantize(&self, out: &mut [f32]) {
        assert_eq!(out.len(), self.len, "one value per weight of the block");
        let sub_blocks = self.codes().chunks_exact(self.sub_len).zip(out.chunks_exact_mut(self.sub_len));
        for (s, (codes, values)) in sub_blocks.enumerate() {
            let scale = self.d * f32::from(self.scales[s]);
            let min = self.dmin * f32::from(self.mins[s]);
            for (value, &code) in values.iter_mut().zip(codes) {
                *value = scale * f32::from(code) - min;
            }
        }
    }

    /// Starts a block of one sub-block with scale 1 and no minimum.
    fn single(&mut self, len: usize, d: f32) {
        self.len = len;
        self.sub_len = len;
        self.d = d;
        self.dmin = 0.0;
        self.scales[0] = 1;
        self.mins[0] = 0;
    }
}

impl Default for Unpacked {
    fn default() -> Self {
        Unpacked::new()
    }
}

/// One tensor type: how its blocks are read and written.
///
/// ```
/// use redraft_gguf::{DType, codec};
///
/// let q8 = codec(DType::Q8_0).unwrap();
/// let weights: Vec<f32> = (0..32).map(|i| i as f32 / 31.0).collect();
/// let mut block = [0; 34];
/// q8.quantize(&weights, None, &mut block);
/// let mut back = [0.0; 32];
/// q8.dequantize(&block, &mut back);
/// assert!(weights.iter().zip(back).all(|(w, b)| (w - b).abs() < 1.0 / 254.0 + 1e-3));
/// ```
pub trait BlockCodec: Sync + Send {
    /// The type.
    fn dtype(&self) -> DType;

    /// Weights per block; 1 for plain floats.
    fn block_len(&self) -> usize;

    /// Bytes per block.
    fn block_bytes(&self) -> usize;

    /// Unpacks one block into its canonical integer form and returns true. Plain floats have no integers:
    /// for them the result is false and `out` stays as it was.
    ///
    /// # Panics
    ///
    /// When `block` is not [`block_bytes`](Self::block_bytes) long.
    fn unpack(&self, block: &[u8], out: &mut Unpacked) -> bool;

    /// Writes the exact values of whole blocks.
    ///
    /// # Panics
    ///
    /// When `src` is not a whole number of blocks, or `dst` has not one place per weight.
    fn dequantize(&self, src: &[u8], dst: &mut [f32]);

    /// Encodes weights into whole blocks.
    ///
    /// Quantized types choose scales that keep the sum of squared errors small, each square multiplied by
    /// its weight's importance in `weights` (one per weight of `src`, not negative) where that is given.
    /// They expect finite numbers: NaN is encoded as zero, and what lies beyond the range of the type
    /// becomes the largest value that fits. The result depends on nothing but the arguments.
    ///
    /// # Panics
    ///
    /// When `src` is not a whole number of blocks, or `weights` or `dst` have not the matching length.
    fn quantize(&self, src: &[f32], weights: Option<&[f32]>, dst: &mut [u8]);
}

/// All codecs, in ascending order of the type's id.
pub static CODECS: &[&dyn BlockCodec] = &[
    &f32::F32,
    &f16::F16,
    &q4_0::Q4_0,
    &q5_0::Q5_0,
    &q5_1::Q5_1,
    &q8_0::Q8_0,
    &q4_k::Q4K,
    &q5_k::Q5K,
    &q6_k::Q6K,
    &bf16::BF16,
];

/// The codec of a type, `None` when the crate has none.
pub fn codec(dtype: DType) -> Option<&'static dyn BlockCodec> {
    CODECS.iter().find(|c| c.dtype() == dtype).copied()
}

/// What a quantized type defines; [`BlockCodec`] follows from it.
trait QuantFormat: Sync + Send {
    const DTYPE: DType;
    /// Weights per block.
    const LEN: usize;
    /// Bytes per block.
    const BYTES: usize;

    /// Unpacks a block of `BYTES` bytes.
    fn unpack_block(block: &[u8], out: &mut Unpacked);

    /// Encodes `LEN` weights, prepared by [`search::prepare`], into `BYTES` bytes.
    fn quantize_block(x: &[f32], importance: &[f32], block: &mut [u8]);
}

impl<T: QuantFormat> BlockCodec for T {
    fn dtype(&self) -> DType {
        T::DTYPE
    }

    fn block_len(&self) -> usize {
        T::LEN
    }

    fn block_bytes(&self) -> usize {
        T::BYTES
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked) -> bool {
        assert_eq!(block.len(), T::BYTES, "one block of {}", T::DTYPE);
        T::unpack_block(block, out);
        true
    }

    fn dequantize(&self, src: &[u8], dst: &mut [f32]) {
        check_lengths(T::DTYPE, (T::LEN, T::BYTES), dst.len(), src.len());
        let mut block = Unpacked::new();
        for (src, dst) in src.chunks_exact(T::BYTES).zip(dst.chunks_exact_mut(T::LEN)) {
            T::unpack_block(src, &mut block);
            block.dequantize(dst);
        }
    }

    fn quantize(&self, src: &[f32], weights: Option<&[f32]>, dst: &mut [u8]) {
        check_lengths(T::DTYPE, (T::LEN, T::BYTES), src.len(), dst.len());
        if let Some(w) = weights {
            assert_eq!(w.len(), src.len(), "one importance per weight");
        }
        let mut x = [0.0; MAX_BLOCK_LEN];
        let mut importance = [0.0; MAX_BLOCK_LEN];
        let (x, importance) = (&mut x[..T::LEN], &mut importance[..T::LEN]);
        for (i, (src, dst)) in src.chunks_exact(T::LEN).zip(dst.chunks_exact_mut(T::BYTES)).enumerate() {
            search::prepare(src, weights.map(|w| &w[i * T::LEN..(i + 1) * T::LEN]), x, importance);
            T::quantize_block(x, importance, dst);
        }
    }
}

/// Checks that `n_bytes` bytes are whole blocks and hold `n_weights` weights.
fn check_lengths(dtype: DType, (len, bytes): (usize, usize), n_weights: usize, n_bytes: usize) {
    assert!(
        n_bytes.is_multiple_of(bytes) && n_bytes / bytes * len == n_weights,
        "{dtype}: {n_weights} weights are not the content of {n_bytes} bytes in blocks of {len} weights and {bytes} bytes"
    );
}

/// The f16 number at byte `at` of a block.
fn f16_at(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Splits bytes into their lower and upper four bits.
fn split_nibbles(bytes: &[u8], low: &mut [i8], high: &mut [i8]) {
    for ((&b, l), h) in bytes.iter().zip(low).zip(high) {
        *l = (b & 15) as i8;
        *h = (b >> 4) as i8;
    }
}

/// Joins the lower four bits of two codes into one byte each.
fn join_nibbles(low: &[i8], high: &[i8], bytes: &mut [u8]) {
    for ((b, &l), &h) in bytes.iter_mut().zip(low).zip(high) {
        *b = (l as u8 & 15) | (h as u8) << 4;
    }
}
