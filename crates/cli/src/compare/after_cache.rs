//! `--after-cache DIR`: the requests that each cell sends to storage, one trace a cell.

use crate::load::Loaded;
use anyhow::Context;
use clap::ValueEnum;
use flashsift_caches::{
    lines::{LineCounts, Lines},
    trace::Run,
};
use flashsift_events::{
    event::{About, Action, Event, FileId, Knows, Side, Space},
    io::{Io, IoOp},
    page::{PAGE_BYTES, Page},
};
use flashsift_study::Sent;
use flashsift_traces::{
    annotations::{Annotations, Split},
    events::{Sink, Skipped},
    fio_log::FioLog,
    replace::Replace,
    store,
};
use std::{
    fs,
    io::BufWriter,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Format of an after-cache trace.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Format {
    /// flashsift's own store
    Parquet,
    /// For `fio --read_iolog=… --replay_redirect=FILE`
    #[value(name = "fio-iolog-3")]
    FioIolog3,
}

/// Writes one trace for each cell into one folder.
pub(super) struct Writers<'a> {
    dir: &'a Path,
    format: Format,
    stem: String,
    /// Part of the names of files, if several choices of write-back modes are compared.
    mode: Option<String>,
    /// The part of the traces that the trace belongs to, and so do its after-cache traces.
    split: Option<Split>,
    about: About,
    /// The files of the trace's pages.
    runs: Arc<Vec<Run>>,
}

impl<'a> Writers<'a> {
    /// Creates the folder. Refuses a format that needs times if the trace has none.
    pub(super) fn new(
        dir: &'a Path,
        format: Format,
        trace_name: &str,
        mode: Option<String>,
        loaded: &Loaded,
    ) -> anyhow::Result<Self> {
        let times = loaded.trace.about().knows.times;
        if matches!(format, Format::FioIolog3) && !times {
            anyhow::bail!(
                "a fio iolog v3 has times and this trace has none: give --rate N, requests a second"
            );
        }
        fs::create_dir_all(dir)
            .with_context(|| format!("{}: cannot be made a folder", dir.display()))?;
        let stem = stem(trace_name);
        let knows = Knows { times, syncs: true, writes: true, removals: true, ..Knows::NOTHING };
        Ok(Self {
            runs: loaded.trace.shared_runs(),
            dir,
            format,
            stem: stem.to_owned(),
            mode,
            split: loaded.outcome.split(),
            about: About {
                epoch_us: None,
                boot_us: None,
                side: Side::After,
                space: Space::Blocks,
                knows,
            },
        })
    }

    fn path(&self, policy: &str, frames: u32) -> PathBuf {
        let ending = match self.format {
            Format::Parquet => "parquet",
            Format::FioIolog3 => "iolog",
        };
        // Parameters are part of a label, and a system follows its policy: `lru flush-nvm:mib=1`.
        let plain = |label: &str| label.replace([':', ',', '=', ' '], "-");
        let mode = self.mode.as_ref().map_or_else(String::new, |mode| format!(".{}", plain(mode)));
        self.dir.join(format!("{}.{}{mode}.{frames}.{ending}", self.stem, plain(policy)))
    }

    /// Fails before the simulation if a cell's file exists: it may belong to another trace, or be
    /// the input itself.
    pub(super) fn check_free(&self, policy: &str, frames: u32) -> anyhow::Result<()> {
        let path = self.path(policy, frames);
        if path.symlink_metadata().is_ok() {
            anyhow::bail!(
                "{} exists and is not replaced: remove it or give another folder",
                path.display()
            );
        }
        Ok(())
    }

    /// Creates the trace of one cell, still empty.
    pub(super) fn open(&self, policy: &str, frames: u32) -> anyhow::Result<Writer> {
        let path = self.path(policy, frames);
        let log = match self.format {
            Format::Parquet => {
                let mut writer = store::Writer::create(&path, &self.stem)?;
                writer.annotate(Annotations { split: self.split, ..Annotations::default() });
                writer.about(self.about)?;
                let batch = Vec::with_capacity(BATCH);
                Log::Parquet { writer: Box::new(writer), batch, runs: self.runs.clone() }
            }
            Format::FioIolog3 => {
                let at = || path.display().to_string();
                let file = Replace::new(&path).with_context(at)?;
                Log::Fio(
                    FioLog::new(BufWriter::new(file), FIO_TARGET, self.about.knows)
                        .with_context(at)?,
                )
            }
        };
        Ok(Writer { log, error: None })
    }
}

/// Returns the name without the extensions of its compression and format: `browser.strace.xz` gives
/// `browser`, standard input `trace`.
fn stem(trace_name: &str) -> &str {
    const ENDINGS: [&str; 12] = [
        ".gz",
        ".zst",
        ".xz",
        ".bin",
        ".txt",
        ".csv",
        ".strace",
        ".parquet",
        ".iolog",
        ".sectors",
        ".mobigen",
        ".oracleGeneral",
    ];
    let mut stem = trace_name;
    while let Some(shorter) =
        ENDINGS.iter().find_map(|ending| stem.strip_suffix(ending)).filter(|s| !s.is_empty())
    {
        stem = shorter;
    }
    if stem == "-" { "trace" } else { stem }
}

