//! Work that may last, on a thread of its own: a call waits for it so that Ctrl-C ends the wait,
//! and the end of the interpreter waits for what nobody waits for.

use crate::detach::detach;
use crate::error::Failure;
use crate::wait::{Limit, Notify, Waited, lock, until_ready};
use gpu_usermap::threads;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// How much goes on, and who is told when something has ended.
#[derive(Debug, Default)]
struct Going {
    jobs: AtomicUsize,
    ended: Arc<Notify>,
}

/// Those of this process, from the first on. No lock: a child of `fork` would find it locked.
static GOING: AtomicPtr<Going> = AtomicPtr::new(null_mut());

/// In a child of `fork` nothing goes on: the threads are not there.
pub(crate) fn forget_all() {
    // Ordering: Relaxed; the child has one thread.
    GOING.store(null_mut(), Ordering::Relaxed);
}

fn going() -> &'static Going {
    // Ordering: Acquire, pairs with the exchange below: what it points to is there.
    let mut found = GOING.load(Ordering::Acquire);
    if found.is_null() {
        let made = Box::into_raw(Box::<Going>::default());
        // Ordering: AcqRel. Release: pairs with the load above. Acquire: as there.
        found = match GOING.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: made above, and known to nobody else.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
    }
    // SAFETY: it comes from a box that is never freed.
    unsafe { &*found }
}

/// Counts a job that goes on, until it is dropped.
struct Counted(&'static Going);

impl Counted {
    fn new() -> Self {
        let going = going();
        // Ordering: Relaxed; the notification orders it for who waits.
        going.jobs.fetch_add(1, Ordering::Relaxed);
        Self(going)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Ordering: Release, pairs with the load in `wait_for_all`: what the job did came before.
        self.0.jobs.fetch_sub(1, Ordering::Release);
        Waker::from(self.0.ended.clone()).wake();
    }
}

/// Does something without being waited for, except by [`wait_for_all`].
pub(crate) fn begin(work: impl FnOnce() + Send + 'static) {
    let counted = Counted::new();
    let work = move || {
        work();
        drop(counted);
    };
    // Without a thread what it holds is dropped, here.
    let _ = threads::spawn("gpunet-python", work);
}

/// Does something that may wait, and waits for it. After Ctrl-C it goes on, and what it returns is
/// dropped.
///
/// # Errors
/// What a signal handler raised; the system's, when it has no thread.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    run_counted(py, Some(Counted::new()), work)
}

/// The same for what waits for other programs: the end of the interpreter does not wait for it.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_with_others<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    run_counted(py, None, work)
}

fn run_counted<T: Send + 'static>(
    py: Python<'_>,
    counted: Option<Counted>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (result, notify) = (Arc::new(Mutex::new(None)), Arc::new(Notify::default()));
    let (to, told) = (result.clone(), notify.clone());
    let body = move || {
        *lock(&to) = Some(catch_unwind(AssertUnwindSafe(work)));
        // Where nobody waits any more, what it returned is dropped by this thread.
        drop(to);
        Waker::from(told).wake();
        drop(counted);
    };
    detach(py, || threads::spawn("gpunet-python", body)).map_err(Failure::from)?;
    let waited =
        until_ready(py, &notify, Limit::Never, |_| lock(&result).take().map_or(Poll::Pending, Poll::Ready));
    match waited? {
        // A panic is the caller's, who has it as PanicException.
        Waited::Done(value) => Ok(value.unwrap_or_else(|panic| resume_unwind(panic))),
        Waited::WouldBlock | Waited::TimedOut => Err(Failure::would_block().into()),
    }
}

/// Waits until nothing goes on.
///
/// # Errors
/// What a signal handler raised.
pub(crate) fn wait_for_all(py: Python<'_>) -> PyResult<()> {
    let going = going();
    // Ordering: Acquire, pairs with the end of a job.
    let ended = |_: &mut Context<'_>| match going.jobs.load(Ordering::Acquire) {
        0 => Poll::Ready(()),
        _ => Poll::Pending,
    };
    until_ready(py, &going.ended, Limit::Never, ended).map(drop)
}
