//! Pieces that come over several connections at once.

use super::fill::fill;
use super::{Receiver, wrong};
use crate::array::ArrayMut;
use crate::error::ChannelError;
use crate::header::{CHECKED, Header, Malformed, PIECE, PieceFrame, is_transfer};
use crate::pieces::{FirstError, Incoming as Arriving, Table, targets};
use crate::shared::{Lane, TransferOptions};
use crate::wire::{lost, read_all_soon, read_exact_soon};
use crc32fast::Hasher;
use gpu_usermap::threads;
use std::time::Instant;

impl Receiver {
    /// Receives all pieces, over several connections at once.
    pub(super) fn pieces(
        &self,
        header: &Header,
        arrays: Vec<ArrayMut<'_>>,
        options: &TransferOptions<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), ChannelError> {
        let size = header.piece as usize;
        let table = Table::new(targets(arrays, size), size);
        let failed = FirstError::default();
        let wires = &self.shared.wires.data()[..usize::from(header.streams)];
        let receive = |at: usize| {
            if let Err(error) = self.receive_pieces(at, &table, header, options, deadline) {
                failed.set(error.at(table.progress().done(), header.total));
                // What this connection was to bring does not come by another one.
                wires.iter().for_each(|wire| wire.shut_down());
            }
        };
        let started = threads::scope(|scope| {
            for at in 1..wires.len() {
                let receive = &receive;
                threads::spawn_scoped(scope, "gpunet-channel", move || receive(at)).inspect_err(|_| {
                    // The sender waits for a thread that there is not.
                    wires.iter().for_each(|wire| wire.shut_down());
                })?;
            }
            receive(0);
            Ok(())
        });
        started.map_err(|error| ChannelError::failed("starting a thread", error))?;
        failed.result()?;
        match table.progress().done() {
            done if done == header.total => Ok(()),
            _ => Err(ChannelError::Protocol("the last piece came before all others".into())),
        }
    }

    /// Receives pieces over one connection until it brings the last one. While one travels, the one
    /// before is copied into the GPU.
    fn receive_pieces(
        &self,
        at: usize,
        table: &Table<Arriving<'_>>,
        header: &Header,
        options: &TransferOptions<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), ChannelError> {
        let receiving = |error| lost("receiving", error);
        let (wire, spin) = (self.shared.wires.data()[at].as_ref(), self.shared.options.spin);
        let mut lane = Lane::new(&self.stages, header.piece as usize, options.after);
        let mut slot = 0;
        loop {
            let mut bytes = [0; PIECE];
            read_exact_soon(wire, &mut bytes, deadline, spin).map_err(receiving)?;
            // Headers of later transfers come by the first.
            if at == 0 && is_transfer(&bytes) {
                self.headers().read_early(wire, &bytes, deadline)?;
                continue;
            }
            let (number, offset, len, crc) = match PieceFrame::decode(&bytes).map_err(wrong)? {
                PieceFrame::Last { number } if number == header.number => break,
                PieceFrame::Piece { number, offset, len, crc } => (number, offset, len, crc),
                PieceFrame::Last { .. } => return Err(wrong(Malformed("the end of another transfer"))),
            };
            if number != header.number {
                return Err(wrong(Malformed("a piece of another transfer")));
            }
            let mut piece = table.take_at(offset, len).map_err(wrong)?;
            let mut checksum = header.has(CHECKED).then(Hasher::new);
            fill(&mut piece, &mut lane, slot, checksum.as_mut(), |to| {
                read_all_soon(wire, to, deadline, spin).map_err(receiving)
            })?;
            slot ^= 1;
            if checksum.is_some_and(|checksum| checksum.finalize() != crc) {
                return Err(ChannelError::Checksum { offset });
            }
            options.show(table.progress().add(piece.len), header.total);
        }
        if let Some(stage) = lane.current() {
            stage.wait(0)?;
            stage.wait(1)?;
        }
        Ok(())
    }
}
