//! Vectors of the x86-64 instruction sets.
#![allow(unsafe_code)]

pub(super) mod avx2;
pub(super) mod avx512;
pub(in crate::cpu) mod peak;
pub(super) mod vnni;

/// Asks for all cache lines of the bytes.
#[inline(always)]
fn prefetch(bytes: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for at in (0..bytes.len()).step_by(64) {
        // SAFETY: part of every x86-64 machine; a prefetch cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(at).cast()) };
    }
}
