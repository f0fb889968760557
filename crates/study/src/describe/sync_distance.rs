//! Number of writes between syncs: FSLRU (IEEE TCE 2016), Table II, the "distance" of `fsync`.
//!
//! The paper defines it as "the number of write requests between two consecutive fsync() system
//! calls". Its averages differ from its Table I's writes over syncs (SNS: 11198 / 2339 = 4.8, Table
//! II has 1.89; messenger: 1.07, Table II has 1.59), and its smallest distance is 1. This is
//! consistent with distances within one file and without syncs that have no write before them. So a
//! distance here is the number of writes to a file since its last sync, or since its first
//! appearance; syncs without writes are counted separately. The distances between any two syncs
//! over all files are listed as well.
//!
//! `sync` and `syncfs` end the distance of every file that has one. A synchronous write (`O_SYNC`)
//! needs no sync and is in no distance.
//!
//! In the histogram, distances below 128 have rows of their own and longer ones are in bins
//! ([`logarithmic`]).
//!
//! Syncs force out the pages written since the last sync of their file, and the pages of
//! synchronous writes. A page written three times between two syncs is forced out once. The kernel
//! may have written some of them back before.

use super::{
    Audience, Characterisation, CharacterisationSpec, Figure, Found, Ledger, Need, Piece, Seen,
    Table, Value,
    bins::logarithmic,
    page_set::{PageSet, removed},
    ranking,
};
use flashsift_events::{
    event::{Action, Event},
    page::PAGE_BYTES,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "sync_distance",
    title: "Writes between syncs",
    paper: "Kim et al., FSLRU: Table II",
    paper_saw: "On the mean 3.48 writes (a game), 1.89 (a social network) and 1.59 (a messenger) lie between two \
                fsyncs; at most 108, 13 and 16.",
    opens: false,
    needs: &[Need::Syncs, Need::Writes],
    build: |_| Box::new(SyncDistance::default()),
};

/// Number of occurrences of each distance.
#[derive(Default)]
struct Distances {
    seen: BTreeMap<u64, u64>,
    /// Syncs with no write before them.
    empty: u64,
}

impl Distances {
    fn add(&mut self, distance: u64) {
        match distance {
            0 => self.empty += 1,
            _ => *self.seen.entry(distance).or_insert(0) += 1,
        }
    }

    fn count(&self) -> u64 {
        self.seen.values().sum()
    }

    /// Smallest and largest distance in each bin, and their number.
    fn histogram(&self) -> Vec<(u64, u64, u64)> {
        let mut bins: Vec<(u64, u64, u64)> = Vec::new();
        for (distance, count) in &self.seen {
            match bins
                .last_mut()
                .filter(|(least, ..)| logarithmic(*least) == logarithmic(*distance))
            {
                Some((_, most, syncs)) => (*most, *syncs) = (*distance, *syncs + count),
                None => bins.push((*distance, *distance, *count)),
            }
        }
        bins
    }

    fn mean(&self) -> Value {
        Value::mean(self.seen.iter().map(|(distance, count)| distance * count).sum(), self.count())
    }

    /// The smallest distance that this share of all does not exceed.
    fn percentile(&self, percent: u64) -> Value {
        let mut left = (self.count() * percent).div_ceil(100);
        for (distance, count) in &self.seen {
            if left <= *count {
                return Value::Count(*distance);
            }
            left -= count;
        }
        Value::Absent
    }
}

/// A file's writes and syncs.
#[derive(Clone, Copy, Default)]
struct File {
    since: u64,
    /// Syncs that found a write, and all these writes.
    distances: u64,
    writes: u64,
}

#[derive(Default)]
struct SyncDistance {
    files: Vec<File>,
    /// Files with writes since their last sync.
    unsynced: BTreeSet<u32>,
    of_files: Distances,
    since: u64,
    of_all: Distances,
    /// Pages written since the last sync.
    dirty: PageSet,
    forced_pages: u64,
    page_writes: u64,
}

