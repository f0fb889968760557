//! `keep`: new files stay in RAM for a time, then move to flash; no file is dropped.
//!
//! A new file lives in RAM unless it is opened for synchronous writes or its name shows that it is
//! synced anyway. It is written back a fixed time after its *creation*, not after its last write:
//! otherwise a file that is written to again and again would never be saved, and a crash could take
//! any amount of work. A kernel's dirty pages follow the same rule: they expire by the age of the
//! oldest. Files that reach that age within a sixteenth of the time are written back together, so
//! that they share a sync. A file is in RAM for at most 17/16 of the time, unless flash refuses it.
//!
//! If a write-back by age fails, the next attempt follows after 1 s, then 2 s, and so on up to 60
//! s. It includes all files that have reached the age by then, oldest first. Syncs and the need for
//! space do not wait for the next attempt.
//!
//! An open file without a name cannot be reached after a crash: neither age nor syncs move it, and
//! the need for space moves it last.

use super::{Birth, Blocked, Decision, Reason, Sift, SifterSetup, Spec};
use crate::{
    event::{Action, Create, Event, FileId, Micros},
    names::{Patterns, is_synced_database},
    page::PAGE_BYTES,
    params::{Param, ParamKind},
    structure::{
        Extents,
        extents::{pages_inside, pages_touched},
    },
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[cfg(test)]
mod tests;

pub(super) const SPEC: Spec = Spec {
    name: "keep",
    paper: "flashsift: what the mount does",
    what: "keeps new files in RAM for a time, then writes them back; drops none",
    params: PARAMS,
    build: |setup| Box::new(Keep::new(Config::of(setup))),
};

const PARAMS: &[Param] = &[Param {
    name: "lose-at-most",
    what: "time from a file's birth to its write-back",
    kind: ParamKind::Duration { default_us: 60_000_000, min_us: 1, max_us: 365 * 86_400_000_000 },
}];

/// Divisor of the time in RAM: files within this part of it are written back together.
const WINDOW: u64 = 16;
/// The first and the longest pause after a failed attempt.
const PAUSE_US: [Micros; 2] = [1_000_000, 60_000_000];
/// Divisor of the budget: when RAM is full, at least this part of it is freed.
const FREED: u64 = 4;

/// The configuration of [`Keep`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Time from a file's creation to its write-back, µs; with 0 a file is due at once.
    pub lose_at_most_us: Micros,
    /// RAM for files, in bytes.
    pub budget_bytes: u64,
    /// Patterns of names ([`Patterns`]) of files that belong on flash, besides those of SQLite.
    pub patterns: Vec<String>,
}

impl Config {
    fn of(setup: &SifterSetup<'_>) -> Self {
        Self {
            lose_at_most_us: setup.params.duration_us(PARAMS, "lose-at-most"),
            budget_bytes: setup.budget_bytes,
            patterns: setup.patterns.to_vec(),
        }
    }
}

impl Default for Config {
    /// Returns 60 s, no bound on RAM, no patterns.
    fn default() -> Self {
        Self { lose_at_most_us: 60_000_000, budget_bytes: u64::MAX, patterns: Vec::new() }
    }
}

/// The sifter: it keeps new files in RAM for a time.
#[derive(Clone, Debug)]
pub struct Keep {
    lose_at_most_us: Micros,
    budget_bytes: u64,
    patterns: Patterns,
    files: HashMap<FileId, File, FixedState>,
    /// Files in RAM that have a name, by birth number.
    named: BTreeMap<u64, FileId>,
    /// Open files in RAM that have no name, by birth number.
    unnamed: BTreeMap<u64, FileId>,
    /// Birth numbers of the named files with no pending decision.
    waiting: BTreeSet<u64>,
    /// The next birth number.
    next: u64,
    /// The pending decisions that were made because of age.
    attempt: Attempt,
    /// The time of the next attempt, while attempts fail.
    retry_us: Option<Micros>,
    /// The pause after the next failed attempt.
    pause_us: Micros,
    last_us: Micros,
    decisions: VecDeque<Decision>,
}

#[derive(Clone, Debug)]
struct File {
    /// Birth number: the order of creation, independent of the clock.
    number: u64,
    born_us: Micros,
    names: u32,
    opens: u32,
    /// Decisions on it that are queued or in progress.
    out: u32,
    /// Whether one of these decisions was made because of age.
    aged: bool,
    /// Pages that hold data.
    pages: Extents,
}

/// One attempt: the files that are written back by age together.
#[derive(Clone, Copy, Debug, Default)]
struct Attempt {
    /// Files whose result is not known yet.
    out: usize,
    failed: bool,
}

impl Keep {
    /// Returns a sifter that has no file.
    pub fn new(config: Config) -> Self {
        Self {
            lose_at_most_us: config.lose_at_most_us,
            budget_bytes: config.budget_bytes,
            patterns: Patterns::new(&config.patterns),
            files: HashMap::default(),
            named: BTreeMap::new(),
            unnamed: BTreeMap::new(),
            waiting: BTreeSet::new(),
            next: 0,
            attempt: Attempt::default(),
            retry_us: None,
            pause_us: PAUSE_US[0],
            last_us: 0,
            decisions: VecDeque::new(),
        }
    }

