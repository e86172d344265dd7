//! Numbers that are unique in the process.

use gpunet_core::ids::HostRequestId;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueId(pub(crate) u64);

impl QueueId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Ordering: Relaxed; only unique.
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Requests made by this process.
static MADE: AtomicU32 = AtomicU32::new(0);

/// The id of a new request. It differs from those of all requests without an answer, unless there
/// are two thousand million of them.
pub(crate) fn next_host_request() -> HostRequestId {
    // Ordering: Relaxed; the number only has to differ.
    HostRequestId::new(MADE.fetch_add(1, Ordering::Relaxed))
}
