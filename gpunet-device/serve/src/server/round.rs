//! One round of a turn: what has come is found, the service is called, what fits is sent, what it
//! has consumed is released.

use super::Block;
use super::connection::Connection;
use crate::backlog::Full;
use crate::memory::Memory;
use crate::readiness::{Interest, Ready};
use crate::{Bytes, Context, Next, Reader, Service, Turn, Writer};
use gpunet_device::{Error, Group, RecvHalf, Result, RingSpan, SendHalf};

/// Bytes from which on a further round goes on with those that are known to be there. With fewer it
/// looks for more: a load of the peer's word, which may lie behind the bus.
const KNOWN_ENOUGH: usize = 64 << 10;

/// How a round begins.
#[derive(Clone, Copy)]
pub(super) enum Begin {
    /// With what the poll has announced.
    Ready(Ready),
    /// With bytes that the service has left in the last round.
    Again { left: usize },
    /// With the same bytes as the last round, which fill the ring.
    Full { left: usize },
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
    /// The end of the connection.
    Close,
}

/// What has come.
#[derive(Clone, Copy)]
pub(super) struct Come {
    /// `None`: nothing.
    span: Option<RingSpan>,
    /// Nothing comes after it.
    ended: bool,
    /// It fills the ring.
    full: bool,
}

impl Come {
    /// Returns whether there is nothing for the service to take.
    pub(super) fn is_empty(&self) -> bool {
        self.span.is_none_or(|span| span.is_empty())
    }
}

/// What the rounds of a turn have moved.
#[derive(Clone, Copy, Default)]
pub(super) struct Moved {
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl<S: Service> Block<S> {
    /// The same bytes in the device's memory, if the service wants that and they are few. All
    /// lanes.
    #[inline(always)]
    fn copied<'t, G: Group>(&self, g: &G, bytes: Bytes<'t>) -> Bytes<'t> {
        if bytes.is_empty() || bytes.len() > S::COPIED_INPUT {
            return bytes;
        }
        // All lanes have read what the last round has copied.
        g.sync();
        self.input.fill(g, bytes);
        g.sync();
        self.input.part(0, bytes.len()).stable_bytes()
    }

    /// One round, at the time `now`, with what has come.
    ///
    /// Inline in the turn, as all that it calls between two waits: the halves of the stream then
    /// stay in registers. From memory a GPU would load them again after each acquire, which empties
    /// its cache.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "inline: each is a value in a register")]
    pub(super) fn round<G: Group>(
        &mut self,
        g: &G,
        (sender, receiver): (&mut SendHalf, &mut RecvHalf),
        buffer: Memory,
        (connection, state): (&mut Connection, &mut S::State),
        (come, place): (Come, usize),
        now: u64,
        moved: &mut Moved,
    ) -> Result<Then> {
        // SAFETY: nothing of the span is released before the service has returned, and neither
        // reader nor writer outlives the call.
        let bytes = come.span.map_or(Bytes::EMPTY, |span| unsafe { Bytes::of_span(span) });
        let bytes = self.copied(g, bytes);
        let (start, end) = (connection.pending.0 as usize, connection.pending.1 as usize);
        // Once it has ended, each span shows all that is left.
        connection.ended |= come.ended;
        let ended = connection.ended;
        let mut turn: Turn<'_, S> = Turn {
            input: Reader::new(bytes, ended).filling(come.full),
            output: Writer::new(
                sender,
                buffer,
                (start, end),
                (&mut connection.backlog, &self.backlogs, self.net),
            ),
            state,
            shared: &self.shared,
            context: Context { net: self.net, now },
            counters: &mut self.counters,
            log: &mut self.log,
            connections: self.loads,
            bells: &self.bells,
            roll: &self.roll,
            place,
            rings: &mut connection.rings,
            data: self.data,
            backlogs: &self.backlogs,
            unix_ns: self.unix_at_start + (now - self.started),
        };
        turn.output.flush(g)?;
        let mut next = if connection.closes { Next::Close } else { Next::Output };
        // Whose answers have reached a limit has taken some of them if it gets here.
        if (!turn.output.is_pending() || turn.output.takes_more()) && !connection.closes {
            next = self.service.serve(g, &mut turn)?;
            turn.output.flush(g)?;
        }
        let (used, left) = (turn.input.used(), turn.input.rest().len());
        let (pending, is_pending, sent) =
            (turn.output.pending(), turn.output.is_pending(), turn.output.sent());
        let (takes_more, (full, is_lost)) = (turn.output.takes_more(), turn.output.full());
        if sent > 0 || !connection.is_blocked {
            connection.taken = now;
        }
        connection.is_blocked = is_pending || turn.output.is_blocked();
        connection.full = full;
        if used > 0 {
            receiver.release(g, used);
        }
        connection.pending = (pending.0 as u32, pending.1 as u32);
        connection.closes = next == Next::Close;
        connection.is_served = matches!(next, Next::At(_) | Next::Bell);
        connection.at = match next {
            Next::At(time) => time.max(1),
            _ => 0,
        };
        connection.waits_for_space = is_pending || next == Next::Output;
        if is_lost {
            self.ends_for(g, full.unwrap_or(Full::Each));
            return Ok(Then::Close);
        }
        moved.received += used as u64;
        moved.sent += sent;
        if used > 0 || sent > 0 {
            connection.active = now;
        }
        // Nothing is left, or the same bytes are.
        if next == Next::Again && (used == 0 || left == 0) {
            next = Next::Input;
        }
        // The first bytes of the request that is under way: those of a service that collects a long
        // one are consumed already.
        let is_partial = !ended && (next == Next::Rest || (next == Next::Input && left > 0));
        connection.since = match (is_partial, connection.since) {
            (false, _) => 0,
            (true, since) if since != 0 && (used == 0 || next == Next::Rest) => since,
            (true, _) => now,
        };
        Ok(match next {
            // It is heard while its answers wait, unless they have no room, or nothing more comes.
            Next::Close if is_pending => Then::Wait(Interest::Output),
            _ if is_pending && (ended || !takes_more) => Then::Wait(Interest::Output),
            Next::Close => Then::Close,
            // It has had its share of the turns; there is room.
            Next::Output if is_pending => Then::Wait(Interest::Input),
            Next::Output => Then::Wait(Interest::Output),
            Next::Again => Then::Again { left },
            Next::Bell => Then::Wait(Interest::Bell),
            Next::At(_) if ended => Then::Wait(Interest::Bell),
            // What is left is no request, and never will be.
            Next::Input | Next::Rest if ended => Then::Close,
            Next::Input | Next::Rest | Next::At(_) if left > 0 => Then::Wait(Interest::More { seen: left }),
            Next::Input | Next::Rest | Next::At(_) => Then::Wait(Interest::Input),
        })
    }
}