impl SyncDistance {
    fn sync(&mut self, file: u32) {
        self.unsynced.remove(&file);
        let file = &mut self.files[file as usize];
        let distance = std::mem::take(&mut file.since);
        file.distances += u64::from(distance > 0);
        file.writes += distance;
        self.of_files.add(distance);
    }
}

impl Characterisation for SyncDistance {
    fn event(&mut self, event: &Event, seen: &Seen<'_>) {
        self.files.resize(seen.ledger.files.all().len(), File::default());
        match event.action {
            Action::Write { file: id, offset, sync, .. } if !seen.pages.is_empty() => {
                self.page_writes += seen.pages.len() as u64;
                let (first, count) = (offset / PAGE_BYTES, seen.pages.len() as u64);
                if sync {
                    self.dirty.drain(id, first..first + count, |_| {});
                    self.forced_pages += count;
                    return;
                }
                for page in first..first + count {
                    self.dirty.insert(id, page);
                }
                self.since += 1;
                if let Some(file) = seen.file {
                    self.files[file as usize].since += 1;
                    self.unsynced.insert(file);
                }
            }
            Action::Sync { file: id, offset, len, .. } => {
                self.of_all.add(std::mem::take(&mut self.since));
                seen.file.into_iter().for_each(|file| self.sync(file));
                if len > 0 {
                    let end = offset.saturating_add(len).div_ceil(PAGE_BYTES);
                    self.dirty.drain(id, offset / PAGE_BYTES..end, |_| self.forced_pages += 1);
                }
            }
            Action::SyncAll => {
                self.of_all.add(std::mem::take(&mut self.since));
                std::mem::take(&mut self.unsynced).into_iter().for_each(|file| self.sync(file));
                self.forced_pages += self.dirty.clear();
            }
            _ => {
                if let Some((file, pages)) = removed(&event.action) {
                    self.dirty.drain(file, pages, |_| {});
                }
                // A deleted file has no later sync.
                if let (Action::Gone { .. }, Some(file)) = (&event.action, seen.file) {
                    self.unsynced.remove(&file);
                    self.files[file as usize].since = 0;
                }
            }
        }
    }

    fn held_bytes(&self) -> usize {
        self.files.len() * size_of::<File>() + self.dirty.held_bytes()
    }

