//! Packets with descriptors on a SOCK_SEQPACKET socket.

use super::MAX_FRAME;
use gpunet_abi::layout::SHARDS;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags, SendAncillaryBuffer,
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
    Ok(match recv_once(socket, buffer)? {
        // The kernel looks for a packet, and then whether the other side has closed: a packet that came in between, its
        // last one, is still there.
        None => match recv_once(socket, buffer) {
            // That was a packet of no bytes, and no frame: whoever sends one is through.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            last => last?,
        },
        packet => packet,
    })
}

fn recv_once(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
    debug_assert!(buffer.len() >= MAX_FRAME);
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = without_reset(|| recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags))?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet longer than any frame"));
    }
    Ok((got.bytes > 0 || !fds.is_empty()).then(|| Packet { bytes: buffer[..got.bytes].to_vec(), fds }))
}

/// A packet from somebody who may be hostile.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Without descriptors.
    Plain(Packet),
    /// With descriptors: it stays in the queue. Whoever takes it ([`recv`]) or closes the socket may be the last to
    /// close a descriptor, and that can take as long as its sender likes: a TCP socket may linger for hours.
    WithDescriptors,
}

/// Receives a packet as [`recv`] does, but leaves one with descriptors where it is.
///
/// # Errors
/// As [`recv`].
pub(crate) fn recv_plain(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Incoming>> {
    let mut look = || {
        let (mut none, flags) = (RecvAncillaryBuffer::new(&mut []), RecvFlags::DONTWAIT | RecvFlags::PEEK);
        // A look gets copies of the descriptors. Without space for them the kernel closes those copies, which are never
        // the last, and says that there were some.
        without_reset(|| recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut none, flags))
    };
    let mut seen = look()?;
    if seen.bytes == 0 {
        // As in `recv`.
        seen = look()?;
    }
    if seen.flags.contains(ReturnFlags::CTRUNC) {
        return Ok(Some(Incoming::WithDescriptors));
    }
    // A packet of no bytes stays where it is, too: what is behind it is not looked at.
    if seen.bytes == 0 { Ok(None) } else { Ok(recv_once(socket, buffer)?.map(Incoming::Plain)) }
}

/// Receives. That the other side closed without having read everything is told once, and before what it had said: this
/// is not of interest.
fn without_reset(mut receive: impl FnMut() -> Result<RecvMsg, Errno>) -> Result<RecvMsg, Errno> {
    let mut receive = || rustix::io::retry_on_intr(&mut receive);
    match receive() {
        Err(Errno::CONNRESET) => receive(),
        got => got,
    }
}
