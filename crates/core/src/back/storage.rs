//! Plain storage: every miss is a read request and every write-back a write request, each at the
//! address that the layout gives.

use super::{Back, Source, Why, Written};
use crate::{
    layout::{Address, Goals, Layout, Lba},
    page::Page,
    trace::{Owner, Trace},
};
use std::ops::Range;

/// A request to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Time of the request, in microseconds from the trace's beginning.
    pub at_us: u64,
    /// Read or write.
    pub op: IoOp,
    /// First address, in units of 4 KiB.
    pub lba: Lba,
    /// Length in pages.
    pub pages: u32,
    /// A sync caused the write: a process waits until it is durable.
    pub sync: bool,
    /// A process waits until the request is done: it reads, it syncs, or it needs the frame of a
    /// dirty page.
    pub awaited: bool,
}

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOp {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// Takes the requests of a system, in order.
pub trait Sink {
    /// Whether the sink takes reads, too. If not, the addresses of reads are not looked up.
    const WANTS_READS: bool;
    /// Takes one request.
    fn io(&mut self, io: Io);
}

/// Discards all requests.
impl Sink for () {
    const WANTS_READS: bool = false;
    #[inline(always)]
    fn io(&mut self, _: Io) {}
}

impl Sink for &mut dyn FnMut(Io) {
    const WANTS_READS: bool = true;
    fn io(&mut self, io: Io) {
        self(io);
    }
}

/// Requests that reached the device, counted in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Pages read.
    pub reads: u64,
    /// Pages written, including those of the drain.
    pub writes: u64,
    /// Pages written because a process synced and waited for it.
    pub sync_writes: u64,
    /// Pages written by the drain.
    pub drained: u64,
    /// Writes that do not follow the write before them: `lba != previous + 1`. The first write
    /// counts.
    pub nonsequential_writes: u64,
    /// Pages that were dirty when they were truncated or deleted: writes that never happened.
    pub dropped_dirty: u64,
}

/// A back that consists of storage only.
pub struct Storage<S> {
    layout: Option<Box<dyn Layout>>,
    /// The address at which a write would be sequential.
    next_lba: Option<Lba>,
    /// The present time, which requests carry.
    at_us: u64,
    sink: S,
    counts: DeviceCounts,
    /// Set if the cache shows addresses to its policy.
    addresses: Option<Addresses>,
}

/// The state behind [`Back::address`] and [`Back::poll_moved`].
struct Addresses {
    goals: Goals,
    moved: Vec<Range<u32>>,
}

impl<S: Sink> Storage<S> {
    /// Sends requests to `sink`. Without a layout (for a trace without writes, and no sink) no
    /// address is looked up.
    pub fn new(layout: Option<Box<dyn Layout>>, sink: S) -> Self {
        let counts = DeviceCounts::default();
        Self { layout, next_lba: None, at_us: 0, sink, counts, addresses: None }
    }

    /// Adds addresses, for a cache whose policy orders pages by address. The storage must have a
    /// layout.
    pub(crate) fn with_addresses(mut self, trace: &Trace) -> Self {
        let goals = Goals::new(trace, self.layout());
        self.addresses = Some(Addresses { goals, moved: Vec::new() });
        self
    }

    fn layout(&mut self) -> &mut dyn Layout {
        &mut **self.layout.as_mut().expect("a trace with writes, or a sink, gets a layout")
    }

    /// Notes the pages that moved. To be called after each question to the layout about `page`.
    #[inline(always)]
    fn note_moved(&mut self, page: Page) {
        if let (Some(addresses), Some(layout)) = (&mut self.addresses, &self.layout) {
            addresses.note_moved(page, &**layout);
        }
    }
}

impl Addresses {
    #[cold]
    fn note_moved(&mut self, page: Page, layout: &dyn Layout) {
        let pages = layout.moved();
        let last = pages.clone().next_back().and_then(|last| layout.place(Page(last)));
        if let Some(lba) = last {
            self.goals.placed(page, lba);
            self.moved.push(pages);
        }
    }
}

