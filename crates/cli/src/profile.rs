//! `flashsift profile`: measures the internal structure of a card or file and writes it as a
//! profile for `compare --device`.

use crate::{
    load,
    logging::SUMMARY,
    records,
    replay::{Signals, fill},
    size, text,
};
use anyhow::Context;
use flashsift_events::page::PAGE_BYTES;
use flashsift_pages::device::Profile;
use flashsift_player::{
    Error, PIECE_BYTES,
    open_target::{OpenTarget, Requirements},
    profile::{self, Figure, Fitted, Found, NamedFigure, ROUNDS, RealDevice, SUSTAINED_BYTES_MIN},
    target::Ring,
};
use flashsift_traces::replace::Replace;
use jiff::ZonedDateTime;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};
use tracing::info;

/// Measure a card or file, and write a profile for `compare --device`
///
/// Writes to several places in turn, as flashbench does. The latencies show how much of the device
/// is mapped as one (a unit), how many units are open at once, and the cost of reads, writes,
/// copies and erases. On a device without units, requests of several sizes and places show dies
/// that work at the same time, an SLC cache, and the memory for the mapping table.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo flashsift profile --target /dev/mmcblk1 --yes-destroy-data -o card.toml
  flashsift profile --target /mnt/card/file -o card.toml
  flashsift compare trace.xz --device card.toml

The target, or its first --span, is overwritten. A target in use is refused, as
by replay. A slow card takes some minutes. Comments in the profile list values
that the measurement does not show.")]
pub(crate) struct Args {
    /// File or block device to measure; a file that does not exist is created, and removed at the
    /// end
    #[arg(long, value_name = "FILE|DEV")]
    target: PathBuf,

    /// Permit the content of the device, or of an existing file, to be destroyed
    #[arg(long)]
    yes_destroy_data: bool,

    /// Part of the target to use, from its beginning; at least 67 × the size of a unit
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size::parse_bytes)]
    span: u64,

    /// Amount to write in order at last, in search of an SLC cache on a device without units
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = sustained)]
    sustained: u64,

    /// Idle time in which the device can empty its SLC cache, twice on a device without units
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = size::parse_time)]
    rest: Duration,

    /// Path of the profile to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each value, with its key
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

fn sustained(text: &str) -> Result<u64, String> {
    let bytes = size::parse_bytes(text)?;
    if bytes < SUSTAINED_BYTES_MIN {
        let one = size::bytes(SUSTAINED_BYTES_MIN);
        return Err(format!("at least {one}, the size of one of its requests"));
    }
    Ok(bytes)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    let wanted = Requirements {
        end_bytes: 0,
        changes: true,
        consent: args.yes_destroy_data,
        fold: true,
        size_bytes: Some(args.span),
        keep: false,
    };
    let place = OpenTarget::open(&args.target, &wanted)?;
    let span = args.span.min(place.bytes);
    let mut target = Ring::new(&place, 1, PIECE_BYTES)?;
    fill(span, &mut target, &signals)?;
    let bar = load::progress("", "{spinner} measuring {msg} {elapsed}");
    let mut stop = || signals.came().is_some();
    let mut device = RealDevice::new(&mut target, span / PAGE_BYTES, args.rest, &mut stop);
    let mut say = |what: &str| bar.set_message(what.to_owned());
    let found = profile::measure(&mut device, args.sustained / PAGE_BYTES, &mut say);
    bar.finish_and_clear();
    let found = match found {
        Err(Error::Stopped) => {
            let interrupted = signals.came().expect("a signal stopped it");
            return Err(anyhow::Error::new(interrupted)
                .context("no profile was written: the measurement did not finish"));
        }
        other => other?,
    };
    let measured = format!(
        "measured by flashsift profile on {} of {}, {}",
        size::bytes(span),
        args.target.display(),
        ZonedDateTime::now().date()
    );
    let fitted = profile::fit(&found, place.bytes, &measured)?;
    save(&args.output, &fitted)?;
    let mut out = records::Output::keys(args.json, args.csv);
    if args.json || args.csv {
        serde_json::to_writer(&mut out, &ProfileRecord::new(&args.target, &found, &fitted))?;
        writeln!(out)?;
    } else {
        write!(out, "{}", render(&found, &fitted))?;
    }
    out.finish()?;
    info!(target: SUMMARY, "{}: for `flashsift compare TRACE --device {0}`", args.output.display());
    Ok(())
}

