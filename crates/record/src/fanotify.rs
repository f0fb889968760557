//! Reads names from fanotify: creations, renames, links and deletions, with the handles of the
//! files.

#![allow(unsafe_code, reason = "rustix has neither fanotify nor file handles")]

use crate::{
    Error,
    fiemap::{self, Extent},
    system::{Mounted, dev_of},
};
use flashsift_events::names::escape;
use flashsift_traces::tracepoint::{Dev, Handle, Inode, Name, NameKind};
use rustix::{
    fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    io, mem,
    os::fd::AsRawFd,
    path::Path,
};

/// One queue for deletions and one for all other changes. While a queue is not read, changes of one
/// name are merged into one event, which loses the order of a creation and a deletion. Deletions
/// among themselves keep their order.
const MASKS: [u64; 2] = [
    libc::FAN_CREATE | libc::FAN_RENAME | libc::FAN_OPEN | libc::FAN_ONDIR,
    libc::FAN_DELETE | libc::FAN_ONDIR,
];
/// Capacity of a queue in events, which take 64 MiB of the kernel's memory or more. If names arrive
/// faster than they are read for long, some are lost.
const WAITING_MAX: u64 = 1 << 19;
/// `struct fanotify_event_metadata`, the head of an event. FIONREAD counts these bytes alone, not
/// the handles and names that follow.
const HEAD_BYTES: u64 = 24;
const INFO_FID: u8 = 1;
const INFO_DFID_NAME: u8 = 2;
const INFO_OLD_DFID_NAME: u8 = 10;
const INFO_NEW_DFID_NAME: u8 = 12;
/// Type of a file handle of a 32-bit inode number and a generation, as on ext4 and F2FS. The next
/// ones may also hold those of the directory.
const INO32_GEN: i32 = 1;
/// Of a 64-bit number and a generation, on large XFS.
const XFS_INO64_GEN: i32 = 0x81;
/// Of the number, the tree and the generation of a file on btrfs.
const BTRFS: i32 = 0x4d;
/// The tree of a btrfs that is not of a subvolume.
const BTRFS_TREE: u64 = 5;

/// `struct file_handle` with space for the largest handle.
#[repr(C)]
#[derive(Clone, Copy)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

impl FileHandle {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let len = u32_at(bytes, 0)?;
        let data = bytes.get(8..8 + len as usize)?;
        let mut handle = Self { bytes: len, kind: u32_at(bytes, 4)?.cast_signed(), data: [0; 128] };
        handle.data.get_mut(..data.len())?.copy_from_slice(data);
        Some(handle)
    }

    fn handle_on(&self, dev: Dev) -> Option<Handle> {
        // The handle of a file may be followed by that of its directory.
        let is = |kind: i32, more: i32| (kind..=kind + more).contains(&self.kind);
        let (ino, generation_at, tree) = match () {
            () if is(INO32_GEN, 1) => (u64::from(u32_at(&self.data, 0)?), 4, None),
            () if is(XFS_INO64_GEN, 1) => (u64_at(&self.data, 0)?, 8, None),
            () if is(BTRFS, 2) => (u64_at(&self.data, 0)?, 16, Some(u64_at(&self.data, 8)?)),
            () => return None,
        };
        let generation = u32_at(&self.data, generation_at)?;
        let is_whole = self.bytes as usize >= generation_at + 4;
        let is_known = is_whole && tree.is_none_or(|tree| tree == BTRFS_TREE);
        is_known.then_some(Handle { inode: Inode { dev, ino }, generation })
    }

    /// Returns the handle in the form that this type of file system takes.
    fn of(handle: Handle, kind: &str) -> Self {
        let Handle { inode: Inode { ino, .. }, generation } = handle;
        let (kind, fields) = match u32::try_from(ino) {
            _ if kind == "btrfs" => (BTRFS, vec![ino.to_ne_bytes(), BTRFS_TREE.to_ne_bytes()]),
            Ok(ino) => {
                let mut data = [0; 128];
                data[..4].copy_from_slice(&ino.to_ne_bytes());
                data[4..8].copy_from_slice(&generation.to_ne_bytes());
                return Self { bytes: 8, kind: INO32_GEN, data };
            }
            Err(_) => (XFS_INO64_GEN, vec![ino.to_ne_bytes()]),
        };
        let mut data = [0; 128];
        let mut bytes = 0;
        for field in fields {
            data[bytes..bytes + 8].copy_from_slice(&field);
            bytes += 8;
        }
        data[bytes..bytes + 4].copy_from_slice(&generation.to_ne_bytes());
        Self { bytes: bytes as u32 + 4, kind, data }
    }
}

