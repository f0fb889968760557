//! The figures: drawings of each characterisation's tables.

use super::text::shortened;
use flashsift_report::{
    Axis, Bar, Chart, Figure, Ink, Layer, Line, Marks, Patch, Point, Scale, Unit, View,
};
use flashsift_study::describe::{Found, Table, Value};

type Draw = fn(&Found) -> Vec<Figure>;

/// The figures of each characterisation, by its name.
pub(super) const FIGURES: &[(&str, Draw)] = &[
    ("mix", |found| mix(found).into_iter().collect()),
    ("fate", |found| fate(found).into_iter().collect()),
    ("reached_flash", |found| reached_flash(found).into_iter().collect()),
    ("files_over_time", files_over_time),
    ("sync_distance", |found| sync_distance(found).into_iter().collect()),
    ("sqlite", |found| sqlite(found).into_iter().collect()),
    ("cache_files", |found| cache_files(found).into_iter().collect()),
    ("lifetimes", |found| lifetimes(found).into_iter().collect()),
    ("windows", |found| windows(found).into_iter().collect()),
    ("request_sizes", request_sizes),
    ("footprint", |found| footprint(found).into_iter().collect()),
    ("over_time", over_time),
    ("popularity", |found| popularity(found).into_iter().collect()),
    ("skew", |found| skew(found).into_iter().collect()),
    ("reaccess", |found| reaccess(found).into_iter().collect()),
    ("readahead", read_ahead),
    ("sift", |found| sift(found).into_iter().collect()),
];

// The same in all figures.
const READS: Ink = Ink::Series(0);
const WRITES: Ink = Ink::Series(1);
const SQLITE: [Ink; 5] =
    [Ink::Series(2), Ink::Series(3), Ink::Series(4), Ink::Series(5), Ink::Series(0)];
const CACHE: Ink = Ink::Series(3);
const MADE: Ink = Ink::Series(2);

/// Numbers of a column; absent values are 0.
fn column(table: &Table, key: &str) -> Vec<f64> {
    table.values(key).map(|value| value.number().unwrap_or(0.0)).collect()
}

/// The row that begins with this label.
fn row<'a>(table: &'a Table, id: &str) -> Option<&'a [Value]> {
    let is = |row: &&Vec<Value>| matches!(row[0], Value::Label { id: found, .. } if found == id);
    table.rows.iter().find(is).map(Vec::as_slice)
}

fn number(table: &Table, row: &[Value], key: &str) -> f64 {
    let at = table.columns.iter().position(|column| column.key == key);
    at.and_then(|at| row[at].number()).unwrap_or(0.0)
}

fn chart(x: Axis, y: Axis, marks: Marks) -> Chart {
    Chart { title: String::new(), x, y, marks }
}

/// A figure with one bar for each name, of parts that are shares of 1.
fn shares(
    id: &str,
    title: &str,
    names: Vec<&str>,
    parts: Vec<(String, Ink)>,
    bars: Vec<Vec<f64>>,
) -> Figure {
    let names = Axis::new("", Unit::Count)
        .scale(Scale::Names(names.into_iter().map(str::to_owned).collect()));
    let bars = bars.into_iter().map(|values| Bar { values }).collect();
    let x = Axis::new("share", Unit::Share).range(0.0, 1.0);
    Figure::new(id, title, chart(x, names, Marks::Bars { parts, bars }))
}

fn line(name: &str, ink: Ink, points: Vec<(f64, f64)>) -> Line {
    Line::new(name, ink, points)
}

