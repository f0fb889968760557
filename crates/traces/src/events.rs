//! The way out of a reader: events in batches, and an honest count of what was left out.

use crate::Error;
use flashsift_core::event::{About, Event};
use std::{collections::BTreeMap, fmt};

/// Takes what a reader found. One call a batch, so that a reader costs no virtual call an event.
pub trait Sink {
    /// What kind of trace it is: called once, before the first batch.
    fn about(&mut self, about: About) -> Result<(), Error>;
    /// Some more events, in order.
    fn events(&mut self, events: &[Event]) -> Result<(), Error>;
}

/// Lines or records that were not turned into events, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped(BTreeMap<&'static str, Reason>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reason {
    count: u64,
    /// 1-based line, or record, of the first one.
    first: u64,
}

impl Skipped {
    /// Counts one more, at a 1-based line or record number.
    pub fn add(&mut self, reason: &'static str, line: u64) {
        self.0.entry(reason).or_insert(Reason { count: 0, first: line }).count += 1;
    }

    /// `(reason, count, first line)`, by reason.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64, u64)> + '_ {
        self.0.iter().map(|(reason, r)| (*reason, r.count, r.first))
    }

    /// How many in all.
    pub fn total(&self) -> u64 {
        self.0.values().map(|r| r.count).sum()
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

const BATCH: usize = 2048;

/// What a reader writes to: hands batches on to a [`Sink`] and keeps the counts.
pub struct Events<'a> {
    sink: &'a mut dyn Sink,
    batch: Vec<Event>,
    skipped: Skipped,
    about: Option<About>,
}

impl<'a> Events<'a> {
    /// Events go to `sink`.
    pub fn new(sink: &'a mut dyn Sink) -> Self {
        Self { sink, batch: Vec::with_capacity(BATCH), skipped: Skipped::default(), about: None }
    }

    /// Says what kind of trace this is. Every reader calls it once, before its first event.
    pub fn about(&mut self, about: About) -> Result<(), Error> {
        assert!(self.about.is_none(), "a reader says what its trace is about once");
        self.about = Some(about);
        self.sink.about(about)
    }

    /// One more event.
    #[inline]
    pub fn push(&mut self, event: Event) -> Result<(), Error> {
        self.batch.push(event);
        if self.batch.len() == BATCH { self.flush() } else { Ok(()) }
    }

    /// One line or record (1-based number) that could not become an event, and why. The reason is a constant short
    /// phrase such as "unmapped sector (-1)": it is shown to people as `24507 unmapped sector (-1) (first at 1234)`.
    pub fn skip(&mut self, reason: &'static str, line: u64) {
        self.skipped.add(reason, line);
    }

    fn flush(&mut self) -> Result<(), Error> {
        let result = self.sink.events(&self.batch);
        self.batch.clear();
        result
    }

    /// Hands on the last batch; what the trace is and what was skipped.
    pub fn finish(mut self) -> Result<(Option<About>, Skipped), Error> {
        self.flush()?;
        Ok((self.about, self.skipped))
    }
}
