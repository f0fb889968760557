//! The examination as text, 80 columns wide.

use super::{Outcome, endurance::DiskLife, kept::Proof, prove};
use crate::{describe::text as describe, size, table, text};
use flashsift_pages::device::lifetime::scaling_warning;
use flashsift_study::doctor::{Disk, Remedy, Saving, Writer};

const WIDTH: usize = 80;

/// Reads for nothing below this are not worth a sentence.
const WASTE_MIN_BYTES: u64 = 1 << 20;

/// Sections of the description that a person sees here; the page and JSON have all.
const SECTIONS: [&str; 3] = ["fate", "sqlite", "sync_distance"];

pub(super) fn render(outcome: &Outcome, color: bool) -> String {
    let examination = &outcome.examination;
    let bold = |text: &str| if color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
    let mut out = String::new();
    for sentence in sentences(outcome) {
        out += &text::labelled("", 0, &sentence, WIDTH).replace('\u{a0}', " ");
    }
    if !examination.writers.is_empty() {
        out += &format!("\n{}\n{}", bold("Writers"), writers(&examination.writers));
    }
    out += &format!("\n{}\n", bold("Remedies"));
    if examination.remedies.iter().any(|remedy| remedy.saving.is_some()) {
        let what = "A saving is one of the bytes of all programs, with the journal and metadata: a \
                    sync of one program also commits the changes of others.";
        out += &text::labelled("", 2, what, WIDTH);
    }
    for remedy in &examination.remedies {
        let proof = outcome.proofs.iter().find(|proof| proof.remedy == remedy.name);
        out += &remedy_text(remedy, proof);
    }
    if outcome.is_kept && !examination.remedies.is_empty() {
        let how = "flashsift doctor --apply N shows the steps of a remedy, with --yes it performs \
                   them; --undo N takes them back, --prove N measures the saving.";
        out += &text::labelled("", 2, how, WIDTH);
    }
    if examination.remedies.is_empty() {
        out += "  Nothing that is known here saves 0.5 % of the writes or more.\n";
    }
    let found = examination.description.sections.iter();
    let shown = found.filter(|section| SECTIONS.contains(&section.spec.name));
    let sentences: Vec<String> = shown
        .filter_map(|section| section.found.as_ref().ok()?.sentence.as_ref())
        .map(|sentence| describe::render_sentence(sentence))
        .collect();
    if !sentences.is_empty() {
        out += &format!("\n{}\n", bold("Kinds of writes"));
        out += &text::labelled("", 2, &sentences.join(" "), WIDTH).replace('\u{a0}', " ");
    }
    out
}

