//! NEON: the 16 lanes are four 128-bit registers.
//!
//! Multiplications and additions stay separate instructions, except in [`Isa::add_exact`]. Every AArch64 target of Rust
//! has NEON; a [`Neon`] or a vector in hand stands for it as in the files of the other instruction sets.

use std::arch::aarch64::*;

use crate::cpu::vector::{Isa, LANES, Row16, RowBytes};
use crate::math::{IntLanes, Lanes};

/// Proof that the machine has NEON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    /// The proof, on trust.
    ///
    /// # Safety
    /// The machine must have NEON.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Neon {
        Neon(())
    }
}

/// Sixteen numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct F32s(pub(super) [float32x4_t; 4]);

/// Sixteen integers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct I32s(pub(super) [int32x4_t; 4]);

/// Applies an intrinsic to the four quarters.
macro_rules! quarters {
    ($out:ident, $f:ident $(::<$n:tt>)?, $($x:expr),+) => {
        // SAFETY: a vector is in hand, so the machine has NEON (see the module).
        unsafe {
            $out([
                $f$(::<$n>)?($($x.0[0]),+),
                $f$(::<$n>)?($($x.0[1]),+),
                $f$(::<$n>)?($($x.0[2]),+),
                $f$(::<$n>)?($($x.0[3]),+),
            ])
        }
    };
}

/// The masks of a comparison.
#[derive(Clone, Copy)]
struct Masks([uint32x4_t; 4]);

impl Isa for Neon {
    type V = F32s;

    // 6 x 4 accumulators, 4 weights, an activation and a product, of 32 registers.
    const GROUPS: &'static [usize] = &[6, 4, 2, 1];
    const INT_TOKENS: usize = 4;
    const INT_PANELS: usize = 1;
    const SIGNED_BIAS: i32 = 0;
    const QUAD_WORDS: usize = 1;

    #[inline(always)]
    fn splat(self, x: f32) -> F32s {
        // SAFETY: `self` is the proof of NEON.
        unsafe { F32s([vdupq_n_f32(x); 4]) }
    }
    #[inline(always)]
    fn load(self, x: &Row16) -> F32s {
        let at = |i: usize| x[4 * i..4 * i + 4].as_ptr();
        // SAFETY: `self` is the proof of NEON; each load reads the 4 elements of its slice.
        unsafe { F32s([vld1q_f32(at(0)), vld1q_f32(at(1)), vld1q_f32(at(2)), vld1q_f32(at(3))]) }
    }
    #[inline(always)]
    fn store(self, v: F32s, x: &mut Row16) {
        for (i, quarter) in v.0.into_iter().enumerate() {
            // SAFETY: `self` is the proof of NEON; the store writes the 4 elements of the slice.
            unsafe { vst1q_f32(x[4 * i..4 * i + 4].as_mut_ptr(), quarter) }
        }
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> F32s {
        // SAFETY: `self` is the proof of NEON; the load reads the 16 bytes.
        unsafe {
            let all = vld1q_s8(x.as_ptr());
            let (low, high) = (vmovl_s8(vget_low_s8(all)), vmovl_high_s8(all));
            F32s([
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                vcvtq_f32_s32(vmovl_high_s16(low)),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                vcvtq_f32_s32(vmovl_high_s16(high)),
            ])
        }
    }
    #[inline(always)]
    fn load_rows(self, rows: &RowBytes<'_>, at: usize) -> [I32s; 4] {
        let mut words = [self.splat(0.0).to_bits(); 4];
        for quarter in 0..4 {
            let row = |j: usize| &rows.row(4 * quarter + j)[at..at + 16];
            // SAFETY: `self` is the proof of NEON; each load reads the 16 bytes of its slice.
            unsafe {
                let a = vreinterpretq_s32_u8(vld1q_u8(row(0).as_ptr()));
                let b = vreinterpretq_s32_u8(vld1q_u8(row(1).as_ptr()));
                let c = vreinterpretq_s32_u8(vld1q_u8(row(2).as_ptr()));
                let d = vreinterpretq_s32_u8(vld1q_u8(row(3).as_ptr()));
                let even0 = vreinterpretq_s64_s32(vtrn1q_s32(a, b));
                let even1 = vreinterpretq_s64_s32(vtrn1q_s32(c, d));
                let odd0 = vreinterpretq_s64_s32(vtrn2q_s32(a, b));
                let odd1 = vreinterpretq_s64_s32(vtrn2q_s32(c, d));
                words[0].0[quarter] = vreinterpretq_s32_s64(vtrn1q_s64(even0, even1));
                words[1].0[quarter] = vreinterpretq_s32_s64(vtrn1q_s64(odd0, odd1));
                words[2].0[quarter] = vreinterpretq_s32_s64(vtrn2q_s64(even0, even1));
                words[3].0[quarter] = vreinterpretq_s32_s64(vtrn2q_s64(odd0, odd1));
            }
        }
        words
    }
    #[inline(always)]
    fn shift_left(self, v: I32s, n: u32) -> I32s {
        let mut out = v;
        for i in 0..4 {
            // SAFETY: `self` is the proof of NEON.
            out.0[i] = unsafe { vshlq_s32(v.0[i], vdupq_n_s32(n as i32)) };
        }
        out
    }
    #[inline(always)]
    fn shift_right(self, v: I32s, n: u32) -> I32s {
        let mut out = v;
        for i in 0..4 {
            // SAFETY: `self` is the proof of NEON. A shift to the left by less than nothing is one to the right.
            out.0[i] = unsafe {
                vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(v.0[i]), vdupq_n_s32(-(n as i32))))
            };
        }
        out
    }
    #[inline(always)]
    fn add_exact(self, acc: F32s, a: F32s, b: F32s) -> F32s {
        quarters!(F32s, vfmaq_f32, acc, a, b)
    }
    #[inline(always)]
    fn look_up(self, table: &[i8; 16], v: I32s) -> I32s {
        let mut out = v;
        for i in 0..4 {
            // SAFETY: `self` is the proof of NEON; the load reads the 16 bytes.
            out.0[i] = unsafe {
                vreinterpretq_s32_s8(vqtbl1q_s8(vld1q_s8(table.as_ptr()), vreinterpretq_u8_s32(v.0[i])))
            };
        }
        out
    }
    #[inline(always)]
    fn dot_quads(self, acc: I32s, w: I32s, x: [i32; 2]) -> I32s {
        let mut out = acc;
        for i in 0..4 {
            // SAFETY: `self` is the proof of NEON.
            out.0[i] = unsafe {
                let (w, x) = (vreinterpretq_s8_s32(w.0[i]), vreinterpretq_s8_s32(vdupq_n_s32(x[0])));
                // Two lanes of four products each, then pairs of them, then pairs of pairs.
                let (low, high) = (vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x));
                vaddq_s32(acc.0[i], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)))
            };
        }
        out
    }
    #[inline(always)]
    fn dot_pairs(self, acc: I32s, w: I32s, x: i32) -> I32s {
        let mut out = acc;
        for i in 0..4 {
            // SAFETY: `self` is the proof of NEON.
            out.0[i] = unsafe {
                let (w, x) = (vreinterpretq_s16_s32(w.0[i]), vreinterpretq_s16_s32(vdupq_n_s32(x)));
                let (low, high) = (vmull_s16(vget_low_s16(w), vget_low_s16(x)), vmull_high_s16(w, x));
                vaddq_s32(acc.0[i], vpaddq_s32(low, high))
            };
        }
        out
    }
    #[inline(always)]
    fn mul_int(self, a: I32s, b: I32s) -> I32s {
        quarters!(I32s, vmulq_s32, a, b)
    }
}

