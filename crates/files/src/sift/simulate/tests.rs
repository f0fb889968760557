//! The storage below ends in the state that the history gives; RAM is bounded; and small cases with
//! the expected events written out.

use super::*;
use crate::sift::{Blocked, Keep, KeepConfig, NoSifter, testing::History};
use flashsift_events::event::Renamed;
use std::collections::BTreeSet;

const CREATIONS: Knows = Knows { times: true, creations: true, opens: true, ..Knows::NOTHING };

/// Returns about `events` events, with those that follow from the last, at most a second apart; and
/// the files that have no name in the end.
fn history(seed: u64, events: usize) -> (Vec<Event<'static>>, BTreeSet<FileId>) {
    let mut history = History::new(seed);
    let mut at_us = 0;
    let mut all = Vec::new();
    while all.len() < events || history.goes_on() {
        at_us += u64::from(history.dice.below(1_000_000));
        all.push(Event { at_us, pid: 5, tid: 6, action: history.action() });
    }
    let nameless = history.files.iter().filter(|made| made.names.is_empty());
    (all, nameless.map(|made| made.file).collect())
}

/// Returns the final content of each file, except files that only processes with an open descriptor
/// could still read.
fn contents(events: &[Event<'_>], nameless: &BTreeSet<FileId>) -> BTreeMap<u64, (Extents, u64)> {
    let mut files = BTreeMap::<u64, (Extents, u64)>::new();
    for event in events {
        let Some(id) = event.action.file() else { continue };
        let (extents, size) = files.entry(id.0).or_default();
        match event.action {
            Action::Write { offset, len, .. } | Action::Direct { offset, len, write: true, .. } => {
                extents.insert(offset..offset + len);
                *size = if len > 0 { (*size).max(offset + len) } else { *size };
            }
            Action::Truncate { size: cut, .. } => {
                extents.remove(cut..u64::MAX);
                *size = cut;
            }
            Action::Punch { offset, len, .. } => extents.remove(offset..offset + len),
            Action::Gone { .. } => drop(files.remove(&id.0)),
            _ => {}
        }
    }
    // A file that was created and has ended leaves nothing, whether the storage below saw it or
    // not.
    files.retain(|id, _| !nameless.contains(&FileId(*id)));
    files
}

/// Returns the final names of files.
fn names(events: &[Event<'_>]) -> BTreeMap<u64, BTreeSet<String>> {
    let mut files = BTreeMap::<u64, BTreeSet<String>>::new();
    for event in events {
        let id = event.action.file().map_or(0, |file| file.0);
        match &event.action {
            Action::Create(create) if create.name.is_empty() => {}
            Action::Create(create) => {
                files.entry(id).or_default().insert(create.name.to_string());
            }
            Action::Bind { name, .. } | Action::Link { name, .. } => {
                files.entry(id).or_default().insert(name.to_string());
            }
            Action::Rename { names, .. } => {
                let all = files.entry(id).or_default();
                all.remove(&*names.from);
                all.insert(names.to.to_string());
            }
            Action::RenameDirectory { names } => {
                for all in files.values_mut() {
                    let moved = |name: &String| match name.strip_prefix(&*names.from) {
                        Some(rest) if rest.starts_with('/') => format!("{}{rest}", &*names.to),
                        _ => name.clone(),
                    };
                    *all = all.iter().map(moved).collect();
                }
            }
            Action::Unbind { name, .. } => drop(files.entry(id).or_default().remove(&**name)),
            Action::Gone { .. } => drop(files.remove(&id)),
            _ => {}
        }
    }
    files.retain(|_, names| !names.is_empty());
    files
}

fn run<S: Sift>(
    sifted: &mut Sifted<S>,
    events: &[Event<'static>],
    at: &str,
) -> Vec<Event<'static>> {
    let mut out = Vec::new();
    for event in events {
        sifted.event(event, &mut |event| out.push(event.clone().into_owned()));
        sifted.check();
    }
    sifted.finish(&mut |event| out.push(event.clone().into_owned()));
    sifted.check();
    assert!(out.is_sorted_by_key(|event| event.at_us), "{at}: times ascend");
    out
}

/// Returns the events as in a trace that does not record creations.
fn without_creations(events: Vec<Event<'static>>) -> Vec<Event<'static>> {
    let mut out = Vec::new();
    for event in events {
        let Event { at_us, pid, tid, action } = event;
        let mut push = |action| out.push(Event { at_us, pid, tid, action });
        match action {
            Action::Create(create) => {
                let file = create.file;
                if !create.name.is_empty() {
                    push(Action::Bind { file, name: MaybeOwned::owned_str(&create.name) });
                }
                push(Action::Open { file, open: None, created: true });
            }
            Action::Open { created: true, .. } => {}
            action => push(action),
        }
    }
    out
}

#[test]
fn without_a_sifter_nothing_changes() {
    for seed in 0..200 {
        let (events, _) = history(seed, 300);
        let mut sifted = Sifted::new(NoSifter, 0, CREATIONS);
        assert_eq!(run(&mut sifted, &events, &format!("seed {seed}")), events, "seed {seed}");
        assert_eq!((sifted.counters().born_in_ram, sifted.counters().taken_bytes), (0, 0));
    }
}

/// For any time in RAM and any budget: below, every file ends with the names and the content that
/// the history gives it, RAM stays within its budget at every step, and nothing is dropped.
// Promises: Mount 13.
#[test]
fn every_file_below_ends_as_in_the_history() {
    let (mut all, mut kept) = (Counters::default(), 0);
    for seed in 0..1000 {
        let (events, nameless) = history(seed, 300);
        let after_us = [0, 1_000_000, 10_000_000, 60_000_000][seed as usize % 4];
        let budget_bytes = [0, 1 << 15, 1 << 18, u64::MAX][seed as usize / 4 % 4];
        let (knows, events) = match seed % 3 {
            0 => (Knows { times: true, ..Knows::NOTHING }, without_creations(events)),
            _ => (CREATIONS, events),
        };
        let at = format!("seed {seed}: {after_us} us in {budget_bytes} bytes");
        let keep = KeepConfig { lose_at_most_us: after_us, budget_bytes, ..KeepConfig::default() };
        let keep = Keep::new(keep);
        let mut sifted = Sifted::new(keep, budget_bytes, knows).logged();
        let below = run(&mut sifted, &events, &at);
        let (found, wanted) = (contents(&below, &nameless), contents(&events, &nameless));
        for id in found.keys().chain(wanted.keys()) {
            assert_eq!(found.get(id), wanted.get(id), "{at}, file {id}");
        }
        assert_eq!(names(&below), names(&events), "{at}");
        let counters = sifted.counters();
        assert!(counters.ram_bytes_peak <= budget_bytes, "{at}");
        assert_eq!(counters.dropped, Amount::default(), "{at}");
        let written = counters.written_back.values().map(|amount| amount.files).sum::<u64>();
        assert_eq!(written as usize, sifted.log().len(), "{at}");
        all.spilled.files += counters.spilled.files;
        let keeps =
            |decision: &Decision| matches!(decision, Decision::WriteBack { keep_in_ram: true, .. });
        kept += sifted.log().iter().filter(|(_, decision)| keeps(decision)).count();
        all.died_in_ram += counters.died_in_ram;
        for (why, amount) in &counters.written_back {
            all.written_back.entry(*why).or_default().files += amount.files;
        }
    }
    let whys = [Reason::Age, Reason::Space, Reason::Sync, Reason::All, Reason::Large];
    assert!(whys.iter().all(|why| all.written_back[why].files > 100), "{all:?}");
    assert!(all.died_in_ram > 100 && kept > 100, "{kept} {all:?}");
}

fn at(second: u64, action: Action<'static>) -> Event<'static> {
    Event { at_us: second * 1_000_000, pid: 1, tid: 1, action }
}

fn create(file: u64, name: &str) -> Action<'static> {
    let name = MaybeOwned::owned_str(name);
    let owner = Some(FileOwner { uid: 7, gid: 8 });
    let create = Create { file: FileId(file), name, owner, mode: Some(0o640), sync: false };
    Action::Create(MaybeOwned::owned(create))
}

fn write(file: u64, offset: u64, len: u64) -> Action<'static> {
    Action::Write { file: FileId(file), open: None, offset, len, sync: false }
}

fn read(file: u64, offset: u64, len: u64) -> Action<'static> {
    Action::Read { file: FileId(file), open: None, offset, len }
}

fn mount(at_us: u64, action: Action<'static>) -> Event<'static> {
    Event { at_us, pid: 0, tid: 0, action }
}

/// A file renamed, linked, overwritten, truncated and extended in RAM is created below once, in its
/// final state.
#[test]
fn a_write_back_creates_the_file_in_its_current_state() {
    let file = FileId(1);
    let open = std::num::NonZeroU32::new(9).map(OpenId);
    let events = [
        at(0, create(1, "/d/a.part")),
        at(0, Action::Open { file, open, created: true }),
        at(1, write(1, 0, 100)),
        at(1, write(1, 50, 100)),
        at(1, write(1, 9000, 10)),
        at(2, read(1, 0, 4096)),
        at(2, Action::Rename { file, names: Renamed::owned("/d/a.part", "/d/a") }),
        at(2, Action::Link { file, name: MaybeOwned::owned_str("/d/b") }),
        at(3, Action::RenameDirectory { names: Renamed::owned("/d", "/e") }),
        at(3, Action::Truncate { file, size: 20_000 }),
        at(1690, read(1, 0, 10)),
        at(1691, write(1, 0, 5)),
    ];
    let mut sifted = Sifted::new(Keep::new(KeepConfig::default()), 1 << 20, CREATIONS).logged();
    let below = run(&mut sifted, &events, "");
    let due = 1_687_500_000;
    let expected = [
        events[8].clone(),
        mount(due, create(1, "/e/a")),
        mount(due, Action::Link { file, name: MaybeOwned::owned_str("/e/b") }),
        mount(due, Action::Open { file, open, created: false }),
        mount(due, write(1, 0, 150)),
        mount(due, write(1, 9000, 10)),
        mount(due, Action::Truncate { file, size: 20_000 }),
        events[10].clone(),
        events[11].clone(),
    ];
    assert_eq!(below, expected);
    let decision = Decision::WriteBack { file, keep_in_ram: false, why: Reason::Age };
    assert_eq!(sifted.log(), [(due, decision)]);
    let counters = sifted.counters();
    assert_eq!(
        (counters.taken_bytes, counters.written_bytes(), counters.never_written_bytes()),
        (210, 160, 50)
    );
    assert_eq!((counters.ram_bytes, counters.ram_bytes_peak), (0, 8192));
}

#[test]
fn syncs_write_files_back_and_deletions_discard_them() {
    let (one, two) = (FileId(1), FileId(2));
    let everything = |file| Action::Sync { file, offset: 0, len: u64::MAX, data_only: false };
    let events = [
        at(0, create(1, "/a")),
        at(0, create(2, "/b")),
        at(1, write(1, 0, 10)),
        at(1, write(2, 0, 20)),
        at(2, Action::Sync { file: one, offset: 0, len: 10, data_only: false }),
        at(3, Action::Sync { file: one, offset: 0, len: 10, data_only: false }),
        at(3, Action::Unbind { file: two, name: MaybeOwned::owned_str("/b") }),
        at(3, Action::Gone { file: two }),
        at(4, Action::SyncAll),
    ];
    let mut sifted = Sifted::new(Keep::new(KeepConfig::default()), 1 << 20, CREATIONS);
    let below = run(&mut sifted, &events, "");
    let expected = [
        mount(2_000_000, create(1, "/a")),
        mount(2_000_000, write(1, 0, 10)),
        mount(2_000_000, everything(one)),
        events[5].clone(),
        events[8].clone(),
    ];
    assert_eq!(below, expected);
    assert_eq!((sifted.counters().died_in_ram, sifted.counters().never_written_bytes()), (1, 20));
}

/// Drops the oldest file when it needs space; keeps files in RAM when it writes them back.
#[derive(Default)]
struct Dropper(std::collections::VecDeque<FileId>, Vec<Decision>);

impl Sift for Dropper {
    fn birth(&mut self, _: Micros, _: &Create<'_>) -> Birth {
        Birth::Ram
    }

    fn handle(&mut self, _: Micros, event: &Event<'_>) {
        match &event.action {
            Action::Create(create) => self.0.push_back(create.file),
            Action::Sync { file, .. } => {
                self.1.push(Decision::WriteBack {
                    file: *file,
                    keep_in_ram: true,
                    why: Reason::Sync,
                });
                self.0.retain(|known| known != file);
            }
            Action::SyncAll => {
                let all = self.0.drain(..);
                let write_back =
                    |file| Decision::WriteBack { file, keep_in_ram: false, why: Reason::All };
                self.1.extend(all.map(write_back));
            }
            _ => {}
        }
    }

    fn done(&mut self, _: Micros, _: FileId, _: Result<(), Blocked>) {}

    fn need_space(&mut self, _: Micros, _: u64) {
        let drop = |file| Decision::Drop { file, why: Reason::Space };
        self.1.extend(self.0.pop_front().map(drop));
    }

    fn resize(&mut self, _: Micros, _: u64) {}

    fn held_bytes(&self) -> u64 {
        0
    }

    fn oldest_us(&self, _: Micros) -> Option<Micros> {
        None
    }

    fn next_deadline(&self) -> Option<Micros> {
        None
    }

    fn handle_deadline(&mut self, _: Micros) {}

    fn poll(&mut self) -> Option<Decision> {
        self.1.pop()
    }

    fn check(&self) {}
}

// Promises: Sift 3.
#[test]
fn a_dropped_file_is_fetched_again_when_it_is_read() {
    let events = [
        at(0, create(1, "/a")),
        at(0, write(1, 0, 8000)),
        at(0, create(2, "/b")),
        at(1, write(2, 0, 8000)), // drops 1
        at(2, Action::Link { file: FileId(1), name: MaybeOwned::owned_str("/c") }),
        at(2, read(1, 0, 10)), // fetches 1, drops 2
        at(3, Action::Truncate { file: FileId(2), size: 100 }), // fetches the rest of 2, drops 1
    ];
    let mut sifted = Sifted::new(Dropper::default(), 2 * PAGE_BYTES, CREATIONS);
    let below = run(&mut sifted, &events, "");
    let counters = sifted.counters();
    assert_eq!(counters.dropped, Amount { files: 3, bytes: 24_000 });
    assert_eq!(counters.fetched_again, Amount { files: 2, bytes: 8100 });
    assert_eq!(counters.born_in_ram, 4);
    assert_eq!(below, [mount(3_000_000, create(2, "/b")), mount(3_000_000, write(2, 0, 100))]);
}

/// RAM also serves a file that exists below. A second write-back writes the whole file if it has
/// changed, and nothing otherwise.
#[test]
fn a_second_write_back_writes_a_changed_file_again() {
    let file = FileId(1);
    let sync = Action::Sync { file, offset: 0, len: u64::MAX, data_only: false };
    let events = [
        at(0, create(1, "/a")),
        at(0, write(1, 0, 8000)),
        at(1, sync.clone()),
        at(2, write(1, 4000, 10)),
        at(2, read(1, 0, 10)),
        at(3, Action::Truncate { file, size: 4005 }),
        at(4, sync.clone()),
        at(5, sync.clone()),
        at(5, Action::Gone { file }),
    ];
    let mut sifted = Sifted::new(Dropper::default(), 1 << 20, CREATIONS);
    let below = run(&mut sifted, &events, "");
    let expected = [
        mount(1_000_000, create(1, "/a")),
        mount(1_000_000, write(1, 0, 8000)),
        mount(1_000_000, sync.clone()),
        events[5].clone(),
        mount(4_000_000, write(1, 0, 4005)),
        mount(4_000_000, sync.clone()),
        mount(5_000_000, sync.clone()),
        events[8].clone(),
    ];
    assert_eq!(below, expected);
    assert_eq!(sifted.counters().died_in_ram, 0);
}

/// With RAM of one page and a write of two, the file spills and continues below.
#[test]
fn a_file_too_large_for_ram_spills() {
    let events = [at(0, create(1, "/a")), at(0, write(1, 0, 10)), at(0, write(1, 0, 8192))];
    let mut sifted = Sifted::new(Dropless(Dropper::default()), PAGE_BYTES, CREATIONS);
    let below = run(&mut sifted, &events, "");
    let expected = [mount(0, create(1, "/a")), mount(0, write(1, 0, 10)), events[2].clone()];
    assert_eq!(below, expected);
    assert_eq!(sifted.counters().spilled, Amount { files: 1, bytes: 10 });
}

/// Never frees space.
struct Dropless(Dropper);

impl Sift for Dropless {
    fn birth(&mut self, now: Micros, create: &Create<'_>) -> Birth {
        self.0.birth(now, create)
    }

    fn handle(&mut self, _: Micros, _: &Event<'_>) {}

    fn done(&mut self, _: Micros, _: FileId, _: Result<(), Blocked>) {}

    fn need_space(&mut self, _: Micros, _: u64) {}

    fn resize(&mut self, _: Micros, _: u64) {}

    fn held_bytes(&self) -> u64 {
        0
    }

    fn oldest_us(&self, _: Micros) -> Option<Micros> {
        None
    }

    fn next_deadline(&self) -> Option<Micros> {
        None
    }

    fn handle_deadline(&mut self, _: Micros) {}

    fn poll(&mut self) -> Option<Decision> {
        None
    }

    fn check(&self) {}
}
