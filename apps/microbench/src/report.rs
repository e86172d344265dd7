//! The results of a run: tables of figures, which are printed during the run and kept as JSON.
//!
//! | file | holds |
//! |---|---|
//! | `recorder` | records the measurements, prints them and keeps them |
//! | `keep` | the files of a report, which are checked in advance |
//! | `text`, `markdown`, `lines` | tables for people, for documents, for files |
//! | `documents`, `views` | the marks of documents, and the tables that stand between them |
//! | `rounds`, `compare` | one table of several runs; what changed between two reports |
//! | `output`, `progress` | stdout and stderr; the progress of a table |
//! | `machine` | the machine on which the figures were measured, and the program |

mod compare;
mod documents;
mod keep;
mod lines;
mod machine;
mod markdown;
mod output;
mod progress;
mod recorder;
mod rounds;
mod text;
mod views;

use crate::outcome::Outcome;
pub use compare::compare;
pub use documents::{Documents, Named, check_page, insert};
use gpunet_proxy::files::read_text;
use hdrhistogram::Histogram;
pub use keep::{Json, check_target};
pub use machine::{Build, Machine};
pub use output::print_error;
pub use recorder::Recorder;
pub use rounds::merge;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// The version of the JSON. It grows when readers of an earlier one would misread a later one; a
/// field that they may ignore leaves it as it is.
pub const FORMAT: u32 = 1;

const fn first_format() -> u32 {
    1
}

/// All results of one run of the program.
#[derive(Debug, Deserialize, Serialize)]
pub struct Report {
    /// The version of the JSON. Reports before it was added have the first one.
    #[serde(default = "first_format")]
    pub format: u32,
    /// The program's version.
    pub gpunet: String,
    /// The program, more exactly. Reports before it was added do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// The command line.
    pub command: String,
    /// When it started, seconds since 1970.
    pub started: u64,
    pub machine: Machine,
    /// What `report` ran, and what it could not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measurements: Vec<Measurement>,
    pub tables: Vec<Table>,
}

/// What became of one measurement of `report`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Measurement {
    pub name: String,
    /// The command line that makes its tables alone.
    pub command: String,
    pub outcome: Ending,
    /// Why it is not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When it started, seconds since 1970.
    pub started: u64,
    pub seconds: f64,
    /// How often it ran. Its rows are the medians.
    pub times: u32,
}

/// How a measurement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All of its rows are there.
    Done,
    /// It began, and did not succeed. The rows that it had until then are there.
    Failed,
    /// It did not begin.
    Missing,
}

/// Rows of one kind.
#[derive(Debug, Deserialize, Serialize)]
pub struct Table {
    /// The subcommand.
    pub what: String,
    /// The measurement of `report` that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<String>,
    pub title: String,
    /// The settings of the measurement: ends, transport, placement, block shape and so on.
    pub setting: Vec<(String, String)>,
    /// The axes of its chart.
    pub axis: Axis,
    pub rows: Vec<Row>,
    /// Measurements that did not run, and why; facts to know when reading a figure.
    pub notes: Vec<String>,
}

/// The axes of a table's chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Time over bytes of a message.
    TimeBySize,
    /// Rate over bytes of a message.
    RateBySize,
    /// Rate over the number of blocks or connections.
    RateByCount,
    /// Time over the number of sockets.
    TimeByCount,
    /// Rate over the number of blocks.
    RateByBlocks,
    /// Time over the number of members of a team.
    TimeByMembers,
    /// Time over the number of connections of a server.
    TimeByConnections,
    /// Rate over the number of connections of a server.
    RateByConnections,
    /// Messages a second over the number of pairs of blocks.
    MessagesByCount,
    /// Connections a second over the number of clients that connect at the same time.
    ConnectsByClients,
    /// Time over the milliseconds between two messages.
    TimeByInterval,
    /// Rate over bytes by which the ends' alignments differ; drawn as a table only.
    RateByOffset,
    /// No chart, and no x axis.
    None,
}

impl Axis {
    /// Returns what the x axis counts.
    pub const fn of_x(self) -> &'static str {
        match self {
            Self::TimeBySize | Self::RateBySize => "bytes of a message",
            Self::RateByCount | Self::MessagesByCount => "pairs",
            Self::TimeByCount => "sockets",
            Self::RateByBlocks => "blocks",
            Self::TimeByMembers => "members",
            Self::TimeByConnections | Self::RateByConnections => "connections",
            Self::ConnectsByClients => "clients at the same time",
            Self::TimeByInterval => "ms between two messages",
            Self::RateByOffset => "bytes off",
            Self::None => "",
        }
    }

    /// Returns the unit of the y axis; for times without the percentiles.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::TimeBySize
            | Self::TimeByCount
            | Self::TimeByMembers
            | Self::TimeByConnections
            | Self::TimeByInterval => "us",
            Self::RateBySize
            | Self::RateByCount
            | Self::RateByBlocks
            | Self::RateByConnections
            | Self::RateByOffset => "GB/s",
            Self::ConnectsByClients => "connections a second",
            Self::MessagesByCount => "messages a second",
            Self::None => "",
        }
    }

    /// Returns whether its figures are times.
    pub const fn has_times(self) -> bool {
        matches!(
            self,
            Self::TimeBySize
                | Self::TimeByCount
                | Self::TimeByMembers
                | Self::TimeByConnections
                | Self::TimeByInterval
        )
    }
}

