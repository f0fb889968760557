//! Computes the range of an axis, and the positions and texts of its labels. Plotters draws them.

use crate::{
    canvas::{Canvas, Class, TEXT, UNITS, text_width},
    chart::{Axis, Scale, Unit},
    show,
};
use plotters::{
    chart::{ChartBuilder, LabelAreaPosition},
    coord::{
        ranged1d::{BoldPoints, KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter},
        types::RangedCoordf64,
    },
    drawing::IntoDrawingArea,
    style::IntoFont,
};

/// Returns the first and last position of an axis.
pub(crate) fn range(axis: &Axis, values: Vec<f64>, bars: bool) -> (f64, f64) {
    if let Scale::Names(names) = &axis.scale {
        return (0.0, names.len().max(1) as f64);
    }
    if let Some((from, to)) = axis.range {
        return (place(axis, from), place(axis, to));
    }
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    match axis.scale {
        Scale::Linear => {
            let (least, most) = (
                finite().fold(f64::INFINITY, f64::min),
                finite().fold(f64::NEG_INFINITY, f64::max),
            );
            if least > most {
                return (0.0, 1.0);
            }
            let span = most - least;
            // Small differences of large values are visible only without the 0.
            let from = if least >= 0.0 && (bars || span == 0.0 || span > 0.4 * most) {
                0.0
            } else {
                least - 0.06 * span
            };
            let to = if most == from { from + 1.0 } else { most + 0.04 * (most - from) };
            (from, to)
        }
        _ => {
            let positive = || finite().filter(|value| *value > 0.0).map(|value| place(axis, value));
            let (least, most) = (
                positive().fold(f64::INFINITY, f64::min),
                positive().fold(f64::NEG_INFINITY, f64::max),
            );
            if least > most {
                return (0.0, 1.0);
            }
            let pad = ((most - least) * 0.03).max(0.1);
            (least - pad, most + pad)
        }
    }
}

pub(crate) fn place(axis: &Axis, value: f64) -> f64 {
    match axis.scale {
        Scale::Linear | Scale::Names(_) => value,
        Scale::Log2 => value.log2(),
        Scale::Log10 => value.log10(),
    }
}

/// Returns positions and texts of the labels, at most about `most`.
pub(crate) fn ticks(axis: &Axis, (from, to): (f64, f64), most: usize) -> Vec<(f64, String)> {
    if let Scale::Names(names) = &axis.scale {
        return names.iter().enumerate().map(|(n, name)| (n as f64 + 0.5, name.clone())).collect();
    }
    let inside = |at: &f64| (from..=to).contains(at);
    if !axis.ticks.is_empty() {
        let labelled =
            axis.ticks.iter().map(|value| (place(axis, *value), one_label(axis.unit, *value)));
        return labelled.filter(|(at, _)| inside(at)).collect();
    }
    let base: f64 = match axis.scale {
        Scale::Log2 => 2.0,
        Scale::Log10 => 10.0,
        _ => {
            let (step, name) = axis.unit.label(from.abs().max(to.abs()));
            let coord: RangedCoordf64 = (from / step..to / step).into();
            let keys = coord.key_points(BoldPoints(most));
            let apart = keys.windows(2).map(|two| two[1] - two[0]).fold(f64::INFINITY, f64::min);
            let label = |key: f64| {
                if key == 0.0 { "0".to_owned() } else { format!("{}{name}", short(key, apart)) }
            };
            return keys.into_iter().map(|key| (key * step, label(key))).collect();
        }
    };
    let whole = || (from.ceil() as i32)..=(to.floor() as i32);
    let every = whole().count().div_ceil(most).max(1);
    whole().step_by(every).map(|n| (f64::from(n), one_label(axis.unit, base.powi(n)))).collect()
}

/// Formats a single label, with the unit that suits its value.
fn one_label(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Bytes => show::bytes(value as u64),
        _ => {
            let (step, name) = unit.label(value);
            format!("{}{name}", short(value / step, value / step))
        }
    }
}

