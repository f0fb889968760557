//! A program with known accesses runs under the real strace, and the reader of its output finds
//! exactly these accesses.

use flashsift_events::event::{Action, Event, FileId};
use flashsift_testbed::skip;
use flashsift_traces::{
    events::{Events, Kept, Skipped},
    format,
    input::Input,
    open,
};
use std::{
    collections::{HashMap, HashSet},
    path::Path,
    process::{Command, Stdio},
};

fn read(mut text: &[u8]) -> (Vec<Event<'static>>, Skipped) {
    let spec = format::named("strace").expect("it is one of the formats");
    assert_eq!(
        format::detected(&text[..text.len().min(format::HEAD_BYTES)]).expect("known").name,
        "strace"
    );
    let mut kept = Kept::default();
    let mut events = Events::new(&mut kept);
    (spec.read)(&mut Input::new(&mut text), &mut events).expect("readable");
    let summary = events.finish().expect("the sink takes all");
    let knows = kept.about.expect("a reader describes its trace").knows;
    assert!(knows.syncs && knows.writes && knows.removals && knows.opens && knows.names);
    (kept.events, summary.skipped)
}

/// Reads the files of `strace -ff`.
fn read_files(trace: &Path) -> (Vec<Event<'static>>, Skipped) {
    let mut kept = Kept::default();
    let outcome = open::read(trace, None, &mut kept, &open::Limits::default()).expect("readable");
    (kept.events, outcome.skipped)
}

