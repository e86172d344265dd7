//! What a queue's thread needs to know about an operation. (What a kernel tells the thread is
//! `gpunet_queue_kernel`'s `Record`.)

use crate::queue::outcome::Notify;
use crate::socket::{Appended, Hold, StreamOperations};
use crate::team::TeamHold;
use gpunet_abi::Word;
use gpunet_abi::team::{Rank, Signal};
use gpunet_device::Buffer;
use std::sync::Arc;

/// An operation that the stream has, or is about to have.
#[derive(Default)]
pub(super) struct Record {
    /// Its number, from 1 on.
    pub(super) number: u64,
    /// Its calls of the driver have returned, so its work outside the stream may begin.
    pub(super) is_issued: bool,
    /// The driver's operations up to its end.
    pub(super) issued: u64,
    /// The directions that it uses stay taken until it is done. It waits for words of these, up to
    /// these positions.
    pub(super) waits: Vec<(Arc<Hold>, u64)>,
    /// The stream publishes without a doorbell: the data thread polls often until the operation is
    /// done.
    #[allow(dead_code, reason = "it ends with the record")]
    pub(super) operations: Option<StreamOperations>,
    /// Of a message: its length.
    pub(super) len: u64,
    /// Its kernel tells whether it has failed; the thread has nothing to find out.
    pub(super) tells_itself: bool,
    /// The stream was let pass a word that it waited for.
    pub(super) is_released: bool,
    /// Its remaining work outside the stream.
    pub(super) work: Option<Work>,
    /// Of an operation of a team: what it uses, and the signal that the stream waits for.
    pub(super) team: Option<Arc<TeamHold>>,
    pub(super) signal_wait: Option<SignalWait>,
}

/// What the thread does for an operation.
pub(super) enum Work {
    /// Moves a message through its ring.
    Transfer(Transfer),
    /// Copies into another member's part.
    Put(PutCopy),
    /// Answers a check with the queue's first failure. The number counts the queue's checks from 1
    /// on.
    Check { nth: u64, answer: Word },
    /// Tells the program when the stream has passed it.
    Notify(Notify),
}

/// A message for a lane.
pub(super) struct Transfer {
    /// The operation's number.
    pub(super) number: u64,
    /// Which one of its direction, from 1 on.
    pub(super) nth: u64,
    pub(super) message: Appended,
    pub(super) memory: Buffer,
    /// The driver does not know the memory.
    pub(super) is_pageable: bool,
}

/// A wait for a signal that is on the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignalWait {
    pub(super) signal: Signal,
    pub(super) source: Rank,
    pub(super) value: u64,
}

/// A copy into another member's part.
#[derive(Clone, Copy, Debug)]
pub(super) struct PutCopy {
    /// The operation's number.
    pub(super) number: u64,
    /// Which one of the queue, from 1 on.
    pub(super) nth: u64,
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) len: usize,
    /// What is stored once it is done: the words of its signal.
    pub(super) signal: Option<([u64; 2], u64)>,
}

impl Record {
    /// Returns whether nothing is left of it but what the stream has.
    pub(super) const fn is_handed_over(&self) -> bool {
        self.is_issued && !matches!(self.work, Some(Work::Transfer(_) | Work::Put(_)))
    }

    /// Returns whether the thread has to know at once when the stream has passed it.
    pub(super) const fn is_awaited(&self) -> bool {
        self.work.is_some()
    }

    /// The check that it is, until it is answered.
    pub(super) const fn check(&self) -> Option<(u64, Word)> {
        match self.work {
            Some(Work::Check { nth, answer }) => Some((nth, answer)),
            _ => None,
        }
    }

    /// Whom to tell that it is done.
    pub(super) fn take_notify(&mut self) -> Option<Notify> {
        match self.work.take() {
            Some(Work::Notify(notify)) => Some(notify),
            other => {
                self.work = other;
                None
            }
        }
    }

    /// The direction that it uses, if there is one.
    pub(super) fn hold(&self) -> Option<&Arc<Hold>> {
        match &self.work {
            Some(Work::Transfer(transfer)) => Some(transfer.message.hold()),
            _ => self.waits.first().map(|(hold, _)| hold),
        }
    }
}
