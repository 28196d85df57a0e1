//! Products of quantized weights and int8 activations (`docs/numerics.md`, section 12).
//!
//! 1. `quantize`: one row of activations to codes, four to a word, scales, and sums of codes.
//! 2. `unpack` (in `int_unpack`): sixteen rows of weights, transposed so that a vector holds four neighbouring codes of
//!    each of the sixteen.
//! 3. `gemm`: `M` tokens x one or two panels of 16 columns. Inside a unit all is integer, so the order is free; between
//!    units f32, ascending.
//!
//! Codes are stored with a bias that keeps them from being negative. What it adds to a sum is the bias times the sum of
//! the activations; the negative of that is where the sum begins.
//!
//! ```text
//! codes [k / 4][16][4]                     words [k / 4][M]           sums [M][16]
//! k=0: w(k0 … k3, c0) … w(k0 … k3, c15)    k=0: x(k0 … k3, t0) …      t0: s(c0) … s(c15)
//! k=4: …                                   k=4: …                     t1: …
//! ```

use redraft_gguf::Bias;

use crate::cpu::ops::int_panel::{IntGroup, IntPanel};
use crate::cpu::vector::{Int, Isa, LANES, Row16};
use crate::math::{self, IntLanes, Lanes};
use crate::numerics::Units;

/// Quantizes a chunk of one row. It is token `place[0]` of the `place[1]` tokens of its group, whose record is written
/// as [`IntGroup`] describes it.
#[inline(always)]
pub(crate) fn quantize<S: Isa>(
    s: S,
    x: &[f32],
    units: Units,
    [token, tokens]: [usize; 2],
    record: &mut [i32],
) {
    let width = S::QUAD_WORDS;
    let bias = match units.bias {
        Bias::Added(n) => i32::from(n),
        Bias::Signed => S::SIGNED_BIAS,
    };
    let (words, rest) = record.split_at_mut(x.len() / 4 * width * tokens);
    let (scales, sums) = rest.split_at_mut(x.len() / units.len * tokens);
    let n_sums = units.sums();
    for (u, x) in x.chunks_exact(units.len).enumerate() {
        let (vectors, rest) = x.as_chunks::<LANES>();
        assert!(rest.is_empty(), "units are multiples of 16");
        let mut peak = s.splat(0.0);
        for x in vectors {
            let bits = s.load(x).to_bits();
            let magnitude = bits.and(bits.splat(0x7FFF_FFFF));
            // Of integers, so that a NaN is above all.
            peak = S::V::from_bits(magnitude).if_int_lt(peak.to_bits(), magnitude, peak);
        }
        let (scale, inverse) = math::int8_scale(largest_bits(s, peak));
        scales[u * tokens + token] = scale.to_bits() as i32;
        // All codes are 0, those of numbers that are not finite, too.
        if inverse == 0.0 {
            let first = u * units.len / 4;
            for q in first..first + units.len / 4 {
                let at = (q * tokens + token) * width;
                words[at..at + width].fill(0);
            }
            for sum in u * n_sums..(u + 1) * n_sums {
                sums[sum * tokens + token] = 0;
            }
            continue;
        }
        let inverse = s.splat(inverse);
        let per_sub = units.sub_len / LANES;
        for (sub, vectors) in vectors.chunks_exact(per_sub).enumerate() {
            let mut total = s.splat(0.0).to_bits();
            for (v, x) in vectors.iter().enumerate() {
                let codes = math::int8_code(s.load(x), inverse);
                total = total.add(codes);
                let codes = s.low_bytes(codes);
                let (quads, _) = codes.as_chunks::<4>();
                let first = (u * units.len + (sub * per_sub + v) * LANES) / 4;
                for (q, &quad) in quads.iter().enumerate() {
                    let at = ((first + q) * tokens + token) * width;
                    words[at..at + width].copy_from_slice(&s.quad(quad)[..width]);
                }
            }
            let sum = sum_int(s, total);
            if units.mins {
                // Two sums of neighbouring sub-blocks share a word.
                let pair = &mut sums[(u * units.pairs() + sub / 2) * tokens + token];
                *pair = if sub % 2 == 0 { sum & 0xFFFF } else { *pair | sum << 16 };
            } else {
                sums[(u * units.subs + sub) * tokens + token] = -bias * sum;
            }
        }
    }
}

/// The lane with the largest bits; none has a sign.
#[inline(always)]
fn largest_bits<S: Isa>(s: S, v: S::V) -> f32 {
    let mut x = [0.0; LANES];
    s.store(v, &mut x);
    f32::from_bits(x.iter().fold(0, |peak, x| peak.max(x.to_bits())))
}

/// The sum of the lanes.
#[inline(always)]
fn sum_int<S: Isa>(s: S, v: Int<S>) -> i32 {
    let mut x = [0.0; LANES];
    s.store(S::V::from_bits(v), &mut x);
    x.iter().map(|x| x.to_bits() as i32).sum()
}

/// Adds the products; the number of tokens is the length of the sums, at most `Isa::INT_TOKENS`.
#[inline(always)]
pub(crate) fn gemm<S: Isa>(s: S, panels: &[IntPanel; 2], x: IntGroup<'_>, sums: [&mut [Row16]; 2]) {
    match sums[0].len() {
        1 => tokens::<S, 1>(s, panels, x, sums),
        2 => tokens::<S, 2>(s, panels, x, sums),
        3 if S::INT_TOKENS >= 3 => tokens::<S, 3>(s, panels, x, sums),
        4 if S::INT_TOKENS >= 4 => tokens::<S, 4>(s, panels, x, sums),
        5 if S::INT_TOKENS >= 5 => tokens::<S, 5>(s, panels, x, sums),
        6 if S::INT_TOKENS >= 6 => tokens::<S, 6>(s, panels, x, sums),
        n => unreachable!("no kernel for a group of {n} tokens"),
    }
}

