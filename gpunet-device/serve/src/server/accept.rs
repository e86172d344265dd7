//! Accepting: the balance between blocks, and back-off when something is short.

use super::Block;
use super::turn::Connection;
use crate::readiness::Interest;
use crate::{Line, Service};
use gpunet_device::{Error, Group, Listener, Result};

/// How long a block leaves a new connection to blocks that have fewer: such a block may be waiting for its only connection for two
/// milliseconds (`Block::attends`).
const COURTESY_NS: u64 = 2_500_000;
/// Pause before the next accept when there is no memory, slot or descriptor for it.
const EXHAUSTED_NS: u64 = 10_000_000;

/// When a block accepts again. Equal on all lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Accepting {
    /// Not 0: the listener is not watched until then; afterwards a connection that still waits is accepted.
    hold_until: u64,
    /// Something was short when it was tried last: the log has it.
    is_short: bool,
}

impl Accepting {
    /// How long the block may wait for its sockets.
    pub(super) fn wait_at_most(&self, now: u64, limit: u64) -> u64 {
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
        let watch = !is_full && !is_stopping && self.accepting.hold_until <= self.now;
        self.readiness.watch_listener(g, if watch { Some(listener.handle()) } else { None });
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
                self.connections.put(g, place, Connection::new(self.now));
                self.readiness.watch(g, place, stream.handle(), Interest::Input, self.now);
                Ok(())
            }
            Err(Error::WouldBlock) => Ok(()),
            Err(
                error @ (Error::Canceled | Error::NetworkDown | Error::BadHandle | Error::InvalidArgument),
            ) => Err(error),
            // The connection waits in the backlog until there is something again; any other error ends only that connection.
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
