//! Power cuts at random moments of random histories of a group, on a modelled file system.
//!
//! The model keeps what a file system with a journal promises and nothing more. Changes of names
//! and sizes become durable in order; data becomes durable in any order, or not at all, before a
//! commit. The pages of the log become durable in any order before the log is flushed, and one that
//! is under way may be torn. The numbers of deleted files are used again.
//!
//! A plain map from paths to contents, which knows nothing of logs, says what each epoch is to
//! leave. After a cut and a recovery (and at times a cut during that one) the files have to be
//! those of the last epoch that was flushed, or of the one whose flush was under way.

use super::{
    changes::Changes,
    plan::{DeferredPages, EpochFile, EpochPlan, EpochStep, KnownFile, Log, Standing},
    record::{
        Attributes, EntryHead, FileChange, FileRef, HeldPages, InPlace, InodeId, Loss, PIECE_BYTES,
        Path, Pieces, Record, Recovery, Removal, recovery,
    },
};
use flashsift_events::{page::PAGE_BYTES, structure::Extents};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

/// A file is a sequence of cells, four a page. A cell of the log is filled with its value.
const CELLS: usize = 4;
const CELL_BYTES: u64 = PAGE_BYTES / CELLS as u64;
/// Pieces of a cell.
const CELL_PIECES: u32 = u64::BITS / CELLS as u32;
const SECTOR_BYTES: usize = 512;
const PATHS: u8 = 6;
const LARGEST_CELLS: u64 = 5 * CELLS as u64;
/// The log begins anew that early, bytes: every few epochs.
const LOG_BYTES: u64 = 8 * PAGE_BYTES;

type Ino = u64;
type PageCells = [u8; CELLS];

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// New files and grown parts are not made durable before the head.
    NoCommit,
    /// The head is written before new files are durable.
    HeadBeforeCommit,
    /// The log is not flushed before an epoch counts as durable.
    NoFlushLog,
    /// The record is applied before it is durable.
    ApplyBeforeHead,
    /// The log begins anew before the changes in place are durable.
    ReusedEarly,
    /// Files grow although the log does not have their sizes.
    SizeNotListed,
    /// Zeros in place are written over although the log does not have them.
    ZerosNotListed,
    /// Recovery leaves what an epoch that does not count wrote over zeros.
    ZerosOverwritten,
    /// The next epoch leaves out files of one that failed.
    TakenBackLeftOut,
    /// Pages that an epoch added to a file, and then failed, stay there.
    GrowthLeft,
    /// The log begins anew after an epoch that failed.
    FailureForgotten,
    /// Applications go on while their files are captured.
    WritersGoOn,
    /// Names go at once, before the epoch is durable.
    RemovedAtOnce,
    /// A recovery takes entries without a look at their checksums.
    NoChecksum,
    /// Truncations within an epoch are not recorded.
    NoCut,
    /// An epoch leaves out overwritten pages of its second file.
    SecondFileLeftOut,
    /// Recovery replays only the last entry.
    OnlyLastEntry,
    /// Recovery replays entries that newer ones supersede.
    Superseded,
    /// Recovery does not look for a file among those that wait for their names.
    HiddenOverlooked,
    /// The log begins anew although it alone has some pages.
    NoCheckpoint,
    /// A checkpoint writes pages as they are in RAM now.
    CheckpointFromRam,
    /// An entry after a commit counts as if all pages were in their place.
    PagesForgotten,
    /// Recovery applies sizes again that were durable in place.
    SizesAgain,
    /// Recovery writes pages that a newer entry has cut off.
    CutOverlooked,
    /// Recovery looks for a file only where the entry of its page saw it.
    OldPaths,
    /// Recovery takes a new file for the deleted one whose number it has.
    NumbersReused,
    /// An entry holds only what differs from the page in place, and not what older entries hold.
    PiecesForgotten,
    /// The files of a capture alone are synced, although a checkpoint wrote pages of others.
    CheckpointNotSynced,
    /// Pages that an epoch wrote over zeros, and then failed, count as zeros in place.
    FoulForgotten,
    /// Recovery punches no holes.
    HolesOverlooked,
    /// A page over a hole that a checkpoint may have punched is held as if it had not been.
    HolesForgotten,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 31] = [
        Self::NoCommit,
        Self::HeadBeforeCommit,
        Self::NoFlushLog,
        Self::ApplyBeforeHead,
        Self::ReusedEarly,
        Self::SizeNotListed,
        Self::ZerosNotListed,
        Self::ZerosOverwritten,
        Self::TakenBackLeftOut,
        Self::GrowthLeft,
        Self::FailureForgotten,
        Self::WritersGoOn,
        Self::RemovedAtOnce,
        Self::NoChecksum,
        Self::NoCut,
        Self::SecondFileLeftOut,
        Self::OnlyLastEntry,
        Self::Superseded,
        Self::HiddenOverlooked,
        Self::NoCheckpoint,
        Self::CheckpointFromRam,
        Self::PagesForgotten,
        Self::SizesAgain,
        Self::CutOverlooked,
        Self::OldPaths,
        Self::NumbersReused,
        Self::PiecesForgotten,
        Self::CheckpointNotSynced,
        Self::FoulForgotten,
        Self::HolesOverlooked,
        Self::HolesForgotten,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Path(u8),
    Hidden(u64),
}

