//! The two modes of a product with weights, and what each makes of the activations.
//!
//! `exact` multiplies the activations, in f32, with weights dequantized to f32. `fast` brings the activations
//! to the precision of the weights: 8-bit integers for quantized weights, 16 bits for 16-bit weights. Both are
//! canonical: each has one result, whatever computes it (`docs/numerics.md`, sections 6 and 12).

use redraft_gguf::{
    Bias, BlockCodec, CommonFormat, DType, FormatVisitor, MAX_BLOCK_LEN, Unpacked, bf16_to_f32, codec,
    f16_to_f32, f32_to_bf16, f32_to_f16, visit_format,
};

use crate::{ComputeError, Precision, math};

/// How products with weights are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Numerics {
    /// Activations in f32, weights dequantized to f32.
    Exact,
    /// Activations in the precision of the weights: int8 beside quantized ones, 16 bits beside 16-bit ones.
    /// Weights in F32, F64 and plain integers are multiplied as in [`Exact`](Self::Exact).
    Fast,
}

impl Numerics {
    /// Both modes.
    pub const ALL: &[Numerics] = &[Numerics::Exact, Numerics::Fast];

    /// The name in options and reports.
    ///
    /// ```
    /// use redraft_compute::Numerics;
    ///
    /// assert_eq!(Numerics::Fast.name(), "fast");
    /// assert_eq!(Numerics::Exact.name(), "exact");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Numerics::Exact => "exact",
            Numerics::Fast => "fast",
        }
    }

    /// Whether products with weights of a type differ from those in `exact`.
    ///
    /// ```
    /// use redraft_compute::Numerics;
    /// use redraft_gguf::DType;
    ///
    /// assert!(Numerics::Fast.changes(DType::Q4_K));
    /// assert!(!Numerics::Fast.changes(DType::F32));
    /// assert!(!Numerics::Exact.changes(DType::Q4_K));
    /// ```
    pub fn changes(self, dtype: DType) -> bool {
        codec(dtype).is_some_and(|codec| Form::of(codec, self) != Form::F32)
    }

    /// The smallest probability with which an id of a vocabulary of `vocab` takes part in a soft embedding.
    ///
    /// In `exact` it is 2^-50, below which no number is stored. In `fast` it is 2^-24 / V with V = `vocab` rounded up
    /// to a power of two, but at least 2^-50: all that is left out together is less than 2^-24 of the distribution,
    /// half a unit in the last place of 1.
    ///
    /// ```
    /// use redraft_compute::Numerics;
    ///
    /// assert_eq!(Numerics::Exact.probability_cut(262_144), 2f32.powi(-50));
    /// assert_eq!(Numerics::Fast.probability_cut(262_144), 2f32.powi(-42));
    /// assert_eq!(Numerics::Fast.probability_cut(1000), 2f32.powi(-34));
    /// ```
    pub fn probability_cut(self, vocab: usize) -> f32 {
        let bits = match self {
            Numerics::Exact => 50,
            Numerics::Fast => (24 + vocab.max(1).next_power_of_two().ilog2()).min(50),
        };
        f32::from_bits((127 - bits) << 23)
    }

    /// Checks that a number type can be computed with in this mode: `fast` is defined in f32 only.
    ///
    /// # Errors
    /// [`ComputeError::Unavailable`] with the mode that would do.
    pub fn check(self, precision: Precision) -> Result<(), ComputeError> {
        if self == Numerics::Exact || precision == Precision::F32 {
            return Ok(());
        }
        Err(ComputeError::Unavailable {
            what: "numerics",
            name: self.name().into(),
            available: format!("{} with precision {}", Numerics::Exact.name(), precision.name()),
        })
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Numerics> {
        Numerics::ALL.iter().copied().find(|n| n.name() == name)
    }
}

