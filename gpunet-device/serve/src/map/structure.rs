//! Values that are more than bytes: structures with chunks of their own in the map's heap.
#![allow(unsafe_code)]

use super::entry::Entry;
use crate::Bytes;
use crate::heap::{Chunk, Heap};
use crate::memory::Memory;
use core::fmt::Debug;
use gpunet_device::{Group, Net, Result};

/// A kind of values that have chunks of the heap besides their entry's: a list, a table, an index.
///
/// A [`super::Map`] of the kind has such values beside byte strings
/// ([`super::Map::fresh_structure`]). Deletion, expiry and overwriting free them. Eviction leaves
/// them alone.
///
/// # Safety
/// `free` gives back the chunks that the value owns, each once, and nothing else. It uses chunks
/// only as [`super::Map::chunks`] allows.
pub unsafe trait Structure: Copy + Debug + 'static {
    /// Bytes of a value's root, which is in its entry and names its chunks.
    const ROOT: usize;

    /// Gives back the chunks of a value that no group has any more, but for its entry's
    /// ([`Chunks::root`]).
    ///
    /// # Cooperation
    /// All lanes call it.
    ///
    /// # Errors
    /// The launch is over.
    fn free<G: Group>(g: &G, net: Net, chunks: Chunks, entry: Chunk) -> Result<()>;
}

/// The kind of which there are no values: a map of byte strings alone.
#[derive(Clone, Copy, Debug)]
pub enum NoStructure {}

// SAFETY: it gives nothing back.
unsafe impl Structure for NoStructure {
    const ROOT: usize = 0;

    fn free<G: Group>(_: &G, _: Net, _: Chunks, _: Chunk) -> Result<()> {
        Ok(())
    }
}

/// The chunks of a map's heap, as their owners use them: [`super::Map::room`] takes one.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    heap: Heap,
}

impl Chunks {
    pub(crate) const fn of(heap: Heap) -> Self {
        Self { heap }
    }

    /// The root of a structure: whoever has pinned the entry has it.
    #[must_use]
    pub fn root<S: Structure>(self, entry: Chunk) -> Memory {
        Entry::at(self.heap, entry).room(self.heap).part(0, S::ROOT)
    }

    /// The memory of a chunk.
    #[inline(always)]
    #[must_use]
    pub fn memory(self, chunk: Chunk) -> Memory {
        self.heap.memory(chunk)
    }

    /// How many bytes a chunk has.
    #[inline(always)]
    #[must_use]
    pub fn capacity(self, chunk: Chunk) -> usize {
        self.heap.capacity(chunk)
    }

    /// Where a chunk begins, in bytes from the first.
    #[inline(always)]
    #[must_use]
    pub const fn start(self, chunk: Chunk) -> usize {
        self.heap.start(chunk)
    }

    /// A word of 32 bits of some chunk, which nobody writes meanwhile, so many bytes from the first
    /// one.
    #[inline(always)]
    #[must_use]
    pub fn word(self, at: usize) -> u32 {
        self.heap.word(at)
    }

    /// The address of some byte, so many bytes from the first chunk.
    #[inline(always)]
    #[must_use]
    pub fn address(self, at: usize) -> *const u8 {
        self.heap.address(at)
    }

    /// The first bytes of a chunk, which nobody writes meanwhile.
    #[must_use]
    pub fn bytes<'a>(self, chunk: Chunk, len: usize) -> Bytes<'a> {
        self.heap.memory(chunk).part(0, len).stable_bytes()
    }

    /// Copies bytes of a request or of another chunk into a chunk. All lanes, without a barrier.
    pub fn write<G: Group>(self, g: &G, chunk: Chunk, at: usize, bytes: Bytes<'_>) {
        self.heap.memory(chunk).part(at, bytes.len()).fill(g, bytes);
    }

    /// Takes a chunk of at least `bytes` bytes if there is one, and evicts nothing for it.
    ///
    /// # Cooperation
    /// All lanes call it and get the same chunk.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    pub fn alloc<G: Group>(self, g: &G, net: Net, bytes: usize) -> Result<Option<Chunk>> {
        self.heap.alloc(g, net, bytes)
    }

    /// Gives a chunk back.
    ///
    /// # Cooperation
    /// All lanes call it, once.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    pub fn free<G: Group>(self, g: &G, net: Net, chunk: Chunk) -> Result<()> {
        self.heap.free(g, net, chunk)
    }
}
