//! The status of mounts as metrics, in the text format 0.0.4 of Prometheus, and the
//! [server](server::Server) that gives them to scrapers.
//!
//! Counters count since the mount began. Every sample has the label `mountpoint`.

pub mod address;
mod http;
pub mod server;

use crate::fs::types::{SiftStatus, Status};
use flashsift_events::names::escape;
use flashsift_files::sift::live::LiveMode;
use std::fmt::{self, Write as _};
use std::path::Path;

/// The media type of [`text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the metrics of these mounts. A figure that is unknown is left out.
pub fn text(mounts: &[(&Path, &Status)]) -> String {
    let mut text = String::with_capacity(16 << 10);
    for metric in METRICS {
        let mut is_first = true;
        for (mountpoint, status) in mounts {
            for Sample { label, value } in (metric.samples)(status) {
                if std::mem::take(&mut is_first) {
                    let (name, kind) = (metric.name, metric.kind);
                    let _ = writeln!(text, "# HELP {name} {}", metric.help);
                    let _ = writeln!(text, "# TYPE {name} {kind}");
                }
                let point = escape(mountpoint.as_os_str().as_encoded_bytes());
                let _ = write!(text, "{}{{mountpoint=\"{}\"", metric.name, Quoted(&point));
                if let Some((name, of)) = label {
                    let _ = write!(text, ",{name}=\"{}\"", Quoted(&of));
                }
                let _ = writeln!(text, "}} {value}");
            }
        }
    }
    text
}

/// A label's value between quotation marks.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            _ => f.write_char(c),
        })
    }
}

struct Metric {
    name: &'static str,
    /// `counter` or `gauge`.
    kind: &'static str,
    help: &'static str,
    samples: fn(&Status) -> Vec<Sample>,
}

struct Sample {
    /// A label beside `mountpoint`.
    label: Option<(&'static str, String)>,
    value: Value,
}

/// A number as it is written: whole numbers keep all digits.
enum Value {
    Count(u64),
    Difference(i64),
    Share(f64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(value) => value.fmt(f),
            Value::Difference(value) => value.fmt(f),
            Value::Share(value) => value.fmt(f),
        }
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Count(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Count(value.into())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Difference(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Share(value)
    }
}

/// The samples of a metric: none if the figure is unknown.
struct Samples(Vec<Sample>);

impl<T: Into<Value>> From<T> for Samples {
    fn from(value: T) -> Self {
        Self(vec![Sample { label: None, value: value.into() }])
    }
}

impl From<Vec<Sample>> for Samples {
    fn from(samples: Vec<Sample>) -> Self {
        Self(samples)
    }
}

impl<T: Into<Self>> From<Option<T>> for Samples {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self(Vec::new()), Into::into)
    }
}

fn labelled(name: &'static str, of: String, value: impl Into<Value>) -> Vec<Sample> {
    vec![Sample { label: Some((name, of)), value: value.into() }]
}

fn modes(sift: &SiftStatus) -> Vec<Sample> {
    let of = |mode: LiveMode| labelled("mode", mode.name().to_owned(), sift.mode == mode);
    LiveMode::ALL.into_iter().flat_map(of).collect()
}

/// Lists the metrics: kind, the part of the status that has the figure, name, help, value.
macro_rules! metrics {
    (@status $of:ident) => { Some($of) };
    (@writes $of:ident) => { $of.writes.as_ref() };
    (@sift $of:ident) => { $of.sift.as_ref() };
    (@rehearsal $of:ident) => { $of.sift.as_ref().and_then(|sift| sift.rehearsal.as_ref()) };
    ($($kind:ident $part:ident $name:ident: $help:literal, |$of:pat_param| $value:expr;)*) => {
        const METRICS: &[Metric] = &[$(Metric {
            name: concat!("flashsift_", stringify!($name)),
            kind: stringify!($kind),
            help: $help,
            samples: |status| {
                let part = metrics!(@$part status);
                Samples::from(part.map(|$of| Samples::from($value))).0
            },
        }),*];
    };
}

