//! Plans respect the memory limit, each cell is simulated exactly once, and requests are refused or
//! cut down as they say.

use super::*;
use flashsift_caches::{
    cache::FRAMES_MAX,
    policy::external::{ExternalPolicy, select, with},
    synth::{Pattern, Recipe},
    trace::{Tables, Trace, TraceBuilder, Unit},
};
use flashsift_events::{
    io::IoOp,
    page::{Op, PAGE_BYTES, Page},
};
use flashsift_pages::{
    device::{self, Fill},
    layout, system,
    writeback::Modes,
};
use std::rc::Rc;

thread_local! {
    /// Simulations that this thread has run.
    pub(super) static SIMULATIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn simulations(work: impl FnOnce()) -> usize {
    let before = SIMULATIONS.get();
    work();
    SIMULATIONS.get() - before
}

fn recipe() -> Recipe {
    Recipe {
        requests: 6000,
        pages: 400,
        pattern: Pattern::Mixed,
        write_share: 0.4,
        rate: 1000.0,
        seed: 7,
        objects: false,
    }
}

fn trace_of(recipe: Recipe, unit: Unit) -> Trace {
    let mut builder = TraceBuilder::new(recipe.about(), unit, u64::MAX);
    builder.extend(&recipe.events().unwrap().collect::<Vec<_>>()).unwrap();
    builder.finish().unwrap()
}

fn trace() -> Trace {
    trace_of(recipe(), Unit::Page)
}

fn device(text: &str) -> PreparedDevice {
    PreparedDevice::new((&device::ProfileSelection::parse(text).unwrap()).into()).unwrap()
}

fn request(policies: &[&str], frames: &[u32]) -> Request {
    let policies = Policies::parse(policies).unwrap();
    Request { policies, frames: frames.to_vec(), ..Request::default() }
}

fn error(trace: &Trace, request: Request) -> StudyError {
    let study = match Study::new(trace, request) {
        Ok(study) => study,
        Err(error) => return error,
    };
    study.plan().err().expect("the study cannot be done")
}

fn run<'a>(plan: &Plan<'a>) -> Results<'a> {
    plan.results((0..plan.cells().len()).map(|cell| plan.run(cell, &|| 0, None)))
}

/// Cells are listed by ascending size; at each size the policies keep their order, each once.
#[test]
fn cells_stand_in_the_order_of_sizes_and_policies() {
    let trace = trace();
    let request = request(&["sieve", "lru", "clock:insert_ref=1", "lru", "belady"], &[64, 8, 64]);
    let study = Study::new(&trace, request).unwrap();
    let cells = || -> Vec<(u32, String)> {
        let plan = study.plan().unwrap();
        plan.cells().iter().map(|cell| (cell.frames, cell.policy.label())).collect()
    };
    let policies = ["sieve", "lru", "clock:insert_ref=1", "belady"];
    let expected =
        [8, 64].map(|frames| policies.map(|policy| (frames, policy.to_owned()))).concat();
    assert_eq!(cells(), expected);
    assert_eq!(cells(), cells());
    let results = run(&study.plan().unwrap());
    let rows: Vec<_> = results.rows().map(|row| (row.frames, row.policy.clone())).collect();
    assert_eq!(rows, expected);
    for (policy, rows) in policies.iter().zip(results.by_policy()) {
        assert!(rows.iter().all(|row| row.policy == *policy), "{policy}");
        assert_eq!(rows.iter().map(|row| row.frames).collect::<Vec<_>>(), [8, 64]);
    }
}

