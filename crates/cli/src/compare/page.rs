//! The comparison as an HTML page: conclusions, figures, tables, and the command that reproduces
//! it.

use super::{Run, places::Places, table, verdict};
use crate::{
    html_page,
    load::{Input, Loaded},
    size,
};
use flashsift_caches::{
    policy::Kind,
    trace::{Trace, Unit as FrameUnit},
};
use flashsift_events::page::PAGE_BYTES;
use flashsift_pages::system::Outcome;
use flashsift_report::{
    Axis, Bar, Block, Chart, Figure, Ink, Layer, Line, Marks, Page, Point, Scale, Section, Table,
    Unit, View,
};
use flashsift_study::{DeviceResult, REFERENCE, ResultRow, Results, SizeResults, StudyVerdict};
use std::collections::BTreeMap;

/// A finished comparison under one choice of write-back modes.
struct Comparison<'a> {
    name: &'a str,
    input: &'a Input,
    loaded: &'a Loaded,
    results: &'a Results<'a>,
    verdict: Option<&'a StudyVerdict<'a>>,
    places: Option<&'a Places>,
}

/// Builds the page of at least one comparison. Several of them differ in their modes of write-back:
/// each figure has a view for each choice of modes.
pub(super) fn build<'a>(
    name: &'a str,
    input: &'a Input,
    loaded: &'a Loaded,
    runs: &'a [Run<'a>],
) -> Page {
    let comparison = |run: &'a Run<'a>| Comparison {
        name,
        input,
        loaded,
        results: run.results,
        verdict: run.verdict.as_ref(),
        places: run.places,
    };
    let first = comparison(&runs[0]);
    // Views of a figure share colours and begin at the same size.
    let (inks, lead) = (Inks::new(&first), first.lead_size());
    let pages = runs.iter().map(|run| (run.mode.as_deref(), comparison(run).page(&inks, lead)));
    several::merged(pages)
}

mod memory;
mod nvm_sizes;
mod readaheads;
mod several;
pub(super) mod sifters;

/// Whether the page of a trace shows the places of writes on the device.
pub(super) fn shows_places(trace: &Trace) -> bool {
    trace.about().knows.writes && trace.totals().write_accesses > 0
}

