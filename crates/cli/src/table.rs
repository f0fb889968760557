//! The comparison as a person reads it: a table a cache size, the best of each column marked, what knows
//! the future set apart.

use crate::{devices::OnDevice, size};
use comfy_table::{Attribute, Cell, CellAlignment, Table, presets};
use flashsift_core::{policy::Kind, system::Outcome};
use flashsift_report as report;
use std::io::IsTerminal;

/// Whether standard output takes styles, and nobody minds.
pub(crate) fn in_color() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// One row of a table.
pub(crate) struct Row {
    pub(crate) policy: String,
    pub(crate) kind: Kind,
    pub(crate) outcome: Outcome,
    pub(crate) cpu_ns_per_access: f64,
    /// Its time and wear on a device, for the table of that device.
    pub(crate) on: Option<OnDevice>,
}

enum Best {
    Most,
    Least,
    /// It has none.
    None,
}

struct Column {
    title: &'static str,
    best: Best,
    value: fn(&Row) -> f64,
    show: fn(&Row) -> String,
}

const HITS: Column = Column {
    title: "\nhits %",
    best: Best::Most,
    value: |row| row.outcome.hit_ratio(),
    show: |row| format!("{:.2}", row.outcome.hit_ratio() * 100.0),
};
const READS: Column = Column {
    title: "storage\nreads",
    best: Best::Least,
    value: |row| row.outcome.device.reads as f64,
    show: |row| size::count(row.outcome.device.reads),
};
const WRITES: Column = Column {
    title: "storage\nwrites",
    best: Best::Least,
    value: |row| row.outcome.device.writes as f64,
    show: |row| size::count(row.outcome.device.writes),
};
const SCATTERED: Column = Column {
    title: "not\nsequential",
    best: Best::Least,
    value: |row| row.outcome.device.nonsequential_writes as f64,
    show: |row| {
        let share = row.outcome.nonsequential_share() * 100.0;
        format!("{} ({share:>3.0} %)", size::count(row.outcome.device.nonsequential_writes))
    },
};
/// Without its share.
const SCATTERED_NARROW: Column =
    Column { show: |row| size::count(row.outcome.device.nonsequential_writes), ..SCATTERED };
const SYNCED: Column = Column {
    title: "of them\nsynced",
    best: Best::Least,
    value: |_| 0.0,
    show: |row| size::count(row.outcome.device.sync_writes),
};
const LEFT: Column = Column {
    title: "dirty\nleft",
    best: Best::None,
    value: |row| row.outcome.dirty_left as f64,
    show: |row| size::count(row.outcome.dirty_left),
};
const DRAINED: Column = Column {
    title: "of them\ndrained",
    best: Best::None,
    value: |row| row.outcome.device.drained as f64,
    show: |row| size::count(row.outcome.device.drained),
};
const DROPPED: Column = Column {
    title: "dropped\ndirty",
    best: Best::None,
    value: |row| row.outcome.device.dropped_dirty as f64,
    show: |row| size::count(row.outcome.device.dropped_dirty),
};
const COST: Column = Column {
    title: "\ncost s",
    best: Best::Least,
    value: |row| row.outcome.cost_us() as f64,
    show: |row| format!("{:.2}", row.outcome.cost_us() as f64 / 1e6),
};
const CPU: Column = Column {
    title: "ns per\naccess",
    // Not a result, and never twice the same.
    best: Best::None,
    value: |row| row.cpu_ns_per_access,
    show: |row| format!("{:.1}", row.cpu_ns_per_access),
};

const ELAPSED: Column = Column {
    title: "\nelapsed s",
    best: Best::Least,
    value: |row| row.on.as_ref().map_or(0.0, |on| on.elapsed_s),
    show: |row| of_device(row, |on| Some(format!("{:.3}", on.elapsed_s))),
};
const STALL: Column = Column {
    title: "\nstall s",
    best: Best::Least,
    value: |row| row.on.as_ref().and_then(|on| on.stall_s).unwrap_or(0.0),
    show: |row| of_device(row, |on| Some(format!("{:.3}", on.stall_s?))),
};
const AMPLIFICATION: Column = Column {
    title: "write\namplification",
    best: Best::Least,
    value: |row| row.on.as_ref().and_then(|on| on.write_amplification).unwrap_or(f64::INFINITY),
    show: |row| of_device(row, |on| Some(format!("{:.2}", on.write_amplification?))),
};
const LIFETIME: Column = Column {
    title: "lifetime\ngain %",
    best: Best::Most,
    value: |row| row.on.as_ref().and_then(|on| on.lifetime_gain).unwrap_or(f64::NEG_INFINITY),
    show: |row| of_device(row, |on| Some(format!("{:+.1}", on.lifetime_gain? * 100.0))),
};

/// A dash where there is nothing to say.
fn of_device(row: &Row, show: impl Fn(&OnDevice) -> Option<String>) -> String {
    row.on.as_ref().and_then(show).unwrap_or_else(|| "–".to_owned())
}

