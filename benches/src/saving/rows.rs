//! The rows: each is a load on one directory. A row runs in a process of its own.

use super::bed::Side;
use anyhow::{Context, ensure};
use rustix::fs::FallocateFlags;
use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Whether a row can run at the same time as others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// It mostly waits: all its rounds run at the same time.
    Waits,
    /// It takes seconds of work: one after another.
    Busy,
    /// It takes minutes of work: one after another, beside those of `Busy`.
    Long,
}

pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// The ratio to the file system alone, at most.
    pub(super) required: f64,
    pub(super) pace: Pace,
    /// Also measured with these, on ext4.
    pub(super) knobs: &'static [Side],
    /// Every side ends with the same files, byte by byte.
    pub(super) same: bool,
    /// It takes minutes at any scale, so `--quick` leaves it out.
    pub(super) slow: bool,
    pub(super) programs: &'static [&'static str],
    pub(super) device_bytes: u64,
    /// Options of its mount, separated by spaces.
    pub(super) options: &'static str,
    /// Makes files in a directory that were there before.
    pub(super) prepare: fn(&Path) -> anyhow::Result<()>,
    pub(super) perform: fn(&Stage) -> anyhow::Result<()>,
}

impl Row {
    pub(super) fn cannot_run(&self, quick: bool) -> Option<String> {
        if quick && self.slow {
            return Some("takes minutes; left out by --quick".to_owned());
        }
        let missing = self.programs.iter().find(|program| {
            let mut version = Command::new(program);
            version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
        });
        missing.map(|program| format!("{program} is not installed"))
    }
}

/// The place and scale of a row.
pub(super) struct Stage {
    pub(super) dir: PathBuf,
    /// On the same file system, outside of the mount.
    pub(super) beside: PathBuf,
    /// Not on the measured device.
    pub(super) scratch: PathBuf,
    pub(super) quick: bool,
    pub(super) visits: u32,
}

impl Stage {
    fn count(&self, full: u32, quick: u32) -> u32 {
        if self.quick { quick } else { full }
    }
}

/// No requirement of its own: no row may write more than this.
const NEVER_ABOVE: f64 = 1.02;
const SMALL_BYTES: usize = 20_000;
const GIB: u64 = 1 << 30;

/// It has the package python3-plyvel.
const DEBIANS_PYTHON: &str = "/usr/bin/python3";

