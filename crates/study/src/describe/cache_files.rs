//! RequestSums of files that applications can fetch again: CacheSifter (FAST '22), Fig. 1.
//!
//! A cache file is one whose path leads through a cache directory
//! ([`flashsift_events::names::in_cache`]). A file is classified by its last name; files without a
//! name are counted separately. (The paper uses `/data/<package>/cache/`.)
//!
//! A file is read again after a time if a read comes more than that time after the last request to
//! the file before it. Dropping such a file costs a download. (A file that was dropped and fetched
//! again has another identity, and does not count.)

use super::{
    Characterisation, CharacterisationSpec, Found, Ledger, Need, Seen, Table, Value,
    ledger::{NO_NAMES, RequestSums, UNNAMED},
};
use flashsift_events::event::{Action, Event};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "cache_files",
    title: "Cache files' share",
    paper: "Liang et al., CacheSifter: Fig. 1",
    paper_saw: "Cache files are 64 % of the writes to storage, on the mean of twenty applications; up to 92.6 % of \
                their number (Facebook) and 95.7 % of their bytes (YouTube).",
    opens: false,
    needs: &[Need::Files],
    build: |_| Box::new(CacheFiles::default()),
};

/// Pauses before a read: name, label, and length.
const PAUSES: [(&str, &str, u64); 3] = [
    ("ten_minutes", "10 min", 600_000_000),
    ("hour", "1 h", 3_600_000_000),
    ("day", "1 d", 86_400_000_000),
];

/// Reads of a file after each of [`PAUSES`].
#[derive(Clone, Copy, Default)]
struct Reads {
    /// Time of the last request that touched a page, plus 1; 0 if there was none.
    last_us: u64,
    reads: [u32; PAUSES.len()],
}

#[derive(Default)]
struct CacheFiles {
    /// By number in the ledger.
    files: Vec<Reads>,
}

impl Characterisation for CacheFiles {
    fn event(&mut self, event: &Event, seen: &Seen<'_>) {
        let Some(file) = seen.file.filter(|_| !seen.pages.is_empty()) else { return };
        let file = file as usize;
        if self.files.len() <= file {
            self.files.resize(file + 1, Reads::default());
        }
        let Reads { last_us, reads } = &mut self.files[file];
        if *last_us > 0 && matches!(event.action, Action::Read { .. }) {
            let paused_us = event.at_us - (*last_us - 1);
            for (reads, (.., pause_us)) in reads.iter_mut().zip(PAUSES) {
                *reads = reads.saturating_add(u32::from(paused_us > pause_us));
            }
        }
        *last_us = event.at_us.saturating_add(1);
    }

    fn held_bytes(&self) -> usize {
        self.files.capacity() * size_of::<Reads>()
    }

    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        if !ledger.any_named() {
            return Err(NO_NAMES);
        }
        let columns = [
            ("files_of", ""),
            ("files", "files"),
            ("writes", "writes"),
            ("writes_share", ""),
            ("written_bytes", "written"),
            ("written_bytes_share", ""),
            ("read_bytes", "read"),
            ("read_bytes_share", ""),
        ];
        let mut table = Table::new("shares", &columns);
        // Cache files, other files, files without a name.
        let mut sums = [(0, RequestSums::default(), RequestSums::default()); 3];
        let (mut all_reads, mut all_writes) = (RequestSums::default(), RequestSums::default());
        for file in ledger.files.all() {
            let is_cache = ledger.files.is_cache(file);
            let (files, reads, writes) = &mut sums[if is_cache {
                0
            } else if file.name.is_some() {
                1
            } else {
                2
            }];
            *files += u64::from(file.state.active_us.is_some());
            reads.merge(file.state.reads);
            writes.merge(file.state.writes);
            all_reads.merge(file.state.reads);
            all_writes.merge(file.state.writes);
        }
        let labels = [("cache", "cache files"), ("other", "other files"), UNNAMED];
        for (n, ((id, label), (files, reads, writes))) in labels.into_iter().zip(sums).enumerate() {
            if n == 2 && files == 0 {
                continue;
            }
            table.push([
                Value::label(id, label),
                Value::Count(files),
                Value::Count(writes.requests),
                Value::share(writes.requests, all_writes.requests),
                Value::Bytes(writes.bytes),
                Value::share(writes.bytes, all_writes.bytes),
                Value::Bytes(reads.bytes),
                Value::share(reads.bytes, all_reads.bytes),
            ]);
        }
        let (_, _, writes) = sums[0];
        let mut found = Found::default().table(table);
        if ledger.about.knows.times {
            found = found.table(self.read_again(ledger));
        }
        Ok(match all_writes.requests {
            0 => found,
            _ => found.sentence([
                Value::share(writes.requests, all_writes.requests).into(),
                "of the writes and".into(),
                Value::share(writes.bytes, all_writes.bytes).into(),
                "of the bytes written go to cache files.".into(),
            ]),
        })
    }
}