/// Bytes read ahead for each program, and for each file, by their end.
fn read_ahead(found: &Found) -> Vec<Figure> {
    let parts = [
        ("used", "used_bytes", Ink::Series(2)),
        ("dropped unused", "dropped_bytes", Ink::Series(1)),
        ("unused yet", "unused_bytes", Ink::Other),
    ];
    let titles = [("programs", "Read ahead for programs"), ("files", "Read ahead of files")];
    let figure = |(key, title): (&str, &str)| {
        let table = found.table_named(key)?;
        let names: Vec<String> = table
            .values("name")
            .map(|value| match value {
                Value::Name(name) => shortened(name, 30),
                _ => String::new(),
            })
            .collect();
        let columns = parts.map(|(_, key, _)| column(table, key));
        let sums = (0..names.len()).map(|n| columns.iter().map(|column| column[n]).collect());
        let bars: Vec<Bar> = sums.map(|values| Bar { values }).collect();
        let most = bars.iter().map(|bar| bar.values.iter().sum()).fold(0.0, f64::max);
        let y = Axis::new("", Unit::Count).scale(Scale::Names(names));
        let x = Axis::new("read ahead", Unit::Bytes).range(0.0, most);
        let parts = parts.map(|(name, _, ink)| (name.to_owned(), ink)).to_vec();
        let id = format!("read-ahead-{key}");
        (most > 0.0).then(|| Figure::new(&id, title, chart(x, y, Marks::Bars { parts, bars })))
    };
    titles.into_iter().filter_map(figure).collect()
}

/// Sifters by the bytes that they keep from flash and those that are fetched again.
fn sift(found: &Found) -> Option<Figure> {
    let table = found.table_named("sifters")?;
    let [kept, again] = ["kept_share", "fetched_again_share"].map(|key| column(table, key));
    let mut series = 0..Ink::SERIES;
    let points = table.values("name").zip(again.into_iter().zip(kept)).map(|(name, at)| {
        let name = match name {
            Value::Name(name) => name.to_string(),
            _ => String::new(),
        };
        Point { name, ink: series.next().map_or(Ink::Other, Ink::Series), at }
    });
    let marks = Marks::Points { points: points.collect(), front: Vec::new() };
    let x = Axis::new("fetched again, of the data without a sifter", Unit::Share);
    let y = Axis::new("saved from flash, of the data without a sifter", Unit::Share);
    let title = "Saved from flash against fetched again";
    Some(Figure::new("sift-kept", title, chart(x, y, marks)).caption("Up and left is better."))
}

fn mix(found: &Found) -> Option<Figure> {
    let table = found.table_named("operations")?;
    let (reads, writes) = (row(table, "reads")?, row(table, "writes")?);
    let measures = [
        ("page accesses", "page_accesses_share"),
        ("requests", "requests_share"),
        ("bytes", "moved_bytes_share"),
    ];
    let bars =
        measures.iter().map(|(_, key)| vec![number(table, reads, key), number(table, writes, key)]);
    let parts = vec![("reads".to_owned(), READS), ("writes".to_owned(), WRITES)];
    Some(shares(
        "reads-and-writes",
        "Of requests, bytes and page accesses",
        measures.map(|(name, _)| name).to_vec(),
        parts,
        bars.collect(),
    ))
}

fn fate(found: &Found) -> Option<Figure> {
    let ends = found.figures_named(&[
        "rewritten_soon",
        "rewritten_later",
        "rewritten",
        "removed_soon",
        "removed_later",
        "removed",
        "left",
    ]);
    let inks = [Ink::Series(0), Ink::Series(3), Ink::Series(1), Ink::Series(2), Ink::Other];
    let parts = ends.iter().zip(inks).map(|(figure, ink)| (figure.label.to_owned(), ink)).collect();
    let values = ends.iter().filter_map(|figure| figure.share.as_ref()?.number()).collect();
    (!ends.is_empty()).then(|| {
        shares("fates", "End of each page write", vec!["page writes"], parts, vec![values])
    })
}

