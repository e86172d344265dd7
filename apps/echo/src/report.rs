//! The report at the end: a table, or one JSON object.

use gpunet_app::cli::{print, print_json, spell};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt;

/// The results of a demonstration or a client.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// "cpu", or the GPU's name.
    pub device: String,
    /// Connections of all runs.
    pub connections: u64,
    /// Round trips of all runs.
    pub messages: u64,
    /// Bytes that came back as they were sent.
    pub bytes_verified: u64,
    /// Connections that ended in an error, of the client or of the server.
    pub errors: u64,
    /// Whether the user pressed Ctrl-C.
    pub interrupted: bool,
    /// One entry per transport and size.
    pub runs: Vec<Run>,
}

/// One transport, one size.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The transport that carried the streams.
    pub transport: &'static str,
    /// Bytes per message.
    pub size: u64,
    /// Connections.
    pub connections: u64,
    /// Round trips.
    pub messages: u64,
    /// Bytes that came back as they were sent.
    pub bytes_verified: u64,
    /// Connections that ended in an error.
    pub errors: u64,
    /// Round-trip time, from the send's start until the last byte is back.
    pub rtt_us: Rtt,
    /// Payload in one direction, all connections together, 10^9 bytes per second, from the first
    /// connection's start to the last one's end.
    pub gigabytes_per_second: f64,
}

/// Percentiles in microseconds; none without a round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rtt {
    /// Half of the round trips took at most this.
    pub p50: Option<f64>,
    /// 99 of 100 took at most this.
    pub p99: Option<f64>,
}

impl Rtt {
    /// Of samples in nanoseconds.
    pub fn of(samples: impl IntoIterator<Item = u64>) -> Self {
        // Three digits, from 1 ns to an hour: these bounds are always valid.
        let Ok(mut histogram) = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3) else {
            return Self::default();
        };
        samples.into_iter().for_each(|ns| histogram.saturating_record(ns));
        let at =
            |quantile| (!histogram.is_empty()).then(|| histogram.value_at_quantile(quantile) as f64 / 1000.0);
        Self { p50: at(0.50), p99: at(0.99) }
    }
}

impl Report {
    /// The sums of `runs`, and the server's own errors.
    pub fn new(device: String, runs: Vec<Run>, server_errors: u64, interrupted: bool) -> Self {
        let sum = |what: fn(&Run) -> u64| runs.iter().map(what).sum();
        Self {
            device,
            connections: sum(|run| run.connections),
            messages: sum(|run| run.messages),
            bytes_verified: sum(|run| run.bytes_verified),
            errors: sum(|run| run.errors) + server_errors,
            interrupted,
            runs,
        }
    }

    /// Prints it to stdout, as JSON or as a table.
    pub fn print(&self, json: bool) {
        if json { print_json(self) } else { print(self) }
    }
}

const HEADINGS: [&str; 10] = [
    "device",
    "transport",
    "size",
    "connections",
    "messages",
    "bytes verified",
    "p50 us",
    "p99 us",
    "GB/s",
    "errors",
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 10]> = self.runs.iter().map(|run| cells(&self.device, run)).collect();
        let mut widths = HEADINGS.map(str::len);
        for row in &rows {
            widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.len().max(*width));
        }
        line(f, &widths, &HEADINGS.map(str::to_owned))?;
        rows.iter().try_for_each(|row| line(f, &widths, row))?;
        writeln!(
            f,
            "total: {} connections, {} messages, {} bytes verified, {} errors{}",
            grouped(self.connections),
            grouped(self.messages),
            grouped(self.bytes_verified),
            grouped(self.errors),
            if self.interrupted { " (interrupted)" } else { "" },
        )
    }
}

fn cells(device: &str, run: &Run) -> [String; 10] {
    let us = |value: Option<f64>| value.map_or("-".to_owned(), |us| format!("{us:.1}"));
    [
        device.to_owned(),
        run.transport.to_owned(),
        spell(run.size),
        grouped(run.connections),
        grouped(run.messages),
        grouped(run.bytes_verified),
        us(run.rtt_us.p50),
        us(run.rtt_us.p99),
        format!("{:.3}", run.gigabytes_per_second),
        grouped(run.errors),
    ]
}

/// Names to the left, numbers to the right.
fn line(f: &mut fmt::Formatter<'_>, widths: &[usize; 10], cells: &[String; 10]) -> fmt::Result {
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let gap = if at == 0 { "" } else { "  " };
        if at < 2 { write!(f, "{gap}{cell:<width$}")? } else { write!(f, "{gap}{cell:>width$}")? }
    }
    writeln!(f)
}

/// A number with commas.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        Run {
            transport: "tcp",
            size: 1024,
            connections: 4,
            messages: 6000,
            bytes_verified: 6_144_000,
            errors: 1,
            rtt_us: Rtt::of((1..=1000).map(|us| us * 1000)),
            gigabytes_per_second: 0.25,
        }
    }

    #[test]
    fn percentiles_are_of_all_samples() {
        let rtt = run().rtt_us;
        assert!((rtt.p50.unwrap() - 500.0).abs() < 1.0, "{rtt:?}");
        assert!((rtt.p99.unwrap() - 990.0).abs() < 1.0, "{rtt:?}");
        assert_eq!(Rtt::of([]), Rtt::default());
    }

    #[test]
    fn totals_are_sums_and_include_the_servers_errors() {
        let report = Report::new("cpu".to_owned(), vec![run(), run()], 2, false);
        assert_eq!((report.connections, report.messages, report.errors), (8, 12_000, 4));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["runs"][1]["rtt_us"]["p50"], run().rtt_us.p50.unwrap());
        assert_eq!(json["bytes_verified"], 12_288_000);
    }

    #[test]
    fn columns_line_up() {
        let text = Report::new("NVIDIA H200".to_owned(), vec![run()], 0, true).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0].len(), lines[1].len(), "{text}");
        assert_eq!(
            lines[2],
            "total: 4 connections, 6,000 messages, 6,144,000 bytes verified, 1 errors (interrupted)"
        );
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
