//! Bytes that would have reached flash, had something been different: the events of the machine run
//! once more through the models of its page cache, write-back and file system, with a [`Change`].
//!
//! The models are those of `compare --writeback linux --metadata ext4 --drain`. The cache is as
//! large as all pages that the events touch, since memory that runs short is not a program's doing.
//! Pages that are dirty at the end count as written: in a steady state as many were dirty at the
//! beginning.

use super::{
    rewrite::{self, Waiting},
    wal,
};
use crate::recommend::{
    WritebackTimes,
    meter::{ChangeTimes, Meter},
};
use flashsift_caches::{
    policy,
    trace::{KnownInodes, Tables, Trace, TraceBuilder, TraceError, Unit},
};
use flashsift_events::{
    event::{About, Action, Event, FileId},
    page::PAGE_BYTES,
};
use flashsift_files::flusher::{self, FlusherSettings};
use flashsift_pages::{
    layout, metadata,
    system::Cell,
    writeback::{Expire, Modes, Syncs},
};
use std::collections::{BTreeMap, BTreeSet};

/// A change of the machine or of its programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Reads change no access times.
    NoAccessTimes,
    /// Syncs of these files are left out.
    WithoutSyncs(BTreeSet<FileId>),
    /// Two syncs of one of these files are at least so far apart: those in between are left out.
    FewerSyncs {
        /// The files.
        files: BTreeSet<FileId>,
        /// Least time between two syncs of a file, µs.
        apart_us: u64,
    },
    /// These files are in memory only.
    InMemory(BTreeSet<FileId>),
    /// A program holds what it writes to these files for this time.
    Held {
        /// The files.
        files: BTreeSet<FileId>,
        /// The time, µs.
        held_us: u64,
    },
    /// A mount of flashsift holds these files if they are new.
    Mounted {
        /// The files.
        files: BTreeSet<FileId>,
        /// Its sifter.
        with: MountedWith,
    },
    /// Syncs of these files wait in a mount of flashsift.
    Epochs {
        /// The files.
        files: BTreeSet<FileId>,
        /// Time that a sync waits at most, µs.
        apart_us: u64,
    },
    /// SQLite keeps a write-ahead log beside this database instead of rollback journals.
    WriteAheadLog {
        /// The database.
        database: FileId,
        /// Its rollback journals: each transaction may have made a new one.
        journals: BTreeSet<FileId>,
    },
}

/// The sifter of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountedWith {
    /// All files are kept until they are written back.
    Keep,
    /// `--sift controller`.
    Controller,
}

/// Memory that a mount has for files, bytes: its default.
pub const MOUNT_BYTES: u64 = 256 << 20;

/// The machine as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineSettings {
    pub(super) flusher: FlusherSettings,
    /// Name in the list of [`metadata::ALL`].
    pub(super) file_system: &'static str,
    /// Age at which the journal is committed; `None`: the default.
    pub(super) commit_us: Option<u64>,
}

impl MachineSettings {
    /// Returns the machine with these times.
    pub(super) fn with(
        self,
        WritebackTimes { expire_us, tick_us, commit_us }: WritebackTimes,
    ) -> Self {
        let flusher = FlusherSettings { expire_us, tick_us, ..self.flusher };
        Self { flusher, commit_us: Some(commit_us), ..self }
    }

    /// Returns the model of its file system.
    pub(super) fn metadata(&self) -> metadata::Selection {
        let mut text = self.file_system.to_owned();
        if self.file_system == "ext4" {
            text += ":inodes=apart";
            if let Some(us) = self.commit_us {
                text += &format!(",commit={}s", us.div_ceil(1_000_000).max(1));
            }
        }
        metadata::Selection::parse(&text).expect("it is in the list")
    }
}

/// Bytes that reach flash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlashBytes {
    /// File data.
    pub data_bytes: u64,
    /// The file system's journal, or its checkpoints.
    pub journal_bytes: u64,
    /// Metadata in place.
    pub metadata_bytes: u64,
    /// All of them in each of [`SLICES`] parts of the time, at the changes that cause them.
    pub by_slice: Vec<u64>,
}

/// Parts of the time that are compared with one another.
pub use flashsift_files::judge::SLICES;

impl FlashBytes {
    /// Returns the sum in bytes.
    pub fn all(&self) -> u64 {
        self.data_bytes + self.journal_bytes + self.metadata_bytes
    }
}

/// The events of the machine, with a change of its programs.
pub(super) struct Changed {
    trace: Trace,
    /// Bytes of direct writes that a trace, which knows pages only, has too much, by time.
    saved_by_sectors: Vec<(u64, u64)>,
}