/// Bytes that reached flash up to each time, one line for each program.
fn reached_flash(found: &Found) -> Option<Figure> {
    let width = *column(found.table_named("bins")?, "window_us").first()?;
    let table = found.table_named("program_windows")?;
    let (times, sizes) = (column(table, "at_us"), column(table, "reached_bytes"));
    let names: Vec<&str> = table
        .values("program")
        .map(|value| if let Value::Name(name) = value { name } else { "" })
        .collect();
    let end = times.last()? + width;
    let mut lines: Vec<Line> = Vec::new();
    for ((name, time), bytes) in names.iter().zip(times).zip(sizes) {
        let at = lines.iter().position(|line| line.name == **name).unwrap_or_else(|| {
            let number = (0..6).nth(lines.len()).filter(|_| *name != "(others)");
            let ink = number.map_or(Ink::Other, Ink::Series);
            lines.push(line(name, ink, vec![(0.0, 0.0)]));
            lines.len() - 1
        });
        let points = &mut lines[at].points;
        let (last, sum) = *points.last()?;
        if last < time {
            points.push((time, sum));
        }
        points.push((time + width, sum + bytes));
    }
    let total = |line: &Line| line.points.last().map_or(0.0, |point| point.1);
    for line in &mut lines {
        line.points.push((end, total(line)));
        line.points.dedup();
    }
    lines.sort_by(|one, other| total(other).total_cmp(&total(one)));
    let y = Axis::new("reached flash until then", Unit::Bytes);
    let chart = chart(Axis::new("time", Unit::TimeUs), y, Marks::Lines(lines));
    Some(Figure::new("flash-by-program", "Bytes that reach flash, by program", chart).caption(
        "File data, as Linux writes it back after 30 s or at an fsync; with --metadata, also \
                 the journal and the metadata of the file system.",
    ))
}

fn footprint(found: &Found) -> Option<Figure> {
    let table = found.table_named("touched")?;
    let keys = ["only_read", "only_written", "both"];
    let inks = [READS, WRITES, Ink::Other];
    let parts = keys.iter().zip(inks).map(|(key, ink)| (key.replace('_', " "), ink)).collect();
    let mut names = Vec::new();
    let mut bars = Vec::new();
    for row in &table.rows {
        let (Value::Label { label, .. }, all) = (&row[0], number(table, row, "touched")) else {
            continue;
        };
        names.push(*label);
        bars.push(keys.iter().map(|key| number(table, row, key) / all.max(1.0)).collect());
    }
    Some(shares("footprint-shares", "Touched pages and files by use", names, parts, bars))
}

fn sqlite(found: &Found) -> Option<Figure> {
    let table = found.table_named("kinds")?;
    let kinds: Vec<&Vec<Value>> = table
        .rows
        .iter()
        .filter(|row| !matches!(row[0], Value::Label { id: "sqlite" | "unnamed", .. }))
        .collect();
    let measures = [
        ("page accesses", "page_accesses_share"),
        ("bytes written", "written_bytes_share"),
        ("syncs", "syncs_share"),
    ];
    let mut parts: Vec<_> = kinds
        .iter()
        .zip(SQLITE)
        .filter_map(|(row, ink)| match row[0] {
            Value::Label { label, .. } => Some((format!("SQLite: {label}"), ink)),
            _ => None,
        })
        .collect();
    parts.push(("all others".to_owned(), Ink::Other));
    let bars = measures.iter().map(|(_, key)| {
        let mut values: Vec<f64> = kinds.iter().map(|row| number(table, row, key)).collect();
        values.push((1.0 - values.iter().sum::<f64>()).max(0.0));
        values
    });
    let bars = bars.collect();
    Some(shares(
        "sqlite-shares",
        "By kind of file",
        measures.map(|(name, _)| name).to_vec(),
        parts,
        bars,
    ))
}

fn cache_files(found: &Found) -> Option<Figure> {
    let table = found.table_named("shares")?;
    let inks = [CACHE, Ink::Other, Ink::Series(5)];
    let label_of =
        |row: &Vec<Value>| if let Value::Label { label, .. } = row[0] { label } else { "" };
    let parts =
        table.rows.iter().zip(inks).map(|(row, ink)| (label_of(row).to_owned(), ink)).collect();
    let measures = [
        ("writes", "writes_share"),
        ("bytes written", "written_bytes_share"),
        ("bytes read", "read_bytes_share"),
    ];
    let bars = measures.iter().map(|(_, key)| column(table, key)).collect();
    Some(shares(
        "cache-file-shares",
        "Of what is written and read",
        measures.map(|(name, _)| name).to_vec(),
        parts,
        bars,
    ))
}

