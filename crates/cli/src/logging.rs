//! Messages: what is logged with [`tracing`] goes to standard error or to the systemd journal.
//!
//! Results are printed on standard output and are not logged. A message at the level `info` reads
//! `flashsift: MESSAGE` on standard error; a warning reads `flashsift: warning: MESSAGE`. Two
//! targets change the form of a line, not its level: [`SUMMARY`] and [`DETAIL`].
//!
//! On standard error only the message is shown. Further fields of an event, such as a path or an
//! errno, are for the journal, which stores each of them as `FLASHSIFT_NAME`.

use clap::{ArgAction, Args};
use flashsift_events::show;
use indicatif::{ProgressBar, WeakProgressBar};
use std::{
    env,
    fmt::{self, Write as _},
    io::{self, Write as _},
    panic,
    sync::{Mutex, OnceLock, PoisonError},
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry::{LookupSpan, Registry},
};

/// Target of a line that describes the subject of a command: it is shown without `flashsift:`.
pub(crate) const SUMMARY: &str = "flashsift::summary";

/// Target of a line that belongs to the summary above it: it is shown indented.
pub(crate) const DETAIL: &str = "flashsift::detail";

/// Heading of the options that every command has.
pub(crate) const HEADING: &str = "All commands";

/// How much is logged: `-v` adds debugging messages, `-q` leaves warnings and errors.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Verbosity {
    // Both stand behind a command's own options, before --help.
    /// Log more to standard error: -v debugging messages, -vv all
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet",
        help_heading = HEADING, hide_short_help = true, display_order = 990)]
    verbose: u8,

    /// Log less: -q only warnings and errors, -qq only errors
    #[arg(short, long, global = true, action = ArgAction::Count,
        help_heading = HEADING, hide_short_help = true, display_order = 991)]
    quiet: u8,
}

impl Verbosity {
    fn level(self) -> LevelFilter {
        match (self.quiet, self.verbose) {
            (0, 0) => LevelFilter::INFO,
            (0, 1) => LevelFilter::DEBUG,
            (0, _) => LevelFilter::TRACE,
            (1, _) => LevelFilter::WARN,
            (_, _) => LevelFilter::ERROR,
        }
    }
}

/// Starts logging, to the journal if standard error is connected to it and to standard error
/// otherwise. The first call decides; later calls change nothing.
pub(crate) fn start(verbosity: Verbosity) {
    let subscriber = Registry::default().with(verbosity.level()).with(Messages);
    // A second subscriber is refused: then the first one stays.
    if tracing::subscriber::set_global_default(subscriber).is_ok() && stderr_is_journal() {
        // Without its socket the journal still reads standard error, as text without levels.
        if let Err(error) = to_journal() {
            tracing::debug!(
                "no connection to the journal ({error}): messages go to standard error"
            );
        }
    }
}

/// From now on messages go to the journal, also those of panics; standard error gets none.
///
/// # Errors
///
/// No journal is running. Messages still go to standard error then.
pub(crate) fn to_journal() -> io::Result<()> {
    if JOURNAL.get().is_some() {
        return Ok(());
    }
    let journal = tracing_journald::layer()?
        .with_field_prefix(Some("FLASHSIFT".to_owned()))
        .with_syslog_identifier("flashsift".to_owned());
    if JOURNAL.set(journal).is_ok() {
        panic::set_hook(Box::new(|info| tracing::error!("{info}")));
    }
    Ok(())
}

/// Performs this before the next message on standard error, which may be that of a panic.
pub(crate) fn before_next(act: Box<dyn FnOnce() + Send>) {
    *BEFORE_NEXT.lock().unwrap_or_else(PoisonError::into_inner) = Some(act);
    panic::set_hook(Box::new(|info| tracing::error!("{info}")));
}

/// Messages appear above `bar` for as long as it is drawn.
pub(crate) fn keep_below(bar: &ProgressBar) {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.downgrade());
}

/// Whether messages at the level `info` are shown: `-q` hides progress bars too.
pub(crate) fn is_quiet() -> bool {
    !tracing::enabled!(Level::INFO)
}

static JOURNAL: OnceLock<tracing_journald::Layer> = OnceLock::new();
static BEFORE_NEXT: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);
static BAR: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// systemd sets `JOURNAL_STREAM` to the device and the inode of the journal's end of standard
/// error. A child with its standard error elsewhere inherits the variable, so the numbers are
/// compared.
fn stderr_is_journal() -> bool {
    let Ok(stat) = rustix::fs::fstat(rustix::stdio::stderr()) else {
        return false;
    };
    env::var("JOURNAL_STREAM")
        .is_ok_and(|stream| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Writes each event where messages go at the moment.
struct Messages;

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Messages {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        match JOURNAL.get() {
            Some(journal) => journal.on_event(event, context),
            None => print(event),
        }
    }
}

/// Writes one line in one piece. A standard error that is closed or full is no reason to fail.
fn print(event: &Event<'_>) {
    // Messages of other threads wait until it is done.
    let mut before = BEFORE_NEXT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(act) = before.take() {
        act();
    }
    drop(before);
    let mut line = Line(prefix(event.metadata()).to_owned());
    event.record(&mut line);
    line.0.push('\n');
    // Paths and messages of the system in it have no effect on a terminal.
    let line = show::lines(&line.0, false);
    let write = || {
        let _ = io::stderr().write_all(line.as_bytes());
    };
    let bar = BAR
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .and_then(WeakProgressBar::upgrade);
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

fn prefix(metadata: &Metadata<'_>) -> &'static str {
    match (metadata.target(), *metadata.level()) {
        (SUMMARY, _) => "",
        (DETAIL, _) => "  ",
        (_, Level::WARN) => "flashsift: warning: ",
        (_, Level::ERROR | Level::INFO) => "flashsift: ",
        (_, Level::DEBUG) => "flashsift: debug: ",
        (_, Level::TRACE) => "flashsift: trace: ",
    }
}

/// A line on standard error: a prefix, then the message of an event.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        verbosity: Verbosity,
    }

    #[test]
    fn flags_choose_the_level() {
        for (flags, level) in [
            ("", LevelFilter::INFO),
            ("-v", LevelFilter::DEBUG),
            ("-vv", LevelFilter::TRACE),
            ("--quiet", LevelFilter::WARN),
            ("-q -q", LevelFilter::ERROR),
        ] {
            let cli =
                Cli::try_parse_from(["flashsift"].into_iter().chain(flags.split_whitespace()));
            assert_eq!(cli.ok().unwrap().verbosity.level(), level, "{flags}");
        }
        assert!(Cli::try_parse_from(["flashsift", "-q", "-v"]).is_err(), "both make no sense");
    }
}
