//! `keep`: new files stay in RAM until the space or the window of loss asks for them; none is
//! dropped.
//!
//! A new file lives in RAM unless it is opened for synchronous writes or its name shows that it is
//! synced anyway. Four things move it to flash:
//!
//! - **A sync** of the file. It leaves RAM, because the application that syncs it once will do so
//!   again. If files were synced in the order in which they were written, some of the next small
//!   files that no process has open follow at once ([`Reason::Ahead`]): twice as many each time,
//!   up to 64, as long as all of them are synced then.
//! - **The window** (`lose-at-most`). Data that no application synced reaches flash at most this
//!   long after it was written. A file's time counts from its first change that flash lacks: its
//!   creation, a write, a truncation, a new name. The write-back begins at 15/16 of the window, so
//!   that it has time to finish, and includes the files that have reached 14/16, so that they share
//!   the cost of a commit.
//! - **The budget**. If pages and the fixed cost of the files ([`FILE_COST_BYTES`]) exceed it,
//!   files are written back until a sixteenth of it is free again. Files of which flash has the
//!   current version go first, because they cost no write; then the files that were changed first.
//! - **Its size**. A file of more than half of the budget is handed to the page cache of flash
//!   ([`Reason::Large`]): in RAM it would evict all others. `experiments/keep` shows that half
//!   saves more writes than a quarter or the whole.
//!
//! A file that is still in use when its window ends is written back and stays in RAM: flash has a
//! checkpoint of it, and its time begins anew with the next change. Each checkpoint writes the
//! whole file. Only files of at most 64 KiB stay, so that this costs little more than the page
//! cache's own write-back. They have exactly one name, and are open: events do not say whether an
//! open may write.
//!
//! If a write-back fails, the next attempt follows after 1 s, then 2 s, and so on up to 60 s. It
//! includes all files whose last write-back failed. Neither new changes, syncs nor the need for
//! space wait for it.
//!
//! An open file without a name cannot be reached after a crash: neither the window nor syncs move
//! it, and the need for space moves it last. Its time counts from the moment at which it gets a
//! name.

use super::{
    Birth, Blocked, Decision, Reason, Sift, SifterSetup, Spec,
    explanation::{Explained, Explanation, Intent, seconds},
    slots::FileList,
};
use ahead::Ahead;
use files::{CLEAN, Files, List, Slot};
use flashsift_events::{
    event::{Action, Create, Event, FileId, Micros},
    ledger::LinkChange,
    names::{Patterns, is_synced_database},
    page::PAGE_BYTES,
    params::{Param, ParamKind, Params},
    structure::{
        Extents,
        extents::{pages_inside, pages_touched},
    },
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;

mod ahead;
mod files;
#[cfg(test)]
mod tests;

pub(super) const SPEC: Spec = Spec {
    name: "keep",
    paper: "flashsift: what the mount does",
    what: "keeps new files in RAM as long as there is space, and for a bounded time; drops none",
    params: PARAMS,
    offline: |_| false,
    build: |setup, params| Ok(Box::new(Keep::new(Config::new(setup, params)))),
};

const PARAMS: &[Param] = &[Param {
    name: "lose-at-most",
    what: "data that no application synced reaches flash at most this long after it was written",
    kind: ParamKind::Duration {
        default_us: LOSE_AT_MOST_US,
        min_us: 1,
        max_us: 365 * 86_400_000_000,
    },
}];

/// The default window: 30 minutes.
const LOSE_AT_MOST_US: Micros = 1_800_000_000;
/// Divisor of the window: the write-back begins one such part before its end, and includes the
/// files that are due in the part before.
const WINDOW: u64 = 16;
/// The first and the longest pause after a failed attempt.
const PAUSE_US: [Micros; 2] = [1_000_000, 60_000_000];
/// Divisor of the budget: when RAM is full, at least this part of it is freed.
const FREED: u64 = 16;
/// Divisor of the budget: a larger file is handed to the page cache.
const LARGE: u64 = 2;
/// Pages of the largest file that stays in RAM when it is written back because of its age.
const CHECKPOINT_PAGES: u64 = 16;

/// Entries of a map or queue that stay allocated while it is empty: a burst of decisions takes no
/// memory later.
const IDLE: usize = 1024;

/// RAM that a file takes besides its pages, bytes: the inode of tmpfs (752 bytes on Linux 6.18),
/// names of it (192 bytes each in tmpfs and in the mount) and about 300 bytes in the daemon,
/// rounded up. The mount's own inode is not counted: the kernel can forget it.
pub const FILE_COST_BYTES: u64 = 1536;

/// The configuration of [`Keep`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Data that no application synced reaches flash at most this long after it was written, µs;
    /// with 0 a file is due at once.
    pub lose_at_most_us: Micros,
    /// RAM for files, in bytes.
    pub budget_bytes: u64,
    /// Patterns of names ([`Patterns`]) of files that belong on flash, besides those of SQLite.
    pub patterns: Vec<String>,
    /// Files may be written back because they will probably be synced next. This saves commits
    /// where the sync of one file makes earlier changes of all files durable.
    pub write_ahead: bool,
}

