//! Reads traces without holding Python's lock. Ctrl-C ends the reading.

use crate::error::FlashsiftError;
use flashsift_caches::trace::{Trace, TraceBuilder, Unit};
use flashsift_events::{
    event::{About, Action, Event},
    page::PAGE_BYTES,
};
use flashsift_traces::{Error, events::Sink, open};
use pyo3::prelude::*;
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// Time between two looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Passes events on until it is stopped.
struct Stoppable<'a, S> {
    sink: &'a mut S,
    stop: &'a AtomicBool,
}

impl<S: Sink> Stoppable<'_, S> {
    fn go_on(&self) -> Result<(), Error> {
        match self.stop.load(Relaxed) {
            true => Err(Error::Sink("interrupted".to_owned())),
            false => Ok(()),
        }
    }
}

impl<S: Sink> Sink for Stoppable<'_, S> {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.go_on()?;
        self.sink.about(about)
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        self.go_on()?;
        self.sink.events(events)
    }
}

/// Reads a trace into `sink`.
pub(crate) fn read<S: Sink + Send>(
    py: Python<'_>,
    path: &Path,
    format: Option<&str>,
    sink: &mut S,
) -> PyResult<open::Outcome> {
    let stop = AtomicBool::new(false);
    let waiting = thread::current();
    py.detach(|| {
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut sink = Stoppable { sink, stop: &stop };
                let read = open::read(path, format, &mut sink, &open::Limits::default());
                waiting.unpark();
                read
            });
            let mut signal = Ok(());
            while !reader.is_finished() && signal.is_ok() {
                thread::park_timeout(LOOK);
                signal = Python::attach(|py| py.check_signals());
            }
            stop.store(signal.is_err(), Relaxed);
            let read = reader.join().expect("readers do not panic");
            signal?;
            read.map_err(failed)
        })
    })
}

/// Makes a trace dense.
pub(crate) struct Densify {
    limit_bytes: u64,
    builder: Option<TraceBuilder>,
}

impl Sink for Densify {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.builder = Some(TraceBuilder::new(about, Unit::Page, self.limit_bytes));
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        let builder = self.builder.as_mut().expect("a reader says what its trace is about first");
        builder.extend(events).map_err(|error| Error::Sink(error.to_string()))
    }
}

impl Densify {
    /// Reads a trace, which may take this much memory.
    pub(crate) fn trace(
        py: Python<'_>,
        path: &Path,
        format: Option<&str>,
        limit_bytes: u64,
    ) -> PyResult<Trace> {
        let mut sink = Self { limit_bytes, builder: None };
        read(py, path, format, &mut sink)?;
        let builder = sink.builder.ok_or_else(|| failed("the reader gave no trace"))?;
        py.detach(|| builder.finish()).map_err(failed)
    }
}

/// Counts requests, and pages that they access.
#[derive(Default)]
struct Counted {
    requests: u64,
    accesses: u64,
}

impl Sink for Counted {
    fn about(&mut self, _: About) -> Result<(), Error> {
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        for event in events {
            let (Action::Read { offset, len, .. } | Action::Write { offset, len, .. }) =
                event.action
            else {
                continue;
            };
            let end = offset.saturating_add(len).div_ceil(PAGE_BYTES);
            self.requests += 1;
            self.accesses += end - (offset / PAGE_BYTES).min(end);
        }
        Ok(())
    }
}

/// Returns the reads and writes of a trace, and the pages that they access, in constant memory.
#[pyfunction]
#[pyo3(signature = (path, format=None))]
pub(crate) fn inspect(
    py: Python<'_>,
    path: PathBuf,
    format: Option<String>,
) -> PyResult<(u64, u64)> {
    let mut counted = Counted::default();
    read(py, &path, format.as_deref(), &mut counted)?;
    Ok((counted.requests, counted.accesses))
}

/// Returns an error with the words of the command line.
pub(crate) fn failed(error: impl std::fmt::Display) -> PyErr {
    FlashsiftError::new_err(error.to_string())
}
