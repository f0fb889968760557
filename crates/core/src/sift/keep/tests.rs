//! `keep` against a list of files that is searched at every step, over random histories; and one
//! test for each of its promises.

use super::*;
use crate::{event::MaybeOwned, sift::testing::History};
use std::collections::BTreeSet;

const MINUTE: Micros = 60_000_000;

/// The model, straight from the definition: one list in order of creation.
struct Naive {
    lose_at_most_us: Micros,
    budget_bytes: u64,
    files: Vec<NaiveFile>,
    retry_us: Option<Micros>,
    pause_us: Micros,
    failed: bool,
    decisions: Vec<Decision>,
}

struct NaiveFile {
    id: FileId,
    born_us: Micros,
    names: u32,
    opens: u32,
    out: u32,
    aged: bool,
    pages: BTreeSet<u64>,
}

impl Naive {
    fn new(config: &Config) -> Self {
        Self {
            lose_at_most_us: config.lose_at_most_us,
            budget_bytes: config.budget_bytes,
            files: Vec::new(),
            retry_us: None,
            pause_us: 1_000_000,
            failed: false,
            decisions: Vec::new(),
        }
    }

    fn at(&mut self, now: Micros) {
        self.files.iter_mut().for_each(|file| file.born_us = file.born_us.min(now));
        self.retry_us = self.retry_us.map(|retry_us| retry_us.min(now.saturating_add(60_000_000)));
    }

    fn attempt_is_out(&self) -> bool {
        self.files.iter().any(|file| file.aged)
    }

    fn decide(&mut self, wanted: impl Fn(&NaiveFile) -> bool, why: Reason) -> usize {
        let mut count = 0;
        for file in self.files.iter_mut().filter(|file| wanted(file)) {
            file.out += 1;
            file.aged |= why == Reason::Age;
            count += 1;
            self.decisions.push(Decision::WriteBack { file: file.id, keep_in_ram: false, why });
        }
        count
    }

    /// Handles the end of an attempt: its last result has come. `before`: an attempt was in
    /// progress.
    fn attempted(&mut self, now: Micros, before: bool) {
        if !before || self.attempt_is_out() {
            return;
        }
        if self.failed {
            self.retry_us = Some(now.saturating_add(self.pause_us));
            self.pause_us = (2 * self.pause_us).min(60_000_000);
        } else {
            self.pause_us = 1_000_000;
        }
        self.failed = false;
    }

    fn handle(&mut self, now: Micros, event: &Event<'_>) {
        self.at(now);
        let out = self.attempt_is_out();
        if let Action::Create(create) = &event.action {
            let known = [".db", "-journal", "-wal", "-shm", ".log"];
            if !create.sync && !known.iter().any(|end| create.name.ends_with(end)) {
                let names = u32::from(!create.name.is_empty());
                let (opens, out, aged, pages) = (0, 0, false, BTreeSet::new());
                self.files.push(NaiveFile {
                    id: create.file,
                    born_us: now,
                    names,
                    opens,
                    out,
                    aged,
                    pages,
                });
            }
        }
        if event.action == Action::SyncAll {
            self.decide(|file| file.names > 0, Reason::All);
        }
        let id = event.action.file();
        let syncs = matches!(event.action, Action::Write { sync: true, .. } | Action::Sync { .. });
        if syncs {
            self.decide(|file| Some(file.id) == id && file.names > 0, Reason::Sync);
        }
        let mut dead = None;
        if let Some(file) = self.files.iter_mut().find(|file| Some(file.id) == id) {
            match event.action {
                Action::Write { offset, len, .. }
                | Action::Direct { offset, len, write: true, .. } => {
                    file.pages.extend((offset..offset + len).map(|byte| byte / 4096));
                }
                Action::Truncate { size, .. } => file.pages.retain(|page| page * 4096 < size),
                Action::Punch { offset, len, .. } => {
                    let punched =
                        |page: u64| offset <= page * 4096 && (page + 1) * 4096 <= offset + len;
                    file.pages.retain(|page| !punched(*page));
                }
                Action::Open { .. } => file.opens += 1,
                Action::Close { .. } => file.opens -= 1,
                Action::Link { .. } => file.names += 1,
                Action::Unbind { .. } => file.names -= 1,
                _ => {}
            }
            let leaves = matches!(event.action, Action::Close { .. } | Action::Unbind { .. })
                && (file.names, file.opens) == (0, 0);
            dead = (leaves || matches!(event.action, Action::Gone { .. })).then_some(file.id);
        }
        self.files.retain(|file| Some(file.id) != dead);
        self.attempted(now, out);
    }

