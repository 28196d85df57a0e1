//! How far two results are from each other.

use redraft_gguf::{f16_to_f32, f32_to_f16};
use serde::Serialize;

use crate::trace::{Elements, Tensor};

/// Rows of a result: its first extent.
fn rows(t: &Tensor) -> usize {
    match t.shape[..] {
        [] | [_] => 1,
        [rows, ..] => rows,
    }
}

/// The median over the rows of `|a - b| / |b|`: what happens to a few rows, whose experts changed by a hair, is no mistake,
/// and a mistake is seen in most rows. Infinite where one of them is missing or of another size, NaN where a number is
/// none or infinite.
pub(super) fn distance(a: Option<&Tensor>, b: Option<&Tensor>) -> f64 {
    let (Some(a), Some(b)) = (a, b) else { return f64::INFINITY };
    let (x, y) = (a.data.to_f64(), b.data.to_f64());
    if x.len() != y.len() || x.is_empty() {
        return f64::INFINITY;
    }
    let cols = (x.len() / rows(b).max(1)).max(1);
    let mut rows: Vec<f64> = x
        .chunks(cols)
        .zip(y.chunks(cols))
        .zip(sizes(&y, cols))
        .map(|((x, y), size)| {
            let away: f64 = x.iter().zip(y).map(|(x, y)| (x - y) * (x - y)).sum();
            if away == 0.0 { 0.0 } else { away.sqrt() / size }
        })
        .collect();
    if x.iter().chain(&y).any(|x| !x.is_finite()) {
        return f64::NAN;
    }
    rows.sort_by(f64::total_cmp);
    rows[rows.len() / 2]
}

/// How many times the distance of one honest program that of another may be by chance alone: a distance over `n` numbers is
/// known to about one part in the square root of `n`, and of 64 and more it is taken as it is.
pub(super) fn spread(t: Option<&Tensor>) -> f64 {
    let n = t.map_or(0, |t| t.data.len()).max(1);
    (8.0 / (n as f64).sqrt()).max(1.0)
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
    /// printing the sum.
    pub(super) fn of((theirs, half): (f64, f64), truth: &[f64], honest: &[f64], distance: f64) -> Sum {
        let sum = |x: &[f64]| x.iter().sum::<f64>();
        let (mut partial, mut square) = (0.0, 0.0);
        for x in truth {
            partial += x;
            square += partial * partial;
        }
        let length = truth.iter().map(|x| x * x).sum::<f64>().sqrt();
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
    fn the_median_row_counts_and_no_number_is_hidden() {
        let truth = tensor(3, vec![3.0, 4.0, 3.0, 4.0, 3.0, 4.0]);
        let away = |x: Vec<f64>| distance(Some(&tensor(3, x)), Some(&truth));
        // Away by 0, 0.5 and 5 of rows of length 5.
        assert_eq!(away(vec![3.0, 4.5, 3.0, 4.0, 3.0, 9.0]), 0.1);
        for none in [f64::NAN, f64::INFINITY] {
            assert!(away(vec![3.0, 4.0, 3.0, 4.0, 3.0, none]).is_nan());
        }
        let of = |n: usize| spread(Some(&tensor(1, vec![0.0; n])));
        assert_eq!([of(1), of(16), of(64), of(1000)], [8.0, 2.0, 1.0, 1.0]);
        assert_eq!(distance(None, Some(&truth)), f64::INFINITY);
        assert_eq!(distance(Some(&tensor(1, vec![1.0])), Some(&truth)), f64::INFINITY);
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
