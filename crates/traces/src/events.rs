//! The way out of a reader: events in batches, and an honest count of what was left out.

use crate::Error;
use flashsift_core::event::{About, Action, Event, Space};
use std::{borrow::Cow, collections::BTreeMap, fmt};

/// Takes what a reader found. One call a batch, so that a reader costs no virtual call an event.
pub trait Sink {
    /// What kind of trace it is: called once, before the first batch.
    fn about(&mut self, about: About) -> Result<(), Error>;
    /// Some more events, in order; `at_us` never goes back.
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

/// Why a line or record did not become an event. The phrase is a short constant such as "unmapped
/// sector (-1)", shown to people as `24507 unmapped sector (-1) (first at 1234)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It was understood, and says nothing about what the cache does: a comment, a duplicate, an
    /// unmapped sector, a call that failed.
    Benign(&'static str),
    /// It did give events, though something about them is a guess; the phrase says what was
    /// assumed.
    Note(&'static str),
    /// It was not understood, or cannot be true. A trace in which this is the rule is refused.
    Damage(&'static str),
}

/// Lines or records that were not turned into events, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped(BTreeMap<Cow<'static, str>, Reason>);

/// How often one reason to skip came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// How many lines or records.
    pub count: u64,
    /// 1-based line, or record, of the first one.
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

    /// Counts so many more.
    pub fn add_many(&mut self, skip: Skip, line: u64, many: u64) {
        let (Skip::Benign(reason) | Skip::Note(reason) | Skip::Damage(reason)) = skip;
        let (damage, note) = (matches!(skip, Skip::Damage(_)), matches!(skip, Skip::Note(_)));
        let fresh = Reason { count: 0, first: line, damage, note };
        self.0.entry(Cow::Borrowed(reason)).or_insert(fresh).count += many;
    }

    /// Puts back what [`Skipped::iter`] gave: for counts that were stored with a trace.
    pub fn restore(&mut self, reason: String, counts: Reason) {
        self.0.insert(Cow::Owned(reason), counts);
    }

    /// Each reason with its counts, by reason.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Reason)> + '_ {
        self.0.iter().map(|(reason, r)| (reason.as_ref(), *r))
    }

    /// How many reasons there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Nothing was left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many were left out, in all.
    pub fn total(&self) -> u64 {
        self.0.values().filter(|r| !r.note).map(|r| r.count).sum()
    }

    /// Adds the counts of another trace, of which this is a copy.
    pub fn merge(&mut self, other: &Skipped) {
        for (reason, counts) in &other.0 {
            self.0.entry(reason.clone()).and_modify(|mine| mine.count += counts.count).or_insert(*counts);
        }
    }

    /// How many were not understood.
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
            write!(f, "{comma}{} {reason} (first at {})", r.count, r.first)?;
        }
        Ok(())
    }
}

/// Where a stored trace came from ([`crate::store`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Name of the trace that was imported.
    pub trace: String,
    /// What its reader left out.
    pub skipped: Skipped,
}

/// What a reader gave, all told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// What the trace is about; `None` if the reader stopped before it could say.
    pub about: Option<About>,
    /// Lines or records that gave no event.
    pub skipped: Skipped,
    /// Events handed on.
    pub events: u64,
    /// Reads and writes among them.
    pub accesses: u64,
    /// Events whose time lay before their predecessor's and was lifted to it.
    pub late: u64,
    /// Where a stored trace came from.
    pub origin: Option<Origin>,
}

/// Linux's `MAX_RW_COUNT`: no read or write moves more at once.
pub const ACCESS_BYTES_MAX: u64 = 0x7fff_f000;

const BATCH: usize = 1024;

/// What a reader writes to: hands batches on to a [`Sink`] and keeps the counts.
pub struct Events<'a> {
    sink: &'a mut dyn Sink,
    batch: Vec<Event<'static>>,
    line: u64,
    last_us: u64,
    len_max: u64,
    summary: Summary,
}

