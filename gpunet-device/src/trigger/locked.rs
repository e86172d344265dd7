//! A direction that one group has for itself for a while, and finds only once.

use super::gate::Wait;
use super::release::announce;
use super::taken::TakenDirection;
use crate::group::outcome::by_leader;
use crate::{Group, Net};
use gpunet_abi::position::{MASK, StreamWord};
use gpunet_abi::{Direction, Error, Gate, Handle, Prepared, Result, RingSpan, Timeout, Trigger};

/// A direction that the host has taken, locked by a group: it waits at gates, finds places and
/// releases triggers without a look at the table for each, which saves about a microsecond a call
/// on an H200.
///
/// Until it is unlocked, other groups that release triggers of the direction wait. Gates do not. A
/// kernel that ends without unlocking it leaves it locked until the host gives the direction back.
///
/// # Examples
///
/// ```
/// use gpunet_device::trigger::LockedDirection;
/// use gpunet_device::{Buffer, Group, Net, Prepared, Result, copy::copy_into_ring, Timeout};
///
/// /// Sends `count` messages out of a buffer; `first` is the first of them.
/// fn play<G: Group>(g: &G, net: Net, first: Prepared, count: u64, buffer: Buffer) -> Result<()> {
///     let mut direction = LockedDirection::of(g, net, first)?;
///     let ring = direction.capacity();
///     for i in 0..count {
///         let Some(message) = first.nth(i) else { break };
///         direction.wait(g, message.room(ring), Timeout::NEVER)?;
///         let span = direction.span(message)?;
///         // SAFETY: the ring has room for the message, which is this group's; the buffer holds it.
///         unsafe { copy_into_ring(g, span, buffer.as_ptr()) };
///         direction.release(g, message.trigger())?;
///     }
///     direction.unlock(g);
///     Ok(())
/// }
/// ```
#[must_use = "it stays locked until `unlock`"]
pub struct LockedDirection {
    direction: TakenDirection,
    /// As triggers, gates and messages name it.
    socket: i32,
    half: u32,
    /// What is published.
    own: StreamWord,
    /// The other end's word as believed so far.
    seen: StreamWord,
}

impl LockedDirection {
    /// Locks the direction of a message, waiting for groups that release triggers at this moment,
    /// or have it locked.
    ///
    /// # Cooperation
    /// All lanes call it with the same message and get the same direction.
    ///
    /// # Errors
    /// BadHandle; NotConnected; InvalidArgument when the host has not taken the direction; Canceled
    /// and NetworkDown while it waits.
    pub fn of<G: Group>(g: &G, net: Net, message: Prepared) -> Result<Self> {
        let (Some(handle), Some(direction)) =
            (Handle::from_raw(message.socket), Direction::from_raw(message.direction))
        else {
            return Err(Error::InvalidArgument);
        };
        Self::lock(g, net, handle, direction)
    }

    /// Locks a direction of a socket.
    ///
    /// # Cooperation
    /// All lanes call it with the same arguments and get the same direction.
    ///
    /// # Errors
    /// As [`LockedDirection::of`].
    pub fn lock<G: Group>(g: &G, net: Net, handle: Handle, direction: Direction) -> Result<Self> {
        let seen = by_leader(g, || {
            let found = TakenDirection::find(net, handle.raw(), direction as u32)?;
            found.lock()?;
            Ok(found.seen_before().0)
        });
        let seen = StreamWord(seen?);
        // It is this group's, and its entry stays.
        let (socket, half) = (handle.raw(), direction as u32);
        let direction = TakenDirection::of(net, handle, direction, seen);
        let own = StreamWord(direction.position().peek());
        Ok(Self { direction, socket, half, own, seen })
    }

