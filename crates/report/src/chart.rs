//! The content of a figure as plain data, in the units of the axes.

use flashsift_events::show;

/// One drawing: two axes and the marks between them.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title above the drawing; empty where the figure's title suffices.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis; names run from top to bottom.
    pub y: Axis,
    /// The marks.
    pub marks: Marks,
}

/// Title, unit and scale of an axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The measured quantity.
    pub title: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Mapping of values to positions.
    pub scale: Scale,
    /// Positions of labels; empty for round numbers.
    pub ticks: Vec<f64>,
    /// Range of the axis; `None` for the range of the values.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// Creates a linear axis that includes 0 unless that hides the differences.
    pub fn new(title: impl Into<String>, unit: Unit) -> Self {
        Self { title: title.into(), unit, scale: Scale::Linear, ticks: Vec::new(), range: None }
    }

    /// Returns the axis with another scale.
    pub fn scale(self, scale: Scale) -> Self {
        Self { scale, ..self }
    }

    /// Returns the axis with labels at these values.
    pub fn ticks(self, ticks: Vec<f64>) -> Self {
        Self { ticks, ..self }
    }

    /// Returns the axis with this range.
    pub fn range(self, from: f64, to: f64) -> Self {
        Self { range: Some((from, to)), ..self }
    }
}

/// Mapping of values to positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Equal steps for equal differences.
    Linear,
    /// Equal steps for equal factors; labels at powers of two. Values not above 0 are drawn at the
    /// lower end.
    Log2,
    /// Equal steps for equal factors; labels at powers of ten.
    Log10,
    /// Value n is the n-th of these names.
    Names(Vec<String>),
}

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// A share from 0 to 1, shown in percent.
    Share,
    /// Microseconds.
    TimeUs,
    /// A number without a unit.
    Number,
}

impl Unit {
    /// Formats a value with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Count => show::count(value.max(0.0).round() as u64),
            Self::Bytes => show::bytes(value.max(0.0).round() as u64),
            Self::Share => format!("{:.2} %", value * 100.0),
            Self::TimeUs => show::duration(value.max(0.0).round() as u64),
            Self::Number => show::number(value),
        }
    }

    /// Returns the suffix of a column's name in exported files.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Count | Self::Number => "",
            Self::Bytes => " (bytes)",
            Self::Share => " (share)",
            Self::TimeUs => " (us)",
        }
    }

    /// Returns the unit for labels of an axis that reaches `most`: its size in base units, and its
    /// name.
    pub(crate) fn label(self, most: f64) -> (f64, &'static str) {
        // Lowest maximum, size and name of each unit.
        let units: &[(f64, f64, &str)] = match self {
            Self::Count | Self::Number => {
                &[(0.0, 1.0, ""), (1e4, 1e3, "k"), (2e6, 1e6, "M"), (2e9, 1e9, "G")]
            }
            Self::Bytes => &[
                (0.0, 1.0, " B"),
                (KIB, KIB, " KiB"),
                (KIB * KIB, KIB * KIB, " MiB"),
                (KIB * KIB * KIB, KIB * KIB * KIB, " GiB"),
                (KIB * KIB * KIB * KIB, KIB * KIB * KIB * KIB, " TiB"),
            ],
            Self::Share => &[(0.0, 0.01, " %")],
            Self::TimeUs => &[
                (0.0, 1.0, " µs"),
                (2e3, 1e3, " ms"),
                (2e6, 1e6, " s"),
                (300e6, 60e6, " min"),
                (5.0 * 3600e6, 3600e6, " h"),
            ],
        };
        let chosen = units.iter().rev().find(|(from, ..)| most >= *from).unwrap_or(&units[0]);
        (chosen.1, chosen.2)
    }
}

const KIB: f64 = 1024.0;

/// Colour and marker of a series; the same in all figures of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ink {
    /// One of [`Ink::SERIES`] distinct series.
    Series(u8),
    /// A limit that no series reaches.
    Bound,
    /// One of many series of lesser interest.
    Other,
}

impl Ink {
    /// Number of distinct series.
    pub const SERIES: u8 = 6;

    /// Returns the CSS class.
    pub(crate) fn class(self) -> String {
        match self {
            Self::Series(n) => format!("s{}", n % Self::SERIES),
            Self::Bound => "bound".to_owned(),
            Self::Other => "other".to_owned(),
        }
    }
}

/// The marks between two axes.
#[derive(Clone, Debug)]
pub enum Marks {
    /// Values joined by a line.
    Lines(Vec<Line>),
    /// Single points, and a line through the Pareto front.
    Points {
        /// All of them.
        points: Vec<Point>,
        /// The Pareto front; may be empty.
        front: Vec<(f64, f64)>,
    },
    /// One bar for each name of the y axis; its parts follow one another.
    Bars {
        /// Names of the parts.
        parts: Vec<(String, Ink)>,
        /// One bar for each name of the axis.
        bars: Vec<Bar>,
    },
    /// Rectangles, darker for larger amounts.
    Patches(Vec<Layer>),
}

