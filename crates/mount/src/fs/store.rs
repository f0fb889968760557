//! The store of files in RAM: one tmpfs that no path leads to.
//!
//! The name of a file there is its inode number in the mount. The tmpfs file carries owner, mode,
//! times and extended attributes, so that none of them is stored twice, and the kernel enforces the
//! budget.
//!
//! A file that is too large for the budget is *handed over*: it is then a file without a name in
//! BACKING's file system, whose page cache has its bytes until the kernel writes them. It counts
//! for the store in every other respect.

use super::beneath::proc_path;
use super::caller::with_exact_mode;
use super::types::{Ino, errno};
use flashsift_files::sift::FILE_COST_BYTES;
use parking_lot::RwLock;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Stat, Timestamps, Uid};
use rustix::io::{Errno, Result};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Files in RAM, by number.
#[derive(Debug)]
pub struct Store {
    dir: OwnedFd,
    /// The path by which a file can be accessed if its content may not be opened.
    path: PathBuf,
    /// The directory is the top of a file system that holds nothing else.
    has_own_file_system: bool,
    /// Number of files in the tmpfs.
    files: Arc<AtomicU64>,
    /// Number of files without a name so far.
    scratches: AtomicU64,
    handed_over: RwLock<HashMap<Ino, HandedOver>>,
    /// Files that changed in a way that applications do not see.
    unseen: RwLock<HashMap<Ino, Unseen>>,
}

/// A file in RAM without a name, which ends with its last descriptor.
#[derive(Debug)]
pub(crate) struct Scratch {
    file: File,
    files: Arc<AtomicU64>,
}

impl Scratch {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A file that BACKING's page cache holds.
#[derive(Debug)]
struct HandedOver {
    file: Arc<File>,
}

/// The `ctime` before such a change, which applications see until it changes, and the one that the
/// file got thereby.
#[derive(Clone, Copy, Debug)]
struct Unseen {
    before: (i64, u32),
    since: (i64, u32),
}

fn ctime(stat: &Stat) -> (i64, u32) {
    (stat.st_ctime, stat.st_ctime_nsec as u32)
}

impl Store {
    /// A new tmpfs of this size that is mounted nowhere; needs the right to mount, and ends with
    /// the process.
    ///
    /// # Errors
    ///
    /// `EPERM`: the process may not mount. `ENOMEM`.
    pub fn detached_tmpfs(budget_bytes: u64) -> Result<Store> {
        Store::new_tmpfs(budget_bytes, false).map(Store::on)
    }

    /// Creates a tmpfs of this size that is mounted nowhere; it lives as long as it is open. With
    /// `noatime`, reads do not update access times.
    ///
    /// # Errors
    ///
    /// The error of the system call, such as `EPERM` without the right to mount in the current user
    /// namespace.
    pub fn new_tmpfs(budget_bytes: u64, noatime: bool) -> Result<OwnedFd> {
        let tmpfs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&tmpfs, "size", budget_bytes.to_string())?;
        fsconfig_set_string(&tmpfs, "mode", "0700")?;
        // Files are bounded by the budget alone.
        fsconfig_set_string(&tmpfs, "nr_inodes", "0")?;
        fsconfig_create(&tmpfs)?;
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
        attributes.set(MountAttrFlags::MOUNT_ATTR_NOATIME, noatime);
        fsmount(&tmpfs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    }

    /// A store in an empty directory, preferably on a tmpfs.
    ///
    /// # Errors
    ///
    /// The directory cannot be opened.
    pub fn in_dir(dir: &Path) -> Result<Store> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let store = Store::on(rustix::fs::openat(CWD, dir, flags, Mode::empty())?);
        Ok(Store { has_own_file_system: false, ..store })
    }

    /// A store in an open directory.
    pub fn on(dir: OwnedFd) -> Store {
        let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        Store {
            dir,
            path,
            has_own_file_system: true,
            files: Arc::default(),
            scratches: AtomicU64::new(0),
            handed_over: RwLock::default(),
            unseen: RwLock::default(),
        }
    }

