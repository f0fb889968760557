//! `flashsift describe`: the properties of a trace, before any cache is simulated.

use crate::{
    devices, html_page, import,
    load::{self, Input},
    records, size,
    usage::{self, Usage},
};
use anyhow::Context;
use flashsift_caches::{
    policy,
    trace::{Tables, TraceBuilder, Unit},
};
use flashsift_events::event::{About, Event};
use flashsift_pages::{
    device::{lifetime::Flash, wear::NotShown},
    metadata,
    readahead::{self, ReadAheadModel},
};
use flashsift_study::{
    ChargedConditions, ChargedRun, StudyError,
    describe::{Describer, FlashDevice, readahead_section},
};
use flashsift_traces::{Error, events::Sink};
use std::{io::Write, path::PathBuf};

mod figures;
pub(crate) mod json;
pub(crate) mod page;
mod sift;
pub(crate) mod text;

/// Describe a trace: reads and writes, reuse, lifetimes
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift describe trace.xz
  flashsift describe trace.xz --top 20
  flashsift describe trace.xz --device ufs-3.1 --capacity 128GiB      years
  flashsift describe trace.xz --metadata ext4         journal and metadata, too
  flashsift describe trace.xz --report trace.html     as a page with figures
  flashsift describe trace.xz --json | jq .fate

Pages that are read ahead in vain, by program and by file:
  flashsift describe trace.xz --readahead linux:128k --memory 256MiB

Files of caches, and the sifter to use:
  flashsift describe trace.parquet --sift")]
#[command(group = clap::ArgGroup::new("simulates").args(["readahead", "sift"]).multiple(true))]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// Number of files, directories and processes to list
    #[arg(long, value_name = "N", default_value = "5", value_parser = size::parse_count)]
    top: u64,

    /// A modelled device, for the years that its flash lasts: a name of `flashsift list devices`,
    /// or FILE.toml
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,

    /// Capacity of the device, for drive writes a day and years; default: the profile's
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    capacity: Option<u64>,
    /// Count the journal and the metadata of a file system, ext4 or f2fs, too, among the data that
    /// reaches flash; parameters as in compare
    #[arg(long, value_name = "FILE SYSTEM|off", default_value = "off")]
    metadata: String,

    /// Also simulate a page cache that reads ahead, and list the programs and files for which it
    /// reads most in vain: linux:128k, paper:32, … (see compare --help). It loads the whole trace
    /// into memory; other sections do not
    #[arg(long, value_name = "READ-AHEAD|off", default_value = "off")]
    readahead: String,

    /// With --readahead: size of the page cache; default: 256MiB. With --sift: memory of the page
    /// cache and the sifter; default: 32MiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory, requires = "simulates")]
    memory: Option<u32>,

    /// With --readahead: policy of the page cache, with parameters as name:key=value
    #[arg(long, value_name = "POLICY", default_value = "mglru", requires = "readahead")]
    policy: String,

    #[command(flatten)]
    sift: sift::SiftArgs,

    /// Print one JSON object, on one line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each value, with its key
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Write a page with figures for a browser; it contains everything and fetches nothing
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Memory limit; default: three quarters of the machine's memory
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    trace_memory: Option<u64>,
}

/// Page cache without `--memory`: 256 MiB, in pages.
const CACHE_PAGES: u32 = 65_536;

struct Describe {
    limit_bytes: u64,
    /// The side tables of the dense trace, if one is wanted.
    tables: Option<Tables>,
    builder: Option<TraceBuilder>,
    device: FlashDevice,
    metadata: Option<metadata::Selection>,
    describer: Option<Describer>,
    /// All events, if they are wanted.
    kept: Option<sift::KeptTrace>,
}

impl Sink for Describe {
    fn about(&mut self, about: About) -> Result<(), Error> {
        if let Some(tables) = self.tables {
            let builder = TraceBuilder::new(about, Unit::Page, self.limit_bytes);
            self.builder = Some(builder.with_tables(tables));
        }
        if let Some(kept) = &mut self.kept {
            kept.about(about)?;
        }
        let describer = Describer::new(about, self.limit_bytes).with_device(self.device);
        self.describer = Some(describer.with_metadata(self.metadata.take()));
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        if let Some(builder) = &mut self.builder {
            builder.extend(events).map_err(|error| Error::Sink(error.to_string()))?;
        }
        if let Some(kept) = &mut self.kept {
            kept.events(events)?;
        }
        let describer = self.describer.as_mut().expect("a reader describes its trace first");
        describer.extend(events).map_err(|error| Error::Sink(error.to_string()))
    }
}

