//! `--sizes`: speed of the policy loops by cache size.

use crate::{Report, dense, run_loop, zipf_trace};
use flashsift_caches::{
    policy,
    synth::{Pattern, Recipe},
    trace::Trace,
};
use flashsift_events::event::Action;
use std::{collections::HashSet, fmt::Write as _};

const SIZES: [u32; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
/// Default number of requests, over enough objects to fill the largest cache.
pub(crate) const REQUESTS: u64 = 120_000_000;

pub(crate) fn report(report: &mut Report, requests: u64) -> anyhow::Result<()> {
    constant(report, requests)?;
    slow(report, requests)
}

/// Policies whose cost does not grow with the cache, apart from the processor's caches.
fn constant(report: &mut Report, requests: u64) -> anyhow::Result<()> {
    let trace = zipf_trace(requests, requests / 4)?;
    let sizes = SIZES.map(|size| size.to_string());
    report.line(&format!(
        "M accesses/s, one core: Zipf(1.0), {requests} requests, {} objects.\n\n| policy | {} \
         |\n|---|{}",
        trace.pages(),
        sizes.join(" | "),
        "---:|".repeat(SIZES.len())
    ));
    for spec in policy::ALL.iter().filter(|spec| !spec.slow) {
        let mut row = format!("| {} |", spec.name);
        for frames in SIZES {
            if frames < trace.pages() {
                let (spent_s, _) = run_loop(&trace, spec.name, frames)?;
                write!(row, " {:.1} |", requests as f64 / 1e6 / spent_s)?;
            } else {
                row.push_str(" – |");
            }
        }
        report.line(&row);
    }
    report.line("");
    Ok(())
}

/// The other policies: cost of an eviction.
fn slow(report: &mut Report, requests: u64) -> anyhow::Result<()> {
    report.line(
        "## Policies that examine every frame\n\n`for`, exact: a hit takes O(log n), an eviction \
         O(frames + n / 16) of time, n being the different operations (of a page, read or write) \
         so far: linear in the cache. `for-plus` is its O(1) approximation. Zipf(1.0) with 30 % \
         writes over four times as many pages as frames.\n\n| policy | frames | n | evictions | µs \
         an eviction | accesses/s if every tenth evicts |\n|---|---:|---:|---:|---:|---:|",
    );
    for spec in policy::ALL.iter().filter(|spec| spec.slow) {
        for frames in SIZES.into_iter().filter(|frames| u64::from(*frames) < requests / 4) {
            let (trace, operations) = filling(frames)?;
            let (spent_s, outcome) = run_loop(&trace, spec.name, frames)?;
            let (without_s, _) = run_loop(&trace, spec.name, trace.pages())?;
            let evictions = outcome.accesses() - outcome.hits() - u64::from(frames);
            let eviction_us = (spent_s - without_s) * 1e6 / evictions as f64;
            report.line(&format!(
                "| {} | {frames} | {operations} | {evictions} | {eviction_us:.1} | {:.0} |",
                spec.name,
                1e7 / eviction_us
            ));
        }
    }
    report.line("");
    Ok(())
}

/// Returns a trace that fills `frames` frames and continues for a while, and the number of its
/// different operations.
fn filling(frames: u32) -> anyhow::Result<(Trace, usize)> {
    let recipe = Recipe {
        requests: u64::MAX,
        pages: 4 * u64::from(frames),
        pattern: Pattern::Zipf { alpha: 1.0 },
        write_share: 0.3,
        rate: 1000.0,
        seed: 1,
        objects: false,
    };
    let (mut pages, mut operations) = (HashSet::new(), HashSet::new());
    let mut more = (200_000_000 / frames).clamp(1_000, 100_000);
    let events = recipe.events()?.take_while(|event| {
        let going = more > 0;
        if let (true, Action::Read { offset, .. } | Action::Write { offset, .. }) =
            (going, &event.action)
        {
            pages.insert(*offset);
            operations.insert((*offset, matches!(event.action, Action::Write { .. })));
            more -= u32::from(pages.len() > frames as usize);
        }
        going
    });
    let trace = dense(recipe, events)?;
    Ok((trace, operations.len()))
}
