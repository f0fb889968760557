//! The part that ftrace's text and Perfetto share: converts the tracepoints of a foreign recording
//! to events.
//!
//! A feed decodes the tracepoints, and this module chooses among them. It holds the first
//! tracepoints of a trace until it knows which of them supply the accesses ([`plan`]). A trace with
//! any tracepoints of files is a trace of files, before the cache, and its block-layer tracepoints
//! are left out. A trace that has only requests is one of blocks, behind the cache.
//! [`TracepointMachine`] then derives the events, as it does for flashsift's own recordings.
//!
//! Such a trace lacks some data of a recording: names (F2FS and Android have paths, ext4 does not),
//! the sizes of files (reads are whole pages until a write or a truncation shows the size), and the
//! mappings of processes.

mod fields;
mod hosts;
mod known;
mod plan;
mod requests;
mod tasks;

pub(super) use fields::{Fields, Value};
pub(super) use known::{ALL, FIELDS_MAX, Known};

use super::syscalls::{self, Calls, Returned};
use crate::{
    Error,
    events::{Events, Reason, Skip, Skipped},
    tracepoint::{NoHost, Point, TracepointMachine, Values, What},
};
use flashsift_events::event::{About, Action, Knows, Side, Space};
use known::{Meaning, Source};
use plan::{Additions, Plan, Survey};
use requests::{By, Requests};
use std::collections::HashMap;
use tasks::{News, Tasks};

/// Number of tracepoints that are examined before the first event is emitted.
const HELD_MAX: usize = 1 << 16;
/// Number of later tracepoints after which a tracepoint that came out of order is processed.
pub(super) const WINDOW: usize = 1 << 18;
const IMPOSSIBLE: Skip = Skip::Damage("tracepoint with numbers that cannot be");

/// Omissions and assumptions, reported at the end: some of them affect most lines.
#[derive(Clone, Copy)]
enum Left {
    Silent,
    Repeated,
    Other,
    Behind,
    Before,
    Somewhere,
    Several,
    Missed,
    Asked,
    Added,
    OwnBlocks,
    Call,
}

const LEFT: [Skip; 12] = [
    Skip::Benign("tracepoint without information on pages"),
    Skip::Benign("tracepoint that repeats a more exact one"),
    Skip::Benign("other tracepoint"),
    Skip::Benign(
        "request of the block layer, behind the page cache (a format ending in -block reads these)",
    ),
    Skip::Benign("tracepoint before the page cache (a format without -block reads these)"),
    Skip::Note("access to an unnamed file system: taken as of the one F2FS, else the one ext4"),
    Skip::Note("access to one of several F2FS, unknown which: taken as of the first"),
    Skip::Note("read that missed the page cache; reads that hit are not in the trace"),
    Skip::Note("access of which only the request is known: less may have been moved"),
    Skip::Note(
        "page that entered the page cache, taken as a read that missed; reads that hit are not in \
         the trace, and a new page of a write looks the same",
    ),
    Skip::Note(
        "request counted in blocks of the device, whose size is not in the trace: taken as 4096 \
         bytes on UFS, else as 512",
    ),
    Skip::Benign("system call beside tracepoints of files or requests, which are used"),
];

/// Number of occurrences of each, and the line of the first.
#[derive(Default)]
struct Tally([(u64, u64); LEFT.len()]);

impl Tally {
    fn add(&mut self, left: Left, line: u64) {
        let (first, count) = &mut self.0[left as usize];
        if *count == 0 {
            *first = line;
        }
        *count += 1;
    }
}

/// An item of a trace.
struct Item {
    line: u64,
    at_ns: u64,
    tid: u32,
    heard: Heard,
}

