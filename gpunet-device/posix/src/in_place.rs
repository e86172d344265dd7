//! Writing and reading in the ring, without a copy: `gpunet_reserve` and `gpunet_commit`,
//! `gpunet_peek` and `gpunet_release`.
//!
//! No call holds the direction between the two: what is sent after a reserve, or received after a
//! peek, takes the same bytes, and the span is void.

use super::direction::Taken;
use super::unless;
use gpunet_abi::{Direction, Error, Piece, Result, RingSpan};
use gpunet_device::internal::Lane;
use gpunet_device::{Group, Net, RecvHalf, SendHalf};

/// `struct gpunet_span`: pieces of a ring. The second is empty unless the span wraps round the
/// ring's end.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Span {
    pieces: [SpanPiece; 2],
}

/// `struct gpunet_piece`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct SpanPiece {
    data: *mut u8,
    len: u64,
}

impl Span {
    /// No bytes.
    pub const NONE: Self = Self { pieces: [SpanPiece { data: core::ptr::null_mut(), len: 0 }; 2] };

    /// The same for Rust.
    #[cfg(feature = "capi")]
    #[inline(always)]
    pub(crate) const fn ring(&self) -> RingSpan {
        let [first, second] = self.pieces;
        RingSpan {
            first: Piece { ptr: first.data, len: first.len as usize },
            second: Piece { ptr: second.data, len: second.len as usize },
        }
    }

    #[inline(always)]
    const fn piece(piece: Piece) -> SpanPiece {
        SpanPiece { data: piece.ptr, len: piece.len as u64 }
    }
}

impl From<RingSpan> for Span {
    #[inline(always)]
    fn from(span: RingSpan) -> Self {
        Self { pieces: [Self::piece(span.first), Self::piece(span.second)] }
    }
}

/// Tells the calling lane where a span lies, and returns its length. There is none after a failure.
///
/// # Safety
/// `to` is writable, by all lanes of the group.
#[cfg(feature = "capi")]
#[inline(always)]
pub(crate) unsafe fn tell(to: *mut Span, result: Result<RingSpan>) -> Result<i64> {
    let span = match &result {
        Ok(span) => Span::from(*span),
        Err(_) => Span::NONE,
    };
    // SAFETY: the caller's contract. Where lanes share one, all write the same.
    unsafe { to.write_volatile(span) };
    result.map(|span| span.len() as i64)
}

/// Reserves up to `len` bytes of ring space to write in place: at least one, and what is free by
/// now. The timeout is as in [`super::send::send_timeout`].
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same span.
///
/// # Errors
/// As [`SendHalf::reserve`]; WouldBlock when the timeout has passed; Busy when another group sends
/// on this socket.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix::{SOCKET_TIMEOUT, in_place::{commit, reserve}};
/// # fn example<G: Group>(g: &G, net: Net, socket: i32) -> Result<()> {
/// let span = reserve(g, net, socket, 1, SOCKET_TIMEOUT)?;
/// if g.is_leader() {
///     // SAFETY: the first byte of the reserved span.
///     unsafe { span.first.ptr.write_volatile(b'!') };
/// }
/// commit(g, net, socket, 1)?;
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub fn reserve<G: Group>(g: &G, net: Net, socket: i32, len: usize, timeout_ns: i64) -> Result<RingSpan> {
    let taken = Taken::take(g, net, socket, Direction::Send)?.with_timeout(timeout_ns);
    let mut half = SendHalf::load_locked(net, taken.handle);
    let reserved = half.reserve_timeout(g, len, taken.timeout);
    // What this call has learnt is what the commit goes by. All lanes have met since they loaded
    // the half.
    if reserved.is_ok() && Lane::of(g).is_last() {
        half.keep();
    }
    taken.finish(g, reserved)
}

