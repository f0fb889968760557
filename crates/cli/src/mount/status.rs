//! The status of a mount in words.

use crate::size;
use flashsift_events::show;
use flashsift_files::sift::live::{FileBytes, LiveMode};
use flashsift_mount::{DelayedStatus, Failure, RehearsalStatus, SiftStatus, Status, Writes};
use std::path::Path;

/// The status, one screen.
pub(crate) fn in_words(mountpoint: &Path, backing: &Path, status: &Status) -> String {
    let files = |count| size::counted(count, "file");
    let on = match backing == mountpoint {
        true => "in place".to_owned(),
        false => format!("written back to {}", show::name(&backing.display().to_string())),
    };
    let since = status.writes.as_ref().map_or_else(String::new, |writes| {
        format!(", mounted for {}", size::duration(writes.mounted_s.saturating_mul(1_000_000)))
    });
    let mut text = format!("{}, {on}{since}\n", show::name(&mountpoint.display().to_string()));
    let mut line = |label: &str, value: String| push_line(&mut text, label, &value);
    let (used, budget) = (size::bytes(status.ram_bytes), size::bytes(status.budget_bytes));
    line("in RAM", format!("{}, {used} of {budget}", status.counted_new()));
    if let Some(allowed) = status.allowed_bytes {
        line("", format!("memory is short: at most {} for now", size::bytes(allowed)));
    }
    if status.waiting_files > 0 {
        let (waiting, bytes) = (files(status.waiting_files), size::bytes(status.waiting_bytes));
        line("waiting", format!("{bytes} of changes in RAM, of {waiting} on flash"));
    }
    let changed = status.files_in_ram + status.waiting_files;
    let new_in = |what: String| format!("now loses at most what is new in {what}, {used}");
    match (changed, status.counted_directories()) {
        (0, None) => line("power cut", "now loses nothing that was in RAM".to_owned()),
        (0, Some(directories)) => line("power cut", format!("now loses at most {directories}")),
        (changed, directories) => {
            line("power cut", new_in(files(changed)));
            if let Some(directories) = directories {
                line("", format!("and {directories}"));
            }
        }
    }
    if !status.foreground.is_empty() {
        line("foreground", status.foreground.clone());
    }
    line("deleted in RAM", files(status.never_written));
    line(
        "written back",
        format!("{}, {}", files(status.settled), size::bytes(status.settled_bytes)),
    );
    line("write-through", files(status.born_settled));
    line("passthrough", if status.passthrough { "yes" } else { "no" }.to_owned());
    if status.read_only {
        line(
            "READ-ONLY",
            "BACKING takes no changes: what is in RAM cannot be written back".to_owned(),
        );
    }
    if status.faults > 0 {
        line(
            "FAULTS",
            format!(
                "{} inside flashsift: please report them, the log has more",
                size::count(status.faults)
            ),
        );
    }
    if !status.failing.is_empty() {
        line("FAILING", format!("{} cannot be written back", status.counted_failing()));
        for Failure { path, step, error, .. } in &status.failures {
            line("", format!("{path}: {step}: {error}"));
        }
        let more = status.failing_files.saturating_sub(status.failures.len() as u64);
        if more > 0 {
            line("", format!("and {} more", size::count(more)));
        }
    }
    if let Some(delayed) = &status.delayed {
        line("delayed syncs", of_delayed(delayed));
        if delayed.changed_outside > 0 {
            let files = size::counted(delayed.changed_outside, "file");
            let what = "changed past this mount: its syncs are not delayed any more";
            line("CHANGED", format!("{files} {what}"));
        }
        if !delayed.failing.is_empty() {
            let why = &delayed.failing;
            line("FAILING", format!("an epoch cannot be written, and syncs wait: {why}"));
        }
        for pattern in &delayed.unused {
            line("UNUSED", format!("--delay-sync '{pattern}=…' has delayed no sync so far"));
        }
    }
    if let Some(sift) = &status.sift {
        text.push_str(&of_sifter(sift));
    }
    match &status.writes {
        Some(writes) => text.push_str(&of_writes(writes)),
        None => text.push_str("  writes         not counted by this daemon, which is older\n"),
    }
    text
}

/// Adds a line. Names in it are printed so that it stays one.
fn push_line(text: &mut String, label: &str, value: &str) {
    text.push_str(&format!("  {label:<15}{}\n", show::name(value)));
}

/// The loss by a crash now, of the files whose syncs are delayed.
fn of_delayed(delayed: &DelayedStatus) -> String {
    let epochs = size::counted(delayed.epochs, "epoch");
    if delayed.files == 0 {
        return format!("a crash now loses nothing; {epochs} on flash");
    }
    let since = delayed.oldest_sync_s.map_or_else(String::new, |s| {
        format!(", synced within the last {}", size::duration(s.saturating_mul(1_000_000)))
    });
    let (files, bytes) = (size::counted(delayed.files, "file"), size::bytes(delayed.bytes));
    format!("a crash now loses changes of {files}, {bytes}{since}; {epochs} on flash")
}