/// One request to the file system.
#[derive(Clone, Debug)]
enum Request {
    /// Changes of names: all or none.
    Names(Vec<(Name, Option<Ino>)>),
    /// A file, and when it was created.
    Create(Ino, u64),
    Resize(Ino, u64),
    Data(Ino, u64, PageCells),
    Punch(Ino, u64),
    LogPage(u64, Box<[u8]>),
    Commit,
    /// Of all files names and sizes, and the data of these.
    SyncFiles(BTreeSet<Ino>),
    FlushLog,
    /// From here on a recovery may or has to find this epoch.
    Begun(usize),
    Durable(usize),
}

impl Request {
    /// The file has so many cells.
    fn cut(&mut self, cut: Ino, cells: usize) {
        if let Self::Data(ino, page, data) = self
            && *ino == cut
        {
            let left = cells.saturating_sub(*page as usize * CELLS).min(CELLS);
            data[left..].fill(0);
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Inode {
    born: u64,
    cells: u64,
    pages: BTreeMap<u64, PageCells>,
}

/// The content of a disk.
#[derive(Clone, Debug, Default)]
struct Disk {
    names: BTreeMap<Name, Ino>,
    inodes: BTreeMap<Ino, Inode>,
    log: Vec<u8>,
}

/// The content of each path.
type Tree = BTreeMap<u8, Vec<u8>>;

impl Disk {
    fn perform(&mut self, request: &Request) {
        match request {
            Request::Names(names) => {
                for (name, ino) in names {
                    match ino {
                        Some(ino) => self.names.insert(*name, *ino),
                        None => self.names.remove(name),
                    };
                }
            }
            Request::Create(ino, born) => {
                self.inodes.insert(*ino, Inode { born: *born, ..Inode::default() });
            }
            Request::Resize(ino, cells) => {
                let inode = self.inodes.entry(*ino).or_default();
                inode.cells = *cells;
                inode.pages.retain(|page, _| page * (CELLS as u64) < *cells);
                let (last, within) = (*cells / CELLS as u64, *cells as usize % CELLS);
                if let Some(page) = inode.pages.get_mut(&last) {
                    page[within..].fill(0);
                }
            }
            Request::Data(ino, page, cells) => {
                // Blocks behind the end are not part of the file.
                if let Some(inode) = self.inodes.get_mut(ino)
                    && page * (CELLS as u64) < inode.cells
                {
                    inode.pages.insert(*page, *cells);
                }
            }
            Request::Punch(ino, page) => {
                if let Some(inode) = self.inodes.get_mut(ino) {
                    inode.pages.remove(page);
                }
            }
            Request::LogPage(page, bytes) => {
                let at = (page * PAGE_BYTES) as usize;
                if self.log.len() < at + bytes.len() {
                    self.log.resize(at + bytes.len(), 0);
                }
                self.log[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Request::Commit
            | Request::SyncFiles(_)
            | Request::FlushLog
            | Request::Begun(_)
            | Request::Durable(_) => {}
        }
    }

    fn cells(&self, ino: Ino) -> Vec<u8> {
        let Some(inode) = self.inodes.get(&ino) else { return Vec::new() };
        let page = |cell: u64| inode.pages.get(&(cell / CELLS as u64));
        let value = |cell| page(cell).map_or(0, |cells| cells[cell as usize % CELLS]);
        (0..inode.cells).map(value).collect()
    }

    fn tree(&self) -> Tree {
        let path = |(name, ino): (&Name, &Ino)| match name {
            Name::Path(path) => Some((*path, self.cells(*ino))),
            Name::Hidden(_) => None,
        };
        self.names.iter().filter_map(path).collect()
    }

    /// While names are being placed, a file may have only its hidden one.
    fn find(&self, file: &FileRef, hidden: &[u64], fault: Option<Fault>) -> Option<Ino> {
        let paths = file.paths.iter().map(|path| Name::Path(path[0]));
        let hidden = hidden.iter().map(|number| Name::Hidden(*number));
        let hidden = hidden.filter(|_| fault != Some(Fault::HiddenOverlooked));
        let mut named = paths.chain(hidden).filter_map(|name| self.names.get(&name)).copied();
        named.find(|ino| {
            let same = self.inodes.get(ino).is_some_and(|inode| inode.born == file.id.born_ns);
            *ino == file.id.ino && (same || fault == Some(Fault::NumbersReused))
        })
    }

    /// Writes pages of the log to their place, with zeros behind the end of the file.
    fn write_pages<'a>(
        &mut self,
        all: &mut Vec<Request>,
        ino: Ino,
        runs: impl IntoIterator<Item = &'a HeldPages>,
    ) {
        let size = self.inodes[&ino].cells;
        for held in runs {
            let mut pages: BTreeMap<u64, PageCells> = BTreeMap::new();
            for page in held.pages.clone().filter(|_| held.is_hole()) {
                self.request(all, Request::Punch(ino, page));
            }
            for (range, at) in held.parts() {
                for piece in (range.start..range.end).step_by(PIECE_BYTES as usize) {
                    let (page, cell) = (piece / PAGE_BYTES, piece % PAGE_BYTES / CELL_BYTES);
                    let cells = pages.entry(page).or_insert_with(|| self.in_place(ino, page));
                    let at = (at + piece - range.start) as usize;
                    cells[cell as usize] = self.log.get(at).copied().unwrap_or(0);
                }
            }
            for (page, mut cells) in pages {
                let left = size.saturating_sub(page * CELLS as u64);
                cells[left.min(CELLS as u64) as usize..].fill(0);
                if left > 0 {
                    self.request(all, Request::Data(ino, page, cells));
                }
            }
        }
    }

    fn in_place(&self, ino: Ino, page: u64) -> PageCells {
        self.inodes.get(&ino).and_then(|inode| inode.pages.get(&page)).copied().unwrap_or_default()
    }

    /// The requests by which a record is applied; the disk has their effect. `pages_at`: with the
    /// pages, which begin there in the log.
    fn apply(
        &mut self,
        record: &Record,
        pages_at: Option<u64>,
        fault: Option<Fault>,
    ) -> Vec<Request> {
        let mut all = Vec::new();
        let hidden: Vec<u64> = record.places.iter().map(|place| place.hidden).collect();
        for change in &record.changes {
            let Some(ino) = self.find(&change.file, &hidden, fault) else { continue };
            let now = self.inodes[&ino].cells;
            if let Some(cut) = change.cut.filter(|_| fault != Some(Fault::NoCut)) {
                self.request(&mut all, Request::Resize(ino, now.min(cut / CELL_BYTES)));
            }
            // The new pages may lie behind the end of the file as it is now.
            let cells = change.size / CELL_BYTES;
            if self.inodes[&ino].cells < cells {
                self.request(&mut all, Request::Resize(ino, cells));
            }
            if let Some(pages_at) = pages_at {
                let of_file = |(of, _): &(&FileChange, _)| of.file.id == change.file.id;
                let runs = record.runs(pages_at).filter(of_file);
                let runs: Vec<HeldPages> = runs.map(|(_, held)| held).collect();
                self.write_pages(&mut all, ino, &runs);
            }
            self.request(&mut all, Request::Resize(ino, cells));
            if pages_at.is_some() && fault != Some(Fault::ZerosOverwritten) {
                let there = self.inodes[&ino].pages.keys();
                let is_blank = |page: &u64| change.blank.missing(*page..page + 1) == 0;
                let blank: Vec<u64> = there.copied().filter(is_blank).collect();
                for page in blank {
                    self.request(&mut all, Request::Data(ino, page, [0; CELLS]));
                }
            }
        }
        for place in &record.places {
            let (from, to) = (Name::Hidden(place.hidden), Name::Path(place.path[0]));
            if let Some(ino) = self.names.get(&from).copied() {
                self.request(&mut all, Request::Names(vec![(to, Some(ino)), (from, None)]));
            }
        }
        for removal in &record.removals {
            let name = Name::Path(removal.path[0]);
            if self.names.get(&name) == Some(&removal.ino) {
                self.request(&mut all, Request::Names(vec![(name, None)]));
            }
        }
        all
    }

    fn request(&mut self, all: &mut Vec<Request>, request: Request) {
        self.perform(&request);
        all.push(request);
    }

    /// Changes a byte of an entry that was flushed before the last one.
    fn rot(&mut self, random: &mut Pcg64Mcg) {
        let mut found = unfailing(super::record::faulty_entries(read(&self.log), true));
        found.pop();
        // Damage of the first record looks as if the log were to begin anew.
        if let [first, .., last] = &found[..] {
            let at = random.random_range(first.end as usize..last.end as usize);
            self.log[at] ^= 1 << random.random_range(0..8);
        }
    }

    /// Does what the log says. Returns the requests; `None`: it refuses, as the log is damaged.
    fn recover(&mut self, fault: Option<Fault>) -> Option<Vec<Request>> {
        let log = self.log.clone();
        let mut found = match fault {
            None => Vec::new(),
            Some(Fault::NoChecksum) => unfailing(super::record::faulty_entries(read(&log), false)),
            Some(_) => unfailing(super::record::faulty_entries(read(&log), true)),
        };
        match fault {
            Some(Fault::OnlyLastEntry) => {
                found.drain(..found.len().saturating_sub(1));
            }
            Some(Fault::Superseded) => {
                found.iter_mut().for_each(|entry| entry.record.in_place = InPlace::Nothing);
            }
            Some(Fault::SizesAgain) => {
                for entry in &mut found {
                    if entry.record.in_place == InPlace::AllButPages {
                        entry.record.in_place = InPlace::Nothing;
                    }
                }
            }
            Some(Fault::PagesForgotten) => {
                for entry in &mut found {
                    if entry.record.in_place == InPlace::AllButPages {
                        entry.record.in_place = InPlace::Everything;
                    }
                }
            }
            _ => {}
        }
        let found = match fault {
            Some(fault @ (Fault::CutOverlooked | Fault::OldPaths)) => {
                Recovery::faulty(found, fault == Fault::CutOverlooked)
            }
            Some(_) => Recovery::new(found),
            None => unfailing(recovery(read(&log))),
        };
        if found.damage.is_some_and(|damage| damage.loss == Loss::Mixture) {
            return None;
        }
        let mut all = Vec::new();
        for logged in &found.pages {
            if let Some(ino) = self.find(&logged.file, &found.hidden, fault) {
                let is_seen =
                    |held: &&HeldPages| fault != Some(Fault::HolesOverlooked) || !held.is_hole();
                self.write_pages(&mut all, ino, logged.runs.iter().filter(is_seen));
            }
        }
        for entry in &found.entries {
            all.extend(self.apply(&entry.record, Some(entry.pages_at), fault));
        }
        let hidden: Vec<Name> =
            self.names.keys().copied().filter(|name| matches!(name, Name::Hidden(_))).collect();
        // Only when all is durable; the cuts of a recovery come before that.
        for name in hidden {
            self.names.remove(&name);
        }
        Some(all)
    }
}

fn read(log: &[u8]) -> impl FnMut(u64, &mut [u8]) -> Result<bool, Infallible> + '_ {
    |at, into| {
        let Some(from) = log.get(at as usize..).and_then(|log| log.get(..into.len())) else {
            return Ok(false);
        };
        into.copy_from_slice(from);
        Ok(true)
    }
}

fn unfailing<T>(done: Result<T, Infallible>) -> T {
    done.unwrap_or_else(|never| match never {})
}

/// A file as applications see it.
#[derive(Clone, Debug)]
struct Ram {
    base: Option<Ino>,
    changes: Changes,
    cells: Vec<u8>,
    names: BTreeSet<u8>,
    synced: bool,
    /// The content that flash is to have of it.
    below: Vec<u8>,
}

/// A group, and the file system below it.
struct Group {
    random: Pcg64Mcg,
    fault: Option<Fault>,
    files: BTreeMap<u64, Ram>,
    next_key: u64,
    next_hidden: u64,
    disk: Disk,
    requests: Vec<Request>,
    log: Log,
    /// Files that were created so far.
    created: u64,
    /// By epoch, what it leaves.
    expected: Vec<Tree>,
}

fn path(path: u8) -> Path {
    [path].into()
}

impl Group {
    fn new(seed: u64, fault: Option<Fault>) -> Self {
        let mut group = Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            fault,
            files: BTreeMap::new(),
            next_key: 0,
            next_hidden: 0,
            disk: Disk::default(),
            requests: Vec::new(),
            log: Log::starting_at(1).with_sparse_pieces(CELL_PIECES),
            created: 0,
            expected: vec![Tree::new()],
        };
        // Some files were there before.
        for name in 0..PATHS / 2 {
            let ino = group.unused();
            let cells = group.random.random_range(0..LARGEST_CELLS);
            group.create(ino);
            group.send(Request::Resize(ino, cells));
            for page in 0..cells.div_ceil(CELLS as u64) {
                let value = group.random.random_range(1..=u8::MAX);
                if group.random.random_range(0..3) == 0 {
                    continue;
                }
                let left = cells - page * CELLS as u64;
                let cell = |number| if (number as u64) < left { value } else { 0 };
                group.send(Request::Data(ino, page, std::array::from_fn(cell)));
            }
            group.send(Request::Names(vec![(Name::Path(name), Some(ino))]));
            let below = group.disk.cells(ino);
            let file = Ram {
                base: Some(ino),
                changes: Changes::of_size(cells * CELL_BYTES),
                cells: below.clone(),
                names: [name].into(),
                synced: false,
                below,
            };
            group.add(file);
        }
        group.send(Request::Commit);
        group.expected = vec![group.disk.tree()];
        group
    }

    fn add(&mut self, file: Ram) {
        self.next_key += 1;
        self.files.insert(self.next_key, file);
    }

    fn send(&mut self, request: Request) {
        self.disk.perform(&request);
        self.requests.push(request);
    }

    /// The lowest number that no file has.
    fn unused(&self) -> Ino {
        let used: BTreeSet<Ino> = self.disk.names.values().copied().collect();
        (1..).find(|ino| !used.contains(ino)).expect("numbers do not end")
    }

    fn owner(&self, name: u8) -> Option<u64> {
        self.files.iter().find(|(_, file)| file.names.contains(&name)).map(|(key, _)| *key)
    }

    fn lose_name(&mut self, name: u8) {
        let Some(key) = self.owner(name) else { return };
        let file = self.files.get_mut(&key).expect("it has the name");
        file.names.remove(&name);
        if file.names.is_empty() {
            self.files.remove(&key);
        }
        if self.fault == Some(Fault::RemovedAtOnce)
            && self.disk.names.contains_key(&Name::Path(name))
        {
            self.send(Request::Names(vec![(Name::Path(name), None)]));
        }
    }

    fn write(&mut self, key: u64) {
        let at = self.random.random_range(0..LARGEST_CELLS);
        let len = self.random.random_range(1..=6).min(LARGEST_CELLS - at);
        // At times what was there before.
        let last = if self.random.random() { u8::MAX } else { 2 };
        let value = self.random.random_range(1..=last);
        let Some(file) = self.files.get_mut(&key) else { return };
        file.changes.wrote(at * CELL_BYTES, len * CELL_BYTES);
        let end = (at + len) as usize;
        if file.cells.len() < end {
            file.cells.resize(end, 0);
        }
        file.cells[at as usize..end].fill(value);
    }

    fn punch(&mut self, key: u64) {
        let at = self.random.random_range(0..LARGEST_CELLS);
        let len = self.random.random_range(1..=2 * CELLS as u64);
        let Some(file) = self.files.get_mut(&key) else { return };
        file.changes.punched(at * CELL_BYTES, len * CELL_BYTES);
        let end = file.cells.len().min((at + len) as usize);
        file.cells[(at as usize).min(end)..end].fill(0);
    }

    fn step(&mut self) {
        let name = self.random.random_range(0..PATHS);
        let other = self.random.random_range(0..PATHS);
        let Some(key) = self.owner(name) else {
            let file = Ram {
                base: None,
                changes: Changes::default(),
                cells: Vec::new(),
                names: [name].into(),
                synced: false,
                below: Vec::new(),
            };
            self.add(file);
            return self.write(self.next_key);
        };
        match self.random.random_range(0..22) {
            0..=8 => self.write(key),
            9..=12 => self.files.get_mut(&key).expect("it has the name").synced = true,
            13 => {
                let size = self.random.random_range(0..LARGEST_CELLS);
                let file = self.files.get_mut(&key).expect("it has the name");
                let shorter = size < file.cells.len() as u64;
                let cut = file.changes.resized(size * CELL_BYTES);
                if let Some(page) = cut.filter(|_| shorter) {
                    file.changes.wrote(page * PAGE_BYTES, size * CELL_BYTES - page * PAGE_BYTES);
                }
                file.cells.resize(size as usize, 0);
            }
            14 => self.lose_name(name),
            20 | 21 => self.punch(key),
            15 | 16 if other != name && self.owner(other) != Some(key) => {
                self.lose_name(other);
                self.lose_name_to(key, name, Some(other));
            }
            17 if self.owner(other).is_none() => {
                let file = self.files.get_mut(&key).expect("it has the name");
                file.names.insert(other);
            }
            18 | 19 => {
                let (whole, fails) = (self.random.random(), self.random.random_range(0..5) == 0);
                self.end_epoch(whole, fails);
            }
            _ => {}
        }
    }

    fn lose_name_to(&mut self, key: u64, name: u8, other: Option<u8>) {
        let file = self.files.get_mut(&key).expect("it has the name");
        file.names.extend(other);
        self.lose_name(name);
    }

    fn id(&self, ino: Ino) -> InodeId {
        InodeId { ino, born_ns: self.disk.inodes.get(&ino).map_or(0, |inode| inode.born) }
    }

    fn create(&mut self, ino: Ino) {
        self.created += 1;
        self.send(Request::Create(ino, self.created));
    }

    fn base_of(&self, ino: Ino) -> FileRef {
        let named = |(name, of): (&Name, &Ino)| match name {
            Name::Path(name) if *of == ino => Some(path(*name)),
            _ => None,
        };
        let paths = self.disk.names.iter().filter_map(named).collect();
        FileRef { id: self.id(ino), paths }
    }

    fn standing(&self, file: &Ram) -> Standing {
        let there = |name: &u8| self.disk.names.get(&Name::Path(*name)).copied();
        let moved = |name: &u8| there(name) != file.base && (there(name).or(file.base)).is_some();
        Standing { synced: file.synced, moved: file.names.iter().any(moved) }
    }

    /// `fails`: before its head is written.
    fn end_epoch(&mut self, whole: bool, fails: bool) {
        if self.random.random_range(0..8) == 0 {
            self.checkpoint(&self.log.deferred());
            self.log.checkpointed();
        }
        let fault = self.fault;
        if self.log.has_failed() && fault != Some(Fault::GrowthLeft) {
            let files = self.files.values();
            let below = files.filter_map(|file| Some((file.base?, file.changes.below())));
            for (ino, below) in below.collect::<Vec<_>>() {
                if self.disk.inodes[&ino].cells * CELL_BYTES > below {
                    self.send(Request::Resize(ino, below / CELL_BYTES));
                }
            }
        }
        let known: Vec<KnownFile> =
            self.files.values().filter_map(|file| self.known(file)).collect();
        let anew = self.log.bytes() >= LOG_BYTES;
        let mut prepared = self.log.prepare(known.clone(), anew);
        let leaves_out = matches!(fault, Some(Fault::SizeNotListed | Fault::ZerosNotListed));
        if leaves_out && !prepared.commits {
            (prepared.sizes, prepared.log) = (None, self.log.clone());
        }
        for known in known {
            match fault {
                Some(Fault::SizeNotListed) => prepared.log.list(known.file.id, None),
                Some(Fault::ZerosNotListed) => {
                    prepared.log.list(known.file.id, Some(known.holes));
                }
                _ => {}
            }
        }
        if fault != Some(Fault::NoCheckpoint) {
            self.checkpoint(&prepared.checkpoint);
        }
        if prepared.commits && fault != Some(Fault::ReusedEarly) {
            self.send(Request::Commit);
        }
        if let Some(sizes) = &prepared.sizes {
            self.expected.push(self.expected.last().expect("one was there before").clone());
            self.entry(sizes, Vec::new(), false);
        }
        self.log = prepared.log;

        let included: BTreeMap<u64, Ram> = self
            .files
            .iter()
            .filter(|(_, file)| self.standing(file).is_included(whole))
            .map(|(key, file)| (*key, file.clone()))
            .collect();
        let anew: BTreeSet<u64> =
            included.keys().copied().filter(|_| self.random.random_range(0..6) == 0).collect();
        let files: Vec<EpochFile> = included
            .iter()
            .map(|(key, file)| {
                let there = |name: &u8| self.disk.names.get(&Name::Path(*name)).copied();
                let base = file.base.filter(|_| !anew.contains(key));
                let missing = |name: &&u8| base.is_none() || there(name) != base;
                EpochFile {
                    key: *key,
                    base: base.map(|ino| self.base_of(ino)),
                    changes: file.changes.clone(),
                    partial: base.map_or_else(BTreeMap::new, |ino| self.differences(*key, ino)),
                    attributes: Attributes::default(),
                    names: file.names.iter().filter(missing).map(|name| path(*name)).collect(),
                }
            })
            .collect();
        let gone = |(name, ino): (&Name, &Ino)| match name {
            Name::Path(name) if self.owner(*name).is_none() => {
                Some(Removal { path: path(*name), ino: *ino })
            }
            _ => None,
        };
        let removals: Vec<Removal> = self.disk.names.iter().filter_map(gone).collect();
        if fault == Some(Fault::PiecesForgotten) {
            self.log.forget_held();
        }
        if fault == Some(Fault::FoulForgotten) {
            self.log.forget_foul();
        }
        let next_hidden = &mut self.next_hidden;
        let mut plan = self.log.plan(&files, removals, false, || {
            *next_hidden += 1;
            *next_hidden
        });
        if fails {
            self.log.set_failed(fault != Some(Fault::FailureForgotten));
            self.entry(&plan, Vec::new(), true);
            for key in included.keys().filter(|_| fault != Some(Fault::TakenBackLeftOut)) {
                self.files.get_mut(key).expect("it is there").synced = true;
            }
            return;
        }
        let mut tree = Tree::new();
        for file in self.files.values_mut() {
            let is_included = included.values().any(|included| included.names == file.names);
            if is_included {
                file.below.clone_from(&file.cells);
            }
            if is_included || file.base.is_some() {
                tree.extend(file.names.iter().map(|name| (*name, file.below.clone())));
            }
        }
        self.expected.push(tree);
        match fault {
            Some(Fault::NoCommit) if plan.commit[0] != EpochStep::Head => {
                plan.commit.remove(0);
            }
            Some(Fault::HeadBeforeCommit) if plan.commit[0] != EpochStep::Head => {
                plan.commit.swap(0, 1);
            }
            Some(Fault::CheckpointNotSynced) if plan.commit[0] == EpochStep::Commit => {
                plan.commit[0] = EpochStep::SyncFiles;
            }
            Some(Fault::SecondFileLeftOut) if plan.record.changes.len() > 1 => {
                let second = plan.record.changes[1].file.id.ino;
                let of_second = |key: &u64| included[key].base == Some(second);
                plan.capture.retain(
                    |step| !matches!(step, EpochStep::Append { file, .. } if of_second(file)),
                );
            }
            _ => {}
        }
        let late: Vec<u64> = included.keys().copied().collect();
        self.entry(&plan, late, false);
        for key in included.keys() {
            if let Some(file) = self.files.get_mut(key) {
                file.changes.take();
                file.synced = false;
                let name = *file.names.first().expect("a file has a name");
                file.base = self.disk.names.get(&Name::Path(name)).copied();
            }
        }
        self.log = plan.log;
        if fault == Some(Fault::HolesForgotten) {
            self.log.forget_holes();
        }
    }

    /// Writes pages that only the log has to their place.
    fn checkpoint(&mut self, deferred: &[DeferredPages]) {
        for run in deferred {
            // Its file may be gone.
            let ino = run.id.ino;
            if !self.disk.names.values().any(|named| *named == ino) || self.id(ino) != run.id {
                continue;
            }
            let file = self.files.iter().find(|(_, file)| file.base == Some(ino));
            if let Some((key, _)) = file.filter(|_| self.fault == Some(Fault::CheckpointFromRam)) {
                let key = *key;
                for page in run.held.pages.clone() {
                    let cells = self.page(key, page);
                    self.send(Request::Data(ino, page, cells));
                }
                continue;
            }
            let mut all = Vec::new();
            self.disk.write_pages(&mut all, ino, [&run.held]);
            self.requests.extend(all);
        }
    }

    /// The pieces in which its pages differ from those in place, where the page cache has them.
    fn differences(&self, key: u64, ino: Ino) -> BTreeMap<u64, Pieces> {
        let differ = |page: u64| {
            let bytes = |cells: PageCells| cells.map(|cell| [cell; CELL_BYTES as usize]).concat();
            let new = bytes(self.page(key, page));
            (page, Pieces::that_differ(&new, &bytes(self.disk.in_place(ino, page))))
        };
        let changes = &self.files[&key].changes;
        let pages = changes.pages().parts(0..changes.below() / PAGE_BYTES).flatten();
        // Some pages are not in the page cache.
        let is_cached = |page: &u64| !(page + self.next_hidden).is_multiple_of(4);
        pages.filter(is_cached).map(differ).collect()
    }

    /// A file as the preparation of an epoch has to know it.
    fn known(&self, file: &Ram) -> Option<KnownFile> {
        let base = file.base?;
        let size = file.changes.below();
        let there = &self.disk.inodes[&base].pages;
        let (mut changed, mut holes) = (Extents::default(), Extents::default());
        for page in 0..size.div_ceil(PAGE_BYTES) {
            if !there.contains_key(&page) {
                holes.insert(page..page + 1);
            }
            file.changes.pages().parts(page..page + 1).for_each(|run| changed.insert(run));
        }
        let grows = file.changes.size() > size;
        let (file, attributes) = (self.base_of(base), Attributes::default());
        Some(KnownFile { file, size, attributes, grows, changed, holes })
    }

    /// Performs the steps of an entry, and applies it. `fails`: only until its content is captured.
    fn entry(&mut self, plan: &EpochPlan, late: Vec<u64>, fails: bool) {
        let epoch = self.expected.len() - 1;
        let mut head = Some(EntryHead::new(plan.numbers, &plan.record));
        let (mut held_bytes, mut changed) = (Vec::new(), BTreeSet::new());
        let mut created: BTreeMap<u64, Ino> = BTreeMap::new();
        let commit: &[EpochStep] = if fails { &[] } else { &plan.commit };
        for step in &plan.capture {
            if self.fault == Some(Fault::WritersGoOn) && matches!(step, EpochStep::Append { .. }) {
                for key in &late {
                    self.write(*key);
                }
            }
            match step {
                EpochStep::Create { file, hidden } => {
                    let ino = self.unused();
                    self.create(ino);
                    self.send(Request::Names(vec![(Name::Hidden(*hidden), Some(ino))]));
                    let cells = self.files[file].cells.len() as u64;
                    self.send(Request::Resize(ino, cells));
                    for page in 0..cells.div_ceil(CELLS as u64) {
                        let cells = self.page(*file, page);
                        self.send(Request::Data(ino, page, cells));
                    }
                    created.insert(*file, ino);
                    changed.insert(ino);
                }
                EpochStep::Link { file, hidden } => {
                    let created = created.get(file).copied();
                    let ino = created.or(self.files[file].base).expect("it is there");
                    self.send(Request::Names(vec![(Name::Hidden(*hidden), Some(ino))]));
                }
                EpochStep::Place { file, pages } => {
                    let ram = &self.files[file];
                    let (ino, cells) = (ram.base.expect("it is known"), ram.cells.len() as u64);
                    changed.insert(ino);
                    self.send(Request::Resize(ino, cells));
                    for page in pages.iter().flatten() {
                        let cells = self.page(*file, page);
                        self.send(Request::Data(ino, page, cells));
                    }
                }
                EpochStep::Append { file, held } => {
                    let cells = &self.files[file].cells;
                    let cell = |at| cells.get((at / CELL_BYTES) as usize).copied().unwrap_or(0);
                    let bytes = held.parts().flat_map(|(range, _)| range).map(cell);
                    held_bytes.extend(bytes);
                }
                _ => {}
            }
        }
        if let Some(head) = &mut head {
            let rest = head.add(&held_bytes).chunks(PAGE_BYTES as usize);
            for (page, bytes) in (plan.rest_at / PAGE_BYTES..).zip(rest) {
                let mut bytes = bytes.to_vec();
                bytes.resize(PAGE_BYTES as usize, 0);
                self.send(Request::LogPage(page, bytes.into()));
            }
        }
        for step in commit {
            match step {
                EpochStep::Commit => self.send(Request::Commit),
                EpochStep::SyncFiles => self.send(Request::SyncFiles(changed.clone())),
                EpochStep::Head => {
                    if self.fault == Some(Fault::ApplyBeforeHead) {
                        self.apply(plan);
                    }
                    self.send(Request::Begun(epoch));
                    let bytes = head.take().expect("one head").end();
                    for (page, bytes) in bytes.chunks(PAGE_BYTES as usize).enumerate() {
                        let at = plan.at / PAGE_BYTES + page as u64;
                        self.send(Request::LogPage(at, bytes.into()));
                    }
                }
                EpochStep::FlushLog => {
                    if self.fault != Some(Fault::NoFlushLog) {
                        self.send(Request::FlushLog);
                    }
                    self.send(Request::Durable(epoch));
                }
                _ => unreachable!("no step of a commit"),
            }
        }
        if fails {
            let hidden = plan.record.places.iter().map(|place| (Name::Hidden(place.hidden), None));
            return self.send(Request::Names(hidden.collect()));
        }
        self.apply(plan);
    }

    fn apply(&mut self, plan: &EpochPlan) {
        let requests = self.disk.apply(&plan.record, None, self.fault);
        self.requests.extend(requests);
    }

    fn page(&self, key: u64, page: u64) -> PageCells {
        let from = page as usize * CELLS;
        let cells = &self.files[&key].cells;
        std::array::from_fn(|cell| cells.get(from + cell).copied().unwrap_or(0))
    }
}

fn is_ordered(request: &Request) -> bool {
    matches!(
        request,
        Request::Names(_) | Request::Create(..) | Request::Resize(..) | Request::Punch(..)
    )
}

/// Applies those of the requests that reach the disk: of names and sizes a beginning, of data any.
fn lose(disk: &mut Disk, requests: &[Request], random: &mut Pcg64Mcg) {
    let ordered = requests.iter().filter(|it| is_ordered(it)).count();
    let (of_eight, mut left) = match random.random_range(0..4) {
        0 => (0, 0),
        1 => (8, ordered),
        2 => (8, random.random_range(0..=ordered)),
        _ => (random.random_range(0..=8), random.random_range(0..=ordered)),
    };
    for request in requests {
        match request {
            _ if is_ordered(request) => {
                let reaches = left > 0;
                left -= usize::from(reaches);
                if reaches {
                    disk.perform(request);
                }
            }
            Request::LogPage(page, bytes) if random.random_range(0..16) == 0 => {
                let mut torn = bytes.clone();
                let at = (page * PAGE_BYTES) as usize;
                for (number, sector) in torn.chunks_mut(SECTOR_BYTES).enumerate() {
                    if random.random() {
                        let at = at + number * SECTOR_BYTES;
                        match disk.log.get(at..at + sector.len()) {
                            Some(old) => sector.copy_from_slice(old),
                            None => sector.fill(0),
                        }
                    }
                }
                disk.perform(&Request::LogPage(*page, torn));
            }
            _ if random.random_range(0..8) >= of_eight => {}
            // Of a page that was under way, any part may be new.
            Request::Data(ino, page, cells) if random.random_range(0..4) == 0 => {
                let old = disk.in_place(*ino, *page);
                let torn = |cell| if random.random() { cells[cell] } else { old[cell] };
                let torn = std::array::from_fn(torn);
                disk.perform(&Request::Data(*ino, *page, torn));
            }
            _ => disk.perform(request),
        }
    }
}

/// Makes requests durable that this one waits for.
fn settle(durable: &mut Disk, pending: &mut Vec<Request>, by: &Request) {
    match by {
        Request::Commit => pending.drain(..).for_each(|request| durable.perform(&request)),
        Request::SyncFiles(files) => {
            for request in std::mem::take(pending) {
                // Data that was cut off, or whose file is gone, is not written any more.
                let left = match &request {
                    Request::Create(ino, _) => Some((*ino, 0)),
                    Request::Resize(ino, cells) => Some((*ino, *cells as usize)),
                    _ => None,
                };
                if let Some((ino, cells)) = left {
                    pending.iter_mut().for_each(|other| other.cut(ino, cells));
                }
                if let Request::Punch(ino, page) = request {
                    pending.retain(|other| match other {
                        Request::Data(of, at, _) => (*of, *at) != (ino, page),
                        _ => true,
                    });
                }
                match &request {
                    Request::Data(ino, ..) if files.contains(ino) => durable.perform(&request),
                    other if is_ordered(other) => durable.perform(other),
                    _ => pending.push(request),
                }
            }
        }
        Request::FlushLog => pending.retain(|request| {
            let stays = !matches!(request, Request::LogPage(..));
            if !stays {
                durable.perform(request);
            }
            stays
        }),
        other => pending.push(other.clone()),
    }
}

/// Runs the history of this seed with so many cuts. Returns their number.
///
/// # Errors
///
/// The cut after which the files were those of no epoch that they may be of.
pub fn history(seed: u64, cuts: u64, fault: Option<Fault>) -> Result<u64, String> {
    cut(seed, cuts, fault, false)
}

/// The same. If it `rots`, flash loses in each cut a byte of an entry that was durable before the
/// last one; the number is that of recoveries that went on in spite of it.
fn cut(seed: u64, cuts: u64, fault: Option<Fault>, rots: bool) -> Result<u64, String> {
    const STEPS: usize = 150;
    let mut group = Group::new(seed, fault);
    for _ in 0..STEPS {
        group.step();
    }
    group.end_epoch(true, false);
    let all: Tree = group
        .files
        .values()
        .flat_map(|file| file.names.iter().map(|name| (*name, file.cells.clone())))
        .collect();
    if fault.is_none() && group.expected.last() != Some(&all) {
        return Err(format!("seed {seed}: a whole epoch does not leave what applications see"));
    }
    let Group { mut random, requests, expected, .. } = group;
    let first = requests.iter().position(|request| matches!(request, Request::Commit));
    let first = first.expect("the beginning is committed") + 1;
    let mut at: Vec<usize> =
        (0..cuts).map(|_| random.random_range(first..=requests.len())).collect();
    at.sort_unstable();
    let (mut durable, mut pending, mut done) = (Disk::default(), Vec::new(), 0);
    let mut recoveries = 0;
    let mut may: std::ops::RangeInclusive<usize> = 0..=0;
    for cut in at {
        for request in &requests[done..cut] {
            match request {
                Request::Begun(epoch) => may = *may.start()..=*epoch,
                Request::Durable(epoch) => may = *epoch..=*epoch,
                _ => settle(&mut durable, &mut pending, request),
            }
        }
        done = cut;
        let mut disk = durable.clone();
        lose(&mut disk, &pending, &mut random);
        if rots {
            disk.rot(&mut random);
        } else if random.random_range(0..4) == 0 {
            // Power fails again, during the recovery.
            let mut second = disk.clone();
            let recovery = disk.recover(fault).unwrap_or_default();
            let upto = random.random_range(0..=recovery.len());
            lose(&mut second, &recovery[..upto], &mut random);
            disk = second;
        }
        match disk.recover(fault) {
            Some(_) => recoveries += 1,
            None if rots => continue,
            None => {
                return Err(format!("seed {seed}, cut at request {cut}: the log seems damaged"));
            }
        }
        let tree = disk.tree();
        if !may.clone().any(|epoch| expected[epoch] == tree) {
            return Err(format!(
                "seed {seed}, cut at request {cut}: {tree:?} is none of the epochs {may:?}: {:?}",
                &expected[may.clone()]
            ));
        }
    }
    Ok(recoveries)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Promises: Mount 72, Mount 73, Mount 76.
    #[test]
    fn a_group_is_at_the_end_of_an_epoch_after_any_power_cut() {
        let cuts: u64 = (0..500).map(|seed| history(seed, 20, None).unwrap()).sum();
        assert_eq!(cuts, 10_000);
    }

    /// A recovery that goes on in spite of a bad byte leaves files of one epoch.
    // Promises: Mount 76.
    #[test]
    fn a_bad_byte_in_the_log_mixes_no_epochs() {
        let went_on: u64 = (0..500).map(|seed| cut(seed, 20, None, true).unwrap()).sum();
        assert!((1000..9900).contains(&went_on), "{went_on} of 10,000");
    }

    // Promises: Mount 72.
    #[test]
    fn every_planted_fault_is_found() {
        for fault in Fault::ALL {
            let is_found = (0..10_000).any(|seed| history(seed, 20, Some(fault)).is_err());
            assert!(is_found, "{fault:?} was not found");
        }
    }
}
