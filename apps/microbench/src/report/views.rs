//! What marks of documents can name: parts of a report, by names.
//!
//! | file | holds |
//! |---|---|
//! | `compared` | tables that set figures of gpunet beside what a user would take instead |
//! | `series` | tables whose lines are series, and whose columns are places on their x axis |
//! | `changes` | what changed since the report before |
//! | `printed` | examples of what the program prints |
//! | `list` | the tables of each kind |

mod changes;
mod compared;
mod list;
mod printed;
mod series;

use super::{Ending, Report, Row, Table, markdown};

/// A row of a report: the subcommand or the measurement, words in its table's title, its series and
/// its place.
struct Of {
    what: &'static str,
    title: &'static [&'static str],
    series: &'static str,
    x: u64,
}

impl Of {
    /// Returns the row; if several tables have one, that of the first.
    fn find<'a>(&self, report: &'a Report) -> Option<&'a Row> {
        tables(report, self.what, self.title)
            .flat_map(|table| &table.rows)
            .find(|row| row.series.as_deref() == Some(self.series) && row.x == Some(self.x))
    }
}

/// Returns the tables of a subcommand or a measurement whose titles have all of these words.
fn tables<'a>(
    report: &'a Report,
    what: &'static str,
    title: &'static [&'static str],
) -> impl Iterator<Item = &'a Table> {
    report.tables.iter().filter(move |table| {
        let measurement = table.measurement.as_deref().unwrap_or_default();
        (table.what == what || measurement == what)
            && title.iter().all(|words| table.title.contains(words))
            // The same measurement in another setting has a table of its own.
            && !measurement.ends_with("-without-lines")
    })
}

/// Returns the part of a report that has this name, as Markdown: `all` tables, the `machine`, what
/// is `missing`, the `changes` since the one before, or a table.
pub fn view(report: &Report, before: Option<&Report>, name: &str) -> Result<String, String> {
    match name {
        "all" => return Ok(markdown::render(report)),
        "machine" => return Ok(markdown::machine(report)),
        "missing" => return Ok(missing(report)),
        "changes" => {
            let before = before.ok_or("there is no report before: previous/ beside its file has none")?;
            return Ok(changes::render(before, report));
        }
        _ => {}
    }
    if let Some(table) = list::COMPARED.iter().find(|table| table.name == name) {
        return Ok(table.render(report));
    }
    if let Some(table) = list::SERIES.iter().find(|table| table.name == name) {
        return Ok(table.render(report));
    }
    if let Some(example) = list::PRINTED.iter().find(|example| example.name == name) {
        return Ok(example.render(report));
    }
    let names: Vec<_> = ["all", "machine", "missing", "changes"].into_iter().chain(listed()).collect();
    Err(format!("no view {name}: there are {}", names.join(", ")))
}

/// Returns the names of the views in `list`.
fn listed() -> impl Iterator<Item = &'static str> {
    let tables = list::COMPARED.iter().map(|table| table.name);
    let tables = tables.chain(list::SERIES.iter().map(|table| table.name));
    tables.chain(list::PRINTED.iter().map(|example| example.name))
}

/// What a cell says that the report has no figure for.
const NOT_MEASURED: &str = "not measured";

/// Returns a line about what this report does not have, and why.
fn missing(report: &Report) -> String {
    let lacking = report.measurements.iter().filter(|one| one.outcome != Ending::Done);
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in lacking {
        let why = one.why.as_deref().unwrap_or("unknown");
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(&one.name),
            None => reasons.push((why, vec![&one.name])),
        }
    }
    let without = report.tables.iter().flat_map(|table| &table.notes);
    let mut without: Vec<_> = without.filter_map(|note| note.strip_prefix("without ")).collect();
    without.sort_unstable();
    without.dedup();
    let mut out = String::new();
    for (why, names) in reasons {
        out += &format!("- Not measured: {} ({why}).\n", names.join(", "));
    }
    for one in without {
        out += &format!("- Without {one}.\n");
    }
    if out.is_empty() { "Everything was measured.\n".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Axis, Measurement, Role};

    /// A report with tables of these subcommands and titles.
    pub fn report(tables: Vec<(&str, &str, Vec<Row>)>) -> Report {
        let json = include_str!("../../tests/data/report.json");
        let mut report = crate::report::parse(json).unwrap();
        report.tables = tables
            .into_iter()
            .map(|(what, title, rows)| Table {
                what: what.to_owned(),
                measurement: None,
                title: title.to_owned(),
                setting: Vec::new(),
                axis: Axis::None,
                rows,
                notes: Vec::new(),
            })
            .collect();
        report
    }

    #[test]
    fn what_is_missing_is_said_with_its_reason() {
        let mut report = report(vec![("bandwidth", "tcp", Vec::new())]);
        assert_eq!(view(&report, None, "missing").unwrap(), "Everything was measured.\n");
        for (name, outcome, why) in [
            ("copy", Ending::Done, None),
            ("rate", Ending::Missing, Some("it needs a GPU")),
            ("kv", Ending::Failed, Some("it took longer than 1 s")),
            ("triton", Ending::Missing, Some("it needs a GPU")),
        ] {
            report.measurements.push(Measurement {
                name: name.to_owned(),
                command: String::new(),
                outcome,
                why: why.map(str::to_owned),
                started: 0,
                seconds: 0.0,
                times: 1,
            });
        }
        report.tables[0].notes = vec!["without iperf3: it is not installed".to_owned(), "a fact".to_owned()];
        assert_eq!(
            view(&report, None, "missing").unwrap(),
            "- Not measured: rate, triton (it needs a GPU).\n\
             - Not measured: kv (it took longer than 1 s).\n\
             - Without iperf3: it is not installed.\n"
        );
    }

    /// The names of views are different, and each says so if it has no figure.
    #[test]
    fn every_view_can_be_made_of_an_empty_report() {
        let report = report(Vec::new());
        let names: Vec<_> = listed().collect();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name} is there twice");
            let text = view(&report, None, name).unwrap();
            let lines: Vec<_> = text.lines().collect();
            let is_table = lines.get(1).is_some_and(|line| line.starts_with("|---"));
            assert!(is_table || lines == [NOT_MEASURED], "{name}: {text}");
            let rows = if is_table { &lines[2..] } else { &lines };
            assert!(rows.iter().all(|line| line.contains(NOT_MEASURED)), "{name}: {text}");
        }
        let why = view(&report, None, "changes").unwrap_err();
        assert!(why.starts_with("there is no report before"), "{why}");
        assert!(view(&report, None, "alll").unwrap_err().starts_with("no view alll: there are all, machine"));
    }

    #[test]
    fn a_row_is_found_by_table_series_and_place() {
        let row = |us: u64| Row::all_times(Role::Gpunet, "", &[us * 1000]).at("gpunet, peer", 64);
        let mut report = report(vec![
            ("latency", "X -> cpu, one process, peer", vec![row(1)]),
            ("latency", "X -> NVIDIA X, one process, peer", vec![row(2)]),
            ("latency", "X -> NVIDIA X, one process, peer", vec![row(3)]),
        ]);
        report.tables[1].measurement = Some("latency-without-lines".to_owned());
        let of = |x| Of { what: "latency", title: &["-> NVIDIA", ", peer"], series: "gpunet, peer", x };
        assert_eq!(of(64).find(&report).map(|row| row.figure.typical().round()), Some(3.0));
        assert!(of(65).find(&report).is_none());
    }
}
