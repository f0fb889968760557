//! The comparison as a table for each cache size: the best value of each column is marked, and
//! offline policies are set apart.

use crate::size;
use comfy_table::{Attribute, Cell, CellAlignment, Table, presets};
use flashsift_core::{
    device::wear::NotShown,
    nvm::profile::MemoryCost,
    policy::Kind,
    readahead,
    study::{CaseLatency, DeviceResult, ResultRow, SizeResults},
    system::Outcome,
};
use flashsift_report as report;

/// One row of a table: the results of a cell.
pub(super) struct Row<'a> {
    cell: &'a ResultRow,
    /// Time and wear on a device, for the table of that device.
    on: Option<&'a DeviceResult>,
    /// Time and energy of a modelled memory, for the table of that memory.
    memory: Option<&'a MemoryCost>,
    /// The row is of the table of read-ahead.
    ahead: bool,
    /// The row is of the table of the cases of reads.
    cases: bool,
}

impl<'a> Row<'a> {
    fn new(cell: &'a ResultRow) -> Self {
        Self { cell, on: None, memory: None, ahead: false, cases: false }
    }
}

/// The rows of a size.
pub(super) fn rows(size: &SizeResults) -> Vec<Row<'_>> {
    size.rows.iter().map(Row::new).collect()
}

/// The rows of a size on each device, by the device's label.
pub(super) fn rows_on_devices(size: &SizeResults) -> impl Iterator<Item = (&str, Vec<Row<'_>>)> {
    let devices = size.rows.first().map_or(&[][..], |row| &row.devices);
    devices.iter().enumerate().map(|(n, device)| {
        let rows = size.rows.iter();
        let on = rows.map(|cell| Row { on: Some(&cell.devices[n]), ..Row::new(cell) });
        (&*device.device, on.collect())
    })
}

/// The rows of a size with each modelled memory, by its name.
pub(super) fn rows_with_memory(size: &SizeResults) -> impl Iterator<Item = (&str, Vec<Row<'_>>)> {
    let memories = size.rows.first().map_or(&[][..], |row| &row.memory);
    memories.iter().enumerate().map(|(n, (name, _))| {
        let rows = size.rows.iter();
        let with = rows.map(|cell| Row { memory: Some(&cell.memory[n].1), ..Row::new(cell) });
        (*name, with.collect())
    })
}

/// The rows of a size for the table of read-ahead, if read-aheads are compared.
pub(super) fn rows_reading_ahead(size: &SizeResults) -> Option<Vec<Row<'_>>> {
    size.rows.first()?.readahead.as_ref()?;
    Some(size.rows.iter().map(|cell| Row { ahead: true, ..Row::new(cell) }).collect())
}

/// The rows of a size for the table of the cases of reads on each device, by the device's label, if
/// read-aheads are compared.
pub(super) fn rows_by_case(size: &SizeResults) -> impl Iterator<Item = (&str, Vec<Row<'_>>)> {
    let compared = size.rows.first().is_some_and(|row| row.readahead.is_some());
    let devices = rows_on_devices(size).filter(move |_| compared);
    devices.map(|(device, rows)| {
        (device, rows.into_iter().map(|row| Row { cases: true, ..row }).collect())
    })
}

enum Best {
    Most,
    Least,
    /// The column has no best value.
    None,
}

