//! Sending by units: [`gpunet_abi::units`] has the format.

use super::SendHalf;
use crate::group::Lane;
use crate::memory::buffer::Source;
use crate::memory::units as slots;
use crate::socket::half::{mirror, notify};
use crate::{Group, platform};
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::{Direction, units};

/// How often a sender without credit for units asks for it before it sends by the ring: on a GPU
/// for as long as some releases take, which are 2.5 us each between two of them.
const CREDIT_POLLS: u32 = if platform::RELEASE_WAITS { 16 } else { 1 };

impl SendHalf {
    /// Returns whether a message of that length goes by units, if there is credit.
    #[inline(always)]
    pub(super) const fn goes_by_units(&self, len: usize) -> bool {
        (len as u64).wrapping_sub(1) < units::longest(self.producer.capacity())
    }

    /// Returns whether the receiver has granted so many slots; asks it, if that is not known. All
    /// lanes.
    ///
    /// It asks a receiver that has begun several times: a release costs more than it takes until a
    /// receiver at work has taken the next messages.
    #[inline(always)]
    pub(super) fn has_credit<G: Group>(&mut self, g: &G, lane: Lane, slots: u32) -> bool {
        if self.credit < slots {
            let end = self.producer.end();
            let (mut word, mut polls) = (0, 0);
            while lane.is_leader() && polls < CREDIT_POLLS {
                // Ordering: Acquire, pairs with the Release in `entry::begin_units`.
                word = end.grant().observe();
                let is_enough = end.unit_ring().credit(word, self.units) >= slots;
                polls = if is_enough || word == 0 { CREDIT_POLLS } else { polls + 1 };
            }
            self.credit = end.unit_ring().credit(g.broadcast(word), self.units);
        }
        self.credit >= slots
    }

    /// Sends a small message, for which there is room and credit, by units.
    #[inline(always)]
    pub(super) fn send_units<G: Group>(&mut self, g: &G, lane: Lane, source: Source) {
        let (end, before) = (self.producer.end(), self.producer.position());
        let slots = units::slots_of(source.len as u32);
        // SAFETY: the source is readable by its constructor's contract; this half's owner is the
        // one that writes the unit ring, and has credit.
        unsafe { slots::store(lane, end.unit_ring(), self.units, before, source.ptr, source.len) };
        hand_off::at(HandOff::LineStored);
        self.units = self.units.wrapping_add(slots);
        self.credit -= slots;
        self.lines_sent += 1;
        self.producer.advance(source.len as u64);
        if lane.is_last() {
            self.keep();
            let (net, slot, after) = (self.net, self.handle.slot(), self.producer.position());
            mirror(net, slot, Direction::Send, end.link, before, after);
        }
        // The caller may write the source again.
        g.sync();
        if lane.is_leader() {
            notify(self.net, self.handle.slot(), end, Direction::Send);
        }
    }
}
