//! What all threads of the proxy know of one attachment.

use gpunet_core::memory::SharedMemory;
use std::sync::atomic::{AtomicU64, Ordering};

/// One attachment, shared by the proxy's threads.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) id: u32,
    pub(crate) memory: SharedMemory,
    /// A GPU: its stores raise no event, so somebody has to look.
    pub(crate) polled: bool,
    pub(crate) totals: Totals,
}

/// Totals of an attachment since it was made.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    opened: AtomicU64,
    closed: AtomicU64,
    undelivered: AtomicU64,
}

/// A snapshot of an attachment's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Streams opened.
    pub opened: u64,
    /// Streams closed and forgotten.
    pub closed: u64,
    /// Bytes that a send accepted and that did not reach the peer's side.
    pub undelivered: u64,
}

impl Totals {
    // Ordering: Relaxed throughout; counters for people, nothing is ordered by them.
    pub(crate) fn open(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn close(&self, undelivered: u64) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        self.undelivered.fetch_add(undelivered, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            opened: self.opened.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
            undelivered: self.undelivered.load(Ordering::Relaxed),
        }
    }
}
