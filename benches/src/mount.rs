//! `--mount`: cost of a mount, compared with the same ext4 without it, with a FUSE file system that
//! does nothing, and with passthrough file systems on the PATH.

use crate::{FLASHSIFT, Report, median};
use anyhow::Context;
use flashsift_testbed::{FileSystem, Mounted, has, output};
use fuser::{
    FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request,
};
use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant, UNIX_EPOCH},
};

/// Size of the file that is read and written, in bytes; it stays in the page cache.
const FILE_BYTES: u64 = 64 << 20;
/// Accesses of 4 KiB in one timing.
const ACCESSES: u64 = 20_000;
/// Number of small files in a round.
const FILES: usize = 2_000;
const SMALL_BYTES: usize = 4096;
/// Number of files held while memory is measured.
const HELD: usize = 100_000;

pub(crate) fn report(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        report.line("SKIPPED: mounting requires root.\n");
        return Ok(());
    }
    let bed = Bed::new()?;
    settled(report, rounds, &bed)?;
    observed(report, rounds, &bed)?;
    small(report, rounds, &bed)?;
    memory(report, &bed)
}

/// An ext4 on a loop device; one directory is BACKING, another is used without a mount.
pub(crate) struct Bed {
    _mounted: Mounted,
    dir: tempfile::TempDir,
}