const ROW: Row = Row {
    name: "",
    what: "",
    required: NEVER_ABOVE,
    pace: Pace::Waits,
    knobs: &[],
    same: true,
    slow: false,
    programs: &[],
    device_bytes: GIB,
    options: "",
    prepare: |_| Ok(()),
    perform: |_| Ok(()),
};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "chromium",
        what: "Chromium with profile and cache on the mount",
        required: 0.95,
        pace: Pace::Long,
        knobs: &Side::SETTINGS,
        same: false,
        programs: &["chromium", "python3"],
        device_bytes: 4 * GIB,
        perform: |stage| chromium(stage, false),
        ..ROW
    },
    Row {
        name: "chromium-cache",
        what: "Chromium with only its cache on the mount",
        required: 0.88,
        pace: Pace::Long,
        knobs: &Side::KNOBS,
        same: false,
        programs: &["chromium", "python3"],
        device_bytes: 4 * GIB,
        perform: |stage| chromium(stage, true),
        ..ROW
    },
    Row {
        name: "files-180",
        what: "180 files of 20 kB, one a second",
        required: 0.8,
        knobs: &Side::KNOBS,
        perform: |stage| files(stage, stage.count(180, 40), SMALL_BYTES, 1, None),
        ..ROW
    },
    Row {
        name: "live-10s",
        what: "120 files of 20 kB, one a second, each deleted after 10 s",
        perform: |stage| files(stage, stage.count(120, 30), SMALL_BYTES, 1, Some(10)),
        ..ROW
    },
    Row {
        name: "live-45s",
        what: "120 files of 20 kB, one a second, each deleted after 45 s",
        knobs: &Side::KNOBS,
        perform: |stage| files(stage, stage.count(120, 30), SMALL_BYTES, 1, Some(45)),
        ..ROW
    },
    Row {
        name: "live-5min",
        what: "120 files of 20 kB, one a second, each deleted after 5 minutes",
        slow: true,
        perform: |stage| files(stage, 120, SMALL_BYTES, 1, Some(300)),
        ..ROW
    },
    Row {
        name: "staged",
        what: "30 files of 1 MiB, of which 10 each live 5, 20 and 45 s, 5 that stay, one that is \
               appended to and synced 4 times, and a log; 80 s",
        slow: true,
        perform: staged,
        ..ROW
    },
    Row {
        name: "mb-45s",
        what: "24 files of 1 MiB, one in 5 s, each deleted after 45 s",
        perform: |stage| files(stage, stage.count(24, 6), 1 << 20, 5, Some(45)),
        ..ROW
    },
    Row {
        name: "mb64-once",
        what: "one file of 64 MiB",
        perform: |stage| files(stage, 1, 64 << 20, 45, None),
        ..ROW
    },
    Row {
        name: "log",
        what: "a log: one line of 100 bytes a second, 500 lines",
        required: 0.2,
        knobs: &Side::SETTINGS,
        perform: |stage| log(stage, stage.count(500, 60)),
        ..ROW
    },
    Row {
        name: "old-logs",
        what: "four logs that were there before: a line of 100 bytes a second to each, 500 seconds",
        required: 0.2,
        knobs: &Side::SETTINGS,
        prepare: old_logs,
        perform: |stage| append_to_old_logs(stage, stage.count(500, 120), false),
        ..ROW
    },
    Row {
        name: "rotated-logs",
        what: "the same, and each log is rotated once, as by logrotate",
        required: 0.2,
        knobs: &Side::SETTINGS,
        prepare: old_logs,
        perform: |stage| append_to_old_logs(stage, stage.count(500, 120), true),
        ..ROW
    },
    Row {
        name: "journal",
        what: "a file of 8 MiB that was there before, mapped: as journald, an entry of 300 bytes a \
               second behind the others, two stores before them, and `ftruncate` to the same size; \
               an fsync after 5 minutes, 500 seconds",
        required: 0.2,
        knobs: &Side::SETTINGS,
        programs: &["python3"],
        prepare: |dir| Ok(fs::write(dir.join("system.journal"), vec![0_u8; JOURNAL_BYTES])?),
        perform: |stage| journal(stage, stage.count(500, 120)),
        ..ROW
    },
    Row {
        name: "neighbour",
        what: "120 files of 20 kB, one a second, while another program rewrites 2 MiB a second on \
               the same file system",
        perform: |stage| neighbour(stage, stage.count(120, 30)),
        ..ROW
    },
    Row {
        name: "rename",
        what: "300 times: write 4 KiB to a temporary file, fsync, rename over the old one",
        pace: Pace::Busy,
        knobs: &Side::KNOBS,
        perform: |stage| renames(stage, stage.count(300, 60)),
        ..ROW
    },
    Row {
        name: "fsync-1000",
        what: "1000 files of 4 KiB, then an fsync of each",
        pace: Pace::Busy,
        perform: |stage| synced(stage, stage.count(1000, 200), 4096, true),
        ..ROW
    },
    Row {
        name: "fsync-100",
        what: "100 files of 20 kB, each with an fsync before the next",
        pace: Pace::Busy,
        knobs: &Side::KNOBS,
        perform: |stage| synced(stage, stage.count(100, 30), SMALL_BYTES, false),
        ..ROW
    },
    Row {
        name: "packages",
        what: "1500 packages of two directories and two files, unpacked at once, \
               `--budget 16MiB`",
        pace: Pace::Busy,
        options: "--budget 16MiB",
        perform: |stage| packages(stage, stage.count(1500, 300)),
        ..ROW
    },
    Row {
        name: "leveldb",
        what: "LevelDB, 500 values of 400 bytes a second at random keys, 2 minutes",
        // Its log has times.
        same: false,
        programs: &[DEBIANS_PYTHON],
        perform: |stage| leveldb(stage, stage.count(120, 30)),
        ..ROW
    },
    Row {
        name: "lmdb",
        what: "LMDB: 300 transactions of five values",
        // Its table of readers has process IDs.
        same: false,
        required: 1.05,
        programs: &[DEBIANS_PYTHON],
        perform: |stage| lmdb(stage, stage.count(300, 60)),
        ..ROW
    },
    Row {
        name: "sqlite-delete",
        what: "SQLite, `journal_mode=DELETE`: 300 transactions of one row",
        perform: |stage| sqlite(stage, "DELETE"),
        ..SQLITE
    },
    Row {
        name: "sqlite-wal",
        what: "SQLite, `journal_mode=WAL`: 300 transactions of one row",
        knobs: &Side::SETTINGS,
        perform: |stage| sqlite(stage, "WAL"),
        ..SQLITE
    },
    Row {
        name: "sqlite-truncate",
        what: "SQLite, `journal_mode=TRUNCATE`: 300 transactions of one row",
        perform: |stage| sqlite(stage, "TRUNCATE"),
        ..SQLITE
    },
    Row {
        name: "delayed-delete",
        what: "SQLite, `DELETE`, 600 transactions in 2 minutes, `delayed:60s`",
        required: 0.05,
        perform: |stage| paced(stage, "DELETE", "FULL", 5),
        ..DELAYED
    },
    Row {
        name: "delayed-wal-full",
        what: "SQLite, `WAL` and `synchronous=FULL`, 600 transactions in 2 minutes, `delayed:60s`",
        required: 0.85,
        perform: |stage| paced(stage, "WAL", "FULL", 5),
        ..DELAYED
    },
    Row {
        name: "delayed-wal-full-50",
        what: "the same with 6000 transactions",
        required: 0.1,
        perform: |stage| paced(stage, "WAL", "FULL", 50),
        ..DELAYED
    },
    Row {
        name: "delayed-wal-normal",
        what: "SQLite, `WAL` and `synchronous=NORMAL`, 600 transactions in 2 minutes, \
               `delayed:60s`",
        perform: |stage| paced(stage, "WAL", "NORMAL", 5),
        ..DELAYED
    },
    Row {
        name: "delayed-wal-normal-50",
        what: "the same with 6000 transactions",
        perform: |stage| paced(stage, "WAL", "NORMAL", 50),
        ..DELAYED
    },
    Row {
        name: "delayed-wal-normal-2s",
        what: "`delayed-wal-normal` with `delayed:2s`: ten transactions an epoch",
        options: "--delay-sync *=2s",
        perform: |stage| paced(stage, "WAL", "NORMAL", 5),
        ..DELAYED
    },
    Row {
        name: "delayed-bulk",
        what: "SQLite, `WAL` and `synchronous=NORMAL`, all of 20,000 rows changed every 10 s in 2 \
               minutes, `delayed:60s`",
        perform: bulk,
        ..DELAYED
    },
    Row {
        name: "delayed-saved",
        what: "a file of 1 MiB that is truncated, written anew and synced every 5 s in 2 minutes, \
               `delayed:60s`",
        perform: saved,
        ..DELAYED
    },
    Row {
        name: "delayed-pages",
        what: "20 pages a second of a file of 16 MiB, at random, synced every 5 s in 2 minutes, \
               `delayed:60s`",
        perform: pages,
        ..DELAYED
    },
    Row {
        name: "delayed-pages-5s",
        what: "the same with `delayed:5s`: one or two syncs an epoch",
        options: "--delay-sync *=5s",
        perform: pages,
        ..DELAYED
    },
    Row {
        name: "delayed-records",
        what: "100 bytes in each of 20 pages a second, at random, of a file of 16 MiB that was there \
               before, synced every 5 s in 2 minutes, `delayed:60s`",
        prepare: |dir| Ok(fs::write(dir.join("pages"), content(1, PAGES as usize * PAGE))?),
        perform: records,
        ..DELAYED
    },
    Row {
        name: "delayed-records-5s",
        what: "the same with `delayed:5s`",
        options: "--delay-sync *=5s",
        prepare: |dir| Ok(fs::write(dir.join("pages"), content(1, PAGES as usize * PAGE))?),
        perform: records,
        ..DELAYED
    },
    Row {
        name: "delayed-queue",
        what: "two records of 8 KiB a second at the end of a file of 16 MiB that was there before, \
               and as many holes of 64 KiB from its beginning on, synced every 2 s in 2 minutes, \
               `delayed:60s`",
        prepare: |dir| Ok(fs::write(dir.join("pages"), content(1, PAGES as usize * PAGE))?),
        perform: queue,
        ..DELAYED
    },
    Row {
        name: "delayed-browser",
        what: "Chromium with profile and cache, four people in 30 minutes, `delayed:5m`",
        required: 0.42,
        pace: Pace::Long,
        programs: &["chromium", "python3"],
        device_bytes: 4 * GIB,
        perform: |stage| app(stage, "browser", 30),
        ..DELAYED_APP
    },
    Row {
        name: "delayed-feed",
        what: "`workloads/feed`, 20 minutes, `delayed:5m`",
        required: 0.4,
        perform: |stage| app(stage, "feed", 20),
        ..DELAYED_APP
    },
    Row {
        name: "delayed-messenger",
        what: "`workloads/messenger`, 12 minutes, `delayed:5m`",
        required: 0.25,
        perform: |stage| app(stage, "messenger", 12),
        ..DELAYED_APP
    },
    Row {
        name: "delayed-map",
        what: "`workloads/map`, 30 minutes, `delayed:5m`",
        required: 0.45,
        perform: |stage| app(stage, "map", 30),
        ..DELAYED_APP
    },
    Row {
        name: "delayed-video",
        what: "`workloads/video`, 12 minutes, `delayed:5m`",
        required: 0.05,
        device_bytes: 4 * GIB,
        perform: |stage| app(stage, "video", 12),
        ..DELAYED_APP
    },
    Row {
        name: "delayed-game",
        what: "`workloads/game`, 12 minutes, `delayed:5m`",
        required: 0.75,
        device_bytes: 4 * GIB,
        perform: |stage| app(stage, "game", 12),
        ..DELAYED_APP
    },
    Row {
        name: "delayed-chromium",
        what: "Chromium with profile and cache, 24 pages with a tenth of the think time, \
               `delayed:5m`",
        required: 0.68,
        pace: Pace::Long,
        programs: &["chromium", "python3"],
        device_bytes: 4 * GIB,
        perform: |stage| browse(stage.dir.join("browser"), &["--visits", "24", "--speed", "10"]),
        ..DELAYED_APP
    },
    Row {
        name: "one-byte",
        what: "one file of one byte: the fixed cost of mounting and unmounting",
        // Some blocks, which no saving can make up for.
        required: f64::INFINITY,
        perform: |stage| files(stage, 1, 1, 0, None),
        ..ROW
    },
    Row {
        name: "git",
        what: "git: init, 30 commits of 4 files, one in 2 s, gc",
        same: false,
        programs: &["git"],
        knobs: &Side::SETTINGS,
        perform: git,
        ..ROW
    },
];

