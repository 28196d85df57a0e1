//! The search for scales: weighted least squares over a range of candidates.
//!
//! A block of weights x with importances w is stored as codes q and a scale s (and a minimum m). For fixed
//! codes the best scale is a least-squares problem with a closed solution; for a fixed scale the best codes
//! are the nearest integers. The search walks through candidate scales around the one that just covers the
//! largest weight, takes the nearest codes of each, solves for the scale that suits these codes best, and
//! keeps the candidate with the smallest error. Scales are then rounded to how the type stores them (f16,
//! or integers of six or eight bits) and the codes are chosen again for what is stored.
//!
//! Every sum runs in eight lanes in a fixed order, so the bytes are the same on every machine.

use super::{MAX_BLOCK_LEN, MAX_SUB_BLOCKS, f16_to_f32, f32_to_f16};

/// Weights beyond this magnitude are beyond every type with an f16 scale (the widest, `Q6_K`, ends at
/// 65,504 · 128 · 32 = 2.7e8) and of no use in one with a larger range; clamping here keeps the sums finite.
const MAX_WEIGHT: f32 = 1e9;

/// Weights below this magnitude are below half the smallest f16 scale times the smallest code of every
/// type: a block of them is zero.
const MIN_PEAK: f32 = 1.0 / (1u64 << 40) as f32;

/// Smallest importance relative to the largest of the block. No weight is ever free: one that was never
/// active while importances were measured may be active later.
const MIN_IMPORTANCE: f32 = 1.0 / (1 << 20) as f32;

/// Copies a block and its importances into a form on which the search cannot fail: weights finite and in
/// range, importances in `MIN_IMPORTANCE..=1`.
pub(super) fn prepare(src: &[f32], weights: Option<&[f32]>, x: &mut [f32], importance: &mut [f32]) {
    for (x, &v) in x.iter_mut().zip(src) {
        *x = if v.is_nan() { 0.0 } else { v.clamp(-MAX_WEIGHT, MAX_WEIGHT) };
    }
    importance.fill(1.0);
    let Some(weights) = weights else { return };
    let finite = |w: f32| if w > 0.0 { w.min(f32::MAX) } else { 0.0 }; // NaN and negative numbers count as zero
    let largest = weights.iter().fold(0.0, |m: f32, &w| m.max(finite(w)));
    if largest > 0.0 {
        for (i, &w) in importance.iter_mut().zip(weights) {
            *i = (finite(w) / largest).max(MIN_IMPORTANCE);
        }
    }
}

/// The f16 nearest to a scale; the largest finite one where the scale is larger.
pub(super) fn f16_scale(scale: f32) -> u16 {
    f32_to_f16(scale.clamp(-65_504.0, 65_504.0))
}

/// Codes and the f16 scale of a block.
pub(super) fn encode_symmetric(x: &[f32], w: &[f32], allowed: impl Codes, codes: &mut [i8]) -> u16 {
    let d = f16_scale(fit_scale(x, w, allowed));
    let fit = Affine { scale: f16_to_f32(d), min: 0.0 };
    fit.encode(x, allowed, codes);
    d
}

/// Codes 0..=`highest`, the f16 scale and the f16 addend of a block.
pub(super) fn encode_affine(x: &[f32], w: &[f32], highest: u8, codes: &mut [i8]) -> (u16, u16) {
    let fit = fit_affine(x, w, highest, Min::Any);
    let (d, m) = (f16_scale(fit.scale), f16_scale(-fit.min));
    let stored = Affine { scale: f16_to_f32(d), min: -f16_to_f32(m) };
    stored.encode(x, Range { low: 0.0, high: f32::from(highest) }, codes);
    (d, m)
}

/// How a super-block of 256 weights is divided, and how far its integer scales go.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) sub_len: usize,
    /// Of scales and minima where both are stored: 0..=`top`.
    pub(super) top: u8,
}

/// A super-block of sub-blocks with scale and minimum.
pub(super) struct SuperBlock {
    pub(super) d: u16,
    pub(super) dmin: u16,
    pub(super) scales: [i32; MAX_SUB_BLOCKS],
    pub(super) mins: [u8; MAX_SUB_BLOCKS],
    pub(super) codes: [i8; MAX_BLOCK_LEN],
}