/// The columns that say something about this trace.
fn columns(rows: &[Row], drain: bool, narrow: bool) -> Vec<&'static Column> {
    let on = || rows.iter().filter_map(|row| row.on.as_ref());
    if on().next().is_some() {
        let mut columns = vec![&ELAPSED];
        columns.extend(on().any(|on| on.stall_s.is_some()).then_some(&STALL));
        columns.extend(on().any(|on| on.write_amplification.is_some()).then_some(&AMPLIFICATION));
        columns.extend(on().any(|on| on.lifetime_gain.is_some()).then_some(&LIFETIME));
        return columns;
    }
    let mut columns: Vec<&Column> = vec![&HITS, &READS];
    if rows.iter().any(|row| row.outcome.write_accesses > 0) {
        let scattered = if narrow { &SCATTERED_NARROW } else { &SCATTERED };
        columns.push(&WRITES);
        if rows.iter().any(|row| row.outcome.device.sync_writes > 0) {
            columns.push(&SYNCED);
        }
        columns.extend([if drain { &DRAINED } else { &LEFT }, scattered]);
        if rows.iter().any(|row| row.outcome.device.dropped_dirty > 0) {
            columns.push(&DROPPED);
        }
        columns.push(&COST);
    }
    columns.push(&CPU);
    columns
}

/// The table, without a newline at its end; closer and with less in it if it is wider than `width` otherwise. `color`: bold for
/// the best.
pub(crate) fn render(rows: &[Row], drain: bool, color: bool, width: usize) -> String {
    let narrow = lines(rows, drain, false, false).iter().any(|line| line.chars().count() > width);
    lines(rows, drain, narrow, color).join("\n")
}

/// The same for a page: what its columns are called, and its rows.
pub(crate) fn cells(rows: &[Row], drain: bool) -> (Vec<String>, Vec<Vec<report::Cell>>) {
    let columns = columns(rows, drain, false);
    let titles = columns.iter().map(|column| column.title.trim_start().replace('\n', " "));
    let row = |row: &Row| {
        let name = match row.kind {
            Kind::Online => row.policy.clone(),
            Kind::Bound => format!("{} (bound)", row.policy),
            Kind::Heuristic => format!("{} (knows the future)", row.policy),
        };
        let values = columns.iter().map(|column| report::Cell {
            text: (column.show)(row),
            value: Some((column.value)(row)),
            strong: is_best(rows, row, column),
        });
        std::iter::once(report::Cell::text(name)).chain(values).collect()
    };
    (std::iter::once("policy".to_owned()).chain(titles).collect(), rows.iter().map(row).collect())
}

/// Rows under a header; these columns hold words, to the left, the rest stands to the right. With a newline at its end.
pub(crate) fn plain(rows: &[Vec<String>], words: &[usize]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    for row in rows {
        table.add_row(row);
    }
    for (n, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if words.contains(&n) {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        });
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// What stands above policies of a kind.
fn set_apart(kind: Kind) -> &'static str {
    match kind {
        Kind::Online => "online:",
        Kind::Bound => "bound for hits:",
        Kind::Heuristic => "knows the future, bounds nothing:",
    }
}

fn lines(rows: &[Row], drain: bool, narrow: bool, color: bool) -> Vec<String> {
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
    let ordered: Vec<&Row> =
        kinds.iter().flat_map(|kind| rows.iter().filter(move |row| row.kind == *kind)).collect();
    for row in &ordered {
        let cells = columns.iter().map(|column| match (is_best(rows, row, column), row.kind) {
            (true, _) => Cell::new(format!("{}*", (column.show)(row))).add_attribute(Attribute::Bold),
            (_, Kind::Online) => Cell::new(format!("{} ", (column.show)(row))),
            _ => Cell::new(format!("{} ", (column.show)(row))).add_attribute(Attribute::Dim),
        });
        table.add_row(std::iter::once(Cell::new(&row.policy)).chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((u16::from(!narrow), 0));
    }
    let rendered: Vec<String> = table.lines().map(|line| format!(" {}", line.trim_end())).collect();
    // A row is a line.
    let (header, body) = rendered.split_at(rendered.len() - ordered.len());
    let mut lines = header.to_vec();
    let mut kind = Kind::Online;
    for (row, line) in ordered.iter().zip(body) {
        if row.kind != kind {
            kind = row.kind;
            lines.push(format!("  {}", set_apart(kind)));
        }
        lines.push(line.clone());
    }
    lines
}

/// A column in which all are alike has no best, and what knows the future does not compete.
fn is_best(rows: &[Row], row: &Row, column: &Column) -> bool {
    let values = || rows.iter().filter(|row| row.kind == Kind::Online).map(column.value);
    let best = match column.best {
        Best::Most => values().fold(f64::NEG_INFINITY, f64::max),
        Best::Least => values().fold(f64::INFINITY, f64::min),
        Best::None => return false,
    };
    row.kind == Kind::Online && (column.value)(row) == best && values().any(|value| value != best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_core::back::DeviceCounts;

    fn row(policy: &str, kind: Kind, hits: u64) -> Row {
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
        Row { policy: policy.to_owned(), kind, outcome, cpu_ns_per_access: 12.0, on: None }
    }

    /// What knows the future stands last, under its title, whatever the order; a title does not widen the table.
    #[test]
    fn a_table_fits_where_it_can() {
        let rows = [
            row("belady", Kind::Bound, 9_000),
            row("spatialclock", Kind::Online, 5_000),
            row("belady-cost", Kind::Heuristic, 8_000),
            row("lru", Kind::Online, 4_000),
        ];
        let wide = render(&rows, false, false, 120);
        let first_words: Vec<_> = wide.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
        assert_eq!(
            first_words,
            ["storage", "policy", "spatialclock", "lru", "bound", "belady", "knows", "belady-cost"]
        );
        assert!(wide.contains("( 50 %)") && wide.contains("5.00*") && !wide.contains("9.00*"), "{wide}");
        let narrow = render(&rows, false, false, 80);
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 80) && !narrow.contains("( 50 %)"),
            "{narrow}"
        );
    }
}
