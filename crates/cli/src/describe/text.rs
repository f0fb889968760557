//! A description as text, 80 columns wide: a few sentences, then a table or two for each
//! characterisation.

use crate::{
    html_page, size,
    text::{labelled, unbroken},
};
use comfy_table::{CellAlignment, ContentArrangement, presets};
use flashsift_study::describe::{
    Audience, Description, Figure, Part, Piece, Section, Table, Value,
};

const WIDTH: usize = 80;
/// Names are not cut below this width.
const NAME_MIN: usize = 24;

/// Returns the whole text. `notes`: sentences about the trace that follow the first one. `color`:
/// titles in bold.
pub(super) fn render(
    name: &str,
    format: &str,
    notes: &[String],
    description: &Description,
    color: bool,
) -> String {
    let bold = |text: &str| if color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
    let mut out = format!(
        "{} ({format})\n\n{}",
        bold(&flashsift_events::show::name(name)),
        paragraph(&opening(notes, description))
    );
    for Section { spec, found } in &description.sections {
        let Ok(found) = found else { continue };
        let shown = found.parts.iter().filter_map(part).collect::<String>();
        if !shown.is_empty() {
            out += &format!("\n{}\n{shown}", bold(spec.title));
        }
    }
    out + &missing(&description.sections)
}

/// Returns the sentences at the top.
fn opening(notes: &[String], description: &Description) -> String {
    let notes = notes.iter().cloned();
    let all = std::iter::once(about(description)).chain(notes).chain(sentences(description));
    all.collect::<Vec<_>>().join(" ")
}

/// Describes the input.
pub(super) fn about(description: &Description) -> String {
    html_page::requests(description.about, description.requests, description.duration_us) + "."
}

/// Returns the main results, shown at the top.
pub(super) fn sentences(description: &Description) -> impl Iterator<Item = String> {
    let opening = description.sections.iter().filter(|section| section.spec.opens);
    let found = opening.filter_map(|section| section.found.as_ref().ok());
    found.filter_map(|found| found.sentence.as_ref()).map(|sentence| render_sentence(sentence))
}

/// Joins the pieces of a sentence, with values formatted for people.
pub(crate) fn render_sentence(sentence: &[Piece]) -> String {
    let words = sentence.iter().map(|piece| match piece {
        Piece::Words(words) => (*words).to_owned(),
        Piece::Text(text) => (**text).to_owned(),
        Piece::Value(value) => unbroken(&show(value)),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn paragraph(text: &str) -> String {
    labelled("", 2, text, WIDTH).replace('\u{a0}', " ")
}

fn part(part: &Part) -> Option<String> {
    match part {
        Part::Figures(figures) if figures.is_empty() => None,
        Part::Figures(figures) => {
            Some(lines(&figures.iter().map(figure).collect::<Vec<_>>(), None))
        }
        Part::Table(table) if table.audience == Audience::Programs || table.rows.is_empty() => None,
        Part::Table(table) => Some(shown(table)),
        Part::Note(words) => Some(paragraph(words)),
        // Not wrapped: it is to be copied.
        Part::Command(command) => Some(format!("  {command}\n")),
    }
}

/// A cell: its text, and whether it is aligned right.
struct TextCell {
    text: String,
    right: bool,
}

impl From<&Value> for TextCell {
    fn from(value: &Value) -> Self {
        let right = !matches!(value, Value::Label { .. } | Value::Name(_));
        Self { text: show(value), right }
    }
}

fn figure(figure: &Figure) -> Vec<TextCell> {
    let label = TextCell { text: figure.label.to_owned(), right: false };
    let nothing = TextCell { text: String::new(), right: true };
    vec![label, (&figure.value).into(), figure.share.as_ref().map_or(nothing, TextCell::from)]
}

fn shown(table: &Table) -> String {
    let mut rows: Vec<Vec<TextCell>> =
        table.rows.iter().map(|row| row.iter().map(TextCell::from).collect()).collect();
    let titles: Vec<&str> = table.columns.iter().map(|column| column.title).collect();
    // Names get the width that the other columns leave; short ones take no more than they need.
    let width = |n: usize| {
        let cells = rows.iter().map(|row| row[n].text.chars().count());
        cells.chain([titles[n].chars().count()]).max().unwrap_or(0) + 2
    };
    let is_name = |n: &usize| table.rows.iter().any(|row| matches!(row[*n], Value::Name(_)));
    let others: usize = (0..titles.len()).filter(|n| !is_name(n)).map(width).sum();
    let mut names: Vec<(usize, usize)> = (0..titles.len())
        .filter(is_name)
        .map(|n| {
            let names = table.rows.iter().filter_map(|row| match &row[n] {
                Value::Name(name) => Some(flashsift_events::show::name(name).chars().count()),
                _ => None,
            });
            (names.max().unwrap_or(0).max(titles[n].chars().count()), n)
        })
        .collect();
    names.sort_unstable();
    let mut left = WIDTH.saturating_sub(others + 2 + 2 * names.len());
    for (at, (wanted, n)) in names.iter().enumerate() {
        let fair = left / (names.len() - at);
        let name_width = fair.max(NAME_MIN / (names.len() - at)).min(*wanted).max(1);
        left = left.saturating_sub(name_width);
        for (row, values) in rows.iter_mut().zip(&table.rows) {
            if let Value::Name(name) = &values[*n] {
                row[*n].text = shortened(name, name_width);
            }
        }
    }
    lines(&rows, titles.iter().any(|title| !title.is_empty()).then_some(&titles))
}

/// Aligns cells in columns.
fn lines(rows: &[Vec<TextCell>], titles: Option<&[&str]>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING);
    table.force_no_tty();
    table.set_content_arrangement(ContentArrangement::Disabled);
    if let Some(titles) = titles {
        table.set_header(titles);
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| &cell.text));
    }
    for (n, column) in table.column_iter_mut().enumerate() {
        // A share has a column of its own. Behind a single space, as the digits of a number are
        // grouped by one, `40 622 31 %` read as one number.
        if rows.iter().any(|row| row[n].right) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!(" {}\n", line.trim_end())).collect()
}

