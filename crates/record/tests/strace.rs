//! Compares one run of a real program, recorded by tracepoints and by strace at once.

use crate::common::{mounted, recorded, run};
use flashsift_events::event::{Action, Event, FileId};
use flashsift_testbed::{has, skip};
use flashsift_traces::{
    events::Kept,
    open::{self, Limits},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

/// Accesses to each file, by the last name that it had.
#[derive(Debug, Default, PartialEq)]
struct Done {
    read: BTreeMap<String, BTreeSet<u64>>,
    written: BTreeMap<String, BTreeSet<u64>>,
    synced: BTreeSet<String>,
    renamed: BTreeSet<String>,
    unlinked: BTreeSet<String>,
    bytes: BTreeMap<String, [u64; 2]>,
}

fn done(events: &[Event<'static>], folder: &Path) -> Done {
    let mut done = Done::default();
    let mut names: BTreeMap<FileId, String> = BTreeMap::new();
    let prefix = format!("{}/", folder.display());
    let pages = |offset: u64, len: u64| offset / 4096..(offset + len).div_ceil(4096);
    // The last name of each file: tracepoints do not report the exact time of a rename.
    for event in events {
        let (file, name) = match &event.action {
            Action::Create(create) => (&create.file, &create.name),
            Action::Bind { file, name } | Action::Link { file, name } => (file, name),
            Action::Rename { file, names } => (file, &names.to),
            _ => continue,
        };
        names.extend(name.strip_prefix(&prefix).map(|name| (*file, name.to_owned())));
    }
    for event in events {
        match &event.action {
            Action::Rename { names: moved, .. } => {
                done.renamed.extend(moved.to.strip_prefix(&prefix).map(str::to_owned));
            }
            Action::Unbind { name, .. } => {
                done.unlinked.extend(name.strip_prefix(&prefix).map(str::to_owned));
            }
            Action::Read { file, offset, len, .. } if names.contains_key(file) && *len > 0 => {
                let name = names[file].clone();
                done.bytes.entry(name.clone()).or_default()[0] += len;
                done.read.entry(name).or_default().extend(pages(*offset, *len));
            }
            Action::Write { file, offset, len, .. } if names.contains_key(file) => {
                let name = names[file].clone();
                done.bytes.entry(name.clone()).or_default()[1] += len;
                done.written.entry(name).or_default().extend(pages(*offset, *len));
            }
            Action::Sync { file, .. } => done.synced.extend(names.get(file).cloned()),
            _ => {}
        }
    }
    done
}

fn both(exact: bool) -> Option<(Done, Done)> {
    let ext4 = mounted("ext4")?;
    if !has("strace") || !has("sqlite3") {
        return skip("strace or sqlite3 is not installed");
    }
    let folder = ext4.directory("here");
    let lines = ext4.point().join("strace");
    // A database in each journal mode, and files that are written, renamed and read.
    let script = "set -e
        for mode in DELETE TRUNCATE WAL; do
          (echo \"PRAGMA journal_mode=$mode; CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB);\"
           for n in $(seq 40); do echo \"INSERT INTO t(b) VALUES (randomblob(${n}00));\"; done
           echo 'UPDATE t SET b = zeroblob(5000) WHERE a % 7 = 3; SELECT length(b) FROM t;
                DELETE FROM t WHERE a > 20;'
          ) | sqlite3 $mode.db > /dev/null
        done
        cat *.db > copy; mv copy moved; cat moved > /dev/null; cp moved other; rm other";
    let mut command = Command::new("strace");
    command.args([
        "-f",
        "-ttt",
        "-y",
        "-s",
        "0",
        "-e",
        "trace=%file,%desc,%process,msync,munmap,mremap,sync,syncfs",
    ]);
    command.arg("-o").arg(&lines).args(["--", "sh", "-c", script]).current_dir(&folder);
    let (events, _) = recorded(command, &folder, exact);
    let mut kept = Kept::default();
    open::read(&lines, Some("strace"), &mut kept, &Limits::default()).unwrap();
    run(Command::new("sync").arg("-f").arg(ext4.point()));
    Some((done(&events, &folder), done(&kept.events, &folder)))
}

/// Removes accesses that strace cannot see: SQLite's index of its log is shared memory.
fn but_shared_memory<T: Clone>(files: &BTreeMap<String, T>) -> BTreeMap<String, T> {
    files
        .iter()
        .filter(|(name, _)| !name.ends_with("-shm"))
        .map(|(name, t)| (name.clone(), t.clone()))
        .collect()
}

// Promises: Record 4.
#[test]
fn strace_and_tracepoints_see_the_same_pages_of_the_same_files() {
    let Some((ours, strace)) = both(false) else { return };
    assert!(ours.read.len() >= 4 && ours.synced.len() >= 4 && !ours.renamed.is_empty(), "{ours:?}");
    assert_eq!(but_shared_memory(&ours.read), but_shared_memory(&strace.read));
    assert_eq!(but_shared_memory(&ours.written), but_shared_memory(&strace.written));
    assert_eq!(ours.synced, strace.synced);
    assert_eq!(ours.renamed, strace.renamed);
    assert_eq!(ours.unlinked, strace.unlinked);
}

// Promises: Record 4.
#[test]
fn strace_and_exact_recordings_count_the_same_bytes() {
    let Some((ours, strace)) = both(true) else { return };
    let [ours, strace] = [ours.bytes, strace.bytes].map(|bytes| but_shared_memory(&bytes));
    let total = |bytes: &BTreeMap<String, [u64; 2]>| bytes.values().flatten().sum::<u64>();
    let apart = total(&ours).abs_diff(total(&strace)) as f64 / total(&strace) as f64;
    assert!(apart <= 0.001, "{apart}: {ours:?} {strace:?}");
    assert_eq!(ours.keys().collect::<Vec<_>>(), strace.keys().collect::<Vec<_>>());
}
