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
    /// Counts the connection at the next position, and passes over those behind it that were refused.
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
