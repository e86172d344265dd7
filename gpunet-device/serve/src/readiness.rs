//! Which connections of a block have something to do: the only file that knows how that is found
//! out.
#![allow(unsafe_code)]

use crate::bells::{Bells, Doorbell, HostLook, LastAsked, Rung};
use crate::memory::{Carve, Memory};
use crate::word::Word64;
use gpunet_device::poll::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDHUP};
use gpunet_device::{
    Group, Handle, Net, PollCache, PollFd, PollSet, RecvHalf, Result, Timeout, now_ns, poll_again,
};

/// The listener's entry; connections follow.
const LISTENER: usize = 0;
/// How soon a connection with half a request is looked at again, and how late at most. In between
/// it is a quarter of the time that it has waited.
const SOON_NS: u64 = 50_000;
const LATE_NS: u64 = 20_000_000;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Any bytes, or the end of the stream.
    Input,
    /// More bytes than these, which have come already: half a request.
    More { seen: usize },
    /// Space to send.
    Output,
    /// Its bell or its time alone. The connection's failure is told, as with every interest.
    Bell,
}

/// What a connection waits for, in full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    pub(crate) interest: Interest,
    /// Also for space to send.
    pub(crate) drains: bool,
    /// Also for this time; 0: for none.
    pub(crate) at: u64,
    /// Also for its bell: it has given that away.
    pub(crate) rings: bool,
}

/// What has become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// Bytes have come, or the stream has ended: to look at it does not wait.
    pub input: bool,
    /// The peer has ended its stream, and everything that it sent has come.
    pub ended: bool,
    /// The connection has failed: nothing comes after what is there, and nothing that is sent
    /// arrives.
    pub failed: bool,
}

/// The connections of one block with what each waits for. Its entries are shared by the lanes, its
/// fields equal on all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    set: Memory,
    /// What the last poll has found out.
    cache: PollCache,
    /// For each connection what the module `row` tells.
    rows: Memory,
    doorbell: Doorbell,
    last_asked: LastAsked,
    bells: Bells,
    /// Places of other blocks before those of this one.
    first: usize,
    room: usize,
    /// Entries up to the last one in use.
    high: usize,
    /// Connections with half a request.
    partials: usize,
    /// When the first of them is looked at again.
    look_at: u64,
    /// Connections that wait for their bells.
    ringing: usize,
    /// Connections that wait for a time, and the first such time at the earliest.
    timers: usize,
    timer_at: u64,
    /// Rows may say that their connections are due.
    marked: bool,
}

/// Where things are in a row.
mod row {
    /// What has come of half a request, since when it waits, when it is looked at.
    pub const SEEN: usize = 0;
    pub const SINCE: usize = 8;
    pub const LOOK_AT: usize = 16;
    /// Whether it waits for its bell; how often the device and the host had rung before its last
    /// turn, and by the last look.
    pub const RINGS: usize = 24;
    pub const SERVED: [usize; 2] = [32, 40];
    pub const FOUND: [usize; 2] = [48, 56];
    /// Not 0: it has a turn now.
    pub const DUE: usize = 64;
    /// The time that it waits for; 0: none.
    pub const AT: usize = 72;
    pub const LEN: usize = 80;
}

impl Readiness {
    /// Takes memory for `room` connections of each of so many blocks.
    pub(crate) fn carve(carve: &mut Carve, serving: usize, room: usize) -> (Memory, Memory) {
        let set = carve.take(serving * (room + 2) / 2 * 16);
        // A word more for each block: `Readiness::first_timer`.
        (set, carve.take(serving * (room * row::LEN + 8)))
    }

    /// The connections of the calling block: none yet. All lanes; ends with a barrier.
    pub(crate) fn new<G: Group>(
        g: &G,
        (set, rows): (Memory, Memory),
        (bells, doorbell): (Bells, Doorbell),
        room: usize,
    ) -> Self {
        let (block, bytes, rows_bytes) = (g.index() as usize, (room + 2) / 2 * 16, room * row::LEN + 8);
        let readiness = Self {
            set: set.part(block * bytes, bytes),
            cache: PollCache::EMPTY,
            rows: rows.part(block * rows_bytes, rows_bytes),
            doorbell,
            last_asked: LastAsked::default(),
            bells,
            first: block * room,
            room,
            high: 0,
            partials: 0,
            look_at: u64::MAX,
            ringing: 0,
            timers: 0,
            timer_at: u64::MAX,
            marked: false,
        };
        let mut index = g.rank() as usize;
        while index <= room {
            readiness.all(room + 1).set(index, PollFd { handle: -1, events: 0, revents: 0 });
            index += g.size() as usize;
        }
        g.sync();
        readiness
    }

