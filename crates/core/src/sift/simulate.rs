//! A sifter in simulation: events in, the events that the page cache below it would see out.
//!
//! The files in RAM are this module's: it counts their pages, asks the sifter for space, performs
//! its decisions at once and reports each as done. Applications see one history; the storage below
//! sees another one, of the same final content.
//!
//! - A file that is born in RAM does not exist below. What is asked of it disappears.
//! - A write-back creates it below under the names that it has by then, and writes its extents; a
//!   sync follows where an application asked for one. From then on its events pass through.
//! - A dropped file does not exist below either. When it is read or changed the next time, the
//!   application fetches it again: that is a birth like the first, and writes of all its content.
//! - All other files, and all events of no file, pass through.
//!
//! A RAM that is full and in which no decision makes room lets the file that is written to spill to
//! flash.

use super::{Birth, Decision, Sift, Why};
use crate::{
    event::{Action, Create, Event, FileId, Knows, MaybeOwned, Micros, OpenId, Owner},
    page::PAGE_BYTES,
    structure::{
        Extents,
        extents::{pages_inside, pages_touched},
    },
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Stands for a name that a trace does not have.
const UNKNOWN: &str = "...";
/// Longest write of a write-back.
const WRITE_BYTES_MAX: usize = 1 << 30;

/// Files and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many files.
    pub files: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// What a sifter did with the files that were born.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Files born in RAM; those that were fetched again count again.
    pub born_in_ram: u64,
    /// Files born on flash, by reason.
    pub born_on_flash: BTreeMap<Why, u64>,
    /// Written to files in RAM, bytes.
    pub taken_bytes: u64,
    /// Written back, by reason.
    pub written_back: BTreeMap<Why, Amount>,
    /// Written to flash because RAM was full and no decision made room.
    pub spilled: Amount,
    /// Files deleted in RAM: they never reached flash.
    pub died_in_ram: u64,
    /// Removed without having been written.
    pub dropped: Amount,
    /// Dropped and wanted again.
    pub fetched_again: Amount,
    /// Allocated in RAM now, bytes.
    pub ram_bytes: u64,
    /// Allocated in RAM at most, bytes.
    pub ram_bytes_peak: u64,
}

impl Counters {
    /// Bytes written back or spilled.
    pub fn written_bytes(&self) -> u64 {
        self.written_back.values().map(|amount| amount.bytes).sum::<u64>() + self.spilled.bytes
    }

    /// Bytes that were written to RAM and never to flash: overwritten, cut off, deleted or dropped
    /// there; while files are in RAM, theirs too.
    pub fn never_written_bytes(&self) -> u64 {
        self.taken_bytes - self.written_bytes()
    }
}

/// A sifter with the RAM that it decides on.
pub struct Sifted<S> {
    sift: S,
    budget_bytes: u64,
    knows: Knows,
    /// Those in RAM, and those that were dropped.
    files: HashMap<FileId, File, FixedState>,
    /// Last names of files of which nothing else is known yet: perhaps they are new.
    bound: HashMap<FileId, Box<str>, FixedState>,
    now: Micros,
    counters: Counters,
    log: Option<Vec<(Micros, Decision)>>,
}

struct File {
    origin: Origin,
    names: Vec<Box<str>>,
    opens: Vec<Option<OpenId>>,
    size: u64,
    /// Bytes that hold data.
    content: Extents,
    /// Those of them that are not below.
    dirty: Extents,
    /// Pages that hold data.
    pages: Extents,
    place: Place,
    /// Its name passed through before the trace said that it is new. So do all later events of its
    /// names, and its end.
    bound: bool,
}

/// How the trace says that a file came into being.
#[derive(Clone, Copy)]
enum Origin {
    Create { owner: Option<Owner>, mode: Option<u32>, sync: bool },
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ram,
    /// In RAM and below.
    Both,
    Dropped,
    /// It has neither a name nor an open: what is still asked of it leads nowhere.
    Dead,
}

