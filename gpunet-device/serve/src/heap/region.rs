//! A large chunk that is made of small ones: their owner gives them up one by one, and nobody takes
//! them meanwhile.

use super::{Chunk, FREE, Heap, ITEM, MAX_ORDER, ORDER, TAKEN, UNIT, head};
use gpunet_device::{Group, Net, Result};

/// In the byte of a chunk's first unit: it is part of a region that is being made.
const CLAIMED: u8 = FREE | TAKEN;
/// Regions that are compared before one is chosen.
const COMPARED: usize = 8;
/// Regions, and chunks of them, that are looked at before the search ends without one.
const LOOKED_AT: usize = 4096;
const CHUNKS_LOOKED_AT: usize = 4 * LOOKED_AT;
/// Chunks after which the best region so far will do: the heap's lock is held meanwhile.
const CHUNKS_COMPARED: usize = 1024;

/// A region that is being made: [`Heap::choose_region`]. Equal on all lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    start: usize,
    order: usize,
    /// Up to here it is claimed.
    at: usize,
}

/// What comes next in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// This item has to be given up, then [`Heap::claim`] is told of it.
    Item(Chunk),
    /// It is one chunk.
    Done(Chunk),
    /// Something in it cannot be given up: [`Heap::leave_region`].
    Blocked,
}

impl Heap {
    /// Chooses an aligned region of at least `bytes` bytes that consists of free chunks and of
    /// items: of some behind the hand the one that costs least. `cost` says what it costs to give
    /// up an item; `None`: it cannot be.
    ///
    /// # Cooperation
    /// All lanes call it and get the same region; one calls `cost`.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn choose_region<G: Group>(
        self,
        g: &G,
        net: Net,
        bytes: usize,
        cost: impl Fn(Chunk) -> Option<u64>,
    ) -> Result<Option<Region>> {
        let Some(order) = super::order_of(bytes) else { return Ok(None) };
        let found = self.locked(g, net, || self.choose(order, cost).map_or(0, |unit| unit as u64 + 1))?;
        Ok((found as usize).checked_sub(1).map(|start| Region { start, order, at: start }))
    }

    fn choose(self, order: usize, cost: impl Fn(Chunk) -> Option<u64>) -> Option<usize> {
        let regions = (self.head.u32(head::FRONTIER).get() as usize) << (MAX_ORDER - order);
        let hand = self.head.u32(head::HAND);
        let mut best: Option<(u64, usize)> = None;
        let (mut looked_at, mut compared, mut chunks) = (0, 0, 0);
        // The hand counts units, so that it goes on for regions of another size.
        let mut region = hand.get() as usize >> order;
        while looked_at < regions.min(LOOKED_AT)
            && compared < COMPARED
            && chunks < if best.is_some() { CHUNKS_COMPARED } else { CHUNKS_LOOKED_AT }
        {
            region = if region + 1 < regions { region + 1 } else { 0 };
            looked_at += 1;
            let (start, mut at, mut sum) = (region << order, region << order, Some(0));
            while at < start + (1 << order)
                && let Some(so_far) = sum
            {
                let state = self.states.byte(at);
                let size = 1 << (state & ORDER);
                chunks += 1;
                sum = match state & !ORDER {
                    _ if at + size > start + (1 << order) => None,
                    FREE => Some(so_far),
                    ITEM_TAKEN => Chunk::from_raw(at as u32 + 1).and_then(&cost).map(|cost| so_far + cost),
                    _ => None,
                };
                at += size;
            }
            if let Some(sum) = sum {
                compared += 1;
                if best.is_none_or(|(least, _)| sum < least) {
                    best = Some((sum, start));
                }
            }
        }
        hand.set((region << order) as u32);
        best.map(|(_, start)| start)
    }

    /// Claims what is free in a region, up to the next item, which the caller has to make its own.
    /// `given_up`: the last one is the caller's. `is_item`: the region is to be an item.
    ///
    /// # Cooperation
    /// All lanes call it and get the same.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn claim<G: Group>(
        self,
        g: &G,
        net: Net,
        region: &mut Region,
        given_up: bool,
        is_item: bool,
    ) -> Result<Step> {
        let (start, end, from) = (region.start, region.start + (1 << region.order), region.at);
        let found = self.locked(g, net, || {
            let mut at = from;
            if given_up {
                let order = self.states.byte(at) & ORDER;
                self.states.set_byte(at, CLAIMED | order);
                at += 1 << order;
            }
            while at < end {
                let state = self.states.byte(at);
                let order = (state & ORDER) as usize;
                if state & !ORDER != FREE || at + (1 << order) > end {
                    break;
                }
                self.remove(at, order);
                self.states.set_byte(at, CLAIMED | order as u8);
                let used = self.head.u32(head::USED);
                used.set(used.get() + (1 << order));
                at += 1 << order;
            }
            if at == end {
                self.unite(start, region.order, is_item);
            }
            let comes_item = at < end
                && self.states.byte(at) & !ORDER == ITEM_TAKEN
                && at + (1 << (self.states.byte(at) & ORDER)) <= end;
            (at as u64) << 1 | u64::from(comes_item)
        })?;
        let (at, comes_item) = ((found >> 1) as usize, found & 1 != 0);
        region.at = at;
        Ok(match Chunk::from_raw(if at == end { start } else { at } as u32 + 1) {
            Some(chunk) if at == end => Step::Done(chunk),
            Some(chunk) if comes_item => Step::Item(chunk),
            _ => Step::Blocked,
        })
    }

    /// Makes claimed chunks one that is taken.
    fn unite(self, start: usize, order: usize, is_item: bool) {
        let mut at = start;
        while at < start + (1 << order) {
            let size = 1 << (self.states.byte(at) & ORDER);
            self.states.set_byte(at, 0);
            at += size;
        }
        let state = if is_item { ITEM_TAKEN } else { TAKEN };
        self.states.set_byte(start, state | order as u8);
    }

    /// Gives back what was claimed of a region.
    ///
    /// # Cooperation
    /// All lanes call it.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn leave_region<G: Group>(self, g: &G, net: Net, region: Region) -> Result<()> {
        self.locked(g, net, || {
            let mut at = region.start;
            while at < region.at {
                let order = (self.states.byte(at) & ORDER) as usize;
                let used = self.head.u32(head::USED);
                used.set(used.get() - (1 << order));
                self.merge(at, order);
                at += 1 << order;
            }
            0
        })?;
        Ok(())
    }
}

const ITEM_TAKEN: u8 = TAKEN | ITEM;
const _: () = assert!(UNIT << MAX_ORDER <= u32::MAX as usize);