/// The sifter, and what it has done or would have done.
fn of_sifter(sift: &SiftStatus) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: String| push_line(&mut text, label, &value);
    let amount =
        |of: FileBytes| format!("{}, {}", size::counted(of.files, "file"), size::bytes(of.bytes));
    let counts = &sift.counts;
    let mode = match (sift.mode, &sift.rehearsal) {
        (_, Some(_)) => "dry run: nothing is dropped".to_owned(),
        (LiveMode::Sift, None) => format!("on, in up to {} of RAM", size::bytes(sift.budget_bytes)),
        (LiveMode::Keep, None) => "off".to_owned(),
        (LiveMode::Plain, None) => "off: new files go to flash at once".to_owned(),
    };
    line("sifter", format!("{}, {mode}", sift.sifter));
    for pattern in &sift.unused {
        line("UNUSED", format!("the pattern '{pattern}' has matched no file so far"));
    }
    if counts.dropped.files > 0 || sift.mode == LiveMode::Sift {
        line("  dropped", amount(counts.dropped));
        line("  created anew", amount(counts.created_again));
        line("  came back", came_back(sift));
        line("  written", amount(counts.written));
        if counts.refused.files > 0 {
            line("  refused", format!("{}, written in place of a drop", amount(counts.refused)));
        }
        line("  held", amount(counts.held));
    }
    if let Some(seen) = &sift.rehearsal {
        for sentence in rehearsed(seen) {
            line("", sentence);
        }
    }
    text
}

/// The share that came back, beside the most of it.
pub(super) fn came_back(sift: &SiftStatus) -> String {
    let [share, most] =
        [sift.again_share, sift.again_at_most].map(|of| (1000.0 * of).round() / 10.0);
    format!("{share} % of the bytes that ext4 would write, at most {most} %")
}

/// The findings of a rehearsal, in lines.
fn rehearsed(seen: &RehearsalStatus) -> Vec<String> {
    let time = size::duration(seen.since_s.saturating_mul(1_000_000));
    if seen.stock_bytes == 0 {
        return vec![format!("in {time} no file was created that it may drop")];
    }
    let share = |part: f64| format!("{:.0}", 100.0 * part);
    let kept = seen.kept_bytes as f64 / seen.stock_bytes as f64;
    let halves = match seen.kept_share {
        Some([_, first, second]) => format!("by halves {} and {} %", share(first), share(second)),
        None => "too early to confirm".to_owned(),
    };
    vec![
        format!(
            "in {time} it would have kept {} of {}",
            signed(seen.kept_bytes),
            size::bytes(seen.stock_bytes),
        ),
        format!("of cache files from flash ({} %, {halves}),", share(kept)),
        format!("at {} fetched again", size::bytes(seen.fetched_again_bytes)),
    ]
}

/// A row of the table of file data.
struct Row {
    label: &'static str,
    written: Option<i64>,
    synced: Option<u64>,
    /// `Some(None)`: unknown.
    waiting: Option<Option<u64>>,
}

/// A table of file data, and the flushes below it.
fn of_writes(writes: &Writes) -> String {
    let row = |label, bytes| {
        let written = Some(i64::try_from(bytes).unwrap_or(i64::MAX));
        Row { label, written, synced: None, waiting: None }
    };
    let rows = [
        row("requested by applications", writes.requested_bytes),
        Row {
            synced: Some(writes.sync_ext4_bytes),
            waiting: Some(Some(writes.ext4_waiting_bytes)),
            ..row("plain ext4, estimate", writes.ext4_bytes)
        },
        Row {
            synced: Some(writes.sync_flash_bytes),
            waiting: Some(writes.flash_waiting_bytes),
            ..row("through flashsift", writes.flash_bytes)
        },
        Row { written: writes.saved_bytes, ..row("saved beyond ext4", 0) },
    ];
    let day = if writes.per_day(0).is_some() { "a day" } else { "" };
    let mut text = String::new();
    let mut columns = |label: &str, cells: [&str; 4]| {
        let [written, synced, waiting, day] = cells;
        let line = format!("  {label:<27}{written:>11}{synced:>11}{waiting:>11}{day:>11}");
        text.push_str(line.trim_end());
        text.push('\n');
    };
    columns("file data only", ["written", "synced", "waiting", day]);
    let unknown = || "unknown".to_owned();
    for Row { label, written, synced, waiting } in rows {
        let per_day = match written.map(|bytes| writes.per_day(bytes)) {
            Some(bytes) => bytes.map_or_else(String::new, signed),
            None => unknown(),
        };
        let waiting = waiting.map(|bytes| bytes.map_or_else(unknown, size::bytes));
        columns(
            &format!("  {label}"),
            [
                &written.map_or_else(unknown, signed),
                &synced.map_or_else(String::new, size::bytes),
                &waiting.unwrap_or_default(),
                &per_day,
            ],
        );
    }
    let mut line = |label: &str, value: String| push_line(&mut text, label, &value);
    if writes.unseen_opens > 0 {
        let opens = size::counted(writes.unseen_opens, "open");
        line("not counted", format!("writes of {opens} with passthrough; ext4 writes the same"));
    }
    if writes.ext4_early_bytes > 0 {
        let early = size::bytes(writes.ext4_early_bytes);
        line("estimate", format!("{early} too early: more was dirty than it has memory for"));
    }
    line(
        "flushes",
        format!(
            "{} for {} of applications, {} in all",
            size::count(writes.sync_flushes),
            size::counted(writes.syncs, "sync"),
            size::count(writes.flushes)
        ),
    );
    line(
        "whole device",
        match &writes.device {
            Some(device) => format!(
                "{} written to {}, by all programs",
                size::bytes(device.written_bytes),
                device.name
            ),
            None => unknown(),
        },
    );
    text
}

