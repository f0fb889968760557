//! The page of `compare --sift`: bytes kept from flash against bytes fetched again, the data that
//! reaches flash by sifter and over time, and the time on devices.

use super::super::sift::{Cell, SiftRun, UPPER_BOUND};
use crate::{html_page, load::Input, size};
use flashsift_events::page::PAGE_BYTES;
use flashsift_files::sifting::SiftSlice;
use flashsift_report::{
    Axis, Bar, Block, Cell as Shown, Chart, Figure, Ink, Line, Marks, Page, Point, Scale, Section,
    Table, Unit, View,
};

/// A number of bytes of a slice.
type OfSlice = fn(&SiftSlice) -> u64;

/// Builds the page.
pub(in crate::compare) fn build(run: &SiftRun<'_>, name: &str, input: &Input) -> Page {
    let sizes: Vec<&[Cell]> =
        run.cells.chunk_by(|one, other| one.memory_pages == other.memory_pages).collect();
    let sifters = Sifters { run, inks: inks(sizes.first().copied().unwrap_or_default()), sizes };
    let figures = [
        Some(sifters.frontier()),
        Some(sifters.at_flash()),
        sifters.over_time(),
        sifters.on_devices(),
    ];
    let tables = sifters.sizes.iter().enumerate();
    let tables = tables.map(|(at, cells)| Block::Table(table(at, cells)));
    let section = |id: &str, title: &str, blocks| Section {
        id: id.to_owned(),
        title: title.to_owned(),
        blocks,
    };
    Page {
        title: format!("{name}: which files sifters keep from flash"),
        subtitle: html_page::requests(run.about, run.requests, run.end_us) + ".",
        lead: sifters.sentences(),
        sections: vec![
            section(
                "figures",
                "Figures",
                figures.into_iter().flatten().map(Block::Figure).collect(),
            ),
            section("tables", "All numbers", tables.collect()),
            section("notes", "Limits of this comparison", vec![Block::Note(run.legend())]),
        ],
        folded: None,
        reproduce: html_page::reproduce(input, run.outcome),
    }
}

struct Sifters<'a> {
    run: &'a SiftRun<'a>,
    /// The cells of each size of memory, the one without a sifter first.
    sizes: Vec<&'a [Cell]>,
    inks: Vec<(String, Ink)>,
}

/// Sifters that know no future have colours of their own, as far as there are any.
fn inks(cells: &[Cell]) -> Vec<(String, Ink)> {
    let mut series = 0..Ink::SERIES;
    let ink = |cell: &Cell| match cell.offline {
        true => Ink::Bound,
        false if cell.ram_pages == 0 => Ink::Other,
        false => series.next().map_or(Ink::Other, Ink::Series),
    };
    cells.iter().map(|cell| cell.sifter.clone()).zip(cells.iter().map(ink)).collect()
}

/// Bytes kept from flash, and fetched again, each as a share of those without a sifter.
type Shares = fn(&Cell, &Cell) -> (f64, f64);

/// The two views, in the order of [`Cell::bound`].
const SHARES: [(&str, Shares); 2] = [
    ("whole trace", |cell, stock| (cell.again_share(stock), cell.kept_share_all(stock))),
    ("second half", |cell, stock| (cell.again_share_later(stock), cell.kept_share_later(stock))),
];

/// Returns the point of the upper bound: the most that any sifter keeps of a view, at no byte
/// fetched again. Only comparisons with the oracle have it.
fn upper_bound(cells: &[Cell], view: usize) -> Option<(f64, f64)> {
    let stock = cells.first()?;
    let bound = cells.iter().find_map(|cell| cell.bound(stock))?;
    Some((0.0, bound[view].1))
}

