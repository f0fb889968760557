//! The files that processes have open when a recording begins.
//!
//! A look at a file whose server does not answer would not end, so a descriptor is followed only if
//! it belongs to a mount of a recorded file system, which the kernel tells without a look at the
//! file. Its path is not followed at all: another mount may lie over it.

use crate::{
    fanotify::handle_of_open,
    system::{Mounted, descriptors, dev_of},
};
use flashsift_events::names::escape;
use flashsift_host::mounts;
use flashsift_traces::tracepoint::{Dev, Name, NameKind};
use rustix::{
    fd::AsFd,
    fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, open, statx},
};
use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Mounts of recorded file systems, by number. Those of other mount namespaces, as containers and
/// services have them, are looked up with the first process there.
pub(crate) struct OpenFiles<'a> {
    mounted: &'a [Mounted],
    mounts: HashMap<u64, Found>,
    namespaces: HashSet<PathBuf>,
}

/// A mount of a recorded file system.
struct Found {
    dev: Dev,
    /// Mount point in another namespace, and the path of the same directory in this one.
    elsewhere: Option<(PathBuf, PathBuf)>,
}

impl Found {
    /// Returns the path in this namespace of a file that has this path in that of its mount.
    fn here(&self, path: PathBuf) -> Option<PathBuf> {
        let Some((point, here)) = &self.elsewhere else { return Some(path) };
        let below = path.strip_prefix(point).ok()?;
        Some(if below == Path::new("") { here.clone() } else { here.join(below) })
    }
}

impl<'a> OpenFiles<'a> {
    pub(crate) fn on(mounted: &'a [Mounted]) -> Self {
        let mut files = Self { mounted, mounts: HashMap::new(), namespaces: HashSet::new() };
        files.look_in("self");
        files
    }

    /// Adds the mounts of a process, unless those of its namespace are known.
    fn look_in(&mut self, pid: &str) {
        let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/mnt")) else { return };
        let is_ours = self.namespaces.is_empty();
        if !self.namespaces.insert(namespace) {
            return;
        }
        let table = fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        for mount in mounts::parse(&table) {
            let dev = dev_of(mount.dev);
            let Some(recorded) = self.mounted.iter().find(|one| one.dev == dev) else { continue };
            let elsewhere = (!is_ours).then(|| {
                let root = mount.root.strip_prefix("/").unwrap_or(&mount.root);
                (mount.point, recorded.path.join(root))
            });
            self.mounts.entry(mount.id).or_insert(Found { dev, elsewhere });
        }
    }

    /// Passes the open files of a process to `take`, with their paths.
    pub(crate) fn each(&mut self, pid: u32, at_ns: u64, take: &mut impl FnMut(Name)) {
        self.look_in(&pid.to_string());
        for fd in descriptors(pid) {
            let is_recorded =
                mounts::of_descriptor(pid, fd).is_ok_and(|mount| self.mounts.contains_key(&mount));
            if is_recorded && let Some(name) = self.name(pid, fd, at_ns) {
                take(name);
            }
        }
    }

    /// `None` for a file without a name.
    fn name(&self, pid: u32, fd: u32, at_ns: u64) -> Option<Name> {
        let link = format!("/proc/{pid}/fd/{fd}");
        let file = open(&link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let path = fs::read_link(&link).ok()?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stat = statx(&file, "", flags, mask).ok()?;
        let is_named = path.is_absolute() && !path.as_os_str().as_bytes().ends_with(b" (deleted)");
        // The number may have been given to another file meanwhile.
        let mount = self.mounts.get(&stat.stx_mnt_id)?;
        if !is_named || stat.stx_nlink == 0 {
            return None;
        }
        let path = mount.here(path)?;
        Some(Name {
            at_ns,
            tid: 0,
            handle: handle_of_open(file.as_fd(), mount.dev)?,
            dir: 0,
            path: escape(path.as_os_str().as_bytes()).into(),
            directory: FileType::from_raw_mode(stat.stx_mode.into()).is_dir(),
            kind: NameKind::Found { size: stat.stx_size },
        })
    }
}
