//! Items of a connection, each whole, that wait in the heap: a list of chunks.

use crate::bytes::total;
use crate::heap::{Chunk, MAX_CHUNK};
use crate::map::Chunks;
use crate::spill::ChunkSource;
use crate::{Bytes, Context, SpillError};
use gpunet_device::{Group, Result};

/// Where a chunk has the number of the next one, how many of its bytes are used, and where they
/// begin.
const NEXT: usize = 0;
const USED: usize = 4;
const DATA: usize = 16;
/// Bytes of the first chunk.
const FIRST: usize = 1 << 10;

/// Items of one connection, one behind the other, such as the requests of a transaction. Part of
/// the connection's state, so plain data: a copy is the same queue. [`Queue::clear`] gives its
/// memory back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue {
    first: u32,
    last: u32,
    len: u32,
}

/// Some items of a [`Queue`].
#[derive(Clone, Copy, Debug)]
pub struct Queued<'q> {
    /// One behind the other, the last one whole.
    pub bytes: Bytes<'q>,
    next: u32,
}

impl Queue {
    /// Bytes of all items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends an item.
    ///
    /// # Cooperation
    /// All lanes call it. Ends with a barrier.
    ///
    /// # Errors
    /// [`SpillError`]. An item of nearly [`MAX_CHUNK`] or more has no room.
    pub fn append<G: Group, C: ChunkSource>(
        &mut self,
        g: &G,
        context: &Context,
        source: &C,
        item: Bytes<'_>,
    ) -> core::result::Result<(), SpillError> {
        self.append_all(g, context, source, [item])
    }

    /// Appends an item that is given in parts.
    ///
    /// # Cooperation
    /// As [`Queue::append`].
    ///
    /// # Errors
    /// As [`Queue::append`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn append_all<G: Group, C: ChunkSource, const N: usize>(
        &mut self,
        g: &G,
        context: &Context,
        source: &C,
        item: [Bytes<'_>; N],
    ) -> core::result::Result<(), SpillError> {
        let len = total(&item);
        let chunks = Chunks::of(source.heap());
        let used = |chunk| chunks.memory(chunk).u32(USED).get() as usize;
        let mut last =
            Chunk::from_raw(self.last).filter(|last| DATA + used(*last) + len <= chunks.capacity(*last));
        // All lanes have read what is there.
        g.sync();
        if last.is_none() {
            // Twice as much each time, so that the list is short.
            let room = (DATA + len).max(self.len().clamp(FIRST, MAX_CHUNK));
            let new =
                source.chunk(g, context, room).map_err(SpillError::Over)?.ok_or(SpillError::NoMemory)?;
            if g.is_leader() {
                chunks.memory(new).u32(NEXT).set(0);
                chunks.memory(new).u32(USED).set(0);
                if let Some(last) = Chunk::from_raw(self.last) {
                    chunks.memory(last).u32(NEXT).set(new.raw());
                }
            }
            g.sync();
            self.last = new.raw();
            self.first = if self.first == 0 { new.raw() } else { self.first };
            last = Some(new);
        }
        if let Some(last) = last {
            let at = used(last);
            chunks.memory(last).part(DATA + at, len).fill_all(g, &item);
            g.sync();
            if g.is_leader() {
                chunks.memory(last).u32(USED).set((at + len) as u32);
            }
            self.len += len as u32;
        }
        g.sync();
        Ok(())
    }

    /// The first items.
    #[must_use]
    pub fn first<C: ChunkSource>(&self, source: &C) -> Option<Queued<'_>> {
        at(source, self.first)
    }

    /// Gives its memory back.
    ///
    /// # Errors
    /// The launch is over.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn clear<G: Group, C: ChunkSource>(&mut self, g: &G, context: &Context, source: &C) -> Result<()> {
        let chunks = Chunks::of(source.heap());
        let Self { first: mut next, .. } = core::mem::take(self);
        while let Some(chunk) = Chunk::from_raw(next) {
            next = g.broadcast(chunks.memory(chunk).u32(NEXT).get() as u64) as u32;
            chunks.free(g, context.net, chunk)?;
        }
        Ok(())
    }
}

impl<'q> Queued<'q> {
    /// Those behind them.
    #[must_use]
    pub fn next<C: ChunkSource>(&self, source: &C) -> Option<Self> {
        at(source, self.next)
    }
}

fn at<'q, C: ChunkSource>(source: &C, number: u32) -> Option<Queued<'q>> {
    let (chunks, chunk) = (Chunks::of(source.heap()), Chunk::from_raw(number)?);
    let memory = chunks.memory(chunk);
    let bytes = memory.part(DATA, memory.u32(USED).get() as usize).stable_bytes();
    Some(Queued { bytes, next: memory.u32(NEXT).get() })
}
