//! Copies get the names of their files.

use super::{Batch, Dirs, Job, Mover, Outcome, Placed, Staged};
use crate::fs::failures::{Failed, In, Step};
use crate::fs::namespace::Namespace;
use crate::fs::residence::{Checkpoint, FileState, NAME_ALONE, Place, Residence};
use crate::fs::table::file_id;
use crate::fs::temps::Temp;
use crate::fs::types::{Attr, Ino, Name};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::num::NonZero;
use std::sync::Arc;

impl Mover {
    /// Gives the copy the file's names, if the file has not changed since.
    pub(super) fn place(&self, copy: Staged, batch: &mut Batch) -> Result<Outcome, Failed> {
        let mut table = self.table();
        let outcome = self.place_in(&mut table, &copy, batch);
        let copy = match &outcome {
            // Without space the copy is in the way, too.
            Err(Failed { step: Step::Rename | Step::Link, errno })
                if !matches!(*errno, Errno::NOSPC | Errno::DQUOT)
                    && !copy.itself
                    && !matches!(copy.temp, Temp::Placed) =>
            {
                let is_named = matches!(&outcome, Err(failed) if failed.step == Step::Link);
                let copy = if is_named { Staged { temp: Temp::Linked, ..copy } } else { copy };
                let Some(copy) = self.keep(copy) else { return outcome };
                copy
            }
            _ => copy,
        };
        let renamed = match &outcome {
            Ok(outcome) => matches!(outcome, Outcome::Settled | Outcome::Kept),
            Err(failed) => failed.step == Step::Link,
        };
        if !renamed {
            table.remove_temp(&copy.temp);
        }
        let mut counters = self.counters.lock();
        match outcome {
            Ok(Outcome::Settled) => {
                counters.settled += 1;
                counters.settled_bytes += copy.bytes;
            }
            Ok(Outcome::Kept) => counters.settled_bytes += copy.bytes,
            Ok(Outcome::Changed) => counters.restarts += 1,
            _ => (),
        }
        drop(counters);
        table.release(copy.job.ino, copy.file_state);
        // The kernel may have forgotten it while it lived in RAM.
        table.drop_unused(copy.job.ino);
        outcome
    }

    pub(super) fn place_in(
        &self,
        table: &mut Namespace,
        copy: &Staged,
        batch: &mut Batch,
    ) -> Result<Outcome, Failed> {
        let ino = copy.job.ino;
        let mut place = copy.file_state.place_to_move();
        let Some(node) = table.node(ino) else { return Ok(Outcome::Nothing) };
        if !matches!(node.residence(), Residence::Ram(_) | Residence::HandedOver) {
            return Ok(Outcome::Nothing);
        }
        let is_current = match copy.changes {
            NAME_ALONE => self.named_alone(table, ino).is_some(),
            changes => copy.file_state.changes() == changes,
        };
        if !is_current {
            return Ok(Outcome::Changed);
        }
        let Some(node) = table.node(ino) else { return Ok(Outcome::Nothing) };
        let (names, is_in_ram) =
            (node.names.clone(), matches!(node.residence(), Residence::Ram(_)));
        let was = match copy.itself {
            true => self.store.stat(ino).step(Step::Open)?,
            false => self.copy_times(ino, &copy.file)?,
        };
        let about = rustix::fs::fstat(&copy.file).step(Step::Rename)?;
        if names.is_empty() {
            // Only processes that have the file open know of it.
            table.remove_temp(&copy.temp);
            let about = rustix::fs::fstat(&copy.file).step(Step::Rename)?;
            table.vanish(ino, Some(&mut place), Attr::new(ino, &about), Some(copy.file.clone()));
            self.has_left_ram(table, ino);
        } else {
            if about.st_nlink == 0 && !matches!(copy.temp, Temp::Unnamed) {
                // An application has removed the directory that the copy was in, or its names.
                return Ok(Outcome::Changed);
            }
            if !matches!(copy.temp, Temp::Placed) {
                self.take_names(table, copy, about.st_ino, &names, &mut batch.dirs)?;
            } else if table.current_checkpoint(ino, &copy.file_state).is_none() {
                // The file has got another name since, or none.
                return Ok(Outcome::Changed);
            }
            if copy.job.keep && names.len() == 1 && is_in_ram {
                table.hides(ino, &names, about.st_ino);
                let (backing_ino, changes) = (about.st_ino, copy.changes);
                table.keep_copy(ino, &mut place, Checkpoint { backing_ino, changes });
                return Ok(Outcome::Kept);
            }
            let of = (copy.job, &copy.file_state);
            self.settles(table, of, &mut place, &copy.file, &was, batch)?;
        }
        Ok(Outcome::Settled)
    }

