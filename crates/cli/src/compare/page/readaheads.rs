//! Figures of read-ahead against the largest window: a line for each kind of read-ahead and policy.

use super::Comparison;
use flashsift_events::page::PAGE_BYTES;
use flashsift_pages::readahead::{self, ReadAheadModel, ReadCase};
use flashsift_report::{
    Axis, Bar, Block, Chart, Figure, Ink, Line, Marks, Scale, Section, Unit, View,
};
use flashsift_study::{Note, ResultRow, SizeResults};

/// A value of a row, in a drawing of its own.
struct Panel {
    /// Title of the drawing, where a figure has several.
    title: String,
    axis: &'static str,
    unit: Unit,
    of: Value,
}

/// Returns a value of a row; `None` where the row has none.
type Value = Box<dyn Fn(&ResultRow) -> Option<f64>>;

impl Panel {
    fn new(axis: &'static str, unit: Unit, of: fn(&ResultRow) -> Option<f64>) -> Self {
        Self { title: String::new(), axis, unit, of: Box::new(of) }
    }

    fn titled(self, title: impl Into<String>) -> Self {
        Self { title: title.into(), ..self }
    }
}

/// Draws the section on read-ahead, if several read-aheads are compared.
pub(super) fn section(run: &Comparison<'_>, lead: usize) -> Option<Section> {
    let rows = &run.sizes().first()?.rows;
    let first = rows.first()?.readahead.as_ref()?;
    if rows.iter().all(|row| row.readahead.as_ref() == Some(first)) {
        return None;
    }
    let series = Series::new(rows);
    let figure = |id: &str, title: &str, caption: &str, paper: &str, panels: &[Panel]| {
        let views = run.sizes().iter().filter_map(|size| {
            let panels: Vec<Chart> =
                panels.iter().filter_map(|panel| series.chart(size, panel, title)).collect();
            let label = format!("cache of {}", run.size_label(size));
            (!panels.is_empty()).then_some(View { label, panels })
        });
        let views: Vec<View> = views.collect();
        let figure = Figure {
            id: format!("readahead-{id}"),
            title: title.to_owned(),
            caption: caption.to_owned(),
            paper: paper.to_owned(),
            first: lead.min(views.len().saturating_sub(1)),
            views,
        };
        (!figure.views.is_empty()).then_some(Block::Figure(figure))
    };
    let figures = [
        figure(
            "efficiency",
            "Pages read ahead that are accessed",
            "Higher is better. Counted are the pages of windows that the request itself does not \
             ask for. Windows contain cached pages, too; only the others are read.",
            "Liang et al., Fig. 4b, 4e, 5c and 5f show accessed / asked for.",
            &[
                Panel::new("accessed / asked for", Unit::Share, |row| ahead(row).efficiency())
                    .titled("Of the pages asked for"),
                Panel::new("accessed / read", Unit::Share, |row| ahead(row).efficiency_of_read())
                    .titled("Of the pages read from the device"),
            ],
        ),
        figure(
            "hits",
            "Found in memory, by the largest window",
            "Higher is better. The first access to a page that was read ahead is a hit.",
            "Liang et al., Fig. 5a and 5d.",
            &[Panel::new("accesses that found their page", Unit::Share, |row| {
                Some(row.outcome.hit_ratio())
            })],
        ),
        figure(
            "wasted",
            "Read ahead for nothing",
            "Lower is better: read from the device, and not accessed before they left the cache.",
            "",
            &[Panel::new("read ahead and not accessed", Unit::Bytes, |row| {
                reads_ahead(row).then(|| (ahead(row).wasted() * PAGE_BYTES) as f64)
            })],
        ),
        figure(
            "requests",
            "Requests that read, and the size of windows",
            "Larger windows need fewer requests.",
            "Liang et al., Fig. 5b and 5e show the mean size.",
            &[
                Panel::new("requests to the device", Unit::Count, |row| {
                    Some(row.outcome.read_requests as f64)
                })
                .titled("Requests that read"),
                Panel::new("mean size", Unit::Bytes, |row| {
                    Some(ahead(row).mean_pages()? * PAGE_BYTES as f64)
                })
                .titled("Windows"),
            ],
        ),
        figure(
            "at-maximum",
            "Windows of the largest size",
            "Where most windows have it, a larger maximum would make larger windows.",
            "Liang et al., Fig. 4a and 4d.",
            &[Panel::new("share of the windows", Unit::Share, |row| ahead(row).share_at_max())],
        ),
        figure(
            "latency",
            "Mean latency of a read, by case",
            "Lower is better. A read finds all its pages in the cache, reads into free frames, \
             evicts clean pages for them, or has to write dirty ones first. The time is that of \
             its requests and of these writes, as fast as the device can.",
            "Liang et al., Table 3.",
            &latencies(rows, "latency", |case| case.latency_us()),
        ),
        figure(
            "wait",
            "Mean wait of a read, by case",
            "Lower is better. The same with requests at their recorded times: a read also waits \
             behind earlier requests, and for pages read ahead that have not arrived.",
            "",
            &latencies(rows, "wait", |case| case.stall_us()),
        ),
        figure(
            "time",
            "Time on the device, by the largest window",
            "Lower is better. Elapsed: all requests as fast as the device can. Stall: how long \
             applications wait, with requests at their recorded times.",
            "",
            &times(rows),
        ),
    ];
    let bounds = run.results.study().readahead_bounds();
    let blocks = bounds.iter().map(note).chain(figures.into_iter().flatten());
    Some(Section {
        id: "read-ahead".to_owned(),
        title: "Read-ahead".to_owned(),
        blocks: blocks.collect(),
    })
}

