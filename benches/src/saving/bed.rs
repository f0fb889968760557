//! One side of a row: a fresh file system on a loop device of its own, with the layer over it.

use anyhow::Context;
use flashsift_events::event::{About, Event};
use flashsift_files::bound::Bound;
use flashsift_testbed::{FileSystem as Made, Loop, Mounted, has, output};
use flashsift_traces::{
    events::Sink,
    open::{self, Limits},
};
use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// A file system on which flashsift is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSystem {
    Ext4,
    F2fs,
}

impl FileSystem {
    pub(super) fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::F2fs => "f2fs",
        }
    }
}

/// A way to store the files of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Flashsift,
    Plain,
    /// flashsift that records the row for the bound; its bytes are not reported.
    Recorded,
    FastCommit,
    Volatile,
    Eatmydata,
    Tmpfs,
    Commit300,
    /// XFS in place of the file system.
    Xfs,
    /// Alone: they change settings of the machine.
    Expire300,
    XfsExpire300,
}

/// Files that were on the file system before.
const OTHERS: u32 = 100;

const EATMYDATA: &str = "libeatmydata.so";

impl Side {
    /// Everything that people use to spare flash.
    pub(super) const KNOBS: [Side; 8] = [
        Side::Commit300,
        Side::Xfs,
        Side::Expire300,
        Side::XfsExpire300,
        Side::FastCommit,
        Side::Volatile,
        Side::Eatmydata,
        Side::Tmpfs,
    ];

    /// Those of them that honour every sync.
    pub(super) const SETTINGS: [Side; 4] =
        [Side::Commit300, Side::Xfs, Side::Expire300, Side::XfsExpire300];

    /// Whether no other side may run at the same time.
    pub(super) fn is_alone(self) -> bool {
        matches!(self, Side::Expire300 | Side::XfsExpire300)
    }

    fn is_xfs(self) -> bool {
        matches!(self, Side::Xfs | Side::XfsExpire300)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Side::Flashsift => "flashsift",
            Side::Plain => "without",
            Side::Recorded => "flashsift --record",
            Side::FastCommit => "`fast_commit`",
            Side::Volatile => "overlayfs `volatile`",
            Side::Eatmydata => "eatmydata",
            Side::Tmpfs => "tmpfs, copied back",
            Side::Commit300 => "`commit=300`",
            Side::Expire300 => "`commit=300`, written back after 300 s",
            Side::Xfs => "XFS",
            Side::XfsExpire300 => "XFS, written back after 300 s",
        }
    }

    /// Names the data that a power cut destroys.
    pub(super) fn loses(self) -> &'static str {
        match self {
            Side::Flashsift | Side::Recorded => {
                "files that no program synced and that were not yet written back"
            }
            Side::Plain | Side::FastCommit => {
                "about the last 30 s of content that no program synced"
            }
            Side::Xfs => {
                "about the last 30 s of content that no program synced; a file renamed without a \
                 sync may be empty"
            }
            Side::Volatile => {
                "everything since the mount, synced or not; the upper directory has to be deleted"
            }
            Side::Eatmydata => {
                "about the last 30 s, synced or not; databases and renamed files can be damaged"
            }
            Side::Tmpfs => "everything since the last copy, synced or not",
            Side::Commit300 => {
                "about the last 30 s of content that no program synced, and names, sizes and \
                 appended content of the last 5 minutes"
            }
            Side::Expire300 | Side::XfsExpire300 => {
                "about the last 5 minutes of content that no program synced"
            }
        }
    }

    /// Returns the library that is loaded into the programs of the row.
    pub(super) fn preload(self) -> Option<&'static str> {
        (self == Side::Eatmydata).then_some(EATMYDATA)
    }

    /// Returns the reason for which this machine cannot run this side.
    pub(super) fn cannot_run(self) -> Option<&'static str> {
        if self == Side::Eatmydata && run(Command::new("eatmydata").arg("true")).is_err() {
            return Some("eatmydata is not installed");
        }
        (self.is_xfs() && !has("mkfs.xfs")).then_some("xfsprogs is not installed")
    }
}

/// Counts of one side in one round.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) written_bytes: u64,
    pub(super) flushes: u64,
    /// CPU time of the daemon in percent of one core, from the mount to the end of the row.
    pub(super) daemon_percent: Option<f64>,
    /// Peak of its resident memory.
    pub(super) daemon_peak_bytes: Option<u64>,
    /// A hash of all names and contents at the end.
    pub(super) tree: u64,
    pub(super) bound_bytes: Option<u64>,
    pub(super) status: Option<WritesShown>,
}

/// Figures of `flashsift status` before the unmount, with data that waits, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WritesShown {
    pub(super) ext4_bytes: u64,
    pub(super) flash_bytes: u64,
    /// The daemon does not see all writes.
    pub(super) unseen: bool,
}

