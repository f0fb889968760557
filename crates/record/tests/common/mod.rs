//! A file system for a test, and a description of the events recorded on it.

use flashsift_events::event::{Action, Event, FileId};
use flashsift_record::{Options, Recorded, Stop, Subject, record};
use flashsift_testbed::{Disk, FileSystem, is_root, or_skip, output};
use flashsift_traces::events::Kept;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

/// A file system that can be recorded; `None`, with a line on standard output, where that is not
/// permitted.
pub(crate) fn mounted(kind: &str) -> Option<Disk> {
    if !is_root("recording") {
        return None;
    }
    // ext4 would fill its tables of inodes with zeros in the background.
    let options = if kind == "ext4" { "noinit_itable" } else { "defaults" };
    or_skip(Disk::mounted(&FileSystem::new(kind, 1 << 30), options))
}

/// Standard output of a program that succeeds.
pub(crate) fn run(command: &mut Command) -> String {
    output(command).unwrap()
}

/// Builds the C program of this name, which lies next to the tests, into `folder`.
pub(crate) fn built(name: &str, folder: &Path) -> PathBuf {
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(format!("{name}.c"));
    run(Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(source));
    program
}

/// Never ends the recording early.
pub(crate) struct ToTheEnd;

impl Stop for ToTheEnd {
    fn now(&mut self, _: u64) -> bool {
        false
    }
}

/// Records the accesses of a program below a directory.
pub(crate) fn recorded(
    command: Command,
    under: &Path,
    exact: bool,
) -> (Vec<Event<'static>>, Recorded) {
    let mut kept = Kept::default();
    let options = Options { under: Some(under.to_owned()), exact, buffer_kib: 32 << 10 };
    let recorded = record(Subject::Command(command), &options, &mut kept, &mut ToTheEnd).unwrap();
    assert_eq!(recorded.lost.by_cpu, [], "records were lost");
    (kept.events, recorded)
}

/// The events of each file in words, in order, under the file's first name.
pub(crate) type Lives = BTreeMap<String, Vec<String>>;

/// Returns the events of all files that ever had a name below `folder`.
pub(crate) fn lives(events: &[Event<'static>], folder: &Path) -> Lives {
    let prefix = format!("{}/", folder.display());
    let mut names: BTreeMap<FileId, String> = BTreeMap::new();
    let mut lives = Lives::new();
    let short = |name: &str| name.strip_prefix(&prefix).map(str::to_owned);
    // All names that files have now.
    let mut now: BTreeSet<(FileId, String)> = BTreeSet::new();
    for event in events {
        match &event.action {
            Action::Create(create) => {
                now.insert((create.file, create.name.to_string()));
            }
            Action::Bind { file, name } | Action::Link { file, name } => {
                now.insert((*file, name.to_string()));
            }
            Action::Rename { file, names } => {
                now.remove(&(*file, names.from.to_string()));
                now.insert((*file, names.to.to_string()));
            }
            Action::Unbind { file, name } => {
                now.remove(&(*file, name.to_string()));
            }
            Action::RenameDirectory { names: moved } => {
                let within = format!("{}/", moved.from);
                let below: Vec<_> =
                    now.iter().filter(|(_, name)| name.starts_with(&within)).cloned().collect();
                for (file, from) in below {
                    let to = format!("{}/{}", moved.to, &from[within.len()..]);
                    if let (Some(from), Some(to), Some(first)) =
                        (short(&from), short(&to), names.get(&file))
                    {
                        let life = lives.get_mut(first).expect("it was named");
                        life.push(format!("rename {from} {to}"));
                    }
                    now.remove(&(file, from));
                    now.insert((file, to));
                }
            }
            _ => {}
        }
        let (file, line) = match &event.action {
            Action::Create(create) => {
                // A file that was gone at once could not be looked at.
                assert!(create.mode.is_none_or(|mode| mode & !0o777 == 0), "{create:?}");
                if let Some(name) = short(&create.name) {
                    names.insert(create.file, name.clone());
                    lives.insert(name, vec!["created".to_owned()]);
                }
                continue;
            }
            Action::Link { file, name } => match short(name) {
                Some(name) => (file, format!("link {name}")),
                None => continue,
            },
            Action::Bind { file, name } => match (names.contains_key(file), short(name)) {
                (_, None) => continue,
                (true, Some(name)) => (file, format!("link {name}")),
                (false, Some(name)) => {
                    names.insert(*file, name.clone());
                    lives.insert(name, Vec::new());
                    continue;
                }
            },
            Action::Read { file, offset, len, .. } => (file, format!("read {offset} {len}")),
            Action::Write { file, offset, len, sync: false, .. } => {
                (file, format!("write {offset} {len}"))
            }
            Action::Write { file, offset, len, sync: true, .. } => {
                (file, format!("write {offset} {len} sync"))
            }
            Action::Direct { file, offset, len, write: true, .. } => {
                (file, format!("direct write {offset} {len}"))
            }
            Action::Direct { file, offset, len, write: false, .. } => {
                (file, format!("direct read {offset} {len}"))
            }
            Action::Sync { file, .. } => (file, "sync".to_owned()),
            Action::Truncate { file, size } => (file, format!("truncate {size}")),
            Action::Punch { file, offset, len } => (file, format!("punch {offset} {len}")),
            Action::Rename { file, names } => match (short(&names.from), short(&names.to)) {
                (Some(from), Some(to)) => (file, format!("rename {from} {to}")),
                _ => continue,
            },
            Action::Unbind { file, name } => match short(name) {
                Some(name) => (file, format!("unlink {name}")),
                None => continue,
            },
            Action::Gone { file } => (file, "gone".to_owned()),
            Action::Open { .. }
            | Action::Close { .. }
            | Action::SyncAll
            | Action::SyncDirectory { .. }
            | Action::Folio { .. }
            | Action::Filled { .. }
            | Action::Process { .. }
            | Action::Size { .. }
            | Action::RenameDirectory { .. }
            | Action::Place { .. }
            | Action::ControlGroup { .. }
            | Action::TimeToLive { .. }
            | Action::MemoryPressure { .. } => continue,
            other => panic!("a recording has no {other:?}"),
        };
        if let Some(name) = names.get(file) {
            lives.get_mut(name).expect("it was named").push(line);
        }
    }
    lives
}

/// Returns the pages that reads touch, to compare reads exact to the byte with reads exact to the
/// page.
pub(crate) fn pages(lives: &Lives) -> BTreeMap<String, Vec<u64>> {
    let of = |lines: &Vec<String>| {
        let mut pages: Vec<u64> =
            lines.iter().filter_map(|line| line.strip_prefix("read ")).flat_map(touched).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    };
    lives.iter().map(|(name, lines)| (name.clone(), of(lines))).collect()
}

fn touched(place: &str) -> std::ops::RangeInclusive<u64> {
    let (offset, len) = place.split_once(' ').unwrap();
    let (offset, len): (u64, u64) = (offset.parse().unwrap(), len.parse().unwrap());
    offset / 4096..=(offset + len - 1) / 4096
}
