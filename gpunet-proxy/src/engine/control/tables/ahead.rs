//! The connections that a listener has accepted ahead of accepts.

use gpunet_core::ids::SocketId;
use std::collections::{BTreeMap, VecDeque};

/// What a listener has for connections ahead of accepts.
#[derive(Default)]
pub(in crate::engine::control) struct Ahead {
    /// Slots for the next connections, by position.
    pub(in crate::engine::control) prepared: BTreeMap<u64, u32>,
    /// Connections accepted so far: the position of the next one.
    pub(in crate::engine::control) accepted: u64,
    /// The last of them, the newest at the end.
    pub(in crate::engine::control) recent: VecDeque<SocketId>,
}

impl Ahead {
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
