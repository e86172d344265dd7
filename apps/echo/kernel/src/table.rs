//! The connections of one block: a poll set in device memory.

use gpunet_device::poll::POLLIN;
use gpunet_device::{Buffer, Group, Handle, PollFd, PollSet};

/// The listener's place in the set; connections follow.
const LISTENER: usize = 0;

/// A block's poll set: the listener, then its connections without gaps.
///
/// The entries are shared by the lanes, the numbers are equal on all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    memory: Buffer,
    connections: usize,
    room: usize,
}

impl Table {
    /// Bytes that a block with room for `connections` connections needs, a multiple of 16.
    pub(crate) const fn bytes(connections: usize) -> usize {
        (connections + 2) / 2 * 16
    }

    /// An empty table in `memory`, which is 16-aligned. Ends with a barrier.
    pub(crate) fn new<G: Group>(g: &G, memory: Buffer, room: usize) -> Self {
        let fits = memory.len() / size_of::<PollFd>();
        let room = if room < fits { room } else { fits.saturating_sub(1) };
        let table = Self { memory, connections: 0, room };
        if g.is_leader() {
            table.all().set(LISTENER, PollFd { handle: -1, events: 0, revents: 0 });
        }
        g.sync();
        table
    }

    /// Connections in the table.
    #[inline(always)]
    pub(crate) const fn len(&self) -> usize {
        self.connections
    }

    /// Returns whether one more connection fits.
    #[inline(always)]
    pub(crate) const fn has_room(&self) -> bool {
        self.connections < self.room
    }

    /// The set to poll.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(crate) fn all(&self) -> PollSet {
        // SAFETY: the memory is this block's alone and 16-aligned (the host's promise), and holds
        // `room + 1` entries (`new`), of which these are the first.
        unsafe { PollSet::from_raw_parts(self.memory.as_ptr().cast(), self.connections + 1) }
    }

    /// Sets whether to watch the listener. All lanes; begins and ends with a barrier.
    pub(crate) fn watch_listener<G: Group>(&self, g: &G, listener: Option<Handle>) {
        // A late lane may still be asking whether the listener was ready.
        g.sync();
        if g.is_leader() {
            let handle = match listener {
                Some(listener) => listener.raw(),
                None => -1,
            };
            self.all().set(LISTENER, PollFd { handle, events: POLLIN, revents: 0 });
        }
        g.sync();
    }

    /// Returns whether the last poll found a connection to accept.
    #[inline(always)]
    pub(crate) fn listener_ready(&self) -> bool {
        self.all().get(LISTENER).revents != 0
    }

    /// Connection `index` as the last poll left it.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> PollFd {
        self.all().get(1 + index)
    }

    /// Adds a connection. All lanes; begins and ends with a barrier.
    pub(crate) fn add<G: Group>(&mut self, g: &G, handle: Handle) {
        self.connections += 1;
        self.set(g, self.connections - 1, handle.raw(), POLLIN);
    }

    /// Sets what is waited for on connection `index`. All lanes; begins and ends with a barrier.
    pub(crate) fn set<G: Group>(&self, g: &G, index: usize, handle: i32, events: i16) {
        g.sync();
        if g.is_leader() {
            self.all().set(1 + index, PollFd { handle, events, revents: 0 });
        }
        g.sync();
    }

    /// Removes connection `index`; the last one takes its place. All lanes; begins and ends with a
    /// barrier.
    pub(crate) fn remove<G: Group>(&mut self, g: &G, index: usize) {
        let last = self.get(self.connections - 1);
        // Nobody may still be reading the entry that is overwritten.
        g.sync();
        if g.is_leader() {
            self.all().set(1 + index, last);
        }
        self.connections -= 1;
        g.sync();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_device::group::Solo;
    use std::vec;

    #[test]
    #[allow(unsafe_code)]
    fn removing_keeps_the_others() {
        let solo = Solo::new(0, 1);
        let mut memory = vec![0u128; Table::bytes(3) / 16];
        // SAFETY: the vector outlives the table and is used by nothing else.
        let memory = unsafe { Buffer::from_raw_parts(memory.as_mut_ptr().cast(), Table::bytes(3)) };
        let mut table = Table::new(&solo, memory, 3);
        let handles = [1, 2, 3].map(|slot| Handle::new(slot, 1));
        for handle in handles {
            assert!(table.has_room());
            table.add(&solo, handle);
        }
        assert!(!table.has_room());
        table.remove(&solo, 0);
        assert_eq!([0, 1].map(|at| table.get(at).handle), [handles[2].raw(), handles[1].raw()]);
        table.remove(&solo, 1);
        assert_eq!((table.len(), table.get(0).handle), (1, handles[2].raw()));
        assert_eq!(table.get(1).handle, -1);
    }
}
