//! `struct gpunet_options`: what a C program chooses when it opens a socket.

use gpunet_abi::{Error, Options, Result};

/// `GPUNET_DELAY`: without TCP_NODELAY, which is on by default.
pub const DELAY: u32 = Options::NODELAY;
/// `GPUNET_EXCLUSIVE`: without SO_REUSEADDR, which is on by default.
pub const EXCLUSIVE: u32 = Options::REUSEADDR;
/// `GPUNET_KEEPALIVE`: SO_KEEPALIVE.
pub const KEEPALIVE: u32 = Options::KEEPALIVE;
/// `GPUNET_V6ONLY`: IPV6_V6ONLY.
pub const V6ONLY: u32 = Options::V6ONLY;
/// `GPUNET_NO_WAIT`: a non-blocking socket.
pub const NONBLOCK: u32 = Options::NONBLOCK;
/// `GPUNET_LINGER`: `linger_ms` counts.
pub const LINGER: u32 = 32;
/// `GPUNET_NO_LINES`: small messages have no lines, which they have by default where that is
/// faster.
pub const NO_LINES: u32 = Options::LINES;
/// All of them.
pub const OPTION_FLAGS: u32 = DELAY | EXCLUSIVE | KEEPALIVE | V6ONLY | NONBLOCK | LINGER | NO_LINES;

/// `struct gpunet_options`. All zeros: the defaults.
///
/// # Examples
///
/// ```
/// use gpunet_posix::open::CallOptions;
///
/// let rings = CallOptions { send_ring: 1 << 20, recv_ring: 1 << 20, ..CallOptions::default() };
/// # let _ = rings;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CallOptions {
    /// Bytes of the send ring, rounded up to a power of two between 4 KiB and 16 MiB; 0: the proxy
    /// chooses.
    pub send_ring: u64,
    /// The same of the receive ring.
    pub recv_ring: u64,
    /// SO_SNDTIMEO in nanoseconds; 0: no limit. Connect obeys it, too.
    pub send_timeout_ns: u64,
    /// SO_RCVTIMEO in nanoseconds; 0: no limit. Accept obeys it, too.
    pub recv_timeout_ns: u64,
    /// A [`TransportKind`](gpunet_abi::TransportKind) as a number.
    pub transport: i32,
    /// SO_LINGER in milliseconds, if the flag [`LINGER`] is set: 0 resets the connection at close.
    pub linger_ms: i32,
    /// [`DELAY`] and its neighbours.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<CallOptions>() == 48);

impl CallOptions {
    /// Reads options; null: the defaults.
    ///
    /// # Errors
    /// InvalidArgument.
    ///
    /// # Safety
    /// `ptr` is null or readable.
    pub(super) unsafe fn read(ptr: *const Self) -> Result<Options> {
        if ptr.is_null() {
            return Ok(Options::DEFAULT);
        }
        // SAFETY: the caller's contract.
        unsafe { ptr.read_volatile() }.options()
    }

    /// The options that it stands for.
    ///
    /// # Errors
    /// InvalidArgument, for what no proxy supports.
    ///
    /// # Examples
    ///
    /// ```
    /// use gpunet_device::Options;
    /// use gpunet_posix::open::CallOptions;
    ///
    /// assert_eq!(CallOptions::default().options(), Ok(Options::DEFAULT));
    /// ```
    pub fn options(self) -> Result<Options> {
        let mut options = Options::DEFAULT;
        if self.flags & !OPTION_FLAGS != 0 || self.reserved != 0 {
            return Err(Error::InvalidArgument);
        }
        // Flags turn off what is on by default, and the other way round.
        options.flags ^= self.flags & !LINGER;
        if self.flags & LINGER != 0 {
            if self.linger_ms < 0 {
                return Err(Error::InvalidArgument);
            }
            options.linger_ms = self.linger_ms;
        }
        options = options.with_rings(self.send_ring, self.recv_ring);
        options.send_timeout_ns = self.send_timeout_ns;
        options.recv_timeout_ns = self.recv_timeout_ns;
        options.transport = u8::try_from(self.transport).map_err(|_| Error::InvalidArgument)?;
        if options.is_valid() { Ok(options) } else { Err(Error::InvalidArgument) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_abi::{Timeout, TransportKind};

    #[test]
    fn zeros_are_the_defaults() {
        assert_eq!(CallOptions::default().options(), Ok(Options::DEFAULT));
        // SAFETY: null stands for the defaults.
        assert_eq!(unsafe { CallOptions::read(std::ptr::null()) }, Ok(Options::DEFAULT));
    }

    #[test]
    fn each_field_sets_its_option() {
        let all = CallOptions {
            send_ring: 1 << 20,
            recv_ring: 5000,
            send_timeout_ns: 7,
            recv_timeout_ns: 8,
            transport: 2,
            linger_ms: 9,
            flags: OPTION_FLAGS,
            reserved: 0,
        };
        let mut wanted = Options::DEFAULT;
        wanted.flags = KEEPALIVE | V6ONLY | NONBLOCK;
        let wanted = wanted
            .with_linger_ms(9)
            .with_rings(1 << 20, 5000)
            .with_timeouts(Timeout::ns(7), Timeout::ns(8))
            .with_transport(TransportKind::Peer);
        assert_eq!(all.options(), Ok(wanted));
    }

    #[test]
    fn what_no_proxy_supports_is_refused() {
        let zeros = CallOptions::default();
        for bad in [
            CallOptions { flags: 128, ..zeros },
            CallOptions { reserved: 1, ..zeros },
            CallOptions { transport: 4, ..zeros },
            CallOptions { transport: -1, ..zeros },
            CallOptions { flags: LINGER, linger_ms: -1, ..zeros },
        ] {
            assert_eq!(bad.options(), Err(Error::InvalidArgument), "{bad:?}");
        }
    }
}
