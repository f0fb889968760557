//! Times for a recorded trace: tried by the simulator, within the age that a power cut may take.

use super::{WritebackArgs, apply, present_times};
use crate::{
    compare::schedule,
    load::{self, Input},
    prove, records, size, table, text,
    tune::apply::print,
    usage::Usage,
};
use flashsift_caches::{
    policy,
    trace::{StepKind, Tables, Trace},
};
use flashsift_events::duration::Exact;
use flashsift_host::{mounts::Mount, settings::SettingsMachine};
use flashsift_pages::metadata;
use flashsift_study::{
    StudyError, Wave,
    recommend::{
        AS_GOOD, Advice, Conditions, Judged, RecommendError, Recommender, WritebackTimes,
        time_in_words,
    },
};
use flashsift_traces::annotations::Purpose;
use serde::Serialize;
use std::{collections::BTreeMap, io::Write, path::Path};

/// The most programs that are named for their syncs.
const NAMED_MAX: usize = 3;

/// The times that were tried on a trace.
pub(super) struct Study {
    present: WritebackTimes,
    lose_at_most_us: u64,
    advice: Advice,
    /// Index into the judged times.
    proposed: Option<usize>,
    syncs: Syncs,
    /// The file system whose settings are tried.
    file_system: String,
    /// The reason for which only file data counts, and the commit stays.
    data_only: Option<String>,
}

impl Study {
    /// The name of the setting that decides how often the file system's log is written.
    fn commit_name(&self) -> &'static str {
        if self.file_system == "xfs" { "xfssyncd" } else { "commit" }
    }

    fn proposed(&self) -> Option<(&Judged, WritebackTimes)> {
        let judged = &self.advice.judged[self.proposed?];
        Some((judged, judged.times?))
    }

    /// Whether a longer commit saves more than the present one.
    fn longer_commit_pays(&self) -> bool {
        let best = |longer: bool| {
            let own = self.advice.judged.iter().filter(|judged| {
                let commit_us = judged.times.map_or(0, |times| times.commit_us);
                longer == (commit_us > self.present.commit_us)
            });
            let share = |judged: &Judged| judged.judgement.share(judged.judgement.saving);
            own.map(share).fold(0.0, f64::max)
        };
        best(true) > best(false) + AS_GOOD
    }

    /// The values to set for the proposal, as `--set` takes them. For a proof they stand beside the
    /// present ones.
    fn settings(&self) -> Vec<String> {
        let Some((_, times)) = self.proposed() else { return Vec::new() };
        let expire = (times.expire_us != self.present.expire_us)
            .then(|| format!("dirty-expire={}", Exact(times.expire_us)));
        let commit = (times.commit_us != self.present.commit_us)
            .then(|| format!("{}={}", self.commit_name(), Exact(times.commit_us)));
        expire.into_iter().chain(commit).collect()
    }
}

/// Syncs that commit the journal of an ext4, or the log of an XFS, for all programs.
#[derive(Default)]
struct Syncs {
    /// By program, the most frequent first.
    programs: Vec<(String, u64)>,
    /// The longest commit interval that was tried, µs.
    interval_us: u64,
    /// The share of such intervals with a sync.
    share: f64,
}

impl Syncs {
    fn new(trace: &Trace, interval_us: u64) -> Self {
        let mut programs: BTreeMap<&str, u64> = BTreeMap::new();
        let mut intervals = std::collections::BTreeSet::new();
        for (n, step) in trace.steps().iter().enumerate() {
            let syncs =
                matches!(step.kind(), StepKind::Sync | StepKind::SyncAll | StepKind::WriteSync);
            if syncs {
                let program = trace.program(trace.owner(n).process).unwrap_or("a program");
                *programs.entry(program).or_default() += 1;
                intervals.insert(trace.at_us(n) / interval_us.max(1));
            }
        }
        let mut programs: Vec<_> =
            programs.into_iter().map(|(name, syncs)| (name.to_owned(), syncs)).collect();
        programs.sort_by_key(|(_, syncs)| std::cmp::Reverse(*syncs));
        let all = trace.totals().duration_us / interval_us.max(1) + 1;
        Self { programs, interval_us, share: intervals.len() as f64 / all as f64 }
    }

