//! Threads, the processes they belong to, and which of them are recorded.

use super::{Inode, calls::Call};
use std::collections::{HashMap, HashSet};

/// What a thread is in the middle of.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// The read that its last pages belong to.
    pub(super) read: Option<Reading>,
    /// The kernel read ahead for it since then: the pages found end there, and more may follow.
    pub(super) ahead: bool,
    /// The pages, first and last, of a request whose first page was missing. The kernel may tell it from a later page on.
    pub(super) missed: Option<(Inode, u64, u64)>,
    /// The write whose pieces are being put together.
    pub(super) write: Option<Writing>,
    /// It just wrote to this file: pages that become dirty are that write's.
    pub(super) wrote: Option<Inode>,
    /// It is in a call whose end will be told.
    pub(super) in_call: bool,
    /// Its last page fault.
    pub(super) fault: Option<Faulting>,
    /// A store to a page that may be private: it shows if the page becomes dirty.
    pub(super) stored: Option<(Inode, u64)>,
    /// The direction of its access past the page cache.
    pub(super) direct_write: bool,
    /// Where its write call begins.
    pub(super) writes_at: Option<u64>,
    /// Its call goes past the page cache.
    pub(super) direct_call: bool,
    /// It cuts this file, and has not yet said where.
    pub(super) cutting: Option<Inode>,
    /// It cuts this file, and said where.
    pub(super) cut: Option<Inode>,
    /// Its call changes this file's size.
    pub(super) resized: Option<Inode>,
    /// `fallocate` under way: file and the size it may grow to.
    pub(super) allocating: Option<(Inode, u64)>,
    /// The system call that it is in.
    pub(super) call: Option<Call>,
    /// The first pages that the call read.
    pub(super) call_read: Option<(Inode, u64)>,
}

#[derive(Debug)]
pub(super) struct Reading {
    pub(super) inode: Inode,
    pub(super) first: u64,
    pub(super) last: u64,
    /// The batch that began at `first` ended early.
    pub(super) cold: bool,
}

#[derive(Debug)]
pub(super) struct Writing {
    pub(super) inode: Inode,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Bytes of the call that are still to come.
    pub(super) left: u64,
    pub(super) sync: bool,
}

#[derive(Debug)]
pub(super) struct Faulting {
    pub(super) address: u64,
    /// It has been told as an access to this file.
    pub(super) told: Option<Inode>,
}

/// All threads that have been seen.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    pids: HashMap<u32, u32>,
    names: HashMap<u32, Box<str>>,
    /// The threads that are recorded, with their descendants; `None`: all.
    chosen: Option<HashSet<u32>>,
    ignored: HashSet<u32>,
}

impl Tasks {
    /// Of these threads and their descendants only.
    pub(super) fn only(&mut self, tids: impl IntoIterator<Item = u32>) {
        self.chosen.get_or_insert_default().extend(tids);
    }

    /// Never of these: the recorder itself.
    pub(super) fn never(&mut self, tids: impl IntoIterator<Item = u32>) {
        self.ignored.extend(tids);
    }

    /// A thread from before the trace, nameless.
    pub(super) fn found_thread(&mut self, tid: u32, pid: u32) {
        self.pids.insert(tid, pid);
    }

    /// A thread from before the trace.
    pub(super) fn found(&mut self, tid: u32, pid: u32, name: &str) {
        self.found_thread(tid, pid);
        self.names.entry(pid).or_insert_with(|| name.into());
    }

    pub(super) fn is_recorded(&self, tid: u32) -> bool {
        match &self.chosen {
            Some(chosen) => chosen.contains(&tid),
            None => !self.ignored.contains(&tid),
        }
    }

    /// The process of a thread.
    pub(super) fn pid(&self, tid: u32) -> u32 {
        self.pids.get(&tid).copied().unwrap_or(tid)
    }

    /// What a process is called.
    pub(super) fn name(&self, pid: u32) -> Option<&str> {
        self.names.get(&pid).map(AsRef::as_ref)
    }

    pub(super) fn new_task(&mut self, parent: u32, tid: u32, thread: bool, name: &str) {
        let pid = if thread { self.pid(parent) } else { tid };
        self.pids.insert(tid, pid);
        if !thread {
            let name = self.name(self.pid(parent)).unwrap_or(name).into();
            self.names.insert(pid, name);
        }
        if let Some(chosen) = &mut self.chosen
            && chosen.contains(&parent)
        {
            chosen.insert(tid);
        }
        if self.ignored.contains(&parent) {
            self.ignored.insert(tid);
        } else {
            self.ignored.remove(&tid);
        }
    }

    /// A thread runs another program; it is now its process's first thread, `tid`.
    pub(super) fn exec(&mut self, tid: u32, old_tid: u32, program: &str) {
        if let Some(chosen) = &mut self.chosen
            && chosen.contains(&old_tid)
        {
            chosen.insert(tid);
        }
        self.pids.insert(tid, tid);
        // It goes on with the program that it ran before, as Chromium starts its processes.
        if program == "/proc/self/exe" && self.names.contains_key(&tid) {
            return;
        }
        self.names.insert(tid, program.rsplit('/').next().unwrap_or(program).into());
    }

    /// The thread is no more. What it held open goes only now, so that its process stays known.
    pub(super) fn exit(&mut self, tid: u32) {
        if let Some(chosen) = &mut self.chosen {
            chosen.remove(&tid);
        }
    }

    /// Are there still some of the chosen?
    pub(super) fn chosen(&self) -> Option<&HashSet<u32>> {
        self.chosen.as_ref()
    }
}