struct Column {
    title: &'static str,
    best: Best,
    value: fn(&Row<'_>) -> f64,
    show: fn(&Row<'_>) -> String,
}

const HITS: Column = Column {
    title: "\nhits %",
    best: Best::Most,
    value: |row| row.cell.outcome.hit_ratio(),
    show: |row| format!("{:.2}", row.cell.outcome.hit_ratio() * 100.0),
};
const READS: Column = Column {
    title: "storage\nreads",
    best: Best::Least,
    value: |row| row.cell.outcome.device.reads as f64,
    show: |row| size::count(row.cell.outcome.device.reads),
};
const WRITES: Column = Column {
    title: "storage\nwrites",
    best: Best::Least,
    value: |row| row.cell.outcome.device.writes as f64,
    show: |row| size::count(row.cell.outcome.device.writes),
};
/// Writes that are compared together with the pages that have yet to be written ([`DUE`]).
const WRITES_SO_FAR: Column = Column { best: Best::None, ..WRITES };
const REQUESTS: Column = Column {
    title: "write\nrequests",
    best: Best::Least,
    value: |row| row.cell.outcome.device.write_requests as f64,
    show: |row| size::count(row.cell.outcome.device.write_requests),
};
const NONSEQUENTIAL: Column = Column {
    title: "not\nsequential",
    best: Best::Least,
    value: |row| row.cell.outcome.device.nonsequential_writes as f64,
    show: |row| {
        let share = row.cell.outcome.nonsequential_share() * 100.0;
        format!("{} ({share:>3.0} %)", size::count(row.cell.outcome.device.nonsequential_writes))
    },
};
/// A count without its share.
const NONSEQUENTIAL_NARROW: Column = Column {
    show: |row| size::count(row.cell.outcome.device.nonsequential_writes),
    ..NONSEQUENTIAL
};
const SYNCED: Column = Column {
    title: "of them\nsynced",
    best: Best::Least,
    value: |_| 0.0,
    show: |row| size::count(row.cell.outcome.device.sync_writes),
};
const JOURNAL: Column = Column {
    title: "journal\nwrites",
    best: Best::Least,
    value: |row| row.cell.outcome.device.journal_writes as f64,
    show: |row| size::count(row.cell.outcome.device.journal_writes),
};
const METADATA: Column = Column {
    title: "metadata\nwrites",
    best: Best::Least,
    value: |row| row.cell.outcome.device.metadata_writes as f64,
    show: |row| size::count(row.cell.outcome.device.metadata_writes),
};
/// The pages that the verdict and the page compare: a policy that has postponed its writes saved
/// none.
const DUE: Column = Column {
    title: "written\n+ dirty",
    best: Best::Least,
    value: |row| row.cell.outcome.writes_due() as f64,
    show: |row| size::count(row.cell.outcome.writes_due()),
};
const IN_NVM: Column = Column {
    title: "left\nin NVM",
    best: Best::None,
    value: |row| row.cell.outcome.traffic.nvm_left as f64,
    show: |row| size::count(row.cell.outcome.traffic.nvm_left),
};
const DRAINED: Column = Column {
    title: "of them\ndrained",
    best: Best::None,
    value: |row| row.cell.outcome.device.drained as f64,
    show: |row| size::count(row.cell.outcome.device.drained),
};
const DROPPED: Column = Column {
    title: "dropped\ndirty",
    best: Best::None,
    value: |row| row.cell.outcome.device.dropped_dirty as f64,
    show: |row| size::count(row.cell.outcome.device.dropped_dirty),
};
const COST: Column = Column {
    title: "\ncost s",
    best: Best::Least,
    value: |row| row.cell.outcome.cost_us() as f64,
    show: |row| format!("{:.2}", row.cell.outcome.cost_us() as f64 / 1e6),
};
const CPU: Column = Column {
    title: "ns per\naccess",
    // CPU time is not a result and varies between runs.
    best: Best::None,
    value: |row| row.cell.cpu_ns_per_access,
    show: |row| format!("{:.1}", row.cell.cpu_ns_per_access),
};

const ELAPSED: Column = Column {
    title: "\nelapsed s",
    best: Best::Least,
    value: |row| row.on.map_or(0.0, |on| on.elapsed_s),
    show: |row| of_device(row, |on| Some(format!("{:.3}", on.elapsed_s))),
};
const STALL: Column = Column {
    title: "\nstall s",
    best: Best::Least,
    value: |row| row.on.and_then(|on| on.stall_s).unwrap_or(0.0),
    show: |row| of_device(row, |on| Some(format!("{:.3}", on.stall_s?))),
};
const AMPLIFICATION: Column = Column {
    title: "write\namplification",
    best: Best::Least,
    value: |row| row.on.and_then(|on| on.write_amplification.ok()).unwrap_or(f64::INFINITY),
    show: |row| of_device(row, |on| Some(format!("{:.2}", on.write_amplification.ok()?))),
};
const LIFETIME: Column = Column {
    title: "lifetime\ngain %",
    best: Best::Most,
    value: |row| row.on.and_then(|on| on.lifetime_gain).unwrap_or(f64::NEG_INFINITY),
    show: |row| of_device(row, |on| Some(format!("{:+.1}", on.lifetime_gain? * 100.0))),
};

const GB_PER_DAY: Column = Column {
    title: "\nGB/day",
    best: Best::Least,
    value: |row| row.on.and_then(|on| on.daily).map_or(f64::INFINITY, |day| day.gb_per_day()),
    show: |row| of_device(row, |on| Some(size::significant(on.daily?.gb_per_day()))),
};
const DRIVE_WRITES: Column = Column {
    title: "drive\nwrites/day",
    best: Best::Least,
    value: |row| row.on.and_then(|on| on.drive_writes_per_day).unwrap_or(f64::INFINITY),
    show: |row| of_device(row, |on| Some(size::significant(on.drive_writes_per_day?))),
};
const YEARS: Column = Column {
    title: "\nyears",
    best: Best::Most,
    value: |row| {
        row.on.and_then(|on| on.lifetime.ok()).map_or(f64::NEG_INFINITY, |life| life.years)
    },
    show: |row| of_device(row, |on| Some(size::significant(on.lifetime.ok()?.years))),
};

const NVM_READS: Column = Column {
    title: "NVM\nreads",
    best: Best::None,
    value: |row| row.cell.outcome.traffic.nvm_reads as f64,
    show: |row| size::count(row.cell.outcome.traffic.nvm_reads),
};
const NVM_WRITES: Column = Column {
    title: "NVM\nwrites",
    best: Best::None,
    value: |row| row.cell.outcome.traffic.nvm_writes as f64,
    show: |row| size::count(row.cell.outcome.traffic.nvm_writes),
};
const HOTTEST: Column = Column {
    title: "writes of\nhottest line",
    best: Best::None,
    value: |row| row.cell.outcome.traffic.nvm_hottest_line_writes as f64,
    show: |row| size::count(row.cell.outcome.traffic.nvm_hottest_line_writes),
};
const DRAM_S: Column = Column {
    title: "DRAM\nms",
    best: Best::None,
    value: |row| row.memory.map_or(0.0, |cost| cost.dram_s),
    show: |row| of_memory(row, |cost| Some(cost.dram_s * 1e3)),
};
const NVM_READ_S: Column = Column {
    title: "NVM reads\nms",
    best: Best::None,
    value: |row| row.memory.map_or(0.0, |cost| cost.nvm_read_s),
    show: |row| of_memory(row, |cost| Some(cost.nvm_read_s * 1e3)),
};
const NVM_WRITE_S: Column = Column {
    title: "NVM writes\nms",
    best: Best::None,
    value: |row| row.memory.map_or(0.0, |cost| cost.nvm_write_s),
    show: |row| of_memory(row, |cost| Some(cost.nvm_write_s * 1e3)),
};
const ENERGY: Column = Column {
    title: "\nenergy J",
    best: Best::Least,
    value: |row| {
        let energy = row.memory.and_then(|cost| cost.energy);
        energy.map_or(f64::INFINITY, |energy| energy.energy_by_time_j)
    },
    show: |row| of_memory(row, |cost| Some(cost.energy?.energy_by_time_j)),
};

const READ_REQUESTS: Column = Column {
    title: "read\nrequests",
    best: Best::Least,
    value: |row| row.cell.outcome.read_requests as f64,
    show: |row| size::count(row.cell.outcome.read_requests),
};
const WINDOWS: Column = Column {
    title: "\nwindows",
    best: Best::None,
    value: |row| row.cell.outcome.readahead.windows as f64,
    show: |row| size::count(row.cell.outcome.readahead.windows),
};
const WINDOW_PAGES: Column = Column {
    title: "mean\npages",
    best: Best::None,
    value: |row| row.cell.outcome.readahead.mean_pages().unwrap_or(0.0),
    show: |row| of_ahead(row, |ahead| Some(format!("{:.1}", ahead.mean_pages()?))),
};
const AT_MAX: Column = Column {
    title: "at the\nmaximum %",
    best: Best::None,
    value: |row| row.cell.outcome.readahead.share_at_max().unwrap_or(0.0),
    show: |row| of_ahead(row, |ahead| Some(format!("{:.1}", ahead.share_at_max()? * 100.0))),
};
const ASKED: Column = Column {
    title: "pages\nahead",
    best: Best::None,
    value: |row| row.cell.outcome.readahead.asked as f64,
    show: |row| size::count(row.cell.outcome.readahead.asked),
};
const FETCHED: Column = Column {
    title: "of them\nread",
    best: Best::None,
    value: |row| row.cell.outcome.readahead.read as f64,
    show: |row| size::count(row.cell.outcome.readahead.read),
};
const USED: Column = Column {
    title: "of them\nused",
    best: Best::None,
    value: |row| row.cell.outcome.readahead.used as f64,
    show: |row| size::count(row.cell.outcome.readahead.used),
};
const EFFICIENCY: Column = Column {
    title: "efficiency\n%",
    best: Best::Most,
    value: |row| row.cell.outcome.readahead.efficiency_of_read().unwrap_or(f64::NEG_INFINITY),
    show: |row| of_ahead(row, |ahead| Some(format!("{:.1}", ahead.efficiency_of_read()? * 100.0))),
};
const WASTED: Column = Column {
    title: "wasted\nMiB",
    best: Best::Least,
    value: |row| row.cell.outcome.readahead.wasted() as f64,
    show: |row| size::significant(row.cell.outcome.readahead.wasted() as f64 / 256.0),
};
const EVICTED: Column = Column {
    title: "evicted /\nasked",
    best: Best::Least,
    value: |row| evicted_share(&row.cell.outcome),
    show: |row| format!("{:.3}", evicted_share(&row.cell.outcome)),
};

/// The reads of each case.
const CASE_READS: [Column; 4] = [
    case_reads::<0>("reads\ncached"),
    case_reads::<1>("reads\nfree"),
    case_reads::<2>("reads\nclean"),
    case_reads::<3>("reads\ndirty"),
];
/// Their mean time on the device.
const CASE_LATENCY: [Column; 4] = [
    case_latency::<0>("µs\ncached"),
    case_latency::<1>("µs\nfree"),
    case_latency::<2>("µs\nclean"),
    case_latency::<3>("µs\ndirty"),
];
/// Their mean wait at recorded times.
const CASE_WAIT: [Column; 4] = [
    case_wait::<0>("wait µs\ncached"),
    case_wait::<1>("wait µs\nfree"),
    case_wait::<2>("wait µs\nclean"),
    case_wait::<3>("wait µs\ndirty"),
];

fn case<const CASE: usize>(row: &Row<'_>) -> Option<CaseLatency> {
    Some(row.on?.read_cases?[CASE])
}

const fn case_reads<const CASE: usize>(title: &'static str) -> Column {
    Column {
        title,
        best: Best::None,
        value: |row| case::<CASE>(row).map_or(0.0, |case| case.reads as f64),
        show: |row| of_device(row, |on| Some(size::count(on.read_cases?[CASE].reads))),
    }
}

// The mean of a case has no best: a read-ahead that turns cheap reads into hits leaves the others.
const fn case_latency<const CASE: usize>(title: &'static str) -> Column {
    Column {
        title,
        best: Best::None,
        value: |row| case::<CASE>(row).and_then(|case| case.latency_us()).unwrap_or(0.0),
        show: |row| of_device(row, |on| Some(format!("{:.1}", on.read_cases?[CASE].latency_us()?))),
    }
}

const fn case_wait<const CASE: usize>(title: &'static str) -> Column {
    Column {
        title,
        best: Best::None,
        value: |row| case::<CASE>(row).and_then(|case| case.stall_us()).unwrap_or(0.0),
        show: |row| of_device(row, |on| Some(format!("{:.1}", on.read_cases?[CASE].stall_us()?))),
    }
}

/// The paper's eviction ratio: pages evicted / pages that applications asked for. Known only where
/// pages are read ahead.
fn evicted_share(outcome: &Outcome) -> f64 {
    outcome.readahead.evicted as f64 / outcome.accesses().max(1) as f64
}

/// A dash for an absent value.
fn of_ahead(row: &Row<'_>, show: impl Fn(&readahead::Counts) -> Option<String>) -> String {
    show(&row.cell.outcome.readahead).unwrap_or_else(|| "–".to_owned())
}

const ERASURES: Column = Column {
    title: "NVM\nerasures",
    best: Best::Least,
    value: |row| row.memory.and_then(|cost| cost.erasures).unwrap_or(f64::INFINITY),
    show: |row| of_memory(row, |cost| cost.erasures),
};

fn of_memory(row: &Row<'_>, value: impl Fn(&MemoryCost) -> Option<f64>) -> String {
    row.memory.and_then(value).map_or_else(|| "–".to_owned(), size::significant)
}

/// A dash for an absent value.
fn of_device(row: &Row<'_>, show: impl Fn(&DeviceResult) -> Option<String>) -> String {
    row.on.and_then(show).unwrap_or_else(|| "–".to_owned())
}

/// Returns the columns that are meaningful for this trace.
fn columns(rows: &[Row<'_>], drain: bool, narrow: bool) -> Vec<&'static Column> {
    let on = || rows.iter().filter_map(|row| row.on);
    if rows.iter().any(|row| row.cases) {
        let has_stall = on().any(|on| on.stall_s.is_some());
        let mut columns: Vec<&Column> =
            if narrow { Vec::new() } else { CASE_READS.iter().collect() };
        columns.extend(&CASE_LATENCY);
        columns.extend(CASE_WAIT.iter().filter(|_| has_stall));
        return columns;
    }
    if on().next().is_some() {
        let mut columns = vec![&ELAPSED];
        columns.extend(on().any(|on| on.stall_s.is_some()).then_some(&STALL));
        let written = |on: &DeviceResult| on.write_amplification != Err(NotShown::NothingWritten);
        columns.extend(on().any(written).then_some(&AMPLIFICATION));
        columns.extend(on().any(|on| on.lifetime_gain.is_some()).then_some(&LIFETIME));
        if on().any(|on| on.daily.is_some_and(|daily| daily.bytes_per_day > 0.0)) {
            columns.push(&GB_PER_DAY);
            let drive_writes = on().any(|on| on.drive_writes_per_day.is_some());
            columns.extend((drive_writes && !narrow).then_some(&DRIVE_WRITES));
            columns.extend(on().any(|on| on.lifetime.is_ok()).then_some(&YEARS));
        }
        return columns;
    }
    if rows.iter().any(|row| row.ahead) {
        let mut columns = vec![&READ_REQUESTS, &WINDOWS, &WINDOW_PAGES, &AT_MAX];
        columns.extend((!narrow).then_some(&ASKED));
        columns.extend([&FETCHED, &USED, &EFFICIENCY, &WASTED, &EVICTED]);
        return columns;
    }
    if rows.iter().any(|row| row.memory.is_some()) {
        let mut columns = vec![&NVM_READS, &NVM_WRITES, &HOTTEST];
        columns.extend([&DRAM_S, &NVM_READ_S, &NVM_WRITE_S]);
        let has_energy = |row: &Row<'_>| row.memory.is_some_and(|cost| cost.energy.is_some());
        columns.extend(rows.iter().any(has_energy).then_some(&ENERGY));
        let is_flash = |row: &Row<'_>| row.memory.is_some_and(|cost| cost.erasures.is_some());
        columns.extend(rows.iter().any(is_flash).then_some(&ERASURES));
        return columns;
    }
    let mut columns: Vec<&Column> = vec![&HITS, &READS];
    if rows.iter().any(|row| row.cell.outcome.write_accesses > 0) {
        let nonsequential = if narrow { &NONSEQUENTIAL_NARROW } else { &NONSEQUENTIAL };
        columns.push(if drain { &WRITES } else { &WRITES_SO_FAR });
        columns.extend((!narrow).then_some(&REQUESTS));
        if rows.iter().any(|row| row.cell.outcome.device.sync_writes > 0) {
            columns.push(&SYNCED);
        }
        columns.push(if drain { &DRAINED } else { &DUE });
        let in_nvm = rows.iter().any(|row| row.cell.outcome.traffic.nvm_left > 0);
        columns.extend(in_nvm.then_some(&IN_NVM));
        columns.push(nonsequential);
        if rows.iter().any(|row| row.cell.outcome.device.dropped_dirty > 0) {
            columns.push(&DROPPED);
        }
        if rows.iter().any(|row| row.cell.outcome.device.journal_writes > 0) {
            columns.extend([&JOURNAL, &METADATA]);
        }
        columns.push(&COST);
    }
    columns.push(&CPU);
    columns
}

/// Renders the table without a final newline. A table wider than `width` gets narrower gaps and
/// fewer columns. `color`: prints the best in bold.
pub(super) fn render(rows: &[Row<'_>], drain: bool, color: bool, width: usize) -> String {
    let narrow = lines(rows, drain, false, false).iter().any(|line| line.chars().count() > width);
    lines(rows, drain, narrow, color).join("\n")
}

/// Returns the headers and rows of the table for the HTML page.
pub(super) fn cells(rows: &[Row<'_>], drain: bool) -> (Vec<String>, Vec<Vec<report::Cell>>) {
    let columns = columns(rows, drain, false);
    let titles = columns.iter().map(|column| column.title.trim_start().replace('\n', " "));
    let row = |row: &Row<'_>| {
        let name = match row.cell.kind {
            Kind::Online => row.cell.policy.clone(),
            Kind::Bound => format!("{} (bound)", row.cell.policy),
            Kind::Heuristic => format!("{} (offline)", row.cell.policy),
        };
        let values = columns.iter().map(|column| report::Cell {
            // Blanks that align a share in a terminal: `54 ( 14 %)`.
            text: (column.show)(row).replace("(  ", "(").replace("( ", "("),
            value: Some((column.value)(row)),
            strong: is_best(rows, row, column),
        });
        std::iter::once(report::Cell::text(name)).chain(values).collect()
    };
    (std::iter::once("policy".to_owned()).chain(titles).collect(), rows.iter().map(row).collect())
}

/// The heading above policies of one kind.
fn heading(kind: Kind) -> &'static str {
    match kind {
        Kind::Online => "online:",
        Kind::Bound => "bound for hits:",
        Kind::Heuristic => "offline heuristic, not a bound:",
    }
}

fn lines(rows: &[Row<'_>], drain: bool, narrow: bool, color: bool) -> Vec<String> {
    let columns = columns(rows, drain, narrow);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if !color {
        table.force_no_tty();
    } else {
        table.enforce_styling();
    }
    // Values end in a star or a space.
    let titles = columns.iter().map(|column| column.title.replace('\n', " \n") + " ");
    table.set_header(std::iter::once("\npolicy".to_owned()).chain(titles));
    let kinds = [Kind::Online, Kind::Bound, Kind::Heuristic];
    let ordered: Vec<&Row<'_>> = kinds
        .iter()
        .flat_map(|kind| rows.iter().filter(move |row| row.cell.kind == *kind))
        .collect();
    for row in &ordered {
        let cells =
            columns.iter().map(|column| match (is_best(rows, row, column), row.cell.kind) {
                (true, _) => {
                    Cell::new(format!("{}*", (column.show)(row))).add_attribute(Attribute::Bold)
                }
                (_, Kind::Online) => Cell::new(format!("{} ", (column.show)(row))),
                _ => Cell::new(format!("{} ", (column.show)(row))).add_attribute(Attribute::Dim),
            });
        table.add_row(std::iter::once(Cell::new(&row.cell.policy)).chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((u16::from(!narrow), 0));
    }
    let rendered: Vec<String> = table.lines().map(|line| format!(" {}", line.trim_end())).collect();
    // Each row is one line.
    let (header, body) = rendered.split_at(rendered.len() - ordered.len());
    let mut lines = header.to_vec();
    let mut kind = Kind::Online;
    for (row, line) in ordered.iter().zip(body) {
        if row.cell.kind != kind {
            kind = row.cell.kind;
            lines.push(format!("  {}", heading(kind)));
        }
        lines.push(line.clone());
    }
    lines
}

/// A column of equal values has no best, and offline policies do not compete.
fn is_best(rows: &[Row<'_>], row: &Row<'_>, column: &Column) -> bool {
    let values = || rows.iter().filter(|row| row.cell.kind == Kind::Online).map(column.value);
    let best = match column.best {
        Best::Most => values().fold(f64::NEG_INFINITY, f64::max),
        Best::Least => values().fold(f64::INFINITY, f64::min),
        Best::None => return false,
    };
    row.cell.kind == Kind::Online
        && (column.value)(row) == best
        && values().any(|value| value != best)
}

#[cfg(test)]
mod tests {
    use super::{rows as rows_of, *};
    use flashsift_core::{back::DeviceCounts, system::Outcome};

    fn row(policy: &str, kind: Kind, hits: u64) -> ResultRow {
        let device = DeviceCounts {
            writes: 90_000,
            nonsequential_writes: 45_000,
            dropped_dirty: 7,
            ..Default::default()
        };
        let outcome = Outcome {
            read_accesses: 50_000,
            write_accesses: 50_000,
            read_hits: hits,
            device,
            ..Default::default()
        };
        let policy = policy.to_owned();
        ResultRow {
            readahead: None,
            system: "storage".to_owned(),
            is_plain: true,
            nvm_pages: None,
            memory: Vec::new(),
            policy,
            kind,
            frames: 1,
            outcome,
            cpu_ns_per_access: 12.0,
            devices: Vec::new(),
            charged: None,
        }
    }

    /// The star of the writes was once on the policy with the fewest pages written at the end of a
    /// trace. The sentence below counts the dirty pages too, and named another policy.
    // Promises: Compare 10.
    #[test]
    fn the_star_counts_the_dirty_pages_as_the_verdict_does() {
        let with = |policy: &str, writes, dirty_left| {
            let mut row = row(policy, Kind::Online, 5_000);
            row.outcome.device.writes = writes;
            row.outcome.dirty_left = dirty_left;
            row
        };
        let rows = vec![with("lazy", 80_000, 20_000), with("eager", 90_000, 100)];
        let size = SizeResults { frames: 1, rows };
        let table = render(&rows_of(&size), false, false, 120);
        let line = |policy: &str| table.lines().find(|line| line.contains(policy)).unwrap();
        assert!(line("eager").contains("90\u{202f}100*"), "{table}");
        assert!(!line("lazy").contains("000*"), "{table}");
    }

    /// Offline policies come last, under their heading, in any order of the cells; the heading does
    /// not widen the table.
    #[test]
    fn a_table_fits_where_it_can() {
        let rows = vec![
            row("belady", Kind::Bound, 9_000),
            row("spatialclock", Kind::Online, 5_000),
            row("belady-cost", Kind::Heuristic, 8_000),
            row("lru", Kind::Online, 4_000),
        ];
        let size = SizeResults { frames: 1, rows };
        let rows = rows_of(&size);
        let wide = render(&rows, false, false, 120);
        let first_words: Vec<_> =
            wide.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
        assert_eq!(
            first_words,
            [
                "storage",
                "policy",
                "spatialclock",
                "lru",
                "bound",
                "belady",
                "offline",
                "belady-cost"
            ]
        );
        assert!(
            wide.contains("( 50 %)") && wide.contains("5.00*") && !wide.contains("9.00*"),
            "{wide}"
        );
        let narrow = render(&rows, false, false, 80);
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 80) && !narrow.contains("( 50 %)"),
            "{narrow}"
        );
    }
}
