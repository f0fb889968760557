//! Describes a trace before any cache is simulated: reads and writes, reuse, lifetimes of files.
//!
//! A [`Describer`] takes [`Event`]s in order, with the bytes, names and processes that a dense
//! trace lacks, and returns a [`Description`] as plain data. A characterisation is one file here
//! and one line in [`ALL`]. It receives each event together with the result of entering it in the
//! `ledger`, and returns its results at the end. Results that a trace cannot give are left out with
//! the reason, not reported as zero.
//!
//! Memory: some 60 bytes for each touched page (24 and its slot in the ledger's table, 5 for its
//! recency, 16 for the fate of its writes, 4 for the windows it is used in), 300 for each file with
//! its name, and 32 for each window of time (at most 64) in which a file is used. It does not grow
//! with the number of events.
//!
//! Figures are drawn from tables for programs. These have at most [`ROWS_MAX`] rows for any length
//! of trace; longer data is put into bins.

use flashsift_caches::trace::TraceError;
use flashsift_events::{
    event::{About, Event, Space},
    ledger::FileLedger,
};
use flashsift_files::flusher::FlusherSettings;
use flashsift_pages::{metadata, writeback};
pub(crate) use ledger::Requests;
use ledger::{Entered, Ledger, Seen};

mod bins;
mod cache_files;
mod charged;
mod endurance;
mod fate;
mod files_over_time;
mod flash_writes;
mod footprint;
mod found;
mod ledger;
mod lifetimes;
mod mix;
mod over_time;
mod page_set;
mod phones;
mod popularity;
mod programs;
mod ranking;
mod reaccess;
mod reached_flash;
mod read_ahead;
mod request_sizes;
mod sifters;
mod skew;
mod sqlite;
mod sync_distance;
#[cfg(test)]
mod testing;
mod top_directories;
mod top_files;
mod top_processes;
mod windows;

pub(crate) use charged::{FileCharge, charged};
pub use endurance::FlashDevice;
pub use found::{Audience, Column, Figure, Found, Part, Piece, Sentence, Table, Value};
pub use read_ahead::readahead_section;
pub use sifters::{SiftedTrace, sift_section};

/// All characterisations in the order of display.
pub const ALL: &[CharacterisationSpec] = &[
    mix::SPEC,
    fate::SPEC,
    reached_flash::SPEC,
    endurance::SPEC,
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
    phones::SPEC,
];

/// Time after which the kernel writes dirty pages back (`vm.dirty_expire_centisecs`). A page
/// overwritten or deleted before costs no flash write, unless a sync came first.
pub const WRITE_BACK_US: u64 = 30_000_000;

/// Largest number of rows of a table; checked by `describe::tests` and the fuzzer.
pub const ROWS_MAX: usize = 6400;

/// Number of events to prefetch for at once.
const AHEAD: usize = 32;

/// Declaration of a characterisation.
pub struct CharacterisationSpec {
    /// Name for programs.
    pub name: &'static str,
    /// Title for people.
    pub title: &'static str,
    /// Paper that it follows; empty if there is none.
    pub paper: &'static str,
    /// Finding of that paper in a sentence with its numbers; empty if it has none.
    pub paper_saw: &'static str,
    /// Its sentence is shown at the top of the description.
    pub opens: bool,
    /// Information that it requires of a trace.
    needs: &'static [Need],
    build: fn(&Setup<'_>) -> Box<dyn Characterisation>,
}

/// Information that a characterisation is built with.
struct Setup<'a> {
    about: &'a About,
    /// The write-back of the machine.
    flusher: FlusherSettings,
    /// The device under the trace.
    device: FlashDevice,
    /// The file system whose journal and metadata are counted.
    metadata: Option<&'a metadata::Selection>,
}

/// Information that a trace may lack.
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

