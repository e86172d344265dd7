//! GPUnet's `single_thread_*` calls, and their like: made by exactly one thread.

use super::control::BACKLOG;
use super::int;
use crate::group::Thread;
use crate::posix;

/// See `include/gpunet.h`.
///
/// # Safety
/// `addr` is a `struct sockaddr_in`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn single_thread_gbind_in(addr: *const u8) -> i32 {
    int(&Thread, |g, net| {
        // SAFETY: the caller's contract.
        unsafe { posix::bind::bind_in(g, net, addr, posix::sockaddr::IN_LEN, BACKLOG) }
    })
}

/// See `include/gpunet.h`.
///
/// # Safety
/// `addr` is a `struct sockaddr_in`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn single_thread_gconnect_in(addr: *const u8) -> i32 {
    int(&Thread, |g, net| {
        // SAFETY: the caller's contract.
        unsafe { posix::connect::connect_in(g, net, addr, posix::sockaddr::IN_LEN) }
    })
}

/// See `include/gpunet.h`.
///
/// # Safety
/// `len` is null or writable, and `addr` null or writable for `*len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn single_thread_gaccept(socket: i32, addr: *mut u8, len: *mut u32) -> i32 {
    // SAFETY: the caller's contract.
    int(&Thread, |g, net| unsafe { posix::accept::accept(g, net, socket, addr, len, true) })
}

/// See `include/gpunet.h`.
#[unsafe(no_mangle)]
pub extern "C" fn single_thread_gshutdown(socket: i32, how: i32) -> i32 {
    int(&Thread, |g, net| posix::shutdown::shutdown(g, net, socket, how))
}

/// See `include/gpunet.h`.
#[unsafe(no_mangle)]
pub extern "C" fn single_thread_gclose(socket: i32) -> i32 {
    int(&Thread, |g, net| posix::close::close(g, net, socket))
}