    /// Says when the syncs of some program make a longer commit useless. `pays`: it saves more than
    /// the present one all the same, as not every sync has something to commit.
    fn in_words(&self, pays: bool) -> Option<String> {
        let (most, others) = self.programs.split_first()?;
        let named = |(name, syncs): &(String, u64)| {
            format!("{} {}", text::inert(name), size::counted(*syncs, "sync"))
        };
        let others: Vec<String> = others.iter().take(NAMED_MAX - 1).map(named).collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!(", {}", others.join(", ")),
        };
        (self.share >= 0.5 && !pays).then(|| {
            format!(
                "In {} of the intervals of {} a program syncs ({}{others}). A sync commits the \
                 journal for all programs, so a longer commit saves little here.",
                size::share(self.share),
                time_in_words(self.interval_us),
                named(most)
            )
        })
    }
}

/// Tries times on a trace and prints what they save. With a mounted file system, its present times
/// are the ones to compare with, and the proposal is set there, or shown.
pub(super) fn run(
    machine: &SettingsMachine,
    trace: &Path,
    mount: Option<&Mount>,
    args: &WritebackArgs,
) -> anyhow::Result<()> {
    if args.csv && mount.is_some() {
        return Err(Usage("--csv prints one table: leave --on out, or give --json".into()).into());
    }
    let input =
        Input { trace: trace.to_owned(), format: args.format.clone(), columns: None, rate: None };
    let name = input.name();
    let study = study(machine, &input, mount, args)?;
    let mut out = records::Output::keys(args.json, args.csv);
    if args.form().is_records() {
        serde_json::to_writer(&mut out, &StudyRecord::new(&name, &study))?;
        writeln!(out)?;
        out.finish()?;
    } else {
        print(&render(&study, mount, text::columns().unwrap_or(80)))?;
    }
    if args.prove {
        replay(&input, &study)?;
    }
    let settings = study.settings();
    match mount {
        Some(mount) if !settings.is_empty() => {
            let wanted = apply::parse(&settings, Some(mount))?;
            apply::set(machine, &wanted, Some(mount), args)
        }
        _ if args.apply => anyhow::bail!("nothing was set: there is no proposal, or no --on"),
        _ => Ok(()),
    }
}

/// Replays the trace with the present times and the proposed ones.
fn replay(input: &Input, study: &Study) -> anyhow::Result<()> {
    // Without a proposal, the text above says why.
    let Some((_, times)) = study.proposed() else { return Ok(()) };
    prove::show(input, settings_of_twin(&study.file_system, study.present, times))
}

/// Two times of write-back as settings of `prove`.
pub(super) fn settings_of_twin(
    file_system: &str,
    present: WritebackTimes,
    proposed: WritebackTimes,
) -> [String; 2] {
    let of = |times: WritebackTimes| match file_system {
        "xfs" => format!("xfs:sectors=4k:xfssyncd={}", Exact(times.commit_us)),
        // The mount takes seconds.
        "btrfs" => format!("btrfs:commit={}", times.commit_us.div_ceil(1_000_000)),
        _ => format!("ext4:commit={}", times.commit_us.div_ceil(1_000_000)),
    };
    let expire = match proposed.expire_us == present.expire_us {
        true => String::new(),
        false => format!(":expire={}", Exact(proposed.expire_us)),
    };
    [of(present), of(proposed) + &expire]
}

