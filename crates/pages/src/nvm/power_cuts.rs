//! Power cuts at every step of random histories of files, in caches that hold their pages in a
//! modelled non-volatile memory before modelled storage.
//!
//! A history is run again for each cut, with power for one step more. Each write makes a new
//! version of its page. A list of versions by page, which knows nothing of caches, says which ones
//! a recovery may return: an fsync leaves the newest one, a write adds one, and a removal adds a
//! hole, which is the only one left once the removal is committed.

use super::{
    PageCopy,
    durable::{Bus, Durable, Identity, PersistStep, Shape},
    medium::{Medium, Power},
    store::Store,
};
use crate::cache::{Fslru, Nvlru, OldVersions, Settings};
use flashsift_caches::{
    back::{Back, DeviceCounts, Source, Why, Written},
    cache::{Cache, Details},
    trace::{Bytes, Owner},
};
use flashsift_events::{
    address::Address,
    page::{Access, Frame, Op, PAGE_BYTES, Page},
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::{cell::RefCell, ops::Range, rc::Rc};

const PAGE_LINES: usize = 4;
const PAGE_WORDS: usize = PAGE_LINES * super::medium::LINE_WORDS;
const WORD_BYTES: u16 = (PAGE_BYTES as usize / PAGE_WORDS) as u16;

/// A planted fault.
#[cfg_attr(not(test), expect(dead_code, reason = "only tests plant faults"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A step of the protocol in memory is left out.
    Without(PersistStep),
    /// The device is not flushed before the frame of a durable page is freed.
    NoFlushBeforeFree,
    /// An fsync does not flush pages that were written to storage while they were not durable.
    NoFlushAtFsync,
    /// Removed pages keep their durable copies.
    KeptAtRemoval,
    /// Removed pages lose their durable copies before the removal is committed.
    RemovedBeforeCommit,
    /// Recovery does not compare the generation of a file.
    NoGeneration,
    /// An fsync does not commit the metadata that names the file.
    NoMetadata,
}

/// An operation on files. Files and pages that do not exist make it void.
#[derive(Clone, Debug)]
enum FileOp {
    /// Writes these words of a page; creates the file.
    Write(u32, u32, Range<usize>),
    Read(u32, u32),
    Fsync(u32),
    SyncAll,
    /// Makes the file's pages durable, as periodic write-back does, without its metadata.
    WriteBack(u32),
    /// The file system commits.
    Commit,
    /// Sets the size, also to a larger one.
    Truncate(u32, u32),
    Unlink(u32),
    /// Removes a file, and creates one of this size with its number in the same transaction.
    Recreate(u32, u32),
    /// Gives the first file the name of the second, which is removed.
    RenameOver(u32, u32),
    DirectWrite(u32, u32),
    DirectRead(u32, u32),
}

/// A cache that is built before and after a power cut.
trait Rebuilt: Cache {
    fn shape(frames: u32, settings: Settings) -> Shape;
    fn build(pages: u32, frames: u32, settings: Settings, memory: Durable) -> Self;
    fn take_back(&mut self, held: Vec<(Frame, Page)>);
    fn durable(&self) -> &Durable;
}

impl Rebuilt for Fslru<Durable> {
    fn shape(frames: u32, settings: Settings) -> Shape {
        let dram = Self::dram_frames(frames, settings);
        Shape { slots: dram + 1, frames: frames - dram, page_lines: PAGE_LINES }
    }
    fn build(pages: u32, frames: u32, settings: Settings, memory: Durable) -> Self {
        Self::new(pages, frames, settings, memory)
    }
    fn take_back(&mut self, held: Vec<(Frame, Page)>) {
        self.restore(held);
    }
    fn durable(&self) -> &Durable {
        self.memory()
    }
}

