//! Hot path. Hints for the processor's caches.

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Asks the processor to load the line at `address`; any address will do.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint and never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
