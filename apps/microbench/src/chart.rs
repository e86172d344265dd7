//! Charts of a report: two in a row, with logarithmic axes and dashed floors.

mod axis;
mod panel;

use crate::outcome::Outcome;
use crate::report::{Axis, Figure, Report, Role, Row, Table};
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Charts in a row.
const COLUMNS: usize = 2;
/// The letters and pixels of a line below the charts.
const FOOT: usize = 150;
const FOOT_ROW: u32 = 16;

/// A curve of a chart.
struct Curve<'a> {
    name: &'a str,
    role: Role,
    points: Vec<Point>,
}

/// A figure and its position.
struct Point {
    x: f64,
    typical: f64,
    /// The 99th percentile of a time, where it is drawn; otherwise the figure itself.
    tail: f64,
}

impl Curve<'_> {
    fn has_tail(&self) -> bool {
        self.points.iter().any(|point| point.tail > point.typical)
    }
}

/// Draws every table that has a chart, into one SVG.
pub fn draw(report: &Report, path: &Path) -> Outcome<()> {
    let charts: Vec<_> = report
        .tables
        .iter()
        .filter(|table| !matches!(table.axis, Axis::None | Axis::RateByOffset))
        .map(|table| (table, lines(table)))
        .filter(|(_, lines)| lines.iter().any(|line| line.points.len() > 1))
        .collect();
    if charts.is_empty() {
        eprintln!("gpunet-bench: no measurement has a chart: {} is not written", path.display());
        return Ok(());
    }
    // The titles of the charts name the measurements. The machine is named once, below.
    let machine = &report.machine;
    let foot = wrap(&format!("{}; {}", machine.hardware(), report.command), FOOT);
    let (columns, rows) = (COLUMNS, charts.len().div_ceil(COLUMNS));
    let (width, height) = (panel::SIZE.0 * columns as u32, panel::SIZE.1 * rows as u32);
    let size = (width, height + FOOT_ROW * foot.len() as u32 + 8);
    let root = SVGBackend::new(path, size).into_drawing_area();
    let failed = |error: &dyn std::fmt::Display| format!("--plot {}: {error}", path.display());
    root.fill(&WHITE).map_err(|error| failed(&error))?;
    let (body, below) = root.split_vertically(height);
    for (area, (table, lines)) in body.split_evenly((rows, columns)).iter().zip(&charts) {
        panel::draw(area, table, lines).map_err(|error| failed(&error))?;
    }
    let style = ("sans-serif", 12).into_font().color(&RGBColor(70, 70, 70));
    for (number, line) in foot.iter().enumerate() {
        let at = (16, FOOT_ROW as i32 * number as i32 + 2);
        below.draw_text(line, &style, at).map_err(|error| failed(&error))?;
    }
    root.present().map_err(|error| failed(&error))?;
    Ok(())
}

/// The curves of a table: rows of one series, by their x; gpunet's first, floors last.
fn lines(table: &Table) -> Vec<Curve<'_>> {
    let mut lines: Vec<Curve<'_>> = Vec::new();
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for Row { series, x, role, figure, .. } in &table.rows {
        let (Some(name), Some(x)) = (series.as_deref(), *x) else { continue };
        let at = *by_name.entry(name).or_insert_with(|| {
            lines.push(Curve { name, role: *role, points: Vec::new() });
            lines.len() - 1
        });
        let typical = figure.typical();
        let tail = if let Figure::Time(times) = figure { times.p99_us } else { typical };
        // A logarithmic axis has no room for 0.
        if x > 0 && typical > 0.0 {
            lines[at].points.push(Point { x: x as f64, typical, tail });
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    lines.retain(|line| !line.points.is_empty());
    lines.sort_by_key(|line| {
        [Role::Gpunet, Role::Reference, Role::Floor].iter().position(|role| *role == line.role)
    });
    // With more than one shaded tail the chart would be unreadable.
    let shaded = usize::from(lines.first().is_some_and(|line| line.role == Role::Gpunet));
    for line in lines.iter_mut().skip(shaded) {
        line.points.iter_mut().for_each(|point| point.tail = point.typical);
    }
    lines
}

/// Breaks a text between words into lines of about `letters` letters.
fn wrap(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_series_are_a_line_in_the_order_of_their_places() {
        let row = |role, us: u64, series: &str, x| Row::all_times(role, "", &[us * 1000]).at(series, x);
        let table = Table {
            what: "latency".to_owned(),
            measurement: None,
            title: String::new(),
            setting: Vec::new(),
            axis: Axis::TimeBySize,
            rows: vec![
                row(Role::Floor, 1, "floor", 64),
                row(Role::Gpunet, 5, "gpunet", 1024),
                row(Role::Gpunet, 3, "gpunet", 64),
                Row::all_times(Role::Gpunet, "without a place", &[1]),
            ],
            notes: Vec::new(),
        };
        let lines = lines(&table);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[1].name, lines[1].role), ("floor", Role::Floor), "the last in the legend");
        let xs: Vec<f64> = lines[0].points.iter().map(|point| point.x).collect();
        assert_eq!(xs, [64.0, 1024.0]);
    }

    #[test]
    fn only_the_first_line_of_gpunet_has_a_tail() {
        let row = |role, series: &str| Row::all_times(role, "", &[1000, 1000, 9000]).at(series, 64);
        let table = |rows| Table {
            what: "latency".to_owned(),
            measurement: None,
            title: String::new(),
            setting: Vec::new(),
            axis: Axis::TimeBySize,
            rows,
            notes: Vec::new(),
        };
        let both =
            table(vec![row(Role::Reference, "tcp"), row(Role::Gpunet, "block"), row(Role::Gpunet, "warp")]);
        let tails: Vec<_> = lines(&both).iter().map(|line| (line.name.to_owned(), line.has_tail())).collect();
        assert_eq!(
            tails,
            [("block".to_owned(), true), ("warp".to_owned(), false), ("tcp".to_owned(), false)]
        );
        assert!(!lines(&table(vec![row(Role::Reference, "tcp")]))[0].has_tail());
    }

    #[test]
    fn long_texts_are_broken_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable", 3), ["unbreakable"]);
        assert_eq!(wrap("short", 70), ["short"]);
    }
}
