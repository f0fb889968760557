//! Reads the state before a recording begins: mounts, processes, files.

use crate::fanotify::handle_of;
use flashsift_events::names::escape;
use flashsift_host::{
    memory::stalled_ppm_in,
    mounts::{Mount, Table},
};
use flashsift_traces::tracepoint::{
    Dev, Inode, Mapping, Name, NameKind, Point, TracepointMachine, What, is_interpreter,
};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::{
    collections::HashSet,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

/// The clock of all records and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// CLOCK_BOOTTIME, which runs on while the machine is suspended.
    Boot,
    /// CLOCK_MONOTONIC, where the kernel's tracing has no other that can be compared.
    Monotonic,
}

impl Clock {
    /// As the kernel's tracing calls it.
    pub(crate) fn trace_clock(self) -> &'static str {
        match self {
            Self::Boot => "boot",
            Self::Monotonic => "mono",
        }
    }

    /// As system calls number it.
    pub(crate) fn id(self) -> ClockId {
        match self {
            Self::Boot => ClockId::Boottime,
            Self::Monotonic => ClockId::Monotonic,
        }
    }

    pub(crate) fn now_ns(self) -> u64 {
        ns(clock_gettime(self.id()))
    }

    /// Returns the time since 1970 (UTC), in microseconds, at which this clock showed `at_ns`. It
    /// compares the present readings of both clocks.
    pub(crate) fn epoch_us(self, at_ns: u64) -> u64 {
        let (wall_ns, now_ns) = (ns(clock_gettime(ClockId::Realtime)), self.now_ns());
        (wall_ns.saturating_add(at_ns)).saturating_sub(now_ns) / 1000
    }
}