/// One watched file system.
struct Watched {
    mounted: Mounted,
    fsid: [u8; 8],
}

impl Watched {
    /// Opens the root. It stays open only as long as needed, so that the file system can be
    /// unmounted. Then, or below another mount, its path leads elsewhere: that is `NODEV`.
    fn root(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.mounted.path, flags, Mode::empty())?;
        match dev_of(rustix::fs::fstat(&root)?.st_dev) == self.mounted.stat_dev {
            true => Ok(root),
            false => Err(Errno::NODEV),
        }
    }

    /// Adds the file system to a queue.
    fn mark(&self, queue: &OwnedFd, mask: u64) -> io::Result<()> {
        let root = self.root()?;
        let how = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        // SAFETY: `root` is open, and the path may be null then.
        let marked = unsafe {
            libc::fanotify_mark(queue.as_raw_fd(), how, mask, root.as_raw_fd(), std::ptr::null())
        };
        if marked < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn at(&self, error: io::Error) -> Error {
        Error::At { path: self.mounted.path.display().to_string(), what: error }
    }

    /// Opens the file with this handle, if it still exists, without a right to read it.
    fn open(&self, handle: &FileHandle) -> Option<OwnedFd> {
        self.open_as(handle, libc::O_PATH)
    }

    fn open_as(&self, handle: &FileHandle, flags: i32) -> Option<OwnedFd> {
        open_in(self.root().ok()?, handle, flags)
    }
}

/// Opens a file by its handle, on the file system of `root`.
fn open_in(root: OwnedFd, handle: &FileHandle, flags: i32) -> Option<OwnedFd> {
    let mut handle = *handle;
    // SAFETY: `handle` is a complete `struct file_handle` with as many bytes as its length says.
    let fd = unsafe {
        libc::open_by_handle_at(root.as_raw_fd(), (&raw mut handle).cast(), flags | libc::O_CLOEXEC)
    };
    // SAFETY: the kernel has just returned this descriptor.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the path of the file with this inode number, where the file system is ext4 or F2FS,
/// which take generation 0 for any. `None` if the file is gone or its path is unknown.
pub(crate) fn path_of_inode(root: &Path, ino: u64) -> Option<std::path::PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty()).ok()?;
    let mut handle = FileHandle { bytes: 8, kind: INO32_GEN, data: [0; 128] };
    handle.data[..4].copy_from_slice(&u32::try_from(ino).ok()?.to_ne_bytes());
    let fd = open_in(root, &handle, libc::O_PATH)?;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    // Where the kernel has no name at hand, the link leads elsewhere.
    let is_it = path.symlink_metadata().is_ok_and(|meta| meta.ino() == ino);
    is_it.then_some(path)
}

/// Returns the present path of an open directory.
fn path_of(directory: BorrowedFd<'_>) -> Option<String> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).ok()?;
    Some(escape(path.as_os_str().as_bytes()).trim_end_matches(" (deleted)").to_owned())
}

/// Creates a queue of changes to names, of no file system yet.
fn queue() -> Result<OwnedFd, Error> {
    let flags = libc::FAN_CLASS_NOTIF
        | libc::FAN_CLOEXEC
        | libc::FAN_NONBLOCK
        | libc::FAN_UNLIMITED_QUEUE
        | libc::FAN_REPORT_TID
        | libc::FAN_REPORT_FID
        | libc::FAN_REPORT_DIR_FID
        | libc::FAN_REPORT_NAME
        | libc::FAN_REPORT_TARGET_FID;
    // SAFETY: plain numbers.
    let queue = unsafe { libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_LARGEFILE) as u32) };
    if queue < 0 {
        let error = io::Error::last_os_error();
        return Err(Error::not_allowed("fanotify (names of files; Linux 5.17)", &error));
    }
    // SAFETY: the kernel has just returned this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(queue) })
}