/// Values joined by a line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Colour and marker.
    pub ink: Ink,
    /// Points, ordered along the x axis.
    pub points: Vec<(f64, f64)>,
    /// Lowest and highest value that each point may have, drawn as error bars; empty if unknown.
    pub within: Vec<(f64, f64)>,
}

impl Line {
    /// Creates a line without error bars.
    pub fn new(name: impl Into<String>, ink: Ink, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), ink, points, within: Vec::new() }
    }
}

/// One point in the plane.
#[derive(Clone, Debug)]
pub struct Point {
    /// Name in the legend.
    pub name: String,
    /// Colour and marker.
    pub ink: Ink,
    /// Position of the point.
    pub at: (f64, f64),
}

/// A bar that consists of parts.
#[derive(Clone, Debug)]
pub struct Bar {
    /// One value for each part.
    pub values: Vec<f64>,
}

/// Rectangles of one kind.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Name in the legend.
    pub name: String,
    /// Colour of the rectangles.
    pub ink: Ink,
    /// All of them.
    pub patches: Vec<Patch>,
}

/// A rectangle and its amount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patch {
    /// Lower and upper bound.
    pub x: (f64, f64),
    /// Lower and upper bound.
    pub y: (f64, f64),
    /// Amount, above 0.
    pub amount: f64,
}

impl Marks {
    /// Returns the names and inks of the marks, each once, in drawing order.
    pub(crate) fn legend(&self) -> Vec<(String, Ink)> {
        match self {
            Self::Lines(lines) => lines.iter().map(|line| (line.name.clone(), line.ink)).collect(),
            Self::Points { points, .. } => {
                points.iter().map(|point| (point.name.clone(), point.ink)).collect()
            }
            Self::Bars { parts, .. } => parts.clone(),
            Self::Patches(layers) => {
                layers.iter().map(|layer| (layer.name.clone(), layer.ink)).collect()
            }
        }
    }
}

impl Chart {
    /// Returns the values as rows: name, x, y, and the amount of patches.
    pub(crate) fn rows(&self) -> Vec<Vec<serde_json::Value>> {
        let json = |axis: &Axis, value: f64| match &axis.scale {
            Scale::Names(names) => names.get(value as usize).cloned().into(),
            _ if value.fract() == 0.0 && value.abs() < 9e15 => (value as i64).into(),
            _ => value.into(),
        };
        let row =
            |name: &str, (x, y): (f64, f64)| vec![name.into(), json(&self.x, x), json(&self.y, y)];
        match &self.marks {
            Marks::Lines(lines) => {
                let ranges = lines.iter().any(|line| !line.within.is_empty());
                let values = |line: &'_ Line| {
                    let row = |(n, at): (usize, &(f64, f64))| {
                        let mut row = row(&line.name, *at);
                        if ranges {
                            let within = line.within.get(n);
                            let end = |value: Option<f64>| {
                                value.map_or(serde_json::Value::Null, |value| json(&self.y, value))
                            };
                            row.push(end(within.map(|within| within.0)));
                            row.push(end(within.map(|within| within.1)));
                        }
                        row
                    };
                    line.points.iter().enumerate().map(row).collect::<Vec<_>>()
                };
                lines.iter().flat_map(values).collect()
            }
            Marks::Points { points, .. } => {
                points.iter().map(|point| row(&point.name, point.at)).collect()
            }
            Marks::Bars { parts, bars } => bars
                .iter()
                .enumerate()
                .flat_map(|(n, bar)| {
                    parts
                        .iter()
                        .zip(&bar.values)
                        .map(move |((part, _), value)| row(part, (*value, n as f64)))
                })
                .collect(),
            Marks::Patches(layers) => layers
                .iter()
                .flat_map(|layer| {
                    layer.patches.iter().map(|patch| {
                        let mut row = row(&layer.name, (patch.x.0, patch.y.0));
                        row.push(json(&Axis::new("", Unit::Number), patch.amount));
                        row
                    })
                })
                .collect(),
        }
    }

    /// Returns the names of the columns of [`Chart::rows`].
    pub(crate) fn columns(&self) -> Vec<String> {
        let name = |axis: &Axis| format!("{}{}", axis.title, axis.unit.suffix());
        let mut columns = vec!["series".to_owned(), name(&self.x), name(&self.y)];
        match &self.marks {
            Marks::Patches(_) => columns.push("amount".to_owned()),
            Marks::Lines(lines) if lines.iter().any(|line| !line.within.is_empty()) => {
                columns.extend(["low", "high"].map(str::to_owned));
            }
            _ => {}
        }
        columns
    }
}
