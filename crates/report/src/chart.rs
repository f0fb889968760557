//! What a figure shows: plain data, in the units of the axes.

use flashsift_core::show;

/// One drawing: two axes and what stands between them.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Stands above it; empty where the figure's title says enough.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Upwards; of names, downwards.
    pub y: Axis,
    /// What is drawn.
    pub marks: Marks,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What is measured.
    pub title: String,
    /// In what.
    pub unit: Unit,
    /// How values become places.
    pub scale: Scale,
    /// Where it is labelled, if not at round numbers.
    pub ticks: Vec<f64>,
    /// Where it begins and ends, if not where the values do.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// A linear one, from 0 where that does not hide the differences.
    pub fn new(title: impl Into<String>, unit: Unit) -> Self {
        Self { title: title.into(), unit, scale: Scale::Linear, ticks: Vec::new(), range: None }
    }

    /// The same, otherwise scaled.
    pub fn scale(self, scale: Scale) -> Self {
        Self { scale, ..self }
    }

    /// The same, labelled there.
    pub fn ticks(self, ticks: Vec<f64>) -> Self {
        Self { ticks, ..self }
    }

    /// The same, from and to there.
    pub fn range(self, from: f64, to: f64) -> Self {
        Self { range: Some((from, to)), ..self }
    }
}

/// How values become places.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Equal steps for equal differences.
    Linear,
    /// Equal steps for equal factors; labelled at powers of two. What is not above 0 stands at the lower end.
    Log2,
    /// The same, at powers of ten.
    Log10,
    /// The value n is the n-th of these.
    Names(Vec<String>),
}

/// What a value is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// How many.
    Count,
    /// Bytes.
    Bytes,
    /// A part of a whole, 0 to 1; shown in hundredths.
    Share,
    /// Microseconds.
    TimeUs,
    /// Any number.
    Number,
}

impl Unit {
    /// A value, with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Count => show::count(value.max(0.0).round() as u64),
            Self::Bytes => show::bytes(value.max(0.0).round() as u64),
            Self::Share => format!("{:.2} %", value * 100.0),
            Self::TimeUs => show::duration(value.max(0.0).round() as u64),
            Self::Number => show::number(value),
        }
    }

    /// In files: the ending of a column's name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Count | Self::Number => "",
            Self::Bytes => " (bytes)",
            Self::Share => " (share)",
            Self::TimeUs => " (us)",
        }
    }

    /// What axes that reach `most` are labelled in: how many of the unit that is, and its name.
    pub(crate) fn label(self, most: f64) -> (f64, &'static str) {
        // From where on, in what.
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

/// How something is coloured and marked; the same thing in all figures of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ink {
    /// One of those told apart at a glance, below [`Ink::SERIES`].
    Series(u8),
    /// A limit that nothing reaches.
    Bound,
    /// One of many.
    Other,
}

impl Ink {
    /// So many are told apart.
    pub const SERIES: u8 = 6;

    /// The class that it has in the page.
    pub(crate) fn class(self) -> String {
        match self {
            Self::Series(n) => format!("s{}", n % Self::SERIES),
            Self::Bound => "bound".to_owned(),
            Self::Other => "other".to_owned(),
        }
    }
}

/// What is drawn between two axes.
#[derive(Clone, Debug)]
pub enum Marks {
    /// Values joined.
    Lines(Vec<Line>),
    /// Each by itself, and a line through those that nobody beats.
    Points {
        /// All.
        points: Vec<Point>,
        /// Joined, if there are any.
        front: Vec<(f64, f64)>,
    },
    /// A bar a name of the y axis; its parts one after the other.
    Bars {
        /// What the parts are.
        parts: Vec<(String, Ink)>,
        /// One a name, as long as the axis' names.
        bars: Vec<Bar>,
    },
    /// Rectangles, the darker the more is in them.
    Patches(Vec<Layer>),
}

/// Values joined.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it is.
    pub name: String,
    /// How it looks.
    pub ink: Ink,
    /// Along the x axis.
    pub points: Vec<(f64, f64)>,
}

/// One value in the plane.
#[derive(Clone, Debug)]
pub struct Point {
    /// What it is.
    pub name: String,
    /// How it looks.
    pub ink: Ink,
    /// Where.
    pub at: (f64, f64),
}

/// A bar of parts.
#[derive(Clone, Debug)]
pub struct Bar {
    /// One value a part.
    pub values: Vec<f64>,
}

/// Rectangles of one kind.
#[derive(Clone, Debug)]
pub struct Layer {
    /// What they are.
    pub name: String,
    /// How they look.
    pub ink: Ink,
    /// All.
    pub patches: Vec<Patch>,
}

/// A rectangle and how much is in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patch {
    /// From and to.
    pub x: (f64, f64),
    /// From and to.
    pub y: (f64, f64),
    /// How much, above 0.
    pub amount: f64,
}

impl Marks {
    /// What is in it, each once, in the order in which it is drawn.
    pub(crate) fn legend(&self) -> Vec<(String, Ink)> {
        match self {
            Self::Lines(lines) => lines.iter().map(|line| (line.name.clone(), line.ink)).collect(),
            Self::Points { points, .. } => {
                points.iter().map(|point| (point.name.clone(), point.ink)).collect()
            }
            Self::Bars { parts, .. } => parts.clone(),
            Self::Patches(layers) => layers.iter().map(|layer| (layer.name.clone(), layer.ink)).collect(),
        }
    }
}

impl Chart {
    /// Its values as rows: what it is, x, y, and of patches how much.
    pub(crate) fn rows(&self) -> Vec<Vec<serde_json::Value>> {
        let json = |axis: &Axis, value: f64| match &axis.scale {
            Scale::Names(names) => names.get(value as usize).cloned().into(),
            _ if value.fract() == 0.0 && value.abs() < 9e15 => (value as i64).into(),
            _ => value.into(),
        };
        let row = |name: &str, (x, y): (f64, f64)| vec![name.into(), json(&self.x, x), json(&self.y, y)];
        match &self.marks {
            Marks::Lines(lines) => {
                lines.iter().flat_map(|line| line.points.iter().map(|at| row(&line.name, *at))).collect()
            }
            Marks::Points { points, .. } => points.iter().map(|point| row(&point.name, point.at)).collect(),
            Marks::Bars { parts, bars } => bars
                .iter()
                .enumerate()
                .flat_map(|(n, bar)| {
                    parts.iter().zip(&bar.values).map(move |((part, _), value)| row(part, (*value, n as f64)))
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

    /// What the columns of [`Chart::rows`] are called.
    pub(crate) fn columns(&self) -> Vec<String> {
        let name = |axis: &Axis| format!("{}{}", axis.title, axis.unit.suffix());
        let mut columns = vec!["series".to_owned(), name(&self.x), name(&self.y)];
        if matches!(self.marks, Marks::Patches(_)) {
            columns.push("amount".to_owned());
        }
        columns
    }
}
