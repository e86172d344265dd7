//! A transfer as the program sees it: to be waited for, awaited, or given up.

use super::half::Withdraw;
use super::{Core, SLICE};
use crate::detach::attach;
use crate::error::{Failure, made, timed_out};
use crate::fork::Owned;
use crate::socket::checked;
use crate::wait::{Limit, Notify, Waited, lock, until_ready};
use gpunet_channel::{ChannelError, Outcome as Done, Via};
use pyo3::exceptions::{PyEOFError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// How a transfer went.
#[pyclass(frozen, module = "gpunet", name = "Outcome", eq)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The bytes of all arrays.
    #[pyo3(get)]
    nbytes: u64,
    /// How they went, in words.
    #[pyo3(get)]
    via: String,
    /// By one copy from memory to memory.
    #[pyo3(get)]
    copied: bool,
    /// Why not.
    #[pyo3(get)]
    why_not_copied: Option<String>,
}

#[pymethods]
impl Outcome {
    fn __repr__(&self) -> String {
        format!("<gpunet.Outcome: {} bytes by {}>", self.nbytes, self.via)
    }
}

impl From<Done> for Outcome {
    fn from(done: Done) -> Self {
        let why_not_copied = match done.via {
            Via::Copy => None,
            Via::Header => Some("the transfer is small".to_owned()),
            Via::Connections { reason, .. } => Some(reason.to_string()),
            _ => None,
        };
        Self { nbytes: done.bytes, via: done.via.to_string(), copied: done.via == Via::Copy, why_not_copied }
    }
}

/// Why a transfer failed.
#[derive(Clone)]
pub(crate) enum Fault {
    Channel(ChannelError),
    /// What Python code has raised that the transfer called.
    Raised(Arc<PyErr>),
    /// The program gave it up, or closed the channel, when so many bytes were through.
    Given {
        moved: u64,
        total: u64,
    },
    /// It had not begun when its time was over.
    TimedOut,
}

impl Fault {
    pub(crate) fn raised(error: PyErr) -> Self {
        Self::Raised(Arc::new(error))
    }

    /// Makes the exception.
    pub(crate) fn raise(&self) -> PyErr {
        match self {
            Self::Channel(ChannelError::Invalid(text)) => PyValueError::new_err(text.clone()),
            Self::Channel(ChannelError::Cuda(text)) => {
                Python::attach(|py| made::<PyRuntimeError>(py, text.clone()))
            }
            Self::Channel(error) => {
                let (moved, total) = match error {
                    ChannelError::Failed { moved, total, .. } => (*moved, *total),
                    ChannelError::Checksum { offset } => (*offset, 0),
                    _ => (0, 0),
                };
                with_progress(Failure::new(error.errno(), error.to_string()), moved, total)
            }
            Self::Raised(error) => Python::attach(|py| error.clone_ref(py)),
            Self::Given { moved, total } => {
                let text = match total {
                    0 => "the transfer was given up before it began".to_owned(),
                    _ => format!("the transfer was given up ({moved} of {total} bytes were through)"),
                };
                with_progress(Failure::new(libc::ECANCELED, text), *moved, *total)
            }
            Self::TimedOut => timed_out("the transfer has not begun; the channel goes on"),
        }
    }
}

/// An OSError that says how far the transfer had come.
fn with_progress(failure: Failure, moved: u64, total: u64) -> PyErr {
    let error = PyErr::from(failure);
    Python::attach(|py| {
        let value = error.value(py);
        match value.setattr("moved", moved).and_then(|()| value.setattr("total", total)) {
            Ok(()) => error,
            Err(other) => other,
        }
    })
}

/// How a transfer ended.
#[derive(Clone)]
pub(crate) struct Finished {
    /// `None`: the other end has closed.
    pub(crate) outcome: Option<Done>,
    /// What `make` gave as the value.
    pub(crate) value: Option<Arc<Py<PyAny>>>,
}

/// A transfer, for the thread that does it and for who waits.
pub(crate) struct Op {
    ended: Mutex<Option<Result<Finished, Fault>>>,
    notify: Arc<Notify>,
    /// It was given up after it had begun.
    given_up: AtomicBool,
    moved: AtomicU64,
    total: AtomicU64,
    pub(crate) deadline: Option<Instant>,
}

