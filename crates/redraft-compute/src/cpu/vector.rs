//! The vector of all kernels: 16 `f32` lanes.
//!
//! Sixteen, because that is the width that the contract fixes for sums (element `i` goes to accumulator
//! `i mod 16`), the number of output columns in a panel, and one AVX-512 register. An instruction set
//! supplies [`Lanes`] for its vector type and the few methods of [`Isa`]; every kernel is written once over
//! these two and compiled once per instruction set (see [`table`](super::table)).

use crate::math::reduce::tree;
use crate::math::{IntLanes, Lanes};

pub(crate) use crate::math::reduce::LANES;

/// Sixteen consecutive numbers in memory.
pub(crate) type Row16 = [f32; LANES];

/// An instruction set. A value of the type is the proof that this machine has it, so only code that checked
/// makes one, and vectors come only from such a value.
pub(crate) trait Isa: Copy {
    /// The vector: 16 lanes.
    type V: Lanes;

    /// Numbers of tokens for which the matrix kernel keeps all accumulators in registers, descending to 1.
    const GROUPS: &'static [usize];

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::V;
    /// Sixteen numbers.
    fn load(self, x: &Row16) -> Self::V;
    /// Writes the lanes.
    fn store(self, v: Self::V, x: &mut Row16);
    /// The numbers of sixteen bytes with a sign.
    fn load_i8(self, x: &[i8; LANES]) -> Self::V;

    /// Up to sixteen numbers, `fill` in the lanes beyond.
    #[inline(always)]
    fn load_part(self, x: &[f32], fill: f32) -> Self::V {
        let mut all = [fill; LANES];
        all[..x.len()].copy_from_slice(x);
        self.load(&all)
    }

    /// Writes the first lanes.
    #[inline(always)]
    fn store_part(self, v: Self::V, x: &mut [f32]) {
        let mut all = [0.0; LANES];
        self.store(v, &mut all);
        x.copy_from_slice(&all[..x.len()]);
    }

    /// The 16 accumulators of a sum, added in the order of the contract: pairs `(0+8, 1+9, …)`, then
    /// `(0+4, …)`, `(0+2, …)`, `(0+1)`.
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        let mut x = [0.0; LANES];
        self.store(v, &mut x);
        tree(x)
    }

    /// The largest lane.
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        let mut x = [0.0; LANES];
        self.store(v, &mut x);
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                x[i] = Lanes::max(x[i], x[i + half]);
            }
            half /= 2;
        }
        x[0]
    }

    /// `columns[i]` lane `j` = `rows[j]` lane `i`, written to memory.
    #[inline(always)]
    fn transpose(self, rows: &[Self::V; LANES], columns: &mut [Row16; LANES]) {
        let mut x = [[0.0; LANES]; LANES];
        for j in 0..LANES {
            self.store(rows[j], &mut x[j]);
        }
        for i in 0..LANES {
            for j in 0..LANES {
                columns[i][j] = x[j][i];
            }
        }
    }
}

/// The level that every machine has: arrays, which the compiler turns into what the target's baseline offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalar;

/// Sixteen numbers as an array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct F32s(Row16);

/// Sixteen integers as an array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct I32s([i32; LANES]);

impl Isa for Scalar {
    type V = F32s;

    const GROUPS: &'static [usize] = &[2, 1];

    #[inline(always)]
    fn splat(self, x: f32) -> F32s {
        F32s([x; LANES])
    }
    #[inline(always)]
    fn load(self, x: &Row16) -> F32s {
        F32s(*x)
    }
    #[inline(always)]
    fn store(self, v: F32s, x: &mut Row16) {
        *x = v.0;
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> F32s {
        F32s(x.map(f32::from))
    }
}

/// One lane after the other, through the scalar implementation of the same trait.
macro_rules! by_lane {
    ($n:ident => $e:expr) => {{
        let mut out = [Default::default(); LANES];
        for $n in 0..LANES {
            out[$n] = $e;
        }
        out
    }};
}

impl Lanes for F32s {
    type Int = I32s;

    #[inline(always)]
    fn splat(self, x: f32) -> F32s {
        F32s([x; LANES])
    }
    #[inline(always)]
    fn add(self, o: F32s) -> F32s {
        F32s(by_lane!(n => self.0[n] + o.0[n]))
    }
    #[inline(always)]
    fn sub(self, o: F32s) -> F32s {
        F32s(by_lane!(n => self.0[n] - o.0[n]))
    }
    #[inline(always)]
    fn mul(self, o: F32s) -> F32s {
        F32s(by_lane!(n => self.0[n] * o.0[n]))
    }
    #[inline(always)]
    fn floor(self) -> F32s {
        F32s(by_lane!(n => Lanes::floor(self.0[n])))
    }
    #[inline(always)]
    fn select_lt(self, o: F32s, yes: F32s, no: F32s) -> F32s {
        F32s(by_lane!(n => self.0[n].select_lt(o.0[n], yes.0[n], no.0[n])))
    }
    #[inline(always)]
    fn if_int_lt(self, a: I32s, b: I32s, no: F32s) -> F32s {
        F32s(by_lane!(n => self.0[n].if_int_lt(a.0[n], b.0[n], no.0[n])))
    }
    #[inline(always)]
    fn to_bits(self) -> I32s {
        I32s(by_lane!(n => Lanes::to_bits(self.0[n])))
    }
    #[inline(always)]
    fn from_bits(bits: I32s) -> F32s {
        F32s(by_lane!(n => <f32 as Lanes>::from_bits(bits.0[n])))
    }
    #[inline(always)]
    fn to_int(self) -> I32s {
        I32s(by_lane!(n => self.0[n].to_int()))
    }
    #[inline(always)]
    fn from_int(i: I32s) -> F32s {
        F32s(by_lane!(n => <f32 as Lanes>::from_int(i.0[n])))
    }
}

impl IntLanes for I32s {
    #[inline(always)]
    fn splat(self, i: i32) -> I32s {
        I32s([i; LANES])
    }
    #[inline(always)]
    fn add(self, o: I32s) -> I32s {
        I32s(by_lane!(n => self.0[n].wrapping_add(o.0[n])))
    }
    #[inline(always)]
    fn sub(self, o: I32s) -> I32s {
        I32s(by_lane!(n => self.0[n].wrapping_sub(o.0[n])))
    }
    #[inline(always)]
    fn and(self, o: I32s) -> I32s {
        I32s(by_lane!(n => self.0[n] & o.0[n]))
    }
    #[inline(always)]
    fn or(self, o: I32s) -> I32s {
        I32s(by_lane!(n => self.0[n] | o.0[n]))
    }
    #[inline(always)]
    fn shl<const N: i32>(self) -> I32s {
        I32s(by_lane!(n => self.0[n] << N))
    }
    #[inline(always)]
    fn shr<const N: i32>(self) -> I32s {
        I32s(by_lane!(n => self.0[n].shr::<N>()))
    }
}
