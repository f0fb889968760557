//! The comparison as a table for each cache size: the best value of each column is marked, and
//! offline policies are set apart.

use crate::size;
use comfy_table::{Attribute, Cell, CellAlignment, Table, presets};
use flashsift_caches::policy::Kind;
use flashsift_pages::device::wear::NotShown;
use flashsift_report as report;
use flashsift_study::{
    DeviceResult, SizeResults,
    figures::{Extreme, HasFigures, Heading, ResultFigure, Shown},
    record::CellOf,
};

/// One row of a table: the results of a cell.
pub(super) struct Row<'a> {
    of: CellOf<'a>,
    /// The row is of the table of read-ahead.
    ahead: bool,
    /// The row is of the table of the cases of reads.
    cases: bool,
}

impl<'a> Row<'a> {
    fn new(of: CellOf<'a>) -> Self {
        Self { of, ahead: false, cases: false }
    }
}

/// The cells of a size.
fn cells_of(size: &SizeResults) -> impl Iterator<Item = CellOf<'_>> {
    size.rows.iter().map(CellOf::new)
}

/// The rows of a size.
pub(super) fn rows(size: &SizeResults) -> Vec<Row<'_>> {
    cells_of(size).map(Row::new).collect()
}

/// The rows of a size on each device, by the device's label.
pub(super) fn rows_on_devices(size: &SizeResults) -> impl Iterator<Item = (&str, Vec<Row<'_>>)> {
    let devices = size.rows.first().map_or(&[][..], |row| &row.devices);
    devices.iter().enumerate().map(|(n, device)| {
        let cells = cells_of(size);
        let on = cells.map(|of| Row::new(CellOf { on: Some(&of.row.devices[n]), ..of }));
        (&*device.device, on.collect())
    })
}

/// The rows of a size with each modelled memory, by its name.
pub(super) fn rows_with_memory(size: &SizeResults) -> impl Iterator<Item = (&str, Vec<Row<'_>>)> {
    let memories = size.rows.first().map_or(&[][..], |row| &row.memory);
    memories.iter().enumerate().map(|(n, (name, _))| {
        let cells = cells_of(size);
        let with = cells.map(|of| Row::new(CellOf { memory: Some(&of.row.memory[n].1), ..of }));
        (*name, with.collect())
    })
}

/// The rows of a size for the table of read-ahead, if read-aheads are compared.
pub(super) fn rows_reading_ahead(size: &SizeResults) -> Option<Vec<Row<'_>>> {
    size.rows.first()?.readahead.as_ref()?;
    Some(cells_of(size).map(|of| Row { ahead: true, ..Row::new(of) }).collect())
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

/// A column: a figure, and its head.
struct Column<'a> {
    figure: ResultFigure<CellOf<'a>>,
    heading: Heading,
    /// A count of writes has its share beside it.
    has_share: bool,
}

impl<'a> Column<'a> {
    fn number(&self, row: &Row<'a>) -> Option<f64> {
        (self.figure.of)(&row.of).number()
    }

    /// The number to compare; the worst where there is none.
    fn value(&self, row: &Row<'a>) -> f64 {
        self.number(row).unwrap_or(match self.heading.best {
            Extreme::Most => f64::NEG_INFINITY,
            Extreme::Least => f64::INFINITY,
            Extreme::None => 0.0,
        })
    }

    /// The number as it is printed: a dash where there is none.
    fn show(&self, row: &Row<'a>) -> String {
        let Some(number) = self.number(row) else { return "–".to_owned() };
        match self.heading.shown {
            Shown::Count if self.has_share => {
                let share = row.of.row.outcome.nonsequential_share() * 100.0;
                format!("{} ({share:>3.0} %)", size::count(number as u64))
            }
            Shown::Count => size::count(number as u64),
            Shown::Fixed(digits) => format!("{number:.digits$}"),
            Shown::Percent(digits) => format!("{:.digits$}", number * 100.0),
            Shown::Gain => format!("{:+.1}", number * 100.0),
            Shown::Seconds => format!("{:.2}", number / 1e6),
            Shown::Significant => size::significant(number),
            Shown::Milliseconds => size::significant(number * 1e3),
            Shown::Mebibytes => size::significant(number / 256.0),
        }
    }
}