impl<S: Sift> Sifted<S> {
    /// Before the first event of a trace that knows this, with so many bytes of RAM for files.
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
        }
    }

    /// Keeps every decision with its time.
    pub fn logged(mut self) -> Self {
        self.log = Some(Vec::new());
        self
    }

    /// Decisions so far, where they are kept.
    pub fn log(&self) -> &[(Micros, Decision)] {
        self.log.as_deref().unwrap_or_default()
    }

    /// What the sifter did so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes the next event; `below` gets what the storage below sees of it.
    pub fn event(&mut self, event: &Event<'_>, below: &mut impl FnMut(&Event<'_>)) {
        self.deadlines(event.at_us, below);
        self.now = event.at_us;
        self.take(event, below);
    }

    /// The end of the mount: what is in RAM under a name is written back.
    pub fn finish(&mut self, below: &mut impl FnMut(&Event<'_>)) {
        self.deadlines(self.now, below);
        self.sift.handle(self.now, &ours(self.now, Action::SyncAll));
        self.perform(below);
    }

    /// What was due until then, each at its time.
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
                self.files.values_mut().for_each(|file| file.moved(&names.from, &names.to));
                self.through(event, below);
            }
            action => match action.file() {
                Some(file) => self.of_file(file, event, below),
                None => self.through(event, below),
            },
        }
    }

    /// What is not about a file in RAM.
    fn through<F: FnMut(&Event<'_>)>(&mut self, event: &Event<'_>, below: &mut F) {
        below(event);
        self.sift.handle(self.now, event);
        self.perform(below);
    }

    /// A file comes into being. `event`: what passes through if that is on flash.
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
                let names = if create.name.is_empty() { vec![] } else { vec![(*create.name).into()] };
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
            Action::Write { .. } | Action::Truncate { .. } | Action::Punch { .. } | Action::Direct { .. }
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
        if file.place == Place::Dead && !matches!(event.action, Action::Gone { .. }) {
            return self.sift.handle(self.now, event);
        }
        if file.place == Place::Dropped && (changes || matches!(event.action, Action::Read { .. })) {
            if matches!(event.action, Action::Truncate { .. }) {
                // What is cut off is not wanted.
                file.apply(&event.action);
            }
            self.fetch(id, below);
        }
        if let Action::Write { offset, len, .. } | Action::Direct { offset, len, write: true, .. } =
            event.action
        {
            self.make_room(id, offset, len, below);
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
            self.counters.died_in_ram += u64::from(file.place == Place::Ram);
            self.remove(id);
        } else if file.is_dead(&event.action) {
            self.counters.died_in_ram += u64::from(file.place == Place::Ram);
            self.counters.ram_bytes -= file.allocated();
            let dead = File::new(file.origin, Vec::new());
            *file = File { place: Place::Dead, bound: file.bound || file.place == Place::Both, ..dead };
        }
        self.sift.handle(self.now, event);
        self.perform(below);
    }

    /// The file is no longer in RAM.
    fn remove(&mut self, id: FileId) -> Option<File> {
        let file = self.files.remove(&id)?;
        self.counters.ram_bytes -= file.allocated();
        Some(file)
    }

    /// RAM has room for this write, or the file is no longer in RAM.
    fn make_room<F: FnMut(&Event<'_>)>(&mut self, id: FileId, offset: u64, len: u64, below: &mut F) {
        loop {
            let Some(file) = self.files.get(&id) else { return };
            let bytes = file.pages.missing(pages_touched(offset, len)).saturating_mul(PAGE_BYTES);
            let before = self.counters.ram_bytes;
            if bytes == 0 || before.saturating_add(bytes) <= self.budget_bytes {
                return;
            }
            self.sift.need_space(self.now, bytes);
            self.perform(below);
            if self.counters.ram_bytes >= before && self.files.contains_key(&id) {
                break;
            }
        }
        let bytes = self.write_back(id, below);
        self.counters.spilled.add(bytes);
        self.remove(id);
        self.sift.done(self.now, id, Ok(()));
        self.perform(below);
    }

    /// Performs the decisions that there are. How many.
    fn perform<F: FnMut(&Event<'_>)>(&mut self, below: &mut F) -> usize {
        let mut performed = 0;
        while let Some(decision) = self.sift.poll() {
            performed += 1;
            if let Some(log) = &mut self.log {
                log.push((self.now, decision));
            }
            match decision {
                Decision::WriteBack { file, keep_in_ram, why } => {
                    let bytes = self.write_back(file, below);
                    self.counters.written_back.entry(why).or_default().add(bytes);
                    if why == Why::Sync {
                        below(&ours(self.now, Action::Sync { file, offset: 0, len: u64::MAX }));
                    }
                    match self.files.get_mut(&file) {
                        Some(file) if keep_in_ram => file.place = Place::Both,
                        _ => drop(self.remove(file)),
                    }
                }
                Decision::Drop { file, .. } => {
                    let dropped = self.files.get_mut(&file).expect("a file in RAM is dropped");
                    self.counters.dropped.add(dropped.content.covered());
                    self.counters.ram_bytes -= dropped.allocated();
                    dropped.pages = Extents::default();
                    dropped.dirty = Extents::default();
                    assert_eq!(dropped.place, Place::Ram, "a file that is below is not dropped");
                    dropped.place = Place::Dropped;
                }
                Decision::CloseEpoch => below(&ours(self.now, Action::SyncAll)),
            }
            if let Some(file) = decision.file() {
                self.sift.done(self.now, file, Ok(()));
            }
        }
        performed
    }

    /// Below, the file is as it is here. How many bytes were written.
    fn write_back<F: FnMut(&Event<'_>)>(&mut self, id: FileId, below: &mut F) -> u64 {
        let file = self.files.get_mut(&id).expect("a file in RAM is written back");
        assert!(matches!(file.place, Place::Ram | Place::Both), "a file in RAM is written back");
        let mut emit = |action: Action<'_>| below(&ours(self.now, action));
        if file.place == Place::Ram {
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
        for range in file.dirty.iter() {
            let ends = range.clone().step_by(WRITE_BYTES_MAX);
            for offset in ends {
                let len = (range.end - offset).min(WRITE_BYTES_MAX as u64);
                emit(Action::Write { file: id, open: None, offset, len, sync: false });
            }
        }
        if file.place == Place::Ram && file.size > file.content.end() {
            emit(Action::Truncate { file: id, size: file.size });
        }
        std::mem::take(&mut file.dirty).covered()
    }

    /// A dropped file is wanted: the application makes it again.
    fn fetch<F: FnMut(&Event<'_>)>(&mut self, id: FileId, below: &mut F) {
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

    /// Re-derives every invariant; panics where one is broken.
    pub fn check(&self) {
        self.sift.check();
        let counters = &self.counters;
        let mut ram_bytes = 0;
        for (id, file) in &self.files {
            [&file.content, &file.dirty, &file.pages].into_iter().for_each(Extents::check);
            let dirty_only = file.dirty.iter().map(|range| file.content.missing(range)).sum::<u64>();
            assert_eq!(dirty_only, 0, "{id:?}: what is dirty is content");
            assert!(file.content.end() <= file.size, "{id:?}: content lies in the file");
            match file.place {
                Place::Ram => assert_eq!(file.dirty, file.content, "{id:?}: nothing of it is below"),
                Place::Both => {}
                Place::Dropped | Place::Dead => assert!(file.pages.is_empty(), "{id:?} takes no RAM"),
            }
            ram_bytes += file.allocated();
        }
        assert_eq!(counters.ram_bytes, ram_bytes);
        assert!(ram_bytes <= counters.ram_bytes_peak && counters.ram_bytes_peak <= self.budget_bytes);
        assert!(counters.written_bytes() <= counters.taken_bytes);
    }
}

/// An event of no process: the mount does it.
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
            content,
            dirty,
            pages,
            place: Place::Ram,
            bound: false,
        }
    }

    fn allocated(&self) -> u64 {
        self.pages.covered() * PAGE_BYTES
    }

    /// What is below sees it, although the file is in RAM.
    fn passes(&self, action: &Action<'_>) -> bool {
        match action {
            Action::Read { .. } | Action::Write { .. } | Action::Direct { .. } | Action::Sync { .. } => false,
            Action::Bind { .. }
            | Action::Link { .. }
            | Action::Rename { .. }
            | Action::Unbind { .. }
            | Action::Gone { .. } => self.bound || self.place == Place::Both,
            _ => self.place == Place::Both,
        }
    }

    /// It has lost its last name or its last open, and has neither.
    fn is_dead(&self, action: &Action<'_>) -> bool {
        matches!(action, Action::Unbind { .. } | Action::Close { .. })
            && self.names.is_empty()
            && self.opens.is_empty()
    }

    /// How many bytes.
    fn write(&mut self, action: &Action<'_>) -> u64 {
        let (Action::Write { offset, len, .. } | Action::Direct { offset, len, .. }) = *action else {
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

    /// What is not written.
    fn apply(&mut self, action: &Action<'_>) {
        match action {
            Action::Truncate { size, .. } => {
                self.size = *size;
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
            // A file has as many names as a sifter counts, which does not keep them.
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

    /// A directory moved.
    fn moved(&mut self, from: &str, to: &str) {
        for name in &mut self.names {
            if let Some(rest) = name.strip_prefix(from).filter(|rest| rest.starts_with('/')) {
                *name = format!("{to}{rest}").into();
            }
        }
    }
}
