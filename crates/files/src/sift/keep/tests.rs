//! `keep` against lists of files that are searched at every step, over random histories; and one
//! test for each of its promises.

use super::*;
use crate::sift::testing::History;
use flashsift_events::event::{MaybeOwned, Renamed};
use std::collections::{BTreeMap, BTreeSet};

const MINUTE: Micros = 60_000_000;

/// The model, straight from the definition: lists of files in order.
struct Naive {
    lose_at_most_us: Micros,
    budget_bytes: u64,
    /// In the order of [`List::ALL`].
    lists: [Vec<NaiveFile>; 5],
    retry_us: Option<Micros>,
    pause_us: Micros,
    decisions: Vec<Decision>,
    /// Unless no file is written back ahead of its sync.
    ahead: Option<NaiveAhead>,
}

/// Syncs of files in the order in which they were written.
#[derive(Clone, Default)]
struct NaiveAhead {
    next: Option<FileId>,
    unsynced: BTreeSet<FileId>,
    files: usize,
    in_order: u32,
}

#[derive(Clone)]
struct NaiveFile {
    id: FileId,
    /// Time of the first change that flash lacks.
    since_us: Option<Micros>,
    names: u32,
    opens: u32,
    /// For each decision on it, whether the file stays in RAM.
    out: Vec<bool>,
    failed: bool,
    pages: BTreeSet<u64>,
}

impl NaiveFile {
    fn list(&self) -> List {
        match self.since_us {
            _ if !self.out.is_empty() => List::Out,
            _ if self.names == 0 => List::Unnamed,
            _ if self.failed => List::Failed,
            None => List::Clean,
            Some(_) => List::Dirty,
        }
    }

    fn leaves(&self) -> bool {
        self.out.contains(&false)
    }

    fn cost_bytes(&self) -> u64 {
        1536 + 4096 * self.pages.len() as u64
    }
}

impl Naive {
    fn new(config: &Config) -> Self {
        Self {
            lose_at_most_us: config.lose_at_most_us,
            budget_bytes: config.budget_bytes,
            lists: Default::default(),
            retry_us: None,
            pause_us: 1_000_000,
            decisions: Vec::new(),
            ahead: config.write_ahead.then(NaiveAhead::default),
        }
    }

    fn all(&self) -> impl Iterator<Item = &NaiveFile> {
        self.lists.iter().flatten()
    }

    fn find(&mut self, id: FileId) -> Option<&mut NaiveFile> {
        self.lists.iter_mut().flatten().find(|file| file.id == id)
    }

    fn remove(&mut self, id: FileId) {
        self.lists.iter_mut().for_each(|list| list.retain(|file| file.id != id));
        self.no_failure_left();
    }

    /// Moves each file that is in the wrong list to the right one.
    fn place(&mut self, now: Micros) {
        for list in List::ALL.iter().copied() {
            let at = list as usize;
            while let Some(wrong) = self.lists[at].iter().position(|file| file.list() != list) {
                let file = self.lists[at].remove(wrong);
                let to = &mut self.lists[file.list() as usize];
                match file.list() {
                    List::Dirty => {
                        let before = to.iter().rposition(|other| other.since_us <= file.since_us);
                        to.insert(before.map_or(0, |before| before + 1), file);
                    }
                    _ => to.push(file),
                }
            }
        }
        if !self.lists[List::Failed as usize].is_empty() && self.retry_us.is_none() {
            self.retry_us = Some(now.saturating_add(self.pause_us));
            self.pause_us = (2 * self.pause_us).min(60_000_000);
        }
    }

    fn no_failure_left(&mut self) {
        if !self.all().any(|file| file.failed) {
            (self.retry_us, self.pause_us) = (None, 1_000_000);
        }
    }

    fn at(&mut self, now: Micros) {
        for file in self.lists.iter_mut().flatten() {
            file.since_us = file.since_us.map(|since_us| since_us.min(now));
        }
        self.retry_us = self.retry_us.map(|retry_us| retry_us.min(now.saturating_add(60_000_000)));
    }