/// Fits a super-block of 256 weights with codes 0..=`highest`.
///
/// 1. Each sub-block gets the best real scale and minimum.
/// 2. The largest of each is taken to the largest integer, which fixes `d` and `dmin`.
/// 3. Scales and minima are rounded to integers; of the nearest ones and their neighbours the pair with
///    the smallest error is kept, because the rounding errors of the two can cancel.
/// 4. The codes follow from what is stored.
pub(super) fn fit_super_block(x: &[f32], w: &[f32], shape: Shape, highest: u8) -> SuperBlock {
    let range = Range { low: 0.0, high: f32::from(highest) };
    let Shape { sub_len, top } = shape;
    let sub_blocks = || x.chunks_exact(sub_len).zip(w.chunks_exact(sub_len));
    let mut fits = [Affine { scale: 0.0, min: 0.0 }; MAX_SUB_BLOCKS];
    for (fit, (x, w)) in fits.iter_mut().zip(sub_blocks()) {
        *fit = fit_affine(x, w, highest, Min::NotNegative);
    }
    let d = f16_scale(fits.iter().fold(0.0, |m: f32, f| m.max(f.scale)) / f32::from(top));
    let dmin = f16_scale(fits.iter().fold(0.0, |m: f32, f| m.max(f.min)) / f32::from(top));
    let (scales, mins) = ([0; MAX_SUB_BLOCKS], [0; MAX_SUB_BLOCKS]);
    let mut out = SuperBlock { d, dmin, scales, mins, codes: [0; MAX_BLOCK_LEN] };
    let (d, dmin) = (f16_to_f32(d), f16_to_f32(dmin));

    for (s, ((x, w), codes)) in sub_blocks().zip(out.codes.chunks_exact_mut(sub_len)).enumerate() {
        let mut best = (f32::INFINITY, 0, 0);
        for scale in neighbours(fits[s].scale, d, 0, i32::from(top)) {
            for min in neighbours(fits[s].min, dmin, 0, i32::from(top)) {
                let error = Affine::stored(d, scale, dmin, min).error(x, w, range);
                if error < best.0 {
                    best = (error, scale, min);
                }
            }
        }
        let (_, scale, min) = best;
        (out.scales[s], out.mins[s]) = (scale, min as u8);
        Affine::stored(d, scale, dmin, min).encode(x, range, codes);
    }
    out
}

/// A super-block of sub-blocks with a signed scale.
pub(super) struct ScaledSuperBlock {
    pub(super) d: u16,
    pub(super) scales: [i32; MAX_SUB_BLOCKS],
    pub(super) codes: [i8; MAX_BLOCK_LEN],
}

/// Fits a super-block of 256 weights by the same four steps as [`fit_super_block`]. Scales are
/// `lowest`..−`lowest`; that of the largest magnitude is taken to `lowest`.
pub(super) fn fit_scaled_super_block(
    x: &[f32],
    w: &[f32],
    sub_len: usize,
    lowest: i8,
    allowed: impl Codes,
) -> ScaledSuperBlock {
    let sub_blocks = || x.chunks_exact(sub_len).zip(w.chunks_exact(sub_len));
    let mut fits = [0.0; MAX_SUB_BLOCKS];
    for (fit, (x, w)) in fits.iter_mut().zip(sub_blocks()) {
        *fit = fit_scale(x, w, allowed);
    }
    let lowest = i32::from(lowest);
    let d = f16_scale(peak(&fits) / lowest as f32);
    let mut out = ScaledSuperBlock { d, scales: [0; MAX_SUB_BLOCKS], codes: [0; MAX_BLOCK_LEN] };
    let d = f16_to_f32(d);

    for (s, ((x, w), codes)) in sub_blocks().zip(out.codes.chunks_exact_mut(sub_len)).enumerate() {
        let mut best = (f32::INFINITY, 0);
        for scale in neighbours(fits[s], d, lowest, -lowest - 1) {
            let error = Affine::stored(d, scale, 0.0, 0).error(x, w, allowed);
            if error < best.0 {
                best = (error, scale);
            }
        }
        out.scales[s] = best.1;
        Affine::stored(d, best.1, 0.0, 0).encode(x, allowed, codes);
    }
    out
}

/// The integers next to `value / unit` inside the given bounds; one of them when the unit is zero.
fn neighbours(value: f32, unit: f32, lowest: i32, highest: i32) -> std::ops::RangeInclusive<i32> {
    if unit == 0.0 {
        return 0..=0;
    }
    let nearest = round(value / unit) as i32;
    (nearest - 1).clamp(lowest, highest)..=(nearest + 1).clamp(lowest, highest)
}

/// The number of largest magnitude, with its sign.
fn peak(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |p: f32, &v| if v.abs() > p.abs() { v } else { p })
}

