//! `--memory`: peak memory of a run, compared with 24 bytes a request and 16 a page and policy
//! cell.

use crate::{FLASHSIFT, Report, counted, densified};
use anyhow::{Context, ensure};
use flashsift_caches::{
    policy,
    synth::{Pattern, Recipe},
    trace::Trace,
};
use flashsift_pages::{
    layout,
    system::{self, Cell},
    writeback::Modes,
};
use nix::sys::resource::{UsageWho, getrusage};
use std::{env, path::Path, process::Command};

pub(crate) const REQUESTS: u64 = 100_000_000;
const MIB: f64 = (1 << 20) as f64;

pub(crate) fn report(report: &mut Report, requests: u64) -> anyhow::Result<()> {
    whole(report, requests)?;
    cells(report)
}

/// Whole processes with one cell each: the memory that the machine needs.
fn whole(report: &mut Report, requests: u64) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("zipf.parquet");
    let recipe = format!(
        "zipf --requests {requests} --pages {} --alpha 1.0 --writes 0.3 --seed 1",
        requests / 2
    );
    peak_of(Command::new(FLASHSIFT).arg("synth").args(recipe.split(' ')).arg("-o").arg(&file))?;
    let (_, all) = compare(&file, "fifo", 1 << 28)?;
    let pages =
        all["accesses"].as_u64().context("accesses")? - all["hits"].as_u64().context("hits")?;
    let frames = pages / 2;
    let allowed = 24 * requests + 16 * pages;
    report.line(&format!(
        "## Whole processes\n\n`flashsift compare` of one policy with {frames} frames over \
         {requests} requests, Zipf(1.0), 30 % writes, {pages} different pages: peak resident \
         memory. Required: 24 bytes a request and 16 a page, {:.0} MiB. Left out: policies that \
         take hours at this size.\n\n| policy | peak, MiB | of that |\n|---|---:|---:|",
        allowed as f64 / MIB
    ));
    for spec in policy::ALL.iter().filter(|spec| !spec.slow) {
        let (peak, _) = compare(&file, spec.name, frames)?;
        report.line(&format!(
            "| {} | {:.0} | {:.2} |",
            spec.name,
            peak as f64 / MIB,
            peak as f64 / allowed as f64
        ));
    }
    report.line("");
    Ok(())
}

/// Returns the peak of one cell, and its output.
fn compare(trace: &Path, policy: &str, frames: u64) -> anyhow::Result<(u64, serde_json::Value)> {
    let mut command = Command::new(FLASHSIFT);
    command
        .args(["compare", "--writeback", "evict", "--json", "--policy", policy, "--frames"])
        .arg(frames.to_string())
        .arg(trace);
    let (peak, out) = peak_of(&mut command)?;
    Ok((peak, serde_json::from_str(&out)?))
}

/// Returns the peak of resident bytes of a command, and its output. The kernel reports the peak
/// over all children of a process, so an intermediate process is started for this child only.
fn peak_of(command: &mut Command) -> anyhow::Result<(u64, String)> {
    let mut alone = Command::new(env::current_exe()?);
    alone.arg("--peak-of").arg(command.get_program()).args(command.get_args());
    let output = alone.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let (peak, out) = text.split_once('\n').context("a peak")?;
    Ok((peak.parse()?, out.to_owned()))
}

/// Runs in the process started by [`peak_of`].
pub(crate) fn print_peak(command: &[String]) -> anyhow::Result<()> {
    let (program, args) = command.split_first().context("a command")?;
    let output = Command::new(program).args(args).output()?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    println!(
        "{}\n{}",
        getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss() * 1024,
        String::from_utf8(output.stdout)?
    );
    Ok(())
}

/// Memory of a cell, without its trace and its layout.
fn cells(report: &mut Report) -> anyhow::Result<()> {
    let large = trace(8_000_000, 2_000_000)?;
    let small = trace(200_000, 50_000)?;
    report.line(&format!(
        "## Cells\n\nBytes a page of the trace that one cell asks for at its peak, by the share of \
         these pages that it can hold: 4 a page for the page table, 8 a frame, and the policy's. \
         Not included: the layout, here {:.1} bytes a page, and the oracle of offline policies, 4 \
         bytes an access for all cells together. {} different pages; for slow policies {}.\n\n| \
         policy | a tenth | a half | all |\n|---|---:|---:|---:|",
        layout_bytes(&large) as f64 / f64::from(large.pages()),
        large.pages(),
        small.pages()
    ));
    for spec in policy::ALL {
        let trace = if spec.slow { &small } else { &large };
        let pages = trace.pages();
        let mut row = format!("| {} |", spec.name);
        for frames in [pages / 10, pages / 2, pages] {
            row += &format!(
                " {:.1} |",
                cell_bytes(trace, spec.name, frames)? as f64 / f64::from(pages)
            );
        }
        report.line(&row);
    }
    report.line("");
    Ok(())
}

fn cell_bytes(trace: &Trace, policy: &str, frames: u32) -> anyhow::Result<usize> {
    let policy = policy::Selection::parse(policy)?;
    let future = policy.spec.kind.is_offline().then(|| trace.future()).transpose()?;
    let layout = layout::default_for(trace.about().space);
    let writeback = Modes::default();
    let cell = Cell {
        system: &system::PLAIN,
        policy: &policy,
        frames,
        layout: &layout,
        writeback,
        drain: false,
        write_miss_reads: false,
        request_pages_max: 128,
        discards: true,
        metadata: None,
        readahead: None,
        lines: None,
        reads: None,
        attribution: None,
    };
    let (_, bytes) = counted::peak_bytes(|| cell.run(trace, future.as_ref(), None));
    Ok(bytes - layout_bytes(trace))
}

fn layout_bytes(trace: &Trace) -> usize {
    let layout = layout::default_for(trace.about().space);
    counted::peak_bytes(|| (layout.spec.build)(trace, &layout.params)).1
}

fn trace(requests: u64, pages: u64) -> anyhow::Result<Trace> {
    let pattern = Pattern::Zipf { alpha: 1.0 };
    densified(Recipe {
        requests,
        pages,
        pattern,
        write_share: 0.3,
        rate: 1000.0,
        seed: 1,
        objects: false,
    })
}
