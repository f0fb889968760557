//! A tracing instance of its own, with its events and buffers; removed when it is dropped.

use crate::{
    Error,
    format::{Format, Slot, TraceRecord},
    ring, syscalls,
    system::Clock,
};
use flashsift_traces::tracepoint::{ALL, EnteredCall, Need, Point, TracepointSpec, What};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, Mode, OFlags},
    io::Errno,
    mount,
};
use std::{
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// tracefs, in a mount of this process at no visible place: no other process can unmount it or put
/// another file system over it, and it is gone when the process ends, however it ends.
pub(crate) struct Tracefs {
    root: PathBuf,
    /// Keeps the mount.
    _mount: OwnedFd,
}

/// The places of tracefs in every system. It is not looked for elsewhere: a mount in a directory of
/// another user or in the root of a container is theirs.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// `TRACEFS_MAGIC` of `linux/magic.h`.
const MAGIC: u32 = 0x7472_6163;
/// The name of tracefs in messages.
const SHOWN: &str = "tracefs";

/// Prefix of instances of flashsift; the number of the process follows.
const PREFIX: &str = "flashsift-";

impl Tracefs {
    /// Mounts tracefs, and removes the instances of killed recorders.
    ///
    /// # Errors
    ///
    /// tracefs is not permitted.
    pub(crate) fn open() -> Result<Self, Error> {
        let mount = match PLACES.iter().find_map(|place| copy_of(place)) {
            Some(mount) => mount,
            None => new_mount().map_err(|e| Error::not_allowed("mounting tracefs", &e.into()))?,
        };
        let root = format!("/proc/self/fd/{}", mount.as_raw_fd()).into();
        let tracefs = Self { root, _mount: mount };
        tracefs.clean();
        Ok(tracefs)
    }

    /// Removes the instances of recorders that no longer run.
    fn clean(&self) {
        for entry in std::fs::read_dir(self.root.join("instances")).into_iter().flatten().flatten()
        {
            let name = entry.file_name();
            let Some(owner) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
                continue;
            };
            // Others may have begun a name with this prefix, too.
            let pid = owner.split('-').next().unwrap_or(owner);
            if pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists() {
                let _ = std::fs::remove_dir(entry.path());
            }
        }
    }

    /// The clock to stamp records with: one that does not stop in suspend, where the kernel has it.
    pub(crate) fn clock(&self) -> Clock {
        // `[local] global counter uptime perf mono mono_raw boot`
        let clocks = std::fs::read_to_string(self.root.join("trace_clock")).unwrap_or_default();
        let has =
            |name| clocks.split_whitespace().any(|clock| clock.trim_matches(['[', ']']) == name);
        if has(Clock::Boot.trace_clock()) { Clock::Boot } else { Clock::Monotonic }
    }

    /// Whether this process may see which tracepoints there are.
    pub(crate) fn lists_events(&self) -> bool {
        std::fs::read_dir(self.root.join("events")).is_ok()
    }

    pub(crate) fn has(&self, system: &str, name: &str) -> bool {
        self.root.join("events").join(system).join(name).is_dir()
    }
}