impl Comparison<'_> {
    /// Builds the HTML page of the comparison.
    fn page(&self, inks: &Inks, lead: usize) -> Page {
        let on_devices = ON_DEVICES.iter().filter_map(|what| on_devices(self, inks, what));
        let by_size =
            |id, title, measure| Block::Figure(of_outcome(self, inks, id, title, measure));
        let mut figures = vec![by_size("hit-ratio", "Found in memory", HITS)];
        if shows_places(&self.loaded.trace) {
            figures.push(by_size("writes", "Pages written to storage", WRITES));
            figures.push(by_size("non-sequential", "Non-sequential writes", NONSEQUENTIAL));
            figures.push(by_size("cost", "Modelled time on storage", COST));
            figures.extend(on_devices.map(Block::Figure));
            figures.push(Block::Figure(pareto(self, inks, lead)));
            figures.push(Block::Figure(fates(self, lead)));
            figures.extend(programs(self, lead).map(Block::Figure));
            figures.extend(places(self, inks, lead).map(Block::Figure));
        } else {
            figures.push(by_size("reads", "Read from storage", READS));
            figures.extend(on_devices.map(Block::Figure));
        }
        let of_memory = [memory::time(self, lead), memory::energy(self, lead)];
        figures.extend(of_memory.into_iter().flatten().map(Block::Figure));
        figures.extend(nvm_sizes::against_caches(self, inks).into_iter().map(Block::Figure));
        figures.extend(nvm_sizes::against_buffers(self, lead).into_iter().map(Block::Figure));
        let tables = self
            .sizes()
            .iter()
            .enumerate()
            .flat_map(|(at, size)| self.tables(at, size, at == lead));
        let tables = tables.map(Block::Table).collect();
        let section = |id: &str, title: &str, blocks| Section {
            id: id.to_owned(),
            title: title.to_owned(),
            blocks,
        };
        let mut sections = vec![section("figures", "Figures", figures)];
        if let Some(found) = self.verdict {
            let lines = verdict::lines(found);
            let open = verdict::drain_note(found).map(|words| Block::Note(words.to_owned()));
            let blocks = std::iter::once(Block::List(lines)).chain(open).collect();
            sections.insert(0, section("verdict", "At every size", blocks));
        }
        sections.extend(readaheads::section(self, lead));
        sections.push(section("tables", "All numbers", tables));
        let notes = self.results.notes().into_iter().map(|note| Block::Note(note.to_string()));
        sections.push(section("notes", "Limits of this comparison", notes.collect()));
        Page {
            title: format!("{}: what each page cache would send to flash", self.name),
            subtitle: html_page::line(self.loaded),
            lead: sentences(self, lead),
            sections,
            folded: None,
            reproduce: html_page::reproduce(self.input, &self.loaded.outcome),
        }
    }

    /// The size to present first: the middle one of those at which policies differ.
    fn lead_size(&self) -> usize {
        let sizes = self.verdict.map_or(&[][..], |found| &found.sizes);
        let differ: Vec<usize> = (0..sizes.len())
            .filter(|at| {
                let verdict = &sizes[*at].verdict;
                !verdict.hits.all_alike
                    || verdict.writes.as_ref().is_some_and(|writes| !writes.fewest.all_alike)
            })
            .collect();
        differ.get(differ.len() / 2).copied().unwrap_or(self.sizes().len() / 2)
    }

    /// Cache sizes, ascending.
    fn sizes(&self) -> &[SizeResults] {
        self.results.sizes()
    }

    fn unit(&self) -> FrameUnit {
        self.results.study().request().unit
    }

    fn size_label(&self, size: &SizeResults) -> String {
        size::of_cache(size.frames, self.unit())
    }

    /// All numbers of a size, then those on each device.
    fn tables(&self, at: usize, size: &SizeResults, open: bool) -> Vec<Table> {
        let table = |id: String, on: String, rows: &[table::Row<'_>], open: bool| {
            let (columns, rows) = table::cells(rows, self.results.study().request().drain);
            let title = format!("Cache of {}{on}", self.size_label(size));
            Table { id, title, columns, rows, open }
        };
        let plain = table(format!("table-{at}"), String::new(), &table::rows(size), open);
        let on_devices = table::rows_on_devices(size).enumerate();
        let on_devices = on_devices.map(|(n, (device, rows))| {
            table(format!("table-{at}-{n}"), format!(", on {device}"), &rows, false)
        });
        let memory = table::rows_with_memory(size).enumerate().map(|(n, (memory, rows))| {
            table(format!("table-{at}-memory-{n}"), format!(", memory {memory}"), &rows, false)
        });
        let ahead = table::rows_reading_ahead(size).map(|rows| {
            table(format!("table-{at}-read-ahead"), ", read-ahead".to_owned(), &rows, false)
        });
        let cases = table::rows_by_case(size).enumerate().map(|(n, (device, rows))| {
            let on = format!(", cases of reads on {device}");
            table(format!("table-{at}-cases-{n}"), on, &rows, false)
        });
        let tables = std::iter::once(plain).chain(on_devices).chain(memory);
        tables.chain(ahead).chain(cases).collect()
    }
}

/// A policy has the same colour in all figures; the most important policies have colours of their
/// own.
struct Inks(Vec<(String, Ink)>);

