//! `flashsift import`: converts a trace of any format to one file of our own.

use crate::{
    load::{self, Input},
    logging::{DETAIL, SUMMARY},
    size,
    usage::Usage,
};
use anyhow::Context;
use flashsift_events::event::{About, Event, Micros};
use flashsift_traces::{
    Error,
    annotations::{Annotations, Served, Split},
    events::{Sink, Skipped},
    pauses::{self, Restore},
    served, store,
    track_events::TrackEventWriter,
};
use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};
use tracing::{info, warn};

/// Convert a trace of any format into Parquet, CSV or Perfetto's format
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift import app.strace.xz -o app.parquet
  flashsift import - --format strace -o app.parquet < app.strace
  flashsift import app.parquet -o app.csv           the same rows as text
  flashsift import app.parquet -o app.pftrace       open it at ui.perfetto.dev
  flashsift import log.csv -o log.parquet \\
      --columns time=ts,file=path,op=rw,offset=off,len=bytes
  flashsift import raw.parquet -o day.parquet \\
      --pauses pauses.csv --requests requests.jsonl")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// Path of the trace to write; a name that ends in .csv gives CSV, one in .pftrace or
    /// .perfetto-trace TrackEvents of Perfetto
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Put pauses back that were cut short while recording: CSV with the header at_us,cut_us, the
    /// CLOCK_BOOTTIME at the end of each pause and the time cut out of it, in microseconds
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    pauses: Option<PathBuf>,

    /// Note what a web server sent during the trace: lines of JSON with boottime_us, method, url,
    /// status and bytes
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    requests: Option<PathBuf>,

    /// Note the part of the traces that this one belongs to: train, tune, or test (held apart)
    #[arg(long, value_name = "PART")]
    split: Option<Split>,
}

/// Notes CLOCK_BOOTTIME at the first and last event.
struct Span<'a> {
    sink: &'a mut dyn Sink,
    boot_us: Option<Micros>,
    last_us: Micros,
}

impl Sink for Span<'_> {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.boot_us = about.boot_us;
        self.sink.about(about)
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        self.last_us = events.last().map_or(self.last_us, |event| event.at_us);
        self.sink.events(events)
    }
}

/// Writes a trace in one of the forms.
enum Writer {
    Parquet(Box<store::Writer>),
    Csv(Box<store::csv::CsvWriter>),
    Perfetto(Box<TrackEventWriter>),
}

impl Sink for Writer {
    fn about(&mut self, about: About) -> Result<(), Error> {
        match self {
            Self::Parquet(writer) => writer.about(about),
            Self::Csv(writer) => writer.about(about),
            Self::Perfetto(writer) => writer.about(about),
        }
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        match self {
            Self::Parquet(writer) => writer.events(events),
            Self::Csv(writer) => writer.events(events),
            Self::Perfetto(writer) => writer.events(events),
        }
    }
}

/// The form of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Parquet,
    Csv,
    Perfetto,
}

impl Form {
    /// Returns the form that the name of an output asks for. A name that asks for another is
    /// refused: the file would not be what its name says.
    fn new(output: &Path) -> Result<Self, Usage> {
        const OTHERS: [&str; 11] =
            ["txt", "tsv", "json", "jsonl", "html", "gz", "xz", "zst", "bz2", "lzma", "zip"];
        let ending = output.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        match &*ending {
            "csv" => Ok(Self::Csv),
            "pftrace" | "perfetto-trace" => Ok(Self::Perfetto),
            other if OTHERS.contains(&other) => Err(Usage(format!(
                "-o {}: a trace is stored as Parquet (.parquet), as CSV (.csv) or for Perfetto \
                 (.pftrace), not as .{other}",
                output.display()
            ))),
            _ => Ok(Self::Parquet),
        }
    }

    /// Name of a form that has no place for notes on a trace.
    fn name(self) -> &'static str {
        match self {
            Self::Parquet => "Parquet",
            Self::Csv => "CSV",
            Self::Perfetto => "a trace of Perfetto",
        }
    }
}

