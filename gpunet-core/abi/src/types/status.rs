//! The status word: how every failure but END and ERR reaches a socket.

use crate::types::errno::Error;

/// What the proxy reports about a socket beside its positions. Written by the proxy alone.
///
/// Bits 0-15 are the errno (0: none), bit 16 [`Status::EOF`], bit 17 [`Status::NO_SEND`], bits
/// 32-46 the generation of the slot: a word of an earlier generation does not count.
///
/// # Examples
///
/// ```
/// use gpunet_abi::{Error, Status};
///
/// let status = Status::open(1).with_error(Error::ConnectionReset);
/// assert_eq!(status.error(), Some(Error::ConnectionReset));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(pub u64);

impl Status {
    /// No more data will land, in good order: after what landed, a receive returns 0.
    pub const EOF: u64 = 1 << 16;
    /// Nothing more can be sent: the peer stopped reading. A send fails with EPIPE.
    pub const NO_SEND: u64 = 1 << 17;

    /// The status of a healthy socket of that generation.
    #[must_use]
    pub const fn open(generation: u32) -> Self {
        Self((generation as u64) << 32)
    }

    /// The same generation with an error.
    #[must_use]
    pub const fn with_error(self, error: Error) -> Self {
        Self((self.0 & !0xffff) | (error.errno() as u64 & 0xffff))
    }

    /// The same status with [`Status::EOF`] or [`Status::NO_SEND`] added.
    #[must_use]
    pub const fn with(self, flags: u64) -> Self {
        Self(self.0 | flags)
    }

    /// The generation that the word is about.
    #[must_use]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns whether an error or a flag is set.
    #[must_use]
    pub const fn is_set(self) -> bool {
        self.0 & 0xffff_ffff != 0
    }

    /// Returns whether one of the flags is set.
    #[must_use]
    pub const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// The error, if there is one.
    #[must_use]
    pub const fn error(self) -> Option<Error> {
        match (self.0 & 0xffff) as i32 {
            0 => None,
            code => Some(Error::from_errno(code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read_back() {
        let open = Status::open(0x7ffe);
        assert_eq!((open.generation(), open.is_set(), open.error()), (0x7ffe, false, None));
        assert!(!open.has(Status::EOF) && !open.has(Status::NO_SEND));

        let ended = open.with(Status::EOF);
        assert!(ended.is_set() && ended.has(Status::EOF) && !ended.has(Status::NO_SEND));
        let both = ended.with(Status::NO_SEND);
        assert!(both.has(Status::EOF) && both.has(Status::NO_SEND));
        assert_eq!(both.with(Status::EOF), both, "set twice");

        let failed = both.with_error(Error::ConnectionReset);
        assert_eq!((failed.generation(), failed.error()), (0x7ffe, Some(Error::ConnectionReset)));
        assert!(failed.has(Status::EOF) && failed.has(Status::NO_SEND) && failed.is_set());
        assert_eq!(failed.with_error(Error::TimedOut).error(), Some(Error::TimedOut), "the last one counts");
        assert!(open.with_error(Error::BadHandle).is_set());
    }
}
