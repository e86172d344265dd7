//! What changed between two reports by more than its spread.

use super::{Figure, Report, Role, Row};
use std::fmt::{self, Write};

/// A comparison of two reports.
pub struct Comparison {
    pub changes: Vec<Change>,
    /// Rows that both have and that did not change.
    pub same: usize,
    /// Rows that were measured once in one of the reports, so that their spread was assumed.
    pub assumed: usize,
    /// Names of rows that only the old or the new one has.
    pub only: [Vec<Name>; 2],
}

/// A row that changed.
pub struct Change {
    pub name: Name,
    pub role: Role,
    pub unit: String,
    pub old: Range,
    pub new: Range,
    pub verdict: Verdict,
}

impl Change {
    /// Returns the new figure divided by the old one.
    pub fn ratio(&self) -> f64 {
        self.new.typical / self.old.typical
    }
}

/// The name of a row. GPUs have no names in it, so that a row is found again on another kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The measurement and the title of the table.
    pub table: String,
    pub row: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Better,
    Worse,
    /// Of this unit it is not known which is better.
    Other,
}

/// A figure, and its least and largest values.
#[derive(Clone, Copy)]
pub struct Range {
    pub typical: f64,
    least: f64,
    most: f64,
    /// Whether it was measured several times.
    pub is_measured: bool,
}

impl Range {
    fn of(row: &Row, assumed: f64) -> Self {
        let typical = row.figure.typical();
        let [least, most] = row.spread.unwrap_or([typical * (1.0 - assumed), typical * (1.0 + assumed)]);
        Self { typical, least, most, is_measured: row.spread.is_some() }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = super::markdown::short;
        write!(f, "{} ({} to {})", short(self.typical), short(self.least), short(self.most))
    }
}

/// Compares the rows that both reports have. The spread of a row that was measured once is
/// `assumed`, as a part of it.
pub fn compare(old: &Report, new: &Report, assumed: f64) -> Comparison {
    let both_name = [old, new].iter().all(|report| !report.measurements.is_empty());
    let [old, mut new] = [old, new].map(|report| rows(report, both_name));
    let mut result = Comparison { changes: Vec::new(), same: 0, assumed: 0, only: Default::default() };
    for (name, row) in old {
        let Some(at) = new.iter().position(|(other, _)| *other == name) else {
            result.only[0].push(name);
            continue;
        };
        let (_, other) = new.remove(at);
        result.assumed += usize::from(row.spread.is_none() || other.spread.is_none());
        let [before, after] = [row, other].map(|row| Range::of(row, assumed));
        if before.most < after.least || after.most < before.least {
            let (role, verdict, unit) = (other.role, verdict(row, other), unit(row));
            result.changes.push(Change { name, role, unit, old: before, new: after, verdict });
        } else {
            result.same += 1;
        }
    }
    result.only[1] = new.into_iter().map(|(name, _)| name).collect();
    result
}

/// Returns the rows of a report by their names, which are different.
fn rows(report: &Report, named: bool) -> Vec<(Name, &Row)> {
    let mut gpus: Vec<&str> =
        report.machine.gpus.iter().filter_map(|gpu| Some(gpu.split_once(' ')?.1)).collect();
    // Of "NVIDIA H100" and "NVIDIA H100 NVL" the longer one is replaced first.
    gpus.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
    let mut found: Vec<(Name, &Row)> = Vec::new();
    for table in &report.tables {
        let measurement = table.measurement.as_deref().filter(|_| named).unwrap_or(&table.what);
        let title = gpus.iter().fold(table.title.clone(), |title, gpu| title.replace(gpu, "GPU"));
        let table_name = format!("{measurement}: {title}");
        for row in &table.rows {
            let first = name(row);
            let mut its = Name { table: table_name.clone(), row: first.clone() };
            let mut nth = 1;
            while found.iter().any(|(other, _)| *other == its) {
                nth += 1;
                its.row = format!("{first} ({nth})");
            }
            found.push((its, row));
        }
    }
    found
}

fn name(row: &Row) -> String {
    let mut name = format!("{} {}", row.role.name(), row.name.trim());
    if let Some(series) = row.series.as_deref().filter(|series| !row.name.contains(series)) {
        let _ = write!(name, " [{series}]");
    }
    name
}

fn unit(row: &Row) -> String {
    match &row.figure {
        Figure::Time(_) => "us".to_owned(),
        Figure::Rate { .. } => "GB/s".to_owned(),
        Figure::Number { unit, .. } => unit.clone(),
    }
}

/// Returns whether a number counts what is taken: processor time or memory.
pub fn is_cost(unit: &str) -> bool {
    ["% of a core", "bytes"].contains(&unit)
}

fn verdict(old: &Row, new: &Row) -> Verdict {
    let is_rate = match &old.figure {
        Figure::Time(_) => false,
        Figure::Rate { .. } => true,
        Figure::Number { unit, .. } if unit.ends_with("a second") => true,
        Figure::Number { unit, .. } if ["us", "ms", "s"].contains(&unit.as_str()) => false,
        Figure::Number { unit, .. } if is_cost(unit) => false,
        Figure::Number { .. } => return Verdict::Other,
    };
    let grew = new.figure.typical() > old.figure.typical();
    if grew == is_rate { Verdict::Better } else { Verdict::Worse }
}

