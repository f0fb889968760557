//! A sifter's rehearsal on a live mount: it decides on the mount's events as in a simulation, and
//! no file is dropped.
//!
//! The same objects run as in [`sifting`](super::sifting): a sifter below the ceiling of a mount,
//! beside `keep` and in the same RAM, and on either side the kernel's write-back of what is left.
//! The files of both would be in RAM; those that may be dropped are counted. A droppable file
//! counts if it is created during the rehearsal, or gets a droppable name while it waits in RAM. A
//! dropped file that is opened again counts as fetched again, as a mount may not see its reads.
//!
//! The memory is bounded: the files that were dropped first are forgotten when there are more than
//! 32,768, and the number of slices of time is at most [`SLICES_MAX`].

use crate::{
    flusher::{Flusher, FlusherSettings},
    judge::SLICES_MIN,
    sift::{
        Keep, SetupError,
        live::{Live, LiveSifter, latecomers::Latecomers},
        simulate::Sifted,
    },
    sift_advice::{HalvedShare, JudgedSifter},
    sifting::{SiftOutcome, SiftSlice},
};
use flashsift_events::{
    event::{Action, Event, FileId, Knows, Micros},
    page::PAGE_BYTES,
};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// Dropped files that are remembered.
const DROPPED_MAX: usize = 1 << 15;
/// Length of a slice of time at first, µs; it doubles when there are too many.
const SLICE_US: Micros = 3_600_000_000;
/// Most slices of time.
pub const SLICES_MAX: usize = 512;

/// A sifter that decides on the files of a mount without any effect.
pub struct Rehearsal {
    chosen: LiveSifter,
    began_us: Micros,
    sifted: Sifted<Live>,
    /// The droppable files that were created during the rehearsal.
    files: HashSet<FileId, FixedState>,
    latecomers: Latecomers,
    stock: Flusher,
    below: Flusher,
    slice_us: Micros,
    /// Slices without and with the sifter.
    slices: Vec<[SiftSlice; 2]>,
    /// Bytes written and fetched again when the last slice began: without, with, fetched.
    before: [u64; 3],
}

/// The effects that a sifter would have had, in bytes of droppable files.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RehearsalResult {
    /// Time since the rehearsal began, µs.
    pub since_us: Micros,
    /// Bytes that reach flash without the sifter, with those that wait.
    pub stock_bytes: u64,
    /// Bytes that would not have reached flash; negative: the sifter writes more.
    pub kept_bytes: i64,
    /// `kept_bytes` as a share of `stock_bytes`, over slices of time; `None`: there are too few.
    pub kept: Option<HalvedShare>,
    /// Bytes that would have been fetched again.
    pub fetched_again_bytes: u64,
    /// Files that would have been dropped.
    pub dropped: u64,
}

impl Rehearsal {
    /// Begins a rehearsal now, with this RAM for all files.
    ///
    /// # Errors
    /// The sifter cannot be built.
    pub fn new(
        now: Micros,
        chosen: LiveSifter,
        budget_bytes: u64,
        settings: FlusherSettings,
    ) -> Result<Self, SetupError> {
        let live = Live::sifting(budget_bytes, chosen.clone())?;
        let sifted = Sifted::new(live, budget_bytes, Knows::OF_MOUNT).remembering(DROPPED_MAX);
        Ok(Self {
            chosen,
            began_us: now,
            sifted,
            files: HashSet::default(),
            latecomers: Latecomers::default(),
            stock: Flusher::new(settings),
            below: Flusher::new(settings),
            slice_us: SLICE_US,
            slices: vec![Default::default()],
            before: [0; 3],
        })
    }

    /// Returns whether this is the rehearsal of a sifter with these parameters and this RAM.
    pub fn is_of(&self, chosen: &LiveSifter) -> bool {
        self.chosen.sifter.label() == chosen.sifter.label()
            && self.chosen.budget_bytes == chosen.budget_bytes
            && self.chosen.again == chosen.again
    }

    /// Takes the next event of the mount, which its `keep` has handled.
    pub fn event(&mut self, event: &Event<'_>, keep: &Keep) {
        self.close_slices(event.at_us);
        if let Some(late) = self.latecomers.after(event, keep, &self.chosen.droppable)
            && self.files.insert(late.file)
        {
            let is_known = self.sifted.has(late.file);
            let create = late.create();
            for event in late.events(event, &create) {
                self.stock.handle(&event);
                // It was created before the rehearsal, or is no longer in its RAM.
                if !is_known {
                    self.sift(&event);
                }
            }
            if is_known {
                self.sift(event);
            }
            return;
        }
        if let Action::Create(create) = &event.action
            && self.chosen.droppable.has(&create.name)
        {
            self.files.insert(create.file);
        }
        self.pass_on(event);
        match event.action {
            Action::Open { file, open, created: false } => {
                if let Some(len) = self.sifted.dropped_size(file) {
                    let action = Action::Read { file, open, offset: 0, len };
                    self.pass_on(&Event { action, ..*event });
                }
            }
            Action::Gone { file } => drop(self.files.remove(&file)),
            _ => {}
        }
    }

