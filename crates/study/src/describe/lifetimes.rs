//! Lifetime and active period of files: CacheSifter (FAST '22), Fig. 6, with its classes.
//!
//! The active period of a file is the time from its first to its last request; 0 if it is used
//! once. Burn-after-reading is less than 30 s, transient 30 to 90 s, long-living more than 90 s.
//! Files that the trace creates and uses are classified, except those created less than 90 s before
//! its end and not deleted, whose class is not known yet. The paper's population is cache files
//! only; they are listed next to all files.
//!
//! The distribution has bins of active periods, each from its lower bound up to that of the next. A
//! period of exactly 90 s is transient, although its bin otherwise holds long-living files.
//!
//! A file is deleted when its last name and its last descriptor are gone. A file deleted less than
//! 30 s after its creation needed no write-back, unless it was synced.

use super::{
    Audience, Characterisation, CharacterisationSpec, Figure, Found, Ledger, Need, Table, Value,
    WRITE_BACK_US, ledger::File,
};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "lifetimes",
    title: "How long files live",
    paper: "Liang et al., CacheSifter: §5.1, Fig. 6",
    paper_saw: "93 % of the cache files are burn-after-reading, with an active period of less than 30 s; less than 5 \
                % are long-living.",
    opens: false,
    needs: &[Need::Files, Need::Removals],
    build: |_| Box::new(Lifetimes),
};

/// Lower bounds of the bins, in seconds. The first bin has files with an active period above 0.
const BINS_S: [u64; 17] =
    [0, 1, 2, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600];

/// An active period above this makes a file long-living.
const LONG_US: u64 = 90_000_000;

struct Lifetimes;

/// Number of files and bytes written to them.
#[derive(Clone, Copy, Default)]
struct Sum {
    files: u64,
    bytes: u64,
}

impl Sum {
    fn new<'a>(files: impl Iterator<Item = &'a File>) -> Self {
        let mut sum = Self::default();
        files.for_each(|file| {
            sum.files += 1;
            sum.bytes = sum.bytes.saturating_add(file.state.writes.bytes);
        });
        sum
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    BurnAfterReading,
    Transient,
    LongLiving,
    TooLate,
    Unused,
}

pub(super) fn class(file: &File, end_us: u64) -> Class {
    let (Some((first_us, last_us)), Some(created_us)) = (file.state.active_us, file.created_us)
    else {
        return Class::Unused;
    };
    if file.gone_us.is_none() && end_us - created_us < LONG_US {
        return Class::TooLate;
    }
    match last_us - first_us {
        ..WRITE_BACK_US => Class::BurnAfterReading,
        WRITE_BACK_US..=LONG_US => Class::Transient,
        _ => Class::LongLiving,
    }
}

fn lived_us(file: &File) -> Option<u64> {
    file.gone_us?.checked_sub(file.created_us?)
}

impl Characterisation for Lifetimes {
    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        let found = Found::default().table(file_counts(ledger));
        if !ledger.about.knows.times {
            return Ok(found.note("The trace has no times: how long they lived is not known."));
        }
        let mut lives: Vec<u64> = ledger.files.all().iter().filter_map(lived_us).collect();
        lives.sort_unstable();
        let percentile = |percent: usize| match (lives.len() * percent).div_ceil(100) {
            0 => Value::Absent,
            at => Value::TimeUs(lives[at - 1]),
        };
        let found = found.figures(vec![
            Figure::new(
                "lifetime_median_us",
                "half of those made and deleted lived at most",
                percentile(50),
            ),
            Figure::new("lifetime_p90_us", "90 % of them", percentile(90)),
        ]);
        let classed = |wanted| {
            made(ledger).filter(|file| class(file, ledger.end_us) == wanted).count() as u64
        };
        let short = classed(Class::BurnAfterReading);
        let all = short + classed(Class::Transient) + classed(Class::LongLiving);
        let sentence = [
            Value::share(short, all).into(),
            "of the files that the trace makes and uses are used for less than 30 s (burn after \
             reading),"
                .into(),
            Value::share(classed(Class::LongLiving), all).into(),
            "for more than 90 s.".into(),
        ];
        let found = if all > 0 { found.sentence(sentence) } else { found };
        let late = Value::Count(classed(Class::TooLate));
        let unused = Value::Count(classed(Class::Unused));
        Ok(found.table(active_periods(ledger)).table(distribution(ledger)).figures(vec![
            Figure::new(
                "made_too_late",
                "not among them: made less than 90 s before the end",
                late,
            ),
            Figure::new("never_used", "not among them: made, never read nor written", unused),
        ]))
    }
}

