//! Examples of what the program prints: some rows of one table, in its words.

use super::{NOT_MEASURED, tables};
use crate::report::{Report, Row, text};
use std::fmt::Write;

pub struct Printed {
    pub name: &'static str,
    /// The subcommand or the measurement, and words in its table's title.
    pub of: (&'static str, &'static [&'static str]),
    /// The rows, by their names. Without one, all.
    pub rows: &'static [&'static str],
}

impl Printed {
    pub fn render(&self, report: &Report) -> String {
        let (what, title) = self.of;
        let Some(table) = tables(report, what, title).next() else { return format!("{NOT_MEASURED}\n") };
        let mut out = format!("```text\n== {}: {}\n", table.what, table.title);
        if self.rows.is_empty() {
            table.rows.iter().for_each(|row| line(&mut out, row));
        }
        for name in self.rows {
            match table.rows.iter().find(|row| row.name == *name) {
                Some(row) => line(&mut out, row),
                None => {
                    let _ = writeln!(out, "{:<9} {name}: {NOT_MEASURED}", "");
                }
            }
        }
        out + "```\n"
    }
}

fn line(out: &mut String, row: &Row) {
    let _ = writeln!(out, "{}", text::row(row));
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;
    use crate::report::Role;

    #[test]
    fn rows_are_as_they_are_printed_and_one_that_lacks_is_said() {
        let row = |name: &str| Row::number(Role::Gpunet, name, 2.0, "a second");
        let mut report = report(vec![("connect", "cpu, tcp", vec![row("a"), row("b")])]);
        let shown =
            |report: &Report, rows| Printed { name: "", of: ("connect", &["tcp"]), rows }.render(report);
        let all = shown(&report, &[]);
        assert!(all.starts_with("```text\n== connect: cpu, tcp\ngpunet    a  "), "{all}");
        assert!(all.ends_with(" 2.00 a second\n```\n") && all.lines().count() == 5, "{all}");
        let some = shown(&report, &["b", "c"]);
        let lines: Vec<_> = some.lines().collect();
        assert!(lines[2].starts_with("gpunet    b ") && lines[3] == "          c: not measured", "{some}");
        report.tables.clear();
        assert_eq!(shown(&report, &["b"]), "not measured\n");
    }
}