const SQLITE: Row = Row { pace: Pace::Busy, programs: &["sqlite3"], ..ROW };

const DELAYED: Row = Row {
    knobs: &Side::KNOBS,
    slow: true,
    same: false,
    options: "--delay-sync *=60s",
    pace: Pace::Waits,
    prepare: database,
    ..SQLITE
};

const DELAYED_APP: Row = Row {
    options: "--delay-sync *=5m",
    prepare: |_| Ok(()),
    programs: &["python3", "sqlite3", "curl"],
    knobs: &[Side::Eatmydata, Side::Tmpfs],
    ..DELAYED
};

/// A clock of whole seconds since the row began, for loads with a fixed rate.
struct Clock(Instant);

impl Clock {
    fn start() -> Clock {
        Clock(Instant::now())
    }

    fn wait_until(&self, second: u32) {
        let end = Duration::from_secs(second.into());
        thread::sleep(end.saturating_sub(self.0.elapsed()));
    }
}

/// Bytes that differ from file to file.
fn content(number: u32, bytes: usize) -> Vec<u8> {
    let mut state = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut content: Vec<u8> =
        std::iter::repeat_with(&mut step).take(bytes / 8 + 1).flatten().collect();
    content.truncate(bytes);
    content
}

fn name(stage: &Stage, number: u32) -> PathBuf {
    stage.dir.join(format!("f_{number:06}"))
}

