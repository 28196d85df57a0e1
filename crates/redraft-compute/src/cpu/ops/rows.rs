//! Ops whose rows (positions) do not depend on each other: bands of rows are split over the threads, and each
//! row or band is one call of a kernel.

use std::sync::atomic::{AtomicBool, Ordering};

use super::panel::Matrix;
use crate::cpu::pool::Pool;
use crate::cpu::{Cpu, Cx};
use crate::op::{self, ExpertGroups, Factor, RouterScore, Routing, RoutingBlock, SIGMOID_SUM};
use crate::reference::{F32, choice};
use crate::{ComputeError, Val, math};

/// Elements of a band: some 10 µs of work, so that handing it over does not count.
const GRAIN: usize = 16 * 1024;

/// Computes `out` from bands of whole rows: `f(range of elements, out band)`.
fn bands(pool: &Pool, v: Val, out: &mut [f32], f: impl Fn(std::ops::Range<usize>, &mut [f32]) + Sync) {
    pool.rows(out, v.cols(), GRAIN, |_, row, out| {
        let at = row * v.cols();
        f(at..at + out.len(), out);
    });
}

/// Whether there is no NaN and no infinity.
pub(crate) fn finite(cpu: &Cpu, x: &[f32]) -> bool {
    let all = AtomicBool::new(true);
    cpu.pool.each(x.len().div_ceil(GRAIN), |_, i| {
        if !(cpu.table.finite)(&x[i * GRAIN..x.len().min((i + 1) * GRAIN)]) {
            all.store(false, Ordering::Relaxed);
        }
    });
    all.into_inner()
}

pub(crate) fn scale(cpu: &mut Cpu, o: &op::Scale, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let by = match o.by {
        Factor::Const(c) => c as f32,
        Factor::Scalar(w) => Matrix::new(cx.weights.get(w)?)?.vector(cpu.table)[0],
    };
    let mut out = cx.take_real(o.out);
    let x = cx.real(o.x);
    bands(&cpu.pool, o.out, &mut out, |at, out| (cpu.table.scale)(&x[at], by, out));
    cx.put_real(o.out, out);
    Ok(())
}

pub(crate) fn add(cpu: &mut Cpu, o: &op::Add, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let (a, b) = (cx.real(o.a), cx.real(o.b));
    let start = o.first * o.a.cols();
    let (before, rest) = out.split_at_mut(start);
    let (sum, after) = rest.split_at_mut(b.len());
    before.copy_from_slice(&a[..start]);
    after.copy_from_slice(&a[start + b.len()..]);
    let a = &a[start..];
    bands(&cpu.pool, o.b, sum, |at, out| (cpu.table.add)(&a[at.clone()], &b[at], out));
    cx.put_real(o.out, out);
    Ok(())
}

pub(crate) fn glu(cpu: &mut Cpu, o: &op::Glu, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let (gate, up) = (cx.real(o.gate), cx.real(o.up));
    bands(&cpu.pool, o.out, &mut out, |at, out| {
        (cpu.table.glu)(&gate[at.clone()], &up[at], o.act, out);
    });
    cx.put_real(o.out, out);
    Ok(())
}

pub(crate) fn softcap(cpu: &mut Cpu, o: &op::Softcap, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let x = cx.real(o.x);
    let (cap, inverse) = (o.cap as f32, (1.0 / o.cap) as f32);
    bands(&cpu.pool, o.out, &mut out, |at, out| (cpu.table.softcap)(&x[at], cap, inverse, out));
    cx.put_real(o.out, out);
    Ok(())
}

pub(crate) fn rms_norm(cpu: &mut Cpu, o: &op::RmsNorm, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let weight = match o.weight {
        Some(w) => Some(Matrix::new(cx.weights.get(w)?)?.vector(cpu.table)),
        None => None,
    };
    let mut out = cx.take_real(o.out);
    let x = cx.real(o.x);
    let inverse_n = (1.0 / o.group as f64) as f32;
    bands(&cpu.pool, o.out, &mut out, |at, out| {
        for (x, out) in x[at].chunks_exact(o.group).zip(out.chunks_exact_mut(o.group)) {
            (cpu.table.rms_norm)(x, weight.as_deref(), o.eps, inverse_n, out);
        }
    });
    cx.put_real(o.out, out);
    Ok(())
}

