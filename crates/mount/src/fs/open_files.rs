//! Open files: reading, writing, syncing.

use super::Fs;
use super::content::Content;
use super::table::Is;
use super::types::{Ino, Opened};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

impl Fs {
    /// Opens a regular file. What may be done with it the caller has checked.
    pub fn open(&self, ino: Ino) -> Result<Opened> {
        let content = self.content(ino)?;
        let mut table = self.table();
        let mut place = content.place.write();
        let node = table.node(ino).ok_or(Errno::STALE)?;
        let (is, opens) = (node.is.clone(), node.opens);
        if place.file.is_none() {
            place.file = Some(Arc::new(match is {
                Is::Ram => self.store.open(ino)?,
                Is::Settled(backing_ino) => self.open_settled(&mut table, ino, backing_ino)?,
                Is::Gone(_) => return Err(Errno::STALE),
            }));
        }
        let opened = if place.settled {
            Opened::Settled { first: opens == 0 && self.names_are_durable() }
        } else {
            Opened::InRam
        };
        if let Some(node) = table.node_mut(ino) {
            node.opens += 1;
        }
        drop(place);
        self.opened.write().insert(ino, content);
        Ok(opened)
    }

    /// By how many it is open.
    pub(crate) fn opens(&self, ino: Ino) -> u32 {
        self.table().node(ino).map_or(0, |node| node.opens)
    }

    /// The file itself, where it has settled and is open: what the kernel may read and write without us.
    pub fn settled_file(&self, ino: Ino) -> Option<Arc<File>> {
        let content = self.opened.read().get(&ino)?.clone();
        let place = content.place.read();
        if place.settled { place.file.clone() } else { None }
    }

    /// One who had it open is done.
    pub fn release(&self, ino: Ino) {
        let mut table = self.table();
        let Some(node) = table.node_mut(ino) else { return };
        node.opens = node.opens.saturating_sub(1);
        if node.opens > 0 {
            return;
        }
        self.opened.write().remove(&ino);
        if let Some(content) = &node.content {
            content.place.write().file = None;
            if Arc::strong_count(content) == 1 {
                node.content = None;
            }
        }
        if matches!(node.is, Is::Ram) && node.names.is_empty() {
            self.remove_from_ram(&mut table, ino);
        } else {
            if matches!(node.is, Is::Gone(_)) {
                self.saw_end(ino);
            }
            table.drop_unused(ino);
        }
    }

    fn opened(&self, ino: Ino) -> Result<Arc<Content>> {
        self.opened.read().get(&ino).cloned().ok_or(Errno::BADF)
    }

    /// As many bytes as there are, up to the length of `bytes`.
    pub fn read(&self, ino: Ino, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let content = self.opened(ino)?;
        let (file, _stays) = content.open()?;
        let mut read = 0;
        while read < bytes.len() {
            match file.read_at(&mut bytes[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => (),
                Err(error) if read == 0 => return Err(errno(&error)),
                Err(_) => break,
            }
        }
        Ok(read)
    }

    /// As many of the bytes as there is room for; with `sync`, durably.
    pub fn write(&self, ino: Ino, offset: u64, bytes: &[u8], sync: bool) -> Result<usize> {
        let content = self.opened(ino)?;
        let mut written = 0;
        while written < bytes.len() {
            let rest = &bytes[written..];
            let at = offset + written as u64;
            match self.in_place(&content, rest.len() as u64, at.saturating_add(rest.len() as u64), |file| {
                file.write_at(rest, at).map_err(|error| errno(&error))
            }) {
                Ok(more) => written += more,
                Err(Errno::INTR) => (),
                Err(error) if written == 0 => return Err(error),
                Err(_) => break,
            }
        }
        if sync {
            self.fsync(ino, false)?;
        }
        Ok(written)
    }

    /// Does what may take more space, where the file is at the moment. Where RAM is full, the oldest files settle first; where flash is, nothing helps.
    fn in_place<T>(
        &self,
        content: &Content,
        bytes: u64,
        end: u64,
        act: impl Fn(&File) -> Result<T>,
    ) -> Result<T> {
        loop {
            let gate = content.gate.read();
            let (file, stays) = content.open()?;
            let Some(stays) = stays else {
                drop(gate);
                return act(&file);
            };
            if end > self.backing.largest_file {
                return Err(Errno::FBIG);
            }
            self.reservation.take(bytes, std::os::fd::AsFd::as_fd(&self.backing.root), &self.store)?;
            let done = act(&file);
            content.changed();
            if !matches!(done, Err(Errno::NOSPC)) {
                return done;
            }
            drop(stays);
            drop(gate);
            self.make_room(bytes)?;
        }
    }

    /// The file ends at `size`.
    pub(crate) fn resize(&self, content: &Arc<Content>, ino: Ino, size: u64) -> Result<()> {
        // Whoever has it open may be about to close it.
        self.open(ino)?;
        let done = self.in_place(content, 0, size, |file| rustix::fs::ftruncate(file, size));
        self.release(ino);
        done
    }

    /// Everything that was written is durable, and the file's names are. From now on it lives on flash.
    pub fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.settle_now(&[ino])?;
        let place = self.opened(ino)?.place.read().clone();
        // Not held meanwhile: a sync may take long, and a settled file does not move.
        match &place.file {
            // Nobody can ask for it after a crash: it has no name.
            Some(_) if !place.settled => Ok(()),
            // It makes no name durable.
            Some(file) if data_only && self.names_are_durable() => rustix::fs::fdatasync(file),
            Some(file) => rustix::fs::fsync(file),
            None => Err(Errno::BADF),
        }
    }

    /// Reserves, frees or shifts a part of it.
    pub fn fallocate(&self, ino: Ino, offset: u64, len: u64, mode: u32) -> Result<()> {
        let content = self.opened(ino)?;
        let flags = FallocateFlags::from_bits_retain(mode);
        let takes = if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::COLLAPSE_RANGE) {
            0
        } else {
            len
        };
        let end = offset.saturating_add(len);
        let done =
            self.in_place(&content, takes, end, |file| rustix::fs::fallocate(file, flags, offset, len));
        if done == Err(Errno::OPNOTSUPP) && !content.place.read().settled {
            // tmpfs knows only some of what BACKING may know.
            self.settle_now(&[ino])?;
            return self
                .in_place(&content, takes, end, |file| rustix::fs::fallocate(file, flags, offset, len));
        }
        done
    }

    /// Where the next data or the next hole begins.
    pub fn seek(&self, ino: Ino, offset: u64, hole: bool) -> Result<u64> {
        let content = self.opened(ino)?;
        let (file, _stays) = content.open()?;
        rustix::fs::seek(&file, if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) })
    }
}

/// The flags of `open` that ask for every write to be durable.
pub(crate) fn asks_for_sync(flags: i32) -> bool {
    OFlags::from_bits_retain(flags as u32).intersects(OFlags::SYNC | OFlags::DSYNC)
}

pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
