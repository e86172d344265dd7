//! Logarithmic axes: their range, and the places of their labels and lines.

use std::ops::Range;

/// More labels than this do not help to read an axis.
const LABELS: usize = 8;

/// The places of the labels of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Powers of two, as sizes are.
    Two,
    /// Powers of ten, with 2 and 5 between them where there is room.
    Ten,
}

/// A logarithmic axis.
#[derive(Clone, Debug)]
pub struct LogAxis {
    pub range: Range<f64>,
    /// The places of labels with lines.
    pub labels: Vec<f64>,
    /// The places of fainter lines.
    pub between: Vec<f64>,
}

impl LogAxis {
    /// Returns an axis that has room for these values and ends a little beyond them.
    pub fn around(values: impl Iterator<Item = f64> + Clone, base: Base) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(0.0, f64::max);
        Self::over(least / 1.4..most * 1.4, base)
    }

    /// Returns an axis that ends at a digit of 1, 2 or 5: with few decades, every value is between
    /// two labels.
    pub fn to_labels(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min) / 1.05;
        let most = values.fold(0.0, f64::max) * 1.05;
        let steps = decimal(&(least / 10.0..most * 10.0), &[1.0, 2.0, 5.0]);
        let start = steps.iter().copied().rfind(|step| *step <= least).unwrap_or(least);
        let end = steps.into_iter().find(|step| *step >= most).unwrap_or(most);
        Self::over(start..end, Base::Ten)
    }

    /// Returns the same axis, extended by one step.
    pub fn taller(&self) -> Self {
        Self::to_labels([self.range.start * 1.06, self.range.end].into_iter())
    }

    fn over(range: Range<f64>, base: Base) -> Self {
        let (labels, between) = match base {
            Base::Two => (binary(&range), Vec::new()),
            Base::Ten => decades(&range),
        };
        Self { range, labels, between }
    }

    /// Returns the place of a value on the axis: 0 at the start, 1 at the end.
    pub fn place(&self, value: f64) -> f64 {
        let Range { start, end } = self.range;
        (value.clamp(start, end) / start).ln() / (end / start).ln()
    }
}

/// Returns powers of two, as many as there is room for.
fn binary(range: &Range<f64>) -> Vec<f64> {
    let exponents = range.start.log2().ceil() as i32..=range.end.log2().floor() as i32;
    let every = |step: i32| -> Vec<f64> {
        exponents.clone().filter(|e| e.rem_euclid(step) == 0).map(|e| 2f64.powi(e)).collect()
    };
    [1, 2, 4, 8].into_iter().map(every).find(|labels| labels.len() < LABELS).unwrap_or_else(|| every(16))
}

/// Returns the finest decimal labels that there is room for, and sparse lines between them.
fn decades(range: &Range<f64>) -> (Vec<f64>, Vec<f64>) {
    let sets: [&[f64]; 3] = [&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], &[1.0, 2.0, 5.0], &[1.0]];
    let at = sets.iter().position(|digits| decimal(range, digits).len() <= LABELS).unwrap_or(2);
    let labels = decimal(range, sets[at]);
    let finer = match at {
        2 if labels.len() <= 5 => decimal(range, sets[1]),
        1 if labels.len() <= 5 => decimal(range, sets[0]),
        _ => Vec::new(),
    };
    let between = finer.into_iter().filter(|line| !labels.contains(line)).collect();
    (labels, between)
}

/// The values of these digits in every decade of a range.
fn decimal(range: &Range<f64>, digits: &[f64]) -> Vec<f64> {
    let exponents = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let values = exponents.flat_map(|e| digits.iter().map(move |digit| digit * 10f64.powi(e)));
    // Powers of ten below 1 are not exact.
    values.filter(|value| (range.start * 0.9999..=range.end * 1.0001).contains(value)).collect()
}

/// A size on an axis: 64, 64K, 1M.
pub fn size(bytes: f64) -> String {
    match bytes {
        b if b >= 1048576.0 => format!("{}M", number(b / 1048576.0)),
        b if b >= 1024.0 => format!("{}K", number(b / 1024.0)),
        b => number(b),
    }
}

/// A number without needless digits.
pub fn number(value: f64) -> String {
    if value >= 10.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(labels: &[f64]) -> Vec<String> {
        labels.iter().copied().map(number).collect()
    }

    #[test]
    fn little_more_than_a_decade_has_labels_at_1_2_and_5() {
        let axis = LogAxis::to_labels([3.9, 42.1].into_iter());
        assert_eq!(axis.range, 2.0..50.0);
        assert_eq!(texts(&axis.labels), ["2", "5", "10", "20", "50"]);
        let narrow = LogAxis::to_labels([3.04, 3.81].into_iter());
        assert_eq!(texts(&narrow.labels), ["2", "3", "4", "5"]);
        let small = LogAxis::to_labels([0.23, 0.9].into_iter());
        assert_eq!(texts(&small.labels).first().map(String::as_str), Some("0.2"));
    }

    #[test]
    fn many_decades_have_a_label_each() {
        let axis = LogAxis::to_labels([0.23, 1313.0].into_iter());
        assert_eq!(texts(&axis.labels), ["1", "10", "100", "1000"]);
        assert!(axis.between.len() <= 10 && !axis.between.contains(&10.0), "{axis:?}");
        for axis in [axis.clone(), axis.taller()] {
            let mut labels = axis.labels.clone();
            labels.dedup();
            assert_eq!(labels, axis.labels);
            assert!(axis.labels.len() <= LABELS);
        }
        assert_eq!(axis.taller().range, 0.2..5000.0);
    }

    #[test]
    fn sizes_are_powers_of_two() {
        let axis = LogAxis::around([1.0, 4194304.0].into_iter(), Base::Two);
        let labels: Vec<String> = axis.labels.iter().copied().map(size).collect();
        assert_eq!(labels, ["1", "16", "256", "4K", "64K", "1M"]);
        let axis = LogAxis::around([1.0, 32.0].into_iter(), Base::Two);
        assert_eq!(axis.labels, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
    }

    #[test]
    fn places_are_between_the_ends() {
        let axis = LogAxis::to_labels([1.1, 90.0].into_iter());
        assert_eq!([axis.place(0.5), axis.place(1.0), axis.place(100.0)], [0.0, 0.0, 1.0]);
        assert!((axis.place(10.0) - 0.5).abs() < 1e-9);
    }
}
