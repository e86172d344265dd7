//! What queues do for the members of a team.

use crate::Record;
use gpunet_abi::team::{Rank, Signal};
use gpunet_abi::{Error, Result};
use gpunet_device::{Buffer, Group, Kernel, SymmetricPtr, TeamHandle};

/// An operation of a team: what a group is to call, with what. A queue of the CPU device performs
/// it on its thread, and a queue on a CUDA stream in a kernel ([`QueueTeam`]).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TeamOperation {
    /// This member, with the limit of its waits.
    pub team: TeamHandle,
    /// Where elements go, if any do.
    pub to: SymmetricPtr<u8>,
    /// Where they come from.
    pub from: Buffer,
    /// Of the signal.
    pub value: u64,
    /// A [`TeamAction`].
    pub action: u32,
    /// The signal.
    pub signal: u32,
    /// The rank of the member that is written or signalled to, waited for, or broadcasts.
    pub member: u32,
    /// 0.
    pub reserved: u32,
}

/// What a [`TeamOperation`] calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TeamAction {
    /// [`TeamHandle::put`].
    Put,
    /// [`TeamHandle::signal`].
    Signal,
    /// [`TeamHandle::put_signal`].
    PutSignal,
    /// [`TeamHandle::wait_until`].
    WaitUntil,
    /// [`TeamHandle::barrier`].
    Barrier,
    /// [`TeamHandle::all_gather`].
    AllGather,
    /// [`TeamHandle::broadcast`].
    Broadcast,
    /// [`TeamHandle::all_to_all`].
    AllToAll,
}

impl TeamAction {
    /// All of them, by their numbers.
    const ALL: [Self; 8] = [
        Self::Put,
        Self::Signal,
        Self::PutSignal,
        Self::WaitUntil,
        Self::Barrier,
        Self::AllGather,
        Self::Broadcast,
        Self::AllToAll,
    ];

    /// Returns whether all members take part, so that one group of each device may be at it at a
    /// time.
    #[must_use]
    pub const fn is_collective(self) -> bool {
        matches!(self, Self::Barrier | Self::AllGather | Self::Broadcast | Self::AllToAll)
    }
}

impl TeamOperation {
    /// Returns what it calls; `None` for another number.
    #[must_use]
    pub fn action(&self) -> Option<TeamAction> {
        TeamAction::ALL.get(self.action as usize).copied()
    }

    /// Makes the call. After a collective that fails, all later barriers and collectives of this
    /// member fail, too: ConnectionAborted.
    ///
    /// # Cooperation
    /// All lanes call it together.
    ///
    /// # Errors
    /// Those of the call; InvalidArgument, if there is none of that number.
    pub fn perform<G: Group>(&self, g: &G) -> Result<()> {
        let action = self.action().ok_or(Error::InvalidArgument)?;
        let result = self.call(g, action);
        if result.is_err() && action.is_collective() {
            // The queue goes on to the next, which the others would take for this one.
            self.team.leave_step(g);
        }
        result
    }

    #[inline(always)]
    fn call<G: Group>(&self, g: &G, action: TeamAction) -> Result<()> {
        let Self { team, to, from, value, .. } = *self;
        let (signal, member) = (Signal(self.signal), Rank(self.member));
        match action {
            TeamAction::Put => team.put(g, to, from, member),
            TeamAction::Signal => team.signal(g, signal, value, member),
            TeamAction::PutSignal => team.put_signal(g, to, from, signal, value, member),
            TeamAction::WaitUntil => team.wait_until(g, signal, member, value).map(|_| ()),
            TeamAction::Barrier => team.barrier(g),
            TeamAction::AllGather => team.all_gather(g, to, from),
            TeamAction::Broadcast => team.broadcast(g, to, from, member),
            TeamAction::AllToAll => team.all_to_all(g, to, from),
        }
    }
}

/// Performs an operation of a team.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueueTeam {
    /// The operation.
    pub operation: TeamOperation,
    /// How it ended.
    pub record: Record,
}

impl Kernel for QueueTeam {
    const ENTRY: &'static str = "gpunet_queue_team";

    fn run<G: Group>(self, g: &G) {
        let result = self.operation.perform(g);
        self.record.tell(g, result, 0);
    }
}
