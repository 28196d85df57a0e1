//! Mixture of experts: router and experts.

use super::arithmetic::{Arithmetic, Real};
use super::matmul::{Rows, vector};
use super::product::Operand;
use super::softmax::probabilities;
use crate::host::OpCx;
use crate::op::{ExpertGroups, GateUp, MoeExperts, MoeRoute, RouterScore, RoutingBlock, SIGMOID_SUM};
use crate::{ComputeError, Numerics, Weight};

/// Probabilities over all experts, by soft-max or each by itself; with a bias that is added for the choice alone, then
/// `top_k` times the largest that is not chosen yet, the lower id first among equals. With groups, only experts of the
/// best groups are chosen from ([`open_groups`]), with blocks only those that all tokens of the block choose from
/// ([`open_to_block`]). The weights are the chosen probabilities `w`; renormalized they are
/// `w * recip(sum w)`, the sum in slot order from +0, for sigmoids with 1e-20 added; a scale per expert is multiplied
/// last.
///
/// PyTorch computes all of this in float32.
pub(super) fn route<A: Arithmetic>(o: &MoeRoute, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let r = &o.routing;
    let scale = r.expert_scale.map(|w| vector::<A>(cx, w)).transpose()?;
    let bias = r.bias.map(|w| vector::<A>(cx, w)).transpose()?;
    let (n, k) = (o.logits.cols(), r.top_k);
    let (mut probs, mut ids, mut weights) =
        (cx.take_real(o.probs), cx.take_int(o.ids), cx.take_real(o.weights));
    for (x, probs) in cx.real(o.logits).chunks_exact(n).zip(probs.chunks_exact_mut(n)) {
        match r.score {
            RouterScore::Softmax => probabilities::<A>(x, probs),
            RouterScore::Sigmoid => probs.iter_mut().zip(x).for_each(|(p, &x)| *p = A::sigmoid(x)),
        }
        probs.iter_mut().for_each(|p| *p = A::keep(*p));
    }
    let choices: Vec<A::R> = match &bias {
        Some(bias) => probs.iter().zip(bias.iter().cycle()).map(|(&p, &b)| p + b).collect(),
        None => probs.to_vec(),
    }; // [T, E]
    for (t, (choice, probs)) in choices.chunks_exact(n).zip(probs.chunks_exact(n)).enumerate() {
        let mut free = match (r.groups, r.block) {
            (Some(groups), _) => open_groups(choice, groups),
            (_, Some(block)) => {
                let blocks = o.segments.blocks(block.len);
                let rows = blocks.into_iter().find(|rows| rows.contains(&t)).unwrap_or(t..t + 1);
                open_to_block(&choices[rows.start * n..rows.end * n], n, block)
            }
            _ => vec![true; n],
        };
        let (ids, weights) = (&mut ids[t * k..][..k], &mut weights[t * k..][..k]);
        let mut sum = A::R::default();
        for (id, w) in ids.iter_mut().zip(weights.iter_mut()) {
            let best = largest(choice, &free);
            free[best] = false;
            (*id, *w) = (best as i32, probs[best]);
            sum = sum + *w;
        }
        if r.score == RouterScore::Sigmoid {
            sum = sum + A::scalar(SIGMOID_SUM);
        }
        let inverse = A::recip(sum);
        for (&id, w) in ids.iter().zip(weights) {
            if r.renormalize {
                *w = *w * inverse;
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

/// The place of the largest number among those that are free, the first among equals.
fn largest<R: Real>(x: &[R], free: &[bool]) -> usize {
    let free = (0..x.len()).filter(|&i| free[i]);
    free.reduce(|best, i| if x[best] < x[i] { i } else { best }).unwrap_or(0)
}

/// Which experts belong to the groups that are used: a group is worth the sum of its two largest numbers; the best
/// groups are used, the lower one first among equals.
fn open_groups<R: Real>(choice: &[R], groups: ExpertGroups) -> Vec<bool> {
    let size = choice.len() / groups.n;
    let worth: Vec<R> = choice
        .chunks_exact(size)
        .map(|group| {
            let mut free = vec![true; size];
            let first = largest(group, &free);
            free[first] = false;
            group[first] + group[largest(group, &free)]
        })
        .collect();
    let mut unused = vec![true; groups.n];
    for _ in 0..groups.used {
        let best = largest(&worth, &unused);
        unused[best] = false;
    }
    (0..choice.len()).map(|e| !unused[e / size]).collect()
}

/// Which experts the tokens of a block, whose `choices` are `[rows, n]`, can use: those of the largest numbers, where an expert has the largest of all rows of the block; the lower id first among equals.
fn open_to_block<R: Real>(choices: &[R], n: usize, block: RoutingBlock) -> Vec<bool> {
    let worth = choices
        .chunks_exact(n)
        .map(<[R]>::to_vec)
        .reduce(|worth, row| worth.into_iter().zip(row).map(|(a, b)| if a < b { b } else { a }).collect());
    let worth = worth.unwrap_or_default();
    let mut unused = vec![true; n];
    for _ in 0..block.capacity {
        let best = largest(&worth, &unused);
        unused[best] = false;
    }
    unused.into_iter().map(|unused| !unused).collect()
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
    let mut hidden = cx.hidden.take();
    let mut out = cx.take_real(o.out);
    out.fill(A::R::default());
    let down = cx.weights.get(o.down)?;
    let (k, n, n_out, ff) = (o.ids.cols(), o.x.cols(), o.out.cols(), down.cols);
    let x = cx.real(o.x);
    cx.check_ids("MoeExperts", o.ids, down.experts)?;
    let mut slots_of: Vec<Vec<usize>> = vec![Vec::new(); down.experts];
    for (slot, &id) in cx.int(o.ids).iter().enumerate() {
        slots_of[id as usize].push(slot);
    }
    let mut gates = Gates::<A>::new(cx, o.gate_up, ff)?;
    let mut down = Rows::<A>::new(down);
    let mut y = vec![A::R::default(); o.ids.len() * n_out]; // [tokens * slots, n_out]
    if let Some(hidden) = &mut hidden {
        hidden.clear();
        hidden.resize(o.ids.len() * ff, A::R::default());
    }
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
        if let Some(hidden) = &mut hidden {
            for (&slot, h) in slots.iter().zip(h.chunks_exact(ff.max(1))) {
                hidden[slot * ff..][..ff].copy_from_slice(h);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Precision;
    use crate::op::Routing;
    use crate::reference::testing::{Data, W, distance, run};

    /// Four groups of two experts, by probability.
    const P: [f64; 8] = [0.9, 0.1, 0.6, 0.5, 0.7, 0.2, 0.3, 0.4];

    /// Ids and weights of one token, in f32 and f64 alike.
    fn route(p: &[f64], bias: Option<&[f32]>, routing: Routing) -> (Vec<i32>, Vec<f64>) {
        let logits = Data::Real(p.iter().map(|p| (p / (1.0 - p)).ln()).collect());
        let weights: Vec<W<'_>> = bias.iter().map(|b| ("bias", [1, 1, b.len()], *b)).collect();
        let [a, b] = [Precision::F32, Precision::F64].map(|precision| {
            let out = run(precision, &weights, 1, std::slice::from_ref(&logits), |b, v, w| {
                let (probs, ids, ws) = b.moe_route(v[0], Routing { bias: w.first().copied(), ..routing })?;
                Ok(vec![probs, ids, ws])
            });
            let out = out.unwrap();
            assert!(distance(out[0].real(), p) < 1e-6, "probabilities never have the bias");
            (out[1].int().to_vec(), out[2].real().to_vec())
        });
        assert_eq!(a.0, b.0);
        assert!(distance(&a.1, &b.1) < 1e-6);
        b
    }

    fn sigmoid(top_k: usize, groups: Option<(usize, usize)>, renormalize: bool) -> Routing {
        let groups = groups.map(|(n, used)| ExpertGroups { n, used });
        Routing { score: RouterScore::Sigmoid, groups, ..Routing::softmax(top_k, renormalize) }
    }

    #[track_caller]
    fn expect(found: (Vec<i32>, Vec<f64>), ids: &[i32], weights: &[f64]) {
        assert_eq!(found.0, ids);
        assert!(distance(&found.1, weights) < 1e-12, "{:?}", found.1);
    }

    #[test]
    fn groups_of_two_good_experts_beat_the_best_expert() {
        expect(route(&P, None, sigmoid(2, None, false)), &[0, 4], &[0.9, 0.7]);
        // Worth 1.0, 1.1, 0.9, 0.7.
        expect(route(&P, None, sigmoid(2, Some((4, 1)), false)), &[2, 3], &[0.6, 0.5]);
        expect(route(&P, None, sigmoid(2, Some((4, 2)), false)), &[0, 2], &[0.9, 0.6]);
        // Of four experts a group has two that count: 1.5 against 1.1.
        expect(route(&P, None, sigmoid(3, Some((2, 1)), true)), &[0, 2, 3], &[0.45, 0.3, 0.25]);
    }

    #[test]
    fn the_bias_chooses_and_does_not_weigh() {
        let mut bias = [0.0; 8];
        bias[5] = 1.0;
        expect(route(&P, Some(&bias), sigmoid(2, None, false)), &[5, 0], &[0.2, 0.9]);
        let found = route(&P, Some(&bias), sigmoid(2, Some((4, 1)), true));
        expect(found, &[5, 4], &[0.2 / 0.9, 0.7 / 0.9]);
        bias[0] = -1.0;
        expect(route(&P, Some(&bias), sigmoid(2, Some((4, 2)), false)), &[5, 4], &[0.2, 0.7]);
    }

    #[test]
    fn equal_groups_and_experts_go_by_number() {
        let p = [0.5, 0.25, 0.25, 0.5, 0.25, 0.5];
        expect(route(&p, None, sigmoid(3, Some((3, 2)), false)), &[0, 3, 1], &[0.5, 0.5, 0.25]);
    }

    /// Experts that no token wants have weights all the same, and zero is one.
    #[test]
    fn nothing_chosen_weighs_nothing() {
        let x = [Data::Real(vec![-60.0; 4])];
        let out = run(Precision::F32, &[], 1, &x, |b, v, _| {
            let (probs, ids, ws) = b.moe_route(v[0], sigmoid(2, None, true))?;
            Ok(vec![probs, ids, ws])
        });
        let out = out.unwrap();
        assert_eq!(out, [Data::Real(vec![0.0; 4]), Data::Int(vec![0, 1]), Data::Real(vec![0.0; 2])]);
    }

    /// Rows of `p` in one pass of blocks: the ids of each.
    fn routed(p: &[&[f64]], bias: &[f32], block: (usize, usize), top_k: usize) -> Vec<Vec<i32>> {
        let block = Some(RoutingBlock { len: block.0, capacity: block.1 });
        let logits = Data::Real(p.concat().iter().map(|p| (p / (1.0 - p)).ln()).collect());
        let out =
            run(Precision::F64, &[("bias", [1, 1, bias.len()], bias)], p.len(), &[logits], |b, v, w| {
                let bias = Some(w[0]);
                let (_, ids, _) = b.moe_route(v[0], Routing { bias, block, ..sigmoid(top_k, None, true) })?;
                Ok(vec![ids])
            });
        out.unwrap()[0].int().chunks(top_k).map(<[i32]>::to_vec).collect()
    }

    #[test]
    fn a_block_chooses_by_its_keenest_tokens() {
        let tokens: [&[f64]; 3] = [&[0.9, 0.5, 0.4, 0.1], &[0.1, 0.5, 0.4, 0.8], &[0.1, 0.2, 0.7, 0.3]];
        let none = [0.0; 4];
        // Two tokens are worth 0.9, 0.5, 0.4, 0.8 to their block; the third is a block that the sequence ends in.
        assert_eq!(routed(&tokens, &none, (2, 2), 2), [[0, 3], [3, 0], [2, 3]]);
        assert_eq!(routed(&tokens, &none, (2, 3), 2), [[0, 1], [3, 1], [2, 3]]);
        // By sums the one open expert would be 1.
        assert_eq!(routed(&tokens, &none, (3, 1), 1), [[0], [0], [0]]);
        assert_eq!(routed(&tokens, &none, (1, 2), 2), routed(&tokens, &none, (3, 4), 2), "no limit");
        // The bias counts for blocks as it does for tokens.
        assert_eq!(routed(&tokens, &[0.0, 0.45, 0.0, 0.0], (2, 2), 2), [[1, 0], [1, 0], [2, 1]]);
    }

    #[test]
    fn equal_experts_of_a_block_go_by_number() {
        let tokens: [&[f64]; 2] = [&[0.5, 0.25, 0.5, 0.5], &[0.25, 0.5, 0.5, 0.25]];
        assert_eq!(routed(&tokens, &[0.0; 4], (2, 3), 2), [[0, 2], [1, 2]]);
        assert_eq!(routed(&tokens, &[0.0; 4], (2, 2), 2), [[0, 1], [1, 0]]);
        assert_eq!(routed(&[&[0.25; 4]], &[-3e38; 4], (8, 3), 3), [[0, 1, 2]]);
    }

    #[test]
    fn impossible_blocks_are_refused() {
        let x = [Data::Real(vec![0.0; 8])];
        for (len, capacity, top_k, groups, said) in [
            (0, 4, 2, None, "length of a block"),
            (4, 0, 2, None, "capacity must be 1..=8, found 0"),
            (4, 9, 2, None, "capacity must be 1..=8, found 9"),
            (4, 3, 4, None, "top_k must be 1..=3, found 4"),
            (4, 4, 2, Some((4, 2)), "groups beside blocks of tokens"),
        ] {
            let block = Some(RoutingBlock { len, capacity });
            let e = run(Precision::F32, &[], 1, &x, |b, v, _| {
                Ok(vec![b.moe_route(v[0], Routing { block, ..sigmoid(top_k, groups, true) })?.0])
            });
            let e = e.unwrap_err().to_string();
            assert!(e.contains("MoeRoute") && e.contains(said), "{e}");
        }
    }

    #[test]
    fn impossible_groups_are_refused() {
        for (top_k, groups, said) in [
            (2, (3, 1), "a divisor of 8 that leaves two experts a group"),
            (2, (8, 4), "a divisor of 8 that leaves two experts a group"),
            (2, (0, 1), "a divisor of 8"),
            (2, (4, 5), "1..=4"),
            (2, (4, 0), "1..=4"),
            (3, (4, 1), "1..=2"),
        ] {
            let x = [Data::Real(vec![0.0; 8])];
            let e = run(Precision::F32, &[], 1, &x, |b, v, _| {
                Ok(vec![b.moe_route(v[0], sigmoid(top_k, Some(groups), true))?.0])
            });
            let e = e.unwrap_err().to_string();
            assert!(e.contains("MoeRoute") && e.contains(said), "{e}");
        }
    }
}
