//! Ring memory of the tests: pages of this process, written by a card and read by copying.

use gpunet_core::verbs::{Memory, Ring, RingMemory};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;

/// Bytes of a ring.
const LEN: usize = 16 * 1024;

struct Pages(*mut u8);

// SAFETY: plain memory, reached through raw pointers only.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

fn layout() -> Layout {
    Layout::from_size_align(2 * LEN, 4096).unwrap()
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated below with this layout, freed once.
        unsafe { dealloc(self.0, layout()) };
    }
}

/// A send ring and a receive ring.
pub struct Rings {
    pages: Arc<Pages>,
    owner: u64,
    len: usize,
}

impl Rings {
    pub fn new(owner: u64) -> Self {
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout()) };
        assert!(!base.is_null());
        Self { pages: Arc::new(Pages(base)), owner, len: LEN }
    }

    /// Rings of half the size in the same memory.
    pub fn halved(&self) -> Self {
        Self { pages: self.pages.clone(), owner: self.owner, len: self.len / 2 }
    }

    pub fn send_address(&self) -> u64 {
        self.pages.0 as u64
    }

    pub fn recv_address(&self) -> u64 {
        self.pages.0 as u64 + LEN as u64
    }

    pub fn memory(&self) -> Memory {
        let ring = |address| Ring { address, len: self.len as u64, memory: RingMemory::Mapped };
        Memory {
            send_ring: ring(self.send_address()),
            recv_ring: ring(self.recv_address()),
            owner: self.owner,
            keep: self.pages.clone(),
        }
    }

    /// How many hold the memory, this included.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.pages)
    }

    pub fn fill_send(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= LEN);
        // SAFETY: inside the send ring, of which no request is under way.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pages.0.add(at), bytes.len()) };
    }

    pub fn received(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= LEN);
        let mut bytes = vec![0; len];
        // SAFETY: inside the receive ring; the message announced that the bytes are there.
        unsafe { std::ptr::copy_nonoverlapping(self.pages.0.add(LEN + at), bytes.as_mut_ptr(), len) };
        bytes
    }
}
