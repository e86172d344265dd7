//! The next message of a receiver's unit ring.

use crate::memory::units;
use gpunet_abi::position::StreamWord;
use gpunet_abi::units::{UnitHeader, UnitRing};

/// Where the next message of a unit ring begins, for its receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextUnits {
    ring: UnitRing,
    /// The first slot that was not taken.
    slot: u32,
}

impl NextUnits {
    pub(crate) const fn new(ring: UnitRing, slot: u32) -> Self {
        Self { ring, slot }
    }

    /// The header of the next message, if its slot is there.
    #[inline(always)]
    fn header(self) -> Option<UnitHeader> {
        units::header(self.ring, self.slot)
    }

    /// Returns whether a message in units follows what has come up to `seen`.
    #[inline(always)]
    pub(crate) fn are_next(self, seen: StreamWord) -> bool {
        self.header().is_some_and(|header| header.distance(seen.position()) <= 0)
    }

    /// What an observed word says of the bytes in the ring behind `seen`: no more than up to the
    /// next message in units. A word that lags behind units says nothing new.
    #[inline(always)]
    pub(crate) fn before(self, word: StreamWord, seen: StreamWord) -> StreamWord {
        if !word.end() && word.position() <= seen.position() {
            return seen;
        }
        // After the word was observed: the slots of all messages that it covers are there.
        match self.header().map(|header| header.distance(seen.position())) {
            Some(distance) if distance <= 0 => seen,
            Some(distance) if seen.position() + (distance as u64) < word.position() => {
                StreamWord::at(seen.position() + distance as u64)
            }
            _ => word,
        }
    }

    /// Returns up to which position bytes have come: by the ring up to `word`, and in units;
    /// `enough` bytes behind `seen`, or all.
    pub(crate) fn come(mut self, seen: StreamWord, word: StreamWord, enough: u64) -> u64 {
        let (first, mut at) = (self.slot, seen.position());
        let published = if word.position() > at { word.position() } else { at };
        while at - seen.position() < enough && self.slot.wrapping_sub(first) < self.ring.slots() {
            let Some(header) = self.header() else { break };
            let distance = header.distance(at) as i64;
            let next = at.wrapping_add_signed(distance + header.len as i64);
            if next <= at || distance > 0 && at + distance as u64 > published {
                break;
            }
            at = next;
            self.slot = self.slot.wrapping_add(gpunet_abi::units::slots_of(header.len));
        }
        if at > published { at } else { published }
    }
}
