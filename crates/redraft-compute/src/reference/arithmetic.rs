//! The three arithmetics in which the reference runs.

use std::ops::{Add, Mul, Sub};

use redraft_gguf::{bf16_to_f32, f32_to_bf16};

use crate::backend::Precision;
use crate::host::HostReal;
use crate::math;
use crate::math::reduce::Addend;
use crate::numerics::Half;
use crate::op::Activation;

/// Numbers that ops calculate with.
pub(crate) trait Real:
    HostReal + Addend + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + From<f32>
{
}

impl Real for f32 {}
impl Real for f64 {}

/// Number type, functions, and what happens to a result before it is stored.
///
/// The canonical arithmetic treats every stored number alike, so [`store`](Self::store) and
/// [`keep`](Self::keep) differ, and [`round`](Self::round) does something, only where PyTorch's types do:
/// between bfloat16 tensors, float32 tensors, and intermediate results of ops that PyTorch runs one by one.
pub(crate) trait Arithmetic: Default + Send + 'static {
    type R: Real;

    const PRECISION: Precision;

    /// Attention weights are divided by their sum before they meet the values, not after.
    const NORMALIZE_FIRST: bool = false;

    /// A weight; canonical f32 has flushed it already.
    fn weight(w: f32) -> Self::R;

    /// A host scalar, rounded once.
    fn scalar(x: f64) -> Self::R {
        Self::R::from_f64(x)
    }

    /// A number that an op writes and that PyTorch holds in the model's type.
    fn store(x: Self::R) -> Self::R;

    /// A number that enters the program or that an op writes, and that PyTorch holds in float32.
    fn keep(x: Self::R) -> Self::R;

    /// An intermediate result that PyTorch rounds to the model's type.
    fn round(x: Self::R) -> Self::R {
        x
    }

    /// A factor of the soft embedding in `fast`, which no other numbers compute.
    fn soft_factor(x: Self::R) -> Self::R {
        x
    }

    /// Whether PyTorch would hold these numbers in the model's type rather than in float32.
    fn in_model_type(_x: &[Self::R]) -> bool {
        true
    }

    fn exp(x: Self::R) -> Self::R;
    fn log(x: Self::R) -> Self::R;
    fn tanh(x: Self::R) -> Self::R;
    fn recip(x: Self::R) -> Self::R;
    fn rsqrt(x: Self::R) -> Self::R;
    /// `1 / (1 + exp(-x))`.
    fn sigmoid(x: Self::R) -> Self::R;
    fn activation(act: Activation, x: Self::R) -> Self::R;
}

/// Canonical f32.
#[derive(Default)]
pub(crate) struct F32;

impl Arithmetic for F32 {
    type R = f32;

    const PRECISION: Precision = Precision::F32;

    fn weight(w: f32) -> f32 {
        w
    }
    fn store(x: f32) -> f32 {
        math::flush(x)
    }
    fn keep(x: f32) -> f32 {
        math::flush(x)
    }
    fn soft_factor(x: f32) -> f32 {
        Half::Bf16.round(x)
    }
    fn exp(x: f32) -> f32 {
        math::exp(x)
    }
    fn log(x: f32) -> f32 {
        math::log(x)
    }
    fn tanh(x: f32) -> f32 {
        math::tanh(x)
    }
    fn recip(x: f32) -> f32 {
        math::recip(x)
    }
    fn rsqrt(x: f32) -> f32 {
        math::rsqrt(x)
    }
    fn sigmoid(x: f32) -> f32 {
        math::sigmoid(x)
    }
    fn activation(act: Activation, x: f32) -> f32 {
        match act {
            Activation::GeluTanh => math::gelu_tanh(x),
            Activation::Silu => math::silu(x),
        }
    }
}

/// The truth: f64 and the functions of the standard library.
#[derive(Default)]
pub(crate) struct F64;

impl Arithmetic for F64 {
    type R = f64;

    const PRECISION: Precision = Precision::F64;

    fn weight(w: f32) -> f64 {
        f64::from(w)
    }
    fn store(x: f64) -> f64 {
        x
    }
    fn keep(x: f64) -> f64 {
        x
    }
    fn exp(x: f64) -> f64 {
        x.exp()
    }
    fn log(x: f64) -> f64 {
        x.ln()
    }
    fn tanh(x: f64) -> f64 {
        x.tanh()
    }
    fn recip(x: f64) -> f64 {
        x.recip()
    }
    fn rsqrt(x: f64) -> f64 {
        x.sqrt().recip()
    }
    fn sigmoid(x: f64) -> f64 {
        (1.0 + (-x).exp()).recip()
    }
    fn activation(act: Activation, x: f64) -> f64 {
        match act {
            Activation::GeluTanh => {
                let u = std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x);
                // x sigmoid(2 u): what 0.5 x (1 + tanh u) is, without its cancellation.
                x / (1.0 + (-2.0 * u).exp())
            }
            Activation::Silu => x / (1.0 + (-x).exp()),
        }
    }
}

/// f32 arithmetic with the roundings of PyTorch's bfloat16.
#[derive(Default)]
pub(crate) struct Bf16;

impl Arithmetic for Bf16 {
    type R = f32;

    const PRECISION: Precision = Precision::Bf16;
    const NORMALIZE_FIRST: bool = true;

    fn weight(w: f32) -> f32 {
        Self::round(w)
    }
    fn store(x: f32) -> f32 {
        Self::round(x)
    }
    fn keep(x: f32) -> f32 {
        x
    }
    fn round(x: f32) -> f32 {
        bf16_to_f32(f32_to_bf16(x))
    }
    fn in_model_type(x: &[f32]) -> bool {
        x.iter().all(|&x| x.to_bits() & 0xFFFF == 0)
    }
    fn exp(x: f32) -> f32 {
        math::exp(x)
    }
    fn log(x: f32) -> f32 {
        math::log(x)
    }
    fn tanh(x: f32) -> f32 {
        math::tanh(x)
    }
    fn recip(x: f32) -> f32 {
        math::recip(x)
    }
    fn rsqrt(x: f32) -> f32 {
        math::rsqrt(x)
    }
    fn sigmoid(x: f32) -> f32 {
        math::sigmoid(x)
    }
    fn activation(act: Activation, x: f32) -> f32 {
        F32::activation(act, x)
    }
}
