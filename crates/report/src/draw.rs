//! Draws a chart as SVG: the marks between the axes, with the classes, names and titles that the
//! page's style and script use.

use crate::{
    axes::{axes, fitting, place, range, spaced, ticks},
    canvas::{TEXT, UNITS, text_width},
    chart::{Axis, Bar, Chart, Ink, Layer, Line, Marks, Point, Scale},
    show,
};
use maud::html;
use std::fmt::Write;

/// Width of the place for a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// A desktop screen or paper.
    Wide,
    /// A phone, or half of a desktop screen.
    Narrow,
}

impl Width {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }

    fn pixels(self) -> i32 {
        match self {
            Self::Wide => 720,
            Self::Narrow => 340,
        }
    }
}

/// The area between the axes.
struct Plot<'a> {
    out: &'a mut String,
    /// Left, top, right and bottom edge in canvas units.
    edges: (i32, i32, i32, i32),
    x: (f64, f64),
    y: (f64, f64),
    chart: &'a Chart,
}

/// Returns the whole drawing as SVG.
pub(crate) fn svg(chart: &Chart, width: Width, label: &str) -> String {
    let size = (width.pixels() * UNITS, height_px(chart, width) * UNITS);
    let y_range =
        range(&chart.y, values(chart, |(_, y)| y), matches!(chart.marks, Marks::Bars { .. }));
    let x_range =
        range(&chart.x, values(chart, |(x, _)| x), matches!(chart.marks, Marks::Bars { .. }));
    let y_ticks = ticks(&chart.y, y_range, 6);
    let left = y_ticks.iter().map(|(_, text)| text_width(text)).max().unwrap_or(0);
    let left = (left + 8 * UNITS).min(size.0 * 2 / 5);
    let y_ticks = y_ticks
        .into_iter()
        .map(|(at, text)| (at, fitting(&text, left - 8 * UNITS)))
        .collect::<Vec<_>>();
    let names = names_px(chart, width, y_range);
    let right = names.unwrap_or(0).max(22) * UNITS;
    let (top, bottom) = (24 * UNITS, 40 * UNITS);
    let length = size.0 - left - right;
    let x_ticks =
        spaced(ticks(&chart.x, x_range, (length / (50 * UNITS)).max(2) as usize), x_range, length);

    let mut out = format!(
        r#"<svg class="{}" viewBox="0 0 {} {}" role="img" tabindex="0" aria-label="{}" font-size="{TEXT}">"#,
        width.class(),
        size.0,
        size.1,
        escaped(label)
    );
    axes(&mut out, size, (left, top, right, bottom), (x_range, &x_ticks), (y_range, &y_ticks));
    let title = |x, y, anchor, text: &str| {
        format!(
            r#"<text class="title" x="{x}" y="{y}" text-anchor="{anchor}">{}</text>"#,
            escaped(text)
        )
    };
    out += &title(0, TEXT, "start", &chart.y.title);
    out += &title(size.0 - right, size.1 - 4 * UNITS, "end", &chart.x.title);
    let edges = (left, top, size.0 - right, size.1 - bottom);
    let mut plot = Plot { out: &mut out, edges, x: x_range, y: y_range, chart };
    match &chart.marks {
        Marks::Lines(lines) => plot.lines(lines, names.is_some()),
        Marks::Points { points, front } => plot.points(points, front),
        Marks::Bars { parts, bars } => plot.bars(parts, bars),
        Marks::Patches(layers) => plot.patches(layers),
    }
    out += "</svg>";
    out
}

fn escaped(text: &str) -> String {
    html! { (text) }.into_string()
}

fn height_px(chart: &Chart, width: Width) -> i32 {
    match (&chart.y.scale, width) {
        (Scale::Names(names), _) => names.len() as i32 * 20 + 72,
        (_, Width::Wide) => 340,
        (_, Width::Narrow) => 280,
    }
}

