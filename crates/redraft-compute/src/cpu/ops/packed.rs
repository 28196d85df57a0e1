//! Activations in the order in which the matrix kernel reads them.
//!
//! Tokens are cut into groups of as many as the kernel keeps in registers. Within a group the numbers lie
//! `[k][tokens of the group]`, so the kernel reads them in one stream.

use crate::ComputeError;
use crate::cpu::pool::{Grid, Pool};

/// The groups of `n` tokens from token `first` on: `(first token, tokens)`, greedily the largest size first.
pub(crate) fn groups(
    sizes: &'static [usize],
    first: usize,
    n: usize,
) -> impl Iterator<Item = (usize, usize)> + Clone {
    let end = first + n;
    let mut at = first;
    std::iter::from_fn(move || {
        let size = *sizes.iter().find(|&&s| s <= end - at)?;
        at += size;
        Some((at - size, size))
    })
}

/// Interleaves the rows of one group: `out[k][i] = round(rows(i)[k])`.
pub(crate) fn interleave<'a>(
    size: usize,
    row: impl Fn(usize) -> &'a [f32],
    round: impl Fn(f32) -> f32,
    out: &mut [f32],
) {
    for i in 0..size {
        for (o, &x) in out[i..].iter_mut().step_by(size).zip(row(i)) {
            *o = round(x);
        }
    }
}

/// Packed activations of some tokens.
#[derive(Default)]
pub(crate) struct Packed {
    x: Vec<f32>,
    /// First token of each group, and the end.
    bounds: Vec<usize>,
    k: usize,
}

impl Packed {
    /// Packs tokens in bands: groups do not cross `bands` (ascending, from 0). `row(i)` is token `i`, of `k`
    /// numbers, each of which is rounded by `round`.
    pub(crate) fn fill<'a>(
        &mut self,
        pool: &Pool,
        sizes: &'static [usize],
        bands: &[usize],
        k: usize,
        row: impl Fn(usize) -> &'a [f32] + Sync,
        round: impl Fn(f32) -> f32 + Sync,
    ) -> Result<(), ComputeError> {
        self.k = k;
        self.bounds.clear();
        self.bounds.push(0);
        for w in bands.windows(2) {
            self.bounds.extend(groups(sizes, w[0], w[1] - w[0]).map(|(at, n)| at + n));
        }
        let n = self.bounds.last().copied().unwrap_or(0);
        resize(&mut self.x, n * k, "packed activations")?;
        let grid = Grid { cols: k, bands: &self.bounds, tile_cols: k.max(1) };
        pool.tiles(&mut self.x, grid, |_, mut tile| {
            let (first, size) = (tile.row, tile.rows);
            interleave(size, |i| row(first + i), &round, tile.whole());
        });
        Ok(())
    }

    /// The numbers of the group that starts at token `first` and has `size` tokens, input features
    /// `k .. k + len`.
    pub(crate) fn group(&self, (first, size): (usize, usize), [k, len]: [usize; 2]) -> &[f32] {
        let at = first * self.k + k * size;
        &self.x[at..at + len * size]
    }
}

/// Gives a buffer that is kept between ops the length `n`; its elements are not meaningful.
pub(crate) fn resize<T: Copy + Default>(x: &mut Vec<T>, n: usize, what: &str) -> Result<(), ComputeError> {
    if n > x.len() {
        x.try_reserve_exact(n - x.len()).map_err(|_| ComputeError::OutOfMemory {
            what: what.into(),
            bytes: n.saturating_mul(size_of::<T>()),
        })?;
    }
    x.resize(n, T::default());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_greedy_and_complete() {
        let of = |first, n| groups(&[6, 4, 2, 1], first, n).collect::<Vec<_>>();
        assert_eq!(of(0, 0), []);
        assert_eq!(of(3, 1), [(3, 1)]);
        assert_eq!(of(0, 17), [(0, 6), (6, 6), (12, 4), (16, 1)]);
        assert_eq!(of(10, 11), [(10, 6), (16, 4), (20, 1)]);
    }

    #[test]
    fn packed_tokens_are_found_again() {
        let pool = Pool::new(2);
        let x: Vec<Vec<f32>> = (0..13).map(|t| (0..5).map(|k| (t * 10 + k) as f32).collect()).collect();
        let mut p = Packed::default();
        let bands = [0, 0, 5, 13];
        p.fill(&pool, &[4, 2, 1], &bands, 5, |t| &x[t], |x| x).unwrap();
        for w in bands.windows(2) {
            for (first, size) in groups(&[4, 2, 1], w[0], w[1] - w[0]) {
                let g = p.group((first, size), [1, 3]);
                for (i, &v) in g.iter().enumerate() {
                    assert_eq!(v, x[first + i % size][1 + i / size]);
                }
            }
        }
    }
}
