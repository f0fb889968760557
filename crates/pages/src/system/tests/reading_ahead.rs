//! Read-ahead in a system against a model that keeps pages by file and number in plain lists.

use super::*;
use crate::{
    device::{Clocks, DeviceTimes, Model, Prepared, Profile, latency::LatencyParams},
    readahead::{
        Counts, Descriptor, FilePages, Mapping, NamedReadAhead, ReadAheadCharges, ReadAheadModel,
        ReadAheadSums, ReadCase, ReadLog, ReadRequest, Sequence, Window, parse,
    },
};
use flashsift_events::{
    event::{MaybeOwned, OpenId},
    io::IoOp,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
};

/// A page of the model: file and number.
type FilePage = (u64, u64);

#[derive(Default)]
struct Naive {
    frames: usize,
    /// Least recently used first.
    order: Vec<FilePage>,
    /// Order of the folio of each cached page, and whether it carries a marker.
    folios: BTreeMap<FilePage, (u32, bool)>,
    dirty: BTreeSet<FilePage>,
    /// Prefetched and not accessed: the process whose read prefetched it.
    fresh: BTreeMap<FilePage, u32>,
    /// Pages that came because they were prefetched.
    prefetched: BTreeSet<FilePage>,
    sizes: BTreeMap<u64, u64>,
    descriptors: BTreeMap<u64, Descriptor>,
    sequences: BTreeMap<u64, Sequence>,
    counts: Counts,
    /// By file and process.
    charges: BTreeMap<(u64, u32), Counts>,
    /// The process of the present event.
    process: u32,
    hits: u64,
    reads: u64,
    writes: u64,
    /// Of each read, in order.
    cases: Vec<ReadCase>,
}

/// A decision for one file.
struct Decision<'a> {
    naive: &'a Naive,
    file: u64,
    asked: Range<u64>,
    file_pages: u64,
    pages_max: u64,
    added: Vec<u64>,
    /// Those among them that the request had not reached.
    ahead: BTreeSet<u64>,
    cuts: bool,
    folios: BTreeMap<u64, (u32, bool)>,
    counts: Counts,
}

impl FilePages for Decision<'_> {
    fn has(&self, page: u64) -> bool {
        self.naive.order.contains(&(self.file, page)) || self.added.contains(&page)
    }
    fn order(&self, page: u64) -> u32 {
        self.folios.get(&page).map_or(0, |(order, _)| *order)
    }
    fn is_marked(&self, page: u64) -> bool {
        self.has(page) && self.folios.get(&page).is_some_and(|(_, marked)| *marked)
    }
    fn unmark(&mut self, page: u64) {
        let order = self.order(page);
        let folio = page >> order << order;
        self.folios.range_mut(folio..folio + (1 << order)).for_each(|(_, page)| page.1 = false);
    }
    fn add(&mut self, first: u64, order: u32, marked: bool) {
        for page in first..first + (1 << order) {
            self.added.push(page);
            self.folios.insert(page, (order, marked));
        }
    }
    fn window(&mut self, window: Window) {
        let pages = window.start..window.start + window.pages;
        let inside = pages.filter(|page| !self.cuts || *page < self.file_pages);
        self.counts.windows += 1;
        self.counts.windows_at_max += u64::from(window.pages >= self.pages_max);
        for page in inside {
            self.counts.window_pages += 1;
            self.counts.asked += u64::from(!self.asked.contains(&page));
        }
    }
    fn is_prefetched(&self, page: u64) -> bool {
        let resident = self.naive.order.contains(&(self.file, page));
        self.ahead.contains(&page) || resident && self.naive.prefetched.contains(&(self.file, page))
    }
    fn add_ahead(&mut self, page: u64) {
        self.add(page, 0, false);
        self.ahead.insert(page);
    }
    fn sequence_hit(&mut self) {
        self.counts.sequence_hits += 1;
    }
}

impl Naive {
    fn enter(&mut self, place: FilePage) {
        if self.order.len() == self.frames {
            let victim = self.order.remove(0);
            self.writes += u64::from(self.dirty.remove(&victim));
            self.fresh.remove(&victim);
            self.folios.remove(&victim);
            self.counts.evicted += 1;
        }
        self.order.push(place);
    }

