//! The machine: one point after the other. Each of its rooms is a file below `machine/`.

mod accesses;
mod files;
mod mappings;
mod names;
#[cfg(test)]
mod tests;

use super::{
    Call, Dev, Handle, Inode, Name, Point, What,
    calls::Descriptors,
    inodes::Files,
    maps::Maps,
    names::Binding,
    tasks::{Tasks, Thread},
};
use crate::events::{Skip, Skipped};
use flashsift_core::{
    event::{Action, Create, Event, FileId, FileOwner, MaybeOwned, OpenId},
    page::PAGE_BYTES,
};
use std::collections::{HashMap, HashSet, VecDeque};

/// What only the system itself can say, asked while it is recorded.
pub trait Host {
    /// How many bytes the file has now, if it still is there.
    fn size(&mut self, handle: Handle) -> Option<u64>;

    /// Whose the file is now, and its permission bits, if it still is there.
    fn owner_and_mode(&mut self, handle: Handle) -> Option<(FileOwner, u32)>;
}

/// For traces of long ago.
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

/// How long a name waits for the allocation it belongs to, and how long what is gone stays known for what is told late.
const NAME_WAIT_NS: u64 = 2_000_000_000;

const BEGINNING_UNKNOWN: Skip =
    Skip::Note("write on F2FS whose beginning was not recorded: misplaced if it was an append");

/// The state. See [`super`].
#[derive(Debug)]
pub struct Machine {
    /// The kernel tells the steps of direct accesses, not their ends.
    direct_steps: bool,
    /// Whose device F2FS does not tell, and where it is mounted.
    f2fs: Option<(Dev, Box<str>)>,
    devs: Option<Vec<(Dev, u64)>>,
    under: Option<Box<str>>,
    /// Directories below `under`.
    dirs: HashSet<Inode>,
    tasks: Tasks,
    threads: HashMap<u32, Thread, foldhash::fast::FixedState>,
    /// Who accesses a file past the page cache, and whether by writing: it may end in another thread.
    direct: HashMap<Inode, (u32, bool)>,
    maps: Maps,
    descriptors: Descriptors,
    files: Files,
    binding: Binding,
    by_path: HashMap<Box<str>, u32>,
    /// Names that came or moved, for when the points have come as far.
    later: VecDeque<Name>,
    /// Files that went before their handle was told, and when.
    nameless: VecDeque<(u64, u32)>,
    /// Names that went. Which of the others came before, the points tell.
    deleted: VecDeque<Name>,
    next_id: u64,
    introduced: HashSet<u32>,
    start_ns: Option<u64>,
    now_ns: u64,
    points: u64,
    skipped: Skipped,
    out: Vec<Event<'static>>,
}

impl Machine {
    /// Nothing is known yet. `direct_steps`: the kernel has no [`What::DirectEnd`], so that [`What::DirectStep`] has to do.
    pub fn new(direct_steps: bool) -> Self {
        Self {
            direct_steps,
            f2fs: None,
            devs: None,
            under: None,
            dirs: HashSet::new(),
            tasks: Tasks::default(),
            threads: HashMap::default(),
            direct: HashMap::new(),
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
            start_ns: None,
            now_ns: 0,
            points: 0,
            skipped: Skipped::default(),
            out: Vec::new(),
        }
    }

    /// Tells only what these threads and their descendants do.
    pub fn only_tasks(&mut self, tids: impl IntoIterator<Item = u32>) {
        self.tasks.only(tids);
    }

    /// Never tells what these threads do.
    pub fn never_tasks(&mut self, tids: impl IntoIterator<Item = u32>) {
        self.tasks.never(tids);
    }

    /// Tells only what happens on these devices; each with its file system's block size in bytes.
    pub fn only_devs(&mut self, devs: impl IntoIterator<Item = (Dev, u64)>) {
        self.devs = Some(devs.into_iter().collect());
    }

    /// Tells only what happens below this directory (an absolute path).
    pub fn only_under(&mut self, path: &str) {
        self.under = Some(path.trim_end_matches('/').into());
    }

    /// The one F2FS that is mounted, and where.
    pub fn f2fs(&mut self, dev: Dev, mounted: &str) {
        self.f2fs = Some((dev, mounted.trim_end_matches('/').into()));
    }

    /// A thread that was there before.
    pub fn found_task(&mut self, tid: u32, pid: u32, name: &str) {
        self.tasks.found(tid, pid, name);
    }

    /// A thread that was there before, whose name nobody knows.
    pub fn found_thread(&mut self, tid: u32, pid: u32) {
        self.tasks.found_thread(tid, pid);
    }

    /// A descriptor that was there before, and where it stands.
    pub fn found_descriptor(&mut self, pid: u32, fd: i32, offset: u64) {
        self.descriptors.found(pid, fd, offset);
    }

    /// When the trace began, by the points' clock: time 0 of the events.
    pub fn start_ns(&self) -> Option<u64> {
        self.start_ns
    }