#[inline(always)]
fn tokens<S: Isa, const M: usize>(
    s: S,
    panels: &[IntPanel; 2],
    x: IntGroup<'_>,
    [first, second]: [&mut [Row16]; 2],
) {
    if S::INT_PANELS == 2 {
        forms::<S, M, 2>(s, panels, x, [first, second]);
    } else {
        forms::<S, M, 1>(s, std::array::from_ref(&panels[0]), x, [first]);
        if !second.is_empty() {
            forms::<S, M, 1>(s, std::array::from_ref(&panels[1]), x, [second]);
        }
    }
}

#[inline(always)]
fn forms<S: Isa, const M: usize, const C: usize>(
    s: S,
    panels: &[IntPanel; C],
    x: IntGroup<'_>,
    sums: [&mut [Row16]; C],
) {
    match (panels[0].units.subs > 1, panels[0].units.mins) {
        (false, false) => units::<S, M, C, false, false>(s, panels, x, sums),
        (false, true) => units::<S, M, C, false, true>(s, panels, x, sums),
        (true, false) => units::<S, M, C, true, false>(s, panels, x, sums),
        (true, true) => units::<S, M, C, true, true>(s, panels, x, sums),
    }
}

/// Vectors of a sub-block are used so many at a time.
const STEP: usize = 4;

/// `M` tokens, `C` panels. `SCALED`: there are sub-blocks with scales. `MINS`: there are minima.
#[inline(always)]
fn units<S: Isa, const M: usize, const C: usize, const SCALED: bool, const MINS: bool>(
    s: S,
    panels: &[IntPanel; C],
    x: IntGroup<'_>,
    sums: [&mut [Row16]; C],
) {
    let units = panels[0].units;
    let n_units = panels[0].n_units;
    let (subs, quads, pairs) = (units.subs, units.sub_len / 4, units.pairs());
    let zero = s.splat(0.0).to_bits();
    let width = M * S::QUAD_WORDS;
    let (dx, _) = x.scales.as_chunks::<M>();
    let (x_sums, _) = x.sums.as_chunks::<M>();
    // A second panel may have no sums; it is computed for nothing.
    let mut acc = [[s.splat(0.0); M]; C];
    for c in 0..C {
        for (acc, sum) in acc[c].iter_mut().zip(&*sums[c]) {
            *acc = s.load(sum);
        }
    }
    for u in 0..n_units {
        let mut total = [[zero; M]; C];
        for sub in 0..subs {
            let mut dot = [[zero; M]; C];
            if !MINS {
                let start = &x_sums[u * subs + sub];
                for m in 0..M {
                    for dot in &mut dot {
                        dot[m] = zero.splat(start[m]);
                    }
                }
            }
            let first = (u * subs + sub) * quads;
            let words = x.words[first * width..(first + quads) * width].chunks_exact(STEP * width);
            let mut codes = [panels[0].codes[first..first + quads].as_chunks::<STEP>().0; C];
            for c in 1..C {
                codes[c] = panels[c].codes[first..first + quads].as_chunks::<STEP>().0;
            }
            for (i, words) in words.enumerate() {
                for q in 0..STEP {
                    let mut w = [zero; C];
                    for c in 0..C {
                        w[c] = s.load(&codes[c][i][q]).to_bits();
                    }
                    let x = &words[q * width..(q + 1) * width];
                    for m in 0..M {
                        let second = if S::QUAD_WORDS == 2 { x[2 * m + 1] } else { 0 };
                        let x = [x[S::QUAD_WORDS * m], second];
                        for c in 0..C {
                            dot[c][m] = s.dot_quads(dot[c][m], w[c], x);
                        }
                    }
                }
            }
            if SCALED {
                for c in 0..C {
                    let scale = s.load(&panels[c].scales[sub]).to_bits();
                    for m in 0..M {
                        total[c][m] = total[c][m].add(s.mul_int(dot[c][m], scale));
                    }
                }
            } else {
                total = dot;
            }
        }
        for c in 0..C {
            let d = s.load(&panels[c].d[u]);
            for m in 0..M {
                let dx = s.splat(f32::from_bits(dx[u][m] as u32));
                acc[c][m] = acc[c][m].add(d.mul(dx).mul(S::V::from_int(total[c][m])));
            }
        }
        if MINS {
            for c in 0..C {
                let dmin = s.load(&panels[c].dmin[u]);
                let mut total = [zero; M];
                for pair in 0..pairs {
                    let mins = s.load(&panels[c].mins[u * pairs + pair]).to_bits();
                    let x = &x_sums[u * pairs + pair];
                    for m in 0..M {
                        total[m] = s.dot_pairs(total[m], mins, x[m]);
                    }
                }
                for m in 0..M {
                    let dx = s.splat(f32::from_bits(dx[u][m] as u32));
                    acc[c][m] = acc[c][m].sub(dmin.mul(dx).mul(S::V::from_int(total[m])));
                }
            }
        }
    }
    for c in 0..C {
        for (acc, sum) in acc[c].iter().zip(&mut *sums[c]) {
            s.store(*acc, sum);
        }
    }
}
