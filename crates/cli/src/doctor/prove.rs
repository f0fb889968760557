//! Measures what a remedy of the last report saves: by a replay on file systems in memory, where
//! only the kernel has another setting; else by a second watch, after it was applied.

use super::{
    Args, Outcome, apply,
    kept::{self, Proof, Remedy, Report},
    text::saved,
};
use crate::{records, size, text, tune};
use anyhow::Context;
use flashsift_host::settings::SettingsMachine;
use flashsift_pages::device::lifetime::{TOO_SHORT_BELOW_US, scaling_warning};
use flashsift_study::doctor::RemedyStep;
use std::{
    io::Write,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// A remedy that is to be proved.
pub(super) struct Wanted {
    report: Report,
    number: usize,
}

impl Wanted {
    /// Finds the remedy, and checks that it is applied where a watch proves it.
    pub(super) fn new(machine: &SettingsMachine, name: &str, args: &Args) -> anyhow::Result<Self> {
        let report = Report::read(&args.last_report)?;
        let remedy = report.remedy(name)?;
        let (number, is_setting) = (remedy.number, kernel_settings(remedy).is_some());
        anyhow::ensure!(
            is_setting
                || apply::is_for_a_person(remedy)
                || apply::is_applied(machine, &remedy.name)?,
            "no replay shows `{}`: its saving is measured by a watch after it was applied. Apply \
             it (sudo flashsift doctor --apply {number} --yes), use the machine as before, and \
             prove it then",
            remedy.title,
        );
        Ok(Self { report, number })
    }

    fn remedy(&self) -> anyhow::Result<&Remedy> {
        self.report.remedy(&self.number.to_string())
    }

    /// Proves it by a replay of a new recording, if that can show it.
    pub(super) fn replay(&self, machine: &SettingsMachine, args: &Args) -> anyhow::Result<bool> {
        let remedy = self.remedy()?;
        let Some((set, on)) = kernel_settings(remedy) else { return Ok(false) };
        let on = args.paths.first().map_or(Path::new(on), |path| path);
        let proof = tune::prove_writeback(machine, set, on, args.time)?;
        let ratio = proof.ratio.context("nothing was written, so nothing can be compared")?;
        let mut found = self.proof("replay", 1.0 - ratio.value)?;
        found.half_width = ratio.half_width;
        self.finish(&found, &proof.table, args)?;
        Ok(true)
    }

    /// Proves it by a watch.
    pub(super) fn watched(&self, after: &Outcome, args: &Args) -> anyhow::Result<()> {
        let duration_us = after.examination.duration_us;
        let a_day = |bytes: u64, us: u64| bytes as f64 * 86_400e6 / us.max(1) as f64;
        let judged_us = after.examination.judged_until_us.unwrap_or(duration_us);
        let models = [self.report.bytes_a_day(), a_day(after.examination.written.all(), judged_us)];
        let is_same = |name: &str| self.report.disks.iter().any(|disk| disk.name == name);
        let disks = after.facts.disks.iter().filter(|disk| is_same(&disk.name));
        let written: u64 = disks.map(|disk| disk.written_bytes).sum();
        let counted = [self.report.counted_a_day(), a_day(written, duration_us)];
        let share = |[before, after]: [f64; 2]| 1.0 - after / before.max(1.0);
        let mut proof = self.proof("watch", share(models))?;
        proof.counted_share = Some(share(counted)).filter(|_| counted[0] > 0.0);
        let shorter_us = duration_us.min(self.report.duration_us());
        let row = |what: &str, values: [f64; 2]| row(what, values, shorter_us);
        let mut table = row("by the models", models) + &row("by the disks' counters", counted);
        // Whether the machine did the same meanwhile.
        let of = |concerned: bool| {
            let own = self.report.writers.iter();
            own.filter(move |writer| writer.remedies.contains(&self.number) == concerned)
        };
        let now = |name: &str| {
            let all = after.examination.writers.iter();
            all.filter(|writer| writer.name == name)
                .map(|writer| writer.bytes_per_hour)
                .sum::<f64>()
        };
        for (concerned, what) in
            [(true, "programs that it concerns"), (false, "other programs of the report")]
        {
            let before: f64 = of(concerned).map(|writer| writer.bytes_per_hour).sum();
            let after: f64 = of(concerned).map(|writer| now(&writer.name)).sum();
            if before > 0.0 {
                table += &row(what, [before * 24.0, after * 24.0]);
            }
        }
        table += &format!(
            "  watched {} before and {} now; it compares only if the programs did the same\n",
            size::duration(self.report.duration_us()),
            size::duration(duration_us)
        );
        if let Some(warning) = scaling_warning(shorter_us) {
            table += &format!("  {warning}\n");
        }
        self.finish(&proof, &table, args)
    }

    fn proof(&self, way: &str, measured_share: f64) -> anyhow::Result<Proof> {
        let remedy = self.remedy()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Proof {
            schema: 1,
            remedy: remedy.name.clone(),
            way: way.to_owned(),
            at_us: now.map_or(0, |since| since.as_micros() as u64),
            promised_share: remedy.saving.map(|saving| saving.share),
            promised_halves: remedy
                .saving
                .map(|saving| (saving.first_half_share, saving.second_half_share)),
            measured_share,
            half_width: None,
            counted_share: None,
        })
    }

    /// Keeps the proof, and prints it.
    fn finish(&self, proof: &Proof, table: &str, args: &Args) -> anyhow::Result<()> {
        let remedy = self.remedy()?;
        kept::add_proof(&args.last_report, proof)?;
        let mut out = records::Output::keys(args.json, args.csv);
        if args.json || args.csv {
            serde_json::to_writer(&mut out, proof)?;
            writeln!(out)?;
            return out.finish();
        }
        let columns = text::columns().unwrap_or(80);
        let promised = remedy.saving.as_ref().map_or("nothing: not estimated".to_owned(), saved);
        let way = match &*proof.way {
            "replay" => "by a replay of a new recording on file systems in memory",
            _ => "by a watch after it was applied, beside the report from before",
        };
        let mut all =
            text::labelled("", 0, &format!("{}. {}", remedy.number, remedy.title), columns);
        all += &text::labelled("  promised  ", 12, &promised, columns);
        all += &text::labelled(
            "  measured  ",
            12,
            &format!("{}, {way}", measured_in_words(proof)),
            columns,
        );
        write!(out, "{}\n{table}", all.replace('\u{a0}', " "))?;
        out.finish()
    }
}

