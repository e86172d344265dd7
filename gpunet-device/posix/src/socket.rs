//! `gpunet_socket`.

use super::{errno, unless};
use gpunet_abi::addr::{AF_INET, AF_INET6};
use gpunet_abi::options::TransportKind;
use gpunet_abi::{Error, Options, Result};
use gpunet_device::internal::{by_leader, free_slots};
use gpunet_device::{Group, Net};

/// Linux's `SOCK_STREAM`.
pub const SOCK_STREAM: i32 = 1;
/// Linux's `SOCK_NONBLOCK`.
pub const SOCK_NONBLOCK: i32 = 0o4000;
/// Linux's `SOCK_CLOEXEC`, which means nothing here and is let pass.
pub const SOCK_CLOEXEC: i32 = 0o2_000_000;
/// Protocol 0: the proxy chooses.
pub const PROTO_AUTO: i32 = 0;
/// Linux's `IPPROTO_TCP`: TCP and nothing else.
pub const PROTO_TCP: i32 = 6;
/// Both ends on this host. No IP protocol has this number.
pub const PROTO_PEER: i32 = 0x6701;

/// RDMA, in the protocol of librdmacm's rsockets. No IP protocol has this number.
pub const PROTO_RC: i32 = 0x6702;

/// Makes a socket: takes a slot of this device. Nothing is asked of the proxy yet.
///
/// # Cooperation
/// All lanes call it and get the same handle.
///
/// # Errors
/// FamilyNotSupported; ESOCKTNOSUPPORT; EPROTOTYPE; TooManySockets; NetworkDown.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result, abi::addr::AF_INET};
/// # use gpunet_posix::{self as posix, socket::{PROTO_TCP, SOCK_STREAM, socket}};
/// # fn example<G: Group>(g: &G, net: Net) -> Result<()> {
/// let socket = socket(g, net, i32::from(AF_INET), SOCK_STREAM, PROTO_TCP)? as i32;
/// # posix::close::close(g, net, socket)?;
/// # Ok(())
/// # }
/// ```
pub fn socket<G: Group>(g: &G, net: Net, domain: i32, kind: i32, protocol: i32) -> Result<i64> {
    by_leader(g, || {
        unless(net.is_attached(), Error::NetworkDown)?;
        unless(domain == i32::from(AF_INET) || domain == i32::from(AF_INET6), Error::FamilyNotSupported)?;
        unless(kind & !(SOCK_NONBLOCK | SOCK_CLOEXEC) == SOCK_STREAM, errno::SOCKET_TYPE)?;
        let transport = match protocol {
            PROTO_AUTO => TransportKind::Auto,
            PROTO_TCP => TransportKind::Tcp,
            PROTO_PEER => TransportKind::Peer,
            PROTO_RC => TransportKind::Rc,
            _ => return Err(errno::PROTOCOL_TYPE),
        };
        let options = Options::DEFAULT
            .with_transport(transport)
            .with_flag(Options::NONBLOCK, kind & SOCK_NONBLOCK != 0);
        free_slots::take(net, &options).map(|handle| handle.raw() as u64)
    })
    .map(|raw| raw as i64)
}