impl Inks {
    fn new(run: &Comparison<'_>) -> Self {
        let worth = |label: &str| -> u32 {
            let among = |best: &[&str]| u32::from(best.len() <= 3 && best.contains(&label));
            let sizes = run.verdict.iter().flat_map(|found| &found.sizes).map(|size| {
                let writes = size.verdict.writes.as_ref().map_or(0, |writes| {
                    let nonsequential = writes.fewest_nonsequential.as_ref();
                    20 * among(&writes.fewest.policies)
                        + 20 * nonsequential.map_or(0, |best| among(&best.policies))
                        + u32::from(writes.pareto_front.contains(&label))
                });
                20 * among(&size.verdict.hits.policies) + writes
            });
            sizes.sum::<u32>() + if label == REFERENCE { 1000 } else { 0 }
        };
        let rows = run.sizes().first().map_or(&[][..], |size| &size.rows);
        let plain = |kind| if kind == Kind::Bound { Ink::Bound } else { Ink::Other };
        let mut inks: Vec<_> =
            rows.iter().map(|row| (row.policy.clone(), plain(row.kind))).collect();
        let online = rows.iter().zip(&mut inks).filter(|(row, _)| row.kind == Kind::Online);
        let mut ranked: Vec<_> = online.map(|(row, (_, ink))| (ink, worth(&row.policy))).collect();
        ranked.sort_by_key(|(_, worth)| std::cmp::Reverse(*worth));
        let few = ranked.len() <= usize::from(Ink::SERIES);
        for (series, (ink, worth)) in (0..Ink::SERIES).zip(ranked) {
            if few || worth > 0 {
                *ink = Ink::Series(series);
            }
        }
        Self(inks)
    }

    fn get(&self, policy: &str) -> Ink {
        self.0.iter().find(|(other, _)| other == policy).map_or(Ink::Other, |(_, ink)| *ink)
    }
}

/// A value of an outcome in a figure by cache size.
#[derive(Clone, Copy)]
struct Measure {
    axis: &'static str,
    unit: Unit,
    value: fn(&Outcome) -> f64,
    higher_is_better: bool,
    caption: &'static str,
    /// It is counted in slices of time, so that error bars are known.
    in_slices: bool,
}

const HITS: Measure = Measure {
    axis: "accesses that found their page",
    unit: Unit::Share,
    value: Outcome::hit_ratio,
    higher_is_better: true,
    caption: "Higher is better. A read of any other page goes to storage.",
    in_slices: false,
};
const READS: Measure = Measure {
    axis: "reads from storage",
    unit: Unit::Count,
    value: |outcome| outcome.device.reads as f64,
    higher_is_better: false,
    caption: "Lower is better.",
    in_slices: false,
};
const WRITES: Measure = Measure {
    axis: "pages written, or still dirty at the end",
    unit: Unit::Count,
    value: |outcome| outcome.writes_due() as f64,
    higher_is_better: false,
    caption: "Lower is better: every page written wears the flash. Pages still dirty at the end are \
           counted, since they have yet to be written.",
    in_slices: true,
};
const NONSEQUENTIAL: Measure = Measure {
    axis: "pages not written directly behind the page before",
    unit: Unit::Count,
    value: |outcome| outcome.device.nonsequential_writes as f64,
    higher_is_better: false,
    caption: "Lower is better: a simple device copies a whole allocation unit for a write that does \
           not continue the one before.",
    in_slices: false,
};
const COST: Measure = Measure {
    axis: "100 µs a page read, 800 µs a page written",
    unit: Unit::TimeUs,
    value: |outcome| outcome.cost_us() as f64,
    higher_is_better: false,
    caption: "Lower is better. This is the cost model of SpatialClock's paper (§5.1.2), in which \
           sequential and non-sequential writes cost the same.",
    in_slices: false,
};

fn of_outcome(
    run: &Comparison<'_>,
    inks: &Inks,
    id: &str,
    title: &str,
    measure: Measure,
) -> Figure {
    let y = Axis::new(measure.axis, measure.unit);
    let value = |row: &ResultRow| (measure.value)(&row.outcome);
    let mut chart = by_size(run, inks, title, y, measure.higher_is_better, &value);
    let mut caption = measure.caption.to_owned();
    if let (true, Some(places), Marks::Lines(lines)) =
        (measure.in_slices, run.places, &mut chart.marks)
    {
        for (line, rows) in lines.iter_mut().zip(run.results.by_policy()) {
            let within = rows.iter().map(|row| {
                let half = places.uncertainty(&row.policy, row.frames)?;
                Some(((value(row) - half).max(0.0), value(row) + half))
            });
            line.within = within.collect::<Option<_>>().unwrap_or_default();
        }
        if lines.iter().any(|line| !line.within.is_empty()) {
            caption += " The error bars are 95 % intervals over 20 slices of time.";
        }
    }
    let title = match run.sizes() {
        [only] => format!("{title}, at {}", run.size_label(only)),
        _ => title.to_owned(),
    };
    Figure::new(id, title, chart).caption(caption)
}

