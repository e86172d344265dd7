//! Notifies waiting threads, polls and a descriptor that a socket may have become ready.

use crate::failure::Failure;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::time::Instant;

/// A socket's waker: the reactor of the host, the control thread and the calls of other threads
/// wake it.
#[derive(Default)]
pub(crate) struct Notify {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// How often it was woken.
    wakes: u64,
    /// Polls that wait for this socket among others.
    polls: Vec<Arc<Notify>>,
    event: Option<Event>,
    /// The socket was closed. It has no descriptor from then on, even if this is still held as a
    /// waker.
    closed: bool,
}

/// An eventfd: readable while the socket is ready for one of `events`, or may be.
struct Event {
    fd: OwnedFd,
    events: i16,
    is_set: bool,
}

impl Event {
    fn set(&mut self) {
        if !self.is_set {
            // It cannot be full: it holds 1 at most.
            self.is_set = rustix::io::write(&self.fd, &1_u64.to_ne_bytes()).is_ok();
        }
    }

    fn clear(&mut self) {
        if self.is_set {
            self.is_set = rustix::io::read(&self.fd, &mut [0; 8]).is_err();
        }
    }
}

impl Notify {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that is called under the lock panics.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how often it was woken so far. Ask before the attempt that precedes a wait.
    pub(crate) fn wakes(&self) -> u64 {
        self.lock().wakes
    }

    /// Waits until it has been woken since `seen` was asked, or until the deadline. Returns whether
    /// it was.
    pub(crate) fn wait(&self, seen: u64, deadline: Option<Instant>) -> bool {
        let mut inner = self.lock();
        while inner.wakes == seen {
            inner = match deadline {
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    fn notify(&self) {
        let mut inner = self.lock();
        inner.wakes += 1;
        if let Some(event) = &mut inner.event {
            event.set();
        }
        let polls = inner.polls.clone();
        drop(inner);
        self.changed.notify_all();
        // A poll has no polls of its own.
        polls.iter().for_each(|poll| poll.notify());
    }

    /// Also notifies a poll, until [`Notify::forget`].
    pub(super) fn tell(&self, poll: &Arc<Self>) {
        self.lock().polls.push(poll.clone());
    }

    /// Stops notifying that poll.
    pub(super) fn forget(&self, poll: &Arc<Self>) {
        let mut inner = self.lock();
        if let Some(at) = inner.polls.iter().position(|known| Arc::ptr_eq(known, poll)) {
            inner.polls.swap_remove(at);
        }
    }

    /// Makes the descriptor, or changes what makes it readable. Returns its number.
    ///
    /// # Errors
    /// EBADF when the socket was closed; the system's, when it has no descriptor.
    pub(super) fn watch(&self, events: i16) -> Result<i32, Failure> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(Failure::of(libc::EBADF));
        }
        if let Some(event) = &mut inner.event {
            event.events = events;
            return Ok(event.fd.as_raw_fd());
        }
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let number = fd.as_raw_fd();
        inner.event = Some(Event { fd, events, is_set: false });
        Ok(number)
    }

    /// Closes the descriptor, and wakes waiting threads.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        let event = inner.event.take();
        drop(inner);
        drop(event);
        self.notify();
    }

    /// Returns the events that make the descriptor readable; `None` if there is no descriptor.
    pub(super) fn watched(&self) -> Option<i16> {
        self.lock().event.as_ref().map(|event| event.events)
    }

    /// Makes the descriptor agree with the socket: `is_ready` returns whether the socket is ready,
    /// and if not, registers this as its waker.
    ///
    /// It is called again after the descriptor was cleared, because a wake-up in between may have
    /// been cleared with it.
    pub(super) fn settle(&self, mut is_ready: impl FnMut() -> bool) {
        let ready = is_ready();
        if let Some(event) = &mut self.lock().event {
            if ready {
                return event.set();
            }
            if !event.is_set {
                return;
            }
            event.clear();
        }
        if is_ready()
            && let Some(event) = &mut self.lock().event
        {
            event.set();
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::fd::BorrowedFd;
    use std::time::Duration;

    fn readable(fd: i32) -> bool {
        // SAFETY: the test's socket keeps it open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn a_wake_before_the_wait_ends_it() {
        let notify = Arc::new(Notify::default());
        let seen = notify.wakes();
        notify.wake_by_ref();
        assert!(notify.wait(seen, None));
        assert!(!notify.wait(notify.wakes(), Some(Instant::now() + Duration::from_millis(1))));
    }

    #[test]
    fn a_wake_ends_the_wait_of_threads_and_polls() {
        let (notify, poll) = (Arc::new(Notify::default()), Arc::new(Notify::default()));
        notify.tell(&poll);
        let (seen, poll_seen) = (notify.wakes(), poll.wakes());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(notify.wait(seen, None)));
            scope.spawn(|| assert!(poll.wait(poll_seen, None)));
            notify.wake_by_ref();
        });
        notify.forget(&poll);
        notify.wake_by_ref();
        assert_eq!(poll.wakes(), poll_seen + 1);
    }

    #[test]
    fn the_descriptor_follows_the_socket() {
        let notify = Arc::new(Notify::default());
        assert_eq!(notify.watched(), None);
        let fd = notify.watch(1).unwrap();
        assert!(!readable(fd));
        notify.settle(|| true);
        assert!(readable(fd));
        notify.settle(|| false);
        assert!(!readable(fd));
        notify.wake_by_ref();
        assert!(readable(fd));
        // Ready again between the two calls.
        let mut answers = [false, true].into_iter();
        notify.settle(|| answers.next().unwrap());
        assert!(readable(fd));
        notify.settle(|| false);
        assert!(!readable(fd));
        assert_eq!((notify.watch(4).unwrap(), notify.watched()), (fd, Some(4)));
        notify.close();
        notify.wake_by_ref();
        assert_eq!(
            (notify.watched(), notify.watch(1).map_err(|failure| failure.errno())),
            (None, Err(libc::EBADF))
        );
    }
}
