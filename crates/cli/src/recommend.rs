//! `flashsift recommend`: settings that would write less, or take less time, on a trace.

use crate::{
    compare::schedule,
    devices,
    load::{self, Input},
    logging::DETAIL,
    prove, records, size, text,
    usage::Usage,
};
use anyhow::Context;
use flashsift_caches::{
    policy,
    trace::{Tables, Trace, Unit},
};
use flashsift_events::{duration, event::FileSystemKind, page::PAGE_BYTES, params};
use flashsift_files::judge::{Judgement, SLICES};
use flashsift_pages::metadata;
use flashsift_study::{
    PreparedDevice, StudyError, Wave,
    recommend::{Advice, AdvisedKnee, Conditions, Judged, Objective, RecommendError, Recommender},
};
use flashsift_traces::annotations::Purpose;
use serde::Serialize;
use std::{io::Write, num::NonZeroUsize};
use tracing::info;

/// Recommend a change of policy, write-back or memory, or none
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift recommend trace.xz                        to write less to flash
  flashsift recommend trace.xz --memory 64MiB         in a small cache
  flashsift recommend trace.xz --device emmc-5.1      to take less time
  flashsift recommend trace.xz --nvm=1MiB,4MiB,16MiB  how much NVM is enough
  flashsift recommend trace.xz --policy linux2q --json
  sudo flashsift recommend trace.parquet --prove      and measure the best

A change is recommended if it saves 1 % or more in each half of the trace, and
in nine of ten of the slices of time in which it makes a difference.")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// Size of the page cache. The default is half of the 2 GiB that Linux's flusher is assumed to
    /// have
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size::parse_memory)]
    memory: u32,

    /// Memory of the machine, of which Linux's flusher takes its ratio; default: 2GiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    ram: Option<u64>,

    /// Policy of the baseline, with parameters as name:key=value
    #[arg(long, value_name = "POLICY", default_value = "mglru")]
    policy: String,

    /// File system whose journal and metadata count: ext4, f2fs or off; default: that of the
    /// recording, else ext4, if the trace is of files and has times
    #[arg(long, value_name = "FILE SYSTEM|off")]
    metadata: Option<String>,

    /// Also try systems with this much non-volatile memory beside the cache; default sizes: 256KiB,
    /// 1MiB, 4MiB and 16MiB. The file system's own writes do not count then
    #[arg(
        long,
        value_name = "SIZE,…",
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "256KiB,1MiB,4MiB,16MiB",
        value_parser = size::parse_memory
    )]
    nvm: Vec<u32>,

    /// Modelled device whose time is to be saved, instead of bytes: a name of `flashsift list
    /// devices`, or FILE.toml
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,

    /// Also on a trace that is held apart for tests
    #[arg(long)]
    force: bool,

    /// Print one JSON object, on one line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each value, with its key
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Then replay the trace on ext4 in memory with the changes of commit and expire that save
    /// most, and count the bytes (root; takes as long as the trace, or several times)
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    prove: bool,

    /// Memory limit of the trace and its cells; default: three quarters of the machine's memory
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    trace_memory: Option<u64>,

    /// Number of cells that run at once; default: one a core
    #[arg(long, value_name = "N", value_parser = size::parse_threads)]
    threads: Option<NonZeroUsize>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let usage = |error: params::Error| Usage(error.to_string());
    let policy = policy::Selection::parse(&args.policy).map_err(usage)?;
    if policy.spec.kind.is_offline() {
        let message = format!("--policy {}: no kernel knows the future", args.policy);
        return Err(Usage(message).into());
    }
    let device = device(args)?;
    let name = args.input.name();
    let bytes = !args.nvm.is_empty();
    let tables = Tables { operations: true, bytes, ..Tables::default() };
    let loaded = load::load(&args.input, false, args.trace_memory, tables)?;
    loaded.require_split(&name, Purpose::Tune, args.force)?;
    loaded.log_summary(&name);
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let conditions = Conditions {
        policy,
        frames: args.memory,
        ram_pages: args.ram.map(|bytes| bytes / PAGE_BYTES),
        metadata: chosen_metadata(args, &loaded.trace)?,
        nvm_pages: args.nvm.clone(),
        present: None,
        times: Vec::new(),
        device,
        memory_limit_bytes: loaded.limit_bytes,
        workers: args.threads.map_or_else(cores, usize::from),
    };
    let recommender = Recommender::new(&loaded.trace, conditions).map_err(refusal)?;
    let waves = [Wave { cells: 0..recommender.cells(), at_once: recommender.at_once() }];
    let bar = load::progress("cells", "{spinner} {msg} {bar:30} {pos}/{len}");
    bar.set_length(recommender.cells() as u64);
    let costs = schedule::in_waves(&waves, |cell| {
        let cost = recommender.run(cell)?;
        bar.inc(1);
        Ok(cost)
    });
    bar.finish_and_clear();
    let advice = recommender.advise(&costs?);
    let mut out = records::Output::keys(args.json, args.csv);
    if args.json || args.csv {
        serde_json::to_writer(&mut out, &Record::new(&name, &recommender, &advice))?;
        writeln!(out)?;
    } else {
        let columns = text::columns().unwrap_or(80);
        out.write_all(render(&recommender, &advice, columns).as_bytes())?;
    }
    out.finish()?;
    if args.prove { prove(args, &recommender, &advice) } else { Ok(()) }
}

