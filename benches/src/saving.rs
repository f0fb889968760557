//! `--saving`: bytes and flushes at the block device, with the mount and without it.
//!
//! Each side of a row works on a fresh file system on a loop device of its own, at the same time as
//! the other sides. Written sectors and flushes are read from `/sys/block/loopN/stat` after the
//! mount has ended, `syncfs`, and the end of the file system, so journal and metadata count.
//!
//! Everything runs in mount and process namespaces of its own. When they end, however they end,
//! every process, mount and loop device of them ends too.

mod bed;
mod guest;
mod outside;
mod rows;
mod tables;

use crate::{FLASHSIFT, Report, median};
use anyhow::{Context, ensure};
use bed::{Bed, FileSystem, Measured, Side};
use flashsift_testbed::mount;
use rows::{ROWS, Row};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

/// Options of `--saving`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rows of --saving, separated by commas (all)
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    rows: Vec<String>,

    /// Shorter rows of --saving, one round, and no knobs; requirements are for the full length
    #[arg(long)]
    quick: bool,

    /// Pages that Chromium visits in --saving
    #[arg(long, default_value_t = 210, value_parser = clap::value_parser!(u32).range(9..))]
    visits: u32,

    /// The program whose mount --saving measures
    #[arg(long, default_value = FLASHSIFT, value_name = "FILE")]
    pub(crate) program: PathBuf,

    /// Options of `flashsift mount` in --saving, separated by spaces
    #[arg(long, allow_hyphen_values = true, default_value = "", value_name = "OPTIONS")]
    mount_options: String,

    /// File systems of --saving; f2fs runs in a guest if this kernel lacks it
    #[arg(long, value_delimiter = ',', value_name = "TYPE,…", default_value = "ext4,f2fs")]
    file_system: Vec<String>,

    /// Do not measure settings, XFS and other layers in --saving
    #[arg(long)]
    no_knobs: bool,

    /// Perform a row in a directory (internal)
    #[arg(long, hide = true)]
    perform: Option<String>,

    /// Directory of --perform (internal)
    #[arg(long, hide = true, default_value = ".")]
    stage: PathBuf,

    /// Directory of the same file system, outside of the mount (internal)
    #[arg(long, hide = true, default_value = ".")]
    beside: PathBuf,

    /// Directory that is not measured (internal)
    #[arg(long, hide = true, default_value = ".")]
    scratch: PathBuf,
}

impl Options {
    /// Performs a row, if this process was started for one. Returns whether it was.
    pub(crate) fn performed(&self) -> anyhow::Result<bool> {
        let Some(name) = &self.perform else { return Ok(false) };
        let stage = rows::Stage {
            dir: self.stage.clone(),
            beside: self.beside.clone(),
            scratch: self.scratch.clone(),
            quick: self.quick,
            visits: self.visits,
        };
        (row(name)?.perform)(&stage).with_context(|| format!("row {name}"))?;
        Ok(true)
    }

    fn rows(&self) -> anyhow::Result<Vec<&'static Row>> {
        match self.rows.is_empty() {
            true => Ok(ROWS.iter().collect()),
            false => self.rows.iter().map(|name| row(name)).collect(),
        }
    }
}

fn row(name: &str) -> anyhow::Result<&'static Row> {
    let known = || ROWS.iter().map(|row| row.name).collect::<Vec<_>>().join(", ");
    ROWS.iter()
        .find(|row| row.name == name)
        .with_context(|| format!("--saving has no row {name:?}; the rows: {}", known()))
}

/// Runs everything in namespaces of its own, if this is not yet the process there. Returns whether
/// it was run.
pub(crate) fn outside(options: &Options) -> anyhow::Result<bool> {
    options.rows()?;
    let is_inside = env::var_os(outside::INSIDE).is_some();
    if is_inside || !rustix::process::geteuid().is_root() {
        if is_inside {
            outside::let_go_of_other_mounts()?;
        }
        return Ok(false);
    }
    outside::run()?;
    Ok(true)
}

/// Results of a row: by side, the rounds.
struct Results {
    row: &'static Row,
    sides: Vec<(Side, Vec<Measured>)>,
}

impl Results {
    fn get(&self, side: Side) -> &[Measured] {
        self.sides.iter().find(|(which, _)| *which == side).map_or(&[], |(_, rounds)| rounds)
    }

    fn median(&self, side: Side, value: impl Fn(&Measured) -> f64) -> Option<f64> {
        let mut values: Vec<_> = self.get(side).iter().map(value).collect();
        (!values.is_empty()).then(|| median(&mut values))
    }
}

/// A group of sides that run at the same time.
struct Job {
    row: &'static Row,
    file_system: FileSystem,
    sides: Vec<Side>,
}

/// The state that all rows share.
struct Setting<'a> {
    options: &'a Options,
    program: PathBuf,
    dir: PathBuf,
}

