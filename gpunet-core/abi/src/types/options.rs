//! Socket options, as the device keeps them and as requests carry them.

use crate::types::direction::Direction;
use crate::types::timeout::Timeout;

/// Smallest ring: 4 KiB.
pub const MIN_RING_LOG2: u8 = 12;
/// Largest ring: 16 MiB.
pub const MAX_RING_LOG2: u8 = 24;
/// The ring of a stream that names none and whose transport does not choose one: 256 KiB, the
/// original GPUnet's size.
pub const DEFAULT_RING_LOG2: u8 = 18;
/// In place of a size: the proxy chooses one.
pub const AUTO_RING: u8 = 0;

/// Which transport a socket may use.
///
/// # Examples
///
/// ```
/// use gpunet_abi::{Options, TransportKind};
///
/// let options = Options::DEFAULT.with_transport(TransportKind::Peer);
/// assert_eq!(TransportKind::from_raw(options.transport), Some(TransportKind::Peer));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TransportKind {
    /// Same-host peer if the proxy holds that listener, RDMA to a destination known to speak it,
    /// else TCP.
    #[default]
    Auto = 0,
    /// TCP.
    Tcp = 1,
    /// Both ends on this host, through shared rings.
    Peer = 2,
    /// Reliable connections over RDMA, in the protocol of librdmacm's rsockets.
    Rc = 3,
}

impl TransportKind {
    /// Reads the ABI's number.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::Auto),
            1 => Some(Self::Tcp),
            2 => Some(Self::Peer),
            3 => Some(Self::Rc),
            _ => None,
        }
    }
}

/// The options of one socket. 32 bytes, no padding.
///
/// # Examples
///
/// ```
/// use gpunet_abi::{Options, Timeout, TransportKind};
///
/// let options = Options::DEFAULT
///     .with_rings(1 << 20, 1 << 20)
///     .with_transport(TransportKind::Tcp)
///     .with_timeouts(Timeout::NEVER, Timeout::secs(5)) // receives: 5 s
///     .with_flag(Options::KEEPALIVE, true);
/// assert!(options.is_valid() && options.has(Options::NODELAY));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Options {
    /// Bits of [`Options::NODELAY`] and its neighbours.
    pub flags: u32,
    /// SO_LINGER in milliseconds; negative: the proxy's default; 0: close resets the connection.
    pub linger_ms: i32,
    /// SO_SNDTIMEO in nanoseconds; 0: no limit. Connect obeys it too.
    pub send_timeout_ns: u64,
    /// SO_RCVTIMEO in nanoseconds; 0: no limit. Accept obeys it too.
    pub recv_timeout_ns: u64,
    /// Send ring: log2 of its bytes, 12 to 24, or [`AUTO_RING`].
    pub send_log2: u8,
    /// Receive ring: log2 of its bytes, 12 to 24, or [`AUTO_RING`].
    pub recv_log2: u8,
    /// A [`TransportKind`] as a number.
    pub transport: u8,
    /// SO_RCVLOWAT in bytes, little-endian; 0 stands for 1.
    recv_low: [u8; 3],
    /// SO_SNDLOWAT in steps of [`SEND_LOW_STEP`] bytes, little-endian; 0 stands for one byte.
    send_low: [u8; 2],
}

/// SO_SNDLOWAT is a multiple of this many bytes.
const SEND_LOW_STEP: u32 = 256;
/// The largest low-water mark for receiving; that for sending has fewer digits.
const MAX_RECV_LOW: u32 = (1 << 24) - 1;

const _: () = assert!(size_of::<Options>() == 32);

impl Options {
    /// TCP_NODELAY, on by default.
    pub const NODELAY: u32 = 1;
    /// SO_REUSEADDR, on by default.
    pub const REUSEADDR: u32 = 2;
    /// SO_KEEPALIVE.
    pub const KEEPALIVE: u32 = 4;
    /// IPV6_V6ONLY.
    pub const V6ONLY: u32 = 8;
    /// Calls do not wait: EAGAIN instead.
    pub const NONBLOCK: u32 = 16;