/// Measures the changes that save most, of those that a replay can make.
fn prove(args: &Args, recommender: &Recommender<'_>, advice: &Advice) -> anyhow::Result<()> {
    const MOST: usize = 4;
    let own = recommender.baseline().metadata.as_ref();
    let own = own.map_or("ext4", |metadata| metadata.spec.name);
    let judged = advice.judged.iter();
    let changes = judged.filter_map(|judged| words_of_twin(own, &judged.name)).take(MOST);
    prove::show(&args.input, std::iter::once(twin(own).to_owned()).chain(changes))
}

/// Returns a file system as it is modelled, for a twin.
fn twin(file_system: &str) -> &str {
    if file_system == "xfs" { "xfs:sectors=4k" } else { file_system }
}

/// Returns the setting of a change that is made of commit, expire and a file system instead of the
/// own one; `None` for others.
fn words_of_twin(own: &str, change: &str) -> Option<String> {
    let mut file_system = own;
    let mut words = Vec::new();
    for word in change.split(',').map(str::trim) {
        match word.split_once('=') {
            Some(("expire", _)) => words.push(word.to_owned()),
            Some(("commit", value)) if own == "xfs" => words.push(format!("xfssyncd={value}")),
            // The mount takes seconds.
            Some(("commit", value)) => {
                words.push(format!("commit={}", duration::parse_us(value).ok()? / 1_000_000));
            }
            None if ["xfs", "btrfs"].contains(&word) => file_system = word,
            _ => return None,
        }
    }
    Some(std::iter::once(twin(file_system).to_owned()).chain(words).collect::<Vec<_>>().join(":"))
}

/// Settings that do not suit the trace are an error of the command line; its content and the memory
/// are not.
fn refusal(error: RecommendError) -> anyhow::Error {
    match error {
        RecommendError::Study(StudyError::Memory { .. }) => error.into(),
        RecommendError::Study(unsuited) => Usage(unsuited.to_string()).into(),
        RecommendError::NoTimes | RecommendError::NothingWritten | RecommendError::Times(_) => {
            error.into()
        }
    }
}

fn device(args: &Args) -> anyhow::Result<Option<PreparedDevice>> {
    let Some(name) = &args.device else { return Ok(None) };
    let mut chosen = devices::chosen(std::slice::from_ref(name))?;
    if chosen.len() != 1 {
        return Err(Usage("--device: a recommendation is for one device".to_owned()).into());
    }
    let device = chosen.pop().context("there is one device")?;
    Ok(Some(PreparedDevice::new(device).with_context(|| format!("--device {name}"))?))
}

