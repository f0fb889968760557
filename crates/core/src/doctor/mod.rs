//! Examination of a machine: which programs and files wear its flash, and which changes would save
//! writes.
//!
//! [`Doctor`] takes the events of the machine as they happen, and at the end the facts that the
//! shell read ([`Facts`]). A remedy proposes a [`Change`], and the events run once more with it
//! ([`what_if`]): the difference is what the remedy saves. A remedy is one file and one line in
//! [`ALL`].

mod facts;
mod files;
mod remedies;
mod saving;
mod wal;
pub mod what_if;

pub use facts::{Disk, Facts, FileSystem, Swap};
pub use remedies::{ALL, RemedySpec};
pub use saving::Saving;
pub use what_if::{Change, FlashBytes};

use crate::{
    describe::{Describer, Description, Part, Value},
    event::{About, Action, Event, FileId},
    page::PAGE_BYTES,
    trace::TraceError,
    writeback::flusher::{FlushReason, Flusher, FlusherSettings},
};
use files::Names;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use remedies::{Effect, Findings, Proposal};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Name of what no name is known of.
pub const UNKNOWN: &str = "(unknown)";

/// Takes events and returns an [`Examination`].
pub struct Doctor {
    about: About,
    describer: Describer,
    names: Names,
    kept: Vec<Event<'static>>,
    kept_names: usize,
    /// Files that were read since they last changed: further reads change no metadata.
    read: HashSet<FileId, FixedState>,
    limit_bytes: u64,
    end_us: u64,
    /// Time of the first event that is not kept.
    kept_until_us: Option<u64>,
    flusher: FlusherSettings,
}

/// The writes of one program to one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    /// Last name of the file.
    pub file: Box<str>,
    /// The program, by the name of its process.
    pub program: Box<str>,
    /// Bytes of file data that reach flash.
    pub reached_bytes: u64,
    /// Those among them that a sync of the file writes.
    pub synced_bytes: u64,
    /// Syncs of the file by this program.
    pub syncs: u64,
    /// All files that had the name.
    pub files: BTreeSet<FileId>,
}

/// The writes of a program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Writer {
    /// Name of the program.
    pub program: Box<str>,
    /// Bytes of file data that reach flash.
    pub reached_bytes: u64,
    /// Bytes an hour.
    pub bytes_per_hour: f64,
    /// Share that syncs of files write.
    pub synced_share: f64,
    /// Its syncs of files.
    pub syncs: u64,
    /// Its files by bytes, the greatest first.
    pub files: Vec<WrittenFile>,
    /// Ids of the remedies that concern it, the best first.
    pub remedies: Vec<usize>,
}

/// A file that a program writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WrittenFile {
    /// Path.
    pub name: Box<str>,
    /// Bytes that reach flash.
    pub reached_bytes: u64,
    /// Bytes an hour.
    pub bytes_per_hour: f64,
    /// Syncs.
    pub syncs: u64,
}

/// A change that would save writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// Number, from 1, the best first.
    pub number: usize,
    /// Name in the list.
    pub id: &'static str,
    /// The change, in one line.
    pub title: String,
    /// Why.
    pub evidence: String,
    /// Its saving; `None` where nothing tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saving: Option<Saving>,
    /// Its price.
    pub price: String,
    /// Commands that do it.
    pub commands: Vec<String>,
    /// Commands that undo it.
    pub undo: Vec<String>,
    /// Programs that it concerns; empty: all.
    pub programs: Vec<Box<str>>,
}

/// The result.
pub struct Examination {
    /// Characterisation of the events.
    pub description: Description,
    /// Time of the examination.
    pub duration_us: u64,
    /// Bytes that reach flash as things are, by the models.
    pub written: FlashBytes,
    /// Programs, the one that writes most first.
    pub writers: Vec<Writer>,
    /// Remedies, the one that saves most first.
    pub remedies: Vec<Remedy>,
    /// Bytes of different pages that programs read; a part of them was in memory before. `None`
    /// where the description does not tell.
    pub read_bytes: Option<u64>,
    /// The remedies were judged by the events until then only, since memory was short.
    pub judged_until_us: Option<u64>,
}

impl Doctor {
    /// Creates a doctor that holds at most about `limit_bytes` of memory.
    pub fn new(about: About, flusher: FlusherSettings, limit_bytes: u64) -> Self {
        Self {
            about,
            describer: Describer::new(about, limit_bytes / 2).with_flusher(flusher),
            names: Names::default(),
            kept: Vec::new(),
            kept_names: 0,
            read: HashSet::default(),
            limit_bytes,
            end_us: 0,
            kept_until_us: None,
            flusher,
        }
    }

