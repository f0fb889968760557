//! Promises for recordings of hours: the state does not grow with deleted files, and no event waits
//! forever.

use super::{
    super::{Dev, EnteredCall, Handle, Inode, Mapping, Name, NameKind, Point, Pointer, What},
    Host, NoHost, TracepointMachine,
};
use flashsift_events::event::{Action, Event, FileOwner};
use std::collections::BTreeMap;

const DIR: u64 = 2;

fn inode(ino: u64) -> Inode {
    Inode { dev: Dev::new(8, 1), ino }
}

fn name(at_ns: u64, ino: u64, generation: u32, path: &str, kind: NameKind) -> Name {
    let handle = Handle { inode: inode(ino), generation };
    Name { at_ns, tid: 7, handle, dir: DIR, path: path.into(), directory: false, kind }
}

fn feed(machine: &mut TracepointMachine, at_ns: u64, what: What) {
    machine.point(&Point { at_ns, tid: 7, what }, &mut NoHost);
}

/// One millisecond in the life of a file: created, written, and deleted, with a name or without
/// one.
fn life(machine: &mut TracepointMachine, n: u64, named: bool) {
    let (ino, start_ns) = (100 + n % 10, n * 1_000_000);
    let (path, generation) = (format!("/tmp/{n}"), n as u32);
    feed(
        machine,
        start_ns,
        What::Allocated { inode: inode(ino), dir: Some(DIR), mode: Some(0o100_644) },
    );
    if named {
        machine.name(name(start_ns + 1000, ino, generation, &path, NameKind::Created));
    }
    feed(machine, start_ns + 2000, What::WriteBegin { inode: inode(ino), offset: 0, len: 10 });
    feed(machine, start_ns + 3000, What::WriteEnd { inode: inode(ino), offset: 0, copied: 10 });
    if named {
        machine.name(name(start_ns + 4000, ino, generation, &path, NameKind::Deleted));
        feed(machine, start_ns + 5000, What::Unlink { inode: inode(ino), dir: Some(DIR) });
    }
    feed(machine, start_ns + 6000, What::Evicted { inode: inode(ino), links: 0 });
}

/// Chromium unlinks its temporary files, opens them with `O_TRUNC` while they are empty, and writes
/// to them. ext4 writes all of their pages at the close, though the file ends with it. The
/// recording knew neither the cut nor the close, so that on a staged machine a tenth of Chromium's
/// writes was missing.
// Promises: Record 24.
#[test]
fn a_cut_of_an_empty_file_and_its_close_are_told() {
    for (cut, removes) in [(true, false), (true, true), (false, false)] {
        let told = cut;
        let mut machine = TracepointMachine::new(false);
        let file = inode(100);
        feed(
            &mut machine,
            0,
            What::Allocated { inode: file, dir: Some(DIR), mode: Some(0o100_600) },
        );
        if cut {
            feed(&mut machine, 1000, What::TruncateBegin { inode: file, size: None });
            // Linux 6.18 removes the extents of an empty file, too.
            if removes {
                let blocks = u64::from(u32::MAX);
                feed(&mut machine, 1050, What::Cut { inode: file, block: 0, blocks });
            }
            feed(&mut machine, 1100, What::TruncateEnd { inode: file });
        }
        feed(&mut machine, 2000, What::WriteBegin { inode: file, offset: 0, len: 10 });
        feed(&mut machine, 3000, What::WriteEnd { inode: file, offset: 0, copied: 10 });
        feed(&mut machine, 4000, What::Hurried { inode: file });
        // A new name, or another close: nothing was cut since.
        feed(&mut machine, 5000, What::Hurried { inode: file });
        feed(&mut machine, 6000, What::Evicted { inode: file, links: 0 });
        // The end of a file cuts it, too.
        feed(&mut machine, 6100, What::TruncateBegin { inode: file, size: None });
        feed(&mut machine, 6200, What::TruncateEnd { inode: file });
        let mut wanted = vec!["create 0 \"\""];
        wanted.extend(told.then_some("truncate 0 0"));
        wanted.push("write 0 0 0 10");
        wanted.extend(told.then_some("close 0 0"));
        wanted.push("gone 0");
        assert_eq!(emitted(&mut machine), wanted);
    }
}

/// journald cuts its file to the size that it has after each message, so that programs that watch
/// the file see that it has written. ext4 lists the file in its superblock meanwhile, so each
/// commit has one more block. Such a cut was not recorded.
// Promises: Record 24.
#[test]
fn a_cut_to_the_same_size_is_told() {
    for (size, block, told) in [(8192, 2, true), (8193, 3, true), (8192, 3, false)] {
        let mut machine = TracepointMachine::new(false);
        let file = inode(100);
        let (dir, mode) = (Some(DIR), Some(0o100_600));
        feed(&mut machine, 0, What::Allocated { inode: file, dir, mode });
        feed(&mut machine, 1000, What::WriteBegin { inode: file, offset: 0, len: size });
        feed(&mut machine, 2000, What::WriteEnd { inode: file, offset: 0, copied: size });
        feed(&mut machine, 3000, What::TruncateBegin { inode: file, size: None });
        feed(&mut machine, 3100, What::Cut { inode: file, block, blocks: u64::from(u32::MAX) });
        feed(&mut machine, 3200, What::TruncateEnd { inode: file });
        let mut wanted = vec!["create 0 \"\"".to_owned(), format!("write 0 0 0 {size}")];
        wanted.extend(told.then(|| format!("truncate 0 {size}")));
        assert_eq!(emitted(&mut machine), wanted, "{size} {block}");
    }
}

