//! Charts of a report: one below the other, logarithmic, the floors dashed.

use crate::bench::Outcome;
use crate::report::{Axis, Report, Role, Row, Table};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

const WIDTH: u32 = 960;
const HEIGHT: u32 = 480;
const GPUNET: [RGBColor; 5] = [
    RGBColor(0, 90, 181),
    RGBColor(0, 140, 110),
    RGBColor(100, 60, 170),
    RGBColor(30, 160, 210),
    RGBColor(70, 110, 30),
];
const PEERS: [RGBColor; 4] =
    [RGBColor(213, 94, 0), RGBColor(204, 121, 67), RGBColor(190, 60, 110), RGBColor(150, 110, 20)];
const FLOOR: RGBColor = RGBColor(70, 70, 70);

/// A line of a chart.
struct Line<'a> {
    name: &'a str,
    role: Role,
    points: Vec<(f64, f64)>,
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
        eprintln!("gpunet-bench: nothing was measured that has a chart: {} is not written", path.display());
        return Ok(());
    }
    // The heads of the charts say which machine it is; written once, below.
    let foot = 24;
    let size = (WIDTH, HEIGHT * charts.len() as u32 + foot);
    let root = SVGBackend::new(path, size).into_drawing_area();
    let failed = |error: &dyn std::fmt::Display| format!("--plot {}: {error}", path.display());
    root.fill(&WHITE).map_err(|error| failed(&error))?;
    let (body, below) = root.split_vertically(size.1 - foot);
    for (area, (table, lines)) in body.split_evenly((charts.len(), 1)).iter().zip(&charts) {
        chart(area, table, lines).map_err(|error| failed(&error))?;
    }
    let machine = &report.machine;
    let gpus = if machine.gpus.is_empty() { "no GPU".to_owned() } else { machine.gpus.join(", ") };
    let line = format!("{} x {}; {gpus}; {}", machine.cores, machine.cpu, report.command);
    let style = ("sans-serif", 12).into_font().color(&FLOOR);
    below.draw_text(&line, &style, (10, 4)).map_err(|error| failed(&error))?;
    root.present().map_err(|error| failed(&error))?;
    Ok(())
}

/// The lines of a table: rows of one series, by their places.
fn lines(table: &Table) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for Row { series, x, role, figure, .. } in &table.rows {
        let (Some(name), Some(x)) = (series.as_deref(), *x) else { continue };
        let at = *by_name.entry(name).or_insert_with(|| {
            lines.push(Line { name, role: *role, points: Vec::new() });
            lines.len() - 1
        });
        // A logarithmic axis has no place for less.
        if x > 0 && figure.typical() > 0.0 {
            lines[at].points.push((x as f64, figure.typical()));
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines.retain(|line| !line.points.is_empty());
    lines
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn chart(area: &Area<'_>, table: &Table, lines: &[Line<'_>]) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        let least = points().map(of).fold(f64::INFINITY, f64::min);
        let most = points().map(of).fold(0.0, f64::max);
        (least / 1.25)..(most * 1.6)
    };
    let (x, mut y) = (range(|point| point.0), range(|point| point.1));
    // An axis of less than a decade may have no line to read it by.
    if y.end < 10.0 * y.start {
        y.start = 10f64.powf(y.start.log10().floor());
        y.end = y.end.max(10.0 * y.start);
    }
    let (x_name, y_name) = match table.axis {
        Axis::TimeBySize => ("bytes of a message", "us, p50"),
        Axis::RateBySize => ("bytes of a message", "GB/s"),
        Axis::RateByCount => ("pairs", "GB/s"),
        Axis::TimeByCount => ("open sockets", "us, p50"),
        Axis::RateByOffset | Axis::None => return Ok(()),
    };
    let (body, legend) = area.split_horizontally(WIDTH * 2 / 3);
    let base = if matches!(table.axis, Axis::TimeByCount) { 10.0 } else { 2.0 };
    let mut chart = ChartBuilder::on(&body)
        .caption(format!("{}: {}", table.what, table.title), ("sans-serif", 14))
        .margin(12)
        .x_label_area_size(38)
        .y_label_area_size(64)
        .build_cartesian_2d(x.log_scale().base(base), y.log_scale())?;
    chart
        .configure_mesh()
        .x_desc(x_name)
        .y_desc(y_name)
        .x_label_formatter(&|x| count(*x))
        .y_label_formatter(&|y| number(*y))
        .light_line_style(RGBColor(236, 236, 236))
        .bold_line_style(RGBColor(215, 215, 215))
        .axis_desc_style(("sans-serif", 13))
        .label_style(("sans-serif", 12))
        .draw()?;
    let (mut ours, mut others) = (GPUNET.iter().cycle(), PEERS.iter().cycle());
    for (number, line) in lines.iter().enumerate() {
        let (color, width, dashed) = match line.role {
            Role::Gpunet => (*ours.next().unwrap_or(&BLUE), 3, false),
            Role::Peer => (*others.next().unwrap_or(&RED), 2, false),
            Role::Floor => (FLOOR, 2, true),
        };
        let style = color.stroke_width(width);
        let points = line.points.iter().copied();
        if dashed {
            chart.draw_series(DashedLineSeries::new(points.clone(), 7, 5, style))?;
        } else {
            chart.draw_series(LineSeries::new(points.clone(), style))?;
        }
        chart.draw_series(points.map(|point| Circle::new(point, 3, color.filled())))?;
        let at = 44 + 19 * number as i32;
        let mut x = 6;
        while x < 34 {
            legend
                .draw(&PathElement::new([(x, at + 7), (x + if dashed { 6 } else { 14 }, at + 7)], style))?;
            x += if dashed { 10 } else { 14 };
        }
        legend.draw_text(line.name, &("sans-serif", 13).into_font().color(&BLACK), (42, at))?;
    }
    Ok(())
}

/// A count or a size on an axis.
fn count(x: f64) -> String {
    match x {
        x if x >= 1048576.0 => format!("{} Mi", number(x / 1048576.0)),
        x if x >= 1024.0 && (x / 1024.0).fract() == 0.0 => format!("{} Ki", number(x / 1024.0)),
        x => number(x),
    }
}

fn number(value: f64) -> String {
    if value >= 10.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_series_are_a_line_in_the_order_of_their_places() {
        let row = |role, us: u64, series: &str, x| Row::all_times(role, "", &[us * 1000]).at(series, x);
        let table = Table {
            what: "latency".to_owned(),
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
        assert_eq!((lines[0].name, lines[0].role), ("floor", Role::Floor));
        let xs: Vec<f64> = lines[1].points.iter().map(|point| point.0).collect();
        assert_eq!(xs, [64.0, 1024.0]);
    }
}
