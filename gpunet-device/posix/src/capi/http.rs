//! HTTP over a stream: `gpunet_http_next`, `gpunet_http_answer`, and what a program asks of a
//! request.
//!
//! The parser is gpunet-http's. These calls are made of the other exported ones, so that a kernel
//! has each send and receive once.

mod exchange;

use super::callers::{block, thread, warp};
use super::data::{
    gpunet_peek_more, gpunet_peek_more_thread, gpunet_peek_more_warp, gpunet_release, gpunet_release_thread,
    gpunet_release_warp, gpunet_send_timeout, gpunet_send_timeout_thread, gpunet_send_timeout_warp,
};
use crate::in_place::Span;
use exchange::{Calls, Given};
pub use exchange::{HttpRequest, State};
use gpunet_device::Group;
use gpunet_http::Limits;
use gpunet_http::alone::Part;

macro_rules! http {
    ($(
        $calls:ident by $caller:expr;
        $next:ident, $answer:ident;
        $peek_more:ident, $release:ident, $send:ident;
    )*) => {$(
        struct $calls;

        impl Calls for $calls {
            fn group() -> impl Group {
                $caller
            }

            unsafe fn peek_more(net: u64, socket: i32, have: u64, len: u64, span: *mut Span, ns: i64) -> i64 {
                // SAFETY: the caller's contract.
                unsafe { $peek_more(net, socket, have, len, span, ns) }
            }

            unsafe fn release(net: u64, socket: i32, len: u64) -> i32 {
                // SAFETY: the caller's contract.
                unsafe { $release(net, socket, len) }
            }

            unsafe fn send(net: u64, socket: i32, data: *const u8, len: u64, flags: i32, ns: i64) -> i64 {
                // SAFETY: the caller's contract.
                unsafe { $send(net, socket, data, len, flags, ns) }
            }
        }

        /// See `include/gpunet_http.h`.
        ///
        /// # Safety
        /// `net` is 0 or the address of a context, and each pointer points to what the header says.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub unsafe extern "C" fn $next(
            net: u64, socket: i32, request: *mut HttpRequest, limits: *const Limits, timeout_ns: i64,
        ) -> i32 {
            // SAFETY: the caller's contract.
            (unsafe { exchange::next::<$calls>(net, socket, request, limits, timeout_ns) }) as i32
        }

        /// See `include/gpunet_http.h`.
        ///
        /// # Safety
        /// As the other calls.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub unsafe extern "C" fn $answer(
            net: u64,
            socket: i32,
            request: *mut HttpRequest,
            status: i32,
            content_type: *const u8,
            body: *const u8,
            len: u64,
            timeout_ns: i64,
        ) -> i32 {
            let given = Given { status, content_type, body, len };
            // SAFETY: the caller's contract.
            (unsafe { exchange::answer::<$calls>(net, socket, request, given, timeout_ns) }) as i32
        }
    )*};
}

http! {
    Block by block();
    gpunet_http_next, gpunet_http_answer;
    gpunet_peek_more, gpunet_release, gpunet_send_timeout;

    Warp by warp();
    gpunet_http_next_warp, gpunet_http_answer_warp;
    gpunet_peek_more_warp, gpunet_release_warp, gpunet_send_timeout_warp;

    Thread by thread();
    gpunet_http_next_thread, gpunet_http_answer_thread;
    gpunet_peek_more_thread, gpunet_release_thread, gpunet_send_timeout_thread;
}

/// See `include/gpunet_http.h`.
///
/// # Safety
/// `request` is one that `gpunet_http_next` has given and that is not answered; the texts end with
/// a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_http_is(
    request: *const HttpRequest,
    method: *const u8,
    path: *const u8,
) -> i32 {
    // SAFETY: the caller's contract.
    let Some((parts, bytes)) = (unsafe { exchange::given(request) }) else { return 0 };
    // SAFETY: as above.
    let (method, path) = unsafe { (exchange::text(method), exchange::text(path)) };
    i32::from(parts.is(&bytes, method, path))
}

/// See `include/gpunet_http.h`.
///
/// # Safety
/// As [`gpunet_http_is`]; `value` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_http_field(
    request: *const HttpRequest,
    name: *const u8,
    value: *mut Part,
) -> i32 {
    // SAFETY: the caller's contract.
    let Some((parts, bytes)) = (unsafe { exchange::given(request) }) else { return 0 };
    // SAFETY: as above.
    let Some(found) = parts.field(&bytes, unsafe { exchange::text(name) }) else { return 0 };
    if !value.is_null() {
        // SAFETY: writable, by the caller's contract. Lanes that share it write the same.
        unsafe { value.write_volatile(found) };
    }
    1
}
