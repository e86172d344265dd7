//! Which connections of a block have something to do: the only file that knows how that is found
//! out.
#![allow(unsafe_code)]

use crate::Topics;
use crate::memory::{Carve, Memory};
use crate::word::{Word64, fence};
use gpunet_device::poll::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDHUP};
use gpunet_device::{Group, Handle, Net, PollFd, PollSet, RecvHalf, Result, Timeout, poll_until};

/// The listener's entry; connections follow.
const LISTENER: usize = 0;
/// How soon a connection with half a request is looked at again, and how late at most. In between
/// it is a quarter of the time that it has waited.
const SOON_NS: u64 = 50_000;
const LATE_NS: u64 = 20_000_000;
/// How late a block of the CPU device with subscribers sees that a topic was notified. One of a GPU
/// looks at it while it waits.
const TOPIC_NS: u64 = if cfg!(target_arch = "nvptx64") { u64::MAX } else { 1_000_000 };

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Any bytes, or the end of the stream.
    Input,
    /// More bytes than these, which have come already: half a request.
    More { seen: usize },
    /// Space to send.
    Output,
    /// A notification of its topic: its peer has ended its stream. The connection's failure is
    /// told, as with every interest.
    Topic,
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
    /// For each connection with half a request: what has come of it, since when it waits, when it
    /// is looked at. For each subscriber: its topic (0: none, else its number and one), how often
    /// that was notified before its last turn, whether it is due.
    rows: Memory,
    topics: Topics,
    room: usize,
    /// Entries up to the last one in use.
    high: usize,
    /// Connections with half a request.
    partials: usize,
    /// When the first of them is looked at again.
    look_at: u64,
    subscribers: usize,
    /// All notifications, as of the last look.
    notified: u64,
    /// Somebody has just subscribed.
    has_new: bool,
}

/// Where things are in a row.
mod row {
    pub const SEEN: usize = 0;
    pub const SINCE: usize = 8;
    pub const LOOK_AT: usize = 16;
    pub const TOPIC: usize = 24;
    pub const COUNTED: usize = 32;
    pub const DUE: usize = 40;
    pub const LEN: usize = 48;
}

/// Instead of a count: a new subscriber is due at once.
const NEW: u64 = u64::MAX;

impl Readiness {
    /// Takes memory for `room` connections of each block.
    pub(crate) fn carve(carve: &mut Carve, room: usize, topics: u32) -> (Memory, Memory, Topics) {
        let blocks = carve.blocks();
        let set = carve.take(blocks * (room + 2) / 2 * 16);
        (set, carve.take(blocks * room * row::LEN), Topics::carve(carve, topics))
    }

    /// The connections of block `block`: none yet. All lanes; ends with a barrier.
    pub(crate) fn new<G: Group>(g: &G, (set, rows, topics): (Memory, Memory, Topics), room: usize) -> Self {
        let (block, bytes) = (g.index() as usize, (room + 2) / 2 * 16);
        let readiness = Self {
            set: set.part(block * bytes, bytes),
            rows: rows.part(block * room * row::LEN, room * row::LEN),
            topics,
            room,
            high: 0,
            partials: 0,
            look_at: u64::MAX,
            subscribers: 0,
            notified: 0,
            has_new: false,
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
            self.all(self.room + 1).set(index, PollFd { handle, events, revents: 0 });
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
        self.entry(LISTENER).revents != 0
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

    /// Sets what the connection in a place waits for, and whether it also waits for space to send
    /// (`drains`). All lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn watch<G: Group>(
        &mut self,
        g: &G,
        place: usize,
        handle: Handle,
        (interest, drains): (Interest, bool),
        now: u64,
    ) {
        let events = match interest {
            Interest::Input => POLLIN,
            // The bytes that it has keep it ready for input: they are looked at when it is due.
            Interest::More { .. } => POLLRDHUP,
            Interest::Output => POLLOUT,
            Interest::Topic => 0,
        };
        let events = if drains { events | POLLOUT } else { events };
        let before = self.entry(place + 1);
        if is_partial(before.events) && before.handle >= 0 {
            self.partials -= 1;
        }
        if let Interest::More { seen } = interest {
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
        if before.handle != handle.raw() || before.events != events {
            self.set(g, place + 1, handle.raw(), events);
        }
        if self.high <= place {
            self.high = place + 1;
        }
    }

    /// Forgets the connection in a place. All lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn forget<G: Group>(&mut self, g: &G, place: usize) {
        if is_partial(self.entry(place + 1).events) {
            self.partials -= 1;
        }
        self.set(g, place + 1, -1, 0);
        self.subscribe(g, place, None, 0);
        while self.high > 0 && self.entry(self.high).handle < 0 {
            self.high -= 1;
        }
    }

    /// The topics of the server.
    pub(crate) const fn topics(&self) -> Topics {
        self.topics
    }

    /// How often the topic of the connection in a place was notified. All lanes.
    pub(crate) fn notified<G: Group>(&self, g: &G, place: usize) -> u64 {
        if self.topics.is_empty() {
            return 0;
        }
        let topic = self.word(place, row::TOPIC).get() as u32;
        let counted = if topic == 0 { 0 } else { self.topics.count(topic - 1) };
        // Ordering: Acquire fence, pairs with the Release fences in `Topics::notify`: what was
        // stored before a notification that counts here is there for the turn. The broadcast hands
        // it on.
        fence();
        g.broadcast(counted)
    }

    /// Sets the topic of the connection in a place. `counted`: what [`Readiness::notified`] said
    /// before its turn. All lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn subscribe<G: Group>(&mut self, g: &G, place: usize, topic: Option<u32>, counted: u64) {
        if self.topics.is_empty() {
            return;
        }
        let word = topic.map_or(0, |topic| topic as u64 + 1);
        let before = self.word(place, row::TOPIC).get();
        if word == 0 && before == 0 {
            return;
        }
        self.subscribers -= usize::from(before != 0);
        self.subscribers += usize::from(word != 0);
        let is_new = word != 0 && word != before;
        self.has_new |= is_new;
        // All lanes have read what was there.
        g.sync();
        if g.is_leader() {
            self.word(place, row::TOPIC).set(word);
            self.word(place, row::COUNTED).set(if is_new { NEW } else { counted });
            self.word(place, row::DUE).set(0);
        }
        g.sync();
    }

