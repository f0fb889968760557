//! Threads, their processes, and the choice of the recorded ones.

use super::{Inode, calls::EnteredCall};
use std::collections::{HashMap, HashSet};

/// Whether a program, by its path, runs scripts, so that its own name says little.
pub fn is_interpreter(program: &str) -> bool {
    const ALL: [&str; 10] =
        ["python", "perl", "ruby", "node", "nodejs", "php", "bash", "dash", "sh", "java"];
    let name = program.rsplit('/').next().unwrap_or(program);
    // With a version, as in python3.11.
    ALL.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}

/// Operations in progress in a thread.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// The read to which its last pages belong.
    pub(super) read: Option<Reading>,
    /// The kernel read ahead since then: the pages found end there, and more may follow.
    pub(super) ahead: bool,
    /// First and last page of a request whose first page was missing. The kernel may report the
    /// request from a later page on.
    pub(super) missed: Option<(Inode, u64, u64)>,
    /// The write whose pieces are being joined.
    pub(super) write: Option<Writing>,
    /// The thread just wrote to this file: pages that become dirty belong to that write.
    pub(super) wrote: Option<Inode>,
    /// The thread is in a call whose end will be reported.
    pub(super) in_call: bool,
    /// Its last page fault.
    pub(super) fault: Option<Faulting>,
    /// A store to a page that may be private. The store reached the file if the page becomes dirty.
    pub(super) stored: Option<(Inode, u64)>,
    /// The direction of its access that bypasses the page cache.
    pub(super) direct_write: bool,
    /// Offset at which its write call begins.
    pub(super) writes_at: Option<u64>,
    /// Its call bypasses the page cache.
    pub(super) direct_call: bool,
    /// The file that it truncates, while the new size is unknown.
    pub(super) cutting: Option<Inode>,
    /// The file that it truncates, once the new size is known.
    pub(super) cut: Option<Inode>,
    /// The file whose size its call changes.
    pub(super) resized: Option<Inode>,
    /// The file on XFS whose attributes its call changes.
    pub(super) set_attr: Option<Inode>,
    /// The size in bytes that its call asks for.
    pub(super) asked_size: Option<u64>,
    /// btrfs wrote data in that call.
    pub(super) hurried: bool,
    /// `fallocate` in progress: the file, and the size to which it may grow.
    pub(super) allocating: Option<(Inode, u64)>,
    /// The system call in progress.
    pub(super) call: Option<EnteredCall>,
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
    /// The fault has been emitted as an access to this file.
    pub(super) reported: Option<Inode>,
    /// It is a store to this page, which was not in the page cache.
    pub(super) absent: Option<u64>,
}

/// All threads that have been seen.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    pids: HashMap<u32, u32>,
    names: HashMap<u32, Box<str>>,
    /// Control groups of processes.
    groups: HashMap<u32, Box<str>>,
    /// The recorded threads, whose descendants are recorded too; `None` records all threads.
    chosen: Option<HashSet<u32>>,
    ignored: HashSet<u32>,
}

impl Tasks {
    /// Records only these threads and their descendants.
    pub(super) fn only(&mut self, tids: impl IntoIterator<Item = u32>) {
        self.chosen.get_or_insert_default().extend(tids);
    }

    /// Excludes these threads: those of the recorder itself.
    pub(super) fn never(&mut self, tids: impl IntoIterator<Item = u32>) {
        self.ignored.extend(tids);
    }

    /// Adds a thread from before the trace, without a name.
    pub(super) fn found_thread(&mut self, tid: u32, pid: u32) {
        self.pids.insert(tid, pid);
    }

    /// Adds a thread from before the trace.
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

    /// Returns the process of a thread.
    pub(super) fn pid(&self, tid: u32) -> u32 {
        self.pids.get(&tid).copied().unwrap_or(tid)
    }

    /// Returns the name of a process.
    pub(super) fn name(&self, pid: u32) -> Option<&str> {
        self.names.get(&pid).map(AsRef::as_ref)
    }

    /// Returns the control group of a process.
    pub(super) fn group(&self, pid: u32) -> Option<&str> {
        self.groups.get(&pid).map(AsRef::as_ref)
    }

    /// A process is in this control group.
    pub(super) fn in_group(&mut self, pid: u32, path: &str) {
        if self.group(pid) != Some(path) {
            self.groups.insert(pid, path.into());
        }
    }

    pub(super) fn new_task(&mut self, parent: u32, tid: u32, thread: bool, name: &str) {
        let pid = if thread { self.pid(parent) } else { tid };
        self.pids.insert(tid, pid);
        if !thread {
            let parent = self.pid(parent);
            let name = self.name(parent).unwrap_or(name).into();
            self.names.insert(pid, name);
            match self.groups.get(&parent).cloned() {
                Some(group) => drop(self.groups.insert(pid, group)),
                None => drop(self.groups.remove(&pid)),
            }
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

    /// A thread runs another program; it becomes the main thread of its process, `tid`.
    pub(super) fn exec(&mut self, tid: u32, old_tid: u32, program: &str) {
        if let Some(chosen) = &mut self.chosen
            && chosen.contains(&old_tid)
        {
            chosen.insert(tid);
        }
        self.pids.insert(tid, tid);
        // The thread runs its own program again, as Chromium does to start its processes, or one
        // whose name the descriptor that it gives does not tell.
        let is_nameless = program.starts_with("/proc/") || program.starts_with("/dev/fd/");
        if is_nameless && self.names.contains_key(&tid) {
            return;
        }
        self.names.insert(tid, program.rsplit('/').next().unwrap_or(program).into());
    }

    /// A process has this name, as long as it runs the same program.
    pub(super) fn named(&mut self, pid: u32, name: &str) {
        self.names.insert(pid, name.into());
    }

    /// Removes the thread. Its open descriptors are released only now, so that its process stays
    /// known.
    pub(super) fn exit(&mut self, tid: u32) {
        if let Some(chosen) = &mut self.chosen {
            chosen.remove(&tid);
        }
    }

    /// Whether any of the chosen threads is still alive.
    pub(super) fn chosen(&self) -> Option<&HashSet<u32>> {
        self.chosen.as_ref()
    }
}
