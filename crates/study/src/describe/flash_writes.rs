//! Every page that reaches flash, with the program, the file and the reason it is charged to.
//!
//! File data goes through the model of Linux's write-back ([`Flusher`]). If it is asked for, a
//! model of a file system ([`metadata`](flashsift_pages::metadata)) runs beside it, and writes its
//! journal, and its metadata in place.
//!
//! - The pages that a commit writes to the journal (copies, descriptors, commit block, superblock)
//!   are shared among the files that have blocks in the commit, in proportion to these blocks. A
//!   block that several files changed counts for the first one.
//! - A block that is written in place later is charged to its file in the last commit that had it.
//!   Blocks of no file (directories' own, the superblock) are shared as the journal's pages of that
//!   commit are.
//! - A file's share goes to the program that changed the file last.
//! - A commit without any file is charged to the file system.
//!
//! A trace that streams has no layout. Here the pages of a file lie one behind another, at a place
//! that the first one gets when it is written; so files are not fragmented. Files that were there
//! before have places up to their size; those whose size the trace does not tell have all. The
//! directories above the first name count as older than the trace.

use super::Ledger;
use flashsift_caches::trace::{Collector, DirectoryId, KnownInodes, OperationKind};
use flashsift_events::{
    address::Lba,
    event::{Action, Event, FileId, Micros},
    page::PAGE_BYTES,
    structure::extents::{Extents, pages_inside},
};
use flashsift_files::flusher::{FlushReason, Flusher, FlusherSettings, Reached};
use flashsift_pages::{
    metadata::{self, BlockRequest, Metadata},
    writeback::{
        Expire, Modes, Syncs,
        rules::{self, Rule, Urgent},
    },
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{collections::BTreeMap, ops::Range, rc::Rc};

/// Number of a file or program that the ledger does not know.
pub(super) const UNKNOWN: u32 = u32::MAX;
/// Number in place of a file's and a program's, for a commit without files.
pub(super) const FILE_SYSTEM: u32 = u32::MAX - 1;

/// Places begin again here: as many as the modelled file system has blocks (64 groups).
const PLACES: Lba = 64 * 32_768;
/// The longest request of Linux, 2 GiB, in pages. A longer one in a trace is not placed as a whole.
const REQUEST_PAGES_MAX: u64 = (2 << 30) / PAGE_BYTES;

/// The reason for which bytes reach flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WriteReason {
    /// File data.
    Data(FlushReason),
    /// The journal of the file system.
    Journal,
    /// Metadata in place.
    Metadata,
}

/// Bytes that reach flash together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    pub(super) at_us: Micros,
    /// Number of the program, [`UNKNOWN`] or [`FILE_SYSTEM`].
    pub(super) program: u32,
    /// Number of the file, [`UNKNOWN`] or [`FILE_SYSTEM`].
    pub(super) file: u32,
    pub(super) bytes: u64,
    pub(super) why: WriteReason,
}

/// Program and file, as in [`Charge`].
type Owner = (u32, u32);
/// The owners of a commit with the number of their blocks.
type Shares = Rc<[(Owner, u64)]>;

pub(super) struct FlashWrites {
    flusher: Flusher,
    file_system: Option<FileSystem>,
    charges: Vec<Charge>,
    /// When the flusher or the file system writes something next; may be too early.
    due_us: Micros,
    /// The operations of the present event, and whether each comes behind the event's data.
    operations: Vec<(bool, OperationKind)>,
}

impl FlashWrites {
    /// `metadata`: the file system whose journal and metadata are modelled.
    pub(super) fn new(settings: FlusherSettings, metadata: Option<&metadata::Selection>) -> Self {
        Self {
            flusher: Flusher::new(settings).with_log(),
            file_system: metadata.map(|metadata| FileSystem::new(metadata, settings)),
            charges: Vec::new(),
            due_us: 0,
            operations: Vec::new(),
        }
    }

    /// The inodes of these files are known, if they were there before.
    pub(super) fn with_inodes(mut self, inodes: &KnownInodes) -> Self {
        if let Some(file_system) = &mut self.file_system {
            file_system.machine.know_inodes(inodes);
        }
        self
    }

    /// Whether the journal and the metadata of a file system are modelled.
    pub(super) fn has_metadata(&self) -> bool {
        self.file_system.is_some()
    }

