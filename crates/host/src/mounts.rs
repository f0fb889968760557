//! Reads mounts from `/proc/self/mountinfo`. No path is followed, so a mount whose server is dead
//! or hangs is listed like any other.

use rustix::{
    fs::{AtFlags, CWD, Dev, StatxFlags, makedev, statx},
    io::Errno,
};
use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Component, Path, PathBuf},
};

/// One mount of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Number of the mount in this mount namespace.
    pub id: u64,
    /// Number of the mount that it is mounted on.
    pub parent: u64,
    /// Device number of the file system; without a block device, a number of its own with major 0.
    pub dev: Dev,
    /// Directory of the file system that is mounted: `/`, or another one of a bind mount.
    pub root: PathBuf,
    /// Mount point.
    pub point: PathBuf,
    /// Type of the file system: `ext4`, `fuse.flashsift`.
    pub kind: String,
    /// Source of the mount: a device, a directory, or only a word.
    pub source: OsString,
    /// Options of the mount, then those of its file system, as the kernel lists them.
    pub options: Vec<String>,
    /// The mount or its file system is read-only.
    pub read_only: bool,
    /// User and group of a FUSE mount. Without `allow_other` the kernel admits no others to it, not
    /// even root.
    pub user: Option<(u32, u32)>,
}

impl Mount {
    /// Whether both are mounts of one file system, a bind mount for example.
    ///
    /// The kernel gives the device number of an unmounted file system (major 0) to the next one.
    /// If one of the two was read before that, only its source tells them apart.
    #[must_use]
    pub fn is_copy_of(&self, other: &Self) -> bool {
        self.dev == other.dev && self.source == other.source
    }
}

/// Returns all mounts of this namespace, each after the one below it.
///
/// # Errors
///
/// `/proc/self/mountinfo` cannot be read.
pub fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// Returns the topmost mount at exactly this path, which must be absolute and free of links and
/// dots ([`resolved`]).
///
/// # Errors
///
/// `/proc/self/mountinfo` cannot be read.
pub fn at(point: &Path) -> io::Result<Option<Mount>> {
    Ok(all()?.into_iter().rfind(|mount| mount.point == point))
}

/// Returns the mount that contains a file.
///
/// # Errors
///
/// The file cannot be accessed, or its mount is not in this namespace.
pub fn mount_of(path: &Path) -> io::Result<Mount> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let id = statx(CWD, path, flags, StatxFlags::MNT_ID)?.stx_mnt_id;
    let lost = || io::Error::other(format!("its mount ({id}) is not in /proc/self/mountinfo"));
    all()?.into_iter().find(|mount| mount.id == id).ok_or_else(lost)
}

/// Returns the mounts below a directory.
///
/// # Errors
///
/// `/proc/self/mountinfo` cannot be read.
pub fn below(folder: &Path) -> io::Result<Vec<Mount>> {
    let within = |mount: &Mount| mount.point != folder && mount.point.starts_with(folder);
    Ok(all()?.into_iter().filter(within).collect())
}

/// Types of file systems that need neither another machine nor a process to answer a request. An
/// automount point counts, as a mount on it is reached without its daemon.
const LOCAL: &[&str] = &[
    "adfs",
    "affs",
    "aufs",
    "autofs",
    "bcachefs",
    "befs",
    "binfmt_misc",
    "bpf",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "cramfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hfs",
    "hfsplus",
    "hugetlbfs",
    "iso9660",
    "jffs2",
    "jfs",
    "minix",
    "mqueue",
    "msdos",
    "nilfs2",
    "nsfs",
    "ntfs",
    "ntfs3",
    "overlay",
    "proc",
    "pstore",
    "ramfs",
    "reiserfs",
    "romfs",
    "rootfs",
    "securityfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "ubifs",
    "udf",
    "ufs",
    "vfat",
    "xfs",
    "zfs",
];

impl Mount {
    /// Whether requests to it end even if a server or a daemon does not answer. The root of the
    /// namespace counts: no program runs without it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        LOCAL.contains(&&*self.kind) || self.point == Path::new("/")
    }
}

