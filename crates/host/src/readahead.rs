//! The maximum of the kernel's read-ahead (`read_ahead_kb`): finds where it is set for a file
//! system, reads it and changes it.
//!
//! The maximum belongs to a *backing device info* (bdi), which a file system chooses when it is
//! mounted. For most it is the bdi of the whole disk below, also if the file system lies on a
//! partition. A file system on a mapped device (dm-crypt, LVM) has the bdi of the mapped device,
//! and the values of the disks below it have no effect. btrfs has a bdi of its own.

use crate::mounts::Mount;
use rustix::fs::{Dev, FileType, major, makedev, minor};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt, fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

mod change;

pub use crate::change::{ChangeError, ChangeState};
pub use change::{Applied, KeptKib, Machine, MaximumChange, ReadAheadStatus, Undone, boot_id};
pub(crate) use change::{may_write, write_value};

/// A backing device info with a maximum of read-ahead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Backing {
    /// Name in `/sys/class/bdi`: `8:0`, `btrfs-1`.
    pub bdi: String,
    /// The file that holds the maximum in KiB.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// How it was found, as a sentence.
    pub why: String,
    /// Mount points of the file systems that use it, as far as they were examined.
    pub mounts: Vec<PathBuf>,
    /// Kind of the mounted file system.
    pub file_system: Option<String>,
    /// Device number of the mounted file system, as the kernel's tracepoints report it.
    #[serde(skip)]
    pub dev: Option<Dev>,
    /// The device behind it.
    pub device: Identity,
}

fn as_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// Facts by which a device is known again: a device number is given to another device after a
/// restart or a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Name in `/sys/block`, if the bdi is that of a block device.
    pub name: Option<String>,
    /// `serial`, `cid`, `wwid`, `dm_uuid`, `dm_name`, `loop_file` or `btrfs_uuid`, where the device
    /// has them.
    pub facts: BTreeMap<String, String>,
    /// Names in `/dev/disk/by-id`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_id: Vec<String>,
}

impl Identity {
    /// Whether both are the same device. Links in `/dev` are not compared: udev makes and removes
    /// them at any time.
    pub fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.facts == other.facts
    }
}

/// Reasons for which no bdi is found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// Neither a device nor a directory has this name.
    #[error("there is no device or mount point {0}")]
    Absent(String),
    /// The path is a file of another type.
    #[error("{0} is neither a block device nor a directory")]
    OtherType(String),
    /// The file system has no read-ahead that could be set.
    #[error("{0}")]
    NoReadAhead(String),
    /// Several file systems with different values use the device.
    #[error(
        "{device} is below several file systems with values of their own: name one of {}",
        .mounts.join(", ")
    )]
    Several {
        /// The device that was named.
        device: String,
        /// The mount points to choose from.
        mounts: Vec<String>,
    },
    /// sysfs could not be read.
    #[error("{path}: {error}")]
    At {
        /// Path of the file.
        path: String,
        /// The error of the system.
        error: io::Error,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> FindError + '_ {
    move |error| FindError::At { path: path.display().to_string(), error }
}

/// Finds the bdi of a device (`sda2`, `/dev/mapper/home`) or of the file system of a directory.
/// `sys`: `/sys`, or a tree of a test; `mounts`: those of this machine, each after the one below.
///
/// # Errors
///
/// There is no such device or directory, it has no read-ahead, or it is not clear which file system
/// is meant.
pub fn find(sys: &Path, mounts: &[Mount], target: &OsStr) -> Result<Backing, FindError> {
    let text = target.to_string_lossy().into_owned();
    let path = Path::new(target);
    if path.components().count() == 1 && !path.is_absolute() {
        let folder = sys.join("class/block").join(path);
        if let Ok(dev) = fs::read_to_string(folder.join("dev")) {
            let dev = parse_dev(&dev).ok_or_else(|| malformed(&folder.join("dev")))?;
            return of_device(sys, mounts, dev, &text);
        }
    }
    let resolved = path.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => FindError::Absent(text.clone()),
        _ => at(path)(error),
    })?;
    let meta = resolved.metadata().map_err(at(&resolved))?;
    if meta.file_type().is_block_device() {
        return of_device(sys, mounts, meta.rdev(), &text);
    }
    if FileType::from_raw_mode(meta.mode()) != FileType::Directory {
        return Err(FindError::OtherType(text));
    }
    // The last mount at a place hides those below it.
    let depth = |mount: &&Mount| mount.point.components().count();
    let above = mounts.iter().filter(|mount| resolved.starts_with(&mount.point)).max_by_key(depth);
    let mount = above.ok_or_else(|| FindError::Absent(text.clone()))?;
    let mut backing = of_mount(sys, mounts, mount)?;
    if mount.point != resolved {
        backing.why =
            format!("{text} is in the file system of {}. {}", mount.point.display(), backing.why);
    }
    Ok(backing)
}