pub(crate) fn rope(cpu: &mut Cpu, o: &op::Rope, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let (x, table, n) = (cx.real(o.x), cx.real(o.table), o.x.cols());
    cpu.pool.rows(&mut out, n, GRAIN, |_, row, out| {
        for (t, out) in (row..).zip(out.chunks_exact_mut(n)) {
            let angles = &table[t * o.n_rot..][..o.n_rot];
            (cpu.table.rope)(&x[t * n..][..n], angles, o.head_dim, o.style, out);
        }
    });
    cx.put_real(o.out, out);
    Ok(())
}

/// The row of the reference: a copy, and some ids changed.
pub(crate) fn penalize(cpu: &mut Cpu, o: &op::Penalize, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let (x, n) = (cx.real(o.logits), o.logits.cols());
    let mut rows: Vec<_> = out.chunks_exact_mut(n).collect();
    cpu.pool.items(&mut rows, |_, t, out| choice::penalize_row::<F32>(&o.by, t, &x[t * n..][..n], out));
    cx.put_real(o.out, out);
    Ok(())
}

/// The row of the reference: selections and few exponentials, next to a product with the whole vocabulary.
pub(crate) fn restrict(cpu: &mut Cpu, o: &op::Restrict, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let (x, n) = (cx.real(o.logits), o.logits.cols());
    let mut rows: Vec<_> = out.chunks_exact_mut(n).collect();
    cpu.pool.items(&mut rows, |_, t, out| choice::restrict_row::<F32>(o, &x[t * n..][..n], out));
    cx.put_real(o.out, out);
    Ok(())
}

pub(crate) fn pick_stats(cpu: &mut Cpu, o: &op::PickStats, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    choice::check_picks(o, cx)?;
    let mut out = cx.take_real(o.out);
    let (x, n) = (cx.real(o.logits), o.logits.cols());
    let (argmax, sample) = (cx.int(o.argmax), cx.int(o.sample));
    cpu.pool.items(out.as_chunks_mut().0, |_, t, out| {
        *out = choice::pick_row(&x[t * n..][..n], argmax[t], sample[t]);
    });
    cx.put_real(o.out, out);
    Ok(())
}

/// Probabilities of all experts, then the best `top_k` one after the other. There are few experts, so the choice is
/// scalar.
pub(crate) fn moe_route(cpu: &mut Cpu, o: &op::MoeRoute, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let r = &o.routing;
    let vector = |w| Ok(Matrix::new(cx.weights.get(w)?)?.vector(cpu.table));
    let factors = r.expert_scale.map(vector).transpose()?;
    let bias = r.bias.map(vector).transpose()?;
    let (mut probs, mut ids, mut weights) =
        (cx.take_real(o.probs), cx.take_int(o.ids), cx.take_real(o.weights));
    let (logits, n, k) = (cx.real(o.logits), o.logits.cols(), r.top_k);
    let score = match r.score {
        RouterScore::Softmax => cpu.table.softmax,
        RouterScore::Sigmoid => cpu.table.sigmoid,
    };
    let biased = |probs: &[f32]| {
        let mut choice = probs.to_vec();
        if let Some(bias) = &bias {
            choice.iter_mut().zip(bias).for_each(|(c, b)| *c += b);
        }
        choice
    };
    // Without blocks a row needs no other one.
    let (mut open, mut block_of) = (Vec::new(), Vec::new());
    if let Some(block) = r.block {
        let mut rows: Vec<_> = probs.chunks_exact_mut(n).collect();
        cpu.pool.items(&mut rows, |_, t, probs| score(&logits[t * n..][..n], probs));
        let blocks = o.segments.blocks(block.len);
        block_of = blocks.iter().enumerate().flat_map(|(i, rows)| rows.clone().map(move |_| i)).collect();
        open.resize(blocks.len(), Vec::new());
        cpu.pool.items(&mut open, |_, i, open| {
            let rows = probs[blocks[i].start * n..blocks[i].end * n].chunks_exact(n);
            *open = open_to_block(rows.map(biased), block, n);
        });
    }
    let mut rows: Vec<_> =
        probs.chunks_exact_mut(n).zip(ids.chunks_exact_mut(k)).zip(weights.chunks_exact_mut(k)).collect();
    cpu.pool.items(&mut rows, |_, t, ((probs, ids), weights)| {
        if r.block.is_none() {
            score(&logits[t * n..][..n], probs);
        }
        let choice = biased(probs);
        let mut free = match (r.groups, r.block) {
            (Some(groups), _) => open_groups(&choice, groups),
            (_, Some(_)) => open[block_of[t]].clone(),
            _ => vec![true; n],
        };
        choose(&choice, &mut free, ids);
        weigh(probs, r, factors.as_deref(), ids, weights);
    });
    drop(rows);
    cx.put_real(o.probs, probs);
    cx.put_int(o.ids, ids);
    cx.put_real(o.weights, weights);
    Ok(())
}