/// Formats a value with as few digits as distinguish it from a neighbour at distance `apart`.
pub(crate) fn short(value: f64, apart: f64) -> String {
    let digits = (1.0 - apart.log10()).ceil().clamp(0.0, 12.0);
    let text = format!("{value:.*}", digits as usize);
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Removes labels that would touch a neighbour.
pub(crate) fn spaced(
    ticks: Vec<(f64, String)>,
    (from, to): (f64, f64),
    width: i32,
) -> Vec<(f64, String)> {
    let widest = ticks.iter().map(|(_, text)| text_width(text)).max().unwrap_or(0) + 8 * UNITS;
    let per_unit = f64::from(width) / (to - from);
    let nearest =
        ticks.windows(2).map(|two| (two[1].0 - two[0].0) * per_unit).fold(f64::INFINITY, f64::min);
    let every = (f64::from(widest) / nearest).ceil().max(1.0);
    ticks.into_iter().step_by(if every.is_finite() { every as usize } else { 1 }).collect()
}

/// Cuts a text in the middle if it is longer than `width`.
pub(crate) fn fitting(text: &str, width: i32) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    let mut keep = letters.len();
    loop {
        keep -= 1;
        let (head, tail) = (keep / 3, keep - keep / 3);
        let cut: String =
            letters[..head].iter().chain(&['…']).chain(&letters[letters.len() - tail..]).collect();
        if keep <= 4 || text_width(&cut) <= width {
            return cut;
        }
    }
}

pub(crate) type Ticks = [(f64, String)];

pub(crate) fn axes(
    out: &mut String,
    size: (i32, i32),
    (left, top, right, bottom): (i32, i32, i32, i32),
    (x, x_ticks): ((f64, f64), &Ticks),
    (y, y_ticks): ((f64, f64), &Ticks),
) {
    let canvas = Canvas { out, size: (size.0 as u32, size.1 as u32) };
    let area = canvas.into_drawing_area();
    // Names are listed from top to bottom.
    let names = y.0 == 0.0 && y_ticks.iter().all(|(at, _)| at.fract() == 0.5);
    let y_range = if names { (y.1, y.0) } else { y };
    let drawn = ChartBuilder::on(&area)
        .margin_top(top)
        .margin_right(right)
        .set_label_area_size(LabelAreaPosition::Left, left)
        .set_label_area_size(LabelAreaPosition::Bottom, bottom)
        .build_cartesian_2d(
            Labelled { range: x, ticks: x_ticks.to_vec() },
            Labelled { range: y_range, ticks: y_ticks.to_vec() },
        )
        .and_then(|mut chart| {
            let font = ("sans-serif", TEXT).into_font().color(&Class::Label.color());
            let mut mesh = chart.configure_mesh();
            mesh.light_line_style(Class::None.color())
                .bold_line_style(Class::Grid.color())
                .axis_style(Class::Axis.color())
                .label_style(font)
                .set_all_tick_mark_size(4 * UNITS);
            if names {
                mesh.disable_y_mesh();
            }
            mesh.draw()
        });
    // The canvas accepts everything; only an empty range could fail, and no range is empty.
    drawn.expect("axes have a range");
}

/// An axis with labels at given positions.
struct Labelled {
    range: (f64, f64),
    ticks: Vec<(f64, String)>,
}

impl Ranged for Labelled {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let part = (value - self.range.0) / (self.range.1 - self.range.0);
        from + (f64::from(to - from) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.ticks.iter().map(|(at, _)| *at).collect(),
        }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.0..self.range.1
    }
}

impl ValueFormatter<f64> for Labelled {
    fn format(value: &f64) -> String {
        value.to_string()
    }

    fn format_ext(&self, value: &f64) -> String {
        self.ticks
            .iter()
            .find(|(at, _)| at == value)
            .map_or(String::new(), |(_, text)| text.clone())
    }
}
