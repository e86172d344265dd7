//! Host sockets: the streams and listeners of a C program.
//!
//! A call that moves bytes sleeps on the memory of its stream, where the peer wakes it
//! ([`Waiter`]). What else the sockets of `gpunet_proxy::host` do are futures: a call polls the
//! future itself, with the socket's [`Notify`] as the waker. A call that may wait sleeps there
//! until it is woken, and then polls again, so no executor is needed. No thread sleeps while it
//! holds a lock, so a close can always lock the socket and end the waits of other threads.
//!
//! | file | holds |
//! |---|---|
//! | `state` | what a socket is: fresh, connecting, a stream, a listener |
//! | `opening` | how it becomes that |
//! | `data` | bytes, and the end of a direction or of the socket |
//! | `notify` | how threads, polls and descriptors learn that it may have become ready |
//! | `poll` | waiting for many sockets |
//! | `names`, `options`, `settings` | addresses; options by number; a program's settings |

mod notify;
mod options;
mod settings;
mod state;

// In the order of the header.
mod opening;

mod data;

mod poll;

mod names;

pub use data::*;
pub use names::*;
pub use opening::*;
pub use poll::*;

use crate::failure::Failure;
use crate::handle::handles;
use gpunet_proxy::host::{Host, Waiter};
pub(crate) use notify::Notify;
use settings::Settings;
use state::{Connected, Inner, Listening, State, lock};
use std::ffi::c_int;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// A socket of the program, over any transport. Any thread may use it; one may send while another
/// receives.
pub struct gpunet_host_socket_t(());

handles! { gpunet_host_socket_t, SOCKETS: SocketObject, 5, "socket" }

/// The level of gpunet's own socket options.
pub const GPUNET_HOST_SOL_GPUNET: c_int = 0x6770;
/// Option of that level (int): calls do not wait.
pub const GPUNET_HOST_NONBLOCK: c_int = 1;
/// Option of that level (int; on by default): small messages travel with their flag where that is
/// faster.
pub const GPUNET_HOST_LINES: c_int = 3;
/// Option of that level (int; 0 by default): microseconds for which a call that waits for bytes or
/// room polls before it sleeps. It saves the time that waking a thread takes, and uses a core
/// meanwhile.
pub const GPUNET_HOST_SPIN: c_int = 4;
/// Option of that level (int): what may carry the socket, or of a stream, what does. One of
/// GPUNET_HOST_TRANSPORT_*.
pub const GPUNET_HOST_TRANSPORT: c_int = 2;
/// The same host if the listener is under this proxy, RDMA to a destination known to speak it, else
/// TCP.
pub const GPUNET_HOST_TRANSPORT_AUTO: c_int = 0;
/// TCP.
pub const GPUNET_HOST_TRANSPORT_TCP: c_int = 1;
/// Both ends under one proxy, through memory.
pub const GPUNET_HOST_TRANSPORT_PEER: c_int = 2;
/// RDMA, as librdmacm's rsockets.
pub const GPUNET_HOST_TRANSPORT_RC: c_int = 3;

pub(crate) struct SocketObject {
    host: Host,
    inner: Mutex<Inner>,
    notify: Arc<Notify>,
    /// The same, as futures take it.
    waker: Waker,
}

/// Whether and how long a call waits.
#[derive(Clone, Copy)]
enum Wait {
    No,
    Until(Option<Instant>),
}

impl SocketObject {
    fn new(host: Host, state: State, settings: Settings) -> Self {
        let notify = Arc::new(Notify::default());
        let waker = Waker::from(notify.clone());
        Self { host, inner: Mutex::new(Inner { state, settings, error: None }), notify, waker }
    }

    fn settings(&self) -> Settings {
        lock(&self.inner).settings
    }

    fn send_wait(&self, flags: c_int) -> Wait {
        let settings = self.settings();
        let no = settings.nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        if no { Wait::No } else { Wait::Until(settings.send_deadline()) }
    }

    fn recv_wait(&self, flags: c_int) -> Wait {
        let settings = self.settings();
        let no = settings.nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        if no { Wait::No } else { Wait::Until(settings.recv_deadline()) }
    }

    /// Makes an attempt. If it has to wait, makes it again whenever the socket is woken.
    ///
    /// # Errors
    /// EAGAIN when it may not wait, or the timeout has expired; the attempt's.
    fn until_ready<T>(
        &self,
        wait: Wait,
        mut attempt: impl FnMut(&mut Context<'_>) -> Poll<Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut cx = Context::from_waker(&self.waker);
        loop {
            let seen = self.notify.wakes();
            if let Poll::Ready(result) = attempt(&mut cx) {
                return result;
            }
            match wait {
                Wait::Until(deadline) if self.notify.wait(seen, deadline) => {}
                _ => return Err(Failure::would_block()),
            }
        }
    }

    fn stream(&self, cx: &mut Context<'_>) -> Poll<Result<Arc<Connected>, Failure>> {
        lock(&self.inner).stream(cx)
    }

    fn listener(&self) -> Result<Arc<Listening>, Failure> {
        match &lock(&self.inner).state {
            State::Listener(listener) => Ok(listener.clone()),
            State::Closed => Err(Failure::of(libc::EBADF)),
            _ => Err(Failure::new(libc::EINVAL, "the socket does not listen")),
        }
    }

    /// Moves all bytes, or as many as possible without waiting, by calls that each move some.
    fn transfer(
        &self,
        wait: Wait,
        all: usize,
        mut some: impl FnMut(&mut Context<'_>, usize) -> Result<Moved, Failure>,
    ) -> Result<i64, Failure> {
        let mut cx = Context::from_waker(&self.waker);
        let mut moved = 0;
        loop {
            let seen = self.notify.wakes();
            let is_ready = match (some(&mut cx, moved), wait) {
                (Ok(Moved::End), _) => return Ok(moved as i64),
                (Ok(Moved::Some(n)), _) => {
                    moved += n;
                    if moved == all {
                        return Ok(moved as i64);
                    }
                    Ok(true)
                }
                (Ok(Moved::Connects), Wait::Until(deadline)) => Ok(self.notify.wait(seen, deadline)),
                (Ok(Moved::Blocked(mut waiter)), Wait::Until(deadline)) => {
                    waiter.wait(self.settings().spin, deadline).map_err(Failure::from)
                }
                (Ok(Moved::Connects | Moved::Blocked(_)), Wait::No) => Ok(false),
                (Err(failure), _) => Err(failure),
            };
            match is_ready {
                Ok(true) => {}
                // A failure is the next call's.
                _ if moved > 0 => return Ok(moved as i64),
                Ok(false) => return Err(Failure::would_block()),
                Err(failure) => return Err(failure),
            }
        }
    }
}

/// What a call has done that moves bytes.
enum Moved {
    Some(usize),
    /// There is nothing more to move.
    End,
    /// Nothing: the socket connects still.
    Connects,
    /// Nothing: it has to wait for this.
    Blocked(Waiter),
}
