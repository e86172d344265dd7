//! Addresses and options, by a whole thread block.

use super::{block, int};
use crate::posix;
use crate::posix::name::End;

/// See `include/gpunet.h`.
///
/// # Safety
/// `len` is null or writable, and `addr` null or writable for `*len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggetsockname(socket: i32, addr: *mut u8, len: *mut u32) -> i32 {
    int(&block(), |g, net| {
        // SAFETY: the caller's contract.
        unsafe { posix::name::name(g, net, socket, End::Local, addr, len) }
    })
}

/// See `include/gpunet.h`.
///
/// # Safety
/// As [`ggetsockname`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggetpeername(socket: i32, addr: *mut u8, len: *mut u32) -> i32 {
    int(&block(), |g, net| {
        // SAFETY: the caller's contract.
        unsafe { posix::name::name(g, net, socket, End::Peer, addr, len) }
    })
}

/// See `include/gpunet.h`.
///
/// # Safety
/// `value` is null or readable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsetsockopt(socket: i32, level: i32, name: i32, value: *const u8, len: u32) -> i32 {
    int(&block(), |g, net| {
        // SAFETY: the caller's contract.
        unsafe { posix::options::set(g, net, socket, level, name, value, len) }
    })
}

/// See `include/gpunet.h`.
///
/// # Safety
/// `len` is null or writable, and `value` null or writable for `*len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggetsockopt(
    socket: i32,
    level: i32,
    name: i32,
    value: *mut u8,
    len: *mut u32,
) -> i32 {
    int(&block(), |g, net| {
        // SAFETY: the caller's contract.
        unsafe { posix::options::get(g, net, socket, level, name, value, len) }
    })
}

/// See `include/gpunet.h`.
///
/// # Safety
/// `value` is null, or readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gioctl(socket: i32, request: u32, value: *mut i32) -> i32 {
    // SAFETY: the caller's contract.
    int(&block(), |g, net| unsafe { posix::ioctl::ioctl(g, net, socket, request, value) })
}

/// See `include/gpunet.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gsetnonblock(socket: i32, on: i32) -> i32 {
    int(&block(), |g, net| posix::ioctl::nonblocking(g, net, socket, on != 0))
}
