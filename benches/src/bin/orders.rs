//! FSLRU with its queues under other policies than LRU, and the fsyncs that one commit could share,
//! on the test recordings of testdata/days.

use anyhow::Context;
use flashsift_core::{
    cache::ORDERS,
    event::{About, Action, Event, FileId},
    layout, policy,
    system::{self, Cell, Outcome},
    trace::{Tables, Trace, TraceBuilder, Unit},
};
use flashsift_traces::{
    Error,
    events::Sink,
    open::{self, Limits},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// Recordings with the DRAM of `experiments/fslru`, in pages, and the smallest non-volatile memory.
const RECORDINGS: &[(&str, u32, u32)] = &[
    ("calendar-delete", 5, 16),
    ("calendar-truncate", 5, 16),
    ("calendar-wal", 15, 16),
    ("browser-days-3", 5940, 256),
    ("desktop-3", 4197, 256),
    ("firefox-days-1", 2825, 256),
    ("launch-2", 16871, 256),
    ("offline-2", 44465, 256),
    ("photos-2", 12576, 256),
];

/// Delays of a group fsync, µs.
const DELAYS_US: &[u64] = &[0, 1_000, 10_000, 100_000, 1_000_000];

#[derive(Default)]
struct Loader {
    builder: Option<TraceBuilder>,
    /// Time, thread, file and whether it is a sync.
    events: Vec<(u64, u32, Option<FileId>)>,
}

impl Sink for Loader {
    fn about(&mut self, about: About) -> Result<(), Error> {
        let tables = Tables { bytes: true, ..Tables::default() };
        self.builder = Some(TraceBuilder::new(about, Unit::Page, u64::MAX).with_tables(tables));
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        for event in events {
            let synced = match event.action {
                Action::Sync { file, .. } | Action::Write { file, sync: true, .. } => Some(file),
                _ => None,
            };
            self.events.push((event.at_us, event.tid, synced));
        }
        self.builder.as_mut().expect("about comes first").extend(events).expect("it is valid");
        Ok(())
    }
}

fn main() -> anyhow::Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let policies: Vec<&str> = wanted.first().map_or(Vec::new(), |list| list.split(',').collect());
    for (name, dram, smallest) in RECORDINGS {
        if wanted.len() > 1 && !wanted[1..].iter().any(|wanted| wanted == name) {
            continue;
        }
        let path = Path::new("testdata/days").join(name).with_extension("parquet");
        let mut loader = Loader::default();
        open::read(&path, None, &mut loader, &Limits::default())?;
        groups(name, &loader.events);
        let trace = loader.builder.context("the trace is empty")?.finish()?;
        for nvm in [*smallest, 4 * smallest, 16 * smallest] {
            let share = 100.0 * f64::from(*dram) / f64::from(dram + nvm);
            let fslru = format!("fslru:dram={share:.5}");
            let run = |orders: [Option<&str>; 2], system: &str, frames: u32| {
                *ORDERS.lock().expect("no holder panics") =
                    orders.map(|order| order.map(str::to_owned));
                let outcome = cell(&trace, system, frames)?;
                let due = outcome.device.writes + outcome.traffic.nvm_left + outcome.dirty_left;
                let [dram, nvm] = orders.map(|order| order.unwrap_or("-"));
                println!(
                    "{name},{nvm_pages},{system},{dram},{nvm},{},{due},{},{}",
                    outcome.device.writes,
                    outcome.device.reads,
                    outcome.device.flushes,
                    nvm_pages = frames,
                );
                anyhow::Ok(())
            };
            let none = [None, None];
            run(none, &format!("flush-nvm:pages={nvm}"), *dram)?;
            run(none, &format!("hybrid-flush:pages={nvm}"), *dram)?;
            run(none, &fslru, dram + nvm)?;
            for policy in &policies {
                run([Some(policy), None], &fslru, dram + nvm)?;
                run([None, Some(policy)], &fslru, dram + nvm)?;
                run([Some(policy), Some(policy)], &fslru, dram + nvm)?;
            }
        }
    }
    Ok(())
}

fn cell(trace: &Trace, system: &str, frames: u32) -> anyhow::Result<Outcome> {
    let cell = Cell {
        system: &system::Selection::parse(system)?,
        policy: &policy::Selection::parse("lru")?,
        frames,
        layout: &layout::Selection::default_for(trace.about().space),
        writeback: "linux".parse().map_err(anyhow::Error::msg)?,
        drain: false,
        write_miss_reads: false,
        request_pages_max: 128,
        discards: true,
        metadata: None,
        attribution: None,
    };
    Ok(cell.run(trace, None, None))
}

/// Prints the fsyncs, and the commits if a commit waits for this delay and takes the fsyncs of
/// other threads that come until then. A thread has one fsync in a group, because it waits: when it
/// does anything else, the group has ended.
fn groups(name: &str, events: &[(u64, u32, Option<FileId>)]) {
    let fsyncs = events.iter().filter(|(_, _, synced)| synced.is_some()).count();
    let mut found: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for delay_us in DELAYS_US {
        let (mut commits, mut at_once) = (0, 0);
        // Without moved times: the commit also ends when a waiting thread does something else.
        for honest in [false, true] {
            let mut count = 0;
            let mut ends_us = None;
            let mut waiting: BTreeSet<u32> = BTreeSet::new();
            for (at_us, thread, synced) in events {
                let over = ends_us.is_some_and(|ends_us| *at_us > ends_us);
                if over || (waiting.contains(thread) && (honest || synced.is_some())) {
                    (ends_us, waiting) = (None, BTreeSet::new());
                }
                if synced.is_some() {
                    if ends_us.is_none() {
                        count += 1;
                        ends_us = Some(at_us + delay_us);
                    }
                    waiting.insert(*thread);
                }
            }
            *if honest { &mut at_once } else { &mut commits } = count;
        }
        found.insert(*delay_us, (commits, at_once));
    }
    println!(
        "# {name}: {fsyncs} fsyncs; by delay in µs, commits at best, and with recorded times: {found:?}"
    );
}
