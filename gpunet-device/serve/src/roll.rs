//! The roll of all connections: what each block tells the others about its own.

use crate::memory::{Carve, Memory};
use gpunet_device::{Group, SockAddr};

/// Words of a row that the service writes.
pub const OWN_WORDS: usize = 8;

/// Where things are in a row: words of 64 bits.
mod word {
    /// 0: there is no connection.
    pub const ID: usize = 0;
    pub const SINCE: usize = 8;
    pub const ACTIVE: usize = 16;
    /// The number of the connection that is to end.
    pub const ENDS: usize = 24;
    pub const FAMILY: usize = 32;
    pub const IP: usize = 40;
    pub const OWN: usize = 64;
    pub const ROW: usize = OWN + 8 * super::OWN_WORDS;
}

/// The connections of all blocks, for a service that wants it ([`crate::Service::HAS_ROLL`]): a row
/// for each place. Who owns a connection writes its row, and any block reads it: meanwhile it may
/// change, so what is read is a figure.
#[derive(Clone, Copy, Debug)]
pub struct Roll {
    /// How many connections were numbered.
    last: Memory,
    rows: Memory,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Enrolled {
    /// Its number among all connections that there were, from 1 on.
    pub id: u64,
    /// When it was accepted and when it had its last turn, by the device's clock.
    pub since: u64,
    /// When it had its last turn.
    pub active: u64,
    /// Where it comes from.
    pub peer: SockAddr,
    /// What the service has written: [`Roll::set`].
    pub own: [u64; OWN_WORDS],
}

impl Roll {
    pub(crate) fn carve(carve: &mut Carve, places: usize) -> Self {
        Self { last: carve.take(64), rows: carve.take(places * word::ROW) }
    }

    /// How many rows there are.
    #[must_use]
    pub const fn places(&self) -> usize {
        self.rows.len() / word::ROW
    }

    fn row(&self, place: usize) -> Memory {
        self.rows.part(place * word::ROW, word::ROW)
    }

    /// The number of the connection in a place, which is the caller's.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    #[must_use]
    pub fn id(&self, place: usize) -> u64 {
        self.row(place).u64(word::ID).get()
    }

    /// The connection in a place, if there is one.
    ///
    /// # Cooperation
    /// All lanes call it and get the same.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn get<G: Group>(&self, g: &G, place: usize) -> Option<Enrolled> {
        let row = self.row(place);
        // Another block may write meanwhile: one lane reads for all.
        let read = |at: usize| g.broadcast(if g.is_leader() { row.u64(at).get() } else { 0 });
        let id = read(word::ID);
        if id == 0 {
            return None;
        }
        let (family, mut own, mut at) = (read(word::FAMILY), [0; OWN_WORDS], 0);
        let mut peer = SockAddr::NONE;
        (peer.family, peer.port, peer.scope) = (family as u16, (family >> 16) as u16, (family >> 32) as u32);
        let ip = read(word::IP) as u128 | (read(word::IP + 8) as u128) << 64;
        peer.ip = ip.to_le_bytes();
        while at < OWN_WORDS {
            own[at] = read(word::OWN + 8 * at);
            at += 1;
        }
        Some(Enrolled { id, since: read(word::SINCE), active: read(word::ACTIVE), peer, own })
    }

    /// Writes a word of a row, which is the caller's.
    ///
    /// # Cooperation
    /// All lanes call it, without a barrier.
    pub fn set<G: Group>(&self, g: &G, place: usize, at: usize, value: u64) {
        if g.is_leader() {
            self.row(place).u64(word::OWN + 8 * at).set(value);
        }
    }

    /// Ends a connection, unless another one is in its place by now. Its block closes it within
    /// some tens of milliseconds.
    ///
    /// # Cooperation
    /// All lanes call it, without a barrier.
    pub fn end<G: Group>(&self, g: &G, place: usize, id: u64) {
        if g.is_leader() {
            self.row(place).u64(word::ENDS).set(id);
        }
    }

    /// Returns whether the connection is to end. All lanes.
    pub(crate) fn ends<G: Group>(&self, g: &G, place: usize) -> bool {
        let row = self.row(place);
        g.broadcast(u64::from(g.is_leader() && row.u64(word::ENDS).get() == row.u64(word::ID).get())) != 0
    }

    /// Enters a connection. All lanes; one writes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn enter<G: Group>(&self, g: &G, place: usize, peer: SockAddr, now: u64) {
        if g.is_leader() {
            let row = self.row(place);
            let ip = u128::from_le_bytes(peer.ip);
            row.u64(word::SINCE).set(now);
            row.u64(word::ACTIVE).set(now);
            row.u64(word::ENDS).set(0);
            row.u64(word::FAMILY)
                .set(peer.family as u64 | (peer.port as u64) << 16 | (peer.scope as u64) << 32);
            row.u64(word::IP).set(ip as u64);
            row.u64(word::IP + 8).set((ip >> 64) as u64);
            let mut at = 0;
            while at < OWN_WORDS {
                row.u64(word::OWN + 8 * at).set(0);
                at += 1;
            }
            row.u64(word::ID).set(1 + self.last.u32(0).fetch_add(1) as u64);
        }
        g.sync();
    }

    /// It has a turn. All lanes; one writes.
    #[inline(always)]
    pub(crate) fn touch<G: Group>(&self, g: &G, place: usize, now: u64) {
        if g.is_leader() {
            self.row(place).u64(word::ACTIVE).set(now);
        }
    }

    /// It has ended. All lanes; one writes.
    pub(crate) fn leave<G: Group>(&self, g: &G, place: usize) {
        if g.is_leader() {
            self.row(place).u64(word::ID).set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::for_test;
    use gpunet_device::group::Solo;

    #[test]
    fn a_row_is_that_of_the_connection_in_its_place() {
        let mut measure = Carve::measure();
        let _ = Roll::carve(&mut measure, 3);
        let roll = Roll::carve(&mut Carve::new(for_test(measure.used()), 1), 3);
        let (g, peer) = (Solo::new(0, 1), SockAddr::v6([7; 16], 99));
        roll.enter(&g, 2, peer, 5);
        roll.set(&g, 2, 1, 42);
        roll.touch(&g, 2, 6);
        let found = roll.get(&g, 2).unwrap();
        assert_eq!((found.id, found.since, found.active, found.own[1]), (1, 5, 6, 42));
        assert_eq!((found.peer, roll.places(), roll.get(&g, 1).is_none()), (peer, 3, true));
        // Who is to end has gone: it is not the next one.
        roll.leave(&g, 2);
        assert!(roll.get(&g, 2).is_none());
        roll.enter(&g, 2, SockAddr::v4([127, 0, 0, 1], 1), 7);
        roll.end(&g, 2, 1);
        assert!(!roll.ends(&g, 2));
        assert_eq!((roll.id(2), roll.get(&g, 2).unwrap().own[1]), (2, 0));
        roll.end(&g, 2, 2);
        assert!(roll.ends(&g, 2));
    }
}