impl Rebuilt for Nvlru<Durable> {
    fn shape(frames: u32, _: Settings) -> Shape {
        Shape { slots: 0, frames, page_lines: PAGE_LINES }
    }
    fn build(pages: u32, frames: u32, settings: Settings, memory: Durable) -> Self {
        Self::new(pages, frames, settings, memory)
    }
    fn take_back(&mut self, held: Vec<(Frame, Page)>) {
        self.restore(held);
    }
    fn durable(&self) -> &Durable {
        self.memory()
    }
}

/// Storage below the cache.
struct Device {
    store: Store,
    bus: Rc<RefCell<Bus>>,
    fault: Option<Fault>,
    in_fsync: bool,
}

impl Back for Device {
    fn read(&mut self, page: Page, _: Owner) -> Source {
        self.bus.borrow_mut().arriving = self.store.read(page);
        Source::Storage
    }
    fn write(&mut self, written: Written) {
        let mut bus = self.bus.borrow_mut();
        let mut content = std::mem::take(&mut bus.leaving);
        if content.is_empty() {
            // An application writes it past the cache.
            content.clone_from(&bus.stored);
        }
        self.store.write(written.page, content);
    }
    fn flush(&mut self) {
        let left_out = match self.fault {
            Some(Fault::NoFlushBeforeFree) => !self.in_fsync,
            Some(Fault::NoFlushAtFsync) => self.in_fsync,
            _ => false,
        };
        if !left_out {
            self.store.flush();
        }
    }
    fn dropped(&mut self, _: bool) {}
    fn free(&mut self, _: Range<u32>) {}
    fn address(&mut self, _: Page) -> Address {
        Address::LAST
    }
    fn counts(&self) -> DeviceCounts {
        DeviceCounts::default()
    }
}

type PageContent = Rc<[u64]>;

/// The versions of each page that a recovery may return, the newest last.
struct Expected {
    hole: PageContent,
    versions: Vec<Vec<PageContent>>,
    /// By page: the version that an uncommitted removal left.
    removed: Vec<Option<usize>>,
}

impl Expected {
    fn new(pages: u32) -> Self {
        let hole: PageContent = vec![0; PAGE_WORDS].into();
        let versions = (0..pages).map(|_| vec![hole.clone()]).collect();
        Self { hole, versions, removed: vec![None; pages as usize] }
    }

    fn newest(&self, page: u32) -> &PageContent {
        self.versions[page as usize].last().expect("a page has a version")
    }

    fn write(&mut self, page: u32, content: PageContent) {
        self.versions[page as usize].push(content);
    }

    fn remove(&mut self, pages: Range<u32>) {
        for page in pages {
            let hole = self.hole.clone();
            self.removed[page as usize] = Some(self.versions[page as usize].len());
            self.write(page, hole);
        }
    }

    fn committed(&mut self) {
        for (versions, removed) in self.versions.iter_mut().zip(&mut self.removed) {
            if let Some(hole) = removed.take() {
                versions.drain(..hole);
            }
        }
    }

    fn synced(&mut self, pages: Range<u32>) {
        for page in pages {
            let versions = &mut self.versions[page as usize];
            versions.drain(..versions.len() - 1);
            self.removed[page as usize] = None;
        }
    }
}

/// A random history and the machine that it runs on.
#[derive(Clone, Debug)]
struct History {
    seed: u64,
    files: u32,
    file_pages: u32,
    frames: u32,
    settings: Settings,
    ops: Vec<FileOp>,
}

