//! Tests of the machine in its system: against a model of lists that checks every microsecond; each
//! mode against results computed by hand; and relations between modes.

use super::*;
use crate::{
    layout,
    system::{Cell, Outcome},
};
use flashsift_caches::{
    back::{DeviceCounts, Why},
    policy::{
        self, Setup,
        naive::{self, Act, Placing, Stepped},
    },
    trace::{Run, StepKind, TraceBuilder, Unit},
};
use flashsift_events::{
    event::{About, Action, Event, FileId, Knows, Side},
    io::{Cause, Io, IoOp},
    page::{PAGE_BYTES, Page},
};
use proptest::{prelude::*, strategy::ValueTree};
use std::{cmp::Reverse, collections::BTreeSet, ops::Range};

const KNOWS: Knows =
    Knows { times: true, syncs: true, writes: true, removals: true, ..Knows::NOTHING };

fn trace_of(space: Space, knows: Knows, events: &[(u64, Action<'static>)]) -> Trace {
    let mut builder = TraceBuilder::new(
        About { epoch_us: None, boot_us: None, side: Side::Before, space, knows },
        Unit::Page,
        u64::MAX,
    );
    for (at_us, action) in events {
        builder.extend(&[Event { at_us: *at_us, pid: 0, tid: 0, action: action.clone() }]).unwrap();
    }
    builder.finish().unwrap()
}

/// A trace of block devices laid out one after another, so that the address of a page equals its
/// rank wherever no page is left out.
fn trace(events: &[(u64, Action<'static>)]) -> Trace {
    trace_of(Space::Blocks, KNOWS, events)
}

fn run(policy: &str, frames: u32, modes: Modes, trace: &Trace) -> (Outcome, Vec<Io>) {
    let policy = policy::Selection::parse(policy).unwrap();
    let layout = layout::default_for(trace.about().space);
    let cell = Cell {
        system: &crate::system::PLAIN,
        policy: &policy,
        frames,
        layout: &layout,
        writeback: modes,
        drain: true,
        write_miss_reads: false,
        request_pages_max: 1,
        discards: false,
        metadata: None,
        readahead: None,
        attribution: None,
        lines: None,
        reads: None,
    };
    let mut ios = Vec::new();
    let future = trace.future().unwrap();
    let outcome = cell.run(trace, Some(&future), Some(&mut |io| ios.push(io)));
    assert_eq!(
        cell.run(trace, Some(&future), None),
        outcome,
        "an observer of the requests changes nothing"
    );
    (outcome, ios)
}

fn modes(text: &str) -> Modes {
    text.parse().unwrap()
}

fn write(file: u64, pages: Range<u64>) -> Action<'static> {
    let (offset, len) = (pages.start * PAGE_BYTES, (pages.end - pages.start) * PAGE_BYTES);
    Action::Write { open: None, file: FileId(file), offset, len, sync: false }
}

fn write_sync(file: u64, pages: Range<u64>) -> Action<'static> {
    let (offset, len) = (pages.start * PAGE_BYTES, (pages.end - pages.start) * PAGE_BYTES);
    Action::Write { open: None, file: FileId(file), offset, len, sync: true }
}

fn fsync(file: u64) -> Action<'static> {
    Action::Sync { file: FileId(file), offset: 0, len: u64::MAX, data_only: false }
}

/// Three files of four pages each, at places 0.., 4.. and 8..; times in seconds. Two files become
/// dirty early, in descending order. One file ages while others are synced.
fn history() -> Vec<(u64, Action<'static>)> {
    let second = 1_000_000;
    vec![
        (second, write(2, 2..4)),
        (2 * second, write(2, 0..1)),
        (3 * second, write(0, 1..2)),
        (5 * second, write(1, 0..4)), // at the time of a tick, but after it
        (6 * second, fsync(2)),
        (7 * second, write(2, 3..4)),
        (8 * second, write_sync(1, 1..2)),
        (12 * second, write(0, 0..4)),
        (17 * second, Action::Truncate { file: FileId(0), size: 2 * PAGE_BYTES }),
        (18 * second, Action::SyncAll),
        (19 * second, write(2, 1..2)),
        (32 * second, Action::Close { open: None, file: FileId(0) }),
    ]
}

/// Write requests of the history in a cache that holds everything, as (second, place, whether a
/// process waits). Writes at the end of the trace are left out.
fn written(text: &str) -> Vec<(u64, u64, bool)> {
    let trace = trace(&history());
    let (outcome, ios) = run("lru", 100, modes(text), &trace);
    let writes = outcome.device.writes - outcome.device.drained;
    let ios = ios.iter().filter(|io| io.op == IoOp::Write).take(writes as usize);
    ios.map(|io| (io.at_us / 1_000_000, io.lba, io.sync)).collect()
}

fn at(second: u64, places: &[u64], sync: bool) -> Vec<(u64, u64, bool)> {
    places.iter().map(|place| (second, *place, sync)).collect()
}

// Promises: Counting 4.
#[test]
fn eviction_alone_writes_nothing_that_fits() {
    assert_eq!(written("evict"), []);
    // In every mode a dirty page is written when it is evicted.
    let trace = trace(&[(1, write(0, 0..1)), (2, write(0, 1..2)), (3, write(0, 2..3))]);
    for text in ["evict", "periodic:9s", "expire:9s,ratio=100", "sync", "sync-all"] {
        let (outcome, ios) = run("lru", 2, modes(text), &trace);
        assert_eq!(
            (ios[0].at_us, ios[0].lba, ios[0].sync, outcome.device.drained),
            (3, 0, false, 2),
            "{text}"
        );
    }
}

/// The files are written at the time of the tick, in the order in which they became dirty, their
/// pages ascending. A page that becomes dirty at the time of a tick waits for the next one. A tick
/// after the last access still writes if it comes no later than the end of the trace.
// Promises: Write-back 1, Write-back 7.
#[test]
fn periodic_writes_everything() {
    let wanted = [
        at(5, &[8, 10, 11, 1], false),
        at(10, &[4, 5, 6, 7, 11], false),
        at(15, &[0, 1, 2, 3], false),
        at(20, &[9], false),
    ];
    assert_eq!(written("periodic:5s"), wanted.concat());
    assert_eq!(written("periodic:33s"), [], "the trace ends before this time");
    assert_eq!(written("periodic:32s").len(), 10, "the trace ends at this time");
}

/// A file is written whole at the first tick at which it is old enough, regardless of syncs before.
// Promises: Write-back 2.
#[test]
fn expire_writes_old_files() {
    let wanted = [
        // The files became dirty at 1, 3 and 5 s.
        at(11, &[8, 10, 11], false),
        at(13, &[0, 1, 2, 3], false),
        at(15, &[4, 5, 6, 7], false),
        at(29, &[9], false),
    ];
    assert_eq!(written("expire:10s,tick=1s,ratio=100"), wanted.concat());
    let wanted = [
        at(12, &[8, 10, 11], false),
        at(15, &[0, 1, 2, 3, 4, 5, 6, 7], false),
        at(30, &[9], false),
    ];
    assert_eq!(written("expire:10s,tick=3s,ratio=100"), wanted.concat());
    // The file was synced at 6 s and is dirty again at 7 s: it keeps its age, as in the kernel.
    let mut synced = at(6, &[8, 10, 11], true);
    synced.extend(at(8, &[5], true));
    synced.extend(at(11, &[11], false));
    assert_eq!(written("expire:10s,tick=1s,ratio=100,sync")[..5], synced);
}

/// As soon as more than 5 of 100 pages of memory are dirty, the oldest files are written until no
/// more than 5 are. The memory is that of the machine, not of the cache.
// Promises: Write-back 3.
#[test]
fn files_above_the_ratio_are_written_at_once() {
    let wanted = [
        at(5, &[8, 10, 11], false),
        // Pages 1, 4 to 7 and 11: six pages are dirty after 7 s.
        at(7, &[1], false),
        // Pages 4 to 7, 11 and all of file 0: nine pages are dirty.
        at(12, &[4, 5, 6, 7], false),
    ];
    assert_eq!(written("expire:1h,ratio=5,ram=400KiB"), wanted.concat());
    assert_eq!(written("expire:1h,ratio=50,ram=40KiB"), wanted.concat());
    assert_eq!(written("expire:1h,ratio=5"), [], "memory is 2 GiB");
    assert_eq!(written("expire:1h,ratio=100,ram=400KiB"), []);
    assert_eq!(written("expire:1h,ratio=0").len(), 15, "every page is written at once");
}

/// An fsync writes its file, an `O_SYNC` write its own pages, and `sync` all files in the order in
/// which they became dirty. Truncated pages are not written.
// Promises: Write-back 4.
#[test]
fn a_sync_writes_the_pages_that_it_names() {
    let wanted = [at(6, &[8, 10, 11], true), at(8, &[5], true), at(18, &[11, 0, 1, 4, 6, 7], true)];
    assert_eq!(written("sync"), wanted.concat());
    let dropped = |text| run("lru", 100, modes(text), &trace(&history())).0.device.dropped_dirty;
    assert_eq!((dropped("sync"), dropped("evict"), dropped("periodic:5s")), (2, 2, 0));
    // A sync of part of a file.
    let range =
        Action::Sync { file: FileId(0), offset: PAGE_BYTES, len: PAGE_BYTES + 1, data_only: false };
    let (outcome, ios) = run("lru", 100, modes("sync"), &trace(&[(0, write(0, 0..9)), (1, range)]));
    assert_eq!(outcome.device.sync_writes, 2);
    assert_eq!(ios[..2].iter().map(|io| io.lba).collect::<Vec<_>>(), [1, 2]);
}

/// An application that syncs waits for one flush behind all pages of the sync. A flush is sent
/// even if nothing is dirty; without a mode that writes at syncs there is none.
// Promises: Write-back 11.
#[test]
fn a_sync_is_one_flush_behind_its_pages() {
    let events = [(0, write(0, 0..3)), (1, fsync(0)), (2, fsync(0)), (3, write_sync(0, 1..2))];
    let (outcome, ios) = run("lru", 100, modes("sync"), &trace(&events));
    let sent: Vec<_> = ios.iter().map(|io| (io.at_us, io.op, io.lba, io.awaited)).collect();
    let (write, flush) = (IoOp::Write, IoOp::Flush);
    let wanted = [
        (1, write, 0, false),
        (1, write, 1, false),
        (1, write, 2, false),
        (1, flush, 0, true),
        (2, flush, 0, true),
        (3, write, 1, false),
        (3, flush, 0, true),
    ];
    assert_eq!((sent, outcome.device.flushes), (wanted.to_vec(), 3));
    assert_eq!(run("lru", 100, modes("periodic:5s"), &trace(&events)).0.device.flushes, 0);
}

/// With the dirty page that leaves, the dirty pages of its aligned range of addresses are written
/// in order. They stay cached, so a later eviction writes them only if they are dirty again.
// Promises: Write-back 12.
#[test]
fn a_cluster_is_written_when_one_of_its_pages_leaves() {
    let events = [
        (0, write(0, 1..2)),
        (1, write(0, 6..7)),
        (2, write(0, 3..4)),
        (3, write(0, 0..1)),
        (4, Action::Read { open: None, file: FileId(0), offset: 9 * PAGE_BYTES, len: PAGE_BYTES }),
        (5, Action::Read { open: None, file: FileId(0), offset: 3 * PAGE_BYTES, len: PAGE_BYTES }),
        (6, write(0, 8..9)),
    ];
    let (outcome, ios) = run("lru", 4, modes("cluster:16KiB"), &trace(&events));
    // Page 1 leaves for page 9, and pages 0 and 3 are written with it; page 6 leaves for page 8.
    let writes: Vec<_> =
        ios.iter().filter(|io| io.op == IoOp::Write).map(|io| (io.at_us, io.lba)).collect();
    assert_eq!(writes, [(4, 0), (4, 1), (4, 3), (6, 6), (6, 8)]);
    assert_eq!((outcome.device.drained, outcome.read_hits), (1, 1));
    let (evicting, _) = run("lru", 4, modes("evict"), &trace(&events));
    assert_eq!((evicting.hits(), evicting.device.reads), (outcome.hits(), outcome.device.reads));
}

/// One range is written each time the device had no request for this time: at first the one with
/// the most dirty pages, the lower of two equal ones, or else the one that became dirty first.
// Promises: Write-back 13.
#[test]
fn a_range_is_written_ahead_when_the_device_is_idle() {
    let read = |page: u64| {
        let (offset, len) = (page * PAGE_BYTES, PAGE_BYTES);
        Action::Read { open: None, file: FileId(0), offset, len }
    };
    let second = 1_000_000;
    let events = [
        // The device has been idle for long, but no page was dirty.
        (20 * second, write(0, 8..9)),
        (21 * second, write(0, 4..5)),
        (22 * second, write(0, 0..2)),
        // A request at 23 s.
        (23 * second, read(12)),
        (24 * second, write(0, 5..6)),
        (33 * second, write(0, 12..13)),
        (60 * second, Action::Close { open: None, file: FileId(0) }),
    ];
    let trace = trace(&events);
    let writes = |modes: &str| -> Vec<(u64, u64)> {
        let (_, ios) = run("lru", 100, self::modes(modes), &trace);
        let writes = ios.iter().filter(|io| io.op == IoOp::Write && io.at_us < 60 * second);
        writes.map(|io| (io.at_us / second, io.lba)).collect()
    };
    let fullest = [(28, 0), (28, 1), (33, 4), (33, 5), (38, 8), (43, 12)];
    assert_eq!(writes("cluster:16KiB,idle=5s"), fullest);
    let oldest = [(28, 8), (33, 4), (33, 5), (38, 0), (38, 1), (43, 12)];
    assert_eq!(writes("cluster:16KiB,idle=5s,first=oldest"), oldest);
    let (_, ios) = run("lru", 100, modes("cluster:16KiB,idle=5s"), &trace);
    assert!(ios.iter().all(|io| io.awaited == (io.op == IoOp::Read)), "no process waits for them");
}

/// As soon as more than 50 % of a cache of eight pages is dirty, ranges are written until no more
/// than four pages are.
// Promises: Write-back 14.
#[test]
fn ranges_above_the_ratio_are_written_at_once() {
    let events =
        [(1, write(0, 0..1)), (2, write(0, 4..6)), (3, write(0, 8..10)), (4, write(0, 12..15))];
    let trace = trace(&events);
    let writes = |modes: &str| -> Vec<(u64, u64)> {
        let (outcome, ios) = run("lru", 8, self::modes(modes), &trace);
        let undrained = (outcome.device.writes - outcome.device.drained) as usize;
        ios.iter().take(undrained).map(|io| (io.at_us, io.lba)).collect()
    };
    let fullest = [(3, 4), (3, 5), (4, 12), (4, 13), (4, 14)];
    assert_eq!(writes("cluster:16KiB,ratio=50"), fullest);
    let oldest = [(3, 0), (4, 4), (4, 5), (4, 8), (4, 9)];
    assert_eq!(writes("cluster:16KiB,ratio=50,first=oldest"), oldest);
    assert_eq!(writes("cluster:16KiB,ratio=100"), []);
}

/// Every sync writes everything dirty, in ascending order.
// Promises: Write-back 5.
#[test]
fn sync_all_writes_everything() {
    let wanted =
        [at(6, &[1, 4, 5, 6, 7, 8, 10, 11], true), at(8, &[5, 11], true), at(18, &[0, 1], true)];
    assert_eq!(written("sync-all"), wanted.concat());
    // A sync of a file without any page in the trace.
    let (outcome, _) =
        run("lru", 100, modes("sync-all"), &trace(&[(0, write(0, 0..9)), (1, fsync(5))]));
    assert_eq!(outcome.device.sync_writes, 9);
}

// Promises: Write-back 5.
#[test]
fn hf_flushes_as_android_in_the_hybrid_flush_paper() {
    let wanted = [
        at(5, &[8, 10, 11, 1], false),
        at(6, &[4, 5, 6, 7], true),
        at(8, &[5, 11], true),
        at(15, &[0, 1, 2, 3], false),
        at(20, &[9], false),
    ];
    assert_eq!(written("hf"), wanted.concat());
    assert_eq!(written("evict,periodic:5s,sync-all"), wanted.concat());
}

/// A model that follows the definition: it searches lists, and its clock ticks every microsecond.
struct Model<'a> {
    modes: Modes,
    runs: &'a [Run],
    /// By page: its address.
    address: Vec<u64>,
    cache: Box<dyn Stepped>,
    dirty: BTreeSet<u32>,
    frames: u32,
    /// Ranges of addresses with dirty pages, in the order in which they became dirty.
    ranges: Vec<u64>,
    /// The last request, or the time at which a page became dirty while none was.
    idle_since_us: u64,
    /// Files and the time at which each became dirty, in order of that time.
    order: Vec<(FileId, u64)>,
    now_us: u64,
    done: Vec<(u64, IoOp, Option<Why>, u32)>,
    hits: u64,
    dropped_dirty: u64,
}

