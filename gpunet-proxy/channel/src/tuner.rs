//! How many connections a large transfer goes over: the first ones are the probe.

use std::time::Duration;

/// A transfer of fewer bytes says little of the connections.
pub(crate) const PROBED: u64 = 16 << 20;
/// More connections must be so much faster: each takes a thread at both ends.
const WORTH: f64 = 1.05;

/// Tries all connections, half of them, a quarter, and so on, each by one transfer, and stays with
/// the best: at most eight transfers, as the first one finds connections and memory cold.
pub(crate) struct Tuner {
    /// Numbers of connections, the largest first, and the bytes per second of those that were
    /// tried.
    tried: Vec<(u16, Option<f64>)>,
    is_warm: bool,
}

impl Tuner {
    /// Chooses among `most` connections, or takes all.
    pub(crate) fn new(most: usize, probes: bool) -> Self {
        let most = u16::try_from(most).unwrap_or(u16::MAX).max(1);
        let counts = std::iter::successors(Some(most), |&count| (count > 1).then_some(count / 2));
        let counts = counts.take(if probes { usize::MAX } else { 1 });
        Self { tried: counts.map(|count| (count, None)).collect(), is_warm: false }
    }

    /// Returns how many connections a transfer of so many bytes goes over.
    pub(crate) fn count(&self, bytes: u64) -> u16 {
        if let Some(&(untried, _)) = self.tried.iter().find(|(_, rate)| rate.is_none()) {
            return if bytes >= PROBED { untried } else { self.tried[0].0 };
        }
        let mut best = (0, 0.0);
        // From few to many.
        for &(count, rate) in self.tried.iter().rev() {
            let rate = rate.unwrap_or(0.0);
            if rate > best.1 * WORTH {
                best = (count, rate);
            }
        }
        best.0.max(1)
    }

    /// Learns how long a transfer took.
    pub(crate) fn learn(&mut self, count: u16, bytes: u64, took: Duration) {
        if bytes < PROBED || !std::mem::replace(&mut self.is_warm, true) {
            return;
        }
        let untried = self.tried.iter_mut().find(|(_, rate)| rate.is_none());
        if let Some((_, rate)) = untried.filter(|(tried, _)| *tried == count) {
            *rate = Some(bytes as f64 / took.as_secs_f64().max(1e-9));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn probed(most: usize, rate: impl Fn(u16) -> f64) -> Tuner {
        let mut tuner = Tuner::new(most, true);
        tuner.learn(tuner.count(PROBED), PROBED, Duration::from_secs(9));
        for _ in 0..7 {
            let count = tuner.count(PROBED);
            tuner.learn(count, PROBED, Duration::from_secs_f64(PROBED as f64 / rate(count)));
        }
        tuner
    }

    #[test]
    fn each_number_is_tried_once_and_the_best_stays() {
        assert_eq!(probed(8, |count| 1e9 * f64::from(count)).count(PROBED), 8);
        assert_eq!(probed(8, |count| 1e9 * f64::from(count.min(4))).count(PROBED), 4, "8 gain nothing");
        assert_eq!(probed(8, |count| 1e9 / f64::from(count)).count(PROBED), 1);
        assert_eq!(probed(6, |count| if count == 3 { 2e9 } else { 1e9 }).count(1), 3);
    }

    #[test]
    fn a_fixed_number_stays() {
        let mut tuner = Tuner::new(8, false);
        assert_eq!(tuner.count(PROBED), 8);
        tuner.learn(8, PROBED, Duration::from_secs(9));
        assert_eq!((tuner.count(PROBED), tuner.count(1)), (8, 8));
    }

    #[test]
    fn small_transfers_are_no_probe() {
        let mut tuner = Tuner::new(4, true);
        assert_eq!(tuner.count(PROBED - 1), 4);
        tuner.learn(4, PROBED - 1, Duration::from_nanos(1));
        tuner.learn(4, PROBED, Duration::from_nanos(1));
        assert_eq!(tuner.count(PROBED), 4, "the first one only warms");
        tuner.learn(4, PROBED, Duration::from_millis(1));
        assert_eq!((tuner.count(PROBED), tuner.count(PROBED - 1)), (2, 4));
    }

    proptest! {
        /// Whatever the rates, the probe ends, and the number is one that there is.
        #[test]
        fn the_probe_ends(most in 1usize..=64, rates in proptest::collection::vec(1u64..1 << 40, 7)) {
            let mut tuner = Tuner::new(most, true);
            tuner.learn(tuner.count(PROBED), PROBED, Duration::from_secs(1));
            for rate in rates {
                let count = tuner.count(PROBED);
                prop_assert!((1..=most).contains(&usize::from(count)));
                tuner.learn(count, PROBED, Duration::from_nanos(rate));
            }
            let count = tuner.count(PROBED);
            tuner.learn(count, PROBED, Duration::from_nanos(1));
            prop_assert_eq!(tuner.count(PROBED), count);
        }
    }
}
