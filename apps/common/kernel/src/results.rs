//! Numbers that a kernel leaves for the host.

use gpunet_device::{Error, Group};

/// Words in device memory, written by kernels and read by the host when the kernel has ended.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Results {
    ptr: *mut u64,
    len: usize,
}

// SAFETY: an address and a length; `new`'s contract speaks of all threads of a launch.
unsafe impl Send for Results {}

/// Marks a result word as an errno.
const FAILED: u64 = 1 << 63;

/// The errno in a result word, if it holds one.
#[must_use]
pub const fn failed(word: u64) -> Option<i32> {
    if word & FAILED == 0 { None } else { Some((word & 0xffff) as i32) }
}

impl Results {
    /// Makes a table of `len` words at `ptr`.
    ///
    /// # Safety
    /// The words are mapped in the device's address space while the launch runs, and used by it
    /// alone.
    #[must_use]
    pub const unsafe fn new(ptr: *mut u64, len: usize) -> Self {
        Self { ptr, len }
    }

    /// How many words there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stores a word, by the group's leader; nothing past the end.
    #[inline(always)]
    pub fn set<G: Group>(&self, g: &G, index: usize, value: u64) {
        if g.is_leader() && index < self.len {
            // SAFETY: inside the table (checked), by the constructor's contract.
            unsafe { self.ptr.wrapping_add(index).write_volatile(value) };
        }
    }

    /// Stores a result or its errno.
    #[inline(always)]
    pub fn set_result<G: Group>(&self, g: &G, index: usize, result: Result<u64, Error>) {
        self.set(g, index, result.unwrap_or_else(|error| FAILED | error.errno() as u32 as u64));
    }
}