/// Refuses the name of an output that is to be Parquet, if it asks for another format.
pub(crate) fn check_parquet(output: &Path) -> Result<(), Usage> {
    match Form::new(output)? {
        Form::Parquet => Ok(()),
        form => Err(Usage(format!(
            "-o {}: this command writes Parquet, of which `flashsift import T.parquet -o {}` makes \
             {}",
            output.display(),
            if form == Form::Csv { "T.csv" } else { "T.pftrace" },
            form.name()
        ))),
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let same = |path: &PathBuf| path.canonicalize().ok();
    if same(&args.output).is_some_and(|output| Some(output) == same(&args.input.trace)) {
        return Err(Usage("the output is the trace itself: give another -o".to_owned()).into());
    }
    let name = args.input.name();
    if args.output.as_os_str() == "-" {
        return Err(
            Usage("a store cannot go to standard output: give -o a file name".to_owned()).into()
        );
    }
    let at = |path: &Path| path.display().to_string();
    let form = Form::new(&args.output)?;
    let notes = args.pauses.is_some() || args.requests.is_some() || args.split.is_some();
    if form != Form::Parquet && notes {
        return Err(Usage(format!(
            "{} has no place for notes on a trace (--pauses, --requests, --split): give -o a name \
             that ends in .parquet",
            form.name()
        ))
        .into());
    }
    let cuts = args.pauses.as_deref().map(|path| -> anyhow::Result<_> {
        let file = BufReader::new(File::open(path).with_context(|| at(path))?);
        pauses::parse(file).with_context(|| at(path))
    });
    let cuts = cuts.transpose()?;
    let mut writer = match form {
        Form::Csv => Writer::Csv(Box::new(store::csv::CsvWriter::create(&args.output, &name)?)),
        Form::Perfetto => Writer::Perfetto(Box::new(TrackEventWriter::create(&args.output)?)),
        Form::Parquet => Writer::Parquet(Box::new(store::Writer::create(&args.output, &name)?)),
    };
    let (outcome, span, restored) = {
        let mut restore;
        let sink: &mut dyn Sink = match cuts {
            Some(cuts) => {
                restore = Some(Restore::new(cuts, &mut writer));
                restore.as_mut().expect("it was just set")
            }
            None => {
                restore = None;
                &mut writer
            }
        };
        let mut span = Span { sink, boot_us: None, last_us: 0 };
        let outcome = args.input.read(&mut span)?;
        let span = span.boot_us.map(|boot_us| (boot_us, span.last_us));
        (outcome, span, restore.map(Restore::finish))
    };
    // A copy of a stored trace keeps the omissions that its first reader noted, and all notes.
    let mut skipped = outcome.skipped.clone();
    let mut annotations = Annotations::default();
    if let Some(origin) = &outcome.origin {
        skipped.merge(&origin.skipped);
        annotations = origin.annotations.clone();
    }
    if annotations.restored.is_some() && (restored.is_some() || args.requests.is_some()) {
        anyhow::bail!(
            "{name} has restored pauses, so its times are no longer those of CLOCK_BOOTTIME: give \
             --pauses and --requests in one import of the recording itself"
        );
    }
    annotations.restored = restored.or(annotations.restored);
    annotations.split = args.split.or(annotations.split);
    if let Some(path) = &args.requests {
        let served = sum_requests(path, span).with_context(|| at(path))?;
        annotations.served = Some(served);
    }
    let notes = describe_annotations(&annotations);
    let bytes = match writer {
        Writer::Csv(writer) => {
            keeps_no_notes(form, &name, &annotations, &skipped)?;
            writer.finish()?
        }
        Writer::Perfetto(writer) => {
            keeps_no_notes(form, &name, &annotations, &skipped)?;
            writer.finish()?
        }
        Writer::Parquet(mut writer) => {
            writer.annotate(annotations);
            writer.finish(&skipped)?
        }
    };
    info!(
        target: SUMMARY,
        "{}: {} from {name} ({}), {}, {:.1} bytes an event",
        args.output.display(),
        size::counted(outcome.events, "event"),
        outcome.format,
        size::bytes(bytes),
        bytes as f64 / outcome.events as f64
    );
    load::log_skipped(&skipped);
    for note in notes {
        info!(target: DETAIL, "note: {note}");
    }
    Ok(())
}

/// Warns that a form has no place for notes. A trace that is held apart is refused: training would
/// not know it of the copy.
fn keeps_no_notes(
    form: Form,
    name: &str,
    annotations: &Annotations,
    skipped: &Skipped,
) -> anyhow::Result<()> {
    let form = form.name();
    anyhow::ensure!(
        annotations.split != Some(Split::Test),
        "{name} is held apart for tests, which {form} cannot say: give -o a name that ends in \
         .parquet"
    );
    if *annotations != Annotations::default() || !skipped.is_empty() {
        warn!("{form} keeps neither the notes on the trace nor what its reader left out");
    }
    Ok(())
}

/// `span`: CLOCK_BOOTTIME at time 0 of the trace, and the time of its last event.
fn sum_requests(path: &Path, span: Option<(Micros, Micros)>) -> anyhow::Result<Served> {
    let Some((boot_us, last_us)) = span else {
        anyhow::bail!(
            "the trace does not hold CLOCK_BOOTTIME at its beginning, so requests cannot be placed \
             in it: record it with this version of flashsift record (not --strace)"
        );
    };
    let file = BufReader::new(File::open(path)?);
    Ok(served::sum(file, boot_us..=boot_us.saturating_add(last_us))?)
}

/// Returns what commands noted about a trace, one sentence each.
pub(crate) fn describe_annotations(annotations: &Annotations) -> Vec<String> {
    let mut notes = Vec::new();
    match annotations.split {
        Some(Split::Train) => notes.push("It is for training.".to_owned()),
        Some(Split::Tune) => notes.push("It is for tuning.".to_owned()),
        Some(Split::Test) => notes.push("It is held apart for tests.".to_owned()),
        None => {}
    }
    if let Some(restored) = annotations.restored {
        let time = size::duration(restored.restored_us);
        let pauses = size::counted(restored.pauses, "pause");
        let mut note = format!("{time} of {pauses} that the recording cut short are put back");
        if restored.outside > 0 {
            note += &format!(" ({} more ended outside the trace)", size::count(restored.outside));
        }
        notes.push(note + ".");
    }
    if let Some(served) = annotations.served {
        notes.push(format!(
            "The web server answered {} with {}; {} of them sent a URL in full again, {}.",
            size::counted(served.requests, "request"),
            size::bytes(served.bytes),
            size::count(served.again_requests),
            size::bytes(served.again_bytes)
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `import -o x.csv` once wrote Parquet into a file of that name.
    #[test]
    fn an_output_is_what_its_name_says() {
        for (name, form) in [
            ("t.csv", Some(Form::Csv)),
            ("t.CSV", Some(Form::Csv)),
            ("t.parquet", Some(Form::Parquet)),
            ("t", Some(Form::Parquet)),
            ("t.v2", Some(Form::Parquet)),
            ("t.pftrace", Some(Form::Perfetto)),
            ("t.perfetto-trace", Some(Form::Perfetto)),
            ("t.json", None),
            ("t.csv.gz", None),
        ] {
            assert_eq!(Form::new(Path::new(name)).ok(), form, "{name}");
        }
        assert!(check_parquet(Path::new("t.parquet")).is_ok());
        assert!(check_parquet(Path::new("t.csv")).unwrap_err().to_string().contains("import"));
    }
}
