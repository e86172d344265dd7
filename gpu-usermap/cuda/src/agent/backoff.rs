//! How a thread waits for something that it has to poll.

use std::thread;
use std::time::{Duration, Instant};

/// A small copy is done within 10 us on an H200, so the thread spins for longer than that before it
/// sleeps.
const SPIN: Duration = Duration::from_micros(50);
const FIRST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_millis(2);

/// Spins briefly, then sleeps for twice as long each time, up to 2 ms.
pub(crate) struct Backoff {
    started: Instant,
    next_sleep: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), next_sleep: FIRST_SLEEP }
    }

    /// Waits a little longer than the last time, and never beyond `deadline`.
    pub(crate) fn pause(&mut self, deadline: Option<Instant>) {
        let now = Instant::now();
        if now.duration_since(self.started) < SPIN {
            std::hint::spin_loop();
            return;
        }
        let left = deadline.map_or(LONGEST_SLEEP, |deadline| deadline.saturating_duration_since(now));
        thread::sleep(self.next_sleep().min(left));
    }

    /// Returns the length of the next sleep, for a thread that sleeps on a channel instead.
    pub(crate) fn next_sleep(&mut self) -> Duration {
        let sleep = self.next_sleep;
        self.next_sleep = (sleep * 2).min(LONGEST_SLEEP);
        sleep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_double_up_to_a_bound() {
        let mut backoff = Backoff::new();
        let sleeps: Vec<_> = (0..10).map(|_| backoff.next_sleep().as_micros()).collect();
        assert_eq!(sleeps, [20, 40, 80, 160, 320, 640, 1280, 2000, 2000, 2000]);
    }

    #[test]
    fn a_pause_ends_at_the_deadline() {
        let mut backoff = Backoff { started: Instant::now() - SPIN, next_sleep: Duration::from_secs(60) };
        let before = Instant::now();
        backoff.pause(Some(before));
        assert!(before.elapsed() < Duration::from_secs(30));
    }
}
