//! Columns that line up.

use std::fmt;

/// The alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Names.
    Left,
    /// Numbers.
    Right,
}

/// A heading and rows, each as long as the heading.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: Vec<(&'static str, Align)>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row. Control characters are replaced, because a process can choose any name, and it
    /// must not move the cursor.
    pub fn push(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        let clean = |cell: String| cell.replace(|c: char| c.is_control(), "?");
        self.rows.push(cells.into_iter().map(clean).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths: Vec<_> = self.columns.iter().map(|(heading, _)| heading.len()).collect();
        for row in &self.rows {
            widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
        }
        let heading: Vec<_> = self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        for row in std::iter::once(&heading).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                let gap = if line.is_empty() { "" } else { "  " };
                line += &match align {
                    Align::Left => format!("{gap}{cell:<width$}"),
                    Align::Right => format!("{gap}{cell:>width$}"),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A number of bytes in human-readable form.
pub fn bytes(count: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A time in human-readable form.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_control_characters_are_gone() {
        let mut table = Table::new(vec![("Name", Align::Left), ("N", Align::Right), ("Last", Align::Left)]);
        table.push(vec!["é".to_owned(), "12".to_owned(), "a\x1b[2Jb".to_owned()]);
        assert_eq!(table.to_string(), "Name   N  Last\né     12  a?[2Jb\n");
    }

    #[test]
    fn quantities_read_well() {
        assert_eq!([0.0, 1023.0, 1536.0, 5e9].map(bytes), ["0 B", "1023 B", "1.5 KiB", "4.7 GiB"]);
        assert_eq!([999, 61_000, 7_260_000, 90_000_000].map(duration), ["0s", "1m01s", "2h01m", "1d01h"]);
    }
}
