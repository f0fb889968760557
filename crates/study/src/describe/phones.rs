//! The trace beside what papers measured on phones.
//!
//! Each figure has the lowest and the highest value that its paper gives. The trace is *alike* if
//! its own value is at least half the lowest and at most twice the highest one. If the figure is a
//! share, the rest has to be alike as well: 50 % is unlike 93 %, since its rest is seven times as
//! large. Everything else is *unlike*, and named.
//!
//! The figures:
//!
//! - CacheSifter (FAST '22), §2.1 and Fig. 1: "cache file writes represent an average of 64% of
//!   total writes to storage"; §2.1: the writes of a vendor's users are "about 10GB on average and
//!   up to 30GB per day", those to cache files "approximately 6.4GB on average per day and up to
//!   19.2GB", and "can reach 500MB per day, even for users that spend less than three hours per
//!   day"; §5.1: "the majority of cache files (93%) in this dataset are BAR files", whose active
//!   period is shorter than 30 s.
//! - Hybrid flush (IEEE Access 2021), Table 1: the ratio of reads to writes is from 5.3:94.7
//!   (NaverMap) to 47.3:52.7 (Mix); §II, Fig. 4: "20% of the top ranked blocks account for about
//!   80% of total accesses in most cases", and 40 % for Farmstory.
//! - FSLRU (IEEE TCE 2016), Table I: from 15412 writes and 14399 syncs (messenger) to 6657 writes
//!   and 312 syncs (game); a "memory footprint" of 5.7 to 6.6 MB.
//!
//! The papers leave two points open. FSLRU does not define its footprint, which is taken here as
//! the size of all pages used. CacheSifter counts bytes that reach storage, a before-cache trace
//! those that applications write. Amounts a day are those of the trace, scaled to 24 hours.
//!
//! The table of bytes written by kind of file has no published counterpart in these papers. A file
//! counts as the first kind that fits: cache file, SQLite's database, SQLite's journal or log.

use super::{
    Characterisation, CharacterisationSpec, Found, Ledger, Need, Piece, Seen, Table, Value,
    ledger::{NO_NAMES, Page, UNNAMED},
    lifetimes::{self, Class},
    skew::Popularity,
    sqlite,
};
use flashsift_events::{
    event::{Action, Event},
    names::Sqlite,
    page::PAGE_BYTES,
};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "phones",
    title: "Beside measurements on phones",
    paper: "",
    paper_saw: "",
    opens: true,
    needs: &[Need::Files, Need::Writes],
    build: |_| Box::new(Phones::default()),
};

const CACHESIFTER_WRITES: &str = "CacheSifter Fig. 1";
const CACHESIFTER_DAY: &str = "CacheSifter §2.1";
const CACHESIFTER_PERIODS: &str = "CacheSifter §5.1";
const HYBRID_FLUSH_MIX: &str = "hybrid flush Table 1";
const HYBRID_FLUSH_SKEW: &str = "hybrid flush Fig. 4";
const FSLRU: &str = "FSLRU Table I";

const GB: f64 = 1e9;
const MB: f64 = 1e6;
const DAY_US: f64 = 86_400e6;

/// Largest ratio of alike values.
const ALIKE: f64 = 2.0;

/// Unit of a published figure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Share,
    Bytes,
    Number,
}

/// A published figure and the trace's own value.
struct Compared {
    id: &'static str,
    label: &'static str,
    unit: Unit,
    /// `None` if the trace has nothing to compute it from.
    here: Option<f64>,
    /// Lowest and highest published value.
    published: (f64, f64),
    source: &'static str,
}

impl Compared {
    /// Whether the trace is alike; `None` if it has no value.
    fn is_alike(&self) -> Option<bool> {
        let (low, high) = self.published;
        let here = self.here?;
        let within = |here: f64, low: f64, high: f64| here >= low / ALIKE && here <= high * ALIKE;
        let rest = self.unit != Unit::Share || within(1.0 - here, 1.0 - high, 1.0 - low);
        Some(rest && within(here, low, high))
    }

    fn row(&self) -> Vec<Value> {
        let value = |number: f64| match self.unit {
            Unit::Share => Value::Share(number),
            Unit::Bytes => Value::Bytes(number as u64),
            Unit::Number => Value::Number(number),
        };
        vec![
            Value::label(self.id, self.label),
            self.here.map_or(Value::Absent, value),
            value(self.published.0),
            value(self.published.1),
            match self.is_alike() {
                Some(true) => Value::label("alike", "alike"),
                Some(false) => Value::label("unlike", "UNLIKE"),
                None => Value::Absent,
            },
            Value::label(self.source, self.source),
        ]
    }
}

#[derive(Default)]
struct Phones {
    reads: u64,
    writes: u64,
    syncs: u64,
}

