//! The end of an epoch.

use super::{Closer, Delayed, open_log};
use crate::fs::backing::INHERITED;
use crate::fs::beneath::{LOG, hidden_name, open_beneath};
use crate::fs::copying::{copy, hole_from, in_parts, set_times};
use crate::fs::delayed_file::{Base, DelayedFile, Left};
use crate::fs::namespace::Namespace;
use crate::fs::recovery::{
    apply_change, born_ns, open_in_any_case, remove, remove_hidden, set_attributes, set_modified,
    write_pages,
};
use crate::fs::table::Table;
use crate::fs::types::{Ino, Name, Names, ROOT, io};
use flashsift_events::page::PAGE_BYTES;
use flashsift_events::structure::Extents;
use flashsift_files::delayed::changes::Changes;
use flashsift_files::delayed::plan::{
    DeferredPages, EpochFile, EpochPlan, EpochStep, FileKey, KnownFile, Log, Standing,
};
use flashsift_files::delayed::record::{
    Attributes, EntryHead, FileRef, InPlace, InodeId, Path, Removal,
};
use flashsift_files::delayed::schedule::{Ending, Schedule};
use parking_lot::{MutexGuard, RwLockWriteGuard};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::{Errno, Result};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Deleted files that may be held.
const HELD: usize = 256;

/// A file of an epoch.
#[derive(Debug)]
struct Member {
    file: Arc<DelayedFile>,
    /// The changes that the epoch took.
    taken: Changes,
    ino: Ino,
    /// The file in BACKING, unless it is new there.
    base: Option<Arc<File>>,
    /// Its names there once the epoch is applied.
    names: Names,
}

/// An epoch whose content is captured.
#[derive(Debug)]
pub(super) struct Captured {
    plan: EpochPlan,
    members: Vec<Member>,
    /// Directory and name of each placement and removal of the record.
    places: Vec<(Ino, Name)>,
    removals: Vec<(Ino, Name)>,
    before: Schedule,
    /// The bytes before the pages of the entry.
    head: Vec<u8>,
    /// Bytes of new files and new parts.
    new_bytes: u64,
}

/// Bytes that are written to the log at a time.
const WRITE_BYTES: usize = 1 << 20;

/// The pages of an entry on their way to the log.
struct Entry<'a> {
    log: &'a File,
    head: EntryHead,
    /// Where the bytes go.
    at: u64,
    bytes: Vec<u8>,
}

impl Entry<'_> {
    /// Writes what there is, if it is much or `all`.
    fn write(&mut self, all: bool) -> Result<()> {
        if !all && self.bytes.len() < WRITE_BYTES {
            return Ok(());
        }
        let rest = self.head.add(&self.bytes).len() as u64;
        self.bytes.drain(..self.bytes.len() - rest as usize);
        if all {
            // To write a part of a page may need a read.
            let end = (self.at + rest).next_multiple_of(PAGE_BYTES);
            self.bytes.resize((end - self.at) as usize, 0);
        }
        io(self.log.write_all_at(&self.bytes, self.at))?;
        self.at += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }
}

/// Files that a checkpoint wrote and that are made durable one by one.
const FEW: usize = 8;

/// Entries of at most so many pages are small.
const SMALL_PAGES: u64 = 2;
/// Pages that the log gets ahead of time behind a small one.
const AHEAD_PAGES: u64 = 2;

/// Files of an epoch for which applications wait at once while it is put in place.
const AT_ONCE: usize = 64;

/// A new file of an epoch that was copied to a hidden name before the epoch is captured.
struct StagedFile {
    hidden: u64,
    /// The file's version before it was copied.
    version: u64,
    bytes: u64,
    /// Its descriptor, if it replaces another one.
    open: Option<Arc<File>>,
}

/// The copies by file. Those that the capture does not use are removed.
type StagedFiles = HashMap<Ino, StagedFile>;

/// Names that BACKING is to lose, each with its directory and name here.
type Removals = Vec<(Removal, (Ino, Name))>;

/// The names that a capture has made in the hidden directory.
#[derive(Default)]
struct Made {
    /// All names.
    hidden: Vec<u64>,
    /// A name of each new file, and its descriptor if it replaces another one.
    new: HashMap<FileKey, (u64, Option<Arc<File>>)>,
}

/// A file that may be part of the epoch.
struct Candidate {
    ino: Ino,
    file: Arc<DelayedFile>,
    /// Its names that BACKING does not have.
    missing: Names,
    names: Names,
    reserved: Vec<Range<u64>>,
}

impl Delayed {
    /// Ends the epoch: what was synced is durable then, or everything. Applications go on, except
    /// while it is captured.
    ///
    /// # Errors
    ///
    /// The first error. The changes are part of the next epoch then.
    pub(crate) fn end_epoch(&self, ending: Ending) -> Result<()> {
        if !self.is_used() {
            return Ok(());
        }
        let mut closer = self.closer.lock();
        self.end_epoch_with(&mut closer, ending)
    }

