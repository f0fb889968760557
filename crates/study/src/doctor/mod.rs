//! Examination of a machine: which programs and files wear its flash, and which changes would save
//! writes.
//!
//! [`Doctor`] takes the events of the machine as they happen, and at the end the facts that the
//! shell read ([`Facts`]); it asks further questions through [`Inspect`]. A remedy proposes a
//! [`Change`], and the events run once more with it ([`what_if`]): the difference is what the
//! remedy saves. A remedy is one file and one line in [`ALL`].

mod database;
mod facts;
mod processes;
mod program;
mod remedies;
mod rewrite;
mod saving;
mod steps;
mod wal;
pub mod what_if;

pub use facts::{
    Disk, Ends, EntryKind, Facts, FileSystem, Inode, Inspect, MountPoint, ProgramFacts, Swap,
};
pub use program::{KnownSetting, known_settings};
pub use remedies::{ALL, RemedySpec};
pub use saving::Saving;
pub use steps::{MARK, OLD, RemedyStep, lines_script};
pub use what_if::{Change, FlashBytes};

use crate::describe::{self, Describer, Description, FileCharge, Part, Value};
use flashsift_caches::trace::{KnownInode, KnownInodes, TraceError};
use flashsift_events::{
    event::{About, Action, Event, FileId, MaybeOwned},
    ledger::FileLedger,
    page::PAGE_BYTES,
};
use flashsift_files::flusher::FlusherSettings;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use processes::Processes;
use remedies::{Effect, Findings, Proposal};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The files of the events, with their names.
type Files = FileLedger<describe::Requests>;

/// Name of what no name is known of.
pub const UNKNOWN: &str = "(unknown)";

/// Takes events and returns an [`Examination`].
pub struct Doctor {
    about: About,
    describer: Describer,
    processes: Processes,
    kept: Vec<Event<'static>>,
    kept_names: usize,
    /// The kept event that names the program of each process.
    named_at: HashMap<u32, usize, FixedState>,
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
    /// The service or container in which it runs.
    pub unit: Option<Box<str>>,
    /// Bytes of file data that reach flash.
    pub reached_bytes: u64,
    /// Those among them that a sync of the file writes.
    pub synced_bytes: u64,
    /// The share of the file's changes in the journal and in metadata, bytes.
    pub file_system_bytes: u64,
    /// Syncs of the file by this program.
    pub syncs: u64,
    /// All files that had the name.
    pub files: BTreeSet<FileId>,
}

/// The writes of a unit, or of a program outside of any.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Writer {
    /// Name for people.
    pub name: String,
    /// The program that writes most.
    pub program: Box<str>,
    /// The service or container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<Box<str>>,
    /// Its programs by bytes, the greatest first.
    pub programs: Vec<Box<str>>,
    /// Bytes of file data that reach flash.
    pub reached_bytes: u64,
    /// All of them an hour: file data, journal and metadata.
    pub bytes_per_hour: f64,
    /// Bytes of the journal and of metadata that its changes cause. They are not among
    /// `reached_bytes`.
    pub file_system_bytes: u64,
    /// Share that syncs of files write.
    pub synced_share: f64,
    /// Its syncs of files.
    pub syncs: u64,
    /// Its files by bytes, the greatest first.
    pub files: Vec<WrittenFile>,
    /// The innermost directory with at least half of its bytes, if no file has as many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<WrittenDirectory>,
    /// Ids of the remedies that concern it, the best first.
    pub remedies: Vec<usize>,
}

/// A file that a program writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WrittenFile {
    /// Path.
    pub name: Box<str>,
    /// Bytes of file data that reach flash.
    pub reached_bytes: u64,
    /// Bytes of the journal and of metadata that its changes cause.
    pub file_system_bytes: u64,
    /// Both an hour.
    pub bytes_per_hour: f64,
    /// Syncs.
    pub syncs: u64,
}

/// A directory that holds most of what a program writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WrittenDirectory {
    /// Path.
    pub name: Box<str>,
    /// Bytes an hour.
    pub bytes_per_hour: f64,
    /// Names of files that are written below it.
    pub files: u64,
}

