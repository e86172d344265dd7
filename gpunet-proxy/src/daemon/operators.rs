//! Snapshots for connections that only ask for them: one at a time for each user, and no faster
//! than the control plane can afford.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Mutex as TurnLock, OwnedMutexGuard};
use tokio::time::{Instant, sleep_until};

/// A snapshot costs the control plane some hundred nanoseconds for each socket: this is a tenth of
/// its time at most.
const INTERVAL: Duration = Duration::from_millis(2);
const INTERVAL_OF_A_SOCKET: Duration = Duration::from_micros(2);
/// The longest burst, in time at the average rate.
const BURST: Duration = Duration::from_millis(200);

/// The users that ask for snapshots.
#[derive(Default)]
pub(super) struct Operators {
    users: Mutex<HashMap<u32, Arc<TurnLock<Instant>>>>,
}

/// A user's turn: the next one begins when it is dropped.
pub(super) struct SnapshotTurn(OwnedMutexGuard<Instant>);

impl Operators {
    /// Waits until a user may have a snapshot. A connection holds the turn until its snapshot is
    /// sent, so a user that does not read keeps one snapshot in the daemon's memory at most.
    pub(super) async fn turn(&self, uid: u32) -> SnapshotTurn {
        let next = self.of(uid).lock_owned().await;
        sleep_until(*next).await;
        SnapshotTurn(next)
    }

    /// The turn of a user. It is forgotten once it no longer holds anybody up: a new connection is
    /// no fresh start.
    fn of(&self, uid: u32) -> Arc<TurnLock<Instant>> {
        let now = Instant::now();
        let mut users = super::lock(&self.users);
        let counts = |next: &TurnLock<Instant>| next.try_lock().is_ok_and(|next| *next + BURST > now);
        users.retain(|_, next| Arc::strong_count(next) > 1 || counts(next));
        users
            .entry(uid)
            .or_insert_with(|| Arc::new(TurnLock::new(now.checked_sub(BURST).unwrap_or(now))))
            .clone()
    }
}

impl SnapshotTurn {
    /// Notes what the snapshot cost.
    pub(super) fn charge(&mut self, sockets: usize) {
        let sockets = u32::try_from(sockets).unwrap_or(u32::MAX);
        let now = Instant::now();
        let unused = now.checked_sub(BURST).unwrap_or(now);
        *self.0 = (*self.0).max(unused) + INTERVAL + INTERVAL_OF_A_SOCKET * sockets;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use tokio::time::timeout;

    #[test]
    fn a_user_has_one_snapshot_at_a_time_and_pays_for_its_size() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let operators = Operators::default();
            let mut first = operators.turn(1).await;
            let hour = Duration::from_secs(3600);
            assert!(timeout(hour, operators.turn(1)).await.is_err(), "one at a time");
            assert!(timeout(Duration::ZERO, operators.turn(2)).await.is_ok(), "others do not wait");
            let waiting = pin!(operators.turn(1));
            first.charge(1_000_000);
            drop(first);
            let start = Instant::now();
            drop(waiting.await);
            let waited = start.elapsed();
            assert!(waited > Duration::from_secs(1), "{waited:?}");
            // A connection for each is no way around.
            let start = Instant::now();
            for _ in 0..1000 {
                operators.turn(1).await.charge(0);
            }
            assert!(start.elapsed() > INTERVAL * 800);
            tokio::time::sleep(hour).await;
            drop(operators.of(3));
            assert_eq!(super::super::lock(&operators.users).len(), 1, "users 1 and 2 are forgotten");
        });
    }
}
