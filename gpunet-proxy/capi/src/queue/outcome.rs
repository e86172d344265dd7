//! How a program learns what a queue has done, and how it ends a queue.

use super::gpunet_host_queue_t;
use crate::failure::{Failure, done};
use crate::memory::Out;
use gpunet_proxy::queue::{Queue, QueueOutcome};
use std::ffi::{c_int, c_void};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How far a queue has come, and its first failure.
#[repr(C)]
pub struct gpunet_host_queue_report {
    /// Operations that are done, including failed ones. Each trigger of a post, each gate of a
    /// wait, each notify and each synchronize is one operation.
    pub done: u64,
    /// The first operation that failed: 0 for the first that was enqueued.
    pub operation: u64,
    /// Bytes of it that were sent or received before.
    pub bytes: u64,
    /// Why it failed, a negative errno; 0: none has failed.
    pub error: c_int,
    /// 0.
    pub reserved: c_int,
}

/// Called once, when all operations that were enqueued before are done: `error` is 0, or the
/// queue's first failure as a negative errno.
///
/// It runs on a thread of the queue's own, one callback after the other, and may make any call.
/// Operations behind it do not wait for it. No C++ exception may leave it.
pub type gpunet_host_done_fn = Option<unsafe extern "C" fn(user: *mut c_void, error: c_int)>;

/// Returns a receiver of the queue's outcome, which arrives when all earlier operations are done.
/// It receives nothing if the queue ends before that.
fn when_done(queue: &mut Queue) -> Result<Receiver<QueueOutcome>, Failure> {
    let (sender, done) = channel();
    // No caller waits if the receiver was dropped.
    queue.on_done(move |outcome| _ = sender.send(outcome))?;
    Ok(done)
}

/// Returns the error that a callback receives.
pub(super) fn error_of(outcome: Option<QueueOutcome>) -> c_int {
    match outcome {
        Some(outcome) => outcome.failure.map_or(0, |failure| -failure.error.errno()),
        None => -libc::ECANCELED,
    }
}

/// Calls `callback` with `user`, once, when all operations that were enqueued before are done, also
/// after gpunet_host_queue_destroy. The callback gets -ECANCELED if the queue ended before that.
///
///     static void tell(void *user, int error) { sem_post(user); }
///     gpunet_host_queue_notify(queue, tell, &semaphore);
///
/// Errors: -EBADF; -EINVAL for a NULL callback; the system's, when it refuses a thread; -EAGAIN,
/// -EIO and -EOPNOTSUPP as in gpunet_host_queue_post. After an error it is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_notify(
    queue: *const gpunet_host_queue_t,
    callback: gpunet_host_done_fn,
    user: *mut c_void,
) -> c_int {
    done(|| {
        let object = gpunet_host_queue_t::of(queue)?;
        let Some(callback) = callback else {
            return Err(Failure::new(libc::EINVAL, "the callback is null"));
        };
        object.with(|queue| object.callbacks.tell(callback, user, || when_done(queue)))
    })
}

/// Waits until all that was enqueued is done, for at most `timeout_ns` nanoseconds; negative:
/// without limit; 0: asks only, and enqueues nothing. Other threads may use the queue meanwhile.
///
/// Errors: -EBADF; -ETIMEDOUT; the first failure of the queue (gpunet_host_queue_outcome has more,
/// and tells whether -ETIMEDOUT is one); -ECANCELED when its attachment was closed before; -EAGAIN,
/// -EIO and -EOPNOTSUPP as in gpunet_host_queue_post.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_synchronize(
    queue: *const gpunet_host_queue_t,
    timeout_ns: i64,
) -> c_int {
    done(|| {
        let object = gpunet_host_queue_t::of(queue)?;
        let late = || {
            let limit = Duration::from_nanos(timeout_ns.unsigned_abs());
            Failure::new(libc::ETIMEDOUT, format!("the queue has operations under way after {limit:?}"))
        };
        let outcome = match u64::try_from(timeout_ns) {
            Err(_) => object.with(when_done)?.recv().ok(),
            Ok(0) => {
                Some(object.with(|queue| if queue.is_idle() { Ok(queue.outcome()) } else { Err(late()) })?)
            }
            Ok(limit) => match object.with(when_done)?.recv_timeout(Duration::from_nanos(limit)) {
                Ok(outcome) => Some(outcome),
                Err(RecvTimeoutError::Disconnected) => None,
                Err(RecvTimeoutError::Timeout) => return Err(late()),
            },
        };
        match error_of(outcome) {
            0 => Ok(()),
            error => Err(Failure::of(-error)),
        }
    })
}

/// Stores in `*outcome` how far the queue has come, and its first failure. It does not wait for
/// operations.
///
///     gpunet_host_queue_report report;
///     gpunet_host_queue_outcome(queue, &report);
///     if (report.error < 0) printf("operation %llu: %s\n", (unsigned long long)report.operation, strerror(-report.error));
///
/// Errors: -EBADF; -EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_outcome(
    queue: *const gpunet_host_queue_t,
    outcome: *mut gpunet_host_queue_report,
) -> c_int {
    done(|| {
        let out = Out::new(outcome, "outcome")?;
        let found = gpunet_host_queue_t::of(queue)?.with(|queue| Ok(queue.outcome()))?;
        let (operation, bytes, error) = found
            .failure
            .map_or((0, 0, 0), |failure| (failure.operation, failure.bytes, -failure.error.errno()));
        out.put(gpunet_host_queue_report { done: found.done, operation, bytes, error, reserved: 0 });
        Ok(())
    })
}

/// Ends the queue's handle. Enqueued operations are still carried out: synchronize before you free
/// their memory and words, or destroy the stream. The handle is stale once the call has begun.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_destroy(queue: *mut gpunet_host_queue_t) -> c_int {
    done(|| {
        let object = gpunet_host_queue_t::take(queue)?;
        drop(object.take());
        Ok(())
    })
}