/// Finds a bdi by its name in `/sys/class/bdi`; `None` if it exists no more.
pub fn named(sys: &Path, bdi: &str) -> Option<(PathBuf, Identity)> {
    // The name may come from a file: it must not lead out of the folder.
    if bdi.is_empty() || bdi.contains('/') || bdi.starts_with('.') {
        return None;
    }
    let path = sys.join("class/bdi").join(bdi).join("read_ahead_kb");
    if !path.exists() {
        return None;
    }
    let identity = match parse_dev(bdi) {
        Some(dev) if major(dev) != 0 => Block::new(sys, dev).map(|block| block.identity()).ok()?,
        _ => btrfs(sys).into_iter().find(|btrfs| btrfs.bdi.as_deref() == Some(bdi)).map_or_else(
            Identity::default,
            |btrfs| Identity {
                facts: BTreeMap::from([("btrfs_uuid".to_owned(), btrfs.uuid)]),
                ..Identity::default()
            },
        ),
    };
    Some((path, identity))
}

/// The bdi of a device: that of the file systems on it, on its partitions, or on devices that are
/// mapped to it.
fn of_device(sys: &Path, mounts: &[Mount], dev: Dev, text: &str) -> Result<Backing, FindError> {
    let block = Block::new(sys, dev)?;
    let mut users: Vec<(Backing, PathBuf)> = Vec::new();
    let all_btrfs = btrfs(sys);
    for block in block.above(sys) {
        for mount in mounts {
            let on_it = mount.dev == block.dev
                || mount.kind == "btrfs"
                    && all_btrfs.iter().any(|btrfs| {
                        btrfs.devices.contains(&block.name) && btrfs.has(&source_name(mount))
                    });
            if on_it && users.iter().all(|(_, point)| *point != mount.point) {
                users.push((of_mount(sys, mounts, mount)?, mount.point.clone()));
            }
        }
    }
    let Some((first, _)) = users.first() else {
        let whole = block.whole(sys)?;
        let part = if whole.name == block.name {
            String::new()
        } else {
            format!(", the disk of {}", block.name)
        };
        let why = format!(
            "No file system on {text} is mounted, so this is the value of the block device \
             {}{part}. A file system on a mapped device, or btrfs, would have its own.",
            whole.name
        );
        return whole.backing(sys, why);
    };
    if users.iter().any(|(backing, _)| backing.bdi != first.bdi) {
        let mounts = users.iter().map(|(_, point)| point.display().to_string()).collect();
        return Err(FindError::Several { device: text.to_owned(), mounts });
    }
    let points: Vec<PathBuf> = users.iter().map(|(_, point)| point.clone()).collect();
    let mut backing = first.clone();
    // More than one file system: no single one can be watched.
    if users.iter().any(|(other, _)| other.dev != first.dev) {
        (backing.dev, backing.file_system) = (None, None);
    }
    backing.mounts = points;
    Ok(backing)
}

fn of_mount(sys: &Path, mounts: &[Mount], mount: &Mount) -> Result<Backing, FindError> {
    let point = mount.point.display();
    let (mut backing, dev) = if mount.kind == "btrfs" {
        (of_btrfs(sys, mount)?, mount.dev)
    } else if major(mount.dev) == 0 {
        let bdi = format!("0:{}", minor(mount.dev));
        let Some((path, device)) = named(sys, &bdi) else {
            return Err(FindError::NoReadAhead(format!(
                "{point} ({}) has no read-ahead of its own: name the device or the file system \
                 that holds its data",
                mount.kind
            )));
        };
        let why =
            format!("{point} ({}) has no block device and a bdi of its own, {bdi}.", mount.kind);
        let (mounts, file_system, dev) = (Vec::new(), None, None);
        (Backing { bdi, path, why, mounts, file_system, dev, device }, mount.dev)
    } else {
        let block = Block::new(sys, mount.dev)?;
        let whole = block.whole(sys)?;
        let why = if whole.name != block.name {
            format!(
                "{point} ({}) is on {}, a partition: the value belongs to the whole disk {} and to \
                 all its partitions.",
                mount.kind, block.name, whole.name
            )
        } else if let Some(mapped) = whole.identity().facts.get("dm_name") {
            format!(
                "{point} ({}) is on the mapped device {mapped} ({}): its value counts, not those \
                 of the disks below.",
                mount.kind, whole.name
            )
        } else {
            format!("{point} ({}) is on {}.", mount.kind, whole.name)
        };
        (whole.backing(sys, why)?, mount.dev)
    };
    let same = mounts.iter().filter(|other| other.dev == dev);
    backing.mounts = same.map(|mount| mount.point.clone()).collect();
    backing.mounts.dedup();
    backing.file_system = Some(mount.kind.clone());
    backing.dev = Some(dev);
    Ok(backing)
}

