//! What this end has mapped of the other end's memory.
//!
//! A mapping is kept for the next transfer from the same allocation, since making one takes longer
//! than a copy of some megabytes. It is known by the allocation's place and by the driver's number
//! of it, which is never given twice: memory that was freed and allocated again at the same place
//! is another allocation, and so is memory that was mapped anew (`cuMemMap`); whatever overlaps it
//! is dropped. A mapping keeps memory allocated
//! that its owner has freed, so there is a bound in bytes, and one in time.

use crate::header::Offered;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

struct Mapping<M> {
    offered: Offered,
    mapped: M,
    used: Instant,
}

/// The mappings of one device.
pub(crate) struct Mappings<M> {
    /// By the address of the first byte. No two overlap.
    mappings: BTreeMap<u64, Mapping<M>>,
    limit: u64,
    idle: Duration,
}

impl<M: Clone> Mappings<M> {
    pub(crate) fn new(limit: u64, idle: Duration) -> Self {
        Self { mappings: BTreeMap::new(), limit, idle }
    }

    /// Returns the mapping of an allocation, if there is one. Drops those that overlap it and are
    /// of another.
    pub(crate) fn find(&mut self, offered: &Offered, now: Instant) -> Option<M> {
        if let Some(found) = self.mappings.get_mut(&offered.base)
            && (found.offered.len, found.offered.id) == (offered.len, offered.id)
        {
            found.used = now;
            return Some(found.mapped.clone());
        }
        let end = offered.base.saturating_add(offered.len);
        while let Some((&base, last)) = self.mappings.range(..end).next_back()
            && base.saturating_add(last.offered.len) > offered.base
        {
            self.mappings.remove(&base);
        }
        None
    }

    /// Keeps a mapping of an allocation for which there was none.
    pub(crate) fn insert(&mut self, offered: Offered, mapped: M, now: Instant) {
        self.mappings.insert(offered.base, Mapping { offered, mapped, used: now });
    }

    /// Drops what was not used for too long, and what is too much, the oldest first. Called between
    /// transfers.
    pub(crate) fn trim(&mut self, now: Instant) {
        let is_recent = |used: Instant| now.saturating_duration_since(used) < self.idle;
        self.mappings.retain(|_, mapping| is_recent(mapping.used));
        if self.bytes() <= self.limit {
            return;
        }
        let mut ages: Vec<(Instant, u64)> =
            self.mappings.iter().map(|(&base, mapping)| (mapping.used, base)).collect();
        ages.sort_unstable();
        let mut left = self.bytes();
        for (_, base) in ages {
            if left <= self.limit {
                break;
            }
            left -= self.mappings.remove(&base).map_or(0, |mapping| mapping.offered.len);
        }
    }

    /// Returns when [`trim`](Self::trim) has something to drop.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.mappings.values().map(|mapping| mapping.used + self.idle).min()
    }

    /// Returns how many bytes are mapped.
    pub(crate) fn bytes(&self) -> u64 {
        self.mappings.values().map(|mapping| mapping.offered.len).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    const IDLE: Duration = Duration::from_secs(10);

    fn offered(base: u64, len: u64, id: u64) -> Offered {
        Offered { base, len, id, handle: Some([1; 64]) }
    }

    #[test]
    fn an_allocation_is_mapped_once_and_found_again() {
        let (mut mappings, now) = (Mappings::new(1000, IDLE), Instant::now());
        assert_eq!(mappings.find(&offered(0, 100, 1), now), None);
        mappings.insert(offered(0, 100, 1), 'a', now);
        mappings.insert(offered(100, 100, 2), 'b', now);
        assert_eq!(mappings.find(&offered(0, 100, 1), now), Some('a'));
        assert_eq!(mappings.find(&offered(100, 100, 2), now), Some('b'));
        assert_eq!(mappings.bytes(), 200);
    }

    /// Memory that was freed, and allocated again at the same place, is other memory.
    #[test]
    fn a_mapping_of_what_was_there_before_is_never_found_and_dropped() {
        for (base, len, id) in
            [(100, 100, 9), (100, 50, 1), (50, 60, 9), (199, 1, 9), (0, 300, 9), (150, 10, 1)]
        {
            let (mut mappings, now, old) = (Mappings::new(1000, IDLE), Instant::now(), Rc::new(()));
            mappings.insert(offered(100, 100, 1), old.clone(), now);
            assert_eq!(mappings.find(&offered(base, len, id), now), None, "{base} {len} {id}");
            assert_eq!(Rc::strong_count(&old), 1, "{base} {len} {id}: it is given back");
        }
        let (mut mappings, now) = (Mappings::new(1000, IDLE), Instant::now());
        mappings.insert(offered(100, 100, 1), 'a', now);
        for (base, len) in [(0, 100), (200, 100)] {
            assert_eq!(mappings.find(&offered(base, len, 9), now), None);
        }
        assert_eq!(mappings.find(&offered(100, 100, 1), now), Some('a'), "neighbours do not overlap");
    }

    #[test]
    fn bytes_and_idle_time_are_bounded() {
        let (mut mappings, start) = (Mappings::new(250, IDLE), Instant::now());
        let second = Duration::from_secs(1);
        for at in 0..3u64 {
            mappings.insert(offered(at * 100, 100, at), at, start + second * at as u32);
        }
        assert_eq!(mappings.find(&offered(0, 100, 0), start + 3 * second), Some(0));
        mappings.trim(start + 3 * second);
        assert_eq!(mappings.bytes(), 200);
        assert_eq!(
            mappings.find(&offered(100, 100, 1), start + 3 * second),
            None,
            "the one not used for longest"
        );
        assert_eq!(mappings.next_expiry(), Some(start + 2 * second + IDLE));
        mappings.trim(start + 2 * second + IDLE);
        assert_eq!((mappings.bytes(), mappings.next_expiry()), (100, Some(start + 3 * second + IDLE)));
        mappings.trim(start + 3 * second + IDLE);
        assert_eq!((mappings.bytes(), mappings.next_expiry()), (0, None));
    }

    #[test]
    fn memory_without_a_handle_is_kept_until_it_is_mapped_anew() {
        let (mut mappings, now) = (Mappings::new(1000, IDLE), Instant::now());
        let virtual_memory = Offered { handle: None, ..offered(0, 100, 1) };
        mappings.insert(virtual_memory, 'a', now);
        mappings.trim(now);
        assert_eq!(mappings.find(&virtual_memory, now), Some('a'));
        assert_eq!(mappings.find(&Offered { id: 2, ..virtual_memory }, now), None);
        assert_eq!(mappings.bytes(), 0);
    }

    #[test]
    fn one_allocation_beyond_the_limit_is_not_kept() {
        let (mut mappings, now) = (Mappings::new(10, IDLE), Instant::now());
        mappings.insert(offered(0, 11, 1), (), now);
        mappings.trim(now);
        assert_eq!(mappings.bytes(), 0);
    }
}