/// The future of the trace once did not count towards the limit: a plan with an offline policy
/// exceeded it by four bytes for each access.
// Promises: Traces 6.
#[test]
fn waves_stay_below_the_memory_limit() {
    let trace = trace();
    let held_bytes = trace.held_bytes() as u64;
    let totals = trace.totals();
    let future_bytes = 4 * (totals.read_accesses + totals.write_accesses);
    let mut widths = Vec::new();
    for (policies, fixed_bytes) in
        [(&["lru", "fifo"][..], held_bytes), (&["lru", "belady"][..], held_bytes + future_bytes)]
    {
        for limit in (0..60).map(|n| held_bytes + n * 4096) {
            let request = Request {
                workers: 5,
                memory_limit_bytes: limit,
                devices: vec![device("latency-100-800")],
                writeback: "periodic:5s".parse().unwrap(),
                ..request(policies, &[1, 20, 300])
            };
            let study = Study::new(&trace, request).unwrap();
            let Ok(plan) = study.plan() else {
                let policies = study.request().policies.iter();
                let bytes =
                    policies.map(|policy| plan::cell_bytes(&study, 300, &system::PLAIN, policy));
                let largest_bytes = bytes.max().unwrap();
                assert!(fixed_bytes + largest_bytes > limit, "{limit} bytes are enough");
                continue;
            };
            let mut next = 0;
            for wave in plan.waves() {
                assert_eq!(wave.cells.start, next);
                next = wave.cells.end;
                let cells = &plan.cells()[wave.cells.clone()];
                let most_bytes = cells.iter().map(|cell| cell.memory_bytes).max().unwrap();
                let all_bytes = fixed_bytes + wave.at_once as u64 * most_bytes;
                assert!(all_bytes <= limit, "{all_bytes} of {limit} bytes: {wave:?}");
                assert!((1..=5).contains(&wave.at_once));
                let one_more = wave.at_once < 5 && all_bytes + most_bytes <= limit;
                assert!(!one_more, "one more cell fits into {limit} bytes: {wave:?}");
            }
            assert_eq!(next, plan.cells().len());
            widths.push(plan.waves().iter().map(|wave| wave.at_once).collect::<Vec<_>>());
        }
    }
    assert!(widths.contains(&vec![5]), "all cells run at once if memory allows it");
    assert!(
        widths.iter().any(|wide| wide.len() > 1),
        "waves of small cells are wider than those of large ones"
    );
}

#[test]
fn a_cell_that_does_not_fit_alone_is_refused() {
    let trace = trace();
    let limit = trace.held_bytes() as u64 + 1;
    let request = Request { memory_limit_bytes: limit, ..request(&["lru"], &[4]) };
    let StudyError::Memory { pages, cell_bytes, free_bytes } = error(&trace, request) else {
        panic!("another error");
    };
    assert_eq!((pages, free_bytes), (trace.pages(), 1));
    let lru = flashsift_caches::policy::Selection::parse("lru").unwrap();
    let layout = layout::default_for(trace.about().space);
    assert_eq!(cell_bytes, flashsift_pages::system::cell_bytes(&trace, 4, lru.spec, layout.spec));
}

