//! A line of operations: each waits for its turn, and may be stopped from another thread before and
//! during it.

use super::array::Given;
use super::options::{Outcome, Told};
use crate::failure::Failure;
use gpu_usermap::threads;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What a line lends to the operation whose turn it is, and the operations.
pub(super) struct Line<T> {
    /// `None` once it was taken away. Locked by the operation whose turn it is.
    lent: Mutex<Option<T>>,
    state: Mutex<State>,
    /// Another turn, a stop, or an end.
    changed: Condvar,
    /// Readable when the first operation was stopped before it moved anything.
    stop: OwnedFd,
    worker: Mutex<Option<Sender<Job>>>,
}

type Job = Box<dyn FnOnce() + Send>;

struct State {
    /// The first one has its turn, or is about to take it.
    line: VecDeque<Arc<Op>>,
    /// Whether the first one moves bytes: it is then stopped by the end of the channel only.
    moves: bool,
    is_closed: bool,
}

/// An operation.
#[derive(Default)]
pub(super) struct Op {
    /// The errno for which it was stopped; 0: it was not. Ordering: Relaxed; used under the line's
    /// lock.
    stopped: AtomicI32,
    /// Bytes that are through, and all. Ordering: Relaxed; figures.
    pub(super) moved: AtomicU64,
    pub(super) total: AtomicU64,
    /// What the thread of the line needs of the program for an operation that was started, until it
    /// takes it, or the operation is stopped in the line.
    payload: Mutex<Option<(Vec<Given>, Told)>>,
    done: OnceLock<Result<Outcome, Failure>>,
}

impl Op {
    /// An operation for the thread of a line.
    pub(super) fn started(arrays: Vec<Given>, told: Told) -> Self {
        let total = AtomicU64::new(Given::bytes(&arrays));
        Self { total, payload: Mutex::new(Some((arrays, told))), ..Self::default() }
    }

    /// Whoever takes it ends the operation.
    pub(super) fn take_payload(&self) -> Option<(Vec<Given>, Told)> {
        lock(&self.payload).take()
    }

    fn why_stopped(&self) -> Option<Failure> {
        match self.stopped.load(Ordering::Relaxed) {
            0 => None,
            libc::ECANCELED => Some(Failure::new(libc::ECANCELED, "the transfer was cancelled")),
            errno => Some(Failure::new(errno, "it was closed meanwhile")),
        }
    }

    /// How it ended; `None` before that.
    pub(super) fn done(&self) -> Option<&Result<Outcome, Failure>> {
        self.done.get()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Line<T> {
    /// # Errors
    /// The system's: it has no descriptor left.
    pub(super) fn new(lent: T) -> Result<Self, Failure> {
        Ok(Self {
            lent: Mutex::new(Some(lent)),
            state: Mutex::new(State { line: VecDeque::new(), moves: false, is_closed: false }),
            changed: Condvar::new(),
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            worker: Mutex::default(),
        })
    }

    /// Puts an operation at the end of the line.
    fn enter(&self, op: &Arc<Op>) -> Result<(), Failure> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(Failure::new(libc::EBADF, "it was closed"));
        }
        state.line.push_back(op.clone());
        Ok(())
    }

