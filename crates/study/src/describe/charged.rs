//! The bytes that reach flash, charged to files and programs, for those who do not describe the
//! events otherwise.

use super::{
    flash_writes::{Charge, FlashWrites, WriteReason},
    ledger::Ledger,
};
use flashsift_caches::trace::{KnownInodes, TraceError};
use flashsift_events::{
    event::{About, Action, Event, FileId},
    names::program_name,
};
use flashsift_files::flusher::{FlushReason, FlusherSettings};
use flashsift_pages::metadata;
use std::collections::BTreeMap;

/// The bytes that reach flash for one file and one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileCharge {
    /// `None`: no file, for a commit that concerns none.
    pub(crate) file: Option<FileId>,
    /// Name of the program.
    pub(crate) program: Box<str>,
    /// File data.
    pub(crate) data_bytes: u64,
    /// File data that a sync of the file writes.
    pub(crate) synced_bytes: u64,
    /// The share of the file system's journal and of its metadata in place.
    pub(crate) file_system_bytes: u64,
}

/// Charges what reaches flash by the models of Linux's write-back and of the file system. Pages
/// that are dirty at the end count as written.
///
/// # Errors
///
/// The events touch too many pages.
pub(crate) fn charged(
    about: About,
    events: &[Event<'static>],
    settings: FlusherSettings,
    file_system: &metadata::Selection,
    inodes: &KnownInodes,
    end_us: u64,
) -> Result<Vec<FileCharge>, TraceError> {
    let mut ledger = Ledger::new(about);
    let mut writes = FlashWrites::new(settings, Some(file_system)).with_inodes(inodes);
    let mut touched = Vec::new();
    let mut sums: BTreeMap<(u32, u32), FileCharge> = BTreeMap::new();
    let at_us = end_us.max(events.last().map_or(0, |event| event.at_us));
    let end = Event { at_us, pid: 0, tid: 0, action: Action::SyncAll };
    for event in events.iter().chain([&end]) {
        let entered = ledger.take(event, &mut touched)?;
        writes.event(event, entered.program, &ledger);
        for Charge { program, file, bytes, why, .. } in writes.drain() {
            let sum = sums.entry((file, program)).or_default();
            match why {
                WriteReason::Data(why) => {
                    sum.data_bytes += bytes;
                    sum.synced_bytes += if why == FlushReason::Synced { bytes } else { 0 };
                }
                WriteReason::Journal | WriteReason::Metadata => sum.file_system_bytes += bytes,
            }
        }
    }
    let programs = ledger.programs.all();
    let files = ledger.files.all();
    let named = sums.into_iter().map(|((file, program), sum)| FileCharge {
        file: files.get(file as usize).map(|file| file.id),
        program: program_name(programs.get(program as usize).map_or(Err(0), |one| one.key())),
        ..sum
    });
    Ok(named.collect())
}
