//! Plain storage: misses are read requests and write-backs write requests, at the addresses that
//! the layout gives.
//!
//! Pages that belong together ([`Back::submit`]) and follow or precede one another on the device
//! are joined to one request, up to a maximum length, as a block layer joins them in a task's plug.
//! Only the request joined last is extended: the order of pages is the cache's.

use super::clusters::Clusters;
use crate::{
    layout::{Goals, Layout},
    metadata::{self, Metadata},
    system::{SystemKind, SystemSpec},
    writeback::Cluster,
};
use flashsift_caches::{
    back::{Attribution, Back, DeviceCounts, Source, Why, WriteCause, Written},
    trace::{Operation, Owner, Run, Trace},
};
use flashsift_events::{
    address::{Address, Lba},
    event::FileId,
    io::{Cause, Io, IoOp},
    page::Page,
};
use std::{ops::Range, sync::Arc};

pub(crate) const SPEC: SystemSpec = SystemSpec {
    name: "storage",
    paper: "the page cache as it is; Flush-storage in Lim & Bahn (IEEE Access 2021)",
    what: "dirty pages go to storage",
    params: &[],
    kind: SystemKind::Storage,
};

/// Takes the requests of a system, in order.
pub trait Sink {
    /// Whether the storage follows the time and which cached pages are dirty, for a layout or
    /// clusters that need it.
    const FOLLOWS_DIRTY: bool;
    /// Whether requests are taken. If not, they are only counted, and the addresses of reads are
    /// not looked up. The answer never changes.
    fn takes_requests(&self) -> bool;
    /// Takes one request.
    fn io(&mut self, io: Io);
}

/// Takes no request. For layouts that need to know neither the time nor which pages are dirty.
impl Sink for () {
    const FOLLOWS_DIRTY: bool = false;
    #[inline(always)]
    fn takes_requests(&self) -> bool {
        false
    }
    #[inline(always)]
    fn io(&mut self, _: Io) {}
}

/// Takes no request. For every layout, with or without clusters.
pub struct Nowhere;

impl Sink for Nowhere {
    const FOLLOWS_DIRTY: bool = true;
    #[inline(always)]
    fn takes_requests(&self) -> bool {
        false
    }
    #[inline(always)]
    fn io(&mut self, _: Io) {}
}

impl Sink for &mut dyn FnMut(Io) {
    const FOLLOWS_DIRTY: bool = true;
    #[inline(always)]
    fn takes_requests(&self) -> bool {
        true
    }
    fn io(&mut self, io: Io) {
        self(io);
    }
}

impl Sink for Option<&mut dyn FnMut(Io)> {
    const FOLLOWS_DIRTY: bool = true;
    #[inline(always)]
    fn takes_requests(&self) -> bool {
        self.is_some()
    }
    fn io(&mut self, io: Io) {
        if let Some(sink) = self {
            sink(io);
        }
    }
}

/// A back that consists of storage only.
pub struct Storage<S> {
    layout: Option<Box<dyn Layout>>,
    /// Whether the layout follows dirty pages.
    layout_follows: bool,
    /// Whether the layout wants the time.
    layout_is_timed: bool,
    /// The address at which a write would be sequential.
    next_lba: Option<Lba>,
    /// The present time, which requests carry.
    at_us: u64,
    /// The process of the present step, 0 where it is unknown.
    process: u32,
    /// The longest request, in pages.
    request_pages_max: u32,
    /// The write and the read that pages may still join. Without a sink, `counted` replaces them.
    joined: [Option<Io>; 2],
    counted: Counted,
    /// Whether places that become free are discarded.
    discards: bool,
    sink: S,
    counts: DeviceCounts,
    read_requests: u64,
    /// Set if the cache shows addresses to its policy.
    addresses: Option<Addresses>,
    clusters: Option<Clusters>,
    metadata: Option<FileSystem>,
    attribution: Option<Attribution>,
}

/// The file system's own writes.
struct FileSystem {
    machine: Box<dyn Metadata>,
    runs: Arc<Vec<Run>>,
}

impl FileSystem {
    /// Returns a page's file and its number in it.
    fn page(&self, page: u32) -> Option<(FileId, u64)> {
        let n = self.runs.partition_point(|run| run.first <= page);
        let run = self.runs[n.checked_sub(1)?];
        Some((run.file, run.page + u64::from(page - run.first)))
    }
}

