//! `--builds`: two programs of the same sources run the same cells in turn. `make packages` builds
//! one with another C library and other optimisations than `cargo build`.
//!
//! Other load on a machine changes within seconds, and tables that exceed the caches feel it most.
//! So the two programs run each policy right after each other, each goes first in every second
//! round, and what counts is the median of the ratios of such pairs. Fastest rounds do not repeat:
//! within an hour they gave 1.13 and 1.08.

use crate::{Report, cpu_s, median};
use anyhow::{Context, ensure};
use flashsift_caches::policy;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const REQUESTS: u64 = 5_000_000;
/// Objects and frames.
const SIZES: [(u64, u32); 2] = [(10_000, 1_000), (1_000_000, 100_000)];

/// The loops of one policy, ns an access: a pair a round.
type Pairs = Vec<[f64; 2]>;

pub(crate) fn report(
    report: &mut Report,
    rounds: usize,
    programs: &[PathBuf],
) -> anyhow::Result<()> {
    let [first, second] = programs else { anyhow::bail!("--builds takes two programs") };
    let dir = tempfile::tempdir()?;
    let policies: Vec<_> =
        policy::ALL.iter().filter(|spec| !spec.slow).map(|spec| spec.name).collect();
    report.line(&format!(
        "Zipf(1.0), {REQUESTS} requests, one core, {rounds} rounds. Each policy's loop runs in the \
         two programs right after each other; the ratio is the median of the rounds' ratios, the \
         times are medians too. Required: the loops of the second program take at most 5 % \
         longer, together.\n\n- first: `{}`\n- second: `{}`\n",
        first.display(),
        second.display()
    ));
    for (objects, frames) in SIZES {
        let zipf = dir.path().join(format!("{objects}.oracleGeneral"));
        let recipe = format!(
            "zipf --requests {REQUESTS} --pages {objects} --alpha 1.0 --seed 1 --as oracle-general"
        );
        cpu_s(Command::new(first).arg("synth").args(recipe.split(' ')).arg("-o").arg(&zipf))?;
        let mut loops: Vec<Pairs> = vec![Pairs::new(); policies.len()];
        for round in 0..rounds {
            for (policy, pairs) in policies.iter().zip(&mut loops) {
                let mut pair = [0.0; 2];
                for index in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                    pair[index] = loop_ns(&programs[index], &zipf, policy, frames)?;
                }
                pairs.push(pair);
            }
        }
        table(report, &format!("{objects} objects, {frames} frames"), &policies, &loops);
    }
    Ok(())
}

fn table(report: &mut Report, size: &str, policies: &[&str], loops: &[Pairs]) {
    report.line(&format!(
        "## {size}\n\n| policy | first, ns an access | second | second / first |\n\
         |---|---:|---:|---:|"
    ));
    let median_by = |pairs: &Pairs, of: fn(&[f64; 2]) -> f64| {
        median(&mut pairs.iter().map(of).collect::<Vec<_>>())
    };
    let ratio = |pair: &[f64; 2]| pair[1] / pair[0];
    let mut ratios = Vec::new();
    for (policy, pairs) in policies.iter().zip(loops) {
        ratios.push(median_by(pairs, ratio));
        report.line(&format!(
            "| {policy} | {:.1} | {:.1} | {:.3} |",
            median_by(pairs, |pair| pair[0]),
            median_by(pairs, |pair| pair[1]),
            ratios[ratios.len() - 1]
        ));
    }
    report.line(&format!("| all (geometric mean) | | | {:.3} |", geometric_mean(&ratios)));
    let rounds = loops.first().map_or(0, Vec::len);
    let mut together: Vec<f64> = (0..rounds)
        .map(|round| geometric_mean(&loops.iter().map(|of| ratio(&of[round])).collect::<Vec<_>>()))
        .collect();
    together.sort_by(f64::total_cmp);
    let listed: Vec<_> = together.iter().map(|ratio| format!("{ratio:.2}")).collect();
    report.line(&format!("\nAll policies together, each round: {}.\n", listed.join(", ")));
}

fn geometric_mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

/// The time of one policy's loop in a process of its own, ns an access.
fn loop_ns(program: &Path, trace: &Path, policy: &str, frames: u32) -> anyhow::Result<f64> {
    let mut command = Command::new(program);
    command.args(["compare", "--writeback", "evict", "--object-cache", "--json", "--threads", "1"]);
    command.args(["--policy", policy, "--frames", &frames.to_string()]);
    let (_, out) = cpu_s(command.arg(trace))?;
    let cells: Vec<serde_json::Value> =
        out.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let mut times = cells.iter().filter_map(|cell| cell["cpu_ns_per_access"].as_f64());
    let ns = times.next().with_context(|| format!("{} printed no time", program.display()))?;
    ensure!(ns > 0.0, "{policy} took no time");
    Ok(ns)
}
