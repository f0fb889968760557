//! Linux's flusher over a stream of events, without a cache: what the kernel would have written.
//!
//! It answers how many pages of a live stream reach storage if the page cache of a plain file
//! system gets the stream: the mode `expire,sync` of `--writeback`, with a cache that is large
//! enough to evict no dirty page. It counts data only. Names, attributes and the journal of a file
//! system are not modelled.
//!
//! Three things differ from the simulated write-back. It needs no trace: files and pages
//! come as they are. It only counts: no page has a place. And its memory is bounded: if more than
//! [`BLOCKS_MAX`] blocks of 64 pages are dirty, or more than [`FILES_MAX`] files have an age, the
//! oldest files are written early, and counted as such ([`WrittenPages::early`]).
//!
//! Requests that bypass the page cache (`O_DIRECT`) write their pages at once. The log counts the
//! bytes of their sectors.
//!
//! Each dirty page is charged to its dirtier: the number that the caller gives with the write that
//! made the page dirty, as the kernel charges it to the task and the control group (`task_io`,
//! cgroup write-back). Writes to a page that is dirty already change nothing. With
//! [`Flusher::with_log`] the flusher reports what it writes by dirtier, file and reason.

use flashsift_events::{
    event::{Action, Event, FileId, Micros},
    page::{PAGE_BYTES, PAGES_MAX},
    structure::extents::{pages_inside, pages_touched},
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

/// The least that a device writes.
const SECTOR_BYTES: u64 = 512;
/// Pages of a block: one bit each.
const BLOCK_PAGES: u64 = u64::BITS as u64;
/// The most blocks with a dirty page: 2 MiB of memory, for up to 8 GiB of dirty data.
pub const BLOCKS_MAX: usize = 1 << 15;
/// The most files with an age: 3 MiB of memory.
pub const FILES_MAX: usize = 1 << 16;
/// Entries of files that have ended, beside as many as there are files, before they are removed.
const ENDED_MAX: usize = 1024;

/// The settings of the kernel's flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlusherSettings {
    /// Age at which a file is written (`vm.dirty_expire_centisecs`).
    pub expire_us: Micros,
    /// Interval at which the flusher runs (`vm.dirty_writeback_centisecs`); 0: it never does.
    pub tick_us: Micros,
    /// Number of dirty pages above which the oldest files are written (`vm.dirty_background_ratio`
    /// of the memory that the page cache may take).
    pub background_pages: u64,
}

impl Default for FlusherSettings {
    /// The kernel's own times, and no limit of dirty pages.
    fn default() -> Self {
        Self { expire_us: 30_000_000, tick_us: 5_000_000, background_pages: u64::MAX }
    }
}

/// The reason for which pages reach storage. The variants are explained at [`WrittenPages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlushReason {
    /// [`WrittenPages::expired`].
    Expired,
    /// [`WrittenPages::background`].
    Background,
    /// [`WrittenPages::synced`].
    Synced,
    /// [`WrittenPages::synced_all`].
    SyncedAll,
    /// [`WrittenPages::direct`].
    Direct,
    /// [`WrittenPages::replacing`].
    Replacing,
    /// [`WrittenPages::early`].
    Early,
}

/// Pages of one file and dirtier, one behind another, that reached storage together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The time.
    pub at_us: Micros,
    /// The file.
    pub file: FileId,
    /// The number that the writes had which made the pages dirty.
    pub dirtier: u32,
    /// The first page.
    pub first_page: u64,
    /// How many pages.
    pub pages: u64,
    /// Bytes that the device wrote: those of the pages, or of the sectors of a request that
    /// bypassed the page cache.
    pub bytes: u64,
    /// The reason.
    pub why: FlushReason,
}

/// Pages written, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenPages {
    /// The file had its age.
    pub expired: u64,
    /// Too many pages were dirty.
    pub background: u64,
    /// An application synced them, or wrote them with `O_SYNC`.
    pub synced: u64,
    /// A sync of everything ([`Action::SyncAll`]).
    pub synced_all: u64,
    /// A request bypassed the page cache.
    pub direct: u64,
    /// The file system wrote them at once, because their file replaced another one or was cut to
    /// nothing and closed ([`Flusher::write_file`]).
    pub replacing: u64,
    /// The bounds of this flusher's memory were reached: the kernel would have written them later,
    /// or not at all.
    pub early: u64,
}

impl WrittenPages {
    /// Returns the sum.
    pub fn all(&self) -> u64 {
        let Self { expired, background, synced, synced_all, direct, replacing, early } = self;
        expired + background + synced + synced_all + direct + replacing + early
    }