impl Bed {
    pub(crate) fn new() -> anyhow::Result<Bed> {
        let dir = tempfile::tempdir_in("target")?;
        let (image, ext4) = (dir.path().join("image"), dir.path().join("ext4"));
        FileSystem::new("ext4", 4 << 30).make(&image).map_err(anyhow::Error::msg)?;
        fs::create_dir(&ext4)?;
        let mounted = Mounted::new(&["-o", "loop"], &image, &ext4).map_err(anyhow::Error::msg)?;
        let bed = Bed { _mounted: mounted, dir };
        for name in ["ext4/native", "ext4/backing", "mount", "nothing"] {
            fs::create_dir(bed.path(name))?;
        }
        Ok(bed)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Mounts BACKING until the result is dropped.
    fn mount(&self, settle_after: &str) -> anyhow::Result<Flashsift> {
        self.mount_at("ext4/backing", "mount", &["--settle-after", settle_after])
    }

    /// Mounts this directory with these options until the result is dropped.
    pub(crate) fn mount_at(
        &self,
        backing: &str,
        mountpoint: &str,
        options: &[&str],
    ) -> anyhow::Result<Flashsift> {
        let mountpoint = self.path(mountpoint);
        let mounted = Mounted::owner(&mountpoint);
        run(Command::new(FLASHSIFT)
            .arg("mount")
            .args([&self.path(backing), &mountpoint])
            .args(["--budget", "2GiB"])
            .args(options))?;
        Ok(Flashsift { mountpoint, _mounted: mounted })
    }
}

pub(crate) struct Flashsift {
    mountpoint: PathBuf,
    _mounted: Mounted,
}

impl Drop for Flashsift {
    fn drop(&mut self) {
        let _ = run(Command::new(FLASHSIFT).arg("unmount").arg(&self.mountpoint));
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    output(command).map(drop).map_err(anyhow::Error::msg)
}

/// Pseudo-random offsets, the same in each round.
struct Places(u64);

impl Places {
    fn next(&mut self, bytes: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % (FILE_BYTES / bytes) * bytes
    }
}

/// Random accesses per second, of `bytes` bytes each.
fn accesses(file: &File, bytes: u64, write: bool) -> anyhow::Result<f64> {
    let (mut places, mut buffer) = (Places(0x9e37_79b9_7f4a_7c15), vec![1; bytes as usize]);
    let count = ACCESSES * 4096 / bytes.min(16384);
    let began = Instant::now();
    for _ in 0..count {
        let at = places.next(bytes);
        match write {
            true => file.write_all_at(&buffer, at)?,
            false => file.read_exact_at(&mut buffer, at)?,
        }
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

fn fill(path: &Path) -> anyhow::Result<()> {
    let file = File::create(path)?;
    let chunk = vec![7; 1 << 20];
    for at in (0..FILE_BYTES).step_by(chunk.len()) {
        file.write_all_at(&chunk, at)?;
    }
    Ok(file.sync_all()?)
}

/// Measures two ways of doing the same in alternating order: returns medians, and the ratio of each
/// round.
pub(crate) fn by_turns(
    rounds: usize,
    mut ours: impl FnMut() -> anyhow::Result<f64>,
    mut theirs: impl FnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<(f64, f64, String)> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            a.push(ours()?);
            b.push(theirs()?);
        } else {
            b.push(theirs()?);
            a.push(ours()?);
        }
    }
    let ratios: Vec<_> = a.iter().zip(&b).map(|(a, b)| format!("{:.2}", a / b)).collect();
    Ok((median(&mut a), median(&mut b), ratios.join(" ")))
}

fn row(report: &mut Report, what: &str, asked: f64, (ours, theirs, ratios): (f64, f64, String)) {
    report.line(&format!(
        "| {what} | {ours:.0} | {theirs:.0} | {:.2} | {asked} | {ratios} |",
        ours / theirs
    ));
}

fn settled(report: &mut Report, rounds: usize, bed: &Bed) -> anyhow::Result<()> {
    report.line(&format!(
        "## Files on flash\n\nRandom reads and writes in a file of {} MiB in the page cache: on \
         flash before it was mounted, read and written by the kernel alone (passthrough); compared \
         with a file of the same ext4, on a loop device. Medians of {rounds} interleaved \
         rounds.\n\n| | mounted, 1/s | ext4, 1/s | ratio | required | ratios of the rounds \
         |\n|---|---:|---:|---:|---:|---|",
        FILE_BYTES >> 20
    ));
    fill(&bed.path("ext4/native/file"))?;
    fill(&bed.path("ext4/backing/file"))?;
    let _mounted = bed.mount("1h")?;
    let open = |path: &str| OpenOptions::new().read(true).write(true).open(bed.path(path));
    let (ours, native) = (open("mount/file")?, open("ext4/native/file")?);
    for (bytes, size) in [(4 << 10, "4 KiB"), (128 << 10, "128 KiB")] {
        for (write, what) in [(false, "reads"), (true, "writes")] {
            let turns = by_turns(
                rounds,
                || accesses(&ours, bytes, write),
                || accesses(&native, bytes, write),
            )?;
            row(report, &format!("{what} of {size}"), 0.95, turns);
        }
    }
    report.line("");
    Ok(())
}

fn observed(report: &mut Report, rounds: usize, bed: &Bed) -> anyhow::Result<()> {
    report.line(&format!(
        "## Observed files\n\nRandom reads of 4 KiB in a file in RAM, each served by the daemon; \
         compared with a FUSE file system with as many threads that answers each read with the \
         same bytes. Medians of {rounds} interleaved rounds.\n\n| | mounted, 1/s | do-nothing \
         FUSE, 1/s | ratio | required | ratios of the rounds |\n|---|---:|---:|---:|---:|---|"
    ));
    let _mounted = bed.mount("1h")?;
    fill_unsynced(&bed.path("mount/observed"))?;
    let mut config = fuser::Config::default();
    config.n_threads = Some(std::thread::available_parallelism()?.get().clamp(4, 8));
    let session = fuser::spawn_mount(Nothing, bed.path("nothing"), &config)?;
    let ours = File::open(bed.path("mount/observed"))?;
    let nothing = File::open(bed.path("nothing/file"))?;
    let turns =
        by_turns(rounds, || accesses(&ours, 4096, false), || accesses(&nothing, 4096, false))?;
    row(report, "reads of 4 KiB, one thread", 0.9, turns);
    let two = |file: &File| -> anyhow::Result<f64> {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| accesses(file, 4096, false));
            let rate = accesses(file, 4096, false)?;
            Ok(rate + other.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??)
        })
    };
    let turns = by_turns(rounds, || two(&ours), || two(&nothing))?;
    row(report, "two threads", 0.9, turns);
    drop(nothing);
    session.umount_and_join()?;
    report.line("");
    Ok(())
}