/// Creates files, one in `every` seconds, and deletes each `life` seconds after its creation.
fn files(
    stage: &Stage,
    count: u32,
    bytes: usize,
    every: u32,
    life: Option<u32>,
) -> anyhow::Result<()> {
    let clock = Clock::start();
    let mut steps: Vec<(u32, bool, u32)> = (0..count).map(|n| (n * every, true, n)).collect();
    if let Some(life) = life {
        steps.extend((0..count).map(|n| (n * every + life, false, n)));
    }
    steps.sort_unstable();
    for (second, create, number) in steps {
        clock.wait_until(second);
        match create {
            true => fs::write(name(stage, number), content(number, bytes))?,
            false => fs::remove_file(name(stage, number))?,
        }
    }
    clock.wait_until(count * every + life.unwrap_or(0));
    Ok(())
}

/// Files of each age at the side of the kernel's 30 s, a synced file and a log.
fn staged(stage: &Stage) -> anyhow::Result<()> {
    const MIB: usize = 1 << 20;
    const APPENDED: usize = 64 << 10;
    let of = |life: u32| life * 1000..life * 1000 + 10;
    for number in [5, 20, 45].into_iter().flat_map(of).chain(0..5) {
        fs::write(name(stage, number), content(number, MIB))?;
    }
    let mut synced = File::create(stage.dir.join("synced"))?;
    let mut log = OpenOptions::new().append(true).create(true).open(stage.dir.join("app.log"))?;
    let clock = Clock::start();
    for second in 0..80 {
        clock.wait_until(second);
        log.write_all(&content(second, 4096))?;
        if second < 12 && second.is_multiple_of(3) {
            synced.write_all(&content(second, APPENDED))?;
            synced.sync_all()?;
        }
        if [5, 20, 45].contains(&second) {
            of(second).try_for_each(|number| fs::remove_file(name(stage, number)))?;
        }
    }
    Ok(())
}

