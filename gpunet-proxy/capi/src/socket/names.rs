//! Addresses and options.

use super::state::{State, lock};
use super::{gpunet_host_socket_t, options};
use crate::failure::{Failure, done};
use crate::memory::{self, Given, Out, Wanted};
use libc::{sockaddr, socklen_t};
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::task::Context;

/// Stores an address of a socket, once its connect has succeeded or failed.
fn leave_name(
    socket: *const gpunet_host_socket_t,
    address: *mut sockaddr,
    len: *mut socklen_t,
    find: impl FnOnce(&State) -> Option<SocketAddr>,
) -> Result<(), Failure> {
    let object = gpunet_host_socket_t::of(socket)?;
    let (to, room) = (Out::new(address, "address")?, Out::new(len, "len")?);
    let mut inner = lock(&object.inner);
    inner.progress(&mut Context::from_waker(&object.waker));
    let name = find(&inner.state).ok_or_else(|| Failure::of(libc::ENOTCONN))?;
    memory::put_address(name, to.pointer(), room.pointer());
    Ok(())
}

/// Stores the socket's own address, as getsockname(2); a listener's has the actual port.
///
/// Errors: -EBADF; -EFAULT; -ENOTCONN before it has one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_getsockname(
    socket: *const gpunet_host_socket_t,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    done(|| {
        leave_name(socket, address, len, |state| match state {
            State::Fresh { bound } => *bound,
            State::Stream(stream) => Some(stream.local),
            State::Listener(listener) => Some(listener.local),
            State::Connecting(..) | State::Closed => None,
        })
    })
}

/// Stores the peer's address, as getpeername(2).
///
/// Errors: -EBADF; -EFAULT; -ENOTCONN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_getpeername(
    socket: *const gpunet_host_socket_t,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    done(|| {
        leave_name(socket, address, len, |state| match state {
            State::Stream(stream) => Some(stream.peer),
            _ => None,
        })
    })
}

/// Sets an option, as setsockopt(2). At any time: SO_RCVTIMEO, SO_SNDTIMEO, GPUNET_HOST_NONBLOCK,
/// GPUNET_HOST_SPIN. Before connect or listen: SO_RCVBUF and SO_SNDBUF (ring sizes, 4 KiB to
/// 16 MiB), SO_LINGER, SO_REUSEADDR and TCP_NODELAY (both on by default), SO_KEEPALIVE,
/// IPV6_V6ONLY, GPUNET_HOST_TRANSPORT, GPUNET_HOST_LINES; accepted sockets have those of their
/// listener.
///
/// Errors: -EBADF; -EFAULT; -EINVAL; -EDOM; -ENOPROTOOPT; -EISCONN for the others after connect or
/// listen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_setsockopt(
    socket: *const gpunet_host_socket_t,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    done(|| {
        let object = gpunet_host_socket_t::of(socket)?;
        options::set(&mut lock(&object.inner), level, name, Given { ptr: value, len })
    })
}

/// Reads an option, as getsockopt(2): those of gpunet_host_setsockopt, SO_ERROR (what a connect
/// that nobody waited for failed with; reading clears it), SO_TYPE, SO_ACCEPTCONN.
///
/// Errors: -EBADF, -EFAULT, -ENOPROTOOPT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_getsockopt(
    socket: *const gpunet_host_socket_t,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    done(|| {
        let object = gpunet_host_socket_t::of(socket)?;
        let mut inner = lock(&object.inner);
        inner.progress(&mut Context::from_waker(&object.waker));
        options::get(&mut inner, level, name, Wanted { ptr: value, len })
    })
}

/// Sets whether calls on the socket wait (0) or return -EAGAIN (not 0): the option
/// GPUNET_HOST_NONBLOCK.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_set_nonblocking(
    socket: *const gpunet_host_socket_t,
    on: c_int,
) -> c_int {
    done(|| {
        let object = gpunet_host_socket_t::of(socket)?;
        lock(&object.inner).settings.set_nonblocking(on != 0);
        Ok(())
    })
}
