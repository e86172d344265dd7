//! A hash map of byte strings in the device's memory, shared by its blocks: a fixed number of
//! buckets, bounded memory.
//!
//! | file | holds |
//! |---|---|
//! | `entry` | an entry: a header, the key and the value in a chunk of the heap |
//! | `key` | keys in spaces |
//! | `locked` | a bucket that a group has locked, and the entry of one key in it |
//! | `hold` | many buckets that a group holds at a time |
//! | `scan` | all entries, some at a time |
//! | `evict` | how room is made |
//! | `structure` | values that are structures with chunks of their own |

mod entry;
mod evict;
mod hold;
mod key;
mod locked;
mod scan;
mod structure;

use crate::bytes::total;
use crate::heap::{Chunk, Heap};
use crate::items::put_each;
use crate::lock::Lock;
use crate::memory::{Carve, Memory};
use crate::{Bytes, Context};
use core::marker::PhantomData;
use entry::Entry;
use gpunet_device::{Group, Net, Result};
pub use hold::{Hold, MAX_HELD};
pub use key::{Key, SPACES};
pub use locked::Locked;
pub use scan::Scan;
pub use structure::{Chunks, NoStructure, Structure};

/// Bytes of a bucket: its lock, and its first entry.
const BUCKET: usize = 8;
/// Buckets that [`Map::clear_some`] looks at, at most.
const EMPTY_OF_A_PART: usize = 1 << 15;
/// Bytes of a block's counts: a word for each space.
const COUNTS: usize = SPACES as usize * 8;

/// A map from byte strings to byte strings, with times at which entries expire. Values can also be
/// of one other kind, a [`Structure`].
///
/// Each bucket has a lock. When the heap is full, entries are evicted that were not used since the
/// hand of a clock passed them last (CLOCK, which approximates least recently used).
#[derive(Clone, Copy, Debug)]
pub struct Map<S: Structure = NoStructure> {
    heap: Heap,
    buckets: Memory,
    /// How many entries each block has added, less those that it has removed, by their spaces.
    counts: Memory,
    /// The clock's hand, and how many entries were evicted and have expired.
    clock: Memory,
    /// The buckets that each block holds.
    held: Memory,
    /// By which keys are hashed.
    seed: [u64; 2],
    mask: usize,
    evicts: bool,
    kind: PhantomData<fn() -> S>,
}

/// An entry that is kept from being freed while its value is being sent, whatever happens to its
/// key.
///
/// Plain data, so that a connection's state can have one: a copy is the same pin, which is given
/// back once.
#[derive(Clone, Copy, Debug)]
pub struct Pin {
    entry: Chunk,
    len: usize,
}

impl Pin {
    /// How long the value was when it was pinned; it may have become longer.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the value was empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its entry. It names the value in shared memory, as long as it is pinned.
    #[must_use]
    pub const fn entry(&self) -> Chunk {
        self.entry
    }
}

/// A text that is put together in the heap, to be sent from where it lies.
#[derive(Debug)]
pub struct Text {
    entry: Chunk,
    len: usize,
}

/// A filled entry that no map has yet.
#[derive(Debug)]
pub struct Fresh {
    entry: Chunk,
}

impl<S: Structure> Map<S> {
    /// A map with `buckets` buckets, rounded up to a power of two, whose entries lie in `heap`.
    #[must_use]
    pub fn new(carve: &mut Carve, heap: Heap, buckets: usize) -> Self {
        let buckets = buckets.next_power_of_two();
        let (counts, clock, held) = (carve.blocks() * COUNTS, 64, carve.blocks() * hold::WORDS);
        Self {
            heap,
            buckets: carve.take(buckets * BUCKET),
            counts: carve.take(counts),
            clock: carve.take(clock),
            held: carve.take(held),
            seed: carve.seed(),
            mask: buckets - 1,
            evicts: true,
            kind: PhantomData,
        }
    }

