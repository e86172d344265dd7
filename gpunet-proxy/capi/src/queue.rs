//! Queues: socket operations in order, by a thread on the CPU device or on a CUDA stream.

mod callback;

use crate::attachment::gpunet_host_attachment_t;
use crate::device::{gpunet_host_receiver_t, gpunet_host_sender_t};
use crate::failure::{Failure, done};
use crate::handle::handles;
use crate::memory::{self, Out};
use callback::Callbacks;
use gpu_usermap::cuda::NoStreamMemoryOperations;
use gpunet_device::{Buffer, Gate, Trigger};
use gpunet_proxy::abi::Word;
use gpunet_proxy::queue::{Outcome, Queue};
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Operations on sockets of a device, in order. Any thread may use it; operations of several threads are in some order. One call
/// at a time enqueues: where a CUDA stream is full, it and those of other threads on the queue wait for room in it.
pub struct gpunet_host_queue_t(());

handles! { gpunet_host_queue_t, QUEUES: QueueObject, 9, "queue" }

/// How a queue has fared.
#[repr(C)]
pub struct gpunet_host_queue_report {
    /// Operations that are done, failed ones among them. Each trigger of a post, each gate of a wait, each notify and each
    /// synchronize is one operation.
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

/// Is told once that what a queue was given before is done: `error` is 0, or the queue's first failure as a negative errno.
///
/// It runs on a thread of the queue's own, one callback after the other, and may make any call. Operations behind it do not
/// wait for it. No C++ exception may leave it.
pub type gpunet_host_done_fn = Option<unsafe extern "C" fn(user: *mut c_void, error: c_int)>;

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

    /// Uses the queue, which is not destroyed meanwhile.
    fn with<R>(&self, body: impl FnOnce(&mut Queue) -> Result<R, Failure>) -> Result<R, Failure> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.as_mut().ok_or_else(|| Failure::of(libc::EBADF)).and_then(body)
    }
}

fn failure(error: io::Error) -> Failure {
    if let Some(refused) = error.get_ref().and_then(|error| error.downcast_ref::<NoStreamMemoryOperations>())
    {
        return Failure::from(refused.clone());
    }
    match error.raw_os_error() {
        Some(libc::EBUSY) => Failure::new(libc::EBUSY, "another queue has operations of the direction"),
        Some(libc::EAGAIN) => Failure::new(
            libc::EAGAIN,
            "the stream is full of operations, and none of them has passed for a second",
        ),
        Some(libc::EALREADY) => Failure::new(
            libc::EALREADY,
            "messages that were prepared before are neither published nor posted: they would be published before they are filled",
        ),
        Some(libc::EINVAL) => {
            Failure::new(libc::EINVAL, "0 bytes, or a direction that the program has not taken")
        }
        _ => Failure::from(error),
    }
}

/// Uses a queue in a call that enqueues.
fn enqueue(
    queue: *const gpunet_host_queue_t,
    body: impl FnOnce(&mut Queue) -> io::Result<()>,
) -> Result<(), Failure> {
    gpunet_host_queue_t::of(queue)?.with(|queue| body(queue).map_err(failure))
}

/// Receives the queue's outcome when all that was enqueued before is done; nothing, if the queue ends before.
fn when_done(queue: &mut Queue) -> Result<Receiver<Outcome>, Failure> {
    let (sender, done) = channel();
    // Nobody waits if the receiver was dropped.
    queue.on_done(move |outcome| _ = sender.send(outcome)).map_err(failure)?;
    Ok(done)
}

/// What a callback is told.
fn error_of(outcome: Option<Outcome>) -> c_int {
    match outcome {
        Some(outcome) => outcome.failure.map_or(0, |failure| -failure.error.errno()),
        None => -libc::ECANCELED,
    }
}

/// A message in memory of the device or of the host.
fn buffer(data: *mut c_void, len: usize) -> Result<Buffer, Failure> {
    if data.is_null() {
        return Err(Failure::new(libc::EFAULT, "the data is null"));
    }
    // SAFETY: memory of the device, which stays and which nobody else uses until the operation is done: the caller's promise.
    Ok(unsafe { Buffer::from_raw_parts(data.cast(), len) })
}

/// A word of the program's own.
fn word(address: *mut u64) -> Result<Word, Failure> {
    match address.addr() {
        0 => Err(Failure::new(libc::EFAULT, "the word is null")),
        at if at % align_of::<u64>() != 0 => Err(Failure::new(libc::EINVAL, "a word is aligned to 8 bytes")),
        // SAFETY: aligned; mapped, and used by atomic accesses only, until the operation is done: the caller's promise.
        _ => Ok(unsafe { Word::from_ptr(address) }),
    }
}

