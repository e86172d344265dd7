//! Spinning where cores are few.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Fewer cores than this are few: one each for the two ends of a stream, a data thread and the
/// rest.
const FEW_CORES: usize = 4;
/// A thread that keeps the core for longer than this is not waiting for the thread that yielded: it
/// spins. A turn of a gpunet thread is shorter, a time slice longer (milliseconds).
const LONG: Duration = Duration::from_micros(300);
/// How long a thread does not yield after that: at first, and at most.
const OFFENCE: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(10)];

/// Returns whether a spinning thread on this machine would occupy the core of the thread it waits
/// for.
#[must_use]
pub fn are_cores_few() -> bool {
    static FEW: LazyLock<bool> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from) < FEW_CORES);
    *FEW
}

/// Spinning without a core of its own: between two polls the thread yields. That costs a fraction
/// of a microsecond if no other thread wants to run, and much less than a sleep and a wake-up if
/// one does. Beside a program that spins on the same core, however, each yield costs a time slice;
/// then the thread should sleep, since the scheduler runs a woken sleeper first.
///
/// # Examples
///
/// ```
/// use gpunet_device::cpu::spin_yield::SpinYield;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::time::Duration;
///
/// fn wait(done: &AtomicBool) {
///     let mut spin = SpinYield::new();
///     while !done.load(Ordering::Acquire) {
///         if !spin.try_yield() {
///             std::thread::sleep(Duration::from_micros(50));
///         }
///     }
/// }
/// # wait(&AtomicBool::new(true));
/// ```
#[derive(Debug)]
pub struct SpinYield {
    /// Since when it may give way (again).
    since: Instant,
    offence: Duration,
}

impl Default for SpinYield {
    fn default() -> Self {
        Self::new()
    }
}

impl SpinYield {
    /// Gives way from now on.
    #[must_use]
    pub fn new() -> Self {
        Self { since: Instant::now(), offence: OFFENCE[0] }
    }

    /// Yields the core, if that seems useful; returns whether it was: if not, the thread should
    /// sleep.
    pub fn try_yield(&mut self) -> bool {
        let start = Instant::now();
        if start < self.since {
            return false;
        }
        std::thread::yield_now();
        self.note(start, Instant::now())
    }

    /// Records how long others ran; returns whether to continue.
    fn note(&mut self, start: Instant, end: Instant) -> bool {
        if end.saturating_duration_since(start) < LONG {
            return true;
        }
        // Soon after the last time it is the same program again.
        let again = start.saturating_duration_since(self.since) < self.offence;
        self.offence = if again { (2 * self.offence).min(OFFENCE[1]) } else { OFFENCE[0] };
        self.since = end + self.offence;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_the_core_is_given_way_to_less_and_less_often() {
        let start = Instant::now();
        let mut way = SpinYield { since: start, offence: OFFENCE[0] };
        assert!(way.note(start, start + LONG / 2));
        let mut at = start;
        let mut waits = Vec::new();
        for _ in 0..12 {
            let end = at + Duration::from_millis(2);
            assert!(!way.note(at, end));
            waits.push(way.since - end);
            at = way.since;
        }
        assert!(waits.is_sorted(), "{waits:?}");
        assert_eq!((waits[0], waits[11]), (2 * OFFENCE[0], OFFENCE[1]));
        // Long after it the next one is a first one.
        let later = at + Duration::from_secs(60);
        assert!(!way.note(later, later + Duration::from_millis(2)));
        assert_eq!(way.since - later, OFFENCE[0] + Duration::from_millis(2));
    }

    #[test]
    fn a_thread_that_was_kept_waiting_sleeps_meanwhile() {
        let mut way = SpinYield { since: Instant::now() + Duration::from_secs(60), offence: OFFENCE[0] };
        assert!(!way.try_yield());
    }
}
