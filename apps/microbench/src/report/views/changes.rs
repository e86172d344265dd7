//! What changed since the report before.

use crate::report::compare::{Change, Name, Verdict, is_cost};
use crate::report::{Build, Report, Role, compare, markdown};
use std::fmt::Write;

/// By how much rows spread that were measured once, as a part of them.
const ASSUMED: f64 = 0.1;

/// Returns the rows of gpunet that changed, how many floors and references did, and what only one
/// of the reports has.
pub fn render(before: &Report, now: &Report) -> String {
    let mut out = format!("From {} to {}.", version(before), version(now));
    let machines = [before, now].map(|report| report.machine.hardware());
    if machines[0] != machines[1] {
        let _ = write!(out, " The machines differ: {} before, {} now.", machines[0], machines[1]);
    }
    let result = compare(before, now, ASSUMED);
    let _ = write!(
        out,
        " {} rows changed by more than their spread, {} did not.",
        result.changes.len(),
        result.same
    );
    if result.assumed > 0 {
        let percent = ASSUMED * 100.0;
        let _ = write!(
            out,
            " {} were measured once; they are taken to spread by {percent:.0} %.",
            result.assumed
        );
    }
    out.push('\n');
    let (mut ours, others): (Vec<&Change>, Vec<&Change>) =
        result.changes.iter().partition(|change| change.role == Role::Gpunet);
    ours.sort_by(|a, b| loss(b).total_cmp(&loss(a)));
    if !ours.is_empty() {
        let _ = writeln!(out, "\n| gpunet | before | now | is now |\n|---|---|---|---|");
    }
    for change in ours {
        let Name { table, row } = &change.name;
        let row = row.strip_prefix("gpunet ").unwrap_or(row);
        let [old, new] = [change.old, change.new]
            .map(|range| if range.is_measured { range.to_string() } else { markdown::short(range.typical) });
        let _ = writeln!(out, "| {table}: {row} | {old} | {new} {} | {} |", change.unit, verdict(change));
    }
    out += &beside(&others);
    for (names, which) in result.only.iter().zip(["the report before", "this report"]) {
        let tables = counted(names.iter().map(|name| name.table.as_str()));
        if !tables.is_empty() {
            let _ = writeln!(out, "\nOnly {which} has:\n");
        }
        for (table, rows) in tables {
            let _ = writeln!(out, "- {table} ({})", super::super::counted(rows, "row"));
        }
    }
    out
}

fn version(report: &Report) -> String {
    let build = report.build.as_ref().map_or("an unknown build".to_owned(), Build::name);
    format!("gpunet {}, {build}, {}", report.gpunet, markdown::day(report.started))
}

/// Returns how many times slower it has become; less than one if it is faster.
fn loss(change: &Change) -> f64 {
    match (change.verdict, change.ratio()) {
        (Verdict::Worse, ratio) => ratio.max(1.0 / ratio),
        (Verdict::Better, ratio) => ratio.min(1.0 / ratio),
        (Verdict::Other, _) => 0.0,
    }
}

fn verdict(change: &Change) -> String {
    let [worse, better] = if is_cost(&change.unit) { ["more", "less"] } else { ["slower", "faster"] };
    match change.verdict {
        Verdict::Worse => format!("**{} times {worse}**", markdown::short(loss(change))),
        Verdict::Better => format!("{} times {better}", markdown::short(1.0 / loss(change))),
        Verdict::Other => "another number".to_owned(),
    }
}

/// Returns how many floors and references of each table changed: they show what the machine does,
/// because a change of gpunet does not touch them.
fn beside(others: &[&Change]) -> String {
    let tables = counted(others.iter().map(|change| change.name.table.as_str()));
    if tables.is_empty() {
        return String::new();
    }
    let mut out = "\n| floors and references of | slower | faster |\n|---|---|---|\n".to_owned();
    for (table, _) in tables {
        let of = |verdict| {
            let is_its = |change: &&&Change| change.name.table == table && change.verdict == verdict;
            others.iter().filter(is_its).count()
        };
        let _ = writeln!(out, "| {table} | {} | {} |", of(Verdict::Worse), of(Verdict::Better));
    }
    out
}

/// Returns each name once, in the order in which they come, and how often it is there.
fn counted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(&'a str, u64)> {
    let mut found: Vec<(&str, u64)> = Vec::new();
    for name in names {
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => found.push((name, 1)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;
    use crate::report::Row;

    #[test]
    fn losses_come_first_and_rows_of_one_report_are_counted_by_table() {
        let row = |role, name: &str, value, unit| Row::number(role, name, value, unit);
        let of = |a, b, c, floor, last: &str| {
            report(vec![
                (
                    "latency",
                    "cpu",
                    vec![
                        row(Role::Floor, "flags", floor, "us"),
                        row(Role::Gpunet, "a", a, "us"),
                        row(Role::Gpunet, "b", b, "us"),
                        row(Role::Gpunet, "c", c, "messages a second"),
                        row(Role::Gpunet, "d", floor, "bytes"),
                    ],
                ),
                ("rate", last, vec![row(Role::Gpunet, "x", 1.0, "us"), row(Role::Gpunet, "y", 1.0, "us")]),
            ])
        };
        let (before, mut now) = (of(1.0, 8.0, 9.0, 1.0, "old"), of(2.0, 2.0, 3.0, 4.0, "new"));
        now.tables[0].rows[1].spread = Some([1.5, 2.5]);
        now.machine.cores += 1;
        let text = render(&before, &now);
        assert!(text.contains("The machines differ: ") && text.contains(" 5 rows changed"), "{text}");
        let lines: Vec<_> =
            text.lines().filter(|line| line.starts_with("| latency") || line.starts_with('-')).collect();
        assert_eq!(
            lines,
            [
                "| latency: cpu: d | 1.00 | 4.00 bytes | **4.00 times more** |",
                "| latency: cpu: c | 9.00 | 3.00 messages a second | **3.00 times slower** |",
                "| latency: cpu: a | 1.00 | 2.00 (1.50 to 2.50) us | **2.00 times slower** |",
                "| latency: cpu: b | 8.00 | 2.00 us | 4.00 times faster |",
                "| latency: cpu | 1 | 0 |",
                "- rate: old (2 rows)",
                "- rate: new (2 rows)",
            ]
        );
        let same = render(&now, &now);
        assert!(same.contains(" 0 rows changed") && same.lines().count() == 1, "{same}");
    }
}