    fn done(&mut self, now: Micros, id: FileId, result: Result<(), Blocked>) {
        self.at(now);
        let out = self.attempt_is_out();
        if result.is_ok() {
            self.files.retain(|file| file.id != id);
        } else if let Some(file) = self.files.iter_mut().find(|file| file.id == id) {
            file.out -= 1;
            self.failed |= file.aged;
            file.aged = false;
        }
        self.attempted(now, out);
    }

    fn need_space(&mut self, now: Micros, bytes: u64) {
        self.at(now);
        let wanted = bytes.max(self.budget_bytes / 4);
        let (named, unnamed): (Vec<_>, Vec<_>) = self.files.iter().partition(|file| file.names > 0);
        let mut found = 0;
        let mut chosen = Vec::new();
        for file in named.into_iter().chain(unnamed) {
            if found < wanted {
                found += file.pages.len() as u64 * 4096;
                chosen.push(file.id);
            }
        }
        for id in chosen {
            self.decide(|file| file.id == id, Reason::Space);
        }
    }

    fn next_deadline(&self) -> Option<Micros> {
        let waiting = self.files.iter().filter(|file| file.names > 0 && file.out == 0);
        match self.retry_us {
            _ if self.attempt_is_out() => None,
            Some(retry_us) => Some(retry_us),
            None => waiting
                .map(|file| file.born_us + self.lose_at_most_us + self.lose_at_most_us / 16)
                .min(),
        }
    }

    fn handle_deadline(&mut self, now: Micros) {
        self.at(now);
        if self.next_deadline().is_none_or(|deadline_us| now < deadline_us) {
            return;
        }
        self.retry_us = None;
        let lose_at_most_us = self.lose_at_most_us;
        let due = |file: &NaiveFile| {
            file.names > 0 && file.out == 0 && file.born_us + lose_at_most_us <= now
        };
        if self.decide(due, Reason::Age) == 0 {
            self.pause_us = 1_000_000;
        }
    }

    fn poll(&mut self) -> Option<Decision> {
        while !self.decisions.is_empty() {
            let decision = self.decisions.remove(0);
            if self.files.iter().any(|file| Some(file.id) == decision.file()) {
                return Some(decision);
            }
        }
        None
    }
}

/// Every decision and every deadline equals the model's, over 1,000 histories in which clocks jump,
/// flash refuses, and results come late and in any order.
#[test]
fn keep_decides_as_a_list_of_files_does() {
    let mut decided = [0; 4];
    for seed in 0..1000 {
        let mut history = History::new(seed);
        let config = Config {
            lose_at_most_us: [0, 3_000_000, MINUTE][seed as usize % 3],
            budget_bytes: [0, 1 << 16, 1 << 20][seed as usize / 3 % 3],
            patterns: vec!["*.log".to_owned()],
        };
        let (mut keep, mut naive) = (Keep::new(config.clone()), Naive::new(&config));
        let mut now = 0;
        let mut out = Vec::new();
        let failing = history.dice.below(4);
        for step in 0..300 {
            now += u64::from(history.dice.below(2_000_000));
            match history.dice.below(150) {
                0 => now += 3 * 86_400_000_000,
                1 => now = now.saturating_sub(u64::from(history.dice.below(200_000_000))),
                _ => {}
            }
            let at = format!("seed {seed}, step {step}, {now} us");
            match history.dice.below(10) {
                0 => {
                    let bytes = u64::from(history.dice.below(100_000));
                    keep.need_space(now, bytes);
                    naive.need_space(now, bytes);
                }
                1 | 2 if !out.is_empty() => {
                    let file = out.swap_remove(history.dice.below(out.len() as u32) as usize);
                    let failed = history.dice.below(4) < failing;
                    let result = if failed { Err(Blocked::NoSpace) } else { Ok(()) };
                    keep.done(now, file, result);
                    naive.done(now, file, result);
                }
                3 if !history.files.is_empty() && history.dice.below(5) == 0 => {
                    // The file reached flash without a decision.
                    let files = history.files.len() as u32;
                    let file = history.files[history.dice.below(files) as usize].file;
                    keep.done(now, file, Ok(()));
                    naive.done(now, file, Ok(()));
                }
                // A deadline is sometimes handled too early, mostly late.
                4 | 5 => {
                    keep.handle_deadline(now);
                    naive.handle_deadline(now);
                }
                _ => {
                    let event = Event { at_us: now, pid: 0, tid: 0, action: history.action() };
                    if let Action::Create(create) = &event.action {
                        keep.birth(now, create);
                    }
                    keep.handle(now, &event);
                    naive.handle(now, &event);
                }
            }
            take(&mut keep, &mut naive, &mut out, &mut decided, &at);
            let there: Vec<FileId> = naive.files.iter().map(|file| file.id).collect();
            assert_eq!(keep.files(), there.len(), "{at}");
            assert!(there.iter().all(|file| keep.has(*file)), "{at}");
        }
    }
    assert!(decided.iter().all(|count| *count > 100), "{decided:?}: every reason occurs");
}

