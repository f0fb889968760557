//! The loop: read what the kernel tells, in order of time, and hand on what the machine makes of it.

use crate::{
    Error,
    fanotify::Names,
    perf::Ring,
    system::{self, Clock, Mounted, Pressure, dev_of},
    tracefs::{self, Instance, Tracefs},
};
use flashsift_core::event::{About, FileOwner, Knows, Side, Space};
use flashsift_traces::{
    events::{Events, Sink, Skip, Summary},
    tracepoint::{self, Dev, Handle, Host, Machine, Need, Point, Spec},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command},
};
use tracing::{info, warn};

/// What is recorded.
#[derive(Debug)]
pub enum What {
    /// A program and its children, until it ends.
    Command(Command),
    /// Running processes and the children that they will have, until they end.
    Processes(Vec<u32>),
    /// What anybody does below a directory.
    Path(PathBuf),
    /// What anybody does on a mounted device.
    Device(PathBuf),
}

/// How it is recorded.
#[derive(Debug)]
pub struct Options {
    /// Of what a program or processes do, only what they do below this directory.
    pub under: Option<PathBuf>,
    /// System calls too, so that reads are exact to the byte.
    pub exact: bool,
    /// Buffer of each processor, KiB.
    pub buffer_kib: u64,
}

/// When a recording ends before what it records does.
pub trait Stop {
    /// From now on everything is recorded.
    fn begun(&mut self) {}
    /// Asked some times a second; `events` so far.
    fn now(&mut self, events: u64) -> bool;
}

/// Records lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// By processor, where any were.
    pub by_cpu: Vec<(u32, u64)>,
    /// Page faults, of which only stores through mappings are told.
    pub faults_by_cpu: Vec<(u32, u64)>,
    /// Maps of processes.
    pub maps: u64,
    /// Names.
    pub names: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Recorded {
    /// Events, and what was left out or assumed.
    pub summary: Summary,
    /// What was lost.
    pub lost: Lost,
    /// How the program ended.
    pub status: Option<std::process::ExitStatus>,
}

/// A record may become visible so much later than its time says.
const LAG_NS: u64 = 30_000_000;
const LOOK_MS: i64 = 50;
const READER_NICE: i32 = -15;
const LOST: Skip = Skip::Damage("record of the kernel lost (its buffer was full: --buffer)");
const MAPS_LOST: Skip = Skip::Note("map of a process lost: stores through it are known to the folio only");
const NAMES_LOST: Skip = Skip::Damage("names lost (fanotify's queue was full)");

struct System<'a>(&'a Names);

impl Host for System<'_> {
    fn size(&mut self, handle: Handle) -> Option<u64> {
        self.0.stat(handle).map(|stat| stat.st_size.cast_unsigned())
    }

    fn owner(&mut self, handle: Handle) -> Option<FileOwner> {
        self.0.stat(handle).map(|stat| FileOwner { uid: stat.st_uid, gid: stat.st_gid })
    }
}

