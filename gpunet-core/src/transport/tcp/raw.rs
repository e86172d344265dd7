//! The three system calls on raw ring memory.

use gpunet_abi::RingSpan;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

fn vectors(span: RingSpan) -> [libc::iovec; 2] {
    span.pieces().map(|piece| libc::iovec { iov_base: piece.ptr.cast(), iov_len: piece.len })
}

fn message(vectors: &mut [libc::iovec; 2]) -> libc::msghdr {
    // SAFETY: all-zero is a valid msghdr: no name, no control data, no vectors.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = if vectors[1].iov_len > 0 { 2 } else { 1 };
    message
}

fn count(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sends the bytes of `span`, without waiting and without SIGPIPE.
pub(super) fn send(socket: BorrowedFd<'_>, span: RingSpan) -> io::Result<usize> {
    let mut vectors = vectors(span);
    let message = message(&mut vectors);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `message` points to vectors on this stack, and those to ring memory that
    // `SharedMemory::span` placed inside the mapped region; the kernel copies out of it.
    count(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) })
}

/// Receives into `span`, without waiting; 0 is end of stream.
pub(super) fn recv(socket: BorrowedFd<'_>, span: RingSpan) -> io::Result<usize> {
    let mut vectors = vectors(span);
    let mut message = message(&mut vectors);
    // SAFETY: as `send`; the span is free ring space, which only this proxy writes.
    count(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) })
}

/// Bytes sent that the peer has not acknowledged (SIOCOUTQ, tcp(7)).
pub(super) fn out_queue(socket: BorrowedFd<'_>) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (= TIOCOUTQ on Linux) writes one int through the pointer.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}
