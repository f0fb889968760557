//! Looks at files and directories of one file system, never at another one that is mounted in it,
//! and follows no links.

use crate::mounts::Mount;
use rustix::{
    fd::{AsRawFd, OwnedFd},
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, makedev,
        openat, openat2, statx,
    },
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
};

/// A mounted file system.
#[derive(Debug)]
pub struct Inside {
    root: OwnedFd,
    point: PathBuf,
}

/// First and last bytes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// First bytes.
    pub head: Vec<u8>,
    /// Last bytes; of a short file, some of the first.
    pub tail: Vec<u8>,
}

/// Access times stay as they are, and no terminal, FIFO or lease makes an opening wait.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::NOATIME)
    .union(OFlags::CLOEXEC);

impl Inside {
    /// Opens the file system of this mount, which must be reachable by its mount point
    /// ([`crate::mounts::Table::is_reachable`]).
    ///
    /// # Errors
    ///
    /// It cannot be opened, or another one is mounted there now.
    pub fn new(mount: &Mount) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, &mount.point, flags, Mode::empty())?;
        let asked = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(&root, "", asked, StatxFlags::MNT_ID)?;
        if stat.stx_mnt_id != mount.id {
            return Err(Errno::XDEV.into());
        }
        Ok(Self { root, point: mount.point.clone() })
    }

    fn open(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let below = path.strip_prefix(&self.point).map_err(|_| Errno::XDEV)?;
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let only = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&self.root, below, flags | OFlags::CLOEXEC, Mode::empty(), only)?)
    }

    /// Opens a regular file to be read.
    ///
    /// # Errors
    ///
    /// The path leads to no regular file of this file system, or the file cannot be read.
    pub fn file(&self, path: &Path) -> io::Result<File> {
        let file = self.open(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        if !FileType::from_raw_mode(fstat(&file)?.st_mode).is_file() {
            return Err(Errno::INVAL.into());
        }
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(File::from(openat(CWD, link, READ, Mode::empty())?))
    }

    /// Reads at most so many bytes at the beginning and at the end of a regular file.
    ///
    /// # Errors
    ///
    /// As [`Inside::file`].
    pub fn ends(&self, path: &Path, head: usize, tail: usize) -> io::Result<Ends> {
        let file = self.file(path)?;
        let len = file.metadata()?.len();
        let read = |at: u64, most: usize| {
            let mut bytes = vec![0; most.min(usize::try_from(len).unwrap_or(most))];
            // A file may be cut meanwhile.
            let read = file.read_at(&mut bytes, at)?;
            bytes.truncate(read);
            io::Result::Ok(bytes)
        };
        Ok(Ends { head: read(0, head)?, tail: read(len.saturating_sub(tail as u64), tail)? })
    }

    /// Passes everything below a directory to `each`, with its type. Returns `false` if there are
    /// more than `most` files and directories; then `each` has not seen all of them.
    ///
    /// # Errors
    ///
    /// A directory cannot be read, or another file system is mounted over it.
    pub fn walk(
        &self,
        directory: &Path,
        most: usize,
        each: &mut dyn FnMut(&Path, FileType),
    ) -> io::Result<bool> {
        let mut seen = 0;
        let mut directories = vec![directory.to_owned()];
        while let Some(directory) = directories.pop() {
            let opened = self.open(&directory, READ | OFlags::DIRECTORY | OFlags::NOFOLLOW);
            for entry in Dir::new(opened?)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." {
                    continue;
                }
                seen += 1;
                if seen > most {
                    return Ok(false);
                }
                let path = directory.join(OsStr::from_bytes(name));
                each(&path, entry.file_type());
                if entry.file_type().is_dir() {
                    directories.push(path);
                }
            }
        }
        Ok(true)
    }
}

/// Returns the device number of an open file's file system, without a request to it.
pub(crate) fn dev_of(file: &OwnedFd) -> io::Result<rustix::fs::Dev> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(file, "", flags, StatxFlags::empty())?;
    Ok(makedev(stat.stx_dev_major, stat.stx_dev_minor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::Table;
    use std::fs;

    /// A temporary directory and the file system that it is on.
    fn inside() -> (tempfile::TempDir, PathBuf, Inside) {
        let folder = tempfile::tempdir().unwrap();
        let table = Table::read().unwrap();
        let (here, mount) = table.find(folder.path()).unwrap();
        let inside = Inside::new(mount).unwrap();
        (folder, here, inside)
    }

    #[test]
    fn both_ends_of_regular_files_are_read() {
        let (_folder, here, inside) = inside();
        fs::write(here.join("long"), "0123456789").unwrap();
        fs::write(here.join("short"), "0").unwrap();
        let ends = |name: &str| {
            let Ends { head, tail } = inside.ends(&here.join(name), 4, 3)?;
            io::Result::Ok([head, tail].map(|bytes| String::from_utf8(bytes).unwrap()))
        };
        assert_eq!(ends("long").unwrap(), ["0123", "789"]);
        assert_eq!(ends("short").unwrap(), ["0", "0"]);
        std::os::unix::fs::symlink("long", here.join("link")).unwrap();
        fs::create_dir(here.join("folder")).unwrap();
        let fifo = here.join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for other in ["link", "folder", "fifo", "none", "link/x"] {
            assert!(ends(other).is_err(), "{other}");
        }
        assert!(inside.ends(Path::new("/proc/self/comm"), 4, 4).is_err(), "another file system");
    }

    #[test]
    fn a_walk_sees_everything_below_a_directory_up_to_a_limit() {
        let (_folder, here, inside) = inside();
        fs::create_dir_all(here.join("a/b")).unwrap();
        fs::write(here.join("a/b/file"), "").unwrap();
        std::os::unix::fs::symlink("/", here.join("a/link")).unwrap();
        let mut seen = Vec::new();
        let mut each = |path: &Path, kind: FileType| {
            seen.push((path.strip_prefix(&here).unwrap().display().to_string(), kind));
        };
        assert!(inside.walk(&here, 4, &mut each).unwrap());
        seen.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = [
            ("a", FileType::Directory),
            ("a/b", FileType::Directory),
            ("a/b/file", FileType::RegularFile),
            ("a/link", FileType::Symlink),
        ];
        assert_eq!(seen, expected.map(|(path, kind)| (path.to_owned(), kind)));
        assert!(!inside.walk(&here, 3, &mut |_, _| {}).unwrap());
    }
}
