//! Disks and what they did since the machine started, from sysfs.

use rustix::fs::{Dev, major, minor};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A whole disk, not one of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Name in `/sys/block`.
    pub name: String,
    /// Model, where it has one.
    pub model: Option<String>,
    /// Capacity.
    pub capacity_bytes: u64,
    /// Counters of the kernel.
    pub counters: Counters,
}

/// Bytes since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes discarded; 0 before Linux 4.18.
    pub discarded_bytes: u64,
}

impl Counters {
    /// Returns what came since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            discarded_bytes: self.discarded_bytes.saturating_sub(before.discarded_bytes),
        }
    }
}

/// The kernel counts in these units, whatever the disk's own sectors are
/// (`Documentation/block/stat.rst`).
const SECTOR_BYTES: u64 = 512;

/// Returns the disk with this device number, or the one of which it is a partition. `sys`: `/sys`,
/// or a tree of a test.
///
/// # Errors
///
/// There is no such block device, or a file of sysfs has an unexpected form.
pub fn disk_of(sys: &Path, dev: Dev) -> io::Result<Disk> {
    let link = sys.join(format!("dev/block/{}:{}", major(dev), minor(dev)));
    let mut folder = fs::canonicalize(&link)?;
    if folder.join("partition").exists() {
        folder.pop();
    }
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let model = fs::read_to_string(folder.join("device/model"))
        .or_else(|_| fs::read_to_string(folder.join("device/name")));
    Ok(Disk {
        name: name.unwrap_or_default(),
        model: model.ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()),
        capacity_bytes: number(&folder.join("size"))?.saturating_mul(SECTOR_BYTES),
        counters: counters(&folder.join("stat"))?,
    })
}

fn number(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?.trim().parse().map_err(|_| malformed(path))
}

/// Third field: sectors read; seventh: sectors written; fourteenth: sectors discarded.
fn counters(path: &PathBuf) -> io::Result<Counters> {
    let text = fs::read_to_string(path)?;
    let fields: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let bytes = |n: usize| fields.get(n).map(|sectors| sectors.saturating_mul(SECTOR_BYTES));
    Ok(Counters {
        read_bytes: bytes(2).ok_or_else(|| malformed(path))?,
        written_bytes: bytes(6).ok_or_else(|| malformed(path))?,
        discarded_bytes: bytes(13).unwrap_or_default(),
    })
}

fn malformed(path: &Path) -> io::Error {
    io::Error::other(format!("{} has an unexpected form", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;

    fn tree(stat: &str) -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let disk = sys.path().join("devices/mmc/block/mmcblk0");
        fs::create_dir_all(disk.join("mmcblk0p1")).unwrap();
        fs::create_dir_all(disk.join("device")).unwrap();
        fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        fs::write(disk.join("size"), "62333952\n").unwrap();
        fs::write(disk.join("stat"), stat).unwrap();
        fs::write(disk.join("device/name"), "SC32G\n").unwrap();
        fs::write(disk.join("mmcblk0p1/partition"), "1\n").unwrap();
        let link = |name: &str, to: &Path| {
            std::os::unix::fs::symlink(to, sys.path().join("dev/block").join(name)).unwrap();
        };
        link("179:0", &disk);
        link("179:1", &disk.join("mmcblk0p1"));
        sys
    }

    #[test]
    fn a_partition_belongs_to_its_disk() {
        let sys = tree("1 0 8 0 2 0 16 0 0 0 0 5 0 24 0 0 0\n");
        let disk = disk_of(sys.path(), makedev(179, 1)).unwrap();
        assert_eq!(disk, disk_of(sys.path(), makedev(179, 0)).unwrap());
        assert_eq!((&*disk.name, disk.model.as_deref()), ("mmcblk0", Some("SC32G")));
        assert_eq!(disk.capacity_bytes, 62_333_952 * 512);
        let counted = Counters { read_bytes: 4096, written_bytes: 8192, discarded_bytes: 12_288 };
        assert_eq!(disk.counters, counted);
        assert_eq!(counted.since(Counters { written_bytes: 4096, ..counted }).written_bytes, 4096);
    }

    #[test]
    fn a_short_line_is_an_error_and_an_old_kernel_has_no_discards() {
        let sys = tree("1 0 8 0\n");
        assert!(disk_of(sys.path(), makedev(179, 0)).unwrap_err().to_string().contains("stat"));
        let sys = tree("1 0 8 0 2 0 16 0 0 0 0\n");
        assert_eq!(disk_of(sys.path(), makedev(179, 0)).unwrap().counters.discarded_bytes, 0);
        assert!(disk_of(sys.path(), makedev(8, 0)).is_err());
    }
}