impl Characterisation for Phones {
    fn event(&mut self, event: &Event, seen: &Seen<'_>) {
        match event.action {
            Action::Read { .. } if !seen.pages.is_empty() => self.reads += 1,
            Action::Write { sync, .. } if !seen.pages.is_empty() => {
                self.writes += 1;
                self.syncs += u64::from(sync);
            }
            Action::Sync { .. } | Action::SyncAll => self.syncs += 1,
            _ => {}
        }
    }

    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        let compared = self.compared(ledger);
        let mut found = Found::default();
        let tables = [
            (Unit::Share, "shares", ["here_share", "lowest_share", "highest_share"]),
            (Unit::Number, "numbers", ["here", "lowest", "highest"]),
            (Unit::Bytes, "amounts", ["here_bytes", "lowest_bytes", "highest_bytes"]),
        ];
        for (unit, key, [here, low, high]) in tables {
            let columns = [
                ("figure", ""),
                (here, "here"),
                (low, "from"),
                (high, "to"),
                ("verdict", ""),
                ("source", "source"),
            ];
            let mut table = Table::new(key, &columns);
            compared.iter().filter(|of| of.unit == unit).for_each(|of| table.push(of.row()));
            found = found.table(table);
        }
        let found = found
            .note(
                "Unlike: less than half the lowest published value, or more than twice the \
                 highest; of a share, the rest counts too.",
            )
            .table(kinds(ledger)?);
        let judged = compared.iter().filter(|of| of.here.is_some()).count() as u64;
        let unlike: Vec<_> =
            compared.iter().filter(|of| of.is_alike() == Some(false)).map(|of| of.label).collect();
        if judged == 0 {
            return Ok(found);
        }
        let mut sentence: Vec<Piece> = vec![
            Value::Count(judged - unlike.len() as u64).into(),
            "of".into(),
            Value::Count(judged).into(),
            "figures lie near what papers measured on phones.".into(),
        ];
        if !unlike.is_empty() {
            sentence.extend(["Unlike:".into(), format!("{}.", unlike.join("; ")).into()]);
        }
        Ok(found.sentence(sentence))
    }
}

impl Phones {
    fn compared(&self, ledger: &Ledger) -> Vec<Compared> {
        let knows = ledger.about.knows;
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let (mut written, mut to_cache) = (0u64, 0u64);
        for file in ledger.files.all() {
            written = written.saturating_add(file.state.writes.bytes);
            if ledger.files.is_cache(file) {
                to_cache = to_cache.saturating_add(file.state.writes.bytes);
            }
        }
        let named = ledger.any_named();
        let a_day = |bytes: u64| {
            (knows.times && ledger.end_us > 0)
                .then(|| bytes as f64 * (DAY_US / ledger.end_us as f64))
        };
        let classes = lifetimes::made(ledger)
            .filter(|file| ledger.files.is_cache(file))
            .map(|file| lifetimes::class(file, ledger.end_us));
        let (mut short, mut classed) = (0, 0);
        for class in classes.filter(|_| knows.times && knows.removals) {
            short += u64::from(class == Class::BurnAfterReading);
            classed += u64::from(!matches!(class, Class::TooLate | Class::Unused));
        }
        let pages = ledger.pages.all();
        let top_fifth = Popularity::new(pages.iter().map(Page::accesses)).share_on(20);
        vec![
            Compared {
                id: "cache_written",
                label: "bytes written to cache files",
                unit: Unit::Share,
                here: ratio(to_cache, written).filter(|_| named),
                published: (0.64, 0.64),
                source: CACHESIFTER_WRITES,
            },
            Compared {
                id: "short_lived_cache_files",
                label: "cache files used under 30 s",
                unit: Unit::Share,
                here: ratio(short, classed),
                published: (0.93, 0.93),
                source: CACHESIFTER_PERIODS,
            },
            Compared {
                id: "writes",
                label: "writes among requests",
                unit: Unit::Share,
                here: ratio(self.writes, self.reads + self.writes),
                published: (0.527, 0.947),
                source: HYBRID_FLUSH_MIX,
            },
            Compared {
                id: "top_fifth",
                label: "accesses to the top 20 %",
                unit: Unit::Share,
                here: top_fifth.number(),
                published: (0.4, 0.8),
                source: HYBRID_FLUSH_SKEW,
            },
            Compared {
                id: "writes_a_sync",
                label: "writes a sync",
                unit: Unit::Number,
                here: ratio(self.writes, self.syncs).filter(|_| knows.syncs),
                published: (15_412.0 / 14_399.0, 6657.0 / 312.0),
                source: FSLRU,
            },
            Compared {
                id: "written_a_day",
                label: "written a day",
                unit: Unit::Bytes,
                here: a_day(written),
                published: (10.0 * GB, 30.0 * GB),
                source: CACHESIFTER_DAY,
            },
            Compared {
                id: "cache_written_a_day",
                label: "cache files a day",
                unit: Unit::Bytes,
                here: a_day(to_cache).filter(|_| named),
                published: (0.5 * GB, 19.2 * GB),
                source: CACHESIFTER_DAY,
            },
            Compared {
                id: "footprint",
                label: "pages used",
                unit: Unit::Bytes,
                here: (!pages.is_empty()).then_some(pages.len() as f64 * PAGE_BYTES as f64),
                published: (5.7 * MB, 6.6 * MB),
                source: FSLRU,
            },
        ]
    }
}

