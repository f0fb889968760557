//! System calls, as far as they say which bytes were read: joined, thread by thread, to the file that a tracepoint names
//! between a call's beginning and its end.

use super::tasks::Tasks;
use crate::process::slab::Slab;
use flashsift_core::event::{FileId, OpenId};
use std::{collections::HashMap, num::NonZeroU32};

/// A system call, its descriptors and offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `read`, `pread64`, `readv`, `preadv`, `preadv2`.
    Read {
        /// Descriptor.
        fd: i32,
        /// Where.
        at: Pointer,
    },
    /// `write` and its family.
    Write {
        /// Descriptor.
        fd: i32,
        /// Where.
        at: Pointer,
    },
    /// `sendfile`, `splice`, `copy_file_range`.
    Copy {
        /// Read from.
        from: i32,
        /// Where.
        from_at: Pointer,
        /// Written to.
        to: i32,
        /// Where.
        to_at: Pointer,
    },
    /// A new descriptor at offset 0: `open` and its family.
    Open,
    /// The result is another descriptor of this one's open file.
    Dup {
        /// Descriptor.
        fd: i32,
    },
    /// The result is the descriptor's new offset.
    Seek {
        /// Descriptor.
        fd: i32,
    },
    /// `close`.
    Close {
        /// Descriptor.
        fd: i32,
    },
    /// `truncate`, `ftruncate`.
    Truncate {
        /// New size, bytes.
        size: u64,
    },
    /// Any other that is recorded, so that its end is not taken for another's.
    Other,
}

/// Where in its file a call reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// Where its descriptor stands, which moves on.
    Here,
    /// At this byte.
    There(u64),
    /// Where the process's memory says, which is not recorded.
    InMemory,
}

const UNKNOWN: u64 = u64::MAX;

/// An open file, shared by the descriptors that lead to it.
#[derive(Debug)]
struct Description {
    /// Descriptors.
    refs: u32,
    /// Where it stands.
    offset: u64,
    /// Which it is, by its index and its number, once a read or write has shown it.
    file: Option<(u32, FileId)>,
}

/// The open descriptors of all processes, as far as the trace shows them.
///
/// What `execve` closes, or a call that is not recorded, is found out when the number is used again, or
/// when the process ends.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    of: HashMap<u32, HashMap<i32, u32>>,
    open: Slab<Description>,
    /// Opens that ended and whose file is known.
    closed: Vec<(Option<OpenId>, u32, FileId)>,
}

impl Descriptors {
    /// A process has this descriptor since before the trace.
    pub(super) fn found(&mut self, pid: u32, fd: i32, offset: u64) {
        self.put(pid, fd, offset);
    }

    /// A new open at a descriptor.
    fn put(&mut self, pid: u32, fd: i32, offset: u64) -> u32 {
        let open = self.open.add(Description { refs: 1, offset, file: None });
        self.set(pid, fd, open);
        open
    }

    /// A descriptor leads to this open, of which it has a reference.
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

    /// Opens that have ended since this was last asked: their file by its index and its number.
    pub(super) fn take_closed(&mut self) -> Vec<(Option<OpenId>, u32, FileId)> {
        std::mem::take(&mut self.closed)
    }

    /// `child` begins with the descriptors of `parent`.
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

    /// A read or write through `fd` reached this file. The open's number, and whether its file was not
    /// known before.
    pub(super) fn leads(&mut self, pid: u32, fd: i32, file: (u32, FileId)) -> (Option<OpenId>, bool) {
        let mut open = self.get(pid, fd);
        if let Some(known) = open.and_then(|open| self.open[open].file)
            && known.1 != file.1
        {
            // It came from another process, or by a call that is not recorded.
            let offset = open.map_or(UNKNOWN, |open| self.open[open].offset);
            open = Some(self.put(pid, fd, offset));
        }
        let open = open.unwrap_or_else(|| self.put(pid, fd, UNKNOWN));
        let fresh = self.open[open].file.replace(file).is_none();
        (number(open), fresh)
    }

    /// Where this call read `len` bytes, if that can be known: `first_byte` is where a page of them begins, mostly the first.
    /// (The kernel does not tell a page that it finds when the next one is just being read from storage.)
    pub(super) fn reads_at(&self, pid: u32, fd: i32, at: Pointer, first_byte: u64, len: u64) -> Option<u64> {
        let at = match at {
            Pointer::There(at) => at,
            Pointer::Here => self.open[self.get(pid, fd)?].offset,
            Pointer::InMemory => UNKNOWN,
        };
        // A descriptor that was handed over a socket, or moved by a call that is not recorded, is found out here.
        (at != UNKNOWN && (at & !0xfff..at.saturating_add(len)).contains(&first_byte)).then_some(at)
    }

    /// A call on `fd` ended at byte `end` of its file.
    pub(super) fn moved(&mut self, pid: u32, fd: i32, at: Pointer, end: Option<u64>) {
        if at == Pointer::Here {
            let open = self.get(pid, fd).unwrap_or_else(|| self.put(pid, fd, UNKNOWN));
            self.open[open].offset = end.unwrap_or(UNKNOWN);
        }
    }

    /// A call on `fd` moved it on, from wherever it stood.
    pub(super) fn advanced(&mut self, pid: u32, fd: i32, at: Pointer, by: u64) {
        if at == Pointer::Here
            && let Some(open) = self.get(pid, fd)
            && self.open[open].offset != UNKNOWN
        {
            let offset = &mut self.open[open].offset;
            *offset = offset.saturating_add(by);
        }
    }

    /// A call that names no byte ended well.
    pub(super) fn done(&mut self, tasks: &Tasks, tid: u32, call: Call, result: i64) {
        let pid = tasks.pid(tid);
        match call {
            Call::Open => drop(self.put(pid, result as i32, 0)),
            Call::Dup { fd } => match self.get(pid, fd) {
                Some(open) => {
                    self.open[open].refs += 1;
                    self.set(pid, result as i32, open);
                }
                None => self.close(pid, result as i32),
            },
            Call::Seek { fd } => {
                let open = self.get(pid, fd).unwrap_or_else(|| self.put(pid, fd, UNKNOWN));
                self.open[open].offset = result.cast_unsigned();
            }
            // Closed when it began.
            _ => {}
        }
    }
}

fn number(open: u32) -> Option<OpenId> {
    NonZeroU32::new(open.wrapping_add(1)).map(OpenId)
}
