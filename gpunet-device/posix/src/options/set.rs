//! `gpunet_setsockopt`.

use super::names::{
    GPUNET_LINES, GPUNET_NONBLOCK, GPUNET_TRANSPORT, IPV6_V6ONLY, SO_KEEPALIVE, SO_LINGER, SO_RCVBUF,
    SO_RCVLOWAT, SO_RCVTIMEO, SO_REUSEADDR, SO_SNDBUF, SO_SNDLOWAT, SO_SNDTIMEO, SOL_GPUNET, SOL_IPV6,
    SOL_SOCKET, SOL_TCP, TCP_NODELAY,
};
use super::value::Given;
use crate::{errno, handle, unless};
use gpunet_abi::control::Op;
use gpunet_abi::entry::Kind;
use gpunet_abi::options::{TransportKind, ring_log2};
use gpunet_abi::{Error, Handle, Options, Result};
use gpunet_device::internal::{by_leader, entry, request, slots};
use gpunet_device::{Group, Net};

/// Sets an option. What concerns the connection itself is sent to the proxy; timeouts and
/// non-blocking are this device's own business.
///
/// # Cooperation
/// All lanes call it with the same arguments.
///
/// # Errors
/// BadHandle; InvalidArgument; ENOPROTOOPT; EFAULT; IsConnected for ring sizes, transport and lines
/// of an open stream; NetworkDown.
///
/// # Safety
/// `value` is null or readable for `len` bytes.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix::{self as posix, options::{SOL_TCP, TCP_NODELAY, set}};
/// # fn example<G: Group>(g: &G, net: Net, socket: i32, on: *const u8) -> Result<()> {
/// // SAFETY: `on` is an `int` of the block.
/// unsafe { set(g, net, socket, SOL_TCP, TCP_NODELAY, on, 4) }?;
/// # Ok(())
/// # }
/// ```
pub unsafe fn set<G: Group>(
    g: &G,
    net: Net,
    socket: i32,
    level: i32,
    name: i32,
    value: *const u8,
    len: u32,
) -> Result<i64> {
    let handle = handle(socket)?;
    by_leader(g, || change(net, handle, (level, name), Given { ptr: value, len }))?;
    Ok(0)
}

/// The leader's part.
#[inline(never)]
fn change(net: Net, handle: Handle, option: (i32, i32), value: Given) -> Result<u64> {
    unless(net.is_attached(), Error::NetworkDown)?;
    let kind = slots::kind_of(net, handle)?;
    let before = entry::options(net, handle);
    let after = changed(before, option, value)?;
    let fixed = |o: &Options| (o.send_log2, o.recv_log2, o.transport, o.has(Options::LINES));
    unless(kind != Kind::Stream || fixed(&before) == fixed(&after), Error::IsConnected)?;
    // The side that moves the bytes reports when this many are free.
    let sent = |o: &Options| (o.flags & !Options::NONBLOCK, o.linger_ms, o.low_water().0);
    // Accepted streams have what the proxy got at gbind and glisten.
    let same = fixed(&before) == fixed(&after) && sent(&before) == sent(&after);
    unless(kind != Kind::Listener || same, Error::InvalidArgument)?;
    if kind == Kind::Stream && sent(&before) != sent(&after) {
        let mut request = request::new(net, Op::SetOptions, handle);
        request.options = after;
        request::call(net, &request, handle)?;
    }
    entry::set_options(net, handle, &after);
    Ok(0)
}

/// The options with one changed.
fn changed(mut options: Options, option: (i32, i32), value: Given) -> Result<Options> {
    let flag = |bit| Ok(options.with_flag(bit, value.int()? != 0));
    match option {
        (SOL_SOCKET, SO_REUSEADDR) => return flag(Options::REUSEADDR),
        (SOL_SOCKET, SO_KEEPALIVE) => return flag(Options::KEEPALIVE),
        (SOL_TCP, TCP_NODELAY) => return flag(Options::NODELAY),
        (SOL_IPV6, IPV6_V6ONLY) => return flag(Options::V6ONLY),
        (SOL_GPUNET, GPUNET_NONBLOCK) => return flag(Options::NONBLOCK),
        (SOL_GPUNET, GPUNET_LINES) => return flag(Options::LINES),
        (SOL_SOCKET, SO_SNDBUF) => options.send_log2 = ring_log2(value.int()?.max(0) as u64),
        (SOL_SOCKET, SO_RCVBUF) => options.recv_log2 = ring_log2(value.int()?.max(0) as u64),
        (SOL_SOCKET, SO_SNDLOWAT) => {
            return Ok(options.with_low_water(value.count()?, options.low_water().1));
        }
        (SOL_SOCKET, SO_RCVLOWAT) => {
            return Ok(options.with_low_water(options.low_water().0, value.count()?));
        }
        (SOL_SOCKET, SO_SNDTIMEO) => options.send_timeout_ns = value.timeval_ns()?,
        (SOL_SOCKET, SO_RCVTIMEO) => options.recv_timeout_ns = value.timeval_ns()?,
        (SOL_SOCKET, SO_LINGER) => options.linger_ms = value.linger_ms()?,
        (SOL_GPUNET, GPUNET_TRANSPORT) => {
            let number = u8::try_from(value.int()?).map_err(|_| Error::InvalidArgument)?;
            unless(TransportKind::from_raw(number).is_some(), Error::InvalidArgument)?;
            options.transport = number;
        }
        _ => return Err(errno::NO_OPTION),
    }
    Ok(options)
}
