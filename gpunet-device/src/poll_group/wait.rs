//! Waiting for the sockets of a poll group.

use super::change::claimed;
use super::settle::{is_ready, settle};
use super::{Event, Events, PollGroup};
use crate::group::outcome::by_leader;
use crate::poll::PollWait;
use crate::poll::relay::Relay;
use crate::table::lists::{self, List};
use crate::table::member::{Member, Stack, holder, queue};
use crate::table::slots::Caller;
use crate::{Group, Net};
use gpunet_abi::atomic::{AtomicU32, Ordering};
use gpunet_abi::entry::GroupId;
use gpunet_abi::epoch::Epoch;
use gpunet_abi::poll_group::{Phase, PollState, ReadyEntry};
use gpunet_abi::ready_list::{self, CLAIMS};
use gpunet_abi::waiting::{Awaited, Call};
use gpunet_abi::{Error, Handle, Result, Timeout};

impl PollGroup {
    /// Waits until sockets of the group are ready; returns how many were delivered: at most as many
    /// as `events` has room for.
    ///
    /// First it arms the sockets of the last wait's events again, so the group of threads is done
    /// with them. Level-triggered: what is still true of a socket is delivered again. An event may
    /// be out of date when it comes: use calls that do not wait.
    ///
    /// If `events` has room for few, and these few are always ready, others may wait for long.
    ///
    /// # Cooperation
    /// All lanes call it with the same value of events; they share the work of looking at sockets.
    ///
    /// # Errors
    /// BadHandle when the poll group is closed; InvalidArgument when there is no room for an event;
    /// Canceled; NetworkDown; Protocol when the group's lists were overwritten. A timeout is
    /// `Ok(0)`.
    ///
    /// # Examples
    ///
    /// See [`PollGroup`].
    #[inline(never)]
    pub fn wait<G: Group>(&self, g: &G, events: &mut Events, timeout: Timeout) -> Result<usize> {
        // What lanes have read of the last events, and stored into sockets, comes before.
        g.sync();
        if events.capacity() == 0 {
            return Err(Error::InvalidArgument);
        }
        by_leader(g, || self.check().map(|()| 0))?;
        let relay =
            Relay::of_group(relay_words(self.net, self.handle.slot()), lists::changes(self.net, self.handle));
        let mut pause =
            PollWait::new(self.net, timeout, relay, Awaited::on(Call::PollGroup, self.handle.slot()));
        let result = self.wait_by(g, events, timeout.is_non_blocking(), &mut pause);
        if g.is_leader() {
            pause.end();
        }
        if result.is_err() {
            events.set_len(0);
        }
        g.sync();
        result
    }

    fn wait_by<G: Group>(
        &self,
        g: &G,
        events: &mut Events,
        no_wait: bool,
        pause: &mut PollWait,
    ) -> Result<usize> {
        let caller = Caller::of(g).id(self.net);
        let mut now = None;
        // The last wait's events are the first to be looked at.
        let mut own = events.len();
        loop {
            // Everything that is counted there is found by the round that follows.
            let seen = now;
            let gathered = by_leader(g, || {
                self.sweep();
                self.gather(events, own)
            })? as usize;
            self.settle_all(g, events, gathered, caller);
            own = 0;
            let ready = by_leader(g, || Ok(compact(events, gathered) as u64))? as usize;
            if ready > 0 {
                events.set_len(ready);
                return Ok(ready);
            }
            let direct = self.scan_direct(g);
            if gathered > 0 || direct.ready > 0 {
                // There may be more than there was room for.
                continue;
            }
            let word = by_leader(g, || {
                let stack = Stack::of(self.net, self.handle);
                // Blocks that look at direct streams are woken for any socket.
                let watched =
                    if direct.members > 0 { u32::MAX } else { Epoch::wakes(Some(self.handle.slot())) };
                let is_due = || direct.members > 0 || !stack.is_empty() || self.must_sweep();
                let word = pause.until_due(|| watched, seen, is_due, no_wait, false, || false)?;
                self.check().map(|()| word)
            });
            match word {
                Ok(word) => now = Some(Epoch(word & !crate::poll::MAY_ANNOUNCE)),
                Err(error) => {
                    events.set_len(0);
                    return if error == Error::TimedOut { Ok(0) } else { Err(error) };
                }
            }
        }
    }

