//! Tables whose lines are series, and whose columns are places on their x axis.

use super::{NOT_MEASURED, Of};
use crate::report::{Report, markdown};
use std::fmt::Write;

pub struct Series {
    pub name: &'static str,
    /// What stands above the lines' names.
    pub corner: &'static str,
    /// The places, and what stands above them.
    pub columns: &'static [(u64, &'static str)],
    pub lines: &'static [Line],
}

pub struct Line {
    pub name: &'static str,
    /// The subcommand, words in its table's title, and the series.
    pub of: (&'static str, &'static [&'static str], &'static str),
}

impl Series {
    pub fn render(&self, report: &Report) -> String {
        let heads: Vec<_> = self.columns.iter().map(|(_, head)| *head).collect();
        let mut out =
            format!("| {} | {} |\n|---|{}\n", self.corner, heads.join(" | "), "---|".repeat(heads.len()));
        for line in self.lines {
            let (what, title, series) = line.of;
            let cells = self.columns.iter().map(|(x, _)| Of { what, title, series, x: *x }.find(report));
            let cells: Vec<_> = cells.map(|row| row.map_or(String::new(), markdown::cell)).collect();
            let cells = if cells.iter().all(String::is_empty) {
                format!("{NOT_MEASURED}{}", " |".repeat(cells.len() - 1))
            } else {
                cells.join(" | ")
            };
            let _ = writeln!(out, "| {} | {cells} |", line.name);
        }
        out
    }
}
