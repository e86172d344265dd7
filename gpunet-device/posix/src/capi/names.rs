//! Addresses and options.

use super::callers::{block_after_sync as block, thread};
use crate::name::End;

macro_rules! names {
    ($(
        by $caller:expr;
        $getsockname:ident, $getpeername:ident,
        $setsockopt:ident, $getsockopt:ident,
        $ioctl:ident;
    )*) => {exports! {$(
        fn $getsockname(g = $caller, net, socket: i32, addr: *mut u8, len: *mut u32) -> i32 {
            // SAFETY: `len` is null or writable, and `addr` null or writable for `*len` bytes, by
            // the caller's contract.
            unsafe { crate::name::name(g, net, socket, End::Local, addr, len) }
        }

        fn $getpeername(g = $caller, net, socket: i32, addr: *mut u8, len: *mut u32) -> i32 {
            // SAFETY: as above.
            unsafe { crate::name::name(g, net, socket, End::Peer, addr, len) }
        }

        fn $setsockopt(
            g = $caller, net, socket: i32, level: i32, name: i32, value: *const u8, len: u32,
        ) -> i32 {
            // SAFETY: `value` is null or readable for `len` bytes, by the caller's contract.
            unsafe { crate::options::set(g, net, socket, level, name, value, len) }
        }

        fn $getsockopt(
            g = $caller, net, socket: i32, level: i32, name: i32, value: *mut u8, len: *mut u32,
        ) -> i32 {
            // SAFETY: `len` is null or writable, and `value` null or writable for `*len` bytes, by
            // the caller's contract.
            unsafe { crate::options::get(g, net, socket, level, name, value, len) }
        }

        fn $ioctl(g = $caller, net, socket: i32, request: u32, value: *mut i32) -> i32 {
            // SAFETY: `value` is null, or readable and writable, by the caller's contract.
            unsafe { crate::ioctl::ioctl(g, net, socket, request, value) }
        }
    )*}};
}

names! {
    by block();
    gpunet_getsockname, gpunet_getpeername,
    gpunet_setsockopt, gpunet_getsockopt,
    gpunet_ioctl;

    by thread();
    gpunet_getsockname_thread, gpunet_getpeername_thread,
    gpunet_setsockopt_thread, gpunet_getsockopt_thread,
    gpunet_ioctl_thread;
}

exports! {
    fn gpunet_setnonblock(g = block(), net, socket: i32, on: i32) -> i32 {
        crate::ioctl::nonblocking(g, net, socket, on != 0)
    }
}
