//! Connections that take too long, and the end of the server.

use super::Block;
use crate::backlog::Full;
use crate::{Line, Service};
use gpunet_device::{Group, Stream};

/// How long a peer whose answers have reached a limit may take none of them. Until then it is not
/// read of: one that reads while it writes goes on when it has taken some, and one that only writes
/// would never read.
const FULL_NS: u64 = 1_000_000_000;

impl<S: Service> Block<S> {
    /// Counts and logs that a connection ends because its answers are beyond a limit.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn ends_for<G: Group>(&mut self, g: &G, full: Full) {
        self.counters.limited += 1;
        if g.is_leader() {
            self.backlogs.count_closed(full);
        }
        self.log.line(g, self.now, &Line::new().text(b"a connection is closed: ").text(text_of(full)));
    }

    /// Closes connections that have passed a limit; if the server ends, also those that are idle.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn check_limits<G: Group>(&mut self, g: &G, is_stopping: bool) {
        let mut place = 0;
        while place < self.readiness.places() {
            if let Some(handle) = self.readiness.handle(place) {
                let full = self.full(place);
                let limit = if full.is_none() { self.limit_passed(place) } else { None };
                let is_idle = limit.is_none() && full.is_none() && is_stopping && self.is_idle(place);
                if let Some(full) = full {
                    self.ends_for(g, full);
                }
                if let Some(text) = limit {
                    self.counters.limited += 1;
                    self.log.line(g, self.now, &Line::new().text(b"a connection is closed: ").text(text));
                }
                if full.is_some() || (limit.is_some() && self.has_answers(place)) {
                    // They are not waited for any more. Who has all of them gets a clean end.
                    if let Ok(mut stream) = Stream::from_handle(g, self.net, handle) {
                        let options = stream.options().with_linger_ms(0);
                        let _ = stream.set_options(g, options);
                    }
                }
                let is_ended = S::HAS_ROLL && self.roll.ends(g, self.readiness.number(place));
                if limit.is_some() || full.is_some() || is_idle || is_ended {
                    self.close(g, place, handle);
                }
            }
            place += 1;
        }
    }

    /// Closes all connections.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn close_all<G: Group>(&mut self, g: &G) {
        let mut place = 0;
        while place < self.readiness.places() {
            if let Some(handle) = self.readiness.handle(place) {
                self.close(g, place, handle);
            }
            place += 1;
        }
    }

    fn limit_passed(&self, place: usize) -> Option<&'static [u8]> {
        // SAFETY: a place with a handle has a connection.
        let connection = unsafe { self.connections.get(place) };
        let has_passed = |start: u64, limit: u64| limit != 0 && self.now - start > limit;
        let (is_blocked, is_full) = (connection.is_blocked, connection.full.is_some());
        if is_blocked && has_passed(connection.taken, self.settings.stall_ns) {
            Some(b"it takes none of its answers")
        // What is not read of a request is not late.
        } else if connection.since != 0 && !is_full && has_passed(connection.since, self.settings.request_ns)
        {
            Some(b"its request does not end")
        } else if !is_blocked
            && !connection.is_served
            && connection.since == 0
            && has_passed(connection.active, self.settings.idle_ns)
        {
            Some(b"it is silent")
        } else {
            None
        }
    }

    /// The limit that its answers have reached, if it has them and has taken none of them for long
    /// enough.
    fn full(&self, place: usize) -> Option<Full> {
        // SAFETY: a place with a handle has a connection.
        let connection = unsafe { self.connections.get(place) };
        let is_late = !connection.backlog.is_empty() && self.now - connection.taken > FULL_NS;
        if is_late { connection.full } else { None }
    }

    fn has_answers(&self, place: usize) -> bool {
        // SAFETY: a place with a handle has a connection.
        let connection = unsafe { self.connections.get(place) };
        connection.has_answers() || connection.is_blocked
    }

    fn is_idle(&self, place: usize) -> bool {
        // SAFETY: a place with a handle has a connection.
        let connection = unsafe { self.connections.get(place) };
        !connection.waits_for_space && !connection.is_served && connection.since == 0
    }
}

const fn text_of(full: Full) -> &'static [u8] {
    match full {
        Full::Each => b"its answers have reached the limit of a connection",
        Full::All => b"answers have reached the limit of all connections",
    }
}
