//! The output of a reader: events in batches, and counts of everything that was left out.

use crate::{Error, annotations::Annotations};
use flashsift_events::event::{About, Action, Event, FileId, OpenId, Space};
use std::{borrow::Cow, collections::BTreeMap, fmt, mem};

/// A consumer of events. It gets batches, so that a reader makes no virtual call per event.
pub trait Sink {
    /// Takes the description of the trace: called once, before the first batch.
    ///
    /// # Errors
    ///
    /// The consumer cannot take it; reading ends.
    fn about(&mut self, about: About) -> Result<(), Error>;
    /// Takes some more events, in order; `at_us` never decreases.
    ///
    /// # Errors
    ///
    /// The consumer cannot take them; reading ends.
    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error>;
}

/// A sink that keeps all events in memory: for small traces and for tests.
#[derive(Debug, Default)]
pub struct Kept {
    /// Description of the trace, once a reader has given it.
    pub about: Option<About>,
    /// All events, in order.
    pub events: Vec<Event<'static>>,
}

impl Sink for Kept {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.about = Some(about);
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        self.events.extend_from_slice(events);
        Ok(())
    }
}

/// The reason for which a line or record gave no event. The phrase is a short constant such as
/// "unmapped sector (-1)", shown to people as `24507 × unmapped sector (-1) (first at 1234)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The line was understood, and does not concern the cache: a comment, a duplicate, an unmapped
    /// sector, a call that failed.
    Benign(&'static str),
    /// The line did give events, but something about them is a guess; the phrase names the
    /// assumption.
    Note(&'static str),
    /// The line was not understood, or cannot be true. A trace with mostly such lines is refused.
    Damage(&'static str),
}

impl Skip {
    /// Whether this is the same constant. Two constants of equal words are counted together later.
    fn is(self, other: Self) -> bool {
        let (Self::Benign(one) | Self::Note(one) | Self::Damage(one)) = self;
        let (Self::Benign(two) | Self::Note(two) | Self::Damage(two)) = other;
        std::ptr::eq(one, two) && std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// Lines or records that were not turned into events, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped(BTreeMap<Cow<'static, str>, Reason>);

/// The occurrences of one reason to skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Number of lines or records.
    pub count: u64,
    /// 1-based number of the first line or record.
    pub first: u64,
    /// The line was not understood ([`Skip::Damage`]).
    pub damage: bool,
    /// The line was not skipped, but something was assumed ([`Skip::Note`]).
    pub note: bool,
}

impl Skipped {
    /// Counts one more, at a 1-based line or record number.
    pub fn add(&mut self, skip: Skip, line: u64) {
        self.add_many(skip, line, 1);
    }

    /// Counts `many` more.
    pub fn add_many(&mut self, skip: Skip, line: u64, many: u64) {
        let (Skip::Benign(reason) | Skip::Note(reason) | Skip::Damage(reason)) = skip;
        let (damage, note) = (matches!(skip, Skip::Damage(_)), matches!(skip, Skip::Note(_)));
        let fresh = Reason { count: 0, first: line, damage, note };
        self.0.entry(Cow::Borrowed(reason)).or_insert(fresh).count += many;
    }

    /// Restores an item of [`Skipped::iter`], for counts that were stored with a trace.
    pub fn restore(&mut self, reason: String, counts: Reason) {
        self.0.insert(Cow::Owned(reason), counts);
    }

    /// Returns each reason with its counts, ordered by reason.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Reason)> + '_ {
        self.0.iter().map(|(reason, r)| (reason.as_ref(), *r))
    }

    /// Returns the number of reasons.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no line or record was left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many lines or records were left out, in total.
    pub fn total(&self) -> u64 {
        self.0.values().filter(|r| !r.note).map(|r| r.count).sum()
    }

    /// Adds the counts of the trace from which this one was copied.
    pub fn merge(&mut self, other: &Skipped) {
        for (reason, counts) in &other.0 {
            self.0
                .entry(reason.clone())
                .and_modify(|mine| mine.count += counts.count)
                .or_insert(*counts);
        }
    }

    /// Returns how many lines or records were not understood.
    pub fn damaged(&self) -> u64 {
        self.0.values().filter(|r| r.damage).map(|r| r.count).sum()
    }

    pub(crate) fn in_words(&self) -> String {
        if self.0.is_empty() { String::new() } else { format!(": {self}") }
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (reason, r)) in self.0.iter().enumerate() {
            let comma = if n > 0 { "; " } else { "" };
            // A reason is a singular: only with the sign does it read right behind any number.
            write!(f, "{comma}{} × {reason} (first at {})", r.count, r.first)?;
        }
        Ok(())
    }
}

/// The origin of a stored trace ([`crate::store`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Name of the trace that was imported.
    pub trace: String,
    /// The lines or records that its reader left out.
    pub skipped: Skipped,
    /// The notes that commands added.
    pub annotations: Annotations,
}

