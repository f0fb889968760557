//! `--builds`: two programs of the same sources run the same cells in turn. `make packages` builds
//! one with another C library than `cargo build`.
//!
//! Other load only ever adds to a time, so the fastest round of each loop counts.

use crate::{FRAMES, OBJECTS, REQUESTS, Report, cpu_s};
use anyhow::{Context, ensure};
use flashsift_core::policy;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

/// Times in the order of the programs, one a round.
type Times = [Vec<f64>; 2];

pub(crate) fn report(
    report: &mut Report,
    rounds: usize,
    programs: &[PathBuf],
) -> anyhow::Result<()> {
    let [first, second] = programs else { anyhow::bail!("--builds takes two programs") };
    let dir = tempfile::tempdir()?;
    let zipf = dir.path().join("zipf.oracleGeneral");
    let recipe = format!(
        "zipf --requests {REQUESTS} --pages {OBJECTS} --alpha 1.0 --seed 1 --as oracle-general"
    );
    cpu_s(Command::new(first).arg("synth").args(recipe.split(' ')).arg("-o").arg(&zipf))?;
    let mut loops: BTreeMap<String, Times> = BTreeMap::new();
    let mut processes = Times::default();
    for round in 0..rounds {
        // Each goes first in every second round.
        for index in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let (seconds, cells) = cells(&programs[index], &zipf)?;
            processes[index].push(seconds);
            for (policy, ns) in cells {
                loops.entry(policy).or_default()[index].push(ns);
            }
        }
    }
    report.line(&format!(
        "Zipf(1.0), {REQUESTS} requests, {OBJECTS} objects, {FRAMES} frames, one core, the \
         fastest of {rounds} rounds. Required: the loops of the second program take at most 5 % \
         longer, together.\n\n- first: `{}`\n- second: `{}`\n\n| policy | first, ns an access \
         | second | second / first |\n|---|---:|---:|---:|",
        first.display(),
        second.display()
    ));
    let mut sums = [0.0; 2];
    for (policy, times) in &loops {
        let [one, other] = times.each_ref().map(|times| fastest(times));
        ensure!(one > 0.0, "{policy} took no time");
        sums[0] += one;
        sums[1] += other;
        report.line(&format!("| {policy} | {one:.1} | {other:.1} | {:.3} |", other / one));
    }
    report.line(&format!("| all | {:.1} | {:.1} | {:.3} |", sums[0], sums[1], sums[1] / sums[0]));
    let [one, other] = processes.each_ref().map(|times| fastest(times));
    report.line(&format!(
        "\nWhole processes, which also read the trace: {one:.2} s and {other:.2} s, {:.3}.\n",
        other / one
    ));
    Ok(())
}

fn fastest(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The CPU seconds of a process that runs all fast policies, and the ns an access of each loop.
fn cells(program: &Path, trace: &Path) -> anyhow::Result<(f64, Vec<(String, f64)>)> {
    let fast: Vec<_> = policy::ALL.iter().filter(|spec| !spec.slow).map(|spec| spec.name).collect();
    let mut command = Command::new(program);
    command.args(["compare", "--writeback", "evict", "--object-cache", "--json"]);
    command.args(["--threads", "1", "--policy", &fast.join(",")]);
    let (seconds, out) = cpu_s(command.args(["--frames", &FRAMES.to_string()]).arg(trace))?;
    let mut cells = Vec::new();
    for line in out.lines() {
        let cell: serde_json::Value = serde_json::from_str(line)?;
        let Some(ns) = cell["cpu_ns_per_access"].as_f64() else { continue };
        cells.push((cell["policy"].as_str().context("a policy")?.to_owned(), ns));
    }
    ensure!(cells.len() == fast.len(), "{} printed {} cells", program.display(), cells.len());
    Ok((seconds, cells))
}
