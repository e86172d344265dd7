//! Sending and receiving by a block, a warp or a thread, by a copy and in place; and poll.

use super::callers::{block, thread, warp};
use crate::in_place::{Span, tell};
use crate::recv::recv_timeout;
use crate::send::{MSG_DONTWAIT, send_timeout};
use crate::{SOCKET_TIMEOUT, in_place};
use gpunet_device::{PollFd, PollSet, poll};

macro_rules! data {
    ($(
        by $caller:expr;
        $send_timeout:ident, $send:ident,
        $recv_timeout:ident, $recv:ident,
        $reserve:ident, $commit:ident,
        $peek:ident, $release:ident,
        $peek_more:ident,
        $poll:ident;
    )*) => {
        exports! {$(
            fn $send_timeout(
                g = $caller, net, socket: i32, data: *const u8, len: u64, flags: i32, timeout_ns: i64,
            ) -> i64 {
                // SAFETY: `data` is readable for `len` bytes, by the caller's contract.
                unsafe { send_timeout(g, net, socket, data, len as usize, flags, timeout_ns) }
            }

            fn $recv_timeout(
                g = $caller, net, socket: i32, data: *mut u8, len: u64, flags: i32, timeout_ns: i64,
            ) -> i64 {
                // SAFETY: `data` is writable for `len` bytes, by the caller's contract.
                unsafe { recv_timeout(g, net, socket, data, len as usize, flags, timeout_ns) }
            }

            fn $reserve(
                g = $caller, net, socket: i32, len: u64, span: *mut Span, timeout_ns: i64,
            ) -> i64 {
                crate::unless(!span.is_null(), crate::errno::FAULT)?;
                // SAFETY: `span` is writable, by the caller's contract.
                unsafe { tell(span, in_place::reserve(g, net, socket, len as usize, timeout_ns)) }
            }

            fn $commit(g = $caller, net, socket: i32, len: u64) -> i32 {
                in_place::commit(g, net, socket, len as usize)
            }

            fn $peek(
                g = $caller, net, socket: i32, len: u64, span: *mut Span, timeout_ns: i64,
            ) -> i64 {
                crate::unless(!span.is_null(), crate::errno::FAULT)?;
                // SAFETY: `span` is writable, by the caller's contract.
                unsafe { tell(span, in_place::peek(g, net, socket, len as usize, timeout_ns)) }
            }

            fn $peek_more(
                g = $caller, net, socket: i32, have: u64, len: u64, span: *mut Span, timeout_ns: i64,
            ) -> i64 {
                crate::unless(!span.is_null(), crate::errno::FAULT)?;
                let found = in_place::peek_more(g, net, socket, have as usize, len as usize, timeout_ns);
                // SAFETY: `span` is writable, by the caller's contract.
                unsafe { tell(span, found) }
            }

            fn $release(g = $caller, net, socket: i32, len: u64) -> i32 {
                in_place::release(g, net, socket, len as usize)
            }

            fn $poll(g = $caller, net, fds: *mut PollFd, count: u64, timeout_ns: i64) -> i32 {
                crate::unless(!fds.is_null() || count == 0, crate::errno::FAULT)?;
                // SAFETY: `count` entries that only this group uses, by the caller's contract.
                let set = unsafe { PollSet::from_raw_parts(fds, count as usize) };
                poll(g, net, set, crate::call_timeout(timeout_ns, gpunet_device::Timeout::NEVER)).map(|ready| ready as i64)
            }
        )*}

        forwards! {$(
            fn $send(net, socket: i32, data: *const u8, len: u64, flags: i32) -> i64 =
                $send_timeout(net, socket, data, len, flags, SOCKET_TIMEOUT);
            fn $recv(net, socket: i32, data: *mut u8, len: u64, flags: i32) -> i64 =
                $recv_timeout(net, socket, data, len, flags, SOCKET_TIMEOUT);
        )*}
    };
}

data! {
    by block();
    gpunet_send_timeout, gpunet_send,
    gpunet_recv_timeout, gpunet_recv,
    gpunet_reserve, gpunet_commit,
    gpunet_peek, gpunet_release,
    gpunet_peek_more,
    gpunet_poll;

    by warp();
    gpunet_send_timeout_warp, gpunet_send_warp,
    gpunet_recv_timeout_warp, gpunet_recv_warp,
    gpunet_reserve_warp, gpunet_commit_warp,
    gpunet_peek_warp, gpunet_release_warp,
    gpunet_peek_more_warp,
    gpunet_poll_warp;

    by thread();
    gpunet_send_timeout_thread, gpunet_send_thread,
    gpunet_recv_timeout_thread, gpunet_recv_thread,
    gpunet_reserve_thread, gpunet_commit_thread,
    gpunet_peek_thread, gpunet_release_thread,
    gpunet_peek_more_thread,
    gpunet_poll_thread;
}

forwards! {
    fn gpunet_send_nb(net, socket: i32, data: *const u8, len: u64, flags: i32) -> i64 =
        gpunet_send_timeout(net, socket, data, len, flags | MSG_DONTWAIT, SOCKET_TIMEOUT);
    fn gpunet_recv_nb(net, socket: i32, data: *mut u8, len: u64, flags: i32) -> i64 =
        gpunet_recv_timeout(net, socket, data, len, flags | MSG_DONTWAIT, SOCKET_TIMEOUT);
}
