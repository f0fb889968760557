//! The description as a page: for each characterisation its result for this trace, the finding of
//! its paper, and a figure.

use super::{Args, figures::FIGURES, text};
use crate::html_page;
use flashsift_report::{Block, Cell, Page, Section, Table};
use flashsift_study::describe::{self, Audience, Description, Part, Value};
use flashsift_traces::open::Outcome;

/// Builds the page of a description. `notes`: sentences about the trace that precede all others.
pub(super) fn build(
    args: &Args,
    name: &str,
    outcome: &Outcome,
    notes: Vec<String>,
    description: &Description,
) -> Page {
    Page {
        title: format!("{name}: description of the trace"),
        subtitle: text::about(description),
        lead: notes.into_iter().chain(text::sentences(description)).collect(),
        sections: sections(description),
        folded: None,
        reproduce: html_page::reproduce(&args.input, outcome),
    }
}

/// Builds the sections of the characterisations.
pub(crate) fn sections(description: &Description) -> Vec<Section> {
    let mut sections: Vec<Section> = description.sections.iter().filter_map(section).collect();
    let missing = description.sections.iter().filter_map(|section| {
        Some((
            section.spec.title.to_owned(),
            format!("the trace has {}", section.found.as_ref().err()?),
        ))
    });
    let missing: Vec<_> = missing.collect();
    if !missing.is_empty() {
        sections.push(Section {
            id: "left-out".to_owned(),
            title: "Left out".to_owned(),
            blocks: vec![Block::List(missing)],
        });
    }
    sections
}

fn section(section: &describe::Section) -> Option<Section> {
    let describe::Section { spec, found } = section;
    let found = found.as_ref().ok()?;
    let caption =
        found.sentence.as_ref().map(|sentence| text::render_sentence(sentence)).unwrap_or_default();
    let paper = match spec.paper_saw {
        "" => String::new(),
        saw => format!("{saw} — {}", spec.paper),
    };
    let id = spec.name.replace('_', "-");
    let draw = FIGURES.iter().find(|(name, _)| *name == spec.name);
    let mut figures = draw.map_or_else(Vec::new, |(_, draw)| draw(found));
    let mut blocks = Vec::new();
    match figures.first_mut() {
        Some(first) => {
            let how = std::mem::take(&mut first.caption);
            first.caption = [caption, how]
                .into_iter()
                .filter(|words| !words.is_empty())
                .collect::<Vec<_>>()
                .join(" ");
            first.paper = paper;
        }
        None => {
            blocks.extend(Some(caption).filter(|caption| !caption.is_empty()).map(Block::Words));
            blocks.extend(Some(paper).filter(|paper| !paper.is_empty()).map(Block::Paper));
        }
    }
    blocks.extend(figures.into_iter().map(Block::Figure));
    for part in &found.parts {
        match part {
            Part::Figures(figures) if figures.is_empty() => {}
            Part::Figures(figures) => blocks.push(Block::List(figures.iter().map(line).collect())),
            // Of the data of figures, only names add to the figure.
            Part::Table(found)
                if found.audience == Audience::All
                    || (found.audience == Audience::Programs && found.has("name")) =>
            {
                blocks.extend((!found.rows.is_empty()).then(|| Block::Table(table(&id, found))));
            }
            Part::Table(_) => {}
            Part::Note(words) => blocks.push(Block::Note(words.to_string())),
            Part::Command(command) => {
                blocks.push(Block::List(vec![("command".to_owned(), command.to_string())]));
            }
        }
    }
    (!blocks.is_empty()).then(|| Section { id, title: spec.title.to_owned(), blocks })
}

fn line(figure: &describe::Figure) -> (String, String) {
    let share =
        figure.share.as_ref().map_or(String::new(), |share| format!(" ({})", text::show(share)));
    (figure.label.to_owned(), format!("{}{share}", text::show(&figure.value)))
}

/// Builds a table; titles that the terminal leaves out are made of the keys.
fn table(section: &str, table: &describe::Table) -> Table {
    let title = |title: &str, key: &str| match title {
        "" if key.ends_with("_share") => "share".to_owned(),
        "" => key.trim_end_matches("_bytes").replace('_', " "),
        title => title.to_owned(),
    };
    let columns: Vec<String> =
        table.columns.iter().map(|column| title(column.title, column.key)).collect();
    Table {
        id: format!("{section}-{}", table.key.replace('_', "-")),
        title: capital(&match table.columns[0].title {
            "" => table.key.replace('_', " "),
            title => title.to_owned(),
        }),
        columns,
        rows: table.rows.iter().map(|row| row.iter().map(cell).collect()).collect(),
        open: table.audience == Audience::All,
    }
}

fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn cell(value: &Value) -> Cell {
    let text = match value {
        Value::Name(name) => name.to_string(),
        other => text::show(other),
    };
    Cell { text, value: value.number(), strong: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every figure belongs to a characterisation, and each has at most one.
    #[test]
    fn figures_are_of_what_there_is() {
        let names: BTreeSet<_> = FIGURES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), FIGURES.len());
        assert!(
            names.iter().all(|name| {
                ["readahead", "sift"].contains(name)
                    || describe::ALL.iter().any(|spec| spec.name == *name)
            }),
            "{names:?}"
        );
        // A characterisation after a figure of a paper has a figure.
        for spec in describe::ALL.iter().filter(|spec| spec.paper.contains("Fig.")) {
            assert!(names.contains(spec.name), "{} is not drawn", spec.name);
        }
    }
}
