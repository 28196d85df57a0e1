//! How far two results are from each other.

use redraft_gguf::{f16_to_f32, f32_to_f16};
use serde::Serialize;

use super::LIMIT;
use crate::trace::{Elements, Tensor};

/// Rows of a result: its first extent.
fn rows(t: &Tensor) -> usize {
    match t.shape[..] {
        [] | [_] => 1,
        [rows, ..] => rows,
    }
}

/// How far two results are from each other: of each row `|a - b| / |b|`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Apart {
    /// The median over the rows: what happens to a few rows, whose experts changed by a hair, is no mistake, and a mistake
    /// is seen in most rows.
    pub median: f64,
    /// The row that is furthest away.
    pub worst: f64,
}

impl Apart {
    fn all(x: f64) -> Apart {
        Apart { median: x, worst: x }
    }

    /// As a floor: `unit` at least, and what chance may add to the distance of one program.
    pub(super) fn floor(self, unit: f64, chance: Apart) -> Apart {
        Apart { median: self.median.max(unit) * chance.median, worst: self.worst.max(unit) * chance.worst }
    }

    /// The larger of each.
    pub(super) fn larger(self, other: Apart) -> Apart {
        Apart { median: self.median.max(other.median), worst: self.worst.max(other.worst) }
    }

    /// How far the furthest row may be, where the others are within `limit` floors. Twice that, since it is one of many and no
    /// median.
    pub(super) fn row_limit(self, limit: f64) -> f64 {
        2.0 * limit * self.worst
    }

    /// In floors; where single rows count the furthest one too.
    pub(super) fn ratio(self, floor: Apart, rows: bool) -> f64 {
        let median = self.median / floor.median;
        if rows && !median.is_nan() { median.max(self.worst / floor.row_limit(1.0)) } else { median }
    }
}

/// Of each row `|a - b| / |b|`. Nothing where one of them is missing or of another size.
pub(super) fn rows_apart(a: Option<&Tensor>, b: Option<&Tensor>) -> Option<Vec<f64>> {
    let (a, b) = (a?, b?);
    let (x, y) = (a.data.to_f64(), b.data.to_f64());
    if x.len() != y.len() || x.is_empty() {
        return None;
    }
    let cols = (x.len() / rows(b).max(1)).max(1);
    let apart = |((x, y), size): ((&[f64], &[f64]), f64)| {
        let away: f64 = x.iter().zip(y).map(|(x, y)| (x - y) * (x - y)).sum();
        if away == 0.0 { 0.0 } else { away.sqrt() / size }
    };
    Some(x.chunks(cols).zip(y.chunks(cols)).zip(sizes(&y, cols)).map(apart).collect())
}

/// How far two results are from each other. Infinite where one of them is missing or of another size, NaN where a number
/// is none or infinite.
pub(super) fn distance(a: Option<&Tensor>, b: Option<&Tensor>) -> Apart {
    let Some(mut rows) = rows_apart(a, b) else { return Apart::all(f64::INFINITY) };
    let finite = |t: Option<&Tensor>| t.is_some_and(|t| t.data.to_f64().iter().all(|x| x.is_finite()));
    if !finite(a) || !finite(b) {
        return Apart::all(f64::NAN);
    }
    rows.sort_by(f64::total_cmp);
    Apart { median: rows[rows.len() / 2], worst: rows[rows.len() - 1] }
}

/// How rarely chance alone may take an honest tap out of the limit.
const CHANCE: f64 = 1e-6;

/// What chance may add to the distance of an honest program from another at a tap.
pub(super) fn chance(t: Option<&Tensor>) -> Apart {
    let (n, rows) = t.map_or((0, 1), |t| (t.data.len(), rows(t).max(1)));
    Apart { median: chance_of(n), worst: chance_of(n / rows) }
}

/// How many times [`LIMIT`] floors two honest programs may be apart over `n` numbers, and be so with the probability
/// [`CHANCE`]. 1 from about fifty numbers on.
///
/// If the errors of both are independent and normal, the squares of their distances are to each other as two chi-squares
/// of `k` degrees of freedom. By Chernoff's bound such a quotient is above `r²` with a probability of at most
/// `(2r / (1 + r²))^k`, which is solved for `r` here. `k` is half of the numbers: a median tells as much as the mean of
/// 2/π of them, and of the weights of two experts that add up to 1 one is free.
fn chance_of(n: usize) -> f64 {
    let k = (n as f64 / 2.0).max(1.0);
    let q = CHANCE.powf(1.0 / k);
    ((1.0 + (1.0 - q * q).sqrt()) / q / LIMIT).max(1.0)
}

