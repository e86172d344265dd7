//! The head of a set: the value of its entry in the map.

use super::Storage;
use super::array::Array;
use super::names::Names;
use super::tile::{Tiles, tile_bytes};
use gpunet_device::{Group, Net, Result};
use gpunet_serve::raw::{Chunks, Word32};
use gpunet_serve::{Chunk, Lock, Memory, Structure};

/// Bytes of a head.
const HEAD: usize = 96;

/// Where things are in a head. Dimension and storage never change; access is decided under the
/// lock, and the rest is changed by the group that may change the set.
mod at {
    pub const LOCK: usize = 0;
    /// Groups that read the set.
    pub const READERS: usize = 4;
    /// 1: a group changes the set, or waits until nobody reads it.
    pub const WRITER: usize = 8;
    pub const DIM: usize = 12;
    /// 1: numbers are halves.
    pub const HALF: usize = 16;
    /// Vectors.
    pub const COUNT: usize = 20;
    /// 1: it has become empty and is being removed. It gets no vector any more.
    pub const CLOSED: usize = 24;
    /// Names that lie in chunks of their own.
    pub const LONG: usize = 28;
    pub const TILES: usize = 32;
    pub const ROWS: usize = 48;
    pub const BUCKETS: usize = 64;
    pub const BUCKET_COUNT: usize = 80;
    /// How often a vector was replaced or removed.
    pub const VERSION: usize = 84;
}

/// A set's head. Whoever has it has pinned the entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    chunks: Chunks,
    memory: Memory,
}

impl Head {
    pub(super) fn of(chunks: Chunks, entry: Chunk) -> Self {
        Self { chunks, memory: chunks.root::<VectorSet>(entry) }
    }

    pub(super) fn dim(self) -> usize {
        self.memory.u32(at::DIM).get() as usize
    }

    pub(super) fn storage(self) -> Storage {
        if self.memory.u32(at::HALF).get() == 0 { Storage::Single } else { Storage::Half }
    }

    pub(super) fn lock(self) -> Lock {
        Lock::at(self.memory, at::LOCK)
    }

    pub(super) fn readers(self) -> Word32 {
        self.memory.u32(at::READERS)
    }

    pub(super) fn writer(self) -> Word32 {
        self.memory.u32(at::WRITER)
    }

    pub(super) fn count(self) -> usize {
        self.memory.u32(at::COUNT).get() as usize
    }

    /// By one lane.
    pub(super) fn set_count(self, count: usize) {
        self.memory.u32(at::COUNT).set(count as u32);
    }

    /// How often a vector was replaced or removed, not counting multiples of 2^32: as long as it is
    /// the same, vectors stay where they are.
    pub(super) fn version(self) -> u32 {
        self.memory.u32(at::VERSION).get()
    }

    /// By one lane.
    pub(super) fn count_change(self) {
        let version = self.memory.u32(at::VERSION);
        version.set(version.get().wrapping_add(1));
    }

    pub(super) fn is_closed(self) -> bool {
        self.memory.u32(at::CLOSED).get() != 0
    }

    /// By one lane.
    pub(super) fn close(self) {
        self.memory.u32(at::CLOSED).set(1);
    }

    pub(super) fn tiles(self) -> Tiles {
        let (dim, storage) = (self.dim(), self.storage());
        let array = Array::new(self.chunks, self.memory.part(at::TILES, 16), tile_bytes(dim, storage));
        Tiles::new(array, dim, storage)
    }

    pub(super) fn names(self) -> Names {
        let part = |at| self.memory.part(at, 16);
        Names::new(
            self.chunks,
            part(at::ROWS),
            part(at::BUCKETS),
            self.memory.u32(at::BUCKET_COUNT),
            self.memory.u32(at::LONG),
        )
    }
}

/// Fills the head of a new set. By one lane.
pub(super) fn init(head: Memory, dim: usize, storage: Storage) {
    let mut at = 0;
    while at < HEAD {
        head.u32(at).set(0);
        at += 4;
    }
    head.u32(at::DIM).set(dim as u32);
    head.u32(at::HALF).set(u32::from(storage == Storage::Half));
}

/// A set, as a kind of values of a map.
#[derive(Clone, Copy, Debug)]
pub enum VectorSet {}

#[allow(unsafe_code)]
// SAFETY: names and tiles give back the chunks that the head names, which are the set's alone
// (`Vectors::insert` takes them).
unsafe impl Structure for VectorSet {
    const ROOT: usize = HEAD;

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn free<G: Group>(g: &G, net: Net, chunks: Chunks, entry: Chunk) -> Result<()> {
        let head = Head::of(chunks, entry);
        head.names().free(g, net, head.count())?;
        head.tiles().free(g, net)
    }
}
