//! What can be called, and why a call fails.

use crate::plain::Plain;
use crate::wire::{MAX_ANSWER, MAX_REQUEST, Status};
use core::fmt;
use core::marker::PhantomData;
use gpunet_device::Error;

/// A function of the host: its number, and the types of its request and its answer. The kernel and
/// the host program share the constant.
///
/// # Examples
///
/// ```
/// # use gpunet_calls::Function;
/// /// Adds two numbers.
/// pub const ADD: Function<[u32; 2], u32> = Function::new(1);
/// ```
pub struct Function<Q, A> {
    number: u32,
    types: PhantomData<fn(Q) -> A>,
}

impl<Q: Plain, A: Plain> Function<Q, A> {
    /// The function with that number, below 2^31. Those from 2^31 on are gpunet's own.
    ///
    /// # Panics
    /// If the number is larger, when the constant is compiled. Nor does it compile if a type's size
    /// is no multiple of four bytes, the request is longer than [`MAX_REQUEST`], or the answer
    /// longer than [`MAX_ANSWER`].
    #[must_use]
    pub const fn new(number: u32) -> Self {
        assert!(number >> 31 == 0, "numbers from 2^31 on are gpunet's own");
        Self::reserved(number)
    }

    /// A function of any number.
    pub(crate) const fn reserved(number: u32) -> Self {
        const {
            assert!(size_of::<Q>().is_multiple_of(4), "a request's size is a multiple of four bytes");
            assert!(size_of::<A>().is_multiple_of(4), "an answer's size is a multiple of four bytes");
            assert!(size_of::<Q>() <= MAX_REQUEST, "the request is too long");
            assert!(size_of::<A>() <= MAX_ANSWER, "the answer is too long");
        }
        Self { number, types: PhantomData }
    }

    /// The number.
    #[must_use]
    #[inline(always)]
    pub const fn number(self) -> u32 {
        self.number
    }
}

impl<Q, A> Clone for Function<Q, A> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<Q, A> Copy for Function<Q, A> {}

impl<Q, A> fmt::Debug for Function<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({})", self.number)
    }
}

/// The number of a function that is known by its name: the same in kernels and on the host, in all
/// languages. It is from 2^30 on and below 2^31, so a program's own numbers below 2^30 are never
/// one. Two names may have the same number: the host then refuses the second.
///
/// # Examples
///
/// ```
/// const LOOK_UP: u32 = gpunet_calls::number_of("look_up");
/// assert!(LOOK_UP >> 30 == 1 && LOOK_UP != gpunet_calls::number_of("look_down"));
/// ```
#[must_use]
pub const fn number_of(name: &str) -> u32 {
    // FNV-1a.
    let (bytes, mut hash, mut at) = (name.as_bytes(), 0x811c_9dc5_u32, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    1 << 30 | hash >> 2
}

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The host has registered no function of that number.
    NoFunction,
    /// The host has registered the function with a request or an answer of another size, or the
    /// memory was made for shorter ones.
    Sizes,
    /// The function returned this error.
    Refused(Error),
    /// The function panicked. The panic's message is in the host program's log.
    Panicked,
    /// The host has dropped the call without an answer.
    Unanswered,
    /// The host ends, or has ended: nobody answers.
    HostGone,
    /// All tickets of the caller are in use: wait for one, or give it up.
    TooMany,
    /// More groups than the memory was made for have a caller.
    NoChannel,
    /// The ticket's answer was taken or given up, or it is another caller's.
    NoTicket,
    /// The answer has a status or a length that cannot be: shared memory was overwritten.
    Malformed,
    /// The wait ended: [`Error::TimedOut`], [`Error::WouldBlock`], [`Error::Canceled`] or
    /// [`Error::NetworkDown`]. The ticket stays valid.
    Wait(Error),
}

impl Failure {
    /// The failure as an error, for callers that have one kind of errors.
    #[must_use]
    pub const fn error(self) -> Error {
        match self {
            Self::Refused(error) | Self::Wait(error) => error,
            Self::NoFunction => Error::NotSupported,
            Self::Sizes => Error::MessageTooLong,
            Self::Panicked | Self::Unanswered => Error::ConnectionAborted,
            Self::HostGone => Error::NetworkDown,
            Self::TooMany | Self::NoChannel => Error::NoBuffers,
            Self::NoTicket => Error::InvalidArgument,
            Self::Malformed => Error::Protocol,
        }
    }

    /// The failure that a status of the host stands for.
    #[inline(always)]
    pub(crate) const fn of(status: u16, detail: u32) -> Self {
        match Status::from_raw(status) {
            Some(Status::NoFunction) => Self::NoFunction,
            Some(Status::Sizes) => Self::Sizes,
            Some(Status::Refused) => Self::Refused(Error::from_errno(detail as i32)),
            Some(Status::Panicked) => Self::Panicked,
            Some(Status::Unanswered) => Self::Unanswered,
            Some(Status::HostGone) => Self::HostGone,
            Some(Status::Answered) | None => Self::Malformed,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused(error) | Self::Wait(error) => return error.fmt(f),
            Self::NoFunction => "the host has no such function",
            Self::Sizes => "the host has registered the function with other sizes",
            Self::Panicked => "the function panicked",
            Self::Unanswered => "the host dropped the call without an answer",
            Self::HostGone => "the host answers no more calls",
            Self::TooMany => "all tickets of the caller are in use",
            Self::NoChannel => "too many groups have a caller",
            Self::NoTicket => "the ticket's answer was taken or given up",
            Self::Malformed => "the answer was overwritten",
        })
    }
}

impl core::error::Error for Failure {}
