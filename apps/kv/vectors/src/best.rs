//! The nearest vectors that a block has found so far.
#![allow(unsafe_code)]

use super::MAX_COUNT;
use gpunet_device::Group;
use gpunet_serve::Memory;
use gpunet_serve::raw::Word32;

/// The most lanes of a block.
const MOST_LANES: usize = 1024;
/// Candidates for which there is a place at each time: as many keys may be offered at once, by all
/// lanes together.
const OFFERED: usize = 4 * MOST_LANES;
/// The list is merged with the candidates once there are so many, or as many as it may have keys.
const MERGE_FROM: usize = 64;
/// Of more candidates than this (or than four lists have), most are sorted out before the others
/// are merged.
const FEW: usize = 1024;

/// Where things are in a block's memory.
mod at {
    use super::MAX_COUNT;
    /// How many candidates there are.
    pub const FILL: usize = 0;
    /// Two lists. One is merged into the other.
    pub const LISTS: usize = 64;
    pub const CANDIDATES: usize = LISTS + 2 * 8 * MAX_COUNT;
}

/// The `most` largest keys of those that were offered, sorted. Its fields are equal on all lanes.
///
/// A key that is larger than the last of a full list becomes a candidate. Candidates are merged
/// from time to time: each lane counts for some keys how many are larger, which is their place in
/// the new list.
#[derive(Debug)]
pub(super) struct Best {
    memory: Memory,
    most: usize,
    len: usize,
    /// Which list is the present one.
    second: bool,
    fill: usize,
    threshold: u64,
}

impl Best {
    /// Bytes for each block.
    pub(super) const BYTES: usize = (at::CANDIDATES + 8 * (MAX_COUNT + OFFERED)).next_multiple_of(64);

    /// An empty list of up to `most` keys in a block's memory. All lanes; ends with a barrier.
    pub(super) fn new<G: Group>(g: &G, memory: Memory, most: usize) -> Self {
        let best = Self { memory, most, len: 0, second: false, fill: 0, threshold: 0 };
        // The lanes have read what was there before.
        g.sync();
        if g.is_leader() {
            best.fill_word().set(0);
        }
        g.sync();
        best
    }

    fn fill_word(&self) -> Word32 {
        self.memory.u32(at::FILL)
    }

    const fn list(second: bool) -> usize {
        at::LISTS + if second { 8 * MAX_COUNT } else { 0 }
    }

    /// How many keys each lane may offer at a time: few while the list is not full, and each
    /// becomes a candidate.
    pub(super) const fn wanted(&self, lanes: usize) -> usize {
        if self.threshold == 0 { 1 } else { OFFERED / lanes }
    }

    /// Offers keys of this lane: as many as all lanes offer, and not more than are wanted. `key` is
    /// called for the first to the last; 0 is none.
    ///
    /// # Cooperation
    /// All lanes call it. Also a barrier.
    #[inline(always)]
    pub(super) fn offer<G: Group>(&mut self, g: &G, count: usize, key: impl Fn(usize) -> u64) {
        let mut which = 0;
        while which < count {
            let key = key(which);
            if key > self.threshold {
                // There is a place: fewer than `MAX_COUNT` were there before all lanes offered
                // theirs.
                let place = self.fill_word().fetch_add(1) as usize;
                self.memory.u64(at::CANDIDATES + 8 * place).set(key);
            }
            which += 1;
        }
        g.sync();
        self.fill = g.broadcast(if g.is_leader() { self.fill_word().get() as u64 } else { 0 }) as usize;
        if self.fill >= self.most.max(MERGE_FROM) {
            self.merge(g);
        }
    }

