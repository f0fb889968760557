//! The shared parts of all HTML pages: the output file, the description of the trace, and the
//! command that reproduces the page.

use crate::{
    load::{Input, Loaded},
    logging::DETAIL,
    size, text,
};
use anyhow::Context;
use flashsift_events::{
    event::{About, Side, Space},
    page::PAGE_BYTES,
};
use flashsift_report::{Page, Reproduce};
use flashsift_traces::{events::Skipped, open, replace::Replace};
use std::{io::Write, path::Path};
use tracing::info;

/// A page to be written.
pub(crate) struct Report<'a> {
    path: &'a Path,
    file: Replace,
}

impl<'a> Report<'a> {
    /// Fails if the file cannot be written.
    pub(crate) fn new(path: &'a Path) -> anyhow::Result<Self> {
        let file = Replace::new(path)
            .with_context(|| format!("cannot write the report {}", path.display()))?;
        Ok(Self { path, file })
    }

    /// Writes the whole page atomically and reports its path.
    pub(crate) fn write(mut self, page: &Page) -> anyhow::Result<()> {
        let at = || format!("cannot write the report {}", self.path.display());
        self.file.write_all(page.html().as_bytes()).with_context(at)?;
        let bytes = self.file.commit().with_context(at)?;
        info!(target: DETAIL, "report: {} ({})", self.path.display(), size::bytes(bytes));
        Ok(())
    }
}

/// Says which side made how many requests to what, in how much time.
pub(crate) fn requests(about: About, requests: u64, duration_us: u64) -> String {
    let side = match about.side {
        Side::Before => "Applications",
        Side::After => "The page cache",
    };
    let space = match about.space {
        Space::Files => "to files",
        Space::Blocks => "to block devices",
        Space::Objects => "for objects",
    };
    let time = match about.knows.times {
        true => format!(" in {}", text::unbroken(&size::duration(duration_us))),
        false => String::new(),
    };
    format!("{side} made {} {space}{time}", text::unbroken(&size::counted(requests, "request")))
}

/// Describes the subject of the page in one line.
pub(crate) fn line(loaded: &Loaded) -> String {
    let totals = loaded.trace.totals();
    let pages = u64::from(loaded.trace.touched_pages());
    let footprint = match loaded.trace.runs().is_empty() {
        true => format!("{} different", size::count(pages)),
        false => format!("{} of different pages", size::bytes(pages * PAGE_BYTES)),
    };
    format!(
        "{}: {}, {}, {footprint}.",
        requests(loaded.trace.about(), totals.requests, totals.duration_us),
        size::counted(totals.read_accesses, "page read"),
        size::counted(totals.write_accesses, "page write")
    )
}

/// Commands, versions, the trace and what was left out of it.
pub(crate) fn reproduce(input: &Input, outcome: &open::Outcome) -> Reproduce {
    let mut card = vec![
        ("flashsift".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("trace".to_owned(), input.trace.display().to_string()),
        ("format".to_owned(), outcome.format.to_owned()),
        ("size".to_owned(), format!("{} bytes", size::count(outcome.bytes))),
        ("events".to_owned(), size::count(outcome.events)),
    ];
    left_out(&mut card, "", &outcome.skipped);
    if let Some(origin) = &outcome.origin {
        card.push(("origin".to_owned(), origin.trace.clone()));
        left_out(&mut card, " on import", &origin.skipped);
    }
    Reproduce { card, ..command() }
}

/// The command line of this process.
pub(crate) fn command() -> Reproduce {
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = std::iter::once("flashsift").chain(words.iter().skip(1).map(String::as_str));
    // An argument with a NUL byte cannot come from a command line.
    let command = shlex::try_join(program).unwrap_or_default();
    Reproduce { commands: vec![command], card: Vec::new() }
}

fn left_out(card: &mut Vec<(String, String)>, when: &str, skipped: &Skipped) {
    for (reason, counts) in skipped.iter() {
        let what = if counts.note { "note" } else { "skipped" };
        card.push((format!("{what}{when}"), format!("{}: {reason}", size::count(counts.count))));
    }
}
