//! The soft embedding: probabilities of one tile of logits, and the sum of table rows that they weigh.
//!
//! ```text
//! block of the table [32 ids][256 columns]      p of a row [32]      sums [rows][256]
//! ```
//!
//! Where neighbouring rows want mostly the same ids their sums are one matrix product: some rows and columns of sums
//! stay in registers while all ids that any of them wants pass by, with p = 0 for those that a row does not want.
//! Else each row goes through its own ids. Each sum is sequential in the ids either way, and adding 0 changes no bit.
//!
//! Factors of bf16 are held in f32, or where there is an instruction for it as pairs of ids: the first in the upper half
//! of a word.

use super::half::rounded;
use crate::cpu::vector::{Int, Isa, LANES, Row16};
use crate::math::{self, IntLanes, Lanes};
use crate::op::TILE;

/// Ids that one word of flags describes.
pub(crate) const BLOCK: usize = 32;

/// Blocks of a tile.
pub(crate) const BLOCKS: usize = TILE / BLOCK;

/// Groups of sixteen columns of the embedding table that lie together: those of one super-block.
const GROUPS: usize = 16;

/// Columns of the embedding table that lie together.
pub(crate) const COLUMNS: usize = GROUPS * LANES;

/// Some columns of one row of the embedding table, of two as words, or of the sums. Numbers are loaded for each product:
/// a load that crossed a line of the cache would count twice.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
pub(crate) struct Columns(pub(crate) [Row16; GROUPS]);

/// Some columns of the rows of a block of ids.
pub(crate) type Block = [Columns; BLOCK];

/// Probabilities of a block of ids, or of its pairs as words.
pub(crate) type Probs = [f32; BLOCK];

/// How logits of a row become probabilities.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probability {
    /// The largest logit of the row.
    pub(crate) max: f32,
    /// Reciprocal of the sum of exponentials.
    pub(crate) inverse: f32,
    /// Smaller ones do not take part.
    pub(crate) cut: f32,
    /// Whether they are rounded to bf16.
    pub(crate) half: bool,
}

/// Probabilities `flush(exp(x - max) * inverse)` of the logits of one tile of a row, 0 below the cut; those of block `b`
/// are written to `out[b * stride]`. Bit `i` of word `b` of the result says whether the `i`-th of the block takes part.
#[inline(always)]
pub(crate) fn probabilities<S: Isa>(
    s: S,
    x: &[f32],
    of: &Probability,
    stride: usize,
    out: &mut [Probs],
) -> [u32; BLOCKS] {
    let mut flags = [0; BLOCKS];
    let blocks = x.chunks(BLOCK).zip(out.chunks_mut(stride)).zip(&mut flags);
    for ((x, out), flags) in blocks {
        let Some(out) = out.first_mut() else { unreachable!("a place for each block") };
        *out = [0.0; BLOCK];
        let mut bits = 0;
        for (g, (x, out)) in x.chunks(LANES).zip(out.as_chunks_mut::<LANES>().0).enumerate() {
            let x = match x.first_chunk::<LANES>() {
                Some(x) => s.load(x),
                None => s.load_part(x, f32::NEG_INFINITY),
            };
            let p = math::flush(math::exp(x.sub(s.splat(of.max))).mul(s.splat(of.inverse)));
            let p = s.splat(0.0).if_int_lt(p.to_bits(), s.splat(of.cut).to_bits(), p);
            s.store(if of.half { rounded::<S, true>(p) } else { p }, out);
            for (i, &p) in out.iter().enumerate() {
                bits |= u32::from(p > 0.0) << (g * LANES + i);
            }
        }
        *flags = bits;
        if of.half && S::HALF_PAIRS {
            let mut words = [0.0; BLOCK];
            for j in 0..BLOCK / 2 {
                words[j] = f32::from_bits(out[2 * j].to_bits() | out[2 * j + 1].to_bits() >> 16);
            }
            *out = words;
        }
    }
    flags
}

/// Puts some columns of the ids `2 at` and `2 at + 1` of a block into it; `half`: rounded to bf16.
#[inline(always)]
pub(crate) fn soft_rows<S: Isa>(s: S, rows: &[Columns; 2], half: bool, at: usize, block: &mut Block) {
    for g in 0..GROUPS {
        let (first, second) = (s.load(&rows[0].0[g]), s.load(&rows[1].0[g]));
        if !half {
            s.store(first, &mut block[2 * at].0[g]);
            s.store(second, &mut block[2 * at + 1].0[g]);
            continue;
        }
        let (first, second) = (rounded::<S, true>(first), rounded::<S, true>(second));
        if S::HALF_PAIRS {
            let word: Int<S> = first.to_bits().or(second.to_bits().shr::<16>());
            s.store(S::V::from_bits(word), &mut block[at].0[g]);
        } else {
            s.store(first, &mut block[2 * at].0[g]);
            s.store(second, &mut block[2 * at + 1].0[g]);
        }
    }
}

