//! Events: every request to the file system, in order.
//!
//! Events with a name are delivered under the table lock, which orders them. All others pass
//! through a bounded queue that takes no lock and allocates nothing. An operation queues its event
//! before it returns, and each delivery empties the queue first. So the events of one file, and of
//! one name, are in the order in which they took effect. Operations that change a file's bytes hold
//! the file's own lock ([`FileState::order`](super::residence::FileState)) until their event is
//! queued; reads of a file in RAM share it.
//!
//! For files that the kernel reads and writes itself (passthrough), only opens and closes are seen.

use super::Fs;
use super::decisions::{Decisions, Waits};
use super::processes::Processes;
use super::table::Table;
use super::types::{Clock, Ino, ROOT};
use crossbeam_queue::ArrayQueue;
use flashsift_core::event::{Action, Create, Event, FileId, MaybeOwned, Micros, Renamed};
use flashsift_core::names::escape_into;
use flashsift_core::sift::account::Account;
use flashsift_core::sift::{Birth, Sift, live::Live};
use flashsift_core::study::rehearsal::Rehearsal;
use flashsift_core::writeback::flusher::FlusherSettings;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

/// Events that may wait to be delivered. When it is full, a thread that adds one delivers all.
const QUEUE: usize = 1 << 13;

type Sink = Box<dyn FnMut(&Event<'_>) + Send>;

/// The stream of events, and what it needs to be complete.
pub(crate) struct Events {
    began_us: Micros,
    /// Wall-clock time at time 0, µs since 1970.
    epoch_us: u64,
    clock: Clock,
    queue: ArrayQueue<Event<'static>>,
    pub(crate) stream: Mutex<Stream>,
    pub(crate) waits: Waits,
    processes: Processes,
}

/// Where events arrive one after the other. Its lock is the last: no other is taken under it.
pub(crate) struct Stream {
    sink: Option<Sink>,
    account: Account,
    /// Files that the sifter does not decide on: those of groups whose syncs are delayed.
    ignored: HashSet<FileId>,
    /// Another sifter, which only shows what it would do.
    pub(crate) rehearsal: Option<Box<Rehearsal>>,
    pub(crate) decisions: Decisions,
    /// When the thread that waits for decisions looks again.
    pub(crate) looks_us: Option<Micros>,
    last_us: Micros,
    names: [String; 2],
}

impl std::fmt::Debug for Events {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Events({} queued)", self.queue.len())
    }
}

