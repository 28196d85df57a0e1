//! The activations of gated feed-forward blocks.

use super::exp::exp;
use super::flush::flush;
use super::lanes::{IntLanes, Lanes};
use super::recip::recip;

/// `2 sqrt(2/pi)`, and that times 0.044715 (Hendrycks and Gimpel), each rounded once from f64.
const GELU_1: f32 = 1.595_769_2;
/// See [`GELU_1`].
const GELU_3: f32 = 7.135_481_4e-2;

/// 1 / (1 + e^-x) for all x.
///
/// With `e = exp(-|x|)` and `r = recip(1 + e)`: `r` for x >= 0, `e * r` for x < 0, so that the negative tail
/// keeps its relative accuracy. `e` is 0 below [`EXP_MIN`](super::exp::EXP_MIN), and so is then the result.
/// Of NaN it is NaN.
#[inline(always)]
pub fn sigmoid<V: Lanes>(x: V) -> V {
    let bits = x.to_bits();
    let e = exp(V::from_bits(bits.or(bits.splat(i32::MIN))));
    let r = recip(x.splat(1.0).add(e));
    x.select_lt(x.splat(0.0), e.mul(r), r)
}

/// `x * sigmoid(x)`, with `|x| < 2^-50` and results below 2^-50 flushed to +0.
///
/// Of NaN and of negative infinity it is NaN, of infinity it is infinity.
#[inline(always)]
pub fn silu<V: Lanes>(x: V) -> V {
    let x = flush(x);
    flush(x.mul(sigmoid(x)))
}

/// `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`, computed as the equal `x * sigmoid(2 u)` with
/// `2 u = x * (c1 + c3 * x^2)`: there is no cancellation in the negative tail. Inputs and results below 2^-50
/// are flushed to +0.
///
/// Of NaN and of negative infinity it is NaN, of infinity it is infinity.
#[inline(always)]
pub fn gelu_tanh<V: Lanes>(x: V) -> V {
    let x = flush(x);
    let u2 = x.mul(x.splat(GELU_1).add(x.splat(GELU_3).mul(x.mul(x))));
    flush(x.mul(sigmoid(u2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::exp::EXP_MIN;
    use crate::math::ulp::{Report, grid};

    fn silu_truth(x: f64) -> f64 {
        x / (1.0 + (-x).exp())
    }

    fn gelu_truth(x: f64) -> f64 {
        let u2 = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        x / (1.0 + (-u2).exp())
    }

    /// Near and far errors of an activation over `inputs`; everything below `cut` must be zero.
    fn check(f: fn(f32) -> f32, truth: fn(f64) -> f64, inputs: impl Iterator<Item = u32>) -> [Report; 2] {
        let mut reports = [Report::default(), Report::default()];
        for x in inputs.map(f32::from_bits) {
            let (y, t) = (f(x), truth(f64::from(x)));
            if x.is_nan() || x == f32::NEG_INFINITY {
                assert!(y.is_nan());
            } else if x == f32::INFINITY {
                assert_eq!(y, x);
            } else if y == 0.0 {
                assert!(y.to_bits() == 0 && t.abs() < 35.0 * 2f64.powi(-50), "{x:e} -> {y:e}, not {t:e}");
            } else {
                assert!(y.abs() >= 2f32.powi(-50));
                reports[usize::from(x < -1.0)].add(x, y, t);
            }
        }
        reports
    }

    #[test]
    fn silu_dense_grid() {
        let [near, tail] = check(silu, silu_truth, grid());
        near.at_most("silu, x >= -1", 4.0);
        tail.at_most("silu, x < -1", 4.0);
    }

    #[test]
    fn gelu_dense_grid() {
        let [near, tail] = check(gelu_tanh, gelu_truth, grid());
        near.at_most("gelu_tanh, x >= -1", 5.0);
        tail.at_most("gelu_tanh, x < -1", 80.0);
    }

    #[test]
    #[ignore = "all 2^32 inputs; run in release"]
    fn exhaustive() {
        let [near, tail] = check(silu, silu_truth, 0..=u32::MAX);
        near.at_most("silu, x >= -1", 4.0);
        tail.at_most("silu, x < -1", 4.0);
        let [near, tail] = check(gelu_tanh, gelu_truth, 0..=u32::MAX);
        near.at_most("gelu_tanh, x >= -1", 5.0);
        tail.at_most("gelu_tanh, x < -1", 80.0);
    }

    #[test]
    fn edges() {
        assert_eq!(sigmoid(0.0f32), 0.5);
        assert_eq!(sigmoid(f32::INFINITY), 1.0);
        assert_eq!(sigmoid(f32::NEG_INFINITY), 0.0);
        assert_eq!(sigmoid(EXP_MIN.next_down()), 0.0);
        assert!(sigmoid(f32::NAN).is_nan());
        for f in [silu::<f32>, gelu_tanh::<f32>] {
            assert_eq!(f(-1e20).to_bits(), 0);
            assert_eq!(f(-0.0).to_bits(), 0);
            assert_eq!(f(1e30), 1e30);
            assert_eq!(f(f32::MAX), f32::MAX);
            assert_eq!(f(f32::MIN).to_bits(), 0);
        }
    }
}
