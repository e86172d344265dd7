//! Socket addresses as C structs, and back.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A socket address in C's form.
pub(super) struct Sockaddr {
    inner: socket2::SockAddr,
}

impl Sockaddr {
    pub(super) fn new(addr: SocketAddr) -> Self {
        Self { inner: addr.into() }
    }

    /// For a call that only reads it, whatever its C signature.
    pub(super) fn as_ptr(&self) -> *mut libc::sockaddr {
        self.inner.as_ptr().cast_mut().cast()
    }
}

/// Reads an address out of a `sockaddr_storage`; anything but IP is 0.0.0.0:0.
pub(super) fn from_storage(storage: &libc::sockaddr_storage) -> SocketAddr {
    let at: *const libc::sockaddr_storage = storage;
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: a storage is large and aligned enough for every address; any bytes are a
            // valid one.
            let v4 = unsafe { at.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into()
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { at.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), v6.sin6_flowinfo, v6.sin6_scope_id).into()
        }
        _ => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into(),
    }
}
