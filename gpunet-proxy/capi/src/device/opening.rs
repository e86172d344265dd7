//! How sockets of a device are opened and closed.

use super::{DeviceSocket, Role, gpunet_host_device_socket_t};
use crate::attachment::gpunet_host_attachment_t;
use crate::failure::{Failure, done, int};
use crate::memory::{self, Out};
use crate::socket::Notify;
use gpunet_device::{Error, Options};
use gpunet_posix::open::CallOptions;
use gpunet_proxy::socket::{PendingSocket, Socket, SocketError};
use libc::{sockaddr, socklen_t};
use std::ffi::c_int;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How long an abandoned attempt may take to end.
const LONGEST_END: Duration = Duration::from_secs(1);

fn options(from: *const CallOptions) -> Result<Options, Failure> {
    if from.is_null() {
        return Ok(Options::DEFAULT);
    }
    // SAFETY: not null, readable and aligned: the caller's promise.
    let options = unsafe { from.read() }.options();
    options.map_err(|_| Failure::new(libc::EINVAL, "no proxy supports these options, or `reserved` is not 0"))
}

/// Waits until the socket is open, the timeout expires, or the object that the call is made on is
/// closed. A connection that exists when the timeout expires is not lost.
fn opened(
    notify: &Arc<Notify>,
    timeout_ns: i64,
    late: fn() -> Failure,
    mut pending: PendingSocket,
    is_closed: impl Fn() -> bool,
) -> Result<Socket, Failure> {
    let (waker, mut limit, mut is_late) = (Waker::from(notify.clone()), memory::deadline(timeout_ns), false);
    loop {
        let seen = notify.wakes();
        if is_closed() {
            return Err(Failure::new(libc::EBADF, "the socket was closed meanwhile"));
        }
        match Pin::new(&mut pending).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Err(SocketError::Failed(Error::Canceled))) if is_late => return Err(late()),
            Poll::Ready(result) => return Ok(result?),
            Poll::Pending => {}
        }
        if !notify.wait(seen, limit) {
            if is_late {
                // The proxy does not answer.
                return Err(late());
            }
            pending.abandon();
            (is_late, limit) = (true, Instant::now().checked_add(LONGEST_END));
        }
    }
}

/// Connects a socket of the attachment's device to a struct sockaddr_in or sockaddr_in6. The device
/// has 256 slots for such sockets, in addition to the setting `sockets` for those of its kernels.
/// `options` are those of gpunet.h, and later calls of kernels on the socket obey them; NULL: the
/// defaults. The call waits for at most `timeout_ns` nanoseconds; negative: without limit (the
/// transport has a limit of its own). Over peer a connect waits until the other end accepts.
///
///     gpunet_host_device_socket_t *socket;
///     gpunet_host_device_connect(attachment, (struct sockaddr *)&address, sizeof address, NULL, 5000000000, &socket);
///     kernel<<<blocks, threads, 0, stream>>>(net, gpunet_host_device_number(socket));
///
/// On success `*socket` is a handle that gpunet_host_device_close or gpunet_host_device_leave ends.
/// Errors: -EBADF; -EFAULT; -EINVAL, also for timeout 0 and for options that no proxy supports;
/// -EAFNOSUPPORT; -EOPNOTSUPP (no such transport here); -ETIMEDOUT; -ECONNREFUSED; -ENETUNREACH;
/// -EHOSTUNREACH; -EMFILE (all of the 256 slots are in use); -ENFILE; -ENOBUFS (no ring memory);
/// -EBUSY (all launch numbers of the attachment are in use); -ENETDOWN; -ECANCELED, when the
/// attachment is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_device_connect(
    attachment: *const gpunet_host_attachment_t,
    address: *const sockaddr,
    len: socklen_t,
    options: *const CallOptions,
    timeout_ns: i64,
    socket: *mut *mut gpunet_host_device_socket_t,
) -> c_int {
    done(|| {
        let out = Out::new(socket, "socket")?;
        let object = gpunet_host_attachment_t::of(attachment)?;
        let (address, options) = (memory::address(address, len)?, self::options(options)?);
        if timeout_ns == 0 {
            return Err(Failure::new(libc::EINVAL, "a connect waits: its timeout is not 0"));
        }
        let pending = object.with(|attachment| Ok(attachment.connect(address, options)))?;
        let late = || Failure::new(libc::ETIMEDOUT, "no connection was made in time");
        let socket = opened(&Arc::default(), timeout_ns, late, pending, || false);
        let socket = socket.map_err(|failure| failure.at(address))?;
        out.put(DeviceSocket::enter(Role::Stream(socket))?);
        Ok(())
    })
}

