//! Packets with descriptors on a SOCK_SEQPACKET socket.

use super::MAX_FRAME;
use gpunet_abi::layout::SHARDS;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// More descriptors travel with no packet: a region and the doorbells.
pub(crate) const MAX_FDS: usize = 1 + SHARDS;

/// What one `recvmsg` gave.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

/// Sends a packet whole or not at all; never waits.
///
/// # Errors
/// WouldBlock, while the other side has too much to read already; else the connection is over.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other(format!("{} descriptors in one frame", fds.len())));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags))?;
    Ok(())
}

/// Receives a packet, by way of a buffer of [`MAX_FRAME`] bytes; never waits. `None`: the other side
/// has closed.
///
/// Descriptors are close-on-exec. Those of a packet that is refused are closed.
///
/// # Errors
/// WouldBlock, while there is none. InvalidData, for one that is longer than a frame or has more
/// descriptors than any frame, or than this process may have.
pub(crate) fn recv(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
    debug_assert!(buffer.len() >= MAX_FRAME);
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut next = || {
        rustix::io::retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags))
    };
    let got = match next() {
        // It closed without having read everything. That is told once, and before what it had said.
        Err(Errno::CONNRESET) => next()?,
        got => got?,
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet longer than any frame"));
    }
    // A packet of no bytes is no frame either: whoever sends one is through.
    Ok((got.bytes > 0).then(|| Packet { bytes: buffer[..got.bytes].to_vec(), fds }))
}
