//! The right to a direction: taken from the kernels by a lock in the device's table, and given
//! back.

use crate::model::ids::QueueId;
use crate::socket::operations::StreamOperations;
use crate::socket::{DirectionError, HostLaunch, Inner, Socket};
use gpunet_abi::entry::{Entry, HalfEntry, lock};
use gpunet_abi::{Direction, Error, Prepared, RingSpan, Status, TransportKind};
use gpunet_core::rc;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The right to a direction. Operations of queues have it, too: the direction is given back after
/// the last of them.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(super) inner: Arc<Inner>,
    pub(super) direction: Direction,
    pub(super) half: HalfEntry,
    pub(super) posted: Mutex<Posted>,
    /// It is locked in the device's table.
    pub(super) is_locked: AtomicBool,
    /// Operations of it are in a graph: where its next message lies is known when that runs.
    pub(super) is_captured: AtomicBool,
    /// A queue has failed in the middle of a message: nothing follows it.
    pub(super) is_given_up: AtomicBool,
}

/// How far queues will certainly publish a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Posted {
    pub(super) position: u64,
    /// The queue that does so last.
    pub(super) queue: Option<QueueId>,
}

/// The holder of a direction.
#[derive(Debug, Default)]
pub(in crate::socket) struct Holder {
    is_taken: bool,
    hold: Weak<Hold>,
}

const fn lock_at(direction: Direction) -> usize {
    match direction {
        Direction::Send => offset_of!(Entry, send_lock),
        Direction::Recv => offset_of!(Entry, recv_lock),
    }
}

pub(super) const fn half_at(direction: Direction) -> usize {
    match direction {
        Direction::Send => offset_of!(Entry, send),
        Direction::Recv => offset_of!(Entry, recv),
    }
}

impl Hold {
    /// Returns whether its socket is one of these, and not of another attachment.
    pub(crate) fn is_of(&self, host: &Arc<HostLaunch>) -> bool {
        Arc::ptr_eq(&self.inner.host, host)
    }

    pub(super) fn take(socket: &Socket, direction: Direction) -> Result<Arc<Self>, DirectionError> {
        let inner = &socket.inner;
        let mut holder = inner.holder(direction);
        if holder.is_taken {
            return Err(DirectionError::AlreadyTaken);
        }
        let half = match direction {
            Direction::Send => inner.opened.send,
            Direction::Recv => inner.opened.recv,
        };
        let (posted, is_locked, is_captured, is_given_up) = Default::default();
        let inner = inner.clone();
        let hold = Arc::new(Self { inner, direction, half, posted, is_locked, is_captured, is_given_up });
        hold.lock()?;
        // What a kernel has read may be announced late, so the word may lie behind.
        hold.posted().position = hold.position_in_table()?;
        *holder = Holder { is_taken: true, hold: Arc::downgrade(&hold) };
        Ok(hold)
    }

