//! The protocol between a program and a daemon.
//!
//! One frame is one packet of a SOCK_SEQPACKET socket: at most 64 KiB of `postcard`, and as many
//! file descriptors as the frame's type says. A connection carries one attachment: when the
//! connection ends, for whatever reason, the attachment ends.
//!
//! ```text
//! program                                  daemon
//! Hello { magic, version, want }  -->
//!                                 <--      Refused { errno, reason }, or
//!                                 <--      Ready (probe, admin), or
//!                                 <--      SendCard (attach, with device memory that a network card reaches)
//! Card + dma-buf                  -->
//!                                 <--      Welcome + region, doorbells (attach)
//! ToDaemon ...                    <->      ToProgram ...
//! ```
//!
//! A daemon takes descriptors only of those that it has let attach and whose device has memory of
//! its own (SO_PASSRIGHTS, where the kernel has it).
//!
//! A hello begins with eight bytes that every version has (magic and version, little-endian), and
//! so does the first answer, so that two programs of different versions can report that. Files:
//! `frames` (the frames), `numbers` (which answer belongs to which request), `packet` (their
//! transport), `check` (whether descriptors are what they should be).

mod check;
mod frames;
mod numbers;
mod packet;

pub(crate) use check::{is_dma_buf, is_gpu_export};
pub(crate) use frames::*;
pub(crate) use numbers::CallId;
pub(crate) use packet::{Incoming, Packet, recv, recv_plain, send};

use crate::os::descriptors::hint;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// A descriptor that travels with a frame, kept open until it has.
pub(crate) type Sent = Arc<dyn AsFd + Send + Sync>;

/// The first four bytes of a connection, in both directions.
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"gpnd");
/// The version of everything below. It changes when a frame does, and with the ABI of regions.
pub(crate) const PROTOCOL: u32 = 5;
/// No frame is longer.
pub(crate) const MAX_FRAME: usize = 64 * 1024;

/// An invalid frame.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadFrame {
    #[error("{0} bytes are no frame of this protocol")]
    Garbage(usize),
    #[error("a frame with {found} descriptors, where it has {expected}")]
    Descriptors { expected: usize, found: usize },
    /// This process has reached its limit of descriptors.
    #[error("no file descriptor is left for what came with a frame{}", out_of_descriptors_hint())]
    NoDescriptor,
    #[error("not a gpunet connection")]
    Magic,
    #[error("protocol version {0}")]
    Version(u32),
}

/// One direction's frames.
pub(crate) trait Frame: Serialize + DeserializeOwned {
    /// How many descriptors travel with it.
    fn descriptors(&self) -> usize;
}

/// The bytes of a frame.
///
/// # Panics
/// When it is longer than [`MAX_FRAME`], which no frame that this crate makes is.
pub(crate) fn encode<F: Frame>(frame: &F) -> Vec<u8> {
    let bytes = postcard::to_stdvec(frame).unwrap_or_else(|error| panic!("a frame without bytes: {error}"));
    assert!(bytes.len() <= MAX_FRAME, "a frame of {} bytes", bytes.len());
    bytes
}

/// The frame in a packet. Whatever is wrong with it, its descriptors are closed.
pub(crate) fn decode<F: Frame>(packet: Packet) -> Result<(F, Vec<OwnedFd>), BadFrame> {
    let (frame, fds) = split(packet);
    frame.map(|frame| (frame, fds))
}

/// The frame in a packet, and its descriptors, whatever is wrong with it.
pub(crate) fn split<F: Frame>(packet: Packet) -> (Result<F, BadFrame>, Vec<OwnedFd>) {
    let Packet { bytes, fds, lost } = packet;
    let frame = match without_descriptors::<F>(&bytes) {
        Ok(_) if lost => Err(BadFrame::NoDescriptor),
        Ok(frame) if frame.descriptors() == fds.len() => Ok(frame),
        Ok(frame) => Err(BadFrame::Descriptors { expected: frame.descriptors(), found: fds.len() }),
        Err(garbage) => Err(garbage),
    };
    (frame, fds)
}

/// The frame in the bytes of a packet whose descriptors are lost.
pub(crate) fn without_descriptors<F: Frame>(bytes: &[u8]) -> Result<F, BadFrame> {
    match postcard::take_from_bytes::<F>(bytes) {
        Ok((frame, [])) => Ok(frame),
        _ => Err(BadFrame::Garbage(bytes.len())),
    }
}

fn out_of_descriptors_hint() -> String {
    hint(&io::Error::from_raw_os_error(libc::EMFILE))
}

/// The bytes of the first frame in either direction: the fixed eight, and the frame.
pub(crate) fn encode_first<F: Frame>(frame: &F) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend(PROTOCOL.to_le_bytes());
    bytes.extend(encode(frame));
    bytes
}

/// Decodes the first frame of a connection. A frame of another version is distinguished from
/// garbage.
pub(crate) fn decode_first<F: Frame>(mut packet: Packet) -> Result<(F, Vec<OwnedFd>), BadFrame> {
    let Some((magic, rest)) = packet.bytes.split_first_chunk::<4>() else { return Err(BadFrame::Magic) };
    let Some((version, rest)) = rest.split_first_chunk::<4>() else { return Err(BadFrame::Magic) };
    if u32::from_le_bytes(*magic) != MAGIC {
        return Err(BadFrame::Magic);
    }
    match u32::from_le_bytes(*version) {
        PROTOCOL => {
            packet.bytes = rest.to_vec();
            decode(packet)
        }
        other => Err(BadFrame::Version(other)),
    }
}

#[cfg(test)]
mod tests;
