//! `O_DIRECT` requests of a recording reach the simulated device as they reached the real one.

use crate::common::{Ext4, recorded, run};
use flashsift_core::{
    back::{Io, IoOp},
    event::{About, Knows, Side, Space},
    layout, policy,
    system::Cell,
    trace::{TraceBuilder, Unit},
    writeback::Modes,
};
use std::process::Command;

/// Requests and 512-byte sectors that a block device has read and written.
fn done(device: &str) -> [u64; 4] {
    let name = device.rsplit('/').next().unwrap();
    let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    let fields: Vec<u64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
    [fields[0], fields[2], fields[4], fields[6]]
}

/// Writes in place and reads, past the cache: the block layer counts as many requests and bytes as
/// the simulated device gets. Nothing else writes meanwhile: the journal is committed later, and
/// tables of inodes are not initialised. A `sync` of the test beside it once committed the journal
/// all the same, 4 writes too many: `checks/suite` runs this test alone.
// Promises: Counting 12.
#[test]
fn direct_requests_are_those_of_the_block_layer() {
    let Some(ext4) = Ext4::new("direct_requests_are_those_of_the_block_layer") else { return };
    let folder = ext4.folder("here");
    run(Command::new("mount").args(["-o", "remount,commit=600,noinit_itable"]).arg(ext4.path()));
    let file = folder.join("file");
    std::fs::write(&file, vec![1; 16 << 20]).unwrap();
    // The extents of the file are read before the requests are counted.
    let dd = |from: &str, to: &str, flags: &str| {
        format!("dd if={from} of={to} bs=64k count=40 {flags} status=none")
    };
    let read = dd("file", "/dev/null", "iflag=direct");
    run(Command::new("sh").args(["-c", &format!("sync -f .; {read}")]).current_dir(&folder));
    let device = run(Command::new("findmnt").args(["-n", "-o", "SOURCE", "-T"]).arg(&folder));
    let write = dd("/dev/zero", "file", "oflag=direct conv=notrunc seek=7");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("set -e; {write}; {read}")]).current_dir(&folder);
    let before = done(device.trim());
    let (events, recorded) = recorded(command, &folder, false);
    let after = done(device.trim());
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
        system: &flashsift_core::system::PLAIN,
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
