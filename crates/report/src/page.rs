//! The page: text, figures, tables, and the commands that reproduce it.

use crate::{
    canvas::UNITS,
    chart::{Chart, Ink, Marks, Unit},
    draw::{self, Width, dot, marker},
};
use flashsift_events::show;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::json;

/// The content of a whole page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Title of the page.
    pub title: String,
    /// The input, in one line.
    pub subtitle: String,
    /// The main results, one sentence each.
    pub lead: Vec<String>,
    /// Sections of the page.
    pub sections: Vec<Section>,
    /// A title, and sections that are shown when it is opened: most readers do not need them.
    pub folded: Option<(String, Vec<Section>)>,
    /// Commands and versions that reproduce it.
    pub reproduce: Reproduce,
}

/// A part of the page with a heading.
#[derive(Clone, Debug)]
pub struct Section {
    /// For links: letters, digits and dashes.
    pub id: String,
    /// Heading of the section.
    pub title: String,
    /// Content of the section.
    pub blocks: Vec<Block>,
}

/// One piece of a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// A paragraph of text.
    Words(String),
    /// A paragraph with a caveat.
    Note(String),
    /// A finding of a paper, for comparison.
    Paper(String),
    /// Labels and values, one pair a line.
    List(Vec<(String, String)>),
    /// A figure with its title and data.
    Figure(Figure),
    /// A table of values.
    Table(Table),
}

/// A drawing with a title and its values.
#[derive(Clone, Debug)]
pub struct Figure {
    /// For links and file names: letters, digits and dashes.
    pub id: String,
    /// Title of the figure.
    pub title: String,
    /// A sentence on the result; may be empty.
    pub caption: String,
    /// A finding of a paper, for comparison; may be empty.
    pub paper: String,
    /// Usually one view; the reader chooses among several.
    pub views: Vec<View>,
    /// Index of the view that is shown first.
    pub first: usize,
}

/// The part of a figure that is visible at once.
#[derive(Clone, Debug)]
pub struct View {
    /// Label of the choice.
    pub label: String,
    /// Charts, side by side if the window is wide enough.
    pub panels: Vec<Chart>,
}

impl Figure {
    /// Creates a figure of one chart.
    pub fn new(id: &str, title: impl Into<String>, chart: Chart) -> Self {
        let view = View { label: String::new(), panels: vec![chart] };
        Self {
            id: id.to_owned(),
            title: title.into(),
            caption: String::new(),
            paper: String::new(),
            views: vec![view],
            first: 0,
        }
    }

    /// Returns the figure with a sentence on the result.
    pub fn caption(self, caption: impl Into<String>) -> Self {
        Self { caption: caption.into(), ..self }
    }

    /// Returns the figure with a finding of a paper.
    pub fn paper(self, paper: impl Into<String>) -> Self {
        Self { paper: paper.into(), ..self }
    }
}

/// A table that the reader can sort.
#[derive(Clone, Debug)]
pub struct Table {
    /// For links: letters, digits and dashes.
    pub id: String,
    /// Title of the table.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows with one cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// The table is unfolded at first.
    pub open: bool,
}

/// Text of a cell, and the value that it is sorted by.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Displayed text.
    pub text: String,
    /// Sort key, if it is a number.
    pub value: Option<f64>,
    /// Highlighted, as the best of its column.
    pub strong: bool,
}

impl Cell {
    /// Creates a cell of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: None, strong: false }
    }

    /// Creates a cell of a number, shown in its unit.
    pub fn value(unit: Unit, value: f64) -> Self {
        Self { text: unit.show(value), value: Some(value), strong: false }
    }

    /// Returns the cell, highlighted or not.
    pub fn strong(self, strong: bool) -> Self {
        Self { strong, ..self }
    }
}

/// Commands and versions that reproduce a page.
#[derive(Clone, Debug, Default)]
pub struct Reproduce {
    /// Commands as typed into a shell.
    pub commands: Vec<String>,
    /// Versions, the trace, and the records that were left out of it.
    pub card: Vec<(String, String)>,
}

