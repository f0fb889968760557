//! The iologs of the real fio are read, and the real fio replays our iologs. Skipped, by name, if
//! fio is not installed.

use flashsift_events::{
    event::{Action, Knows, Side, Space},
    io::{Cause, Io, IoOp},
};
use flashsift_testbed::{has, skip};
use flashsift_traces::{events::Kept, fio_log::FioLog, open};
use std::{fs, path::Path, process::Command};

/// Returns fio's output, or `None` if fio is not installed.
fn fio(folder: &Path, arguments: &[&str]) -> Option<String> {
    if !has("fio") {
        return skip("fio is not installed");
    }
    let output = Command::new("fio").args(arguments).current_dir(folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    Some(text)
}

#[test]
fn the_iolog_of_fio_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let job =
        ["--name=j", "--filename=a:b", "--size=64k", "--bs=4k", "--rw=randrw", "--fdatasync=4"];
    let log = ["--write_iolog=log", "--rate_iops=400", "--randseed=7"];
    if fio(folder.path(), &[&job[..], &log].concat()).is_none() {
        return;
    }
    let mut kept = Kept::default();
    let outcome =
        open::read(&folder.path().join("log"), None, &mut kept, &open::Limits::default()).unwrap();
    assert_eq!(outcome.format, "fio-iolog-3");
    assert_eq!((outcome.about.side, outcome.about.space), (Side::Before, Space::Files));
    assert_eq!((outcome.skipped.total(), outcome.accesses), (0, 16), "16 blocks over two files");
    let count = |is: fn(&Action) -> bool| kept.events.iter().filter(|e| is(&e.action)).count();
    assert!(count(|a| matches!(a, Action::Sync { .. })) > 0);
    assert_eq!(count(|a| matches!(a, Action::Bind { .. })), 2);
    assert_eq!(
        count(|a| matches!(a, Action::Open { .. })),
        count(|a| matches!(a, Action::Close { .. }))
    );
    // 400 requests per second and direction: 16 of each take at least 20 ms if times are
    // microseconds.
    let last_us = kept.events.last().unwrap().at_us;
    assert!((10_000..10_000_000).contains(&last_us), "{last_us}");
}

fn our_log(target: &str) -> Vec<u8> {
    let knows = Knows { times: true, syncs: true, writes: true, removals: false, ..Knows::NOTHING };
    let mut log = FioLog::new(Vec::new(), target, knows).unwrap();
    let io = |at_us, op, lba, pages, sync| Io {
        at_us,
        op,
        lba,
        pages,
        sync,
        awaited: sync,
        cause: Cause::default(),
    };
    for io in [
        io(0, IoOp::Read, 0, 1, false),
        io(1_000, IoOp::Write, 8, 32, true),
        io(1_000, IoOp::Write, 64, 1, true),
        io(1_000, IoOp::Flush, 0, 0, true),
        io(300_000, IoOp::Write, 3, 2, false),
        io(300_000, IoOp::Read, 100, 5000, false),
    ] {
        log.request(&io).unwrap();
    }
    log.finish().unwrap()
}

#[test]
fn fio_replays_our_iolog() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("log"), our_log("scratch")).unwrap();
    fs::File::create(folder.path().join("scratch")).unwrap().set_len(32 << 20).unwrap();
    let job = ["--name=j", "--ioengine=psync", "--read_iolog=log", "--output-format=terse"];
    let Some(timed) = fio(folder.path(), &job) else { return };
    // Terse fields 5 and 8 are the KiB read and the milliseconds it took; 46 and 49 those of
    // writes.
    let field = |n: usize| timed.trim().split(';').nth(n).unwrap().parse::<u64>().unwrap();
    assert_eq!((field(5), field(46)), (4 * 5001, 4 * 35), "{timed}");
    assert!((290..5000).contains(&field(8)), "replayed in microseconds: {timed}");
    fio(folder.path(), &[&job[..], &["--replay_no_stall=1"]].concat()).unwrap();
}

#[test]
fn our_own_log_reads_back() {
    let log = our_log("/dev/scratch");
    assert_eq!(
        String::from_utf8(log.clone()).unwrap(),
        "fio version 3 iolog
0 /dev/scratch add
0 /dev/scratch open
0 /dev/scratch read 0 4096
1000 /dev/scratch write 32768 131072
1000 /dev/scratch write 262144 4096
1000 /dev/scratch datasync 0 0
300000 /dev/scratch write 12288 8192
300000 /dev/scratch read 409600 16777216
300000 /dev/scratch read 17186816 3702784
300000 /dev/scratch close
"
    );
    let mut kept = Kept::default();
    let outcome =
        open::read_stream(&log[..], None, None, &mut kept, &open::Limits::default()).unwrap();
    assert_eq!(
        (outcome.about.space, outcome.accesses, outcome.skipped.total()),
        (Space::Blocks, 6, 0)
    );
}

#[test]
fn a_trace_that_fio_cannot_replay_is_refused() {
    let knows =
        Knows { times: false, syncs: false, writes: true, removals: false, ..Knows::NOTHING };
    let error = FioLog::new(Vec::new(), "a", knows).unwrap_err().to_string();
    assert!(error.contains("--rate"), "{error}");
    let knows = Knows { times: true, ..knows };
    for name in ["", "a b", &"x".repeat(300)] {
        assert!(FioLog::new(Vec::new(), name, knows).is_err(), "{name}");
    }
}
