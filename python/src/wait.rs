//! How calls wait: without the GIL, until they are woken, their time is over, or Ctrl-C comes.
//!
//! A call that moves bytes sleeps on the memory of its stream, where its peer wakes it
//! ([`Waiter`]). What else the sockets of `gpunet_proxy::host` do are futures. A call polls the
//! future itself, with a [`Notify`] as the waker, and sleeps until that is woken. Nobody sleeps
//! with a lock in hand.

use crate::detach::detach;
use crate::error::Failure;
use gpunet_proxy::host::Waiter;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// How long the main thread sleeps before it looks whether a signal has come: Python's handlers run
/// in that thread alone, and only between two looks.
const SIGNAL_SLICE: Duration = Duration::from_millis(50);

/// Locks something of which no call under the lock leaves a half.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who is told that a direction of a socket may have become ready: threads that wait in a call, and
/// a descriptor.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// How often it was woken.
    wakes: u64,
    /// An eventfd: readable while the direction is ready, or may be.
    event: Option<OwnedFd>,
    /// Whether the eventfd is readable.
    is_set: bool,
    /// There is no descriptor any more.
    closed: bool,
}

impl Inner {
    fn set(&mut self) {
        if let Some(event) = &self.event
            && !self.is_set
        {
            // It cannot be full: it holds 1 at most.
            self.is_set = rustix::io::write(event, &1_u64.to_ne_bytes()).is_ok();
        }
    }

    fn clear(&mut self) {
        if let Some(event) = &self.event
            && self.is_set
        {
            self.is_set = rustix::io::read(event, &mut [0; 8]).is_err();
        }
    }
}

impl Notify {
    /// How often it was woken so far: to be asked before the attempt that precedes a wait.
    fn wakes(&self) -> u64 {
        lock(&self.inner).wakes
    }

    /// Waits until it has been woken since `seen` was asked, or until `end`.
    fn wait(&self, seen: u64, end: Option<Instant>) {
        let mut inner = lock(&self.inner);
        while inner.wakes == seen {
            inner = match end {
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn notify(&self) {
        let mut inner = lock(&self.inner);
        inner.wakes += 1;
        inner.set();
        drop(inner);
        self.changed.notify_all();
    }

    /// Closes the descriptor, and wakes who waits.
    pub(crate) fn close(&self) {
        let mut inner = lock(&self.inner);
        inner.closed = true;
        let event = inner.event.take();
        drop(inner);
        drop(event);
        self.notify();
    }

    /// Makes the descriptor. `is_ready` is as in [`Notify::settle`].
    ///
    /// # Errors
    /// EBADF when it was closed; the system's, when it has no descriptor.
    pub(crate) fn descriptor(&self, is_ready: impl FnMut() -> bool) -> Result<i32, Failure> {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return Err(Failure::closed("socket"));
        }
        let number = match &inner.event {
            Some(event) => event.as_raw_fd(),
            None => {
                let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                inner.event.insert(event).as_raw_fd()
            }
        };
        drop(inner);
        self.settle(is_ready);
        Ok(number)
    }

    /// Makes the descriptor, if there is one, agree with the socket: `is_ready` tells whether it is
    /// ready, and if not, has it wake this.
    ///
    /// It is asked once more after the descriptor was cleared: a wake-up in between may have been
    /// cleared with it.
    pub(crate) fn settle(&self, mut is_ready: impl FnMut() -> bool) {
        if lock(&self.inner).event.is_none() {
            return;
        }
        let ready = is_ready();
        {
            let mut inner = lock(&self.inner);
            if ready {
                return inner.set();
            }
            if !inner.is_set {
                return;
            }
            inner.clear();
        }
        if is_ready() {
            lock(&self.inner).set();
        }
    }
}

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

/// How long a call may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// Not at all.
    No,
    Until(Instant),
    Never,
}

impl Limit {
    /// The limit of a timeout in seconds, as `socket.settimeout` takes it.
    pub(crate) fn of(timeout: Option<f64>) -> Self {
        match timeout {
            None => Self::Never,
            Some(0.0) => Self::No,
            // A time beyond what the clock has is none.
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .ok()
                .and_then(|time| Instant::now().checked_add(time))
                .map_or(Self::Never, Self::Until),
        }
    }

    const fn deadline(self) -> Option<Instant> {
        match self {
            Self::Until(end) => Some(end),
            Self::No | Self::Never => None,
        }
    }
}

/// How a wait ended.
pub(crate) enum Waited<T> {
    Done(T),
    /// It may not wait.
    WouldBlock,
    TimedOut,
}

/// Whether Python's signal handlers run in this thread.
pub(crate) fn is_main_thread() -> bool {
    // SAFETY: neither call has a condition.
    let (thread, process) = unsafe { (libc::gettid(), libc::getpid()) };
    thread == process
}

/// A call that may have to wait.
trait Call: Send {
    type Output: Send;

