//! One chart: axes, lines, and their legend.

use super::axis::{Base, LogAxis, number, size};
use super::{Curve, Point};
use crate::report::{Axis, Role, Table};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The pixels of a chart, and of the margins around its plot.
pub const SIZE: (u32, u32) = (480, 360);
const LEFT: i32 = 56;
const RIGHT: i32 = 14;
const TOP: i32 = 44;
const BOTTOM: i32 = 44;
/// The pixels of a line of the legend, and of the space before its text.
const ROW: i32 = 14;
const KEY: i32 = 36;
/// The approximate width of a letter in pixels: an SVG is drawn with the font of its viewer.
const LETTER: f64 = 5.9;
/// Letters of a line of a title.
const TITLE: usize = 70;

/// Okabe and Ito's colours and some of Tol's, which colour-blind readers can tell apart. The cool
/// ones are for gpunet.
const GPUNET: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(51, 34, 136),
    RGBColor(17, 119, 51),
];
/// The warm ones are for references.
const REFERENCES: [RGBColor; 4] =
    [RGBColor(213, 94, 0), RGBColor(230, 159, 0), RGBColor(136, 34, 85), RGBColor(204, 121, 167)];
const TEXT: RGBColor = RGBColor(40, 40, 40);
const FRAME: RGBColor = RGBColor(150, 150, 150);
const LABELLED: RGBColor = RGBColor(222, 222, 222);
const BETWEEN: RGBColor = RGBColor(242, 242, 242);

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;
type Pixel = (i32, i32);

/// The look of a line: its colour, and the shape that distinguishes it without colour.
#[derive(Clone, Copy)]
struct Look {
    role: Role,
    color: RGBColor,
    mark: usize,
}

impl Look {
    fn of(lines: &[Curve<'_>]) -> Vec<Self> {
        let (mut ours, mut others) = (0, 0);
        let next = |role| {
            let (palette, count): (&[RGBColor], _) = match role {
                Role::Gpunet => (&GPUNET, &mut ours),
                Role::Reference => (&REFERENCES, &mut others),
                Role::Floor => return Self { role, color: TEXT, mark: 0 },
            };
            *count += 1;
            Self { role, color: palette[(*count - 1) % palette.len()], mark: *count - 1 }
        };
        lines.iter().map(|line| line.role).map(next).collect()
    }

    const fn width(self) -> u32 {
        if matches!(self.role, Role::Gpunet) { 2 } else { 1 }
    }
}

/// The places of values in the picture.
struct Plot {
    x: LogAxis,
    y: LogAxis,
}

impl Plot {
    const RIGHT: i32 = SIZE.0 as i32 - RIGHT;
    const BOTTOM: i32 = SIZE.1 as i32 - BOTTOM;

    fn column(&self, x: f64) -> i32 {
        LEFT + (self.x.place(x) * f64::from(Self::RIGHT - LEFT)).round() as i32
    }

    fn row(&self, y: f64) -> i32 {
        Self::BOTTOM - (self.y.place(y) * f64::from(Self::BOTTOM - TOP)).round() as i32
    }

    fn pixel(&self, point: &Point) -> Pixel {
        (self.column(point.x), self.row(point.typical))
    }

    fn tail(&self, point: &Point) -> Pixel {
        (self.column(point.x), self.row(point.tail))
    }