/// Legends with more entries are omitted, as tooltips name the series.
const LEGEND_MAX: usize = 40;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

impl Page {
    /// Returns the page as HTML. A name in it changes neither the order of characters nor the
    /// terminal of a person who prints the page.
    pub fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    // The browser fetches nothing, regardless of the names in the page.
                    meta http-equiv="Content-Security-Policy"
                        content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                    link rel="icon" href="data:,";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        h1 { (self.title) }
                        p.subtitle { (self.subtitle) }
                    }
                    main {
                        @if !self.lead.is_empty() {
                            section #in-short {
                                h2 { "In short" }
                                ul.lead { @for sentence in &self.lead { li { (options_whole(&unbroken(sentence))) } } }
                            }
                        }
                        nav aria-label="Contents" {
                            @for section in &self.sections { a href={ "#" (section.id) } { (section.title) } " " }
                            @if let Some((title, _)) = &self.folded { a href="#folded" { (title) } " " }
                            a href="#reproduce" { "How to reproduce this" }
                        }
                        @for section in &self.sections { (section.html()) }
                        @if let Some((title, sections)) = &self.folded {
                            details.sections #folded {
                                summary { (title) }
                                nav aria-label=(title) {
                                    @for section in sections { a href={ "#" (section.id) } { (section.title) } " " }
                                }
                                @for section in sections { (section.html()) }
                            }
                        }
                        (self.reproduce.html())
                    }
                    div #tip role="status" aria-live="polite" hidden {}
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        };
        show::lines(&page.into_string(), false).into_owned()
    }
}

impl Section {
    fn html(&self) -> Markup {
        html! {
            section id=(self.id) {
                h2 { (self.title) }
                @for block in &self.blocks {
                    @match block {
                        Block::Words(words) => p { (options_whole(words)) },
                        Block::Note(words) => p.note { (options_whole(words)) },
                        Block::Paper(words) => p.paper { (words) },
                        Block::List(lines) => (list(lines)),
                        Block::Figure(figure) => (figure.html()),
                        Block::Table(table) => (table.html()),
                    }
                }
            }
        }
    }
}

/// Replaces the space between a number and its unit, so that no line breaks there.
fn unbroken(words: &str) -> String {
    ["%", "B", "KiB", "MiB", "GiB", "TiB", "s", "ms"].iter().fold(
        words.to_owned(),
        |words, unit| {
            let mut out = String::with_capacity(words.len());
            let mut rest = &*words;
            while let Some(at) = rest.find(&format!(" {unit}")) {
                let (before, after) = rest.split_at(at);
                let ends = !after[1 + unit.len()..].starts_with(char::is_alphanumeric);
                out += before;
                out.push(if ends && before.ends_with(|c: char| c.is_ascii_digit()) {
                    '\u{a0}'
                } else {
                    ' '
                });
                rest = &after[1..];
            }
            out + rest
        },
    )
}

fn list(lines: &[(String, String)]) -> Markup {
    html! { dl { @for (label, value) in lines { div { dt { (label) } dd { (options_whole(&unbroken(value))) } } } } }
}

/// Keeps each option on one line: a browser breaks `--policy` behind its hyphens.
fn options_whole(words: &str) -> Markup {
    html! {
        @for (n, word) in words.split(' ').enumerate() {
            @if n > 0 { " " }
            @if word.contains("--") { span.option { (word) } } @else { (word) }
        }
    }
}