fn ns(time: Timespec) -> u64 {
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The machine's memory pressure, sampled.
pub(crate) struct Pressure {
    path: &'static Path,
    last_ppm: Option<u32>,
    due_ns: u64,
}

impl Pressure {
    const EVERY_NS: u64 = 1_000_000_000;

    /// `None` where the kernel does not tell it.
    pub(crate) fn new() -> Option<Self> {
        let path = Path::new("/proc/pressure/memory");
        let known = fs::read_to_string(path).ok().and_then(|text| stalled_ppm_in(&text));
        known.map(|_| Self { path, last_ppm: None, due_ns: 0 })
    }

    /// Reads the pressure once a second. Returns it if it has changed.
    pub(crate) fn sample(&mut self, now_ns: u64) -> Option<u32> {
        if now_ns < self.due_ns {
            return None;
        }
        self.due_ns = now_ns + Self::EVERY_NS;
        let ppm = fs::read_to_string(self.path).ok().and_then(|text| stalled_ppm_in(&text))?;
        (self.last_ppm.replace(ppm) != Some(ppm)).then_some(ppm)
    }
}

/// A mounted file system.
#[derive(Clone, Debug)]
pub(crate) struct Mounted {
    pub(crate) dev: Dev,
    /// The number that `stat` gives its files, which differs on btrfs.
    pub(crate) stat_dev: Dev,
    pub(crate) kind: String,
    pub(crate) path: PathBuf,
    pub(crate) block_bytes: u64,
}

/// Returns the kernel's device number for `st_dev`.
pub(crate) fn dev_of(st_dev: u64) -> Dev {
    Dev::new(rustix::fs::major(st_dev), rustix::fs::minor(st_dev))
}

/// Whether file systems of this type, as in `/proc/filesystems`, can be recorded, with all that
/// their models need.
pub fn can_record(kind: &str) -> bool {
    matches!(kind, "ext4" | "f2fs")
}

/// Whether accesses to file systems of this type can be recorded.
fn has_accesses(kind: &str) -> bool {
    can_record(kind) || matches!(kind, "xfs" | "btrfs")
}

/// Lists the mounted file systems that can be recorded, each once, by a path that leads to it
/// through local file systems.
pub(crate) fn mounts() -> Vec<Mounted> {
    let text = mountinfo();
    let mut mounts = mounts_in(&text, reachable(&text));
    // Tracepoints of btrfs do not tell one from another.
    if mounts_in(&text, |_| true).iter().filter(|mount| mount.kind == "btrfs").count() > 1 {
        mounts.retain(|mount| mount.kind != "btrfs");
    }
    for mount in &mut mounts {
        mount.block_bytes = rustix::fs::statvfs(&mount.path).map_or(4096, |stat| stat.f_bsize);
        if mount.kind == "btrfs"
            && let Ok(meta) = mount.path.metadata()
        {
            mount.stat_dev = dev_of(meta.dev());
        }
    }
    mounts
}

/// Returns the type of the file system with this number in tracepoints, if it is mounted.
pub(crate) fn kind_of(dev: Dev) -> Option<String> {
    if dev == Dev::default() {
        return Some("btrfs".to_owned());
    }
    let text = mountinfo();
    let line =
        text.lines().find(|line| line.split(' ').nth(2).and_then(Dev::parse) == Some(dev))?;
    Some(line.split_once(" - ")?.1.split(' ').next()?.to_owned())
}

/// Returns the table of mounts. A path in it that is not UTF-8 may belong to any user, so it keeps
/// no other mount from being found.
fn mountinfo() -> String {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// Describes the file systems that could be recorded, but lie under another mount wherever they are
/// mounted.
pub(crate) fn hidden() -> Vec<String> {
    let text = mountinfo();
    let reachable = mounts_in(&text, reachable(&text));
    let mut all = mounts_in(&text, |_| true);
    all.retain(|mount| reachable.iter().all(|other| other.dev != mount.dev));
    let describe = |mount: &Mounted| {
        let at = format!("{} ({})", mount.path.display(), mount.kind);
        format!("{at} is hidden by another mount over it, or below one that may not answer")
    };
    all.iter().map(describe).collect()
}

/// Tells which mounts, by number, a path leads to, from the mount table alone: a file system whose
/// server is dead is not asked.
fn reachable(mountinfo: &str) -> impl Fn(u64) -> bool {
    let table = Table::new(flashsift_host::mounts::parse(mountinfo.as_bytes()));
    let is_reachable = |mount: &&Mount| table.is_reachable(mount);
    let ids: HashSet<u64> = table.all().iter().filter(is_reachable).map(|mount| mount.id).collect();
    move |id| ids.contains(&id)
}

fn mounts_in(text: &str, is_reachable: impl Fn(u64) -> bool) -> Vec<Mounted> {
    let mut mounts: Vec<Mounted> = Vec::new();
    for line in text.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let fields: Vec<_> = before.split(' ').collect();
        let [id, _, dev, root, path, ..] = fields[..] else { continue };
        let Ok(id) = id.parse() else { continue };
        let kind = after.split(' ').next().unwrap_or_default();
        let Some(dev) = Dev::parse(dev) else { continue };
        // A bind mount of a part of the file system would give wrong paths.
        if !has_accesses(kind) || root != "/" || mounts.iter().any(|m| m.dev == dev) {
            continue;
        }
        let path = PathBuf::from(unescaped(path));
        if !is_reachable(id) {
            continue;
        }
        mounts.push(Mounted { dev, stat_dev: dev, kind: kind.to_owned(), path, block_bytes: 4096 });
    }
    mounts
}

/// Replaces escapes of mountinfo, such as `\\040` for a space.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        match after.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

/// Returns the threads of a process.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// Returns all processes.
pub(crate) fn all() -> Vec<u32> {
    numbers("/proc")
}

/// Returns the numbers of the descriptors of a process.
pub(crate) fn descriptors(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/fd"))
}

fn numbers(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Passes all running processes to the state machine: their threads, and for those in `pids` (for
/// all, if `None`) descriptors and mappings.
pub(crate) fn processes(
    machine: &mut TracepointMachine,
    pids: Option<&[u32]>,
    at_ns: u64,
    points: &mut Vec<Point>,
) {
    for pid in all() {
        let name = program_of(pid);
        let name = escape(&name);
        if let Some(path) = control_group(pid) {
            machine.found_group(pid, &path);
        }
        for tid in threads(pid) {
            machine.found_task(tid, pid, &name);
        }
        if pids.is_some_and(|pids| !pids.contains(&pid)) {
            continue;
        }
        for fd in descriptors(pid) {
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
            let offset =
                info.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok());
            if let (Some(offset), Ok(fd)) = (offset, i32::try_from(fd)) {
                machine.found_descriptor(pid, fd, offset);
            }
        }
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        points.extend(maps.lines().filter_map(mapping).map(|mapping| Point {
            at_ns,
            tid: pid,
            what: What::Map { pid, mapping },
        }));
    }
}

/// Returns the name of the program of a thread; `None` if the thread has ended.
pub(crate) fn program_of_thread(tid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let pid = field("Tgid:")?.parse().ok()?;
    let name = program_of(pid);
    // A process that ends between two reads loses its command line, and with it a script's name.
    let ended = field("VmSize:").is_some() && fs::read_link(format!("/proc/{pid}/exe")).is_err();
    if ended || name.is_empty() {
        return field("Name:").map(str::to_owned);
    }
    Some(escape(&name).into_owned())
}

/// Returns the name of the program that a running process runs.
fn program_of(pid: u32) -> Vec<u8> {
    let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let comm = comm.strip_suffix(b"\n").unwrap_or(&comm);
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    program_name(comm, exe.as_os_str().as_bytes(), &words).to_vec()
}

/// Chooses the name of a program among the name of its main thread, the path of its file and the
/// words of its command line, each ended by a zero byte.
///
/// The kernel cuts a program's name after 15 bytes, and a script's is in its command line. A main
/// thread that has given itself another name counts for its program's file.
fn program_name<'a>(comm: &'a [u8], exe: &'a [u8], words: &'a [u8]) -> &'a [u8] {
    const COMM_BYTES: usize = 15;
    let file_name = |path: &'a [u8]| path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    // A program that was replaced while it runs, as updates do.
    let exe = file_name(exe.strip_suffix(b" (deleted)").unwrap_or(exe));
    let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
    // A title that a program gives itself, as Redis does, has spaces. A descriptor names none.
    let title = |word: &&'a [u8]| word.split(|byte| *byte == b' ').next().unwrap_or(word);
    let is_name = |word: &&[u8]| !word.starts_with(b"/proc/") && !word.starts_with(b"/dev/fd/");
    let first = words.iter().take(2).map(title).filter(is_name).map(file_name);
    let is_of_comm =
        |name: &&[u8]| *name == comm || (comm.len() == COMM_BYTES && name.starts_with(comm));
    let named = [exe].into_iter().chain(first).find(is_of_comm);
    let name = named.unwrap_or(if exe.is_empty() { comm } else { exe });
    script_of(name, &words).map_or(name, file_name)
}

