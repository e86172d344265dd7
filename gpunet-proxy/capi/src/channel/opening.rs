//! How channels are opened and closed.

use super::line::{Line, Op};
use super::{ChannelObject, gpunet_host_channel_t};
use crate::failure::{Failure, done, int};
use crate::handle::handles;
use crate::memory::{self, Out};
use gpunet_channel::{Channel, ChannelListener, ChannelOptions};
use libc::{sockaddr, socklen_t};
use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Accepts channels at an address. Any thread may use it.
pub struct gpunet_host_channel_listener_t(());

handles! { gpunet_host_channel_listener_t, CHANNEL_LISTENERS: ListenerObject, 14, "channel listener" }

pub(crate) struct ListenerObject {
    listener: Arc<ChannelListener>,
    options: ChannelOptions,
    /// One thread accepts at a time.
    accepting: Line<Arc<ChannelListener>>,
}

/// Bytes always go by the connections, and never by a copy from memory to memory: for another end
/// that is not to see this process's memory.
pub const GPUNET_HOST_CHANNEL_NO_COPY: u32 = 1;

/// How a channel is. The two ends need not be alike. All zeros: the defaults.
#[repr(C)]
pub struct gpunet_host_channel_settings {
    /// How many connections carry transfers, 1 to 64; that of the end that connects counts. One
    /// more carries answers. 0: as many as half the CPUs, at most 8.
    pub streams: u32,
    /// GPUNET_HOST_CHANNEL_NO_COPY, or 0.
    pub flags: u32,
    /// The bytes of a piece of a transfer, 4 KiB to 64 MiB. 0: 1 MiB.
    pub piece_bytes: usize,
    /// How long a transfer may take that has begun, in nanoseconds. 0: without limit.
    pub timeout_ns: u64,
    /// The most bytes of the other end's GPU memory that stay mapped between transfers. 0: 8 GiB.
    pub mapped_bytes: u64,
    /// How long they stay mapped without being used, in nanoseconds. 0: 10 seconds.
    pub idle_ns: u64,
}

/// Reads the settings; the defaults for null.
fn settings(from: *const gpunet_host_channel_settings) -> Result<ChannelOptions, Failure> {
    let mut options = ChannelOptions::default();
    if from.is_null() {
        return Ok(options);
    }
    // SAFETY: not null, readable and aligned: the caller's promise.
    let given = unsafe { from.read() };
    if given.flags > GPUNET_HOST_CHANNEL_NO_COPY {
        return Err(Failure::new(libc::EINVAL, "flags is GPUNET_HOST_CHANNEL_NO_COPY, or 0"));
    }
    if given.streams > 0 {
        options.streams = given.streams as usize;
    }
    if given.piece_bytes > 0 {
        options.piece = given.piece_bytes;
    }
    if given.timeout_ns > 0 {
        options.timeout = Some(Duration::from_nanos(given.timeout_ns));
    }
    if given.mapped_bytes > 0 {
        options.mapped = given.mapped_bytes;
    }
    if given.idle_ns > 0 {
        options.idle = Duration::from_nanos(given.idle_ns);
    }
    options.rendezvous = given.flags & GPUNET_HOST_CHANNEL_NO_COPY == 0;
    Ok(options)
}

/// Listens for channels at a struct sockaddr_in or sockaddr_in6; port 0 takes a free one
/// (gpunet_host_channel_getsockname). Neither a proxy nor a GPU is needed. `settings` may be NULL,
/// and are those of the channels that are accepted.
///
///     struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7000)};
///     gpunet_host_channel_listen((struct sockaddr *)&address, sizeof address, NULL, &listener);
///     gpunet_host_channel_accept(listener, -1, &channel);
///
/// On success `*listener` is a handle that gpunet_host_channel_listener_close ends. Errors:
/// -EFAULT; -EINVAL for settings out of their range; -EAFNOSUPPORT; -EADDRINUSE; -EADDRNOTAVAIL;
/// -EACCES; -EMFILE; the system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_listen(
    address: *const sockaddr,
    len: socklen_t,
    settings: *const gpunet_host_channel_settings,
    listener: *mut *mut gpunet_host_channel_listener_t,
) -> c_int {
    done(|| {
        let out = Out::new(listener, "listener")?;
        let (address, options) = (memory::address(address, len)?, self::settings(settings)?);
        let listener = ChannelListener::bind(address, &options);
        let listener = Arc::new(listener.map_err(|error| Failure::from(error).at(address))?);
        let accepting = Line::new(listener.clone())?;
        let object = ListenerObject { listener, options, accepting };
        out.put(gpunet_host_channel_listener_t::new(Arc::new(object))?);
        Ok(())
    })
}

/// Stores the address of a listener, as getsockname(2) does.
///
/// Errors: -EBADF; -EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_getsockname(
    listener: *const gpunet_host_channel_listener_t,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    done(|| {
        let object = gpunet_host_channel_listener_t::of(listener)?;
        let (address, len) = (Out::new(address, "the address")?, Out::new(len, "its length")?);
        memory::put_address(object.listener.local_addr()?, address.pointer(), len.pointer());
        Ok(())
    })
}