impl CacheFiles {
    /// Number of cache files that are read again after a pause, and of these reads.
    fn read_again(&self, ledger: &Ledger) -> Table {
        let columns =
            [("after", "read again after more than"), ("files", "files"), ("reads", "reads")];
        let mut table = Table::new("read_again", &columns);
        let is_cache = |n: usize| ledger.files.is_cache(&ledger.files.all()[n]);
        for (n, (id, label, _)) in PAUSES.into_iter().enumerate() {
            let reads = self.files.iter().enumerate().filter(|(file, _)| is_cache(*file));
            let (mut files, mut sum) = (0, 0);
            for reads in reads.map(|(_, of)| u64::from(of.reads[n])) {
                files += u64::from(reads > 0);
                sum += reads;
            }
            table.push([Value::label(id, label), Value::Count(files), Value::Count(sum)]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use flashsift_events::event::{About, Knows};

    // Promises: Describe 16.
    #[test]
    fn shares_by_hand() {
        let events = [
            at(0, bind(1, "/app/cache/a")),
            at(0, bind(2, "/app/files/b")),
            at(0, write(1, 0, 100)),
            at(0, write(1, 0, 200)),
            at(0, write(2, 0, 100)),
            at(0, read(2, 0, 10)),
            at(0, write(3, 0, 600)), // never named
        ];
        let found = describe("cache_files", &events);
        assert_eq!(column(&found, "shares", "files"), counts([1, 1, 1]));
        assert_eq!(column(&found, "shares", "writes_share"), [0.5, 0.25, 0.25].map(Value::Share));
        assert_eq!(column(&found, "shares", "written_bytes"), [300, 100, 600].map(bytes));
        assert_eq!(column(&found, "shares", "read_bytes"), [0, 10, 0].map(bytes));
    }

    // Promises: Describe 21.
    #[test]
    fn reads_after_pauses_by_hand() {
        let (hour, day) = (3600, 86_400);
        let events = [
            at(0, bind(1, "/app/cache/a")),
            at(0, bind(2, "/app/cache/b")),
            at(0, bind(3, "/app/c")),
            at(0, write(1, 0, 100)),
            at(0, read(2, 0, 100)),
            at(0, write(3, 0, 100)),
            at(600, read(1, 0, 100)),          // exactly ten minutes
            at(1201, read(1, 0, 100)),         // a second more
            at(1201 + hour, write(1, 0, 100)), // no read
            at(2000 + hour, read(1, 0, 100)),  // 799 s after the write
            at(2001 + 2 * hour, read(1, 0, 100)),
            at(1 + day, read(2, 0, 100)),
            at(2 + day, read(3, 0, 100)),   // no cache file
            at(2 + 2 * day, read(2, 0, 0)), // nothing
        ];
        let found = describe("cache_files", &events);
        assert_eq!(column(&found, "read_again", "files"), counts([2, 2, 1]));
        assert_eq!(column(&found, "read_again", "reads"), counts([4, 2, 1]));
        let without = About { knows: Knows { times: false, ..about().knows }, ..about() };
        assert!(
            describe_as(without, "cache_files", &events)
                .unwrap()
                .table_named("read_again")
                .is_none()
        );
    }
}