/// Returns the script or module that an interpreter runs.
fn script_of<'a>(name: &[u8], words: &[&'a [u8]]) -> Option<&'a [u8]> {
    if !is_interpreter(std::str::from_utf8(name).ok()?) {
        return None;
    }
    let mut rest = words.get(1..)?.iter().filter(|word| !word.is_empty());
    while let Some(word) = rest.next() {
        match *word {
            b"-m" | b"-jar" => return rest.next().copied(),
            // Its text is on the command line.
            b"-c" | b"-e" | b"-" => return None,
            _ if word.starts_with(b"-") => {}
            _ => return Some(word),
        }
    }
    None
}

/// Returns the path of a running process's control group: that of the second version, or else
/// systemd's of the first.
pub(crate) fn control_group(pid: u32) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/cgroup")).ok()?;
    group_path(&text)
}

fn group_path(text: &[u8]) -> Option<String> {
    let lines = || text.split(|byte| *byte == b'\n');
    let second = lines().find_map(|line| line.strip_prefix(b"0::"));
    let first = lines().find_map(|line| {
        let (_, rest) = (line.iter().position(|byte| *byte == b':')).map(|n| line.split_at(n))?;
        rest.strip_prefix(b":name=systemd:")
    });
    let path = second.filter(|path| *path != b"/").or(first).or(second)?;
    Some(escape(path).into_owned())
}

