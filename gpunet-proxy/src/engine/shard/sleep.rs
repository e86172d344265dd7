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
/// Sleep of a thread that expects a message by its rhythm.
const EXPECTING_SLEEP: Duration = Duration::from_micros(100);
/// Times in a row that another thread was busy after a silence, and nobody had a request: then
/// thread 0 looks for requests less often after the next one.
const FRUITLESS: u32 = 4;
/// Its first sleep then.
const FRUITLESS_SLEEP: Duration = Duration::from_micros(800);
/// The longest sleep of a thread that perhaps gets a message: 4,000 looks a second, which take some
/// percent of a core.
const ALERT_SLEEP: Duration = Duration::from_micros(250);
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
    /// When it was last told that other threads are busy, and how often it was since it found
    /// something itself, each time after a silence.
    last_alert: Option<Instant>,
    alerts: u32,
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
            last_alert: None,
            alerts: 0,
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
        self.alerts = 0;
    }

    /// How long to sleep if another thread watches the words. `None` unless `limit`, by
    /// [`Idle::sleep_for`], is the longest sleep: a watch pays off for long sleeps only.
    pub(super) fn watched_sleep(&mut self, now: Instant, limit: Duration) -> Option<Duration> {
        if limit < self.latency {
            return None;
        }
        match self.rhythm.expected(now) {
            Some(Expected::In(time)) => Some(time.min(self.longest_watched)),
            Some(Expected::Now | Expected::Perhaps) => None,
            None => Some(self.longest_watched),
        }
    }

    /// Makes the next sleep a short one, even if the rhythm expects nothing soon, because other
    /// threads were busy. Where they are so now and then, as for a kernel that sends a token every
    /// 20 ms, and there is never a request, it is less short.
    pub(super) fn stay_alert(&mut self, now: Instant) {
        let last = self.last_alert.replace(now);
        let is_dense = last.is_some_and(|last| now.saturating_duration_since(last) < SILENCE);
        self.alerts = if is_dense { 0 } else { self.alerts.saturating_add(1) };
        self.rhythm = Rhythm::default();
        let first = if self.alerts > FRUITLESS { FRUITLESS_SLEEP } else { FIRST_SLEEP };
        self.next_sleep = first.min(self.latency);
    }

    /// How long to sleep now; `None` if it has spun instead. With `polled`, a GPU is attached,
    /// whose stores raise no event; sleeps then start short and double up to the latency bound. The
    /// network, a doorbell and commands end any sleep.
    pub(super) fn sleep_for(&mut self, now: Instant, polled: bool) -> Option<Duration> {
        let idle = now.saturating_duration_since(self.last_active);
        let expected = if polled { self.rhythm.expected(now) } else { None };
        let spin = match expected {
            Some(Expected::In(_) | Expected::Now) => self.spin.min(SPIN_IN_RHYTHM),
            Some(Expected::Perhaps) | None => self.spin,
        };
        if idle < spin && self.spin() {
            return None;
        }
        if !polled {
            return Some(safety_net(EVENT_SLEEP));
        }
        match expected {
            Some(Expected::In(time)) => return Some(time.min(self.latency)),
            Some(Expected::Now) => return Some(EXPECTING_SLEEP.min(self.latency)),
            Some(Expected::Perhaps) | None => {}
        }
        let longest = if expected.is_some() { ALERT_SLEEP.min(self.latency) } else { self.latency };
        let sleep = self.next_sleep.min(longest);
        // The bound is "wake within 100 us in the 10 ms after activity": grow only past that.
        if idle > Duration::from_millis(10) {
            self.next_sleep = (sleep * 2).min(longest);
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
        idle.stay_alert(start + Duration::from_millis(41));
        assert_eq!(idle.sleep_for(start + Duration::from_millis(41), true), Some(FIRST_SLEEP));
        idle.active(start + Duration::from_millis(41));
        assert_eq!(idle.sleep_for(start + Duration::from_millis(42), true), Some(FIRST_SLEEP));
    }

    /// What a thread does in a time in which its stream speaks at these times: how late it hears
    /// each message, and how often it looks.
    fn heard(speaks: &[Duration], until: Duration) -> (Vec<Duration>, u32) {
        let start = Instant::now();
        let mut idle = Idle::new(Duration::ZERO, Duration::from_millis(5));
        (idle.yielder, idle.last_active) = (None, start);
        let (mut now, mut looks, mut late, mut next) =
            (Duration::ZERO, 0, Vec::new(), speaks.iter().peekable());
        while now < until {
            looks += 1;
            if let Some(said) = next.next_if(|said| **said <= now) {
                late.push(now - *said);
                idle.active(start + now);
            }
            now += idle.sleep_for(start + now, true).unwrap_or(Duration::from_micros(1));
        }
        (late, looks)
    }

    #[test]
    fn who_speaks_after_silences_is_heard_soon_and_who_does_not_costs_little() {
        let ms = Duration::from_millis;
        // At random, as a program that drives a kernel may make it speak.
        for longest in [20, 100, 200] {
            let mut seed = 1u64;
            let mut said = ms(20);
            let speaks: Vec<_> = (0..100)
                .map(|_| {
                    seed =
                        seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    said += ms(longest / 2) + Duration::from_micros((seed >> 33) % (longest * 500));
                    said
                })
                .collect();
            let (mut late, looks) = heard(&speaks, said);
            assert_eq!(late.len(), 99, "all but the last one");
            // The first ones are what it learns from.
            late.drain(..2);
            late.sort();
            assert!(late[late.len() * 9 / 10] <= ms(1) / 4 + FIRST_SLEEP, "{longest} ms: {late:?}");
            // Those after each message, and then 4,000 a second.
            let most = late.len() as u32 * 220 + said.as_micros() as u32 / 250;
            assert!(looks < most, "{longest} ms: {looks} looks, and at most {most} are expected");
        }
        // After it has fallen silent it looks as seldom as one that never spoke.
        let silent = heard(&[], ms(10_000)).1;
        let fallen = heard(&[ms(100), ms(300), ms(500)], ms(10_500)).1;
        let spoke = heard(&[ms(100), ms(300), ms(500)], ms(1_500)).1;
        assert!(silent < 2500 && fallen - spoke < 2000, "{silent}, {fallen}, {spoke} looks");
    }

    #[test]
    fn a_message_of_a_rhythm_takes_few_looks() {
        let speaks: Vec<_> = (1..=100).map(|beat| Duration::from_millis(20) * beat).collect();
        let learnt = heard(&speaks[..10], speaks[10]).1;
        let (late, looks) = heard(&speaks, Duration::from_millis(2010));
        assert!(late[10..].iter().all(|late| *late <= EXPECTING_SLEEP), "{late:?}");
        // Up to the longest sleep, and then around the expected time.
        let each = (looks - learnt) / 90;
        assert!(each <= 14, "{each} looks for each message");
    }

    #[test]
    fn other_threads_that_are_busy_now_and_then_wake_no_thread_that_finds_nothing() {
        let ms = Duration::from_millis;
        let mut idle = Idle::new(Duration::ZERO, ms(5));
        idle.yielder = None;
        let mut now = Instant::now();
        let mut after_alert = |idle: &mut Idle, pause| {
            now += pause;
            idle.stay_alert(now);
            idle.sleep_for(now, true).unwrap()
        };
        for _ in 0..FRUITLESS {
            assert_eq!(after_alert(&mut idle, ms(20)), FIRST_SLEEP);
        }
        assert_eq!(after_alert(&mut idle, ms(20)), FRUITLESS_SLEEP);
        assert_eq!(after_alert(&mut idle, ms(1) / 2), FIRST_SLEEP, "they are busy all the time");
        for _ in 0..FRUITLESS {
            after_alert(&mut idle, ms(20));
        }
        assert_eq!(after_alert(&mut idle, ms(20)), FRUITLESS_SLEEP);
        idle.active(Instant::now());
        assert_eq!(after_alert(&mut idle, ms(20)), FIRST_SLEEP, "there was a request");
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
        assert!(idle.sleep_for(now + ms(17), true).unwrap() < ms(3), "until the expected time begins");
        assert_eq!(idle.sleep_for(now + ms(20), true), Some(EXPECTING_SLEEP));
        assert_eq!(idle.sleep_for(now + ms(21), true), Some(EXPECTING_SLEEP));
        // It did not come: perhaps it does later, and then not at all.
        let sleeps: Vec<_> = (23..70).map(|after| idle.sleep_for(now + ms(after), true).unwrap()).collect();
        assert!(sleeps.is_sorted() && sleeps.last() == Some(&latency), "{sleeps:?}");
        assert_eq!(idle.watched_sleep(now + ms(71), latency), Some(safety_net(WATCHED_SLEEP)));
        assert_eq!(idle.watched_sleep(now + ms(71), latency / 2), None, "it may still be active");
    }
}