/// The role of a row in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sockets of gpunet.
    Gpunet,
    /// The hardware without any protocol.
    Floor,
    /// Another program or library for the same purpose. JSON calls it `peer`.
    #[serde(rename = "peer")]
    Reference,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Gpunet => "gpunet",
            Self::Floor => "floor",
            Self::Reference => "reference",
        }
    }
}

/// One line of a table.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Row {
    pub role: Role,
    pub name: String,
    /// Its curve in the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
    /// Its place on the chart's x axis. Rows of one table with the same place are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<u64>,
    #[serde(flatten)]
    pub figure: Figure,
    /// This row's figure divided by that of the floor, and by those of the references, with the
    /// same place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<Ratio>,
    /// The least and the largest of the numbers that are compared, if it was measured several
    /// times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 2]>,
}

/// The comparison of a figure with another one.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Ratio {
    pub role: Role,
    pub to: String,
    pub ratio: f64,
}

/// The result of a row.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Figure {
    Time(Percentiles),
    Rate { gigabytes_per_second: f64 },
    Number { value: f64, unit: String },
}

impl Figure {
    /// Returns the number that is compared.
    pub fn typical(&self) -> f64 {
        match self {
            Self::Time(times) => times.p50_us,
            Self::Rate { gigabytes_per_second } => *gigabytes_per_second,
            Self::Number { value, .. } => *value,
        }
    }
}

/// Percentiles, in microseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Percentiles {
    /// The number of samples.
    pub samples: u64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl Percentiles {
    /// Computes them from samples in nanoseconds.
    fn of(samples: &[u64]) -> Self {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)
            .unwrap_or_else(|_| unreachable!("fixed bounds that hdrhistogram accepts"));
        samples.iter().for_each(|&sample| histogram.saturating_record(sample));
        let us = |percentile| histogram.value_at_percentile(percentile) as f64 / 1000.0;
        Self {
            samples: histogram.len(),
            p50_us: us(50.0),
            p90_us: us(90.0),
            p99_us: us(99.0),
            max_us: histogram.max() as f64 / 1000.0,
        }
    }
}

impl Percentiles {
    /// Returns the times of two steps, one after the other. They are added percentile by
    /// percentile, which is exact if both are steady.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            samples: self.samples.min(other.samples),
            p50_us: self.p50_us + other.p50_us,
            p90_us: self.p90_us + other.p90_us,
            p99_us: self.p99_us + other.p99_us,
            max_us: self.max_us + other.max_us,
        }
    }
}

impl Row {
    fn new(role: Role, name: String, figure: Figure) -> Self {
        Self { role, name, series: None, x: None, figure, ratios: Vec::new(), spread: None }
    }

    /// Makes a row of times in nanoseconds. The first tenth is warm-up and does not count.
    pub fn times(role: Role, name: impl Into<String>, samples: &[u64]) -> Self {
        Self::all_times(role, name, &samples[samples.len() / 10..])
    }

    /// Makes a row of times in nanoseconds, without warm-up.
    pub fn all_times(role: Role, name: impl Into<String>, samples: &[u64]) -> Self {
        Self::new(role, name.into(), Figure::Time(Percentiles::of(samples)))
    }

    /// Makes a row of one-way times: half of each round trip.
    pub fn one_way(role: Role, name: impl Into<String>, round_trips: &[u64]) -> Self {
        Self::times(role, name, &round_trips.iter().map(|ns| ns / 2).collect::<Vec<_>>())
    }

    /// Makes a row of the rate of bytes in a time.
    pub fn rate(role: Role, name: impl Into<String>, bytes: u64, time: Duration) -> Self {
        let gigabytes_per_second = bytes as f64 / time.as_secs_f64().max(1e-9) / 1e9;
        Self::new(role, name.into(), Figure::Rate { gigabytes_per_second })
    }

    /// Makes a row of any other number.
    pub fn number(role: Role, name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self::new(role, name.into(), Figure::Number { value, unit: unit.to_owned() })
    }

    /// Makes a row of percentiles that another program has computed.
    pub fn percentiles(role: Role, name: impl Into<String>, percentiles: Percentiles) -> Self {
        Self::new(role, name.into(), Figure::Time(percentiles))
    }

