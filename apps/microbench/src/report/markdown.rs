//! Tables for documents.

use super::{Axis, Ending, Figure, Report, Role, Row, Table};
use gpunet_app::cli::spell;
use std::fmt::Write;

/// Returns all tables of a report, the machine above them, and what was not measured below.
pub fn render(report: &Report) -> String {
    let mut out = format!("\n`{}`\n\n{}\n", report.command, machine(report));
    for table in &report.tables {
        one(&mut out, table);
    }
    let lacking: Vec<_> = report.measurements.iter().filter(|one| one.outcome != Ending::Done).collect();
    if !lacking.is_empty() {
        let _ = writeln!(out, "### Not measured\n\n| what | why |\n|---|---|");
        for one in lacking {
            let began = if one.outcome == Ending::Failed { "it failed: " } else { "" };
            let why = one.why.as_deref().unwrap_or("unknown").replace('|', "/");
            let _ = writeln!(out, "| {} | {began}{why} |", one.name);
        }
        let _ = writeln!(out);
    }
    out
}

/// Returns a paragraph about the machine and the program.
pub fn machine(report: &Report) -> String {
    let machine = &report.machine;
    let build = report.build.as_ref().map_or(String::new(), |build| format!(", {}", build.name()));
    let build = format!(" gpunet {}{build}, {}.", report.gpunet, day(report.started));
    // Without a GPU its driver is none, for a reason that no reader needs.
    let driver = if machine.gpus.is_empty() { "" } else { &format!("CUDA driver: {}; ", machine.driver) };
    format!("{}; {driver}{}.{build}\n", machine.hardware(), machine.system)
}

/// Returns the day of a time in seconds since 1970, as 2026-11-27.
pub fn day(seconds: u64) -> String {
    // Days are counted from March 1 of the year 0, so that a leap day is the last one of its year.
    // An era has 400 years.
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
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

/// Returns a row's figure for a cell: of times the median and the 99th percentile.
pub fn cell(row: &Row) -> String {
    match &row.figure {
        Figure::Time(times) => format!("{} / {}", short(times.p50_us), short(times.p99_us)),
        other => short(other.typical()),
    }
}

/// Formats a number with two or three digits.
pub fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 0.0995 || v <= 0.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_795_302_750, "2026-11-21"),
            (4_107_542_399, "2100-02-28"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(day(seconds), expected);
        }
    }

    #[test]
    fn numbers_have_two_or_three_digits() {
        for (value, text) in
            [(1234.5, "1234"), (56.78, "56.8"), (0.456, "0.46"), (0.0456, "0.046"), (0.0, "0.00")]
        {
            assert_eq!(short(value), text);
        }
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