    /// Puts sockets to look at into `events`, held by this block, behind the `own` first ones;
    /// returns how many there are. By one lane.
    ///
    /// # Errors
    /// Protocol, when a list was overwritten. Then the block holds nothing.
    #[inline(never)]
    fn gather(&self, events: &Events, own: usize) -> Result<u64> {
        let mut count = own;
        let mut result = self.gather_behind(events, &mut count);
        if result.is_ok() && own > 0 && count == events.capacity() {
            // Sockets that this block has given away must not keep others out.
            count = self.keep_held(events, count);
            result = self.gather_behind(events, &mut count);
        }
        if result.is_err() {
            for index in 0..count {
                self.put_back(events.load(index));
            }
        }
        result.map(|()| count as u64)
    }

    /// Drops those of the first events whose sockets this block does not hold any more, to make
    /// room; returns how many are left.
    fn keep_held(&self, events: &Events, count: usize) -> usize {
        let mut kept = 0;
        for event in (0..count).map(|index| events.load(index)) {
            if self.holds(event).is_some() {
                events.store(kept, event);
                kept += 1;
            }
        }
        kept
    }

    fn gather_behind(&self, events: &Events, gathered: &mut usize) -> Result<()> {
        let (net, group) = (self.net, self.handle);
        let (mut count, mut result) = (*gathered, Ok(()));
        for index in 0..lists::count(net, group) {
            let list = List::of(net, group, index);
            while count < events.capacity() {
                let mut entries = [0; CLAIMS];
                let taken = ready_list::claim(&list, events.capacity() - count, &mut entries)
                    .map_err(|_| Error::Protocol)?;
                if taken == 0 {
                    break;
                }
                for entry in entries.iter().take(taken).map(|&entry| ReadyEntry(entry)) {
                    match claimed(net, group, entry) {
                        Ok(Some((member, state))) => {
                            events.store(count, held_event(member, state));
                            count += 1;
                        }
                        Ok(None) => {}
                        // The entries beside it are claimed, too, and looked at.
                        Err(error) => result = Err(error),
                    }
                }
                *gathered = count;
            }
        }
        let stack = Stack::of(net, group);
        while count < events.capacity()
            && let Some((member, state)) = stack.take()
        {
            events.store(count, held_event(member, state));
            count += 1;
        }
        *gathered = count;
        result
    }

    /// Makes some block look at a socket that this one holds.
    fn put_back(&self, event: Event) {
        if let Some((member, held)) = self.holds(event) {
            queue(member, |state| {
                let same = state.phase() == Phase::Held && state.turn() == held.turn();
                (same && state.generation() == held.generation()).then_some(state)
            });
        }
    }

    /// Returns whether a launch has ended since somebody looked at who holds sockets of the group.
    fn must_sweep(&self) -> bool {
        self.net.finished().peek() as u32 != self.swept().load(Ordering::Relaxed)
    }

    fn swept<'a>(&self) -> &'a AtomicU32 {
        let words = self.net.group_words(self.handle.slot());
        // SAFETY: an aligned word of the device region, which only this device's threads touch,
        // atomically.
        unsafe { AtomicU32::from_ptr(&raw mut (*words).swept) }
    }