impl Model<'_> {
    fn file(&self, page: u32) -> FileId {
        self.runs
            .iter()
            .find(|run| (run.first..run.first + run.pages).contains(&page))
            .unwrap()
            .file
    }

    fn write(&mut self, pages: Vec<u32>, why: Why) {
        for page in pages {
            assert!(self.dirty.remove(&page));
            self.cache.step(Act::Clean(page), 0);
            self.done.push((self.now_us, IoOp::Write, Some(why), page));
            self.idle_since_us = self.now_us;
        }
        self.forget_clean_ranges();
    }

    fn write_file(&mut self, file: FileId, why: Why) {
        self.order.retain(|(other, _)| *other != file);
        self.write(
            self.dirty.iter().copied().filter(|page| self.file(*page) == file).collect(),
            why,
        );
    }

    fn write_all(&mut self, why: Why) {
        for (file, _) in self.order.clone() {
            self.write_file(file, why);
        }
    }

    fn time(&mut self, now_us: u64) {
        while self.now_us < now_us {
            self.now_us += 1;
            if self.modes.periodic_us.is_some_and(|every| self.now_us.is_multiple_of(every)) {
                self.write_all(Why::Periodic);
            }
            if let Some(expire) =
                self.modes.expire.filter(|expire| self.now_us.is_multiple_of(expire.tick_us))
            {
                for (file, since_us) in self.order.clone() {
                    if self.now_us - since_us >= expire.after_us {
                        self.write_file(file, Why::Expire);
                    }
                }
            }
            if let Some(Cluster { idle_us: Some(idle_us), first, .. }) = self.modes.cluster
                && !self.dirty.is_empty()
                && self.now_us - self.idle_since_us >= idle_us
            {
                self.write_ahead(first, Why::Idle);
            }
        }
    }

    fn sync(&mut self, pages: Option<Range<u32>>) {
        match (self.modes.syncs, pages) {
            (Syncs::Nothing, _) => {}
            (Syncs::TheirFile, None) => self.write_all(Why::Sync),
            (Syncs::TheirFile, Some(pages)) => {
                self.write(self.dirty.range(pages).copied().collect(), Why::Sync)
            }
            (Syncs::Everything, _) => {
                self.order.clear();
                self.write(self.dirty.iter().copied().collect(), Why::Sync);
            }
        }
        if self.modes.syncs != Syncs::Nothing {
            self.done.push((self.now_us, IoOp::Flush, Some(Why::Sync), 0));
            self.idle_since_us = self.now_us;
        }
    }

    fn access(&mut self, act: Act, next_use: u32, page: u32) {
        let effect = self.cache.step(act, next_use);
        for victim in &effect.written {
            for page in self.cluster(victim.0) {
                self.dirty.remove(&page);
                if !effect.written.contains(&Page(page)) {
                    self.cache.step(Act::Clean(page), 0);
                }
                self.done.push((self.now_us, IoOp::Write, Some(Why::Evict), page));
                self.idle_since_us = self.now_us;
            }
        }
        self.forget_clean_ranges();
        for page in effect.fetched {
            self.done.push((self.now_us, IoOp::Read, None, page.0));
            self.idle_since_us = self.now_us;
        }
        self.hits += u64::from(effect.hit);
        if matches!(act, Act::Write(_)) && self.dirty.insert(page) {
            if self.dirty.len() == 1 {
                self.idle_since_us = self.now_us;
            }
            let range = self.range(page);
            if !self.ranges.contains(&range) {
                self.ranges.push(range);
            }
            let file = self.file(page);
            if self.order.iter().all(|(other, _)| *other != file) {
                self.order.push((file, self.now_us));
            }
        }
    }

    /// A request past the cache: dirty pages first; after a write no page is cached.
    fn direct(&mut self, pages: Range<u32>, is_write: bool, act: Option<Act>) {
        self.write(self.dirty.range(pages.clone()).copied().collect(), Why::Direct);
        if let Some(act) = act {
            assert_eq!(self.cache.step(act, 0).dropped_dirty, 0);
        }
        let why = is_write.then_some(Why::Direct);
        let op = if is_write { IoOp::Write } else { IoOp::Read };
        if !pages.is_empty() {
            self.idle_since_us = self.now_us;
        }
        self.done.extend(pages.map(|page| (self.now_us, op, why, page)));
    }

    /// The pages written with a victim, in order of their addresses; none if it was written with
    /// another one.
    fn cluster(&self, victim: u32) -> Vec<u32> {
        if !self.dirty.contains(&victim) {
            return Vec::new();
        }
        if self.modes.cluster.is_none() {
            return vec![victim];
        }
        self.dirty_pages_of(self.range(victim))
    }

    fn range(&self, page: u32) -> u64 {
        let pages = self.modes.cluster.map_or(1, |cluster| cluster.pages);
        self.address[page as usize] / u64::from(pages)
    }

    /// The dirty pages of a range of addresses, in order of their addresses.
    fn dirty_pages_of(&self, range: u64) -> Vec<u32> {
        let mut pages: Vec<_> =
            self.dirty.iter().copied().filter(|page| self.range(*page) == range).collect();
        pages.sort_by_key(|page| self.address[*page as usize]);
        pages
    }

    /// Notes the ranges that hold no dirty page any more.
    fn forget_clean_ranges(&mut self) {
        let dirty: Vec<u64> = self.dirty.iter().map(|page| self.range(*page)).collect();
        self.ranges.retain(|range| dirty.contains(range));
    }

    /// Writes the range that is first.
    fn write_ahead(&mut self, first: First, why: Why) {
        let fullest = |range: &&u64| (self.dirty_pages_of(**range).len(), Reverse(**range));
        let range = match first {
            First::Oldest => self.ranges[0],
            First::Fullest => *self.ranges.iter().max_by_key(fullest).unwrap(),
        };
        self.write(self.dirty_pages_of(range), why);
    }

    fn relieve(&mut self) {
        let Some(Expire { ratio, ram_pages, .. }) = self.modes.expire else { return };
        while self.dirty.len() as u64 * 100 > ram_pages * u64::from(ratio) {
            self.write_file(self.order[0].0, Why::Background);
        }
    }

    fn relieve_by_range(&mut self) {
        let Some(Cluster { ratio: Some(ratio), first, .. }) = self.modes.cluster else { return };
        while self.dirty.len() as u64 * 100 > u64::from(self.frames) * u64::from(ratio) {
            self.write_ahead(first, Why::Background);
        }
    }
}

