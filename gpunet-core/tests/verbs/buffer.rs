//! Memory of a connection under test.

use gpunet_core::verbs::{Memory, Ring, RingMemory};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

/// Page-aligned memory that a card may write.
pub struct Buffer {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory; the tests read what a message has announced, which nobody writes then.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len, 4096).expect("a small buffer");
        assert!(len > 0);
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        Self { base: NonNull::new(base).expect("memory"), layout }
    }

    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.layout.size());
        // SAFETY: inside (checked); nothing is being sent from there.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(at), bytes.len()) };
    }

    pub fn get(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.layout.size());
        let mut bytes = vec![0; len];
        // SAFETY: inside (checked); see the type.
        unsafe { std::ptr::copy_nonoverlapping(self.base.as_ptr().add(at), bytes.as_mut_ptr(), len) };
        bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Both rings of one end.
#[derive(Clone)]
pub struct Rings {
    pub send: Arc<Buffer>,
    pub recv: Arc<Buffer>,
    pub owner: u64,
}

impl Rings {
    pub fn new(len: usize, owner: u64) -> Self {
        Self { send: Arc::new(Buffer::new(len)), recv: Arc::new(Buffer::new(len)), owner }
    }

    pub fn memory(&self) -> Memory {
        let ring = |buffer: &Buffer| Ring {
            address: buffer.address(),
            len: buffer.layout.size() as u64,
            memory: RingMemory::Mapped,
        };
        Memory {
            send_ring: ring(&self.send),
            recv_ring: ring(&self.recv),
            owner: self.owner,
            keep: Arc::new((self.send.clone(), self.recv.clone())),
        }
    }
}
