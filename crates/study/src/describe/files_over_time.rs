//! Use of files over time: CacheSifter (FAST '22), Fig. 2, whose circles are the accesses to a file
//! within 100 s.
//!
//! Time is divided into at most [`WINDOWS`] windows of equal length: a 64th of a second, doubled as
//! often as necessary. In each window, a file's requests that touch a page and the bytes that they
//! read and write are counted. `file_windows` lists the [`FILES`] files that move most bytes, and
//! `cache_file_windows` the [`CACHE_FILES`] cache files with most requests, as in the paper. Files
//! with the same last name are one; their size is the furthest end of a request to any of them.

use super::{
    Audience, Characterisation, CharacterisationSpec, Found, Ledger, Need, Piece, Seen, Table,
    Value, WRITE_BACK_US,
    bins::Bins,
    ledger::File,
    ranking::{self, Key, Ranked},
};
use flashsift_events::event::{Action, Event};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::BTreeMap;

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "files_over_time",
    title: "Files over time",
    paper: "Liang et al., CacheSifter: Fig. 2",
    paper_saw: "The access patterns of the ten most accessed cache files of ten applications vary greatly; some have a short active \
                period and a large access count.",
    opens: false,
    needs: &[Need::Files, Need::Times],
    build: |_| {
        Box::new(FilesOverTime {
            windows: Bins::new(WINDOWS, WINDOW_US),
            cells: Vec::new(),
            files: Vec::new(),
        })
    },
};

const WINDOWS: usize = 64;
/// Length of the shortest window: doubled six times, it is a second.
const WINDOW_US: u64 = 15_625;
const FILES: usize = 20;
const CACHE_FILES: usize = 10;

/// Use of a file in one window.
#[derive(Clone, Copy, Default)]
struct Use {
    requests: u64,
    read_bytes: u64,
    written_bytes: u64,
}

impl Use {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
    }
}

struct Cell {
    file: u32,
    window: u32,
    used: Use,
}

#[derive(Clone, Copy, Default)]
struct Seek {
    /// Index of the file's last cell plus one, or 0.
    last: u32,
    size_bytes: u64,
}

struct FilesOverTime {
    windows: Bins,
    /// In order of time: one cell for each file in each window in which it is used.
    cells: Vec<Cell>,
    files: Vec<Seek>,
}

impl FilesOverTime {
    fn add(&mut self, file: u32, window: u32, used: Use) {
        let last = &mut self.files[file as usize].last;
        if let Some(cell) = last.checked_sub(1).map(|n| &mut self.cells[n as usize])
            && cell.window == window
        {
            cell.used.add(used);
            return;
        }
        self.cells.push(Cell { file, window, used });
        *last = self.cells.len() as u32;
    }

    #[cold]
    fn join_windows(&mut self) {
        self.windows.join();
        self.files.iter_mut().for_each(|file| file.last = 0);
        for cell in std::mem::take(&mut self.cells) {
            self.add(cell.file, cell.window / 2, cell.used);
        }
    }