impl Config {
    fn new(setup: &SifterSetup<'_>, params: &Params) -> Self {
        Self {
            lose_at_most_us: params.duration_us(PARAMS, "lose-at-most"),
            budget_bytes: setup.budget_bytes,
            patterns: setup.patterns.to_vec(),
            write_ahead: true,
        }
    }
}

impl Default for Config {
    /// Returns 30 min, no bound on RAM, no patterns, with files written back ahead of syncs.
    fn default() -> Self {
        Self {
            lose_at_most_us: LOSE_AT_MOST_US,
            budget_bytes: u64::MAX,
            patterns: Vec::new(),
            write_ahead: true,
        }
    }
}

/// The sifter: it keeps new files in RAM as long as there is space, and for a bounded time.
#[derive(Clone, Debug)]
pub struct Keep {
    lose_at_most_us: Micros,
    budget_bytes: u64,
    patterns: Patterns,
    files: Files,
    /// The run of syncs in order, if files may be written back ahead.
    ahead: Option<Ahead>,
    /// Files with decisions that are queued or in progress, and files that flash refused.
    pending: HashMap<Slot, Pending, FixedState>,
    /// Number of files that flash refused when they were last written back.
    failing: usize,
    /// Cost of the files that no decision moves out of RAM, bytes.
    held_bytes: u64,
    /// The time of the next attempt, if flash refused a file since the last one.
    retry_us: Option<Micros>,
    /// The pause after the next failure.
    pause_us: Micros,
    last_us: Micros,
    decisions: VecDeque<Decision>,
    explained: Explained,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// Decisions that are queued or in progress.
    out: u32,
    /// One of them keeps the file in RAM.
    keeps: bool,
    /// The last result was a failure.
    failed: bool,
}

impl Pending {
    /// Returns whether a decision moves the file out of RAM.
    fn leaves(self) -> bool {
        self.out > u32::from(self.keeps)
    }
}

impl Keep {
    /// Returns a sifter that has no file.
    pub fn new(config: Config) -> Self {
        Self {
            lose_at_most_us: config.lose_at_most_us,
            budget_bytes: config.budget_bytes,
            patterns: Patterns::new(&config.patterns),
            files: Files::new(),
            ahead: config.write_ahead.then(Ahead::default),
            pending: HashMap::default(),
            failing: 0,
            held_bytes: 0,
            retry_us: None,
            pause_us: PAUSE_US[0],
            last_us: 0,
            decisions: VecDeque::new(),
            explained: Explained::default(),
        }
    }

    /// Returns the number of files in RAM.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Returns whether this file is in RAM.
    pub fn has(&self, file: FileId) -> bool {
        self.files.find(file).is_some()
    }

    /// Returns the pages that hold data, of a file with one name that no process has open, that
    /// flash lacks, and on which there is no decision. `None`: it is no such file.
    pub(crate) fn idle_pages(&self, file: FileId) -> Option<Extents> {
        let slot = self.files.find(file)?;
        let is_idle = self.list_of(slot) == List::Dirty
            && self.files[slot].links.names() == 1
            && !self.files[slot].links.is_open();
        is_idle.then(|| self.files.extents(slot))
    }

    /// Hands a file over to another machine: it stays in RAM, and this machine forgets it.
    pub(crate) fn release(&mut self, file: FileId) {
        if let Some(slot) = self.files.find(file) {
            self.left(slot);
        }
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
        if self.birth_of(create) != Birth::Ram || self.files.find(create.file).is_some() {
            return;
        }
        let named = !create.name.is_empty();
        let list = if named { List::Dirty } else { List::Unnamed };
        self.files.insert(list, create.file, now, named);
        self.held_bytes += FILE_COST_BYTES;
        self.keep_within_budget();
    }