fn note(note: &Note) -> Block {
    Block::Note(note.to_string())
}

fn ahead(row: &ResultRow) -> &readahead::Counts {
    &row.outcome.readahead
}

fn reads_ahead(row: &ResultRow) -> bool {
    window_max_bytes(row).is_some_and(|bytes| bytes > 0.0)
}

/// Returns one panel for each device and case.
fn latencies(
    rows: &[ResultRow],
    axis: &'static str,
    of: fn(&flashsift_study::CaseLatency) -> Option<f64>,
) -> Vec<Panel> {
    let name = |case: ReadCase| match case {
        ReadCase::Cached => "cached",
        ReadCase::Free => "into free frames",
        ReadCase::EvictClean => "evicts clean pages",
        ReadCase::EvictDirty => "writes dirty pages first",
    };
    let devices = rows.first().map_or(&[][..], |row| &row.devices).iter().enumerate();
    let panels = devices.flat_map(|(at, device)| {
        ReadCase::ALL.map(|case| Panel {
            title: format!("{}, {}", device.device, name(case)),
            axis,
            unit: Unit::TimeUs,
            of: Box::new(move |row| of(&row.devices.get(at)?.read_cases?[case as usize])),
        })
    });
    panels.collect()
}

/// Returns the panels of each device: the time of all requests, and how long applications wait.
fn times(rows: &[ResultRow]) -> Vec<Panel> {
    let devices = rows.first().map_or(&[][..], |row| &row.devices).iter().enumerate();
    let panels = devices.flat_map(|(at, device)| {
        let panel = |what: &str, axis, of: Value| Panel {
            title: format!("{}, {what}", device.device),
            axis,
            unit: Unit::TimeUs,
            of,
        };
        [
            panel(
                "elapsed",
                "all requests",
                Box::new(move |row| Some(row.devices.get(at)?.elapsed_s * 1e6)),
            ),
            panel(
                "stall",
                "applications wait",
                Box::new(move |row| Some(row.devices.get(at)?.stall_s? * 1e6)),
            ),
        ]
    });
    panels.collect()
}

/// Returns the largest window of a row, 0 without read-ahead.
fn window_max_bytes(row: &ResultRow) -> Option<f64> {
    let selection = readahead::parse(row.readahead.as_deref()?).ok()?;
    Some((ReadAheadModel::new(&selection).pages_max() * PAGE_BYTES) as f64)
}

/// Parameters that give the largest window.
const SIZES: [&str; 2] = ["kib", "pages"];

/// The lines of all figures, each with its colour, in the order of the request.
struct Series {
    names: Vec<String>,
    /// Several policies are compared: their names are part of the lines'.
    policies: bool,
    /// A line has several points. Otherwise each row is a bar.
    lines: bool,
}