    /// Tables of these names and of their use by window.
    fn tables<const N: usize>(
        &self,
        ledger: &Ledger,
        keys: [&'static str; 2],
        ranked: &[Ranked<Key, N>],
    ) -> [Table; 2] {
        let ranks: HashMap<Key, usize, FixedState> =
            ranked.iter().map(|ranked| ranked.key).zip(0..).collect();
        let rank = |n: usize, file: &File| ranks.get(&ranking::key(n, file)).copied();
        let mut sizes = vec![0; ranked.len()];
        let mut totals = vec![Use::default(); ranked.len()];
        for (n, (file, seek)) in ledger.files.all().iter().zip(&self.files).enumerate() {
            if let Some(rank) = rank(n, file) {
                sizes[rank] = seek.size_bytes.max(sizes[rank]);
            }
        }
        let mut windows: BTreeMap<(usize, u32), Use> = BTreeMap::new();
        for Cell { file, window, used } in &self.cells {
            if let Some(rank) = rank(*file as usize, ledger.files.get(*file)) {
                totals[rank].add(*used);
                windows.entry((rank, *window)).or_default().add(*used);
            }
        }
        let uses = [("requests", ""), ("read_bytes", ""), ("written_bytes", "")];
        let values = |used: &Use| {
            [
                Value::Count(used.requests),
                Value::Bytes(used.read_bytes),
                Value::Bytes(used.written_bytes),
            ]
        };
        let about = [("file", ""), ("name", ""), ("files", ""), ("size_bytes", "")];
        let mut names =
            Table::new(keys[0], &[&about[..], &uses].concat()).only_for(Audience::Programs);
        for (n, ranked) in ranked.iter().enumerate() {
            let about = [
                Value::Count(n as u64 + 1),
                ranked.name.clone(),
                Value::Count(ranked.count),
                Value::Bytes(sizes[n]),
            ];
            names.push([&about[..], &values(&totals[n])].concat());
        }
        let when = [("file", ""), ("start_us", "")];
        let mut cells =
            Table::new(keys[1], &[&when[..], &uses].concat()).only_for(Audience::Programs);
        for ((rank, window), used) in &windows {
            let start_us = u64::from(*window) * self.windows.width();
            let when = [Value::Count(*rank as u64 + 1), Value::TimeUs(start_us)];
            cells.push([&when[..], &values(used)].concat());
        }
        [names, cells]
    }
}

/// Number of these names that are used for less than 30 s.
fn short<const N: usize>(ledger: &Ledger, ranked: &[Ranked<Key, N>]) -> u64 {
    let mut active: HashMap<Key, Option<(u64, u64)>, FixedState> =
        ranked.iter().map(|ranked| (ranked.key, None)).collect();
    for (n, file) in ledger.files.all().iter().enumerate() {
        if let (Some(active), Some((first, last))) =
            (active.get_mut(&ranking::key(n, file)), file.state.active_us)
        {
            let (earlier, later) = active.unwrap_or((first, last));
            *active = Some((first.min(earlier), last.max(later)));
        }
    }
    active.values().flatten().filter(|(first, last)| last - first < WRITE_BACK_US).count() as u64
}

fn count_or_none(count: u64) -> Piece {
    if count == 0 { "none".into() } else { Value::Count(count).into() }
}

impl Characterisation for FilesOverTime {
    fn event(&mut self, event: &Event, seen: &Seen<'_>) {
        let (Some(file), false) = (seen.file, seen.pages.is_empty()) else { return };
        let (end, used) = match event.action {
            Action::Read { offset, len, .. } => {
                (offset.saturating_add(len), Use { requests: 1, read_bytes: len, written_bytes: 0 })
            }
            Action::Write { offset, len, .. } => {
                (offset.saturating_add(len), Use { requests: 1, read_bytes: 0, written_bytes: len })
            }
            _ => return,
        };
        self.files.resize(seen.ledger.files.all().len(), Seek::default());
        let window = loop {
            match self.windows.get(event.at_us) {
                Some(window) => break window,
                None => self.join_windows(),
            }
        };
        let size_bytes = &mut self.files[file as usize].size_bytes;
        *size_bytes = end.max(*size_bytes);
        self.add(file, window as u32, used);
    }

    fn held_bytes(&self) -> usize {
        self.cells.len() * size_of::<Cell>() + self.files.len() * size_of::<Seek>()
    }

    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        self.files.resize(ledger.files.all().len(), Seek::default());
        let moved = |file: &File| file.state.reads.bytes.saturating_add(file.state.writes.bytes);
        let all = ranking::files(ledger, |_, file| [moved(file)]);
        let most = all.top(0, FILES, ranking::file_name(ledger));
        let cache = ranking::files(ledger, |_, file| {
            [if ledger.files.is_cache(file) {
                file.state.reads.requests + file.state.writes.requests
            } else {
                0
            }]
        });
        let cache = cache.top(0, CACHE_FILES, ranking::file_name(ledger));
        if most.is_empty() {
            return Err("no requests");
        }
        let mut window = Table::new("bins", &[("window_us", "")]).only_for(Audience::Programs);
        window.push([Value::TimeUs(self.windows.width())]);
        let bytes = most.iter().fold(0, |sum: u64, file| sum.saturating_add(file.sums[0]));
        let mut sentence = vec![
            "The".into(),
            Value::Count(most.len() as u64).into(),
            "files that move most bytes move".into(),
            Value::share(bytes, all.all(0)).into(),
            "of all;".into(),
            count_or_none(short(ledger, &most)),
            "of them are used for less than 30 s.".into(),
        ];
        let mut found = Found::default().table(window);
        for table in self.tables(ledger, ["files", "file_windows"], &most) {
            found = found.table(table);
        }
        if !cache.is_empty() {
            sentence.extend([
                "Of the".into(),
                Value::Count(cache.len() as u64).into(),
                "cache files accessed most,".into(),
                count_or_none(short(ledger, &cache)),
                "are.".into(),
            ]);
            for table in self.tables(ledger, ["cache_files", "cache_file_windows"], &cache) {
                found = found.table(table);
            }
        }
        Ok(found.sentence(sentence))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use proptest::prelude::*;

