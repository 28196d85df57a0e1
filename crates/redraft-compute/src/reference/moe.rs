//! Mixture of experts: router and experts.

use super::arithmetic::Arithmetic;
use super::matmul::{Rows, vector};
use super::product::Operand;
use super::softmax::probabilities;
use crate::host::OpCx;
use crate::op::{GateUp, MoeExperts, MoeRoute};
use crate::{ComputeError, Numerics, Weight};

/// Probabilities over all experts; then `top_k` times the largest that is not chosen yet, the lower id first
/// among equals. The weights are the chosen probabilities `w`; renormalized they are `w * recip(sum w)`, the
/// sum in slot order from +0; a scale per expert is multiplied last.
///
/// PyTorch computes all of this in float32.
pub(super) fn route<A: Arithmetic>(o: &MoeRoute, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let scale = o.expert_scale.map(|w| vector::<A>(cx, w)).transpose()?;
    let (n, k) = (o.logits.cols(), o.top_k);
    let (mut probs, mut ids, mut weights) =
        (cx.take_real(o.probs), cx.take_int(o.ids), cx.take_real(o.weights));
    let mut chosen = vec![false; n];
    for (t, (x, probs)) in cx.real(o.logits).chunks_exact(n).zip(probs.chunks_exact_mut(n)).enumerate() {
        probabilities::<A>(x, probs);
        probs.iter_mut().for_each(|p| *p = A::keep(*p));
        chosen.fill(false);
        let (ids, weights) = (&mut ids[t * k..][..k], &mut weights[t * k..][..k]);
        let mut sum = A::R::default();
        for (id, w) in ids.iter_mut().zip(weights.iter_mut()) {
            let free = (0..n).filter(|&e| !chosen[e]);
            let best = free.reduce(|best, e| if probs[best] < probs[e] { e } else { best }).unwrap_or(0);
            chosen[best] = true;
            (*id, *w) = (best as i32, probs[best]);
            sum = sum + *w;
        }
        let r = A::recip(sum);
        for (&id, w) in ids.iter().zip(weights) {
            if o.renormalize {
                *w = *w * r;
            }
            if let Some(scale) = &scale {
                *w = *w * scale[id as usize];
            }
            *w = A::keep(*w);
        }
    }
    cx.put_real(o.probs, probs);
    cx.put_int(o.ids, ids);
    cx.put_real(o.weights, weights);
    Ok(())
}

/// Rows `0..ff` of the gate projection and of the up projection.
struct Gates<'a, A: Arithmetic> {
    gate: Rows<'a, A>,
    up: Rows<'a, A>,
    /// First row of the up projection.
    up_from: usize,
}

impl<'a, A: Arithmetic> Gates<'a, A> {
    /// Rows of activations for the gate projection and for the up projection.
    fn operands(
        &self,
        numerics: Numerics,
        x: &[A::R],
        rows: usize,
    ) -> Result<[Operand<A::R>; 2], ComputeError> {
        let of = |w: &Rows<'a, A>| Operand::new(w.weight, numerics, x, rows);
        Ok([of(&self.gate)?, of(&self.up)?])
    }

    fn new(cx: &'a OpCx<'_, A::R>, gate_up: GateUp, ff: usize) -> Result<Self, ComputeError> {
        let (gate, up, up_from): (&Weight, &Weight, usize) = match gate_up {
            GateUp::Fused(w) => (cx.weights.get(w)?, cx.weights.get(w)?, ff),
            GateUp::Split { gate, up } => (cx.weights.get(gate)?, cx.weights.get(up)?, 0),
        };
        Ok(Gates { gate: Rows::new(gate), up: Rows::new(up), up_from })
    }
}

/// For each token and slot `y = down_e(act(gate_e x) * up_e x)` with `e = ids[slot]`, exactly as the ops
/// MatMul and Glu compute it; then `out = sum_slot weights[slot] * y`, slots ascending from +0.
///
/// Tokens are grouped by expert, so that each row of weights is decoded once. The results of all slots are
/// kept until the end; the grouping cannot be seen in them. (PyTorch adds them in the order of expert ids.)
pub(super) fn experts<A: Arithmetic>(o: &MoeExperts, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    out.fill(A::R::default());
    let down = cx.weights.get(o.down)?;
    let (k, n, n_out, ff) = (o.ids.cols(), o.x.cols(), o.out.cols(), down.cols);
    let x = cx.real(o.x);
    let mut slots_of: Vec<Vec<usize>> = vec![Vec::new(); down.experts];
    for (slot, &id) in cx.int(o.ids).iter().enumerate() {
        let expert = usize::try_from(id).ok().and_then(|e| slots_of.get_mut(e));
        expert
            .ok_or(ComputeError::IdOutOfRange {
                op: "MoeExperts",
                id: i64::from(id),
                row: slot / k,
                limit: down.experts,
            })?
            .push(slot);
    }
    let mut gates = Gates::<A>::new(cx, o.gate_up, ff)?;
    let mut down = Rows::<A>::new(down);
    let mut y = vec![A::R::default(); o.ids.len() * n_out]; // [tokens * slots, n_out]
    for (expert, slots) in slots_of.iter().enumerate().filter(|(_, s)| !s.is_empty()) {
        let m = slots.len();
        let rows: Vec<A::R> = slots.iter().flat_map(|s| &x[s / k * n..][..n]).copied().collect();
        let [gate_x, up_x] = gates.operands(o.numerics, &rows, m)?;
        let (mut gate, mut up) = (vec![A::R::default(); m], vec![A::R::default(); m]);
        let mut h = vec![A::R::default(); m * ff]; // [m, ff]
        for f in 0..ff {
            gate_x.dot(&mut gates.gate, [expert, f], &mut gate)?;
            up_x.dot(&mut gates.up, [expert, gates.up_from + f], &mut up)?;
            for ((h, &gate), &up) in h[f..].iter_mut().step_by(ff).zip(&gate).zip(&up) {
                let a = A::round(A::activation(o.act, A::store(gate)));
                *h = A::store(a * A::store(up));
            }
        }
        let h = Operand::new(down.weight, o.numerics, &h, m)?;
        let mut acc = vec![A::R::default(); m];
        for i in 0..n_out {
            h.dot(&mut down, [expert, i], &mut acc)?;
            for (&slot, &acc) in slots.iter().zip(&acc) {
                y[slot * n_out + i] = A::store(acc);
            }
        }
    }
    let weights = cx.real(o.weights);
    for (t, out) in out.chunks_exact_mut(n_out.max(1)).enumerate() {
        for slot in t * k..(t + 1) * k {
            for (out, &y) in out.iter_mut().zip(&y[slot * n_out..][..n_out]) {
                *out = A::round(*out + A::round(weights[slot] * y));
            }
        }
        out.iter_mut().for_each(|x| *x = A::store(*x));
    }
    cx.put_real(o.out, out);
    Ok(())
}
