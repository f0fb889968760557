//! Reads mounts from `/proc/self/mountinfo`. No path is followed, so a mount whose server is dead
//! or hangs is listed like any other.

use rustix::{
    fs::{AtFlags, CWD, Dev, StatxFlags, makedev, statx},
    io::Errno,
};
use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// One mount of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Number of the mount in this mount namespace.
    pub id: u64,
    /// Device number of the file system; without a block device, a number of its own with major 0.
    pub dev: Dev,
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
pub fn of(path: &Path) -> io::Result<Mount> {
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
    let dev = text(fields.nth(1)?)?;
    let (major, minor) = dev.split_once(':')?;
    let dev = makedev(major.parse().ok()?, minor.parse().ok()?);
    let point = PathBuf::from(unescaped(fields.nth(1)?));
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
    Some(Mount { id, dev, point, kind, source, options, read_only, user })
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
                dev: makedev(8, 1),
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

    #[test]
    fn other_backslashes_stay() {
        assert_eq!(unescaped(b"a\\040b\\134\\9x\\"), "a b\\\\9x\\");
    }

    #[test]
    fn the_mount_of_a_file_is_the_one_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = resolved(folder.path()).unwrap();
        let mount = of(&path).unwrap();
        assert!(path.starts_with(&mount.point));
        assert_eq!(at(&path).unwrap(), None);
        assert_eq!(at(&mount.point).unwrap().unwrap().id, mount.id);
        assert_eq!(of(Path::new("/proc/self")).unwrap().kind, "proc");
        let in_proc = below(Path::new("/")).unwrap();
        assert!(in_proc.iter().any(|mount| mount.kind == "proc"));
        assert!(in_proc.iter().all(|mount| mount.point != Path::new("/")));
    }
}
