//! The properties of a device's socket: its number, its addresses, its transport.

use super::{Role, gpunet_host_device_socket_t};
use crate::failure::{Failure, done, int};
use crate::memory::{self, Out};
use libc::{sockaddr, socklen_t};
use std::ffi::c_int;
use std::net::SocketAddr;

fn no_stream() -> Failure {
    Failure::new(libc::ENOTCONN, "the socket listens, and is not connected")
}

/// Returns the number by which kernels of the device use the socket: the argument `socket` of
/// gpunet.h's functions, `from_handle` of gpunet.cuh, also on the CPU device. A positive number,
/// valid until the socket is closed.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_device_number(socket: *const gpunet_host_device_socket_t) -> c_int {
    int(|| {
        gpunet_host_device_socket_t::of(socket)?.with(|role| {
            let handle = match role {
                Role::Stream(socket) => socket.handle(),
                Role::Listener(listener) => listener.handle(),
            };
            Ok(i64::from(handle.raw()))
        })
    })
}

/// Returns what carries the stream: one of GPUNET_HOST_TRANSPORT_*.
///
/// Errors: -EBADF; -ENOTCONN of a listener.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_device_transport(socket: *const gpunet_host_device_socket_t) -> c_int {
    int(|| {
        gpunet_host_device_socket_t::of(socket)?.with(|role| match role {
            Role::Stream(socket) => Ok(socket.transport() as i64),
            Role::Listener(_) => Err(no_stream()),
        })
    })
}

fn leave_name(
    socket: *const gpunet_host_device_socket_t,
    address: *mut sockaddr,
    len: *mut socklen_t,
    find: impl FnOnce(&Role) -> Result<SocketAddr, Failure>,
) -> Result<(), Failure> {
    let (to, room) = (Out::new(address, "address")?, Out::new(len, "len")?);
    let name = gpunet_host_device_socket_t::of(socket)?.with(find)?;
    memory::put_address(name, to.pointer(), room.pointer());
    Ok(())
}

/// Stores the socket's own address, as getsockname(2); a listener's has the actual port.
///
/// Errors: -EBADF; -EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_device_getsockname(
    socket: *const gpunet_host_device_socket_t,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    done(|| {
        leave_name(socket, address, len, |role| match role {
            Role::Stream(socket) => Ok(socket.local_addr()?),
            Role::Listener(listener) => Ok(listener.local_addr()),
        })
    })
}

/// Stores the peer's address, as getpeername(2).
///
/// Errors: -EBADF; -EFAULT; -ENOTCONN of a listener.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_device_getpeername(
    socket: *const gpunet_host_device_socket_t,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    done(|| {
        leave_name(socket, address, len, |role| match role {
            Role::Stream(socket) => Ok(socket.peer_addr()?),
            Role::Listener(_) => Err(no_stream()),
        })
    })
}