    /// `covers`: a write of the whole page.
    fn access(&mut self, place: FilePage, read: bool, covers: bool) {
        let was_there = self.order.contains(&place);
        let (evicted, written) = (self.counts.evicted, self.writes);
        if was_there {
            self.hits += 1;
            self.order.retain(|other| *other != place);
            self.order.push(place);
            if let Some(process) = self.fresh.remove(&place).filter(|_| !covers) {
                self.counts.used += 1;
                self.charge(place.0, process).used += 1;
            }
        } else {
            self.enter(place);
            self.prefetched.remove(&place);
            self.reads += u64::from(read);
        }
        if !read {
            self.dirty.insert(place);
            return;
        }
        let evicted = self.counts.evicted - evicted;
        let case: fn(&mut Counts) -> &mut u64 = match (was_there, evicted, self.writes - written) {
            (true, ..) => |counts| &mut counts.reads_cached,
            (_, 0, _) => |counts| &mut counts.reads_free,
            (.., 0) => |counts| &mut counts.reads_evict_clean,
            _ => |counts| &mut counts.reads_evict_dirty,
        };
        *case(&mut self.counts) += 1;
        let charge = self.charge(place.0, self.process);
        *case(charge) += 1;
        charge.evicted += evicted;
    }

    fn charge(&mut self, file: u64, process: u32) -> &mut Counts {
        self.charges.entry((file, process)).or_default()
    }

    fn remove(&mut self, gone: impl Fn(&FilePage) -> bool) {
        self.order.retain(|place| !gone(place));
        self.dirty.retain(|place| !gone(place));
        self.fresh.retain(|place, _| !gone(place));
        self.folios.retain(|place, _| !gone(place));
    }

    fn read(&mut self, model: ReadAheadModel, file: u64, open: Option<u64>, pages: Range<u64>) {
        let file_pages = self.sizes[&file].max(pages.end);
        let request =
            ReadRequest { first: pages.start, end: pages.end, file_pages, prev_page: pages.end };
        // Reads without an open have a state of their own for each file.
        let reader = open.unwrap_or(1000 + file);
        let mut descriptor = self.descriptors.get(&reader).copied().unwrap_or_default();
        let mut sequence = self.sequences.get(&reader).copied().unwrap_or_default();
        let mut decision = Decision {
            naive: self,
            file,
            asked: pages.clone(),
            file_pages,
            pages_max: model.pages_max(),
            added: Vec::new(),
            ahead: BTreeSet::new(),
            cuts: !matches!(model, ReadAheadModel::Paper(_)),
            folios: self
                .folios
                .iter()
                .filter(|((of, _), _)| *of == file)
                .map(|((_, page), folio)| (*page, *folio))
                .collect(),
            counts: self.counts,
        };
        match model {
            ReadAheadModel::Off => {}
            ReadAheadModel::Linux(linux) if open.is_none() => {
                for page in pages.clone() {
                    let first = page == pages.start;
                    if first || !decision.has(page) {
                        let request = ReadRequest { first: page, ..request };
                        if linux.fault(&mut descriptor, &Mapping::PLAIN, request, &mut decision) {
                            linux.mapped_around(&mut descriptor, 16);
                        }
                    }
                }
                linux.mapped_around(&mut descriptor, (pages.end - pages.start - 1) as u32);
            }
            ReadAheadModel::Linux(linux) => linux.read(&mut descriptor, request, &mut decision),
            ReadAheadModel::Paper(paper) => {
                paper.read(&mut sequence, request, &mut decision);
            }
        }
        let Decision { added, ahead: planned, folios, counts, .. } = decision;
        let process = self.process;
        let decided = counts - self.counts;
        *self.charge(file, process) += decided;
        self.counts = counts;
        let is_there = |page| self.order.contains(&(file, page));
        let all_there = pages.clone().all(is_there);
        let (evicted, written) = (self.counts.evicted, self.writes);
        self.descriptors.insert(reader, descriptor);
        self.sequences.insert(reader, sequence);
        let marks = folios.into_iter().map(|(page, folio)| ((file, page), folio));
        self.folios.extend(marks);
        for page in pages.clone() {
            self.access((file, page), true, false);
        }
        self.prefetched.extend(planned.into_iter().map(|page| (file, page)));
        // Runs of pages before the request are read backwards.
        let is_next = |one: &u64, next: &u64| one + 1 == *next;
        let mut ahead = Vec::new();
        for run in added.chunk_by(is_next) {
            ahead.extend(run.iter().rev().filter(|page| **page < pages.start));
            ahead.extend(run.iter().filter(|page| **page >= pages.end));
        }
        for page in ahead {
            let evicted = self.counts.evicted;
            self.enter((file, page));
            self.fresh.insert((file, page), process);
            self.counts.read += 1;
            let evicted = self.counts.evicted - evicted;
            self.charge(file, process).evicted += evicted;
            self.charge(file, process).read += 1;
            self.reads += 1;
        }
        let case = match (all_there, self.counts.evicted - evicted, self.writes - written) {
            (true, _, 0) => ReadCase::Cached,
            (false, 0, _) => ReadCase::Free,
            (false, _, 0) => ReadCase::EvictClean,
            _ => ReadCase::EvictDirty,
        };
        self.cases.push(case);
    }
}