fn study(
    machine: &SettingsMachine,
    input: &Input,
    mount: Option<&Mount>,
    args: &WritebackArgs,
) -> anyhow::Result<Study> {
    let tables = Tables { operations: true, owners: true, ..Tables::default() };
    let loaded = load::load(input, false, args.trace_memory, tables)?;
    loaded.require_split(&input.name(), Purpose::Tune, args.force)?;
    loaded.log_summary(&input.name());
    let trace = &loaded.trace;
    let present = mount.map(|mount| present_times(machine, mount)).transpose()?;
    let present = present.unwrap_or(WritebackTimes::LINUX);
    anyhow::ensure!(
        present.tick_us > 0 && present.expire_us > 0,
        "the kernel's flusher is off (dirty-expire or dirty-writeback is 0): set them first"
    );
    let own_model = mount.map_or("ext4", |mount| &mount.kind);
    let model = metadata::ALL.iter().find(|spec| spec.name == own_model);
    let (metadata, data_only) = match model {
        None => (None, Some(format!("the log and metadata of {own_model} are not modelled"))),
        Some(spec) => {
            let model = metadata::Selection::default_of(spec);
            match model.spec.suits(trace, spec.layout) {
                Ok(()) => (Some(model), None),
                Err(unsuited) => (None, Some(unsuited.to_string())),
            }
        }
    };
    let lose_at_most_us = args
        .lose_at_most
        .map_or(present.loss_us(), |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    // The interval of F2FS is not among the parameters of its model.
    let has_commit =
        |model: &metadata::Selection| model.spec.params.iter().any(|param| param.name == "commit");
    let commits = metadata.as_ref().is_some_and(has_commit);
    let times = present.candidates(Some(lose_at_most_us), commits);
    anyhow::ensure!(
        !times.is_empty(),
        "no times lose at most {}: at least one tick ({}) and one commit ({}) are lost",
        time_in_words(lose_at_most_us),
        time_in_words(present.tick_us),
        time_in_words(if commits { 1_000_000 } else { present.commit_us })
    );
    let interval_us = times.iter().map(|times| times.commit_us).max().unwrap_or(present.commit_us);
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let conditions = Conditions {
        policy: policy::Selection::parse("mglru").map_err(|error| Usage(error.to_string()))?,
        frames: args.memory,
        ram_pages: None,
        // A model whose interval cannot be set has its own.
        present: Some(match &metadata {
            Some(_) if commits => present,
            Some(_) => WritebackTimes { commit_us: 60_000_000, ..present },
            None => WritebackTimes { commit_us: WritebackTimes::LINUX.commit_us, ..present },
        }),
        metadata,
        nvm_pages: Vec::new(),
        times: Vec::new(),
        device: None,
        memory_limit_bytes: loaded.limit_bytes,
        workers: args.threads.map_or_else(cores, usize::from),
    };
    let modelled = conditions.present.map_or(present.commit_us, |times| times.commit_us);
    let times: Vec<_> = times
        .into_iter()
        .map(|times| match commits {
            true => times,
            false => WritebackTimes { commit_us: modelled, ..times },
        })
        .collect();
    let recommender = Recommender::new(trace, Conditions { times, ..conditions }).map_err(
        |error| match error {
            RecommendError::Study(StudyError::Memory { .. }) => anyhow::Error::new(error),
            error => Usage(error.to_string()).into(),
        },
    )?;
    let waves = [Wave { cells: 0..recommender.cells(), at_once: recommender.at_once() }];
    let bar = load::progress("times", "{spinner} {msg} {bar:30} {pos}/{len}");
    bar.set_length(recommender.cells() as u64);
    let costs = schedule::in_waves(&waves, |cell| {
        let cost = recommender.run(cell)?;
        bar.inc(1);
        Ok(cost)
    });
    bar.finish_and_clear();
    let mut advice = recommender.advise(&costs?);
    for judged in advice.judged.iter_mut().filter(|_| !commits) {
        let own = |times| WritebackTimes { commit_us: present.commit_us, ..times };
        judged.times = judged.times.map(own);
    }
    Ok(Study {
        present,
        lose_at_most_us,
        proposed: advice.proposed_times(),
        advice,
        // An fsync of btrfs writes a log of its own, and commits nothing.
        syncs: match commits && own_model != "btrfs" {
            true => Syncs::new(trace, interval_us),
            false => Syncs::default(),
        },
        file_system: own_model.to_owned(),
        data_only,
    })
}

const INDENT: usize = 10;

fn render(study: &Study, mount: Option<&Mount>, columns: usize) -> String {
    let line = |label: &str, words: &str| text::labelled(label, INDENT, words, columns);
    let Study { present, lose_at_most_us, advice, proposed, syncs, data_only, .. } = study;
    let at = mount.map_or("the kernel's defaults".to_owned(), |mount| {
        format!("{} ({})", mount.point.display(), mount.kind)
    });
    let mut out = line(
        "now",
        &format!(
            "{at}: expire {}, commit {}, tick {}; a power cut loses up to {} of what no program \
             synced; {} written",
            time_in_words(present.expire_us),
            time_in_words(present.commit_us),
            time_in_words(present.tick_us),
            time_in_words(present.loss_us()),
            size::bytes(advice.baseline as u64)
        ),
    );
    out += &line("bound", &format!("at most {} may be lost", time_in_words(*lose_at_most_us)));
    if let Some(why) = data_only {
        out += &line("note", &format!("only file data counts, and the commit stays: {why}"));
    }
    out += "\n";
    let header = ["expire", "commit", "loses", "saves %", "1st half", "2nd half", "slices won"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for (n, judged) in advice.judged.iter().enumerate() {
        let Some(times) = judged.times else { continue };
        let judgement = &judged.judgement;
        let [first, second] = judgement.halves.map(size::percent);
        let mark = if *proposed == Some(n) { " (proposed)" } else { "" };
        rows.push(vec![
            format!("{}{mark}", time_in_words(times.expire_us)),
            time_in_words(times.commit_us),
            time_in_words(times.loss_us()),
            size::percent(judgement.share(judgement.saving)),
            first,
            second,
            format!("{} of {}", judgement.wins, judgement.slices),
        ]);
    }
    out += &table::plain(&rows, &[0, 1, 2]);
    out += "\n";
    out += &line("proposal", &proposal(study, mount));
    if let Some(words) = syncs.in_words(study.longer_commit_pays()) {
        out += &line("syncs", &words);
    }
    if advice.has_short_slices() {
        out += &line(
            "short",
            "slices of less than a minute depend on their neighbours: record 20 minutes or more",
        );
    }
    if mount.is_some() && proposed.is_some() {
        out += "\n";
    }
    out
}

fn proposal(study: &Study, mount: Option<&Mount>) -> String {
    let Some((judged, times)) = study.proposed() else {
        return format!(
            "none: no times within the bound save more than 1 %, in each half of the trace and in \
             nine of ten of the slices in which they make a difference{}",
            match study.lose_at_most_us > study.present.loss_us() {
                true => "",
                false => ". --lose-at-most 5m allows more",
            }
        );
    };
    let judgement = &judged.judgement;
    let share = size::percent(judgement.share(judgement.saving));
    let halves = size::halves(judgement.halves);
    let settings = study.settings().join(",");
    let set = match mount {
        Some(_) => String::new(),
        None => {
            format!(". Set it: sudo flashsift tune writeback --set {settings} --on DIR --apply")
        }
    };
    format!("{settings} saves {share} % ({halves}). Price: {}{set}", times.price(study.present))
}

#[derive(Serialize)]
struct StudyRecord<'a> {
    schema: u32,
    trace: &'a str,
    writeback: Found<'a>,
}

#[derive(Serialize)]
struct Found<'a> {
    present: TimesRecord,
    lose_at_most_us: u64,
    baseline_bytes: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_only: Option<&'a str>,
    /// Values for `--set`; empty without a proposal.
    proposed: Vec<String>,
    tried: Vec<TriedRecord>,
    /// The share of the intervals of the longest commit in which a program syncs.
    synced_share: f64,
    syncs: Vec<SyncRecord<'a>>,
}

