//! Bytes that come by a connection, into the memory of arrays.

use super::headers::{Arrived, Payload};
use super::{Receiver, wrong};
use crate::array::{ArrayMut, Memory};
use crate::error::ChannelError;
use crate::header::{CHECKED, Header, INLINE, Malformed};
use crate::pieces::{Incoming as Arriving, Piece, targets};
use crate::sender::crc_of;
use crate::shared::{Lane, TransferOptions};
use crate::wire::{lost, read_all, read_exact};
use std::io::IoSliceMut;
use std::time::Instant;

/// Has `read` fill a piece, through the lane's slot if it is one of a GPU's, and returns its
/// checksum, if there is to be one. The copy into the GPU is then under way.
pub(super) fn fill(
    piece: &mut Piece<Arriving<'_>>,
    lane: &mut Lane<'_>,
    slot: usize,
    is_checked: bool,
    read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<(), ChannelError>,
) -> Result<u32, ChannelError> {
    if let Some(stage) = lane.stage(&piece.segments)? {
        stage.wait(slot)?;
        let room = stage.bytes(slot, piece.len);
        read(&mut [IoSliceMut::new(room)])?;
        let found = if is_checked { crc32fast::hash(room) } else { 0 };
        stage.store(slot, &mut piece.segments)?;
        return Ok(found);
    }
    let mut slices: Vec<IoSliceMut<'_>> = piece
        .segments
        .iter_mut()
        .filter_map(|segment| match segment {
            Memory::Host(bytes) => Some(IoSliceMut::new(bytes)),
            Memory::Gpu { .. } => None,
        })
        .collect();
    read(&mut slices)?;
    let parts = piece.segments.iter().filter_map(|segment| match segment {
        Memory::Host(bytes) => Some(&**bytes),
        Memory::Gpu { .. } => None,
    });
    Ok(if is_checked { crc_of(parts) } else { 0 })
}

impl Receiver {
    /// Receives what stands behind the header.
    pub(super) fn small(
        &self,
        header: &Header,
        payload: Payload,
        arrays: Vec<ArrayMut<'_>>,
        options: &TransferOptions<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), ChannelError> {
        let size = usize::try_from(header.total).unwrap_or(usize::MAX).max(1);
        let mut lane = Lane::new(&self.stages, size, options.after);
        let read = |to: &mut [IoSliceMut<'_>]| match &payload {
            Payload::OnTheWire => read_all(self.shared.wires.data()[0].as_ref(), to, deadline)
                .map_err(|error| lost("receiving", error).at(0, header.total)),
            Payload::Kept(bytes) => copy_out(bytes, to),
        };
        // All of it is one piece, or there is nothing.
        let mut found = 0;
        for mut piece in targets(arrays, size) {
            found = fill(&mut piece, &mut lane, 0, header.has(CHECKED), read)?;
        }
        if header.has(CHECKED) && found != header.crc {
            return Err(ChannelError::Checksum { offset: 0 });
        }
        match lane.current() {
            Some(stage) => stage.wait(0),
            None => Ok(()),
        }
    }

    /// Reads what stands behind the header of a transfer that is not wanted.
    pub(super) fn discard(&self, arrived: &Arrived, deadline: Option<Instant>) -> Result<(), ChannelError> {
        let Arrived { header, payload: Payload::OnTheWire } = arrived else { return Ok(()) };
        if !header.has(INLINE) {
            return Ok(());
        }
        let (mut left, mut bytes) = (usize::try_from(header.total).unwrap_or(usize::MAX), [0; 4096]);
        while left > 0 {
            let now = left.min(bytes.len());
            read_exact(self.shared.wires.data()[0].as_ref(), &mut bytes[..now], deadline)
                .map_err(|error| lost("receiving", error).at(0, header.total))?;
            left -= now;
        }
        Ok(())
    }
}

fn copy_out(mut bytes: &[u8], to: &mut [IoSliceMut<'_>]) -> Result<(), ChannelError> {
    for to in to {
        let now = bytes.split_off(..to.len()).ok_or_else(|| wrong(Malformed("too few bytes")))?;
        to.copy_from_slice(now);
    }
    Ok(())
}
