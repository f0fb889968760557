//! Operations that wait for slow flash, and those that must not. A frozen file system stands for an
//! infinitely slow one.

use super::{LATE, Mounted, PATIENCE, create, run};
use std::{
    fs,
    os::unix::fs::FileExt,
    sync::mpsc,
    thread::{self, JoinHandle},
};

/// A frozen BACKING: every change of it waits until this ends.
struct Frozen {
    /// Dropped: it is to end.
    over: mpsc::Sender<()>,
    /// Whether a timeout ended it, since the test waited too long.
    thaw: JoinHandle<bool>,
}

impl Frozen {
    fn new(mounted: &Mounted) -> Self {
        let backing = mounted.ext4.backing();
        run("fsfreeze", &["--freeze".as_ref(), &backing]);
        let (over, ends) = mpsc::channel::<()>();
        // A process that hangs in the frozen file system can neither thaw it nor be killed.
        let thaw = thread::spawn(move || {
            let late = ends.recv_timeout(PATIENCE / 3) == Err(mpsc::RecvTimeoutError::Timeout);
            run("fsfreeze", &["--unfreeze".as_ref(), &backing]);
            late
        });
        Self { over, thaw }
    }

    fn end(self) {
        drop(self.over);
        assert!(!self.thaw.join().unwrap(), "a process waited for a frozen device");
    }
}

/// Until one of the daemon's threads waits for the device.
fn until_it_waits(mounted: &Mounted) {
    let tasks = format!("/proc/{}/task", mounted.pid().as_raw_pid());
    let waits = |task: fs::DirEntry| {
        // It may have ended since.
        fs::read_to_string(task.path().join("stat")).is_ok_and(|stat| stat.contains(") D "))
    };
    while !fs::read_dir(&tasks).unwrap().any(|task| waits(task.unwrap())) {
        thread::yield_now();
    }
}

/// A write that waits for the device, through us, must not delay other opens of its file or of
/// other files. An open waited for the write, and every other operation waited for that open.
// Promises: Mount 32.
#[test]
fn a_slow_write_delays_no_other_process() {
    let options = ["--settle-after", "1h", "--no-passthrough", "--write-through", "*"];
    let Some(mounted) = Mounted::new(&options) else { return };
    let slow = create(&mounted.at("slow"), b"before");
    create(&mounted.at("other"), b"other");
    let frozen = Frozen::new(&mounted);
    thread::scope(|scope| {
        let writer = scope.spawn(|| slow.write_all_at(b"behind", 0));
        until_it_waits(&mounted);
        assert_eq!(fs::read(mounted.at("slow")).unwrap(), b"before");
        assert_eq!(fs::read(mounted.at("other")).unwrap(), b"other");
        frozen.end();
        writer.join().unwrap().unwrap();
    });
    assert_eq!(fs::read(mounted.at("slow")).unwrap(), b"behind");
}

/// Files in RAM are created, written, read, renamed and deleted while flash accepts no writes and
/// older files wait for their write-back. Names at the top waited for the process that had
/// requested it: the kernel blocks changes in a directory while an attribute of it is being set.
// Promises: Mount 32.
#[test]
fn files_in_ram_do_not_wait_for_flash() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    fs::create_dir(mounted.at("dir")).unwrap();
    create(&mounted.at("first"), b"first");
    let frozen = Frozen::new(&mounted);
    thread::scope(|scope| {
        let settling = scope.spawn(|| mounted.try_settle());
        until_it_waits(&mounted);
        let file = create(&mounted.at("dir/new"), b"new");
        file.write_all_at(b"more", 3).unwrap();
        fs::rename(mounted.at("dir/new"), mounted.at("renamed")).unwrap();
        assert_eq!(fs::read(mounted.at("renamed")).unwrap(), b"newmore");
        assert_eq!(fs::read(mounted.at("first")).unwrap(), b"first");
        fs::remove_file(mounted.at("renamed")).unwrap();
        frozen.end();
        settling.join().unwrap().unwrap();
    });
    assert_eq!(fs::read(mounted.below("first")).unwrap(), b"first");
    // The kernel reports the last close of a file after close(2) has returned: the first status
    // that followed it still had 0 once.
    let mut counts = (0..1000).map(|_| mounted.status()["never_written"].clone());
    assert_eq!(counts.find(|count| *count != 0), Some(1.into()));
}