/// A seeded history of sequential and random readers, faults, writes and truncations.
fn readers(rng: &mut Pcg64, steps: usize) -> Vec<Action<'static>> {
    const FILES: u64 = 3;
    let mut at = [0_u64; 6];
    let mut actions: Vec<_> = (0..FILES)
        .map(|file| Action::Size { file: FileId(file), size: (100 + 150 * file) * PAGE_BYTES })
        .collect();
    for _ in 0..steps {
        let reader = rng.random_range(0..6_u64);
        let (file, pages) = (reader % FILES, rng.random_range(1..6));
        let page = match rng.random_range(0..10) {
            0..7 => at[reader as usize],
            _ => rng.random_range(0..90 + 150 * file),
        };
        actions.push(match rng.random_range(0..20) {
            0 => write(file, page.min(200), pages),
            1 => Action::Truncate { file: FileId(file), size: (page + 40) * PAGE_BYTES },
            2 => read(file, page.min(60), 1),
            3 => {
                let (offset, len) = (page.min(200) * PAGE_BYTES + 100, pages * 3000);
                Action::Write { open: None, file: FileId(file), offset, len, sync: false }
            }
            _ => {
                at[reader as usize] = (page + pages) % (95 + 150 * file);
                let open = NonZeroU32::new(reader as u32 + 1).map(OpenId);
                let (offset, len) = (page * PAGE_BYTES, pages * PAGE_BYTES);
                Action::Read { open, file: FileId(file), offset, len }
            }
        });
    }
    actions
}

/// The process of event `n`: pages that one process prefetches are used by others, too.
fn process_of(n: usize) -> u32 {
    n as u32 % 3 + 1
}

/// Event `n` happens after `n` intervals.
fn trace_of_readers(actions: &[Action], model: ReadAheadModel, interval_us: u64) -> Trace {
    let knows = Knows { times: true, removals: true, opens: true, sizes: true, ..Knows::NOTHING };
    let about =
        About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
    let tables = Tables {
        reads_ahead_pages: model.reach_pages(),
        owners: true,
        names: true,
        ..Tables::default()
    };
    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX).with_tables(tables);
    for (n, action) in actions.iter().enumerate() {
        let (at_us, pid) = (n as u64 * interval_us, process_of(n));
        builder.extend(&[Event { at_us, pid, tid: pid, action: action.clone() }]).unwrap();
    }
    builder.finish().unwrap()
}

