//! Reads and writes: joins their pieces, and refines them by system calls.

use super::{
    super::{
        EnteredCall, Inode, Pointer,
        tasks::{Reading, Writing},
    },
    Host, TracepointMachine,
};
use crate::events::Skip;
use flashsift_events::{
    event::{Action, OpenId},
    page::PAGE_BYTES,
};
use std::ops::Range;

/// Number of pages that the kernel finds at once in a read. A smaller batch ended early.
const BATCH_PAGES: u64 = 15;
const SIZE_UNKNOWN: Skip =
    Skip::Note("read from a file of unknown size: rounded to whole pages, perhaps past its end");
const OFFSET_UNKNOWN: Skip = Skip::Note(
    "read whose first byte is known to the page only (descriptor or offset not recorded)",
);

impl TracepointMachine {
    pub(super) fn pages(
        &mut self,
        tid: u32,
        inode: Inode,
        first: u64,
        last: u64,
        host: &mut dyn Host,
    ) {
        let thread = self.threads.entry(tid).or_default();
        let cold = std::mem::take(&mut thread.ahead);
        let first = match thread.missed.take() {
            Some((of, from, to)) if (of, to) == (inode, last) && from < first => from,
            _ => first,
        };
        if thread.call.is_some() {
            thread.call_read.get_or_insert((inode, first));
            return;
        }
        if let Some(read) = &mut thread.read
            && (read.inode, read.last) == (inode, last)
            && (read.first + 1..=last).contains(&first)
            && (read.cold || cold || first - read.first >= BATCH_PAGES)
        {
            (read.first, read.cold) = (first, cold);
            return;
        }
        thread.read = Some(Reading { inode, first, last, cold });
        if thread.write.is_some() || thread.stored.is_some() {
            self.flush(tid);
        }
        if self.is_elsewhere(tid, inode.dev) {
            return;
        }
        let file = self.file(inode);
        if !self.is_in_scope(tid, file) {
            return;
        }
        let (offset, len) = self.cut(file, first, last, host);
        self.access(tid, file, None, (offset, len), false, false);
    }

    /// Takes pages that entered the page cache as a read, unless the thread is writing to the file.
    pub(super) fn added(&mut self, tid: u32, inode: Inode, first: u64, pages: u64) {
        let thread = self.threads.entry(tid).or_default();
        let written = thread.write.as_ref().map(|write| write.inode);
        if [written, thread.wrote.filter(|_| thread.in_call)].contains(&Some(inode))
            || self.block_bytes(inode.dev).is_none()
        {
            return;
        }
        self.flush(tid);
        let file = self.file(inode);
        self.access(tid, file, None, (first * PAGE_BYTES, pages * PAGE_BYTES), false, false);
    }

    /// Returns the bytes of these pages that lie within the file.
    fn cut(&mut self, file: u32, first: u64, last: u64, host: &mut dyn Host) -> (u64, u64) {
        let f = &mut self.files[file];
        let (start, end) =
            (first.saturating_mul(PAGE_BYTES), last.saturating_add(1).saturating_mul(PAGE_BYTES));
        if f.size.is_some_and(|size| size <= start) {
            // The kernel found that page, so the file has grown without a report.
            f.may_have_grown = true;
        }
        let unsure = f.size.is_none() || f.may_have_grown;
        if unsure && f.size.is_none_or(|size| size < end) {
            // The file was truncated since; the new size has not arrived here yet.
            let at_least = f.size.unwrap_or(0).max(start + 1);
            match f.handle.and_then(|handle| host.size(handle)).filter(|now| *now >= at_least) {
                Some(now) => {
                    f.has(now);
                    (f.size, f.may_have_grown) = (Some(now), false);
                }
                None => {
                    self.skip(SIZE_UNKNOWN);
                    return (start, end - start);
                }
            }
        }
        let size = self.files[file].size.unwrap_or(end);
        (start, size.min(end) - start)
    }

    pub(super) fn written(&mut self, tid: u32, inode: Inode, offset: u64, len: u64) {
        self.flush(tid);
        let thread = self.thread(tid);
        // Pages that become dirty now belong to this write, also if its source is mapped.
        (thread.wrote, thread.in_call) = (Some(inode), true);
        if len == 0 || self.block_bytes(inode.dev).is_none() {
            return;
        }
        let file = self.file(inode);
        let open = self.open_of(tid, file, true);
        self.files[file].reaches(offset.saturating_add(len));
        self.write(tid, file, open, (offset, len), false);
    }

    pub(super) fn write_begins(&mut self, tid: u32, inode: Inode, offset: u64, len: u64) {
        let thread = self.threads.entry(tid).or_default();
        let in_call = thread.call.is_some();
        if let Some(write) = thread.write.as_mut().filter(|write| write.inode == inode) {
            if write.left > 0 && offset.checked_add(len) == Some(write.end) && offset >= write.start
            {
                // The last piece was not copied whole, was refused, and comes again.
                (write.end, write.left) = (offset, write.left.saturating_add(len));
                return;
            }
            if write.end == offset && (write.left == len || in_call) {
                return;
            }
        }
        self.flush(tid);
        self.thread(tid).write =
            Some(Writing { inode, start: offset, end: offset, left: len, sync: false });
    }

