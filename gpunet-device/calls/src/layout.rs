//! Where requests and answers lie, and what a kernel is given of them.
//!
//! ```text
//! pinned memory:  | head, 64 B | a line of 64 B for each channel | .. | requests | answers |
//! device memory:  | a word for each channel |
//! ```
//!
//! | word | writer | reader |
//! |---|---|---|
//! | head: closed | host, once | callers: nobody answers any more |
//! | line: taken | host | the channel's caller: how many requests the host has copied |
//! | request places | the channel's caller | host |
//! | answer places | host | the channel's caller |
//! | device: holder | callers, by compare-exchange | callers: who has the channel, and its next number |

use crate::wire::{ANSWER_HEAD, MAX_ANSWER, MAX_REQUEST, REQUEST_HEAD};
use gpunet_device::abi::Word;

/// The head's and a channel's line, in pinned memory.
const LINE: usize = 64;
/// Where the requests begin is a multiple of this.
const PAGE: usize = 4096;
/// Marks a channel that a caller has, in its word; the other bits are its next number.
pub(crate) const TAKEN: u64 = 1 << 63;

/// How many channels there are, and how large they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    channels: u32,
    tickets_log2: u32,
    request_log2: u32,
    answer_log2: u32,
}

impl Shape {
    /// The most tickets of a channel.
    pub const MAX_TICKETS: u32 = 64;

    /// So many channels (at least one; each group that has a caller at a time needs one) with
    /// `tickets` calls in flight each, requests of at most `request` bytes and answers of at most
    /// `answer`. Everything is rounded up to powers of two. `None`: more than
    /// [`Shape::MAX_TICKETS`] tickets, longer than [`MAX_REQUEST`] or [`MAX_ANSWER`], or more than
    /// 65,536 channels.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_calls::Shape;
    /// let shape = Shape::new(132, 16, 40, 60).unwrap();
    /// assert_eq!((shape.tickets(), shape.request(), shape.answer()), (16, 52, 60));
    /// assert_eq!(Shape::new(1, 65, 40, 60), None, "too many tickets");
    /// ```
    #[must_use]
    pub const fn new(channels: u32, tickets: u32, request: usize, answer: usize) -> Option<Self> {
        if tickets > Self::MAX_TICKETS || request > MAX_REQUEST || answer > MAX_ANSWER || channels > 1 << 16 {
            return None;
        }
        Some(Self {
            channels: if channels == 0 { 1 } else { channels },
            tickets_log2: if tickets < 2 { 0 } else { tickets.next_power_of_two().trailing_zeros() },
            request_log2: Self::place_log2(REQUEST_HEAD, request),
            answer_log2: Self::place_log2(ANSWER_HEAD, answer),
        })
    }

    const fn place_log2(head: usize, payload: usize) -> u32 {
        let bytes = (head + payload.div_ceil(4)) * 8;
        if bytes < LINE { LINE.trailing_zeros() } else { bytes.next_power_of_two().trailing_zeros() }
    }

    /// How many channels there are.
    #[must_use]
    #[inline(always)]
    pub const fn channels(self) -> u32 {
        self.channels
    }

    /// How many calls a channel has in flight at most.
    #[must_use]
    #[inline(always)]
    pub const fn tickets(self) -> u32 {
        1 << self.tickets_log2
    }

    /// The longest request, in bytes.
    #[must_use]
    #[inline(always)]
    pub const fn request(self) -> usize {
        (1 << (self.request_log2 - 1)) - REQUEST_HEAD * 4
    }

    /// The longest answer, in bytes.
    #[must_use]
    #[inline(always)]
    pub const fn answer(self) -> usize {
        (1 << (self.answer_log2 - 1)) - ANSWER_HEAD * 4
    }

    /// The bytes of pinned memory.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.answers() + ((self.channels as usize) << (self.tickets_log2 + self.answer_log2))
    }

    /// The bytes of device memory.
    #[must_use]
    pub const fn device_bytes(self) -> usize {
        self.channels as usize * 8
    }

    #[inline(always)]
    const fn requests(self) -> usize {
        (LINE + self.channels as usize * LINE).next_multiple_of(PAGE)
    }

    #[inline(always)]
    const fn answers(self) -> usize {
        self.requests() + ((self.channels as usize) << (self.tickets_log2 + self.request_log2))
    }

    /// The lap of request `number`.
    #[inline(always)]
    pub(crate) const fn lap(self, number: u64) -> u64 {
        number >> self.tickets_log2
    }

    /// Where request `number` of a channel lies in pinned memory.
    #[inline(always)]
    pub(crate) const fn request_at(self, channel: u32, number: u64) -> usize {
        let place =
            (channel as usize) << self.tickets_log2 | (number as usize & (self.tickets() as usize - 1));
        self.requests() + (place << self.request_log2)
    }

    /// Where the answer to a ticket of a channel lies in pinned memory.
    #[inline(always)]
    pub(crate) const fn answer_at(self, channel: u32, ticket: u32) -> usize {
        let place =
            (channel as usize) << self.tickets_log2 | (ticket as usize & (self.tickets() as usize - 1));
        self.answers() + (place << self.answer_log2)
    }
}

