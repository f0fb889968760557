//! Counts, on a running machine, which pages the kernel reads ahead and which of them are used.
//!
//! Tracepoints report each page that enters or leaves the page cache (`mm_filemap_add_…`,
//! `mm_filemap_delete_…`), each read, also of cached pages (`mm_filemap_get_pages`, since Linux
//! 6.12), page faults on files, and pages that become dirty. [`count`] has the rules.

pub mod count;

use crate::{
    Error, Stop,
    fanotify::path_of_inode,
    format::{Slot, TraceRecord},
    system,
    tracefs::{Instance, Tracefs},
};
use count::{CachePoint, Counter, ReadAheadTally, Seen};
use flashsift_events::names::escape;
use flashsift_traces::tracepoint::Values;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{collections::HashMap, path::PathBuf};

/// The file system to watch.
#[derive(Clone, Debug)]
pub struct WatchedFileSystem {
    /// Its device number, as mounted (`st_dev` of its files; of btrfs that in `mountinfo`).
    pub dev: u64,
    /// Name of its bdi.
    pub bdi: String,
    /// Its type: `ext4`.
    pub kind: String,
    /// A mount point of it.
    pub point: PathBuf,
}

/// Pages of one file or program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadAheadShare {
    /// Name of the program, or path of the file.
    pub name: String,
    /// Its pages.
    pub tally: ReadAheadTally,
}

/// Result of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAheadUse {
    /// All pages.
    pub total: ReadAheadTally,
    /// The programs whose reads brought pages in, those with most unused pages first.
    pub programs: Vec<ReadAheadShare>,
    /// The files, in the same order.
    pub files: Vec<ReadAheadShare>,
    /// Number of files from which pages were read.
    pub files_count: u64,
    /// Pages that were not followed because the memory for that was full.
    pub untracked_pages: u64,
    /// Records of the kernel that were lost: the numbers are too small.
    pub lost: u64,
}

/// Longest delay between the time of a record and its visibility.
const LAG_NS: u64 = 30_000_000;
const LOOK_MS: i64 = 50;

/// A tracepoint: its folder, its fields after device and inode, and the meaning of a record.
struct PointSpec {
    folder: &'static str,
    fields: &'static [&'static str],
    seen: fn(&TraceRecord<'_>) -> Seen,
}

const POINTS: &[PointSpec] = &[
    PointSpec {
        folder: "filemap/mm_filemap_add_to_page_cache",
        fields: &["i_ino", "index", "order"],
        seen: |record| Seen::Added { first: record.number(1), pages: pages(record.number(2)) },
    },
    PointSpec {
        folder: "filemap/mm_filemap_delete_from_page_cache",
        fields: &["i_ino", "index", "order"],
        seen: |record| Seen::Deleted { first: record.number(1), pages: pages(record.number(2)) },
    },
    PointSpec {
        folder: "filemap/mm_filemap_get_pages",
        fields: &["i_ino", "index", "last_index"],
        seen: |record| Seen::Read { first: record.number(1), last: record.number(2) },
    },
    PointSpec {
        folder: "filemap/mm_filemap_fault",
        fields: &["i_ino", "index"],
        seen: |record| Seen::Faulted { page: record.number(1) },
    },
    PointSpec {
        folder: "filemap/mm_filemap_map_pages",
        fields: &["i_ino", "index", "last_index"],
        seen: |record| Seen::Mapped { first: record.number(1), last: record.number(2) },
    },
    PointSpec {
        folder: "writeback/writeback_dirty_folio",
        fields: &["ino", "index"],
        seen: |record| Seen::Dirtied { page: record.number(1) },
    },
];

/// Records of new threads and of new names, from which programs that have ended get theirs. The
/// fields are the number of the thread and its name.
const NAMES: &[(&str, [&str; 2])] =
    &[("task/task_newtask", ["pid", "comm"]), ("task/task_rename", ["pid", "newcomm"])];
/// Most names that are kept.
const NAMES_MAX: usize = 1 << 16;

/// The last inode whose pages are metadata: ext4's bitmaps, the tree of btrfs, the nodes and the
/// checkpoints of F2FS. File systems read these ahead by rules of their own.
fn last_internal_ino(kind: &str) -> u64 {
    match kind {
        "f2fs" => 2,
        "ext4" | "btrfs" => 1,
        _ => 0,
    }
}

/// Pages of a folio; a larger order than any kernel's is a damaged record.
fn pages(order: u64) -> u64 {
    1 << order.min(20)
}

