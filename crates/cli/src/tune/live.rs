//! `flashsift tune readahead --live`: what this machine reads ahead in vain, at its present value.

use super::{
    ReadaheadArgs,
    apply::{print, print_records},
    found, kib, present_kib,
    recording::Recording,
};
use crate::{logging::DETAIL, size, table, watch::Until};
use flashsift_events::page::PAGE_BYTES;
use flashsift_host::readahead::{Backing, Machine};
use flashsift_record::{
    self as recorder,
    readahead::{self, ReadAheadShare, ReadAheadUse, WatchedFileSystem, count::ReadAheadTally},
};
use serde::Serialize;
use std::{ffi::OsStr, fmt::Write as _, time::Duration};
use tracing::warn;

const SCHEMA: u32 = 1;
/// Fewer pages than this say nothing about a machine: 1 MiB.
const EVIDENCE_PAGES: u64 = 256;

pub(super) fn run(
    args: &ReadaheadArgs,
    machine: &Machine,
    device: &OsStr,
    backing: &Backing,
) -> anyhow::Result<()> {
    let before_kib = present_kib(&backing.path)?;
    let (Some(dev), Some(point)) = (backing.dev, backing.mounts.first()) else {
        let several = backing.mounts.len() > 1;
        anyhow::bail!(match several {
            true => "several file systems are mounted from this device: name one mount point",
            false => "no file system of this device is mounted, so there is nothing to watch",
        });
    };
    let mut stop = Until::new(args.time, "record")?;
    let kind = backing.file_system.clone().unwrap_or_default();
    let watched = WatchedFileSystem { dev, bdi: backing.bdi.clone(), kind, point: point.clone() };
    let top = usize::try_from(args.top).unwrap_or(usize::MAX);
    let recording = match args.propose || args.apply {
        true if !recorder::can_record(&watched.kind) => anyhow::bail!(
            "a size is proposed for a recording, and {} cannot be recorded, only ext4 and F2FS: \
             without --propose and --apply, the pages are counted",
            watched.kind
        ),
        // Only then does the trace tell reads from page faults, which the kernel reads around.
        true => Some(Recording::begin(point, args.time, &["--exact"])?),
        false => None,
    };
    let counted = readahead::watch(&watched, args.buffer.div_ceil(1024), top, &mut stop);
    let elapsed = stop.finish();
    let counted = counted.map_err(|error| match error {
        recorder::Error::NotAllowed { .. } => {
            anyhow::Error::new(error).context("watching a machine needs root: run it with sudo")
        }
        error => error.into(),
    })?;
    if counted.lost > 0 {
        warn!(
            target: DETAIL,
            "LOST: {} of the kernel, so the numbers are wrong; a larger --buffer helps",
            size::counted(counted.lost, "record")
        );
    }
    let after_kib = present_kib(&backing.path)?;
    if after_kib != before_kib {
        warn!("another program has changed the maximum meanwhile: it is {} now", kib(after_kib));
    }
    if args.form().is_records() {
        print_records(
            args.form(),
            &[LiveRecord {
                schema: SCHEMA,
                action: "live",
                backing,
                present_kib: before_kib,
                elapsed_s: elapsed.as_secs_f64(),
                page_bytes: PAGE_BYTES,
                total: Pages::new(&counted.total),
                programs: counted.programs.iter().map(Share::new).collect(),
                files: counted.files.iter().map(Share::new).collect(),
                files_count: counted.files_count,
                untracked_pages: counted.untracked_pages,
                lost_records: counted.lost,
            }],
        )?;
    } else {
        print(&text(backing, before_kib, elapsed, &counted, recording.is_some()))?;
    }
    match recording {
        Some(mut recording) => {
            let trace = recording.end()?;
            super::trace::study(args, machine, &trace, Some(device))
        }
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct LiveRecord<'a> {
    schema: u32,
    action: &'static str,
    #[serde(flatten)]
    backing: &'a Backing,
    present_kib: u64,
    elapsed_s: f64,
    page_bytes: u64,
    total: Pages,
    programs: Vec<Share<'a>>,
    files: Vec<Share<'a>>,
    files_count: u64,
    untracked_pages: u64,
    lost_records: u64,
}

#[derive(Serialize)]
struct Pages {
    demanded_pages: u64,
    ahead_pages: u64,
    used_pages: u64,
    mapped_pages: u64,
    dropped_pages: u64,
    unused_pages: u64,
    efficiency: Option<f64>,
}

impl Pages {
    fn new(tally: &ReadAheadTally) -> Self {
        let &ReadAheadTally {
            demanded_pages,
            used_pages,
            mapped_pages,
            dropped_pages,
            unused_pages,
        } = tally;
        let (ahead_pages, efficiency) = (tally.ahead_pages(), tally.efficiency());
        Self {
            demanded_pages,
            ahead_pages,
            used_pages,
            mapped_pages,
            dropped_pages,
            unused_pages,
            efficiency,
        }
    }
}

#[derive(Serialize)]
struct Share<'a> {
    name: &'a str,
    #[serde(flatten)]
    pages: Pages,
}

