//! Block codecs: from stored bytes to integers and floats, and back.
//!
//! A quantized type stores weights in *blocks* of 32 to 128 or *super-blocks* of 256. [`BlockCodec::unpack`] gives
//! the integers of one block in a form that is the same for all types, [`Unpacked`]; the value of a weight
//! is defined by one formula over it. A matrix product is written once over that form and then works for
//! every type.
//!
//! | type | bits per weight | weights per scale | form | written |
//! |---|---|---|---|---|
//! | `F32`, `F16`, `BF16` | 32, 16, 16 | - | plain floats | yes |
//! | `F64`, `I8`, `I16`, `I32`, `I64` | 64, 8, 16, 32, 64 | - | plain numbers, rounded once to f32 | no |
//! | `Q8_0`; `Q8_1` | 8.5; 9 | 32 | d·q | `Q8_0` |
//! | `Q4_0`, `Q5_0` | 4.5, 5.5 | 32 | d·q | yes |
//! | `Q4_1`, `Q5_1` | 5, 6 | 32 | d·q + m | yes |
//! | `Q1_0`, `Q2_0` | 1.125, 2.25 | 128, 64 | d·q | no |
//! | `Q2_K` | 2.625 | 16 in 256 | (d·scale)·q − (dmin·min) | yes |
//! | `Q4_K`, `Q5_K` | 4.5, 5.5 | 32 in 256 | (d·scale)·q − (dmin·min) | yes |
//! | `Q3_K`, `Q6_K` | 3.4375, 6.5625 | 16 in 256 | (d·scale)·q | yes |
//! | `Q8_K` | 9.125 | 256 | d·q, d in f32 | no |
//! | `IQ4_NL` | 4.5 | 32 | d·q, q from a table of 16 | yes |
//! | `IQ4_XS` | 4.25 | 32 in 256 | (d·scale)·q, q from a table of 16 | yes |
//! | `IQ1_S`, `IQ2_XXS`, `IQ3_XXS`, `IQ3_S` | 1.5625, 2.0625, 3.0625, 3.4375 | 32 in 256 | (d·scale)·q, q from a grid | no |
//! | `IQ1_M`, `IQ2_XS`, `IQ2_S` | 1.75, 2.3125, 2.5625 | 16 in 256 | (d·scale)·q, q from a grid | no |
//! | `TQ1_0`, `TQ2_0` | 1.6875, 2.0625 | 256 | d·q | no |
//! | `MXFP4` | 4.25 | 32 | d·q, d a power of two | yes |
//! | `NVFP4` | 4.5 | 16 in 64 | (d·scale)·q, the scale a float of 8 bits | no |

use crate::DType;

mod bf16;
mod bits;
mod codebook;
mod encoder;
mod f16;
mod f32;
mod iq;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod iq_grids;
mod k_scales;
mod mxfp4;
mod numbers;
mod nvfp4;
mod plain;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_1;
mod q8_k;
mod rows;
mod search;
mod tq1_0;
mod tq2_0;

use encoder::QuantEncode;

pub use bf16::{bf16_to_f32, f32_to_bf16};
pub use encoder::Encoder;
pub use f16::{f16_to_f32, f32_to_f16};
pub use rows::Rows;

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
    /// Sub-block scales, below 2^24 in magnitude, so that f32 has them exactly. All but those of `NVFP4` fit
    /// eight bits.
    pub scales: [i32; MAX_SUB_BLOCKS],
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

    /// The codes of the block's weights.
    pub fn codes(&self) -> &[i8] {
        &self.codes[..self.len]
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
            let scale = self.d * self.scales[s] as f32;
            let min = self.dmin * f32::from(self.mins[s]);
            for (value, &code) in values.iter_mut().zip(codes) {
                *value = scale * f32::from(code) - min;
            }
        }
    }

    /// Starts a block of one sub-block with scale 1 and no minimum.
    #[inline(always)]
    fn single(&mut self, len: usize, d: f32) {
        self.scaled(len, len, d);
        self.scales[0] = 1;
    }

    /// Starts a block of sub-blocks whose scales follow, without minima.
    #[inline(always)]
    fn scaled(&mut self, len: usize, sub_len: usize, d: f32) {
        (self.len, self.sub_len) = (len, sub_len);
        (self.d, self.dmin) = (d, 0.0);
        self.mins = [0; MAX_SUB_BLOCKS];
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
/// q8.encoder().unwrap().quantize(&weights, None, &mut block);
/// let mut back = [0.0; 32];
/// q8.dequantize(&block, &mut back);
/// assert!(weights.iter().zip(back).all(|(w, b)| (w - b).abs() < 1.0 / 254.0 + 1e-3));
/// // Some types are only read.
/// assert!(codec(DType::IQ2_XS).unwrap().encoder().is_none());
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

    /// How weights are written in this type; `None` for types that are only read.
    fn encoder(&self) -> Option<Encoder>;
}

