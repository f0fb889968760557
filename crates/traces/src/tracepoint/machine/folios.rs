//! Folios: the units in which the page cache holds a file.
//!
//! A store through a mapping makes its whole folio dirty. Folios of one page are not reported, so
//! that traces of file systems without others pay nothing. A page that belongs to no known folio
//! stands for itself, unless the page cache may have held it before the trace.

use super::{super::Inode, Host, TracepointMachine};
use crate::events::Skip;
use flashsift_events::{event::Action, page::PAGE_BYTES};

/// The host is asked for the folios of as many pages at once, from a multiple of their number on.
/// No folio of a file is longer: its order is at most that of a huge page.
pub const FOLIO_WINDOW_PAGES: u64 = 512;

const UNKNOWN: Skip = Skip::Note(
    "store through a mapping whose folio is unknown: up to 511 pages more may have become dirty",
);

impl TracepointMachine {
    /// Pages of a file entered the page cache as one folio.
    pub fn folio_added(&mut self, inode: Inode, first: u64, pages: u64) {
        if self.block_bytes(inode.dev).is_none() {
            return;
        }
        // Nothing is to be forgotten of a file that is met with a single page.
        let file = match self.files.current(inode) {
            Some(file) => file,
            None if pages == 1 => return,
            None => self.files.begin(inode, true),
        };
        self.folios_gone(file, first, pages);
        if pages > 1 {
            self.files[file].folios.insert(first, pages);
        }
    }

    /// Pages of a file left the page cache.
    pub fn folio_removed(&mut self, inode: Inode, first: u64, pages: u64) {
        if self.block_bytes(inode.dev).is_some()
            && let Some(file) = self.files.current(inode)
        {
            self.folios_gone(file, first, pages);
        }
    }

    /// Forgets the folios that overlap these pages. One that extends beyond them was split.
    pub(super) fn folios_gone(&mut self, file: u32, first: u64, pages: u64) {
        let f = &mut self.files[file];
        let end = first.saturating_add(pages);
        while let Some((&at, &len)) = f.folios.range(..end).next_back()
            && at + len > first
        {
            f.folios.remove(&at);
            if at < first || at + len > end {
                f.has_unseen_folios = true;
                f.asked.remove(&(at / FOLIO_WINDOW_PAGES));
            }
        }
    }

    /// Emits the folio of a page to which a thread has stored. `false` if the page is in none that
    /// is known, and may be absent from the page cache.
    pub(super) fn tells_folio(
        &mut self,
        tid: u32,
        file: u32,
        page: u64,
        host: &mut dyn Host,
    ) -> bool {
        if !self.is_in_scope(tid, file) {
            return true;
        }
        let folio = self.folio_of(file, page);
        let (folio, known) = match folio {
            Some(folio) => (Some(folio), true),
            None => {
                let asked = self.ask_for_folios(file, page, host);
                (self.folio_of(file, page), asked)
            }
        };
        let (first, pages) = match folio {
            Some(folio) => folio,
            None if known => return false,
            // A length of 0 stands for an unknown folio.
            None => {
                self.skip(UNKNOWN);
                (page, 0)
            }
        };
        let offset = first * PAGE_BYTES;
        let mut len = pages * PAGE_BYTES;
        // The kernel does not write pages behind the end of the file.
        let f = &self.files[file];
        if let Some(size) = f.size
            && !f.may_have_grown
            && size > page * PAGE_BYTES
        {
            len = len.min(size.next_multiple_of(PAGE_BYTES) - offset);
        }
        let file = self.id(tid, file);
        self.emit(tid, Action::Folio { file, offset, len });
        true
    }

    fn folio_of(&self, file: u32, page: u64) -> Option<(u64, u64)> {
        let (&first, &pages) = self.files[file].folios.range(..=page).next_back()?;
        (page - first < pages).then_some((first, pages))
    }

    /// Asks the host for folios that no tracepoint reported. Returns whether the folios around this
    /// page are known then.
    fn ask_for_folios(&mut self, file: u32, page: u64, host: &mut dyn Host) -> bool {
        if self.without_folios {
            return false;
        }
        let f = &mut self.files[file];
        let window = page / FOLIO_WINDOW_PAGES;
        if !f.has_unseen_folios || f.asked.contains(&window) {
            return true;
        }
        let Some(handle) = f.handle else { return false };
        let (folios, first) = (&mut f.folios, window * FOLIO_WINDOW_PAGES);
        let known = host.folios(handle, first, &mut |first, pages| {
            folios.insert(first, pages);
        });
        if known {
            f.asked.insert(window);
        }
        known
    }
}
