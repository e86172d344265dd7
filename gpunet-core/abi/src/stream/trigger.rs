//! Triggers and gates: what a host program hands to kernels of a direction that it has taken.
//!
//! The host *takes* the sending or the receiving direction of a stream
//! ([`lock::TAKEN`](crate::entry::lock::TAKEN)), and calls by handle no longer use it. It places
//! messages in the direction's ring by their positions, and hands small values to kernels, as
//! parameters:
//!
//! | value | of a sending direction | of a receiving direction |
//! |---|---|---|
//! | [`Prepared`] | where to write a message | where one will lie |
//! | [`Trigger`] | publishes what was filled | gives back what was read |
//! | [`Gate`] | waits until the other end, or the proxy, has released the bytes before its position | waits until these have landed |
//!
//! ```text
//! a send:     room --> fill the span --> trigger --> done
//! a receive:  arrived --> read the span --> trigger
//! ```
//!
//! They are plain integers without addresses, so they may be copied, stored and passed by value,
//! also in C. They are not trusted: a call that uses one checks the handle, the direction and the
//! position.

use crate::stream::position::MASK;
use crate::stream::position::StreamWord;
use crate::types::direction::Direction;
use crate::types::handle::Handle;

/// Returns whether a word ends a wait for `position`: it has reached the position, or it is final
/// (END), with or without ERR.
///
/// For well-formed words this is the comparison by which a CUDA stream waits for a word
/// (`CU_STREAM_WAIT_VALUE_GEQ`: `(i64)(word - position) >= 0`), so streams and kernels pass a gate
/// at the same word.
///
/// # Examples
///
/// ```
/// use gpunet_abi::{StreamWord, trigger::reached};
///
/// assert!(reached(StreamWord::at(100), 100) && !reached(StreamWord::at(99), 100));
/// assert!(reached(StreamWord::at(0).with_end(), 100)); // nothing more comes
/// ```
#[must_use]
#[inline(always)]
pub const fn reached(word: StreamWord, position: u64) -> bool {
    word.end() || word.position() >= position
}

/// "Publish this direction up to `position`": of a sending direction what was filled, of a
/// receiving one what was read.
///
/// The host makes it when it prepares a message, or by [`Prepared::trigger`]. Any group of any
/// launch may release it, as often as it likes: triggers of a direction take effect in order, so a
/// later one publishes everything before it, and one that comes too late does nothing. A position
/// that was never filled publishes garbage; one beyond the ring's free bytes ends the stream with
/// EPROTO.
///
/// # Examples
///
/// ```
/// use gpunet_abi::{Direction, Handle, Trigger};
///
/// let trigger = Trigger::new(Handle::new(7, 1), Direction::Send, 4096);
/// assert_eq!((trigger.direction, trigger.position), (0, 4096));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Trigger {
    /// The stream: [`Handle::raw`].
    pub socket: i32,
    /// A [`Direction`].
    pub direction: u32,
    /// Bytes since the stream was opened; 61 bits.
    pub position: u64,
}

impl Trigger {
    /// The trigger of that position.
    #[must_use]
    #[inline(always)]
    pub const fn new(socket: Handle, direction: Direction, position: u64) -> Self {
        Self { socket: socket.raw(), direction: direction as u32, position }
    }
}

/// "Wait until the other end's word of this direction has reached `position`, or never will": of a
/// sending direction its released word, of a receiving one its landed word.
///
/// Any group may wait, and test it without waiting; so may a CUDA stream, by the word itself
/// ([`reached`]). It stays open once it has passed.
///
/// # Examples
///
/// ```
/// use gpunet_abi::{Direction, Gate, Handle};
///
/// let gate = Gate::new(Handle::new(7, 1), Direction::Recv, 64); // 64 bytes have landed
/// assert_eq!((gate.direction, gate.position), (1, 64));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Gate {
    /// The stream: [`Handle::raw`].
    pub socket: i32,
    /// A [`Direction`].
    pub direction: u32,
    /// Bytes since the stream was opened; 61 bits.
    pub position: u64,
}

impl Gate {
    /// The gate of that position.
    #[must_use]
    #[inline(always)]
    pub const fn new(socket: Handle, direction: Direction, position: u64) -> Self {
        Self { socket: socket.raw(), direction: direction as u32, position }
    }
}

/// A message of `len` bytes from `position` on in a taken direction: to be sent, or expected.
///
/// The host places it, and kernels derive from it where it lies in the ring, its trigger, its
/// gates, and ([`Prepared::nth`]) the messages of the same length that follow.
///
/// # Examples
///
/// ```
/// use gpunet_abi::{Direction, Handle, Prepared};
///
/// let first = Prepared::new(Handle::new(7, 1), Direction::Send, 0, 64);
/// let tenth = first.nth(9).unwrap();
/// assert_eq!((tenth.position, tenth.trigger().position, tenth.done().position), (576, 640, 640));
/// assert_eq!(tenth.room(256).position, 384); // room, once 384 bytes are released
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Prepared {
    /// The stream: [`Handle::raw`].
    pub socket: i32,
    /// A [`Direction`].
    pub direction: u32,
    /// Where the message begins: bytes since the stream was opened; 61 bits.
    pub position: u64,
    /// Bytes; no more than the ring holds.
    pub len: u64,
}

const _: () = assert!(size_of::<Trigger>() == 16 && size_of::<Gate>() == 16 && size_of::<Prepared>() == 24);