    fn decide(&mut self, now: Micros, id: FileId, keep_in_ram: bool, why: Reason) {
        let Some(file) = self.find(id) else { return };
        file.out.push(keep_in_ram);
        if keep_in_ram {
            file.since_us = None;
        }
        self.place(now);
        self.decisions.push(Decision::WriteBack { file: id, keep_in_ram, why });
    }

    /// The file that continues a run of syncs in order, or begins one.
    fn next_in_order(&self) -> Option<FileId> {
        let unsynced = self.ahead.as_ref().and_then(|ahead| ahead.unsynced.first().copied());
        let oldest = || self.lists[List::Dirty as usize].first().map(|file| file.id);
        unsynced.or(self.ahead.as_ref().and_then(|ahead| ahead.next)).or_else(oldest)
    }

    fn synced(&mut self, now: Micros, id: FileId) {
        let dirty = self.lists[List::Dirty as usize].clone();
        let at = dirty.iter().position(|file| file.id == id);
        self.decide(now, id, false, Reason::Sync);
        let Some(mut ahead) = self.ahead.take() else { return };
        if ahead.next == Some(id) && ahead.unsynced.is_empty() {
            ahead.in_order += 1;
            ahead.files = match ahead.in_order {
                0 | 1 => 0,
                2 => 1,
                _ => (2 * ahead.files).min(64),
            };
        } else {
            (ahead.in_order, ahead.files) = (0, 0);
        }
        ahead.unsynced.clear();
        let after = at.map_or(&[][..], |at| &dirty[at + 1..]);
        let small = |file: &&NaiveFile| file.opens == 0 && file.pages.len() <= 16;
        let taken: Vec<_> = after.iter().take_while(small).take(ahead.files).collect();
        for file in &taken {
            self.decide(now, file.id, false, Reason::Ahead);
            ahead.unsynced.insert(file.id);
        }
        ahead.next = after.get(taken.len()).map(|file| file.id);
        self.ahead = Some(ahead);
    }

    fn held_bytes(&self) -> u64 {
        self.all().filter(|file| !file.leaves()).map(NaiveFile::cost_bytes).sum()
    }

    fn keep_within_budget(&mut self, now: Micros) {
        if self.held_bytes() <= self.budget_bytes {
            return;
        }
        for list in [List::Out, List::Clean, List::Dirty, List::Unnamed] {
            for file in self.lists[list as usize].clone() {
                if !file.leaves() && self.held_bytes() > self.budget_bytes - self.budget_bytes / 16
                {
                    self.decide(now, file.id, false, Reason::Space);
                }
            }
        }
    }

