//! What a queue does for a member of a team: puts, signals, waits and collectives, in the queue's
//! order.
//!
//! On the CPU device the queue's thread makes the calls of [`gpunet_device::team`]; on a CUDA
//! stream see `cuda/team.rs`. Both use the words that kernels use, so a kernel's signal ends a
//! queue's wait, and a queue's barrier meets kernels at theirs.

use super::{Engine, Operation, Queue, QueueError};
use crate::team::{PutSource, SymmetricSlice, Team, TeamHold};
use gpu_usermap::cuda::Device;
use gpunet_abi::team::{MAX_VALUE, Rank, Signal};
use gpunet_device::Buffer;
use gpunet_device::Timeout;
use gpunet_device::team::{Element, SymmetricPtr};
use gpunet_queue_kernel::{TeamAction, TeamOperation};

/// An operation of a team, with what a queue needs for it.
pub(super) struct TeamCall {
    pub(super) operation: TeamOperation,
    /// Its waits have a limit.
    pub(super) has_limit: bool,
    /// The device's address to which elements are put; 0 if none are.
    pub(super) to: u64,
    pub(super) hold: TeamHold,
}

/// Destination and source of elements; both empty for operations without elements.
struct Move {
    to: SymmetricPtr<u8>,
    /// Its address at the member that the operation names.
    address: u64,
    from: Buffer,
}

impl Move {
    #[allow(unsafe_code)]
    const fn nothing() -> Self {
        // SAFETY: no elements, and no bytes: the addresses are never used.
        let to = unsafe { SymmetricPtr::from_raw_parts(0, 0, 0) };
        // SAFETY: as above.
        let from = unsafe { Buffer::from_raw_parts(std::ptr::null_mut(), 0) };
        Self { to, address: 0, from }
    }
}

/// With which member, by which signal.
#[derive(Clone, Copy, Default)]
struct With {
    member: Rank,
    signal: Signal,
    value: u64,
}

/// # Operations of teams
/// The queue is of the device with which the member has joined. Each operation keeps the team and
/// the memory that it names until it is done. They fail, and nothing is enqueued, with
/// [`QueueError::NoSuchMember`], [`QueueError::NoSuchSignal`] and [`QueueError::ValueTooLarge`];
/// [`QueueError::WrongLength`], when the source is longer than its destination or has no whole
/// number of elements; [`QueueError::OtherDevice`]; [`QueueError::TeamBroken`], when the team is
/// known to be broken; and otherwise as [`Queue::write`].
///
/// What fails later is in [`Queue::outcome`], with the errors of the same calls in kernels:
/// ConnectionReset, when a member has died; NotConnected, when the member that is waited for has
/// left, or this member's [`Team`] is dropped; TimedOut.
impl Queue {
    /// Limits the waits of team operations that are enqueued from now on, each from when it begins,
    /// to a [`Timeout`], or a [`Duration`](std::time::Duration) or an option of it. At first they
    /// have no limit, as with `None`.
    ///
    /// On a CUDA stream a wait with a limit is a kernel of one block, which needs a multiprocessor
    /// that is not full.
    pub fn set_team_timeout(&mut self, timeout: impl Into<Timeout>) {
        self.team_timeout = timeout.into();
    }