    /// Returns the number of files in RAM.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Returns whether this file is in RAM.
    pub fn has(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    fn birth_of(&self, create: &Create<'_>) -> Birth {
        if create.sync {
            Birth::Flash(Reason::Sync)
        } else if is_synced_database(&create.name) || self.patterns.matches(&create.name) {
            Birth::Flash(Reason::Name)
        } else {
            Birth::Ram
        }
    }

    fn created(&mut self, now: Micros, create: &Create<'_>) {
        if self.birth_of(create) != Birth::Ram || self.files.contains_key(&create.file) {
            return;
        }
        let names = u32::from(!create.name.is_empty());
        let file = File {
            number: self.next,
            born_us: now,
            names,
            opens: 0,
            out: 0,
            aged: false,
            pages: Extents::default(),
        };
        self.next += 1;
        self.files.insert(create.file, file);
        self.sort_in(create.file);
    }

    /// Puts the file into the list that its names and its pending decisions call for.
    fn sort_in(&mut self, id: FileId) {
        let Some(file) = self.files.get(&id) else { return };
        let (to, from) = match file.names {
            0 => (&mut self.unnamed, &mut self.named),
            _ => (&mut self.named, &mut self.unnamed),
        };
        from.remove(&file.number);
        to.insert(file.number, id);
        match file.names > 0 && file.out == 0 {
            true => self.waiting.insert(file.number),
            false => self.waiting.remove(&file.number),
        };
    }

    /// Handles a clock that went back: no file counts as created later than now.
    fn turn_back(&mut self, now: Micros) {
        for list in [&self.named, &self.unnamed] {
            for id in list.values().rev() {
                let file = self.files.get_mut(id).expect("listed files are known");
                if file.born_us <= now {
                    break;
                }
                file.born_us = now;
            }
        }
        self.retry_us = self.retry_us.map(|retry_us| retry_us.min(now.saturating_add(PAUSE_US[1])));
    }

    fn now(&mut self, now: Micros) {
        if now < self.last_us {
            self.turn_back(now);
        }
        self.last_us = now;
    }

    fn decide(&mut self, id: FileId, why: Reason) {
        let Some(file) = self.files.get_mut(&id) else { return };
        file.out += 1;
        if why == Reason::Age {
            file.aged = true;
            self.attempt.out += 1;
        }
        self.waiting.remove(&file.number);
        self.decisions.push_back(Decision::WriteBack { file: id, keep_in_ram: false, why });
    }

    /// Handles a sync of the file. A file without a name gets no decision: a crash loses it in any
    /// case.
    fn synced(&mut self, id: FileId) {
        if self.files.get(&id).is_some_and(|file| file.names > 0) {
            self.decide(id, Reason::Sync);
        }
    }

    /// Removes a file that is no longer in RAM.
    fn left(&mut self, now: Micros, id: FileId) {
        let Some(file) = self.files.remove(&id) else { return };
        self.named.remove(&file.number);
        self.unnamed.remove(&file.number);
        self.waiting.remove(&file.number);
        if file.aged {
            self.attempted(now, false);
        }
    }

    /// Handles a change of the file's names or opens.
    fn lives(&mut self, now: Micros, id: FileId) {
        match self.files.get(&id) {
            Some(file) if file.names == 0 && file.opens == 0 => self.left(now, id),
            _ => self.sort_in(id),
        }
    }

    /// Handles the result of one decision by age.
    fn attempted(&mut self, now: Micros, failed: bool) {
        self.attempt.out -= 1;
        self.attempt.failed |= failed;
        if self.attempt.out > 0 {
            return;
        }
        if std::mem::take(&mut self.attempt.failed) {
            self.retry_us = Some(now.saturating_add(self.pause_us));
            self.pause_us = (self.pause_us * 2).min(PAUSE_US[1]);
        } else {
            self.pause_us = PAUSE_US[0];
        }
    }
}

impl Sift for Keep {
    fn birth(&mut self, _: Micros, create: &Create<'_>) -> Birth {
        self.birth_of(create)
    }

