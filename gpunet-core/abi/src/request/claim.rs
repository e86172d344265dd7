//! Who may use a control slot: one group at a time, even after one has left without its reply.
//!
//! ```text
//! FREE --take--> HELD --release--> FREE
//!                  |
//!                  +--leave--> ORPHANED --adopt, once the reply is there--> HELD
//! ```
//!
//! A group that leaves without a reply (the proxy gave no sign of life) has abandoned its request,
//! so a proxy that resumes answers at once. The next group that needs a control slot adopts the
//! orphan when that answer is there, and closes the socket that nobody waits for. Until then the
//! proxy may still write the slot, so no other group posts in it.

use crate::request::control::Op;
use crate::sync::hand_off::{self, HandOff};
use crate::types::handle::Handle;

/// Nobody uses the control slot.
pub const FREE: u32 = 0;
/// A group uses it.
const HELD: u32 = 1;
/// A group has left it, and the proxy owes the reply to its last request.
const ORPHANED: u32 = 2;

/// The claim of a control slot, in device memory.
pub trait ClaimWord {
    /// Loads the word, ordering nothing.
    fn peek(&self) -> u32;
    /// Changes `from` into `to`; returns whether the word was `from`. An acquire.
    fn exchange(&self, from: u32, to: u32) -> bool;
    /// Stores the word. A release.
    fn store(&self, value: u32);
}

/// The result of [`take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A free control slot.
    Free,
    /// One that was left: it can be used once the reply to its last request is there, and is to be
    /// [left](leave) again if it is not.
    Orphan,
}

/// Takes the control slot, unless another group has it.
#[inline(always)]
pub fn take<W: ClaimWord>(word: &W) -> Option<Taken> {
    let (from, taken) = match word.peek() {
        FREE => (FREE, Taken::Free),
        ORPHANED => (ORPHANED, Taken::Orphan),
        _ => return None,
    };
    if !word.exchange(from, HELD) {
        return None;
    }
    hand_off::at(HandOff::Claimed);
    Some(taken)
}

/// Gives the control slot back after the reply.
#[inline(always)]
pub fn release<W: ClaimWord>(word: &W) {
    word.store(FREE);
    hand_off::at(HandOff::ClaimEnded);
}

/// Leaves the control slot without a reply, after the request was abandoned.
#[inline(always)]
pub fn leave<W: ClaimWord>(word: &W) {
    word.store(ORPHANED);
    hand_off::at(HandOff::ClaimEnded);
}

/// The last request in a control slot, as its holder remembers it. In device memory, ordered by the
/// claim: what stands in shared memory is not read back.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Posted {
    /// Its sequence number.
    pub sequence: u64,
    /// The handle of the socket that a successful reply opens, or 0.
    pub opens: i32,
    reserved: u32,
}

impl Posted {
    /// The request number `sequence`, of operation `op` about `socket`.
    #[must_use]
    pub const fn new(sequence: u64, op: Op, socket: Handle) -> Self {
        let opens = match op {
            Op::Bind | Op::Listen | Op::Connect | Op::Accept | Op::Group => socket.raw(),
            Op::Close | Op::SetOptions | Op::Query | Op::Prepare => 0,
        };
        Self { sequence, opens, reserved: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    impl ClaimWord for Cell<u32> {
        fn peek(&self) -> u32 {
            self.get()
        }
        fn exchange(&self, from: u32, to: u32) -> bool {
            let was = self.get() == from;
            if was {
                self.set(to);
            }
            was
        }
        fn store(&self, value: u32) {
            self.set(value);
        }
    }

    #[test]
    fn a_slot_is_held_by_one_and_an_orphan_is_known_as_one() {
        let word = Cell::new(FREE);
        assert_eq!(take(&word), Some(Taken::Free));
        assert_eq!(take(&word), None);
        leave(&word);
        assert_eq!(take(&word), Some(Taken::Orphan));
        assert_eq!(take(&word), None);
        release(&word);
        assert_eq!(take(&word), Some(Taken::Free));
    }

    #[test]
    fn only_requests_that_open_a_socket_have_one_to_close() {
        let socket = Handle::new(3, 7);
        assert_eq!(Posted::new(1, Op::Accept, socket).opens, socket.raw());
        assert_eq!(Posted::new(1, Op::Connect, socket).opens, socket.raw());
        assert_eq!(Posted::new(1, Op::Close, socket).opens, 0);
        assert_eq!(Posted::new(1, Op::Query, socket).opens, 0);
    }
}
