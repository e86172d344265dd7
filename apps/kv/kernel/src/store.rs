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
    /// What clients keep besides: requests that are not complete or wait for EXEC, and names. It is
    /// memory of their own, so that no key goes for them.
    pub(crate) requests: Map,
}

impl Store {
    pub(crate) fn new(carve: &mut Carve, memory: usize, buckets: usize, request_memory: usize) -> Self {
        let heap = Heap::new(carve, memory);
        let map = Map::new(carve, heap, buckets);
        let requests = Heap::new(carve, request_memory);
        Self {
            map,
            heap,
            vectors: Vectors::new(carve, map),
            start: Shared::new(carve),
            // Its one bucket stays empty.
            requests: Map::new(carve, requests, 1).without_eviction(),
        }
    }
}
