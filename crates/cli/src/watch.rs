//! Watching a machine for some time, until Ctrl-C or SIGTERM ends it early.

use crate::{logging, size};
use anyhow::Context;
use flashsift_record::Stop;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{
    io::IsTerminal,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tracing::info;

/// The end of a watch, with a progress bar if standard error is a terminal.
pub(crate) struct Until {
    interrupted: Arc<AtomicBool>,
    time: Duration,
    begun: Instant,
    bar: ProgressBar,
    /// Noun for what the bar counts.
    counted: &'static str,
}

impl Until {
    /// From now on, signals end the watch and not the program.
    pub(crate) fn new(time: Duration, counted: &'static str) -> anyhow::Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, interrupted.clone()).context("signals")?;
        }
        Ok(Self { interrupted, time, begun: Instant::now(), bar: bar(time), counted })
    }

    /// Returns the time since the watch began, and removes the bar.
    pub(crate) fn finish(&self) -> Duration {
        let elapsed = self.begun.elapsed();
        self.bar.finish_and_clear();
        elapsed
    }
}

impl Stop for Until {
    fn begun(&mut self) {
        self.begun = Instant::now();
        if self.bar.is_hidden() {
            let time = size::duration(self.time.as_micros() as u64);
            info!("watching for {time}; Ctrl-C or SIGTERM ends it");
        }
    }

    fn now(&mut self, events: u64) -> bool {
        let elapsed = self.begun.elapsed();
        self.bar.set_position(elapsed.min(self.time).as_millis() as u64);
        self.bar.set_message(size::counted(events, self.counted));
        self.interrupted.load(Relaxed) || elapsed >= self.time
    }
}

fn bar(time: Duration) -> ProgressBar {
    if logging::is_quiet() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("watching [{bar:30}] {elapsed} {msg} (Ctrl-C ends it)")
            .expect("templates are constants");
    let bar = ProgressBar::new(time.as_millis() as u64).with_style(style);
    logging::keep_below(&bar);
    bar
}
