//! Joins the pages of comparisons that differ in their modes of write-back: figures get a view for
//! each choice of modes, and texts and tables name it.

use flashsift_report::{Block, Figure, Page, Section, View};

/// Joins pages, each with the name of its modes. A single page stays as it is.
pub(super) fn merged<'a>(pages: impl Iterator<Item = (Option<&'a str>, Page)>) -> Page {
    let mut pages = pages.map(|(mode, page)| match mode {
        Some(mode) => named(page, mode),
        None => page,
    });
    let mut all = pages.next().expect("a comparison has at least one choice of modes");
    for page in pages {
        all.lead.extend(page.lead);
        for section in page.sections {
            match all.sections.iter_mut().find(|other| other.id == section.id) {
                Some(other) => join(other, section),
                None => all.sections.push(section),
            }
        }
    }
    all
}

/// Adds the blocks of a section to the same one of another page.
fn join(into: &mut Section, section: Section) {
    for block in section.blocks {
        match block {
            Block::Figure(figure) => {
                let mut figures = into.blocks.iter_mut().filter_map(|block| match block {
                    Block::Figure(other) => Some(other),
                    _ => None,
                });
                match figures.find(|other| other.id == figure.id) {
                    Some(other) => other.views.extend(figure.views),
                    None => into.blocks.push(Block::Figure(figure)),
                }
            }
            Block::Table(mut table) => {
                table.id = format!("{}-{}", table.id, into.blocks.len());
                table.open = false;
                into.blocks.push(Block::Table(table));
            }
            Block::Note(words) => {
                let same = |block: &Block| matches!(block, Block::Note(other) if *other == words);
                if !into.blocks.iter().any(same) {
                    into.blocks.push(Block::Note(words));
                }
            }
            other => into.blocks.push(other),
        }
    }
}

/// Names the modes in everything that differs between them.
fn named(page: Page, mode: &str) -> Page {
    let lead = page.lead.into_iter().map(|line| format!("With --writeback {mode}: {line}"));
    let sections = page.sections.into_iter().map(|section| {
        let blocks = section.blocks.into_iter().flat_map(|block| match block {
            Block::Figure(figure) => vec![Block::Figure(in_views(figure, mode))],
            Block::Table(mut table) => {
                table.title += &format!(", --writeback {mode}");
                vec![Block::Table(table)]
            }
            Block::List(lines) => {
                vec![Block::Words(format!("With --writeback {mode}:")), Block::List(lines)]
            }
            other => vec![other],
        });
        Section { blocks: blocks.collect(), ..section }
    });
    Page { lead: lead.collect(), sections: sections.collect(), ..page }
}

fn in_views(figure: Figure, mode: &str) -> Figure {
    let views = figure.views.into_iter().map(|view| {
        let label = match view.label.as_str() {
            "" => mode.to_owned(),
            label => format!("{label}, {mode}"),
        };
        View { label, ..view }
    });
    Figure { views: views.collect(), ..figure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_report::{Axis, Chart, Marks, Reproduce, Table, Unit};

    fn chart() -> Chart {
        let axis = || Axis::new("", Unit::Count);
        Chart { title: String::new(), x: axis(), y: axis(), marks: Marks::Lines(Vec::new()) }
    }

    fn page(own: &str) -> Page {
        let by_size = Figure {
            views: ["1 MiB", "2 MiB"]
                .map(|label| View { label: label.to_owned(), panels: vec![chart()] })
                .to_vec(),
            ..Figure::new("by-size", "", chart())
        };
        let table = Table {
            id: "table-0".to_owned(),
            title: "Cache".to_owned(),
            columns: Vec::new(),
            rows: Vec::new(),
            open: true,
        };
        let section =
            |id: &str, blocks| Section { id: id.to_owned(), title: id.to_owned(), blocks };
        let figures = vec![Block::Figure(Figure::new("hits", "", chart())), Block::Figure(by_size)];
        Page {
            title: "trace".to_owned(),
            subtitle: String::new(),
            lead: vec!["A sentence.".to_owned()],
            sections: vec![
                section("figures", figures),
                section("tables", vec![Block::Table(table)]),
                section("notes", ["shared", own].map(|note| Block::Note(note.into())).to_vec()),
            ],
            folded: None,
            reproduce: Reproduce::default(),
        }
    }

    /// One figure has the views of all modes; tables keep identifiers of their own, and notes that
    /// all share appear once.
    // Promises: Write-back 17.
    #[test]
    fn modes_become_views() {
        let pages = [(Some("linux"), page("one")), (Some("evict"), page("other"))];
        let all = merged(pages.into_iter());
        let labels = |block: &Block| match block {
            Block::Figure(figure) => {
                figure.views.iter().map(|view| view.label.clone()).collect::<Vec<_>>()
            }
            _ => panic!("a figure"),
        };
        let [figures, tables, notes] = &all.sections[..] else { panic!("three sections") };
        assert_eq!(labels(&figures.blocks[0]), ["linux", "evict"]);
        let by_size = ["1 MiB, linux", "2 MiB, linux", "1 MiB, evict", "2 MiB, evict"];
        assert_eq!(labels(&figures.blocks[1]), by_size);
        let [Block::Table(one), Block::Table(other)] = &tables.blocks[..] else { panic!("tables") };
        assert!(one.id != other.id && one.open && !other.open);
        assert_eq!(other.title, "Cache, --writeback evict");
        assert_eq!(notes.blocks.len(), 3);
        assert_eq!(all.lead[1], "With --writeback evict: A sentence.");
    }
}