fn clock_us(clock: ClockId) -> Micros {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

impl Stream {
    /// Operations take their time on arrival and are delivered when they have taken effect: one
    /// that took long gets the time of the event before it, so that times never go back.
    fn deliver(&mut self, mut event: Event<'_>, processes: &Processes) {
        event.at_us = self.now(event.at_us);
        event.pid = processes.get(event.tid);
        if let Some(sink) = &mut self.sink {
            sink(&event);
        }
        if let Some(file) = event.action.file()
            && self.ignored.contains(&file)
        {
            self.account.handle(&event);
            if let Action::Gone { file } = event.action {
                self.ignored.remove(&file);
            }
            return;
        }
        match event.action.file() {
            Some(file) if self.decisions.sift.drops(&event) => self.account.dropped(file),
            _ => self.account.handle(&event),
        }
        self.decisions.call(|sift| sift.handle(event.at_us, &event));
        if let Some(rehearsal) = &mut self.rehearsal {
            rehearsal.event(&event, self.decisions.sift.keep());
        }
    }

    /// The settings by which the kernel writes dirty pages.
    pub(crate) fn account_settings(&self) -> FlusherSettings {
        self.account.settings()
    }

    /// This time, or that of the last event.
    pub(crate) fn now(&mut self, us: Micros) -> Micros {
        self.last_us = self.last_us.max(us);
        self.last_us
    }

    /// Wakes the thread that waits for decisions, where it would look too late.
    fn wake(&mut self, waits: &Waits) {
        let due = self.decisions.next_deadline();
        let earlier = due.is_some_and(|due| self.looks_us.is_none_or(|looks| due < looks));
        if earlier || self.decisions.wait_for_no_application() {
            self.looks_us = due;
            waits.decided();
        }
    }
}

impl Events {
    pub(crate) fn new(clock: Clock, account: Account, sift: Live) -> Events {
        let stream = Stream {
            sink: None,
            account,
            ignored: HashSet::new(),
            rehearsal: None,
            decisions: Decisions::new(sift),
            looks_us: None,
            last_us: 0,
            names: Default::default(),
        };
        Events {
            began_us: clock_us(ClockId::Boottime),
            clock,
            epoch_us: clock_us(ClockId::Realtime),
            queue: ArrayQueue::new(QUEUE),
            stream: Mutex::new(stream),
            waits: Waits::default(),
            processes: Processes::default(),
        }
    }

    /// Since the mount began, by a clock that runs on through suspend, µs.
    pub(crate) fn now(&self) -> Micros {
        match &self.clock {
            Clock::Boottime => clock_us(ClockId::Boottime).saturating_sub(self.began_us),
            Clock::Manual(us) => us.load(Ordering::SeqCst),
        }
    }

    /// Adds an event without a name. The operation has taken effect and has not returned.
    pub(crate) fn push(&self, at_us: Micros, tid: u32, action: Action<'static>) {
        let mut event = Event { at_us, pid: 0, tid, action };
        while let Err(full) = self.queue.push(event) {
            event = full;
            match self.stream.try_lock() {
                Some(mut stream) => self.deliver_queued(&mut stream),
                // Another thread delivers.
                None => std::thread::yield_now(),
            }
        }
    }

    pub(crate) fn deliver_queued(&self, stream: &mut Stream) {
        // No more than there may be: others go on adding.
        for _ in 0..QUEUE {
            let Some(event) = self.queue.pop() else { break };
            stream.deliver(event, &self.processes);
        }
        stream.wake(&self.waits);
    }

    /// Calls `act` with the sifter, which has received all queued events, and the time.
    pub(crate) fn with_stream<T>(&self, act: impl FnOnce(&mut Decisions, Micros) -> T) -> T {
        let mut stream = self.stream.lock();
        self.deliver_queued(&mut stream);
        let now = stream.now(self.now());
        act(&mut stream.decisions, now)
    }

    /// Calls `act` with the account, which has received all queued events, and the time.
    pub(crate) fn with_account<T>(&self, act: impl FnOnce(&mut Account, Micros) -> T) -> T {
        let mut stream = self.stream.lock();
        self.deliver_queued(&mut stream);
        let now = stream.now(self.now());
        act(&mut stream.account, now)
    }

    /// The sifter gets no events of this file from now on.
    pub(crate) fn ignore(&self, file: FileId) {
        let mut stream = self.stream.lock();
        self.deliver_queued(&mut stream);
        stream.ignored.insert(file);
    }

    /// It gets them again.
    pub(crate) fn unignore(&self, file: FileId) {
        let mut stream = self.stream.lock();
        self.deliver_queued(&mut stream);
        stream.ignored.remove(&file);
    }

    /// Delivers what is queued.
    pub(crate) fn deliver(&self) {
        self.deliver_queued(&mut self.stream.lock());
    }

    /// Delivers an event that `make` fills with the names that `names` wrote.
    fn deliver_named(
        &self,
        (at_us, tid): (Micros, u32),
        names: impl FnOnce(&mut [String; 2]),
        make: impl for<'a> FnOnce(&'a str, &'a str, &mut dyn FnMut(Action<'_>)),
    ) {
        let mut stream = self.stream.lock();
        self.deliver_queued(&mut stream);
        let mut space = std::mem::take(&mut stream.names);
        space.iter_mut().for_each(String::clear);
        names(&mut space);
        make(&space[0], &space[1], &mut |action| {
            stream.deliver(Event { at_us, pid: 0, tid, action }, &self.processes);
        });
        stream.names = space;
        stream.wake(&self.waits);
    }
}

/// Time and thread of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) us: Micros,
    pub(crate) tid: u32,
}

