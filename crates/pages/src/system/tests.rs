//! The arithmetic of a cell, and systems of other kinds: the traits `Cache`, `Back` and `Policy`
//! support them.

use super::*;
use crate::writeback::Modes;
use flashsift_caches::{
    cache::{Frames, Victims},
    policy::Policy,
    trace::{Tables, TraceBuilder, Unit},
};
use flashsift_events::{
    event::{About, Action, Event, FileId, Knows, Side, Space},
    page::Frame,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

mod durable_cache;
mod hybrid_memory;
mod merging_back;
mod other_counts;
mod papers;
mod placed_policy;
mod reading_ahead;
mod write_buffer;

/// A trace of files with all step tables; event `n` happens after `n` seconds in process `n`.
fn trace(actions: &[Action]) -> Trace {
    let knows = Knows { times: true, syncs: true, writes: true, removals: true, ..Knows::NOTHING };
    let about =
        About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
    let tables = Tables { bytes: true, owners: true, places: true, ..Tables::default() };
    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX).with_tables(tables);
    for (n, action) in actions.iter().enumerate() {
        let at_us = n as u64 * 1_000_000;
        builder.extend(&[Event { at_us, pid: n as u32, tid: 0, action: action.clone() }]).unwrap();
    }
    builder.finish().unwrap()
}

fn read(file: u64, page: u64, pages: u64) -> Action<'static> {
    Action::Read {
        open: None,
        file: FileId(file),
        offset: page * PAGE_BYTES,
        len: pages * PAGE_BYTES,
    }
}

fn write(file: u64, page: u64, pages: u64) -> Action<'static> {
    let (offset, len) = (page * PAGE_BYTES, pages * PAGE_BYTES);
    Action::Write { open: None, file: FileId(file), offset, len, sync: false }
}

fn fsync(file: u64) -> Action<'static> {
    Action::Sync { file: FileId(file), offset: 0, len: u64::MAX, data_only: false }
}

fn created(file: u64) -> Action<'static> {
    Action::Open { open: None, file: FileId(file), created: true }
}

/// Calls `then` with a cell of `frames` frames under LRU on the default layout of files.
fn with_cell<T>(frames: u32, modes: &str, drain: bool, then: impl FnOnce(&Cell<'_>) -> T) -> T {
    let policy = policy::Selection::parse("lru").unwrap();
    let layout = layout::default_for(Space::Files);
    let writeback: Modes = modes.parse().unwrap();
    then(&Cell {
        system: &PLAIN,
        policy: &policy,
        frames,
        layout: &layout,
        writeback,
        drain,
        write_miss_reads: false,
        request_pages_max: 1,
        discards: false,
        metadata: None,
        readahead: None,
        attribution: None,
        lines: None,
        reads: None,
    })
}

/// Returns the layout that this cell uses.
fn layout_of(cell: &Cell<'_>, trace: &Trace) -> Option<Box<dyn layout::Layout>> {
    Some((cell.layout.spec.build)(trace, &cell.layout.params))
}

/// LRU in its simplest form: a list of frames, the least recently used first.
struct Lru(Vec<Frame>);

impl Build for Lru {
    fn build(_: &Setup<'_>) -> Self {
        Self(Vec::new())
    }
}

impl Policy for Lru {
    const OFFLINE: bool = false;

    fn insert(&mut self, frame: Frame, _: &Access) {
        self.0.push(frame);
    }

    fn hit(&mut self, frame: Frame, access: &Access) {
        self.0.retain(|other| *other != frame);
        self.insert(frame, access);
    }

    fn evict(&mut self, _: Option<&Access>, _: &Frames, victims: &mut Victims) {
        victims.push(self.0.remove(0));
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.0.retain(|other| *other != frame);
    }

    fn check(&self, _: &Frames) {}
}

/// A seeded history over three small files: reads, writes, fsyncs, truncations.
fn history(rng: &mut Pcg64, steps: usize) -> Vec<Action<'static>> {
    let mut next = || {
        let (file, page, pages) =
            (rng.random_range(0..3), rng.random_range(0..8), rng.random_range(1..4));
        match rng.random_range(0..12) {
            0..4 => read(file, page, pages),
            4..9 => write(file, page, pages),
            9..11 => fsync(file),
            _ => Action::Truncate { file: FileId(file), size: page * PAGE_BYTES },
        }
    };
    (0..steps).map(|_| next()).collect()
}
