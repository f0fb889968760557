//! Stores through mappings, held against the block layer.

use crate::common::{built, mounted, recorded, run};
use flashsift_events::{
    event::{Action, Event},
    page::PAGE_BYTES,
};
use flashsift_files::flusher::{Flusher, FlusherSettings};
use std::{path::Path, process::Command};

const SIZE: u64 = 4 << 20;
const STORES: u64 = 20;
const APART: u64 = 200_000;

/// The pages that the device of this file system was given to write.
fn written_pages(at: &Path) -> u64 {
    run(Command::new("sync").arg("-f").arg(at));
    let device = run(Command::new("findmnt").args(["-n", "-o", "SOURCE", "-T"]).arg(at));
    let name = device.trim().rsplit('/').next().unwrap();
    let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    let sectors: u64 = text.split_whitespace().nth(6).unwrap().parse().unwrap();
    sectors * 512 / PAGE_BYTES
}

/// The pages that the simulated flusher writes.
fn predicted_pages(events: &[Event<'static>]) -> u64 {
    let mut flusher = Flusher::new(FlusherSettings::default());
    events.iter().for_each(|event| flusher.handle(event));
    flusher.written().all() + flusher.dirty_pages()
}

/// Records `stores`, and compares the pages predicted with those of the device, which include up
/// to `metadata` pages of the file system itself. A file that is made by one large write has large
/// folios: of twenty stores into one on ext4, the device got 11,269 pages, and 1,065 were
/// predicted. The last case is a file that was in the page cache before.
fn stores_are_those_of_the_device(kind: &str, metadata: u64) {
    let Some(disk) = mounted(kind) else { return };
    let folder = disk.directory("here");
    let program = built("stores", &folder);
    for bytes in [SIZE, PAGE_BYTES, 64 << 10, 0] {
        let file = folder.join(format!("file-{bytes}"));
        if bytes == 0 {
            std::fs::write(&file, vec![1; SIZE as usize]).unwrap();
        }
        let before = written_pages(&folder);
        let mut command = Command::new(&program);
        command.arg(&file).arg(bytes.to_string());
        let (events, recorded) = recorded(command, &folder, false);
        let device = written_pages(&folder) - before;
        assert!(recorded.status.unwrap().success());

        let stores: Vec<u64> = events
            .windows(2)
            .filter_map(|pair| match (&pair[0].action, &pair[1].action) {
                (Action::Write { offset, len: PAGE_BYTES, .. }, Action::Folio { .. }) => {
                    Some(*offset)
                }
                _ => None,
            })
            .collect();
        // A folio of one page has no event.
        let all: Vec<u64> = (0..STORES).map(|n| n * APART / PAGE_BYTES * PAGE_BYTES).collect();
        assert!(stores.is_empty() || stores == all, "{kind} {bytes}: {stores:?}");
        let predicted = predicted_pages(&events);
        let most = predicted + predicted * 3 / 100 + metadata;
        println!("{kind}, {bytes} bytes: {predicted} pages predicted, {device} at the device");
        assert!(
            (predicted..=most).contains(&device),
            "{kind}, written by {bytes} bytes: {predicted} pages predicted, {device} at the device"
        );
    }
}

// Promises: Record 28.
#[test]
fn stores_dirty_the_folios_of_ext4() {
    stores_are_those_of_the_device("ext4", 200);
}

// Promises: Record 28.
#[test]
fn stores_dirty_the_folios_of_xfs() {
    stores_are_those_of_the_device("xfs", 600);
}

/// Each sync of a file writes nodes of the log tree, of 16 KiB and twice.
// Promises: Record 28.
#[test]
fn stores_dirty_the_pages_of_btrfs() {
    stores_are_those_of_the_device("btrfs", 2000);
}

/// A program that made names durable by syncs of their directory was recorded without them, and
/// each is a commit of the journal.
// Promises: Record 29.
#[test]
fn syncs_of_directories_are_recorded() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(disk) = mounted(kind) else {
            continue;
        };
        let folder = disk.directory("here");
        std::fs::create_dir(folder.join("old")).unwrap();
        let mut command = Command::new("sh");
        let script =
            "set -e; cd \"$0\"; mkdir new; >old/a; sync old; >new/b; sync new/b new; sync .";
        command.args(["-c", script]).arg(&folder);
        let (events, _) = recorded(command, &folder, false);
        let synced: Vec<&str> = events
            .iter()
            .filter_map(|event| match &event.action {
                Action::SyncDirectory { path } => path.strip_prefix(folder.to_str().unwrap()),
                _ => None,
            })
            .collect();
        assert_eq!(synced, ["/old", "/new", ""], "{kind}");
    }
}

/// A file that was written on XFS or btrfs once had no row in the trace, and no message said so.
// Promises: Record 30.
#[test]
fn files_on_xfs_and_btrfs_are_recorded() {
    for kind in ["xfs", "btrfs"] {
        let Some(disk) = mounted(kind) else {
            continue;
        };
        let folder = disk.directory("here");
        std::fs::write(folder.join("old"), vec![1; 5000]).unwrap();
        // On btrfs, a write to a page that is dirty is not seen.
        run(Command::new("sync").arg("-f").arg(&folder));
        let script = "set -e; cd \"$0\"
            head -c 100000 /dev/zero >g; cat g old >/dev/null; sync g; mv g h; rm h
            printf 0123456789 >>old; sleep 0.2";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&folder);
        let (events, _) = recorded(command, &folder, false);
        let lives = crate::common::lives(&events, &folder);
        let bytes = |file: &str, what: &str| -> u64 {
            let of_kind = lives[file].iter().filter_map(|line| line.strip_prefix(what));
            of_kind.map(|place| place.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        let pages = |bytes: u64| bytes.div_ceil(PAGE_BYTES);
        assert_eq!(pages(bytes("g", "write ")), 25, "{kind}: {lives:?}");
        assert_eq!(pages(bytes("g", "read ")), 25, "{kind}: {lives:?}");
        let changes = |file: &str| -> Vec<String> {
            let is_access =
                |line: &&String| line.starts_with("write ") || line.starts_with("read ");
            lives[file].iter().filter(|line| !is_access(line)).cloned().collect()
        };
        assert_eq!(changes("g"), ["created", "sync", "rename g h", "unlink h", "gone"], "{kind}");
        let old: Vec<&str> = lives["old"].iter().map(String::as_str).collect();
        let wanted = match kind {
            "xfs" => ["read 0 5000", "write 5000 10"],
            // Known to the page.
            _ => ["read 0 5000", "write 4096 4096"],
        };
        assert_eq!(old, wanted, "{kind}");
    }
}
