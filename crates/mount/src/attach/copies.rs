//! Copies of a mount in other mount namespaces, such as those of containers: the kernel keeps its
//! file system, and so its daemon, until the last of them is gone.

use super::undo;
use flashsift_host::mounts::{self, Mount, Table};
use rustix::{
    fs::{Mode, OFlags},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::{self, File},
    io,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
};

/// Number of holders that a message names.
const NAMED: usize = 10;

/// A keeper of a namespace that has a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A process in it.
    Process {
        /// Process number.
        pid: u32,
        /// Name of the process.
        program: String,
        /// Where the copy is mounted there.
        point: PathBuf,
    },
    /// A process elsewhere that has the namespace open.
    Open {
        /// Process number.
        pid: u32,
        /// Name of the process.
        program: String,
    },
    /// A file at which the namespace itself is mounted.
    Mounted(PathBuf),
}

/// Formats a holder: `sh (pid 12): is in a mount namespace that has it on /srv`
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, program, point } => {
                let point = point.display();
                write!(f, "{program} (pid {pid}): is in a mount namespace that has it on {point}")
            }
            Self::Open { pid, program } => {
                write!(f, "{program} (pid {pid}): has open a mount namespace that has it")
            }
            Self::Mounted(file) => {
                write!(f, "{}: keeps a mount namespace that has it", file.display())
            }
        }
    }
}

/// Lists holders, one a line.
pub fn listed(holders: &[Holder]) -> String {
    let mut text: String =
        holders.iter().take(NAMED).map(|holder| format!("  {holder}\n")).collect();
    if holders.len() > NAMED {
        text.push_str(&format!("  and {} more\n", holders.len() - NAMED));
    }
    text
}

/// Finds what keeps copies of a mount in other namespaces. This function also passes stores through
/// mappings of the copies on to the daemon. Only root sees those of other users.
///
/// # Errors
///
/// `/proc` cannot be read.
pub fn holders_of(mount: &Mount) -> io::Result<Vec<Holder>> {
    let ours = fs::read_link("/proc/self/ns/mnt")?;
    // By namespace, where it has the copy; with those of processes that have none.
    let mut places: BTreeMap<PathBuf, Option<Copy>> = BTreeMap::new();
    let mut holders = Vec::new();
    let processes = processes()?;
    for &pid in &processes {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        // It has ended, or is another user's.
        let Ok(namespace) = fs::read_link(proc.join("ns/mnt")) else { continue };
        if namespace == ours {
            continue;
        }
        let known = places.get(&namespace).cloned().flatten();
        let is_new = known.is_none();
        // A process with a root directory of its own may not see a mount that others see.
        let found = known.or_else(|| copy_in(&fs::read(proc.join("mountinfo")).ok()?, mount));
        if let Some(point) = &found {
            let Copy { point, leads } = point.clone();
            if is_new && leads {
                let _ = undo::flush_below(&proc.join("root"), &point);
            }
            let program = program(pid);
            holders.push(Holder::Process { pid, program, point });
        }
        places.insert(namespace, found);
    }
    places.insert(ours, None);
    // Namespaces without a process.
    let mut kept = BTreeSet::new();
    for &pid in &processes {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for descriptor in descriptors.flatten().map(|entry| entry.path()) {
            let Ok(namespace) = fs::read_link(&descriptor) else { continue };
            let is_one = namespace.as_os_str().as_encoded_bytes().starts_with(b"mnt:[");
            if is_one
                && !places.contains_key(&namespace)
                && kept.insert((pid, namespace))
                && is_in(&descriptor, mount)
            {
                holders.push(Holder::Open { pid, program: program(pid) });
            }
        }
    }
    for file in mounts::all()?.into_iter().filter(|file| file.kind == "nsfs") {
        if is_in(&file.point, mount) {
            holders.push(Holder::Mounted(file.point));
        }
    }
    Ok(holders)
}

fn processes() -> io::Result<Vec<u32>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        all.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    all.sort_unstable();
    Ok(all)
}

fn program(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

#[derive(Clone)]
struct Copy {
    point: PathBuf,
    /// The path leads to it, and to no server on the way that may not answer.
    leads: bool,
}

/// Finds the copy in a mount namespace with this `mountinfo`.
fn copy_in(mountinfo: &[u8], mount: &Mount) -> Option<Copy> {
    let table = Table::new(mounts::parse(mountinfo));
    let copy = table.all().iter().find(|other| other.is_copy_of(mount))?;
    Some(Copy { point: copy.point.clone(), leads: table.leads_to(copy) })
}

/// Whether the mount namespace that this file stands for has a copy. A thread looks from within it;
/// only root may.
fn is_in(namespace: &Path, mount: &Mount) -> bool {
    let look = || -> io::Result<bool> {
        // A descriptor that was a namespace a moment ago may be a pipe now.
        let nonblocking = OFlags::NONBLOCK.bits() as i32;
        let namespace = File::options().read(true).custom_flags(nonblocking).open(namespace)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", flags, Mode::empty())?;
        enter(&namespace)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let table = rustix::fs::openat(proc, "thread-self/mountinfo", flags, Mode::empty())?;
        let found = copy_in(io::read_to_string(File::from(table))?.as_bytes(), mount);
        if let Some(Copy { point, leads: true }) = &found {
            let _ = undo::flush_below(Path::new("/"), point);
        }
        Ok(found.is_some())
    };
    thread::scope(|scope| scope.spawn(look).join().is_ok_and(|found| found.unwrap_or(false)))
}

/// Moves this thread into a mount namespace.
#[expect(unsafe_code, reason = "rustix marks every unshare as unsafe")]
fn enter(namespace: &File) -> io::Result<()> {
    // Threads that share their working directory cannot.
    // SAFETY: descriptors, the only thing that would be unsafe, stay shared.
    unsafe { unshare_unsafe(UnshareFlags::FS) }?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?)
}
