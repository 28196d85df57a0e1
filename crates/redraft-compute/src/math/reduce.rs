//! The order of sums.
//!
//! A long sum has 16 accumulators: element `i` is added to accumulator `i mod 16`, in ascending order of
//! `i`; elements that are missing (a short tail, masked keys) contribute nothing. Then the accumulators are
//! added in pairs, (0 + 8, 1 + 9, …), (0 + 4, …), (0 + 2, 1 + 3), (0 + 1).
//!
//! An accumulator starts at +0 and can never become -0, so a vector kernel may add +0 for an element that is
//! missing.

/// Number of accumulators.
pub const LANES: usize = 16;

/// What can be summed in this order.
pub trait Addend: Copy + Default + std::ops::Add<Output = Self> {}

impl Addend for f32 {}
impl Addend for f64 {}

/// A sum in the canonical order.
#[derive(Debug, Clone, Copy)]
pub struct Sum<R>([R; LANES]);

impl<R: Addend> Default for Sum<R> {
    fn default() -> Self {
        Sum([R::default(); LANES])
    }
}

impl<R: Addend> Sum<R> {
    /// Adds element `index`. Elements must come in ascending order of their index.
    #[inline(always)]
    pub fn add(&mut self, index: usize, x: R) {
        let acc = &mut self.0[index % LANES];
        *acc = *acc + x;
    }

    /// The total.
    #[inline(always)]
    pub fn total(self) -> R {
        tree(self.0)
    }
}

/// The sum of 16 accumulators, in pairs at distances 8, 4, 2, 1.
#[inline(always)]
pub fn tree<R: Addend>(mut acc: [R; LANES]) -> R {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            acc[i] = acc[i] + acc[i + half];
        }
        half /= 2;
    }
    acc[0]
}

fn sum_of<R: Addend>(x: impl Iterator<Item = R>) -> R {
    let mut s = Sum::default();
    for (i, x) in x.enumerate() {
        s.add(i, x);
    }
    s.total()
}

/// Sum of a slice.
pub fn sum<R: Addend>(x: &[R]) -> R {
    sum_of(x.iter().copied())
}

/// Sum of squares of a slice; each square is rounded before it is added.
pub fn sum_of_squares<R: Addend + std::ops::Mul<Output = R>>(x: &[R]) -> R {
    sum_of(x.iter().map(|&x| x * x))
}

/// The largest element; minus infinity of nothing. Elements that are NaN are passed over. A zero is +0
/// whatever zeros are in `x`, so the order of the comparisons cannot be seen in the bits.
pub fn max<R: Copy + PartialOrd + From<f32>>(x: impl IntoIterator<Item = R>) -> R {
    let m = x.into_iter().fold(R::from(f32::NEG_INFINITY), |m, x| if m < x { x } else { m });
    let zero = R::from(0.0);
    if m == zero { zero } else { m }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_the_written_one() {
        // 2^24 swallows a lone 1, but not a 2: which elements meet first can be seen.
        let cases: [(&str, usize, [usize; 3], f32); 6] = [
            ("0, 16 and 32 share an accumulator", 40, [0, 16, 32], 0.0),
            ("9 meets 1 before both meet 0", 16, [0, 1, 9], 2.0),
            ("8 meets 0 before 1 does", 16, [0, 1, 8], 0.0),
            ("12 meets 4 before both meet 0", 16, [0, 4, 12], 2.0),
            ("6 meets 2 before both meet 0", 16, [0, 2, 6], 2.0),
            ("3 meets 1 before both meet 0", 16, [0, 1, 3], 2.0),
        ];
        for (name, n, at, more) in cases {
            let mut x = vec![0.0f32; n];
            (x[at[0]], x[at[1]], x[at[2]]) = (16_777_216.0, 1.0, 1.0);
            assert_eq!(sum(&x), 16_777_216.0 + more, "{name}");
        }
    }

    #[test]
    fn sums_and_squares() {
        let x: Vec<f32> = (1..=100).map(|i| i as f32).collect();
        assert_eq!(sum(&x), 5050.0);
        assert_eq!(sum_of_squares(&x), 338_350.0);
        assert_eq!(sum::<f64>(&[]), 0.0);
        assert_eq!(sum(&[-0.0f32; 20]).to_bits(), 0, "accumulators start at +0");
    }

    #[test]
    fn the_maximum_has_one_zero_and_passes_over_nan() {
        assert_eq!(max([1.0f32, -3.0, 2.5]), 2.5);
        assert_eq!(max([-0.0f32, -1.0]).to_bits(), 0);
        assert_eq!(max([f32::NAN, 1.0, f32::NAN]), 1.0);
        assert_eq!(max::<f32>([]), f32::NEG_INFINITY);
    }
}
