//! Tensors that another program printed: with few digits, and not all of their elements.

use super::{Elements, Tensor};

/// What a file says about a tensor beside its elements.
#[derive(Debug, Clone, PartialEq)]
pub enum Given {
    /// A run of numbers without a shape.
    Flat,
    /// Printed as decimals.
    Printed(Printed),
}

/// How a tensor was printed. The tensor in the file has the elements that are shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Printed {
    /// Extents of the whole tensor, rows first.
    pub shape: Vec<usize>,
    /// Of each extent the places that are shown, ascending.
    pub shown: Vec<Vec<usize>>,
    /// Half a unit of the last decimal: how far a number that is shown may be from the one that was computed.
    pub half_unit: f64,
    /// The sum of all elements as it was printed, with half a unit of its last decimal.
    pub sum: Option<(f64, f64)>,
}

/// Whether a tensor of this shape has `rows` rows and so many elements in the order of the rows: `[rows, …]`, with
/// extents of 1 before it or not.
pub(crate) fn has_rows(shape: &[usize], rows: usize, len: usize) -> bool {
    let ones = shape.iter().take_while(|&&n| n == 1).count();
    let first = || rows == 1 || shape.get(ones) == Some(&rows);
    shape.iter().try_fold(1usize, |n, &x| n.checked_mul(x)) == Some(len) && first()
}

impl Printed {
    /// Where the tensor begins in the rows of `whole`: another program may compute the last row alone.
    fn start(&self, whole: &Tensor) -> Option<usize> {
        let len = whole.data.len();
        let rows = whole.shape.first().copied().unwrap_or(1).max(1);
        let own = self.shape.iter().try_fold(1usize, |n, &x| n.checked_mul(x))?;
        if has_rows(&self.shape, rows, len) {
            return Some(0);
        }
        (own == len / rows && has_rows(&self.shape, 1, own)).then(|| len - own)
    }

    /// The elements of `whole`, which has its rows first, that are shown; none where it is of another size.
    pub fn pick(&self, whole: &Tensor) -> Option<Tensor> {
        let mut at = vec![self.start(whole)?];
        let mut stride = 1usize;
        // From the last extent, whose elements follow each other.
        let mut strides = Vec::new();
        for &n in self.shape.iter().rev() {
            strides.push(stride);
            stride = usize::saturating_mul(stride, n);
        }
        for (shown, stride) in self.shown.iter().zip(strides.iter().rev()) {
            at = at
                .iter()
                .flat_map(|at| shown.iter().map(move |i| i.saturating_mul(*stride).saturating_add(*at)))
                .collect();
        }
        let x = whole.data.to_f64();
        let picked: Option<Vec<f64>> = at.iter().map(|&i| x.get(i).copied()).collect();
        let shape = self.shown.iter().map(Vec::len).collect();
        Some(Tensor { shape, data: Elements::F64(picked?) })
    }

    /// The elements of `whole` that the printed sum is of.
    pub fn summed(&self, whole: &Tensor) -> Option<Vec<f64>> {
        let start = self.start(whole)?;
        let mut x = whole.data.to_f64();
        Some(x.split_off(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(shape: &[usize], shown: &[&[usize]]) -> Printed {
        let shown = shown.iter().map(|s| s.to_vec()).collect();
        Printed { shape: shape.to_vec(), shown, half_unit: 5e-5, sum: None }
    }

    #[test]
    fn shown_elements_are_taken_from_their_places() {
        let whole = Tensor { shape: vec![4, 6], data: Elements::I32((0..24).collect()) };
        let some = printed(&[4, 6], &[&[0, 3], &[1, 5]]).pick(&whole).unwrap();
        assert_eq!((some.shape, some.data.to_f64()), (vec![2, 2], vec![1.0, 5.0, 19.0, 23.0]));
        let heads = printed(&[4, 2, 3], &[&[1], &[0, 1], &[2]]).pick(&whole).unwrap();
        assert_eq!(heads.data.to_f64(), [8.0, 11.0]);
        // The last row alone.
        let last = printed(&[1, 6], &[&[0], &[0, 5]]);
        assert_eq!(last.pick(&whole).unwrap().data.to_f64(), [18.0, 23.0]);
        assert_eq!(last.summed(&whole).unwrap(), [18.0, 19.0, 20.0, 21.0, 22.0, 23.0]);
        for other in [&[6, 4][..], &[4, 5], &[2, 6], &[usize::MAX, 2]] {
            assert_eq!(printed(other, &[&[0], &[0]]).pick(&whole), None, "{other:?}");
        }
        assert_eq!(printed(&[4, 6], &[&[9], &[0]]).pick(&whole), None);
    }

    #[test]
    fn rows_come_first() {
        for (shape, fits) in [
            (&[4, 6][..], true),
            (&[1, 4, 6], true),
            (&[4, 2, 3], true),
            (&[6, 4], false),
            (&[24], false),
            (&[2, 12], false),
            (&[4, 5], false),
        ] {
            assert_eq!(has_rows(shape, 4, 24), fits, "{shape:?}");
        }
        assert!(has_rows(&[24], 1, 24) && has_rows(&[1, 24], 1, 24) && has_rows(&[1, 1, 24], 1, 24));
    }
}