    /// What was left out or guessed so far, by reason; counted by points.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Whether one of the threads asked for, or of their descendants, is still there.
    pub fn is_anybody_there(&self) -> bool {
        self.tasks.chosen().is_none_or(|chosen| !chosen.is_empty())
    }

    /// The events so far; they are handed over.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Event<'static>> {
        self.out.drain(..)
    }

    /// Takes in one point. Times must not go back by more than they are apart.
    pub fn point(&mut self, point: &Point, host: &mut dyn Host) {
        self.now_ns = point.at_ns;
        self.start_ns.get_or_insert(point.at_ns);
        self.points += 1;
        self.names_until(point.at_ns);
        if self.points.is_multiple_of(1 << 16) {
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
            What::WriteBegin { inode, offset, len } => self.write_begins(tid, inode, offset, len),
            What::WriteEnd { inode, offset, copied } => self.write_ends(tid, inode, offset, copied),
            What::Dirtied { inode, page } => self.dirtied(tid, inode, page),
            What::UserFault { address, write } => self.user_fault(tid, address, write),
            What::Fault { inode, page } => self.fault(tid, inode, page),
            What::FaultAround { inode, first, last } => self.fault_around(tid, inode, first, last),
            What::Enter(call) => {
                self.flush(tid);
                let thread = self.thread(tid);
                (thread.call, thread.call_read) = (Some(call), None);
                thread.resized = None;
                if let Call::Close { fd } = call {
                    // The file may end before the call does.
                    self.descriptors.close(self.tasks.pid(tid), fd);
                    self.tell_closed(tid);
                }
            }
            What::Leave { result } => self.leave(tid, result),
            ref other => {
                self.flush(tid);
                self.other(tid, other, host);
            }
        }
    }

    /// No point is older than this any more: names are told though nothing follows them.
    pub fn passed(&mut self, until_ns: u64) {
        self.now_ns = self.now_ns.max(until_ns);
        self.names_until(until_ns);
    }

    /// The end of the trace: what was still held back.
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
                if self.files[file].names.is_empty() && !path.ends_with(&format!("#{}", inode.ino)) {
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
                if let (Some((_, file)), Ok(len @ 1..)) = (self.f2fs_file(inode), u64::try_from(moved)) {
                    if write && begun.is_none() && self.is_told(tid, file) {
                        self.skip(BEGINNING_UNKNOWN);
                    }
                    self.files[file].reaches(offset.saturating_add(len));
                    let open = self.open_of(tid, file, write);
                    self.access(tid, file, open, (offset, len), write, direct);
                }
            }
            What::DirectStep { inode, offset, len, write } => {
                self.thread(tid).direct_write = write;
                self.direct.insert(inode, (tid, write));
                if self.direct_steps && len > 0 && !self.thread(tid).direct_call {
                    let file = self.file(inode);
                    let open = self.open_of(tid, file, write);
                    self.access(tid, file, open, (offset, len), write, true);
                }
            }
            What::DirectEnd { inode, end, moved } => {
                let (by, write) = self.direct.remove(&inode).unwrap_or((tid, false));
                if let Ok(len @ 1..) = u64::try_from(moved)
                    && !self.thread(by).direct_call
                {
                    let file = self.file(inode);
                    if write {
                        self.files[file].reaches(end);
                    }
                    // In another thread the call that asked for it is over, or not recorded.
                    let open = if by == tid { self.open_of(tid, file, write) } else { None };
                    self.access(by, file, open, (end.saturating_sub(len), len), write, true);
                }
            }
            What::Sync { inode } => self.synced(tid, inode),
            What::SyncFs { dev, wait } => {
                if wait && self.tasks.is_recorded(tid) && self.block_bytes(dev).is_some() {
                    self.tell(tid, Action::SyncAll);
                }
            }
            What::Allocated { inode, dir, mode } => self.allocated(tid, inode, dir, mode, host),
            What::Evicted { inode, links: 0 } => self.gone(tid, inode),
            What::Evicted { .. } => {}
            What::Unlink { inode, dir } => self.unlinked(tid, inode, dir),
            What::TruncateBegin { .. }
            | What::Cut { .. }
            | What::TruncateEnd { .. }
            | What::Resize { .. } => {
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
                self.life(tid, inode, |file| Action::Punch { file, offset, len });
            }
            What::NewTask { tid: child, flags, ref name } => self.new_task(tid, child, flags, name),
            What::ExecBegin => self.maps.cleared(self.tasks.pid(tid)),
            What::Exec { ref program, old_tid } => {
                self.tasks.exec(tid, old_tid, program);
                self.introduced.remove(&tid);
            }
            What::Exit => {
                self.threads.remove(&tid);
                if self.tasks.pid(tid) == tid {
                    self.maps.cleared(tid);
                    self.descriptors.ended(tid);
                    self.tell_closed(tid);
                }
                self.tasks.exit(tid);
            }
            What::MemoryPressure { stalled_ppm } => self.tell(tid, Action::MemoryPressure { stalled_ppm }),
            What::Map { pid, ref mapping } => self.maps.map(pid, mapping.clone()),
            _ => unreachable!("told apart before"),
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
            self.tell_closed(child);
            self.introduced.remove(&child);
        }
    }

    // What all of them need.

    fn thread(&mut self, tid: u32) -> &mut Thread {
        self.threads.entry(tid).or_default()
    }

    /// Whatever has this number now.
    fn file(&mut self, inode: Inode) -> u32 {
        match self.files.current(inode) {
            Some(file) => file,
            None => self.files.begin(inode, true),
        }
    }

    /// A file of F2FS, whose device is filled in.
    fn f2fs_file(&mut self, mut inode: Inode) -> Option<(Inode, u32)> {
        if inode.dev == Dev::default() {
            inode.dev = self.f2fs.as_ref()?.0;
        }
        self.block_bytes(inode.dev)?;
        Some((inode, self.file(inode)))
    }

    /// The block size of a device that is listened to, in bytes.
    fn block_bytes(&self, dev: Dev) -> Option<u64> {
        match &self.devs {
            None => Some(PAGE_BYTES),
            Some(devs) => devs.iter().find(|(d, _)| *d == dev).map(|(_, bytes)| *bytes),
        }
    }

    fn is_told(&self, tid: u32, file: u32) -> bool {
        self.tasks.is_recorded(tid) && (self.under.is_none() || self.files[file].inside == Some(true))
    }

    /// The number under which the file is told; at its first time, with its names.
    fn id(&mut self, tid: u32, file: u32) -> FileId {
        if let Some(id) = self.files[file].id {
            return id;
        }
        let id = FileId(self.next_id);
        self.next_id += 1;
        self.files[file].id = Some(id);
        for n in 0..self.files[file].names.len() {
            let name = self.files[file].names[n].1.clone();
            self.tell(tid, Action::Bind { file: id, name: name.into() });
        }
        if let Some(size) = self.files[file].first_size.take() {
            self.tell(tid, Action::Size { file: id, size });
        }
        id
    }

    /// Tells that the file came into being: it is told for the first time. Its mode has to be looked
    /// up: ext4's tracepoint tells the one asked for, of which the umask may still take its part.
    fn tell_created(&mut self, tid: u32, file: u32, host: &mut dyn Host) {
        let f = &mut self.files[file];
        let id = *f.id.get_or_insert_with(|| {
            self.next_id += 1;
            FileId(self.next_id - 1)
        });
        let (owner, mode) = f.handle.and_then(|handle| host.owner_and_mode(handle)).unzip();
        let mut names: Vec<_> = f.names.iter().map(|(_, path)| path.clone()).collect();
        let name = if names.is_empty() { Box::default() } else { names.remove(0) };
        // Whether it was opened with O_SYNC shows in its writes.
        let create = Create { file: id, name: name.into(), owner, mode, sync: false };
        self.tell(tid, Action::Create(MaybeOwned::owned(create)));
        for name in names {
            self.tell(tid, Action::Link { file: id, name: name.into() });
        }
    }

    /// The open that the call of this thread reads or writes the file through. It is told when it is
    /// first used: a call's path is not recorded, so only then its file shows.
    fn open_of(&mut self, tid: u32, file: u32, write: bool) -> Option<OpenId> {
        let fd = match (self.thread(tid).call?, write) {
            (Call::Read { fd, .. }, false) | (Call::Write { fd, .. }, true) => fd,
            (Call::Copy { from, .. }, false) => from,
            (Call::Copy { to, .. }, true) => to,
            _ => return None,
        };
        self.opened(tid, fd, file)
    }

    /// The open behind a descriptor of this thread's process, which leads to the file.
    fn opened(&mut self, tid: u32, fd: i32, file: u32) -> Option<OpenId> {
        if !self.is_told(tid, file) {
            return None;
        }
        let id = self.id(tid, file);
        let (open, fresh) = self.descriptors.leads(self.tasks.pid(tid), fd, (file, id));
        self.tell_closed(tid);
        if fresh {
            self.tell(tid, Action::Open { file: id, open, created: false });
        }
        open
    }

    /// Tells which opens have ended. Those of a file that is gone ended with it.
    fn tell_closed(&mut self, tid: u32) {
        for (open, file, id) in self.descriptors.take_closed() {
            if self.files.lives(file, id) {
                self.tell(tid, Action::Close { file: id, open });
            }
        }
    }

    fn tell(&mut self, tid: u32, action: Action<'static>) {
        let at_us = (self.now_ns - self.start_ns.unwrap_or(self.now_ns).min(self.now_ns)) / 1000;
        let pid = self.tasks.pid(tid);
        if self.introduced.insert(pid)
            && let Some(name) = self.tasks.name(pid)
        {
            let name = MaybeOwned::owned_str(name);
            self.out.push(Event { at_us, pid, tid, action: Action::Process { name } });
        }
        self.out.push(Event { at_us, pid, tid, action });
    }

    fn skip(&mut self, skip: Skip) {
        self.skipped.add(skip, self.points);
    }
}