/// Runs the model through a trace and drains it. Its requests name pages by rank.
fn modelled<'a>(
    spec: &policy::PolicySpec,
    frames: u32,
    modes: Modes,
    trace: &'a Trace,
) -> Model<'a> {
    let params = Default::default();
    let setup =
        Setup { frames, pages: trace.pages(), runs: trace.runs(), params: &params, bytes: None };
    let layout = layout::default_for(trace.about().space);
    let places = (layout.spec.build)(trace, &layout.params);
    let mut model = Model {
        modes,
        address: (0..trace.pages()).map(|page| places.read(Page(page))).collect(),
        runs: trace.runs(),
        cache: naive::model(spec, &setup, Placing::Fixed),
        dirty: BTreeSet::new(),
        frames,
        ranges: Vec::new(),
        idle_since_us: 0,
        order: Vec::new(),
        now_us: 0,
        done: Vec::new(),
        hits: 0,
        dropped_dirty: 0,
    };
    let mut acts = Vec::new();
    for step in trace.steps() {
        match step.kind() {
            StepKind::Read => acts.extend(step.range().map(Act::Read)),
            StepKind::Write | StepKind::WriteSync | StepKind::Folio => {
                acts.extend(step.range().map(Act::Write));
            }
            StepKind::Drop | StepKind::DirectWrite => {
                acts.push(Act::Drop(step.first().0, step.pages()));
            }
            StepKind::Sync | StepKind::SyncAll | StepKind::DirectRead => {}
        }
    }
    let mut acts = acts.iter().copied().zip(naive::next_uses(&acts));
    for (n, step) in trace.steps().iter().enumerate() {
        model.time(trace.at_us(n));
        match step.kind() {
            StepKind::Sync => model.sync(Some(step.range())),
            StepKind::SyncAll => model.sync(None),
            StepKind::DirectRead => model.direct(step.range(), false, None),
            StepKind::DirectWrite => {
                let (act, _) = acts.next().unwrap();
                model.direct(step.range(), true, Some(act));
            }
            StepKind::Drop => {
                let (act, _) = acts.next().unwrap();
                model.dropped_dirty += model.cache.step(act, 0).dropped_dirty;
                model.dirty.retain(|page| !step.range().contains(page));
                model.forget_clean_ranges();
            }
            // All pages become dirty, and nothing counts as asked for.
            StepKind::Folio => {
                for (page, (act, next_use)) in step.range().zip(acts.by_ref()) {
                    let hits = model.hits;
                    model.access(act, next_use, page);
                    model.hits = hits;
                }
                model.relieve();
                model.relieve_by_range();
            }
            kind => {
                for (page, (act, next_use)) in step.range().zip(acts.by_ref()) {
                    model.access(act, next_use, page);
                }
                if kind == StepKind::WriteSync {
                    model.sync(Some(step.range()));
                }
                if kind != StepKind::Read {
                    model.relieve();
                    model.relieve_by_range();
                }
            }
        }
    }
    model.time(trace.totals().duration_us);
    for page in model.cache.drain().written {
        model.done.push((model.now_us, IoOp::Write, Some(Why::Drain), page.0));
    }
    model
}

