//! Traffic of files that applications can fetch again: CacheSifter (FAST '22), Fig. 1.
//!
//! A cache file is one whose path leads through a cache directory ([`crate::names::in_cache`]). A
//! file is classified by its last name; files without a name are counted separately. (The paper
//! uses `/data/<package>/cache/`.)

use super::{
    Characterisation, CharacterisationSpec, Found, Ledger, Need, Table, Value,
    ledger::{NO_NAMES, Traffic, UNNAMED},
};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "cache_files",
    title: "Cache files' share",
    paper: "Liang et al., CacheSifter: Fig. 1",
    paper_saw: "Cache files are 64 % of the writes to storage, on the mean of twenty applications; up to 92.6 % of \
                their number (Facebook) and 95.7 % of their bytes (YouTube).",
    opens: false,
    needs: &[Need::Files],
    build: |_| Box::new(CacheFiles),
};

struct CacheFiles;

impl Characterisation for CacheFiles {
    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        if !ledger.files.any_named() {
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
        let mut sums = [(0, Traffic::default(), Traffic::default()); 3];
        let (mut all_reads, mut all_writes) = (Traffic::default(), Traffic::default());
        for file in ledger.files.all() {
            let is_cache = ledger.files.is_cache(file);
            let (files, reads, writes) = &mut sums[if is_cache {
                0
            } else if file.name.is_some() {
                1
            } else {
                2
            }];
            *files += u64::from(file.active_us.is_some());
            reads.merge(file.reads);
            writes.merge(file.writes);
            all_reads.merge(file.reads);
            all_writes.merge(file.writes);
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
        let found = Found::default().table(table);
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

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

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
}