    /// Makes blocks look at the sockets that launches held when they ended, because nobody else
    /// arms them. By one lane.
    #[inline(never)]
    fn sweep(&self) {
        // Pairs with the host's stores: what has ended is known before how many have.
        let finished = self.net.finished().observe() as u32;
        let swept = self.swept();
        // Ordering: Relaxed; a turn, which brings no data.
        let before = swept.load(Ordering::Relaxed);
        if before == finished
            || swept.compare_exchange(before, finished, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        for slot in 0..self.net.context().slots {
            let member = Member { net: self.net, slot };
            if member.group() == self.handle.raw() {
                queue(member, |state| {
                    let held_by = state.holder();
                    let has_ended = held_by != holder(self.net, held_by.launch());
                    (state.phase() == Phase::Held && has_ended).then_some(state)
                });
            }
        }
    }

    /// Looks at the sockets in `events`, lanes side by side: those that are not ready get no
    /// `revents`.
    #[inline(never)]
    fn settle_all<G: Group>(&self, g: &G, events: &Events, count: usize, caller: GroupId) {
        let mut index = g.rank() as usize;
        while index < count {
            let event = events.load(index);
            events.store(index, self.settled(event, caller));
            index += g.size() as usize;
        }
        g.sync();
    }

    /// The event of a socket that this block holds, or had delivered and not given away since;
    /// without `revents` if there is none.
    fn settled(&self, event: Event, caller: GroupId) -> Event {
        let none = Event { revents: 0, ..event };
        let Some((member, held)) = self.holds(event) else { return none };
        match settle(member, self.handle, held, caller) {
            Some((revents, held)) => {
                Event { token: member.token(), revents, turn: u64::from(held.turn()), ..event }
            }
            None => none,
        }
    }

    /// The socket of an event, if this block has it still.
    fn holds(&self, event: Event) -> Option<(Member, PollState)> {
        let handle = Handle::from_raw(event.handle).filter(|h| h.slot() < self.net.context().slots)?;
        let member = Member { net: self.net, slot: handle.slot() };
        let held = member.state();
        let is_ours = held.phase() == Phase::Held
            && u64::from(held.turn()) == event.turn
            && held.generation() == handle.generation()
            && member.group() == self.handle.raw();
        is_ours.then_some((member, held))
    }

    /// Queues the direct streams that are armed and ready, lanes side by side. Nobody else tells of
    /// them.
    #[inline(never)]
    fn scan_direct<G: Group>(&self, g: &G) -> Direct {
        let words = self.net.group_words(self.handle.slot());
        // SAFETY: an aligned word of the device region, accessed atomically.
        let below = unsafe { AtomicU32::from_ptr(&raw mut (*words).direct_below) };
        // Ordering: Relaxed; a socket that is added just now is on the stack.
        let below = g.broadcast(u64::from(below.load(Ordering::Relaxed))) as u32;
        let mut found = Direct { members: 0, ready: 0 };
        if below == 0 {
            return found;
        }
        let mut slot = g.rank();
        while slot < below {
            let member = Member { net: self.net, slot };
            let state = member.state();
            if state.is_direct() && state.phase() != Phase::None && member.group() == self.handle.raw() {
                found.members += 1;
                if state.phase() == Phase::Armed && is_ready(member, state) {
                    let queued = queue(member, |state| (state.phase() == Phase::Armed).then_some(state));
                    found.ready += u32::from(queued);
                }
            }
            slot += g.size();
        }
        Direct { members: g.sum(found.members), ready: g.sum(found.ready) }
    }
}

/// What a scan of direct streams found, of all lanes.
struct Direct {
    members: u32,
    ready: u32,
}

/// A socket that this block holds, as an event that is to be settled.
fn held_event(member: Member, state: PollState) -> Event {
    let handle = Handle::new(member.slot, state.generation());
    Event { handle: handle.raw(), turn: u64::from(state.turn()), ..Event::default() }
}

/// Moves the events that have `revents` to the front; returns how many there are. By one lane.
fn compact(events: &Events, count: usize) -> usize {
    let mut ready = 0;
    for index in 0..count {
        let event = events.load(index);
        if event.revents != 0 {
            events.store(ready, event);
            ready += 1;
        }
    }
    ready
}

/// Returns the address of a group's relayed count and of its relay's turn.
fn relay_words(net: Net, slot: u32) -> (*mut u64, *mut u64) {
    let words = net.group_words(slot);
    // SAFETY: field addresses in the device region.
    unsafe { (&raw mut (*words).relayed, &raw mut (*words).relay_turn) }
}
