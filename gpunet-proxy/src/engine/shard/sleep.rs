//! When a data thread spins, and when and how long it sleeps.

use super::rhythm::{Expected, Rhythm};
use gpunet_abi::hand_off;
use gpunet_device::cpu::spin_yield::{SpinYield, are_cores_few};
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// First sleep after spinning, for a thread that serves a GPU: about one hand-off's time. The
/// longest one while CUDA streams have operations under way.
pub(super) const FIRST_SLEEP: Duration = Duration::from_micros(50);
/// Sleep of a thread that every change wakes (no GPU attached): only a safety net.
const EVENT_SLEEP: Duration = Duration::from_secs(1);
/// Sleep of a thread whose words another thread watches: only a safety net, too, and one of a
/// shorter time.
const WATCHED_SLEEP: Duration = Duration::from_millis(100);
/// The longest spinning of a thread that knows when the next message comes: longer than a GPU block
/// takes to answer.
const SPIN_IN_RHYTHM: Duration = Duration::from_micros(100);
/// Work that comes after a silence of this length is a beat of a rhythm.
const SILENCE: Duration = Duration::from_millis(1);

/// Returns the given time: an hour in unit tests and while tests make threads pause, so that a lost
/// wake-up shows.
fn safety_net(time: Duration) -> Duration {
    if cfg!(test) || hand_off::is_running() { Duration::from_secs(3600) } else { time }
}

/// Decides between spinning and sleeping.
#[derive(Debug)]
pub(super) struct Idle {
    spin: Duration,
    /// Gives the core away between two turns; only on machines with few cores.
    yielder: Option<SpinYield>,
    latency: Duration,
    last_active: Instant,
    next_sleep: Duration,
    rhythm: Rhythm,
    /// The longest sleep of a thread whose words another thread watches.
    pub(super) longest_watched: Duration,
}

impl Idle {
    pub(super) fn new(spin: Duration, latency: Duration) -> Self {
        let yielder = are_cores_few().then(SpinYield::new);
        Self {
            spin,
            yielder,
            latency,
            last_active: Instant::now(),
            next_sleep: FIRST_SLEEP.min(latency),
            rhythm: Rhythm::default(),
            longest_watched: safety_net(WATCHED_SLEEP),
        }
    }

    /// Spins for a moment. Returns false if the thread should sleep instead: cores are few, and
    /// others want this one.
    fn spin(&mut self) -> bool {
        match &mut self.yielder {
            Some(yielder) => yielder.try_yield(),
            None => {
                std::hint::spin_loop();
                true
            }
        }
    }

    /// Returns whether it gives the core away between two turns.
    pub(super) const fn yields(&self) -> bool {
        self.yielder.is_some()
    }

    /// Notes that something was done.
    pub(super) fn active(&mut self, now: Instant) {
        if now.saturating_duration_since(self.last_active) >= SILENCE {
            self.rhythm.beat(now);
        }
        self.last_active = now;
        self.next_sleep = FIRST_SLEEP.min(self.latency);
    }

    /// How long to sleep if another thread watches the words. `None` unless `limit`, by
    /// [`Idle::sleep_for`], is the longest sleep: a watch pays off for long sleeps only.
    pub(super) fn watched_sleep(&mut self, now: Instant, limit: Duration) -> Option<Duration> {
        if limit < self.latency {
            return None;
        }
        match self.rhythm.expected(now) {
            Some(Expected::In(time)) => Some(time.min(self.longest_watched)),
            Some(Expected::Now) => None,
            None => Some(self.longest_watched),
        }
    }

    /// Makes the next sleep a short one, even if the rhythm expects nothing soon.
    pub(super) fn stay_alert(&mut self) {
        self.rhythm = Rhythm::default();
        self.next_sleep = FIRST_SLEEP.min(self.latency);
    }

