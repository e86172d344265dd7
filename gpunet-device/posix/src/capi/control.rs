//! Calls that open and close sockets.

use super::callers::{block_after_sync as block, thread};
use crate::SOCKET_TIMEOUT;
use crate::accept::accept;
use crate::open::{CallOptions, connect_to, listen_at};
use crate::sockaddr::{IN_LEN, IN6_LEN};
use core::ptr::null;

/// GPUnet's backlog.
const BACKLOG: i32 = 256;

macro_rules! control {
    ($(
        by $caller:expr;
        $connect_to:ident, $connect_in:ident,
        $listen_at:ident, $bind_in:ident,
        $accept_timeout:ident, $accept:ident,
        $shutdown:ident, $close:ident;
    )*) => {
        exports! {$(
            fn $connect_to(
                g = $caller, net, addr: *const u8, len: u32, options: *const CallOptions, timeout_ns: i64,
            ) -> i32 {
                // SAFETY: `addr` is readable for `len` bytes, and `options` null or readable, by
                // the caller's contract.
                unsafe { connect_to(g, net, addr, len, options, timeout_ns) }
            }

            fn $listen_at(
                g = $caller, net, addr: *const u8, len: u32, backlog: i32, options: *const CallOptions,
            ) -> i32 {
                // SAFETY: as above.
                unsafe { listen_at(g, net, addr, len, backlog, options) }
            }

            fn $accept_timeout(
                g = $caller, net, socket: i32, addr: *mut u8, len: *mut u32, timeout_ns: i64,
            ) -> i32 {
                // SAFETY: `len` is null or writable, and `addr` null or writable for `*len` bytes,
                // by the caller's contract.
                unsafe { accept(g, net, socket, addr, len, timeout_ns) }
            }

            fn $shutdown(g = $caller, net, socket: i32, how: i32) -> i32 {
                crate::shutdown::shutdown(g, net, socket, how)
            }

            fn $close(g = $caller, net, socket: i32) -> i32 {
                crate::close::close(g, net, socket)
            }
        )*}

        forwards! {$(
            fn $connect_in(net, addr: *const u8) -> i32 =
                $connect_to(net, addr, IN_LEN, null(), SOCKET_TIMEOUT);
            fn $bind_in(net, addr: *const u8) -> i32 =
                $listen_at(net, addr, IN_LEN, BACKLOG, null());
            fn $accept(net, socket: i32, addr: *mut u8, len: *mut u32) -> i32 =
                $accept_timeout(net, socket, addr, len, SOCKET_TIMEOUT);
        )*}
    };
}

control! {
    by block();
    gpunet_connect_to, gpunet_connect_in,
    gpunet_listen_at, gpunet_bind_in,
    gpunet_accept_timeout, gpunet_accept,
    gpunet_shutdown, gpunet_close;

    by thread();
    gpunet_connect_to_thread, gpunet_connect_in_thread,
    gpunet_listen_at_thread, gpunet_bind_in_thread,
    gpunet_accept_timeout_thread, gpunet_accept_thread,
    gpunet_shutdown_thread, gpunet_close_thread;
}

forwards! {
    fn gpunet_accept_nb(net, socket: i32, addr: *mut u8, len: *mut u32) -> i32 =
        gpunet_accept_timeout(net, socket, addr, len, 0);
    fn gpunet_connect_in6(net, addr: *const u8) -> i32 =
        gpunet_connect_to(net, addr, IN6_LEN, null(), SOCKET_TIMEOUT);
    fn gpunet_bind_in6(net, addr: *const u8) -> i32 =
        gpunet_listen_at(net, addr, IN6_LEN, BACKLOG, null());
}

exports! {
    fn gpunet_socket(g = block(), net, domain: i32, kind: i32, protocol: i32) -> i32 {
        crate::socket::socket(g, net, domain, kind, protocol)
    }

    fn gpunet_bind(g = block(), net, socket: i32, addr: *const u8, len: u32) -> i32 {
        // SAFETY: `addr` is readable for `len` bytes, by the caller's contract.
        unsafe { crate::bind::bind(g, net, socket, addr, len) }
    }

    fn gpunet_listen(g = block(), net, socket: i32, backlog: i32) -> i32 {
        crate::bind::listen(g, net, socket, backlog)
    }

    fn gpunet_connect(g = block(), net, socket: i32, addr: *const u8, len: u32) -> i32 {
        // SAFETY: `addr` is readable for `len` bytes, by the caller's contract.
        unsafe { crate::connect::connect(g, net, socket, addr, len) }
    }
}
