//! flashsift under another kernel: Debian's, emulated, with F2FS on an SD card. `boot` says how the guest sees this machine.

use flashsift_core::event::{About, Action, Event, FileId};
use flashsift_traces::{
    Error,
    events::Sink,
    open::{self, Limits, Outcome},
};
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What a guest takes: the programs, and the kernel that `make test` unpacks. `None`, and said by name, where it is absent.
fn guest(test: &str) -> Option<PathBuf> {
    let found = |program: &&str| {
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        path.split(':').any(|directory| Path::new(directory).join(program).exists())
    };
    let missing = ["qemu-system-x86_64", "mkfs.f2fs"].into_iter().find(|program| !found(program));
    let home = std::env::var_os("FLASHSIFT_GUEST")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest"), PathBuf::from);
    match missing {
        Some(program) => println!("SKIPPED guest::{test}: {program} is not installed"),
        None if !home.join("initrd").exists() => {
            println!("SKIPPED guest::{test}: no Debian kernel was unpacked to {}", home.display());
        }
        None => return Some(home),
    }
    None
}

/// Runs the bash script in a guest of its own whose card has that file system; the directory is its /out. False if no guest
/// stayed awake: qemu 7.2, emulating, now and then loses a wake-up, and the guest sleeps for good.
fn run(guest: &Path, file_system: &str, out: &Path, script: &str) -> bool {
    fs::write(out.join("command"), script).unwrap();
    let boot = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/boot");
    const TIMED_OUT: i32 = 124;
    let once =
        || Command::new(&boot).arg(guest).arg(file_system).arg(out).stdin(Stdio::null()).output().unwrap();
    let Some(console) = (0..2).map(|_| once()).find(|console| console.status.code() != Some(TIMED_OUT))
    else {
        return false;
    };
    let status = fs::read_to_string(out.join("status")).unwrap_or_else(|_| "none".to_owned());
    assert_eq!(
        status.trim(),
        "0",
        "the guest says:\n{}{}",
        String::from_utf8_lossy(&console.stdout),
        String::from_utf8_lossy(&console.stderr)
    );
    true
}

/// Events of a trace that say what was asked for, in order; a file goes by the first name it was known by, below /flash.
fn recorded(trace: &Path) -> (Vec<String>, Outcome) {
    struct Kept(Vec<Event>);
    impl Sink for Kept {
        fn about(&mut self, about: About) -> Result<(), Error> {
            assert!(about.knows.times && about.knows.writes && about.knows.syncs && about.knows.removals);
            Ok(())
        }
        fn events(&mut self, events: &[Event]) -> Result<(), Error> {
            self.0.extend_from_slice(events);
            Ok(())
        }
    }
    let mut kept = Kept(Vec::new());
    let outcome = open::read(trace, None, &mut kept, &Limits::default()).unwrap();

    let short = |name: &str| name.trim_start_matches("/flash/").to_owned();
    let mut first_names: HashMap<FileId, String> = HashMap::new();
    let mut told = Vec::new();
    for event in kept.0 {
        if let Action::Bind { file, name } = &event.action {
            first_names.entry(*file).or_insert_with(|| short(name));
        }
        let of = |file: &FileId| first_names.get(file).cloned().unwrap_or_else(|| "?".to_owned());
        told.push(match &event.action {
            Action::Read { file, offset, len } => format!("read {} {offset} {len}", of(file)),
            Action::Write { file, offset, len, .. } => format!("write {} {offset} {len}", of(file)),
            Action::Direct { file, offset, len, write: false } => {
                format!("direct read {} {offset} {len}", of(file))
            }
            Action::Direct { file, offset, len, write: true } => {
                format!("direct write {} {offset} {len}", of(file))
            }
            Action::Sync { file, .. } => format!("sync {}", of(file)),
            Action::Truncate { file, size } => format!("truncate {} {size}", of(file)),
            Action::Punch { file, offset, len } => format!("punch {} {offset} {len}", of(file)),
            Action::Bind { file, name } => format!("bind {} {}", of(file), short(name)),
            Action::Rename { file, names } => format!("rename {} to {}", of(file), short(&names.to)),
            Action::Unbind { file, name } => format!("unbind {} {}", of(file), short(name)),
            Action::Gone { file } => format!("gone {}", of(file)),
            Action::SyncAll | Action::Open { .. } | Action::Close { .. } | Action::Process { .. } => continue,
        });
    }
    (told, outcome)
}

