//! The files that processes have open when a recording begins.
//!
//! A look at a file whose server does not answer would not end, so a descriptor is followed only if
//! it belongs to a mount of a recorded file system, which the kernel tells without a look at the
//! file. Its path is not followed at all: another mount may lie over it.

use crate::{
    fanotify::handle_of_open,
    system::{Mounted, descriptors, dev_of},
};
use flashsift_core::names::escape;
use flashsift_host::mounts;
use flashsift_traces::tracepoint::{Dev, Name, NameKind};
use rustix::{
    fd::AsFd,
    fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, open, statx},
};
use std::{collections::HashMap, fs, os::unix::ffi::OsStrExt};

/// Mounts of recorded file systems, by number, each with its device.
pub(crate) struct OpenFiles(HashMap<u64, Dev>);

impl OpenFiles {
    pub(crate) fn on(mounted: &[Mounted]) -> Self {
        let all = mounts::all().unwrap_or_default().into_iter();
        let recorded = |mount: mounts::Mount| {
            let dev = dev_of(mount.dev);
            mounted.iter().any(|recorded| recorded.dev == dev).then_some((mount.id, dev))
        };
        Self(all.filter_map(recorded).collect())
    }

    /// Passes the open files of a process to `take`, with their paths.
    pub(crate) fn each(&self, pid: u32, at_ns: u64, take: &mut impl FnMut(Name)) {
        for fd in descriptors(pid) {
            let is_recorded =
                mounts::of_descriptor(pid, fd).is_ok_and(|mount| self.0.contains_key(&mount));
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
        let dev = *self.0.get(&stat.stx_mnt_id)?;
        if !is_named || stat.stx_nlink == 0 {
            return None;
        }
        Some(Name {
            at_ns,
            tid: 0,
            handle: handle_of_open(file.as_fd(), dev)?,
            dir: 0,
            path: escape(path.as_os_str().as_bytes()).into(),
            directory: FileType::from_raw_mode(stat.stx_mode.into()).is_dir(),
            kind: NameKind::Found { size: stat.stx_size },
        })
    }
}
