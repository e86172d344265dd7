//! Items of a connection, each whole, that wait in the heap: a list of chunks.

use crate::bytes::total;
use crate::heap::{Chunk, MAX_CHUNK};
use crate::map::Chunks;
use crate::spill::{ChunkSource, room_within};
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
    /// Bytes of its chunks.
    held: u32,
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

    /// Bytes of memory that it takes.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held as usize
    }

    /// Appends an item. If that needs a new chunk, it has `most` bytes at most.
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
        most: usize,
    ) -> core::result::Result<(), SpillError> {
        self.append_all(g, context, source, [item], most)
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
        most: usize,
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
            let room = (DATA + len).max(self.len().clamp(FIRST, MAX_CHUNK).min(most / 2));
            let new = room_within(g, context, source, room, most)?;
            self.held += chunks.capacity(new) as u32;
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

    /// Removes the first items: all that [`Queue::first`] shows.
    ///
    /// # Cooperation
    /// All lanes call it. Begins with a barrier.
    ///
    /// # Errors
    /// The launch is over.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn remove_first<G: Group, C: ChunkSource>(
        &mut self,
        g: &G,
        context: &Context,
        source: &C,
    ) -> Result<()> {
        let chunks = Chunks::of(source.heap());
        let Some(first) = Chunk::from_raw(self.first) else { return Ok(()) };
        let memory = chunks.memory(first);
        self.first = memory.u32(NEXT).get();
        self.len -= memory.u32(USED).get();
        self.held -= chunks.capacity(first) as u32;
        if self.first == 0 {
            self.last = 0;
        }
        // All lanes have read it.
        g.sync();
        chunks.free(g, context.net, first)
    }

    /// Gives its memory back.
    ///
    /// # Errors
    /// The launch is over.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn clear<G: Group, C: ChunkSource>(&mut self, g: &G, context: &Context, source: &C) -> Result<()> {
        while self.first != 0 {
            self.remove_first(g, context, source)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Carve, for_test, no_net};
    use crate::{Heap, Map};
    use gpunet_device::group::Solo;
    use std::vec::Vec;

    const G: Solo = Solo::new(0, 1);

    fn map() -> Map {
        let make = |carve: &mut Carve| {
            let heap = Heap::new(carve, 8 << 20);
            Map::new(carve, heap, 1).without_eviction()
        };
        let mut measure = Carve::measure_for(1);
        let _ = make(&mut measure);
        make(&mut Carve::new(for_test(measure.used()), 1))
    }

    #[test]
    fn items_are_removed_from_the_front_with_their_memory() {
        let (map, context) = (map(), Context { net: no_net(), now: 0 });
        let mut queue = Queue::default();
        let items: Vec<Vec<u8>> = (0..300).map(|at| std::vec![at as u8; at]).collect();
        items.iter().for_each(|item| queue.append(&G, &context, &map, item[..].into(), usize::MAX).unwrap());
        let all: Vec<u8> = items.concat();
        assert_eq!((queue.len(), queue.held()), (all.len(), map.used(&G)));
        let (mut found, mut chunks) = (Vec::new(), 0);
        while let Some(first) = queue.first(&map) {
            found.extend((0..first.bytes.len()).map(|at| first.bytes.get(at)));
            queue.remove_first(&G, &context, &map).unwrap();
            assert_eq!((queue.len(), queue.held()), (all.len() - found.len(), map.used(&G)));
            chunks += 1;
        }
        assert!(found == all && chunks > 3, "{chunks} chunks");
        // It is as a new one.
        queue.append(&G, &context, &map, b"more".into(), usize::MAX).unwrap();
        assert!(queue.first(&map).unwrap().bytes == crate::Bytes::from(&b"more"[..]));
        queue.clear(&G, &context, &map).unwrap();
        assert_eq!((queue.len(), queue.held(), map.used(&G)), (0, 0, 0));
    }

    #[test]
    fn a_queue_takes_no_larger_chunks_than_it_may() {
        let (map, context) = (map(), Context { net: no_net(), now: 0 });
        let mut queue = Queue::default();
        let append = |queue: &mut Queue, len: usize, most| {
            queue.append(&G, &context, &map, std::vec![7; len][..].into(), most)
        };
        assert_eq!(append(&mut queue, 5000, 4096), Err(SpillError::NoMemory));
        assert_eq!(append(&mut queue, 5000, 8192), Ok(()));
        // It would like twice as much as there was, and takes what it may.
        assert_eq!(append(&mut queue, 4000, 4096), Ok(()));
        assert_eq!((queue.len(), queue.held()), (9000, 8192 + 4096));
        // What fits where there is room needs no more.
        assert_eq!(append(&mut queue, 10, 0), Ok(()));
        assert_eq!(append(&mut queue, 4000, 2048), Err(SpillError::NoMemory));
        queue.clear(&G, &context, &map).unwrap();
        assert_eq!(map.used(&G), 0);
    }
}