/// All watched file systems and their queues.
pub(crate) struct Names {
    queues: [OwnedFd; 2],
    watched: Vec<Watched>,
    /// Paths of directories, by handle.
    directories: HashMap<Handle, Box<str>>,
    waiting_max: u64,
    overflowed: bool,
}

impl Names {
    /// Starts to watch these file systems. One that was unmounted meanwhile is left out.
    ///
    /// # Errors
    ///
    /// fanotify is not permitted, or none of the file systems can be watched.
    pub(crate) fn watch(mounts: &[Mounted]) -> Result<Self, Error> {
        let queues = [queue()?, queue()?];
        let (mut watched, mut first) = (Vec::new(), None);
        for mounted in mounts {
            let mut watch = Watched { mounted: mounted.clone(), fsid: [0; 8] };
            let statfs = watch.root().and_then(rustix::fs::fstatfs).map_err(io::Error::from);
            let marked = statfs.and_then(|statfs| {
                queues.iter().zip(MASKS).try_for_each(|(queue, mask)| watch.mark(queue, mask))?;
                Ok(statfs)
            });
            match marked {
                Ok(statfs) => {
                    // SAFETY: `fsid_t` is two integers; only its fields are private.
                    watch.fsid =
                        unsafe { mem::transmute::<rustix::fs::Fsid, [u8; 8]>(statfs.f_fsid) };
                    watched.push(watch);
                }
                Err(why) => {
                    let path = mounted.path.display();
                    let gone = [Errno::NOENT, Errno::NODEV].map(|gone| gone.raw_os_error());
                    match why.raw_os_error().is_some_and(|why| gone.contains(&why)) {
                        true => tracing::debug!("{path} was unmounted meanwhile"),
                        false => tracing::warn!("{path}: no names of its files ({why})"),
                    }
                    first.get_or_insert_with(|| watch.at(why));
                }
            }
        }
        if let Some(error) = first.filter(|_| watched.is_empty()) {
            return Err(error);
        }
        let directories = HashMap::new();
        Ok(Self { queues, watched, directories, waiting_max: WAITING_MAX, overflowed: false })
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(AsFd::as_fd)
    }

    /// Whether names were lost.
    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Passes all pending names to `take`.
    ///
    /// # Errors
    ///
    /// A queue cannot be read.
    pub(crate) fn drain(
        &mut self,
        now_ns: impl Fn() -> u64,
        mut take: impl FnMut(Name),
    ) -> Result<(), Error> {
        // Deletions are read first and passed last, so that the creation of a deleted file is
        // passed before its deletion.
        let [came, went] = [0, 1];
        let deletions = self.read(went)?;
        let creations = self.read(came)?;
        // All names read so far are older than this.
        let at_ns = now_ns();
        for events in [creations, deletions] {
            each(&events).for_each(|event| self.event(event, at_ns, &mut take));
        }
        Ok(())
    }

    /// Reads the current content of a queue. Names that arrive meanwhile are left, as programs may
    /// create names as fast as this loop reads them.
    fn read(&mut self, n: usize) -> Result<Vec<u8>, Error> {
        const READ_BYTES: usize = 64 << 10;
        let at = |error: Errno| Error::At { path: "fanotify".into(), what: error.into() };
        let waiting = rustix::io::ioctl_fionread(&self.queues[n]).map_err(at)? / HEAD_BYTES;
        let mut events = Vec::new();
        if waiting > self.waiting_max {
            self.overflowed = true;
            let queue = queue()?;
            for watch in &self.watched {
                // One that was unmounted has no more names.
                if let Err(why) = watch.mark(&queue, MASKS[n]) {
                    tracing::debug!("{}: {why}", watch.mounted.path.display());
                }
            }
            self.queues[n] = queue;
            return Ok(events);
        }
        let mut taken = 0;
        while taken < waiting {
            let end = events.len();
            events.resize(end + READ_BYTES, 0);
            let read = rustix::io::read(&self.queues[n], &mut events[end..]);
            events.truncate(end + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(_) => taken += each(&events[end..]).count() as u64,
                Err(Errno::INTR) => {}
                Err(error) => return Err(at(error)),
            }
        }
        Ok(events)
    }