/// The mounts of a namespace, looked up by path. Only [`Self::find`] accesses file systems, and
/// only local ones.
#[derive(Clone, Debug, Default)]
pub struct Table {
    mounts: Vec<Mount>,
    /// By the mount that it is on (`None`: one that is not listed) and the mount point.
    children: HashMap<(Option<u64>, PathBuf), usize>,
}

impl Table {
    /// Reads the mounts of this namespace.
    ///
    /// # Errors
    ///
    /// `/proc/self/mountinfo` cannot be read.
    pub fn read() -> io::Result<Self> {
        Ok(Self::new(all()?))
    }

    /// Takes mounts, each after the one below it.
    pub fn new(mounts: Vec<Mount>) -> Self {
        let ids: HashSet<u64> = mounts.iter().map(|mount| mount.id).collect();
        let key = |mount: &Mount| {
            let is_listed = ids.contains(&mount.parent) && mount.parent != mount.id;
            (is_listed.then_some(mount.parent), mount.point.clone())
        };
        let children = mounts.iter().enumerate().map(|(n, mount)| (key(mount), n)).collect();
        Self { mounts, children }
    }

    /// Returns all mounts, each after the one below it.
    pub fn all(&self) -> &[Mount] {
        &self.mounts
    }

    /// Returns the mounts that an absolute path without links leads through, the root first.
    fn way(&self, path: &Path) -> Vec<&Mount> {
        let mut way: Vec<&Mount> = Vec::new();
        let prefixes: Vec<&Path> = path.ancestors().collect();
        for prefix in prefixes.into_iter().rev() {
            let child = |on: Option<u64>| self.children.get(&(on, prefix.to_owned()));
            while let Some(&next) = child(way.last().map(|mount| mount.id)) {
                way.push(&self.mounts[next]);
            }
        }
        way
    }

    /// Returns the mount of a file by its absolute path without links; `None` where the root of
    /// this process is not listed.
    pub fn get(&self, path: &Path) -> Option<&Mount> {
        self.way(path).pop()
    }

    /// Whether its mount point leads to it, not to another mount over it, and all mounts on the
    /// way are local.
    pub fn is_reachable(&self, mount: &Mount) -> bool {
        mount.is_local() && self.leads_to(mount)
    }

    /// The same, but the mount itself need not be local.
    pub fn leads_to(&self, mount: &Mount) -> bool {
        let mut way = self.way(&mount.point);
        way.pop().is_some_and(|last| last.id == mount.id) && way.iter().all(|on| on.is_local())
    }

    /// Returns a path without links, and its mount. Where the path enters a mount that is not
    /// local, that mount is returned without a look at it.
    ///
    /// # Errors
    ///
    /// The path does not exist, or its mount is not in this namespace.
    pub fn find(&self, path: &Path) -> io::Result<(PathBuf, &Mount)> {
        const LINKS_MAX: usize = 40;
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        let mut rest = names(&std::path::absolute(path)?);
        while let Some(name) = rest.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(name);
            // Below an automount point, its daemon would be asked, which may ask another machine.
            if self.get(&at).is_some_and(|mount| !mount.is_local() || mount.kind == "autofs") {
                break;
            }
            if at.symlink_metadata()?.is_symlink() {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let target = fs::read_link(&at)?;
                at.pop();
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                rest.extend(names(&target));
            }
        }
        let lost = || io::Error::other("its mount is not in /proc/self/mountinfo");
        let mount = self.get(&at).ok_or_else(lost)?;
        at.extend(rest.into_iter().rev());
        Ok((at, mount))
    }
}

/// Returns the names of a path, the last first.
fn names(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// Returns the number of the mount on which a process has a file open, without access to the file.
///
/// # Errors
///
/// The process or the descriptor is gone, or belongs to another user.
pub fn of_descriptor(pid: u32, fd: u32) -> io::Result<u64> {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}"))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::Error::other("fdinfo has no line `mnt_id`"))
}

