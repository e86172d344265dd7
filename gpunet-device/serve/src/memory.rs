//! Memory of the device that a server divides among its parts.
#![allow(unsafe_code)]

use crate::Bytes;
use crate::bytes::{copy_all, total};
use crate::word::{HostWord64, Word32, Word64};
use gpunet_device::{Buffer, Group};

/// Memory that the blocks of one launch use together: zeros at its start.
///
/// A kernel gets it among its parameters; [`Carve`] divides it. What a part is used for, and by
/// which lanes at which times, is vouched for by whoever has made it ([`Memory::new`],
/// [`Carve::memory`], [`crate::Map::chunks`]): methods check only that a place is inside.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Memory {
    ptr: *mut u8,
    len: usize,
}

// SAFETY: an address and a length; `new`'s contract covers all groups of the launch.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// None.
    pub const EMPTY: Self = Self { ptr: core::ptr::without_provenance_mut(64), len: 0 };

    /// Makes it of a buffer. The host calls it for a launch.
    ///
    /// # Safety
    /// The buffer is filled with zeros and 64-aligned. It stays mapped while the launch runs, one
    /// launch uses it, and all groups that use it are of one kind.
    #[must_use]
    pub const unsafe fn new(buffer: Buffer) -> Self {
        Self { ptr: buffer.as_ptr(), len: buffer.len() }
    }

    /// `len` bytes from `start`.
    ///
    /// # Panics
    /// There are fewer.
    #[must_use]
    pub fn part(self, start: usize, len: usize) -> Self {
        if start > self.len || len > self.len - start {
            outside();
        }
        Self { ptr: self.ptr.wrapping_add(start), len }
    }

    /// Where it begins.
    #[inline(always)]
    #[must_use]
    pub const fn as_ptr(self) -> *mut u8 {
        self.ptr
    }

    /// How many bytes it has.
    #[inline(always)]
    #[must_use]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Returns whether it has none.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Byte `at`. Only the holder of the lock that covers it reads or writes it, by one lane at a
    /// time or unchanged by all.
    #[inline(always)]
    pub(crate) fn byte(self, at: usize) -> u8 {
        if at >= self.len {
            outside();
        }
        // SAFETY: inside the memory (checked), which is mapped while the launch runs.
        unsafe { self.ptr.wrapping_add(at).read_volatile() }
    }

    /// Sets byte `at`, as [`Memory::byte`] reads it.
    #[inline(always)]
    pub(crate) fn set_byte(self, at: usize, value: u8) {
        if at >= self.len {
            outside();
        }
        // SAFETY: as above.
        unsafe { self.ptr.wrapping_add(at).write_volatile(value) };
    }

    /// The bytes, which nobody writes for as long as they are used: the caller may read what the
    /// memory is part of.
    #[must_use]
    pub fn stable_bytes<'a>(self) -> Bytes<'a> {
        // SAFETY: mapped while the launch runs; that nobody writes them is said above.
        unsafe { Bytes::from_raw_parts(self.ptr, self.len) }
    }

    /// Copies bytes from elsewhere to its start. All lanes, without a barrier, of the group that
    /// may change it.
    ///
    /// # Panics
    /// They are more.
    pub fn fill<G: Group>(self, g: &G, bytes: Bytes<'_>) {
        let to = self.part(0, bytes.len());
        // SAFETY: inside the memory (checked by `part`), which this group alone uses now; the bytes
        // lie elsewhere.
        unsafe { bytes.copy_to(g, to.ptr) };
    }

    /// Fills it with zeros, as [`Memory::fill`] does with bytes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn clear<G: Group>(self, g: &G) {
        let mut at = g.rank() as usize;
        while at < self.len {
            self.set_byte(at, 0);
            at += g.size() as usize;
        }
    }

    /// As [`Memory::fill`], by one lane, for which the memory is.
    pub(crate) fn fill_alone(self, bytes: Bytes<'_>) {
        let to = self.part(0, bytes.len());
        // SAFETY: as above, of this lane.
        unsafe { bytes.copy_alone(to.ptr) };
    }

    /// As [`Memory::fill`], of parts one behind the other.
    pub(crate) fn fill_all<G: Group, const N: usize>(self, g: &G, parts: &[Bytes<'_>; N]) {
        let to = self.part(0, total(parts));
        // SAFETY: as above.
        unsafe { copy_all(g, parts, to.ptr) };
    }

    /// The 32 bits at byte `at`, a multiple of 4, which nobody writes meanwhile: unlike
    /// [`Memory::u32`], a load that may be cached.
    ///
    /// # Panics
    /// It is not inside.
    #[inline(always)]
    #[must_use]
    pub fn stable_u32(self, at: usize) -> u32 {
        self.check::<4>(at);
        // SAFETY: inside the memory (checked) and aligned; that nobody writes it is said above.
        unsafe { self.ptr.wrapping_add(at).cast::<u32>().read() }
    }

    /// The word of 32 bits at byte `at`, a multiple of 4.
    ///
    /// # Panics
    /// It is not inside.
    #[inline(always)]
    #[must_use]
    pub fn u32(self, at: usize) -> Word32 {
        self.check::<4>(at);
        // SAFETY: inside the memory (checked), which is mapped while the launch runs, and aligned
        // (checked; memory is 64-aligned).
        unsafe { Word32::from_ptr(self.ptr.wrapping_add(at).cast()) }
    }

    /// The word of 64 bits at byte `at`, a multiple of 8.
    ///
    /// # Panics
    /// It is not inside.
    #[inline(always)]
    #[must_use]
    pub fn u64(self, at: usize) -> Word64 {
        self.check::<8>(at);
        // SAFETY: as above.
        unsafe { Word64::from_ptr(self.ptr.wrapping_add(at).cast()) }
    }

    /// Panics unless there is a word of so many bytes.
    #[inline(always)]
    fn check<const BYTES: usize>(self, at: usize) {
        if !at.is_multiple_of(BYTES) || at + BYTES > self.len {
            outside();
        }
    }

    /// As [`Memory::u64`], of memory that the host reads and writes, too.
    #[inline(always)]
    pub(crate) fn host_u64(self, at: usize) -> HostWord64 {
        HostWord64::of(self.u64(at))
    }
}

