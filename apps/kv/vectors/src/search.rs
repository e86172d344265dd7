//! The search: every vector of a set is compared, by all blocks that have nothing else to do.

use super::access::Reading;
use super::best::Best;
use super::desk::{Desk, Search};
use super::head::Head;
use super::number::{key_of, of_key};
use super::tile::{Comparison, TILE};
use super::{MAX_COUNT, OWN_LISTS, Vector, Vectors};
use gpunet_device::{Group, Result};
use gpunet_serve::raw::pause;
use gpunet_serve::{Chunk, Context, Memory};

/// The fewest vectors of a share: a smaller one takes as long to claim as to search.
const LEAST_SHARE: usize = 32 * TILE;
/// Shares for each block, so that one that joins late does not keep the others waiting.
const SHARES_OF_A_BLOCK: usize = 4;
/// Desks that a block looks at in one turn.
const LOOKS: usize = 4;

/// Where things are in what all blocks know of the searches.
mod open {
    /// How many are put out now.
    pub const NOW: usize = 0;
    /// The block that has put out the last one.
    pub const LAST: usize = 4;
}

/// What a search has found, the nearest first. It stays until the block's next search, or until it
/// helps with one: as long as the set that was read is not let go and no other is opened.
#[derive(Debug)]
pub struct Found {
    pub(super) best: Best,
}

impl Found {
    /// How many vectors were found.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.best.len()
    }

    /// Returns whether none was found.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where one that was found is in the set, and its similarity: (1 + cosine) / 2, from 0 to 1.
    #[must_use]
    pub fn get(&self, at: usize) -> (usize, f32) {
        let (cosine, position) = of_key(self.best.get(at));
        // Rounding may have led a little beyond.
        (position as usize, (0.5 + 0.5 * cosine).clamp(0.0, 1.0))
    }
}

