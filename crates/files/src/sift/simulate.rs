//! A sifter in simulation: it takes events, and emits those that the page cache below it gets.
//!
//! This module holds the files in RAM: it counts their pages, asks the sifter for space, performs
//! its decisions at once and reports each as done. Applications see one history; the storage below
//! sees another one with the same final content.
//!
//! - A file created in RAM does not exist below. Accesses to it do not reach the storage below.
//! - A write-back creates the file below under its current names, and writes its extents. A sync
//!   follows only if an application asked for one ([`Reason::Sync`]): the mount forces no commit
//!   for any other reason. From then on the file's events pass through.
//! - A file that stays in RAM at its write-back exists in both. If its content has changed, the
//!   next write-back writes the whole file again, because the mount replaces files as a whole.
//! - A dropped file does not exist below either. When it is next read, changed or synced, the
//!   application fetches it again: it is created like the first time, and all its content is
//!   written.
//! - The events of all other files, and events that concern no file, pass through.
//!
//! If RAM is full and no decision frees space, the file that is written to spills to flash.

use super::{Birth, Decision, Explanation, Intent, Reason, Sift};
use flashsift_events::{
    event::{Action, Create, Event, FileId, FileOwner, Knows, MaybeOwned, Micros, OpenId, Renamed},
    page::PAGE_BYTES,
    structure::{
        Extents,
        extents::{pages_inside, pages_touched},
    },
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};
use watched::Watched;

#[cfg(test)]
mod tests;
mod watched;

pub use watched::{ExplainedDecision, Followed};

/// Name of a file whose name the trace does not have.
const UNKNOWN: &str = "...";
/// Longest single write of a write-back.
const WRITE_BYTES_MAX: usize = 1 << 30;

/// A number of files and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Number of files.
    pub files: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// The effects of a sifter on the files created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Files created in RAM; files that were fetched again count again.
    pub born_in_ram: u64,
    /// Files created on flash, by reason.
    pub born_on_flash: BTreeMap<Reason, u64>,
    /// Bytes written to files in RAM.
    pub taken_bytes: u64,
    /// Files written back, by reason.
    pub written_back: BTreeMap<Reason, Amount>,
    /// Files written to flash because RAM was full and no decision freed space.
    pub spilled: Amount,
    /// Files deleted in RAM: they never reached flash.
    pub died_in_ram: u64,
    /// Files removed without having been written.
    pub dropped: Amount,
    /// Dropped files that an application used again.
    pub fetched_again: Amount,
    /// Bytes allocated in RAM now.
    pub ram_bytes: u64,
    /// Most bytes allocated in RAM at any time.
    pub ram_bytes_peak: u64,
}

impl Counters {
    /// Returns the bytes written back or spilled.
    pub fn written_bytes(&self) -> u64 {
        self.written_back.values().map(|amount| amount.bytes).sum::<u64>() + self.spilled.bytes
    }

    /// Returns the bytes that were written to RAM and never to flash: overwritten, truncated,
    /// deleted or dropped there. While files are in RAM, their bytes count too. Files that were
    /// written back several times lower the number; it is never below 0.
    pub fn never_written_bytes(&self) -> u64 {
        self.taken_bytes.saturating_sub(self.written_bytes())
    }
}

/// A sifter together with the files in RAM that it decides on.
pub struct Sifted<S> {
    sift: S,
    budget_bytes: u64,
    knows: Knows,
    /// Files in RAM, and dropped files.
    files: HashMap<FileId, File, FixedState>,
    /// The last name of each file of which nothing else is known yet: it may be new.
    bound: HashMap<FileId, Box<str>, FixedState>,
    now: Micros,
    counters: Counters,
    log: Option<Vec<(Micros, Decision)>>,
    /// Dropped files, the first of them first, and how many are remembered.
    dropped: VecDeque<FileId>,
    dropped_max: usize,
    watched: Option<Watched>,
}

