//! The report: rstream's table, or one JSON object.

use crate::plan::{Step, count_text, size_text};
use gpunet_app::cli::{print, print_json};
use gpunet_rstream_kernel::record::Test;
use serde::Serialize;
use std::fmt;

/// The results of the program.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// "cpu", or the GPU's name.
    pub device: String,
    /// The transport that was asked for.
    pub transport: &'static str,
    /// Whether received bytes were checked.
    pub verified: bool,
    /// Connections without an error, counted per end.
    pub connections: u64,
    /// Bytes that all connections received, sync bytes included.
    pub bytes_received: u64,
    /// Connections with an error.
    pub errors: u64,
    /// Whether the user pressed Ctrl-C.
    pub interrupted: bool,
    /// The tests that were done, in order.
    pub tests: Vec<Row>,
    /// Stdout is for the JSON object alone.
    #[serde(skip)]
    pub json: bool,
}

/// One test that was done.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which end: "server" or "client".
    pub end: &'static str,
    /// rstream's name for it.
    pub name: String,
    /// Bytes of a transfer.
    pub size: u64,
    /// Transfers in one direction before the direction changes.
    pub count: u64,
    /// Rounds of both directions.
    pub iterations: u64,
    /// Bytes in both directions together.
    pub bytes: u64,
    /// From the sync bytes to the last transfer, by the device's clock.
    pub seconds: f64,
    /// 10^9 bits per second, both directions together.
    pub gigabits_per_second: f64,
    /// Microseconds for each transfer.
    pub microseconds_per_transfer: f64,
}

impl Row {
    /// The figures of a test that took `nanoseconds`.
    pub fn new(end: &'static str, step: &Step, nanoseconds: u64) -> Self {
        let Test { size, count, iterations } = step.test;
        let transfers = iterations.saturating_mul(count).saturating_mul(2);
        let bytes = transfers.saturating_mul(size);
        let time = nanoseconds.max(1) as f64;
        Self {
            end,
            name: step.name.clone(),
            size,
            count,
            iterations,
            bytes,
            seconds: time / 1e9,
            gigabits_per_second: bytes as f64 * 8.0 / time,
            microseconds_per_transfer: time / 1e3 / transfers.max(1) as f64,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<10}{:<8}{:<8}{:<8}{:<8}{:8.2}s{:10.2}{:11.2}",
            self.name,
            size_text(self.size),
            count_text(self.count),
            count_text(self.iterations),
            size_text(self.bytes),
            self.seconds,
            self.gigabits_per_second,
            self.microseconds_per_transfer,
        )
    }
}

/// The table's first line.
pub fn headings() -> String {
    let [name, size, count, iterations, total, time, rate, each] =
        ["name", "bytes", "xfers", "iters", "total", "time", "Gb/sec", "usec/xfer"];
    format!("{name:<10}{size:<8}{count:<8}{iterations:<8}{total:<8}{time:>8} {rate:>10}{each:>13}")
}

impl Report {
    /// Makes an empty report.
    pub const fn new(device: String, transport: &'static str, verified: bool, json: bool) -> Self {
        Self {
            device,
            transport,
            verified,
            connections: 0,
            bytes_received: 0,
            errors: 0,
            interrupted: false,
            tests: Vec::new(),
            json,
        }
    }

    /// Prints a line while the program runs: on stdout, or on stderr with --json.
    pub fn say(&self, line: &str) {
        if self.json {
            eprintln!("{line}");
        } else {
            print(&format_args!("{line}\n"));
        }
    }

    /// Prints the report at the end.
    pub fn print(&self) {
        if self.json {
            print_json(self);
        } else {
            print(&format_args!("{self}\n"));
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {}: {} connections good, {} bytes received{}, {} errors{}",
            self.device,
            self.transport,
            self.connections,
            self.bytes_received,
            if self.verified { " and verified" } else { "" },
            self.errors,
            if self.interrupted { " (interrupted)" } else { "" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rstreams() {
        let test = Test { size: 64, count: 1, iterations: 100_000 };
        let row = Row::new("client", &Step { name: "64_lat".to_owned(), test }, 350_000_000);
        assert_eq!(row.bytes, 12_800_000);
        assert!((row.gigabits_per_second - 0.2926).abs() < 1e-3, "{row:?}");
        assert!((row.microseconds_per_transfer - 1.75).abs() < 1e-9, "{row:?}");
        let line = "64_lat    64      1       100k    12m         0.35s      0.29       1.75";
        assert_eq!(row.to_string(), line);
        assert_eq!(headings(), "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer");
    }

    #[test]
    fn the_object_has_the_totals_and_not_how_it_is_printed() {
        let mut report = Report::new("cpu".to_owned(), "tcp", true, true);
        report.errors = 3;
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["errors"], &json["verified"]), (&3.into(), &true.into()));
        assert!(json.get("json").is_none());
    }
}
