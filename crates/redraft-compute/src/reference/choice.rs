//! What stands between logits and a sampler: rows that are wanted, ids that are not, and what a pick is worth.

use super::arithmetic::{Arithmetic, Real};
use crate::ComputeError;
use crate::host::{HostReal, OpCx};
use crate::math::reduce::{self, Sum};
use crate::op::{Penalize, Penalty, PickStats, RESTRICTED, Restrict, TakeRows};

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

pub(super) fn penalize<A: Arithmetic>(o: &Penalize, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let n = o.logits.cols().max(1);
    let rows = cx.real(o.logits).chunks_exact(n).zip(out.chunks_exact_mut(n));
    for (row, (x, out)) in rows.enumerate() {
        penalize_row::<A>(&o.by, row, x, out);
    }
    cx.put_real(o.out, out);
    Ok(())
}

/// One row of [`Penalize`]:
///
/// 1. Ids with a bias: `x + bias`.
/// 2. Ids that were seen, but for the one of the row: `x * repetition` where `x` is below 0, else `x * (1 / repetition)`;
///    then `- presence`.
/// 3. Banned ids become [`RESTRICTED`], those of all rows and those of this one.
pub(crate) fn penalize_row<A: Arithmetic>(by: &Penalty, row: usize, x: &[A::R], out: &mut [A::R]) {
    out.copy_from_slice(x);
    let (more, less) = (A::scalar(by.repetition), A::scalar(1.0 / by.repetition));
    let (presence, zero) = (A::scalar(by.presence), A::R::default());
    for &(id, bias) in &by.bias {
        if let Some(x) = out.get_mut(id as usize) {
            *x = A::keep(*x + A::scalar(bias));
        }
    }
    let except = by.except.get(row).copied().flatten();
    for &id in by.seen.iter().filter(|&&id| Some(id) != except) {
        if let Some(x) = out.get_mut(id as usize) {
            let by = if *x < zero { more } else { less };
            *x = A::keep(*x * by - presence);
        }
    }
    ban::<A>(&by.ban, out);
    for b in by.row_bans.iter().filter(|b| b.rows.get(row).is_some_and(|&banned| banned)) {
        ban::<A>(&b.ids, out);
    }
}

fn ban<A: Arithmetic>(ids: &[u32], x: &mut [A::R]) {
    for &id in ids {
        if let Some(x) = x.get_mut(id as usize) {
            *x = A::scalar(RESTRICTED);
        }
    }
}

pub(super) fn restrict<A: Arithmetic>(o: &Restrict, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let mut out = cx.take_real(o.out);
    let n = o.logits.cols().max(1);
    for (x, out) in cx.real(o.logits).chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        restrict_row::<A>(o, x, out);
    }
    cx.put_real(o.out, out);
    Ok(())
}

/// One row of [`Restrict`]:
///
/// 1. Banned ids become [`RESTRICTED`].
/// 2. `top_k`: ids below the `top_k`-th largest logit become it too; equal ones stay.
/// 3. `top_p`: with `e[v] = exp(x[v] - max)` and their sum `S` (16 accumulators), ids are taken by falling logit, the
///    lower id first among equals, while the running sum of the `e` before them is at most `top_p * S`.
pub(crate) fn restrict_row<A: Arithmetic>(o: &Restrict, x: &[A::R], out: &mut [A::R]) {
    let never = A::scalar(RESTRICTED);
    out.copy_from_slice(x);
    ban::<A>(&o.ban, out);
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

#[cfg(test)]
mod tests {
    use super::super::testing::{Data, run};
    use super::*;
    use crate::backend::Precision;
    use crate::op::RowBan;
    use crate::program::ProgramBuilder;
    use crate::{Val, WeightId};

    /// By hand.
    #[test]
    fn what_was_seen_is_worth_less_and_what_is_banned_nothing() {
        const X: f64 = RESTRICTED;
        let x = [2.0, -2.0, 0.0, 4.0, 1.0];
        let by = |repetition, presence, ban: &[u32], except| Penalty {
            bias: Vec::new(),
            seen: vec![0, 1, 2, 4],
            except: vec![except],
            repetition,
            presence,
            ban: ban.to_vec(),
            row_bans: Vec::new(),
        };
        let row_ban = |rows: &[bool]| vec![RowBan { ids: vec![3], rows: rows.to_vec() }];
        // Positive logits are divided by two, negative ones multiplied, then a half is subtracted.
        let cases = [
            (by(1.0, 0.0, &[], None), x),
            (by(2.0, 0.0, &[], None), [1.0, -4.0, 0.0, 4.0, 0.5]),
            (by(2.0, 0.5, &[], None), [0.5, -4.5, -0.5, 4.0, 0.0]),
            (by(1.0, 0.5, &[3], Some(1)), [1.5, -2.0, -0.5, X, 0.5]),
            (by(0.5, -1.0, &[0, 1], Some(4)), [X, X, 1.0, 4.0, 1.0]),
            (Penalty { row_bans: row_ban(&[true]), ..by(1.0, 0.0, &[0], None) }, [X, -2.0, 0.0, X, 1.0]),
            (Penalty { row_bans: row_ban(&[false]), ..by(1.0, 0.0, &[0], None) }, [X, -2.0, 0.0, 4.0, 1.0]),
            // Added first: what is negative then is multiplied, and what is banned stays so.
            (
                Penalty { bias: vec![(0, -3.0), (1, 3.0), (2, 9.0), (3, 0.25)], ..by(2.0, 0.0, &[2], None) },
                [-2.0, 0.5, X, 4.25, 0.5],
            ),
        ];
        for (by, want) in cases {
            for p in [Precision::F32, Precision::F64] {
                let build = |b: &mut ProgramBuilder, v: &[Val], _: &[WeightId]| {
                    Ok(vec![b.penalize(v[0], by.clone())?])
                };
                let out = run(p, &[], 1, &[Data::Real(x.to_vec())], build).unwrap();
                let same = out[0].real().iter().zip(want).all(|(a, b)| *a as f32 == b as f32);
                assert!(same, "{p:?} {by:?}: {:?}", out[0]);
            }
        }
        let refused = |by: Penalty| {
            let e = run(Precision::F32, &[], 1, &[Data::Real(x.to_vec())], |b, v, _| {
                Ok(vec![b.penalize(v[0], by.clone())?])
            });
            assert!(matches!(e, Err(ComputeError::Shape { op: "Penalize", .. })), "{by:?}");
        };
        refused(by(0.0, 0.0, &[], None));
        refused(by(1.0, f64::NAN, &[], None));
        refused(by(1.0, 0.0, &[5], None));
        refused(by(1.0, 0.0, &[1, 1], None));
        refused(by(1.0, 0.0, &[0, 1, 2, 3, 4], None));
        let rest = |rows: &[bool]| vec![RowBan { ids: vec![2, 3, 4], rows: rows.to_vec() }];
        refused(Penalty { row_bans: rest(&[true]), ..by(1.0, 0.0, &[0, 1], None) });
        refused(Penalty { row_bans: rest(&[]), ..by(1.0, 0.0, &[], None) });
        refused(Penalty { except: vec![], ..by(1.0, 0.0, &[], None) });
        for bias in [vec![(1, 0.0), (1, 0.0)], vec![(5, 0.0)], vec![(0, f64::INFINITY)]] {
            refused(Penalty { bias, ..by(1.0, 0.0, &[], None) });
        }
    }
}
