//! A back that merges neighbouring pages of one call into one request, up to a maximum length.

use super::*;
use flashsift_events::io::{Cause, IoOp};

struct Merging<'a> {
    /// Counts, and places the pages as this back's own layout does.
    storage: Storage<&'a mut dyn FnMut(Io)>,
    layout: Box<dyn layout::Layout>,
    pages_max: u32,
    pending: Option<Io>,
    at_us: u64,
    sent: &'a mut Vec<Io>,
}

impl Merging<'_> {
    fn add(&mut self, op: IoOp, lba: flashsift_events::address::Lba, sync: bool) {
        let awaited = sync || op == IoOp::Read;
        if let Some(io) = &mut self.pending {
            let joins = (io.op, io.sync, io.lba + u64::from(io.pages)) == (op, sync, lba);
            if joins && io.pages < self.pages_max {
                io.pages += 1;
                return;
            }
            self.submit();
        }
        self.pending = Some(Io {
            at_us: self.at_us,
            op,
            lba,
            pages: 1,
            sync,
            awaited,
            cause: Cause::default(),
        });
    }
}

impl Back for Merging<'_> {
    const WANTS_TIME: bool = true;
    const WANTS_DIRTIED: bool = true;

    fn now(&mut self, at_us: u64) {
        assert_eq!(self.pending, None, "requests are sent before time goes on");
        self.at_us = at_us;
    }

    fn read(&mut self, page: Page, owner: Owner) -> Source {
        let lba = self.layout.read(page);
        self.add(IoOp::Read, lba, false);
        self.storage.read(page, owner)
    }

    fn write(&mut self, written: Written) {
        let lba = self.layout.write(written.page);
        self.add(IoOp::Write, lba, written.why.is_sync());
        self.storage.write(written);
    }

    fn submit(&mut self) {
        self.sent.extend(self.pending.take());
    }

    fn flush(&mut self) {
        self.submit();
        self.storage.flush();
    }

    fn dirtied(&mut self, page: Page) {
        if self.layout.wants_dirtied() {
            self.layout.dirtied(page);
        }
        self.storage.dirtied(page);
    }

    fn dropped(&mut self, dirty: bool) {
        self.storage.dropped(dirty);
    }

    fn free(&mut self, pages: Range<u32>) {
        self.layout.free(pages.clone());
        self.storage.free(pages);
    }

    fn address(&mut self, page: Page) -> Address {
        self.storage.address(page)
    }

    fn counts(&self) -> DeviceCounts {
        self.storage.counts()
    }
}

fn run(frames: u32, pages_max: u32, modes: &str, trace: &Trace) -> (Outcome, Vec<Io>) {
    with_cell(frames, modes, true, |cell| {
        let mut sent = Vec::new();
        let mut nowhere = |_: Io| ();
        let [storage, layout] = [(); 2].map(|()| layout_of(cell, trace));
        let back = Merging {
            storage: Storage::new(storage, &mut nowhere as &mut dyn FnMut(Io)),
            layout: layout.expect("there is one"),
            pages_max,
            pending: None,
            at_us: 0,
            sent: &mut sent,
        };
        let machine = DirtyPages::new(cell.writeback, trace, frames);
        let outcome = system(Lru(Vec::new()), cell, trace, back, machine).replay(cell, trace, None);
        (outcome, sent)
    })
}

/// Neighbouring pages of one read, or of one write-back, become one request up to the maximum
/// length; pages of two reads become two.
#[test]
fn pages_given_together_become_one_request() {
    let actions = [read(0, 0, 5), read(0, 5, 2), write(0, 1, 3), write(0, 5, 1), fsync(0)];
    let (outcome, sent) = run(16, 4, "sync", &trace(&actions));
    let sent: Vec<_> =
        sent.iter().map(|io| (io.at_us / 1_000_000, io.op, io.lba, io.pages)).collect();
    let (read, write) = (IoOp::Read, IoOp::Write);
    let wanted =
        [(0, read, 0, 4), (0, read, 4, 1), (1, read, 5, 2), (4, write, 1, 3), (4, write, 5, 1)];
    assert_eq!(sent, wanted);
    assert_eq!((outcome.device.reads, outcome.device.writes), (7, 4), "pages count one by one");
}

/// With and without merging, the same pages are read and written in the same order. With a maximum
/// length of one page the requests equal those of plain storage. Storage that merges sends the same
/// pages at the same times, too.
// Promises: Counting 10.
#[test]
fn merging_changes_no_page() {
    let mut merged = 0;
    for seed in 0..100 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let trace = trace(&history(&mut rng, 100));
        let frames = rng.random_range(1..16);
        let modes = ["evict", "sync", "hf", "linux"][rng.random_range(0..4)];
        let mut plain = Vec::new();
        let outcome = with_cell(frames, modes, true, |cell| {
            cell.run(&trace, None, Some(&mut |io| plain.push(Io { cause: Cause::default(), ..io })))
        });
        plain.retain(|io| io.op != IoOp::Flush);
        for pages_max in [1, 2, 128] {
            let (with, sent) = run(frames, pages_max, modes, &trace);
            let case = format!("seed {seed}, {frames} frames, {modes}, at most {pages_max} pages");
            assert_eq!(with, outcome, "{case}");
            let pages: Vec<_> = sent
                .iter()
                .flat_map(|io| {
                    (0..u64::from(io.pages)).map(|n| (io.at_us, io.op, io.lba + n, io.sync))
                })
                .collect();
            let wanted: Vec<_> =
                plain.iter().map(|io| (io.at_us, io.op, io.lba, io.sync)).collect();
            assert_eq!(pages, wanted, "{case}");
            merged += plain.len() - sent.len();
            let mut joined = Vec::new();
            let outcome_joined = with_cell(frames, modes, true, |cell| {
                let cell = Cell { request_pages_max: pages_max, ..*cell };
                cell.run(
                    &trace,
                    None,
                    Some(&mut |io| joined.push(Io { cause: Cause::default(), ..io })),
                )
            });
            joined.retain(|io| io.op != IoOp::Flush);
            // Without a sink, and under a layout that needs none, requests are only counted.
            let [watched, counted] = [true, false].map(|watched| {
                with_cell(frames, modes, true, |cell| {
                    let layout = layout::Selection::parse("identity").unwrap();
                    let cell = Cell { request_pages_max: pages_max, layout: &layout, ..*cell };
                    let mut nowhere = |_: Io| ();
                    cell.run(&trace, None, if watched { Some(&mut nowhere) } else { None })
                })
            });
            assert_eq!(watched, counted, "{case}");
            let write_requests = joined.iter().filter(|io| io.op == IoOp::Write).count() as u64;
            assert_eq!(outcome_joined.device.write_requests, write_requests, "{case}");
            let device =
                DeviceCounts { write_requests: outcome.device.writes, ..outcome_joined.device };
            assert_eq!(Outcome { device, ..outcome_joined }, outcome, "{case}");
            assert!(joined.iter().all(|io| io.pages <= pages_max), "{case}");
            let in_order = |mut pages: Vec<(u64, bool, flashsift_events::address::Lba, bool)>| {
                pages.sort_unstable();
                pages
            };
            let single = |io: &Io, n| (io.at_us, io.op == IoOp::Read, io.lba + n, io.sync);
            let pages = joined
                .iter()
                .flat_map(|io| (0..u64::from(io.pages)).map(|n| single(io, n)))
                .collect();
            let wanted = plain.iter().map(|io| single(io, 0)).collect();
            assert_eq!(in_order(pages), in_order(wanted), "{case}");
        }
    }
    assert!(merged > 1000, "{merged} requests were saved");
}