/// The page with figures once simulated two cells a second time. Every figure of a study, on any
/// number of devices, comes from one simulation of each cell, and an observer changes no figure.
// Promises: Compare 7.
#[test]
fn each_cell_is_simulated_once() {
    let trace = trace();
    let request = Request {
        devices: ["latency-100-800", "emmc-5.1", "ufs-3.1:gib=16"].map(device).to_vec(),
        observer_bytes: Some(0),
        ..request(&["fifo", "lru", "sieve", "belady"], &[8, 64, 256])
    };
    let study = Study::new(&trace, request.clone()).unwrap();
    let plan = study.plan().unwrap();
    let mut seen = Vec::new();
    let ran = simulations(|| {
        let mut results: Vec<CellResult> = Vec::new();
        for cell in 0..plan.cells().len() {
            let (mut reads, mut writes) = (0, 0);
            let mut observe = |sent: Sent<'_>| {
                let Sent::Requests(requests) = sent else { panic!("no memory is compared") };
                for io in requests {
                    match io.op {
                        IoOp::Read => reads += u64::from(io.pages),
                        IoOp::Write => writes += u64::from(io.pages),
                        IoOp::Flush | IoOp::Discard => {}
                    }
                }
            };
            results.push(plan.run(cell, &|| 0, Some(&mut observe)));
            seen.push((reads, writes));
        }
        // The order of the results does not matter.
        results.reverse();
        let results = plan.results(results);
        assert!(results.verdict().is_some_and(|verdict| verdict.sizes.len() == 3));
        assert!(!results.notes().is_empty());
        for (row, (reads, writes)) in results.rows().zip(&seen) {
            assert_eq!((row.outcome.device.reads, row.outcome.device.writes), (*reads, *writes));
            let constant_s = row.outcome.cost_us() as f64 / 1e6;
            assert!((row.devices[0].elapsed_s - constant_s).abs() < 1e-9 * constant_s);
            assert_eq!(row.devices.len(), 3);
        }
    });
    assert_eq!(ran, 12);
    let unheard = Request { devices: Vec::new(), observer_bytes: None, ..request };
    let unheard = Study::new(&trace, unheard).unwrap();
    let outcomes = |plan: &Plan<'_>| run(plan).rows().map(|row| row.outcome).collect::<Vec<_>>();
    assert_eq!(outcomes(&unheard.plan().unwrap()), outcomes(&plan));
}

/// With memory, an observer gets the accesses to memory between the requests. Together they are
/// those of the cell's result, and the requests are the same as without them.
// Promises: Traces 27.
#[test]
fn an_observer_gets_the_accesses_to_memory_in_order() {
    use flashsift_caches::lines::Lines;
    use flashsift_events::event::{About, Action, Event, FileId, Knows};
    use flashsift_pages::nvm::profile;
    let recipe = Recipe { requests: 2000, ..recipe() };
    let tables = Tables { bytes: true, ..Tables::default() };
    let about = recipe.about();
    let about = About { knows: Knows { syncs: true, ..about.knows }, ..about };
    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX).with_tables(tables);
    for (n, event) in recipe.events().unwrap().enumerate() {
        let sync = Action::Sync { file: FileId(0), offset: 0, len: u64::MAX, data_only: false };
        let (at_us, pid, tid) = (event.at_us, event.pid, event.tid);
        builder.extend(&[event]).unwrap();
        if n % 10 == 9 {
            builder.extend(&[Event { at_us, pid, tid, action: sync }]).unwrap();
        }
    }
    let trace = builder.finish().unwrap();
    let systems = ["storage", "flush-nvm:pages=16", "hybrid-flush:pages=16", "nvlru", "fslru"];
    for (system, drain) in systems.into_iter().flat_map(|text| [(text, false), (text, true)]) {
        let request = Request {
            systems: vec![system::Selection::parse(system).unwrap()],
            writeback: "sync".parse().unwrap(),
            memory: vec![profile::Selection::parse("pcm-board").unwrap()],
            observer_bytes: Some(0),
            drain,
            ..request(&["lru"], &[64])
        };
        let seen = |request: &Request| {
            let study = Study::new(&trace, request.clone()).unwrap();
            let (mut requests, mut lines, mut last) = (Vec::new(), Lines::NONE, 0);
            let mut observe = |sent: Sent<'_>| match sent {
                Sent::Requests(batch) => requests.extend_from_slice(batch),
                Sent::Memory { at_us, lines: more } => {
                    assert!(more != Lines::NONE && last <= at_us, "{system}");
                    last = at_us;
                    lines = lines + more;
                }
            };
            let result = study.plan().unwrap().run(0, &|| 0, Some(&mut observe));
            (result.outcome, requests, lines)
        };
        let (outcome, requests, lines) = seen(&request);
        assert_eq!(lines, outcome.traffic.lines(), "{system}, drain {drain}");
        assert!(lines.dram.read + lines.nvm.read > 0 && !requests.is_empty(), "{system}");
        assert_eq!(lines.nvm == Default::default(), system == "storage");
        let (same, alike, none) = seen(&Request { memory: Vec::new(), ..request });
        assert_eq!((same.device, alike, none), (outcome.device, requests, Lines::NONE), "{system}");
    }
}