struct File {
    origin: Origin,
    names: Vec<Box<str>>,
    opens: Vec<Option<OpenId>>,
    size: u64,
    /// Size of the file below, 0 if there is none.
    size_below: u64,
    /// Bytes that hold data.
    content: Extents,
    /// Dirty bytes: those of the content that the storage below lacks.
    dirty: Extents,
    /// Pages that hold data.
    pages: Extents,
    place: SimulatedState,
    /// The file's name passed through before the trace showed that the file is new. Later events of
    /// its names, and its end, then pass through too.
    bound: bool,
}

/// The way in which the trace shows that a file was created.
#[derive(Clone, Copy)]
enum Origin {
    Create { owner: Option<FileOwner>, mode: Option<u32>, sync: bool },
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimulatedState {
    Ram,
    /// In RAM and below.
    Both,
    Dropped,
    /// The file has neither a name nor an open: the remaining events on it are discarded.
    Dead,
}

impl<S: Sift> Sifted<S> {
    /// Begins before the first event of a trace with these facts, with this much RAM for files.
    pub fn new(sift: S, budget_bytes: u64, knows: Knows) -> Self {
        Self {
            sift,
            budget_bytes,
            knows,
            files: HashMap::default(),
            bound: HashMap::default(),
            now: 0,
            counters: Counters::default(),
            log: None,
            dropped: VecDeque::new(),
            dropped_max: usize::MAX,
            watched: None,
        }
    }

    /// Makes the simulation keep every decision with its time.
    pub fn logged(mut self) -> Self {
        self.log = Some(Vec::new());
        self
    }

    /// Makes the simulation remember at most this many dropped files. A use of one that it has
    /// forgotten is one of a file that exists below.
    pub fn remembering(mut self, most: usize) -> Self {
        self.dropped_max = most;
        self
    }

    /// Returns the size of a file, bytes, if it was dropped and not used since.
    pub fn dropped_size(&self, file: FileId) -> Option<u64> {
        self.files
            .get(&file)
            .filter(|file| file.place == SimulatedState::Dropped)
            .map(|file| file.size)
    }

    /// Returns whether the simulation has this file, in RAM or as one that was dropped.
    pub fn has(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    /// Returns the RAM that the pages of a file take, bytes.
    pub fn ram_bytes_of(&self, file: FileId) -> u64 {
        self.files.get(&file).map_or(0, File::allocated)
    }

    /// Returns the decisions so far, if they are kept.
    pub fn log(&self) -> &[(Micros, Decision)] {
        self.log.as_deref().unwrap_or_default()
    }

    /// Makes the simulation explain the decisions on files whose name matches one of these shell
    /// patterns, in which `*` also stands for `/`.
    pub fn explaining(mut self, patterns: &[String]) -> Self {
        self.sift.record_explanations();
        self.watched = Some(Watched::new(patterns));
        self
    }

    /// Returns the explained decisions so far, in order.
    pub fn explained(&self) -> &[ExplainedDecision] {
        self.watched.as_ref().map_or(&[], Watched::decisions)
    }

    /// Returns the sifter's effects so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes the next event; `below` gets the events that reach the storage below.
    pub fn event(&mut self, event: &Event<'_>, below: &mut impl FnMut(&Event<'_>)) {
        self.deadlines(event.at_us, below);
        self.now = event.at_us;
        if let Some(watched) = &mut self.watched {
            watched.event(event.at_us, &event.action);
        }
        self.take(event, below);
    }