/// Parses a line such as `7f00-7f10 rw-s 00001000 07:00 12   /path`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let shared = words.next()?.as_bytes().get(3) == Some(&b's');
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let dev = Dev::new(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let ino: u64 = words.next()?.parse().ok()?;
    let inode = (ino != 0).then_some(Inode { dev, ino });
    Some(Mapping { start: hex(start)?, end: hex(end)?, inode, offset, shared })
}

/// Passes the files below a directory, on its own device, to the state machine.
pub(crate) fn scan(
    root: &Path,
    mounts: &[Mounted],
    now_ns: &dyn Fn() -> u64,
    take: &mut impl FnMut(Name),
) {
    let Ok(meta) = root.metadata() else { return };
    let device = meta.dev();
    let Some(mount) = mounts.iter().find(|mount| mount.stat_dev == dev_of(device)) else { return };
    found(root, mount.dev, 0, now_ns(), take);
    let mut folders = vec![(root.to_owned(), meta.ino())];
    while let Some((folder, ino)) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            let path = entry.path();
            let is_folder = meta.is_dir();
            if meta.dev() != device || !(is_folder || meta.is_file()) {
                continue;
            }
            found(&path, mount.dev, ino, now_ns(), take);
            if is_folder {
                folders.push((path, meta.ino()));
            }
        }
    }
}

