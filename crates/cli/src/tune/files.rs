//! `flashsift tune readahead TRACE`, by file: what is read ahead in vain at the present maximum,
//! and the advice that programs could give.

use super::{
    curve::{kib, mib},
    live::percent,
};
use crate::{compare::schedule, load, size, table, text};
use flashsift_events::page::PAGE_BYTES;
use flashsift_files::judge::Judgement;
use flashsift_pages::readahead::{AccessAdvice, ReadAheadRanking, ReadAheadSums};
use flashsift_study::{
    StudyError, Wave,
    readahead_advice::{AdviceFound, AdviceLack, AdviceSearch, FileAdvice},
    readahead_curve::{Curve, CurveSearch},
};
use serde::Serialize;

/// The prefetches by program and by file, and the advice.
pub(super) struct ByFile {
    programs: ReadAheadRanking,
    files: ReadAheadRanking,
    advice: Result<AdviceFound, AdviceLack>,
}

/// Charges the prefetches of the present maximum, and tries advice. `top`: names to list.
pub(super) fn study(search: &CurveSearch<'_>, curve: &Curve, top: usize) -> anyhow::Result<ByFile> {
    let advice = AdviceSearch::new(search)?;
    let found = match AdviceSearch::lack(search, curve) {
        Some(lack) => Err(lack),
        None => {
            let trials = advice.trials();
            let waves = [Wave { cells: 0..trials.len(), at_once: search.at_once() }];
            let bar = load::progress("advice", "{spinner} {msg} {bar:30} {pos}/{len}");
            bar.set_length(trials.len() as u64);
            let runs = schedule::in_waves(&waves, |n| {
                let run = advice.run(&trials[n..=n])?;
                bar.inc(1);
                Ok(run)
            });
            let found = runs.and_then(|runs| {
                advice.choose(curve, runs).map_err(|error: StudyError| error.into())
            });
            bar.finish_and_clear();
            Ok(found?)
        }
    };
    let trace = search.trace();
    let (programs, files) =
        (advice.charges().by_program(trace, top), advice.charges().by_file(trace, top));
    Ok(ByFile { programs, files, advice: found })
}

impl ByFile {
    /// Renders the tables by program and by file, and the advice.
    pub(super) fn render(&self, search: &CurveSearch<'_>, curve: &Curve, columns: usize) -> String {
        let present = kib(search.conditions().present_kib);
        let mut out = match curve.points[curve.present].outcome.readahead.windows {
            0 => format!("\nAt the present maximum, {present}, nothing is read ahead.\n\n"),
            _ => {
                let [programs, files] = [("program", &self.programs), ("file", &self.files)]
                    .map(|(of, found)| shares(of, found));
                format!("\nAt the present maximum, {present}:\n\n{programs}\n{files}\n")
            }
        };
        out += &text::labelled("per file", 12, &self.verdict(&present, curve), columns);
        if let Ok(found) = self.advice.as_ref()
            && found.pays()
        {
            out += "\n";
            out += &advice_table(found);
        }
        out
    }

    /// The sentence about advice.
    fn verdict(&self, present: &str, curve: &Curve) -> String {
        let found = match &self.advice {
            Err(AdviceLack::Curve(lack)) => return format!("no advice: {lack}."),
            Err(lack) => return format!("advice cannot be judged: {lack}"),
            Ok(found) => found,
        };
        let proposed = &curve.points[curve.proposed];
        let tried = size::counted(found.tried as u64, "candidate");
        if found.advice.is_empty() {
            return format!("no advice saves time for certain ({tried} tried)");
        }
        if !found.pays() {
            return format!(
                "no advice: one maximum for the device, {}, saves as much ({tried} tried)",
                kib(proposed.kib)
            );
        }
        let over = match curve.proposed == curve.present {
            true => String::new(),
            false => format!(
                ", and {} over the proposed {} alone",
                saved(&found.over_proposed),
                kib(proposed.kib)
            ),
        };
        format!(
            "with {present} kept, this posix_fadvise of programs together saves {} of the time\
             {over}. Each line saves on top of those above it",
            saved(&found.saving)
        )
    }

    pub(super) fn record(&self, curve: &Curve) -> ByFileRecord<'_> {
        let share = |judged: &Judgement, at: f64| judged.share(at);
        ByFileRecord {
            programs: shares_record(&self.programs),
            files: shares_record(&self.files),
            advice: match &self.advice {
                Err(lack) => AdviceRecord { lack: Some(lack.to_string()), ..Default::default() },
                Ok(found) => AdviceRecord {
                    lack: None,
                    pays: found.pays(),
                    candidates_tried: found.tried,
                    compared_with_kib: Some(curve.points[curve.proposed].kib),
                    saving_share: Some(share(&found.saving, found.saving.saving)),
                    over_proposed_s: Some(found.over_proposed.saving),
                    over_proposed_first_half_share: Some(found.over_proposed.halves[0]),
                    over_proposed_second_half_share: Some(found.over_proposed.halves[1]),
                    files: match found.pays() {
                        true => found.advice.iter().map(FileAdviceRecord::new).collect(),
                        false => Vec::new(),
                    },
                },
            },
        }
    }
}

/// A saving as a share, with those of both halves.
fn saved(judged: &Judgement) -> String {
    let saving = size::percent(judged.share(judged.saving));
    format!("{saving} % ({})", size::halves(judged.halves))
}

fn bytes(pages: u64) -> String {
    size::bytes(pages.saturating_mul(PAGE_BYTES))
}