/// The real scale s that makes the sum of w·(x − s·q)² small for the allowed codes q.
///
/// The lowest code is the one of largest magnitude, so the weight of largest magnitude is best taken to it;
/// taking it to the highest is tried as well, in coarser steps because it wins less often. With the best
/// scale for given codes, s = Σwxq / Σwq², the error is Σwx² − (Σwxq)² / Σwq²: the candidate with the
/// largest fraction wins.
fn fit_scale(x: &[f32], w: &[f32], allowed: impl Codes) -> f32 {
    let peak = peak(x);
    if peak.abs() < MIN_PEAK {
        return 0.0;
    }
    let [low, high] = allowed.ends();
    let mut best = (0.0, 0.0);
    for (end, stride) in [(low, 1), (high, 3)] {
        for step in (-9..=9).step_by(stride) {
            let per_unit = (end + allowed.step() * step as f32) / peak;
            let [wxq, wqq] = lane_sums(x, w, |x, w| {
                let q = allowed.nearest(x * per_unit);
                [w * x * q, w * q * q]
            });
            if wqq > 0.0 && wxq * wxq > best.0 * wqq {
                best = (wxq * wxq / wqq, wxq / wqq);
            }
        }
    }
    best.1
}

/// Which minima a type can store.
#[derive(Clone, Copy, PartialEq)]
enum Min {
    /// Any f16.
    Any,
    /// Zero and above (subtracted), as multiples of an unsigned scale.
    NotNegative,
}

/// The real scale s and minimum m that make the sum of w·(x − (s·q − m))² small for codes 0..=`highest`.
///
/// For given codes this is the line through the points (q, y), y = x − low: s = cov(q, y) / var(q) and an
/// offset, with the error var(y) − s·cov(q, y), all weighted. Taking y instead of x keeps an offset that all
/// weights share out of the sums. Where only m ≥ 0 can be stored and the line gives less, m is zero and the
/// line goes through the origin: s = Σwxq / Σwq² with the error Σwx² − s·Σwxq.
fn fit_affine(x: &[f32], w: &[f32], highest: u8, allowed: Min) -> Affine {
    let mut low = x.iter().fold(f32::INFINITY, |m, &v| m.min(v));
    let high = x.iter().fold(f32::NEG_INFINITY, |m, &v| m.max(v));
    if allowed == Min::NotNegative {
        low = low.min(0.0);
    }
    if high - low < MIN_PEAK {
        return Affine { scale: 0.0, min: -low };
    }
    let range = Range { low: 0.0, high: f32::from(highest) };
    let [sum_w, wy, wyy, wxx] = lane_sums(x, w, |x, w| {
        let y = x - low;
        [w, w * y, w * y * y, w * x * x]
    });
    let mean = wy / sum_w;
    let mut best = (f32::INFINITY, Affine { scale: (high - low) / range.high, min: -low });
    for step in -10..=10 {
        let per_unit = (range.high + 0.1 * step as f32) / (high - low);
        let [wq, wqq, wyq] = lane_sums(x, w, |x, w| {
            let y = x - low;
            let q = range.nearest(y * per_unit);
            [w * q, w * q * q, w * y * q]
        });
        let variance = wqq - wq * wq / sum_w;
        if variance <= 0.0 {
            continue;
        }
        let covariance = wyq - mean * wq;
        let scale = covariance / variance;
        let min = (scale * (wq / sum_w) - mean) - low;
        let (fit, error) = if allowed == Min::NotNegative && min < 0.0 {
            let wxq = wyq + low * wq;
            let scale = wxq / wqq;
            (Affine { scale, min: 0.0 }, wxx - scale * wxq)
        } else {
            (Affine { scale, min }, (wyy - wy * mean) - scale * covariance)
        };
        if error < best.0 && fit.scale > 0.0 {
            best = (error, fit);
        }
    }
    best.1
}

/// x ≈ scale·q − min.
#[derive(Clone, Copy)]
pub(super) struct Affine {
    pub(super) scale: f32,
    pub(super) min: f32,
}

impl Affine {
    /// Scale and minimum of a sub-block as the decoder computes them.
    fn stored(d: f32, scale: i32, dmin: f32, min: i32) -> Affine {
        Affine { scale: d * scale as f32, min: dmin * min as f32 }
    }

    /// Codes per unit of x; zero when every code gives the same value. Stored scales are zero or at least
    /// 2^-24, those of `MXFP4` 2^-126, so the division cannot overflow.
    fn per_unit(&self) -> f32 {
        if self.scale == 0.0 { 0.0 } else { 1.0 / self.scale }
    }

    /// The sum of w·(x − value)² with the nearest codes.
    pub(super) fn error(&self, x: &[f32], w: &[f32], allowed: impl Codes) -> f32 {
        let per_unit = self.per_unit();
        let [sum] = lane_sums(x, w, |x, w| {
            let q = allowed.nearest((x + self.min) * per_unit);
            let error = x - (self.scale * q - self.min);
            [w * error * error]
        });
        sum
    }