fn log(stage: &Stage, lines: u32) -> anyhow::Result<()> {
    let mut log = OpenOptions::new().append(true).create(true).open(stage.dir.join("app.log"))?;
    let clock = Clock::start();
    for line in 1..=lines {
        log.write_all(format!("{line:010} {:>88}\n", "a line of a log").as_bytes())?;
        clock.wait_until(line);
    }
    Ok(())
}

const OLD_LOGS: [&str; 4] = ["syslog", "auth.log", "kern.log", "access.log"];
const JOURNAL_BYTES: usize = 8 << 20;

fn old_logs(dir: &Path) -> anyhow::Result<()> {
    for (number, log) in OLD_LOGS.iter().enumerate() {
        fs::write(dir.join(log), content(number as u32, 150_000))?;
    }
    Ok(())
}

fn append_to_old_logs(stage: &Stage, lines: u32, rotates: bool) -> anyhow::Result<()> {
    let open = |log: &str| {
        OpenOptions::new().append(true).create(true).open(stage.dir.join(log)).map_err(Into::into)
    };
    let mut logs = OLD_LOGS.map(open).into_iter().collect::<anyhow::Result<Vec<File>>>()?;
    let clock = Clock::start();
    for line in 1..=lines {
        for (number, log) in logs.iter_mut().enumerate() {
            log.write_all(format!("{line:010} {:>88}\n", "a line of a log").as_bytes())?;
            if rotates && line == lines * (number as u32 + 1) / 5 {
                let name = OLD_LOGS[number];
                fs::rename(stage.dir.join(name), stage.dir.join(format!("{name}.1")))?;
                *log = open(name)?;
            }
        }
        clock.wait_until(line);
    }
    Ok(())
}