    /// Returns its times, if it has any.
    pub const fn as_times(&self) -> Option<&Percentiles> {
        match &self.figure {
            Figure::Time(times) => Some(times),
            _ => None,
        }
    }

    /// Sets its place in the chart, which decides the rows that it is compared with.
    pub fn at(mut self, series: impl Into<String>, x: u64) -> Self {
        (self.series, self.x) = (Some(series.into()), Some(x));
        self
    }

    /// Returns whether its time is shorter or its rate higher.
    pub fn is_better_than(&self, other: &Self) -> bool {
        match self.figure {
            Figure::Rate { .. } => self.figure.typical() > other.figure.typical(),
            _ => self.figure.typical() < other.figure.typical(),
        }
    }

    /// Compares with the rows before it that have the same place and the same unit.
    fn compare(&mut self, rows: &[Row]) {
        if self.role != Role::Gpunet || self.x.is_none() {
            return;
        }
        let like = |row: &&Row| {
            row.role != Role::Gpunet
                && row.x == self.x
                && std::mem::discriminant(&row.figure) == std::mem::discriminant(&self.figure)
        };
        self.ratios = rows
            .iter()
            .filter(like)
            .map(|row| Ratio {
                role: row.role,
                to: row.name.clone(),
                ratio: self.figure.typical() / row.figure.typical(),
            })
            .collect();
    }
}

/// The longest file that is read. Reports have a few hundred kilobytes.
const MOST: u64 = 64 << 20;

/// Reads a report that `--json` or `report` wrote.
pub fn read(path: &Path) -> Outcome<Report> {
    let text = read_text(path, MOST).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(parse(&text).map_err(|why| format!("{}: {why}", path.display()))?)
}

fn parse(text: &str) -> Result<Report, String> {
    #[derive(Deserialize)]
    struct Head {
        format: Option<u32>,
        gpunet: Option<String>,
    }
    let unread = |error: serde_json::Error| {
        if error.is_eof() {
            format!("it is cut off ({error}): measure again, or fetch the whole file")
        } else {
            format!("it is no report of gpunet-bench ({error})")
        }
    };
    let head: Head = serde_json::from_str(text).map_err(unread)?;
    if let Some(format) = head.format.filter(|format| *format != FORMAT) {
        let version = head.gpunet.map_or(String::new(), |version| format!(", written by version {version}"));
        return Err(format!(
            "it has format {format}{version}, and this gpunet-bench reads format {FORMAT}: use the \
             gpunet-bench that wrote it, or measure again"
        ));
    }
    serde_json::from_str(text).map_err(unread)
}

/// Returns a count with its noun: "1 thread", "2 threads".
pub fn counted(count: impl Into<u64>, thing: &str) -> String {
    match count.into() {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_compared_with_the_floor_and_the_references_at_its_place() {
        let floor = Row::times(Role::Floor, "floor", &[1000; 20]).at("floor", 64);
        let other = Row::times(Role::Floor, "floor", &[9000; 20]).at("floor", 128);
        let rate = Row::rate(Role::Reference, "rate", 1, Duration::from_secs(1)).at("rate", 64);
        let mut row = Row::times(Role::Gpunet, "gpunet", &[3000; 20]).at("gpunet", 64);
        row.compare(&[floor, other, rate]);
        assert_eq!(row.ratios.len(), 1);
        assert!((row.ratios[0].ratio - 3.0).abs() < 0.01, "{:?}", row.ratios);
    }

    #[test]
    fn what_is_no_report_of_this_format_is_said_to_be_so() {
        let other = parse(r#"{"format": 7, "gpunet": "9.1.0", "pages": []}"#).unwrap_err();
        assert!(
            ["format 7, written by version 9.1.0", "reads format 1"].iter().all(|text| other.contains(text)),
            "{other}"
        );
        let published = include_str!("../tests/data/report.json");
        assert!(parse(published).is_ok());
        let cut = parse(&published[..published.len() / 2]).unwrap_err();
        assert!(cut.contains("it is cut off"), "{cut}");
        for text in ["[]", "{}", "hello", r#"{"format": 1, "gpunet": "0.1.0"}"#] {
            let strange = parse(text).unwrap_err();
            assert!(strange.contains("no report of gpunet-bench"), "{text}: {strange}");
        }
    }

    #[test]
    fn the_first_tenth_warms_up() {
        let mut samples = vec![1_000_000; 2];
        samples.extend([1000; 18]);
        let Figure::Time(times) = Row::times(Role::Floor, "", &samples).figure else { panic!() };
        assert_eq!(times.samples, 18);
        assert!(times.max_us < 1.01, "{times:?}");
    }
}
