//! Sifters on a recording: what reaches the page cache below, and what that does to a device.
//! `cargo test -p flashsift-traces sift:: -- --nocapture` prints the figures.

use flashsift_caches::{
    policy,
    trace::{Trace, TraceBuilder, Unit},
};
use flashsift_events::{
    event::{Action, Event},
    structure::Extents,
};
use flashsift_files::sift::{
    Keep, KeepConfig, NoSifter, Sift,
    simulate::{Counters, Sifted},
};
use flashsift_pages::{
    layout,
    system::{Cell, Outcome, frames_in},
    writeback::Modes,
};
use flashsift_traces::{
    events::Kept,
    open::{self, Limits},
};
use std::{collections::BTreeMap, path::Path, time::Instant};

const MIB: u64 = 1 << 20;

fn browser() -> Kept {
    recording("browser")
}

fn recording(name: &str) -> Kept {
    let path = format!("{}/../../testdata/{name}.parquet", env!("CARGO_MANIFEST_DIR"));
    let path = Path::new(&path);
    let mut kept = Kept::default();
    open::read(path, None, &mut kept, &Limits::default()).unwrap();
    kept
}

fn sifted(kept: &Kept, sift: impl Sift, budget_bytes: u64) -> (Vec<Event<'static>>, Counters) {
    let mut sifted = Sifted::new(sift, budget_bytes, kept.about.unwrap().knows);
    let mut below = Vec::new();
    for event in &kept.events {
        sifted.event(event, &mut |event| below.push(event.clone().into_owned()));
    }
    sifted.finish(&mut |event| below.push(event.clone().into_owned()));
    sifted.check();
    (below, sifted.counters().clone())
}