impl Op {
    pub(crate) fn new(deadline: Option<Instant>) -> Arc<Self> {
        Arc::new(Self {
            ended: Mutex::default(),
            notify: Arc::default(),
            given_up: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            total: AtomicU64::new(0),
            deadline,
        })
    }

    /// Whether its time is over.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    pub(crate) fn is_given_up(&self) -> bool {
        // Ordering: Relaxed; the channel's end orders it for its thread.
        self.given_up.load(Ordering::Relaxed)
    }

    /// Notes that it begins.
    pub(crate) fn begin(&self, total: u64) {
        // Ordering: Relaxed; as in `progress`.
        self.total.store(total, Ordering::Relaxed);
    }

    /// How many bytes are through, and of how many.
    pub(crate) fn progress(&self) -> (u64, u64) {
        // Ordering: Relaxed; numbers to show.
        (self.moved.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Ends it. Its arrays have been let go.
    pub(crate) fn end(&self, result: Result<Finished, Fault>) {
        lock(&self.ended).get_or_insert(result);
        Waker::from(self.notify.clone()).wake();
    }

    fn poll(&self) -> Poll<Result<Finished, Fault>> {
        lock(&self.ended).clone().map_or(Poll::Pending, Poll::Ready)
    }
}

/// What a transfer was told.
pub(crate) struct How {
    pub(crate) checksum: bool,
    progress: Option<Py<PyAny>>,
    pub(crate) deadline: Option<Instant>,
    shown: Mutex<Shown>,
    /// What the callback has raised.
    raised: Mutex<Option<PyErr>>,
    core: Weak<Core>,
}

/// When the callback was called last, and with how many bytes.
struct Shown {
    at: Option<Instant>,
    moved: Option<u64>,
}

impl How {
    pub(crate) fn new(
        core: &Arc<Core>,
        checksum: bool,
        progress: Option<Py<PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let deadline = match Limit::of(checked(timeout)?) {
            Limit::No => Some(Instant::now()),
            Limit::Until(end) => Some(end),
            Limit::Never => None,
        };
        let shown = Mutex::new(Shown { at: None, moved: None });
        Ok(Self { checksum, progress, deadline, shown, raised: Mutex::default(), core: Arc::downgrade(core) })
    }

    /// Takes what the callback has raised.
    pub(crate) fn raised(&self) -> Option<PyErr> {
        lock(&self.raised).take()
    }

    /// Notes how far a transfer has come, and tells the callback, by one thread at a time and not
    /// more often than somebody reads.
    pub(crate) fn show(&self, op: &Op, moved: u64, total: u64) {
        // Ordering: Relaxed; as in `Op::progress`.
        op.moved.fetch_max(moved, Ordering::Relaxed);
        let Some(callback) = &self.progress else { return };
        let is_last = moved == total;
        let mut shown = match self.shown.try_lock() {
            Ok(shown) => shown,
            Err(_) if is_last => lock(&self.shown),
            Err(_) => return,
        };
        let is_soon = shown.at.is_some_and(|at| at.elapsed() < SLICE) && !is_last;
        if is_soon || shown.moved.is_some_and(|before| before >= moved) || lock(&self.raised).is_some() {
            return;
        }
        (shown.at, shown.moved) = (Some(Instant::now()), Some(moved));
        let called = attach(|py| callback.call1(py, (moved, total)).map(drop));
        if let Some(Err(error)) = called {
            *lock(&self.raised) = Some(error);
            if let Some(core) = self.core.upgrade() {
                core.abort();
            }
        }
    }
}

/// A transfer that was begun.
#[pyclass(frozen, weakref, module = "gpunet", name = "Transfer")]
pub(crate) struct Transfer {
    inner: Owned<Inner>,
}

struct Inner {
    op: Arc<Op>,
    half: Arc<dyn Withdraw>,
    core: Arc<Core>,
    /// When the other end has closed it is an EOFError, and else None.
    raises_at_end: bool,
    /// It is given up once nobody holds it.
    is_owned: bool,
}

impl Transfer {
    pub(crate) fn new(
        core: Arc<Core>,
        op: Arc<Op>,
        half: Arc<dyn Withdraw>,
        (raises_at_end, is_owned): (bool, bool),
    ) -> Self {
        Self { inner: Owned::new(Inner { op, half, core, raises_at_end, is_owned }) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.is_owned {
            self.give_up();
        }
    }
}

impl Inner {
    /// Gives the transfer up; returns whether it was not over. With the GIL.
    fn give_up(&self) -> bool {
        let Self { op, half, core, .. } = self;
        if op.poll().is_ready() {
            return false;
        }
        // Ordering: Relaxed; as in `Op::is_given_up`.
        op.given_up.store(true, Ordering::Relaxed);
        if !half.withdraw(op, Fault::Given { moved: 0, total: 0 }) && !op.poll().is_ready() {
            core.abort();
        }
        true
    }

    fn value(&self, py: Python<'_>, result: Result<Finished, Fault>) -> PyResult<Py<PyAny>> {
        let finished = result.map_err(|fault| fault.raise())?;
        match (finished.value, finished.outcome) {
            (Some(value), _) => Ok(value.clone_ref(py)),
            (None, Some(outcome)) => Ok(Outcome::from(outcome).into_pyobject(py)?.into_any().unbind()),
            (None, None) if self.raises_at_end => {
                Err(made::<PyEOFError>(py, "the other end has closed the channel".to_owned()))
            }
            (None, None) => Ok(py.None()),
        }
    }
}

#[pymethods]
impl Transfer {
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let inner = self.inner.get()?;
        let Inner { op, half, .. } = inner;
        let end = Limit::of(checked(timeout)?);
        let poll = |_: &mut Context<'_>| op.poll();
        // A transfer that has not begun when its own time is over has no thread that ends it.
        let first = match (end, op.deadline) {
            (Limit::Until(end), Some(deadline)) => Limit::Until(end.min(deadline)),
            (Limit::Never, Some(deadline)) => Limit::Until(deadline),
            (end, _) => end,
        };
        let mut waited = until_ready(py, &op.notify, first, poll)?;
        if matches!(waited, Waited::TimedOut) && op.is_late() {
            half.withdraw(op, Fault::TimedOut);
            waited = until_ready(py, &op.notify, end, poll)?;
        }
        match waited {
            Waited::Done(result) => inner.value(py, result),
            Waited::WouldBlock => {
                Err(Failure::new(libc::EAGAIN, "the transfer is not over, and the timeout is 0").into())
            }
            Waited::TimedOut => Err(timed_out("the transfer is not over; it goes on")),
        }
    }

    /// Whether it is over.
    fn done(&self) -> PyResult<bool> {
        Ok(self.inner.get()?.op.poll().is_ready())
    }

    /// Gives it up; whether it was not over.
    fn cancel(&self) -> PyResult<bool> {
        Ok(self.inner.get()?.give_up())
    }

    /// How many bytes are through, and of how many.
    #[getter]
    fn progress(&self) -> PyResult<(u64, u64)> {
        Ok(self.inner.get()?.op.progress())
    }

    /// How it went, when it is over and was no failure.
    #[getter]
    fn outcome(&self) -> PyResult<Option<Outcome>> {
        Ok(match self.inner.get()?.op.poll() {
            Poll::Ready(Ok(finished)) => finished.outcome.map(Outcome::from),
            _ => None,
        })
    }

    fn fileno(&self) -> PyResult<i32> {
        let op = &self.inner.get()?.op;
        Ok(op.notify.descriptor(|| op.poll().is_ready())?)
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("gpunet._aio")?.call_method1("transferred", (slf,))?.call_method0("__await__")
    }

    fn __repr__(&self) -> String {
        let Ok(Inner { op, .. }) = self.inner.get() else {
            return "<gpunet.Transfer of another process>".to_owned();
        };
        match (op.poll(), op.progress()) {
            (Poll::Ready(Ok(_)), _) => "<gpunet.Transfer [over]>".to_owned(),
            (Poll::Ready(Err(_)), _) => "<gpunet.Transfer [failed]>".to_owned(),
            (Poll::Pending, (moved, total)) => format!("<gpunet.Transfer: {moved} of {total} bytes>"),
        }
    }
}
