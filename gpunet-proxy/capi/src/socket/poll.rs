//! Waiting for many sockets: by a call, or by descriptors in an event loop of the program.

use super::notify::Notify;
use super::state::{Connected, State, lock};
use super::{SocketObject, gpunet_host_socket_t};
use crate::failure::{Failure, int};
use crate::memory;
use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT};
use std::ffi::{c_int, c_short};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A socket that gpunet_host_poll is asked about.
#[repr(C)]
pub struct gpunet_host_pollfd {
    /// The socket; NULL: none.
    pub socket: *mut gpunet_host_socket_t,
    /// The requested events: POLLIN, POLLOUT.
    pub events: c_short,
    /// The events that were found: these, and POLLERR, POLLHUP, POLLNVAL.
    pub revents: c_short,
}

impl SocketObject {
    /// Returns which of `events` would not wait, with POLLERR and POLLHUP. If none is ready, the
    /// socket is woken when one may be.
    fn readiness(&self, events: c_short) -> c_short {
        let mut cx = Context::from_waker(&self.waker);
        let mut inner = lock(&self.inner);
        inner.progress(&mut cx);
        let failed = inner.error.is_some();
        match &inner.state {
            State::Connecting(..) => 0,
            State::Fresh { .. } if failed => POLLERR | POLLHUP | events & (POLLIN | POLLOUT),
            State::Fresh { .. } => POLLHUP | events & POLLOUT,
            State::Closed => POLLNVAL,
            State::Listener(listener) => {
                let listener = listener.clone();
                drop(inner);
                if events & POLLIN != 0 && listener.is_ready(&mut cx) { POLLIN } else { 0 }
            }
            State::Stream(stream) => {
                let stream = stream.clone();
                drop(inner);
                of_stream(&stream, events, &mut cx)
            }
        }
    }

    /// Makes the descriptor, if there is one, agree with the socket.
    pub(super) fn settle(&self) {
        if let Some(events) = self.notify.watched() {
            self.notify.settle(|| self.readiness(events) != 0);
        }
    }
}

fn of_stream(stream: &Connected, events: c_short, cx: &mut Context<'_>) -> c_short {
    let found = |ready: Poll<Result<(), Failure>>, event| match ready {
        Poll::Pending => 0,
        Poll::Ready(Ok(())) => event,
        // As on Linux, a call would not wait: it would fail.
        Poll::Ready(Err(failure)) if failure.errno() == libc::EPIPE => event | POLLHUP,
        Poll::Ready(Err(_)) => event | POLLERR,
    };
    let mut revents = 0;
    if events & POLLIN != 0 {
        revents |= found(stream.with_read(|read| read.poll_ready(cx)), POLLIN);
    }
    if events & POLLOUT != 0 {
        revents |= found(stream.with_write(|write| write.poll_ready(cx)), POLLOUT);
    }
    revents
}

/// A poll that its sockets notify, until it is dropped.
struct Told<'a> {
    poll: Arc<Notify>,
    sockets: &'a [Option<Arc<SocketObject>>],
}

impl<'a> Told<'a> {
    fn new(sockets: &'a [Option<Arc<SocketObject>>]) -> Self {
        let poll = Arc::new(Notify::default());
        sockets.iter().flatten().for_each(|socket| socket.notify.tell(&poll));
        Self { poll, sockets }
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.sockets.iter().flatten().for_each(|socket| socket.notify.forget(&self.poll));
    }
}

/// Waits until one of `count` sockets is ready, as poll(2), for at most `timeout_ns` nanoseconds;
/// negative: without limit; 0: not at all. A listener is ready (POLLIN) when an accept would not
/// wait. A socket that connects is ready (POLLOUT) when the connect has succeeded or failed. A
/// failure is reported with the direction that was asked for. An entry whose handle is stale gets
/// POLLNVAL; one whose socket is NULL is passed over.
///
/// Returns how many entries have something in `revents`; 0 when the time is over.
/// Errors: -EFAULT, -EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_poll(
    sockets: *mut gpunet_host_pollfd,
    count: usize,
    timeout_ns: i64,
) -> c_int {
    int(|| {
        let entries = memory::array(sockets, count)?;
        let limit = u64::try_from(timeout_ns).ok().map(Duration::from_nanos);
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let objects: Vec<_> =
            entries.iter().map(|entry| gpunet_host_socket_t::of(entry.socket).ok()).collect();
        // Most polls find a ready socket immediately.
        let mut ready = examine(entries, &objects);
        if ready == 0 && timeout_ns != 0 {
            let told = Told::new(&objects);
            loop {
                let seen = told.poll.wakes();
                ready = examine(entries, &objects);
                if ready > 0 || !told.poll.wait(seen, deadline) {
                    break;
                }
            }
        }
        objects.iter().flatten().for_each(|object| object.settle());
        Ok(ready)
    })
}

fn examine(entries: &mut [gpunet_host_pollfd], objects: &[Option<Arc<SocketObject>>]) -> i64 {
    let mut ready = 0;
    for (entry, object) in entries.iter_mut().zip(objects) {
        entry.revents = match object {
            Some(object) => object.readiness(entry.events),
            None if entry.socket.is_null() => 0,
            None => POLLNVAL,
        };
        ready += i64::from(entry.revents != 0);
    }
    ready
}

/// Returns a descriptor for the program's event loop (epoll, libuv): it is readable while the
/// socket is ready for one of `events` (POLLIN, POLLOUT), has failed, or may be one of these. It
/// may be readable although the socket is not ready; then a non-blocking call returns -EAGAIN, or
/// gpunet_host_poll finds nothing, and the descriptor is no longer readable. It is never unreadable
/// while the socket is ready. Watch it level-triggered for being readable, whatever `events` are;
/// call again to change them.
///
/// The descriptor is the socket's: it is valid until gpunet_host_close, and the program neither
/// closes, reads nor writes it. Take it out of the event loop before gpunet_host_close. Errors:
/// -EBADF; -EINVAL for other events; -EMFILE or -ENFILE when there is no descriptor left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_fd(socket: *const gpunet_host_socket_t, events: c_short) -> c_int {
    int(|| {
        let object = gpunet_host_socket_t::of(socket)?;
        if events & !(POLLIN | POLLOUT) != 0 {
            return Err(Failure::new(libc::EINVAL, "a descriptor is for POLLIN, POLLOUT or both"));
        }
        let fd = object.notify.watch(events)?;
        object.settle();
        Ok(i64::from(fd))
    })
}
