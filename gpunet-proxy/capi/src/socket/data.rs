//! Bytes, the end of a direction, and the end of a socket.

use super::state::lock;
use super::{Moved, Wait, gpunet_host_socket_t};
use crate::failure::{Failure, done, returned};
use crate::memory;
use gpunet_proxy::host::ReadHalf;
use libc::ssize_t;
use std::ffi::{c_int, c_void};
use std::pin::Pin;
use std::task::{Poll, ready};
use tokio::io::{AsyncWrite, ReadBuf};

/// Refuses flags that a call does not know.
fn check_flags(flags: c_int, known: c_int) -> Result<(), Failure> {
    let text = || format!("unknown flags {:#x}", flags & !known);
    if flags & !known == 0 { Ok(()) } else { Err(Failure::new(libc::EINVAL, text())) }
}

/// Sends `len` bytes: copies them into the stream's ring. It returns when all are there, which is
/// not yet at the peer; a non-blocking socket, or one whose SO_SNDTIMEO is over, takes as many as
/// there is room for. `flags`: MSG_DONTWAIT, MSG_NOSIGNAL (no call raises SIGPIPE anyway). `data`
/// is read during the call only.
///
/// Returns how many bytes were taken. Errors: -EBADF; -EFAULT; -EINVAL; -ENOTCONN; -EAGAIN; -EPIPE
/// when the peer receives no more, or after gpunet_host_shutdown; -ECONNRESET; -ETIMEDOUT; -EPROTO;
/// -ENETDOWN; -ECANCELED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_send(
    socket: *const gpunet_host_socket_t,
    data: *const c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    let sent = returned(|| {
        let object = gpunet_host_socket_t::of(socket)?;
        check_flags(flags, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)?;
        let bytes = memory::bytes(data, len)?;
        let result = object.transfer(object.send_wait(flags), len, |cx, sent| match object.stream(cx) {
            Poll::Pending => Ok(Moved::Connects),
            Poll::Ready(stream) => stream?.send(&bytes[sent..]),
        });
        object.settle();
        result
    });
    sent as ssize_t
}

/// Receives up to `len` bytes. It waits for the first, as long as SO_RCVTIMEO allows. `flags`:
/// MSG_DONTWAIT; MSG_WAITALL: waits for all; MSG_PEEK: the bytes stay, for the next call. `data` is
/// written during the call only.
///
/// Returns how many bytes were received; 0 at the end of the stream. Errors: -EBADF; -EFAULT;
/// -EINVAL; -ENOTCONN; -EAGAIN; -ECONNRESET; -ETIMEDOUT; -EPROTO; -ENETDOWN; -ECANCELED. What came
/// before an error is received first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_recv(
    socket: *const gpunet_host_socket_t,
    data: *mut c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    let received = returned(|| {
        let object = gpunet_host_socket_t::of(socket)?;
        check_flags(flags, libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_PEEK | libc::MSG_NOSIGNAL)?;
        let room = memory::room(data, len)?;
        let (peek, all) = (flags & libc::MSG_PEEK != 0, flags & libc::MSG_WAITALL != 0);
        let result = object.transfer(object.recv_wait(flags), len, |cx, received| {
            if received > 0 && (peek || !all) {
                return Ok(Moved::End);
            }
            match object.stream(cx) {
                Poll::Pending => Ok(Moved::Connects),
                Poll::Ready(stream) => stream?.receive(&mut ReadBuf::uninit(&mut room[received..]), peek),
            }
        });
        object.settle();
        result
    });
    received as ssize_t
}

/// Ends one direction or both: SHUT_WR: the peer receives the end of the stream after the data;
/// SHUT_RD: receives return 0, and what still comes is discarded.
///
/// Errors: -EBADF, -ENOTCONN, -EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_shutdown(socket: *const gpunet_host_socket_t, how: c_int) -> c_int {
    done(|| {
        let object = gpunet_host_socket_t::of(socket)?;
        let (ends_read, ends_write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Failure::new(libc::EINVAL, format!("no direction has the number {how}"))),
        };
        object.until_ready(Wait::No, |cx| {
            let stream = match object.stream(cx) {
                Poll::Pending => return Poll::Ready(Err(Failure::of(libc::ENOTCONN))),
                Poll::Ready(stream) => stream?,
            };
            if ends_write {
                ready!(stream.with_write(|write| Pin::new(write).poll_shutdown(cx)))?;
            }
            if ends_read {
                let stop = |read: &mut ReadHalf| {
                    read.stop();
                    Poll::Ready(Ok(()))
                };
                ready!(stream.with_read(stop))?;
            }
            Poll::Ready(Ok(()))
        })?;
        // Threads that wait in a receive were woken by it. Polls find the end.
        object.waker.wake_by_ref();
        object.settle();
        Ok(())
    })
}

/// Closes the socket without waiting. What was sent is still delivered, for as long as SO_LINGER or
/// the setting linger_s allows; with SO_LINGER on and 0 the stream is reset. Calls of other threads
/// that wait on it return -EBADF. Its descriptor (gpunet_host_fd) is closed.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_close(socket: *mut gpunet_host_socket_t) -> c_int {
    done(|| {
        let object = gpunet_host_socket_t::take(socket)?;
        lock(&object.inner).close();
        object.notify.close();
        Ok(())
    })
}