/// Bytes written by kind of file.
fn kinds(ledger: &Ledger) -> Result<Table, &'static str> {
    if !ledger.any_named() {
        return Err(NO_NAMES);
    }
    let labels = [
        ("cache", "cache files"),
        ("sqlite_databases", "SQLite's databases"),
        ("sqlite_journals", "SQLite's journals and logs"),
        ("other", "other files"),
        UNNAMED,
    ];
    let by_name = sqlite::kinds(ledger.files.names());
    let mut sums = [0u64; 5];
    for file in ledger.files.all() {
        let kind = match (file.name, file.name.and_then(|name| by_name[name as usize])) {
            (None, _) => 4,
            _ if ledger.files.is_cache(file) => 0,
            (_, Some(Sqlite::Database)) => 1,
            (_, Some(Sqlite::Journal | Sqlite::Wal | Sqlite::SharedMemory)) => 2,
            _ => 3,
        };
        sums[kind] = sums[kind].saturating_add(file.state.writes.bytes);
    }
    let all = sums.iter().fold(0, |all: u64, sum| all.saturating_add(*sum));
    let columns = [("kind", ""), ("written_bytes", "written"), ("written_bytes_share", "")];
    let mut table = Table::new("written_by_kind", &columns);
    for ((id, label), sum) in labels.into_iter().zip(sums) {
        table.push([Value::label(id, label), Value::Bytes(sum), Value::share(sum, all)]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn verdict(unit: Unit, here: f64, published: (f64, f64)) -> Option<bool> {
        let of = Compared { id: "", label: "", unit, here: Some(here), published, source: "" };
        of.is_alike()
    }

    // Promises: Describe 22.
    #[test]
    fn a_factor_of_two_is_alike_and_more_is_not() {
        for (here, alike) in [(4.9, false), (5.0, true), (40.0, true), (40.1, false)] {
            assert_eq!(verdict(Unit::Number, here, (10.0, 20.0)), Some(alike), "{here}");
        }
        // The rest of 90 % is 10 %: between 5 % and 20 % it is alike.
        for (here, alike) in
            [(0.0, false), (0.5, false), (0.79, false), (0.81, true), (0.94, true), (0.96, false)]
        {
            assert_eq!(verdict(Unit::Share, here, (0.9, 0.9)), Some(alike), "{here}");
        }
    }

    // Promises: Describe 22.
    #[test]
    fn figures_by_hand() {
        let events = [
            at(0, create_named(1, "/app/cache/a")),
            at(0, create_named(2, "/app/x.db")),
            at(0, create_named(3, "/app/x.db-wal")),
            at(0, bind(4, "/app/y")),
            at(0, write(1, 0, 4096)),
            at(10, read(1, 0, 4096)),
            at(20, write(2, 0, 1024)),
            at(20, sync(2)),
            at(20, write(3, 0, 2048)),
            at(30, write(4, 0, 512)),
            at(30, write(5, 0, 512)), // never named
            at(864, read(1, 0, 4096)),
        ];
        let found = describe("phones", &events);
        let share = |part: f64| Value::Share(part / 8192.0);
        assert_eq!(
            column(&found, "shares", "here_share"),
            [share(4096.0), Value::Share(0.0), Value::Share(5.0 / 7.0), Value::Share(3.0 / 7.0)]
        );
        let verdicts = ["alike", "unlike", "alike", "alike"];
        let id = |value: &Value| match value {
            Value::Label { id, .. } => *id,
            other => panic!("{other:?}"),
        };
        let found_verdicts = column(&found, "shares", "verdict");
        assert_eq!(found_verdicts.iter().map(id).collect::<Vec<_>>(), verdicts);
        assert_eq!(column(&found, "numbers", "here"), [Value::Number(5.0)]);
        // 864 s are a hundredth of a day.
        assert_eq!(
            column(&found, "amounts", "here_bytes"),
            [819_200, 409_600, 5 * PAGE_BYTES].map(bytes)
        );
        assert_eq!(
            column(&found, "written_by_kind", "written_bytes"),
            [4096, 1024, 2048, 512, 512].map(bytes)
        );
        let sentence = format!("{:?}", found.sentence.unwrap());
        assert!(sentence.contains("Text(\"cache files used under 30 s; "), "{sentence}");
        assert_eq!(describe_as(about(), "phones", &events[10..11]), Err("no file names"));
    }
}