    /// Ends the file's life in RAM.
    fn has_left_ram(&self, table: &mut Namespace, ino: Ino) {
        self.decider.leaves_ram(file_id(ino));
        self.decider.is_on_flash(file_id(ino));
        // If this fails, the file is unreachable, and deleted with the mount.
        table.close_later(self.store.remove(ino).ok().flatten());
    }

    /// Lets a file live in BACKING, where this file has its names. `was` are its attributes in RAM.
    pub(super) fn settles(
        &self,
        table: &mut Namespace,
        (job, file_state): (Job, &Arc<FileState>),
        place: &mut Place,
        file: &Arc<File>,
        was: &rustix::fs::Stat,
        batch: &mut Batch,
    ) -> Result<(), Failed> {
        let settled = rustix::fs::fstat(file).step(Step::Rename)?;
        table.settle(job.ino, Some(place), file.clone(), (was, &settled));
        if job.durable || !self.backing.volume.is_ordered() {
            let (backing_ino, file_state, file) =
                (settled.st_ino, file_state.clone(), file.clone());
            batch.placed.push(Placed { job, backing_ino, file_state, file });
        }
        self.has_left_ram(table, job.ino);
        Ok(())
    }

    /// Places the first name, then the further ones, in order of creation.
    pub(super) fn take_names(
        &self,
        table: &mut Namespace,
        copy: &Staged,
        backing_ino: u64,
        names: &[(Ino, Name)],
        placed_in: &mut Dirs,
    ) -> Result<(), Failed> {
        let mut dirs = HashMap::new();
        let from = match &copy.temp {
            Temp::In(dir, ..) => Some(dir),
            _ => None,
        };
        for dir in names.iter().map(|(dir, _)| dir) {
            if !dirs.contains_key(dir) {
                let was = table.attr_of(*dir).step(Step::Rename)?;
                dirs.insert(*dir, (table.dir(*dir).step(Step::Rename)?, was));
            }
        }
        // The file may have moved since to another directory than its copy.
        let from = from
            .filter(|from| !dirs.contains_key(from))
            .and_then(|from| Some((*from, table.dir(*from).ok()?, table.attr_of(*from).ok()?)));
        for (placed, (dir, name)) in names.iter().enumerate() {
            let into = &dirs[dir].0;
            let hides = table.in_ram(*dir, name).and_then(|in_ram| in_ram.hides);
            if hides.map(NonZero::get) == Some(backing_ino)
                && self.backing.stat(into, name).is_ok_and(|stat| stat.st_ino == backing_ino)
            {
                // It got this name at an attempt before.
                continue;
            }
            let done = match (placed, &copy.temp) {
                (0, temp @ (Temp::Hidden(_) | Temp::In(..))) => {
                    table.rename_temp(temp, into, name).step(Step::Rename)
                }
                (0, Temp::Unnamed | Temp::Linked) => {
                    table.link_over(&copy.file, (*dir, into), name).step(Step::Rename)
                }
                _ => table.link_over(&copy.file, (*dir, into), name).step(Step::Link),
            };
            if let Err(error) = done {
                // The file stays in RAM. The files in BACKING under its names are no newer than
                // those that these names hide.
                table.hides(copy.job.ino, &names[..placed], backing_ino);
                return Err(error);
            }
        }
        if let Some((ino, dir, was)) = from {
            table.keep_times_of(ino, &dir, &was);
        }
        for (ino, (dir, was)) in dirs {
            table.keep_times_of(ino, &dir, &was);
            self.delayed.direct_change(ino);
            placed_in.insert(ino, dir);
        }
        Ok(())
    }
}
