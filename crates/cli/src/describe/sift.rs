//! `describe --sift`: runs each sifter over the trace, and hands the results to the description.

use super::Args;
use crate::{
    compare::{
        schedule,
        sift::{self, SifterMemory},
    },
    load, size,
    usage::Usage,
};
use anyhow::Context;
use flashsift_caches::trace::TraceError;
use flashsift_events::{
    event::{About, Event},
    page::PAGE_BYTES,
    params::Listed,
};
use flashsift_files::{
    sift::{Droppable, SelectedSifter, Selection, Spec, model::FileModel},
    sift_advice::{JudgedSifter, SiftAdvice, SiftSlices},
    sift_directories::SiftDirectories,
    sifting::{SiftError, Sifting},
};
use flashsift_study::{
    Wave,
    describe::{Section, SiftedTrace, sift_section},
};
use flashsift_traces::{
    Error,
    events::{Kept, Sink},
};

/// Sifters that are not a choice: without an effect, without a judgement, or without syncs.
const NO_CHOICE: [&str; 3] = ["none", "random", "tmpfs"];

/// The bound beside the sifters that know no future.
const BOUND: &str = "oracle";

/// The sifter's part of the memory by default, as in `compare`.
const HALF: &str = "50%";

#[derive(clap::Args)]
pub(super) struct SiftArgs {
    /// Also run sifters over the trace: which directories hold droppable files, what each sifter
    /// would keep from flash, what applications would fetch again for it, and which one to use.
    /// Default: every sifter that knows no future, and the oracle; others as in compare --sift. It
    /// holds all events in memory
    #[arg(long, value_name = "SIFTER,…", value_delimiter = ',', num_args = 0..=1)]
    sift: Option<Vec<String>>,

    /// With --sift: memory that the sifter takes of --memory, a size or a share in percent
    #[arg(long, value_name = "SIZE|N%", default_value = HALF, requires = "sift")]
    sift_memory: SifterMemory,

    /// With --sift: files that the sifter may drop, as in compare. Default: files in directories
    /// whose name contains `cache`
    #[arg(long, value_name = "PATTERN", requires = "sift")]
    droppable: Vec<String>,

    /// With --sift: the most that a recommended sifter may let applications fetch again, as a share
    /// of the data of droppable files that reaches flash without a sifter
    #[arg(long, value_name = "N%", default_value = "5%", value_parser = size::parse_share, requires = "sift")]
    fetch_again: f64,
}

/// All events of a trace, within a limit of memory.
pub(super) struct KeptTrace {
    limit_bytes: u64,
    kept: Kept,
}

impl KeptTrace {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, kept: Kept::default() }
    }
}

impl Sink for KeptTrace {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.kept.about(about)
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        self.kept.events(events)?;
        let requests = self.kept.events.len() as u64;
        let limit_bytes = self.limit_bytes;
        match requests * size_of::<Event<'static>>() as u64 > limit_bytes {
            true => {
                Err(Error::Sink(TraceError::TooMuchMemory { limit_bytes, requests }.to_string()))
            }
            false => Ok(()),
        }
    }
}

/// The sifters to run, with their models.
pub(super) struct Sifters {
    chosen: Vec<Selection>,
    models: Vec<(String, FileModel)>,
}

impl Sifters {
    /// Returns the sifters that are asked for; `None`: none are.
    pub(super) fn new(args: &Args) -> anyhow::Result<Option<Self>> {
        let Some(texts) = &args.sift.sift else { return Ok(None) };
        let chosen = match texts.is_empty() {
            true => Spec::ALL
                .iter()
                .map(Selection::default_of)
                .filter(|sifter| match sifter.is_offline() {
                    true => sifter.spec.name == BOUND,
                    false => !NO_CHOICE.contains(&sifter.spec.name),
                })
                .collect(),
            false => sift::sifters(texts)?,
        };
        let models = sift::models(&chosen)?;
        Ok(Some(Self { chosen, models }))
    }

