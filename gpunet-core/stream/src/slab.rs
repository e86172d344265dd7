//! Ring memory: a buddy allocator over one region's ring area.

use gpunet_abi::options::{MAX_RING_LOG2, MIN_RING_LOG2};
use std::collections::BTreeSet;

const CLASSES: usize = (MAX_RING_LOG2 - MIN_RING_LOG2 + 1) as usize;

/// Hands out rings of 4 KiB to 16 MiB by size class, from `start` to `start + len` of a region.
#[derive(Debug)]
pub struct Slab {
    start: u64,
    free: [BTreeSet<u64>; CLASSES],
    free_bytes: u64,
}

impl Slab {
    /// Makes a slab of `len` bytes from offset `start`; what is left over below 4 KiB is not used.
    #[must_use]
    pub fn new(start: u64, len: u64) -> Self {
        let mut slab = Self { start, free: std::array::from_fn(|_| BTreeSet::new()), free_bytes: 0 };
        slab.extend(0, len);
        slab
    }

    /// Adds the memory behind the first `from` bytes, up to `len`. `from` is a multiple of 4 KiB,
    /// or what a slab was made or extended to before.
    pub fn extend(&mut self, from: u64, len: u64) {
        let mut at = from.next_multiple_of(1 << MIN_RING_LOG2);
        // Largest aligned blocks first, so that every block's buddy is found by its offset.
        while at < len && len - at >= 1 << MIN_RING_LOG2 {
            let fits = 63 - (len - at).leading_zeros();
            let aligned = if at == 0 { u32::from(MAX_RING_LOG2) } else { at.trailing_zeros() };
            let log2 = fits.min(aligned).min(u32::from(MAX_RING_LOG2));
            // As if it came back: it merges with what was there before.
            self.give(self.start + at, log2 as u8);
            at += 1 << log2;
        }
    }

    /// Bytes that are free.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Returns whether rings of these sizes (log2 of bytes) fit together into `len` unused bytes.
    #[must_use]
    pub fn could_hold(len: u64, rings: &[u8]) -> bool {
        // No ring is larger than the largest class: more memory than that for each changes nothing.
        let mut empty = Self::new(0, len.min((rings.len() as u64) << MAX_RING_LOG2));
        rings.iter().all(|&log2| empty.take(log2).is_some())
    }

    /// Takes a ring of `1 << log2` bytes and returns its offset in the region; `None` when no block
    /// of that size is free.
    pub fn take(&mut self, log2: u8) -> Option<u64> {
        let class = usize::from(log2.checked_sub(MIN_RING_LOG2)?);
        let from = (class..CLASSES).find(|&c| !self.free[c].is_empty())?;
        let at = self.free[from].pop_first()?;
        // Split down: the lower half is split further, the upper halves stay free.
        for c in (class..from).rev() {
            self.free[c].insert(at + (1 << (c + usize::from(MIN_RING_LOG2))));
        }
        self.free_bytes -= 1 << log2;
        Some(self.start + at)
    }

    /// Gives a ring back.
    pub fn give(&mut self, offset: u64, log2: u8) {
        let mut at = offset - self.start;
        let mut class = usize::from(log2 - MIN_RING_LOG2);
        self.free_bytes += 1 << log2;
        while class + 1 < CLASSES {
            let buddy = at ^ (1 << (class + usize::from(MIN_RING_LOG2)));
            if !self.free[class].remove(&buddy) {
                break;
            }
            at = at.min(buddy);
            class += 1;
        }
        self.free[class].insert(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_exhausted_slab_returns_none_and_recovers() {
        let mut slab = Slab::new(4096, 64 * 1024);
        let rings: Vec<u64> = (0..16).map(|_| slab.take(12).expect("free")).collect();
        assert_eq!((slab.take(12), slab.free_bytes()), (None, 0));
        rings.into_iter().for_each(|r| slab.give(r, 12));
        assert_eq!(slab.take(16), Some(4096), "buddies merge into one block again");
    }

    #[test]
    fn what_fits_is_a_matter_of_powers_of_two() {
        let len = 24 << 10;
        assert!(Slab::could_hold(len, &[14, 13]) && Slab::could_hold(len, &[13, 14]));
        assert!(!Slab::could_hold(len, &[14, 14]) && !Slab::could_hold(len, &[15]));
        assert!(Slab::could_hold(16 << 20, &[24]) && !Slab::could_hold(16 << 20, &[24, 24]));
        assert!(Slab::could_hold(1 << 40, &[24, 24]));
    }

    #[test]
    fn a_slab_that_grows_is_as_one_that_was_large_from_the_start() {
        for (first, len) in [(4096, 1 << 20), (2 << 20, 40 << 20), (3 << 20, 64 << 20), (12288, 20480)] {
            let mut slab = Slab::new(4096, first);
            slab.extend(first, len);
            assert_eq!((&slab.free, slab.free_bytes), (&Slab::new(4096, len).free, len));
        }
    }

    proptest! {
        #[test]
        fn rings_never_overlap_and_all_memory_comes_back(
            pages in 1u64..600, ops in prop::collection::vec((any::<bool>(), 12u8..=24), 1..200)
        ) {
            let mut slab = Slab::new(8192, pages * 4096);
            let all = slab.free_bytes();
            let mut held: Vec<(u64, u8)> = Vec::new();
            for (take, log2) in ops {
                if take {
                    if let Some(at) = slab.take(log2) {
                        let end = at + (1 << log2);
                        prop_assert!(at >= 8192 && end <= 8192 + pages * 4096);
                        prop_assert!(held.iter().all(|&(o, l)| end <= o || o + (1 << l) <= at));
                        held.push((at, log2));
                    }
                } else if let Some((at, log2)) = held.pop() {
                    slab.give(at, log2);
                }
            }
            for (at, log2) in held {
                slab.give(at, log2);
            }
            prop_assert_eq!(slab.free_bytes(), all);
            prop_assert_eq!(&slab.free, &Slab::new(8192, pages * 4096).free);
        }
    }
}