#[test]
#[should_panic(expected = "exactly one result of each cell")]
fn results_need_every_cell() {
    let trace = trace();
    let study = Study::new(&trace, request(&["lru", "fifo"], &[8])).unwrap();
    let plan = study.plan().unwrap();
    plan.results([plan.run(1, &|| 0, None), plan.run(1, &|| 0, None)]);
}

/// The CPU time of devices and observers does not count as the policy's.
// Promises: Compare 7.
#[test]
fn cpu_time_is_that_of_the_simulation() {
    let trace = trace();
    let request = Request { observer_bytes: Some(0), ..request(&["lru"], &[8]) };
    let study = Study::new(&trace, request).unwrap();
    let now_ns = std::cell::Cell::new(0);
    let clock = || {
        now_ns.set(now_ns.get() + 1000);
        now_ns.get()
    };
    let mut batches = 0;
    let mut observe = |_: Sent<'_>| {
        now_ns.set(now_ns.get() + 1_000_000);
        batches += 1;
    };
    let result = study.plan().unwrap().run(0, &clock, Some(&mut observe));
    // The clock is read at the beginning and the end, and before and after each batch.
    let expected_ns = 1000.0 * f64::from(batches + 1);
    assert!(batches > 1);
    let found_ns = result.cpu_ns_per_access * result.outcome.accesses() as f64;
    assert!((found_ns - expected_ns).abs() < 1e-3, "{found_ns} ns");
}

/// Devices are compared with LRU, or else with the first policy, at the same size.
#[test]
fn the_reference_gains_nothing_over_itself() {
    let trace = trace();
    for (policies, reference) in [(["fifo", "lru"], "lru"), (["fifo", "fab"], "fifo")] {
        let devices = ["latency-100-800", "emmc-5.1"].map(device).to_vec();
        let request = Request { devices, ..request(&policies, &[8, 64]) };
        let study = Study::new(&trace, request).unwrap();
        let results = run(&study.plan().unwrap());
        for size in results.sizes() {
            let pages = |policy: &str| size.row(policy).unwrap().devices[1].flash_pages.unwrap();
            for row in &size.rows {
                assert_eq!(row.devices[0].lifetime_gain, None, "constant times wear nothing");
                let gain = row.devices[1].lifetime_gain.unwrap();
                assert_eq!(gain, pages(reference) / pages(&row.policy) - 1.0, "{}", row.policy);
            }
        }
        let note = Note::LifetimeGain { reference: reference.to_owned() };
        assert!(results.notes().contains(&note));
    }
}

/// A policy that only `all` asked for may be left out; a policy asked for by name may not, however
/// its parameters are written.
// Promises: Traces 7.
#[test]
fn offline_policies_are_left_out_of_all_where_they_do_not_fit() {
    let trace = trace();
    // The trace and any cell of these policies, and hardly more: the future of a trace is longer.
    let limit = |policies: &[&str]| {
        let study = Study::new(&trace, request(policies, &[4])).unwrap();
        let plan = study.plan().unwrap();
        let largest = plan.cells().iter().map(|cell| cell.memory_bytes).max().unwrap();
        trace.held_bytes() as u64 + largest + 100
    };
    let limited = |policies: &[&str]| Request {
        memory_limit_bytes: limit(policies),
        ..request(policies, &[4])
    };
    let study = Study::new(&trace, limited(&["all"])).unwrap();
    let plan = study.plan().unwrap();
    assert!(plan.cells().iter().all(|cell| !cell.policy.spec.kind.is_offline()));
    let [Note::LeftOut { policies, reason: OmissionReason::Future(problem) }] = &plan.notes()[..]
    else {
        panic!("{:?}", plan.notes());
    };
    assert_eq!(policies[..], ["belady", "belady-cost"]);
    let limit_bytes = limit(&["all"]);
    assert!(matches!(problem, FutureProblem::Memory { limit_bytes: of, .. } if *of == limit_bytes));
    let says = "`all` does not include `belady`, `belady-cost` (know";
    assert!(plan.notes()[0].to_string().starts_with(says));
    for named in [&["belady"][..], &["all", "belady"], &["belady-cost:read=100.0", "all"]] {
        assert!(matches!(error(&trace, limited(named)), StudyError::Future(_)), "{named:?}");
    }
    let slow = |policies: &[&str]| Study::new(&trace, request(policies, &[4])).unwrap().notes();
    let note = Note::left_out(OmissionReason::Slow, |spec| spec.slow);
    assert_eq!(slow(&["all"]), [note]);
    assert_eq!((slow(&["all", "for"]), slow(&["lru"])), (vec![], vec![]));
}

