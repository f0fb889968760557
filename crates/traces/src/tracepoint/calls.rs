//! System calls, as far as they say which bytes were read: joined, thread by thread, to the file that a tracepoint names
//! between a call's beginning and its end.

use super::tasks::Tasks;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

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

/// Where an open file stands; shared by the descriptors that lead to it.
type Open = Arc<AtomicU64>;

/// The open descriptors of all processes, as far as the trace shows them.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    of: HashMap<u32, HashMap<i32, Open>>,
}

impl Descriptors {
    /// A process has this descriptor since before the trace.
    pub(super) fn found(&mut self, pid: u32, fd: i32, offset: u64) {
        self.of.entry(pid).or_default().insert(fd, Arc::new(AtomicU64::new(offset)));
    }

    /// `child` begins with the descriptors of `parent`.
    pub(super) fn forked(&mut self, parent: u32, child: u32) {
        if let Some(open) = self.of.get(&parent).cloned() {
            self.of.insert(child, open);
        }
    }

    pub(super) fn ended(&mut self, pid: u32) {
        self.of.remove(&pid);
    }

    /// Where this call read `len` bytes, if that can be known: `first_byte` is where a page of them begins, mostly the first.
    /// (The kernel does not tell a page that it finds when the next one is just being read from storage.)
    pub(super) fn reads_at(&self, pid: u32, fd: i32, at: Pointer, first_byte: u64, len: u64) -> Option<u64> {
        let at = match at {
            Pointer::There(at) => at,
            Pointer::Here => self.of.get(&pid)?.get(&fd)?.load(Relaxed),
            Pointer::InMemory => UNKNOWN,
        };
        // A descriptor that was handed over a socket, or moved by a call that is not recorded, is found out here.
        (at != UNKNOWN && (at & !0xfff..at.saturating_add(len)).contains(&first_byte)).then_some(at)
    }

    /// A call on `fd` ended at byte `end` of its file.
    pub(super) fn moved(&mut self, pid: u32, fd: i32, at: Pointer, end: Option<u64>) {
        if at == Pointer::Here {
            let open = self.of.entry(pid).or_default().entry(fd).or_default();
            open.store(end.unwrap_or(UNKNOWN), Relaxed);
        }
    }

    /// A call on `fd` moved it on, from wherever it stood.
    pub(super) fn advanced(&mut self, pid: u32, fd: i32, at: Pointer, by: u64) {
        if at == Pointer::Here
            && let Some(open) = self.of.get(&pid).and_then(|table| table.get(&fd))
            && open.load(Relaxed) != UNKNOWN
        {
            open.store(open.load(Relaxed).saturating_add(by), Relaxed);
        }
    }

    /// A call that names no byte ended well.
    pub(super) fn done(&mut self, tasks: &Tasks, tid: u32, call: Call, result: i64) {
        let table = self.of.entry(tasks.pid(tid)).or_default();
        match call {
            Call::Open => {
                table.insert(result as i32, Arc::default());
            }
            Call::Dup { fd } => match table.get(&fd).cloned() {
                Some(open) => {
                    table.insert(result as i32, open);
                }
                None => {
                    table.remove(&(result as i32));
                }
            },
            Call::Seek { fd } => table.entry(fd).or_default().store(result.cast_unsigned(), Relaxed),
            Call::Close { fd } => {
                table.remove(&fd);
            }
            _ => {}
        }
    }
}