impl Sifters<'_> {
    fn ink(&self, sifter: &str) -> Ink {
        self.inks.iter().find(|(name, _)| name == sifter).map_or(Ink::Other, |(_, ink)| *ink)
    }

    fn label(cells: &[Cell]) -> String {
        let pages = cells.first().map_or(0, |cell| cell.memory_pages);
        size::memory(pages.into())
    }

    /// Draws kept against fetched again: a point a sifter, or a line over the sizes of memory.
    fn frontier(&self) -> Figure {
        let views = SHARES.iter().enumerate().map(|(view, (label, shares))| {
            let mut marks = match &self.sizes[..] {
                [only] => self.points(only, *shares),
                sizes => self.lines(sizes, *shares),
            };
            let bounds = self.sizes.iter().filter_map(|cells| upper_bound(cells, view));
            let (name, ink) = ("upper bound".to_owned(), Ink::Bound);
            match &mut marks {
                Marks::Points { points, .. } => {
                    points.extend(bounds.map(|at| Point { name: name.clone(), ink, at }));
                }
                Marks::Lines(lines) => {
                    let points: Vec<(f64, f64)> = bounds.collect();
                    lines.extend((!points.is_empty()).then_some(Line::new(name, ink, points)));
                }
                _ => {}
            }
            let x = Axis::new("fetched again, of the data without a sifter", Unit::Share);
            let y = Axis::new("saved from flash, of the data without a sifter", Unit::Share);
            let chart = Chart { title: String::new(), x, y, marks };
            View { label: (*label).to_owned(), panels: vec![chart] }
        });
        let bounded = match self.sizes.iter().any(|cells| upper_bound(cells, 0).is_some()) {
            true => " If no byte is fetched again, no sifter keeps more than the upper bound.",
            false => "",
        };
        let caption = match self.sizes.len() {
            1 => {
                "Up and left is better. The dotted line joins the Pareto-optimal sifters without \
                 knowledge of the future: no other one keeps more and fetches less."
            }
            _ => "Up and left is better. Each line is a sifter, each point on it a size of memory.",
        };
        Figure {
            id: "sift-frontier".to_owned(),
            title: "Kept from flash against fetched again".to_owned(),
            caption: format!("{caption}{bounded}"),
            paper: String::new(),
            views: views.collect(),
            first: 0,
        }
    }

    fn points(&self, cells: &[Cell], shares: Shares) -> Marks {
        let (Some(stock), sifters) = (cells.first(), cells.get(1..).unwrap_or_default()) else {
            return Marks::Points { points: Vec::new(), front: Vec::new() };
        };
        // Without others, the point without a sifter is all there is.
        let sifters = if sifters.is_empty() { cells } else { sifters };
        let point = |cell: &Cell| Point {
            name: cell.sifter.clone(),
            ink: self.ink(&cell.sifter),
            at: shares(cell, stock),
        };
        let online = sifters.iter().filter(|cell| !cell.offline);
        let front = front(online.map(|cell| shares(cell, stock)).collect());
        Marks::Points { points: sifters.iter().map(point).collect(), front }
    }

    fn lines(&self, sizes: &[&[Cell]], shares: Shares) -> Marks {
        let names = sizes.first().copied().unwrap_or_default();
        let names = if names.len() > 1 { &names[1..] } else { names };
        let line = |first: &Cell| {
            let of_size = sizes.iter().filter_map(|cells| {
                let cell = cells.iter().find(|cell| cell.sifter == first.sifter)?;
                Some(shares(cell, cells.first()?))
            });
            let mut points: Vec<(f64, f64)> = of_size.collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            Line::new(first.sifter.clone(), self.ink(&first.sifter), points)
        };
        Marks::Lines(names.iter().map(line).collect())
    }

    /// Draws a view for each size of memory, with a chart for each of these panels.
    fn by_memory(&self, panels: impl Fn(&[Cell]) -> Vec<Chart>) -> Vec<View> {
        let view = |cells: &&[Cell]| View { label: Self::label(cells), panels: panels(cells) };
        self.sizes.iter().map(view).collect()
    }

    /// Draws the bytes at flash by sifter.
    fn at_flash(&self) -> Figure {
        let own =
            |cell: &Cell| cell.outcome.device.journal_writes + cell.outcome.device.metadata_writes;
        let with_fs = self.run.cells.iter().any(|cell| own(cell) > 0);
        let parts = [
            ("droppable files", Ink::Series(1)),
            ("other files", Ink::Series(0)),
            ("journal and metadata", Ink::Series(2)),
        ];
        let parts = &parts[..if with_fs { 3 } else { 2 }];
        let chart = |cells: &[Cell]| {
            let mut order: Vec<&Cell> = cells.iter().collect();
            let values = |cell: &Cell| {
                [cell.sifted.droppable.all, cell.sifted.others.all, own(cell) * PAGE_BYTES]
            };
            order.sort_by_key(|cell| values(cell).iter().sum::<u64>());
            let bar = |cell: &&Cell| Bar {
                values: values(cell).map(|bytes| bytes as f64)[..parts.len()].to_vec(),
            };
            let marks = Marks::Bars {
                parts: parts.iter().map(|(name, ink)| ((*name).to_owned(), *ink)).collect(),
                bars: order.iter().map(bar).collect(),
            };
            vec![bars(String::new(), Axis::new("bytes to flash", Unit::Bytes), &order, marks)]
        };
        Figure {
            id: "sift-flash".to_owned(),
            title: "Data that reaches flash, by sifter".to_owned(),
            caption: "Lower is better. File data is what Linux writes back; all files that are \
                      still in RAM at the end are written."
                .to_owned(),
            paper: String::new(),
            views: self.by_memory(chart),
            first: 0,
        }
    }

    /// Draws the bytes at flash and those fetched again over time; nothing for a trace without
    /// duration.
    fn over_time(&self) -> Option<Figure> {
        // The write-out at the end is a step at the last time.
        let end_us = self.run.end_us;
        let ends_us: Vec<u64> =
            self.run.begins_us.iter().copied().chain([end_us, end_us]).collect();
        let panels: [(&str, &str, OfSlice); 2] = [
            ("Data of droppable files to flash", "bytes so far", |slice| slice.droppable),
            ("Fetched again", "bytes so far", |slice| slice.fetched_again),
        ];
        let charts = |cells: &[Cell]| {
            let chart = |(title, axis, of): &(&str, &str, OfSlice)| {
                let line = |cell: &Cell| {
                    let mut sum = 0;
                    let sifted = &cell.sifted;
                    let points = sifted.slices.iter().chain([&sifted.at_end]).zip(&ends_us);
                    let points = points.map(|(slice, at_us)| {
                        sum += of(slice);
                        (*at_us as f64, sum as f64)
                    });
                    let points = std::iter::once((0.0, 0.0)).chain(points).collect();
                    Line::new(cell.sifter.clone(), self.ink(&cell.sifter), points)
                };
                Chart {
                    title: (*title).to_owned(),
                    x: Axis::new("time in the trace", Unit::TimeUs),
                    y: Axis::new(*axis, Unit::Bytes),
                    marks: Marks::Lines(cells.iter().map(line).collect()),
                }
            };
            panels.iter().map(chart).collect::<Vec<Chart>>()
        };
        (self.run.end_us > 0).then(|| Figure {
            id: "sift-over-time".to_owned(),
            title: "Over time".to_owned(),
            caption: "Lower is better. The step at the end is the write-out of all files in RAM."
                .to_owned(),
            paper: String::new(),
            views: self.by_memory(charts),
            first: 0,
        })
    }

    /// Draws the time of all requests on each device.
    fn on_devices(&self) -> Option<Figure> {
        let devices = self.run.cells.first().map_or(&[][..], |cell| &cell.devices);
        let charts = |cells: &[Cell]| {
            let chart = |n: usize| {
                let mut order: Vec<&Cell> = cells.iter().collect();
                let elapsed_us = |cell: &Cell| cell.devices[n].elapsed_s * 1e6;
                order.sort_by(|one, other| elapsed_us(one).total_cmp(&elapsed_us(other)));
                let marks = Marks::Bars {
                    parts: vec![("elapsed".to_owned(), Ink::Series(0))],
                    bars: order.iter().map(|cell| Bar { values: vec![elapsed_us(cell)] }).collect(),
                };
                let x = Axis::new("all requests", Unit::TimeUs);
                bars(devices[n].device.to_string(), x, &order, marks)
            };
            (0..devices.len()).map(chart).collect::<Vec<Chart>>()
        };
        (!devices.is_empty()).then(|| Figure {
            id: "sift-elapsed".to_owned(),
            title: "Time on the device, as fast as it can".to_owned(),
            caption: "Lower is better. Fetching is not part of it.".to_owned(),
            paper: String::new(),
            views: self.by_memory(charts),
            first: 0,
        })
    }

    /// Writes the main results of the largest memory.
    fn sentences(&self) -> Vec<String> {
        let Some([stock, sifters @ ..]) = self.sizes.last() else { return Vec::new() };
        let own = stock.sifted.droppable.all;
        let all = own + stock.sifted.others.all;
        let mut out = vec![format!(
            "Without a sifter, {} of the {} of file data that reach flash are of droppable files.",
            size::bytes(own),
            size::bytes(all)
        )];
        let kept = |cell: &&Cell| cell.kept_share_all(stock);
        let again = |cell: &&Cell| cell.again_share(stock);
        let memory = Self::label(std::slice::from_ref(stock));
        let says = |cell: &Cell, what: &str| {
            format!(
                "{}{what} saves {} of it from flash at {memory}, and {} of it is fetched again.",
                cell.sifter,
                size::share(kept(&cell)),
                size::share(again(&cell))
            )
        };
        let online = || sifters.iter().filter(|cell| !cell.offline);
        let at = |cell: &&Cell| (again(cell), kept(cell));
        let best = front(online().map(|cell| at(&cell)).collect());
        // Of equal sifters, the first speaks for all.
        let mut pareto: Vec<&Cell> = best
            .iter()
            .filter(|(_, kept)| *kept > 0.0)
            .filter_map(|best| online().find(|cell| at(cell) == *best))
            .collect();
        pareto.sort_by(|one, other| kept(other).total_cmp(&kept(one)));
        out.extend(pareto.iter().map(|cell| says(cell, "")));
        if pareto.is_empty() && online().next().is_some() {
            out.push(format!("No sifter keeps anything from flash at {memory}."));
        }
        let offline = sifters.iter().filter(|cell| cell.offline);
        out.extend(offline.map(|cell| says(cell, ", which knows the rest of the trace,")));
        out.extend(sifters.iter().find_map(|cell| cell.bound(stock)).map(|[(_, most), _]| {
            format!(
                "No sifter keeps more than {} of it unless some bytes are fetched again for that.",
                size::share(most)
            )
        }));
        out
    }
}