/// Listens at an address with a socket of the attachment's device; port 0 takes a free one
/// (gpunet_host_device_getsockname). At most `backlog` connections wait to be accepted. Accepted
/// sockets inherit the options; NULL: the defaults. Waits for the proxy's answer. Kernels accept at
/// it by its number, and the program by gpunet_host_device_accept.
///
///     gpunet_host_device_listen(attachment, (struct sockaddr *)&address, sizeof address, NULL, 128, &listener);
///     gpunet_host_device_accept(listener, 5000000000, &socket);
///
/// On success `*socket` is a handle that gpunet_host_device_close or gpunet_host_device_leave ends.
/// Errors: -EBADF; -EFAULT; -EINVAL; -EAFNOSUPPORT; -EADDRINUSE; -EADDRNOTAVAIL; -EACCES; otherwise
/// as gpunet_host_device_connect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_device_listen(
    attachment: *const gpunet_host_attachment_t,
    address: *const sockaddr,
    len: socklen_t,
    options: *const CallOptions,
    backlog: c_int,
    socket: *mut *mut gpunet_host_device_socket_t,
) -> c_int {
    done(|| {
        let out = Out::new(socket, "socket")?;
        let object = gpunet_host_attachment_t::of(attachment)?;
        let (address, options) = (memory::address(address, len)?, self::options(options)?);
        let backlog = backlog.max(1).unsigned_abs();
        let listener = object
            .with(|attachment| Ok(attachment.listen_blocking(address, options, backlog)?))
            .map_err(|failure| failure.at(address))?;
        out.put(DeviceSocket::enter(Role::Listener(listener))?);
        Ok(())
    })
}

/// Accepts the connection that has waited longest, as a socket of the same device. It waits for at
/// most `timeout_ns` nanoseconds; negative: without limit; 0: not at all. Several threads may
/// accept, and kernels at the same time.
///
/// On success `*accepted` is a handle that gpunet_host_device_close or gpunet_host_device_leave
/// ends. Errors: -EBADF, also when the listener is closed meanwhile; -EFAULT; -EINVAL when it does
/// not listen; -EAGAIN when the time is over; -EMFILE (all of the 256 slots are in use: the
/// connection stays); -ENETDOWN; -ECANCELED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_device_accept(
    socket: *const gpunet_host_device_socket_t,
    timeout_ns: i64,
    accepted: *mut *mut gpunet_host_device_socket_t,
) -> c_int {
    done(|| {
        let out = Out::new(accepted, "accepted")?;
        let object = gpunet_host_device_socket_t::of(socket)?;
        let pending = object.with(|role| match role {
            Role::Listener(listener) => Ok(listener.accept()),
            Role::Stream(_) => Err(Failure::new(libc::EINVAL, "the socket does not listen")),
        })?;
        let socket =
            opened(&object.notify, timeout_ns, Failure::would_block, pending, || object.is_closed())?;
        out.put(DeviceSocket::enter(Role::Stream(socket))?);
        Ok(())
    })
}

/// Leaves the socket to the kernels of its device: one of them closes it, or the end of the
/// attachment. Returns its number, as gpunet_host_device_number. The handle is stale then.
/// Directions that are taken stay so until they are given back.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_device_leave(socket: *mut gpunet_host_device_socket_t) -> c_int {
    int(|| {
        let number = match gpunet_host_device_socket_t::take(socket)?.take()? {
            Role::Stream(socket) => socket.into_handle(),
            Role::Listener(listener) => listener.into_handle(),
        };
        Ok(i64::from(number.raw()))
    })
}

/// Closes the socket: what was sent is still delivered. If launches that run know it, or its
/// directions are taken, it is closed when the last of them has ended, or been given back. An
/// accept that another thread waits in returns -EBADF. The handle is stale once the call has begun.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_device_close(socket: *mut gpunet_host_device_socket_t) -> c_int {
    done(|| gpunet_host_device_socket_t::take(socket)?.take().map(drop))
}