    fn pending(&self, slot: Slot) -> Pending {
        if self.pending.is_empty() {
            return Pending::default();
        }
        self.pending.get(&slot).copied().unwrap_or_default()
    }

    fn cost_bytes(&self, slot: Slot) -> u64 {
        FILE_COST_BYTES + self.files.pages(slot) * PAGE_BYTES
    }

    /// Returns the list that the file's names, its decisions and its changes call for.
    fn list_of(&self, slot: Slot) -> List {
        let Pending { out, failed, .. } = self.pending(slot);
        match self.files[slot] {
            _ if out > 0 => List::Out,
            file if !file.links.is_named() => List::Unnamed,
            _ if failed => List::Failed,
            file if file.since_us == CLEAN => List::Clean,
            _ => List::Dirty,
        }
    }

    /// Moves the file to another list if a change since `before` calls for that.
    fn sort_in(&mut self, slot: Slot, before: List) {
        let list = self.list_of(slot);
        match list {
            _ if list == before => {}
            List::Dirty => self.files.move_dirty(slot),
            _ => self.files.move_newest(list, slot),
        }
        if list == List::Failed && self.retry_us.is_none() {
            self.retry_us = Some(self.last_us.saturating_add(self.pause_us));
            self.pause_us = (self.pause_us * 2).min(PAUSE_US[1]);
        }
    }