/// One block of ids of the table, some columns of it.
pub(crate) struct Rows<'a> {
    pub(crate) of: &'a Block,
    /// Groups of sixteen columns that count.
    pub(crate) width: usize,
    /// Whether these and the probabilities are numbers of bf16: all products are exact.
    pub(crate) half: bool,
}

/// The weights of a block of ids for some rows of sums.
pub(crate) struct Weighed<'a> {
    /// Probabilities; 0 where a flag is not set and any other of the row is.
    pub(crate) p: &'a [Probs],
    pub(crate) flags: &'a [u32],
}

/// Adds `p[t][i] * rows[i]` to `sums[t]` for each `i` whose flag is set, ascending.
///
/// # Panics
/// When there are not as many rows of `p` and `flags` as of `sums`.
#[inline(always)]
pub(crate) fn soft_embed<S: Isa>(s: S, rows: &Rows<'_>, of: &Weighed<'_>, sums: &mut [Columns]) {
    assert!(of.p.len() == sums.len() && of.flags.len() == sums.len(), "a row of p for each row of sums");
    match rows.half {
        false => level::<S, { Products::ROUNDED }>(s, rows, of, sums),
        true if S::HALF_PAIRS => level::<S, { Products::PAIRS }>(s, rows, of, sums),
        true => level::<S, { Products::EXACT }>(s, rows, of, sums),
    }
}

/// How products are computed; a constant of the kernels.
struct Products;

impl Products {
    /// Rounded, then added.
    const ROUNDED: u8 = 0;
    /// Fused with the addition, which changes no bit.
    const EXACT: u8 = 1;
    /// Two ids at a time.
    const PAIRS: u8 = 2;
}

/// As many sums as the registers hold.
#[inline(always)]
fn level<S: Isa, const P: u8>(s: S, rows: &Rows<'_>, of: &Weighed<'_>, sums: &mut [Columns]) {
    if S::GROUPS[0] >= 16 {
        groups::<S, P, 8, 2, 8>(s, rows, of, sums);
    } else if S::GROUPS[0] >= 4 {
        groups::<S, P, 4, 1, 4>(s, rows, of, sums);
    } else {
        groups::<S, P, 2, 1, 2>(s, rows, of, sums);
    }
}

/// `M` rows by `C` groups of columns at a time where that pays, else one row by `W` groups.
#[inline(always)]
fn groups<S: Isa, const P: u8, const M: usize, const C: usize, const W: usize>(
    s: S,
    rows: &Rows<'_>,
    of: &Weighed<'_>,
    sums: &mut [Columns],
) {
    let width = rows.width.min(GROUPS);
    for ((p, flags), sums) in of.p.chunks(M).zip(of.flags.chunks(M)).zip(sums.chunks_mut(M)) {
        let (mut union, mut wanted, mut all) = (0, 0, true);
        for &flags in flags {
            union |= flags;
            wanted += flags.count_ones() as usize;
            all &= flags != 0;
        }
        let together = all && 2 * wanted >= M * union.count_ones() as usize;
        match (p.first_chunk::<M>(), sums.first_chunk_mut::<M>()) {
            (Some(p), Some(sums)) if together => {
                let mut at = 0;
                while width - at >= C {
                    square::<S, P, M, C>(s, rows.of, at, p, union, sums);
                    at += C;
                }
                while width > at {
                    square::<S, P, M, 1>(s, rows.of, at, p, union, sums);
                    at += 1;
                }
            }
            _ => {
                for ((p, &flags), sums) in
                    p.iter().zip(flags).zip(sums).filter(|((_, flags), _)| **flags != 0)
                {
                    let (p, sums) = (std::array::from_ref(p), std::array::from_mut(sums));
                    let mut at = 0;
                    while width - at >= W {
                        square::<S, P, 1, W>(s, rows.of, at, p, flags, sums);
                        at += W;
                    }
                    while width > at {
                        square::<S, P, 1, 1>(s, rows.of, at, p, flags, sums);
                        at += 1;
                    }
                }
            }
        }
    }
}

