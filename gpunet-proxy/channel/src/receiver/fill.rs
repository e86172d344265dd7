//! Bytes that come by a connection, into the memory of arrays.

use super::headers::{Arrived, Payload};
use super::{Receiver, wrong};
use crate::array::{ArrayMut, Memory};
use crate::error::ChannelError;
use crate::header::{CHECKED, Header, INLINE, Malformed};
use crate::pieces::{Incoming as Arriving, Piece, targets};
use crate::shared::{Lane, STAGED, TransferOptions};
use crate::wire::{lost, read_all_soon, read_exact};
use crc32fast::Hasher;
use std::io::IoSliceMut;
use std::time::Instant;

/// Has `read` fill a piece, through the lane's slot if it is one of a GPU's, and adds its bytes to
/// the checksum, if there is one. The copy into the GPU is then under way.
pub(super) fn fill(
    piece: &mut Piece<Arriving<'_>>,
    lane: &mut Lane<'_>,
    slot: usize,
    checksum: Option<&mut Hasher>,
    read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<(), ChannelError>,
) -> Result<(), ChannelError> {
    if let Some(stage) = lane.stage(&piece.segments)? {
        stage.wait(slot)?;
        let room = stage.bytes(slot, piece.len);
        read(&mut [IoSliceMut::new(room)])?;
        if let Some(checksum) = checksum {
            checksum.update(room);
        }
        return stage.store(slot, &mut piece.segments);
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
    if let Some(checksum) = checksum {
        for segment in &piece.segments {
            if let Memory::Host(bytes) = segment {
                checksum.update(bytes);
            }
        }
    }
    Ok(())
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
        let wire = self.shared.wires.data()[0].as_ref();
        let (mut kept, is_kept) = match &payload {
            Payload::OnTheWire => (&[][..], false),
            Payload::Kept(bytes) => (&bytes[..], true),
        };
        let mut lane = Lane::new(&self.stages, STAGED, options.after);
        let mut checksum = header.has(CHECKED).then(Hasher::new);
        // While one part travels, the one before is copied into the GPU.
        let has_gpu = arrays.iter().any(|array| array.memory.device().is_some());
        let size = if has_gpu { STAGED } else { usize::try_from(header.total).unwrap_or(usize::MAX).max(1) };
        for (at, mut piece) in targets(arrays, size).into_iter().enumerate() {
            fill(&mut piece, &mut lane, at % 2, checksum.as_mut(), |to| match is_kept {
                true => copy_out(&mut kept, to),
                false => read_all_soon(wire, to, deadline, self.shared.options.spin)
                    .map_err(|error| lost("receiving", error).at(0, header.total)),
            })?;
        }
        if checksum.is_some_and(|checksum| checksum.finalize() != header.crc) {
            return Err(ChannelError::Checksum { offset: 0 });
        }
        if let Some(stage) = lane.current() {
            stage.wait(0)?;
            stage.wait(1)?;
        }
        Ok(())
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

fn copy_out(bytes: &mut &[u8], to: &mut [IoSliceMut<'_>]) -> Result<(), ChannelError> {
    for to in to {
        let now = bytes.split_off(..to.len()).ok_or_else(|| wrong(Malformed("too few bytes")))?;
        to.copy_from_slice(now);
    }
    Ok(())
}
