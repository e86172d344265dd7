//! `gpunet_getsockopt`.

use super::names::{
    GPUNET_LINES, GPUNET_NONBLOCK, GPUNET_TRANSPORT, IPV6_V6ONLY, SO_ACCEPTCONN, SO_ERROR, SO_KEEPALIVE,
    SO_LINGER, SO_RCVBUF, SO_RCVLOWAT, SO_RCVTIMEO, SO_REUSEADDR, SO_SNDBUF, SO_SNDLOWAT, SO_SNDTIMEO,
    SO_TYPE, SOL_GPUNET, SOL_IPV6, SOL_SOCKET, SOL_TCP, TCP_NODELAY,
};
use super::value::Wanted;
use crate::socket::SOCK_STREAM;
use crate::{errno, handle, unless};
use gpunet_abi::entry::Kind;
use gpunet_abi::{Direction, Error, Handle, Options, Result};
use gpunet_device::internal::{by_leader, entry, slots};
use gpunet_device::{Group, Net};

/// Reads an option. Ring sizes of an open stream are those it got.
///
/// # Cooperation
/// All lanes call it with the same arguments; after it every lane sees the value.
///
/// # Errors
/// BadHandle; ENOPROTOOPT; EFAULT.
///
/// # Safety
/// `len` is null or writable, and `value` null or writable for `*len` bytes.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix::{self as posix, options::{SOL_SOCKET, SO_ERROR, get}};
/// # fn example<G: Group>(g: &G, net: Net, socket: i32, value: *mut u8, len: *mut u32) -> Result<()> {
/// // SAFETY: memory of the block: an `int` for the value, and one that holds 4.
/// unsafe { get(g, net, socket, SOL_SOCKET, SO_ERROR, value, len) }?;
/// # Ok(())
/// # }
/// ```
pub unsafe fn get<G: Group>(
    g: &G,
    net: Net,
    socket: i32,
    level: i32,
    name: i32,
    value: *mut u8,
    len: *mut u32,
) -> Result<i64> {
    let handle = handle(socket)?;
    by_leader(g, || write(net, handle, (level, name), Wanted { ptr: value, len }))?;
    Ok(0)
}

/// The leader's part.
#[inline(never)]
fn write(net: Net, handle: Handle, option: (i32, i32), value: Wanted) -> Result<u64> {
    unless(net.is_attached(), Error::NetworkDown)?;
    let kind = slots::kind_of(net, handle)?;
    let options = entry::options(net, handle);
    let (send_ring, recv_ring) = options.rings();
    let flag = |bit| value.int(i32::from(options.has(bit)));
    match option {
        (SOL_SOCKET, SO_REUSEADDR) => flag(Options::REUSEADDR),
        (SOL_SOCKET, SO_KEEPALIVE) => flag(Options::KEEPALIVE),
        (SOL_TCP, TCP_NODELAY) => flag(Options::NODELAY),
        (SOL_IPV6, IPV6_V6ONLY) => flag(Options::V6ONLY),
        (SOL_GPUNET, GPUNET_NONBLOCK) => flag(Options::NONBLOCK),
        (SOL_GPUNET, GPUNET_LINES) if kind == Kind::Stream => {
            value.int(i32::from(entry::half(net, handle, Direction::Send).0.line != 0))
        }
        (SOL_GPUNET, GPUNET_LINES) => flag(Options::LINES),
        (SOL_SOCKET, SO_TYPE) => value.int(SOCK_STREAM),
        (SOL_SOCKET, SO_ACCEPTCONN) => value.int(i32::from(kind == Kind::Listener)),
        (SOL_SOCKET, SO_ERROR) => value.int(error(net, handle, kind)),
        (SOL_SOCKET, SO_SNDBUF) => value.int(ring(net, handle, kind, Direction::Send, send_ring)),
        (SOL_SOCKET, SO_RCVBUF) => value.int(ring(net, handle, kind, Direction::Recv, recv_ring)),
        (SOL_SOCKET, SO_SNDLOWAT) => value.int(options.low_water().0 as i32),
        (SOL_SOCKET, SO_RCVLOWAT) => value.int(options.low_water().1 as i32),
        (SOL_SOCKET, SO_SNDTIMEO) => value.timeval(options.send_timeout_ns),
        (SOL_SOCKET, SO_RCVTIMEO) => value.timeval(options.recv_timeout_ns),
        (SOL_SOCKET, SO_LINGER) => value.linger(options.linger_ms),
        (SOL_GPUNET, GPUNET_TRANSPORT) => {
            let open = entry::transport(net, handle) as i32;
            value.int(if kind == Kind::Stream { open } else { i32::from(options.transport) })
        }
        _ => Err(errno::NO_OPTION),
    }
}

/// The size of a ring: what an open stream has, else what was asked for.
fn ring(net: Net, handle: Handle, kind: Kind, half: Direction, log2: u8) -> i32 {
    match kind {
        Kind::Stream => entry::half(net, handle, half).0.capacity as i32,
        _ => 1i32.checked_shl(u32::from(log2)).unwrap_or(0),
    }
}

/// The error that the device kept, else the one the proxy reports; each once.
fn error(net: Net, handle: Handle, kind: Kind) -> i32 {
    let status = match kind {
        Kind::Stream => net.status(handle.slot(), handle.generation()),
        _ => None,
    };
    let reported = status.and_then(|status| status.error()).map_or(0, Error::errno);
    entry::take_error(net, handle, reported as u32) as i32
}
