//! Memory for values of any size, shared by the blocks of a device: a buddy allocator.
//!
//! `region` makes a large chunk of small ones whose holders give them up.

mod region;

use crate::lock::Lock;
use crate::memory::{Carve, Memory};
use gpunet_device::{Error, Group, Net, Result};
pub(crate) use region::Step;

/// The smallest chunk.
const UNIT: usize = 64;
/// Chunks have `UNIT << order` bytes, up to this order: 4 MiB.
const MAX_ORDER: usize = 16;
/// The largest chunk, in bytes.
pub const MAX_CHUNK: usize = UNIT << MAX_ORDER;
/// In the byte of a chunk's first unit: it is free, and its order is in the lower bits. 0: no chunk
/// begins here.
const FREE: u8 = 0x80;
const TAKEN: u8 = 0x40;
/// With [`TAKEN`]: whoever wants a region for a larger chunk may ask its holder to give it up.
const ITEM: u8 = 0x20;
/// The bits of the order.
const ORDER: u8 = 0x1f;
/// Chunks of each size that are kept as they are when they are given back: the next of that size is
/// taken without a division, and given back without merging what was divided. On a GPU each step of
/// these is a load that the next one waits for.
const KEPT: u32 = 16;

/// Where things are in the heap's head.
mod head {
    pub const LOCK: usize = 0;
    /// Chunks of the largest size that were never used begin here.
    pub const FRONTIER: usize = 4;
    /// Units in use.
    pub const USED: usize = 8;
    /// The unit behind which regions are looked for.
    pub const HAND: usize = 12;
    /// The first free chunk of each order: its unit + 1.
    pub const LISTS: usize = 16;
    /// For each order the first chunk that is kept, as above, and how many are.
    pub const KEPT: usize = LISTS + 4 * (super::MAX_ORDER + 1);
    pub const LEN: usize = KEPT + 8 * (super::MAX_ORDER + 1);
}

/// A chunk of a [`Heap`]: its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Chunk(u32);

impl Chunk {
    /// The number that names it in shared memory; never 0.
    #[must_use]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The chunk of a number that [`Chunk::raw`] gave; 0 is none.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        if raw == 0 { None } else { Some(Self(raw)) }
    }

    const fn unit(self) -> usize {
        self.0 as usize - 1
    }
}

/// Memory of a fixed size from which blocks take chunks of 64 bytes to 4 MiB, each a power of two.
///
/// Chunks that are given back merge with their neighbours, so memory that held many small values
/// can hold large ones again. A few of each size merge only when a chunk is wanted that there is
/// not.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    head: Memory,
    /// A byte for each unit.
    states: Memory,
    units: Memory,
}

impl Heap {
    /// A heap of `bytes` bytes, cut to a multiple of [`MAX_CHUNK`] and at least that.
    #[must_use]
    pub fn new(carve: &mut Carve, bytes: usize) -> Self {
        let chunks = if bytes < MAX_CHUNK { 1 } else { bytes / MAX_CHUNK };
        let units = chunks << MAX_ORDER;
        Self { head: carve.take(head::LEN), states: carve.take(units), units: carve.take(units * UNIT) }
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        self.units.len()
    }

    /// Returns whether it has no bytes, which no heap has.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Bytes of chunks that are in use, as of some moment ago.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    #[must_use]
    pub fn used<G: Group>(self, g: &G) -> usize {
        g.broadcast(self.head.u32(head::USED).get() as u64) as usize * UNIT
    }

