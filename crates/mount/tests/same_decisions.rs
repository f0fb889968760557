//! One history gives the same decisions in simulation and through the file system.
//!
//! A seeded history is played on the file system with a clock that is set by hand. Its events are
//! then given to a fresh sifter, without a file system: RAM is a count of pages there, and every
//! decision succeeds at once.

use flashsift_events::event::{Action, Event, FileId, Knows, Micros, OpenId};
use flashsift_events::page::PAGE_BYTES;
use flashsift_files::sift::simulate::Sifted;
use flashsift_files::sift::{Decision, Keep, KeepConfig, Reason, Sift};
use flashsift_mount::{Access, Caller, Changes, Clock, Config, Errno, Fs, ROOT, SiftNotice, Store};
use flashsift_testbed::skip;
use rustix::fs::{OFlags, RenameFlags};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const AFTER_US: Micros = 60_000_000;
const BUDGET_BYTES: u64 = 512 << 10;
/// Names that are created on flash, among many that are not.
const WRITTEN_THROUGH: [&str; 3] = ["f.db", "g-journal", "h.log"];
const NAMES: u64 = 60;
const STEPS: usize = 400;

/// The same seed, the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// An input of the sifter that is no event.
#[derive(Clone, Copy)]
enum Input {
    Tick(Micros),
    /// The mount moved the file for a reason of its own.
    OnFlash(FileId),
}

struct History {
    fs: Fs,
    clock: Arc<AtomicU64>,
    opens: Vec<OpenId>,
    events: Arc<Mutex<Vec<Event<'static>>>>,
    decisions: Arc<Mutex<Vec<Decision>>>,
    /// Inputs of the sifter beside events, each behind so many of them.
    inputs: Arc<Mutex<Vec<(usize, Input)>>>,
    /// Deadlines are met at their time, not later.
    punctual: bool,
    /// Decisions before the mount first moved a file for a reason of its own.
    undisturbed: Arc<Mutex<Option<usize>>>,
    _folder: tempfile::TempDir,
}

fn caller() -> Caller {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Caller { uid, gid, tid: 0, umask: 0 }
}

fn keep(write_ahead: bool) -> KeepConfig {
    KeepConfig {
        lose_at_most_us: AFTER_US,
        budget_bytes: BUDGET_BYTES,
        patterns: vec!["*.log".to_owned()],
        write_ahead,
    }
}