/// The error, relative as in [`distance`], of printing the elements of `t` as decimals with half a unit in the last place:
/// errors are spread evenly over it.
pub(super) fn printing_unit(t: &Tensor, half_unit: f64) -> f64 {
    let x = t.data.to_f64();
    let cols = (x.len() / rows(t).max(1)).max(1);
    let error = half_unit * (cols as f64 / 3.0).sqrt();
    let mut units: Vec<f64> = sizes(&x, cols).into_iter().map(|size| error / size).collect();
    units.sort_by(f64::total_cmp);
    units.get(units.len() / 2).copied().unwrap_or(0.0)
}

/// Lengths of rows; those that are nearly zero say nothing by themselves.
fn sizes(x: &[f64], cols: usize) -> Vec<f64> {
    let square = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
    let usual = (square(x) / (x.len() as f64 / cols as f64)).sqrt();
    x.chunks(cols).map(|x| square(x).sqrt().max(1e-3 * usual)).collect()
}

/// The sum of all elements of a tensor of which not all are known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sum {
    /// Theirs.
    pub theirs: f64,
    /// The truth's.
    pub truth: f64,
    /// How far honest programs may be apart: about one standard deviation.
    pub floor: f64,
}

impl Sum {
    /// Of elements `truth`; `honest` are those of an honest program, whose relative distance at this tap is `distance`.
    ///
    /// The error of a sum is that of its elements, independent of each other (`distance` times their length as a vector)
    /// or not (what it is in the honest program); that of adding them in f32, half a unit of each partial sum; and that of
    /// printing the sum. Behind a `router` half of the rows may be others altogether, as many as a median does not see:
    /// that is the length of half of the elements.
    pub(super) fn of(
        (theirs, half): (f64, f64),
        truth: &[f64],
        honest: &[f64],
        distance: f64,
        router: bool,
    ) -> Sum {
        let sum = |x: &[f64]| x.iter().sum::<f64>();
        let (mut partial, mut square) = (0.0, 0.0);
        for x in truth {
            partial += x;
            square += partial * partial;
        }
        let length = truth.iter().map(|x| x * x).sum::<f64>().sqrt();
        let distance = if router { distance.max(0.5f64.sqrt()) } else { distance };
        let (apart, elements) = ((sum(honest) - sum(truth)).abs(), distance * length);
        let adding = 2f64.powi(-24) * square.sqrt();
        let floor = (apart.max(elements).powi(2) + adding * adding + half * half).sqrt();
        Sum { theirs, truth: sum(truth), floor }
    }

    /// Theirs from the truth's, in floors.
    pub fn ratio(&self) -> f64 {
        (self.theirs - self.truth).abs() / self.floor
    }
}

/// The error of storing numbers as these are: where all of them are numbers of 16 bits they were rounded to such at the
/// end, whatever they were computed in.
pub(super) fn storage_unit(t: &Tensor) -> f64 {
    let Elements::F32(x) = &t.data else { return 0.0 };
    if x.is_empty() {
        return 0.0;
    }
    if x.iter().all(|&x| f16_to_f32(f32_to_f16(x)) == x) {
        return 2f64.powi(-12);
    }
    let bf16 = x.iter().all(|x| x.to_bits() & 0xFFFF == 0);
    if bf16 { 2f64.powi(-9) } else { 0.0 }
}