impl Fs {
    /// Every event goes here from now on, one after the other. To be called before the file system
    /// is used.
    pub fn observe(&self, sink: impl FnMut(&Event<'_>) + Send + 'static) {
        self.events.stream.lock().sink = Some(Box::new(sink));
    }

    /// Wall-clock time of the stream's time 0, µs since 1970.
    pub fn epoch_us(&self) -> u64 {
        self.events.epoch_us
    }

    /// CLOCK_BOOTTIME at the stream's time 0, µs.
    pub fn boot_us(&self) -> u64 {
        self.events.began_us
    }

    /// Delivers the events that are still queued.
    pub fn deliver_events(&self) {
        self.events.deliver();
    }

    /// Notes the time and thread of an operation that begins.
    pub(crate) fn begin(&self, tid: u32) -> At {
        At { us: self.events.now(), tid }
    }

    /// The same, for operations that open or create: the thread's process is looked up.
    pub(crate) fn begin_open(&self, tid: u32) -> At {
        let at = self.begin(tid);
        if let Some(named) = self.events.processes.look_up(tid, at.us) {
            let process = |name: &str| Action::Process { name: MaybeOwned::owned_str(name) };
            self.events.push(at.us, tid, process(&named.name));
        }
        at
    }

    /// Queues an event without a name.
    pub(crate) fn emit(&self, at: At, action: Action<'static>) {
        self.events.push(at.us, at.tid, action);
    }

    /// Delivers an event about a name of a file.
    pub(crate) fn emit_name(
        &self,
        table: &Table,
        at: At,
        (dir, name): (Ino, &OsStr),
        make: impl for<'a> FnOnce(MaybeOwned<'a, str>) -> Action<'a>,
    ) {
        self.events.deliver_named(
            (at.us, at.tid),
            |names| path(table, dir, name, &mut names[0]),
            |name, _, deliver| deliver(make(MaybeOwned::Borrowed(name))),
        );
    }

    /// Decides where a file is created.
    pub(crate) fn birth(
        &self,
        table: &Table,
        at: At,
        (dir, name): (Ino, &OsStr),
        make: impl for<'a> FnOnce(MaybeOwned<'a, str>) -> Create<'a>,
    ) -> Birth {
        let mut path_of_it = String::new();
        path(table, dir, name, &mut path_of_it);
        let mut stream = self.events.stream.lock();
        self.events.deliver_queued(&mut stream);
        let now = stream.now(at.us);
        let create = make(MaybeOwned::Borrowed(&path_of_it));
        stream.decisions.call(|sift| sift.birth(now, &create))
    }

    /// Delivers the creation of a file.
    pub(crate) fn emit_create(
        &self,
        table: &Table,
        at: At,
        (dir, name): (Ino, &OsStr),
        make: impl for<'a> FnOnce(MaybeOwned<'a, str>) -> Create<'a>,
    ) {
        self.events.deliver_named(
            (at.us, at.tid),
            |names| path(table, dir, name, &mut names[0]),
            |name, _, deliver| {
                let create = make(MaybeOwned::Borrowed(name));
                deliver(Action::Create(MaybeOwned::Borrowed(&create)));
            },
        );
    }

    /// The file of this number, if it has one, moved; or a directory did.
    pub(crate) fn emit_rename(
        &self,
        table: &Table,
        at: At,
        file: Option<FileId>,
        from: (Ino, &OsStr),
        to: (Ino, &OsStr),
    ) {
        self.events.deliver_named(
            (at.us, at.tid),
            |names| {
                path(table, from.0, from.1, &mut names[0]);
                path(table, to.0, to.1, &mut names[1]);
            },
            |from, to, deliver| {
                let names = &Renamed { from: from.into(), to: to.into() };
                let names = MaybeOwned::Borrowed(names);
                deliver(match file {
                    Some(file) => Action::Rename { file, names },
                    None => Action::RenameDirectory { names },
                });
            },
        );
    }

    /// The file has no name and no open any more.
    pub(crate) fn emit_end(&self, table: &mut Table, at: At, ino: Ino) {
        if let Some(file) = table.end_file(ino) {
            self.emit(at, Action::Gone { file });
        }
    }

    /// The file's identity in the stream; a file that existed before is introduced by its names and
    /// its size.
    pub(crate) fn introduce(&self, table: &mut Table, at: At, ino: Ino, size: u64) -> FileId {
        if let Some(file) = table.file(ino) {
            return file;
        }
        let file = table.identify(ino);
        let names = table.node(ino).map(|node| node.names.clone()).unwrap_or_default();
        for (dir, name) in names {
            self.emit_name(table, at, (dir, &name), |name| Action::Bind { file, name });
        }
        self.emit(at, Action::Size { file, size });
        file
    }
}

