//! A limit for events that would be logged again and again.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Lets an event of each kind pass once in a period, and counts those that it holds back.
///
/// For events that repeat as long as their cause lasts: the first one carries all the information.
/// The owner of a limiter decides what it covers, such as one attachment.
#[derive(Debug)]
pub(crate) struct LogLimiter<K> {
    period: Duration,
    kinds: HashMap<K, Kind>,
}

#[derive(Debug)]
struct Kind {
    passed: Instant,
    held_back: u64,
}

impl<K: Eq + Hash> LogLimiter<K> {
    /// Makes a limiter that has let nothing pass yet.
    pub(crate) fn new(period: Duration) -> Self {
        Self { period, kinds: HashMap::new() }
    }

    /// Returns how many events of this kind were suppressed since the last one that passed, or
    /// `None` if this one is suppressed, too.
    pub(crate) fn pass(&mut self, kind: K, now: Instant) -> Option<u64> {
        let known = self.kinds.get_mut(&kind);
        if let Some(known) = known
            && now.saturating_duration_since(known.passed) < self.period
        {
            known.held_back += 1;
            return None;
        }
        let before = self.kinds.insert(kind, Kind { passed: now, held_back: 0 });
        Some(before.map_or(0, |before| before.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_passes_once_a_period_and_says_how_many_did_not() {
        let (mut limiter, start) = (LogLimiter::new(Duration::from_secs(60)), Instant::now());
        let mut pass = |kind, seconds| limiter.pass(kind, start + Duration::from_secs(seconds));
        assert_eq!((pass("rings", 0), pass("rings", 0), pass("rings", 59)), (Some(0), None, None));
        assert_eq!(pass("slots", 59), Some(0), "another kind");
        assert_eq!((pass("rings", 60), pass("rings", 61)), (Some(2), None));
        assert_eq!(pass("rings", 1000), Some(1));
        assert_eq!(pass("rings", 0), None, "a clock that goes back");
    }
}
