//! Directions of a device's socket that the program has taken, and the messages that it prepares in
//! them.

use super::{Role, gpunet_host_device_socket_t};
use crate::failure::{Failure, done};
use crate::handle::handles;
use crate::memory::Out;
use gpunet_device::{Gate, Prepared, Trigger};
use gpunet_posix::in_place::Span;
use gpunet_proxy::socket::{DirectionError, DirectionOutcome, Receiver, Sender};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The sending direction of a device's socket, taken from the kernels. Any thread may use it.
pub struct gpunet_host_sender_t(());

handles! { gpunet_host_sender_t, SENDERS: TakenObject<Sender>, 7, "sender" }

/// The receiving direction of a device's socket, taken from the kernels. Any thread may use it.
pub struct gpunet_host_receiver_t(());

handles! { gpunet_host_receiver_t, RECEIVERS: TakenObject<Receiver>, 8, "receiver" }

/// A direction that is taken.
pub(crate) struct TakenObject<T> {
    /// `None` once it was given back.
    direction: Mutex<Option<T>>,
}

impl<T> TakenObject<T> {
    fn new(direction: T) -> Arc<Self> {
        Arc::new(Self { direction: Mutex::new(Some(direction)) })
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.direction.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the direction, which stays taken during the call.
    ///
    /// # Errors
    /// EBADF, when it was given back.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> Result<R, Failure>) -> Result<R, Failure> {
        self.lock().as_mut().ok_or_else(|| Failure::of(libc::EBADF)).and_then(body)
    }

    /// Takes the direction out.
    fn take(&self) -> Result<T, Failure> {
        self.lock().take().ok_or_else(|| Failure::of(libc::EBADF))
    }
}

/// A message to send: its place in the ring, and what kernels and queues do with it.
#[repr(C)]
pub struct gpunet_host_send_message {
    /// The message as a kernel's parameter. Kernels derive the rest from it, and the messages of
    /// the same length that follow: `position` + i * `len`.
    pub prepared: Prepared,
    /// Where it lies, addresses of the device: two pieces, the second for what wraps round the
    /// ring's end. It is written once `room` has passed.
    pub span: Span,
    /// Passes once the ring has room for the message.
    pub room: Gate,
    /// Publishes the message, and all before it.
    pub post: Trigger,
    /// Passes once the peer, or the proxy, has released the message: its place is free again.
    pub done: Gate,
}

/// A message to receive: its place in the ring, and what kernels and queues do with it.
#[repr(C)]
pub struct gpunet_host_recv_message {
    /// The message as a kernel's parameter, as in gpunet_host_send_message.
    pub prepared: Prepared,
    /// Where it lies, addresses of the device, as in gpunet_host_send_message. It is read once
    /// `arrived` has passed.
    pub span: Span,
    /// Passes once the whole message has landed.
    pub arrived: Gate,
    /// Gives the message's bytes back to the peer, and all before it, once it is read.
    pub consume: Trigger,
}

/// How far a taken direction has progressed, and why it has ended.
#[repr(C)]
pub struct gpunet_host_direction_report {
    /// Bytes since the stream was opened: of a sender those that the peer, or the proxy, has
    /// released; of a receiver those that have landed.
    pub position: u64,
    /// 0 while the direction is open; else a negative errno: -ENODATA when the peer ended the
    /// stream in good order, -EPIPE when it reads no more, or the stream's failure.
    pub error: c_int,
    /// 0.
    pub reserved: c_int,
}

impl From<DirectionOutcome> for gpunet_host_direction_report {
    fn from(outcome: DirectionOutcome) -> Self {
        let error = outcome.error.map_or(0, |error| -error.errno());
        Self { position: outcome.position, error, reserved: 0 }
    }
}

fn take<T>(
    socket: *const gpunet_host_device_socket_t,
    take: impl FnOnce(&gpunet_proxy::socket::Socket) -> Result<T, DirectionError>,
) -> Result<Arc<TakenObject<T>>, Failure> {
    gpunet_host_device_socket_t::of(socket)?.with(|role| match role {
        Role::Stream(socket) => Ok(TakenObject::new(take(socket)?)),
        Role::Listener(_) => Err(Failure::new(libc::ENOTCONN, "the socket listens, and is not connected")),
    })
}

/// Takes the sending direction of a stream from the kernels: those that send by the socket's number
/// get -EALREADY meanwhile. The program places messages in the direction's ring
/// (gpunet_host_sender_prepare), which kernels and queues fill and publish, or has a queue send
/// (gpunet_host_queue_send). Bytes that were sent before are delivered first.
///
/// On success `*sender` is a handle that gpunet_host_sender_give_back ends. Errors: -EBADF, also
/// when a kernel has closed the socket; -EFAULT; -ENOTCONN of a listener; -EBUSY when a launch that
/// runs knows the socket, or may; -EALREADY when the program has the direction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_device_take_send(
    socket: *const gpunet_host_device_socket_t,
    sender: *mut *mut gpunet_host_sender_t,
) -> c_int {
    done(|| {
        let out = Out::new(sender, "sender")?;
        out.put(gpunet_host_sender_t::new(take(socket, |socket| socket.take_send())?)?);
        Ok(())
    })
}

/// Takes the receiving direction of a stream from the kernels, as gpunet_host_device_take_send.
///
/// On success `*receiver` is a handle that gpunet_host_receiver_give_back ends.
/// Errors: as gpunet_host_device_take_send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_device_take_recv(
    socket: *const gpunet_host_device_socket_t,
    receiver: *mut *mut gpunet_host_receiver_t,
) -> c_int {
    done(|| {
        let out = Out::new(receiver, "receiver")?;
        out.put(gpunet_host_receiver_t::new(take(socket, |socket| socket.take_recv())?)?);
        Ok(())
    })
}