enum Heard {
    Tracepoint(&'static Known, Meaning),
    Task(News),
    Call(SystemCall),
}

/// The beginning or the end of a system call.
pub(super) struct SystemCall {
    pub(super) name: &'static str,
    pub(super) ends: bool,
    /// Numbers without `0x` are hexadecimal, too.
    pub(super) hex: bool,
    /// The arguments, or the result.
    pub(super) text: Box<[u8]>,
}

/// Takes tracepoints in the order of their times and emits events.
pub(super) struct Feed<'e, 's> {
    pub(super) events: &'e mut Events<'s>,
    wanted: Option<Space>,
    /// Tracepoints held to be put in order; `None` if they are in order.
    window: Option<Vec<Item>>,
    last_ns: u64,
    /// Items held until there is a plan.
    held: Vec<Item>,
    teller: Option<Teller>,
    tasks: Tasks,
    tally: Tally,
    /// Names of unknown tracepoints.
    others: HashMap<Box<[u8]>, u64, foldhash::fast::FixedState>,
    /// The trace has system calls.
    calls: bool,
    /// The trace has times.
    pub(super) times: bool,
}

impl<'e, 's> Feed<'e, 's> {
    /// `wanted`: the kind of trace to read it as; `None` chooses the kind by the contents.
    pub(super) fn new(events: &'e mut Events<'s>, wanted: Option<Space>) -> Self {
        Self {
            events,
            wanted,
            window: None,
            last_ns: 0,
            held: Vec::new(),
            teller: None,
            tasks: Tasks::default(),
            tally: Tally::default(),
            others: HashMap::default(),
            calls: false,
            times: true,
        }
    }

    /// Likewise for tracepoints that are out of order by no more than [`WINDOW`].
    pub(super) fn out_of_order(events: &'e mut Events<'s>, wanted: Option<Space>) -> Self {
        Self { window: Some(Vec::new()), ..Self::new(events, wanted) }
    }

    /// Adds a thread, independent of the time.
    pub(super) fn found(
        &mut self,
        line: u64,
        tid: u32,
        tgid: Option<u32>,
        name: &[u8],
    ) -> Result<(), Error> {
        let at_ns = self.last_ns;
        match self.tasks.seen(tid, tgid, name) {
            Some(news @ News::Found { .. }) => {
                self.in_order(Item { line, at_ns, tid, heard: Heard::Task(news) })
            }
            Some(news) => self.take(Item { line, at_ns, tid, heard: Heard::Task(news) }),
            None => Ok(()),
        }
    }

    /// The thread that hits the following tracepoints, its process if known, and its name (empty if
    /// unknown).
    pub(super) fn thread(
        &mut self,
        line: u64,
        at_ns: u64,
        tid: u32,
        tgid: Option<u32>,
        name: &[u8],
    ) -> Result<(), Error> {
        match self.tasks.seen(tid, tgid, name) {
            Some(news) => self.take(Item { line, at_ns, tid, heard: Heard::Task(news) }),
            None => Ok(()),
        }
    }

    /// Takes a hit of one of [`ALL`].
    pub(super) fn hit(
        &mut self,
        line: u64,
        at_ns: u64,
        tid: u32,
        known: &'static Known,
        values: &dyn Values,
    ) -> Result<(), Error> {
        let Some(meaning) = known.meaning(values) else {
            self.tally.add(Left::Silent, line);
            return Ok(());
        };
        if !meaning.is_possible() {
            self.events.skipped(IMPOSSIBLE, line);
            return Ok(());
        }
        if let Meaning::Point(what) = &meaning {
            self.tasks.learn(tid, what);
        }
        self.take(Item { line, at_ns, tid, heard: Heard::Tracepoint(known, meaning) })
    }

    /// Takes the beginning or the end of a system call.
    pub(super) fn system_call(
        &mut self,
        line: u64,
        at_ns: u64,
        tid: u32,
        call: SystemCall,
    ) -> Result<(), Error> {
        self.calls = true;
        self.take(Item { line, at_ns, tid, heard: Heard::Call(call) })
    }

    /// Takes a hit of another tracepoint.
    pub(super) fn other(&mut self, line: u64, name: &[u8]) {
        const NAMES_MAX: usize = 1000;
        self.tally.add(Left::Other, line);
        if let Some(count) = self.others.get_mut(name) {
            *count += 1;
        } else if self.others.len() < NAMES_MAX {
            self.others.insert(name.into(), 1);
        }
    }

    fn take(&mut self, item: Item) -> Result<(), Error> {
        self.last_ns = self.last_ns.max(item.at_ns);
        let Some(window) = &mut self.window else { return self.in_order(item) };
        window.push(item);
        if window.len() < 2 * WINDOW {
            return Ok(());
        }
        window.sort_by_key(|item| item.at_ns);
        let ripe: Vec<_> = window.drain(..WINDOW).collect();
        ripe.into_iter().try_for_each(|item| self.in_order(item))
    }

    fn in_order(&mut self, item: Item) -> Result<(), Error> {
        if let Some(teller) = &mut self.teller {
            return teller.emit(&item, &mut self.tally, self.events);
        }
        self.held.push(item);
        if self.held.len() == HELD_MAX { self.settle() } else { Ok(()) }
    }