/// A loop device with a file system on it.
pub(super) struct Bed {
    pub(super) side: Side,
    /// In order.
    mounted: Vec<Mounted>,
    dir: tempfile::TempDir,
    device: Loop,
    file_system: FileSystem,
    before: [u64; 2],
    attached: Instant,
}

impl Bed {
    pub(super) fn new(
        side: Side,
        file_system: FileSystem,
        dir: &Path,
        bytes: u64,
    ) -> anyhow::Result<Bed> {
        let dir = tempfile::tempdir_in(dir)?;
        let image = dir.path().join("image");
        // Otherwise a kernel thread initialises tables while the row is measured.
        const AT_ONCE: [&str; 2] = ["-E", "lazy_itable_init=0,lazy_journal_init=0"];
        let options: &[&str] = match side {
            _ if kind(side, file_system) != "ext4" => &[],
            Side::FastCommit => &[AT_ONCE[0], AT_ONCE[1], "-O", "fast_commit"],
            _ => &AT_ONCE,
        };
        let made = Made::new(kind(side, file_system), bytes).with(options);
        made.make(&image).map_err(anyhow::Error::msg)?;
        // Direct, so that no content is in the page cache twice; not every file system can.
        let device = Loop::new(&image, &["--direct-io=on"])
            .or_else(|_| Loop::new(&image, &["--direct-io=off"]))
            .map_err(anyhow::Error::msg)?;
        fs::remove_file(&image)?;
        let mut bed = Bed {
            side,
            mounted: Vec::new(),
            dir,
            device,
            file_system,
            before: [0; 2],
            attached: Instant::now(),
        };
        for name in ["fs", "over", "scratch"] {
            fs::create_dir(bed.path(name))?;
        }
        let is_slow_to_commit = matches!(side, Side::Commit300 | Side::Expire300);
        let options = if is_slow_to_commit { "commit=300" } else { "defaults" };
        bed.mount_device(options)?;
        for name in ["fs/files", "fs/beside", "fs/upper", "fs/work"] {
            fs::create_dir(bed.path(name))?;
        }
        bed.make_others()?;
        Ok(bed)
    }

    /// Makes files that were there before. On an empty file system the first files share their
    /// block of inodes with their directory, so each change of a name costs a block less than it
    /// does on a file system in use.
    fn make_others(&self) -> anyhow::Result<()> {
        let others = self.path("fs/others");
        fs::create_dir(&others)?;
        (0..OTHERS).try_for_each(|n| Ok(fs::write(others.join(n.to_string()), b"before")?))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn mount(&mut self, options: &[&str], what: &str, at: &str) -> anyhow::Result<()> {
        let mounted = Mounted::new(options, what, &self.path(at));
        self.mounted.push(mounted.map_err(anyhow::Error::msg)?);
        Ok(())
    }

    fn mount_device(&mut self, options: &str) -> anyhow::Result<()> {
        let device = self.device.node().to_owned();
        self.mount(&["-t", kind(self.side, self.file_system), "-o", options], &device, "fs")
    }

    fn is_flashsift(&self) -> bool {
        matches!(self.side, Side::Flashsift | Side::Recorded)
    }

    /// The directory in which the row works.
    pub(super) fn stage(&self) -> PathBuf {
        match self.side {
            Side::Flashsift | Side::Recorded | Side::Volatile | Side::Tmpfs => self.path("over"),
            _ => self.path("fs/files"),
        }
    }

    /// Mounts what lies over the file system. The counts begin here.
    pub(super) fn attach(&mut self, program: &Path, options: &str) -> anyhow::Result<()> {
        sync_file_system(&self.path("fs"))?;
        self.before = self.counts()?;
        match self.side {
            Side::Volatile => {
                let dir = |name| self.path(name).display().to_string();
                let (lower, upper, work) = (dir("fs/files"), dir("fs/upper"), dir("fs/work"));
                let options = format!("lowerdir={lower},upperdir={upper},workdir={work},volatile");
                self.mount(&["-t", "overlay", "-o", &options], "overlay", "over")?;
            }
            Side::Tmpfs => {
                self.mount(&["-t", "tmpfs"], "tmpfs", "over")?;
                let (from, to) = (self.path("fs/files/."), self.path("over"));
                run(Command::new("cp").arg("-a").args([from, to]))?;
            }
            Side::Flashsift | Side::Recorded => {
                let mut mount = Command::new(program);
                mount.arg("mount").args([self.path("fs/files"), self.path("over")]);
                mount.args(options.split_whitespace());
                if self.side == Side::Recorded {
                    mount.arg("--record").arg(self.path("scratch/row.parquet"));
                }
                run(&mut mount)?;
            }
            _ => {}
        }
        self.attached = Instant::now();
        Ok(())
    }

    /// Ends everything that lies over the file system, and it, and counts.
    pub(super) fn finish(mut self, program: &Path, hash: bool) -> anyhow::Result<Measured> {
        let mut measured = Measured::default();
        if self.is_flashsift() {
            let daemon = crate::mount::daemon(&self.path("fs/files"))?;
            let elapsed_s = self.attached.elapsed().as_secs_f64();
            measured.daemon_percent = Some(100.0 * cpu_s(daemon)? / elapsed_s);
            measured.daemon_peak_bytes = Some(peak_bytes(daemon)?);
            measured.status = writes_shown(program, &self.path("over"))?;
            run(Command::new(program).arg("unmount").arg(self.path("over")))?;
        }
        if self.side == Side::Tmpfs {
            let (from, to) = (self.path("over/."), self.path("fs/files"));
            run(Command::new("cp").arg("-a").args([from, to]))?;
        }
        while self.mounted.len() > 1 {
            self.unmount_last()?;
        }
        sync_file_system(&self.path("fs"))?;
        self.unmount_last()?;
        let after = self.counts()?;
        measured.written_bytes = (after[0] - self.before[0]) * 512;
        measured.flushes = after[1] - self.before[1];
        if hash {
            self.mount_device("ro")?;
            let files = if self.side == Side::Volatile { "fs/upper" } else { "fs/files" };
            measured.tree = tree(&self.path(files))?;
            self.unmount_last()?;
        }
        if self.side == Side::Recorded {
            measured.bound_bytes = Some(bound_bytes(&self.path("scratch/row.parquet"))?);
        }
        Ok(measured)
    }

    fn unmount_last(&mut self) -> anyhow::Result<()> {
        let last = self.mounted.pop().map_or(Ok(()), Mounted::unmount);
        last.map_err(anyhow::Error::msg)
    }

    /// Returns written sectors and flush requests so far.
    fn counts(&self) -> anyhow::Result<[u64; 2]> {
        let fields = self.device.stat();
        // Fields 7 and 16 of Documentation/block/stat.rst.
        let field = |at: usize| fields.get(at).copied().context("this kernel counts no flushes");
        Ok([field(6)?, field(15)?])
    }
}

/// The type of a side's file system.
fn kind(side: Side, file_system: FileSystem) -> &'static str {
    if side.is_xfs() { "xfs" } else { file_system.name() }
}