    pub(super) fn dirty_pages(&self) -> u64 {
        self.flusher.dirty_pages()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.flusher.held_bytes() + self.file_system.as_ref().map_or(0, FileSystem::held_bytes)
    }

    /// Returns what reached flash since the last call.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Charge> + '_ {
        self.charges.drain(..)
    }

    /// Takes an event of a program, if its number is known.
    pub(super) fn event(&mut self, event: &Event<'_>, program: Option<u32>, ledger: &Ledger) {
        // Not all events that make pages dirty, or write zeros, are those of a read or write.
        let dirtier = program.or_else(|| ledger.programs.get(event.pid)).unwrap_or_default();
        if self.file_system.is_none() {
            self.flusher.handle_of(event, dirtier);
            return self.take_written(ledger);
        }
        if self.due_us <= event.at_us {
            self.advance(event.at_us, ledger);
        }
        let mut operations = std::mem::take(&mut self.operations);
        operations.clear();
        if let Some(file_system) = &mut self.file_system {
            file_system.changed_by(event, program, ledger);
            file_system.operations(event, &mut operations);
        }
        for (_, operation) in operations.iter().filter(|(is_behind_data, _)| !is_behind_data) {
            self.operation(event.at_us, operation, ledger);
        }
        if !matches!(event.action, Action::Read { .. }) {
            self.flusher.handle_of(event, dirtier);
            self.take_written(ledger);
        }
        if let Some(file_system) = &mut self.file_system {
            let range = match event.action {
                Action::Truncate { file, size } => {
                    Some((file, pages_inside(size, u64::MAX).start..u64::MAX))
                }
                Action::Punch { file, offset, len } => Some((file, pages_inside(offset, len))),
                Action::Gone { file } => Some((file, 0..u64::MAX)),
                _ => None,
            };
            if let Some((file, pages)) = range {
                file_system.free(event.at_us, file, pages);
                file_system.take_requests(event.at_us, ledger, &mut self.charges);
            }
            if let Action::Gone { file } = event.action {
                file_system.places.remove(&file);
            }
        }
        for (_, operation) in operations.iter().filter(|(is_behind_data, _)| *is_behind_data) {
            self.operation(event.at_us, operation, ledger);
        }
        self.operations = operations;
        self.note_deadline();
    }

    /// Notes when something is written next.
    fn note_deadline(&mut self) {
        let commit_us = self.file_system.as_ref().and_then(|system| system.machine.next_deadline());
        let flush_us = self.flusher.next_deadline();
        self.due_us = flush_us.into_iter().chain(commit_us).min().unwrap_or(Micros::MAX);
    }

    /// Lets the flusher and the file system do what is due until this time, in order.
    pub(super) fn advance(&mut self, now_us: Micros, ledger: &Ledger) {
        loop {
            self.note_deadline();
            let due_us = self.due_us;
            if due_us > now_us || due_us == Micros::MAX {
                break;
            }
            if self.flusher.next_deadline() == Some(due_us) {
                self.flusher.advance(due_us);
                self.take_written(ledger);
            } else if let Some(file_system) = &mut self.file_system {
                file_system.machine.tick(due_us);
                file_system.take_requests(due_us, ledger, &mut self.charges);
            }
        }
        self.flusher.advance(now_us);
    }

    fn operation(&mut self, at_us: Micros, operation: &OperationKind, ledger: &Ledger) {
        let Some(file_system) = &mut self.file_system else { return };
        file_system.note(operation);
        file_system.machine.operation(at_us, operation);
        file_system.take_requests(at_us, ledger, &mut self.charges);
        // Neither ext4 nor F2FS writes a part of a file, or follows what is written.
        let Some(Urgent { file, .. }) = file_system.rule.operation(operation) else { return };
        let places = file_system.places.get(&file);
        let lacks_place =
            |dirty: Range<u64>| places.is_none_or(|places| places.lacking(dirty).next().is_some());
        if self.flusher.dirty_of(file).any(lacks_place) {
            self.flusher.write_file(at_us, file, FlushReason::Replacing);
            self.take_written(ledger);
        }
    }

    /// Charges the file data that was written, and gives it places.
    fn take_written(&mut self, ledger: &Ledger) {
        let Self { flusher, file_system, charges, .. } = self;
        for Reached { at_us, file, dirtier, first_page, pages, bytes, why } in flusher.drain_log() {
            charges.push(Charge {
                at_us,
                program: dirtier,
                file: ledger.files.find(file).unwrap_or(UNKNOWN),
                bytes,
                why: WriteReason::Data(why),
            });
            if let Some(file_system) = file_system {
                file_system.place(at_us, file, first_page..first_page.saturating_add(pages));
                file_system.take_requests(at_us, ledger, charges);
            }
        }
    }
}

