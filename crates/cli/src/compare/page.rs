//! The comparison as a page: words first, figures, tables, and what reproduces it.

use super::{Args, Done, notes, size_label};
use crate::{
    card,
    devices::{self, Chosen, OnDevice},
    load::Loaded,
    size,
    table::{self, Row},
    verdict::{self, Judged},
};
use flashsift_core::{
    back::{Io, IoOp},
    layout,
    page::PAGE_BYTES,
    policy::{self, Kind},
    system::Outcome,
    trace::Future,
    verdict::REFERENCE,
};
use flashsift_report::{
    Axis, Bar, Block, Chart, Figure, Grid, Ink, Layer, Line, Marks, Page, Point, Scale, Section, Table, Unit,
    View,
};

/// What has run.
pub(super) struct Run<'a> {
    pub(super) args: &'a Args,
    pub(super) name: &'a str,
    pub(super) loaded: &'a Loaded,
    pub(super) layout: &'a layout::Selection,
    pub(super) labels: &'a [String],
    pub(super) cells: &'a [(u32, &'a policy::Selection)],
    pub(super) done: &'a [Done],
    pub(super) devices: &'a [Chosen],
    /// By cell and device.
    pub(super) on: &'a [Vec<OnDevice>],
}

/// The page. Two cells run once more, for where their writes go.
pub(super) fn build(run: &Run<'_>, judged: Option<&Judged<'_>>, future: Option<&Future>) -> Page {
    let about = run.loaded.trace.about();
    let inks = inks(run, judged);
    let lead = lead_size(run, judged);
    let on_devices = ON_DEVICES.iter().filter_map(|what| on_devices(run, &inks, what));
    let mut figures = vec![Block::Figure(of_outcome(run, &inks, "hit-ratio", "Found in memory", HITS))];
    if about.knows.writes && run.loaded.trace.totals().write_accesses > 0 {
        figures.push(Block::Figure(of_outcome(run, &inks, "writes", "Pages written to storage", WRITES)));
        figures.push(Block::Figure(of_outcome(run, &inks, "scattered", "Scattered writes", SCATTERED)));
        figures.push(Block::Figure(of_outcome(run, &inks, "cost", "Modelled time on storage", COST)));
        figures.extend(on_devices.map(Block::Figure));
        figures.push(Block::Figure(pareto(run, &inks, judged, lead)));
        figures.push(Block::Figure(fates(run, lead)));
        figures.extend(places(run, lead, future).map(Block::Figure));
    } else {
        figures.push(Block::Figure(of_outcome(run, &inks, "reads", "Read from storage", READS)));
        figures.extend(on_devices.map(Block::Figure));
    }
    let tables = (0..run.sizes().len()).flat_map(|at| {
        let on = (0..run.devices.len()).map(move |device| table(run, at, Some(device), false));
        std::iter::once(table(run, at, None, at == lead)).chain(on).map(Block::Table)
    });
    let tables = tables.collect();
    let mut sections =
        vec![Section { id: "figures".to_owned(), title: "Figures".to_owned(), blocks: figures }];
    if let Some(judged) = judged {
        let lines = verdict::lines(judged);
        let open = verdict::what_drain_tells(judged).map(|words| Block::Note(words.to_owned()));
        let blocks = std::iter::once(Block::List(lines)).chain(open).collect();
        sections.insert(0, Section { id: "verdict".to_owned(), title: "At every size".to_owned(), blocks });
    }
    sections.push(Section { id: "tables".to_owned(), title: "All numbers".to_owned(), blocks: tables });
    let policies = run.labels.iter().cloned();
    let on_devices = devices::notes(run.devices, &run.loaded.trace, policies);
    let notes = notes(run.args, run.loaded, run.layout, run.done)
        .into_iter()
        .chain(on_devices)
        .map(|note| note.trim_start_matches("* best of its column. ").to_owned());
    sections.push(Section {
        id: "notes".to_owned(),
        title: "What to keep in mind".to_owned(),
        blocks: notes.map(Block::Note).collect(),
    });
    Page {
        title: format!("{}: what each page cache would send to flash", run.name),
        subtitle: card::line(run.loaded),
        lead: sentences(run, judged, lead),
        sections,
        reproduce: card::reproduce(&run.args.input, &run.loaded.outcome),
    }
}

