use super::*;
use crate::{PreparedDevice, readahead_curve::CurveConditions};
use flashsift_caches::{
    policy,
    trace::{Tables, TraceBuilder, Unit},
};
use flashsift_events::{
    event::{About, Action, Event, FileId, Knows, MaybeOwned, OpenId, Side, Space},
    page::PAGE_BYTES,
};
use flashsift_pages::device::ProfileSelection;
use std::num::NonZeroU32;

const KIB: u32 = 128;
/// Places of a file that are read in no order.
const PLACES: u64 = 120;

/// Reads of open files, each by a process with the number of its first file.
#[derive(Default)]
struct Recording {
    actions: Vec<(u32, Action<'static>)>,
    opens: bool,
}

impl Recording {
    fn file(&mut self, file: u64, name: &str, pages: u64, pid: u32) {
        let name = MaybeOwned::owned_str(name);
        self.actions.push((pid, Action::Bind { file: FileId(file), name }));
        self.actions.push((pid, Action::Size { file: FileId(file), size: pages * PAGE_BYTES }));
    }

    fn read(&mut self, file: u64, page: u64, pid: u32) {
        let open = NonZeroU32::new(file as u32 + 1).map(OpenId).filter(|_| self.opens);
        let (offset, len) = (page * PAGE_BYTES, PAGE_BYTES);
        self.actions.push((pid, Action::Read { open, file: FileId(file), offset, len }));
    }

    fn trace(&self) -> Trace {
        let knows =
            Knows { times: true, opens: self.opens, sizes: true, writes: true, ..Knows::NOTHING };
        let about =
            About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
        let tables = Tables {
            reads_ahead_pages: CurveSearch::reach_pages("", KIB),
            owners: true,
            names: true,
            ..Tables::default()
        };
        let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX).with_tables(tables);
        for (n, (pid, action)) in self.actions.iter().enumerate() {
            let at_us = n as u64 * 100;
            let event = Event { at_us, pid: *pid, tid: *pid, action: action.clone() };
            builder.extend(&[event]).unwrap();
        }
        builder.finish().unwrap()
    }
}

/// On a device on which each page takes 100 µs, in requests of any length.
fn search(trace: &Trace, present_kib: u32) -> CurveSearch<'_> {
    search_on("latency-100-800", trace, present_kib)
}

fn search_on<'a>(device: &str, trace: &'a Trace, present_kib: u32) -> CurveSearch<'a> {
    let device = ProfileSelection::parse(device).unwrap();
    let conditions = CurveConditions {
        policy: policy::Selection::parse("lru").unwrap(),
        frames: 1024,
        device: PreparedDevice::new((&device).into()).unwrap(),
        params: String::new(),
        present_kib,
        recorded_kib: present_kib,
        memory_limit_bytes: u64::MAX,
        workers: 1,
    };
    CurveSearch::new(trace, conditions).unwrap()
}

fn curve(search: &CurveSearch<'_>) -> Curve {
    search.curve((0..search.cells()).map(|cell| search.run(cell).unwrap()).collect())
}

fn found(search: &CurveSearch<'_>, curve: &Curve) -> (AdviceFound, u64) {
    let advice = AdviceSearch::new(search).unwrap();
    let runs = advice.trials().iter().map(|trial| advice.run(&[*trial]).unwrap()).collect();
    let wasted = advice.charges().total().counts.wasted();
    (advice.choose(curve, runs).unwrap(), wasted)
}

/// Three pages at each of many places that follow no order, and between them a file in order.
fn records_and_log() -> Recording {
    let mut recording = Recording { opens: true, ..Recording::default() };
    recording.file(0, "/data/records", 64 * PLACES, 7);
    recording.file(1, "/data/log", 3 * PLACES, 7);
    recording.actions.push((7, Action::Process { name: MaybeOwned::owned_str("database") }));
    for n in 0..PLACES {
        let place = n * 37 % PLACES;
        (0..3).for_each(|page| recording.read(0, 64 * place + page, 7));
        (0..3).for_each(|page| recording.read(1, 3 * n + page, 7));
    }
    recording
}