/// The pages of a file that have places.
struct Places {
    /// Those before this one were there before the trace.
    old_end: u64,
    placed: Extents,
    /// Added to the number of a page, it gives the place; `None` before the first one has one.
    base: Option<Lba>,
}

impl Places {
    fn before_trace() -> Self {
        Self { old_end: u64::MAX, placed: Extents::default(), base: None }
    }

    /// The pages among these without a place.
    fn lacking(&self, pages: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = pages.start.max(self.old_end).min(pages.end);
        self.placed.gaps(first..pages.end)
    }
}

/// A model of a file system beside the flusher.
struct FileSystem {
    machine: Box<dyn Metadata>,
    rule: Box<dyn Rule>,
    collector: Collector,
    /// How many directories the machine has met.
    directories: usize,
    places: HashMap<FileId, Places, FixedState>,
    next_place: Lba,
    /// The program that changed a file last.
    changers: HashMap<FileId, u32, FixedState>,
    /// The number of commits whose blocks are in `committed`.
    commits: u64,
    /// Owners of the blocks that were committed and are not written in place yet: the block's file,
    /// or all files of the commit.
    committed: HashMap<Lba, (Option<Owner>, Shares), FixedState>,
}

impl FileSystem {
    fn new(metadata: &metadata::Selection, settings: FlusherSettings) -> Self {
        let FlusherSettings { expire_us, tick_us, .. } = settings;
        // A kernel whose flusher never runs writes metadata in place when the journal is full.
        let (after_us, tick_us) = match tick_us {
            0 => (Micros::MAX, 1),
            tick_us => (expire_us, tick_us),
        };
        let expire = Some(Expire { after_us, tick_us, ..Expire::default() });
        let modes = Modes { expire, syncs: Syncs::TheirFile, ..Modes::default() };
        Self {
            machine: (metadata.spec.streaming)(&metadata.params, &modes),
            rule: rules::of(metadata.spec.file_system),
            collector: Collector::streaming(),
            directories: 0,
            places: HashMap::default(),
            next_place: 0,
            changers: HashMap::default(),
            commits: 0,
            committed: HashMap::default(),
        }
    }

    fn held_bytes(&self) -> usize {
        self.machine.held_bytes()
            + self.rule.held_bytes()
            + self.collector.held_bytes()
            + self.places.allocation_size()
            + self.changers.allocation_size()
            + self.committed.allocation_size()
    }

    /// Notes the program that changes the event's file. One that only reads or syncs it counts if
    /// none is known.
    fn changed_by(&mut self, event: &Event<'_>, program: Option<u32>, ledger: &Ledger) {
        let Some(file) = event.action.file() else { return };
        let Some(program) = program.or_else(|| ledger.programs.get(event.pid)) else { return };
        let changes = matches!(
            event.action,
            Action::Write { .. }
                | Action::Direct { write: true, .. }
                | Action::Create(..)
                | Action::Open { created: true, .. }
                | Action::Link { .. }
                | Action::Unbind { .. }
                | Action::Rename { .. }
                | Action::Truncate { .. }
                | Action::Punch { .. }
        );
        match changes {
            true => drop(self.changers.insert(file, program)),
            false => drop(self.changers.entry(file).or_insert(program)),
        }
    }

    /// Adds the operations of an event, and whether they come behind its data.
    fn operations(&mut self, event: &Event<'_>, operations: &mut Vec<(bool, OperationKind)>) {
        // Most events are these.
        if let Action::Read { file, len, .. } = event.action {
            operations.extend((len > 0).then_some((false, OperationKind::Read(file))));
            return;
        }
        self.collector.push(event, 0, 1);
        let directories = self.collector.directories();
        for (n, directory) in directories.iter().enumerate().skip(self.directories) {
            self.machine.met_directory(DirectoryId(n as u32), directory.entry);
        }
        self.directories = directories.len();
        let drained = self.collector.drain();
        operations.extend(drained.map(|operation| (operation.after_steps > 0, operation.kind)));
    }

