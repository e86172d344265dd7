//! The host's side of the memory: finds requests, and stores answers.
//!
//! Nothing in a request is trusted: a kernel may write anything there. A request is taken if every
//! unit that its length names has its tag. A length or a ticket that cannot be is counted, and its
//! channel goes on. A look at a channel is bounded by the length of a place.
#![allow(unsafe_code)]

use crate::function::Function;
use crate::layout::{Calls, Shape};
use crate::plain::Plain;
use crate::wire::{self, ANSWER_HEAD, MAX_REQUEST, NO_TICKET, REQUEST_HEAD, Status};
use gpunet_device::Error;
use gpunet_device::abi::Word;

/// Where an answer goes: a channel, a ticket, and the request's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return {
    channel: u32,
    slot: u32,
    number: u64,
}

impl Return {
    /// The channel.
    #[must_use]
    pub const fn channel(self) -> u32 {
        self.channel
    }

    /// The ticket.
    #[cfg(test)]
    pub(crate) const fn slot(self) -> u32 {
        self.slot
    }

    /// Returns whether an answer is wanted.
    #[must_use]
    pub const fn is_wanted(self) -> bool {
        self.slot != NO_TICKET
    }
}

/// A request that was taken: a copy.
#[derive(Clone, Debug)]
pub struct Request {
    from: Return,
    function: u32,
    answer_len: u16,
    len: u16,
    words: Words,
}

/// The words of a payload, aligned for any structure of C.
#[derive(Clone, Debug)]
#[repr(align(16))]
struct Words([u32; MAX_REQUEST / 4]);

impl Request {
    /// Room for a request.
    #[must_use]
    pub const fn empty() -> Self {
        let from = Return { channel: 0, slot: NO_TICKET, number: 0 };
        Self { from, function: 0, answer_len: 0, len: 0, words: Words([0; MAX_REQUEST / 4]) }
    }

    /// Where its answer goes.
    #[must_use]
    pub const fn from(&self) -> Return {
        self.from
    }

    /// The number of the function.
    #[must_use]
    pub const fn function(&self) -> u32 {
        self.function
    }

    /// The request's value, if its size and that of the answer are those of the function.
    #[must_use]
    pub fn value<Q: Plain, A: Plain>(&self, _: Function<Q, A>) -> Option<Q> {
        if usize::from(self.len) != size_of::<Q>() || usize::from(self.answer_len) != size_of::<A>() {
            return None;
        }
        // SAFETY: so many bytes are in `words`, and every pattern of bits is a value of a plain
        // type.
        Some(unsafe { self.words.0.as_ptr().cast::<Q>().read_unaligned() })
    }
}

impl Request {
    /// Its bytes, the first at a multiple of 16.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes are in `words`.
        unsafe { std::slice::from_raw_parts(self.words.0.as_ptr().cast(), self.len.into()) }
    }

    /// How many bytes the caller has for the answer.
    #[must_use]
    pub fn answer_room(&self) -> usize {
        self.answer_len.into()
    }
}

/// What [`Requests::take`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// No request has come.
    Nothing,
    /// A request. Its answer must be expected ([`Answers::expect`]) before it is given.
    Request,
    /// A request that no caller writes was passed over.
    Malformed,
}

/// Takes the requests of all channels, those of each in order.
#[derive(Debug)]
pub struct Requests {
    calls: Calls,
    /// The number of the next request of each channel.
    next: Vec<u64>,
    /// The channel that is looked at next.
    turn: u32,
}

impl Requests {
    /// The requests of these channels, as the host has them.
    ///
    /// # Safety
    /// As for [`Calls::new`], without the memory of the device. There is one such value for the
    /// memory.
    #[must_use]
    pub unsafe fn new(calls: Calls) -> Self {
        Self { calls, next: vec![0; calls.shape().channels() as usize], turn: 0 }
    }

    /// Copies the next request that is there to `into`, and lets its caller use the place again.
    /// Channels take turns.
    pub fn take(&mut self, into: &mut Request) -> Taken {
        let channels = self.calls.shape().channels();
        for _ in 0..channels {
            let channel = self.turn;
            self.turn = if channel + 1 == channels { 0 } else { channel + 1 };
            match self.look(channel, into) {
                Taken::Nothing => {}
                taken => {
                    let next = &mut self.next[channel as usize];
                    *next += 1;
                    // Ordering: Release, after the loads of the place; pairs with the Acquire of
                    // the caller's `find_room`.
                    self.calls.taken(channel).publish(*next);
                    return taken;
                }
            }
        }
        Taken::Nothing
    }

    /// Tells callers that nobody answers any more.
    pub fn close(&mut self) {
        // Ordering: Release; an answer that was stored before is there when a caller sees this.
        self.calls.closed().publish(1);
    }