/// Width in pixels for the names at the ends of lines, or otherwise for half of the last label.
/// `None` if all lines end in one place, where their names would be ambiguous.
fn names_px(chart: &Chart, width: Width, y_range: (f64, f64)) -> Option<i32> {
    let Marks::Lines(lines) = &chart.marks else { return None };
    let named: Vec<&Line> =
        lines.iter().filter(|line| line.ink != Ink::Other && !line.points.is_empty()).collect();
    if width == Width::Narrow || named.len() < 2 {
        return None;
    }
    let ends =
        || named.iter().filter_map(|line| line.points.last()).map(|(_, y)| place(&chart.y, *y));
    let spread = ends().fold(f64::NEG_INFINITY, f64::max) - ends().fold(f64::INFINITY, f64::min);
    let tell = spread / (y_range.1 - y_range.0) > 0.02 * named.len() as f64;
    let longest = named.iter().map(|line| text_width(&line.name) / UNITS).max().unwrap_or(0);
    tell.then_some((longest + 16).min(150))
}

/// Values of all marks on one axis.
fn values(chart: &Chart, of: fn((f64, f64)) -> f64) -> Vec<f64> {
    match &chart.marks {
        Marks::Lines(lines) => {
            let ends = |line: &'_ Line| {
                let ends = line.points.iter().zip(&line.within);
                let ends = ends.flat_map(|((x, _), (low, high))| [(*x, *low), (*x, *high)]);
                line.points.iter().copied().chain(ends).collect::<Vec<_>>()
            };
            lines.iter().flat_map(ends).map(of).collect()
        }
        Marks::Points { points, .. } => points.iter().map(|point| of(point.at)).collect(),
        Marks::Bars { bars, .. } => bars
            .iter()
            .enumerate()
            .map(|(n, bar)| of((bar.values.iter().sum(), n as f64)))
            .collect(),
        Marks::Patches(layers) => layers
            .iter()
            .flat_map(|layer| &layer.patches)
            .flat_map(|patch| [of((patch.x.0, patch.y.0)), of((patch.x.1, patch.y.1))])
            .collect(),
    }
}

