//! Connections that take too long, and the end of the server.

use super::Block;
use super::connection::Connection;
use crate::{Line, Service};
use gpunet_device::{Group, Stream};

impl<S: Service> Block<S> {
    /// Closes connections that have passed a limit; if the server ends, also those that are idle.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn check_limits<G: Group>(&mut self, g: &G, is_stopping: bool) {
        let mut place = 0;
        while place < self.readiness.places() {
            if let Some(handle) = self.readiness.handle(place) {
                let limit = self.limit_passed(place);
                let is_idle = limit.is_none() && is_stopping && self.is_idle(place);
                if let Some(text) = limit {
                    self.counters.limited += 1;
                    self.log.line(g, self.now, &Line::new().text(b"a connection is closed: ").text(text));
                }
                if limit.is_some() {
                    // Its answers are not waited for any more.
                    if let Ok(mut stream) = Stream::from_handle(g, self.net, handle) {
                        let options = stream.options().with_linger_ms(0);
                        let _ = stream.set_options(g, options);
                    }
                }
                if limit.is_some() || is_idle {
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
        let (is_blocked, since, active) = self.times(place, |connection| connection.is_blocked);
        let has_passed = |start: u64, limit: u64| limit != 0 && self.now - start > limit;
        if is_blocked {
            has_passed(active, self.settings.stall_ns).then_some(b"it takes none of its answers")
        } else if since != 0 {
            has_passed(since, self.settings.request_ns).then_some(b"its request does not end")
        } else {
            has_passed(active, self.settings.idle_ns).then_some(b"it is silent")
        }
    }

    fn is_idle(&self, place: usize) -> bool {
        let (waits_for_space, since, _) = self.times(place, |connection| connection.waits_for_space);
        !waits_for_space && since == 0
    }

    fn times(&self, place: usize, flag: impl Fn(&Connection<S>) -> bool) -> (bool, u64, u64) {
        // SAFETY: a place with a handle has a connection.
        let connection = unsafe { self.connections.get(place) };
        (flag(&connection), connection.since, connection.active)
    }
}