/// Returns the columns that are meaningful for this trace.
fn columns<'a>(rows: &[Row<'a>], drain: bool, narrow: bool) -> Vec<Column<'a>> {
    let mut figures = CellOf::figures();
    let column = |name: &str| {
        let at = figures.iter().position(|figure| figure.name == name);
        let figure = figures.swap_remove(at.expect("each column is a figure of a cell"));
        let mut heading = figure.heading.expect("the figure of a column has a heading");
        // Compared together with the pages that have yet to be written.
        if name == "device_writes" && !drain {
            heading.best = Extreme::None;
        }
        Column { figure, heading, has_share: name == "nonsequential_writes" && !narrow }
    };
    names(rows, drain, narrow).into_iter().map(column).collect()
}

/// Returns the names of the figures that are meaningful for this trace.
fn names(rows: &[Row<'_>], drain: bool, narrow: bool) -> Vec<&'static str> {
    let any = |holds: fn(&CellOf<'_>) -> bool| rows.iter().any(|row| holds(&row.of));
    let on = || rows.iter().filter_map(|row| row.of.on);
    let has_stall = on().any(|on| on.stall_s.is_some());
    let mut names = Vec::new();
    let mut add = |holds: bool, more: &[&'static str]| {
        names.extend(more.iter().filter(|_| holds));
    };
    if rows.iter().any(|row| row.cases) {
        add(!narrow, &["reads_of_cached", "reads_of_free", "reads_of_clean", "reads_of_dirty"]);
        add(true, &["us_of_cached", "us_of_free", "us_of_clean", "us_of_dirty"]);
        add(has_stall, &["wait_of_cached", "wait_of_free", "wait_of_clean", "wait_of_dirty"]);
    } else if on().next().is_some() {
        add(true, &["elapsed_s"]);
        add(has_stall, &["stall_s"]);
        let written = |on: &DeviceResult| on.write_amplification != Err(NotShown::NothingWritten);
        add(on().any(written), &["write_amplification"]);
        add(on().any(|on| on.lifetime_gain.is_some()), &["lifetime_gain"]);
        if on().any(|on| on.daily.is_some_and(|daily| daily.bytes_per_day > 0.0)) {
            add(true, &["gb_per_day"]);
            let drive_writes = on().any(|on| on.drive_writes_per_day.is_some());
            add(drive_writes && !narrow, &["drive_writes_per_day"]);
            add(on().any(|on| on.lifetime.is_ok()), &["years"]);
        }
    } else if rows.iter().any(|row| row.ahead) {
        add(true, &["device_read_requests", "windows", "mean_pages", "share_at_max"]);
        add(!narrow, &["prefetched_asked"]);
        add(true, &["prefetched_read", "prefetched_used", "readahead_efficiency_of_read"]);
        add(true, &["wasted_pages", "evicted_share"]);
    } else if any(|of| of.memory.is_some()) {
        add(true, &["nvm_reads", "nvm_writes", "hottest_line"]);
        add(true, &["dram_s", "nvm_read_s", "nvm_write_s"]);
        let has_energy = any(|of| of.memory.is_some_and(|cost| cost.energy.is_some()));
        add(has_energy, &["energy_by_time_j"]);
        add(any(|of| of.memory.is_some_and(|cost| cost.erasures.is_some())), &["erasures"]);
    } else {
        let writes = any(|of| of.row.outcome.write_accesses > 0);
        add(true, &["hit_ratio", "device_reads"]);
        add(writes, &["device_writes"]);
        add(writes && !narrow, &["device_write_requests"]);
        add(writes && any(|of| of.row.outcome.device.sync_writes > 0), &["sync_writes"]);
        add(writes, if drain { &["drained"] } else { &["writes_due"] });
        add(writes && any(|of| of.row.outcome.traffic.nvm_left > 0), &["nvm_left"]);
        add(writes, &["nonsequential_writes"]);
        add(writes && any(|of| of.row.outcome.device.dropped_dirty > 0), &["dropped_dirty"]);
        let own = writes && any(|of| of.row.outcome.device.journal_writes > 0);
        add(own, &["journal_writes", "metadata_writes"]);
        add(writes, &["cost_us"]);
        add(true, &["cpu_ns_per_access"]);
    }
    names
}

/// Renders the table without a final newline. A table wider than `width` gets narrower gaps and
/// fewer columns. `color`: prints the best in bold.
pub(super) fn render(rows: &[Row<'_>], drain: bool, color: bool, width: usize) -> String {
    let narrow = lines(rows, drain, false, false).iter().any(|line| line.chars().count() > width);
    lines(rows, drain, narrow, color).join("\n")
}

/// Returns the headers and rows of the table for the HTML page.
pub(super) fn cells<'a>(rows: &[Row<'a>], drain: bool) -> (Vec<String>, Vec<Vec<report::Cell>>) {
    let columns = columns(rows, drain, false);
    let titles = columns.iter().map(|column| column.heading.title.trim_start().replace('\n', " "));
    let row = |row: &Row<'a>| {
        let name = match row.of.row.kind {
            Kind::Online => row.of.row.policy.clone(),
            Kind::Bound => format!("{} (bound)", row.of.row.policy),
            Kind::Heuristic => format!("{} (offline)", row.of.row.policy),
        };
        let values = columns.iter().map(|column| report::Cell {
            // Blanks that align a share in a terminal: `54 ( 14 %)`.
            text: column.show(row).replace("(  ", "(").replace("( ", "("),
            value: Some(column.value(row)),
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

fn lines<'a>(rows: &[Row<'a>], drain: bool, narrow: bool, color: bool) -> Vec<String> {
    let columns = columns(rows, drain, narrow);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if !color {
        table.force_no_tty();
    } else {
        table.enforce_styling();
    }
    // Values end in a star or a space.
    let titles = columns.iter().map(|column| column.heading.title.replace('\n', " \n") + " ");
    table.set_header(std::iter::once("\npolicy".to_owned()).chain(titles));
    let kinds = [Kind::Online, Kind::Bound, Kind::Heuristic];
    let ordered: Vec<&Row<'a>> = kinds
        .iter()
        .flat_map(|kind| rows.iter().filter(move |row| row.of.row.kind == *kind))
        .collect();
    for row in &ordered {
        let cells =
            columns.iter().map(|column| match (is_best(rows, row, column), row.of.row.kind) {
                (true, _) => {
                    Cell::new(format!("{}*", column.show(row))).add_attribute(Attribute::Bold)
                }
                (_, Kind::Online) => Cell::new(format!("{} ", column.show(row))),
                _ => Cell::new(format!("{} ", column.show(row))).add_attribute(Attribute::Dim),
            });
        table.add_row(std::iter::once(Cell::new(&row.of.row.policy)).chain(cells));
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
        if row.of.row.kind != kind {
            kind = row.of.row.kind;
            lines.push(format!("  {}", heading(kind)));
        }
        lines.push(line.clone());
    }
    lines
}

/// A column of equal values has no best, and offline policies do not compete.
fn is_best<'a>(rows: &[Row<'a>], row: &Row<'a>, column: &Column<'a>) -> bool {
    let values =
        || rows.iter().filter(|row| row.of.row.kind == Kind::Online).map(|row| column.value(row));
    let best = match column.heading.best {
        Extreme::Most => values().fold(f64::NEG_INFINITY, f64::max),
        Extreme::Least => values().fold(f64::INFINITY, f64::min),
        Extreme::None => return false,
    };
    row.of.row.kind == Kind::Online
        && column.value(row) == best
        && values().any(|value| value != best)
}

#[cfg(test)]
mod tests {
    use super::{rows as rows_of, *};
    use flashsift_caches::back::DeviceCounts;
    use flashsift_pages::system::Outcome;
    use flashsift_study::ResultRow;

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
