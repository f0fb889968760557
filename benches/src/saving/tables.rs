//! The tables of `--saving`.

use super::{
    Results,
    bed::{FileSystem, Measured, Side, WritesShown},
};
use crate::Report;

fn kib(bytes: f64) -> String {
    format!("{:.0}", bytes / 1024.0)
}

fn written(measured: &Measured) -> f64 {
    measured.written_bytes as f64
}

fn cell(value: Option<String>) -> String {
    value.unwrap_or_else(|| "–".to_owned())
}

/// Rows with and without flashsift.
pub(super) fn compare(
    report: &mut Report,
    results: &[Results],
    file_system: FileSystem,
    quick: bool,
) {
    let name = file_system.name();
    report.line(&format!(
        "## On {name}\n\nA ratio above the required one is bold.\n\n\
         | row | flashsift, KiB | {name}, KiB | ratio | required | bound, KiB | flushes \
         | {name}'s | ratios of the rounds |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---|"
    ));
    for result in results {
        let (ours, plain) = (result.get(Side::Flashsift), result.get(Side::Plain));
        let mut ratios: Vec<f64> =
            ours.iter().zip(plain).map(|(a, b)| written(a) / written(b)).collect();
        let each: Vec<_> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let ratio = crate::median_of(&mut ratios);
        let required = match quick || result.row.required.is_infinite() {
            true => "–".to_owned(),
            false => result.row.required.to_string(),
        };
        let bound = result.get(Side::Recorded).first().and_then(|measured| measured.bound_bytes);
        let flushes = |side| {
            cell(result.median(side, |measured| measured.flushes as f64).map(|n| n.to_string()))
        };
        let bytes = |side| cell(result.median(side, written).map(kib));
        report.line(&format!(
            "| {}: {} | {} | {} | {} | {required} | {} | {} | {} | {} |",
            result.row.name,
            result.row.what,
            bytes(Side::Flashsift),
            bytes(Side::Plain),
            cell(ratio.map(|ratio| match ratio > result.row.required && !quick {
                true => format!("**{ratio:.2}**"),
                false => format!("{ratio:.2}"),
            })),
            cell(bound.map(|bytes| kib(bytes as f64))),
            flushes(Side::Flashsift),
            flushes(Side::Plain),
            each.join(" ")
        ));
    }
    report.line("");
}

/// The status of a mount beside the device.
pub(super) fn status(report: &mut Report, results: &[Results], file_system: FileSystem) {
    let name = file_system.name();
    let shown = |result: &Results, side, value: fn(&WritesShown) -> u64| {
        let mut values: Vec<f64> = result
            .get(side)
            .iter()
            .filter_map(|measured| measured.status.as_ref())
            .map(|status| value(status) as f64)
            .collect();
        let unseen = |measured: &Measured| measured.status.is_some_and(|status| status.unseen);
        let at_least = if result.get(side).iter().any(unseen) { "≥ " } else { "" };
        crate::median_of(&mut values).map(|bytes| format!("{at_least}{}", kib(bytes)))
    };
    report.line(&format!(
        "## The status beside the device, on {name}\n\nKiB of file data by `flashsift status` \
         before the unmount, with data that still waited, beside KiB at the device after it. Plain \
         {name} is estimated from the events of the mount that records, which sees every write. \
         The status counts pages of file data alone; the device also counts names, attributes and \
         the journal. ≥: the kernel performed writes that the daemon does not see.\n\n\
         | row | plain {name}: estimate | device | flashsift: status | device |\n\
         |---|---:|---:|---:|---:|"
    ));
    for result in results {
        let device = |side| cell(result.median(side, written).map(kib));
        report.line(&format!(
            "| {} | {} | {} | {} | {} |",
            result.row.name,
            cell(shown(result, Side::Recorded, |status| status.ext4_bytes)),
            device(Side::Plain),
            cell(shown(result, Side::Flashsift, |status| status.flash_bytes)),
            device(Side::Flashsift),
        ));
    }
    report.line("");
}

/// Cost of the daemon.
pub(super) fn daemon(report: &mut Report, results: &[Results]) {
    report.line(
        "## The daemon\n\nCPU time of the daemon (user and system) in percent of one core, from \
         the mount to the end of the row, and its peak resident memory. Required while browsing: \
         at most 1 %.\n\n| row | CPU, % | peak, MiB |\n|---|---:|---:|",
    );
    for result in results {
        let percent = result.median(Side::Flashsift, |m| m.daemon_percent.unwrap_or_default());
        let peak = result.median(Side::Flashsift, |m| m.daemon_peak_bytes.unwrap_or(0) as f64);
        report.line(&format!(
            "| {} | {} | {} |",
            result.row.name,
            cell(percent.map(|percent| format!("{percent:.2}"))),
            cell(peak.map(|bytes| format!("{:.1}", bytes / f64::from(1 << 20))))
        ));
    }
    report.line("");
}

/// Settings, XFS and other layers, beside plain ext4 and flashsift.
pub(super) fn knobs(report: &mut Report, results: &[Results]) {
    let sides = Side::KNOBS;
    let measured = |side: &Side| results.iter().any(|result| !result.get(*side).is_empty());
    for side in Side::KNOBS {
        if let Some(why) = side.cannot_run() {
            report.line(&format!("SKIPPED {}: {why}.\n", side.name()));
        }
    }
    let sides: Vec<Side> = [Side::Flashsift, Side::Plain]
        .into_iter()
        .chain(sides.into_iter().filter(measured))
        .collect();
    if sides.len() == 2 {
        return;
    }
    let names: Vec<_> = sides.iter().map(|side| side.name()).collect();
    report.line(&format!(
        "## Beside settings, XFS and other layers\n\nKiB written and, in brackets, flush requests. \
         These sides ran at the same time as the first round, except those that write back after \
         300 s. `vm.dirty_expire_centisecs` and XFS's `xfssyncd_centisecs` are settings of the \
         whole machine (the bench restores them), so those sides ran alone. `without` is ext4 with \
         default options. The tmpfs is copied back once, at the end, as \
         profile-sync-daemon does at logout; a copy every hour writes more.\n\n| row | {} \
         |\n|---|{}",
        names.join(" | "),
        "---:|".repeat(sides.len())
    ));
    for result in results.iter().filter(|result| !result.row.knobs.is_empty()) {
        let cells: Vec<_> = sides
            .iter()
            .map(|side| {
                let flushes = result.median(*side, |measured| measured.flushes as f64);
                let bytes = result.median(*side, written).map(kib);
                cell(bytes.zip(flushes).map(|(bytes, flushes)| format!("{bytes} ({flushes})")))
            })
            .collect();
        report.line(&format!("| {} | {} |", result.row.name, cells.join(" | ")));
    }
    report.line("\n| | loses at a power cut |\n|---|---|");
    for side in sides {
        report.line(&format!("| {} | {} |", side.name(), side.loses()));
    }
    report.line("");
}
