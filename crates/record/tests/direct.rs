//! `O_DIRECT` requests of a recording reach the simulated device as they reached the real one.

use crate::common::{mounted, recorded, run};
use flashsift_caches::{
    policy,
    trace::{TraceBuilder, Unit},
};
use flashsift_events::{
    event::{About, Action, Knows, Side, Space},
    io::{Io, IoOp},
};
use flashsift_pages::{layout, system::Cell, writeback::Modes};
use flashsift_testbed::Disk;
use std::process::Command;

/// Requests and 512-byte sectors that a block device has read and written.
fn done(disk: &Disk) -> [u64; 4] {
    let fields = disk.device().stat();
    [fields[0], fields[2], fields[4], fields[6]]
}

/// Writes in place and reads, past the cache: the block layer counts as many requests and bytes as
/// the simulated device gets. Nothing else writes meanwhile: the journal is committed later, and
/// tables of inodes are not initialised. A `sync` of the test beside it once committed the journal
/// all the same, 4 writes too many: `checks/suite` runs this test alone.
// Promises: Counting 12.
#[test]
fn direct_requests_are_those_of_the_block_layer() {
    let Some(ext4) = mounted("ext4") else { return };
    let folder = ext4.directory("here");
    ext4.remount("commit=600,noinit_itable").unwrap();
    let file = folder.join("file");
    std::fs::write(&file, vec![1; 16 << 20]).unwrap();
    // The extents of the file are read before the requests are counted.
    let dd = |from: &str, to: &str, flags: &str| {
        format!("dd if={from} of={to} bs=64k count=40 {flags} status=none")
    };
    let read = dd("file", "/dev/null", "iflag=direct");
    run(Command::new("sh").args(["-c", &format!("sync -f .; {read}")]).current_dir(&folder));
    let write = dd("/dev/zero", "file", "oflag=direct conv=notrunc seek=7");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("set -e; {write}; {read}")]).current_dir(&folder);
    let before = done(&ext4);
    let (events, recorded) = recorded(command, &folder, false);
    let after = done(&ext4);
    assert!(recorded.status.unwrap().success());

    let knows = Knows { times: true, writes: true, removals: true, ..Knows::NOTHING };
    let about =
        About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX);
    builder.extend(&events).unwrap();
    let trace = builder.finish().unwrap();
    let (policy, layout) =
        (policy::Selection::parse("lru").unwrap(), layout::Selection::parse("ext4").unwrap());
    let cell = Cell {
        system: &flashsift_pages::system::PLAIN,
        policy: &policy,
        frames: 16,
        layout: &layout,
        writeback: Modes::default(),
        drain: true,
        write_miss_reads: false,
        request_pages_max: 128,
        discards: true,
        metadata: None,
        readahead: None,
        attribution: None,
        lines: None,
        reads: None,
    };
    let mut requests = [0; 4];
    let mut take = |io: Io| {
        let of = match io.op {
            IoOp::Read => 0,
            IoOp::Write => 2,
            IoOp::Flush | IoOp::Discard => panic!("neither was recorded: {io:?}"),
        };
        assert!(io.awaited, "{io:?}");
        requests[of] += 1;
        requests[of + 1] += u64::from(io.pages) * 8;
    };
    let outcome = cell.run(&trace, None, Some(&mut take));
    assert_eq!((outcome.direct_reads, outcome.direct_writes), (640, 640));
    assert_eq!((outcome.accesses(), outcome.device.reads, outcome.device.writes), (0, 640, 640));
    let real: Vec<u64> = before.iter().zip(after).map(|(before, after)| after - before).collect();
    assert_eq!(requests[..], real[..], "requests and sectors, read and written");
}

/// The first direct write of 512 bytes of a block that held nothing reaches the device as a block:
/// the kernel fills the rest with zeros, as at the end of a file. MariaDB, whose log has its blocks
/// beforehand, wrote 0.14 MiB so where a recording said 0.10.
// Promises: Counting 12.
#[test]
fn direct_writes_reach_the_device_with_the_zeros_around_them() {
    let Some(ext4) = mounted("ext4") else { return };
    ext4.remount("commit=600,noinit_itable").unwrap();
    let folder = ext4.directory("here");
    let prepare = "fallocate -l 64k there; fallocate -l 64k kept; truncate -s 64k holes
        dd if=/dev/urandom of=old bs=4k count=16 status=none; : > new; sync -f .";
    run(Command::new("sh").args(["-c", prepare]).current_dir(&folder));
    // By file: sectors written, one call each. The second one of a block finds it written.
    let writes = [
        ("there", &[0, 1, 7, 8, 23, 40, 41][..]),
        ("kept", &[3, 4, 5]),
        ("holes", &[9, 8, 31]),
        ("old", &[0, 1, 17]),
        ("new", &[0, 1, 2, 3, 8, 9]),
    ];
    let write = |(file, sectors): &(&str, &[u32])| {
        sectors
            .iter()
            .map(|sector| {
                format!(
                    "dd if=/dev/zero of={file} bs=512 count=1 seek={sector} oflag=direct \
                        conv=notrunc status=none\n"
                )
            })
            .collect::<String>()
    };
    // Some cover two blocks in part: both empty; the second one empty, as when MariaDB's log goes
    // on; the first one empty.
    let more =
        [("kept", 15 << 10, "3k"), ("there", 8192 - 512, "1k"), ("kept", 12_288 - 512, "1k")]
            .map(|(file, at, len)| {
                format!(
                    "dd if=/dev/zero of={file} bs={len} count=1 seek={at} oflag=direct,seek_bytes \
                    conv=notrunc status=none\n"
                )
            })
            .concat();
    let script = format!("set -e\n{}{more}", writes.iter().map(write).collect::<String>());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(&folder);
    let before = done(&ext4);
    let (events, recorded) = recorded(command, &folder, false);
    let after = done(&ext4);
    assert!(recorded.status.unwrap().success());

    let mut bytes = [0; 2];
    for event in &events {
        match event.action {
            Action::Direct { len, write: true, .. } => bytes[0] += len,
            Action::Filled { len, .. } => bytes[1] += len,
            _ => {}
        }
    }
    let sectors = writes.iter().map(|(_, sectors)| sectors.len() as u64).sum::<u64>() + 6 + 2 + 2;
    assert_eq!(bytes[0], 512 * sectors);
    assert_eq!(bytes[0] + bytes[1], 512 * (after[3] - before[3]), "{bytes:?}");
}
