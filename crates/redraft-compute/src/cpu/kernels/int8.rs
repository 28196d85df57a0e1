//! Products of quantized weights and int8 activations (`docs/numerics.md`, section 12).
//!
//! 1. `quantize`: one row of activations to codes, four to a word, scales, and sums of codes.
//! 2. `unpack`: sixteen rows of weights row by row, then transposed so that a vector holds four neighbouring codes
//!    of each of the sixteen; and what takes the offset of the stored activations out of the sums again.
//! 3. `gemm`: `M` tokens x 16 columns. Inside a unit all is integer, so the order is free; between units f32,
//!    ascending.
//!
//! ```text
//! codes [k / 4][16][4]                     words [k / 4][M]           sums [M][16]
//! k=0: w(k0 … k3, c0) … w(k0 … k3, c15)    k=0: x(k0 … k3, t0) …      t0: s(c0) … s(c15)
//! k=4: …                                   k=4: …                     t1: …
//! ```

use std::marker::PhantomData;

use redraft_gguf::{BlockCodec, CommonFormat, FormatVisitor, Unpacked, visit_format};

use crate::cpu::ops::int_panel::{IntGroup, IntPanel, PanelRow};
use crate::cpu::vector::{Int, Isa, LANES, Row16};
use crate::math::{self, IntLanes, Lanes};
use crate::numerics::{Unit, Units};

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

/// Unpacks the blocks of up to 16 rows of one type into the panel; missing rows are zero.
///
/// The formats of common types are compiled into the loop; the others are called block by block.
#[inline(always)]
pub(crate) fn unpack<S: Isa>(s: S, codec: &dyn BlockCodec, rows: &[&[u8]], panel: &mut IntPanel) {
    let known = visit_format(codec.dtype(), Fill { rows, panel: &mut *panel });
    if known.is_none() {
        fill(&Listed(codec), rows, panel);
    }
    pack(s, panel);
}

/// How the blocks of a type are unpacked.
trait Blocks {
    /// Weights and bytes of a block.
    fn size(&self) -> (usize, usize);
    /// Unpacks a block: its codes to `codes`, the rest to `out`.
    fn unpack(&self, bytes: &[u8], out: &mut Unpacked, codes: &mut [i8]);
}

/// A type that is known when this is compiled.
struct Known<F>(PhantomData<F>);

impl<F: CommonFormat> Blocks for Known<F> {
    #[inline(always)]
    fn size(&self) -> (usize, usize) {
        (F::LEN, F::BYTES)
    }
    #[inline(always)]
    fn unpack(&self, bytes: &[u8], out: &mut Unpacked, codes: &mut [i8]) {
        F::unpack_scales(bytes, out);
        F::unpack_codes(bytes, codes);
    }
}

/// A type from the list of codecs.
struct Listed<'a>(&'a dyn BlockCodec);

impl Blocks for Listed<'_> {
    fn size(&self) -> (usize, usize) {
        (self.0.block_len(), self.0.block_bytes())
    }
    fn unpack(&self, bytes: &[u8], out: &mut Unpacked, codes: &mut [i8]) {
        self.0.unpack(bytes, out);
        codes.copy_from_slice(out.codes());
    }
}

/// Calls [`fill`] with a known format.
struct Fill<'a> {
    rows: &'a [&'a [u8]],
    panel: &'a mut IntPanel,
}

impl FormatVisitor for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn visit<F: CommonFormat>(self) {
        fill(&Known::<F>(PhantomData), self.rows, self.panel);
    }
}

/// Unpacks row after row; all but the scales of units is transposed later.
#[inline(always)]
fn fill<B: Blocks>(blocks: &B, rows: &[&[u8]], panel: &mut IntPanel) {
    let (len, size) = blocks.size();
    let units = panel.units;
    let per_block = if units.len == len { 1 } else { len / units.len };
    for (j, row) in rows.iter().enumerate() {
        let out = &mut panel.rows[j];
        let block = &mut out.block;
        let mut u = 0;
        let mut at = 0;
        while at < row.len() {
            let codes = &mut out.codes[u * units.len..][..len];
            blocks.unpack(&row[at..at + size], block, codes);
            at += size;
            for i in 0..per_block {
                let unit = Unit::of(block, units, i);
                (panel.d[u][j], panel.dmin[u][j]) = (unit.d, unit.dmin);
                if unit.dmin != 0.0 {
                    panel.has_mins = true;
                    let n = units.pairs();
                    for pair in 0..n {
                        let mins = [2 * pair, 2 * pair + 1].map(|s| match unit.mins.get(s) {
                            Some(&m) => i32::from(m),
                            None => 0,
                        });
                        out.mins[u * n + pair] = mins[0] | mins[1] << 16;
                    }
                }
                u += 1;
            }
        }
    }
}

