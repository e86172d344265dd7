//! The rhythm at which a GPU's kernels speak: when a data thread expects the next message.
//!
//! A GPU's store wakes nobody, so a data thread that sleeps finds it late. A kernel that sends a
//! token every 20 ms is expected 20 ms after its last one: the thread sleeps until shortly before,
//! and polls around that time. One that speaks after silences without a rhythm is expected at any
//! moment of a silence, until that is twice as long as those before; one that has not spoken again
//! since then costs nothing.

use std::time::{Duration, Instant};

/// The gaps between two messages that can be a rhythm. Shorter ones the thread bridges by short
/// sleeps anyway.
const GAPS: std::ops::RangeInclusive<Duration> = Duration::from_millis(2)..=Duration::from_millis(250);
/// Equal gaps that make a rhythm.
const STEADY: u32 = 3;
/// A gap belongs to the rhythm if it differs from the last one by less than this part of it. The
/// thread polls for the same time before and after the expected time.
const TOLERANCE: u32 = 16;

/// What the thread has learnt of the times at which something was done after a silence.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    last: Option<Instant>,
    gap: Duration,
    /// How many gaps in a row were like the one before.
    equal: u32,
    /// The longest of the last gaps: each counts for half as much after the next one.
    usual: Duration,
}

/// What to expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Nothing is expected before this time has passed.
    In(Duration),
    /// A message, at any moment.
    Now,
    /// Perhaps a message: it has come after silences as long as this one.
    Perhaps,
}

impl Rhythm {
    /// Notes that something was done after a silence.
    pub(super) fn beat(&mut self, now: Instant) {
        let gap = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let is_equal = gap.abs_diff(self.gap) <= self.gap / TOLERANCE;
        let may_be_usual = GAPS.contains(&gap);
        self.equal = if may_be_usual && is_equal { self.equal + 1 } else { 0 };
        self.usual = if may_be_usual { gap.max(self.usual / 2) } else { self.usual / 2 };
        (self.last, self.gap) = (Some(now), gap);
    }

    /// What is to be expected, if anything is.
    pub(super) fn expected(&mut self, now: Instant) -> Option<Expected> {
        let last = self.last?;
        if self.equal < STEADY {
            return if now < last + 2 * self.usual { Some(Expected::Perhaps) } else { None };
        }
        let margin = self.gap / TOLERANCE;
        let (from, until) = (last + self.gap - margin, last + self.gap + margin);
        if now < from {
            Some(Expected::In(from - now))
        } else if now <= until {
            Some(Expected::Now)
        } else {
            // It did not come: whatever comes next begins a new rhythm.
            self.equal = 0;
            self.expected(now)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_millis(20);

    fn after(gaps: &[Duration]) -> (Rhythm, Instant) {
        let (mut rhythm, mut now) = (Rhythm::default(), Instant::now());
        rhythm.beat(now);
        for gap in gaps {
            now += *gap;
            rhythm.beat(now);
        }
        (rhythm, now)
    }

    #[test]
    fn equal_gaps_are_expected_to_go_on() {
        let (mut rhythm, now) = after(&[GAP; 4]);
        assert_eq!(rhythm.expected(now), Some(Expected::In(GAP - GAP / TOLERANCE)));
        assert_eq!(rhythm.expected(now + GAP), Some(Expected::Now));
        assert_eq!(rhythm.expected(now + GAP + GAP / TOLERANCE), Some(Expected::Now));
        // What did not come in time comes perhaps, and then is not waited for.
        assert_eq!(rhythm.expected(now + GAP + GAP / 2), Some(Expected::Perhaps));
        assert_eq!(rhythm.expected(now + 2 * GAP), None);
        assert_eq!(rhythm.expected(now + 3 * GAP), None);
    }

    #[test]
    fn what_comes_late_by_less_than_the_tolerance_keeps_the_rhythm() {
        let late = GAP + GAP / 20;
        let (mut rhythm, now) = after(&[GAP, GAP, late, GAP, late]);
        assert_eq!(rhythm.expected(now + GAP), Some(Expected::Now));
    }

    #[test]
    fn few_or_unequal_or_short_or_long_gaps_are_no_rhythm() {
        let ms = Duration::from_millis;
        for gaps in [&[GAP; 3][..], &[ms(20), ms(20), ms(25), ms(20), ms(20)], &[ms(1); 9], &[ms(300); 9]] {
            let (mut rhythm, now) = after(gaps);
            assert!(matches!(rhythm.expected(now), None | Some(Expected::Perhaps)), "{gaps:?}");
        }
    }

    #[test]
    fn a_silence_as_long_as_the_last_ones_may_end_at_any_moment() {
        let ms = Duration::from_millis;
        let (mut rhythm, now) = after(&[ms(30), ms(100), ms(20)]);
        // A hundred milliseconds count for fifty now.
        for (silence, expected) in [(5, true), (60, true), (99, true), (101, false), (300, false)] {
            let expected = if expected { Some(Expected::Perhaps) } else { None };
            assert_eq!(rhythm.expected(now + ms(silence)), expected, "{silence} ms");
        }
        for gaps in [&[][..], &[ms(1); 9], &[ms(300); 9]] {
            let (mut rhythm, now) = after(gaps);
            assert_eq!(rhythm.expected(now + ms(20)), None, "{gaps:?}");
        }
    }
}
