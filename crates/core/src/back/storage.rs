//! Plain storage: every miss is a read request, every write-back a write request, each at the place that a layout gives.

use super::{Back, Why};
use crate::{
    layout::{Layout, Lba},
    page::Page,
};
use std::ops::Range;

/// A request to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// When, microseconds from the trace's beginning.
    pub at_us: u64,
    /// Read or write.
    pub op: IoOp,
    /// First place, in 4 KiB units.
    pub lba: Lba,
    /// How many.
    pub pages: u32,
    /// Somebody waits for it to be durable.
    pub sync: bool,
    /// An application goes on when it is done: it reads, or what it wrote is to be durable, or it needs the place of a dirty
    /// page.
    pub awaited: bool,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOp {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// Takes the requests of a system, in order.
pub trait Sink {
    /// Reads are wanted too; where they are not, their place is not looked up.
    const WANTS_READS: bool;
    /// One request.
    fn io(&mut self, io: Io);
}

/// Nobody listens.
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

/// What reached the device. All in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Pages read.
    pub reads: u64,
    /// Pages written, those of the drain among them.
    pub writes: u64,
    /// Pages written because somebody synced, and waited for it.
    pub sync_writes: u64,
    /// Pages written by the drain.
    pub drained: u64,
    /// Writes that do not follow the write before them: `lba != previous + 1`. The first write is one.
    pub nonsequential_writes: u64,
    /// Pages that were dirty when they were truncated or deleted: writes that never happened.
    pub dropped_dirty: u64,
}

/// The back that is storage alone.
pub struct Storage<S> {
    layout: Option<Box<dyn Layout>>,
    /// Where a write would be sequential.
    next_lba: Option<Lba>,
    /// The present, for the requests.
    pub(crate) at_us: u64,
    sink: S,
    counts: DeviceCounts,
}

impl<S: Sink> Storage<S> {
    /// Requests go to `sink`. Without a layout (a trace without writes that nobody listens to) no place is looked up.
    pub fn new(layout: Option<Box<dyn Layout>>, sink: S) -> Self {
        Self { layout, next_lba: None, at_us: 0, sink, counts: DeviceCounts::default() }
    }

    /// What reached it so far.
    pub fn counts(&self) -> DeviceCounts {
        self.counts
    }

    fn layout(&mut self) -> &mut dyn Layout {
        &mut **self.layout.as_mut().expect("a trace with writes, or a sink, gets a layout")
    }
}

impl<S: Sink> Back for Storage<S> {
    #[inline]
    fn read(&mut self, page: Page) {
        self.counts.reads += 1;
        if S::WANTS_READS {
            let lba = self.layout().read(page);
            self.sink.io(Io { at_us: self.at_us, op: IoOp::Read, lba, pages: 1, sync: false, awaited: true });
        }
    }

    fn write(&mut self, page: Page, why: Why) {
        let lba = self.layout().write(page);
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
        fn free(&mut self, _: Range<u32>) {}
    }

    /// The first write is not; reads between two writes do not matter; the same place again, a gap and a step back do.
    #[test]
    fn a_write_is_sequential_right_behind_the_last() {
        let mut seen = Vec::new();
        let mut sink = |io: Io| seen.push((io.op, io.lba));
        let mut storage =
            Storage::new(Some(Box::new(Fixed(vec![7, 8, 9, 20, 8]))), &mut sink as &mut dyn FnMut(Io));
        let mut nonsequential = Vec::new();
        for (page, read_between) in
            [(0, false), (1, true), (2, false), (3, false), (2, false), (2, false), (4, false)]
        {
            storage.write(Page(page), Why::Evict);
            nonsequential.push(storage.counts().nonsequential_writes);
            if read_between {
                storage.read(Page(3));
            }
        }
        assert_eq!(nonsequential, [1, 1, 1, 2, 3, 4, 5]);
        assert_eq!((storage.counts().reads, storage.counts().writes), (1, 7));
        assert_eq!(seen[..3], [(IoOp::Write, 7), (IoOp::Write, 8), (IoOp::Read, 20)]);
    }
}
