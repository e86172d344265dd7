//! Errors as the device sees them, with Linux's numbers.

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// Why a socket call failed: a Linux errno with a name. C programs see it negated.
        ///
        /// A number, not an enum: on the device an error crosses broadcasts, control slots and
        /// status words, and naming it at each of them made a third of the PTX.
        ///
        /// # Examples
        ///
        /// ```
        /// use gpunet_abi::Error;
        ///
        /// assert_eq!(Error::TimedOut.errno(), 110);
        /// assert_eq!(Error::from_errno(110).to_string(), "timed out");
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct Error(i32);

        #[allow(non_upper_case_globals)]
        impl Error {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            /// A short description.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    _ => "operating system error",
                }
            }

            /// The name, for messages; `None` for a number that has none here.
            const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

impl Error {
    /// The Linux errno, positive.
    #[must_use]
    #[inline(always)]
    pub const fn errno(self) -> i32 {
        self.0
    }

    /// The error of a positive Linux errno.
    #[must_use]
    #[inline(always)]
    pub const fn from_errno(code: i32) -> Self {
        Self(code)
    }
}

impl core::fmt::Debug for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Error({})", self.0),
        }
    }
}

errors! {
    /// EPERM
    NotPermitted = 1, "operation not permitted";
    /// EBADF: not a socket, or one that was closed, by a group or by the proxy for a launch that
    /// has ended.
    BadHandle = 9, "bad or stale socket handle";
    /// ENOENT: the socket is not in this poll group.
    NotFound = 2, "not in this poll group";
    /// EEXIST: the socket is in a poll group already.
    AlreadyExists = 17, "in a poll group already";
    /// ENOSPC: the poll group has as many sockets as it was made for.
    NoSpace = 28, "the poll group is full";
    /// EAGAIN: a non-blocking call would have to wait.
    WouldBlock = 11, "operation would block";
    /// EACCES
    AccessDenied = 13, "permission denied";
    /// EINVAL
    InvalidArgument = 22, "invalid argument";
    /// ENFILE: the proxy has no file descriptor left for the socket (`ulimit -n`, where the proxy
    /// runs).
    TooManyFiles = 23, "no file descriptor left on the host";
    /// EMFILE: the socket table of the attachment, or of its user, is full.
    TooManySockets = 24, "socket table full";
    /// EPIPE: a send after shutdown, or to a peer that reads no more.
    BrokenPipe = 32, "broken pipe";
    /// ENODATA: the stream ended, in good order, before the position that a gate waits for. A
    /// receive returns 0 there, but a gate that passes promises the bytes; EPIPE is of senders, and
    /// nothing was reset.
    NoData = 61, "the stream ended before that position";
    /// EPROTO: a shared word or slot holds an invalid value; the connection is ended.
    Protocol = 71, "shared memory was overwritten: protocol error";
    /// EDESTADDRREQ
    DestinationRequired = 89, "destination address required";
    /// EMSGSIZE: more bytes than the ring holds.
    MessageTooLong = 90, "longer than the ring";
    /// EOPNOTSUPP
    NotSupported = 95, "operation not supported on this socket";
    /// EAFNOSUPPORT
    FamilyNotSupported = 97, "address family not supported";
    /// EADDRINUSE
    AddressInUse = 98, "address in use";
    /// EADDRNOTAVAIL
    AddressNotAvailable = 99, "address not available";
    /// ENETDOWN: the proxy stopped, or gave no sign of life while the call waited. The next call
    /// waits anew.
    NetworkDown = 100, "the proxy stopped";
    /// ENETUNREACH
    NetworkUnreachable = 101, "network unreachable";
    /// ECONNABORTED
    ConnectionAborted = 103, "connection aborted";
    /// ECONNRESET
    ConnectionReset = 104, "connection reset by peer";
    /// ENOBUFS: no ring of that size is free.
    NoBuffers = 105, "ring memory exhausted";
    /// EISCONN
    IsConnected = 106, "already connected";
    /// ENOTCONN
    NotConnected = 107, "not connected";
    /// ETIMEDOUT
    TimedOut = 110, "timed out";
    /// ECONNREFUSED
    ConnectionRefused = 111, "connection refused";
    /// EHOSTUNREACH
    HostUnreachable = 113, "host unreachable";
    /// EALREADY: another group uses this direction, or the host has taken it.
    Busy = 114, "another group, or the host, uses this direction";
    /// ECANCELED: the launch was cancelled by the host.
    Canceled = 125, "canceled by the host";
}

/// The result of a socket call.
pub type Result<T> = core::result::Result<T, Error>;

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_comes_back() {
        for code in 1..200 {
            assert_eq!(Error::from_errno(code).errno(), code);
        }
    }

    #[test]
    fn errors_have_names_and_numbers() {
        assert_eq!(std::format!("{:?} {:?}", Error::TimedOut, Error::from_errno(33)), "TimedOut Error(33)");
        assert!(matches!(Error::from_errno(110), Error::TimedOut));
    }
}