fn modes_strategy() -> impl Strategy<Value = Modes> {
    let expire = (1..40u64, 1..15u64, 0..=100u32, 1..60u64);
    let expire = expire.prop_map(|(after_us, tick_us, ratio, ram_pages)| Expire {
        after_us,
        tick_us,
        ratio,
        ram_pages,
    });
    let syncs = prop::sample::select(vec![Syncs::Nothing, Syncs::TheirFile, Syncs::Everything]);
    let first = prop::sample::select(vec![First::Fullest, First::Oldest]);
    let idle_us = prop::option::of(1..20u64);
    let cluster = (1..9u32, idle_us, prop::option::of(0..=100u32), first);
    let cluster =
        cluster.prop_map(|(pages, idle_us, ratio, first)| Cluster { pages, idle_us, ratio, first });
    let cluster = prop::option::of(cluster);
    (prop::option::of(1..20u64), prop::option::of(expire), syncs, cluster).prop_map(
        |(periodic_us, expire, syncs, cluster)| Modes {
            periodic_us,
            expire,
            syncs,
            cluster,
            file_system: None,
        },
    )
}

/// Reads, writes, removals and syncs of three files of about ten pages each, with occasional
/// pauses. The last kind of event only advances the time.
fn events_strategy() -> impl Strategy<Value = Vec<(u64, Action<'static>)>> {
    let pause = prop_oneof![4 => 0..3u64, 1 => 0..60u64];
    let event = (pause, 0..24u8, 0..3u64, 0..10u64, 1..4u64);
    prop::collection::vec(event, 1..60).prop_map(|events| {
        let mut at_us = 0;
        let actions = events.into_iter().map(|(pause, kind, file, page, pages)| {
            at_us += pause;
            let (id, offset, len) = (FileId(file), page * PAGE_BYTES, pages * PAGE_BYTES);
            let action = match kind {
                0..6 => Action::Read { open: None, file: id, offset, len },
                6..13 => write(file, page..page + pages),
                13 => write_sync(file, page..page + pages),
                14 => fsync(file),
                15 => Action::Sync { file: id, offset, len, data_only: false },
                16 => Action::SyncAll,
                17 => Action::Truncate { file: id, size: offset },
                18 => Action::Punch { file: id, offset, len },
                19 | 20 => Action::Direct { open: None, file: id, offset, len, write: kind == 20 },
                21 | 22 => Action::Folio { file: id, offset, len },
                _ => Action::Close { open: None, file: id },
            };
            (at_us, action)
        });
        actions.collect()
    })
}

