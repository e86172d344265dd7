//! Where a block puts a search out, so that others take shares of it.

use gpunet_device::Group;
use gpunet_serve::Memory;
use gpunet_serve::raw::Word64;

/// Where things are on a desk. The block that it belongs to writes the description before it
/// publishes the ticket; every block writes its own word of what is done.
mod at {
    /// The search's number, and the next share. Whoever adds one has claimed that share, if there
    /// is such a share.
    pub const TICKET: usize = 0;
    pub const SET: usize = 8;
    pub const QUERY: usize = 12;
    pub const LISTS: usize = 16;
    pub const END: usize = 20;
    pub const MOST: usize = 24;
    pub const SHARE: usize = 28;
    /// The search's number, and how many shares it has.
    pub const SHARES: usize = 32;
    pub const FIRST: usize = 40;
    /// For each block: the search's number, and how many shares of it that block has done.
    pub const DONE: usize = 64;
}

/// The next share of a search that is over, and those behind it: as many blocks can be late with
/// their claims.
const OVER: u32 = 1 << 31;

/// What a search is. Plain numbers: chunks by their raw number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// The entry of the set.
    pub set: u32,
    /// The vector.
    pub query: u32,
    /// The chunk in which blocks leave their lists; 0: memory of the block that searches.
    pub lists: u32,
    /// The first vector that is compared, and the one behind the last.
    pub first: u32,
    pub end: u32,
    /// Vectors that are wanted.
    pub most: u32,
    pub shares: u32,
    /// Vectors of a share.
    pub share: u32,
}

/// One block's desk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Desk {
    memory: Memory,
}

impl Desk {
    pub(super) const fn bytes(blocks: usize) -> usize {
        (at::DONE + 8 * blocks).next_multiple_of(64)
    }

    pub(super) fn at(desks: Memory, block: usize, blocks: usize) -> Self {
        Self { memory: desks.part(block * Self::bytes(blocks), Self::bytes(blocks)) }
    }

    fn ticket(self) -> Word64 {
        self.memory.u64(at::TICKET)
    }

    fn shares(self) -> Word64 {
        self.memory.u64(at::SHARES)
    }

    /// Puts a search out; returns its number. By all lanes of the desk's block; begins with a
    /// barrier.
    pub(super) fn open<G: Group>(self, g: &G, search: Search) -> u32 {
        let number = ((self.ticket().get() >> 32) as u32).wrapping_add(1);
        g.sync();
        if g.is_leader() {
            let set = |at, value| self.memory.u32(at).set(value);
            set(at::SET, search.set);
            set(at::QUERY, search.query);
            set(at::LISTS, search.lists);
            set(at::FIRST, search.first);
            set(at::END, search.end);
            set(at::MOST, search.most);
            set(at::SHARE, search.share);
            self.shares().set((number as u64) << 32 | search.shares as u64);
            self.ticket().publish((number as u64) << 32);
        }
        number
    }

    /// Ends the search: nobody takes a share any more. By one lane of the desk's block.
    pub(super) fn close(self, number: u32) {
        self.ticket().publish((number as u64) << 32 | OVER as u64);
    }

    /// What is searched for, by whoever has claimed a share of it and not said that it is done: it
    /// stays until then.
    pub(super) fn search(self) -> Search {
        let get = |at| self.memory.u32(at).get();
        Search {
            set: get(at::SET),
            query: get(at::QUERY),
            lists: get(at::LISTS),
            first: get(at::FIRST),
            end: get(at::END),
            most: get(at::MOST),
            shares: self.shares().get() as u32,
            share: get(at::SHARE),
        }
    }

    /// Takes a share: the search's number, and which share it is. All lanes of a block.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn claim<G: Group>(self, g: &G) -> Option<(u32, u32)> {
        let mut claimed = OVER as u64;
        if g.is_leader() && (self.ticket().get() as u32) < self.shares().get() as u32 {
            let ticket = self.ticket().take_next();
            // A search ends only when all its shares are done. If this one is over, its shares are
            // no longer told here, or the ticket says so.
            let shares = self.shares().get();
            if shares >> 32 == ticket >> 32 && (ticket as u32) < shares as u32 {
                claimed = ticket;
            }
        }
        let claimed = g.broadcast(claimed);
        if claimed as u32 == OVER { None } else { Some(((claimed >> 32) as u32, claimed as u32)) }
    }

    /// Takes a share of a search that is not over meanwhile: the block has put it out, or has a
    /// share of it and has not said that it is done. All lanes of a block.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn claim_more<G: Group>(self, g: &G, search: &Search) -> Option<u32> {
        let claimed = g.broadcast(if g.is_leader() { self.ticket().take_next() } else { 0 }) as u32;
        if claimed < search.shares { Some(claimed) } else { None }
    }

    /// Says that a block has done so many shares, and left their list. By one lane, after a
    /// barrier.
    pub(super) fn done(self, block: usize, number: u32, shares: u32) {
        self.memory.u64(at::DONE + 8 * block).publish((number as u64) << 32 | shares as u64);
    }

    /// How many shares of a search a block has done, and said so.
    pub(super) fn done_by(self, block: usize, number: u32) -> u32 {
        let done = self.memory.u64(at::DONE + 8 * block).observe();
        if (done >> 32) as u32 == number { done as u32 } else { 0 }
    }
}