    fn get_mut(&mut self, why: FlushReason) -> &mut u64 {
        match why {
            FlushReason::Expired => &mut self.expired,
            FlushReason::Background => &mut self.background,
            FlushReason::Synced => &mut self.synced,
            FlushReason::SyncedAll => &mut self.synced_all,
            FlushReason::Direct => &mut self.direct,
            FlushReason::Replacing => &mut self.replacing,
            FlushReason::Early => &mut self.early,
        }
    }
}

/// The flusher. Times come with the events; it has no clock.
#[derive(Clone, Debug)]
pub struct Flusher {
    settings: FlusherSettings,
    now_us: Micros,
    /// Since when each file has been dirty that the flusher has not written since.
    since_us: HashMap<FileId, Micros, FixedState>,
    /// The same, the oldest first. An entry that `since_us` does not have is of a file that has
    /// ended.
    order: VecDeque<(Micros, FileId)>,
    /// The dirty pages of a file, block and dirtier, none of them empty.
    dirty: BTreeMap<(FileId, u64, u32), u64>,
    dirty_pages: u64,
    written: WrittenPages,
    log: Option<Vec<Reached>>,
}

/// The pages of this range that are in a block of 64.
fn bits(pages: &Range<u64>, block: u64) -> u64 {
    let first = block * BLOCK_PAGES;
    let from = pages.start.max(first) - first;
    let to = (pages.end - first).min(BLOCK_PAGES);
    !0 >> (BLOCK_PAGES - (to - from)) << from
}

/// The pages of a block of 64 as ranges of pages of the file, ascending.
fn runs(block: u64, mut bits: u64) -> impl Iterator<Item = Range<u64>> {
    std::iter::from_fn(move || {
        let from = bits.trailing_zeros();
        let len = bits.checked_shr(from)?.trailing_ones();
        bits &= (!0_u64).checked_shl(from + len).unwrap_or(0);
        let first = block * BLOCK_PAGES + u64::from(from);
        Some(first..first + u64::from(len))
    })
}

impl Flusher {
    /// Returns a flusher without dirty pages.
    pub fn new(settings: FlusherSettings) -> Self {
        Self {
            settings,
            now_us: 0,
            since_us: HashMap::default(),
            order: VecDeque::new(),
            dirty: BTreeMap::new(),
            dirty_pages: 0,
            written: WrittenPages::default(),
            log: None,
        }
    }

    /// Keeps what is written for [`Flusher::drain_log`].
    pub fn with_log(mut self) -> Self {
        self.log = Some(Vec::new());
        self
    }

