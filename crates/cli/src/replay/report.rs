//! The report of a replay, as text and as JSON.

use crate::{records, size};
use comfy_table::{CellAlignment, Table, presets};
use flashsift_pages::nvm::profile::MemoryProfile;
use flashsift_player::{
    Op,
    memory::{Accesses, latencies_ns},
    open_target::{OpenTarget, TargetKind},
    tally::{Latencies, Tally},
};
use serde::Serialize;
use std::{collections::BTreeMap, io::Write, path::Path};

/// The content of the report.
pub(super) struct ReplayReport<'a> {
    pub(super) trace: String,
    pub(super) target: Option<&'a Path>,
    pub(super) place: Option<&'a OpenTarget>,
    pub(super) filled: bool,
    pub(super) recorded: bool,
    pub(super) queue_depth: u32,
    pub(super) engine: &'static str,
    /// All requests were performed.
    pub(super) whole: bool,
    pub(super) tally: &'a Tally,
    /// The memory whose latencies accesses had, and the accesses.
    pub(super) memory: Option<(&'a MemoryProfile, Memory)>,
    /// Summaries of modelled devices, by their names.
    pub(super) modelled: Vec<(&'a str, Tally)>,
}

/// Accesses to memory.
pub(super) struct Memory {
    /// Their time, nanoseconds.
    pub(super) elapsed_ns: f64,
    /// By operation.
    pub(super) accesses: Vec<(Op, Accesses)>,
}

impl Memory {
    /// Latencies of a memory times lines accessed, seconds.
    fn formula_s(&self, profile: &MemoryProfile) -> f64 {
        let lines = self.accesses.iter().map(|(_, found)| found.lines as f64);
        lines.zip(latencies_ns(profile)).map(|(lines, ns)| lines * ns).sum::<f64>() * 1e-9
    }
}

#[derive(Serialize)]
struct ReplayRecord<'a> {
    schema: u32,
    trace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_bytes: Option<u64>,
    filled: bool,
    timing: &'static str,
    queue_depth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<&'static str>,
    whole: bool,
    #[serde(flatten)]
    summary: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryRecord<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    modelled: Vec<ModelledRecord<'a>>,
}

/// Accesses to memory: lines by operation, and their time beside latency times lines.
#[derive(Serialize)]
struct MemoryRecord<'a> {
    nvm: &'a str,
    elapsed_s: f64,
    formula_s: f64,
    lines: BTreeMap<&'static str, u64>,
    /// Lines whose own access took longer than their latency.
    slower_lines: BTreeMap<&'static str, u64>,
}

impl<'a> MemoryRecord<'a> {
    fn new(profile: &'a MemoryProfile, memory: &Memory) -> Self {
        let by_op = |of: fn(&Accesses) -> u64| {
            memory.accesses.iter().map(|(op, found)| (op.name(), of(found))).collect()
        };
        Self {
            nvm: profile.name,
            elapsed_s: memory.elapsed_ns / 1e9,
            formula_s: memory.formula_s(profile),
            lines: by_op(|found| found.lines),
            slower_lines: by_op(|found| found.slower_lines),
        }
    }
}

#[derive(Serialize)]
struct ModelledRecord<'a> {
    device: &'a str,
    #[serde(flatten)]
    summary: Summary,
}

#[derive(Serialize)]
struct Summary {
    elapsed_s: f64,
    requests: u64,
    requests_per_s: f64,
    bytes_per_s: f64,
    operations: BTreeMap<&'static str, OpRecord>,
    /// Delay between the due time and the start of each request.
    #[serde(skip_serializing_if = "Option::is_none")]
    late: Option<TimesRecord>,
}

impl Summary {
    fn new(tally: &Tally, recorded: bool) -> Self {
        let operations = tally.ops().map(|(op, done)| {
            let bytes = (op != Op::Sync).then_some(done.bytes);
            (
                op.name(),
                OpRecord {
                    requests: done.count,
                    total_s: done.total_ns as f64 / 1e9,
                    bytes,
                    times: (&done.times).into(),
                },
            )
        });
        Self {
            elapsed_s: tally.elapsed_ns as f64 / 1e9,
            requests: tally.requests(),
            requests_per_s: per_s(tally, tally.requests()).round(),
            bytes_per_s: per_s(tally, tally.moved_bytes()).round(),
            operations: operations.collect(),
            late: recorded.then(|| (&tally.late).into()),
        }
    }
}

fn per_s(tally: &Tally, n: u64) -> f64 {
    n as f64 * 1e9 / (tally.elapsed_ns as f64).max(1.0)
}

#[derive(Serialize)]
struct OpRecord {
    requests: u64,
    total_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(flatten)]
    times: TimesRecord,
}