    /// Notes which pages of a file have places from the beginning.
    fn note(&mut self, operation: &OperationKind) {
        let new = |old_end| Places { old_end, ..Places::before_trace() };
        match *operation {
            OperationKind::Create(file, _) => drop(self.places.entry(file).or_insert(new(0))),
            OperationKind::Size(file, size) => {
                let places = self.places.entry(file).or_insert_with(Places::before_trace);
                places.old_end = places.old_end.min(size.div_ceil(PAGE_BYTES));
            }
            _ => {}
        }
    }

    /// Gives places to the pages among these that have none.
    fn place(&mut self, at_us: Micros, file: FileId, pages: Range<u64>) {
        let Self { machine, places, next_place, .. } = self;
        let places = places.entry(file).or_insert_with(Places::before_trace);
        let end = pages.end.min(pages.start.saturating_add(REQUEST_PAGES_MAX));
        let lacking: Vec<_> = places.lacking(pages.start..end).collect();
        for pages in lacking {
            places.placed.insert(pages.clone());
            let count = pages.end - pages.start;
            let base = *places.base.get_or_insert_with(|| {
                let first = *next_place;
                *next_place = (first + count) % PLACES;
                (first + PLACES - pages.start % PLACES) % PLACES
            });
            for (first, lba, pages) in on_device(base, pages) {
                machine.placed_run(at_us, file, first, lba, pages);
            }
        }
    }

    /// Takes the places of these pages away.
    fn free(&mut self, at_us: Micros, file: FileId, pages: Range<u64>) {
        let Some(places) = self.places.get_mut(&file) else { return };
        let base = places.base.unwrap_or(self.next_place);
        if places.old_end > pages.start && pages.end == u64::MAX {
            // How many there were is not always known: one stands for them.
            let (first, lba, _) =
                on_device(base, pages.start..pages.start + 1).next().expect("a page has a place");
            self.machine.freed(at_us, file, first, lba);
            places.old_end = pages.start;
        }
        let freed: Vec<_> = places.placed.parts(pages.clone()).collect();
        for (first, lba, count) in freed.into_iter().flat_map(|pages| on_device(base, pages)) {
            for n in 0..count {
                self.machine.freed(at_us, file, first + n, lba + n);
            }
        }
        places.placed.remove(pages);
    }

    /// Charges what the file system writes.
    fn take_requests(&mut self, at_us: Micros, ledger: &Ledger, charges: &mut Vec<Charge>) {
        let Self { machine, changers, commits, committed, .. } = self;
        let mut next = machine.poll();
        if next.is_none() {
            return;
        }
        let of_file_system = (FILE_SYSTEM, FILE_SYSTEM);
        let commit = match machine.commits() {
            count if count == *commits => Rc::new([(of_file_system, 1)]),
            count => {
                *commits = count;
                note_commit(&**machine, changers, committed, ledger)
            }
        };
        let mut journal_bytes = 0;
        let mut in_place: BTreeMap<Owner, u64> = BTreeMap::new();
        let mut shared: Vec<(Shares, u64)> = Vec::new();
        while let Some(request) = next {
            match request {
                BlockRequest::Write { pages, journal: true, .. } => {
                    journal_bytes += pages * PAGE_BYTES;
                }
                BlockRequest::Write { lba, pages, journal: false, .. } => {
                    for lba in lba..lba + pages {
                        let shares = match committed.remove(&lba) {
                            Some((Some(owner), _)) => {
                                *in_place.entry(owner).or_default() += PAGE_BYTES;
                                continue;
                            }
                            Some((None, shares)) => shares,
                            None => Rc::clone(&commit),
                        };
                        match shared.iter_mut().find(|(known, _)| Rc::ptr_eq(known, &shares)) {
                            Some((_, bytes)) => *bytes += PAGE_BYTES,
                            None => shared.push((shares, PAGE_BYTES)),
                        }
                    }
                }
                BlockRequest::Flush { .. } => {}
            }
            next = machine.poll();
        }
        let mut charge = |(program, file): Owner, bytes, why| {
            charges.push(Charge { at_us, program, file, bytes, why });
        };
        for (owner, bytes) in split(journal_bytes, &commit) {
            charge(owner, bytes, WriteReason::Journal);
        }
        for (shares, bytes) in shared {
            for (owner, bytes) in split(bytes, &shares) {
                charge(owner, bytes, WriteReason::Metadata);
            }
        }
        for (owner, bytes) in in_place {
            charge(owner, bytes, WriteReason::Metadata);
        }
    }
}