/// Makes a queue of the CPU device: a thread carries out what is enqueued.
///
///     gpunet_host_queue_cpu(attachment, &queue);
///     gpunet_host_queue_send(queue, sender, message, sizeof message);
///     if (gpunet_host_queue_synchronize(queue, 60000) < 0) puts(gpunet_host_last_error());
///     gpunet_host_queue_destroy(queue);
///
/// On success `*queue` is a handle that gpunet_host_queue_destroy ends.
/// Errors: -EBADF; -EFAULT; -EOPNOTSUPP for the attachment of a GPU; -EBUSY when all launch numbers of the attachment are in use;
/// the system's, when it refuses a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_cpu(
    attachment: *const gpunet_host_attachment_t,
    queue: *mut *mut gpunet_host_queue_t,
) -> c_int {
    done(|| {
        let out = Out::new(queue, "queue")?;
        let made = gpunet_host_attachment_t::of(attachment)?.with(|attachment| {
            if attachment.cuda().is_some() {
                return Err(Failure::new(
                    libc::EOPNOTSUPP,
                    "the queues of a GPU are on streams: gpunet_host_queue_cuda",
                ));
            }
            Ok(Queue::cpu(attachment)?)
        })?;
        QueueObject::enter(made, &out)
    })
}

/// Makes a queue on a CUDA stream of the attachment's context: a CUstream, or a cudaStream_t, made with cudaStreamNonBlocking.
/// Kernels and copies that the program puts on the stream run in the order of the queue's operations. The stream stays until
/// the queue is destroyed and all its operations are done.
///
///     fill<<<blocks, threads, 0, stream>>>(message);
///     gpunet_host_queue_send(queue, sender, message, bytes);
///     gpunet_host_queue_recv(queue, receiver, answer, bytes);
///     check<<<blocks, threads, 0, stream>>>(answer);
///
/// Make queues before anything waits on a stream, because it loads kernels.
///
/// On success `*queue` is a handle that gpunet_host_queue_destroy ends.
/// Errors: -EBADF; -EFAULT; -EOPNOTSUPP for the attachment of the CPU device, and when the driver (CUDA 11.7 is needed) or the
/// environment (CUDA_LAUNCH_BLOCKING) does not let streams wait for words: the reason says which; -EINVAL for a default stream or one
/// of another context; -EBUSY when all launch numbers of the attachment are in use; -EIO with CUDA's error; the system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_cuda(
    attachment: *const gpunet_host_attachment_t,
    custream: *mut c_void,
    queue: *mut *mut gpunet_host_queue_t,
) -> c_int {
    done(|| {
        let out = Out::new(queue, "queue")?;
        let made = gpunet_host_attachment_t::of(attachment)?.with(|attachment| {
            let text = "the CPU device has no CUDA streams: gpunet_host_queue_cpu";
            let device = attachment.cuda().ok_or_else(|| Failure::new(libc::EOPNOTSUPP, text))?;
            // SAFETY: a live stream that outlives the queue and its operations: the caller's promise.
            let stream = unsafe { device.borrow_stream(custream) }?;
            Queue::cuda(attachment, stream).map_err(failure)
        })?;
        QueueObject::enter(made, &out)
    })
}

/// Sends `len` bytes, any number, from memory of the device or of the host. The memory stays, and nobody writes it, until the
/// operation is done. It is sent after all that was published before.
///
/// Errors: -EBADF; -EFAULT; -EINVAL for 0 bytes; -EALREADY when messages that were prepared before are neither published nor posted
/// on a queue; -EBUSY as long as another queue has operations of the direction; -ENOBUFS when the socket's stream has no more
/// positions; -EAGAIN when the CUDA stream is full of operations and none of them passes for a second; -EIO with CUDA's error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_send(
    queue: *const gpunet_host_queue_t,
    sender: *const gpunet_host_sender_t,
    data: *const c_void,
    len: usize,
) -> c_int {
    done(|| {
        let (from, sender) = (buffer(data.cast_mut(), len)?, gpunet_host_sender_t::of(sender)?);
        gpunet_host_queue_t::of(queue)?
            .with(|queue| sender.with(|sender| queue.send(sender, from).map_err(failure)))
    })
}

/// Receives exactly `len` bytes into memory of the device or of the host, which stays, and which nobody else uses, until the
/// operation is done.
///
/// Errors: as gpunet_host_queue_send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_recv(
    queue: *const gpunet_host_queue_t,
    receiver: *const gpunet_host_receiver_t,
    data: *mut c_void,
    len: usize,
) -> c_int {
    done(|| {
        let (to, receiver) = (buffer(data, len)?, gpunet_host_receiver_t::of(receiver)?);
        gpunet_host_queue_t::of(queue)?
            .with(|queue| receiver.with(|receiver| queue.recv(receiver, to).map_err(failure)))
    })
}

