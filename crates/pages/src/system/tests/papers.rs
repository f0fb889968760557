//! Hand-made histories, each with the outcome that follows from the text of a paper.
//!
//! A history is a line of words: `rA3` reads page 3 of file A, `rA0-6` seven pages in a request
//! each, and `RA0-6` the same pages in one request; `w` writes whole pages and `p` the first 100
//! bytes of each; `sA` syncs file A, `xA` deletes it, `+5` waits for five seconds, and `zA40` says
//! that file A had 40 pages before.

use super::*;
use crate::{
    readahead::{self, ReadAheadModel},
    system::Selection,
};
use flashsift_events::{event::OpenId, io::IoOp};
use std::num::NonZeroU32;

/// A history under a system, with figures that follow from the paper.
struct Trial {
    /// The sentence of the paper, and the calculation.
    because: &'static str,
    history: String,
    /// System, or `ahead=` and a read-ahead over plain storage.
    system: &'static str,
    frames: u32,
    figures: &'static str,
}

fn trial(
    because: &'static str,
    history: impl Into<String>,
    system: &'static str,
    frames: u32,
    figures: &'static str,
) -> Trial {
    Trial { because, history: history.into(), system, frames, figures }
}

/// The events of a history, with their times.
fn events(history: &str) -> Vec<(u64, Action<'static>)> {
    let mut at_us = 0;
    let mut events = Vec::new();
    for word in history.split_whitespace() {
        at_us += 1000;
        let (kind, rest) = word.split_at(1);
        if kind == "+" {
            at_us += rest.parse::<u64>().unwrap() * 1_000_000;
            continue;
        }
        let (name, pages) = rest.split_at(1);
        let id = u64::from(name.as_bytes()[0] - b'A');
        let (file, open) = (FileId(id), NonZeroU32::new(id as u32 + 1).map(OpenId));
        let (first, last) = pages.split_once('-').unwrap_or((pages, pages));
        let pages = || first.parse::<u64>().unwrap()..last.parse::<u64>().unwrap() + 1;
        let actions: Vec<Action<'static>> = match kind {
            "R" => {
                let (offset, len) =
                    (pages().start * PAGE_BYTES, pages().count() as u64 * PAGE_BYTES);
                vec![Action::Read { open, file, offset, len }]
            }
            "r" => pages()
                .map(|page| Action::Read { open, file, offset: page * PAGE_BYTES, len: PAGE_BYTES })
                .collect(),
            "w" | "p" => {
                let len = if kind == "w" { PAGE_BYTES } else { 100 };
                let write = |page| (page * PAGE_BYTES, len, false);
                let write = pages().map(write);
                write
                    .map(|(offset, len, sync)| Action::Write { open, file, offset, len, sync })
                    .collect()
            }
            "s" => vec![fsync(id)],
            "x" => vec![Action::Gone { file }],
            "z" => vec![Action::Size { file, size: pages().start * PAGE_BYTES }],
            _ => panic!("no word {word}"),
        };
        events.extend(actions.into_iter().map(|action| (at_us, action)));
    }
    events
}