/// A number of bytes that may be negative.
fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "−" } else { "" };
    format!("{sign}{}", size::bytes(bytes.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_mount::Device;

    fn writes() -> Writes {
        Writes {
            mounted_s: 1200,
            requested_bytes: 5 << 20,
            ext4_bytes: 3 << 20,
            ext4_waiting_bytes: 64 << 10,
            flash_bytes: 1 << 20,
            flash_waiting_bytes: Some(512 << 10),
            saved_bytes: Some((2 << 20) - (448 << 10)),
            syncs: 3,
            sync_ext4_bytes: 1 << 20,
            sync_flash_bytes: 1 << 20,
            sync_flushes: 1,
            flushes: 4,
            ..Writes::default()
        }
    }

    #[test]
    fn a_status_fits_a_terminal_and_is_aligned() {
        let device = Some(Device { name: "sda1".to_owned(), written_bytes: 7 << 20 });
        let status = Status {
            files_in_ram: 2,
            budget_bytes: 256 << 20,
            writes: Some(Writes { device, unseen_opens: 2, ..writes() }),
            ..Status::default()
        };
        let text = in_words(Path::new("/a"), Path::new("/a"), &status);
        let wanted = "\
/a, in place, mounted for 20 min 0 s
  in RAM         2 files, 0 B of 256 MiB
  power cut      now loses at most what is new in 2 files, 0 B
  deleted in RAM 0 files
  written back   0 files, 0 B
  write-through  0 files
  passthrough    no
  file data only                 written     synced    waiting
    requested by applications      5 MiB
    plain ext4, estimate           3 MiB      1 MiB     64 KiB
    through flashsift              1 MiB      1 MiB    512 KiB
    saved beyond ext4            1.6 MiB
  not counted    writes of 2 opens with passthrough; ext4 writes the same
  flushes        1 for 3 syncs of applications, 4 in all
  whole device   7 MiB written to sda1, by all programs
";
        assert_eq!(text, wanted);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    /// Where only new directories were in RAM, the status said that a power cut loses nothing.
    // Promises: Mount 19, Mount 86.
    #[test]
    fn directories_are_counted_beside_files() {
        let lines = |status: &Status| {
            let text = in_words(Path::new("/a"), Path::new("/a"), status);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            let wanted = ["in RAM ", "power cut ", "FAILING ", "and 2 "];
            let is_wanted = |line: &&str| wanted.iter().any(|it| line.trim_start().starts_with(it));
            text.lines().filter(is_wanted).map(|line| line[17..].to_owned()).collect::<Vec<_>>()
        };
        let mut status = Status {
            directories_in_ram: 2,
            budget_bytes: 1 << 20,
            failing: "/a: making the directory: File exists".to_owned(),
            failing_files: 1,
            failing_directories: 1,
            ..Status::default()
        };
        let wanted = [
            "2 directories, 0 B of 1 MiB",
            "now loses at most 2 directories",
            "1 directory cannot be written back",
        ];
        assert_eq!(lines(&status), wanted);
        (status.files_in_ram, status.waiting_files, status.failing_files) = (1, 3, 3);
        let wanted = [
            "1 file and 2 directories, 0 B of 1 MiB",
            "now loses at most what is new in 4 files, 0 B",
            "and 2 directories",
            "2 files and 1 directory cannot be written back",
        ];
        assert_eq!(lines(&status), wanted);
    }

    // Promises: Mount 57.
    #[test]
    fn figures_per_day_come_after_an_hour_and_what_is_unknown_is_not_zero() {
        let loss = Writes { mounted_s: 43_200, saved_bytes: Some(-(1 << 20)), ..writes() };
        let text = of_writes(&loss);
        assert!(text.contains("synced    waiting      a day\n"), "{text}");
        let loses = format!("    saved beyond ext4             −1 MiB{:>33}\n", "−2 MiB");
        assert!(text.contains(&loses), "{text}");
        let unknown = Writes { flash_waiting_bytes: None, saved_bytes: None, ..loss };
        let text = of_writes(&unknown);
        assert!(text.contains("  1 MiB      1 MiB    unknown      2 MiB\n"), "{text}");
        let saved = format!("    saved beyond ext4            unknown{:>33}\n", "unknown");
        assert!(text.contains(&saved), "{text}");
        assert!(text.contains("whole device   unknown\n"), "{text}");
    }
}
