//! One group of a GPU polls the epoch in host memory, and relays it to the others in device memory;
//! likewise a word by which the host wakes groups.
//!
//! A release at system scope waits until no load of host memory is in flight near its SM. While 15
//! other blocks polled the epoch, a send of 64 bytes took 6 to 25 us on an H100, by the place of
//! its SM, and 2.5 us without them.

use crate::Net;
use crate::platform::RelayedWord;
use crate::wait::turn::Turn;
use gpunet_abi::atomic::{Ordering, fence};
use gpunet_abi::epoch::Epoch;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::{Word, device_scope};

/// How long the others wait for a relay that says nothing.
const TURN_NS: u64 = 200_000;
/// Rounds between two renewals of the turn: 12 us, with naps 50 us.
const RENEW_EVERY: u32 = 8;

/// The relay as one polling group sees it. By its leader.
pub(crate) struct Relay {
    /// The count in host memory, and its copy.
    host: Word,
    copy: Word,
    /// Until when a group has the turn.
    turn_word: *mut u64,
    turn: Option<Turn>,
    rounds: u32,
}

impl Relay {
    /// The relay of the attachment's epoch.
    pub(super) fn of_epoch(net: Net) -> Self {
        let (host, copy) = (net.epoch(), net.relayed_epoch());
        Self { host, copy, turn_word: net.relay_turn(), turn: None, rounds: 0 }
    }

    /// The relay of a poll group whose count of changes is `host`: `copy` and `turn_word` are words
    /// of the group.
    pub(crate) fn of_group((copy, turn_word): (*mut u64, *mut u64), host: Word) -> Self {
        // SAFETY: an aligned word of the device region.
        let copy = unsafe { Word::from_ptr(copy) };
        Self { host, copy, turn_word, turn: None, rounds: 0 }
    }

    /// The relay of a word that wakes groups.
    #[inline(always)]
    pub(super) fn of_word(relayed: RelayedWord) -> Self {
        let RelayedWord { host, copy, turn, seen: _ } = relayed;
        Self::of_group((copy, turn), host)
    }

    /// Returns whether this group loads from host memory.
    #[inline(always)]
    pub(super) const fn is_ours(&self) -> bool {
        self.turn.is_some()
    }

    /// The latest epoch that this group can know: what changed before it is visible.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> Epoch {
        self.take_turn();
        let relayed = self.copy;
        if self.turn.is_none() {
            // Ordering: Acquire, pairs with the relay's publish below, which comes after its own
            // Acquire of the epoch.
            return Epoch(device_scope::observe(relayed));
        }
        // Before the epoch, which is behind the bus: the two loads overlap.
        let before = relayed.peek();
        let now = Epoch(self.host.observe());
        if now.is_after(Epoch(before)) {
            // One whose turn is over by now may set the copy back: the next poll of the new relay
            // sets it right.
            hand_off::at(HandOff::EpochRead);
            device_scope::publish(relayed, now.0);
        }
        now
    }

    /// Takes the turn if no group has it, and renews it now and then.
    #[inline(always)]
    fn take_turn(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        let is_due = self.rounds.is_multiple_of(RENEW_EVERY);
        let is_lost = is_due && self.turn.as_mut().is_some_and(|turn| !turn.renew(TURN_NS));
        if is_lost {
            self.turn = None;
        } else if self.turn.is_none() {
            self.turn = Turn::take(self.turn_word, TURN_NS);
        }
    }

    /// Loads the latest value of a word that wakes groups, and its copy: nothing is done with them
    /// before [`Relay::settle`], so that other loads can follow at once.
    #[inline(always)]
    pub(super) fn load(&mut self) -> [u64; 2] {
        self.take_turn();
        let copy = self.copy.peek();
        if self.turn.is_none() { [copy, copy] } else { [self.host.peek(), copy] }
    }

    /// Relays what [`Relay::load`] has found. Who sees the copy change passes an acquire fence
    /// before it looks for what has happened.
    #[inline(always)]
    pub(super) fn settle(&self, [now, copy]: [u64; 2]) {
        if now != copy {
            // Ordering: Acquire fence, after the load of the host's word, pairs with the Release
            // fence by which the host changes it; the publish hands that on to the other groups.
            fence(Ordering::Acquire);
            hand_off::at(HandOff::EpochRead);
            device_scope::publish(self.copy, now);
        }
    }

    /// Leaves the relay to another group.
    #[inline(always)]
    pub(super) fn end(&self) {
        if let Some(turn) = &self.turn {
            turn.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_device::with_device;

    #[test]
    fn one_group_reads_the_epoch_and_the_others_its_copy() {
        with_device(|net| {
            let (mut first, mut second) = (Relay::of_epoch(net), Relay::of_epoch(net));
            net.epoch().publish(5);
            assert_eq!((first.poll(), first.is_ours()), (Epoch(5), true));
            net.epoch().publish(6);
            // The relay has not looked again.
            assert_eq!((second.poll(), second.is_ours()), (Epoch(5), false));
            assert_eq!((first.poll(), second.poll()), (Epoch(6), Epoch(6)));
            // Who leaves is replaced at once.
            first.end();
            net.epoch().publish(7);
            assert_eq!((second.poll(), second.is_ours()), (Epoch(7), true));
        });
    }

    #[test]
    fn a_relay_that_was_replaced_gives_up_and_turns_nothing_back() {
        with_device(|net| {
            let (mut late, mut next) = (Relay::of_epoch(net), Relay::of_epoch(net));
            net.epoch().publish(5);
            late.poll();
            // As if its turn had run out.
            late.turn.as_mut().unwrap().renew(0);
            net.epoch().publish(9);
            assert_eq!((next.poll(), next.is_ours()), (Epoch(9), true));
            for _ in 0..RENEW_EVERY {
                late.poll();
            }
            assert!(!late.is_ours() && next.is_ours());
            late.end();
            assert_eq!((late.poll(), net.relayed_epoch().observe()), (Epoch(9), 9));
        });
    }
}
