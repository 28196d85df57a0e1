//! What samplers need to know of a row of logits.

use super::arithmetic::Arithmetic;
use crate::ComputeError;
use crate::host::OpCx;
use crate::math::reduce::{self, Sum};
use crate::op::TokenStats;

/// Ids that form one tile of the running sum.
pub(crate) const TILE: usize = 1024;

/// For each row `x`, with `m = max x` and `e[v] = exp(x[v] - m)`:
///
/// * `S` = sum of `e[v]` and `T` = sum of `e[v] * (x[v] - m)`, both with 16 accumulators;
/// * log-sum-exp `m + log(S)`, entropy `log(S) - T * recip(S)`;
/// * argmax: the lowest id with `x[v] == m`;
/// * sample: see [`sample`].
pub(super) fn token_stats<A: Arithmetic>(
    o: &TokenStats,
    cx: &mut OpCx<'_, A::R>,
) -> Result<(), ComputeError> {
    let (mut stats, mut picks) = (cx.take_real(o.stats), cx.take_int(o.picks));
    let n = o.logits.cols().max(1);
    let mut e = vec![A::R::default(); o.logits.cols()];
    for (t, (x, &u)) in cx.real(o.logits).chunks_exact(n).zip(cx.real(o.u)).enumerate() {
        let m = reduce::max(x.iter().copied());
        let (mut s, mut moment) = (Sum::default(), Sum::default());
        for (v, (e, &x)) in e.iter_mut().zip(x).enumerate() {
            *e = A::exp(x - m);
            s.add(v, *e);
            moment.add(v, *e * (x - m));
        }
        let (s, moment) = (s.total(), moment.total());
        let log = A::log(s);
        let row = [m, m + log, log - moment * A::recip(s)];
        stats[t * 3..][..3].copy_from_slice(&row.map(A::keep));
        let argmax = x.iter().position(|&x| x == m).unwrap_or(0);
        picks[t * 2..][..2].copy_from_slice(&[argmax as i32, sample(&e, u) as i32]);
    }
    cx.put_real(o.stats, stats);
    cx.put_int(o.picks, picks);
    Ok(())
}

/// Inverse-CDF sample from weights `e` in the order of ids.
///
/// 1. The sum of each tile of 1,024 ids, with 16 accumulators; the tiles' sums added one after the other give
///    the total. `target = u * total`.
/// 2. The first tile at whose end the running sum is at least `target`.
/// 3. In it, ids one after the other from the running sum at its beginning: the first id at which the sum is
///    at least `target`.
/// 4. If rounding keeps the sum of step 3 below `target`: the last id of the tile with a weight above zero.
///    If `u` is above 1 and no tile reaches `target`: the last id of all with a weight above zero.
pub(crate) fn sample<R: super::arithmetic::Real>(e: &[R], u: R) -> usize {
    let zero = R::default();
    let sums: Vec<R> = e.chunks(TILE).map(|tile| reduce::sum(tile)).collect();
    let total = sums.iter().fold(zero, |total, &s| total + s);
    let target = u * total;
    let last_positive = |range: std::ops::Range<usize>| {
        let start = range.start;
        range.rev().find(|&v| e[v] > zero).unwrap_or(start)
    };
    let mut running = zero;
    for (t, &s) in sums.iter().enumerate() {
        if running + s >= target {
            let tile = t * TILE..e.len().min((t + 1) * TILE);
            for v in tile.clone() {
                running = running + e[v];
                if running >= target {
                    return v;
                }
            }
            return last_positive(tile);
        }
        running = running + s;
    }
    last_positive(0..e.len())
}