    /// Locks the direction in the device's table.
    fn lock(&self) -> Result<(), DirectionError> {
        self.inner.check_unknown()?;
        let (table, handle) = (&self.inner.shared.table, self.inner.handle);
        if !table.is_open(handle).map_err(DirectionError::Memory)? {
            return Err(DirectionError::BadHandle);
        }
        let taken = lock::word(handle.generation(), lock::TAKEN);
        table.set_entry_flag(handle, lock_at(self.direction), taken).map_err(DirectionError::Memory)?;
        self.inner.host.tell_taken(handle, self.direction, true);
        // Checked again after the store: a kernel that came in between is a user now, and one that
        // comes later finds the lock. Only then is the line ended: the lanes of a group load it one
        // by one, and must all find the same value.
        if let Err(error) = self.inner.check_unknown().and_then(|()| self.end_line()) {
            self.unlock()?;
            return Err(error);
        }
        // Ordering: Relaxed; nobody else has it yet.
        self.is_locked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// A queue does not clear the line as a kernel does, and tags could repeat: so the stream sends
    /// no lines from now on.
    fn end_line(&self) -> Result<(), DirectionError> {
        if self.direction == Direction::Recv {
            return Ok(());
        }
        let line = half_at(self.direction) + offset_of!(HalfEntry, line);
        self.inner.shared.table.set_entry_flag(self.inner.handle, line, 0).map_err(DirectionError::Memory)
    }

    fn unlock(&self) -> Result<(), DirectionError> {
        let (table, handle) = (&self.inner.shared.table, self.inner.handle);
        let free = lock::word(handle.generation(), lock::FREE);
        table.set_entry_flag(handle, lock_at(self.direction), free).map_err(DirectionError::Memory)?;
        self.inner.host.tell_taken(handle, self.direction, false);
        Ok(())
    }

    pub(super) fn give_back(&self) -> Result<(), DirectionError> {
        // Ordering: Relaxed; only the last holder is here.
        if !self.is_locked.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.inner.check_unknown()?;
        self.settle()?;
        self.unlock()?;
        self.is_locked.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Keeps the data thread of the socket from long sleeps while a CUDA stream publishes the
    /// direction: until the guard is dropped.
    pub(crate) fn begin_stream_operations(&self) -> StreamOperations {
        StreamOperations::begin(self.inner.host.clone(), self.inner.data_thread)
    }

    /// The direction.
    pub(crate) const fn direction(&self) -> Direction {
        self.direction
    }

    /// Where its ring and words lie in the device's address space.
    pub(crate) const fn half(&self) -> &HalfEntry {
        &self.half
    }

    /// Where a message lies in the ring.
    pub(crate) fn span(&self, message: Prepared) -> RingSpan {
        RingSpan::new(self.half.base as *mut u8, u64::from(self.half.capacity), message.position, message.len)
    }

    /// The most bytes that can be in the ring behind what is published, or given back.
    pub(crate) fn most_ahead(&self) -> u64 {
        let capacity = u64::from(self.half.capacity);
        match (self.direction, self.inner.transport) {
            (Direction::Recv, TransportKind::Rc) => capacity - rc::least_area(capacity),
            _ => capacity,
        }
    }

    /// The socket's failure, by its status word.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.inner.failure()
    }

    /// Returns why the direction has ended where the other end's word says, if it has: by the
    /// socket's failure, or by the peer's end. Between two devices, a peer that its host program
    /// closes writes no END.
    pub(crate) fn end(&self) -> Option<Error> {
        let status = self.inner.status()?;
        let flag = match self.direction {
            Direction::Send => Status::NO_SEND,
            Direction::Recv => Status::EOF,
        };
        status.error().or_else(|| status.has(flag).then(|| self.ended()))
    }

    /// The error of a direction whose peer has ended it without a failure.
    pub(crate) const fn ended(&self) -> Error {
        match self.direction {
            Direction::Send => Error::BrokenPipe,
            Direction::Recv => Error::NoData,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !*self.is_locked.get_mut() {
            return;
        }
        let mut holder = self.inner.holder(self.direction);
        // What running launches may use stays locked; it can be taken again.
        let _ = self.give_back();
        *holder = Holder::default();
    }
}

impl Inner {
    pub(super) fn holder(&self, direction: Direction) -> MutexGuard<'_, Holder> {
        self.holders[direction as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to a direction that is taken.
    ///
    /// # Errors
    /// [`DirectionError::NotTaken`].
    pub(in crate::socket) fn hold(&self, direction: Direction) -> Result<Arc<Hold>, DirectionError> {
        self.holder(direction).hold.upgrade().ok_or(DirectionError::NotTaken)
    }

    /// Checks that no launch that runs knows the socket.
    fn check_unknown(&self) -> Result<(), DirectionError> {
        let users = self.shared.table.users(self.handle).map_err(DirectionError::Memory)?;
        if self.shared.launches().running(users, self.host.id()) == 0 {
            Ok(())
        } else {
            Err(DirectionError::InUseByLaunch)
        }
    }

    /// The socket's status, once it has one.
    pub(super) fn status(&self) -> Option<Status> {
        let status = Status(self.shared.memory.status(self.handle.slot()).observe());
        Some(status).filter(|status| status.is_set() && status.generation() == self.handle.generation())
    }

    /// The socket's failure, by its status word.
    pub(super) fn failure(&self) -> Option<Error> {
        self.status().and_then(Status::error)
    }
}