/// Returns whether a row failed.
pub(crate) fn report(
    report: &mut Report,
    rounds: usize,
    options: &Options,
) -> anyhow::Result<bool> {
    if !rustix::process::geteuid().is_root() {
        report.line("SKIPPED: mounting requires root.\n");
        return Ok(false);
    }
    let dir = PathBuf::from(env::var_os(outside::DIRECTORY).context("a directory from outside")?);
    let program = options.program.canonicalize().context("--program")?;
    let dir = short(dir, &program)?;
    let mut failed = false;
    let rounds = if options.quick { 1 } else { rounds };
    let setting = Setting { options, program, dir };
    explain(report, rounds, options);
    let kernel_has = fs::read_to_string("/proc/filesystems")?;
    for file_system in [FileSystem::Ext4, FileSystem::F2fs] {
        let name = file_system.name();
        if !options.file_system.iter().any(|wanted| wanted == name) {
            continue;
        }
        let mut wanted = Vec::new();
        for row in options.rows()? {
            match row.cannot_run(options.quick) {
                Some(why) => report.line(&format!("SKIPPED {} on {name}: {why}.\n", row.name)),
                None => wanted.push(row),
            }
        }
        if !kernel_has.split_whitespace().any(|known| known == name) {
            failed |= elsewhere(report, &setting, wanted, file_system, rounds);
            continue;
        }
        let (results, failures) = measure(&setting, &wanted, file_system, rounds)?;
        tables::compare(report, &results, file_system, options.quick);
        tables::status(report, &results, file_system);
        tables::daemon(report, &results);
        tables::knobs(report, &results);
        for (row, why) in &failures {
            report.line(&format!("FAILED {} on {name}: {why:#}\n", row.name));
        }
        failed |= !failures.is_empty();
    }
    Ok(failed)
}

/// Reports rows on a file system that this kernel lacks. Returns whether they failed.
fn elsewhere(
    report: &mut Report,
    setting: &Setting<'_>,
    mut rows: Vec<&'static Row>,
    file_system: FileSystem,
    rounds: usize,
) -> bool {
    let name = file_system.name();
    let reason = match file_system {
        FileSystem::F2fs => guest::cannot_run(),
        FileSystem::Ext4 => Some("only F2FS runs in a guest".to_owned()),
    };
    if let Some(why) = reason {
        report.line(&format!("SKIPPED {name}: this kernel has no {name}, and {why}.\n"));
        return false;
    }
    for row in rows.extract_if(.., |row| row.pace == rows::Pace::Long) {
        report.line(&format!("SKIPPED {} on {name}: too slow for an emulated guest.\n", row.name));
    }
    if rows.is_empty() {
        return false;
    }
    match guest::table(setting.options, &rows, rounds, &setting.dir) {
        Ok(table) => report.line(&table),
        Err(why) => {
            report.line(&format!("FAILED {name} in a guest: {why:#}\n"));
            return true;
        }
    }
    false
}

/// Binds the directory to a short path, which only this namespace sees: Chromium has a socket below
/// it, and the path of a socket has at most 107 bytes.
fn short(dir: PathBuf, program: &Path) -> anyhow::Result<PathBuf> {
    let here = env::current_dir()?;
    for place in ["/mnt", "/media", "/srv"].map(Path::new) {
        if place.is_dir() && !here.starts_with(place) && !program.starts_with(place) {
            mount(&["--bind"], &*dir, place).map_err(anyhow::Error::msg)?;
            return Ok(place.to_owned());
        }
    }
    Ok(dir)
}

fn explain(report: &mut Report, rounds: usize, options: &Options) {
    let quick = if options.quick { " (--quick: shorter rows)" } else { "" };
    let mount = match options.mount_options.as_str() {
        "" => "the mount's default options".to_owned(),
        given => format!("`flashsift mount {given}`"),
    };
    report.line(&format!(
        "Written KiB and flush requests at a loop device with a fresh file system, after the mount \
         has ended, `syncfs`, and `umount`. All sides of a row run at the same time, each on its \
         own device; medians of {rounds} round(s){quick}; {mount}. Chromium visits {} \
         pages.\n\n**Bound**: the least content, in pages of 4 KiB, that any system must write \
         which honours the same syncs, from a trace of the same row (`files::bound`). It contains \
         no metadata.\n",
        options.visits
    ));
}