fn of_btrfs(sys: &Path, mount: &Mount) -> Result<Backing, FindError> {
    let source = source_name(mount);
    let found = btrfs(sys).into_iter().find(|btrfs| btrfs.has(&source));
    let no =
        |why: &str| FindError::NoReadAhead(format!("{} (btrfs): {why}", mount.point.display()));
    let found = found.ok_or_else(|| no(&format!("{source} is not in /sys/fs/btrfs")))?;
    // Linux has the link since 5.9.
    let bdi = found.bdi.ok_or_else(|| no("this kernel does not say which bdi it has"))?;
    let (path, mut device) =
        named(sys, &bdi).ok_or_else(|| no(&format!("there is no /sys/class/bdi/{bdi}")))?;
    device.facts.insert("btrfs_uuid".to_owned(), found.uuid);
    let why = format!(
        "{} (btrfs) has a bdi of its own, {bdi}: the values of its devices ({}) have no effect.",
        mount.point.display(),
        found.devices.join(", ")
    );
    let (mounts, file_system, dev) = (Vec::new(), None, None);
    Ok(Backing { bdi, path, why, mounts, file_system, dev, device })
}

/// The name in `/sys/class/block` of the device that was mounted.
fn source_name(mount: &Mount) -> String {
    let path = Path::new(&mount.source);
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A mounted btrfs, from `/sys/fs/btrfs`.
struct Btrfs {
    uuid: String,
    devices: Vec<String>,
    bdi: Option<String>,
}

impl Btrfs {
    fn has(&self, device: &str) -> bool {
        self.devices.iter().any(|name| name == device)
    }
}

fn btrfs(sys: &Path) -> Vec<Btrfs> {
    let folders = names(&sys.join("fs/btrfs")).into_iter().filter(|name| name != "features");
    folders
        .map(|uuid| {
            let folder = sys.join("fs/btrfs").join(&uuid);
            let link = fs::read_link(folder.join("bdi")).ok();
            let bdi = link.and_then(|to| Some(to.file_name()?.to_string_lossy().into_owned()));
            Btrfs { devices: names(&folder.join("devices")), uuid, bdi }
        })
        .collect()
}

/// Names in a folder, in order; none if it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A block device in sysfs.
#[derive(Clone)]
struct Block {
    dev: Dev,
    name: String,
    folder: PathBuf,
}

impl Block {
    fn new(sys: &Path, dev: Dev) -> Result<Self, FindError> {
        let link = sys.join(format!("dev/block/{}:{}", major(dev), minor(dev)));
        let folder = fs::canonicalize(&link).map_err(at(&link))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { dev, name, folder })
    }

    fn in_folder(folder: &Path) -> Option<Self> {
        let folder = fs::canonicalize(folder).ok()?;
        let dev = parse_dev(&fs::read_to_string(folder.join("dev")).ok()?)?;
        let name = folder.file_name()?.to_string_lossy().into_owned();
        Some(Self { dev, name, folder })
    }

    /// The disk of a partition; other devices themselves.
    fn whole(&self, sys: &Path) -> Result<Self, FindError> {
        let disk = self.folder.parent().filter(|_| self.folder.join("partition").exists());
        let Some(disk) = disk else { return Ok(self.clone()) };
        let path = disk.join("dev");
        let dev = fs::read_to_string(&path).map_err(at(&path))?;
        Self::new(sys, parse_dev(&dev).ok_or_else(|| malformed(&path))?)
    }

    /// This device, its partitions, and the devices that are mapped to any of them.
    fn above(&self, sys: &Path) -> Vec<Self> {
        let mut all: Vec<Self> = vec![self.clone()];
        let mut next = 0;
        while let Some(block) = all.get(next).cloned() {
            next += 1;
            let inside = names(&block.folder).into_iter().map(|name| block.folder.join(name));
            let partitions = inside.filter(|folder| folder.join("partition").exists());
            let holders = names(&block.folder.join("holders"));
            let holders = holders.iter().map(|name| sys.join("class/block").join(name));
            for folder in partitions.chain(holders) {
                if let Some(found) = Self::in_folder(&folder)
                    && all.iter().all(|known| known.dev != found.dev)
                {
                    all.push(found);
                }
            }
        }
        all
    }

    fn backing(&self, sys: &Path, why: String) -> Result<Backing, FindError> {
        let bdi = format!("{}:{}", major(self.dev), minor(self.dev));
        let path = sys.join("class/bdi").join(&bdi).join("read_ahead_kb");
        if !path.exists() {
            let why = format!("{} has no read-ahead ({} is absent)", self.name, path.display());
            return Err(FindError::NoReadAhead(why));
        }
        let device = self.identity();
        let (mounts, file_system, dev) = (Vec::new(), None, None);
        Ok(Backing { bdi, path, why, mounts, file_system, dev, device })
    }

    fn identity(&self) -> Identity {
        const FACTS: [(&str, &str); 9] = [
            ("cid", "device/cid"),
            ("wwid", "wwid"),
            ("device_wwid", "device/wwid"),
            ("serial", "serial"),
            ("device_serial", "device/serial"),
            ("dm_uuid", "dm/uuid"),
            ("dm_name", "dm/name"),
            ("loop_file", "loop/backing_file"),
            ("md_uuid", "md/uuid"),
        ];
        let fact = |(name, file): (&str, &str)| {
            let text = fs::read_to_string(self.folder.join(file)).ok()?;
            let text = text.trim();
            (!text.is_empty()).then(|| (name.to_owned(), text.to_owned()))
        };
        let facts = FACTS.into_iter().filter_map(fact).collect();
        let folder = Path::new("/dev/disk/by-id");
        let leads_here = |name: &String| {
            fs::metadata(folder.join(name)).is_ok_and(|meta| meta.rdev() == self.dev)
        };
        let by_id = names(folder).into_iter().filter(leads_here).collect();
        Identity { name: Some(self.name.clone()), facts, by_id }
    }
}