#[derive(Serialize)]
struct TimesRecord {
    expire_us: u64,
    tick_us: u64,
    commit_us: u64,
    loss_us: u64,
}

impl From<WritebackTimes> for TimesRecord {
    fn from(times: WritebackTimes) -> Self {
        let WritebackTimes { expire_us, tick_us, commit_us } = times;
        Self { expire_us, tick_us, commit_us, loss_us: times.loss_us() }
    }
}

#[derive(Serialize)]
struct TriedRecord {
    #[serde(flatten)]
    times: TimesRecord,
    saving_share: f64,
    first_half_share: f64,
    second_half_share: f64,
    slices_won: usize,
    slices: usize,
    recommended: bool,
    proposed: bool,
}

#[derive(Serialize)]
struct SyncRecord<'a> {
    program: &'a str,
    syncs: u64,
}

impl<'a> StudyRecord<'a> {
    fn new(trace: &'a str, study: &'a Study) -> Self {
        let tried = study.advice.judged.iter().enumerate().filter_map(|(n, judged)| {
            let judgement = &judged.judgement;
            Some(TriedRecord {
                times: judged.times?.into(),
                saving_share: judgement.share(judgement.saving),
                first_half_share: judgement.halves[0],
                second_half_share: judgement.halves[1],
                slices_won: judgement.wins,
                slices: judgement.slices,
                recommended: judgement.recommends(),
                proposed: study.proposed == Some(n),
            })
        });
        let writeback = Found {
            present: study.present.into(),
            lose_at_most_us: study.lose_at_most_us,
            baseline_bytes: study.advice.baseline,
            data_only: study.data_only.as_deref(),
            proposed: study.settings(),
            tried: tried.collect(),
            synced_share: study.syncs.share,
            syncs: study
                .syncs
                .programs
                .iter()
                .map(|(program, syncs)| SyncRecord { program, syncs: *syncs })
                .collect(),
        };
        Self { schema: 1, trace, writeback }
    }
}