/// The writes to a file system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WrittenFileSystem {
    /// Mount point.
    pub mount: String,
    /// Bytes of file data, journal and metadata of the files whose names are known.
    pub written_bytes: u64,
}

/// A change that would save writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// Number, from 1, the best first.
    pub number: usize,
    /// Name in the list.
    pub id: &'static str,
    /// Its name, by which `--apply` and `--undo` take it: the one in the list, and the program or
    /// directory if there may be several.
    pub name: String,
    /// The change, in one line.
    pub title: String,
    /// Why.
    pub evidence: String,
    /// Its saving; `None` where nothing tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saving: Option<Saving>,
    /// The reason for which the saving of a setting of the kernel is not confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<String>,
    /// Its price.
    pub price: String,
    /// Commands that do it.
    pub commands: Vec<String>,
    /// Commands that do it from the next start of the machine on; empty if `commands` last.
    pub lasting: Vec<String>,
    /// Commands that undo both.
    pub undo: Vec<String>,
    /// The same as steps that `--apply` performs.
    pub steps: Vec<RemedyStep>,
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
    /// The file systems that were written, the one with most bytes first.
    pub by_file_system: Vec<WrittenFileSystem>,
    /// Units and programs, the one that writes most first.
    pub writers: Vec<Writer>,
    /// Remedies: the setting of the kernel first if it is confirmed, then the one that saves most.
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
            processes: Processes::default(),
            kept: Vec::new(),
            kept_names: 0,
            named_at: HashMap::default(),
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
            self.processes.take(event);
            if self.kept_until_us.is_none() && self.matters(event) {
                self.keep(event);
            }
        }
        let held = self.kept.len() * size_of::<Event<'_>>() + self.kept_names;
        if (held + self.processes.held_bytes()) as u64 > self.limit_bytes / 4 {
            self.kept_until_us.get_or_insert(self.end_us);
        }
        Ok(())
    }

    /// Keeps an event. Processes are kept with the names of their units, which are known only after
    /// their first access.
    fn keep(&mut self, event: &Event<'static>) {
        let at = match event.action {
            Action::Process { .. } => {
                self.named_at.insert(event.pid, self.kept.len());
                self.kept.push(event.clone());
                Some(self.kept.len() - 1)
            }
            Action::ControlGroup { .. } => self.named_at.get(&event.pid).copied(),
            _ => {
                self.kept_names += name_bytes(&event.action);
                return self.kept.push(event.clone());
            }
        };
        if let Some(at) = at {
            let name = self.processes.charged_of(event.pid);
            self.kept_names += name.len();
            self.kept[at].action = Action::Process { name: MaybeOwned::owned_str(&name) };
        }
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
            | Action::TimeToLive { .. }
            | Action::Foreground { .. }
            | Action::Meaning { .. }
            | Action::Cause { .. }
            | Action::MemoryLines { .. } => false,
            _ => true,
        }
    }

    /// Returns the name of the program that a process runs.
    pub fn program_of(&self, pid: u32) -> Box<str> {
        self.processes.program_of(pid)
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
        inspect: &dyn Inspect,
        duration_us: u64,
        top: usize,
    ) -> Result<Examination, TraceError> {
        let Self { about, describer, processes, kept, limit_bytes, kept_until_us, flusher, .. } =
            self;
        let files = describer.files();
        let judged_us = kept_until_us.unwrap_or(duration_us).max(1);
        let machine = what_if::MachineSettings {
            flusher,
            file_system: match facts.file_systems.iter().all(|system| system.kind == "f2fs") {
                true if !facts.file_systems.is_empty() => "f2fs",
                _ => "ext4",
            },
            commit_us: facts.commit_us(),
        };
        let inodes = inodes(&kept, files, inspect);
        let base = what_if::changed(about, &kept, None, limit_bytes / 2)?.with_inodes(&inodes);
        let written = base.written(machine, judged_us);
        let times = remedies::kernel_times::chosen(facts, |times| {
            let with = base.written(machine.with(times), judged_us);
            saving::judged(&written.by_slice, &with.by_slice)
        });
        drop(base);
        let charged =
            describe::charged(about, &kept, flusher, &machine.metadata(), &inodes, judged_us)?;
        let usages = usages(&kept, files, &processes, charged);
        let findings =
            Findings { facts, inspect, usages: &usages, files, duration_us: judged_us, times };
        let mut remedies = Vec::new();
        for (spec, proposal) in ALL
            .iter()
            .flat_map(|spec| (spec.propose)(&findings).into_iter().map(move |one| (spec, one)))
        {
            let Proposal { subject, title, evidence, price, steps, programs, effect } = proposal;
            let mut unconfirmed = None;
            let saving = match effect {
                Effect::Change(change) => {
                    let with = what_if::changed(about, &kept, Some(&change), limit_bytes / 2)?;
                    let with = with.with_inodes(&inodes).written(machine, judged_us);
                    let found = saving::judged(&written.by_slice, &with.by_slice);
                    Some(Saving::new(&found, judged_us))
                }
                Effect::Judged(found) => {
                    unconfirmed = found.confirmed().err().map(|reason| reason.to_string());
                    Some(Saving::new(&found, judged_us))
                }
                Effect::Bytes(bytes) => Some(Saving::exactly(bytes, written.all(), judged_us)),
                Effect::Unknown => None,
            };
            if saving.is_some_and(|saving| !saving.is_any()) {
                continue;
            }
            let commands = steps::commands(&steps);
            remedies.push(Remedy {
                number: 0,
                id: spec.id,
                name: match &*subject {
                    "" => spec.id.to_owned(),
                    subject => format!("{}:{subject}", spec.id),
                },
                title,
                evidence,
                saving,
                unconfirmed,
                price,
                commands: commands.now,
                lasting: commands.lasting,
                undo: commands.undo,
                steps,
                programs,
            });
        }
        rank(&mut remedies);
        // A program may have two settings of one kind.
        for at in 0..remedies.len() {
            let same = remedies[..at].iter().filter(|one| one.name == remedies[at].name).count();
            if same > 0 {
                remedies[at].name += &format!(":{}", same + 1);
            }
        }
        (1..).zip(&mut remedies).for_each(|(number, remedy)| remedy.number = number);
        let mut writers = writers(&usages, &remedies, judged_us, top);
        for writer in &mut writers {
            writer.name = name_of(writer, inspect);
        }
        let description = describer.finish(top);
        Ok(Examination {
            read_bytes: read_bytes(&description),
            description,
            duration_us,
            written,
            by_file_system: by_file_system(&usages, facts),
            writers,
            remedies,
            judged_until_us: kept_until_us,
        })
    }
}