/// Returns a mount of our own of the tracefs at this place, if there is one. Where we may not
/// mount, it is that place itself.
///
/// A new mount would do as well, but kernels before 6.10 take its options for those of all mounts,
/// and so could take tracefs away from users to whom it was given.
fn copy_of(place: &str) -> Option<OwnedFd> {
    use mount::OpenTreeFlags as Flags;
    let flags = Flags::OPEN_TREE_CLONE | Flags::OPEN_TREE_CLOEXEC;
    let found = mount::open_tree(fs::CWD, place, flags).or_else(|_| {
        fs::open(place, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    });
    let found = found.ok()?;
    (fs::fstatfs(&found).ok()?.f_type as u32 == MAGIC).then_some(found)
}

fn new_mount() -> rustix::io::Result<OwnedFd> {
    let context = mount::fsopen("tracefs", mount::FsOpenFlags::FSOPEN_CLOEXEC)?;
    mount::fsconfig_create(context.as_fd())?;
    mount::fsmount(
        context.as_fd(),
        mount::FsMountFlags::FSMOUNT_CLOEXEC,
        mount::MountAttrFlags::empty(),
    )
}

/// Decoder of one tracepoint's records.
enum Decoder {
    Tracepoint(&'static TracepointSpec, Vec<Slot>),
    Call(fn(&[u64; 6]) -> EnteredCall, Vec<Slot>),
    Leave(Vec<Slot>),
}

impl Decoder {
    fn decode(&self, bytes: &[u8]) -> Option<What> {
        let number = |slots, n| {
            flashsift_traces::tracepoint::Values::number(&TraceRecord { bytes, slots }, n)
        };
        match self {
            Self::Tracepoint(spec, slots) => (spec.read)(&TraceRecord { bytes, slots }),
            Self::Call(read, slots) => {
                let mut arguments = [0; 6];
                for (n, argument) in arguments.iter_mut().enumerate().take(slots.len()) {
                    *argument = number(slots, n);
                }
                Some(What::Enter(read(&arguments)))
            }
            Self::Leave(slots) => Some(What::Leave { result: number(slots, 0).cast_signed() }),
        }
    }
}

/// An instance with its own buffers and events.
pub(crate) struct Instance {
    path: PathBuf,
    /// The path for messages.
    shown: PathBuf,
    decoders: Vec<Option<Decoder>>,
    cpus: Vec<Cpu>,
    page: Vec<u8>,
    /// Number of reads that take the whole buffer of one processor.
    pages: u64,
}

struct Cpu {
    number: u32,
    pipe: OwnedFd,
    /// Lost records, as reported by the pages.
    lost: u64,
}

impl Instance {
    /// Creates an instance with buffers of `buffer_kib` for each processor. `name` distinguishes
    /// the instances of one process.
    ///
    /// # Errors
    ///
    /// The instance cannot be created.
    pub(crate) fn new(
        tracefs: &Tracefs,
        name: &str,
        buffer_kib: u64,
        clock: Clock,
    ) -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let name = format!("instances/{PREFIX}{pid}-{name}{count}");
        let (path, shown) = (tracefs.root.join(&name), Path::new(SHOWN).join(&name));
        std::fs::create_dir(&path).map_err(|e| Error::not_allowed("a tracing instance", &e))?;
        let mut instance = Self {
            path,
            shown,
            decoders: Vec::new(),
            cpus: Vec::new(),
            page: Vec::new(),
            pages: 0,
        };
        instance.write("tracing_on", "0")?;
        instance.write("trace_clock", clock.trace_clock())?;
        // Larger sub-buffers need fewer reads; kernels before 6.8 have pages only.
        let _ = instance.write("buffer_subbuf_size_kb", "64");
        instance.write("buffer_size_kb", &buffer_kib.to_string())?;
        let _ = instance.write("buffer_percent", "25");
        for option in ["irq-info", "record-tgid", "markers"] {
            let _ = instance.write(&format!("options/{option}"), "0");
        }
        let subbuffer_kib = instance
            .read("buffer_subbuf_size_kb")
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(4);
        // The number of lost records may follow the last byte.
        instance.page = vec![0; subbuffer_kib as usize * 1024 + 64];
        // One more that the reader holds, and two that are partly filled.
        instance.pages = buffer_kib.div_ceil(subbuffer_kib) + 3;
        Ok(instance)
    }

    /// Enables a tracepoint; `false` if this kernel does not have it.
    pub(crate) fn enable(
        &mut self,
        spec: &'static TracepointSpec,
        filter: Option<&str>,
    ) -> Result<bool, Error> {
        let folder = format!("events/{}/{}", spec.system, spec.name);
        let Some(format) =
            self.read(&format!("{folder}/format")).and_then(|text| Format::parse(&text))
        else {
            return Ok(false);
        };
        let Some(slots) = format.slots(spec.fields) else { return Ok(false) };
        let filters: Vec<_> = [spec.filter, filter].into_iter().flatten().collect();
        self.decode(format.id, Decoder::Tracepoint(spec, slots));
        self.switch_on(&folder, &filters)?;
        Ok(true)
    }

    /// Enables events of all threads except this one. Records of the reading thread would grow with
    /// each read.
    fn switch_on(&self, folder: &str, filters: &[&str]) -> Result<(), Error> {
        let others = format!("common_pid != {}", rustix::thread::gettid());
        let filters: Vec<_> =
            filters.iter().copied().chain([&*others]).map(|f| format!("({f})")).collect();
        self.write(&format!("{folder}/filter"), &filters.join(" && "))?;
        self.write(&format!("{folder}/enable"), "1")
    }

    /// Enables the system calls that `--exact` records, and returns how many of them this kernel
    /// has.
    pub(crate) fn enable_calls(&mut self) -> Result<usize, Error> {
        let mut found = 0;
        for spec in syscalls::ALL {
            for side in ["enter", "exit"] {
                let folder = format!("events/syscalls/sys_{side}_{}", spec.name);
                let Some(format) =
                    self.read(&format!("{folder}/format")).and_then(|text| Format::parse(&text))
                else {
                    continue;
                };
                let decoder = match side {
                    "enter" => Decoder::Call(spec.read, format.arguments()),
                    _ => match format.slots(&["ret"]) {
                        Some(slots) => Decoder::Leave(slots),
                        None => continue,
                    },
                };
                self.decode(format.id, decoder);
                self.switch_on(&folder, &[])?;
                found += 1;
            }
        }
        Ok(found)
    }

    fn decode(&mut self, id: u16, decoder: Decoder) {
        let id = usize::from(id);
        if self.decoders.len() <= id {
            self.decoders.resize_with(id + 1, || None);
        }
        self.decoders[id] = Some(decoder);
    }

    /// Restricts the instance to this thread and its descendants.
    pub(crate) fn only(&self, tid: u32) -> Result<(), Error> {
        self.write("options/event-fork", "1")?;
        self.write("set_event_pid", &tid.to_string())
    }

    /// Opens the buffers and starts tracing.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let mut numbers: Vec<u32> = std::fs::read_dir(self.path.join("per_cpu"))
            .map_err(|e| Error::tracefs(&self.shown.join("per_cpu"), &e))?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        for number in numbers {
            let file = format!("per_cpu/cpu{number}/trace_pipe_raw");
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let pipe = fs::open(self.path.join(&file), flags, Mode::empty())
                .map_err(|e| Error::tracefs(&self.shown.join(&file), &e.into()))?;
            self.cpus.push(Cpu { number, pipe, lost: 0 });
        }
        self.write("tracing_on", "1")
    }

    /// Stops tracing; pending records can still be read.
    pub(crate) fn stop(&self) -> Result<(), Error> {
        self.write("tracing_on", "0")
    }

    /// Returns descriptors that become readable when records arrive.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus.iter().map(|cpu| cpu.pipe.as_fd())
    }

    /// Enables a tracepoint whose records the caller decodes. Returns its number and the positions
    /// of the fields, or `None` if this kernel lacks the tracepoint or one of them.
    pub(crate) fn enable_fields(
        &self,
        folder: &str,
        fields: &[&str],
        filters: &[&str],
    ) -> Result<Option<(u16, Vec<Slot>)>, Error> {
        let folder = format!("events/{folder}");
        let format = self.read(&format!("{folder}/format")).and_then(|text| Format::parse(&text));
        let Some(format) = format else { return Ok(None) };
        let Some(slots) = format.slots(fields) else { return Ok(None) };
        self.switch_on(&folder, filters)?;
        Ok(Some((format.id, slots)))
    }

    /// Reads and decodes the pending records, as [`Self::drain_records`] does.
    pub(crate) fn drain(&mut self, points: &mut Vec<Point>) -> Result<(), Error> {
        let decoders = std::mem::take(&mut self.decoders);
        let drained = self.drain_records(|at_ns, id, tid, record| {
            if let Some(Some(decoder)) = decoders.get(usize::from(id))
                && let Some(what) = decoder.decode(record)
            {
                points.push(Point { at_ns, tid, what });
            }
        });
        self.decoders = decoders;
        drained
    }

    /// Reads the pending records of each processor in order, at most as many as the buffers hold.
    /// Otherwise a program that is as fast as the reader would keep it here for ever. `take` gets
    /// the time, the number of the tracepoint, the thread and the record.
    pub(crate) fn drain_records(
        &mut self,
        mut take: impl FnMut(u64, u16, u32, &[u8]),
    ) -> Result<(), Error> {
        for cpu in &mut self.cpus {
            for _ in 0..self.pages {
                let bytes = match rustix::io::read(&cpu.pipe, &mut *self.page) {
                    Ok(0) | Err(Errno::AGAIN) => break,
                    Ok(bytes) => bytes,
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(Error::tracefs(&self.shown, &error.into())),
                };
                let page = ring::records(&self.page[..bytes], |at_ns, record| {
                    if let Some((id, tid)) = ring::head(record) {
                        take(at_ns, id, tid, record);
                    }
                });
                cpu.lost += page.lost;
            }
        }
        Ok(())
    }

    /// Returns the numbers of lost records by processor.
    pub(crate) fn lost(&self) -> Vec<(u32, u64)> {
        let lost = |cpu: &Cpu| {
            let stats = self.read(&format!("per_cpu/cpu{}/stats", cpu.number)).unwrap_or_default();
            let count = |key: &str| {
                let value = stats.lines().find_map(|line| line.strip_prefix(key));
                value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
            };
            (count("overrun:") + count("dropped events:") + count("commit overrun:")).max(cpu.lost)
        };
        self.cpus.iter().map(|cpu| (cpu.number, lost(cpu))).filter(|(_, lost)| *lost > 0).collect()
    }

    fn read(&self, file: &str) -> Option<String> {
        std::fs::read_to_string(self.path.join(file)).ok()
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Error> {
        std::fs::write(self.path.join(file), text)
            .map_err(|error| Error::tracefs(&self.shown.join(file), &error))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.stop();
        self.cpus.clear();
        if let Err(error) = std::fs::remove_dir(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(
                "{} could not be removed ({error}); the next recording removes it",
                self.shown.display()
            );
        }
    }
}

