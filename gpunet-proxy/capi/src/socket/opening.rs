//! Sockets that open: fresh ones, listeners, connections.

use super::settings::Settings;
use super::state::{Connected, State, lock};
use super::{SocketObject, Wait, gpunet_host_socket_t};
use crate::attachment::gpunet_host_attachment_t;
use crate::failure::{Failure, done};
use crate::memory::{self, Out};
use libc::{sockaddr, socklen_t};
use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Makes a socket. It is fresh: bind and listen, or connect. `attachment` is of the CPU device; it
/// may be closed before the socket, whose calls then return -ECANCELED or -ENETDOWN.
///
/// On success `*socket` is a handle that gpunet_host_close ends. Errors: -EBADF; -EOPNOTSUPP for
/// the attachment of a GPU; -EBUSY when all launch numbers of the attachment are in use; the
/// system's, when it refuses a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_socket(
    attachment: *const gpunet_host_attachment_t,
    socket: *mut *mut gpunet_host_socket_t,
) -> c_int {
    done(|| {
        let out = Out::new(socket, "socket")?;
        let host = gpunet_host_attachment_t::of(attachment)?.host()?;
        let object = SocketObject::new(host, State::Fresh { bound: None }, Settings::DEFAULT);
        out.put(gpunet_host_socket_t::new(Arc::new(object))?);
        Ok(())
    })
}

/// Sets the address for gpunet_host_listen: a struct sockaddr_in or sockaddr_in6. Port 0 is a free
/// one. gpunet_host_listen reports an address that is not available.
///
/// Errors: -EBADF; -EFAULT; -EAFNOSUPPORT; -EINVAL, also when it is bound already or not fresh.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_bind(
    socket: *const gpunet_host_socket_t,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    done(|| {
        let object = gpunet_host_socket_t::of(socket)?;
        let address = memory::address(address, len)?;
        match &mut lock(&object.inner).state {
            State::Fresh { bound: bound @ None } => {
                *bound = Some(address);
                Ok(())
            }
            _ => Err(Failure::new(libc::EINVAL, "the socket is bound or connected already")),
        }
    })
}

/// Listens at the socket's address, or without one at a free port of every IPv4 address. At most
/// `backlog` connections wait to be accepted. Waits for the proxy's answer. After a failure the
/// socket is fresh and still bound.
///
/// Errors: -EBADF; -EINVAL when it is connected; -EADDRINUSE; -EADDRNOTAVAIL; -EACCES; -EMFILE (all
/// socket slots of the attachment are in use); -ENFILE (the proxy has no descriptor left);
/// -ENOBUFS; -EOPNOTSUPP (no such transport here); -ENETDOWN; -ECANCELED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_listen(socket: *const gpunet_host_socket_t, backlog: c_int) -> c_int {
    done(|| {
        let object = gpunet_host_socket_t::of(socket)?;
        let (bound, options) = {
            let inner = lock(&object.inner);
            match inner.state {
                State::Fresh { bound } => (bound, inner.settings.of_connection()),
                State::Listener(_) => return Ok(()),
                _ => return Err(Failure::new(libc::EINVAL, "the socket is connected, or connects")),
            }
        };
        let address = bound.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let mut listening = Box::pin(object.host.bind(address, options, backlog.max(1).unsigned_abs()));
        let listener = object.until_ready(Wait::Until(None), |cx| {
            listening.as_mut().poll(cx).map_err(|error| Failure::from(error).at(address))
        })?;
        let mut inner = lock(&object.inner);
        match inner.state {
            State::Fresh { .. } => inner.listen(listener),
            // Another thread has closed or connected it in the meantime.
            _ => Err(Failure::of(libc::EBADF)),
        }
    })
}

/// Accepts the connection that has waited longest, as a new socket, which waits in its calls even
/// if the listener does not; other options are the listener's. Several threads may accept. It obeys
/// SO_RCVTIMEO. `address` and `len`, where the peer's address is left as by accept(2), may be NULL.
///
/// On success `*accepted` is a handle that gpunet_host_close ends. Errors: -EBADF; -EINVAL when it
/// does not listen; -EAGAIN; -EMFILE when all socket slots of the attachment are in use (the
/// connection stays); -ENETDOWN; -ECANCELED. For want of ring memory or descriptors it waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_accept(
    socket: *const gpunet_host_socket_t,
    address: *mut sockaddr,
    len: *mut socklen_t,
    accepted: *mut *mut gpunet_host_socket_t,
) -> c_int {
    done(|| {
        let out = Out::new(accepted, "accepted")?;
        let object = gpunet_host_socket_t::of(socket)?;
        let listener = object.listener()?;
        let result = object.until_ready(object.recv_wait(0), |cx| listener.accept(cx));
        object.settle();
        let (stream, peer) = result?;
        let state = State::Stream(Connected::new(stream)?);
        let new = SocketObject::new(object.host.clone(), state, object.settings().accepted());
        out.put(gpunet_host_socket_t::new(Arc::new(new))?);
        memory::put_address(peer, address, len);
        Ok(())
    })
}

/// Connects to a struct sockaddr_in or sockaddr_in6. It obeys SO_SNDTIMEO. After a failure the
/// socket is fresh again.
///
/// Over tcp and rc the call returns when the connection is in the listener's backlog; over peer,
/// the default between two sockets under one proxy, when the other end accepts. A thread that
/// connects to a listener of its own therefore makes the socket non-blocking, or asks for tcp.
///
/// A non-blocking socket begins to connect and returns -EINPROGRESS. When the connect has succeeded
/// or failed, gpunet_host_poll reports POLLOUT, and the socket's descriptor becomes readable;
/// getsockopt(SO_ERROR) then returns 0 or the errno. Errors: -EBADF; -EFAULT; -EINVAL;
/// -EAFNOSUPPORT; -EINPROGRESS; -EALREADY while it connects; -EISCONN; -EOPNOTSUPP (bound or
/// listening; no such transport here); -ETIMEDOUT; -ECONNREFUSED; -ENETUNREACH; -EHOSTUNREACH;
/// -EMFILE (all socket slots of the attachment are in use); -ENFILE; -ENOBUFS (no ring memory);
/// -ENETDOWN; -ECANCELED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_connect(
    socket: *const gpunet_host_socket_t,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    done(|| {
        let object = gpunet_host_socket_t::of(socket)?;
        let address = memory::address(address, len)?;
        lock(&object.inner).begin_connect(&object.host, address)?;
        let wait = object.send_wait(0);
        let result = object.until_ready(wait, |cx| object.stream(cx).map_ok(drop));
        let waits_on = matches!(&result, Err(failure) if failure.errno() == libc::EAGAIN);
        let result = match wait {
            Wait::No if waits_on => {
                Err(Failure::new(libc::EINPROGRESS, "the socket is connecting; poll it for POLLOUT"))
            }
            Wait::Until(_) if waits_on => {
                lock(&object.inner).give_up_connect();
                Err(Failure::of(libc::ETIMEDOUT).at(address))
            }
            _ => result,
        };
        object.settle();
        result
    })
}