/// State of a characterisation while events arrive.
trait Characterisation {
    /// Processes one event that the ledger has entered.
    fn event(&mut self, _event: &Event, _seen: &Seen<'_>) {}

    /// Prefetches the data of these pages into the near caches.
    fn prefetch(&self, _pages: &[u32]) {}

    /// Returns the memory held in bytes, without the ledger.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Returns the results, or the information that the trace lacks. `top`: longest list of the
    /// greatest items.
    fn finish(&mut self, ledger: &Ledger, top: usize) -> Result<Found, &'static str>;
}

/// Takes events and returns a [`Description`].
pub struct Describer {
    ledger: Ledger,
    watching: Vec<Box<dyn Characterisation>>,
    settings: Settings,
    touched: Vec<u32>,
    requests: u64,
    limit_bytes: u64,
}

/// Settings of the machine that is described.
struct Settings {
    flusher: FlusherSettings,
    device: FlashDevice,
    metadata: Option<metadata::Selection>,
}

impl Settings {
    fn watching(&self, about: &About) -> Vec<Box<dyn Characterisation>> {
        let Self { flusher, device, metadata } = self;
        let setup =
            Setup { about, flusher: *flusher, device: *device, metadata: metadata.as_ref() };
        let able = ALL.iter().filter(|spec| spec.missing(about).is_none());
        able.map(|spec| (spec.build)(&setup)).collect()
    }
}

impl Describer {
    /// Creates a describer that holds at most `limit_bytes` of memory. The data that reaches flash
    /// is that of a machine with the kernel's own settings and 2 GiB of memory.
    pub fn new(about: About, limit_bytes: u64) -> Self {
        let expire = writeback::Expire::default();
        let flusher = FlusherSettings {
            expire_us: expire.after_us,
            tick_us: expire.tick_us,
            background_pages: expire.ram_pages * u64::from(expire.ratio) / 100,
        };
        let settings = Settings { flusher, device: FlashDevice::default(), metadata: None };
        Self {
            watching: settings.watching(&about),
            ledger: Ledger::new(about),
            settings,
            touched: Vec::new(),
            requests: 0,
            limit_bytes,
        }
    }

    /// Sets the write-back of the machine. To be called before the first event.
    pub fn with_flusher(mut self, flusher: FlusherSettings) -> Self {
        self.settings.flusher = flusher;
        self.set()
    }

    /// Sets the device whose wear is described. To be called before the first event.
    pub fn with_device(mut self, device: FlashDevice) -> Self {
        self.settings.device = device;
        self.set()
    }

    /// Counts the journal and the metadata of this file system among the data that reaches flash.
    /// To be called before the first event.
    pub fn with_metadata(mut self, metadata: Option<metadata::Selection>) -> Self {
        self.settings.metadata = metadata;
        self.set()
    }

    fn set(mut self) -> Self {
        self.watching = self.settings.watching(&self.ledger.about);
        self
    }

    /// Processes events in order.
    ///
    /// # Errors
    ///
    /// The memory limit is exceeded, or there are too many pages.
    pub fn extend(&mut self, events: &[Event<'static>]) -> Result<(), TraceError> {
        for events in events.chunks(AHEAD) {
            self.ledger.prefetch(events, &mut self.touched);
            self.watching.iter().for_each(|machine| machine.prefetch(&self.touched));
            for event in events {
                let Entered { file, program } = self.ledger.take(event, &mut self.touched)?;
                self.requests += u64::from(!self.touched.is_empty());
                let seen = Seen { ledger: &self.ledger, pages: &self.touched, file, program };
                self.watching.iter_mut().for_each(|machine| machine.event(event, &seen));
            }
        }
        // One check for each batch suffices.
        if self.held_bytes() as u64 > self.limit_bytes {
            let (limit_bytes, requests) = (self.limit_bytes, self.requests);
            return Err(TraceError::TooMuchMemory { limit_bytes, requests });
        }
        Ok(())
    }

    /// Returns the files of the events so far, with their names.
    pub(crate) fn files(&self) -> &FileLedger<Requests> {
        &self.ledger.files
    }

    /// Returns the memory held in bytes.
    pub fn held_bytes(&self) -> usize {
        self.ledger.held_bytes()
            + self.watching.iter().map(|machine| machine.held_bytes()).sum::<usize>()
    }

    /// Returns the description. `top`: longest list of the greatest items.
    pub fn finish(mut self, top: usize) -> Description {
        let about = self.ledger.about;
        let mut watching = self.watching.iter_mut();
        let sections = ALL
            .iter()
            .map(|spec| {
                let found = match spec.missing(&about) {
                    Some(missing) => Err(missing),
                    None => {
                        let machine = watching
                            .next()
                            .expect("there is a state for each possible characterisation");
                        machine.finish(&self.ledger, top)
                    }
                };
                Section { spec, found }
            })
            .collect();
        Description { about, duration_us: self.ledger.end_us, requests: self.requests, sections }
    }
}

impl CharacterisationSpec {
    /// Returns the first requirement that this trace does not meet.
    fn missing(&self, about: &About) -> Option<&'static str> {
        self.needs.iter().find_map(|need| need.missing(about))
    }
}

/// Description of a trace.
pub struct Description {
    /// Origin of the trace and the information that it has.
    pub about: About,
    /// Time of the last event, microseconds.
    pub duration_us: u64,
    /// Number of reads and writes that touch a page.
    pub requests: u64,
    /// One section for each of [`ALL`].
    pub sections: Vec<Section>,
}

/// Results of one characterisation.
pub struct Section {
    /// The characterisation.
    pub spec: &'static CharacterisationSpec,
    /// Its results, or the information that the trace lacks.
    pub found: Result<Found, &'static str>,
}

#[cfg(test)]
mod tests;