/// The sentences at the top.
pub(super) fn sentences(outcome: &Outcome) -> Vec<String> {
    let Outcome { facts, examination, lives, .. } = outcome;
    let duration_us = examination.duration_us;
    let mut sentences = Vec::new();
    for disk in &facts.disks {
        sentences.push(disk_sentence(disk, duration_us));
    }
    sentences.extend(lives.iter().filter_map(DiskLife::sentence));
    let device_bytes: u64 = facts.disks.iter().map(|disk| disk.read_bytes).sum();
    if let Some(used_bytes) = examination.read_bytes
        && device_bytes > used_bytes
        && device_bytes - used_bytes > WASTE_MIN_BYTES
    {
        sentences.push(format!(
            "The disks read {}, and programs read at most {} of it: at least {} was read ahead \
             for nothing, or by programs that were not watched.",
            text::unbroken(&size::bytes(device_bytes)),
            text::unbroken(&size::bytes(used_bytes)),
            text::unbroken(&size::bytes(device_bytes - used_bytes)),
        ));
    }
    let written = &examination.written;
    if written.all() > 0 {
        let share = |bytes: u64| size::share(bytes as f64 / written.all() as f64);
        sentences.push(format!(
            "By the models of the kernel's write-back, what programs wrote in {} becomes {} on \
             flash: {} file data, {} journal, {} other metadata.",
            text::unbroken(&size::duration(duration_us)),
            text::unbroken(&size::bytes(written.all())),
            text::unbroken(&share(written.data_bytes)),
            text::unbroken(&share(written.journal_bytes)),
            text::unbroken(&share(written.metadata_bytes)),
        ));
    } else {
        sentences.push("No program wrote to the watched file systems.".to_owned());
    }
    if let [_, _, ..] = &*examination.by_file_system {
        let all: u64 = examination.by_file_system.iter().map(|one| one.written_bytes).sum();
        let parts: Vec<_> = examination
            .by_file_system
            .iter()
            .map(|one| {
                let share = size::share(one.written_bytes as f64 / all as f64);
                format!("{} has {}", one.mount, text::unbroken(&share))
            })
            .collect();
        sentences.push(format!("Of what files are written, {}.", parts.join(", ")));
    }
    if let Some(writer) = examination.writers.first() {
        let most = most_to(writer).first().map_or(String::new(), |(bytes_per_hour, name)| {
            format!(", {} of it to {name}", share_of(*bytes_per_hour, writer))
        });
        sentences.push(format!(
            "{} writes most: {} an hour{most}.",
            writer.name,
            text::unbroken(&size::bytes(writer.bytes_per_hour as u64))
        ));
    }
    for life in lives {
        // The share of the budget that each writer takes.
        let Some(budget) = life.budget.as_ref().filter(|_| facts.disks.len() == 1) else {
            continue;
        };
        let share = |writer: &Writer| {
            let share = writer.bytes_per_hour * 24.0 / 1e9 / budget.gb_per_day;
            format!("{} {}", writer.name, text::unbroken(&size::share(share)))
        };
        let shares: Vec<_> = examination.writers.iter().map(share).collect();
        if !shares.is_empty() {
            sentences.push(format!("Of the bytes that it may take: {}.", shares.join(", ")));
        }
    }
    if let Some(remedy) = examination.remedies.iter().find(|one| one.unconfirmed.is_none()) {
        // A program's own bytes stand beside it, and its syncs also write the journal of others.
        let judged_us = examination.judged_until_us.unwrap_or(duration_us).max(1);
        let all = size::bytes((written.all() as f64 * 86_400e6 / judged_us as f64) as u64);
        let saves = remedy.saving.as_ref().map_or_else(
            || "its saving is not estimated".to_owned(),
            |saving| {
                let all = text::unbroken(&all);
                let saved = saved(saving);
                format!("of the {all} a day that all programs write, journal included, {saved}")
            },
        );
        sentences.push(format!("The remedy that saves most: {}; {saves}.", remedy.title));
    }
    if let Some(until_us) = examination.judged_until_us {
        sentences.push(format!(
            "Programs and remedies are judged by the first {}: there were more events than \
             --trace-memory holds.",
            text::unbroken(&size::duration(until_us))
        ));
    }
    let scales = !facts.disks.is_empty() || !examination.remedies.is_empty();
    sentences.extend(warning(duration_us, lives).filter(|_| scales).map(str::to_owned));
    sentences
}

/// The warning about bytes a day, unless a sentence on years has given it.
fn warning(duration_us: u64, lives: &[DiskLife]) -> Option<&'static str> {
    let said =
        |warning: &&str| lives.iter().filter_map(DiskLife::sentence).any(|s| s.ends_with(warning));
    scaling_warning(duration_us).filter(|warning| !said(warning))
}

fn disk_sentence(disk: &Disk, duration_us: u64) -> String {
    let per_day = disk.written_bytes as f64 * 86_400e6 / duration_us.max(1) as f64;
    let model = disk.model.as_ref().map_or(String::new(), |model| format!(", {model}"));
    let capacity = text::unbroken(&size::bytes(disk.capacity_bytes));
    let wear = disk.wear.as_ref().map_or(String::new(), |wear| format!("; {wear}"));
    format!(
        "{} ({capacity}{model}) wrote {}, {} a day at this rate{wear}.",
        disk.name,
        text::unbroken(&size::bytes(disk.written_bytes)),
        text::unbroken(&size::bytes(per_day as u64)),
    )
}

/// Share of what a program writes.
fn share_of(bytes_per_hour: f64, writer: &Writer) -> String {
    text::unbroken(&size::share(bytes_per_hour / writer.bytes_per_hour))
}

/// The places that a writer writes most to, with bytes an hour: a directory where one holds more
/// than any file.
fn most_to(writer: &Writer) -> Vec<(f64, String)> {
    let directory = writer.directory.iter().map(|directory| {
        let files = size::counted(directory.files, "file");
        (directory.bytes_per_hour, format!("{}/ ({files})", directory.name))
    });
    let files = writer.files.iter().map(|file| (file.bytes_per_hour, file.name.to_string()));
    directory.chain(files).take(3).collect()
}

