//! Names of files of a group: they change in the table alone, until their epoch ends.

use crate::fs::Fs;
use crate::fs::decider::At;
use crate::fs::namespace::Namespace;
use crate::fs::residence::{FileState, Residence};
use crate::fs::table::Table;
use crate::fs::types::{Attr, Ino, Name};
use rustix::fs::{FileType, RenameFlags};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;

/// Attempts to find files of a group unchanged since their epoch ended.
const TRIES: u32 = 100;

impl Fs {
    /// Takes the file with this name into RAM, if it is a file of a group. `None`: it is none, or
    /// there is none.
    fn delayed_at(&self, table: &mut Namespace, dir: Ino, name: &OsStr) -> Result<Option<Ino>> {
        if !self.delayed.is_used() {
            return Ok(None);
        }
        if let Some(in_ram) = table.in_ram(dir, name) {
            return Ok(table.delayed().contains_key(&in_ram.ino).then_some(in_ram.ino));
        }
        if self.delay_us(table, dir, name).is_none() {
            return Ok(None);
        }
        let Some(stat) = table.in_backing(dir, name)? else { return Ok(None) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let ino = table.find(dir, name)?;
        let adopted = self.adopt(table, ino);
        if !matches!(adopted, Ok(true)) {
            table.drop_unused(ino);
        }
        Ok(adopted?.then_some(ino))
    }

    /// Removes a name of a file of a group. `false`: it is no such file.
    pub(crate) fn unlink_delayed(
        &self,
        table: &mut Namespace,
        at: At,
        dir: Ino,
        name: &OsStr,
    ) -> Result<bool> {
        if self.delayed_at(table, dir, name)?.is_none() {
            return Ok(false);
        }
        self.backing.refuse_if_read_only()?;
        let open = table.dir(dir)?;
        open.permits(true)?;
        if table.in_ram(dir, name).is_some_and(|in_ram| in_ram.hides.is_some()) {
            open.permits_removal_of(name).or_else(|error| match error {
                Errno::NOENT => Ok(()),
                other => Err(other),
            })?;
        }
        self.remove_delayed_name(table, at, dir, name)?;
        table.dir_changed(dir);
        self.delayed_changed();
        Ok(true)
    }

    /// Removes a name in RAM of a file of a group, and hides what BACKING has under it.
    pub(crate) fn remove_delayed_name(
        &self,
        table: &mut Namespace,
        at: At,
        dir: Ino,
        name: &OsStr,
    ) -> Result<()> {
        let Some(in_ram) = table.in_ram(dir, name) else { return Ok(()) };
        let below = in_ram.hides.is_some() || is_in_flight(table, in_ram.ino);
        self.remove_name_in_ram(table, at, dir, name)?;
        if below {
            table.white_out(dir, &Name::from(name));
        }
        if let Some(file) = table.delayed_file(in_ram.ino) {
            file.touched();
        }
        Ok(())
    }

    /// Moves a name of a file of a group within the groups. `false`: this is no such move.
    pub(crate) fn rename_delayed(
        &self,
        table: &mut Namespace,
        at: At,
        from: (Ino, &OsStr),
        to: (Ino, &OsStr),
        flags: RenameFlags,
    ) -> Result<bool> {
        if !self.delayed.is_used()
            || flags.intersects(RenameFlags::EXCHANGE | RenameFlags::WHITEOUT)
        {
            return Ok(false);
        }
        let Some(delay_us) = self.delay_us(table, to.0, to.1) else { return Ok(false) };
        if self.delay_us(table, from.0, from.1).is_none() {
            self.learn_temporary(table, from, to, delay_us);
        }
        let source = match self.delayed_at(table, from.0, from.1)? {
            Some(source) => source,
            // A file in RAM that is none of a group becomes one by its name.
            None => match table.in_ram(from.0, from.1) {
                Some(in_ram) if in_ram.hides.is_none() && may_join(table, in_ram.ino) => in_ram.ino,
                _ => return Ok(false),
            },
        };
        let target = table.in_ram(to.0, to.1).map(|in_ram| in_ram.ino);
        let there = table.in_backing(to.0, to.1)?;
        let kind = there.as_ref().map(|stat| FileType::from_raw_mode(stat.st_mode));
        if flags.contains(RenameFlags::NOREPLACE) && (target.is_some() || there.is_some()) {
            return Err(Errno::EXIST);
        }
        if target == Some(source) {
            return Ok(true);
        }
        // BACKING counts its names, and may not take one more before it loses this one.
        if table.has_many_names(source) {
            return Ok(false);
        }
        let replaced = match (target, kind) {
            (None, None) => None,
            (None, Some(FileType::Directory)) => return Err(Errno::ISDIR),
            _ => match self.delayed_at(table, to.0, to.1)? {
                Some(replaced) => Some(replaced),
                None => return Ok(false),
            },
        };
        if replaced == Some(source) {
            return Ok(true);
        }
        self.backing.refuse_if_read_only()?;
        table.dir(from.0)?.permits(true)?;
        let into = table.dir(to.0)?;
        into.permits(replaced.is_some())?;
        if there.is_some() {
            into.permits_removal_of(to.1)?;
        }
        if !table.delayed().contains_key(&source) {
            self.joins_from_ram(table, source, delay_us)?;
        }
        if replaced.is_none() {
            self.reserve_name(table, to)?;
        } else {
            self.remove_delayed_name(table, at, to.0, to.1)?;
        }
        self.decider.emit_rename(at, table.file(source), table.writes(from), table.writes(to));
        let in_ram = table.in_ram(from.0, from.1).ok_or(Errno::STALE)?;
        let below = in_ram.hides.is_some() || is_in_flight(table, source);
        table.remove_in_ram(from.0, from.1);
        table.unname(source, from.0, from.1);
        if below {
            table.white_out(from.0, &Name::from(from.1));
        }
        table.name_delayed(source, to)?;
        self.note_delayed_name(table, to.0, to.1);
        table.dir_changed(from.0);
        table.dir_changed(to.0);
        self.store.touch(source)?;
        if let Some(file) = table.delayed_file(source) {
            file.touched();
        }
        self.delayed_changed();
        Ok(true)
    }

    /// From now on files with such a name are files of the group at once.
    fn learn_temporary(
        &self,
        table: &mut Namespace,
        from: (Ino, &OsStr),
        to: (Ino, &OsStr),
        delay_us: u64,
    ) {
        let [old, new] = [from, to].map(|(dir, name)| table.path(dir, name));
        if self.delayed.temporaries.lock().renamed(&old, &new, delay_us) {
            tracing::debug!("{old}: files with such names become files of a group: {new}");
        }
    }

    /// Whether an operation on these names concerns files of a group, and cannot be part of an
    /// epoch.
    pub(crate) fn crosses_group(
        &self,
        table: &mut Namespace,
        names: &[(Ino, &OsStr)],
    ) -> Result<bool> {
        if !self.delayed.is_used() {
            return Ok(false);
        }
        for (dir, name) in names {
            if table.is_whiteout(*dir, name) {
                return Ok(true);
            }
            if let Some(in_ram) = table.in_ram(*dir, name) {
                if table.delayed().contains_key(&in_ram.ino) {
                    return Ok(true);
                }
                continue;
            }
            let Some(stat) = table.in_backing(*dir, name)? else { continue };
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            // Records name files by their paths.
            if is_directory || self.delay_us(table, *dir, name).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends the epoch, lets the files with these names live in BACKING, and performs an operation
    /// there: it comes after all epochs before it, and before all that follow.
    ///
    /// # Errors
    ///
    /// Those of the epoch and of the operation; `EBUSY` if the files are changed all the time.
    pub(crate) fn between_epochs<T>(
        &self,
        names: &[(Ino, &OsStr)],
        mut act: impl FnMut(&mut Namespace) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..TRIES {
            let _closer = self.fence()?;
            let _gate = self.delayed.gate.write();
            let mut table = self.table();
            let mut free = true;
            for (dir, name) in names {
                if table.is_whiteout(*dir, name) {
                    free = false;
                }
                if let Some(in_ram) = table.in_ram(*dir, name)
                    && table.delayed().contains_key(&in_ram.ino)
                {
                    free &= self.release_delayed(&mut table, in_ram.ino)?;
                }
            }
            if free {
                return act(&mut table);
            }
        }
        Err(Errno::BUSY)
    }

    /// Whether all that is new in a directory waits for an epoch.
    pub(crate) fn is_delayed_directory(&self, table: &Table, dir: Ino) -> bool {
        if !self.delayed.is_used() || self.delayed.has_direct_changes(dir) {
            return false;
        }
        let mut in_ram = table.all_in_ram(dir).peekable();
        let any = in_ram.peek().is_some() || table.has_whiteouts(dir);
        any && in_ram.all(|(_, in_ram)| table.delayed().contains_key(&in_ram.ino))
    }
}

impl Fs {
    /// Whether a further name of a file cannot be part of an epoch.
    pub(crate) fn is_whiteout_or_crosses(
        &self,
        table: &mut Namespace,
        ino: Ino,
        (dir, name): (Ino, &OsStr),
        in_group: bool,
    ) -> Result<bool> {
        if !self.delayed.is_used() {
            return Ok(false);
        }
        if in_group && self.delay_of_file(table, ino).is_some() && self.adopt(table, ino)? {
            return Ok(false);
        }
        Ok(table.is_whiteout(dir, name) || table.delayed().contains_key(&ino))
    }

    /// Lets a file live in BACKING, and gives it a further name there. `None`: another thread has
    /// changed its names meanwhile.
    pub(crate) fn links_between_epochs(
        &self,
        at: At,
        ino: Ino,
        to: (Ino, &OsStr),
    ) -> Result<Option<Attr>> {
        let names = self.table().node(ino).ok_or(Errno::STALE)?.names.clone();
        let mut names: Vec<(Ino, &OsStr)> =
            names.iter().map(|(dir, name)| (*dir, &**name)).collect();
        names.push(to);
        self.between_epochs(&names, |table| {
            let there = table.in_ram(to.0, to.1).is_some();
            match table.residence(ino) {
                Some(Residence::Flash(_)) if !there => {
                    self.link_in_backing(table, at, ino, to).map(Some)
                }
                _ => Ok(None),
            }
        })
    }

    /// Lets a file live in BACKING until it is closed: RAM has no space for an attribute of it.
    pub(crate) fn leave_group(&self, ino: Ino, file_state: &FileState) -> Result<()> {
        let names = self.table().node(ino).ok_or(Errno::STALE)?.names.clone();
        if names.is_empty() {
            return Err(Errno::NOSPC);
        }
        let names: Vec<(Ino, &OsStr)> = names.iter().map(|(dir, name)| (*dir, &**name)).collect();
        self.between_epochs(&names, |_| {
            file_state.leaves_group();
            Ok(())
        })
    }

    /// A directory was synced that lost names: their epoch ends in time.
    pub(crate) fn sync_removals(&self, dir: Ino) -> Result<()> {
        let removed: Vec<Name> = {
            let table = self.table();
            let all = table.all_whiteouts().into_iter();
            all.filter(|(of, _)| *of == dir).map(|(_, name)| name).collect()
        };
        let mut least: Option<u64> = None;
        for name in removed {
            let delay_us = self.delay_us(&mut self.table(), dir, &name);
            least = least.into_iter().chain(delay_us).min();
        }
        least.map_or(Ok(()), |delay_us| self.sync_waits(delay_us))
    }
}

/// Whether an epoch that contains this file is being written: BACKING may get its names.
fn is_in_flight(table: &Table, ino: Ino) -> bool {
    table.delayed_file(ino).is_some_and(|file| file.pages.read().in_flight)
}

/// Whether a file in RAM may become a file of a group: it has one name and no copy in BACKING, and
/// no process has it open.
fn may_join(table: &Table, ino: Ino) -> bool {
    table.node(ino).is_some_and(|node| {
        matches!(node.residence(), Residence::Ram(None))
            && node.names.len() == 1
            && node.file_state().is_none_or(|file_state| file_state.place().file().is_none())
    })
}
