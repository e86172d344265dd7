//! Work without the GIL, and what becomes of it when the interpreter ends.
//!
//! A daemon thread that asks for the GIL while the interpreter ends is ended by Python, with
//! `pthread_exit`, which must not pass through Rust's frames: the process would abort. So no thread
//! asks from [`end`] on, except the one that ends the interpreter. The others stay where they are
//! until the process is gone. Before, from [`begin_end`] on, proxies are closed: a daemon thread
//! whose call fails by that stays where it is, too, because nobody wants to read of it.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How many threads ask for the GIL.
static ASKING: AtomicUsize = AtomicUsize::new(0);
/// The interpreter ends: proxies are closed.
static CLOSING: AtomicBool = AtomicBool::new(false);
/// The interpreter ends: nobody asks for the GIL any more.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Does something without the GIL.
pub(crate) fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let result = py.detach(|| {
        let result = work();
        // Ordering: SeqCst, pairs with `end`: either this thread sees that the interpreter ends, or
        // it is counted and waited for.
        ASKING.fetch_add(1, Ordering::SeqCst);
        if ENDING.load(Ordering::SeqCst) && !crate::wait::is_main_thread() {
            ASKING.fetch_sub(1, Ordering::SeqCst);
            stay();
        }
        result
    });
    ASKING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Does something with the GIL, on any thread; `None` when the interpreter ends: then nothing is
/// done.
pub(crate) fn attach<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // Ordering: SeqCst, pairs with `end`, as in `detach`.
    ASKING.fetch_add(1, Ordering::SeqCst);
    let ends = ENDING.load(Ordering::SeqCst);
    let result = (!ends).then(|| Python::attach(work));
    ASKING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Runs the body of a thread that calls Python again and again, with one thread state of Python's
/// for all calls.
///
/// [`attach`] alone makes a state for each call and deletes it afterwards. `threading.local` would
/// be empty each time. And a library that pybind11 made, as PyTorch, remembers the state of the
/// thread that loads it first: with the next state, that thread would wait for the GIL that it has.
pub(crate) fn with_thread_state(body: impl FnOnce() + Send) {
    // Ordering: SeqCst, pairs with `end`, as in `detach`.
    ASKING.fetch_add(1, Ordering::SeqCst);
    if ENDING.load(Ordering::SeqCst) {
        ASKING.fetch_sub(1, Ordering::SeqCst);
        return body();
    }
    Python::attach(|py| {
        ASKING.fetch_sub(1, Ordering::SeqCst);
        detach(py, body);
    });
}

/// Keeps the thread here until the process is gone.
fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

/// The interpreter ends: this thread is about to close the proxies.
pub(crate) fn begin_end() {
    // Ordering: Relaxed; the close that makes a call fail orders it.
    CLOSING.store(true, Ordering::Relaxed);
}

/// Returns whether the interpreter ends, or is about to.
pub(crate) fn is_ending() -> bool {
    // Ordering: Relaxed; who asks looks again.
    CLOSING.load(Ordering::Relaxed)
}

/// Keeps a thread here whose call has failed while the interpreter ends, except the one that ends
/// it, and blocks, which launches wait for.
pub(crate) fn stay_if_ending(py: Python<'_>) {
    if CLOSING.load(Ordering::Relaxed) && !crate::wait::is_main_thread() && !crate::cpu::is_block() {
        py.detach(|| stay());
    }
}

/// From here on no other thread asks for the GIL. The interpreter ends, by this thread.
pub(crate) fn end(py: Python<'_>) {
    ENDING.store(true, Ordering::SeqCst);
    // Those that asked before get it meanwhile.
    py.detach(|| {
        while ASKING.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    });
}

/// In a child of `fork` nobody else asks, or ends the interpreter.
pub(crate) fn forget_all() {
    ASKING.store(0, Ordering::Relaxed);
    ENDING.store(false, Ordering::Relaxed);
    CLOSING.store(false, Ordering::Relaxed);
}
