//! Triggers and gates in kernels: using what the host has prepared in a direction that it has
//! taken.
//!
//! [`Trigger`], [`Gate`] and [`Prepared`] are plain values of the memory contract
//! ([`gpunet_abi::trigger`]), passed by value among a kernel's parameters. The traits of this
//! module give them their calls.
//!
//! | file | holds |
//! |---|---|
//! | `release` | a trigger: one published word |
//! | `gate` | a gate: a wait for the other end's word |
//! | `taken` | the direction that both name |
//! | `locked` | a direction that one group has for itself for a while |
//!
//! # Examples
//!
//! ```
//! use gpunet_device::trigger::{GateExt, PreparedExt, TriggerExt};
//! use gpunet_device::{Buffer, Group, Net, Prepared, Result, copy::copy_into_ring, Timeout};
//!
//! /// Sends `count` messages out of a buffer, in the ring that the host has taken; `first` is the first of them.
//! fn play<G: Group>(g: &G, net: Net, first: Prepared, ring: u64, count: u64, buffer: Buffer) -> Result<()> {
//!     for i in 0..count {
//!         let Some(message) = first.nth(i) else { break };
//!         message.room(ring).wait(g, net, Timeout::NEVER)?;
//!         let span = message.span(g, net)?;
//!         // SAFETY: the ring has room for the message, which is this group's; the buffer holds it.
//!         unsafe { copy_into_ring(g, span, buffer.as_ptr()) };
//!         message.trigger().release(g, net)?;
//!     }
//!     Ok(())
//! }
//! ```

mod gate;
mod locked;
mod release;
mod taken;

pub use locked::LockedDirection;

use crate::group::outcome::by_leader;
use crate::table::entry;
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Group, Net, platform};
use gpunet_abi::waiting::{Awaited, Call};
use gpunet_abi::{Direction, Error, Gate, Handle, Prepared, Result, RingSpan, Timeout, Trigger, Word};
use taken::TakenDirection;

/// The calls of a kernel on a [`Trigger`].
pub trait TriggerExt {
    /// Publishes the direction up to the trigger's position: what the lanes have written into the
    /// ring (or read from it) before the call is in the other end's hands.
    ///
    /// Triggers of a direction take effect in order, whichever groups release them: a later one
    /// publishes all before it, and one that was released already, or comes too late, does nothing.
    /// What other groups have written for messages that this trigger publishes, too, is for the
    /// kernel to wait for.
    ///
    /// # Cooperation
    /// All lanes call it with the same trigger.
    ///
    /// # Errors
    /// BrokenPipe after the end of that direction, and Protocol if the other end had written an
    /// invalid word; BadHandle; NotConnected; InvalidArgument when the host has not taken the
    /// direction, or the position is none; Canceled and NetworkDown while another group releases.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, Prepared, Result, trigger::{PreparedExt, TriggerExt}};
    /// # fn example<G: Group>(g: &G, net: Net, message: Prepared) -> Result<()> {
    /// // One lane writes the message's first byte; the rest was filled before.
    /// let span = message.span(g, net)?;
    /// if g.is_leader() {
    ///     // SAFETY: the first byte of the message.
    ///     unsafe { span.first.ptr.write_volatile(b'!') };
    /// }
    /// message.trigger().release(g, net)?;
    /// # Ok(())
    /// # }
    /// ```
    fn release<G: Group>(self, g: &G, net: Net) -> Result<()>;
}

impl TriggerExt for Trigger {
    #[inline(always)]
    fn release<G: Group>(self, g: &G, net: Net) -> Result<()> {
        // All lanes have written, or read, the ring. With the leader's release store this publishes
        // what they wrote.
        g.sync();
        by_leader(g, || release::publish(net, self)).map(|_| ())
    }
}

/// The calls of a kernel on a [`Gate`].
pub trait GateExt {
    /// Waits until the other end's word has reached the gate's position, at most `timeout`. After
    /// it all lanes see what has landed up to there, and may use the space that was released up to
    /// there.
    ///
    /// A gate that has been reached passes, whatever happened afterwards.
    ///
    /// # Cooperation
    /// All lanes call it with the same arguments and get the same result.
    ///
    /// # Errors
    /// TimedOut. When the position will not be reached: the failure of the socket; BrokenPipe of a
    /// sending direction whose reader has gone, or that has ended before; NoData of a receiving
    /// direction that has ended before; ConnectionReset when the sender gave up; Protocol when the
    /// other end wrote an invalid word, which ends the stream. BadHandle; NotConnected;
    /// InvalidArgument when the host has not taken the direction, or the position is none;
    /// Canceled; NetworkDown.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, Prepared, Result, trigger::{GateExt, PreparedExt, TriggerExt}, Timeout};
    /// # fn example<G: Group>(g: &G, net: Net, expected: Prepared) -> Result<()> {
    /// expected.arrived().wait(g, net, Timeout::secs(1))?;
    /// let span = expected.span(g, net)?;
    /// // ... all lanes read the message in the ring ...
    /// expected.trigger().release(g, net)?; // and give its bytes back
    /// # let _ = span;
    /// # Ok(())
    /// # }
    /// ```
    fn wait<G: Group>(self, g: &G, net: Net, timeout: Timeout) -> Result<()>;