    fn pixels(&self, line: &Curve<'_>) -> Vec<Pixel> {
        line.points.iter().map(|point| self.pixel(point)).collect()
    }
}

/// Draws the chart of a table.
pub fn draw(area: &Area<'_>, table: &Table, lines: &[Curve<'_>]) -> Drawn {
    let xs = lines.iter().flat_map(|line| &line.points).map(|point| point.x);
    let ys = lines.iter().flat_map(|line| &line.points).flat_map(|point| [point.typical, point.tail]);
    let (base, x_label): (_, fn(f64) -> String) = match table.axis {
        Axis::TimeBySize | Axis::RateBySize => (Base::Two, size),
        Axis::RateByCount
        | Axis::RateByBlocks
        | Axis::TimeByMembers
        | Axis::MessagesByCount
        | Axis::TimeByConnections
        | Axis::RateByConnections
        | Axis::ConnectsByClients => (Base::Two, number),
        Axis::TimeByCount | Axis::TimeByInterval => (Base::Ten, number),
        Axis::RateByOffset | Axis::None => return Ok(()),
    };
    let (x_name, unit) = (table.axis.of_x(), table.axis.unit());
    let y_name =
        if table.axis.has_times() { format!("{unit}: p50, shaded up to p99") } else { unit.to_owned() };
    let mut plot = Plot { x: LogAxis::around(xs, base), y: LogAxis::to_labels(ys) };
    let legend = Legend::place(&mut plot, lines);
    title(area, &format!("{}: {}", table.what, table.title))?;
    frame(area, &plot, (x_name, x_label), &y_name)?;
    let looks = Look::of(lines);
    for (line, look) in lines.iter().zip(&looks).filter(|(line, _)| line.has_tail()) {
        tail(area, &plot, line, *look)?;
    }
    for (line, look) in lines.iter().zip(&looks) {
        let pixels = plot.pixels(line);
        path(area, &pixels, *look)?;
        pixels.into_iter().try_for_each(|pixel| mark(area, pixel, *look))?;
    }
    legend.draw(area, lines, &looks)
}

fn write(area: &Area<'_>, text: &str, at: Pixel, (h, v): (HPos, VPos), points: f64) -> Drawn {
    area.draw_text(text, &style(points).pos(Pos::new(h, v)), at)
}

/// Returns a text style. The backend assumes that a font is larger than it is.
fn style(points: f64) -> TextStyle<'static> {
    ("sans-serif", points * 1.24).into_font().color(&TEXT)
}

fn title(area: &Area<'_>, text: &str) -> Drawn {
    let lines = super::wrap(text, TITLE);
    let first = TOP - 6 - 14 * lines.len() as i32;
    for (number, line) in lines.iter().enumerate() {
        let at = (LEFT - 40, first + 14 * number as i32);
        area.draw_text(line, &style(11.5).pos(Pos::new(HPos::Left, VPos::Top)), at)?;
    }
    Ok(())
}

/// Draws the frame, the grid lines, and their labels.
fn frame(area: &Area<'_>, plot: &Plot, (x_name, x_label): (&str, fn(f64) -> String), y_name: &str) -> Drawn {
    let corners = [(LEFT, TOP), (Plot::RIGHT, Plot::BOTTOM)];
    let vertical = |x: f64| vec![(plot.column(x), TOP), (plot.column(x), Plot::BOTTOM)];
    let horizontal = |y: f64| vec![(LEFT, plot.row(y)), (Plot::RIGHT, plot.row(y))];
    let fainter =
        plot.x.between.iter().map(|&x| vertical(x)).chain(plot.y.between.iter().map(|&y| horizontal(y)));
    for line in fainter {
        area.draw(&PathElement::new(line, BETWEEN))?;
    }
    let labelled =
        plot.x.labels.iter().map(|&x| vertical(x)).chain(plot.y.labels.iter().map(|&y| horizontal(y)));
    for line in labelled {
        area.draw(&PathElement::new(line, LABELLED))?;
    }
    area.draw(&Rectangle::new(corners, FRAME))?;
    for &x in &plot.x.labels {
        write(area, &x_label(x), (plot.column(x), Plot::BOTTOM + 5), (HPos::Center, VPos::Top), 10.0)?;
    }
    for &y in &plot.y.labels {
        write(area, &number(y), (LEFT - 5, plot.row(y)), (HPos::Right, VPos::Center), 10.0)?;
    }
    let middle = ((LEFT + Plot::RIGHT) / 2, Plot::BOTTOM + 22);
    write(area, x_name, middle, (HPos::Center, VPos::Top), 10.5)?;
    let upright = style(10.5).transform(FontTransform::Rotate270).pos(Pos::new(HPos::Center, VPos::Top));
    area.draw_text(y_name, &upright, (10, (TOP + Plot::BOTTOM) / 2))
}

/// Draws the area from the median of a line to its 99th percentile.
fn tail(area: &Area<'_>, plot: &Plot, line: &Curve<'_>, look: Look) -> Drawn {
    let back = line.points.iter().rev().map(|point| plot.tail(point));
    let around: Vec<Pixel> = plot.pixels(line).into_iter().chain(back).collect();
    area.draw(&Polygon::new(around, look.color.mix(0.15)))
}