/// The same policy in the same colour throughout; those that matter most in colours of their own.
fn inks(run: &Run<'_>, judged: Option<&Judged<'_>>) -> Vec<Ink> {
    let kind = |n: usize| run.cells[n].1.spec.kind;
    let worth = |n: usize| -> u32 {
        let label = &*run.labels[n];
        let among = |best: &[&str]| u32::from(best.len() <= 3 && best.contains(&label));
        let sizes = judged.iter().flat_map(|judged| &judged.sizes).map(|size| {
            let writes = size.verdict.writes.as_ref().map_or(0, |writes| {
                let scattered = writes.scattered.as_ref().map_or(0, |best| among(&best.policies));
                20 * (among(&writes.fewest.policies) + scattered)
                    + u32::from(writes.unbeaten.contains(&label))
            });
            20 * among(&size.verdict.hits.policies) + writes
        });
        sizes.sum::<u32>() + if label == REFERENCE { 1000 } else { 0 }
    };
    let mut ranked: Vec<(usize, u32)> =
        (0..run.labels.len()).filter(|n| kind(*n) == Kind::Online).map(|n| (n, worth(n))).collect();
    ranked.sort_by_key(|(_, worth)| std::cmp::Reverse(*worth));
    let mut inks: Vec<Ink> =
        (0..run.labels.len()).map(|n| if kind(n) == Kind::Bound { Ink::Bound } else { Ink::Other }).collect();
    let few = ranked.len() <= usize::from(Ink::SERIES);
    for (series, (n, worth)) in (0..Ink::SERIES).zip(ranked) {
        if few || worth > 0 {
            inks[n] = Ink::Series(series);
        }
    }
    inks
}

/// The size to speak of first: in the middle of those at which policies differ.
fn lead_size(run: &Run<'_>, judged: Option<&Judged<'_>>) -> usize {
    let sizes = judged.map_or(&[][..], |judged| &judged.sizes);
    let differ: Vec<usize> = (0..sizes.len())
        .filter(|at| {
            let verdict = &sizes[*at].verdict;
            !verdict.hits.all_alike || verdict.writes.as_ref().is_some_and(|writes| !writes.fewest.all_alike)
        })
        .collect();
    differ.get(differ.len() / 2).copied().unwrap_or(run.sizes().len() / 2)
}

impl Run<'_> {
    /// Frames, ascending.
    fn sizes(&self) -> Vec<u32> {
        self.cells.iter().step_by(self.labels.len()).map(|(frames, _)| *frames).collect()
    }

    fn size_label(&self, at: usize) -> String {
        size_label(self.args, self.sizes()[at])
    }

    /// What came of a policy at a size.
    fn done(&self, at: usize, policy: usize) -> &Done {
        &self.done[at * self.labels.len() + policy]
    }

    fn outcome(&self, at: usize, policy: usize) -> &Outcome {
        &self.done(at, policy).outcome
    }
}

/// What a figure by size shows of an outcome.
#[derive(Clone, Copy)]
struct Measure {
    axis: &'static str,
    unit: Unit,
    value: fn(&Outcome) -> f64,
    higher_is_better: bool,
    says: &'static str,
}

const HITS: Measure = Measure {
    axis: "accesses that found their page",
    unit: Unit::Share,
    value: Outcome::hit_ratio,
    higher_is_better: true,
    says: "Higher is better. What is not found is read from storage.",
};
const READS: Measure = Measure {
    axis: "reads from storage",
    unit: Unit::Count,
    value: |outcome| outcome.device.reads as f64,
    higher_is_better: false,
    says: "Lower is better.",
};
const WRITES: Measure = Measure {
    axis: "pages written, or still dirty at the end",
    unit: Unit::Count,
    value: |outcome| outcome.writes_due() as f64,
    higher_is_better: false,
    says: "Lower is better: every page written wears the flash. Pages still dirty at the end are counted, since their \
           writes are due.",
};
const SCATTERED: Measure = Measure {
    axis: "writes that do not follow the one before",
    unit: Unit::Count,
    value: |outcome| outcome.device.nonsequential_writes as f64,
    higher_is_better: false,
    says: "Lower is better: simple flash copies whole units for writes that jump about.",
};
const COST: Measure = Measure {
    axis: "100 µs a page read, 800 µs a page written",
    unit: Unit::TimeUs,
    value: |outcome| outcome.cost_us() as f64,
    higher_is_better: false,
    says: "Lower is better. The cost model of SpatialClock's paper (§5.1.2), which knows no difference between sequential and \
           scattered.",
};