fn check(trials: &[Trial], policy: &str, modes: &str, drain: bool) {
    for Trial { because, history, system, frames, figures } in trials {
        let readahead = system.strip_prefix("ahead=");
        let selection = Selection::parse(if readahead.is_some() { "storage" } else { system });
        let selection = selection.unwrap();
        let model = readahead.map(|text| ReadAheadModel::new(&readahead::parse(text).unwrap()));
        let knows = Knows {
            times: true,
            syncs: true,
            writes: true,
            removals: true,
            opens: true,
            sizes: true,
            ..Knows::NOTHING
        };
        let about =
            About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
        let tables = Tables {
            bytes: true,
            owners: true,
            reads_ahead_pages: model.map_or(0, |model| model.reach_pages()),
            ..Tables::default()
        };
        let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX).with_tables(tables);
        for (at_us, action) in events(history) {
            builder.extend(&[Event { at_us, pid: 1, tid: 1, action }]).unwrap();
        }
        let trace = builder.finish().unwrap();
        let policy = policy::Selection::parse(policy).unwrap();
        let mut order = Vec::new();
        let outcome = with_cell(*frames, modes, drain, |cell| {
            let readahead = model.map(Into::into);
            let cell = Cell { system: &selection, policy: &policy, readahead, ..*cell };
            let mut sink = |io: Io| {
                if io.op == IoOp::Write {
                    let Page(rank) = io.cause.page.unwrap();
                    let run = trace.runs().iter().rfind(|run| run.first <= rank).unwrap();
                    order.push((run.page + u64::from(rank - run.first)).to_string());
                }
            };
            cell.run(&trace, None, Some(&mut sink))
        });
        let (ahead, traffic) = (outcome.readahead, outcome.traffic);
        for figure in figures.split_whitespace() {
            let (name, wanted) = figure.split_once('=').unwrap();
            let found = match name {
                "hits" => outcome.hits().to_string(),
                "reads" => outcome.device.reads.to_string(),
                "writes" => outcome.device.writes.to_string(),
                "order" => order.join(","),
                "nvm_reads" => traffic.nvm_reads.to_string(),
                "nvm_writes" => traffic.nvm_writes.to_string(),
                "nvm_lines" => traffic.nvm_written_lines.to_string(),
                "left" => (traffic.nvm_left + outcome.dirty_left).to_string(),
                "windows" => ahead.windows.to_string(),
                "prefetched" => ahead.window_pages.to_string(),
                "at_max" => ahead.windows_at_max.to_string(),
                "read_ahead" => ahead.read.to_string(),
                "used" => ahead.used.to_string(),
                "efficiency" => format!("{:.1}", 100.0 * ahead.efficiency_of_paper().unwrap()),
                _ => panic!("no figure {name}"),
            };
            assert_eq!(found, wanted, "{name} of `{history}` under {system}: {because}");
        }
    }
}

/// SpatialClock (Kim et al., SIGMETRICS '12), sections 4.1 and 4.2, with a drain at the end as in
/// Table 1. `order` lists the pages in the order in which storage gets them.
#[test]
fn spatialclock_by_hand() {
    let trials = [
        trial(
            "frames lie by sector, and the hand goes to the next: 1, 3, then 5, 7, 9 and around",
            "wA7 wA3 wA5 wA1 wA9 wA2",
            "storage",
            4,
            "writes=6 order=1,3,5,7,9,2",
        ),
        trial(
            "the hand clears the bit of 2, which was used, and takes 3; 2 waits for the next lap",
            "wA1 wA2 wA3 rA2 wA4 wA5 wA6 rA0 rA0",
            "storage",
            3,
            "writes=6 order=1,3,4,5,6,2",
        ),
        trial(
            "ten pages that came in no order leave in one lap, in the order of sectors",
            "wA8 wA2 wA6 wA0 wA4 wA9 wA1 wA7 wA3 wA5",
            "storage",
            10,
            "hits=0 writes=10 order=0,1,2,3,4,5,6,7,8,9",
        ),
        trial(
            "clean pages leave unwritten: of six pages, one was written",
            "rA0-4 wA5 rA0-4",
            "storage",
            3,
            "writes=1 order=5",
        ),
        trial(
            "a hit ratio like Clock's: pages 0 and 1 are used in each lap and stay, 16 others pass",
            (2..18).map(|page| format!("rA0 rA1 rA{page} ")).collect::<String>(),
            "storage",
            4,
            "reads=18 hits=30 writes=0",
        ),
        trial(
            "two streams far apart: each lap of the hand writes one after the other, not in turn",
            (0..8).map(|page| format!("wA{page} wA{} ", 100 + page)).collect::<String>(),
            "storage",
            16,
            "order=0,1,2,3,4,5,6,7,100,101,102,103,104,105,106,107",
        ),
    ];
    check(&trials, "spatialclock", "evict", true);
    let lru = [trial(
        "LRU, the baseline, writes the same pages in the order of their use",
        "wA8 wA2 wA6 wA0 wA4 wA9 wA1 wA7 wA3 wA5",
        "storage",
        10,
        "writes=10 order=8,2,6,0,4,9,1,7,3,5",
    )];
    check(&lru, "lru", "evict", true);
}

