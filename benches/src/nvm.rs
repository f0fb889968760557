//! `--nvm`: speed of the caches in non-volatile memory, and of their power cuts.

use crate::{Report, dense, median, thread_cpu_s};
use anyhow::anyhow;
use flashsift_caches::{
    back::{Back, DeviceCounts, Source, Why, Written},
    cache::{Cache, Details},
    synth::{Pattern, Recipe},
    trace::{Owner, StepKind, Trace},
};
use flashsift_events::{
    address::Address,
    page::{Access, Op, Page},
};
use flashsift_pages::{
    cache::{Fslru, Nvlru, Settings},
    nvm::{Counting, power_cuts},
};
use std::ops::Range;

const REQUESTS: u64 = 20_000_000;
const PAGES: u64 = 400_000;
const FRAMES: u32 = 100_000;
/// Accesses for each fsync of a page.
const SYNC_EVERY: usize = 100;
const CUTS: u64 = 500_000;

pub(crate) fn report(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    accesses(report, rounds)?;
    let before = thread_cpu_s();
    let cuts: u64 = power_cuts::cut_power(CUTS).map_err(|why| anyhow!(why))?.iter().sum();
    report.line(&format!(
        "{cuts} power cuts in random histories, half of them under each cache, none of which lost \
         a page: {:.0} a second, one core. Required: 10^5.\n",
        cuts as f64 / (thread_cpu_s() - before)
    ));
    Ok(())
}

fn accesses(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    let pattern = Pattern::Zipf { alpha: 1.0 };
    let (write_share, rate, seed, objects) = (0.4, 1000.0, 1, false);
    let (requests, pages) = (REQUESTS, PAGES);
    let recipe = Recipe { requests, pages, pattern, write_share, rate, seed, objects };
    let trace = dense(recipe, recipe.events()?)?;
    report.line(&format!(
        "M accesses/s, one core: Zipf(1.0), {REQUESTS} requests, 40 % writes, {} pages, {FRAMES} \
         frames, an fsync for each {SYNC_EVERY} accesses. Required: 20.\n\n| cache | M accesses/s \
         | hits | storage reads | storage writes | FLUSHes |\n|---|---:|---:|---:|---:|---:|",
        trace.pages()
    ));
    let settings = Settings::default();
    let dram = Fslru::<Counting>::dram_frames(FRAMES, settings);
    let fslru = || Fslru::new(trace.pages(), FRAMES, settings, Counting::new(FRAMES - dram));
    let nvlru = || Nvlru::new(trace.pages(), FRAMES, settings, Counting::new(FRAMES));
    report.line(&row("fslru", rounds, &trace, fslru));
    report.line(&row("nvlru", rounds, &trace, nvlru));
    report.line("");
    Ok(())
}

fn row<C: Cache>(name: &str, rounds: usize, trace: &Trace, build: impl Fn() -> C) -> String {
    let mut times = Vec::new();
    let (mut hits, mut back) = (0, Counted::default());
    for _ in 0..rounds {
        let mut cache = build();
        back = Counted::default();
        let before = thread_cpu_s();
        hits = replay(trace, &mut cache, &mut back);
        times.push(thread_cpu_s() - before);
    }
    let rate = trace.steps().len() as f64 / 1e6 / median(&mut times);
    let Counted { reads, writes, flushes } = back;
    format!("| {name} | {rate:.1} | {hits} | {reads} | {writes} | {flushes} |")
}

fn replay(trace: &Trace, cache: &mut impl Cache, back: &mut Counted) -> u64 {
    let mut hits = 0;
    let steps = trace.steps();
    for (n, step) in steps.iter().enumerate() {
        if let Some(ahead) = steps[n..].first_chunk::<33>() {
            cache.far_ahead(ahead[32].first());
            cache.near_ahead(ahead[12].first());
        }
        let op = if step.kind() == StepKind::Read { Op::Read } else { Op::Write };
        let access = Access::new(step.first(), op);
        hits += u64::from(cache.access(access, Details::WHOLE, back));
        if n % SYNC_EVERY == 0 {
            cache.sync(step.range(), Why::Sync, back);
        }
    }
    hits
}

/// Storage that counts.
#[derive(Default)]
struct Counted {
    reads: u64,
    writes: u64,
    flushes: u64,
}

impl Back for Counted {
    fn read(&mut self, _: Page, _: Owner) -> Source {
        self.reads += 1;
        Source::Storage
    }
    fn write(&mut self, _: Written) {
        self.writes += 1;
    }
    fn flush(&mut self) {
        self.flushes += 1;
    }
    fn dropped(&mut self, _: bool) {}
    fn free(&mut self, _: Range<u32>) {}
    fn address(&mut self, _: Page) -> Address {
        Address::LAST
    }
    fn counts(&self) -> DeviceCounts {
        DeviceCounts::default()
    }
}