/// Draws a value by policy against the cache size; as bars if there is one size.
fn by_size(
    run: &Comparison<'_>,
    inks: &Inks,
    title: &str,
    y: Axis,
    higher_is_better: bool,
    value: &dyn Fn(&ResultRow) -> f64,
) -> Chart {
    if let [only] = run.sizes() {
        let mut order: Vec<&ResultRow> = only.rows.iter().collect();
        order.sort_by(|one, other| value(one).total_cmp(&value(other)));
        if higher_is_better {
            order.reverse();
        }
        let names = order.iter().map(|row| row.policy.clone()).collect();
        let bars = order.iter().map(|row| Bar { values: vec![value(row)] }).collect();
        let marks = Marks::Bars { parts: vec![(title.to_owned(), Ink::Series(0))], bars };
        let names = Axis::new("", Unit::Count).scale(Scale::Names(names));
        return Chart { title: String::new(), x: y, y: names, marks };
    }
    let (x, frame) = match run.unit() {
        FrameUnit::Request => (Axis::new("objects in memory", Unit::Count), 1.0),
        FrameUnit::Page => (Axis::new("memory for the cache", Unit::Bytes), PAGE_BYTES as f64),
    };
    let x_of = |frames: u32| f64::from(frames) * frame;
    let lines = run.results.by_policy().filter_map(|rows| {
        let name = &rows.first()?.policy;
        let points = rows.iter().map(|row| (x_of(row.frames), value(row))).collect();
        Some(Line::new(name.clone(), inks.get(name), points))
    });
    let x = x.scale(Scale::Log2).ticks(run.sizes().iter().map(|size| x_of(size.frames)).collect());
    Chart { title: String::new(), x, y, marks: Marks::Lines(lines.collect()) }
}

/// A value that a device model adds to a cell.
struct OnDevices {
    id: &'static str,
    title: &'static str,
    axis: &'static str,
    unit: Unit,
    value: fn(&DeviceResult) -> Option<f64>,
    caption: &'static str,
}

const ON_DEVICES: [OnDevices; 3] = [
    OnDevices {
        id: "elapsed",
        title: "Time on the device, as fast as it can",
        axis: "from the first request to the last one done",
        unit: Unit::TimeUs,
        value: |on| Some(on.elapsed_s * 1e6),
        caption: "Lower is better. Each request is sent when the one before it is done, as the \
               Workload Player of SpatialClock's paper does.",
    },
    OnDevices {
        id: "stall",
        title: "Time that applications wait",
        axis: "waiting for reads, syncs and evictions of dirty pages",
        unit: Unit::TimeUs,
        value: |on| on.stall_s.map(|stall_s| stall_s * 1e6),
        caption: "Lower is better. Requests are sent at their recorded times. An application waits \
               if it reads, syncs, or needs the frame of a dirty page.",
    },
    OnDevices {
        id: "write-amplification",
        title: "Write amplification",
        axis: "pages programmed for each page written",
        unit: Unit::Number,
        value: |on| on.write_amplification.ok(),
        caption: "Lower is better: the pages that the device copies to free blocks wear it as much \
               as the pages that are written to it.",
    },
];

