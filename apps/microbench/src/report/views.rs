//! What marks of documents can name: parts of a report, by names.

use super::{Report, Row, markdown};
use std::fmt::Write;

/// A table whose lines are series, and whose columns are places on their x axis.
struct View {
    name: &'static str,
    /// What stands above the lines' names.
    corner: &'static str,
    /// The places, and what stands above them.
    columns: &'static [(u64, &'static str)],
    lines: &'static [Line],
}

struct Line {
    name: &'static str,
    /// The subcommand, and the beginning of its table's title.
    of: (&'static str, &'static str),
    series: &'static str,
}

const BARRIER: (&str, &str) = ("symmetric", "barrier, ");
const MEMBERS: [(u64, &str); 3] = [(2, "2 members"), (3, "3 members"), (4, "4 members")];

/// The tables of documents, beside `all` and `machine`.
const VIEWS: [View; 1] = [View {
    name: "barrier",
    corner: "p50 / p99, us",
    columns: &MEMBERS,
    lines: &[
        Line { name: "barrier", of: BARRIER, series: "barrier" },
        Line { name: "`std::sync::Barrier` of as many threads", of: BARRIER, series: "std::sync::Barrier" },
        Line { name: "a flag, one way, both ends spin", of: BARRIER, series: "a flag, one way" },
    ],
}];

/// Returns the part of a report that has this name, as Markdown: `all` tables, the `machine`, or a
/// table.
pub fn view(report: &Report, name: &str) -> Result<String, String> {
    match name {
        "all" => return Ok(markdown::render(report)),
        "machine" => return Ok(markdown::machine(report)),
        _ => {}
    }
    let view = VIEWS.iter().find(|view| view.name == name).ok_or_else(|| {
        let names: Vec<_> = VIEWS.iter().map(|view| view.name).collect();
        format!("no view {name}: there are all, machine, {}", names.join(", "))
    })?;
    let heads: Vec<_> = view.columns.iter().map(|(_, head)| *head).collect();
    let mut out =
        format!("| {} | {} |\n|---|{}\n", view.corner, heads.join(" | "), "---|".repeat(heads.len()));
    for line in view.lines {
        let cells: Vec<_> = view.columns.iter().map(|(x, _)| find(report, line, *x)).collect();
        if cells.iter().all(Option::is_none) {
            return Err(format!("the report has no {:?} of {}: {}", line.series, line.of.0, line.of.1));
        }
        let cells: Vec<_> = cells.iter().map(|row| row.map_or(String::new(), markdown::cell)).collect();
        let _ = writeln!(out, "| {} | {} |", line.name, cells.join(" | "));
    }
    Ok(out)
}

fn find<'a>(report: &'a Report, line: &Line, x: u64) -> Option<&'a Row> {
    let (what, title) = line.of;
    let tables = report.tables.iter().filter(|table| table.what == what && table.title.starts_with(title));
    tables
        .flat_map(|table| &table.rows)
        .find(|row| row.series.as_deref() == Some(line.series) && row.x == Some(x))
}
