//! Sending and receiving by a block, a warp or a thread, by a copy and in place; and poll.

use super::callers::{block, thread, warp};
use crate::recv::recv_timeout;
use crate::send::{MSG_DONTWAIT, send_timeout};
use crate::{SOCKET_TIMEOUT, in_place};
use gpunet_abi::{Piece, Result, RingSpan};
use gpunet_device::{PollFd, PollSet, poll};

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
    /// Tells the calling lane where a span lies, and returns its length. There is none after a failure.
    ///
    /// # Safety
    /// `to` is writable, by all lanes of the group.
    #[inline(always)]
    pub(super) unsafe fn tell(to: *mut Self, result: Result<RingSpan>) -> Result<i64> {
        let pieces = match &result {
            Ok(span) => [Self::piece(span.first), Self::piece(span.second)],
            Err(_) => [SpanPiece { data: core::ptr::null_mut(), len: 0 }; 2],
        };
        // SAFETY: the caller's contract. Where lanes share one, all write the same.
        unsafe { to.write_volatile(Self { pieces }) };
        result.map(|span| span.len() as i64)
    }

    #[inline(always)]
    const fn piece(piece: Piece) -> SpanPiece {
        SpanPiece { data: piece.ptr, len: piece.len as u64 }
    }
}

macro_rules! data {
    ($(
        by $caller:expr;
        $send_timeout:ident | $gsend_timeout:ident, $send:ident | $gsend:ident,
        $recv_timeout:ident | $grecv_timeout:ident, $recv:ident | $grecv:ident,
        $reserve:ident | $greserve:ident, $commit:ident | $gcommit:ident,
        $peek:ident | $gpeek:ident, $release:ident | $grelease:ident,
        $peek_more:ident | $gpeek_more:ident,
        $poll:ident | $gpoll:ident;
    )*) => {
        exports! {$(
            fn $send_timeout | $gsend_timeout(
                g = $caller, net, socket: i32, data: *const u8, len: u64, flags: i32, timeout_ns: i64,
            ) -> i64 {
                // SAFETY: `data` is readable for `len` bytes, by the caller's contract.
                unsafe { send_timeout(g, net, socket, data, len as usize, flags, timeout_ns) }
            }

            fn $recv_timeout | $grecv_timeout(
                g = $caller, net, socket: i32, data: *mut u8, len: u64, flags: i32, timeout_ns: i64,
            ) -> i64 {
                // SAFETY: `data` is writable for `len` bytes, by the caller's contract.
                unsafe { recv_timeout(g, net, socket, data, len as usize, flags, timeout_ns) }
            }

            fn $reserve | $greserve(
                g = $caller, net, socket: i32, len: u64, span: *mut Span, timeout_ns: i64,
            ) -> i64 {
                crate::unless(!span.is_null(), crate::errno::FAULT)?;
                // SAFETY: `span` is writable, by the caller's contract.
                unsafe { Span::tell(span, in_place::reserve(g, net, socket, len as usize, timeout_ns)) }
            }

            fn $commit | $gcommit(g = $caller, net, socket: i32, len: u64) -> i32 {
                in_place::commit(g, net, socket, len as usize)
            }

            fn $peek | $gpeek(
                g = $caller, net, socket: i32, len: u64, span: *mut Span, timeout_ns: i64,
            ) -> i64 {
                crate::unless(!span.is_null(), crate::errno::FAULT)?;
                // SAFETY: `span` is writable, by the caller's contract.
                unsafe { Span::tell(span, in_place::peek(g, net, socket, len as usize, timeout_ns)) }
            }

            fn $peek_more | $gpeek_more(
                g = $caller, net, socket: i32, have: u64, len: u64, span: *mut Span, timeout_ns: i64,
            ) -> i64 {
                crate::unless(!span.is_null(), crate::errno::FAULT)?;
                let found = in_place::peek_more(g, net, socket, have as usize, len as usize, timeout_ns);
                // SAFETY: `span` is writable, by the caller's contract.
                unsafe { Span::tell(span, found) }
            }

            fn $release | $grelease(g = $caller, net, socket: i32, len: u64) -> i32 {
                in_place::release(g, net, socket, len as usize)
            }

            fn $poll | $gpoll(g = $caller, net, fds: *mut PollFd, count: u64, timeout_ns: i64) -> i32 {
                crate::unless(!fds.is_null() || count == 0, crate::errno::FAULT)?;
                // SAFETY: `count` entries that only this group uses, by the caller's contract.
                let set = unsafe { PollSet::from_raw_parts(fds, count as usize) };
                poll(g, net, set, crate::call_timeout(timeout_ns, gpunet_device::Timeout::NEVER)).map(|ready| ready as i64)
            }
        )*}

        forwards! {$(
            fn $send | $gsend(net, socket: i32, data: *const u8, len: u64, flags: i32) -> i64 =
                $send_timeout(net, socket, data, len, flags, SOCKET_TIMEOUT);
            fn $recv | $grecv(net, socket: i32, data: *mut u8, len: u64, flags: i32) -> i64 =
                $recv_timeout(net, socket, data, len, flags, SOCKET_TIMEOUT);
        )*}
    };
}

data! {
    by block();
    gpunet_send_timeout | gsend_timeout, gpunet_send | gsend,
    gpunet_recv_timeout | grecv_timeout, gpunet_recv | grecv,
    gpunet_reserve | greserve, gpunet_commit | gcommit,
    gpunet_peek | gpeek, gpunet_release | grelease,
    gpunet_peek_more | gpeek_more,
    gpunet_poll | gpoll;

    by warp();
    gpunet_send_timeout_warp | gsend_timeout_warp, gpunet_send_warp | gsend_warp,
    gpunet_recv_timeout_warp | grecv_timeout_warp, gpunet_recv_warp | grecv_warp,
    gpunet_reserve_warp | greserve_warp, gpunet_commit_warp | gcommit_warp,
    gpunet_peek_warp | gpeek_warp, gpunet_release_warp | grelease_warp,
    gpunet_peek_more_warp | gpeek_more_warp,
    gpunet_poll_warp | gpoll_warp;

    by thread();
    gpunet_send_timeout_thread | gsend_timeout_thread, gpunet_send_thread | gsend_thread,
    gpunet_recv_timeout_thread | grecv_timeout_thread, gpunet_recv_thread | grecv_thread,
    gpunet_reserve_thread | greserve_thread, gpunet_commit_thread | gcommit_thread,
    gpunet_peek_thread | gpeek_thread, gpunet_release_thread | grelease_thread,
    gpunet_peek_more_thread | gpeek_more_thread,
    gpunet_poll_thread | gpoll_thread;
}

forwards! {
    fn gpunet_send_nb | gsend_nb(net, socket: i32, data: *const u8, len: u64, flags: i32) -> i64 =
        gpunet_send_timeout(net, socket, data, len, flags | MSG_DONTWAIT, SOCKET_TIMEOUT);
    fn gpunet_recv_nb | grecv_nb(net, socket: i32, data: *mut u8, len: u64, flags: i32) -> i64 =
        gpunet_recv_timeout(net, socket, data, len, flags | MSG_DONTWAIT, SOCKET_TIMEOUT);
}