/// The totals of a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The description of the trace; `None` if the reader stopped before it gave one.
    pub about: Option<About>,
    /// Lines or records that gave no event.
    pub skipped: Skipped,
    /// Events passed on.
    pub events: u64,
    /// Reads and writes among them, also those past the page cache.
    pub accesses: u64,
    /// Events that were earlier than their predecessor and got its time.
    pub late: u64,
    /// The origin of a stored trace.
    pub origin: Option<Origin>,
}

/// Linux's `MAX_RW_COUNT`: no read or write moves more at once.
pub const ACCESS_BYTES_MAX: u64 = 0x7fff_f000;

/// No request of a block device is longer: the kernel cuts them to a few MiB.
pub const REQUEST_BYTES_MAX: u64 = 1 << 30;

/// Events of a batch: so few that the sink reads them from the core's own cache.
const BATCH: usize = 256;

/// A read or a write.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Time, µs.
    pub at_us: u64,
    /// Process; 0 if it is not known.
    pub pid: u32,
    /// Thread; 0 if it is not known.
    pub tid: u32,
    /// File accessed.
    pub file: FileId,
    /// The open that was used, where the trace knows it.
    pub open: Option<OpenId>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Read or write.
    pub kind: AccessKind,
}

/// The kind of an [`Access`].
#[derive(Clone, Copy, Debug)]
pub enum AccessKind {
    /// A read.
    Read,
    /// A write.
    Write {
        /// The write itself waits for storage.
        sync: bool,
    },
}

impl AccessKind {
    /// A write that does not wait for storage, or a read.
    #[inline(always)]
    pub fn new(write: bool) -> Self {
        if write { Self::Write { sync: false } } else { Self::Read }
    }
}

const NOTHING: Event<'static> = Event {
    at_us: 0,
    pid: 0,
    tid: 0,
    action: Action::Read { file: FileId(0), open: None, offset: 0, len: 0 },
};

/// The output of a reader: it passes batches on to a [`Sink`] and keeps the counts.
pub struct Events<'a> {
    sink: &'a mut dyn Sink,
    /// Reads and writes behind those of the batch, of any content.
    batch: Box<[Event<'static>; BATCH]>,
    batched: usize,
    line: u64,
    last_us: u64,
    len_max: u64,
    summary: Summary,
    /// Events of the batch that are no reads and no writes.
    others: usize,
    /// Skips of one reason that are not in the summary yet: the reason, their number, and the first
    /// line. A trace may skip every second line for the same reason.
    skips: Option<(Skip, u64, u64)>,
}

impl<'a> Events<'a> {
    /// Returns an output that passes events on to `sink`.
    pub fn new(sink: &'a mut dyn Sink) -> Self {
        let Ok(batch) = vec![NOTHING; BATCH].try_into() else { unreachable!("as many") };
        Self {
            sink,
            batch,
            batched: 0,
            line: 0,
            last_us: 0,
            len_max: ACCESS_BYTES_MAX,
            summary: Summary::default(),
            others: 0,
            skips: None,
        }
    }