    /// The same map, which evicts nothing: when its heap is full there is no room for new entries.
    /// For what must not be lost.
    ///
    /// A map that evicts is a cache: any entry may go, also one that was used a moment ago.
    #[must_use]
    pub const fn without_eviction(self) -> Self {
        Self { evicts: false, ..self }
    }

    /// Entries of all blocks, those that have expired and were not touched since included.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    #[must_use]
    pub fn len<G: Group>(&self, g: &G) -> u64 {
        self.sum(g, 0, 8)
    }

    /// The same of one space.
    ///
    /// # Cooperation
    /// As [`Map::len`].
    #[must_use]
    pub fn len_of<G: Group>(&self, g: &G, space: u32) -> u64 {
        self.sum(g, (space % SPACES) as usize * 8, COUNTS)
    }

    /// The sum of the counts from `at` on, `step` bytes apart.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn sum<G: Group>(&self, g: &G, mut at: usize, step: usize) -> u64 {
        let mut sum = 0u64;
        while at < self.counts.len() {
            sum = sum.wrapping_add(self.counts.u64(at).get());
            at += step;
        }
        g.broadcast(if sum > i64::MAX as u64 { 0 } else { sum })
    }

    /// Returns whether it has no entries, as [`Map::len`] has it.
    #[must_use]
    pub fn is_empty<G: Group>(&self, g: &G) -> bool {
        self.len(g) == 0
    }

    /// Entries that were evicted.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    #[must_use]
    pub fn evicted<G: Group>(&self, g: &G) -> u64 {
        g.broadcast(self.clock.u64(8).get())
    }

    /// Takes the lock of a key's bucket and finds its entry, unless that has expired: it is removed
    /// then.
    ///
    /// # Cooperation
    /// All lanes call it with the same key. While one holds a bucket, it must not lock another.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub fn lock<'a, G: Group>(
        &'a self,
        g: &'a G,
        context: &Context,
        key: Key<'_>,
    ) -> Result<Locked<'a, G, S>> {
        Locked::find(self, g, context, &key)
    }

    /// As [`Map::lock`], inline, for the one place in a service that most requests pass: a GPU then
    /// keeps what it has found in registers. The lock empties the cache of what is not there.
    ///
    /// `None`: the entry has expired, and [`Map::lock`] removes it. The bucket is not locked.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    #[inline(always)]
    pub fn lock_inline<'a, G: Group>(
        &'a self,
        g: &'a G,
        context: &Context,
        key: Key<'_>,
    ) -> Result<Option<Locked<'a, G, S>>> {
        let (found, has_expired) = Locked::search(self, g, context, &key)?;
        Ok(if has_expired { None } else { Some(found) })
    }

    /// Makes an entry that [`Locked::put`] puts into the map: with that key, and with room for
    /// `room` bytes of value. The first of them are `value`. Entries are evicted if there is no
    /// memory. `None`: there is none even so.
    ///
    /// # Cooperation
    /// All lanes call it, with no bucket locked.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn fresh<G: Group>(
        &self,
        g: &G,
        context: &Context,
        key: Key<'_>,
        value: Bytes<'_>,
        room: usize,
    ) -> Result<Option<Fresh>> {
        let room = if room > value.len() { room } else { value.len() };
        let bytes = Entry::bytes(key.bytes.len(), room);
        let Some(chunk) = evict::alloc(self, g, context, bytes, true)? else { return Ok(None) };
        let entry = Entry::at(self.heap, chunk);
        entry.fill(g, &key, self.hash(&key), value);
        Ok(Some(Fresh { entry: chunk }))
    }

    /// As [`Map::fresh`], of a structure. One lane fills its root by `init`.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    ///
    /// # Safety
    /// What `init` makes of the root is a value of the kind, which has its chunks for itself.
    #[allow(unsafe_code)]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub unsafe fn fresh_structure<G: Group>(
        &self,
        g: &G,
        context: &Context,
        key: Key<'_>,
        init: impl FnOnce(Memory),
    ) -> Result<Option<Fresh>> {
        let Some(fresh) = self.fresh(g, context, key, Bytes::EMPTY, S::ROOT)? else { return Ok(None) };
        if g.is_leader() {
            init(Chunks::of(self.heap).root::<S>(fresh.entry));
            Entry::at(self.heap, fresh.entry).set_structure();
        }
        g.sync();
        Ok(Some(fresh))
    }

    /// Begins a text with room for `room` bytes. `None`: there is no memory, even without the
    /// entries that could be evicted.
    ///
    /// # Cooperation
    /// As [`Map::fresh`].
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn text<G: Group>(&self, g: &G, context: &Context, room: usize) -> Result<Option<Text>> {
        let fresh = self.fresh(g, context, Bytes::EMPTY.into(), Bytes::EMPTY, room)?;
        Ok(fresh.map(|fresh| Text { entry: fresh.entry, len: 0 }))
    }

    /// Appends parts to a text, one behind the other: all, or none if there is no room for all. All
    /// lanes, without a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn append_all<G: Group, const N: usize>(&self, g: &G, text: &mut Text, parts: [Bytes<'_>; N]) {
        let room = Entry::at(self.heap, text.entry).room(self.heap);
        if total(&parts) <= room.len() - text.len {
            room.part(text.len, total(&parts)).fill_all(g, &parts);
            text.len += total(&parts);
        }
    }

    /// Appends items to a text: all, or none if there is no room, as [`crate::Writer::put_each`]
    /// has it. All lanes; begins and ends with a barrier.
    #[inline(always)]
    pub fn append_each<G: Group, T, const N: usize>(
        &self,
        g: &G,
        text: &mut Text,
        count: usize,
        make: impl Fn(usize) -> T,
        parts: impl for<'p> Fn(&'p T) -> [Bytes<'p>; N],
    ) {
        let room = Entry::at(self.heap, text.entry).room(self.heap);
        let rest = room.part(text.len, room.len() - text.len);
        text.len += put_each(g, rest, count, make, parts).unwrap_or(0);
    }

    /// Ends a text; [`Map::pinned`] has its bytes, and [`Map::unpin`] frees it.
    ///
    /// # Cooperation
    /// All lanes call it. Ends with a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn finish<G: Group>(&self, g: &G, text: Text) -> Pin {
        if g.is_leader() {
            Entry::at(self.heap, text.entry).set_loose(text.len);
        }
        g.sync();
        Pin { entry: text.entry, len: text.len }
    }

    /// Takes a chunk of the heap, evicting entries if need be.
    ///
    /// # Cooperation
    /// All lanes call it, with no bucket locked.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub fn room<G: Group>(&self, g: &G, context: &Context, bytes: usize) -> Result<Option<Chunk>> {
        evict::alloc(self, g, context, bytes, false)
    }

    /// Frees an entry that was not put into the map.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub fn discard<G: Group>(&self, g: &G, context: &Context, fresh: Fresh) -> Result<()> {
        self.free_entry(g, context.net, fresh.entry)
    }

    /// The value of a pinned entry, as it was when it was pinned.
    ///
    /// Only appending changes a pinned value, and that leaves the bytes that were there.
    #[must_use]
    pub fn pinned<'p>(&self, pin: &'p Pin) -> Bytes<'p> {
        Entry::at(self.heap, pin.entry).value().first(pin.len)
    }

    /// Lets go of an entry; the last one frees it if its key has another value now.
    ///
    /// # Cooperation
    /// All lanes call it, once for each pin.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn unpin<G: Group>(&self, g: &G, context: &Context, pin: Pin) -> Result<()> {
        let entry = Entry::at(self.heap, pin.entry);
        let lock = self.bucket_lock(entry.hash() as usize & self.mask);
        lock.acquire(g, context.net)?;
        let last = entry.pins() == 1 && entry.is_dead();
        // All lanes have read it.
        g.sync();
        if g.is_leader() {
            entry.set_pins(entry.pins() - 1);
        }
        lock.release(g);
        if last { self.free_entry(g, context.net, pin.entry) } else { Ok(()) }
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub fn clear<G: Group>(&self, g: &G, context: &Context) -> Result<()> {
        let mut from = Some(0);
        while let Some(start) = from {
            from = self.clear_some(g, context, None, start, usize::MAX)?;
        }
        Ok(())
    }

    /// Removes the entries of a space, or of all, from bucket `from` on: those of at most `most`
    /// buckets that have any. Returns where to go on, unless all are cleared: of many entries each
    /// part can have its own turn.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn clear_some<G: Group>(
        &self,
        g: &G,
        context: &Context,
        space: Option<u32>,
        from: usize,
        most: usize,
    ) -> Result<Option<usize>> {
        let which = space.map_or(evict::Which::All, |space| evict::Which::Space(space % SPACES));
        let (mut start, mut swept) = (from, 0);
        while start <= self.mask {
            // Without the locks: an entry that comes in at this moment came after the clearing.
            let mut filled = self.filled(g, start);
            while filled != 0 {
                let at = filled.trailing_zeros() as usize;
                if swept == most {
                    return Ok(Some(start + at));
                }
                evict::sweep(self, g, context, start + at, which)?;
                (swept, filled) = (swept + 1, filled & (filled - 1));
            }
            start += scan::STEP;
            if start - from >= EMPTY_OF_A_PART {
                break;
            }
        }
        Ok(Some(start).filter(|next| *next <= self.mask))
    }

    /// Frees an entry that nobody has any more, with what belongs to it.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn free_entry<G: Group>(&self, g: &G, net: Net, entry: Chunk) -> Result<()> {
        if Entry::at(self.heap, entry).is_structure() {
            S::free(g, net, Chunks::of(self.heap), entry)?;
        }
        self.heap.free(g, net, entry)
    }

    /// The chunks of the map's heap, for a structure that is built of them.
    ///
    /// # Safety
    /// Only the group that has a chunk uses it. A group has a chunk from [`Map::room`] or
    /// [`Chunks::alloc`] until it gives it back, and the chunks of a value that it may use. Words
    /// are aligned. While a group copies bytes, or reads them other than as words, no other group
    /// uses them.
    #[must_use]
    #[allow(unsafe_code)]
    pub const unsafe fn chunks(&self) -> Chunks {
        Chunks::of(self.heap)
    }

    /// How many buckets it has.
    #[must_use]
    pub const fn buckets(&self) -> usize {
        self.mask + 1
    }

    /// Bytes of its heap that are in use, as [`Heap::used`] has it.
    ///
    /// # Cooperation
    /// As [`Heap::used`].
    #[must_use]
    pub fn used<G: Group>(&self, g: &G) -> usize {
        self.heap.used(g)
    }

    /// Bytes of its heap.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.heap.len()
    }

    pub(crate) const fn heap(&self) -> Heap {
        self.heap
    }

    fn hash(&self, key: &Key<'_>) -> u32 {
        key.bytes.hash(self.seed) as u32 ^ key.space.wrapping_mul(0x9e37_79b9)
    }

    /// The secret by which keys are hashed, for structures that have hash tables of their own.
    #[must_use]
    pub const fn seed(&self) -> [u64; 2] {
        self.seed
    }

    fn bucket_lock(&self, bucket: usize) -> Lock {
        Lock::at(self.buckets, bucket * BUCKET)
    }

    /// The first entry of a bucket.
    fn first(&self, bucket: usize) -> crate::word::Word32 {
        self.buckets.u32(bucket * BUCKET + 4)
    }

    /// Counts entries that this group has added, or removed. By one lane.
    fn count<G: Group>(&self, g: &G, space: u32, more: i64) {
        let word = self.counts.u64(g.index() as usize * COUNTS + (space % SPACES) as usize * 8);
        word.set(word.get().wrapping_add(more as u64));
    }
}

#[cfg(test)]
mod tests;
