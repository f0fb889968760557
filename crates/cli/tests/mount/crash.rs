//! strace kills the daemon at every system call of a scenario; after each kill, BACKING is compared
//! with the promises made by then. So there is a fault point at every step of every move, and no
//! fault code in the product. Then the same with power cuts.

use super::{
    FLASHSIFT, KIB, LATE, Mounted, Tree, bytes, create, directory, model::Model, run, tree,
};
use flashsift_testbed::{O_DSYNC, ended, has, skip, started, test_name};
use rustix::fs::RenameFlags;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::Path,
    process::{Child, Command},
};

/// An operation of an application. Names are unique to the test; each file's bytes identify its
/// step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'a> {
    Directory(&'a str),
    Create(&'a str, usize),
    /// As an editor that truncates: open with `O_TRUNC`, write.
    Rewrite(&'a str, usize),
    Append(&'a str, usize),
    Cut(&'a str, usize),
    Mode(&'a str, u32),
    Rename(&'a str, &'a str),
    Exchange(&'a str, &'a str),
    Link(&'a str, &'a str),
    Unlink(&'a str),
    Sync(&'a str),
    SyncDirectory(&'a str),
    Settle,
}
use Step::*;

const SCENARIO: &[Step<'static>] = &[
    Create("alone", 100_000),
    Create("small", 5000),
    Mode("small", 0o640),
    Sync("alone"),
    Create("empty", 0),
    Settle,
    // In place now.
    Append("alone", 3000),
    Sync("alone"),
    Cut("alone", 50_000),
    Sync("alone"),
    // An editor saves: the new file hides the old one on flash until it is written back over it;
    // then the same with fsync.
    Create("small~", 7000),
    Rename("small~", "small"),
    Settle,
    Create("small~", 8000),
    Sync("small~"),
    Rename("small~", "small"),
    SyncDirectory(""),
    // Hides a file, and is deleted before its write-back.
    Create("alone~", 100),
    Rename("alone~", "alone"),
    Unlink("alone"),
    // Two names in RAM, one of which hides a file on flash.
    Create("one", 20_000),
    Link("one", "two"),
    Rename("two", "small"),
    Settle,
    Append("one", 10),
    // Directories, with what is in RAM.
    Directory("here"),
    Create("here/x", 300_000),
    Create("here/y", 10),
    SyncDirectory("here"),
    Create("here/z", 4096),
    Rename("here/x", "x"),
    Rename("here", "there"),
    Create("there/late", 1),
    Create("new y", 70_000),
    Rename("new y", "there/y"),
    Exchange("there/y", "x"),
    Sync("x"),
    // Named anew after it was deleted.
    Unlink("there/z"),
    Create("there/z", 9000),
    Rewrite("one", 2000),
    Sync("one"),
    Link("one", "there/one"),
    Unlink("one"),
    Create("one", 12),
    Settle,
    Rename("there/one", "one"),
    Create("last", 40_000),
];

impl Step<'_> {
    /// Applies the step to the model, then to the mount. An error from a dead daemon ends the
    /// scenario.
    pub(super) fn take(self, number: usize, top: &Path, model: &mut Model) -> io::Result<()> {
        let at = |name: &str| top.join(name);
        let written = |len: usize| bytes(number as u64 + 1, len);
        match self {
            Directory(name) => {
                model.directory(name);
                fs::create_dir(at(name))
            }
            Create(name, len) => {
                model.create(name, 0o644);
                let mut file = File::options().write(true).create_new(true).open(at(name))?;
                write(&mut file, name, &written(len), model)
            }
            Rewrite(name, len) => {
                model.change(name, |moment| moment.bytes.clear());
                let mut file = File::options().write(true).truncate(true).open(at(name))?;
                write(&mut file, name, &written(len), model)
            }
            Append(name, len) => {
                let mut file = File::options().append(true).open(at(name))?;
                write(&mut file, name, &written(len), model)
            }
            Cut(name, len) => {
                model.change(name, |moment| moment.bytes.resize(len, 0));
                File::options().write(true).open(at(name))?.set_len(len as u64)
            }
            Mode(name, bits) => {
                model.change(name, |moment| moment.mode = bits);
                fs::set_permissions(at(name), super::mode(bits))
            }
            Rename(from, to) => {
                model.rename(from, to);
                fs::rename(at(from), at(to))
            }
            Exchange(one, other) => {
                model.exchange(one, other);
                let here = rustix::fs::CWD;
                Ok(rustix::fs::renameat_with(
                    here,
                    at(one),
                    here,
                    at(other),
                    RenameFlags::EXCHANGE,
                )?)
            }
            Link(from, to) => {
                model.link(from, to);
                fs::hard_link(at(from), at(to))
            }
            Unlink(name) => {
                model.unlink(name);
                fs::remove_file(at(name))
            }
            Sync(name) => {
                File::open(at(name))?.sync_all()?;
                model.synced(name);
                Ok(())
            }
            SyncDirectory(name) => {
                File::open(at(name))?.sync_all()?;
                model.names_synced(name);
                Ok(())
            }
            Settle => {
                rustix::fs::getxattr(top, "user.flashsift.settle", &mut [0; 1])?;
                model.settled();
                Ok(())
            }
        }
    }
}

/// Each write is a moment of the file.
fn write(file: &mut File, name: &str, bytes: &[u8], model: &mut Model) -> io::Result<()> {
    for part in bytes.chunks(64 * KIB) {
        model.change(name, |moment| moment.bytes.extend(part));
        file.write_all(part).inspect_err(|_| model.half_written(name))?;
    }
    Ok(())
}

/// Plays the scenario. Returns the model of the files that may be found, and the step that failed,
/// if any.
fn play(top: &Path, power: bool) -> (Model, Option<(usize, io::Error)>) {
    let mut model = Model::new(power, false);
    for (number, step) in SCENARIO.iter().enumerate() {
        if let Err(error) = step.take(number, top, &mut model) {
            return (model, Some((number, error)));
        }
    }
    (model, None)
}

/// System calls without an effect on BACKING or an application: a kill before one of them equals a
/// kill before the next call.
const CHANGE_NOTHING: &[&str] = &[
    "read",
    "readv",
    "pread64",
    "futex",
    "poll",
    "ppoll",
    "epoll_wait",
    "epoll_pwait",
    "clock_gettime",
    "clock_nanosleep",
    "restart_syscall",
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "brk",
    "fstat",
    "newfstatat",
    "statx",
    "fstatfs",
    "statfs",
    "lseek",
    "readlinkat",
    "getdents64",
    "fgetxattr",
    "getxattr",
    "lgetxattr",
    "flistxattr",
    "listxattr",
    "llistxattr",
    "fcntl",
    "rt_sigprocmask",
    "sigaltstack",
    "gettid",
    "getpid",
    "sched_yield",
    "close",
    "dup",
    "getrandom",
    "exit",
    "rseq",
    "set_robust_list",
    "sched_getaffinity",
    "prctl",
    "clone3",
    "sendto",
    "recvfrom",
];

/// Attaches strace to the daemon, and waits until it is.
fn strace(mounted: &Mounted, arguments: &[&str]) -> Child {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-p", &mounted.pid().as_raw_nonzero().to_string()]).args(arguments);
    let (strace, mut messages) = started(&mut strace, "attached");
    // It says more, and must not end for it.
    std::thread::spawn(move || io::copy(&mut messages, &mut io::sink()));
    strace
}

/// Every system call that the scenario makes the daemon do: name, and how often.
fn fault_points(mounted: &mut Mounted) -> BTreeMap<String, usize> {
    let log = mounted.ext4.path("calls");
    let mut strace = strace(mounted, &["-s0", "-o", log.to_str().unwrap()]);
    let (_, failed) = play(&mounted.ext4.mountpoint(), false);
    assert!(failed.is_none(), "step {failed:?} fails without any fault: {}", mounted.messages());
    mounted.kill();
    strace.wait().unwrap();
    // strace counts by thread.
    let mut counts = BTreeMap::<(String, String), usize>::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let Some((name, _)) = call.trim_start().split_once('(') else { continue };
        if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            *counts.entry((name.to_owned(), thread.to_owned())).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((name, _), count) in counts {
        let most = most.entry(name).or_default();
        *most = count.max(*most);
    }
    most.retain(|name, _| !CHANGE_NOTHING.contains(&name.as_str()));
    most
}

/// Largest number of faults in each run for one system call, spread evenly;
/// `FLASHSIFT_EVERY_FAULT=1` tests all.
const OFTEN: usize = 8;

fn every_fault(power: bool) {
    let Some(mut mounted) = Mounted::new(&[&LATE[..], &["--threads", "1"]].concat()) else {
        return;
    };
    if !has("strace") {
        return skip("strace is not installed");
    }
    let points = fault_points(&mut mounted);
    let all = std::env::var_os("FLASHSIFT_EVERY_FAULT").is_some();
    let (mut killed, mut survived) = (0, 0);
    for (call, &count) in &points {
        let stride = if all { 1 } else { count.div_ceil(OFTEN) };
        for when in (1..=count).step_by(stride) {
            empty(&mounted.ext4.backing());
            mounted.start();
            let inject = format!("inject={call}:signal=SIGKILL:when={when}");
            let mut strace = strace(
                &mounted,
                &["-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject],
            );
            let (model, failed) = play(&mounted.ext4.mountpoint(), power);
            let step =
                failed.as_ref().map(|(step, error)| format!("{:?}: {error}", SCENARIO[*step]));
            let fault = format!(
                "killed before {call} no. {when}, at {}",
                step.as_deref().unwrap_or("the end")
            );
            if failed.is_some() {
                killed += 1
            } else {
                survived += 1
            }
            if power {
                // A dead daemon's journal is not committed: nothing more reaches the device than
                // before the kill.
                kill_and_lose_power(&mut mounted);
            } else if failed.is_some() {
                mounted.bury();
            } else {
                mounted.kill();
            }
            strace.wait().unwrap();
            let found = tree(&mounted.ext4.backing());
            if let Err(broken) = model.check(&found) {
                panic!("{fault}: {broken}\nfound: {found:#?}");
            }
            restarts(&mut mounted, &found, &fault);
        }
    }
    println!("{}: {killed} faults of {points:?}; {survived} came after the end", test_name());
    assert!(killed > 20, "too few faults were met");
}

pub(super) fn kill_and_lose_power(mounted: &mut Mounted) {
    // An end that it has met already is one, too.
    let _ = rustix::process::kill_process(mounted.pid(), rustix::process::Signal::KILL);
    mounted.bury();
    mounted.ext4.lose_power();
}

/// The next daemon finds the files of the previous one, removes partial copies and changes nothing
/// else.
pub(super) fn restarts(mounted: &mut Mounted, found: &Tree, fault: &str) {
    mounted.start();
    let copies = mounted.below(".flashsift/tmp");
    let left: Vec<_> = fs::read_dir(copies).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{fault}: after a restart there is still {left:?}");
    let left = super::ours(&mounted.ext4.backing());
    // It is there if the fault left it.
    let only = left.is_empty() || left == [mounted.below(".flashsift")];
    assert!(only, "{fault}: after a restart: {left:?}");
    assert_eq!(
        &tree(&mounted.ext4.mountpoint()),
        found,
        "{fault}: the next mount shows something else"
    );
    assert_eq!(&mounted.ended(), found, "{fault}: the next mount changed something");
}

pub(super) fn empty(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
    // A power cut brings nothing back that was removed before the scenario began.
    rustix::fs::syncfs(File::open(folder).unwrap()).unwrap();
}

// Promises: Mount 2, Mount 8.
#[test]
fn promises_hold_after_a_kill_at_any_step() {
    every_fault(false);
}

// Promises: Mount 2, Mount 7.
#[test]
fn promises_hold_after_a_power_cut_at_any_step() {
    every_fault(true);
}

// Promises: Mount 6.
#[test]
fn a_kill_loses_only_files_that_were_not_written_back() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    create(&mounted.at("settled"), &bytes(1, 5000));
    mounted.settle();
    create(&mounted.at("synced"), &bytes(2, 5000)).sync_all().unwrap();
    create(&mounted.at("data synced"), &bytes(3, 5000)).sync_data().unwrap();
    create(&mounted.at("in RAM"), &bytes(4, 5000));
    // Links are made in BACKING at once. A new directory may wait until something in it is synced.
    for directory in ["new", "of synced"] {
        fs::create_dir(mounted.at(directory)).unwrap();
    }
    create(&mounted.at("of synced/file"), b"x").sync_all().unwrap();
    std::os::unix::fs::symlink("in RAM", mounted.at("link")).unwrap();
    mounted.kill();
    let found = tree(&mounted.ext4.backing());
    let names = found.keys().map(String::as_str).filter(|name| *name != "new");
    let expected = ["data synced", "link", "of synced", "of synced/file", "settled", "synced"];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    for (name, seed) in [("settled", 1), ("synced", 2), ("data synced", 3)] {
        assert_eq!(fs::read(mounted.below(name)).unwrap(), bytes(seed, 5000), "{name}");
    }
}

// Promises: Mount 2.
#[test]
fn synchronous_writes_are_durable() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    use rustix::fs::{Mode, OFlags};
    let top = directory(&mounted.ext4.mountpoint());
    for (name, flag) in [("O_SYNC", OFlags::SYNC), ("O_DSYNC", O_DSYNC)] {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | flag;
        let mut file =
            File::from(rustix::fs::openat(&top, name, flags, Mode::from(0o644)).unwrap());
        file.write_all(&bytes(1, 9000)).unwrap();
    }
    // As O_SYNC does, for one write.
    let file = create(&mounted.at("RWF_SYNC"), b"");
    let whole = bytes(1, 9000);
    let parts = [io::IoSlice::new(&whole)];
    rustix::io::pwritev2(&file, &parts, 0, rustix::io::ReadWriteFlags::DSYNC).unwrap();
    drop((file, top));
    kill_and_lose_power(&mut mounted);
    for name in ["O_SYNC", "O_DSYNC", "RWF_SYNC"] {
        assert!(fs::read(mounted.below(name)).is_ok_and(|found| found == whole), "{name}");
    }
}

/// fdatasync of a written-back file makes its name durable too: on ext4 itself the first fdatasync
/// of the new file would have done that.
// Promises: Mount 2.
#[test]
fn a_sync_after_the_write_back_makes_the_name_durable() {
    let Some(mut mounted) = Mounted::new(&["--settle-after", "0.1s"]) else { return };
    use rustix::fs::{Mode, OFlags};
    type Sync = fn(&File, &Path);
    let ways: [(&str, Sync); 4] = [
        ("fsync", |file, _| file.sync_all().unwrap()),
        ("fdatasync", |file, _| file.sync_data().unwrap()),
        ("fdatasync, opened anew", |_, path| {
            File::options().write(true).open(path).unwrap().sync_data().unwrap();
        }),
        ("O_DSYNC, opened anew", |_, path| {
            let flags = OFlags::WRONLY | O_DSYNC | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(path, flags, Mode::empty()).unwrap());
            file.write_all_at(b"new", 0).unwrap();
        }),
    ];
    for (name, sync) in ways {
        let mut file = create(&mounted.at(name), &bytes(1, 9000));
        let anew = name.ends_with("anew");
        if anew {
            drop(file);
            mounted.until_settled(name);
            file = File::options().write(true).open(mounted.at(name)).unwrap();
        } else {
            mounted.until_settled(name);
        }
        // The same length, so that its inode has nothing new to tell.
        file.write_all_at(b"new", 0).unwrap();
        if anew {
            drop(file);
            file = File::open("/dev/null").unwrap();
        }
        sync(&file, &mounted.at(name));
        drop(file);
        kill_and_lose_power(&mut mounted);
        let found = fs::read(mounted.below(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found.starts_with(b"new") && found[3..] == bytes(1, 9000)[3..], "{name}");
        mounted.start();
    }
}

// Promises: Mount 3.
#[test]
fn fsync_of_a_directory_makes_its_names_last() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    fs::create_dir(mounted.at("here")).unwrap();
    create(&mounted.at("here/one"), &bytes(1, 100));
    create(&mounted.at("here/two"), &bytes(2, 200));
    fs::rename(mounted.at("here/two"), mounted.at("here/three")).unwrap();
    create(&mounted.at("elsewhere"), b"");
    for folder in ["here", ""] {
        File::open(mounted.at(folder)).unwrap().sync_all().unwrap();
    }
    kill_and_lose_power(&mut mounted);
    let found = tree(&mounted.ext4.backing());
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["elsewhere", "here", "here/one", "here/three"]);
    assert_eq!(fs::read(mounted.below("here/three")).unwrap(), bytes(2, 200));
}

/// Power is lost right after files were written back in one batch: each is whole or absent, without
/// any fsync.
// Promises: Mount 4.
#[test]
fn a_written_back_batch_is_whole_or_absent_after_a_power_cut() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    for name in 0..200 {
        create(&mounted.at(&name.to_string()), &bytes(name, 1000 * (name as usize % 60)));
    }
    mounted.settle();
    kill_and_lose_power(&mut mounted);
    for name in 0..200 {
        match fs::read(mounted.below(&name.to_string())) {
            Ok(found) => {
                assert!(found == bytes(name, 1000 * (name as usize % 60)), "{name} is torn")
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}"),
        }
    }
}

/// A careless editor saves by `rename` over a file on flash without fsync: after a crash the file
/// is old or new.
// Promises: Mount 5.
#[test]
fn a_careless_rename_leaves_the_old_or_the_new() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    let (old, new) = (bytes(1, 50_000), bytes(2, 60_000));
    for settles in [false, true] {
        create(&mounted.at("file"), &old).sync_all().unwrap();
        create(&mounted.at("file~"), &new);
        fs::rename(mounted.at("file~"), mounted.at("file")).unwrap();
        assert!(fs::read(mounted.at("file")).unwrap() == new, "applications see the new one");
        assert!(
            fs::read(mounted.below("file")).unwrap() == old,
            "BACKING has the old file until the write-back"
        );
        if settles {
            mounted.settle();
            assert!(fs::read(mounted.below("file")).unwrap() == new);
        }
        kill_and_lose_power(&mut mounted);
        let found = fs::read(mounted.below("file")).unwrap();
        assert!(found == old || found == new, "settled: {settles}");
        assert!(!mounted.below("file~").exists());
        fs::remove_file(mounted.below("file")).unwrap();
        mounted.start();
    }
}

/// The system calls of the daemon with these names during `act`, in the order of their beginnings.
fn calls(mounted: &mut Mounted, names: &str, act: impl FnOnce(&Mounted)) -> Vec<String> {
    let log = mounted.ext4.path("calls");
    let trace = format!("trace={names}");
    let mut strace = strace(mounted, &["-s0", "-o", log.to_str().unwrap(), "-e", &trace]);
    act(mounted);
    mounted.kill();
    strace.wait().unwrap();
    let log = fs::read_to_string(log).unwrap();
    let call = |line: &str| {
        let (_, call) = line.split_once(' ')?;
        let (name, _) = call.trim_start().split_once('(')?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_name.then(|| name.to_owned())
    };
    log.lines().filter_map(call).collect()
}

/// Four syncs followed from the fsync of a file in RAM: of the copy, of the directory twice, and of
/// the file. An application's own fsync on ext4 is one, which commits the name too.
// Promises: Mount 2.
#[test]
fn one_sync_of_a_file_is_one_sync_below() {
    if !has("strace") {
        return skip("strace is not installed");
    }
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    create(&mounted.at("old"), b"old").sync_all().unwrap();
    let syncs = "fsync,fdatasync,sync,syncfs,msync";
    let made = calls(&mut mounted, syncs, |mounted| {
        create(&mounted.at("new"), &bytes(1, 20_000)).sync_all().unwrap();
        create(&mounted.at("data"), &bytes(2, 20_000)).sync_data().unwrap();
        let file = create(&mounted.at("old~"), &bytes(3, 20_000));
        fs::rename(mounted.at("old~"), mounted.at("old")).unwrap();
        file.sync_all().unwrap();
    });
    assert_eq!(made, ["fsync"; 3]);
    let found = tree(&mounted.ext4.backing());
    assert_eq!(found.keys().collect::<Vec<_>>(), ["data", "new", "old"]);
}

/// An `O_DSYNC` write was made durable by an fsync, which commits the file's time: LMDB, which
/// writes its root so, wrote 1.19 times as many bytes as on ext4.
// Promises: Mount 2.
#[test]
fn a_synchronous_write_of_data_alone_commits_no_time() {
    use rustix::fs::{Mode, OFlags};
    if !has("strace") {
        return skip("strace is not installed");
    }
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    create(&mounted.at("file"), &bytes(1, 20_000)).sync_all().unwrap();
    let made = calls(&mut mounted, "fsync,fdatasync,sync,syncfs,msync", |mounted| {
        for way in [O_DSYNC, OFlags::SYNC] {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | way;
            let file = rustix::fs::open(mounted.at("file"), flags, Mode::empty()).unwrap();
            File::from(file).write_all_at(b"new", 0).unwrap();
        }
    });
    assert_eq!(made, ["fdatasync", "fsync"]);
}

/// Each batch of files that are written back by age was made durable with `syncfs`, which also
/// writes what other programs have written to the file system.
// Promises: Mount 7.
#[test]
fn write_back_by_age_forces_no_commit() {
    if !has("strace") {
        return skip("strace is not installed");
    }
    let Some(mut mounted) = Mounted::new(&["--settle-after", "0.1s"]) else { return };
    create(&mounted.at("old"), b"old").sync_all().unwrap();
    let syncs = "fsync,fdatasync,sync,syncfs,msync";
    let made = calls(&mut mounted, syncs, |mounted| {
        create(&mounted.at("old~"), &bytes(1, 20_000));
        fs::rename(mounted.at("old~"), mounted.at("old")).unwrap();
        create(&mounted.at("new"), &bytes(2, 20_000));
        mounted.until_settled("new");
    });
    assert_eq!(made, [""; 0]);
}

// Promises: Mount 14.
#[test]
fn each_way_of_ending_leaves_everything_in_backing() {
    use super::End;
    use rustix::process::Signal;
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    for end in [
        End::Unmount,
        End::Signal(Signal::TERM),
        End::Signal(Signal::INT),
        End::Signal(Signal::HUP),
    ] {
        create(&mounted.at("old"), b"old").sync_all().unwrap();
        create(&mounted.at("new"), &bytes(1, 300_000));
        fs::rename(mounted.at("new"), mounted.at("old")).unwrap();
        fs::create_dir(mounted.at("here")).unwrap();
        create(&mounted.at("here/file"), &bytes(2, 10));
        fs::hard_link(mounted.at("here/file"), mounted.at("link")).unwrap();
        let expected = tree(&mounted.ext4.mountpoint());
        let status = mounted.end(end);
        assert!(status.success(), "{end:?}: {status}: {}", mounted.messages());
        assert_eq!(tree(&mounted.ext4.backing()), expected, "{end:?}");
        let left = super::ours(&mounted.ext4.backing());
        assert!(left.is_empty(), "{end:?} left {left:?}");
        // And lasts, as after umount.
        mounted.ext4.lose_power();
        assert_eq!(tree(&mounted.ext4.backing()), expected, "{end:?}, power lost");
        empty(&mounted.ext4.backing());
        mounted.start();
    }
}

#[test]
fn an_unmount_by_another_program_ends_the_daemon() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    create(&mounted.at("file"), &bytes(1, 300_000));
    run("umount", &[&mounted.ext4.mountpoint()]);
    let status = mounted.daemon.take().unwrap().process.wait().unwrap();
    assert!(status.success(), "{status}: {}", mounted.messages());
    assert!(fs::read(mounted.below("file")).unwrap() == bytes(1, 300_000));
    assert!(!mounted.below(".flashsift").exists());
}

// Promises: Mount 16.
#[test]
fn one_daemon_has_a_backing() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    let second = mounted.ext4.path("second");
    fs::create_dir(&second).unwrap();
    let mut command = Command::new(FLASHSIFT);
    command.arg("mount").args([mounted.ext4.backing(), second]).arg("--foreground");
    let (_, messages) = ended(&mut command, 1);
    assert!(messages.contains("backing"), "{messages}");
}
