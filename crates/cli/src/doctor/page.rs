//! The examination as a page: programs, remedies, and the figures of the description.

use super::{Outcome, text};
use crate::{describe, html_page, size};
use flashsift_report::{Block, Cell, Page, Section, Table, Unit};
use flashsift_study::doctor::Examination;

pub(super) fn build(outcome: &Outcome) -> Page {
    let examination = &outcome.examination;
    let described = describe::page::sections(&examination.description);
    Page {
        title: "Writers of the flash of this machine".to_owned(),
        subtitle: format!("Watched for {}.", size::duration(examination.duration_us)),
        lead: text::sentences(outcome),
        sections: vec![writers(examination), remedies(examination)],
        folded: Some(("Details of the writes".to_owned(), described)),
        reproduce: html_page::command(),
    }
}

fn writers(examination: &Examination) -> Section {
    let columns =
        ["program", "file", "file data", "journal, metadata", "an hour", "fsyncs", "remedies"];
    let mut rows = Vec::new();
    for writer in &examination.writers {
        let remedies: Vec<_> = writer.remedies.iter().map(usize::to_string).collect();
        for file in &writer.files {
            rows.push(vec![
                Cell::text(&*writer.name),
                Cell::text(&*file.name),
                Cell::value(Unit::Bytes, file.reached_bytes as f64),
                Cell::value(Unit::Bytes, file.file_system_bytes as f64),
                Cell::value(Unit::Bytes, file.bytes_per_hour),
                Cell::value(Unit::Count, file.syncs as f64),
                Cell::text(remedies.join(", ")),
            ]);
        }
    }
    let table = Table {
        id: "writers-table".to_owned(),
        title: "Programs and their files".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
        open: true,
    };
    Section {
        id: "writers".to_owned(),
        title: "Writers".to_owned(),
        blocks: vec![Block::Table(table)],
    }
}

fn remedies(examination: &Examination) -> Section {
    let mut blocks = Vec::new();
    for remedy in &examination.remedies {
        let saves = remedy.saving.as_ref().map_or_else(|| "not estimated".to_owned(), text::saved);
        blocks.push(Block::Words(format!("{}. {}.", remedy.number, remedy.title)));
        let mut lines = vec![
            ("saves".to_owned(), saves),
            ("why".to_owned(), remedy.evidence.clone()),
            ("price".to_owned(), remedy.price.clone()),
        ];
        let unconfirmed = remedy.unconfirmed.iter();
        lines.extend(unconfirmed.map(|why| ("but".to_owned(), format!("not confirmed: {why}"))));
        let kinds = [("do", &remedy.commands), ("keep", &remedy.lasting), ("undo", &remedy.undo)];
        for (label, commands) in kinds {
            let labels = std::iter::once(label).chain(std::iter::repeat(""));
            lines.extend(labels.zip(commands).map(|(label, one)| (label.to_owned(), one.clone())));
        }
        blocks.push(Block::List(lines));
    }
    if blocks.is_empty() {
        let words = "Nothing that is known here saves 0.5 % of the writes or more.";
        blocks.push(Block::Words(words.to_owned()));
    }
    Section { id: "remedies".to_owned(), title: "Remedies".to_owned(), blocks }
}