    /// Copies `from` to the beginning of `to` in the part of `member`. The source may be reused
    /// when the operation is done; the member sees the elements once a later signal or barrier of
    /// this queue tells it.
    ///
    /// # Errors
    /// [Those of all](Queue#operations-of-teams). [`QueueError::Pageable`] on a CUDA stream.
    pub fn put<'a, T: Element>(
        &mut self,
        to: impl Into<SymmetricSlice<'a, T>>,
        from: impl Into<PutSource<T>>,
        member: Rank,
    ) -> Result<(), QueueError> {
        let with = With { member, ..With::default() };
        self.move_elements(TeamAction::Put, to.into(), from.into(), 1, with)
    }

    /// Puts as [`Queue::put`], and then signals as [`Queue::signal`]: a member that sees the value
    /// sees the elements.
    ///
    /// # Errors
    /// Those of both.
    pub fn put_signal<'a, T: Element>(
        &mut self,
        to: impl Into<SymmetricSlice<'a, T>>,
        from: impl Into<PutSource<T>>,
        signal: Signal,
        value: u64,
        member: Rank,
    ) -> Result<(), QueueError> {
        let with = With { member, signal, value };
        self.move_elements(TeamAction::PutSignal, to.into(), from.into(), 1, with)
    }

    /// Sets this member's word of a signal at `member`. When the member sees the value, it sees
    /// what the queue did before.
    ///
    /// Values only grow. One queue, or one group of kernels, at a time sets a signal of a member.
    ///
    /// # Errors
    /// [Those of all](Queue#operations-of-teams).
    pub fn signal(
        &mut self,
        team: &Team,
        signal: Signal,
        value: u64,
        member: Rank,
    ) -> Result<(), QueueError> {
        self.for_team(TeamAction::Signal, team, With { member, signal, value })
    }

    /// Waits until the word that `source` writes for `signal` is at least `value`. What the source
    /// had stored before is visible to what follows on the queue.
    ///
    /// On a CUDA stream a signal that the same stream sends later never ends the wait.
    ///
    /// # Errors
    /// [Those of all](Queue#operations-of-teams).
    pub fn wait_until(
        &mut self,
        team: &Team,
        signal: Signal,
        source: Rank,
        value: u64,
    ) -> Result<(), QueueError> {
        self.for_team(TeamAction::WaitUntil, team, With { member: source, signal, value })
    }

    /// Waits until all members have entered the barrier, by a queue or by a kernel.
    ///
    /// # Errors
    /// [Those of all](Queue#operations-of-teams). [`QueueError::CollectiveInUse`], as long as
    /// another queue has collectives of the team under way. Later: Busy, when a kernel of this
    /// member is in a collective; ConnectionAborted, when an earlier collective of this member has
    /// failed between its barriers.
    pub fn barrier(&mut self, team: &Team) -> Result<(), QueueError> {
        self.for_team(TeamAction::Barrier, team, With::default())
    }

    /// Gives every member the sources of all: that of member `i` lies at element `i * n` of
    /// everybody's `to`, where `n` is the length of a source, which is the same for all.
    ///
    /// # Errors
    /// As [`Queue::put`] and [`Queue::barrier`]; [`QueueError::WrongLength`] for a destination that
    /// has no room for all.
    pub fn all_gather<'a, T: Element>(
        &mut self,
        to: impl Into<SymmetricSlice<'a, T>>,
        from: impl Into<PutSource<T>>,
    ) -> Result<(), QueueError> {
        let to = to.into();
        let count = to.team().size() as usize;
        self.move_elements(TeamAction::AllGather, to, from.into(), count, With::default())
    }

    /// Copies the source of `root` to the beginning of everybody's `to`. The sources of the others
    /// are not used, but have the same length.
    ///
    /// # Errors
    /// As [`Queue::put`] and [`Queue::barrier`].
    pub fn broadcast<'a, T: Element>(
        &mut self,
        to: impl Into<SymmetricSlice<'a, T>>,
        from: impl Into<PutSource<T>>,
        root: Rank,
    ) -> Result<(), QueueError> {
        let with = With { member: root, ..With::default() };
        self.move_elements(TeamAction::Broadcast, to.into(), from.into(), 1, with)
    }

    /// Gives every member a part of each source: part `i` of member `j`'s source lies at part `j`
    /// of member `i`'s `to`. A source has as many parts as there are members, all of one length.
    ///
    /// # Errors
    /// As [`Queue::put`] and [`Queue::barrier`]; [`QueueError::Indivisible`] for a source that does
    /// not have a whole number of elements for each member.
    pub fn all_to_all<'a, T: Element>(
        &mut self,
        to: impl Into<SymmetricSlice<'a, T>>,
        from: impl Into<PutSource<T>>,
    ) -> Result<(), QueueError> {
        let (to, from) = (to.into(), from.into());
        let part = to.team().size() as usize * size_of::<T>();
        if !from.bytes.len().is_multiple_of(part) {
            return Err(QueueError::Indivisible { len: from.bytes.len(), size: to.team().size() });
        }
        self.move_elements(TeamAction::AllToAll, to, from, 1, With::default())
    }

    /// Enqueues what moves elements: `count` sources have to fit into the destination.
    fn move_elements<T: Element>(
        &mut self,
        action: TeamAction,
        to: SymmetricSlice<'_, T>,
        from: PutSource<T>,
        count: usize,
        with: With,
    ) -> Result<(), QueueError> {
        let (len, room) = (from.bytes.len(), to.bytes());
        if !len.is_multiple_of(size_of::<T>()) || len.checked_mul(count).is_none_or(|all| all > room) {
            return Err(QueueError::WrongLength { count, len, room, element: size_of::<T>() });
        }
        self.check_team(to.team(), with)?;
        if from.memory.is_some() {
            self.engine.check_device(from.device.as_ref())?;
        } else if len > 0 {
            self.engine.check_reachable(from.bytes)?;
        }
        let hold = TeamHold::new(to.team(), [Some(to.memory()), from.memory]);
        self.enqueue_for_team(
            action,
            Move { to: to.ptr(), address: to.address(with.member), from: from.bytes },
            with,
            hold,
        )
    }

    /// Enqueues what moves nothing.
    fn for_team(&mut self, action: TeamAction, team: &Team, with: With) -> Result<(), QueueError> {
        self.check_team(team, with)?;
        self.enqueue_for_team(action, Move::nothing(), with, TeamHold::new(team, [None, None]))
    }

    fn enqueue_for_team(
        &mut self,
        action: TeamAction,
        Move { to, address, from }: Move,
        With { member, signal, value }: With,
        mut hold: TeamHold,
    ) -> Result<(), QueueError> {
        self.check_not_captured("operations of teams")?;
        if action.is_collective() && !hold.take_turn(self.id) {
            return Err(QueueError::CollectiveInUse);
        }
        let team = hold.handle(self.engine.net()).timeout(self.team_timeout);
        let (action, signal, member, reserved) = (action as u32, signal.0, member.0, 0);
        let operation = TeamOperation { team, to, from, value, action, signal, member, reserved };
        let has_limit = self.team_timeout != Timeout::NEVER;
        self.submit(Operation::Team(TeamCall { operation, has_limit, to: address, hold }), false)
    }

    /// Checks what an operation names.
    fn check_team(&self, team: &Team, With { member, signal, value }: With) -> Result<(), QueueError> {
        self.engine.check_device(team.device())?;
        if member.0 >= team.size() {
            return Err(QueueError::NoSuchMember { member, size: team.size() });
        }
        // Operations without a signal have number 0, which a team without signals lacks.
        if signal.0 >= team.signals().max(1) {
            return Err(QueueError::NoSuchSignal { signal, signals: team.signals() });
        }
        if value > MAX_VALUE {
            return Err(QueueError::ValueTooLarge(value));
        }
        team.broken_error().map_or(Ok(()), |why| Err(QueueError::TeamBroken(why)))
    }
}

impl Engine {
    /// Checks that a team's memory is mapped where the queue's operations run.
    fn check_device(&self, device: Option<&Device>) -> Result<(), QueueError> {
        match (self, device) {
            (Self::Cpu(_), None) => Ok(()),
            (Self::Cuda(queue), Some(device)) if queue.device().shares_context(device) => Ok(()),
            _ => Err(QueueError::OtherDevice),
        }
    }

    /// What acts for the host program on the device.
    fn net(&self) -> gpunet_device::Net {
        match self {
            Self::Cpu(queue) => queue.net(),
            Self::Cuda(queue) => queue.net(),
        }
    }

    /// Checks that copies on the device reach the memory.
    fn check_reachable(&self, memory: Buffer) -> Result<(), QueueError> {
        match self {
            Self::Cpu(_) => Ok(()),
            Self::Cuda(queue) => queue.check_reachable(memory),
        }
    }
}