impl History {
    /// `None` where there can be no tmpfs.
    fn new(punctual: bool) -> Option<History> {
        let Ok(store) = Store::detached_tmpfs(BUDGET_BYTES) else {
            return skip("a tmpfs needs root");
        };
        let folder = tempfile::tempdir().unwrap();
        let backing = OwnedFd::from(std::fs::File::open(folder.path()).unwrap());
        let clock = Arc::new(AtomicU64::new(0));
        let config = Config {
            lose_at_most_us: AFTER_US,
            settled: keep(true).patterns,
            clock: Clock::Manual(clock.clone()),
            ..Config::default()
        };
        let fs = Fs::new(backing, store, config).unwrap();
        let (events, decisions) =
            (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let into = events.clone();
        fs.observe(move |event| into.lock().unwrap().push(event.clone().into_owned()));
        let inputs: Arc<Mutex<Vec<(usize, Input)>>> = Arc::default();
        let undisturbed: Arc<Mutex<Option<usize>>> = Arc::default();
        let first = undisturbed.clone();
        let (into, also, behind) = (decisions.clone(), inputs.clone(), events.clone());
        fs.observe_decisions(move |sifted| match sifted {
            SiftNotice::Decided(decision) => into.lock().unwrap().push(decision),
            SiftNotice::OnFlash(file) => {
                first.lock().unwrap().get_or_insert(into.lock().unwrap().len());
                let behind = behind.lock().unwrap().len();
                also.lock().unwrap().push((behind, Input::OnFlash(file)));
            }
        });
        Some(History {
            fs,
            clock,
            opens: Vec::new(),
            events,
            decisions,
            inputs,
            punctual,
            undisturbed,
            _folder: folder,
        })
    }

    /// Lets time pass; deadlines are met on the way.
    fn advance(&mut self, us: Micros) {
        let to = self.clock.load(Ordering::SeqCst) + us;
        while let Some(due) = self.fs.next_due_us().filter(|due| *due <= to) {
            self.tick(due);
        }
        self.clock.store(to, Ordering::SeqCst);
    }

    /// Jumps over any deadline, as after a suspend.
    fn jump(&mut self, us: Micros) {
        if self.punctual {
            return self.advance(us);
        }
        self.tick(self.clock.load(Ordering::SeqCst) + us);
    }

    fn tick(&mut self, at_us: Micros) {
        self.fs.deliver_events();
        let behind = self.events.lock().unwrap().len();
        self.inputs.lock().unwrap().push((behind, Input::Tick(at_us)));
        self.clock.store(at_us, Ordering::SeqCst);
        self.fs.settle_due(at_us).1.unwrap();
    }

    fn step(&mut self, random: &mut Random) {
        let mut name = || match random.below(NAMES) as usize {
            number if number < WRITTEN_THROUGH.len() => WRITTEN_THROUGH[number].to_owned(),
            number => number.to_string(),
        };
        let (name, other) = (name(), name());
        let (name, other) = (OsStr::new(&name), OsStr::new(&other));
        let sync = Access { flags: OFlags::SYNC.bits() as i32, ..Access::default() };
        let fs = &self.fs;
        let ignored = |done: Result<(), Errno>| {
            assert!(matches!(done, Ok(()) | Err(Errno::NOENT | Errno::EXIST)), "{done:?}");
        };
        let open = match self.opens.len() as u64 {
            0 => None,
            many => Some(random.below(many) as usize),
        };
        match (random.below(16), open) {
            (0..4, _) if self.opens.len() < 6 => {
                let open = match fs.create(&caller(), ROOT, name, 0o644, 0) {
                    Ok((_, open, _)) => open,
                    // The name exists: the kernel looks it up and opens it.
                    Err(Errno::STALE) => {
                        let attr = fs.lookup(ROOT, name).unwrap();
                        fs.open(0, attr.ino).unwrap().0
                    }
                    Err(error) => panic!("{error:?}"),
                };
                self.opens.push(open);
            }
            (4..8, Some(open)) => {
                let bytes = vec![7; 1 + random.below(100_000) as usize];
                let offset = random.below(200_000);
                let access = if random.below(20) == 0 { sync } else { Access::default() };
                let written = fs.write(access, self.opens[open], offset, &bytes).unwrap();
                assert_eq!(written, bytes.len());
            }
            (8, Some(open)) => fs.fsync(0, self.opens[open], false).unwrap(),
            (9 | 10, Some(open)) => drop(fs.release(0, self.opens.swap_remove(open))),
            (11, _) => ignored(fs.unlink(0, ROOT, name)),
            (12, _) => ignored(fs.rename(0, (ROOT, name), (ROOT, other), RenameFlags::empty())),
            (13, _) => {
                if let Ok(attr) = fs.lookup(ROOT, name) {
                    let size = Some(random.below(150_000));
                    fs.set_attr(0, attr.ino, &Changes { size, ..Changes::default() }).unwrap();
                    ignored(fs.link(0, attr.ino, ROOT, other).map(drop));
                }
            }
            (14, _) => self.advance(random.below(10_000_000)),
            (15, _) if random.below(8) == 0 => self.jump(random.below(300_000_000)),
            (15, _) if random.below(8) == 0 => fs.settle_all().unwrap(),
            _ => {}
        }
        self.fs.forget_nameless();
    }
}

/// A sifter alone, on events.
struct Simulation {
    sift: Keep,
    /// Pages of files in RAM.
    ram: HashMap<FileId, BTreeSet<u64>>,
    decisions: Vec<Decision>,
    now: Micros,
}

impl Simulation {
    fn perform(&mut self, now: Micros) {
        while let Some(decision) = self.sift.poll() {
            self.decisions.push(decision);
            if let Some(file) = decision.file() {
                if !matches!(decision, Decision::WriteBack { keep_in_ram: true, .. }) {
                    self.ram.remove(&file);
                }
                self.sift.done(now, file, Ok(()));
            }
        }
        self.sift.check();
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Tick(now) => {
                self.now = now;
                self.sift.handle_deadline(now);
            }
            Input::OnFlash(file) => {
                self.ram.remove(&file);
                self.sift.done(self.now, file, Ok(()));
            }
        }
        self.perform(self.now);
    }