    pub(super) fn write_ends(&mut self, tid: u32, inode: Inode, offset: u64, copied: u64) {
        let thread = self.threads.entry(tid).or_default();
        thread.wrote = Some(inode);
        let in_call = thread.call.is_some();
        let fresh = Writing { inode, start: offset, end: offset, left: copied, sync: false };
        let write = thread.write.get_or_insert(fresh);
        write.end = offset.saturating_add(copied);
        write.left = write.left.saturating_sub(copied);
        if write.left == 0 && !in_call {
            self.flush(tid);
        }
    }

    /// Emits the accesses in progress of the thread.
    pub(super) fn flush(&mut self, tid: u32) {
        let thread = self.threads.entry(tid).or_default();
        if let Some((inode, page)) = thread.stored.take()
            && self.block_bytes(inode.dev).is_some()
        {
            let file = self.file(inode);
            self.access(tid, file, None, (page * PAGE_BYTES, PAGE_BYTES), false, false);
        }
        let thread = self.threads.entry(tid).or_default();
        let Some(Writing { inode, start, end, sync, .. }) = thread.write.take() else { return };
        if end > start && self.block_bytes(inode.dev).is_some() {
            let file = self.file(inode);
            let open = self.open_of(tid, file, true);
            self.files[file].reaches(end);
            self.write(tid, file, open, (start, end - start), sync);
        }
    }

    fn write(
        &mut self,
        tid: u32,
        file: u32,
        open: Option<OpenId>,
        (offset, len): (u64, u64),
        sync: bool,
    ) {
        if self.is_in_scope(tid, file) {
            let file = self.id(tid, file);
            self.emit(tid, Action::Write { open, file, offset, len, sync });
        }
    }

    pub(super) fn access(
        &mut self,
        tid: u32,
        file: u32,
        open: Option<OpenId>,
        (offset, len): (u64, u64),
        write: bool,
        direct: bool,
    ) {
        if !self.is_in_scope(tid, file) {
            return;
        }
        let file = self.id(tid, file);
        self.emit(
            tid,
            match write {
                _ if direct => Action::Direct { open, file, offset, len, write },
                true => Action::Write { open, file, offset, len, sync: false },
                false => Action::Read { open, file, offset, len },
            },
        );
    }

    /// The kernel filled these bytes with zeros for the direct write before.
    pub(super) fn filled(&mut self, tid: u32, file: u32, zeros: Range<u64>) {
        if !zeros.is_empty() && self.is_in_scope(tid, file) {
            let (file, len) = (self.id(tid, file), zeros.end - zeros.start);
            self.emit(tid, Action::Filled { file, offset: zeros.start, len });
        }
    }

    pub(super) fn leave(&mut self, tid: u32, result: i64) {
        let thread = self.threads.entry(tid).or_default();
        let (call, read) = (thread.call, thread.call_read.take());
        let (resized, wrote) =
            (thread.resized.take(), thread.write.as_ref().map(|write| write.end));
        if let (Some(call), Ok(done)) = (call, u64::try_from(result)) {
            self.call_done(tid, call, read, resized, wrote, done);
        } else {
            self.flush(tid);
        }
        self.thread(tid).call = None;
    }

    fn call_done(
        &mut self,
        tid: u32,
        call: EnteredCall,
        read: Option<(Inode, u64)>,
        resized: Option<Inode>,
        wrote: Option<u64>,
        done: u64,
    ) {
        if let EnteredCall::Copy { from, from_at, .. } = call {
            self.call_read(tid, (from, from_at), read, done);
        }
        self.flush(tid);
        let pid = self.tasks.pid(tid);
        match call {
            EnteredCall::Read { fd, at } => self.call_read(tid, (fd, at), read, done),
            EnteredCall::Write { fd, at } => self.call_moved(pid, (fd, at), wrote, done),
            EnteredCall::Copy { to, to_at, .. } => self.call_moved(pid, (to, to_at), wrote, done),
            EnteredCall::Truncate { size } => {
                if let Some(file) = resized.and_then(|inode| self.files.current(inode)) {
                    self.resized(tid, file, size);
                }
            }
            call => {
                self.descriptors.done(&self.tasks, tid, call, done.cast_signed());
                self.emit_closes(tid);
            }
        }
    }

    fn call_read(
        &mut self,
        tid: u32,
        (fd, at): (i32, Pointer),
        read: Option<(Inode, u64)>,
        len: u64,
    ) {
        let pid = self.tasks.pid(tid);
        let Some((inode, first)) = read.filter(|_| len > 0) else {
            return self.call_moved(pid, (fd, at), None, len);
        };
        let first_byte = first * PAGE_BYTES;
        let offset = self.descriptors.reads_at(pid, fd, at, first_byte, len);
        let start = offset.unwrap_or(first_byte);
        self.descriptors.moved(pid, fd, at, Some(start + len));
        if self.block_bytes(inode.dev).is_none() {
            return;
        }
        let file = self.file(inode);
        if offset.is_none() && self.is_in_scope(tid, file) {
            self.skip(OFFSET_UNKNOWN);
        }
        let open = self.opened(tid, fd, file);
        self.files[file].reaches(start + len);
        self.access(tid, file, open, (start, len), false, false);
    }

    /// Moves the file position of a descriptor to `end`, or to unknown.
    fn call_moved(&mut self, pid: u32, (fd, at): (i32, Pointer), end: Option<u64>, by: u64) {
        match end {
            Some(_) => self.descriptors.moved(pid, fd, at, end),
            None => self.descriptors.advanced(pid, fd, at, by),
        }
    }
}