/// Returns the device whose wear is described.
fn flash_device(args: &Args) -> anyhow::Result<FlashDevice> {
    let Some(name) = &args.device else {
        return Ok(FlashDevice { capacity_bytes: args.capacity, flash: None });
    };
    let device = devices::chosen_one(name)?;
    // No run shows the write amplification.
    let flash = Flash::new(&device.profile, Err(NotShown::NothingWritten));
    let own_bytes = device.profile.model.capacity_bytes();
    let with_capacity = |flash: Flash| Flash {
        capacity_bytes: args.capacity.unwrap_or(flash.capacity_bytes),
        ..flash
    };
    let capacity_bytes = args.capacity.or(own_bytes);
    Ok(FlashDevice { capacity_bytes, flash: Some(flash.map(with_capacity)) })
}

/// Returns the system with read-ahead that is to be simulated, if one is.
fn read_ahead(args: &Args, limit_bytes: u64) -> anyhow::Result<Option<ChargedConditions>> {
    let usage = |error: flashsift_events::params::Error| Usage(error.to_string());
    let readahead = readahead::parse(&args.readahead).map_err(usage)?;
    let policy = policy::Selection::parse(&args.policy).map_err(usage)?;
    if policy.spec.kind.is_offline() {
        return Err(Usage(format!("--policy {}: no kernel knows the future", args.policy)).into());
    }
    let frames = args.memory.unwrap_or(CACHE_PAGES);
    let conditions =
        ChargedConditions { readahead, policy, frames, memory_limit_bytes: limit_bytes };
    Ok(ReadAheadModel::new(&conditions.readahead).reads_ahead().then_some(conditions))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // An unwritable path is reported before the trace is read.
    let report = args.report.as_deref().map(html_page::Report::new).transpose()?;
    let limit_bytes = args.trace_memory.unwrap_or_else(load::default_limit_bytes);
    let device = flash_device(args)?;
    let metadata = usage::metadata(&args.metadata)?;
    let readahead = read_ahead(args, limit_bytes)?;
    let sifters = sift::Sifters::new(args)?;
    // The description, the trace and the events share the memory.
    let shares = 1 + u64::from(readahead.is_some()) + u64::from(sifters.is_some());
    let limit_bytes = limit_bytes / shares;
    let tables = readahead.as_ref().map(|run| ChargedConditions::tables(&run.readahead));
    let kept = sifters.is_some().then(|| sift::KeptTrace::new(limit_bytes));
    let (builder, describer) = (None, None);
    let mut sink = Describe { limit_bytes, tables, builder, device, metadata, describer, kept };
    let outcome = args.input.read(&mut sink)?;
    let describer = sink.describer.context("the reader gave no trace")?;
    let top = usize::try_from(args.top).unwrap_or(usize::MAX);
    let mut description = describer.finish(top);
    if let (Some(conditions), Some(builder)) = (readahead, sink.builder) {
        let trace = builder.finish()?;
        let ChargedRun { outcome, charges } =
            conditions.run(&trace).map_err(|error| match error {
                StudyError::Memory { .. } => anyhow::Error::new(error),
                unsuited => Usage(unsuited.to_string()).into(),
            })?;
        let label = conditions.readahead.label();
        let section = readahead_section(&trace, &label, conditions.frames, &outcome, &charges, top);
        description.sections.push(section);
    }
    if let (Some(sifters), Some(kept)) = (sifters, sink.kept) {
        description.sections.push(sifters.section(args, kept, top)?);
    }
    let name = args.input.name();
    load::log_left_out(&outcome);
    let annotations =
        outcome.origin.as_ref().map(|origin| origin.annotations.clone()).unwrap_or_default();
    let notes = import::describe_annotations(&annotations);
    if let Some(report) = report {
        report.write(&page::build(args, &name, &outcome, notes.clone(), &description))?;
    }
    let mut out = records::Output::keys(args.json, args.csv);
    if args.json || args.csv {
        serde_json::to_writer(
            &mut out,
            &json::DescriptionRecord::new(&name, outcome.format, &annotations, &description),
        )?;
        writeln!(out)?;
    } else {
        out.write_all(
            text::render(&name, outcome.format, &notes, &description, crate::text::in_color())
                .as_bytes(),
        )?;
    }
    out.finish()
}
