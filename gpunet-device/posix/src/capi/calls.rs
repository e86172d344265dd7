//! Calls of functions of the host program: `include/gpunet_calls.h`.
//!
//! What a C program has of a caller is the [`Caller`] itself, one in each thread that calls.

use super::callers::{block, thread, warp};
use crate::call_timeout;
use gpunet_abi::{Error, Result};
use gpunet_calls::{Bytes, Caller, Calls, Failure, Limit, Ticket};
use gpunet_device::{Buffer, Net, Timeout};

/// `struct gpunet_ticket`.
pub type CallTicket = Ticket<Bytes>;

/// The errno of a failure. A call whose time is over is EAGAIN in C.
#[inline(always)]
const fn errno_of(failure: Failure) -> Error {
    match failure {
        Failure::Wait(Error::TimedOut) => Error::WouldBlock,
        failure => failure.error(),
    }
}

/// The timeout of a call.
#[inline(always)]
const fn limit(timeout_ns: i64) -> Timeout {
    call_timeout(timeout_ns, Timeout::NEVER)
}

/// Bytes that a C program gives, or room of it.
///
/// # Safety
/// `data` is readable, or writable, for `len` bytes while the buffer is used.
#[inline(always)]
unsafe fn bytes(data: *const u8, len: u64) -> Result<Buffer> {
    crate::unless(!data.is_null() || len == 0, crate::errno::FAULT)?;
    // SAFETY: the caller's contract; a request is only read.
    Ok(unsafe { Buffer::from_raw_parts(data.cast_mut(), len as usize) })
}

/// Calls by a thread's caller, which is another one afterwards.
///
/// # Safety
/// `caller` is null, or the calling thread's own, which `gpunet_caller_open` has made or which is
/// zero.
#[inline(always)]
unsafe fn by_caller(
    net: Net,
    caller: *mut Caller,
    body: impl FnOnce(&mut Caller) -> core::result::Result<i64, Failure>,
) -> Result<i64> {
    // SAFETY: the caller's contract; every pattern of bits is a value of its fields.
    let caller = unsafe { caller.as_mut() }.ok_or(crate::errno::FAULT)?;
    crate::unless(caller.is_open(), Error::InvalidArgument)?;
    caller.set_net(net);
    body(caller).map_err(errno_of)
}

/// A thread's ticket.
///
/// # Safety
/// `ticket` is null, or the calling thread's own.
#[inline(always)]
unsafe fn of_thread<'a>(ticket: *mut CallTicket) -> Result<&'a mut CallTicket> {
    // SAFETY: the caller's contract; every pattern of bits is a value of its fields.
    unsafe { ticket.as_mut() }.ok_or(crate::errno::FAULT)
}