fn has_syncs(action: &Action) -> bool {
    matches!(action, Action::Sync { .. } | Action::SyncAll | Action::Write { sync: true, .. })
}

/// Policies that look at dirty bits: write-back may change their hits.
const DIRTY_AWARE: [&str; 5] = ["linux2q", "cflru", "lruwsr", "mglru", "belady-cost"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Each request agrees with the model's in its time, its page and whether a process waits, for
    /// every policy.
    // Promises: Counting 12, Write-back 6, Write-back 7, Write-back 8, Write-back 13,
    // Write-back 14, Write-back 18.
    #[test]
    fn agrees_with_the_model(events in events_strategy(), modes in modes_strategy(), frames in 1..24u32) {
        let trace = trace(&events);
        let layout = layout::default_for(Space::Blocks);
        let places = (layout.spec.build)(&trace, &layout.params);
        for spec in policy::ALL {
            let (outcome, ios) = run(spec.name, frames, modes, &trace);
            let mut model = modelled(spec, frames, modes, &trace);
            let wanted: Vec<Io> = model.done.iter().map(|(at_us, op, why, page)| match op {
                IoOp::Flush => Io { at_us: *at_us, op: *op, lba: 0, pages: 0, sync: true, awaited: true, cause: Cause::default() },
                _ => Io {
                    at_us: *at_us,
                    op: *op,
                    lba: places.read(Page(*page)),
                    pages: 1,
                    sync: *why == Some(Why::Sync),
                    awaited: matches!(why, None | Some(Why::Evict | Why::Direct)),
                    cause: Cause { process: 0, page: Some(Page(*page)) },
                },
            }).collect();
            prop_assert_eq!(ios, wanted, "{} under {}", spec.name, modes);
            let flushes = model.done.iter().filter(|(_, op, ..)| *op == IoOp::Flush).count() as u64;
            model.done.retain(|(_, op, ..)| *op != IoOp::Flush);
            prop_assert_eq!(outcome.device.flushes, flushes);
            let count = |wanted| model.done.iter().filter(|(_, _, why, _)| *why == wanted).count() as u64;
            let DeviceCounts { reads, writes, sync_writes, drained, dropped_dirty, .. } = outcome.device;
            prop_assert_eq!((outcome.hits(), dropped_dirty, outcome.dirty_left), (model.hits, model.dropped_dirty, 0));
            prop_assert_eq!((reads, writes), (count(None), model.done.len() as u64 - count(None)));
            prop_assert_eq!((sync_writes, drained), (count(Some(Why::Sync)), count(Some(Why::Drain))));
        }
    }

    /// In a trace without syncs the setting of syncs changes nothing.
    #[test]
    fn the_setting_of_syncs_changes_nothing_without_syncs(mut events in events_strategy(), modes in modes_strategy(), frames in 1..24u32) {
        events.retain(|(_, action)| !has_syncs(action));
        let trace = trace(&events);
        let without = run("mglru", frames, Modes { syncs: Syncs::Nothing, ..modes }, &trace);
        for syncs in [Syncs::TheirFile, Syncs::Everything] {
            prop_assert_eq!(&run("mglru", frames, Modes { syncs, ..modes }, &trace), &without);
        }
    }

    /// A policy that ignores dirty bits has the same hits under every mode. Under any mode, a page
    /// that is written to while it is cached costs at least one write unless it is truncated.
    /// Eviction alone costs exactly one. So every other mode writes at least as much and saves no
    /// more by truncation, and no page is lost.
    // Promises: Write-back 9.
    #[test]
    fn eviction_alone_writes_least(events in events_strategy(), modes in modes_strategy(), frames in 1..24u32) {
        let trace = trace(&events);
        for spec in policy::ALL.iter().filter(|spec| !DIRTY_AWARE.contains(&spec.name)) {
            let (evict, _) = run(spec.name, frames, Modes::default(), &trace);
            let (other, _) = run(spec.name, frames, modes, &trace);
            prop_assert_eq!((evict.read_hits, evict.write_hits), (other.read_hits, other.write_hits), "{}", spec.name);
            prop_assert_eq!(evict.device.reads, other.device.reads);
            prop_assert!(evict.device.writes <= other.device.writes, "{} under {}", spec.name, modes);
            prop_assert!(evict.device.dropped_dirty >= other.device.dropped_dirty);
            let ended = |outcome: &Outcome| outcome.device.writes + outcome.device.dropped_dirty;
            prop_assert!(ended(&evict) <= ended(&other));
        }
    }

    /// More frequent write-back writes at least as much, for policies that ignore dirty bits: a
    /// half as long interval, or syncs that write everything instead of one file.
    #[test]
    fn more_occasions_write_more(events in events_strategy(), modes in modes_strategy(), every in 1..20u64, frames in 1..24u32) {
        let trace = trace(&events);
        let writes = |modes| run("lru", frames, modes, &trace).0.device.writes;
        let modes = Modes { cluster: None, expire: None, ..modes };
        let syncs = |syncs| writes(Modes { periodic_us: None, syncs, ..modes });
        prop_assert!(syncs(Syncs::Nothing) <= syncs(Syncs::TheirFile));
        prop_assert!(syncs(Syncs::TheirFile) <= syncs(Syncs::Everything));
        let periodic = |every| writes(Modes { periodic_us: every, ..modes });
        prop_assert!(periodic(Some(2 * every)) <= periodic(Some(every)));
        prop_assert!(periodic(None) <= periodic(Some(2 * every)));
    }

    /// If all pages fit and every microsecond is a tick, every page written by a request reaches
    /// the device; only writes within one request are merged.
    #[test]
    fn flushing_every_microsecond_writes_every_access(mut events in events_strategy()) {
        events.retain(|(_, action)| !matches!(action, Action::Truncate { .. } | Action::Punch { .. }));
        events.iter_mut().enumerate().for_each(|(n, (at_us, _))| *at_us = n as u64);
        let trace = trace(&events);
        for modes in [modes("periodic:1us"), modes("expire:1us,tick=1us"), modes("expire:1h,ratio=0")] {
            let (outcome, _) = run("lru", 100, modes, &trace);
            let totals = trace.totals();
            let wanted = totals.write_accesses + totals.direct_writes + totals.folio_pages;
            prop_assert_eq!(outcome.device.writes, wanted);
        }
    }

    /// Modes are parsed back from their displayed form.
    #[test]
    fn displayed_modes_parse_to_the_same_modes(modes in modes_strategy(), unit in prop::sample::select(vec![1, 1000, 1_000_000])) {
        let expire = modes.expire.map(|e| Expire { after_us: e.after_us * unit, tick_us: e.tick_us * unit, ..e });
        let modes = Modes { periodic_us: modes.periodic_us.map(|us| us * unit), expire, ..modes };
        prop_assert_eq!(modes.to_string().parse(), Ok(modes));
    }

    #[test]
    fn no_text_panics(text in "[a-z:=,0-9 ]{0,30}|\\PC{0,10}") {
        let _ = text.parse::<Modes>();
    }
}