/// Runs all rounds of all rows. Rows that mostly wait run at the same time as all others.
fn measure(
    setting: &Setting<'_>,
    rows: &[&'static Row],
    file_system: FileSystem,
    rounds: usize,
) -> anyhow::Result<(Vec<Results>, Vec<Failure>)> {
    let mut results = Vec::new();
    let (mut waiting, mut busy, mut long) = (Vec::new(), Vec::new(), Vec::new());
    let knobs = !setting.options.no_knobs && !setting.options.quick;
    for row in rows.iter().copied() {
        for round in 0..rounds {
            let mut sides = vec![Side::Flashsift, Side::Plain];
            if round == 0 {
                sides.push(Side::Recorded);
            }
            if knobs && round == 0 && file_system == FileSystem::Ext4 {
                let beside = |side: &Side| !side.is_alone() && side.cannot_run().is_none();
                sides.extend(row.knobs.iter().copied().filter(beside));
            }
            let job = Job { row, file_system, sides };
            match row.pace {
                rows::Pace::Waits => waiting.push(vec![job]),
                rows::Pace::Busy => busy.push(job),
                rows::Pace::Long => long.push(job),
            }
        }
    }
    let mut chains = waiting;
    chains.push(busy);
    chains.push(long);
    let mut done = run_all(setting, chains)?;
    if knobs && file_system == FileSystem::Ext4 {
        // The age at which pages are written back is one setting for the whole machine, so these
        // sides run when no others do.
        let alone = |row: &&'static Row| -> Vec<Side> {
            let sides = row.knobs.iter().copied();
            sides.filter(|side| side.is_alone() && side.cannot_run().is_none()).collect()
        };
        let jobs = rows.iter().copied().map(|row| Job { row, file_system, sides: alone(&row) });
        let jobs = jobs.filter(|job| !job.sides.is_empty());
        let (busy, waits): (Vec<Job>, Vec<Job>) =
            jobs.partition(|job| job.row.pace != rows::Pace::Waits);
        let mut chains: Vec<Vec<Job>> = waits.into_iter().map(|job| vec![job]).collect();
        chains.push(busy);
        if chains.iter().any(|chain| !chain.is_empty()) {
            let _restored = outside::Waits::set(300)?;
            done.extend(run_all(setting, chains)?);
        }
    }
    for row in rows.iter().copied() {
        let mut sides: Vec<(Side, Vec<Measured>)> = Vec::new();
        let measured = done.iter().flatten().flatten();
        for (_, side, measured) in measured.filter(|(of, ..)| of.name == row.name) {
            match sides.iter_mut().find(|(known, _)| known == side) {
                Some((_, rounds)) => rounds.push(measured.clone()),
                None => sides.push((*side, vec![measured.clone()])),
            }
        }
        results.push(Results { row, sides });
    }
    let failed = done.into_iter().filter_map(Result::err);
    Ok((results, failed.collect()))
}

/// The counts of one side of a row in one round.
type Counts = (&'static Row, Side, Measured);
/// A row, and the reason of its failure.
type Failure = (&'static Row, anyhow::Error);
type Done = Result<Vec<Counts>, Failure>;

/// Runs chains of jobs at the same time; the jobs of a chain run one after another.
fn run_all(setting: &Setting<'_>, chains: Vec<Vec<Job>>) -> anyhow::Result<Vec<Done>> {
    thread::scope(|scope| {
        let run_chain = |chain: Vec<Job>| {
            let run = |job: Job| run_job(setting, &job).map_err(|why| (job.row, why));
            chain.into_iter().map(run).collect::<Vec<_>>()
        };
        let threads: Vec<_> =
            chains.into_iter().map(|chain| scope.spawn(move || run_chain(chain))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| anyhow::anyhow!("a row panicked"))?);
        }
        Ok(all)
    })
}

/// Runs the sides of one round at the same time.
fn run_job(setting: &Setting<'_>, job: &Job) -> anyhow::Result<Vec<Counts>> {
    let mut beds = Vec::new();
    for side in &job.sides {
        let mut bed = Bed::new(*side, job.file_system, &setting.dir, job.row.device_bytes)?;
        (job.row.prepare)(&bed.path("fs/files"))?;
        let options = format!("{} {}", setting.options.mount_options, job.row.options);
        bed.attach(&setting.program, &options)?;
        beds.push(bed);
    }
    let measured = thread::scope(|scope| {
        let threads: Vec<_> = beds
            .into_iter()
            .map(|bed| scope.spawn(move || run_side(setting, job.row, bed)))
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a side panicked"))?);
        joined.collect::<anyhow::Result<Vec<_>>>()
    })?;
    if job.row.same {
        for (side, other) in job.sides.iter().zip(&measured).skip(1) {
            ensure!(
                other.tree == measured[0].tree,
                "{} and {} end with different files",
                job.sides[0].name(),
                side.name()
            );
        }
    }
    // The tables are printed at the end; an interrupted run leaves at least this.
    for (side, measured) in job.sides.iter().zip(&measured) {
        let kib = measured.written_bytes >> 10;
        let (row, side, flushes) = (job.row.name, side.name(), measured.flushes);
        eprintln!("{row}, {side}: {kib} KiB, {flushes} flushes");
    }
    let done = job.sides.iter().zip(measured);
    Ok(done.map(|(side, measured)| (job.row, *side, measured)).collect())
}

/// Performs a row on one side, and counts.
fn run_side(setting: &Setting<'_>, row: &Row, bed: Bed) -> anyhow::Result<Measured> {
    let options = setting.options;
    let mut command = Command::new(env::current_exe()?);
    command.arg("--perform").arg(row.name);
    command.arg("--stage").arg(bed.stage()).arg("--beside").arg(bed.path("fs/beside"));
    command.arg("--scratch").arg(bed.path("scratch"));
    command.arg("--visits").arg(options.visits.to_string());
    if options.quick {
        command.arg("--quick");
    }
    if let Some(library) = bed.side.preload() {
        command.env("LD_PRELOAD", library);
    }
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", bed.side.name(), said.trim());
    let side = bed.side;
    bed.finish(&setting.program, row.same).with_context(|| side.name())
}