/// Records `what` into `sink`. Before it begins it logs which accesses this kernel will not show.
pub fn record(
    what: What,
    options: &Options,
    sink: &mut dyn Sink,
    stop: &mut dyn Stop,
) -> Result<Recorded, Error> {
    let tracefs = Tracefs::open()?;
    let mounts = listened(&what, options)?;
    let mut recorder = Recorder::new(&tracefs, &mounts, &what, options)?;
    let kinds: Vec<&str> = mounts.iter().map(|mount| &*mount.kind).collect();
    for blind in tracefs::blind_spots(&tracefs, &kinds, options.exact) {
        warn!("{blind}");
    }
    if recorder.clock == Clock::Monotonic {
        warn!(
            "this kernel's records have no CLOCK_BOOTTIME: times are CLOCK_MONOTONIC, which stops in suspend"
        );
    }
    if recorder.maps.is_empty() {
        warn!("perf events are not allowed: stores through mappings are known to the folio only");
    }
    let exact = match options.exact {
        true => "",
        false => "reads on ext4 are exact to the page (--exact: to the byte); ",
    };
    info!(
        "{exact}not seen: reads of pages that are mapped already; sync_file_range \
         (SEMANTICS.md, \"Record\")"
    );
    let mut events = Events::new(sink);
    recorder.knows.sizes = options.under.is_some() || matches!(what, What::Path(_) | What::Device(_));
    let child = recorder.begin(what, options)?;
    stop.begun();
    // Buffers fill while we wait for our turn. After the program began: it does not inherit this.
    let _ = rustix::process::setpriority_process(None, READER_NICE);
    let result = recorder.run(child, &mut events, stop);
    let (status, result) = match result {
        Ok(status) => (status, Ok(())),
        Err(error) => (None, Err(error)),
    };
    let lost = recorder.lost();
    result?;
    let mut summary = events.finish()?;
    summary.skipped.merge(recorder.machine.skipped());
    for (_, count) in lost.by_cpu.iter().chain(&lost.faults_by_cpu) {
        summary.skipped.add_many(LOST, 0, *count);
    }
    if lost.maps > 0 {
        summary.skipped.add_many(MAPS_LOST, 0, lost.maps);
    }
    if lost.names {
        summary.skipped.add(NAMES_LOST, 0);
    }
    Ok(Recorded { summary, lost, status })
}

/// The file systems that are listened to.
fn listened(what: &What, options: &Options) -> Result<Vec<Mounted>, Error> {
    let mounts = system::mounts();
    let dev = match (what, &options.under) {
        (What::Path(path), _) | (_, Some(path)) => {
            Some(dev_of(path.metadata().map_err(|e| at(path, e))?.dev()))
        }
        (What::Command(_) | What::Processes(_), None) => None,
        (What::Device(path), None) => {
            let meta = path.metadata().map_err(|e| at(path, e))?;
            Some(dev_of(meta.rdev()))
        }
    };
    let chosen: Vec<_> = mounts.iter().filter(|m| dev.is_none_or(|dev| m.dev == dev)).cloned().collect();
    if chosen.is_empty() {
        let known: Vec<_> = mounts.iter().map(|m| format!("{} ({})", m.path.display(), m.kind)).collect();
        return Err(Error::Nothing(format!(
            "only mounted ext4 and F2FS file systems can be recorded; here that is {}",
            if known.is_empty() { "none".to_owned() } else { known.join(", ") }
        )));
    }
    Ok(chosen)
}

/// The kernel's filter for what happens on one device, if the tracepoint tells it.
fn on_device(spec: &Spec, dev: Dev) -> Option<String> {
    match *spec.fields.first()? {
        field @ ("dev" | "s_dev") => Some(format!("{field} == {}", dev.0)),
        "name" => Some(format!("name == \"{dev}\"")),
        _ => None,
    }
}

fn at(path: &Path, error: io::Error) -> Error {
    Error::At { path: path.display().to_string(), what: error }
}

struct Recorder {
    /// What happens to files, whoever does it.
    accesses: Instance,
    /// Page faults and system calls: of all that anybody does, too many. The kernel leaves out what others do.
    faults: Instance,
    maps: Vec<Ring>,
    maps_lost: u64,
    names: Names,
    machine: Machine,
    clock: Clock,
    pressure: Option<Pressure>,
    /// What the trace will know.
    knows: Knows,
    /// The trace's head was handed on, before its first event.
    about: bool,
    /// Read, but too young to be told.
    points: Vec<Point>,
}