    /// Raises the threshold until few candidates are above it, but enough to fill the list. All
    /// lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn raise<G: Group>(&mut self, g: &G) {
        let above = |bound| {
            let (mut above, mut at) = (0, g.rank() as usize);
            while at < self.fill {
                above += u32::from(self.key(at::CANDIDATES + 8 * at) > bound);
                at += g.size() as usize;
            }
            g.sum(above) as usize
        };
        // Too few are above the highest one.
        let (mut threshold, mut highest, mut taken) = (self.threshold, u64::MAX, self.fill);
        // If equal keys are offered, there may be no such threshold.
        while taken > FEW.max(4 * self.most) && highest - threshold > 1 {
            let middle = threshold + (highest - threshold) / 2;
            let found = above(middle);
            if found < self.most {
                highest = middle;
            } else {
                (threshold, taken) = (middle, found);
            }
        }
        self.threshold = threshold;
    }

    /// The key at some place of the block's memory, which no lane writes before the next barrier.
    #[inline(always)]
    fn key(&self, at: usize) -> u64 {
        assert!(at + 8 <= self.memory.len());
        // SAFETY: inside the block's memory (checked) and aligned. Only lanes of this block use it,
        // and between two barriers either write or read it.
        unsafe { self.memory.as_ptr().wrapping_add(at).cast::<u64>().read() }
    }

    /// How many of the keys from there are larger.
    #[inline(always)]
    fn larger(&self, from: usize, count: usize, key: u64) -> usize {
        let (mut larger, mut at) = (0, 0);
        // Loads side by side: each alone takes as long as eight.
        while at + 8 <= count {
            let other = |more: usize| u32::from(self.key(from + 8 * (at + more)) > key);
            larger +=
                (other(0) + other(1)) + (other(2) + other(3)) + (other(4) + other(5)) + (other(6) + other(7));
            at += 8;
        }
        while at < count {
            larger += u32::from(self.key(from + 8 * at) > key);
            at += 1;
        }
        larger as usize
    }

    /// Merges the candidates into the list. All lanes; begins and ends with a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn merge<G: Group>(&mut self, g: &G) {
        g.sync();
        if self.fill > FEW.max(4 * self.most) {
            self.raise(g);
        }
        let (old, new) = (Self::list(self.second), Self::list(!self.second));
        let mut at = g.rank() as usize;
        while at < self.len + self.fill {
            let (key, is_old) = match at.checked_sub(self.len) {
                None => (self.key(old + 8 * at), true),
                Some(at) => (self.key(at::CANDIDATES + 8 * at), false),
            };
            // Enough keys are above the threshold for a place behind the list of one that is not.
            if is_old || key > self.threshold {
                let place = self.larger(old, self.len, key) + self.larger(at::CANDIDATES, self.fill, key);
                if place < self.most {
                    self.memory.u64(new + 8 * place).set(key);
                }
            }
            at += g.size() as usize;
        }
        g.sync();
        if g.is_leader() {
            self.fill_word().set(0);
        }
        self.len = (self.len + self.fill).min(self.most);
        (self.second, self.fill) = (!self.second, 0);
        self.threshold = if self.len == self.most { self.key(new + 8 * (self.len - 1)) } else { 0 };
        g.sync();
    }

    /// Ends the offers: the list is complete. All lanes.
    pub(super) fn finish<G: Group>(&mut self, g: &G) {
        if self.fill > 0 {
            self.merge(g);
        }
    }

    /// How many keys the list may have.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// How many keys the list has.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// A key of the list, the largest first; 0 behind its end.
    pub(super) fn get(&self, at: usize) -> u64 {
        if at < self.len { self.key(Self::list(self.second) + 8 * at) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::for_test;
    use gpunet_device::group::Lanes;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        #[test]
        fn the_largest_keys_are_kept(keys in prop::collection::btree_set(1u64..1 << 40, 0..6000), most in 1usize..200, lanes in 1u32..5, turn: usize) {
            let mut keys: Vec<_> = keys.into_iter().collect();
            let middle = turn % (keys.len() + 1);
            keys.rotate_left(middle);
            let memory = for_test(Best::BYTES);
            let found: Vec<Vec<u64>> = std::thread::scope(|scope| {
                let run = |lane: Lanes| {
                    let mut best = Best::new(&lane, memory, most);
                    let mut rest = &keys[..];
                    while !rest.is_empty() {
                        let wanted = best.wanted(lanes as usize);
                        let round = rest.split_off(..(wanted * lanes as usize).min(rest.len())).unwrap();
                        best.offer(&lane, wanted, |at| round.get(at * lanes as usize + lane.rank() as usize).copied().unwrap_or(0));
                    }
                    best.finish(&lane);
                    (0..best.len()).map(|at| best.get(at)).collect()
                };
                let threads: Vec<_> = Lanes::group(0, 1, lanes).into_iter().map(|lane| scope.spawn(move || run(lane))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            keys.sort_unstable_by(|a, b| b.cmp(a));
            keys.truncate(most);
            for list in found {
                prop_assert_eq!(&list, &keys);
            }
        }
    }
}
