//! The format of requests and answers: units of eight bytes, four of them a tag.
//!
//! ```text
//! request:  | function | request and answer length | ticket | payload ...
//! answer:   | length, status | payload ...
//! unit:     bits 63-32 tag, bits 31-0 four bytes
//! ```
//!
//! Request `n` of a channel lies at place `n % tickets`, and its tag is its lap, `n / tickets + 1`:
//! the host knows which comes next, and looks at one place of each channel. The answer lies at the
//! place that the request names, its *ticket*, and its tag is the request's number: an answer to an
//! earlier request of the same ticket has another tag. Memory that nobody has written is zero,
//! which is the tag of nothing.
//!
//! Lengths are in bytes. Behind a payload that ends in the middle of a word there are zeros.

pub(crate) use gpunet_device::abi::line::unit;

/// Units before a request's payload.
pub(crate) const REQUEST_HEAD: usize = 3;
/// Units before an answer's payload.
pub(crate) const ANSWER_HEAD: usize = 1;
/// Units of the longest place.
const MAX_UNITS: usize = 256;
/// The longest request, in bytes: 1012.
pub const MAX_REQUEST: usize = (MAX_UNITS - REQUEST_HEAD) * 4;
/// The longest answer, in bytes: 1020.
pub const MAX_ANSWER: usize = (MAX_UNITS - ANSWER_HEAD) * 4;
/// In place of a ticket: no answer is wanted.
pub(crate) const NO_TICKET: u32 = u32::MAX;

/// What an answer says beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// The function's answer.
    Answered = 1,
    /// There is no such function.
    NoFunction = 2,
    /// The sizes differ from those registered.
    Sizes = 3,
    /// The function returned an error. The payload is its errno.
    Refused = 4,
    /// The function panicked.
    Panicked = 5,
    /// Nobody answers any more.
    Unanswered = 6,
    /// The host ends.
    HostGone = 7,
}

impl Status {
    /// The status of that number, if there is one.
    #[must_use]
    #[inline(always)]
    pub(crate) const fn from_raw(raw: u16) -> Option<Self> {
        Some(match raw {
            1 => Self::Answered,
            2 => Self::NoFunction,
            3 => Self::Sizes,
            4 => Self::Refused,
            5 => Self::Panicked,
            6 => Self::Unanswered,
            7 => Self::HostGone,
            _ => return None,
        })
    }
}

/// The tag of a request in that lap. It repeats after 2^32 laps; the places change in each.
#[inline(always)]
pub(crate) const fn request_tag(lap: u64) -> u32 {
    (lap as u32).wrapping_add(1)
}

/// The tag of the answer to request `number`; never zero. It repeats after 2^31 requests: until
/// then the ticket's place has had other answers, unless nobody has answered one of them.
#[inline(always)]
pub(crate) const fn answer_tag(number: u64) -> u32 {
    number as u32 | 1 << 31
}

/// The lengths of a request and its answer, in bytes, as one word.
#[inline(always)]
pub(crate) const fn lengths(request: usize, answer: usize) -> u32 {
    request as u32 | (answer as u32) << 16
}

/// How many words hold so many bytes.
#[inline(always)]
pub(crate) const fn words(len: usize) -> usize {
    len.div_ceil(4)
}

/// The first word of an answer.
#[inline(always)]
pub(crate) const fn answer_head(len: usize, status: u16) -> u32 {
    len as u32 | (status as u32) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_nobody_has_written_has_no_tag() {
        assert_eq!((request_tag(0), request_tag(1)), (1, 2));
        assert!([0, 1, 1 << 31, u64::from(u32::MAX), 1 << 32].iter().all(|&n| answer_tag(n) != 0));
    }

    #[test]
    fn a_status_comes_back() {
        for raw in 0..=u16::MAX {
            assert!(Status::from_raw(raw).is_none_or(|status| status as u16 == raw));
        }
        assert_eq!((Status::from_raw(0), Status::from_raw(8)), (None, None));
    }
}