    // Promises: Describe 11.
    #[test]
    fn names_and_windows_by_hand() {
        let events = [
            at(0, bind(1, "/app/cache/a")),
            at(0, bind(2, "/app/cache/a")), // created again
            at(0, bind(3, "/app/b")),
            at(0, write(1, 0, 100)),
            at(0, write(1, 100, 10)),
            at(29, read(2, 0, 50)),
            at(63, read(3, 4000, 1000)),
            at(64, read(3, 0, 1)), // beyond 64 windows of 1 s: they become 2 s long
        ];
        let found = describe("files_over_time", &events);
        assert_eq!(column(&found, "bins", "window_us"), [Value::TimeUs(2_000_000)]);
        assert_eq!(column(&found, "files", "name"), [name("/app/b"), name("/app/cache/a")]);
        assert_eq!(column(&found, "files", "files"), counts([1, 2]));
        assert_eq!(column(&found, "files", "size_bytes"), [5000, 110].map(bytes));
        assert_eq!(column(&found, "files", "requests"), counts([2, 3]));
        assert_eq!(column(&found, "file_windows", "file"), counts([1, 1, 2, 2]));
        let starts = [62, 64, 0, 28].map(|second| Value::TimeUs(second * 1_000_000));
        assert_eq!(column(&found, "file_windows", "start_us"), starts);
        assert_eq!(column(&found, "file_windows", "written_bytes"), [0, 0, 110, 0].map(bytes));
        assert_eq!(column(&found, "cache_files", "name"), [name("/app/cache/a")]);
        assert_eq!(column(&found, "cache_file_windows", "requests"), counts([2, 1]));
    }

    proptest! {
        /// Compares with sums over a list of all requests.
        // Promises: Describe 11.
        #[test]
        fn agrees_with_a_list(
            steps in prop::collection::vec((0..30u64, 1..5000u64, any::<bool>(), 0..3_000_000u64), 1..200)
        ) {
            let (mut events, mut at_us) = (Vec::new(), 0);
            for (file, len, is_write, pause_us) in &steps {
                at_us += pause_us;
                let action = if *is_write { write } else { read };
                events.push(Event { at_us, ..at(0, action(*file, 0, *len)) });
            }
            let found = describe("files_over_time", &events);
            let Value::TimeUs(width) = column(&found, "bins", "window_us")[0] else { panic!() };
            prop_assert!(at_us < 64 * width && (width == WINDOW_US || at_us >= 32 * width), "as long as needed");
            let mut model = BTreeMap::<(u64, u64), Use>::new();
            for event in &events {
                let (file, used) = match event.action {
                    Action::Read { file, len, .. } => (file.0, Use { requests: 1, read_bytes: len, written_bytes: 0 }),
                    Action::Write { file, len, .. } => (file.0, Use { requests: 1, read_bytes: 0, written_bytes: len }),
                    _ => unreachable!(),
                };
                model.entry((file, event.at_us / width * width)).or_default().add(used);
            }
            let moved = |file| {
                let of_file = model.range((file, 0)..=(file, u64::MAX));
                of_file.map(|(_, used)| used.read_bytes + used.written_bytes).sum::<u64>()
            };
            let mut files: Vec<u64> = model.keys().map(|(file, _)| *file).collect();
            files.dedup();
            let called = |file: &u64| format!("(no name, file {file})");
            files.sort_by_key(|file| (std::cmp::Reverse(moved(*file)), called(file)));
            files.truncate(FILES);
            let names: Vec<_> = files.iter().map(|file| name(&called(file))).collect();
            prop_assert_eq!(column(&found, "files", "name"), names);
            let wanted: Vec<_> = (1..).zip(&files).flat_map(|(n, file)| {
                let of_file = model.range((*file, 0)..=(*file, u64::MAX));
                of_file.map(move |((_, start), used)| (n, *start, *used))
            }).collect();
            let columns = ["file", "start_us", "requests", "read_bytes", "written_bytes"];
            let [file, start, requests, read, written] = columns.map(|of| column(&found, "file_windows", of));
            prop_assert_eq!(file, wanted.iter().map(|row| Value::Count(row.0)).collect::<Vec<_>>());
            prop_assert_eq!(start, wanted.iter().map(|row| Value::TimeUs(row.1)).collect::<Vec<_>>());
            prop_assert_eq!(requests, wanted.iter().map(|row| Value::Count(row.2.requests)).collect::<Vec<_>>());
            prop_assert_eq!(read, wanted.iter().map(|row| bytes(row.2.read_bytes)).collect::<Vec<_>>());
            prop_assert_eq!(written, wanted.iter().map(|row| bytes(row.2.written_bytes)).collect::<Vec<_>>());
        }
    }
}
