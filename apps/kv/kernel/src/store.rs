//! What all blocks keep together.

use gpunet_kv_vectors::{Map, Vectors};
use gpunet_serve::{Carve, Heap, Shared};

/// The longest key, in bytes.
pub const MAX_KEY: usize = 64 << 10;
/// The longest value, in bytes.
pub const MAX_VALUE: usize = crate::resp::MAX_BULK;

/// The keys and values, and when the server began.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    pub(crate) map: Map,
    pub(crate) heap: Heap,
    /// Searches of sets of vectors.
    pub(crate) vectors: Vectors,
    /// When the first request came, and how many `CLIENT ID`s were given out.
    pub(crate) start: Shared<2>,
}

impl Store {
    pub(crate) fn new(carve: &mut Carve, memory: usize, buckets: usize) -> Self {
        let heap = Heap::new(carve, memory);
        let map = Map::new(carve, heap, buckets);
        Self { map, heap, vectors: Vectors::new(carve, map), start: Shared::new(carve) }
    }
}
