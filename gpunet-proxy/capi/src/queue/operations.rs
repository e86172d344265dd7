//! The operations of a queue.

use super::gpunet_host_queue_t;
use crate::device::{TakenObject, gpunet_host_receiver_t, gpunet_host_sender_t};
use crate::failure::{Failure, done};
use crate::memory::{self, Out};
use gpunet_device::{Buffer, Gate, Trigger};
use gpunet_proxy::abi::Word;
use gpunet_proxy::queue::{Queue, QueueError, Started};
use std::ffi::{c_int, c_void};

/// A message that travels while later operations of its queue run. gpunet_host_queue_start_send and
/// gpunet_host_queue_start_recv store it, for gpunet_host_queue_finish. It is a plain value: it may
/// be copied, and need not be freed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gpunet_host_started {
    /// Which queue has started it.
    pub queue: u64,
    /// Which message of its direction it is, from 1 on.
    pub number: u64,
    /// GPUNET_SEND or GPUNET_RECV.
    pub direction: u32,
    /// 0.
    pub reserved: u32,
}

impl From<Started> for gpunet_host_started {
    fn from(started: Started) -> Self {
        let (queue, direction, number) = started.to_raw();
        Self { queue, number, direction, reserved: 0 }
    }
}

/// A message in memory of the device or of the host.
fn buffer(data: *mut c_void, len: usize) -> Result<Buffer, Failure> {
    if data.is_null() {
        return Err(Failure::new(libc::EFAULT, "the data is null"));
    }
    if len == 0 {
        return Err(Failure::new(libc::EINVAL, "a message has at least 1 byte"));
    }
    // SAFETY: memory of the device, which stays, and which no other code uses until the operation
    // is done: the caller's promise.
    Ok(unsafe { Buffer::from_raw_parts(data.cast(), len) })
}

/// Uses a queue in a call that enqueues.
fn enqueue(
    queue: *const gpunet_host_queue_t,
    body: impl FnOnce(&mut Queue) -> Result<(), QueueError>,
) -> Result<(), Failure> {
    gpunet_host_queue_t::of(queue)?.with(|queue| Ok(body(queue)?))
}

/// The same for a message of a direction.
fn enqueue_message<T, R>(
    queue: *const gpunet_host_queue_t,
    direction: &TakenObject<T>,
    body: impl FnOnce(&mut Queue, &mut T) -> Result<R, QueueError>,
) -> Result<R, Failure> {
    gpunet_host_queue_t::of(queue)?.with(|queue| direction.with(|direction| Ok(body(queue, direction)?)))
}

/// The same for a word of the program's own.
fn enqueue_word(
    queue: *const gpunet_host_queue_t,
    address: *mut u64,
    body: impl FnOnce(&mut Queue, Word) -> Result<(), QueueError>,
) -> Result<(), Failure> {
    let word = match address.addr() {
        0 => return Err(Failure::new(libc::EFAULT, "the word is null")),
        at if at % align_of::<u64>() != 0 => {
            return Err(Failure::new(libc::EINVAL, "a word is aligned to 8 bytes"));
        }
        // SAFETY: aligned; mapped, and used by atomic accesses only, until the operation is done:
        // the caller's promise.
        _ => unsafe { Word::from_ptr(address) },
    };
    enqueue(queue, |queue| body(queue, word))
}

/// Sends `len` bytes, any number, from memory of the device or of the host. The memory stays, and
/// nobody writes it, until the operation is done. It is sent after all that was published before.
///
/// Errors: -EBADF; -EFAULT; -EINVAL for 0 bytes; -EALREADY when messages that were prepared before
/// are neither published nor posted on a queue; -EBUSY as long as another queue has operations of
/// the direction; -ENOBUFS when the socket's stream has no more positions; -EAGAIN when the CUDA
/// stream is full of operations and none of them passes for a second; -EOPNOTSUPP for pageable
/// memory where the operation is a kernel (while the stream is being captured, or with
/// GPUNET_HOST_QUEUE_KERNELS); -EIO with CUDA's error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_send(
    queue: *const gpunet_host_queue_t,
    sender: *const gpunet_host_sender_t,
    data: *const c_void,
    len: usize,
) -> c_int {
    done(|| {
        let (from, sender) = (buffer(data.cast_mut(), len)?, gpunet_host_sender_t::of(sender)?);
        enqueue_message(queue, &sender, |queue, sender| queue.send(sender, from))
    })
}

/// Receives exactly `len` bytes into memory of the device or of the host, which stays, and which
/// nobody else uses, until the operation is done.
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
        enqueue_message(queue, &receiver, |queue, receiver| queue.recv(receiver, to))
    })
}

