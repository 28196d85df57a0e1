//! Ops that treat each element alone.

use super::arithmetic::Arithmetic;
use super::matmul::vector;
use crate::ComputeError;
use crate::host::OpCx;
use crate::op::{Add, Factor, Glu, Scale, Softcap};

/// `out = x * by`.
pub(super) fn scale<A: Arithmetic>(o: &Scale, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let by = match o.by {
        Factor::Const(c) => A::scalar(c),
        Factor::Scalar(w) => vector::<A>(cx, w)?[0],
    };
    let mut out = cx.take_real(o.out);
    let x = cx.real(o.x);
    // A PyTorch tensor times a scalar keeps its type: hidden states are bfloat16, capped logits float32.
    let finish = if A::in_model_type(x) { A::store } else { A::keep };
    for (out, &x) in out.iter_mut().zip(x) {
        *out = finish(x * by);
    }
    cx.put_real(o.out, out);
    Ok(())
}

/// `out = a + b` in the rows of `b`.
pub(super) fn add<A: Arithmetic>(o: &Add, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    out.copy_from_slice(cx.real(o.a));
    for (out, &b) in out[o.first * o.a.cols()..].iter_mut().zip(cx.real(o.b)) {
        *out = A::store(*out + b);
    }
    cx.put_real(o.out, out);
    Ok(())
}

/// `out = act(gate) * up`.
pub(super) fn glu<A: Arithmetic>(o: &Glu, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    for ((out, &gate), &up) in out.iter_mut().zip(cx.real(o.gate)).zip(cx.real(o.up)) {
        *out = A::store(A::round(A::activation(o.act, gate)) * up);
    }
    cx.put_real(o.out, out);
    Ok(())
}

/// `out = cap * tanh(x * (1 / cap))`. PyTorch caps logits in float32.
pub(super) fn softcap<A: Arithmetic>(o: &Softcap, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let (cap, inverse) = (A::scalar(o.cap), A::scalar(1.0 / o.cap));
    for (out, &x) in out.iter_mut().zip(cx.real(o.x)) {
        *out = A::keep(cap * A::tanh(x * inverse));
    }
    cx.put_real(o.out, out);
    Ok(())
}