    /// Returns what was written since the last call, in order. Empty without
    /// [`Flusher::with_log`].
    pub fn drain_log(&mut self) -> impl Iterator<Item = Reached> + '_ {
        self.log.iter_mut().flat_map(|log| log.drain(..))
    }

    /// Returns an estimate of the memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        // Nodes of the tree are at least half full.
        2 * self.dirty.len() * size_of::<((FileId, u64, u32), u64)>()
            + self.since_us.allocation_size()
            + self.order.capacity() * size_of::<(Micros, FileId)>()
    }

    /// Returns its settings.
    pub fn settings(&self) -> FlusherSettings {
        self.settings
    }

    /// Returns the pages that were written until the last call.
    pub fn written(&self) -> WrittenPages {
        self.written
    }

    /// Returns the pages that wait to be written.
    pub fn dirty_pages(&self) -> u64 {
        self.dirty_pages
    }

    /// Takes the next event.
    pub fn handle(&mut self, event: &Event<'_>) {
        self.handle_of(event, 0);
    }

    /// Takes the next event, which makes pages dirty in the name of `dirtier`.
    pub fn handle_of(&mut self, event: &Event<'_>, dirtier: u32) {
        match event.action {
            Action::Write { file, offset, len, sync, .. } => {
                let pages = cut(pages_touched(offset, len));
                self.write(event.at_us, file, pages.clone(), dirtier);
                if sync {
                    self.write_pages(file, pages, FlushReason::Synced);
                }
                self.relieve();
            }
            Action::Folio { file, offset, len } if len > 0 => {
                self.write(event.at_us, file, cut(pages_touched(offset, len)), dirtier);
                self.relieve();
            }
            Action::Direct { file, offset, len, write: true, .. } => {
                self.advance(event.at_us);
                let pages = cut(pages_touched(offset, len));
                // The kernel first writes what the page cache has of the range.
                self.write_pages(file, pages.clone(), FlushReason::Direct);
                let bytes = (pages.end - pages.start) * PAGE_BYTES;
                let bytes = bytes - saved_by_sectors(offset, len).min(bytes);
                self.reached(file, dirtier, pages, bytes, FlushReason::Direct);
            }
            Action::Filled { file, offset, len } => {
                self.advance(event.at_us);
                let pages = cut(pages_touched(offset, len));
                let bytes = len.min((pages.end - pages.start) * PAGE_BYTES);
                self.log_reached(file, dirtier, pages, bytes, FlushReason::Direct);
            }
            Action::Sync { file, offset, len, .. } => {
                self.advance(event.at_us);
                self.write_pages(file, pages_touched(offset, len), FlushReason::Synced);
            }
            Action::SyncAll => {
                self.advance(event.at_us);
                for ((file, block, dirtier), bits) in std::mem::take(&mut self.dirty) {
                    for pages in runs(block, bits) {
                        self.reached_whole(file, dirtier, pages, FlushReason::SyncedAll);
                    }
                }
                self.dirty_pages = 0;
                self.since_us.clear();
                self.order.clear();
            }
            Action::Truncate { file, size } => {
                self.advance(event.at_us);
                self.clean(file, pages_inside(size, u64::MAX));
            }
            Action::Punch { file, offset, len } => {
                self.advance(event.at_us);
                self.clean(file, pages_inside(offset, len));
            }
            Action::Gone { file } => {
                self.advance(event.at_us);
                self.clean(file, 0..u64::MAX);
                self.since_us.remove(&file);
                if self.order.len() > 2 * self.since_us.len() + ENDED_MAX {
                    let known = &self.since_us;
                    self.order.retain(|(since_us, file)| known.get(file) == Some(since_us));
                }
            }
            _ => {}
        }
    }

    /// These pages of a file become dirty.
    pub fn dirtied(&mut self, now_us: Micros, file: FileId, pages: Range<u64>) {
        self.write(now_us, file, pages, 0);
        self.relieve();
    }

    /// Another program writes the dirty pages of a file. Returns their number, which is not part of
    /// [`Flusher::written`].
    pub fn take(&mut self, now_us: Micros, file: FileId) -> u64 {
        self.advance(now_us);
        self.clean(file, 0..u64::MAX)
    }

    /// Writes the dirty pages of a file for a reason that no event tells. The file keeps its age.
    pub fn write_file(&mut self, now_us: Micros, file: FileId, why: FlushReason) {
        self.advance(now_us);
        self.write_pages(file, 0..u64::MAX, why);
    }

    /// Returns the dirty pages of a file, ascending. Neighbours with different dirtiers, or in
    /// different blocks of 64 pages, come apart.
    pub fn dirty_of(&self, file: FileId) -> impl Iterator<Item = Range<u64>> + '_ {
        let blocks = self.dirty.range((file, 0, 0)..=(file, u64::MAX, u32::MAX));
        blocks.flat_map(|((_, block, _), bits)| runs(*block, *bits))
    }

    /// Returns when [`Flusher::advance`] writes something next; `None` if nothing has an age.
    pub fn next_deadline(&mut self) -> Option<Micros> {
        let (since_us, _) = self.oldest()?;
        self.due_us(since_us)
    }

    /// Writes what is due until this time.
    pub fn advance(&mut self, now_us: Micros) {
        self.now_us = self.now_us.max(now_us);
        while let Some((since_us, file)) = self.oldest()
            && self.due_us(since_us).is_some_and(|due_us| due_us <= self.now_us)
        {
            self.write_out(file, FlushReason::Expired);
        }
    }

    fn write(&mut self, now_us: Micros, file: FileId, pages: Range<u64>, dirtier: u32) {
        self.advance(now_us);
        if pages.is_empty() {
            return;
        }
        for block in pages.start / BLOCK_PAGES..=(pages.end - 1) / BLOCK_PAGES {
            let all = self.dirty.range((file, block, 0)..=(file, block, u32::MAX));
            let fresh = bits(&pages, block) & !all.fold(0, |all, (_, dirty)| all | dirty);
            if fresh != 0 {
                self.dirty_pages += u64::from(fresh.count_ones());
                *self.dirty.entry((file, block, dirtier)).or_default() |= fresh;
            }
        }
        let now_us = self.now_us;
        let order = &mut self.order;
        self.since_us.entry(file).or_insert_with(|| {
            order.push_back((now_us, file));
            now_us
        });
    }

    /// Writes the oldest files until no more pages are dirty than the settings and the bounds
    /// allow.
    fn relieve(&mut self) {
        while self.dirty_pages > self.settings.background_pages
            && let Some((_, file)) = self.oldest()
        {
            self.write_out(file, FlushReason::Background);
        }
        while (self.dirty.len() > BLOCKS_MAX || self.since_us.len() > FILES_MAX)
            && let Some((_, file)) = self.oldest()
        {
            self.write_out(file, FlushReason::Early);
        }
    }

    /// The file that has been dirty for the longest time.
    fn oldest(&mut self) -> Option<(Micros, FileId)> {
        while let Some((since_us, file)) = self.order.front().copied() {
            if self.since_us.get(&file) == Some(&since_us) {
                return Some((since_us, file));
            }
            self.order.pop_front();
        }
        None
    }

    /// The kernel looks at multiples of the tick only.
    fn due_us(&self, since_us: Micros) -> Option<Micros> {
        since_us
            .checked_add(self.settings.expire_us)?
            .checked_next_multiple_of(self.settings.tick_us)
    }

    /// Writes the oldest file, which loses its age.
    fn write_out(&mut self, oldest: FileId, why: FlushReason) {
        self.order.pop_front();
        self.since_us.remove(&oldest);
        self.write_pages(oldest, 0..u64::MAX, why);
    }

    /// Writes the dirty pages among these.
    fn write_pages(&mut self, file: FileId, pages: Range<u64>, why: FlushReason) {
        // Without a log only the number counts.
        if self.log.is_none() {
            *self.written.get_mut(why) += self.clean(file, pages);
            return;
        }
        let mut written: Vec<(u32, Range<u64>)> = Vec::new();
        self.clean_each(file, pages, |dirtier, block, bits| {
            written.extend(runs(block, bits).map(|pages| (dirtier, pages)));
        });
        for (dirtier, pages) in written {
            self.reached_whole(file, dirtier, pages, why);
        }
    }

    fn reached_whole(&mut self, file: FileId, dirtier: u32, pages: Range<u64>, why: FlushReason) {
        let bytes = (pages.end - pages.start).saturating_mul(PAGE_BYTES);
        self.reached(file, dirtier, pages, bytes, why);
    }

    fn reached(
        &mut self,
        file: FileId,
        dirtier: u32,
        pages: Range<u64>,
        bytes: u64,
        why: FlushReason,
    ) {
        *self.written.get_mut(why) += pages.end - pages.start;
        self.log_reached(file, dirtier, pages, bytes, why);
    }

    fn log_reached(
        &mut self,
        file: FileId,
        dirtier: u32,
        pages: Range<u64>,
        bytes: u64,
        why: FlushReason,
    ) {
        let (first_page, pages) = (pages.start, pages.end - pages.start);
        let Some(log) = self.log.as_mut().filter(|_| pages > 0) else { return };
        let entry = Reached { at_us: self.now_us, file, dirtier, first_page, pages, bytes, why };
        match log.last_mut() {
            Some(last)
                if last.first_page + last.pages == first_page
                    && (Reached { first_page, pages, bytes, ..*last }) == entry =>
            {
                last.pages += pages;
                last.bytes = last.bytes.saturating_add(bytes);
            }
            _ => log.push(entry),
        }
    }

    /// These pages are dirty no more. Returns how many were.
    fn clean(&mut self, file: FileId, pages: Range<u64>) -> u64 {
        let mut cleaned = 0;
        self.clean_each(file, pages, |_, _, bits| cleaned += u64::from(bits.count_ones()));
        cleaned
    }

    /// Calls `each` with the dirtier, the number and the dirty pages of each block.
    fn clean_each(&mut self, file: FileId, pages: Range<u64>, mut each: impl FnMut(u32, u64, u64)) {
        if pages.is_empty() {
            return;
        }
        let (first, last) = (pages.start / BLOCK_PAGES, (pages.end - 1) / BLOCK_PAGES);
        let mut cleaned = 0;
        let clean = |key: &(FileId, u64, u32), dirty: &mut u64| {
            let bits = bits(&pages, key.1);
            if *dirty & bits != 0 {
                each(key.2, key.1, *dirty & bits);
            }
            cleaned += u64::from((*dirty & bits).count_ones());
            *dirty &= !bits;
            *dirty == 0
        };
        self.dirty.extract_if((file, first, 0)..=(file, last, u32::MAX), clean).for_each(drop);
        self.dirty_pages -= cleaned;
    }

    /// Re-derives every invariant.
    ///
    /// # Panics
    ///
    /// An invariant is broken.
    pub fn check(&self) {
        let dirty_pages: u64 = self.dirty.values().map(|bits| u64::from(bits.count_ones())).sum();
        assert_eq!(self.dirty_pages, dirty_pages);
        assert!(self.dirty.values().all(|bits| *bits != 0), "a block has a dirty page");
        assert!(
            self.dirty.keys().all(|(file, ..)| self.since_us.contains_key(file)),
            "a file with a dirty page has an age"
        );
        let mut pages_of: BTreeMap<(FileId, u64), u64> = BTreeMap::new();
        for ((file, block, _), pages) in &self.dirty {
            let known = pages_of.entry((*file, *block)).or_default();
            assert_eq!(*known & pages, 0, "a page has one dirtier");
            *known |= pages;
        }
        assert!(
            self.order.iter().is_sorted_by_key(|(since_us, _)| *since_us),
            "the oldest is first"
        );
        let known = |entry: &&(Micros, FileId)| self.since_us.get(&entry.1) == Some(&entry.0);
        assert_eq!(self.order.iter().filter(known).count(), self.since_us.len());
        assert!(self.dirty.len() <= BLOCKS_MAX && self.since_us.len() <= FILES_MAX);
        assert!(self.order.len() <= 2 * self.since_us.len() + ENDED_MAX + FILES_MAX);
    }
}

