//! Read-ahead whose counts are charged to the files and processes whose reads cause them.
//!
//! It stands around [`Ahead`] in a loop of its own, so other cells pay nothing for it. Each call
//! passes the difference that it makes in the counts to the file and the process of the present
//! read. A page remembers the read that prefetched it, and its first use is charged to that.

use super::{Ahead, Before, FRESH, ReadAhead};
use crate::readahead::{ReadAheadCharge, ReadAheadCharges};
use flashsift_caches::{
    back::Back,
    cache::{Cache, PageCache},
    policy::Policy,
    trace::{Owner, Trace},
};
use flashsift_events::{
    event::FileId,
    page::{Access, Page},
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::cell::RefCell;

/// An [`Ahead`] that charges its counts.
pub(crate) struct ChargedAhead<'a> {
    ahead: Ahead,
    charges: ReadAheadCharges,
    rows: HashMap<(FileId, u32), u32, FixedState>,
    /// The row of the present read.
    present: u32,
    /// By page: the row of the read that prefetched it last.
    causes: Vec<u32>,
    into: &'a RefCell<ReadAheadCharges>,
}

impl<'a> ChargedAhead<'a> {
    /// The charges come to `into` at the end of the run. The trace has the table of owners.
    pub(crate) fn new(ahead: Ahead, trace: &Trace, into: &'a RefCell<ReadAheadCharges>) -> Self {
        Self {
            ahead,
            charges: ReadAheadCharges::default(),
            rows: HashMap::default(),
            present: 0,
            causes: vec![0; trace.pages() as usize],
            into,
        }
    }

    fn row(&mut self, row: u32) -> &mut ReadAheadCharge {
        &mut self.charges.rows[row as usize]
    }
}

impl<P: Policy> ReadAhead<PageCache<P>> for ChargedAhead<'_> {
    const ON: bool = true;

    fn plan(&mut self, trace: &Trace, n: usize, cache: &PageCache<P>) {
        let Owner { process, file } = trace.owner(n);
        let file = file.expect("a read is of one file");
        let fresh = self.charges.rows.len() as u32;
        self.present = *self.rows.entry((file, process)).or_insert(fresh);
        if self.present == fresh {
            self.charges.rows.push(ReadAheadCharge::new(file, process));
        }
        let before = self.ahead.counts;
        self.ahead.plan(trace, n, cache);
        let made = self.ahead.counts - before;
        self.row(self.present).counts += made;
    }

    fn begins(&mut self, page: u32) -> bool {
        <Ahead as ReadAhead<PageCache<P>>>::begins(&mut self.ahead, page)
    }

    fn before_access<B: Back>(
        &mut self,
        access: &Access,
        covers: bool,
        cache: &mut PageCache<P>,
        back: &mut B,
    ) -> Before {
        let before = self.ahead.counts;
        let state = self.ahead.before_access(access, covers, cache, back);
        let made = self.ahead.counts - before;
        if made.used > 0 {
            let cause = self.causes[access.page.0 as usize];
            self.row(cause).counts += made;
        }
        state
    }

    fn accessed<B: Back>(
        &mut self,
        state: Before,
        hit: bool,
        read: bool,
        cache: &PageCache<P>,
        back: &B,
    ) {
        let before = self.ahead.counts;
        self.ahead.accessed(state, hit, read, cache, back);
        let made = self.ahead.counts - before;
        match read {
            true => self.row(self.present).counts += made,
            false => self.charges.by_writes += made,
        }
    }

    fn fetch<B: Back>(&mut self, owner: Owner, cache: &mut PageCache<P>, back: &mut B) {
        for planned in &self.ahead.planned {
            self.causes[planned.pages.start as usize..planned.pages.end as usize]
                .fill(self.present);
        }
        let before = self.ahead.counts;
        self.ahead.fetch(owner, cache, back);
        let made = self.ahead.counts - before;
        self.row(self.present).counts += made;
    }

    fn finish(&mut self, cache: &PageCache<P>) {
        for page in 0..self.causes.len() as u32 {
            if self.ahead.flags[page as usize] & FRESH != 0 && cache.holds(Page(page)) {
                let cause = self.causes[page as usize];
                self.row(cause).unused_pages += 1;
            }
        }
        self.into.replace(std::mem::take(&mut self.charges));
    }

    fn counts(&self) -> crate::readahead::Counts {
        self.ahead.counts
    }

    fn take_needs(&mut self) -> Option<u32> {
        <Ahead as ReadAhead<PageCache<P>>>::take_needs(&mut self.ahead)
    }
}