impl History {
    fn random(seed: u64, frames_min: u32, frames_max: u32, ops: usize) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let files = rng.random_range(1..4);
        let file_pages = rng.random_range(1..5);
        let settings = Settings {
            dram_share: [0.1, 0.3, 0.6][rng.random_range(0..3)],
            byte_atomic_bytes: [2048, 4096, 0][rng.random_range(0..3)],
            write_miss_reads: true,
            evict_batch: [1, 1, 3][rng.random_range(0..3)],
            old_versions: [OldVersions::Freed, OldVersions::Age, OldVersions::Written]
                [seed as usize % 3],
        };
        let frames = rng.random_range(frames_min..=frames_max);
        let ops = (0..ops).map(|_| Self::op(&mut rng, files, file_pages)).collect();
        Self { seed, files, file_pages, frames, settings, ops }
    }

    fn op(rng: &mut Pcg64Mcg, files: u32, file_pages: u32) -> FileOp {
        let (file, page) = (rng.random_range(0..files), rng.random_range(0..file_pages));
        let size = rng.random_range(0..=file_pages);
        match rng.random_range(0..100) {
            0..40 => {
                let from = rng.random_range(0..PAGE_WORDS);
                let words = match rng.random_range(0..4) {
                    0 => 0..PAGE_WORDS,
                    1 => from..rng.random_range(from..PAGE_WORDS) + 1,
                    _ => from..(from + 3).min(PAGE_WORDS),
                };
                FileOp::Write(file, page, words)
            }
            40..58 => FileOp::Read(file, page),
            58..74 => FileOp::Fsync(file),
            74..76 => FileOp::SyncAll,
            76..79 => FileOp::WriteBack(file),
            79..82 => FileOp::Commit,
            82..88 => FileOp::Truncate(file, size),
            88..91 => FileOp::Unlink(file),
            91..94 => FileOp::Recreate(file, size),
            94..96 => FileOp::RenameOver(file, rng.random_range(0..files)),
            96..98 => FileOp::DirectWrite(file, page),
            _ => FileOp::DirectRead(file, page),
        }
    }

    fn pages(&self) -> u32 {
        self.files * self.file_pages
    }
}

/// A running system.
struct RunningSystem<'a, C> {
    history: &'a History,
    fault: Option<Fault>,
    power: Power,
    cache: C,
    device: Device,
    bus: Rc<RefCell<Bus>>,
    expected: Expected,
    /// Number of the next write, which its content shows.
    writes: u64,
}

impl<'a, C: Rebuilt> RunningSystem<'a, C> {
    fn new(history: &'a History, fault: Option<Fault>, steps: u64) -> Self {
        let power = Power::for_steps(steps);
        let shape = C::shape(history.frames, history.settings);
        let bus = Rc::new(RefCell::new(Bus::default()));
        let medium = Medium::new(shape.lines(), power.clone());
        let memory = Durable::new(shape, medium, bus.clone(), Self::without(fault));
        let store = Store::new(history.files, history.file_pages, PAGE_WORDS, power.clone());
        let mut machine = Self {
            history,
            fault,
            power,
            cache: C::build(history.pages(), history.frames, history.settings, memory),
            device: Device { store, bus: bus.clone(), fault, in_fsync: false },
            bus,
            expected: Expected::new(history.pages()),
            writes: 0,
        };
        machine.identify();
        machine
    }

    fn without(fault: Option<Fault>) -> Option<PersistStep> {
        match fault {
            Some(Fault::Without(step)) => Some(step),
            _ => None,
        }
    }

    /// Gives memory the present identities of all pages.
    fn identify(&mut self) {
        let store = &self.device.store;
        let identities = (0..self.history.pages()).map(|page| store.identity(Page(page)));
        self.bus.borrow_mut().identities = identities.collect();
    }

    /// Performs operations until the power fails.
    fn run(&mut self, ops: &[FileOp]) {
        for op in ops {
            self.perform(op);
            if !self.power.is_on() {
                break;
            }
            // The runs that a cut ends repeat the one that none ends.
            if self.fault.is_none() && self.power.left() > u64::MAX / 2 {
                self.cache.check();
            }
        }
    }

    fn exists(&self, file: u32) -> bool {
        self.device.store.running.files[file as usize].exists
    }

    fn size(&self, file: u32) -> u32 {
        self.device.store.running.files[file as usize].pages
    }

