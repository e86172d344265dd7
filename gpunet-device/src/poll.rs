//! Waiting for one of many sockets.

use crate::wait::Vigil;
use crate::{Group, Net, platform, slots};
use gpunet_abi::control::NO_SLOT;
use gpunet_abi::entry::Kind;
use gpunet_abi::position::StreamWord;
use gpunet_abi::{Error, Handle, Result, Status, Word};

/// There is data, or a connection to accept, or the end of the stream.
pub const POLLIN: i16 = 1;
/// There is space to send.
pub const POLLOUT: i16 = 4;
/// The socket has failed.
pub const POLLERR: i16 = 8;
/// Both directions have ended.
pub const POLLHUP: i16 = 16;
/// The handle is stale.
pub const POLLNVAL: i16 = 32;

/// One socket to watch: Linux's `struct pollfd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PollFd {
    /// A [`Handle`] as C carries it; a negative one is passed over.
    pub handle: i32,
    /// What is asked for.
    pub events: i16,
    /// What was found.
    pub revents: i16,
}

/// Sockets to watch, in memory that the whole group uses.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PollSet {
    ptr: *mut PollFd,
    len: usize,
}

// SAFETY: an address and a length; `from_raw_parts`' contract speaks of all lanes.
unsafe impl Send for PollSet {}

impl PollSet {
    /// Makes a set of the `len` entries at `ptr`.
    ///
    /// # Safety
    /// The entries are aligned and mapped while the value is used, and only this group uses them.
    #[must_use]
    pub const unsafe fn from_raw_parts(ptr: *mut PollFd, len: usize) -> Self {
        Self { ptr, len }
    }

    /// How many entries there are.
    #[must_use]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Says whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Entry `index`; an empty one past the end.
    #[must_use]
    pub fn get(self, index: usize) -> PollFd {
        if index >= self.len {
            return PollFd { handle: -1, events: 0, revents: 0 };
        }
        // SAFETY: inside the set (checked), by the constructor's contract.
        unsafe { self.ptr.wrapping_add(index).read_volatile() }
    }

    /// Sets entry `index`; nothing past the end. One lane does it, and a sync follows before others
    /// look.
    pub fn set(self, index: usize, fd: PollFd) {
        if index < self.len {
            // SAFETY: inside the set (checked), by the constructor's contract.
            unsafe { self.ptr.wrapping_add(index).write_volatile(fd) };
        }
    }
}

/// Waits until a socket of the set is ready; returns how many are.
///
/// Only what was asked for, an error, a hang-up or a stale handle ends the wait. `timeout_ns` is in
/// nanoseconds; negative: no limit; 0: only look. Each entry's `revents` says what was found.
///
/// # Cooperation
/// All lanes call it with the same set; they share the work of looking.
///
/// # Errors
/// Canceled; NetworkDown. A timeout is `Ok(0)`.
pub fn poll<G: Group>(g: &G, net: Net, set: PollSet, timeout_ns: i64) -> Result<usize> {
    if !net.is_attached() {
        return Err(Error::NetworkDown);
    }
    let limit = if timeout_ns > 0 { timeout_ns as u64 } else { 0 };
    let mut vigil = Vigil::new(net, limit);
    g.sync();
    let mut rescan = true;
    let mut epoch = 0;
    loop {
        // One word says whether any proxy-driven socket changed; sockets of direct streams have
        // their words in this device's memory, where looking is cheap, and are read every time.
        let now = g.broadcast(if g.is_leader() { net.epoch().observe() } else { 0 });
        rescan |= now != epoch;
        epoch = now;
        let ready = scan(g, net, set, rescan);
        rescan = false;
        if ready > 0 || timeout_ns == 0 {
            return Ok(ready as usize);
        }
        let over = if g.is_leader() && vigil.due() { vigil.look() } else { Ok(()) };
        match crate::outcome::by_leader(g, || over.map(|()| 0)) {
            Ok(_) => {}
            Err(Error::TimedOut) => return Ok(0),
            Err(error) => return Err(error),
        }
        if platform::MAY_SLEEP && vigil.rounds() > 4 {
            // Park: count in, look once more, sleep on the epoch as it was before that look.
            if g.is_leader() {
                platform::count_poller(net.pollers(), true);
            }
            let before = g.broadcast(if g.is_leader() { net.epoch().observe() } else { 0 });
            let ready = scan(g, net, set, true);
            if g.is_leader() {
                if ready == 0 {
                    platform::sleep_on(net.epoch().as_ptr().cast(), before as u32, vigil.remaining_ns());
                }
                platform::count_poller(net.pollers(), false);
            }
            rescan = true;
        }
    }
}

/// Looks at the sockets of a set, lanes side by side; returns how many are ready.
fn scan<G: Group>(g: &G, net: Net, set: PollSet, all: bool) -> u32 {
    let mut ready = 0;
    let mut index = g.rank() as usize;
    while index < set.len() {
        let mut fd = set.get(index);
        if fd.handle >= 0 {
            if let Some(found) = look(net, fd, all) {
                fd.revents = found;
                set.set(index, fd);
            }
            ready += u32::from(set.get(index).revents != 0);
        } else {
            fd.revents = 0;
            set.set(index, fd);
        }
        index += g.size() as usize;
    }
    g.sum(ready)
}

/// What is true of one socket; `None` for a proxy-driven one when only direct ones are to be looked
/// at.
fn look(net: Net, fd: PollFd, all: bool) -> Option<i16> {
    let Some(handle) = Handle::from_raw(fd.handle) else { return Some(POLLNVAL) };
    let Ok(kind) = slots::kind_of(net, handle) else { return Some(POLLNVAL) };
    let book = slots::book(net, handle);
    if !all && (kind != Kind::Stream || book.partner == NO_SLOT) {
        return None;
    }
    let slot = handle.slot();
    if kind == Kind::Listener {
        let ready = net.ready(slot).observe() > 0;
        return Some(if ready { POLLIN & fd.events } else { 0 });
    }
    if kind != Kind::Stream {
        return Some(POLLHUP);
    }
    let status = net.status(slot, handle.generation());
    let mut found = 0;
    // SAFETY: addresses that `slots::open` checked; mapped while the attachment lives.
    let (landed, released) = unsafe {
        (Word::from_ptr(book.recv.theirs as *mut u64), Word::from_ptr(book.send.theirs as *mut u64))
    };
    let (landed, released) = (StreamWord(landed.observe()), StreamWord(released.observe()));
    let (sent, received) = (StreamWord(book.send.position), StreamWord(book.recv.position));
    let ended = landed.fin() || received.fin() || status.is_some_and(|s| s.has(Status::EOF));
    if landed.position() > received.position() || ended {
        found |= POLLIN;
    }
    let unread = sent.position().saturating_sub(released.position());
    let reader_left = released.fin() || status.is_some_and(|s| s.has(Status::NO_SEND));
    if unread < book.send.capacity || reader_left {
        found |= POLLOUT;
    }
    found &= fd.events;
    if landed.err() || released.err() || status.is_some_and(|s| s.error().is_some()) {
        found |= POLLERR;
    }
    if ended && sent.fin() {
        found |= POLLHUP;
    }
    Some(found)
}