    fn all(&self, len: usize) -> PollSet {
        // SAFETY: this block's part of the server's memory, 16-aligned, with `room + 1` entries.
        unsafe { PollSet::from_raw_parts(self.set.as_ptr().cast(), len) }
    }

    fn entry(&self, index: usize) -> PollFd {
        self.all(self.room + 1).get(index)
    }

    /// Sets an entry. All lanes; begins and ends with a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn set<G: Group>(&self, g: &G, index: usize, handle: i32, events: i16) {
        g.sync();
        if g.is_leader() {
            let revents = if handle < 0 { 0 } else { PollFd::EXAMINE };
            self.all(self.room + 1).set(index, PollFd { handle, events, revents });
        }
        g.sync();
    }

    /// Sets whether the listener is watched. All lanes.
    pub(crate) fn watch_listener<G: Group>(&self, g: &G, listener: Option<Handle>) {
        let handle = listener.map_or(-1, Handle::raw);
        if self.entry(LISTENER).handle != handle {
            self.set(g, LISTENER, handle, POLLIN);
        }
    }

    /// Returns whether the last wait found a connection to accept.
    pub(crate) fn listener_ready(&self) -> bool {
        found(self.entry(LISTENER)) != 0
    }

    /// A place for one more connection.
    pub(crate) fn free(&self) -> Option<usize> {
        (0..self.room).find(|place| self.entry(place + 1).handle < 0)
    }

    /// The connection in a place, if there is one.
    pub(crate) fn handle(&self, place: usize) -> Option<Handle> {
        Handle::from_raw(self.entry(place + 1).handle)
    }

    /// Places up to the last one that is taken.
    pub(crate) fn places(&self) -> usize {
        self.high
    }

    /// Enters a new connection in a place. All lanes.
    pub(crate) fn enter<G: Group>(&mut self, g: &G, place: usize, handle: Handle, now: u64) {
        g.sync();
        if g.is_leader() {
            self.bells.renew(self.first + place);
        }
        let waits = Waits { interest: Interest::Input, drains: false, at: 0, rings: false };
        self.watch(g, place, handle, waits, now);
    }

    /// The number of a place among those of all blocks.
    pub(crate) const fn number(&self, place: usize) -> usize {
        self.first + place
    }

    /// Sets what the connection in a place waits for. All lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn watch<G: Group>(&mut self, g: &G, place: usize, handle: Handle, waits: Waits, now: u64) {
        let events = match waits.interest {
            Interest::Input => POLLIN,
            // The bytes that it has keep it ready for input: they are looked at when it is due.
            Interest::More { .. } => POLLRDHUP,
            Interest::Output => POLLOUT,
            Interest::Bell => 0,
        };
        let events = if waits.drains { events | POLLOUT } else { events };
        let before = self.entry(place + 1);
        if is_partial(before.events) && before.handle >= 0 {
            self.partials -= 1;
        }
        if let Interest::More { seen } = waits.interest {
            self.partials += 1;
            self.look_at = self.look_at.min(now + SOON_NS);
            g.sync();
            if g.is_leader() {
                self.word(place, row::SEEN).set(seen as u64);
                self.word(place, row::SINCE).set(now);
                self.word(place, row::LOOK_AT).set(now + SOON_NS);
            }
            g.sync();
        }
        self.wake_for(g, place, (waits.at, waits.rings));
        if before.handle != handle.raw() || before.events != events {
            self.set(g, place + 1, handle.raw(), events);
        }
        if self.high <= place {
            self.high = place + 1;
        }
    }

    /// Sets the time at which the connection in a place is due, and whether it is when it is rung
    /// for. All lanes.
    #[inline(always)]
    fn wake_for<G: Group>(&mut self, g: &G, place: usize, (at, rings): (u64, bool)) {
        // A service without times and bells loads nothing here.
        if at == 0 && !rings && self.timers == 0 && self.ringing == 0 && !self.marked {
            return;
        }
        let was_at = self.word(place, row::AT).get();
        let rang = self.word(place, row::RINGS).get() != 0;
        self.timers = self.timers + usize::from(at != 0) - usize::from(was_at != 0);
        self.ringing = self.ringing + usize::from(rings) - usize::from(rang);
        self.timer_at = match (at, self.timers) {
            (0, 0) => u64::MAX,
            (0, _) => self.timer_at,
            _ => self.timer_at.min(at),
        };
        // All lanes have read what was there.
        g.sync();
        if g.is_leader() {
            self.word(place, row::AT).set(at);
            self.word(place, row::RINGS).set(u64::from(rings));
            self.word(place, row::DUE).set(0);
            for agent in 0..2 {
                // What the last look has found was there before the turn. What it found of the
                // place's last connection was there before this one had a bell.
                let found = self.word(place, row::FOUND[agent]).get();
                self.word(place, row::SERVED[agent]).set(found);
            }
        }
        g.sync();
    }

    /// Forgets the connection in a place. All lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn forget<G: Group>(&mut self, g: &G, place: usize) {
        if is_partial(self.entry(place + 1).events) {
            self.partials -= 1;
        }
        self.set(g, place + 1, -1, 0);
        self.wake_for(g, place, (0, false));
        if g.is_leader() {
            self.bells.renew(self.first + place);
        }
        g.sync();
        while self.high > 0 && self.entry(self.high).handle < 0 {
            self.high -= 1;
        }
    }

    /// Waits until something is ready or due, or, if the block `helps`, somebody has rung for the
    /// blocks; at most `timeout_ns` from `now` on. Returns how many entries may be ready, and
    /// whether a block that helps was rung for. All lanes.
    pub(crate) fn wait<G: Group>(
        &mut self,
        g: &G,
        net: Net,
        (now, timeout_ns): (u64, u64),
        helps: bool,
    ) -> Result<(usize, bool)> {
        let (doorbell, by_host) = (self.doorbell, self.ringing > 0);
        let rings = by_host || helps;
        let timer = if self.timers == 0 { u64::MAX } else { self.timer_at.saturating_sub(now) };
        let limit = timeout_ns.min(self.next_look(now)).min(timer);
        let words = if rings { Some(doorbell.words(by_host)) } else { None };
        let (set, timeout) = (self.all(self.high + 1), Timeout::ns(limit));
        let ready = poll_again(g, net, set, &mut self.cache, timeout, words, || false)?;
        // All that were due before have had their turns.
        self.marked = false;
        let (mut due, mut is_rung) = (0, false);
        if rings {
            let has_waited = ready == 0 && limit > 0;
            let host = if by_host { self.last_asked.next_look(now, has_waited) } else { HostLook::No };
            let rung = doorbell.look(g, host);
            is_rung = rung.by_device || rung.by_host;
            if is_rung && by_host {
                due += self.mark_rung(g, rung);
            }
        }
        if self.timers > 0 {
            let now = g.broadcast(now_ns());
            if now >= self.timer_at {
                due += self.mark_late(g, now);
            }
        }
        self.marked = due > 0;
        // Each is looked at in the turns that follow, and says again when it is looked at next.
        self.look_at = u64::MAX;
        Ok((ready + self.partials + due, is_rung))
    }

    /// How long it is from `now` until a connection with half a request is looked at.
    fn next_look(&self, now: u64) -> u64 {
        if self.partials == 0 { u64::MAX } else { self.look_at.saturating_sub(now) }
    }

    /// Marks the connections that were rung for since their last turns, lanes side by side; returns
    /// how many. All lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn mark_rung<G: Group>(&self, g: &G, rung: Rung) -> usize {
        let (mut place, mut due) = (g.rank() as usize, 0);
        while place < self.high {
            if self.word(place, row::RINGS).get() != 0 {
                let counts = self.bells.counts(self.first + place, rung.by_host);
                let mut is_due = false;
                for (agent, count) in counts.into_iter().enumerate() {
                    let Some(found) = count else { continue };
                    self.word(place, row::FOUND[agent]).set(found);
                    is_due |= found != self.word(place, row::SERVED[agent]).get();
                }
                if is_due {
                    self.word(place, row::DUE).set(1);
                    due += 1;
                }
            }
            place += g.size() as usize;
        }
        // The barrier hands on to all lanes what each makes visible.
        self.bells.observe_counts(rung.by_host);
        g.sum(due) as usize
    }

    /// Marks the connections whose time has come, lanes side by side; returns how many. All lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn mark_late<G: Group>(&mut self, g: &G, now: u64) -> usize {
        let first = self.rows.u64(self.room * row::LEN);
        if g.is_leader() {
            first.set(u64::MAX);
        }
        g.sync();
        let (mut place, mut due) = (g.rank() as usize, 0);
        while place < self.high {
            let at = self.word(place, row::AT).get();
            if at != 0 && at <= now {
                self.word(place, row::AT).set(0);
                self.word(place, row::DUE).set(1);
                due += 1;
            } else if at != 0 {
                let mut least = first.get();
                while at < least && !first.replace(least, at) {
                    least = first.get();
                }
            }
            place += g.size() as usize;
        }
        let due = g.sum(due) as usize;
        self.timers -= due;
        self.timer_at = first.get();
        // All lanes have read it.
        g.sync();
        due
    }

    fn word(&self, place: usize, at: usize) -> Word64 {
        self.rows.u64(place * row::LEN + at)
    }

    /// The places of 32 from `first` on that may be ready, as the last wait found it: a bit for
    /// each. Lanes look side by side; one after the other, a GPU waits for each entry. All lanes;
    /// also a barrier.
    pub(crate) fn candidates<G: Group>(&self, g: &G, first: usize) -> u32 {
        let (mut at, mut bits) = (g.rank(), 0);
        while at < u32::BITS {
            let place = first + at as usize;
            if place < self.high {
                let entry = self.entry(place + 1);
                let may_be_due = self.marked || is_partial(entry.events);
                bits |= u32::from(entry.handle >= 0 && (found(entry) != 0 || may_be_due)) << at;
            }
            at += g.size();
        }
        // Each bit is of one lane.
        g.sum(bits)
    }

    /// What is ready in a place, as the last wait found it. All lanes.
    ///
    /// # Errors
    /// The connection has failed.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn ready<G: Group>(
        &mut self,
        g: &G,
        net: Net,
        place: usize,
        now: u64,
    ) -> Result<Option<Ready>> {
        let entry = self.entry(place + 1);
        let Some(handle) = Handle::from_raw(entry.handle) else { return Ok(None) };
        let found = found(entry);
        if found != 0 {
            let failed = found & (POLLERR | POLLNVAL) != 0;
            let ended = found & POLLRDHUP != 0 && !failed;
            let input = found & (POLLIN | POLLRDHUP | POLLHUP | POLLERR | POLLNVAL) != 0;
            return Ok(Some(Ready { input, ended, failed }));
        }
        if self.marked && self.word(place, row::DUE).get() != 0 {
            return Ok(Some(Ready { input: false, ended: false, failed: false }));
        }
        if !is_partial(entry.events) {
            return Ok(None);
        }
        let look_at = self.word(place, row::LOOK_AT).get();
        if look_at > now {
            self.look_at = self.look_at.min(look_at);
            return Ok(None);
        }
        let seen = self.word(place, row::SEEN).get() as usize;
        if RecvHalf::from_handle(g, net, handle)?.available(g)? > seen {
            return Ok(Some(Ready { input: true, ended: false, failed: false }));
        }
        let look_at = now + look_after(now - self.word(place, row::SINCE).get());
        self.look_at = self.look_at.min(look_at);
        // All lanes have read the old one.
        g.sync();
        if g.is_leader() {
            self.word(place, row::LOOK_AT).set(look_at);
        }
        g.sync();
        Ok(None)
    }
}