    fn create(&mut self, file: u32, pages: u32) {
        let running = &mut self.device.store.running;
        let state = &mut running.files[file as usize];
        state.pages = state.pages.max(pages);
        if !std::mem::replace(&mut state.exists, true) {
            let name = running.names.iter_mut().find(|name| name.is_none());
            *name.expect("there are as many names as files") = Some(file);
        }
    }

    fn perform(&mut self, op: &FileOp) {
        match op.clone() {
            FileOp::Write(file, page, words) => {
                self.create(file, page + 1);
                let rank = self.write_version(file, page, words.clone());
                let bytes = Bytes {
                    from: words.start as u16 * WORD_BYTES,
                    to: words.end as u16 * WORD_BYTES,
                };
                self.access(rank, Op::Write, bytes);
            }
            FileOp::Read(file, page) if page < self.size(file) => {
                let rank = self.device.store.pages_of(file).start + page;
                self.access(rank, Op::Read, Bytes::PAGE);
                if self.power.is_on() && self.fault.is_none() {
                    assert_eq!(self.bus.borrow().loaded[..], self.expected.newest(rank)[..]);
                }
            }
            FileOp::Fsync(file) if self.exists(file) => {
                self.sync(self.device.store.pages_of(file), Why::Sync);
            }
            FileOp::SyncAll => self.sync(0..self.history.pages(), Why::SyncAll),
            FileOp::WriteBack(file) => {
                let pages = self.device.store.pages_of(file);
                self.cache.sync(pages, Why::Periodic, &mut self.device);
            }
            FileOp::Commit => self.commit(),
            FileOp::Truncate(file, size) if self.exists(file) => {
                let pages = self.device.store.pages_of(file);
                self.device.store.truncate(file, size);
                self.device.store.running.files[file as usize].pages = size;
                self.remove(pages.start + size..pages.end);
            }
            FileOp::Unlink(file) if self.exists(file) => self.unlink(file),
            FileOp::Recreate(file, size) if self.exists(file) => {
                self.device.store.remove(file);
                self.create(file, size);
                self.remove(self.device.store.pages_of(file));
            }
            FileOp::RenameOver(from, to) if from != to && self.exists(from) && self.exists(to) => {
                let names = &mut self.device.store.running.names;
                let old = names.iter().position(|name| *name == Some(from));
                let new = names.iter().position(|name| *name == Some(to));
                names[old.expect("a file has a name")] = None;
                names[new.expect("a file has a name")] = Some(from);
                self.unlink(to);
            }
            FileOp::DirectWrite(file, page) => {
                self.create(file, page + 1);
                let rank = self.write_version(file, page, 0..PAGE_WORDS);
                self.direct(rank, Op::Write);
            }
            FileOp::DirectRead(file, page) if page < self.size(file) => {
                let rank = self.device.store.pages_of(file).start + page;
                self.direct(rank, Op::Read);
                if self.power.is_on() && self.fault.is_none() {
                    assert_eq!(self.bus.borrow().arriving[..], self.expected.newest(rank)[..]);
                }
            }
            // The file or the page does not exist.
            FileOp::Read(..)
            | FileOp::Fsync(_)
            | FileOp::Truncate(..)
            | FileOp::Unlink(_)
            | FileOp::Recreate(..)
            | FileOp::RenameOver(..)
            | FileOp::DirectRead(..) => {}
        }
    }

    /// Adds a version in which these words of the page are new, and puts it on the bus.
    fn write_version(&mut self, file: u32, page: u32, words: Range<usize>) -> u32 {
        let rank = self.device.store.pages_of(file).start + page;
        self.writes += 1;
        let mut content = self.expected.newest(rank).to_vec();
        for word in words {
            content[word] =
                self.writes << 32 | u64::from(file) << 24 | u64::from(page) << 16 | word as u64;
        }
        self.bus.borrow_mut().stored.clone_from(&content);
        self.expected.write(rank, content.into());
        rank
    }