/// Publishes the first `len` bytes of the space that [`reserve`] gave.
///
/// # Cooperation
/// All lanes call it with the same arguments, each after its own writes.
///
/// # Errors
/// InvalidArgument for more bytes than were reserved, as far as the ring can tell; BrokenPipe after
/// a shutdown; Busy when another group sends on this socket; BadHandle; NotConnected.
///
/// # Examples
///
/// See [`reserve`].
#[inline(always)]
pub fn commit<G: Group>(g: &G, net: Net, socket: i32, len: usize) -> Result<i64> {
    let taken = Taken::take(g, net, socket, Direction::Send)?;
    let mut half = SendHalf::load_locked(net, taken.handle);
    let committed = half
        .check()
        .and_then(|()| unless(len as u64 <= half.known_free(), Error::InvalidArgument))
        .map(|()| half.commit(g, len));
    taken.finish(g, committed.map(|()| 0))
}

/// Shows up to `len` received bytes in place: at least one, and what has come by now; none at the
/// end of the stream. The timeout is as in [`super::recv::recv_timeout`].
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same span.
///
/// # Errors
/// As [`RecvHalf::peek`]; InvalidArgument for `len` 0; WouldBlock when the timeout has passed; Busy
/// when another group receives from this socket.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix::{SOCKET_TIMEOUT, in_place::{peek, release}};
/// # fn example<G: Group>(g: &G, net: Net, socket: i32) -> Result<()> {
/// // Skips up to 4 KiB of what has come.
/// let span = peek(g, net, socket, 4096, SOCKET_TIMEOUT)?;
/// release(g, net, socket, span.len())?;
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub fn peek<G: Group>(g: &G, net: Net, socket: i32, len: usize, timeout_ns: i64) -> Result<RingSpan> {
    unless(len > 0, Error::InvalidArgument)?;
    let taken = Taken::take(g, net, socket, Direction::Recv)?.with_timeout(timeout_ns);
    let mut half = RecvHalf::load(net, taken.handle);
    let peeked = half.peek_timeout(g, len, taken.timeout);
    // As in `reserve`.
    if peeked.is_ok_and(|span| !span.is_empty()) && g.is_leader() {
        half.keep();
    }
    taken.finish(g, peeked)
}

/// As [`peek`], but waits until more than `have` bytes are there. It is for a request that is not
/// complete. At the end of the stream it shows the bytes that there are, which may be `have` or
/// fewer.
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same span.
///
/// # Errors
/// As [`peek`]; MessageTooLong when the ring holds no more than `have` bytes.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix::{SOCKET_TIMEOUT, in_place::{peek, peek_more}};
/// # fn example<G: Group>(g: &G, net: Net, socket: i32) -> Result<()> {
/// let seen = peek(g, net, socket, 4096, SOCKET_TIMEOUT)?.len();
/// // Incomplete: waits for what follows.
/// let more = peek_more(g, net, socket, seen, 4096, SOCKET_TIMEOUT)?;
/// # let _ = more;
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub fn peek_more<G: Group>(
    g: &G,
    net: Net,
    socket: i32,
    have: usize,
    len: usize,
    timeout_ns: i64,
) -> Result<RingSpan> {
    unless(len > 0, Error::InvalidArgument)?;
    let taken = Taken::take(g, net, socket, Direction::Recv)?.with_timeout(timeout_ns);
    let mut half = RecvHalf::load(net, taken.handle);
    let peeked = half.peek_more_timeout(g, have, len, taken.timeout);
    // As in `reserve`.
    if peeked.is_ok_and(|span| !span.is_empty()) && g.is_leader() {
        half.keep();
    }
    taken.finish(g, peeked)
}

/// Gives the first `len` bytes of what [`peek`] showed back to the sender.
///
/// # Cooperation
/// All lanes call it with the same arguments, each after its own reads.
///
/// # Errors
/// InvalidArgument for more bytes than were shown; Busy when another group receives from this
/// socket; BadHandle; NotConnected.
///
/// # Examples
///
/// See [`peek`].
#[inline(always)]
pub fn release<G: Group>(g: &G, net: Net, socket: i32, len: usize) -> Result<i64> {
    let taken = Taken::take(g, net, socket, Direction::Recv)?;
    let mut half = RecvHalf::load(net, taken.handle);
    let released =
        unless(len as u64 <= half.known_available(), Error::InvalidArgument).map(|()| half.release(g, len));
    taken.finish(g, released.map(|()| 0))
}