/// ext4's journal thread makes pages dirty again that have no place yet when it commits. These once
/// counted as stores of `jbd2` to the first page of each folio.
// Promises: Record 23.
#[test]
fn pages_that_the_kernel_makes_dirty_again_are_no_stores() {
    for (program, stores) in [("jbd2/sda1-8", 0), ("kworker/u8:1-flush-8:0", 0), ("editor", 1)] {
        let mut machine = TracepointMachine::new(false);
        machine.only_devs([(Dev::new(8, 1), 4096)]);
        machine.found_task(7, 7, program);
        machine.found_task(8, 8, "writer");
        let mut at = |tid, at_ns, what| machine.point(&Point { at_ns, tid, what }, &mut NoHost);
        at(8, 0, What::WriteBegin { inode: inode(100), offset: 0, len: 10 });
        at(8, 1000, What::WriteEnd { inode: inode(100), offset: 0, copied: 10 });
        at(7, 2000, What::Dirtied { inode: inode(100), page: 3 });
        machine.finish();
        let events: Vec<_> = machine.drain().collect();
        let by = |pid| {
            let writes = |event: &&Event<'_>| matches!(event.action, Action::Write { .. });
            events.iter().filter(writes).filter(|event| event.pid == pid).count()
        };
        assert_eq!((by(8), by(7)), (1, stores), "{program}: {events:?}");
    }
}

// Promises: Record 12.
#[test]
fn the_state_does_not_grow_with_deleted_files() {
    for named in [true, false] {
        let mut machine = TracepointMachine::new(false);
        // The Debug output covers all of the state.
        let state = |machine: &TracepointMachine| format!("{machine:?}").len();
        let mut after = |lives: std::ops::Range<u64>| {
            for n in lives {
                life(&mut machine, n, named);
                assert!(
                    machine.drain().any(|event| matches!(event.action, Action::Gone { .. })),
                    "life {n}"
                );
            }
            state(&machine)
        };
        // Ended files stay known for two seconds: 2000 lives, and a few thousand points.
        let once = after(0..65_536);
        let twice = after(65_536..131_072);
        assert!(twice < once * 5 / 4, "{once} and then {twice}, named: {named}");
    }
}

#[test]
fn a_name_moves_though_nothing_else_happens() {
    let mut machine = TracepointMachine::new(false);
    machine.name(name(0, 100, 1, "/tmp/0", NameKind::Found { size: 10 }));
    feed(&mut machine, 10, What::Pages { inode: inode(100), first: 0, last: 0 });
    machine.drain();
    for n in 1..=1000 {
        let from = format!("/tmp/{}", n - 1).into();
        machine.name(name(
            n * 100,
            100,
            1,
            &format!("/tmp/{n}"),
            NameKind::Moved { from_dir: DIR, from },
        ));
    }
    machine.passed(50_000);
    let moves = |machine: &mut TracepointMachine| -> Vec<String> {
        let to = |event: Event| match event.action {
            Action::Rename { names, .. } => names.to.to_string(),
            other => panic!("{other:?}"),
        };
        machine.drain().map(to).collect()
    };
    let expected = |range: std::ops::RangeInclusive<u32>| -> Vec<_> {
        range.map(|n| format!("/tmp/{n}")).collect()
    };
    assert_eq!(moves(&mut machine), expected(1..=500));
    machine.finish();
    assert_eq!(moves(&mut machine), expected(501..=1000));
}

/// Chromium and others start their own program again by this name.
// Promises: Record 22.
#[test]
fn a_program_that_runs_itself_keeps_its_name() {
    let mut machine = TracepointMachine::new(false);
    machine.found_task(7, 7, "browser");
    feed(&mut machine, 1, What::NewTask { tid: 8, flags: 0, name: "browser".into() });
    machine.point(
        &Point {
            at_ns: 2,
            tid: 8,
            what: What::Exec { program: "/proc/self/exe".into(), old_tid: 8 },
        },
        &mut NoHost,
    );
    machine.point(
        &Point { at_ns: 3, tid: 8, what: What::Pages { inode: inode(100), first: 0, last: 0 } },
        &mut NoHost,
    );
    let names = machine.drain().filter_map(|event| match event.action {
        Action::Process { name } => Some((event.pid, name)),
        _ => None,
    });
    assert_eq!(names.collect::<Vec<_>>(), [(8, "browser".into())]);
}

/// Processes from before the trace, a child that has ended before it could be asked, and one that
/// has moved.
// Promises: Record 22.
#[test]
fn a_process_is_in_its_own_control_group_or_its_parents() {
    struct Groups;
    impl Host for Groups {
        fn size(&mut self, _: Handle) -> Option<u64> {
            None
        }
        fn owner_and_mode(&mut self, _: Handle) -> Option<(FileOwner, u32)> {
            None
        }
        fn control_group(&mut self, pid: u32) -> Option<String> {
            (pid == 9).then(|| "/user.slice/app.scope".into())
        }
    }
    let mut machine = TracepointMachine::new(false);
    machine.found_task(7, 7, "cron");
    machine.found_group(7, "/system.slice/cron.service");
    machine.found_task(10, 10, "init");
    machine.found_group(10, "/");
    let mut at = |at_ns, tid, what| machine.point(&Point { at_ns, tid, what }, &mut Groups);
    at(1, 7, What::NewTask { tid: 8, flags: 0, name: "job".into() });
    at(2, 7, What::NewTask { tid: 9, flags: 0, name: "app".into() });
    for tid in [7, 8, 9, 10, 8] {
        at(3, tid, What::Pages { inode: inode(100), first: 0, last: 0 });
        at(4, tid, What::Pages { inode: inode(200), first: 0, last: 0 });
    }
    machine.finish();
    let groups = machine.drain().filter_map(|event| match event.action {
        Action::ControlGroup { path } => Some((event.pid, path.to_string())),
        _ => None,
    });
    let expected = [
        (7, "/system.slice/cron.service"),
        (8, "/system.slice/cron.service"),
        (9, "/user.slice/app.scope"),
    ];
    assert!(groups.eq(expected.map(|(pid, path)| (pid, path.to_owned()))));
}