/// Draws the values of all devices, one view per device; nothing if a device lacks the value of a
/// cell.
fn on_devices(run: &Comparison<'_>, inks: &Inks, what: &OnDevices) -> Option<Figure> {
    let devices = run.results.study().request().devices.iter().enumerate();
    let views = devices.filter_map(|(n, device)| {
        // A policy that writes little has no write amplification.
        let value = |row: &ResultRow| (what.value)(&row.devices[n]);
        let any = run.results.rows().any(|row| value(row).is_some());
        let y = Axis::new(what.axis, what.unit);
        let chart = by_size(run, inks, what.title, y, false, &|row| value(row).unwrap_or(f64::NAN));
        any.then(|| View { label: device.label().to_owned(), panels: vec![without_gaps(chart)] })
    });
    let views: Vec<View> = views.collect();
    (!views.is_empty()).then(|| Figure {
        id: what.id.to_owned(),
        title: what.title.to_owned(),
        caption: what.caption.to_owned(),
        paper: String::new(),
        views,
        first: 0,
    })
}

/// Replaces missing values: lines skip them, bars show 0.
fn without_gaps(mut chart: Chart) -> Chart {
    match &mut chart.marks {
        Marks::Lines(lines) => {
            lines.iter_mut().for_each(|line| line.points.retain(|(_, y)| !y.is_nan()))
        }
        Marks::Bars { bars, .. } => {
            bars.iter_mut()
                .flat_map(|bar| &mut bar.values)
                .filter(|value| value.is_nan())
                .for_each(|value| *value = 0.0);
        }
        _ => {}
    }
    chart
}

/// Draws hits against writes, one view per size.
fn pareto(run: &Comparison<'_>, inks: &Inks, lead: usize) -> Figure {
    let at = |row: &ResultRow| (row.outcome.writes_due() as f64, row.outcome.hit_ratio());
    let front_of = |size: &SizeResults| {
        let verdict = run.verdict?.sizes.iter().find(|verdict| verdict.frames == size.frames)?;
        let front = &verdict.verdict.writes.as_ref()?.pareto_front;
        Some(front.iter().filter_map(|policy| size.row(policy)).map(at).collect::<Vec<_>>())
    };
    let views = run.sizes().iter().map(|size| {
        let points = size.rows.iter().map(|row| Point {
            name: row.policy.clone(),
            ink: inks.get(&row.policy),
            at: at(row),
        });
        let front = front_of(size).unwrap_or_default();
        let marks = Marks::Points { points: points.collect(), front };
        let chart = Chart {
            title: String::new(),
            x: Axis::new(WRITES.axis, Unit::Count),
            y: Axis::new(HITS.axis, Unit::Share),
            marks,
        };
        View { label: run.size_label(size), panels: vec![chart] }
    });
    Figure {
        id: "hits-and-writes".to_owned(),
        title: "Hits against writes".to_owned(),
        caption:
            "Up and left is better. The dotted line joins the Pareto-optimal policies: no other \
               has both more hits and fewer writes."
                .to_owned(),
        paper: String::new(),
        views: views.collect(),
        first: lead,
    }
}

/// Counts the outcomes of the page writes: each reached storage or was avoided for a reason.
fn fate(outcome: &Outcome) -> [u64; 4] {
    let left = outcome.dirty_left + outcome.traffic.nvm_left;
    [outcome.device.writes, left, outcome.overwritten(), outcome.device.dropped_dirty]
}

fn fates(run: &Comparison<'_>, lead: usize) -> Figure {
    let left = match run.results.study().compares_memory() {
        true => "dirty, or in NVM, at the end",
        false => "still dirty at the end",
    };
    let parts = [
        ("written to storage", Ink::Series(1)),
        (left, Ink::Series(4)),
        ("overwritten in memory first", Ink::Series(0)),
        ("deleted or truncated first", Ink::Series(2)),
    ];
    // Some traces do not contain deletions.
    let parts = &parts[..if run.loaded.trace.about().knows.removals { 4 } else { 3 }];
    let views = run.sizes().iter().map(|size| {
        let mut order: Vec<&ResultRow> = size.rows.iter().collect();
        order.sort_by_key(|row| row.outcome.writes_due());
        let bars = order
            .iter()
            .map(|row| Bar { values: fate(&row.outcome).map(|pages| pages as f64).to_vec() });
        let names = order.iter().map(|row| row.policy.clone()).collect();
        let marks = Marks::Bars {
            parts: parts.iter().map(|(name, ink)| ((*name).to_owned(), *ink)).collect(),
            bars: bars.collect(),
        };
        let chart = Chart {
            title: String::new(),
            x: Axis::new("page writes that applications made", Unit::Count),
            y: Axis::new("", Unit::Count).scale(Scale::Names(names)),
            marks,
        };
        View { label: run.size_label(size), panels: vec![chart] }
    });
    Figure {
        id: "fate-of-writes".to_owned(),
        title: "Outcome of each page write".to_owned(),
        caption:
            "A write to a page that is dirty already is absorbed. A page whose file is deleted \
               or truncated first is never written."
                .to_owned(),
        paper: String::new(),
        views: views.collect(),
        first: lead,
    }
}

