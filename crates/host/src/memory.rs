//! Memory that is short: stalls of this machine's processes, and the limit of this process's
//! control group.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Where the kernel tells of stalls.
const PRESSURE: &str = "/proc/pressure/memory";
/// Stalls of a tenth of two seconds make a report. Plain users may have a report for windows of two
/// seconds, or multiples.
const TRIGGER: &[u8] = b"some 200000 2000000\0";
/// Memory of a control group that the kernel frees only by swapping: pages of processes and of
/// tmpfs, and its own.
const UNRECLAIMABLE: [&str; 5] =
    ["anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables"];

/// Returns a descriptor that reports stalls: it has `POLLPRI` when some process of the machine has
/// waited for memory for 10 % of the last two seconds, at most once in that time.
///
/// # Errors
///
/// The kernel has no pressure stall information, or refuses the report.
pub fn stalls() -> io::Result<File> {
    let mut file = File::options().read(true).write(true).open(PRESSURE)?;
    file.write_all(TRIGGER)?;
    Ok(file)
}

/// Returns the share of the last ten seconds in which some process waited for memory, parts per
/// million; `None` where the kernel does not tell it.
pub fn stalled_ppm() -> Option<u32> {
    stalled_ppm_in(&fs::read_to_string(PRESSURE).ok()?)
}

/// Reads `some avg10=0.12 avg60=…`: percent, with two decimals.
pub fn stalled_ppm_in(text: &str) -> Option<u32> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let average = some.split(' ').find_map(|word| word.strip_prefix("avg10="))?;
    let (percent, hundredths) = average.split_once('.').unwrap_or((average, "0"));
    let hundredths = format!("{hundredths:0<2}").get(..2)?.parse::<u32>().ok()?;
    Some((percent.parse::<u32>().ok()?.checked_mul(100)? + hundredths).min(10_000) * 100)
}

/// A control group of version 2 whose memory is limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitedGroup {
    directory: PathBuf,
}

/// Returns the groups of this process whose memory is limited (`memory.high`, `memory.max`), from
/// its own up to the root.
pub fn limited_groups() -> Vec<LimitedGroup> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Some(root) = root_of_groups(&mounts) else { return Vec::new() };
    let Some(path) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    limited_groups_in(&root, Path::new(path))
}

fn limited_groups_in(root: &Path, path: &Path) -> Vec<LimitedGroup> {
    let groups = path.ancestors().map(|path| LimitedGroup::at(root.join(path)));
    groups.filter(|group| group.memory_bytes().is_some()).collect()
}

/// Returns the place at which control groups of version 2 are mounted.
pub fn root_of_groups(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let of_groups = after.split(' ').next() == Some("cgroup2");
        of_groups.then(|| before.split(' ').nth(4).map(PathBuf::from))?
    })
}

impl LimitedGroup {
    /// Returns the group with this directory.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns the limit, and the memory in use that the kernel cannot free by itself, in bytes.
    /// `None`: it is not limited, or its files cannot be read.
    pub fn memory_bytes(&self) -> Option<(u64, u64)> {
        let limit = |name| {
            let text = fs::read_to_string(self.directory.join(name)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let limit = [limit("memory.high"), limit("memory.max")].into_iter().flatten().min()?;
        let text = fs::read_to_string(self.directory.join("memory.stat")).ok()?;
        let used = text.lines().filter_map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            UNRECLAIMABLE.contains(&name).then(|| bytes.parse::<u64>().ok())?
        });
        Some((limit, used.sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Promises: Record 18.
    #[test]
    fn pressure_is_read_to_the_hundredth_of_a_percent() {
        let text = |avg10: &str| {
            format!("some avg10={avg10} avg60=9.99 avg300=0.00 total=1\nfull avg10=7.00\n")
        };
        for (avg10, ppm) in
            [("0.00", 0), ("0.01", 100), ("12.34", 123_400), ("5.5", 55_000), ("100.00", 1_000_000)]
        {
            assert_eq!(stalled_ppm_in(&text(avg10)), Some(ppm), "{avg10}");
        }
        assert_eq!(stalled_ppm_in(&text("4294967295.00")), None);
        for broken in ["", "full avg10=1.00", "some avg60=1.00", "some avg10=x.00"] {
            assert_eq!(stalled_ppm_in(broken), None, "{broken}");
        }
    }

    /// A group within a limited one: the limit of each counts, the lower of the two kinds; clean
    /// pages of files are not in use.
    #[test]
    fn the_limits_of_all_groups_above_count() {
        let root = tempfile::tempdir().unwrap();
        let (outer, inner) = (root.path().join("a.slice"), root.path().join("a.slice/b.service"));
        fs::create_dir_all(&inner).unwrap();
        let stat = "anon 100\nfile 5000\nkernel 70\nshmem 1000\nslab_unreclaimable 10\n\
                    kernel_stack 1\npagetables 2\nslab_reclaimable 90\n";
        for (group, high, max) in [(&outer, "5000\n", "4000\n"), (&inner, "max\n", "max\n")] {
            fs::write(group.join("memory.high"), high).unwrap();
            fs::write(group.join("memory.max"), max).unwrap();
            fs::write(group.join("memory.stat"), stat).unwrap();
        }
        let groups = limited_groups_in(root.path(), Path::new("a.slice/b.service"));
        assert_eq!(groups, [LimitedGroup { directory: outer }]);
        assert_eq!(groups[0].memory_bytes(), Some((4000, 1113)));
        fs::write(inner.join("memory.high"), "900\n").unwrap();
        assert_eq!(limited_groups_in(root.path(), Path::new("a.slice/b.service")).len(), 2);
    }

    #[test]
    fn the_root_of_the_groups_is_that_of_version_2() {
        let text = "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                    36 25 0:33 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        assert_eq!(root_of_groups(text).unwrap(), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(root_of_groups("x\n"), None);
    }
}
