//! The parts of a team that an operation of a queue keeps alive while it is under way.

use super::memory::SharedMemory;
use super::{Inner, Team};
use crate::attached::mapped::MappedMemory;
use crate::model::ids::QueueId;
use gpunet_abi::Error;
use gpunet_abi::team::{Rank, Signal, TeamState};
use gpunet_device::Net;
use gpunet_device::team::TeamHandle;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which queue has collectives of a team under way, and how many.
#[derive(Debug, Default)]
pub(super) struct Turn(Mutex<Option<(QueueId, u64)>>);

impl Turn {
    fn lock(&self) -> MutexGuard<'_, Option<(QueueId, u64)>> {
        // Nothing that is done under the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a collective of a queue. Returns false if another queue has collectives under way,
    /// because collectives of two queues have no order.
    fn begin(&self, queue: QueueId) -> bool {
        let mut turn = self.lock();
        match &mut *turn {
            Some((other, _)) if *other != queue => return false,
            Some((_, count)) => *count += 1,
            none => *none = Some((queue, 1)),
        }
        true
    }

    fn end(&self) {
        let mut turn = self.lock();
        *turn = turn
            .take()
            .and_then(|(queue, count)| Some((queue, count.checked_sub(1).filter(|&left| left > 0)?)));
    }
}

/// A team that an operation of a queue uses. Until this value is dropped, the team's words and the
/// memory that the operation names stay mapped, and the member does not leave.
#[derive(Debug)]
pub(crate) struct TeamHold {
    // Dropped before the team that it belongs to.
    _memory: [Option<Arc<SharedMemory>>; 2],
    inner: Arc<Inner>,
    /// It counts as a collective under way.
    has_turn: bool,
}

impl Drop for TeamHold {
    fn drop(&mut self) {
        if self.has_turn {
            self.inner.turn.end();
        }
    }
}

impl TeamHold {
    /// Keeps a team for an operation, which uses `memory`.
    pub(crate) fn new(team: &Team, memory: [Option<Arc<SharedMemory>>; 2]) -> Self {
        Self { _memory: memory, inner: team.inner.clone(), has_turn: false }
    }

    /// Records that the operation is a collective. Returns false if another queue has collectives
    /// of the team under way, because collectives of two queues have no order.
    pub(crate) fn take_turn(&mut self, queue: QueueId) -> bool {
        self.has_turn = self.inner.turn.begin(queue);
        self.has_turn
    }

    /// Returns the handle with which a kernel, or a thread of the CPU device, acts as the member.
    #[allow(unsafe_code)]
    pub(crate) fn handle(&self, net: Net) -> TeamHandle {
        let (state, local) = (self.inner.state.address(), &self.inner.local);
        // SAFETY: as in `Team::handle`: the state and the blocks are mapped while `self` lives,
        // which its operation keeps until it has ended; `net` is of the same device
        // (`Queue::check_team`).
        unsafe { TeamHandle::from_raw(net, state, local.rank.0, local.size) }
    }

    /// Returns the device's addresses of the two words of a signal to a member: the value last
    /// sent, in the device's own memory, and the word in the member's block.
    pub(crate) fn signal_words(&self, signal: Signal, to: Rank) -> [u64; 2] {
        let (local, layout) = (&self.inner.local, &self.inner.layout);
        let at = u64::from(signal.0) * u64::from(local.size) + u64::from(to.0);
        let sent = self.inner.state.address() + TeamState::sent(local.size) + at * 8;
        let block = self.inner.blocks.parts[to.0 as usize].address();
        [sent, block + layout.signal(signal, local.rank)]
    }

    /// Returns this member's own block, and the offset in it of the word that `source` writes for a
    /// signal.
    pub(crate) fn own_word(&self, signal: Signal, source: Rank) -> (&MappedMemory, u64) {
        let block = &self.inner.blocks.parts[self.inner.local.rank.0 as usize];
        (block, self.inner.layout.signal(signal, source))
    }

    /// Returns why a wait for a member cannot succeed, if it cannot.
    pub(crate) fn failure(&self, source: Rank) -> Option<Error> {
        self.inner.local.member.wait_failure(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_queue_at_a_time_has_collectives_under_way() {
        let (turn, first, second) = (Turn::default(), QueueId::next(), QueueId::next());
        assert!(turn.begin(first), "free");
        assert!(turn.begin(first), "the same");
        assert!(!turn.begin(second), "another");
        turn.end();
        assert!(!turn.begin(second), "one is under way");
        turn.end();
        assert!(turn.begin(second), "free again");
    }
}
