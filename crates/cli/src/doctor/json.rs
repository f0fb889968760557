//! `doctor --json`: one object.

use super::{Outcome, endurance::DiskLife};
use crate::describe::json::Sections;
use flashsift_study::doctor::{Disk, FileSystem, Remedy, Swap, Writer, WrittenFileSystem};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Record<'a> {
    schema: u32,
    duration_us: u64,
    file_systems: &'a [FileSystem],
    disks: &'a [Disk],
    endurance: &'a [DiskLife],
    #[serde(skip_serializing_if = "Option::is_none")]
    read_bytes: Option<u64>,
    swaps: &'a [Swap],
    swapped_out_bytes: u64,
    /// By the models of the kernel.
    written: WrittenRecord,
    by_file_system: &'a [WrittenFileSystem],
    writers: &'a [Writer],
    remedies: &'a [Remedy],
    #[serde(skip_serializing_if = "Option::is_none")]
    judged_until_us: Option<u64>,
    description: Sections<'a>,
}

#[derive(Serialize)]
struct WrittenRecord {
    data_bytes: u64,
    journal_bytes: u64,
    metadata_bytes: u64,
}

impl<'a> Record<'a> {
    pub(super) fn new(outcome: &'a Outcome) -> Self {
        let Outcome { facts, examination, lives, .. } = outcome;
        let written = &examination.written;
        Self {
            schema: 1,
            duration_us: examination.duration_us,
            file_systems: &facts.file_systems,
            disks: &facts.disks,
            endurance: lives,
            read_bytes: examination.read_bytes,
            swaps: &facts.swaps,
            swapped_out_bytes: facts.swapped_out_bytes,
            written: WrittenRecord {
                data_bytes: written.data_bytes,
                journal_bytes: written.journal_bytes,
                metadata_bytes: written.metadata_bytes,
            },
            by_file_system: &examination.by_file_system,
            writers: &examination.writers,
            remedies: &examination.remedies,
            judged_until_us: examination.judged_until_us,
            description: Sections(&examination.description),
        }
    }
}