    /// Takes events in order.
    ///
    /// # Errors
    ///
    /// The memory limit is exceeded, or there are too many pages.
    pub fn extend(&mut self, events: &[Event<'static>]) -> Result<(), TraceError> {
        self.describer.extend(events)?;
        for event in events {
            self.end_us = self.end_us.max(event.at_us);
            self.names.take(event);
            if self.kept_until_us.is_none() && self.matters(event) {
                self.kept_names += name_bytes(&event.action);
                self.kept.push(event.clone());
            }
        }
        let held = self.kept.len() * size_of::<Event<'_>>() + self.kept_names;
        if (held + self.names.held_bytes()) as u64 > self.limit_bytes / 4 {
            self.kept_until_us.get_or_insert(self.end_us);
        }
        Ok(())
    }

    /// Whether an event can change what reaches flash.
    fn matters(&mut self, event: &Event<'_>) -> bool {
        match event.action {
            Action::Read { file, .. } => self.read.insert(file),
            Action::Write { file, .. } | Action::Truncate { file, .. } => {
                self.read.remove(&file);
                true
            }
            Action::Place { .. }
            | Action::MemoryPressure { .. }
            | Action::Foreground { .. }
            | Action::Cause { .. } => false,
            _ => true,
        }
    }

    /// Ends the examination after `duration_us`. `top`: longest list of programs, and of the files
    /// of each.
    ///
    /// # Errors
    ///
    /// The events need more memory than the limit.
    pub fn finish(
        self,
        facts: &Facts,
        duration_us: u64,
        top: usize,
    ) -> Result<Examination, TraceError> {
        let Self { about, describer, names, kept, limit_bytes, kept_until_us, flusher, .. } = self;
        let judged_us = kept_until_us.unwrap_or(duration_us).max(1);
        let machine = what_if::Machine {
            flusher,
            file_system: match facts.file_systems.iter().all(|system| system.kind == "f2fs") {
                true if !facts.file_systems.is_empty() => "f2fs",
                _ => "ext4",
            },
            commit_us: None,
        };
        let run = |change: Option<&Change>| {
            what_if::written(about, &kept, machine, change, judged_us, limit_bytes / 2)
        };
        let written = run(None)?;
        let usages = usages(&kept, &names, flusher, judged_us);
        let findings = Findings { facts, usages: &usages, names: &names, duration_us: judged_us };
        let mut remedies = Vec::new();
        for (spec, proposal) in ALL
            .iter()
            .flat_map(|spec| (spec.propose)(&findings).into_iter().map(move |one| (spec, one)))
        {
            let Proposal { title, evidence, price, commands, undo, programs, effect } = proposal;
            let saving = match effect {
                Effect::Change(change) => {
                    Some(Saving::of(&written.by_slice, &run(Some(&change))?.by_slice, judged_us))
                }
                Effect::Bytes(bytes) => Some(Saving::exactly(bytes, written.all(), judged_us)),
                Effect::Unknown => None,
            };
            if saving.is_some_and(|saving| !saving.is_any()) {
                continue;
            }
            remedies.push(Remedy {
                number: 0,
                id: spec.id,
                title,
                evidence,
                saving,
                price,
                commands,
                undo,
                programs,
            });
        }
        let saves = |remedy: &Remedy| remedy.saving.map_or(0.0, |saving| saving.bytes_a_day);
        remedies.sort_by(|one, other| saves(other).total_cmp(&saves(one)));
        (1..).zip(&mut remedies).for_each(|(number, remedy)| remedy.number = number);
        let writers = writers(&usages, &remedies, judged_us, top);
        let description = describer.finish(top);
        Ok(Examination {
            read_bytes: read_bytes(&description),
            description,
            duration_us,
            written,
            writers,
            remedies,
            judged_until_us: kept_until_us,
        })
    }
}

/// Returns the bytes of different pages that are read, from the section on the footprint.
fn read_bytes(description: &Description) -> Option<u64> {
    let section = description.sections.iter().find(|section| section.spec.name == "footprint")?;
    let table = section.found.as_ref().ok()?.parts.iter().find_map(|part| match part {
        Part::Table(table) if table.key == "touched" => Some(table),
        _ => None,
    })?;
    let is_pages =
        |row: &&Vec<Value>| row.iter().any(|v| matches!(v, Value::Label { id: "pages", .. }));
    let row = table.rows.iter().find(is_pages)?;
    let pages = |key: &str| {
        let at = table.columns.iter().position(|column| column.key == key)?;
        row.get(at)?.number()
    };
    Some((pages("only_read")? + pages("both")?) as u64 * PAGE_BYTES)
}

fn name_bytes(action: &Action<'_>) -> usize {
    match action {
        Action::Create(create) => create.name.len(),
        Action::Bind { name, .. }
        | Action::Link { name, .. }
        | Action::Unbind { name, .. }
        | Action::Process { name } => name.len(),
        Action::Rename { names, .. } | Action::RenameDirectory { names } => {
            names.from.len() + names.to.len()
        }
        _ => 0,
    }
}

/// Charges the data that reaches flash to programs and names, the greatest first. Pages
/// that are dirty at the end count as written.
fn usages(
    kept: &[Event<'static>],
    names: &Names,
    settings: FlusherSettings,
    end_us: u64,
) -> Vec<Usage> {
    let mut flusher = Flusher::new(settings).with_log();
    let mut charges: BTreeMap<(FileId, u32), [u64; 3]> = BTreeMap::new();
    let mut charge = |flusher: &mut Flusher| {
        for reached in flusher.drain_log() {
            let sums = charges.entry((reached.file, reached.dirtier)).or_default();
            sums[0] += reached.pages;
            sums[1] += if reached.why == FlushReason::Synced { reached.pages } else { 0 };
        }
    };
    let mut syncs: BTreeMap<(FileId, u32), u64> = BTreeMap::new();
    for event in kept {
        if let Action::Sync { file, .. } = event.action {
            *syncs.entry((file, event.pid)).or_default() += 1;
        }
        flusher.handle_of(event, event.pid);
        charge(&mut flusher);
    }
    let at_us = end_us.max(kept.last().map_or(0, |event| event.at_us));
    flusher.handle(&Event { at_us, pid: 0, tid: 0, action: Action::SyncAll });
    charge(&mut flusher);
    for (key, count) in syncs {
        charges.entry(key).or_default()[2] += count;
    }
    let mut usages: HashMap<(Box<str>, Box<str>), Usage, FixedState> = HashMap::default();
    for ((file, pid), [pages, synced, syncs]) in charges {
        let name: Box<str> = names.of(file).unwrap_or(UNKNOWN).into();
        let program: Box<str> = match names.program(pid) {
            Some(program) => program.into(),
            None if pid == 0 => UNKNOWN.into(),
            None => format!("(process {pid})").into(),
        };
        let usage = usages.entry((name.clone(), program.clone())).or_insert_with(|| Usage {
            file: name,
            program,
            reached_bytes: 0,
            synced_bytes: 0,
            syncs: 0,
            files: BTreeSet::new(),
        });
        usage.reached_bytes += pages * PAGE_BYTES;
        usage.synced_bytes += synced * PAGE_BYTES;
        usage.syncs += syncs;
        usage.files.insert(file);
    }
    let mut usages: Vec<_> = usages.into_values().collect();
    usages.sort_by(|one, other| {
        (other.reached_bytes.cmp(&one.reached_bytes))
            .then_with(|| (&one.file, &one.program).cmp(&(&other.file, &other.program)))
    });
    usages
}

fn writers(usages: &[Usage], remedies: &[Remedy], duration_us: u64, top: usize) -> Vec<Writer> {
    let per_hour = |bytes: u64| bytes as f64 * 3.6e9 / duration_us as f64;
    let mut writers: BTreeMap<&str, (Writer, u64)> = BTreeMap::new();
    for usage in usages {
        let (writer, synced) = writers.entry(&usage.program).or_insert_with(|| {
            let writer = Writer {
                program: usage.program.clone(),
                reached_bytes: 0,
                bytes_per_hour: 0.0,
                synced_share: 0.0,
                syncs: 0,
                files: Vec::new(),
                remedies: Vec::new(),
            };
            (writer, 0)
        });
        writer.reached_bytes += usage.reached_bytes;
        writer.syncs += usage.syncs;
        *synced += usage.synced_bytes;
        if writer.files.len() < top && usage.reached_bytes > 0 {
            writer.files.push(WrittenFile {
                name: usage.file.clone(),
                reached_bytes: usage.reached_bytes,
                bytes_per_hour: per_hour(usage.reached_bytes),
                syncs: usage.syncs,
            });
        }
    }
    let mut writers: Vec<Writer> = writers
        .into_values()
        .filter(|(writer, _)| writer.reached_bytes > 0)
        .map(|(mut writer, synced)| {
            writer.bytes_per_hour = per_hour(writer.reached_bytes);
            writer.synced_share = synced as f64 / writer.reached_bytes as f64;
            let concerns = |remedy: &&Remedy| remedy.programs.contains(&writer.program);
            writer.remedies = remedies.iter().filter(concerns).map(|one| one.number).collect();
            writer
        })
        .collect();
    writers.sort_by_key(|writer| std::cmp::Reverse(writer.reached_bytes));
    writers.truncate(top);
    writers
}

#[cfg(test)]
mod tests;