    /// Takes a chunk of at least `bytes` bytes; `None` when there is none.
    ///
    /// # Cooperation
    /// All lanes call it and get the same chunk.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub fn alloc<G: Group>(self, g: &G, net: Net, bytes: usize) -> Result<Option<Chunk>> {
        self.take_as(g, net, bytes, TAKEN)
    }

    /// As [`Heap::alloc`], of an item: what [`Heap::choose_region`] may ask for.
    pub(crate) fn alloc_item<G: Group>(self, g: &G, net: Net, bytes: usize) -> Result<Option<Chunk>> {
        self.take_as(g, net, bytes, TAKEN | ITEM)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn take_as<G: Group>(self, g: &G, net: Net, bytes: usize, state: u8) -> Result<Option<Chunk>> {
        let Some(order) = order_of(bytes) else { return Ok(None) };
        // One lane does it all: it is a walk through lists.
        let found = self.locked(g, net, || match self.take(order) {
            Some(unit) => {
                self.states.set_byte(unit, state | order as u8);
                unit as u64 + 1
            }
            None => 0,
        })?;
        Ok(Chunk::from_raw(found as u32))
    }

    /// Runs `change` under the heap's lock, by one lane; all lanes get what it returns.
    #[inline(always)]
    fn locked<G: Group>(self, g: &G, net: Net, change: impl FnOnce() -> u64) -> Result<u64> {
        let found = if g.is_leader() {
            let lock = Lock::at(self.head, head::LOCK);
            match lock.acquire_alone(g, net) {
                Ok(()) => {
                    let found = change();
                    lock.release_alone();
                    found
                }
                Err(error) => FAILED | error.errno() as u64,
            }
        } else {
            0
        };
        match g.broadcast(found) {
            found if found & FAILED != 0 => Err(Error::from_errno(found as u32 as i32)),
            found => Ok(found),
        }
    }

    /// Gives a chunk back.
    ///
    /// # Cooperation
    /// All lanes call it, once.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn free<G: Group>(self, g: &G, net: Net, chunk: Chunk) -> Result<()> {
        // No lane uses it any more.
        let lock = Lock::at(self.head, head::LOCK);
        lock.acquire(g, net)?;
        if g.is_leader() {
            self.give(chunk.unit());
        }
        lock.release(g);
        Ok(())
    }

    /// The memory of a chunk. Whoever has taken it vouches for its use.
    #[inline(always)]
    pub(crate) fn memory(self, chunk: Chunk) -> Memory {
        self.units.part(chunk.unit() * UNIT, self.capacity(chunk))
    }

    /// The memory from a chunk's first byte on, to the end of the heap: without a look at how long
    /// the chunk is, for its head.
    #[inline(always)]
    pub(crate) fn memory_from(self, chunk: Chunk) -> Memory {
        let start = self.start(chunk);
        self.units.part(start, self.units.len().saturating_sub(start))
    }

    /// Where a chunk begins, in bytes from the first.
    #[inline(always)]
    pub(crate) const fn start(self, chunk: Chunk) -> usize {
        chunk.unit() * UNIT
    }

    /// A word of 32 bits of some chunk, which nobody writes meanwhile.
    #[inline(always)]
    pub(crate) fn word(self, at: usize) -> u32 {
        self.units.stable_u32(at)
    }

    /// The address of some byte.
    #[inline(always)]
    pub(crate) fn address(self, at: usize) -> *const u8 {
        self.units.as_ptr().wrapping_add(at)
    }

    /// How many bytes a chunk has.
    #[inline(always)]
    pub(crate) fn capacity(self, chunk: Chunk) -> usize {
        UNIT << (self.states.byte(chunk.unit()) & ORDER)
    }

    fn list(self, order: usize) -> crate::word::Word32 {
        self.head.u32(head::LISTS + 4 * order)
    }

    /// A free chunk's neighbours in its list.
    fn next(self, unit: usize) -> crate::word::Word32 {
        self.units.u32(unit * UNIT)
    }

    fn previous(self, unit: usize) -> crate::word::Word32 {
        self.units.u32(unit * UNIT + 4)
    }

    fn push(self, unit: usize, order: usize) {
        self.states.set_byte(unit, FREE | order as u8);
        let first = self.list(order).get();
        self.next(unit).set(first);
        self.previous(unit).set(0);
        if first != 0 {
            self.previous(first as usize - 1).set(unit as u32 + 1);
        }
        self.list(order).set(unit as u32 + 1);
    }

    fn remove(self, unit: usize, order: usize) {
        let (next, previous) = (self.next(unit).get(), self.previous(unit).get());
        match previous {
            0 => self.list(order).set(next),
            previous => self.next(previous as usize - 1).set(next),
        }
        if next != 0 {
            self.previous(next as usize - 1).set(previous);
        }
        self.states.set_byte(unit, 0);
    }

    /// The first chunk of an order that is kept, and how many are.
    fn kept(self, order: usize) -> (crate::word::Word32, crate::word::Word32) {
        let at = head::KEPT + 8 * order;
        (self.head.u32(at), self.head.u32(at + 4))
    }

    /// Takes a chunk of an order that is kept.
    fn take_kept(self, order: usize) -> Option<usize> {
        let (first, count) = self.kept(order);
        let unit = (first.get() as usize).checked_sub(1)?;
        first.set(self.next(unit).get());
        count.set(count.get() - 1);
        Some(unit)
    }

    /// Keeps a chunk, unless enough of its order are. Returns whether it does. For the others it is
    /// in use.
    fn keep(self, unit: usize, order: usize) -> bool {
        let (first, count) = self.kept(order);
        if count.get() == KEPT {
            return false;
        }
        self.next(unit).set(first.get());
        first.set(unit as u32 + 1);
        count.set(count.get() + 1);
        true
    }

    /// Takes a chunk under the lock.
    fn take(self, wanted: usize) -> Option<usize> {
        let found = match self.take_kept(wanted) {
            Some(unit) => Some(unit),
            None => self.divide(wanted).or_else(|| {
                // What is kept may be part of what is wanted.
                let mut order = 0;
                while order <= MAX_ORDER {
                    while let Some(unit) = self.take_kept(order) {
                        self.merge(unit, order);
                    }
                    order += 1;
                }
                self.divide(wanted)
            }),
        };
        let used = self.head.u32(head::USED);
        used.set(used.get() + if found.is_some() { 1 << wanted } else { 0 });
        found
    }

    /// Gives a chunk back under the lock.
    fn give(self, unit: usize) {
        let order = (self.states.byte(unit) & ORDER) as usize;
        self.states.set_byte(unit, TAKEN | order as u8);
        let used = self.head.u32(head::USED);
        used.set(used.get() - (1 << order));
        if !self.keep(unit, order) {
            self.merge(unit, order);
        }
    }

    /// Takes a free chunk, or a part of a larger one.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn divide(self, wanted: usize) -> Option<usize> {
        let mut order = wanted;
        while order <= MAX_ORDER && self.list(order).get() == 0 {
            order += 1;
        }
        let unit = if order <= MAX_ORDER {
            let unit = self.list(order).get() as usize - 1;
            self.remove(unit, order);
            unit
        } else {
            let frontier = self.head.u32(head::FRONTIER);
            let unit = (frontier.get() as usize) << MAX_ORDER;
            if unit >= self.units.len() / UNIT {
                return None;
            }
            frontier.set(frontier.get() + 1);
            order = MAX_ORDER;
            unit
        };
        while order > wanted {
            order -= 1;
            self.push(unit + (1 << order), order);
        }
        self.states.set_byte(unit, TAKEN | wanted as u8);
        Some(unit)
    }

    /// Makes a chunk free, as part of a larger one if its neighbours are.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn merge(self, mut unit: usize, mut order: usize) {
        self.states.set_byte(unit, 0);
        while order < MAX_ORDER {
            let buddy = unit ^ (1 << order);
            if self.states.byte(buddy) != FREE | order as u8 {
                break;
            }
            self.remove(buddy, order);
            unit &= !(1 << order);
            order += 1;
        }
        self.push(unit, order);
    }
}

