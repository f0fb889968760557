//! Finds the users of a block device: mounts, swap, devices stacked on it.

use flashsift_host::mounts::{self, Mount, unescaped};
use rustix::fs::{Dev, major, makedev, minor};
use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// Lists the uses of a device that forbid writing to it, as text for messages; empty if none is
/// known.
///
/// A disk is used if one of its partitions is. A partition is used if its disk is used as a whole.
pub fn used_by(dev: Dev) -> Vec<String> {
    let family = family(dev);
    let mut uses = mounted(&mounts::all().unwrap_or_default(), &family, device_at);
    uses.extend(swaps(&fs::read_to_string("/proc/swaps").unwrap_or_default(), &family, device_at));
    for member in &family {
        let holders = fs::read_dir(sys(*member).join("holders")).into_iter().flatten().flatten();
        uses.extend(holders.map(|holder| {
            format!("{} is stacked on it", Path::new("/dev").join(holder.file_name()).display())
        }));
    }
    uses.extend(loops().into_iter().filter_map(|(name, backing)| {
        let inside = device_at(backing.as_ref()).is_some_and(|dev| family.contains(&dev));
        inside.then(|| format!("{name} is stacked on it"))
    }));
    uses
}

/// Returns the loop device that is backed by this file, if any.
pub fn loop_on(file: &fs::Metadata) -> Option<String> {
    loops().into_iter().find_map(|(name, backing)| {
        let other = fs::metadata(&backing).ok()?;
        ((other.dev(), other.ino()) == (file.dev(), file.ino())).then_some(name)
    })
}

/// Returns the kernel's name of the device, such as `sda1`.
pub fn name(dev: Dev) -> String {
    let path = sys(dev).canonicalize().unwrap_or_default();
    path.file_name().map_or_else(
        || format!("{}:{}", major(dev), minor(dev)),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// Whether the device supports discards.
pub fn discards(dev: Dev) -> bool {
    let disk = sys(whole(dev));
    fs::read_to_string(disk.join("queue/discard_max_bytes")).is_ok_and(|bytes| bytes.trim() != "0")
}

fn sys(dev: Dev) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(dev), minor(dev)))
}

/// The disk itself, or the disk of a partition.
fn whole(dev: Dev) -> Dev {
    let path = sys(dev).canonicalize().unwrap_or_default();
    match path.join("partition").exists() {
        true => path.parent().and_then(number_in).unwrap_or(dev),
        false => dev,
    }
}

/// The device, its disk, and the partitions if it is a disk.
fn family(dev: Dev) -> Vec<Dev> {
    let whole = whole(dev);
    let mut family = vec![dev];
    if whole != dev {
        family.push(whole);
        return family;
    }
    for entry in fs::read_dir(sys(dev).join(".")).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists() {
            family.extend(number_in(&entry.path()));
        }
    }
    family
}

fn number_in(sys: &Path) -> Option<Dev> {
    number(fs::read_to_string(sys.join("dev")).ok()?.trim())
}

fn number(text: &str) -> Option<Dev> {
    let (major, minor) = text.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn device_at(path: &OsStr) -> Option<Dev> {
    let metadata = fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| metadata.rdev())
}

/// Loop devices in use and their backing files.
fn loops() -> Vec<(String, String)> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let backing = |entry: fs::DirEntry| -> io::Result<_> {
        let path = fs::read_to_string(entry.path().join("loop/backing_file"))?;
        Ok((
            format!("/dev/{}", entry.file_name().to_string_lossy()),
            path.trim_end_matches('\n').to_owned(),
        ))
    };
    entries.filter_map(|entry| backing(entry).ok()).collect()
}

/// Mounts of these devices in `/proc/self/mountinfo`. File systems with several devices have their
/// own device number there and one of the devices as their source.
fn mounted(
    mounts: &[Mount],
    devices: &[Dev],
    device_at: impl Fn(&OsStr) -> Option<Dev>,
) -> Vec<String> {
    let of = |dev: Dev| devices.contains(&dev);
    let ours = |mount: &&Mount| of(mount.dev) || device_at(&mount.source).is_some_and(of);
    mounts
        .iter()
        .filter(ours)
        .map(|mount| format!("it is mounted on {}", mount.point.display()))
        .collect()
}

/// Those of these devices that `/proc/swaps` lists.
fn swaps(swaps: &str, devices: &[Dev], device_at: impl Fn(&OsStr) -> Option<Dev>) -> Vec<String> {
    let names = swaps.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
    let names = names.map(|name| unescaped(name.as_bytes()));
    let ours = names.filter(|name| device_at(name).is_some_and(|dev| devices.contains(&dev)));
    ours.map(|name| format!("{} is swap", name.display())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
23 22 0:21 / /proc rw - proc proc rw
24 22 8:1 / /mnt/my\\040card ro,nosuid shared:7 master:2 - vfat /dev/sda1 rw
25 22 0:44 /sub /data rw - btrfs /dev/sdb rw,subvol=/sub
26 22 7:0 / /mnt/loop rw - ext4 /dev/loop0 rw
";

    fn device_at(path: &OsStr) -> Option<Dev> {
        Some(match path.to_str()? {
            "/dev/sda1" => makedev(8, 1),
            "/dev/sda2" => makedev(8, 2),
            "/dev/sdb" => makedev(8, 16),
            "/dev/zram 0" => makedev(252, 0),
            _ => return None,
        })
    }

    #[test]
    fn mounts_are_found_by_number_and_by_source() {
        let at =
            |devices: &[Dev]| mounted(&mounts::parse(MOUNTINFO.as_bytes()), devices, device_at);
        assert_eq!(at(&[makedev(8, 1)]), ["it is mounted on /mnt/my card"]);
        assert_eq!(
            at(&[makedev(8, 0), makedev(8, 1), makedev(8, 2)]),
            ["it is mounted on /", "it is mounted on /mnt/my card"]
        );
        assert_eq!(at(&[makedev(8, 16)]), ["it is mounted on /data"]);
        assert_eq!(at(&[makedev(7, 0)]), ["it is mounted on /mnt/loop"]);
        assert!(at(&[makedev(8, 3)]).is_empty());
    }

    #[test]
    fn swap_is_found() {
        let text = "Filename\t\t\t\tType\t\tSize\tUsed\tPriority\n/dev/zram\\0400  partition\t100\t0\t-2\n/swapfile file 1 0 -3\n";
        assert_eq!(swaps(text, &[makedev(252, 0)], device_at), ["/dev/zram 0 is swap"]);
        assert!(swaps(text, &[makedev(8, 1)], device_at).is_empty());
    }
}
