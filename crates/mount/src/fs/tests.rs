//! The file system as a whole: its modules, and the order of its events.

use crate::{Access, Caller, Config, Fs, ROOT, Store};
use flashsift_events::event::Action;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

fn fs(folder: &tempfile::TempDir) -> Fs {
    fs_with(folder, Config::default())
}

fn fs_with(folder: &tempfile::TempDir, config: Config) -> Fs {
    for name in ["backing", "store"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let backing = std::fs::File::open(folder.path().join("backing")).unwrap();
    let store = Store::in_dir(&folder.path().join("store")).unwrap();
    Fs::new(backing.into(), store, config).unwrap()
}

fn caller() -> Caller {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Caller { uid, gid, tid: 0, umask: 0 }
}

/// Recording a read took a global lock twice, and finding its file took another: readers of
/// different files waited for one another, and for every process that listed a directory.
// Promises: Mount 50.
#[test]
fn a_read_waits_for_no_global_lock() {
    let folder = tempfile::tempdir().unwrap();
    let fs = fs(&folder);
    let (_, open, _) = fs.create(&caller(), ROOT, OsStr::new("a"), 0o644, 0).unwrap();
    fs.write(Access::default(), open, 0, b"bytes").unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let _table = fs.table();
        let _stream = fs.decider.stream.lock();
        let _counters = fs.counters.lock();
        let _making_room = fs.mover.making_room.lock();
        let _processes = fs.decider.processes.lock();
        scope.spawn(|| {
            let mut bytes = [0; 10];
            sender.send(fs.read(Access::default(), open, 0, &mut bytes).unwrap()).unwrap();
        });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(5), "the read waits");
    });
}

/// The queue is bounded: more events than it holds are delivered by the threads that add them,
/// and none is lost or out of order.
// Promises: Mount 49.
#[test]
fn more_events_than_the_queue_holds_arrive_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let fs = fs(&folder);
    let seen: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let into = seen.clone();
    fs.observe(move |event| {
        if let Action::Write { file, offset, .. } = event.action {
            into.lock().unwrap().push((file.0, offset));
        }
    });
    const EACH: u64 = 2 * super::decider::QUEUE as u64;
    let opens =
        ["a", "b"].map(|name| fs.create(&caller(), ROOT, OsStr::new(name), 0o644, 0).unwrap().1);
    thread::scope(|scope| {
        for open in opens {
            let fs = &fs;
            scope.spawn(move || {
                for offset in 0..EACH {
                    fs.write(Access::default(), open, offset, b"x").unwrap();
                }
            });
        }
    });
    fs.deliver_events();
    let seen = seen.lock().unwrap();
    for file in [0, 1] {
        let offsets = seen.iter().filter(|(of, _)| *of == file).map(|(_, offset)| *offset);
        assert!(offsets.eq(0..EACH), "file {file}");
    }
}

/// Only on demand does an event give the meaning of a cache file, before each close in RAM.
// Promises: Mount 85.
#[test]
fn an_event_gives_the_meaning_of_a_file_on_demand() {
    for tells_meaning in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let fs = fs_with(&folder, Config { tells_meaning, ..Config::default() });
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let into = seen.clone();
        fs.observe(move |event| match &event.action {
            Action::Meaning { what, third_party, .. } => {
                into.lock().unwrap().push(format!("{what} {third_party}"));
            }
            Action::Close { .. } => into.lock().unwrap().push("close".to_owned()),
            _ => {}
        });
        for name in ["rand-0.8.5.crate", "other", "serde-1.0.200.crate"] {
            let (_, open, _) = fs.create(&caller(), ROOT, OsStr::new(name), 0o644, 0).unwrap();
            if name != "serde-1.0.200.crate" {
                fs.write(Access::default(), open, 0, b"bytes").unwrap();
            }
            fs.release(0, open);
        }
        fs.deliver_events();
        let told = seen.lock().unwrap().join(", ");
        let meaning = if tells_meaning { "cargo, package false, " } else { "" };
        assert_eq!(told, format!("{meaning}close, close, close"));
    }
}

/// The modules of the file system: [`Fs`] and its operations above, objects that do not know it
/// below. Each module uses only modules that come before it.
const MODULES: &[&str] = &[
    // Names, numbers, and the system calls of one kind.
    "types beneath volume flash_state caller temporary drops copying recovery descriptors",
    // A file, and the places where files are kept.
    "store delayed_file waiting residence opens decider writes backing reservation table failures",
    // The objects.
    "namespace temps delayed mover",
    // The file system and its operations.
    "fs open_files group_names readers attributes directories sifting xattrs",
];

/// The file system was a circle of 19 modules around one object: none could be read, tested or
/// changed without all others.
#[test]
fn a_module_uses_only_modules_below_it() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let order: Vec<&str> = MODULES.iter().flat_map(|line| line.split(' ')).collect();
    let place = |module: &str| order.iter().position(|known| *known == module);
    let mut left = vec![root.join("fs.rs"), root.join("fs")];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let below = path.strip_prefix(&root).unwrap().with_extension("");
        let parts: Vec<&str> = below.iter().map(|part| part.to_str().unwrap()).collect();
        if parts.last() == Some(&"tests") {
            continue;
        }
        let module = *parts.get(1).unwrap_or(&"fs");
        seen.insert(module.to_owned());
        let at = place(module).unwrap_or_else(|| panic!("{module} is in no line of MODULES"));
        let text = std::fs::read_to_string(&path).unwrap();
        let uses = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
        for line in uses.filter_map(|line| line.trim_start_matches("pub ").strip_prefix("use ")) {
            let above = "super::".repeat(parts.len() - 1);
            let here = if module == "fs" { "self::" } else { &above };
            let Some(used) = line.strip_prefix("crate::fs::").or(line.strip_prefix(here)) else {
                continue;
            };
            let used = used.split([':', ';']).next().unwrap();
            let used = if used == "Fs" { "fs" } else { used };
            let used_at = place(used).unwrap_or_else(|| panic!("{module} uses {used}"));
            assert!(used_at < at || used == module, "{module} uses {used}, which is above it");
        }
    }
    assert_eq!(seen.len(), order.len(), "a module of MODULES is gone");
}
