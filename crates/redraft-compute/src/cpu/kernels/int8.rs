//! Products of quantized weights and int8 activations (`docs/numerics.md`, section 12).
//!
//! 1. `quantize`: one row of activations to codes, four to a word, scales, and sums of codes.
//! 2. `pack`: the codes of sixteen rows of weights, transposed so that a vector holds four neighbouring codes of
//!    each of the sixteen; and what takes the offset of the stored activations out of the sums again.
//! 3. `gemm`: `M` tokens x 16 columns. Inside a unit all is integer, so the order is free; between units f32,
//!    ascending.
//!
//! ```text
//! codes [k / 4][16][4]                     words [k / 4][M]           sums [M][16]
//! k=0: w(k0 … k3, c0) … w(k0 … k3, c15)    k=0: x(k0 … k3, t0) …      t0: s(c0) … s(c15)
//! k=4: …                                   k=4: …                     t1: …
//! ```

use crate::cpu::ops::int_panel::{IntGroup, IntPanel};
use crate::cpu::ops::panel::DEPTH;
use crate::cpu::vector::{Int, Isa, LANES, Row16};
use crate::math::{self, IntLanes, Lanes};
use crate::numerics::Units;

/// Quantizes one row. It is token `place[0]` of the `place[1]` tokens of its group, whose record is written as
/// [`IntGroup`] describes it.
#[inline(always)]
pub(crate) fn quantize<S: Isa>(
    s: S,
    x: &[f32],
    units: Units,
    [token, tokens]: [usize; 2],
    record: &mut [i32],
) {
    let width = S::QUAD_WORDS;
    let (words, rest) = record.split_at_mut(x.len() / 4 * width * tokens);
    let (scales, sums) = rest.split_at_mut(x.len() / units.len * tokens);
    for (u, x) in x.chunks_exact(units.len).enumerate() {
        let (vectors, rest) = x.as_chunks::<LANES>();
        assert!(rest.is_empty(), "units are multiples of 16");
        let mut peak = s.splat(0.0);
        for x in vectors {
            let bits = s.load(x).to_bits();
            peak = peak.max(S::V::from_bits(bits.and(bits.splat(0x7FFF_FFFF))));
        }
        let (scale, inverse) = math::int8_scale(s.largest(peak));
        scales[u * tokens + token] = scale.to_bits() as i32;
        let inverse = s.splat(inverse);
        let per_sub = units.sub_len / LANES;
        for (sub, vectors) in vectors.chunks_exact(per_sub).enumerate() {
            let mut sum = 0;
            for (v, x) in vectors.iter().enumerate() {
                let codes = s.low_bytes(math::int8_code(s.load(x), inverse));
                for &code in &codes {
                    sum += i32::from(code);
                }
                let (quads, _) = codes.as_chunks::<4>();
                let first = (u * units.len + (sub * per_sub + v) * LANES) / 4;
                for (q, &quad) in quads.iter().enumerate() {
                    let at = ((first + q) * tokens + token) * width;
                    words[at..at + width].copy_from_slice(&s.quad(quad)[..width]);
                }
            }
            // Two sums of neighbouring sub-blocks share a word.
            let pair = &mut sums[(u * units.pairs() + sub / 2) * tokens + token];
            *pair = if sub % 2 == 0 { sum & 0xFFFF } else { *pair | sum << 16 };
        }
    }
}

/// Transposes the codes of 16 rows into `panel.codes`, and sets `panel.start` from them and `panel.scales`.
#[inline(always)]
pub(crate) fn pack<S: Isa>(s: S, rows: &[[i8; DEPTH]], panel: &mut IntPanel) {
    assert_eq!(rows.len(), LANES, "sixteen rows");
    let (squares, _) = panel.codes.as_chunks_mut::<LANES>();
    let mut square = [s.splat(0.0); LANES];
    for (i, out) in squares.iter_mut().enumerate() {
        for j in 0..LANES {
            let (codes, _) = rows[j][i * 4 * LANES..].as_chunks::<4>();
            let mut words = [0.0; LANES];
            for (word, &codes) in words.iter_mut().zip(codes) {
                *word = f32::from_bits(u32::from_le_bytes(codes.map(|c| c as u8)));
            }
            square[j] = s.load(&words);
        }
        s.transpose(&square, out);
    }
    if S::OFFSET == 0 {
        return;
    }
    let zero = s.splat(0.0).to_bits();
    // Activations of 1 less the offset are stored as 1.
    let ones = s.quad([1i8.wrapping_sub(S::OFFSET as i8); 4]);
    let (subs, quads) = (panel.units.subs(), panel.units.sub_len / 4);
    for (u, start) in panel.start.iter_mut().enumerate() {
        let mut total = zero;
        for sub in u * subs..(u + 1) * subs {
            let mut sum = zero;
            for codes in &panel.codes[sub * quads..][..quads] {
                sum = s.dot_quads(sum, s.load(codes).to_bits(), ones);
            }
            total = total.add(s.mul_int(sum, s.load(&panel.scales[sub]).to_bits()));
        }
        s.store(S::V::from_bits(s.mul_int(total, total.splat(-S::OFFSET))), start);
    }
}

