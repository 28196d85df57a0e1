//! What stands between logits and a sampler: rows that are wanted, ids that are not, and what a pick is worth.

use super::arithmetic::{Arithmetic, Real};
use crate::ComputeError;
use crate::host::{HostReal, OpCx};
use crate::math::reduce::{self, Sum};
use crate::op::{PickStats, RESTRICTED, Restrict, TakeRows};

/// `out[i] = x[rows[i]]`.
pub(crate) fn take_rows<R: HostReal, C>(o: &TakeRows, cx: &mut OpCx<'_, R, C>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let (x, n) = (cx.real(o.x), o.x.cols());
    for (out, &row) in out.chunks_exact_mut(n.max(1)).zip(&o.rows) {
        out.copy_from_slice(&x[row as usize * n..][..n]);
    }
    cx.put_real(o.out, out);
    Ok(())
}

pub(super) fn restrict<A: Arithmetic>(o: &Restrict, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let n = o.logits.cols().max(1);
    for (row, (x, out)) in cx.real(o.logits).chunks_exact(n).zip(out.chunks_exact_mut(n)).enumerate() {
        restrict_row::<A>(o, row, x, out);
    }
    cx.put_real(o.out, out);
    Ok(())
}

/// One row of [`Restrict`]:
///
/// 1. Banned ids become [`RESTRICTED`], in rows to which the ban applies.
/// 2. `top_k`: ids below the `top_k`-th largest logit become it too; equal ones stay.
/// 3. `top_p`: with `e[v] = exp(x[v] - max)` and their sum `S` (16 accumulators), ids are taken by falling logit, the
///    lower id first among equals, while the running sum of the `e` before them is at most `top_p * S`.
pub(crate) fn restrict_row<A: Arithmetic>(o: &Restrict, row: usize, x: &[A::R], out: &mut [A::R]) {
    let never = A::scalar(RESTRICTED);
    out.copy_from_slice(x);
    let ban: &[u32] = if o.ban_rows.get(row).is_some_and(|&banned| !banned) { &[] } else { &o.ban };
    for &id in ban {
        if let Some(x) = out.get_mut(id as usize) {
            *x = never;
        }
    }
    if (1..out.len()).contains(&o.top_k) {
        let mut values = out.to_vec();
        let (_, &mut least, _) = values.select_nth_unstable_by(o.top_k - 1, |a, b| order(b, a));
        out.iter_mut().filter(|x| **x < least).for_each(|x| *x = never);
    }
    if o.top_p < 1.0 {
        nucleus::<A>(out, A::scalar(o.top_p), never);
    }
}

/// Logits are finite, so that this is a total order.
fn order<R: PartialOrd>(a: &R, b: &R) -> std::cmp::Ordering {
    a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal)
}

fn nucleus<A: Arithmetic>(x: &mut [A::R], p: A::R, never: A::R) {
    let m = reduce::max(x.iter().copied());
    let mut sum = Sum::default();
    x.iter().enumerate().for_each(|(v, &x)| sum.add(v, A::exp(x - m)));
    let bound = p * sum.total();
    let by_logit = |&a: &usize, &b: &usize| order(&x[b], &x[a]).then(a.cmp(&b));
    let mut ids: Vec<usize> = (0..x.len()).collect();
    // Few ids are kept as a rule: the best are found, sorted and taken in pieces that double.
    let (mut sorted, mut kept, mut piece) = (0, 0, 64);
    let mut before = A::R::default();
    'pieces: while sorted < ids.len() {
        let rest = &mut ids[sorted..];
        let n = piece.min(rest.len());
        if n < rest.len() {
            rest.select_nth_unstable_by(n - 1, by_logit);
        }
        rest[..n].sort_unstable_by(by_logit);
        for &id in &rest[..n] {
            if before > bound {
                break 'pieces;
            }
            before = before + A::exp(x[id] - m);
            kept += 1;
        }
        sorted += n;
        piece *= 2;
    }
    ids[kept..].iter().for_each(|&id| x[id] = never);
}

pub(super) fn pick_stats<A: Arithmetic>(o: &PickStats, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    check_picks(o, cx)?;
    let mut out = cx.take_real(o.out);
    let n = o.logits.cols().max(1);
    let picks = cx.int(o.argmax).iter().zip(cx.int(o.sample));
    let rows = cx.real(o.logits).chunks_exact(n).zip(picks);
    for ((x, (&argmax, &sample)), out) in rows.zip(out.as_chunks_mut::<3>().0) {
        *out = pick_row(x, argmax, sample);
    }
    cx.put_real(o.out, out);
    Ok(())
}

/// Checks that all picks are ids of the vocabulary.
pub(crate) fn check_picks<R: HostReal, C>(o: &PickStats, cx: &OpCx<'_, R, C>) -> Result<(), ComputeError> {
    let limit = o.logits.cols();
    [o.argmax, o.sample].into_iter().try_for_each(|picks| cx.check_ids("PickStats", picks, limit))
}

/// One row of [`PickStats`]: the logit of the argmax, the largest logit of another id (the argmax's own in a vocabulary
/// of one), and the logit of the sample. Both are ids of the vocabulary.
pub(crate) fn pick_row<R: Real>(x: &[R], argmax: i32, sample: i32) -> [R; 3] {
    let (argmax, sample) = (argmax as usize, sample as usize);
    let others = x.iter().enumerate().filter(|(v, _)| *v != argmax || x.len() == 1);
    [x[argmax], reduce::max(others.map(|(_, &x)| x)), x[sample]]
}
