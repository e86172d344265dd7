//! `gpunet_bind` and `gpunet_listen`.

use super::opening::turn;
use super::{handle, sockaddr, unless};
use gpunet_abi::control::{Op, Request};
use gpunet_abi::entry::Kind;
use gpunet_abi::{Error, Handle, Result, SockAddr};
use gpunet_device::internal::{by_leader, entry, request, slots};
use gpunet_device::{Group, Net};

/// Gives a fresh socket its address. After a failure the socket is closed.
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same result.
///
/// # Errors
/// BadHandle; InvalidArgument when it is bound already; those of bind(2).
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
/// // 0.0.0.0:7777 as a `struct sockaddr_in`, in memory that all lanes see.
/// let addr: &'static [u8; 16] = &[2, 0, 0x1e, 0x61, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// // SAFETY: `addr` is readable for 16 bytes.
/// unsafe { posix::bind::bind(g, net, socket, addr.as_ptr(), 16) }?;
/// posix::bind::listen(g, net, socket, 128)?;
/// # Ok(())
/// # }
/// ```
pub unsafe fn bind<G: Group>(g: &G, net: Net, socket: i32, addr: *const u8, len: u32) -> Result<i64> {
    let handle = handle(socket)?;
    by_leader(g, || {
        // SAFETY: the caller's contract.
        let addr = unsafe { sockaddr::read(addr, len) }?;
        unless(slots::kind_of(net, handle)? == Kind::Fresh, Error::InvalidArgument)?;
        post(net, handle, Kind::Fresh, Kind::Bound, Op::Bind, |request| request.address = addr)
    })?;
    Ok(0)
}

/// Listens on a bound socket, or on a port of the proxy's choice if it is not bound yet. After a
/// failure the socket is closed.
///
/// # Cooperation
/// As [`bind`].
///
/// # Errors
/// BadHandle; InvalidArgument on a stream; those of listen(2).
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix as posix;
/// # fn example<G: Group>(g: &G, net: Net, socket: i32) -> Result<()> {
/// // Not bound yet: a port of the proxy's choice.
/// posix::bind::listen(g, net, socket, 128)?;
/// # Ok(())
/// # }
/// ```
pub fn listen<G: Group>(g: &G, net: Net, socket: i32, backlog: i32) -> Result<i64> {
    let handle = handle(socket)?;
    let backlog = if backlog < 1 { 1 } else { backlog as u32 };
    by_leader(g, || match slots::kind_of(net, handle)? {
        Kind::Listener => Ok(0),
        Kind::Bound => post(net, handle, Kind::Bound, Kind::Listener, Op::Listen, |r| r.backlog = backlog),
        Kind::Fresh => post(net, handle, Kind::Fresh, Kind::Listener, Op::Bind, |request| {
            (request.flags, request.backlog) = (Request::LISTEN, backlog);
            request.address = SockAddr::v4([0; 4], 0);
        }),
        Kind::Free | Kind::Stream | Kind::Prepared | Kind::Group => Err(Error::InvalidArgument),
    })?;
    Ok(0)
}

/// Posts a request that turns a fresh or bound socket into another kind. By one lane. The proxy
/// takes the slot back when the request fails.
fn post(
    net: Net,
    handle: Handle,
    from: Kind,
    to: Kind,
    op: Op,
    operands: impl FnOnce(&mut Request),
) -> Result<u64> {
    let mut request = request::new(net, op, handle);
    request.options = entry::options(net, handle);
    operands(&mut request);
    turn(net, handle, from, &request, 0, |reply| {
        entry::set_local(net, handle, reply.descriptor.local);
        unless(slots::turn_into(net, handle, to), Error::BadHandle)
    })
}
