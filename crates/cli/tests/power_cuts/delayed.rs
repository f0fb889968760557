//! Databases whose syncs are delayed: after a cut all of them are at the end of one epoch.
//!
//! One application commits to the databases in turn, and numbers its commits. Each commit is
//! acknowledged before the next one begins, and the databases do not know of each other. So if an
//! epoch takes them back together, what is left is a beginning of the numbers.

use crate::power_cuts::{
    Bed, Random,
    device::{Cut, Device, Flushes, Log},
    number,
};
use flashsift_testbed::{output, skip, unmount};
use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufRead, BufReader, Lines, Write},
    ops::Range,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// Epochs are short, so that a history has many.
const OPTIONS: [&str; 2] = ["--delay-sync", "*=0.02s"];
const COMMITS: u64 = 300;

/// A program that commits, and how to read its commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// SQLite with this journal mode.
    Sqlite(&'static str),
    Lmdb,
    LevelDb,
    Git,
}

/// Name in the mount, and program.
const DATABASES: [(&str, Program); 11] = [
    ("delete-1.db", Program::Sqlite("DELETE")),
    ("delete-2.db", Program::Sqlite("DELETE")),
    ("wal-1.db", Program::Sqlite("WAL")),
    ("wal-2.db", Program::Sqlite("WAL")),
    ("truncate-1.db", Program::Sqlite("TRUNCATE")),
    ("truncate-2.db", Program::Sqlite("TRUNCATE")),
    ("persist-1.db", Program::Sqlite("PERSIST")),
    ("persist-2.db", Program::Sqlite("PERSIST")),
    ("lmdb", Program::Lmdb),
    ("leveldb", Program::LevelDb),
    ("git", Program::Git),
];

/// Debian's, which has the packages python3-lmdb and python3-plyvel.
const PYTHON: &str = "/usr/bin/python3";

/// Commits one number a line.
const WRITE_LMDB: &str = "
import lmdb, os, sys
env = lmdb.open(sys.argv[1], map_size=32 << 20)
print('performed', flush=True)
for line in sys.stdin:
    with env.begin(write=True) as it:
        it.put(line.strip().encode(), os.urandom(1 + int(line) * 997 % 5000))
    print('performed', flush=True)
";
const READ_LMDB: &str = "
import lmdb, sys
with lmdb.open(sys.argv[1], map_size=32 << 20).begin() as it:
    for key, value in it.cursor():
        assert len(value) == 1 + int(key) * 997 % 5000
        print(key.decode())
";
const WRITE_LEVELDB: &str = "
import os, plyvel, sys
db = plyvel.DB(sys.argv[1], create_if_missing=True, write_buffer_size=65536)
print('performed', flush=True)
for line in sys.stdin:
    db.put(line.strip().encode(), os.urandom(1 + int(line) * 997 % 5000), sync=True)
    print('performed', flush=True)
db.close()
";
const READ_LEVELDB: &str = "
import plyvel, sys
db = plyvel.DB(sys.argv[1], paranoid_checks=True)
for key, value in db.iterator(verify_checksums=True):
    assert len(value) == 1 + int(key) * 997 % 5000
    print(key.decode())
db.close()
";
const WRITE_GIT: &str = "
cd \"$1\" && git init -q . && git config core.fsync all && git config user.name x &&
git config user.email x && git config gc.auto 0 && echo performed || exit 1
while read n; do
    echo $n > $((n % 5)) && git add . && git commit -q -m $n && echo performed || exit 1
done
";
const READ_GIT: &str = "
cd \"$1\" && if git rev-parse -q --verify HEAD > /dev/null; then
git fsck --full --strict > /dev/null && git log --format=%s; fi
";

