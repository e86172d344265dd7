//! Tables for documents.

use super::{Axis, Figure, Report, Role, Row, Table};
use crate::outcome::Outcome;
use gpunet_app::cli::spell;
use gpunet_proxy::files::read_text;
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str = "<!-- gpunet-bench: begin -->";
const END: &str = "<!-- gpunet-bench: end -->";

/// Checks that tables can be inserted into the document.
pub fn check_page(path: &Path) -> Outcome<()> {
    super::check_target("--tables", path)?;
    page(path, "").map(drop)
}

/// Inserts the tables into a document, between its two marks.
pub fn insert(report: &Report, path: &Path) -> Outcome<()> {
    let text = page(path, &render(report))?;
    Ok(std::fs::write(path, text).map_err(|error| format!("--tables {}: {error}", path.display()))?)
}

/// Returns the document with these tables.
fn page(path: &Path, tables: &str) -> Outcome<String> {
    let failed = |why: String| format!("--tables {}: {why}", path.display());
    let text = read_text(path, super::MOST).map_err(|error| failed(error.to_string()))?;
    Ok(replace(&text, tables).ok_or_else(|| failed(format!("no lines {BEGIN} and {END}")))?)
}

fn replace(text: &str, tables: &str) -> Option<String> {
    let begin = text.find(BEGIN)? + BEGIN.len();
    let end = begin + text[begin..].find(END)?;
    Some(format!("{}\n{tables}{}", &text[..begin], &text[end..]))
}

fn render(report: &Report) -> String {
    let machine = &report.machine;
    let mut out = String::new();
    let _ = writeln!(out, "\n    {}\n", report.command);
    let _ = writeln!(out, "{}; CUDA driver: {}; {}.\n", machine.hardware(), machine.driver, machine.system);
    for table in &report.tables {
        one(&mut out, table);
    }
    out
}

fn one(out: &mut String, table: &Table) {
    let _ = writeln!(out, "### {}: {}\n", table.what, table.title);
    let setting: Vec<_> = table.setting.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    if !setting.is_empty() {
        let _ = writeln!(out, "{}.\n", setting.join("; "));
    }
    let (placed, others): (Vec<&Row>, Vec<&Row>) =
        table.rows.iter().partition(|row| table.axis != Axis::None && row.x.is_some());
    if !placed.is_empty() {
        pivot(out, table.axis, &placed);
    }
    if !others.is_empty() {
        list(out, &others);
    }
    for note in &table.notes {
        let _ = writeln!(out, "- {note}");
    }
    if !table.notes.is_empty() {
        let _ = writeln!(out);
    }
}

/// Writes a table with a line for each x and a column for each series.
fn pivot(out: &mut String, axis: Axis, rows: &[&Row]) {
    let mut series: Vec<(Role, &str)> = Vec::new();
    let mut places: Vec<u64> = Vec::new();
    for row in rows {
        let (name, x) = (row.series.as_deref().unwrap_or_default(), row.x.unwrap_or_default());
        if !series.iter().any(|(_, known)| *known == name) {
            series.push((row.role, name));
        }
        if !places.contains(&x) {
            places.push(x);
        }
    }
    // gpunet comes first, then its floors and references.
    series.sort_by_key(|(role, _)| *role as u8);
    places.sort_unstable();
    let percentiles = if axis.has_times() { ", p50 / p99" } else { "" };
    let (corner, unit) = match axis {
        Axis::TimeBySize | Axis::RateBySize => ("size", axis.unit()),
        _ => (axis.of_x(), axis.unit()),
    };
    let names: Vec<_> = series.iter().map(|(_, name)| *name).collect();
    let _ = writeln!(out, "| {corner} ({unit}{percentiles}) | {} |", names.join(" | "));
    let _ = writeln!(out, "|---|{}", "---|".repeat(names.len()));
    for place in places {
        let cells: Vec<_> = series
            .iter()
            .map(|(_, name)| {
                let found =
                    rows.iter().find(|row| row.x == Some(place) && row.series.as_deref() == Some(*name));
                found.map_or(String::new(), |row| cell(row))
            })
            .collect();
        let place = match axis {
            Axis::TimeBySize | Axis::RateBySize => spell(place),
            _ => place.to_string(),
        };
        let _ = writeln!(out, "| {place} | {} |", cells.join(" | "));
    }
    let _ = writeln!(out);
}

fn list(out: &mut String, rows: &[&Row]) {
    let _ = writeln!(out, "| what | figure |\n|---|---|");
    for row in rows {
        let unit = match &row.figure {
            Figure::Time(_) => "us",
            Figure::Rate { .. } => "GB/s",
            Figure::Number { unit, .. } => unit,
        };
        let _ = writeln!(out, "| {}: {} | {} {unit} |", row.role.name(), row.name.trim(), cell(row));
    }
    let _ = writeln!(out);
}

fn cell(row: &Row) -> String {
    match &row.figure {
        Figure::Time(times) => format!("{} / {}", short(times.p50_us), short(times.p99_us)),
        other => short(other.typical()),
    }
}

/// Formats a number with three digits.
fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_replace_those_between_the_marks() {
        let text = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let once = replace(&text, "new\n").unwrap();
        assert_eq!(once, format!("before\n{BEGIN}\nnew\n{END}\nafter\n"));
        assert_eq!(replace(&once, "new\n").unwrap(), once);
        assert_eq!(replace("no marks", ""), None);
    }

    #[test]
    fn a_series_is_a_column_and_a_place_a_line() {
        let row = |role, us: u64, series: &str, x| Row::all_times(role, "", &[us * 1000]).at(series, x);
        let rows = [
            row(Role::Floor, 2, "floor", 64),
            row(Role::Gpunet, 3, "gpunet", 64),
            row(Role::Floor, 1, "floor", 8),
        ];
        let mut out = String::new();
        pivot(&mut out, Axis::TimeBySize, &rows.iter().collect::<Vec<_>>());
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "| size (us, p50 / p99) | gpunet | floor |");
        assert_eq!(lines[2], "| 8 B |  | 1.00 / 1.00 |");
        assert_eq!(lines[3], "| 64 B | 3.00 / 3.00 | 2.00 / 2.00 |");
    }
}
