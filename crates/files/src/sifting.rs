//! The effects of a sifter on a trace: the bytes of droppable files that reach flash, those that
//! are fetched again for that, and the trace that is left for the page cache.
//!
//! The memory is one: what the sifter holds files in is not there for the page cache. File data
//! reaches flash as Linux writes it back, after 30 s ([`Flusher`]), whatever its page cache holds.
//! At the end everything that is left is written, on either side.

use crate::{
    flusher::Flusher,
    sift::{
        BoxedSift, Droppable, LastUses, SelectedSifter, Selection, SetupError, SifterSetup,
        live::{Live, LiveSifter},
        model::FileModel,
        simulate::{Counters, ExplainedDecision, Sifted},
    },
};
use flashsift_events::{
    event::{About, Action, Event, FileId, Space},
    page::PAGE_BYTES,
};
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use std::sync::Arc;

mod bound;
mod packing;

pub use bound::KeptBound;

/// The reason for which a trace cannot be sifted.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum SiftError {
    /// The trace has no files.
    #[error("--sift: this trace is not of files, and sifters decide on files")]
    NoFiles,
    /// The trace has no times, or does not tell reads from writes.
    #[error("--sift: this trace lacks {0}, without which nothing is known about write-back")]
    Lacks(&'static str),
    /// No file is created whose name may be dropped.
    #[error(
        "--sift: this trace creates no file that may be dropped; name some with --droppable, as in \
         --droppable '*/thumbnails/*'"
    )]
    NothingDroppable,
    /// The sifter cannot be built.
    #[error("--sift: {0}")]
    Setup(#[from] SetupError),
}

/// A trace that sifters are compared on.
pub struct Sifting<'e> {
    events: &'e [Event<'static>],
    about: About,
    droppable: Droppable,
    files: HashSet<FileId, FixedState>,
    last_uses: LastUses,
    models: Vec<(String, Arc<FileModel>)>,
    /// Patterns of names of the files whose decisions are explained.
    explained: Vec<String>,
    /// The ceiling on bytes fetched again of the mount in which sifters run.
    as_mounted: Option<f64>,
    /// Beginnings of the second and later slices of time, ascending.
    begins_us: Vec<u64>,
    middle_us: u64,
    end_us: u64,
}

/// Bytes in the whole trace, and in the second half of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Halves {
    /// In the whole trace.
    pub all: u64,
    /// In the second half, with the write-out at the end.
    pub second: u64,
}

impl Halves {
    fn add(&mut self, bytes: u64, is_second: bool) {
        self.all += bytes;
        self.second += if is_second { bytes } else { 0 };
    }
}

/// Bytes in one slice of time, as those of [`SiftOutcome`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiftSlice {
    /// File data of droppable files that reached flash, bytes in whole pages.
    pub droppable: u64,
    /// File data of all other files that reached flash, bytes in whole pages.
    pub others: u64,
    /// Bytes of dropped files that were fetched again.
    pub fetched_again: u64,
    /// Data of droppable files that waits at the end of the slice, in RAM or as dirty pages, bytes.
    pub waits: u64,
}

/// Effects of one sifter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiftOutcome {
    /// File data of droppable files that reached flash, bytes in whole pages.
    pub droppable: Halves,
    /// File data of all other files that reached flash, bytes in whole pages.
    pub others: Halves,
    /// Bytes of dropped files that were fetched again.
    pub fetched_again: Halves,
    /// The same by slice of time ([`Sifting::cut`]). Slices and `at_end` add up to the whole trace.
    pub slices: Vec<SiftSlice>,
    /// Data written after the last event: files in RAM, and pages that Linux has yet to write back.
    pub at_end: SiftSlice,
    /// The fates of files in RAM.
    pub counters: Counters,
    /// The decisions on the files that [`Sifting::explain`] names, in order.
    pub explained: Vec<ExplainedDecision>,
}

