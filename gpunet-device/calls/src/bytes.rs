//! Calls whose requests and answers are bytes, of a length that is known at run time: those of C.
#![allow(unsafe_code)]

use crate::answer::{await_answer, receive_payload};
use crate::caller::{Caller, Head, Ticket};
use crate::function::Failure;
use crate::wire::NO_TICKET;
use gpunet_device::{Buffer, Group, Timeout};

/// In place of an answer's type: bytes, as many as the function gives.
#[derive(Clone, Copy, Debug)]
pub enum Bytes {}

impl Caller {
    /// Calls the function with that number by bytes, waits for its answer, writes it to `answer`,
    /// and returns how many bytes it has, as [`Caller::call`] and [`Caller::wait_bytes`] do.
    ///
    /// # Cooperation
    /// As [`Caller::start_bytes`].
    ///
    /// # Errors
    /// As [`Caller::wait_bytes`]. A call whose time is over is given up.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_calls::{Caller, Failure, number_of};
    /// # use gpunet_device::{Buffer, Group, Timeout};
    /// fn ask<G: Group>(g: &G, caller: &mut Caller, text: Buffer, answer: Buffer) -> Result<usize, Failure> {
    ///     const LOOK_UP: u32 = number_of("look_up");
    ///     caller.call_bytes(g, LOOK_UP, text, answer, Timeout::secs(1))
    /// }
    /// ```
    #[inline(always)]
    pub fn call_bytes<G: Group>(
        &mut self,
        g: &G,
        function: u32,
        request: Buffer,
        answer: Buffer,
        timeout: Timeout,
    ) -> Result<usize, Failure> {
        let limit = self.limit(timeout);
        let mut ticket = self.start_bytes(g, function, request, answer.len(), timeout)?;
        let result = self.wait_bytes(g, &mut ticket, answer, limit.left());
        self.give_up(ticket);
        result
    }

    /// Calls the function with that number by bytes, as [`Caller::start`] does. The answer has at
    /// most `room` bytes, and at most as many as the memory was made for. The request may change
    /// when the call returns.
    ///
    /// # Cooperation
    /// It is a [`Group::sync`] before the request is read, and one afterwards.
    ///
    /// # Errors
    /// As [`Caller::start`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_calls::{Caller, Failure, number_of};
    /// # use gpunet_device::{Buffer, Group, Timeout};
    /// fn ask<G: Group>(g: &G, caller: &mut Caller, text: Buffer, answer: Buffer) -> Result<usize, Failure> {
    ///     const LOOK_UP: u32 = number_of("look_up");
    ///     let mut ticket = caller.start_bytes(g, LOOK_UP, text, answer.len(), Timeout::secs(1))?;
    ///     // Something else meanwhile.
    ///     let len = caller.wait_bytes(g, &mut ticket, answer, Timeout::secs(1));
    ///     caller.give_up(ticket);
    ///     len
    /// }
    /// ```
    #[inline(always)]
    pub fn start_bytes<G: Group>(
        &mut self,
        g: &G,
        function: u32,
        request: Buffer,
        room: usize,
        timeout: Timeout,
    ) -> Result<Ticket<Bytes>, Failure> {
        let (slot, most) = (self.free_slot()?, self.shape().answer());
        let room = if room < most { room } else { most };
        let number = self.put_bytes(g, function, request, room, slot, timeout)?;
        Ok(self.take_slot(slot, number))
    }

    /// Calls a function by bytes whose answer nobody wants, as [`Caller::tell`] does.
    ///
    /// # Cooperation
    /// As [`Caller::start_bytes`].
    ///
    /// # Errors
    /// As [`Caller::tell`].
    #[inline(always)]
    pub fn tell_bytes<G: Group>(
        &mut self,
        g: &G,
        function: u32,
        request: Buffer,
        timeout: Timeout,
    ) -> Result<(), Failure> {
        self.put_bytes(g, function, request, 0, NO_TICKET, timeout).map(|_| ())
    }

    /// Waits for the answer of [`Caller::start_bytes`], writes it to `answer`, and returns how many
    /// bytes it has. Every lane writes all of it: the memory may be each lane's own, or shared.
    ///
    /// # Errors
    /// As [`Caller::wait`]; [`Failure::Sizes`] if the answer is longer than `answer`.
    #[inline(always)]
    pub fn wait_bytes<G: Group>(
        &mut self,
        g: &G,
        ticket: &mut Ticket<Bytes>,
        answer: Buffer,
        timeout: Timeout,
    ) -> Result<usize, Failure> {
        self.wait_by(ticket, |place| {
            let most = place.calls.shape().answer();
            let come = await_answer(g, place, timeout, most)?;
            if come.len > answer.len() {
                return Err(Failure::Sizes);
            }
            if come.len > most {
                return Err(Failure::Malformed);
            }
            // SAFETY: so many bytes are the group's, by the contract of `Buffer`, and in a place.
            unsafe { receive_payload(g, place, come, answer.as_ptr()) }?;
            Ok(come.len)
        })
    }

    #[inline(always)]
    fn put_bytes<G: Group>(
        &mut self,
        g: &G,
        function: u32,
        request: Buffer,
        room: usize,
        slot: u32,
        timeout: Timeout,
    ) -> Result<u64, Failure> {
        let head = Head { function, len: request.len(), answer: room, slot };
        let (from, is_aligned) = (request.as_ptr(), request.as_ptr().addr().is_multiple_of(4));
        // What other lanes have written is there after this.
        g.sync();
        let word = |at: usize| {
            let left = request.len() - at * 4;
            if is_aligned && left >= 4 {
                // SAFETY: four bytes of the request, by the contract of `Buffer`.
                return unsafe { from.wrapping_add(at * 4).cast::<u32>().read() };
            }
            let (mut word, mut byte) = (0, 0);
            while byte < 4 && byte < left {
                // SAFETY: as above.
                word |= u32::from(unsafe { from.wrapping_add(at * 4 + byte).read() }) << (8 * byte);
                byte += 1;
            }
            word
        };
        let number = self.put_words(g, head, word, timeout);
        // The request is read before another lane changes it.
        g.sync();
        number
    }
}