    /// Small messages may have [lines](crate::line), on by default; before connect or listen, and
    /// both ends must want it.
    pub const LINES: u32 = 64;

    /// The options with which a socket starts.
    pub const DEFAULT: Self = Self {
        flags: Self::NODELAY | Self::REUSEADDR | Self::LINES,
        linger_ms: -1,
        send_timeout_ns: 0,
        recv_timeout_ns: 0,
        send_log2: AUTO_RING,
        recv_log2: AUTO_RING,
        transport: TransportKind::Auto as u8,
        recv_low: [0; 3],
        send_low: [0; 2],
    };

    /// Returns whether a flag is set.
    #[must_use]
    pub const fn has(self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Sets or clears a flag.
    #[must_use]
    pub const fn with_flag(mut self, flag: u32, on: bool) -> Self {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
        self
    }

    /// Asks for ring sizes in bytes; rounded up to a power of two between 4 KiB and 16 MiB.
    ///
    /// 0, the default, lets the proxy choose: over tcp up to 1 MiB, as long as there is much ring
    /// memory for few sockets; over the other transports 256 KiB.
    #[must_use]
    pub const fn with_rings(mut self, send_bytes: u64, recv_bytes: u64) -> Self {
        self.send_log2 = if send_bytes == 0 { AUTO_RING } else { ring_log2(send_bytes) };
        self.recv_log2 = if recv_bytes == 0 { AUTO_RING } else { ring_log2(recv_bytes) };
        self
    }

    /// The sizes of the send ring and the receive ring, log2 of bytes: what was asked for, else
    /// [`DEFAULT_RING_LOG2`].
    #[must_use]
    pub const fn rings(self) -> (u8, u8) {
        (named_or_default(self.send_log2), named_or_default(self.recv_log2))
    }

    /// Asks for a transport.
    #[must_use]
    pub const fn with_transport(mut self, kind: TransportKind) -> Self {
        self.transport = kind as u8;
        self
    }

    /// Sets how long calls may wait: those that send or connect, and those that receive or accept.
    #[must_use]
    pub const fn with_timeouts(mut self, send: Timeout, recv: Timeout) -> Self {
        self.send_timeout_ns = send.option_ns();
        self.recv_timeout_ns = recv.option_ns();
        self
    }

    /// How long calls in this direction may wait: not at all if the socket is non-blocking, else
    /// its timeout option.
    #[inline(always)]
    #[must_use]
    pub const fn timeout(&self, direction: Direction) -> Timeout {
        let ns = match direction {
            Direction::Send => self.send_timeout_ns,
            Direction::Recv => self.recv_timeout_ns,
        };
        if self.has(Self::NONBLOCK) { Timeout::NON_BLOCKING } else { Timeout::of_option(ns) }
    }

    /// Sets SO_LINGER in milliseconds; negative for the proxy's default, 0 to reset at close.
    #[must_use]
    pub const fn with_linger_ms(mut self, linger_ms: i32) -> Self {
        self.linger_ms = linger_ms;
        self
    }

    /// Sets the low-water marks, in bytes: poll and poll groups report POLLOUT when `send` bytes
    /// are free, and POLLIN when `recv` bytes can be received. 1, the default, reports every byte.
    ///
    /// A mark above the ring's size counts as that size. `send` above 1 is rounded up to a multiple
    /// of 256.
    ///
    /// # Examples
    ///
    /// ```
    /// use gpunet_abi::Options;
    ///
    /// let options = Options::DEFAULT.with_low_water(1000, 4096);
    /// assert_eq!(options.low_water(), (1024, 4096));
    /// ```
    #[must_use]
    pub const fn with_low_water(mut self, send: u32, recv: u32) -> Self {
        let recv = if recv > MAX_RECV_LOW { MAX_RECV_LOW } else { recv };
        let [a, b, c, _] = if recv <= 1 { [0; 4] } else { recv.to_le_bytes() };
        self.recv_low = [a, b, c];
        let steps = if send <= 1 { 0 } else { send.div_ceil(SEND_LOW_STEP) };
        let steps = if steps > u16::MAX as u32 { u16::MAX } else { steps as u16 };
        self.send_low = steps.to_le_bytes();
        self
    }

    /// The low-water marks for sending and for receiving, in bytes: at least 1.
    #[must_use]
    pub const fn low_water(self) -> (u32, u32) {
        let [a, b, c] = self.recv_low;
        low_water_of(u64::from_le_bytes([0, 0, 0, a, b, c, self.send_low[0], self.send_low[1]]))
    }

    /// Returns whether a proxy supports every field.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        let (send, recv) = self.rings();
        send >= MIN_RING_LOG2
            && send <= MAX_RING_LOG2
            && recv >= MIN_RING_LOG2
            && recv <= MAX_RING_LOG2
            && TransportKind::from_raw(self.transport).is_some()
    }
}