/// The kernel's way to the host's functions: a parameter of the kernel, as [`gpunet_device::Net`]
/// is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Calls {
    /// Null: there are no channels.
    memory: *mut u8,
    device: *mut u64,
    channels: u32,
    tickets_log2: u32,
    request_log2: u32,
    answer_log2: u32,
}

// SAFETY: addresses and numbers; the contract of `new` covers all threads.
#[allow(unsafe_code)]
unsafe impl Send for Calls {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Calls {}

impl Calls {
    /// No host: every call fails with [`crate::Failure::NoChannel`].
    pub const OFF: Self = Self {
        memory: core::ptr::null_mut(),
        device: core::ptr::null_mut(),
        channels: 1,
        tickets_log2: 0,
        request_log2: 6,
        answer_log2: 6,
    };

    /// Channels of a shape in memory at these addresses, as the device has them.
    ///
    /// # Safety
    /// [`Shape::bytes`] of pinned memory from `memory` on, a page's beginning, and
    /// [`Shape::device_bytes`] of the device's memory from `device` on, aligned to 8, stay mapped
    /// while kernels use the value. They were zero at first. Callers of one device and one
    /// [`crate::Requests`] with its [`crate::Answers`] alone access them.
    #[must_use]
    #[allow(unsafe_code)]
    pub const unsafe fn new(memory: *mut u8, device: *mut u64, shape: Shape) -> Self {
        let Shape { channels, tickets_log2, request_log2, answer_log2 } = shape;
        Self { memory, device, channels, tickets_log2, request_log2, answer_log2 }
    }

    /// Returns whether there are channels.
    #[must_use]
    #[inline(always)]
    pub const fn is_on(self) -> bool {
        !self.memory.is_null()
    }

    /// The channels' shape.
    #[must_use]
    #[inline(always)]
    pub const fn shape(self) -> Shape {
        Shape {
            channels: self.channels,
            tickets_log2: self.tickets_log2,
            request_log2: self.request_log2,
            answer_log2: self.answer_log2,
        }
    }

    /// The place of request `number` of a channel.
    #[inline(always)]
    pub(crate) const fn request(self, channel: u32, number: u64) -> *mut u64 {
        self.memory.wrapping_add(self.shape().request_at(channel, number)).cast()
    }

    /// The place of the answer to a ticket of a channel.
    #[inline(always)]
    pub(crate) const fn answer(self, channel: u32, ticket: u32) -> *mut u64 {
        self.memory.wrapping_add(self.shape().answer_at(channel, ticket)).cast()
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    const fn pinned(self, at: usize) -> Word {
        // SAFETY: an aligned word of the heads, by the contract of `new`.
        unsafe { Word::from_ptr(self.memory.wrapping_add(at).cast()) }
    }

    /// Not 0 once nobody answers any more. Written by the host.
    #[inline(always)]
    pub(crate) const fn closed(self) -> Word {
        self.pinned(0)
    }

    /// How many requests of a channel the host has copied. Written by the host.
    #[inline(always)]
    pub(crate) const fn taken(self, channel: u32) -> Word {
        self.pinned(LINE + channel as usize * LINE)
    }

    /// Who has a channel, and its next number. In the device's memory.
    #[inline(always)]
    pub(crate) const fn holder(self, channel: u32) -> *mut u64 {
        self.device.wrapping_add(channel as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Places of different requests and answers do not overlap, and lie in the memory.
        #[test]
        fn places_do_not_overlap(
            (channels, tickets) in (1u32..5, 1u32..=64),
            (request, answer) in (0usize..=MAX_REQUEST, 0usize..=MAX_ANSWER),
            (channel, other_channel, number, other) in (0u32..5, 0u32..5, 0u64..64, 0u64..64),
        ) {
            let shape = Shape::new(channels, tickets, request, answer).unwrap();
            prop_assert!(shape.request() >= request && shape.answer() >= answer && shape.tickets() >= tickets);
            let tickets = u64::from(shape.tickets());
            let (a, b) = ((channel % channels, number % tickets), (other_channel % channels, other % tickets));
            let request_len = (REQUEST_HEAD + shape.request() / 4) * 8;
            let answer_len = (ANSWER_HEAD + shape.answer() / 4) * 8;
            let request = |(channel, number)| shape.request_at(channel, number);
            let answer = |(channel, ticket)| shape.answer_at(channel, ticket as u32);
            prop_assert!(request(a) >= shape.requests() && request(a) + request_len <= shape.answers());
            prop_assert!(answer(a) >= shape.answers() && answer(a) + answer_len <= shape.bytes());
            prop_assert!(a == b || request(a).abs_diff(request(b)) >= request_len);
            prop_assert!(a == b || answer(a).abs_diff(answer(b)) >= answer_len);
            prop_assert_eq!(request(a), shape.request_at(a.0, a.1 + tickets));
        }
    }

    #[test]
    fn what_cannot_be_is_no_shape() {
        assert!(Shape::new(1, 64, MAX_REQUEST, MAX_ANSWER).is_some());
        assert_eq!(Shape::new(1, 64, MAX_REQUEST + 1, 0), None);
        assert_eq!(Shape::new(1, 64, 0, MAX_ANSWER + 1), None);
        assert_eq!(Shape::new((1 << 16) + 1, 1, 0, 0), None);
    }
}