    fn pass_on(&mut self, event: &Event<'_>) {
        if counts(&self.files, event) {
            self.stock.handle(event);
        }
        self.sift(event);
    }

    fn sift(&mut self, event: &Event<'_>) {
        let Self { sifted, files, below, .. } = self;
        sifted.event(event, &mut |event| {
            if counts(files, event) {
                below.handle(event);
            }
        });
    }

    /// Begins new slices up to this time.
    fn close_slices(&mut self, now: Micros) {
        let part = (now.saturating_sub(self.began_us) / self.slice_us) as usize;
        if part < self.slices.len() {
            return;
        }
        self.stock.advance(now);
        self.below.advance(now);
        self.charge();
        let mut wanted = part + 1;
        while wanted > SLICES_MAX {
            self.slice_us *= 2;
            wanted = wanted.div_ceil(2);
            let pairs = self.slices.chunks(2).map(|pair| {
                pair.iter().fold(<[SiftSlice; 2]>::default(), |sum, slice| {
                    [0, 1].map(|side| add(sum[side], slice[side]))
                })
            });
            self.slices = pairs.collect();
        }
        // Nothing happened in those that were skipped: what waited goes on waiting.
        let waits = self.slices.last().map(|sides| sides.map(|side| side.waits));
        let waits = waits.unwrap_or_default();
        let skipped = waits.map(|waits| SiftSlice { waits, ..SiftSlice::default() });
        self.slices.resize(wanted.max(self.slices.len()), skipped);
    }

    /// Charges what was written and fetched since the last call to the last slice.
    fn charge(&mut self) {
        let waits = self.waits();
        let now = [
            self.stock.written().all() * PAGE_BYTES,
            self.below.written().all() * PAGE_BYTES,
            self.sifted.counters().fetched_again.bytes,
        ];
        let [stock, below, fetched] = [0, 1, 2].map(|side| now[side] - self.before[side]);
        if let Some([without, with]) = self.slices.last_mut() {
            without.droppable += stock;
            with.droppable += below;
            with.fetched_again += fetched;
            [without.waits, with.waits] = waits;
        }
        self.before = now;
    }

    /// The bytes that wait without the sifter and with it, in RAM or as dirty pages.
    fn waits(&self) -> [u64; 2] {
        let in_ram: u64 = self.files.iter().map(|file| self.sifted.ram_bytes_of(*file)).sum();
        [self.stock.dirty_pages() * PAGE_BYTES, self.below.dirty_pages() * PAGE_BYTES + in_ram]
    }

    /// Returns the effects until now.
    pub fn result(&mut self, now: Micros) -> RehearsalResult {
        self.close_slices(now);
        self.stock.advance(now);
        self.below.advance(now);
        self.charge();
        let counters = self.sifted.counters();
        let waits = self.waits();
        let [stock_bytes, with_bytes] = [0, 1].map(|side| self.before[side] + waits[side]);
        let outcome = |side: usize| SiftOutcome {
            slices: self.slices.iter().map(|slice| slice[side]).collect(),
            at_end: SiftSlice { droppable: waits[side], ..SiftSlice::default() },
            ..SiftOutcome::default()
        };
        let judged = JudgedSifter::new(self.chosen.sifter.label(), false, &outcome(0), outcome(1));
        RehearsalResult {
            since_us: now.saturating_sub(self.began_us),
            stock_bytes,
            kept_bytes: stock_bytes as i64 - with_bytes as i64,
            kept: (judged.slices >= SLICES_MIN).then_some(judged.kept),
            fetched_again_bytes: counters.fetched_again.bytes,
            dropped: counters.dropped.files,
        }
    }
}

/// Whether an event concerns one of these files, or none at all.
fn counts(files: &HashSet<FileId, FixedState>, event: &Event<'_>) -> bool {
    let file = match &event.action {
        Action::Create(create) => Some(create.file),
        action => action.file(),
    };
    file.is_none_or(|file| files.contains(&file))
}