/// Returns the file system whose own writes count: the one asked for, else that of the recording,
/// or ext4, where it suits.
fn chosen_metadata(args: &Args, trace: &Trace) -> anyhow::Result<Option<metadata::Selection>> {
    let parse =
        |text: &str| metadata::Selection::parse(text).map_err(|error| Usage(error.to_string()));
    match args.metadata.as_deref() {
        Some("off") => Ok(None),
        Some(asked) => Ok(Some(parse(asked)?)),
        None if !args.nvm.is_empty() => {
            info!(
                target: DETAIL,
                "note: journal and metadata do not count: they are not modelled with --nvm"
            );
            Ok(None)
        }
        None => {
            let name = trace.about().knows.file_system.map_or("ext4", FileSystemKind::name);
            let default = match metadata::ALL.iter().find(|spec| spec.name == name) {
                Some(spec) => {
                    let default = metadata::Selection::default_of(spec);
                    let suits = default
                        .spec
                        .suits(trace, spec.layout)
                        .map_err(|unsuited| unsuited.to_string());
                    suits.map(|()| default)
                }
                None => Err(format!("those of {name} are not modelled")),
            };
            let note = |why: &String| {
                info!(target: DETAIL, "note: journal and metadata do not count: {why}");
            };
            Ok(default.inspect_err(note).ok())
        }
    }
}

/// The baseline's options, as `compare` takes them.
fn baseline(recommender: &Recommender<'_>) -> String {
    let setting = recommender.baseline();
    let metadata = setting.metadata.as_ref().map_or("off".to_owned(), |own| own.label());
    let writeback = setting.writeback.name();
    let policy = setting.policy.label();
    format!("--policy {policy} --writeback {writeback} --metadata {metadata}")
}

fn label(recommender: &Recommender<'_>) -> String {
    let device = recommender.conditions().device.as_ref();
    device.map_or("bytes written to flash".to_owned(), |device| {
        format!("time that {} takes", device.label())
    })
}

fn cost(objective: Objective, value: f64) -> String {
    match objective {
        Objective::Bytes => size::bytes(value as u64),
        Objective::Elapsed => format!("{value:.3} s"),
    }
}

fn saving(judged: &Judged) -> String {
    let Judgement { wins, slices, .. } = judged.judgement;
    format!("saves {}, in {wins} of {slices} slices", saved(&judged.judgement))
}

/// A saving, and what both halves say of it.
fn saved(judgement: &Judgement) -> String {
    let share = size::percent(judgement.share(judgement.saving));
    format!("{share} % ({})", size::halves(judgement.halves))
}

/// How much memory saves how much, and how much is enough.
fn knee_words(knee: &AdvisedKnee, objective: Objective) -> String {
    let sized = |pages: u32| size::memory(pages.into());
    let saved = |judgement: &Judgement| text::unbroken(&saved(judgement));
    let ((most_pages, most), (knee_pages, at_knee)) = (&knee.most, &knee.knee);
    let less = match objective {
        Objective::Bytes => "this workload writes",
        Objective::Elapsed => "this workload takes",
    };
    let what = if objective == Objective::Bytes { "less" } else { "less time" };
    format!(
        "with {} of NVM {less} {} {what}; the knee is at {}, which saves {}, in {} of {} slices",
        sized(*most_pages),
        saved(most),
        sized(*knee_pages),
        saved(at_knee),
        at_knee.wins,
        at_knee.slices
    )
}

