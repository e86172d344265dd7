//! Copies between bytes of this process and mapped GPU memory.
//!
//! Every access is aligned to its size and lies within the range: the mapping may be of a kind that
//! faults otherwise, and the neighbours of the range are somebody else's, so nothing is read in
//! order to be written back. Bytes at the edges go in the largest aligned pieces, the middle in
//! pieces of 16 bytes and rising addresses: four of them fill a write-combining buffer, which
//! leaves as one transfer of 64 bytes.

#![allow(unsafe_code, reason = "accesses to mapped memory")]

use super::barrier;

/// The unit of the middle part.
const WIDE: usize = 16;

/// Copies `bytes` to mapped memory. They may still be in the CPU's buffers when it returns.
///
/// # Safety
/// `to` is `bytes.len()` bytes of a writable mapping, which no other thread of this process
/// accesses meanwhile.
pub(super) unsafe fn to_mapped(to: *mut u8, bytes: &[u8]) {
    let (mut to, mut left) = (to, bytes);
    while !left.is_empty() {
        let step = if left.len() >= WIDE && to.addr().is_multiple_of(WIDE) {
            // SAFETY: 16 aligned bytes of the mapping, and as many of `left`.
            unsafe { store_wide(to, left.as_ptr()) };
            WIDE
        } else {
            // SAFETY: `left.len()` bytes of the mapping.
            unsafe { store_narrow(to, left) }
        };
        left = &left[step..];
        // SAFETY: at most one past the end of the range.
        to = unsafe { to.add(step) };
    }
}

/// Copies mapped memory to `bytes`: what the GPU had written when it began, or later.
///
/// # Safety
/// `from` is `bytes.len()` bytes of a readable mapping, which no other thread of this process
/// writes meanwhile.
pub(super) unsafe fn from_mapped(from: *const u8, bytes: &mut [u8]) {
    let streaming = has_streaming_loads();
    barrier::full_fence();
    let (mut from, mut left) = (from, bytes);
    while !left.is_empty() {
        let step = if left.len() >= WIDE && from.addr().is_multiple_of(WIDE) {
            // SAFETY: 16 aligned bytes of the mapping, and as many of `left`; the CPU has streaming
            // loads if it says so.
            unsafe { load_wide(from, left.as_mut_ptr(), streaming) };
            WIDE
        } else {
            // SAFETY: `left.len()` bytes of the mapping.
            unsafe { load_narrow(from, left) }
        };
        left = &mut left[step..];
        // SAFETY: at most one past the end of the range.
        from = unsafe { from.add(step) };
    }
    barrier::full_fence();
}

/// Returns the largest power of two up to 8 that fits `len` and to which `address` is aligned.
fn piece(address: usize, len: usize) -> usize {
    [8, 4, 2].into_iter().find(|&size| len >= size && address.is_multiple_of(size)).unwrap_or(1)
}

/// # Safety
/// `to` is `bytes.len()` > 0 bytes of a writable mapping.
unsafe fn store_narrow(to: *mut u8, bytes: &[u8]) -> usize {
    macro_rules! store {
        ($word:ty) => {{
            let mut value = [0; size_of::<$word>()];
            value.copy_from_slice(&bytes[..size_of::<$word>()]);
            // SAFETY: `piece` says that so many bytes are left and that the address is aligned to
            // them.
            unsafe { to.cast::<$word>().write_volatile(<$word>::from_ne_bytes(value)) };
        }};
    }
    let size = piece(to.addr(), bytes.len());
    match size {
        8 => store!(u64),
        4 => store!(u32),
        2 => store!(u16),
        _ => store!(u8),
    }
    size
}