fn of_outcome(run: &Run<'_>, inks: &[Ink], id: &str, title: &str, measure: Measure) -> Figure {
    let y = Axis::new(measure.axis, measure.unit);
    let chart =
        by_size(run, inks, title, y, measure.higher_is_better, &|at, n| (measure.value)(run.outcome(at, n)));
    let title =
        if run.sizes().len() == 1 { format!("{title}, at {}", run.size_label(0)) } else { title.to_owned() };
    Figure::new(id, title, chart).says(measure.says)
}

/// A value, by size and policy, against the size of the cache; of one size, as bars.
fn by_size(
    run: &Run<'_>,
    inks: &[Ink],
    title: &str,
    y: Axis,
    higher_is_better: bool,
    value: &dyn Fn(usize, usize) -> f64,
) -> Chart {
    let sizes = run.sizes();
    if sizes.len() == 1 {
        let mut order: Vec<usize> = (0..run.labels.len()).collect();
        order.sort_by(|one, other| value(0, *one).total_cmp(&value(0, *other)));
        if higher_is_better {
            order.reverse();
        }
        let names = order.iter().map(|n| run.labels[*n].clone()).collect();
        let bars = order.iter().map(|n| Bar { values: vec![value(0, *n)] }).collect();
        let marks = Marks::Bars { parts: vec![(title.to_owned(), Ink::Series(0))], bars };
        let names = Axis::new("", Unit::Count).scale(Scale::Names(names));
        return Chart { title: String::new(), x: y, y: names, marks };
    }
    let objects = run.args.object_cache;
    let x_of = |frames: u32| f64::from(frames) * if objects { 1.0 } else { PAGE_BYTES as f64 };
    let lines = run.labels.iter().enumerate().map(|(n, name)| Line {
        name: name.clone(),
        ink: inks[n],
        points: (0..sizes.len()).map(|at| (x_of(sizes[at]), value(at, n))).collect(),
    });
    let x = match objects {
        true => Axis::new("objects in memory", Unit::Count),
        false => Axis::new("memory for the cache", Unit::Bytes),
    };
    let x = x.scale(Scale::Log2).ticks(sizes.iter().map(|frames| x_of(*frames)).collect());
    Chart { title: String::new(), x, y, marks: Marks::Lines(lines.collect()) }
}

/// A value that devices give to cells.
struct OnDevices {
    id: &'static str,
    title: &'static str,
    axis: &'static str,
    unit: Unit,
    value: fn(&OnDevice) -> Option<f64>,
    says: &'static str,
}

const ON_DEVICES: [OnDevices; 3] = [
    OnDevices {
        id: "elapsed",
        title: "Time on the device, as fast as it can",
        axis: "from the first request to the last one done",
        unit: Unit::TimeUs,
        value: |on| Some(on.elapsed_s * 1e6),
        says: "Lower is better. Each request is sent when the one before it is done, as SpatialClock's Workload Player does.",
    },
    OnDevices {
        id: "stall",
        title: "Time that applications wait",
        axis: "waiting for reads, syncs, and dirty pages that make room",
        unit: Unit::TimeUs,
        value: |on| on.stall_s.map(|stall_s| stall_s * 1e6),
        says: "Lower is better. Requests are sent at their recorded times; who reads, syncs, or needs the place of a dirty page waits.",
    },
    OnDevices {
        id: "write-amplification",
        title: "Write amplification",
        axis: "pages programmed for each page written",
        unit: Unit::Number,
        value: |on| on.write_amplification,
        says: "Lower is better: what the device copies to make room wears it as much as what it is asked to write.",
    },
];

