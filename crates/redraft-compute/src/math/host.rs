//! Functions in f64 for what the host computes once: the tables of the rotary embedding.
//!
//! They are made of `+`, `-`, `*`, `/`, `floor` and bits only, so that the tables are the same on every
//! platform; the libraries of platforms differ in the last bits. Errors are near 1e-16.

use std::ops::Range;

/// ln 2 in two parts; the high one has 33 bits, so that its product with an exponent is exact (fdlibm).
const LN2_HI: f64 = 6.931_471_803_691_238e-1;
/// The rest of ln 2.
const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
/// pi / 2 in three parts; the first two have 33 bits each, so that their products with an integer of 20 bits
/// are exact (fdlibm).
const PIO2: [f64; 3] = [1.570_796_326_734_125_6, 6.077_100_506_303_966e-11, 2.022_266_248_795_950_6e-21];

/// Bits of sqrt(1/2).
const SQRT_HALF: u64 = 0x3FE6_A09E_667F_3BCD;
const ONE: u64 = 0x3FF0_0000_0000_0000;
const MANTISSA: u64 = 0x000F_FFFF_FFFF_FFFF;

/// `1 / n!`.
const fn inverse_factorial(n: u32) -> f64 {
    let (mut f, mut i) = (1.0, 2);
    while i <= n {
        f *= i as f64;
        i += 1;
    }
    1.0 / f
}

/// `x * 2^n` for results that are normal numbers.
fn scale_by_power_of_two(x: f64, n: i64) -> f64 {
    // In two steps, since 2^n alone can be too large for the format when x is below 1.
    let power = |n: i64| f64::from_bits(((n + 1023) as u64) << 52);
    x * power(n / 2) * power(n - n / 2)
}

/// e^x. Relative error below 4e-16; 0 below -708 and infinity above 709.
pub fn exp(x: f64) -> f64 {
    if x.is_nan() || x > 709.0 {
        return x * f64::INFINITY;
    }
    if x < -708.0 {
        return 0.0;
    }
    let n = (x * std::f64::consts::LOG2_E + 0.5).floor();
    let r = (x - n * LN2_HI) - n * LN2_LO;
    // Taylor to degree 14: the first omitted term is below 1e-19 for |r| <= ln 2 / 2.
    let mut p = inverse_factorial(14);
    for k in (2..14).rev() {
        p = p * r + inverse_factorial(k);
    }
    scale_by_power_of_two(1.0 + (r + r * r * p), n as i64)
}

/// ln x of a positive normal number; NaN of anything else. Error below 1.5e-16 relative and absolute.
pub fn ln(x: f64) -> f64 {
    if !(f64::MIN_POSITIVE..=f64::MAX).contains(&x) {
        return f64::NAN;
    }
    let t = x.to_bits() + (ONE - SQRT_HALF);
    let e = (t >> 52) as f64 - 1023.0;
    let f = f64::from_bits((t & MANTISSA) + SQRT_HALF) - 1.0;
    // ln(1 + f) = 2 artanh(s) with s = f / (2 + f), |s| <= 0.172; and 2 s = f - s f.
    let s = f / (2.0 + f);
    let z = s * s;
    let mut p = 0.0;
    for k in (1..12).rev() {
        p = (p + 2.0 / f64::from(2 * k + 1)) * z;
    }
    // The small terms first: s (p - f), then f, then the exponent.
    e * LN2_HI + (f + (s * (p - f) + e * LN2_LO))
}

/// `a * b` as the rounded product and its error (Dekker, with Veltkamp's splitting).
fn two_product(a: f64, b: f64) -> (f64, f64) {
    let split = |x: f64| {
        let c = x * 134_217_729.0; // 2^27 + 1
        let high = c - (c - x);
        (high, x - high)
    };
    let p = a * b;
    let ((ah, al), (bh, bl)) = (split(a), split(b));
    (p, ((ah * bh - p) + ah * bl + al * bh) + al * bl)
}

/// `base^y` for a positive base. Relative error below 6e-16 where |y ln base| < 100.
pub fn pow(base: f64, y: f64) -> f64 {
    let l = ln(base);
    // One step of Newton's method gives what the logarithm lost to rounding: base = e^l (1 + rest).
    let rest = base * exp(-l) - 1.0;
    let (high, low) = two_product(y, l);
    let e = exp(high);
    e + e * (low + y * rest)
}

/// Sine and cosine of `x`, |x| <= 2^20. Absolute error below 4e-16; NaN of what is not finite.
pub fn sin_cos(x: f64) -> (f64, f64) {
    let n = (x * std::f64::consts::FRAC_2_PI + 0.5).floor();
    let r = ((x - n * PIO2[0]) - n * PIO2[1]) - n * PIO2[2];
    let z = r * r;
    // Taylor: the first omitted terms are below 1e-18 for |r| <= pi / 4.
    let (mut s, mut c) = (0.0, 0.0);
    for k in (1..10).rev() {
        let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
        s = (s + sign * inverse_factorial(2 * k + 1)) * z;
        c = (c + sign * inverse_factorial(2 * k)) * z;
    }
    let (s, c) = (r + r * s, 1.0 + c);
    match n as i64 & 3 {
        0 => (s, c),
        1 => (c, -s),
        2 => (-s, -c),
        _ => (-c, s),
    }
}