impl Figure {
    fn html(&self) -> Markup {
        let mut legend: Vec<(String, Ink)> = Vec::new();
        for (name, ink) in
            self.views.iter().flat_map(|view| &view.panels).flat_map(|chart| chart.marks.legend())
        {
            if legend.iter().all(|(other, _)| *other != name) {
                legend.push((name, ink));
            }
        }
        let charts = || self.views.iter().flat_map(|view| &view.panels);
        let points = charts().all(|chart| matches!(chart.marks, Marks::Points { .. }));
        let lines = charts().any(|chart| matches!(chart.marks, Marks::Lines(_)));
        let swatches = match (points, lines) {
            (true, _) => Swatches::Points,
            (_, true) => Swatches::Lines,
            _ => Swatches::Areas,
        };
        if swatches != Swatches::Areas {
            // Important series come first.
            legend.sort_by_key(|(_, ink)| *ink);
        }
        html! {
            figure #(self.id) {
                figcaption {
                    h3 { (self.title) }
                    @if !self.caption.is_empty() { p.caption { (options_whole(&unbroken(&self.caption))) } }
                    @if !self.paper.is_empty() { p.paper { (self.paper) } }
                }
                @if self.views.len() > 1 {
                    div.choice role="radiogroup" aria-label="Shown" {
                        @for (n, view) in self.views.iter().enumerate() {
                            label {
                                input type="radio" name={ "view-" (self.id) } checked[n == self.first];
                                span { (view.label) }
                            }
                        }
                    }
                }
                div.views {
                    @for view in &self.views { (self.view(view)) }
                }
                @if (2..=LEGEND_MAX).contains(&legend.len()) { (legend_html(&legend, swatches)) }
                div.tools {
                    button type="button" data-get="svg" { "SVG" }
                    button type="button" data-get="csv" { "CSV" }
                }
                script type="application/json" { (PreEscaped(self.data())) }
            }
        }
    }

    fn view(&self, view: &View) -> Markup {
        let several = view.panels.len() > 1;
        html! {
            div.view data-label=[(!view.label.is_empty()).then_some(&view.label)] {
                @for chart in &view.panels {
                    @let parts = [&self.title, &view.label, &chart.title];
                    @let label = parts.into_iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", ");
                    div.panel.several[several] {
                        @if !chart.title.is_empty() { h4 { (chart.title) } }
                        @if !several { (PreEscaped(draw::svg(chart, Width::Wide, &label))) }
                        (PreEscaped(draw::svg(chart, Width::Narrow, &label)))
                    }
                }
            }
        }
    }

    /// All values for the script, as JSON inside HTML, where `<` must be escaped. So are characters
    /// that the page must not contain.
    fn data(&self) -> String {
        let columns = self.views.iter().flat_map(|view| &view.panels).next().map(Chart::columns);
        let mut rows = Vec::new();
        for view in &self.views {
            for chart in &view.panels {
                for row in chart.rows() {
                    let place = [json!(view.label), json!(chart.title)];
                    rows.push(place.into_iter().chain(row).collect::<Vec<_>>());
                }
            }
        }
        let columns: Vec<String> = ["view".to_owned(), "panel".to_owned()]
            .into_iter()
            .chain(columns.unwrap_or_default())
            .collect();
        let json = json!({ "columns": columns, "rows": rows }).to_string();
        let mut data = String::with_capacity(json.len());
        for c in json.chars() {
            match c {
                '<' => data.push_str("\\u003c"),
                c if show::is_inert(c) => data.push(c),
                c => c
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|unit| data.push_str(&format!("\\u{unit:04x}"))),
            }
        }
        data
    }
}

/// The marks that the entries of a legend stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Swatches {
    Areas,
    Lines,
    Points,
}

fn legend_html(legend: &[(String, Ink)], swatches: Swatches) -> Markup {
    const MIDDLE: (i32, i32) = (10 * UNITS, 6 * UNITS);
    let swatch = |ink: Ink| {
        let shape = match (swatches, ink) {
            (Swatches::Areas, _) => {
                format!(
                    r#"<path class="patch" d="M{0} {1}h{2}v{2}h-{2}z"/>"#,
                    4 * UNITS,
                    UNITS,
                    10 * UNITS
                )
            }
            (Swatches::Points, Ink::Series(n)) => marker(n, MIDDLE),
            (Swatches::Points, _) => dot(MIDDLE),
            (Swatches::Lines, Ink::Series(n)) => line() + &marker(n, MIDDLE),
            (Swatches::Lines, _) => line(),
        };
        let view = format!("0 0 {} {}", 20 * UNITS, 12 * UNITS);
        html! { svg.(ink.class()) viewBox=(view) aria-hidden="true" { (PreEscaped(shape)) } }
    };
    html! {
        ul.legend {
            @for (name, ink) in legend {
                li { button type="button" data-n=(name) aria-pressed="false" { (swatch(*ink)) (name) } }
            }
        }
    }
}

