//! Memory that the lanes of a team use together, and bytes that say where they belong.

use gpunet_device::{Buffer, PollFd, PollSet};
use std::cell::UnsafeCell;

/// The byte at `position` of the stream number `seed`: a shift by any distance shows.
pub fn pattern(seed: u64, position: usize) -> u8 {
    let x = (position as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
    (x >> 32) as u8
}

/// Bytes that a team works with.
pub struct Memory {
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: the bytes are only reached through `buffer` (the group's rules say who writes when) and
// through `copy`, `fill` and `set`, which tests call when no group writes.
unsafe impl Sync for Memory {}

impl Memory {
    /// So many bytes, all 0xEE.
    pub fn new(len: usize) -> Self {
        Self { bytes: (0..len).map(|_| UnsafeCell::new(0xee)).collect() }
    }

    /// Bytes `start..start + len` of stream `seed`.
    pub fn filled(seed: u64, start: usize, len: usize) -> Self {
        Self { bytes: (start..start + len).map(|i| UnsafeCell::new(pattern(seed, i))).collect() }
    }

    /// So many bytes, each as `byte` says.
    pub fn from_fn(len: usize, byte: impl Fn(usize) -> u8) -> Self {
        Self { bytes: (0..len).map(|i| UnsafeCell::new(byte(i))).collect() }
    }

    /// All of it, for socket calls.
    pub fn buffer(&self) -> Buffer {
        // SAFETY: tests keep the memory until their teams are done, and one team uses it at a time.
        unsafe { Buffer::from_raw_parts(self.bytes.as_ptr().cast_mut().cast(), self.bytes.len()) }
    }

    /// The bytes at `start`.
    pub fn copy(&self, start: usize, len: usize) -> Vec<u8> {
        // SAFETY: no group writes at this time (see the type).
        self.bytes[start..start + len].iter().map(|byte| unsafe { byte.get().read_volatile() }).collect()
    }

    /// Returns whether the `len` bytes at `start` are those from `position` of stream `seed`.
    pub fn holds(&self, start: usize, len: usize, seed: u64, position: usize) -> bool {
        self.copy(start, len).into_iter().enumerate().all(|(i, byte)| byte == pattern(seed, position + i))
    }
}

/// Entries that a team polls.
pub struct PollMemory {
    entries: Box<[UnsafeCell<PollFd>]>,
}

// SAFETY: as `Memory`: one team uses a set at a time.
unsafe impl Sync for PollMemory {}

impl PollMemory {
    pub fn new(entries: &[(i32, i16)]) -> Self {
        let entry = |&(handle, events)| UnsafeCell::new(PollFd { handle, events, revents: 0x7f });
        Self { entries: entries.iter().map(entry).collect() }
    }

    pub fn set(&self) -> PollSet {
        // SAFETY: aligned entries that live as long as the test's teams, one of which uses them.
        unsafe { PollSet::from_raw_parts(self.entries.as_ptr().cast_mut().cast(), self.entries.len()) }
    }

    pub fn found(&self, index: usize) -> i16 {
        self.set().get(index).revents
    }
}
