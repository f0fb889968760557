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
//!
//! Behind the stream stand the account of bytes and the sifter. None of them sees the file system:
//! files are numbers, names are texts, and decisions wait here until the file system takes them.

pub(crate) mod decisions;
mod processes;
pub(crate) mod sifting;

use self::decisions::{Decisions, Waits};
use self::processes::Processes;
use super::types::Clock;
use crossbeam_queue::ArrayQueue;
use flashsift_events::event::{Action, Create, Event, FileId, MaybeOwned, Micros, Renamed};
use flashsift_files::flusher::FlusherSettings;
use flashsift_files::rehearsal::Rehearsal;
use flashsift_files::sift::account::Account;
use flashsift_files::sift::{Birth, KeptDirectories, Sift, live::Live};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// Events that may wait to be delivered. When it is full, a thread that adds one delivers all.
pub(super) const QUEUE: usize = 1 << 13;

type Sink = Box<dyn FnMut(&Event<'_>) + Send>;

/// The stream of events, and the sifter behind it.
pub(crate) struct Decider {
    /// CLOCK_BOOTTIME at the stream's time 0, µs.
    pub(crate) began_us: Micros,
    /// Wall-clock time at time 0, µs since 1970.
    pub(crate) epoch_us: u64,
    clock: Clock,
    queue: ArrayQueue<Event<'static>>,
    pub(crate) stream: Mutex<Stream>,
    waits: Waits,
    pub(super) processes: Processes,
    /// The sifter drops files, and wants to know the content of files that are closed.
    sifts: AtomicBool,
    /// Directories in which the sifter drops nothing.
    kept: KeptDirectories,
    /// Events tell the meaning of files that are closed.
    pub(super) tells_meaning: bool,
    /// The program in the foreground, as far as it is known.
    foreground: Mutex<String>,
}

/// Where events arrive one after the other. Its lock is the last: no other is taken under it.
pub(crate) struct Stream {
    sink: Option<Sink>,
    account: Account,
    /// Files that the sifter does not decide on: those of groups whose syncs are delayed.
    ignored: HashSet<FileId>,
    /// Another sifter, which only shows what it would do.
    rehearsal: Option<Box<Rehearsal>>,
    decisions: Decisions,
    /// When the thread that waits for decisions looks again.
    looks_us: Option<Micros>,
    last_us: Micros,
    names: [String; 2],
}

impl std::fmt::Debug for Decider {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Decider({} events queued)", self.queue.len())
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
    fn account_settings(&self) -> FlusherSettings {
        self.account.settings()
    }

    /// This time, or that of the last event.
    fn now(&mut self, us: Micros) -> Micros {
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

impl Decider {
    pub(crate) fn new(clock: Clock, account: Account, sift: Live, tells_meaning: bool) -> Decider {
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
        Decider {
            began_us: clock_us(ClockId::Boottime),
            clock,
            epoch_us: clock_us(ClockId::Realtime),
            queue: ArrayQueue::new(QUEUE),
            stream: Mutex::new(stream),
            waits: Waits::default(),
            processes: Processes::default(),
            sifts: AtomicBool::new(false),
            kept: KeptDirectories::default(),
            tells_meaning,
            foreground: Mutex::default(),
        }
    }

    /// Since the mount began, by a clock that runs on through suspend, µs.
    pub(crate) fn now(&self) -> Micros {
        match &self.clock {
            Clock::Boottime => clock_us(ClockId::Boottime).saturating_sub(self.began_us),
            Clock::Manual(us) => us.load(Ordering::SeqCst),
        }
    }

    /// Adds an event without a name.
    fn push(&self, at_us: Micros, tid: u32, action: Action<'static>) {
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

    fn deliver_queued(&self, stream: &mut Stream) {
        // No more than there may be: others go on adding.
        for _ in 0..QUEUE {
            let Some(event) = self.queue.pop() else { break };
            stream.deliver(event, &self.processes);
        }
        stream.wake(&self.waits);
    }

    /// Calls `act` with the sifter, which has received all queued events, and the time.
    fn with_stream<T>(&self, act: impl FnOnce(&mut Decisions, Micros) -> T) -> T {
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

    /// The file was created in RAM, or came back to it.
    pub(crate) fn is_in_ram(&self, file: FileId) {
        self.with_account(|account, _| account.is_in_ram(file));
    }

    /// From now on the file's writes go to BACKING.
    pub(crate) fn leaves_ram(&self, file: FileId) {
        self.with_account(|account, _| account.left_ram(file));
    }

    /// A copy of this many bytes is in BACKING's page cache, not flushed.
    pub(crate) fn hands_over(&self, file: FileId, bytes: u64) {
        self.with_account(|account, now_us| account.handed_over(now_us, file, bytes));
    }

    /// A copy of this many bytes was flushed; `synced`: an application waits for it.
    pub(crate) fn copied(&self, bytes: u64, synced: bool) {
        self.with_account(|account, _| account.copied(bytes, synced));
    }

    /// The file itself, which was handed over, was flushed.
    pub(crate) fn flushes(&self, file: FileId, synced: bool) {
        self.with_account(|account, now_us| account.flushes(now_us, file, synced));
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

    /// Every event goes here from now on, one after the other.
    pub(crate) fn observe(&self, sink: impl FnMut(&Event<'_>) + Send + 'static) {
        self.stream.lock().sink = Some(Box::new(sink));
    }

    /// Wakes the thread that waits for decisions: there is an earlier deadline.
    pub(crate) fn wake(&self) {
        // Held, so that the thread either sees the new deadline or waits already.
        let _stream = self.stream.lock();
        self.waits.decided();
    }

    /// Notes the time and thread of an operation that begins.
    pub(crate) fn begin(&self, tid: u32) -> At {
        At { us: self.now(), tid }
    }

    /// The same, for operations that open or create: the thread's process is looked up.
    pub(crate) fn begin_open(&self, tid: u32) -> At {
        let at = self.begin(tid);
        if let Some(named) = self.processes.look_up(tid, at.us) {
            self.emit(at, Action::Process { name: MaybeOwned::owned_str(&named.name) });
        }
        at
    }

    /// Queues an event without a name. The operation has taken effect and has not returned.
    pub(crate) fn emit(&self, at: At, action: Action<'static>) {
        self.push(at.us, at.tid, action);
    }

    /// Delivers an event about a name, which `path` writes.
    pub(crate) fn emit_name(
        &self,
        at: At,
        path: impl FnOnce(&mut String),
        make: impl for<'a> FnOnce(MaybeOwned<'a, str>) -> Action<'a>,
    ) {
        self.deliver_named(
            at,
            |names| path(&mut names[0]),
            |name, _, deliver| deliver(make(MaybeOwned::Borrowed(name))),
        );
    }

    /// Decides where a file is created.
    pub(crate) fn birth(
        &self,
        at: At,
        path: impl FnOnce(&mut String),
        make: impl for<'a> FnOnce(MaybeOwned<'a, str>) -> Create<'a>,
    ) -> Birth {
        let mut name = String::new();
        path(&mut name);
        let mut stream = self.stream.lock();
        self.deliver_queued(&mut stream);
        let now = stream.now(at.us);
        let create = make(MaybeOwned::Borrowed(&name));
        stream.decisions.call(|sift| sift.birth(now, &create))
    }

    /// Delivers the creation of a file.
    pub(crate) fn emit_create(
        &self,
        at: At,
        path: impl FnOnce(&mut String),
        make: impl for<'a> FnOnce(MaybeOwned<'a, str>) -> Create<'a>,
    ) {
        self.deliver_named(
            at,
            |names| path(&mut names[0]),
            |name, _, deliver| {
                let create = make(MaybeOwned::Borrowed(name));
                deliver(Action::Create(MaybeOwned::Borrowed(&create)));
            },
        );
    }

    /// A file moved; or a directory did.
    pub(crate) fn emit_rename(
        &self,
        at: At,
        file: Option<FileId>,
        from: impl FnOnce(&mut String),
        to: impl FnOnce(&mut String),
    ) {
        self.deliver_named(
            at,
            |[old, new]| {
                from(old);
                to(new);
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

    /// Delivers an event that `make` fills with the names that `names` wrote.
    fn deliver_named(
        &self,
        At { us: at_us, tid }: At,
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
