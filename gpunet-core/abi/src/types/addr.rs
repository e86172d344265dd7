//! Socket addresses, IPv4 and IPv6.

/// Linux's AF_INET.
pub const AF_INET: u16 = 2;
/// Linux's AF_INET6.
pub const AF_INET6: u16 = 10;

/// An IPv4 or IPv6 address and port, as it travels in control slots. 32 bytes, no padding.
///
/// # Examples
///
/// ```
/// use gpunet_abi::SockAddr;
///
/// let listen = SockAddr::v4([0, 0, 0, 0], 7777);
/// let parsed: std::net::SocketAddr = "[::1]:80".parse()?;
/// assert_eq!(SockAddr::from(parsed).to_std(), Some(parsed));
/// # let _ = listen;
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct SockAddr {
    /// [`AF_INET`], [`AF_INET6`], or 0 for "none".
    pub family: u16,
    /// Port, in host byte order.
    pub port: u16,
    /// IPv6 flow information.
    pub flow: u32,
    /// IPv6 scope.
    pub scope: u32,
    reserved: u32,
    /// The address in network byte order; IPv4 uses the first four bytes.
    pub ip: [u8; 16],
}

const _: () = assert!(size_of::<SockAddr>() == 32);

impl SockAddr {
    /// No address.
    pub const NONE: Self = Self { family: 0, port: 0, flow: 0, scope: 0, reserved: 0, ip: [0; 16] };

    /// An IPv4 address.
    #[must_use]
    pub const fn v4(ip: [u8; 4], port: u16) -> Self {
        let mut all = [0; 16];
        all[0] = ip[0];
        all[1] = ip[1];
        all[2] = ip[2];
        all[3] = ip[3];
        Self { family: AF_INET, port, flow: 0, scope: 0, reserved: 0, ip: all }
    }

    /// An IPv6 address.
    #[must_use]
    pub const fn v6(ip: [u8; 16], port: u16) -> Self {
        Self { family: AF_INET6, port, flow: 0, scope: 0, reserved: 0, ip }
    }

    /// Converts from the standard library's type.
    #[must_use]
    pub const fn from_std(addr: core::net::SocketAddr) -> Self {
        match addr {
            core::net::SocketAddr::V4(v4) => Self::v4(v4.ip().octets(), v4.port()),
            core::net::SocketAddr::V6(v6) => Self {
                family: AF_INET6,
                port: v6.port(),
                flow: v6.flowinfo(),
                scope: v6.scope_id(),
                reserved: 0,
                ip: v6.ip().octets(),
            },
        }
    }

    /// Converts to the standard library's type; `None` for an unknown family.
    #[must_use]
    pub fn to_std(self) -> Option<core::net::SocketAddr> {
        use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
        match self.family {
            AF_INET => {
                let [a, b, c, d, ..] = self.ip;
                Some(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), self.port)))
            }
            AF_INET6 => {
                let ip = Ipv6Addr::from(self.ip);
                Some(SocketAddr::V6(SocketAddrV6::new(ip, self.port, self.flow, self.scope)))
            }
            _ => None,
        }
    }
}

impl From<core::net::SocketAddr> for SockAddr {
    fn from(addr: core::net::SocketAddr) -> Self {
        Self::from_std(addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for text in ["127.0.0.1:80", "[::1]:65535", "[fe80::1%3]:7", "0.0.0.0:0"] {
            let addr: std::net::SocketAddr = text.parse().unwrap();
            assert_eq!(SockAddr::from_std(addr).to_std(), Some(addr));
        }
        assert_eq!(SockAddr::NONE.to_std(), None);
    }
}