/// Each policy of `DIRTY_AWARE` has other hits under write-back in some history.
// Promises: Write-back 9.
#[test]
fn policies_that_look_at_dirty_bits_hit_differently_under_write_back() {
    let mut dice = proptest::test_runner::TestRunner::deterministic();
    let mut left: Vec<&str> = DIRTY_AWARE.to_vec();
    for _ in 0..2000 {
        let tree = (events_strategy(), modes_strategy(), 1..24u32).new_tree(&mut dice).unwrap();
        let (events, modes, frames) = tree.current();
        let trace = trace(&events);
        left.retain(|policy| {
            run(policy, frames, modes, &trace).0.hits()
                == run(policy, frames, Modes::default(), &trace).0.hits()
        });
    }
    assert!(left.is_empty(), "{left:?} hit the same under every mode");
}

/// A day between two writes costs no work, and times near `u64::MAX` do not overflow.
#[test]
fn long_pauses_cost_nothing() {
    let far = [0, 1 << 62, u64::MAX - 1, u64::MAX];
    let trace = trace(&far.map(|at_us| (at_us, write(0, 0..1))));
    for (text, before_the_end) in [
        ("periodic:1us", 3),
        ("expire:1us,tick=1us,ratio=100", 3),
        ("expire:100000h,tick=1us,ratio=100", 2),
        ("cluster:4KiB,idle=1us", 3),
    ] {
        let (Outcome { device, .. }, ios) = run("lru", 1, modes(text), &trace);
        assert_eq!(
            (device.writes - device.drained, ios[0].at_us > 0),
            (before_the_end, true),
            "{text}"
        );
    }
}

