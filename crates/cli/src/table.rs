//! The comparison as a person reads it: a table a cache size, the best of each column marked, what knows
//! the future set apart.

use crate::size;
use comfy_table::{Attribute, Cell, CellAlignment, Table, presets};
use flashsift_core::{policy::Kind, system::Outcome};
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
}

enum Best {
    Most,
    Least,
}

struct Column {
    title: &'static str,
    best: Best,
    value: fn(&Row) -> f64,
    show: fn(&Row) -> String,
}

const HITS: Column = Column {
    title: "hits %",
    best: Best::Most,
    value: |row| row.outcome.hit_ratio(),
    show: |row| format!("{:.2}", row.outcome.hit_ratio() * 100.0),
};
const READS: Column = Column {
    title: "storage reads",
    best: Best::Least,
    value: |row| row.outcome.device.reads as f64,
    show: |row| size::count(row.outcome.device.reads),
};
const WRITES: Column = Column {
    title: "storage writes",
    best: Best::Least,
    value: |row| row.outcome.device.writes as f64,
    show: |row| size::count(row.outcome.device.writes),
};
const SCATTERED: Column = Column {
    title: "not sequential",
    best: Best::Least,
    value: |row| row.outcome.device.nonsequential_writes as f64,
    show: |row| {
        let share = row.outcome.nonsequential_share() * 100.0;
        format!("{} ({share:>3.0} %)", size::count(row.outcome.device.nonsequential_writes))
    },
};
const LEFT: Column = Column {
    title: "dirty left",
    best: Best::Least,
    value: |_| 0.0,
    show: |row| size::count(row.outcome.dirty_left),
};
const DRAINED: Column = Column {
    title: "of them drained",
    best: Best::Least,
    value: |_| 0.0,
    show: |row| size::count(row.outcome.device.drained),
};
const DROPPED: Column = Column {
    title: "dropped dirty",
    best: Best::Least,
    value: |_| 0.0,
    show: |row| size::count(row.outcome.device.dropped_dirty),
};
const COST: Column = Column {
    title: "cost s",
    best: Best::Least,
    value: |row| row.outcome.cost_us() as f64,
    show: |row| format!("{:.2}", row.outcome.cost_us() as f64 / 1e6),
};
const CPU: Column = Column {
    title: "ns/access",
    best: Best::Least,
    // Not a result, and never twice the same: it has no best.
    value: |_| 0.0,
    show: |row| format!("{:.1}", row.cpu_ns_per_access),
};

/// The columns that say something about this trace.
fn columns(rows: &[Row], drain: bool) -> Vec<&'static Column> {
    let mut columns: Vec<&Column> = vec![&HITS, &READS];
    if rows.iter().any(|row| row.outcome.write_accesses > 0) {
        columns.extend([&WRITES, if drain { &DRAINED } else { &LEFT }, &SCATTERED]);
        if rows.iter().any(|row| row.outcome.device.dropped_dirty > 0) {
            columns.push(&DROPPED);
        }
        columns.push(&COST);
    }
    columns.push(&CPU);
    columns
}

/// The table, without a newline at its end. `color`: bold for the best.
pub(crate) fn render(rows: &[Row], drain: bool, color: bool) -> String {
    let columns = columns(rows, drain);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if !color {
        table.force_no_tty();
    } else {
        table.enforce_styling();
    }
    table.set_header(std::iter::once("policy").chain(columns.iter().map(|column| column.title)));
    let online = || rows.iter().filter(|row| row.kind == Kind::Online);
    for row in rows.iter().filter(|row| row.kind == Kind::Online) {
        table.add_row(std::iter::once(Cell::new(&row.policy)).chain(columns.iter().map(|column| {
            let values = online().map(column.value);
            let best = match column.best {
                Best::Most => values.fold(f64::NEG_INFINITY, f64::max),
                Best::Least => values.fold(f64::INFINITY, f64::min),
            };
            // A column in which all are alike has no best.
            let alike = online().all(|other| (column.value)(other) == best);
            if (column.value)(row) == best && !alike {
                Cell::new(format!("{}*", (column.show)(row))).add_attribute(Attribute::Bold)
            } else {
                Cell::new(format!("{} ", (column.show)(row)))
            }
        })));
    }
    for (kind, title) in
        [(Kind::Bound, "bound for hits:"), (Kind::Heuristic, "knows the future, bounds nothing:")]
    {
        let mut set_apart = rows.iter().filter(|row| row.kind == kind).peekable();
        if set_apart.peek().is_some() {
            table.add_row([Cell::new(title).add_attribute(Attribute::Dim)]);
        }
        for row in set_apart {
            table.add_row(std::iter::once(Cell::new(&row.policy)).chain(
                columns.iter().map(|column| {
                    Cell::new(format!("{} ", (column.show)(row))).add_attribute(Attribute::Dim)
                }),
            ));
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.lines().map(|line| format!("  {}\n", line.trim_end())).collect::<String>().trim_end().to_owned()
}
