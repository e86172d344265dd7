//! Pieces that go over several connections at once.

use super::{Sender, crc_of, host};
use crate::array::Array;
use crate::error::ChannelError;
use crate::header::{CHECKED, Header, PieceFrame};
use crate::pieces::{FirstError, Outgoing, Piece, Table, sources};
use crate::shared::{Lane, TransferOptions};
use crate::wire::{Wire, lost, write_all};
use gpu_usermap::threads;
use std::io::IoSlice;
use std::time::Instant;

impl Sender {
    /// Sends all pieces, over several connections at once.
    pub(super) fn pieces(
        &self,
        arrays: &[Array<'_>],
        header: &Header,
        options: &TransferOptions<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), ChannelError> {
        let size = header.piece as usize;
        let table = Table::new(sources(arrays, size), size);
        let failed = FirstError::default();
        let wires = &self.shared.wires.data()[..usize::from(header.streams)];
        let send = |wire: &dyn Wire| {
            let lane = Lane::new(&self.stages, size, options.after);
            if let Err(error) = send_pieces(wire, lane, &table, header, options, deadline, &failed) {
                failed.set(error.at(table.progress().done(), header.total));
                // The threads of the other connections may be waiting for room.
                wires.iter().for_each(|wire| wire.shut_down());
            }
        };
        let started = threads::scope(|scope| {
            for wire in &wires[1..] {
                threads::spawn_scoped(scope, "gpunet-channel", || send(wire.as_ref()))?;
            }
            send(wires[0].as_ref());
            Ok(())
        });
        started.map_err(|error| ChannelError::failed("starting a thread", error))?;
        failed.result()
    }
}

/// Sends pieces over one connection until there are no more. While one travels, the next one is
/// copied out of the GPU.
fn send_pieces(
    wire: &dyn Wire,
    mut lane: Lane<'_>,
    table: &Table<Outgoing<'_>>,
    header: &Header,
    options: &TransferOptions<'_>,
    deadline: Option<Instant>,
    failed: &FirstError,
) -> Result<(), ChannelError> {
    let sending = |error| lost("sending", error);
    let mut slot = 0;
    let mut current = begin(table, &mut lane, slot)?;
    while let Some((piece, is_staged)) = current {
        if failed.is_set() {
            return Ok(());
        }
        let ahead = if is_staged { Some(begin(table, &mut lane, slot ^ 1)?) } else { None };
        let staged = match lane.current().filter(|_| is_staged) {
            Some(stage) => {
                stage.wait(slot)?;
                Some(&*stage.bytes(slot, piece.len))
            }
            None => None,
        };
        let parts = || staged.into_iter().chain(piece.segments.iter().map(host).filter(|_| staged.is_none()));
        let crc = if header.has(CHECKED) { crc_of(parts()) } else { 0 };
        let frame =
            PieceFrame::Piece { number: header.number, offset: piece.offset, len: piece.len as u32, crc }
                .encode();
        let mut slices: Vec<IoSlice<'_>> =
            std::iter::once(&frame[..]).chain(parts()).map(IoSlice::new).collect();
        write_all(wire, &mut slices, deadline).map_err(sending)?;
        options.show(table.progress().add(piece.len), header.total);
        current = match ahead {
            Some(ahead) => ahead,
            None => begin(table, &mut lane, slot ^ 1)?,
        };
        slot ^= 1;
    }
    let last = PieceFrame::Last { number: header.number }.encode();
    write_all(wire, &mut [IoSlice::new(&last)], deadline).map_err(sending)
}

/// Takes a piece, and starts to copy it if it is on a GPU.
fn begin<'a>(
    table: &Table<Outgoing<'a>>,
    lane: &mut Lane<'_>,
    slot: usize,
) -> Result<Option<(Piece<Outgoing<'a>>, bool)>, ChannelError> {
    let Some(piece) = table.take_next() else { return Ok(None) };
    let is_staged = match lane.stage(&piece.segments)? {
        Some(stage) => {
            stage.fetch(slot, &piece.segments)?;
            true
        }
        None => false,
    };
    Ok(Some((piece, is_staged)))
}