impl Plot<'_> {
    fn at(&self, (x, y): (f64, f64)) -> (i32, i32) {
        let (left, top, right, bottom) = self.edges;
        let part = |axis: &Axis, value: f64, (from, to): (f64, f64)| {
            let place = place(axis, value);
            // Values without a logarithm are drawn at the lower end.
            if place.is_finite() { ((place - from) / (to - from)).clamp(0.0, 1.0) } else { 0.0 }
        };
        let x = part(&self.chart.x, x, self.x);
        let y = match self.chart.y.scale {
            Scale::Names(_) => 1.0 - part(&self.chart.y, y, self.y),
            _ => part(&self.chart.y, y, self.y),
        };
        (
            left + (f64::from(right - left) * x).round() as i32,
            bottom - (f64::from(bottom - top) * y).round() as i32,
        )
    }

    fn open(&mut self, name: &str, ink: Ink) {
        let _ =
            write!(self.out, r#"<g class="series {}" data-n="{}">"#, ink.class(), escaped(name));
    }

    fn close(&mut self) {
        self.out.push_str("</g>");
    }

    /// Adds an invisible point that shows its value in a tooltip.
    fn hit(&mut self, at: (f64, f64), hover_text: &str) {
        let (x, y) = self.at(at);
        let _ = write!(
            self.out,
            r#"<circle cx="{x}" cy="{y}" r="{}"><title>{}</title></circle>"#,
            5 * UNITS,
            escaped(hover_text)
        );
    }

    fn hover_text(&self, (x, y): (f64, f64)) -> String {
        let Chart { x: x_axis, y: y_axis, .. } = self.chart;
        format!(
            "{}: {}\n{}: {}",
            y_axis.title,
            y_axis.unit.show(y),
            x_axis.title,
            x_axis.unit.show(x)
        )
    }

    fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let _ = write!(self.out, r#"<path class="{class}" d=""#);
        for (n, at) in points.iter().enumerate() {
            let (x, y) = self.at(*at);
            let _ = write!(self.out, "{}{x} {y}", if n == 0 { 'M' } else { 'L' });
        }
        self.out.push_str(r#""/>"#);
    }

    fn lines(&mut self, lines: &[Line], names: bool) {
        let mut order: Vec<&Line> = lines.iter().collect();
        // Important lines are drawn last, on top.
        order.sort_by_key(|line| std::cmp::Reverse(line.ink));
        // Of the others there may be dozens; their ranges stand in the tooltips.
        let has_bars = |line: &&Line| line.ink != Ink::Other && !line.within.is_empty();
        let barred: Vec<_> = lines.iter().filter(has_bars).collect();
        for line in order {
            self.open(&line.name, line.ink);
            self.path("line", &line.points);
            if let Some(n) = barred.iter().position(|barred| std::ptr::eq(*barred, line)) {
                self.error_bars(line, (2 * n as i32 - (barred.len() as i32 - 1)) * BAR_APART / 2);
            }
            let few = line.points.len() <= MARKED_MAX;
            for at in &line.points {
                if let (Ink::Series(n), true) = (line.ink, few) {
                    let at = self.at(*at);
                    self.out.push_str(&marker(n, at));
                }
            }
            // The axes name the quantity. Repeated in every tooltip, it would be a third of the
            // page.
            let Chart { x, y, .. } = self.chart;
            for at in line.points.iter().step_by(line.points.len().div_ceil(HITS_MAX).max(1)) {
                let within = line.points.iter().position(|point| point == at);
                let within = within.and_then(|n| line.within.get(n)).map(|(low, high)| {
                    format!(" ({} to {})", y.unit.show(*low), y.unit.show(*high))
                });
                let within = within.unwrap_or_default();
                self.hit(*at, &format!("{}{within} at {}", y.unit.show(at.1), x.unit.show(at.0)));
            }
            self.close();
        }
        if names {
            self.ends(lines);
        }
    }

    /// Draws the range of each point as an upright bar with two caps, `aside` of the point: bars of
    /// several lines would cover each other.
    fn error_bars(&mut self, line: &Line, aside: i32) {
        const CAP: i32 = 2 * UNITS;
        let mut path = String::new();
        for ((x, _), (low, high)) in line.points.iter().zip(&line.within) {
            let ((x, bottom), (_, top)) = (self.at((*x, *low)), self.at((*x, *high)));
            let x = x + aside;
            for y in [bottom, top] {
                let _ = write!(path, "M{} {y}h{}", x - CAP, 2 * CAP);
            }
            let _ = write!(path, "M{x} {bottom}V{top}");
        }
        if !path.is_empty() {
            let _ = write!(self.out, r#"<path class="within" d="{path}"/>"#);
        }
    }

    /// Adds the names of the important lines at their ends, without overlap.
    fn ends(&mut self, lines: &[Line]) {
        let mut ends: Vec<(i32, i32, &Line)> = lines
            .iter()
            .filter(|line| line.ink != Ink::Other)
            .filter_map(|line| {
                let (x, y) = self.at(*line.points.last()?);
                Some((x, y, line))
            })
            .collect();
        ends.sort_by_key(|(_, y, _)| *y);
        let step = TEXT + UNITS;
        let count = ends.len() as i32;
        let mut lowest = i32::MIN;
        for (n, (x, y, line)) in ends.into_iter().enumerate() {
            // The names below need their space.
            let most = self.edges.3 - (count - 1 - n as i32) * step;
            let y = y.min(most).max(lowest);
            lowest = y + step;
            let name = fitting(&line.name, 140 * UNITS);
            let _ = write!(
                self.out,
                r#"<text class="end {}" data-n="{}" x="{}" y="{}">{}</text>"#,
                line.ink.class(),
                escaped(&line.name),
                x + 8 * UNITS,
                y + TEXT * 3 / 8,
                escaped(&name)
            );
        }
    }

    fn points(&mut self, points: &[Point], front: &[(f64, f64)]) {
        if front.len() > 1 {
            self.path("front", front);
        }
        let mut order: Vec<&Point> = points.iter().collect();
        order.sort_by_key(|point| std::cmp::Reverse(point.ink));
        for point in &order {
            self.open(&point.name, point.ink);
            let at = self.at(point.at);
            let mark = match point.ink {
                Ink::Series(n) => marker(n, at),
                _ => dot(at),
            };
            self.out.push_str(&mark);
            self.hit(point.at, &self.hover_text(point.at));
            self.close();
        }
        // Names are placed where they fit, the important ones first.
        let mut taken: Vec<(i32, i32, i32, i32)> = order
            .iter()
            .map(|point| self.at(point.at))
            .map(|(x, y)| (x - 4 * UNITS, y - 4 * UNITS, x + 4 * UNITS, y + 4 * UNITS))
            .collect();
        for point in order.iter().rev().filter(|point| point.ink != Ink::Other) {
            let (x, y) = self.at(point.at);
            let wide = text_width(&point.name);
            let (gap, half) = (7 * UNITS, TEXT / 2);
            let boxes = [
                (x + gap, y - half, "start", x + gap),
                (x - gap - wide, y - half, "end", x - gap),
                (x - wide / 2, y - gap - TEXT, "middle", x),
                (x - wide / 2, y + gap, "middle", x),
            ];
            let free = boxes.into_iter().find(|(left, top, _, _)| {
                let (right, bottom) = (left + wide, top + TEXT);
                let inside = *left >= self.edges.0
                    && right <= self.edges.2 + 20 * UNITS
                    && *top >= self.edges.1 - TEXT;
                inside
                    && taken
                        .iter()
                        .all(|t| right < t.0 || *left > t.2 || bottom < t.1 || *top > t.3)
            });
            if let Some((left, top, anchor, x)) = free {
                taken.push((left, top, left + wide, top + TEXT));
                let _ = write!(
                    self.out,
                    r#"<text class="end {}" data-n="{}" x="{x}" y="{}" text-anchor="{anchor}">{}</text>"#,
                    point.ink.class(),
                    escaped(&point.name),
                    top + TEXT * 7 / 8,
                    escaped(&point.name)
                );
            }
        }
    }

    fn bars(&mut self, parts: &[(String, Ink)], bars: &[Bar]) {
        let names: &[String] = match &self.chart.y.scale {
            Scale::Names(names) => names,
            _ => &[],
        };
        for (part, (name, ink)) in parts.iter().enumerate() {
            self.open(name, *ink);
            for (n, bar) in bars.iter().enumerate() {
                let (before, value) = (bar.values[..part].iter().sum::<f64>(), bar.values[part]);
                let whole: f64 = bar.values.iter().sum();
                let (left, top) = self.at((before, n as f64 + 0.14));
                let (right, bottom) = self.at((before + value, n as f64 + 0.86));
                if value <= 0.0 {
                    continue;
                }
                let unit = self.chart.x.unit;
                let share = if parts.len() > 1 {
                    format!(" ({})", show::share(value / whole))
                } else {
                    String::new()
                };
                let name = names.get(n).map_or("", String::as_str);
                let hover_text = escaped(&format!("{name}: {}{share}", unit.show(value)));
                let _ = write!(
                    self.out,
                    r#"<rect x="{left}" y="{top}" width="{}" height="{}"><title>{hover_text}</title></rect>"#,
                    (right - left).max(1),
                    bottom - top
                );
            }
            self.close();
        }
    }

    fn patches(&mut self, layers: &[Layer]) {
        let most = layers
            .iter()
            .flat_map(|layer| &layer.patches)
            .map(|patch| patch.amount)
            .fold(1.0, f64::max);
        for layer in layers {
            self.open(&layer.name, layer.ink);
            for level in 0..LEVELS {
                let of_level = |amount: f64| {
                    ((amount.max(1.0).ln() / most.ln().max(1e-9) * f64::from(LEVELS)) as u32)
                        .min(LEVELS - 1)
                };
                let mut path = String::new();
                for patch in layer.patches.iter().filter(|patch| of_level(patch.amount) == level) {
                    let (left, bottom) = self.at((patch.x.0, patch.y.0));
                    let (right, top) = self.at((patch.x.1, patch.y.1));
                    // Tiny rectangles are drawn at the smallest visible size.
                    let (wide, high) =
                        ((right - left).max(PATCH_MIN), (bottom - top).max(PATCH_MIN));
                    let _ = write!(path, "M{left} {bottom}h{wide}v-{high}h-{wide}z");
                }
                if !path.is_empty() {
                    let _ = write!(self.out, r#"<path class="patch l{level}" d="{path}"/>"#);
                }
            }
            self.close();
        }
    }
}

/// Distance between the error bars of two lines at the same point, in canvas units.
const BAR_APART: i32 = 5 * UNITS;
/// A line with more points has no markers.
const MARKED_MAX: usize = 24;
/// A line with more points has tooltips on some of them only.
const HITS_MAX: usize = 64;
/// Number of levels of darkness.
const LEVELS: u32 = 4;
/// 1.5 pixels, in canvas units.
const PATCH_MIN: i32 = 15;

/// Marker of one series, for readers who do not distinguish the colours.
pub(crate) fn marker(series: u8, at: (i32, i32)) -> String {
    let r = 4 * UNITS;
    let (x, y) = at;
    let path = match series % Ink::SERIES {
        0 => circle(at, r),
        1 => format!("M{} {}h{w}v{w}h-{w}z", x - r * 9 / 10, y - r * 9 / 10, w = r * 9 / 5),
        2 => format!("M{x} {}l{r} {h}h-{}z", y - r, r * 2, h = r * 17 / 10),
        3 => format!("M{x} {}l{d} {d}l-{d} {d}l-{d}-{d}z", y - r * 5 / 4, d = r * 5 / 4),
        4 => format!("M{x} {}l{r}-{h}h-{}z", y + r, r * 2, h = r * 17 / 10),
        _ => {
            let (a, b) = (r / 3, r);
            let d = b - a;
            format!(
                "M{} {}h{}v{d}h{d}v{}h-{d}v{d}h-{}v-{d}h-{d}v-{}h{d}z",
                x - a,
                y - b,
                2 * a,
                2 * a,
                2 * a,
                2 * a
            )
        }
    };
    format!(r#"<path class="mark" d="{path}"/>"#)
}

/// Returns the path of the small dot that stands for a point without a marker of its own.
pub(crate) fn dot(at: (i32, i32)) -> String {
    format!(r#"<path class="mark" d="{}"/>"#, circle(at, 3 * UNITS))
}

fn circle((x, y): (i32, i32), r: i32) -> String {
    format!("M{} {y}a{r} {r} 0 1 0 {} 0a{r} {r} 0 1 0-{} 0z", x - r, 2 * r, 2 * r)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Unit;

    fn lines(x: Axis, y: Axis, points: Vec<(f64, f64)>) -> Chart {
        let line = |name: &str, ink| Line::new(name, ink, points.clone());
        let marks = Marks::Lines(vec![line("a", Ink::Series(0)), line("b", Ink::Other)]);
        Chart { title: String::new(), x, y, marks }
    }

    /// Labels lie within the axis, ascend, and do not touch, at any scale and for any values.
    #[test]
    fn labels_stand_apart() {
        let units = [Unit::Count, Unit::Bytes, Unit::Share, Unit::TimeUs, Unit::Number];
        let scales = [Scale::Linear, Scale::Log2, Scale::Log10];
        for unit in units {
            for scale in &scales {
                // Bytes are whole.
                let least = if unit == Unit::Bytes { 1 } else { -3 };
                for exponent in least..14 {
                    for factor in [1.0, 1.01, 3.7, 1e5] {
                        let least = 10_f64.powi(exponent);
                        let axis = Axis::new("x", unit).scale(scale.clone());
                        let range = range(&axis, vec![least, least * factor], false);
                        assert!(
                            range.0 < range.1,
                            "{unit:?} {scale:?} {least} {factor}: {range:?}"
                        );
                        for length in [2600, 6500] {
                            let all = ticks(&axis, range, (length / 500) as usize);
                            let ticks = spaced(all, range, length);
                            let at = |place: f64| {
                                (place - range.0) / (range.1 - range.0) * f64::from(length)
                            };
                            assert!(
                                ticks.iter().all(|(place, _)| (range.0..=range.1).contains(place))
                            );
                            for two in ticks.windows(2) {
                                let between = at(two[1].0) - at(two[0].0);
                                let needed =
                                    f64::from(text_width(&two[0].1) + text_width(&two[1].1)) / 2.0;
                                assert!(
                                    between >= needed,
                                    "{unit:?} {scale:?} {least} {factor} {length}: {ticks:?}"
                                );
                                assert_ne!(
                                    two[0].1, two[1].1,
                                    "{unit:?} {scale:?} {least} {factor}: {ticks:?}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    /// No values, one value, equal values, values without a logarithm and non-numbers all give a
    /// drawing.
    #[test]
    fn any_values_give_a_drawing() {
        let odd: [&[(f64, f64)]; 6] = [
            &[],
            &[(0.0, 0.0)],
            &[(5.0, 7.0), (5.0, 7.0)],
            &[(-1.0, 0.0), (0.0, -3.0)],
            &[(f64::NAN, 1.0), (1.0, f64::INFINITY)],
            &[(1e-300, 1e300), (1e300, 1e-300)],
        ];
        for points in odd {
            for scale in [Scale::Linear, Scale::Log2, Scale::Log10] {
                let axis = |unit| Axis::new("x", unit).scale(scale.clone());
                let chart = lines(axis(Unit::Bytes), axis(Unit::Share), points.to_vec());
                for width in [Width::Wide, Width::Narrow] {
                    let svg = svg(&chart, width, "label");
                    assert!(
                        svg.ends_with("</svg>") && !svg.contains("NaN"),
                        "{points:?} {scale:?}: {svg}"
                    );
                }
            }
        }
    }

    /// Known values are drawn in proportion: half way between 0 and 100 is the middle.
    #[test]
    fn places_are_in_proportion() {
        let axis = || Axis::new("x", Unit::Number).range(0.0, 100.0);
        let chart = lines(axis(), axis(), vec![(0.0, 0.0), (50.0, 50.0), (100.0, 100.0)]);
        let svg = svg(&chart, Width::Narrow, "label");
        let circles: Vec<(i32, i32)> = svg
            .split("<circle ")
            .skip(1)
            .take(3)
            .map(|circle| {
                let number = |key: &str| {
                    circle.split(key).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
                };
                (number("cx=\""), number("cy=\""))
            })
            .collect();
        let [(x0, y0), (x1, y1), (x2, y2)] = circles[..] else { panic!("{circles:?}") };
        assert!(
            (x1 - (x0 + x2) / 2).abs() <= 1
                && (y1 - (y0 + y2) / 2).abs() <= 1
                && x2 > x0
                && y2 < y0,
            "{circles:?}"
        );
    }

    /// An error bar reaches from its low to its high value, within the axis.
    #[test]
    fn error_bars_are_in_proportion() {
        let axis = || Axis::new("x", Unit::Number).range(0.0, 100.0);
        let mut chart = lines(axis(), axis(), vec![(50.0, 50.0)]);
        let Marks::Lines(all) = &mut chart.marks else { panic!("lines") };
        for line in all {
            line.within = vec![(25.0, 75.0)];
        }
        let svg = svg(&chart, Width::Wide, "label");
        assert_eq!(svg.matches("class=\"within\"").count(), 1, "`b` is of lesser interest");
        let path = svg.split(r#"class="within" d=""#).nth(1).unwrap().split('"').next().unwrap();
        let upright = path.rsplit('M').next().unwrap();
        let (low, high) = upright.split_once(' ').unwrap().1.split_once('V').unwrap();
        let [low, high]: [i32; 2] = [low.parse().unwrap(), high.parse().unwrap()];
        let circle = svg.split("cy=\"").nth(1).unwrap().split('"').next().unwrap();
        let middle: i32 = circle.parse().unwrap();
        assert!(high < middle && middle < low, "{path}");
        assert!(((low + high) / 2 - middle).abs() <= 1, "{path}, {middle}");
        assert!(svg.contains("(25 to 75)"), "{svg}");
        assert_eq!(chart.columns()[3..], ["low", "high"]);
        assert_eq!(chart.rows()[0][3..], [25, 75]);
    }

    /// The bars of all policies lay on the same upright line, and the last covered the others.
    #[test]
    fn error_bars_of_several_lines_stand_apart() {
        let axis = || Axis::new("x", Unit::Number).range(0.0, 100.0);
        let mut chart = lines(axis(), axis(), vec![(50.0, 50.0)]);
        let Marks::Lines(all) = &mut chart.marks else { panic!("lines") };
        for line in all {
            line.ink = Ink::Series(0);
            line.within = vec![(25.0, 75.0)];
        }
        let svg = svg(&chart, Width::Wide, "label");
        let paths = svg.split(r#"class="within" d=""#).skip(1);
        let [one, other]: [Vec<[i32; 2]>; 2] = [0, 1].map(|n| {
            let path = paths.clone().nth(n).unwrap().split('"').next().unwrap();
            let begins = path.split('M').filter_map(|part| part.split_once(' ')?.0.parse().ok());
            begins.map(|x: i32| [x, x + 4 * UNITS]).take(2).collect()
        });
        assert_eq!((one.len(), other.len()), (2, 2), "{svg}");
        assert!(one[0][1] < other[0][0] && one[1][1] < other[1][0], "{one:?} {other:?}");
    }

    #[test]
    fn long_names_are_cut_in_the_middle() {
        assert_eq!(fitting("short", 10_000), "short");
        let cut = fitting("/data/data/com.example.application/cache/0123456789", 1500);
        assert!(
            cut.starts_with("/data")
                && cut.ends_with("6789")
                && cut.contains('…')
                && text_width(&cut) <= 1500,
            "{cut}"
        );
        assert_eq!(fitting("äöüßäöüßäöüßäöüß", 1).chars().count(), 5);
    }
}