/// Programs with a colour of their own.
const PROGRAMS: usize = 5;

/// Draws the bytes written by program, one bar a policy; nothing if they were not counted.
fn programs(run: &Comparison<'_>, lead: usize) -> Option<Figure> {
    let charged = run.results.rows().filter_map(|row| row.charged.as_ref());
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (program, pages) in charged.flat_map(|charged| &charged.by_program) {
        *sums.entry(program).or_default() += pages;
    }
    let mut names: Vec<_> = sums.into_iter().collect();
    names.sort_by_key(|(_, pages)| std::cmp::Reverse(*pages));
    let (has_others, names): (bool, Vec<&str>) =
        (names.len() > PROGRAMS, names.into_iter().map(|(name, _)| name).take(PROGRAMS).collect());
    if names.is_empty() {
        return None;
    }
    let named = names.iter().zip(0..).map(|(name, n)| ((*name).to_owned(), Ink::Series(n)));
    let others = has_others.then(|| ("other programs".to_owned(), Ink::Other));
    let parts: Vec<_> = named.chain(others).collect();
    let bar = |row: &ResultRow| {
        let mut values = vec![0.0; parts.len()];
        for (program, pages) in row.charged.iter().flat_map(|charged| &charged.by_program) {
            let part = names.iter().position(|name| name == program).unwrap_or(names.len());
            values[part] += (pages * PAGE_BYTES) as f64;
        }
        Bar { values }
    };
    let views = run.sizes().iter().map(|size| {
        let mut order: Vec<&ResultRow> = size.rows.iter().collect();
        order.sort_by_key(|row| row.outcome.device.writes);
        let marks =
            Marks::Bars { parts: parts.clone(), bars: order.iter().map(|row| bar(row)).collect() };
        let names = order.iter().map(|row| row.policy.clone()).collect();
        let chart = Chart {
            title: String::new(),
            x: Axis::new("bytes written to storage", Unit::Bytes),
            y: Axis::new("", Unit::Count).scale(Scale::Names(names)),
            marks,
        };
        View { label: run.size_label(size), panels: vec![chart] }
    });
    Some(Figure {
        id: "writes-by-program".to_owned(),
        title: "Bytes written to storage, by program".to_owned(),
        caption: "A page is charged to the program that made it dirty. Pages still dirty at the \
               end are not counted."
            .to_owned(),
        paper: String::new(),
        views: views.collect(),
        first: lead,
    })
}