macro_rules! calls {
    ($(
        by $caller:expr;
        $open:ident, $start:ident, $wait:ident, $tell:ident, $close:ident,
        $call:ident;
    )*) => {
        exports! {$(
            fn $open(g = $caller, net, calls: Calls, caller: *mut Caller) -> i32 {
                crate::unless(!caller.is_null(), crate::errno::FAULT)?;
                let opened = Caller::open(g, net, calls);
                crate::unless(opened.is_open(), Error::NoBuffers)?;
                // SAFETY: the thread's own, by the caller's contract.
                unsafe { caller.write(opened) };
                Ok(0)
            }

            fn $start(
                g = $caller, net, caller: *mut Caller, function: u32, request: *const u8, len: u64, room: u64,
                ticket: *mut CallTicket, timeout_ns: i64,
            ) -> i32 {
                // SAFETY: the thread's own, by the caller's contract.
                let ticket = unsafe { of_thread(ticket) }?;
                // SAFETY: readable, by the caller's contract.
                let request = unsafe { bytes(request, len) }?;
                let start = |caller: &mut Caller| {
                    *ticket = caller.start_bytes(g, function, request, room as usize, limit(timeout_ns))?;
                    Ok(0)
                };
                // SAFETY: the thread's own, by the caller's contract.
                unsafe { by_caller(net, caller, start) }
            }

            fn $wait(
                g = $caller, net, caller: *mut Caller, ticket: *mut CallTicket, answer: *mut u8, room: u64,
                timeout_ns: i64,
            ) -> i64 {
                // SAFETY: writable, by the caller's contract.
                let answer = unsafe { bytes(answer, room) }?;
                // SAFETY: the thread's own, by the caller's contract.
                let ticket = unsafe { of_thread(ticket) }?;
                let wait = |caller: &mut Caller| {
                    caller.wait_bytes(g, ticket, answer, limit(timeout_ns)).map(|len| len as i64)
                };
                // SAFETY: as above.
                unsafe { by_caller(net, caller, wait) }
            }

            fn $tell(
                g = $caller, net, caller: *mut Caller, function: u32, request: *const u8, len: u64,
                timeout_ns: i64,
            ) -> i32 {
                // SAFETY: readable, by the caller's contract.
                let request = unsafe { bytes(request, len) }?;
                let tell = |caller: &mut Caller| {
                    caller.tell_bytes(g, function, request, limit(timeout_ns)).map(|()| 0)
                };
                // SAFETY: the thread's own, by the caller's contract.
                unsafe { by_caller(net, caller, tell) }
            }

            fn $close(g = $caller, net, caller: *mut Caller) -> i32 {
                let close = |caller: &mut Caller| {
                    core::mem::replace(caller, Caller::none(net)).close(g);
                    Ok(0)
                };
                // SAFETY: the thread's own, by the caller's contract.
                unsafe { by_caller(net, caller, close) }
            }
        )*}

        $(
            /// See `include/gpunet_calls.h`.
            ///
            /// # Safety
            /// As the other calls.
            #[unsafe(no_mangle)]
            #[inline(never)]
            pub unsafe extern "C" fn $call(
                net: u64,
                caller: *mut Caller,
                function: u32,
                request: *const u8,
                len: u64,
                answer: *mut u8,
                room: u64,
                timeout_ns: i64,
            ) -> i64 {
                // Before anything is called.
                if answer.is_null() && room > 0 {
                    return crate::returned(Err(crate::errno::FAULT));
                }
                let timeout = limit(timeout_ns);
                // SAFETY: null, or the thread's own, by the caller's contract.
                let of_call = unsafe { caller.as_ref() }
                    .map_or_else(|| Limit::of(timeout), |caller| caller.limit(timeout));
                let mut ticket = CallTicket::DONE;
                // SAFETY: the caller's contract; the ticket is this thread's own.
                let started = unsafe {
                    $start(net, caller, function, request, len, room, &raw mut ticket, timeout_ns)
                };
                if started < 0 {
                    return started.into();
                }
                // Both waits end together.
                let left = if timeout_ns > 0 { of_call.left().packed() as i64 } else { timeout_ns };
                // SAFETY: as above.
                let got = unsafe { $wait(net, caller, &raw mut ticket, answer, room, left) };
                // SAFETY: as above. It is not null: the start has succeeded.
                if let Some(caller) = unsafe { caller.as_mut() } {
                    caller.give_up(ticket);
                }
                got
            }
        )*
    };
}

calls! {
    by block();
    gpunet_caller_open, gpunet_call_start, gpunet_call_wait, gpunet_call_tell, gpunet_caller_close,
    gpunet_call;

    by warp();
    gpunet_caller_open_warp, gpunet_call_start_warp, gpunet_call_wait_warp, gpunet_call_tell_warp,
    gpunet_caller_close_warp,
    gpunet_call_warp;

    by thread();
    gpunet_caller_open_thread, gpunet_call_start_thread, gpunet_call_wait_thread, gpunet_call_tell_thread,
    gpunet_caller_close_thread,
    gpunet_call_thread;
}