const BATCH: usize = 1024;

/// A name under `/dev`, so that fio reads the log as one of a block device; `--replay_redirect`
/// sets the real device.
const FIO_TARGET: &str = "/dev/flashsift-target";

/// Takes the requests of one cell. [`Writer::finish`] returns an error: the simulator has no
/// errors.
pub(super) struct Writer {
    log: Log,
    error: Option<flashsift_traces::Error>,
}

enum Log {
    Parquet { writer: Box<store::Writer>, batch: Vec<Event<'static>>, runs: Arc<Vec<Run>> },
    Fio(FioLog<BufWriter<Replace>>),
}

impl Writer {
    pub(super) fn take(&mut self, sent: Sent<'_>) {
        if self.error.is_none() {
            self.error = match sent {
                Sent::Requests(requests) => {
                    requests.iter().try_for_each(|io| self.log.take(*io)).err()
                }
                Sent::Memory { at_us, lines } => self.log.memory(at_us, lines).err(),
            };
        }
    }

    /// Renames the complete file to its final name.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        if let Some(error) = self.error {
            return Err(error.into());
        }
        match self.log {
            Log::Parquet { mut writer, batch, .. } => {
                writer.events(&batch)?;
                writer.finish(&Skipped::default())?;
            }
            Log::Fio(log) => {
                log.finish()?
                    .into_inner()
                    .map_err(std::io::IntoInnerError::into_error)?
                    .commit()?;
            }
        }
        Ok(())
    }
}

impl Log {
    /// Takes accesses to memory. A log of fio cannot hold them.
    fn memory(&mut self, at_us: u64, lines: Lines) -> Result<(), flashsift_traces::Error> {
        let Self::Parquet { writer, batch, .. } = self else { return Ok(()) };
        for (nvm, LineCounts { read, written }) in [(false, lines.dram), (true, lines.nvm)] {
            if read + written > 0 {
                let action = Action::MemoryLines { nvm, read, written };
                batch.push(Event { at_us, pid: 0, tid: 0, action });
            }
        }
        if batch.len() >= BATCH {
            writer.events(batch)?;
            batch.clear();
        }
        Ok(())
    }

    fn take(&mut self, io: Io) -> Result<(), flashsift_traces::Error> {
        let end =
            io.lba.checked_add(u64::from(io.pages)).and_then(|end| end.checked_mul(PAGE_BYTES));
        if end.is_none_or(|end| end > i64::MAX as u64) {
            let message = format!(
                "place {} on the device lies beyond 2^63 bytes: no trace can hold it",
                io.lba
            );
            return Err(flashsift_traces::Error::TooLarge(message));
        }
        let (file, offset, len) =
            (FileId(0), io.lba * PAGE_BYTES, u64::from(io.pages) * PAGE_BYTES);
        let (writer, batch, runs) = match self {
            Self::Fio(log) => return log.request(&io),
            Self::Parquet { writer, batch, runs } => (writer, batch, runs),
        };
        let action = match io.op {
            IoOp::Read => Action::Read { open: None, file, offset, len },
            // The flush that follows makes writes of a sync durable.
            IoOp::Write => Action::Write { open: None, file, offset, len, sync: false },
            IoOp::Flush => Action::Sync { file, offset: 0, len: u64::MAX, data_only: false },
            IoOp::Discard => Action::Punch { file, offset, len },
        };
        let (at_us, pid, awaited) = (io.at_us, io.cause.process, io.awaited);
        if io.op != IoOp::Discard {
            let origin = io.cause.page.and_then(|page| origin(runs, page));
            batch.push(Event { at_us, pid, tid: 0, action: Action::Cause { origin, awaited } });
        }
        batch.push(Event { at_us, pid, tid: 0, action });
        if batch.len() >= BATCH {
            writer.events(batch)?;
            batch.clear();
        }
        Ok(())
    }
}

