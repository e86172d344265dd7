//! `gpunet_connect_to` and `gpunet_listen_at`: opening by one call, with options.

mod options;

use super::{SOCKET_TIMEOUT, sockaddr, unless};
use gpunet_abi::{Error, Handle, Options, Result, SockAddr};
use gpunet_device::internal::{by_leader, entry};
use gpunet_device::{Group, Listener, Net, Stream};
pub use options::{CallOptions, DELAY, EXCLUSIVE, KEEPALIVE, LINGER, NONBLOCK, OPTION_FLAGS, V6ONLY};

/// Makes a socket with options and connects it; returns the stream.
///
/// It waits at most `timeout_ns` nanoseconds; negative: without limit; [`SOCKET_TIMEOUT`]: as the
/// options say.
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same result.
///
/// # Errors
/// As [`Stream::connect_with`]: TimedOut when the timeout has passed. InvalidArgument for invalid
/// options, and for a timeout of 0: a connect waits for an answer. Those of reading the address.
///
/// # Safety
/// `addr` is readable for `len` bytes; `options` is null or readable.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix::{self as posix, open::{CallOptions, connect_to}};
/// # fn example<G: Group>(g: &G, net: Net, options: *const CallOptions) -> Result<()> {
/// // 127.0.0.1:7777 as a `struct sockaddr_in`.
/// let addr: &'static [u8; 16] = &[2, 0, 0x1e, 0x61, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
/// // SAFETY: `addr` is readable for 16 bytes, and `options` lies in memory of the block.
/// let stream = unsafe { connect_to(g, net, addr.as_ptr(), 16, options, 3_000_000_000) }? as i32; // at most 3 s
/// # posix::close::close(g, net, stream)?;
/// # Ok(())
/// # }
/// ```
pub unsafe fn connect_to<G: Group>(
    g: &G,
    net: Net,
    addr: *const u8,
    len: u32,
    options: *const CallOptions,
    timeout_ns: i64,
) -> Result<i64> {
    unless(timeout_ns != 0, Error::InvalidArgument)?;
    // SAFETY: the caller's contract.
    let (addr, lasting) = unsafe { read(g, addr, len, options) }?;
    let mut options = lasting;
    if timeout_ns != SOCKET_TIMEOUT {
        // Connect obeys the option for sends.
        options.send_timeout_ns = timeout_ns.max(0) as u64;
    }
    let stream = Stream::connect_with(g, net, addr, options)?.handle();
    if timeout_ns != SOCKET_TIMEOUT {
        set(g, net, stream, &lasting);
    }
    Ok(i64::from(stream.raw()))
}

/// Makes a socket with options, which accepted streams inherit, binds it and listens; returns the
/// listener.
///
/// # Cooperation
/// As [`connect_to`].
///
/// # Errors
/// As [`Listener::bind_with`]; InvalidArgument for invalid options; those of reading the address.
///
/// # Safety
/// As [`connect_to`].
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix::{self as posix, open::{CallOptions, listen_at}};
/// # fn example<G: Group>(g: &G, net: Net, options: *const CallOptions) -> Result<()> {
/// // 0.0.0.0:7777 as a `struct sockaddr_in`.
/// let addr: &'static [u8; 16] = &[2, 0, 0x1e, 0x61, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// // SAFETY: `addr` is readable for 16 bytes, and `options` lies in memory of the block.
/// let listener = unsafe { listen_at(g, net, addr.as_ptr(), 16, 128, options) }? as i32;
/// # posix::close::close(g, net, listener)?;
/// # Ok(())
/// # }
/// ```
pub unsafe fn listen_at<G: Group>(
    g: &G,
    net: Net,
    addr: *const u8,
    len: u32,
    backlog: i32,
    options: *const CallOptions,
) -> Result<i64> {
    // SAFETY: the caller's contract.
    let (addr, options) = unsafe { read(g, addr, len, options) }?;
    let listener = Listener::bind_with(g, net, addr, options, backlog.max(1) as u32)?;
    Ok(i64::from(listener.handle().raw()))
}

/// Reads what only the leader uses; all lanes learn whether it is valid. Other lanes get none: were
/// each to read for itself, a change of the bytes meanwhile could part them.
///
/// # Safety
/// As [`connect_to`], for the leader.
unsafe fn read<G: Group>(
    g: &G,
    addr: *const u8,
    len: u32,
    options: *const CallOptions,
) -> Result<(SockAddr, Options)> {
    let (mut found, mut chosen) = (SockAddr::NONE, Options::DEFAULT);
    by_leader(g, || {
        // SAFETY: the caller's contract.
        found = unsafe { sockaddr::read(addr, len) }?;
        // SAFETY: as above.
        chosen = unsafe { CallOptions::read(options) }?;
        Ok(0)
    })?;
    Ok((found, chosen))
}

/// Sets the options of a stream that has just been opened. All lanes.
fn set<G: Group>(g: &G, net: Net, stream: Handle, options: &Options) {
    if g.is_leader() {
        entry::set_options(net, stream, options);
    }
    g.sync();
}
