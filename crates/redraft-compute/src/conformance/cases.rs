//! The cases: small weights, programs and inputs, made from a fixed stream of numbers.
//!
//! Sizes are odd on purpose: 1, around 16 (lanes, columns of a panel), around 256 (a chunk of the inner
//! dimension), and products that are multiples of nothing. Values cover the ranges where kernels differ if
//! they differ at all: sums that cancel, magnitudes around the flush limit 2^-50, and overflow.

use std::sync::Arc;

use redraft_gguf::{BlockCodec, Bytes, DType, Unpacked, codec};

use crate::weight::{Weight, WeightTable};
use crate::{ComputeError, KvLayout, KvType, Numerics, Program, ProgramBuilder, WeightId};

mod attention;
mod experts;
mod fast;
mod logits;
mod matmul;
mod rows;

/// Elements of one input.
#[derive(Debug, Clone)]
pub(super) enum Data {
    Int(Vec<i32>),
    Real(Vec<f32>),
}

/// What a case needs: weights, and programs that run one after the other on one sequence.
pub(super) struct Setup {
    pub(super) weights: Arc<WeightTable>,
    pub(super) layout: KvLayout,
    pub(super) kv_type: KvType,
    pub(super) steps: Vec<(Program, Vec<Data>)>,
}

/// One case.
pub(super) struct Case {
    /// The op that it is about.
    pub(super) op: &'static str,
    /// The mode of its products.
    pub(super) numerics: Numerics,
    /// What is special about it.
    pub(super) name: String,
    pub(super) make: Box<dyn Fn() -> Result<Setup, ComputeError>>,
}

/// All cases, in a fixed order.
pub(super) fn all() -> Vec<Case> {
    let mut list = Vec::new();
    matmul::add(&mut list);
    rows::add(&mut list);
    attention::add(&mut list);
    experts::add(&mut list);
    fast::add(&mut list);
    logits::add(&mut list);
    list
}

fn push(
    list: &mut Vec<Case>,
    op: &'static str,
    numerics: Numerics,
    name: String,
    make: impl Fn() -> Result<Setup, ComputeError> + 'static,
) {
    list.push(Case { op, numerics, name, make: Box::new(make) });
}

/// How the numbers of an input or a weight are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spread {
    /// Between -1 and 1.
    Unit,
    /// Between -1 and 1 times this.
    Times(i32),
    /// Powers of two from 2^-60 to 2^20 times a number of either sign, and zeros of both signs: sums cancel,
    /// products fall around the flush limit.
    Wide,
    /// Around 2^-50, on both sides of the flush limit.
    Tiny,
    /// 16 different values only, so that there are ties.
    Coarse,
    /// Around 2^63: squares overflow.
    Huge,
    /// Around 2^120.
    Vast,
}

/// A fixed stream of numbers (SplitMix64).
struct Noise(u64);

impl Noise {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in -1 .. 1, of 24 bits.
    fn unit(&mut self) -> f32 {
        ((self.bits() >> 40) as f32 + 0.5) / 8_388_608.0 - 1.0
    }

    /// An integer in `0..n`.
    fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    fn real(&mut self, spread: Spread) -> f32 {
        let power = |e: i32| f32::from_bits(((127 + e) as u32) << 23);
        match spread {
            Spread::Unit => self.unit(),
            Spread::Times(n) => self.unit() * n as f32,
            Spread::Wide => match self.below(12) {
                0 => 0.0,
                1 => -0.0,
                _ => self.unit() * power(self.below(81) as i32 - 60),
            },
            Spread::Tiny => self.unit() * power(self.below(6) as i32 - 52),
            Spread::Coarse => (self.below(16) as f32 - 8.0) * 0.25,
            Spread::Huge => self.unit() * power(63),
            Spread::Vast => self.unit() * power(120),
        }
    }

    fn reals(&mut self, n: usize, spread: Spread) -> Vec<f32> {
        (0..n).map(|_| self.real(spread)).collect()
    }