impl Comparison {
    /// Returns it as text: a line for each row that changed, the worse ones first.
    pub fn to_text(&self, assumed: f64) -> String {
        let mut out = String::new();
        for (verdict, word) in
            [(Verdict::Worse, "worse"), (Verdict::Better, "better"), (Verdict::Other, "other")]
        {
            for change in self.changes.iter().filter(|change| change.verdict == verdict) {
                let Change { name, unit, old, new, .. } = change;
                let (ratio, Name { table, row }) = (change.ratio(), name);
                let _ = writeln!(out, "{word:<6} {ratio:>5.2}x  {table}: {row}: {old} -> {new} {unit}");
            }
        }
        for (names, which) in self.only.iter().zip(["old", "new"]) {
            for Name { table, row } in names {
                let _ = writeln!(out, "only {which}       {table}: {row}");
            }
        }
        let _ = write!(
            out,
            "{} rows changed by more than their spread, {} did not",
            self.changes.len(),
            self.same
        );
        if self.assumed > 0 {
            let percent = assumed * 100.0;
            let _ = write!(
                out,
                "; {} were measured once in a report and are taken to spread by {percent:.0} % (report --times)",
                self.assumed
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Build, FORMAT, Machine, Table};
    use super::*;

    fn report(rows: Vec<Row>) -> Report {
        let table = Table {
            what: "latency".to_owned(),
            measurement: None,
            title: "two blocks".to_owned(),
            setting: Vec::new(),
            axis: Axis::None,
            rows,
            notes: Vec::new(),
        };
        Report {
            format: FORMAT,
            gpunet: String::new(),
            build: Some(Build::look()),
            command: String::new(),
            started: 0,
            machine: Machine::look(),
            measurements: Vec::new(),
            tables: vec![table],
        }
    }

    fn number(name: &str, value: f64, unit: &'static str, spread: Option<[f64; 2]>) -> Row {
        Row { spread, ..Row::number(Role::Gpunet, name, value, unit) }
    }

    #[test]
    fn a_row_changed_if_its_spreads_do_not_overlap() {
        let of = |old: (f64, Option<[f64; 2]>), new: (f64, Option<[f64; 2]>), unit| {
            let [old, new] = [old, new].map(|(value, spread)| report(vec![number("a", value, unit, spread)]));
            compare(&old, &new, 0.1).changes.first().map(|change| change.verdict)
        };
        let wide = Some([5.0, 14.0]);
        assert_eq!(of((10.0, wide), (15.0, Some([13.0, 16.0])), "us"), None, "they overlap");
        assert_eq!(of((10.0, wide), (16.0, Some([15.0, 17.0])), "us"), Some(Verdict::Worse));
        assert_eq!(of((10.0, wide), (16.0, Some([15.0, 17.0])), "messages a second"), Some(Verdict::Better));
        assert_eq!(of((10.0, wide), (4.0, Some([3.0, 4.5])), "us"), Some(Verdict::Better));
        assert_eq!(of((10.0, None), (12.0, None), "us"), None, "a tenth each is assumed");
        assert_eq!(of((10.0, None), (13.0, None), "rounds right"), Some(Verdict::Other));
        assert_eq!(of((10.0, None), (13.0, None), "% of a core"), Some(Verdict::Worse));
    }

    #[test]
    fn rows_of_one_report_only_and_rows_of_one_name_are_told() {
        let row = |name: &str, value| number(name, value, "us", Some([value, value]));
        let (old, new) = (
            report(vec![row("a", 1.0), row("a", 2.0), row("gone", 1.0)]),
            report(vec![row("a", 1.0), row("a", 3.0), row("come", 1.0)]),
        );
        let result = compare(&old, &new, 0.1);
        assert_eq!((result.changes.len(), result.same, result.assumed), (1, 1, 0));
        let text = result.to_text(0.1);
        for says in ["worse   1.50x", "a (2): 2.00", "only old", "gone", "only new", "come", "1 rows changed"]
        {
            assert!(text.contains(says), "{says}: {text}");
        }
    }

    #[test]
    fn a_row_is_found_again_on_another_kind_of_gpu() {
        let on = |gpu: &str, us| {
            let mut report = report(vec![number("64 B", us, "us", None)]);
            report.machine.gpus = vec![format!("cuda:0 {gpu}"), format!("cuda:1 {gpu} NVL")];
            report.tables[0].title = format!("{gpu} -> {gpu} NVL, peer");
            report
        };
        let result = compare(&on("NVIDIA H200", 1.0), &on("NVIDIA H100", 2.0), 0.1);
        assert!(result.only.iter().all(Vec::is_empty));
        assert_eq!(result.changes[0].name.table, "latency: GPU -> GPU, peer");
    }
}
