//! The socket calls as C programs know them: handles, negative errno, raw addresses.
//!
//! Each file is one call, generic over [`Group`](gpunet_device::Group) as gpunet-device is, so the
//! CPU's tests run what the exported C functions (`capi`, with the feature of that name) only wrap.
//! A call by handle finds its stream in the device's table, takes the direction it uses (EALREADY
//! if another group or the host has it), and leaves the table as it found it.
//!
//! | file | holds |
//! |---|---|
//! | `socket`, `close` | `gpunet_socket`, `gpunet_close` |
//! | `bind`, `accept`, `connect`, `shutdown` | `gpunet_bind` and `gpunet_listen`, `gpunet_accept`, `gpunet_connect`, `gpunet_shutdown` |
//! | `open` | `gpunet_connect_to` and `gpunet_listen_at`: one call, with options |
//! | `send`, `recv`, `in_place` | moving bytes, by a copy and in the ring |
//! | `epoll` | `gpunet_epoll_create`, `gpunet_epoll_ctl`, `gpunet_epoll_wait`, `gpunet_epoll_close`: poll groups |
//! | `options`, `ioctl`, `name`, `sockaddr` | options, counts, addresses |
//! | `trigger` | directions that the host has taken |
//! | `team` | teams and symmetric memory |
//! | `direction`, `opening` | what a call takes for itself: one direction of a stream; a socket that is not open yet |
//! | `capi` | the exported C functions |
//!
//! # Examples
//!
//! ```
//! use gpunet_posix::{SOCKET_TIMEOUT, close::close, open::connect_to, recv::recv};
//! use gpunet_device::{Group, Net, Result};
//!
//! /// Receives at most `len` bytes from a server; `addr` is a `struct sockaddr_in`, as C has it.
//! ///
//! /// # Safety
//! /// `addr` is readable for 16 bytes and `data` writable for `len`.
//! unsafe fn fetch<G: Group>(g: &G, net: Net, addr: *const u8, data: *mut u8, len: usize) -> Result<i64> {
//!     // SAFETY: the caller's promise.
//!     let socket = unsafe { connect_to(g, net, addr, 16, std::ptr::null(), SOCKET_TIMEOUT) }? as i32;
//!     // SAFETY: as above.
//!     let received = unsafe { recv(g, net, socket, data, len, 0) };
//!     close(g, net, socket)?;
//!     received
//! }
//! ```
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]

pub mod accept;
pub mod bind;
#[cfg(feature = "capi")]
#[doc(hidden)]
pub mod capi;
pub mod close;
pub mod connect;
mod direction;
pub mod epoll;
pub mod in_place;
pub mod ioctl;
pub mod name;
pub mod open;
mod opening;
pub mod options;
pub mod recv;
pub mod send;
pub mod shutdown;
pub mod sockaddr;
pub mod socket;
pub mod team;
pub mod trigger;

use gpunet_abi::{Error, Handle, Result};
use gpunet_device::Timeout;
use gpunet_device::{Buffer, Source};

/// The handle that a C program passed.
///
/// # Errors
/// BadHandle for an invalid number.
#[inline(always)]
pub(crate) fn handle(raw: i32) -> Result<Handle> {
    Handle::from_raw(raw).ok_or(Error::BadHandle)
}

/// The bytes that a C program sends.
///
/// # Safety
/// `data` is readable for `len` bytes while the source is used.
#[inline(always)]
pub(crate) unsafe fn readable(data: *const u8, len: usize) -> Source {
    // SAFETY: the caller's contract; a source is only read.
    Source::from(unsafe { Buffer::from_raw_parts(data.cast_mut(), len) })
}

/// As the timeout of a call: what the socket's options say, SO_SNDTIMEO or SO_RCVTIMEO, and not at
/// all on a non-blocking socket.
pub const SOCKET_TIMEOUT: i64 = i64::MIN;

/// How long a call may wait that was given a timeout in nanoseconds: 0 for not at all, negative for
/// without limit, [`SOCKET_TIMEOUT`] for the socket's own.
#[inline(always)]
pub(crate) const fn call_timeout(timeout_ns: i64, of_socket: Timeout) -> Timeout {
    match timeout_ns {
        SOCKET_TIMEOUT => of_socket,
        0 => Timeout::NON_BLOCKING,
        ns if ns < 0 => Timeout::NEVER,
        ns => Timeout::ns(ns as u64),
    }
}

/// The result for a C program: the value, or the negated errno.
///
/// # Examples
///
/// ```
/// use gpunet_device::Error;
/// use gpunet_posix::returned;
///
/// assert_eq!(returned(Ok(5)), 5);
/// assert_eq!(returned(Err(Error::WouldBlock)), -11); // -EAGAIN
/// ```
#[inline(always)]
#[must_use]
pub fn returned(result: Result<i64>) -> i64 {
    match result {
        Ok(value) => value,
        Err(error) => -i64::from(error.errno()),
    }
}

/// Returns `error` unless `ok`: the errno that Linux has for a call on such a socket.
#[inline(always)]
pub(crate) fn unless(ok: bool, error: Error) -> Result<()> {
    if ok { Ok(()) } else { Err(error) }
}

/// Numbers that [`Error`] has no name for.
pub(crate) mod errno {
    use gpunet_abi::Error;

    /// EFAULT: a null pointer where an address or value must be.
    pub(crate) const FAULT: Error = Error::from_errno(14);
    /// ENOTTY: an unknown request of gpunet_ioctl.
    pub(crate) const NOT_A_REQUEST: Error = Error::from_errno(25);
    /// EPROTOTYPE: no such protocol number.
    pub(crate) const PROTOCOL_TYPE: Error = Error::from_errno(93);
    /// ENOPROTOOPT: no such option.
    pub(crate) const NO_OPTION: Error = Error::from_errno(92);
    /// ESOCKTNOSUPPORT: streams only.
    pub(crate) const SOCKET_TYPE: Error = Error::from_errno(94);
}
