//! Sifters on a recording: the events that reach the page cache below, and their effect on a
//! device. `cargo test -p flashsift-traces --test sift -- --nocapture` prints the figures.

use flashsift_core::{
    event::{Action, Event},
    layout, policy,
    sift::{
        Keep, KeepConfig, NoSifter, Sift,
        simulate::{Counters, Sifted},
    },
    structure::Extents,
    system::{Cell, Outcome, frames_in},
    trace::{Trace, TraceBuilder, Unit},
};
use flashsift_traces::{
    events::Kept,
    open::{self, Limits},
};
use std::{collections::BTreeMap, path::Path, time::Instant};

const MIB: u64 = 1 << 20;

fn browser() -> Kept {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/browser.parquet");
    let mut kept = Kept::default();
    open::read(&path, None, &mut kept, &Limits::default()).unwrap();
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

/// Returns the ranges written to each file that exists in the end.
fn contents(events: &[Event<'_>]) -> BTreeMap<u64, Extents> {
    let mut files = BTreeMap::<u64, Extents>::new();
    for event in events {
        match event.action {
            Action::Write { file, offset, len, .. } => {
                files.entry(file.0).or_default().insert(offset..offset + len);
            }
            Action::Truncate { file, size } => files.entry(file.0).or_default().remove(size..u64::MAX),
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

#[test]
fn a_recording_ends_in_the_same_state_below() {
    let kept = browser();
    let wanted = contents(&kept.events);
    for budget_bytes in [MIB, 64 * MIB] {
        let config = KeepConfig { budget_bytes, ..KeepConfig::default() };
        let began = Instant::now();
        let (below, counters) = sifted(&kept, Keep::new(config), budget_bytes);
        let rate = kept.events.len() as f64 / began.elapsed().as_secs_f64();
        println!("keep in {} MiB, {rate:.0} events/s: {counters:#?}", budget_bytes / MIB);
        let found = contents(&below);
        // A file that is unlinked and open in the end is lost with its processes.
        assert!(found.iter().all(|(file, extents)| wanted.get(file) == Some(extents)));
        let lost: u64 = wanted
            .iter()
            .filter(|(file, _)| !found.contains_key(file))
            .map(|(_, extents)| extents.covered())
            .sum();
        assert!(lost <= counters.ram_bytes, "{lost} bytes are missing, {} are in RAM", counters.ram_bytes);
        assert!(counters.ram_bytes_peak <= budget_bytes);
        assert!(counters.born_in_ram > 1000 && counters.never_written_bytes() > 0);
        assert_eq!(counters.dropped.files, 0);
    }
}

/// Prints the pages written to the device if none, or half, of the same memory holds files.
#[test]
fn keep_saves_device_writes() {
    let kept = browser();
    let stock = trace(&kept, &kept.events);
    println!("memory MiB | mode | stock writes | keep writes | stock hits | keep hits");
    for memory in [16, 64, 256].map(|mib| mib * MIB) {
        let config = KeepConfig { budget_bytes: memory / 2, ..KeepConfig::default() };
        let (below, counters) = sifted(&kept, Keep::new(config), memory / 2);
        let below = trace(&kept, &below);
        for modes in ["eviction", "expire:30s,sync"] {
            let modes = if modes == "eviction" { "" } else { modes };
            let (with, without) = (run(&below, memory / 2, modes), run(&stock, memory, modes));
            println!(
                "{} | {modes:?} | {} | {} | {:.4} | {:.4}",
                memory / MIB,
                without.writes_due(),
                with.writes_due(),
                without.hit_ratio(),
                with.hit_ratio(),
            );
            // A page that a write-back covers is written at most once more.
            assert!(with.writes_due() > 0 && without.writes_due() > 0);
        }
        println!("RAM peak {} of {} bytes", counters.ram_bytes_peak, memory / 2);
    }
}

fn trace(kept: &Kept, events: &[Event<'_>]) -> Trace {
    let mut builder = TraceBuilder::new(kept.about.unwrap(), Unit::Page, u64::MAX);
    builder.extend(events).unwrap();
    builder.finish().unwrap()
}

fn run(trace: &Trace, memory_bytes: u64, modes: &str) -> Outcome {
    let policy = policy::Selection::parse("linux2q").unwrap();
    let layout = layout::Selection::default_for(trace.about().space);
    let writeback = if modes.is_empty() { Default::default() } else { modes.parse().unwrap() };
    let frames = frames_in(memory_bytes).unwrap();
    let (drain, write_miss_reads) = (true, false);
    Cell { policy: &policy, frames, layout: &layout, writeback, drain, write_miss_reads }
        .run(trace, None, None)
}
