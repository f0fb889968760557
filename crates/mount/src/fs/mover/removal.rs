//! Files that leave RAM and reach no flash: they lost their last name, or the sifter drops them.

use super::{Job, Mover};
use crate::fs::decider::At;
use crate::fs::drops::DroppedName;
use crate::fs::namespace::Namespace;
use crate::fs::types::{Ino, ROOT};
use flashsift_files::sift::Blocked;
use parking_lot::Mutex;
use rustix::io::{Errno, Result};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

/// Time that the close of a deleted file may take, and how often an operation is tried again in it.
const CLOSING: Duration = Duration::from_millis(200);
const TRIES: u32 = 100;

impl Mover {
    pub(crate) fn unlink_in_ram(
        &self,
        table: &mut Namespace,
        at: At,
        parent: Ino,
        name: &OsStr,
    ) -> Result<()> {
        if table.in_ram(parent, name).is_some_and(|in_ram| in_ram.hides.is_some()) {
            // Otherwise the hidden file would reappear.
            table.remove_hidden(parent, name)?;
        }
        self.remove_name_in_ram(table, at, parent, name)?;
        table.dir_changed(parent);
        Ok(())
    }

    /// Removes one name of a file in RAM. The file is deleted if nothing leads to it then.
    pub(crate) fn remove_name_in_ram(
        &self,
        table: &mut Namespace,
        at: At,
        parent: Ino,
        name: &OsStr,
    ) -> Result<()> {
        let Some(removed) = table.remove_in_ram(parent, name) else { return Ok(()) };
        let ino = removed.ino;
        table.emit_lost(at, ino, (parent, name));
        table.unname(ino, parent, name);
        if table.node(ino).is_some_and(|node| !node.names.is_empty()) {
            return self.store.touch(ino);
        }
        if table.is_unreachable(ino) {
            self.remove_from_ram(table, at, ino);
        }
        Ok(())
    }

    /// Deletes files without a name that no process has open, although the kernel may still ask for
    /// them: their space is needed. Returns whether one was deleted since `before`, a number of
    /// [`Mover::removals`].
    pub(crate) fn remove_nameless(&self, before: u64) -> bool {
        let mut table = self.table();
        for ino in table.nameless().collect::<Vec<_>>() {
            self.remove_from_ram(&mut table, self.decider.begin(0), ino);
        }
        self.removals() > before
    }

    /// The jobs without files that have no name and are not open: these are deleted.
    pub(super) fn without_nameless(&self, jobs: &[Job]) -> Vec<Job> {
        let mut table = self.table();
        let nameless: HashSet<Ino> = table.nameless().collect();
        let (ended, others): (Vec<Job>, _) =
            jobs.iter().partition(|job| nameless.contains(&job.ino));
        for Job { ino, .. } in ended {
            self.remove_from_ram(&mut table, self.decider.begin(0), ino);
        }
        others
    }

    /// Files that were deleted in RAM so far.
    pub(crate) fn removals(&self) -> u64 {
        *self.removals.lock()
    }

    /// Tries an operation again that found no space, if a file was deleted just now: the kernel
    /// reports later that a program has closed it, and the file's last close takes time.
    pub(crate) fn after_deletions<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        let Some(deleted) = self.table().last_deleted() else { return Err(Errno::NOSPC) };
        let Some(_turn) = self.retries.iter().find_map(Mutex::try_lock) else {
            return Err(Errno::NOSPC);
        };
        while deleted.elapsed() < CLOSING {
            self.removed.wait_for(&mut self.removals.lock(), CLOSING / TRIES);
            match act() {
                Err(Errno::NOSPC) => (),
                done => return done,
            }
        }
        Err(Errno::NOSPC)
    }

    /// Deletes a file that never reached flash.
    pub(crate) fn remove_from_ram(&self, table: &mut Namespace, at: At, ino: Ino) {
        if let Ok(attr) = table.attr_of(ino) {
            table.vanish(ino, None, attr, None);
        }
        self.counters.lock().never_written += 1;
        // If this fails, the file takes space until the next start; nothing else depends on it.
        table.close_later(self.store.remove(ino).ok().flatten());
        self.forget_kept(table, ino);
        table.emit_end(at, ino);
        *self.removals.lock() += 1;
        self.removed.notify_all();
    }

    /// Removes a file in RAM with all its names.
    ///
    /// # Errors
    ///
    /// The file is open, or BACKING refuses to lose a file that one of the names hides. It is all
    /// there then.
    pub(crate) fn drop_file(&self, ino: Ino) -> std::result::Result<(), Blocked> {
        let at = self.decider.begin(0);
        let mut table = self.table();
        let names = match table.node(ino) {
            Some(node) if !node.residence().is_in_ram() => return Ok(()),
            Some(node) if node.opens > 0 => return Err(Blocked::InUse),
            Some(node) => node.names.clone(),
            None => return Ok(()),
        };
        if self.backing.is_read_only() {
            return Err(Blocked::Failed);
        }
        let refused = |errno: Errno| {
            tracing::warn!(errno = errno.raw_os_error(), "dropping a file: {errno}");
            Blocked::Failed
        };
        let attr = table.attr_of(ino).map_err(refused)?;
        // BACKING alone may refuse, so its files go first.
        for (dir, name) in &names {
            if table.in_ram(*dir, name).is_some_and(|in_ram| in_ram.hides.is_some()) {
                table.remove_hidden(*dir, name).map_err(refused)?;
            }
        }
        for (dir, name) in names {
            self.remove_name_in_ram(&mut table, at, dir, &name).map_err(refused)?;
            table.dir_changed(dir);
            if self.drops.are_announced() {
                let names = table.names_between(ROOT, dir).unwrap_or_default();
                let directory = OsString::from_vec(names.join(&b'/')).into();
                self.drops.add(dir, DroppedName { directory, name: name.as_ref().into() }, attr);
            }
        }
        if table.is_in_ram(ino) {
            // The kernel knows it as long as it likes, and its space is wanted now.
            self.remove_from_ram(&mut table, at, ino);
        }
        Ok(())
    }
}
