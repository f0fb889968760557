//! The state machine, which takes one point at a time. Each part of it is a file below `machine/`.

mod accesses;
mod direct;
mod files;
mod folios;
mod mappings;
mod names;
mod places;
#[cfg(test)]
mod tests;

pub use folios::FOLIO_WINDOW_PAGES;
pub use places::Survivor;

use super::{
    Dev, EnteredCall, Handle, Inode, Name, Point, What,
    calls::Descriptors,
    inodes::Files,
    maps::Maps,
    names::Binding,
    tasks::{Tasks, Thread, is_interpreter},
};
use crate::events::{Skip, Skipped};
use direct::DirectAccesses;
use flashsift_events::{
    event::{Action, Create, Event, FileId, FileOwner, MaybeOwned, OpenId},
    page::PAGE_BYTES,
};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Facts that only the running system can supply, queried while it is recorded.
pub trait Host {
    /// Current size of the file in bytes, if the file still exists.
    fn size(&mut self, handle: Handle) -> Option<u64>;

    /// Current owner and permission bits of the file, if it still exists.
    fn owner_and_mode(&mut self, handle: Handle) -> Option<(FileOwner, u32)>;

    /// Whether the file with this inode number is a directory; `None` if it is gone, or cannot be
    /// looked up.
    fn is_directory(&mut self, _inode: Inode) -> Option<bool> {
        None
    }

    /// Path of the directory with this inode number, if it still exists.
    fn path(&mut self, _inode: Inode) -> Option<String> {
        None
    }

    /// Passes the folios of more than one page that the page cache holds of a file among
    /// [`FOLIO_WINDOW_PAGES`] pages, each as its first page and their number. `false` if the host
    /// does not know.
    fn folios(
        &mut self,
        _handle: Handle,
        _first_page: u64,
        _take: &mut dyn FnMut(u64, u64),
    ) -> bool {
        false
    }

    /// Name of the program of a process, if it still runs.
    fn program(&mut self, _pid: u32) -> Option<String> {
        None
    }

    /// Path of the process's control group, if the process still runs.
    fn control_group(&mut self, _pid: u32) -> Option<String> {
        None
    }
}

/// The system of a trace recorded earlier: it answers no query.
#[derive(Debug)]
pub struct NoHost;

impl Host for NoHost {
    fn size(&mut self, _: Handle) -> Option<u64> {
        None
    }

    fn owner_and_mode(&mut self, _: Handle) -> Option<(FileOwner, u32)> {
        None
    }
}

/// Time that a name waits for its allocation, and that ended files stay known for late reports
/// about them.
const NAME_WAIT_NS: u64 = 2_000_000_000;

const BEGINNING_UNKNOWN: Skip =
    Skip::Note("write on F2FS whose beginning was not recorded: misplaced if it was an append");

/// The state. See [`super`].
#[derive(Debug)]
pub struct TracepointMachine {
    /// The kernel reports the steps of direct accesses and not their ends.
    direct_steps: bool,
    /// No writes are reported, other than by the pages that become dirty.
    without_writes: bool,
    /// No folios are reported.
    without_folios: bool,
    /// Pages that enter the page cache stand for reads.
    reads_are_additions: bool,
    /// The F2FS device that tracepoints omit, and its mount point.
    f2fs: Option<(Dev, Box<str>)>,
    devs: Option<Vec<(Dev, u64)>>,
    /// The one recorded btrfs, whose tracepoints name no device.
    btrfs: Option<Dev>,
    /// Devices whose file systems do not report that they allocate an inode.
    without_allocations: Vec<Dev>,
    /// Accesses of recorded threads on other devices.
    elsewhere: BTreeMap<Dev, u64>,
    under: Option<Box<str>>,
    /// Directories below `under`.
    dirs: HashSet<Inode>,
    tasks: Tasks,
    threads: HashMap<u32, Thread, foldhash::fast::FixedState>,
    direct: DirectAccesses,
    maps: Maps,
    descriptors: Descriptors,
    files: Files,
    binding: Binding,
    by_path: HashMap<Box<str>, u32>,
    /// Names that were added or moved, until the points have reached their times.
    later: VecDeque<Name>,
    /// Files that ended before their handle was known, and when.
    nameless: VecDeque<(u64, u32)>,
    /// Removed names. The points show which of the additions came before each removal.
    deleted: VecDeque<Name>,
    next_id: u64,
    introduced: HashSet<u32>,
    /// Those of the introduced processes whose control group has not been asked for.
    without_group: Vec<u32>,
    start_ns: Option<u64>,
    now_ns: u64,
    /// Next time at which names and ended files that waited too long are given up.
    gives_up_ns: u64,
    points: u64,
    skipped: Skipped,
    out: Vec<Event<'static>>,
}

