//! Names of files of a group: they change in the table alone, until their epoch ends.

use super::Fs;
use super::beneath::proc_path;
use super::decider::At;
use super::namespace::Namespace;
use super::residence::Residence;
use super::table::Table;
use super::types::{Attr, Ino, Name};
use rustix::fs::{AtFlags, FileType, RenameFlags};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;

impl Fs {
    /// Creates a further name for a file that lives in BACKING.
    pub(crate) fn link_in_backing(
        &self,
        table: &mut Namespace,
        at: At,
        ino: Ino,
        (parent, name): (Ino, &OsStr),
    ) -> Result<Attr> {
        let dir = table.dir(parent)?;
        self.delayed.direct_change(parent);
        let path = table.path_of(ino)?;
        let flags = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, proc_path(&path), &dir, name, flags)?;
        table.name(ino, parent, &Name::from(name));
        table.emit_link(at, ino, (parent, name));
        table.looked_up(ino)
    }

    /// Performs an operation; once more if flash has no space, and deleted files still take some,
    /// until the kernel forgets them or their epoch ends.
    ///
    /// # Errors
    ///
    /// Those of the operation.
    pub(crate) fn with_space<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        let (epochs, removals) = (self.delayed.epochs(), self.mover.removals());
        let mut done = act();
        let frees: [&dyn Fn() -> bool; 2] =
            [&|| self.mover.remove_nameless(removals), &|| self.delayed.ends_for_space(epochs)];
        for frees in frees {
            if matches!(done, Err(Errno::NOSPC)) && frees() {
                done = act();
            }
        }
        match done {
            Err(Errno::NOSPC) => self.mover.after_deletions(act),
            done => done,
        }
    }

    /// Reserves space on flash for a further name of a file in RAM.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is none.
    pub(crate) fn reserve_name(&self, table: &Table, (dir, name): (Ino, &OsStr)) -> Result<()> {
        let space = table.space_for_name(dir, name);
        self.reservation.take_exactly(space)
    }

    /// Removes a name of a file of a group. `false`: it is no such file.
    pub(crate) fn unlink_delayed(
        &self,
        table: &mut Namespace,
        at: At,
        dir: Ino,
        name: &OsStr,
    ) -> Result<bool> {
        if self.delayed.delayed_at(table, dir, name)?.is_none() {
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
        self.delayed.delayed_changed();
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
        self.mover.remove_name_in_ram(table, at, dir, name)?;
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
        let Some(delay_us) = self.delayed.delay_us(table, to.0, to.1) else { return Ok(false) };
        if !self.delayed.may_log() {
            return Ok(false);
        }
        if self.delayed.delay_us(table, from.0, from.1).is_none() {
            self.delayed.learn_temporary(table, from, to, delay_us);
        }
        let source = match self.delayed.delayed_at(table, from.0, from.1)? {
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
            _ => match self.delayed.delayed_at(table, to.0, to.1)? {
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
            self.delayed.joins_from_ram(table, source, delay_us)?;
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
        self.delayed.note_delayed_name(table, to.0, to.1);
        table.dir_changed(from.0);
        table.dir_changed(to.0);
        self.store.touch(source)?;
        if let Some(file) = table.delayed_file(source) {
            file.touched();
        }
        self.delayed.delayed_changed();
        Ok(true)
    }
}

impl Fs {
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
        self.delayed.between_epochs(&names, |table| {
            let there = table.in_ram(to.0, to.1).is_some();
            match table.residence(ino) {
                Some(Residence::Flash(_)) if !there => {
                    self.link_in_backing(table, at, ino, to).map(Some)
                }
                _ => Ok(None),
            }
        })
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