impl Program {
    /// The reason for which it cannot run here.
    fn cannot_run(self) -> Option<&'static str> {
        let runs = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command
                .args(arguments)
                .stdin(Stdio::null())
                .output()
                .is_ok_and(|it| it.status.success())
        };
        match self {
            Self::Sqlite(_) => {
                (!runs("sqlite3", &["-version"])).then_some("sqlite3 is not installed")
            }
            Self::Lmdb => {
                (!runs(PYTHON, &["-c", "import lmdb"])).then_some("python3-lmdb is not installed")
            }
            Self::LevelDb => (!runs(PYTHON, &["-c", "import plyvel"]))
                .then_some("python3-plyvel is not installed"),
            Self::Git => (!runs("git", &["--version"])).then_some("git is not installed"),
        }
    }

    fn write(self, path: &Path) -> Command {
        let mut command = match self {
            Self::Sqlite(_) => {
                let mut command = Command::new("sqlite3");
                command.args(["-bail", "-batch"]);
                command
            }
            Self::Lmdb => with(PYTHON, &["-c", WRITE_LMDB]),
            Self::LevelDb => with(PYTHON, &["-c", WRITE_LEVELDB]),
            Self::Git => with("sh", &["-c", WRITE_GIT, "sh"]),
        };
        command.arg(path);
        command
    }

    /// Prints the numbers of its commits, if its own check finds nothing.
    fn read(self, path: &Path) -> Command {
        let mut command = match self {
            Self::Sqlite(_) => {
                let mut command = Command::new("sqlite3");
                command.args(["-bail", "-batch"]);
                command
            }
            Self::Lmdb => with(PYTHON, &["-c", READ_LMDB]),
            Self::LevelDb => with(PYTHON, &["-c", READ_LEVELDB]),
            Self::Git => with("sh", &["-c", READ_GIT, "sh"]),
        };
        command.arg(path);
        if let Self::Sqlite(_) = self {
            command.arg("PRAGMA integrity_check; SELECT n FROM rows;");
        }
        command
    }
}