    /// Random bytes, drawn again until the scale of the block is a number from 2^-14 to 2^-8, for
    /// [`Spread::Tiny`] one below 2^-14, where 16-bit floats are subnormal; and the scale of the minima is one
    /// below 2^-8.
    fn block(&mut self, codec: &dyn BlockCodec, spread: Spread, bytes: &mut [u8]) {
        let range = if spread == Spread::Tiny { 0.0..=6.2e-5 } else { 6.2e-5..=4e-3 };
        let mut block = Unpacked::new();
        for _ in 0..1000 {
            bytes.iter_mut().for_each(|b| *b = self.bits() as u8);
            codec.unpack(bytes, &mut block);
            if range.contains(&block.d.abs()) && block.dmin.abs() <= 4e-3 {
                return;
            }
        }
        bytes.fill(0);
    }

    fn ids(&mut self, n: usize, limit: usize) -> Vec<i32> {
        (0..n).map(|_| self.below(limit) as i32).collect()
    }
}

/// Plain numbers of a type that is only read: F64, or integers of a size that leaves room for products.
fn put_numbers(dtype: DType, x: &[f32], bytes: &mut [u8]) {
    let size = bytes.len() / x.len().max(1);
    let steps = if size == 1 { 100.0 } else { 30_000.0 };
    for (x, bytes) in x.iter().zip(bytes.chunks_exact_mut(size.max(1))) {
        if dtype.is_integer() {
            bytes.copy_from_slice(&((x * steps) as i64).to_le_bytes()[..size]);
        } else {
            bytes.copy_from_slice(&f64::from(*x).to_le_bytes());
        }
    }
}

/// Weights under construction.
struct Weights {
    table: WeightTable,
    noise: Noise,
}

impl Weights {
    fn new(seed: u64) -> Weights {
        Weights { table: WeightTable::default(), noise: Noise(seed) }
    }

    /// A stack `[experts, rows, cols]` of random weights.
    ///
    /// Blocks of quantized types are random bytes, so that all codes, scales and minima occur and the suite
    /// does not depend on an encoder.
    fn add(
        &mut self,
        dtype: DType,
        [experts, rows, cols]: [usize; 3],
        spread: Spread,
    ) -> Result<WeightId, ComputeError> {
        let name = format!("w{}", self.table.iter().count());
        let unsupported =
            || ComputeError::UnsupportedType { weight: name.clone(), dtype: dtype.name().to_string() };
        let codec = codec(dtype).ok_or_else(unsupported)?;
        let row_bytes = dtype.row_bytes(cols as u64).ok_or_else(unsupported)? as usize;
        let mut bytes = vec![0; experts * rows * row_bytes];
        if codec.block_len() == 1 {
            let x = self.noise.reals(experts * rows * cols, spread);
            match codec.encoder() {
                Some(encoder) => encoder.quantize(&x, None, &mut bytes),
                None => put_numbers(dtype, &x, &mut bytes),
            }
        } else {
            bytes.chunks_exact_mut(codec.block_bytes()).for_each(|b| self.noise.block(codec, spread, b));
        }
        self.table.add(Weight { name, dtype, experts, rows, cols, bytes: Bytes::from(bytes) })
    }

    fn vector(&mut self, n: usize, spread: Spread) -> Result<WeightId, ComputeError> {
        self.add(DType::F32, [1, 1, n], spread)
    }

    /// The noise for inputs, and the finished table.
    fn finish(self) -> (Arc<WeightTable>, Noise) {
        (Arc::new(self.table), self.noise)
    }
}

/// A setup of one program without a cache.
fn single(b: ProgramBuilder, weights: Arc<WeightTable>, inputs: Vec<Data>) -> Setup {
    Setup { weights, layout: KvLayout::default(), kv_type: KvType::F32, steps: vec![(b.finish(), inputs)] }
}
