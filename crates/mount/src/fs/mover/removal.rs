//! Files that leave RAM and reach no flash: they lost their last name, or the sifter drops them.

use super::Mover;
use crate::fs::decider::At;
use crate::fs::drops::DroppedName;
use crate::fs::namespace::Namespace;
use crate::fs::types::{Ino, ROOT};
use flashsift_files::sift::Blocked;
use rustix::io::{Errno, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

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

    /// Removes one name of a file in RAM. Without names and opens, the file is deleted.
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
        let Some(node) = table.node(ino) else { return Ok(()) };
        let (named, open) = (!node.names.is_empty(), node.opens > 0);
        if named {
            return self.store.touch(ino);
        }
        if !open {
            self.remove_from_ram(table, at, ino);
        }
        Ok(())
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
        Ok(())
    }
}