/// Bytes a day before and after, or bytes a second if the shorter watch shows nothing of a day.
fn row(what: &str, a_day: [f64; 2], shorter_us: u64) -> String {
    let (parts, unit) = match shorter_us {
        ..TOO_SHORT_BELOW_US => (86_400.0, "second"),
        _ => (1.0, "day"),
    };
    let [before, after] = a_day.map(|bytes| size::bytes((bytes / parts) as u64));
    format!("  {what}: {before} a {unit} before, {after} now\n")
}

/// The measured share, with its interval or the counters beside it.
pub(super) fn measured_in_words(proof: &Proof) -> String {
    let share = |share: f64| match share < 0.0 {
        true => format!("{} more", size::share(-share)),
        false => size::share(share),
    };
    let half = match (proof.half_width, &*proof.way) {
        (Some(half), _) => format!(" ± {}", size::share(half)),
        (None, "replay") => " (too few windows of time for an interval)".to_owned(),
        (None, _) => String::new(),
    };
    let counted = proof
        .counted_share
        .map_or(String::new(), |counted| format!(", {} by the disks' counters", share(counted)));
    format!("{}{half}{counted}", share(proof.measured_share))
}

/// The settings of the kernel that a remedy changes on the first file system, and that; `None` if
/// it changes something else.
fn kernel_settings(remedy: &Remedy) -> Option<(&[String], &str)> {
    fn of(step: &RemedyStep) -> Option<(&[String], &str)> {
        match step {
            RemedyStep::WriteBack { set, on } => Some((set, on)),
            _ => None,
        }
    }
    let all: Option<Vec<_>> = remedy.steps.iter().map(of).collect();
    all?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::row;

    /// `--prove` watched for two seconds, in which a program wrote 80 MiB, and said 3.4 TiB a day.
    #[test]
    fn a_watch_of_seconds_is_not_scaled_to_a_day() {
        let values = [86_400.0 * f64::from(40 << 20), 86_400.0 * f64::from(20 << 20)];
        let short = "  by the models: 40 MiB a second before, 20 MiB now\n";
        assert_eq!(row("by the models", values, 59_999_999), short);
        let long = "  by the models: 3.3 TiB a day before, 1.6 TiB now\n";
        assert_eq!(row("by the models", values, 60_000_000), long);
    }
}