    fn handle(&mut self, now: Micros, event: &Event<'_>) {
        self.at(now);
        if let Action::Create(create) = &event.action {
            let known = [".db", "-journal", "-wal", "-shm", ".log"];
            if !create.sync && !known.iter().any(|end| create.name.ends_with(end)) {
                let file = NaiveFile {
                    id: create.file,
                    since_us: Some(now),
                    names: u32::from(!create.name.is_empty()),
                    opens: 0,
                    out: Vec::new(),
                    failed: false,
                    pages: BTreeSet::new(),
                };
                self.lists[file.list() as usize].push(file);
                self.keep_within_budget(now);
            }
            return;
        }
        if event.action == Action::SyncAll {
            let named: Vec<FileId> =
                self.all().filter(|file| file.names > 0).map(|file| file.id).collect();
            return named.into_iter().for_each(|id| self.decide(now, id, false, Reason::All));
        }
        let Some(id) = event.action.file() else { return };
        let syncs = matches!(event.action, Action::Sync { .. });
        let was_ahead =
            syncs && self.ahead.as_mut().is_some_and(|ahead| ahead.unsynced.remove(&id));
        let budget_bytes = self.budget_bytes;
        let Some(file) = self.find(id) else { return };
        let names = file.names;
        let mut changed = true;
        match event.action {
            Action::Write { offset, len, .. } | Action::Direct { offset, len, write: true, .. } => {
                file.pages.extend((offset..offset + len).map(|byte| byte / 4096));
            }
            Action::Truncate { size, .. } => file.pages.retain(|page| page * 4096 < size),
            Action::Punch { offset, len, .. } => {
                let punched =
                    |page: u64| offset <= page * 4096 && (page + 1) * 4096 <= offset + len;
                file.pages.retain(|page| !punched(*page));
            }
            Action::Link { .. } => file.names += 1,
            Action::Unbind { .. } => file.names -= 1,
            Action::Bind { .. } | Action::Rename { .. } => {}
            _ => changed = false,
        }
        match event.action {
            Action::Open { .. } => file.opens += 1,
            Action::Close { .. } => file.opens -= 1,
            _ => {}
        }
        if changed && file.since_us.is_none() || file.names > 0 && names == 0 {
            file.since_us = Some(now);
        }
        let file = file.clone();
        self.place(now);
        if (file.names, file.opens) == (0, 0) || matches!(event.action, Action::Gone { .. }) {
            return self.remove(id);
        }
        let writes =
            matches!(event.action, Action::Write { .. } | Action::Direct { write: true, .. });
        if matches!(event.action, Action::Write { sync: true, .. } | Action::Sync { .. })
            && file.names > 0
        {
            match syncs && !was_ahead {
                true => self.synced(now, id),
                false => self.decide(now, id, false, Reason::Sync),
            }
        } else if writes
            && file.pages.len() as u64 * 4096 > budget_bytes / 2
            && file.names > 0
            && !file.failed
            && !file.leaves()
        {
            self.decide(now, id, false, Reason::Large);
        }
        if writes {
            self.keep_within_budget(now);
        }
    }

    fn done(&mut self, now: Micros, id: FileId, result: Result<(), Blocked>) {
        self.at(now);
        let Some(file) = self.find(id) else { return };
        let keeps = file.out.iter().position(|keeps| *keeps);
        match (result, keeps) {
            (Ok(()), None) => return self.remove(id),
            (Ok(()), Some(keeps)) => {
                file.out.remove(keeps);
                file.failed = false;
            }
            (Err(_), _) if file.out.is_empty() => return,
            (Err(_), _) => {
                let leaves = file.out.iter().position(|keeps| !keeps);
                file.out.remove(leaves.unwrap_or(0));
                file.failed = true;
                file.since_us = file.since_us.or(Some(now));
            }
        }
        self.no_failure_left();
        self.place(now);
    }

    fn need_space(&mut self, now: Micros, bytes: u64) {
        self.at(now);
        let (mut found, mut found_pages) = (0, 0);
        let mut chosen = Vec::new();
        for file in self.all() {
            if chosen.is_empty() || found_pages * 4096 < bytes || found < self.budget_bytes / 16 {
                chosen.push(file.id);
                found += file.cost_bytes();
                found_pages += file.pages.len() as u64;
            }
        }
        chosen.into_iter().for_each(|id| self.decide(now, id, false, Reason::Space));
    }

    fn next_deadline(&self) -> Option<Micros> {
        let window = self.lose_at_most_us - self.lose_at_most_us / 16;
        let due = |file: &NaiveFile| Some(file.since_us? + window);
        let due_us = self.lists[List::Dirty as usize].iter().filter_map(due).min();
        [due_us, self.retry_us].into_iter().flatten().min()
    }

    fn handle_deadline(&mut self, now: Micros) {
        self.at(now);
        if self.retry_us.is_some_and(|retry_us| retry_us <= now) {
            for file in self.lists[List::Failed as usize].clone() {
                self.decide(now, file.id, false, Reason::Age);
            }
            self.retry_us = None;
        }
        let ages = |file: &NaiveFile| now - file.since_us.unwrap_or(now);
        let dirty = self.lists[List::Dirty as usize].clone();
        let (window, part) = (self.lose_at_most_us, self.lose_at_most_us / 16);
        if !dirty.iter().any(|file| ages(file) >= window - part) {
            return;
        }
        for file in dirty.iter().filter(|file| ages(file) >= window - 2 * part) {
            let stays = file.names == 1 && file.opens > 0 && file.pages.len() <= 16;
            self.decide(now, file.id, stays, Reason::Age);
        }
    }

