//! NEON with the int8 matrix multiply extension: eight products of signed bytes in each lane in one instruction. All
//! but the integer products with weights is that of the level with the dot product extension.
//!
//! `smmla` multiplies two rows of eight bytes with two others, here two tokens with two columns, and adds to
//! `[t0 c0, t0 c1, t1 c0, t1 c1]`. So the numbers of a pair of tokens are two vectors whose quarters have that form,
//! from the sums that are loaded to those that are stored; what belongs to a column or a token alone is spread to the
//! same places. A token without a partner is its own.
//!
//! ```text
//! pair[0]  t0 c0, t0 c1, t1 c0, t1 c1 | t0 c2, t0 c3, t1 c2, t1 c3 | … | t0 c6, t0 c7, t1 c6, t1 c7
//! pair[1]  the same of c8 … c15
//! ```
//!
//! The panel has two vectors of eight columns for every eight input features, where other levels have two of sixteen
//! for four each:
//!
//! ```text
//! codes[2 i]      w(8 i … 8 i + 7, c0), w(…, c1) | … | w(…, c6), w(…, c7)
//! codes[2 i + 1]  the same of c8 … c15
//! ```
//!
//! The intrinsic is not stable, so `smmla` is written as assembly.

use std::arch::aarch64::*;
use std::arch::asm;

use redraft_gguf::BlockCodec;

use super::dotprod;
use super::neon::{F32s, I32s, Neon};
use crate::cpu::ops::int_panel::{IntPanel, IntTokens, TAIL};
use crate::cpu::ops::panel::DEPTH;
use crate::cpu::table::Table;
use crate::cpu::vector::{Isa, Row16, RowBytes};
use crate::math::{IntLanes, Lanes};

/// The kernels of this level; only for machines that have it and the level with the dot product extension.
pub(in crate::cpu) static TABLE: Table = Table { int_gemm, int_unpack, ..dotprod::TABLE };

/// As `int8::gemm`, for codes in the order of this level. The memory is not asked for the bytes ahead: on this
/// architecture nothing is (see `prefetch`).
fn int_gemm(panels: &[IntPanel; 2], x: IntTokens<'_>, fresh: bool, _: &[u8], sums: [&mut [Row16]; 2]) {
    #[target_feature(enable = "neon,i8mm")]
    fn compiled(panels: &[IntPanel; 2], x: IntTokens<'_>, fresh: bool, sums: [&mut [Row16]; 2]) {
        // SAFETY: this function runs only where its own target features exist.
        gemm(unsafe { NeonI8mm::assume() }, panels, x, fresh, sums);
    }
    // SAFETY: the function is reached through `TABLE` only, which `table()` hands out after it found the features.
    unsafe { compiled(panels, x, fresh, sums) }
}

/// As `int_unpack::unpack`, with the codes in the order of this level.
fn int_unpack(codec: &dyn BlockCodec, rows: RowBytes<'_>, panel: &mut IntPanel) {
    (dotprod::TABLE.int_unpack)(codec, rows, panel);
    // SAFETY: the function is reached through `TABLE` only, which `table()` hands out after it found the features.
    let s = unsafe { NeonI8mm::assume() };
    let n = panel.n_units * panel.units.len / 4;
    for [low, high] in panel.codes[..n].as_chunks_mut::<2>().0 {
        let [first, second] = s.zip(s.base().load(low).to_bits(), s.base().load(high).to_bits());
        s.base().store(F32s::from_bits(first), low);
        s.base().store(F32s::from_bits(second), high);
    }
}

/// Proof that the machine has NEON and the int8 matrix multiply extension.
#[derive(Debug, Clone, Copy)]
struct NeonI8mm(());

/// The numbers of two tokens and sixteen columns (see the module).
type Pair<T> = [T; 2];

impl NeonI8mm {
    /// The proof, on trust.
    ///
    /// # Safety
    /// The machine must have NEON and the int8 matrix multiply extension.
    #[inline(always)]
    unsafe fn assume() -> NeonI8mm {
        NeonI8mm(())
    }

    #[inline(always)]
    fn base(self) -> Neon {
        // SAFETY: `self` is the proof of more than NEON.
        unsafe { Neon::assume() }
    }

    /// The lanes of `a` and `b` by turns.
    #[inline(always)]
    fn zip(self, a: I32s, b: I32s) -> [I32s; 2] {
        let mut out = [a; 2];
        for i in 0..4 {
            let (v, at) = (i / 2, 2 * (i % 2));
            // SAFETY: `self` is the proof of NEON.
            unsafe {
                out[v].0[at] = vzip1q_s32(a.0[i], b.0[i]);
                out[v].0[at + 1] = vzip2q_s32(a.0[i], b.0[i]);
            }
        }
        out
    }

    /// Two lanes of `a` and two of `b` by turns: the pair of two rows of sixteen columns.
    #[inline(always)]
    fn pair(self, a: I32s, b: I32s) -> Pair<I32s> {
        let mut out = [a; 2];
        for i in 0..4 {
            let (v, at) = (i / 2, 2 * (i % 2));
            [out[v].0[at], out[v].0[at + 1]] = self.transpose(a.0[i], b.0[i]);
        }
        out
    }

