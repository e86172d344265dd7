//! The clients of a listener that become connections before an accept takes them.

use crate::model::message::Rings;
use gpunet_core::transport::Opened;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long a client may take while others wait and there is no room for them.
const CROWDED_TIMEOUT: Duration = Duration::from_secs(1);

/// The clients of a listener that have rings and that no accept has taken.
#[derive(Default)]
pub(in crate::engine::control) struct Handshakes {
    /// Clients that were answered, by number: the first one has taken the longest.
    pub(in crate::engine::control) pending: BTreeMap<u64, Pending>,
    pub(in crate::engine::control) next_number: u64,
    /// Connections that an accept takes at once.
    pub(in crate::engine::control) established: VecDeque<(Rings, Opened)>,
}

/// A client that was answered.
pub(in crate::engine::control) struct Pending {
    pub(in crate::engine::control) since: Instant,
    /// Dropping it gives the client up; the handshake's task then reports when its rings are free.
    pub(in crate::engine::control) _stop: oneshot::Sender<()>,
}

impl Handshakes {
    pub(in crate::engine::control) fn len(&self) -> usize {
        self.pending.len() + self.established.len()
    }

    /// How many connections an accept takes at once.
    pub(in crate::engine::control) fn established(&self) -> u64 {
        self.established.len() as u64
    }

    /// Gives up the client that has taken the longest, if that was long enough while others wait.
    pub(in crate::engine::control) fn make_room(&mut self) {
        if let Some(oldest) = self.pending.first_entry()
            && oldest.get().since.elapsed() >= CROWDED_TIMEOUT
        {
            oldest.remove();
        }
    }
}