/// Bytes of the pages of a request past the page cache that the device does not write, since it
/// writes sectors. MariaDB writes its log by such requests of 512 bytes.
pub fn saved_by_sectors(offset: u64, len: u64) -> u64 {
    let end = offset.saturating_add(len);
    let before = offset % PAGE_BYTES / SECTOR_BYTES;
    let after = (PAGE_BYTES - 1 - end.wrapping_sub(1) % PAGE_BYTES) / SECTOR_BYTES;
    if len == 0 { 0 } else { (before + after) * SECTOR_BYTES }
}

/// Cuts a request as a trace is cut: one of 2^62 bytes would make more pages dirty than memory
/// holds before the bounds of the flusher are looked at.
fn cut(pages: Range<u64>) -> Range<u64> {
    pages.start..pages.end.min(pages.start.saturating_add(PAGES_MAX.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_caches::{
        back::{Attribution, Why, WriteCause},
        policy,
        trace::{Tables, TraceBuilder, Unit},
    };
    use flashsift_events::event::{About, Knows, Side, Space};
    use flashsift_pages::{
        layout,
        system::Cell,
        writeback::{Expire, Modes, Syncs},
    };
    use proptest::prelude::*;
    use std::{cell::RefCell, collections::BTreeSet};

    const SECOND: Micros = 1_000_000;

    fn write(file: u64, pages: Range<u64>, sync: bool) -> Action<'static> {
        let (offset, len) = (pages.start * PAGE_BYTES, (pages.end - pages.start) * PAGE_BYTES);
        Action::Write { open: None, file: FileId(file), offset, len, sync }
    }

    fn flusher(background_pages: u64, events: &[(Micros, Action<'static>)]) -> Flusher {
        let mut flusher =
            Flusher::new(FlusherSettings { background_pages, ..FlusherSettings::default() });
        for (at_us, action) in events {
            flusher.handle(&Event { at_us: *at_us, pid: 0, tid: 0, action: action.clone() });
            flusher.check();
        }
        flusher
    }

    /// MariaDB writes its log by direct requests of 512 bytes. Each counted as a page, so that the
    /// doctor said five times what the device wrote.
    #[test]
    fn direct_writes_count_their_sectors() {
        let direct =
            |offset, len| Action::Direct { open: None, file: FileId(1), offset, len, write: true };
        let bytes = |events: &[(u64, u64)]| {
            let mut flusher = Flusher::new(FlusherSettings::default()).with_log();
            for (offset, len) in events {
                flusher.handle(&Event { at_us: 0, pid: 0, tid: 0, action: direct(*offset, *len) });
            }
            let pages = flusher.written().direct;
            (pages, flusher.drain_log().map(|reached| reached.bytes).sum::<u64>())
        };
        assert_eq!(bytes(&[(0, 512)]), (1, 512));
        assert_eq!(bytes(&[(512, 512), (4096, 4096)]), (2, 512 + 4096), "runs of pages are one");
        assert_eq!(bytes(&[(3584, 1024)]), (2, 1024), "two sectors of two pages");
        assert_eq!(bytes(&[(100, 1)]), (1, 512), "no part of a sector");
        assert_eq!(bytes(&[(511, 2)]), (1, 1024));
        assert_eq!(bytes(&[(7, 0)]), (0, 0));
        // The first write of a block that held nothing.
        let mut flusher = Flusher::new(FlusherSettings::default()).with_log();
        let filled = Action::Filled { file: FileId(1), offset: 4608, len: 3584 };
        for action in [direct(4096, 512), filled] {
            flusher.handle(&Event { at_us: 0, pid: 0, tid: 0, action });
        }
        assert_eq!(flusher.written().direct, 1);
        assert_eq!(flusher.drain_log().map(|reached| reached.bytes).sum::<u64>(), 4096);
    }

    proptest! {
        /// Sector by sector.
        #[test]
        fn sectors_are_those_touched(offset in 0..20_000_u64, len in 0..20_000_u64) {
            let sectors: BTreeSet<u64> = (offset..offset + len).map(|at| at / SECTOR_BYTES).collect();
            let pages: BTreeSet<u64> = sectors.iter().map(|sector| sector / 8).collect();
            let all = pages.len() as u64 * PAGE_BYTES - sectors.len() as u64 * SECTOR_BYTES;
            prop_assert_eq!(saved_by_sectors(offset, len), all);
        }
    }

    /// A write of 2^62 bytes once made blocks dirty until memory was exhausted.
    #[test]
    fn requests_are_cut_as_in_a_trace() {
        let (file, most) = (FileId(1), u64::from(PAGES_MAX));
        let long = Action::Write { open: None, file, offset: 0, len: 1 << 62, sync: false };
        let found = flusher(u64::MAX, &[(0, long)]);
        assert_eq!(found.dirty_pages() + found.written().early, most);
        let direct = Action::Direct { open: None, file, offset: 0, len: 1 << 62, write: true };
        assert_eq!(flusher(u64::MAX, &[(0, direct)]).written().direct, most);
    }

    #[test]
    fn by_hand() {
        let (file, gone) = (FileId(1), FileId(2));
        let events = [
            (SECOND, write(1, 0..4, false)),
            (SECOND, write(2, 0..9, false)),
            // Deleted before its age: never written.
            (20 * SECOND, Action::Gone { file: gone }),
            (21 * SECOND, Action::Sync { file, offset: 0, len: PAGE_BYTES + 1, data_only: false }),
            (22 * SECOND, Action::Truncate { file, size: 3 * PAGE_BYTES - 1 }),
            // The sync has not reset the file's age.
            (30 * SECOND, write(1, 70..75, false)),
            (34 * SECOND, write(1, 70..71, true)),
        ];
        let mut flusher = flusher(u64::MAX, &events);
        assert_eq!(flusher.written(), WrittenPages { synced: 3, ..WrittenPages::default() });
        assert_eq!(flusher.dirty_pages(), 5);
        flusher.advance(35 * SECOND - 1);
        assert_eq!(flusher.dirty_pages(), 5);
        flusher.advance(35 * SECOND);
        let written = WrittenPages { synced: 3, expired: 5, ..WrittenPages::default() };
        assert_eq!((flusher.written(), flusher.dirty_pages()), (written, 0));
        flusher.dirtied(35 * SECOND, file, 0..2);
        assert_eq!(flusher.take(36 * SECOND, file), 2);
        assert_eq!((flusher.written(), flusher.dirty_pages()), (written, 0));
    }

    #[test]
    fn direct_requests_reach_storage_at_once() {
        let direct =
            |len, write| Action::Direct { open: None, file: FileId(1), offset: 0, len, write };
        let events = [
            (1, write(1, 1..3, false)),
            (2, direct(2 * PAGE_BYTES, true)),
            (3, direct(9 * PAGE_BYTES, false)),
            (4, direct(0, true)),
        ];
        let flusher = flusher(u64::MAX, &events);
        assert_eq!(flusher.written(), WrittenPages { direct: 3, ..WrittenPages::default() });
        assert_eq!(flusher.dirty_pages(), 1);
    }

    /// A kernel that never runs its flusher writes at syncs and in the background only.
    #[test]
    fn without_ticks_age_writes_nothing() {
        let settings = FlusherSettings { tick_us: 0, ..FlusherSettings::default() };
        let mut flusher = Flusher::new(settings);
        flusher.dirtied(0, FileId(0), 0..1);
        flusher.advance(Micros::MAX);
        assert_eq!((flusher.dirty_pages(), flusher.written().all()), (1, 0));
    }

    /// Non-sequential writes, and many small files: memory stays bounded, and early writes are
    /// counted.
    // Promises: Mount 57.
    #[test]
    fn memory_is_bounded() {
        let mut scattered = Flusher::new(FlusherSettings::default());
        for n in 0..3 * BLOCKS_MAX as u64 {
            scattered.dirtied(n, FileId(n / 1000), n * 1000..n * 1000 + 1);
        }
        scattered.check();
        let early = scattered.written().early;
        assert!(early >= 2 * BLOCKS_MAX as u64, "{early} pages were written early");
        assert_eq!(early + scattered.dirty_pages(), 3 * BLOCKS_MAX as u64);
        let mut synced = Flusher::new(FlusherSettings::default());
        for n in 0..2 * FILES_MAX as u64 {
            let event = Event { at_us: 0, pid: 0, tid: 0, action: write(n, 0..1, true) };
            synced.handle(&event);
        }
        synced.check();
        assert_eq!((synced.written().synced, synced.written().early), (2 * FILES_MAX as u64, 0));
        // Files that end leave nothing behind.
        let mut ended = Flusher::new(FlusherSettings::default());
        for n in 0..5 * ENDED_MAX as u64 {
            for action in [write(n, 0..1, false), Action::Gone { file: FileId(n) }] {
                ended.handle(&Event { at_us: 0, pid: 0, tid: 0, action });
            }
        }
        assert!(ended.order.len() <= ENDED_MAX + 1 && ended.since_us.is_empty());
    }

    /// Microseconds since the event before, and the event. Files are used until they are gone.
    fn histories() -> impl Strategy<Value = Vec<(Micros, Action<'static>)>> {
        let file = 0..6_u64;
        let range = (0..130_u64 * PAGE_BYTES, 0..40 * PAGE_BYTES);
        let pause = prop_oneof![4 => 0..2 * SECOND, 1 => (0..8_u64).prop_map(|n| n * 5 * SECOND)];
        let event = (pause, 0..18_u32, file, range, any::<bool>());
        prop::collection::vec(event, 0..120).prop_map(|events| {
            let (mut at_us, mut epochs) = (0, [0_u64; 6]);
            let history = events.into_iter().map(|(pause_us, kind, file, (offset, len), flag)| {
                at_us += pause_us;
                let (open, epoch) = (None, &mut epochs[file as usize]);
                let id = FileId(*epoch * 10 + file);
                let (file, size) = (id, offset);
                let action = match kind {
                    0..9 => Action::Write { open, file, offset, len, sync: flag && kind == 0 },
                    9 => Action::Read { open, file, offset, len },
                    10 => Action::Truncate { file, size },
                    11 => Action::Punch { file, offset, len },
                    12 => Action::Sync { file, offset: 0, len: u64::MAX, data_only: false },
                    13 => Action::Sync { file, offset, len, data_only: false },
                    14 if flag => Action::SyncAll,
                    // A length of 0 stands for an unknown folio.
                    15 | 16 => Action::Folio { file, offset, len },
                    _ => {
                        *epoch += 1;
                        Action::Gone { file }
                    }
                };
                (at_us, action)
            });
            history.collect()
        })
    }

    proptest! {
        /// The simulator with a cache that holds everything writes the same pages for the same
        /// reasons.
        // Promises: Compare 9, Describe 20, Mount 56.
        #[test]
        fn as_the_simulator_with_a_cache_that_evicts_nothing(
            events in histories(),
            pids in prop::collection::vec(0..3_u32, 120),
            ratio in prop_oneof![Just(100), 0..20_u32],
            (expire_us, tick_us) in (0..40 * SECOND, SECOND..7 * SECOND),
        ) {
            let knows = Knows { times: true, syncs: true, writes: true, removals: true, ..Knows::NOTHING };
            let about = About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
            let tables = Tables { owners: true, ..Tables::default() };
            let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX).with_tables(tables);
            for ((at_us, action), pid) in events.iter().zip(&pids) {
                let event = Event { at_us: *at_us, pid: *pid, tid: 0, action: action.clone() };
                builder.extend(&[event]).unwrap();
            }
            let trace = builder.finish().unwrap();
            let frames = trace.pages() + 1;
            let ram_pages = frames.into();
            let expire = Some(Expire { after_us: expire_us, tick_us, ratio, ram_pages });
            let cell = Cell {
                system: &flashsift_pages::system::PLAIN,
                policy: &policy::Selection::parse("lru").unwrap(),
                frames,
                layout: &layout::default_for(Space::Files),
                writeback: Modes { expire, syncs: Syncs::TheirFile, ..Modes::default() },
                drain: false,
                request_pages_max: 1,
                discards: false,
                metadata: None,
                readahead: None,
                attribution: None,
                lines: None,
                reads: None,
                write_miss_reads: false,
            };
            let simulated = cell.run(&trace, None, None);
            let attribution = RefCell::new(Attribution::default());
            let attributed =
                Cell { attribution: Some(&attribution), ..cell }.run(&trace, None, None);
            prop_assert_eq!(attributed, simulated);
            let background_pages = u64::from(frames) * u64::from(ratio) / 100;
            let mut flusher = Flusher::new(FlusherSettings { expire_us, tick_us, background_pages }).with_log();
            for ((at_us, action), pid) in events.into_iter().zip(pids) {
                flusher.handle_of(&Event { at_us, pid, tid: 0, action }, pid);
                flusher.check();
            }
            flusher.advance(trace.totals().duration_us);
            let mut charged: BTreeMap<(Option<u32>, WriteCause), u64> = BTreeMap::new();
            for Reached { dirtier, pages, why, .. } in flusher.drain_log().collect::<Vec<_>>() {
                let why = match why {
                    FlushReason::Synced => Why::Sync,
                    FlushReason::SyncedAll => Why::SyncAll,
                    FlushReason::Expired => Why::Expire,
                    FlushReason::Background => Why::Background,
                    other => panic!("{other:?}"),
                };
                *charged.entry((Some(dirtier), WriteCause::Data(why))).or_default() += pages;
            }
            let attribution = attribution.into_inner();
            prop_assert_eq!(&charged, attribution.pages());
            prop_assert_eq!(flusher.written().all(), simulated.device.writes);
            let WrittenPages { synced, synced_all, .. } = flusher.written();
            prop_assert_eq!(synced + synced_all, simulated.device.sync_writes);
            prop_assert_eq!(flusher.dirty_pages(), simulated.dirty_left);
        }

        /// A model with a map of pages charges the same pages to the same dirtiers, files and
        /// reasons.
        // Promises: Describe 20.
        #[test]
        fn pages_are_charged_to_those_who_made_them_dirty(
            events in histories(),
            dirtiers in prop::collection::vec(0..3_u32, 120),
            background_pages in prop_oneof![Just(u64::MAX), 0..300_u64],
        ) {
            let settings = FlusherSettings { background_pages, ..FlusherSettings::default() };
            let mut flusher = Flusher::new(settings).with_log();
            let mut model = Model { settings, ..Model::default() };
            let mut charged = BTreeMap::new();
            for ((at_us, action), dirtier) in events.into_iter().zip(dirtiers) {
                let event = Event { at_us, pid: 0, tid: 0, action };
                flusher.handle_of(&event, dirtier);
                flusher.advance(at_us);
                flusher.check();
                for reached in flusher.drain_log() {
                    let Reached { file, dirtier, first_page, pages, bytes, why, .. } = reached;
                    if why != FlushReason::Direct {
                        prop_assert_eq!(bytes, pages * PAGE_BYTES);
                    }
                    for page in first_page..first_page + pages {
                        *charged.entry((file, page, dirtier, why)).or_insert(0) += 1;
                    }
                }
                model.handle(&event, dirtier);
                prop_assert_eq!(&charged, &model.charged);
            }
        }
    }

    #[derive(Default)]
    struct Model {
        settings: FlusherSettings,
        pages: BTreeMap<(FileId, u64), u32>,
        /// The oldest first.
        since_us: Vec<(Micros, FileId)>,
        /// By file, page, dirtier and reason.
        charged: BTreeMap<(FileId, u64, u32, FlushReason), u64>,
    }

    impl Model {
        fn charge(&mut self, file: FileId, page: u64, dirtier: u32, why: FlushReason) {
            *self.charged.entry((file, page, dirtier, why)).or_default() += 1;
        }

        fn remove(&mut self, file: FileId, pages: Range<u64>, why: Option<FlushReason>) {
            let gone: Vec<_> = self
                .pages
                .range((file, pages.start)..(file, pages.end))
                .map(|(k, v)| (*k, *v))
                .collect();
            for (key, dirtier) in gone {
                self.pages.remove(&key);
                if let Some(why) = why {
                    self.charge(file, key.1, dirtier, why);
                }
            }
        }

        fn write_oldest(&mut self, why: FlushReason) {
            let (_, file) = self.since_us.remove(0);
            self.remove(file, 0..u64::MAX, Some(why));
        }

        fn handle(&mut self, event: &Event<'_>, dirtier: u32) {
            let FlusherSettings { expire_us, tick_us, background_pages } = self.settings;
            let due = |since_us: Micros| (since_us + expire_us).next_multiple_of(tick_us);
            while self.since_us.first().is_some_and(|(since, _)| due(*since) <= event.at_us) {
                self.write_oldest(FlushReason::Expired);
            }
            match event.action {
                Action::Write { file, offset, len, sync, .. } => {
                    let pages = pages_touched(offset, len);
                    for page in pages.clone() {
                        self.pages.entry((file, page)).or_insert(dirtier);
                    }
                    let aged = self.since_us.iter().any(|(_, known)| *known == file);
                    if !aged && !pages.is_empty() {
                        self.since_us.push((event.at_us, file));
                    }
                    if sync {
                        self.remove(file, pages, Some(FlushReason::Synced));
                    }
                    while self.pages.len() as u64 > background_pages {
                        self.write_oldest(FlushReason::Background);
                    }
                }
                // Page by page: each that is not dirty becomes so.
                Action::Folio { file, offset, len } => {
                    for page in offset / PAGE_BYTES..(offset + len).div_ceil(PAGE_BYTES) {
                        if len > 0 {
                            self.pages.entry((file, page)).or_insert(dirtier);
                        }
                    }
                    if len > 0 && self.since_us.iter().all(|(_, known)| *known != file) {
                        self.since_us.push((event.at_us, file));
                    }
                    while self.pages.len() as u64 > background_pages {
                        self.write_oldest(FlushReason::Background);
                    }
                }
                Action::Sync { file, offset, len, .. } => {
                    self.remove(file, pages_touched(offset, len), Some(FlushReason::Synced));
                }
                Action::SyncAll => {
                    for ((file, page), dirtier) in std::mem::take(&mut self.pages) {
                        self.charge(file, page, dirtier, FlushReason::SyncedAll);
                    }
                    self.since_us.clear();
                }
                Action::Truncate { file, size } => {
                    self.remove(file, pages_inside(size, u64::MAX), None);
                }
                Action::Punch { file, offset, len } => {
                    self.remove(file, pages_inside(offset, len), None);
                }
                Action::Gone { file } => {
                    self.remove(file, 0..u64::MAX, None);
                    self.since_us.retain(|(_, known)| *known != file);
                }
                _ => {}
            }
        }
    }
}