    /// Sleeps until something changes; `None` when the time is over.
    fn sleep<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> Option<MutexGuard<'a, State>> {
        let Some(deadline) = deadline else {
            return Some(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        Some(self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Enters, and waits for the turn.
    ///
    /// # Errors
    /// EAGAIN at the deadline; EBADF, ECANCELED when it was stopped.
    pub(super) fn turn<'a>(
        &'a self,
        op: &'a Arc<Op>,
        deadline: Option<Instant>,
    ) -> Result<Turn<'a, T>, Failure> {
        self.enter(op)?;
        self.wait_for_turn(op, deadline)
    }

    fn wait_for_turn<'a>(
        &'a self,
        op: &'a Arc<Op>,
        deadline: Option<Instant>,
    ) -> Result<Turn<'a, T>, Failure> {
        let mut state = lock(&self.state);
        let failure = loop {
            if let Some(failure) = op.why_stopped() {
                break failure;
            }
            if state.line.front().is_some_and(|first| Arc::ptr_eq(first, op)) {
                drop(state);
                return Ok(Turn { line: self, op, lent: lock(&self.lent) });
            }
            match self.sleep(state, deadline) {
                Some(woken) => state = woken,
                None => {
                    state = lock(&self.state);
                    break Failure::would_block();
                }
            }
        };
        self.leave(&mut state, op);
        Err(failure)
    }

    /// Takes an operation out of the line.
    fn leave(&self, state: &mut State, op: &Arc<Op>) {
        if state.line.front().is_some_and(|first| Arc::ptr_eq(first, op)) {
            state.moves = false;
            // What was written for this operation is not for the next one. It fails if there is
            // nothing.
            let _ = rustix::io::read(&self.stop, &mut [0; 8]);
        }
        state.line.retain(|other| !Arc::ptr_eq(other, op));
        self.changed.notify_all();
    }

    /// Has the line's thread carry out an operation: `body` takes its turn by
    /// [`started`](Self::started), and finishes it. One that was stopped before is finished.
    ///
    /// # Errors
    /// The system's, when it refuses a thread; EBADF. Then nothing was started.
    pub(super) fn start(&self, op: &Arc<Op>, body: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        // Held until the job is sent: the thread takes jobs in the order of the line.
        let mut worker = lock(&self.worker);
        let jobs = match &mut *worker {
            Some(jobs) => jobs,
            none => {
                let (jobs, inbox) = mpsc::channel::<Job>();
                threads::spawn("gpunet-transfer", move || inbox.into_iter().for_each(|job| job()))?;
                none.insert(jobs)
            }
        };
        self.enter(op)?;
        // The thread receives them while this end exists.
        let _ = jobs.send(Box::new(body));
        Ok(())
    }

    /// Waits for the turn of an operation that was started.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub(super) fn started<'a>(
        &'a self,
        op: &'a Arc<Op>,
        deadline: Option<Instant>,
    ) -> Result<Turn<'a, T>, Failure> {
        self.wait_for_turn(op, deadline)
    }

    /// Notes how an operation has ended. Nothing of the program is used for it any more.
    pub(super) fn finish(&self, op: &Op, result: Result<Outcome, Failure>) {
        let _state = lock(&self.state);
        // It is set once: by whoever has taken the payload.
        let _ = op.done.set(result);
        self.changed.notify_all();
    }

    /// Waits until an operation has ended; whether it has.
    pub(super) fn wait(&self, op: &Op, deadline: Option<Instant>) -> bool {
        let mut state = lock(&self.state);
        while op.done.get().is_none() {
            match self.sleep(state, deadline) {
                Some(woken) => state = woken,
                None => return false,
            }
        }
        true
    }

    /// Stops an operation; `end` ends one that moves bytes, and the channel with it.
    pub(super) fn cancel(&self, op: &Arc<Op>, end: impl FnOnce()) {
        let mut state = lock(&self.state);
        if state.line.iter().any(|other| Arc::ptr_eq(other, op)) {
            self.stop(&mut state, op, libc::ECANCELED, end);
            drop(state);
            self.finish_stopped(op);
        }
    }

    fn stop(&self, state: &mut State, op: &Arc<Op>, errno: i32, end: impl FnOnce()) {
        op.stopped.store(errno, Ordering::Relaxed);
        let is_first = state.line.front().is_some_and(|first| Arc::ptr_eq(first, op));
        if !is_first {
            self.leave(state, op);
        } else if state.moves {
            end();
        } else {
            // It fails only if it was written 2^64 times.
            let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        }
        self.changed.notify_all();
    }

    /// Finishes an operation that was stopped before the thread of the line has come to it, which
    /// may take long. What it has of the program is given back without the lock: that may wait.
    fn finish_stopped(&self, op: &Arc<Op>) {
        if let Some(payload) = op.take_payload() {
            drop(payload);
            self.leave(&mut lock(&self.state), op);
            let failure = op.why_stopped().unwrap_or_else(|| Failure::of(libc::ECANCELED));
            self.finish(op, Err(failure));
        }
    }

    /// Stops all operations, and lets none in. Returns them, and whether the first one moves bytes:
    /// then the caller ends the channel. [`take_away`](Self::take_away) follows.
    pub(super) fn close(&self) -> (Vec<Arc<Op>>, bool) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        let (stopped, mut moves): (Vec<_>, _) = (state.line.iter().rev().cloned().collect(), false);
        for op in &stopped {
            self.stop(&mut state, op, libc::EBADF, || moves = true);
        }
        (stopped, moves)
    }

    /// Finishes what was stopped by [`close`](Self::close), and takes away what is lent: here, or
    /// when the turn that has it ends.
    pub(super) fn take_away(&self, stopped: &[Arc<Op>]) {
        stopped.iter().for_each(|op| self.finish_stopped(op));
        if let Ok(mut lent) = self.lent.try_lock() {
            drop(lent.take());
        }
    }
}

