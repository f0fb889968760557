//! The machine: one point after the other.

use super::{
    Call, Dev, Handle, Inode, Name, NameKind, Point, Pointer, What,
    calls::Descriptors,
    inodes::{Files, Kind},
    maps::{Maps, Place},
    names::{Binding, Whose},
    tasks::{Faulting, Reading, Tasks, Thread, Writing},
};
use crate::events::{Skip, Skipped};
use flashsift_core::{
    event::{Action, Event, FileId, Renamed},
    page::PAGE_BYTES,
};
use std::collections::{HashMap, HashSet, VecDeque};

/// What only the system itself can say, asked while it is recorded.
pub trait Host {
    /// How many bytes the file has now, if it still is there.
    fn size(&mut self, handle: Handle) -> Option<u64>;
}

/// For traces of long ago.
#[derive(Debug)]
pub struct NoHost;

impl Host for NoHost {
    fn size(&mut self, _: Handle) -> Option<u64> {
        None
    }
}

/// A batch of pages that the kernel finds at once in a read: fewer only where the batch ends early.
const BATCH_PAGES: u64 = 15;
/// How long a name waits for the allocation it belongs to.
const NAME_WAIT_NS: u64 = 2_000_000_000;

const DIRECTORY_SYNC: Skip = Skip::Benign("fsync of a directory");
const SIZE_UNKNOWN: Skip =
    Skip::Note("read from a file of unknown size: rounded to whole pages, perhaps past its end");
const OFFSET_UNKNOWN: Skip =
    Skip::Note("read whose first byte is known to the page only (descriptor or offset not recorded)");
const AROUND: Skip = Skip::Note("read through a mapping whose place is unknown: page guessed within 16");
const FOLIO: Skip = Skip::Note("store through a mapping, known to its folio's first page only");
const BEGINNING_UNKNOWN: Skip =
    Skip::Note("write on F2FS whose beginning was not recorded: misplaced if it was an append");