/// Whether buffered reads of one of these types of file systems have no tracepoint.
pub(crate) fn lacks_reads(tracefs: &Tracefs, filesystems: &[&str]) -> bool {
    filesystems.contains(&"ext4") && !tracefs.has("filemap", "mm_filemap_get_pages")
}

/// Describes the accesses that are invisible because this kernel lacks tracepoints.
pub(crate) fn blind_spots(tracefs: &Tracefs, filesystems: &[&str], exact: bool) -> Vec<String> {
    let has = |name: &str| {
        ALL.iter().any(|spec| spec.name == name && tracefs.has(spec.system, spec.name))
    };
    let mut blind = Vec::new();
    if lacks_reads(tracefs, filesystems) {
        blind.push(
            "this kernel has no tracepoint for buffered reads (mm_filemap_get_pages, Linux 6.12): \
             reads on ext4 are not recorded; --strace records them"
                .to_owned(),
        );
    }
    if !has("mm_filemap_fault") && !filesystems.contains(&"f2fs") {
        blind.push(
            "this kernel has no tracepoint for page faults on files: reads through mappings are \
             not recorded"
                .to_owned(),
        );
    }
    if !has("page_fault_user") {
        blind.push("this kernel does not report page-fault addresses: stores through mappings are known to the folio only".to_owned());
    }
    if filesystems.contains(&"f2fs") && !has("f2fs_dataread_start") && !has("f2fs_file_write_iter")
    {
        blind.push("F2FS in this kernel reports neither reads nor whole writes".to_owned());
    }
    if exact && !tracefs.root.join("events/syscalls").is_dir() {
        blind.push("this kernel has no system-call tracepoints: --exact adds nothing".to_owned());
    }
    blind
}

/// Whether direct accesses have a tracepoint for their completion.
pub(crate) fn has_direct_ends(tracefs: &Tracefs) -> bool {
    tracefs.has("iomap", "iomap_dio_complete")
}

/// Returns the tracepoints whose need matches.
pub(crate) fn specs(need: impl Fn(Need) -> bool) -> impl Iterator<Item = &'static TracepointSpec> {
    ALL.iter().filter(move |spec| need(spec.need))
}