/// Draws the places on the device where two policies write, one after the other: the reference, and
/// the other policy with the fewest non-sequential writes.
fn places(run: &Comparison<'_>, inks: &Inks, lead: usize) -> Option<Figure> {
    let size = &run.sizes()[lead];
    let grids = run.places?.at_size(size.frames)?;
    let most = |of: &dyn Fn(&flashsift_report::Patch) -> f64| {
        grids
            .iter()
            .flat_map(|(_, grid)| grid.patches())
            .map(|patch| of(&patch))
            .fold(1.0, f64::max)
    };
    let (x_most, y_most) = (most(&|patch| patch.x.1), most(&|patch| patch.y.1));
    let y_least = y_most - most(&|patch| y_most - patch.y.0);
    let panels = grids.iter().filter_map(|(policy, grid)| {
        let patches = grid
            .patches()
            .into_iter()
            .map(|patch| flashsift_report::Patch {
                y: (patch.y.0 * PAGE_BYTES as f64, patch.y.1 * PAGE_BYTES as f64),
                ..patch
            })
            .collect();
        let layer = Layer { name: "pages written".to_owned(), ink: inks.get(policy), patches };
        let device = size.row(policy)?.outcome.device;
        Some(Chart {
            title: format!(
                "{policy}: {} pages, {} of them non-sequential",
                size::count(device.writes),
                size::count(device.nonsequential_writes)
            ),
            x: Axis::new("n-th page written", Unit::Count).range(0.0, x_most),
            y: Axis::new("place on the device", Unit::Bytes)
                .range(y_least * PAGE_BYTES as f64, y_most * PAGE_BYTES as f64),
            marks: Marks::Patches(vec![layer]),
        })
    });
    let view = View { label: String::new(), panels: panels.collect() };
    Some(Figure {
        id: "places".to_owned(),
        title: format!("Where the writes go, at {}", run.size_label(size)),
        caption: "Each write in its order, by its place on the device. Sequential writes form a \
               rising line, non-sequential ones a cloud."
            .to_owned(),
        paper: String::new(),
        views: vec![view],
        first: 0,
    })
}

/// Writes the conclusions at the top of the page.
fn sentences(run: &Comparison<'_>, lead: usize) -> Vec<String> {
    let Some(found) = run.verdict else { return Vec::new() };
    let (rows, size) = (&run.sizes()[lead], &found.sizes[lead]);
    let at_size = format!("at {}", run.size_label(rows));
    let of = |name: &str| rows.row(name).map(|row| &row.outcome);
    let reference = of(REFERENCE);
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut out = Vec::new();

    let best = size.verdict.hits.policies[0];
    let ratio = of(best).map_or(0.0, Outcome::hit_ratio);
    let bound = size.verdict.bound.map_or(String::new(), |(bound, hits)| {
        let most = percent(hits as f64 / size.verdict.accesses as f64);
        format!(" {bound}, which needs to know the future, would find {most}.")
    });
    out.push(match reference {
        _ if size.verdict.hits.all_alike => format!(
            "All policies find the same {} of the accessed pages in memory {at_size}.{bound}",
            percent(ratio)
        ),
        Some(_) if size.verdict.hits.policies.contains(&REFERENCE) => {
            format!(
                "No policy hits more often than {REFERENCE} {at_size}: {} of the accesses find \
                 their page in memory.{bound}",
                percent(ratio)
            )
        }
        Some(lru) => format!(
            "{best} hits most often {at_size}: {} of the accesses find their page in memory, {} \
             with {REFERENCE}.{bound}",
            percent(ratio),
            percent(lru.hit_ratio())
        ),
        None => format!(
            "{best} hits most often {at_size}: {} of the accesses find their page in \
             memory.{bound}",
            percent(ratio)
        ),
    });

    if let (Some(writes), Some(lru)) = (&size.verdict.writes, reference) {
        let against = |outcome: &Outcome| {
            let points = (outcome.hit_ratio() - lru.hit_ratio()) * 100.0;
            match points {
                _ if points.abs() < 0.05 => "at the same hit ratio".to_owned(),
                _ if points > 0.0 => format!("and hit {points:.1} points more"),
                _ => format!("and hit {:.1} points less", -points),
            }
        };
        let fewer = |best: u64, than: u64| size::share((than - best) as f64 / than.max(1) as f64);
        let fewest = writes.fewest.policies[0];
        let saved = of(fewest).map_or(0, |outcome| lru.writes_due() - outcome.writes_due());
        out.push(match of(fewest) {
            Some(outcome) if saved as f64 > 0.005 * lru.writes_due() as f64 => format!(
                "{fewest} would write {} fewer pages to storage than {REFERENCE} {at_size}, {}.",
                fewer(outcome.writes_due(), lru.writes_due()),
                against(outcome)
            ),
            _ if saved > 0 => format!(
                "No policy saves many writes {at_size}: the best, {fewest}, writes {} fewer pages \
                 than {REFERENCE}.",
                size::share(saved as f64 / lru.writes_due() as f64)
            ),
            _ => format!("No policy writes fewer pages to storage than {REFERENCE} {at_size}."),
        });
        let sequential = writes.fewest_nonsequential.as_ref().map(|best| best.policies[0]);
        if let Some((name, outcome)) = sequential.and_then(|name| Some((name, of(name)?)))
            && outcome.device.nonsequential_writes < lru.device.nonsequential_writes
        {
            let (best, than) =
                (outcome.device.nonsequential_writes, lru.device.nonsequential_writes);
            out.push(format!(
                "{name} would send {} fewer non-sequential writes than {REFERENCE} {at_size}, {}.",
                fewer(best, than),
                against(outcome)
            ));
        }
        let whole = lru.write_accesses;
        let removals = run.loaded.trace.about().knows.removals;
        let [written, left, overwritten, dropped] =
            fate(lru).map(|pages| size::share(pages as f64 / whole.max(1) as f64));
        out.push(format!(
            "Of {} page writes that applications make, {REFERENCE} {at_size} sends {written} to \
             storage and has {left} still to write; {overwritten} are overwritten in memory \
             first{}.",
            size::count(whole),
            if removals {
                format!(", {dropped} deleted or truncated first")
            } else {
                String::new()
            }
        ));
    }
    let devices = 0..run.results.study().request().devices.len();
    out.extend(devices.clone().filter_map(|device| fastest(run, rows, device)));
    out.extend(devices.filter_map(|device| years(run, rows, device)));
    let most = 1.0 - found.cold_accesses as f64 / size.verdict.accesses.max(1) as f64;
    out.push(format!(
        "No cache of any size hits more than {}: the rest are {}.",
        percent(most),
        verdict::cold_words(found.unit)
    ));
    if run.loaded.trace.about().side == flashsift_events::event::Side::After {
        out.push(
            "This trace was recorded below a cache: hits of applications in that cache are not \
             in it."
                .to_owned(),
        );
    }
    out
}