/// What the last wait has found of an entry: nothing, if that was set since.
const fn found(entry: PollFd) -> i16 {
    if entry.revents == PollFd::EXAMINE { 0 } else { entry.revents }
}

/// How long after a look the next one is, if it has waited so long.
const fn look_after(waited: u64) -> u64 {
    match waited / 4 {
        ..SOON_NS => SOON_NS,
        LATE_NS.. => LATE_NS,
        quarter => quarter,
    }
}

/// Returns whether these are the events of a connection with half a request.
const fn is_partial(events: i16) -> bool {
    events & !POLLOUT == POLLRDHUP
}

/// A set without entries: to poll it notices that the launch is over.
pub(crate) fn nothing() -> PollSet {
    // SAFETY: no entries.
    unsafe { PollSet::from_raw_parts(core::ptr::without_provenance_mut(16), 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bell;
    use crate::bells::{HostBells, HostLook, HostRelay};
    use crate::memory::for_test;
    use gpunet_device::group::{Lanes, Solo};
    use std::vec::Vec;

    const PLACES: usize = 7;

    /// What a block of one knows of places with connections, and how the host rings for them.
    fn block() -> (impl Fn(&Lanes) -> Readiness, Bells, HostBells) {
        let host = HostBells::new(for_test(HostBells::bytes(1, 0, PLACES as u32)), 1, 0, PLACES as u32);
        let mut carve = Carve::new(for_test(1 << 16), 1).with_places(PLACES);
        let bells = Bells::carve(&mut carve, host);
        let doorbell = Doorbell::new(bells, HostRelay::carve(&mut carve), 0);
        let parts = Readiness::carve(&mut carve, 1, PLACES);
        (0..PLACES).for_each(|place| bells.renew(place));
        (
            move |g: &Lanes| Readiness {
                high: PLACES,
                ..Readiness::new(g, parts, (bells, doorbell), PLACES)
            },
            bells,
            host,
        )
    }

    /// Has lanes do something with what they know of the block.
    fn by_lanes(
        lanes: u32,
        new: &(impl Fn(&Lanes) -> Readiness + Sync),
        body: impl Fn(&Lanes, Readiness) + Sync,
    ) {
        std::thread::scope(|scope| {
            for lane in Lanes::group(0, 1, lanes) {
                let body = &body;
                scope.spawn(move || body(&lane, new(&lane)));
            }
        });
    }

    fn due(readiness: &Readiness) -> Vec<usize> {
        (0..PLACES).filter(|place| readiness.word(*place, row::DUE).get() != 0).collect()
    }

    #[test]
    fn who_waits_for_a_time_is_due_then_and_the_block_waits_for_the_first() {
        for lanes in [1, 3, 16] {
            let (new, ..) = block();
            by_lanes(lanes, &new, |g, mut readiness| {
                for (place, at) in [(0, 50), (2, 20), (3, 90), (6, 20)] {
                    readiness.wake_for(g, place, (at, false));
                }
                assert_eq!((readiness.timers, readiness.timer_at), (4, 20));
                assert_eq!(readiness.mark_late(g, 19), 0);
                assert_eq!(readiness.mark_late(g, 20), 2);
                assert_eq!((readiness.timers, readiness.timer_at, due(&readiness)), (2, 50, std::vec![2, 6]));
                readiness.marked = true;
                // One waits again, one for something else, one is gone.
                readiness.wake_for(g, 2, (70, false));
                readiness.wake_for(g, 6, (0, false));
                readiness.wake_for(g, 0, (0, false));
                assert_eq!((readiness.timers, due(&readiness)), (2, Vec::new()));
                assert_eq!(readiness.mark_late(g, 200), 2);
                assert_eq!(
                    (readiness.timers, readiness.timer_at, due(&readiness)),
                    (0, u64::MAX, std::vec![2, 3])
                );
            });
        }
    }

    #[test]
    fn who_was_rung_for_is_due_until_its_turn() {
        for lanes in [1, 3] {
            let (new, bells, host) = block();
            let [first, second] = [bells.bell(1), bells.bell(4)];
            by_lanes(lanes, &new, |g, mut readiness| {
                let rung = |g: &Lanes, readiness: &mut Readiness| {
                    let rung = readiness.doorbell.look(g, HostLook::Word);
                    readiness.marked = true;
                    readiness.mark_rung(g, rung)
                };
                [1, 4].into_iter().for_each(|place| readiness.wake_for(g, place, (0, true)));
                assert_eq!((readiness.ringing, rung(g, &mut readiness)), (2, 0));
                bells.ring(g, first);
                bells.ring(g, first);
                if g.is_leader() {
                    host.ring(second);
                    // A place that has no bell given away, and bells that are none.
                    host.ring(bells.bell(5));
                    [0, u64::MAX, second.raw() ^ 1 << 33]
                        .into_iter()
                        .for_each(|raw| host.ring(Bell::from_raw(raw)));
                }
                g.sync();
                assert_eq!((rung(g, &mut readiness), due(&readiness)), (2, std::vec![1, 4]));
                // One has had its turn; the other is still due.
                readiness.wake_for(g, 1, (0, true));
                assert_eq!((rung(g, &mut readiness), due(&readiness)), (0, std::vec![4]));
                readiness.wake_for(g, 4, (0, true));
                g.sync();
                if g.is_leader() {
                    host.ring(first);
                }
                g.sync();
                assert_eq!((rung(g, &mut readiness), due(&readiness)), (1, std::vec![1]));
            });
        }
    }

    #[test]
    fn a_bell_of_an_ended_connection_does_nothing() {
        let (new, bells, host) = block();
        let g = Solo::new(0, 1);
        let old = bells.bell(3);
        bells.renew(3);
        let now = bells.bell(3);
        assert!(!bells.is_open(&g, old) && bells.is_open(&g, now) && old.place() == now.place());
        bells.ring(&g, now);
        bells.ring(&g, old);
        host.ring(old);
        by_lanes(1, &new, |g, mut readiness| {
            readiness.wake_for(g, 3, (0, true));
            let rung = readiness.doorbell.look(g, HostLook::Word);
            assert_eq!(rung, Rung { by_device: true, by_host: false });
            assert_eq!(bells.counts(3, true), [Some(1), Some(0)], "the one ring of its own");
            assert_eq!(readiness.mark_rung(g, rung), 1);
        });
    }
}