impl<S: Sink> Back for Storage<S> {
    const WANTS_TIME: bool = S::WANTS_READS;
    // Without a sink, `system::run` uses only layouts that allocate late.
    const WANTS_DIRTIED: bool = S::WANTS_READS;

    #[inline(always)]
    fn now(&mut self, at_us: u64) {
        self.at_us = at_us;
    }

    #[inline]
    fn read(&mut self, page: Page, _: Owner) -> Source {
        self.counts.reads += 1;
        if S::WANTS_READS {
            let lba = self.layout().read(page);
            self.note_moved(page);
            let at_us = self.at_us;
            self.sink.io(Io { at_us, op: IoOp::Read, lba, pages: 1, sync: false, awaited: true });
        }
        Source::Storage
    }

    fn write(&mut self, Written { page, why, .. }: Written) {
        let lba = self.layout().write(page);
        self.note_moved(page);
        self.counts.writes += 1;
        self.counts.drained += u64::from(why == Why::Drain);
        self.counts.sync_writes += u64::from(why == Why::Sync);
        self.counts.nonsequential_writes += u64::from(self.next_lba != Some(lba));
        self.next_lba = Some(lba + 1);
        let (sync, awaited) = (why == Why::Sync, matches!(why, Why::Sync | Why::Evict));
        self.sink.io(Io { at_us: self.at_us, op: IoOp::Write, lba, pages: 1, sync, awaited });
    }

    #[inline]
    fn dropped(&mut self, dirty: bool) {
        self.counts.dropped_dirty += u64::from(dirty);
    }

    fn free(&mut self, pages: Range<u32>) {
        if let Some(layout) = &mut self.layout {
            layout.free(pages);
        }
    }

    #[inline]
    fn dirtied(&mut self, page: Page) {
        if self.layout().is_early() {
            self.layout().dirtied(page);
            self.note_moved(page);
        }
    }

    fn address(&mut self, page: Page) -> Address {
        let goals = &self.addresses.as_ref().expect("addresses were asked for").goals;
        let place = self.layout.as_ref().and_then(|layout| layout.place(page));
        place.map_or_else(|| goals.behind(page), Address::at)
    }

    fn poll_moved(&mut self) -> Option<Range<u32>> {
        self.addresses.as_mut()?.moved.pop()
    }

    fn counts(&self) -> DeviceCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device on which page n lies at `lbas[n]`.
    struct Fixed(Vec<Lba>);

    impl Layout for Fixed {
        fn write(&mut self, page: Page) -> Lba {
            self.0[page.0 as usize]
        }
        fn read(&mut self, page: Page) -> Lba {
            self.0[page.0 as usize]
        }
        fn place(&self, page: Page) -> Option<Lba> {
            Some(self.0[page.0 as usize])
        }
        fn moved(&self) -> Range<u32> {
            0..0
        }
        fn free(&mut self, _: Range<u32>) {}
    }

    /// The first write counts as non-sequential, and so do a repeated address, a gap and a step
    /// back. Reads between two writes do not matter.
    #[test]
    fn a_write_directly_after_the_last_one_is_sequential() {
        let mut seen = Vec::new();
        let mut sink = |io: Io| seen.push((io.op, io.lba));
        let mut storage = Storage::new(
            Some(Box::new(Fixed(vec![7, 8, 9, 20, 8]))),
            &mut sink as &mut dyn FnMut(Io),
        );
        let mut nonsequential = Vec::new();
        for (page, read_between) in
            [(0, false), (1, true), (2, false), (3, false), (2, false), (2, false), (4, false)]
        {
            let page = Page(page);
            storage.write(Written { page, why: Why::Evict, writes: 0, owner: Owner::UNKNOWN });
            nonsequential.push(storage.counts().nonsequential_writes);
            if read_between {
                storage.read(Page(3), Owner::UNKNOWN);
            }
        }
        assert_eq!(nonsequential, [1, 1, 1, 2, 3, 4, 5]);
        assert_eq!((storage.counts().reads, storage.counts().writes), (1, 7));
        assert_eq!(seen[..3], [(IoOp::Write, 7), (IoOp::Write, 8), (IoOp::Read, 20)]);
    }
}
