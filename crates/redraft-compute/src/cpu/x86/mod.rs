//! Vectors of the x86-64 instruction sets.
#![allow(unsafe_code)]

pub(super) mod avx2;
pub(super) mod avx512;
pub(in crate::cpu) mod peak;
pub(super) mod sse2;
pub(super) mod vnni;

/// Starts loading `x` into the second-level cache.
#[inline(always)]
pub(super) fn prefetch(x: &[impl Sized]) {
    let at: *const i8 = x.as_ptr().cast();
    for line in (0..size_of_val(x)).step_by(64) {
        // SAFETY: a prefetch is a hint that may name any address, and belongs to the baseline of x86-64.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.wrapping_add(line))
        };
    }
}