fn writers(writers: &[Writer]) -> String {
    let mut rows = vec![
        ["program", "an hour", "journal", "by fsync", "fsyncs", "most to", "remedy"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for writer in writers {
        for (n, (bytes_per_hour, place)) in most_to(writer).into_iter().enumerate() {
            let first = n == 0;
            let only = |text: String| if first { text } else { String::new() };
            rows.push(vec![
                only(writer.name.clone()),
                match first {
                    true => size::bytes(writer.bytes_per_hour as u64),
                    false => String::new(),
                },
                only(size::share(
                    writer.file_system_bytes as f64
                        / (writer.reached_bytes + writer.file_system_bytes) as f64,
                )),
                only(size::share(writer.synced_share)),
                only(size::count(writer.syncs)),
                format!("{} {place}", size::share(bytes_per_hour / writer.bytes_per_hour)),
                only(writer.remedies.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
            ]);
        }
    }
    table::fitted(rows, &[0, 5, 6], WIDTH)
}

fn remedy_text(remedy: &Remedy, proof: Option<&Proof>) -> String {
    let number = format!("{:>3}. ", remedy.number);
    let saves = remedy.saving.as_ref().map_or_else(
        || "its saving is not estimated".to_owned(),
        |saving| format!("saves {}", saved(saving)),
    );
    let mut out = text::labelled(&number, 5, &format!("{}: {saves}", remedy.title), WIDTH);
    out += &text::labelled("     why    ", 12, &remedy.evidence, WIDTH);
    if let Some(reason) = &remedy.unconfirmed {
        out += &text::labelled("     but    ", 12, &format!("not confirmed: {reason}"), WIDTH);
    }
    out += &text::labelled("     price  ", 12, &remedy.price, WIDTH);
    if let Some(proof) = proof {
        let measured = format!("{} when it was measured here", prove::measured_in_words(proof));
        out += &text::labelled("     saved  ", 12, &measured, WIDTH);
    }
    let kinds = [("do", &remedy.commands), ("keep", &remedy.lasting), ("undo", &remedy.undo)];
    for (label, commands) in kinds {
        for (n, command) in commands.iter().enumerate() {
            // Commands are not wrapped: they are to be copied.
            let label = if n == 0 { label } else { "" };
            out += &format!("     {label:<6} {command}\n");
        }
    }
    out.replace('\u{a0}', " ")
}

/// The saving of a remedy, with those of both halves of the time.
pub(super) fn saved(saving: &Saving) -> String {
    let bytes = |bytes: f64| match bytes < 0.0 {
        true => format!("−{}", size::bytes((-bytes) as u64)),
        false => size::bytes(bytes as u64),
    };
    let Saving { bytes_a_day, share, first_half_share: first, second_half_share: second } = *saving;
    let halves = size::halves([first, second]);
    let text = format!("{} a day ({}; {halves})", bytes(bytes_a_day), size::share(share));
    text::unbroken(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_pages::device::lifetime::{GUESS, TOO_SHORT};

    /// A watch of two seconds gave savings of gibibytes a day without a warning. A scaling of less
    /// than an hour is a guess, and one sentence says so; one of less than a minute is not even
    /// that.
    #[test]
    fn a_short_watch_is_called_a_guess_once() {
        const MINUTE_US: u64 = 60_000_000;
        let said = |duration_us| warning(duration_us, &[]);
        assert_eq!(
            [MINUTE_US - 1, MINUTE_US, 60 * MINUTE_US].map(said),
            [Some(TOO_SHORT), Some(GUESS), None]
        );
        let disk = Disk { capacity_bytes: 1 << 36, written_bytes: 1 << 30, ..Disk::default() };
        let flash = crate::doctor::endurance::of_device("ufs-3.1").unwrap();
        for duration_us in [2_000_000, 2 * MINUTE_US] {
            let life = DiskLife::new(&disk, duration_us, Some(flash), None);
            assert!(life.sentence().unwrap().ends_with(said(duration_us).unwrap()));
            assert_eq!(warning(duration_us, &[life]), None, "the years say it");
            let life = DiskLife::new(&disk, duration_us, None, None);
            assert_eq!(warning(duration_us, &[life]), said(duration_us));
        }
    }
}