/// Watches a file system until `stop` ends it. The numbers of `top` files and programs are
/// returned.
///
/// # Errors
///
/// The kernel does not permit tracing, or does not show which cached pages are read.
pub fn watch(
    watched: &WatchedFileSystem,
    buffer_kib: u64,
    top: usize,
    stop: &mut dyn Stop,
) -> Result<ReadAheadUse, Error> {
    let tracefs = Tracefs::open()?;
    if !tracefs.has("filemap", "mm_filemap_get_pages") {
        return Err(Error::Nothing(
            "this kernel does not report reads that the page cache serves (mm_filemap_get_pages, \
             Linux 6.12), so used pages look like unused ones; record a trace of the same programs \
             on another machine and study that: `flashsift tune readahead TRACE`"
                .to_owned(),
        ));
    }
    let clock = tracefs.clock();
    let mut instance = Instance::new(&tracefs, "readahead", buffer_kib, clock)?;
    let dev = system::dev_of(watched.dev);
    let mut decoders: Vec<(u16, Vec<Slot>, &PointSpec)> = Vec::new();
    for spec in POINTS {
        // A folio's bdi may be that of a whole disk, whose other partitions have inodes with the
        // same numbers; the record has nothing better.
        let filter = match spec.folder {
            folder if folder.starts_with("writeback") => format!("name == \"{}\"", watched.bdi),
            _ => format!("s_dev == {} && i_ino > {}", dev.0, last_internal_ino(&watched.kind)),
        };
        match instance.enable_fields(spec.folder, spec.fields, &[&filter])? {
            Some((id, slots)) => decoders.push((id, slots, spec)),
            None => {
                return Err(Error::Nothing(format!(
                    "this kernel lacks the tracepoint {}, so pages cannot be followed",
                    spec.folder
                )));
            }
        }
    }
    let mut namers: Vec<(u16, Vec<Slot>)> = Vec::new();
    for (folder, fields) in NAMES {
        namers.extend(instance.enable_fields(folder, fields, &[])?);
    }
    instance.start()?;
    stop.begun();
    let mut names: HashMap<u32, (u64, String)> = HashMap::new();
    let mut counter = Counter::default();
    let mut points: Vec<CachePoint> = Vec::new();
    let mut count = 0;
    loop {
        wait(&instance);
        let over = stop.now(count);
        if over {
            instance.stop()?;
        }
        let now_ns = clock.now_ns();
        instance.drain_records(|at_ns, id, tid, bytes| {
            let found = decoders.iter().find(|(known, ..)| *known == id);
            if let Some((_, slots, spec)) = found {
                let record = TraceRecord { bytes, slots };
                let (ino, seen) = (record.number(0), (spec.seen)(&record));
                points.push(CachePoint { at_ns, tid, ino, seen });
            } else if let Some((_, slots)) = namers.iter().find(|(known, _)| *known == id) {
                let record = TraceRecord { bytes, slots };
                if names.len() >= NAMES_MAX {
                    names.clear();
                }
                let (tid, name) =
                    (record.number(0) as u32, escape(record.text(1).as_bytes()).into());
                // The records of one processor come before those of the next.
                if names.get(&tid).is_none_or(|(named_ns, _)| *named_ns <= at_ns) {
                    names.insert(tid, (at_ns, name));
                }
            }
        })?;
        points.sort_by_key(|point| point.at_ns);
        let until_ns = if over { u64::MAX } else { now_ns.saturating_sub(LAG_NS) };
        let ripe = points.partition_point(|point| point.at_ns <= until_ns);
        for point in points.drain(..ripe) {
            count += 1;
            counter.point(&point, &mut |tid| {
                let known = || names.get(&tid).map(|(_, name)| name.clone());
                let name = system::program_of_thread(tid).or_else(known);
                name.unwrap_or_else(|| "(ended)".to_owned())
            });
        }
        if over {
            break;
        }
    }
    let lost = instance.lost().iter().map(|(_, lost)| lost).sum();
    let paths = |ino| name_of(watched, ino);
    Ok(finish(counter, top, lost, paths))
}

fn wait(instance: &Instance) {
    let mut fds: Vec<_> =
        instance.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_MS * 1_000_000 };
    // A signal ends the wait, too.
    let _ = poll(&mut fds, Some(&timeout));
}

fn finish(counter: Counter, top: usize, lost: u64, path: impl Fn(u64) -> String) -> ReadAheadUse {
    let untracked_pages = counter.untracked_pages();
    let (total, files, programs) = counter.finish();
    let files_count = files.len() as u64;
    let name = |(ino, tally): (u64, ReadAheadTally)| ReadAheadShare { name: path(ino), tally };
    let files = most_unused(files, top).into_iter().map(name).collect();
    let name = |(name, tally): (String, ReadAheadTally)| ReadAheadShare { name, tally };
    let programs = most_unused(programs, top).into_iter().map(name).collect();
    ReadAheadUse { total, programs, files, files_count, untracked_pages, lost }
}

/// The first `top` by unused pages, then by pages that were read ahead.
fn most_unused<K: Ord>(mut all: Vec<(K, ReadAheadTally)>, top: usize) -> Vec<(K, ReadAheadTally)> {
    all.sort_by(|(a_key, a), (b_key, b)| {
        let rank = |tally: &ReadAheadTally| {
            (tally.dropped_pages + tally.unused_pages, tally.ahead_pages(), tally.demanded_pages)
        };
        rank(b).cmp(&rank(a)).then_with(|| a_key.cmp(b_key))
    });
    all.truncate(top);
    all
}

/// The path of a file, as far as it can be found.
fn name_of(watched: &WatchedFileSystem, ino: u64) -> String {
    path_of_inode(&watched.point, ino)
        .or_else(|| open_path(watched, ino))
        .map_or_else(|| format!("inode {ino}"), |path| path.display().to_string())
}

/// Searches the open files of all processes, for file systems whose handles need more than a
/// number.
fn open_path(watched: &WatchedFileSystem, ino: u64) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    // A file of btrfs has another device number than its file system.
    let wanted = |link: PathBuf| {
        let path = std::fs::read_link(&link).ok()?;
        let is_it =
            path.starts_with(&watched.point) && link.metadata().is_ok_and(|meta| meta.ino() == ino);
        is_it.then_some(path)
    };
    system::all().into_iter().find_map(|pid| {
        let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        folder.flatten().find_map(|entry| wanted(entry.path()))
    })
}