fn parse_dev(text: &str) -> Option<Dev> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn malformed(path: &Path) -> FindError {
    at(path)(io::Error::other("unexpected form"))
}

/// Reads a maximum, KiB.
///
/// # Errors
///
/// The file cannot be read or holds no number.
pub fn kib(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?.trim().parse().map_err(|_| io::Error::other("unexpected form"))
}

/// Returns the value that the kernel keeps of one in bytes: it counts in whole pages.
pub fn kept_kib(bytes: u64) -> u64 {
    let page_bytes = rustix::param::page_size() as u64;
    bytes / page_bytes * page_bytes / 1024
}

/// Lines that set a value at every start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Permanent {
    /// A udev rule; `None` where the name of the bdi changes from mount to mount.
    pub udev: Option<String>,
    /// The rule matches a name that the kernel may give to another device.
    pub name_may_change: bool,
    /// A line for Android's init.
    pub android_init: Option<String>,
}

impl Backing {
    /// Returns the lines that set the value at every start.
    pub fn permanent(&self, kib: u64) -> Permanent {
        let fact = |name: &str| self.device.facts.get(name);
        // The strings of a rule end at a quotation mark, and `*?[|` are patterns.
        let is_plain = |text: &str| !text.contains(['"', '\\', '*', '?', '[', '|', '\n']);
        let matches = |key: &str, name: &str| {
            fact(name).filter(|text| is_plain(text)).map(|text| format!("{key}==\"{text}\""))
        };
        let stable = matches("ENV{DM_NAME}", "dm_name")
            .or_else(|| matches("ATTRS{cid}", "cid"))
            .or_else(|| matches("ATTR{wwid}", "wwid"))
            .or_else(|| matches("ATTRS{wwid}", "device_wwid"))
            .or_else(|| matches("ATTR{serial}", "serial"))
            .or_else(|| matches("ATTRS{serial}", "device_serial"));
        let (udev, name_may_change) = match &self.device.name {
            Some(name) => {
                let known = stable.clone().unwrap_or_else(|| format!("KERNEL==\"{name}\""));
                let rule = format!(
                    "ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{{DEVTYPE}}==\"disk\", \
                     {known}, ATTR{{queue/read_ahead_kb}}=\"{kib}\""
                );
                (Some(rule), stable.is_none())
            }
            None if self.bdi.starts_with("btrfs-") => {
                let rule = format!(
                    "ACTION==\"add\", SUBSYSTEM==\"bdi\", KERNEL==\"btrfs-*\", \
                     ATTR{{read_ahead_kb}}=\"{kib}\""
                );
                (Some(rule), true)
            }
            None => (None, true),
        };
        let android_init = self.device.name.as_ref().map(|name| {
            let data = Path::new("/data");
            let is_data = self.mounts.iter().any(|point| point == data);
            let name = if is_data { "${dev.mnt.blk.data}" } else { name };
            format!("write /sys/block/{name}/queue/read_ahead_kb {kib}")
        });
        Permanent { udev, name_may_change, android_init }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_deref().unwrap_or("no block device"))?;
        for (name, value) in &self.facts {
            write!(f, ", {name} {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
