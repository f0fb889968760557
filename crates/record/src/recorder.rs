//! The loop of a recording: reads the kernel's records in order of time and passes on the events
//! that the state machine makes of them.

use crate::{
    Error,
    fanotify::Names,
    fiemap::Extent,
    folios::PageFlags,
    open_files::OpenFiles,
    perf::Ring,
    system::{self, Clock, Mounted, Pressure, dev_of},
    tracefs::{self, Instance, Tracefs},
};
use flashsift_events::event::{About, FileOwner, FileSystemKind, Knows, Side, Space};
use flashsift_host::mounts::Table;
use flashsift_traces::{
    events::{Events, Reason, Sink, Skip, Summary},
    tracepoint::{
        self, Dev, FOLIO_WINDOW_PAGES, Handle, Host, Inode, Need, Point, Survivor,
        TracepointMachine, TracepointSpec,
    },
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command},
};
use tracing::{info, warn};

/// The processes or files to record.
#[derive(Debug)]
pub enum Subject {
    /// A program and its children, until it ends.
    Command(Command),
    /// Running processes and their future children, until they end.
    Processes(Vec<u32>),
    /// All accesses below a directory.
    Path(PathBuf),
    /// All accesses on a mounted device.
    Device(PathBuf),
    /// All accesses on the file systems of these paths; without a path, on all that can be
    /// recorded. No directory is read: a file has a name if it is open at the beginning or opened
    /// later, and sizes and places are not recorded. No other file system is accessed.
    FileSystems(Vec<PathBuf>),
}

/// Options of a recording.
#[derive(Debug)]
pub struct Options {
    /// Records only accesses below this directory.
    pub under: Option<PathBuf>,
    /// Records system calls as well, so that reads are exact to the byte.
    pub exact: bool,
    /// Buffer size for each processor, KiB.
    pub buffer_kib: u64,
}

/// Decides whether a recording ends early.
pub trait Stop {
    /// Called when recording has begun.
    fn begun(&mut self) {}
    /// Called several times a second with the number of events so far; `true` ends the recording.
    fn now(&mut self, events: u64) -> bool;
}

/// Lost records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Number for each processor that lost any.
    pub by_cpu: Vec<(u32, u64)>,
    /// The same for page faults, which report only stores through mappings.
    pub faults_by_cpu: Vec<(u32, u64)>,
    /// Number of lost mappings of processes.
    pub maps: u64,
    /// Names were lost.
    pub names: bool,
}

/// Result of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// Number of events, and the records that were left out or completed by assumption.
    pub summary: Summary,
    /// Lost records.
    pub lost: Lost,
    /// Exit status of the program.
    pub status: Option<std::process::ExitStatus>,
}

/// Longest delay between the time of a record and its visibility.
const LAG_NS: u64 = 30_000_000;
const LOOK_MS: i64 = 50;
const READER_NICE: i32 = -15;
const LOST: Skip = Skip::Damage("record of the kernel lost (its buffer was full: --buffer)");
const MAPS_LOST: Skip =
    Skip::Note("map of a process lost: stores through it are known to the folio only");
const PLACES_UNKNOWN: Skip =
    Skip::Note("file whose places at the end are unknown: the file system does not tell them");
const NAMES_LOST: Skip = Skip::Damage("names lost (fanotify's queue was full)");

struct System<'a> {
    names: &'a Names,
    page_flags: Option<&'a PageFlags>,
}

impl Host for System<'_> {
    fn size(&mut self, handle: Handle) -> Option<u64> {
        self.names.stat(handle).map(|stat| stat.st_size.cast_unsigned())
    }

    fn owner_and_mode(&mut self, handle: Handle) -> Option<(FileOwner, u32)> {
        let stat = self.names.stat(handle)?;
        Some((FileOwner { uid: stat.st_uid, gid: stat.st_gid }, stat.st_mode & 0o7777))
    }

    fn is_directory(&mut self, inode: Inode) -> Option<bool> {
        let stat = self.names.stat_any(inode)?;
        Some(rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
    }

    fn path(&mut self, inode: Inode) -> Option<String> {
        self.names.directory_path(inode)
    }

    fn folios(&mut self, handle: Handle, first: u64, take: &mut dyn FnMut(u64, u64)) -> bool {
        let Some(page_flags) = self.page_flags else { return false };
        let Some(file) = self.names.open_to_read(handle) else { return false };
        match page_flags.folios(file.as_fd(), first, FOLIO_WINDOW_PAGES) {
            Ok(folios) => {
                folios.into_iter().for_each(|(first, pages)| take(first, pages));
                true
            }
            Err(_) => false,
        }
    }

    fn program(&mut self, pid: u32) -> Option<String> {
        system::program_of_thread(pid)
    }

    fn control_group(&mut self, pid: u32) -> Option<String> {
        system::control_group(pid)
    }
}

