//! `gpunet_getsockname` and `gpunet_getpeername`.

use super::{errno, handle, sockaddr, unless};
use gpunet_abi::entry::Kind;
use gpunet_abi::{Error, Handle, Result, SockAddr};
use gpunet_device::internal::{by_leader, entry, slots};
use gpunet_device::{Group, Net};

/// Which end's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// This end's (`gpunet_getsockname`).
    Local,
    /// The other end's (`gpunet_getpeername`).
    Peer,
}

/// Writes an address of the socket. A socket without one yet has 0.0.0.0:0.
///
/// # Cooperation
/// All lanes call it with the same arguments.
///
/// # Errors
/// BadHandle; NotConnected; EFAULT for null.
///
/// # Safety
/// `len` is null or writable, and `addr` null or writable for `*len` bytes.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix::{self as posix, name::{End, name}};
/// # fn example<G: Group>(g: &G, net: Net, socket: i32, addr: *mut u8, len: *mut u32) -> Result<()> {
/// // SAFETY: memory of the block: 28 bytes, and an `int` that holds 28.
/// unsafe { name(g, net, socket, End::Peer, addr, len) }?;
/// # Ok(())
/// # }
/// ```
pub unsafe fn name<G: Group>(
    g: &G,
    net: Net,
    socket: i32,
    end: End,
    addr: *mut u8,
    len: *mut u32,
) -> Result<i64> {
    let handle = handle(socket)?;
    by_leader(g, || {
        let found = find(net, handle, end)?;
        unless(!addr.is_null() && !len.is_null(), errno::FAULT)?;
        // SAFETY: the caller's contract.
        unsafe { sockaddr::write(&found, addr, len) };
        Ok(0)
    })?;
    Ok(0)
}

/// The leader's part.
#[inline(never)]
fn find(net: Net, handle: Handle, end: End) -> Result<SockAddr> {
    unless(net.is_attached(), Error::NetworkDown)?;
    let kind = slots::kind_of(net, handle)?;
    unless(end == End::Local || kind == Kind::Stream, Error::NotConnected)?;
    let found = match end {
        End::Local => entry::local(net, handle),
        End::Peer => entry::peer(net, handle),
    };
    Ok(if found == SockAddr::NONE { SockAddr::v4([0; 4], 0) } else { found })
}