impl<'a> Events<'a> {
    /// Events go to `sink`.
    pub fn new(sink: &'a mut dyn Sink) -> Self {
        let batch = Vec::with_capacity(BATCH);
        Self { sink, batch, line: 0, last_us: 0, len_max: ACCESS_BYTES_MAX, summary: Summary::default() }
    }

    /// Says what kind of trace this is. Every reader calls it once, before its first event.
    pub fn about(&mut self, about: About) -> Result<(), Error> {
        assert!(self.summary.about.is_none(), "a reader says what its trace is about once");
        self.summary.about = Some(about);
        if about.space == Space::Objects {
            self.len_max = u64::MAX;
        }
        self.sink.about(about)
    }

    /// The 1-based line or record that what follows comes from, for the counts.
    pub fn at(&mut self, line: u64) {
        self.line = line;
    }

    /// The line or record that was last told of ([`Events::at`]).
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Where a stored trace came from.
    pub fn origin(&mut self, origin: Origin) {
        self.summary.origin = Some(origin);
    }

    /// One more event. One that no system can have carried out is counted as damage instead: longer
    /// than [`ACCESS_BYTES_MAX`] (objects may be longer), or reaching past `i64::MAX`.
    #[inline]
    pub fn push(&mut self, mut event: Event<'static>) -> Result<(), Error> {
        if let Err(skip) = possible(&event.action, self.len_max) {
            self.skipped(skip, self.line);
            return Ok(());
        }
        if event.at_us < self.last_us {
            event.at_us = self.last_us;
            self.summary.late += 1;
        }
        self.last_us = event.at_us;
        self.batch.push(event);
        if self.batch.len() == BATCH { self.flush() } else { Ok(()) }
    }

    /// One line or record (1-based number) that was understood and gives no event
    /// ([`Skip::Benign`]).
    pub fn skip(&mut self, reason: &'static str, line: u64) {
        self.skipped(Skip::Benign(reason), line);
    }

    /// One line or record (1-based number) that was not understood ([`Skip::Damage`]).
    pub fn damage(&mut self, reason: &'static str, line: u64) {
        self.skipped(Skip::Damage(reason), line);
    }

    /// One line or record (1-based number) that did give events, though something was assumed
    /// ([`Skip::Note`]).
    pub fn note(&mut self, reason: &'static str, line: u64) {
        self.skipped(Skip::Note(reason), line);
    }

    /// One line or record (1-based number) that gives no event.
    #[cold]
    pub fn skipped(&mut self, skip: Skip, line: u64) {
        self.summary.skipped.add(skip, line);
    }

    /// So many lines, records, or what they tell of; the first at this one.
    pub fn skipped_many(&mut self, skip: Skip, line: u64, many: u64) {
        self.summary.skipped.add_many(skip, line, many);
    }

    /// What another counted on the way to here.
    pub fn merge(&mut self, skipped: &Skipped) {
        self.summary.skipped.merge(skipped);
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.summary.events += self.batch.len() as u64;
        let access = |e: &&Event| matches!(e.action, Action::Read { .. } | Action::Write { .. });
        self.summary.accesses += self.batch.iter().filter(access).count() as u64;
        let result = self.sink.events(&self.batch);
        self.batch.clear();
        result
    }

    /// Hands on the last batch; what came of it all.
    pub fn finish(mut self) -> Result<Summary, Error> {
        if !self.batch.is_empty() {
            self.flush()?;
        }
        Ok(self.summary)
    }
}

#[inline]
fn possible(action: &Action, len_max: u64) -> Result<(), Skip> {
    let (offset, len) = match *action {
        Action::Read { offset, len, .. }
        | Action::Write { offset, len, .. }
        | Action::Direct { offset, len, .. } => {
            if len > len_max {
                return Err(Skip::Damage("access longer than 2 GiB"));
            }
            (offset, len)
        }
        Action::Punch { offset, len, .. } => (offset, len),
        // Its length may be `u64::MAX`: to the end of the file.
        Action::Sync { offset, .. } => (offset, 0),
        Action::Truncate { size, .. } | Action::Size { size, .. } => (size, 0),
        _ => return Ok(()),
    };
    match offset.checked_add(len) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(Skip::Damage("offset beyond 2^63")),
    }
}