/// The years that a device lasts under the reference policy.
fn years(run: &Comparison<'_>, size: &SizeResults, device: usize) -> Option<String> {
    let row = size.row(REFERENCE).or_else(|| size.online().next())?;
    let on = row.devices.get(device)?;
    let life = on.lifetime.ok()?;
    let guess =
        if life.guess { " Less than an hour was scaled to a day: it is a guess." } else { "" };
    Some(format!(
        "{} would last {} years with {} at {}, if every day were like this trace, in which {} GB a \
         day are written.{guess}",
        on.device,
        size::significant(life.years),
        row.policy,
        run.size_label(size),
        size::significant(life.gb_per_day),
    ))
}

/// The policy that takes the least time on a device, and its advantage.
fn fastest(run: &Comparison<'_>, size: &SizeResults, device: usize) -> Option<String> {
    let elapsed_s = |row: &ResultRow| row.devices[device].elapsed_s;
    let best = size.online().min_by(|one, other| elapsed_s(one).total_cmp(&elapsed_s(other)))?;
    let reference = size.row(REFERENCE)?;
    let (name, at) = (&best.devices[device].device, run.size_label(size));
    let saved = 1.0 - elapsed_s(best) / elapsed_s(reference);
    Some(match saved {
        _ if elapsed_s(reference) <= 0.0 => return None,
        0.005.. => format!(
            "On {name} {} would take {} less time than {REFERENCE} at {at}: {} instead of {}.",
            best.policy,
            size::share(saved),
            Unit::TimeUs.show(elapsed_s(best) * 1e6),
            Unit::TimeUs.show(elapsed_s(reference) * 1e6)
        ),
        _ => format!("On {name} no policy takes clearly less time than {REFERENCE} at {at}."),
    })
}