/// Records the accesses of `subject` into `sink`. Before it begins, it logs which accesses this
/// kernel cannot show.
///
/// # Errors
///
/// The kernel does not permit a source of records, the subject does not exist, or the sink fails.
pub fn record(
    subject: Subject,
    options: &Options,
    sink: &mut dyn Sink,
    stop: &mut dyn Stop,
) -> Result<Recorded, Error> {
    let tracefs = Tracefs::open()?;
    let mounts = listened(&subject, options)?;
    let mut recorder = Recorder::new(&tracefs, &mounts, &subject, options)?;
    let kinds: Vec<&str> = mounts.iter().map(|mount| &*mount.kind).collect();
    let all = match &subject {
        Subject::Command(_) | Subject::Processes(_) => true,
        Subject::FileSystems(paths) => paths.is_empty(),
        Subject::Path(_) | Subject::Device(_) => false,
    };
    for hidden in system::hidden().iter().filter(|_| all && options.under.is_none()) {
        warn!("{hidden}: accesses to it are not recorded");
    }
    for blind in tracefs::blind_spots(&tracefs, &kinds, options.exact) {
        warn!("{blind}");
    }
    if recorder.clock == Clock::Monotonic {
        warn!(
            "this kernel's records have no CLOCK_BOOTTIME: times are CLOCK_MONOTONIC, which stops \
             in suspend"
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
    recorder.knows.sizes =
        options.under.is_some() || matches!(subject, Subject::Path(_) | Subject::Device(_));
    let child = recorder.begin(subject, options, &mounts)?;
    stop.begun();
    // Buffers fill while this thread waits for a processor. Its priority rises after the program
    // has started, which does not inherit it.
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
    // One file system is recorded on purpose if a path or a device was named.
    let everywhere = all && options.under.is_none();
    for (dev, count) in recorder.machine.elsewhere().iter().filter(|_| everywhere) {
        let kind = system::kind_of(*dev).unwrap_or_else(|| "unmounted file system".to_owned());
        let reason = format!("access on {kind}, which is not recorded (--strace sees its calls)");
        let known = summary.skipped.iter().find(|(known, _)| **known == reason);
        let count = count + known.map_or(0, |(_, reason)| reason.count);
        summary.skipped.restore(reason, Reason { count, first: 0, damage: false, note: true });
    }
    if recorder.unplaced > 0 {
        summary.skipped.add_many(PLACES_UNKNOWN, 0, recorder.unplaced);
    }
    if lost.names {
        summary.skipped.add(NAMES_LOST, 0);
    }
    Ok(Recorded { summary, lost, status })
}

/// The file systems to record.
fn listened(subject: &Subject, options: &Options) -> Result<Vec<Mounted>, Error> {
    let mounts = system::mounts();
    let meta = |path: &PathBuf| path.metadata().map_err(|e| at(path, e));
    // None: all of them.
    let devs = match (subject, &options.under) {
        (Subject::Path(path), _) | (_, Some(path)) => vec![dev_of(meta(path)?.dev())],
        (Subject::Command(_) | Subject::Processes(_), None) => Vec::new(),
        (Subject::Device(path), None) => vec![dev_of(meta(path)?.rdev())],
        (Subject::FileSystems(paths), None) => {
            let table = Table::read().map_err(|e| at(Path::new("/proc/self/mountinfo"), e))?;
            let dev = |path: &PathBuf| table.find(path).map(|(_, mount)| dev_of(mount.dev));
            paths.iter().map(|path| dev(path).map_err(|e| at(path, e))).collect::<Result<_, _>>()?
        }
    };
    let modelled = matches!(subject, Subject::FileSystems(_));
    let is_chosen = |m: &&Mounted| {
        let is_named = devs.contains(&m.dev) || devs.contains(&m.stat_dev);
        (devs.is_empty() || is_named) && (!modelled || system::can_record(&m.kind))
    };
    let chosen: Vec<_> = mounts.iter().filter(is_chosen).cloned().collect();
    if chosen.is_empty() {
        let known: Vec<_> =
            mounts.iter().map(|m| format!("{} ({})", m.path.display(), m.kind)).collect();
        let hidden =
            system::hidden().iter().map(|hidden| format!("; {hidden}")).collect::<String>();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(match modelled {
            true => Error::Nothing(format!(
                "only ext4 and F2FS are examined; on XFS and btrfs, `flashsift record --path DIR` \
                 and `flashsift describe` show what programs write; mounted here: {known}{hidden}"
            )),
            false => Error::NoFileSystem(format!(
                "only mounted ext4, F2FS and XFS file systems can be recorded, and a single btrfs \
                 by its whole; here that is {known}{hidden}"
            )),
        });
    }
    Ok(chosen)
}

/// Whether a file system is mounted whose buffered reads no tracepoint of this kernel reports.
/// `false` if this process may not list the tracepoints.
///
/// # Errors
///
/// tracefs is not permitted.
pub fn lacks_reads() -> Result<bool, Error> {
    let tracefs = Tracefs::open()?;
    if !tracefs.lists_events() {
        return Ok(false);
    }
    let mounts = system::mounts();
    let kinds: Vec<&str> = mounts.iter().map(|mount| &*mount.kind).collect();
    Ok(tracefs::lacks_reads(&tracefs, &kinds))
}

/// Returns the mount points of the file systems that [`Subject::FileSystems`] records.
///
/// # Errors
///
/// A path cannot be read, or none of the file systems can be recorded.
pub fn file_systems(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let options = Options { under: None, exact: false, buffer_kib: 0 };
    let mounts = listened(&Subject::FileSystems(paths.to_vec()), &options)?;
    Ok(mounts.into_iter().map(|mount| mount.path).collect())
}

/// The file system of all mounts, if they have the same one and its rules are known.
fn one_kind(mounts: &[Mounted]) -> Option<FileSystemKind> {
    let (first, others) = mounts.split_first()?;
    let same = others.iter().all(|mount| mount.kind == first.kind);
    FileSystemKind::named(&first.kind).filter(|_| same)
}

/// Filter for one device, if the tracepoint has a device field.
fn on_device(spec: &TracepointSpec, dev: Dev) -> Option<String> {
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
    /// Accesses to files by all processes.
    accesses: Instance,
    /// Page faults and system calls. The kernel filters those of other processes, which would be
    /// too many.
    faults: Instance,
    maps: Vec<Ring>,
    maps_lost: u64,
    names: Names,
    /// `None` where this process may not read them.
    page_flags: Option<PageFlags>,
    machine: TracepointMachine,
    clock: Clock,
    pressure: Option<Pressure>,
    /// Knowledge that the trace will claim.
    knows: Knows,
    /// The trace's head was handed on, before its first event.
    about: bool,
    /// Records that have been read and wait for older ones.
    points: Vec<Point>,
    /// Whether the places of all files are looked up at the end.
    places_at_end: bool,
    /// Files whose places at the end are unknown.
    unplaced: u64,
}

impl Recorder {
    fn new(
        tracefs: &Tracefs,
        mounts: &[Mounted],
        subject: &Subject,
        options: &Options,
    ) -> Result<Self, Error> {
        let clock = tracefs.clock();
        let mut accesses = Instance::new(tracefs, "accesses", options.buffer_kib, clock)?;
        let mut faults = Instance::new(tracefs, "faults", options.buffer_kib, clock)?;
        // Accesses to other devices need not fill the buffers.
        let only = match (subject, &options.under, mounts) {
            (Subject::Command(_) | Subject::Processes(_), None, _) => None,
            // The numbers of btrfs differ from one tracepoint to another.
            (_, _, [mount]) if mount.kind != "btrfs" => Some(mount.dev),
            _ => None,
        };
        let mut placed = Vec::new();
        let f2fs = mounts.iter().any(|mount| mount.kind == "f2fs");
        let ext4 = mounts.iter().any(|mount| mount.kind == "ext4");
        let btrfs = mounts.iter().any(|mount| mount.kind == "btrfs");
        let wanted = |need| match need {
            Need::Addresses | Need::Calls => false,
            Need::Sizes => btrfs,
            _ => true,
        };
        for spec in tracefs::specs(wanted) {
            // F2FS reports its calls itself; tracepoints of the page cache would report them twice.
            let twice =
                f2fs && !ext4 && spec.system == "filemap" && spec.name == "mm_filemap_get_pages";
            if !twice {
                let filter = only.and_then(|dev| on_device(spec, dev));
                let enabled = accesses.enable(spec, filter.as_deref())?;
                if enabled && spec.need == Need::Places {
                    placed.push(spec.system);
                }
            }
        }
        let places = !matches!(subject, Subject::FileSystems(_))
            && mounts.iter().all(|mount| placed.contains(&&*mount.kind));
        let opens = options.exact && faults.enable_calls()? > 0;
        for spec in tracefs::specs(|need| need == Need::Addresses) {
            faults.enable(spec, None)?;
        }
        let mut machine = TracepointMachine::new(!tracefs::has_direct_ends(tracefs));
        machine.only_devs(mounts.iter().map(|mount| (mount.dev, mount.block_bytes)));
        for mount in mounts {
            match &*mount.kind {
                "f2fs" => machine.f2fs(mount.dev, &mount.path.to_string_lossy()),
                "btrfs" => machine.btrfs(mount.dev),
                _ => {}
            }
            if !system::can_record(&mount.kind) {
                machine.without_allocations(mount.dev);
            }
        }
        let under = match subject {
            Subject::Path(path) => Some(path),
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
            creations: true,
            names: true,
            pressure: pressure.is_some(),
            places,
            file_system: one_kind(mounts),
            ..Knows::NOTHING
        };
        Ok(Self {
            accesses,
            faults,
            maps: maps.unwrap_or_default(),
            maps_lost: 0,
            names: Names::watch(mounts)?,
            page_flags: PageFlags::open().ok(),
            machine,
            clock,
            pressure,
            knows,
            about: false,
            points: Vec::new(),
            places_at_end: !matches!(subject, Subject::FileSystems(_)),
            unplaced: 0,
        })
    }

    /// Starts tracing, and then the traced program.
    fn begin(
        &mut self,
        subject: Subject,
        options: &Options,
        mounts: &[Mounted],
    ) -> Result<Option<Child>, Error> {
        let me = std::process::id();
        if matches!(subject, Subject::Command(_)) {
            // The children of this thread.
            self.faults.only(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())?;
        }
        self.accesses.start()?;
        self.faults.start()?;
        let Self { machine, points, clock, .. } = self;
        let now_ns = || clock.now_ns();
        if let Some(root) = &options.under {
            let root = root.canonicalize().map_err(|e| at(root, e))?;
            system::scan(&root, mounts, &now_ns, &mut |name| machine.name(name));
        }
        let child = match subject {
            Subject::Command(mut command) => {
                let program = command.get_program().to_string_lossy().into_owned();
                let child = command.spawn().map_err(|e| Error::At { path: program, what: e })?;
                machine.only_tasks([child.id()]);
                Some(child)
            }
            Subject::Processes(pids) => {
                let mut open_files = OpenFiles::on(mounts);
                for &pid in &pids {
                    if !Path::new("/proc").join(pid.to_string()).exists() {
                        return Err(Error::Nothing(format!("there is no process {pid}")));
                    }
                    open_files.each(pid, now_ns(), &mut |name| machine.name(name));
                    machine.only_tasks(system::threads(pid));
                }
                system::processes(machine, Some(&pids), now_ns(), points);
                None
            }
            Subject::Path(root) => {
                let root = root.canonicalize().map_err(|e| at(&root, e))?;
                system::scan(&root, mounts, &now_ns, &mut |name| machine.name(name));
                machine.never_tasks(system::threads(me));
                system::processes(machine, None, now_ns(), points);
                None
            }
            Subject::Device(device) => {
                let dev = dev_of(device.metadata().map_err(|e| at(&device, e))?.rdev());
                for mount in system::mounts().iter().filter(|mount| mount.dev == dev) {
                    system::scan(&mount.path, mounts, &now_ns, &mut |name| machine.name(name));
                }
                machine.never_tasks(system::threads(me));
                system::processes(machine, None, now_ns(), points);
                None
            }
            Subject::FileSystems(_) => {
                machine.never_tasks(system::threads(me));
                let mut open_files = OpenFiles::on(mounts);
                for pid in system::all() {
                    open_files.each(pid, now_ns(), &mut |name| machine.name(name));
                }
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
        let mut emitted = 0;
        loop {
            self.wait();
            if let Some(child) = &mut child
                && status.is_none()
            {
                status = child
                    .try_wait()
                    .map_err(|e| Error::At { path: "the program".into(), what: e })?;
            }
            let over = status.is_some()
                || stop.now(emitted)
                || child.is_none() && !self.machine.is_anybody_there();
            if over {
                self.accesses.stop()?;
                self.faults.stop()?;
                if let (Some(child), None) = (&child, status) {
                    // The program was started only to be recorded.
                    let pid = rustix::process::Pid::from_child(child);
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                }
            }
            emitted += self.look(if over { u64::MAX } else { LAG_NS }, events)?;
            if over {
                self.machine.finish();
                self.hand_on(events)?;
                if self.places_at_end {
                    self.place_all(events)?;
                }
                self.describe_trace(events)?;
                return Ok(status);
            }
        }
    }

    fn wait(&self) {
        let fds = self.accesses.fds().chain(self.faults.fds()).chain(self.names.fds());
        let fds = fds.chain(self.maps.iter().map(Ring::fd));
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_MS * 1_000_000 };
        // A signal ends the wait, too.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// Processes all records older than `lag_ns`.
    fn look(&mut self, lag_ns: u64, events: &mut Events<'_>) -> Result<u64, Error> {
        let now_ns = self.clock.now_ns();
        let Self {
            accesses,
            faults,
            maps,
            names,
            page_flags,
            machine,
            points,
            clock,
            pressure,
            ..
        } = self;
        if let Some(stalled_ppm) = pressure.as_mut().and_then(|pressure| pressure.sample(now_ns)) {
            let what = tracepoint::What::MemoryPressure { stalled_ppm };
            points.push(Point { at_ns: now_ns, tid: 0, what });
        }
        for ring in maps {
            self.maps_lost += ring.drain(|point| points.push(point));
        }
        faults.drain(points)?;
        accesses.drain(points)?;
        // After the points: the name of a file is reported in the same system call as its
        // allocation, but later.
        names.drain(|| clock.now_ns(), |name| machine.name(name))?;
        points.sort_by_key(|point| point.at_ns);
        let until_ns = if lag_ns == u64::MAX { u64::MAX } else { now_ns.saturating_sub(lag_ns) };
        let ripe = points.partition_point(|point| point.at_ns <= until_ns);
        let mut host = System { names, page_flags: page_flags.as_ref() };
        for point in points.drain(..ripe) {
            machine.point(&point, &mut host);
        }
        if lag_ns != u64::MAX {
            machine.passed(until_ns);
        }
        self.hand_on(events)
    }

    fn hand_on(&mut self, events: &mut Events<'_>) -> Result<u64, Error> {
        let mut emitted = 0;
        // Time 0 is known with the first point, and there is no event before it.
        if self.machine.start_ns().is_some() {
            self.describe_trace(events)?;
        }
        for event in self.machine.drain() {
            emitted += 1;
            events.push(event)?;
        }
        Ok(emitted)
    }

    /// Hands on where the data of all files lies now.
    fn place_all(&mut self, events: &mut Events<'_>) -> Result<(), Error> {
        self.machine.passed(self.clock.now_ns());
        for Survivor { file, handle } in self.machine.survivors() {
            match self.names.extents(handle) {
                Some(extents) => {
                    for Extent { offset, len, at } in extents {
                        self.machine.place(file, offset, len, at);
                    }
                }
                None => self.unplaced += 1,
            }
            self.hand_on(events)?;
        }
        Ok(())
    }

    fn describe_trace(&mut self, events: &mut Events<'_>) -> Result<(), Error> {
        if std::mem::replace(&mut self.about, true) {
            return Ok(());
        }
        let start_ns = self.machine.start_ns();
        let epoch_us = start_ns.map(|at_ns| self.clock.epoch_us(at_ns));
        // The other clock stops in suspend, so no difference leads from one to the other.
        let boot_us = start_ns.filter(|_| self.clock == Clock::Boot).map(|at_ns| at_ns / 1000);
        let about =
            About { epoch_us, boot_us, side: Side::Before, space: Space::Files, knows: self.knows };
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

/// Number of processors by the highest number: processors outside this process's affinity trace as
/// well.
fn online_cpus() -> usize {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let last = online.trim().rsplit([',', '-']).next().and_then(|n| n.parse::<usize>().ok());
    last.map_or(1, |n| n + 1)
}