/// Returns the events with a change.
///
/// # Errors
///
/// They make no trace: they have too many pages, or need more memory than `limit_bytes`.
pub(super) fn changed(
    about: About,
    events: &[Event<'static>],
    change: Option<&Change>,
    limit_bytes: u64,
) -> Result<Changed, TraceError> {
    let tables = Tables { operations: true, ..Tables::default() };
    let mut builder = TraceBuilder::new(about, Unit::Page, limit_bytes).with_tables(tables);
    let mut log = match change {
        Some(Change::WriteAheadLog { database, journals }) => {
            Some(wal::Rewriter::new(*database, journals, events))
        }
        _ => None,
    };
    let mut waiting = match change {
        Some(Change::Held { files, held_us }) => Some(Waiting::held(files, *held_us)),
        Some(Change::Epochs { files, apart_us }) => Some(Waiting::epochs(files, *apart_us, events)),
        _ => None,
    };
    let mut mount = match change {
        Some(Change::Mounted { files, with }) => Some(rewrite::mounted(files, *with, about.knows)),
        _ => None,
    };
    let mut batch = Vec::new();
    let mut synced_at_us = BTreeMap::new();
    let mut saved_by_sectors: Vec<(u64, u64)> = Vec::new();
    let mut extend = |builder: &mut TraceBuilder, batch: &[Event<'_>]| {
        saved_by_sectors.extend(batch.iter().filter_map(|event| match event.action {
            Action::Direct { offset, len, write: true, .. } => {
                Some((event.at_us, flusher::saved_by_sectors(offset, len)))
            }
            _ => None,
        }));
        builder.extend(batch)
    };
    for event in events {
        match (&mut log, &mut waiting, &mut mount) {
            (Some(log), ..) => log.rewrite(event, &mut batch),
            (_, Some(waiting), _) => waiting.rewrite(event, &mut batch),
            (.., Some(mount)) => {
                mount.event(event, &mut |below| batch.push(below.clone().into_owned()))
            }
            _ if change.is_some_and(|change| leaves_out(change, event, &mut synced_at_us)) => {}
            _ => batch.push(event.clone()),
        }
        if batch.len() >= 1024 {
            extend(&mut builder, &batch)?;
            batch.clear();
        }
    }
    waiting.iter_mut().for_each(|waiting| waiting.finish(&mut batch));
    if let Some(mount) = &mut mount {
        mount.finish(&mut |below| batch.push(below.clone().into_owned()));
    }
    extend(&mut builder, &batch)?;
    Ok(Changed { trace: builder.finish()?, saved_by_sectors })
}

impl Changed {
    /// The inodes of these files are known, if they were there before.
    pub(super) fn with_inodes(self, inodes: &KnownInodes) -> Self {
        Self { trace: self.trace.with_inodes(inodes.clone()), ..self }
    }

    /// Returns what reaches flash. `end_us`: the end of the time.
    pub(super) fn written(&self, machine: MachineSettings, end_us: u64) -> FlashBytes {
        let Self { trace, saved_by_sectors } = self;
        let mut written = FlashBytes { by_slice: vec![0; SLICES], ..FlashBytes::default() };
        if trace.pages() == 0 {
            return written;
        }
        let policy = policy::Selection::parse("lru").expect("it is in the list");
        let layout = layout::Selection::parse(machine.file_system).expect("it is in the list");
        let metadata = machine.metadata();
        let FlusherSettings { expire_us, tick_us, background_pages } = machine.flusher;
        // The flusher's ratio is of the memory here.
        let expire =
            Expire { after_us: expire_us, tick_us, ratio: 100, ram_pages: u64::from(u32::MAX) };
        let expire = match background_pages {
            u64::MAX => expire,
            pages => Expire { ratio: 50, ram_pages: pages.saturating_mul(2), ..expire },
        };
        // Without a tick the flusher never runs.
        let writeback = Modes {
            expire: (tick_us > 0).then_some(expire),
            syncs: Syncs::TheirFile,
            ..Modes::default()
        };
        let cell = Cell {
            system: &flashsift_pages::system::PLAIN,
            policy: &policy,
            frames: trace.pages().max(1),
            layout: &layout,
            writeback,
            drain: true,
            write_miss_reads: false,
            request_pages_max: 1,
            discards: false,
            metadata: Some(&metadata),
            readahead: None,
            attribution: None,
            lines: None,
            reads: None,
        };
        let changes = ChangeTimes::new(trace, SLICES, end_us);
        let commit_us = machine.commit_us.unwrap_or(WritebackTimes::LINUX.commit_us);
        let waits_us = WritebackTimes { expire_us, tick_us, commit_us }.loss_us();
        let mut meter = Meter::new(trace, &changes, waits_us, None);
        let counts = cell.run(trace, None, Some(&mut |io| meter.take(&io))).device;
        // Bytes are whole numbers, which a float of 53 bits holds.
        written.by_slice = meter.finish().into_iter().map(|bytes| bytes as u64).collect();
        for (at_us, bytes) in saved_by_sectors.iter().copied() {
            written.by_slice[changes.slice(at_us)] -= bytes;
        }
        written.journal_bytes = counts.journal_writes * PAGE_BYTES;
        written.metadata_bytes = counts.metadata_writes * PAGE_BYTES;
        let all: u64 = written.by_slice.iter().sum();
        written.data_bytes = all - written.journal_bytes - written.metadata_bytes;
        written
    }
}

/// `synced_at_us`: the last sync of each file that was kept.
fn leaves_out(
    change: &Change,
    event: &Event<'_>,
    synced_at_us: &mut BTreeMap<FileId, u64>,
) -> bool {
    match change {
        Change::NoAccessTimes => matches!(event.action, Action::Read { .. }),
        Change::WithoutSyncs(files) => {
            matches!(event.action, Action::Sync { file, .. } if files.contains(&file))
        }
        Change::FewerSyncs { files, apart_us } => match event.action {
            Action::Sync { file, .. } if files.contains(&file) => {
                let last = synced_at_us.get(&file).copied();
                let is_soon = last.is_some_and(|last| event.at_us < last + apart_us);
                if !is_soon {
                    synced_at_us.insert(file, event.at_us);
                }
                is_soon
            }
            _ => false,
        },
        Change::InMemory(files) => event.action.file().is_some_and(|file| files.contains(&file)),
        Change::WriteAheadLog { .. }
        | Change::Held { .. }
        | Change::Mounted { .. }
        | Change::Epochs { .. } => false,
    }
}
