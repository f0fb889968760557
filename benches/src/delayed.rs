//! `--delayed`: power cuts of the model of epochs; time of syncs inside and outside of a group.

use crate::{
    Report,
    mount::{Bed, by_turns},
};
use anyhow::ensure;
use flashsift_files::delayed::power_cuts::{Fault, history};
use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

const CUTS: u64 = 1_000_000;
/// Cuts of each history.
const EACH: u64 = 20;
/// Histories within which a planted fault has to be found.
const TRIES: u64 = 10_000;

/// Syncs of a file of a group, and of one outside.
const SYNCS: [usize; 2] = [20_000, 300];
/// Files that are created in a round.
const FILES: usize = 1000;

pub(crate) fn report(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    match rustix::process::geteuid().is_root() {
        true => times(report, rounds)?,
        false => report.line("SKIPPED times of syncs: mounting requires root.\n"),
    }
    cuts(report)
}

/// A file of 1 MiB.
fn open(path: &Path) -> anyhow::Result<File> {
    let file = File::options().create(true).truncate(true).read(true).write(true).open(path)?;
    file.write_all_at(&vec![1; 1 << 20], 0)?;
    file.sync_all()?;
    Ok(file)
}

/// Writes 4 KiB here and there, each with an fdatasync. Returns the times of these.
fn syncs(file: &File, count: usize) -> anyhow::Result<Vec<Duration>> {
    let one = |number: usize| {
        file.write_all_at(&[number as u8; 4096], (number * 7919 % 256 * 4096) as u64)?;
        let began = Instant::now();
        file.sync_data()?;
        Ok(began.elapsed())
    };
    (0..count).map(one).collect()
}

fn syncs_a_second(file: &File) -> anyhow::Result<f64> {
    let all: Duration = syncs(file, SYNCS[1])?.iter().sum();
    Ok(SYNCS[1] as f64 / all.as_secs_f64())
}

/// Creates files of 4 KiB, reads and deletes them.
fn files_a_second(dir: &Path) -> anyhow::Result<f64> {
    let names: Vec<PathBuf> = (0..FILES).map(|number| dir.join(format!("f{number}"))).collect();
    let began = Instant::now();
    for name in &names {
        fs::write(name, [7; 4096])?;
    }
    for name in &names {
        fs::read(name)?;
        fs::remove_file(name)?;
    }
    Ok(FILES as f64 / began.elapsed().as_secs_f64())
}

fn times(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    let bed = Bed::new()?;
    for name in ["ext4/other", "other"] {
        fs::create_dir(bed.path(name))?;
    }
    let group = ["--delay-sync", "*.db=60s"];
    let _with = bed.mount_at("ext4/backing", "mount", &group)?;
    let _without = bed.mount_at("ext4/other", "other", &[])?;
    let quantiles = |path: &str, count| -> anyhow::Result<String> {
        let mut all = syncs(&open(&bed.path(path))?, count)?;
        all.sort_unstable();
        let at = |part: f64| all[((count - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
        Ok(format!("{:.0} | {:.0} | {:.0} |", at(0.5), at(0.99), at(0.999)))
    };
    report.line(&format!(
        "fdatasync after a write of 4 KiB; ext4 on a loop device. Required in a group: 50 µs.\n\n\
         | | syncs | median, µs | 99 %, µs | 99.9 %, µs |\n|---|---:|---:|---:|---:|\n\
         | file of a group | {} | {}\n| ext4 without a mount | {} | {}\n",
        SYNCS[0],
        quantiles("mount/a.db", SYNCS[0])?,
        SYNCS[1],
        quantiles("ext4/native/a.db", SYNCS[1])?
    ));
    report.line(
        "Files outside of the groups: a mount with `--delay-sync` and one without it, in \
         alternating order.\n\n| | with, 1/s | without, 1/s | ratio | ratios of the rounds \
         |\n|---|---:|---:|---:|---|",
    );
    let row = |what: &str, (with, without, ratios): (f64, f64, String)| {
        let ratio = with / without;
        format!("| {what} | {with:.0} | {without:.0} | {ratio:.2} | {ratios} |")
    };
    let (ours, theirs) = (open(&bed.path("mount/a"))?, open(&bed.path("other/a"))?);
    let measured = by_turns(rounds, || syncs_a_second(&ours), || syncs_a_second(&theirs))?;
    report.line(&row("syncs after 4 KiB", measured));
    let (ours, theirs) = (bed.path("mount"), bed.path("other"));
    let measured = by_turns(rounds, || files_a_second(&ours), || files_a_second(&theirs))?;
    report.line(&format!("{}\n", row("files of 4 KiB created, read, deleted", measured)));
    Ok(())
}

fn cuts(report: &mut Report) -> anyhow::Result<()> {
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let histories = CUTS / EACH;
    let failed: Vec<String> = thread::scope(|scope| {
        let part = |thread: u64| {
            let seeds = (thread..histories).step_by(threads as usize);
            seeds.filter_map(|seed| history(seed, EACH, None).err()).collect::<Vec<_>>()
        };
        let running: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || part(thread))).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.flat_map(|part| part.unwrap_or_else(|_| vec!["a history panicked".into()])).collect()
    });
    report.line(&format!(
        "Power cuts at random moments of {histories} random histories of a group, on a modelled \
         file system; each recovery at the end of an epoch.\n\n| cuts | of no epoch | required |\n\
         |---:|---:|---:|\n| {CUTS} | {} | 0 |\n",
        failed.len()
    ));
    report.line("| planted fault | found in history |\n|---|---:|");
    let mut unfound = Vec::new();
    for fault in Fault::ALL {
        let found = (0..TRIES).find(|seed| history(*seed, EACH, Some(fault)).is_err());
        match found {
            Some(seed) => report.line(&format!("| {fault:?} | {} |", seed + 1)),
            None => unfound.push(fault),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    ensure!(unfound.is_empty(), "not found: {unfound:?}");
    Ok(())
}
