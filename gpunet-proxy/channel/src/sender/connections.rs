//! Pieces that go over several connections at once.

use super::{Sender, crc_of, outgoing};
use crate::array::Array;
use crate::error::ChannelError;
use crate::header::{CHECKED, Header, PieceFrame};
use crate::pieces::{FirstError, Outgoing, Table, sources};
use crate::shared::{Lane, TransferOptions};
use crate::wire::{Wire, lost, write_all_soon};
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
            if let Err(error) = self.send_pieces(wire, &table, header, options, deadline, &failed) {
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

    /// Sends pieces over one connection until there are no more.
    fn send_pieces(
        &self,
        wire: &dyn Wire,
        table: &Table<Outgoing<'_>>,
        header: &Header,
        options: &TransferOptions<'_>,
        deadline: Option<Instant>,
        failed: &FirstError,
    ) -> Result<(), ChannelError> {
        let sending = |error| lost("sending", error);
        let spin = self.shared.options.spin;
        let mut lane = Lane::new(&self.stages, header.piece as usize, options.after);
        let next = || if failed.is_set() { None } else { table.take_next() };
        outgoing::for_each(next, &mut lane, |piece, parts| {
            let crc = if header.has(CHECKED) { crc_of(parts.iter().copied()) } else { 0 };
            let frame =
                PieceFrame::Piece { number: header.number, offset: piece.offset, len: piece.len as u32, crc }
                    .encode();
            let mut slices: Vec<IoSlice<'_>> =
                std::iter::once(&frame[..]).chain(parts.iter().copied()).map(IoSlice::new).collect();
            write_all_soon(wire, &mut slices, deadline, spin).map_err(sending)?;
            options.show(table.progress().add(piece.len), header.total);
            Ok(())
        })?;
        if failed.is_set() {
            return Ok(());
        }
        let last = PieceFrame::Last { number: header.number }.encode();
        write_all_soon(wire, &mut [IoSlice::new(&last)], deadline, spin).map_err(sending)
    }
}
