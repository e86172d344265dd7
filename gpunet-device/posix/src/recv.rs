//! `gpunet_recv` and its forms.

use super::direction::Taken;
use super::send::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL, waits};
use super::{SOCKET_TIMEOUT, errno};
use gpunet_abi::{Direction, Error, Result};
use gpunet_device::{Buffer, Group, Net, RecvHalf};

/// Receives bytes; 0 at the end of the stream. MSG_PEEK leaves them where they are. It waits as the
/// socket's options say.
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same result; on return every lane sees all
/// bytes.
///
/// # Errors
/// As [`recv_timeout`].
///
/// # Safety
/// `data` is writable for `len` bytes, and no one else uses them meanwhile.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result, Error};
/// # use gpunet_posix::{self as posix, recv::recv, send::MSG_DONTWAIT};
/// # fn example<G: Group>(g: &G, net: Net, socket: i32, data: *mut u8) -> Result<()> {
/// # let mut total = 0;
/// // SAFETY: the block's own memory.
/// match unsafe { recv(g, net, socket, data, 4096, MSG_DONTWAIT) } {
///     Ok(n) => total += n,
///     Err(Error::WouldBlock) => {} // nothing has come yet
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub unsafe fn recv<G: Group>(
    g: &G,
    net: Net,
    socket: i32,
    data: *mut u8,
    len: usize,
    flags: i32,
) -> Result<i64> {
    // SAFETY: the caller's contract.
    unsafe { recv_timeout(g, net, socket, data, len, flags, SOCKET_TIMEOUT) }
}

/// As [`recv`], waiting at most `timeout_ns` nanoseconds in all; negative: without limit; 0: not at
/// all; [`SOCKET_TIMEOUT`]: as the socket's options say.
///
/// # Cooperation
/// As [`recv`].
///
/// # Errors
/// As [`RecvHalf::recv`]; WouldBlock when the timeout has passed; Busy when another group receives
/// from this socket; InvalidArgument for unknown flags. An error after some bytes is the next
/// call's.
///
/// # Safety
/// As [`recv`].
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Error, Group, Net, Result};
/// # use gpunet_posix::recv::recv_timeout;
/// # fn example<G: Group>(g: &G, net: Net, socket: i32, data: *mut u8) -> Result<()> {
/// // SAFETY: the block's own memory.
/// let n = match unsafe { recv_timeout(g, net, socket, data, 4096, 0, 1_000_000) } {
///     Err(Error::WouldBlock) => 0, // nothing came for 1 ms
///     received => received?,
/// };
/// # let _ = n;
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub unsafe fn recv_timeout<G: Group>(
    g: &G,
    net: Net,
    socket: i32,
    data: *mut u8,
    len: usize,
    flags: i32,
    timeout_ns: i64,
) -> Result<i64> {
    if flags & !(MSG_DONTWAIT | MSG_WAITALL | MSG_PEEK | MSG_NOSIGNAL) != 0 {
        return Err(Error::InvalidArgument);
    }
    if data.is_null() && len > 0 {
        return Err(errno::FAULT);
    }
    let taken = Taken::take(g, net, socket, Direction::Recv)?.with_timeout(timeout_ns);
    let (mut timeout, deadline) = waits(flags, taken.timeout);
    let mut half = RecvHalf::load(net, taken.handle);
    // SAFETY: the caller's contract.
    let buffer = unsafe { Buffer::from_raw_parts(data, len) };
    let peek = flags & MSG_PEEK != 0;
    if peek {
        // The receive reports a failure of the stream, too.
        let _ = half.poll_more(g, len as u64);
    }
    let mut have = 0;
    let result = loop {
        match half.recv_with(g, buffer.skip(have), timeout, peek) {
            Ok(n) => {
                have += n;
                // What is only peeked at comes once.
                if n == 0 || peek || flags & MSG_WAITALL == 0 || have == len {
                    break Ok(have as i64);
                }
                timeout = deadline.left_of(timeout);
            }
            Err(_) if have > 0 => break Ok(have as i64),
            Err(error) => break Err(error),
        }
    };
    taken.finish(g, result)
}