    /// Sets the description of the trace. Every reader calls it once, before its first event.
    ///
    /// # Errors
    ///
    /// The consumer of the events failed.
    ///
    /// # Panics
    ///
    /// It was called before.
    pub fn about(&mut self, about: About) -> Result<(), Error> {
        assert!(self.summary.about.is_none(), "a reader says what its trace is about once");
        self.summary.about = Some(about);
        self.len_max = match about.space {
            Space::Files => ACCESS_BYTES_MAX,
            Space::Blocks => REQUEST_BYTES_MAX,
            Space::Objects => u64::MAX,
        };
        self.sink.about(about)
    }

    /// Sets the 1-based line or record of the events that follow, for the counts.
    pub fn at(&mut self, line: u64) {
        self.line = line;
    }

    /// Returns the line or record set last ([`Events::at`]).
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Sets the origin of a stored trace.
    pub fn origin(&mut self, origin: Origin) {
        self.summary.origin = Some(origin);
    }

    /// Adds an event. An event that no system can have carried out counts as damage instead: it is
    /// longer than [`ACCESS_BYTES_MAX`] or, on a block device, than [`REQUEST_BYTES_MAX`] (objects
    /// may be longer), or reaches past `i64::MAX`.
    ///
    /// # Errors
    ///
    /// The consumer of the events failed.
    #[inline(never)]
    pub fn push(&mut self, mut event: Event<'static>) -> Result<(), Error> {
        let checked = checked(&event.action, self.len_max);
        let Some(at_us) = self.at_or_after(event.at_us, checked) else { return Ok(()) };
        event.at_us = at_us;
        self.others +=
            usize::from(!matches!(event.action, Action::Read { .. } | Action::Write { .. }));
        self.summary.accesses += u64::from(matches!(event.action, Action::Direct { .. }));
        self.batch[self.batched] = event;
        self.batched += 1;
        self.pushed()
    }

    /// Adds a read or a write, as [`Events::push`] does, and faster.
    ///
    /// # Errors
    ///
    /// The consumer of the events failed.
    #[inline(always)]
    pub fn access(&mut self, access: Access) -> Result<(), Error> {
        let Access { at_us, pid, tid, file, open, offset, len, kind } = access;
        let checked = checked_access(offset, len, self.len_max);
        let Some(at_us) = self.at_or_after(at_us, checked) else { return Ok(()) };
        // Written in parts, so that it is never built elsewhere and copied.
        let slot = &mut self.batch[self.batched];
        (slot.at_us, slot.pid, slot.tid) = (at_us, pid, tid);
        let mut put = |action| {
            // The old one holds nothing, and not to look for that saves a call.
            mem::forget(mem::replace(&mut slot.action, action));
        };
        match kind {
            AccessKind::Read => put(Action::Read { file, open, offset, len }),
            AccessKind::Write { sync } => put(Action::Write { file, open, offset, len, sync }),
        }
        self.batched += 1;
        self.pushed()
    }

    /// Returns the time that an event gets; `None`, and a count, if it cannot have happened.
    #[inline(always)]
    fn at_or_after(&mut self, at_us: u64, possible: Result<(), Skip>) -> Option<u64> {
        if let Err(skip) = possible {
            self.skipped(skip, self.line);
            return None;
        }
        self.summary.late += u64::from(at_us < self.last_us);
        self.last_us = self.last_us.max(at_us);
        Some(self.last_us)
    }

    #[inline(always)]
    fn pushed(&mut self) -> Result<(), Error> {
        if self.batched == BATCH { self.flush() } else { Ok(()) }
    }

    /// Counts a line or record (1-based number) that was understood and gives no event
    /// ([`Skip::Benign`]).
    pub fn skip(&mut self, reason: &'static str, line: u64) {
        self.skipped(Skip::Benign(reason), line);
    }