impl TracepointMachine {
    /// Creates the empty state. `direct_steps`: the kernel lacks [`What::DirectEnd`], so that
    /// [`What::DirectStep`] has to stand in.
    pub fn new(direct_steps: bool) -> Self {
        Self {
            direct_steps,
            without_writes: false,
            without_folios: false,
            reads_are_additions: false,
            f2fs: None,
            devs: None,
            btrfs: None,
            without_allocations: Vec::new(),
            elsewhere: BTreeMap::new(),
            under: None,
            dirs: HashSet::new(),
            tasks: Tasks::default(),
            threads: HashMap::default(),
            direct: DirectAccesses::default(),
            maps: Maps::default(),
            descriptors: Descriptors::default(),
            files: Files::default(),
            binding: Binding::default(),
            by_path: HashMap::new(),
            later: VecDeque::new(),
            nameless: VecDeque::new(),
            deleted: VecDeque::new(),
            next_id: 0,
            introduced: HashSet::new(),
            without_group: Vec::new(),
            start_ns: None,
            now_ns: 0,
            gives_up_ns: 0,
            points: 0,
            skipped: Skipped::default(),
            out: Vec::new(),
        }
    }

    /// Emits only the events of these threads and their descendants.
    pub fn only_tasks(&mut self, tids: impl IntoIterator<Item = u32>) {
        self.tasks.only(tids);
    }

    /// Never emits events of these threads.
    pub fn never_tasks(&mut self, tids: impl IntoIterator<Item = u32>) {
        self.tasks.never(tids);
    }

    /// Emits only events on these devices, each with the block size of its file system in bytes.
    pub fn only_devs(&mut self, devs: impl IntoIterator<Item = (Dev, u64)>) {
        self.devs = Some(devs.into_iter().collect());
    }

    /// Emits only events below this directory (an absolute path).
    pub fn only_under(&mut self, path: &str) {
        self.under = Some(path.trim_end_matches('/').into());
    }

    /// Sets the one mounted F2FS, and its mount point.
    pub fn f2fs(&mut self, dev: Dev, mounted: &str) {
        self.f2fs = Some((dev, mounted.trim_end_matches('/').into()));
    }

    /// Sets the one btrfs whose accesses are emitted, by the device number that the tracepoints of
    /// the page cache have.
    pub fn btrfs(&mut self, dev: Dev) {
        self.btrfs = Some(dev);
    }

    /// Declares that the file system on this device does not report that it allocates an inode: a
    /// file begins with its first name.
    pub fn without_allocations(&mut self, dev: Dev) {
        self.without_allocations.push(dev);
    }

    /// Returns how many accesses of recorded threads on other devices were left out: requests of
    /// reads, and folios that became dirty. A btrfs that is not recorded has the number 0.
    pub fn elsewhere(&self) -> &BTreeMap<Dev, u64> {
        &self.elsewhere
    }

    /// Declares that the trace reports no writes, other than by the pages that become dirty.
    pub fn without_writes(&mut self) {
        self.without_writes = true;
    }

    /// Declares that the trace does not report the pages that enter the page cache.
    pub fn without_folios(&mut self) {
        self.without_folios = true;
    }

    /// Declares that the trace reports no reads, other than by the pages that enter the page cache.
    pub fn reads_are_additions(&mut self) {
        self.reads_are_additions = true;
    }

    /// Adds a thread from before the trace.
    pub fn found_task(&mut self, tid: u32, pid: u32, name: &str) {
        self.tasks.found(tid, pid, name);
    }

    /// Adds the control group of a process from before the trace.
    pub fn found_group(&mut self, pid: u32, path: &str) {
        self.tasks.in_group(pid, path);
    }

