//! A request that is longer than what its ring should hold, collected in the heap.

use crate::heap::Chunk;
use crate::map::{Chunks, Map, Structure};
use crate::{Bytes, Context, Reader};
use gpunet_device::{Group, Result};

/// A long request of one connection, as far as it has come. Part of the connection's state, so plain data: a copy is the same request.
/// [`Spill::clear`] gives its memory back.
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

    /// What was collected.
    #[must_use]
    pub fn bytes<S: Structure>(&self, map: &Map<S>) -> Bytes<'_> {
        match Chunk::from_raw(self.chunk) {
            Some(chunk) => Chunks::of(map.heap()).bytes(chunk, self.len as usize),
            None => Bytes::EMPTY,
        }
    }

    /// Consumes input until `total` bytes are collected, or there is no more of it. It makes room for what has come, twice as much each
    /// time: a length that was announced takes no memory before the bytes come.
    ///
    /// # Cooperation
    /// All lanes call it. Ends with a barrier.
    ///
    /// # Errors
    /// [`SpillError`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn collect<G: Group, S: Structure>(
        &mut self,
        g: &G,
        context: &Context,
        map: &Map<S>,
        input: &mut Reader<'_>,
        total: usize,
    ) -> core::result::Result<(), SpillError> {
        let chunks = Chunks::of(map.heap());
        let old = Chunk::from_raw(self.chunk);
        let len = self.len as usize;
        let needed = total.min(len + input.rest().len());
        if old.is_none_or(|chunk| chunks.capacity(chunk) < needed) {
            let room = total.min(needed.max(2 * len).max(FIRST));
            let new = map.room(g, context, room).map_err(SpillError::Over)?.ok_or(SpillError::NoMemory)?;
            chunks.write(g, new, 0, self.bytes(map));
            // All lanes have copied before another group may take the old one.
            g.sync();
            self.chunk = new.raw();
            if let Some(old) = old {
                chunks.free(g, context.net, old).map_err(SpillError::Over)?;
            }
        }
        if let Some(chunk) = Chunk::from_raw(self.chunk) {
            let more = input.rest().first(total.saturating_sub(self.len as usize));
            chunks.write(g, chunk, self.len as usize, more);
            input.consume(more.len());
            self.len += more.len() as u32;
        }
        g.sync();
        Ok(())
    }

    /// Gives the memory back.
    ///
    /// # Errors
    /// The launch is over.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn clear<G: Group, S: Structure>(&mut self, g: &G, context: &Context, map: &Map<S>) -> Result<()> {
        self.len = 0;
        match Chunk::from_raw(core::mem::take(&mut self.chunk)) {
            Some(chunk) => Chunks::of(map.heap()).free(g, context.net, chunk),
            None => Ok(()),
        }
    }
}
