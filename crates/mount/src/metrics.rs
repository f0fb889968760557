//! The status of mounts as metrics, in the text format 0.0.4 of Prometheus, and the
//! [server](server::Server) that gives them to scrapers.
//!
//! Counters count since the mount began. Every sample has the label `mountpoint`.

pub mod address;
mod http;
pub mod server;

use crate::fs::types::{SiftStatus, Status, Writes};
use flashsift_core::names::escape;
use flashsift_core::sift::live::LiveMode;
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

const fn gauge(
    name: &'static str,
    help: &'static str,
    samples: fn(&Status) -> Vec<Sample>,
) -> Metric {
    Metric { name, kind: "gauge", help, samples }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    samples: fn(&Status) -> Vec<Sample>,
) -> Metric {
    Metric { name, kind: "counter", help, samples }
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

fn one(value: impl Into<Value>) -> Vec<Sample> {
    vec![Sample { label: None, value: value.into() }]
}

fn labelled(name: &'static str, of: String, value: impl Into<Value>) -> Sample {
    Sample { label: Some((name, of)), value: value.into() }
}

fn written<T: Into<Value>>(
    status: &Status,
    value: impl FnOnce(&Writes) -> Option<T>,
) -> Vec<Sample> {
    status.writes.as_ref().and_then(value).map_or_else(Vec::new, one)
}

fn sifted<T: Into<Value>>(
    status: &Status,
    value: impl FnOnce(&SiftStatus) -> Option<T>,
) -> Vec<Sample> {
    status.sift.as_ref().and_then(value).map_or_else(Vec::new, one)
}

fn kept_share(status: &Status, at: usize) -> Vec<Sample> {
    sifted(status, |sift| Some(sift.rehearsal.as_ref()?.kept_share?[at]))
}

fn modes(status: &Status) -> Vec<Sample> {
    let modes = |sift: &SiftStatus| {
        LiveMode::ALL.map(|mode| labelled("mode", mode.name().to_owned(), sift.mode == mode)).into()
    };
    status.sift.as_ref().map_or_else(Vec::new, modes)
}

const METRICS: &[Metric] = &[
    gauge("flashsift_build_info", "Always 1; the label has the version.", |_| {
        vec![labelled("version", env!("CARGO_PKG_VERSION").to_owned(), true)]
    }),
    gauge("flashsift_mounted_seconds", "Time since the mount began.", |s| {
        written(s, |writes| Some(writes.mounted_s))
    }),
    gauge("flashsift_files_in_ram", "Files that live in RAM.", |s| one(s.files_in_ram)),
    gauge("flashsift_ram_bytes", "RAM that files take.", |s| one(s.ram_bytes)),
    gauge("flashsift_ram_budget_bytes", "Limit of the RAM that files take.", |s| {
        one(s.budget_bytes)
    }),
    counter("flashsift_files_created_in_ram_total", "Files that were created in RAM.", |s| {
        one(s.born)
    }),
    counter(
        "flashsift_files_created_write_through_total",
        "Files that were created on flash.",
        |s| one(s.born_settled),
    ),
    counter(
        "flashsift_files_deleted_in_ram_total",
        "Files that were created and deleted in RAM, and never reached flash.",
        |s| one(s.never_written),
    ),
    counter("flashsift_files_written_back_total", "Files that were written back.", |s| {
        one(s.settled)
    }),
    counter("flashsift_written_back_bytes_total", "Bytes that write-back copied.", |s| {
        one(s.settled_bytes)
    }),
    counter(
        "flashsift_write_back_restarts_total",
        "Copies that were repeated because the file had changed meanwhile.",
        |s| one(s.restarts),
    ),
    gauge(
        "flashsift_failing_files",
        "Files that could not be written back when it was last tried.",
        |s| one(s.failing_files),
    ),
    gauge(
        "flashsift_read_only",
        "1: BACKING takes no changes at the moment.",
        |s| one(s.read_only),
    ),
    gauge(
        "flashsift_passthrough",
        "1: the kernel reads and writes files on flash without the daemon.",
        |s| one(s.passthrough),
    ),
    counter("flashsift_faults_total", "Requests that failed inside flashsift.", |s| one(s.faults)),
    counter(
        "flashsift_requested_bytes_total",
        "Bytes of the write requests of applications.",
        |s| written(s, |writes| Some(writes.requested_bytes)),
    ),
    counter(
        "flashsift_unseen_opens_total",
        "Opens for writing whose writes the kernel performs without the daemon.",
        |s| written(s, |writes| Some(writes.unseen_opens)),
    ),
    counter(
        "flashsift_ext4_bytes_total",
        "Estimate: bytes that plain ext4 would have written.",
        |s| written(s, |writes| Some(writes.ext4_bytes)),
    ),
    gauge(
        "flashsift_ext4_waiting_bytes",
        "Estimate: bytes that would be dirty in the page cache of plain ext4.",
        |s| written(s, |writes| Some(writes.ext4_waiting_bytes)),
    ),
    counter("flashsift_flash_bytes_total", "Bytes that reached flash through flashsift.", |s| {
        written(s, |writes| Some(writes.flash_bytes))
    }),
    gauge(
        "flashsift_flash_waiting_bytes",
        "Bytes in RAM, and dirty in BACKING's page cache.",
        |s| written(s, |writes| writes.flash_waiting_bytes),
    ),
    gauge(
        "flashsift_saved_bytes",
        "Bytes saved beyond plain ext4 if all that waits were written now; negative: more.",
        |s| written(s, |writes| writes.saved_bytes),
    ),
    counter("flashsift_syncs_total", "Syncs by applications.", |s| {
        written(s, |writes| Some(writes.syncs))
    }),
    counter(
        "flashsift_sync_ext4_bytes_total",
        "Estimate: the part of flashsift_ext4_bytes_total that syncs of applications forced.",
        |s| written(s, |writes| Some(writes.sync_ext4_bytes)),
    ),
    counter(
        "flashsift_sync_flash_bytes_total",
        "The part of flashsift_flash_bytes_total that syncs of applications forced.",
        |s| written(s, |writes| Some(writes.sync_flash_bytes)),
    ),
    counter(
        "flashsift_sync_flushes_total",
        "fsync, fdatasync and syncfs that flashsift issued for syncs of applications.",
        |s| written(s, |writes| Some(writes.sync_flushes)),
    ),
    counter(
        "flashsift_flushes_total",
        "All fsync, fdatasync and syncfs that flashsift issued.",
        |s| written(s, |writes| Some(writes.flushes)),
    ),
    counter(
        "flashsift_device_written_bytes_total",
        "Bytes that all programs wrote to BACKING's block device.",
        |s| {
            let device = s.writes.as_ref().and_then(|writes| writes.device.as_ref());
            let sample = device.map(|of| labelled("device", of.name.clone(), of.written_bytes));
            sample.into_iter().collect()
        },
    ),
    gauge("flashsift_sift_info", "Always 1; the label has the sifter and its parameters.", |s| {
        let sample = s.sift.as_ref().map(|of| labelled("sifter", of.sifter.clone(), true));
        sample.into_iter().collect()
    }),
    gauge("flashsift_sift_mode", "1 for the mode of new files, 0 for the others.", modes),
    gauge(
        "flashsift_sift_again_share",
        "Bytes fetched again, as a share of those of droppable files that ext4 would have written.",
        |s| sifted(s, |sift| Some(sift.again_share)),
    ),
    gauge("flashsift_sift_again_at_most", "The most of it: no file is dropped above.", |s| {
        sifted(s, |sift| Some(sift.again_at_most))
    }),
    counter(
        "flashsift_sift_refused_files_total",
        "Files that were written because drops had reached that limit.",
        |s| sifted(s, |sift| Some(sift.counts.refused.files)),
    ),
    counter("flashsift_sift_refused_bytes_total", "Bytes of these files.", |s| {
        sifted(s, |sift| Some(sift.counts.refused.bytes))
    }),
    gauge("flashsift_sift_budget_bytes", "Most RAM that the sifter's files take.", |s| {
        sifted(s, |sift| Some(sift.budget_bytes))
    }),
    gauge("flashsift_sift_held_files", "Files that the sifter has in RAM.", |s| {
        sifted(s, |sift| Some(sift.counts.held.files))
    }),
    gauge("flashsift_sift_held_bytes", "Bytes of files that the sifter has in RAM.", |s| {
        sifted(s, |sift| Some(sift.counts.held.bytes))
    }),
    counter("flashsift_sift_dropped_files_total", "Files that were dropped.", |s| {
        sifted(s, |sift| Some(sift.counts.dropped.files))
    }),
    counter("flashsift_sift_dropped_bytes_total", "Bytes of files that were dropped.", |s| {
        sifted(s, |sift| Some(sift.counts.dropped.bytes))
    }),
    counter(
        "flashsift_sift_created_again_files_total",
        "Dropped files whose names were created again.",
        |s| sifted(s, |sift| Some(sift.counts.created_again.files)),
    ),
    counter(
        "flashsift_sift_created_again_bytes_total",
        "Bytes of dropped files whose names were created again.",
        |s| sifted(s, |sift| Some(sift.counts.created_again.bytes)),
    ),
    counter(
        "flashsift_sift_written_files_total",
        "Files that moved from the sifter's RAM to flash.",
        |s| sifted(s, |sift| Some(sift.counts.written.files)),
    ),
    counter(
        "flashsift_sift_written_bytes_total",
        "Bytes of files that moved from the sifter's RAM to flash.",
        |s| sifted(s, |sift| Some(sift.counts.written.bytes)),
    ),
    counter(
        "flashsift_sift_died_files_total",
        "Files that applications deleted in the sifter's RAM.",
        |s| sifted(s, |sift| Some(sift.counts.died.files)),
    ),
    counter(
        "flashsift_sift_died_bytes_total",
        "Bytes of files that applications deleted in the sifter's RAM.",
        |s| sifted(s, |sift| Some(sift.counts.died.bytes)),
    ),
    gauge("flashsift_sift_rehearsal", "1: a dry run, which drops nothing.", |s| {
        sifted(s, |sift| Some(sift.rehearsal.is_some()))
    }),
    gauge("flashsift_sift_rehearsal_seconds", "Time since the dry run began.", |s| {
        sifted(s, |sift| Some(sift.rehearsal.as_ref()?.since_s))
    }),
    gauge(
        "flashsift_sift_rehearsal_stock_bytes",
        "Bytes of droppable files that reach flash without the sifter, since the dry run began.",
        |s| sifted(s, |sift| Some(sift.rehearsal.as_ref()?.stock_bytes)),
    ),
    gauge(
        "flashsift_sift_rehearsal_kept_bytes",
        "The part of them that the sifter would have kept from flash; negative: it writes more.",
        |s| sifted(s, |sift| Some(sift.rehearsal.as_ref()?.kept_bytes)),
    ),
    gauge(
        "flashsift_sift_rehearsal_kept_ratio",
        "Estimate of the share that the sifter would keep; absent until there is enough data.",
        |s| kept_share(s, 0),
    ),
    gauge(
        "flashsift_sift_rehearsal_kept_ratio_low",
        "Lower end of the 95 % interval of flashsift_sift_rehearsal_kept_ratio.",
        |s| kept_share(s, 1),
    ),
    gauge(
        "flashsift_sift_rehearsal_kept_ratio_high",
        "Upper end of the 95 % interval of flashsift_sift_rehearsal_kept_ratio.",
        |s| kept_share(s, 2),
    ),
    gauge(
        "flashsift_sift_rehearsal_fetched_again_bytes",
        "Bytes that would have been fetched again since the dry run began.",
        |s| sifted(s, |sift| Some(sift.rehearsal.as_ref()?.fetched_again_bytes)),
    ),
    gauge(
        "flashsift_sift_rehearsal_dropped_files",
        "Files that would have been dropped since the dry run began.",
        |s| sifted(s, |sift| Some(sift.rehearsal.as_ref()?.dropped)),
    ),
];

#[cfg(test)]
mod tests;
