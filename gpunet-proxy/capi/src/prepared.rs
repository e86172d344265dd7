//! Prepared messages: the types of gpunet.h that are in this header, too, and the calls of kernels on the CPU.
//!
//! `gpunet_device` has their layouts; the header has their text from cbindgen.toml, guarded as in gpunet.h.

use crate::cpu::{SOLO, call};
use crate::failure::int;
use crate::memory::Out;
use gpunet_device::trigger::PreparedExt;
use gpunet_device::{Gate, Prepared, RingSpan, Trigger};
use gpunet_posix as posix;
use std::ffi::{c_int, c_void};

/// `struct gpunet_piece`.
/// cbindgen:ignore
#[repr(C)]
#[derive(Clone, Copy)]
struct Piece {
    data: *mut c_void,
    len: u64,
}

/// `struct gpunet_span`.
/// cbindgen:ignore
#[repr(C)]
pub struct Span {
    piece: [Piece; 2],
}

impl Span {
    pub(crate) fn of(span: RingSpan) -> Self {
        let mut pieces = span.pieces().into_iter();
        let mut next = || match pieces.next() {
            Some(piece) => Piece { data: piece.ptr.cast(), len: piece.len as u64 },
            None => Piece { data: std::ptr::null_mut(), len: 0 },
        };
        Self { piece: [next(), next()] }
    }
}

/// In a kernel on the CPU: publishes a taken direction up to the trigger's position: what was filled, or what was read. One
/// that was released already, or comes too late, does nothing.
///
/// `net` is the kernel's net value. Errors: -EBADF; -ENOTCONN; -EINVAL when the program has not taken the direction; -EPIPE after
/// the end of the direction; -EPROTO; -ENETDOWN; -ECANCELED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_trigger_release(net: u64, trigger: Trigger) -> c_int {
    int(|| call(net, |net| posix::trigger::release(&SOLO, net, trigger)))
}

/// In a kernel on the CPU: waits until a gate passes, for so many nanoseconds; negative: without limit; 0: not at all. A gate
/// that has passed stays open.
///
/// Errors: -EAGAIN when the time is over. When it can no longer pass: -EPIPE of a send whose reader has gone; -ENODATA of a
/// receive that has ended before; -ECONNRESET; the socket's failure. Those of gpunet_host_cpu_trigger_release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_wait(net: u64, gate: Gate, timeout_ns: i64) -> c_int {
    int(|| call(net, |net| posix::trigger::wait(&SOLO, net, gate, timeout_ns)))
}

/// In a kernel on the CPU: returns 1 if a gate passes now, else 0.
///
/// Errors: as gpunet_host_cpu_wait, without -EAGAIN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_test(net: u64, gate: Gate) -> c_int {
    int(|| call(net, |net| posix::trigger::test(&SOLO, net, gate)))
}

/// In a kernel on the CPU: leaves where a message lies in the ring. It does not check that it is filled, or free.
///
///     static void fill(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
///         gpunet_host_send_message *message = argument;
///         struct gpunet_span span;
///         gpunet_host_cpu_wait(net, message->room, -1);
///         gpunet_host_cpu_prepared_span(net, message->prepared, &span);
///         memset(span.piece[0].data, 'x', span.piece[0].len);
///         memset(span.piece[1].data, 'x', span.piece[1].len);
///         gpunet_host_cpu_trigger_release(net, message->post);
///     }
///
/// Errors: -EBADF; -EFAULT; -ENOTCONN; -EINVAL when the program has not taken the direction, or for a message that is longer than
/// the ring; -ENETDOWN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_prepared_span(
    net: u64,
    message: Prepared,
    span: *mut Span,
) -> c_int {
    int(|| {
        let out = Out::new(span, "span")?;
        call(net, |net| {
            out.put(Span::of(message.span(&SOLO, net)?));
            Ok(0)
        })
    })
}