    /// Counts a line or record (1-based number) that was not understood ([`Skip::Damage`]).
    pub fn damage(&mut self, reason: &'static str, line: u64) {
        self.skipped(Skip::Damage(reason), line);
    }

    /// Counts a line or record (1-based number) that did give events, based on an assumption
    /// ([`Skip::Note`]).
    pub fn note(&mut self, reason: &'static str, line: u64) {
        self.skipped(Skip::Note(reason), line);
    }

    /// Counts a line or record (1-based number) that gives no event.
    #[inline]
    pub fn skipped(&mut self, skip: Skip, line: u64) {
        match &mut self.skips {
            Some((last, many, _)) if last.is(skip) => *many += 1,
            _ => self.skipped_otherwise(skip, line),
        }
    }

    #[cold]
    fn skipped_otherwise(&mut self, skip: Skip, line: u64) {
        self.count_skips();
        self.skips = Some((skip, 1, line));
    }

    fn count_skips(&mut self) {
        if let Some((skip, many, first)) = self.skips.take() {
            self.summary.skipped.add_many(skip, first, many);
        }
    }

    /// Counts `many` lines, records, or parts of them, the first at `line`.
    pub fn skipped_many(&mut self, skip: Skip, line: u64, many: u64) {
        self.count_skips();
        self.summary.skipped.add_many(skip, line, many);
    }

    /// Adds the counts of an earlier reader of the same trace.
    pub fn merge(&mut self, skipped: &Skipped) {
        self.count_skips();
        self.summary.skipped.merge(skipped);
    }

    #[inline(never)]
    fn flush(&mut self) -> Result<(), Error> {
        let batch = &mut self.batch[..self.batched];
        self.summary.events += self.batched as u64;
        self.summary.accesses += (self.batched - self.others) as u64;
        let result = self.sink.events(batch);
        if self.others > 0 {
            batch.fill(NOTHING);
        }
        (self.batched, self.others) = (0, 0);
        result
    }

    /// Passes on the last batch. Returns the totals.
    ///
    /// # Errors
    ///
    /// The consumer of the events failed.
    pub fn finish(mut self) -> Result<Summary, Error> {
        self.count_skips();
        if self.batched > 0 {
            self.flush()?;
        }
        Ok(self.summary)
    }
}

fn checked(action: &Action, len_max: u64) -> Result<(), Skip> {
    let (offset, len) = match *action {
        Action::Read { offset, len, .. }
        | Action::Write { offset, len, .. }
        | Action::Direct { offset, len, .. }
        | Action::Folio { offset, len, .. }
        | Action::Filled { offset, len, .. } => return checked_access(offset, len, len_max),
        Action::Punch { offset, len, .. } => (offset, len),
        Action::Place { offset, len, at, .. } => (offset.max(at), len),
        // The length may be `u64::MAX`: to the end of the file.
        Action::Sync { offset, .. } => (offset, 0),
        Action::Truncate { size, .. } | Action::Size { size, .. } => (size, 0),
        _ => return Ok(()),
    };
    checked_end(offset, len)
}

#[inline(always)]
fn checked_access(offset: u64, len: u64, len_max: u64) -> Result<(), Skip> {
    if len > len_max {
        return Err(Skip::Damage(match len_max {
            REQUEST_BYTES_MAX => "request longer than 1 GiB",
            _ => "access longer than 2 GiB",
        }));
    }
    checked_end(offset, len)
}

#[inline(always)]
fn checked_end(offset: u64, len: u64) -> Result<(), Skip> {
    // The highest bit of one of them is set if the end is beyond, also if the sum wraps.
    match (offset | len | offset.wrapping_add(len)) >> 63 {
        0 => Ok(()),
        _ => Err(Skip::Damage("offset beyond 2^63")),
    }
}