/// Draws one bar for each of these sifters.
fn bars(title: String, x: Axis, order: &[&Cell], marks: Marks) -> Chart {
    let names = order.iter().map(|cell| cell.sifter.clone()).collect();
    Chart { title, x, y: Axis::new("", Unit::Count).scale(Scale::Names(names)), marks }
}

/// Returns the points that no other one exceeds: less fetched again, more kept.
fn front(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.total_cmp(&one.1)));
    let mut front: Vec<(f64, f64)> = Vec::new();
    for (again, kept) in points {
        if front.last().is_none_or(|(_, most)| kept > *most) {
            front.push((again, kept));
        }
    }
    front
}

/// A column of the table: title, unit and value, beside the cell without a sifter.
type Column = (String, Unit, Box<dyn Fn(&Cell, &Cell) -> f64>);

/// All numbers of a size of memory.
fn table(at: usize, cells: &[Cell]) -> Table {
    let column = |title: &str, unit: Unit, of: fn(&Cell, &Cell) -> f64| -> Column {
        (title.to_owned(), unit, Box::new(of))
    };
    let mut columns = vec![
        column("saved", Unit::Share, |cell, stock| cell.kept_share_all(stock)),
        column("again", Unit::Share, |cell, stock| cell.again_share(stock)),
        column("later: saved", Unit::Share, |cell, stock| cell.kept_share_later(stock)),
        column("later: again", Unit::Share, |cell, stock| cell.again_share_later(stock)),
        column("to flash", Unit::Bytes, |cell, _| cell.sifted.droppable.all as f64),
        column("fetched again", Unit::Bytes, |cell, _| cell.sifted.fetched_again.all as f64),
        column("files dropped", Unit::Count, |cell, _| cell.sifted.counters.dropped.files as f64),
        column("other files to flash", Unit::Bytes, |cell, _| cell.sifted.others.all as f64),
        column("journal", Unit::Bytes, |cell, _| {
            (cell.outcome.device.journal_writes * PAGE_BYTES) as f64
        }),
        column("metadata", Unit::Bytes, |cell, _| {
            (cell.outcome.device.metadata_writes * PAGE_BYTES) as f64
        }),
        column("hits", Unit::Share, |cell, _| cell.outcome.hit_ratio()),
        column("read from flash", Unit::Bytes, |cell, _| {
            (cell.outcome.device.reads * PAGE_BYTES) as f64
        }),
    ];
    let devices = cells.first().map_or(&[][..], |cell| &cell.devices).iter().enumerate();
    columns.extend(devices.map(|(n, device)| -> Column {
        let title = format!("on {}", device.device);
        (
            title,
            Unit::TimeUs,
            Box::new(move |cell: &Cell, _: &Cell| cell.devices[n].elapsed_s * 1e6),
        )
    }));
    let row = |cell: &Cell| {
        let offline = if cell.offline { " (offline)" } else { "" };
        let name = Shown::text(format!("{}{offline}", cell.sifter));
        let stock = &cells[0];
        let values = columns.iter().map(|(_, unit, of)| Shown::value(*unit, of(cell, stock)));
        std::iter::once(name).chain(values).collect()
    };
    let bound = cells.iter().find_map(|cell| cell.bound(&cells[0])).map(|[all, later]| {
        let shares = [all.1, 0.0, later.1, 0.0].map(|share| Shown::value(Unit::Share, share));
        let flash = Shown::value(Unit::Bytes, all.0 as f64);
        let known =
            std::iter::once(Shown::text(UPPER_BOUND.to_owned())).chain(shares).chain([flash]);
        let unknown = std::iter::repeat_with(|| Shown::text(String::new()));
        known.chain(unknown).take(columns.len() + 1).collect()
    });
    let titles = columns.iter().map(|(title, ..)| title.clone());
    Table {
        id: format!("table-{at}"),
        title: format!("Memory of {}", Sifters::label(cells)),
        columns: std::iter::once("sifter".to_owned()).chain(titles).collect(),
        rows: cells.iter().map(row).chain(bound).collect(),
        open: at == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::front;

    #[test]
    fn the_front_has_what_no_other_exceeds() {
        let found = front(vec![(0.3, 0.9), (0.0, 0.1), (0.1, 0.5), (0.1, 0.4), (0.2, 0.5)]);
        assert_eq!(found, [(0.0, 0.1), (0.1, 0.5), (0.3, 0.9)]);
        assert_eq!(front(Vec::new()), []);
    }
}