fn journal(stage: &Stage, entries: u32) -> anyhow::Result<()> {
    const STORES: &str = r#"
import mmap, os, sys, time
path, entries = sys.argv[1], int(sys.argv[2])
journal = os.open(path, os.O_RDWR)
size = os.fstat(journal).st_size
mapped, end, start = mmap.mmap(journal, size), 1 << 20, time.monotonic()
for entry in range(1, entries + 1):
    mapped[end : end + 300] = b"%010d" % entry * 30
    mapped[64:72] = b"%08d" % entry
    mapped[8192 + entry % 4096 * 16 : 8200 + entry % 4096 * 16] = b"%08d" % entry
    end += 300
    os.ftruncate(journal, size)
    if entry % 300 == 0:
        os.fsync(journal)
    time.sleep(max(0, start + entry - time.monotonic()))
"#;
    let mut writer = Command::new("python3");
    writer.args(["-c", STORES]).arg(stage.dir.join("system.journal")).arg(entries.to_string());
    ensure!(writer.status()?.success(), "the writer of the journal failed");
    Ok(())
}

fn neighbour(stage: &Stage, seconds: u32) -> anyhow::Result<()> {
    const REWRITTEN_BYTES: usize = 2 << 20;
    let other = File::create(stage.beside.join("neighbour"))?;
    let clock = Clock::start();
    for second in 0..seconds {
        clock.wait_until(second);
        other.write_all_at(&content(second, REWRITTEN_BYTES), 0)?;
        fs::write(name(stage, second), content(second, SMALL_BYTES))?;
    }
    clock.wait_until(seconds);
    Ok(())
}

fn renames(stage: &Stage, count: u32) -> anyhow::Result<()> {
    let (state, temporary) = (stage.dir.join("state.json"), stage.dir.join("state.json.tmp"));
    for number in 0..count {
        let mut file = File::create(&temporary)?;
        file.write_all(&content(number, 4096))?;
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, &state)?;
    }
    Ok(())
}

fn synced(stage: &Stage, count: u32, bytes: usize, later: bool) -> anyhow::Result<()> {
    for number in 0..count {
        let mut file = File::create(name(stage, number))?;
        file.write_all(&content(number, bytes))?;
        if !later {
            file.sync_all()?;
        }
    }
    if later {
        for number in 0..count {
            File::open(name(stage, number))?.sync_all()?;
        }
    }
    Ok(())
}

fn packages(stage: &Stage, count: u32) -> anyhow::Result<()> {
    for number in 0..count {
        let package = stage.dir.join(format!("{}/{number}", number % 40));
        fs::create_dir_all(package.join("lib"))?;
        fs::write(package.join("package.json"), content(number, 700))?;
        fs::write(package.join("lib/index.js"), content(number, 3000))?;
    }
    Ok(())
}

fn leveldb(stage: &Stage, seconds: u32) -> anyhow::Result<()> {
    const PUTS: &str = "
import plyvel, random, sys, time
content, start = random.Random(1), time.monotonic()
db = plyvel.DB(sys.argv[1], create_if_missing=True, write_buffer_size=1 << 20)
for put in range(500 * int(sys.argv[2])):
    db.put(b'%012d' % content.randrange(200_000), content.randbytes(400))
    time.sleep(max(0, start + put / 500 - time.monotonic()))
db.close()
";
    let mut writer = Command::new(DEBIANS_PYTHON);
    writer.args(["-c", PUTS]).arg(stage.dir.join("leveldb")).arg(seconds.to_string());
    ensure!(writer.status()?.success(), "LevelDB failed; it needs python3-plyvel");
    Ok(())
}

fn lmdb(stage: &Stage, transactions: u32) -> anyhow::Result<()> {
    const PUTS: &str = "
import lmdb, random, sys
content = random.Random(1)
db = lmdb.open(sys.argv[1], map_size=64 << 20)
for transaction in range(int(sys.argv[2])):
    with db.begin(write=True) as put:
        for _ in range(5):
            put.put(content.randbytes(8), content.randbytes(content.choice((40, 500, 5000))))
db.close()
";
    let mut writer = Command::new(DEBIANS_PYTHON);
    writer.args(["-c", PUTS]).arg(stage.dir.join("lmdb")).arg(transactions.to_string());
    ensure!(writer.status()?.success(), "LMDB failed; it needs python3-lmdb");
    Ok(())
}

