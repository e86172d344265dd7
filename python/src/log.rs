//! The log: tracing's events, for Python's `logging`.
//!
//! The threads that write it must not wait for the GIL: a proxy whose threads stand still is taken
//! for dead. So they put records into a queue, which a thread of Python's empties (`gpunet._log`).

use crate::wait::{Limit, Notify, Waited, lock, until_ready};
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::fmt::Write;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// How many records wait for Python at most. Those that come later are counted.
const MOST: usize = 1000;

/// How long the end of the interpreter waits for records that were not taken.
const LONGEST_FLUSH: Duration = Duration::from_secs(1);

/// A record: its level as `logging` numbers it, the module, the text.
type Record = (i32, &'static str, String);

#[derive(Default)]
struct Queue {
    records: Mutex<Records>,
    changed: Arc<Notify>,
    taken: Arc<Notify>,
}

#[derive(Default)]
struct Records {
    waiting: VecDeque<Record>,
    lost: u64,
    /// Somebody takes them, and has taken one that is not logged yet.
    busy: bool,
}

/// The queue of this process. A child of `fork` has another.
static QUEUE: AtomicPtr<Queue> = AtomicPtr::new(null_mut());

/// The lowest level that is told.
///
/// Ordering: Relaxed. It only filters.
static LEVEL: AtomicI32 = AtomicI32::new(i32::MAX);

/// In a child of `fork` nobody takes what is in the queue.
pub(crate) fn forget_all() {
    // Ordering: Relaxed; the child has one thread.
    QUEUE.store(null_mut(), Ordering::Relaxed);
    LEVEL.store(i32::MAX, Ordering::Relaxed);
}

/// The queue, from the first call of [`log_level`] on.
fn queue() -> Option<&'static Queue> {
    // Ordering: Acquire, pairs with the store in `log_level`.
    let queue = QUEUE.load(Ordering::Acquire);
    // SAFETY: null, or from a box that is never freed.
    unsafe { queue.as_ref() }
}

const fn number(level: Level) -> i32 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

struct ToQueue;

impl<S: Subscriber> Layer<S> for ToQueue {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.is_event() && number(*metadata.level()) >= LEVEL.load(Ordering::Relaxed)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(queue) = queue() else { return };
        let mut text = Text::default();
        event.record(&mut text);
        let mut records = lock(&queue.records);
        if records.waiting.len() >= MOST {
            records.lost += 1;
            return;
        }
        let text = format!("{}{}", text.message, text.fields);
        records.waiting.push_back((number(*event.metadata().level()), event.metadata().target(), text));
        drop(records);
        Waker::from(queue.changed.clone()).wake();
    }
}

/// An event as text: the message, and ` name=value` for each field.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// Tells events from a level on, as `logging` numbers it.
#[pyfunction]
pub(crate) fn log_level(level: i32) {
    static INSTALL: Once = Once::new();
    // It fails only if there is a subscriber, and nobody else in this module sets one.
    INSTALL.call_once(|| {
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(ToQueue));
    });
    if queue().is_none() {
        // Ordering: Release, pairs with the load in `queue`. The GIL makes it one writer.
        QUEUE.store(Box::into_raw(Box::default()), Ordering::Release);
    }
    if LEVEL.swap(level, Ordering::Relaxed) != level {
        // What was dropped by the old level may pass by the new one.
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Waits for the next record.
#[pyfunction]
pub(crate) fn next_record(py: Python<'_>) -> PyResult<Option<Record>> {
    let Some(queue) = queue() else { return Ok(None) };
    lock(&queue.records).busy = false;
    Waker::from(queue.taken.clone()).wake();
    let take = |_: &mut std::task::Context<'_>| {
        let mut records = lock(&queue.records);
        let lost = std::mem::take(&mut records.lost);
        let next = if lost > 0 {
            Some((30, "gpunet_python", format!("{lost} records of the log were lost")))
        } else {
            records.waiting.pop_front()
        };
        match next {
            Some(record) => {
                records.busy = true;
                Poll::Ready(record)
            }
            None => Poll::Pending,
        }
    };
    match until_ready(py, &queue.changed, Limit::Never, take)? {
        Waited::Done(record) => Ok(Some(record)),
        Waited::WouldBlock | Waited::TimedOut => Ok(None),
    }
}

/// Waits until all records are logged, for a while.
///
/// # Errors
/// What a signal handler raised.
pub(crate) fn flush(py: Python<'_>) -> PyResult<()> {
    let Some(queue) = queue() else { return Ok(()) };
    let is_empty = |_: &mut std::task::Context<'_>| {
        let records = lock(&queue.records);
        if records.waiting.is_empty() && !records.busy { Poll::Ready(()) } else { Poll::Pending }
    };
    until_ready(py, &queue.taken, Limit::Until(Instant::now() + LONGEST_FLUSH), is_empty).map(drop)
}
