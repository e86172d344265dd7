//! Plain values in memory that the lanes of a block share: one for each connection.
#![allow(unsafe_code)]

use crate::memory::Memory;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use gpunet_device::Group;

/// One `T` for each connection of a block. Every lane gets a copy, and the leader puts the copy of
/// all back.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    memory: Memory,
    of: PhantomData<fn() -> T>,
}

impl<T: Copy> Arena<T> {
    /// Bytes for each value.
    pub(crate) const STRIDE: usize = size_of::<T>().next_multiple_of(16);

    /// The values in that memory, of which none is there yet.
    pub(crate) const fn new(memory: Memory) -> Self {
        assert!(align_of::<T>() <= 16, "a connection's state is aligned to 16 bytes at most");
        Self { memory, of: PhantomData }
    }

    fn place(&self, index: usize) -> *mut T {
        self.memory.part(index * Self::STRIDE, size_of::<T>()).as_ptr().cast()
    }

    /// The value that [`Arena::put`] has put there. All lanes.
    ///
    /// # Safety
    /// One was put there.
    pub(crate) unsafe fn get(&self, index: usize) -> T {
        // SAFETY: the caller's contract; `Copy`, so that each lane may have one.
        unsafe { self.place(index).read() }
    }

    /// Puts a value there. All lanes; begins and ends with a barrier.
    pub(crate) fn put<G: Group>(&self, g: &G, index: usize, value: T) {
        let value = MaybeUninit::new(value);
        g.sync();
        if g.is_leader() {
            // SAFETY: inside the block's memory (checked by `part`) and aligned; no other lane uses
            // it between the barriers.
            unsafe { self.place(index).cast::<MaybeUninit<T>>().write(value) };
        }
        g.sync();
    }
}