impl Vectors {
    /// Finds the `most` vectors of a set that are nearest to one of the same dimension (`most` is
    /// cut at [`MAX_COUNT`]).
    ///
    /// Of vectors that are equally near, the one with the lower position comes first. The result
    /// does not depend on which blocks, or how many lanes, have compared which vectors.
    ///
    /// # Cooperation
    /// All lanes call it.
    ///
    /// # Errors
    /// As [`gpunet_serve::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn search<G: Group>(
        &self,
        g: &G,
        context: &Context,
        set: &Reading<'_, G>,
        vector: &Vector,
        most: usize,
    ) -> Result<Found> {
        let mut best = Best::new(g, self.best_of(g.index() as usize), most.clamp(1, MAX_COUNT));
        self.compare_all(g, context, set, vector.chunk, &mut best, (0, set.len()))?;
        Ok(Found { best })
    }

    /// Offers the vectors from `first` to `end`, by all blocks, and ends the offers.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn compare_all<G: Group>(
        &self,
        g: &G,
        context: &Context,
        set: &Reading<'_, G>,
        query: Chunk,
        best: &mut Best,
        (first, end): (usize, usize),
    ) -> Result<()> {
        let (count, most) = (end - first, best.most());
        let numbers = self.query(query, set.head.dim());
        let share = (count / (SHARES_OF_A_BLOCK * self.blocks)).max(LEAST_SHARE).next_multiple_of(TILE);
        let shares = count.div_ceil(share);
        let keys = self.blocks * most;
        let chunk = match self.blocks > 1 && shares > 1 && keys > OWN_LISTS {
            true => self.chunks().alloc(g, context.net, keys * 8)?,
            false => None,
        };
        // Without memory for the lists of others, it searches alone.
        if self.blocks == 1 || shares <= 1 || (keys > OWN_LISTS && chunk.is_none()) {
            compare(g, best, &set.head.tiles().compare_with(numbers), first, end);
            best.finish(g);
            return Ok(());
        }
        let search = Search {
            set: set.entry.raw(),
            query: query.raw(),
            lists: chunk.map_or(0, Chunk::raw),
            first: first as u32,
            end: end as u32,
            most: most as u32,
            shares: shares as u32,
            share: share as u32,
        };
        let desk = self.desk(g.index() as usize);
        let number = desk.open(g, search);
        self.announce(g, 1);
        let (vectors, mut mine) = (set.head.tiles().compare_with(numbers), 0);
        while let Some(which) = desk.claim_more(g, &search) {
            compare_share(g, best, &vectors, &search, which);
            mine += 1;
        }
        // What others have begun they end: they wait for nothing.
        let mut round = 0;
        while mine + self.done(g, desk, number) < search.shares {
            round += 1;
            pause(g, context.net, round)?;
        }
        if g.is_leader() {
            desk.close(number);
        }
        self.announce(g, -1);
        self.merge_lists(g, best, desk, number, self.lists(g.index() as usize, chunk), most);
        best.finish(g);
        match chunk {
            Some(chunk) => self.chunks().free(g, context.net, chunk),
            None => Ok(()),
        }
    }

    /// Takes shares of a search that another block has put out, if there is one. Returns whether
    /// there may be more to do.
    ///
    /// A block calls it when it is rung for ([`gpunet_serve::Bells::ring_blocks`]). It returns when
    /// no share is left.
    ///
    /// # Cooperation
    /// All lanes call it, with nothing locked.
    ///
    /// # Errors
    /// None at present: it waits for nothing.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn help<G: Group>(&self, g: &G, context: &Context) -> Result<bool> {
        if self.blocks == 1 {
            return Ok(false);
        }
        let mut found = 0;
        if g.is_leader() {
            found = (self.open.u32(open::NOW).get() as u64) << 32 | self.open.u32(open::LAST).get() as u64;
        }
        let found = g.broadcast(found);
        let (me, now, last) = (g.index() as usize, found >> 32, found as u32 as usize);
        if now == 0 {
            return Ok(false);
        }
        let mut helped = last != me && self.help_at(g, last, me);
        // Others in turn.
        let mut look = 1;
        while now > 1 && look < LOOKS && look < self.blocks {
            let block = ((context.now >> 12) as usize + look) % self.blocks;
            helped |= block != me && self.help_at(g, block, me);
            look += 1;
        }
        Ok(helped || now > 1)
    }

    /// Takes shares of the search on a block's desk. Returns whether there were any.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn help_at<G: Group>(&self, g: &G, block: usize, me: usize) -> bool {
        let desk = self.desk(block);
        let Some((number, mut which)) = desk.claim(g) else { return false };
        let search = desk.search();
        let chunks = self.chunks();
        // They stay until this block has said that it is done.
        let (Some(set), Some(query)) = (Chunk::from_raw(search.set), Chunk::from_raw(search.query)) else {
            return false;
        };
        let lists = self.lists(block, Chunk::from_raw(search.lists));
        let head = Head::of(chunks, set);
        let vectors = head.tiles().compare_with(self.query(query, head.dim()));
        let mut best = Best::new(g, self.best_of(me), search.most as usize);
        let mut shares = 0;
        loop {
            compare_share(g, &mut best, &vectors, &search, which);
            shares += 1;
            match desk.claim_more(g, &search) {
                Some(next) => which = next,
                None => break,
            }
        }
        best.finish(g);
        let list = list_of(lists, me, search.most as usize);
        let mut at = g.rank() as usize;
        while at < search.most as usize {
            list.u64(8 * at).set(best.get(at));
            at += g.size() as usize;
        }
        g.sync();
        if g.is_leader() {
            desk.done(me, number, shares);
        }
        true
    }

    /// Counts the searches that are put out, and rings for the other blocks. By all lanes; one
    /// counts.
    fn announce<G: Group>(&self, g: &G, more: i32) {
        if g.is_leader() {
            self.open.u32(open::NOW).fetch_add(more as u32);
            if more > 0 {
                self.open.u32(open::LAST).set(g.index());
            }
        }
        if more > 0 {
            // Who is led here by it finds the search.
            self.bells.ring_blocks(g);
        }
    }

    /// Shares that other blocks have done. All lanes.
    fn done<G: Group>(&self, g: &G, desk: Desk, number: u32) -> u32 {
        let (mut done, mut block) = (0, g.rank() as usize);
        while block < self.blocks {
            done += desk.done_by(block, number);
            block += g.size() as usize;
        }
        g.sum(done)
    }

    /// Offers what other blocks have found.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn merge_lists<G: Group>(
        &self,
        g: &G,
        best: &mut Best,
        desk: Desk,
        number: u32,
        lists: Memory,
        most: usize,
    ) {
        // 32 bits: a division of 64 takes a GPU long. The nearest of each list come first: few of
        // the others are as near.
        let (blocks, lanes) = (self.blocks as u32, g.size());
        let (keys, mut first) = (blocks * most as u32, 0);
        while first < keys {
            let wanted = if first < blocks { 1 } else { best.wanted(lanes as usize) };
            let key = |offered: usize| {
                let at = first + offered as u32 * lanes + g.rank();
                if at >= keys {
                    return 0;
                }
                let (block, place) = ((at % blocks) as usize, (at / blocks) as usize);
                match desk.done_by(block, number) {
                    0 => 0,
                    _ => list_of(lists, block, most).u64(8 * place).get(),
                }
            };
            best.offer(g, wanted, key);
            if first < blocks {
                best.finish(g);
            }
            first += wanted as u32 * lanes;
        }
    }

    /// Where blocks leave what they have found for the one that searches.
    fn lists(&self, block: usize, chunk: Option<Chunk>) -> Memory {
        match chunk {
            Some(chunk) => self.chunks().memory(chunk),
            None => self.lists.part(block * OWN_LISTS * 8, OWN_LISTS * 8),
        }
    }

    fn desk(&self, block: usize) -> Desk {
        Desk::at(self.desks, block, self.blocks)
    }

    pub(super) fn best_of(&self, block: usize) -> Memory {
        self.best.part(block * Best::BYTES, Best::BYTES)
    }
}

fn list_of(lists: Memory, block: usize, most: usize) -> Memory {
    lists.part(block * most * 8, most * 8)
}

fn compare_share<G: Group>(g: &G, best: &mut Best, vectors: &Comparison, search: &Search, which: u32) {
    let start = search.first as usize + which as usize * search.share as usize;
    let end = (start + search.share as usize).min(search.end as usize);
    compare(g, best, vectors, start, end);
}

/// Compares the vectors from `start` to `end`, lanes side by side. All lanes.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn compare<G: Group>(g: &G, best: &mut Best, vectors: &Comparison, start: usize, end: usize) {
    let (lanes, mut first) = (g.size() as usize, start);
    while first < end {
        // None of the lanes has more than these.
        let wanted = best.wanted(lanes).min((end - first).div_ceil(lanes));
        best.offer(g, wanted, |offered| {
            let index = first + offered * lanes + g.rank() as usize;
            if index < end { key_of(vectors.dot(index), index as u32) } else { 0 }
        });
        first += wanted * lanes;
    }
}
