//! The kinds of rounding that honest programs do.

use redraft_compute::op::Flash;
use redraft_compute::{KvType, Numerics, Precision};
use serde::Serialize;

use super::LIMIT;
use super::error::Apart;
use crate::LoadOptions;
use crate::arch::Angles;

/// A kind of rounding that honest programs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Rounding {
    /// f32 throughout.
    #[serde(rename = "f32")]
    F32,
    /// f32 with keys and values in f16: those of a cache, or of the pass as flash attention takes them.
    #[serde(rename = "kv-f16")]
    KvF16,
    /// f32 with keys and values in blocks of 8 bits, in models that have a cache.
    #[serde(rename = "kv-i8")]
    KvI8,
    /// llama.cpp's: activations of 8 bits beside quantized weights and of 16 bits beside those of 16; where there is a cache,
    /// keys and values in f16.
    #[serde(rename = "llamacpp")]
    LlamaCpp,
    /// The same with its flash attention, in models without a cache: queries, keys and values in f16, and sums of values.
    #[serde(rename = "llamacpp-fa")]
    LlamaCppFa,
    /// The same with keys and values in blocks of 8 bits, in models that have a cache.
    #[serde(rename = "llamacpp-kv-i8")]
    LlamaCppKvI8,
    /// PyTorch's with tensors in bfloat16.
    #[serde(rename = "bf16")]
    Bf16,
}

impl Rounding {
    /// From the finest to the coarsest.
    pub const ALL: [Rounding; 7] = [
        Rounding::F32,
        Rounding::KvF16,
        Rounding::KvI8,
        Rounding::LlamaCpp,
        Rounding::LlamaCppFa,
        Rounding::LlamaCppKvI8,
        Rounding::Bf16,
    ];

    /// `f32`, `kv-f16`, `kv-i8`, `llamacpp`, `llamacpp-fa`, `llamacpp-kv-i8`, `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Rounding::F32 => "f32",
            Rounding::KvF16 => "kv-f16",
            Rounding::KvI8 => "kv-i8",
            Rounding::LlamaCpp => "llamacpp",
            Rounding::LlamaCppFa => "llamacpp-fa",
            Rounding::LlamaCppKvI8 => "llamacpp-kv-i8",
            Rounding::Bf16 => "bf16",
        }
    }

    /// Whether it is a kind of its own in models with a cache of keys and values, or without. Keys and values of 8 bits are of
    /// caches; flash attention over a cache rounds as `llamacpp` does, whose cache is in f16.
    pub fn is_in(self, has_cache: bool) -> bool {
        match self {
            Rounding::KvI8 | Rounding::LlamaCppKvI8 => has_cache,
            Rounding::LlamaCppFa => !has_cache,
            Rounding::F32 | Rounding::KvF16 | Rounding::LlamaCpp | Rounding::Bf16 => true,
        }
    }

    /// How a model computes that rounds like this: with a cache of keys and values or without.
    pub fn computing(self, has_cache: bool) -> (Precision, Numerics, KvType) {
        let (precision, numerics, kv_type) = match self {
            Rounding::F32 => (Precision::F32, Numerics::Exact, KvType::F32),
            Rounding::KvF16 => (Precision::F32, Numerics::Exact, KvType::F16),
            Rounding::KvI8 => (Precision::F32, Numerics::Exact, KvType::I8),
            Rounding::LlamaCpp | Rounding::LlamaCppFa => (Precision::F32, Numerics::Fast, KvType::F16),
            Rounding::LlamaCppKvI8 => (Precision::F32, Numerics::Fast, KvType::I8),
            Rounding::Bf16 => (Precision::Bf16, Numerics::Exact, KvType::F32),
        };
        (precision, numerics, if has_cache { kv_type } else { KvType::F32 })
    }

    /// The same as options of a model.
    pub fn options(self, base: &LoadOptions, has_cache: bool) -> LoadOptions {
        let (precision, numerics, kv_type) = self.computing(has_cache);
        LoadOptions { backend: "auto".into(), precision, numerics: Some(numerics), kv_type, ..base.clone() }
    }

    /// The size of its noise, as a power of two that divides the numbers: blocks of 8 bits, whose largest number is some three
    /// times the usual one, are off by 2^-7 of that.
    pub(super) fn bits(self) -> u32 {
        match self {
            Rounding::F32 | Rounding::KvF16 | Rounding::KvI8 => 23,
            Rounding::LlamaCpp | Rounding::LlamaCppFa | Rounding::LlamaCppKvI8 => 7,
            Rounding::Bf16 => 8,
        }
    }

    /// The kinds that it rounds more than.
    pub(super) fn finer(self) -> &'static [Rounding] {
        match self {
            Rounding::F32 => &[],
            Rounding::KvF16 | Rounding::KvI8 | Rounding::LlamaCpp | Rounding::Bf16 => &[Rounding::F32],
            Rounding::LlamaCppFa | Rounding::LlamaCppKvI8 => &[Rounding::F32, Rounding::LlamaCpp],
        }
    }

    /// What honest programs do besides. The angles of rotary positions are in f32 in all kinds, since transformers and llama.cpp
    /// compute them so: they are off by about `position * 2^-24`, which is more than three times all the rest of f32 from
    /// about 200 tokens on. A run with exact angles in its place would be no second floor: an error that is added to the others,
    /// and independent of them, makes the distance larger and not smaller.
    pub(super) fn elsewhere(self, has_cache: bool) -> Elsewhere {
        let flash = match self {
            Rounding::KvF16 => Some(Flash::F32),
            Rounding::LlamaCppFa => Some(Flash::F16),
            _ => None,
        };
        Elsewhere { angles: Angles::F32, flash: flash.filter(|_| !has_cache) }
    }

    /// The smallest floor there is: the error of a number that is rounded once. Where a program of ours is exact by chance
    /// (embeddings in 16 bits are in f32), another honest one need not be.
    ///
    /// In f32 it is that of a norm over `width` numbers whose squares are added one after the other, which is the same for a
    /// whole row. Each of `n` partial sums is rounded, by 0.4 units of itself in the mean; together that is a quarter of
    /// `sqrt(n)` units of the sum, half of it of the root, and here twice that, since a row has one norm and no median.
    pub(super) fn unit(self, width: usize) -> f64 {
        match self {
            Rounding::F32 | Rounding::KvF16 | Rounding::KvI8 => {
                2f64.powi(-24) * ((width as f64).sqrt() / 4.0).max(1.0)
            }
            Rounding::LlamaCpp | Rounding::LlamaCppFa | Rounding::LlamaCppKvI8 => 2f64.powi(-12),
            Rounding::Bf16 => 2f64.powi(-9),
        }
    }
}