// Promises: Read-ahead 12.
#[test]
fn a_file_read_here_and_there_gets_advice() {
    let trace = records_and_log().trace();
    let search = search(&trace, KIB);
    let curve = curve(&search);
    let lack = AdviceSearch::lack(&search, &curve);
    assert!(matches!(lack, Some(AdviceLack::Curve(CurveLack::Windows { .. }))), "{lack:?}: short");
    let (found, wasted) = found(&search, &curve);
    let [advice] = &found.advice[..] else { panic!("{found:?}") };
    assert_eq!((&*advice.target.files, &*advice.target.program), ("/data/records", "database"));
    assert_eq!((advice.advice, advice.target.files_count), (AccessAdvice::Random, 1));
    // Nine pages are read in vain at each place.
    assert_eq!(advice.wasted_less_pages, 9 * PLACES as i64, "{advice:?}");
    assert!(advice.wasted_less_pages as u64 <= wasted && advice.saving.recommends());
    // 100 µs a page.
    let pages = advice.saving.saving / 100e-6;
    assert!((pages - advice.wasted_less_pages as f64).abs() < 0.01 * pages, "{advice:?}");
    // Requests cost nothing on this device, so no read-ahead at all does as much.
    assert!(!found.pays(), "{found:?}");
    // The parts of a run add up to the whole.
    let whole_s = curve.points[curve.present].elapsed_s;
    assert!((found.saving.baseline - whole_s).abs() < 1e-9 * whole_s);
    assert!((found.saving.saving - advice.saving.saving).abs() < 1e-9 * whole_s);
}

/// Where requests cost time, the file that is read in order wants large windows.
// Promises: Read-ahead 12.
#[test]
fn advice_pays_where_files_differ() {
    let trace = records_and_log().trace();
    let search = search_on("ufs-3.1:gib=16", &trace, KIB);
    let (found, _) = found(&search, &curve(&search));
    assert!(found.pays(), "{found:?}");
    let random = |one: &&FileAdvice| one.advice == AccessAdvice::Random;
    let advised: Vec<_> =
        found.advice.iter().filter(random).map(|one| &*one.target.files).collect();
    assert_eq!(advised, ["/data/records"]);
}

// Promises: Read-ahead 12.
#[test]
fn files_read_in_order_get_none() {
    let mut recording = Recording { opens: true, ..Recording::default() };
    for file in 0..3 {
        recording.file(file, &format!("/data/{file}.log"), 300, 9);
    }
    for page in 0..300 {
        (0..3).for_each(|file| recording.read(file, page, 9));
    }
    let trace = recording.trace();
    let search = search(&trace, KIB);
    let (found, wasted) = found(&search, &curve(&search));
    assert!(found.advice.is_empty() && !found.pays() && wasted < 100, "{found:?}");
    assert_eq!(found.tried, 3, "in order");
    assert_eq!(found.saving.saving, 0.0);
}

// Promises: Read-ahead 12.
#[test]
fn many_small_files_are_one_candidate() {
    let mut recording = Recording { opens: true, ..Recording::default() };
    for file in 0..12 {
        let ending = if file < 10 { "tile" } else { "index" };
        recording.file(file, &format!("/map/{file}.{ending}"), 320, 3);
        for place in 0..20 {
            let place = place * 7 % 20;
            (0..3).for_each(|page| recording.read(file, 16 * place + page, 3));
        }
    }
    let trace = recording.trace();
    let charges = charged(&search(&trace, KIB)).unwrap();
    let mut targets = targets(&trace, &charges);
    targets.sort_by_key(|target| target.files_count);
    let names: Vec<_> = targets
        .iter()
        .map(|target| (&*target.files, target.files_count, target.descriptors.len()))
        .collect();
    // Two of one ending are too few.
    let wanted = [("/map/10.index", 1, 1), ("/map/11.index", 1, 1), ("/map/*.tile", 10, 10)];
    assert_eq!(names, wanted);
    let all: u64 = targets.iter().map(|target| target.wasted).sum();
    assert_eq!(all, charges.total().counts.wasted());
    // Of the others, each wastes less than 1 MiB; and of no file is so much used.
    let tried: Vec<_> = trials(&targets).iter().map(|one| (one.target, one.advice)).collect();
    assert_eq!(tried, [(2, AccessAdvice::Random)]);
}

/// Advice needs descriptors, and something to advise.
// Promises: Read-ahead 12.
#[test]
fn missing_facts_are_named() {
    let mut recording = Recording::default();
    recording.file(0, "/data/log", 30, 9);
    (0..30).for_each(|page| recording.read(0, page, 9));
    for (opens, present_kib, wanted) in
        [(false, KIB, AdviceLack::NoOpens), (true, 0, AdviceLack::Off)]
    {
        recording.opens = opens;
        recording.actions.iter_mut().for_each(|(_, action)| {
            if let Action::Read { open, .. } = action {
                *open = NonZeroU32::new(1).map(OpenId).filter(|_| opens);
            }
        });
        let trace = recording.trace();
        let search = search(&trace, present_kib);
        assert_eq!(AdviceSearch::lack(&search, &curve(&search)), Some(wanted));
    }
}