/// Passes one file or directory to `take`.
fn found(path: &Path, dev: Dev, dir: u64, at_ns: u64, take: &mut impl FnMut(Name)) {
    let Ok(meta) = path.symlink_metadata() else { return };
    let Some(handle) = handle_of(path, dev) else { return };
    take(Name {
        at_ns,
        tid: 0,
        handle,
        dir,
        path: escape(path.as_os_str().as_bytes()).into(),
        directory: meta.is_dir(),
        kind: NameKind::Found { size: meta.len() },
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system was once recorded by its first mount point. `record -- true` failed with "No
    /// such device" beside a partition on whose root flashsift was mounted in place.
    // Promises: Record 25.
    #[test]
    fn a_file_system_is_recorded_by_a_path_that_leads_to_it() {
        let text = "\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 8:2 / /mnt/part rw - ext4 /dev/sdb1 rw
31 22 8:3 / /home rw - f2fs /dev/sdc1 rw
32 30 0:50 / /mnt/part rw - fuse.flashsift /mnt/part rw
33 22 8:3 /part /srv rw - f2fs /dev/sdc1 rw
";
        let paths = |reachable: &dyn Fn(u64) -> bool| -> Vec<_> {
            let mounts = mounts_in(text, reachable).into_iter();
            mounts.map(|mount| mount.path.display().to_string()).collect()
        };
        assert_eq!(paths(&reachable(text)), ["/", "/home"]);
        assert_eq!(paths(&|_| true), ["/", "/mnt/part", "/home"]);
        let twice = text.to_owned() + "40 22 8:2 / /mnt/again rw - ext4 /dev/sdb1 rw\n";
        let mounts = mounts_in(&twice, reachable(&twice));
        assert_eq!(mounts[2].path, Path::new("/mnt/again"));
    }

    // Promises: Record 22.
    #[test]
    fn a_program_has_the_name_of_its_file_and_a_script_its_own() {
        let exe: &[u8] = b"/usr/lib/firefox-esr/firefox-esr";
        let name = |comm: &'static str, exe: &'static [u8], words: &'static [u8]| {
            String::from_utf8(program_name(comm.as_bytes(), exe, words).to_vec()).unwrap()
        };
        assert_eq!(name("firefox-esr", exe, b"firefox-esr\0"), "firefox-esr");
        // The main thread of a process of Firefox.
        assert_eq!(name("Web Content", exe, b"/usr/lib/firefox-esr\0-c\0"), "firefox-esr");
        assert_eq!(
            name("systemd-journal", b"/usr/lib/systemd/systemd-journald", b""),
            "systemd-journald"
        );
        assert_eq!(name("app", b"/opt/app (deleted)", b"/opt/app\0"), "app");
        assert_eq!(name("backup", b"/usr/bin/python3", b"python3\0/home/u/backup\0"), "backup");
        // A title of its own, by a program that is reached by a link.
        let redis = b"/usr/bin/redis-server 127.0.0.1:6379\0";
        assert_eq!(name("redis-server", b"/usr/bin/redis-check-rdb", redis), "redis-server");
        // A child that its parent started by a descriptor.
        assert_eq!(name("exe", b"/usr/lib/chromium/chromium", b"/proc/self/exe\0"), "chromium");
        let python = b"/usr/bin/python3.11";
        assert_eq!(name("python3", python, b"python3\0-u\0/opt/logger.py\0a\0"), "logger.py");
        assert_eq!(name("python3", python, b"python3\0-m\0homeassistant\0"), "homeassistant");
        assert_eq!(name("python3", python, b"python3\0-c\0import os\0"), "python3");
        assert_eq!(name("sh", b"/usr/bin/dash", b"/bin/sh\0/etc/cron.daily/x\0"), "x");
        // A link to an interpreter is a program of its own.
        assert_eq!(name("logger", python, b"/opt/bin/logger\0/opt/l.py\0"), "logger");
        assert_eq!(name("java", b"/usr/lib/jvm/bin/java", b"java\0-jar\0/srv/a.jar\0"), "a.jar");
        // A thread of the kernel.
        assert_eq!(name("kworker/0:1", b"", b""), "kworker/0:1");
    }

    // Promises: Record 22.
    #[test]
    fn control_groups_of_both_versions_are_read() {
        let path = |text: &str| group_path(text.as_bytes());
        let (cron, user) = ("/system.slice/cron.service", "/user.slice");
        assert_eq!(path("0::/system.slice/cron.service\n").as_deref(), Some(cron));
        let both = "12:memory:/x\n1:name=systemd:/user.slice\n0::/\n";
        assert_eq!(path(both).as_deref(), Some(user));
        assert_eq!(path("4:memory:/x\n0::/\n").as_deref(), Some("/"));
        assert_eq!(path("4:memory:/x\n"), None);
        assert_eq!(path(""), None);
    }

    /// A sample is an event only where it differs from the last one.
    // Promises: Record 18.
    #[test]
    fn pressure_is_sampled_once_a_second_and_reported_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path: &'static Path = Box::leak(folder.path().join("memory").into_boxed_path());
        let set =
            |avg10: &str| fs::write(path, format!("some avg10={avg10} avg60=0.00\n")).unwrap();
        let mut pressure = Pressure { path, last_ppm: None, due_ns: 0 };
        set("0.00");
        assert_eq!(pressure.sample(5), Some(0));
        set("1.00");
        assert_eq!(pressure.sample(Pressure::EVERY_NS), None, "the second is not over");
        assert_eq!(pressure.sample(5 + Pressure::EVERY_NS), Some(10_000));
        assert_eq!(pressure.sample(5 + 2 * Pressure::EVERY_NS), None, "nothing changed");
    }

    // Promises: Record 19.
    #[test]
    fn the_epoch_is_the_wall_clock_at_a_time_of_ours() {
        for clock in [Clock::Boot, Clock::Monotonic] {
            let (before, now_ns) = (ns(clock_gettime(ClockId::Realtime)) / 1000, clock.now_ns());
            let (epoch, earlier) = (clock.epoch_us(now_ns), clock.epoch_us(now_ns - 1_000_000_000));
            // A second of slack: an NTP daemon may slew the clock.
            assert!(epoch.abs_diff(before) < 1_000_000, "{clock:?}: {epoch} {before}");
            assert!(
                (epoch - earlier).abs_diff(1_000_000) < 100_000,
                "{clock:?}: {epoch} {earlier}"
            );
        }
    }
}
