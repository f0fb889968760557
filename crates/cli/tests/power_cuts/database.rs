//! SQLite databases on a mount, and their commits that were acknowledged.

use crate::power_cuts::{Bed, Random, number};
use flashsift_testbed::skip;
use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// The folder of the databases.
pub(crate) const DATABASES: &str = "databases";

/// File and journal mode. The mount knows a database by its extension, and takes the one without
/// for an ordinary file.
const KINDS: [(&str, &str); 4] =
    [("a.db", "DELETE"), ("b.db", "WAL"), ("c.db", "TRUNCATE"), ("plain", "DELETE")];

/// A commit was acknowledged at this position of the device's log.
struct Commit {
    number: u64,
    position: u64,
}

pub(crate) struct Database {
    file: &'static str,
    journal: &'static str,
    commits: Vec<Commit>,
    /// Number of the last commit that was asked for.
    asked: u64,
}

impl Database {
    /// Databases in an empty folder of their own. None if SQLite is not installed.
    pub(crate) fn all(top: &Path) -> Vec<Self> {
        if Command::new("sqlite3").arg("-version").output().is_err() {
            return Vec::new();
        }
        fs::create_dir(top.join(DATABASES)).unwrap();
        let new = |(file, journal)| Self { file, journal, commits: Vec::new(), asked: 0 };
        KINDS.into_iter().map(new).collect()
    }

    pub(crate) fn commits(&self) -> usize {
        self.commits.len()
    }

    /// Makes so many commits. An error means that SQLite ended before.
    pub(crate) fn work(
        &mut self,
        top: &Path,
        commits: u64,
        position: &(dyn Fn() -> u64 + Sync),
    ) -> io::Result<()> {
        let mut sqlite = Command::new("sqlite3")
            .args(["-bail", "-batch"])
            .arg(top.join(DATABASES).join(self.file))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut ask = sqlite.stdin.take().unwrap();
        let mut answers = BufReader::new(sqlite.stdout.take().unwrap()).lines();
        let done = (|| {
            // EXTRA: after a commit by unlink of the journal, its directory is synced.
            writeln!(
                ask,
                ".timeout 10000\nPRAGMA journal_mode={}; PRAGMA synchronous=EXTRA;
                CREATE TABLE IF NOT EXISTS rows (n INTEGER PRIMARY KEY, body BLOB);
                CREATE TABLE IF NOT EXISTS total (sum INTEGER);
                INSERT INTO total SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM total);",
                self.journal
            )?;
            for _ in 0..commits {
                self.asked += 1;
                let number = self.asked;
                // A transaction that is whole or absent changes both tables.
                writeln!(
                    ask,
                    "BEGIN IMMEDIATE; INSERT INTO rows VALUES ({number}, randomblob(3000));
                    UPDATE rows SET body = randomblob(4000) WHERE n = {number} / 2;
                    UPDATE total SET sum = sum + {number}; COMMIT; SELECT 'commit', {number};"
                )?;
                let acknowledged = format!("commit|{number}");
                loop {
                    let ended = || io::Error::other("sqlite3 ended");
                    if answers.next().ok_or_else(ended)?? == acknowledged {
                        break;
                    }
                }
                self.commits.push(Commit { number, position: position() });
            }
            Ok(())
        })();
        drop(ask);
        if done.is_err() {
            let _ = sqlite.kill();
        }
        sqlite.wait()?;
        done
    }

    /// Compares the database with the commits that were acknowledged by then.
    pub(crate) fn check(&self, top: &Path, position: u64) -> Result<u64, String> {
        let last = self.commits.iter().rfind(|commit| commit.position <= position);
        let last = last.map_or(0, |commit| commit.number);
        let path = top.join(DATABASES).join(self.file);
        let told = |why: &str| {
            format!(
                "database {} ({}), commit {last} was acknowledged: {why}",
                self.file, self.journal
            )
        };
        if !path.exists() {
            return if last == 0 { Ok(0) } else { Err(told("it does not exist")) };
        }
        let ask = "PRAGMA integrity_check;
            SELECT count(*), ifnull(max(n), 0), ifnull(sum(n), 0), (SELECT sum FROM total)
            FROM rows;";
        let output = Command::new("sqlite3").args(["-batch", "-bail"]).arg(path).arg(ask).output();
        let output = output.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mut lines = said.lines();
        if lines.next() != Some("ok") {
            let error = String::from_utf8_lossy(&output.stderr);
            return Err(told(&format!("integrity_check says {said}{error}")));
        }
        let Some(counts) = lines.next() else {
            // The tables are not there.
            return if last == 0 { Ok(0) } else { Err(told("it has no tables")) };
        };
        let counts: Vec<u64> = counts.split('|').map(|count| count.parse().unwrap_or(0)).collect();
        let [count, max, sum, total] = counts[..] else { return Err(told(&said)) };
        if max < last || max > self.asked || count != max || sum != total {
            return Err(told(&format!(
                "{count} rows up to {max} with the sum {sum}, and a total of {total}"
            )));
        }
        Ok(max)
    }
}

/// Kills the daemon so often while SQLite works on its mount, and compares each time.
pub(crate) fn killed(bed: &Bed) {
    let seed = number("FLASHSIFT_SEED", 1);
    let kills = number("FLASHSIFT_KILLS", 3);
    let mut random = Random::new(seed);
    bed.mount_new();
    let (top, modes) = (bed.mountpoint(), crate::power_cuts::MODES);
    let mut databases = Vec::new();
    for kill in 0..=kills {
        let daemon = bed.start(modes[kill as usize % modes.len()].options).unwrap();
        if kill == 0 {
            databases = Database::all(&top);
            if databases.is_empty() {
                return skip("sqlite3 is not installed");
            }
        }
        for database in &mut databases {
            let kept = database.check(&top, u64::MAX);
            // A commit that was asked for and not acknowledged may be there or not.
            database.asked = kept.unwrap_or_else(|why| panic!("after {kill} kills: {why}"));
        }
        if kill == kills {
            daemon.end(&top).unwrap();
            break;
        }
        let life = 1 + random.below(30);
        let commits = AtomicUsize::new(0);
        let ended_early = thread::scope(|scope| {
            let mut workers = Vec::new();
            for database in &mut databases {
                let (top, commits) = (&top, &commits);
                let count = || commits.fetch_add(1, Ordering::Relaxed) as u64;
                workers
                    .push(scope.spawn(move || database.work(top, u64::MAX, &count).unwrap_err()));
            }
            let ended = || workers.iter().any(|worker| worker.is_finished());
            while commits.load(Ordering::Relaxed) < life && !ended() {
                thread::yield_now();
            }
            let ended_early = ended();
            daemon.kill(&top);
            let why = workers.into_iter().map(|worker| worker.join().unwrap().to_string());
            ended_early.then(|| why.collect::<Vec<_>>())
        });
        assert!(ended_early.is_none(), "a database failed before the kill: {ended_early:?}");
    }
    let commits: usize = databases.iter().map(Database::commits).sum();
    println!("seed {seed}, {kills} kills, {commits} commits, none lost");
}
