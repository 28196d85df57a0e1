//! Asking the memory for what is needed soon. A hint that never faults; none where the baseline of the target has no
//! instruction for it.

/// Asks for all of `x`, into the first-level cache.
#[inline(always)]
pub(super) fn near<T>(x: &[T]) {
    #[cfg(target_arch = "x86_64")]
    super::x86::prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(x);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = x;
}

/// The same long before it is needed, into the second-level cache.
#[inline(always)]
pub(super) fn far<T>(x: &[T]) {
    #[cfg(target_arch = "x86_64")]
    super::x86::prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(x);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = x;
}