/// # Safety
/// `from` is `bytes.len()` > 0 bytes of a readable mapping.
unsafe fn load_narrow(from: *const u8, bytes: &mut [u8]) -> usize {
    macro_rules! load {
        ($word:ty) => {{
            // SAFETY: `piece` says that so many bytes are left and that the address is aligned to
            // them.
            let value = unsafe { from.cast::<$word>().read_volatile() };
            bytes[..size_of::<$word>()].copy_from_slice(&value.to_ne_bytes());
        }};
    }
    let size = piece(from.addr(), bytes.len());
    match size {
        8 => load!(u64),
        4 => load!(u32),
        2 => load!(u16),
        _ => load!(u8),
    }
    size
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::asm;
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};

    /// # Safety
    /// `to` is 16 aligned bytes of a writable mapping, `from` 16 readable bytes.
    pub(super) unsafe fn store_wide(to: *mut u8, from: *const u8) {
        // SAFETY: 16 readable bytes; the intrinsic takes any alignment.
        let value = unsafe { _mm_loadu_si128(from.cast()) };
        // Non-temporal: on a cached mapping (a coherent machine) it keeps the lines out of the
        // CPU's caches, on a write-combining one it is a plain store. SAFETY: 16 aligned writable
        // bytes; SSE2 is a part of x86-64; the callers' fence orders the store.
        unsafe {
            asm!("movntdq [{to}], {value}", to = in(reg) to, value = in(xmm_reg) value, options(nostack, preserves_flags));
        }
    }

    pub(super) fn has_streaming_loads() -> bool {
        is_x86_feature_detected!("sse4.1")
    }

    /// Loads 16 bytes, with `streaming` as a part of a transfer of 64: the CPU then fetches the
    /// whole line once.
    ///
    /// # Safety
    /// `from` is 16 aligned bytes of a readable mapping, `to` 16 writable bytes. `streaming` only
    /// with SSE4.1.
    pub(super) unsafe fn load_wide(from: *const u8, to: *mut u8, streaming: bool) {
        let value: __m128i;
        if streaming {
            // SAFETY: 16 aligned readable bytes, on a CPU with SSE4.1.
            unsafe {
                asm!("movntdqa {value}, [{from}]", value = out(xmm_reg) value, from = in(reg) from, options(nostack, preserves_flags));
            }
        } else {
            // SAFETY: 16 aligned readable bytes.
            unsafe {
                asm!("movdqa {value}, [{from}]", value = out(xmm_reg) value, from = in(reg) from, options(nostack, preserves_flags));
            }
        }
        // SAFETY: 16 writable bytes; the intrinsic takes any alignment.
        unsafe { _mm_storeu_si128(to.cast(), value) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod wide {
    /// # Safety
    /// `to` is 16 aligned bytes of a writable mapping, `from` 16 readable bytes.
    pub(super) unsafe fn store_wide(to: *mut u8, from: *const u8) {
        for index in 0..2 {
            // SAFETY: in bounds.
            let from = unsafe { from.cast::<u64>().add(index) };
            // SAFETY: in bounds.
            let to = unsafe { to.cast::<u64>().add(index) };
            // SAFETY: 8 readable bytes of any alignment.
            let value = unsafe { from.read_unaligned() };
            // SAFETY: 8 aligned writable bytes.
            unsafe { to.write_volatile(value) };
        }
    }

    pub(super) fn has_streaming_loads() -> bool {
        false
    }

    /// # Safety
    /// `from` is 16 aligned bytes of a readable mapping, `to` 16 writable bytes.
    pub(super) unsafe fn load_wide(from: *const u8, to: *mut u8, _streaming: bool) {
        for index in 0..2 {
            // SAFETY: in bounds.
            let from = unsafe { from.cast::<u64>().add(index) };
            // SAFETY: in bounds.
            let to = unsafe { to.cast::<u64>().add(index) };
            // SAFETY: 8 aligned readable bytes.
            let value = unsafe { from.read_volatile() };
            // SAFETY: 8 writable bytes of any alignment.
            unsafe { to.write_unaligned(value) };
        }
    }
}

use wide::{has_streaming_loads, load_wide, store_wide};

#[cfg(test)]
mod tests {
    use super::piece;

    #[test]
    fn a_piece_is_aligned_and_fits() {
        assert_eq!(piece(0, 100), 8);
        assert_eq!(piece(8, 7), 4);
        assert_eq!(piece(4, 100), 4);
        assert_eq!(piece(6, 100), 2);
        assert_eq!(piece(7, 100), 1);
        assert_eq!(piece(8, 1), 1);
        for (address, len) in (0..16).flat_map(|address| (1..20).map(move |len| (address, len))) {
            let size = piece(address, len);
            assert!(size <= len && address % size == 0, "{size} at {address} of {len}");
        }
    }
}
