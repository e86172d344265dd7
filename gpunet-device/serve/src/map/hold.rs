//! Many buckets that a group holds at a time: what it does to their keys happens at once for all
//! others.

use super::{Key, Map, Structure};
use crate::Context;
use crate::heap::{Chunk, Heap};
use crate::memory::Memory;
use crate::word::Word32;
use gpunet_device::{Error, Group, Result};

/// The most keys whose buckets are held at a time: [`Map::hold`].
pub const MAX_HELD: usize = 1 << 16;

/// Bytes of what each block holds: the chunk with the numbers of the buckets, in ascending order,
/// and how many they are.
pub(super) const WORDS: usize = 64;
const CHUNK: usize = 0;
const LEN: usize = 4;

/// Behind the last bucket.
const NONE: u32 = u32::MAX;

/// Keys whose buckets a group is going to hold: [`Map::keys_to_hold`].
#[derive(Debug)]
pub struct Hold {
    chunk: Chunk,
    len: usize,
}

impl<S: Structure> Map<S> {
    /// Takes memory for so many keys, at most [`MAX_HELD`]. `None`: there is none.
    ///
    /// # Cooperation
    /// As [`Map::room`].
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    pub fn keys_to_hold<G: Group>(&self, g: &G, context: &Context, keys: usize) -> Result<Option<Hold>> {
        if keys > MAX_HELD {
            return Ok(None);
        }
        // As many words as a sorting network needs.
        let chunk = self.room(g, context, keys.next_power_of_two() * 4)?;
        Ok(chunk.map(|chunk| Hold { chunk, len: 0 }))
    }

    /// Adds a key. One beyond those that there is memory for is left out.
    ///
    /// # Cooperation
    /// All lanes call it with the same key, without a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn add_to_hold<G: Group>(&self, g: &G, hold: &mut Hold, key: &Key<'_>) {
        if 4 * hold.len < self.heap.capacity(hold.chunk) {
            if g.is_leader() {
                word(self.heap, hold.chunk, hold.len).set((self.hash(key) as usize & self.mask) as u32);
            }
            hold.len += 1;
        }
    }

    /// Locks the buckets of all these keys, in ascending order. Until [`Map::release`] the group
    /// locks only [`Key::held`] ones of them, and another group sees either nothing of what is done
    /// to them, or all.
    ///
    /// # Cooperation
    /// All lanes call it, with no bucket locked.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn hold<G: Group>(&self, g: &G, context: &Context, hold: &Hold) -> Result<()> {
        let network = hold.len.next_power_of_two();
        let mut at = hold.len + g.rank() as usize;
        while at < network {
            word(self.heap, hold.chunk, at).set(NONE);
            at += g.size() as usize;
        }
        g.sync();
        sort(g, |at| word(self.heap, hold.chunk, at), network);
        let mut failed = None;
        if g.is_leader() {
            let mut before = NONE;
            let mut at = 0;
            while at < hold.len && failed.is_none() {
                let bucket = word(self.heap, hold.chunk, at).get();
                if bucket != before {
                    failed = self.bucket_lock(bucket as usize).acquire_alone(g, context.net).err();
                }
                (before, at) = (bucket, at + 1);
            }
            let held = self.held_by(g);
            held.u32(CHUNK).set(hold.chunk.raw());
            held.u32(LEN).set(hold.len as u32);
        }
        match g.broadcast(failed.map_or(0, |error| error.errno() as u64)) {
            0 => Ok(()),
            errno => Err(Error::from_errno(errno as i32)),
        }
    }

    /// Unlocks them.
    ///
    /// # Cooperation
    /// All lanes call it.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn release<G: Group>(&self, g: &G, context: &Context, hold: Hold) -> Result<()> {
        g.sync();
        if g.is_leader() {
            self.held_by(g).u32(LEN).set(0);
            let (mut before, mut at) = (NONE, 0);
            while at < hold.len {
                let bucket = word(self.heap, hold.chunk, at).get();
                if bucket != before {
                    self.bucket_lock(bucket as usize).release_alone();
                }
                (before, at) = (bucket, at + 1);
            }
        }
        g.sync();
        self.heap.free(g, context.net, hold.chunk)
    }

    fn held_by<G: Group>(&self, g: &G) -> Memory {
        self.held.part(g.index() as usize * WORDS, WORDS)
    }
}

fn word(heap: Heap, chunk: Chunk, at: usize) -> Word32 {
    heap.memory(chunk).u32(4 * at)
}

/// Returns whether the group holds a bucket. All lanes, without a barrier: nobody else writes what
/// they read.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn holds<G: Group, S: Structure>(map: &Map<S>, g: &G, bucket: u32) -> bool {
    let held = map.held_by(g);
    let Some(chunk) = Chunk::from_raw(held.u32(CHUNK).get()) else { return false };
    let (mut start, mut end) = (0, held.u32(LEN).get() as usize);
    while start < end {
        let middle = (start + end) / 2;
        match word(map.heap, chunk, middle).get() {
            found if found == bucket => return true,
            found if found < bucket => start = middle + 1,
            _ => end = middle,
        }
    }
    false
}

/// Sorts `len` words, a power of two, lanes side by side: a bitonic network, whose steps depend on
/// the length alone. All lanes; ends with a barrier.
fn sort<G: Group>(g: &G, word: impl Fn(usize) -> Word32, len: usize) {
    let mut run = 2;
    while run <= len {
        let mut distance = run / 2;
        while distance > 0 {
            let mut at = g.rank() as usize;
            while at < len {
                let other = at ^ distance;
                if other > at {
                    let (a, b) = (word(at).get(), word(other).get());
                    if (a > b) == (at & run == 0) {
                        word(at).set(b);
                        word(other).set(a);
                    }
                }
                at += g.size() as usize;
            }
            g.sync();
            distance /= 2;
        }
        run *= 2;
    }
}