/// Marks an errno in a broadcast number.
const FAILED: u64 = 1 << 63;

fn order_of(bytes: usize) -> Option<usize> {
    let units = bytes.div_ceil(UNIT).next_power_of_two();
    let order = units.trailing_zeros() as usize;
    if order <= MAX_ORDER { Some(order) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{for_test, no_net};
    use gpunet_device::group::Solo;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn heap(chunks: usize) -> Heap {
        let mut measure = Carve::measure();
        let _ = Heap::new(&mut measure, chunks * MAX_CHUNK);
        Heap::new(&mut Carve::new(for_test(measure.used()), 1), chunks * MAX_CHUNK)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn chunks_never_overlap_and_all_memory_comes_back(steps in prop::collection::vec((any::<bool>(), 0usize..300_000, any::<usize>()), 1..200)) {
            let (g, net, heap) = (Solo::new(0, 1), no_net(), heap(2));
            let mut held: Vec<(Chunk, usize)> = Vec::new();
            for (takes, bytes, which) in steps {
                if takes || held.is_empty() {
                    let Some(chunk) = heap.alloc(&g, net, bytes).unwrap() else { continue };
                    let (start, len) = (chunk.unit() * UNIT, heap.capacity(chunk));
                    prop_assert!(len >= bytes && start + len <= heap.len());
                    for (other, other_len) in &held {
                        let other = other.unit() * UNIT;
                        prop_assert!(start + len <= other || other + other_len <= start);
                    }
                    held.push((chunk, len));
                } else {
                    let (chunk, _) = held.swap_remove(which % held.len());
                    heap.free(&g, net, chunk).unwrap();
                }
                prop_assert_eq!(heap.used(&g), held.iter().map(|(_, len)| len).sum::<usize>());
            }
            for (chunk, _) in held {
                heap.free(&g, net, chunk).unwrap();
            }
            for _ in 0..2 {
                prop_assert!(heap.alloc(&g, net, MAX_CHUNK).unwrap().is_some());
            }
            prop_assert!(heap.alloc(&g, net, 1).unwrap().is_none());
        }
    }

    #[test]
    fn what_is_larger_than_a_chunk_is_refused() {
        assert_eq!(heap(1).alloc(&Solo::new(0, 1), no_net(), MAX_CHUNK + 1), Ok(None));
    }
}