/// What activations become before they meet weights of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Form {
    /// They stay f32.
    #[default]
    F32,
    /// Rounded to 16 bits, held in f32.
    Half(Half),
    /// 8-bit integers with one scale per unit.
    Int8(Units),
}

/// A number of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    F16,
    Bf16,
}

/// The largest finite f16.
const F16_MAX: f32 = 65504.0;

impl Half {
    /// The numbers of a type, if it is one of 16 bits.
    pub(crate) fn of(dtype: DType) -> Option<Half> {
        match dtype {
            DType::F16 => Some(Half::F16),
            DType::BF16 => Some(Half::Bf16),
            _ => None,
        }
    }

    /// The number nearest to `x`, ties to even; beside f16, finite magnitudes above 65504 become 65504. Infinities and
    /// NaN stay what they are, so that no product hides them.
    pub(crate) fn round(self, x: f32) -> f32 {
        if !x.is_finite() {
            return x;
        }
        match self {
            Half::F16 => f16_to_f32(f32_to_f16(x.clamp(-F16_MAX, F16_MAX))),
            Half::Bf16 => bf16_to_f32(f32_to_bf16(x)),
        }
    }

    /// The number with these bits.
    pub(crate) fn value(self, bits: u16) -> f32 {
        match self {
            Half::F16 => f16_to_f32(bits),
            Half::Bf16 => bf16_to_f32(bits),
        }
    }
}

impl Form {
    /// The form beside weights of a codec's type.
    pub(crate) fn of(codec: &dyn BlockCodec, numerics: Numerics) -> Form {
        match (numerics, Half::of(codec.dtype())) {
            (Numerics::Exact, _) => Form::F32,
            (Numerics::Fast, Some(half)) => Form::Half(half),
            (Numerics::Fast, None) if codec.block_len() == 1 => Form::F32,
            (Numerics::Fast, None) => Form::Int8(Units::of(codec)),
        }
    }
}

/// How the weights of a type are divided for integer products.
///
/// A *unit* is a run of weights whose products with activations are added as integers; the activations beside
/// it share one scale. It is the block of the type; of `NVFP4`, whose scales do not fit eight bits, it is the
/// sub-block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Units {
    /// Weights in a unit: 16, 32, 64, 128 or 256.
    pub(crate) len: usize,
    /// Weights in a sub-block.
    pub(crate) sub_len: usize,
    /// Sub-blocks of a unit.
    pub(crate) subs: usize,
    /// Whether the type has minima. Its codes are then not negative.
    pub(crate) mins: bool,
    /// What is added to codes when they are unpacked for integer kernels.
    pub(crate) bias: Bias,
}

/// Asks a format for its bias.
struct BiasOf;

impl FormatVisitor for BiasOf {
    type Output = Bias;

    fn visit<F: CommonFormat>(self) -> Bias {
        F::BIAS
    }
}

impl Units {
    pub(crate) fn of(codec: &dyn BlockCodec) -> Units {
        let mut block = Unpacked::new();
        codec.unpack(&vec![0; codec.block_bytes()], &mut block);
        let len = if codec.dtype() == DType::NVFP4 { block.sub_len } else { block.len };
        let (sub_len, subs) = (block.sub_len, len / block.sub_len);
        // All bits set: a type that has minima now has some.
        codec.unpack(&vec![0xFF; codec.block_bytes()], &mut block);
        let mins = block.mins.iter().any(|&m| m != 0);
        let other = if mins { Bias::Added(0) } else { Bias::Signed };
        Units { len, sub_len, subs, mins, bias: visit_format(codec.dtype(), BiasOf).unwrap_or(other) }
    }

    /// Words of a unit that hold sums of activations: of pairs of sub-blocks for minima, else of each sub-block.
    #[inline(always)]
    pub(crate) fn sums(self) -> usize {
        if self.mins { self.pairs() } else { self.subs }
    }

    /// Pairs of sub-blocks of a unit, the last one possibly with one sub-block.
    #[inline(always)]
    pub(crate) fn pairs(self) -> usize {
        self.subs.div_ceil(2)
    }
}