impl<'a> Share<'a> {
    fn new(share: &'a ReadAheadShare) -> Self {
        Self { name: &share.name, pages: Pages::new(&share.tally) }
    }
}

fn bytes(pages: u64) -> String {
    size::bytes(pages.saturating_mul(PAGE_BYTES))
}

fn text(
    backing: &Backing,
    now_kib: u64,
    elapsed: Duration,
    counted: &ReadAheadUse,
    recorded: bool,
) -> String {
    let mut text = found(backing, now_kib);
    let ReadAheadUse { total, programs, files, files_count, untracked_pages, .. } = counted;
    let elapsed = size::duration(elapsed.as_micros() as u64);
    let _ = writeln!(
        text,
        "In {elapsed}: {} were read as demanded, {} ahead of demand, from {}.",
        bytes(total.demanded_pages),
        bytes(total.ahead_pages()),
        size::counted(*files_count, "file")
    );
    if *untracked_pages > 0 {
        let _ = writeln!(text, "Not followed, for lack of memory: {}.", bytes(*untracked_pages));
    }
    if total.ahead_pages() > 0 {
        text += "\n";
        text += &shares("program", programs);
        text += "\n";
        text += &shares("file", files);
    }
    text += "\n";
    text += &verdict(now_kib, total, recorded);
    text
}

fn shares(what: &str, shares: &[ReadAheadShare]) -> String {
    let head = ["demanded", "ahead", "used", "mapped", "dropped", "unused yet", "efficiency"];
    let mut rows = vec![[what].into_iter().chain(head).map(str::to_owned).collect::<Vec<_>>()];
    for ReadAheadShare { name, tally } in shares {
        let pages = [
            tally.demanded_pages,
            tally.ahead_pages(),
            tally.used_pages,
            tally.mapped_pages,
            tally.dropped_pages,
            tally.unused_pages,
        ];
        let mut row = vec![name.clone()];
        row.extend(pages.map(bytes));
        row.push(tally.efficiency().map_or_else(|| "–".to_owned(), percent));
        rows.push(row);
    }
    table::for_terminal(rows, &[0])
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// The meaning of the counts. They are of one size only, so they never name a better one.
fn verdict(now_kib: u64, total: &ReadAheadTally, recorded: bool) -> String {
    let mut text = match total.efficiency() {
        Some(efficiency) if total.ahead_pages() >= EVIDENCE_PAGES => format!(
            "{} of the pages read ahead were used, of those whose use is visible.\nUnused were {}: \
             {} dropped from the cache, {} still in it.\n",
            percent(efficiency),
            bytes(total.dropped_pages + total.unused_pages),
            bytes(total.dropped_pages),
            bytes(total.unused_pages)
        ),
        _ => format!("Less than {} was read ahead: too little to judge.\n", bytes(EVIDENCE_PAGES)),
    };
    let effect = match recorded {
        true => "The table below\nshows the effect of others.",
        false => "They do not show\nthe effect of another one: --propose finds it.",
    };
    let _ = writeln!(text, "The counts are of the present maximum, {}. {effect}", kib(now_kib));
    text
}