    /// The nearest codes.
    pub(super) fn encode(&self, x: &[f32], allowed: impl Codes, codes: &mut [i8]) {
        let per_unit = self.per_unit();
        for (code, &x) in codes.iter_mut().zip(x) {
            *code = allowed.nearest((x + self.min) * per_unit) as i8;
        }
    }
}

/// The codes that a type has, as numbers.
pub(super) trait Codes: Copy {
    /// What the trials for the code of the largest weight differ by: about a tenth of the distance of codes.
    fn step(self) -> f32;

    /// The lowest and the highest code.
    fn ends(self) -> [f32; 2];

    /// The code nearest to `x`.
    fn nearest(self, x: f32) -> f32;
}

/// All integers between two.
#[derive(Clone, Copy)]
pub(super) struct Range {
    low: f32,
    high: f32,
}

impl Range {
    /// Codes -`n`..`n`: the highest is n - 1.
    pub(super) const fn signed(n: u8) -> Range {
        Range { low: -(n as f32), high: n as f32 - 1.0 }
    }
}

impl Codes for Range {
    fn step(self) -> f32 {
        0.1
    }

    fn ends(self) -> [f32; 2] {
        [self.low, self.high]
    }

    fn nearest(self, x: f32) -> f32 {
        let x = if x < self.low { self.low } else { x };
        round(if x > self.high { self.high } else { x })
    }
}

/// Nearest integer, ties to even, for magnitudes below 2^22: adding 1.5·2^23 leaves no room for a fraction.
/// Two additions, where the library function is a call on machines without a rounding instruction.
fn round(x: f32) -> f32 {
    const NO_FRACTION: f32 = 12_582_912.0;
    (x + NO_FRACTION) - NO_FRACTION
}

/// Sums `term` over all weights, `N` sums at a time, in eight lanes that are added in pairs at the end. The
/// length must be a multiple of eight.
#[inline(always)]
fn lane_sums<const N: usize>(x: &[f32], w: &[f32], term: impl Fn(f32, f32) -> [f32; N]) -> [f32; N] {
    let mut lanes = [[0.0f32; 8]; N];
    for (x, w) in x.as_chunks::<8>().0.iter().zip(w.as_chunks::<8>().0) {
        for i in 0..8 {
            let terms = term(x[i], w[i]);
            for n in 0..N {
                lanes[n][i] += terms[n];
            }
        }
    }
    lanes.map(|l| ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_the_nearest_even() {
        for (x, want) in [(0.5, 0.0), (1.5, 2.0), (-0.5, 0.0), (-2.5, -2.0), (31.49, 31.0), (-32.0, -32.0)] {
            assert_eq!(round(x), want, "{x}");
        }
    }

    #[test]
    fn prepare_makes_everything_finite() {
        let src = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0];
        let (mut x, mut w) = ([0.0; 4], [0.0; 4]);
        prepare(&src, Some(&[f32::INFINITY, f32::NAN, -1.0, 0.0]), &mut x, &mut w);
        assert_eq!(x, [0.0, MAX_WEIGHT, -MAX_WEIGHT, 1.0]);
        assert_eq!(w, [1.0, MIN_IMPORTANCE, MIN_IMPORTANCE, MIN_IMPORTANCE]);
        prepare(&src, Some(&[0.0; 4]), &mut x, &mut w);
        assert_eq!(w, [1.0; 4]);
    }

    #[test]
    fn an_exact_block_is_found_exactly() {
        // x = 0.5 q with codes that reach both ends.
        let x: Vec<f32> = (0..32).map(|i| 0.5 * ((i % 16) - 8) as f32).collect();
        let w = [1.0; 32];
        assert_eq!(fit_scale(&x, &w, Range::signed(8)), 0.5);
        // x = 0.25 q - 1.
        let x: Vec<f32> = (0..32).map(|i| 0.25 * i as f32 - 1.0).collect();
        let fit = fit_affine(&x, &w, 31, Min::NotNegative);
        assert!((fit.scale - 0.25).abs() < 1e-6 && (fit.min - 1.0).abs() < 1e-5);
    }

    #[test]
    fn a_shared_offset_does_not_spoil_the_fit() {
        // Steps of 2^-10 on top of 100: the squares of x alone would swallow them.
        let x: Vec<f32> = (0..32).map(|i| 100.0 + (i * 7 % 32) as f32 / 1024.0).collect();
        let fit = fit_affine(&x, &[1.0; 32], 31, Min::Any);
        assert!((fit.scale * 1024.0 - 1.0).abs() < 1e-4 && (fit.min + 100.0).abs() < 1e-4);
    }
}
