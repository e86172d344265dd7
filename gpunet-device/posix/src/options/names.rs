//! Levels and options, with their numbers.

/// Linux's `SOL_SOCKET`.
pub const SOL_SOCKET: i32 = 1;
/// Linux's `IPPROTO_TCP` as a level.
pub const SOL_TCP: i32 = 6;
/// Linux's `IPPROTO_IPV6` as a level.
pub const SOL_IPV6: i32 = 41;
/// This library's own level.
pub const SOL_GPUNET: i32 = 0x6770;

/// `SO_REUSEADDR` (int; on by default).
pub const SO_REUSEADDR: i32 = 2;
/// `SO_TYPE` (int, read only).
pub const SO_TYPE: i32 = 3;
/// `SO_ERROR` (int, read only; reading clears it).
pub const SO_ERROR: i32 = 4;
/// `SO_SNDBUF` (int): size of the send ring, before connect or listen.
pub const SO_SNDBUF: i32 = 7;
/// `SO_RCVBUF` (int): size of the receive ring, before connect or listen.
pub const SO_RCVBUF: i32 = 8;
/// `SO_KEEPALIVE` (int).
pub const SO_KEEPALIVE: i32 = 9;
/// `SO_LINGER` (`struct linger`).
pub const SO_LINGER: i32 = 13;
/// `SO_RCVLOWAT` (int): bytes that must have come before poll reports POLLIN.
pub const SO_RCVLOWAT: i32 = 18;
/// `SO_SNDLOWAT` (int): bytes that must be free before poll reports POLLOUT; above 1 rounded up to
/// a multiple of 256.
pub const SO_SNDLOWAT: i32 = 19;
/// `SO_RCVTIMEO` (`struct timeval`).
pub const SO_RCVTIMEO: i32 = 20;
/// `SO_SNDTIMEO` (`struct timeval`).
pub const SO_SNDTIMEO: i32 = 21;
/// `SO_ACCEPTCONN` (int, read only).
pub const SO_ACCEPTCONN: i32 = 30;
/// `TCP_NODELAY` (int; on by default).
pub const TCP_NODELAY: i32 = 1;
/// `IPV6_V6ONLY` (int).
pub const IPV6_V6ONLY: i32 = 26;
/// Calls do not wait (int); as `FIONBIO`.
pub const GPUNET_NONBLOCK: i32 = 1;
/// What may carry the socket (int: 0 auto, 1 tcp, 2 peer); of a stream: what does.
pub const GPUNET_TRANSPORT: i32 = 2;
/// Small messages may have lines, where that is faster (int; on by default), before connect or
/// listen; of a stream: whether those that it sends have.
pub const GPUNET_LINES: i32 = 3;