/// One unit of a row of weights.
pub(crate) struct Unit<'a> {
    /// Scale of the sub-block scales; 0 or at least 2^-50 in magnitude.
    pub(crate) d: f32,
    /// Scale of the minima; 0 or at least 2^-50 in magnitude.
    pub(crate) dmin: f32,
    /// One per sub-block, of eight bits.
    pub(crate) scales: &'a [i32],
    /// One per sub-block.
    pub(crate) mins: &'a [u8],
    pub(crate) codes: &'a [i8],
}

impl<'a> Unit<'a> {
    /// Unit `i` of a block.
    #[inline(always)]
    pub(crate) fn of(block: &'a Unpacked, units: Units, i: usize) -> Unit<'a> {
        let sub = i * units.subs;
        let range = sub..sub + units.subs;
        let (d, scales) = if units.len < block.len {
            (block.d * block.scales[sub] as f32, &[1][..])
        } else {
            (block.d, &block.scales[range.clone()])
        };
        Unit {
            d: math::flush(d),
            dmin: math::flush(block.dmin),
            scales,
            mins: &block.mins[range],
            codes: &block.codes[i * units.len..][..units.len],
        }
    }
}

// The sum of a unit: at most 256 products of a code (-128..=127, or 0..=255 where a kernel stores it with an offset of
// 128), an activation (-127..=127) and a scale of eight bits stays inside 32 bits.
const _: () = assert!(MAX_BLOCK_LEN as i64 * 255 * 127 * 128 < 1 << 31);

#[cfg(test)]
mod tests {
    use super::*;
    use redraft_gguf::CODECS;

    /// The bound above rests on it.
    #[test]
    fn scales_of_units_fit_eight_bits() {
        let mut seed = 1u64;
        for c in CODECS.iter().filter(|c| c.block_len() > 1) {
            let units = Units::of(*c);
            assert!([16, 32, 64, 128, 256].contains(&units.len), "{}", c.dtype());
            let mut bytes = vec![0; c.block_bytes()];
            let mut block = Unpacked::new();
            for _ in 0..2000 {
                for b in &mut bytes {
                    seed =
                        seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    *b = (seed >> 56) as u8;
                }
                c.unpack(&bytes, &mut block);
                assert_eq!(block.sub_len, units.sub_len, "{}", c.dtype());
                for i in 0..block.len / units.len {
                    let unit = Unit::of(&block, units, i);
                    assert!(unit.scales.iter().all(|s| (-128..=127).contains(s)), "{}", c.dtype());
                    assert_eq!((unit.scales.len(), unit.mins.len()), (units.subs, units.subs));
                    // What the kernels leave out.
                    let (min, least) = (unit.mins.iter().max(), unit.codes.iter().min());
                    assert!(if units.mins { least >= Some(&0) } else { min == Some(&0) }, "{}", c.dtype());
                    let Bias::Added(bias) = units.bias else { continue };
                    let range = 0..=127;
                    assert!(unit.codes.iter().all(|&c| range.contains(&(i32::from(c) + i32::from(bias)))));
                }
            }
        }
    }

    #[test]
    fn sixteen_bit_forms_round_to_even_and_saturate() {
        assert_eq!(Half::F16.round(1.0 + 2f32.powi(-11)), 1.0);
        assert_eq!(Half::F16.round(1.0 + 3.0 * 2f32.powi(-11)), 1.0 + 2f32.powi(-9));
        assert_eq!(Half::F16.round(-1e9), -65504.0);
        assert_eq!(Half::Bf16.round(1.0 + 2f32.powi(-8)), 1.0);
        for half in [Half::F16, Half::Bf16] {
            assert_eq!(half.round(f32::NEG_INFINITY), f32::NEG_INFINITY);
            assert!(half.round(f32::NAN).is_nan());
        }
    }
}