impl Recorder {
    fn new(tracefs: &Tracefs, mounts: &[Mounted], what: &What, options: &Options) -> Result<Self, Error> {
        let clock = tracefs.clock();
        let mut accesses = Instance::new(tracefs, "accesses", options.buffer_kib, clock)?;
        let mut faults = Instance::new(tracefs, "faults", options.buffer_kib, clock)?;
        // What others do on other devices need not fill our buffers.
        let only = match (what, &options.under, mounts) {
            (What::Command(_) | What::Processes(_), None, _) => None,
            (_, _, [mount]) => Some(mount.dev),
            _ => None,
        };
        let f2fs = mounts.iter().any(|mount| mount.kind == "f2fs");
        let ext4 = mounts.iter().any(|mount| mount.kind == "ext4");
        for spec in tracefs::specs(|need| !matches!(need, Need::Addresses | Need::Calls)) {
            // F2FS tells its calls itself; the page cache's own words would tell them twice.
            let twice = f2fs && !ext4 && spec.system == "filemap" && spec.name == "mm_filemap_get_pages";
            if !twice {
                accesses.enable(spec, only.and_then(|dev| on_device(spec, dev)).as_deref())?;
            }
        }
        let opens = options.exact && faults.enable_calls()? > 0;
        for spec in tracefs::specs(|need| need == Need::Addresses) {
            faults.enable(spec, None)?;
        }
        let mut machine = Machine::new(!tracefs::has_direct_ends(tracefs));
        machine.only_devs(mounts.iter().map(|mount| (mount.dev, mount.block_bytes)));
        for mount in mounts.iter().filter(|mount| mount.kind == "f2fs") {
            machine.f2fs(mount.dev, &mount.path.to_string_lossy());
        }
        let under = match what {
            What::Path(path) => Some(path),
            _ => options.under.as_ref(),
        };
        if let Some(path) = under {
            let path = path.canonicalize().map_err(|e| at(path, e))?;
            machine.only_under(&path.to_string_lossy());
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let cpus = cpus.max(online_cpus());
        let maps: io::Result<Vec<_>> = (0..cpus as u32).map(|cpu| Ring::open(cpu, clock)).collect();
        let pressure = Pressure::new();
        let knows = Knows {
            times: true,
            syncs: true,
            writes: true,
            removals: true,
            opens,
            // F2FS does not tell the mode.
            creations: !f2fs,
            names: true,
            pressure: pressure.is_some(),
            ..Knows::NOTHING
        };
        Ok(Self {
            accesses,
            faults,
            maps: maps.unwrap_or_default(),
            maps_lost: 0,
            names: Names::watch(mounts)?,
            machine,
            clock,
            pressure,
            knows,
            about: false,
            points: Vec::new(),
        })
    }

    /// Starts tracing, and then what is to be traced.
    fn begin(&mut self, what: What, options: &Options) -> Result<Option<Child>, Error> {
        let me = std::process::id();
        if matches!(what, What::Command(_)) {
            // Whatever this thread begets.
            self.faults.only(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())?;
        }
        self.accesses.start()?;
        self.faults.start()?;
        let Self { machine, points, clock, .. } = self;
        let now_ns = || clock.now_ns();
        if let Some(root) = &options.under {
            let root = root.canonicalize().map_err(|e| at(root, e))?;
            system::scan(&root, &now_ns, &mut |name| machine.name(name));
        }
        let child = match what {
            What::Command(mut command) => {
                let program = command.get_program().to_string_lossy().into_owned();
                let child = command.spawn().map_err(|e| Error::At { path: program, what: e })?;
                machine.only_tasks([child.id()]);
                Some(child)
            }
            What::Processes(pids) => {
                for &pid in &pids {
                    if !Path::new("/proc").join(pid.to_string()).exists() {
                        return Err(Error::Nothing(format!("there is no process {pid}")));
                    }
                    system::open_files(pid, now_ns(), &mut |name| machine.name(name));
                    machine.only_tasks(system::threads(pid));
                }
                system::processes(machine, Some(&pids), now_ns(), points);
                None
            }
            What::Path(root) => {
                let root = root.canonicalize().map_err(|e| at(&root, e))?;
                system::scan(&root, &now_ns, &mut |name| machine.name(name));
                machine.never_tasks(system::threads(me));
                system::processes(machine, None, now_ns(), points);
                None
            }
            What::Device(device) => {
                let dev = dev_of(device.metadata().map_err(|e| at(&device, e))?.rdev());
                for mount in system::mounts().iter().filter(|mount| mount.dev == dev) {
                    system::scan(&mount.path, &now_ns, &mut |name| machine.name(name));
                }
                machine.never_tasks(system::threads(me));
                system::processes(machine, None, now_ns(), points);
                None
            }
        };
        Ok(child)
    }

    fn run(
        &mut self,
        mut child: Option<Child>,
        events: &mut Events<'_>,
        stop: &mut dyn Stop,
    ) -> Result<Option<std::process::ExitStatus>, Error> {
        let mut status = None;
        let mut told = 0;
        loop {
            self.wait();
            if let Some(child) = &mut child
                && status.is_none()
            {
                status = child.try_wait().map_err(|e| Error::At { path: "the program".into(), what: e })?;
            }
            let over =
                status.is_some() || stop.now(told) || child.is_none() && !self.machine.is_anybody_there();
            if over {
                self.accesses.stop()?;
                self.faults.stop()?;
                if let (Some(child), None) = (&child, status) {
                    // It was started to be recorded.
                    let pid = rustix::process::Pid::from_child(child);
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                }
            }
            told += self.look(if over { u64::MAX } else { LAG_NS }, events)?;
            if over {
                self.machine.finish();
                told += self.hand_on(events)?;
                let _ = told;
                self.tell_about(events)?;
                return Ok(status);
            }
        }
    }

    fn wait(&self) {
        let fds = self.accesses.fds().chain(self.faults.fds()).chain(self.names.fds());
        let fds = fds.chain(self.maps.iter().map(Ring::fd));
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_MS * 1_000_000 };
        // A signal wakes us too.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// Takes in all that is older than `lag_ns`.
    fn look(&mut self, lag_ns: u64, events: &mut Events<'_>) -> Result<u64, Error> {
        let now_ns = self.clock.now_ns();
        let Self { accesses, faults, maps, names, machine, points, clock, pressure, .. } = self;
        if let Some(stalled_ppm) = pressure.as_mut().and_then(|pressure| pressure.sample(now_ns)) {
            let what = tracepoint::What::MemoryPressure { stalled_ppm };
            points.push(Point { at_ns: now_ns, tid: 0, what });
        }
        for ring in maps {
            self.maps_lost += ring.drain(|point| points.push(point));
        }
        faults.drain(points)?;
        accesses.drain(points)?;
        // After the points: a file's name is told in the same system call as its allocation, but later.
        names.drain(|| clock.now_ns(), |name| machine.name(name))?;
        points.sort_by_key(|point| point.at_ns);
        let until_ns = if lag_ns == u64::MAX { u64::MAX } else { now_ns.saturating_sub(lag_ns) };
        let ripe = points.partition_point(|point| point.at_ns <= until_ns);
        let mut host = System(names);
        for point in points.drain(..ripe) {
            machine.point(&point, &mut host);
        }
        if lag_ns != u64::MAX {
            machine.passed(until_ns);
        }
        self.hand_on(events)
    }

    fn hand_on(&mut self, events: &mut Events<'_>) -> Result<u64, Error> {
        let mut told = 0;
        // Time 0 is known with the first point, and there is no event before it.
        if self.machine.start_ns().is_some() {
            self.tell_about(events)?;
        }
        for event in self.machine.drain() {
            told += 1;
            events.push(event)?;
        }
        Ok(told)
    }

    fn tell_about(&mut self, events: &mut Events<'_>) -> Result<(), Error> {
        if std::mem::replace(&mut self.about, true) {
            return Ok(());
        }
        let epoch_us = self.machine.start_ns().map(|at_ns| self.clock.epoch_us(at_ns));
        let about = About { epoch_us, side: Side::Before, space: Space::Files, knows: self.knows };
        Ok(events.about(about)?)
    }

    fn lost(&self) -> Lost {
        Lost {
            by_cpu: self.accesses.lost(),
            faults_by_cpu: self.faults.lost(),
            maps: self.maps_lost,
            names: self.names.overflowed(),
        }
    }
}

/// Processors by their highest number: some may be kept from us, and still trace.
fn online_cpus() -> usize {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let last = online.trim().rsplit([',', '-']).next().and_then(|n| n.parse::<usize>().ok());
    last.map_or(1, |n| n + 1)
}
