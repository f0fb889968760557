//! Names of groups: which operations an epoch can contain, and which come between two.

use super::Delayed;
use crate::fs::namespace::Namespace;
use crate::fs::residence::FileState;
use crate::fs::table::Table;
use crate::fs::types::{Ino, Name};
use rustix::fs::FileType;
use rustix::io::{Errno, Result};
use std::ffi::OsStr;

/// Attempts to find files of a group unchanged since their epoch ended.
const TRIES: u32 = 100;

impl Delayed {
    /// Takes the file with this name into RAM, if it is a file of a group. `None`: it is none, or
    /// there is none.
    pub(crate) fn delayed_at(
        &self,
        table: &mut Namespace,
        dir: Ino,
        name: &OsStr,
    ) -> Result<Option<Ino>> {
        if !self.is_used() {
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

    /// From now on files with such a name are files of the group at once.
    pub(crate) fn learn_temporary(
        &self,
        table: &mut Namespace,
        from: (Ino, &OsStr),
        to: (Ino, &OsStr),
        delay_us: u64,
    ) {
        let [old, new] = [from, to].map(|(dir, name)| table.path(dir, name));
        if self.temporaries.lock().renamed(&old, &new, delay_us) {
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
        if !self.is_used() {
            return Ok(false);
        }
        let mut is_outside = false;
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
            let Some(stat) = table.in_backing(*dir, name)? else {
                // The new name of a file of BACKING that was outside of the groups.
                if is_outside && self.delay_us(table, *dir, name).is_some() {
                    return Ok(true);
                }
                continue;
            };
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            // Records name files by their paths.
            if is_directory || self.delay_us(table, *dir, name).is_some() {
                return Ok(true);
            }
            is_outside = true;
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
            let _gate = self.gate.write();
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
        if !self.is_used() || self.has_direct_changes(dir) {
            return false;
        }
        let mut in_ram = table.all_in_ram(dir).peekable();
        let any = in_ram.peek().is_some() || table.has_whiteouts(dir);
        any && in_ram.all(|(_, in_ram)| table.delayed().contains_key(&in_ram.ino))
    }

    /// Whether a further name of a file cannot be part of an epoch.
    pub(crate) fn is_whiteout_or_crosses(
        &self,
        table: &mut Namespace,
        ino: Ino,
        (dir, name): (Ino, &OsStr),
        in_group: bool,
    ) -> Result<bool> {
        if !self.is_used() {
            return Ok(false);
        }
        if in_group && self.delay_of_file(table, ino).is_some() && self.adopt(table, ino)? {
            return Ok(false);
        }
        Ok(table.is_whiteout(dir, name) || table.delayed().contains_key(&ino))
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
