//! What an error of the system is to a kernel.

use gpunet_abi::Error;
use std::io;

/// The errno that a device is told for an I/O error of the proxy.
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
