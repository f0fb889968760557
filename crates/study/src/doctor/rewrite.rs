//! Events as storage would get them, were the files of a directory below a mount of flashsift, or
//! were a program to hold what it writes for longer.

use super::what_if::{MOUNT_BYTES, MountedWith};
use flashsift_events::{
    event::{Action, Create, Event, FileId, Knows, Micros},
    page::PAGE_BYTES,
    structure::Extents,
};
use flashsift_files::sift::{
    Birth, Blocked, BoxedSift, Decision, Droppable, Keep, KeepConfig, Reason, Selection, Sift,
    live::{Live, LiveSifter},
    simulate::Sifted,
};
use std::collections::{BTreeMap, BTreeSet};

/// A sifter that gets no files but these.
pub(super) struct Within<'a> {
    inner: BoxedSift,
    files: &'a BTreeSet<FileId>,
}

/// Returns a mount that holds these files.
pub(super) fn mounted<'a>(
    files: &'a BTreeSet<FileId>,
    with: MountedWith,
    knows: Knows,
) -> Sifted<Within<'a>> {
    let inner: BoxedSift = match with {
        MountedWith::Keep => {
            let keep = KeepConfig { budget_bytes: MOUNT_BYTES, ..KeepConfig::default() };
            Box::new(Keep::new(keep))
        }
        MountedWith::Controller => {
            let sifter = Selection::parse("controller").expect("it is in the list");
            let chosen = LiveSifter::new(sifter, Droppable::caches(), MOUNT_BYTES);
            Box::new(Live::sifting(MOUNT_BYTES, chosen).expect("it needs no model"))
        }
    };
    Sifted::new(Within { inner, files }, MOUNT_BYTES, knows)
}

impl Sift for Within<'_> {
    fn birth(&mut self, now: Micros, create: &Create<'_>) -> Birth {
        match self.files.contains(&create.file) {
            true => self.inner.birth(now, create),
            false => Birth::Flash(Reason::All),
        }
    }
    fn handle(&mut self, now: Micros, event: &Event<'_>) {
        let file = match &event.action {
            Action::Create(create) => Some(create.file),
            action => action.file(),
        };
        // It would take the file of another directory as one that is in RAM.
        if file.is_none_or(|file| self.files.contains(&file)) {
            self.inner.handle(now, event);
        }
    }
    fn done(&mut self, now: Micros, file: FileId, result: Result<(), Blocked>) {
        self.inner.done(now, file, result);
    }
    fn need_space(&mut self, now: Micros, bytes: u64) {
        self.inner.need_space(now, bytes);
    }
    fn resize(&mut self, now: Micros, budget_bytes: u64) {
        self.inner.resize(now, budget_bytes);
    }
    fn held_bytes(&self) -> u64 {
        self.inner.held_bytes()
    }
    fn oldest_us(&self, now: Micros) -> Option<Micros> {
        self.inner.oldest_us(now)
    }
    fn next_deadline(&self) -> Option<Micros> {
        self.inner.next_deadline()
    }
    fn handle_deadline(&mut self, now: Micros) {
        self.inner.handle_deadline(now);
    }
    fn poll(&mut self) -> Option<Decision> {
        self.inner.poll()
    }
    fn check(&self) {
        self.inner.check();
    }
}

/// Writes of files that are held for a while, each page once, and then made.
pub(super) struct Waiting<'a> {
    files: &'a BTreeSet<FileId>,
    us: Micros,
    /// The mount's log, if syncs wait; otherwise they pass.
    log: Option<FileId>,
    changed: BTreeMap<FileId, Extents>,
    due_us: Option<Micros>,
    last: Option<Event<'static>>,
}

impl<'a> Waiting<'a> {
    /// A program writes these files in larger pieces, after this time.
    pub(super) fn held(files: &'a BTreeSet<FileId>, us: Micros) -> Self {
        Self { files, us, log: None, changed: BTreeMap::new(), due_us: None, last: None }
    }

    /// The syncs of these files wait for this time. Then all changes reach flash together: each
    /// page in a log that is synced, and in its place. The mount defers the second, so this is the
    /// most that it writes.
    pub(super) fn epochs(files: &'a BTreeSet<FileId>, us: Micros, events: &[Event<'_>]) -> Self {
        let last = events.iter().filter_map(|event| event.action.file()).max();
        let log = FileId(last.map_or(0, |last| last.0.saturating_add(1)));
        Self { log: Some(log), ..Self::held(files, us) }
    }

    /// Appends what becomes of an event.
    pub(super) fn rewrite(&mut self, event: &Event<'static>, out: &mut Vec<Event<'static>>) {
        if let Some(due_us) = self.due_us.filter(|due_us| *due_us <= event.at_us) {
            self.write(Event { at_us: due_us, ..event.clone() }, out);
        }
        self.last = Some(event.clone());
        let own = event.action.file().filter(|file| self.files.contains(file));
        let Some(file) = own else { return out.push(event.clone()) };
        match event.action {
            Action::Write { offset, len, .. } => {
                self.changed.entry(file).or_default().insert(offset..offset.saturating_add(len));
                // Without a log, the oldest change counts; with one, the oldest sync.
                if self.log.is_none() {
                    self.due_us.get_or_insert(event.at_us.saturating_add(self.us));
                }
            }
            Action::Sync { .. } if self.log.is_some() => {
                self.due_us.get_or_insert(event.at_us.saturating_add(self.us));
            }
            Action::Gone { .. } => {
                self.changed.remove(&file);
                out.push(event.clone());
            }
            _ => out.push(event.clone()),
        }
    }

    /// Writes what still waits.
    pub(super) fn finish(&mut self, out: &mut Vec<Event<'static>>) {
        if let Some(last) = self.last.take() {
            self.write(last, out);
        }
    }

    fn write(&mut self, at: Event<'static>, out: &mut Vec<Event<'static>>) {
        self.due_us = None;
        let mut logged = 0;
        for (file, extents) in std::mem::take(&mut self.changed) {
            for range in extents.iter() {
                let (offset, len) = (range.start, range.end - range.start);
                let action = Action::Write { file, open: None, offset, len, sync: false };
                out.push(Event { action, ..at.clone() });
                logged += (range.end - 1) / PAGE_BYTES - range.start / PAGE_BYTES + 1;
            }
        }
        if let Some(file) = self.log.filter(|_| logged > 0) {
            // A page says what follows.
            let len = (logged + 1) * PAGE_BYTES;
            let write = Action::Write { file, open: None, offset: 0, len, sync: false };
            let sync = Action::Sync { file, offset: 0, len: u64::MAX, data_only: true };
            out.extend([write, sync].map(|action| Event { action, ..at.clone() }));
        }
    }
}