/// Cuts a name in the middle: its beginning shows the owner of a file, and its end the file.
pub(crate) fn shortened(name: &str, width: usize) -> String {
    let name = flashsift_events::show::name(name);
    let chars = name.chars().count();
    if chars <= width {
        return name.into_owned();
    }
    let before = (width - 1) / 3;
    let after = width - 1 - before;
    name.chars().take(before).chain(['…']).chain(name.chars().skip(chars - after)).collect()
}

/// Formats a value for people.
pub(super) fn show(value: &Value) -> String {
    match value {
        Value::Count(n) => size::count(*n),
        Value::Bytes(n) => size::bytes(*n),
        Value::TimeUs(us) => size::duration(*us),
        Value::Share(share) => size::share(*share),
        Value::Number(number) if *number >= 100.0 => size::count(number.round() as u64),
        Value::Number(number) if (f64::MIN_POSITIVE..0.05).contains(number) => {
            size::significant(*number)
        }
        Value::Number(number) => format!("{number:.1}"),
        Value::Label { label, .. } => (*label).to_owned(),
        Value::Name(name) => shortened(name, 40),
        Value::Absent => "–".to_owned(),
    }
}

/// Lists the sections that are not shown, one reason on a line.
fn missing(sections: &[Section]) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for section in sections {
        let Err(reason) = section.found else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, titles)) => titles.push(section.spec.title),
            None => reasons.push((reason, vec![section.spec.title])),
        }
    }
    let mut out = String::new();
    if !reasons.is_empty() {
        out += "\nLeft out, because the trace has\n";
    }
    for (reason, titles) in reasons {
        out += &paragraph(&format!("{reason}: {}", titles.join("; ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number and its share stood one space apart, and the digits of a number are grouped by one:
    /// `40 622 31 %`. The share is in a column of its own, without a title as with one.
    #[test]
    fn a_number_and_its_share_are_apart() {
        let first = Figure::new("first", "first accesses", Value::Count(40_622)).share(31, 100);
        let shown = part(&Part::Figures(vec![first])).unwrap();
        assert_eq!(shown, "  first accesses  40\u{202f}622  31 %\n");
        let mut table = Table::new("t", &[("of", "of"), ("n", "number"), ("n_share", "")]);
        table.push([Value::label("a", "all"), Value::Count(77), Value::Share(0.77)]);
        let shown = part(&Part::Table(table)).unwrap();
        assert_eq!(shown, "  of   number\n  all      77  77 %\n");
    }
}