/// `M` rows, the groups of sixteen columns `at .. at + C`:
///
/// 1. Their sums are loaded into registers.
/// 2. For each flag, or each pair with any: the numbers of the table, and each probability in all lanes,
///    `sum = sum + w * p`.
/// 3. The sums are stored.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // m and c run over several arrays
fn square<S: Isa, const P: u8, const M: usize, const C: usize>(
    s: S,
    rows: &Block,
    at: usize,
    p: &[Probs; M],
    flags: u32,
    sums: &mut [Columns; M],
) {
    let mut acc = [[s.splat(0.0); C]; M];
    for m in 0..M {
        for c in 0..C {
            acc[m][c] = s.load(&sums[m].0[at + c]);
        }
    }
    let pairs = P == Products::PAIRS;
    let mut rest = if pairs { (flags | flags >> 1) & 0x5555_5555 } else { flags };
    while rest != 0 {
        let i = rest.trailing_zeros() as usize % BLOCK;
        let i = if pairs { i / 2 } else { i };
        rest &= rest - 1;
        let Some(row) = rows[i].0[at..].first_chunk::<C>() else { unreachable!("{C} groups of columns") };
        let mut w = [s.splat(0.0); C];
        for c in 0..C {
            w[c] = s.load(&row[c]);
        }
        for m in 0..M {
            let p = s.splat(p[m][i]);
            for c in 0..C {
                acc[m][c] = match P {
                    Products::ROUNDED => acc[m][c].add(w[c].mul(p)),
                    Products::EXACT => s.add_exact(acc[m][c], w[c], p),
                    _ => s.add_halves(acc[m][c], w[c].to_bits(), p.to_bits()),
                };
            }
        }
    }
    for m in 0..M {
        for c in 0..C {
            s.store(acc[m][c], &mut sums[m].0[at + c]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuLevel;
    use crate::cpu::table::table;

    /// All levels against a sum in f32, with flags of all kinds: all, some, few, none.
    #[test]
    fn sums_are_sequential_whatever_rows_are_treated_together() {
        let mut seed = 7u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 8
        };
        let half = |x: f32| crate::numerics::Half::Bf16.round(x);
        for bf16 in [false, true] {
            let value = |x: f32| if bf16 { half(x) } else { x };
            let table_rows: Vec<[f32; COLUMNS]> =
                (0..BLOCK).map(|_| std::array::from_fn(|_| next() as f32 / 1e6 - 8.0)).collect();
            let of = Probability { max: 1.0, inverse: 0.25, cut: 0.01, half: bf16 };
            let logits: Vec<[f32; BLOCK]> = (0..29)
                .map(|t| std::array::from_fn(|_| 1.0 - (next() % 1000) as f32 * [0.001, 0.02, 2.0][t % 3]))
                .collect();
            let p = |x: f32| {
                let p = math::flush(math::exp(x - 1.0) * 0.25);
                if p < 0.01 { 0.0 } else { value(p) }
            };
            let mut expected = vec![[0f32; COLUMNS]; logits.len()];
            for (x, sums) in logits.iter().zip(&mut expected) {
                for (&x, row) in x.iter().zip(&table_rows).filter(|(x, _)| p(**x) != 0.0) {
                    for (sum, &w) in sums.iter_mut().zip(row) {
                        let product = value(w) * p(x);
                        *sum += product;
                    }
                }
            }
            for level in CpuLevel::available() {
                let Some(table) = table(level) else { continue };
                let (mut probs, mut flags) = (vec![[0.0; BLOCK]; logits.len()], Vec::new());
                for (x, p) in logits.iter().zip(&mut probs) {
                    flags.push((table.probabilities)(x, &of, 1, std::slice::from_mut(p))[0]);
                }
                let mut block: Block = [Columns::default(); BLOCK];
                for (at, rows) in table_rows.as_chunks::<2>().0.iter().enumerate() {
                    let mut two = [Columns::default(); 2];
                    for (two, row) in two.iter_mut().zip(rows) {
                        two.0.as_flattened_mut().copy_from_slice(row);
                    }
                    (table.soft_rows)(&two, bf16, at, &mut block);
                }
                for width in [GROUPS, 3] {
                    let mut sums = vec![Columns::default(); logits.len()];
                    let rows = Rows { of: &block, width, half: bf16 };
                    (table.soft_embed)(&rows, &Weighed { p: &probs, flags: &flags }, &mut sums);
                    for (t, (sums, expected)) in sums.iter().zip(&expected).enumerate() {
                        let sums = &sums.0.as_flattened()[..width * LANES];
                        assert_eq!(sums, &expected[..width * LANES], "{} row {t}, bf16 {bf16}", level.name());
                    }
                }
            }
        }
    }
}
