//! The connections that a listener has accepted ahead of accepts.

use gpunet_abi::accept::PREPARED;
use gpunet_core::ids::SocketId;
use std::collections::{BTreeMap, VecDeque};

/// What a listener has for connections ahead of accepts.
#[derive(Default)]
pub(in crate::engine::control) struct Ahead {
    /// Slots for the next connections, by position.
    pub(in crate::engine::control) prepared: BTreeMap<u64, u32>,
    /// Positions whose slots were refused: no connection has them. What stood in for the slots.
    pub(in crate::engine::control) refused: BTreeMap<u64, SocketId>,
    /// Connections accepted so far, and positions passed over: the position of the next one.
    pub(in crate::engine::control) accepted: u64,
    /// The last of them, the newest at the end.
    pub(in crate::engine::control) recent: VecDeque<SocketId>,
}

impl Ahead {
    /// Counts the connection at the next position, and passes over those behind it that were
    /// refused.
    pub(in crate::engine::control) fn accept(&mut self, socket: SocketId) {
        self.prepared.remove(&self.accepted);
        self.count(socket);
        self.pass_over();
    }

    /// Passes over the positions that were refused, as far as it is their turn.
    pub(in crate::engine::control) fn pass_over(&mut self) {
        while let Some(socket) = self.refused.remove(&self.accepted) {
            self.count(socket);
        }
    }

    fn count(&mut self, socket: SocketId) {
        if self.recent.len() == PREPARED {
            self.recent.pop_front();
        }
        self.recent.push_back(socket);
        self.accepted += 1;
    }

    /// How many connections were accepted so far.
    pub(in crate::engine::control) const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// The connections from that position on, as far as they are known.
    pub(in crate::engine::control) fn since(&self, position: u64) -> impl Iterator<Item = SocketId> {
        let first = self.accepted - self.recent.len() as u64;
        self.recent.iter().skip(position.saturating_sub(first) as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(position: u64) -> SocketId {
        SocketId { slot: position as u32 % 7, generation: position as u32 + 1 }
    }

    /// Positions count up; the last few connections are known, whatever their number.
    #[test]
    fn the_last_connections_are_known_by_their_positions() {
        const KNOWN: u64 = PREPARED as u64;
        let mut ahead = Ahead::default();
        while ahead.accepted() < 3 * KNOWN {
            let position = ahead.accepted();
            // Slots of some positions were refused: at their turn, or behind a connection.
            let (is_refused, is_next_refused) = (position % 7 == 3, position % 5 == 2);
            if is_refused {
                ahead.refused.insert(position, socket(position));
            } else {
                ahead.prepared.insert(position, socket(position).slot);
            }
            if is_next_refused {
                ahead.refused.insert(position + 1, socket(position + 1));
            }
            if is_refused {
                ahead.pass_over()
            } else {
                ahead.accept(socket(position))
            }
            assert!(ahead.prepared.is_empty() && ahead.refused.is_empty());
            let accepted = position + 1 + u64::from(is_next_refused);
            assert_eq!(ahead.accepted(), accepted);
            for since in accepted.saturating_sub(KNOWN)..=accepted {
                let known: Vec<_> = ahead.since(since).collect();
                assert_eq!(known, (since..accepted).map(socket).collect::<Vec<_>>(), "{since} of {accepted}");
            }
            assert_eq!(ahead.since(0).count() as u64, accepted.min(KNOWN), "and no more");
        }
    }
}