/// Checks that both give the same decisions and are in a valid state.
fn take(
    keep: &mut Keep,
    naive: &mut Naive,
    out: &mut Vec<FileId>,
    decided: &mut [u32; 4],
    at: &str,
) {
    keep.check();
    loop {
        let (left, right) = (keep.poll(), naive.poll());
        assert_eq!(left, right, "{at}");
        keep.check();
        let Some(decision) = left else { break };
        let Decision::WriteBack { file, keep_in_ram: false, why } = decision else {
            panic!("{at}: {decision:?}");
        };
        out.push(file);
        decided[match why {
            Reason::Age => 0,
            Reason::Space => 1,
            Reason::Sync => 2,
            Reason::All => 3,
            Reason::Name | Reason::Large => panic!("{at}: {decision:?}"),
        }] += 1;
    }
    assert_eq!(keep.next_deadline(), naive.next_deadline(), "{at}");
}

/// A `Keep` that a test steps through.
struct Stepped(Keep);

impl Stepped {
    fn new(lose_at_most_us: Micros) -> Self {
        Self(Keep::new(Config { lose_at_most_us, budget_bytes: 1 << 20, ..Config::default() }))
    }

    fn event(&mut self, now: Micros, action: Action<'_>) {
        self.0.handle(now, &Event { at_us: now, pid: 1, tid: 1, action });
        self.0.check();
    }

    fn create(&mut self, now: Micros, file: u64) {
        let name = format!("/d/{file}").into();
        let create = Create { file: FileId(file), name, owner: None, mode: None, sync: false };
        self.event(now, Action::Create(MaybeOwned::owned(create)));
    }

    fn write(&mut self, now: Micros, file: u64, bytes: u64) {
        let (file, open) = (FileId(file), None);
        self.event(now, Action::Write { file, open, offset: 0, len: bytes, sync: false });
    }