fn over_time(found: &Found) -> Vec<Figure> {
    let (Some(grid), Some(bins)) = (found.table_named("grid"), found.table_named("bins")) else {
        return Vec::new();
    };
    let (wide, high) = (column(bins, "page_accesses")[0], column(bins, "pages")[0]);
    let at: Vec<(f64, f64)> =
        column(grid, "first_access").into_iter().zip(column(grid, "first_page")).collect();
    let end =
        |of: fn(&(f64, f64)) -> f64, width: f64| at.iter().map(of).fold(0.0, f64::max) + width;
    let (x_end, y_end) = (end(|at| at.0, wide), end(|at| at.1, high));
    let distinguishes_writes = grid.has("writes");
    let kinds = [("reads", READS), ("writes", WRITES)].into_iter().filter(|(key, _)| grid.has(key));
    let panels = kinds.map(|(key, ink)| {
        let name = if distinguishes_writes { key } else { "accesses" };
        let patches = at.iter().zip(column(grid, key)).filter(|(_, amount)| *amount > 0.0);
        let patches =
            patches.map(|((x, y), amount)| Patch { x: (*x, x + wide), y: (*y, y + high), amount });
        let layer = Layer { name: name.to_owned(), ink, patches: patches.collect() };
        Chart {
            title: name.to_owned(),
            x: Axis::new("page accesses so far", Unit::Count).range(0.0, x_end),
            y: Axis::new("page, in order of first access", Unit::Count).range(0.0, y_end),
            marks: Marks::Patches(vec![layer]),
        }
    });
    let view = View { label: String::new(), panels: panels.collect() };
    let mut figures = vec![Figure {
        id: "pages-over-time".to_owned(),
        title: "Accesses to pages over time".to_owned(),
        caption: String::new(),
        paper: String::new(),
        views: vec![view],
        first: 0,
    }];
    if let Some(steady) = found.table_named("steady") {
        figures.push(steadiness(steady));
    }
    figures
}

/// A figure of the pages accessed in at least n windows, and of their accesses.
fn steadiness(steady: &Table) -> Figure {
    let windows = column(steady, "windows");
    let from = |key: &str| {
        let values = column(steady, key);
        let all: f64 = values.iter().sum();
        let mut left = all;
        let points = windows.iter().zip(values).map(|(windows, value)| {
            let share = left / all.max(1.0);
            left -= value;
            (*windows, share)
        });
        points.collect::<Vec<_>>()
    };
    let lines = vec![
        line("pages", Ink::Series(2), from("pages")),
        line("accesses to them", Ink::Series(3), from("page_accesses")),
    ];
    let x = Axis::new("equal parts of the trace with an access, or more", Unit::Count);
    let y = Axis::new("share of all", Unit::Share).range(0.0, 1.0);
    Figure::new("steadiness", "Steadiness of accesses to pages", chart(x, y, Marks::Lines(lines)))
        .caption("The further to the right a line stays high, the more is accessed all the time.")
}

fn popularity(found: &Found) -> Option<Figure> {
    let table = found.table_named("ranking")?;
    let (pages, accesses) = (column(table, "pages"), column(table, "page_accesses"));
    let named = table.has("sqlite_pages");
    let none = || vec![0.0; pages.len()];
    let (sqlite_pages, sqlite_accesses) = match named {
        true => (column(table, "sqlite_pages"), column(table, "sqlite_page_accesses")),
        false => (none(), none()),
    };
    let less = |all: &[f64], part: &[f64]| {
        all.iter().zip(part).map(|(all, part)| all - part).collect::<Vec<_>>()
    };
    let others = ranked(&less(&pages, &sqlite_pages), &less(&accesses, &sqlite_accesses));
    let lines = match named {
        true => vec![
            line("SQLite's pages", SQLITE[0], ranked(&sqlite_pages, &sqlite_accesses)),
            line("other pages", Ink::Series(5), others),
        ],
        false => vec![line("pages", Ink::Series(5), others)],
    };
    let x =
        Axis::new(if named { "rank among these" } else { "rank" }, Unit::Count).scale(Scale::Log10);
    let y = Axis::new("accesses to the page", Unit::Count).scale(Scale::Log10);
    Some(Figure::new(
        "popularity-ranking",
        "Accesses by popularity",
        chart(x, y, Marks::Lines(lines)),
    ))
}

/// First and last rank of each row, with the accesses to each of its pages.
fn ranked(pages: &[f64], accesses: &[f64]) -> Vec<(f64, f64)> {
    let mut rank = 0.0;
    let mut points = Vec::new();
    for (pages, accesses) in pages.iter().zip(accesses).filter(|(pages, _)| **pages > 0.0) {
        points.push((rank + 1.0, accesses / pages));
        if *pages > 1.0 {
            points.push((rank + pages, accesses / pages));
        }
        rank += pages;
    }
    points
}

