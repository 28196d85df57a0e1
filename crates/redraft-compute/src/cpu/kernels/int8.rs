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
//! codes [k / 4][16][4]                     record of t0 [k / 4]        sums [M][16]
//! k=0: w(k0 … k3, c0) … w(k0 … k3, c15)    k=0: x(k0 … k3, t0)         t0: s(c0) … s(c15)
//! k=4: …                                   k=4: …                      t1: …
//! ```

use redraft_gguf::Bias;

use crate::cpu::ops::int_panel::{IntPanel, IntTokens, TAIL};
use crate::cpu::ops::panel::DEPTH;
use crate::cpu::prefetch;
use crate::cpu::vector::{Isa, LANES, Row16};
use crate::math::{self, IntLanes, Lanes};
use crate::numerics::Units;

/// Words of a record with codes.
const fn code_words<S: Isa>() -> usize {
    DEPTH / 4 * S::QUAD_WORDS
}

/// Quantizes a chunk of one row into its record (see [`IntPacked`](crate::cpu::ops::int_panel::IntPacked)).
#[inline(always)]
pub(crate) fn quantize<S: Isa>(s: S, x: &[f32], units: Units, record: &mut [i32]) {
    let width = S::QUAD_WORDS;
    let bias = match units.bias {
        Bias::Added(n) => i32::from(n),
        Bias::Signed => S::SIGNED_BIAS,
    };
    let (words, rest) = record.split_at_mut(code_words::<S>());
    let (scales, sums) = rest.split_at_mut(DEPTH / units.len);
    let n_sums = units.sums();
    let per_unit = units.len / 4 * width;
    let outputs = words.chunks_exact_mut(per_unit).zip(scales).zip(sums.chunks_exact_mut(n_sums));
    for (x, ((words, scale_out), sums)) in x.chunks_exact(units.len).zip(outputs) {
        let (vectors, rest) = x.as_chunks::<LANES>();
        assert!(rest.is_empty(), "units are multiples of 16");
        let (scale, inverse) = math::int8_scale(s.peak(vectors));
        *scale_out = scale.to_bits() as i32;
        // All codes are 0, those of numbers that are not finite, too.
        if inverse == 0.0 {
            words.fill(0);
            sums.fill(0);
            continue;
        }
        let inverse = s.splat(inverse);
        let per_sub = units.sub_len / LANES;
        let subs = vectors.chunks_exact(per_sub).zip(words.chunks_exact_mut(units.sub_len / 4 * width));
        for (sub, (vectors, words)) in subs.enumerate() {
            let mut total = s.splat(0.0).to_bits();
            for (x, words) in vectors.iter().zip(words.chunks_exact_mut(LANES / 4 * width)) {
                let codes = math::int8_code(s.load(x), inverse);
                total = total.add(codes);
                let codes = s.low_bytes(codes);
                for (&quad, word) in codes.as_chunks::<4>().0.iter().zip(words.chunks_exact_mut(width)) {
                    word.copy_from_slice(&s.quad(quad)[..width]);
                }
            }
            let sum = s.sum_int(total);
            if units.mins {
                // Two sums of neighbouring sub-blocks share a word.
                let pair = &mut sums[sub / 2];
                *pair = if sub % 2 == 0 { sum & 0xFFFF } else { *pair | sum << 16 };
            } else {
                sums[sub] = -bias * sum;
            }
        }
    }
}