impl Series {
    fn new(rows: &[ResultRow]) -> Self {
        let policies = rows.iter().any(|row| policy(row) != policy(&rows[0]));
        let mut series = Self { names: Vec::new(), policies, lines: false };
        for row in rows {
            let name = series.name(row);
            if series.names.contains(&name) {
                series.lines = true;
            } else {
                series.names.push(name);
            }
        }
        series
    }

    /// Returns the name of a row without its largest window.
    fn name(&self, row: &ResultRow) -> String {
        let readahead = row.readahead.as_deref().unwrap_or("");
        self.named(row, &super::nvm_sizes::without_params(readahead, &SIZES))
    }

    fn named(&self, row: &ResultRow, readahead: &str) -> String {
        match self.policies {
            true => format!("{}, {readahead}", policy(row)),
            false => readahead.to_owned(),
        }
    }

    fn ink(&self, name: &str) -> Ink {
        let at = self.names.iter().position(|other| other == name);
        let series = at.and_then(|at| u8::try_from(at).ok()).filter(|at| *at < Ink::SERIES);
        series.map_or(Ink::Other, Ink::Series)
    }

    /// Draws a value of the rows of a size; nothing if no row has it. `what`: name of all bars.
    fn chart(&self, size: &SizeResults, panel: &Panel, what: &str) -> Option<Chart> {
        let valued = size.rows.iter().filter_map(|row| Some((row, (panel.of)(row)?)));
        let valued: Vec<(&ResultRow, f64)> = valued.collect();
        match self.lines {
            true => (!valued.is_empty()).then(|| self.against_window(&valued, panel)),
            // A bar of 0 is not seen.
            false => {
                let seen = valued.iter().any(|(_, value)| *value > 0.0);
                seen.then(|| self.bars(&valued, panel, what))
            }
        }
    }

    /// One line a kind; a kind without windows is a level line.
    fn against_window(&self, valued: &[(&ResultRow, f64)], panel: &Panel) -> Chart {
        let windows = valued.iter().filter_map(|(row, _)| window_max_bytes(row));
        let mut ticks: Vec<f64> = windows.filter(|bytes| *bytes > 0.0).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let line = |name: &String| {
            let own = valued.iter().filter(|(row, _)| self.name(row) == *name);
            let points = own.flat_map(|(row, value)| match window_max_bytes(row) {
                Some(bytes) if bytes > 0.0 => vec![(bytes, *value)],
                _ => ticks.first().into_iter().chain(ticks.last()).map(|x| (*x, *value)).collect(),
            });
            let mut points: Vec<(f64, f64)> = points.collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            (!points.is_empty()).then(|| Line::new(name.clone(), self.ink(name), points))
        };
        let lines = self.names.iter().filter_map(line).collect();
        let x = Axis::new("largest window", Unit::Bytes).scale(Scale::Log2).ticks(ticks);
        let y = Axis::new(panel.axis, panel.unit);
        Chart { title: panel.title.clone(), x, y, marks: Marks::Lines(lines) }
    }

    fn bars(&self, valued: &[(&ResultRow, f64)], panel: &Panel, what: &str) -> Chart {
        let name = |row: &ResultRow| self.named(row, row.readahead.as_deref().unwrap_or(""));
        let names = valued.iter().map(|(row, _)| name(row)).collect();
        let bars = valued.iter().map(|(_, value)| Bar { values: vec![*value] }).collect();
        let parts = vec![(what.to_owned(), Ink::Series(0))];
        Chart {
            title: panel.title.clone(),
            x: Axis::new(panel.axis, panel.unit),
            y: Axis::new("", Unit::Count).scale(Scale::Names(names)),
            marks: Marks::Bars { parts, bars },
        }
    }
}

/// Returns the name of a row's policy, without its read-ahead.
fn policy(row: &ResultRow) -> &str {
    let readahead = row.readahead.as_deref().unwrap_or("");
    row.policy
        .strip_suffix(readahead)
        .and_then(|rest| rest.strip_suffix(" readahead="))
        .unwrap_or(&row.policy)
}