/// Sine of `x`; see [`sin_cos`].
pub fn sin(x: f64) -> f64 {
    sin_cos(x).0
}

/// Cosine of `x`; see [`sin_cos`].
pub fn cos(x: f64) -> f64 {
    sin_cos(x).1
}

/// The table of a [`Rope`](crate::op::Rope) for positions `n_past .. n_past + rows`: `[rows, n_rot]`, in each
/// row `n_rot / 2` cosines, then as many sines.
///
/// The angle of pair `i` is `position * base^(-2 i / exponent_dim) / factors[i]`, in this order; a pair beyond
/// the end of `factors` has the factor 1. Values below 2^-50 in magnitude are 0 (a factor of 1e30, which
/// stands for a pair that does not rotate, gives the sine 0 exactly).
pub fn rope_table(
    n_past: usize,
    rows: usize,
    n_rot: usize,
    base: f64,
    exponent_dim: usize,
    factors: Option<&[f32]>,
) -> Vec<f64> {
    let factor = |i: usize| factors.and_then(|f| f.get(i)).map_or(1.0, |&f| f64::from(f));
    let frequencies: Vec<f64> =
        (0..n_rot / 2).map(|i| pow(base, -2.0 * i as f64 / exponent_dim as f64) / factor(i)).collect();
    table_of(n_past..n_past + rows, n_rot / 2, |position, i| position as f64 * frequencies[i])
}

/// As [`rope_table`], with angles as other programs compute them in f32. There are two ways, which are off by other amounts
/// at other pairs; each pair has the angle that is further off:
///
/// * transformers: `position * (1 / base^(2 i / exponent_dim) / factors[i])`, each step rounded.
/// * llama.cpp: from pair to pair the position is multiplied by `base^(-2 / exponent_dim)`, and divided by `factors[i]` for the
///   angle.
///
/// An angle is off by about `position * 2^-24`.
pub fn rope_table_f32(
    n_past: usize,
    rows: usize,
    n_rot: usize,
    base: f64,
    exponent_dim: usize,
    factors: Option<&[f32]>,
) -> Vec<f64> {
    let factor = |i: usize| factors.and_then(|f| f.get(i)).copied().unwrap_or(1.0);
    let frequency = |i: usize| {
        let exponent = (2 * i) as f32 / exponent_dim as f32;
        1.0 / pow(f64::from(base as f32), f64::from(exponent)) as f32 / factor(i)
    };
    let exact = |i: usize| pow(base, -2.0 * i as f64 / exponent_dim as f64) / f64::from(factor(i));
    let frequencies: Vec<(f32, f64)> = (0..n_rot / 2).map(|i| (frequency(i), exact(i))).collect();
    let step = pow(base, -2.0 / exponent_dim as f64) as f32;
    let angle = |position: usize, i: usize| {
        let (frequency, exact) = frequencies[i];
        let first = position as f32 * frequency;
        let second = (0..i).fold(position as f32, |theta, _| theta * step) / factor(i);
        let off = |x: f32| (f64::from(x) - position as f64 * exact).abs();
        f64::from(if off(second) > off(first) { second } else { first })
    };
    table_of(n_past..n_past + rows, n_rot / 2, angle)
}

