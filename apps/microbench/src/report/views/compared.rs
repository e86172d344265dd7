//! Tables that set figures of gpunet beside what a user would take instead.

use super::{NOT_MEASURED, Of};
use crate::report::{Figure, Report, Row, markdown};
use std::fmt::Write;

pub struct Compared {
    pub name: &'static str,
    pub lines: &'static [Line],
}

pub struct Line {
    pub what: &'static str,
    /// gpunet's figure: the first of these that the report has.
    pub gpunet: &'static [Of],
    /// What a user would take instead, the nearest first.
    pub instead: &'static [(&'static str, Of)],
}

/// By how much figures differ that are called equal, as a part of them.
const EQUAL: f64 = 0.1;

impl Compared {
    pub fn render(&self, report: &Report) -> String {
        let mut out = "| | gpunet | instead | gpunet is |\n|---|---|---|---|\n".to_owned();
        for line in self.lines {
            let gpunet = line.gpunet.iter().find_map(|of| of.find(report));
            let instead: Vec<_> = line.instead.iter().map(|(name, of)| (*name, of.find(report))).collect();
            let beside: Vec<_> =
                instead.iter().map(|(name, row)| format!("{name}: {}", figure(*row))).collect();
            let first = instead.iter().find_map(|(name, row)| row.map(|row| (*name, row)));
            let verdict = match (gpunet, first) {
                (Some(gpunet), Some((name, other))) => {
                    let verdict = verdict(gpunet, other);
                    // Where another one is meant than the nearest, it is named.
                    if line.instead[0].0 == name { verdict } else { format!("{verdict} ({name})") }
                }
                _ => String::new(),
            };
            let _ =
                writeln!(out, "| {} | {} | {} | {verdict} |", line.what, figure(gpunet), beside.join("; "));
        }
        out
    }
}

/// Returns a figure with its unit; of times the median.
fn figure(row: Option<&Row>) -> String {
    let Some(row) = row else { return NOT_MEASURED.to_owned() };
    match &row.figure {
        Figure::Time(times) if times.p50_us >= 1000.0 => {
            format!("{} ms", markdown::short(times.p50_us / 1000.0))
        }
        Figure::Time(times) => format!("{} us", markdown::short(times.p50_us)),
        Figure::Rate { gigabytes_per_second } => format!("{} GB/s", markdown::short(*gigabytes_per_second)),
        Figure::Number { value, unit } => {
            let unit = if unit.ends_with("a second") { "a second" } else { unit };
            format!("{} {unit}", grouped(*value))
        }
    }
}

/// Returns a number with three digits, and commas between thousands.
fn grouped(value: f64) -> String {
    if value < 1000.0 {
        return markdown::short(value);
    }
    let scale = 10f64.powi(value.log10().floor() as i32 - 2);
    let digits = format!("{:.0}", (value / scale).round() * scale);
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Says how much faster gpunet is, or slower: a loss is said as plainly as a gain.
fn verdict(gpunet: &Row, other: &Row) -> String {
    let ratio = gpunet.figure.typical() / other.figure.typical();
    let faster = if matches!(gpunet.figure, Figure::Time(_)) { 1.0 / ratio } else { ratio };
    if !faster.is_finite() || faster <= 0.0 {
        String::new()
    } else if faster > 1.0 + EQUAL {
        format!("{} times faster", grouped(faster))
    } else if faster < 1.0 / (1.0 + EQUAL) {
        format!("**{} times slower**", grouped(1.0 / faster))
    } else {
        "as fast".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;
    use crate::report::Role;

    const fn of(series: &'static str) -> Of {
        Of { what: "latency", title: &[], series, x: 64 }
    }

    const TABLE: Compared = Compared {
        name: "",
        lines: &[
            Line { what: "gain", gpunet: &[of("none"), of("fast")], instead: &[("S", of("slow"))] },
            Line { what: "loss", gpunet: &[of("slow")], instead: &[("none", of("none")), ("F", of("fast"))] },
            Line { what: "same", gpunet: &[of("near")], instead: &[("F", of("fast"))] },
            Line { what: "rate", gpunet: &[of("many")], instead: &[("F", of("few"))] },
            Line { what: "none", gpunet: &[of("none")], instead: &[("F", of("few"))] },
        ],
    };

    #[test]
    fn gains_losses_and_what_is_not_measured_are_said() {
        let row =
            |series: &str, us: f64| Row::all_times(Role::Gpunet, "", &[(us * 1000.0) as u64]).at(series, 64);
        let rate =
            |series: &str, value| Row::number(Role::Gpunet, "", value, "requests a second").at(series, 64);
        let report = report(vec![(
            "latency",
            "",
            vec![
                row("fast", 1.0),
                row("slow", 2500.0),
                row("near", 1.05),
                rate("many", 54_321.0),
                rate("few", 999.0),
            ],
        )]);
        let text = TABLE.render(&report);
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| gain | 1.00 us | S: 2.50 ms | 2,500 times faster |",
                "| loss | 2.50 ms | none: not measured; F: 1.00 us | **2,500 times slower** (F) |",
                "| same | 1.05 us | F: 1.00 us | as fast |",
                "| rate | 54,300 a second | F: 999 a second | 54.4 times faster |",
                "| none | not measured | F: 999 a second |  |",
            ]
        );
        assert_eq!(grouped(1_234_567.0), "1,230,000");
        assert_eq!(grouped(1000.4), "1,000");
    }
}