/// Hybrid flush (Lim & Bahn, IEEE Access 2021), section III, and the two baselines of section IV.
/// Every 5 s and at each sync all dirty pages are flushed.
#[test]
fn hybrid_flush_by_hand() {
    let hf = "hybrid-flush:pages=2,flush=no";
    // Page 0 with count 2 and page 1 with count 3 fill the buffer.
    let full = "wA0 wA0 wA1 wA1 wA1 sA ";
    let trials = [
        trial(
            "\"blocks with their write count of 1 are flushed to storage\"",
            "wA0 wA1 wA2 rA0 rA1 rA2 wB0 sA rA0 rA1",
            hf,
            16,
            "writes=4 nvm_writes=0 left=0",
        ),
        trial(
            "\"if it is more than 1, we flush the block to the write buffer\"",
            "wA0 wA1 wA0 wA1 rA0 rA1 sA rA0 rA1 rA2",
            hf,
            16,
            "writes=0 nvm_writes=2 left=2",
        ),
        trial(
            "a flush resets dirty bits and no counts: one goes to storage, nine to the buffer",
            "wA0 sA ".repeat(10),
            hf,
            16,
            "writes=1 nvm_writes=9 left=1",
        ),
        trial(
            "\"flushes dirty blocks every 5 seconds\", without a sync",
            "wA0 wA0 wA1 rA2 rA3 rA4 +6 rA2 rA3 rA4",
            hf,
            16,
            "writes=1 nvm_writes=1",
        ),
        trial(
            "a dirty victim of the cache goes where its count says, and is read from there again",
            "wA0 wA0 rA1 rA2 rA0 wA3 rA1 rA2 rA0 rA1",
            hf,
            2,
            "writes=1 nvm_writes=1 nvm_reads=2",
        ),
        trial(
            "\"we select the block with the least write count as the victim\": of 8, 5 and 3, 3",
            format!(
                "{}{}{}sA wA3 wA3 wA4 wA4 sA",
                "wA0 ".repeat(8),
                "wA1 ".repeat(5),
                "wA2 ".repeat(3)
            ),
            "hybrid-flush:pages=4,flush=no",
            16,
            "writes=1 order=2 nvm_writes=5",
        ),
        trial(
            "the two blocks accessed last stay: 0, with the least count, was used last but one",
            format!("{full}rA0 wA2 wA2 sA rA0 rA1 rA2"),
            hf,
            16,
            "writes=1 order=1 nvm_writes=3",
        ),
        trial(
            "\"most recently accessed … in the buffer cache\": a deleted one is not spared",
            format!("{full}rA0 wA2 wA2 rB0 xB sA rA0 rA1"),
            hf,
            16,
            "writes=1 order=1 nvm_writes=3",
        ),
        trial(
            "Flush-storage writes all dirty blocks at each flush: two in each of five",
            "wA0 wA0 wA1 sA ".repeat(5),
            "storage",
            16,
            "writes=10 nvm_writes=0",
        ),
        trial(
            "Flush-NVM flushes all to the buffer; by LRU the block flushed longest ago leaves",
            "wA0 sA wA1 sA wA0 sA rA0 rA1 wA2 sA",
            "flush-nvm:pages=2,flush=no",
            16,
            "writes=1 order=1 nvm_writes=4 left=2",
        ),
        trial(
            "by FIFO the block leaves that came first",
            "wA0 sA wA1 sA wA0 sA rA0 rA1 wA2 sA",
            "flush-nvm:pages=2,flush=no,order=fifo",
            16,
            "writes=1 order=0 nvm_writes=4 left=2",
        ),
    ];
    check(&trials, "lru", "hf", false);
}

