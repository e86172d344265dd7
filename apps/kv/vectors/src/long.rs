//! A search of a large set in parts, so that a block can do other things in between.

use super::best::Best;
use super::search::Found;
use super::tile::TILE;
use super::{MAX_COUNT, Reading, Vector, Vectors};
use gpunet_device::{Group, Result};
use gpunet_serve::{Chunk, Context};

/// Numbers that a lane compares in a part: 0.4 ms of a CPU.
const NUMBERS_OF_A_PART: usize = 1 << 17;
/// How often a search begins again because the set has changed. After that it goes on to the end in
/// one part.
const MOST_RETURNS: u32 = 3;

/// Where things are in a search's chunk. Only the group that searches uses it.
mod at {
    /// The chunk of the vector, and how many are wanted.
    pub const QUERY: usize = 0;
    pub const MOST: usize = 4;
    /// The vectors that were compared so far, at which version of the set, and how often the search
    /// has begun again.
    pub const NEXT: usize = 8;
    pub const VERSION: usize = 12;
    pub const RETURNS: usize = 16;
    /// How many were found so far, and their keys.
    pub const LEN: usize = 20;
    pub const KEYS: usize = 64;
}

/// A search that goes on in another turn: plain data, part of a connection's state.
/// [`Vectors::end`] gives its memory back.
#[derive(Clone, Copy, Debug)]
pub struct LongSearch {
    chunk: Chunk,
}

impl Vectors {
    /// Returns whether a search of the set takes so long that it is done in parts.
    #[must_use]
    pub fn is_long<G: Group>(&self, g: &G, set: &Reading<'_, G>) -> bool {
        set.len() > self.part(g, set)
    }

    /// Vectors of a part: blocks that have nothing else to do compare them together.
    fn part<G: Group>(&self, g: &G, set: &Reading<'_, G>) -> usize {
        let numbers = NUMBERS_OF_A_PART * g.size() as usize * self.blocks;
        (numbers / set.head.dim()).next_multiple_of(TILE)
    }

    /// Begins a search as [`Vectors::search`] does it, in parts. The vector comes back if there is
    /// no memory for it.
    ///
    /// # Cooperation
    /// All lanes call it. Ends with a barrier.
    ///
    /// # Errors
    /// As [`gpunet_serve::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn begin<G: Group>(
        &self,
        g: &G,
        context: &Context,
        set: &Reading<'_, G>,
        vector: Vector,
        most: usize,
    ) -> Result<core::result::Result<LongSearch, Vector>> {
        let most = most.clamp(1, MAX_COUNT);
        let Some(chunk) = self.map.room(g, context, at::KEYS + 8 * most)? else { return Ok(Err(vector)) };
        if g.is_leader() {
            let word = |at, value| self.chunks().memory(chunk).u32(at).set(value);
            word(at::QUERY, vector.chunk.raw());
            word(at::MOST, most as u32);
            word(at::NEXT, 0);
            word(at::VERSION, set.head.version());
            word(at::RETURNS, 0);
            word(at::LEN, 0);
        }
        g.sync();
        Ok(Ok(LongSearch { chunk }))
    }

    /// Compares the vectors of the next part. Returns what was found if it was the last one. The
    /// set may change between two parts: what is found is what a search of the set as it is at the
    /// last part finds.
    ///
    /// # Cooperation
    /// All lanes call it. Ends with a barrier.
    ///
    /// # Errors
    /// As [`gpunet_serve::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn go_on<G: Group>(
        &self,
        g: &G,
        context: &Context,
        set: &Reading<'_, G>,
        search: &LongSearch,
    ) -> Result<Option<Found>> {
        let memory = self.chunks().memory(search.chunk);
        let get = |at| memory.u32(at).get();
        let (mut next, mut len, mut returns) =
            (get(at::NEXT) as usize, get(at::LEN) as usize, get(at::RETURNS));
        let (most, version) = (get(at::MOST) as usize, set.head.version());
        // What is added comes behind the others. But what was compared is no longer there, or
        // what was not has moved there.
        if version != get(at::VERSION) {
            (next, len, returns) = (0, 0, returns + 1);
        }
        let count = set.len();
        let end = if returns > MOST_RETURNS { count } else { count.min(next + self.part(g, set)) };
        let mut best = Best::new(g, self.best_of(g.index() as usize), most);
        let (lanes, mut first) = (g.size() as usize, 0);
        while first < len {
            let wanted = best.wanted(lanes).min((len - first).div_ceil(lanes));
            best.offer(g, wanted, |offered| {
                let at = first + offered * lanes + g.rank() as usize;
                if at < len { memory.u64(at::KEYS + 8 * at).get() } else { 0 }
            });
            first += wanted * lanes;
        }
        if let Some(query) = Chunk::from_raw(get(at::QUERY)) {
            self.compare_all(g, context, set, query, &mut best, (next, end))?;
        }
        if end == count {
            return Ok(Some(Found { best }));
        }
        let mut at = g.rank() as usize;
        while at < best.len() {
            memory.u64(at::KEYS + 8 * at).set(best.get(at));
            at += lanes;
        }
        // All lanes have read the words.
        g.sync();
        if g.is_leader() {
            memory.u32(at::NEXT).set(end as u32);
            memory.u32(at::VERSION).set(version);
            memory.u32(at::RETURNS).set(returns);
            memory.u32(at::LEN).set(best.len() as u32);
        }
        g.sync();
        Ok(None)
    }

    /// Gives the memory of a search back, with its vector.
    ///
    /// # Cooperation
    /// All lanes call it, once.
    ///
    /// # Errors
    /// As [`gpunet_serve::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn end<G: Group>(&self, g: &G, context: &Context, search: LongSearch) -> Result<()> {
        let query = self.chunks().memory(search.chunk).u32(at::QUERY).get();
        // All lanes have read it.
        g.sync();
        self.chunks().free(g, context.net, search.chunk)?;
        match Chunk::from_raw(query) {
            Some(query) => self.chunks().free(g, context.net, query),
            None => Ok(()),
        }
    }
}
