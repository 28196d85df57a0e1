//! Asking the memory for what is needed soon. A hint that never faults; none where the baseline of the target has no
//! instruction for it.

/// Asks for all of `x` long before it is needed, into the second-level cache. Each request holds one of the few places for
/// misses of the first-level cache until the memory has answered, so some dozens at once stop a core; and what comes from
/// the second-level cache is better left to the machine.
#[inline(always)]
pub(super) fn far<T>(x: &[T]) {
    #[cfg(target_arch = "x86_64")]
    super::x86::prefetch(x);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = x;
}
