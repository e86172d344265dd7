//! How a block waits that serves no connections.

use crate::readiness::nothing;
use crate::{Service, Worker};
use core::cell::Cell;
use gpunet_device::{Group, Result, Timeout, now_ns, poll_until_woken};

/// How often a worker that waits checks whether the server ends.
const CHECK_NS: u64 = 50_000_000;

impl<S: Service> Worker<'_, S> {
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
        self.published = self.counters;
        loop {
            let rung = self.doorbell.look(g, true);
            self.context.now = g.broadcast(now_ns());
            if !self.goes_on(g) {
                return Ok(false);
            }
            let is_over = rung.by_device || rung.by_host || self.context.now >= until;
            let limit = if is_over { 0 } else { (until - self.context.now).min(CHECK_NS) };
            self.sleep(g, limit)?;
            if is_over {
                return Ok(true);
            }
        }
    }

    /// Waits for a ring, at most for `limit_ns`. With 0 it only notices that the launch is over.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn sleep<G: Group>(&self, g: &G, limit_ns: u64) -> Result<()> {
        let turn = Cell::new(0);
        let (doorbell, net) = (self.doorbell, self.context.net);
        let words = if cfg!(target_arch = "nvptx64") { None } else { Some(doorbell.words()) };
        let timeout = Timeout::ns(limit_ns);
        let ended = poll_until_woken(g, net, nothing(), timeout, words, || doorbell.is_rung(&turn, true));
        doorbell.end(&turn);
        ended.map(drop)
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