/// Files created in the trace.
pub(super) fn made(ledger: &Ledger) -> impl Iterator<Item = &File> {
    ledger.files.all().iter().filter(|file| file.created_us.is_some())
}

/// Number of files, of those created and deleted, and the bytes written to them.
fn file_counts(ledger: &Ledger) -> Table {
    let all = || ledger.files.all().iter();
    let used = Sum::new(all().filter(|file| file.state.active_us.is_some()));
    let columns = [
        ("what", ""),
        ("files", "files"),
        ("written_bytes", "written to them"),
        ("written_bytes_share", ""),
    ];
    let mut table = Table::new("files", &columns);
    let mut row = |id, label, sum: Sum| {
        let share = Value::share(sum.bytes, used.bytes);
        table.push([
            Value::label(id, label),
            Value::Count(sum.files),
            Value::Bytes(sum.bytes),
            share,
        ]);
    };
    row("used", "read or written", used);
    row("made", "made in the trace", Sum::new(made(ledger)));
    row("deleted", "deleted in the trace", Sum::new(all().filter(|file| file.gone_us.is_some())));
    row(
        "made_and_deleted",
        "made and deleted",
        Sum::new(made(ledger).filter(|file| file.gone_us.is_some())),
    );
    if ledger.about.knows.times {
        let young = |file: &&File| lived_us(file).is_some_and(|lived_us| lived_us < WRITE_BACK_US);
        row("deleted_young", "… less than 30 s old", Sum::new(made(ledger).filter(young)));
    }
    table
}

/// Files by class: all created files, and the cache files among them.
fn active_periods(ledger: &Ledger) -> Table {
    let mut columns = vec![
        ("class", "active period"),
        ("files", "files"),
        ("files_share", ""),
        ("written_bytes", "written"),
        ("written_bytes_share", ""),
    ];
    let is_cache = |file: &&File| ledger.files.is_cache(file);
    if made(ledger).any(|file| is_cache(&file)) {
        columns.extend([("cache_files", "cache files"), ("cache_files_share", "")]);
    }
    let of = |wanted| made(ledger).filter(move |file| class(file, ledger.end_us) == wanted);
    let classes = [
        (Class::BurnAfterReading, "burn_after_reading", "burn after reading (< 30 s)"),
        (Class::Transient, "transient", "transient (30–90 s)"),
        (Class::LongLiving, "long_living", "long-living (> 90 s)"),
    ];
    let sums =
        classes.map(|(class, ..)| (Sum::new(of(class)), of(class).filter(is_cache).count() as u64));
    let files = sums.iter().map(|(sum, _)| sum.files).sum();
    let bytes = sums.iter().map(|(sum, _)| sum.bytes).sum();
    let cache_files = sums.iter().map(|(_, cache_files)| cache_files).sum();
    let mut table = Table::new("active_periods", &columns);
    for ((_, id, label), (sum, cache)) in classes.into_iter().zip(sums) {
        let mut row = vec![
            Value::label(id, label),
            Value::Count(sum.files),
            Value::share(sum.files, files),
            Value::Bytes(sum.bytes),
            Value::share(sum.bytes, bytes),
            Value::Count(cache),
            Value::share(cache, cache_files),
        ];
        row.truncate(columns.len());
        table.push(row);
    }
    table
}

