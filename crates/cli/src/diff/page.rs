//! The page of a comparison of two runs.

use super::{Change, Diff, relative, shown};
use crate::html_page;
use flashsift_report::{
    Axis, Block, Cell, Chart, Figure, Ink, Marks, Page, Point, Section, Table, Unit,
};
use std::collections::BTreeMap;

/// Largest number of fields with a figure.
const FIGURES_MAX: usize = 12;

pub(super) fn build(diff: &Diff, names: &[String; 2]) -> Page {
    let figures =
        diff.by_field().into_iter().filter(|(_, changes)| changes.len() > 1).take(FIGURES_MAX);
    let inks = inks(&diff.changes);
    let figures: Vec<Block> =
        figures.map(|(field, changes)| Block::Figure(figure(field, &changes, &inks))).collect();
    let mut sections = Vec::new();
    if !diff.judged.is_empty() {
        sections.push(Section {
            id: "policies".to_owned(),
            title: "By policy".to_owned(),
            blocks: vec![Block::List(diff.judged.clone())],
        });
    }
    if !figures.is_empty() {
        sections.push(Section {
            id: "figures".to_owned(),
            title: "Before against after".to_owned(),
            blocks: figures,
        });
    }
    if !diff.changes.is_empty() {
        let table = Block::Table(table(&diff.changes));
        sections.push(Section {
            id: "changes".to_owned(),
            title: "All changes".to_owned(),
            blocks: vec![table],
        });
    }
    Page {
        title: format!("Changes from {} to {}", names[0], names[1]),
        subtitle: match &diff.traces {
            [before, after] if before == after => format!("Two runs over {before}."),
            [before, after] => format!("A run over {before}, and one over {after}."),
        },
        lead: diff.sentences(),
        sections,
        folded: None,
        reproduce: html_page::command(),
    }
}

fn unit(field: &str) -> Unit {
    match field.rsplit('_').next() {
        Some("bytes") => Unit::Bytes,
        Some("us") => Unit::TimeUs,
        Some("share") => Unit::Share,
        _ => Unit::Number,
    }
}

/// Gives the owners of the largest changes colours of their own, the same in all figures. Whether a
/// value rose is seen by the line of unchanged values.
fn inks(changes: &[Change]) -> BTreeMap<&str, Ink> {
    let mut inks = BTreeMap::new();
    let mut series = (0..Ink::SERIES).map(Ink::Series);
    for change in changes {
        inks.entry(&*change.of).or_insert_with(|| series.next().unwrap_or(Ink::Other));
    }
    inks
}

/// A figure of each changed value before and after; the line marks equal values.
fn figure(field: &str, changes: &[&Change], inks: &BTreeMap<&str, Ink>) -> Figure {
    let points = changes.iter().map(|change| Point {
        name: change.of.clone(),
        ink: inks.get(&*change.of).copied().unwrap_or(Ink::Other),
        at: (change.before, change.after),
    });
    let all = || changes.iter().flat_map(|change| [change.before, change.after]);
    let (least, most) =
        (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    let unit = unit(field);
    let marks =
        Marks::Points { points: points.collect(), front: vec![(least, least), (most, most)] };
    let chart = Chart {
        title: String::new(),
        x: Axis::new("before", unit).range(least, most),
        y: Axis::new("after", unit).range(least, most),
        marks,
    };
    let up = changes.iter().filter(|change| change.after > change.before).count();
    Figure::new(&format!("field-{}", field.replace('_', "-")), field, chart).caption(format!(
        "{up} rose, {} fell; the dotted line marks unchanged values.",
        changes.len() - up
    ))
}

fn table(changes: &[Change]) -> Table {
    let columns = ["what", "field", "before", "after", "change"].map(str::to_owned).to_vec();
    let rows = changes.iter().map(|change| {
        let value = |value: f64| Cell {
            text: shown(&change.field, value),
            value: Some(value),
            strong: false,
        };
        let relative =
            Cell { text: relative(change), value: change.change.or(Some(f64::MAX)), strong: false };
        vec![
            Cell::text(&change.of),
            Cell::text(&change.field),
            value(change.before),
            value(change.after),
            relative,
        ]
    });
    Table {
        id: "table".to_owned(),
        title: "Largest first".to_owned(),
        columns,
        rows: rows.collect(),
        open: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All values that rose had one colour and one marker, so no entry of a legend helped. Each
    /// cell has its own, in every figure.
    #[test]
    fn cells_are_told_apart() {
        let change = |of: &str, field: &str| Change {
            schema: 1,
            of: of.to_owned(),
            field: field.to_owned(),
            before: 1.0,
            after: 2.0,
            change: Some(1.0),
        };
        let mut changes =
            vec![change("lru", "hits"), change("arc", "hits"), change("lru", "reads")];
        let found = inks(&changes);
        assert_eq!((found["lru"], found["arc"]), (Ink::Series(0), Ink::Series(1)));
        changes.extend((0..9).map(|n| change(&format!("p{n}"), "hits")));
        assert_eq!(inks(&changes)["p8"], Ink::Other);
    }
}