    fn poll(&mut self) -> Option<Decision> {
        while !self.decisions.is_empty() {
            let decision = self.decisions.remove(0);
            if self.all().any(|file| Some(file.id) == decision.file()) {
                return Some(decision);
            }
        }
        None
    }
}

/// Every decision and every deadline equals the model's, over 1,000 histories in which clocks jump,
/// flash refuses, and results come late and in any order.
// Promises: Mount 12.
#[test]
fn keep_decides_as_a_list_of_files_does() {
    let mut decided = BTreeMap::new();
    for seed in 0..1000 {
        let mut history = History::new(seed);
        // Some histories have syncs in order, and few files leave RAM for other reasons.
        let in_order = seed % 5 == 0;
        let config = Config {
            lose_at_most_us: [0, 3_000_000, MINUTE, 30 * MINUTE]
                [if in_order { 3 } else { seed as usize % 3 }],
            budget_bytes: [1 << 14, 1 << 16, 1 << 22]
                [if in_order { 2 } else { seed as usize / 3 % 3 }],
            patterns: vec!["*.log".to_owned()],
            write_ahead: seed % 4 > 0,
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
            match history.dice.below(if in_order { 50 } else { 10 }) {
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
                    let action = match naive.next_in_order() {
                        Some(file) if in_order && step % 60 > 40 && !history.goes_on() => {
                            Action::Sync { file, offset: 0, len: u64::MAX, data_only: false }
                        }
                        _ => history.action(),
                    };
                    let event = Event { at_us: now, pid: 0, tid: 0, action };
                    if let Action::Create(create) = &event.action {
                        keep.birth(now, create);
                    }
                    keep.handle(now, &event);
                    naive.handle(now, &event);
                }
            }
            take(&mut keep, &mut naive, &mut out, &mut decided, &at);
            assert_eq!(keep.files(), naive.all().count(), "{at}");
            assert!(naive.all().all(|file| keep.has(file.id)), "{at}");
            assert_eq!(keep.held_bytes(), naive.held_bytes(), "{at}");
        }
    }
    let whys =
        [Reason::Age, Reason::Space, Reason::Sync, Reason::Ahead, Reason::All, Reason::Large];
    let occurs = |why: Reason, keeps| decided.get(&(why, keeps)).is_some_and(|count| *count > 50);
    assert!(whys.iter().all(|why| occurs(*why, false)), "{decided:?}: every reason occurs");
    assert!(decided[&(Reason::Age, true)] > 50, "{decided:?}: files stay in RAM");
}

/// Checks that both give the same decisions and are in a valid state.
fn take(
    keep: &mut Keep,
    naive: &mut Naive,
    out: &mut Vec<FileId>,
    decided: &mut BTreeMap<(Reason, bool), u32>,
    at: &str,
) {
    keep.check();
    loop {
        let (left, right) = (keep.poll(), naive.poll());
        assert_eq!(left, right, "{at}");
        keep.check();
        let Some(decision) = left else { break };
        let Decision::WriteBack { file, keep_in_ram, why } = decision else {
            panic!("{at}: {decision:?}");
        };
        out.push(file);
        *decided.entry((why, keep_in_ram)).or_default() += 1;
    }
    assert_eq!(keep.next_deadline(), naive.next_deadline(), "{at}");
}

const BUDGET_BYTES: u64 = 1 << 20;

/// A `Keep` that a test steps through.
struct Stepped(Keep);