/// Offset of the last eight bytes of [`Options`], which hold the marks: a poll loads no more of
/// them.
pub const LOW_WATER_AT: usize = 24;

const _: () = assert!(core::mem::offset_of!(Options, recv_low) == LOW_WATER_AT + 3);
const _: () = assert!(core::mem::offset_of!(Options, send_low) == LOW_WATER_AT + 6);

/// The low-water marks for sending and for receiving in the last eight bytes of [`Options`], in
/// bytes: at least 1.
#[inline(always)]
#[must_use]
pub const fn low_water_of(last: u64) -> (u32, u32) {
    let (recv, steps) = ((last >> 24) as u32 & MAX_RECV_LOW, (last >> 48) as u32);
    (if steps == 0 { 1 } else { steps * SEND_LOW_STEP }, if recv == 0 { 1 } else { recv })
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

const fn named_or_default(log2: u8) -> u8 {
    if log2 == AUTO_RING { DEFAULT_RING_LOG2 } else { log2 }
}

/// The log2 of the smallest allowed ring that holds `bytes`.
#[must_use]
pub const fn ring_log2(bytes: u64) -> u8 {
    let mut log2 = MIN_RING_LOG2;
    while log2 < MAX_RING_LOG2 && (1u64 << log2) < bytes {
        log2 += 1;
    }
    log2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_sizes_round_up_and_stay_in_bounds() {
        assert_eq!(ring_log2(0), 12);
        assert_eq!(ring_log2(4097), 13);
        assert_eq!(ring_log2(1 << 18), 18);
        assert_eq!(ring_log2(u64::MAX), 24);
    }

    #[test]
    fn low_water_marks_are_kept_and_bounded() {
        assert_eq!(Options::DEFAULT.low_water(), (1, 1));
        for (set, kept) in [
            ((0, 0), (1, 1)),
            ((1, 1), (1, 1)),
            ((2, 2), (256, 2)),
            ((256, 65_536), (256, 65_536)),
            ((257, 0xab_cdef), (512, 0xab_cdef)),
            ((u32::MAX, u32::MAX), (65_535 * 256, (1 << 24) - 1)),
        ] {
            let options = Options::DEFAULT.with_rings(1 << 20, 1 << 16).with_low_water(set.0, set.1);
            assert_eq!(options.low_water(), kept, "{set:?}");
            assert_eq!(options.rings(), (20, 16), "its neighbours stay");
            assert_eq!(options.with_low_water(1, 1), Options::DEFAULT.with_rings(1 << 20, 1 << 16));
        }
    }

    #[test]
    fn a_ring_that_was_not_named_is_the_proxys_choice() {
        let options = Options::DEFAULT.with_rings(0, 4096);
        assert_eq!((options.send_log2, options.recv_log2), (AUTO_RING, 12));
        assert_eq!(options.rings(), (DEFAULT_RING_LOG2, 12));
        assert!(options.is_valid());
    }
}