fn fill_unsynced(path: &Path) -> anyhow::Result<()> {
    let file = File::create(path)?;
    let chunk = vec![7; 1 << 20];
    for at in (0..FILE_BYTES).step_by(chunk.len()) {
        file.write_all_at(&chunk, at)?;
    }
    Ok(())
}

/// A file system of one file, which answers every read with the same bytes.
struct Nothing;

const ONCE: Duration = Duration::from_secs(3600);

fn attr(ino: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: FILE_BYTES,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if ino == 1 { FileType::Directory } else { FileType::RegularFile },
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Nothing {
    fn init(&mut self, _: &Request, _: &mut KernelConfig) -> std::io::Result<()> {
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.entry(&ONCE, &attr(2), Generation(0));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&ONCE, &attr(ino.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        static BYTES: [u8; 1 << 20] = [0; 1 << 20];
        reply.data(&BYTES[..size as usize]);
    }
}

/// An operation on each file.
type Act<'a> = &'a dyn Fn(&Path) -> std::io::Result<()>;

fn small(report: &mut Report, rounds: usize, bed: &Bed) -> anyhow::Result<()> {
    report.line(&format!(
        "## Small files\n\n{FILES} files of {SMALL_BYTES} bytes: each created, written and closed; \
         each opened, read and closed; each deleted. Compared with the same on ext4. Medians of \
         {rounds} interleaved rounds.\n\n| | mounted, files/s | ext4, files/s | ratio | required | \
         ratios of the rounds |\n|---|---:|---:|---:|---:|---|"
    ));
    let _mounted = bed.mount("1h")?;
    let rivals = RIVALS.iter().filter_map(|rival| Rival::start(rival, bed).transpose());
    let rivals = rivals.collect::<anyhow::Result<Vec<_>>>()?;
    let mut dirs = vec![bed.path("mount/small"), bed.path("ext4/native/small")];
    dirs.extend(rivals.iter().map(|rival| rival.mountpoint.join("small")));
    dirs.iter().try_for_each(fs::create_dir)?;
    let names: Vec<_> = (0..FILES).map(|n| format!("f_{n:06x}")).collect();
    let bytes = vec![3; SMALL_BYTES];
    let rate = |dir: &Path, act: Act<'_>| -> anyhow::Result<f64> {
        let began = Instant::now();
        for name in &names {
            act(&dir.join(name))?;
        }
        Ok(FILES as f64 / began.elapsed().as_secs_f64())
    };
    let create = |path: &Path| fs::write(path, &bytes);
    let read = |path: &Path| fs::read(path).map(drop);
    let unlink = |path: &Path| fs::remove_file(path);
    let steps: [(&str, f64, Act<'_>); 3] =
        [("create", 0.6, &create), ("read", 0.35, &read), ("unlink", 0.6, &unlink)];
    // All three steps belong to a round, as each needs the files of the one before.
    let mut rates = vec![vec![Vec::new(); dirs.len()]; steps.len()];
    for round in 0..rounds {
        for turn in 0..dirs.len() {
            let who = (round + turn) % dirs.len();
            for ((_, _, act), rates) in steps.iter().zip(&mut rates) {
                rates[who].push(rate(&dirs[who], *act)?);
            }
        }
    }
    let compared = |rates: &[Vec<f64>], with: usize| {
        let ratios: Vec<_> =
            rates[0].iter().zip(&rates[with]).map(|(a, b)| format!("{:.2}", a / b)).collect();
        (median(&mut rates[0].clone()), median(&mut rates[with].clone()), ratios.join(" "))
    };
    for ((what, asked, _), rates) in steps.iter().zip(&rates) {
        row(report, what, *asked, compared(rates, 1));
    }
    report.line("");
    for (rival, with) in rivals.iter().zip(2..) {
        report.line(&format!(
            "Compared with {} on the same ext4, in the same rounds:\n\n| | mounted, files/s | {0}, \
             files/s | ratio | ratios of the rounds |\n|---|---:|---:|---:|---|",
            rival.what
        ));
        for ((what, ..), rates) in steps.iter().zip(&rates) {
            let (ours, theirs, ratios) = compared(rates, with);
            report.line(&format!(
                "| {what} | {ours:.0} | {theirs:.0} | {:.2} | {ratios} |",
                ours / theirs
            ));
        }
        report.line("");
    }
    Ok(())
}

/// Passthrough file systems, if they are on the PATH: the program, its options, and its name in the
/// report.
const RIVALS: [(&str, &[&str], &str); 2] = [
    ("passthrough_hp", &["-o", "default_permissions"], "libfuse's `passthrough_hp`"),
    ("bindfs", &[], "`bindfs`"),
];

struct Rival {
    what: &'static str,
    mountpoint: PathBuf,
    _mounted: Mounted,
}

impl Rival {
    fn start(
        (program, options, what): &(&str, &[&str], &'static str),
        bed: &Bed,
    ) -> anyhow::Result<Option<Rival>> {
        if !has(program) {
            return Ok(None);
        }
        let (below, mountpoint) = (bed.path("ext4").join(program), bed.path(program));
        fs::create_dir(&below)?;
        fs::create_dir(&mountpoint)?;
        // They return when they are mounted, and resolve both names from the root directory.
        let (below, mountpoint) = (below.canonicalize()?, mountpoint.canonicalize()?);
        let mounted = Mounted::owner(&mountpoint);
        run(Command::new(program).args(*options).args([&below, &mountpoint]))?;
        Ok(Some(Rival { what, mountpoint, _mounted: mounted }))
    }
}

fn memory(report: &mut Report, bed: &Bed) -> anyhow::Result<()> {
    let _mounted = bed.mount("1h")?;
    let daemon = daemon(&bed.path("ext4/backing"))?;
    let before = resident_bytes(daemon)?;
    let dir = bed.path("mount/held");
    fs::create_dir(&dir)?;
    for n in 0..HELD {
        File::create(dir.join(format!("f_{n:06x}")))?;
    }
    let held = resident_bytes(daemon)?;
    let settle = Instant::now();
    run(Command::new(FLASHSIFT).arg("flush").arg(bed.path("mount")))?;
    let settle_s = settle.elapsed().as_secs_f64();
    let settled = resident_bytes(daemon)?;
    let each = |bytes: u64| bytes.saturating_sub(before) as f64 / HELD as f64;
    report.line(&format!(
        "## Memory\n\nMemory of the process, without the content of files (`RssAnon` + `RssFile`), \
         with {HELD} empty files with names of eight letters. Required: 16 MB and 300 bytes a \
         file.\n\n| | MB | bytes a file |\n|---|---:|---:|\n| mounted | {:.1} | |\n| all in RAM | \
         {:.1} | {:.0} |\n| all written back (in {settle_s:.1} s) | {:.1} | {:.0} |\n",
        before as f64 / 1e6,
        held as f64 / 1e6,
        each(held),
        settled as f64 / 1e6,
        each(settled),
    ));
    Ok(())
}

/// Returns the process in the background that serves this BACKING. Before the first change it has
/// made no file there.
pub(crate) fn daemon(backing: &Path) -> anyhow::Result<u32> {
    let serves = |process: &Path| {
        let words = fs::read(process.join("cmdline")).unwrap_or_default();
        let given = |wanted: &OsStr| words.split(|byte| *byte == 0).any(|w| w == wanted.as_bytes());
        given(OsStr::new("--in-background")) && given(backing.as_os_str())
    };
    let mut processes = fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
    let daemon = processes.find(|process| serves(process));
    let daemon = daemon.with_context(|| format!("no daemon serves {}", backing.display()))?;
    daemon.file_name().and_then(OsStr::to_str).and_then(|pid| pid.parse().ok()).context("a number")
}

fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = |name: &str| -> anyhow::Result<u64> {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .with_context(|| name.to_owned())?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    Ok((kib("RssAnon:")? + kib("RssFile:")?) * 1024)
}