impl Stepped {
    fn new(lose_at_most_us: Micros) -> Self {
        Self(Keep::new(Config { lose_at_most_us, budget_bytes: BUDGET_BYTES, ..Config::default() }))
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

    /// Returns the decisions, and for each whether it keeps the file in RAM.
    fn all_decisions(&mut self) -> Vec<(bool, (u64, Reason))> {
        std::iter::from_fn(|| self.0.poll())
            .map(|decision| match decision {
                Decision::WriteBack { file, keep_in_ram, why } => (keep_in_ram, (file.0, why)),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// Returns the decisions, each of which moves its file out of RAM.
    fn decisions(&mut self) -> Vec<(u64, Reason)> {
        let all = self.all_decisions();
        assert!(all.iter().all(|(keeps, _)| !keeps), "{all:?}");
        all.into_iter().map(|(_, decision)| decision).collect()
    }

    /// Returns the decisions, each of which keeps its file in RAM.
    fn kept(&mut self) -> Vec<(u64, Reason)> {
        let all = self.all_decisions();
        assert!(all.iter().all(|(keeps, _)| *keeps), "{all:?}");
        all.into_iter().map(|(_, decision)| decision).collect()
    }

    fn done(&mut self, now: Micros, file: u64, ok: bool) {
        self.0.done(now, FileId(file), if ok { Ok(()) } else { Err(Blocked::Failed) });
        self.0.check();
    }
}

// Promises: Mount 10.
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

/// The window of 16 s ends for the first file at 16.000005 s. The write-back begins 1 s before
/// that, with all files that have reached 14 s.
// Promises: Mount 1.
#[test]
fn files_due_together_are_written_back_together_in_time() {
    let mut keep = Stepped::new(16_000_000);
    for (file, now) in [(0, 5), (1, 1_000_005), (2, 1_000_006)] {
        keep.create(now, file);
    }
    assert_eq!(keep.0.next_deadline(), Some(15_000_005));
    keep.0.handle_deadline(15_000_004);
    assert_eq!(keep.decisions(), [], "too early");
    keep.0.handle_deadline(15_000_005);
    assert_eq!(keep.decisions(), [(0, Reason::Age), (1, Reason::Age)]);
    assert_eq!(keep.0.next_deadline(), Some(16_000_006), "of the third");
    keep.done(15_000_010, 0, true);
    keep.done(15_000_011, 1, true);
    assert_eq!(keep.0.next_deadline(), Some(16_000_006));
}

/// The time of a file counts from its first change that flash lacks, not from the last one:
/// otherwise a file that is written to again and again would never reach flash.
// Promises: Mount 1.
#[test]
fn later_changes_do_not_postpone_a_write_back() {
    let mut keep = Stepped::new(16_000_000);
    keep.create(0, 0);
    for now in 0..14 {
        keep.write(now * 1_000_000, 0, 100);
        assert_eq!(keep.0.next_deadline(), Some(15_000_000));
    }
}

/// A small file that is open when its window ends stays in RAM. Its time begins anew with the next
/// change; without one it is clean, and makes space at no cost.
// Promises: Mount 1.
#[test]
fn a_file_in_use_gets_a_checkpoint_and_a_new_window() {
    let mut keep = Stepped::new(16_000_000);
    keep.create(0, 0);
    keep.event(0, Action::Open { file: FileId(0), open: None, created: true });
    keep.write(0, 0, 65_536);
    keep.0.handle_deadline(15_000_000);
    assert_eq!(keep.kept(), [(0, Reason::Age)]);
    keep.write(15_000_001, 0, 10);
    keep.done(15_000_002, 0, true);
    assert_eq!(keep.0.next_deadline(), Some(30_000_001), "of the change during the write-back");
    keep.0.handle_deadline(30_000_001);
    assert_eq!(keep.kept(), [(0, Reason::Age)]);
    keep.done(30_000_002, 0, true);
    assert_eq!((keep.0.next_deadline(), keep.0.files()), (None, 1), "no change is missing");
    for (at, change) in [
        Action::Truncate { file: FileId(0), size: 65_536 },
        Action::Punch { file: FileId(0), offset: 0, len: 1 },
        Action::Rename { file: FileId(0), names: Renamed::owned("/d/0", "/d/1") },
    ]
    .into_iter()
    .enumerate()
    {
        let now = (at as u64 + 2) * 60_000_000;
        keep.event(now, change);
        assert_eq!(keep.0.next_deadline(), Some(now + 15_000_000));
        keep.0.handle_deadline(now + 15_000_000);
        assert_eq!(keep.kept(), [(0, Reason::Age)]);
        keep.done(now + 15_000_000, 0, true);
    }
    keep.create(300_000_000, 1);
    keep.create(300_000_000, 2);
    let mut full = Stepped(keep.0.clone());
    keep.0.need_space(300_000_000, 1);
    assert_eq!(keep.decisions(), [(0, Reason::Space)], "a clean file goes first");
    for file in [1, 2] {
        full.write(300_000_000, file, BUDGET_BYTES / 2 - 4096);
    }
    assert_eq!(full.decisions()[0], (0, Reason::Space), "here, too");
}

/// A checkpoint writes the whole file. A file that is large, not open, or has two names leaves RAM
/// instead: a later small change would cost more there than in the page cache.
// Promises: Mount 1.
#[test]
fn only_small_open_files_with_one_name_stay() {
    let mut keep = Stepped::new(16_000_000);
    for file in 0..4 {
        keep.create(0, file);
        keep.event(0, Action::Open { file: FileId(file), open: None, created: true });
        keep.write(0, file, if file == 1 { 65_537 } else { 65_536 });
    }
    keep.event(0, Action::Close { file: FileId(2), open: None });
    keep.event(0, Action::Link { file: FileId(3), name: MaybeOwned::owned_str("/d/link") });
    keep.0.handle_deadline(15_000_000);
    let age = |file| (file, Reason::Age);
    assert_eq!(
        keep.all_decisions(),
        [(true, age(0)), (false, age(1)), (false, age(2)), (false, age(3))]
    );
}

/// A checkpoint that fails leaves the file as it was: it is tried again, and leaves RAM then.
// Promises: Mount 1.
#[test]
fn a_failed_checkpoint_is_tried_again() {
    let mut keep = Stepped::new(16_000_000);
    keep.create(0, 0);
    keep.event(0, Action::Open { file: FileId(0), open: None, created: true });
    keep.0.handle_deadline(15_000_000);
    assert_eq!(keep.kept(), [(0, Reason::Age)]);
    keep.done(15_000_000, 0, false);
    assert_eq!(keep.0.next_deadline(), Some(16_000_000));
    keep.0.handle_deadline(16_000_000);
    assert_eq!(keep.decisions(), [(0, Reason::Age)]);
}

/// The results of a checkpoint and of a sync come in any order. The file is known until both are
/// there: if the sync failed, the file may still be in RAM alone.
#[test]
fn a_file_with_a_checkpoint_and_a_sync_is_known_until_both_are_done() {
    for second in [true, false] {
        let mut keep = Stepped::new(16_000_000);
        keep.create(0, 0);
        keep.event(0, Action::Open { file: FileId(0), open: None, created: true });
        keep.0.handle_deadline(15_000_000);
        keep.event(
            15_000_000,
            Action::Sync { file: FileId(0), offset: 0, len: 1, data_only: false },
        );
        assert_eq!(keep.all_decisions(), [(true, (0, Reason::Age)), (false, (0, Reason::Sync))]);
        keep.done(15_000_001, 0, true);
        assert_eq!(keep.0.files(), 1);
        keep.done(15_000_002, 0, second);
        assert_eq!(keep.0.files(), usize::from(!second));
    }
}

/// A file of more than half of the budget is handed to the page cache, whatever its age.
// Promises: Mount 29.
#[test]
fn a_large_file_is_handed_over() {
    let mut keep = Stepped::new(MINUTE);
    keep.create(0, 0);
    keep.create(0, 1);
    keep.write(0, 0, BUDGET_BYTES / 2);
    assert_eq!(keep.decisions(), []);
    keep.event(0, Action::Truncate { file: FileId(0), size: 0 });
    keep.write(0, 1, BUDGET_BYTES / 2 + 1);
    assert_eq!(keep.decisions(), [(1, Reason::Large)]);
    keep.write(0, 1, BUDGET_BYTES / 2 + 9000);
    assert_eq!(keep.decisions(), [], "it is on its way");
    keep.done(0, 1, false);
    keep.write(0, 1, BUDGET_BYTES / 2 + 9000);
    assert_eq!(keep.decisions(), [], "flash refused it: it is tried again with the others");
    assert_eq!(keep.0.next_deadline(), Some(1_000_000));
}

/// Empty files take RAM, too: 500,000 of them are within a budget of 64 MiB only if each counts.
// Promises: Mount 29.
#[test]
fn the_budget_bounds_empty_files() {
    let budget_bytes = 64 << 20;
    let mut keep = Keep::new(Config { budget_bytes, ..Config::default() });
    let mut left = 0;
    for file in (0..500_000).map(FileId) {
        let name = MaybeOwned::Borrowed("/d/empty");
        let create = Create { file, name, owner: None, mode: None, sync: false };
        let action = Action::Create(MaybeOwned::Borrowed(&create));
        keep.handle(0, &Event { at_us: 0, pid: 1, tid: 1, action });
        while let Some(decision) = keep.poll() {
            let oldest =
                Decision::WriteBack { file: FileId(left), keep_in_ram: false, why: Reason::Space };
            assert_eq!(decision, oldest);
            keep.done(0, FileId(left), Ok(()));
            left += 1;
        }
        assert!(keep.held_bytes() <= budget_bytes);
        assert!(keep.files() as u64 * FILE_COST_BYTES <= budget_bytes);
    }
    keep.check();
    assert!(keep.files() as u64 * FILE_COST_BYTES > budget_bytes - budget_bytes / FREED - 4096);
}

// Promises: Mount 17.
#[test]
fn failed_write_backs_are_retried_with_growing_pauses() {
    let mut keep = Stepped::new(0);
    keep.create(0, 0);
    keep.create(0, 1);
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..8 {
        keep.0.handle_deadline(now);
        assert_eq!(keep.decisions(), [(0, Reason::Age), (1, Reason::Age)]);
        keep.done(now, 0, false);
        keep.done(now, 1, false);
        let next = keep.0.next_deadline().unwrap();
        pauses.push((next - now) / 1_000_000);
        now = next;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    keep.create(now - 1, 2);
    keep.0.handle_deadline(now - 1);
    assert_eq!(keep.decisions(), [(2, Reason::Age)], "a new file does not wait for the others");
    keep.done(now - 1, 2, false);
    keep.0.handle_deadline(now);
    assert_eq!(keep.decisions().len(), 3);
    for file in 0..3 {
        keep.done(now, file, true);
    }
    keep.create(now, 3);
    keep.0.handle_deadline(now);
    assert_eq!(keep.decisions(), [(3, Reason::Age)]);
    keep.done(now, 3, false);
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
    keep.event(1, Action::Sync { file: FileId(0), offset: 0, len: u64::MAX, data_only: false });
    assert_eq!(keep.decisions(), [(0, Reason::Sync)]);
    keep.done(2, 0, true);
    assert_eq!(keep.0.files(), 0);
    keep.done(3, 0, true);
    assert_eq!((keep.0.next_deadline(), keep.decisions()), (None, vec![]));
}

// Promises: Mount 29.
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
    // A sixteenth of the budget: 2 and 49 pages.
    assert_eq!(keep.decisions(), [(1, Reason::Space), (2, Reason::Space)]);
    // The two are on their way; the third follows. One without a name is the last.
    keep.0.need_space(11, 300_000);
    assert_eq!(keep.decisions(), [(1, Reason::Space), (2, Reason::Space), (3, Reason::Space)]);
    keep.0.need_space(11, 500_000);
    assert_eq!(keep.decisions().last(), Some(&(0, Reason::Space)), "only RAM holds it");
    for file in 0..4 {
        keep.done(12, file, true);
    }
    keep.0.need_space(13, 1);
    assert_eq!(keep.decisions(), [], "no file is left whose removal frees space");
}

/// When pages and cost exceed the budget, the sifter frees a sixteenth of it, before tmpfs is full.
// Promises: Mount 29.
#[test]
fn files_beyond_the_budget_leave_before_ram_is_full() {
    let mut keep = Stepped::new(MINUTE);
    // With their cost, five of these are within 1 MiB, and a sixth is not.
    for file in 0..6 {
        keep.create(file, file);
        assert_eq!(keep.decisions(), []);
        keep.write(file, file, 200_000);
    }
    assert_eq!(keep.decisions(), [(0, Reason::Space), (1, Reason::Space)]);
    assert!(keep.0.held_bytes() <= BUDGET_BYTES - BUDGET_BYTES / 16);
    keep.done(7, 0, false);
    keep.done(7, 1, false);
    assert!(keep.0.held_bytes() > BUDGET_BYTES, "they are still there");
    keep.create(8, 9);
    // The refused files are tried again later.
    assert_eq!(keep.decisions(), [(2, Reason::Space), (3, Reason::Space)]);
}

// Promises: Mount 11.
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
    keep.event(0, Action::Sync { file: FileId(1), offset: 0, len: 1, data_only: false });
    keep.event(0, Action::SyncAll);
    keep.event(0, Action::Gone { file: FileId(2) });
    assert_eq!(keep.decisions(), [(3, Reason::All)], "decisions on deleted files are void");
    keep.event(0, Action::Close { file: FileId(1), open: None });
    assert_eq!(keep.0.files(), 1);
}

/// A clock that was set back for a day must not keep files in RAM for a day.
// Promises: Mount 12.
#[test]
fn a_clock_that_goes_back_delays_write_back_only_briefly() {
    let day = 86_400_000_000;
    let mut keep = Stepped::new(MINUTE);
    keep.create(2 * day, 0);
    keep.write(day, 0, 10);
    assert_eq!(keep.0.next_deadline(), Some(day + MINUTE - MINUTE / 16));
    keep.0.handle_deadline(u64::MAX);
    assert_eq!(keep.decisions(), [(0, Reason::Age)]);
    keep.done(u64::MAX, 0, false);
    assert_eq!(keep.0.next_deadline(), Some(u64::MAX));
    keep.write(5, 0, 10);
    assert_eq!(keep.0.next_deadline(), Some(5 + MINUTE), "60 s is the longest pause");
}

/// Files that are synced in the order in which they were written reach flash in ever larger
/// batches, until one of a batch is not synced.
// Promises: Mount 2.
#[test]
fn files_are_written_back_ahead_of_syncs_in_order() {
    let mut keep = Stepped::new(MINUTE);
    (0..100).for_each(|file| {
        keep.create(0, file);
        keep.write(0, file, 5000);
    });
    let sync = |keep: &mut Stepped, file| {
        keep.event(
            1,
            Action::Sync { file: FileId(file), offset: 0, len: u64::MAX, data_only: false },
        );
        let decided = keep.decisions();
        decided.iter().for_each(|(file, _)| keep.done(1, *file, true));
        decided
    };
    let with = |file, ahead: std::ops::Range<u64>| {
        let mut all = vec![(file, Reason::Sync)];
        all.extend(ahead.map(|file| (file, Reason::Ahead)));
        all
    };
    assert_eq!(sync(&mut keep, 0), with(0, 0..0));
    assert_eq!(sync(&mut keep, 1), with(1, 0..0));
    assert_eq!(sync(&mut keep, 2), with(2, 3..4));
    assert_eq!(sync(&mut keep, 3), []);
    assert_eq!(sync(&mut keep, 4), with(4, 5..7));
    assert_eq!((sync(&mut keep, 6), sync(&mut keep, 5)), (vec![], vec![]), "in any order");
    assert_eq!(sync(&mut keep, 7), with(7, 8..12));
    // Files 8 to 11 are not synced.
    assert_eq!(sync(&mut keep, 12), with(12, 0..0));
    assert_eq!(sync(&mut keep, 13), with(13, 0..0));
    keep.event(1, Action::Open { file: FileId(16), open: None, created: false });
    assert_eq!(sync(&mut keep, 14), with(14, 15..16));
    assert_eq!(sync(&mut keep, 15), []);
    assert_eq!(sync(&mut keep, 16), with(16, 17..19), "16 was not complete, and is synced now");
    assert_eq!(sync(&mut keep, 20), with(20, 0..0), "19 is passed over");
}