    fn access(&mut self, rank: u32, op: Op, bytes: Bytes) {
        let access = Access::new(Page(rank), op);
        let partial = op == Op::Write && bytes != Bytes::PAGE;
        self.cache.access(access, Details { partial, bytes, ..Details::WHOLE }, &mut self.device);
    }

    fn direct(&mut self, rank: u32, op: Op) {
        self.cache.direct(rank..rank + 1, op, Owner::UNKNOWN, &mut self.device);
    }

    fn sync(&mut self, pages: Range<u32>, why: Why) {
        self.device.in_fsync = true;
        self.cache.sync(pages.clone(), why, &mut self.device);
        self.device.in_fsync = false;
        if self.fault != Some(Fault::NoMetadata) && !self.device.store.is_committed() {
            self.commit();
        }
        if self.power.is_on() {
            self.expected.synced(pages);
        }
    }

    fn commit(&mut self) {
        self.device.store.commit();
        if self.power.is_on() {
            self.expected.committed();
        }
    }

    fn unlink(&mut self, file: u32) {
        self.device.store.remove(file);
        self.remove(self.device.store.pages_of(file));
    }

    /// Removes pages from the cache. The removal is committed first if the cache may hold the last
    /// durable version.
    fn remove(&mut self, pages: Range<u32>) {
        self.expected.remove(pages.clone());
        let commits = pages.clone().any(|page| self.cache.holds(Page(page)));
        if commits && self.fault != Some(Fault::RemovedBeforeCommit) {
            self.commit();
        }
        self.bus.borrow_mut().keeps_erased = self.fault == Some(Fault::KeptAtRemoval);
        self.cache.drop_pages(pages, &mut self.device);
        self.bus.borrow_mut().keeps_erased = false;
        if commits && self.fault == Some(Fault::RemovedBeforeCommit) {
            self.commit();
        }
        self.identify();
    }

    /// Cuts the power of the medium, and recovers with the power given. Returns the pages found.
    fn recover(&self, medium: &Medium, cut: u64, power: Power) -> (Durable, Vec<(Frame, Page)>) {
        let shape = C::shape(self.history.frames, self.history.settings);
        let medium = medium.cut(cut, power);
        let store = &self.device.store;
        let rank = |identity: Identity| match self.fault {
            Some(Fault::NoGeneration) => {
                let file = store.running.files.get(identity.file as usize)?;
                store.rank(Identity { generation: file.generation, ..identity })
            }
            _ => store.rank(identity),
        };
        let without = Self::without(self.fault);
        let (memory, found) = Durable::recover(shape, medium, self.bus.clone(), without, rank);
        (memory, found.into_iter().map(|found| (found.frame, found.page)).collect())
    }

    /// Returns the content of each page after a recovery.
    fn view(&self, memory: &Durable, found: &[(Frame, Page)]) -> Vec<PageContent> {
        let mut view: Vec<PageContent> = (0..self.history.pages())
            .map(|page| self.device.store.read(Page(page)).into())
            .collect();
        for (frame, page) in found {
            view[page.0 as usize] = memory.content(PageCopy::Nvm(*frame)).into();
        }
        view
    }