/// Reserves `len` bytes of the ring for the next message, and stores its place, gates and trigger
/// in `*message`. As many messages may be prepared ahead as the ring holds. They are published in
/// the order in which they were prepared; a later one publishes all before it. Before the next
/// call, wait for kernels that send further messages from one (`position` + i * `len`).
///
///     gpunet_host_send_message message;
///     gpunet_host_sender_prepare(sender, 4096, &message);
///     fill<<<blocks, threads, 0, stream>>>(net, message.prepared, message.room);
///     gpunet_host_queue_post(queue, &message.post, 1);       // if the kernel does not release the trigger itself
///
/// Errors: -EBADF; -EFAULT; -EINVAL for 0 bytes; -EMSGSIZE for more than the ring has; -ENOBUFS
/// when the ring has no room for it beside messages that are prepared and not published; -EBUSY
/// when a CUDA graph has operations of the direction; the stream's failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_sender_prepare(
    sender: *const gpunet_host_sender_t,
    len: usize,
    message: *mut gpunet_host_send_message,
) -> c_int {
    done(|| {
        let out = Out::new(message, "message")?;
        let made = gpunet_host_sender_t::of(sender)?.with(|sender| Ok(sender.prepare(len)?))?;
        let (prepared, span) = (made.prepared, Span::from(made.span));
        let (room, post, done) = (made.room, made.post, made.done);
        out.put(gpunet_host_send_message { prepared, span, room, post, done });
        Ok(())
    })
}

/// Names the next `len` bytes of the stream as a message to come, and stores its place, gate and
/// trigger in `*message`.
///
///     gpunet_host_recv_message expected;
///     gpunet_host_receiver_prepare(receiver, 4096, &expected);
///     read<<<blocks, threads, 0, stream>>>(net, expected.prepared);   // waits for it, reads it, releases its trigger
///
/// Errors: as gpunet_host_sender_prepare; -ENOBUFS when the ring has no room for it beside messages
/// that are prepared and not consumed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_receiver_prepare(
    receiver: *const gpunet_host_receiver_t,
    len: usize,
    message: *mut gpunet_host_recv_message,
) -> c_int {
    done(|| {
        let out = Out::new(message, "message")?;
        let made = gpunet_host_receiver_t::of(receiver)?.with(|receiver| Ok(receiver.prepare(len)?))?;
        let (prepared, span) = (made.prepared, Span::from(made.span));
        let (arrived, consume) = (made.arrived, made.consume);
        out.put(gpunet_host_recv_message { prepared, span, arrived, consume });
        Ok(())
    })
}

/// Stores the size of the direction's ring in bytes: the longest message that can be prepared.
///
/// Errors: -EBADF; -EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_sender_capacity(
    sender: *const gpunet_host_sender_t,
    capacity: *mut usize,
) -> c_int {
    done(|| {
        let out = Out::new(capacity, "capacity")?;
        out.put(gpunet_host_sender_t::of(sender)?.with(|sender| Ok(sender.capacity()))?);
        Ok(())
    })
}

/// Stores the size of the direction's ring in bytes: the longest message that can be prepared.
///
/// Errors: -EBADF; -EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_receiver_capacity(
    receiver: *const gpunet_host_receiver_t,
    capacity: *mut usize,
) -> c_int {
    done(|| {
        let out = Out::new(capacity, "capacity")?;
        out.put(gpunet_host_receiver_t::of(receiver)?.with(|receiver| Ok(receiver.capacity()))?);
        Ok(())
    })
}

/// Stores how far the direction has progressed, and why it has ended. An error stays.
///
/// Errors: -EBADF; -EFAULT; -EIO when the device's memory cannot be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_sender_outcome(
    sender: *const gpunet_host_sender_t,
    outcome: *mut gpunet_host_direction_report,
) -> c_int {
    done(|| {
        let out = Out::new(outcome, "outcome")?;
        out.put(gpunet_host_sender_t::of(sender)?.with(|sender| Ok(sender.outcome()?))?.into());
        Ok(())
    })
}

/// Stores how far the direction has progressed, and why it has ended. An error stays.
///
/// Errors: as gpunet_host_sender_outcome.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_receiver_outcome(
    receiver: *const gpunet_host_receiver_t,
    outcome: *mut gpunet_host_direction_report,
) -> c_int {
    done(|| {
        let out = Out::new(outcome, "outcome")?;
        out.put(gpunet_host_receiver_t::of(receiver)?.with(|receiver| Ok(receiver.outcome()?))?.into());
        Ok(())
    })
}

/// Gives the direction back to the kernels. Messages that were prepared and not published are void.
/// The handle is stale once the call has begun, whatever the call returns.
///
/// Errors: -EBADF; -EBUSY when a launch that runs knows the socket, or a queue has operations of
/// the direction: it stays taken until those are done, and gpunet_host_device_take_send gives it
/// again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_sender_give_back(sender: *mut gpunet_host_sender_t) -> c_int {
    done(|| {
        let sender = gpunet_host_sender_t::take(sender)?.take()?;
        Ok(sender.give_back()?)
    })
}

/// Gives the direction back to the kernels. Bytes that have landed and were not consumed are
/// theirs. The handle is stale once the call has begun, whatever the call returns.
///
/// Errors: as gpunet_host_sender_give_back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_receiver_give_back(receiver: *mut gpunet_host_receiver_t) -> c_int {
    done(|| {
        let receiver = gpunet_host_receiver_t::take(receiver)?.take()?;
        Ok(receiver.give_back()?)
    })
}