/// The write that pages may still join, if only its existence counts.
#[derive(Default)]
struct Counted {
    first: Lba,
    /// 0: there is none.
    pages: u32,
    sync: bool,
    awaited: bool,
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
        let layout_follows = layout.as_ref().is_some_and(|layout| layout.wants_dirtied());
        let layout_is_timed = layout.as_ref().is_some_and(|layout| layout.wants_time());
        let follows = layout_follows || layout_is_timed;
        assert!(S::FOLLOWS_DIRTY || !follows, "the sink suits the layout");
        Self {
            layout,
            layout_follows,
            layout_is_timed,
            next_lba: None,
            at_us: 0,
            process: 0,
            request_pages_max: 1,
            joined: [None; 2],
            counted: Counted::default(),
            discards: false,
            sink,
            counts,
            read_requests: 0,
            addresses: None,
            clusters: None,
            metadata: None,
            attribution: None,
        }
    }

    /// Joins neighbouring pages to requests of up to this many; otherwise each page is a request.
    pub fn with_requests_up_to(mut self, pages: u32) -> Self {
        self.request_pages_max = pages.max(1);
        self
    }

    /// Writes with each dirty page that is evicted the dirty pages of the same aligned range of
    /// addresses.
    pub fn with_clusters(mut self, cluster: Option<Cluster>) -> Self {
        self.clusters = cluster.map(|cluster| Clusters::new(cluster, cluster.writes_ahead()));
        self
    }

    /// Discards places that become free.
    pub fn with_discards(mut self, discards: bool) -> Self {
        self.discards = discards;
        self
    }

    /// Counts the pages written by process and reason. The sink takes requests, and the trace has
    /// the table of owners.
    pub fn with_attribution(mut self) -> Self {
        assert!(S::FOLLOWS_DIRTY, "pages that become dirty are noted");
        self.attribution = Some(Attribution::default());
        self
    }

    /// Adds the file system's own writes. The sink takes requests, and the trace has the table of
    /// operations.
    pub(crate) fn with_metadata(mut self, trace: &Trace, machine: Box<dyn Metadata>) -> Self {
        self.metadata = Some(FileSystem { machine, runs: trace.shared_runs() });
        self
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

    /// Returns where the place of a page of a file lies on the device.
    #[inline(always)]
    fn on_device(&self, lba: Lba) -> Lba {
        self.metadata.as_ref().map_or(lba, |metadata| metadata.machine.address(lba))
    }

    /// Tells the file system which pages the layout has just placed.
    #[inline(always)]
    fn note_placed(&mut self) {
        let (Some(FileSystem { .. }), Some(layout)) = (&self.metadata, &self.layout) else {
            return;
        };
        let moved = layout.moved();
        if !moved.is_empty() {
            self.placed(moved);
        }
    }

    #[cold]
    fn placed(&mut self, pages: Range<u32>) {
        let (Some(metadata), Some(layout)) = (&mut self.metadata, &self.layout) else { return };
        for page in pages {
            if let (Some(lba), Some((file, number))) =
                (layout.place(Page(page)), metadata.page(page))
            {
                metadata.machine.placed(self.at_us, file, number, lba);
            }
        }
        self.take_metadata();
    }

    /// Sends what the file system wants to write.
    #[cold]
    fn take_metadata(&mut self) {
        let at_us = self.at_us;
        while let Some(request) =
            self.metadata.as_mut().and_then(|metadata| metadata.machine.poll())
        {
            // The pages written before come before the journal.
            self.submit();
            match request {
                metadata::BlockRequest::Write { mut lba, mut pages, journal, awaited } => {
                    let counts = &mut self.counts;
                    let count = match journal {
                        true => &mut counts.journal_writes,
                        false => &mut counts.metadata_writes,
                    };
                    *count += pages;
                    if let Some(attribution) = &mut self.attribution {
                        let cause = match journal {
                            true => WriteCause::Journal,
                            false => WriteCause::Metadata,
                        };
                        attribution.file_system(cause, pages);
                    }
                    while pages > 0 {
                        let here = pages.min(self.request_pages_max.into());
                        let (op, sync) = (IoOp::Write, awaited);
                        let pages_here = here as u32;
                        self.sink.io(Io {
                            at_us,
                            op,
                            lba,
                            pages: pages_here,
                            sync,
                            awaited: false,
                            cause: Cause::default(),
                        });
                        (lba, pages) = (lba + here, pages - here);
                    }
                }
                metadata::BlockRequest::Flush { awaited } => {
                    self.counts.device_flushes += 1;
                    let (op, sync) = (IoOp::Flush, true);
                    let cause = Cause::default();
                    self.sink.io(Io { at_us, op, lba: 0, pages: 0, sync, awaited, cause });
                }
            }
        }
    }

    /// Lets the file system do what was due before this time.
    #[cold]
    fn advance_metadata(&mut self, now_us: u64) {
        while let Some(metadata) = &mut self.metadata
            && let Some(due_us) = metadata.machine.next_deadline().filter(|due_us| *due_us < now_us)
        {
            metadata.machine.tick(due_us);
            self.at_us = due_us.max(self.at_us);
            self.take_metadata();
        }
    }

    #[inline(always)]
    fn fetch(&mut self, page: Page, awaited: bool) -> Source {
        self.counts.reads += 1;
        if self.sink.takes_requests() {
            let lba = self.layout().read(page);
            let lba = self.on_device(lba);
            let (at_us, op) = (self.at_us, IoOp::Read);
            let cause = Cause { process: self.process, page: Some(page) };
            self.join(Io { at_us, op, lba, pages: 1, sync: false, awaited, cause });
        }
        Source::Storage
    }

    /// Sends a page, alone or joined to others.
    #[inline(always)]
    fn join(&mut self, page: Io) {
        if self.request_pages_max == 1 {
            return self.send(page);
        }
        let slot = usize::from(page.op == IoOp::Read);
        if let Some(request) = &mut self.joined[slot] {
            // Alike requests of one batch have the same process, too.
            let alike = (request.sync, request.awaited) == (page.sync, page.awaited);
            if alike && request.pages < self.request_pages_max {
                if request.lba + u64::from(request.pages) == page.lba {
                    request.pages += 1;
                    return;
                }
                if page.lba + 1 == request.lba {
                    (request.lba, request.pages) = (page.lba, request.pages + 1);
                    request.cause = page.cause;
                    return;
                }
            }
        }
        if let Some(request) = self.joined[slot].replace(page) {
            self.send(request);
        }
    }

    /// Counts the request of a write, as [`Self::join`] does, where no sink takes it.
    #[inline(always)]
    fn count(&mut self, lba: Lba, sync: bool, awaited: bool) {
        let Counted { first, pages, .. } = self.counted;
        let is_neighbour = lba == first + u64::from(pages) || lba + 1 == first;
        let alike = (self.counted.sync, self.counted.awaited) == (sync, awaited);
        if is_neighbour && alike && pages != 0 && pages < self.request_pages_max {
            (self.counted.first, self.counted.pages) = (first.min(lba), pages + 1);
        } else {
            self.counts.write_requests += 1;
            self.counted = Counted { first: lba, pages: 1, sync, awaited };
        }
    }

    #[inline(always)]
    fn send(&mut self, request: Io) {
        self.counts.write_requests += u64::from(request.op == IoOp::Write);
        self.read_requests += u64::from(request.op == IoOp::Read);
        self.sink.io(request);
    }

    /// Discards the places that the layout has just freed. A write that waits for more pages and
    /// overlaps them is sent first: it would allocate them again behind the discard.
    #[inline(always)]
    fn discard_freed(&mut self) {
        let (true, true, Some(layout)) = (self.sink.takes_requests(), self.discards, &self.layout)
        else {
            return;
        };
        let [write, _] = self.joined;
        let overlaps = |write: Io| {
            let end = write.lba + u64::from(write.pages);
            let on_device = |lba| self.on_device(lba);
            let is_in = |places: &Range<Lba>| {
                on_device(places.start) < end && write.lba <= on_device(places.end - 1)
            };
            layout.freed().iter().any(is_in)
        };
        if write.is_some_and(overlaps) {
            self.submit();
        }
        let layout = self.layout.as_ref().expect("it was just asked");
        for places in layout.freed() {
            let (op, at_us) = (IoOp::Discard, self.at_us);
            let mut send = |lba: Lba, pages: u64| {
                let pages = pages as u32;
                let (sync, awaited, cause) = (false, false, Cause::default());
                self.sink.io(Io { at_us, op, lba, pages, sync, awaited, cause });
            };
            let Some(metadata) = &self.metadata else {
                send(places.start, places.end - places.start);
                continue;
            };
            // Metadata may lie between two places.
            let mut rest = places.clone();
            while let Some(first) = rest.next() {
                let lba = metadata.machine.address(first);
                let mut pages = 1;
                while !rest.is_empty() && metadata.machine.address(rest.start) == lba + pages {
                    rest.start += 1;
                    pages += 1;
                }
                send(lba, pages);
            }
        }
    }

    /// Notes the pages that moved. To be called after each question to the layout about `page`.
    #[inline(always)]
    fn note_moved(&mut self, page: Page) {
        if let (Some(addresses), Some(layout)) = (&mut self.addresses, &self.layout) {
            addresses.note_moved(page, &**layout);
        }
        if let (Some(clusters), Some(layout)) = (&mut self.clusters, &self.layout) {
            clusters.moved(layout.moved(), &**layout);
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
    const WANTS_TIME: bool = S::FOLLOWS_DIRTY;
    const WANTS_DIRTIED: bool = S::FOLLOWS_DIRTY;

    #[inline(always)]
    fn now(&mut self, at_us: u64) {
        if self.metadata.is_some() {
            self.advance_metadata(at_us);
        }
        self.at_us = at_us;
        if self.layout_is_timed {
            self.layout().now(at_us);
        }
    }

    #[inline(always)]
    fn running(&mut self, process: u32) {
        self.process = process;
    }

    #[inline]
    fn read(&mut self, page: Page, _: Owner) -> Source {
        self.fetch(page, true)
    }

    fn read_ahead(&mut self, page: Page, _: Owner) -> Source {
        self.fetch(page, false)
    }

    fn write(&mut self, Written { page, why, .. }: Written) {
        if let (Some(clusters), Some(layout)) = (&mut self.clusters, &self.layout) {
            clusters.cleaned(page, layout.place(page));
        }
        let lba = self.layout().write_for(page, why);
        self.note_placed();
        self.note_moved(page);
        self.discard_freed();
        if let Some(attribution) = &mut self.attribution {
            attribution.written(page, why, self.process);
        }
        self.counts.writes += 1;
        self.counts.drained += u64::from(why == Why::Drain);
        self.counts.sync_writes += u64::from(why.is_sync());
        self.counts.nonsequential_writes += u64::from(self.next_lba != Some(lba));
        self.next_lba = Some(lba + 1);
        let (sync, awaited) = (why.is_sync(), matches!(why, Why::Evict | Why::Direct));
        if !self.sink.takes_requests() {
            return self.count(lba, sync, awaited);
        }
        let lba = self.on_device(lba);
        let (at_us, op) = (self.at_us, IoOp::Write);
        let process = if sync || awaited { self.process } else { 0 };
        let cause = Cause { process, page: Some(page) };
        self.join(Io { at_us, op, lba, pages: 1, sync, awaited, cause });
    }

    #[inline(always)]
    fn submit(&mut self) {
        if !self.sink.takes_requests() {
            self.counted.pages = 0;
            return;
        }
        for slot in 0..self.joined.len() {
            if let Some(request) = self.joined[slot].take() {
                self.send(request);
            }
        }
    }

    fn flush(&mut self) {
        self.submit();
        self.counts.flushes += 1;
        // The file system decides whether it commits, which flushes too.
        if self.metadata.is_some() {
            return;
        }
        let (op, at_us) = (IoOp::Flush, self.at_us);
        let cause = Cause { process: self.process, page: None };
        self.sink.io(Io { at_us, op, lba: 0, pages: 0, sync: true, awaited: true, cause });
    }

    #[inline]
    fn dropped(&mut self, dirty: bool) {
        self.counts.dropped_dirty += u64::from(dirty);
    }

    fn free(&mut self, pages: Range<u32>) {
        if let Some(attribution) = &mut self.attribution {
            attribution.freed(pages.clone());
        }
        if let (Some(clusters), Some(layout)) = (&mut self.clusters, &self.layout) {
            pages.clone().map(Page).for_each(|page| clusters.cleaned(page, layout.place(page)));
        }
        if let (Some(metadata), Some(layout)) = (&mut self.metadata, &self.layout) {
            for page in pages.clone() {
                if let (Some(lba), Some((file, number))) =
                    (layout.place(Page(page)), metadata.page(page))
                {
                    metadata.machine.freed(self.at_us, file, number, lba);
                }
            }
            self.take_metadata();
        }
        if let Some(layout) = &mut self.layout {
            layout.free(pages);
            self.discard_freed();
        }
    }

    #[inline]
    fn dirtied(&mut self, page: Page) {
        if let Some(attribution) = &mut self.attribution {
            attribution.dirtied(page, self.process);
        }
        if self.layout_follows {
            self.layout().dirtied(page);
            self.note_placed();
            self.note_moved(page);
        }
        if let (Some(clusters), Some(layout)) = (&mut self.clusters, &self.layout) {
            clusters.dirtied(page, layout.place(page));
        }
    }

    #[inline(always)]
    fn clusters(&self) -> bool {
        self.clusters.is_some()
    }

    fn cluster(&mut self, page: Page, into: &mut Vec<Page>) {
        if let (Some(clusters), Some(layout)) = (&self.clusters, &self.layout) {
            clusters.collect(page, layout.place(page), into);
        }
    }

    fn next_cluster(&mut self, into: &mut Vec<Page>) {
        if let Some(clusters) = &self.clusters {
            clusters.next(into);
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

    fn operation(&mut self, operation: &Operation) {
        if let Some(metadata) = &mut self.metadata {
            metadata.machine.operation(self.at_us, &operation.kind);
            self.take_metadata();
        }
    }

    fn lacks_place(&self, mut pages: Range<u32>) -> bool {
        self.layout
            .as_ref()
            .is_some_and(|layout| pages.any(|page| layout.place(Page(page)).is_none()))
    }

    fn unmount(&mut self) {
        if let Some(metadata) = &mut self.metadata {
            metadata.machine.unmount(self.at_us);
            self.take_metadata();
        }
    }

    fn take_attribution(&mut self) -> Option<Attribution> {
        self.attribution.take()
    }

    fn read_requests(&self) -> u64 {
        self.read_requests
    }

    fn counts(&self) -> DeviceCounts {
        self.counts
    }

    fn check(&self, dirty_pages: u64, is_dirty: impl Fn(Page) -> bool) {
        if let Some(clusters) = &self.clusters {
            clusters.check(dirty_pages, is_dirty);
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
        fn read(&self, page: Page) -> Lba {
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
    // Promises: Counting 8.
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

    fn sent(pages_max: u32, groups: &[&[(IoOp, u32)]]) -> (Vec<(IoOp, Lba, u32)>, DeviceCounts) {
        let mut seen = Vec::new();
        let mut sink = |io: Io| seen.push((io.op, io.lba, io.pages));
        let layout = Box::new(Fixed((0..100).collect()));
        let mut storage = Storage::new(Some(layout), &mut sink as &mut dyn FnMut(Io))
            .with_requests_up_to(pages_max);
        for group in groups {
            for (op, page) in *group {
                let page = Page(*page);
                match op {
                    IoOp::Read => {
                        storage.read(page, Owner::UNKNOWN);
                    }
                    _ => {
                        let (why, owner) = (Why::Evict, Owner::UNKNOWN);
                        storage.write(Written { page, why, writes: 0, owner });
                    }
                }
            }
            storage.submit();
        }
        let counts = storage.counts();
        (seen, counts)
    }

    /// Neighbours of one group become one request, upwards or downwards, up to the maximum length.
    /// Reads and writes that alternate are joined separately; two groups are two requests.
    // Promises: Counting 10.
    #[test]
    fn neighbours_that_belong_together_are_one_request() {
        let (read, write) = (IoOp::Read, IoOp::Write);
        let groups: [&[_]; 4] = [
            &[(write, 5), (read, 50), (write, 6), (read, 51), (write, 4), (write, 9)],
            &[(write, 10)],
            &[(write, 11), (write, 12), (write, 13), (write, 14), (write, 15)],
            &[(read, 20), (read, 22)],
        ];
        let (requests, counts) = sent(4, &groups);
        let wanted = [
            (write, 4, 3),
            (write, 9, 1),
            (read, 50, 2),
            (write, 10, 1),
            (write, 11, 4),
            (write, 15, 1),
            (read, 20, 1),
            (read, 22, 1),
        ];
        assert_eq!(requests, wanted);
        assert_eq!((counts.reads, counts.writes, counts.write_requests), (4, 10, 5));
        let (requests, counts) = sent(1, &groups);
        let one_by_one = groups.concat().into_iter().map(|(op, page)| (op, page.into(), 1));
        assert_eq!(requests, one_by_one.collect::<Vec<_>>(), "each page, in the cache's order");
        assert_eq!((counts.reads, counts.writes, counts.write_requests), (4, 10, 10));
    }
}