    fn decisions(&mut self) -> Vec<(u64, Reason)> {
        std::iter::from_fn(|| self.0.poll())
            .map(|decision| match decision {
                Decision::WriteBack { file, why, .. } => (file.0, why),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn done(&mut self, now: Micros, file: u64, ok: bool) {
        self.0.done(now, FileId(file), if ok { Ok(()) } else { Err(Blocked::Failed) });
        self.0.check();
    }
}

#[test]
fn names_and_synchronous_opens_decide_where_a_file_is_created() {
    let patterns = vec!["*.log".to_owned()];
    let mut keep = Keep::new(Config { patterns, ..Config::default() });
    for (name, sync, birth) in [
        ("/a/photo.jpg", false, Birth::Ram),
        ("/a/photo.jpg", true, Birth::Flash(Reason::Sync)),
        ("/a/Cookies-journal", false, Birth::Flash(Reason::Name)),
        ("/a/x.log", false, Birth::Flash(Reason::Name)),
        ("/a/etilqs_1", false, Birth::Ram),
        ("", false, Birth::Ram),
    ] {
        let create = Create { file: FileId(1), name: name.into(), owner: None, mode: None, sync };
        assert_eq!(keep.birth(0, &create), birth, "{name}");
        keep.check();
    }
    assert_eq!(keep.files(), 0, "`birth` changes nothing");
}

#[test]
fn files_that_expire_together_are_written_back_together() {
    let mut keep = Stepped::new(16_000_000);
    for (file, now) in [(0, 5), (1, 1_000_005), (2, 1_000_006)] {
        keep.create(now, file);
    }
    assert_eq!(keep.0.next_deadline(), Some(17_000_005));
    keep.0.handle_deadline(17_000_004);
    assert_eq!(keep.decisions(), [], "too early");
    keep.0.handle_deadline(17_000_005);
    assert_eq!(keep.decisions(), [(0, Reason::Age), (1, Reason::Age)]);
    assert_eq!(keep.0.next_deadline(), None, "no deadline until the results are known");
    keep.done(17_000_010, 0, true);
    keep.done(17_000_011, 1, true);
    assert_eq!(keep.0.next_deadline(), Some(18_000_006));
}

#[test]
fn failed_write_backs_are_retried_with_growing_pauses() {
    let mut keep = Stepped::new(0);
    keep.create(0, 0);
    keep.create(0, 1);
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..8 {
        keep.0.handle_deadline(now);
        assert_eq!(keep.decisions(), [(0, Reason::Age), (1, Reason::Age)], "it stays the first");
        keep.done(now, 1, false);
        keep.done(now, 0, false);
        let next = keep.0.next_deadline().unwrap();
        pauses.push((next - now) / 1_000_000);
        now = next;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    keep.0.handle_deadline(now);
    assert_eq!(keep.decisions().len(), 2);
    keep.done(now, 0, true);
    keep.done(now, 1, true);
    keep.create(now, 2);
    keep.0.handle_deadline(now);
    assert_eq!(keep.decisions(), [(2, Reason::Age)]);
    keep.done(now, 2, false);
    assert_eq!(keep.0.next_deadline(), Some(now + 1_000_000), "a success resets the pause");
}

/// A sync of a file that is being written back leads to a decision of its own: the application does
/// not wait for the earlier one.
#[test]
fn every_sync_gets_a_decision_of_its_own() {
    let mut keep = Stepped::new(0);
    keep.create(0, 0);
    keep.0.handle_deadline(0);
    assert_eq!(keep.decisions(), [(0, Reason::Age)]);
    keep.event(1, Action::Sync { file: FileId(0), offset: 0, len: u64::MAX });
    assert_eq!(keep.decisions(), [(0, Reason::Sync)]);
    keep.done(2, 0, true);
    assert_eq!(keep.0.files(), 0);
    keep.done(3, 0, true);
    assert_eq!((keep.0.next_deadline(), keep.decisions()), (None, vec![]));
}

#[test]
fn the_oldest_files_make_space_and_nameless_files_last() {
    let mut keep = Stepped::new(MINUTE);
    for file in 0..4 {
        keep.create(file, file);
        keep.event(file, Action::Open { file: FileId(file), open: None, created: true });
        keep.write(file, file, 200_000);
    }
    let name = MaybeOwned::owned_str("/d/0");
    keep.event(9, Action::Unbind { file: FileId(0), name });
    keep.event(9, Action::Truncate { file: FileId(1), size: 5000 });
    keep.0.need_space(10, 4096);
    // A quarter of the budget: 2 + 49 + 49 pages.
    assert_eq!(keep.decisions(), [(1, Reason::Space), (2, Reason::Space), (3, Reason::Space)]);
    keep.0.need_space(11, 500_000);
    assert_eq!(keep.decisions().last(), Some(&(0, Reason::Space)), "only RAM holds it");
    for file in 0..4 {
        keep.done(12, file, true);
    }
    keep.0.need_space(13, 1);
    assert_eq!(keep.decisions(), [], "no file is left whose removal frees space");
}

#[test]
fn a_file_deleted_in_ram_leads_to_no_decision() {
    let mut keep = Stepped::new(0);
    for file in 0..4 {
        keep.create(0, file);
    }
    let unbind = |file| Action::Unbind { file: FileId(file), name: MaybeOwned::owned_str("/d") };
    keep.event(0, unbind(0));
    keep.event(0, Action::Open { file: FileId(1), open: None, created: false });
    keep.event(0, unbind(1));
    keep.event(0, Action::Sync { file: FileId(1), offset: 0, len: 1 });
    keep.event(0, Action::SyncAll);
    keep.event(0, Action::Gone { file: FileId(2) });
    assert_eq!(keep.decisions(), [(3, Reason::All)], "decisions on deleted files are void");
    keep.event(0, Action::Close { file: FileId(1), open: None });
    assert_eq!(keep.0.files(), 1);
}

/// A clock that was set back for a day must not keep files in RAM for a day.
#[test]
fn a_clock_that_goes_back_delays_write_back_only_briefly() {
    let day = 86_400_000_000;
    let mut keep = Stepped::new(MINUTE);
    keep.create(2 * day, 0);
    keep.write(day, 0, 10);
    assert_eq!(keep.0.next_deadline(), Some(day + MINUTE + MINUTE / 16));
    keep.0.handle_deadline(u64::MAX);
    assert_eq!(keep.decisions(), [(0, Reason::Age)]);
    keep.done(u64::MAX, 0, false);
    assert_eq!(keep.0.next_deadline(), Some(u64::MAX));
    keep.write(5, 0, 10);
    assert_eq!(keep.0.next_deadline(), Some(5 + MINUTE), "60 s is the longest pause");
}