    fn event(&mut self, event: &[u8], at_ns: u64, take: &mut impl FnMut(Name)) {
        let (Some(mask), Some(tid)) = (u64_at(event, 8), u32_at(event, 20)) else { return };
        if mask & libc::FAN_Q_OVERFLOW != 0 {
            self.overflowed = true;
            return;
        }
        let head = usize::from(u16::from_ne_bytes([event[6], event[7]]));
        let (mut target, mut here, mut old) = (None, None, None);
        let mut rest = event.get(head..).unwrap_or_default();
        while rest.len() >= 4 {
            let len = usize::from(u16::from_ne_bytes([rest[2], rest[3]]));
            let Some(info) = rest.get(..len).filter(|info| info.len() >= 20) else { break };
            let Some(watched) = self.watched.iter().find(|w| w.fsid[..] == info[4..12]) else {
                return;
            };
            let dev = watched.mounted.dev;
            let Some(handle) = FileHandle::parse(&info[12..]) else { break };
            let name = info.get(20 + handle.bytes as usize..).unwrap_or_default();
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            match info[0] {
                INFO_FID => target = handle.handle_on(dev),
                INFO_DFID_NAME | INFO_NEW_DFID_NAME => here = Some((handle, dev, name.to_vec())),
                INFO_OLD_DFID_NAME => old = Some((handle, dev, name.to_vec())),
                _ => {}
            }
            rest = &rest[len..];
        }
        let (Some(handle), Some((dir_handle, dev, file))) = (target, here) else { return };
        let directory = mask & libc::FAN_ONDIR != 0;
        if directory && mask & (libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_RENAME) == 0 {
            return;
        }
        let Some(dir) = dir_handle.handle_on(dev) else { return };
        let path = self.path(&dir_handle, dir, &file);
        let name =
            |kind, path| Name { at_ns, tid, handle, dir: dir.inode.ino, path, directory, kind };
        if mask & libc::FAN_CREATE != 0 {
            if directory {
                self.directories.insert(handle, path.clone());
            }
            take(name(NameKind::Created, path.clone()));
        }
        if mask & libc::FAN_OPEN != 0 {
            take(name(NameKind::Opened, path.clone()));
        }
        if mask & libc::FAN_RENAME != 0
            && let Some((from_handle, _, from_file)) = old
            && let Some(from_dir) = from_handle.handle_on(dev)
        {
            let from = self.path(&from_handle, from_dir, &from_file);
            if directory {
                // Everything below the directory has a new path.
                self.directories.clear();
                self.directories.insert(handle, path.clone());
            }
            take(name(NameKind::Moved { from_dir: from_dir.inode.ino, from }, path.clone()));
        }
        if mask & libc::FAN_DELETE != 0 {
            if directory {
                self.directories.remove(&handle);
            }
            take(name(NameKind::Deleted, path));
        }
    }

    fn path(&mut self, handle: &FileHandle, dir: Handle, file: &[u8]) -> Box<str> {
        let path = match self.directories.get(&dir) {
            Some(path) => path,
            None => {
                let path = self.find(handle, dir);
                self.directories.entry(dir).or_insert(path)
            }
        };
        let file = escape(file);
        format!("{}/{file}", path.trim_end_matches('/')).into()
    }

    /// Finds the current path of a directory.
    fn find(&self, handle: &FileHandle, dir: Handle) -> Box<str> {
        let watched = self.watched.iter().find(|w| w.mounted.dev == dir.inode.dev);
        let lost = format!("?{}", dir.inode.ino).into_boxed_str();
        let Some(fd) = watched.and_then(|watched| watched.open(handle)) else { return lost };
        path_of(fd.as_fd()).map_or(lost, Into::into)
    }