    /// Handles a clock that went back: no file counts as changed later than now.
    fn turn_back(&mut self, now: Micros) {
        for list in List::ALL.iter().copied() {
            let mut next = self.files.newest(list);
            while let Some(slot) = next {
                next = self.files.older(slot);
                let since_us = &mut self.files[slot].since_us;
                if list == List::Dirty && *since_us <= now {
                    break;
                }
                if *since_us != CLEAN {
                    *since_us = now.min(*since_us);
                }
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

    /// Decides to write a file back.
    fn decide(&mut self, slot: Slot, keep_in_ram: bool, why: Reason) {
        if self.explained.is_wanted() {
            let explanation = self.explained(self.last_us, slot, why.sentence());
            self.explained.set(self.files[slot].id, || explanation);
        }
        let (cost_bytes, before) = (self.cost_bytes(slot), self.list_of(slot));
        let pending = self.pending.entry(slot).or_default();
        let left = pending.leaves();
        pending.out += 1;
        pending.keeps |= keep_in_ram;
        if pending.leaves() && !left {
            self.held_bytes -= cost_bytes;
        }
        if keep_in_ram {
            // The checkpoint may lack what changes from now on.
            self.files[slot].since_us = CLEAN;
        }
        self.sort_in(slot, before);
        let file = self.files[slot].id;
        self.decisions.push_back(Decision::WriteBack { file, keep_in_ram, why });
    }

    /// Explains the write-back of a file: no file is dropped.
    fn explained(&self, now: Micros, slot: Slot, rule: &'static str) -> Explanation {
        let file = self.files[slot];
        let (dirty_us, bytes) = match file.since_us {
            CLEAN => (0, 0),
            since_us => (now.saturating_sub(since_us), self.files.pages(slot) * PAGE_BYTES),
        };
        Explanation::new(Intent::Write, rule, bytes)
            .with("dirty_s", seconds(dirty_us))
            .with("lose_at_most_s", seconds(self.lose_at_most_us))
            .with("opens", file.links.opens().into())
            .with("names", file.links.names().into())
            .with("held_bytes", self.held_bytes as f64)
            .with("budget_bytes", self.budget_bytes as f64)
    }

    /// Handles a sync of the file. A file without a name gets no decision: a crash loses it in any
    /// case.
    fn synced(&mut self, slot: Slot) {
        if self.files[slot].links.is_named() {
            self.decide(slot, false, Reason::Sync);
        }
    }

    /// Handles a sync of a file that was not written back ahead of it.
    fn synced_in_order(&mut self, slot: Slot) {
        if !self.files[slot].links.is_named() {
            return;
        }
        let is_dirty = self.list_of(slot) == List::Dirty;
        let mut next = self.files.newer(slot).filter(|_| is_dirty);
        self.synced(slot);
        let Some(ahead) = &mut self.ahead else { return };
        for _ in 0..ahead.files_with(self.files[slot].id) {
            let Some(slot) = next.filter(|slot| self.is_complete(*slot)) else { break };
            next = self.files.newer(slot);
            self.decide(slot, false, Reason::Ahead);
            let file = self.files[slot].id;
            self.ahead.iter_mut().for_each(|ahead| ahead.unsynced.push(file));
        }
        let next = next.map(|slot| self.files[slot].id);
        self.ahead.iter_mut().for_each(|ahead| ahead.next = next);
    }

    /// Returns whether the file is small and no process has it open.
    fn is_complete(&self, slot: Slot) -> bool {
        !self.files[slot].links.is_open() && self.files.pages(slot) <= ahead::PAGES
    }

    /// Handles a change of the file that flash lacks.
    fn changed(&mut self, now: Micros, slot: Slot) {
        if self.files[slot].since_us == CLEAN {
            let before = self.list_of(slot);
            self.files[slot].since_us = now;
            self.sort_in(slot, before);
        }
    }

    /// Handles a change of the file's pages.
    fn resized(&mut self, slot: Slot, change: impl FnOnce(&mut Files)) {
        let before = self.cost_bytes(slot);
        change(&mut self.files);
        if !self.pending(slot).leaves() {
            self.held_bytes = self.held_bytes - before + self.cost_bytes(slot);
        }
    }

    fn wrote(&mut self, now: Micros, slot: Slot, offset: u64, len: u64, sync: bool) {
        self.resized(slot, |files| files.cover(slot, pages_touched(offset, len)));
        self.changed(now, slot);
        if sync {
            self.synced(slot);
        }
        let bytes = self.files.pages(slot) * PAGE_BYTES;
        if bytes > self.budget_bytes / LARGE && self.files[slot].links.is_named() {
            let pending = self.pending(slot);
            if !pending.failed && !pending.leaves() {
                self.decide(slot, false, Reason::Large);
            }
        }
        self.keep_within_budget();
    }

    /// Decides which files leave RAM so that the others are within the budget. Files that flash
    /// refused are left to the next attempt.
    fn keep_within_budget(&mut self) {
        if self.held_bytes <= self.budget_bytes {
            return;
        }
        let wanted = self.budget_bytes - self.budget_bytes / FREED;
        for list in [List::Out, List::Clean, List::Dirty, List::Unnamed] {
            let mut next = self.files.oldest(list);
            while let Some(slot) = next.filter(|_| self.held_bytes > wanted) {
                next = self.files.newer(slot);
                if !self.pending(slot).leaves() {
                    self.decide(slot, false, Reason::Space);
                }
            }
        }
    }

    /// Decides that the oldest file leaves RAM, one without a name last. Those on which there is a
    /// decision already, or that flash refused, stay.
    pub(crate) fn free_one(&mut self, now: Micros) {
        self.now(now);
        let lists = [List::Clean, List::Dirty, List::Unnamed];
        if let Some(slot) = lists.into_iter().find_map(|list| self.files.oldest(list)) {
            self.decide(slot, false, Reason::Space);
        }
    }

    /// Removes a file that is no longer in RAM.
    fn left(&mut self, slot: Slot) {
        let pending = self.pending(slot);
        if !pending.leaves() {
            self.held_bytes -= self.cost_bytes(slot);
        }
        self.explained.forget(self.files[slot].id);
        self.files.remove(slot);
        self.pending.remove(&slot);
        if self.pending.is_empty() && self.pending.capacity() > IDLE {
            self.pending = HashMap::default();
        }
        self.failed_no_more(pending);
    }

    /// Handles the end of a file's failures.
    fn failed_no_more(&mut self, before: Pending) {
        if before.failed {
            self.failing -= 1;
            if self.failing == 0 {
                (self.retry_us, self.pause_us) = (None, PAUSE_US[0]);
            }
        }
    }

    /// Handles an event of the file's names and opens.
    fn linked(&mut self, now: Micros, slot: Slot, action: &Action<'_>) {
        let (before, had_name) = (self.list_of(slot), self.files[slot].links.is_named());
        let file = &mut self.files[slot];
        match file.links.take(action) {
            LinkChange::Named(_) if !had_name => file.since_us = now,
            LinkChange::Lost if file.links.is_dead() => return self.left(slot),
            _ => {}
        }
        self.sort_in(slot, before);
    }

    /// Returns the time at which the oldest change that flash lacks is due.
    fn due_us(&self) -> Option<Micros> {
        let since_us = self.files[self.files.oldest(List::Dirty)?].since_us;
        since_us.checked_add(self.lose_at_most_us - self.lose_at_most_us / WINDOW)
    }

    /// Returns whether the file stays in RAM when it is written back because of its age.
    fn stays(&self, slot: Slot) -> bool {
        let file = self.files[slot];
        file.links.names() == 1
            && file.links.is_open()
            && self.files.pages(slot) <= CHECKPOINT_PAGES
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
                let named = [List::Out, List::Clean, List::Dirty, List::Failed];
                let all: Vec<Slot> =
                    named.iter().flat_map(|list| self.files.oldest_first(*list)).collect();
                for slot in all {
                    if self.files[slot].links.is_named() {
                        self.decide(slot, false, Reason::All);
                    }
                }
                return;
            }
            Action::Sync { file, .. }
                if self.ahead.as_mut().is_some_and(|ahead| ahead.covers(file)) =>
            {
                if let Some(slot) = self.files.find(file) {
                    self.synced(slot);
                }
                return;
            }
            _ => {}
        }
        let Some(slot) = event.action.file().and_then(|id| self.files.find(id)) else { return };
        match event.action {
            Action::Write { offset, len, sync, .. } => self.wrote(now, slot, offset, len, sync),
            Action::Direct { offset, len, write: true, .. } => {
                self.wrote(now, slot, offset, len, false);
            }
            Action::Truncate { size, .. } => {
                let cut = size.div_ceil(PAGE_BYTES)..u64::MAX;
                self.resized(slot, |files| files.cut(slot, cut));
                self.changed(now, slot);
            }
            Action::Punch { offset, len, .. } => {
                self.resized(slot, |files| files.cut(slot, pages_inside(offset, len)));
                self.changed(now, slot);
            }
            Action::Sync { .. } => self.synced_in_order(slot),
            Action::Open { .. } | Action::Close { .. } => self.linked(now, slot, &event.action),
            Action::Bind { .. } | Action::Rename { .. } | Action::Link { .. } => {
                self.linked(now, slot, &event.action);
                self.changed(now, slot);
            }
            Action::Unbind { .. } => {
                self.changed(now, slot);
                self.linked(now, slot, &event.action);
            }
            Action::Gone { .. } => self.left(slot),
            Action::Read { .. }
            | Action::Direct { .. }
            | Action::Size { .. }
            | Action::Create(_)
            | Action::SyncAll
            | Action::RenameDirectory { .. }
            | Action::Process { .. }
            | Action::Cause { .. }
            | Action::MemoryLines { .. }
            | Action::ControlGroup { .. }
            | Action::MemoryPressure { .. }
            | Action::TimeToLive { .. }
            | Action::Place { .. }
            | Action::SyncDirectory { .. }
            | Action::Folio { .. }
            | Action::Filled { .. }
            | Action::Meaning { .. }
            | Action::Foreground { .. } => {}
        }
    }

    fn done(&mut self, now: Micros, id: FileId, result: Result<(), Blocked>) {
        self.now(now);
        let Some(slot) = self.files.find(id) else { return };
        let before = self.pending(slot);
        let mut after = before;
        match result {
            // The order of two results is not known. A file with a decision that keeps it stays
            // until the other decision is done, too.
            Ok(()) if before.keeps => {
                (after.out, after.keeps, after.failed) = (before.out - 1, false, false);
                self.failed_no_more(before);
            }
            Ok(()) => return self.left(slot),
            Err(_) if before.out == 0 => return,
            Err(_) => {
                after.out -= 1;
                after.keeps &= after.out > 0;
                after.failed = true;
                self.failing += usize::from(!before.failed);
                if self.files[slot].since_us == CLEAN {
                    self.files[slot].since_us = now;
                }
            }
        }
        if before.leaves() && !after.leaves() {
            self.held_bytes += self.cost_bytes(slot);
        }
        if after.out == 0 {
            self.explained.forget(id);
        }
        match after.out > 0 || after.failed {
            true => drop(self.pending.insert(slot, after)),
            false => drop(self.pending.remove(&slot)),
        }
        if before.out > 0 {
            self.sort_in(slot, List::Out);
        }
    }

    fn need_space(&mut self, now: Micros, bytes: u64) {
        self.now(now);
        let (mut found, mut found_pages) = (0, 0);
        let mut chosen = Vec::new();
        'enough: for list in List::ALL.iter().copied() {
            for slot in self.files.oldest_first(list) {
                chosen.push(slot);
                found += self.cost_bytes(slot);
                found_pages += self.files.pages(slot);
                if found_pages * PAGE_BYTES >= bytes && found >= self.budget_bytes / FREED {
                    break 'enough;
                }
            }
        }
        chosen.into_iter().for_each(|slot| self.decide(slot, false, Reason::Space));
    }