fn skew(found: &Found) -> Option<Figure> {
    let table = found.table_named("curve")?;
    let of = |way: &str| {
        let rows =
            table.rows.iter().filter(|row| matches!(row[0], Value::Label { id, .. } if id == way));
        rows.map(|row| (number(table, row, "pages_share"), number(table, row, "accesses_share")))
            .collect::<Vec<_>>()
    };
    let ways = [("all", Ink::Series(5)), ("reads", READS), ("writes", WRITES)];
    let lines: Vec<Line> = ways
        .into_iter()
        .map(|(way, ink)| line(way, ink, of(way)))
        .filter(|line| !line.points.is_empty())
        .collect();
    let x = Axis::new("share of the pages, most accessed first", Unit::Share).range(0.0, 1.0);
    let y = Axis::new("share of the accesses", Unit::Share).range(0.0, 1.0);
    Some(Figure::new(
        "skew-curve",
        "Accesses to the most popular pages",
        chart(x, y, Marks::Lines(lines)),
    ))
}

fn reaccess(found: &Found) -> Option<Figure> {
    let table = found.table_named("ranks")?;
    let most = column(table, "most_rank");
    let ways = [
        ("used last", "by_recency", Ink::Series(0)),
        ("used most", "by_frequency", Ink::Series(1)),
    ];
    // The number of ranks behind the previous bucket.
    let each = |key: &str| {
        let values = column(table, key).into_iter().zip(&most);
        values
            .map(|(count, most)| (*most, count / if *most > 1.0 { most / 2.0 } else { 1.0 }))
            .filter(|(_, count)| *count > 0.0)
            .collect()
    };
    let within = |key: &str| {
        let values = column(table, key);
        let all: f64 = values.iter().sum();
        let mut sum = 0.0;
        let values = values.into_iter().zip(&most);
        values
            .map(|(count, most)| {
                sum += count;
                (*most, (sum / all.max(1.0)).min(1.0))
            })
            .collect()
    };
    let x = || Axis::new("rank of the page, before", Unit::Count).scale(Scale::Log2);
    let lines = |points: &dyn Fn(&str) -> Vec<(f64, f64)>| {
        Marks::Lines(ways.iter().map(|(name, key, ink)| line(name, *ink, points(key))).collect())
    };
    let y = Axis::new("accesses to the page of that rank", Unit::Number).scale(Scale::Log10);
    let each = View { label: "at each rank".to_owned(), panels: vec![chart(x(), y, lines(&each))] };
    let y = Axis::new("share of the accesses up to that rank", Unit::Share).range(0.0, 1.0);
    let within =
        View { label: "up to each rank".to_owned(), panels: vec![chart(x(), y, lines(&within))] };
    let figure = Figure::new("again", "Re-accessed pages by rank", each.panels[0].clone());
    Some(Figure { views: vec![each, within], ..figure })
}

fn sync_distance(found: &Found) -> Option<Figure> {
    let table = found.table_named("histogram")?;
    let of = |id: &str| {
        let rows: Vec<_> = table
            .rows
            .iter()
            .filter(|row| matches!(row[0], Value::Label { id: found, .. } if found == id))
            .collect();
        let all: f64 = rows.iter().map(|row| number(table, row, "syncs")).sum();
        let mut sum = 0.0;
        let points = rows.into_iter().map(|row| {
            sum += number(table, row, "syncs");
            (number(table, row, "most_writes"), sum / all.max(1.0))
        });
        points.collect::<Vec<_>>()
    };
    let lines = vec![
        line("writes to the file", Ink::Series(0), of("file")),
        line("writes to any file", Ink::Series(1), of("all")),
    ];
    let x = Axis::new("writes since the sync before, at most", Unit::Count).scale(Scale::Log2);
    let y = Axis::new("share of the syncs that find a write", Unit::Share).range(0.0, 1.0);
    (!table.rows.is_empty()).then(|| {
        Figure::new("sync-distances", "Writes found by a sync", chart(x, y, Marks::Lines(lines)))
    })
}