    /// Adds a thread from before the trace whose name is unknown.
    pub fn found_thread(&mut self, tid: u32, pid: u32) {
        self.tasks.found_thread(tid, pid);
    }

    /// Adds a descriptor from before the trace, with its file position.
    pub fn found_descriptor(&mut self, pid: u32, fd: i32, offset: u64) {
        self.descriptors.found(pid, fd, offset);
    }

    /// Sets the start of the trace by the points' clock: time 0 of the events.
    pub fn start_ns(&self) -> Option<u64> {
        self.start_ns
    }

    /// Notes what was left out or guessed so far, by reason, with numbers of points.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Whether one of the chosen threads, or of their descendants, is still alive.
    pub fn is_anybody_there(&self) -> bool {
        self.tasks.chosen().is_none_or(|chosen| !chosen.is_empty())
    }

    /// Takes the events so far.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Event<'static>> {
        self.out.drain(..)
    }

    /// Takes one point. Points come in the order of their times.
    pub fn point(&mut self, point: &Point, host: &mut dyn Host) {
        self.now_ns = point.at_ns;
        self.start_ns.get_or_insert(point.at_ns);
        self.points += 1;
        self.names_until(point.at_ns);
        if point.at_ns >= self.gives_up_ns {
            self.gives_up_ns = point.at_ns.saturating_add(NAME_WAIT_NS);
            self.give_up_waiting(point.at_ns.saturating_sub(NAME_WAIT_NS));
        }
        let tid = point.tid;
        match point.what {
            What::Pages { inode, first, last } => self.pages(tid, inode, first, last, host),
            What::ReadAhead { inode, missing } => {
                let thread = self.thread(tid);
                thread.ahead = true;
                thread.missed = missing.map(|(first, last)| (inode, first, last));
            }
            What::Written { inode, offset, len } => self.written(tid, inode, offset, len),
            What::WriteBegin { inode, offset, len } => self.write_begins(tid, inode, offset, len),
            What::WriteEnd { inode, offset, copied } => self.write_ends(tid, inode, offset, copied),
            What::Dirtied { inode, page } => self.dirtied(tid, inode, page, host),
            What::Added { inode, first, pages } => {
                self.folio_added(inode, first, pages);
                if self.reads_are_additions {
                    self.added(tid, inode, first, pages);
                }
            }
            What::Removed { inode, first, pages } => self.folio_removed(inode, first, pages),
            What::UserFault { address, write } => self.user_fault(tid, address, write, host),
            What::Fault { inode, page } => self.fault(tid, inode, page),
            What::FaultAround { inode, first, last } => self.fault_around(tid, inode, first, last),
            What::Enter(call) => {
                self.flush(tid);
                let thread = self.thread(tid);
                (thread.call, thread.call_read) = (Some(call), None);
                thread.resized = None;
                if let EnteredCall::Close { fd } = call {
                    // The file may end before the call does.
                    self.descriptors.close(self.tasks.pid(tid), fd);
                    self.emit_closes(tid);
                }
            }
            What::Leave { result } => self.leave(tid, result),
            // Often in the middle of a write, which goes on.
            What::Placed { inode, block, blocks, at } => self.placed_at(inode, block, blocks, at),
            ref other => {
                self.flush(tid);
                self.other(tid, other, host);
            }
        }
        self.tell_groups(host);
    }

    /// Emits the control groups of the processes that were introduced since the last point. One
    /// that has ended by now was in the group of its parent, as almost all processes are.
    fn tell_groups(&mut self, host: &mut dyn Host) {
        for n in 0..self.without_group.len() {
            let pid = self.without_group[n];
            if let Some(path) = host.control_group(pid) {
                self.tasks.in_group(pid, &path);
            }
            // The root of the hierarchy is no group.
            if let Some(path) = self.tasks.group(pid).filter(|path| *path != "/") {
                let action = Action::ControlGroup { path: MaybeOwned::owned_str(path) };
                self.emit(pid, action);
            }
        }
        self.without_group.clear();
    }

    /// Declares that no older point will follow, so that names up to this time are emitted without
    /// one.
    pub fn passed(&mut self, until_ns: u64) {
        self.now_ns = self.now_ns.max(until_ns);
        self.names_until(until_ns);
    }

    /// Ends the trace and emits the held-back events.
    pub fn finish(&mut self) {
        let tids: Vec<_> = self.threads.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.flush(tid));
        self.give_up_waiting(u64::MAX);
        while let Some(name) = self.later.pop_front().or_else(|| self.deleted.pop_front()) {
            self.went(&name);
        }
    }

    fn other(&mut self, tid: u32, what: &What, host: &mut dyn Host) {
        match *what {
            What::CallBegin { inode, ref path, size, offset, write } => {
                let thread = self.thread(tid);
                (thread.wrote, thread.direct_call) = (None, false);
                thread.writes_at = write.then_some(offset);
                let Some((inode, file)) = self.f2fs_file(inode) else { return };
                let thread = self.thread(tid);
                (thread.wrote, thread.in_call) = (Some(inode), true);
                let mounted = self.f2fs.as_ref().map_or("", |(_, path)| path);
                let path = format!("{mounted}{path}").into_boxed_str();
                self.files[file].has(size);
                self.files[file].size = Some(size);
                if self.files[file].names.is_empty() && !path.ends_with(&format!("#{}", inode.ino))
                {
                    self.add_name(file, 0, path, tid, false);
                }
            }
            What::CallDirect { .. } => self.thread(tid).direct_call = true,
            What::CallEnd { inode, offset, moved, write } => {
                let direct = std::mem::take(&mut self.thread(tid).direct_call);
                let thread = self.thread(tid);
                (thread.wrote, thread.in_call) = (None, false);
                // F2FS ends a write with the position from before O_APPEND moved it.
                let begun = thread.writes_at.take();
                let offset = begun.filter(|_| write).unwrap_or(offset);
                if let (Some((_, file)), Ok(len @ 1..)) =
                    (self.f2fs_file(inode), u64::try_from(moved))
                {
                    if write && begun.is_none() && self.is_in_scope(tid, file) {
                        self.skip(BEGINNING_UNKNOWN);
                    }
                    self.files[file].reaches(offset.saturating_add(len));
                    let open = self.open_of(tid, file, write);
                    self.access(tid, file, open, (offset, len), write, direct);
                }
            }
            What::DirectStep { inode, offset, len, write } => {
                self.thread(tid).direct_write = write;
                if !self.direct_steps {
                    self.direct.step(tid, inode, (offset, len), write);
                } else if len > 0 && !self.thread(tid).direct_call {
                    let file = self.file(inode);
                    let open = self.open_of(tid, file, write);
                    self.access(tid, file, open, (offset, len), write, true);
                }
            }
            What::Blank { inode, offset, len } => self.direct.blank(tid, inode, (offset, len)),
            What::DirectEnd { inode, end, moved } => {
                let start = end.saturating_sub(u64::try_from(moved).unwrap_or(0));
                let begun = self.direct.end(inode, start);
                let (by, write) = begun.as_ref().map_or((tid, false), |one| (one.tid, one.write));
                if let Ok(len @ 1..) = u64::try_from(moved)
                    && !self.thread(by).direct_call
                {
                    let file = self.file(inode);
                    let reaches_end = self.files[file].size.is_some_and(|size| size <= end);
                    if write {
                        self.files[file].reaches(end);
                    }
                    // In another thread, the call that began the access is over or not recorded.
                    let open = if by == tid { self.open_of(tid, file, write) } else { None };
                    self.access(by, file, open, (start, len), write, true);
                    if let Some(begun) = begun
                        && let Some(block_bytes) = self.block_bytes(inode.dev)
                    {
                        for zeros in begun.filled(end, reaches_end, block_bytes) {
                            self.filled(by, file, zeros);
                        }
                    }
                }
            }
            What::Sync { inode, data_only } => {
                let inode = self.on_btrfs(inode);
                self.synced(tid, inode, data_only, host);
            }
            What::Inactive { inode } => self.inactive(self.on_btrfs(inode)),
            What::SyncFs { dev, wait } => {
                let Inode { dev, .. } = self.on_btrfs(Inode { dev, ino: 0 });
                if wait && self.tasks.is_recorded(tid) && self.block_bytes(dev).is_some() {
                    self.emit(tid, Action::SyncAll);
                }
            }
            What::Allocated { inode, dir, mode } => self.allocated(tid, inode, dir, mode, host),
            What::Evicted { inode, links: 0 } => self.gone(tid, inode),
            What::Evicted { .. } => {}
            What::Hurried { inode } => self.hurried(tid, self.on_btrfs(inode)),
            What::Unlink { inode, dir } => self.unlinked(tid, inode, dir),
            What::TruncateBegin { .. }
            | What::Cut { .. }
            | What::TruncateEnd { .. }
            | What::Resize { .. }
            | What::SetAttr { .. }
            | What::Grows { .. }
            | What::Asks { .. }
            | What::CutInPage { .. } => {
                self.resizes(tid, what, host);
            }
            What::Allocate { inode, offset, len, mode, done } => {
                self.thread(tid).wrote = Some(inode);
                self.allocates(tid, inode, (offset, len), mode, done);
            }
            What::AllocateEnd { inode, done } => {
                if let Some((of, size)) = self.thread(tid).allocating.take()
                    && of == inode
                    && done
                    && let Some(file) = self.files.current(inode)
                    && self.files[file].size.is_some_and(|old| old < size)
                {
                    self.resized(tid, file, size);
                }
            }
            What::Punch { inode, offset, len } => {
                self.thread(tid).wrote = Some(inode);
                self.punched(inode, offset, len);
                self.life(tid, inode, |file| Action::Punch { file, offset, len });
            }
            What::NewTask { tid: child, flags, ref name } => self.new_task(tid, child, flags, name),
            What::ExecBegin => self.maps.cleared(self.tasks.pid(tid)),
            What::Exec { ref program, old_tid } => {
                self.tasks.exec(tid, old_tid, program);
                if is_interpreter(program)
                    && let Some(name) = host.program(tid)
                {
                    self.tasks.named(tid, &name);
                }
                self.introduced.remove(&tid);
            }
            What::Exit => {
                self.threads.remove(&tid);
                if self.tasks.pid(tid) == tid {
                    self.maps.cleared(tid);
                    self.descriptors.ended(tid);
                    self.emit_closes(tid);
                }
                self.tasks.exit(tid);
            }
            What::MemoryPressure { stalled_ppm } => {
                self.emit(tid, Action::MemoryPressure { stalled_ppm })
            }
            What::Map { pid, ref mapping } => self.maps.map(pid, mapping.clone()),
            _ => unreachable!("the caller distinguishes the kinds"),
        }
    }

    fn new_task(&mut self, parent: u32, child: u32, flags: u64, name: &str) {
        const CLONE_THREAD: u64 = 0x1_0000;
        let thread = flags & CLONE_THREAD != 0;
        self.threads.remove(&child);
        self.tasks.new_task(parent, child, thread, name);
        if !thread {
            let parent = self.tasks.pid(parent);
            self.maps.forked(parent, child);
            self.descriptors.forked(parent, child);
            self.emit_closes(child);
            self.introduced.remove(&child);
        }
    }

    // The methods below are shared by all parts.

    fn thread(&mut self, tid: u32) -> &mut Thread {
        self.threads.entry(tid).or_default()
    }

    /// Returns the file that has this inode number now, of any type.
    fn file(&mut self, inode: Inode) -> u32 {
        match self.files.current(inode) {
            Some(file) => file,
            None => self.files.begin(inode, true),
        }
    }

    /// Fills in the device of a file on btrfs.
    fn on_btrfs(&self, inode: Inode) -> Inode {
        let dev = self.btrfs.filter(|_| inode.dev == Dev::default()).unwrap_or(inode.dev);
        Inode { dev, ..inode }
    }

    /// An access on a device that is not recorded is left out.
    fn is_elsewhere(&mut self, tid: u32, dev: Dev) -> bool {
        let is_elsewhere = self.block_bytes(dev).is_none();
        if is_elsewhere && self.tasks.is_recorded(tid) {
            *self.elsewhere.entry(dev).or_default() += 1;
        }
        is_elsewhere
    }

    /// Fills in the device of an F2FS file.
    fn f2fs_file(&mut self, mut inode: Inode) -> Option<(Inode, u32)> {
        if inode.dev == Dev::default() {
            inode.dev = self.f2fs.as_ref()?.0;
        }
        self.block_bytes(inode.dev)?;
        Some((inode, self.file(inode)))
    }

    /// Returns the block size of a recorded device in bytes.
    fn block_bytes(&self, dev: Dev) -> Option<u64> {
        match &self.devs {
            None => Some(PAGE_BYTES),
            Some(devs) => devs.iter().find(|(d, _)| *d == dev).map(|(_, bytes)| *bytes),
        }
    }

    fn is_in_scope(&self, tid: u32, file: u32) -> bool {
        self.tasks.is_recorded(tid)
            && (self.under.is_none() || self.files[file].inside == Some(true))
    }

    /// Returns the number of the file in the trace; the first call emits the file with its names.
    fn id(&mut self, tid: u32, file: u32) -> FileId {
        if let Some(id) = self.files[file].id {
            return id;
        }
        let id = FileId(self.next_id);
        self.next_id += 1;
        self.files[file].id = Some(id);
        for n in 0..self.files[file].names.len() {
            let name = self.files[file].names[n].1.clone();
            self.emit(tid, Action::Bind { file: id, name: name.into() });
        }
        if let Some(size) = self.files[file].first_size.take() {
            self.emit(tid, Action::Size { file: id, size });
        }
        id
    }

    /// Emits the creation of a file, its first event. The mode has to be looked up: ext4's
    /// tracepoint gives the requested mode, before the umask.
    fn emit_creation(&mut self, tid: u32, file: u32, host: &mut dyn Host) {
        let f = &mut self.files[file];
        let id = *f.id.get_or_insert_with(|| {
            self.next_id += 1;
            FileId(self.next_id - 1)
        });
        let (owner, mode) = f.handle.and_then(|handle| host.owner_and_mode(handle)).unzip();
        let mut names: Vec<_> = f.names.iter().map(|(_, path)| path.clone()).collect();
        let name = if names.is_empty() { Box::default() } else { names.remove(0) };
        // Later writes show whether it was opened with O_SYNC.
        let create = Create { file: id, name: name.into(), owner, mode, sync: false };
        self.emit(tid, Action::Create(MaybeOwned::owned(create)));
        for name in names {
            self.emit(tid, Action::Link { file: id, name: name.into() });
        }
    }

    /// Returns the open through which the call of this thread reads or writes the file. The open is
    /// emitted at its first use: the path of a call is not recorded, so the file is known only
    /// then.
    fn open_of(&mut self, tid: u32, file: u32, write: bool) -> Option<OpenId> {
        let fd = match (self.thread(tid).call?, write) {
            (EnteredCall::Read { fd, .. }, false) | (EnteredCall::Write { fd, .. }, true) => fd,
            (EnteredCall::Copy { from, .. }, false) => from,
            (EnteredCall::Copy { to, .. }, true) => to,
            _ => return None,
        };
        self.opened(tid, fd, file)
    }

    /// Returns the open behind a descriptor of this thread's process that refers to the file.
    fn opened(&mut self, tid: u32, fd: i32, file: u32) -> Option<OpenId> {
        if !self.is_in_scope(tid, file) {
            return None;
        }
        let id = self.id(tid, file);
        let (open, fresh) = self.descriptors.leads(self.tasks.pid(tid), fd, (file, id));
        self.emit_closes(tid);
        if fresh {
            self.emit(tid, Action::Open { file: id, open, created: false });
        }
        open
    }

    /// Emits the ends of opens. The opens of a deleted file ended with it.
    fn emit_closes(&mut self, tid: u32) {
        for (open, file, id) in self.descriptors.take_closed() {
            if self.files.lives(file, id) {
                self.files[file].was_emptied = false;
                self.emit(tid, Action::Close { file: id, open });
            }
        }
    }

    fn emit(&mut self, tid: u32, action: Action<'static>) {
        let at_us = (self.now_ns - self.start_ns.unwrap_or(self.now_ns).min(self.now_ns)) / 1000;
        let pid = self.tasks.pid(tid);
        if self.introduced.insert(pid) {
            self.without_group.push(pid);
            if let Some(name) = self.tasks.name(pid) {
                let name = MaybeOwned::owned_str(name);
                self.out.push(Event { at_us, pid, tid, action: Action::Process { name } });
            }
        }
        self.out.push(Event { at_us, pid, tid, action });
    }

    fn skip(&mut self, skip: Skip) {
        self.skipped.add(skip, self.points);
    }
}