    /// Calls the sifter at the time of the last event, and performs the decisions that follow.
    pub fn call<T>(
        &mut self,
        call: impl FnOnce(&mut S, Micros) -> T,
        below: &mut impl FnMut(&Event<'_>),
    ) -> T {
        let answer = call(&mut self.sift, self.now);
        self.perform(below);
        answer
    }

    /// Ends the mount: files in RAM that have a name are written back.
    pub fn finish(&mut self, below: &mut impl FnMut(&Event<'_>)) {
        self.deadlines(self.now, below);
        self.sift.handle(self.now, &ours(self.now, Action::SyncAll));
        self.perform(below);
    }

    /// Handles every deadline until `until`, each at its time.
    fn deadlines(&mut self, until: Micros, below: &mut impl FnMut(&Event<'_>)) {
        while let Some(deadline) = self.sift.next_deadline().filter(|deadline| *deadline <= until) {
            self.now = deadline.max(self.now);
            self.sift.handle_deadline(self.now);
            let performed = self.perform(below);
            assert!(
                performed > 0 || self.sift.next_deadline() != Some(deadline),
                "a deadline leads to a decision or to another deadline"
            );
        }
    }

    fn take<F: FnMut(&Event<'_>)>(&mut self, event: &Event<'_>, below: &mut F) {
        match &event.action {
            Action::Create(create) => {
                let Create { owner, mode, sync, .. } = **create;
                self.born(create, Origin::Create { owner, mode, sync }, Some(event), below);
            }
            Action::Open { file, created: true, .. }
                if !self.knows.creations && !self.files.contains_key(file) =>
            {
                let bound = self.bound.remove(file);
                let name = MaybeOwned::Borrowed(bound.as_deref().unwrap_or(UNKNOWN));
                let create = Create { file: *file, name, owner: None, mode: None, sync: false };
                self.born(&create, Origin::Open, None, below);
                if let Some(file) = self.files.get_mut(file) {
                    file.bound = bound.is_some();
                }
                self.of_file(*file, event, below);
            }
            Action::SyncAll => {
                self.sift.handle(event.at_us, event);
                self.perform(below);
                below(event);
            }
            Action::RenameDirectory { names } => {
                self.files.values_mut().for_each(|file| file.moved(names));
                self.through(event, below);
            }
            action => match action.file() {
                Some(file) => self.of_file(file, event, below),
                None => self.through(event, below),
            },
        }
    }

    /// Passes on an event that does not concern a file in RAM.
    fn through<F: FnMut(&Event<'_>)>(&mut self, event: &Event<'_>, below: &mut F) {
        below(event);
        self.sift.handle(self.now, event);
        self.perform(below);
    }

    /// Handles the creation of a file. `event` passes through if the file is created on flash.
    fn born<F: FnMut(&Event<'_>)>(
        &mut self,
        create: &Create<'_>,
        origin: Origin,
        event: Option<&Event<'_>>,
        below: &mut F,
    ) {
        match self.sift.birth(self.now, create) {
            Birth::Ram => {
                self.counters.born_in_ram += 1;
                let names =
                    if create.name.is_empty() { vec![] } else { vec![(*create.name).into()] };
                self.files.insert(create.file, File::new(origin, names));
            }
            Birth::Flash(why) => {
                *self.counters.born_on_flash.entry(why).or_default() += 1;
                if let Some(event) = event {
                    below(event);
                }
            }
        }
        let create = ours(self.now, Action::Create(MaybeOwned::Borrowed(create)));
        self.sift.handle(self.now, event.unwrap_or(&create));
        self.perform(below);
    }

    fn of_file<F: FnMut(&Event<'_>)>(&mut self, id: FileId, event: &Event<'_>, below: &mut F) {
        let changes = matches!(
            event.action,
            Action::Write { .. }
                | Action::Truncate { .. }
                | Action::Punch { .. }
                | Action::Direct { .. }
        );
        let Some(file) = self.files.get_mut(&id) else {
            match &event.action {
                Action::Bind { name, .. } if !self.knows.creations => {
                    self.bound.insert(id, (**name).into());
                }
                _ if self.bound.is_empty() => {}
                _ => drop(self.bound.remove(&id)),
            }
            return self.through(event, below);
        };
        if file.place == SimulatedState::Dead && !matches!(event.action, Action::Gone { .. }) {
            return self.sift.handle(self.now, event);
        }
        let uses = changes || matches!(event.action, Action::Read { .. } | Action::Sync { .. });
        if file.place == SimulatedState::Dropped && uses {
            if matches!(event.action, Action::Truncate { .. }) {
                // The truncated part of a dropped file is not fetched.
                file.apply(&event.action);
            }
            self.fetch(id, below);
        }
        if let Action::Write { offset, len, .. } | Action::Direct { offset, len, write: true, .. } =
            event.action
        {
            self.make_room(id, offset, len, below);
            // A file that is open is not dropped; but not every trace tells when files are open.
            if self.files.get(&id).is_some_and(|file| file.place == SimulatedState::Dropped) {
                self.fetch(id, below);
                self.make_room(id, offset, len, below);
            }
        }
        let Some(file) = self.files.get_mut(&id) else { return self.through(event, below) };
        let allocated = file.allocated();
        if matches!(event.action, Action::Write { .. } | Action::Direct { write: true, .. }) {
            self.counters.taken_bytes += file.write(&event.action);
        }
        file.apply(&event.action);
        self.counters.ram_bytes = self.counters.ram_bytes - allocated + file.allocated();
        self.counters.ram_bytes_peak = self.counters.ram_bytes_peak.max(self.counters.ram_bytes);
        if file.passes(&event.action) {
            below(event);
        }
        if matches!(event.action, Action::Gone { .. }) {
            self.counters.died_in_ram += u64::from(file.place == SimulatedState::Ram);
            self.remove(id);
        } else if file.is_dead(&event.action) {
            self.counters.died_in_ram += u64::from(file.place == SimulatedState::Ram);
            self.counters.ram_bytes -= file.allocated();
            let dead = File::new(file.origin, Vec::new());
            *file = File {
                place: SimulatedState::Dead,
                bound: file.bound || file.place == SimulatedState::Both,
                ..dead
            };
        }
        self.sift.handle(self.now, event);
        self.perform(below);
    }

    /// Removes a file that is no longer in RAM.
    fn remove(&mut self, id: FileId) -> Option<File> {
        let file = self.files.remove(&id)?;
        self.counters.ram_bytes -= file.allocated();
        Some(file)
    }

    /// Frees the space in RAM that this write needs, or moves the file out of RAM.
    fn make_room<F: FnMut(&Event<'_>)>(
        &mut self,
        id: FileId,
        offset: u64,
        len: u64,
        below: &mut F,
    ) {
        loop {
            let Some(file) = self.files.get(&id) else { return };
            let bytes = file.pages.missing(pages_touched(offset, len)).saturating_mul(PAGE_BYTES);
            let before = self.counters.ram_bytes;
            if bytes == 0 || before.saturating_add(bytes) <= self.budget_bytes {
                return;
            }
            self.sift.need_space(self.now, bytes);
            self.perform(below);
            match self.files.get(&id) {
                Some(file) if file.place == SimulatedState::Dropped => return,
                Some(_) if self.counters.ram_bytes >= before => break,
                _ => {}
            }
        }
        let rule = "RAM is full, and no other file can leave it.";
        let spill = Decision::WriteBack { file: id, keep_in_ram: false, why: Reason::Space };
        self.explain(spill, |_, bytes| Explanation::new(Intent::Write, rule, bytes));
        let bytes = self.write_back(id, below);
        self.counters.spilled.add(bytes);
        self.remove(id);
        self.sift.done(self.now, id, Ok(()));
        self.perform(below);
    }

    /// Performs the pending decisions. Returns how many there were.
    fn perform<F: FnMut(&Event<'_>)>(&mut self, below: &mut F) -> usize {
        let mut performed = 0;
        while let Some(decision) = self.sift.poll() {
            performed += 1;
            if let Some(log) = &mut self.log {
                log.push((self.now, decision));
            }
            if let (Some(file), Some(why)) = (decision.file(), decision.why()) {
                let now = self.now;
                self.explain(decision, |sift, bytes| {
                    let plain = || Explanation::new(decision.intent(), why.sentence(), bytes);
                    sift.explain(now, file).unwrap_or_else(plain)
                });
            }
            match decision {
                Decision::WriteBack { file, keep_in_ram, why } => {
                    let bytes = self.write_back(file, below);
                    self.counters.written_back.entry(why).or_default().add(bytes);
                    if why == Reason::Sync {
                        below(&ours(
                            self.now,
                            Action::Sync { file, offset: 0, len: u64::MAX, data_only: false },
                        ));
                    }
                    match self.files.get_mut(&file) {
                        Some(file) if keep_in_ram => file.place = SimulatedState::Both,
                        _ => drop(self.remove(file)),
                    }
                }
                Decision::Drop { file, .. } => {
                    let dropped = self.files.get_mut(&file).expect("a file in RAM is dropped");
                    self.counters.dropped.add(dropped.content.covered());
                    self.counters.ram_bytes -= dropped.allocated();
                    dropped.pages = Extents::default();
                    dropped.dirty = Extents::default();
                    assert_eq!(
                        dropped.place,
                        SimulatedState::Ram,
                        "a file that is below is not dropped"
                    );
                    let is_open = self.knows.opens && !dropped.opens.is_empty();
                    assert!(!is_open, "a file that is open is not dropped");
                    dropped.place = SimulatedState::Dropped;
                    if self.dropped_max < usize::MAX {
                        self.remember(file);
                    }
                }
                Decision::CloseEpoch => below(&ours(self.now, Action::SyncAll)),
            }
            if let Some(file) = decision.file() {
                self.sift.done(self.now, file, Ok(()));
            }
        }
        performed
    }

    /// Remembers a dropped file, and forgets the first ones if there are too many.
    fn remember(&mut self, file: FileId) {
        self.dropped.push_back(file);
        while self.dropped.len() > self.dropped_max {
            let Some(first) = self.dropped.pop_front() else { return };
            if self.files.get(&first).is_some_and(|file| file.place == SimulatedState::Dropped) {
                self.files.remove(&first);
            }
        }
    }

    /// Explains a decision that is about to be performed, if that is wanted. The explanation gets
    /// the bytes of the file.
    fn explain(&mut self, decision: Decision, explanation: impl FnOnce(&S, u64) -> Explanation) {
        let Some(file) = decision.file().and_then(|id| self.files.get(&id)) else { return };
        let Some(watched) = &mut self.watched else { return };
        let Some(name) = watched.chosen(&file.names) else { return };
        let bytes = file.content.covered();
        watched.decided(ExplainedDecision {
            at_us: self.now,
            name: name.to_owned(),
            bytes,
            decision,
            explanation: explanation(&self.sift, bytes),
            followed: Followed::Nothing,
        });
    }

    /// Makes the file below equal to the one in RAM. Returns the number of bytes written.
    fn write_back<F: FnMut(&Event<'_>)>(&mut self, id: FileId, below: &mut F) -> u64 {
        let file = self.files.get_mut(&id).expect("a file in RAM is written back");
        assert!(
            matches!(file.place, SimulatedState::Ram | SimulatedState::Both),
            "a file in RAM is written back"
        );
        let mut emit = |action: Action<'_>| below(&ours(self.now, action));
        if file.place == SimulatedState::Ram {
            let name = MaybeOwned::Borrowed(file.names.first().map_or("", |name| &**name));
            match file.origin {
                Origin::Create { owner, mode, sync } => {
                    let create = Create { file: id, name, owner, mode, sync };
                    emit(Action::Create(MaybeOwned::Borrowed(&create)));
                }
                Origin::Open => {
                    if !file.bound && !name.is_empty() && *name != *UNKNOWN {
                        emit(Action::Bind { file: id, name });
                    }
                    emit(Action::Open { file: id, open: None, created: true });
                }
            }
            for name in file.names.iter().skip(1).filter(|_| !file.bound) {
                emit(Action::Link { file: id, name: MaybeOwned::Borrowed(name) });
            }
            if self.knows.opens {
                for open in &file.opens {
                    emit(Action::Open { file: id, open: *open, created: false });
                }
            }
        }
        let is_changed = !std::mem::take(&mut file.dirty).is_empty();
        for range in file.content.iter().filter(|_| is_changed) {
            let ends = range.clone().step_by(WRITE_BYTES_MAX);
            for offset in ends {
                let len = (range.end - offset).min(WRITE_BYTES_MAX as u64);
                emit(Action::Write { file: id, open: None, offset, len, sync: false });
            }
        }
        let written_end = if is_changed { file.content.end() } else { 0 };
        if file.size_below.max(written_end) != file.size {
            emit(Action::Truncate { file: id, size: file.size });
        }
        file.size_below = file.size;
        if is_changed { file.content.covered() } else { 0 }
    }

    /// Creates a dropped file again, because the application uses it.
    fn fetch<F: FnMut(&Event<'_>)>(&mut self, id: FileId, below: &mut F) {
        if let Some(watched) = &mut self.watched {
            watched.fetched(self.now, id);
        }
        let Some(file) = self.remove(id) else { return };
        self.counters.fetched_again.add(file.content.covered());
        let name = MaybeOwned::Borrowed(file.names.first().map_or("", |name| &**name));
        let mut take = |sifted: &mut Self, action: Action<'_>| {
            sifted.take(&ours(sifted.now, action), below);
        };
        let (owner, mode) = match file.origin {
            Origin::Create { owner, mode, .. } => (owner, mode),
            Origin::Open => (None, None),
        };
        let create = Create { file: id, name, owner, mode, sync: false };
        take(self, Action::Create(MaybeOwned::Borrowed(&create)));
        for name in file.names.iter().skip(1) {
            take(self, Action::Link { file: id, name: MaybeOwned::Borrowed(name) });
        }
        for open in &file.opens {
            take(self, Action::Open { file: id, open: *open, created: false });
        }
        for range in file.content.iter() {
            let (offset, len) = (range.start, range.end - range.start);
            take(self, Action::Write { file: id, open: None, offset, len, sync: false });
        }
        if file.size > file.content.end() {
            take(self, Action::Truncate { file: id, size: file.size });
        }
    }

    /// Re-derives every invariant.
    ///
    /// # Panics
    /// If one of them is broken.
    pub fn check(&self) {
        self.sift.check();
        let counters = &self.counters;
        let mut ram_bytes = 0;
        for (id, file) in &self.files {
            [&file.content, &file.dirty, &file.pages].into_iter().for_each(Extents::check);
            let dirty_only =
                file.dirty.iter().map(|range| file.content.missing(range)).sum::<u64>();
            assert_eq!(dirty_only, 0, "{id:?}: what is dirty is content");
            assert!(file.content.end() <= file.size, "{id:?}: content lies in the file");
            match file.place {
                SimulatedState::Ram => {
                    assert_eq!(file.dirty, file.content, "{id:?}: nothing of it is below")
                }
                SimulatedState::Both => {}
                SimulatedState::Dropped | SimulatedState::Dead => {
                    assert!(file.pages.is_empty(), "{id:?} takes no RAM")
                }
            }
            ram_bytes += file.allocated();
        }
        assert_eq!(counters.ram_bytes, ram_bytes);
        assert!(
            ram_bytes <= counters.ram_bytes_peak && counters.ram_bytes_peak <= self.budget_bytes
        );
    }
}

/// Returns an event of no process: the mount itself causes it.
fn ours(at_us: Micros, action: Action<'_>) -> Event<'_> {
    Event { at_us, pid: 0, tid: 0, action }
}

impl File {
    fn new(origin: Origin, names: Vec<Box<str>>) -> Self {
        let (content, dirty, pages) = <(Extents, Extents, Extents)>::default();
        Self {
            origin,
            names,
            opens: Vec::new(),
            size: 0,
            size_below: 0,
            content,
            dirty,
            pages,
            place: SimulatedState::Ram,
            bound: false,
        }
    }

    fn allocated(&self) -> u64 {
        self.pages.covered() * PAGE_BYTES
    }

    /// Returns whether the storage below gets this action although the file is in RAM.
    fn passes(&self, action: &Action<'_>) -> bool {
        match action {
            Action::Read { .. }
            | Action::Write { .. }
            | Action::Direct { .. }
            | Action::Folio { .. }
            | Action::Filled { .. }
            | Action::Sync { .. } => false,
            Action::Bind { .. }
            | Action::Link { .. }
            | Action::Rename { .. }
            | Action::Unbind { .. }
            | Action::Gone { .. } => self.bound || self.place == SimulatedState::Both,
            _ => self.place == SimulatedState::Both,
        }
    }

    /// Returns whether the action takes the file's last name or last open, and the file has neither
    /// then.
    fn is_dead(&self, action: &Action<'_>) -> bool {
        matches!(action, Action::Unbind { .. } | Action::Close { .. })
            && self.names.is_empty()
            && self.opens.is_empty()
    }

    /// Applies a write. Returns the number of bytes.
    fn write(&mut self, action: &Action<'_>) -> u64 {
        let (Action::Write { offset, len, .. } | Action::Direct { offset, len, .. }) = *action
        else {
            return 0;
        };
        let bytes = offset..offset.saturating_add(len);
        if len > 0 {
            self.size = self.size.max(bytes.end);
        }
        self.pages.insert(pages_touched(offset, len));
        self.content.insert(bytes.clone());
        self.dirty.insert(bytes.clone());
        bytes.end - bytes.start
    }

    /// Applies an action that is not a write.
    fn apply(&mut self, action: &Action<'_>) {
        match action {
            Action::Truncate { size, .. } => {
                self.size = *size;
                if self.place == SimulatedState::Both {
                    self.size_below = *size;
                }
                self.content.remove(*size..u64::MAX);
                self.dirty.remove(*size..u64::MAX);
                self.pages.remove(size.div_ceil(PAGE_BYTES)..u64::MAX);
            }
            Action::Punch { offset, len, .. } => {
                let bytes = *offset..offset.saturating_add(*len);
                self.content.remove(bytes.clone());
                self.dirty.remove(bytes);
                self.pages.remove(pages_inside(*offset, *len));
            }
            Action::Open { open, .. } => self.opens.push(*open),
            Action::Close { open, .. } => {
                let closed = self.opens.iter().position(|known| known == open);
                if !self.opens.is_empty() {
                    self.opens.swap_remove(closed.unwrap_or(0));
                }
            }
            // A sifter counts names without keeping them; the file has the same number of names
            // here.
            Action::Bind { name, .. } => match self.names.first_mut() {
                None => self.names.push((**name).into()),
                Some(known) if **known == *UNKNOWN => *known = (**name).into(),
                Some(_) => {}
            },
            Action::Link { name, .. } => self.names.push((**name).into()),
            Action::Rename { names, .. } => {
                let known = self.names.iter().position(|name| **name == *names.from).unwrap_or(0);
                match self.names.get_mut(known) {
                    Some(name) => *name = (*names.to).into(),
                    None => self.names.push((*names.to).into()),
                }
            }
            Action::Unbind { name, .. } => {
                let known = self.names.iter().position(|known| **known == **name).unwrap_or(0);
                if !self.names.is_empty() {
                    self.names.remove(known);
                }
            }
            _ => {}
        }
    }

    /// Handles the rename of a directory.
    fn moved(&mut self, names: &Renamed<'_>) {
        for name in &mut self.names {
            if let Some(moved) = names.moved(name) {
                *name = moved.into();
            }
        }
    }
}