    /// Returns the present status of a file.
    pub(crate) fn stat(&self, handle: Handle) -> Option<rustix::fs::Stat> {
        rustix::fs::fstat(self.open(handle, libc::O_PATH)?).ok()
    }

    /// Returns the present status of the file with this inode number, whatever its generation.
    pub(crate) fn stat_any(&self, inode: Inode) -> Option<rustix::fs::Stat> {
        let stat = self.stat(Handle { inode, generation: 0 })?;
        (stat.st_ino == inode.ino).then_some(stat)
    }

    /// Returns the places of a regular file's data; `None` if the file is gone, or the file system
    /// does not tell them.
    pub(crate) fn extents(&self, handle: Handle) -> Option<Vec<Extent>> {
        fiemap::extents(self.open_to_read(handle)?.as_fd()).ok()
    }

    /// Opens a file to read it; `None` if it is gone.
    pub(crate) fn open_to_read(&self, handle: Handle) -> Option<OwnedFd> {
        self.open(handle, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOFOLLOW)
    }

    /// Returns the path of the directory with this inode number, whatever its generation.
    pub(crate) fn directory_path(&self, inode: Inode) -> Option<String> {
        let fd = self.open(Handle { inode, generation: 0 }, libc::O_PATH)?;
        (rustix::fs::fstat(&fd).ok()?.st_ino == inode.ino).then(|| path_of(fd.as_fd()))?
    }

    fn open(&self, handle: Handle, flags: i32) -> Option<OwnedFd> {
        let watched = self.watched.iter().find(|w| w.mounted.dev == handle.inode.dev)?;
        watched.open_as(&FileHandle::of(handle, &watched.mounted.kind), flags)
    }
}

/// Returns the handle of the file at this path.
pub(crate) fn handle_of(path: &Path, dev: Dev) -> Option<Handle> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    handle_at(libc::AT_FDCWD, &path, 0, dev)
}

/// Returns the handle of an open file.
pub(crate) fn handle_of_open(file: BorrowedFd<'_>, dev: Dev) -> Option<Handle> {
    handle_at(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH, dev)
}

fn handle_at(folder: i32, path: &CStr, flags: i32, dev: Dev) -> Option<Handle> {
    let mut handle = FileHandle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount = 0;
    // SAFETY: the path ends in zero, and the handle has as much space as its length says.
    let done = unsafe {
        libc::name_to_handle_at(
            folder,
            path.as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            flags,
        )
    };
    if done < 0 { None } else { handle.handle_on(dev) }
}