/// Begins to send `len` bytes, as gpunet_host_queue_send, when all that was enqueued before is
/// done, and leaves in `*started` what gpunet_host_queue_finish waits for. What follows on the
/// queue does not wait for the message; only operations of sending directions do. So a program
/// sends and receives at once.
///
///     gpunet_host_started both[2];
///     gpunet_host_queue_start_send(queue, sender, message, bytes, &both[0]);
///     gpunet_host_queue_start_recv(queue, receiver, answer, bytes, &both[1]);
///     gpunet_host_queue_finish(queue, both, 2);
///     check<<<blocks, threads, 0, stream>>>(answer);
///
/// The memory stays, and nobody writes it, until gpunet_host_queue_finish has waited for it on the
/// queue.
///
/// Errors: as gpunet_host_queue_send; -EOPNOTSUPP while the CUDA stream is being captured, and
/// where the queue's operations are kernels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_start_send(
    queue: *const gpunet_host_queue_t,
    sender: *const gpunet_host_sender_t,
    data: *const c_void,
    len: usize,
    started: *mut gpunet_host_started,
) -> c_int {
    done(|| {
        let (out, from) = (Out::new(started, "started")?, buffer(data.cast_mut(), len)?);
        let sender = gpunet_host_sender_t::of(sender)?;
        let started = enqueue_message(queue, &sender, |queue, sender| queue.start_send(sender, from))?;
        out.put(started.into());
        Ok(())
    })
}

/// Begins to receive exactly `len` bytes, as gpunet_host_queue_start_send sends. The memory stays,
/// and nobody else uses it, until gpunet_host_queue_finish has waited for it on the queue.
///
/// Errors: as gpunet_host_queue_start_send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_start_recv(
    queue: *const gpunet_host_queue_t,
    receiver: *const gpunet_host_receiver_t,
    data: *mut c_void,
    len: usize,
    started: *mut gpunet_host_started,
) -> c_int {
    done(|| {
        let (out, to) = (Out::new(started, "started")?, buffer(data, len)?);
        let receiver = gpunet_host_receiver_t::of(receiver)?;
        let started = enqueue_message(queue, &receiver, |queue, receiver| queue.start_recv(receiver, to))?;
        out.put(started.into());
        Ok(())
    })
}

/// Has the queue wait until `count` messages that it has started are done: operations that are
/// enqueued later come after them. The call itself does not wait. Messages may be done already; one
/// that has failed counts as done (gpunet_host_queue_outcome).
///
/// Errors: -EBADF; -EFAULT; -EINVAL for what this queue has not started: then it waits for none of
/// them; -EAGAIN, -EIO and -EOPNOTSUPP as in gpunet_host_queue_post.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_finish(
    queue: *const gpunet_host_queue_t,
    started: *const gpunet_host_started,
    count: usize,
) -> c_int {
    done(|| {
        let started = memory::slice(started, count)?
            .iter()
            .map(|started| Started::from_raw(started.queue, started.direction, started.number))
            .collect::<Option<Vec<_>>>();
        let started =
            started.ok_or_else(|| Failure::new(libc::EINVAL, "no queue has started such a message"))?;
        gpunet_host_queue_t::of(queue)?.with(|queue| Ok(queue.finish(&started)?))
    })
}

/// Releases `count` triggers in their order. A trigger that comes too late does nothing.
///
///     gpunet_trigger_t posts[] = {first.post, second.post};
///     gpunet_host_queue_post(queue, posts, 2);
///
/// Errors: -EBADF, also when the program has no such socket; -EFAULT; -EINVAL when it has not taken
/// that direction; -EBUSY, -EAGAIN and -EIO as in gpunet_host_queue_send; -EOPNOTSUPP while the
/// CUDA stream is being captured (a graph has sends and receives only). -EDEADLK for a trigger that
/// opens a gate at which the queue waits before it. After -EBADF, -EINVAL and -EDEADLK none is
/// released.
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

/// Has the queue wait until `count` gates have passed: operations that are enqueued later come
/// afterwards. The call itself does not wait.
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

/// Publishes a value in a word of the program's own. Whoever observes the value sees what the queue
/// did before. The word is memory of the device, or on a GPU memory of the host that the GPU has
/// mapped; it is aligned to 8 bytes. It stays valid until the operation is done. Read it by an
/// atomic load (acquire).
///
/// Errors: -EBADF; -EFAULT; -EINVAL when it is not aligned; -EAGAIN, -EIO and -EOPNOTSUPP as in
/// gpunet_host_queue_post.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_write(
    queue: *const gpunet_host_queue_t,
    address: *mut u64,
    value: u64,
) -> c_int {
    done(|| enqueue_word(queue, address, |queue, word| queue.write(word, value)))
}

/// Waits until a word of the program's own has reached `value`, by a signed cyclic comparison:
/// (int64_t)(word - value) >= 0. The word is as in gpunet_host_queue_write. The call itself does
/// not wait.
///
/// Errors: as gpunet_host_queue_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_wait_word(
    queue: *const gpunet_host_queue_t,
    address: *mut u64,
    value: u64,
) -> c_int {
    done(|| enqueue_word(queue, address, |queue, word| queue.wait_word(word, value)))
}

/// Stores the queue's state in a word of the program's own, as gpunet_host_queue_write does: 0, or
/// the errno (positive) of its first failure. A kernel behind it on the stream reads the word, and
/// need not work on bytes that never came. The call itself does not wait.
///
///     gpunet_host_queue_recv(queue, receiver, answer, bytes);
///     gpunet_host_queue_check(queue, failed);
///     use<<<blocks, threads, 0, stream>>>(answer, failed);   // ends at once if *failed is not 0
///
/// Errors: as gpunet_host_queue_write; -EOPNOTSUPP also where the queue's operations are kernels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_check(
    queue: *const gpunet_host_queue_t,
    address: *mut u64,
) -> c_int {
    done(|| enqueue_word(queue, address, |queue, word| queue.check(word)))
}
