//! Bytes that a connection keeps in the heap: a request that is longer than what its ring should
//! hold, or anything else.

use crate::heap::{Chunk, Heap};
use crate::map::{Chunks, Map, Structure};
use crate::{Bytes, Context, Reader};
use gpunet_device::{Group, Result};

/// What chunks are taken from: a [`Heap`], or a [`Map`], which evicts entries of its heap if need
/// be. One value takes all of its chunks from one of them.
pub trait ChunkSource {
    /// The heap.
    fn heap(&self) -> Heap;

    /// Takes a chunk of at least so many bytes, if there is one.
    ///
    /// # Cooperation
    /// All lanes call it, with nothing locked.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    fn chunk<G: Group>(&self, g: &G, context: &Context, bytes: usize) -> Result<Option<Chunk>>;
}

impl ChunkSource for Heap {
    fn heap(&self) -> Heap {
        *self
    }

    fn chunk<G: Group>(&self, g: &G, context: &Context, bytes: usize) -> Result<Option<Chunk>> {
        self.alloc(g, context.net, bytes)
    }
}

impl<S: Structure> ChunkSource for Map<S> {
    fn heap(&self) -> Heap {
        Map::heap(self)
    }

    fn chunk<G: Group>(&self, g: &G, context: &Context, bytes: usize) -> Result<Option<Chunk>> {
        self.room(g, context, bytes)
    }
}

/// Bytes of one connection, such as a long request as far as it has come. Part of the connection's
/// state, so plain data: a copy is the same bytes. [`Spill::clear`] gives their memory back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spill {
    chunk: u32,
    len: u32,
}

/// A request cannot be collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillError {
    /// There is no memory for it, even without the entries that could be evicted.
    NoMemory,
    /// The launch is over.
    Over(gpunet_device::Error),
}

/// Bytes that a request gets room for at first, if it is so long.
const FIRST: usize = 64 << 10;

impl Spill {
    /// Returns whether nothing was collected.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// What was collected.
    #[must_use]
    pub fn bytes<C: ChunkSource>(&self, source: &C) -> Bytes<'_> {
        match Chunk::from_raw(self.chunk) {
            Some(chunk) => Chunks::of(source.heap()).bytes(chunk, self.len as usize),
            None => Bytes::EMPTY,
        }
    }

    /// Consumes input until `total` bytes are collected, or there is no more of it. It makes room
    /// for what has come, twice as much each time: a length that was announced takes no memory
    /// before the bytes come.
    ///
    /// # Cooperation
    /// All lanes call it. Ends with a barrier.
    ///
    /// # Errors
    /// [`SpillError`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn collect<G: Group, C: ChunkSource>(
        &mut self,
        g: &G,
        context: &Context,
        source: &C,
        input: &mut Reader<'_>,
        total: usize,
    ) -> core::result::Result<(), SpillError> {
        let len = self.len as usize;
        let more = input.rest().first(total.saturating_sub(len));
        // At most what it will be.
        let room = total.min((len + more.len()).max(2 * len).max(FIRST));
        self.put(g, context, source, more, room)?;
        input.consume(more.len());
        Ok(())
    }

    /// Appends bytes.
    ///
    /// # Cooperation
    /// As [`Spill::collect`].
    ///
    /// # Errors
    /// [`SpillError`].
    pub fn append<G: Group, C: ChunkSource>(
        &mut self,
        g: &G,
        context: &Context,
        source: &C,
        bytes: Bytes<'_>,
    ) -> core::result::Result<(), SpillError> {
        let len = self.len as usize;
        // At least twice what it was: what grows bit by bit is not copied each time. But a chunk is
        // never larger than the largest.
        let room = (2 * len).min(crate::MAX_CHUNK).max(len + bytes.len());
        self.put(g, context, source, bytes, room)
    }

    /// Appends bytes; if there is no place for them, in a new chunk with room for `room` bytes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn put<G: Group, C: ChunkSource>(
        &mut self,
        g: &G,
        context: &Context,
        source: &C,
        bytes: Bytes<'_>,
        room: usize,
    ) -> core::result::Result<(), SpillError> {
        let chunks = Chunks::of(source.heap());
        let old = Chunk::from_raw(self.chunk);
        let needed = self.len as usize + bytes.len();
        if old.is_none_or(|chunk| chunks.capacity(chunk) < needed) {
            let new =
                source.chunk(g, context, room).map_err(SpillError::Over)?.ok_or(SpillError::NoMemory)?;
            chunks.write(g, new, 0, self.bytes(source));
            // All lanes have copied before another group may take the old one.
            g.sync();
            self.chunk = new.raw();
            if let Some(old) = old {
                chunks.free(g, context.net, old).map_err(SpillError::Over)?;
            }
        }
        if let Some(chunk) = Chunk::from_raw(self.chunk) {
            chunks.write(g, chunk, self.len as usize, bytes);
            self.len += bytes.len() as u32;
        }
        g.sync();
        Ok(())
    }

    /// Gives the memory back.
    ///
    /// # Errors
    /// The launch is over.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn clear<G: Group, C: ChunkSource>(&mut self, g: &G, context: &Context, source: &C) -> Result<()> {
        self.len = 0;
        match Chunk::from_raw(core::mem::take(&mut self.chunk)) {
            Some(chunk) => Chunks::of(source.heap()).free(g, context.net, chunk),
            None => Ok(()),
        }
    }
}