    /// Ends the epoch with all changes, makes it durable in place, and empties the log: until the
    /// guard is dropped, BACKING may be changed without an epoch.
    ///
    /// # Errors
    ///
    /// Those of the epoch, or of the commit.
    pub(crate) fn fence(&self) -> Result<MutexGuard<'_, Closer>> {
        let mut closer = self.closer.lock();
        self.end_epoch_with(&mut closer, Ending::Asked)?;
        self.empty_log(&mut closer)?;
        // The next epoch depends on the changes that follow.
        self.names_changed_below();
        Ok(closer)
    }

    /// Ends the epoch because flash had no space for an operation that began after so many epochs.
    /// Whether it may have freed some: what a deletion, a replacement, a truncation or a hole frees
    /// is taken until it is in place. No lock is held.
    pub(crate) fn ends_for_space(&self, before: u64) -> bool {
        // The operation itself may have ended it.
        if !self.is_used() || self.epochs() > before {
            return self.is_used();
        }
        let deletes = !self.table().all_whiteouts().is_empty();
        let takes = deletes || {
            let closer = self.closer.lock();
            !closer.held.is_empty() || !closer.deferred.is_empty()
        };
        let fails = self.state.lock().failing.is_some();
        (takes || !fails) && self.fence().is_ok() && (takes || self.epochs() > before)
    }

    /// Epochs that have ended.
    pub(crate) fn epochs(&self) -> u64 {
        if self.is_used() { self.state.lock().epochs } else { 0 }
    }

    /// Makes what the log says durable in place, so that no recovery needs it.
    fn empty_log(&self, closer: &mut Closer) -> Result<()> {
        if closer.log.bytes() == 0 {
            return Ok(());
        }
        let prepared = closer.log.prepare(Vec::new(), true);
        self.sync_all(closer)?;
        if let Some(plan) = &prepared.sizes {
            self.write_entry(closer, plan)?;
        }
        closer.log = prepared.log;
        Ok(())
    }

    /// Leaves BACKING without a log. Everything was applied.
    pub(crate) fn remove_log(&self) -> Result<()> {
        let mut closer = self.closer.lock();
        if closer.unapplied.is_some() {
            return Err(Errno::BUSY);
        }
        if closer.file.take().is_some() {
            self.has_log.store(false, Ordering::Relaxed);
            // In place first: the log may be the only place that has it.
            let few = closer.unsynced.as_ref().filter(|files| !files.is_empty());
            match few.filter(|_| self.backing.volume.one_sync_covers_earlier()) {
                // A checkpoint changed their times after all names and sizes.
                Some(files) => {
                    files.values().try_for_each(|file| self.backing.fsync(file, false))?;
                }
                None => self.backing.sync_all(false)?,
            }
            rustix::fs::unlinkat(&self.backing.hidden()?.dir, LOG, AtFlags::empty())?;
        }
        Ok(())
    }

    fn end_epoch_with(&self, closer: &mut Closer, ending: Ending) -> Result<()> {
        let mut done = self.try_to_end_epoch(closer, ending.is_whole());
        if done == Err(Errno::NOSPC) {
            // The changes alone take less space than a new file, and no inode.
            closer.saves_space = true;
            done = self.try_to_end_epoch(closer, ending.is_whole());
            closer.saves_space = false;
        }
        if done == Err(Errno::NOSPC) {
            done = self.remove_in_place(closer);
        }
        let empties = closer.is_to_be_emptied;
        if (ending == Ending::Asked || empties) && done.is_ok() {
            done = self.checkpoint(closer, &closer.log.deferred());
        }
        if empties && done.is_ok() {
            done = self.empty_log(closer);
            closer.is_to_be_emptied = done.is_err();
        }
        let mut state = self.state.lock();
        state.log_bytes = closer.log.bytes();
        match done {
            Ok(()) => {
                if state.failing.take().is_some() {
                    tracing::info!("epochs of delayed syncs reach flash again");
                }
                state.schedule.succeeded();
            }
            Err(error) => {
                if state.failing.replace(error) != Some(error) {
                    tracing::warn!(
                        errno = error.raw_os_error(),
                        "an epoch of delayed syncs cannot be written: {error}; it stays in RAM, \
                         and syncs wait for flash until one can"
                    );
                }
            }
        }
        done
    }

    fn try_to_end_epoch(&self, closer: &mut Closer, whole: bool) -> Result<()> {
        if let Some(captured) = closer.unapplied.take() {
            self.apply_epoch(closer, captured)?;
        }
        let is_empty = {
            let table = self.table();
            table.delayed().is_empty() && table.all_whiteouts().is_empty()
        };
        if is_empty {
            let _ = self.state.lock().schedule.taken(false);
            closer.log.set_failed(false);
            return Ok(());
        }
        let captured = self.prepare_epoch(closer).and_then(|()| {
            // Until the plan's log takes its place.
            closer.log.set_failed(true);
            let mut staged = self.stage_new_files(closer, whole);
            let captured = self.capture_epoch(closer, whole, &mut staged);
            for unused in staged.into_values() {
                let _ = self.backing.remove_temp(&hidden_name(unused.hidden));
            }
            captured
        });
        let captured = match captured {
            Ok(Some(captured)) => captured,
            Ok(None) => {
                closer.log.set_failed(false);
                return Ok(());
            }
            Err(error) => {
                self.epoch_waits();
                return Err(error);
            }
        };
        let mut begun = false;
        let done = self.commit_epoch(closer, &captured, &mut begun);
        if let Err(error) = done {
            self.take_back(captured, !begun);
            return Err(error);
        }
        closer.log = captured.plan.log.clone();
        closer.supersedes(&captured.plan);
        self.apply_epoch(closer, captured)
    }

    /// Removes the names that BACKING is to lose without an entry of the log, for which flash has
    /// no space: it was full for good, since only deletions make space. A crash finds some of them,
    /// in any order, as on BACKING alone, so nothing else may wait.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if more than removals waits; those of BACKING.
    fn remove_in_place(&self, closer: &mut Closer) -> Result<()> {
        if closer.unapplied.is_some() {
            return Err(Errno::NOSPC);
        }
        if closer.log.bytes() > 0 {
            self.checkpoint(closer, &closer.log.deferred())?;
            self.empty_log(closer)?;
        }
        let gate = self.gate.write();
        let removals = {
            let mut table = self.table();
            let all = Self::candidates(&table);
            if all.iter().any(|it| !it.missing.is_empty() || it.file.pages.read().changes.any()) {
                return Err(Errno::NOSPC);
            }
            self.removals(&mut table)?
        };
        for (removal, (dir, name)) in &removals {
            self.changing_dir(*dir, |table, from| {
                remove(from, name, removal.ino)?;
                if table.end_whiteout(*dir, name) {
                    table.forget_number(removal.ino);
                }
                Ok(())
            })?;
        }
        drop(gate);
        self.remove_directories();
        self.sync_all(closer)?;
        closer.log.set_failed(false);
        let mut state = self.state.lock();
        let _ = state.schedule.taken(false);
        state.first_sync_us = None;
        state.epochs += 1;
        Ok(())
    }

    /// Another attempt follows.
    fn epoch_waits(&self) {
        let now = self.decider.now();
        let schedule = &mut self.state.lock().schedule;
        let before = schedule.clone();
        schedule.failed(now, &before);
    }

    fn prepare_epoch(&self, closer: &mut Closer) -> Result<()> {
        self.backing.refuse_if_read_only()?;
        self.log_file(closer)?;
        if closer.log.has_failed() {
            // The head of that epoch may be on flash: it must not count once its files change.
            let at = closer.log.bytes();
            let log = self.log_file(closer)?;
            io(log.write_all_at(&[0; PAGE_BYTES as usize], at))?;
            self.flush_log(log)?;
        }
        self.make_bases_durable()?;
        let known = self.known_files(&closer.log)?;
        let prepared = closer.log.prepare(known, closer.held.len() > HELD);
        self.checkpoint(closer, &prepared.checkpoint)?;
        if prepared.commits {
            self.sync_all(closer)?;
        }
        if let Some(plan) = &prepared.sizes {
            self.write_entry(closer, plan)?;
        }
        closer.log = prepared.log;
        Ok(())
    }

    /// Makes durable the content of BACKING's files from before they were adopted, since entries
    /// tell how their pages differ from it. A program may have synced it, too.
    fn make_bases_durable(&self) -> Result<()> {
        let is_news = |file: &&Arc<DelayedFile>| {
            let pages = file.pages.read();
            pages.changes.any() && pages.base.as_ref().is_some_and(|base| !base.durable)
        };
        let all: Vec<_> = self.table().delayed().values().filter(is_news).cloned().collect();
        for file in all {
            let Some(base) = file.base_file() else { continue };
            self.backing.flushes.issued(false);
            rustix::fs::fdatasync(&base)?;
            // The closer alone changes it.
            if let Some(base) = &mut file.pages.write().base {
                base.durable = true;
            }
        }
        Ok(())
    }

    /// The files that BACKING has and that have changed.
    fn known_files(&self, log: &Log) -> Result<Vec<KnownFile>> {
        let of_file = |table: &Table, file: &Arc<DelayedFile>| {
            let pages = file.pages.read();
            let (base, changes) = (pages.base.as_ref()?, &pages.changes);
            let (size, mut changed) = (changes.below(), Extents::default());
            let within = changes.pages().parts(0..size.div_ceil(PAGE_BYTES));
            within.for_each(|run| changed.insert(run));
            let grows = changes.size() > size;
            let is_known = grows || !changed.is_empty() || log.has_failed();
            let known = || (reference(table, base), file.clone(), size, grows, changed);
            is_known.then(known)
        };
        let all: Vec<_> = {
            let table = self.table();
            table.delayed().values().filter_map(|file| of_file(&table, file)).collect()
        };
        let mut known = Vec::new();
        for (file, delayed, size, grows, changed) in all {
            let base = delayed.base_file().ok_or(Errno::IO)?;
            let stat = rustix::fs::fstat(&base)?;
            // Pages of an epoch that failed would show when the file grows again.
            if log.has_failed() && stat.st_size as u64 > size {
                rustix::fs::ftruncate(&base, size)?;
                delayed.changed_base();
            }
            let looks = !changed.is_empty() && !log.is_listed(file.id);
            let holes = if looks { holes(&base, size)? } else { Extents::default() };
            let attributes = attributes(&stat);
            known.push(KnownFile { file, size, attributes, grows, changed, holes });
        }
        Ok(known)
    }

    /// Writes these pages, which only the log has, to their place. Files that need no RAM any more
    /// leave it.
    fn checkpoint(&self, closer: &mut Closer, deferred: &[DeferredPages]) -> Result<()> {
        if deferred.is_empty() {
            return Ok(());
        }
        let log = closer.file.as_ref().ok_or(Errno::IO)?;
        let reserved = self.reserved();
        let mut pages = 0;
        for of_file in deferred.chunk_by(|one, other| one.id == other.id) {
            let file = closer.deferred.get(&of_file[0].id).ok_or(Errno::IO)?;
            let stat = rustix::fs::fstat(file)?;
            // Nothing of a deleted file is wanted.
            if stat.st_nlink == 0 {
                continue;
            }
            let reserved = reserved.get(&of_file[0].id).map_or(&[][..], Vec::as_slice);
            write_pages(file, log, of_file.iter().map(|run| &run.held), reserved)?;
            closer.unsynced = closer.unsynced.take().filter(|all| all.len() < FEW);
            if let Some(all) = &mut closer.unsynced {
                all.insert(of_file[0].id, file.clone());
            }
            set_attributes(file, attributes(&stat))?;
            let written = of_file.iter().filter(|run| !run.held.is_hole());
            pages += written.map(|run| run.held.pages.end - run.held.pages.start).sum::<u64>();
        }
        self.wrote_below(pages * PAGE_BYTES);
        closer.log.checkpointed();
        closer.deferred.clear();
        let gate = self.gate.write();
        for file in self.table().delayed().values() {
            file.pages.write().deferred = Extents::default();
        }
        closer.placed.clear();
        drop(gate);
        self.leave_ram();
        Ok(())
    }

    /// By file of BACKING, the ranges that programs have reserved, bytes.
    fn reserved(&self) -> HashMap<InodeId, Vec<Range<u64>>> {
        let table = self.table();
        let of_file = |(ino, file): (&Ino, &Arc<DelayedFile>)| {
            let reserved = table.node(*ino)?.file_state()?.reserved();
            let id = file.pages.read().base.as_ref()?.id();
            (!reserved.is_empty()).then_some((id, reserved))
        };
        table.delayed().iter().filter_map(of_file).collect()
    }

    /// Counts bytes that went to BACKING.
    fn wrote_below(&self, bytes: u64) {
        self.decider.copied(bytes, false);
        self.counters.lock().settled_bytes += bytes;
    }

    /// Writes an entry without pages, durably.
    fn write_entry(&self, closer: &mut Closer, plan: &EpochPlan) -> Result<()> {
        let head = EntryHead::new(plan.numbers, &plan.record).end();
        self.log_file(closer)?;
        closer.extend_log(plan)?;
        let log = self.log_file(closer)?;
        io(log.write_all_at(&head, plan.at))?;
        self.flush_log(log)?;
        closer.supersedes(plan);
        Ok(())
    }

    pub(super) fn log_file<'a>(&self, closer: &'a mut Closer) -> Result<&'a File> {
        if closer.file.is_none() {
            closer.file = Some(open_log(&self.backing)?);
            self.has_log.store(true, Ordering::Relaxed);
            // The name of the log has to be durable with its first entry.
            if !self.backing.volume.one_sync_covers_earlier() {
                self.backing.sync_all(false)?;
            }
        }
        closer.file.as_ref().ok_or(Errno::IO)
    }

    fn flush_log(&self, log: &File) -> Result<()> {
        self.backing.flushes.issued(false);
        rustix::fs::fdatasync(log)
    }

    /// Copies new files to hidden names while applications go on, as far as that is possible: the
    /// capture, for which every application waits, then copies those alone that changed since.
    /// A capture of 12,000 new files took more than a second.
    fn stage_new_files(&self, closer: &Closer, whole: bool) -> StagedFiles {
        let mut staged = StagedFiles::new();
        let candidates = Self::candidates(&self.table());
        let is_new = |candidate: &&Candidate| {
            let pages = candidate.file.pages.read();
            let standing = Standing { synced: pages.synced, moved: false };
            let is_new = match &pages.base {
                Some(base) => closer.writes_anew(base, &pages.changes),
                None => true,
            };
            is_new && standing.is_included(whole)
        };
        let new: Vec<&Candidate> = candidates.iter().filter(is_new).collect();
        if self.fit(&new).is_err() {
            return staged;
        }
        for candidate in new {
            let (hidden, version) =
                (self.backing.next_hidden_number(), candidate.file.pages.read().version);
            match self.copy_to_hidden(candidate, hidden) {
                Ok((bytes, open)) => {
                    staged.insert(candidate.ino, StagedFile { hidden, version, bytes, open });
                }
                // The capture meets the error again, unless the file is gone.
                Err(_) => {
                    let _ = self.backing.remove_temp(&hidden_name(hidden));
                }
            }
        }
        staged
    }

    /// Copies a new file to a hidden name. Returns the bytes, and the copy if it replaces another
    /// file.
    fn copy_to_hidden(
        &self,
        candidate: &Candidate,
        hidden: u64,
    ) -> Result<(u64, Option<Arc<File>>)> {
        let source = self.store.open_to_copy(candidate.ino)?;
        let target = self.backing.create_hidden(&hidden_name(hidden))?;
        let mut bytes = copy(&source, &target, &candidate.reserved)?;
        bytes += candidate.file.copy_missing(&target)?;
        set_times(&target, &self.store.stat(candidate.ino)?)?;
        // An epoch may have more new files than the process may open. One in place of another has
        // a descriptor already.
        let replaces = candidate.file.base_file().is_some();
        Ok((bytes, replaces.then(|| Arc::new(target))))
    }

    /// Captures the state of the group at one moment. `None`: there is nothing to write.
    fn capture_epoch(
        &self,
        closer: &mut Closer,
        whole: bool,
        staged: &mut StagedFiles,
    ) -> Result<Option<Captured>> {
        let gate = self.gate.write();
        let mut table = self.table();
        let mut rest = false;
        let mut candidates = Vec::new();
        for candidate in Self::candidates(&table) {
            if let Some(ino) = candidate.file.notices_changes_outside() {
                self.state.lock().changed_outside.insert(ino);
                let name = candidate.names.first().and_then(|(dir, name)| path(&table, *dir, name));
                tracing::warn!(
                    "{}: changed past this mount; its content may be mixed, and its syncs are not \
                     delayed any more",
                    name.unwrap_or_default().escape_ascii()
                );
            }
            let pages = candidate.file.pages.read();
            let moved = candidate.missing.iter().any(|(dir, name)| {
                let hides = table.in_ram(*dir, name).and_then(|in_ram| in_ram.hides);
                hides.is_some() || pages.base.is_some()
            });
            let has_base = pages.base.is_some();
            let standing = Standing { synced: pages.synced, moved };
            let news = !has_base || pages.changes.any() || moved;
            let included = news && standing.is_included(whole);
            rest |= news && !included;
            drop(pages);
            closer.is_to_be_emptied |= included && candidate.file.was_changed_outside();
            if included {
                candidates.push(candidate);
            }
        }
        let removals = self.removals(&mut table)?;
        let uncommitted = std::mem::take(&mut self.state.lock().uncommitted);
        if candidates.is_empty() && removals.is_empty() {
            let state = &mut *self.state.lock();
            state.uncommitted |= uncommitted;
            let _ = state.schedule.taken(rest);
            state.first_sync_us = None;
            return Ok(None);
        }
        let removals = (removals, uncommitted);
        let captured = self.capture(closer, &mut table, candidates, removals, staged);
        let mut state = self.state.lock();
        let captured = match captured {
            Ok(captured) => Captured { before: state.schedule.taken(rest), ..captured },
            Err(error) => {
                state.uncommitted |= uncommitted;
                return Err(error);
            }
        };
        state.first_sync_us = None;
        drop(state);
        drop(table);
        drop(gate);
        Ok(Some(captured))
    }

    /// The files of the group that have a name.
    fn candidates(table: &Table) -> Vec<Candidate> {
        let mut all: Vec<Candidate> = Vec::new();
        for (ino, file) in table.delayed() {
            let Some(node) = table.node(*ino).filter(|node| !node.names.is_empty()) else {
                continue;
            };
            let base = file.pages.read().base.as_ref().map(|base| base.ino);
            let is_missing = |(dir, name): &&(Ino, Name)| {
                let hides = table.in_ram(*dir, name).and_then(|in_ram| in_ram.hides);
                base.is_none() || hides.map(std::num::NonZero::get) != base
            };
            let missing = node.names.iter().filter(is_missing).cloned().collect();
            all.push(Candidate {
                ino: *ino,
                file: file.clone(),
                missing,
                names: node.names.clone(),
                reserved: node.file_state().map(|state| state.reserved()).unwrap_or_default(),
            });
        }
        all
    }

    /// The names that BACKING is to lose.
    fn removals(&self, table: &mut Namespace) -> Result<Removals> {
        let mut all = Vec::new();
        let dirs = table.names_of_removed_dirs();
        for (dir, name) in table.all_whiteouts() {
            if dirs.contains(&(dir, name.clone())) {
                continue;
            }
            let there = match table.dir(dir) {
                Ok(open) => match self.backing.stat(&open, &name) {
                    Ok(stat) => Some(stat.st_ino),
                    Err(Errno::NOENT) => None,
                    Err(error) => return Err(error),
                },
                Err(Errno::NOENT | Errno::STALE) => None,
                Err(error) => return Err(error),
            };
            match there {
                Some(ino) => {
                    let path = path(table, dir, &name).ok_or(Errno::STALE)?;
                    all.push((Removal { path, ino }, (dir, name)));
                }
                None => {
                    table.end_whiteout(dir, &name);
                }
            }
        }
        Ok(all)
    }

    fn capture(
        &self,
        closer: &Closer,
        table: &mut Namespace,
        candidates: Vec<Candidate>,
        (removals, uncommitted): (Removals, bool),
        staged: &mut StagedFiles,
    ) -> Result<Captured> {
        let mut files = Vec::new();
        let mut places = Vec::new();
        // In the order in which the plan takes them.
        let mut numbers = Vec::new();
        for candidate in &candidates {
            let pages = candidate.file.pages.read();
            let base = pages.base.as_ref().filter(|base| !closer.writes_anew(base, &pages.changes));
            let missing = if base.is_some() { &candidate.missing } else { &candidate.names };
            let named = missing.iter().map(|(dir, name)| path(table, *dir, name));
            let names: Option<Vec<Path>> = named.collect();
            places.extend(missing.iter().cloned());
            let copied = staged
                .get(&candidate.ino)
                .filter(|copied| base.is_none() && copied.version == pages.version);
            let mut copied = copied.map(|copied| copied.hidden);
            numbers.extend(
                missing
                    .iter()
                    .map(|_| copied.take().unwrap_or_else(|| self.backing.next_hidden_number())),
            );
            files.push(EpochFile {
                key: candidate.ino,
                base: base.map(|base| reference(table, base)),
                changes: pages.changes.clone(),
                partial: match base {
                    Some(base) => {
                        pages.differences(base, &self.store.open_to_copy(candidate.ino)?)?
                    }
                    None => BTreeMap::new(),
                },
                // The copy of a new file has them.
                attributes: match base {
                    Some(_) => attributes(&self.store.stat(candidate.ino)?),
                    None => Attributes::default(),
                },
                names: names.ok_or(Errno::STALE)?,
            });
        }
        let (removals, removed): (Vec<Removal>, Vec<_>) = removals.into_iter().unzip();
        let mut numbers = numbers.into_iter();
        let next = || numbers.next().unwrap_or_else(|| self.backing.next_hidden_number());
        let plan = closer.log.plan(&files, removals, uncommitted, next);
        let mut new_bytes = 0;
        let mut made = Made::default();
        let mut entry = Entry {
            log: closer.file.as_ref().ok_or(Errno::IO)?,
            head: EntryHead::new(plan.numbers, &plan.record),
            at: plan.rest_at,
            bytes: Vec::new(),
        };
        let mut run = || -> Result<()> {
            self.new_files_fit(&plan, &candidates, staged)?;
            closer.extend_log(&plan)?;
            for step in &plan.capture {
                if let EpochStep::Create { file, hidden } = step
                    && staged.get(file).is_some_and(|copied| copied.hidden == *hidden)
                    && let Some(copied) = staged.remove(file)
                {
                    made.hidden.push(*hidden);
                    made.new.insert(*file, (*hidden, copied.open));
                    new_bytes += copied.bytes;
                    continue;
                }
                new_bytes += self.capture_step(step, &candidates, &mut made, &mut entry)?;
            }
            entry.write(true)
        };
        let done = run();
        if let Err(error) = done {
            for hidden in made.hidden {
                let _ = self.backing.remove_temp(&hidden_name(hidden));
            }
            candidates.iter().for_each(|candidate| candidate.file.taken_back());
            return Err(error);
        }
        let mut members = Vec::new();
        for candidate in candidates {
            let mut pages = candidate.file.pages.write();
            let taken = pages.changes.take();
            (pages.synced, pages.in_flight) = (false, true);
            drop(pages);
            let Candidate { ino, file, names, .. } = candidate;
            let base = made.new.remove(&ino).map_or_else(|| file.base_file(), |(_, open)| open);
            members.push(Member { file, taken, ino, base, names });
        }
        let (before, head) = (Schedule::new(0), entry.head.end());
        let removals = removed;
        Ok(Captured { plan, members, places, removals, before, head, new_bytes })
    }

    /// Checks that flash has space for the content of the new files, before any of it is written:
    /// an epoch that fails is tried again, and would write it again each time.
    fn new_files_fit(
        &self,
        plan: &EpochPlan,
        candidates: &[Candidate],
        staged: &StagedFiles,
    ) -> Result<()> {
        let mut new = Vec::new();
        for step in &plan.capture {
            match step {
                // Flash has it already.
                EpochStep::Create { file, hidden }
                    if staged.get(file).is_some_and(|copied| copied.hidden == *hidden) => {}
                EpochStep::Create { file, .. } => new.push(candidate(candidates, *file)?),
                _ => {}
            }
        }
        self.fit(&new)
    }

    fn fit(&self, new: &[&Candidate]) -> Result<()> {
        let mut blocks = 0;
        for candidate in new {
            let missing = candidate.file.pages.read().missing.covered() * PAGE_BYTES;
            let held = self.store.stat(candidate.ino).map_or(0, |stat| stat.st_blocks as u64);
            blocks += held + missing / 512;
        }
        let flash = rustix::fs::fstatvfs(&self.backing.root)?;
        match blocks * 512 > flash.f_bfree * flash.f_frsize {
            true => Err(Errno::NOSPC),
            false => Ok(()),
        }
    }

    /// Performs one step of a capture. Returns the bytes that were written to their place.
    fn capture_step(
        &self,
        step: &EpochStep,
        candidates: &[Candidate],
        made: &mut Made,
        entry: &mut Entry<'_>,
    ) -> Result<u64> {
        let open = |ino: Ino| self.store.open_to_copy(ino);
        match step {
            EpochStep::Create { file, hidden } => {
                made.hidden.push(*hidden);
                let (bytes, open) = self.copy_to_hidden(candidate(candidates, *file)?, *hidden)?;
                made.new.insert(*file, (*hidden, open));
                Ok(bytes)
            }
            EpochStep::Link { file, hidden } => {
                let name = hidden_name(*hidden);
                match made.new.get(file) {
                    Some((known, _)) => {
                        self.backing.link_in_hidden(&hidden_name(*known), &name)?;
                    }
                    None => {
                        let base = candidate(candidates, *file)?.file.base_file();
                        self.backing.link_hidden(&*base.ok_or(Errno::IO)?, &name)?;
                    }
                }
                made.hidden.push(*hidden);
                Ok(0)
            }
            EpochStep::Place { file, pages: placed } => {
                let candidate = candidate(candidates, *file)?;
                let base = candidate.file.base_file().ok_or(Errno::IO)?;
                let pages = candidate.file.pages.read();
                let (ram, size) = (open(*file)?, pages.changes.size());
                let mut written = 0;
                for run in placed.iter() {
                    let range = run.start * PAGE_BYTES..(run.end * PAGE_BYTES).min(size);
                    in_parts(range, |at, bytes| {
                        io(ram.read_exact_at(bytes, at))?;
                        written += bytes.len() as u64;
                        io(base.write_all_at(bytes, at))
                    })?;
                }
                if io(base.metadata())?.len() < size {
                    rustix::fs::ftruncate(&base, size)?;
                }
                // With the same commit as the data.
                set_modified(&base, attributes(&self.store.stat(*file)?).modified)?;
                Ok(written)
            }
            EpochStep::Append { file, held } => {
                let ram = open(*file)?;
                let size = io(ram.metadata())?.len();
                for (range, _) in held.parts() {
                    in_parts(range, |from, bytes| {
                        let len = size.saturating_sub(from).min(bytes.len() as u64) as usize;
                        io(ram.read_exact_at(&mut bytes[..len], from))?;
                        bytes[len..].fill(0);
                        entry.bytes.extend_from_slice(bytes);
                        entry.write(false)
                    })?;
                }
                Ok(0)
            }
            _ => Ok(0),
        }
    }

    /// Makes a captured epoch durable. `begun` is set when its head may be on flash.
    fn commit_epoch(
        &self,
        closer: &mut Closer,
        captured: &Captured,
        begun: &mut bool,
    ) -> Result<()> {
        for step in &captured.plan.commit {
            match step {
                EpochStep::Commit => self.sync_all(closer)?,
                EpochStep::SyncFiles => self.sync_files(closer, captured)?,
                EpochStep::Head => {
                    *begun = true;
                    let log = self.log_file(closer)?;
                    io(log.write_all_at(&captured.head, captured.plan.at))?;
                }
                EpochStep::FlushLog => self.flush_log(self.log_file(closer)?)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes everything durable in place.
    fn sync_all(&self, closer: &mut Closer) -> Result<()> {
        self.backing.sync_all(false)?;
        closer.unsynced = Some(HashMap::new());
        Ok(())
    }

    /// Makes durable the files that a capture changed in BACKING, and every earlier change of names
    /// and sizes.
    fn sync_files(&self, closer: &Closer, captured: &Captured) -> Result<()> {
        if !self.backing.volume.one_sync_covers_earlier() {
            return self.backing.sync_all(false);
        }
        // `syncfs` would also write the blocks of ext4's metadata to their place. The log first:
        // its flush then needs no commit of its own.
        self.backing.volume.flush(closer.file.as_ref().ok_or(Errno::IO)?)?;
        captured.plan.capture.iter().try_for_each(|step| match step {
            EpochStep::Create { hidden, .. } | EpochStep::Link { hidden, .. } => {
                self.backing.fsync(self.backing.open_hidden(&hidden_name(*hidden))?, false)
            }
            EpochStep::Place { file, .. } => {
                let member = captured.members.iter().find(|member| member.ino == *file);
                let base = member.and_then(|member| member.base.as_ref()).ok_or(Errno::IO)?;
                self.backing.fsync(base, false)
            }
            _ => Ok(()),
        })
    }

    /// Makes an epoch that failed part of the next one. `unseen`: its record is not on flash.
    fn take_back(&self, captured: Captured, unseen: bool) {
        for member in &captured.members {
            let mut pages = member.file.pages.write();
            pages.changes.put_back(&member.taken);
            pages.in_flight = false;
            drop(pages);
            member.file.taken_back();
        }
        if unseen {
            // A record that may be on flash needs them.
            for place in &captured.plan.record.places {
                let _ = self.backing.remove_temp(&hidden_name(place.hidden));
            }
        }
        let now = self.decider.now();
        let mut state = self.state.lock();
        state.uncommitted = true;
        state.schedule.failed(now, &captured.before);
        state.first_sync_us.get_or_insert(now);
    }

    /// Does what the record says in place.
    fn apply_epoch(&self, closer: &mut Closer, captured: Captured) -> Result<()> {
        let done = self.try_to_apply(closer, &captured);
        match done {
            Ok(()) => {
                self.epoch_is_applied(closer, captured);
                Ok(())
            }
            Err(error) => {
                self.epoch_waits();
                closer.unapplied = Some(captured);
                Err(error)
            }
        }
    }

    fn try_to_apply(&self, closer: &mut Closer, captured: &Captured) -> Result<()> {
        let (held, placed) = (&mut closer.held, &mut closer.placed);
        let record = &captured.plan.record;
        let mut bases = HashMap::new();
        for member in &captured.members {
            if let Some(base) = &member.file.pages.read().base {
                bases.insert(base.id(), base.file.clone());
            }
        }
        for change in &record.changes {
            let base = bases.get(&change.file.id).ok_or(Errno::IO)?;
            // Its pages wait for the checkpoint.
            apply_change(base, change, || Ok(()))?;
        }
        for (place, (dir, name)) in record.places.iter().zip(&captured.places) {
            self.changing_dir(*dir, |table, into| {
                let hidden = hidden_name(place.hidden);
                let replaced = match open_beneath(into, name, OFlags::PATH) {
                    Ok(replaced) => Some(replaced),
                    Err(Errno::NOENT) => None,
                    Err(error) => return Err(error),
                };
                match self.backing.place_temp(&hidden, into, name) {
                    // It has been placed by an attempt before.
                    Err(Errno::NOENT) => {}
                    done => done?,
                }
                remove_hidden(self.backing.temps()?, &hidden)?;
                let ino = self.backing.stat(into, name)?.st_ino;
                table.set_hides(*dir, name, ino);
                placed.insert((*dir, name.clone()), ino);
                if let Some(replaced) = replaced {
                    let was = rustix::fs::fstat(&replaced)?;
                    hold(held, replaced);
                    if was.st_nlink == 0 {
                        table.forget_number(was.st_ino);
                    }
                }
                Ok(())
            })?;
        }
        for (removal, (dir, name)) in record.removals.iter().zip(&captured.removals) {
            self.changing_dir(*dir, |table, from| {
                let removed = remove(from, name, removal.ino)?;
                let mut is_gone = table.end_whiteout(*dir, name);
                if let Some(removed) = removed {
                    // Since the capture, the name may have been given to a file.
                    table.hides_no_more(*dir, name, removal.ino);
                    is_gone |= rustix::fs::fstat(&removed)?.st_nlink == 0;
                    hold(held, removed);
                }
                if is_gone {
                    table.forget_number(removal.ino);
                }
                Ok(())
            })?;
        }
        self.remove_directories();
        Ok(())
    }

    /// Removes the directories in BACKING that programs have removed, as far as the names in them
    /// are gone. They are no part of the epoch: a crash may leave empty ones.
    fn remove_directories(&self) {
        let mut any = false;
        loop {
            let mut table = self.table();
            let Some((dir, (parent, name))) = table.emptied_dir() else { break };
            any = true;
            let removed = self.remove_directory(&mut table, parent, &name);
            table.end_removed_dir(dir);
            if let Err(why) = removed {
                let path = table.path(parent, &name);
                tracing::warn!("{path}: removing the directory: {why}; it is there again");
            }
        }
        if any {
            // The next epoch depends on these changes.
            self.names_changed_below();
        }
    }

    fn remove_directory(&self, table: &mut Namespace, parent: Ino, name: &OsStr) -> Result<()> {
        let (from, was) = (table.dir(parent)?, table.attr_of(parent)?);
        let stat = self.backing.stat(&from, name)?;
        let remove = || rustix::fs::unlinkat(&from, name, AtFlags::REMOVEDIR);
        match remove() {
            Err(Errno::NOTEMPTY | Errno::EXIST) if self.backing.remove_copies_in(&from, name) => {
                remove()?;
            }
            done => done?,
        }
        table.lost_name(self.decider.begin(0), parent, name, &stat);
        table.keep_times_of(parent, &from, &was);
        Ok(())
    }

    /// Changes names in a directory of BACKING, which keeps its time.
    fn changing_dir(
        &self,
        dir: Ino,
        change: impl FnOnce(&mut Namespace, &crate::fs::backing::OpenDir) -> Result<()>,
    ) -> Result<()> {
        let mut table = self.table();
        let open = table.dir(dir)?;
        let was = table.attr_of(dir)?;
        change(&mut table, &open)?;
        table.keep_times_of(dir, &*open, &was);
        table.drop_unused(dir);
        Ok(())
    }

    /// Files that BACKING has now need no RAM.
    fn epoch_is_applied(&self, closer: &mut Closer, captured: Captured) {
        let plan = &captured.plan;
        self.wrote_below(captured.new_bytes + plan.log.bytes() - plan.rest_at);
        self.state.lock().epochs += 1;
        let mut gate = self.gate.write();
        let mut table = self.table();
        for (number, member) in captured.members.into_iter().enumerate() {
            if number % AT_ONCE == AT_ONCE - 1 {
                // Applications go on in between, as they did while the epoch was written.
                drop(table);
                RwLockWriteGuard::bump(&mut gate);
                table = self.table();
            }
            let found = match &member.base {
                Some(file) => Ok(file.clone()),
                None => self.open_placed(&mut table, &closer.placed, &member.names),
            };
            let found = found.and_then(|file| Ok((rustix::fs::fstat(&file)?, file)));
            let mut pages = member.file.pages.write();
            pages.in_flight = false;
            let (stat, file) = match found {
                Ok(found) => found,
                Err(error) => {
                    // Flash has it. In the next epoch it counts as new.
                    tracing::debug!("a file of an epoch cannot be opened: {error}");
                    continue;
                }
            };
            // A new file has taken its place.
            let old = pages.base.as_ref().map(|base| base.ino).filter(|old| *old != stat.st_ino);
            if let Some(old) = old {
                table.forget_number(old);
            }
            let names = member.names;
            let id = InodeId { ino: stat.st_ino, born_ns: born_ns(&file) };
            let deferred = closer.log.deferred_of(id);
            if !deferred.is_empty() {
                closer.deferred.insert(id, file.clone());
            }
            pages.deferred = deferred;
            // A new file is durable with its epoch.
            let durable = old.is_some() || pages.base.as_ref().is_none_or(|base| base.durable);
            let left = Left::new(&stat);
            let counted = self.open_files.clone();
            pages.base = Some(Base {
                file,
                ino: id.ino,
                born_ns: id.born_ns,
                durable,
                names,
                left,
                counted,
            });
            drop(pages);
            // At once: so it takes a descriptor for a moment only.
            if member.base.is_none() {
                self.leaves_ram(&mut table, member.ino);
            }
        }
        drop(table);
        drop(gate);
        self.leave_ram();
    }

    /// Files that BACKING has as they are leave RAM, and so do pages of others.
    fn leave_ram(&self) {
        let all: Vec<Ino> = self.table().delayed().keys().copied().collect();
        for some in all.chunks(AT_ONCE) {
            let _gate = self.gate.write();
            let mut table = self.table();
            some.iter().for_each(|ino| self.leaves_ram(&mut table, *ino));
        }
    }

    fn leaves_ram(&self, table: &mut Namespace, ino: Ino) {
        if table.node(ino).is_some_and(|node| node.opens > 0) {
            self.drop_clean_pages(table, ino);
        } else if let Err(error) = self.release_delayed(table, ino) {
            tracing::debug!("a file stays in RAM: {error}");
        }
    }

    /// Opens a file that an epoch has given these names in BACKING, and no other file.
    fn open_placed(
        &self,
        table: &mut Namespace,
        placed: &HashMap<(Ino, Name), u64>,
        names: &Names,
    ) -> Result<Arc<File>> {
        let first = names.first().ok_or(Errno::STALE)?;
        let file = open_in_any_case(&*table.dir(first.0)?, &first.1)?;
        table.drop_unused(first.0);
        match placed.get(first) == Some(&rustix::fs::fstat(&file)?.st_ino) {
            true => Ok(Arc::new(file)),
            false => Err(Errno::STALE),
        }
    }

    fn drop_clean_pages(&self, table: &Table, ino: Ino) {
        let Some(file) = table.delayed_file(ino) else { return };
        let mut pages = file.pages.write();
        if pages.base.is_some() && !pages.in_flight {
            // If this fails, they stay.
            let leave = || self.store.open(ino).and_then(|ram| pages.leave_ram(&ram));
            let _ = self.store.unseen(ino, leave);
        }
    }
}

/// The file of this number among those of an epoch.
fn candidate(all: &[Candidate], ino: Ino) -> Result<&Candidate> {
    let at = all.binary_search_by_key(&ino, |candidate| candidate.ino);
    at.map(|at| &all[at]).map_err(|_| Errno::IO)
}

impl Closer {
    /// Whether a file of BACKING is replaced by a new one.
    fn writes_anew(&self, base: &Base, changes: &Changes) -> bool {
        !self.saves_space && self.log.is_written_anew(base.id(), changes) && !has_flags(&base.file)
    }

    /// Gives an entry blocks whose allocation costs no commit of its own: its head has them before
    /// the commit that it waits for. With a small one the next ones get theirs, too: their zeros
    /// cost less than a commit for each.
    fn extend_log(&self, plan: &EpochPlan) -> Result<()> {
        let log = self.file.as_ref().ok_or(Errno::IO)?;
        let (len, end) = (io(log.metadata())?.len(), plan.log.bytes());
        let to = match end - plan.at <= SMALL_PAGES * PAGE_BYTES {
            true if len < end => end + AHEAD_PAGES * PAGE_BYTES,
            // It waits for a commit.
            false if len < plan.rest_at && plan.commit[0] != EpochStep::Head => plan.rest_at,
            _ => return Ok(()),
        };
        in_parts(len..to, |at, zeros| io(log.write_all_at(zeros, at)))
    }

    /// An entry is durable.
    fn supersedes(&mut self, plan: &EpochPlan) {
        if plan.record.in_place == InPlace::Everything {
            self.held.clear();
        }
    }
}

/// Keeps a file that was removed, if its number may otherwise stand for another one in the log.
fn hold(held: &mut Vec<OwnedFd>, removed: OwnedFd) {
    if born_ns(&removed) == 0 {
        held.push(removed);
    }
}

/// The pages of a file of this size that are zeros without a read: holes and reserved blocks.
fn holes(file: &File, size: u64) -> Result<Extents> {
    let (mut holes, mut at) = (Extents::default(), 0);
    while let Some(hole) = hole_from(file, at, size)? {
        let end = if hole.end == size { size.div_ceil(PAGE_BYTES) } else { hole.end / PAGE_BYTES };
        holes.insert(hole.start.div_ceil(PAGE_BYTES)..end);
        at = hole.end;
    }
    Ok(holes)
}

/// Whether it has flags that a new file would lack.
fn has_flags(file: &File) -> bool {
    rustix::fs::ioctl_getflags(file).is_ok_and(|flags| flags.intersects(INHERITED))
}

fn attributes(stat: &rustix::fs::Stat) -> Attributes {
    Attributes {
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
    }
}

/// The path of a name from BACKING on.
fn path(table: &Table, dir: Ino, name: &OsStr) -> Option<Path> {
    let mut names = table.names_between(ROOT, dir)?;
    names.push(name.as_bytes());
    Some(names.join(&b'/').into())
}

fn reference(table: &Table, base: &Base) -> FileRef {
    let paths = base.names.iter().filter_map(|(dir, name)| path(table, *dir, name)).collect();
    FileRef { id: base.id(), paths }
}

#[cfg(test)]
mod tests;
