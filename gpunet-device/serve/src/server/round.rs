//! One round of a turn: what has come is found, the service is called, what fits is sent, what it has consumed is released.

use super::Block;
use super::turn::Connection;
use crate::readiness::{Interest, Ready};
use crate::{Bytes, Next, Reader, Service, Turn, Writer};
use gpunet_device::{Error, Group, Result, RingSpan, Stream, now_ns};

/// Bytes from which on a further round goes on with those that are known to be there. With fewer it looks for more: a load of the
/// peer's word, which may lie behind the bus.
const KNOWN_ENOUGH: usize = 64 << 10;

/// How a round begins.
#[derive(Clone, Copy)]
pub(super) enum Begin {
    /// With what the poll has announced.
    Ready(Ready),
    /// With bytes that the service has left in the last round.
    Again { left: usize },
    /// With the bytes that come next, if they come within the receive timeout.
    Wait,
}

/// What follows a round.
#[derive(Clone, Copy)]
pub(super) enum Then {
    /// The connection waits.
    Wait(Interest),
    /// Another round.
    Again { left: usize },
    /// It was waited for in vain.
    Silent,
    /// The end of the connection.
    Close,
}

/// What has come.
#[derive(Clone, Copy)]
struct Come {
    /// `None`: nothing.
    span: Option<RingSpan>,
    /// Nothing comes after it.
    ended: bool,
}

impl<S: Service> Block<S> {
    /// Inline in the turn: the stream, which both of them use between waits, then has no address that a call takes.
    #[inline(always)]
    pub(super) fn round<G: Group>(
        &mut self,
        g: &G,
        place: usize,
        stream: &mut Stream,
        connection: &mut Connection<S>,
        begin: Begin,
    ) -> Result<Then> {
        let found = look(g, stream, begin);
        if let Begin::Wait = begin {
            self.now = g.broadcast(now_ns());
            // Nothing came; and whatever ends more than this connection, or fails it without a word, the next poll tells.
            if let Err(Error::TimedOut | Error::WouldBlock | Error::Canceled) = found {
                return Ok(Then::Silent);
            }
        }
        let Come { span, ended } = found?;
        let out_bytes = self.settings.out_bytes as usize;
        let buffer = self.out.part(place * out_bytes, out_bytes);
        // SAFETY: nothing of the span is released before the service has returned, and neither reader nor writer outlives the call.
        let bytes = span.map_or(Bytes::EMPTY, |span| unsafe { Bytes::of_span(span) });
        let context = self.context();
        let (start, end) = (connection.pending.0 as usize, connection.pending.1 as usize);
        let mut turn: Turn<'_, S> = Turn {
            input: Reader::new(bytes, ended),
            output: Writer::new(stream.sender(), buffer, (start, end)),
            state: &mut connection.state,
            shared: self.shared,
            context,
            counters: &mut self.counters,
            log: &mut self.log,
            connections: self.loads,
            topics: self.readiness.topics(),
            subscription: &mut connection.subscription,
        };
        turn.output.flush(g)?;
        let mut next = if connection.closes { Next::Close } else { Next::Output };
        if !turn.output.is_pending() && !connection.closes {
            next = self.service.serve(g, &mut turn)?;
            turn.output.flush(g)?;
        }
        let (used, left) = (turn.input.used(), turn.input.rest().len());
        let (pending, is_pending, sent) =
            (turn.output.pending(), turn.output.is_pending(), turn.output.sent());
        connection.is_blocked = is_pending || turn.output.is_blocked();
        if used > 0 {
            stream.receiver().release(g, used);
        }
        connection.pending = (pending.0 as u32, pending.1 as u32);
        connection.closes = next == Next::Close;
        connection.waits_for_space = is_pending || next == Next::Output;
        self.counters.received += used as u64;
        self.counters.sent += sent;
        if used > 0 || sent > 0 {
            connection.active = self.now;
        }
        // Nothing is left, or the same bytes are.
        if next == Next::Again && (used == 0 || left == 0) {
            next = Next::Input;
        }
        // The first bytes of the request that is under way: those of a service that collects a long one are consumed already.
        let is_partial = next == Next::Rest || (next == Next::Input && left > 0);
        connection.since = match (is_partial, connection.since) {
            (false, _) => 0,
            (true, since) if since != 0 && (used == 0 || next == Next::Rest) => since,
            (true, _) => self.now,
        };
        Ok(match next {
            _ if is_pending => Then::Wait(Interest::Output),
            Next::Close => Then::Close,
            Next::Output => Then::Wait(Interest::Output),
            Next::Again => Then::Again { left },
            // What is left is no request, and never will be.
            Next::Input | Next::Rest if ended => Then::Close,
            Next::Input | Next::Rest if left > 0 => Then::Wait(Interest::More { seen: left }),
            Next::Input | Next::Rest => Then::Wait(Interest::Input),
        })
    }
}

/// Finds what has come of a stream, by one load of the peer's word at most unless it waits.
#[inline(always)]
fn look<G: Group>(g: &G, stream: &mut Stream, begin: Begin) -> Result<Come> {
    let receiver = stream.receiver();
    let (found, announced_end) = match begin {
        Begin::Ready(ready) if ready.input => (receiver.try_peek(g, usize::MAX), ready.ended),
        // Only the answers were waited for, or a topic.
        Begin::Ready(ready) => match receiver.available(g)? {
            0 => (Err(Error::WouldBlock), ready.ended),
            len => (receiver.peek(g, len), ready.ended),
        },
        // Some are there, so it does not wait.
        Begin::Again { left } => (receiver.peek(g, left.max(KNOWN_ENOUGH)), false),
        Begin::Wait => (receiver.peek(g, usize::MAX), false),
    };
    let span = match found {
        Ok(span) => Some(span),
        // Nothing came although it was announced.
        Err(Error::WouldBlock) if !matches!(begin, Begin::Wait) => None,
        Err(error) => return Err(error),
    };
    let ended = announced_end || receiver.has_ended() || span.is_some_and(|span| span.is_empty());
    Ok(Come { span, ended })
}
