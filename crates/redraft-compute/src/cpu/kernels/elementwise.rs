//! Ops without sums: each result depends on one place of each argument.
//!
//! 1. Sixteen elements at a time, then a tail padded with zeros.
//! 2. The canonical function, small results flushed (`docs/numerics.md`, section 2).

use crate::cpu::vector::{Isa, LANES, Row16};
use crate::math::{self, Lanes};
use crate::op::Activation;

/// `$out = $e` over the slices, 16 elements at a time; in `$e` the names stand for vectors.
macro_rules! map {
    ($s:ident, ($($x:ident),+) => $out:ident, $e:expr) => {{
        let n = $out.len();
        $(assert_eq!($x.len(), n, "arguments of one length");)+
        let (whole, tail) = $out.as_chunks_mut::<LANES>();
        for (i, o) in whole.iter_mut().enumerate() {
            $(let $x = $s.load(&$x.as_chunks::<LANES>().0[i]);)+
            $s.store($e, o);
        }
        if !tail.is_empty() {
            let done = n - tail.len();
            $(let $x = $s.load_part(&$x[done..], 0.0);)+
            $s.store_part($e, tail);
        }
    }};
}

/// Whether there is no NaN and no infinity.
#[inline(always)]
pub(crate) fn finite<S: Isa>(s: S, x: &[f32]) -> bool {
    let (whole, tail) = x.as_chunks::<LANES>();
    s.peak(whole).is_finite() && tail.iter().all(|x| x.is_finite())
}

/// `x = flush(x)`.
#[inline(always)]
pub(crate) fn flush<S: Isa>(s: S, x: &mut [f32]) {
    let (whole, tail) = x.as_chunks_mut::<LANES>();
    for x in whole {
        s.store(math::flush(s.load(x)), x);
    }
    for x in tail {
        *x = math::flush(*x);
    }
}

/// The end of a matrix product: `sums = flush(sums + bias)`.
#[inline(always)]
pub(crate) fn finish<S: Isa>(s: S, sums: &mut [Row16], bias: Option<&Row16>) {
    match bias {
        Some(bias) => {
            let bias = s.load(bias);
            for x in sums {
                s.store(math::flush(s.load(x).add(bias)), x);
            }
        }
        None => {
            for x in sums {
                s.store(math::flush(s.load(x)), x);
            }
        }
    }
}

/// `out = flush(x * by)`.
#[inline(always)]
pub(crate) fn scale<S: Isa>(s: S, x: &[f32], by: f32, out: &mut [f32]) {
    let by = s.splat(by);
    map!(s, (x) => out, math::flush(x.mul(by)));
}

/// `out = flush(a + b)`.
#[inline(always)]
pub(crate) fn add<S: Isa>(s: S, a: &[f32], b: &[f32], out: &mut [f32]) {
    map!(s, (a, b) => out, math::flush(a.add(b)));
}

/// `sum = sum + x * by`.
#[inline(always)]
pub(crate) fn add_scaled<S: Isa>(s: S, x: &[f32], by: f32, sum: &mut [f32]) {
    assert_eq!(x.len(), sum.len(), "arguments of one length");
    let (xs, x_tail) = x.as_chunks::<LANES>();
    let (sums, sum_tail) = sum.as_chunks_mut::<LANES>();
    let factor = s.splat(by);
    for (x, sum) in xs.iter().zip(sums) {
        s.store(s.load(sum).add(s.load(x).mul(factor)), sum);
    }
    for (x, sum) in x_tail.iter().zip(sum_tail) {
        let product = x * by;
        *sum += product;
    }
}

/// `out = flush(act(gate) * up)`.
#[inline(always)]
pub(crate) fn glu<S: Isa>(s: S, gate: &[f32], up: &[f32], act: Activation, out: &mut [f32]) {
    match act {
        Activation::GeluTanh => map!(s, (gate, up) => out, math::flush(math::gelu_tanh(gate).mul(up))),
        Activation::Silu => map!(s, (gate, up) => out, math::flush(math::silu(gate).mul(up))),
    }
}

/// `out = flush(1 / (1 + exp(-x)))`.
#[inline(always)]
pub(crate) fn sigmoid<S: Isa>(s: S, x: &[f32], out: &mut [f32]) {
    map!(s, (x) => out, math::flush(math::sigmoid(x)));
}

/// `out = flush(cap * tanh(x * inverse))`.
#[inline(always)]
pub(crate) fn softcap<S: Isa>(s: S, x: &[f32], cap: f32, inverse: f32, out: &mut [f32]) {
    let (cap, inverse) = (s.splat(cap), s.splat(inverse));
    map!(s, (x) => out, math::flush(cap.mul(math::tanh(x.mul(inverse)))));
}
