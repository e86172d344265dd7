//! Accepting: the balance between blocks, and back-off when something is short.

use super::Block;
use super::connection::Connection;
use crate::arena::put_both;
use crate::{Line, Service};
use gpunet_device::{Error, Group, Listener, Result};

/// How long a block leaves a new connection to blocks that have fewer: such a block may be waiting
/// for its only connection for two milliseconds (`Block::attends`).
const COURTESY_NS: u64 = 2_500_000;
/// On a GPU one of the blocks without connections watches the listener. If all did, their loads of
/// host memory would delay what the others send: with 44 such blocks, a request took three times as
/// long on an H100 as with none.
const ONE_WATCHES: bool = cfg!(target_arch = "nvptx64");
/// How long it does that before another may take over, and how often those others look.
const WATCH_NS: u64 = 100_000;
const LOOK_NS: u64 = 20_000;
/// How often a block with connections looks whether a block without any still watches.
const LOOK_OF_BUSY_NS: u64 = 1_000_000;
/// Pause before the next accept when there is no memory, slot or descriptor for it.
const EXHAUSTED_NS: u64 = 10_000_000;

/// When a block accepts again. Equal on all lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Accepting {
    /// Not 0: the listener is not watched until then; afterwards a connection that still waits is
    /// accepted.
    hold_until: u64,
    /// Something was short when it was tried last: the log has it.
    is_short: bool,
    /// Until when this block watches the listener for all blocks without connections; 0: it does
    /// not.
    watches_until: u64,
    /// How long to wait before looking again who watches the listener; 0: this does not matter now.
    look_ns: u64,
}

impl Accepting {
    /// How long the block may wait for its sockets.
    pub(super) fn wait_at_most(&self, now: u64, limit: u64) -> u64 {
        let limit = if self.look_ns != 0 && self.look_ns < limit { self.look_ns } else { limit };
        match self.hold_until {
            0 => limit,
            until if until <= now => 0,
            until => limit.min(until - now),
        }
    }

    /// Another block has taken the connection that was left to it.
    pub(super) fn nobody_waits(&mut self) {
        self.hold_until = match self.hold_until {
            until if self.is_short => until,
            _ => 0,
        };
    }
}

impl<S: Service> Block<S> {
    /// Watches the listener unless there is no room, or the block holds back.
    pub(super) fn watch_listener<G: Group>(&mut self, g: &G, listener: &Listener, is_stopping: bool) {
        let is_full = self.counters.open >= self.settings.room as u64;
        if is_full || is_stopping {
            self.accepting.hold_until = 0;
        }
        let mut watch = !is_full && !is_stopping && self.accepting.hold_until <= self.now;
        if ONE_WATCHES {
            watch = self.shares_watch(g, watch);
        }
        self.readiness.watch_listener(g, if watch { Some(listener.handle()) } else { None });
    }

    /// Returns whether this block is to watch the listener, which it would like to.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn shares_watch<G: Group>(&mut self, g: &G, wants: bool) -> bool {
        let (now, mine, is_empty) = (self.now, self.accepting.watches_until, self.counters.open == 0);
        let mut until = 0;
        if g.is_leader() {
            if wants && is_empty {
                until = self.loads.try_watch(now, now + WATCH_NS, mine);
            } else {
                if mine != 0 {
                    self.loads.unwatch(mine);
                }
                until = self.loads.watched_until();
            }
        }
        let until = g.broadcast(until);
        self.accepting.watches_until = if wants && is_empty { until } else { 0 };
        // A block with connections watches if no block without any does.
        let watches = wants && if is_empty { until != 0 } else { until <= now };
        self.accepting.look_ns = match (wants, is_empty, watches) {
            (true, true, true) => WATCH_NS / 2,
            (true, true, false) => LOOK_NS,
            (true, false, false) => LOOK_OF_BUSY_NS,
            _ => 0,
        };
        watches
    }

    /// Accepts the connection that waits, or leaves it to less busy blocks for a moment.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn accept<G: Group>(&mut self, g: &G, listener: &Listener) -> Result<()> {
        let mine = self.counters.open;
        if self.accepting.hold_until == 0 && mine > 0 && self.loads.someone_has_fewer(g, mine) {
            self.accepting.hold_until = self.now + COURTESY_NS;
            return Ok(());
        }
        self.accepting.hold_until = 0;
        match listener.try_accept(g) {
            Ok(stream) => {
                self.accepting.is_short = false;
                let Some(place) = self.readiness.free() else {
                    // The listener is watched only if there is one.
                    let _ = stream.close(g);
                    return Ok(());
                };
                self.counters.accepted += 1;
                self.counters.open += 1;
                self.loads.set(g, self.counters.open);
                let connection = (&self.connections, Connection::new(self.now));
                put_both(g, place, connection, (&self.states, S::State::default()));
                if S::HAS_ROLL {
                    self.roll.enter(g, self.readiness.number(place), stream.peer_addr(), self.now);
                }
                self.readiness.enter(g, place, stream.handle(), self.now);
                Ok(())
            }
            Err(Error::WouldBlock) => Ok(()),
            Err(
                error @ (Error::Canceled | Error::NetworkDown | Error::BadHandle | Error::InvalidArgument),
            ) => Err(error),
            // The connection waits in the backlog until there is something again; any other error
            // ends only that connection.
            Err(error) => {
                if !matches!(error, Error::NoBuffers | Error::TooManySockets | Error::TooManyFiles) {
                    self.counters.failed += 1;
                } else if !self.accepting.is_short {
                    self.accepting.is_short = true;
                    let errno = error.errno() as i64;
                    self.log.line(
                        g,
                        self.now,
                        &Line::new().text(b"cannot accept for now: errno ").number(errno),
                    );
                }
                self.accepting.hold_until = self.now + EXHAUSTED_NS;
                Ok(())
            }
        }
    }
}