/// Accepts a channel. It waits for at most `timeout_ns` nanoseconds; negative: without limit; 0:
/// not at all. Several threads may accept. A program that connects and is no channel is told so,
/// and holds up nobody.
///
/// On success `*channel` is a handle that gpunet_host_channel_close ends. Errors: -EBADF, also when
/// the listener is closed meanwhile; -EFAULT; -EAGAIN when the time is over; -EMFILE; -ENFILE; the
/// system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_accept(
    listener: *const gpunet_host_channel_listener_t,
    timeout_ns: i64,
    channel: *mut *mut gpunet_host_channel_t,
) -> c_int {
    done(|| {
        let out = Out::new(channel, "channel")?;
        let object = gpunet_host_channel_listener_t::of(listener)?;
        let (op, deadline) = (Arc::<Op>::default(), memory::deadline(timeout_ns));
        let mut turn = object.accepting.turn(&op, deadline)?;
        let accepted = turn.begin()?.accept_until(deadline);
        let accepted = accepted.map_err(|error| match error.errno() {
            libc::ETIMEDOUT => Failure::would_block(),
            _ => turn.failed(error),
        })?;
        drop(turn);
        out.put(ChannelObject::enter(accepted, &object.options)?);
        Ok(())
    })
}

/// Closes a listener. Threads that wait in gpunet_host_channel_accept return -EBADF; channels stay.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_listener_close(
    listener: *mut gpunet_host_channel_listener_t,
) -> c_int {
    done(|| {
        let object = gpunet_host_channel_listener_t::take(listener)?;
        let (stopped, _) = object.accepting.close();
        object.listener.shut_down();
        object.accepting.take_away(&stopped);
        Ok(())
    })
}

/// Connects a channel to a listener of channels, at a struct sockaddr_in or sockaddr_in6, over TCP.
/// It waits for at most `timeout_ns` nanoseconds; negative: without limit. `settings` may be NULL.
///
///     gpunet_host_channel_connect((struct sockaddr *)&address, sizeof address, NULL, 5000000000, &channel);
///     gpunet_host_channel_send(channel, &array, 1, NULL, NULL);
///     gpunet_host_channel_close(channel);
///
/// On success `*channel` is a handle that gpunet_host_channel_close ends. Errors: -EFAULT; -EINVAL,
/// also for timeout 0 and for settings out of their range; -EAFNOSUPPORT; -ETIMEDOUT;
/// -ECONNREFUSED; -ENETUNREACH; -EHOSTUNREACH; -EPROTO when the other end is no listener of
/// channels; -ECONNRESET; -EMFILE; -ENFILE; the system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_connect(
    address: *const sockaddr,
    len: socklen_t,
    settings: *const gpunet_host_channel_settings,
    timeout_ns: i64,
    channel: *mut *mut gpunet_host_channel_t,
) -> c_int {
    done(|| {
        let out = Out::new(channel, "channel")?;
        let (address, options) = (memory::address(address, len)?, self::settings(settings)?);
        if timeout_ns == 0 {
            return Err(Failure::new(libc::EINVAL, "a connect waits: its timeout is not 0"));
        }
        let deadline = memory::deadline(timeout_ns).unwrap_or_else(|| Instant::now() + NEVER);
        let connected = Channel::connect_until(address, &options, deadline);
        let connected = connected.map_err(|error| Failure::from(error).at(address))?;
        out.put(ChannelObject::enter(connected, &options)?);
        Ok(())
    })
}

/// Longer than programs run: a hundred years.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Returns 0 if the two ends can copy from memory to memory: they are on one machine, of one user,
/// and want it. Otherwise why not: one of GPUNET_HOST_REASON_*. What became of a transfer is in its
/// gpunet_host_outcome.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_reason(channel: *const gpunet_host_channel_t) -> c_int {
    int(|| Ok(i64::from(gpunet_host_channel_t::of(channel)?.reason)))
}

/// Ends the sending direction, after the transfers that were begun before: the other end receives
/// them, and then -ENODATA. This end receives on. It waits for its turn for at most `timeout_ns`
/// nanoseconds; negative: without limit.
///
/// Errors: -EBADF; -EAGAIN when the time is over; -EPIPE when it was ended before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_shutdown(
    channel: *const gpunet_host_channel_t,
    timeout_ns: i64,
) -> c_int {
    done(|| {
        let object = gpunet_host_channel_t::of(channel)?;
        let op = Arc::<Op>::default();
        let mut turn = object.sending.turn(&op, memory::deadline(timeout_ns))?;
        turn.begin()?;
        // The last word of the sending half is in its drop.
        drop(turn.take());
        Ok(())
    })
}

/// Closes the channel. The other end receives what was sent, and then -ENODATA. Calls of other
/// threads return -EBADF, and so do transfers that were started and have not ended; in the middle
/// of one of them the channel ends for the other end with -ECONNRESET. Their memory is in use until
/// gpunet_host_transfer_wait or gpunet_host_transfer_close says that they have ended. The handle is
/// stale once the call has begun.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_close(channel: *mut gpunet_host_channel_t) -> c_int {
    done(|| {
        gpunet_host_channel_t::take(channel)?.close();
        Ok(())
    })
}