/// From the mounted directory on; bytes that are not UTF-8 as `\xNN`.
pub(crate) fn path(table: &Table, dir: Ino, name: &OsStr, into: &mut String) {
    if dir != ROOT
        && let Some((parent, name)) = table.node(dir).and_then(|node| node.names.first())
    {
        path(table, *parent, name, into);
    }
    into.push('/');
    escape_into(name.as_bytes(), into);
}

#[cfg(test)]
mod tests {
    use crate::{Access, Caller, Config, Fs, ROOT, Store};
    use flashsift_core::event::Action;
    use std::ffi::OsStr;
    use std::sync::{Arc, Mutex, mpsc};
    use std::thread;
    use std::time::Duration;

    fn fs(folder: &tempfile::TempDir) -> Fs {
        for name in ["backing", "store"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let backing = std::fs::File::open(folder.path().join("backing")).unwrap();
        let store = Store::in_dir(&folder.path().join("store")).unwrap();
        Fs::new(backing.into(), store, Config::default()).unwrap()
    }

    fn caller() -> Caller {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Caller { uid, gid, tid: 0, umask: 0 }
    }

    /// Recording a read took a global lock twice, and finding its file took another: readers of
    /// different files waited for one another, and for every process that listed a directory.
    // Promises: Mount 50.
    #[test]
    fn a_read_waits_for_no_global_lock() {
        let folder = tempfile::tempdir().unwrap();
        let fs = fs(&folder);
        let (_, open, _) = fs.create(&caller(), ROOT, OsStr::new("a"), 0o644, 0).unwrap();
        fs.write(Access::default(), open, 0, b"bytes").unwrap();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let _table = fs.table();
            let _stream = fs.events.stream.lock();
            let _counters = fs.counters.lock();
            let _making_room = fs.making_room.lock();
            let _processes = fs.events.processes.lock();
            scope.spawn(|| {
                let mut bytes = [0; 10];
                sender.send(fs.read(Access::default(), open, 0, &mut bytes).unwrap()).unwrap();
            });
            assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(5), "the read waits");
        });
    }

    /// The queue is bounded: more events than it holds are delivered by the threads that add them,
    /// and none is lost or out of order.
    // Promises: Mount 49.
    #[test]
    fn more_events_than_the_queue_holds_arrive_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let fs = fs(&folder);
        let seen: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
        let into = seen.clone();
        fs.observe(move |event| {
            if let Action::Write { file, offset, .. } = event.action {
                into.lock().unwrap().push((file.0, offset));
            }
        });
        const EACH: u64 = 2 * super::QUEUE as u64;
        let opens = ["a", "b"]
            .map(|name| fs.create(&caller(), ROOT, OsStr::new(name), 0o644, 0).unwrap().1);
        thread::scope(|scope| {
            for open in opens {
                let fs = &fs;
                scope.spawn(move || {
                    for offset in 0..EACH {
                        fs.write(Access::default(), open, offset, b"x").unwrap();
                    }
                });
            }
        });
        fs.deliver_events();
        let seen = seen.lock().unwrap();
        for file in [0, 1] {
            let offsets = seen.iter().filter(|(of, _)| *of == file).map(|(_, offset)| *offset);
            assert!(offsets.eq(0..EACH), "file {file}");
        }
    }
}