/// The one place: a kernel has hundreds of checks, and a panic's arguments take ten instructions.
#[cold]
#[inline(never)]
fn outside() -> ! {
    panic!("outside a server's memory");
}

/// Divides [`Memory`] into parts. Every block does it in the same order and gets the same parts.
///
/// # Examples
///
/// ```
/// use gpunet_serve::{Carve, Heap};
///
/// let mut carve = Carve::measure();
/// let heap = Heap::new(&mut carve, 1 << 20);
/// assert!(carve.used() > 1 << 20); // what the host has to allocate
/// # let _ = heap;
/// ```
#[derive(Debug)]
pub struct Carve {
    memory: Option<Memory>,
    used: usize,
    blocks: usize,
    places: usize,
    pub(crate) bells: BellMemory,
    seed: [u64; 2],
}

/// What the bells of a server lie in, and its blocks, those that serve, and the room of each:
/// [`crate::Bells::of`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BellMemory {
    pub(crate) places: Memory,
    pub(crate) wakes: Memory,
    pub(crate) host: Memory,
    pub(crate) shape: [u32; 3],
}

impl BellMemory {
    const NONE: Self =
        Self { places: Memory::EMPTY, wakes: Memory::EMPTY, host: Memory::EMPTY, shape: [0; 3] };
}

impl Carve {
    /// Gives out parts of no memory, to learn how much is needed. What is made of them must not be
    /// used.
    #[must_use]
    pub const fn measure() -> Self {
        Self::measure_for(1)
    }

    /// As [`Carve::measure`], for a launch of `blocks` blocks.
    #[must_use]
    pub const fn measure_for(blocks: usize) -> Self {
        Self { memory: None, used: 0, blocks, places: 0, bells: BellMemory::NONE, seed: [0; 2] }
    }

    /// Gives out parts of this memory, in a launch of `blocks` blocks.
    #[must_use]
    pub const fn new(memory: Memory, blocks: usize) -> Self {
        Self { memory: Some(memory), used: 0, blocks, places: 0, bells: BellMemory::NONE, seed: [0; 2] }
    }

    /// With a secret by which maps hash their keys.
    #[must_use]
    pub const fn with_seed(self, seed: [u64; 2]) -> Self {
        Self { seed, ..self }
    }

    /// The secret.
    #[must_use]
    pub const fn seed(&self) -> [u64; 2] {
        self.seed
    }

    /// Blocks of the launch.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.blocks
    }

    /// With places for so many connections of all blocks.
    #[must_use]
    pub const fn with_places(self, places: usize) -> Self {
        Self { places, ..self }
    }

    /// How many connections all blocks together have room for: [`crate::Bell::place`] is below it.
    #[must_use]
    pub const fn places(&self) -> usize {
        self.places
    }

    /// Bytes given out so far.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Gives out `len` bytes, 64-aligned: zeros at first.
    ///
    /// # Safety
    /// Every block uses them for the same. Words are at places that are aligned. Bytes that a group
    /// copies there, or reads in another way than as words, are used by no other group meanwhile.
    #[must_use]
    pub unsafe fn memory(&mut self, len: usize) -> Memory {
        self.take(len)
    }

    /// As [`Carve::memory`], for the structures of this crate.
    pub(crate) fn take(&mut self, len: usize) -> Memory {
        let (start, len) = (self.used, len.next_multiple_of(64));
        self.used += len;
        match self.memory {
            Some(memory) => memory.part(start, len),
            None => Memory { ptr: core::ptr::without_provenance_mut(64), len },
        }
    }
}

/// Zeroed memory for a test.
#[cfg(test)]
pub(crate) fn for_test(len: usize) -> Memory {
    let cells = std::vec![0u128; len.div_ceil(16) + 4].leak();
    let ptr = cells.as_mut_ptr().cast::<u8>();
    // SAFETY: leaked, so it lives for ever; each test has its own.
    unsafe { Memory::new(Buffer::from_raw_parts(ptr.wrapping_add(ptr.align_offset(64)), len)) }
}

/// No attachment: calls that would look at it do not.
#[cfg(test)]
pub(crate) const fn no_net() -> gpunet_device::Net {
    // SAFETY: 0 is no attachment.
    unsafe { gpunet_device::Net::from_raw(0) }
}