impl Lanes for F32s {
    type Int = I32s;

    #[inline(always)]
    fn splat(self, x: f32) -> F32s {
        Neon(()).splat(x)
    }
    #[inline(always)]
    fn add(self, o: F32s) -> F32s {
        quarters!(F32s, vaddq_f32, self, o)
    }
    #[inline(always)]
    fn sub(self, o: F32s) -> F32s {
        quarters!(F32s, vsubq_f32, self, o)
    }
    #[inline(always)]
    fn mul(self, o: F32s) -> F32s {
        quarters!(F32s, vmulq_f32, self, o)
    }
    #[inline(always)]
    fn floor(self) -> F32s {
        quarters!(F32s, vrndmq_f32, self)
    }
    #[inline(always)]
    fn select_lt(self, o: F32s, yes: F32s, no: F32s) -> F32s {
        let less = quarters!(Masks, vcltq_f32, self, o);
        quarters!(F32s, vbslq_f32, less, yes, no)
    }
    #[inline(always)]
    fn if_int_lt(self, a: I32s, b: I32s, no: F32s) -> F32s {
        let less = quarters!(Masks, vcltq_s32, a, b);
        quarters!(F32s, vbslq_f32, less, self, no)
    }
    #[inline(always)]
    fn to_bits(self) -> I32s {
        quarters!(I32s, vreinterpretq_s32_f32, self)
    }
    #[inline(always)]
    fn from_bits(bits: I32s) -> F32s {
        quarters!(F32s, vreinterpretq_f32_s32, bits)
    }
    #[inline(always)]
    fn to_int(self) -> I32s {
        quarters!(I32s, vcvtq_s32_f32, self)
    }
    #[inline(always)]
    fn from_int(i: I32s) -> F32s {
        quarters!(F32s, vcvtq_f32_s32, i)
    }
}

impl IntLanes for I32s {
    #[inline(always)]
    fn splat(self, i: i32) -> I32s {
        // SAFETY: a vector is in hand, so the machine has NEON.
        unsafe { I32s([vdupq_n_s32(i); 4]) }
    }
    #[inline(always)]
    fn add(self, o: I32s) -> I32s {
        quarters!(I32s, vaddq_s32, self, o)
    }
    #[inline(always)]
    fn sub(self, o: I32s) -> I32s {
        quarters!(I32s, vsubq_s32, self, o)
    }
    #[inline(always)]
    fn and(self, o: I32s) -> I32s {
        quarters!(I32s, vandq_s32, self, o)
    }
    #[inline(always)]
    fn or(self, o: I32s) -> I32s {
        quarters!(I32s, vorrq_s32, self, o)
    }
    #[inline(always)]
    fn xor(self, o: I32s) -> I32s {
        quarters!(I32s, veorq_s32, self, o)
    }
    #[inline(always)]
    fn shl<const N: i32>(self) -> I32s {
        quarters!(I32s, vshlq_n_s32::<N>, self)
    }
    #[inline(always)]
    fn shr<const N: i32>(self) -> I32s {
        // SAFETY: a vector is in hand, so the machine has NEON.
        unsafe { I32s(self.0.map(|x| vreinterpretq_s32_u32(vshrq_n_u32::<N>(vreinterpretq_u32_s32(x))))) }
    }
}

crate::cpu::table::level_table!(Neon, "neon");
