//! Memory of a set that grows: units of one size in segments of the heap.

use crate::Map;
use core::cell::Cell;
use gpunet_device::{Group, Net, Result};
use gpunet_serve::raw::{Chunks, Word32};
use gpunet_serve::{Chunk, Context, MAX_CHUNK, Memory};

/// Units of one size. The first segment grows by doubling until it has the size of the largest
/// chunk; all others have that.
///
/// Whoever may read the set may read it; whoever may change the set may let it grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Array {
    chunks: Chunks,
    /// The chunk of the table with the segments' chunks, how many segments there are, and how many
    /// units in all.
    head: Memory,
    /// Bytes of a unit.
    unit: usize,
}

/// An [`Array`] that does not grow meanwhile, as one lane sees it.
#[derive(Debug)]
pub(super) struct Still {
    chunks: Chunks,
    /// Where the table begins.
    table: usize,
    unit: usize,
    per_segment: u32,
    /// The segment that was asked for last, and where it begins.
    last: Cell<(u32, *const u8)>,
}

impl Still {
    /// Where a unit begins. There is one.
    #[inline(always)]
    pub(super) fn start(&self, index: u32) -> *const u8 {
        let (segment, unit) = (index / self.per_segment, index % self.per_segment);
        let (last, mut start) = self.last.get();
        if segment != last {
            start = match Chunk::from_raw(self.chunks.word(self.table + 4 * segment as usize)) {
                Some(chunk) => self.chunks.address(self.chunks.start(chunk)),
                None => core::ptr::null(),
            };
            self.last.set((segment, start));
        }
        start.wrapping_add(unit as usize * self.unit)
    }
}

impl Array {
    pub(super) const fn new(chunks: Chunks, head: Memory, unit: usize) -> Self {
        Self { chunks, head, unit }
    }

    fn table(self) -> Word32 {
        self.head.u32(0)
    }

    fn segments(self) -> Word32 {
        self.head.u32(4)
    }

    fn capacity(self) -> Word32 {
        self.head.u32(8)
    }

    const fn per_segment(self) -> usize {
        MAX_CHUNK / self.unit
    }

    /// The chunk of a segment, and which unit of it unit `index` is.
    #[inline(always)]
    fn place(self, index: usize) -> Option<(Chunk, usize)> {
        // Both have 32 bits: a division of 64 takes a GPU long.
        let (index, per) = (index as u32, self.per_segment() as u32);
        let table = self.chunks.start(Chunk::from_raw(self.table().get())?);
        let chunk = Chunk::from_raw(self.chunks.word(table + 4 * (index / per) as usize))?;
        Some((chunk, (index % per) as usize))
    }

    /// The memory of a unit that there is.
    pub(super) fn unit(self, index: usize) -> Memory {
        match self.place(index) {
            Some((chunk, unit)) => self.chunks.memory(chunk).part(unit * self.unit, self.unit),
            None => panic!("a unit that the array does not have"),
        }
    }

    /// The array as it is while the set is read: its table stays where it is.
    pub(super) fn still(self) -> Still {
        let table = Chunk::from_raw(self.table().get()).map_or(0, |table| self.chunks.start(table));
        Still {
            chunks: self.chunks,
            table,
            unit: self.unit,
            per_segment: self.per_segment() as u32,
            last: Cell::new((u32::MAX, core::ptr::null())),
        }
    }

    /// Makes it have `units` units at least. Returns whether there was memory.
    ///
    /// # Cooperation
    /// All lanes. Ends with a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn reserve<G: Group>(
        self,
        g: &G,
        context: &Context,
        map: &Map,
        units: usize,
        first: usize,
    ) -> Result<bool> {
        while (self.capacity().get() as usize) < units {
            let (segments, capacity) = (self.segments().get() as usize, self.capacity().get() as usize);
            let more = match segments {
                0 => self.add_segment(g, context, map, first.min(self.per_segment()))?,
                1 if capacity < self.per_segment() => self.grow_first(g, context, map, capacity)?,
                _ => self.add_segment(g, context, map, self.per_segment())?,
            };
            if !more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn grow_first<G: Group>(self, g: &G, context: &Context, map: &Map, capacity: usize) -> Result<bool> {
        let units = (2 * capacity).min(self.per_segment());
        let Some(new) = map.room(g, context, units * self.unit)? else { return Ok(false) };
        let Some((old, _)) = self.place(0) else { return Ok(false) };
        self.chunks.write(g, new, 0, self.chunks.bytes(old, capacity * self.unit));
        // All lanes have copied, and read the table.
        g.sync();
        self.install(g, 0, new, 0);
        self.chunks.free(g, context.net, old)?;
        Ok(true)
    }

    fn add_segment<G: Group>(self, g: &G, context: &Context, map: &Map, units: usize) -> Result<bool> {
        let segments = self.segments().get() as usize;
        if !self.grow_table(g, context, map, segments + 1)? {
            return Ok(false);
        }
        let Some(new) = map.room(g, context, units * self.unit)? else { return Ok(false) };
        self.install(g, segments, new, self.capacity().get() as usize);
        Ok(true)
    }

    /// Puts a segment into the table, which the units of those before it precede. All lanes; begins
    /// and ends with a barrier.
    fn install<G: Group>(self, g: &G, segment: usize, new: Chunk, before: usize) {
        let units = (self.chunks.capacity(new) / self.unit).min(self.per_segment());
        g.sync();
        if g.is_leader()
            && let Some(table) = Chunk::from_raw(self.table().get())
        {
            self.chunks.memory(table).u32(4 * segment).set(new.raw());
            self.capacity().set((before + units) as u32);
            self.segments().set(segment as u32 + 1);
        }
        g.sync();
    }

    fn grow_table<G: Group>(self, g: &G, context: &Context, map: &Map, segments: usize) -> Result<bool> {
        let old = Chunk::from_raw(self.table().get());
        let len = old.map_or(0, |table| self.chunks.capacity(table));
        if 4 * segments <= len {
            return Ok(true);
        }
        let Some(new) = map.room(g, context, 2 * len)? else { return Ok(false) };
        if let Some(old) = old {
            self.chunks.write(g, new, 0, self.chunks.bytes(old, len));
        }
        g.sync();
        if g.is_leader() {
            self.table().set(new.raw());
        }
        g.sync();
        if let Some(old) = old {
            self.chunks.free(g, context.net, old)?;
        }
        Ok(true)
    }

    /// Gives all of it back. All lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn free<G: Group>(self, g: &G, net: Net) -> Result<()> {
        let Some(table) = Chunk::from_raw(self.table().get()) else { return Ok(()) };
        let (segments, mut segment) = (self.segments().get() as usize, 0);
        while segment < segments {
            if let Some(chunk) = Chunk::from_raw(self.chunks.memory(table).u32(4 * segment).get()) {
                self.chunks.free(g, net, chunk)?;
            }
            segment += 1;
        }
        self.chunks.free(g, net, table)
    }
}