const SHIFTED: Skip = Skip::Note("collapse or insert of a range: all pages behind it are taken as gone");

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
    /// Names that went. Which of the others came before, the points tell.
    deleted: VecDeque<Name>,
    next_id: u64,
    introduced: HashSet<u32>,
    start_ns: Option<u64>,
    now_ns: u64,
    points: u64,
    skipped: Skipped,
    out: Vec<Event>,
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

    /// What was left out or guessed so far, by reason; counted by points.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Whether one of the threads asked for, or of their descendants, is still there.
    pub fn is_anybody_there(&self) -> bool {
        self.tasks.chosen().is_none_or(|chosen| !chosen.is_empty())
    }

    /// The events so far; they are handed over.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Event> {
        self.out.drain(..)
    }

    /// Something about a name, before the points of that time: creations, links and renames in their order, deletions in
    /// theirs. (fanotify merges what happens to one name while nobody reads, so that the order between the two is lost.)
    pub fn name(&mut self, name: Name) {
        // Whose it is shows now: the order of names among themselves is what counts.
        let Some(file) = self.whose(&name) else { return };
        match name.kind {
            NameKind::Found { .. } => self.named(file, &name),
            // It is needed with the file's first access.
            NameKind::Opened | NameKind::Created if self.files[file].names.is_empty() => {
                self.named(file, &name)
            }
            NameKind::Opened => {}
            // The points have not come as far yet.
            NameKind::Deleted => self.deleted.push_back(name),
            _ => self.later.push_back(name),
        }
    }

    /// The file of a name, if it is known already.
    fn whose(&mut self, name: &Name) -> Option<u32> {
        let current = self.files.current(name.handle.inode).filter(|&file| {
            let file = &self.files[file];
            file.older && file.handle.is_none()
        });
        let file = match self.binding.whose(name, current) {
            Whose::Known(file) => file,
            Whose::Gone => return None,
            Whose::Older => {
                let file = self.files.begin(name.handle.inode, true);
                self.binding.bind(name.handle, file);
                file
            }
            Whose::ToCome => {
                self.binding.wait(name.clone());
                return None;
            }
        };
        self.files[file].handle.get_or_insert(name.handle);
        if self.files[file].gone {
            // It came too late: the file was told without it.
            self.binding.gone(name.handle);
            self.files.forget(file);
            return None;
        }
        Some(file)
    }

    /// Takes in one point. Times must not go back by more than they are apart.
    pub fn point(&mut self, point: &Point, host: &mut dyn Host) {
        self.now_ns = point.at_ns;
        self.start_ns.get_or_insert(point.at_ns);
        self.points += 1;
        while self.later.front().is_some_and(|name| name.at_ns <= point.at_ns) {
            let name = self.later.pop_front().expect("it is there");
            self.went(&name);
        }
        while self.deleted.front().is_some_and(|name| name.at_ns <= point.at_ns) {
            let name = self.deleted.pop_front().expect("it is there");
            self.went(&name);
        }
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
            }
            What::Leave { result } => self.leave(tid, result),
            ref other => {
                self.flush(tid);
                self.other(tid, other, host);
            }
        }
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
                self.files[file].size = Some(size);
                if self.files[file].names.is_empty() && !path.ends_with(&format!("#{}", inode.ino)) {
                    self.add_name(file, 0, path, tid);
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
                    self.access(tid, file, offset, len, write, direct);
                }
            }
            What::DirectStep { inode, offset, len, write } => {
                self.thread(tid).direct_write = write;
                self.direct.insert(inode, (tid, write));
                if self.direct_steps && len > 0 && !self.thread(tid).direct_call {
                    let file = self.file(inode);
                    self.access(tid, file, offset, len, write, true);
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
                    self.access(by, file, end.saturating_sub(len), len, write, true);
                }
            }
            What::Sync { inode } => self.synced(tid, inode),
            What::SyncFs { dev, wait } => {
                if wait && self.tasks.is_recorded(tid) && self.block_bytes(dev).is_some() {
                    self.tell(tid, Action::SyncAll);
                }
            }
            What::Allocated { inode, dir, mode } => self.allocated(tid, inode, dir, mode),
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
                }
                self.tasks.exit(tid);
            }
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
            self.introduced.remove(&child);
        }
    }

    // Reads and writes.

    fn pages(&mut self, tid: u32, inode: Inode, first: u64, last: u64, host: &mut dyn Host) {
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
        if self.block_bytes(inode.dev).is_none() {
            return;
        }
        let file = self.file(inode);
        if !self.is_told(tid, file) {
            return;
        }
        let (offset, len) = self.cut(file, first, last, host);
        self.access(tid, file, offset, len, false, false);
    }

    /// The bytes of these pages that the file has.
    fn cut(&mut self, file: u32, first: u64, last: u64, host: &mut dyn Host) -> (u64, u64) {
        let f = &mut self.files[file];
        let (start, end) =
            (first.saturating_mul(PAGE_BYTES), last.saturating_add(1).saturating_mul(PAGE_BYTES));
        if f.size.is_some_and(|size| size <= start) {
            // The kernel found that page: the file has grown in a way that is not told.
            f.may_have_grown = true;
        }
        let unsure = f.size.is_none() || f.may_have_grown;
        if unsure && f.size.is_none_or(|size| size < end) {
            // Smaller than it was, it has been cut since; that is still to come here.
            let at_least = f.size.unwrap_or(0).max(start + 1);
            match f.handle.and_then(|handle| host.size(handle)).filter(|now| *now >= at_least) {
                Some(now) => (f.size, f.may_have_grown) = (Some(now), false),
                None => {
                    self.skip(SIZE_UNKNOWN);
                    return (start, end - start);
                }
            }
        }
        let size = self.files[file].size.unwrap_or(end);
        (start, size.min(end) - start)
    }

    fn write_begins(&mut self, tid: u32, inode: Inode, offset: u64, len: u64) {
        let thread = self.threads.entry(tid).or_default();
        let in_call = thread.call.is_some();
        if let Some(write) = thread.write.as_mut().filter(|write| write.inode == inode) {
            if write.left > 0 && offset.checked_add(len) == Some(write.end) && offset >= write.start {
                // The last piece could not be copied whole, was refused, and comes again.
                (write.end, write.left) = (offset, write.left.saturating_add(len));
                return;
            }
            if write.end == offset && (write.left == len || in_call) {
                return;
            }
        }
        self.flush(tid);
        self.thread(tid).write = Some(Writing { inode, start: offset, end: offset, left: len, sync: false });
    }

    fn write_ends(&mut self, tid: u32, inode: Inode, offset: u64, copied: u64) {
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

    /// Tells what the thread was in the middle of.
    fn flush(&mut self, tid: u32) {
        let thread = self.threads.entry(tid).or_default();
        if let Some((inode, page)) = thread.stored.take()
            && self.block_bytes(inode.dev).is_some()
        {
            let file = self.file(inode);
            self.access(tid, file, page * PAGE_BYTES, PAGE_BYTES, false, false);
        }
        let thread = self.threads.entry(tid).or_default();
        let Some(Writing { inode, start, end, sync, .. }) = thread.write.take() else { return };
        if end > start && self.block_bytes(inode.dev).is_some() {
            let file = self.file(inode);
            self.files[file].reaches(end);
            self.write(tid, file, (start, end - start), sync);
        }
    }

    fn write(&mut self, tid: u32, file: u32, (offset, len): (u64, u64), sync: bool) {
        if self.is_told(tid, file) {
            let file = self.id(tid, file);
            self.tell(tid, Action::Write { file, offset, len, sync });
        }
    }

    fn access(&mut self, tid: u32, file: u32, offset: u64, len: u64, write: bool, direct: bool) {
        if !self.is_told(tid, file) {
            return;
        }
        let file = self.id(tid, file);
        self.tell(
            tid,
            match write {
                _ if direct => Action::Direct { file, offset, len, write },
                true => Action::Write { file, offset, len, sync: false },
                false => Action::Read { file, offset, len },
            },
        );
    }

    fn leave(&mut self, tid: u32, result: i64) {
        let thread = self.threads.entry(tid).or_default();
        let (call, read) = (thread.call.take(), thread.call_read.take());
        let (resized, wrote) = (thread.resized.take(), thread.write.as_ref().map(|write| write.end));
        let (Some(call), Ok(done)) = (call, u64::try_from(result)) else { return self.flush(tid) };
        if let Call::Copy { from, from_at, .. } = call {
            self.call_read(tid, (from, from_at), read, done);
        }
        self.flush(tid);
        let pid = self.tasks.pid(tid);
        match call {
            Call::Read { fd, at } => self.call_read(tid, (fd, at), read, done),
            Call::Write { fd, at } => self.call_moved(pid, (fd, at), wrote, done),
            Call::Copy { to, to_at, .. } => self.call_moved(pid, (to, to_at), wrote, done),
            Call::Truncate { size } => {
                if let Some(file) = resized.and_then(|inode| self.files.current(inode)) {
                    self.resized(tid, file, size);
                }
            }
            call => self.descriptors.done(&self.tasks, tid, call, result),
        }
    }

    fn call_read(&mut self, tid: u32, (fd, at): (i32, Pointer), read: Option<(Inode, u64)>, len: u64) {
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
        if offset.is_none() && self.is_told(tid, file) {
            self.skip(OFFSET_UNKNOWN);
        }
        self.files[file].reaches(start + len);
        self.access(tid, file, start, len, false, false);
    }

    /// A descriptor moved on, to `end` if that is known.
    fn call_moved(&mut self, pid: u32, (fd, at): (i32, Pointer), end: Option<u64>, by: u64) {
        match end {
            Some(_) => self.descriptors.moved(pid, fd, at, end),
            None => self.descriptors.advanced(pid, fd, at, by),
        }
    }

    // Mappings.

    fn user_fault(&mut self, tid: u32, address: u64, write: bool) {
        if !self.tasks.is_recorded(tid) {
            return;
        }
        let thread = self.threads.entry(tid).or_default();
        if thread.write.is_none() {
            // Else: a write whose source is mapped.
            self.flush(tid);
            let thread = self.thread(tid);
            thread.wrote.take_if(|_| !thread.in_call);
        }
        let mut told = None;
        match self.maps.at(self.tasks.pid(tid), address) {
            Place::File(inode, page, shared) if self.block_bytes(inode.dev).is_some() => {
                let file = self.file(inode);
                self.access(tid, file, page * PAGE_BYTES, PAGE_BYTES, write && shared, false);
                told = Some(inode);
            }
            Place::File(..) | Place::Anonymous => return self.thread(tid).fault = None,
            Place::Unknown => {}
        }
        self.thread(tid).fault = Some(Faulting { address, told });
    }

    fn fault(&mut self, tid: u32, inode: Inode, page: u64) {
        let thread = self.threads.entry(tid).or_default();
        if thread.fault.as_ref().is_some_and(|fault| fault.told == Some(inode)) {
            return;
        }
        if thread.stored != Some((inode, page)) {
            self.flush(tid);
            // Whether it is a store shows if the page becomes dirty.
            self.thread(tid).stored = Some((inode, page));
        }
    }

    fn fault_around(&mut self, tid: u32, inode: Inode, first: u64, last: u64) {
        self.flush(tid);
        let told = match &self.thread(tid).fault {
            Some(fault) => fault.told,
            None => None,
        };
        if told == Some(inode) || self.block_bytes(inode.dev).is_none() {
            return;
        }
        let address = self.thread(tid).fault.as_ref().map_or(0, |fault| fault.address);
        let file = self.file(inode);
        if self.is_told(tid, file) {
            self.skip(AROUND);
            let page = (first + (address >> 12) % 16).min(last);
            self.access(tid, file, page * PAGE_BYTES, PAGE_BYTES, false, false);
        }
    }

    fn dirtied(&mut self, tid: u32, inode: Inode, page: u64) {
        let thread = self.threads.entry(tid).or_default();
        if thread.wrote == Some(inode) || thread.write.as_ref().is_some_and(|w| w.inode == inode) {
            return;
        }
        if thread.fault.as_ref().is_some_and(|fault| fault.told == Some(inode)) {
            return;
        }
        let stored = thread.stored.take_if(|(of, _)| *of == inode);
        // The first numbers are the file system's own; the device's number stands for the block device itself.
        let f2fs = self.f2fs.as_ref().is_some_and(|(dev, _)| *dev == inode.dev);
        if inode.ino < if f2fs { 4 } else { 11 }
            || inode.ino == u64::from(inode.dev.0)
            || self.block_bytes(inode.dev).is_none()
        {
            return;
        }
        let file = self.file(inode);
        if self.files[file].kind == Kind::Directory || !self.is_told(tid, file) {
            return;
        }
        let page = match stored {
            Some((_, page)) => page,
            None => {
                self.skip(FOLIO);
                page
            }
        };
        self.access(tid, file, page * PAGE_BYTES, PAGE_BYTES, true, false);
    }

    // The life of files.

    fn synced(&mut self, tid: u32, inode: Inode) {
        if self.block_bytes(inode.dev).is_none() {
            return;
        }
        let file = self.file(inode);
        if !self.is_told(tid, file) {
            return;
        }
        if self.files[file].kind == Kind::Directory {
            return self.skip(DIRECTORY_SYNC);
        }
        let file = self.id(tid, file);
        // The write that it belongs to (O_SYNC) was told just before.
        if matches!(self.thread(tid).call, Some(Call::Write { .. } | Call::Copy { .. }))
            && let Some(Event { action: Action::Write { file: of, sync, .. }, tid: by, .. }) =
                self.out.last_mut()
            && (*of, *by) == (file, tid)
        {
            *sync = true;
            return;
        }
        self.tell(tid, Action::Sync { file, offset: 0, len: u64::MAX });
    }

    fn allocated(&mut self, tid: u32, inode: Inode, dir: Option<u64>, mode: Option<u16>) {
        if self.block_bytes(inode.dev).is_none() {
            return;
        }
        let file = match self.files.current(inode) {
            // It was found in a look around that came after this.
            Some(file) if self.files[file].older && self.files[file].found_ns > self.now_ns => {
                self.files[file].older = false;
                file
            }
            Some(_) => {
                // Its end was lost.
                self.gone(tid, inode);
                self.files.begin(inode, false)
            }
            None => self.files.begin(inode, false),
        };
        let f = &mut self.files[file];
        f.kind = mode.map_or(Kind::Unknown, Kind::of);
        if self.under.is_some() {
            let inside = dir.map(|ino| self.dirs.contains(&Inode { dev: inode.dev, ino }));
            f.inside = inside;
            if inside == Some(true) && f.kind == Kind::Directory {
                self.dirs.insert(inode);
            }
        }
        let names = match self.files[file].handle {
            Some(_) => Vec::new(),
            None => self.binding.allocated(inode, file, dir),
        };
        let mut names = names.into_iter();
        if let Some(first) = names.next() {
            self.files[file].handle = Some(first.handle);
            self.named(file, &first);
            // What became of that name comes later, in the order in which it was told.
            for name in names {
                let queue = match name.kind {
                    NameKind::Deleted => &mut self.deleted,
                    _ => &mut self.later,
                };
                let at = queue.partition_point(|other| other.at_ns <= name.at_ns);
                queue.insert(at, name);
            }
        }
        if matches!(self.files[file].kind, Kind::Regular | Kind::Unknown) && self.is_told(tid, file) {
            let file = self.id(tid, file);
            self.tell(tid, Action::Open { file, created: true });
        }
    }

    fn gone(&mut self, tid: u32, inode: Inode) {
        if let Some(file) = self.files.current(inode) {
            // Renamed over, perhaps.
            while let Some((_, path)) = self.files[file].names.first().cloned() {
                let over = |name: &Name| matches!(name.kind, NameKind::Moved { .. }) && name.path == path;
                if !self.catch_up(over) {
                    break;
                }
            }
        }
        let Some(file) = self.files.end(inode) else { return };
        for (_, path) in std::mem::take(&mut self.files[file].names) {
            self.unbound(tid, file, path);
        }
        if let Some(file) = self.files[file].id {
            self.tell(tid, Action::Gone { file });
        }
        if let Some(handle) = self.files[file].handle {
            self.binding.gone(handle);
            self.files.forget(file);
        }
    }

    fn unlinked(&mut self, tid: u32, inode: Inode, dir: Option<u64>) {
        if self.block_bytes(inode.dev).is_none() {
            return;
        }
        let file = self.file(inode);
        if self.is_told(tid, file) {
            self.id(tid, file);
        }
        let handle = self.files[file].handle;
        let told = self
            .deleted
            .iter()
            .position(|name| Some(name.handle) == handle && dir.is_none_or(|dir| dir == name.dir));
        if let Some(name) = told.and_then(|n| self.deleted.remove(n)) {
            if !self.files[file].names.iter().any(|(_, path)| *path == name.path) {
                let along = |came: &Name| {
                    came.directory
                        && name.path.strip_prefix(&*came.path).is_some_and(|rest| rest.starts_with('/'))
                };
                self.catch_up(|came| came.path == name.path || along(came));
            }
            if self.files[file].names.len() == 1 {
                // Only what has a name can get another: a link of it that is still to be told came before.
                self.catch_up(|came| Some(came.handle) == handle && came.kind == NameKind::Created);
            }
            return self.went(&name);
        }
        // Not told by name yet: if there is one only, it is that.
        let mut names =
            self.files[file].names.iter().filter(|(d, _)| dir.is_none_or(|dir| *d == dir || *d == 0));
        if let (Some((_, path)), None) = (names.next(), names.next()) {
            let path = path.clone();
            self.files[file].names.retain(|(_, p)| *p != path);
            self.unbound(tid, file, path);
        }
    }

    /// What was told of names comes to pass now, up to the first that is `this`; nothing, and false, if none is.
    fn catch_up(&mut self, this: impl Fn(&Name) -> bool) -> bool {
        let Some(n) = self.later.iter().position(this) else { return false };
        for _ in 0..=n {
            let name = self.later.pop_front().expect("they are that many");
            self.went(&name);
        }
        true
    }

    fn unbound(&mut self, tid: u32, file: u32, path: Box<str>) {
        if self.by_path.get(&path) == Some(&file) {
            self.by_path.remove(&path);
        }
        if let Some(file) = self.files[file].id {
            self.tell(tid, Action::Unbind { file, name: path });
        }
    }

    fn resizes(&mut self, tid: u32, what: &What, host: &mut dyn Host) {
        match *what {
            What::Resize { inode } => {
                let thread = self.thread(tid);
                (thread.resized, thread.wrote) = (Some(inode), Some(inode));
                if let Some(file) = self.files.current(inode) {
                    self.files[file].may_have_grown = true;
                }
            }
            What::TruncateBegin { inode, size: Some(size) } => {
                let thread = self.thread(tid);
                (thread.cut, thread.wrote) = (Some(inode), Some(inode));
                if let Some(file) = self.life_of(tid, inode) {
                    self.resized(tid, file, size);
                }
            }
            What::TruncateBegin { inode, size: None } => {
                let thread = self.thread(tid);
                thread.wrote = Some(inode);
                if thread.cut != Some(inode) {
                    thread.cutting = Some(inode);
                }
            }
            What::Cut { inode, block, blocks } => {
                // A punched hole lets go of some blocks, a cut of all the rest.
                if blocks < u64::from(u32::MAX >> 1)
                    || self.thread(tid).cutting.take_if(|of| *of == inode).is_none()
                {
                    return;
                }
                let Some(block_bytes) = self.block_bytes(inode.dev) else { return };
                let size = block.saturating_mul(block_bytes);
                if let Some(file) = self.life_of(tid, inode)
                    && self.files[file].size.is_none_or(|old| old > size)
                {
                    self.resized(tid, file, size);
                }
            }
            What::TruncateEnd { inode } => {
                let thread = self.thread(tid);
                thread.cut = None;
                if thread.cutting.take().is_some()
                    && let Some(file) = self.files.current(inode)
                    && let Some(size) = self.files[file].handle.and_then(|handle| host.size(handle))
                {
                    self.resized(tid, file, size);
                }
            }
            _ => unreachable!("told apart before"),
        }
    }

    fn resized(&mut self, tid: u32, file: u32, size: u64) {
        if self.files[file].size.replace(size) == Some(size) {
            return;
        }
        self.files[file].may_have_grown = false;
        if self.files[file].id.is_some() || self.is_told(tid, file) {
            let file = self.id(tid, file);
            self.tell(tid, Action::Truncate { file, size });
        }
    }

    fn allocates(&mut self, tid: u32, inode: Inode, (offset, len): (u64, u64), mode: u32, done: bool) {
        const KEEP_SIZE: u32 = 1;
        const PUNCH: u32 = 2;
        const COLLAPSE: u32 = 8;
        const ZERO: u32 = 16;
        const INSERT: u32 = 32;
        let end = offset.saturating_add(len);
        if mode & (COLLAPSE | INSERT) != 0 {
            self.skip(SHIFTED);
            self.life(tid, inode, |file| Action::Punch { file, offset, len: i64::MAX as u64 - offset });
            if let Some(file) = self.files.current(inode) {
                let grown = |size: u64| match mode & INSERT {
                    0 => size.saturating_sub(len),
                    _ => size.saturating_add(len),
                };
                self.files[file].size = self.files[file].size.map(grown);
            }
            return;
        }
        // Zeroing a range makes its pages anew, without a write.
        if mode & (PUNCH | ZERO) != 0 {
            self.life(tid, inode, |file| Action::Punch { file, offset, len });
        }
        if mode & KEEP_SIZE == 0 && mode & PUNCH == 0 {
            self.thread(tid).allocating = Some((inode, end));
            if done {
                self.other(tid, &What::AllocateEnd { inode, done }, &mut NoHost);
            }
        }
    }

    /// Tells something of a file that is in the trace or that a recorded thread acts upon.
    fn life(&mut self, tid: u32, inode: Inode, action: impl FnOnce(FileId) -> Action) {
        if let Some(file) = self.life_of(tid, inode) {
            let id = self.id(tid, file);
            self.tell(tid, action(id));
        }
    }

    fn life_of(&mut self, tid: u32, inode: Inode) -> Option<u32> {
        self.block_bytes(inode.dev)?;
        let file = self.files.current(inode)?;
        (self.files[file].id.is_some() || self.is_told(tid, file)).then_some(file)
    }

    // Names.

    fn give_up_waiting(&mut self, before_ns: u64) {
        for name in self.binding.given_up(before_ns) {
            let file = match self.files.current(name.handle.inode) {
                Some(file) if self.files[file].handle.is_none_or(|handle| handle == name.handle) => file,
                // Its number is another file's by now.
                Some(_) => continue,
                None => self.files.begin(name.handle.inode, true),
            };
            self.binding.bind(name.handle, file);
            self.files[file].handle = Some(name.handle);
            match name.kind {
                NameKind::Deleted | NameKind::Moved { .. } => self.went(&name),
                _ => self.named(file, &name),
            }
        }
    }

    /// The file has this name.
    fn named(&mut self, file: u32, name: &Name) {
        if name.directory {
            self.files[file].kind = Kind::Directory;
        }
        if let NameKind::Found { size } = name.kind {
            let f = &mut self.files[file];
            f.size = Some(f.size.map_or(size, |old| old.max(size)));
            f.found_ns = name.at_ns;
        }
        if !name.is_nameless(name.handle.inode.ino) {
            self.add_name(file, name.dir, name.path.clone(), name.tid);
        }
    }

    fn add_name(&mut self, file: u32, dir: u64, path: Box<str>, tid: u32) {
        self.placed(file, &path);
        self.files[file].was_named = true;
        if let Some(known) = self.files[file].names.iter_mut().find(|(_, p)| *p == path) {
            known.0 = dir;
            return;
        }
        self.takes_path(file, &path, tid);
        self.files[file].names.push((dir, path.clone()));
        if let Some(file) = self.files[file].id {
            self.tell(tid, Action::Bind { file, name: path });
        }
    }

    /// From now on the path is this file's. What had it was replaced, or lost it in a way that was not told.
    fn takes_path(&mut self, file: u32, path: &str, tid: u32) {
        if self.files[file].kind == Kind::Directory {
            return;
        }
        if let Some(other) = self.by_path.insert(path.into(), file)
            && other != file
        {
            self.files[other].names.retain(|(_, p)| **p != *path);
            if let Some(file) = self.files[other].id {
                self.tell(tid, Action::Unbind { file, name: path.into() });
            }
        }
    }

    /// A path tells whether its file is where the recording listens.
    fn placed(&mut self, file: u32, path: &str) {
        let Some(under) = &self.under else { return };
        let inside = path.strip_prefix(&**under).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let f = &mut self.files[file];
        f.inside = Some(inside || f.inside == Some(true) && f.id.is_some());
        if f.kind == Kind::Directory {
            match inside {
                true => self.dirs.insert(f.inode),
                false => self.dirs.remove(&f.inode),
            };
        }
    }

    /// A name is gone or has moved.
    fn went(&mut self, name: &Name) {
        let Some(file) = self.whose(name) else { return };
        match &name.kind {
            NameKind::Deleted => {
                if self.files[file].names.iter().any(|(_, path)| *path == name.path) {
                    self.files[file].names.retain(|(_, path)| *path != name.path);
                    self.unbound(name.tid, file, name.path.clone());
                }
            }
            NameKind::Moved { from, .. } => {
                if name.directory {
                    self.files[file].kind = Kind::Directory;
                }
                self.moved(file, from, name);
                if name.directory {
                    self.moved_along(from, &name.path, name.tid);
                }
            }
            NameKind::Opened if self.files[file].was_named => {}
            _ => self.named(file, name),
        }
    }

    fn moved(&mut self, file: u32, from: &str, name: &Name) {
        self.placed(file, from);
        let told = self.is_told(name.tid, file);
        self.placed(file, &name.path);
        if self.by_path.get(from) == Some(&file) {
            self.by_path.remove(from);
        }
        self.files[file].names.retain(|(_, path)| **path != *from);
        if self.files[file].names.iter().any(|(_, path)| *path == name.path) {
            return;
        }
        self.takes_path(file, &name.path, name.tid);
        if (told || self.is_told(name.tid, file)) && self.files[file].id.is_none() && !name.directory {
            // It was not seen before, under its old name.
            let id = self.id(name.tid, file);
            self.tell(name.tid, Action::Bind { file: id, name: from.into() });
        }
        self.files[file].names.push((name.dir, name.path.clone()));
        if let Some(file) = self.files[file].id {
            let names = Box::new(Renamed { from: from.into(), to: name.path.clone() });
            self.tell(name.tid, Action::Rename { file, names });
        }
    }

    /// Everything below a directory moved with it.
    fn moved_along(&mut self, from: &str, to: &str, tid: u32) {
        let below = |path: &str| {
            path.strip_prefix(from)
                .filter(|rest| rest.starts_with('/'))
                .map(|rest| format!("{to}{rest}").into_boxed_str())
        };
        let moved: Vec<_> = (self.files.iter())
            .flat_map(|(file, f)| f.names.iter().map(move |(_, path)| (file, path)))
            .filter_map(|(file, path)| Some((file, path.clone(), below(path)?)))
            .collect();
        for (file, from, to) in moved {
            for (_, path) in self.files[file].names.iter_mut().filter(|(_, path)| *path == from) {
                path.clone_from(&to);
            }
            if self.by_path.get(&from) == Some(&file) {
                self.by_path.remove(&from);
                self.by_path.insert(to.clone(), file);
            }
            self.placed(file, &to);
            if let Some(file) = self.files[file].id {
                self.tell(tid, Action::Rename { file, names: Box::new(Renamed { from, to }) });
            }
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
            self.tell(tid, Action::Bind { file: id, name });
        }
        id
    }

    fn tell(&mut self, tid: u32, action: Action) {
        let at_us = (self.now_ns - self.start_ns.unwrap_or(self.now_ns).min(self.now_ns)) / 1000;
        let pid = self.tasks.pid(tid);
        if self.introduced.insert(pid)
            && let Some(name) = self.tasks.name(pid)
        {
            let name = name.into();
            self.out.push(Event { at_us, pid, tid, action: Action::Process { name } });
        }
        self.out.push(Event { at_us, pid, tid, action });
    }

    fn skip(&mut self, skip: Skip) {
        self.skipped.add(skip, self.points);
    }
}
