//! Data that a mount writes to flash, beside what the same requests write on a plain file system.
//!
//! Both sides count pages of file data, and both go through the same model of the kernel's delayed
//! write-back ([`Flusher`]). Names, attributes and journals are on neither side.
//!
//! - *Plain*: every event goes through a flusher, as if all files were on flash.
//! - *Mount*: copies of files that were in RAM are flushed by the mount itself, so their pages are
//!   known ([`Account::copied`]). Writes of applications to files on flash go to the page cache
//!   below the mount, which a second flusher models.
//!
//! A performer reports which files are in RAM. Requests that it does not see are on neither side.

use crate::flusher::{Flusher, FlusherSettings};
use flashsift_events::{
    event::{Action, Event, FileId, Micros},
    page::PAGE_BYTES,
    structure::extents::pages_touched,
};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// Takes every event of a mount, and what the mount writes.
#[derive(Clone, Debug)]
pub struct Account {
    requested_bytes: u64,
    syncs: u64,
    plain: Flusher,
    /// The page cache below the mount.
    below: Flusher,
    in_ram: HashSet<FileId, FixedState>,
    copied_pages: u64,
    /// Those of them for which an application waited.
    synced_pages: u64,
}

/// The state of an [`Account`]. Bytes are whole pages, apart from `requested_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountTotals {
    /// Bytes that applications wrote.
    pub requested_bytes: u64,
    /// Syncs of files by applications, with writes that wait for storage (`O_SYNC`).
    pub syncs: u64,
    /// The plain file system.
    pub plain: WrittenData,
    /// The mount. Files in RAM are not part of what waits.
    pub mount: WrittenData,
    /// The part of `mount.written_bytes` that is estimated: writes to files on flash.
    pub below_bytes: u64,
}

/// File data written to flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenData {
    /// Bytes written.
    pub written_bytes: u64,
    /// Those of them that an application synced.
    pub synced_bytes: u64,
    /// Bytes that wait in the page cache.
    pub dirty_bytes: u64,
    /// Those of `written_bytes` that the model wrote early, because its memory is bounded.
    pub early_bytes: u64,
}

impl WrittenData {
    fn new(flusher: &Flusher) -> Self {
        let written = flusher.written();
        Self {
            written_bytes: written.all() * PAGE_BYTES,
            synced_bytes: written.synced * PAGE_BYTES,
            dirty_bytes: flusher.dirty_pages() * PAGE_BYTES,
            early_bytes: written.early * PAGE_BYTES,
        }
    }
}

impl Account {
    /// Returns an account of nothing.
    pub fn new(settings: FlusherSettings) -> Self {
        Self {
            requested_bytes: 0,
            syncs: 0,
            plain: Flusher::new(settings),
            below: Flusher::new(settings),
            in_ram: HashSet::default(),
            copied_pages: 0,
            synced_pages: 0,
        }
    }

    /// Returns the settings of the model.
    pub fn settings(&self) -> FlusherSettings {
        self.plain.settings()
    }

    /// Takes the next event.
    pub fn handle(&mut self, event: &Event<'_>) {
        let reaches_flash = match event.action {
            Action::Write { file, len, sync, .. } => {
                self.requested_bytes += len;
                self.syncs += u64::from(sync);
                !self.in_ram.contains(&file)
            }
            Action::Direct { file, len, write: true, .. } => {
                self.requested_bytes += len;
                !self.in_ram.contains(&file)
            }
            Action::Folio { file, .. } => !self.in_ram.contains(&file),
            Action::Sync { .. } => {
                self.syncs += 1;
                true
            }
            Action::Gone { file } => {
                self.in_ram.remove(&file);
                true
            }
            Action::SyncAll | Action::Truncate { .. } | Action::Punch { .. } => true,
            _ => return,
        };
        self.plain.handle(event);
        if reaches_flash {
            self.below.handle(event);
        }
    }

    /// The file was created in RAM, or one in RAM is created here for the first time.
    pub fn is_in_ram(&mut self, file: FileId) {
        self.in_ram.insert(file);
    }

    /// From now on writes to the file reach the page cache below.
    pub fn left_ram(&mut self, file: FileId) {
        self.in_ram.remove(&file);
    }

    /// The file was dropped: it is no longer in RAM, and on a plain file system it would live on.
    pub fn dropped(&mut self, file: FileId) {
        self.in_ram.remove(&file);
    }

    /// This many bytes of a file were copied and flushed. `synced`: an application waits for them.
    pub fn copied(&mut self, bytes: u64, synced: bool) {
        self.flushed(bytes.div_ceil(PAGE_BYTES), synced);
    }

    /// This many bytes of a file were copied to the page cache below, and not flushed.
    pub fn handed_over(&mut self, now_us: Micros, file: FileId, bytes: u64) {
        // Without their places: holes move the dirty pages of a sparse file to its beginning.
        self.below.dirtied(now_us, file, pages_touched(0, bytes));
    }

    /// The mount flushes the dirty pages of a file on flash.
    pub fn flushes(&mut self, now_us: Micros, file: FileId, synced: bool) {
        let pages = self.below.take(now_us, file);
        self.flushed(pages, synced);
    }

