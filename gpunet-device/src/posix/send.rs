//! `gsend` and its forms.

use super::direction::Taken;
use super::errno;
use crate::buffer::Source;
use crate::send::SendHalf;
use crate::slots::Half;
use crate::timeout::Timeout;
use crate::{Buffer, Group, Net};
use gpunet_abi::{Error, Result};

/// Linux's `MSG_PEEK`: receive without taking.
pub const MSG_PEEK: i32 = 0x2;
/// Linux's `MSG_DONTWAIT`: EAGAIN instead of waiting.
pub const MSG_DONTWAIT: i32 = 0x40;
/// Linux's `MSG_WAITALL`: all bytes, however long it takes. For sends too.
pub const MSG_WAITALL: i32 = 0x100;
/// Linux's `MSG_NOSIGNAL`, which is always so here.
pub const MSG_NOSIGNAL: i32 = 0x4000;
/// Linux's `MSG_MORE`, which changes nothing here.
pub const MSG_MORE: i32 = 0x8000;

/// How long a call with these flags may wait on a socket with that timeout.
#[inline(always)]
pub(super) const fn timeout(flags: i32, socket: Timeout) -> Timeout {
    if flags & MSG_DONTWAIT != 0 { Timeout::NON_BLOCKING } else { socket }
}

/// Sends bytes; partial sends are normal unless MSG_WAITALL is given.
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same result.
///
/// # Errors
/// As [`SendHalf::send`]; WouldBlock when SO_SNDTIMEO has passed; Busy when another group sends on
/// this socket; InvalidArgument for unknown flags.
///
/// # Safety
/// `data` is readable for `len` bytes.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result, posix, posix::send::{MSG_WAITALL, send}};
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
    if flags & !(MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL | MSG_MORE) != 0 {
        return Err(Error::InvalidArgument);
    }
    if data.is_null() && len > 0 {
        return Err(errno::FAULT);
    }
    let taken = Taken::take(g, net, socket, Half::Send)?;
    let timeout = timeout(flags, taken.timeout);
    let mut half = SendHalf::load(net, taken.handle);
    // SAFETY: readable by the caller's contract; a source is only read.
    let mut rest = Source::from(unsafe { Buffer::from_raw_parts(data.cast_mut(), len) });
    let mut sent = 0;
    let result = loop {
        match half.send_with(g, rest, timeout) {
            Ok(n) => {
                sent += n;
                rest = rest.skip(n);
                if flags & MSG_WAITALL == 0 || rest.len == 0 {
                    break Ok(sent as i64);
                }
            }
            Err(_) if sent > 0 => break Ok(sent as i64),
            Err(error) => break Err(error),
        }
    };
    taken.finish(g, result)
}
