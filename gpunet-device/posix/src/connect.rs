//! `gpunet_connect`.

use super::opening::turn;
use super::{handle, sockaddr, unless};
use gpunet_abi::control::Op;
use gpunet_abi::entry::Kind;
use gpunet_abi::{Error, Result};
use gpunet_device::internal::{by_leader, entry, request, slots};
use gpunet_device::{Group, Net};

/// Connects a fresh or bound socket, waiting up to SO_SNDTIMEO. After a failure the socket
/// is closed. A non-blocking socket waits too: there is no connect under way here (no EINPROGRESS).
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same result.
///
/// # Errors
/// BadHandle; IsConnected; NotSupported on a listener; those of connect(2).
///
/// # Safety
/// `addr` is readable for `len` bytes.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix as posix;
/// # fn example<G: Group>(g: &G, net: Net, socket: i32) -> Result<()> {
/// // 127.0.0.1:7777 as a `struct sockaddr_in`.
/// let addr: &'static [u8; 16] = &[2, 0, 0x1e, 0x61, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
/// // SAFETY: `addr` is readable for 16 bytes.
/// unsafe { posix::connect::connect(g, net, socket, addr.as_ptr(), 16) }?;
/// # Ok(())
/// # }
/// ```
pub unsafe fn connect<G: Group>(g: &G, net: Net, socket: i32, addr: *const u8, len: u32) -> Result<i64> {
    let handle = handle(socket)?;
    by_leader(g, || {
        // SAFETY: the caller's contract.
        let addr = unsafe { sockaddr::read(addr, len) }?;
        let kind = slots::kind_of(net, handle)?;
        unless(kind != Kind::Stream, Error::IsConnected)?;
        unless(kind == Kind::Fresh || kind == Kind::Bound, Error::NotSupported)?;
        let mut request = request::new(net, Op::Connect, handle);
        request.options = entry::options(net, handle);
        request.address = addr;
        let limit = request.options.send_timeout_ns;
        let group = slots::Caller::of(g).id(net);
        turn(net, handle, kind, &request, limit, |reply| entry::open(net, handle, &reply.descriptor, group))
    })?;
    Ok(0)
}
