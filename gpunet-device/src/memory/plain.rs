//! Plain integers moved word by word: how requests, replies and table entries cross memory that
//! other threads use too.
//!
//! A volatile access to a whole struct becomes one access per *byte* of every byte array in it
//! (an address, the padding of options) [seen in PTX]; over PCIe each is a transaction of its own.

use crate::platform;
use core::mem::MaybeUninit;
use gpunet_abi::Word;

/// Types that consist of integers and have no padding, so that every bit pattern is a value.
///
/// # Safety
/// The type is such, and its size is a multiple of eight bytes.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: `repr(C)` integers and byte arrays; the sizes are pinned by const assertions in the ABI.
unsafe impl Plain for gpunet_abi::Options {}
// SAFETY: as above.
unsafe impl Plain for gpunet_abi::SockAddr {}
// SAFETY: as above.
unsafe impl Plain for gpunet_abi::entry::HalfEntry {}
// SAFETY: as above.
unsafe impl Plain for gpunet_abi::entry::Entry {}
// SAFETY: as above.
unsafe impl Plain for gpunet_abi::claim::Posted {}
// SAFETY: as above.
unsafe impl Plain for gpunet_abi::control::Request {}
// SAFETY: as above.
unsafe impl Plain for gpunet_abi::control::Reply {}
// SAFETY: as above.
unsafe impl Plain for gpunet_abi::control::Descriptor {}

/// Eight-byte alignment for the local copy.
#[repr(C, align(8))]
struct Aligned<T>(MaybeUninit<T>);

/// Copies a value out of memory that other threads may write.
///
/// # Safety
/// `from` is 8-byte aligned and readable; all writers write it by aligned words or not at this
/// time.
#[inline(always)]
pub(crate) unsafe fn load<T: Plain>(from: *const T) -> T {
    let mut value = Aligned(MaybeUninit::<T>::uninit());
    let to = (&raw mut value).cast::<u64>();
    let mut i = 0;
    while i < size_of::<T>() / 8 {
        // SAFETY: the caller's contract; word `i` lies inside.
        let word = unsafe { Word::from_ptr(from.cast::<u64>().wrapping_add(i).cast_mut()) };
        // SAFETY: word `i` of the aligned local.
        unsafe { to.wrapping_add(i).write(word.peek()) };
        i += 1;
    }
    // SAFETY: every byte was written, and a `Plain` type takes any bits.
    unsafe { value.0.assume_init() }
}

/// As [`load`], of a value that its writer has published and leaves alone: this lane has observed
/// the word that tells of it.
///
/// # Safety
/// As [`load`]; `from` is 16-byte aligned.
#[inline(always)]
pub(crate) unsafe fn load_published<T: Plain>(from: *const T) -> T {
    let mut value = Aligned(MaybeUninit::<T>::uninit());
    let to = (&raw mut value).cast::<u64>();
    let words = const { size_of::<T>() / 8 };
    let mut i = 0;
    while i + 1 < words {
        // SAFETY: the caller's contract; both words lie inside.
        let [first, second] =
            unsafe { platform::load_published(from.cast::<u64>().wrapping_add(i).cast_mut()) };
        // SAFETY: a word of the aligned local.
        unsafe { to.wrapping_add(i).write(first) };
        // SAFETY: as above.
        unsafe { to.wrapping_add(i + 1).write(second) };
        i += 2;
    }
    if i < words {
        // SAFETY: the caller's contract, of the last word.
        let last = unsafe { Word::from_ptr(from.cast::<u64>().wrapping_add(i).cast_mut()) };
        // SAFETY: a word of the aligned local.
        unsafe { to.wrapping_add(i).write(last.peek()) };
    }
    // SAFETY: every byte was written, and a `Plain` type takes any bits.
    unsafe { value.0.assume_init() }
}

/// Copies a value into memory that other threads may read after a later publish.
///
/// # Safety
/// `to` is 8-byte aligned and writable, and nobody else writes it at this time.
#[inline(always)]
pub(crate) unsafe fn store<T: Plain>(to: *mut T, value: &T) {
    let local = Aligned(MaybeUninit::new(*value));
    let from = (&raw const local).cast::<u64>();
    let mut i = 0;
    while i < size_of::<T>() / 8 {
        // SAFETY: word `i` of the aligned local; a `Plain` type has no padding.
        let bits = unsafe { from.wrapping_add(i).read() };
        // SAFETY: the caller's contract; word `i` lies inside.
        unsafe { Word::from_ptr(to.cast::<u64>().wrapping_add(i)) }.set(bits);
        i += 1;
    }
}
