//! Plain values in memory that the lanes of a block share: one for each connection.
#![allow(unsafe_code)]

use crate::memory::Memory;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use gpunet_device::Group;

/// One `T` for each connection of a block. Every lane gets a copy, and the leader puts the copy of
/// all back ([`put_both`]).
#[derive(Debug)]
pub(crate) struct Arena<T> {
    memory: Memory,
    of: PhantomData<fn() -> T>,
}

impl<T: Copy> Arena<T> {
    /// Bytes for each value.
    pub(crate) const STRIDE: usize = size_of::<T>().next_multiple_of(16);

    /// The values of a block, in the memory of all blocks. Each block has room for `room`. None
    /// is there yet.
    pub(crate) fn of_block(all: Memory, block: usize, room: usize) -> Self {
        const { assert!(align_of::<T>() <= 16, "a connection's state is aligned to 16 bytes at most") };
        let len = room * Self::STRIDE;
        Self { memory: all.part(block * len, len), of: PhantomData }
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

    /// Puts a value there. By the leader.
    ///
    /// # Safety
    /// Between two barriers of the group no other lane uses the place.
    unsafe fn put(&self, index: usize, value: T) {
        // SAFETY: inside the block's memory (checked by `part`) and aligned; the caller's contract.
        unsafe { self.place(index).cast::<MaybeUninit<T>>().write(MaybeUninit::new(value)) };
    }
}

/// Puts a value into each of two arenas, at the same place. All lanes; begins and ends with a
/// barrier.
pub(crate) fn put_both<G: Group, A: Copy, B: Copy>(
    g: &G,
    index: usize,
    (first, a): (&Arena<A>, A),
    (second, b): (&Arena<B>, B),
) {
    g.sync();
    if g.is_leader() {
        // SAFETY: between two barriers, and the other lanes do nothing there.
        unsafe { first.put(index, a) };
        // SAFETY: as above.
        unsafe { second.put(index, b) };
    }
    g.sync();
}