fn line() -> String {
    format!(r#"<path class="line" d="M0 {}H{}"/>"#, 6 * UNITS, 20 * UNITS)
}

/// A table with more columns is printed on paper in landscape.
const BROAD: usize = 10;

impl Table {
    fn html(&self) -> Markup {
        // A header is aligned as the cells below it.
        let is_number = |n: usize| {
            n > 0 && self.rows.iter().any(|row| row.get(n).is_some_and(|cell| cell.value.is_some()))
        };
        html! {
            details.table.broad[self.columns.len() > BROAD] #(self.id) open[self.open] {
                summary { (self.title) }
                div.scroll {
                    table {
                        thead {
                            tr {
                                @for (n, column) in self.columns.iter().enumerate() {
                                    th.number[is_number(n)] scope="col" { button type="button" { (column) } }
                                }
                            }
                        }
                        tbody {
                            @for row in &self.rows {
                                tr {
                                    @for (n, cell) in row.iter().enumerate() {
                                        @if n == 0 { th scope="row" data-v=[cell.value] { (cell.text) } }
                                        @else {
                                            td.number[cell.value.is_some()].strong[cell.strong] data-v=[cell.value] { (cell.text) }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Reproduce {
    fn html(&self) -> Markup {
        html! {
            section #reproduce {
                h2 { "How to reproduce this" }
                @if !self.commands.is_empty() { pre { @for command in &self.commands { code { (options_whole(command)) "\n" } } } }
                (list(&self.card))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_ends_before_a_unit() {
        assert_eq!(
            unbroken("4.7 % of 16 MiB in 3 s, 5 some 2 B"),
            "4.7\u{a0}% of 16\u{a0}MiB in 3\u{a0}s, 5 some 2\u{a0}B"
        );
        assert_eq!(unbroken("a % b s"), "a % b s");
    }

    /// On paper, `--` and `policy` of one option stood on two lines.
    #[test]
    fn no_line_ends_within_an_option() {
        assert_eq!(
            options_whole("give --policy lru (or --drain), a-b").into_string(),
            "give <span class=\"option\">--policy</span> lru (or <span class=\"option\">--drain),\
             </span> a-b"
        );
        assert_eq!(options_whole("a < b").into_string(), "a &lt; b");
    }

    /// Headers of text were aligned right over text that is aligned left, and the legend of points
    /// showed the line of a bound that no figure has.
    #[test]
    fn headers_and_legends_match_what_they_name() {
        let table = Table {
            id: "t".to_owned(),
            title: "T".to_owned(),
            columns: ["what", "field", "before"].map(str::to_owned).to_vec(),
            rows: vec![vec![Cell::text("a"), Cell::text("b"), Cell::value(Unit::Count, 1.0)]],
            open: true,
        };
        let html = table.html().into_string();
        assert_eq!(html.matches("<th class=\"number\"").count(), 1, "{html}");
        assert!(html.contains("<th class=\"number\" scope=\"col\"><button type=\"button\">before"));
        let legend = [("lru".to_owned(), Ink::Series(0)), ("belady".to_owned(), Ink::Bound)];
        let lines = legend_html(&legend, Swatches::Lines).into_string();
        let points = legend_html(&legend, Swatches::Points).into_string();
        assert_eq!(lines.matches("class=\"line\"").count(), 2, "{lines}");
        assert_eq!(points.matches("class=\"line\"").count(), 0, "{points}");
        assert_eq!(points.matches("class=\"mark\"").count(), 2, "{points}");
    }
}