fn add(one: SiftSlice, other: SiftSlice) -> SiftSlice {
    SiftSlice {
        droppable: one.droppable + other.droppable,
        others: one.others + other.others,
        fetched_again: one.fetched_again + other.fetched_again,
        waits: other.waits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sift::{Droppable, KeepConfig, Selection, Sift};
    use flashsift_events::event::{Create, MaybeOwned, Renamed};

    fn rehearsal(sifter: &str) -> Rehearsal {
        let (sifter, droppable) =
            (Selection::parse(sifter).unwrap(), Droppable::matching(&["/cache/*".into()]));
        let chosen = LiveSifter { again: 1.0, ..LiveSifter::new(sifter, droppable, 1 << 20) };
        Rehearsal::new(0, chosen, 1 << 20, FlusherSettings::default()).unwrap()
    }

    /// An event of a mount whose `keep` has no file.
    fn event(rehearsal: &mut Rehearsal, at_us: Micros, action: Action<'_>) {
        let keep = Keep::new(KeepConfig::default());
        rehearsal.event(&Event { at_us, pid: 1, tid: 1, action }, &keep);
    }

    fn create(rehearsal: &mut Rehearsal, at_us: Micros, n: u64, name: &str) {
        let file = FileId(n);
        let create = Create { file, name: name.into(), owner: None, mode: None, sync: false };
        for action in [
            Action::Create(MaybeOwned::Borrowed(&create)),
            Action::Open { file, open: None, created: true },
            Action::Write { file, open: None, offset: 0, len: 100_000, sync: false },
            Action::Close { file, open: None },
        ] {
            event(rehearsal, at_us, action);
        }
    }

    fn open(rehearsal: &mut Rehearsal, at_us: Micros, n: u64) {
        let file = FileId(n);
        for action in
            [Action::Open { file, open: None, created: false }, Action::Close { file, open: None }]
        {
            event(rehearsal, at_us, action);
        }
    }

    /// 2000 files that are not read again, a minute apart, and as many documents: all but what is
    /// in RAM is kept from flash, in each half of the hours. A dropped file that is opened
    /// counts as fetched again, once.
    // Promises: Mount 64.
    #[test]
    fn a_rehearsal_counts_what_would_be_kept_and_fetched_again() {
        let mut rehearsal = rehearsal("drop-all");
        for n in 0..2000 {
            create(&mut rehearsal, n * 60_000_000, n, &format!("/cache/{n}"));
            create(&mut rehearsal, n * 60_000_000, 10_000 + n, &format!("/home/{n}"));
        }
        let end_us = 2000 * 60_000_000;
        let result = rehearsal.result(end_us);
        assert_eq!(result.stock_bytes, 2000 * 25 * 4096, "documents do not count");
        assert!(result.kept_bytes as u64 > 1980 * 25 * 4096, "{result:?}");
        let kept = result.kept.unwrap();
        assert!(kept.lesser() > 0.9 && kept.whole <= 1.0 && kept.greater() <= 1.0, "{kept:?}");
        assert_eq!(result.fetched_again_bytes, 0);
        open(&mut rehearsal, end_us, 3);
        open(&mut rehearsal, end_us, 3);
        assert_eq!(rehearsal.result(end_us).fetched_again_bytes, 100_000);
    }

    /// Programs write a file under a temporary name and rename it. The rehearsal counts it from the
    /// moment at which its name may be dropped, as a sifter that is on takes it then.
    #[test]
    fn a_file_that_gets_a_droppable_name_counts() {
        let mut rehearsal = rehearsal("drop-all");
        let mut keep = Keep::new(KeepConfig::default());
        for n in 0..40 {
            let (file, temporary, last) = (FileId(n), format!("/tmp/{n}"), format!("/cache/{n}"));
            let name = temporary.as_str().into();
            let create = Create { file, name, owner: None, mode: None, sync: false };
            let names = Renamed::owned(&temporary, &last);
            for action in [
                Action::Create(MaybeOwned::Borrowed(&create)),
                Action::Write { file, open: None, offset: 0, len: 100_000, sync: false },
                Action::Rename { file, names },
            ] {
                let event = Event { at_us: n * 60_000_000, pid: 1, tid: 1, action };
                keep.handle(event.at_us, &event);
                rehearsal.event(&event, &keep);
            }
        }
        let result = rehearsal.result(40 * 60_000_000);
        assert_eq!(result.stock_bytes, 40 * 25 * 4096);
        assert_eq!(result.kept_bytes, 30 * 25 * 4096, "RAM has space for ten: {result:?}");
    }

    #[test]
    fn without_hours_there_are_no_halves_and_nothing_is_no_share() {
        let mut rehearsal = rehearsal("drop-all");
        assert_eq!(rehearsal.result(5).kept, None);
        create(&mut rehearsal, 7, 1, "/cache/1");
        let result = rehearsal.result(60_000_000);
        assert_eq!((result.kept, result.stock_bytes), (None, 25 * 4096));
    }

    /// A rehearsal of years keeps a fixed number of slices, and loses no byte of them.
    // Promises: Mount 64.
    #[test]
    fn years_take_fixed_memory() {
        let mut rehearsal = rehearsal("keep");
        let day_us = 86_400_000_000;
        for n in 0..3000 {
            create(&mut rehearsal, n * day_us / 2, n, &format!("/cache/{n}"));
        }
        let result = rehearsal.result(1500 * day_us);
        assert!(rehearsal.slices.len() <= SLICES_MAX && rehearsal.slices.len() > SLICES_MAX / 4);
        let sum: u64 = rehearsal.slices.iter().map(|slice| slice[0].droppable).sum();
        assert_eq!(sum, 3000 * 25 * 4096);
        assert_eq!(result.stock_bytes, sum);
    }
}
