//! Copies of files in RAM that have no final name yet.

use super::{Job, KEPT, Mover, Staged};
use crate::fs::copying::{copy, set_times};
use crate::fs::descriptors::for_a_move;
use crate::fs::failures::{Failed, In, Step};
use crate::fs::namespace::Namespace;
use crate::fs::residence::Residence;
use crate::fs::temps::Temp;
use crate::fs::types::Ino;
use rustix::io::Errno;
use std::fs::File;
use std::sync::Arc;

impl Mover {
    /// Copies the file's content and attributes, but not its names and times; `None` if it is not
    /// in RAM.
    pub(super) fn stage(&self, job: Job) -> Result<Option<Staged>, Failed> {
        let ino = job.ino;
        let (file_state, named_in, checkpoint) = {
            let mut table = self.table();
            let named_in = match table.node(ino) {
                Some(node)
                    if matches!(node.residence(), Residence::Ram(_) | Residence::HandedOver) =>
                {
                    node.names.first().map(|name| name.0)
                }
                _ => return Ok(None),
            };
            let Ok(file_state) = self.delayed.file_state(&mut table, ino) else { return Ok(None) };
            let checkpoint = table.current_checkpoint(ino, &file_state);
            (file_state, named_in, checkpoint)
        };
        let changes = file_state.changes();
        let nameless = named_in.is_none();
        let staged = |file_state, temp, file, bytes, itself| {
            let flushed = false;
            Staged { job, file_state, temp, file, changes, bytes, itself, flushed, nameless }
        };
        if let Some((checkpoint, file)) = checkpoint
            && checkpoint.changes == changes
        {
            return Ok(Some(staged(file_state, Temp::Placed, Arc::new(file), 0, false)));
        }
        let kept = self.kept.lock().remove(&ino);
        if let Some(kept) = kept {
            if kept.changes == changes && !job.large && !nameless {
                self.table().release(ino, file_state);
                return Ok(Some(Staged { job, ..kept }));
            }
            self.discard(kept);
        }
        if let Some(file) = self.store.handed_over(ino) {
            let bytes = rustix::fs::fstat(&file).step(Step::Open)?.st_size as u64;
            return Ok(Some(staged(file_state, Temp::Unnamed, file, bytes, true)));
        }
        let source = match self.store.open_to_copy(ino) {
            Err(Errno::NOENT) => return Ok(None),
            source => source.step(Step::Open)?,
        };
        let unnamed = match job.large || nameless {
            true => self.create_without_name(named_in).step(Step::Open)?,
            false => None,
        };
        let (temp, file) = match unnamed {
            Some(file) => (Temp::Unnamed, file),
            None if job.large => return Ok(None),
            None => self.create_copy(named_in, job.durable).step(Step::Open)?,
        };
        match copy(&source, &file, &file_state.reserved()).step(Step::Copy) {
            Ok(bytes) => Ok(Some(staged(file_state, temp, Arc::new(file), bytes, false))),
            Err(error) => {
                self.discard(staged(file_state, temp, Arc::new(file), 0, false));
                Err(error)
            }
        }
    }

    /// Keeps a flushed copy for the next attempt. Returns the one that is not kept.
    pub(super) fn keep(&self, copy: Staged) -> Option<Staged> {
        let mut kept = self.kept.lock();
        if kept.len() >= for_a_move(KEPT) {
            return Some(copy);
        }
        kept.insert(copy.job.ino, Staged { flushed: true, ..copy });
        None
    }

    /// A file is gone, and so is its copy.
    pub(crate) fn forget_kept(&self, table: &mut Namespace, ino: Ino) {
        if let Some(kept) = self.kept.lock().remove(&ino) {
            table.remove_temp(&kept.temp);
            table.close_later(Some(kept.file));
        }
    }

    /// Gives a copy the times of its file.
    pub(super) fn copy_times(&self, ino: Ino, to: &File) -> Result<rustix::fs::Stat, Failed> {
        let was = self.store.stat(ino).step(Step::Open)?;
        let has = rustix::fs::fstat(to).step(Step::Copy)?;
        let of = |stat: &rustix::fs::Stat| {
            (stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec)
        };
        // A checkpoint that is current costs no write.
        if of(&has) != of(&was) {
            set_times(to, &was).step(Step::Copy)?;
        }
        Ok(was)
    }

    /// Creates a file for the copy of a file that is called so. `syncs`: an fsync of the copy
    /// follows, for which a name that has to be renamed costs less than none.
    ///
    /// # Errors
    ///
    /// BACKING has no space.
    pub(crate) fn create_copy(
        &self,
        named_in: Option<Ino>,
        syncs: bool,
    ) -> Result<(Temp, File), Errno> {
        let mut table = self.table();
        let ordered = self.backing.volume.is_ordered();
        if let Some(ino) = named_in.filter(|_| ordered) {
            if !syncs && let Ok(dir) = table.dir_for_copy(ino) {
                // Creating it may wait for a slow device.
                drop(table);
                match self.backing.create_unnamed(&dir) {
                    Ok(Some(file)) => return Ok((Temp::Unnamed, file)),
                    Ok(None) | Err(_) => table = self.table(),
                }
            }
            if let Ok(dir) = table.dir(ino)
                && let Ok((name, file)) = table.create_temp_in(ino, &dir)
            {
                return Ok((Temp::In(ino, dir, name), file));
            }
        }
        drop(table);
        self.backing.create_temp().map(|(name, file)| (Temp::Hidden(name), file))
    }

    /// Creates a file without a name for a file that is called so; `None` where there can be none.
    pub(crate) fn create_without_name(&self, named_in: Option<Ino>) -> Result<Option<File>, Errno> {
        let dir = named_in.and_then(|ino| self.table().dir_for_copy(ino).ok());
        match dir {
            Some(dir) if self.backing.volume.is_ordered() => self.backing.create_unnamed(&dir),
            Some(_) => Ok(None),
            None => self.backing.create_unnamed_in_hidden(),
        }
    }

    pub(super) fn discard(&self, copy: Staged) {
        let mut table = self.table();
        table.remove_temp(&copy.temp);
        table.release(copy.job.ino, copy.file_state);
    }
}
