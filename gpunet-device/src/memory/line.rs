//! Sending a small message in a line, and taking it from there: [`gpunet_abi::line`] has the
//! format.

use crate::group::Front;
use crate::platform;
use gpunet_abi::line::{self, CHUNK_BYTES, Line};

/// Stores a message of at most [`line::MAX`] bytes in the line for its position. All lanes of the
/// front.
///
/// # Safety
/// `source` is readable for `len` bytes; this group is the one that writes the line.
#[inline(always)]
pub(crate) unsafe fn store<F: Front>(front: &F, line: Line, position: u64, source: *const u8, len: usize) {
    let tag = line::tag(position);
    let mut index = front.rank();
    while index * CHUNK_BYTES < len {
        // SAFETY: the chunk begins inside the message.
        let bytes =
            unsafe { load_bytes(source.wrapping_add(index * CHUNK_BYTES), len - index * CHUNK_BYTES) };
        let units = [line::unit(bytes as u32, tag), line::unit((bytes >> 32) as u32, tag)];
        // SAFETY: one of the line's chunks, since the message is not too long.
        unsafe { platform::store_units(line.chunk(index), units) };
        if F::IS_WARP {
            break;
        }
        index += 1;
    }
    // Last: who finds it mostly finds the rest at the same look.
    if front.is_first() {
        line.header().set(line::header(position, len));
    }
}

/// Returns whether a chunk, by what was found in it, has all that it should of a message of `len`
/// bytes.
#[inline(always)]
pub(crate) const fn is_there(units: [u64; 2], index: usize, position: u64, len: usize) -> bool {
    let tag = line::tag(position);
    (index * CHUNK_BYTES >= len || line::has_tag(units[0], tag))
        && (index * CHUNK_BYTES + CHUNK_BYTES / 2 >= len || line::has_tag(units[1], tag))
}

/// Stores the bytes of a chunk where they belong in a message of `len` bytes; none if it has none.
///
/// # Safety
/// `to` is writable for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn store_chunk(units: [u64; 2], index: usize, to: *mut u8, len: usize) {
    if index * CHUNK_BYTES < len {
        let bytes = units[0] & u64::from(u32::MAX) | units[1] << 32;
        // SAFETY: the chunk begins inside the message.
        unsafe { store_bytes(to.wrapping_add(index * CHUNK_BYTES), bytes, len - index * CHUNK_BYTES) };
    }
}

/// Takes a message of `len` bytes from its line, if all of it is there; returns whether it was.
/// Else some of its bytes may have been written. By one lane.
///
/// # Safety
/// `to` is writable for `len` bytes, at most [`line::MAX`].
#[inline(always)]
pub(crate) unsafe fn take(line: Line, position: u64, to: *mut u8, len: usize) -> bool {
    let (mut index, mut is_whole) = (0, true);
    while is_whole && index * CHUNK_BYTES < len {
        // SAFETY: one of the line's chunks.
        let units = unsafe { platform::load_units(line.chunk(index)) };
        is_whole = is_there(units, index, position, len);
        if is_whole {
            // SAFETY: the caller's contract.
            unsafe { store_chunk(units, index, to, len) };
        }
        index += 1;
    }
    is_whole
}

/// Loads the first eight of `len` bytes, or all of them, as a little-endian number.
///
/// # Safety
/// `from` is readable for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn load_bytes(from: *const u8, len: usize) -> u64 {
    if len >= CHUNK_BYTES && (from as usize).is_multiple_of(CHUNK_BYTES) {
        // SAFETY: aligned, and inside the bytes.
        return unsafe { from.cast::<u64>().read() };
    }
    // SAFETY: the caller's contract.
    unsafe { load_each(from, len) }
}

/// As [`load_bytes`], byte by byte.
///
/// # Safety
/// As [`load_bytes`].
#[cold]
#[inline(never)]
unsafe fn load_each(from: *const u8, len: usize) -> u64 {
    let (mut value, mut at) = (0, 0);
    while at < CHUNK_BYTES && at < len {
        // SAFETY: inside the bytes.
        value |= u64::from(unsafe { from.wrapping_add(at).read() }) << (8 * at);
        at += 1;
    }
    value
}

/// Stores the first eight of `len` bytes, or all of them, of a little-endian number.
///
/// # Safety
/// `to` is writable for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn store_bytes(to: *mut u8, value: u64, len: usize) {
    if len >= CHUNK_BYTES && (to as usize).is_multiple_of(CHUNK_BYTES) {
        // SAFETY: aligned, and inside the bytes.
        return unsafe { to.cast::<u64>().write(value) };
    }
    // SAFETY: the caller's contract.
    unsafe { store_each(to, value, len) };
}

/// As [`store_bytes`], byte by byte.
///
/// # Safety
/// As [`store_bytes`].
#[cold]
#[inline(never)]
unsafe fn store_each(to: *mut u8, value: u64, len: usize) {
    let mut at = 0;
    while at < CHUNK_BYTES && at < len {
        // SAFETY: inside the bytes.
        unsafe { to.wrapping_add(at).write((value >> (8 * at)) as u8) };
        at += 1;
    }
}
