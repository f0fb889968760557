//! System calls and the bytes that they read. Each call is matched, thread by thread, with the file
//! that a tracepoint names between the call's entry and its exit.

use super::tasks::Tasks;
use crate::process::slab::Slab;
use flashsift_events::event::{FileId, OpenId};
use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU32,
};

/// A system call, its descriptors and offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnteredCall {
    /// A read: `read`, `pread64`, `readv`, `preadv`, `preadv2`.
    Read {
        /// File descriptor.
        fd: i32,
        /// Offset in the file.
        at: Pointer,
    },
    /// A write: `write` and its family.
    Write {
        /// File descriptor.
        fd: i32,
        /// Offset in the file.
        at: Pointer,
    },
    /// A copy between files: `sendfile`, `splice`, `copy_file_range`.
    Copy {
        /// Source descriptor.
        from: i32,
        /// Offset in the source.
        from_at: Pointer,
        /// Destination descriptor.
        to: i32,
        /// Offset in the destination.
        to_at: Pointer,
    },
    /// A new descriptor at offset 0: `open` and its family.
    Open,
    /// The result is a new descriptor of the same open file, as `dup` returns it.
    Dup {
        /// File descriptor.
        fd: i32,
    },
    /// The result is the descriptor's new offset.
    Seek {
        /// File descriptor.
        fd: i32,
    },
    /// `close` of a descriptor.
    Close {
        /// File descriptor.
        fd: i32,
    },
    /// A truncation: `truncate`, `ftruncate`.
    Truncate {
        /// New size in bytes.
        size: u64,
    },
    /// Any other recorded call. Keeping it prevents its exit from ending another call.
    Other,
}

/// The offset at which a call reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// The file position of the descriptor, which the call advances.
    Here,
    /// An explicit byte offset.
    There(u64),
    /// An offset in the memory of the process, which is not recorded.
    InMemory,
}

const UNKNOWN: u64 = u64::MAX;

/// An open file description, shared by the descriptors that refer to it.
#[derive(Debug)]
struct Description {
    /// Number of descriptors that refer to it.
    refs: u32,
    /// Current file position.
    offset: u64,
    /// The file, by its index and its number, once a read or write has identified it.
    file: Option<(u32, FileId)>,
}

/// The open descriptors of all processes, as far as the trace shows them.
///
/// A close by `execve` or by a call that is not recorded is detected when the descriptor number is
/// used again, or when the process ends.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    /// By process and descriptor, in the order in which the kernel closes them when a process ends.
    of: HashMap<u32, BTreeMap<i32, u32>>,
    open: Slab<Description>,
    /// Ended opens whose file is known.
    closed: Vec<(Option<OpenId>, u32, FileId)>,
}

impl Descriptors {
    /// Records a descriptor that the process had before the trace began.
    pub(super) fn found(&mut self, pid: u32, fd: i32, offset: u64) {
        self.put(pid, fd, offset);
    }

    /// Records a new open at a descriptor.
    fn put(&mut self, pid: u32, fd: i32, offset: u64) -> u32 {
        let open = self.open.add(Description { refs: 1, offset, file: None });
        self.set(pid, fd, open);
        open
    }

    /// Makes a descriptor refer to this open and counts the reference.
    fn set(&mut self, pid: u32, fd: i32, open: u32) {
        if let Some(before) = self.of.entry(pid).or_default().insert(fd, open) {
            self.release(before);
        }
    }

    fn get(&self, pid: u32, fd: i32) -> Option<u32> {
        self.of.get(&pid)?.get(&fd).copied()
    }

    fn release(&mut self, open: u32) {
        self.open[open].refs -= 1;
        if self.open[open].refs == 0
            && let Some((file, id)) = self.open.remove(open).file
        {
            self.closed.push((number(open), file, id));
        }
    }

    /// Takes the opens that ended since the last call: their files by index and number.
    pub(super) fn take_closed(&mut self) -> Vec<(Option<OpenId>, u32, FileId)> {
        std::mem::take(&mut self.closed)
    }