/// Returns the file of a page and its first byte in it; `None` for units without a place.
fn origin(runs: &[Run], page: Page) -> Option<(FileId, u64)> {
    let run = &runs[..runs.partition_point(|run| run.first <= page.0)].last()?;
    let offset = page.0 - run.first;
    (offset < run.pages).then(|| (run.file, (run.page + u64::from(offset)) * PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::io::Cause;
    use flashsift_traces::{events::Kept, open};

    const KNOWS: Knows =
        Knows { times: true, syncs: true, writes: true, removals: true, ..Knows::NOTHING };

    /// Three pages of a file from its page 10 on, and 200 of another one.
    fn writers(dir: &Path, format: Format) -> Writers<'_> {
        let (side, space, knows) = (Side::After, Space::Blocks, KNOWS);
        Writers {
            dir,
            format,
            stem: "trace".to_owned(),
            mode: None,
            split: None,
            about: About { epoch_us: None, boot_us: None, side, space, knows },
            runs: Arc::new(vec![
                Run { first: 0, pages: 3, file: FileId(5), page: 10 },
                Run { first: 3, pages: 200, file: FileId(6), page: 0 },
            ]),
        }
    }

    fn written(writers: &Writers<'_>, requests: &[Io]) -> Vec<Event<'static>> {
        let mut writer = writers.open("lru", 4).unwrap();
        writer.take(Sent::Requests(requests));
        writer.finish().unwrap();
        let mut kept = Kept::default();
        open::read(&writers.path("lru", 4), None, &mut kept, &open::Limits::default()).unwrap();
        kept.events
    }

    /// Each request follows its cause. A file system's own blocks and flushes have no page, and
    /// what is discarded has no cause.
    // Promises: Traces 16.
    #[test]
    fn requests_keep_who_waits_process_and_file() {
        let io = |op, process, page: Option<u32>, awaited| Io {
            at_us: 1,
            op,
            lba: 77,
            pages: u32::from(op != IoOp::Flush),
            sync: false,
            awaited,
            cause: Cause { process, page: page.map(Page) },
        };
        let requests = [
            io(IoOp::Read, 9, Some(2), true),
            io(IoOp::Write, 0, Some(3), false),
            io(IoOp::Write, 8, Some(202), true),
            io(IoOp::Write, 0, None, false),
            io(IoOp::Flush, 8, None, true),
            io(IoOp::Discard, 0, None, false),
            // Beyond the pages that have a place.
            io(IoOp::Read, 9, Some(203), true),
        ];
        let dir = tempfile::tempdir().unwrap();
        let events = written(&writers(dir.path(), Format::Parquet), &requests);
        let found: Vec<_> = events
            .chunk_by(|one, _| matches!(one.action, Action::Cause { .. }))
            .map(|chunk| match chunk {
                [Event { pid, action: Action::Cause { origin, awaited }, .. }, request] => {
                    assert_eq!(*pid, request.pid);
                    Some((*pid, origin.map(|(file, at)| (file.0, at / PAGE_BYTES)), *awaited))
                }
                [discard] => {
                    assert!(matches!(discard.action, Action::Punch { .. }), "{discard:?}");
                    None
                }
                more => panic!("{more:?}"),
            })
            .collect();
        let wanted = [
            Some((9, Some((5, 12)), true)),
            Some((0, Some((6, 0)), false)),
            Some((8, Some((6, 199)), true)),
            Some((0, None, false)),
            Some((8, None, true)),
            None,
            Some((9, None, true)),
        ];
        assert_eq!(found, wanted);
    }

    /// A player once got one synchronous write a page from the Parquet form, 13,108 of them, and
    /// one flush a sync from the fio form, 1,594: the same trace took 44.6 s or 11.4 s. Both forms
    /// hold the same requests at the same times: each sync is one flush behind plain writes.
    // Promises: Traces 16.
    #[test]
    fn both_formats_hold_the_same_requests() {
        let dir = tempfile::tempdir().unwrap();
        let io = |at_us, op, lba, pages| Io {
            at_us,
            op,
            lba,
            pages,
            sync: at_us == 20,
            awaited: op != IoOp::Write,
            cause: Cause::default(),
        };
        let requests = [
            io(10, IoOp::Read, 7, 3),
            io(20, IoOp::Write, 0, 128),
            io(20, IoOp::Write, 300, 1),
            io(20, IoOp::Flush, 0, 0),
            io(20, IoOp::Flush, 0, 0),
            io(30, IoOp::Discard, 300, 1),
            io(40, IoOp::Write, 5, 2),
        ];
        let read_back = |format| {
            let events = written(&writers(dir.path(), format), &requests);
            let requests = events.into_iter().filter_map(|event| {
                let (op, offset, len) = match event.action {
                    Action::Read { offset, len, .. } => ("read", offset, len),
                    Action::Write { offset, len, sync: false, .. } => ("write", offset, len),
                    Action::Write { .. } => panic!("a write is made durable by a flush"),
                    Action::Sync { .. } => ("flush", 0, 0),
                    Action::Punch { offset, len, .. } => ("discard", offset, len),
                    _ => return None,
                };
                Some((event.at_us, op, offset / PAGE_BYTES, len / PAGE_BYTES))
            });
            requests.collect::<Vec<_>>()
        };
        let wanted = [
            (10, "read", 7, 3),
            (20, "write", 0, 128),
            (20, "write", 300, 1),
            (20, "flush", 0, 0),
            (20, "flush", 0, 0),
            (30, "discard", 300, 1),
            (40, "write", 5, 2),
        ];
        assert_eq!(read_back(Format::Parquet), wanted);
        assert_eq!(read_back(Format::FioIolog3), wanted);
    }
}
