//! The resolver of host names.

use gpunet_calls::Name;
use gpunet_device::{Error, SockAddr};
use std::net::ToSocketAddrs;

/// The first address of a name. It may take as long as the system's resolver does.
pub(crate) fn resolve(name: &Name) -> Result<SockAddr, Error> {
    let host = name.name().filter(|name| !name.is_empty()).ok_or(Error::InvalidArgument)?;
    let mut addrs = (host, name.port()).to_socket_addrs().map_err(|error| {
        tracing::debug!(target: "gpunet::calls", "cannot resolve {host:?}: {error}");
        Error::AddressNotAvailable
    })?;
    addrs.next().map(SockAddr::from).ok_or(Error::AddressNotAvailable)
}