    /// Bytes in the ring.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.direction.end().capacity
    }

    /// Bytes since the stream was opened that are published, or given back.
    #[must_use]
    pub const fn released(&self) -> u64 {
        self.own.position()
    }

    /// The position up to which the other end's word was seen: of a receiving direction what has
    /// landed, of a sending one what the other end has given back. What is before it needs no wait.
    #[must_use]
    pub const fn seen(&self) -> u64 {
        self.seen.position()
    }

    /// The next `len` bytes of the direction as a message: they begin behind all that is released.
    ///
    /// # Errors
    /// InvalidArgument for a message longer than the ring; NoBuffers past the last position.
    pub fn next(&self, len: u64) -> Result<Prepared> {
        let position = self.own.position();
        if len > self.capacity() {
            return Err(Error::InvalidArgument);
        }
        if len > MASK - position {
            return Err(Error::NoBuffers);
        }
        Ok(Prepared { socket: self.socket, direction: self.half, position, len })
    }

    /// Waits at a gate of the direction: as [`GateExt::wait`](super::GateExt::wait). One that was
    /// seen to pass costs nothing.
    ///
    /// # Cooperation
    /// All lanes call it with the same arguments and get the same result. It is no barrier for a
    /// gate that was seen to pass.
    ///
    /// # Errors
    /// As there; InvalidArgument for a gate of another direction.
    #[inline(always)]
    pub fn wait<G: Group>(&mut self, g: &G, gate: Gate, timeout: Timeout) -> Result<()> {
        self.check(gate.socket, gate.direction, gate.position)?;
        if self.seen.position() >= gate.position {
            return Ok(());
        }
        let seen = by_leader(g, || {
            let wait = Wait::locked(self.direction, gate.position, self.seen);
            wait.wait(timeout, Error::TimedOut).map(|word| word.0)
        });
        if seen.is_err() {
            // What was believed meanwhile: before it failed, some of what was waited for may have
            // come. And an invalid word has ended this end, too.
            self.seen = StreamWord(g.broadcast(self.direction.seen().peek()));
            self.own = StreamWord(self.direction.position().peek());
        }
        self.seen = StreamWord(seen?);
        Ok(())
    }

    /// Where a message of the direction lies in the ring: as
    /// [`PreparedExt::span`](super::PreparedExt::span).
    ///
    /// # Errors
    /// InvalidArgument for a message of another direction, or one that is longer than the ring.
    #[inline(always)]
    pub fn span(&self, message: Prepared) -> Result<RingSpan> {
        self.check(message.socket, message.direction, message.position)?;
        let end = self.direction.end();
        if message.len > end.capacity {
            return Err(Error::InvalidArgument);
        }
        Ok(RingSpan::new(end.base, end.capacity, message.position, message.len))
    }

    /// Releases a trigger of the direction: as [`TriggerExt::release`](super::TriggerExt::release).
    ///
    /// # Cooperation
    /// All lanes call it with the same trigger, each after its own writes to the ring, or reads of
    /// it.
    ///
    /// # Errors
    /// InvalidArgument for a trigger of another direction; BrokenPipe after the end of the
    /// direction; Protocol if the other end had written an invalid word.
    #[inline(always)]
    pub fn release<G: Group>(&mut self, g: &G, trigger: Trigger) -> Result<()> {
        self.check(trigger.socket, trigger.direction, trigger.position)?;
        // All lanes have written, or read, the ring.
        g.sync();
        let from = self.own;
        if trigger.position <= from.position() {
            return Ok(());
        }
        if from.end() {
            return Err(if from.err() { Error::Protocol } else { Error::BrokenPipe });
        }
        self.own = StreamWord::at(trigger.position);
        if g.is_leader() {
            announce(&self.direction, from.position(), self.own);
        }
        Ok(())
    }

    /// Unlocks it.
    ///
    /// # Cooperation
    /// All lanes call it.
    pub fn unlock<G: Group>(self, g: &G) {
        // Its last call has no barrier behind what lanes do with it.
        g.sync();
        if g.is_leader() {
            self.direction.unlock();
        }
    }

    /// Checks that a value names this direction, at a position that is one.
    #[inline(always)]
    fn check(&self, socket: i32, direction: u32, position: u64) -> Result<()> {
        if socket == self.socket && direction == self.half && position <= MASK {
            Ok(())
        } else {
            Err(Error::InvalidArgument)
        }
    }
}
