//! `gpunet_accept` and `gpunet_accept_nb`.

use super::{call_timeout, handle, sockaddr};
use gpunet_abi::{Error, Result};
use gpunet_device::internal::{by_leader, entry};
use gpunet_device::{Group, Listener, Net};

/// Accepts a connection; the peer's address goes to `addr` unless that is null. It waits at most
/// `timeout_ns` nanoseconds; negative: without limit; 0: not at all;
/// [`SOCKET_TIMEOUT`](super::SOCKET_TIMEOUT): as the socket's options say.
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same handle.
///
/// # Errors
/// As [`Listener::accept`]; WouldBlock when the timeout has passed.
///
/// # Safety
/// `len` is null or writable, and `addr` null or writable for `*len` bytes.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix::{self as posix, SOCKET_TIMEOUT, accept::accept};
/// # fn example<G: Group>(g: &G, net: Net, socket: i32) -> Result<()> {
/// # use std::ptr::null_mut;
/// // SAFETY: null: the peer's address is not wanted.
/// let stream = unsafe { accept(g, net, socket, null_mut(), null_mut(), SOCKET_TIMEOUT) }? as i32;
/// posix::close::close(g, net, stream)?;
/// # Ok(())
/// # }
/// ```
pub unsafe fn accept<G: Group>(
    g: &G,
    net: Net,
    socket: i32,
    addr: *mut u8,
    len: *mut u32,
    timeout_ns: i64,
) -> Result<i64> {
    let listener = Listener::from_handle(g, net, handle(socket)?)?;
    let accepted = listener.accept_timeout(g, call_timeout(timeout_ns, listener.timeout()));
    let stream =
        accepted.map_err(|error| if error == Error::TimedOut { Error::WouldBlock } else { error })?;
    let handle = stream.handle();
    // A write that other lanes may read: hence a broadcast, which is also a barrier.
    by_leader(g, || {
        // SAFETY: the caller's contract.
        unsafe { sockaddr::write(&entry::peer(net, handle), addr, len) };
        Ok(0)
    })?;
    Ok(i64::from(handle.raw()))
}
