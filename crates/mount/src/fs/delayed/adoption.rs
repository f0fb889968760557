//! Files that join a group or leave it.

use super::Delayed;
use crate::fs::copying::copy_attributes;
use crate::fs::decider::At;
use crate::fs::delayed_file::{Base, DelayedFile, Left};
use crate::fs::descriptors::may_open;
use crate::fs::namespace::Namespace;
use crate::fs::recovery::born_ns;
use crate::fs::residence::Residence;
use crate::fs::table::Node;
use crate::fs::types::Ino;
use flashsift_events::event::Micros;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, Result};
use std::sync::Arc;

impl Delayed {
    /// Makes a file in RAM that is no file of a group yet one of this group.
    pub(crate) fn joins_from_ram(
        &self,
        table: &mut Namespace,
        ino: Ino,
        delay_us: Micros,
    ) -> Result<()> {
        let size = self.store.stat(ino)?.st_size as u64;
        table.join(ino, Arc::new(DelayedFile::new(delay_us, size)));
        if let Some(file) = table.file(ino) {
            // The sifter need not care any more.
            self.decider.is_on_flash(file);
            self.decider.ignore(file);
        }
        Ok(())
    }

    /// Makes a file that BACKING has a file of a group in RAM, if it is to be one. The gate is held
    /// shared, or nothing is open.
    ///
    /// # Errors
    ///
    /// RAM has no space; the file cannot be read.
    pub(crate) fn adopt(&self, table: &mut Namespace, ino: Ino) -> Result<bool> {
        let Some(backing_ino) = table.residence(ino).and_then(Residence::backing_ino) else {
            return Ok(table.delayed().contains_key(&ino));
        };
        let Some(delay_us) = self.delay_of_file(table, ino) else { return Ok(false) };
        if self.was_changed_outside(backing_ino) {
            return Ok(false);
        }
        let file_state = table.node(ino).and_then(Node::file_state).cloned();
        // Another kind of open may be under way, whose writes we do not see.
        if file_state.as_ref().is_some_and(|file_state| !file_state.is_in_group()) {
            return Ok(false);
        }
        let mut place = file_state.as_ref().map(|file_state| file_state.place_to_move());
        let file = match place.as_ref().and_then(|place| place.file().cloned()) {
            Some(file) => file,
            None => match table.open_settled(ino, backing_ino) {
                Ok(file) => Arc::new(file),
                Err(Errno::STALE) => return Err(Errno::STALE),
                Err(_) => return Ok(false),
            },
        };
        // Each takes a descriptor more, which syncs and epochs need if there are few.
        if !self.may_log() || may_open(&file).is_err() {
            return Ok(false);
        }
        let flags = rustix::fs::fcntl_getfl(&file)?;
        let stat = rustix::fs::fstat(&file)?;
        let names = table.node(ino).map(|node| node.names.clone()).unwrap_or_default();
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !flags.contains(OFlags::RDWR)
            || flags.contains(OFlags::APPEND)
            || !is_file
            || !self.admits(stat.st_uid)
            || stat.st_nlink as usize != names.len()
        {
            return Ok(false);
        }
        let mode = Mode::from_raw_mode(stat.st_mode);
        let ram = match self.store.create(ino, mode, Some(stat.st_uid), Some(stat.st_gid)) {
            Ok(ram) => ram,
            Err(Errno::PERM) => return Ok(false),
            Err(error) => return Err(error),
        };
        if let Err(error) = copy_attributes(&file, &stat, &ram) {
            table.close_later(self.store.remove(ino)?);
            return match error {
                // Such as an attribute that RAM does not support.
                Errno::OPNOTSUPP | Errno::PERM | Errno::NOSPC => Ok(false),
                other => Err(other),
            };
        }
        let at = At { us: self.decider.now(), tid: 0 };
        let id = table.introduce(at, ino, stat.st_size as u64);
        if !table.names_are_durable(ino) {
            self.names_changed_below();
        }
        let (born_ns, left) = (born_ns(&file), Left::new(&stat));
        let counted = self.open_files.clone();
        let durable = false;
        let base = Base { file, ino: backing_ino, born_ns, durable, names, left, counted };
        let adopted = Arc::new(DelayedFile::with_base(delay_us, base, stat.st_size as u64));
        table.adopt(ino, place.as_deref_mut(), adopted, Arc::new(ram));
        self.decider.ignore(id);
        self.decider.is_in_ram(id);
        Ok(true)
    }

    /// Ends the life in RAM of a file of a group that BACKING has as it is. The gate is held
    /// exclusively. Returns whether it lives in BACKING now.
    pub(super) fn release_delayed(&self, table: &mut Namespace, ino: Ino) -> Result<bool> {
        let Some(file) = table.delayed_file(ino) else { return Ok(true) };
        let Some(node) = table.node(ino) else { return Ok(false) };
        let names = node.names.clone();
        let pages = file.pages.read();
        let Some(base) = pages.base.clone() else { return Ok(false) };
        let same = names.iter().all(|name| base.names.contains(name))
            && names.len() == base.names.len()
            && !names.is_empty();
        if pages.changes.any() || pages.in_flight || !pages.deferred.is_empty() || !same {
            return Ok(false);
        }
        drop(pages);
        let was = self.store.stat(ino)?;
        let settled = rustix::fs::fstat(&base.file)?;
        table.settle(ino, None, base.file, (&was, &settled));
        table.close_later(self.store.remove(ino)?);
        if let Some(id) = table.file(ino) {
            self.decider.leaves_ram(id);
            self.decider.unignore(id);
        }
        table.drop_unused(ino);
        Ok(true)
    }
}
