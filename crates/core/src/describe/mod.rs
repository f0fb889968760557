//! What a trace is like, before any cache is simulated: who reads and writes what, how often again, for how long.
//!
//! A [`Describer`] takes [`Event`]s as they come (bytes, names and processes matter here, which a dense trace has not) and
//! gives a [`Description`]: plain data. A characterisation is one file here and one line in [`ALL`]; it sees each event
//! beside what the `ledger` made of it, and says at the end what it found. What a trace cannot say is left out with the
//! reason, not shown as zero.
//!
//! Memory, in bytes: some 60 a page that is touched (24 and its place in the ledger's table, 5 for its recency, 16 for the
//! fate of its writes, 4 for the windows it is used in), 300 a file with its name, 32 for each window of time, of 64 at most,
//! in which a file is used; it does not grow with the number of events.
//!
//! What a picture is drawn from is a table for programs. It has [`ROWS_MAX`] rows at most, however long the trace: what
//! would have more stands in bins, as its module says.

use crate::{
    event::{About, Event, Space},
    trace::TraceError,
};
use ledger::{Ledger, Seen};

mod bins;
mod cache_files;
mod fate;
mod files_over_time;
mod footprint;
mod found;
mod ledger;
mod lifetimes;
mod mix;
mod over_time;
mod page_set;
mod popularity;
mod ranking;
mod reaccess;
mod request_sizes;
mod skew;
mod sqlite;
mod sync_distance;
#[cfg(test)]
mod testing;
mod top_directories;
mod top_files;
mod top_processes;
mod windows;

pub use found::{Audience, Column, Figure, Found, Part, Piece, Sentence, Table, Value};

/// Every characterisation, as they are shown.
pub const ALL: &[Spec] = &[
    mix::SPEC,
    fate::SPEC,
    top_processes::SPEC,
    top_files::SPEC,
    files_over_time::SPEC,
    top_directories::SPEC,
    sync_distance::SPEC,
    sqlite::SPEC,
    cache_files::SPEC,
    lifetimes::SPEC,
    windows::SPEC,
    request_sizes::SPEC,
    footprint::SPEC,
    over_time::SPEC,
    popularity::SPEC,
    skew::SPEC,
    reaccess::SPEC,
];

/// How long the kernel lets written pages wait before it writes them back (`vm.dirty_expire_centisecs`). What is written
/// again or deleted before costs no flash write, unless a sync came first.
pub const WRITE_BACK_US: u64 = 30_000_000;

/// No table has more rows; `describe::tests` and the fuzzer hold it.
pub const ROWS_MAX: usize = 6400;

/// Events for which memory is fetched at once.
const AHEAD: usize = 32;

/// A characterisation.
pub struct Spec {
    /// For programs.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// What it follows; empty where it follows nothing.
    pub paper: &'static str,
    /// What that paper saw in its traces, in a sentence with its numbers; empty where it shows none.
    pub paper_saw: &'static str,
    /// Its sentence is one of those at the top of the whole description.
    pub opens: bool,
    /// What it cannot do without.
    needs: &'static [Need],
    build: fn(&About) -> Box<dyn Characterisation>,
}

/// What a trace may be unable to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Files,
    Times,
    Syncs,
    Writes,
    Removals,
}

impl Need {
    fn missing(self, about: &About) -> Option<&'static str> {
        let (met, missing) = match self {
            Self::Files => (about.space == Space::Files, "no files, only addresses or objects"),
            Self::Times => (about.knows.times, "no times (--rate gives some)"),
            Self::Syncs => (about.knows.syncs, "no sync calls"),
            Self::Writes => (about.knows.writes, "no difference between reads and writes"),
            Self::Removals => (about.knows.removals, "no deletions"),
        };
        (!met).then_some(missing)
    }
}

/// A machine that watches events.
trait Characterisation {
    /// One event, which the ledger has entered.
    fn event(&mut self, _event: &Event, _seen: &Seen<'_>) {}

    /// Fetches what these pages will need into the near caches.
    fn prefetch(&self, _pages: &[u32]) {}

    /// Memory it holds, apart from the ledger's.
    fn held_bytes(&self) -> usize {
        0
    }

    /// What came of it; or what the trace turned out not to have. `top`: how long a list of the greatest may be.
    fn finish(&mut self, ledger: &Ledger, top: usize) -> Result<Found, &'static str>;
}

/// Takes events, gives a [`Description`].
pub struct Describer {
    ledger: Ledger,
    watching: Vec<Box<dyn Characterisation>>,
    touched: Vec<u32>,
    requests: u64,
    limit_bytes: u64,
}

impl Describer {
    /// `limit_bytes` bounds the memory.
    pub fn new(about: About, limit_bytes: u64) -> Self {
        let able = ALL.iter().filter(|spec| spec.missing(&about).is_none());
        let watching = able.map(|spec| (spec.build)(&about)).collect();
        Self { ledger: Ledger::new(about), watching, touched: Vec::new(), requests: 0, limit_bytes }
    }

    /// Takes some events, in order.
    pub fn extend(&mut self, events: &[Event<'static>]) -> Result<(), TraceError> {
        for events in events.chunks(AHEAD) {
            self.ledger.prefetch(events, &mut self.touched);
            self.watching.iter().for_each(|machine| machine.prefetch(&self.touched));
            for event in events {
                let file = self.ledger.take(event, &mut self.touched)?;
                self.requests += u64::from(!self.touched.is_empty());
                let seen = Seen { ledger: &self.ledger, pages: &self.touched, file };
                self.watching.iter_mut().for_each(|machine| machine.event(event, &seen));
            }
        }
        // Once a batch is near enough.
        if self.held_bytes() as u64 > self.limit_bytes {
            let (limit_bytes, requests) = (self.limit_bytes, self.requests);
            return Err(TraceError::TooMuchMemory { limit_bytes, requests });
        }
        Ok(())
    }

    /// Memory held.
    pub fn held_bytes(&self) -> usize {
        self.ledger.held_bytes() + self.watching.iter().map(|machine| machine.held_bytes()).sum::<usize>()
    }

    /// What the trace is like. `top`: how long a list of the greatest may be.
    pub fn finish(mut self, top: usize) -> Description {
        let about = self.ledger.about;
        let mut watching = self.watching.iter_mut();
        let sections = ALL
            .iter()
            .map(|spec| {
                let found = match spec.missing(&about) {
                    Some(missing) => Err(missing),
                    None => {
                        let machine = watching.next().expect("a machine for each that the trace can feed");
                        machine.finish(&self.ledger, top)
                    }
                };
                Section { spec, found }
            })
            .collect();
        Description { about, duration_us: self.ledger.end_us, requests: self.requests, sections }
    }
}

impl Spec {
    /// The first thing that it needs and this trace does not have.
    fn missing(&self, about: &About) -> Option<&'static str> {
        self.needs.iter().find_map(|need| need.missing(about))
    }
}

/// What a trace is like.
pub struct Description {
    /// Where it comes from and what it can say.
    pub about: About,
    /// Time of the last event, microseconds.
    pub duration_us: u64,
    /// Reads and writes that touch a page.
    pub requests: u64,
    /// One for each of [`ALL`].
    pub sections: Vec<Section>,
}

/// What one characterisation found.
pub struct Section {
    /// Which.
    pub spec: &'static Spec,
    /// What; or what the trace would have to say for it.
    pub found: Result<Found, &'static str>,
}

#[cfg(test)]
mod tests;