/// Returns the beginnings of the second and later of this many equal parts of a time, which ends at
/// `end_us`.
pub fn equal_parts(end_us: u64, parts: usize) -> Vec<u64> {
    let begin_us = |part: usize| u128::from(end_us) * part as u128 / parts as u128;
    (1..parts).map(|part| begin_us(part) as u64).collect()
}

impl<'e> Sifting<'e> {
    /// Takes a whole trace. Files with these names may be dropped.
    ///
    /// # Errors
    /// The trace is not of files, lacks what write-back depends on, or creates no droppable file.
    pub fn new(
        events: &'e [Event<'static>],
        about: About,
        droppable: Droppable,
    ) -> Result<Self, SiftError> {
        if about.space != Space::Files {
            return Err(SiftError::NoFiles);
        }
        let lacks = [(about.knows.times, "times"), (about.knows.writes, "writes")];
        if let Some((_, lack)) = lacks.into_iter().find(|(knows, _)| !knows) {
            return Err(SiftError::Lacks(lack));
        }
        let (mut files, mut created) = (HashSet::default(), false);
        for event in events {
            match &event.action {
                Action::Create(create) if droppable.has(&create.name) => {
                    created |= files.insert(create.file);
                }
                Action::Bind { file, name } if droppable.has(name) => drop(files.insert(*file)),
                Action::Open { file, created: true, .. } => created |= files.contains(file),
                _ => {}
            }
        }
        if !created {
            return Err(SiftError::NothingDroppable);
        }
        let end_us = events.last().map_or(0, |event| event.at_us);
        let last_uses = LastUses::of_all(events);
        let (models, explained, as_mounted) = (Vec::new(), Vec::new(), None);
        let (begins_us, middle_us) = (Vec::new(), end_us / 2);
        Ok(Self {
            events,
            about,
            droppable,
            files,
            last_uses,
            models,
            explained,
            as_mounted,
            begins_us,
            middle_us,
            end_us,
        })
    }

    /// Cuts the time into slices, of which the second and later ones begin at these times,
    /// ascending. Without it there is one slice.
    pub fn cut(&mut self, begins_us: Vec<u64>) {
        debug_assert!(begins_us.is_sorted());
        self.begins_us = begins_us;
    }

    /// Adds a model, under the text that names it in a sifter's parameters.
    pub fn add_model(&mut self, name: String, model: FileModel) {
        self.models.push((name, Arc::new(model)));
    }

    /// Runs each sifter as a mount does: beside `keep` for all other files, in the same RAM, and
    /// below this ceiling on bytes fetched again ([`Live`]). `none`, `keep` and sifters that
    /// know the rest of the history run alone.
    pub fn run_as_mounted(&mut self, again: f64) {
        self.as_mounted = Some(again);
    }

    /// Explains the decisions on files whose name matches one of these shell patterns, in which `*`
    /// also stands for `/`.
    pub fn explain(&mut self, patterns: Vec<String>) {
        self.explained = patterns;
    }

    /// Returns what the trace knows.
    pub fn about(&self) -> About {
        self.about
    }

    /// Returns the number of files that may be dropped.
    pub fn droppable_files(&self) -> usize {
        self.files.len()
    }

    fn build(&self, sifter: &Selection, ram_bytes: u64) -> Result<BoxedSift, SetupError> {
        let alone = sifter.is_offline() || ["none", "keep"].contains(&sifter.spec.name);
        if let Some(again) = self.as_mounted.filter(|_| !alone) {
            let chosen = LiveSifter {
                models: self.models.clone(),
                again,
                knows_opens: self.about.knows.opens,
                ..LiveSifter::new(sifter.clone(), self.droppable.clone(), ram_bytes)
            };
            return Ok(Box::new(Live::sifting(ram_bytes, chosen)?));
        }
        sifter.build(&SifterSetup {
            budget_bytes: ram_bytes,
            patterns: &[],
            droppable: &self.droppable,
            knows_opens: self.about.knows.opens,
            last_uses: Some(&self.last_uses),
            models: &self.models,
        })
    }

    /// Lets a sifter with this much RAM, in bytes, decide on the files of the trace. `below` gets
    /// the events that the page cache gets then.
    ///
    /// # Errors
    /// The sifter names a model that does not suit.
    pub fn sift(
        &self,
        sifter: &Selection,
        ram_bytes: u64,
        mut below: impl FnMut(&Event<'_>),
    ) -> Result<SiftOutcome, SetupError> {
        let write_back = sifter.write_back(ram_bytes);
        let sifter = self.build(sifter, ram_bytes)?;
        let mut sifted = Sifted::new(sifter, ram_bytes, self.about.knows);
        if !self.explained.is_empty() {
            sifted = sifted.explaining(&self.explained);
        }
        let mut flusher = Flusher::new(write_back).with_log();
        let slices = vec![SiftSlice::default(); self.begins_us.len() + 1];
        let mut outcome = SiftOutcome { slices, ..SiftOutcome::default() };
        let mut first_half = None;
        // Bytes fetched again before each slice.
        let mut before = vec![0];
        for event in self.events {
            let fetched_again = sifted.counters().fetched_again.bytes;
            if event.at_us > self.middle_us && first_half.is_none() {
                first_half = Some(fetched_again);
            }
            let begun =
                |slice: usize| self.begins_us.get(slice).is_some_and(|at| *at <= event.at_us);
            while begun(before.len() - 1) {
                outcome.slices[before.len() - 1].waits = self.waits(&sifted, &flusher);
                before.push(fetched_again);
            }
            sifted.event(event, &mut |event| {
                flusher.handle(event);
                below(event);
            });
            self.charge(&mut flusher, &mut outcome, false);
        }
        let waits = self.waits(&sifted, &flusher);
        outcome.slices[before.len() - 1..].iter_mut().for_each(|slice| slice.waits = waits);
        sifted.finish(&mut |event| {
            flusher.handle(event);
            below(event);
        });
        flusher.advance(self.end_us.saturating_add(2 * flusher.settings().expire_us));
        self.charge(&mut flusher, &mut outcome, true);
        outcome.counters = sifted.counters().clone();
        outcome.explained = sifted.explained().to_vec();
        let all = outcome.counters.fetched_again.bytes;
        outcome.fetched_again = Halves { all, second: all - first_half.unwrap_or(all) };
        before.resize(outcome.slices.len(), all);
        let after = before.iter().skip(1).chain([&all]);
        for (slice, (before, after)) in outcome.slices.iter_mut().zip(before.iter().zip(after)) {
            slice.fetched_again = after - before;
        }
        Ok(outcome)
    }

    /// Data of droppable files that would be written if the trace ended here.
    fn waits(&self, sifted: &Sifted<BoxedSift>, flusher: &Flusher) -> u64 {
        let of_file = |file: &FileId| {
            let dirty: u64 = flusher.dirty_of(*file).map(|run| run.end - run.start).sum();
            sifted.ram_bytes_of(*file) + dirty * PAGE_BYTES
        };
        self.files.iter().map(of_file).sum()
    }

    fn charge(&self, flusher: &mut Flusher, outcome: &mut SiftOutcome, is_end: bool) {
        for reached in flusher.drain_log() {
            let bytes = reached.pages * PAGE_BYTES;
            let at = self.begins_us.partition_point(|begin_us| *begin_us <= reached.at_us);
            let slice = if is_end { &mut outcome.at_end } else { &mut outcome.slices[at] };
            let (of, of_slice) = match self.files.contains(&reached.file) {
                true => (&mut outcome.droppable, &mut slice.droppable),
                false => (&mut outcome.others, &mut slice.others),
            };
            of.add(bytes, reached.at_us > self.middle_us);
            *of_slice += bytes;
        }
    }
}