    fn handle(&mut self, now: Micros, event: &Event<'_>) {
        self.now(now);
        match event.action {
            Action::Create(ref create) => return self.created(now, create),
            Action::SyncAll => {
                let all: Vec<FileId> = self.named.values().copied().collect();
                return all.into_iter().for_each(|file| self.decide(file, Reason::All));
            }
            _ => {}
        }
        let Some(id) = event.action.file() else { return };
        let Some(file) = self.files.get_mut(&id) else { return };
        match event.action {
            Action::Write { offset, len, sync, .. } => {
                file.pages.insert(pages_touched(offset, len));
                if sync {
                    self.synced(id);
                }
            }
            Action::Direct { offset, len, write: true, .. } => {
                file.pages.insert(pages_touched(offset, len));
            }
            Action::Truncate { size, .. } => file.pages.remove(size.div_ceil(PAGE_BYTES)..u64::MAX),
            Action::Punch { offset, len, .. } => file.pages.remove(pages_inside(offset, len)),
            Action::Sync { .. } => self.synced(id),
            Action::Open { .. } => file.opens += 1,
            Action::Close { .. } => {
                file.opens = file.opens.saturating_sub(1);
                self.lives(now, id);
            }
            Action::Bind { .. } | Action::Rename { .. } => {
                file.names = file.names.max(1);
                self.sort_in(id);
            }
            Action::Link { .. } => {
                file.names += 1;
                self.sort_in(id);
            }
            Action::Unbind { .. } => {
                file.names = file.names.saturating_sub(1);
                self.lives(now, id);
            }
            Action::Gone { .. } => self.left(now, id),
            Action::Read { .. }
            | Action::Direct { .. }
            | Action::Size { .. }
            | Action::Create(_)
            | Action::SyncAll
            | Action::RenameDirectory { .. }
            | Action::Process { .. }
            | Action::MemoryPressure { .. }
            | Action::Foreground { .. } => {}
        }
    }

    fn done(&mut self, now: Micros, id: FileId, result: Result<(), Blocked>) {
        self.now(now);
        let Err(_) = result else { return self.left(now, id) };
        let Some(file) = self.files.get_mut(&id) else { return };
        file.out = file.out.saturating_sub(1);
        // If a file has two pending decisions, a failure counts for the one made because of age.
        let aged = std::mem::take(&mut file.aged);
        self.sort_in(id);
        if aged {
            self.attempted(now, true);
        }
    }

    fn need_space(&mut self, now: Micros, bytes: u64) {
        self.now(now);
        let wanted = bytes.max(self.budget_bytes / FREED);
        let mut found = 0;
        let mut chosen = Vec::new();
        for id in self.named.values().chain(self.unnamed.values()) {
            chosen.push(*id);
            found += self.files[id].pages.covered() * PAGE_BYTES;
            if found >= wanted {
                break;
            }
        }
        chosen.into_iter().for_each(|file| self.decide(file, Reason::Space));
    }

    fn next_deadline(&self) -> Option<Micros> {
        if self.attempt.out > 0 {
            return None;
        }
        if let Some(retry_us) = self.retry_us {
            return Some(retry_us);
        }
        let oldest = &self.files[&self.named[self.waiting.first()?]];
        oldest.born_us.checked_add(self.lose_at_most_us)?.checked_add(self.lose_at_most_us / WINDOW)
    }

    fn handle_deadline(&mut self, now: Micros) {
        self.now(now);
        if self.next_deadline().is_none_or(|deadline_us| now < deadline_us) {
            return;
        }
        self.retry_us = None;
        let of_age =
            |number: &&u64| now - self.files[&self.named[number]].born_us >= self.lose_at_most_us;
        let due: Vec<FileId> =
            self.waiting.iter().take_while(of_age).map(|number| self.named[number]).collect();
        if due.is_empty() {
            // Every file whose write-back failed has left RAM in the meantime.
            self.pause_us = PAUSE_US[0];
        }
        due.into_iter().for_each(|file| self.decide(file, Reason::Age));
    }

    fn poll(&mut self) -> Option<Decision> {
        loop {
            let decision = self.decisions.pop_front()?;
            if decision.file().is_none_or(|file| self.files.contains_key(&file)) {
                return Some(decision);
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.named.len() + self.unnamed.len(), self.files.len());
        let mut by_number = BTreeMap::new();
        for (id, file) in &self.files {
            let list = if file.names > 0 { &self.named } else { &self.unnamed };
            assert_eq!(
                list.get(&file.number),
                Some(id),
                "{id:?} is in the list that its names say"
            );
            let waits = file.names > 0 && file.out == 0;
            assert_eq!(self.waiting.contains(&file.number), waits, "{id:?} {file:?}");
            assert!(file.number < self.next && (!file.aged || file.out > 0), "{id:?} {file:?}");
            file.pages.check();
            by_number.insert(file.number, file.born_us);
            let queued =
                self.decisions.iter().filter(|decision| decision.file() == Some(*id)).count();
            assert!(queued <= file.out as usize, "{id:?}: {queued} decisions are queued, {file:?}");
        }
        assert!(self.waiting.len() <= self.named.len());
        assert!(by_number.values().is_sorted(), "births ascend");
        assert!(by_number.last_key_value().is_none_or(|(_, born_us)| *born_us <= self.last_us));
        assert_eq!(self.attempt.out, self.files.values().filter(|file| file.aged).count());
        assert!(
            self.attempt.out == 0 || self.retry_us.is_none(),
            "an attempt and a pause exclude each other"
        );
        assert!(self.attempt.out > 0 || !self.attempt.failed);
        assert!((PAUSE_US[0]..=PAUSE_US[1]).contains(&self.pause_us));
    }
}