    fn look(&self, channel: u32, into: &mut Request) -> Taken {
        let (shape, number) = (self.calls.shape(), self.next[channel as usize]);
        let (place, tag) = (self.calls.request(channel, number), wire::request_tag(shape.lap(number)));
        let load = |at: usize| {
            // SAFETY: an aligned word of the place, by the contract of `new`.
            let word = unsafe { Word::from_ptr(place.wrapping_add(at)) };
            // Ordering: Relaxed; a unit's tag comes with its bytes.
            let unit = word.peek();
            ((unit >> 32) as u32 == tag).then_some(unit as u32)
        };
        let (Some(function), Some(lengths), Some(slot)) = (load(0), load(1), load(2)) else {
            return Taken::Nothing;
        };
        let (len, answer_len) = (lengths as u16, (lengths >> 16) as u16);
        let is_sound = usize::from(len) <= shape.request()
            && usize::from(answer_len) <= shape.answer()
            && (slot < shape.tickets() || slot == NO_TICKET);
        if !is_sound {
            return Taken::Malformed;
        }
        for (word, at) in into.words.0.iter_mut().zip(REQUEST_HEAD..REQUEST_HEAD + wire::words(len.into())) {
            match load(at) {
                Some(found) => *word = found,
                None => return Taken::Nothing,
            }
        }
        into.from = Return { channel, slot, number };
        (into.function, into.len, into.answer_len) = (function, len, answer_len);
        Taken::Request
    }
}

/// The answer was not stored: its ticket belongs to a later request, it was answered before, or no
/// answer was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late;

/// Stores the answers of one channel.
#[derive(Debug)]
pub struct Answers {
    calls: Calls,
    channel: u32,
    /// The request that each ticket waits for, while it waits.
    expected: [Option<u64>; Shape::MAX_TICKETS as usize],
}

impl Answers {
    /// The answers of a channel, as the host has it.
    ///
    /// # Safety
    /// As for [`Requests::new`]. There is one such value for the channel.
    ///
    /// # Panics
    /// If there is no such channel.
    #[must_use]
    pub unsafe fn new(calls: Calls, channel: u32) -> Self {
        assert!(channel < calls.shape().channels(), "no such channel");
        Self { calls, channel, expected: [None; Shape::MAX_TICKETS as usize] }
    }

    /// Expects the answer to a request. An answer to an earlier request of the same ticket comes
    /// too late from now on.
    pub fn expect(&mut self, from: Return) {
        if let Some(expected) = self.expected.get_mut(from.slot as usize) {
            *expected = Some(from.number);
        }
    }

    /// Returns whether the answer to a request is still expected.
    #[must_use]
    pub fn expects(&self, from: Return) -> bool {
        from.channel == self.channel && self.expected.get(from.slot as usize) == Some(&Some(from.number))
    }

    /// Stores a function's answer.
    ///
    /// # Errors
    /// [`Late`].
    pub fn answer<A: Plain>(&mut self, to: Return, answer: &A) -> Result<(), Late> {
        // SAFETY: a plain type has no padding.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const *answer).cast(), size_of::<A>()) };
        self.answer_bytes(to, bytes)
    }

    /// Stores a function's answer as bytes.
    ///
    /// # Errors
    /// [`Late`].
    ///
    /// # Panics
    /// If there are more than the memory was made for.
    pub fn answer_bytes(&mut self, to: Return, answer: &[u8]) -> Result<(), Late> {
        assert!(answer.len() <= self.calls.shape().answer(), "longer than the memory was made for");
        let words = answer.chunks(4).map(|chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            u32::from_ne_bytes(word)
        });
        self.store(to, Status::Answered, answer.len(), words)
    }

    /// Stores that there is no answer, and why.
    ///
    /// # Errors
    /// [`Late`].
    pub fn fail(&mut self, to: Return, status: Status) -> Result<(), Late> {
        self.store(to, status, 0, std::iter::empty())
    }

    /// Stores the error that the function returned.
    ///
    /// # Errors
    /// [`Late`].
    pub fn refuse(&mut self, to: Return, error: Error) -> Result<(), Late> {
        self.store(to, Status::Refused, 4, std::iter::once(error.errno() as u32))
    }

    fn store(
        &mut self,
        to: Return,
        status: Status,
        len: usize,
        words: impl Iterator<Item = u32>,
    ) -> Result<(), Late> {
        if !self.expects(to) {
            return Err(Late);
        }
        self.expected[to.slot as usize] = None;
        let (place, tag) = (self.calls.answer(self.channel, to.slot), wire::answer_tag(to.number));
        // SAFETY: an aligned word of the ticket's place, which is long enough for the words.
        let word = |at: usize| unsafe { Word::from_ptr(place.wrapping_add(at)) };
        for (data, at) in words.zip(ANSWER_HEAD..) {
            // Ordering: Relaxed; a unit's tag comes with its bytes.
            word(at).set(wire::unit(data, tag));
        }
        // Ordering: Release, last: who finds it mostly finds the rest at the same look. Nothing
        // depends on it, each unit has its tag.
        word(0).publish(wire::unit(wire::answer_head(len, status as u16), tag));
        Ok(())
    }
}