    /// The two rows of a pair.
    #[inline(always)]
    fn rows(self, pair: Pair<I32s>) -> [I32s; 2] {
        let mut out = pair;
        for i in 0..4 {
            let (v, at) = (i / 2, 2 * (i % 2));
            [out[0].0[i], out[1].0[i]] = self.transpose(pair[v].0[at], pair[v].0[at + 1]);
        }
        out
    }

    /// The lower halves of `a` and `b`, and the upper ones.
    #[inline(always)]
    fn transpose(self, a: int32x4_t, b: int32x4_t) -> [int32x4_t; 2] {
        // SAFETY: `self` is the proof of NEON.
        unsafe {
            let (a, b) = (vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b));
            [vreinterpretq_s32_s64(vzip1q_s64(a, b)), vreinterpretq_s32_s64(vzip2q_s64(a, b))]
        }
    }

    /// One vector of a pair, in which all columns have the same number.
    #[inline(always)]
    fn tokens(self, x0: i32, x1: i32) -> I32s {
        // SAFETY: `self` is the proof of NEON.
        unsafe { I32s([vcombine_s32(vdup_n_s32(x0), vdup_n_s32(x1)); 4]) }
    }

    /// A pair of two rows of numbers.
    #[inline(always)]
    fn pair_f32(self, a: F32s, b: F32s) -> Pair<F32s> {
        let [low, high] = self.pair(a.to_bits(), b.to_bits());
        [F32s::from_bits(low), F32s::from_bits(high)]
    }

    /// Sixteen codes of two tokens: the first eight of both, and the others.
    #[inline(always)]
    fn codes(self, x0: &[i32; STEP], x1: &[i32; STEP]) -> [int32x4_t; 2] {
        // SAFETY: `self` is the proof of NEON; each load reads the 4 elements of its array.
        let (x0, x1) = unsafe { (vld1q_s32(x0.as_ptr()), vld1q_s32(x1.as_ptr())) };
        self.transpose(x0, x1)
    }

    /// One vector of a pair: `acc` plus the products of eight codes of two tokens and of eight columns.
    #[inline(always)]
    fn dot(self, acc: I32s, w: I32s, x: int32x4_t) -> I32s {
        let mut out = acc;
        for i in 0..4 {
            // SAFETY: `self` is the proof of the extension; the instruction touches its registers only.
            unsafe {
                asm!(
                    "smmla {acc:v}.4s, {x:v}.16b, {w:v}.16b",
                    acc = inout(vreg) out.0[i],
                    x = in(vreg) x,
                    w = in(vreg) w.0[i],
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
        }
        out
    }
}

/// Tokens whose sums the registers hold: 2 pairs of 8 registers, with 8 weights and 4 activations, of 32; the sums of
/// the unit wait in memory.
const TOKENS: usize = 4;

/// Vectors of codes are used so many at a time: a token has one vector beside them.
const STEP: usize = 4;

/// The record of a token.
#[derive(Clone, Copy)]
struct Record<'a> {
    codes: &'a [[i32; STEP]; DEPTH / 4 / STEP],
    tail: &'a [i32; TAIL],
}