/// Renders the advice: the baseline, every change, and the recommendation.
fn render(recommender: &Recommender<'_>, advice: &Advice, columns: usize) -> String {
    let frames = recommender.conditions().frames;
    let recommended: Vec<&Judged> = advice.recommended().collect();
    let starred = |judged: &Judged| format!("* {}", judged.name);
    let longest = recommended.iter().map(|judged| starred(judged).chars().count()).max();
    let indent = longest.map_or(INDENT, |longest| INDENT.max(longest + 1));
    let line = |label: &str, text: &str| text::labelled(label, indent, text, columns);
    let mut out = line("lowers", &label(recommender));
    let cache = size::of_cache(frames, Unit::Page);
    out += &line(
        "baseline",
        &format!(
            "{} in a cache of {cache}: {}",
            baseline(recommender),
            cost(advice.objective, advice.baseline)
        ),
    );
    out += &line(
        "slices",
        &format!(
            "{SLICES} of {}; slices in which a change makes no difference do not count for it",
            size::duration(advice.slice_us)
        ),
    );
    let header = ["change", "saves %", "1st half", "2nd half", "slices won"];
    let header = header.map(str::to_owned).to_vec();
    let row = |judged: &Judged| {
        let judgement = &judged.judgement;
        let name = match judgement.recommends() {
            true => format!("{} *", judged.name),
            false => judged.name.clone(),
        };
        let won = format!("{} of {}", judgement.wins, judgement.slices);
        let [first, second] = judgement.halves.map(size::percent);
        vec![name, size::percent(judgement.share(judgement.saving)), first, second, won]
    };
    let rows: Vec<_> = std::iter::once(header).chain(advice.judged.iter().map(row)).collect();
    out += "\n";
    out += &crate::table::plain(&rows, &[0]);
    out += "\n";
    // Of the times those to choose; the others stand in the table.
    let proposed_times = advice.proposed_times().map(|n| &advice.judged[n]);
    let is_variant = |judged: &Judged| {
        judged.times.is_some() && proposed_times.is_some_and(|times| times.name != judged.name)
    };
    for judged in recommended.iter().filter(|judged| !is_variant(judged)) {
        let set = judged.times.map(|_| judged.name.replace("expire=", "dirty-expire="));
        let set = set.map_or(String::new(), |set| format!(". Set: tune writeback --set {set}"));
        let text = format!(
            "{}. Price: {}. In compare: {}{set}",
            saving(judged),
            judged.price,
            judged.options
        );
        out += &line(&starred(judged), &text);
    }
    if recommended.is_empty() {
        // Without the rule, a nearest change that saves a quarter in 16 of 20 slices puzzles.
        let rule = "No change is worth it. It must save 1 % in each half of the trace, and in nine \
                    of ten of the slices in which it makes a difference, at least 10.";
        out += &line("advice", rule);
        if let Some(nearest) = advice.nearest() {
            let text = format!("{} {}. Price: {}.", nearest.name, saving(nearest), nearest.price);
            out += &line("nearest", &text);
        }
    } else if recommended.len() > 1 {
        out +=
            &text::labelled("", 0, "Each change is judged alone: savings do not add up.", columns);
    }
    if let Some(times) = proposed_times {
        let words = format!(
            "of all within 1 % of the best, {} loses least; tune writeback and doctor propose the \
             same",
            times.name
        );
        out += &line("times", &words);
    }
    for knee in &advice.knees {
        out += &line(&knee.system, &knee_words(knee, advice.objective));
    }
    if advice.has_short_slices() {
        let note = "The trace is short: slices of less than a minute depend on their neighbours. \
                    Record 20 minutes or more.";
        out += &text::labelled("", 0, note, columns);
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, reason) in recommender.left_out() {
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    for (reason, names) in reasons {
        out += &line("not tried", &format!("{}: {reason}", names.join(", ")));
    }
    out
}

/// Least column at which the texts beside labels begin.
const INDENT: usize = 18;

/// `recommend --json`. Savings are in bytes or seconds, as `unit` says.
#[derive(Serialize)]
struct Record<'a> {
    schema: u32,
    trace: &'a str,
    recommend: Recommendation<'a>,
}

#[derive(Serialize)]
struct Recommendation<'a> {
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a str>,
    memory_bytes: u64,
    baseline: BaselineRecord,
    slices: usize,
    slice_us: u64,
    /// Neighbouring slices depend on each other.
    short_slices: bool,
    recommended: Vec<&'a str>,
    nearest: Option<&'a str>,
    /// The recommended times that `tune writeback` and `doctor` propose.
    proposed_times: Option<&'a str>,
    changes: Vec<ChangeRecord<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    knees: Vec<KneeRecord<'a>>,
    not_tried: Vec<NotTried<'a>>,
}

