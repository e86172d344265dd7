//! `gpunet_send` and its forms.

use super::direction::Taken;
use super::{SOCKET_TIMEOUT, errno, readable};
use gpunet_abi::{Direction, Error, Result};
use gpunet_device::Timeout;
use gpunet_device::internal::Deadline;
use gpunet_device::{Group, Net, SendHalf};

/// Linux's `MSG_PEEK`: receive without taking.
pub const MSG_PEEK: i32 = 0x2;
/// Linux's `MSG_DONTWAIT`: EAGAIN instead of waiting.
pub const MSG_DONTWAIT: i32 = 0x40;
/// Linux's `MSG_WAITALL`: all bytes, however long it takes. For sends too.
pub const MSG_WAITALL: i32 = 0x100;
/// Linux's `MSG_NOSIGNAL`, which is always so here.
pub const MSG_NOSIGNAL: i32 = 0x4000;
/// Linux's `MSG_MORE`: the bytes are published by the next send without it (of no bytes, too), a
/// receive or poll on the socket that waits, a shutdown or a close. See [`SendHalf::send_more`].
///
/// [`SendHalf::send_more`]: gpunet_device::SendHalf::send_more
pub const MSG_MORE: i32 = 0x8000;

/// How long the first wait of a call with these flags may last, and when all of them are over.
#[inline(always)]
pub(super) fn waits(flags: i32, timeout: Timeout) -> (Timeout, Deadline) {
    if flags & MSG_DONTWAIT != 0 {
        (Timeout::NON_BLOCKING, Deadline::NEVER)
    } else if flags & MSG_WAITALL != 0 {
        (timeout, Deadline::of(timeout))
    } else {
        (timeout, Deadline::NEVER)
    }
}

/// Sends bytes; partial sends are normal unless MSG_WAITALL is given. It waits as the socket's
/// options say.
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same result.
///
/// # Errors
/// As [`send_timeout`].
///
/// # Safety
/// `data` is readable for `len` bytes.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix::{self as posix, send::{MSG_WAITALL, send}};
/// # fn example<G: Group>(g: &G, net: Net, socket: i32) -> Result<()> {
/// let text: &'static [u8] = b"hello";
/// // SAFETY: `text` is readable for its length.
/// let sent = unsafe { send(g, net, socket, text.as_ptr(), text.len(), MSG_WAITALL) }?;
/// assert_eq!(sent, 5);
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub unsafe fn send<G: Group>(
    g: &G,
    net: Net,
    socket: i32,
    data: *const u8,
    len: usize,
    flags: i32,
) -> Result<i64> {
    // SAFETY: the caller's contract.
    unsafe { send_timeout(g, net, socket, data, len, flags, SOCKET_TIMEOUT) }
}

/// As [`send`], waiting at most `timeout_ns` nanoseconds in all; negative: without limit; 0: not at
/// all; [`SOCKET_TIMEOUT`]: as the socket's options say.
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same result.
///
/// # Errors
/// As [`SendHalf::send`]; WouldBlock when the timeout has passed; Busy when another group sends on
/// this socket; InvalidArgument for unknown flags. An error after some bytes is the next call's.
///
/// # Safety
/// `data` is readable for `len` bytes.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Error, Group, Net, Result};
/// # use gpunet_posix::send::{MSG_WAITALL, send_timeout};
/// # fn example<G: Group>(g: &G, net: Net, socket: i32, data: *const u8) -> Result<()> {
/// // SAFETY: the block's own memory.
/// let sent = unsafe { send_timeout(g, net, socket, data, 4096, MSG_WAITALL, 10_000_000) }?;
/// let in_time = sent == 4096; // within 10 ms
/// # let _ = in_time;
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub unsafe fn send_timeout<G: Group>(
    g: &G,
    net: Net,
    socket: i32,
    data: *const u8,
    len: usize,
    flags: i32,
    timeout_ns: i64,
) -> Result<i64> {
    if flags & !(MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL | MSG_MORE) != 0 {
        return Err(Error::InvalidArgument);
    }
    if data.is_null() && len > 0 {
        return Err(errno::FAULT);
    }
    let taken = Taken::take(g, net, socket, Direction::Send)?.with_timeout(timeout_ns);
    let (mut timeout, deadline) = waits(flags, taken.timeout);
    let mut half = SendHalf::load_locked(net, taken.handle);
    // SAFETY: the caller's contract.
    let mut rest = unsafe { readable(data, len) };
    let mut sent = 0;
    let result = loop {
        match half.send_with(g, rest, timeout, flags & MSG_MORE != 0) {
            Ok(n) => {
                sent += n;
                rest = rest.skip(n);
                if flags & MSG_WAITALL == 0 || sent == len {
                    break Ok(sent as i64);
                }
                timeout = deadline.left_of(timeout);
            }
            Err(_) if sent > 0 => break Ok(sent as i64),
            Err(error) => break Err(error),
        }
    };
    taken.finish(g, result)
}
