//! Everything that one connection holds.

use std::io;
use std::time::{Duration, Instant};

use super::cm::Id;
use super::counts::Token;
use super::error::errno;
use super::ffi::Wc;
use super::objects::CompletionQueue;
use super::pool::Lease;

/// How long a drop waits for the card to flush the queues. A card needs some microseconds per
/// request, the emulated one of the tests a hundred times that.
const FLUSH: Duration = Duration::from_millis(100);

/// The objects of a connection, at any step of its life.
///
/// The order of the fields is that of their end: the queue pair with the identifier, then its
/// completion queue, then the memory.
pub(super) struct Parts {
    pub(super) id: Id,
    pub(super) queues: Option<Queues>,
    pub(super) stage: Stage,
}

/// How far a connection is, for those who end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The peer knows nothing of it.
    Fresh,
    /// The peer asks and waits for an answer.
    Requested,
    /// The connection is being made: the peer may write, but there is nothing to disconnect yet.
    Connecting,
    /// Connected.
    Open,
    /// The peer has ended it.
    Ended,
}

/// The completion queue and the memory.
pub(super) struct Queues {
    pub(super) completions: CompletionQueue,
    pub(super) lease: Lease,
    /// Requests posted that have not completed.
    pub(super) sends: usize,
    /// Receives posted that have not completed.
    pub(super) receives: usize,
    /// Counts the queue pair. The last to go: when none is counted, every lease is back.
    pub(super) _counted: Token,
}

impl Parts {
    /// Makes the card let go of the memory. When it returns, nothing touches the rings any more.
    pub(super) fn quiesce(&mut self) {
        if self.id.queue_pair.is_none() || matches!(self.stage, Stage::Fresh | Stage::Requested) {
            // No queue pair, or one that was never connected: it moves no bytes.
            return;
        }
        let iwarp = self.lease_is_iwarp();
        if iwarp && self.stage == Stage::Open {
            // Asks the peer in order first: an error state at once would reset its TCP connection.
            // Not while connecting: there the call would wait for the end of that.
            let _ = self.id.disconnect();
        }
        // What is left in an iWARP queue pair whose peer has gone may never come back.
        let may_not_flush = iwarp && self.stage == Stage::Ended;
        if may_not_flush || self.id.set_error().is_err() || !self.flush() {
            // The hard way, which always ends what the card does.
            self.id.destroy_queue_pair();
        }
    }

    fn lease_is_iwarp(&self) -> bool {
        self.queues.as_ref().is_some_and(|queues| queues.lease.domain().context().info.iwarp)
    }

    /// Posts a receive: of a message slot, or of nothing but the message itself.
    pub(super) fn post_receive(&mut self, slot: usize) -> io::Result<()> {
        let queues = self.queues.as_mut().ok_or_else(|| errno(libc::ENOTCONN))?;
        self.id.post_receive(receive_id(slot), queues.lease.domain().slot(slot))?;
        queues.receives += 1;
        Ok(())
    }

    /// Waits until every posted request came back, the last sign of a queue pair in error.
    fn flush(&mut self) -> bool {
        let Some(queues) = &mut self.queues else { return true };
        let deadline = Instant::now() + FLUSH;
        let mut batch = [Wc::default(); 16];
        while queues.sends + queues.receives > 0 {
            match queues.completions.poll(&mut batch) {
                Ok(0) if Instant::now() > deadline => return false,
                Ok(0) => std::thread::yield_now(),
                Ok(taken) => batch[..taken].iter().for_each(|wc| queues.count(wc)),
                Err(_) => return false,
            }
        }
        true
    }

    /// Takes the events that have come; returns whether the peer is known to have ended the
    /// connection.
    pub(super) fn has_ended(&mut self) -> io::Result<bool> {
        loop {
            match self.id.next_event() {
                Ok(event) if event.is_end() || event.error().is_some() => {
                    self.stage = Stage::Ended;
                    if let (true, Some(queues)) = (event.is_removal(), &self.queues) {
                        queues.lease.retire_device();
                    }
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(self.stage == Stage::Ended),
                Err(e) => return Err(e),
            }
        }
    }
}

impl Queues {
    /// Accounts for a completion.
    pub(super) fn count(&mut self, wc: &Wc) {
        let posted = if receive_slot(wc.wr_id).is_none() { &mut self.sends } else { &mut self.receives };
        *posted = posted.saturating_sub(1);
    }
}

/// A receive's `wr_id`. Sends have 0: no other field of a failed completion shows which it was.
fn receive_id(slot: usize) -> u64 {
    slot as u64 + 1
}

/// The slot of a receive; `None` for a send.
pub(super) fn receive_slot(id: u64) -> Option<usize> {
    id.checked_sub(1).map(|slot| slot as usize)
}