/// The layout `recorded` takes a trace whose recording tells places, when, and in whole pages.
/// Pages without a place are counted.
// Promises: Placement 11.
#[test]
fn recorded_places_are_required() {
    use flashsift_events::event::{About, Action, Event, FileId, Knows, Side, Space};
    let build = |times, places, at, table| {
        let knows = Knows { times, writes: true, places, ..Knows::NOTHING };
        let about =
            About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
        let file = FileId(0);
        let write = Action::Write { open: None, file, offset: 0, len: 12_288, sync: false };
        let place = Action::Place { file, offset: 0, len: 8192, at };
        let events = [write, place].map(|action| Event { at_us: 0, pid: 0, tid: 0, action });
        let tables = Tables { places: table, ..Tables::default() };
        let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX).with_tables(tables);
        builder.extend(&events[..1 + usize::from(at != u64::MAX)]).unwrap();
        builder.finish().unwrap()
    };
    let recorded = || {
        let layout = Some(layout::Selection::parse("recorded").unwrap());
        Request { layout, ..request(&["lru"], &[8]) }
    };
    let (at, never) = (1 << 20, u64::MAX);
    for (times, places, at, table, wanted) in [
        (true, false, at, true, PlacesLack::None),
        (true, true, never, true, PlacesLack::None),
        (false, true, at, true, PlacesLack::NoTimes),
        (true, true, 1024, true, PlacesLack::SmallBlocks),
        (true, true, at, false, PlacesLack::NotRead),
    ] {
        let lack = error(&build(times, places, at, table), recorded());
        assert_eq!(lack, StudyError::Places { layout: "recorded", lack: wanted });
    }
    let trace = build(true, true, at, true);
    let notes = Study::new(&trace, recorded()).ok().unwrap().notes();
    assert_eq!(notes, [Note::PagesWithoutPlaces { without: 1, pages: 3 }]);
}

#[test]
fn a_request_that_makes_no_sense_is_refused() {
    let trace = trace();
    let lru = || request(&["lru"], &[8]);
    let none = Request { policies: Policies::default(), ..lru() };
    assert_eq!(error(&trace, none), StudyError::NoPolicies);
    for frames in [0, FRAMES_MAX + 1] {
        assert_eq!(error(&trace, request(&["lru"], &[8, frames])), StudyError::Frames(frames));
    }
    let ext4 = Request { layout: Some(layout::Selection::parse("ext4").unwrap()), ..lru() };
    let says = error(&trace, ext4).to_string();
    assert_eq!(says, "--layout ext4: this trace is of addresses; it takes identity or f2fs");
    let sync = Request { writeback: "sync".parse::<Modes>().unwrap(), ..lru() };
    let says = error(&trace, sync).to_string();
    assert!(
        says.starts_with("--writeback evict,sync: this kind of trace does not record syncs"),
        "{says}"
    );
    let objects = trace_of(Recipe { objects: true, write_share: 0.0, ..recipe() }, Unit::Request);
    let on_device = Request { unit: Unit::Request, devices: vec![device("emmc-5.1")], ..lru() };
    assert_eq!(error(&objects, on_device), StudyError::ObjectsOnDevices);
}