    /// Processes the held items.
    fn settle(&mut self) -> Result<(), Error> {
        let mut survey = Survey::default();
        for item in &self.held {
            match &item.heard {
                Heard::Tracepoint(known, meaning) => survey.add(known, meaning.point()),
                Heard::Call(call) => survey.call(call),
                Heard::Task(_) => {}
            }
        }
        let plan = survey.plan(self.wanted);
        let (side, syncs, removals) = match plan.space {
            Space::Files => (Side::Before, plan.syncs, plan.removals),
            // The kernel sends no flush to a device without a volatile cache.
            _ => (Side::After, false, false),
        };
        let knows = Knows {
            times: self.times,
            syncs,
            writes: !plan.misses_only,
            removals,
            opens: plan.calls,
            names: plan.calls && removals,
            ..Knows::NOTHING
        };
        self.events.about(About {
            epoch_us: None,
            boot_us: None,
            side,
            space: plan.space,
            knows,
        })?;
        let mut teller = Teller::new(plan);
        // A process has the name of its main thread.
        for item in &self.held {
            if let Heard::Task(News::Found { tid, pid, name: Some(name) }) = &item.heard
                && tid == pid
            {
                teller.found(*tid, *pid, Some(name));
            }
        }
        for item in std::mem::take(&mut self.held) {
            teller.emit(&item, &mut self.tally, self.events)?;
        }
        self.teller = Some(teller);
        Ok(())
    }

    /// Ends the trace. `sound`: most of it was understood.
    pub(super) fn finish(mut self, sound: bool) -> Result<(), Error> {
        if let Some(mut window) = self.window.take() {
            window.sort_by_key(|item| item.at_ns);
            window.into_iter().try_for_each(|item| self.in_order(item))?;
        }
        let hits = !self.held.is_empty() || self.teller.is_some();
        if hits && self.teller.is_none() {
            self.settle()?;
        }
        let accesses = match &mut self.teller {
            Some(teller) => teller.finish(self.events)?,
            None => 0,
        };
        for (skip, (first, count)) in LEFT.iter().zip(self.tally.0) {
            if count > 0 {
                self.events.skipped_many(*skip, first, count);
            }
        }
        if accesses == 0 && sound && (hits || !self.others.is_empty()) {
            return Err(Error::Lacks(self.lacking()));
        }
        Ok(())
    }

    /// Names the tracepoints that a recording needs for accesses.
    fn lacking(&self) -> String {
        let mut others: Vec<_> =
            self.others.iter().map(|(name, count)| (&**name, *count)).collect();
        // Some of them are known by number only.
        others.retain(|(name, _)| name.iter().any(u8::is_ascii_alphabetic));
        others.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
        let most: Vec<_> =
            others.iter().take(3).map(|(name, _)| String::from_utf8_lossy(name)).collect();
        let most = match most.is_empty() {
            true => String::new(),
            false => format!(" (mostly {})", most.join(", ")),
        };
        match self.wanted {
            None if self.calls => {
                "the trace's system calls tell of no read or write of a file that they open: \
                 record openat, close, read, write, pread64, pwrite64, fsync and fdatasync from \
                 the start of the programs on, as tracepoints both sys_enter_… and sys_exit_…, or \
                 with `perf trace`, which shows the names of files"
                    .to_owned()
            }
            Some(Space::Blocks) => format!(
                "none of the trace's tracepoints{most} is a request of the block layer or of a \
                 host: record block_bio_queue or block_rq_issue, or read it without -block in \
                 --format for what it tells of files"
            ),
            _ => format!(
                "none of the trace's tracepoints{most} tells of a read or write: on F2FS record \
                 f2fs_dataread_start, f2fs_dataread_end, f2fs_datawrite_start and \
                 f2fs_file_write_iter, on Android with a kernel before 5.15 \
                 android_fs_dataread_start and android_fs_datawrite_start, on ext4 \
                 mm_filemap_get_pages (Linux 6.12) and ext4_da_write_begin and _end; for what \
                 reaches the device, block_bio_queue or block_rq_issue (docs/android.md)"
            ),
        }
    }
}

/// Emits events by the plan.
struct Teller {
    plan: Plan,
    machine: TracepointMachine,
    /// The machine's reasons for omissions, each with the line of the first.
    reasons: Vec<(Box<str>, u64)>,
    requests: Requests,
    calls: Calls,
    names: HashMap<u32, Box<str>>,
    pids: HashMap<u32, u32>,
    start_ns: Option<u64>,
    accesses: u64,
}

impl Teller {
    fn new(plan: Plan) -> Self {
        let mut machine = TracepointMachine::new(plan.direct_steps);
        machine.f2fs(plan.nameless, "");
        if !plan.writes {
            machine.without_writes();
        }
        match plan.additions {
            Additions::None => machine.without_folios(),
            Additions::Folios => {}
            Additions::Reads => machine.reads_are_additions(),
        }
        Self {
            plan,
            machine,
            reasons: Vec::new(),
            requests: Requests::default(),
            calls: Calls::default(),
            names: HashMap::new(),
            pids: HashMap::new(),
            start_ns: None,
            accesses: 0,
        }
    }