/// Transposes the sixteen rows of the panel, and sets `panel.start`.
#[inline(always)]
fn pack<S: Isa>(s: S, panel: &mut IntPanel) {
    let rows: &[PanelRow; LANES] = &panel.rows;
    let (squares, _) = panel.codes.as_chunks_mut::<LANES>();
    let mut square = [s.splat(0.0); LANES];
    for (i, out) in squares.iter_mut().enumerate() {
        for j in 0..LANES {
            let (codes, _) = rows[j].codes.as_chunks::<{ 4 * LANES }>();
            square[j] = S::V::from_bits(s.load_bytes(&codes[i]));
        }
        s.transpose(&square, out);
    }
    if panel.units.subs > 1 {
        for j in 0..LANES {
            square[j] = S::V::from_bits(s.load_int(&rows[j].block.scales));
        }
        s.transpose(&square, &mut panel.scales);
    }
    if panel.has_mins {
        for j in 0..LANES {
            square[j] = S::V::from_bits(s.load_int(&rows[j].mins));
        }
        s.transpose(&square, &mut panel.mins);
    }
    if S::OFFSET == 0 {
        return;
    }
    let zero = s.splat(0.0).to_bits();
    // Activations of 1 less the offset are stored as 1.
    let ones = s.quad([1i8.wrapping_sub(S::OFFSET as i8); 4]);
    let (subs, quads) = (panel.units.subs, panel.units.sub_len / 4);
    for u in 0..panel.n_units {
        let mut total = zero;
        for sub in 0..subs {
            let mut sum = zero;
            for q in (u * subs + sub) * quads..(u * subs + sub + 1) * quads {
                sum = s.dot_quads(sum, s.load(&panel.codes[q]).to_bits(), ones);
            }
            let scaled = if subs > 1 { s.mul_int(sum, s.load(&panel.scales[sub]).to_bits()) } else { sum };
            total = total.add(scaled);
        }
        s.store(S::V::from_bits(s.mul_int(total, total.splat(-S::OFFSET))), &mut panel.start[u]);
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
    match (panel.units.subs > 1, panel.has_mins) {
        (false, false) => units::<S, M, false, false>(s, panel, x, sums),
        (false, true) => units::<S, M, false, true>(s, panel, x, sums),
        (true, false) => units::<S, M, true, false>(s, panel, x, sums),
        (true, true) => units::<S, M, true, true>(s, panel, x, sums),
    }
}

/// `SCALED`: there are sub-blocks with scales. `MINS`: there are minima.
#[inline(always)]
fn units<S: Isa, const M: usize, const SCALED: bool, const MINS: bool>(
    s: S,
    panel: &IntPanel,
    x: IntGroup<'_>,
    sums: &mut [Row16],
) {
    assert_eq!(sums.len(), M, "a group of {M} tokens");
    let units = panel.units;
    let (subs, quads) = (units.subs, units.sub_len / 4);
    let zero = s.splat(0.0).to_bits();
    let width = M * S::QUAD_WORDS;
    let (dx, _) = x.scales.as_chunks::<M>();
    let (pairs, _) = x.sums.as_chunks::<M>();
    assert!(
        panel.n_units * subs * quads <= panel.codes.len()
            && panel.n_units <= LANES
            && subs <= LANES
            && x.words.len() >= panel.n_units * subs * quads * width
            && dx.len() >= panel.n_units
            && pairs.len() >= panel.n_units * units.pairs(),
        "panel and activations have the same depth"
    );
    for u in 0..panel.n_units {
        let mut total: [Int<S>; M] = [s.load(&panel.start[u]).to_bits(); M];
        for sub in 0..subs {
            let mut dot = if SCALED { [zero; M] } else { total };
            let first = (u * subs + sub) * quads;
            for q in first..first + quads {
                let w = s.load(&panel.codes[q]).to_bits();
                let x = &x.words[q * width..(q + 1) * width];
                for m in 0..M {
                    let second = if S::QUAD_WORDS == 2 { x[2 * m + 1] } else { 0 };
                    dot[m] = s.dot_quads(dot[m], w, [x[S::QUAD_WORDS * m], second]);
                }
            }
            if SCALED {
                let scale = s.load(&panel.scales[sub]).to_bits();
                for m in 0..M {
                    total[m] = total[m].add(s.mul_int(dot[m], scale));
                }
            } else {
                total = dot;
            }
        }
        let d = s.load(&panel.d[u]);
        for m in 0..M {
            let dx = s.splat(f32::from_bits(dx[u][m] as u32));
            let sum = s.load(&sums[m]);
            s.store(sum.add(d.mul(dx).mul(S::V::from_int(total[m]))), &mut sums[m]);
        }
        if MINS {
            let dmin = s.load(&panel.dmin[u]);
            let mut total = [zero; M];
            let n = units.pairs();
            for pair in 0..n {
                let (mins, x) = (s.load(&panel.mins[u * n + pair]).to_bits(), &pairs[u * n + pair]);
                for m in 0..M {
                    total[m] = s.dot_pairs(total[m], mins, x[m]);
                }
            }
            for m in 0..M {
                let dx = s.splat(f32::from_bits(dx[u][m] as u32));
                let sum = s.load(&sums[m]);
                s.store(sum.sub(dmin.mul(dx).mul(S::V::from_int(total[m]))), &mut sums[m]);
            }
        }
    }
}