/// Draws a line; a floor is dashed.
fn path(area: &Area<'_>, pixels: &[Pixel], look: Look) -> Drawn {
    let style = look.color.stroke_width(look.width());
    if look.role != Role::Floor {
        return area.draw(&PathElement::new(pixels.to_vec(), style));
    }
    dashes(pixels).into_iter().try_for_each(|(from, to)| area.draw(&PathElement::new([from, to], style)))
}

/// Returns the dashes of a path: six pixels, then a gap of four, and so on, also across its
/// corners.
fn dashes(pixels: &[Pixel]) -> Vec<(Pixel, Pixel)> {
    const DASH: f64 = 6.0;
    const PERIOD: f64 = 10.0;
    let mut dashes = Vec::new();
    // The position of the path within a period.
    let mut phase = 0.0;
    for pair in pixels.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let (dx, dy) = (f64::from(to.0 - from.0), f64::from(to.1 - from.1));
        let length = dx.hypot(dy);
        let at = |far: f64| {
            let part = far / length;
            (from.0 + (dx * part).round() as i32, from.1 + (dy * part).round() as i32)
        };
        let mut start = -phase;
        while start < length {
            let (begin, end) = (start.max(0.0), (start + DASH).min(length));
            if begin < end {
                dashes.push((at(begin), at(end)));
            }
            start += PERIOD;
        }
        phase = (phase + length) % PERIOD;
    }
    dashes
}

/// Draws a shape around a point: filled for gpunet, open for references. A floor has none.
fn mark(area: &Area<'_>, (x, y): Pixel, look: Look) -> Drawn {
    let filled = match look.role {
        Role::Gpunet => look.color.filled(),
        Role::Reference => WHITE.filled(),
        Role::Floor => return Ok(()),
    };
    let shape = match look.mark % 4 {
        0 => {
            area.draw(&Circle::new((x, y), 3, filled))?;
            return area.draw(&Circle::new((x, y), 3, look.color));
        }
        1 => [(x - 3, y - 3), (x + 3, y - 3), (x + 3, y + 3), (x - 3, y + 3)].to_vec(),
        2 => [(x, y - 4), (x + 4, y + 3), (x - 4, y + 3)].to_vec(),
        _ => [(x, y - 4), (x + 4, y), (x, y + 4), (x - 4, y)].to_vec(),
    };
    let around = [&shape[..], &shape[..1]].concat();
    area.draw(&Polygon::new(shape, filled))?;
    area.draw(&PathElement::new(around, look.color))
}

/// The legend: the names of the lines, at a place without lines.
struct Legend {
    corner: Pixel,
    size: Pixel,
}

impl Legend {
    /// Finds a place, and makes the chart taller until there is one.
    fn place(plot: &mut Plot, lines: &[Curve<'_>]) -> Self {
        let letters = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
        let size = (KEY + (letters as f64 * LETTER).ceil() as i32 + 6, ROW * lines.len() as i32 + 6);
        for _ in 0..8 {
            let taken: Vec<Pixel> = lines.iter().flat_map(|line| trace(plot, line)).collect();
            if let Some(corner) = corners(size).into_iter().find(|corner| is_free(&taken, *corner, size)) {
                return Self { corner, size };
            }
            plot.y = plot.y.taller();
        }
        Self { corner: corners(size)[0], size }
    }

    fn draw(&self, area: &Area<'_>, lines: &[Curve<'_>], looks: &[Look]) -> Drawn {
        let (left, top) = self.corner;
        let around = [(left, top), (left + self.size.0, top + self.size.1)];
        area.draw(&Rectangle::new(around, WHITE.filled()))?;
        area.draw(&Rectangle::new(around, LABELLED))?;
        for (number, (line, look)) in lines.iter().zip(looks).enumerate() {
            let middle = top + 3 + ROW * number as i32 + ROW / 2;
            path(area, &[(left + 5, middle), (left + KEY - 5, middle)], *look)?;
            mark(area, (left + KEY / 2, middle), *look)?;
            write(area, line.name, (left + KEY, middle), (HPos::Left, VPos::Center), 10.0)?;
        }
        Ok(())
    }
}