/// Splits what was read from a queue into events.
fn each(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = u32_at(rest, 0)? as usize;
        if len < HEAD_BYTES as usize {
            return None;
        }
        let (event, after) = rest.split_at_checked(len)?;
        rest = after;
        Some(event)
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::mounts;
    use std::{fs, os::unix::fs::MetadataExt};

    /// A directory and the names of its file system; `None`, with a line on standard output, where
    /// fanotify is not permitted.
    fn watched(test: &str) -> Option<(tempfile::TempDir, Names)> {
        let folder = tempfile::tempdir().unwrap();
        let dev = dev_of(folder.path().metadata().unwrap().dev());
        let mounts: Vec<_> = mounts().into_iter().filter(|mount| mount.dev == dev).collect();
        if !rustix::process::geteuid().is_root() || mounts.is_empty() {
            println!(
                "SKIPPED fanotify::{test}: it needs root, and a temporary directory on ext4 or F2FS"
            );
            return None;
        }
        Some((folder, Names::watch(&mounts).unwrap()))
    }

    /// The reported names in the directory.
    fn reported(names: &mut Names, folder: &Path) -> Vec<String> {
        let mut paths = Vec::new();
        let within = format!("{}/", folder.display());
        names
            .drain(|| 0, |name| paths.extend(name.path.strip_prefix(&*within).map(str::to_owned)))
            .unwrap();
        paths
    }

    /// Other programs may also fill the queue, so the test expects no exact limit.
    // Promises: Record 11.
    #[test]
    fn an_overflow_of_the_queue_is_reported() {
        let Some((folder, mut names)) = watched("an_overflow_of_the_queue_is_reported") else {
            return;
        };
        let make = |name: &str| fs::create_dir(folder.path().join(name)).unwrap();
        names.waiting_max = u64::MAX;
        make("one");
        assert_eq!(
            (&reported(&mut names, folder.path())[..], names.overflowed()),
            (&["one".to_owned()][..], false)
        );
        names.waiting_max = 0;
        make("two");
        assert_eq!((&reported(&mut names, folder.path())[..], names.overflowed()), (&[][..], true));
        names.waiting_max = u64::MAX;
        make("three");
        assert_eq!(reported(&mut names, folder.path()), ["three"]);
    }

    /// The queue was once read by the size that FIONREAD gives, which is too small: of many names,
    /// some stayed in the queue of creations, while their deletions were read.
    // Promises: Record 6.
    #[test]
    fn all_waiting_names_are_read_at_once() {
        let Some((folder, mut names)) = watched("all_waiting_names_are_read_at_once") else {
            return;
        };
        let files: Vec<_> =
            (0..5000).map(|n| format!("a file with a name of its own {n}")).collect();
        for file in &files {
            fs::write(folder.path().join(file), "").unwrap();
        }
        let mut created = reported(&mut names, folder.path());
        // Each is reported as created and as opened.
        created.dedup();
        assert_eq!(created.len(), files.len());
        assert_eq!(created, files);
    }

    /// Between the look at the table of mounts and the first mark, a file system may be unmounted,
    /// and its path then leads to another, which may have no names to report. That
    /// ended the recording of all others. So did an overflow after such an unmount.
    // Promises: Record 26.
    #[test]
    fn a_mount_that_is_gone_does_not_end_the_recording_of_others() {
        let test = "a_mount_that_is_gone_does_not_end_the_recording_of_others";
        let Some((folder, names)) = watched(test) else { return };
        let here = names.watched[0].mounted.clone();
        // procfs has no names to report, and a directory of the other file system is not its root.
        let gone = |path: &str| Mounted {
            dev: Dev::new(7, 4_000),
            stat_dev: Dev::new(7, 4_000),
            kind: "ext4".to_owned(),
            path: path.into(),
            block_bytes: 4096,
        };
        let inside = gone(folder.path().to_str().unwrap());
        let mut names =
            Names::watch(&[gone("/proc"), inside, gone("/absent"), here.clone()]).unwrap();
        assert_eq!(names.watched.len(), 1);
        fs::write(folder.path().join("one"), "").unwrap();
        assert!(reported(&mut names, folder.path()).contains(&"one".to_owned()));
        names.watched.push(Watched { mounted: gone("/proc"), fsid: [1; 8] });
        names.waiting_max = 0;
        fs::write(folder.path().join("two"), "").unwrap();
        assert!(reported(&mut names, folder.path()).is_empty() && names.overflowed());
        names.waiting_max = u64::MAX;
        fs::write(folder.path().join("three"), "").unwrap();
        assert!(reported(&mut names, folder.path()).contains(&"three".to_owned()));
        let none = Names::watch(&[gone("/proc")]).err().unwrap().to_string();
        assert!(none.starts_with("/proc: "), "{none}");
    }

    // Promises: Record 12.
    #[test]
    fn a_deleted_directory_is_forgotten() {
        let Some((folder, mut names)) = watched("a_deleted_directory_is_forgotten") else { return };
        let below = folder.path().join("below");
        let known =
            |names: &Names| names.directories.values().any(|path| Path::new(&**path) == below);
        fs::create_dir(&below).unwrap();
        assert_eq!(reported(&mut names, folder.path()), ["below"]);
        assert!(known(&names));
        fs::remove_dir(&below).unwrap();
        assert_eq!(reported(&mut names, folder.path()), ["below"]);
        assert!(!known(&names));
    }
}