    /// Creates a file for this owner and group; `None` leaves the default.
    pub(crate) fn create(
        &self,
        ino: Ino,
        mode: Mode,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = with_exact_mode(|| rustix::fs::openat(&self.dir, name(ino), flags, mode))?;
        self.files.fetch_add(1, Ordering::Relaxed);
        let done = if uid.is_some() || gid.is_some() {
            // The mode is set again, since a new owner clears setuid and setgid.
            rustix::fs::fchown(&file, uid.map(Uid::from_raw), gid.map(Gid::from_raw)).and_then(
                |()| match mode.intersects(Mode::SUID | Mode::SGID) {
                    true => rustix::fs::fchmod(&file, mode),
                    false => Ok(()),
                },
            )
        } else {
            Ok(())
        };
        if let Err(error) = done {
            self.remove(ino)?;
            return Err(error);
        }
        Ok(File::from(file))
    }

    /// Creates a directory that carries attributes, and holds nothing.
    pub(crate) fn create_directory(
        &self,
        ino: Ino,
        mode: Mode,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        with_exact_mode(|| rustix::fs::mkdirat(&self.dir, name(ino), mode))?;
        self.files.fetch_add(1, Ordering::Relaxed);
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        if (uid.is_some() || gid.is_some())
            && let Err(error) = self.chown(ino, uid, gid)
        {
            self.remove_directory(ino)?;
            return Err(error);
        }
        Ok(())
    }