/// Returns the places where a legend may be: the corners first, then the edges.
fn corners((width, height): Pixel) -> Vec<Pixel> {
    const GAP: i32 = 8;
    const STEPS: i32 = 6;
    let (left, right) = (LEFT + GAP, Plot::RIGHT - GAP - width);
    let (top, bottom) = (TOP + GAP, Plot::BOTTOM - GAP - height);
    let across = (0..=STEPS).map(|step| left + (right - left) * step / STEPS);
    let along = across.flat_map(|x| [(x, bottom), (x, top)]);
    [(left, top), (right, bottom), (right, top), (left, bottom)].into_iter().chain(along).collect()
}

/// Returns the pixels of a line, and of its tail.
fn trace(plot: &Plot, line: &Curve<'_>) -> Vec<Pixel> {
    let pixels = plot.pixels(line);
    let tails: Vec<Pixel> = line.points.iter().map(|point| plot.tail(point)).collect();
    let along = |pixels: &[Pixel]| -> Vec<Pixel> {
        let between = |pair: &[Pixel]| {
            let (from, to) = (pair[0], pair[1]);
            (0..64).map(move |n| (from.0 + (to.0 - from.0) * n / 64, from.1 + (to.1 - from.1) * n / 64))
        };
        pixels.windows(2).flat_map(between).chain(pixels.last().copied()).collect()
    };
    [along(&pixels), along(&tails)].concat()
}

fn is_free(taken: &[Pixel], (left, top): Pixel, (width, height): Pixel) -> bool {
    const GAP: i32 = 5;
    let (columns, rows) = (left - GAP..=left + width + GAP, top - GAP..=top + height + GAP);
    !taken.iter().any(|(x, y)| columns.contains(x) && rows.contains(y))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(name: &'a str, role: Role, points: &[(f64, f64)]) -> Curve<'a> {
        let points = points.iter().map(|&(x, y)| Point { x, typical: y, tail: y }).collect();
        Curve { name, role, points }
    }

    #[test]
    fn a_legend_finds_a_free_place_or_makes_one() {
        let ends = |top: f64, bottom: f64| [(1.0, bottom), (1024.0, top)];
        let lines: Vec<Vec<(f64, f64)>> =
            (1..9).map(|n| ends(f64::from(n), f64::from(10 - n)).to_vec()).collect();
        let lines: Vec<Curve<'_>> = lines
            .iter()
            .map(|points| line("a name of thirty letters, or so", Role::Reference, points))
            .collect();
        let points = || lines.iter().flat_map(|line| &line.points);
        let mut plot = Plot {
            x: LogAxis::around(points().map(|point| point.x), Base::Two),
            y: LogAxis::to_labels(points().map(|point| point.typical)),
        };
        let before = plot.y.range.end;
        let legend = Legend::place(&mut plot, &lines);
        let taken: Vec<Pixel> = lines.iter().flat_map(|line| trace(&plot, line)).collect();
        assert!(is_free(&taken, legend.corner, legend.size));
        assert!(plot.y.range.end > before);
        assert!(legend.corner.0 >= LEFT && legend.corner.0 + legend.size.0 <= Plot::RIGHT);
    }

    #[test]
    fn no_two_lines_look_the_same() {
        let roles = [[Role::Gpunet; 5].as_slice(), &[Role::Reference; 4], &[Role::Floor]].concat();
        let lines: Vec<Curve<'_>> = roles.into_iter().map(|role| line("", role, &[])).collect();
        let looks = Look::of(&lines);
        for (at, look) in looks.iter().enumerate() {
            for other in &looks[..at] {
                assert_ne!(look.color, other.color);
                let far = |a: u8, b: u8| i32::from(a.abs_diff(b)).pow(2);
                let (a, b) = (look.color, other.color);
                let distance = far(a.0, b.0) + far(a.1, b.1) + far(a.2, b.2);
                assert!(distance > 40 * 40, "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn dashes_go_on_around_corners() {
        let dashes = dashes(&[(0, 0), (8, 0), (8, 30)]);
        assert_eq!(dashes[0], ((0, 0), (6, 0)));
        assert_eq!(dashes[1], ((8, 2), (8, 8)));
        assert_eq!(dashes.len(), 4);
    }
}