#[test]
fn modes_are_parsed_by_name() {
    assert_eq!(modes("evict"), Modes::default());
    let expire = Expire { after_us: 30_000_000, tick_us: 5_000_000, ratio: 10, ram_pages: 524_288 };
    assert_eq!(
        modes("linux"),
        Modes {
            expire: Some(expire),
            syncs: Syncs::TheirFile,
            periodic_us: None,
            cluster: None,
            file_system: None
        }
    );
    assert_eq!(modes("linux,ratio=5").expire, Some(Expire { ratio: 5, ..expire }));
    for ram in ["1GiB", "1G", "1024M", "1048576KiB"] {
        let expire = Expire { ram_pages: 262_144, ..expire };
        assert_eq!(modes(&format!("linux,ram={ram}")).expire, Some(expire));
    }
    let syncs = Syncs::Everything;
    let hf = Modes { periodic_us: Some(5_000_000), syncs, ..Modes::default() };
    assert_eq!(
        (modes("hf"), modes("periodic,sync-all"), modes("sync-all, periodic:5s")),
        (hf, hf, hf)
    );
    assert_eq!(
        modes("periodic:1500ms,expire:2min,tick=1h,ratio=0").to_string(),
        "evict,periodic:1500ms,expire:120s,tick=3600s,ratio=0"
    );
    for (name, _) in ALL {
        assert!(name.parse::<Modes>().is_ok(), "{name}");
    }
}