    pub(crate) fn remove_directory(&self, ino: Ino) -> Result<()> {
        rustix::fs::unlinkat(&self.dir, name(ino), AtFlags::REMOVEDIR)?;
        self.files.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Creates a file without a name.
    pub(crate) fn scratch(&self) -> Result<Scratch> {
        let name = format!("scratch-{}", self.scratches.fetch_add(1, Ordering::Relaxed));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, &name, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::unlinkat(&self.dir, &name, AtFlags::empty())?;
        self.files.fetch_add(1, Ordering::Relaxed);
        Ok(Scratch { file: File::from(file), files: self.files.clone() })
    }

    /// Opens a file for reading and writing regardless of its mode; permissions are checked above.
    pub(crate) fn open(&self, ino: Ino) -> Result<Arc<File>> {
        if let Some(file) = self.handed_over(ino) {
            return Ok(file);
        }
        self.open_with(ino, OFlags::RDWR).map(Arc::new)
    }

    /// Replaces a file by one in BACKING's file system, which has its content and attributes.
    pub(crate) fn hand_over(&self, ino: Ino, file: Arc<File>) -> Result<()> {
        let (before, since) = (ctime(&self.stat(ino)?), ctime(&rustix::fs::fstat(&file)?));
        rustix::fs::unlinkat(&self.dir, name(ino), AtFlags::empty())?;
        self.files.fetch_sub(1, Ordering::Relaxed);
        self.handed_over.write().insert(ino, HandedOver { file });
        self.unseen.write().insert(ino, Unseen { before, since });
        Ok(())
    }

    /// Runs `act`, which changes nothing of a file that applications see: not its `ctime` either.
    pub(crate) fn unseen<T>(&self, ino: Ino, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = ctime(&self.stat(ino)?);
        let done = act();
        let since = ctime(&self.raw_stat(ino)?);
        self.unseen.write().insert(ino, Unseen { before, since });
        done
    }

    /// The file, if it was handed over.
    pub(crate) fn handed_over(&self, ino: Ino) -> Option<Arc<File>> {
        self.handed_over.read().get(&ino).map(|it| it.file.clone())
    }

    /// How many files that exist were handed over.
    pub(crate) fn files_handed_over(&self) -> usize {
        self.handed_over.read().len()
    }

    /// Opens a file to copy it; `atime` stays, since no application reads it.
    pub(crate) fn open_to_copy(&self, ino: Ino) -> Result<File> {
        self.open_with(ino, OFlags::RDONLY | OFlags::NOATIME)
    }

    fn open_with(&self, ino: Ino, flags: OFlags) -> Result<File> {
        let open =
            || rustix::fs::openat(&self.dir, name(ino), flags | OFlags::CLOEXEC, Mode::empty());
        match open() {
            // Only root may open what permissions forbid.
            Err(Errno::ACCESS) => {
                let mode = Mode::from_raw_mode(self.stat(ino)?.st_mode);
                self.chmod(ino, mode | Mode::RUSR | Mode::WUSR)?;
                let file = open();
                self.chmod(ino, mode)?;
                file
            }
            other => other,
        }
        .map(File::from)
    }

    pub(crate) fn stat(&self, ino: Ino) -> Result<Stat> {
        let mut stat = self.raw_stat(ino)?;
        if let Some(it) = self.unseen.read().get(&ino)
            && ctime(&stat) == it.since
        {
            (stat.st_ctime, stat.st_ctime_nsec) = (it.before.0, it.before.1.into());
        }
        Ok(stat)
    }

    fn raw_stat(&self, ino: Ino) -> Result<Stat> {
        if let Some(it) = self.handed_over.read().get(&ino) {
            return rustix::fs::fstat(&it.file);
        }
        rustix::fs::statat(&self.dir, name(ino), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Returns the file if it was handed over. To close it may wait for the device.
    pub(crate) fn remove(&self, ino: Ino) -> Result<Option<Arc<File>>> {
        self.unseen.write().remove(&ino);
        if let Some(it) = self.handed_over.write().remove(&ino) {
            return Ok(Some(it.file));
        }
        rustix::fs::unlinkat(&self.dir, name(ino), AtFlags::empty())?;
        self.files.fetch_sub(1, Ordering::Relaxed);
        Ok(None)
    }

    pub(crate) fn chmod(&self, ino: Ino, mode: Mode) -> Result<()> {
        if let Some(file) = self.handed_over(ino) {
            return rustix::fs::fchmod(&file, mode);
        }
        rustix::fs::chmodat(&self.dir, name(ino), mode, AtFlags::empty())
    }

    pub(crate) fn chown(&self, ino: Ino, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
        if let Some(file) = self.handed_over(ino) {
            return rustix::fs::fchown(&file, uid, gid);
        }
        rustix::fs::chownat(&self.dir, name(ino), uid, gid, AtFlags::empty())
    }

    pub(crate) fn set_times(&self, ino: Ino, times: &Timestamps) -> Result<()> {
        if let Some(file) = self.handed_over(ino) {
            return rustix::fs::futimens(&file, times);
        }
        rustix::fs::utimensat(&self.dir, name(ino), times, AtFlags::empty())
    }

    /// Sets `ctime` to now, since the names of the file have changed.
    pub(crate) fn touch(&self, ino: Ino) -> Result<()> {
        self.chmod(ino, Mode::from_raw_mode(self.stat(ino)?.st_mode))
    }

    /// The path by which extended attributes are accessed, valid while a caller holds
    /// the file of [`Store::handed_over`].
    pub(crate) fn path(&self, ino: Ino) -> PathBuf {
        match self.handed_over(ino) {
            Some(file) => proc_path(&file),
            None => self.path.join(name(ino)),
        }
    }

    /// Number of files in RAM, including those without a name.
    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Returns the RAM in use, in which each file also counts [`FILE_COST_BYTES`], and the most
    /// that may be, bytes.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub(crate) fn usage(&self) -> Result<(u64, u64)> {
        let (content_bytes, budget_bytes) = self.content()?;
        Ok((content_bytes + self.files_bytes(), budget_bytes))
    }

    /// RAM that the files take besides their content, bytes.
    pub(crate) fn files_bytes(&self) -> u64 {
        self.files() * FILE_COST_BYTES
    }

    /// Returns the bytes of all content and the most that they can be. A directory on a shared file
    /// system has no limit of its own, and counts only its own files.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub(crate) fn content(&self) -> Result<(u64, u64)> {
        let all = rustix::fs::fstatvfs(&self.dir)?;
        let budget_bytes = all.f_blocks * all.f_frsize;
        if self.has_own_file_system {
            return Ok(((all.f_blocks - all.f_bfree) * all.f_frsize, budget_bytes));
        }
        let used = |used_bytes: u64, entry: std::io::Result<std::fs::DirEntry>| {
            // A file that another thread removes meanwhile counts no more.
            Ok(used_bytes + entry?.metadata().map_or(0, |file| file.blocks() * 512))
        };
        let entries = std::fs::read_dir(&self.path).map_err(|error| errno(&error))?;
        let used_bytes =
            entries.into_iter().try_fold(0, used).map_err(|error: std::io::Error| errno(&error))?;
        Ok((used_bytes, budget_bytes))
    }
}

fn name(ino: Ino) -> String {
    format!("{ino:x}")
}