/// Returns the absolute path without links, as `/proc` shows it. A dead file system mounted on the
/// path is not accessed.
///
/// # Errors
///
/// The directory above cannot be opened.
pub fn resolved(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if is_dead(&error) => {
            let parent = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            let name = path.file_name().ok_or(error)?;
            Ok(parent.canonicalize()?.join(name))
        }
        other => other,
    }
}

/// Whether the kernel reports that the server of a FUSE file system is gone.
pub fn is_dead(error: &io::Error) -> bool {
    [Errno::NOTCONN, Errno::CONNABORTED]
        .iter()
        .any(|dead| error.raw_os_error() == Some(dead.raw_os_error()))
}

/// Parses the text of a `mountinfo`; malformed lines are left out.
pub fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|&byte| byte == b'\n').filter_map(line).collect()
}

/// Parses a line: `22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw`
fn line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let text = |field: &[u8]| String::from_utf8(field.to_vec()).ok();
    let id = text(fields.next()?)?.parse().ok()?;
    let parent = text(fields.next()?)?.parse().ok()?;
    let dev = text(fields.next()?)?;
    let (major, minor) = dev.split_once(':')?;
    let dev = makedev(major.parse().ok()?, minor.parse().ok()?);
    let root = PathBuf::from(unescaped(fields.next()?));
    let point = PathBuf::from(unescaped(fields.next()?));
    let options = fields.next()?;
    fields.find(|&field| field == b"-")?;
    let kind = text(fields.next()?)?;
    let source = unescaped(fields.next()?);
    let of_file_system = fields.next().unwrap_or_default();
    let each =
        [options, of_file_system].into_iter().flat_map(|all| all.split(|&byte| byte == b','));
    let options: Vec<String> =
        each.map(|option| String::from_utf8_lossy(option).into_owned()).collect();
    let read_only = options.iter().any(|option| option == "ro");
    let number = |name: &str| {
        let values = of_file_system.split(|&byte| byte == b',');
        let mut values = values.filter_map(|option| option.strip_prefix(name.as_bytes()));
        std::str::from_utf8(values.next()?).ok()?.parse().ok()
    };
    let user = number("user_id=").zip(number("group_id="));
    Some(Mount { id, parent, dev, root, point, kind, source, options, read_only, user })
}