    fn resize(&mut self, now: Micros, budget_bytes: u64) {
        self.now(now);
        self.budget_bytes = budget_bytes;
        self.keep_within_budget();
    }

    fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// A file of which flash has the current version costs no write: it is the oldest.
    fn oldest_us(&self, _: Micros) -> Option<Micros> {
        let dirty = || self.files.oldest(List::Dirty).map(|slot| self.files[slot].since_us);
        self.files.oldest(List::Clean).map(|_| 0).or_else(dirty)
    }

    fn next_deadline(&self) -> Option<Micros> {
        [self.retry_us, self.due_us()].into_iter().flatten().min()
    }

    fn handle_deadline(&mut self, now: Micros) {
        self.now(now);
        if self.retry_us.is_some_and(|retry_us| retry_us <= now) {
            self.retry_us = None;
            while let Some(slot) = self.files.oldest(List::Failed) {
                self.decide(slot, false, Reason::Age);
            }
        }
        if self.due_us().is_none_or(|due_us| now < due_us) {
            return;
        }
        let young_us = self.lose_at_most_us - 2 * (self.lose_at_most_us / WINDOW);
        while let Some(slot) = self.files.oldest(List::Dirty)
            && now - self.files[slot].since_us >= young_us
        {
            self.decide(slot, self.stays(slot), Reason::Age);
        }
    }