/// All counts of prefetches, hits and device pages are those of the model, for each read-ahead,
/// under LRU, from one frame on to more frames than pages. So are those of each file and process,
/// and charging them changes no result.
// Promises: Read-ahead 3, Read-ahead 5, Read-ahead 9, Read-ahead 11.
#[test]
fn agrees_with_plain_lists() {
    for (seed, frames) in (0..48).flat_map(|seed| [1, 7, 60, 250, 900].map(|n| (seed, n))) {
        let text = [
            "linux:128",
            "linux:32,kernel=6.1,io-kib=64",
            "linux:64,kernel=6.12",
            "paper:16",
            "off",
            "paper:8,hit=resident",
        ][seed as usize % 6];
        let model = ReadAheadModel::new(&parse(text).unwrap());
        let mut rng = Pcg64::seed_from_u64(seed);
        let actions = readers(&mut rng, 250);
        let trace = trace_of_readers(&actions, model, INTERVAL_US);
        let mut naive = Naive { frames: frames as usize, ..Naive::default() };
        for (n, action) in actions.iter().enumerate() {
            naive.process = process_of(n);
            let page_of = |offset: u64| offset / PAGE_BYTES;
            match *action {
                Action::Size { file, size } => {
                    naive.sizes.insert(file.0, page_of(size));
                }
                Action::Read { file, open, offset, len } => {
                    let pages = page_of(offset)..page_of(offset + len);
                    naive.read(model, file.0, open.map(|open| open.0.get().into()), pages);
                }
                Action::Write { file, offset, len, .. } => {
                    let size = naive.sizes.get_mut(&file.0).unwrap();
                    *size = (*size).max((offset + len).div_ceil(PAGE_BYTES));
                    for page in page_of(offset)..(offset + len).div_ceil(PAGE_BYTES) {
                        let start = page * PAGE_BYTES;
                        let covers = offset <= start && start + PAGE_BYTES <= offset + len;
                        naive.access((file.0, page), false, covers);
                    }
                }
                Action::Truncate { file, size } => {
                    naive.sizes.insert(file.0, page_of(size));
                    naive.remove(|place| place.0 == file.0 && place.1 >= page_of(size));
                }
                _ => unreachable!(),
            }
        }
        let (outcome, times, reads, requests) = on_a_device(&trace, model, frames, 1);
        let context = format!("{text}, seed {seed}, {frames} frames");
        assert_eq!(outcome.readahead, naive.counts, "{context}");
        assert_eq!(outcome.hits(), naive.hits, "{context}");
        assert_eq!(outcome.device.reads, naive.reads, "{context}");
        assert_eq!(outcome.device.writes, naive.writes, "{context}");
        let of_case = |case: &ReadCase| naive.cases.iter().filter(|other| *other == case).count();
        assert_eq!(reads, ReadCase::ALL.map(|case| of_case(&case) as u64), "{context}");
        let waits = Waits::new(&trace, &naive.cases, &requests);
        assert_eq!(times.elapsed_by_case_ns, waits.elapsed_by_case_ns, "{context}");
        assert_eq!(times.stall_by_case_ns, Some(waits.stall_by_case_ns), "{context}");
        assert_eq!(times.stall_ns, Some(waits.stall_ns), "{context}");
        let (charges, charged) = charges_of(&trace, model, frames);
        assert_eq!(charged, outcome, "{context}");
        let found: BTreeMap<_, _> = charges
            .rows
            .iter()
            .map(|row| ((row.file.0, row.process), (row.counts, row.unused_pages)))
            .collect();
        let mut wanted: BTreeMap<_, _> =
            naive.charges.iter().map(|(key, counts)| (*key, (*counts, 0))).collect();
        for ((file, _), process) in &naive.fresh {
            wanted.get_mut(&(*file, *process)).unwrap().1 += 1;
        }
        assert_eq!(found, wanted, "{context}");
        let all = charges.total();
        let mut counts = all.counts;
        counts += charges.by_writes;
        assert_eq!(counts, outcome.readahead, "{context}");
        assert_eq!(all.unused_pages, naive.fresh.len() as u64, "{context}");
        for (ranking, names) in
            [(charges.by_file(&trace, 2), 3), (charges.by_program(&trace, 2), 3)]
        {
            let mut sum = ranking.others;
            ranking.top.iter().for_each(|named| sum += named.sums);
            assert_eq!(sum, all, "{context}");
            assert_eq!(ranking.top.len() as u64 + ranking.other_names, names, "{context}");
            let wasted = |named: &NamedReadAhead| named.sums.counts.wasted();
            assert!(ranking.top.is_sorted_by_key(|named| std::cmp::Reverse(wasted(named))));
        }
    }
}

/// Between events; the device is slower, so that reads find pages that have not arrived.
const INTERVAL_US: u64 = 500;
const READ_NS: u64 = 100_000;
const WRITE_NS: u64 = 800_000;