    fn found(&mut self, tid: u32, pid: u32, name: Option<&str>) {
        self.pids.insert(tid, pid);
        match name {
            Some(name) => {
                self.names.entry(pid).or_insert_with(|| name.into());
                self.machine.found_task(tid, pid, name);
            }
            None => self.machine.found_thread(tid, pid),
        }
    }

    /// Processes that begin in the trace, for requests; and whether the trace reports such starts.
    fn born(&mut self, by: u32, what: &What) -> bool {
        match what {
            What::NewTask { tid, flags, name } => {
                let thread = flags & tasks::CLONE_THREAD != 0;
                let pid = if thread { self.pids.get(&by).copied().unwrap_or(by) } else { *tid };
                self.pids.insert(*tid, pid);
                if !thread {
                    self.names.insert(pid, name.clone());
                }
            }
            What::Exec { program, .. } => {
                self.pids.insert(by, by);
                self.names.insert(by, program.rsplit('/').next().unwrap_or(program).into());
            }
            What::Exit => {}
            _ => return false,
        }
        true
    }

    fn emit(
        &mut self,
        item: &Item,
        tally: &mut Tally,
        events: &mut Events<'_>,
    ) -> Result<(), Error> {
        let &Item { line, at_ns, tid, .. } = item;
        events.at(line);
        let files = self.plan.space == Space::Files;
        match &item.heard {
            Heard::Task(News::Found { tid, pid, name }) => {
                self.found(*tid, *pid, name.as_deref());
                Ok(())
            }
            Heard::Task(News::Renamed { pid, name }) => {
                self.names.insert(*pid, name.clone());
                let what = What::Exec { program: name.clone(), old_tid: *pid };
                self.point(line, Point { at_ns, tid: *pid, what }, events)
            }
            Heard::Call(call) if self.plan.calls => self.system_call(item, call, events),
            Heard::Call(_) => {
                tally.add(Left::Call, line);
                Ok(())
            }
            Heard::Tracepoint(_, Meaning::Request(_)) if files => {
                tally.add(Left::Behind, line);
                Ok(())
            }
            Heard::Tracepoint(known, Meaning::Request(request)) => {
                self.request(item, known, request, tally, events)
            }
            Heard::Tracepoint(known, meaning) if self.plan.calls => {
                if !meaning.point().is_some_and(|what| self.born(tid, what)) {
                    let repeats = known.is_access();
                    tally.add(if repeats { Left::Repeated } else { Left::Silent }, line);
                }
                Ok(())
            }
            Heard::Tracepoint(_, meaning) if !files => {
                if !meaning.point().is_some_and(|what| self.born(tid, what)) {
                    tally.add(Left::Before, line);
                }
                Ok(())
            }
            Heard::Tracepoint(known, Meaning::Call(call)) => {
                let dev = self.plan.nameless;
                self.point(line, Point { at_ns, tid, what: call.begin(dev) }, events)?;
                if self.plan.repeats(known.source, None) {
                    return Ok(());
                }
                tally.add(Left::Asked, line);
                if known.source == Source::AndroidRead {
                    tally.add(Left::Missed, line);
                }
                self.somewhere(known, line, tally);
                self.point(line, Point { at_ns, tid, what: call.end(dev) }, events)
            }
            Heard::Tracepoint(known, Meaning::Point(what)) => {
                if self.plan.repeats(known.source, Some(what)) {
                    tally.add(Left::Repeated, line);
                    // It still tells the folio.
                    if let What::Added { inode, first, pages } = *what {
                        self.machine.folio_added(inode, first, pages);
                    }
                    return Ok(());
                }
                // The trace does not begin with it.
                if let What::Removed { inode, first, pages } = *what {
                    self.machine.folio_removed(inode, first, pages);
                    tally.add(Left::Silent, line);
                    return Ok(());
                }
                match known.source {
                    Source::F2fsReadEnd | Source::F2fsWriteEnd => {
                        self.somewhere(known, line, tally);
                    }
                    Source::Added => tally.add(Left::Added, line),
                    _ => {}
                }
                self.point(line, Point { at_ns, tid, what: what.clone() }, events)
            }
        }
    }