/// Adds the products; the number of tokens is the length of `sums`, one of `Isa::INT_GROUPS`.
#[inline(always)]
pub(crate) fn gemm<S: Isa>(s: S, panel: &IntPanel, x: IntGroup<'_>, sums: &mut [Row16]) {
    match sums.len() {
        1 => tokens::<S, 1>(s, panel, x, sums),
        2 => tokens::<S, 2>(s, panel, x, sums),
        4 if S::INT_GROUPS[0] >= 4 => tokens::<S, 4>(s, panel, x, sums),
        8 if S::INT_GROUPS[0] >= 8 => tokens::<S, 8>(s, panel, x, sums),
        12 if S::INT_GROUPS[0] >= 12 => tokens::<S, 12>(s, panel, x, sums),
        n => unreachable!("no kernel for a group of {n} tokens"),
    }
}

#[inline(always)]
fn tokens<S: Isa, const M: usize>(s: S, panel: &IntPanel, x: IntGroup<'_>, sums: &mut [Row16]) {
    match (panel.scaled, panel.has_mins) {
        (false, false) => units::<S, M, false, false>(s, panel, x, sums),
        (false, true) => units::<S, M, false, true>(s, panel, x, sums),
        (true, false) => units::<S, M, true, false>(s, panel, x, sums),
        (true, true) => units::<S, M, true, true>(s, panel, x, sums),
    }
}

/// `SCALED`: the scales of the sub-blocks are not all 1. `MINS`: there are minima.
#[inline(always)]
fn units<S: Isa, const M: usize, const SCALED: bool, const MINS: bool>(
    s: S,
    panel: &IntPanel,
    x: IntGroup<'_>,
    sums: &mut [Row16],
) {
    assert_eq!(sums.len(), M, "a group of {M} tokens");
    let units = panel.units;
    let (subs, quads) = (units.subs(), units.sub_len / 4);
    let zero = s.splat(0.0).to_bits();
    let mut codes = panel.codes.chunks_exact(quads);
    let mut words = x.words.chunks_exact(quads * M * S::QUAD_WORDS);
    let (dx, _) = x.scales.as_chunks::<M>();
    let (pairs, _) = x.sums.as_chunks::<M>();
    for (u, dx) in dx.iter().enumerate() {
        let mut total: [Int<S>; M] = [s.load(&panel.start[u]).to_bits(); M];
        for sub in 0..subs {
            let (Some(codes), Some(words)) = (codes.next(), words.next()) else {
                unreachable!("panel and activations have the same depth")
            };
            let mut dot = if SCALED { [zero; M] } else { total };
            for (w, x) in codes.iter().zip(words.chunks_exact(M * S::QUAD_WORDS)) {
                let w = s.load(w).to_bits();
                for m in 0..M {
                    let second = if S::QUAD_WORDS == 2 { x[2 * m + 1] } else { 0 };
                    dot[m] = s.dot_quads(dot[m], w, [x[S::QUAD_WORDS * m], second]);
                }
            }
            if SCALED {
                let scale = s.load(&panel.scales[u * subs + sub]).to_bits();
                for m in 0..M {
                    total[m] = total[m].add(s.mul_int(dot[m], scale));
                }
            } else {
                total = dot;
            }
        }
        let d = s.load(&panel.d[u]);
        for m in 0..M {
            let dx = s.splat(f32::from_bits(dx[m] as u32));
            let sum = s.load(&sums[m]);
            s.store(sum.add(d.mul(dx).mul(S::V::from_int(total[m]))), &mut sums[m]);
        }
        if MINS {
            let dmin = s.load(&panel.dmin[u]);
            let mut total = [zero; M];
            let of_unit = u * units.pairs()..(u + 1) * units.pairs();
            for (mins, x) in panel.mins[of_unit.clone()].iter().zip(&pairs[of_unit]) {
                let mins = s.load(mins).to_bits();
                for m in 0..M {
                    total[m] = s.dot_pairs(total[m], mins, x[m]);
                }
            }
            for m in 0..M {
                let dx = s.splat(f32::from_bits(dx[m] as u32));
                let sum = s.load(&sums[m]);
                s.store(sum.sub(dmin.mul(dx).mul(S::V::from_int(total[m]))), &mut sums[m]);
            }
        }
    }
}