impl Prepared {
    /// The message of that place and length.
    #[must_use]
    #[inline(always)]
    pub const fn new(socket: Handle, direction: Direction, position: u64, len: u64) -> Self {
        Self { socket: socket.raw(), direction: direction as u32, position, len }
    }

    /// Publishes the message once it is filled, or gives its bytes back once it is read; and all
    /// messages before it.
    #[must_use]
    #[inline(always)]
    pub const fn trigger(self) -> Trigger {
        Trigger { socket: self.socket, direction: self.direction, position: self.end() }
    }

    /// Of a send: passes once the message is released. Over tcp the kernel has taken it, over rc
    /// the card has acknowledged it, and the reader of a peer stream has announced that it has read
    /// it.
    #[must_use]
    #[inline(always)]
    pub const fn done(self) -> Gate {
        self.gate(self.end())
    }

    /// Of a send: passes once the ring of `capacity` bytes has room for the message.
    #[must_use]
    #[inline(always)]
    pub const fn room(self, capacity: u64) -> Gate {
        self.gate(self.end().saturating_sub(capacity))
    }

    /// Of a receive: passes once the whole message has landed.
    #[must_use]
    #[inline(always)]
    pub const fn arrived(self) -> Gate {
        self.gate(self.end())
    }

    /// The `i`-th message after this one, of the same length; 0 is this one. `None` when it would
    /// end beyond the last position of a stream.
    #[must_use]
    #[inline(always)]
    pub const fn nth(self, i: u64) -> Option<Self> {
        let Some(skipped) = self.len.checked_mul(i) else { return None };
        let Some(position) = self.position.checked_add(skipped) else { return None };
        match position.checked_add(self.len) {
            Some(end) if end <= MASK => Some(Self { position, ..self }),
            _ => None,
        }
    }

    const fn gate(self, position: u64) -> Gate {
        Gate { socket: self.socket, direction: self.direction, position }
    }

    /// Where the message ends. The end of an invalid message is not a valid position, and no use of
    /// a trigger or gate accepts it.
    const fn end(self) -> u64 {
        self.position.saturating_add(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOCKET: Handle = Handle::new(7, 3);

    fn send(position: u64, len: u64) -> Prepared {
        Prepared::new(SOCKET, Direction::Send, position, len)
    }

    #[test]
    fn what_a_message_makes_names_its_socket_and_direction() {
        let message = Prepared::new(SOCKET, Direction::Recv, 100, 28);
        assert_eq!(message.trigger(), Trigger::new(SOCKET, Direction::Recv, 128));
        assert_eq!(message.arrived(), Gate::new(SOCKET, Direction::Recv, 128));
        assert_eq!(send(100, 28).done(), Gate::new(SOCKET, Direction::Send, 128));
        assert_eq!(send(100, 28).room(64), Gate::new(SOCKET, Direction::Send, 64));
        assert_eq!(message.trigger().socket, SOCKET.raw());
    }

    #[test]
    fn an_empty_ring_has_room_for_the_first_messages() {
        assert_eq!(send(0, 64).room(64).position, 0);
        assert_eq!(send(0, 64).room(4096).position, 0);
        assert_eq!(send(1, 64).room(64).position, 1);
    }

    #[test]
    fn messages_end_with_the_last_position() {
        assert_eq!(send(MASK - 64, 64).nth(0), Some(send(MASK - 64, 64)));
        assert_eq!(send(MASK - 64, 64).nth(1), None);
        assert_eq!(send(MASK - 63, 64).nth(0), None);
        for (position, len, i) in
            [(0, u64::MAX, 2), (u64::MAX, 1, 1), (0, 1 << 60, 1 << 60), (9, 8, u64::MAX)]
        {
            assert_eq!(send(position, len).nth(i), None);
        }
        // No position, and not a small one by overflow.
        assert_eq!(send(u64::MAX, 2).trigger().position, u64::MAX);
    }

    proptest! {
        /// Each message begins where the one before it ends.
        #[test]
        fn messages_follow_one_another(position in 0..1u64 << 40, len in 0..1u64 << 20, i in 0..1u64 << 20) {
            let first = send(position, len);
            let (this, next) = (first.nth(i).unwrap(), first.nth(i + 1).unwrap());
            prop_assert_eq!(this.trigger().position, next.position);
            prop_assert_eq!(this.nth(1), Some(next));
        }

        /// A message has room as soon as all but a ring's worth of what it would end is released.
        #[test]
        fn a_message_has_room_when_it_fits(position in 0..1u64 << 40, len in 0..=4096u64, log2 in 12..24u32) {
            let (message, capacity) = (send(position, len), 1u64 << log2);
            let released = message.room(capacity).position;
            prop_assert!(position + len - released <= capacity);
            prop_assert!(released == 0 || position + len - released == capacity);
        }

        /// A kernel and a CUDA stream continue at the same words.
        #[test]
        fn a_gate_passes_where_a_stream_does(word in 0..=MASK, near in -3..=3i64, far in 0..=MASK, marks in 0..3u8) {
            let at = StreamWord::at(word);
            let word = match marks {
                0 => at,
                1 => at.with_end(),
                _ => at.with_err(),
            };
            prop_assert!(word.is_well_formed());
            for position in [far, at.0.saturating_add_signed(near).min(MASK)] {
                let geq = word.0.wrapping_sub(position).cast_signed() >= 0;
                prop_assert_eq!(reached(word, position), geq);
            }
        }
    }
}
