//! How a block waits that serves no connections.

use crate::readiness::nothing;
use crate::{Service, Worker};
use gpunet_device::{Group, Result, Timeout, now_ns, poll_until_woken};

/// How often a worker that waits checks whether the server ends.
const CHECK_NS: u64 = 50_000_000;

impl<S: Service> Worker<'_, S> {
    /// Which of the server's workers it is, from 0 on.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Waits until somebody rings for the workers ([`crate::Bells::ring_workers`]), or until
    /// `until` by the device's clock; with a time that is over, not at all. A ring since the last
    /// call ends the wait at once. Returns whether the server goes on; if not, [`Service::work`] is
    /// to return.
    ///
    /// It also publishes the counters.
    ///
    /// # Cooperation
    /// All lanes call it, and see on return what was stored before the ring.
    ///
    /// # Errors
    /// The launch is over.
    pub fn wait<G: Group>(&mut self, g: &G, until: u64) -> Result<bool> {
        self.board.publish(g, &self.published, &self.counters);
        self.published.catch_up(&self.counters);
        let mut has_waited = false;
        loop {
            let host = self.last_asked.next_look(g.broadcast(now_ns()), has_waited);
            let rung = self.doorbell.look(g, host);
            let now = g.broadcast(now_ns());
            self.context.now = now;
            let is_over = rung.by_device || rung.by_host || now >= until;
            // On a GPU, that the server ends and that the launch is over is behind the bus.
            if now >= self.check_at {
                self.check_at = now + CHECK_NS;
                if !self.goes_on(g) {
                    return Ok(false);
                }
                self.sleep(g, 0)?;
            }
            if is_over {
                return Ok(true);
            }
            self.sleep(g, until.min(self.check_at) - now)?;
            has_waited = true;
        }
    }

    /// Waits for a ring, at most for `limit_ns`. With 0 it only notices that the launch is over.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn sleep<G: Group>(&self, g: &G, limit_ns: u64) -> Result<()> {
        let words = Some(self.doorbell.words(true));
        let timeout = Timeout::ns(limit_ns);
        poll_until_woken(g, self.context.net, nothing(), timeout, words, || false).map(drop)
    }

    /// Returns whether connections may still wait for this block.
    fn goes_on<G: Group>(&mut self, g: &G) -> bool {
        let is_stopping = g.broadcast(u64::from(g.is_leader() && self.board.is_stopping())) != 0;
        if is_stopping && self.end_at == 0 {
            self.end_at = self.context.now + self.grace_ns;
        }
        !is_stopping || (self.connections.count(g) > 0 && self.context.now < self.end_at)
    }
}