/// A program begins four direct writes of a file before the first one ends, each in two steps, and
/// another thread sees the ends in another order. One access of a file was remembered, so that the
/// other three counted as reads of no program: `doctor` saw 1.2 of 4.7 MiB that fio wrote through
/// io_uring.
#[test]
fn direct_accesses_of_one_file_overlap() {
    let mut machine = TracepointMachine::new(false);
    let file = inode(100);
    let mut at = |tid, what| {
        machine.point(&Point { at_ns: 1000, tid, what }, &mut NoHost);
    };
    let step = |offset, len, write| What::DirectStep { inode: file, offset, len, write };
    for start in [0, 1 << 20, 2 << 20, 3 << 20] {
        let write = start != 2 << 20;
        // The kernel knows no length at the beginning of a file.
        at(7, step(start, if start == 0 { 0 } else { 8192 }, write));
        at(7, step(start + 4096, 4096, write));
    }
    // It has the place of another one, and fails.
    at(8, step(1 << 20, 8192, true));
    let end = |start: u64, moved| What::DirectEnd {
        inode: file,
        end: start + u64::try_from(moved).unwrap_or(0),
        moved,
    };
    for (start, moved) in
        [(3 << 20, 8192), (0, 4096), (1 << 20, -5), (1 << 20, 8192), (2 << 20, 8192)]
    {
        at(9, end(start, moved));
    }
    machine.finish();
    let told: Vec<_> = machine
        .drain()
        .filter_map(|event| match event.action {
            Action::Direct { offset, len, write, .. } => {
                Some((event.tid, offset >> 20, len, write))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        told,
        [(7, 3, 8192, true), (7, 0, 4096, true), (7, 1, 8192, true), (7, 2, 8192, false)]
    );
}

/// Each step of an access but the first one, and the beginning of a file, has no length in Linux
/// 6.18. It was taken for another access, so that what the kernel fills with zeros behind the first
/// block of a request was not counted: a third of what MariaDB's log writes.
#[test]
fn blocks_that_hold_nothing_belong_to_the_access_of_their_step() {
    let mut machine = TracepointMachine::new(false);
    let file = inode(100);
    let mut at = |what| machine.point(&Point { at_ns: 1000, tid: 7, what }, &mut NoHost);
    let step = |offset, len| What::DirectStep { inode: file, offset, len, write: true };
    let blank = |block: u64| What::Blank { inode: file, offset: block * 4096, len: 4096 };
    let end = |end, moved| What::DirectEnd { inode: file, end, moved };
    // In two blocks, of which the second one is empty; in a written one; two at once.
    for what in [step(7680, 1024), step(8192, 0), blank(2), step(8704, 0), end(8704, 1024)] {
        at(what);
    }
    for what in [step(8704, 512), step(9216, 0), end(9216, 512)] {
        at(what);
    }
    for what in [step(0, 0), blank(0), step(512, 0), step(40_960, 512), blank(10), step(41_472, 0)]
    {
        at(what);
    }
    at(end(41_472, 512));
    at(end(512, 512));
    machine.finish();
    let told: Vec<_> = machine
        .drain()
        .filter_map(|event| match event.action {
            Action::Direct { offset, len, .. } => Some(("direct", offset, len)),
            Action::Filled { offset, len, .. } => Some(("filled", offset, len)),
            _ => None,
        })
        .collect();
    let wanted = [
        ("direct", 7680, 1024),
        ("filled", 8704, 3584),
        ("direct", 8704, 512),
        ("direct", 40_960, 512),
        ("filled", 41_472, 3584),
        ("direct", 0, 512),
        ("filled", 512, 3584),
    ];
    assert_eq!(told, wanted);
}

/// The sync of a directory that existed before the trace was once one of a file without a name: a
/// quarter of SQLite's syncs in one recording.
// Promises: Traces 29.
#[test]
fn a_sync_of_an_older_directory_is_left_out() {
    struct Directories(u32);
    impl Host for Directories {
        fn size(&mut self, _: Handle) -> Option<u64> {
            None
        }
        fn owner_and_mode(&mut self, _: Handle) -> Option<(FileOwner, u32)> {
            None
        }
        fn is_directory(&mut self, inode: Inode) -> Option<bool> {
            self.0 += 1;
            [(100, true), (200, false)]
                .into_iter()
                .find(|(ino, _)| *ino == inode.ino)
                .map(|is| is.1)
        }
    }
    let mut machine = TracepointMachine::new(false);
    let mut host = Directories(0);
    for ino in [100, 200, 300, 100, 200] {
        let what = What::Sync { inode: inode(ino), data_only: false };
        machine.point(&Point { at_ns: 1, tid: 7, what }, &mut host);
    }
    machine.finish();
    let synced = machine.drain().filter_map(|event| match event.action {
        Action::Sync { .. } => Some("file"),
        Action::SyncDirectory { .. } => Some("directory"),
        _ => None,
    });
    let synced: Vec<_> = synced.collect();
    assert_eq!(synced.iter().filter(|what| **what == "file").count(), 3);
    assert_eq!(synced.len(), 5);
    assert_eq!(host.0, 3, "each file is looked up once");
}

/// A host whose page cache holds one folio of eight pages, from page 512 on.
struct Cached(u32);

impl Host for Cached {
    fn size(&mut self, _: Handle) -> Option<u64> {
        None
    }
    fn owner_and_mode(&mut self, _: Handle) -> Option<(FileOwner, u32)> {
        None
    }
    fn folios(&mut self, _: Handle, first: u64, take: &mut dyn FnMut(u64, u64)) -> bool {
        self.0 += 1;
        if first == 512 {
            take(512, 8);
        }
        true
    }
}

/// The tracepoint of a page that becomes dirty tells one page of a folio, whose pages the kernel
/// then writes all.
// Promises: Record 28.
#[test]
fn a_store_tells_the_folio_of_its_page() {
    const START: u64 = 0x7000_0000;
    let (file, mut host) = (inode(100), Cached(0));
    let mut machine = TracepointMachine::new(false);
    let mut at_ns = 0;
    let mut point = |machine: &mut TracepointMachine, what| {
        at_ns += 1000;
        machine.point(&Point { at_ns, tid: 7, what }, &mut host);
    };
    let map = Mapping {
        start: START,
        end: START + (4 << 20),
        inode: Some(file),
        offset: 0,
        shared: true,
    };
    let store = |page: u64| What::UserFault { address: START + page * 4096, write: true };
    let mut told = |machine: &mut TracepointMachine, points: Vec<What>| {
        points.into_iter().for_each(|what| point(machine, what));
        emitted(machine)
    };
    let write = |page: u64| format!("write 0 0 {} 4096", page * 4096);
    let folio = |page: u64, pages: u64| format!("folio 0 {} {}", page * 4096, pages * 4096);

    let made = What::Allocated { inode: file, dir: Some(DIR), mode: Some(0o100_600) };
    let grown = What::TruncateBegin { inode: file, size: Some(3 << 20) };
    let mapped = What::Map { pid: 7, mapping: map };
    let added = |first, pages| What::Added { inode: file, first, pages };
    let removed = |first, pages| What::Removed { inode: file, first, pages };
    told(&mut machine, vec![made, grown, mapped, added(16, 16), added(32, 4)]);
    assert_eq!(told(&mut machine, vec![store(20)]), [write(20), folio(16, 16)]);
    assert_eq!(told(&mut machine, vec![store(35)]), [write(35), folio(32, 4)]);
    // A folio of one page has no event, and the host is not asked about a new file.
    assert_eq!(told(&mut machine, vec![store(36)]), [write(36)]);
    // The kernel reads an absent page before it makes it dirty.
    let absent = vec![store(70), added(64, 8), What::Dirtied { inode: file, page: 64 }];
    assert_eq!(told(&mut machine, absent), [write(70), folio(64, 8)]);
    // The next page of a folio that is dirty.
    assert_eq!(told(&mut machine, vec![store(71)]), [write(71), folio(64, 8)]);
    assert_eq!(told(&mut machine, vec![removed(16, 16), store(20)]), [write(20)]);
    // The end of the file cuts what is written of a folio, and splits it when it moves there.
    let last = vec![added(760, 16), store(761)];
    assert_eq!(told(&mut machine, last), [write(761), folio(760, 8)]);
    let cut = What::TruncateBegin { inode: file, size: Some(66 * 4096) };
    // The machine cannot see into which ones, and a host may answer.
    assert_eq!(told(&mut machine, vec![cut, store(65)])[1..], [write(65), folio(65, 0)]);
    let dirtied = What::Dirtied { inode: file, page: 65 };
    assert_eq!(told(&mut machine, vec![dirtied]), Vec::<String>::new());
}

/// The page cache holds files from before the recording, which no tracepoint tells.
// Promises: Record 28.
#[test]
fn the_host_is_asked_for_folios_from_before_the_recording() {
    let (file, mut host) = (inode(100), Cached(0));
    let mut machine = TracepointMachine::new(false);
    let mut stored = |machine: &mut TracepointMachine, page| {
        let what = What::Dirtied { inode: file, page };
        machine.point(&Point { at_ns: 1, tid: 7, what }, &mut host);
        (emitted(machine).last().cloned().unwrap(), host.0)
    };
    let folio = |page: u64, pages: u64| format!("folio 0 {} {}", page * 4096, pages * 4096);
    // Without a handle, it cannot be asked.
    assert_eq!(stored(&mut machine, 513), (folio(513, 0), 0));
    assert!(machine.skipped().to_string().contains("whose folio is unknown"));
    machine.name(name(1, 100, 1, "/old", NameKind::Found { size: 4 << 20 }));
    assert_eq!(stored(&mut machine, 513), (folio(512, 8), 1));
    assert_eq!(stored(&mut machine, 514), (folio(512, 8), 1));
    // Once for 512 pages.
    assert_eq!(stored(&mut machine, 600), ("write 0 0 2457600 4096".to_owned(), 1));
    assert_eq!(stored(&mut machine, 700), ("write 0 0 2867200 4096".to_owned(), 1));
    assert_eq!(stored(&mut machine, 3), ("write 0 0 12288 4096".to_owned(), 2));
    machine.without_folios();
    assert_eq!(stored(&mut machine, 3), (folio(3, 0), 2));
}

/// XFS and btrfs report neither that they allocate an inode nor its last name: fanotify tells
/// both.
// Promises: Record 30.
#[test]
fn a_file_without_a_report_of_its_inode_begins_and_ends_with_its_names() {
    let mut machine = TracepointMachine::new(false);
    machine.without_allocations(Dev::new(8, 1));
    let file = inode(100);
    for n in 1..3 {
        machine.name(name(10 * n, 100, n as u32, "/a", NameKind::Created));
        feed(&mut machine, 10 * n + 1, What::Written { inode: file, offset: 5, len: 10 });
        feed(&mut machine, 10 * n + 2, What::Dirtied { inode: file, page: 0 });
        // The kernel needs the memory.
        feed(&mut machine, 10 * n + 3, What::Inactive { inode: file });
        machine.name(name(10 * n + 9, 100, n as u32, "/a", NameKind::Deleted));
        feed(&mut machine, 10 * n + 5, What::Inactive { inode: file });
    }
    let life = |n: u64| {
        ["create N \"/a\"", "write N 0 5 10", "unbind N /a", "gone N"]
            .map(|line| line.replace('N', &n.to_string()))
    };
    assert_eq!(emitted(&mut machine), [life(0), life(1)].concat());
}

/// Chromium asks for sizes all the time, and XFS and btrfs then write data at once. Recordings had
/// no truncation on btrfs, and on XFS none that makes a file longer or leaves it as it is.
// Promises: Record 30.
#[test]
fn truncations_on_xfs_and_btrfs_are_told() {
    let mut machine = TracepointMachine::new(false);
    let (file, other) = (inode(100), inode(101));
    machine.without_allocations(file.dev);
    machine.name(name(1, 100, 1, "/a", NameKind::Created));
    machine.name(name(2, 101, 1, "/b", NameKind::Created));
    let cut = |inode, size| What::TruncateBegin { inode, size: Some(size) };
    for (n, what) in [
        What::Written { inode: file, offset: 0, len: 10 },
        What::SetAttr { inode: file },
        What::Grows { inode: file, size: 9000 },
        What::SetAttr { inode: file },
        cut(file, 9000),
        // XFS frees blocks behind the end.
        cut(file, 9000),
        // A write behind the end.
        What::Grows { inode: file, size: 9500 },
        What::SetAttr { inode: other },
        What::Grows { inode: file, size: 9700 },
    ]
    .into_iter()
    .enumerate()
    {
        feed(&mut machine, 10 + n as u64, what);
    }
    let told = ["write 0 0 0 10", "truncate 0 9000", "truncate 0 9000"];
    assert_eq!(emitted(&mut machine)[2..], told);

    let mut machine = TracepointMachine::new(false);
    machine.btrfs(file.dev);
    machine.only_devs([(file.dev, 4096)]);
    machine.without_allocations(file.dev);
    machine.name(name(1, 100, 1, "/a", NameKind::Created));
    // The tracepoints of btrfs name no device.
    let file = Inode { dev: Dev::default(), ..file };
    let cut = |start| What::CutInPage { inode: file, start };
    for (n, what) in [
        What::Dirtied { inode: file, page: 2 },
        What::Asks { size: Some(8200) },
        What::Hurried { inode: file },
        cut(8192),
        What::Asks { size: None },
        // `O_TRUNC`, and a page that became dirty by a write: there is no other sign of it.
        cut(0),
        What::Dirtied { inode: file, page: 0 },
        // The last page of a file that was cut to nothing is cut.
        What::Asks { size: Some(15) },
        What::Hurried { inode: file },
        cut(0),
        What::Asks { size: None },
        What::Hurried { inode: file },
        What::Hurried { inode: file },
        // A size in the last page, and nothing is written: the file has it.
        What::Dirtied { inode: file, page: 0 },
        What::Asks { size: Some(17) },
        cut(0),
        What::Asks { size: None },
    ]
    .into_iter()
    .enumerate()
    {
        feed(&mut machine, 10 + n as u64, what);
    }
    let told = [
        "write 0 0 8192 4096",
        "truncate 0 8200",
        "truncate 0 0",
        "write 0 0 0 4096",
        "truncate 0 15",
        "write 0 0 0 4096",
    ];
    assert_eq!(emitted(&mut machine)[1..], told);
}

/// Renders the events so far as text.
fn emitted(machine: &mut TracepointMachine) -> Vec<String> {
    let open = |open: Option<flashsift_events::event::OpenId>| open.map_or(0, |open| open.0.get());
    let say = |event: Event| {
        Some(match event.action {
            Action::Create(create) => {
                let owner = create.owner.map(|FileOwner { uid, gid }| format!(" {uid}:{gid}"));
                let mode = create.mode.map(|mode| format!(" {mode:o}"));
                let extra = [owner, mode].map(Option::unwrap_or_default).concat();
                format!("create {} \"{}\"{extra}", create.file.0, create.name)
            }
            Action::Bind { file, name } => format!("bind {} {name}", file.0),
            Action::Link { file, name } => format!("link {} {name}", file.0),
            Action::Size { file, size } => format!("size {} {size}", file.0),
            Action::Rename { file, names } => {
                format!("rename {} {} {}", file.0, names.from, names.to)
            }
            Action::RenameDirectory { names } => format!("rename {} {}", names.from, names.to),
            Action::Unbind { file, name } => format!("unbind {} {name}", file.0),
            Action::Gone { file } => format!("gone {}", file.0),
            Action::Place { file, offset, len, at } => {
                format!("place {} {offset} {len} {at}", file.0)
            }
            Action::Open { file, open: of, created } => {
                format!("open {} {} {created}", file.0, open(of))
            }
            Action::Close { file, open: of } => format!("close {} {}", file.0, open(of)),
            Action::Read { file, open: of, offset, len } => {
                format!("read {} {} {offset} {len}", file.0, open(of))
            }
            Action::Write { file, open: of, offset, len, .. } => {
                format!("write {} {} {offset} {len}", file.0, open(of))
            }
            Action::Truncate { file, size } => format!("truncate {} {size}", file.0),
            Action::Folio { file, offset, len } => format!("folio {} {offset} {len}", file.0),
            Action::MemoryPressure { stalled_ppm } => format!("pressure {stalled_ppm}"),
            Action::Process { .. } => return None,
            other => panic!("{other:?}"),
        })
    };
    machine.drain().filter_map(say).collect()
}

struct Owned;

impl Host for Owned {
    fn size(&mut self, _: Handle) -> Option<u64> {
        None
    }
    fn owner_and_mode(&mut self, handle: Handle) -> Option<(FileOwner, u32)> {
        Some((FileOwner { uid: 1000, gid: handle.generation }, 0o640))
    }
}

// Promises: Record 15.
#[test]
fn a_creation_has_its_name_owner_and_mode_and_a_link_is_one() {
    let mut machine = TracepointMachine::new(false);
    let born = |ino| What::Allocated { inode: inode(ino), dir: Some(DIR), mode: Some(0o100_666) };
    let at = |at_ns, what| Point { at_ns, tid: 7, what };
    machine.name(name(5, 100, 3, "/tmp/a", NameKind::Created));
    machine.point(&at(10, born(100)), &mut Owned);
    // A link of a file from before the trace, whose other names are unknown.
    machine.name(name(20, 200, 1, "/tmp/old", NameKind::Found { size: 5000 }));
    machine.name(name(30, 200, 1, "/tmp/link", NameKind::Created));
    machine.name(name(30, 100, 3, "/tmp/b", NameKind::Created));
    machine.point(&at(40, What::Pages { inode: inode(200), first: 0, last: 0 }), &mut Owned);
    // A file whose name comes too late, or never.
    machine.point(&at(50, born(101)), &mut Owned);
    machine.name(name(60, 101, 1, "/tmp/late", NameKind::Created));
    machine.finish();
    assert_eq!(
        emitted(&mut machine),
        [
            "create 0 \"/tmp/a\" 1000:3 640",
            "link 0 /tmp/b",
            "bind 1 /tmp/old",
            "bind 1 /tmp/link",
            "size 1 5000",
            "read 1 0 0 4096",
            "create 2 \"\"",
            "bind 2 /tmp/late",
        ]
    );
}

/// A write to a file from before the trace does not count towards its initial size.
// Promises: Record 16.
#[test]
fn a_size_is_from_before_the_first_access() {
    let mut machine = TracepointMachine::new(false);
    machine.name(name(0, 100, 1, "/tmp/a", NameKind::Found { size: 100 }));
    feed(&mut machine, 10, What::WriteBegin { inode: inode(100), offset: 5000, len: 10 });
    feed(&mut machine, 11, What::WriteEnd { inode: inode(100), offset: 5000, copied: 10 });
    machine.finish();
    assert_eq!(emitted(&mut machine), ["bind 0 /tmp/a", "size 0 100", "write 0 0 5000 10"]);
}

// Promises: Traces 23, Record 15.
#[test]
fn a_directory_moves_with_one_event() {
    let mut machine = TracepointMachine::new(false);
    for (ino, path) in [(100, "/tmp/d/a"), (101, "/tmp/d/e/b"), (102, "/tmp/da")] {
        machine.name(name(0, ino, 1, path, NameKind::Found { size: 1 }));
        feed(&mut machine, 10, What::Pages { inode: inode(ino), first: 0, last: 0 });
    }
    emitted(&mut machine);
    let moved = NameKind::Moved { from_dir: DIR, from: "/tmp/d".into() };
    machine.name(Name { directory: true, ..name(20, 50, 1, "/tmp/new", moved) });
    machine.passed(30);
    assert_eq!(emitted(&mut machine), ["rename /tmp/d /tmp/new"]);
    // The machine knows their new paths.
    machine.name(name(40, 101, 1, "/tmp/new/e/b", NameKind::Deleted));
    machine.passed(50);
    assert_eq!(emitted(&mut machine), ["unbind 1 /tmp/new/e/b"]);
}

#[test]
fn memory_pressure_is_an_event() {
    let mut machine = TracepointMachine::new(false);
    machine.only_tasks([7]);
    machine.point(
        &Point { at_ns: 1, tid: 0, what: What::MemoryPressure { stalled_ppm: 9 } },
        &mut NoHost,
    );
    assert_eq!(emitted(&mut machine), ["pressure 9"]);
}

/// One call of a thread: its entry, the page cache's points, its exit.
fn call(
    machine: &mut TracepointMachine,
    tid: u32,
    call: EnteredCall,
    what: Option<What>,
    result: i64,
) {
    let at_ns = machine.now_ns + 1000;
    let mut point = |what| machine.point(&Point { at_ns, tid, what }, &mut NoHost);
    point(What::Enter(call));
    what.map(&mut point);
    point(What::Leave { result });
}

/// The opens of a process that ends were closed in the random order of a hash table: one trace gave
/// several event streams.
// Promises: Record 17.
#[test]
fn an_open_lasts_from_its_first_use_to_its_last_close() {
    let mut machine = TracepointMachine::new(false);
    let file = inode(100);
    machine.name(name(0, 100, 1, "/tmp/a", NameKind::Found { size: 1 << 20 }));
    let read = |fd| EnteredCall::Read { fd, at: Pointer::Here };
    let pages = |first, last| Some(What::Pages { inode: file, first, last });
    call(&mut machine, 7, EnteredCall::Open, None, 3);
    call(&mut machine, 7, EnteredCall::Open, None, 4);
    call(&mut machine, 7, EnteredCall::Dup { fd: 3 }, None, 5);
    call(&mut machine, 7, read(3), pages(0, 0), 4096);
    call(&mut machine, 7, read(4), pages(0, 0), 4096);
    call(&mut machine, 7, read(5), pages(1, 1), 4096);
    // A child shares the opens.
    feed(&mut machine, 20_000, What::NewTask { tid: 8, flags: 0, name: "child".into() });
    call(&mut machine, 7, EnteredCall::Close { fd: 3 }, None, 0);
    call(&mut machine, 7, EnteredCall::Close { fd: 4 }, None, 0);
    call(&mut machine, 7, EnteredCall::Close { fd: 5 }, None, 0);
    call(&mut machine, 8, read(5), pages(2, 2), 4096);
    feed(&mut machine, 40_000, What::WriteBegin { inode: file, offset: 0, len: 9 });
    feed(&mut machine, 40_000, What::WriteEnd { inode: file, offset: 0, copied: 9 });
    machine.point(&Point { at_ns: 50_000, tid: 8, what: What::Exit }, &mut NoHost);
    assert_eq!(
        emitted(&mut machine),
        [
            "bind 0 /tmp/a",
            "size 0 1048576",
            "open 0 1 false",
            "read 0 1 0 4096",
            "open 0 2 false",
            "read 0 2 0 4096",
            "read 0 1 4096 4096",
            "read 0 1 8192 4096",
            // Outside a call, the open is unknown.
            "write 0 0 0 9",
            "close 0 2",
            "close 0 1",
        ],
        "opens are shared by dup and fork, and end with the last of them"
    );
}

/// The last close of a file without names ends the file before the call is over: no event of the
/// file follows its end.
// Promises: Record 17.
#[test]
fn a_close_precedes_the_end_of_its_file() {
    let mut machine = TracepointMachine::new(false);
    let file = inode(100);
    feed(&mut machine, 0, What::Allocated { inode: file, dir: Some(DIR), mode: Some(0o100_600) });
    call(&mut machine, 7, EnteredCall::Open, None, 3);
    let write = EnteredCall::Write { fd: 3, at: Pointer::Here };
    call(&mut machine, 7, write, Some(What::WriteEnd { inode: file, offset: 0, copied: 5 }), 5);
    call(
        &mut machine,
        7,
        EnteredCall::Close { fd: 3 },
        Some(What::Evicted { inode: file, links: 0 }),
        0,
    );
    // An open that is never closed ends with its file.
    feed(
        &mut machine,
        9000,
        What::Allocated { inode: file, dir: Some(DIR), mode: Some(0o100_600) },
    );
    call(&mut machine, 7, EnteredCall::Open, None, 3);
    call(&mut machine, 7, write, Some(What::WriteEnd { inode: file, offset: 0, copied: 5 }), 5);
    feed(&mut machine, 19_000, What::Evicted { inode: file, links: 0 });
    machine.point(&Point { at_ns: 20_000, tid: 7, what: What::Exit }, &mut NoHost);
    let life = |file, open| {
        [
            format!("create {file} \"\""),
            format!("open {file} {open} false"),
            format!("write {file} {open} 0 5"),
        ]
    };
    let (mut wanted, second) = (life(0, 1).to_vec(), life(1, 1));
    wanted.extend(["close 0 1".to_owned(), "gone 0".to_owned()]);
    wanted.extend(second);
    wanted.push("gone 1".to_owned());
    assert_eq!(emitted(&mut machine), wanted);
}

/// A descriptor came over a socket, or a call that is not recorded reassigned its number: the file
/// that the read reaches counts.
// Promises: Record 17.
#[test]
fn a_descriptor_that_reaches_another_file_is_another_open() {
    let mut machine = TracepointMachine::new(false);
    for ino in [100, 101] {
        let path = format!("/tmp/{ino}");
        machine.name(name(0, ino, 1, &path, NameKind::Found { size: 1 << 20 }));
    }
    let read = |at| EnteredCall::Read { fd: 3, at: Pointer::There(at) };
    call(&mut machine, 7, read(0), Some(What::Pages { inode: inode(100), first: 0, last: 0 }), 100);
    call(&mut machine, 7, read(0), Some(What::Pages { inode: inode(101), first: 0, last: 0 }), 100);
    let mut emitted = emitted(&mut machine);
    emitted.retain(|line| !line.starts_with("bind") && !line.starts_with("size"));
    let wanted =
        ["open 0 1 false", "read 0 1 0 100", "close 0 1", "open 1 2 false", "read 1 2 0 100"];
    assert_eq!(emitted, wanted);
}

/// A place concerns the trace if its file does, whichever thread writes the file back; a write in
/// whose middle it is chosen stays one write.
// Promises: Record 20.
#[test]
fn places_join_and_belong_to_files_of_the_trace() {
    let mut machine = TracepointMachine::new(false);
    machine.only_devs([(inode(0).dev, 1024)]);
    machine.only_tasks([7]);
    let (file, other) = (inode(100), inode(101));
    let placed = |inode, block, blocks, at| What::Placed { inode, block, blocks, at };
    let by_kernel = |machine: &mut TracepointMachine, at_ns, what| {
        machine.point(&Point { at_ns, tid: 2, what }, &mut NoHost);
    };
    feed(&mut machine, 0, What::Allocated { inode: file, dir: Some(DIR), mode: Some(0o100_600) });
    by_kernel(
        &mut machine,
        500,
        What::Allocated { inode: other, dir: Some(DIR), mode: Some(0o100_600) },
    );
    feed(&mut machine, 1000, What::WriteBegin { inode: file, offset: 0, len: 8000 });
    feed(&mut machine, 2000, placed(file, 0, 4, 500));
    feed(&mut machine, 3000, What::WriteEnd { inode: file, offset: 0, copied: 4096 });
    feed(&mut machine, 4000, What::WriteBegin { inode: file, offset: 4096, len: 3904 });
    feed(&mut machine, 5000, What::WriteEnd { inode: file, offset: 4096, copied: 3904 });
    by_kernel(&mut machine, 6000, placed(file, 4, 2, 600));
    by_kernel(&mut machine, 7000, placed(other, 0, 1, 700));
    by_kernel(&mut machine, 8000, placed(file, 6, 2, 602));
    let mut wanted = vec![
        "create 0 \"\"".to_owned(),
        "place 0 0 4096 512000".to_owned(),
        "write 0 0 0 8000".to_owned(),
        "place 0 4096 4096 614400".to_owned(),
    ];
    assert_eq!(emitted(&mut machine), wanted);
    assert!(machine.survivors().is_empty(), "no name has given a handle");
    let notes: Vec<_> = machine.skipped().iter().map(|(reason, of)| (reason, of.count)).collect();
    assert_eq!(notes, [("file whose places at the end are unknown: it has no handle", 1)]);

    // Its end frees its places, and the next file with its number is another one.
    machine.name(name(9000, 100, 1, "/tmp/a", NameKind::Created));
    assert_eq!(machine.survivors().len(), 1);
    feed(&mut machine, 9500, What::Evicted { inode: file, links: 0 });
    by_kernel(&mut machine, 9600, placed(file, 0, 1, 900));
    assert_eq!(machine.survivors(), []);
    wanted = emitted(&mut machine);
    wanted.retain(|line| line.starts_with("place"));
    assert!(wanted.is_empty(), "{wanted:?}");
}

/// The reports of a kernel in which files are made and deleted, with the same inode numbers again
/// and again: a simple model of the recorder's `tests/reuse.c`.
#[derive(Default)]
struct Kernel {
    at_ns: u64,
    points: Vec<Point>,
    /// Reports about names with the times at which they enter fanotify's queue.
    names: Vec<(u64, Name)>,
    free: std::collections::BTreeSet<u64>,
    generation: u32,
}

impl Kernel {
    fn point(&mut self, what: What) {
        self.points.push(Point { at_ns: self.at_ns, tid: 7, what });
    }

    fn name(&mut self, (ino, generation): (u64, u32), dir: u64, path: &str, kind: NameKind) {
        let name = Name { dir, ..name(self.at_ns, ino, generation, path, kind) };
        self.names.push((self.at_ns, name));
    }

    fn allocate(&mut self, dir: u64) -> (u64, u32) {
        let ino = self.free.pop_first().expect("there are more numbers than files");
        self.generation += 1;
        self.point(What::Allocated { inode: inode(ino), dir: Some(dir), mode: Some(0o100_600) });
        (ino, self.generation)
    }

    fn write(&mut self, (ino, _): (u64, u32), bytes: u64) {
        self.point(What::WriteBegin { inode: inode(ino), offset: 0, len: bytes });
        self.point(What::WriteEnd { inode: inode(ino), offset: 0, copied: bytes });
    }

    fn end(&mut self, (ino, _): (u64, u32)) {
        self.point(What::Evicted { inode: inode(ino), links: 0 });
        self.free.insert(ino);
    }
}

/// A random history, and the size of each file with a name, by that name.
fn history(dice: &mut impl FnMut(u64) -> u64) -> (Kernel, BTreeMap<String, u64>) {
    let mut kernel = Kernel { free: (100..120).collect(), ..Kernel::default() };
    let mut sizes = BTreeMap::new();
    let mut kept: BTreeMap<String, (u64, u32)> = BTreeMap::new();
    for n in 1..=400 {
        let (dir, bytes) = (DIR + dice(3), n);
        kernel.at_ns += [1000, 1_000_000, 40_000_000][dice(3) as usize];
        if dice(5) == 0 {
            // Without a name (`O_TMPFILE`).
            let file = kernel.allocate(dir);
            kernel.name(file, dir, &format!("/{dir}/#{}", file.0), NameKind::Opened);
            kernel.write(file, 1 << 20);
            kernel.end(file);
        }
        let file = kernel.allocate(dir);
        // The thread may be preempted between the two reports.
        kernel.at_ns += [0, 1_000_000, 100_000_000][dice(3) as usize];
        let path = format!("/{dir}/{n}");
        kernel.name(file, dir, &path, NameKind::Created);
        kernel.name(file, dir, &path, NameKind::Opened);
        sizes.insert(path.clone(), bytes);
        let unlink = |kernel: &mut Kernel| {
            kernel.point(What::Unlink { inode: inode(file.0), dir: Some(dir) });
            kernel.at_ns += 1000;
            kernel.name(file, dir, &path, NameKind::Deleted);
        };
        match dice(3) {
            0 => {
                unlink(&mut kernel);
                kernel.write(file, bytes);
                kernel.end(file);
            }
            1 => {
                kernel.write(file, bytes);
                let to = format!("/{dir}/kept{}", dice(3));
                let moved = NameKind::Moved { from_dir: dir, from: path.into() };
                kernel.name(file, dir, &to, moved);
                if let Some(replaced) = kept.insert(to, file) {
                    kernel.end(replaced);
                }
            }
            _ => {
                kernel.write(file, bytes);
                unlink(&mut kernel);
                kernel.end(file);
            }
        }
    }
    (kernel, sizes)
}

/// Names find their files however late the recorder looks: it once forgot a deleted file while a
/// report about it was still waiting for its time, and gave that report to the next file with the
/// same inode number.
// Promises: Record 6.
#[test]
fn names_find_their_files_however_late_they_are_read() {
    for seed in 0..200u64 {
        let mut random = seed;
        let mut dice = |sides: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % sides
        };
        let (kernel, sizes) = history(&mut dice);
        let mut machine = TracepointMachine::new(false);
        let (mut points, mut names) = (&kernel.points[..], &kernel.names[..]);
        let mut look_ns = 0;
        let mut events = Vec::new();
        while !points.is_empty() || !names.is_empty() {
            look_ns += [10_000_000, 50_000_000, 3_000_000_000][dice(3) as usize];
            // As the recorder does: creations first, all with the time of the look.
            let (read, rest) =
                names.split_at(names.partition_point(|(at_ns, _)| *at_ns <= look_ns));
            names = rest;
            let deleted = |name: &&(u64, Name)| name.1.kind == NameKind::Deleted;
            let (went, came): (Vec<_>, Vec<_>) = read.iter().partition(deleted);
            for (_, name) in came.into_iter().chain(went) {
                machine.name(Name { at_ns: look_ns, ..name.clone() });
            }
            let until_ns = look_ns.saturating_sub(30_000_000);
            let (ripe, rest) = points.split_at(points.partition_point(|p| p.at_ns <= until_ns));
            points = rest;
            ripe.iter().for_each(|point| machine.point(point, &mut NoHost));
            machine.passed(until_ns);
            events.extend(machine.drain());
        }
        machine.finish();
        events.extend(machine.drain());
        let (mut names, mut written) = (BTreeMap::new(), BTreeMap::<_, u64>::new());
        for event in events {
            match event.action {
                Action::Create(create) if !create.name.is_empty() => {
                    names.insert(create.name.to_string(), create.file);
                }
                Action::Bind { file, name } if !names.values().any(|of| *of == file) => {
                    names.insert(name.to_string(), file);
                }
                Action::Write { file, len, .. } => *written.entry(file).or_default() += len,
                _ => {}
            }
        }
        let found: BTreeMap<_, _> = names
            .iter()
            .map(|(name, file)| (name.clone(), written.get(file).copied().unwrap_or(0)))
            .collect();
        assert_eq!(found, sizes, "seed {seed}");
    }
}