/// Where pages lie: first page, first place and length of each piece.
fn on_device(base: Lba, pages: Range<u64>) -> impl Iterator<Item = (u64, Lba, u64)> {
    let mut next = pages.start;
    std::iter::from_fn(move || {
        let lba = (base + next) % PLACES;
        let count = (pages.end - next).min(PLACES - lba);
        let piece = (next, lba, count);
        next += count;
        (count > 0).then_some(piece)
    })
}

/// Enters the blocks of the last commit, and returns the owners of the commit.
fn note_commit(
    machine: &dyn Metadata,
    changers: &HashMap<FileId, u32, FixedState>,
    committed: &mut HashMap<Lba, (Option<Owner>, Shares), FixedState>,
    ledger: &Ledger,
) -> Shares {
    let owner = |file: FileId| {
        let program = changers.get(&file).copied().unwrap_or(UNKNOWN);
        (program, ledger.files.find(file).unwrap_or(UNKNOWN))
    };
    let logged = machine.last_commit();
    let mut blocks: BTreeMap<Owner, u64> = BTreeMap::new();
    for file in logged.iter().filter_map(|logged| logged.file) {
        *blocks.entry(owner(file)).or_default() += 1;
    }
    if blocks.is_empty() {
        blocks.insert((FILE_SYSTEM, FILE_SYSTEM), 1);
    }
    let shares: Shares = blocks.into_iter().collect();
    for block in logged {
        committed.insert(block.lba, (block.file.map(owner), Rc::clone(&shares)));
    }
    shares
}