    /// Runs the sifters and describes their effects.
    pub(super) fn section(
        self,
        args: &Args,
        trace: KeptTrace,
        top: usize,
    ) -> anyhow::Result<Section> {
        let Kept { about, events } = trace.kept;
        let about = about.context("the reader gave no trace")?;
        let droppable = Droppable::matching(&args.sift.droppable);
        let directories = SiftDirectories::new(&events, &droppable);
        let mut sifting = Sifting::new(&events, about, droppable)
            .map_err(|error| anyhow::Error::msg(refusal(&error, &directories)))?;
        for (path, model) in self.models {
            sifting.add_model(path, model);
        }
        let slices = SiftSlices::new(&events);
        sifting.cut(slices.begins_us.clone());
        let memory_pages = args.memory.unwrap_or(sift::MEMORY_PAGES);
        let sifter_bytes = u64::from(args.sift.sift_memory.pages_of(memory_pages)) * PAGE_BYTES;
        let none = Selection::parse("none").map_err(|error| Usage(error.to_string()))?;
        let others = self.chosen.into_iter().filter(|sifter| sifter.label() != "none");
        let runs: Vec<(Selection, u64)> =
            std::iter::once((none, 0)).chain(others.map(|sifter| (sifter, sifter_bytes))).collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let waves = [Wave { cells: 0..runs.len(), at_once: cores }];
        let bar = load::progress("sifters", "{spinner} {msg} {bar:30} {pos}/{len}");
        bar.set_length(runs.len() as u64);
        let outcomes = schedule::in_waves(&waves, |n| {
            let (sifter, ram_bytes) = &runs[n];
            let outcome = sifting.sift(sifter, *ram_bytes, |_| ());
            bar.inc(1);
            Ok(outcome.map_err(|error| Usage(SiftError::from(error).to_string()))?)
        });
        bar.finish_and_clear();
        let mut outcomes = outcomes?.into_iter();
        let stock = outcomes.next().context("the first run has no sifter")?;
        let judged = runs[1..].iter().zip(outcomes).map(|((sifter, _), outcome)| {
            JudgedSifter::new(sifter.label(), sifter.is_offline(), &stock, outcome)
        });
        let judged = judged.collect();
        let fetched_again_max = args.sift.fetch_again;
        let advice = SiftAdvice { slices, stock, judged, fetched_again_max };
        let sifted = SiftedTrace {
            directories: &directories,
            advice: &advice,
            memory_bytes: u64::from(memory_pages) * PAGE_BYTES,
            sifter_bytes,
            command: &command(args, &advice, memory_pages),
        };
        Ok(sift_section(sifted, top))
    }
}

/// Returns the error in words. If no file may be dropped, it names directories whose files a
/// pattern would make droppable.
fn refusal(error: &SiftError, directories: &SiftDirectories) -> String {
    let named = directories.candidates.iter().take(3).map(|one| format!("'{}'", one.pattern()));
    let named: Vec<String> = named.collect();
    match error {
        SiftError::NothingDroppable if !named.is_empty() => {
            format!("{error}. Most data goes to files of {}", named.join(", "))
        }
        error => error.to_string(),
    }
}

/// Returns the comparison that shows the recommended sifter; all sifters if none is recommended.
fn command(args: &Args, advice: &SiftAdvice, memory_pages: u32) -> String {
    let sifters = match advice.recommended() {
        Some(one) => one.name.clone(),
        None => advice.judged.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(","),
    };
    let kib = u64::from(memory_pages) * PAGE_BYTES / 1024;
    let memory = match kib % 1024 {
        0 => format!("{}MiB", kib / 1024),
        _ => format!("{kib}KiB"),
    };
    let mut words = vec!["flashsift".to_owned(), "compare".to_owned()];
    words.push(args.input.trace.display().to_string());
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    if let Some(columns) = &args.input.columns {
        option("columns", columns.clone());
    }
    if let Some(format) = &args.input.format {
        option("format", format.clone());
    }
    if let Some(rate) = args.input.rate {
        option("rate", rate.to_string());
    }
    option("sift", sifters);
    option("memory", memory);
    if args.sift.sift_memory.to_string() != HALF {
        option("sift-memory", args.sift.sift_memory.to_string());
    }
    args.sift.droppable.iter().for_each(|pattern| option("droppable", pattern.clone()));
    // A name with a NUL byte cannot come from a command line.
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
}