    /// Makes an attempt: `None` when it has to wait.
    fn attempt(&mut self) -> Option<Self::Output>;

    /// Sleeps until the next attempt is worth it, or until `until`; returns whether it is.
    fn sleep(&mut self, until: Option<Instant>) -> bool;
}

/// Makes attempts without the GIL until one succeeds, and sleeps between them.
///
/// # Errors
/// What a signal handler raised: KeyboardInterrupt.
fn until_done<C: Call>(py: Python<'_>, limit: Limit, mut call: C) -> PyResult<Waited<C::Output>> {
    let mut in_main = None;
    loop {
        let waited = detach(py, || {
            loop {
                if let Some(output) = call.attempt() {
                    return Some(Waited::Done(output));
                }
                if matches!(limit, Limit::No) {
                    return Some(Waited::WouldBlock);
                }
                let (now, deadline) = (Instant::now(), limit.deadline());
                if deadline.is_some_and(|end| end <= now) {
                    return Some(Waited::TimedOut);
                }
                if !*in_main.get_or_insert_with(is_main_thread) {
                    call.sleep(deadline);
                    continue;
                }
                let slice = now + SIGNAL_SLICE;
                if !call.sleep(Some(deadline.map_or(slice, |end| end.min(slice)))) {
                    return None;
                }
            }
        });
        match waited {
            Some(waited) => return Ok(waited),
            None => py.check_signals()?,
        }
    }
}

/// A future, or what behaves as one: the next attempt is worth it once the [`Notify`] was woken.
struct Polled<'a, F> {
    notify: &'a Arc<Notify>,
    waker: Waker,
    seen: u64,
    poll: F,
}

impl<T: Send, F: FnMut(&mut Context<'_>) -> Poll<T> + Send> Call for Polled<'_, F> {
    type Output = T;

    fn attempt(&mut self) -> Option<T> {
        self.seen = self.notify.wakes();
        match (self.poll)(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    fn sleep(&mut self, until: Option<Instant>) -> bool {
        self.notify.wait(self.seen, until);
        self.notify.wakes() != self.seen
    }
}

/// Makes an attempt without the GIL, and if it has to wait, again whenever `notify` is woken.
///
/// # Errors
/// What a signal handler raised: KeyboardInterrupt.
pub(crate) fn until_ready<T: Send>(
    py: Python<'_>,
    notify: &Arc<Notify>,
    limit: Limit,
    poll: impl FnMut(&mut Context<'_>) -> Poll<T> + Send,
) -> PyResult<Waited<T>> {
    until_done(py, limit, Polled { notify, waker: Waker::from(notify.clone()), seen: 0, poll })
}

/// What an attempt to move bytes of a stream came to.
pub(crate) enum Moved {
    Done(Result<(), Failure>),
    /// It has to wait for this.
    Blocked(Waiter),
}

/// Bytes of a stream: the thread sleeps on the stream's own memory, where its peer wakes it.
struct Moving<F> {
    spin: Duration,
    /// The wait has spun: it does once, and not in every slice of it.
    has_spun: bool,
    waiter: Option<Waiter>,
    /// Why there is nothing to wait for any more.
    failure: Option<Failure>,
    step: F,
}

impl<F: FnMut() -> Moved + Send> Call for Moving<F> {
    type Output = Result<(), Failure>;

    fn attempt(&mut self) -> Option<Self::Output> {
        if let Some(failure) = self.failure.take() {
            return Some(Err(failure));
        }
        if self.waiter.is_none() {
            match (self.step)() {
                Moved::Done(result) => return Some(result),
                Moved::Blocked(waiter) => (self.waiter, self.has_spun) = (Some(waiter), false),
            }
        }
        None
    }

    fn sleep(&mut self, until: Option<Instant>) -> bool {
        let Some(waiter) = &mut self.waiter else { return true };
        let spin = if std::mem::replace(&mut self.has_spun, true) { Duration::ZERO } else { self.spin };
        match waiter.wait(spin, until) {
            Ok(false) => return false,
            Ok(true) => {}
            Err(error) => self.failure = Some(error.into()),
        }
        self.waiter = None;
        true
    }
}

/// Moves bytes without the GIL: `step` is made again whenever what it waits for has come. A wait
/// polls for `spin` before it sleeps.
///
/// # Errors
/// What a signal handler raised: KeyboardInterrupt.
pub(crate) fn until_moved(
    py: Python<'_>,
    limit: Limit,
    spin: Duration,
    step: impl FnMut() -> Moved + Send,
) -> PyResult<Waited<Result<(), Failure>>> {
    until_done(py, limit, Moving { spin, has_spun: false, waiter: None, failure: None, step })
}
