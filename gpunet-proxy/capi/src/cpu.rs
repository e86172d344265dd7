//! The device's calls for C functions that run as kernels on the CPU.
//!
//! Each is one thread block of one thread, and makes the same call that the device's function of that name makes.

use crate::failure::{Failure, int, returned};
use crate::memory;
use crate::token::with_net;
use gpunet_device::group::Solo;
use gpunet_device::{Net, PollFd, PollSet, Result, Timeout, poll};
use gpunet_posix::{self as posix, name::End};
use libc::{pollfd, sockaddr, socklen_t, ssize_t};
use std::ffi::{c_int, c_void};

pub(crate) const SOLO: Solo = Solo::new(0, 1);

/// Makes a call of the device.
pub(crate) fn call(net: u64, body: impl FnOnce(Net) -> Result<i64>) -> std::result::Result<i64, Failure> {
    with_net(net, |net| Ok(body(net)?))
}

/// In a kernel on the CPU: makes a socket, as socket(2). `protocol`: 0 lets gpunet choose, IPPROTO_TCP is TCP alone, 0x6701 is
/// the same host (peer) alone, 0x6702 RDMA (rc) alone. Returns the socket, a positive number that is valid for the gpunet_host_cpu_*
/// calls of this attachment's kernels, also of later launches.
///
/// `net` is the kernel's net value. Errors of this call and of those below: what docs/operations.md says of each errno; -ENETDOWN also
/// for a net value that no open token has; -EBADF for a socket that is not open; -ECANCELED after gpunet_host_token_cancel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_socket(
    net: u64,
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    int(|| call(net, |net| posix::socket::socket(&SOLO, net, domain, kind, protocol)))
}

/// As bind(2). After a failure the socket is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_bind(
    net: u64,
    socket: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| call(net, |net| unsafe { posix::bind::bind(&SOLO, net, socket, address.cast(), len) }))
}

/// As listen(2). After a failure the socket is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_listen(net: u64, socket: c_int, backlog: c_int) -> c_int {
    int(|| call(net, |net| posix::bind::listen(&SOLO, net, socket, backlog)))
}

/// As accept(2): returns the socket of the connection that has waited longest. `address` and `len` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_accept(
    net: u64,
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| {
        // SAFETY: as promised.
        call(net, |net| unsafe {
            posix::accept::accept(&SOLO, net, socket, address.cast(), len, posix::SOCKET_TIMEOUT)
        })
    })
}

/// As connect(2). It waits, also on a non-blocking socket; over peer until the other end accepts. After a failure the socket is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_connect(
    net: u64,
    socket: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| call(net, |net| unsafe { posix::connect::connect(&SOLO, net, socket, address.cast(), len) }))
}

/// As send(2), with MSG_DONTWAIT and MSG_WAITALL (sends all). Returns how many bytes were taken, at least one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_send(
    net: u64,
    socket: c_int,
    data: *const c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    returned(|| call(net, |net| unsafe { posix::send::send(&SOLO, net, socket, data.cast(), len, flags) }))
        as ssize_t
}

/// As recv(2), with MSG_DONTWAIT, MSG_WAITALL and MSG_PEEK. Returns how many bytes were received, 0 at the end of the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_recv(
    net: u64,
    socket: c_int,
    data: *mut c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    returned(|| call(net, |net| unsafe { posix::recv::recv(&SOLO, net, socket, data.cast(), len, flags) }))
        as ssize_t
}

/// As shutdown(2): SHUT_RD, SHUT_WR or SHUT_RDWR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_shutdown(net: u64, socket: c_int, how: c_int) -> c_int {
    int(|| call(net, |net| posix::shutdown::shutdown(&SOLO, net, socket, how)))
}

/// As close(2). What was sent is still delivered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_close(net: u64, socket: c_int) -> c_int {
    int(|| call(net, |net| posix::close::close(&SOLO, net, socket)))
}

/// As getsockname(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_getsockname(
    net: u64,
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| call(net, |net| unsafe { posix::name::name(&SOLO, net, socket, End::Local, address.cast(), len) }))
}

/// As getpeername(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_getpeername(
    net: u64,
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| call(net, |net| unsafe { posix::name::name(&SOLO, net, socket, End::Peer, address.cast(), len) }))
}

/// As setsockopt(2), with the options that gpunet.h lists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_setsockopt(
    net: u64,
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| {
        // SAFETY: as promised.
        call(net, |net| unsafe { posix::options::set(&SOLO, net, socket, level, name, value.cast(), len) })
    })
}

/// As getsockopt(2), with the options that gpunet.h lists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_getsockopt(
    net: u64,
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| {
        // SAFETY: as promised.
        call(net, |net| unsafe { posix::options::get(&SOLO, net, socket, level, name, value.cast(), len) })
    })
}

/// As poll(2), for sockets of kernels; but the timeout is in nanoseconds; negative: without limit; 0: does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_poll(
    net: u64,
    sockets: *mut pollfd,
    count: usize,
    timeout_ns: i64,
) -> c_int {
    int(|| {
        memory::array(sockets, count)?;
        // SAFETY: checked not to be null; `PollFd` has the layout of `struct pollfd`; nobody else uses the entries during the
        // call, which is the caller's promise.
        let set = unsafe { PollSet::from_raw_parts(sockets.cast::<PollFd>(), count) };
        call(net, |net| {
            poll(&SOLO, net, set, u64::try_from(timeout_ns).map_or(Timeout::NEVER, Timeout::ns))
                .map(|ready| ready as i64)
        })
    })
}

const _: () = assert!(size_of::<PollFd>() == size_of::<pollfd>());
