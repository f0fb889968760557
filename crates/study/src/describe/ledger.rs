//! Data shared by all characterisations: pages, files and names, with their numbers of accesses.

use super::programs::Programs;
use flashsift_caches::trace::TraceError;
use flashsift_events::{
    event::{About, Action, Event, FileId, Space},
    ledger::{FileLedger, LedgerFile},
    page::{PAGE_BYTES, PAGES_MAX},
};
use foldhash::fast::FixedState;
use prefetch_index::prefetch_index;
use std::hash::BuildHasher;

/// The missing information of a trace whose files have no names.
pub(super) const NO_NAMES: &str = "no file names";
/// Label of files without a name where other files have one.
pub(super) const UNNAMED: (&str, &str) = ("unnamed", "without a name");

const HASHER: FixedState = FixedState::with_seed(0);

/// All shared data.
pub(super) struct Ledger {
    pub(super) about: About,
    pub(super) pages: Pages,
    /// Files and devices.
    pub(super) files: FileLedger<Requests>,
    pub(super) programs: Programs,
    /// Time of the last event.
    pub(super) end_us: u64,
}

/// Result of entering one event.
pub(super) struct Seen<'a> {
    pub(super) ledger: &'a Ledger,
    /// Numbers of the pages that the event reads or writes, ascending in its file; empty for other
    /// events.
    pub(super) pages: &'a [u32],
    /// Number of the event's file; `None` for objects and for events without a file.
    pub(super) file: Option<u32>,
    /// Number of the program that reads or writes; `None` for other events.
    pub(super) program: Option<u32>,
}

/// Numbers of the file and the program of an event, as in [`Seen`].
#[derive(Default)]
pub(super) struct Entered {
    pub(super) file: Option<u32>,
    pub(super) program: Option<u32>,
}

impl Ledger {
    pub(super) fn new(about: About) -> Self {
        Self {
            about,
            pages: Pages::default(),
            files: FileLedger::default(),
            programs: Programs::default(),
            end_us: 0,
        }
    }

    /// Enters an event, writes the touched pages to `touched` and returns the numbers of its file
    /// and program.
    ///
    /// # Errors
    ///
    /// The trace has too many pages.
    #[inline]
    pub(super) fn take(
        &mut self,
        event: &Event,
        touched: &mut Vec<u32>,
    ) -> Result<Entered, TraceError> {
        touched.clear();
        if matches!(event.action, Action::Place { .. }) {
            return Ok(Entered::default());
        }
        self.end_us = self.end_us.max(event.at_us);
        let access = match event.action {
            Action::Read { file, offset, len, .. } => Some((file, offset, len, false)),
            Action::Write { file, offset, len, .. } => Some((file, offset, len, true)),
            _ => None,
        };
        if let Some((file, offset, len, write)) = access.filter(|(_, _, len, _)| *len > 0) {
            let (first, last) =
                (offset / PAGE_BYTES, (offset.saturating_add(len) - 1) / PAGE_BYTES);
            // The limit of a dense trace applies.
            let last = last.min(first + u64::from(PAGES_MAX) - 1);
            self.pages.touch(file, first..=last, write, touched)?;
        }
        // Each object would be a file. There can be as many objects as pages, and nothing else is
        // known of them.
        let files = self.about.space != Space::Objects;
        let counts = files && !matches!(event.action, Action::Direct { .. });
        let file = counts.then(|| self.files.take(event)).flatten();
        if let Some(file) = file {
            self.files.state(file).take(event, touched.len() as u64);
        }
        Ok(Entered { file, program: self.programs.take(event) })
    }

    /// Prefetches the data of these events into the near caches, and returns the pages that they
    /// probably begin with.
    pub(super) fn prefetch(&self, events: &[Event<'static>], likely: &mut Vec<u32>) {
        let Pages { pages, slots } = &self.pages;
        likely.clear();
        for event in events {
            if let Action::Read { file, offset, .. } | Action::Write { file, offset, .. } =
                event.action
            {
                let slot = self.pages.slot(file, offset / PAGE_BYTES);
                prefetch_index(slots, slot);
                likely.push(slot as u32);
            }
        }
        likely.retain_mut(|slot| {
            let n = slots.get(*slot as usize).and_then(|slot| slot.checked_sub(1));
            *slot = n.unwrap_or_default();
            n.is_some()
        });
        likely.iter().for_each(|n| prefetch_index(pages, *n as usize));
    }

    /// Whether any file that is read or written has a name.
    pub(super) fn any_named(&self) -> bool {
        let named = |file: &File| file.name.is_some() && file.state.active_us.is_some();
        self.files.all().iter().any(named)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.pages.held_bytes() + self.files.held_bytes() + self.programs.held_bytes()
    }
}

/// A touched page and its numbers of accesses.
#[derive(Clone, Copy)]
pub(super) struct Page {
    pub(super) file: FileId,
    /// Its number in the file.
    pub(super) page: u64,
    pub(super) reads: u32,
    pub(super) writes: u32,
}

impl Page {
    pub(super) fn accesses(&self) -> u64 {
        u64::from(self.reads) + u64::from(self.writes)
    }
}

/// Pages numbered in order of their first access.
///
/// Finding a page costs two or three cache misses, most of the time of describing a large trace.
/// Hence this table supports prefetching many requests ahead ([`Ledger::prefetch`]).
#[derive(Default)]
pub(super) struct Pages {
    pages: Vec<Page>,
    /// Open addressing with linear probing; the size is a power of two, at most three quarters
    /// full. Number + 1, or 0.
    slots: Vec<u32>,
}

impl Pages {
    pub(super) fn all(&self) -> &[Page] {
        &self.pages
    }