/// Runs a cell under LRU on a device of constant latencies. Returns its outcome, the times, the
/// reads by case and the requests.
fn on_a_device(
    trace: &Trace,
    model: ReadAheadModel,
    frames: u32,
    request_pages_max: u32,
) -> (Outcome, DeviceTimes, [u64; 4], Vec<Io>) {
    let constants =
        LatencyParams { read_us: READ_NS as f64 / 1e3, write_us: WRITE_NS as f64 / 1e3 };
    let device = Prepared::new(&Profile::new(Model::Latency(constants))).unwrap();
    let mut clocks = Clocks::new(&device, true);
    let (log, mut requests) = (ReadLog::default(), Vec::new());
    let outcome = with_cell(frames, "evict", false, |cell| {
        let (readahead, reads) = (Some(model.into()), Some(&log));
        let cell = Cell { readahead, reads, request_pages_max, ..*cell };
        cell.run(
            trace,
            None,
            Some(&mut |io| {
                log.take(|mark| clocks.mark(&mark));
                clocks.io(&io);
                requests.push(io);
            }),
        )
    });
    log.take(|mark| clocks.mark(&mark));
    (outcome, clocks.times(), log.reads(), requests)
}

/// Waits on the same device, with the arrival of each page by itself. Each request has one page,
/// and each event a time of its own.
#[derive(Default)]
struct Waits {
    elapsed_by_case_ns: [u64; 4],
    stall_by_case_ns: [u64; 4],
    stall_ns: u64,
}

impl Waits {
    /// `cases`: of each read, in order.
    fn new(trace: &Trace, cases: &[ReadCase], requests: &[Io]) -> Self {
        let mut waits = Self::default();
        let (mut now_ns, mut idle_ns) = (0, 0);
        let mut arrives_ns: BTreeMap<u32, u64> = BTreeMap::new();
        let mut cases = cases.iter();
        for (n, step) in trace.steps().iter().enumerate() {
            now_ns = now_ns.max(trace.at_us(n) * 1000 + waits.stall_ns);
            let mut waited_ns = 0;
            let mut elapsed_ns = 0;
            let (mut ahead, mut ahead_ns) = (Vec::new(), 0);
            for io in requests.iter().filter(|io| io.at_us == trace.at_us(n)) {
                let takes_ns = if io.op == IoOp::Read { READ_NS } else { WRITE_NS };
                idle_ns = now_ns.max(idle_ns) + takes_ns;
                if let (IoOp::Read, Some(page)) = (io.op, io.cause.page) {
                    arrives_ns.remove(&page.0);
                }
                if io.awaited {
                    (waited_ns, now_ns) = (waited_ns + idle_ns - now_ns, idle_ns);
                    elapsed_ns += takes_ns;
                }
                if io.op == IoOp::Read && !io.awaited {
                    ahead.push(io.cause.page.unwrap().0);
                    ahead_ns = idle_ns;
                }
            }
            // Everything that a read reads ahead arrives together.
            arrives_ns.extend(ahead.into_iter().map(|page| (page, ahead_ns)));
            for page in step.range() {
                // A write waits for no page.
                let arrived_ns = arrives_ns.remove(&page).filter(|_| step.kind() == StepKind::Read);
                if let Some(arrived_ns) = arrived_ns.filter(|ns| *ns > now_ns) {
                    (waited_ns, now_ns) = (waited_ns + arrived_ns - now_ns, arrived_ns);
                }
            }
            waits.stall_ns += waited_ns;
            if step.kind() == StepKind::Read {
                let case = *cases.next().unwrap() as usize;
                waits.elapsed_by_case_ns[case] += elapsed_ns;
                waits.stall_by_case_ns[case] += waited_ns;
            }
        }
        assert!(cases.next().is_none(), "each read is a step");
        waits
    }
}

/// Without writes and read-ahead, reads take all the time of the device, and all stalls are theirs.
// Promises: Read-ahead 9.
#[test]
fn reads_of_the_four_cases_take_all_the_time_of_reads() {
    let model = ReadAheadModel::new(&parse("off").unwrap());
    let mut rng = Pcg64::seed_from_u64(1);
    let mut actions = readers(&mut rng, 500);
    actions.retain(|action| matches!(action, Action::Size { .. } | Action::Read { .. }));
    let trace = trace_of_readers(&actions, model, INTERVAL_US);
    for frames in [1, 60, 900] {
        let (outcome, times, reads, _) = on_a_device(&trace, model, frames, 32);
        assert_eq!(times.elapsed_by_case_ns.iter().sum::<u64>(), times.read_ns);
        assert_eq!(times.read_ns, outcome.device.reads * READ_NS);
        assert_eq!(times.stall_by_case_ns.map(|of| of.iter().sum()), times.stall_ns);
        assert_eq!(reads.iter().sum::<u64>(), trace.steps().len() as u64);
        assert_eq!((times.elapsed_by_case_ns[0], reads[3]), (0, 0), "nothing is dirty");
    }
}

