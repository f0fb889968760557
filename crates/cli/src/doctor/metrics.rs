//! The examination in the text format of Prometheus, as node_exporter's textfile collector reads
//! it.

use super::Outcome;
use anyhow::Context;
use std::{fmt::Write as _, fs, io::Write as _, path::Path};

/// The name of a label, and its values with theirs.
type Samples = (&'static str, Vec<(String, f64)>);

struct Metric {
    name: &'static str,
    help: &'static str,
    samples: fn(&Outcome) -> Samples,
}

const GB: f64 = 1e9;

/// All of them are gauges. A figure that is unknown is left out.
const METRICS: &[Metric] = &[
    Metric {
        name: "flashsift_doctor_duration_seconds",
        help: "Time that was watched.",
        samples: |outcome| {
            let seconds = outcome.examination.duration_us as f64 / 1e6;
            ("", vec![(String::new(), seconds)])
        },
    },
    Metric {
        name: "flashsift_doctor_disk_bytes_per_day",
        help: "Bytes that the disk writes in a day at the rate of the watch.",
        samples: |outcome| {
            let one = |life: &super::DiskLife| (life.disk.clone(), life.gb_per_day * GB);
            ("disk", outcome.lives.iter().map(one).collect())
        },
    },
    Metric {
        name: "flashsift_doctor_budget_bytes_per_day",
        help: "Bytes that the disk may take in a day to last for the years of --years.",
        samples: |outcome| {
            let one = |life: &super::DiskLife| {
                Some((life.disk.clone(), life.budget.as_ref()?.gb_per_day * GB))
            };
            ("disk", outcome.lives.iter().filter_map(one).collect())
        },
    },
    Metric {
        name: "flashsift_doctor_end_timestamp_seconds",
        help: "Time at which the flash is used up at this rate, in seconds since 1970.",
        samples: |outcome| {
            let one = |life: &super::DiskLife| {
                Some((life.disk.clone(), life.budget.as_ref()?.ends_s? as f64))
            };
            ("disk", outcome.lives.iter().filter_map(one).collect())
        },
    },
    Metric {
        name: "flashsift_doctor_writer_bytes_per_day",
        help: "Bytes that reach flash for a service or program in a day, journal included.",
        samples: |outcome| {
            let writers = outcome.examination.writers.iter();
            let one = |writer: &flashsift_study::doctor::Writer| {
                (writer.name.clone(), writer.bytes_per_hour * 24.0)
            };
            ("writer", writers.map(one).collect())
        },
    },
    Metric {
        name: "flashsift_doctor_remedy_saving_bytes_per_day",
        help: "Bytes that a remedy would save in a day, estimated.",
        samples: |outcome| {
            let remedies = outcome.examination.remedies.iter();
            let one = |remedy: &flashsift_study::doctor::Remedy| {
                Some((remedy.name.clone(), remedy.saving?.bytes_a_day))
            };
            ("remedy", remedies.filter_map(one).collect())
        },
    },
];

/// Writes the metrics. Readers see the file from before, or the whole new one.
pub(super) fn write(path: &Path, outcome: &Outcome) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let shown = || path.display().to_string();
    let mut file = tempfile::Builder::new()
        .prefix(".flashsift-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .with_context(shown)?;
    file.write_all(text(outcome).as_bytes()).with_context(shown)?;
    let file = file.into_temp_path();
    fs::rename(&file, path).with_context(shown)?;
    // It has its name.
    let _ = file.keep();
    Ok(())
}

fn text(outcome: &Outcome) -> String {
    let mut text = String::new();
    for Metric { name, help, samples } in METRICS {
        let (label, samples) = samples(outcome);
        if !samples.is_empty() {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        }
        for (of, value) in samples {
            let quoted = of.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let _ = match label {
                "" => writeln!(text, "{name} {value}"),
                label => writeln!(text, "{name}{{{label}=\"{quoted}\"}} {value}"),
            };
        }
    }
    text
}
