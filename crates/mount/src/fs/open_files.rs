//! Open files: reading, writing, syncing.

use super::Fs;
use super::content::Content;
use super::events::At;
use super::opens::Open;
use super::table::{Is, Table};
use super::types::{Access, Ino, Opened};
use super::write_back::Job;
use flashsift_core::event::{Action, FileId, OpenId};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl Fs {
    /// Opens a regular file. The caller checks the permissions.
    ///
    /// # Errors
    ///
    /// `ESTALE`: the file is gone from BACKING. The errors of opening it there.
    pub fn open(&self, tid: u32, ino: Ino) -> Result<(OpenId, Opened)> {
        let at = self.arrived_to_open(tid);
        let mut table = self.table();
        let (content, opened) = self.hold(&mut table, ino)?;
        match self.met(&mut table, at, ino, &content) {
            Ok(file) => Ok((self.opened(at, ino, file, content, false), opened)),
            Err(error) => {
                self.unhold(&mut table, at, ino);
                Err(error)
            }
        }
    }

    /// Registers an open file description; the table must be locked.
    pub(crate) fn opened(
        &self,
        at: At,
        ino: Ino,
        file: FileId,
        content: Arc<Content>,
        created: bool,
    ) -> OpenId {
        let open =
            self.opens.insert(Open { ino, file, content, passthrough: AtomicBool::new(false) });
        self.saw(at, Action::Open { file, open: Some(open), created });
        open
    }

    /// Its identity in the event stream.
    fn met(&self, table: &mut Table, at: At, ino: Ino, content: &Content) -> Result<FileId> {
        if let Some(file) = table.file(ino) {
            return Ok(file);
        }
        let place = content.place.read();
        let size = rustix::fs::fstat(place.file.as_ref().ok_or(Errno::BADF)?)?.st_size as u64;
        Ok(self.meet(table, at, ino, size))
    }

    /// The file is open once more, if only for this program itself.
    fn hold(&self, table: &mut Table, ino: Ino) -> Result<(Arc<Content>, Opened)> {
        let content = self.content(table, ino)?;
        let mut place = content.place.write();
        let node = table.node(ino).ok_or(Errno::STALE)?;
        let (is, opens) = (node.is.clone(), node.opens);
        if place.file.is_none() {
            place.file = Some(match is {
                Is::Ram => self.store.open(ino)?,
                Is::Settled(backing_ino) => Arc::new(self.open_settled(table, ino, backing_ino)?),
                Is::Gone(_) => return Err(Errno::STALE),
            });
        }
        let opened = if place.settled {
            Opened::Settled { first: opens == 0 && self.names_are_durable(table, ino) }
        } else {
            Opened::InRam
        };
        if let Some(node) = table.node_mut(ino) {
            node.opens += 1;
        }
        drop(place);
        Ok((content, opened))
    }

    /// Number of opens of a file.
    pub(crate) fn count_opens(&self, ino: Ino) -> u32 {
        self.table().node(ino).map_or(0, |node| node.opens)
    }

    /// The open file on flash, which the kernel may read and write without us; `None` for a file in
    /// RAM.
    pub fn settled_file(&self, open: OpenId) -> Option<Arc<File>> {
        let open = self.opens.get(open)?;
        let place = open.content.place.read();
        if place.settled { place.file.clone() } else { None }
    }

    /// Records that this open has passthrough.
    pub(crate) fn set_passed_through(&self, open: OpenId) {
        if let Some(open) = self.opens.get(open) {
            open.passthrough.store(true, Ordering::Relaxed);
        }
    }

    /// Ends an open. Returns whether it had passthrough.
    pub fn release(&self, tid: u32, open: OpenId) -> bool {
        let at = self.arrived(tid);
        let mut table = self.table();
        let Some(ended) = self.opens.get(open) else { return false };
        // The number is free for others after its close.
        self.saw(at, Action::Close { file: ended.file, open: Some(open) });
        drop(self.opens.remove(open));
        let (ino, passthrough) = (ended.ino, ended.passthrough.load(Ordering::Relaxed));
        drop(ended);
        self.unhold(&mut table, at, ino);
        passthrough
    }

    /// It is open once less.
    fn unhold(&self, table: &mut Table, at: At, ino: Ino) {
        let Some(node) = table.node_mut(ino) else { return };
        node.opens = node.opens.saturating_sub(1);
        if node.opens > 0 {
            return;
        }
        if let Some(content) = &node.content {
            content.place.write().file = None;
            if Arc::strong_count(content) == 1 && node.checkpoint.is_none() {
                node.content = None;
            }
        }
        if matches!(node.is, Is::Ram) && node.names.is_empty() {
            self.remove_from_ram(table, at, ino);
        } else {
            if matches!(node.is, Is::Gone(_)) {
                self.saw_end(table, at, ino);
            }
            table.drop_unused(ino);
        }
    }

    fn at_open(&self, open: OpenId) -> Result<Arc<Open>> {
        self.opens.get(open).ok_or(Errno::BADF)
    }

    /// Reads as many bytes as there are, up to the length of `bytes`. Takes no lock that users of
    /// another file take.
    ///
    /// # Errors
    ///
    /// The errors of reading the file: `EIO` and others.
    pub fn read(
        &self,
        access: Access,
        open: OpenId,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize> {
        let at = self.arrived(access.tid);
        let it = self.at_open(open)?;
        let (file, stays) = it.content.open()?;
        // On flash a read does not wait for a slow write, so a read may follow a truncation that it
        // overlaps.
        let _order = stays.is_some().then(|| it.content.order.read());
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
        let (file, open, len) = (it.file, Some(open), read as u64);
        self.saw(
            at,
            match access.is_direct() {
                true => Action::Direct { file, open, offset, len, write: false },
                false => Action::Read { file, open, offset, len },
            },
        );
        Ok(read)
    }

    /// Writes as many of the bytes as there is space for, durably if the file is open with `O_SYNC`
    /// or `O_DSYNC`.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: neither RAM nor BACKING has space. `EFBIG`, `EIO`; with `O_SYNC` also the errors
    /// of the write-back.
    pub fn write(&self, access: Access, open: OpenId, offset: u64, bytes: &[u8]) -> Result<usize> {
        let at = self.arrived(access.tid);
        let it = self.at_open(open)?;
        let sync = asks_for_sync(access.flags);
        let mut written = 0;
        while written < bytes.len() {
            let rest = &bytes[written..];
            let offset = offset + written as u64;
            let saw = |_: &File, len: &usize| {
                let (file, open, len) = (it.file, Some(open), *len as u64);
                self.saw(
                    at,
                    match access.is_direct() {
                        true => Action::Direct { file, open, offset, len, write: true },
                        false => Action::Write { file, open, offset, len, sync },
                    },
                );
            };
            let end = offset.saturating_add(rest.len() as u64);
            let write = |file: &File| file.write_at(rest, offset).map_err(|error| errno(&error));
            match self.in_place(&it.content, rest.len() as u64, end, write, saw) {
                Ok(more) => written += more,
                Err(Errno::INTR) => (),
                Err(error) if written == 0 => return Err(error),
                Err(_) => break,
            }
        }
        if sync {
            self.make_durable_now(&it, false)?;
        }
        Ok(written)
    }

    /// Changes a file's bytes where the file is at the moment, and then runs `saw` with the file's
    /// order still held. If RAM is full, the oldest files are written back first; if flash is full,
    /// the change fails.
    fn in_place<T>(
        &self,
        content: &Content,
        bytes: u64,
        end: u64,
        act: impl Fn(&File) -> Result<T>,
        saw: impl Fn(&File, &T),
    ) -> Result<T> {
        let in_order = |file: &File| {
            let _order = content.order.write();
            let done = act(file);
            if let Ok(done) = &done {
                saw(file, done);
            }
            done
        };
        loop {
            let gate = content.gate.read();
            let (file, stays) = content.open()?;
            let Some(stays) = stays else {
                drop(gate);
                return in_order(&file);
            };
            if end > self.backing.largest_file {
                return Err(Errno::FBIG);
            }
            if !stays.handed_over {
                self.reservation.take(
                    bytes,
                    std::os::fd::AsFd::as_fd(&self.backing.root),
                    &self.store,
                )?;
            }
            let done = in_order(&file);
            content.changed();
            if stays.handed_over || !matches!(done, Err(Errno::NOSPC)) {
                return done;
            }
            drop(stays);
            drop(gate);
            // Its pages are free only when it is closed, if it leaves RAM now.
            drop(file);
            self.make_room(bytes)?;
        }
    }

    /// Truncates or extends a file to `size`.
    pub(crate) fn resize(&self, at: At, ino: Ino, size: u64) -> Result<()> {
        // The process that has it open may be about to close it.
        let mut table = self.table();
        let (content, _) = self.hold(&mut table, ino)?;
        let file = self.met(&mut table, at, ino, &content);
        drop(table);
        let done = file.and_then(|file| {
            let cut = |file: &File| rustix::fs::ftruncate(file, size);
            self.in_place(&content, 0, size, cut, |_, ()| {
                self.saw(at, Action::Truncate { file, size })
            })
        });
        drop(content);
        self.unhold(&mut self.table(), at, ino);
        done
    }

    /// Makes the file's content and names durable. From now on the file lives on flash.
    ///
    /// # Errors
    ///
    /// The write-back or the sync failed. The file stays in RAM if its write-back failed.
    pub fn fsync(&self, tid: u32, open: OpenId, data_only: bool) -> Result<()> {
        let it = self.at_open(open)?;
        self.saw(self.arrived(tid), Action::Sync { file: it.file, offset: 0, len: u64::MAX });
        self.make_durable_now(&it, data_only)
    }

    fn make_durable_now(&self, open: &Open, data_only: bool) -> Result<()> {
        let was_in_ram = !open.content.place.read().settled;
        self.settle_synced(&[open.ino])?;
        let place = open.content.place.read().clone();
        // Not held meanwhile: a sync may take long, and a file on flash does not move.
        match &place.file {
            // The file has no name, so no process can open it after a crash.
            Some(_) if !place.settled => Ok(()),
            Some(file) => match open.content.synced().filter(|_| was_in_ram) {
                // The write-back, which came after this request, has made it durable, or could not.
                Some(done) => done,
                // It makes no name durable.
                None if data_only && self.are_names_durable(open.ino) => {
                    rustix::fs::fdatasync(file)
                }
                None => self.fsync_settled(open.ino, file),
            },
            None => Err(Errno::BADF),
        }
    }

    fn are_names_durable(&self, ino: Ino) -> bool {
        self.names_are_durable(&self.table(), ino)
    }

    /// Reserves, frees or shifts a part of a file.
    ///
    /// # Errors
    ///
    /// `ENOSPC`, `EOPNOTSUPP`, `EFBIG`, and the other errors of fallocate(2).
    pub fn fallocate(
        &self,
        tid: u32,
        open: OpenId,
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Result<()> {
        let at = self.arrived(tid);
        let it = self.at_open(open)?;
        let flags = FallocateFlags::from_bits_retain(mode);
        let takes = if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::COLLAPSE_RANGE)
        {
            0
        } else {
            len
        };
        let end = offset.saturating_add(len);
        let size = |file: &File| -> Result<u64> { Ok(rustix::fs::fstat(file)?.st_size as u64) };
        let allocate = |file: &File| -> Result<[u64; 2]> {
            let before = size(file)?;
            rustix::fs::fallocate(file, flags, offset, len)?;
            Ok([before, size(file)?])
        };
        let saw = |_: &File, sizes: &[u64; 2]| {
            self.saw_allocated(at, it.file, flags, (offset, len), *sizes)
        };
        let done = self.in_place(&it.content, takes, end, allocate, saw);
        if done == Err(Errno::OPNOTSUPP) && !it.content.place.read().settled {
            // tmpfs knows only some of what BACKING may know.
            self.settle(&[Job::later(it.ino)])?;
            return self.in_place(&it.content, takes, end, allocate, saw).map(drop);
        }
        done.map(drop)
    }

    /// Ranges that were freed, zeroed or shifted hold none of the bytes that were written there.
    fn saw_allocated(
        &self,
        at: At,
        file: FileId,
        flags: FallocateFlags,
        (offset, len): (u64, u64),
        [before, after]: [u64; 2],
    ) {
        if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            self.saw(at, Action::Punch { file, offset, len });
        } else if flags.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE) {
            self.saw(at, Action::Punch { file, offset, len: before.saturating_sub(offset) });
        }
        if before != after {
            self.saw(at, Action::Truncate { file, size: after });
        }
    }

    /// Start of the next data or the next hole.
    ///
    /// # Errors
    ///
    /// `ENXIO`: there is no more data or the offset is behind the end.
    pub fn seek(&self, open: OpenId, offset: u64, hole: bool) -> Result<u64> {
        let it = self.at_open(open)?;
        let (file, _stays) = it.content.open()?;
        rustix::fs::seek(&file, if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) })
    }
}

/// Whether the flags of `open` require every write to be durable.
pub(crate) fn asks_for_sync(flags: i32) -> bool {
    OFlags::from_bits_retain(flags as u32).intersects(OFlags::SYNC | OFlags::DSYNC)
}

pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