/// All codecs, in ascending order of the type's id.
pub static CODECS: &[&dyn BlockCodec] = &[
    &f32::F32::CODEC,
    &f16::F16::CODEC,
    &q4_0::Q4_0,
    &q4_1::Q4_1,
    &q5_0::Q5_0,
    &q5_1::Q5_1,
    &q8_0::Q8_0,
    &q8_1::Q8_1,
    &q2_k::Q2K,
    &q3_k::Q3K,
    &q4_k::Q4K,
    &q5_k::Q5K,
    &q6_k::Q6K,
    &q8_k::Q8K,
    &iq2_xxs::IQ2Xxs,
    &iq2_xs::IQ2Xs,
    &iq3_xxs::IQ3Xxs,
    &iq1_s::IQ1S,
    &iq4_nl::IQ4Nl,
    &iq3_s::IQ3S,
    &iq2_s::IQ2S,
    &iq4_xs::IQ4Xs,
    &numbers::I8::CODEC,
    &numbers::I16::CODEC,
    &numbers::I32::CODEC,
    &numbers::I64::CODEC,
    &numbers::F64::CODEC,
    &iq1_m::IQ1M,
    &bf16::BF16::CODEC,
    &tq1_0::TQ1_0,
    &tq2_0::TQ2_0,
    &mxfp4::Mxfp4,
    &nvfp4::Nvfp4,
    &q1_0::Q1_0,
    &q2_0::Q2_0,
];

/// The codec of a type; `None` for ids that are in no table of types.
pub fn codec(dtype: DType) -> Option<&'static dyn BlockCodec> {
    CODECS.iter().find(|c| c.dtype() == dtype).copied()
}

/// What a quantized type defines; [`BlockCodec`] follows from it.
///
/// Code that unpacks many blocks takes the type as a parameter, by [`visit_format`]: the layout is then compiled into
/// the loop over the blocks, for the instruction set of that loop.
pub trait QuantFormat: Sync + Send {
    /// The type.
    const DTYPE: DType;
    /// Weights per block.
    const LEN: usize;
    /// Bytes per block.
    const BYTES: usize;

    /// How it is written; `None` for types that are only read.
    const ENCODER: Option<Encoder> = None;

    /// Unpacks a block of `BYTES` bytes; a shorter one panics.
    fn unpack_block(block: &[u8], out: &mut Unpacked);
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

    fn encoder(&self) -> Option<Encoder> {
        T::ENCODER
    }
}

/// What is added to codes by [`CommonFormat::unpack_rows`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bias {
    /// This, so that they lie in 0 ..= 127.
    Added(u8),
    /// Nothing: they are bytes with a sign.
    #[default]
    Signed,
}

/// A type that most published files consist of: blocks of several rows are unpacked side by side.
pub trait CommonFormat: QuantFormat {
    /// What is added to the codes.
    const BIAS: Bias;

    /// Unpacks a block of each row.
    fn unpack_rows<R: Rows>(rows: &mut R);
}

/// What is done with a format.
pub trait FormatVisitor {
    /// What comes of it.
    type Output;

    /// Called with the format as `F`.
    fn visit<F: CommonFormat>(self) -> Self::Output;
}

/// Calls the visitor with the format of a type, if it is one of [`CommonFormat`]: `Q4_0`, `Q5_0`, `Q5_1`, `Q8_0`,
/// `Q2_K` to `Q6_K`, `IQ4_NL`, `IQ4_XS`, `MXFP4`. Other types have their [`BlockCodec`].
#[inline(always)]
pub fn visit_format<V: FormatVisitor>(dtype: DType, visitor: V) -> Option<V::Output> {
    Some(match dtype {
        DType::Q4_0 => visitor.visit::<q4_0::Q4_0>(),
        DType::Q5_0 => visitor.visit::<q5_0::Q5_0>(),
        DType::Q5_1 => visitor.visit::<q5_1::Q5_1>(),
        DType::Q8_0 => visitor.visit::<q8_0::Q8_0>(),
        DType::Q2_K => visitor.visit::<q2_k::Q2K>(),
        DType::Q3_K => visitor.visit::<q3_k::Q3K>(),
        DType::Q4_K => visitor.visit::<q4_k::Q4K>(),
        DType::Q5_K => visitor.visit::<q5_k::Q5K>(),
        DType::Q6_K => visitor.visit::<q6_k::Q6K>(),
        DType::IQ4_NL => visitor.visit::<iq4_nl::IQ4Nl>(),
        DType::IQ4_XS => visitor.visit::<iq4_xs::IQ4Xs>(),
        DType::MXFP4 => visitor.visit::<mxfp4::Mxfp4>(),
        _ => return None,
    })
}

/// Checks that `n_bytes` bytes are whole blocks and hold `n_weights` weights.
fn check_lengths(dtype: DType, (len, bytes): (usize, usize), n_weights: usize, n_bytes: usize) {
    assert!(
        n_bytes.is_multiple_of(bytes) && n_bytes / bytes * len == n_weights,
        "{dtype}: {n_weights} weights are not the content of {n_bytes} bytes in blocks of {len} weights and {bytes} bytes"
    );
}