/// FSLRU (Kang & Eom, IEEE TCE 2016), sections III and IV.
#[test]
fn fslru_by_hand() {
    let trials = [
        trial(
            "LRU's fsyncs write: five pages, four times",
            "wA0-4 sA ".repeat(4),
            "storage",
            20,
            "writes=20",
        ),
        trial(
            "\"copies the dirty pages to NQueue instead of flushing them to the storage\"",
            "wA0-4 sA ".repeat(4),
            "fslru",
            20,
            "writes=0 left=5",
        ),
        trial(
            "a victim of DQueue, clean or not, enters NQueue and is found there",
            "rA0-6 rA0-6",
            "fslru",
            20,
            "reads=7 hits=7 writes=0",
        ),
        trial(
            "NQueue evicts to storage: one of nine frames is for updates, eight hold ten pages",
            (0..10).map(|page| format!("wA{page} sA ")).collect::<String>(),
            "fslru",
            10,
            "reads=0 writes=2 left=8",
        ),
        trial(
            "above half a page, an update is page-atomic: two pages of 64 lines, three headers",
            "wA0 sA wA0 sA rA0 rA0 rA0 rA0 rA0 rA0",
            "fslru",
            20,
            "nvm_lines=131 writes=0",
        ),
        trial(
            "100 bytes are two lines: undo copy, mark, update, mark cleared: 6 after the page's 65",
            "wA0 sA pA0 sA rA0 rA0 rA0 rA0 rA0 rA0",
            "fslru",
            20,
            "nvm_lines=71 writes=0",
        ),
        trial(
            "NVLRU by copy-on-write: the old version is free after the fsync, nothing is evicted",
            "wA0 sA ".repeat(20),
            "nvlru",
            4,
            "writes=0 left=1",
        ),
        trial(
            "old versions age: 20 pass through four frames, and three pages leave and come again",
            format!("rA1 rA2 rA3 {}rA1 rA2 rA3", "wA0 sA ".repeat(20)),
            "nvlru:old=ages",
            4,
            "writes=0 reads=6 left=1",
        ),
        trial(
            "old versions are evicted as write requests: of 20 versions, four are in the frames",
            "wA0 sA ".repeat(20),
            "nvlru:old=written",
            4,
            "writes=16 left=1",
        ),
        trial(
            "the same under FSLRU, which updates the durable page: no request to storage",
            "wA0 sA ".repeat(20),
            "fslru",
            4,
            "writes=0 reads=0 left=1",
        ),
    ];
    check(&trials, "lru", "sync", false);
}

/// The read-ahead of "Boosting Read-ahead Efficiency" (Liang et al.), sections 2.2, 2.4 and 4.1.
#[test]
fn the_papers_readahead_by_hand() {
    let trials = [
        trial(
            "\"to sequentially read 7 pages, 156 (4+8+16+32+32+32+32) pages\" and 4.5 %",
            "zA5000 rA0-6",
            "ahead=paper",
            1000,
            "prefetched=156 at_max=4 efficiency=4.5",
        ),
        trial(
            "the same in one request of 28 KiB: a request of an application is one for each page",
            "zA5000 RA0-6",
            "ahead=paper",
            1000,
            "prefetched=156 at_max=4 efficiency=4.5",
        ),
        trial(
            "\"492 (4+8+16+16...+16) pages will be pre-fetched by 32 read-ahead operations\"",
            "zA5000 rA0-31",
            "ahead=paper:16",
            1000,
            "prefetched=492 windows=32 efficiency=6.5",
        ),
        trial(
            "\"252 (4+8+8+8...+8)\"",
            "zA5000 rA0-31",
            "ahead=paper:8",
            1000,
            "prefetched=252 windows=32",
        ),
        trial(
            "sizes count as asked for: nine pages lie behind page 0 of ten, 156 are asked for",
            "zA10 rA0-6",
            "ahead=paper",
            1000,
            "prefetched=156 read_ahead=9 used=6 efficiency=4.5",
        ),
        trial(
            "a descriptor that begins at page 5 is not sequential; its second request is, with 4",
            "zA5000 rA5-14",
            "ahead=paper",
            1000,
            "windows=9 prefetched=220",
        ),
        trial(
            "pages that were cached, but not by read-ahead, are misses: ten times the minimum",
            "zA5000 wA0-20 rA0-9",
            "ahead=paper",
            1000,
            "prefetched=40 read_ahead=0 at_max=0",
        ),
        trial(
            "the other reading: any cached page is a hit: 4+8+16+32·7",
            "zA5000 wA0-20 rA0-9",
            "ahead=paper:hit=resident",
            1000,
            "prefetched=252 at_max=7",
        ),
        trial(
            "of pages 1 to 4, one is overwritten as a whole, one in part, one read, one not used",
            "zA5000 rA0 wA1 pA2 rA4",
            "ahead=paper",
            1000,
            "read_ahead=4 used=2",
        ),
        trial(
            "a window pushes out the page that is read next: misses keep the size at 4",
            "zA5000 rA0-31",
            "ahead=paper",
            1,
            "prefetched=128 used=0 at_max=0",
        ),
    ];
    check(&trials, "lru", "evict", false);
}
