//! `--after-cache DIR`: what each cell sends to storage, one trace a cell.

use anyhow::Context;
use clap::ValueEnum;
use flashsift_core::{
    back::{Io, IoOp},
    event::{About, Action, Event, FileId, Knows, Side, Space},
    page::PAGE_BYTES,
    trace::Trace,
};
use flashsift_traces::{
    events::{Sink, Skipped},
    store,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// How an after-cache trace is written.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Format {
    /// flashsift's own store
    Parquet,
    /// For `fio --read_iolog`
    #[value(name = "fio-iolog-3")]
    FioIolog3,
}

/// Makes a trace a cell in one folder.
pub(crate) struct Writers<'a> {
    dir: &'a Path,
    format: Format,
    stem: String,
    about: About,
}

impl<'a> Writers<'a> {
    /// Makes the folder. Refuses a format that needs times where the trace has none.
    pub(crate) fn new(
        dir: &'a Path,
        format: Format,
        trace_name: &str,
        trace: &Trace,
    ) -> anyhow::Result<Self> {
        let times = trace.about().knows.times;
        if matches!(format, Format::FioIolog3) && !times {
            anyhow::bail!(
                "a fio iolog v3 has times and this trace has none: give --rate N, requests a second"
            );
        }
        fs::create_dir_all(dir).with_context(|| format!("{}: cannot be made a folder", dir.display()))?;
        // `browser.strace.xz` gives `browser`; standard input gives `trace`.
        let stem =
            trace_name.split('.').next().filter(|stem| !stem.is_empty() && *stem != "-").unwrap_or("trace");
        let knows = Knows { times, syncs: false, writes: true, removals: false };
        Ok(Self {
            dir,
            format,
            stem: stem.to_owned(),
            about: About { side: Side::After, space: Space::Blocks, knows },
        })
    }

    /// The trace of one cell, still without content.
    pub(crate) fn open(&self, policy: &str, frames: u32) -> anyhow::Result<Writer> {
        let name = |ending: &str| -> PathBuf {
            // A policy's parameters stand in its label: `clock:insert_ref=1`.
            let policy = policy.replace([':', ',', '='], "-");
            self.dir.join(format!("{}.{policy}.{frames}.{ending}", self.stem))
        };
        let mut writer = match self.format {
            Format::Parquet => store::Writer::create(&name("parquet"), &self.stem)?,
            Format::FioIolog3 => anyhow::bail!("not yet"),
        };
        writer.about(self.about)?;
        Ok(Writer { writer, batch: Vec::with_capacity(BATCH), error: None })
    }
}

const BATCH: usize = 1024;

/// Takes the requests of one cell. An error waits for [`Writer::finish`]: the simulator knows none.
pub(crate) struct Writer {
    writer: store::Writer,
    batch: Vec<Event>,
    error: Option<flashsift_traces::Error>,
}

impl Writer {
    pub(crate) fn take(&mut self, io: Io) {
        let (file, offset, len) = (FileId(0), io.lba * PAGE_BYTES, u64::from(io.pages) * PAGE_BYTES);
        let action = match io.op {
            IoOp::Read => Action::Read { file, offset, len },
            IoOp::Write => Action::Write { file, offset, len, sync: io.sync },
        };
        self.batch.push(Event { at_us: io.at_us, pid: 0, tid: 0, action });
        if self.batch.len() == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.writer.events(&self.batch).err();
        }
        self.batch.clear();
    }

    /// Gives the file its name.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        self.flush();
        match self.error {
            Some(error) => Err(error.into()),
            None => Ok(self.writer.finish(&Skipped::default()).map(drop)?),
        }
    }
}