fn with(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// A database that is open.
struct Shell {
    program: Program,
    process: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Shell {
    fn open(top: &Path, (name, program): (&str, Program)) -> io::Result<Self> {
        let path = top.join(name);
        if !matches!(program, Program::Sqlite(_)) {
            fs::create_dir(&path)?;
        }
        let mut process =
            program.write(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (ask, answers) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut shell = Self { program, process, ask, answers: BufReader::new(answers).lines() };
        let begins = match program {
            Program::Sqlite(journal) => format!(
                "PRAGMA journal_mode={journal}; PRAGMA synchronous=FULL;
                PRAGMA wal_autocheckpoint=20;
                CREATE TABLE rows (n INTEGER PRIMARY KEY, body BLOB);
                SELECT 'performed';"
            ),
            // They say it by themselves.
            _ => String::new(),
        };
        shell.perform(&begins)?;
        Ok(shell)
    }

    fn commit(&mut self, number: u64, random: &mut Random) -> io::Result<()> {
        let (old, bytes) = (random.below(number as usize), 1 + random.below(6000));
        match self.program {
            Program::Sqlite(_) => self.perform(&format!(
                "BEGIN; INSERT INTO rows VALUES ({number}, randomblob({bytes}));
                UPDATE rows SET body = randomblob({bytes} / 2) WHERE n = {old}; COMMIT;
                SELECT 'performed';"
            )),
            _ => self.perform(&number.to_string()),
        }
    }

    fn perform(&mut self, line: &str) -> io::Result<()> {
        if !line.is_empty() {
            writeln!(self.ask, "{line}")?;
        }
        loop {
            let ended = || io::Error::other(format!("{:?} ended", self.program));
            if self.answers.next().ok_or_else(ended)?? == "performed" {
                return Ok(());
            }
        }
    }

    fn close(self) -> io::Result<()> {
        let Self { mut process, ask, .. } = self;
        drop(ask);
        process.wait().map(drop)
    }
}

/// The requests to the disk while the databases were in use.
pub(crate) struct GroupHistory {
    seed: u64,
    databases: Vec<(&'static str, Program)>,
    /// By commit, its database.
    committed: Vec<&'static str>,
    positions: Range<u64>,
    log: Log,
}

impl GroupHistory {
    /// `None`, with the reason printed, where there is no SQLite.
    pub(crate) fn new(bed: &Bed, seed: u64) -> Option<Self> {
        let mut databases = DATABASES.to_vec();
        databases.retain(|(name, program)| match program.cannot_run() {
            Some(why) => skip(format_args!("{name}: {why}")),
            None => true,
        });
        if databases.is_empty() {
            return None;
        }
        let device = Device::new(&bed.places.path("disk"), bed.file_system).unwrap();
        bed.mount(Path::new(device.node()), "defaults").unwrap();
        let (daemon, top) = (bed.start(&OPTIONS).unwrap(), bed.mountpoint());
        let open = |database: &(&str, Program)| Shell::open(&top, *database).unwrap();
        let mut shells: Vec<Shell> = databases.iter().map(open).collect();
        output(Command::new(crate::power_cuts::FLASHSIFT).arg("flush").arg(&top)).unwrap();
        let start = device.position();
        let mut random = Random::new(seed);
        let mut committed = Vec::new();
        for commit in 1..=COMMITS {
            let shell = random.below(shells.len());
            shells[shell].commit(commit, &mut random).unwrap();
            committed.push(databases[shell].0);
        }
        let positions = start..device.position();
        shells.into_iter().for_each(|shell| shell.close().unwrap());
        daemon.end(&top).unwrap();
        let left = commits(&bed.backing(), &databases).unwrap();
        assert_eq!(left, (1..=COMMITS).collect(), "the end of the mount writes everything");
        unmount(&bed.backing()).unwrap();
        Some(Self { seed, databases, committed, positions, log: device.ended() })
    }

    /// Cuts power so often. Returns the promises that were broken, and the numbers of commits that
    /// were left.
    pub(crate) fn cut(
        &self,
        bed: &Bed,
        cuts: usize,
        flushes: Flushes,
    ) -> (Vec<String>, BTreeSet<u64>) {
        let mut random = Random::new(self.seed);
        let cuts = self.log.cuts(&self.positions, cuts, &mut random);
        let (mut broken, mut left) = (Vec::new(), BTreeSet::new());
        let disks = self.log.after(&cuts, flushes, bed.file_system.sector, &mut random);
        for (number, (cut, disk)) in disks.enumerate() {
            let image = bed.places.path(&format!("cut {number}"));
            disk.save(&image, self.log.disk_bytes());
            match self.check(bed, &image) {
                Ok(commits) => drop(left.insert(commits)),
                Err(why) => broken.push(told(number, cut, &why)),
            }
            bed.clean_up();
            fs::remove_file(image).unwrap();
        }
        (broken, left)
    }

    /// Returns the number of commits that the databases have after a cut.
    fn check(&self, bed: &Bed, image: &Path) -> Result<u64, String> {
        bed.mount(image, "loop").map_err(|why| format!("it does not recover: {why}"))?;
        let daemon = bed.start(&[])?;
        let found = commits(&bed.mountpoint(), &self.databases)?;
        daemon.end(&bed.mountpoint())?;
        if bed.backing().join(".flashsift").exists() {
            return Err("the end of the mount left .flashsift".to_owned());
        }
        bed.unmount(image)?;
        let fsck = bed.file_system.fsck;
        output(Command::new(fsck[0]).args(&fsck[1..]).arg(image))?;
        let last = found.last().copied().unwrap_or(0);
        let lost = (1..last).filter(|commit| !found.contains(commit));
        let lost: Vec<(u64, &str)> =
            lost.map(|commit| (commit, self.committed[commit as usize - 1])).collect();
        match lost.is_empty() {
            true => Ok(last),
            false => Err(format!("of several epochs: of {last} commits, {lost:?} are lost")),
        }
    }

    pub(crate) fn show(&self) -> String {
        let (records, flushes) = self.log.counts();
        format!(
            "seed {}: {COMMITS} commits to {} databases; {records} requests of the disk, {flushes} \
             of them flushes",
            self.seed,
            self.databases.len()
        )
    }
}

fn told(number: usize, cut: Cut, why: &str) -> String {
    format!("cut {number}, {cut:?}: {why}")
}

/// The commits that the databases in a directory have, all together.
fn commits(top: &Path, databases: &[(&str, Program)]) -> Result<BTreeSet<u64>, String> {
    let mut all = BTreeSet::new();
    for (name, program) in databases {
        let output = program.read(&top.join(name)).output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mut lines = said.lines();
        let checked = !matches!(program, Program::Sqlite(_)) || lines.next() == Some("ok");
        if !checked || !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{name}: its own check says {said}{error}"));
        }
        for line in lines {
            if !all.insert(line.parse().map_err(|_| format!("{name} says {line}"))?) {
                return Err(format!("{name} has {line}, and so has another database"));
            }
        }
    }
    Ok(all)
}

/// Cuts power while databases of a group are in use, and compares each time.
pub(crate) fn one_epoch(bed: &Bed, cuts: u64) {
    let first = number("FLASHSIFT_SEED", 1);
    let cuts = number("FLASHSIFT_CUTS", cuts) as usize;
    for seed in first..first + number("FLASHSIFT_HISTORIES", 1) {
        let Some(history) = GroupHistory::new(bed, seed) else { return };
        let (broken, left) = history.cut(bed, cuts, Flushes::Obeyed);
        println!(
            "{}; {cuts} cuts left {} different epochs, {} broke a promise",
            history.show(),
            left.len(),
            broken.len()
        );
        assert!(broken.is_empty(), "seed {seed}: {}", broken.join("\n"));
    }
}
