//! The rhythm at which a GPU's kernels speak: when a data thread expects the next message.
//!
//! A GPU's store wakes nobody, so a data thread that sleeps finds it late. A kernel that sends a
//! token every 20 ms is expected 20 ms after its last one: the thread sleeps until shortly before,
//! and polls around that time. How long before depends on how exactly the last ones came, since
//! each look takes some microseconds of a core. One that speaks after silences without a rhythm is
//! expected at any moment of a silence, until that is twice as long as those before; one that has
//! not spoken again since then costs nothing.

use std::time::{Duration, Instant};

/// The gaps between two messages that can be a rhythm. Shorter ones the thread bridges by short
/// sleeps anyway.
const GAPS: std::ops::RangeInclusive<Duration> = Duration::from_millis(2)..=Duration::from_millis(250);
/// Equal gaps that make a rhythm.
const STEADY: u32 = 3;
/// A gap belongs to the rhythm if it differs from the usual one by less than this part of it. The
/// thread polls for so long after the expected time, and for so long before it at most.
const TOLERANCE: u32 = 16;
/// For how long it polls at least before the expected time: four looks.
const LEAST_MARGIN: Duration = Duration::from_micros(400);

/// What the thread has learnt of the times at which something was done after a silence.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    last: Option<Instant>,
    /// The mean of the last gaps, if they are equal; else the last one.
    gap: Duration,
    /// How many gaps in a row were like those before.
    equal: u32,
    /// By how much the last messages differed from what was expected, at most: each counts for a
    /// sixteenth less after the next one, so that one message in ten is not late each time.
    error: Duration,
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
        let difference = gap.abs_diff(self.gap);
        let may_be_usual = GAPS.contains(&gap);
        if may_be_usual && difference <= self.gap / TOLERANCE {
            self.equal += 1;
            self.error = self.found_error(gap, difference).max(self.error / 16 * 15);
            self.gap = (self.gap * 3 + gap) / 4;
        } else {
            (self.equal, self.error, self.gap) = (0, Duration::ZERO, gap);
        }
        self.usual = if may_be_usual { gap.max(self.usual / 2) } else { self.usual / 2 };
        self.last = Some(now);
    }

    /// By how much a message differs from what was expected, as far as is known: one that the first
    /// look has found may have been there for long.
    fn found_error(&self, gap: Duration, difference: Duration) -> Duration {
        let margin = self.margin();
        let at_first_look = self.equal >= STEADY && self.gap - gap.min(self.gap) >= margin / 8 * 7;
        if at_first_look { difference.max(margin) } else { difference }
    }

    /// How long before the expected time the thread begins to poll.
    fn margin(&self) -> Duration {
        (self.error * 2 + LEAST_MARGIN).min(self.gap / TOLERANCE)
    }

    /// What is to be expected, if anything is.
    pub(super) fn expected(&mut self, now: Instant) -> Option<Expected> {
        let last = self.last?;
        if self.equal < STEADY {
            return if now < last + 2 * self.usual { Some(Expected::Perhaps) } else { None };
        }
        let from = last + self.gap - self.margin();
        let until = last + self.gap + self.gap / TOLERANCE;
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
        assert_eq!(rhythm.expected(now), Some(Expected::In(GAP - LEAST_MARGIN)));
        assert_eq!(rhythm.expected(now + GAP - LEAST_MARGIN), Some(Expected::Now));
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
    fn who_comes_less_exactly_is_polled_for_earlier() {
        let us = Duration::from_micros;
        let begins = |gaps: &[Duration]| {
            let (mut rhythm, now) = after(gaps);
            match rhythm.expected(now) {
                Some(Expected::In(time)) => rhythm.gap - time,
                other => panic!("{other:?}"),
            }
        };
        let exact = begins(&[GAP; 8]);
        let late = begins(&[GAP, GAP, GAP, GAP + us(300), GAP - us(200)]);
        assert!(exact == LEAST_MARGIN && late > us(900) && late <= GAP / TOLERANCE, "{exact:?}, {late:?}");
        // It is forgotten.
        let then = |beats| begins(&[&[GAP, GAP, GAP, GAP + us(300)][..], &vec![GAP; beats]].concat());
        assert!(then(10) > us(600) && then(100) < us(450));
        // What the first look finds may have come long before.
        let first_look = begins(&[&[GAP; 5][..], &[GAP - LEAST_MARGIN]].concat());
        assert!(first_look >= 3 * LEAST_MARGIN && first_look <= GAP / TOLERANCE, "{first_look:?}");
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