/// Classified files by active period: those used once or at one time only, then bins.
fn distribution(ledger: &Ledger) -> Table {
    let starts_us: Vec<u64> =
        std::iter::once(0).chain(BINS_S.map(|second| (second * 1_000_000).max(1))).collect();
    let mut bins = vec![(Sum::default(), 0); starts_us.len()];
    for file in made(ledger) {
        if matches!(class(file, ledger.end_us), Class::TooLate | Class::Unused) {
            continue;
        }
        let active_us = file.state.active_us.map_or(0, |(first_us, last_us)| last_us - first_us);
        let bin = starts_us.partition_point(|start_us| *start_us <= active_us) - 1;
        let (sum, cache_files) = &mut bins[bin];
        sum.files += 1;
        sum.bytes = sum.bytes.saturating_add(file.state.writes.bytes);
        *cache_files += u64::from(ledger.files.is_cache(file));
    }
    let columns = [("least_us", ""), ("files", ""), ("written_bytes", ""), ("cache_files", "")];
    let mut table = Table::new("active_period_bins", &columns).only_for(Audience::Programs);
    for (least_us, (sum, cache_files)) in starts_us.into_iter().zip(bins) {
        let [files, cache_files] = [sum.files, cache_files].map(Value::Count);
        table.push([Value::TimeUs(least_us), files, Value::Bytes(sum.bytes), cache_files]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    /// A call that creates and opens a file gives two events; the file counts once, from the first.
    // Promises: Traces 22.
    #[test]
    fn a_creation_counts_once() {
        let events = [
            at(0, create_named(1, "/data/app/cache/x")),
            at(1, create(1)),
            at(1, write(1, 0, 10)),
            at(2, create_named(2, "")),
            at(3, write(2, 0, 10)),
            at(4, create(3)),
            at(5, gone(1)),
            at(6, gone(3)),
        ];
        let found = describe("lifetimes", &events);
        // Used, made, deleted, both, deleted young.
        assert_eq!(column(&found, "files", "files"), counts([2, 3, 2, 2, 2]));
        assert_eq!(figure(&found, "lifetime_p90_us"), Value::TimeUs(5_000_000));
    }

    // Promises: Describe 13.
    #[test]
    fn classes_by_hand() {
        let mut events = Vec::new();
        // (file, made, first and last write, deleted)
        let files = [
            (1, 0, (0, 0), None),            // once: burn after reading
            (2, 0, (1, 30), Some(31)),       // 29 s: the same
            (3, 0, (0, 30), None),           // transient
            (4, 0, (0, 90), Some(95)),       // transient
            (5, 0, (0, 91), None),           // long-living
            (6, 111, (111, 112), None),      // less than 90 s before the end
            (7, 110, (110, 111), None),      // 90 s
            (8, 190, (190, 190), Some(191)), // late, but deleted
        ];
        for (file, made, (first, last), deleted) in files {
            events.extend([
                at(made, create(file)),
                at(first, write(file, 0, 10)),
                at(last, write(file, 0, 10)),
            ]);
            events.extend(deleted.map(|second| at(second, gone(file))));
        }
        events.extend([
            at(0, write(9, 0, 100)), // created before the trace
            at(5, gone(9)),
            at(0, create(10)), // never used
            at(200, Action::SyncAll),
        ]);
        events.push(at(0, bind(1, "/data/app/cache/x")));
        events.sort_by_key(|event| event.at_us);
        let found = describe("lifetimes", &events);
        // Used, created, deleted, both, deleted young.
        assert_eq!(column(&found, "files", "files"), counts([9, 9, 4, 3, 1]));
        assert_eq!(column(&found, "files", "written_bytes"), [260, 160, 160, 60, 20].map(bytes));
        assert_eq!(column(&found, "active_periods", "files"), counts([4, 2, 1]));
        assert_eq!(column(&found, "active_periods", "cache_files"), counts([1, 0, 0]));
        // Once: 1 and 8; 1 s: 7; 29 s: 2; 30 s: 3; 90 and 91 s: 4 and 5.
        let bins = column(&found, "active_period_bins", "files");
        let starts = column(&found, "active_period_bins", "least_us");
        let used: Vec<_> =
            starts.into_iter().zip(bins).filter(|(_, files)| *files != Value::Count(0)).collect();
        let wanted = [(0, 2), (1_000_000, 1), (20_000_000, 1), (30_000_000, 1), (90_000_000, 2)];
        assert_eq!(used, wanted.map(|(start, files)| (Value::TimeUs(start), Value::Count(files))));
        assert_eq!(figure(&found, "made_too_late"), Value::Count(1));
        assert_eq!(figure(&found, "never_used"), Value::Count(1));
        // 1, 31 and 95 s.
        assert_eq!(figure(&found, "lifetime_median_us"), Value::TimeUs(31_000_000));
        assert_eq!(figure(&found, "lifetime_p90_us"), Value::TimeUs(95_000_000));
    }

    use flashsift_events::event::Action;
}
