//! Finds the processes that use a directory: by working directory, root, program, open files or
//! mappings at or below it.
//!
//! Files are compared by path and device, as a path can be hidden by another mount or lie in a
//! mount below. No file system is accessed, so a mount whose server hangs can be examined. Without
//! root, only the user's own processes are visible.

use crate::mounts;
use rustix::{
    fs::{AtFlags, CWD, Dev, StatxFlags, makedev, statx},
    io::Errno,
};
use std::{
    fmt, fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// A process that uses the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Process number.
    pub pid: u32,
    /// Name of the process.
    pub program: String,
    /// Its uses of the directory; at least one.
    pub uses: Vec<Use>,
}

/// One use of a file by a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Kind of the use.
    pub how: How,
    /// Path of the file, followed by ` (deleted)` if it has no name any more.
    pub path: PathBuf,
}

/// Kinds of use of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// Working directory of the process.
    Works,
    /// Root directory of the process.
    Root,
    /// Program that the process runs.
    Runs,
    /// Open file descriptor.
    Open,
    /// Mapping into memory.
    Mapped,
}

/// The users of a directory, and the number of processes that could not be examined because they
/// belong to other users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Users, by process number.
    pub users: Vec<User>,
    /// Number of processes that could not be examined.
    pub unexamined: usize,
}

/// Finds the users of a directory, except for this process. The path must come from
/// [`mounts::resolved`].
///
/// # Errors
///
/// `/proc` or the directory cannot be read.
pub fn users_of(folder: &Path) -> io::Result<Found> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let stat = statx(CWD, folder, flags, StatxFlags::MNT_ID)?;
    // Mappings are listed with the device number of the file system; subvolumes have other numbers.
    let mount = mounts::all()?.into_iter().find(|mount| mount.id == stat.stx_mnt_id);
    let dev = makedev(stat.stx_dev_major, stat.stx_dev_minor);
    let place = UsedFolder { folder, dev, mapped: mount.map_or(dev, |mount| mount.dev) };
    let mut found = Found::default();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if pid == std::process::id() {
            continue;
        }
        match place.user(pid) {
            Ok(user) => found.users.extend(user),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => found.unexamined += 1,
            // The process has ended meanwhile.
            Err(_) => {}
        }
    }
    found.users.sort_by_key(|user| user.pid);
    Ok(found)
}

struct UsedFolder<'a> {
    folder: &'a Path,
    dev: Dev,
    mapped: Dev,
}

impl UsedFolder<'_> {
    fn user(&self, pid: u32) -> io::Result<Option<User>> {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let mut uses = Vec::new();
        for (name, how) in [("cwd", How::Works), ("root", How::Root), ("exe", How::Runs)] {
            uses.extend(self.link(&proc.join(name), how)?);
        }
        for entry in fs::read_dir(proc.join("fd"))? {
            uses.extend(self.link(&entry?.path(), How::Open)?);
        }
        self.mappings(&fs::read(proc.join("maps"))?, &mut uses);
        if uses.is_empty() {
            return Ok(None);
        }
        let program = String::from_utf8_lossy(&fs::read(proc.join("comm"))?).trim_end().to_owned();
        Ok(Some(User { pid, program, uses }))
    }

    /// Reads a link in `/proc`; returns its use if it leads into the directory. Threads of the
    /// kernel have no program, and a process may end at any time.
    fn link(&self, link: &Path, how: How) -> io::Result<Option<Use>> {
        let path = match fs::read_link(link) {
            Ok(path) if path.starts_with(self.folder) => path,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()) {
            Ok(stat) if makedev(stat.stx_dev_major, stat.stx_dev_minor) != self.dev => Ok(None),
            Err(Errno::NOENT) => Ok(None),
            // A file system that answers with an error is in use as well.
            _ => Ok(Some(Use { how, path })),
        }
    }

    /// Adds the uses in lines such as `7f00-7f08 r-xp 00000000 08:02 1234    /usr/lib/libc.so`.
    fn mappings(&self, maps: &[u8], uses: &mut Vec<Use>) {
        for line in maps.split(|&byte| byte == b'\n') {
            let Some(at) = line.iter().position(|&byte| byte == b'/') else { continue };
            let (before, path) = line.split_at(at);
            let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
            let dev = before.split(|&byte| byte == b' ').nth(3).and_then(hexadecimal);
            let known = uses.iter().any(|known| known.path == path && known.how != How::Open);
            if dev == Some(self.mapped) && path.starts_with(self.folder) && !known {
                uses.push(Use { how: How::Mapped, path });
            }
        }
    }
}