/// The columns of `--live`, without pages that a fault maps beside others: a trace does not tell
/// them.
fn shares(what: &str, ranking: &ReadAheadRanking) -> String {
    let head =
        ["demanded", "ahead", "used", "dropped", "unused yet", "efficiency", "wasted", "windows"];
    let mut rows = vec![[what].into_iter().chain(head).map(str::to_owned).collect::<Vec<_>>()];
    let mut add = |name: &str, sums: &ReadAheadSums| {
        let counts = &sums.counts;
        let pages =
            [counts.demanded(), counts.read, counts.used, sums.dropped_pages(), sums.unused_pages];
        let mut row = vec![name.to_owned()];
        row.extend(pages.map(bytes));
        row.push(counts.efficiency_of_read().map_or_else(|| "–".to_owned(), percent));
        row.push(bytes(counts.wasted()));
        row.push(size::count(counts.windows));
        rows.push(row);
    };
    ranking.top.iter().for_each(|named| add(&named.name, &named.sums));
    if ranking.other_names > 0 {
        add(&format!("({} others)", size::count(ranking.other_names)), &ranking.others);
    }
    table::for_terminal(rows, &[0])
}

fn advice_name(advice: AccessAdvice) -> &'static str {
    match advice {
        AccessAdvice::Normal => "NORMAL",
        AccessAdvice::Random => "RANDOM",
        AccessAdvice::Sequential => "SEQUENTIAL",
    }
}

fn advice_table(found: &AdviceFound) -> String {
    let head = ["file", "program", "advice", "saves s", "1st half %", "2nd half %", "wasted MiB"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for FileAdvice { target, advice, saving, wasted_less_pages } in &found.advice {
        let files = match target.files_count {
            1 => target.files.to_string(),
            count => format!("{} ({})", target.files, size::counted(count as u64, "file")),
        };
        let sign = if *wasted_less_pages > 0 { "−" } else { "+" };
        let seconds = |seconds: f64| format!("{seconds:.3}").replace('-', "−");
        let [first, second] = saving.halves.map(size::percent);
        rows.push(vec![
            files,
            target.program.to_string(),
            advice_name(*advice).to_owned(),
            seconds(saving.saving),
            first,
            second,
            format!("{sign}{}", mib(wasted_less_pages.unsigned_abs())),
        ]);
    }
    table::for_terminal(rows, &[0, 1, 2])
}

#[derive(Serialize)]
pub(super) struct ByFileRecord<'a> {
    programs: Vec<ShareRecord<'a>>,
    files: Vec<ShareRecord<'a>>,
    advice: AdviceRecord<'a>,
}

/// The counts of one name; those of the names that are not listed have none.
#[derive(Serialize)]
struct ShareRecord<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    count: u64,
    demanded_pages: u64,
    ahead_pages: u64,
    used_pages: u64,
    dropped_pages: u64,
    unused_pages: u64,
    efficiency: Option<f64>,
    asked_pages: u64,
    efficiency_of_asked: Option<f64>,
    windows: u64,
    mean_pages: Option<f64>,
    share_at_max: Option<f64>,
    read_requests: u64,
    hit_ratio: Option<f64>,
    evicted_pages: u64,
    eviction_ratio: Option<f64>,
    wasted_bytes: u64,
}

fn shares_record(ranking: &ReadAheadRanking) -> Vec<ShareRecord<'_>> {
    let top = ranking.top.iter().map(|named| (Some(&*named.name), named.count, &named.sums));
    let others = (ranking.other_names > 0).then_some((None, ranking.other_names, &ranking.others));
    top.chain(others).map(|(name, count, sums)| ShareRecord::new(name, count, sums)).collect()
}

impl<'a> ShareRecord<'a> {
    fn new(name: Option<&'a str>, count: u64, sums: &ReadAheadSums) -> Self {
        let counts = &sums.counts;
        Self {
            name,
            count,
            demanded_pages: counts.demanded(),
            ahead_pages: counts.read,
            used_pages: counts.used,
            dropped_pages: sums.dropped_pages(),
            unused_pages: sums.unused_pages,
            efficiency: counts.efficiency_of_read(),
            asked_pages: counts.asked,
            efficiency_of_asked: counts.efficiency(),
            windows: counts.windows,
            mean_pages: counts.mean_pages(),
            share_at_max: counts.share_at_max(),
            read_requests: sums.read_requests,
            hit_ratio: counts.read_hit_ratio(),
            evicted_pages: counts.evicted,
            eviction_ratio: sums.eviction_ratio(),
            wasted_bytes: counts.wasted() * PAGE_BYTES,
        }
    }
}

#[derive(Default, Serialize)]
struct AdviceRecord<'a> {
    /// The reason for which advice is not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    lack: Option<String>,
    /// Whether the advice saves more than one maximum for the device.
    pays: bool,
    candidates_tried: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    compared_with_kib: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saving_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    over_proposed_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    over_proposed_first_half_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    over_proposed_second_half_share: Option<f64>,
    /// Empty unless it pays.
    files: Vec<FileAdviceRecord<'a>>,
}

#[derive(Serialize)]
struct FileAdviceRecord<'a> {
    files: &'a str,
    files_count: usize,
    program: &'a str,
    advice: &'static str,
    saving_s: f64,
    first_half_share: f64,
    second_half_share: f64,
    wasted_less_bytes: i64,
}

impl<'a> FileAdviceRecord<'a> {
    fn new(found: &'a FileAdvice) -> Self {
        let FileAdvice { target, advice, saving, wasted_less_pages } = found;
        Self {
            files: &target.files,
            files_count: target.files_count,
            program: &target.program,
            advice: advice_name(*advice),
            saving_s: saving.saving,
            first_half_share: saving.halves[0],
            second_half_share: saving.halves[1],
            wasted_less_bytes: wasted_less_pages * PAGE_BYTES as i64,
        }
    }
}