    /// How long to sleep now; `None` if it has spun instead. With `polled`, a GPU is attached,
    /// whose stores raise no event; sleeps then start short and double up to the latency bound. The
    /// network, a doorbell and commands end any sleep.
    pub(super) fn sleep_for(&mut self, now: Instant, polled: bool) -> Option<Duration> {
        let idle = now.saturating_duration_since(self.last_active);
        let expected = if polled { self.rhythm.expected(now) } else { None };
        let spin = if expected.is_some() { self.spin.min(SPIN_IN_RHYTHM) } else { self.spin };
        if idle < spin && self.spin() {
            return None;
        }
        if !polled {
            return Some(safety_net(EVENT_SLEEP));
        }
        match expected {
            Some(Expected::In(time)) => return Some(time.min(self.latency)),
            Some(Expected::Now) => return Some(FIRST_SLEEP.min(self.latency)),
            None => {}
        }
        let sleep = self.next_sleep;
        // The bound is "wake within 100 us in the 10 ms after activity": grow only past that.
        if idle > Duration::from_millis(10) {
            self.next_sleep = (sleep * 2).min(self.latency);
        }
        Some(sleep)
    }
}

/// Lets short sleeps of this thread end on time: the default timer slack is 50 us.
pub(super) fn sharpen_timers() {
    // Fails only on a kernel without timer slack, where sleeps are merely longer.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000));
}

/// Waits until `fd` is readable, at most `limit`.
pub(super) fn wait_readable(fd: BorrowedFd<'_>, limit: Duration) {
    let limit =
        rustix::time::Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // An interrupted wait is a short one.
    let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_first_then_sleeps_longer_and_longer_up_to_the_bound() {
        let mut idle = Idle::new(Duration::from_micros(100), Duration::from_millis(5));
        idle.yielder = None;
        let start = Instant::now();
        idle.active(start);
        assert_eq!(idle.sleep_for(start + Duration::from_micros(99), true), None);
        assert_eq!(idle.sleep_for(start + Duration::from_micros(101), true), Some(FIRST_SLEEP));
        assert_eq!(idle.sleep_for(start + Duration::from_millis(9), true), Some(FIRST_SLEEP));
        let mut longest = Duration::ZERO;
        for ms in 11..40 {
            longest = idle.sleep_for(start + Duration::from_millis(ms), true).unwrap();
        }
        assert_eq!(longest, Duration::from_millis(5));
        idle.stay_alert();
        assert_eq!(idle.sleep_for(start + Duration::from_millis(41), true), Some(FIRST_SLEEP));
        idle.active(start + Duration::from_millis(41));
        assert_eq!(idle.sleep_for(start + Duration::from_millis(42), true), Some(FIRST_SLEEP));
    }

    #[test]
    fn sleeps_until_shortly_before_a_message_of_a_rhythm() {
        let (gap, latency) = (Duration::from_millis(20), Duration::from_millis(5));
        let mut idle = Idle::new(Duration::ZERO, latency);
        let mut now = Instant::now();
        for _ in 0..6 {
            now += gap;
            idle.active(now);
        }
        let ms = Duration::from_millis;
        assert_eq!(idle.sleep_for(now + ms(1), true), Some(latency), "not the short sleeps after activity");
        assert!(idle.watched_sleep(now + ms(1), latency).unwrap() < gap, "nor longer than until then");
        assert!(idle.sleep_for(now + ms(17), true).unwrap() < ms(2), "until the expected time begins");
        assert_eq!(idle.sleep_for(now + ms(19), true), Some(FIRST_SLEEP));
        assert_eq!(idle.sleep_for(now + ms(21), true), Some(FIRST_SLEEP));
        // It did not come.
        let sleeps: Vec<_> = (23..60).map(|after| idle.sleep_for(now + ms(after), true).unwrap()).collect();
        assert!(sleeps.is_sorted() && sleeps.last() == Some(&latency), "{sleeps:?}");
        assert_eq!(idle.watched_sleep(now + ms(61), latency), Some(safety_net(WATCHED_SLEEP)));
        assert_eq!(idle.watched_sleep(now + ms(61), latency / 2), None, "it may still be active");
    }
}