/// Four reads in order, at 100, 200, … µs. Each page takes the device 100 µs.
// Promises: Read-ahead 4.
#[test]
fn reads_wait_for_pages_that_have_not_arrived() {
    let model = ReadAheadModel::new(&parse("linux:128,kernel=6.12").unwrap());
    let open = NonZeroU32::new(1).map(OpenId);
    let read = |page: u64| Action::Read {
        open,
        file: FileId(0),
        offset: page * PAGE_BYTES,
        len: 2 * PAGE_BYTES,
    };
    let size = Action::Size { file: FileId(0), size: 1000 * PAGE_BYTES };
    let actions = [size, read(0), read(2), read(4), read(6)];
    let trace = trace_of_readers(&actions, model, 100);
    let (_, times, reads, requests) = on_a_device(&trace, model, 1000, 128);
    let requests: Vec<_> = requests.iter().map(|io| (io.pages, io.awaited)).collect();
    assert_eq!(requests, [(4, true), (8, false), (16, false)]);
    // The first read waits for 4 pages, until 500 µs. The second one, at 600 µs, sends for 8 pages,
    // which arrive at 1400 µs, and finds its own. The third one comes at 700 µs, sends for 16 pages
    // and waits for the 8. The fourth one finds its pages.
    assert_eq!(reads, [3, 1, 0, 0]);
    assert_eq!(times.stall_by_case_ns, Some([700_000, 400_000, 0, 0]));
    assert_eq!(times.stall_ns, Some(1_100_000));
    assert_eq!(times.elapsed_by_case_ns, [0, 400_000, 0, 0]);
    assert_eq!(times.read_ns, 2_800_000);
}

/// The third read needs the frames of dirty pages: it waits for their writes, too.
// Promises: Read-ahead 9.
#[test]
fn a_read_waits_for_the_writes_of_pages_that_it_evicts() {
    let model = ReadAheadModel::new(&parse("off").unwrap());
    let actions = [read(0, 0, 1), read(0, 1, 2), write(1, 0, 2), read(0, 3, 2), read(0, 3, 2)];
    let trace = trace_of_readers(&actions, model, 1_000_000);
    let (_, times, reads, _) = on_a_device(&trace, model, 2, 128);
    // A read into a free frame; one that has a free frame and evicts a clean page; a write that
    // evicts two clean pages; a read that evicts the two dirty ones; a read that finds its pages.
    assert_eq!(reads, [1, 1, 1, 1]);
    assert_eq!(times.elapsed_by_case_ns, [0, 100_000, 200_000, 1_800_000]);
    assert_eq!(times.stall_by_case_ns, Some(times.elapsed_by_case_ns));
}

fn charges_of(trace: &Trace, model: ReadAheadModel, frames: u32) -> (ReadAheadCharges, Outcome) {
    let into = RefCell::default();
    let outcome = with_cell(frames, "evict", false, |cell| {
        let readahead = CellReadAhead { charges: Some(&into), ..model.into() };
        Cell { readahead: Some(readahead), ..*cell }.run(trace, None, None)
    });
    (into.take(), outcome)
}

