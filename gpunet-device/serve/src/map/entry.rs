//! An entry of a map: a chunk of the heap with a header, the key and the value.
#![allow(unsafe_code)]

use super::Key;
use crate::Bytes;
use crate::heap::{Chunk, Heap};
use crate::memory::Memory;
use crate::word::Word32;
use gpunet_device::Group;

/// Where things are in an entry. Whoever holds the bucket's lock reads and writes them.
mod at {
    /// The next entry of the bucket: its chunk.
    pub const NEXT: usize = 0;
    pub const HASH: usize = 4;
    pub const KEY_LEN: usize = 8;
    pub const VALUE_LEN: usize = 12;
    /// How many groups keep it from being freed.
    pub const PINS: usize = 16;
    /// [`super::USED`], [`super::DEAD`], [`super::STRUCTURE`], [`super::SPACE`].
    pub const FLAGS: usize = 20;
    /// When it expires, in nanoseconds of the device's clock; 0: never.
    pub const EXPIRES: usize = 24;
    pub const KEY: usize = 32;
}

/// It was used since the clock's hand passed it.
const USED: u32 = 1;
/// It is in no bucket any more.
const DEAD: u32 = 2;
/// Its value is a structure: it begins with the root, and its length is 0.
const STRUCTURE: u32 = 4;
/// From this bit on: its space of keys.
const SPACE: u32 = 8;

/// An entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// From its first byte on, beyond its last one: how long its chunk is, is a load away.
    memory: Memory,
    chunk: Chunk,
}

/// What is looked for in an entry of a bucket: read together, so that a GPU waits once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) next: u32,
    pub(super) expires: u64,
    hash: u32,
    key_len: u32,
    flags: u32,
}

impl Entry {
    pub(super) fn at(heap: Heap, chunk: Chunk) -> Self {
        Self { memory: heap.memory_from(chunk), chunk }
    }

    #[inline(always)]
    fn head_memory(self) -> Memory {
        self.memory.part(0, at::KEY)
    }

    #[inline(always)]
    fn u32(self, at: usize) -> Word32 {
        self.head_memory().u32(at)
    }

    /// Its head.
    #[inline(always)]
    pub(super) fn head(self) -> Head {
        Head {
            next: self.next(),
            expires: self.expires(),
            hash: self.hash(),
            key_len: self.u32(at::KEY_LEN).get(),
            flags: self.u32(at::FLAGS).get(),
        }
    }

    /// Bytes of an entry with such a key and room for such a value.
    pub(super) const fn bytes(key: usize, room: usize) -> usize {
        value_at(key) + room
    }

    pub(super) const fn chunk(self) -> Chunk {
        self.chunk
    }