#[derive(Serialize)]
struct BaselineRecord {
    policy: String,
    writeback: String,
    metadata: String,
    cost: f64,
}

#[derive(Serialize)]
struct ChangeRecord<'a> {
    change: &'a str,
    options: &'a str,
    price: &'a str,
    saving: f64,
    saving_share: f64,
    first_half_share: f64,
    second_half_share: f64,
    slices_won: usize,
    /// Slices in which the change makes a difference.
    slices: usize,
    recommended: bool,
}

/// Sizes of non-volatile memory, with their names in `changes`.
#[derive(Serialize)]
struct KneeRecord<'a> {
    system: &'a str,
    knee_pages: u32,
    knee_saving_share: f64,
    most_pages: u32,
    most_saving_share: f64,
}

impl<'a> From<&'a AdvisedKnee> for KneeRecord<'a> {
    fn from(knee: &'a AdvisedKnee) -> Self {
        let share = |judgement: &Judgement| judgement.share(judgement.saving);
        Self {
            system: &knee.system,
            knee_pages: knee.knee.0,
            knee_saving_share: share(&knee.knee.1),
            most_pages: knee.most.0,
            most_saving_share: share(&knee.most.1),
        }
    }
}

#[derive(Serialize)]
struct NotTried<'a> {
    change: &'a str,
    reason: &'a str,
}

impl<'a> Record<'a> {
    fn new(trace: &'a str, recommender: &'a Recommender<'_>, advice: &'a Advice) -> Self {
        let (setting, conditions) = (recommender.baseline(), recommender.conditions());
        let metadata = setting.metadata.as_ref().map_or("off".to_owned(), |own| own.label());
        let change = |judged: &'a Judged| ChangeRecord {
            change: &judged.name,
            options: &judged.options,
            price: &judged.price,
            saving: judged.judgement.saving,
            saving_share: judged.judgement.share(judged.judgement.saving),
            first_half_share: judged.judgement.halves[0],
            second_half_share: judged.judgement.halves[1],
            slices_won: judged.judgement.wins,
            slices: judged.judgement.slices,
            recommended: judged.judgement.recommends(),
        };
        let not_tried = recommender.left_out().iter();
        let recommend = Recommendation {
            unit: match advice.objective {
                Objective::Bytes => "bytes",
                Objective::Elapsed => "seconds",
            },
            device: conditions.device.as_ref().map(PreparedDevice::label),
            memory_bytes: u64::from(conditions.frames) * PAGE_BYTES,
            baseline: BaselineRecord {
                policy: setting.policy.label(),
                writeback: setting.writeback.to_string(),
                metadata,
                cost: advice.baseline,
            },
            slices: SLICES,
            slice_us: advice.slice_us,
            short_slices: advice.has_short_slices(),
            recommended: advice.recommended().map(|judged| judged.name.as_str()).collect(),
            nearest: advice.nearest().map(|judged| judged.name.as_str()),
            proposed_times: advice.proposed_times().map(|n| &*advice.judged[n].name),
            changes: advice.judged.iter().map(change).collect(),
            knees: advice.knees.iter().map(KneeRecord::from).collect(),
            not_tried: not_tried.map(|(change, reason)| NotTried { change, reason }).collect(),
        };
        Self { schema: 1, trace, recommend }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_commit_and_expire_can_be_replayed() {
        let words = |change| words_of_twin("ext4", change);
        assert_eq!(words("commit=5m").as_deref(), Some("ext4:commit=300"));
        assert_eq!(words("expire=5m, commit=30s").as_deref(), Some("ext4:expire=5m:commit=30"));
        assert_eq!(
            (words("s3fifo"), words("ratio=40"), words("commit=30s, s3fifo")),
            (None, None, None)
        );
        assert_eq!(words("xfs,expire=5m").as_deref(), Some("xfs:sectors=4k:expire=5m"));
        let of_xfs = words_of_twin("xfs", "expire=5m,commit=5m");
        assert_eq!(of_xfs.as_deref(), Some("xfs:sectors=4k:expire=5m:xfssyncd=5m"));
    }
}