    fn flushed(&mut self, pages: u64, synced: bool) {
        self.copied_pages += pages;
        if synced {
            self.synced_pages += pages;
        }
    }

    /// Returns the state at this time.
    pub fn totals(&mut self, now_us: Micros) -> AccountTotals {
        self.plain.advance(now_us);
        self.below.advance(now_us);
        let below = WrittenData::new(&self.below);
        let mount = WrittenData {
            written_bytes: below.written_bytes + self.copied_pages * PAGE_BYTES,
            synced_bytes: below.synced_bytes + self.synced_pages * PAGE_BYTES,
            ..below
        };
        AccountTotals {
            requested_bytes: self.requested_bytes,
            syncs: self.syncs,
            plain: WrittenData::new(&self.plain),
            mount,
            below_bytes: below.written_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;
    const IN_RAM: FileId = FileId(1);
    const ON_FLASH: FileId = FileId(2);

    fn event(at_s: u64, action: Action<'static>) -> Event<'static> {
        Event { at_us: at_s * SECOND, pid: 0, tid: 0, action }
    }

    fn write(at_s: u64, file: FileId, len: u64, sync: bool) -> Event<'static> {
        event(at_s, Action::Write { open: None, file, offset: 0, len, sync })
    }

    fn sync(at_s: u64, file: FileId) -> Event<'static> {
        event(at_s, Action::Sync { file, offset: 0, len: u64::MAX, data_only: false })
    }

    /// (WrittenData, synced, dirty) of the plain file system and of the mount, in pages.
    fn pages(totals: AccountTotals) -> [(u64, u64, u64); 2] {
        [totals.plain, totals.mount].map(|side| {
            let of = |bytes: u64| bytes / PAGE_BYTES;
            (of(side.written_bytes), of(side.synced_bytes), of(side.dirty_bytes))
        })
    }

    /// A file that dies before the kernel would have written it is no merit of the mount; one that
    /// dies later is.
    // Promises: Mount 56.
    #[test]
    fn only_files_that_outlive_the_kernels_delay_are_saved() {
        let mut account = Account::new(FlusherSettings::default());
        account.is_in_ram(IN_RAM);
        account.handle(&write(0, IN_RAM, 5000, false));
        account.handle(&event(29, Action::Gone { file: IN_RAM }));
        assert_eq!(pages(account.totals(100 * SECOND)), [(0, 0, 0), (0, 0, 0)]);
        account.is_in_ram(FileId(3));
        account.handle(&write(100, FileId(3), 5000, false));
        account.handle(&event(145, Action::Gone { file: FileId(3) }));
        let totals = account.totals(200 * SECOND);
        assert_eq!(pages(totals), [(2, 0, 0), (0, 0, 0)]);
        assert_eq!((totals.requested_bytes, totals.below_bytes), (10_000, 0));
        assert!(account.in_ram.is_empty());
    }

    #[test]
    fn files_on_flash_count_the_same_on_both_sides() {
        let mut account = Account::new(FlusherSettings::default());
        account.handle(&write(0, ON_FLASH, 5000, false));
        account.handle(&write(1, ON_FLASH, 1, true));
        let direct =
            Action::Direct { open: None, file: ON_FLASH, offset: 0, len: 4096, write: true };
        account.handle(&event(2, direct));
        assert_eq!(pages(account.totals(SECOND)), [(2, 1, 1), (2, 1, 1)]);
        let totals = account.totals(30 * SECOND);
        assert_eq!(pages(totals), [(3, 1, 0), (3, 1, 0)]);
        assert_eq!((totals.below_bytes, totals.syncs), (3 * PAGE_BYTES, 1));
    }

    #[test]
    fn a_synced_file_is_copied_once_and_is_on_flash_then() {
        let mut account = Account::new(FlusherSettings::default());
        account.is_in_ram(IN_RAM);
        account.handle(&write(0, IN_RAM, 5000, false));
        account.handle(&sync(1, IN_RAM));
        account.copied(5000, true);
        account.left_ram(IN_RAM);
        account.handle(&write(2, IN_RAM, 100, false));
        account.handle(&sync(3, IN_RAM));
        let totals = account.totals(3 * SECOND);
        assert_eq!(pages(totals), [(3, 3, 0), (3, 3, 0)]);
        assert_eq!((totals.syncs, totals.below_bytes), (2, PAGE_BYTES));
    }

    /// Its pages are dirty below from then on: written if it lives, by the flush that comes before
    /// its name, and otherwise not at all.
    #[test]
    fn a_file_that_was_handed_over_is_in_the_page_cache_below() {
        let mut account = Account::new(FlusherSettings::default());
        for file in [IN_RAM, FileId(3)] {
            account.is_in_ram(file);
            account.handle(&write(0, file, 3 * 4096, false));
            account.handed_over(SECOND, file, 3 * 4096);
            account.left_ram(file);
            account.handle(&write(1, file, 1, false));
        }
        assert_eq!(pages(account.totals(SECOND)), [(0, 0, 6), (0, 0, 6)]);
        account.handle(&event(2, Action::Gone { file: FileId(3) }));
        account.flushes(20 * SECOND, IN_RAM, false);
        assert_eq!(pages(account.totals(60 * SECOND)), [(3, 0, 0), (3, 0, 0)]);
    }
}