/// How programs elsewhere round where ours never do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Elsewhere {
    /// What angles of rotary positions are computed in.
    pub(crate) angles: Angles,
    /// Flash attention in passes without a cache.
    pub(crate) flash: Option<Flash>,
}

/// How many times better than a kind of rounding theirs must be not to be of that kind, at the first tap that the kind moves or
/// at most taps: a program does not begin to round in the middle.
const TOO_GOOD: f64 = 10.0;

/// Whether theirs is too good for a kind of rounding. Of each tap in execution order: their distance from the truth, that of an
/// honest program, and the smallest floor there is. A tap tells where the kind is [`LIMIT`] times as far away as one that is
/// `finer`: nothing that a cache rounds comes before the cache, and exact angles in the place of angles in f32 are no sign of other
/// keys and values.
pub(super) fn too_good(
    taps: impl Iterator<Item = (Apart, Apart, f64)>,
    finer: impl Iterator<Item = f64>,
) -> bool {
    let (mut n, mut better, mut first) = (0usize, 0usize, None);
    for ((theirs, honest, unit), finer) in taps.zip(finer) {
        let own = honest.median.max(unit);
        let tells = own > LIMIT * finer;
        let here = tells && theirs.median * TOO_GOOD < own;
        (n, better) = (n + 1, better + usize::from(here));
        if tells && honest.median > unit {
            first = first.or(Some(here));
        }
    }
    first == Some(true) || 2 * better > n
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At 2,000 tokens angles in f32 are ten times as far away as all else of f32.
    #[test]
    fn exact_angles_are_no_sign_of_other_keys_and_values() {
        let apart = |x| Apart { median: x, worst: x };
        let taps = |kqv_out: f64| {
            [(2e-7, 3e-6), (2e-7, 3e-6), (kqv_out, 3e-4)].map(|(a, b)| (apart(a), apart(b), 2f64.powi(-24)))
        };
        let finer = || [3e-6, 3e-6, 3e-6].into_iter();
        assert!(!too_good(taps(3e-4).into_iter(), finer()));
        assert!(too_good(taps(3e-7).into_iter(), finer()), "f32 throughout");
        // A program that is exact at most taps of a kind that rounds everywhere.
        assert!(too_good(taps(3e-4).into_iter(), [0.0; 3].into_iter()));
    }
}
