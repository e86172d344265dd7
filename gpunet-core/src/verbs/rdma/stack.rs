//! What the parts of an opened RDMA stack share.

use std::sync::Arc;

use super::ffi::Library;
use super::janitor::JanitorThread;
use super::pool::Pool;

/// What all parts share.
pub(super) struct Stack {
    pub(super) library: &'static Library,
    pub(super) pool: Arc<Pool>,
    pub(super) janitor_thread: JanitorThread,
}