/// The turn of an operation, until it is dropped.
pub(super) struct Turn<'a, T> {
    line: &'a Line<T>,
    op: &'a Arc<Op>,
    lent: MutexGuard<'a, Option<T>>,
}

impl<T> Turn<'_, T> {
    /// What is lent. From here on bytes move: a stop ends the channel.
    ///
    /// # Errors
    /// It was stopped before; EPIPE: it was taken away.
    pub(super) fn begin(&mut self) -> Result<&mut T, Failure> {
        let mut state = lock(&self.line.state);
        if let Some(failure) = self.op.why_stopped() {
            return Err(failure);
        }
        state.moves = true;
        drop(state);
        self.lent.as_mut().ok_or_else(|| Failure::of(libc::EPIPE))
    }

    /// Waits until a descriptor of what is lent is readable; whether it is. Meanwhile nothing
    /// moves, and a stop leaves the channel as it is.
    ///
    /// # Errors
    /// It was stopped.
    pub(super) fn wait(
        &mut self,
        fd: impl FnOnce(&T) -> Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<bool, Failure> {
        lock(&self.line.state).moves = false;
        let lent = self.lent.as_ref().ok_or_else(|| Failure::of(libc::EBADF))?;
        let Some(fd) = fd(lent) else { return Ok(true) };
        loop {
            if let Some(failure) = self.why_stopped() {
                return Err(failure);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let limit = left.map(timespec);
            let mut fds = [
                PollFd::new(&fd, PollFlags::IN),
                PollFd::from_borrowed_fd(self.line.stop.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, limit.as_ref()) {
                Ok(0) if left.is_some_and(|left| left <= LONGEST) => return Ok(false),
                Ok(_) if !fds[0].revents().is_empty() => return Ok(true),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn why_stopped(&self) -> Option<Failure> {
        let _state = lock(&self.line.state);
        self.op.why_stopped()
    }

    /// Takes away what is lent: the direction ends.
    pub(super) fn take(&mut self) -> Option<T> {
        self.lent.take()
    }

    /// The failure of an operation in whose turn an error came up: that it was stopped is why.
    pub(super) fn failed(&self, error: impl Into<Failure>) -> Failure {
        self.why_stopped().unwrap_or_else(|| error.into())
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut state = lock(&self.line.state);
        self.line.leave(&mut state, self.op);
        let is_closed = state.is_closed;
        drop(state);
        if is_closed {
            drop(self.lent.take());
        }
    }
}

/// A poll sleeps for so long at most.
const LONGEST: Duration = Duration::from_secs(1 << 20);

fn timespec(time: Duration) -> Timespec {
    let time = time.min(LONGEST);
    Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) }
}
