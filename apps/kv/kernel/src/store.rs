//! What all blocks keep together.

use gpunet_device::Group;
use gpunet_kv_vectors::{Map, Vectors};
use gpunet_serve::{Carve, Heap};

/// The longest key, in bytes.
pub const MAX_KEY: usize = 64 << 10;
/// The longest value, in bytes.
pub const MAX_VALUE: usize = crate::resp::MAX_BULK;

/// The keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    pub(crate) map: Map,
    pub(crate) heap: Heap,
    /// Searches of sets of vectors.
    pub(crate) vectors: Vectors,
    /// What clients keep besides: requests that are not complete or wait for EXEC, names, and keys
    /// that are being collected for an answer. It is memory of their own, so that no key goes for
    /// them.
    pub(crate) requests: Map,
    /// Bytes of it that each client gets at least.
    share: usize,
}

impl Store {
    pub(crate) fn new(
        carve: &mut Carve,
        memory: usize,
        buckets: usize,
        (request_memory, connections): (usize, usize),
    ) -> Self {
        let heap = Heap::new(carve, memory);
        let map = Map::new(carve, heap, buckets);
        let requests = Heap::new(carve, request_memory);
        Self {
            map,
            heap,
            vectors: Vectors::new(carve, map),
            // Its one bucket stays empty.
            requests: Map::new(carve, requests, 1).without_eviction(),
            share: requests.len() / 2 / connections.max(1),
        }
    }
    /// How large a chunk of [`Store::requests`] a client gets that has `held` bytes of it. Each
    /// client gets its share of one half, whatever the others do. Of the other half it gets no more
    /// than it then leaves to them, so one alone has a quarter of all at most.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn most_for<G: Group>(&self, g: &G, held: usize) -> usize {
        let all = self.requests.capacity();
        let free = all.saturating_sub(self.requests.used(g));
        let more = free.saturating_sub(all / 2).saturating_sub(held) / 2;
        more.max(self.share.saturating_sub(held))
    }
}