    /// Fills a new entry. All lanes; ends with a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn fill<G: Group>(self, g: &G, key: &Key<'_>, hash: u32, value: Bytes<'_>) {
        let (key, space) = (key.bytes, key.space);
        if g.is_leader() {
            self.u32(at::HASH).set(hash);
            self.u32(at::KEY_LEN).set(key.len() as u32);
            self.u32(at::VALUE_LEN).set(value.len() as u32);
            self.u32(at::PINS).set(0);
            self.u32(at::FLAGS).set(USED | space << SPACE);
            self.set_expires(0);
        }
        let key_memory = self.memory.part(at::KEY, key.len());
        // SAFETY: inside the chunk (checked by `part`), which is this group's alone until it is put
        // into a map.
        unsafe { key.copy_to(g, key_memory.as_ptr()) };
        let value_memory = self.memory.part(value_at(key.len()), value.len());
        // SAFETY: as above.
        unsafe { value.copy_to(g, value_memory.as_ptr()) };
        g.sync();
    }

    pub(super) fn next(self) -> u32 {
        self.u32(at::NEXT).get()
    }

    pub(super) fn set_next(self, next: u32) {
        self.u32(at::NEXT).set(next);
    }

    pub(super) fn hash(self) -> u32 {
        self.u32(at::HASH).get()
    }

    pub(super) fn pins(self) -> u32 {
        self.u32(at::PINS).get()
    }

    pub(super) fn set_pins(self, pins: u32) {
        self.u32(at::PINS).set(pins);
    }

    pub(super) fn is_used(self) -> bool {
        self.u32(at::FLAGS).get() & USED != 0
    }

    pub(super) fn set_used(self, used: bool) {
        let flags = self.u32(at::FLAGS);
        if (flags.get() & USED != 0) != used {
            flags.set(flags.get() ^ USED);
        }
    }

    pub(super) fn space(self) -> u32 {
        self.u32(at::FLAGS).get() >> SPACE
    }

    pub(super) fn is_dead(self) -> bool {
        self.u32(at::FLAGS).get() & DEAD != 0
    }

    pub(super) fn set_dead(self) {
        let flags = self.u32(at::FLAGS);
        flags.set(flags.get() | DEAD);
    }

    pub(super) fn is_structure(self) -> bool {
        self.u32(at::FLAGS).get() & STRUCTURE != 0
    }

    pub(super) fn set_structure(self) {
        let flags = self.u32(at::FLAGS);
        flags.set(flags.get() | STRUCTURE);
    }

    /// Makes it an entry of no bucket that its one holder frees, with so much of its room as its
    /// value.
    pub(super) fn set_loose(self, len: usize) {
        self.u32(at::VALUE_LEN).set(len as u32);
        self.set_pins(1);
        self.set_dead();
    }

    /// The room for its value.
    pub(super) fn room(self, heap: Heap) -> Memory {
        let start = value_at(self.key_len());
        self.memory.part(start, heap.capacity(self.chunk) - start)
    }

    pub(super) fn expires(self) -> u64 {
        self.head_memory().u64(at::EXPIRES).get()
    }

    pub(super) fn set_expires(self, at: u64) {
        self.head_memory().u64(at::EXPIRES).set(at);
    }

    fn key_len(self) -> usize {
        self.u32(at::KEY_LEN).get() as usize
    }

    fn value_len(self) -> usize {
        self.u32(at::VALUE_LEN).get() as usize
    }

    #[inline(always)]
    pub(super) fn has_key(self, head: &Head, hash: u32, key: &Key<'_>) -> bool {
        let (key, space) = (key.bytes, key.space);
        let differs =
            (head.hash ^ hash) | (head.key_len ^ key.len() as u32) | ((head.flags >> SPACE) ^ space);
        if differs != 0 {
            return false;
        }
        let memory = self.memory.part(at::KEY, key.len());
        // SAFETY: inside the chunk; a key never changes.
        key.equals_inline(unsafe { Bytes::from_raw_parts(memory.as_ptr(), memory.len()) })
    }

    /// The key, which never changes.
    pub(super) fn key<'a>(self) -> Bytes<'a> {
        self.memory.part(at::KEY, self.key_len()).stable_bytes()
    }

    /// The value, which stays as it is as long as the caller holds the bucket or pins the entry.
    pub(super) fn value<'a>(self) -> Bytes<'a> {
        let memory = self.memory.part(value_at(self.key_len()), self.value_len());
        // SAFETY: inside the chunk (checked by `part`); a value of which others have a pin is not
        // overwritten.
        unsafe { Bytes::from_raw_parts(memory.as_ptr(), memory.len()) }
    }

    /// Makes `bytes` the value, if they fit, and sets when the entry expires. All lanes of the
    /// group that holds the bucket; ends with a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn write<G: Group>(self, g: &G, heap: Heap, bytes: Bytes<'_>, expires: u64) -> bool {
        let start = value_at(self.key_len());
        if heap.capacity(self.chunk) - start < bytes.len() {
            return false;
        }
        // All lanes have read its length.
        g.sync();
        let memory = self.memory.part(start, bytes.len());
        // SAFETY: inside the chunk (checked by `part`). The bytes come from a request, not from
        // here, and this group holds the bucket; nobody has pinned the entry (`Locked`).
        unsafe { bytes.copy_to(g, memory.as_ptr()) };
        if g.is_leader() {
            self.u32(at::VALUE_LEN).set(bytes.len() as u32);
            self.set_expires(expires);
        }
        g.sync();
        true
    }

    /// Writes `bytes` over the value from byte `at` on, behind zeros if it ends before, if they
    /// fit. All lanes of the group that holds the bucket; ends with a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn write_at<G: Group>(self, g: &G, heap: Heap, at: usize, bytes: Bytes<'_>) -> bool {
        let (start, len) = (value_at(self.key_len()), self.value_len());
        let end = at.saturating_add(bytes.len());
        if heap.capacity(self.chunk) - start < end {
            return false;
        }
        // All lanes have read its length, and of the value what they need.
        g.sync();
        if at > len {
            self.memory.part(start + len, at - len).clear(g);
        }
        let memory = self.memory.part(start + at, bytes.len());
        // SAFETY: inside the chunk (checked by `part`). The bytes lie elsewhere, and this group
        // holds the bucket; who has pinned the entry reads only what is before `at` (`Locked`).
        unsafe { bytes.copy_to(g, memory.as_ptr()) };
        if g.is_leader() && end > len {
            self.u32(at::VALUE_LEN).set(end as u32);
        }
        g.sync();
        true
    }
}

/// Where a value begins, 16-aligned, so that lanes copy it by whole chunks.
const fn value_at(key_len: usize) -> usize {
    (at::KEY + key_len).next_multiple_of(16)
}