/// Returns the inodes of the files that are still there under their last names.
fn inodes(events: &[Event<'_>], ledger: &Files, inspect: &dyn Inspect) -> KnownInodes {
    let mut files = BTreeSet::new();
    for event in events {
        match event.action {
            Action::Gone { file } => drop(files.remove(&file)),
            _ => files.extend(event.action.file()),
        }
    }
    let mut devices = Vec::new();
    let mut known = |file: FileId| {
        let Inode { dev, number, extents } = inspect.inode(ledger.name_of(file)?)?;
        let at = devices.iter().position(|known| *known == dev).unwrap_or(devices.len());
        if at == devices.len() {
            devices.push(dev);
        }
        Some(KnownInode { number: ((at as u64) << 32) + number, extents })
    };
    files.into_iter().filter_map(|file| Some((file, known(file)?))).collect()
}

/// Orders remedies: the setting of the kernel, then what saves most. A setting needs no other
/// program and is undone by a command. One that is not confirmed comes last.
fn rank(remedies: &mut [Remedy]) {
    let place = |remedy: &Remedy| match remedy.id == remedies::kernel_times::SPEC.id {
        true if remedy.unconfirmed.is_some() => 2,
        true => 0,
        false => 1,
    };
    let share = |remedy: &Remedy| remedy.saving.map_or(0.0, |saving| saving.share);
    remedies.sort_by(|one, other| {
        place(one).cmp(&place(other)).then_with(|| share(other).total_cmp(&share(one)))
    });
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

/// Charges what reaches flash to programs and names, the greatest first.
fn usages(
    kept: &[Event<'static>],
    files: &Files,
    processes: &Processes,
    charged: Vec<FileCharge>,
) -> Vec<Usage> {
    let mut charges: BTreeMap<(Option<FileId>, Box<str>), (FileCharge, u64)> = BTreeMap::new();
    for one in charged {
        let (sum, _) = charges.entry((one.file, one.program.clone())).or_default();
        sum.data_bytes += one.data_bytes;
        sum.synced_bytes += one.synced_bytes;
        sum.file_system_bytes += one.file_system_bytes;
    }
    for event in kept {
        if let Action::Sync { file, .. } = event.action {
            charges.entry((Some(file), processes.charged_of(event.pid))).or_default().1 += 1;
        }
    }
    let mut usages: HashMap<(Box<str>, Box<str>), Usage, FixedState> = HashMap::default();
    for ((file, charged), (sum, syncs)) in charges {
        let (program, unit) = processes::program_and_unit(&charged);
        let name: Box<str> = file.and_then(|file| files.name_of(file)).unwrap_or(UNKNOWN).into();
        let usage = usages.entry((name.clone(), charged.clone())).or_insert_with(|| Usage {
            file: name,
            program: program.into(),
            unit: unit.map(Into::into),
            reached_bytes: 0,
            synced_bytes: 0,
            file_system_bytes: 0,
            syncs: 0,
            files: BTreeSet::new(),
        });
        usage.reached_bytes += sum.data_bytes;
        usage.synced_bytes += sum.synced_bytes;
        usage.file_system_bytes += sum.file_system_bytes;
        usage.syncs += syncs;
        usage.files.extend(file);
    }
    let mut usages: Vec<_> = usages.into_values().collect();
    let bytes = |usage: &Usage| usage.reached_bytes + usage.file_system_bytes;
    usages.sort_by(|one, other| {
        (bytes(other).cmp(&bytes(one)))
            .then_with(|| (&one.file, &one.program).cmp(&(&other.file, &other.program)))
            .then_with(|| one.unit.cmp(&other.unit))
    });
    usages
}

fn bytes_of(usage: &Usage) -> u64 {
    usage.reached_bytes + usage.file_system_bytes
}

/// `usages`: the greatest first.
fn writers(usages: &[Usage], remedies: &[Remedy], duration_us: u64, top: usize) -> Vec<Writer> {
    let per_hour = |bytes: u64| bytes as f64 * 3.6e9 / duration_us as f64;
    let mut by_writer: BTreeMap<(Option<&str>, &str), Vec<&Usage>> = BTreeMap::new();
    for usage in usages {
        let unit = usage.unit.as_deref();
        let program = if unit.is_some() { "" } else { &*usage.program };
        by_writer.entry((unit, program)).or_default().push(usage);
    }
    let writer = |((unit, _), own): ((Option<&str>, &str), Vec<&Usage>)| {
        let sum = |of: fn(&Usage) -> u64| own.iter().map(|usage| of(usage)).sum::<u64>();
        let reached_bytes = sum(|usage| usage.reached_bytes);
        let file_system_bytes = sum(|usage| usage.file_system_bytes);
        let all = reached_bytes + file_system_bytes;
        let mut by_program: BTreeMap<&str, u64> = BTreeMap::new();
        for usage in &own {
            *by_program.entry(&usage.program).or_default() += bytes_of(usage);
        }
        let mut by_program: Vec<_> = by_program.into_iter().collect();
        by_program.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let concerns =
            |remedy: &&Remedy| by_program.iter().any(|one| remedy.programs.contains(&one.0.into()));
        let file = |usage: &&Usage| WrittenFile {
            name: usage.file.clone(),
            reached_bytes: usage.reached_bytes,
            file_system_bytes: usage.file_system_bytes,
            bytes_per_hour: per_hour(bytes_of(usage)),
            syncs: usage.syncs,
        };
        let is_main = by_program[0].1 * 2 >= all;
        let name = match unit {
            None => by_program[0].0.to_owned(),
            Some(unit) if unit.trim_end_matches(".service") == by_program[0].0 => {
                by_program[0].0.to_owned()
            }
            Some(unit) if is_main => format!("{} of {unit}", by_program[0].0),
            Some(unit) => unit.to_owned(),
        };
        Writer {
            name,
            program: by_program[0].0.into(),
            unit: unit.map(Into::into),
            reached_bytes,
            bytes_per_hour: per_hour(all),
            file_system_bytes,
            synced_share: sum(|usage| usage.synced_bytes) as f64 / reached_bytes.max(1) as f64,
            syncs: sum(|usage| usage.syncs),
            files: own.iter().filter(|one| bytes_of(one) > 0).take(top).map(file).collect(),
            directory: main_directory(&own, all).map(|(name, bytes, files)| WrittenDirectory {
                name: name.into(),
                bytes_per_hour: per_hour(bytes),
                files,
            }),
            remedies: remedies.iter().filter(concerns).map(|one| one.number).collect(),
            programs: by_program.into_iter().map(|(program, _)| program.into()).collect(),
        }
    };
    let mut writers: Vec<Writer> = by_writer.into_iter().map(writer).collect();
    let all = |writer: &Writer| writer.reached_bytes + writer.file_system_bytes;
    writers.retain(|writer| all(writer) > 0);
    writers.sort_by_key(|writer| std::cmp::Reverse(all(writer)));
    writers.truncate(top);
    writers
}

/// Replaces the number of a container by its name.
fn name_of(writer: &Writer, inspect: &dyn Inspect) -> String {
    const SHORT: usize = 12;
    let id = writer.unit.as_deref().and_then(|unit| unit.strip_prefix(processes::CONTAINER));
    let Some(id) = id else { return writer.name.clone() };
    let short = || id.get(..SHORT).unwrap_or(id).to_owned();
    writer.name.replace(id, &inspect.container(id).unwrap_or_else(short))
}

/// Returns the innermost directory with at least half of the bytes, if no file has as many, with
/// its bytes and the number of its files.
fn main_directory<'a>(own: &[&'a Usage], all: u64) -> Option<(&'a str, u64, u64)> {
    if own.iter().any(|usage| bytes_of(usage) * 2 >= all) {
        return None;
    }
    let mut directories: HashMap<&str, (u64, u64), FixedState> = HashMap::default();
    for usage in own.iter().filter(|usage| bytes_of(usage) > 0) {
        let mut path = &*usage.file;
        while let Some((directory, _)) = path.rsplit_once('/')
            && !directory.is_empty()
        {
            let (bytes, files) = directories.entry(directory).or_default();
            *bytes += bytes_of(usage);
            *files += 1;
            path = directory;
        }
    }
    let half = directories.into_iter().filter(|(_, (bytes, _))| bytes * 2 >= all);
    // Of two that are equally deep only one can have more than half; of two halves, the first.
    let (name, (bytes, files)) = half.max_by_key(|(name, (bytes, _))| {
        (name.matches('/').count(), *bytes, std::cmp::Reverse(*name))
    })?;
    Some((name, bytes, files))
}

fn by_file_system(usages: &[Usage], facts: &Facts) -> Vec<WrittenFileSystem> {
    let mut by_mount: BTreeMap<&str, u64> = BTreeMap::new();
    for usage in usages {
        if let Some(mount) = facts.mount_of(&usage.file) {
            *by_mount.entry(&mount.point).or_default() += bytes_of(usage);
        }
    }
    let mut all: Vec<_> = by_mount
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(mount, written_bytes)| WrittenFileSystem { mount: mount.to_owned(), written_bytes })
        .collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.written_bytes));
    all
}

#[cfg(test)]
mod tests;
