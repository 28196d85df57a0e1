//! What samplers need to know of a row of logits.

use super::arithmetic::Arithmetic;
use super::logits::logits;
use crate::ComputeError;
use crate::host::OpCx;
use crate::math::reduce::{self, Sum};
use crate::op::{STATS, TILE, TokenSample, TokenStats};

/// One tile of [`TILE`] ids of a row: `m` = maximum, and with `e[v] = exp(x[v] - m)` the sums of `e[v]` and of
/// `e[v] * (x[v] - m)`, both with 16 accumulators, index in the tile.
struct Tile<R> {
    max: R,
    sum: R,
    moment: R,
}

impl<R> Tile<R> {
    fn of<A: Arithmetic<R = R>>(x: &[R]) -> Tile<R>
    where
        R: super::arithmetic::Real,
    {
        let max = reduce::max(x.iter().copied());
        let (mut sum, mut moment) = (Sum::default(), Sum::default());
        for (v, &x) in x.iter().enumerate() {
            let e = A::exp(x - max);
            sum.add(v, e);
            moment.add(v, e * (x - max));
        }
        Tile { max, sum: sum.total(), moment: moment.total() }
    }
}

/// For each row, with `m` = the largest maximum of a tile, and for each tile `d = max - m`, `f = exp(d)`, share
/// `c = sum * f`:
///
/// * `S` = sum of `c` and `T` = sum of `f * moment + c * d`, both tile after tile from +0;
/// * log-sum-exp `m + log(S)`, entropy `log(S) - T * recip(S)`;
/// * argmax: the lowest id with `x[v] == m`.
pub(super) fn token_stats<A: Arithmetic>(
    o: &TokenStats,
    cx: &mut OpCx<'_, A::R>,
) -> Result<(), ComputeError> {
    let x = logits::<A>(&o.logits, cx)?;
    let (mut stats, mut tiles, mut argmax) =
        (cx.take_real(o.stats), cx.take_real(o.tiles), cx.take_int(o.argmax));
    let n = o.tiles.cols() / 2;
    let vocab = x.len() / o.logits.x.rows().max(1);
    for (t, x) in x.chunks_exact(vocab.max(1)).enumerate() {
        let of: Vec<Tile<A::R>> = x.chunks(TILE).map(Tile::of::<A>).collect();
        let m = reduce::max(of.iter().map(|tile| tile.max));
        let (mut sum, mut moment) = (A::R::default(), A::R::default());
        let (maxima, shares) = tiles[t * 2 * n..][..2 * n].split_at_mut(n);
        for (i, tile) in of.iter().enumerate() {
            let d = tile.max - m;
            let f = A::exp(d);
            let share = tile.sum * f;
            sum = sum + share;
            moment = moment + (f * tile.moment + share * d);
            (maxima[i], shares[i]) = (A::keep(tile.max), A::keep(share));
        }
        let log = A::log(sum);
        let row = [m, m + log, log - moment * A::recip(sum), sum];
        stats[t * STATS..][..STATS].copy_from_slice(&row.map(A::keep));
        argmax[t] = x.iter().position(|&x| x == m).unwrap_or(0) as i32;
    }
    cx.put_real(o.stats, stats);
    cx.put_real(o.tiles, tiles);
    cx.put_int(o.argmax, argmax);
    Ok(())
}

/// Inverse-CDF samples in the order of ids; see [`place`] and [`search`].
pub(super) fn token_sample<A: Arithmetic>(
    o: &TokenSample,
    cx: &mut OpCx<'_, A::R>,
) -> Result<(), ComputeError> {
    let x = logits::<A>(&o.of.logits, cx)?;
    let mut out = cx.take_int(o.out);
    let n = o.of.tiles.cols() / 2;
    let (stats, tiles, u) = (cx.real(o.of.stats), cx.real(o.of.tiles), cx.real(o.u));
    let vocab = x.len() / o.u.rows().max(1);
    for (t, x) in x.chunks_exact(vocab.max(1)).enumerate() {
        let (maxima, shares) = tiles[t * 2 * n..][..2 * n].split_at(n);
        let place = place(shares, u[t]);
        let max = maxima[place.tile];
        let f = A::exp(max - stats[t * STATS]);
        let weights = x.chunks(TILE).nth(place.tile).into_iter().flatten().map(|&x| A::exp(x - max) * f);
        out[t] = (place.tile * TILE + search(weights, place)) as i32;
    }
    cx.put_int(o.out, out);
    Ok(())
}

/// Where in a row the sample is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place<R> {
    pub(crate) tile: usize,
    /// Sum of the shares before the tile.
    pub(crate) before: R,
    /// What the running sum must reach.
    pub(crate) target: R,
}

/// The first tile at whose end the running sum of shares is at least `u * total`, where total is their sum, tile after
/// tile. If there is none, which takes a `u` above 1: the last tile with a share above zero.
pub(crate) fn place<R: super::arithmetic::Real>(shares: &[R], u: R) -> Place<R> {
    let zero = R::default();
    let target = u * shares.iter().fold(zero, |total, &s| total + s);
    let mut last = Place { tile: 0, before: zero, target };
    let mut before = zero;
    for (tile, &share) in shares.iter().enumerate() {
        if before + share >= target {
            return Place { tile, before, target };
        }
        if share > zero {
            last = Place { tile, before, target };
        }
        before = before + share;
    }
    last
}

/// The first id of a tile at which the running sum, id after id, is at least the target. If rounding keeps it below:
/// the last id with a weight above zero.
pub(crate) fn search<R: super::arithmetic::Real>(weights: impl Iterator<Item = R>, place: Place<R>) -> usize {
    let (mut running, mut last) = (place.before, 0);
    for (v, weight) in weights.enumerate() {
        running = running + weight;
        if running >= place.target {
            return v;
        }
        if weight > R::default() {
            last = v;
        }
    }
    last
}