fn sqlite(stage: &Stage, mode: &str) -> anyhow::Result<()> {
    let mut sql =
        format!("PRAGMA journal_mode={mode};\nCREATE TABLE t(n INTEGER PRIMARY KEY, s);\n");
    for number in 0..stage.count(300, 60) {
        sql += &format!("INSERT INTO t(s) VALUES ('{number:0200}');\n");
    }
    let mut sqlite = Command::new("sqlite3");
    sqlite.arg("-bail").arg(stage.dir.join("data.db"));
    let mut process =
        sqlite.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("sqlite3")?;
    process.stdin.take().context("a pipe")?.write_all(sql.as_bytes())?;
    ensure!(process.wait()?.success(), "sqlite3 failed");
    Ok(())
}

/// Rows of a database that was there before.
const KNOWN_ROWS: u64 = 20_000;

fn database(dir: &Path) -> anyhow::Result<()> {
    let sql = format!(
        "CREATE TABLE t(n INTEGER PRIMARY KEY, s);
        INSERT INTO t WITH RECURSIVE c(n) AS
        (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT {KNOWN_ROWS})
        SELECT n, hex(randomblob(50)) FROM c;"
    );
    let mut sqlite = Command::new("sqlite3");
    let status = sqlite.arg("-bail").arg(dir.join("data.db")).arg(sql).status()?;
    ensure!(status.success(), "sqlite3 failed");
    Ok(())
}

/// Transactions at a fixed rate for two minutes, in a database that was there before.
fn paced(stage: &Stage, mode: &str, synchronous: &str, a_second: u64) -> anyhow::Result<()> {
    const TIME_S: u64 = 120;
    let mut sqlite = Command::new("sqlite3");
    sqlite.arg("-bail").arg(stage.dir.join("data.db"));
    let mut process =
        sqlite.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("sqlite3")?;
    let mut sql = process.stdin.take().context("a pipe")?;
    writeln!(sql, "PRAGMA journal_mode={mode}; PRAGMA synchronous={synchronous};")?;
    let begun = Instant::now();
    for number in 0..TIME_S * a_second {
        let due = Duration::from_micros(number * 1_000_000 / a_second);
        thread::sleep(due.saturating_sub(begun.elapsed()));
        // As a browser's history: most changes are of a few pages.
        let row = 1 + number * number * 7919 % (KNOWN_ROWS / 10);
        writeln!(sql, "UPDATE t SET s = hex(randomblob(50)) WHERE n = {row};")?;
    }
    drop(sql);
    ensure!(process.wait()?.success(), "sqlite3 failed");
    Ok(())
}

/// Transactions that change all rows.
fn bulk(stage: &Stage) -> anyhow::Result<()> {
    let mut sqlite = Command::new("sqlite3");
    sqlite.arg("-bail").arg(stage.dir.join("data.db"));
    let mut process =
        sqlite.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("sqlite3")?;
    let mut sql = process.stdin.take().context("a pipe")?;
    writeln!(sql, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;")?;
    let clock = Clock::start();
    for second in (10..=120).step_by(10) {
        clock.wait_until(second);
        writeln!(sql, "UPDATE t SET s = hex(randomblob(50));")?;
    }
    drop(sql);
    ensure!(process.wait()?.success(), "sqlite3 failed");
    Ok(())
}

/// A file that an application saves in place, as a whole.
fn saved(stage: &Stage) -> anyhow::Result<()> {
    let clock = Clock::start();
    for second in (5..=120).step_by(5) {
        clock.wait_until(second);
        let mut file = File::create(stage.dir.join("state"))?;
        file.write_all(&content(second, 1 << 20))?;
        file.sync_all()?;
    }
    Ok(())
}

/// A file in which a program changes pages.
const PAGE: usize = 4096;
const PAGES: u32 = 4096;

fn pages(stage: &Stage) -> anyhow::Result<()> {
    let file = File::create(stage.dir.join("pages"))?;
    file.set_len(u64::from(PAGES) * PAGE as u64)?;
    changes(&file, PAGE)
}

fn records(stage: &Stage) -> anyhow::Result<()> {
    changes(&File::options().write(true).open(stage.dir.join("pages"))?, 100)
}

/// A file that gets records at its end, and loses those at its beginning.
fn queue(stage: &Stage) -> anyhow::Result<()> {
    const HOLE_BYTES: u64 = 64 << 10;
    let mut file = File::options().append(true).open(stage.dir.join("pages"))?;
    let (clock, mut holes) = (Clock::start(), (0..).step_by(HOLE_BYTES as usize));
    for second in 1..=120 {
        for hole in holes.by_ref().take(2) {
            file.write_all(&content(second, 8 << 10))?;
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, hole, HOLE_BYTES)?;
        }
        if second % 2 == 0 {
            file.sync_data()?;
        }
        clock.wait_until(second);
    }
    Ok(())
}

