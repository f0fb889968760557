//! Read-ahead by program and by file, of one simulated run: the only section that needs a cache.
//!
//! It is not in [`ALL`](super::ALL), because it needs a dense trace beside the stream of events.

use super::{
    Characterisation, CharacterisationSpec, Figure, Found, Ledger, Section, Sentence, Table, Value,
};
use flashsift_caches::trace::Trace;
use flashsift_events::page::PAGE_BYTES;
use flashsift_pages::{
    readahead::{Counts, ReadAheadCharges, ReadAheadRanking, ReadAheadSums},
    system::Outcome,
};

static SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "readahead",
    title: "Read-ahead",
    paper: "",
    paper_saw: "",
    opens: true,
    needs: &[],
    build: |_| Box::new(NotStreamed),
};

struct NotStreamed;

impl Characterisation for NotStreamed {
    fn finish(&mut self, _: &Ledger, _: usize) -> Result<Found, &'static str> {
        Err("no simulated read-ahead")
    }
}

/// Returns the section about the prefetches of a run. `label`: the read-ahead; `frames`: pages of
/// the cache; `top`: names to list.
pub fn readahead_section(
    trace: &Trace,
    label: &str,
    frames: u32,
    outcome: &Outcome,
    charges: &ReadAheadCharges,
    top: usize,
) -> Section {
    let counts = &outcome.readahead;
    let bytes = |pages: u64| Value::Bytes(pages * PAGE_BYTES);
    let share = |share: Option<f64>| share.map_or(Value::Absent, Value::Share);
    let mean = counts.mean_pages().map_or(Value::Absent, Value::Number);
    let total = charges.total();
    let accesses = outcome.accesses();
    let evicted = (accesses > 0).then(|| counts.evicted as f64 / accesses as f64);
    let figures = vec![
        Figure::new("model", "read-ahead", Value::Name(label.into())),
        Figure::new("cache_bytes", "page cache", bytes(u64::from(frames))),
        Figure::new("demanded_bytes", "read as demanded", bytes(counts.demanded())),
        Figure::new("ahead_bytes", "read ahead", bytes(counts.read)),
        Figure::new("used_bytes", "of that, used", bytes(counts.used))
            .share(counts.used, counts.read),
        Figure::new("wasted_bytes", "read in vain", bytes(counts.wasted())),
        Figure::new("dropped_bytes", "of that, dropped unused", bytes(total.dropped_pages())),
        Figure::new("unused_bytes", "still in the cache", bytes(total.unused_pages)),
        Figure::new("efficiency_of_asked_share", "used / asked", share(counts.efficiency())),
        Figure::new("windows", "windows", Value::Count(counts.windows)),
        Figure::new("window_mean_pages", "mean pages", mean),
        Figure::new("at_maximum_share", "at the maximum", share(counts.share_at_max())),
        Figure::new("read_requests", "read requests", Value::Count(outcome.read_requests)),
        Figure::new("hit_share", "hits of reads", share(counts.read_hit_ratio())),
        Figure::new("evicted_per_access", "evicted / accessed", number(evicted)),
    ];
    let sentence: Sentence = match counts.efficiency_of_read() {
        None => vec![format!("{label} reads nothing ahead.").into()],
        Some(used) => vec![
            format!("{label} reads").into(),
            bytes(counts.read).into(),
            "ahead, of which programs use".into(),
            Value::Share(used).into(),
            "before it leaves a cache of".into(),
            bytes(u64::from(frames)).into(),
            "(simulated).".into(),
        ],
    };
    let mut found = Found::default().figures(figures).sentence(sentence);
    let (programs, files) = (charges.by_program(trace, top), charges.by_file(trace, top));
    for (key, title, ranking) in [("programs", "program", programs), ("files", "file", files)] {
        found = found.table(short(key, title, &ranking)).table(long(key, &ranking));
    }
    Section { spec: &SPEC, found: Ok(found) }
}

fn number(number: Option<f64>) -> Value {
    number.map_or(Value::Absent, Value::Number)
}

/// Rows with their names, and the sum of the names that are not listed.
fn rows(ranking: &ReadAheadRanking) -> impl Iterator<Item = (Value, u64, &ReadAheadSums)> {
    let top = ranking.top.iter();
    let named = top.map(|named| (Value::Name(named.name.clone()), named.count, &named.sums));
    let others = (ranking.other_names > 0).then(|| {
        let name = format!("({} others)", ranking.other_names);
        (Value::Name(name.into()), ranking.other_names, &ranking.others)
    });
    named.chain(others)
}

/// The table for people.
fn short(key: &'static str, title: &'static str, ranking: &ReadAheadRanking) -> Table {
    let key = if key == "files" { "files_shown" } else { "programs_shown" };
    let columns = [
        ("name", title),
        ("demanded_bytes", "demanded"),
        ("ahead_bytes", "ahead"),
        ("used_share", "used"),
        ("wasted_bytes", "wasted"),
        ("windows", "windows"),
    ];
    let mut table = Table::new(key, &columns).only_for(super::Audience::People);
    for (name, _, sums) in rows(ranking) {
        let Counts { read, used, windows, .. } = sums.counts;
        table.push([
            name,
            Value::Bytes(sums.counts.demanded() * PAGE_BYTES),
            Value::Bytes(read * PAGE_BYTES),
            Value::share(used, read),
            Value::Bytes(sums.counts.wasted() * PAGE_BYTES),
            Value::Count(windows),
        ]);
    }
    table
}

/// The table with all counts, for programs and for the page.
fn long(key: &'static str, ranking: &ReadAheadRanking) -> Table {
    let columns = [
        ("name", key),
        ("count", "count"),
        ("demanded_bytes", "demanded"),
        ("ahead_bytes", "ahead"),
        ("used_bytes", "used"),
        ("used_share", "used / ahead"),
        ("asked_bytes", "asked"),
        ("used_of_asked_share", "used / asked"),
        ("dropped_bytes", "dropped"),
        ("unused_bytes", "unused yet"),
        ("wasted_bytes", "wasted"),
        ("windows", "windows"),
        ("window_mean_pages", "mean pages"),
        ("at_maximum_share", "at the maximum"),
        ("read_requests", "read requests"),
        ("hit_share", "hits of reads"),
        ("evicted_per_read", "evicted / read"),
    ];
    let mut table = Table::new(key, &columns).only_for(super::Audience::Programs);
    for (name, count, sums) in rows(ranking) {
        let counts = &sums.counts;
        let bytes = |pages: u64| Value::Bytes(pages * PAGE_BYTES);
        table.push([
            name,
            Value::Count(count),
            bytes(counts.demanded()),
            bytes(counts.read),
            bytes(counts.used),
            Value::share(counts.used, counts.read),
            bytes(counts.asked),
            Value::share(counts.used, counts.asked),
            bytes(sums.dropped_pages()),
            bytes(sums.unused_pages),
            bytes(counts.wasted()),
            Value::Count(counts.windows),
            Value::mean(counts.window_pages, counts.windows),
            Value::share(counts.windows_at_max, counts.windows),
            Value::Count(sums.read_requests),
            counts.read_hit_ratio().map_or(Value::Absent, Value::Share),
            number(sums.eviction_ratio()),
        ]);
    }
    table
}