#[test]
fn devices_that_hold_the_same_are_noted_together() {
    let trace = trace();
    let names = ["emmc-5.1", "ufs-3.1:fill=empty,gib=9", "latency-100-800", "emmc-5.1:gib=9"];
    let request = Request { devices: names.map(device).to_vec(), ..request(&["lru"], &[8]) };
    let study = Study::new(&trace, request).unwrap();
    let notes = run(&study.plan().unwrap()).notes();
    let fills: Vec<_> = notes.iter().filter(|note| matches!(note, Note::Filled { .. })).collect();
    let together = Note::Filled {
        devices: vec!["emmc-5.1".to_owned(), "emmc-5.1:gib=9".to_owned()],
        fill: Fill::Random,
    };
    assert_eq!(fills.len(), 2);
    assert_eq!(*fills[0], together);
    assert_eq!(fills[1].to_string(), "Before the first request, ufs-3.1:fill=empty,gib=9: empty.");
    assert_eq!(notes[0], Note::Units);
}

/// The estimates include the write-back machine, the devices and the observer.
#[test]
fn devices_and_observers_count_as_memory() {
    let trace = trace();
    let bytes = |request: Request| {
        let study = Study::new(&trace, request).unwrap();
        study.plan().unwrap().cells()[0].memory_bytes
    };
    let lru = || request(&["lru"], &[8]);
    let plain = bytes(lru());
    let machine = flashsift_pages::writeback::machine_bytes(&trace);
    let pages = u64::from(trace.pages());
    assert_eq!(
        bytes(Request { observer_bytes: Some(PAGE_BYTES), ..lru() }),
        plain + machine + PAGE_BYTES
    );
    assert_eq!(bytes(Request { writeback: "periodic".parse().unwrap(), ..lru() }), plain + machine);
    // With 32 bits, tables of flash count as well.
    let devices = vec![device("latency-100-800"); 2];
    assert_eq!(bytes(Request { devices, ..lru() }), plain + machine + 2 * 16 * pages);
}

/// LRU from outside.
struct Outside(Vec<Page>);

impl ExternalPolicy for Outside {
    fn insert(&mut self, page: Page, _: Op) {
        self.0.push(page);
    }
    fn hit(&mut self, page: Page, _: Op) {
        self.0.retain(|other| *other != page);
        self.0.push(page);
    }
    fn evict(&mut self, _: Option<Page>, victims: &mut Vec<Page>) {
        victims.push(self.0.remove(0));
    }
    fn remove(&mut self, page: Page) {
        self.0.retain(|other| *other != page);
    }
    fn forget(&mut self, _: Page) {}
    fn cleaned(&mut self, _: Page) {}
    fn wrong_victim(&self, victim: Option<Page>) -> ! {
        panic!("wrong victim: {victim:?}")
    }
}

/// LRU from outside has the results of `lru`.
// Promises: Sampling and sweeps 4.
#[test]
fn an_outside_lru_has_the_results_of_lru() {
    let trace = trace();
    let mut policies = Policies::parse(["lru"]).unwrap();
    policies.add(select("mine"));
    let request = Request { policies, frames: vec![16, 64], ..Request::default() };
    let study = Study::new(&trace, request).unwrap();
    let plan = study.plan().unwrap();
    let cells = 0..plan.cells().len();
    let results = with(Rc::new(|_, _| Box::new(Outside(Vec::new()))), || {
        plan.results(cells.map(|cell| plan.run(cell, &|| 0, None)).collect::<Vec<_>>())
    });
    for size in results.sizes() {
        assert_eq!(size.rows[0].outcome, size.rows[1].outcome);
        assert_eq!(size.rows[1].policy, "mine");
    }
}