    /// Waits until something is ready, or `is_asked` is true ([`poll_until`]), at most
    /// `timeout_ns` from `now` on; returns how many entries may be ready. All lanes.
    pub(crate) fn wait<G: Group>(
        &mut self,
        g: &G,
        net: Net,
        (now, timeout_ns): (u64, u64),
        is_asked: impl Fn() -> bool,
    ) -> Result<usize> {
        let limit = timeout_ns.min(self.next_look(now));
        let has_subscribers = self.subscribers > 0;
        let has_news = has_subscribers
            && (self.topics.has_news(g, &mut self.notified) || core::mem::take(&mut self.has_new));
        let limit = match (has_subscribers, has_news) {
            (false, _) => limit,
            (true, false) => limit.min(TOPIC_NS),
            (true, true) => 0,
        };
        let (topics, known) = (self.topics, self.notified);
        let is_over = || is_asked() || (has_subscribers && topics.all() != known);
        let ready = poll_until(g, net, self.all(self.high + 1), Timeout::ns(limit), is_over)?;
        let is_due = has_subscribers && (has_news || self.topics.has_news(g, &mut self.notified));
        let due = if is_due { self.mark(g) } else { 0 };
        // Each is looked at in the turns that follow, and says again when it is looked at next.
        self.look_at = u64::MAX;
        Ok(ready + self.partials + due)
    }

    /// How long it is from `now` until a connection with half a request is looked at.
    fn next_look(&self, now: u64) -> u64 {
        if self.partials == 0 { u64::MAX } else { self.look_at.saturating_sub(now) }
    }

    /// Marks the subscribers whose topics were notified since their last turn, lanes side by side;
    /// returns how many. All lanes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn mark<G: Group>(&self, g: &G) -> usize {
        let (mut place, mut due) = (g.rank() as usize, 0);
        while place < self.high {
            let topic = self.word(place, row::TOPIC).get() as u32;
            let counted = self.word(place, row::COUNTED).get();
            if topic != 0 && (counted == NEW || self.topics.count(topic - 1) != counted) {
                self.word(place, row::DUE).set(1);
                due += 1;
            }
            place += g.size() as usize;
        }
        g.sum(due) as usize
    }

    fn word(&self, place: usize, at: usize) -> Word64 {
        self.rows.u64(place * row::LEN + at)
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
        let found = entry.revents;
        if found != 0 {
            let failed = found & (POLLERR | POLLNVAL) != 0;
            let ended = found & POLLRDHUP != 0 && !failed;
            let input = found & (POLLIN | POLLRDHUP | POLLHUP | POLLERR | POLLNVAL) != 0;
            return Ok(Some(Ready { input, ended, failed }));
        }
        if !self.topics.is_empty()
            && self.word(place, row::TOPIC).get() != 0
            && self.word(place, row::DUE).get() != 0
        {
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