/// Returns the events of files that ever had a name below `directory`, with letters for files and
/// relative names.
fn lines_of(events: &[Event<'static>], directory: &str) -> Vec<String> {
    let ours: HashSet<FileId> = events
        .iter()
        .filter_map(|event| match &event.action {
            Action::Bind { file, name } | Action::Link { file, name }
                if name.starts_with(directory) =>
            {
                Some(*file)
            }
            Action::Create(create) if create.name.starts_with(directory) => Some(create.file),
            _ => None,
        })
        .collect();
    let mut letters: HashMap<FileId, char> = HashMap::new();
    let mut lines = Vec::new();
    for event in events {
        let mut letter = |file: &FileId| {
            let next = char::from(b'A' + letters.len() as u8);
            ours.contains(file).then(|| *letters.entry(*file).or_insert(next))
        };
        let short = |name: &str| {
            name.strip_prefix(directory)
                .map_or(name, |name| name.trim_start_matches('/'))
                .replace('\n', "\\n")
        };
        let line = match &event.action {
            Action::Read { file, offset, len, .. } => {
                letter(file).map(|f| format!("read {f} {offset} {len}"))
            }
            Action::Write { file, offset, len, sync, .. } => letter(file)
                .map(|f| format!("write{} {f} {offset} {len}", if *sync { "sync" } else { "" })),
            Action::Sync { file, offset, len: u64::MAX, .. } => {
                letter(file).map(|f| format!("sync {f} {offset} max"))
            }
            Action::Sync { file, offset, len, .. } => {
                letter(file).map(|f| format!("sync {f} {offset} {len}"))
            }
            Action::SyncAll => Some("syncall".to_owned()),
            Action::Truncate { file, size } => letter(file).map(|f| format!("truncate {f} {size}")),
            Action::Punch { file, offset, len } => {
                letter(file).map(|f| format!("punch {f} {offset} {len}"))
            }
            Action::Open { file, created, .. } => {
                letter(file).map(|f| format!("open {f}{}", if *created { " created" } else { "" }))
            }
            Action::Close { file, .. } => letter(file).map(|f| format!("close {f}")),
            Action::Create(create) => letter(&create.file).map(|f| {
                let mode = create.mode.map_or("?".to_owned(), |mode| format!("{mode:o}"));
                let sync = if create.sync { " sync" } else { "" };
                format!("create {f} {mode}{sync} {}", short(&create.name)).trim_end().to_owned()
            }),
            Action::Bind { file, name } => {
                letter(file).map(|f| format!("bind {f} {}", short(name)))
            }
            Action::Link { file, name } => {
                letter(file).map(|f| format!("link {f} {}", short(name)))
            }
            Action::RenameDirectory { names } => {
                Some(format!("rename directory {} {}", short(&names.from), short(&names.to)))
            }
            Action::Rename { file, names } => letter(file)
                .map(|f| format!("rename {f} {} {}", short(&names.from), short(&names.to))),
            Action::Unbind { file, name } => {
                letter(file).map(|f| format!("unbind {f} {}", short(name)))
            }
            Action::Gone { file } => letter(file).map(|f| format!("gone {f}")),
            Action::Direct { file, offset, len, write, .. } => letter(file).map(|f| {
                format!("direct {} {f} {offset} {len}", if *write { "write" } else { "read" })
            }),
            Action::Process { .. } => None,
            other => panic!("strace gives no {other:?}"),
        };
        lines.extend(line);
    }
    lines
}

fn found(program: &str) -> Option<String> {
    let script = match program {
        "python3" => "python3 -c 'import sys; print(sys.executable)'",
        _ => "command -v strace && strace -o /dev/null true",
    };
    let out = Command::new("sh").args(["-c", script]).stderr(Stdio::null()).output().ok()?;
    let path = String::from_utf8(out.stdout).ok()?.lines().next()?.to_owned();
    out.status.success().then_some(path)
}

// Promises: Counting 6, Counting 7, Traces 21.
#[test]
fn the_accesses_of_a_program_under_the_real_strace_are_read() {
    let (Some(strace), Some(python)) = (found("strace"), found("python3")) else {
        return skip("strace, or the right to trace, or python3 is not here");
    };
    // Not in /tmp, which may lack O_TMPFILE and fallocate.
    let home = tempfile::Builder::new()
        .prefix("strace-test-")
        .tempdir_in("/var/tmp")
        .expect("a directory");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strace/program.py");
    // The program first runs without strace: if this kernel or file system lacks a call, it fails.
    let (alone, nowhere) = (home.path().join("alone"), home.path().join("nowhere"));
    std::fs::create_dir(&alone).expect("a directory");
    let run = Command::new(&python)
        .arg("-IS")
        .arg(&program)
        .arg(&alone)
        .arg(&nowhere)
        .output()
        .expect("python runs");
    if !run.status.success() {
        eprintln!(
            "skipped: the program fails without strace: {}",
            String::from_utf8_lossy(&run.stderr)
        );
        return;
    }
    let options: [&[&str]; 10] = [
        &["-f", "-ttt", "-y"],
        &["-f", "-ttt"],
        &["-f", "-tt", "-yy"],
        &["-f", "-y", "-s", "0"],
        &["-f", "-r", "-T"],
        &["-f", "-ttt", "-y", "-xx"],
        &["-f", "-ttt", "-r", "-X", "raw"],
        &["-f", "-ttt", "-X", "verbose"],
        &["-ff", "-ttt"],
        &["-f", "-ttt", "-q", "stderr"],
    ];
    for (n, options) in options.iter().enumerate() {
        let directory = home.path().join(format!("work{n}"));
        std::fs::create_dir(&directory).expect("a directory");
        let trace = home.path().join(format!("trace{n}"));
        let report = home.path().join("report");
        let mut command = Command::new(&strace);
        // Without -o the lines come with [pid N] or without a prefix, mixed with strace's remarks.
        let to_stderr = options.last() == Some(&"stderr");
        command.args(options.iter().filter(|&&option| option != "stderr"));
        if !to_stderr {
            command.arg("-o").arg(&trace);
        }
        command.arg(&python).arg("-IS").arg(&program).arg(&directory).arg(&report);
        let out = command.output().expect("strace runs");
        assert!(out.status.success(), "{options:?}: {}", String::from_utf8_lossy(&out.stderr));
        let text = match (options[0], to_stderr) {
            ("-ff", _) => Vec::new(),
            (_, true) => out.stderr,
            _ => std::fs::read(&trace).expect("a trace"),
        };
        let (events, skipped) = match options[0] {
            "-ff" => read_files(&trace),
            _ => read(&text),
        };
        let expected = std::fs::read_to_string(&report).expect("a report");
        let directory = directory.canonicalize().expect("it is there");
        let lines = lines_of(&events, directory.to_str().expect("a plain name"));
        if lines != expected.lines().collect::<Vec<_>>() {
            let kept = std::env::temp_dir().join("flashsift-strace-test.trace");
            std::fs::write(&kept, &text).expect("room");
            let at = lines
                .iter()
                .zip(expected.lines())
                .position(|(a, b)| a != b)
                .unwrap_or(lines.len().min(expected.lines().count()));
            panic!(
                "{options:?}, trace kept at {}: at {at}\nfound    {:#?}\nexpected {:#?}",
                kept.display(),
                &lines[at.saturating_sub(3)..(at + 6).min(lines.len())],
                expected.lines().skip(at.saturating_sub(3)).take(9).collect::<Vec<_>>()
            );
        }
        let damage = skipped
            .iter()
            .filter(|(reason, r)| r.damage && !reason.contains("opened before the trace"))
            .map(|(reason, r)| (reason, r.count))
            .collect::<Vec<_>>();
        assert_eq!(damage, [], "{options:?}: {skipped}");
    }
}
