//! Activations in the order in which the matrix kernel reads them.
//!
//! Tokens are cut into groups of as many as the kernel keeps in registers. Within a group the numbers lie
//! `[k][tokens of the group]`, so the kernel reads them in one stream.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::ComputeError;
use crate::cpu::pool::{Grid, Pool};
use crate::cpu::table::Table;
use crate::numerics::Half;

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

/// Writes `x[k]` to `out[k * size]`.
fn spread(x: &[f32], size: usize, out: &mut [f32]) {
    for (o, &x) in out.iter_mut().step_by(size).zip(x) {
        *o = x;
    }
}

/// Columns that are packed at a time.
const PACKED: usize = 128;

/// Packed activations of some tokens.
#[derive(Default)]
pub(crate) struct Packed {
    x: Vec<f32>,
    /// First token of each group, and the end.
    bounds: Vec<usize>,
    k: usize,
    /// Bits of the largest magnitude; of infinity where the numbers are not of 16 bits.
    largest: AtomicU32,
}

impl Packed {
    /// Packs tokens in bands: groups do not cross `bands` (ascending, from 0). `row(i)` is token `i`, of `k`
    /// numbers, which are rounded to `half`.
    pub(crate) fn fill<'a>(
        &mut self,
        pool: &Pool,
        table: &Table,
        half: Option<Half>,
        bands: &[usize],
        k: usize,
        row: impl Fn(usize) -> &'a [f32] + Sync,
    ) -> Result<(), ComputeError> {
        self.k = k;
        self.bounds.clear();
        self.bounds.push(0);
        for w in bands.windows(2) {
            self.bounds.extend(groups(table.groups, w[0], w[1] - w[0]).map(|(at, n)| at + n));
        }
        let n = self.bounds.last().copied().unwrap_or(0);
        resize(&mut self.x, n * k, "packed activations")?;
        let grid = Grid { cols: k, bands: &self.bounds, tile_cols: k.max(1) };
        let largest = &self.largest;
        largest.store(if half.is_some() { 0 } else { f32::INFINITY.to_bits() }, Ordering::Relaxed);
        pool.tiles(&mut self.x, grid, |_, mut tile| {
            let (first, size) = (tile.row, tile.rows);
            let out = tile.whole();
            // A few columns of all rows at a time: what is written lies in the first-level cache.
            let mut rounded = [0.0; PACKED];
            for (c, out) in out.chunks_mut(PACKED * size.max(1)).enumerate() {
                for i in 0..size {
                    let x = row(first + i);
                    let x = &x[c * PACKED..x.len().min((c + 1) * PACKED)];
                    let Some(half) = half else {
                        spread(x, size, &mut out[i..]);
                        continue;
                    };
                    let rounded = &mut rounded[..x.len()];
                    let peak = (table.round_half)(half, x, rounded);
                    largest.fetch_max(peak.to_bits(), Ordering::Relaxed);
                    spread(rounded, size, &mut out[i..]);
                }
            }
        });
        Ok(())
    }

    /// The largest magnitude; infinite where the numbers are not of 16 bits.
    pub(crate) fn largest(&self) -> f32 {
        f32::from_bits(self.largest.load(Ordering::Relaxed))
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
        let table = crate::cpu::table::table(crate::cpu::CpuLevel::Scalar).unwrap();
        let x: Vec<Vec<f32>> = (0..13).map(|t| (0..5).map(|k| (t * 10 + k) as f32).collect()).collect();
        let mut p = Packed::default();
        let bands = [0, 0, 5, 13];
        p.fill(&pool, table, None, &bands, 5, |t| &x[t]).unwrap();
        for w in bands.windows(2) {
            for (first, size) in groups(table.groups, w[0], w[1] - w[0]) {
                let g = p.group((first, size), [1, 3]);
                for (i, &v) in g.iter().enumerate() {
                    assert_eq!(v, x[first + i % size][1 + i / size]);
                }
            }
        }
    }
}
