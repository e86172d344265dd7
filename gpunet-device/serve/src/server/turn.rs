//! The turn of one connection: what has come is served, what fits is sent.

use super::Block;
use crate::readiness::{Interest, Ready};
use crate::{Bytes, Next, Reader, Service, Turn, Writer};
use gpunet_device::{Error, Group, Handle, Result, Stream};

/// A connection between its turns. Equal on all lanes.
pub(super) struct Connection<S: Service> {
    state: S::State,
    /// What is left in its buffer of answers: from where to where.
    pending: (u32, u32),
    /// It is closed once nothing is left.
    closes: bool,
    /// It waits for space to send: for what is left, or for what the service has still to send.
    pub(super) waits_for_space: bool,
    /// Its peer has to read before more can be sent.
    pub(super) is_blocked: bool,
    subscription: Option<u32>,
    /// When the first bytes of a request came that is not complete; 0: there is none.
    pub(super) since: u64,
    /// When it last received or sent something.
    pub(super) active: u64,
}

impl<S: Service> Connection<S> {
    pub(super) fn new(now: u64) -> Self {
        Self {
            state: S::State::default(),
            pending: (0, 0),
            closes: false,
            waits_for_space: false,
            is_blocked: false,
            subscription: None,
            since: 0,
            active: now,
        }
    }

    pub(super) fn into_state(self) -> S::State {
        self.state
    }
}

impl<S: Service> Block<S> {
    /// Gives each connection that is ready its turn.
    pub(super) fn serve<G: Group>(&mut self, g: &G) {
        let mut place = 0;
        while place < self.readiness.places() {
            if let Some(handle) = self.readiness.handle(place) {
                match self.readiness.ready(g, self.net, place, self.now) {
                    Ok(None) => {}
                    Ok(Some(ready)) => self.turn(g, place, handle, ready),
                    Err(_) => self.fail(g, place, handle),
                }
            }
            place += 1;
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn turn<G: Group>(&mut self, g: &G, place: usize, handle: Handle, ready: Ready) {
        // SAFETY: a place with a handle has a connection, which is put back below or given up with its place.
        let mut connection = unsafe { self.connections.take(place) };
        self.counters.turns += 1;
        // Before the service looks at what is notified: what comes meanwhile gives another turn.
        let counted = self.readiness.notified(g, place);
        let next = match Stream::from_handle(g, self.net, handle) {
            Ok(mut stream) => self.serve_one(g, place, &mut stream, &mut connection, ready),
            Err(error) => Err(error),
        };
        let is_failed = next.is_err();
        let interest = next.unwrap_or(None);
        let subscription = connection.subscription;
        self.connections.put(g, place, connection);
        match interest {
            Some(interest) => {
                self.readiness.watch(g, place, handle, interest, self.now);
                self.readiness.subscribe(g, place, subscription, counted);
            }
            None if is_failed => self.fail(g, place, handle),
            None => self.close(g, place, handle),
        }
    }

    /// Returns what the connection waits for now, and nothing at its end.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn serve_one<G: Group>(
        &mut self,
        g: &G,
        place: usize,
        stream: &mut Stream,
        connection: &mut Connection<S>,
        ready: Ready,
    ) -> Result<Option<Interest>> {
        let out_bytes = self.settings.out_bytes as usize;
        let buffer = self.out.part(place * out_bytes, out_bytes);
        // What has come, without waiting: only if nothing is there does a look tell the end of the stream from an error.
        let mut available = stream.receiver().available(g)?;
        let (mut span, mut ended) = (None, ready.ended || stream.receiver().has_ended());
        if available > 0 || (ready.input && !ended) {
            span = match stream.receiver().peek(g, usize::MAX) {
                Ok(found) => {
                    (available, ended) = (found.len(), ended || found.is_empty());
                    Some(found)
                }
                // Nothing came although it was announced.
                Err(Error::TimedOut | Error::WouldBlock) => None,
                Err(error) => return Err(error),
            };
        }
        // SAFETY: nothing of the span is released before the turn is over, and neither reader nor writer outlives it.
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
        // The first bytes of the request that is under way: those of a service that collects a long one are consumed already.
        let is_partial = next == Next::Rest || (next == Next::Input && left > 0);
        connection.since = match (is_partial, connection.since) {
            (false, _) => 0,
            (true, since) if since != 0 && (used == 0 || next == Next::Rest) => since,
            (true, _) => self.now,
        };
        debug_assert!(available >= used);
        Ok(match next {
            _ if is_pending => Some(Interest::Output),
            Next::Close => None,
            Next::Output => Some(Interest::Output),
            // What is left is no request, and never will be.
            Next::Input | Next::Rest if ended => None,
            Next::Input | Next::Rest if left > 0 => Some(Interest::More { seen: left }),
            Next::Input | Next::Rest => Some(Interest::Input),
        })
    }

    /// Closes a connection that has failed.
    fn fail<G: Group>(&mut self, g: &G, place: usize, handle: Handle) {
        self.counters.failed += 1;
        self.close(g, place, handle);
    }

    /// Closes a connection and forgets it.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn close<G: Group>(&mut self, g: &G, place: usize, handle: Handle) {
        self.readiness.forget(g, place);
        // SAFETY: a place with a handle has a connection; the place is free now.
        let connection = unsafe { self.connections.take(place) };
        let context = self.context();
        self.service.closed(g, connection.into_state(), self.shared, &context);
        // It may be gone already; and whoever was cancelled learns it from the next poll.
        if let Ok(stream) = Stream::from_handle(g, self.net, handle) {
            let _ = stream.close(g);
        }
        self.counters.open -= 1;
        self.loads.set(g, self.counters.open);
        self.accepting = Default::default();
    }
}