#[test]
fn a_refused_mode_is_named_with_the_reason() {
    for (text, says) in [
        ("", "no mode of write-back is called ``; there are: evict, periodic:5s"),
        ("sometimes", "called `sometimes`"),
        ("sync:5s", "called `sync:5s`"),
        ("periodic:5", "`5` is not a time: write a time as 90s, 10m, 1h or 7d"),
        ("periodic:0s", "`0s` is not a time"),
        ("periodic:-5s", "`-5s` is not a time"),
        ("periodic:99999999999999999h", "is not a time"),
        ("expire:30s,ratio=101", "ratio=101: it is a percentage of ram, 0 to 100"),
        ("expire:30s,ram=0K", "ram=0K: it is a number of KiB, MiB or GiB, of whole pages"),
        ("expire:30s,ram=6K", "ram=6K"),
        ("expire:30s,ram=2", "ram=2"),
        ("expire:30s,ram=99999999999999999999G", "ram=9"),
        ("expire:30s,dirt=1", "`dirt=1` belongs to no mode"),
        ("cluster:6KiB", "cluster:6KiB: it is a number of KiB or MiB"),
        ("cluster:32MiB", "4KiB to 16MiB"),
        ("cluster:64KiB,idle=0s", "`0s` is not a time"),
        ("cluster:64KiB,ratio=101", "ratio=101: it is a percentage of the cache, 0 to 100"),
        ("cluster:64KiB,first=newest", "first=newest: it is fullest or oldest"),
        ("cluster:64KiB,tick=5s", "`tick=5s` belongs to no mode"),
        ("cluster:64KiB,sync,idle=5s", "cluster takes idle, ratio and first"),
        ("sync,tick=5s", "`tick=5s` belongs to no mode: expire takes tick, ratio, ram and fs"),
        ("linux,fs=ntfs", "fs=ntfs: it is ext4, f2fs, xfs or btrfs"),
        ("sync,fs=xfs", "`fs=xfs` belongs to no mode"),
    ] {
        let error = text.parse::<Modes>().unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

// Promises: Write-back 10.
#[test]
fn modes_that_need_missing_information_are_refused() {
    let quiet = [(0, write(0, 0..1))];
    let synced = [(0, write(0, 0..1)), (0, fsync(0))];
    let no_times = Knows { times: false, ..KNOWS };
    let no_syncs = Knows { syncs: false, ..KNOWS };
    let suit = |text, knows, events: &[_]| modes(text).suit(&trace_of(Space::Files, knows, events));
    assert_eq!(suit("periodic:5s", no_times, &quiet), Err(Unsuited::NoTimes));
    assert_eq!(suit("expire:5s", no_times, &quiet), Err(Unsuited::NoTimes));
    assert_eq!(suit("cluster:64KiB,idle=5s", no_times, &quiet), Err(Unsuited::NoTimes));
    assert_eq!(suit("cluster:64KiB,ratio=5", no_times, &quiet), Ok(()));
    assert_eq!(suit("sync-all", no_times, &quiet), Ok(()));
    assert_eq!(suit("sync", no_syncs, &quiet), Err(Unsuited::NoSyncs));
    assert_eq!(suit("periodic:5s", no_syncs, &quiet), Ok(()));
    assert_eq!(suit("evict", Knows { times: false, ..no_syncs }, &quiet), Ok(()));
    // Some syncs are known although the trace may lack others, as in block traces.
    assert_eq!(suit("sync", no_syncs, &synced), Ok(()));
    let caveats =
        |space, knows, events: &[_]| modes("sync").caveats(&trace_of(space, knows, events));
    assert_eq!(caveats(Space::Files, KNOWS, &synced), []);
    assert_eq!(caveats(Space::Files, KNOWS, &quiet), [Caveat::NoSyncs]);
    assert_eq!(caveats(Space::Files, no_syncs, &synced), [Caveat::SyncsIncomplete]);
    assert_eq!(caveats(Space::Blocks, KNOWS, &synced), [Caveat::OneFile]);
    let (file, offset) = (FileId(0), 0);
    let stores = [write(0, 0..1), Action::Folio { file, offset, len: 0 }, fsync(0)];
    let found = caveats(Space::Files, KNOWS, &stores.map(|action| (0, action)));
    assert_eq!(found, [Caveat::FoliosUnknown(1)]);
    assert!(found[0].to_string().ends_with("up to 511 pages (2.0 MiB) more"), "{}", found[0]);
}

#[test]
fn when_describes_the_modes_in_words() {
    assert_eq!(modes("evict").when(), "on eviction only");
    assert_eq!(modes("hf").when(), "on eviction, all of them every 5 s, all of them at any sync");
}

/// A trace of files with times and syncs gets Linux's modes; without any of these, eviction only,
/// and the reason names what is missing.
// Promises: Write-back 16.
#[test]
fn the_default_is_linux_where_the_trace_has_what_it_needs() {
    let history = [(0, write(0, 0..4)), (5, write(0, 0..1))];
    let of = |space, knows| Modes::default_for(&trace_of(space, knows, &history));
    let found = of(Space::Files, KNOWS);
    assert_eq!((found.modes, found.reason), (modes("linux"), DefaultReason::AllKnown));
    for (space, knows, words) in [
        (Space::Blocks, KNOWS, "--writeback evict: the trace is not of files"),
        (
            Space::Files,
            Knows { times: false, ..KNOWS },
            "--writeback evict: the trace has no times",
        ),
        (
            Space::Files,
            Knows { syncs: false, ..KNOWS },
            "--writeback evict: the trace does not record syncs",
        ),
    ] {
        let found = of(space, knows);
        assert!(found.modes.on_eviction_only(), "{words}");
        assert_eq!(found.to_string(), words);
    }
    // A kind of trace that may lack some syncs, and has one.
    let synced = [(0, write(0, 0..4)), (5, fsync(0))];
    let some = trace_of(Space::Files, Knows { syncs: false, ..KNOWS }, &synced);
    assert_eq!(Modes::default_for(&some).modes, Modes::linux());
}

#[test]
fn a_short_name_reads_as_the_same_modes() {
    for (text, name) in [
        ("evict", "evict"),
        ("linux", "linux"),
        ("sync,expire", "linux"),
        ("hf", "hf"),
        ("linux,ratio=20", "expire:30s,tick=5s,ratio=20,sync"),
        ("linux,cluster:128KiB", "expire:30s,tick=5s,ratio=10,sync,cluster:128KiB"),
        ("linux,fs=xfs", "linux,fs=xfs"),
        ("sync,expire:60s,fs=btrfs", "expire:60s,tick=5s,ratio=10,fs=btrfs,sync"),
    ] {
        assert_eq!(modes(text).name(), name);
        assert_eq!(modes(name), modes(text));
    }
}