    fn event(&mut self, event: &Event<'_>) {
        let now = event.at_us;
        self.now = now;
        match &event.action {
            Action::Create(create)
                if self.sift.birth(now, create) == flashsift_files::sift::Birth::Ram =>
            {
                self.ram.insert(create.file, BTreeSet::new());
            }
            Action::Write { file, offset, len, .. } if self.ram.contains_key(file) => {
                let pages = offset / PAGE_BYTES..(offset + len).div_ceil(PAGE_BYTES);
                let used: usize = self.ram.values().map(BTreeSet::len).sum();
                let new = pages.clone().filter(|page| !self.ram[file].contains(page)).count();
                if (used + new) as u64 > BUDGET_BYTES / PAGE_BYTES {
                    self.sift.need_space(now, *len);
                    self.perform(now);
                }
                if let Some(of_file) = self.ram.get_mut(file) {
                    of_file.extend(pages);
                }
            }
            Action::Truncate { file, size } => {
                if let Some(pages) = self.ram.get_mut(file) {
                    pages.retain(|page| *page < size.div_ceil(PAGE_BYTES));
                }
            }
            Action::Gone { file } => drop(self.ram.remove(file)),
            _ => {}
        }
        self.sift.handle(now, event);
        self.perform(now);
    }
}

/// Compares with the decisions of the core's simulator, which are the same as long as the mount
/// moves no file for a reason of its own. Returns how many were compared.
fn compare_with_core(history: &History, decisions: &[Decision]) -> usize {
    let knows =
        Knows { times: true, writes: true, removals: true, creations: true, ..Knows::NOTHING };
    let keep = Keep::new(keep(history.fs.writes_ahead()));
    let mut core = Sifted::new(keep, BUDGET_BYTES, knows).logged();
    for event in &*history.events.lock().unwrap() {
        core.event(event, &mut |_| {});
    }
    for (at, (one, (_, other))) in decisions.iter().zip(core.log()).enumerate() {
        assert_eq!(one, other, "decision {at}");
    }
    assert!(core.log().len() >= decisions.len());
    decisions.len()
}

// Promises: Mount 12.
#[test]
fn a_history_has_the_same_decisions_in_simulation() {
    let (mut by_space, mut by_age, mut by_sync, mut compared) = (0, 0, 0, 0);
    for seed in 1..=12u64 {
        let Some(mut history) = History::new(seed % 2 == 0) else { return };
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..STEPS {
            history.step(&mut random);
            // The daemon performs what no application waits for.
            history.tick(history.clock.load(Ordering::SeqCst));
            history.fs.check();
        }
        for open in std::mem::take(&mut history.opens) {
            history.fs.release(0, open);
        }
        history.fs.deliver_events();
        let mut simulation = Simulation {
            sift: Keep::new(keep(history.fs.writes_ahead())),
            ram: HashMap::new(),
            decisions: Vec::new(),
            now: 0,
        };
        let inputs = history.inputs.lock().unwrap();
        let mut inputs = inputs.iter().peekable();
        for (at, event) in history.events.lock().unwrap().iter().enumerate() {
            while let Some((_, input)) = inputs.next_if(|(behind, _)| *behind <= at) {
                simulation.input(*input);
            }
            simulation.event(event);
        }
        inputs.for_each(|(_, input)| simulation.input(*input));
        let decisions = history.decisions.lock().unwrap();
        for (at, (one, other)) in decisions.iter().zip(&simulation.decisions).enumerate() {
            assert_eq!(one, other, "seed {seed}, decision {at}");
        }
        assert_eq!(decisions.len(), simulation.decisions.len(), "seed {seed}");
        if history.punctual {
            let undisturbed = history.undisturbed.lock().unwrap().unwrap_or(decisions.len());
            compared += compare_with_core(&history, &decisions[..undisturbed]);
        }
        for decision in &*decisions {
            match decision {
                Decision::WriteBack { why: Reason::Space, .. } => by_space += 1,
                Decision::WriteBack { why: Reason::Age, .. } => by_age += 1,
                Decision::WriteBack { why: Reason::Sync, .. } => by_sync += 1,
                _ => {}
            }
        }
    }
    assert!(compared > 50, "{compared} decisions were compared with the simulator of the core");
    assert!(by_space > 10 && by_age > 20 && by_sync > 20, "{by_space}, {by_age}, {by_sync}");
}