    /// First slot of the search for a page. Before the first page there is no table.
    #[inline]
    fn slot(&self, file: FileId, page: u64) -> usize {
        HASHER.hash_one((file.0, page)) as usize & self.slots.len().wrapping_sub(1)
    }

    pub(super) fn find(&self, file: FileId, page: u64) -> Option<u32> {
        let slot = *self.slots.get(self.probe(file, page))?;
        slot.checked_sub(1)
    }

    /// The slot that holds a page or would hold it.
    #[inline]
    fn probe(&self, file: FileId, page: u64) -> usize {
        let mut at = self.slot(file, page);
        while let Some(n) = self.slots.get(at).and_then(|slot| slot.checked_sub(1)) {
            if self.is(n, file, page) {
                break;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    #[inline]
    fn is(&self, n: u32, file: FileId, page: u64) -> bool {
        self.pages.get(n as usize).is_some_and(|known| known.page == page && known.file == file)
    }

    #[inline]
    fn touch(
        &mut self,
        file: FileId,
        range: std::ops::RangeInclusive<u64>,
        write: bool,
        touched: &mut Vec<u32>,
    ) -> Result<(), TraceError> {
        let mut next = u32::MAX;
        for page in range {
            // Pages first touched together have consecutive numbers.
            let n = if self.is(next, file, page) { next } else { self.number(file, page)? };
            next = n + 1;
            let known = &mut self.pages[n as usize];
            let count = if write { &mut known.writes } else { &mut known.reads };
            *count = count.checked_add(1).ok_or(TraceError::TooManyUses)?;
            touched.push(n);
        }
        Ok(())
    }

    fn number(&mut self, file: FileId, page: u64) -> Result<u32, TraceError> {
        if self.pages.len() >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        let at = self.probe(file, page);
        if let Some(n) = self.slots[at].checked_sub(1) {
            return Ok(n);
        }
        let fresh = u32::try_from(self.pages.len()).ok().filter(|n| *n < u32::MAX - 1);
        let fresh = fresh.ok_or(TraceError::TooManyPages)?;
        self.pages.push(Page { file, page, reads: 0, writes: 0 });
        self.slots[at] = fresh + 1;
        Ok(fresh)
    }

    #[cold]
    fn grow(&mut self) {
        self.slots = vec![0; (self.slots.len() * 2).max(1024)];
        for n in 0..self.pages.len() {
            let Page { file, page, .. } = self.pages[n];
            let mut at = self.slot(file, page);
            while self.slots[at] != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = n as u32 + 1;
        }
    }

    fn held_bytes(&self) -> usize {
        self.pages.len() * size_of::<Page>() + self.slots.len() * size_of::<u32>()
    }
}

/// Requests of one kind.
#[derive(Clone, Copy, Default)]
pub(super) struct RequestSums {
    /// Requests that touch a page.
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) pages: u64,
}

impl RequestSums {
    pub(super) fn add(&mut self, bytes: u64, pages: u64) {
        self.merge(Self { requests: 1, bytes, pages });
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        // The size of an object can be any number.
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.pages += other.pages;
    }
}

/// The requests for a file.
#[derive(Clone, Copy, Default)]
pub(crate) struct Requests {
    pub(super) reads: RequestSums,
    pub(super) writes: RequestSums,
    pub(super) syncs: u64,
    /// Times of the first and last request that touched a page, if there is one.
    pub(super) active_us: Option<(u64, u64)>,
}

/// A file, or a block device.
pub(super) type File = LedgerFile<Requests>;

impl Requests {
    fn take(&mut self, event: &Event, pages: u64) {
        match event.action {
            Action::Read { len, .. } if pages > 0 => self.reads.add(len, pages),
            Action::Write { len, .. } if pages > 0 => self.writes.add(len, pages),
            Action::Sync { .. } => self.syncs += 1,
            _ => {}
        }
        if pages > 0 {
            let (first, _) = self.active_us.unwrap_or((event.at_us, 0));
            self.active_us = Some((first, event.at_us));
        }
    }
}
