//! The four cases of a read, and the requests to the device that belong to each read.
//!
//! Liang et al. (section 3.3, Table 3) distinguish reads of a page by what they wait for: nothing
//! (*cached*), a read from the device (*read*), the same after a clean page was evicted
//! (*evictfirst 1*), and also the write of an evicted dirty page (*evictfirst 2*). The reads of the
//! paper are of one page. Here a read of an application may be of several, and brings the rest of
//! its windows along; its case is that of the most expensive page among them.

use std::cell::{Cell, RefCell};

/// Most expensive thing that a read of an application waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadCase {
    /// Every page that it asked for was in the cache, and it wrote none.
    Cached,
    /// It read pages into free frames only.
    Free,
    /// It read pages, and evicted clean ones.
    EvictClean,
    /// It wrote dirty pages whose frames it needed, for pages that it asked for or read ahead.
    EvictDirty,
}

impl ReadCase {
    /// Every case, the cheapest first.
    pub const ALL: [Self; 4] = [Self::Cached, Self::Free, Self::EvictClean, Self::EvictDirty];

    /// Returns the case of a read by what happened during it. `hit`: every page that it asked for
    /// was in the cache.
    pub(crate) fn new(hit: bool, pages_evicted: u64, pages_written: u64) -> Self {
        match (hit, pages_evicted, pages_written) {
            (_, _, 1..) => Self::EvictDirty,
            (true, ..) => Self::Cached,
            (false, 0, _) => Self::Free,
            _ => Self::EvictClean,
        }
    }
}

/// The end of a read, for a device that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadEnd {
    /// Time of the read, in microseconds from the trace's beginning.
    pub at_us: u64,
    /// Its case.
    pub case: ReadCase,
    /// Its number, larger than that of each read before it.
    pub number: u32,
    /// Number of the read that read ahead the page that this one accesses first, without waiting
    /// for it; of several, the last.
    pub needs: Option<u32>,
}

/// The beginning or end of a read, among the requests to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMark {
    /// The requests that follow belong to a read.
    Begin,
    /// Requests that follow belong to no read.
    End(ReadEnd),
}

/// Where reads begin and end among the requests of a cell, and how many reads there are of each
/// case.
///
/// The system writes it, and the sink of the requests reads it: it calls [`Self::take`] before it
/// handles each request, and once at the end. Reads that sent no request and waited for no page are
/// only counted.
#[derive(Debug, Default)]
pub struct ReadLog {
    /// A read has begun, and not ended.
    running: Cell<bool>,
    /// [`ReadMark::Begin`] of that read was taken.
    announced: Cell<bool>,
    ended: RefCell<Vec<ReadEnd>>,
    reads: Cell<[u64; 4]>,
}

impl ReadLog {
    pub(crate) fn begin(&self) {
        self.running.set(true);
    }

    pub(crate) fn end(&self, end: ReadEnd) {
        self.running.set(false);
        let mut reads = self.reads.get();
        reads[end.case as usize] += 1;
        self.reads.set(reads);
        if self.announced.take() || end.needs.is_some() {
            self.ended.borrow_mut().push(end);
        }
    }

    /// Passes on what happened since the last call, in order.
    #[inline]
    pub fn take(&self, mut mark: impl FnMut(ReadMark)) {
        self.ended.borrow_mut().drain(..).for_each(|end| mark(ReadMark::End(end)));
        if self.running.get() && !self.announced.replace(true) {
            mark(ReadMark::Begin);
        }
    }

    /// Returns the number of reads of each case, in the order of [`ReadCase::ALL`].
    pub fn reads(&self) -> [u64; 4] {
        self.reads.get()
    }
}
