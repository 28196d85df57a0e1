//! Loops without memory, for the peaks of the AArch64 levels.

use std::arch::aarch64::*;
use std::arch::asm;
use std::hint::black_box;

use crate::cpu::CpuLevel;
use crate::cpu::peak::{Loops, compiled, dependent_adds};

/// The loops of a level; none for those that are no AArch64 vector level.
pub(in crate::cpu) fn loops(level: CpuLevel) -> Option<Loops> {
    Some(match level {
        CpuLevel::Neon => Loops { f32: f32_128, int8: bytes_128 },
        CpuLevel::NeonDot => Loops { f32: f32_128, int8: dot_128 },
        CpuLevel::NeonI8mm => Loops { f32: f32_128, int8: matrix_128 },
        _ => return None,
    })
}

dependent_adds!("add {x}, {x}, {y}");

compiled! {
    /// 16 sums of 4 lanes.
    f32_128, "neon", 16 * 4, |rounds| {
        let x = [vdupq_n_f32(1.0), vdupq_n_f32(0.5), vdupq_n_f32(0.25), vdupq_n_f32(2.0)];
        let y = black_box([vdupq_n_f32(0.25), vdupq_n_f32(0.5), vdupq_n_f32(1.0), vdupq_n_f32(2.0)]);
        let mut sums = [vdupq_n_f32(0.0); 16];
        for _ in 0..rounds {
            // New factors in each round, or the products would be made once.
            let x = black_box(x);
            for i in 0..16 {
                sums[i] = vaddq_f32(sums[i], vmulq_f32(x[i / 4], y[i % 4]));
            }
        }
        black_box(sums);
    }
}

compiled! {
    /// `smull` with sums of 32 bits by `sadalp`: 8 products of bytes.
    bytes_128, "neon", 16 * 8, |rounds| {
        let x = [vdup_n_s8(1), vdup_n_s8(2), vdup_n_s8(3), vdup_n_s8(4)];
        let y = black_box([vdup_n_s8(1), vdup_n_s8(-1), vdup_n_s8(2), vdup_n_s8(-2)]);
        let mut sums = [vdupq_n_s32(0); 16];
        for _ in 0..rounds {
            let x = black_box(x);
            for i in 0..16 {
                sums[i] = vpadalq_s16(sums[i], vmull_s8(x[i / 4], y[i % 4]));
            }
        }
        black_box(sums);
    }
}

compiled! {
    /// `sdot`: 16 products of bytes.
    dot_128, "neon,dotprod", 16 * 16, |rounds| {
        let (x, y) = (black_box(vdupq_n_s8(1)), black_box(vdupq_n_s8(-2)));
        let mut sums = [vdupq_n_s32(0); 16];
        for _ in 0..rounds {
            for s in &mut sums {
                // SAFETY: an instruction on registers; this function is compiled for machines that have it.
                unsafe {
                    asm!("sdot {s:v}.4s, {x:v}.16b, {y:v}.16b", s = inout(vreg) *s, x = in(vreg) x, y = in(vreg) y,
                        options(pure, nomem, nostack, preserves_flags));
                }
            }
        }
        black_box(sums);
    }
}

compiled! {
    /// `smmla`: 32 products of bytes.
    matrix_128, "neon,i8mm", 16 * 32, |rounds| {
        let (x, y) = (black_box(vdupq_n_s8(1)), black_box(vdupq_n_s8(-2)));
        let mut sums = [vdupq_n_s32(0); 16];
        for _ in 0..rounds {
            for s in &mut sums {
                // SAFETY: an instruction on registers; this function is compiled for machines that have it.
                unsafe {
                    asm!("smmla {s:v}.4s, {x:v}.16b, {y:v}.16b", s = inout(vreg) *s, x = in(vreg) x, y = in(vreg) y,
                        options(pure, nomem, nostack, preserves_flags));
                }
            }
        }
        black_box(sums);
    }
}