    /// Copies the descriptors of `parent` to its new process `child`.
    pub(super) fn forked(&mut self, parent: u32, child: u32) {
        self.ended(child);
        if let Some(table) = self.of.get(&parent).cloned() {
            for open in table.values() {
                self.open[*open].refs += 1;
            }
            self.of.insert(child, table);
        }
    }

    pub(super) fn ended(&mut self, pid: u32) {
        for open in self.of.remove(&pid).unwrap_or_default().into_values() {
            self.release(open);
        }
    }

    pub(super) fn close(&mut self, pid: u32, fd: i32) {
        if let Some(open) = self.of.get_mut(&pid).and_then(|table| table.remove(&fd)) {
            self.release(open);
        }
    }

    /// A read or write through `fd` reached this file. Returns the number of the open, and whether
    /// its file was unknown until now.
    pub(super) fn leads(
        &mut self,
        pid: u32,
        fd: i32,
        file: (u32, FileId),
    ) -> (Option<OpenId>, bool) {
        let mut open = self.get(pid, fd);
        if let Some(known) = open.and_then(|open| self.open[open].file)
            && known.1 != file.1
        {
            // The descriptor came from another process, or from a call that is not recorded.
            let offset = open.map_or(UNKNOWN, |open| self.open[open].offset);
            open = Some(self.put(pid, fd, offset));
        }
        let open = open.unwrap_or_else(|| self.put(pid, fd, UNKNOWN));
        let fresh = self.open[open].file.replace(file).is_none();
        (number(open), fresh)
    }

    /// The offset at which this call read `len` bytes, if it can be derived. `first_byte` is the
    /// start of one of its pages, usually the first. (The kernel does not report a page that it
    /// finds while the next one is being read from storage.)
    pub(super) fn reads_at(
        &self,
        pid: u32,
        fd: i32,
        at: Pointer,
        first_byte: u64,
        len: u64,
    ) -> Option<u64> {
        let at = match at {
            Pointer::There(at) => at,
            Pointer::Here => self.open[self.get(pid, fd)?].offset,
            Pointer::InMemory => UNKNOWN,
        };
        // This also detects a descriptor that came over a socket or from a call that is not
        // recorded.
        (at != UNKNOWN && (at & !0xfff..at.saturating_add(len)).contains(&first_byte)).then_some(at)
    }

    /// A call on `fd` ended at byte `end` of its file.
    pub(super) fn moved(&mut self, pid: u32, fd: i32, at: Pointer, end: Option<u64>) {
        if at == Pointer::Here {
            let open = self.get(pid, fd).unwrap_or_else(|| self.put(pid, fd, UNKNOWN));
            self.open[open].offset = end.unwrap_or(UNKNOWN);
        }
    }

    /// A call on `fd` advanced its file position by a known number of bytes.
    pub(super) fn advanced(&mut self, pid: u32, fd: i32, at: Pointer, by: u64) {
        if at == Pointer::Here
            && let Some(open) = self.get(pid, fd)
            && self.open[open].offset != UNKNOWN
        {
            let offset = &mut self.open[open].offset;
            *offset = offset.saturating_add(by);
        }
    }

    /// A call that carries no offset succeeded.
    pub(super) fn done(&mut self, tasks: &Tasks, tid: u32, call: EnteredCall, result: i64) {
        let pid = tasks.pid(tid);
        match call {
            EnteredCall::Open => drop(self.put(pid, result as i32, 0)),
            EnteredCall::Dup { fd } => match self.get(pid, fd) {
                Some(open) => {
                    self.open[open].refs += 1;
                    self.set(pid, result as i32, open);
                }
                None => self.close(pid, result as i32),
            },
            EnteredCall::Seek { fd } => {
                let open = self.get(pid, fd).unwrap_or_else(|| self.put(pid, fd, UNKNOWN));
                self.open[open].offset = result.cast_unsigned();
            }
            // The descriptor was closed on entry.
            _ => {}
        }
    }
}

fn number(open: u32) -> Option<OpenId> {
    NonZeroU32::new(open.wrapping_add(1)).map(OpenId)
}