/// Adds the products to the sums of all tokens, or sets these to the products if they are `fresh`. A second panel without
/// units is not used; its sums are then not meaningful. On the way the memory is asked for the bytes `ahead`.
#[inline(always)]
pub(crate) fn gemm<S: Isa>(
    s: S,
    panels: &[IntPanel; 2],
    x: IntTokens<'_>,
    fresh: bool,
    ahead: &[u8],
    sums: [&mut [Row16]; 2],
) {
    // Groups of as many tokens as the registers hold sums for, of sizes that differ by one at most: small ones are slow.
    let n = x.order.len();
    let groups = n.div_ceil(S::INT_TOKENS).max(1);
    let (size, larger) = (n / groups, n % groups);
    let bytes = ahead.len().div_ceil(groups).max(1);
    let [mut first, mut second] = sums;
    let (mut order, mut ahead) = (x.order, ahead.chunks(bytes));
    for group in 0..groups {
        let ahead = ahead.next().unwrap_or_default();
        let size = size + usize::from(group < larger);
        let x = IntTokens { order, ..x };
        match size {
            1 => tokens::<S, 1>(s, panels, x, fresh, ahead, [first, second]),
            2 => tokens::<S, 2>(s, panels, x, fresh, ahead, [first, second]),
            3 if S::INT_TOKENS >= 3 => tokens::<S, 3>(s, panels, x, fresh, ahead, [first, second]),
            4 if S::INT_TOKENS >= 4 => tokens::<S, 4>(s, panels, x, fresh, ahead, [first, second]),
            5 if S::INT_TOKENS >= 5 => tokens::<S, 5>(s, panels, x, fresh, ahead, [first, second]),
            6 if S::INT_TOKENS >= 6 => tokens::<S, 6>(s, panels, x, fresh, ahead, [first, second]),
            0 => return,
            n => unreachable!("no kernel for a group of {n} tokens"),
        }
        (first, second) = (&mut first[size..], &mut second[size..]);
        order = &order[size..];
    }
}

/// The first `M` tokens.
#[inline(always)]
fn tokens<S: Isa, const M: usize>(
    s: S,
    panels: &[IntPanel; 2],
    x: IntTokens<'_>,
    fresh: bool,
    ahead: &[u8],
    [first, second]: [&mut [Row16]; 2],
) {
    let (Some(first), Some(second)) = (first.first_chunk_mut(), second.first_chunk_mut()) else {
        unreachable!("sums of {M} tokens and two panels");
    };
    if S::INT_PANELS == 2 {
        parts::<S, M, 2>(s, panels, x, fresh, ahead, [first, second]);
    } else {
        parts::<S, M, 1>(s, std::array::from_ref(&panels[0]), x, fresh, ahead, [first]);
        if panels[1].n_units > 0 {
            parts::<S, M, 1>(s, std::array::from_ref(&panels[1]), x, fresh, &[], [second]);
        }
    }
}

#[inline(always)]
fn parts<S: Isa, const M: usize, const C: usize>(
    s: S,
    panels: &[IntPanel; C],
    x: IntTokens<'_>,
    fresh: bool,
    ahead: &[u8],
    sums: [&mut [Row16; M]; C],
) {
    if S::QUAD_WORDS == 2 {
        forms::<S, M, C, { 2 * STEPS }>(s, panels, Tokens::new(x), fresh, ahead, sums);
    } else {
        forms::<S, M, C, STEPS>(s, panels, Tokens::new(x), fresh, ahead, sums);
    }
}

/// Vectors of a sub-block are used so many at a time.
const STEP: usize = 4;

/// Such steps of a panel.
const STEPS: usize = DEPTH / 4 / STEP;