/// The written ranges of each file that exists at the end.
fn contents(events: &[Event<'_>]) -> BTreeMap<u64, Extents> {
    let mut files = BTreeMap::<u64, Extents>::new();
    for event in events {
        match event.action {
            Action::Write { file, offset, len, .. } => {
                files.entry(file.0).or_default().insert(offset..offset + len);
            }
            Action::Truncate { file, size } => {
                files.entry(file.0).or_default().remove(size..u64::MAX)
            }
            Action::Punch { file, offset, len } => {
                files.entry(file.0).or_default().remove(offset..offset + len);
            }
            Action::Gone { file } => drop(files.remove(&file.0)),
            _ => {}
        }
    }
    files.retain(|_, extents| !extents.is_empty());
    files
}

#[test]
fn without_a_sifter_a_recording_stays_as_it_is() {
    let kept = browser();
    let (below, _) = sifted(&kept, NoSifter, 0);
    assert!(below == kept.events, "{} and {} events", below.len(), kept.events.len());
}

// Promises: Mount 13.
#[test]
fn a_recording_ends_below_as_it_ended() {
    let kept = browser();
    let wanted = contents(&kept.events);
    for budget_bytes in [MIB, 64 * MIB] {
        let config = KeepConfig { budget_bytes, ..KeepConfig::default() };
        let began = Instant::now();
        let (below, counters) = sifted(&kept, Keep::new(config), budget_bytes);
        let rate = kept.events.len() as f64 / began.elapsed().as_secs_f64();
        println!("keep in {} MiB, {rate:.0} events/s: {counters:#?}", budget_bytes / MIB);
        let found = contents(&below);
        // A file that is unlinked and open at the end is lost with its processes.
        assert!(found.iter().all(|(file, extents)| wanted.get(file) == Some(extents)));
        let lost: u64 = wanted
            .iter()
            .filter(|(file, _)| !found.contains_key(file))
            .map(|(_, extents)| extents.covered())
            .sum();
        assert!(
            lost <= counters.ram_bytes,
            "{lost} bytes are missing, {} are in RAM",
            counters.ram_bytes
        );
        assert!(counters.ram_bytes_peak <= budget_bytes);
        assert!(counters.born_in_ram > 1000 && counters.never_written_bytes() > 0);
        assert_eq!(counters.dropped.files, 0);
    }
}

/// With Linux' flusher and syncs, half of the memory for files in RAM saves writes, although the
/// page cache has only the other half. Where eviction alone writes, it need not.
#[test]
fn half_of_the_memory_for_new_files_saves_writes() {
    let kept = browser();
    let stock = trace(&kept, &kept.events);
    println!("memory MiB, write-back: pages written without and with keep");
    for memory in [16, 64, 256].map(|mib| mib * MIB) {
        let config = KeepConfig { budget_bytes: memory / 2, ..KeepConfig::default() };
        let (below, _) = sifted(&kept, Keep::new(config), memory / 2);
        let below = trace(&kept, &below);
        for modes in [None, Some("expire:30s,sync")] {
            let without = run(&stock, memory, modes).writes_due();
            let with = run(&below, memory / 2, modes).writes_due();
            let shown = modes.unwrap_or("on eviction");
            println!("{}, {shown}: {without}, {with}", memory / MIB);
            assert!(
                modes.is_none() || with < without,
                "{memory} bytes: {with} and {without} pages"
            );
        }
    }
}

/// The recordings, and the most that `keep` may write of them in 256 MiB and 30 minutes, as a share
/// of the pages that stock writes.
const SHARES: [(&str, f64); 6] = [
    ("browser", 0.70),
    ("feed", 0.50),
    ("messenger", 1.0),
    ("map", 0.50),
    ("video", 0.25),
    ("game", 0.55),
];
/// Memory of the machine. Stock's page cache has all of it; the one below `keep` has the rest.
const MEMORY: u64 = 1024 * MIB;

/// With Linux's flusher and honoured syncs, no budget and no window writes more pages than the page
/// cache alone: evicting files from RAM once wrote 1.64 times as much as stock.
#[test]
fn no_budget_writes_more_than_stock() {
    let minute = 60_000_000;
    println!("| recording | pages of stock | window | 16 MiB | 64 MiB | 256 MiB | no limit |");
    println!("|---|---:|---|---:|---:|---:|---:|");
    for (name, share) in SHARES {
        let kept = recording(name);
        // The flusher's ratio is of the memory that is left for the page cache.
        let linux = |memory: u64| format!("linux,ram={}KiB", memory >> 10);
        let whole = linux(MEMORY);
        let stock = run(&trace(&kept, &kept.events), MEMORY, Some(&whole)).writes_due();
        for window in [1, 30] {
            print!("| {name} | {stock} | {window} min |");
            for budget in [16, 64, 256, u64::MAX / MIB] {
                let budget_bytes = budget * MIB;
                let lose_at_most_us = window * minute;
                let config = KeepConfig { lose_at_most_us, budget_bytes, ..KeepConfig::default() };
                let (below, _) = sifted(&kept, Keep::new(config), budget_bytes);
                let memory = MEMORY.checked_sub(budget_bytes).unwrap_or(MEMORY);
                let with = run(&trace(&kept, &below), memory, Some(&linux(memory))).writes_due();
                let ratio = with as f64 / stock as f64;
                print!(" {ratio:.3} |");
                assert!(with <= stock, "{name}, {budget} MiB, {window} min: {with} and {stock}");
                assert!(budget < 256 || window < 30 || ratio <= share, "{name}: {ratio}");
            }
            println!();
        }
    }
}

fn trace(kept: &Kept, events: &[Event<'_>]) -> Trace {
    let mut builder = TraceBuilder::new(kept.about.unwrap(), Unit::Page, u64::MAX);
    builder.extend(events).unwrap();
    builder.finish().unwrap()
}

fn run(trace: &Trace, memory_bytes: u64, modes: Option<&str>) -> Outcome {
    let policy = policy::Selection::parse("linux2q").unwrap();
    let layout = layout::default_for(trace.about().space);
    let writeback = modes.map_or_else(Modes::default, |modes| modes.parse().unwrap());
    let frames = frames_in(memory_bytes).unwrap();
    let (drain, write_miss_reads) = (true, false);
    Cell {
        system: &flashsift_pages::system::PLAIN,
        policy: &policy,
        frames,
        layout: &layout,
        writeback,
        drain,
        write_miss_reads,
        request_pages_max: 1,
        discards: false,
        metadata: None,
        readahead: None,
        attribution: None,
        lines: None,
        reads: None,
    }
    .run(trace, None, None)
}
