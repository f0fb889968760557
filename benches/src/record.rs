//! `--record`: cost of recording for a program that only reads from the page cache, and speed of
//! importing text.

use crate::{FLASHSIFT, Report, children_cpu_s, cpu_s, median};
use anyhow::{Context, ensure};
use std::{fmt::Write, fs, path::Path, process::Command};

/// Number of 4 KiB reads of fio in a run.
const READS: u64 = 1 << 20;
const FILE_MIB: u64 = 256;
const LINES: u64 = 2_000_000;

pub(crate) fn report(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in("target")?;
    recording(report, rounds, dir.path())?;
    importing(report, rounds, dir.path())
}

/// The ways of running fio, each with its requirement.
const WAYS: [(&str, &[&str], &str); 4] = [
    ("unrecorded", &[], ""),
    ("`record`", &["record"], "1.5"),
    ("`record --exact`", &["record", "--exact"], "2.5"),
    ("strace", &["strace"], ""),
];

fn recording(report: &mut Report, rounds: usize, dir: &Path) -> anyhow::Result<()> {
    let data = dir.join("data");
    fs::write(&data, vec![7; (FILE_MIB << 20) as usize])?;
    let trace = dir.join("t.parquet");
    let mut times = WAYS.map(|_| Vec::new());
    let mut said = WAYS.map(|_| String::new());
    // One read puts the file into the page cache.
    fs::read(&data)?;
    for _ in 0..rounds {
        for (n, (_, options, _)) in WAYS.iter().enumerate() {
            let mut command = match options.first() {
                None => Command::new("fio"),
                Some(&"strace") => {
                    let mut strace = Command::new("strace");
                    strace.args([
                        "-f",
                        "-ttt",
                        "-y",
                        "-s",
                        "0",
                        "-e",
                        "trace=%file,%desc,%process",
                        "-o",
                    ]);
                    strace.arg(dir.join("strace")).args(["--", "fio"]);
                    strace
                }
                Some(_) => {
                    let mut ours = Command::new(FLASHSIFT);
                    ours.args(*options).arg("-o").arg(&trace).args(["--", "fio"]);
                    ours
                }
            };
            // With strace a tenth of the reads takes long enough.
            let reads = if options.first() == Some(&"strace") { READS / 10 } else { READS };
            command.args([
                "--name=r",
                "--rw=randread",
                "--bs=4k",
                "--ioengine=psync",
                "--invalidate=0",
            ]);
            command
                .args(["--norandommap", "--minimal"])
                .arg(format!("--filename={}", data.display()));
            command.args([format!("--size={FILE_MIB}m"), format!("--io_size={}", reads * 4096)]);
            let before = children_cpu_s()?;
            let output = command.output().with_context(|| format!("{command:?}"))?;
            times[n].push((children_cpu_s()? - before) / reads as f64 * 1e6);
            said[n] = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "{command:?}: {}", said[n]);
        }
    }
    let base = median(&mut times[0]);
    let mut table = String::new();
    for ((name, _, held), (times, said)) in WAYS.iter().zip(times.iter_mut().zip(&said)) {
        let lost = if said.contains("LOST") { "some" } else { "nothing" };
        let us = median(times);
        writeln!(table, "| {name} | {us:.2} | {:.2} | {held} | {lost} |", us / base)?;
    }
    let bytes = fs::metadata(&trace)?.len() as f64 / READS as f64;
    report.line(&format!(
        "## Recording\n\nfio makes {READS} random reads of 4 KiB in {FILE_MIB} MiB in the page \
         cache; CPU time of fio and the recorder together, medians of {rounds} interleaved rounds. \
         An event takes {bytes:.1} bytes in the store.\n\n| | µs a read | ratio | at most | lost \
         |\n|---|---:|---:|---:|---|\n{table}"
    ));
    Ok(())
}

fn importing(report: &mut Report, rounds: usize, dir: &Path) -> anyhow::Result<()> {
    let text = dir.join("trace");
    let mut lines = String::from("# tracer: nop\n#\n");
    for n in 0..LINES {
        let page = n * 7919 % 65536 * 4096;
        writeln!(
            lines,
            "          app-4711    [00{}] ..... {}.{:06}: mm_filemap_get_pages: dev=7:0 ino=c \
             ofs={page}-{}",
            n % 2,
            n / 1_000_000,
            n % 1_000_000,
            page + 4095
        )?;
    }
    fs::write(&text, lines)?;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let mut import = Command::new(FLASHSIFT);
        times.push(cpu_s(import.arg("import").arg(&text).arg("-o").arg(dir.join("i.parquet")))?.0);
    }
    let rate = LINES as f64 / median(&mut times) / 1e6;
    report.line(&format!(
        "## Importing\n\nftrace text to a store: {rate:.1} million lines per CPU second (required: \
         1).\n"
    ));
    Ok(())
}