/// Row `i` becomes row `i + by`; at the end the row stays.
pub(super) fn shifted(t: &Tensor, by: i8) -> Elements {
    let x = t.data.to_f64();
    let rows = rows(t).max(1);
    let cols = x.len() / rows;
    let from = |i: usize| if by > 0 { (i + 1).min(rows - 1) } else { i.saturating_sub(1) };
    Elements::F64((0..rows).flat_map(|i| &x[from(i) * cols..(from(i) + 1) * cols]).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(rows: usize, x: Vec<f64>) -> Tensor {
        Tensor { shape: vec![rows, x.len() / rows], data: Elements::F64(x) }
    }

    #[test]
    fn a_row_alone_may_be_twice_as_far_as_all_and_counts_where_rows_do() {
        let (floor, none) = (Apart { median: 1.0, worst: 2.0 }, Apart::all(f64::NAN));
        let theirs = Apart { median: 0.5, worst: 16.0 };
        assert_eq!([theirs.ratio(floor, false), theirs.ratio(floor, true)], [0.5, 4.0]);
        assert!(none.ratio(floor, true).is_nan() && none.ratio(floor, false).is_nan());
        let of = Apart { median: 1e-9, worst: 3.0 }.floor(0.25, Apart { median: 2.0, worst: 1.0 });
        assert_eq!(of, Apart { median: 0.5, worst: 3.0 });
    }

    /// The bound against quotients of sums of squares of normal numbers, drawn. By the bound the limit is left with a
    /// probability of 1e-6 at most: 50,000 draws of each size leave it with one of 5 %, and by far less often in truth.
    #[test]
    fn chance_rarely_takes_an_honest_tap_out_of_the_limit() {
        assert_eq!([chance_of(64), chance_of(4096)], [1.0, 1.0]);
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        for n in [4usize, 12, 24, 48] {
            let mut square = || {
                // Pairs of normal numbers, by Box and Muller: their squares add up to -2 ln u.
                (0..n / 4).map(|_| -2.0 * uniform().ln()).sum::<f64>()
            };
            let limit = LIMIT * chance_of(n);
            let (mut most, mut left) = (0f64, 0);
            for _ in 0..50_000 {
                let ratio = (square() / square()).sqrt();
                most = most.max(ratio);
                left += usize::from(ratio > limit);
            }
            assert_eq!(left, 0, "{n}: {most} of {limit}");
            assert!(most > limit / 20.0, "{n}: the bound says something: {most} of {limit}");
        }
        let widths = [2, 6, 12, 24, 48].map(|n| (10.0 * chance_of(n)).round() / 10.0);
        assert_eq!(widths, [666_666.7, 66.7, 6.6, 2.1, 1.1]);
    }

    #[test]
    fn a_sum_behind_a_router_may_be_of_other_rows() {
        let truth = [3.0, 4.0, 3.0, 4.0];
        let of = |router| Sum::of((14.0, 0.0), &truth, &truth, 1e-3, router).floor;
        assert!((of(false) - 1e-3 * 50f64.sqrt()).abs() < 1e-5, "{}", of(false));
        assert!((of(true) - 5.0).abs() < 1e-5, "{}", of(true));
    }

    #[test]
    fn the_median_row_counts_and_no_number_is_hidden() {
        let truth = tensor(3, vec![3.0, 4.0, 3.0, 4.0, 3.0, 4.0]);
        let away = |x: Vec<f64>| distance(Some(&tensor(3, x)), Some(&truth));
        // Away by 0, 0.5 and 5 of rows of length 5.
        assert_eq!(away(vec![3.0, 4.5, 3.0, 4.0, 3.0, 9.0]), Apart { median: 0.1, worst: 1.0 });
        for none in [f64::NAN, f64::INFINITY] {
            assert!(away(vec![3.0, 4.0, 3.0, 4.0, 3.0, none]).median.is_nan());
        }
        assert_eq!(distance(None, Some(&truth)), Apart::all(f64::INFINITY));
        assert_eq!(distance(Some(&tensor(1, vec![1.0])), Some(&truth)), Apart::all(f64::INFINITY));
        assert_eq!(shifted(&truth, 1).to_f64(), [3.0, 4.0, 3.0, 4.0, 3.0, 4.0]);
        let stored = |x: Vec<f32>| storage_unit(&Tensor { shape: vec![x.len()], data: Elements::F32(x) });
        assert_eq!(stored(vec![1.0, 1.000_976_6]), 2f64.powi(-12), "an f16 next to 1");
        assert_eq!(
            stored(vec![f32::from_bits(0x7149_0000), 1.007_812_5]),
            2f64.powi(-9),
            "too large for f16"
        );
        assert_eq!(stored(vec![0.1, 1.0]), 0.0);
        let rows = tensor(3, vec![1.0, 2.0, 3.0]);
        assert_eq!(shifted(&rows, 1).to_f64(), [2.0, 3.0, 3.0]);
        assert_eq!(shifted(&rows, -1).to_f64(), [1.0, 1.0, 2.0]);
    }
}
