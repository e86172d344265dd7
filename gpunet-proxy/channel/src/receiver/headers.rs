//! Headers of transfers, in the order in which they were sent. Some come while the pieces of an
//! earlier transfer are on the same connection; they wait here, as many as a sender may have under
//! way.

use super::wrong;
use crate::error::ChannelError;
use crate::header::{
    Header, INLINE, MAX_AHEAD, MAX_AHEAD_BYTES, Malformed, PIECE, PROLOGUE, Prologue, SMALL,
};
use crate::wire::{Wire, lost, read_exact};
use std::collections::VecDeque;
use std::time::Instant;

/// A header that has come.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) header: Header,
    pub(super) payload: Payload,
}

/// What stands behind the header of a small transfer.
#[derive(Debug)]
pub(super) enum Payload {
    /// It is still to be read, before the next header.
    OnTheWire,
    /// It was read, because something else comes behind it.
    Kept(Vec<u8>),
}

/// Those of one direction.
pub(super) struct Headers {
    /// How many connections there are.
    connections: usize,
    /// The number of the next.
    number: u64,
    /// Those that have come early, and the bytes that each has taken.
    early: VecDeque<(Arrived, usize)>,
}

impl Headers {
    pub(super) fn new(connections: usize) -> Self {
        Self { connections, number: 0, early: VecDeque::new() }
    }

    /// Returns how many have come.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Takes the next one, if it has come early.
    pub(super) fn take_early(&mut self) -> Option<Arrived> {
        self.early.pop_front().map(|(arrived, _)| arrived)
    }

    /// Reads a header of which the first bytes have come, and leaves what stands behind it; `None`
    /// for the sender's last word.
    ///
    /// # Errors
    /// The connection's, or the header is none.
    pub(super) fn read(
        &mut self,
        wire: &dyn Wire,
        first: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Option<Arrived>, ChannelError> {
        let reading = |error| lost("receiving a header", error);
        let mut bytes = [0; PROLOGUE];
        let (begin, rest) = first.split_at(first.len().min(PROLOGUE));
        bytes[..begin.len()].copy_from_slice(begin);
        read_exact(wire, &mut bytes[begin.len()..], deadline).map_err(reading)?;
        let prologue = Prologue::decode(&bytes).map_err(wrong)?;
        if prologue.is_bye {
            return Ok(None);
        }
        let mut body = vec![0; prologue.body];
        let known = rest.len().min(body.len());
        body[..known].copy_from_slice(&rest[..known]);
        read_exact(wire, &mut body[known..], deadline).map_err(reading)?;
        let header = Header::decode(&prologue, &body, self.connections).map_err(wrong)?;
        if header.number != self.number {
            return Err(wrong(Malformed("a transfer out of turn")));
        }
        self.number += 1;
        Ok(Some(Arrived { header, payload: Payload::OnTheWire }))
    }

    /// Reads a header that comes between pieces, and keeps it.
    ///
    /// # Errors
    /// As for [`read`](Self::read); there are more than a sender may have under way.
    pub(super) fn read_early(
        &mut self,
        wire: &dyn Wire,
        first: &[u8; PIECE],
        deadline: Option<Instant>,
    ) -> Result<(), ChannelError> {
        let prologue: &[u8; PROLOGUE] = first.first_chunk().expect("the beginning of a piece");
        let body = Prologue::decode(prologue).map_err(wrong)?.body;
        let waiting: usize = self.early.iter().map(|(_, bytes)| bytes).sum();
        if self.early.len() >= MAX_AHEAD || waiting + body > MAX_AHEAD_BYTES {
            return Err(wrong(Malformed("more transfers under way than there may be")));
        }
        if body < PIECE - PROLOGUE {
            return Err(wrong(Malformed("the header ends too early")));
        }
        let Some(Arrived { header, .. }) = self.read(wire, first, deadline)? else { return Ok(()) };
        let len = if header.has(INLINE) { header.total.min(SMALL) as usize } else { 0 };
        if waiting + body + len > MAX_AHEAD_BYTES {
            return Err(wrong(Malformed("more bytes under way than there may be")));
        }
        let mut payload = vec![0; len];
        read_exact(wire, &mut payload, deadline)
            .map_err(|error| lost("receiving", error).at(0, header.total))?;
        self.early.push_back((Arrived { header, payload: Payload::Kept(payload) }, body + len));
        Ok(())
    }
}
