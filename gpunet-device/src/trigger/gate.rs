//! Waiting at a gate: for the other end's word of a direction that the host has taken.

use super::taken::TakenDirection;
use crate::Net;
use crate::socket::awaiting::{await_word, awaited};
use crate::socket::half::give_up;
use crate::table::entry;
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use gpunet_abi::atomic::{Ordering, fence};
use gpunet_abi::position::{MASK, StreamWord, advance};
use gpunet_abi::ring::RingEnd;
use gpunet_abi::trigger::reached;
use gpunet_abi::{Direction, Error, Gate, Result, Status, Timeout, device_scope};

/// Waits until the gate passes; `late` is what it returns when the time is over. By one lane,
/// before a barrier of its group.
///
/// # Errors
/// As [`GateExt::wait`](super::GateExt::wait).
#[inline(never)]
pub(super) fn pass(net: Net, gate: Gate, timeout: Timeout, late: Error) -> Result<u64> {
    if gate.position > MASK {
        return Err(Error::InvalidArgument);
    }
    let direction = TakenDirection::find(net, gate.socket, gate.direction)?;
    Wait::new(direction, gate.position).wait(timeout, late).map(|_| 0)
}

/// A wait at one gate. By one lane.
pub(super) struct Wait {
    direction: TakenDirection,
    end: RingEnd,
    position: u64,
    /// The other end's word as believed so far.
    seen: StreamWord,
    /// The caller has the direction locked.
    is_locked: bool,
}

impl Wait {
    #[inline(always)]
    const fn new(direction: TakenDirection, position: u64) -> Self {
        let (end, seen) = (direction.end(), direction.seen_before());
        Self { direction, end, position, seen, is_locked: false }
    }

    /// A wait of the group that has the direction locked, and has believed `seen` of the other end.
    #[inline(always)]
    pub(super) const fn locked(direction: TakenDirection, position: u64, seen: StreamWord) -> Self {
        Self { direction, end: direction.end(), position, seen, is_locked: true }
    }

    /// Waits until the gate passes; returns the other end's word as believed then.
    ///
    /// # Errors
    /// As [`pass`].
    #[inline(always)]
    pub(super) fn wait(mut self, timeout: Timeout, late: Error) -> Result<StreamWord> {
        if reached(self.seen, self.position) {
            return self.passed();
        }
        self.check_own()?;
        let timeout = entry::resolve_timeout(self.direction.entry(), timeout, self.direction.half());
        let deadline = Deadline::of(timeout);
        let mut left = timeout;
        loop {
            match self.look(left) {
                // Of a wait that was not to wait, or of the last one when the time is over.
                Err(Error::WouldBlock) => return Err(late),
                Err(Error::TimedOut) if self.failure() != Some(Error::TimedOut) => return Err(late),
                looked => looked?,
            }
            if reached(self.seen, self.position) {
                return self.passed();
            }
            left = deadline.left_of(left);
        }
    }

    /// Waits for another word of the other end, and believes it.
    #[inline(always)]
    fn look(&mut self, timeout: Timeout) -> Result<()> {
        let d = &self.direction;
        let found = await_word((d.net(), d.entry()), d.handle(), d.half(), self.end, (self.seen, 0), timeout);
        let word = match awaited(found) {
            // Between two threads of one device the wait has observed it at the device's scope, but
            // the host may have taken the other end, too.
            Ok(Some(_)) if self.end.link.is_same_device() => self.observe(),
            Ok(Some(word)) => word,
            ended => {
                // Ordering: Acquire, pairs with the proxy's publish of the status: what was
                // released or has landed before it counts.
                fence(Ordering::Acquire);
                let last = self.observe();
                if last.position() < self.position {
                    return ended.and(Err(Error::NoData));
                }
                last
            }
        };
        self.believe(word)
    }

    /// The other end's word, at system scope.
    #[inline(always)]
    fn observe(&self) -> StreamWord {
        StreamWord::read(self.end.theirs.observe())
    }

    /// Checks a word of the other end, and keeps it.
    fn believe(&mut self, word: StreamWord) -> Result<()> {
        // Ordering: Relaxed. The word answers what was published before, and a trigger stores the
        // position before it publishes, so this is no older.
        let own = StreamWord(self.direction.position().peek()).position();
        let limit = match self.direction.half() {
            Direction::Send => own,
            Direction::Recv => own + self.end.capacity,
        };
        if word.err() {
            // The mark may not be the other end's: the agent that releases the waiters of a dead
            // socket sets it, whatever the position was.
            self.check_alive()?;
        }
        if advance(self.seen, word, limit).is_err() {
            self.end_stream();
            return Err(Error::Protocol);
        }
        self.keep(word);
        Ok(())
    }

    fn keep(&mut self, word: StreamWord) {
        self.seen = word;
        // Ordering: Release, pairs with the Acquire load of `TakenDirection::find`. Of two groups
        // the one with the older word may be the later: then the next gate looks for itself.
        device_scope::publish(self.direction.seen(), word.0);
    }

    /// The outcome, once the gate is [`reached`].
    fn passed(&self) -> Result<StreamWord> {
        if self.seen.position() >= self.position {
            return Ok(self.seen);
        }
        self.failure().map_or(Ok(()), Err)?;
        Err(match self.direction.half() {
            Direction::Send => Error::BrokenPipe,
            Direction::Recv if self.seen.err() => Error::ConnectionReset,
            Direction::Recv => Error::NoData,
        })
    }

    /// Checks that this end has not ended the direction before the gate's position.
    fn check_own(&self) -> Result<()> {
        let own = StreamWord(self.direction.position().peek());
        match self.direction.half() {
            _ if own.err() => Err(Error::Protocol),
            Direction::Send if own.end() && own.position() < self.position => Err(Error::BrokenPipe),
            Direction::Recv if own.end() => Err(Error::NoData),
            _ => Ok(()),
        }
    }

    /// Checks that socket, launch and proxy are still usable.
    fn check_alive(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)?;
        WaitGuard::new(self.direction.net(), Deadline::NEVER).check()
    }

    /// The socket's failure, by its status word.
    fn failure(&self) -> Option<Error> {
        let handle = self.direction.handle();
        self.direction.net().status(handle.slot(), handle.generation()).and_then(Status::error)
    }

    /// Ends the direction, because the other end wrote an invalid word.
    #[cold]
    #[inline(never)]
    fn end_stream(&self) {
        let d = &self.direction;
        // Under the lock: a trigger must not publish over the mark. Who is cancelled leaves it to
        // the next that looks.
        if !self.is_locked && d.lock().is_err() {
            return;
        }
        let own = StreamWord(d.position().peek());
        if !own.err() {
            give_up(d.net(), d.handle(), d.half(), own.with_err(), self.seen);
        }
        if !self.is_locked {
            d.unlock();
        }
    }
}