    fn finish(&mut self, ledger: &Ledger, top: usize) -> Result<Found, &'static str> {
        let columns = [
            ("of", ""),
            ("syncs", "syncs"),
            ("without_writes", "without writes"),
            ("mean", "mean"),
            ("median", "median"),
            ("p90", "90 %"),
            ("p99", "99 %"),
            ("most", "most"),
        ];
        let mut table = Table::new("distances", &columns);
        let columns = [("of", ""), ("writes", ""), ("most_writes", ""), ("syncs", "")];
        let mut histogram = Table::new("histogram", &columns).only_for(Audience::Programs);
        let rows =
            [(("file", "a file's own"), &self.of_files), (("all", "of all files"), &self.of_all)];
        for ((id, label), distances) in rows {
            let empty = distances.empty;
            let percentiles = [50, 90, 99, 100].map(|percent| distances.percentile(percent));
            let [median, p90, p99, most] = percentiles;
            let syncs = Value::Count(distances.count() + empty);
            table.push([
                Value::label(id, label),
                syncs,
                Value::Count(empty),
                distances.mean(),
                median,
                p90,
                p99,
                most,
            ]);
            for (least, most, syncs) in distances.histogram() {
                let [least, most, syncs] = [least, most, syncs].map(Value::Count);
                histogram.push([Value::label(id, label), least, most, syncs]);
            }
        }
        let label = "pages that syncs and O_SYNC writes force to storage";
        let forced = Figure::new("forced_pages", label, Value::Count(self.forced_pages))
            .share(self.forced_pages, self.page_writes);
        if self.of_all.count() + self.of_all.empty == 0 {
            return Ok(Found::default().figures(vec![forced]).note("There are no sync calls."));
        }
        let share = Value::share(self.forced_pages, self.page_writes).into();
        let sentence: Vec<Piece> = match self.of_files.count() {
            0 => vec![
                "No sync finds a write to its file; syncs force".into(),
                share,
                "of the page writes out.".into(),
            ],
            _ => vec![
                "A sync that finds writes to its file finds".into(),
                self.of_files.mean().into(),
                "on the mean and".into(),
                self.of_files.percentile(100).into(),
                "at most; syncs force".into(),
                share,
                "of the page writes out.".into(),
            ],
        };
        let found =
            Found::default().sentence(sentence).table(table).table(histogram).figures(vec![forced]);
        let columns = [
            ("name", "most synced"),
            ("files", "files"),
            ("syncs", "syncs"),
            ("mean", "mean distance"),
        ];
        let mut files = Table::new("files", &columns);
        let syncs = ranking::files(ledger, |n, file| {
            let File { distances, writes, .. } = self.files[n];
            [file.state.syncs, distances, writes]
        });
        for file in syncs.top(0, top, ranking::file_name(ledger)) {
            let [syncs, distances, writes] = file.sums;
            files.push([
                file.name,
                Value::Count(file.count),
                Value::Count(syncs),
                Value::mean(writes, distances),
            ]);
        }
        Ok(if files.rows.is_empty() { found } else { found.table(files) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    // Promises: Describe 5.
    #[test]
    fn distances_by_hand() {
        let events = [
            at(0, bind(1, "/db")),
            at(0, bind(2, "/db")), // another of the same name
            at(0, write(1, 0, 1)),
            at(0, write(2, 0, 1)),
            at(0, write(1, 0, 1)),
            at(0, write(1, 5000, 1)),
            at(0, sync(1)), // own 3, all 4; two pages
            at(0, sync(1)), // nothing
            at(0, write(1, 0, 1)),
            at(0, write_sync(1, 0, 8192)), // in no distance; forces two pages out
            at(0, sync(1)),                // own 1, all 1; nothing is left to write
            at(0, write(3, 0, 1)),
            at(0, Action::SyncAll), // own 1 of file 2, 1 of file 3; all 1; two pages
            at(0, write(3, 0, 1)),  // not synced
        ];
        let found = describe("sync_distance", &events);
        // A file's own: 3, 1, 1, 1. All: 4, 1, 1.
        assert_eq!(column(&found, "distances", "syncs"), counts([5, 4]));
        assert_eq!(column(&found, "distances", "without_writes"), counts([1, 1]));
        assert_eq!(column(&found, "distances", "mean"), [1.5, 2.0].map(Value::Number));
        assert_eq!(column(&found, "distances", "median"), counts([1, 1]));
        assert_eq!(column(&found, "distances", "p90"), counts([3, 4]));
        assert_eq!(figure(&found, "forced_pages"), Value::Count(6));
        assert_eq!(column(&found, "files", "name"), [name("/db")]);
        assert_eq!(column(&found, "files", "files"), counts([2]));
        assert_eq!(column(&found, "files", "syncs"), counts([3]));
        // 3, 1 and, by the sync of everything, 1.
        assert_eq!(column(&found, "files", "mean"), [Value::Number(5.0 / 3.0)]);
    }

    // Promises: Describe 5.
    #[test]
    fn long_distances_stand_in_bins() {
        let mut distances = Distances::default();
        [1, 1, 127, 128, 135, 136, 4000, 4001]
            .into_iter()
            .for_each(|distance| distances.add(distance));
        let bins = [(1, 1, 2), (127, 127, 1), (128, 135, 2), (136, 136, 1), (4000, 4001, 2)];
        assert_eq!(distances.histogram(), bins);
    }

    // Promises: Describe 6.
    #[test]
    fn deleted_pages_are_not_forced_out() {
        let events = [
            at(0, write(1, 0, 3 * 4096)),
            at(0, truncate(1, 4096)),
            at(0, sync(1)),
            at(0, write(2, 0, 1)),
            at(0, gone(2)),
        ];
        let found = describe("sync_distance", &[&events[..], &[at(0, Action::SyncAll)]].concat());
        assert_eq!(column(&found, "distances", "syncs"), counts([1, 2]), "file 2 is not synced");
        assert_eq!(figure(&found, "forced_pages"), Value::Count(1));
    }
}
