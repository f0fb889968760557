//! `--replay`: speed of the player, on the same log and file as fio, and without a target.

use crate::{FLASHSIFT, Report, median};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::{
    fmt::Write as _,
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
    process::{Command, Stdio},
};

/// Size of the file in pages.
const PAGES: u64 = 128 << 10;
/// Depths, and the number of requests of a log at each; some seconds.
const DEPTHS: [(u32, u64); 2] = [(1, 20_000), (32, 60_000)];
/// Number of reads in 100 requests.
const MIXES: [(&str, u64); 3] = [("reads", 100), ("writes", 0), ("half of each", 50)];
const NULL_REQUESTS: u64 = 4_000_000;

pub(crate) fn report(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in("target")?;
    without_target(report, rounds, dir.path())?;
    let fio =
        Command::new("fio").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !fio.is_ok_and(|status| status.success()) {
        report.line("fio is not installed: SKIPPED the comparison with it.\n");
        return Ok(());
    }
    beside_fio(report, rounds, dir.path())
}

fn beside_fio(report: &mut Report, rounds: usize, dir: &Path) -> anyhow::Result<()> {
    let before = load()?;
    let file = dir.join("file");
    // Created and filled once; fio and flashsift overwrite it alternately.
    let first = dir.join("first.iolog");
    log(&first, 1, 50)?;
    let size = (PAGES * 4096).to_string();
    replay(&first, &["--target", text(&file)?, "--size", &size, "--keep"])?;
    report.line(&format!(
        "## Compared with fio\n\nRandom requests of 4 KiB in a file of {} MiB, from one fio log, \
         O_DIRECT and io_uring for both, as fast as possible; medians of {rounds} interleaved \
         rounds, of ratios too. Required: 0.95 of fio's requests a second.\n\n| log | depth | \
         ours, 1/s | fio, 1/s | ratio | ratios of the rounds |\n|---|---:|---:|---:|---:|---|",
        PAGES >> 8
    ));
    for (mix, reads) in MIXES {
        for (depth, requests) in DEPTHS {
            let path = dir.join("log.iolog");
            log(&path, requests, reads)?;
            let depth = depth.to_string();
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for round in 0..rounds {
                let mut turn = |first: bool| -> anyhow::Result<()> {
                    match first == (round % 2 == 0) {
                        true => ours.push(replay(
                            &path,
                            &[
                                "--target",
                                text(&file)?,
                                "--yes-destroy-data",
                                "--fill",
                                "no",
                                "--queue-depth",
                                &depth,
                            ],
                        )?),
                        false => theirs.push(fio(&path, &file, &depth)?),
                    }
                    Ok(())
                };
                turn(true)?;
                turn(false)?;
            }
            // Ratios of adjacent runs, as the speed of the machine varies.
            let mut ratios: Vec<_> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
            let rounds: Vec<_> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
            report.line(&format!(
                "| {mix} | {depth} | {:.0} | {:.0} | {:.2} | {} |",
                median(&mut ours),
                median(&mut theirs),
                median(&mut ratios),
                rounds.join(" ")
            ));
        }
    }
    report.line(&format!(
        "\nLoad average: {} before, {} at the end; one is of the test.\n",
        before,
        load()?
    ));
    Ok(())
}

/// The load average over a minute.
fn load() -> anyhow::Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().to_owned())
}

/// The cost of flashsift itself.
fn without_target(report: &mut Report, rounds: usize, dir: &Path) -> anyhow::Result<()> {
    let (iolog, stored) = (dir.join("null.iolog"), dir.join("null.parquet"));
    log(&iolog, NULL_REQUESTS, 50)?;
    let import =
        Command::new(FLASHSIFT).arg("import").arg(&iolog).arg("-o").arg(&stored).output()?;
    ensure!(import.status.success(), "import: {}", String::from_utf8_lossy(&import.stderr));
    report.line(&format!(
        "## Without a target\n\n{NULL_REQUESTS} requests to no target (`--null`), medians of \
         {rounds} rounds. Required: 2 million a second.\n\n| log | depth | million/s \
         |\n|---|---:|---:|"
    ));
    for (name, path) in [("Parquet", &stored), ("fio's iolog", &iolog)] {
        for depth in ["1", "32"] {
            let mut rates = (0..rounds)
                .map(|_| replay(path, &["--null", "--queue-depth", depth]))
                .collect::<Result<Vec<_>, _>>()?;
            report.line(&format!("| {name} | {depth} | {:.1} |", median(&mut rates) / 1e6));
        }
    }
    report.line("");
    Ok(())
}

/// Writes a log of random requests of one page each, 10 µs apart.
fn log(path: &Path, requests: u64, reads: u64) -> anyhow::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    writeln!(out, "fio version 3 iolog\n0 /dev/x add\n0 /dev/x open")?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut line = String::new();
    for n in 0..requests {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let what = if (state >> 40) % 100 < reads { "read" } else { "write" };
        line.clear();
        writeln!(line, "{} /dev/x {what} {} 4096", n * 10, state % PAGES * 4096)?;
        out.write_all(line.as_bytes())?;
    }
    writeln!(out, "{} /dev/x close", requests * 10)?;
    Ok(out.flush()?)
}

/// Runs flashsift and returns its requests per second.
fn replay(log: &Path, args: &[&str]) -> anyhow::Result<f64> {
    let output =
        Command::new(FLASHSIFT).arg("replay").arg(log).args(args).arg("--json").output()?;
    ensure!(output.status.success(), "replay: {}", String::from_utf8_lossy(&output.stderr));
    let record: Value = serde_json::from_slice(&output.stdout)?;
    record["requests_per_s"].as_f64().context("a rate")
}

/// Runs fio and returns its requests per second.
fn fio(log: &Path, file: &Path, depth: &str) -> anyhow::Result<f64> {
    let mut command = Command::new("fio");
    command.args([
        "--name=r",
        "--replay_no_stall=1",
        "--ioengine=io_uring",
        "--direct=1",
        "--output-format=json",
    ]);
    command
        .arg(format!("--read_iolog={}", text(log)?))
        .arg(format!("--replay_redirect={}", text(file)?));
    let output = command.arg(format!("--iodepth={depth}")).output()?;
    ensure!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout)?;
    // Notes may precede the JSON.
    let json: Value = serde_json::from_str(&said[said.find('{').context("fio's JSON")?..])?;
    let job = &json["jobs"][0];
    let number = |value: &Value| value.as_f64().context("fio's count");
    let count = number(&job["read"]["total_ios"])? + number(&job["write"]["total_ios"])?;
    // Reads and writes run at the same time, so the longer of the two counts.
    let runtime_ms = number(&job["read"]["runtime"])?.max(number(&job["write"]["runtime"])?);
    Ok(count / runtime_ms * 1e3)
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path that is text")
}