/// Changes so many bytes of 20 pages a second.
fn changes(file: &File, bytes: usize) -> anyhow::Result<()> {
    let (clock, mut random) = (Clock::start(), 1_u32);
    for second in 1..=120 {
        for _ in 0..20 {
            // xorshift, of Marsaglia, "Xorshift RNGs", 2003.
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            let within = random as usize / PAGES as usize % (PAGE - bytes + 1);
            let at = (random % PAGES) as usize * PAGE + within;
            file.write_all_at(&content(random, bytes), at as u64)?;
        }
        if second % 5 == 0 {
            file.sync_data()?;
        }
        clock.wait_until(second);
    }
    Ok(())
}

fn git(stage: &Stage) -> anyhow::Result<()> {
    let git = |arguments: &[&str]| -> anyhow::Result<()> {
        let mut command = Command::new("git");
        command.current_dir(&stage.dir).args(arguments).stdout(Stdio::null());
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@b");
        }
        // The mount belongs to root, and no setting of this machine counts.
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        ensure!(command.status()?.success(), "git {arguments:?} failed");
        Ok(())
    };
    git(&["init", "-q"])?;
    let clock = Clock::start();
    for commit in 0..stage.count(30, 10) {
        clock.wait_until(2 * commit);
        for file in 0..4 {
            let number = commit * 3 + file;
            // Text that packs well, as source does.
            let line = format!("line of file {number} in commit {commit}\n");
            fs::write(name(stage, number % 40), line.repeat(150 + number as usize))?;
        }
        git(&["add", "-A"])?;
        git(&["commit", "-q", "-m", "one more"])?;
    }
    git(&["-c", "gc.auto=0", "gc", "-q"])
}

fn chromium(stage: &Stage, cache_only: bool) -> anyhow::Result<()> {
    let visits = stage.count(stage.visits, 24).to_string();
    let mut options = vec!["--visits", &visits, "--speed", if stage.quick { "10" } else { "1" }];
    if !cache_only {
        return browse(stage.dir.join("browser"), &options);
    }
    let cache = stage.dir.to_string_lossy();
    options.extend(["--cache", &cache]);
    browse(stage.scratch.join("browser"), &options)
}

fn browse(dir: PathBuf, options: &[&str]) -> anyhow::Result<()> {
    workload("browser", &dir, options)
}

/// One of the applications of `workloads`, for as long as in `testdata`.
fn app(stage: &Stage, name: &str, minutes: u32) -> anyhow::Result<()> {
    workload(name, &stage.dir.join(name), &["--minutes", &minutes.to_string()])
}

fn workload(name: &str, dir: &Path, options: &[&str]) -> anyhow::Result<()> {
    let driver = Path::new("workloads").join(name);
    ensure!(driver.exists(), "{} is missing: run this in the repository", driver.display());
    let mut command = Command::new(&driver);
    command.args(["--seed", "7"]).args(options).arg("--dir").arg(dir);
    let output = command.stdin(Stdio::null()).output().with_context(|| name.to_owned())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