/// Of each position the cosines of `pairs` angles, then their sines.
fn table_of(positions: Range<usize>, pairs: usize, angle: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let flush = |x: f64| if x.abs() < 2f64.powi(-50) { 0.0 } else { x };
    let mut table = Vec::with_capacity(positions.len() * pairs * 2);
    for position in positions {
        let angles = (0..pairs).map(|i| sin_cos(angle(position, i)));
        table.extend(angles.clone().map(|(_, c)| flush(c)));
        table.extend(angles.map(|(s, _)| flush(s)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deterministic points in `lo..hi`.
    fn points(lo: f64, hi: f64) -> impl Iterator<Item = f64> {
        let step = (5f64.sqrt() - 1.0) / 2.0; // the golden ratio spreads evenly
        (0..200_000).map(move |i| lo + (hi - lo) * (f64::from(i) * step).fract())
    }

    /// The largest of `error(x)`, printed and compared.
    fn at_most(name: &str, points: impl Iterator<Item = f64>, error: impl Fn(f64) -> f64, bound: f64) {
        let (worst, at) =
            points.map(|x| (error(x), x)).fold((0.0, 0.0), |m: (f64, f64), e| if e.0 > m.0 { e } else { m });
        println!("{name}: {worst:.3e} at {at:e}, bound {bound:e}");
        assert!(worst <= bound, "{name}: {worst:e} at {at}");
    }

    #[test]
    fn against_the_standard_library() {
        let relative = |a: f64, b: f64| ((a - b) / b).abs();
        at_most("exp", points(-700.0, 700.0), |x| relative(exp(x), x.exp()), 4e-16);
        at_most("exp near 0", points(-1.0, 1.0), |x| relative(exp(x), x.exp()), 4e-16);
        at_most("ln near 1", points(0.5, 2.0), |x| (ln(x) - x.ln()).abs(), 2e-16);
        at_most("ln", points(2.0, 1e7), |x| relative(ln(x), x.ln()), 3e-16);
        for base in [10_000.0, 500_000.0, 1e6, 1.5] {
            at_most("pow", points(-1.0, 0.0), |y| relative(pow(base, y), base.powf(y)), 6e-16);
        }
        for end in [4.0, 300.0, 262_144.0, 1_048_576.0] {
            at_most("sin", points(-end, end), |x| (sin(x) - x.sin()).abs(), 4e-16);
            at_most("cos", points(-end, end), |x| (cos(x) - x.cos()).abs(), 4e-16);
        }
        // Integers, which positions are, and the neighbourhood of multiples of pi / 2.
        let integers = (0..=262_144).map(f64::from);
        at_most("sin of integers", integers, |x| (sin(x) - x.sin()).abs(), 4e-16);
        let multiples = (0..160_000).map(|n| f64::from(n) * std::f64::consts::FRAC_PI_2);
        at_most("cos of quarters", multiples, |x| (cos(x) - x.cos()).abs(), 4e-16);
    }

    /// Against the angles of NumPy (`np.float32(1999) * (np.float32(1) / np.power(np.float32(1e4), np.arange(0, 16, 2,
    /// dtype=np.float32) / np.float32(16)))`): ours are off by as much at least, and by not more than the theory says.
    #[test]
    fn angles_in_f32_are_off_as_far_as_those_of_other_programs() {
        let (position, n) = (1999, 8);
        let theirs: [f64; 8] = [
            1999.0,
            632.1392822265625,
            199.90000915527344,
            63.21393585205078,
            19.989999771118164,
            6.3213934898376465,
            1.999000072479248,
            0.6321393251419067,
        ];
        let (exact, ours) = (
            rope_table(position, 1, 2 * n, 1e4, 2 * n, None),
            rope_table_f32(position, 1, 2 * n, 1e4, 2 * n, None),
        );
        for (i, &angle) in theirs.iter().enumerate() {
            let (sin, cos) = (exact[n + i], exact[i]);
            let off = |s: f64, c: f64| (s * cos - c * sin).abs();
            let (here, there) = (off(ours[n + i], ours[i]), off(sin_cos(angle).0, sin_cos(angle).1));
            let angle = position as f64 * pow(1e4, -(i as f64) / n as f64);
            assert!(
                here >= 0.99 * there && here <= angle * 2f64.powi(-24) * (2 * i + 2) as f64,
                "{i}: {here:e} {there:e}"
            );
        }
        // Near the start there is nothing to round.
        assert_eq!(rope_table_f32(0, 1, 4, 1e4, 4, None), [1.0, 1.0, 0.0, 0.0]);
        assert_eq!(rope_table_f32(262_143, 1, 4, 1e6, 4, Some(&[1.0, 1e30]))[3], 0.0);
    }

    #[test]
    fn edges() {
        assert_eq!((exp(0.0), ln(1.0), sin(0.0), cos(0.0)), (1.0, 0.0, 0.0, 1.0));
        assert_eq!((exp(-1000.0), exp(1000.0)), (0.0, f64::INFINITY));
        assert_eq!((exp(f64::NEG_INFINITY), exp(f64::INFINITY)), (0.0, f64::INFINITY));
        assert_eq!(pow(10_000.0, 0.0), 1.0);
        for x in [f64::NAN, f64::INFINITY] {
            assert!(sin(x).is_nan() && cos(x).is_nan());
        }
        for x in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            assert!(ln(x).is_nan());
        }
        assert!(exp(f64::NAN).is_nan());
    }

    #[test]
    fn tables() {
        let t = rope_table(3, 2, 4, 100.0, 4, None);
        let expected = [3.0f64.cos(), 0.3f64.cos(), 3.0f64.sin(), 0.3f64.sin()];
        for (found, expected) in t[..4].iter().zip(expected) {
            assert!((found - expected).abs() < 1e-15, "{t:?}");
        }
        assert_eq!(t.len(), 8);
        assert!((t[4] - 4f64.cos()).abs() < 1e-15);
        // A pair with the factor 1e30 does not move.
        let t = rope_table(262_143, 1, 4, 1e6, 8, Some(&[1.0, 1e30]));
        assert_eq!((t[1], t[3]), (1.0, 0.0));
    }
}
