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

/// The most descriptors of a packet: a region and the doorbells.
pub(crate) const MAX_FDS: usize = 1 + SHARDS;

/// The result of one `recvmsg`.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
    /// This process has reached its limit of descriptors: some of the packet's are lost.
    pub(crate) lost: bool,
}

/// Sends a packet whole or not at all; never waits.
///
/// # Errors
/// WouldBlock, while the other side's queue is full; any other error means that the connection has
/// ended.
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

/// Receives a packet through a buffer of [`MAX_FRAME`] bytes; never waits. Returns `None` if the
/// other side has closed.
///
/// Descriptors are close-on-exec. Those of a packet that is refused are closed.
///
/// # Errors
/// WouldBlock, while there is none. InvalidData, for one that is longer than a frame or has more
/// descriptors than any frame.
pub(crate) fn recv(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
    Ok(match recv_once(socket, buffer)? {
        // The kernel checks for a packet and then whether the other side has closed. A last packet
        // that came in between is still there.
        None => match recv_once(socket, buffer) {
            // That was an empty packet, which is no frame: treat its sender as closed.
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
    let has_fds = !fds.is_empty();
    let cut = got.flags.contains(ReturnFlags::CTRUNC);
    if got.flags.contains(ReturnFlags::TRUNC) || cut && fds.len() >= MAX_FDS {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet longer than any frame"));
    }
    // There was space for those of any frame, so the kernel has found no number for them.
    let packet = || Packet { bytes: buffer[..got.bytes].to_vec(), fds, lost: cut };
    Ok((got.bytes > 0 || cut || has_fds).then(packet))
}

/// A packet from a sender that may be hostile.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Without descriptors.
    Plain(Packet),
    /// With descriptors: it stays in the queue. The thread that receives it ([`recv`]) or closes
    /// the socket may be the last to close a descriptor, and the sender decides how long that
    /// takes: a TCP socket may linger for hours.
    WithDescriptors,
}

/// Receives a packet as [`recv`] does, but leaves one with descriptors where it is.
///
/// # Errors
/// As [`recv`].
pub(crate) fn recv_plain(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Incoming>> {
    let mut peek = || {
        let (mut none, flags) = (RecvAncillaryBuffer::new(&mut []), RecvFlags::DONTWAIT | RecvFlags::PEEK);
        // A peek copies the descriptors. Without space for them the kernel closes those copies,
        // which are never the last ones, and reports that there were some.
        without_reset(|| recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut none, flags))
    };
    let mut seen = peek()?;
    if seen.bytes == 0 {
        // As in `recv`.
        seen = peek()?;
    }
    if seen.flags.contains(ReturnFlags::CTRUNC) {
        return Ok(Some(Incoming::WithDescriptors));
    }
    // An empty packet also stays in the queue, and the packets behind it are not read.
    if seen.bytes == 0 { Ok(None) } else { Ok(recv_once(socket, buffer)?.map(Incoming::Plain)) }
}

/// Receives, ignoring ECONNRESET. The kernel reports it once, ahead of the packets in the queue, if
/// the other side closed without having read everything.
fn without_reset(mut receive: impl FnMut() -> Result<RecvMsg, Errno>) -> Result<RecvMsg, Errno> {
    let mut receive = || rustix::io::retry_on_intr(&mut receive);
    match receive() {
        Err(Errno::CONNRESET) => receive(),
        got => got,
    }
}
