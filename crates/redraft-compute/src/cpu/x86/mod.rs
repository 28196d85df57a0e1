//! Vectors of the x86-64 instruction sets.
#![allow(unsafe_code)]

pub(super) mod avx2;
pub(super) mod avx512;
pub(super) mod vnni;

/// Starts loading `bytes` bytes from `at` on into the second-level cache.
pub(super) fn prefetch(at: *const u8, bytes: usize) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    for line in (0..bytes).step_by(64) {
        // SAFETY: a prefetch is a hint that may name any address, and belongs to the baseline of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(line).cast()) };
    }
}
