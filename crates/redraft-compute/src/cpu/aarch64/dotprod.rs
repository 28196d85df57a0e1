//! NEON with the dot product extension: four products of signed bytes in each lane in one instruction. Everything
//! else is that of NEON.
//!
//! The intrinsic is not stable, so `sdot` is written as assembly.

use std::arch::aarch64::*;
use std::arch::asm;

use super::neon::{F32s, I32s, Neon};
use crate::cpu::vector::{Isa, LANES, Row16, RowBytes};

/// Proof that the machine has NEON and the dot product extension.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NeonDot(());

impl NeonDot {
    /// The proof, on trust.
    ///
    /// # Safety
    /// The machine must have NEON and the dot product extension.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> NeonDot {
        NeonDot(())
    }

    #[inline(always)]
    fn base(self) -> Neon {
        // SAFETY: `self` is the proof of more than NEON.
        unsafe { Neon::assume() }
    }
}

impl Isa for NeonDot {
    type V = F32s;

    const GROUPS: &'static [usize] = <Neon as Isa>::GROUPS;
    // 4 x 4 sums, 4 weights and an activation, of 32 registers; the sums of the unit wait in memory.
    const INT_TOKENS: usize = 4;
    const INT_PANELS: usize = <Neon as Isa>::INT_PANELS;
    const SIGNED_BIAS: i32 = <Neon as Isa>::SIGNED_BIAS;
    const QUAD_WORDS: usize = <Neon as Isa>::QUAD_WORDS;

    #[inline(always)]
    fn splat(self, x: f32) -> F32s {
        self.base().splat(x)
    }
    #[inline(always)]
    fn load(self, x: &Row16) -> F32s {
        self.base().load(x)
    }
    #[inline(always)]
    fn store(self, v: F32s, x: &mut Row16) {
        self.base().store(v, x)
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> F32s {
        self.base().load_i8(x)
    }
    #[inline(always)]
    fn load_rows(self, rows: &RowBytes<'_>, at: usize) -> [I32s; 4] {
        self.base().load_rows(rows, at)
    }
    #[inline(always)]
    fn shift_left(self, v: I32s, n: u32) -> I32s {
        self.base().shift_left(v, n)
    }
    #[inline(always)]
    fn shift_right(self, v: I32s, n: u32) -> I32s {
        self.base().shift_right(v, n)
    }
    #[inline(always)]
    fn add_exact(self, acc: F32s, a: F32s, b: F32s) -> F32s {
        self.base().add_exact(acc, a, b)
    }
    #[inline(always)]
    fn look_up(self, table: &[i8; 16], v: I32s) -> I32s {
        self.base().look_up(table, v)
    }
    #[inline(always)]
    fn dot_quads(self, acc: I32s, w: I32s, x: [i32; 2]) -> I32s {
        let mut out = acc;
        for i in 0..4 {
            // SAFETY: `self` is the proof of the dot product extension; the instruction touches its registers only.
            unsafe {
                let x = vdupq_n_s32(x[0]);
                asm!(
                    "sdot {acc:v}.4s, {w:v}.16b, {x:v}.16b",
                    acc = inout(vreg) out.0[i],
                    w = in(vreg) w.0[i],
                    x = in(vreg) x,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
        }
        out
    }
    #[inline(always)]
    fn dot_pairs(self, acc: I32s, w: I32s, x: i32) -> I32s {
        self.base().dot_pairs(acc, w, x)
    }
    #[inline(always)]
    fn mul_int(self, a: I32s, b: I32s) -> I32s {
        self.base().mul_int(a, b)
    }
}

crate::cpu::table::level_table!(NeonDot, "neon,dotprod");
