//! The process outside of the namespaces: it starts the measuring process, ends it at Ctrl-C, and
//! restores the settings of the machine that are changed.

use anyhow::{Context, bail, ensure};
use signal_hook::{consts, iterator::Signals};
use std::{
    env, fs,
    os::unix::process::CommandExt,
    process::{Command, exit},
    sync::mpsc,
    thread,
};

/// Set in the environment of the process inside.
pub(super) const INSIDE: &str = "FLASHSIFT_BENCH_INSIDE";
/// The directory that the process inside uses; this process deletes it.
pub(super) const DIRECTORY: &str = "FLASHSIFT_BENCH_DIRECTORY";

/// The age at which the kernel writes dirty pages back, and the pause after which XFS writes
/// metadata in place. Both are settings of the whole machine, in hundredths of a second.
const WAITS: [&str; 2] =
    ["/proc/sys/vm/dirty_expire_centisecs", "/proc/sys/fs/xfs/xfssyncd_centisecs"];

/// Runs this command line again in mount and process namespaces of its own.
///
/// Ctrl-C and kills end the process inside by SIGKILL, and with it every process of its namespace.
/// The kernel then removes the mounts. A loop device detaches when its last user ends, and its
/// image has no name. Only a SIGKILL of this process leaves something: an empty directory in
/// `target`, and [`WAITS`] if they were changed at that time.
pub(super) fn run() -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in("target")?;
    let waits = Waits::now();
    let mut inside = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .arg(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(INSIDE, "1")
        .env(DIRECTORY, dir.path().canonicalize()?)
        // Ctrl-C in a terminal reaches this process alone.
        .process_group(0)
        .spawn()
        .context("unshare")?;
    let (ended, end) = mpsc::channel();
    let mut signals = Signals::new([consts::SIGINT, consts::SIGTERM, consts::SIGHUP])?;
    let group = rustix::process::Pid::from_child(&inside);
    let ended_by_signal = ended.clone();
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let _ = ended_by_signal.send(Err(signal));
        }
    });
    thread::spawn(move || {
        let _ = ended.send(Ok(inside.wait()));
    });
    let how = end.recv()?;
    if how.is_err() {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        // The directory can be deleted when the mounts in it have ended.
        let _ = end.recv();
    }
    drop(waits);
    drop(dir);
    match how {
        Err(signal) => exit(128 + signal),
        Ok(status) => match status?.code() {
            Some(0) => Ok(()),
            Some(code) => exit(code),
            None => bail!("the measuring process was killed"),
        },
    }
}

/// Removes the copies of other mounts of flashsift from the namespace of this process. Their
/// daemons would not end before this process does.
pub(super) fn let_go_of_other_mounts() -> anyhow::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    for line in mounts.lines().rev().filter(|line| line.contains(" - fuse.flashsift ")) {
        let point = line.split(' ').nth(4).context("a mount point in mountinfo")?;
        // A space is escaped there.
        let point = point.replace("\\040", " ");
        // It may have ended since.
        let _ = Command::new("umount").args(["--lazy", &point]).output();
    }
    Ok(())
}

/// The values of [`WAITS`] that this kernel has. They are set again when this is dropped.
pub(super) struct Waits(Vec<(&'static str, String)>);

impl Waits {
    fn now() -> Waits {
        let value = |path| Some((path, fs::read_to_string(path).ok()?));
        Waits(WAITS.into_iter().filter_map(value).collect())
    }

    pub(super) fn set(seconds: u32) -> anyhow::Result<Waits> {
        let before = Self::now();
        ensure!(before.0.iter().any(|(path, _)| *path == WAITS[0]), "{} is missing", WAITS[0]);
        for (path, _) in &before.0 {
            fs::write(path, (seconds * 100).to_string()).context(*path)?;
        }
        Ok(before)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            if fs::read_to_string(path).is_ok_and(|now| now != *value) {
                let _ = fs::write(path, value);
            }
        }
    }
}