/// Finds what has come of a stream, by one load of the peer's word at most unless it waits. `None`:
/// it was waited for in vain.
///
/// # Errors
/// The connection has failed. Also if nothing came that the poll has announced: its peer has lied,
/// or it has timed out itself.
#[inline(always)]
pub(super) fn look<G: Group>(g: &G, receiver: &mut RecvHalf, begin: Begin) -> Result<Option<Come>> {
    let (len, announced_end) = match begin {
        Begin::Ready(ready) if ready.input => (usize::MAX, ready.ended),
        // Only the answers were waited for, a time, or the bell.
        Begin::Ready(ready) => match receiver.available(g)? {
            0 => {
                let ended = ready.ended || receiver.has_ended();
                return Ok(Some(Come { span: None, ended, full: false }));
            }
            len => (len, ready.ended),
        },
        // Some are there, so it does not wait.
        Begin::Again { left } => (left.max(KNOWN_ENOUGH), false),
        Begin::Full { left } => (left, false),
        Begin::Wait => (usize::MAX, false),
    };
    // The one place: each is hundreds of lines of PTX.
    match receiver.peek(g, len) {
        Ok(span) => {
            // A peek that shows the beginning of what has come may have found the end of the stream
            // behind it.
            let ended = announced_end || receiver.ends_after(span.len()) || span.is_empty();
            Ok(Some(Come { span: Some(span), ended, full: matches!(begin, Begin::Full { .. }) }))
        }
        // Whatever else ends the wait, the next poll tells.
        Err(Error::TimedOut | Error::WouldBlock | Error::Canceled) if matches!(begin, Begin::Wait) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