/// Process 1 begins to read file 0 in order, and process 2 goes on. Process 1 reads two pages in
/// the middle of file 1, which the kernel takes for the begin of a sequence.
// Promises: Read-ahead 11.
#[test]
fn prefetches_are_charged_to_their_cause() {
    let model = ReadAheadModel::new(&parse("linux:128,kernel=6.12").unwrap());
    let read = |file: u64, page: u64, pages: u64| Action::Read {
        open: NonZeroU32::new(file as u32 + 1).map(OpenId),
        file: FileId(file),
        offset: page * PAGE_BYTES,
        len: pages * PAGE_BYTES,
    };
    let size = |file| Action::Size { file: FileId(file), size: 1000 * PAGE_BYTES };
    let events = [
        (1, Action::Bind { file: FileId(0), name: MaybeOwned::owned_str("/data/a") }),
        (1, Action::Process { name: MaybeOwned::owned_str("player") }),
        (1, size(0)),
        (1, size(1)),
        (1, read(0, 0, 2)),
        (2, read(0, 2, 2)),
        (1, read(1, 50, 1)),
        (1, read(1, 51, 1)),
    ];
    let about = trace_of_readers(&[], model, 1).about();
    let tables = Tables { reads_ahead_pages: 64, owners: true, names: true, ..Tables::default() };
    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX).with_tables(tables);
    for (pid, action) in events {
        builder.extend(&[Event { at_us: 0, pid, tid: pid, action }]).unwrap();
    }
    let trace = builder.finish().unwrap();
    let (charges, _) = charges_of(&trace, model, 1000);
    let seen = |sums: &ReadAheadSums| {
        let Counts { windows, asked, read, used, .. } = sums.counts;
        let missed = sums.counts.demanded();
        [windows, asked, read, used, missed, sums.dropped_pages(), sums.unused_pages]
    };
    let rows: Vec<_> =
        charges.rows.iter().map(|row| (row.file.0, row.process, seen(&row.into()))).collect();
    let wanted = [
        // Pages 0 to 3 at once; process 2 uses the two that were not asked for.
        (0, 1, [1, 2, 2, 2, 2, 0, 0]),
        // It meets the marker: pages 4 to 11 follow.
        (0, 2, [1, 8, 8, 0, 0, 0, 8]),
        // A page alone, then one and three ahead.
        (1, 1, [2, 3, 3, 0, 2, 0, 3]),
    ];
    assert_eq!(rows, wanted);
    let files = charges.by_file(&trace, 10);
    let names: Vec<_> = files.top.iter().map(|file| (&*file.name, seen(&file.sums))).collect();
    let unnamed = ("(no name, file 1)", [2, 3, 3, 0, 2, 0, 3]);
    assert_eq!(names, [("/data/a", [2, 10, 10, 2, 2, 0, 8]), unnamed]);
    let programs = charges.by_program(&trace, 1);
    let [first] = &programs.top[..] else { panic!("{programs:?}") };
    assert_eq!((&*first.name, seen(&first.sums)[3]), ("(process 2)", 0));
    assert_eq!((programs.other_names, seen(&programs.others)[2]), (1, 5), "player");
    // A cache of 5 pages: what process 2 reads ahead drops what it has itself.
    let (charges, _) = charges_of(&trace, model, 5);
    let all = charges.total();
    assert_eq!(all.dropped_pages() + all.unused_pages + all.counts.used, all.counts.read);
    assert!(all.dropped_pages() >= 3, "{all:?}");
}

/// A window is read in one request, with the pages of it that the application waits for.
// Promises: Read-ahead 4.
#[test]
fn a_window_is_one_request() {
    let model = ReadAheadModel::new(&parse("linux:128,kernel=6.12").unwrap());
    let open = NonZeroU32::new(1).map(OpenId);
    let read = |page: u64, pages: u64| Action::Read {
        open,
        file: FileId(0),
        offset: page * PAGE_BYTES,
        len: pages * PAGE_BYTES,
    };
    let size = Action::Size { file: FileId(0), size: 1000 * PAGE_BYTES };
    let actions = [size, read(0, 2), read(2, 2), read(4, 2), read(6, 2)];
    let trace = trace_of_readers(&actions, model, 1_000_000);
    let mut requests = Vec::new();
    let outcome = with_cell(1000, "evict", false, |cell| {
        let cell = Cell { readahead: Some(model.into()), request_pages_max: 128, ..*cell };
        cell.run(&trace, None, Some(&mut |io| requests.push((io.pages, io.awaited))))
    });
    // 2 pages asked for and 2 ahead; at the marker on page 2 the next window, and so on.
    assert_eq!(requests, [(4, true), (8, false), (16, false)]);
    assert_eq!(outcome.read_requests, 3);
    assert_eq!((outcome.readahead.asked, outcome.readahead.read), (26, 26));
    assert_eq!(outcome.readahead.used, 6, "pages 2 to 7");
    assert_eq!(outcome.hits(), 6);
}