metrics! {
    gauge status build_info: "Always 1; the label has the version.",
        |_| labelled("version", env!("CARGO_PKG_VERSION").to_owned(), true);
    gauge writes mounted_seconds: "Time since the mount began.", |w| w.mounted_s;
    gauge status files_in_ram: "Files that live in RAM.", |s| s.files_in_ram;
    gauge status directories_in_ram: "New directories that live in RAM.",
        |s| s.directories_in_ram;
    gauge status ram_bytes: "RAM that files and directories take.", |s| s.ram_bytes;
    gauge status ram_budget_bytes: "Limit of the RAM that files take.", |s| s.budget_bytes;
    counter status files_created_in_ram_total: "Files that were created in RAM.", |s| s.born;
    counter status files_created_write_through_total: "Files that were created on flash.",
        |s| s.born_settled;
    counter status files_deleted_in_ram_total:
        "Files that were created and deleted in RAM, and never reached flash.", |s| s.never_written;
    counter status files_written_back_total: "Files that were written back.", |s| s.settled;
    counter status written_back_bytes_total: "Bytes that write-back copied.", |s| s.settled_bytes;
    counter status write_back_restarts_total:
        "Copies that were repeated because the file had changed meanwhile.", |s| s.restarts;
    gauge status failing_files:
        "Files and directories that could not be written back when it was last tried.",
        |s| s.failing_files;
    gauge status failing_directories: "The directories of flashsift_failing_files.",
        |s| s.failing_directories;
    gauge status read_only: "1: BACKING takes no changes at the moment.", |s| s.read_only;
    gauge status passthrough: "1: the kernel reads and writes files on flash without the daemon.",
        |s| s.passthrough;
    counter status faults_total: "Requests that failed inside flashsift.", |s| s.faults;
    counter writes requested_bytes_total: "Bytes of the write requests of applications.",
        |w| w.requested_bytes;
    counter writes unseen_opens_total:
        "Opens for writing whose writes the kernel performs without the daemon.",
        |w| w.unseen_opens;
    counter writes ext4_bytes_total: "Estimate: bytes that plain ext4 would have written.",
        |w| w.ext4_bytes;
    gauge writes ext4_waiting_bytes:
        "Estimate: bytes that would be dirty in the page cache of plain ext4.",
        |w| w.ext4_waiting_bytes;
    counter writes flash_bytes_total: "Bytes that reached flash through flashsift.",
        |w| w.flash_bytes;
    gauge writes flash_waiting_bytes: "Bytes in RAM, and dirty in BACKING's page cache.",
        |w| w.flash_waiting_bytes;
    gauge writes saved_bytes:
        "Bytes saved beyond plain ext4 if all that waits were written now; negative: more.",
        |w| w.saved_bytes;
    counter writes syncs_total: "Syncs by applications.", |w| w.syncs;
    counter writes sync_ext4_bytes_total:
        "Estimate: the part of flashsift_ext4_bytes_total that syncs of applications forced.",
        |w| w.sync_ext4_bytes;
    counter writes sync_flash_bytes_total:
        "The part of flashsift_flash_bytes_total that syncs of applications forced.",
        |w| w.sync_flash_bytes;
    counter writes sync_flushes_total:
        "fsync, fdatasync and syncfs that flashsift issued for syncs of applications.",
        |w| w.sync_flushes;
    counter writes flushes_total: "All fsync, fdatasync and syncfs that flashsift issued.",
        |w| w.flushes;
    counter writes device_written_bytes_total:
        "Bytes that all programs wrote to BACKING's block device.",
        |w| w.device.as_ref().map(|of| labelled("device", of.name.clone(), of.written_bytes));
    gauge sift sift_info: "Always 1; the label has the sifter and its parameters.",
        |s| labelled("sifter", s.sifter.clone(), true);
    gauge sift sift_mode: "1 for the mode of new files, 0 for the others.", |s| modes(s);
    gauge sift sift_again_share:
        "Bytes fetched again, as a share of those of droppable files that ext4 would have written.",
        |s| s.again_share;
    gauge sift sift_again_at_most: "The most of it: no file is dropped above.", |s| s.again_at_most;
    counter sift sift_refused_files_total:
        "Files that were written because drops had reached that limit.", |s| s.counts.refused.files;
    counter sift sift_refused_bytes_total: "Bytes of these files.", |s| s.counts.refused.bytes;
    gauge sift sift_budget_bytes: "Most RAM that the sifter's files take.", |s| s.budget_bytes;
    gauge sift sift_held_files: "Files that the sifter has in RAM.", |s| s.counts.held.files;
    gauge sift sift_held_bytes: "Bytes of files that the sifter has in RAM.",
        |s| s.counts.held.bytes;
    counter sift sift_dropped_files_total: "Files that were dropped.", |s| s.counts.dropped.files;
    counter sift sift_dropped_bytes_total: "Bytes of files that were dropped.",
        |s| s.counts.dropped.bytes;
    counter sift sift_created_again_files_total: "Dropped files whose names were created again.",
        |s| s.counts.created_again.files;
    counter sift sift_created_again_bytes_total:
        "Bytes of dropped files whose names were created again.", |s| s.counts.created_again.bytes;
    counter sift sift_written_files_total: "Files that moved from the sifter's RAM to flash.",
        |s| s.counts.written.files;
    counter sift sift_written_bytes_total:
        "Bytes of files that moved from the sifter's RAM to flash.", |s| s.counts.written.bytes;
    counter sift sift_died_files_total: "Files that applications deleted in the sifter's RAM.",
        |s| s.counts.died.files;
    counter sift sift_died_bytes_total:
        "Bytes of files that applications deleted in the sifter's RAM.", |s| s.counts.died.bytes;
    gauge sift sift_rehearsal: "1: a dry run, which drops nothing.", |s| s.rehearsal.is_some();
    gauge rehearsal sift_rehearsal_seconds: "Time since the dry run began.", |r| r.since_s;
    gauge rehearsal sift_rehearsal_stock_bytes:
        "Bytes of droppable files that reach flash without the sifter, since the dry run began.",
        |r| r.stock_bytes;
    gauge rehearsal sift_rehearsal_kept_bytes:
        "The part of them that the sifter would have kept from flash; negative: it writes more.",
        |r| r.kept_bytes;
    gauge rehearsal sift_rehearsal_kept_ratio:
        "Estimate of the share that the sifter would keep; absent until there is enough data.",
        |r| r.kept_share.map(|share| share[0]);
    gauge rehearsal sift_rehearsal_kept_ratio_first_half:
        "flashsift_sift_rehearsal_kept_ratio in the first half of the slices of time.",
        |r| r.kept_share.map(|share| share[1]);
    gauge rehearsal sift_rehearsal_kept_ratio_second_half:
        "flashsift_sift_rehearsal_kept_ratio in the second half.",
        |r| r.kept_share.map(|share| share[2]);
    gauge rehearsal sift_rehearsal_fetched_again_bytes:
        "Bytes that would have been fetched again since the dry run began.",
        |r| r.fetched_again_bytes;
    gauge rehearsal sift_rehearsal_dropped_files:
        "Files that would have been dropped since the dry run began.", |r| r.dropped;
}

#[cfg(test)]
mod tests;