pub(crate) fn hexadecimal(dev: &[u8]) -> Option<Dev> {
    let (major, minor) = std::str::from_utf8(dev).ok()?.split_once(':')?;
    Some(makedev(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?))
}

/// Formats a user: `bash (pid 12): works in /srv`
impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Use { how, path } = &self.uses[0];
        let does = match how {
            How::Works => "works in",
            How::Root => "has its root in",
            How::Runs => "runs",
            How::Open => "has open",
            How::Mapped => "has mapped",
        };
        write!(f, "{} (pid {}): {does} {}", self.program, self.pid, path.display())?;
        match self.uses.len() - 1 {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead, BufReader},
        process::{Child, Command, Stdio},
    };

    /// A shell that has run a script and waits until it is dropped.
    struct Shell(Child);

    impl Shell {
        fn new(folder: &Path, script: &str) -> Self {
            Self::start(Path::new("sh"), folder, script)
        }

        fn start(program: &Path, folder: &Path, script: &str) -> Self {
            let mut child = Command::new(program)
                .args(["-c", &format!("{script}; echo ready; read line")])
                .current_dir(folder)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            Self(child)
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            let _ = self.0.wait();
        }
    }

    fn uses(folder: &Path, shell: &Shell) -> Vec<(How, PathBuf)> {
        let found = users_of(folder).unwrap();
        let user = found.users.into_iter().find(|user| user.pid == shell.0.id());
        user.map_or_else(Vec::new, |user| {
            assert_eq!(user.program, "sh");
            user.uses.into_iter().map(|Use { how, path }| (how, path)).collect()
        })
    }

    #[test]
    fn users_of_a_directory_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let here = mounts::resolved(folder.path()).unwrap();
        let inner = here.join("with space/inner");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir(here.join("with")).unwrap();
        fs::write(inner.join("gone"), "").unwrap();

        let shell = Shell::new(&inner, "exec 7< gone; rm gone; cd /");
        assert_eq!(uses(&here, &shell), [(How::Open, inner.join("gone (deleted)"))]);
        assert_eq!(uses(&here.join("with"), &shell), [], "another name with the same prefix");
        drop(shell);

        let shell = Shell::new(&inner, "exec 8> new; exec 9> /dev/null");
        assert_eq!(
            uses(&here, &shell),
            [(How::Works, inner.clone()), (How::Open, inner.join("new"))]
        );
        assert_eq!(uses(Path::new("/proc"), &shell), [], "below another mount");
        drop(shell);
        assert!(users_of(&here).unwrap().users.is_empty());
    }

    /// The test copied the program itself, and starting the copy failed at times with "Text file
    /// busy": a process that another test started at that moment had the file still open for
    /// writing.
    #[test]
    fn programs_and_mappings_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let here = mounts::resolved(folder.path()).unwrap();
        let copy = here.join("sh");
        assert!(Command::new("cp").arg("/bin/sh").arg(&copy).status().unwrap().success());
        let shell = Shell::start(&copy, Path::new("/"), ":");
        assert_eq!(uses(&here, &shell), [(How::Runs, copy)]);
    }

    #[test]
    fn mappings_are_compared_by_device_and_path() {
        let place =
            UsedFolder { folder: Path::new("/srv"), dev: makedev(0, 40), mapped: makedev(8, 0x12) };
        let maps = b"\
7f00-7f01 r--p 00000000 08:12 9                          /srv/a b (deleted)
7f01-7f02 rw-p 00000000 08:12 9                          /srv/a b (deleted)
7f02-7f03 r--p 00000000 08:13 9                          /srv/other
7f03-7f04 r--p 00000000 08:12 9                          /srvx
7f04-7f05 rw-p 00000000 00:00 0                          [heap]
7f05-7f06 rw-p 00000000 00:00 0
";
        let mut uses = Vec::new();
        place.mappings(maps, &mut uses);
        assert_eq!(uses, [Use { how: How::Mapped, path: "/srv/a b (deleted)".into() }]);
    }

    #[test]
    fn a_user_is_one_line() {
        let open = |path: &str| Use { how: How::Open, path: path.into() };
        let mut user = User { pid: 7, program: "cat".into(), uses: vec![open("/srv/a")] };
        assert_eq!(user.to_string(), "cat (pid 7): has open /srv/a");
        user.uses.push(open("/srv/b"));
        assert_eq!(user.to_string(), "cat (pid 7): has open /srv/a and 1 more");
    }
}