/// Replaces escapes of the kernel, such as `\\040` for a space.
pub fn unescaped(text: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    const MOUNTINFO: &[u8] = b"\
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
24 22 8:1 / /mnt/my\\040card ro,nosuid shared:7 master:2 - vfat /dev/sda1 rw
25 22 0:44 /sub /data rw - btrfs /dev/sdb ro,subvol=/sub
26 22 0:50 / /caf\xe9 rw,nosuid,nodev - fuse.flashsift /srv/a\\011b rw,user_id=1000,group_id=100
27 22 a:b no line
";

    #[test]
    fn mountinfo_is_read() {
        let mounts = parse(MOUNTINFO);
        assert_eq!(mounts.len(), 4);
        assert_eq!(
            mounts[1],
            Mount {
                id: 24,
                parent: 22,
                dev: makedev(8, 1),
                root: "/".into(),
                point: "/mnt/my card".into(),
                kind: "vfat".into(),
                source: "/dev/sda1".into(),
                options: ["ro", "nosuid", "rw"].map(str::to_owned).to_vec(),
                read_only: true,
                user: None,
            }
        );
        assert!(mounts[2].read_only && !mounts[0].read_only);
        assert_eq!(mounts[3].point, Path::new(OsStr::from_bytes(b"/caf\xe9")));
        assert_eq!(mounts[3].source, "/srv/a\tb");
        assert_eq!(mounts[3].user, Some((1000, 100)));
    }

    /// `unmount` said of a mount that "the same file system is still mounted" at the place of a
    /// stranger's: his mount, made in between, had got the number of the one just unmounted.
    #[test]
    fn a_number_given_to_the_next_file_system_makes_it_no_copy() {
        let [gone, copy, next] = ["/srv/a /seen", "/srv/a /copy", "/srv/b /other"].map(|which| {
            let (source, point) = which.split_once(' ').unwrap();
            let line = format!("26 22 0:50 / {point} rw - fuse.flashsift {source} rw\n");
            parse(line.as_bytes()).remove(0)
        });
        assert!(copy.is_copy_of(&gone) && !next.is_copy_of(&gone));
    }

    fn table(text: &str) -> Table {
        Table::new(parse(text.as_bytes()))
    }

    /// A mount below another one that was mounted over later is not reached by its path.
    #[test]
    fn a_path_leads_to_the_topmost_mount_on_its_way() {
        let table = table(
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
             30 22 8:2 / /mnt/part rw - ext4 /dev/sdb1 rw\n\
             31 30 8:3 / /mnt/part/in rw - ext4 /dev/sdc1 rw\n\
             32 22 0:50 / /far rw - nfs4 server:/ rw\n\
             33 32 8:4 / /far/disk rw - ext4 /dev/sdd1 rw\n\
             34 30 0:51 / /mnt/part rw - fuse.sshfs host: rw\n",
        );
        let of = |path: &str| table.get(Path::new(path)).unwrap().id;
        assert_eq!((of("/"), of("/mnt/partner"), of("/mnt/part")), (22, 22, 34));
        assert_eq!((of("/mnt/part/in/x"), of("/far/disk/x")), (34, 33));
        let reachable =
            |id: u64| table.is_reachable(table.all().iter().find(|mount| mount.id == id).unwrap());
        assert!(reachable(22));
        assert!(!reachable(30) && !reachable(31), "another mount is over them");
        assert!(!reachable(33), "the server may not answer");
    }

    /// Links are followed as the kernel does, but not into a file system that may not answer.
    #[test]
    fn a_path_is_found_without_a_look_at_other_machines() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap();
        fs::create_dir_all(here.join("real/inner")).unwrap();
        let link = |name: &str, to: &str| {
            std::os::unix::fs::symlink(to, here.join(name)).unwrap();
        };
        link("link", "real/../real");
        link("absolute", &format!("{}/link", here.display()));
        link("loop", "loop");
        let now = Table::read().unwrap();
        let (path, mount) = now.find(&here.join("absolute/inner/..")).unwrap();
        assert_eq!(path, here.join("real"));
        assert_eq!(mount.id, mount_of(&here).unwrap().id);
        assert!(now.find(&here.join("loop")).is_err() && now.find(&here.join("none")).is_err());

        // No such directory is there: it is not looked at.
        let dead = format!(
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
             30 22 0:50 / {}/none rw - fuse.sshfs host: rw\n",
            here.display()
        );
        let dead = table(&dead);
        let (path, mount) = dead.find(&here.join("link/../none/a/b")).unwrap();
        assert_eq!((path, mount.id), (here.join("none/a/b"), 30));
    }

    #[test]
    fn the_mount_of_a_descriptor_is_known() {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir().unwrap();
        let file = fs::File::create(folder.path().join("file")).unwrap();
        let fd = file.as_raw_fd().unsigned_abs();
        let found = of_descriptor(std::process::id(), fd).unwrap();
        assert_eq!(found, mount_of(folder.path()).unwrap().id);
        assert!(of_descriptor(std::process::id(), u32::MAX).is_err());
    }

    #[test]
    fn other_backslashes_stay() {
        assert_eq!(unescaped(b"a\\040b\\134\\9x\\"), "a b\\\\9x\\");
    }

    #[test]
    fn the_mount_of_a_file_is_the_one_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = resolved(folder.path()).unwrap();
        let mount = mount_of(&path).unwrap();
        assert!(path.starts_with(&mount.point));
        assert_eq!(at(&path).unwrap(), None);
        assert_eq!(at(&mount.point).unwrap().unwrap().id, mount.id);
        assert_eq!(mount_of(Path::new("/proc/self")).unwrap().kind, "proc");
        let in_proc = below(Path::new("/")).unwrap();
        assert!(in_proc.iter().any(|mount| mount.kind == "proc"));
        assert!(in_proc.iter().all(|mount| mount.point != Path::new("/")));
    }
}
