//! Sets of named vectors as values of a [`gpunet_serve::Map`], searched exactly by all blocks of a
//! launch.
//!
//! | part | module |
//! |---|---|
//! | a set: an entry of the map whose value is a head | `head`, `array` (memory that grows by segments) |
//! | who may read or change a set | `access` |
//! | vectors, laid out for lanes side by side | `tile` |
//! | the names of vectors | `names` |
//! | a vector from outside | `vector`, `number` (halves, keys), `decimal` (text) |
//! | operations on a set | `change`, `search` (its shares: `desk`; the nearest so far: `best`; in parts: `long`) |
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]
#![deny(unsafe_code)]

mod access;
mod array;
mod best;
mod change;
mod decimal;
mod desk;
mod head;
mod long;
#[cfg(all(test, loom))]
mod models;
mod names;
mod number;
mod search;
mod tile;
mod vector;

pub use access::Reading;
use best::Best;
pub use change::Change;
pub use decimal::Decimal;
use desk::Desk;
use gpunet_serve::raw::Chunks;
use gpunet_serve::{Bells, Carve, Memory, Pin};
use head::Head;
pub use head::VectorSet;
pub use long::LongSearch;
pub use search::Found;
pub use vector::{Vector, VectorBuilder, VectorError};

/// A map of byte strings and sets of vectors.
pub type Map = gpunet_serve::Map<VectorSet>;

/// The most numbers of a vector.
pub const MAX_DIM: usize = 32 << 10;
/// The longest name of a vector, in bytes.
pub const MAX_ELEMENT: usize = 1024;
/// The most vectors that a search finds.
pub const MAX_COUNT: usize = 1024;

/// Keys that other blocks can leave a block that searches, without memory of the heap.
const OWN_LISTS: usize = 2048;

/// How the numbers of a set's vectors are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// 32 bits each.
    Single,
    /// 16 bits each (IEEE 754 binary16): half the memory, and half the time that a search takes to
    /// read it.
    Half,
}

/// What searches of all blocks share: a desk for each block, where it puts a search out, and memory
/// for the nearest that it has found.
///
/// A search is divided into shares. Blocks that have nothing else to do take shares of it
/// ([`Vectors::help`]); the block that searches takes shares until none is left, and then waits
/// only for those that others have begun.
///
/// A set is the value of a key ([`Vectors::fresh_set`]); who has pinned it may use it, whatever
/// happens to the key. Groups that want to change it wait until nobody reads it, and help with
/// searches meanwhile. Who waits for a set holds no bucket and no other set.
///
/// # Examples
///
/// ```
/// use gpunet_device::Group;
/// use gpunet_kv_vectors::{VectorError, Vectors};
/// use gpunet_serve::{Bytes, Context, Pin};
///
/// /// Where the nearest vector is, and its score.
/// fn nearest<G: Group>(
///     g: &G,
///     context: &Context,
///     vectors: Vectors,
///     set: &Pin,
///     bytes: Bytes<'_>,
/// ) -> Result<Option<(usize, f32)>, VectorError> {
///     let mut builder = vectors.build(g, context, vectors.dim(set))?;
///     vectors.set_all(g, &mut builder, bytes);
///     let query = vectors.finish(g, context, builder)?;
///     let reading = vectors.read(g, context, set)?;
///     let found = vectors.search(g, context, &reading, &query, 1)?;
///     drop(reading);
///     vectors.forget(g, context, query)?;
///     Ok(if found.is_empty() { None } else { Some(found.get(0)) })
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Vectors {
    map: Map,
    /// The number of searches that are put out, and the block that has put out the last one.
    open: Memory,
    desks: Memory,
    best: Memory,
    /// Room for what other blocks find, for each block: [`OWN_LISTS`] keys.
    lists: Memory,
    blocks: usize,
    bells: Bells,
}

impl Vectors {
    /// Searches of sets in `map`.
    #[must_use]
    #[allow(unsafe_code)]
    pub fn new(carve: &mut Carve, map: Map) -> Self {
        let (blocks, bells) = (carve.blocks(), Bells::of(carve));
        // SAFETY: every block makes them here, in the same order. `open`, desks and lists are used
        // as words; what is in `best` is a block's own.
        let mut take = |len| unsafe { carve.memory(len) };
        Self {
            map,
            open: take(64),
            desks: take(blocks * Desk::bytes(blocks)),
            best: take(blocks * Best::BYTES),
            lists: take(blocks * OWN_LISTS * 8),
            blocks,
            bells,
        }
    }

    /// The chunks of the map's heap.
    #[allow(unsafe_code)]
    const fn chunks(&self) -> Chunks {
        // SAFETY: this crate uses chunks that it has taken for a vector, a list or a set, and those
        // of sets that the caller has pinned: as readers, or as the one who changes it (`access`).
        // All offsets of words are multiples of their size.
        unsafe { self.map.chunks() }
    }

    fn head(&self, set: &Pin) -> Head {
        Head::of(self.chunks(), set.entry())
    }

    /// How many numbers the vectors of a set have. It never changes.
    #[must_use]
    pub fn dim(&self, set: &Pin) -> usize {
        self.head(set).dim()
    }

    /// How the numbers of a set are kept. It never changes.
    #[must_use]
    pub fn storage(&self, set: &Pin) -> Storage {
        self.head(set).storage()
    }

    /// How many vectors a set has.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    #[must_use]
    pub fn len<G: gpunet_device::Group>(&self, g: &G, set: &Pin) -> usize {
        g.broadcast(self.head(set).count() as u64) as usize
    }
}

#[cfg(test)]
mod tests;
