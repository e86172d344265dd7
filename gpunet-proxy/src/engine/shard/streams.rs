//! The streams of one attachment that a data thread drives.

use gpunet_core::memory::{STREAM_WORDS, WordArray};
use std::ops::Range;

/// A dense list of streams with an index by slot: scanning it costs as much as there are streams,
/// wherever their slots lie.
pub(super) struct Streams<S> {
    streams: Vec<S>,
    /// By position in the list: the slots, and the words of the device as last scanned.
    slots: Vec<u32>,
    seen: Seen,
    /// By slot: the stream's position in the list. As long as the highest slot that ever had one.
    positions: Vec<u32>,
}

/// The words that a device writes for its streams
/// ([`gpunet_core::memory::SharedMemory::stream_words`]).
pub(super) type Words = [WordArray; STREAM_WORDS];

/// The same words of each stream, as last scanned.
pub(super) type Seen = [Vec<u64>; STREAM_WORDS];

/// No stream in that slot.
const NONE: u32 = u32::MAX;

impl<S> Default for Streams<S> {
    fn default() -> Self {
        let (slots, seen, positions) = Default::default();
        Self { streams: Vec::new(), slots, seen, positions }
    }
}

impl<S> Streams<S> {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    fn position(&self, slot: u32) -> Option<usize> {
        self.positions.get(slot as usize).filter(|&&at| at != NONE).map(|&at| at as usize)
    }

    /// The stream in that slot.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut S> {
        let at = self.position(slot)?;
        Some(&mut self.streams[at])
    }

    /// The slots, and the words that were last seen of each.
    pub(super) fn seen(&self) -> (Vec<u32>, Seen) {
        (self.slots.clone(), self.seen.clone())
    }

    /// All of them, with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &S)> {
        self.slots.iter().copied().zip(&self.streams)
    }

    /// Enters a stream in a slot that has none.
    pub(super) fn insert(&mut self, slot: u32, stream: S) {
        if self.positions.len() <= slot as usize {
            self.positions.resize(slot as usize + 1, NONE);
        }
        self.positions[slot as usize] = self.streams.len() as u32;
        self.streams.push(stream);
        self.slots.push(slot);
        // Words of the slot's earlier stream must not count as new, nor those of this stream as
        // seen.
        self.seen.iter_mut().for_each(|seen| seen.push(u64::MAX));
    }

    /// Takes the stream out of that slot.
    pub(super) fn remove(&mut self, slot: u32) -> Option<S> {
        let at = self.position(slot)?;
        self.positions[slot as usize] = NONE;
        self.slots.swap_remove(at);
        self.seen.iter_mut().for_each(|seen| _ = seen.swap_remove(at));
        if let Some(&moved) = self.slots.get(at) {
            self.positions[moved as usize] = at as u32;
        }
        Some(self.streams.swap_remove(at))
    }

    /// Scans the words of the stream in that slot.
    pub(super) fn scan_slot(&mut self, slot: u32, words: &Words, changed: &mut impl FnMut(u32, &mut S)) {
        if let Some(at) = self.position(slot) {
            self.scan_range(at..at + 1, words, changed);
        }
    }

    /// Scans the words of these streams of the list, and calls `changed` for each stream of which
    /// one has changed.
    pub(super) fn scan_range(
        &mut self,
        which: Range<usize>,
        words: &Words,
        changed: &mut impl FnMut(u32, &mut S),
    ) {
        let (slots, streams) = (&self.slots[which.clone()], &mut self.streams[which.clone()]);
        for (words, seen) in words.iter().zip(&mut self.seen) {
            words.scan(slots, &mut seen[which.clone()], |at, _| changed(slots[at], &mut streams[at]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::Config;

    #[test]
    fn a_stream_is_found_by_its_slot_and_in_the_list() {
        let config = Config { sockets: 1 << 16, ..Config::small() };
        let memory = crate::engine::region::shared_memory(config.geometry(0)).unwrap();
        let words = memory.stream_words();
        let [published, consumed, closed] = words;
        let mut streams = Streams::default();
        let slots = [65_535, 7, 0, 40_000, 8];
        slots.iter().for_each(|&slot| streams.insert(slot, slot * 10));
        let changed = |streams: &mut Streams<u32>, which: Range<usize>| {
            let mut changed = Vec::new();
            streams.scan_range(which, &words, &mut |slot, stream: &mut u32| changed.push((slot, *stream)));
            changed
        };
        // The earlier values of a slot's words do not matter.
        assert_eq!(changed(&mut streams, 0..5).len(), STREAM_WORDS * 5);
        assert_eq!(changed(&mut streams, 0..5), []);
        published.get(40_000).publish(5);
        consumed.get(7).publish(6);
        consumed.get(6).publish(6);
        assert_eq!(changed(&mut streams, 2..5), [(40_000, 400_000)]);
        assert_eq!(changed(&mut streams, 0..5), [(7, 70)]);
        assert_eq!((streams.remove(7), streams.remove(7), streams.remove(9)), (Some(70), None, None));
        assert_eq!((streams.len(), streams.get_mut(8).copied(), streams.get_mut(7)), (4, Some(80), None));
        closed.get(8).publish(1);
        let mut found = Vec::new();
        for slot in [7, 8, 65_535, 69_999] {
            streams.scan_slot(slot, &words, &mut |slot, _| found.push(slot));
        }
        assert_eq!(found, [8]);
        let mut left: Vec<_> = streams.iter().map(|(slot, &stream)| (slot, stream)).collect();
        left.sort_unstable();
        assert_eq!(left, [(0, 0), (8, 80), (40_000, 400_000), (65_535, 655_350)]);
        for (slot, stream) in left {
            assert_eq!(streams.remove(slot), Some(stream));
        }
        assert_eq!(streams.len(), 0);
    }
}