pub(super) fn run(command: &mut Command) -> anyhow::Result<String> {
    output(command).map_err(anyhow::Error::msg)
}

/// Only this file system, as other rows run at the same time.
fn sync_file_system(at: &Path) -> anyhow::Result<()> {
    Ok(rustix::fs::syncfs(File::open(at)?)?)
}

/// Returns the bytes of a status; `None` of a program that does not show them.
fn writes_shown(program: &Path, at: &Path) -> anyhow::Result<Option<WritesShown>> {
    let text = run(Command::new(program).args(["status", "--json"]).arg(at))?;
    let status: serde_json::Value = serde_json::from_str(&text)?;
    let writes = &status["writes"];
    let sum = |names: [&str; 2]| -> Option<u64> {
        names.into_iter().map(|name| writes[name].as_u64()).sum()
    };
    let ext4_bytes = sum(["ext4_bytes", "ext4_waiting_bytes"]);
    let flash_bytes = sum(["flash_bytes", "flash_waiting_bytes"]);
    let unseen = writes["unseen_opens"].as_u64() != Some(0);
    Ok(ext4_bytes.zip(flash_bytes).map(|(ext4_bytes, flash_bytes)| WritesShown {
        ext4_bytes,
        flash_bytes,
        unseen,
    }))
}

/// CPU seconds of a process so far, user and system.
fn cpu_s(pid: u32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = text.rsplit_once(')').context("a name in brackets")?;
    let mut times = fields.split_whitespace().skip(11).take(2);
    let mut ticks = || -> anyhow::Result<u64> { Ok(times.next().context("a time")?.parse()?) };
    let ticks = ticks()? + ticks()?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn peak_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// Returns a hash of the names and contents of all files below a directory.
fn tree(top: &Path) -> anyhow::Result<u64> {
    let mut hash = DefaultHasher::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        let mut entries = fs::read_dir(&directory)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if entry.file_name() == ".flashsift" {
                continue;
            }
            let path = entry.path();
            path.strip_prefix(top)?.hash(&mut hash);
            match entry.file_type()?.is_dir() {
                true => directories.push(path),
                false => fs::read(&path)?.hash(&mut hash),
            }
        }
    }
    Ok(hash.finish())
}

#[derive(Default)]
struct Bounding(Bound);

impl Sink for Bounding {
    fn about(&mut self, _: About) -> Result<(), flashsift_traces::Error> {
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), flashsift_traces::Error> {
        events.iter().for_each(|event| self.0.event(event));
        Ok(())
    }
}

fn bound_bytes(trace: &Path) -> anyhow::Result<u64> {
    let mut bounding = Bounding::default();
    match fs::metadata(trace) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            anyhow::bail!("the mount has left no trace")
        }
        other => other?,
    };
    open::read(trace, None, &mut bounding, &Limits::default())?;
    Ok(bounding.0.bytes())
}
