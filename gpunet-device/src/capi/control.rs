//! Calls that open and close sockets, made by a whole thread block.

use super::{block, int};
use crate::posix;

/// See `include/gpunet.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gsocket(domain: i32, kind: i32, protocol: i32) -> i32 {
    int(&block(), |g, net| posix::socket::socket(g, net, domain, kind, protocol))
}

/// See `include/gpunet.h`.
///
/// # Safety
/// `addr` is readable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gbind(socket: i32, addr: *const u8, len: u32) -> i32 {
    // SAFETY: the caller's contract.
    int(&block(), |g, net| unsafe { posix::bind::bind(g, net, socket, addr, len) })
}

/// See `include/gpunet.h`.
///
/// # Safety
/// `addr` is a `struct sockaddr_in`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gbind_in(addr: *const u8) -> i32 {
    int(&block(), |g, net| {
        // SAFETY: the caller's contract.
        unsafe { posix::bind::bind_in(g, net, addr, posix::sockaddr::IN_LEN, BACKLOG) }
    })
}

/// See `include/gpunet.h`.
///
/// # Safety
/// `addr` is a `struct sockaddr_in6`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gbind_in6(addr: *const u8) -> i32 {
    int(&block(), |g, net| {
        // SAFETY: the caller's contract.
        unsafe { posix::bind::bind_in(g, net, addr, posix::sockaddr::IN6_LEN, BACKLOG) }
    })
}

/// GPUnet's backlog.
pub(super) const BACKLOG: u32 = 256;

/// See `include/gpunet.h`.
#[unsafe(no_mangle)]
pub extern "C" fn glisten(socket: i32, backlog: i32) -> i32 {
    int(&block(), |g, net| posix::bind::listen(g, net, socket, backlog))
}

/// See `include/gpunet.h`.
///
/// # Safety
/// `len` is null or writable, and `addr` null or writable for `*len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gaccept(socket: i32, addr: *mut u8, len: *mut u32) -> i32 {
    int(&block(), |g, net| {
        // SAFETY: the caller's contract.
        unsafe { posix::accept::accept(g, net, socket, addr, len, true) }
    })
}

/// See `include/gpunet.h`.
///
/// # Safety
/// As [`gaccept`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gaccept_nb(socket: i32, addr: *mut u8, len: *mut u32) -> i32 {
    int(&block(), |g, net| {
        // SAFETY: the caller's contract.
        unsafe { posix::accept::accept(g, net, socket, addr, len, false) }
    })
}

/// See `include/gpunet.h`.
///
/// # Safety
/// `addr` is readable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gconnect(socket: i32, addr: *const u8, len: u32) -> i32 {
    // SAFETY: the caller's contract.
    int(&block(), |g, net| unsafe { posix::connect::connect(g, net, socket, addr, len) })
}

/// See `include/gpunet.h`.
///
/// # Safety
/// `addr` is a `struct sockaddr_in`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gconnect_in(addr: *const u8) -> i32 {
    int(&block(), |g, net| {
        // SAFETY: the caller's contract.
        unsafe { posix::connect::connect_in(g, net, addr, posix::sockaddr::IN_LEN) }
    })
}

/// See `include/gpunet.h`.
///
/// # Safety
/// `addr` is a `struct sockaddr_in6`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gconnect_in6(addr: *const u8) -> i32 {
    int(&block(), |g, net| {
        // SAFETY: the caller's contract.
        unsafe { posix::connect::connect_in(g, net, addr, posix::sockaddr::IN6_LEN) }
    })
}

/// See `include/gpunet.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gshutdown(socket: i32, how: i32) -> i32 {
    int(&block(), |g, net| posix::shutdown::shutdown(g, net, socket, how))
}

/// See `include/gpunet.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gclose(socket: i32) -> i32 {
    int(&block(), |g, net| posix::close::close(g, net, socket))
}