/// What all devices say, a view a device; nothing where one of them says nothing of a cell.
fn on_devices(run: &Run<'_>, inks: &[Ink], what: &OnDevices) -> Option<Figure> {
    let labels = run.labels.len();
    let views = run.devices.iter().enumerate().filter_map(|(device, chosen)| {
        // Who writes nothing amplifies nothing.
        let value = |at: usize, n: usize| (what.value)(&run.on[at * labels + n][device]);
        let any = (0..run.sizes().len()).any(|at| (0..labels).any(|n| value(at, n).is_some()));
        let chart = by_size(run, inks, what.title, Axis::new(what.axis, what.unit), false, &|at, n| {
            value(at, n).unwrap_or(f64::NAN)
        });
        any.then(|| View { label: chosen.label.clone(), panels: vec![without_gaps(chart)] })
    });
    let views: Vec<View> = views.collect();
    (!views.is_empty()).then(|| Figure {
        id: what.id.to_owned(),
        title: what.title.to_owned(),
        says: what.says.to_owned(),
        paper: String::new(),
        views,
        first: 0,
    })
}

/// Lines of what is known.
fn without_gaps(mut chart: Chart) -> Chart {
    match &mut chart.marks {
        Marks::Lines(lines) => lines.iter_mut().for_each(|line| line.points.retain(|(_, y)| !y.is_nan())),
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

/// Hits against writes, a view a size.
fn pareto(run: &Run<'_>, inks: &[Ink], judged: Option<&Judged<'_>>, lead: usize) -> Figure {
    let at = |outcome: &Outcome| (outcome.writes_due() as f64, outcome.hit_ratio());
    let views = (0..run.sizes().len()).map(|size| {
        let points = run.labels.iter().enumerate().map(|(n, name)| Point {
            name: name.clone(),
            ink: inks[n],
            at: at(run.outcome(size, n)),
        });
        let unbeaten = judged
            .and_then(|judged| judged.sizes[size].verdict.writes.as_ref())
            .map(|writes| &writes.unbeaten);
        let front = unbeaten.into_iter().flatten().map(|name| {
            let n = run.labels.iter().position(|label| label == name).expect("it competes");
            at(run.outcome(size, n))
        });
        let marks = Marks::Points { points: points.collect(), front: front.collect() };
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
        says: "Up and left is better. The dotted line joins those that nobody beats in both.".to_owned(),
        paper: String::new(),
        views: views.collect(),
        first: lead,
    }
}

/// What became of the page writes: of each either something came to storage, or why nothing did.
fn fate(outcome: &Outcome) -> [u64; 4] {
    [outcome.device.writes, outcome.dirty_left, outcome.overwritten(), outcome.device.dropped_dirty]
}

fn fates(run: &Run<'_>, lead: usize) -> Figure {
    let parts = [
        ("written to storage", Ink::Series(1)),
        ("still dirty at the end", Ink::Series(4)),
        ("overwritten in memory first", Ink::Series(0)),
        ("deleted or cut first", Ink::Series(2)),
    ];
    // Not all traces tell of deletions.
    let parts = &parts[..if run.loaded.trace.about().knows.removals { 4 } else { 3 }];
    let views = (0..run.sizes().len()).map(|size| {
        let mut order: Vec<usize> = (0..run.labels.len()).collect();
        order.sort_by_key(|n| run.outcome(size, *n).writes_due());
        let bars = order
            .iter()
            .map(|n| Bar { values: fate(run.outcome(size, *n)).map(|pages| pages as f64).to_vec() });
        let names = order.iter().map(|n| run.labels[*n].clone()).collect();
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
        title: "What became of each page write".to_owned(),
        says: "A write that finds its page dirty is absorbed; a page whose file is deleted or cut first is never written."
            .to_owned(),
        paper: String::new(),
        views: views.collect(),
        first: lead,
    }
}

/// Where on the device two policies write, one after the other: the reference, and who scatters least.
fn places(run: &Run<'_>, lead: usize, future: Option<&Future>) -> Option<Figure> {
    let online: Vec<usize> =
        (0..run.labels.len()).filter(|n| run.cells[*n].1.spec.kind == Kind::Online).collect();
    let first = online.iter().copied().find(|n| run.labels[*n] == REFERENCE).or(online.first().copied())?;
    let jumps = |n: &usize| run.outcome(lead, *n).device.nonsequential_writes;
    let other = online.iter().copied().filter(|n| *n != first).min_by_key(jumps)?;
    let grids = [first, other].map(|n| (n, written(run, lead, n, future)));
    let most = |of: &dyn Fn(&flashsift_report::Patch) -> f64| {
        grids.iter().flat_map(|(_, grid)| grid.patches()).map(|patch| of(&patch)).fold(1.0, f64::max)
    };
    let (x_most, y_most) = (most(&|patch| patch.x.1), most(&|patch| patch.y.1));
    let y_least = y_most - most(&|patch| y_most - patch.y.0);
    let panels = grids.iter().map(|(n, grid)| {
        let patches = grid
            .patches()
            .into_iter()
            .map(|patch| flashsift_report::Patch {
                y: (patch.y.0 * PAGE_BYTES as f64, patch.y.1 * PAGE_BYTES as f64),
                ..patch
            })
            .collect();
        let layer = Layer {
            name: "pages written".to_owned(),
            ink: Ink::Series(if *n == first { 1 } else { 0 }),
            patches,
        };
        Chart {
            title: format!(
                "{}: {} pages, {} of them scattered",
                run.labels[*n],
                size::count(run.outcome(lead, *n).device.writes),
                size::count(jumps(n))
            ),
            x: Axis::new("n-th page written", Unit::Count).range(0.0, x_most),
            y: Axis::new("place on the device", Unit::Bytes)
                .range(y_least * PAGE_BYTES as f64, y_most * PAGE_BYTES as f64),
            marks: Marks::Patches(vec![layer]),
        }
    });
    let view = View { label: String::new(), panels: panels.collect() };
    Some(Figure {
        id: "places".to_owned(),
        title: format!("Where the writes go, at {}", run.size_label(lead)),
        says: "Each write in its turn, by its place on the device: a rising line is sequential, a cloud is scattered."
            .to_owned(),
        paper: String::new(),
        views: vec![view],
        first: 0,
    })
}

/// The writes of a cell, in their order, by place.
fn written(run: &Run<'_>, at: usize, policy: usize, future: Option<&Future>) -> Grid {
    let mut grid = Grid::new((240, 128));
    let mut turn = 0;
    let (frames, policy) = run.cells[at * run.labels.len() + policy];
    super::cell(run.args, run.layout, policy, frames).run(
        &run.loaded.trace,
        future,
        Some(&mut |io: Io| {
            if io.op == IoOp::Write {
                for page in 0..u64::from(io.pages) {
                    grid.add(turn, io.lba + page);
                    turn += 1;
                }
            }
        }),
    );
    grid
}

/// All numbers of a size; on a device, if one is given.
fn table(run: &Run<'_>, at: usize, device: Option<usize>, open: bool) -> Table {
    let row = |(n, label): (usize, &String)| Row {
        policy: label.clone(),
        kind: run.cells[n].1.spec.kind,
        outcome: *run.outcome(at, n),
        cpu_ns_per_access: run.done(at, n).cpu_ns_per_access,
        on: device.map(|device| run.on[at * run.labels.len() + n][device].clone()),
    };
    let rows: Vec<Row> = run.labels.iter().enumerate().map(row).collect();
    let (columns, rows) = table::cells(&rows, run.args.drain);
    let (id, on) = match device {
        None => (format!("table-{at}"), String::new()),
        Some(device) => (format!("table-{at}-{device}"), format!(", on {}", run.devices[device].label)),
    };
    Table { id, title: format!("Cache of {}{on}", run.size_label(at)), columns, rows, open }
}

/// What to know first.
fn sentences(run: &Run<'_>, judged: Option<&Judged<'_>>, lead: usize) -> Vec<String> {
    let Some(judged) = judged else { return Vec::new() };
    let Some(size) = judged.sizes.get(lead) else { return Vec::new() };
    let at_size = format!("at {}", run.size_label(lead));
    let of = |name: &str| run.labels.iter().position(|label| label == name).map(|n| run.outcome(lead, n));
    let reference = of(REFERENCE);
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut out = Vec::new();

    let best = size.verdict.hits.policies[0];
    let ratio = of(best).map_or(0.0, Outcome::hit_ratio);
    let bound = size.verdict.bound.map_or(String::new(), |(bound, hits)| {
        let most = percent(hits as f64 / size.verdict.accesses as f64);
        format!(" {bound}, which knows the future, would find {most}.")
    });
    out.push(match reference {
        _ if size.verdict.hits.all_alike => format!("All policies find the same {} of the accessed pages in memory {at_size}.{bound}", percent(ratio)),
        Some(_) if size.verdict.hits.policies.contains(&REFERENCE) => {
            format!("Nobody hits more often than {REFERENCE} {at_size}: {} of the accesses find their page in memory.{bound}", percent(ratio))
        }
        Some(lru) => format!(
            "{best} hits most often {at_size}: {} of the accesses find their page in memory, {} with {REFERENCE}.{bound}",
            percent(ratio),
            percent(lru.hit_ratio())
        ),
        None => format!("{best} hits most often {at_size}: {} of the accesses find their page in memory.{bound}", percent(ratio)),
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
                "Nobody saves many writes {at_size}: {fewest}, the best, {} of those of {REFERENCE}.",
                size::share(saved as f64 / lru.writes_due() as f64)
            ),
            _ => format!("Nobody writes fewer pages to storage than {REFERENCE} {at_size}."),
        });
        let scattered = writes.scattered.as_ref().map(|best| best.policies[0]);
        if let Some((name, outcome)) = scattered.and_then(|name| Some((name, of(name)?)))
            && outcome.device.nonsequential_writes < lru.device.nonsequential_writes
        {
            let (best, than) = (outcome.device.nonsequential_writes, lru.device.nonsequential_writes);
            out.push(format!(
                "{name} would send {} fewer scattered writes than {REFERENCE} {at_size}, {}.",
                fewer(best, than),
                against(outcome)
            ));
        }
        let whole = lru.write_accesses;
        let removals = run.loaded.trace.about().knows.removals;
        let [written, left, overwritten, dropped] =
            fate(lru).map(|pages| size::share(pages as f64 / whole.max(1) as f64));
        out.push(format!(
            "Of {} page writes that applications make, {REFERENCE} {at_size} sends {written} to storage and has {left} still to \
             write; {overwritten} are overwritten in memory first{}.",
            size::count(whole),
            if removals { format!(", {dropped} deleted or cut first") } else { String::new() }
        ));
    }
    out.extend((0..run.devices.len()).filter_map(|device| fastest(run, lead, device)));
    let most = 1.0 - judged.cold_accesses as f64 / size.verdict.accesses.max(1) as f64;
    out.push(format!("No cache of any size hits more than {}: the rest are first accesses.", percent(most)));
    if run.loaded.trace.about().side == flashsift_core::event::Side::After {
        out.push(
            "Beware: this trace was taken behind a cache, which has the hits that matter to applications."
                .to_owned(),
        );
    }
    out
}

/// Who takes the device the least time, and how much less that is.
fn fastest(run: &Run<'_>, lead: usize, device: usize) -> Option<String> {
    let elapsed_s = |n: usize| run.on[lead * run.labels.len() + n][device].elapsed_s;
    let online = (0..run.labels.len()).filter(|n| run.cells[*n].1.spec.kind == Kind::Online);
    let best = online.min_by(|one, other| elapsed_s(*one).total_cmp(&elapsed_s(*other)))?;
    let reference = run.labels.iter().position(|label| label == REFERENCE)?;
    let (name, at) = (&run.devices[device].label, run.size_label(lead));
    let saved = 1.0 - elapsed_s(best) / elapsed_s(reference);
    Some(match saved {
        _ if elapsed_s(reference) <= 0.0 => return None,
        0.005.. => format!(
            "On {name} {} would take {} less time than {REFERENCE} at {at}: {} instead of {}.",
            run.labels[best],
            size::share(saved),
            Unit::TimeUs.show(elapsed_s(best) * 1e6),
            Unit::TimeUs.show(elapsed_s(reference) * 1e6)
        ),
        _ => format!("On {name} nobody takes clearly less time than {REFERENCE} at {at}."),
    })
}