    /// Returns whether a wait would be over, without waiting. If it returns true, all lanes see
    /// what they would after [`GateExt::wait`].
    ///
    /// # Cooperation
    /// All lanes call it with the same gate and get the same result.
    ///
    /// # Errors
    /// As [`GateExt::wait`], without TimedOut.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, Prepared, Result, trigger::GateExt};
    /// # fn example<G: Group>(g: &G, net: Net, message: Prepared, work: impl Fn()) -> Result<()> {
    /// while !message.done().test(g, net)? {
    ///     work();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn test<G: Group>(self, g: &G, net: Net) -> Result<bool>;
}

impl GateExt for Gate {
    #[inline(always)]
    fn wait<G: Group>(self, g: &G, net: Net, timeout: Timeout) -> Result<()> {
        pass(g, net, self, timeout, Error::TimedOut)
    }

    #[inline(always)]
    fn test<G: Group>(self, g: &G, net: Net) -> Result<bool> {
        match pass(g, net, self, Timeout::NON_BLOCKING, Error::WouldBlock) {
            Ok(()) => Ok(true),
            Err(Error::WouldBlock) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Waits at a gate; `late` is what a wait returns whose time is over. All lanes.
///
/// # Errors
/// As [`GateExt::wait`].
#[inline(always)]
pub fn pass<G: Group>(g: &G, net: Net, gate: Gate, timeout: Timeout, late: Error) -> Result<()> {
    by_leader(g, || gate::pass(net, gate, timeout, late)).map(|_| ())
}

/// The calls of a kernel on a [`Prepared`] message.
pub trait PreparedExt {
    /// The message's place in the ring: one piece, or two if it wraps round the ring's end.
    ///
    /// It may be written once [`Prepared::room`] has passed, and read once [`Prepared::arrived`]
    /// has, until the trigger is released. The call does not check that.
    ///
    /// # Cooperation
    /// All lanes call it and get the same span.
    ///
    /// # Errors
    /// BadHandle; NotConnected; InvalidArgument when the host has not taken the direction, or for a
    /// message that is longer than the ring; NetworkDown without an attachment.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, Prepared, Result, trigger::PreparedExt};
    /// # fn example<G: Group>(g: &G, net: Net, message: Prepared) -> Result<()> {
    /// // Fills the message with zeros, each lane a share.
    /// for piece in message.span(g, net)?.pieces() {
    ///     let mut at = g.rank() as usize;
    ///     while at < piece.len {
    ///         // SAFETY: inside the message, which is this group's.
    ///         unsafe { piece.ptr.add(at).write_volatile(0) };
    ///         at += g.size() as usize;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn span<G: Group>(self, g: &G, net: Net) -> Result<RingSpan>;
}

impl PreparedExt for Prepared {
    #[inline(always)]
    fn span<G: Group>(self, g: &G, net: Net) -> Result<RingSpan> {
        // One lane decides for all: the host may have the socket closed just now.
        by_leader(g, || find(net, self))?;
        let (Some(handle), Some(direction)) =
            (Handle::from_raw(self.socket), Direction::from_raw(self.direction))
        else {
            return Err(Error::InvalidArgument);
        };
        // Where the ring lies does not change while this launch runs, which is a user of the socket
        // now.
        let ring = entry::half_entry(net.entry(handle.slot()), direction);
        Ok(RingSpan::new(ring.base as *mut u8, ring.capacity as u64, self.position, self.len))
    }
}

/// Waits until a word of the program's own has reached `value`: until `word - value`, as a signed
/// number, is not negative, as CUDA streams compare; at most `timeout`. What was written before the
/// word is visible to all lanes then.
///
/// Queues wait for such a word, too (`gpunet_proxy::queue::Queue::wait_word`). For a word in
/// symmetric memory there is [`TeamHandle::wait_until_at`](crate::TeamHandle::wait_until_at).
///
/// # Cooperation
/// All lanes call it and get the same result.
///
/// # Errors
/// TimedOut; Canceled; NetworkDown.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result, abi::Word, trigger::wait_word, Timeout};
/// # fn example<G: Group>(g: &G, net: Net, epoch: Word) -> Result<()> {
/// wait_word(g, net, epoch, 7, Timeout::NEVER)
/// # }
/// ```
#[inline(always)]
pub fn wait_word<G: Group>(g: &G, net: Net, word: Word, value: u64, timeout: Timeout) -> Result<()> {
    by_leader(g, || await_value(net, word, value, timeout)).map(|_| ())
}

/// The leader's part of [`wait_word`].
#[inline(never)]
fn await_value(net: Net, word: Word, value: u64, timeout: Timeout) -> Result<u64> {
    if !net.is_attached() {
        return Err(Error::NetworkDown);
    }
    let mut guard = WaitGuard::new(net, Deadline::of_word(timeout)).waiting_for(Awaited::new(Call::Word));
    // Ordering: Acquire, pairs with the Release of the agent that publishes the word.
    while word.observe().wrapping_sub(value).cast_signed() < 0 {
        if guard.is_due() {
            guard.check()?;
        }
        platform::back_off();
    }
    Ok(0)
}

/// The leader's part of [`PreparedExt::span`].
#[inline(never)]
fn find(net: Net, message: Prepared) -> Result<u64> {
    let direction = TakenDirection::find(net, message.socket, message.direction)?;
    if message.len > direction.end().capacity { Err(Error::InvalidArgument) } else { Ok(0) }
}