    /// Cuts the power, recovers, and judges what is there. A second cut at each step of the
    /// recovery changes nothing. Returns the number of cuts.
    fn cut(&mut self, seed: u64) -> Result<u64, String> {
        if self.device.store.is_committed() {
            self.expected.committed();
        }
        self.power = Power::for_steps(u64::MAX);
        self.device.store.cut(seed, self.power.clone());
        let medium = self.cache.durable().medium();
        let (memory, found) = self.recover(medium, seed, self.power.clone());
        let steps = u64::MAX - self.power.left();
        let view = self.view(&memory, &found);
        for (page, content) in view.iter().enumerate() {
            let versions = &self.expected.versions[page];
            // A removal that is not committed does not show.
            let hole = self.expected.removed[page];
            let mut allowed = versions.iter().enumerate().filter(|(n, _)| Some(*n) != hole);
            if !allowed.any(|(_, version)| version == content) {
                return Err(format!(
                    "page {page} has {content:x?}\nallowed: {versions:x?}, cut with seed {seed}"
                ));
            }
        }
        for steps in 0..steps {
            let (half, _) = self.recover(medium, seed, Power::for_steps(steps));
            let second = seed.wrapping_mul(7).wrapping_add(steps);
            let (memory, found) = self.recover(half.medium(), second, Power::for_steps(u64::MAX));
            if self.view(&memory, &found) != view {
                return Err(format!("a cut at step {steps} of recovery, first seed {seed}"));
            }
        }
        let mut cache =
            C::build(self.history.pages(), self.history.frames, self.history.settings, memory);
        cache.take_back(found);
        if self.fault.is_none() {
            cache.check();
        }
        self.cache = cache;
        self.expected = Expected {
            hole: self.expected.hole.clone(),
            removed: vec![None; view.len()],
            versions: view.into_iter().map(|content| vec![content]).collect(),
        };
        self.identify();
        Ok(1 + steps)
    }
}

/// Cuts the power after each `stride`-th step of a history, recovers, performs some other
/// operations, and cuts the power again. Returns the number of cuts, or the first page that a
/// recovery may not return.
fn try_cuts<C: Rebuilt>(
    history: &History,
    fault: Option<Fault>,
    stride: u64,
) -> Result<u64, String> {
    let steps = steps_of::<C>(history, fault);
    let mut cuts = 0;
    for at in (history.seed % stride..=steps).step_by(stride as usize) {
        let seed = history.seed.wrapping_mul(31).wrapping_add(at);
        let mut machine = RunningSystem::<C>::new(history, fault, at);
        machine.run(&history.ops);
        let failed = |why| format!("{history:?}, {fault:?}, cut after {at} of {steps}: {why}");
        cuts += machine.cut(seed).map_err(failed)?;
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let ops: Vec<FileOp> =
            (0..5).map(|_| History::op(&mut rng, history.files, history.file_pages)).collect();
        machine.power.renew(rng.random_range(0..200));
        machine.run(&ops);
        let failed =
            |why| format!("{history:?}, {fault:?}, cut after {at} of {steps}, then {ops:?}: {why}");
        cuts += machine.cut(seed / 3).map_err(failed)?;
    }
    Ok(cuts)
}

/// Returns the steps of a history with unlimited power.
fn steps_of<C: Rebuilt>(history: &History, fault: Option<Fault>) -> u64 {
    let mut whole = RunningSystem::<C>::new(history, fault, u64::MAX);
    whole.run(&history.ops);
    u64::MAX - whole.power.left()
}

/// Runs random histories in a cache of `frames` frames until the power was cut this often. Returns
/// the number of cuts.
fn cut_often<C: Rebuilt>(
    frames: std::ops::RangeInclusive<u32>,
    cuts: u64,
    stride: u64,
) -> Result<u64, String> {
    let mut done = 0;
    for seed in 0.. {
        if done >= cuts {
            break;
        }
        let history = History::random(seed, *frames.start(), *frames.end(), 40);
        done += try_cuts::<C>(&history, None, stride)?;
    }
    Ok(done)
}

/// Cuts the power at least this often in random histories of files under FSLRU, and as often under
/// NVLRU. Returns the number of cuts under each.
///
/// # Errors
///
/// A page that was synced is lost, torn or too old, or a removed one is back. The text has the
/// history and the versions.
pub fn cut_power(cuts: u64) -> Result<[u64; 2], String> {
    let fslru = cut_often::<Fslru<Durable>>(3..=12, cuts, 3)?;
    Ok([fslru, cut_often::<Nvlru<Durable>>(2..=12, cuts, 3)?])
}

#[cfg(test)]
mod tests;