/// Writes the profile, with the unknown values as comments.
fn save(path: &Path, fitted: &Fitted) -> anyhow::Result<()> {
    let at = || path.display().to_string();
    let mut text = String::new();
    writeln!(
        text,
        "# The model's times for the measured patterns are wrong by {} at worst.",
        percent(fitted.worst_error())
    )?;
    for unknown in &fitted.unknown {
        writeln!(text, "# {unknown}")?;
    }
    write!(text, "\n{}", toml::to_string_pretty(&fitted.profile).context("the profile as TOML")?)?;
    let mut file = Replace::new(path).with_context(at)?;
    file.write_all(text.as_bytes()).with_context(at)?;
    file.commit().with_context(at)?;
    Ok(())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn render(found: &Found, fitted: &Fitted) -> String {
    let us =
        |us: f64| if us < 1000.0 { format!("{us:.1} µs") } else { format!("{:.2} ms", us / 1e3) };
    let mut out = String::new();
    let mut line = |label: &str, text: String| {
        let _ = writeln!(out, "{label:<18}{text}");
    };
    match &found.units {
        Ok(units) => {
            line("unit", size::bytes(units.unit_pages * PAGE_BYTES));
            line("open units", units.open_units.to_string());
            line("copying a page", us(units.copy_us));
            line("erasing a unit", us(units.erase_us));
            line("", format!("measured closings lie within {} of these", percent(units.error)));
        }
        Err(_) => line("model", fitted.profile.what.clone()),
    }
    for NamedFigure { name, figure } in &fitted.figures {
        let (low, high) = (us(figure.low_us), us(figure.high_us));
        line(name, format!("{}; {low} to {high} in {ROUNDS} rounds", us(figure.us)));
    }
    if let Some(found) = &found.page_mapped {
        let mb_s = PAGE_BYTES as f64 / found.sustained_us;
        if found.sustained_pages > 0 {
            line("sustained writes", format!("{mb_s:.1} MB/s"));
        }
    }
    let costs: Vec<_> =
        found.streams.costs.iter().map(|(n, cost)| format!("{n}: {}", us(*cost))).collect();
    line("writes in turn", format!("places and latency of a write: {}", costs.join(", ")));
    let _ = writeln!(out, "\n{:<28}{:>12}{:>12}{:>9}", "KB/s", "measured", "model", "off by");
    for (pattern, model_ns) in &fitted.patterns {
        let (kind, order) = (
            if pattern.write { "writes" } else { "reads" },
            if pattern.sorted { "sorted" } else { "random" },
        );
        let name = format!("{order} {kind}, {}", size::bytes(pattern.span_pages * PAGE_BYTES));
        let model = profile::kb_per_s(pattern.pages.len(), *model_ns);
        let off = percent(profile::error(pattern, *model_ns));
        let _ = writeln!(out, "{name:<28}{:>12.1}{model:>12.1}{off:>9}", pattern.kb_per_s());
    }
    out.push('\n');
    let columns = text::columns().unwrap_or(120);
    for unknown in &fitted.unknown {
        out.push_str(&text::labelled("Unknown:", 9, unknown, columns));
    }
    out
}

#[derive(Serialize)]
struct ProfileRecord<'a> {
    schema: u32,
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_units: Option<u32>,
    /// The measured times of the profile, by name.
    figures: BTreeMap<&'static str, FigureRecord>,
    /// Speed at the end of the writes in order; absent where units were found.
    #[serde(skip_serializing_if = "Option::is_none")]
    sustained_us_a_page: Option<f64>,
    worst_error: f64,
    unknown: &'a [String],
    /// Number of streams, and latency of a write with so many streams, µs.
    streams: Vec<(u32, f64)>,
    profile: &'a Profile,
}

/// A time and its spread over the rounds.
#[derive(Serialize)]
struct FigureRecord {
    us: f64,
    low_us: f64,
    high_us: f64,
}

impl FigureRecord {
    fn named(named: &NamedFigure) -> (&'static str, Self) {
        let Figure { us, low_us, high_us } = named.figure;
        (named.name, Self { us, low_us, high_us })
    }
}

impl<'a> ProfileRecord<'a> {
    fn new(target: &Path, found: &Found, fitted: &'a Fitted) -> Self {
        let units = found.units.as_ref().ok();
        Self {
            schema: 1,
            target: target.display().to_string(),
            unit_bytes: units.map(|units| units.unit_pages * PAGE_BYTES),
            open_units: units.map(|units| units.open_units),
            figures: fitted.figures.iter().map(FigureRecord::named).collect(),
            sustained_us_a_page: found
                .page_mapped
                .as_ref()
                .filter(|found| found.sustained_pages > 0)
                .map(|found| found.sustained_us),
            worst_error: fitted.worst_error(),
            unknown: &fitted.unknown,
            streams: found.streams.costs.clone(),
            profile: &fitted.profile,
        }
    }
}
