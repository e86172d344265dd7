//! Percentiles and rows.

use hdrhistogram::Histogram;

/// Percentiles of some samples in nanoseconds.
pub struct Percentiles(Histogram<u64>);

impl Percentiles {
    /// Counts the samples, without the first tenth (warm-up).
    pub fn of(samples: &[u64]) -> Self {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3)
            .unwrap_or_else(|_| unreachable!("fixed bounds that hdrhistogram accepts"));
        for &sample in &samples[samples.len() / 10..] {
            histogram.saturating_record(sample);
        }
        Self(histogram)
    }

    /// Counts half of each sample: one way of a round trip.
    pub fn of_one_way(round_trips: &[u64]) -> Self {
        Self::of(&round_trips.iter().map(|ns| ns / 2).collect::<Vec<_>>())
    }

    /// A percentile in microseconds.
    pub fn us(&self, percentile: f64) -> f64 {
        self.0.value_at_percentile(percentile) as f64 / 1000.0
    }

    /// Prints one row.
    pub fn row(&self, name: &str) {
        println!(
            "{name:<58} p50 {:>8.2}  p90 {:>8.2}  p99 {:>8.2}  max {:>9.2} us",
            self.us(50.0),
            self.us(90.0),
            self.us(99.0),
            self.0.max() as f64 / 1000.0
        );
    }
}
