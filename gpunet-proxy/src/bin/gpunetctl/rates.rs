//! Bytes a second, from two snapshots.

use gpunet_proxy::snapshot::{Snapshot, Socket};
use std::collections::HashMap;

/// Bytes a second of one socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Sent.
    pub sent: f64,
    /// Received.
    pub received: f64,
}

/// Which socket it is: client, slot and generation.
pub type Key = (u32, u32, u32);

/// Names a socket.
pub fn key(socket: &Socket) -> Key {
    (socket.client, socket.slot, socket.generation)
}

/// The snapshot before `now`, if it is of the same daemon: another, or one that has just started,
/// counts from the beginning.
pub fn earlier<'a>(before: Option<&'a Snapshot>, now: &Snapshot) -> Option<&'a Snapshot> {
    before.filter(|before| before.pid == now.pid && before.uptime_ms < now.uptime_ms)
}

/// The rates between two snapshots of the same daemon, of the sockets that are in both.
pub fn between(before: Option<&Snapshot>, now: &Snapshot) -> HashMap<Key, Rate> {
    let Some(before) = earlier(before, now) else { return HashMap::new() };
    let seconds = (now.uptime_ms - before.uptime_ms) as f64 / 1000.0;
    let old: HashMap<Key, &Socket> = before.sockets.iter().map(|socket| (key(socket), socket)).collect();
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let rated = now.sockets.iter().filter_map(|socket| {
        let old = old.get(&key(socket))?;
        let (sent, received) = (rate(socket.sent, old.sent), rate(socket.received, old.received));
        Some((key(socket), Rate { sent, received }))
    });
    rated.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ss::tests::{snapshot, socket};

    #[test]
    fn rates_are_of_the_same_socket_of_the_same_daemon() {
        let before = snapshot(1, 1000, vec![socket(1, 0, 5, 100, 0), socket(1, 1, 1, 100, 0)]);
        let now = snapshot(1, 3000, vec![socket(1, 0, 5, 1100, 50), socket(1, 1, 2, 100, 0)]);
        let rates = between(Some(&before), &now);
        assert_eq!(rates.len(), 1, "slot 1 is another socket by now");
        assert_eq!(rates[&(1, 0, 5)], Rate { sent: 500.0, received: 25.0 });
        assert!(between(None, &now).is_empty());
        let restarted = snapshot(2, 3000, now.sockets.clone());
        assert!(between(Some(&before), &restarted).is_empty());
        assert!(between(Some(&now), &now).is_empty(), "no time has passed");
    }
}