fn lifetimes(found: &Found) -> Option<Figure> {
    let table = found.table_named("active_period_bins")?;
    let starts: Vec<u64> = column(table, "least_us").into_iter().map(|us| us as u64).collect();
    let (files, cache) = (column(table, "files"), column(table, "cache_files"));
    let label = |n: usize| match (starts[n], starts.get(n + 1)) {
        (0, _) => "used once".to_owned(),
        (1, Some(end)) => format!("under {}", plain(*end)),
        (start, Some(end)) => format!("{} to {}", plain(start), plain(*end)),
        (start, None) => format!("{} or more", plain(start)),
    };
    let names =
        Axis::new("", Unit::Count).scale(Scale::Names((0..starts.len()).map(label).collect()));
    let bars = files
        .iter()
        .zip(&cache)
        .map(|(files, cache)| Bar { values: vec![*cache, files - cache] })
        .collect();
    let parts = vec![("cache files".to_owned(), CACHE), ("other files".to_owned(), Ink::Series(5))];
    let x = Axis::new("files that the trace makes", Unit::Count);
    (files.iter().any(|files| *files > 0.0)).then(|| {
        let chart = chart(x, names, Marks::Bars { parts, bars });
        Figure::new("active-periods", "Active period of files: first to last request", chart)
    })
}