impl<'a> Record<'a> {
    #[inline(always)]
    fn new(x: IntTokens<'a>, token: usize) -> Record<'a> {
        let record = &x.records[x.order[token] * x.width..];
        let (codes, tail) = record.split_at(DEPTH / 4);
        let (Some(codes), Some(tail)) = (codes.as_chunks().0.first_chunk(), tail.first_chunk()) else {
            unreachable!("a record of {} words", record.len());
        };
        Record { codes, tail }
    }
}

#[inline(always)]
fn gemm(s: NeonI8mm, panels: &[IntPanel; 2], x: IntTokens<'_>, fresh: bool, sums: [&mut [Row16]; 2]) {
    let [first, second] = sums;
    let sums = first.chunks_mut(TOKENS).zip(second.chunks_mut(TOKENS));
    for (order, (first, second)) in x.order.chunks(TOKENS).zip(sums) {
        let x = IntTokens { order, ..x };
        for (panel, sums) in panels.iter().zip([first, second]) {
            match order.len() {
                _ if panel.n_units == 0 => {}
                1 | 2 => forms::<1>(s, panel, x, fresh, sums),
                _ => forms::<2>(s, panel, x, fresh, sums),
            }
        }
    }
}

#[inline(always)]
fn forms<const P: usize>(s: NeonI8mm, panel: &IntPanel, x: IntTokens<'_>, fresh: bool, sums: &mut [Row16]) {
    match (panel.units.subs > 1, panel.units.mins) {
        (false, false) => units::<P, false, false>(s, panel, x, fresh, sums),
        (false, true) => units::<P, false, true>(s, panel, x, fresh, sums),
        (true, false) => units::<P, true, false>(s, panel, x, fresh, sums),
        (true, true) => units::<P, true, true>(s, panel, x, fresh, sums),
    }
}

/// Adds to `P` pairs the products of eight codes.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // p runs over several arrays
fn eight<const P: usize>(s: NeonI8mm, dot: &mut [Pair<I32s>; P], w: [&Row16; 2], x: [int32x4_t; P]) {
    let w = [s.base().load(w[0]).to_bits(), s.base().load(w[1]).to_bits()];
    for p in 0..P {
        let [low, high] = dot[p];
        dot[p] = [s.dot(low, w[0], x[p]), s.dot(high, w[1], x[p])];
    }
}

/// `P` pairs of tokens, the second of the last one possibly missing. `SCALED`: there are sub-blocks with scales.
/// `MINS`: there are minima.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // p and c run over several arrays
fn units<const P: usize, const SCALED: bool, const MINS: bool>(
    s: NeonI8mm,
    panel: &IntPanel,
    x: IntTokens<'_>,
    fresh: bool,
    sums: &mut [Row16],
) {
    let units = panel.units;
    let (subs, quads, mins) = (units.subs, units.sub_len / 4, units.pairs());
    let starts = DEPTH / units.len;
    let base = s.base();
    let zero = base.splat(0.0).to_bits();
    // A token that is its own partner has its sums computed and stored twice, both times the same.
    let mut tokens = [[0; 2]; P];
    let mut records = [[Record::new(x, 0); 2]; P];
    for p in 0..P {
        tokens[p] = [2 * p, (2 * p + 1).min(x.order.len() - 1)];
        records[p] = [Record::new(x, tokens[p][0]), Record::new(x, tokens[p][1])];
    }
    let mut acc = [[base.splat(0.0); 2]; P];
    if !fresh {
        for p in 0..P {
            let [t0, t1] = tokens[p];
            acc[p] = s.pair_f32(base.load(&sums[t0]), base.load(&sums[t1]));
        }
    }
    for u in 0..panel.n_units {
        let mut total = [[zero; 2]; P];
        for sub in 0..subs {
            let mut dot = [[zero; 2]; P];
            if !MINS {
                for p in 0..P {
                    let [x0, x1] = records[p];
                    let at = starts + u * subs + sub;
                    dot[p] = [s.tokens(x0.tail[at], x1.tail[at]); 2];
                }
            }
            let first = (u * subs + sub) * quads / STEP;
            for step in first..first + quads / STEP {
                let codes = &panel.codes.as_chunks::<STEP>().0[step];
                let (mut low, mut high) = ([zero.0[0]; P], [zero.0[0]; P]);
                for p in 0..P {
                    let [x0, x1] = records[p];
                    [low[p], high[p]] = s.codes(&x0.codes[step], &x1.codes[step]);
                }
                // Twice, and no loop: the compiler keeps one, and with it the sums in memory.
                let [w0, w1, w2, w3] = codes;
                eight(s, &mut dot, [w0, w1], low);
                eight(s, &mut dot, [w2, w3], high);
            }
            if SCALED {
                let scale = base.load(&panel.scales[sub]).to_bits();
                let scale = s.pair(scale, scale);
                for p in 0..P {
                    for c in 0..2 {
                        total[p][c] = total[p][c].add(base.mul_int(dot[p][c], scale[c]));
                    }
                }
            } else {
                total = dot;
            }
        }
        let mut dx = [base.splat(0.0); P];
        let d = base.load(&panel.d[u]);
        let d = s.pair_f32(d, d);
        for p in 0..P {
            let [x0, x1] = records[p];
            dx[p] = F32s::from_bits(s.tokens(x0.tail[u], x1.tail[u]));
            for c in 0..2 {
                acc[p][c] = acc[p][c].add(d[c].mul(dx[p]).mul(F32s::from_int(total[p][c])));
            }
        }
        if MINS {
            // Row after row, as on other levels: there are few of them.
            let mut total = [[zero; 2]; P];
            for i in u * mins..(u + 1) * mins {
                let mins = base.load(&panel.mins[i]).to_bits();
                for p in 0..P {
                    for t in 0..2 {
                        total[p][t] = base.dot_pairs(total[p][t], mins, records[p][t].tail[starts + i]);
                    }
                }
            }
            let dmin = base.load(&panel.dmin[u]);
            let dmin = s.pair_f32(dmin, dmin);
            for p in 0..P {
                let [t0, t1] = total[p];
                let total = s.pair(t0, t1);
                for c in 0..2 {
                    acc[p][c] = acc[p][c].sub(dmin[c].mul(dx[p]).mul(F32s::from_int(total[c])));
                }
            }
        }
    }
    for p in 0..P {
        let [low, high] = acc[p];
        let rows = s.rows([low.to_bits(), high.to_bits()]);
        for t in 0..2 {
            base.store(F32s::from_bits(rows[t]), &mut sums[tokens[p][t]]);
        }
    }
}