/// What `accesses` does.
const DONE: &[&str] = &[
    "bind a a",
    "write a 0 5000",
    "write a 5000 5000",
    "sync a",
    "read a 0 4096",
    "read a 4096 4096",
    "read a 3000 3000",
    "read a 6000 3000",
    "write a 3000 100",
    "write a 10000 4",
    "truncate a 3050",
    "bind direct direct",
    "direct write direct 0 8192",
    "direct read direct 0 8192",
    "punch direct 4096 4096",
    // The program `fallocate` does that before it closes.
    "sync direct",
    "rename a to below/b",
    "bind a c",
    "unbind a below/b",
    "unbind a c",
    "gone a",
    "bind replacing replacing",
    "write replacing 0 1",
    "bind replaced replaced",
    "write replaced 0 2",
    "unbind replaced replaced",
    "gone replaced",
    "rename replacing to replaced",
    "read replacing 0 1",
    "bind mapped mapped",
    "write mapped 0 40960",
    "sync mapped",
    // Stores through a mapping are exact to the page.
    "write mapped 8192 4096",
    "write mapped 28672 4096",
    "sync mapped",
];

/// The two things whose order a recording keeps: what was done to contents, of all files together, and the names of each
/// file. Between the two it may differ, because names come another way than accesses: after `mv x y`, y's old file may be
/// gone before or after x is told to be y.
fn contents_and_names(events: &[String]) -> (Vec<&str>, BTreeMap<&str, Vec<&str>>) {
    let (mut contents, mut names) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
    for event in events {
        let (what, rest) = event.split_once(' ').unwrap();
        if !["bind", "rename", "unbind"].contains(&what) {
            contents.push(&event[..]);
        }
        if ["bind", "rename", "unbind", "gone"].contains(&what) {
            names.entry(rest.split(' ').next().unwrap()).or_default().push(&event[..]);
        }
    }
    (contents, names)
}

/// Records `accesses` in a guest: the events, what was left out or guessed, and what the recorder said.
fn record(test: &str, guest: &Path, file_system: &str) -> Option<(Vec<String>, Vec<String>, String)> {
    let out = tempfile::tempdir().unwrap();
    let script = format!(
        "{} record -o /out/t.parquet -- bash -e {} 2> /out/says",
        env!("CARGO_BIN_EXE_flashsift"),
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/accesses").display()
    );
    if !run(guest, file_system, out.path(), &script) {
        println!("SKIPPED guest::{test}: the emulated guest fell asleep twice");
        return None;
    }
    let (told, outcome) = recorded(&out.path().join("t.parquet"));
    let origin = outcome.origin.expect("a recording says where it comes from");
    let skipped = origin.skipped.iter().map(|(reason, _)| reason.to_owned()).collect();
    Some((told, skipped, fs::read_to_string(out.path().join("says")).unwrap()))
}

/// Everything, also where the cache answers, at the end of a file and through a mapping.
#[test]
fn f2fs_is_recorded_exactly() {
    let Some(guest) = guest("f2fs_is_recorded_exactly") else { return };
    let Some((told, skipped, _)) = record("f2fs_is_recorded_exactly", &guest, "f2fs") else { return };
    let done: Vec<_> = DONE.iter().map(|&event| event.to_owned()).collect();
    assert_eq!(contents_and_names(&told), contents_and_names(&done));
    assert!(skipped.is_empty(), "{skipped:?}");
}

/// A write as ext4 tells it where the cache takes single pages: one after the other, the call's borders lost.
fn by_page(event: &str) -> Vec<String> {
    let ["write", name, offset, len] = event.split(' ').collect::<Vec<_>>()[..] else {
        return vec![event.to_owned()];
    };
    let [start, len]: [u64; 2] = [offset, len].map(|number| number.parse().unwrap());
    let end = start + len;
    let pages = start / 4096..end.div_ceil(4096);
    pages
        .map(|page| (start.max(page * 4096), end.min((page + 1) * 4096)))
        .map(|(from, to)| format!("write {name} {from} {}", to - from))
        .collect()
}

/// Before Linux 6.12 nothing tells that a file of ext4 is read: that is said, and all else is recorded.
#[test]
fn ext4_of_an_old_kernel_is_recorded_but_for_reads() {
    let Some(guest) = guest("ext4_of_an_old_kernel_is_recorded_but_for_reads") else { return };
    const TEST: &str = "ext4_of_an_old_kernel_is_recorded_but_for_reads";
    let Some((told, _, says)) = record(TEST, &guest, "ext4") else { return };
    if !says.contains("no tracepoint for buffered reads") {
        println!(
            "SKIPPED guest::ext4_of_an_old_kernel_is_recorded_but_for_reads: Debian's kernel tells reads here"
        );
        return;
    }
    let visible = DONE.iter().filter(|event| !event.starts_with("read ")).flat_map(|event| by_page(event));
    let visible: Vec<_> = visible.collect();
    assert_eq!(contents_and_names(&told), contents_and_names(&visible));
}