    fn poll(&mut self) -> Option<Decision> {
        loop {
            let Some(decision) = self.decisions.pop_front() else {
                self.decisions.shrink_to(IDLE);
                return None;
            };
            if decision.file().is_none_or(|file| self.has(file)) {
                return Some(decision);
            }
        }
    }

    fn explain(&self, now: Micros, file: FileId) -> Option<Explanation> {
        let slot = self.files.find(file)?;
        let rule = match self.list_of(slot) {
            List::Out => "A decision writes it back.",
            List::Clean => "Flash has this version: it leaves RAM first when RAM is full.",
            List::Dirty => {
                "It is written when RAM is full, or as long as a crash may take changes."
            }
            List::Failed => "Flash refused it: it is tried again.",
            List::Unnamed => "It has no name: it is written only if no other file can leave RAM.",
        };
        let decided = self.explained.get(file).cloned();
        Some(decided.unwrap_or_else(|| self.explained(now, slot, rule)))
    }

    fn record_explanations(&mut self) {
        self.explained.record();
    }

    fn check(&self) {
        let listed = self.files.check();
        let (mut held_bytes, mut failing, mut last_us) = (0, 0, 0);
        for (list, slot) in &listed {
            let (file, pending) = (self.files[*slot], self.pending(*slot));
            assert_eq!(*list, self.list_of(*slot), "{file:?} {pending:?}");
            assert!(*list != List::Failed || self.retry_us.is_some(), "it is tried again");
            assert!(file.since_us == CLEAN || file.since_us <= self.last_us, "{file:?}");
            if *list == List::Dirty {
                assert!(last_us <= file.since_us, "dirty files are in order of their change");
                last_us = file.since_us;
            }
            if !pending.leaves() {
                held_bytes += self.cost_bytes(*slot);
            }
            failing += usize::from(pending.failed);
            let queued =
                self.decisions.iter().filter(|decision| decision.file() == Some(file.id)).count();
            assert!(queued <= pending.out as usize, "{file:?}: {queued} decisions are queued");
            assert!(!pending.keeps || pending.out > 0);
        }
        assert_eq!(self.held_bytes, held_bytes);
        assert_eq!(self.failing, failing);
        let known = listed.iter().filter(|(_, slot)| self.pending.contains_key(slot)).count();
        assert_eq!(self.pending.len(), known);
        assert!(self.pending.values().all(|pending| pending.out > 0 || pending.failed));
        assert!(self.failing > 0 || self.retry_us.is_none(), "there is something to try again");
        assert!((PAUSE_US[0]..=PAUSE_US[1]).contains(&self.pause_us));
        let unsynced = self.ahead.as_ref().map_or(0, |ahead| ahead.unsynced.len());
        assert!(unsynced <= ahead::FILES, "{unsynced}");
    }
}