/// Formats round times: `30 s`, `5 min`, `1 h`.
fn plain(us: u64) -> String {
    match us / 1_000_000 {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

const MINUTE_US: f64 = 60e6;

fn windows(found: &Found) -> Option<Figure> {
    let table = found.table_named("windows")?;
    let (starts, counts) = (column(table, "start_us"), column(table, "windows"));
    let kinds = [
        ("all files", "all_most_bytes", Ink::Series(5)),
        ("files made in the trace", "made_most_bytes", MADE),
        ("cache files", "cache_most_bytes", CACHE),
    ];
    let lines = kinds.into_iter().filter(|(_, key, _)| table.has(key)).map(|(name, key, ink)| {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut end = 0.0;
        for ((start, windows), bytes) in starts.iter().zip(&counts).zip(column(table, key)) {
            // Nothing was written between.
            if *start > end {
                points.extend([(end, 0.0), (start - MINUTE_US, 0.0)]);
            }
            points.push((*start, bytes));
            end = start + windows * MINUTE_US;
        }
        line(name, ink, points)
    });
    let marks = Marks::Lines(lines.collect());
    let x = Axis::new("time at which the 60 s begin", Unit::TimeUs);
    Some(Figure::new(
        "written-in-60-s",
        "Minute by minute",
        chart(x, Axis::new("written in 60 s", Unit::Bytes), marks),
    ))
}

fn request_sizes(found: &Found) -> Vec<Figure> {
    let Some(table) = found.table_named("sizes") else { return Vec::new() };
    let most = column(table, "most_bytes");
    let kinds: Vec<_> = [("reads", "reads_share", READS), ("writes", "writes_share", WRITES)]
        .into_iter()
        .filter(|(_, key, _)| table.has(key) && column(table, key).iter().any(|share| *share > 0.0))
        .collect();
    let classes = [
        ("up to 4 KiB", 0.0, 4096.0),
        ("to 64 KiB", 4096.0, 65536.0),
        ("larger", 65536.0, f64::INFINITY),
    ];
    let inks = [Ink::Series(2), Ink::Series(3), Ink::Series(5)];
    let parts =
        classes.iter().zip(inks).map(|((name, ..), ink)| ((*name).to_owned(), ink)).collect();
    let bars = kinds.iter().map(|(_, key, _)| {
        let values: Vec<(f64, f64)> = most.iter().copied().zip(column(table, key)).collect();
        let of = |(_, over, to): &(_, f64, f64)| {
            values
                .iter()
                .filter(|(most, _)| most > over && most <= to)
                .map(|(_, share)| share)
                .sum()
        };
        classes.iter().map(of).collect()
    });
    let bars = bars.collect();
    let names = kinds.iter().map(|(name, ..)| *name).collect();
    let three = shares("three-sizes", "Small, middling and large requests", names, parts, bars);
    let lines = kinds.iter().map(|(name, key, ink)| {
        line(name, *ink, most.iter().copied().zip(column(table, key)).collect())
    });
    let by_size = chart(
        Axis::new("size, up to", Unit::Bytes).scale(Scale::Log2),
        Axis::new("share of the requests", Unit::Share),
        Marks::Lines(lines.collect()),
    );
    vec![three, Figure::new("sizes", "By powers of two", by_size)]
}

fn files_over_time(found: &Found) -> Vec<Figure> {
    let Some(width) = found.table_named("bins").map(|bins| column(bins, "window_us")[0]) else {
        return Vec::new();
    };
    let both = [("read", "read_bytes", READS), ("written", "written_bytes", WRITES)];
    let all = named_rows(found, ["files", "file_windows"], width, &both);
    let cache = [("requests", "requests", CACHE)];
    let cache = named_rows(found, ["cache_files", "cache_file_windows"], width, &cache);
    let all = all.map(|chart| {
        Figure::new("files-by-time", "The files that move most bytes", chart)
            .caption("The higher a mark, the more bytes in that time.")
    });
    let cache = cache.map(|chart| {
        Figure::new("cache-files-by-time", "The cache files accessed most", chart)
            .caption("The higher a mark, the more requests in that time.")
    });
    [all, cache].into_iter().flatten().collect()
}

/// One row for each file; marks are higher where the file is used more. Heights are easier to
/// compare than areas of circles.
fn named_rows(
    found: &Found,
    [names, cells]: [&str; 2],
    width: f64,
    kinds: &[(&str, &str, Ink)],
) -> Option<Chart> {
    let (names, cells) = (found.table_named(names)?, found.table_named(cells)?);
    let paths: Vec<&str> = names
        .values("name")
        .map(|name| match name {
            Value::Name(name) => &**name,
            _ => "",
        })
        .collect();
    let folder = common_folder(&paths);
    let labels = paths.iter().map(|path| path[folder.len()..].to_owned());
    let (files, starts) = (column(cells, "file"), column(cells, "start_us"));
    let most = kinds.iter().flat_map(|(_, key, _)| column(cells, key)).fold(1.0, f64::max);
    // Each kind has a lane of its own in the row.
    let lane = 0.9 / kinds.len() as f64;
    let layers = kinds.iter().enumerate().map(|(n, (name, key, ink))| {
        let patches =
            files.iter().zip(&starts).zip(column(cells, key)).filter(|(_, amount)| *amount > 0.0);
        let patches = patches.map(|((file, start), amount)| {
            let bottom = file - 1.0 + 0.05 + lane * (n + 1) as f64;
            let height = (lane * (amount / most).sqrt()).max(lane * 0.15);
            Patch { x: (*start, start + width), y: (bottom, bottom - height), amount }
        });
        Layer { name: (*name).to_owned(), ink: *ink, patches: patches.collect() }
    });
    let layers = layers.collect();
    let x = Axis::new("time", Unit::TimeUs);
    let y = Axis::new("", Unit::Count).scale(Scale::Names(labels.collect()));
    let title = if folder.is_empty() { String::new() } else { format!("below {folder}") };
    Some(Chart { title, ..chart(x, y, Marks::Patches(layers)) })
}

/// Returns the common folder of these paths, including the last `/`.
fn common_folder<'a>(paths: &[&'a str]) -> &'a str {
    let Some((first, others)) = paths.split_first().filter(|(_, others)| !others.is_empty()) else {
        return "";
    };
    let shared =
        |other: &&str| first.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let end = others.iter().map(shared).min().unwrap_or(0);
    first.as_bytes()[..end].iter().rposition(|byte| *byte == b'/').map_or("", |at| &first[..=at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_folder_of_paths_is_found() {
        for (paths, folder) in [
            (&["/a/b/c", "/a/b/d", "/a/bé"][..], "/a/"),
            (&["/a/é", "/a/è"], "/a/"),
            (&["/a/b", "/a/b"], "/a/"),
            (&["/a/b"], ""),
            (&["a", "b"], ""),
            (&[], ""),
        ] {
            assert_eq!(common_folder(paths), folder, "{paths:?}");
        }
    }
}
