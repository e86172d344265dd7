//! The turn of one connection: the service is called until there is nothing for it to do.

use super::Block;
use super::connection::Connection;
use super::round::{Begin, Moved, Then, look};
use crate::Service;
use crate::arena::put_both;
use crate::readiness::{Interest, Ready, Waits};
use gpunet_device::abi::options::MIN_RING_LOG2;
use gpunet_device::{Error, Group, Handle, RecvHalf, Result, Stream, Timeout, now_ns};

/// Rounds of a turn at most: then the other connections have theirs. See [`crate::Next::Again`].
const ROUNDS: u32 = 4;
/// Until when a turn is prolonged: see [`Block::attends`]. With the last wait in it, it lasts a
/// receive timeout longer.
const ATTENTION_NS: u64 = 1_000_000;
/// What is shorter fills no ring.
const SMALLEST_RING: usize = 1 << MIN_RING_LOG2;

impl<S: Service> Block<S> {
    /// Gives each connection that is ready its turn. There are `ready` of them at most.
    pub(super) fn serve<G: Group>(&mut self, g: &G, mut ready: usize) {
        let mut first = 0;
        while ready > 0 && first < self.readiness.places() {
            let mut candidates = self.readiness.candidates(g, first);
            while ready > 0 && candidates != 0 {
                let place = first + candidates.trailing_zeros() as usize;
                candidates &= candidates - 1;
                let Some(handle) = self.readiness.handle(place) else { continue };
                let found = self.readiness.ready(g, self.net, place, self.now);
                if found != Ok(None) {
                    ready -= 1;
                }
                match found {
                    Ok(None) => {}
                    Ok(Some(ready)) => self.turn(g, place, handle, ready),
                    Err(_) => self.fail(g, place, handle),
                }
            }
            first += u32::BITS as usize;
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn turn<G: Group>(&mut self, g: &G, place: usize, handle: Handle, ready: Ready) {
        // SAFETY: a place with a handle has a connection.
        let mut connection = unsafe { self.connections.get(place) };
        // SAFETY: as above.
        let mut state = unsafe { self.states.get(place) };
        self.counters.turns += 1;
        // This block has accepted it, and no other uses it.
        let stream = Stream::resume(g, self.net, handle);
        let next = self.rounds(g, place, stream, (&mut connection, &mut state), ready);
        let is_failed = next.is_err();
        let interest = next.unwrap_or(None);
        let waits = |interest| Waits {
            interest,
            drains: connection.has_answers(),
            at: connection.at,
            rings: connection.rings,
        };
        let waits = interest.map(waits);
        put_both(g, place, (&self.connections, connection), (&self.states, state));
        match waits {
            Some(waits) => {
                self.readiness.watch(g, place, handle, waits, self.now);
            }
            None if is_failed => self.fail(g, place, handle),
            None => self.close(g, place, handle),
        }
    }

    /// Calls the service, at least once. Returns what the connection waits for then, and nothing at
    /// its end.
    #[inline(always)]
    fn rounds<G: Group>(
        &mut self,
        g: &G,
        place: usize,
        stream: Stream,
        (connection, state): (&mut Connection, &mut S::State),
        ready: Ready,
    ) -> Result<Option<Interest>> {
        let (mut sender, mut receiver) = stream.split();
        let out_bytes = self.settings.out_bytes as usize;
        let buffer = self.out.part(place * out_bytes, out_bytes);
        let (attends, started) = (self.attends(), self.now);
        let number = self.readiness.number(place);
        let (mut begin, mut rounds, mut now, mut moved) = (Begin::Ready(ready), 1, started, Moved::default());
        let mut is_full = false;
        let result = loop {
            let come = match look(g, &mut receiver, begin) {
                Ok(Some(come)) => come,
                Ok(None) => break Ok(Some(Interest::Input)),
                Err(error) => break Err(error),
            };
            if let Begin::Wait = begin {
                now = g.broadcast(now_ns());
            }
            if ready.failed && come.is_empty() {
                break Err(Error::ConnectionReset);
            }
            let (halves, come) = ((&mut sender, &mut receiver), (come, number));
            match self.round(g, halves, buffer, (connection, state), come, now, &mut moved) {
                Ok(Then::Again { left }) if rounds < ROUNDS => {
                    begin = Begin::Again { left };
                    rounds += 1;
                }
                // The next poll finds at once what is left.
                Ok(Then::Again { .. }) => break Ok(Some(Interest::Input)),
                // The service has taken what came before, and nothing that it waits for can happen.
                Ok(Then::Wait(_)) if ready.failed => break Err(Error::ConnectionReset),
                Ok(Then::Wait(Interest::Input))
                    if attends
                        && !connection.has_answers()
                        && !connection.rings
                        && !connection.is_served
                        && now - started < ATTENTION_NS =>
                {
                    (begin, rounds) = (Begin::Wait, 1);
                }
                Ok(Then::Wait(Interest::More { seen })) if seen >= SMALLEST_RING && !is_full => {
                    match more(g, &mut receiver, seen) {
                        Ok(More::None) => break Ok(Some(Interest::More { seen })),
                        // The next poll finds it.
                        Ok(More::Some) => break Ok(Some(Interest::Input)),
                        // The service is told once.
                        Ok(More::Never) => (begin, is_full) = (Begin::Full { left: seen }, true),
                        Err(error) => break Err(error),
                    }
                }
                Ok(Then::Wait(interest)) => break Ok(Some(interest)),
                Ok(Then::Close) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        self.now = now;
        if S::HAS_ROLL {
            self.roll.touch(g, number, now);
        }
        self.counters.received += moved.received;
        self.counters.sent += moved.sent;
        result
    }

    /// Returns whether the block waits for the next bytes in this turn and not in a poll: they come
    /// from its only connection.
    ///
    /// A poll would load the epoch, the stream's words and then the stream, before this turn's
    /// first load. What else the block has to look at waits for two milliseconds at most: the
    /// listener, the end of the server. A block that helps others does not wait here, nor for a
    /// connection that has a bell or waits for a time.
    fn attends(&self) -> bool {
        self.counters.open == 1 && !(S::HELPS && self.now < self.helps_until)
    }

    /// Closes a connection that has failed.
    fn fail<G: Group>(&mut self, g: &G, place: usize, handle: Handle) {
        self.counters.failed += 1;
        self.close(g, place, handle);
    }

    /// Closes a connection and forgets it.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn close<G: Group>(&mut self, g: &G, place: usize, handle: Handle) {
        // SAFETY: a place with a handle has had a connection.
        let mut connection = unsafe { self.connections.get(place) };
        self.readiness.forget(g, place);
        if S::HAS_ROLL {
            self.roll.leave(g, self.readiness.number(place));
        }
        let context = self.context();
        // It fails only if the launch is over, and with it all memory.
        let _ = connection.backlog.clear(g, self.net, &self.backlogs);
        // SAFETY: as above.
        let state = unsafe { self.states.get(place) };
        self.service.closed(g, state, &self.shared, &context);
        // It may be gone already; and whoever was cancelled learns it from the next poll.
        if let Ok(stream) = Stream::from_handle(g, self.net, handle) {
            let _ = stream.close(g);
        }
        self.counters.open -= 1;
        self.loads.set(g, self.counters.open);
        self.accepting = Default::default();
    }
}

/// What follows the bytes that a service has left.
#[derive(Clone, Copy)]
enum More {
    /// Nothing yet.
    None,
    /// More bytes, or the end.
    Some,
    /// The ring is full.
    Never,
}

/// Looks whether more than `seen` bytes have come, or can come.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn more<G: Group>(g: &G, receiver: &mut RecvHalf, seen: usize) -> Result<More> {
    match receiver.peek_more_timeout(g, seen, seen + 1, Timeout::NON_BLOCKING) {
        Ok(_) => Ok(More::Some),
        Err(Error::MessageTooLong) => Ok(More::Never),
        // Whatever ends the wait, the next poll tells.
        Err(Error::TimedOut | Error::WouldBlock | Error::Canceled) => Ok(More::None),
        Err(error) => Err(error),
    }
}
