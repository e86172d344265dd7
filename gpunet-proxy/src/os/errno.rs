//! Errnos of I/O errors, and what an error of the system is to a kernel.

use gpunet_abi::Error;
use std::io;

/// Returns the errno of an I/O error: the system's, or the one that comes nearest to its kind.
///
/// # Examples
/// ```
/// use gpunet_proxy::errno;
///
/// assert_eq!(errno::of(&std::io::Error::from_raw_os_error(104)), 104);
/// assert_eq!(errno::of(&std::io::ErrorKind::TimedOut.into()), 110);
/// ```
#[must_use]
pub fn of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::Deadlock => libc::EDEADLK,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => libc::EPROTO,
        io::ErrorKind::ConnectionReset => libc::ECONNRESET,
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        io::ErrorKind::ResourceBusy => libc::EBUSY,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    })
}

/// Returns the kind of an I/O error with this errno. Where the standard library has no stable kind,
/// it is one that [`of`] maps back to the errno, if there is one.
pub(crate) fn kind(errno: i32) -> io::ErrorKind {
    match errno {
        libc::EPROTO => io::ErrorKind::InvalidData,
        libc::EPROTONOSUPPORT => io::ErrorKind::Unsupported,
        libc::EIO => io::ErrorKind::Other,
        errno => io::Error::from_raw_os_error(errno).kind(),
    }
}

/// Returns the errno that a device gets for an I/O error of the proxy.
///
/// EMFILE means one thing on a device: its socket table is full. Descriptors belong to the proxy,
/// which to a kernel is the system: when they run out, whichever of their two limits it is, that is
/// ENFILE.
pub(crate) fn from_io(error: &io::Error) -> Error {
    match (error.raw_os_error(), error.kind()) {
        (Some(libc::EMFILE | libc::ENFILE), _) => Error::TooManyFiles,
        (Some(code), _) => Error::from_errno(code),
        (None, io::ErrorKind::ConnectionRefused) => Error::ConnectionRefused,
        (None, io::ErrorKind::AddrInUse) => Error::AddressInUse,
        (None, io::ErrorKind::WouldBlock) => Error::WouldBlock,
        (None, io::ErrorKind::TimedOut) => Error::TimedOut,
        (None, io::ErrorKind::ConnectionAborted) => Error::ConnectionAborted,
        (None, io::ErrorKind::Unsupported) => Error::NotSupported,
        (None, io::ErrorKind::ConnectionReset) => Error::ConnectionReset,
        (None, io::ErrorKind::AddrNotAvailable) => Error::AddressNotAvailable,
        (None, io::ErrorKind::PermissionDenied) => Error::AccessDenied,
        (None, io::ErrorKind::NetworkUnreachable) => Error::NetworkUnreachable,
        (None, io::ErrorKind::HostUnreachable) => Error::HostUnreachable,
        (None, io::ErrorKind::OutOfMemory) => Error::NoBuffers,
        _ => Error::InvalidArgument,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_converted_error_keeps_its_errno() {
        for errno in [
            libc::EACCES,
            libc::EAGAIN,
            libc::EBUSY,
            libc::ECONNRESET,
            libc::EDEADLK,
            libc::EINVAL,
            libc::EIO,
            libc::ENOENT,
            libc::EOPNOTSUPP,
            libc::EPROTO,
            libc::ETIMEDOUT,
        ] {
            assert_eq!(of(&io::Error::new(kind(errno), "")), errno);
        }
    }
}