#[derive(Serialize)]
struct TimesRecord {
    mean_us: f64,
    min_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

impl From<&Latencies> for TimesRecord {
    fn from(times: &Latencies) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            mean_us: times.mean().round() / 1e3,
            min_us: us(times.min()),
            p50_us: us(times.at(0.5)),
            p90_us: us(times.at(0.9)),
            p99_us: us(times.at(0.99)),
            p999_us: us(times.at(0.999)),
            max_us: us(times.max()),
        }
    }
}

impl ReplayReport<'_> {
    pub(super) fn print(&self, json: bool, csv: bool) -> anyhow::Result<()> {
        let mut out = records::Output::keys(json, csv);
        if json || csv {
            serde_json::to_writer(&mut out, &self.record())?;
            writeln!(out)?;
        } else {
            write!(out, "{}", self.text())?;
        }
        out.finish()
    }

    fn kind(&self) -> &'static str {
        match self.place.map(|place| place.kind) {
            Some(TargetKind::File) => "file",
            Some(TargetKind::Device) => "device",
            None => "null",
        }
    }

    fn record(&self) -> ReplayRecord<'_> {
        let modelled = self.modelled.iter().map(|(device, tally)| ModelledRecord {
            device,
            summary: Summary::new(tally, self.recorded),
        });
        ReplayRecord {
            schema: 1,
            trace: &self.trace,
            target: self.target.map(|path| path.display().to_string()),
            kind: self.kind(),
            target_bytes: self.place.map(|place| place.bytes),
            filled: self.filled,
            timing: if self.recorded { "recorded" } else { "asap" },
            queue_depth: self.queue_depth,
            engine: self.place.map(|_| self.engine),
            whole: self.whole,
            summary: Summary::new(self.tally, self.recorded),
            memory: self
                .memory
                .as_ref()
                .map(|(profile, memory)| MemoryRecord::new(profile, memory)),
            modelled: modelled.collect(),
        }
    }

    fn text(&self) -> String {
        let place = match (self.target, self.place) {
            (Some(path), Some(place)) => {
                let filled = if self.filled { ", filled before" } else { "" };
                format!(
                    "{} ({} of {}{filled})",
                    path.display(),
                    self.kind(),
                    size::bytes(place.bytes)
                )
            }
            _ => "no target (the cost of flashsift itself)".to_owned(),
        };
        let timing = if self.recorded { "at recorded times" } else { "as fast as possible" };
        let depth = match self.queue_depth {
            1 => "one at a time".to_owned(),
            depth => format!("up to {depth} at a time"),
        };
        let mut out = format!("{} to {place}, {timing}, {depth}\n", self.trace);
        out.push_str(&self.summary(self.tally));
        if let Some((profile, memory)) = &self.memory {
            let lines: u64 = memory.accesses.iter().map(|(_, found)| found.lines).sum();
            let us = |seconds: f64| size::duration((seconds * 1e6) as u64);
            out.push_str(&format!(
                "\n{} lines of memory as {}: {}, {} by its latencies\n",
                size::count(lines),
                profile.name,
                us(memory.elapsed_ns / 1e9),
                us(memory.formula_s(profile))
            ));
        }
        for (device, tally) in &self.modelled {
            out.push_str(&format!("\nThe same on {device}, modelled\n"));
            out.push_str(&self.summary(tally));
        }
        out
    }

    fn summary(&self, tally: &Tally) -> String {
        let part = if self.whole { "" } else { " (ended early)" };
        format!(
            "{} requests in {}{part}: {} a second, {}/s\n\n{}",
            size::count(tally.requests()),
            size::duration(tally.elapsed_ns / 1000),
            size::count(per_s(tally, tally.requests()) as u64),
            size::bytes(per_s(tally, tally.moved_bytes()) as u64),
            self.table(tally)
        )
    }

    fn table(&self, tally: &Tally) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.force_no_tty();
        table.set_header([
            "latency, µs",
            "requests",
            "",
            "mean",
            "50 %",
            "90 %",
            "99 %",
            "99.9 %",
            "longest",
        ]);
        let row = |name: &str, requests: u64, bytes: String, times: &Latencies| {
            let us = |ns: f64| match ns / 1e3 {
                us @ ..100.0 => format!("{us:.1}"),
                us => size::count(us.round() as u64),
            };
            let quantiles = [0.5, 0.9, 0.99, 0.999, 1.0].map(|share| us(times.at(share) as f64));
            let cells = [name.to_owned(), size::count(requests), bytes, us(times.mean())];
            cells.into_iter().chain(quantiles).collect::<Vec<_>>()
        };
        for (op, done) in tally.ops() {
            let bytes = if op == Op::Sync { String::new() } else { size::bytes(done.bytes) };
            table.add_row(row(op.name(), done.count, bytes, &done.times));
        }
        if self.recorded {
            table.add_row(row("late", tally.late.count(), String::new(), &tally.late));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
            column.set_padding((2, 0));
        }
        table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}
