//! The names of a set's vectors: a row for each, found by linear hashing, so that no insertion
//! moves more than one bucket.

use super::array::Array;
use crate::Map;
use gpunet_device::{Group, Net, Result};
use gpunet_serve::raw::{Chunks, Word32};
use gpunet_serve::{Bytes, Chunk, Context, Memory};

/// Bytes of a row.
const ROW: usize = 64;

/// Where things are in a row.
mod at {
    pub const HASH: usize = 0;
    /// The next row of the bucket + 1.
    pub const NEXT: usize = 4;
    /// The length of the vector before it was normalized: an `f64`.
    pub const NORM: usize = 8;
    pub const LEN: usize = 16;
    /// The chunk of a name that is too long for the row; 0: it is in the row.
    pub const CHUNK: usize = 20;
    pub const NAME: usize = 24;
}

/// Bytes of a name that has room in its row.
const SHORT: usize = ROW - at::NAME;

/// The names of a set. Whoever may read the set may find names; whoever may change the set may
/// change them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    chunks: Chunks,
    rows: Array,
    buckets: Array,
    bucket_count: Word32,
    long: Word32,
}

impl Names {
    pub(super) const fn new(
        chunks: Chunks,
        rows: Memory,
        buckets: Memory,
        bucket_count: Word32,
        long: Word32,
    ) -> Self {
        let (rows, buckets) = (Array::new(chunks, rows, ROW), Array::new(chunks, buckets, 4));
        Self { chunks, rows, buckets, bucket_count, long }
    }

    /// The name of a vector.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn name<'a>(&self, index: usize) -> Bytes<'a> {
        let row = self.rows.unit(index);
        let len = row.u32(at::LEN).get() as usize;
        match Chunk::from_raw(row.u32(at::CHUNK).get()) {
            Some(chunk) => self.chunks.bytes(chunk, len),
            None => row.part(at::NAME, len).stable_bytes(),
        }
    }

    /// The length of a vector before it was normalized.
    pub(super) fn norm(&self, index: usize) -> f64 {
        f64::from_bits(self.rows.unit(index).u64(at::NORM).get())
    }

    /// By one lane.
    pub(super) fn set_norm(&self, index: usize, norm: f64) {
        self.rows.unit(index).u64(at::NORM).set(norm.to_bits());
    }

    /// The vector of a name. All lanes get the same.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn find(&self, name: Bytes<'_>, seed: [u64; 2]) -> Option<usize> {
        let buckets = self.bucket_count.get();
        if buckets == 0 {
            return None;
        }
        let hash = name.hash(seed) as u32;
        let mut next = self.first(bucket_of(hash, buckets)).get();
        while next != 0 {
            let (index, row) = (next as usize - 1, self.rows.unit(next as usize - 1));
            if row.u32(at::HASH).get() == hash && self.name(index) == name {
                return Some(index);
            }
            next = row.u32(at::NEXT).get();
        }
        None
    }

    /// Makes room for one name more than `count`. Returns whether there was memory. All lanes.
    pub(super) fn reserve<G: Group>(
        &self,
        g: &G,
        context: &Context,
        map: &Map,
        count: usize,
    ) -> Result<bool> {
        Ok(self.rows.reserve(g, context, map, count + 1, 4)?
            && self.buckets.reserve(g, context, map, count + 1, 16)?)
    }

    /// Adds a name as row `index`, the first that is free; there is room. Returns whether there was
    /// memory for a long name.
    ///
    /// # Cooperation
    /// All lanes. Ends with a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn add<G: Group>(
        &self,
        g: &G,
        context: &Context,
        map: &Map,
        index: usize,
        name: Bytes<'_>,
    ) -> Result<bool> {
        let row = self.rows.unit(index);
        let chunk = if name.len() > SHORT {
            let Some(chunk) = map.room(g, context, name.len())? else { return Ok(false) };
            self.chunks.write(g, chunk, 0, name);
            chunk.raw()
        } else {
            row.part(at::NAME, name.len()).fill(g, name);
            0
        };
        // All lanes have searched the bucket.
        g.sync();
        if g.is_leader() {
            let hash = name.hash(map.seed()) as u32;
            row.u32(at::HASH).set(hash);
            row.u32(at::LEN).set(name.len() as u32);
            row.u32(at::CHUNK).set(chunk);
            if chunk != 0 {
                self.long.set(self.long.get() + 1);
            }
            if self.bucket_count.get() as usize <= index {
                self.split();
            }
            let first = self.first(bucket_of(hash, self.bucket_count.get()));
            row.u32(at::NEXT).set(first.get());
            first.set(index as u32 + 1);
        }
        g.sync();
        Ok(true)
    }

    /// Removes row `index` and puts row `last` in its place.
    ///
    /// # Cooperation
    /// All lanes. Ends with a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn remove<G: Group>(&self, g: &G, net: Net, index: usize, last: usize) -> Result<()> {
        let (row, other) = (self.rows.unit(index), self.rows.unit(last));
        let chunk = Chunk::from_raw(row.u32(at::CHUNK).get());
        g.sync();
        if g.is_leader() {
            self.link_to(index).set(row.u32(at::NEXT).get());
            if index != last {
                self.link_to(last).set(index as u32 + 1);
                let mut at = 0;
                while at < ROW {
                    row.u64(at).set(other.u64(at).get());
                    at += 8;
                }
            }
            if chunk.is_some() {
                self.long.set(self.long.get() - 1);
            }
        }
        g.sync();
        chunk.map_or(Ok(()), |chunk| self.chunks.free(g, net, chunk))
    }

    /// Gives all of it back. All lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn free<G: Group>(&self, g: &G, net: Net, count: usize) -> Result<()> {
        let (mut index, mut long) = (0, self.long.get());
        while index < count && long > 0 {
            if let Some(chunk) = Chunk::from_raw(self.rows.unit(index).u32(at::CHUNK).get()) {
                self.chunks.free(g, net, chunk)?;
                long -= 1;
            }
            index += 1;
        }
        self.rows.free(g, net)?;
        self.buckets.free(g, net)
    }

    fn first(&self, bucket: u32) -> Word32 {
        self.buckets.unit(bucket as usize).u32(0)
    }

    /// The word that links to a row: of its bucket, or of the row before it.
    fn link_to(&self, index: usize) -> Word32 {
        let hash = self.rows.unit(index).u32(at::HASH).get();
        let mut link = self.first(bucket_of(hash, self.bucket_count.get()));
        // Each row is in its bucket's list.
        while link.get() != index as u32 + 1 && link.get() != 0 {
            link = self.rows.unit(link.get() as usize - 1).u32(at::NEXT);
        }
        link
    }

    /// One bucket more: it takes its rows from one other. By one lane.
    fn split(&self) {
        let new = self.bucket_count.get();
        self.first(new).set(0);
        self.bucket_count.set(new + 1);
        if new == 0 {
            return;
        }
        let old = self.first(new - (1 << new.ilog2()));
        let mut next = old.get();
        old.set(0);
        while next != 0 {
            let link = self.rows.unit(next as usize - 1).u32(at::NEXT);
            let after = link.get();
            let bucket =
                self.first(bucket_of(self.rows.unit(next as usize - 1).u32(at::HASH).get(), new + 1));
            link.set(bucket.get());
            bucket.set(next);
            next = after;
        }
    }
}

/// The bucket of a hash among so many.
const fn bucket_of(hash: u32, buckets: u32) -> u32 {
    let mask = buckets.next_power_of_two() - 1;
    let bucket = hash & mask;
    if bucket < buckets { bucket } else { bucket & (mask >> 1) }
}