/// Splits bytes in proportion. The parts sum up to them.
fn split<T: Copy>(bytes: u64, shares: &[(T, u64)]) -> impl Iterator<Item = (T, u64)> + '_ {
    let all: u64 = shares.iter().map(|(_, weight)| weight).sum();
    let mut weights = 0;
    let mut given = 0;
    shares.iter().map(move |(to, weight)| {
        weights += weight;
        let until = (u128::from(bytes) * u128::from(weights) / u128::from(all.max(1))) as u64;
        let part = until - given;
        given = until;
        (*to, part)
    })
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use flashsift_caches::trace::Entry;
    use flashsift_events::address::Lba;
    use flashsift_pages::metadata::Logged;
    use proptest::prelude::*;
    use std::cell::RefCell;

    const SECOND: Micros = 1_000_000;

    /// An answer of a file system: how many commits it had made, the blocks of the
    /// last one, and a request. `None` is the end of a call's requests.
    type Answer = Option<(u64, Vec<Logged>, BlockRequest)>;

    /// Writes down what another machine answers.
    struct Spy {
        machine: Box<dyn Metadata>,
        answers: Rc<RefCell<Vec<Answer>>>,
    }

    impl Metadata for Spy {
        fn operation(&mut self, at_us: u64, operation: &OperationKind) {
            self.machine.operation(at_us, operation);
        }
        fn placed(&mut self, at_us: u64, file: FileId, page: u64, lba: Lba) {
            self.machine.placed(at_us, file, page, lba);
        }
        fn freed(&mut self, at_us: u64, file: FileId, page: u64, lba: Lba) {
            self.machine.freed(at_us, file, page, lba);
        }
        fn met_directory(&mut self, directory: DirectoryId, entry: Option<Entry>) {
            self.machine.met_directory(directory, entry);
        }
        fn next_deadline(&self) -> Option<u64> {
            self.machine.next_deadline()
        }
        fn tick(&mut self, at_us: u64) {
            self.machine.tick(at_us);
        }
        fn unmount(&mut self, at_us: u64) {
            self.machine.unmount(at_us);
        }
        fn poll(&mut self) -> Option<BlockRequest> {
            self.machine.check();
            let request = self.machine.poll();
            let note = |request| (self.commits(), self.last_commit().to_vec(), request);
            self.answers.borrow_mut().push(request.map(note));
            request
        }
        fn address(&self, lba: Lba) -> Lba {
            self.machine.address(lba)
        }
        fn commits(&self) -> u64 {
            self.machine.commits()
        }
        fn last_commit(&self) -> &[Logged] {
            self.machine.last_commit()
        }
        fn held_bytes(&self) -> usize {
            self.machine.held_bytes()
        }
        fn check(&self) {
            self.machine.check();
        }
    }

    /// Charges each block of its own, in fractions, by a map of blocks.
    #[derive(Default)]
    struct Model {
        commits: u64,
        /// By block that waits for its write in place: its owner, or a list with one entry for each
        /// block of a file in its commit.
        blocks: BTreeMap<Lba, Vec<Owner>>,
        charged: BTreeMap<(Owner, WriteReason), f64>,
    }

    impl Model {
        fn take(&mut self, answers: &[Answer], owner: impl Fn(FileId) -> Owner) {
            let mut commit = vec![(FILE_SYSTEM, FILE_SYSTEM)];
            for answer in answers {
                let Some((commits, logged, request)) = answer else {
                    commit = vec![(FILE_SYSTEM, FILE_SYSTEM)];
                    continue;
                };
                if *commits != self.commits {
                    self.commits = *commits;
                    let owners: Vec<_> = logged.iter().filter_map(|l| l.file).map(&owner).collect();
                    if !owners.is_empty() {
                        commit = owners;
                    }
                    for block in logged {
                        let own = block.file.map(|file| vec![owner(file)]);
                        self.blocks.insert(block.lba, own.unwrap_or_else(|| commit.clone()));
                    }
                }
                let BlockRequest::Write { lba, pages, journal, .. } = *request else { continue };
                for lba in lba..lba + pages {
                    let (owners, why) = match journal {
                        true => (commit.clone(), WriteReason::Journal),
                        false => {
                            let owners = self.blocks.remove(&lba);
                            (owners.unwrap_or_else(|| commit.clone()), WriteReason::Metadata)
                        }
                    };
                    for owner in &owners {
                        let part = PAGE_BYTES as f64 / owners.len() as f64;
                        *self.charged.entry((*owner, why)).or_default() += part;
                    }
                }
            }
        }
    }

    /// Seconds since the event before, the process and the event.
    fn histories() -> impl Strategy<Value = Vec<(u64, u32, Action<'static>)>> {
        let pause = prop_oneof![6 => Just(0_u64), 3 => 0..4_u64, 1 => 20..50_u64];
        let event = (pause, 1..4_u32, 0..14_u32, 0..6_u64, 0..40_u64, 1..9_u64);
        prop::collection::vec(event, 1..150).prop_map(|events| {
            let mut epochs = [0_u64; 6];
            let history = events.into_iter().map(|(pause, pid, kind, file, page, pages)| {
                let epoch = &mut epochs[file as usize];
                let id = *epoch * 10 + file;
                let name = format!("/top/{}/{file}", file % 3);
                let (offset, len) = (page * PAGE_BYTES, pages * PAGE_BYTES - 7);
                let action = match kind {
                    0 | 1 => create_named(id, &name),
                    2..6 => write(id, offset, len),
                    6 => write_sync(id, offset, len),
                    7 => read(id, offset, len),
                    8 => truncate(id, offset),
                    9 | 10 => sync(id),
                    11 => Action::SyncAll,
                    12 => rename(id, &name, &format!("/top/{}/{file}", page % 3)),
                    _ => {
                        *epoch += 1;
                        gone(id)
                    }
                };
                (pause, pid, action)
            });
            history.collect()
        })
    }

    proptest! {
        /// File data is charged as without a file system, and each block of journal and metadata as
        /// in a model that knows single blocks; sums are exact.
        // Promises: Describe 24.
        #[test]
        fn as_a_model_that_charges_each_block(
            history in histories(),
            kind in prop_oneof![Just("ext4"), Just("f2fs"), Just("ext4:groups=1,commit=1s")],
        ) {
            let settings = FlusherSettings::default();
            let metadata = metadata::Selection::parse(kind).unwrap();
            let mut writes = FlashWrites::new(settings, Some(&metadata));
            let mut without = FlashWrites::new(settings, None);
            let answers = Rc::<RefCell<Vec<Answer>>>::default();
            {
                let system = writes.file_system.as_mut().unwrap();
                let machine = (metadata.spec.streaming)(&metadata.params, &Modes {
                    expire: Some(Expire::default()),
                    syncs: Syncs::TheirFile,
                    ..Modes::default()
                });
                system.machine = Box::new(Spy { machine, answers: Rc::clone(&answers) });
            }
            let mut model = Model::default();
            let mut ledger = Ledger::new(about());
            let mut touched = Vec::new();
            let mut changers: BTreeMap<FileId, u32> = BTreeMap::new();
            let mut charged: BTreeMap<(Owner, WriteReason), u64> = BTreeMap::new();
            let (mut data, mut data_without) = (BTreeMap::new(), BTreeMap::new());
            let (mut at_us, mut all, mut splits) = (0, 0, 0);
            for (pause, pid, action) in history {
                // Pages that are due until then are charged to those who changed files before.
                for step in 0..=pause {
                    let begin = at_us + step * SECOND;
                    let event = Event { at_us: begin, pid: 0, tid: 0, action: Action::SyncAll };
                    let is_last = step == pause;
                    let event = if is_last { Event { pid, action: action.clone(), ..event } } else { event };
                    let owner = |file: FileId| {
                        let program = changers.get(&file).copied().unwrap_or(UNKNOWN);
                        (program, ledger.files.find(file).unwrap_or(UNKNOWN))
                    };
                    writes.advance(begin, &ledger);
                    without.advance(begin, &ledger);
                    model.take(&answers.take(), owner);
                    if !is_last {
                        continue;
                    }
                    let entered = ledger.take(&event, &mut touched).unwrap();
                    let program = entered.program.or_else(|| ledger.programs.get(pid));
                    if let (Some(file), Some(program)) = (event.action.file(), program) {
                        match event.action {
                            Action::Read { .. } | Action::Sync { .. } | Action::Gone { .. } => {
                                changers.entry(file).or_insert(program);
                            }
                            _ => drop(changers.insert(file, program)),
                        }
                    }
                    let owner = |file: FileId| {
                        let program = changers.get(&file).copied().unwrap_or(UNKNOWN);
                        (program, ledger.files.find(file).unwrap_or(UNKNOWN))
                    };
                    // Each call of the machine is a batch: commits do not reach into the next one.
                    writes.event(&event, entered.program, &ledger);
                    without.event(&event, entered.program, &ledger);
                    model.take(&answers.take(), owner);
                }
                at_us += pause * SECOND;
                for Charge { program, file, bytes, why, .. } in writes.drain() {
                    splits += 1;
                    match why {
                        WriteReason::Data(_) => *data.entry((program, file, why)).or_insert(0) += bytes,
                        _ => {
                            all += bytes;
                            *charged.entry(((program, file), why)).or_default() += bytes;
                        }
                    }
                }
                for Charge { program, file, bytes, why, .. } in without.drain() {
                    *data_without.entry((program, file, why)).or_insert(0) += bytes;
                }
            }
            prop_assert_eq!(data, data_without);
            prop_assert_eq!(all as f64, model.charged.values().sum::<f64>().round());
            for (key, bytes) in &model.charged {
                let ours = charged.get(key).copied().unwrap_or(0) as f64;
                prop_assert!((ours - bytes).abs() <= 1.0 + f64::from(splits), "{:?}: {} {}", key, ours, bytes);
            }
        }

        // Promises: Describe 24.
        #[test]
        fn parts_sum_up(bytes in 0..1_u64 << 50, weights in prop::collection::vec(1..1_u64 << 40, 1..20)) {
            let shares: Vec<_> = weights.iter().copied().enumerate().collect();
            let all: u64 = weights.iter().sum();
            let mut sum = 0;
            for ((n, part), weight) in split(bytes, &shares).zip(&weights) {
                let exact = bytes as f64 * (*weight as f64 / all as f64);
                prop_assert!((part as f64 - exact).abs() <= 1.0 + exact * 1e-12, "{}: {} {}", n, part, exact);
                sum += part;
            }
            prop_assert_eq!(sum, bytes);
        }
    }
}
