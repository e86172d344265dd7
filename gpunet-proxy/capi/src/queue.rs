//! Queues: operations of sockets and teams in order, by a thread on the CPU device or on a CUDA
//! stream.
//!
//! | file | holds |
//! |---|---|
//! | `making` | how queues are made |
//! | `operations`, `team` | their operations; those of teams |
//! | `outcome` | a queue's results, and its end |
//! | `callback` | the thread that calls the program back |

mod callback;
mod making;
mod operations;
mod outcome;
mod team;

pub use making::*;
pub use operations::*;
pub use outcome::*;
pub use team::*;

use crate::failure::Failure;
use crate::handle::handles;
use crate::memory::Out;
use callback::Callbacks;
use gpunet_proxy::queue::Queue;
use std::sync::{Arc, Mutex, PoisonError};

/// Operations on sockets of a device, in order. Any thread may use it; operations of several
/// threads are in some order. One call at a time enqueues: where a CUDA stream is full, it and
/// those of other threads on the queue wait for room in it.
pub struct gpunet_host_queue_t(());

handles! { gpunet_host_queue_t, QUEUES: QueueObject, 9, "queue" }

pub(crate) struct QueueObject {
    /// `None` once it is destroyed.
    queue: Mutex<Option<Queue>>,
    callbacks: Callbacks,
}

impl QueueObject {
    fn enter(queue: Queue, out: &Out<*mut gpunet_host_queue_t>) -> Result<(), Failure> {
        let (queue, callbacks) = (Mutex::new(Some(queue)), Callbacks::default());
        out.put(gpunet_host_queue_t::new(Arc::new(Self { queue, callbacks }))?);
        Ok(())
    }

    fn take(&self) -> Option<Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Uses the queue, which is not destroyed during the call.
    fn with<R>(&self, body: impl FnOnce(&mut Queue) -> Result<R, Failure>) -> Result<R, Failure> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.as_mut().ok_or_else(|| Failure::of(libc::EBADF)).and_then(body)
    }
}