/// Which of `n` experts all tokens of a block choose among, by what the experts are worth to each token.
fn open_to_block(rows: impl Iterator<Item = Vec<f32>>, block: RoutingBlock, n: usize) -> Vec<bool> {
    let worth = rows.reduce(|mut worth, row| {
        worth.iter_mut().zip(row).for_each(|(w, x)| *w = if *w < x { x } else { *w });
        worth
    });
    let (worth, mut unused) = (worth.unwrap_or_default(), vec![true; n]);
    choose(&worth, &mut unused, &mut vec![0; block.capacity]);
    unused.iter().map(|unused| !unused).collect()
}

/// Which experts belong to the groups that are used.
fn open_groups(choice: &[f32], groups: ExpertGroups) -> Vec<bool> {
    let size = choice.len() / groups.n;
    let worth: Vec<f32> = choice
        .chunks_exact(size)
        .map(|group| {
            let top = group.iter().fold([f32::NEG_INFINITY; 2], |[first, second], &x| match x {
                x if x > first => [x, first],
                x if x > second => [first, x],
                _ => [first, second],
            });
            top[0] + top[1]
        })
        .collect();
    let mut unused = vec![true; groups.n];
    choose(&worth, &mut unused, &mut vec![0; groups.used]);
    (0..choice.len()).map(|e| !unused[e / size]).collect()
}

/// The places of the `ids.len()` largest numbers that are free, the first first among equals; they are free no longer.
/// Each place is taken once, also where numbers are minus infinity, as sums of large negative biases are.
fn choose(choice: &[f32], free: &mut [bool], ids: &mut [i32]) {
    for id in ids {
        let mut best: Option<usize> = None;
        for (e, &c) in choice.iter().enumerate() {
            if free[e] && best.is_none_or(|b| choice[b] < c) {
                best = Some(e);
            }
        }
        let best = best.unwrap_or(0);
        free[best] = false;
        *id = best as i32;
    }
}

/// The weights of the chosen experts.
fn weigh(probs: &[f32], r: &Routing, factors: Option<&[f32]>, ids: &[i32], weights: &mut [f32]) {
    let mut sum = 0.0;
    for (&id, w) in ids.iter().zip(weights.iter_mut()) {
        *w = probs[id as usize];
        sum += *w;
    }
    if r.score == RouterScore::Sigmoid {
        sum += SIGMOID_SUM as f32;
    }
    let inverse = math::recip(sum);
    for (&id, w) in ids.iter().zip(weights) {
        if r.renormalize {
            *w *= inverse;
        }
        if let Some(f) = factors {
            *w *= f[id as usize];
        }
        *w = math::flush(*w);
    }
}
