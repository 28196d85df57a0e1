//! Loops without memory, for the peaks of the x86-64 levels.

use std::arch::asm;
use std::arch::x86_64::*;
use std::hint::black_box;

use crate::cpu::CpuLevel;
use crate::cpu::peak::{Loops, compiled, dependent_adds};

/// The loops of a level; none for those that are no x86-64 vector level.
pub(in crate::cpu) fn loops(level: CpuLevel) -> Option<Loops> {
    Some(match level {
        CpuLevel::Avx2 => Loops { f32: f32_256, int8: bytes_256 },
        CpuLevel::AvxVnni => Loops { f32: f32_256, int8: dot_256 },
        // Without AVX-512 BW there are no products of bytes in wide registers.
        CpuLevel::Avx512 => Loops { f32: f32_512, int8: bytes_256 },
        CpuLevel::Avx512Vnni | CpuLevel::Avx512Bf16 => Loops { f32: f32_512, int8: dot_512 },
        _ => return None,
    })
}

dependent_adds!("add {x}, {y}");

compiled! {
    /// 8 sums of 8 lanes: with 4 + 2 factors and the products that is what 16 registers hold.
    f32_256, "avx2", 8 * 8, |rounds| {
        let x = [_mm256_set1_ps(1.0), _mm256_set1_ps(0.5)];
        let y = black_box([_mm256_set1_ps(0.25), _mm256_set1_ps(0.5), _mm256_set1_ps(1.0), _mm256_set1_ps(2.0)]);
        let mut sums = [_mm256_setzero_ps(); 8];
        for _ in 0..rounds {
            // New factors in each round, or the products would be made once.
            let x = black_box(x);
            for i in 0..8 {
                sums[i] = _mm256_add_ps(sums[i], _mm256_mul_ps(x[i / 4], y[i % 4]));
            }
        }
        black_box(sums);
    }
}

compiled! {
    /// 16 sums of 16 lanes.
    f32_512, "avx512f", 16 * 16, |rounds| {
        let x = [_mm512_set1_ps(1.0), _mm512_set1_ps(0.5), _mm512_set1_ps(0.25), _mm512_set1_ps(2.0)];
        let y = black_box([_mm512_set1_ps(0.25), _mm512_set1_ps(0.5), _mm512_set1_ps(1.0), _mm512_set1_ps(2.0)]);
        let mut sums = [_mm512_setzero_ps(); 16];
        for _ in 0..rounds {
            let x = black_box(x);
            for i in 0..16 {
                sums[i] = _mm512_add_ps(sums[i], _mm512_mul_ps(x[i / 4], y[i % 4]));
            }
        }
        black_box(sums);
    }
}

compiled! {
    /// `vpmaddubsw` with sums of 16 bits: 32 products of bytes.
    bytes_256, "avx2", 8 * 32, |rounds| {
        let x = [_mm256_set1_epi8(1), _mm256_set1_epi8(2)];
        let y = black_box([_mm256_set1_epi8(1), _mm256_set1_epi8(-1), _mm256_set1_epi8(2), _mm256_set1_epi8(-2)]);
        let mut sums = [_mm256_setzero_si256(); 8];
        for _ in 0..rounds {
            let x = black_box(x);
            for i in 0..8 {
                sums[i] = _mm256_add_epi16(sums[i], _mm256_maddubs_epi16(x[i / 4], y[i % 4]));
            }
        }
        black_box(sums);
    }
}

compiled! {
    /// `vpdpbusd`: 32 products of bytes.
    dot_256, "avx2,avxvnni", 12 * 32, |rounds| {
        let (x, y) = (black_box(_mm256_set1_epi8(1)), black_box(_mm256_set1_epi8(-2)));
        let mut sums = [_mm256_setzero_si256(); 12];
        for _ in 0..rounds {
            for s in &mut sums {
                *s = _mm256_dpbusd_avx_epi32(*s, x, y);
            }
        }
        black_box(sums);
    }
}

compiled! {
    /// `vpdpbusd`: 64 products of bytes.
    dot_512, "avx512f,avx512vnni", 24 * 64, |rounds| {
        let (x, y) = (black_box(_mm512_set1_epi8(1)), black_box(_mm512_set1_epi8(-2)));
        let mut sums = [_mm512_setzero_si512(); 24];
        for _ in 0..rounds {
            for s in &mut sums {
                *s = _mm512_dpbusd_epi32(*s, x, y);
            }
        }
        black_box(sums);
    }
}