/// Releases `count` triggers in their order. One that comes too late does nothing.
///
///     gpunet_trigger_t posts[] = {first.post, second.post};
///     gpunet_host_queue_post(queue, posts, 2);
///
/// Errors: -EBADF, also when the program has no such socket; -EFAULT; -EINVAL when it has not taken that direction; -EBUSY, -EAGAIN
/// and -EIO as in gpunet_host_queue_send; -EOPNOTSUPP while the CUDA stream is being captured (a graph has sends and receives only).
/// After -EBADF and -EINVAL none is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_post(
    queue: *const gpunet_host_queue_t,
    triggers: *const Trigger,
    count: usize,
) -> c_int {
    done(|| {
        let triggers = memory::slice(triggers, count)?;
        enqueue(queue, |queue| queue.post(triggers))
    })
}

/// Waits until `count` gates have passed: what is enqueued behind it is done afterwards. The call itself does not wait.
///
///     gpunet_host_queue_wait(queue, &expected.arrived, 1);
///     check<<<blocks, threads, 0, stream>>>(expected.span);
///     gpunet_host_queue_post(queue, &expected.consume, 1);
///
/// Errors: as gpunet_host_queue_post.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_wait(
    queue: *const gpunet_host_queue_t,
    gates: *const Gate,
    count: usize,
) -> c_int {
    done(|| {
        let gates = memory::slice(gates, count)?;
        enqueue(queue, |queue| queue.wait(gates))
    })
}

/// Publishes a value in a word of the program's own: what the queue did before is visible to whoever observes it. The word is
/// memory of the device, or on a GPU memory of the host that it has mapped, aligned to 8 bytes; it stays until the operation is
/// done. Read it by an atomic load (acquire).
///
/// Errors: -EBADF; -EFAULT; -EINVAL when it is not aligned; -EAGAIN, -EIO and -EOPNOTSUPP as in gpunet_host_queue_post.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_write(
    queue: *const gpunet_host_queue_t,
    address: *mut u64,
    value: u64,
) -> c_int {
    done(|| {
        let word = word(address)?;
        enqueue(queue, |queue| queue.write(word, value))
    })
}

/// Waits until a word of the program's own has reached `value`, by a signed cyclic comparison: (int64_t)(word - value) >= 0. The
/// word is as in gpunet_host_queue_write. The call itself does not wait.
///
/// Errors: as gpunet_host_queue_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_wait_word(
    queue: *const gpunet_host_queue_t,
    address: *mut u64,
    value: u64,
) -> c_int {
    done(|| {
        let word = word(address)?;
        enqueue(queue, |queue| queue.wait_word(word, value))
    })
}

/// Has `callback` called with `user`, once, when all that was enqueued before is done. After gpunet_host_queue_destroy it is
/// called, too. It gets -ECANCELED if the queue ended before.
///
///     static void tell(void *user, int error) { sem_post(user); }
///     gpunet_host_queue_notify(queue, tell, &semaphore);
///
/// Errors: -EBADF; -EINVAL for a NULL callback; the system's, when it refuses a thread; -EAGAIN, -EIO and -EOPNOTSUPP as in
/// gpunet_host_queue_post. After an error it is not called.
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

/// Waits until all that was enqueued is done, for at most `timeout_ms` milliseconds; negative: without limit. Other threads may
/// use the queue meanwhile.
///
/// Errors: -EBADF; -ETIMEDOUT; the first failure of the queue (gpunet_host_queue_outcome has more); -ECANCELED when its attachment
/// was closed before; -EAGAIN, -EIO and -EOPNOTSUPP as in gpunet_host_queue_post.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_synchronize(
    queue: *const gpunet_host_queue_t,
    timeout_ms: i64,
) -> c_int {
    done(|| {
        let done = gpunet_host_queue_t::of(queue)?.with(when_done)?;
        let outcome = match u64::try_from(timeout_ms) {
            Err(_) => done.recv().ok(),
            Ok(limit) => match done.recv_timeout(Duration::from_millis(limit)) {
                Ok(outcome) => Some(outcome),
                Err(RecvTimeoutError::Disconnected) => None,
                Err(RecvTimeoutError::Timeout) => {
                    let text = format!("the queue has operations under way after {timeout_ms} ms");
                    return Err(Failure::new(libc::ETIMEDOUT, text));
                }
            },
        };
        match error_of(outcome) {
            0 => Ok(()),
            error => Err(Failure::of(-error)),
        }
    })
}

/// Leaves how the queue has fared so far. It does not wait for operations.
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

/// Ends the queue's handle. What was enqueued is still done: synchronize before memory, words or the stream that it uses go.
/// The handle is stale from the begin of the call.
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
