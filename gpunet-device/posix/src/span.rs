//! Bytes of a ring as C programs get them.

#[cfg(feature = "capi")]
use gpunet_abi::Result;
use gpunet_abi::{Piece, RingSpan};

/// `struct gpunet_span`: pieces of a ring. The second is empty unless the span wraps round the ring's end.
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