/// The parts of the records of `M` tokens, in arrays, whose bounds the compiler checks once for all of them.
#[derive(Clone, Copy)]
struct Tokens<'a, const M: usize, const L: usize> {
    codes: [&'a [[i32; STEP]; L]; M],
    tail: [&'a [i32; TAIL]; M],
}

impl<'a, const M: usize, const L: usize> Tokens<'a, M, L> {
    #[inline(always)]
    fn new(x: IntTokens<'a>) -> Tokens<'a, M, L> {
        let mut of = Tokens { codes: [&[[0; STEP]; L]; M], tail: [&[0; TAIL]; M] };
        // A loop: closures over arrays become calls.
        for m in 0..M {
            let record = &x.records[x.order[m] * x.width..];
            let (codes, tail) = record.split_at(L * STEP);
            let (Some(codes), Some(tail)) = (codes.as_chunks().0.first_chunk(), tail.first_chunk()) else {
                unreachable!("a record of {} words", record.len());
            };
            (of.codes[m], of.tail[m]) = (codes, tail);
        }
        of
    }
}

#[inline(always)]
fn forms<S: Isa, const M: usize, const C: usize, const L: usize>(
    s: S,
    panels: &[IntPanel; C],
    x: Tokens<'_, M, L>,
    fresh: bool,
    ahead: &[u8],
    sums: [&mut [Row16; M]; C],
) {
    match (panels[0].units.subs > 1, panels[0].units.mins) {
        (false, false) => units::<S, M, C, L, false, false>(s, panels, x, fresh, ahead, sums),
        (false, true) => units::<S, M, C, L, false, true>(s, panels, x, fresh, ahead, sums),
        (true, false) => units::<S, M, C, L, true, false>(s, panels, x, fresh, ahead, sums),
        (true, true) => units::<S, M, C, L, true, true>(s, panels, x, fresh, ahead, sums),
    }
}

/// `M` tokens, `C` panels. `SCALED`: there are sub-blocks with scales. `MINS`: there are minima.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // m and c run over several arrays
fn units<S: Isa, const M: usize, const C: usize, const L: usize, const SCALED: bool, const MINS: bool>(
    s: S,
    panels: &[IntPanel; C],
    x: Tokens<'_, M, L>,
    fresh: bool,
    ahead: &[u8],
    sums: [&mut [Row16; M]; C],
) {
    let units = panels[0].units;
    let n_units = panels[0].n_units;
    let (subs, quads, pairs) = (units.subs, units.sub_len / 4, units.pairs());
    let starts = DEPTH / units.len;
    let zero = s.splat(0.0).to_bits();
    let mut acc = [[s.splat(0.0); M]; C];
    if !fresh {
        for c in 0..C {
            for m in 0..M {
                acc[c][m] = s.load(&sums[c][m]);
            }
        }
    }
    // A few lines at a time: a core waits once it has asked the memory for some dozens.
    let mut ahead = ahead.chunks(ahead.len().div_ceil(n_units * subs).next_multiple_of(64).max(64));
    for u in 0..n_units {
        let mut total = [[zero; M]; C];
        for sub in 0..subs {
            prefetch::far(ahead.next().unwrap_or_default());
            let mut dot = [[zero; M]; C];
            if !MINS {
                for m in 0..M {
                    let start = zero.splat(x.tail[m][starts + u * subs + sub]);
                    for dot in &mut dot {
                        dot[m] = start;
                    }
                }
            }
            let first = (u * subs + sub) * quads / STEP;
            for step in first..first + quads / STEP {
                for q in 0..STEP {
                    let mut w = [zero; C];
                    for c in 0..C {
                        w[c] = s.load(&panels[c].codes.as_chunks::<STEP>().0[step][q]).to_bits();
                    }
                    let word = |m: usize, i: usize| {
                        let at = q * S::QUAD_WORDS + i;
                        x.codes[m][step * S::QUAD_WORDS + at / STEP][at % STEP]
                    };
                    for m in 0..M {
                        let second = if S::QUAD_WORDS == 2 { word(m, 1) } else { 0 };
                        for c in 0..C {
                            dot[c][m] = s.dot_quads(dot[c][m], w[c], [word(m, 0), second]);
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
        let mut dx = [s.splat(0.0); M];
        for m in 0..M {
            dx[m] = s.splat(f32::from_bits(x.tail[m][u] as u32));
        }
        for c in 0..C {
            let d = s.load(&panels[c].d[u]);
            for m in 0..M {
                acc[c][m] = acc[c][m].add(d.mul(dx[m]).mul(S::V::from_int(total[c][m])));
            }
        }
        if MINS {
            let mut total = [[zero; M]; C];
            for pair in u * pairs..(u + 1) * pairs {
                let mut mins = [zero; C];
                for c in 0..C {
                    mins[c] = s.load(&panels[c].mins[pair]).to_bits();
                }
                for m in 0..M {
                    for c in 0..C {
                        total[c][m] = s.dot_pairs(total[c][m], mins[c], x.tail[m][starts + pair]);
                    }
                }
            }
            for c in 0..C {
                let dmin = s.load(&panels[c].dmin[u]);
                for m in 0..M {
                    acc[c][m] = acc[c][m].sub(dmin.mul(dx[m]).mul(S::V::from_int(total[c][m])));
                }
            }
        }
    }
    for c in 0..C {
        for m in 0..M {
            s.store(acc[c][m], &mut sums[c][m]);
        }
    }
}