    /// Returns the access of a tracepoint that does not identify the file system.
    fn somewhere(&self, known: &Known, line: u64, tally: &mut Tally) {
        if known.system != "f2fs" {
            tally.add(Left::Somewhere, line);
        } else if self.plan.several {
            tally.add(Left::Several, line);
        }
    }

    fn point(&mut self, line: u64, point: Point, events: &mut Events<'_>) -> Result<(), Error> {
        self.machine.point(&point, &mut NoHost);
        let reasons = self.machine.skipped();
        if reasons.len() > self.reasons.len() {
            let known = |reason: &str| self.reasons.iter().any(|(known, _)| **known == *reason);
            let new: Vec<_> = reasons
                .iter()
                .filter(|(reason, _)| !known(reason))
                .map(|(r, _)| r.into())
                .collect();
            self.reasons.extend(new.into_iter().map(|reason| (reason, line)));
        }
        self.hand_on(events)
    }

    fn hand_on(&mut self, events: &mut Events<'_>) -> Result<(), Error> {
        for event in self.machine.drain() {
            self.accesses +=
                u64::from(matches!(event.action, Action::Read { .. } | Action::Write { .. }));
            events.push(event)?;
        }
        Ok(())
    }

    fn request(
        &mut self,
        item: &Item,
        known: &Known,
        request: &requests::Request,
        tally: &mut Tally,
        events: &mut Events<'_>,
    ) -> Result<(), Error> {
        let &Item { line, at_ns, tid, .. } = item;
        if self.plan.repeats(known.source, None) {
            tally.add(Left::Repeated, line);
            return Ok(());
        }
        if known.source == Source::Requeued {
            self.requests.requeued(request);
            tally.add(Left::Silent, line);
            return Ok(());
        }
        let pid = self.pids.get(&tid).copied().unwrap_or(tid);
        let by = By { tid, pid, name: self.names.get(&pid).map(AsRef::as_ref) };
        let at_us = at_ns.saturating_sub(*self.start_ns.get_or_insert(at_ns)) / 1000;
        match self.requests.request(request, known.source == Source::Issued, at_us, &by, events)? {
            Ok(()) => {
                self.accesses += 1;
                if request.own_blocks {
                    tally.add(Left::OwnBlocks, line);
                }
            }
            Err(skip) => events.skipped(skip, line),
        }
        Ok(())
    }

    fn system_call(
        &mut self,
        &Item { at_ns, tid, .. }: &Item,
        call: &SystemCall,
        events: &mut Events<'_>,
    ) -> Result<(), Error> {
        let at_us = at_ns.saturating_sub(*self.start_ns.get_or_insert(at_ns)) / 1000;
        let pid = self.pids.get(&tid).copied().unwrap_or(tid);
        let name = self.names.get(&pid).map(|name| name.as_bytes());
        let by = syscalls::By { at_us, tid, pid, name };
        let SystemCall { name, ends, hex, ref text } = *call;
        if !ends {
            return self.calls.enter(&by, name, text, hex, events);
        }
        let result = syscalls::number(text, hex);
        self.calls.leave(&by, name, result.map_or(Returned::Unknown, Returned::new), events)
    }

    /// Emits the machine's held events and returns the number of accesses.
    fn finish(&mut self, events: &mut Events<'_>) -> Result<u64, Error> {
        let calls = self.calls.accesses;
        std::mem::take(&mut self.calls).finish(events);
        self.machine.finish();
        self.hand_on(events)?;
        let mut skipped = Skipped::default();
        for (reason, counts) in self.machine.skipped().iter() {
            let line =
                self.reasons.iter().find(|(known, _)| **known == *reason).map(|(_, line)| *line);
            skipped.restore(
                reason.to_owned(),
                Reason { first: line.unwrap_or(counts.first), ..counts },
            );
        }
        events.merge(&skipped);
        Ok(self.accesses + calls)
    }
}
