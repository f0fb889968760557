//! The status's figures of writes, with a clock that the test sets.

use flashsift_events::event::OpenId;
use flashsift_mount::{Access, Caller, Clock, Config, Fs, ROOT, Status, Store, Writes};
use std::{
    ffi::OsStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tempfile::TempDir;

const SECOND_US: u64 = 1_000_000;
const PAGE: u64 = 4096;

struct Bed {
    fs: Fs,
    clock: Arc<AtomicU64>,
    _folder: TempDir,
}

impl Bed {
    fn new() -> Self {
        Self::with_budget(64 << 20)
    }

    fn with_budget(budget_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["backing", "store"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let clock = Arc::new(AtomicU64::new(0));
        let config = Config { clock: Clock::Manual(clock.clone()), ..Config::default() };
        // Without the right to mount; some file systems then count more blocks than were written.
        let store = Store::detached_tmpfs(budget_bytes)
            .or_else(|_| Store::in_dir(&folder.path().join("store")))
            .unwrap();
        let backing = std::fs::File::open(folder.path().join("backing")).unwrap();
        Self { fs: Fs::new(backing.into(), store, config).unwrap(), clock, _folder: folder }
    }

    fn create(&self, name: &str, pages: u64) -> OpenId {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let caller = Caller { uid, gid, tid: 0, umask: 0 };
        let (_, open, _) = self.fs.create(&caller, ROOT, OsStr::new(name), 0o644, 0).unwrap();
        self.write(open, 0, pages);
        open
    }

    fn write(&self, open: OpenId, first_page: u64, pages: u64) {
        let bytes = vec![b'x'; (pages * PAGE) as usize];
        let written = self.fs.write(Access::default(), open, first_page * PAGE, &bytes).unwrap();
        assert_eq!(written, bytes.len());
    }

    fn delete(&self, name: &str, open: OpenId) {
        self.fs.unlink(0, ROOT, OsStr::new(name)).unwrap();
        self.fs.release(0, open);
        self.fs.forget_nameless();
    }

    fn sleep(&self, seconds: u64) {
        let now_us = self.clock.fetch_add(seconds * SECOND_US, Ordering::SeqCst);
        self.fs.settle_due(now_us + seconds * SECOND_US).1.unwrap();
    }

    fn writes(&self) -> Writes {
        let Status { writes, .. } = self.fs.status();
        let writes = writes.unwrap();
        let due = |parts: [u64; 2]| parts.iter().sum::<u64>() as i64;
        assert_eq!(
            writes.saved_bytes.unwrap(),
            due([writes.ext4_bytes, writes.ext4_waiting_bytes])
                - due([writes.flash_bytes, writes.flash_waiting_bytes.unwrap()])
        );
        writes
    }
}

/// In pages: ext4 and its dirty pages, flash and what waits, saved.
fn pages(writes: &Writes) -> [i64; 5] {
    let of = |bytes: u64| (bytes / PAGE) as i64;
    [
        of(writes.ext4_bytes),
        of(writes.ext4_waiting_bytes),
        of(writes.flash_bytes),
        of(writes.flash_waiting_bytes.unwrap()),
        writes.saved_bytes.unwrap() / PAGE as i64,
    ]
}

/// Files that ext4 would not have written either counted as the mount's merit.
// Promises: Mount 56.
#[test]
fn only_what_ext4_would_have_written_is_saved() {
    let bed = Bed::new();
    let short = bed.create("short", 10);
    let long = bed.create("long", 20);
    bed.create("stays", 3);
    assert_eq!(pages(&bed.writes()), [0, 33, 0, 33, 0]);
    bed.sleep(20);
    bed.delete("short", short);
    assert_eq!(pages(&bed.writes()), [0, 23, 0, 23, 0]);
    bed.sleep(25);
    // ext4 has written it; it is in RAM, and may still have to be written.
    assert_eq!(pages(&bed.writes()), [23, 0, 0, 23, 0]);
    bed.delete("long", long);
    assert_eq!(pages(&bed.writes()), [23, 0, 0, 3, 20]);
    bed.fs.settle_all().unwrap();
    let writes = bed.writes();
    assert_eq!(pages(&writes), [23, 0, 3, 0, 20]);
    assert_eq!((writes.requested_bytes, writes.flash_estimated_bytes), (33 * PAGE, 0));
    assert_eq!((writes.syncs, writes.sync_ext4_bytes, writes.sync_flushes), (0, 0, 0));
    assert!(writes.flushes > 0);
    bed.fs.check();
}

// Promises: Mount 57.
#[test]
fn a_day_is_estimated_after_an_hour() {
    let bed = Bed::new();
    let open = bed.create("a", 12);
    bed.sleep(40);
    bed.delete("a", open);
    bed.sleep(3600 - 41);
    assert_eq!(bed.writes().saved_bytes_per_day, None);
    bed.sleep(1);
    assert_eq!(bed.writes().saved_bytes_per_day, Some(24 * 12 * PAGE as i64));
}

/// A sync costs the same pages on both sides, and so do later writes to the file, which is on flash
/// then.
// Promises: Mount 56.
#[test]
fn a_sync_counts_on_both_sides() {
    let bed = Bed::new();
    let open = bed.create("a", 4);
    bed.create("other", 2);
    bed.fs.fsync(0, open, false).unwrap();
    let writes = bed.writes();
    assert_eq!(pages(&writes), [4, 2, 4, 2, 0]);
    assert_eq!((writes.sync_ext4_bytes, writes.sync_flash_bytes), (4 * PAGE, 4 * PAGE));
    assert_eq!((writes.syncs, writes.flash_estimated_bytes), (1, 0));
    assert!(writes.sync_flushes >= 1 && writes.flushes >= writes.sync_flushes);
    bed.write(open, 4, 1);
    assert_eq!(pages(&bed.writes()), [4, 3, 4, 3, 0]);
    bed.fs.fsync(0, open, false).unwrap();
    let writes = bed.writes();
    assert_eq!(pages(&writes), [5, 2, 5, 2, 0]);
    assert_eq!((writes.syncs, writes.flash_estimated_bytes), (2, PAGE));
    assert_eq!(writes.sync_flash_bytes, writes.sync_ext4_bytes);
    bed.fs.fsync_dir(0, ROOT).unwrap();
    assert!(bed.writes().sync_flushes > writes.sync_flushes);
    bed.fs.check();
}

/// A file with several copies costs each of them: an open file is written back and stays in RAM.
// Promises: Mount 56.
#[test]
fn every_copy_counts() {
    let bed = Bed::new();
    let open = bed.create("log", 1);
    for page in 1..3 {
        bed.sleep(1700);
        bed.write(open, page, 1);
    }
    let writes = bed.writes();
    assert_eq!(writes.flash_bytes, 3 * PAGE, "1 page, then 2");
    assert_eq!(writes.ext4_bytes, 2 * PAGE);
    assert!(writes.saved_bytes.unwrap() < 0, "each copy is a whole file");
}

/// A file that is too large for RAM goes through the page cache of BACKING, as it does on ext4.
// Promises: Mount 56.
#[test]
fn a_large_file_is_no_saving() {
    let bed = Bed::with_budget(1 << 20);
    let open = bed.create("large", 150);
    bed.sleep(1);
    // Where BACKING takes no file without a name, it is written back at once.
    if bed.writes().flash_bytes == 0 {
        bed.write(open, 0, 1);
    }
    let writes = bed.writes();
    assert_eq!((writes.ext4_waiting_bytes, writes.saved_bytes), (150 * PAGE, Some(0)));
    bed.fs.release(0, open);
    bed.sleep(40);
    assert_eq!(pages(&bed.writes()), [150, 0, 150, 0, 0]);
}
